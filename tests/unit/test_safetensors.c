/* safetensors: every type there and back, shards, headers that lie, cuts at every byte, mutations, a writer that
 * leaves nothing half done. */
#include <dirent.h>
#include <unistd.h>

#include "format/safetensors.h"
#include "t.h"

static char dir[] = "/tmp/anneal-safetensors-XXXXXX";
static char *in_dir(const char *name)
{
    static char path[2][300];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static int files_in_dir(void)
{
    int n = 0;
    DIR *p = opendir(dir);
    assert_non_null(p);
    for (struct dirent *e; (e = readdir(p));) n += e->d_name[0] != '.';
    closedir(p);
    return n;
}

static void every_type(void **state)
{
    (void)state;
    static const dtype all[] = { DT_I8,  DT_F16, DT_F64, DT_BF16, DT_F32, DT_U8,   DT_I64, DT_BOOL,
                                 DT_I16, DT_U16, DT_I32, DT_U32,  DT_U64, DT_E4M3, DT_E5M2 };
    unsigned char data[COUNT(all)][64];
    size_t index[COUNT(all)];
    diag d = { 0 };
    safetensors_out *w;
    assert_ok(safetensors_create(in_dir("all.safetensors"), &w, &d), d);
    assert_ok(safetensors_put_meta(w, "format", "pt", &d), d);
    assert_ok(safetensors_put_meta(w, "say \"hi\"", "a\nb\\", &d), d);
    for (size_t i = 0; i < COUNT(all); i++) {
        char name[32];
        snprintf(name, sizeof name, "t.\"%zu\"", i);
        assert_ok(safetensors_declare(w, name, all[i], i == 1 ? 0 : 2,
                                      (const int64_t[]){ 1 + (int64_t)i % 3, i == 4 ? 0 : 2 }, &index[i], &d),
                  d);
        for (size_t k = 0; k < 64; k++) data[i][k] = (unsigned char)(i * 31 + k * 7);
    }
    /* by turns, backwards, in pieces of different sizes */
    for (size_t piece = 0; piece < 2; piece++)
        for (size_t i = COUNT(all); i-- > 0;) {
            size_t n = (size_t)(i == 1 ? 1 : (1 + i % 3) * (i == 4 ? 0 : 2)) * (size_t)dtype_bits(all[i]) / 8,
                   cut = n / 3;
            assert_ok(safetensors_put(w, index[i], piece ? data[i] + cut : data[i], piece ? n - cut : cut, &d), d);
        }
    assert_ok(safetensors_finish(w, &d), d);
    assert_int_equal(files_in_dir(), 1);

    safetensors *f;
    assert_ok(safetensors_open(in_dir("all.safetensors"), &f, &d), d);
    assert_int_equal(safetensors_count(f), COUNT(all));
    assert_string_equal(safetensors_meta(f, "format"), "pt");
    assert_string_equal(safetensors_meta(f, "say \"hi\""), "a\nb\\");
    assert_null(safetensors_meta(f, "none"));
    for (size_t i = 0; i < COUNT(all); i++) {
        char name[32];
        snprintf(name, sizeof name, "t.\"%zu\"", i);
        const safetensor *t = safetensors_find(f, name);
        assert_non_null(t);
        assert_int_equal(t->dt, all[i]);
        assert_int_equal(t->rank, i == 1 ? 0 : 2);
        assert_memory_equal(t->data, data[i], t->bytes);
        assert_int_equal((uintptr_t)t->data % ((size_t)dtype_bits(all[i]) / 8), 0); /* aligned to its element */
    }
    assert_null(safetensors_find(f, "t"));
    assert_null(safetensors_at(f, COUNT(all)));
    safetensors_close(f);
    unlink(in_dir("all.safetensors"));
}

/* An image from header text and n bytes of data, in a block of exactly its size: reading past it is seen. */
static unsigned char *image(const char *header, size_t n_header, uint64_t said, size_t n_data, size_t *n)
{
    *n = 8 + n_header + n_data;
    unsigned char *p = malloc(*n);
    assert_non_null(p);
    for (int i = 0; i < 8; i++) p[i] = (unsigned char)(said >> 8 * i);
    memcpy(p + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++) p[8 + n_header + i] = (unsigned char)i;
    return p;
}

static void headers(void **state)
{
    (void)state;
#define A(type, shape, begin, end) "{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
    static const struct {
        const char *text;
        size_t n_data;
        const char *want; /* NULL: fine; else part of the message */
    } rows[] = {
        { "{}", 0, NULL },
        { "{}      ", 0, NULL },
        { "{\"a\":" A("F32", "[2]", "0", "8") "}", 8, NULL },
        { "{\"b\":" A("F32", "[2]", "4", "12") ",\"a\":" A("I8", "[4]", "0", "4") "}", 12, NULL },
        { "{\"a\":" A("F16", "[]", "0", "2") ",\"z\":" A("F64", "[3,0]", "0", "0") "}", 2, NULL },
        { "{\"__metadata__\":{\"k\":\"v\"},\"a\":" A("BOOL", "[2]", "0", "2") "}", 2, NULL },
        { "{}", 1, "end at byte 0 of 1" },
        { "{\"a\":" A("F32", "[2]", "0", "8") "}", 9, "end at byte 8 of 9" },
        { "{\"a\":" A("F32", "[2]", "0", "8") "}", 7, "0 to 8 of 7" },
        { "{\"a\":" A("F32", "[2]", "0", "8") ",\"b\":" A("F32", "[2]", "4", "12") "}", 12, "overlap" },
        { "{\"a\":" A("F32", "[2]", "0", "8") ",\"b\":" A("F32", "[2]", "0", "8") "}", 8, "overlap" },
        { "{\"a\":" A("F32", "[1]", "4", "8") ",\"b\":" A("F32", "[2]", "8", "16") ",\"c\":" A("F32", "[2]", "12", "20") "}", 20, "\"b\" and \"c\" overlap: one ends at byte 16, the other begins at 12" },
        { "{\"a\":" A("F32", "[2]", "0", "8") ",\"b\":" A("F32", "[1]", "12", "16") "}", 16, "belong to no tensor" },
        { "{\"a\":" A("F32", "[2]", "4", "12") "}", 12, "belong to no tensor" },
        { "{\"a\":" A("F32", "[2]", "8", "0") "}", 8, "8 to 0" },
        { "{\"a\":" A("F32", "[2]", "-8", "0") "}", 8, "-8" },
        { "{\"a\":" A("F32", "[-2]", "0", "8") "}", 8, "-2" },
        { "{\"a\":" A("F32", "[3]", "0", "8") "}", 8, "3 elements of F32 do not fill its 8 bytes" },
        { "{\"a\":" A("F16", "[2]", "0", "8") "}", 8, "2 elements of F16" },
        { "{\"a\":" A("F32", "[2.0]", "0", "8") "}", 8, "not an integer" },
        { "{\"a\":" A("F32", "[\"2\"]", "0", "8") "}", 8, "not an integer" },
        { "{\"a\":" A("F32", "2", "0", "8") "}", 8, "no shape array" },
        { "{\"a\":" A("F32", "[4611686018427387904,4]", "0", "8") "}", 8, "2^63 elements" },
        { "{\"a\":" A("F64", "[4611686018427387904]", "0", "8") "}", 8, "do not fill" },
        { "{\"a\":" A("F32", "[99999999999999999999]", "0", "8") "}", 8, "not JSON" },
        { "{\"a\":" A("F32", "[1,1,1,1,1,1,1,1,2]", "0", "8") "}", 8, "9 axes; 8" },
        { "{\"a\":" A("Q7", "[2]", "0", "8") "}", 8, "\"Q7\"" },
        { "{\"a\":" A("F32", "[2]", "0", "8") ",\"a\":" A("F32", "[2]", "0", "8") "}", 8, "duplicate" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "2 fields" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "two numbers" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, "4 fields" },
        { "{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype" },
        { "{\"a\":[]}", 8, "no dtype" },
        { "{\"__metadata__\":{\"k\":1}}", 0, "\"k\"" },
        { "{\"__metadata__\":7}", 0, "not an object" },
        { "[]", 0, "not an object" },
        { "\"x\"", 0, "not an object" },
        { "{", 0, "not JSON" },
        { "{} x", 0, "not JSON" },
        { "{\"a\\u0000\":1}", 0, "not JSON" },
        { "", 0, "not JSON" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        size_t n, len = strlen(rows[i].text);
        unsigned char *p = image(rows[i].text, len, len, rows[i].n_data, &n);
        diag d = { 0 };
        safetensors *f;
        an_status st = safetensors_view(p, n, "the.file", &f, &d);
        if (!rows[i].want) assert_ok(st, d);
        else if (st != AN_INPUT || !strstr(d.msg, rows[i].want) || !strstr(d.msg, "the.file") || f)
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        safetensors_close(f);
        free(p);
    }
    /* the length itself lies */
    static const uint64_t said[] = { 3, 1, 0, (uint64_t)1 << 32, UINT64_MAX, UINT64_MAX - 7, INT64_MAX };
    for (size_t i = 0; i < COUNT(said); i++) {
        size_t n;
        unsigned char *p = image("{}", 2, said[i], 0, &n);
        diag d = { 0 };
        safetensors *f;
        assert_int_equal(safetensors_view(p, n, "f", &f, &d), AN_INPUT);
        assert_true(d.msg[0]);
        free(p);
    }
    /* nesting and numbers of values that would cost the parser a great deal are refused before it sees them */
    size_t n, deep = 5000, many = 3 * ((1 << 20) + 1);
    char *text = malloc(many);
    assert_non_null(text);
    memset(text, '[', deep);
    for (int k = 0; k < 2; k++) {
        size_t len = k ? many : deep;
        for (size_t i = 0; k && i < many; i++) text[i] = "{},"[i % 3];
        unsigned char *p = image(text, len, len, 0, &n);
        diag d = { 0 };
        safetensors *f;
        assert_int_equal(safetensors_view(p, n, "f", &f, &d), AN_INPUT);
        assert_non_null(strstr(d.msg, k ? "more than" : "deeper"));
        free(p);
    }
    free(text);
}

static const char GOOD[] =
    "{\"__metadata__\":{\"k\":\"v\"},\"a\":" A("F32", "[2]", "0", "8") ",\"b\":" A("I8", "[2,2]", "8", "12") "}";

static void every_cut(void **state)
{
    (void)state;
    size_t n;
    unsigned char *p = image(GOOD, strlen(GOOD), strlen(GOOD), 12, &n);
    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *q = malloc(cut ? cut : 1);
        assert_non_null(q);
        memcpy(q, p, cut);
        diag d = { 0 };
        safetensors *f;
        assert_int_equal(safetensors_view(q, cut, "f", &f, &d), AN_INPUT);
        assert_true(d.msg[0] && !f);
        free(q);
    }
    free(p);
}

static void mutations(void **state)
{
    (void)state;
    rng r = { test_seed("safetensors mutations") };
    int accepted = 0;
    for (int k = 0; k < 20000; k++) {
        size_t n;
        unsigned char *p = image(GOOD, strlen(GOOD), strlen(GOOD), 12, &n);
        for (uint64_t m = 1 + rng_below(&r, 3); m; m--) p[8 + rng_below(&r, n - 8)] = (unsigned char)rng_below(&r, 128);
        diag d = { 0 };
        safetensors *f;
        if (!safetensors_view(p, n, "f", &f, &d)) {
            accepted++;
            for (size_t i = 0; i < safetensors_count(f); i++) {
                const safetensor *t = safetensors_at(f, i);
                assert_true((const unsigned char *)t->data >= p + 8 &&
                            (const unsigned char *)t->data + t->bytes <= p + n);
                assert_ptr_equal(safetensors_find(f, t->name), t);
            }
        }
        safetensors_close(f);
        free(p);
    }
    assert_true(accepted > 0 && accepted < 20000);
}

static void write_one(const char *path, const char *name, float x)
{
    diag d = { 0 };
    safetensors_out *w;
    assert_ok(safetensors_create(path, &w, &d), d);
    assert_ok(safetensors_declare(w, name, DT_F32, 1, (const int64_t[]){ 1 }, NULL, &d), d);
    assert_ok(safetensors_put(w, 0, &x, 4, &d), d);
    assert_ok(safetensors_finish(w, &d), d);
}

static void shards(void **state)
{
    (void)state;
    write_one(in_dir("m-1.safetensors"), "a", 1);
    write_one(in_dir("m-2.safetensors"), "b", 2);
    write_one(in_dir("m-3.safetensors"), "a", 3);
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}", NULL },
        { "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\"}}", "\"b\" is not in" },
        { "{\"weight_map\":{\"a\":\"m-2.safetensors\",\"b\":\"m-1.safetensors\"}}", "is not in" },
        { "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\",\"c\":\"m-2.safetensors\"}}", "\"c\" is not in" },
        { "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-3.safetensors\"}}", "in two shards" },
        { "{\"weight_map\":{\"c\":\"m-1.safetensors\"}}", "\"c\" is not in" },
        { "{\"weight_map\":{\"a\":\"m-9.safetensors\"}}", "m-9.safetensors" },
        { "{\"weight_map\":{\"a\":\"../m-1.safetensors\"}}", "not the name of a file beside it" },
        { "{\"weight_map\":{\"a\":\"\"}}", "not the name" },
        { "{\"weight_map\":{\"a\":1}}", "not a name" },
        { "{\"weight_map\":{}}", "no weight_map" },
        { "{}", "no weight_map" },
        { "[", "not JSON" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        assert_ok(file_write(in_dir("m.safetensors.index.json"), rows[i].text, strlen(rows[i].text), &d), d);
        safetensors *f;
        an_status st = safetensors_open(in_dir("m.safetensors.index.json"), &f, &d);
        if (!rows[i].want) {
            assert_ok(st, d);
            assert_int_equal(safetensors_count(f), 2);
            assert_true(*(const float *)safetensors_find(f, "b")->data == 2);
        } else if (st != AN_INPUT || !strstr(d.msg, rows[i].want))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        safetensors_close(f);
    }
    for (int i = 1; i <= 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "m-%d.safetensors", i);
        unlink(in_dir(name));
    }
    unlink(in_dir("m.safetensors.index.json"));
}

