/* blob: what the writer writes, what the reader takes, and what it says about the rest. */
#include <unistd.h>

#include "t.h"
#include "mil/mil.h"

static void put32(unsigned char *p, uint32_t v) { memcpy(p, &v, 4); }
static void put64(unsigned char *p, uint64_t v) { memcpy(p, &v, 8); }

/* A file of `n` bytes with a header and, when asked, a record at 64. */
typedef struct {
    uint32_t count, version, sentinel, code;
    uint64_t size, data;
} shape_of_file;

static void fill(unsigned char *p, size_t n, shape_of_file s)
{
    memset(p, 0, n);
    if (n >= 8) put32(p, s.count), put32(p + 4, s.version);
    if (n >= 128) put32(p + 64, s.sentinel), put32(p + 68, s.code), put64(p + 72, s.size), put64(p + 80, s.data);
}

static void written_files_have_the_documented_bytes(void **state)
{
    (void)state;
    diag d = { 0 };
    blob_writer w = { 0 };
    uint64_t at;
    const uint16_t v[] = { 0x3c00, 0x4000, 0xc000 };
    assert_ok(blob_add(&w, DT_F16, v, sizeof v, &at, &d), d);
    assert_int_equal(at, 64);
    assert_ok(blob_add(&w, DT_I8, "\1\2\3", 3, &at, &d), d);
    assert_int_equal(at, 192);
    assert_ok(blob_finish(&w, &d), d);
    const unsigned char *b = (unsigned char *)w.bytes.at;
    static const unsigned char head[8] = { 2, 0, 0, 0, 2, 0, 0, 0 };
    static const unsigned char first[24] = { 0xef, 0xbe, 0xad, 0xde, 1,   0, 0, 0, 6, 0, 0, 0,
                                             0,    0,    0,    0,    128, 0, 0, 0, 0, 0, 0, 0 };
    static const unsigned char second[24] = { 0xef, 0xbe, 0xad, 0xde, 4, 0, 0, 0, 3, 0, 0, 0,
                                              0,    0,    0,    0,    0, 1, 0, 0, 0, 0, 0, 0 };
    assert_int_equal(w.bytes.n, 259);
    assert_memory_equal(b, head, 8);
    assert_memory_equal(b + 64, first, 24);
    assert_memory_equal(b + 128, v, 6);
    assert_memory_equal(b + 192, second, 24);
    assert_memory_equal(b + 256, "\1\2\3", 3);
    for (size_t i = 8; i < 64; i++) assert_int_equal(b[i], 0);
    for (size_t i = 64 + 24; i < 128; i++) assert_int_equal(b[i], 0);
    sb_free(&w.bytes);

    assert_ok(blob_finish(&w, &d), d); /* an empty file is a header */
    assert_int_equal(w.bytes.n, 64);
    sb_free(&w.bytes);
    assert_int_equal(blob_add(&w, DT_BOOL, "", 0, &at, &d), AN_INPUT);
    assert_string_equal(d.msg, "a weight file cannot hold bool");
    sb_free(&w.bytes);
}

static void every_type_reads_back(void **state)
{
    (void)state;
    rng r = { test_seed("blob") };
    diag d = { 0 };
    blob_writer w = { 0 };
    uint64_t off[200];
    size_t bytes[200];
    dtype dts[200];
    unsigned char seeds[200];
    size_t n = 0;
    static unsigned char buf[2048];
    for (int round = 0; round < 6; round++)
        for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
            if (!dtype_blob_code((dtype)t)) continue;
            int64_t elems = round ? (int64_t)rng_below(&r, 900) / dtype_bits((dtype)t) * 2 + 1 : 0; /* empty ones too */
            assert_true(dtype_bytes((dtype)t, elems, &bytes[n]));
            assert_int_equal(bytes[n], (size_t)((elems * dtype_bits((dtype)t) + 7) / 8));
            seeds[n] = (unsigned char)rng_next(&r);
            for (size_t i = 0; i < bytes[n]; i++) buf[i] = (unsigned char)(seeds[n] + i * 7);
            dts[n] = (dtype)t;
            assert_ok(blob_add(&w, (dtype)t, buf, bytes[n], &off[n], &d), d);
            assert_int_equal(off[n] % 64, 0);
            n++;
        }
    assert_ok(blob_finish(&w, &d), d);
    char path[] = "/tmp/anneal-blob-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_ok(file_write(path, w.bytes.at, w.bytes.n, &d), d);
    blob_file f;
    assert_ok(blob_open(path, &f, &d), d);
    assert_int_equal(f.count, n);
    uint64_t at = 0;
    bool more = true;
    for (size_t k = 0; k <= n; k++) {
        blob_entry e, x;
        assert_ok(blob_next(&f, &at, &e, &more, &d), d);
        assert_int_equal(more, k < n);
        if (!more) break;
        assert_true(e.record == off[k] && e.bytes == bytes[k] && e.dt == dts[k] && e.data == off[k] + 64);
        assert_ok(blob_at(&f, off[k], dts[k], bytes[k], &x, &d), d);
        for (size_t i = 0; i < x.bytes; i++) assert_int_equal(f.file.at[x.data + i], (unsigned char)(seeds[k] + i * 7));
        diag no = { 0 };
        assert_int_equal(blob_at(&f, off[k], dts[k] == DT_F16 ? DT_F32 : DT_F16, 0, &x, &no), AN_INPUT);
        no = (diag){ 0 };
        if (bytes[k]) assert_int_equal(blob_at(&f, off[k], dts[k], bytes[k] + 1, &x, &no), AN_INPUT);
    }
    blob_close(&f);
    blob_close(&f);
    unlink(path);
    sb_free(&w.bytes);
}

