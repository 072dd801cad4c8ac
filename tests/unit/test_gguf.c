/* GGUF: the element layouts against values worked out elsewhere, files written and read back, files that lie, real
 * vocabularies. */
#include <math.h>
#include <unistd.h>

#include "format/gguf.h"
#include "t.h"

static char dir[] = "/tmp/anneal-gguf-XXXXXX";
static char *in_dir(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* ---- layouts ---- */

/* A block of bytes from a generator, its fp16 fields (at up to two places) set to 0.0123 and 0.37. The numbers come
 * from a second reading of the published layouts, group by group with shifting masks instead of by element; the sum
 * is FNV-1a over all floats. */
static void layouts(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int half[2];
        uint64_t fnv;
        float some[5]; /* elements 0, 1, 17, n/2 + 3, n - 1 */
    } rows[] = {
        { "Q4_0", { 0, -1 }, 0x27c650a08c15ccbeu, { -0.0491943359f, 0.0737915039f, 0.012298584f, -0.024597168f, -0.012298584f } },
        { "Q4_1", { 0, 2 }, 0x2ce1466c30fccdc2u, { 0.554595947f, 0.505401611f, 0.456207275f, 0.431610107f, 0.529998779f } },
        { "Q5_0", { 0, -1 }, 0x50b928a80428fe3eu, { 0.0737915039f, -0.159881592f, -0.110687256f, -0.196777344f, 0.0860900879f } },
        { "Q5_1", { 0, 2 }, 0x1b720559a0fe2fb7u, { 0.739074707f, 0.616088867f, 0.480804443f, 0.456207275f, 0.616088867f } },
        { "Q8_0", { 0, -1 }, 0xc4197ea897c1b6a1u, { 1.26675415f, 1.43893433f, -0.159881592f, 0.491943359f, -0.824005127f } },
        { "Q2_K", { 80, 82 }, 0xa013511c0f5f678au, { -1.45587158f, -1.48046875f, -5.44107056f, -3.1477356f, -0.703338623f } },
        { "Q3_K", { 108, -1 }, 0x7a399e8eb94ad1eau, { 0.664123535f, -0.664123535f, 0.24597168f, -0.024597168f, -1.14376831f } },
        { "Q4_K", { 0, 2 }, 0x7708585bd5b03686u, { -13.8535156f, -17.1003418f, -16.8051758f, -17.8686523f, -1.00708008f } },
        { "Q5_K", { 0, 2 }, 0x40e58cfe7f79b239u, { -9.72512817f, -4.31375122f, -14.460083f, -13.8231201f, 14.9024048f } },
        { "Q6_K", { 208, -1 }, 0x9fdc969a1a5947dau, { 1.86938477f, 7.01019287f, 27.1552734f, 1.59881592f, 7.30535889f } },
        { "IQ4_NL", { 0, -1 }, 0xdd67a64e830d3f4fu, { -0.602630615f, 1.09457397f, 0.159881592f, -0.270568848f, -0.12298584f } },
    };
    static const double field[2] = { 0.0123, 0.37 };
    size_t seen = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        const block_format *f = block_by_name(rows[i].name);
        assert_non_null(f);
        unsigned char b[512];
        float y[256];
        uint32_t x = (uint32_t)f->bytes * 7 + 1;
        for (int k = 0; k < f->bytes; k++) {
            x = (x * 1103515245u + 12345u) & 0x7fffffff;
            b[k] = (unsigned char)(x >> 16);
        }
        for (int k = 0; k < 2 && rows[i].half[k] >= 0; k++) {
            uint16_t h = f16_from_f64(field[k]);
            b[rows[i].half[k]] = (unsigned char)(h & 255);
            b[rows[i].half[k] + 1] = (unsigned char)(h >> 8);
        }
        block_decode(f, b, y, f->elems);
        int at[5] = { 0, 1, 17, f->elems / 2 + 3, f->elems - 1 };
        for (int k = 0; k < 5; k++)
            if (y[at[k]] != rows[i].some[k])
                fail_msg("%s element %d: %.9g, wanted %.9g", f->name, at[k], (double)y[at[k]], (double)rows[i].some[k]);
        uint64_t sum = 0xcbf29ce484222325u;
        for (int k = 0; k < f->elems; k++) {
            float v = y[k] + 0.0f;
            uint32_t bits;
            memcpy(&bits, &v, 4);
            for (int c = 0; c < 4; c++) sum = (sum ^ (bits >> 8 * c & 255)) * 0x100000001b3u;
        }
        if (sum != rows[i].fnv)
            fail_msg("%s: sum %016llx, wanted %016llx", f->name, (unsigned long long)sum,
                     (unsigned long long)rows[i].fnv);
        seen++;
    }
    size_t blocks = 0; /* every format that can be read is in the table above */
    for (int i = 0; i < BLOCK_COUNT; i++) {
        const block_format *f = block_of((block_id)i);
        assert_ptr_equal(block_by_code(f->code), f);
        assert_ptr_equal(block_by_name(f->name), f);
        blocks += f->decode != NULL;
        if (f->dt) assert_int_equal(f->bytes * 8, dtype_bits(f->dt));
    }
    assert_int_equal(blocks, seen);
    assert_null(block_by_code(4));
    assert_null(block_by_code(UINT32_MAX));
    assert_null(block_by_name("Q4"));
    assert_non_null(block_by_name("q4_k"));
}

