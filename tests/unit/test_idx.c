/* idx files: every element type, gzip in one and several members, and files that lie. */
#include <math.h>
#include <unistd.h>
#include <zlib.h>

#include "format/idx.h"
#include "t.h"

/* type, axes, extents, data: a file image. */
static size_t image(unsigned char *out, unsigned type, int rank, const uint32_t *dim, const void *data, size_t n)
{
    out[0] = out[1] = 0, out[2] = (unsigned char)type, out[3] = (unsigned char)rank;
    for (int i = 0; i < rank; i++)
        for (int k = 0; k < 4; k++) out[4 + 4 * i + k] = (unsigned char)(dim[i] >> (24 - 8 * k));
    memcpy(out + 4 + 4 * rank, data, n);
    return 4 + 4 * (size_t)rank + n;
}

static size_t gzip(const unsigned char *p, size_t n, unsigned char *out, size_t room)
{
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (z_const Bytef *)(uintptr_t)p, z.avail_in = (uInt)n, z.next_out = out, z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t made = z.total_out;
    deflateEnd(&z);
    return made;
}

static void element_types(void **state)
{
    (void)state;
    static const struct {
        unsigned type;
        dtype dt;
        const char *data; /* two elements, big-endian */
        size_t n;
        double a, b;
    } rows[] = {
        { 0x08, DT_U8, "\x01\xff", 2, 1, 255 },
        { 0x09, DT_I8, "\x01\xff", 2, 1, -1 },
        { 0x0b, DT_I16, "\x01\x02\xff\xfe", 4, 258, -2 },
        { 0x0c, DT_I32, "\x00\x01\x00\x00\xff\xff\xff\xff", 8, 65536, -1 },
        { 0x0d, DT_F32, "\x3f\x80\x00\x00\xc0\x20\x00\x00", 8, 1, -2.5 },
        { 0x0e, DT_F64, "\x3f\xf8\x00\x00\x00\x00\x00\x00\xc0\x00\x00\x00\x00\x00\x00\x00", 16, 1.5, -2 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        unsigned char file[64];
        diag d = { 0 };
        idx_array a;
        size_t n = image(file, rows[i].type, 2, (const uint32_t[]){ 1, 2 }, rows[i].data, rows[i].n);
        assert_ok(idx_view(file, n, &a, &d), d);
        assert_int_equal(a.dt, rows[i].dt);
        assert_int_equal(a.count, 2);
        assert_int_equal(a.rank, 2);
        assert_true(a.dim[0] == 1 && a.dim[1] == 2 && a.at == 12);
        assert_true(idx_load(&a, 0) == rows[i].a && idx_load(&a, 1) == rows[i].b);
    }
}

static void refused(const unsigned char *p, size_t n, const char *says)
{
    diag d = { 0 };
    idx_array a;
    assert_int_equal(idx_view(p, n, &a, &d), AN_INPUT);
    if (!strstr(d.msg, says)) fail_msg("said \"%s\", wanted \"%s\"", d.msg, says);
}

static void lies(void **state)
{
    (void)state;
    unsigned char file[64];
    const unsigned char data[] = { 1, 2, 3, 4, 5, 6 };
    const uint32_t two_three[] = { 2, 3 };
    size_t n = image(file, 8, 2, two_three, data, sizeof data);
    diag d = { 0 };
    idx_array a;
    assert_ok(idx_view(file, n, &a, &d), d);
    refused(file, 0, "ends after 0 bytes");
    refused(file, 3, "inside the 4 of its magic");
    refused(file, 7, "inside its header of 12");
    refused(file, n - 1, "ends at offset 17, wanted 18, inside row 1 of 2");
    refused(file, n - 3, "ends at offset 15, wanted 18, before row 1 of 2");
    refused(file, 12, "ends at offset 12, wanted 18, before row 0 of 2");
    refused(file, n + 1, "goes on behind offset 18");
    image(file, 8, 2, two_three, data, sizeof data), file[0] = 1;
    refused(file, n, "magic number is 0x01000802");
    image(file, 0x0a, 2, two_three, data, sizeof data);
    refused(file, n, "element type 0x0a");
    image(file, 8, 0, NULL, data, sizeof data);
    refused(file, n, "of 0 axes");
    image(file, 8, 2, two_three, data, sizeof data), file[3] = 200;
    refused(file, n, "of 200 axes");
    image(file, 0x0e, 4, (const uint32_t[]){ 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, data, sizeof data);
    refused(file, 26, "4294967295 x 4294967295 x");
    image(file, 8, 1, (const uint32_t[]){ 1u << 30 }, data, sizeof data);
    refused(file, 14, "past the limit");
    n = image(file, 8, 2, (const uint32_t[]){ 0, 0xffffffff }, data, 0);
    assert_ok(idx_view(file, n, &a, &d), d);
    assert_int_equal(a.count, 0);
}

static void unzip_refused(const unsigned char *p, size_t n, const char *says)
{
    diag d = { 0 };
    unsigned char *out;
    size_t got;
    assert_int_equal(idx_unzip(p, n, &out, &got, &d), AN_INPUT);
    assert_null(out);
    if (!strstr(d.msg, says)) fail_msg("said \"%s\", wanted \"%s\"", d.msg, says);
}

static void packed(void **state)
{
    (void)state;
    enum { N = 200000 };
    unsigned char *plain = malloc(N + 64), *zip = malloc(2 * N), *out;
    unsigned char *data = malloc(N);
    assert_true(plain && zip && data);
    rng r = { 3 };
    for (int i = 0; i < N; i++) data[i] = (unsigned char)rng_below(&r, 7);
    size_t n = image(plain, 8, 1, (const uint32_t[]){ N }, data, N), got;
    diag d = { 0 };
    size_t z = gzip(plain, n, zip, 2 * N);
    assert_ok(idx_unzip(zip, z, &out, &got, &d), d);
    assert_int_equal(got, n);
    assert_memory_equal(out, plain, n);
    free(out);
    /* two members, cut in the middle of the header */
    size_t first = gzip(plain, 6, zip, 2 * N), all = first + gzip(plain + 6, n - 6, zip + first, 2 * N - first);
    assert_ok(idx_unzip(zip, all, &out, &got, &d), d);
    assert_int_equal(got, n);
    assert_memory_equal(out, plain, n);
    free(out);
    z = gzip(plain, n, zip, 2 * N);
    for (size_t cut = 2; cut < z; cut += 1 + z / 37) unzip_refused(zip, cut, "cut short");
    unzip_refused(zip, z / 2, " of 200000");
    unzip_refused(zip, z - 1, "cut short");
    memcpy(zip + z, "tail", 4);
    unzip_refused(zip, z + 4, "4 bytes behind the gzip stream");
    zip[z - 6] ^= 1; /* the checksum */
    unzip_refused(zip, z, "bad gzip data");
    zip[z - 6] ^= 1, zip[z / 2] ^= 0x55;
    diag why = { 0 };
    assert_int_equal(idx_unzip(zip, z, &out, &got, &why), AN_INPUT);
    z = gzip(plain, 3, zip, 2 * N);
    assert_ok(idx_unzip(zip, z, &out, &got, &d), d); /* unpacked it is judged like a plain file */
    refused(out, got, "inside the 4 of its magic");
    free(out);
    free(plain), free(zip), free(data);
}

/* 64 MiB of zeros in 64 KiB: unpacked only as far as the header says there is data. */
static void bombs(void **state)
{
    (void)state;
    enum { BIG = 1 << 26 };
    unsigned char *plain = calloc(1, BIG), *zip = malloc(1 << 20);
    assert_true(plain && zip);
    image(plain, 8, 1, (const uint32_t[]){ 1000 }, "", 0);
    size_t z = gzip(plain, BIG, zip, 1 << 20);
    unzip_refused(zip, z, "goes on behind offset 1008");
    image(plain, 8, 1, (const uint32_t[]){ 0x7fffffff }, "", 0);
    z = gzip(plain, BIG, zip, 1 << 20);
    unzip_refused(zip, z, "past the limit");
    free(plain), free(zip);
}

static void files(void **state)
{
    (void)state;
    char dir[] = "/tmp/anneal-idx-XXXXXX", path[80];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a.gz", dir);
    unsigned char plain[64], zip[128];
    size_t n = image(plain, 8, 1, (const uint32_t[]){ 5 }, "hello", 5), z = gzip(plain, n, zip, sizeof zip);
    diag d = { 0 };
    idx_file f;
    assert_ok(file_write(path, zip, z, &d), d);
    assert_ok(idx_open(path, &f, &d), d);
    assert_memory_equal(f.array.data, "hello", 5);
    idx_close(&f);
    assert_ok(file_write(path, plain, n, &d), d); /* plain under a packed name */
    assert_ok(idx_open(path, &f, &d), d);
    assert_memory_equal(f.array.data, "hello", 5);
    idx_close(&f);
    assert_ok(file_write(path, zip, 0, &d), d);
    assert_int_equal(idx_open(path, &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "a.gz: empty file"));
    d = (diag){ 0 };
    assert_ok(file_write(path, zip, z - 3, &d), d);
    assert_int_equal(idx_open(path, &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "a.gz: gzip stream is cut short"));
    unlink(path);
    d = (diag){ 0 };
    assert_int_equal(idx_open(path, &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, path));
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(element_types), cmocka_unit_test(lies),  cmocka_unit_test(packed),
        cmocka_unit_test(bombs),         cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
