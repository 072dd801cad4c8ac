/* .npy: every type there and back, foreign spellings of the header, and files that lie. */
#include <unistd.h>

#include "format/npy.h"
#include "t.h"

static char dir[] = "/tmp/anneal-npy-XXXXXX";
static char *in_dir(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void round_trip(void **state)
{
    (void)state;
    static const dtype all[] = { DT_F16, DT_F32, DT_F64, DT_I8,  DT_I16, DT_I32,
                                 DT_I64, DT_U8,  DT_U16, DT_U32, DT_U64, DT_BOOL };
    static const int64_t dims[][3] = { { 0, 0, 0 }, { 5, 0, 0 }, { 2, 3, 0 }, { 2, 1, 4 }, { 3, 0, 2 } };
    static const int ranks[] = { 0, 1, 2, 3, 3 };
    unsigned char data[256];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 + 1);
    for (size_t t = 0; t < COUNT(all); t++)
        for (size_t s = 0; s < COUNT(ranks); s++) {
            diag d = { 0 };
            assert_ok(npy_write(in_dir("a.npy"), all[t], dims[s], ranks[s], data, &d), d);
            npy_file f;
            assert_ok(npy_open(in_dir("a.npy"), &f, &d), d);
            assert_int_equal(f.array.dt, all[t]);
            assert_int_equal(f.array.rank, ranks[s]);
            for (int i = 0; i < ranks[s]; i++) assert_int_equal(f.array.dim[i], dims[s][i]);
            assert_memory_equal(f.array.data, data, f.array.bytes);
            assert_int_equal((f.file.n - f.array.bytes) % 64, 0);
            npy_close(&f);
        }
    diag d = { 0 };
    assert_int_equal(npy_write(in_dir("b.npy"), DT_BF16, dims[1], 1, data, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "bf16"));
    assert_int_not_equal(access(in_dir("b.npy"), F_OK), 0);
}

/* A file image from a header text; major 1 or 2. */
static size_t image(unsigned char *out, int major, const char *header, size_t n_header, size_t n_data)
{
    size_t at = major == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)major;
    out[7] = 0;
    for (size_t i = 8, v = n_header; i < at; i++, v >>= 8) out[i] = (unsigned char)v;
    memcpy(out + at, header, n_header);
    for (size_t i = 0; i < n_data; i++) out[at + n_header + i] = (unsigned char)i;
    return at + n_header + n_data;
}

static void headers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n_data;
        const char *want; /* NULL: fine; else part of the message */
    } rows[] = {
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24, NULL },
        { "{\"shape\":(2,3),\"descr\":\"<i4\",\"fortran_order\":False}  \n", 24, NULL },
        { "{'descr': '|i1', 'fortran_order': False, 'shape': (3L,)}", 3, NULL },
        { "{'descr': '<i1', 'fortran_order': True, 'shape': (3,)}", 3, NULL },
        { "{'descr': '<f2', 'fortran_order': False, 'shape': ()}", 2, NULL },
        { "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 9223372036854775807, 9223372036854775807)}", 0, "past 2^63" },
        { "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 4611686018427387904, 8)}", 0, NULL },
        { "{'descr': '<f2', 'fortran_order': True, 'shape': (2, 2)}", 8, "Fortran" },
        { "{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", 8, "big-endian" },
        { "{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}", 16, "<c8" },
        { "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", 16, "|O" },
        { "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8, "records" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 7, "needs 2 elements" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 9, "needs 2 elements" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, "not a number" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", 8, "past 2^63" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 8, "2^63 elements" },
        { "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904,)}", 8, "elements" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4, "more than 8 axes" },
        { "{'descr': '<f4', 'fortran_order': False}", 4, "lacks the key \"shape\"" },
        { "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, "twice" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", 4, "unknown" },
        { "{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", 4, "neither" },
        { "{'descr': '<f4 'fortran_order': False, 'shape': ()}", 4, "" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': ()", 4, "" },
        { "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", 4, "behind" },
        { "{'descr': '<f4' 'fortran_order': False, 'shape': ()}", 4, "','" },
        { "", 0, "'{'" },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int major = 1; major <= 2; major++) {
            /* exactly sized heap block: reading past it is seen */
            unsigned char tmp[600];
            size_t n = image(tmp, major, rows[i].text, strlen(rows[i].text), rows[i].n_data);
            unsigned char *p = malloc(n);
            assert_non_null(p);
            memcpy(p, tmp, n);
            diag d = { 0 };
            npy_array a;
            an_status st = npy_view(p, n, &a, NULL, &d);
            if (!rows[i].want) assert_ok(st, d);
            else if (st != AN_INPUT || !strstr(d.msg, rows[i].want))
                fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
            free(p);
        }
}