static void headers_are_checked(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        shape_of_file s;
        const char *say;
    } rows[] = {
        { 0, { 0 }, "weight file is 0 bytes long; its header alone is 64" },
        { 63, { .count = 1, .version = 2 }, "63 bytes long" },
        { 192, { .count = 1, .version = 1 }, "version 1; version 2 is wanted" },
        { 192, { .count = 0x4c4d5347, .version = 0x73646f6d }, "not a weight file" },
        { 192, { .count = 4, .version = 2 }, "header counts 4 blobs; 192 bytes hold at most 3" },
        { 192, { .count = UINT32_MAX, .version = 2 }, "counts 4294967295" },
    };
    unsigned char buf[256];
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        blob_file f;
        fill(buf, rows[i].n, rows[i].s);
        assert_int_equal(blob_view(buf, rows[i].n, &f, &d), AN_INPUT);
        if (!strstr(d.msg, rows[i].say)) fail_msg("row %zu: %s", i, d.msg);
    }
    diag d = { 0 };
    blob_file f;
    assert_int_equal(blob_open("/nonexistent/weights.bin", &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "/nonexistent/weights.bin"));
}

#define GOOD .count = 1, .version = 2, .sentinel = 0xDEADBEEF
static void records_are_checked(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        shape_of_file s;
        uint64_t offset;
        dtype want;
        uint64_t bytes;
        const char *say; /* NULL: accepted */
        uint64_t data, got;
    } rows[] = {
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, 64, DT_F16, 32, NULL, 128, 32 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 160 }, 64, DT_F16, 32, NULL, 160, 32 },
        { 256, { GOOD, .code = 1, .size = 128, .data = 128 }, 64, DT_NONE, 0, NULL, 128, 128 },
        { 256, { GOOD, .code = 1, .size = 0, .data = 256 }, 64, DT_NONE, 0, NULL, 256, 0 },
        /* half-filled records: the data is right behind, the MIL type knows best */
        { 256, { GOOD, .code = 1 }, 64, DT_F16, 96, NULL, 128, 96 },
        { 256, { GOOD, .code = 1 }, 64, DT_I8, 96, NULL, 128, 96 },
        { 256, { GOOD, .code = 1, .size = 0x080000 }, 64, DT_F16, 96, NULL, 128, 96 },
        { 256, { GOOD, .code = 1 }, 64, DT_NONE, 0, NULL, 128, 128 },
        { 256, { GOOD, .code = 1, .size = 40 }, 64, DT_NONE, 0, NULL, 128, 40 },
        { 256, { GOOD, .code = 1, .data = 128 }, 64, DT_F16, 96, NULL, 128, 96 },
        { 256, { GOOD, .code = 1 }, 64, DT_F16, 129, "needs 129 bytes from 128 on; the file ends at 256", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 0x080000 }, 64, DT_NONE, 0, "needs 524288 bytes", 0, 0 },
        /* references to the wrong place */
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, 128, DT_F16, 32, "offset 128 points at the data, not at its metadata record", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, 128, DT_F16, 32, "here 64", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, 0, DT_F16, 32, "offset 0 is the file header", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, 65, DT_F16, 32, "not a multiple of 64", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, 192, DT_F16, 32, "found 0x00000000 where 0xdeadbeef is wanted", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, 256, DT_F16, 32, "a record of 64 bytes does not fit the file of 256", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, UINT64_MAX - 63, DT_F16, 32, "does not fit", 0, 0 },
        { 250, { GOOD, .code = 1, .size = 32, .data = 128 }, 192, DT_F16, 32, "does not fit", 0, 0 },
        /* records that lie */
        { 256, { GOOD, .code = 99, .size = 32, .data = 128 }, 64, DT_NONE, 0, "type code 99; known are 1 to 17", 0, 0 },
        { 256, { GOOD, .code = 2, .size = 32, .data = 128 }, 64, DT_F16, 32, "record at 64 holds fp32 (code 2); fp16 is wanted", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 128 }, 64, DT_F16, 64, "record at 64 holds 32 bytes; the type needs 64", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 129, .data = 128 }, 64, DT_F16, 0, "the file ends at 256", 0, 0 },
        { 256, { GOOD, .code = 1, .size = UINT64_MAX, .data = 128 }, 64, DT_F16, 0, "the file ends at 256", 0, 0 },
        { 256, { GOOD, .code = 1, .size = UINT64_MAX - 100, .data = 200 }, 64, DT_F16, 0, "the file ends at 256", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 257 }, 64, DT_F16, 32, "puts its data at 257", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = UINT64_MAX - 8 }, 64, DT_F16, 32, "puts its data at", 0, 0 },
        { 256, { GOOD, .code = 1, .size = 32, .data = 8 }, 64, DT_F16, 32, "puts its data at 8", 0, 0 },
        /* a record where the header belongs: only offset 0 names it */
        { 256, { .count = 0xDEADBEEF, .version = 1, .sentinel = 7 }, 0, DT_I8, 100, NULL, 64, 100 },
        { 256, { .count = 0xDEADBEEF, .version = 1, .sentinel = 7 }, 64, DT_I8, 100, "only offset 0 names that record", 0, 0 },
    };
    unsigned char buf[256];
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        blob_file f;
        blob_entry e;
        fill(buf, rows[i].n, rows[i].s);
        assert_ok(blob_view(buf, rows[i].n, &f, &d), d);
        an_status st = blob_at(&f, rows[i].offset, rows[i].want, rows[i].bytes, &e, &d);
        if (st != (rows[i].say ? AN_INPUT : AN_OK) || (rows[i].say && !strstr(d.msg, rows[i].say)))
            fail_msg("row %zu: %d %s", i, (int)st, d.msg);
        if (!st && (e.data != rows[i].data || e.bytes != rows[i].got || (rows[i].want && e.dt != rows[i].want)))
            fail_msg("row %zu: data %llu, %llu bytes", i, (unsigned long long)e.data, (unsigned long long)e.bytes);
        blob_close(&f);
    }
}