static void nothing_half_written(void **state)
{
    (void)state;
    const int64_t two[] = { 2 };
    const float x[3] = { 1, 2, 3 };
    diag d = { 0 };
    safetensors_out *w;
    assert_ok(safetensors_create(in_dir("x.safetensors"), &w, &d), d);
    assert_ok(safetensors_declare(w, "a", DT_F32, 1, two, NULL, &d), d);
    assert_int_equal(safetensors_declare(w, "a", DT_F32, 1, two, NULL, &d), AN_INPUT);
    d = (diag){ 0 };
    assert_int_equal(safetensors_declare(w, "b", DT_I4, 1, two, NULL, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "int4"));
    d = (diag){ 0 };
    assert_int_equal(safetensors_declare(w, "b\xff", DT_F32, 1, two, NULL, &d), AN_INPUT);
    d = (diag){ 0 };
    assert_int_equal(safetensors_declare(w, "b", DT_F32, 9, two, NULL, &d), AN_INPUT);
    d = (diag){ 0 };
    assert_int_equal(safetensors_declare(w, "b", DT_F32, 2, (const int64_t[]){ INT64_MAX, 3 }, NULL, &d), AN_INPUT);
    d = (diag){ 0 };
    assert_int_equal(safetensors_put(w, 0, x, 12, &d), AN_BUG);
    d = (diag){ 0 };
    assert_ok(safetensors_put(w, 0, x, 4, &d), d);
    assert_int_equal(safetensors_declare(w, "late", DT_F32, 1, two, NULL, &d), AN_BUG);
    d = (diag){ 0 };
    assert_int_equal(safetensors_finish(w, &d), AN_BUG); /* half of "a" is missing */
    assert_non_null(strstr(d.msg, "4 of its 8"));
    assert_int_equal(files_in_dir(), 0);

    d = (diag){ 0 };
    write_one(in_dir("x.safetensors"), "keep", 7);
    assert_ok(safetensors_create(in_dir("x.safetensors"), &w, &d), d);
    safetensors_abandon(w); /* the file that was there stays */
    safetensors *f;
    assert_ok(safetensors_open(in_dir("x.safetensors"), &f, &d), d);
    assert_non_null(safetensors_find(f, "keep"));
    safetensors_close(f);
    unlink(in_dir("x.safetensors"));
    assert_int_equal(files_in_dir(), 0);

    assert_int_equal(safetensors_create(in_dir("none/x.safetensors"), &w, &d), AN_INPUT);
    assert_null(w);
    d = (diag){ 0 };
    assert_int_equal(safetensors_open(in_dir("absent.safetensors"), &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "absent.safetensors"));
    safetensors_abandon(NULL);
    safetensors_close(NULL);
}

static void real_files(void **state)
{
    (void)state;
    static const struct {
        const char *path, *name;
        size_t count;
        int64_t rows;
    } rows[] = { { "../shared/data/gpt2-hf/model.safetensors", "transformer.wte.weight", 16, 50257 },
                 { "../shared/data/gpt2-tiny/model.safetensors", "wte.weight", 0, 21 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (access(rows[i].path, R_OK)) skip();
        diag d = { 0 };
        safetensors *f;
        assert_ok(safetensors_open(rows[i].path, &f, &d), d);
        if (rows[i].count) assert_int_equal(safetensors_count(f), rows[i].count);
        const safetensor *t = safetensors_find(f, rows[i].name);
        assert_non_null(t);
        assert_int_equal(t->dim[0], rows[i].rows);
        safetensors_close(f);
    }
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_type), cmocka_unit_test(headers),
                                        cmocka_unit_test(every_cut),  cmocka_unit_test(mutations),
                                        cmocka_unit_test(shards),     cmocka_unit_test(nothing_half_written),
                                        cmocka_unit_test(real_files) };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