/* Q8_0 within half a step of its scale, Q4_0 within one; what they made reads back and is made again bit for bit;
 * split is decode. */
static void encoders(void **state)
{
    (void)state;
    rng r = { test_seed("block encoders") };
    for (int k = 0; k < 400; k++) {
        float x[64], y[64], z[64];
        for (int i = 0; i < 64; i++) x[i] = k ? (float)(rng_normal(&r) * pow(10, (double)(k % 9) - 6)) : 0;
        for (int id = 0; id < 2; id++) {
            const block_format *f = block_of(id ? BLOCK_Q4_0 : BLOCK_Q8_0);
            unsigned char b[68], again[68], codes[64];
            uint16_t scales[2];
            block_encode(f, x, b, 64);
            block_decode(f, b, y, 64);
            assert_true(block_split(f, b, 64, codes, scales));
            for (int i = 0; i < 64; i++) {
                double d = f16_to_f64(scales[i / 32]), q = dtype_load(id ? DT_I4 : DT_I8, codes, i);
                assert_true((float)(q * d) == y[i]);
                /* the far end of Q4_0's codes is cut off by a step, and fp16 rounds the scale by 2^-11 (or 2^-25) */
                double near = fabs(d) * (id ? 1.01 : 0.51) + fabs((double)x[i]) * 0x1p-10 + 0x1p-17;
                if (!(fabs((double)y[i] - (double)x[i]) <= near))
                    fail_msg("%s: %g came back as %g with scale %g", f->name, (double)x[i], (double)y[i], d);
            }
            block_encode(f, y, again, 64);
            block_decode(f, again, z, 64);
            if (k % 9 >= 4) assert_memory_equal(y, z, sizeof y); /* above fp16's subnormals */
        }
    }
    float bad[32];
    for (int i = 0; i < 32; i++) bad[i] = i % 3 ? i % 3 == 1 ? NAN : INFINITY : 1;
    unsigned char b[34];
    block_encode(block_of(BLOCK_Q8_0), bad, b, 32); /* defined behaviour is all that is asked */
    block_encode(block_of(BLOCK_Q4_0), bad, b, 32);
    /* the inverse of their scale is infinite */
    for (int i = 0; i < 32; i++) bad[i] = i % 3 ? i % 3 == 1 ? 1e-40f : -1e-40f : 0;
    for (int id = 0; id < 2; id++) {
        block_encode(block_of(id ? BLOCK_Q4_0 : BLOCK_Q8_0), bad, b, 32);
        for (int i = 2; i < (id ? 18 : 34); i++)
            if (b[i] != (id ? 0x88 : 0))
                fail_msg("%s: byte %d of a block of zeros is %u", id ? "Q4_0" : "Q8_0", i, b[i]);
    }
    size_t n;
    assert_false(block_bytes(block_of(BLOCK_Q8_0), 33, &n));
    assert_false(block_bytes(block_of(BLOCK_F32), -1, &n));
    assert_false(block_bytes(block_of(BLOCK_F64), INT64_MAX, &n));
    assert_false(block_split(block_of(BLOCK_Q6_K), b, 0, bad, NULL));
}

/* ---- files ---- */

