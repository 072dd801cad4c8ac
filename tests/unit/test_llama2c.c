/* llama2.c files: three versions written and read back, the real one, headers that lie, cuts and mutations. */
#include <math.h>
#include <unistd.h>

#include "format/llama2c.h"
#include "t.h"

static char dir[] = "/tmp/anneal-llama2c-XXXXXX";
static char *in_dir(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static const llama2c_shape small = {
    .dim = 8, .hidden = 12, .layers = 2, .heads = 4, .kv_heads = 2, .vocab = 10, .seq = 6, .shared = true, .group = 4
};

/* Byte k of tensor id of a layer: anything that tells places apart. */
static unsigned char byte_of(int id, int64_t layer, size_t k)
{
    return (unsigned char)(id * 37 + layer * 11 + (int64_t)k * 3 + 1);
}

static void write_file(const char *path, const llama2c_shape *s)
{
    diag d = { 0 };
    llama2c_out *w;
    assert_ok(llama2c_create(path, s, &w, &d), d);
    for (int id = L2C_COUNT; id-- > 0;) /* not the order of the file */
        for (int64_t l = 0; l < (id == L2C_EMBED || id == L2C_NORM_F || id == L2C_HEAD ? 1 : s->layers); l++) {
            if (id == L2C_HEAD && s->shared) continue;
            int64_t kv = s->dim / s->heads * s->kv_heads;
            int64_t rows[L2C_COUNT] = { s->vocab, s->dim,    s->dim, kv,        kv,     s->dim,
                                        s->dim,   s->hidden, s->dim, s->hidden, s->dim, s->vocab };
            int64_t cols[L2C_COUNT] = { s->dim, 1,      s->dim,    s->dim, s->dim, s->dim,
                                        1,      s->dim, s->hidden, s->dim, 1,      s->dim };
            bool q = s->version == 2 && cols[id] > 1;
            size_t n = (size_t)(rows[id] * cols[id]), bytes = q ? n + n / (size_t)s->group * 4 : n * 4;
            unsigned char *p = malloc(bytes);
            assert_non_null(p);
            for (size_t k = 0; k < bytes; k++) p[k] = byte_of(id, l, k);
            assert_ok(llama2c_put(w, (llama2c_id)id, l, p, bytes / 3, &d), d);
            assert_ok(llama2c_put(w, (llama2c_id)id, l, p + bytes / 3, bytes - bytes / 3, &d), d);
            free(p);
        }
    assert_ok(llama2c_finish(w, &d), d);
}

static void there_and_back(void **state)
{
    (void)state;
    for (int version = 0; version <= 2; version++)
        for (int shared = 0; shared < 2; shared++) {
            llama2c_shape s = small;
            s.version = version;
            s.shared = shared;
            if (version < 2) s.group = 0;
            write_file(in_dir("a.bin"), &s);
            diag d = { 0 };
            llama2c f;
            assert_ok(llama2c_open(in_dir("a.bin"), &f, &d), d);
            const llama2c_shape *g = &f.shape;
            assert_true(g->version == version && g->dim == s.dim && g->hidden == s.hidden && g->layers == s.layers &&
                        g->heads == s.heads);
            assert_true(g->kv_heads == s.kv_heads && g->vocab == s.vocab && g->seq == s.seq && g->shared == shared &&
                        g->group == s.group);
            size_t covered = 0;
            for (int id = 0; id < L2C_COUNT; id++)
                for (int64_t l = 0; l < 2; l++) {
                    llama2c_tensor t;
                    if (!llama2c_get(&f, (llama2c_id)id, l, &t)) {
                        assert_true((id == L2C_HEAD && (shared || l)) || ((id == L2C_EMBED || id == L2C_NORM_F) && l));
                        continue;
                    }
                    assert_int_equal(t.scales != NULL, version == 2 && t.cols > 1);
                    for (size_t k = 0; k < t.bytes + t.scale_bytes; k++) assert_int_equal(t.data[k], byte_of(id, l, k));
                    covered += t.bytes + t.scale_bytes;
                }
            size_t rope = version ? 0 : 2 * 6 * 1 * 4;
            assert_int_equal(covered + rope + (version ? 256 : 28), f.map.n);
            llama2c_tensor t;
            assert_false(llama2c_get(&f, L2C_WQ, 2, &t));
            assert_false(llama2c_get(&f, L2C_WQ, -1, &t));
            llama2c_close(&f);
        }
    unlink(in_dir("a.bin"));
}

static void writer_refuses(void **state)
{
    (void)state;
    diag d = { 0 };
    llama2c_out *w;
    llama2c_shape s = small;
    s.heads = 3;
    assert_int_equal(llama2c_create(in_dir("x.bin"), &s, &w, &d), AN_INPUT);
    s = small;
    s.version = 2;
    s.group = 7;
    d = (diag){ 0 };
    assert_int_equal(llama2c_create(in_dir("x.bin"), &s, &w, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "group size 7"));
    d = (diag){ 0 };
    assert_ok(llama2c_create(in_dir("x.bin"), &small, &w, &d), d);
    assert_int_equal(llama2c_put(w, L2C_HEAD, 0, "", 0, &d), AN_BUG);
    d = (diag){ 0 };
    assert_int_equal(llama2c_put(w, L2C_WQ, 2, "", 0, &d), AN_BUG);
    d = (diag){ 0 };
    unsigned char many[40] = { 0 };
    assert_int_equal(llama2c_put(w, L2C_NORM_F, 0, many, 40, &d), AN_BUG);
    d = (diag){ 0 };
    assert_int_equal(llama2c_finish(w, &d), AN_BUG);
    assert_int_not_equal(access(in_dir("x.bin"), F_OK), 0);
    llama2c_abandon(NULL);
}

/* One field of a good header changed. */
static void lies(void **state)
{
    (void)state;
    static const struct {
        int version;
        size_t at;
        int64_t value;
        const char *want;
    } rows[] = {
        { 0, 0, 0, "dim is 0" },          { 0, 0, -8, "dim is -8" },        { 0, 0, 1 << 30, "dim is" },      { 0, 0, 16, "takes" },
        { 0, 8, -1, "n_layers is -1" },   { 0, 8, INT32_MAX, "n_layers" },  { 0, 8, 3, "takes" },             { 0, 12, 3, "each must divide" },
        { 0, 16, 3, "each must divide" }, { 0, 16, 0, "n_kv_heads is 0" },  { 0, 20, -10, "takes" },          { 0, 20, INT32_MIN, "vocab_size" },
        { 0, 20, 0, "vocab_size is 0" },  { 0, 24, 7, "takes" },            { 0, 24, INT32_MAX, "max_seq" },
        { 1, 4, 3, "version 3" },         { 1, 4, -1, "version -1" },       { 1, 4, 0, "version 0" },         { 1, 36, 2, "classifier is 2" },
        { 1, 36, 0, "takes" },            { 1, 28, -10, "vocab_size is -10" },
        { 2, 37, 0, "group size is 0" },  { 2, 37, -4, "group size is -4" }, { 2, 37, 5, "not a multiple" },  { 2, 37, 2, "takes" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        llama2c_shape s = small;
        s.version = rows[i].version;
        write_file(in_dir("a.bin"), &s);
        diag d = { 0 };
        file_bytes f;
        assert_ok(file_read(in_dir("a.bin"), 1 << 20, &f, &d), d);
        size_t n = rows[i].at == 36 ? 1 : 4;
        for (size_t k = 0; k < n; k++) f.at[rows[i].at + k] = (unsigned char)((uint64_t)rows[i].value >> 8 * k);
        llama2c m;
        an_status st = llama2c_view(f.at, f.n, "the.bin", &m, &d);
        if (st != AN_INPUT || !strstr(d.msg, rows[i].want) || !strstr(d.msg, "the.bin"))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        file_drop(&f);
    }
    unlink(in_dir("a.bin"));
}

static void cuts_and_mutations(void **state)
{
    (void)state;
    rng r = { test_seed("llama2c mutations") };
    for (int version = 0; version <= 2; version++) {
        llama2c_shape s = small;
        s.version = version;
        write_file(in_dir("a.bin"), &s);
        diag d = { 0 };
        file_bytes f;
        llama2c m;
        assert_ok(file_read(in_dir("a.bin"), 1 << 20, &f, &d), d);
        for (size_t cut = 0; cut < f.n; cut++) {
            unsigned char *p = malloc(cut ? cut : 1);
            assert_non_null(p);
            memcpy(p, f.at, cut);
            d = (diag){ 0 };
            assert_int_equal(llama2c_view(p, cut, "f", &m, &d), AN_INPUT);
            free(p);
        }
        for (int k = 0; k < 20000; k++) {
            unsigned char h[256], *p = f.at;
            memcpy(h, p, sizeof h);
            for (uint64_t c = 1 + rng_below(&r, 3); c; c--)
                p[rng_below(&r, 48)] = (unsigned char)(rng_next(&r) % (k % 2 ? 256 : 16));
            d = (diag){ 0 };
            if (!llama2c_view(p, f.n, "f", &m, &d))
                for (int id = 0; id < L2C_COUNT; id++) {
                    llama2c_tensor t;
                    for (int64_t l = 0; llama2c_get(&m, (llama2c_id)id, l, &t); l++)
                        assert_true(t.data >= p && t.data + t.bytes + t.scale_bytes <= p + f.n);
                }
            memcpy(p, h, sizeof h);
        }
        file_drop(&f);
    }
    unlink(in_dir("a.bin"));
}

static void real_file(void **state)
{
    (void)state;
    const char *path = "../shared/data/llama2c/stories260K.bin";
    if (access(path, R_OK)) skip();
    diag d = { 0 };
    llama2c f;
    assert_ok(llama2c_open(path, &f, &d), d);
    assert_int_equal(f.shape.dim, 64);
    assert_int_equal(f.shape.hidden, 172);
    assert_int_equal(f.shape.layers, 5);
    assert_int_equal(f.shape.vocab, 512);
    assert_true(f.shape.shared);
    /* written again tensor by tensor: the weights are the same bytes, the unused rotary tables nearly */
    llama2c_out *w;
    assert_ok(llama2c_create(in_dir("b.bin"), &f.shape, &w, &d), d);
    for (int id = 0; id < L2C_COUNT; id++) {
        llama2c_tensor t;
        for (int64_t l = 0; llama2c_get(&f, (llama2c_id)id, l, &t); l++)
            assert_ok(llama2c_put(w, (llama2c_id)id, l, t.data, t.bytes, &d), d);
    }
    assert_ok(llama2c_finish(w, &d), d);
    file_bytes b;
    assert_ok(file_map(in_dir("b.bin"), &b, &d), d);
    assert_int_equal(b.n, f.map.n);
    size_t rope = 2 * 512 * 4 * 4;
    assert_memory_equal(b.at, f.map.at, b.n - rope);
    for (size_t i = b.n - rope; i < b.n; i += 4) {
        float x, y;
        memcpy(&x, b.at + i, 4);
        memcpy(&y, f.map.at + i, 4);
        assert_true(fabsf(x - y) < 1e-4f);
    }
    file_drop(&b);
    llama2c_close(&f);
    unlink(in_dir("b.bin"));
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(there_and_back), cmocka_unit_test(writer_refuses),
                                        cmocka_unit_test(lies), cmocka_unit_test(cuts_and_mutations),
                                        cmocka_unit_test(real_file) };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