/* Chunks back to back with the header's count left at 1, and a header that promises more than there is. */
static void walks_end(void **state)
{
    (void)state;
    unsigned char buf[64 + 3 * 192];
    for (uint32_t count = 1; count <= 4; count++) {
        memset(buf, 0, sizeof buf);
        put32(buf, count);
        put32(buf + 4, 2);
        for (int k = 0; k < 3; k++) {
            unsigned char *r = buf + 64 + k * 192;
            put32(r, 0xDEADBEEF), put32(r + 4, 1), put64(r + 8, 128), put64(r + 16, (uint64_t)(128 + k * 192));
        }
        diag d = { 0 };
        blob_file f;
        assert_ok(blob_view(buf, sizeof buf, &f, &d), d);
        uint64_t at = 0;
        int seen = 0;
        bool more = true;
        an_status st = AN_OK;
        for (blob_entry e; !(st = blob_next(&f, &at, &e, &more, &d)) && more; seen++) assert_int_equal(e.bytes, 128);
        assert_int_equal(seen, 3);
        assert_int_equal(st, count <= 3 ? AN_OK : AN_INPUT);
        if (st) assert_non_null(strstr(d.msg, "header counts 4 blobs; 3 are there"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_files_have_the_documented_bytes), cmocka_unit_test(every_type_reads_back),
        cmocka_unit_test(headers_are_checked),                     cmocka_unit_test(records_are_checked),
        cmocka_unit_test(walks_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