static void write_file(const char *path)
{
    diag d = { 0 };
    gguf_out *w;
    assert_ok(gguf_create(path, &w, &d), d);
    assert_ok(gguf_put_text(w, "general.architecture", "llama", 5, &d), d);
    assert_ok(gguf_put_u32(w, "llama.block_count", 2, &d), d);
    assert_ok(gguf_put_f32(w, "llama.rope.freq_base", 10000, &d), d);
    assert_ok(gguf_put_bool(w, "tokenizer.ggml.add_bos_token", true, &d), d);
    assert_ok(
        gguf_put_texts(w, "tokenizer.ggml.tokens", (const gguf_str[]){ { "a", 1 }, { "", 0 }, { "b\0c", 3 } }, 3, &d),
        d);
    assert_ok(gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, (const float[]){ 0, -1, -2.5f }, 3, &d), d);
    assert_ok(gguf_put_array(w, "types", GGUF_I16, (const int16_t[]){ -3, 7 }, 2, &d), d);
    size_t q, v;
    assert_ok(gguf_declare(w, "blk.0.w", block_of(BLOCK_Q8_0), 2, (const int64_t[]){ 2, 32 }, &q, &d), d);
    assert_ok(gguf_declare(w, "norm", block_of(BLOCK_F32), 1, (const int64_t[]){ 3 }, &v, &d), d);
    unsigned char b[68];
    for (int i = 0; i < 68; i++) b[i] = (unsigned char)(i * 3);
    float x[3] = { 1, 2, 3 };
    assert_ok(gguf_put(w, v, x, 12, &d), d);
    assert_ok(gguf_put(w, q, b, 30, &d), d);
    assert_ok(gguf_put(w, q, b + 30, 38, &d), d);
    assert_ok(gguf_finish(w, &d), d);
}

static void there_and_back(void **state)
{
    (void)state;
    write_file(in_dir("a.gguf"));
    diag d = { 0 };
    gguf *f;
    assert_ok(gguf_open(in_dir("a.gguf"), &f, &d), d);
    assert_int_equal(gguf_version(f), 3);
    assert_int_equal(gguf_value_count(f), 7);
    gguf_str s;
    int64_t i;
    double x;
    assert_true(gguf_text(f, "general.architecture", &s) && s.n == 5 && !memcmp(s.at, "llama", 5));
    assert_false(gguf_text(f, "llama.block_count", &s));
    assert_true(gguf_int(f, "llama.block_count", &i) && i == 2);
    assert_true(gguf_number(f, "llama.rope.freq_base", &x) && x == 10000);
    assert_false(gguf_int(f, "llama.rope.freq_base", &i));
    assert_false(gguf_int(f, "absent", &i));
    const gguf_value *v = gguf_get(f, "tokenizer.ggml.tokens");
    assert_true(v && v->n == 3 && v->strs[2].n == 3 && !memcmp(v->strs[2].at, "b\0c", 3));
    assert_false(gguf_item(v, 0, &x));
    assert_true(gguf_item(gguf_get(f, "tokenizer.ggml.scores"), 2, &x) && x == -2.5);
    assert_true(gguf_item(gguf_get(f, "types"), 0, &x) && x == -3);
    assert_false(gguf_item(gguf_get(f, "types"), 2, &x));
    const gguf_tensor *t = gguf_find(f, "blk.0.w");
    assert_true(t && t->rank == 2 && t->dim[0] == 2 && t->dim[1] == 32 && t->bytes == 68 &&
                ((const unsigned char *)t->data)[67] == 201);
    t = gguf_find(f, "norm");
    assert_true(t && t->rank == 1 && t->dim[0] == 3 && ((const float *)t->data)[2] == 3);
    assert_int_equal((uintptr_t)t->data % 32, 0);

    /* every value of it, written again, gives the same bytes of values */
    gguf_out *w;
    assert_ok(gguf_create(in_dir("b.gguf"), &w, &d), d);
    for (size_t k = 0; k < gguf_value_count(f); k++) assert_ok(gguf_put_value(w, gguf_value_at(f, k), &d), d);
    for (size_t k = 0; k < gguf_tensor_count(f); k++) {
        t = gguf_tensor_at(f, k);
        assert_ok(gguf_declare(w, t->name, t->type, t->rank, t->dim, NULL, &d), d);
    }
    for (size_t k = 0; k < gguf_tensor_count(f); k++)
        assert_ok(gguf_put(w, k, gguf_tensor_at(f, k)->data, gguf_tensor_at(f, k)->bytes, &d), d);
    assert_ok(gguf_finish(w, &d), d);
    gguf_close(f);
    file_bytes a, b;
    assert_ok(file_map(in_dir("a.gguf"), &a, &d), d);
    assert_ok(file_map(in_dir("b.gguf"), &b, &d), d);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.at, b.at, a.n);
    file_drop(&a);
    file_drop(&b);
}