static void every_cut(void **state)
{
    (void)state;
    unsigned char tmp[400];
    const char *text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    for (int major = 1; major <= 2; major++) {
        size_t n = image(tmp, major, text, strlen(text), 24);
        for (size_t cut = 0; cut < n; cut++) {
            unsigned char *p = malloc(cut ? cut : 1);
            assert_non_null(p);
            memcpy(p, tmp, cut);
            diag d = { 0 };
            npy_array a;
            assert_int_equal(npy_view(p, cut, &a, NULL, &d), AN_INPUT);
            assert_true(d.msg[0]);
            free(p);
        }
        tmp[6] = 4;
        diag d = { 0 };
        npy_array a;
        assert_int_equal(npy_view(tmp, n, &a, NULL, &d), AN_INPUT);
    }
}

/* Random bytes over a good file: never a crash, and what is accepted fits the bytes. */
static void mutations(void **state)
{
    (void)state;
    rng r = { test_seed("npy mutations") };
    const char *text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    for (int k = 0; k < 20000; k++) {
        unsigned char tmp[400];
        size_t n = image(tmp, 1, text, strlen(text), 24);
        for (uint64_t m = 1 + rng_below(&r, 4); m; m--) tmp[rng_below(&r, n)] = (unsigned char)rng_next(&r);
        unsigned char *p = malloc(n);
        assert_non_null(p);
        memcpy(p, tmp, n);
        diag d = { 0 };
        npy_array a;
        if (!npy_view(p, n, &a, NULL, &d)) assert_true((const unsigned char *)a.data + a.bytes == p + n);
        free(p);
    }
}

static void fortran(void **state)
{
    (void)state;
    /* x[i][j][k] = 100i + 10j + k over (2, 3, 4), first index fastest */
    const char *text = "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3, 4), }";
    unsigned char tmp[400];
    size_t n = image(tmp, 1, text, strlen(text), 24);
    unsigned char *p = tmp + n - 24;
    for (int k = 0; k < 4; k++)
        for (int j = 0; j < 3; j++)
            for (int i = 0; i < 2; i++) p[i + 2 * j + 6 * k] = (unsigned char)(100 * i + 10 * j + k);
    diag d = { 0 };
    assert_ok(file_write(in_dir("f.npy"), tmp, n, &d), d);
    npy_file f;
    assert_ok(npy_open(in_dir("f.npy"), &f, &d), d);
    assert_true(f.array.reordered);
    const unsigned char *q = f.array.data;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++) assert_int_equal(q[(i * 3 + j) * 4 + k], 100 * i + 10 * j + k);
    npy_close(&f);
}

static void files(void **state)
{
    (void)state;
    diag d = { 0 };
    npy_file f;
    assert_int_equal(npy_open(in_dir("absent.npy"), &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "absent.npy"));
    d = (diag){ 0 };
    assert_ok(file_write(in_dir("text.npy"), "hello", 5, &d), d);
    assert_int_equal(npy_open(in_dir("text.npy"), &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "text.npy"));
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    static const char *const made[] = { "a.npy", "f.npy", "text.npy" };
    for (size_t i = 0; i < COUNT(made); i++) unlink(in_dir(made[i]));
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(round_trip), cmocka_unit_test(headers),
                                        cmocka_unit_test(every_cut),  cmocka_unit_test(mutations),
                                        cmocka_unit_test(fortran),    cmocka_unit_test(files) };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