static void writer_refuses(void **state)
{
    (void)state;
    diag d = { 0 };
    gguf_out *w;
    assert_ok(gguf_create(in_dir("c.gguf"), &w, &d), d);
    assert_ok(gguf_put_u32(w, "k", 1, &d), d);
    assert_int_equal(gguf_put_u32(w, "k", 1, &d), AN_INPUT);
    d = (diag){ 0 };
    assert_int_equal(gguf_declare(w, "t", block_of(BLOCK_Q8_0), 1, (const int64_t[]){ 33 }, NULL, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "33"));
    d = (diag){ 0 };
    assert_int_equal(gguf_declare(w, "t", block_of(BLOCK_F32), 5, (const int64_t[]){ 1, 1, 1, 1, 1 }, NULL, &d),
                     AN_INPUT);
    d = (diag){ 0 };
    assert_ok(gguf_declare(w, "t", block_of(BLOCK_F32), 1, (const int64_t[]){ 2 }, NULL, &d), d);
    assert_int_equal(gguf_put(w, 0, "123456789", 9, &d), AN_BUG);
    d = (diag){ 0 };
    assert_int_equal(gguf_finish(w, &d), AN_BUG);
    assert_int_not_equal(access(in_dir("c.gguf"), F_OK), 0);
    gguf_abandon(NULL);
    gguf_close(NULL);
}

/* ---- hostile images, built field by field ---- */

typedef struct {
    unsigned char at[1024];
    size_t n;
} bytes;
static void u(bytes *b, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) b->at[b->n++] = (unsigned char)(v >> 8 * i);
}
static void str(bytes *b, const char *s)
{
    u(b, strlen(s), 8);
    for (; *s; s++) u(b, (unsigned char)*s, 1);
}
static void head(bytes *b, uint32_t version, uint64_t tensors, uint64_t values)
{
    u(b, 0x46554747, 4);
    u(b, version, 4);
    u(b, tensors, 8);
    u(b, values, 8);
}
static void tensor(bytes *b, const char *name, uint32_t rank, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset)
{
    str(b, name);
    u(b, rank, 4);
    if (rank > 0) u(b, d0, 8);
    if (rank > 1) u(b, d1, 8);
    u(b, type, 4);
    u(b, offset, 8);
}
static void data(bytes *b, size_t n)
{
    while (b->n % 32) u(b, 0, 1);
    while (n--) u(b, 1, 1);
}

static void expect(const bytes *b, const char *want, const char *row)
{
    unsigned char *p = malloc(b->n ? b->n : 1);
    assert_non_null(p);
    memcpy(p, b->at, b->n);
    diag d = { 0 };
    gguf *f;
    an_status st = gguf_view(p, b->n, "the.gguf", &f, &d);
    if (!want) assert_ok(st, d);
    else if (st != AN_INPUT || !strstr(d.msg, want) || !strstr(d.msg, "the.gguf") || f)
        fail_msg("%s: status %d: %s", row, (int)st, d.msg);
    gguf_close(f);
    free(p);
}
#define CASE(want, ...)                                                                                               \
    do {                                                                                                              \
        bytes b = { .n = 0 };                                                                                         \
        __VA_ARGS__;                                                                                                  \
        expect(&b, want, #__VA_ARGS__);                                                                               \
    } while (0)

static void lies(void **state)
{
    (void)state;
    CASE(NULL, head(&b, 3, 0, 0));
    CASE(NULL, head(&b, 2, 0, 0));
    CASE("not a GGUF file", u(&b, 0x47475546, 4); u(&b, 3, 4));
    CASE("version 1", head(&b, 1, 0, 0));
    CASE("big-endian", head(&b, 0x03000000, 0, 0));
    CASE("values and", head(&b, 3, 0, UINT64_MAX));
    CASE("values and", head(&b, 3, UINT64_MAX, 0));
    CASE("values and", head(&b, 3, 1, 0));
    /* values */
    CASE(NULL, head(&b, 3, 0, 1); str(&b, "k"); u(&b, GGUF_U8, 4); u(&b, 9, 1); u(&b, 0, 1));
    CASE("value type 13", head(&b, 3, 0, 1); str(&b, "k"); u(&b, 13, 4); u(&b, 9, 8));
    CASE("bytes long", head(&b, 3, 0, 1); u(&b, UINT64_MAX, 8); u(&b, 0, 8));
    CASE("0 bytes", head(&b, 3, 0, 1); str(&b, ""); u(&b, GGUF_U8, 4); u(&b, 9, 4));
    CASE("0x0a", head(&b, 3, 0, 1); str(&b, "k\n"); u(&b, GGUF_U8, 4); u(&b, 9, 4));
    CASE("twice", head(&b, 3, 0, 2); for (int k = 0; k < 2; k++) { str(&b, "key"); u(&b, GGUF_U8, 4); u(&b, 9, 1); });
    CASE("bool of value 2", head(&b, 3, 0, 1); str(&b, "k"); u(&b, GGUF_BOOL, 4); u(&b, 2, 1); u(&b, 0, 1));
    CASE("items of float32", head(&b, 3, 0, 1); str(&b, "k"); u(&b, GGUF_ARRAY, 4); u(&b, GGUF_F32, 4);
         u(&b, UINT64_MAX / 4 + 1, 8));
    CASE("items of string", head(&b, 3, 0, 1); str(&b, "k"); u(&b, GGUF_ARRAY, 4); u(&b, GGUF_STRING, 4);
         u(&b, (uint64_t)1 << 61, 8));
    CASE("bytes long", head(&b, 3, 0, 1); str(&b, "k"); u(&b, GGUF_ARRAY, 4); u(&b, GGUF_STRING, 4); u(&b, 1, 8);
         u(&b, 5, 8));
    CASE(NULL, head(&b, 3, 0, 1); str(&b, "k"); u(&b, GGUF_ARRAY, 4); u(&b, GGUF_ARRAY, 4); u(&b, 1, 8);
         u(&b, GGUF_U8, 4); u(&b, 2, 8); u(&b, 0, 2));
    CASE(
        "nested deeper", head(&b, 3, 0, 1); str(&b, "k"); u(&b, GGUF_ARRAY, 4); for (int k = 0; k < 9; k++) {
            u(&b, GGUF_ARRAY, 4);
            u(&b, 1, 8);
        });
    CASE("power of two", head(&b, 3, 0, 1); str(&b, "general.alignment"); u(&b, GGUF_U32, 4); u(&b, 24, 4));
    CASE("power of two", head(&b, 3, 0, 1); str(&b, "general.alignment"); u(&b, GGUF_U32, 4); u(&b, 0, 4));
    CASE("(string)", head(&b, 3, 0, 1); str(&b, "general.alignment"); u(&b, GGUF_STRING, 4); str(&b, "32"));
    /* tensors */
    CASE(NULL, head(&b, 3, 2, 0); tensor(&b, "a", 2, 2, 3, 0, 0); tensor(&b, "b", 1, 32, 0, 8, 32); data(&b, 66));
    CASE(NULL, head(&b, 3, 1, 0); tensor(&b, "a", 0, 0, 0, 0, 0); data(&b, 4));
    CASE("takes 24 bytes", head(&b, 3, 1, 0); tensor(&b, "a", 2, 2, 3, 0, 0); data(&b, 23));
    CASE("takes 24 bytes from offset 64", head(&b, 3, 1, 0); tensor(&b, "a", 2, 2, 3, 0, 64); data(&b, 60));
    CASE("from offset 18446744073709551584", head(&b, 3, 1, 0); tensor(&b, "a", 2, 2, 3, 0, (uint64_t)-32);
         data(&b, 64));
    CASE("overlap", head(&b, 3, 2, 0); tensor(&b, "a", 1, 9, 0, 0, 0); tensor(&b, "b", 1, 1, 0, 0, 32); data(&b, 64));
    CASE("overlap", head(&b, 3, 2, 0); tensor(&b, "b", 1, 1, 0, 0, 0); tensor(&b, "a", 1, 1, 0, 0, 0); data(&b, 64));
    CASE("not a multiple of 32", head(&b, 3, 1, 0); tensor(&b, "a", 1, 1, 0, 0, 4); data(&b, 64));
    CASE("axes", head(&b, 3, 1, 0); str(&b, "a"); u(&b, 5, 4); u(&b, 0, 8); u(&b, 0, 8));
    CASE("past 2^63", head(&b, 3, 1, 0); tensor(&b, "a", 1, UINT64_MAX, 0, 0, 0));
    CASE("2^63 elements", head(&b, 3, 1, 0); tensor(&b, "a", 2, (uint64_t)1 << 62, 4, 0, 0));
    CASE("blocks of 1", head(&b, 3, 1, 0); tensor(&b, "a", 1, (uint64_t)1 << 62, 0, 28, 0));
    CASE("takes", head(&b, 3, 1, 0); tensor(&b, "a", 1, (uint64_t)1 << 40, 0, 0, 0); data(&b, 4));
    CASE("blocks of 32", head(&b, 3, 1, 0); tensor(&b, "a", 2, 16, 2, 8, 0); data(&b, 34));
    CASE("element type 4,", head(&b, 3, 1, 0); tensor(&b, "a", 1, 1, 0, 4, 0));
    CASE("twice", head(&b, 3, 2, 0); tensor(&b, "a", 1, 1, 0, 0, 0); tensor(&b, "a", 1, 1, 0, 0, 32); data(&b, 64));
}

static void every_cut_and_mutations(void **state)
{
    (void)state;
    write_file(in_dir("a.gguf"));
    diag d = { 0 };
    file_bytes all;
    assert_ok(file_read(in_dir("a.gguf"), 1 << 20, &all, &d), d);
    size_t need = all.n - 20; /* the last tensor's 12 bytes are followed by 20 of padding */
    for (size_t cut = 0; cut < all.n; cut++) {
        unsigned char *p = malloc(cut ? cut : 1);
        assert_non_null(p);
        memcpy(p, all.at, cut);
        d = (diag){ 0 };
        gguf *f;
        an_status st = gguf_view(p, cut, "f", &f, &d);
        if (st != (cut < need ? AN_INPUT : AN_OK))
            fail_msg("cut at %zu of %zu: status %d %s", cut, all.n, (int)st, d.msg);
        gguf_close(f);
        free(p);
    }
    rng r = { test_seed("gguf mutations") };
    for (int k = 0; k < 20000; k++) {
        unsigned char *p = malloc(all.n);
        assert_non_null(p);
        memcpy(p, all.at, all.n);
        for (uint64_t m = 1 + rng_below(&r, 3); m; m--) p[rng_below(&r, all.n)] = (unsigned char)rng_next(&r);
        d = (diag){ 0 };
        gguf *f;
        if (!gguf_view(p, all.n, "f", &f, &d))
            for (size_t i = 0; i < gguf_tensor_count(f); i++) {
                const gguf_tensor *t = gguf_tensor_at(f, i);
                assert_true((const unsigned char *)t->data >= p &&
                            (const unsigned char *)t->data + t->bytes <= p + all.n);
            }
        gguf_close(f);
        free(p);
    }
    file_drop(&all);
}

static void real_vocabularies(void **state)
{
    (void)state;
    static const struct {
        const char *path, *model;
        size_t values;
        uint64_t tokens;
        bool scores;
    } rows[] = { { "../shared/data/gguf-vocab/ggml-vocab-gpt-2.gguf", "gpt2", 16, 50257, false },
                 { "../shared/data/gguf-vocab/ggml-vocab-llama-spm.gguf", "llama", 22, 32000, true } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (access(rows[i].path, R_OK)) skip();
        diag d = { 0 };
        gguf *f;
        assert_ok(gguf_open(rows[i].path, &f, &d), d);
        assert_int_equal(gguf_value_count(f), rows[i].values);
        assert_int_equal(gguf_tensor_count(f), 0);
        gguf_str s;
        assert_true(gguf_text(f, "tokenizer.ggml.model", &s) && s.n == strlen(rows[i].model) &&
                    !memcmp(s.at, rows[i].model, s.n));
        const gguf_value *v = gguf_get(f, "tokenizer.ggml.tokens");
        assert_true(v && v->strs && v->n == rows[i].tokens);
        assert_int_equal(gguf_get(f, "tokenizer.ggml.scores") != NULL, rows[i].scores);
        gguf_close(f);
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
    unlink(in_dir("a.gguf"));
    unlink(in_dir("b.gguf"));
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts),          cmocka_unit_test(encoders), cmocka_unit_test(there_and_back),
        cmocka_unit_test(writer_refuses),   cmocka_unit_test(lies),     cmocka_unit_test(every_cut_and_mutations),
        cmocka_unit_test(real_vocabularies)
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
