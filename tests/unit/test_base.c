/* base: element types, arena, text, map, files. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t.h"
#include "base/arena.h"
#include "base/big.h"
#include "base/dtype.h"
#include "base/io.h"
#include "base/lines.h"
#include "base/str.h"

static void f16_every_pattern_round_trips(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        double x = f16_to_f64((uint16_t)h);
        if (isnan(x)) assert_true((f16_from_f64(x) & 0x7c00) == 0x7c00 && (f16_from_f64(x) & 0x3ff));
        else assert_int_equal(f16_from_f64(x), h);
        double b = bf16_to_f64((uint16_t)h);
        if (!isnan(b)) assert_int_equal(bf16_from_f64(b), h);
    }
    for (uint32_t h = 0; h < 0x100; h++) {
        if (!isnan(e4m3_to_f64((uint8_t)h))) assert_int_equal(e4m3_from_f64(e4m3_to_f64((uint8_t)h)), h);
        if (!isnan(e5m2_to_f64((uint8_t)h))) assert_int_equal(e5m2_from_f64(e5m2_to_f64((uint8_t)h)), h);
    }
}

static void f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        double x;
        uint16_t want;
    } rows[] = {
        { 65504, 0x7bff }, { 65519.99, 0x7bff }, { 65520, 0x7c00 }, { -65520, 0xfc00 }, { 2049, 0x6800 }, { 2051, 0x6802 },
        { 0x1p-24, 0x0001 }, { 0x1p-25, 0x0000 }, { 0x1.8p-25, 0x0001 }, { 0x1p-14, 0x0400 }, { -0.0, 0x8000 }, { 1e-5, 0x00a8 },
        { 1.0 + 0x1p-11, 0x3c00 }, { 1.0 + 0x1p-11 + 0x1p-40, 0x3c01 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) assert_int_equal(f16_from_f64(rows[i].x), rows[i].want);
    assert_true(e4m3_to_f64(0x7e) == 448 && e4m3_from_f64(1e9) == 0x7e);
    for (uint32_t h = 1; h + 1 < 0x7c00; h++) { /* midpoints go to the even neighbour */
        double lo = f16_to_f64((uint16_t)h), hi = f16_to_f64((uint16_t)(h + 1));
        assert_int_equal(f16_from_f64((lo + hi) / 2), h & 1 ? h + 1 : h);
    }
}

static void sub_byte_elements_pack_low_bits_first(void **state)
{
    (void)state;
    unsigned char p[2] = { 0 };
    dtype_store(DT_U4, p, 0, 1), dtype_store(DT_U4, p, 3, 1);
    assert_int_equal(p[0], 0x01);
    assert_int_equal(p[1], 0x10);
    unsigned char q[8] = { 0 };
    for (int i = 0; i < 16; i++) dtype_store(DT_U3, q, i, i % 8);
    for (int i = 0; i < 16; i++) assert_true(dtype_load(DT_U3, q, i) == i % 8);
    dtype_store(DT_I4, q, 1, -3);
    assert_true(dtype_load(DT_I4, q, 1) == -3);
    assert_true(dtype_round(DT_I8, 300) == 127 && dtype_round(DT_I8, -300) == -128 && dtype_round(DT_U8, -1) == 0);
    size_t bytes;
    assert_true(dtype_bytes(DT_U3, 3, &bytes) && bytes == 2);
    assert_false(dtype_bytes(DT_F32, INT64_MAX / 8, &bytes));
}

static void arena_limit_is_kept(void **state)
{
    (void)state;
    arena a = { .limit = 1000 };
    assert_non_null(TAKE(&a, char, 900));
    assert_null(TAKE(&a, char, 200));
    assert_null(TAKE(&a, double, SIZE_MAX / 4));
    arena_mark m = arena_save(&a);
    double *p = TAKE(&a, double, 4);
    assert_non_null(p);
    assert_true((uintptr_t)p % alignof(double) == 0 && p[3] == 0);
    arena_back(&a, m);
    VEC(int) v = { 0 };
    a.limit = 0;
    for (int i = 0; i < 10000; i++) assert_true(VEC_PUSH(&a, &v, i));
    for (int i = 0; i < 10000; i++) assert_int_equal(v.at[i], i);
    arena_free(&a);
}

static void json_strings_are_valid(void **state)
{
    (void)state;
    strbuf b = { 0 };
    sb_json(&b, "a\"\\\n\x01\xff\xc3\xa9", 8);
    assert_string_equal(b.at, "\"a\\\"\\\\\\n\\u0001\\ufffd\xc3\xa9\"");
    sb_free(&b);
    static const double numbers[] = { 1.5, -0.0, 1e300, INFINITY, -INFINITY, NAN };
    for (size_t i = 0; i < COUNT(numbers); i++) sb_number(&b, numbers[i]), sb_putc(&b, ' ');
    assert_string_equal(b.at, "1.5 -0 1e+300 null null null ");
    sb_free(&b);
}

static void map_finds_what_was_put(void **state)
{
    (void)state;
    arena a = { 0 };
    str_map m = { 0 };
    for (uint32_t i = 0; i < 5000; i++) {
        char *k = arena_printf(&a, "name_%u", i);
        assert_non_null(k);
        assert_true(str_map_put(&a, &m, k, strlen(k), i));
    }
    uint32_t v;
    assert_true(str_map_get(&m, "name_4321", 9, &v) && v == 4321);
    assert_false(str_map_get(&m, "name_", 5, &v));
    arena_free(&a);
}

/* A message quotes what a hostile file holds: no byte of it may steer a terminal. */
static void messages_are_plain(void **state)
{
    (void)state;
    static const struct {
        const char *quoted, *shown;
    } rows[] = {
        { "plain", "plain" },
        { "\x1b[31mred\x1b]0;title\x07", "?[31mred?]0;title?" },
        { "two\nlines\r\t\x7f", "two?lines???" },
        { "gr\xc3\xb6\xc3\x9f" "er \xe2\x86\x92 \xf0\x9f\x98\x80", "gr\xc3\xb6\xc3\x9f" "er \xe2\x86\x92 \xf0\x9f\x98\x80" },
        { "\xc2\x9b" "31m", "??31m" },            /* a control sequence in one character */
        { "\x80 \xff \xed\xa0\x80", "? ? ???" }, /* no UTF-8 */
        { "\xc3", "?" },                          /* cut off */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        char want[64];
        snprintf(want, sizeof want, "name \"%s\"", rows[i].shown);
        assert_int_equal(diag_fail(&d, AN_INPUT, NOWHERE, "name \"%s\"", rows[i].quoted), AN_INPUT);
        assert_string_equal(d.msg, want);
    }
}

static void files_are_written_whole_or_not_at_all(void **state)
{
    (void)state;
    diag d = { 0 };
    char dir[] = "/tmp/anneal-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char path[128];
    snprintf(path, sizeof path, "%s/a/b", dir);
    assert_ok(dir_make(path, &d), d);
    snprintf(path, sizeof path, "%s/a/b/f", dir);
    assert_ok(file_write(path, "hello", 5, &d), d);
    file_bytes f;
    assert_ok(file_read(path, 100, &f, &d), d);
    assert_true(f.n == 5 && !memcmp(f.at, "hello", 6));
    file_drop(&f);
    assert_ok(file_map(path, &f, &d), d);
    assert_true(f.n == 5 && !memcmp(f.at, "hello", 5));
    file_drop(&f);
    assert_int_equal(file_read(path, 4, &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "larger than 4 bytes"));
    d = (diag){ 0 };
    assert_int_equal(file_write("/no/such/folder/f", "x", 1, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "/no/such/folder/f"));
    file_out o;
    d = (diag){ 0 };
    assert_int_equal(file_begin("/tmp", &o, &d), AN_INPUT); /* before anything is written */
    assert_non_null(strstr(d.msg, "/tmp is a folder; a file is wanted"));
    file_abandon(&o);
    char cmd[160];
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    assert_int_equal(system(cmd), 0);
}

/* A pipe with a name is written into and stays a pipe; nothing is left beside it. */
static void streams_stay_what_they_are(void **state)
{
    (void)state;
    diag d = { 0 };
    char dir[] = "/tmp/anneal-test-XXXXXX", path[128], got[8] = { 0 };
    struct stat s;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/pipe", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR); /* a reader, so that opening it for writing does not wait */
    assert_true(fd >= 0);
    assert_ok(file_write(path, "hello", 5, &d), d);
    assert_int_equal(read(fd, got, sizeof got), 5);
    assert_string_equal(got, "hello");
    close(fd);
    assert_true(!lstat(path, &s) && S_ISFIFO(s.st_mode));
    file_out o;
    assert_ok(file_begin("/dev/null", &o, &d), d);
    assert_ok(file_put(&o, 100, "x", 1, &d), d);
    assert_ok(file_finish(&o, &d), d);
    assert_true(!lstat("/dev/null", &s) && S_ISCHR(s.st_mode));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing else was in it */
}

/* What cannot be looked at is not "not there": nobody writes over it, and who asks is told why. */
static void what_cannot_be_seen(void **state)
{
    (void)state;
    diag d = { 0 };
    char dir[] = "/tmp/anneal-test-XXXXXX", path[128], gone[128], below[140], long_name[400];
    struct stat s;
    path_info i;
    file_out o;
    bool is;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/loop", dir), snprintf(gone, sizeof gone, "%s/gone", dir),
        snprintf(below, sizeof below, "%s/x", path);
    memset(long_name, 'x', sizeof long_name - 1), long_name[sizeof long_name - 1] = 0;
    assert_int_equal(symlink("loop", path), 0);
    assert_true(path_look(path, &i) && i.unseen == ELOOP && !i.folder && !i.plain);
    assert_int_equal(path_find(path, &is, &i, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, path));
    assert_non_null(strstr(d.msg, strerror(ELOOP)));
    for (int k = 0; k < 2; k++) {
        d = (diag){ 0 };
        assert_int_equal(file_begin(k ? below : path, &o, &d), AN_INPUT);
        assert_non_null(strstr(d.msg, strerror(ELOOP)));
        file_abandon(&o);
    }
    assert_true(!lstat(path, &s) && S_ISLNK(s.st_mode));
    d = (diag){ 0 };
    assert_ok(path_find(gone, &is, &i, &d), d);
    assert_false(is);
    assert_ok(path_find(long_name, &is, &i, &d), d);
    assert_false(is);
    assert_true(path_same(path, path) && !path_same(path, gone));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* Folders that were made are taken back as far as they are empty, and by a failure at once. */
static void folders_taken_back(void **state)
{
    (void)state;
    diag d = { 0 };
    char dir[] = "/tmp/anneal-test-XXXXXX", path[128], file[140], too_long[400];
    path_info i;
    size_t was;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a//b/c/", dir);
    assert_ok(dir_make_new(path, &was, &d), d);
    assert_int_equal(was, strlen(dir));
    dir_unmake(path, was);
    snprintf(file, sizeof file, "%s/a", dir);
    assert_false(path_look(file, &i));
    assert_ok(dir_make(path, &d), d);
    assert_ok(dir_make_new(path, &was, &d), d);
    assert_int_equal(was, strlen(path)); /* all of it was there */
    dir_unmake(path, was);
    assert_true(path_look(path, &i));
    dir_unmake(path, strlen(dir));
    assert_false(path_look(file, &i));
    assert_ok(file_write(file, "x", 1, &d), d);
    assert_int_equal(dir_make(file, &d), AN_INPUT); /* it is a file */
    assert_non_null(strstr(d.msg, "/a: Not a directory"));
    assert_int_equal(unlink(file), 0);
    snprintf(too_long, sizeof too_long, "%s/a/b/%0300d", dir, 0);
    assert_int_equal(dir_make(too_long, &d), AN_INPUT);
    assert_false(path_look(file, &i));
    d = (diag){ 0 };
    assert_int_equal(dir_make("", &d), AN_INPUT); /* names behind it would begin with "/" */
    assert_string_equal(d.msg, "cannot make folder \"\": No such file or directory");
    assert_int_equal(rmdir(dir), 0);
}

/* Who wants a regular file is not kept waiting by a pipe, and reads no device; a link is followed or not, as is
 * asked. */
static void plain_files_only(void **state)
{
    (void)state;
    char dir[] = "/tmp/anneal-test-XXXXXX", path[4][160];
    static const char *const names[] = { "pipe", "device", "link", "f" };
    diag d = { 0 };
    file_bytes f;
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 4; i++) snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
    assert_true(!mkfifo(path[0], 0600) && !symlink("/dev/zero", path[1]) && !symlink("f", path[2]));
    assert_ok(file_write(path[3], "hello", 5, &d), d);
    alarm(60);
    char head[8];
    size_t got;
    for (int i = 0; i < 10; i++) {
        char says[300];
        snprintf(says, sizeof says, "%s is %s, not a regular file", path[i % 2], i % 2 ? "a character device" : "a pipe");
        an_status st = i / 2 == 0   ? file_read_plain(path[i % 2], true, 100, &f, &d)
                       : i / 2 == 1 ? file_map(path[i % 2], &f, &d)
                       : i / 2 == 2 ? file_read(path[i % 2], 100, &f, &d)
                       : i / 2 == 3 ? file_head(path[i % 2], head, sizeof head, &got, &d)
                                    : path_plain(path[i % 2], &d);
        assert_int_equal(st, AN_INPUT);
        assert_string_equal(d.msg, says);
        d = (diag){ 0 };
    }
    assert_ok(path_plain(path[3], &d), d);
    assert_ok(path_plain("/nothing/there", &d), d);
    assert_ok(file_head(path[3], head, 3, &got, &d), d);
    assert_true(got == 3 && !memcmp(head, "hel", 3));
    assert_ok(file_head(path[3], head, sizeof head, &got, &d), d);
    assert_int_equal(got, 5);
    /* a pipe that is open here has somebody who writes it; a look at its beginning leaves that to who reads it */
    int ends[2];
    char name[40];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "hello", 5), 5);
    close(ends[1]);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    assert_ok(file_head(name, head, sizeof head, &got, &d), d);
    assert_int_equal(got, 0);
    assert_ok(file_read(name, 100, &f, &d), d);
    assert_true(f.n == 5 && !memcmp(f.at, "hello", 5));
    file_drop(&f);
    assert_int_equal(file_map(name, &f, &d), AN_INPUT);
    d = (diag){ 0 };
    close(ends[0]);
    assert_int_equal(file_read_plain(path[2], false, 100, &f, &d), AN_INPUT);
    d = (diag){ 0 };
    assert_int_equal(file_read_plain(path[3], false, 4, &f, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "larger than 4 bytes"));
    for (int i = 2; i < 4; i++) {
        d = (diag){ 0 };
        assert_ok(file_read_plain(path[i], i == 2, 5, &f, &d), d);
        assert_true(f.n == 5 && !memcmp(f.at, "hello", 6));
        file_drop(&f);
    }
    char own[200];
    snprintf(own, sizeof own, "%s.tmp.%ld", path[3], (long)getpid()); /* the name it will be written under */
    assert_int_equal(mkfifo(own, 0600), 0);
    assert_int_equal(file_write(path[3], "x", 1, &d), AN_INPUT);
    d = (diag){ 0 };
    assert_true(!unlink(own) && !symlink("link", own));
    assert_int_equal(file_write(path[3], "x", 1, &d), AN_INPUT);
    alarm(0);
    d = (diag){ 0 };
    assert_ok(file_read(path[2], 5, &f, &d), d); /* not written through the link */
    assert_string_equal((char *)f.at, "hello");
    file_drop(&f);
    assert_int_equal(unlink(own), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(unlink(path[i]), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void folders_of_files(void **state)
{
    (void)state;
    static const struct {
        const char *path, *want;
    } rows[] = { { "m.bin", "." },   { "/m.bin", "/" }, { "a/m.bin", "a" }, { "/a/m.bin", "/a" },
                 { "./m.bin", "." }, { "a/b/", "a/b" }, { "", "." },        { "/", "/" } };
    char to[8];
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_true(path_folder(rows[i].path, to, sizeof to));
        assert_string_equal(to, rows[i].want);
    }
    assert_true(path_folder("1234567/x", to, sizeof to) && !path_folder("12345678/x", to, sizeof to) &&
                !path_folder("/x", to, 1) && path_folder("/x", to, 2));
}

/* One file under two names, there already or not yet; what takes the bytes of both is none. */
static void names_of_one_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/anneal-test-XXXXXX", path[3][80];
    static const char *const names[] = { "f", "link", "other" };
    diag d = { 0 };
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
    assert_true(path_same("no such file", "./no such file") && path_same("no/such/folder", "no/such/folder") &&
                path_same("-", "-"));
    assert_true(path_same("no/such/folder", "./no//such/./../such/folder") == false &&
                path_same("no/such/folder", "./no//such/folder") && !path_same("no/such/folder", "no/other/folder"));
    assert_false(path_same("no such file", "no such thing") || path_same(path[0], "f") ||
                 path_same("/dev/null", "/dev/null"));
    char again[100];
    snprintf(again, sizeof again, "%s/./f", dir);
    assert_true(path_same(path[0], again));
    assert_ok(file_write(path[0], "x", 1, &d), d);
    assert_int_equal(symlink("f", path[1]), 0);
    assert_true(path_same(path[0], again) && path_same(path[0], path[1]) && path_same(dir, dir));
    assert_false(path_same(path[0], path[2]));
    for (int i = 0; i < 2; i++) assert_int_equal(unlink(path[i]), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* A process that has begun a file and then waits, to be killed or to be told to finish it. */
static pid_t writer(const char *path, int *tell)
{
    int ready[2], go[2];
    char c;
    assert_true(!pipe(ready) && !pipe(go));
    pid_t pid = fork();
    if (!pid) {
        file_out o;
        diag d = { 0 };
        close(go[1]);
        if (file_begin(path, &o, &d) || file_put(&o, 0, "new", 3, &d) || write(ready[1], "", 1) != 1 ||
            read(go[0], &c, 1) != 1)
            _exit(1);
        _exit(file_finish(&o, &d) ? 1 : 0);
    }
    assert_true(pid > 0);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]), close(ready[1]), close(go[0]);
    *tell = go[1];
    return pid;
}

static int end_of(pid_t pid, int tell)
{
    int how;
    close(tell);
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return how;
}

static void what_the_dead_left_is_removed(void **state)
{
    (void)state;
    /* not ours to remove */
    static const char *const others[] = { "f.tmp.x", "f.tmp.", "f.tmp.00001", "ff.tmp.99999999", "f.tmp.99999999x" };
    char dir[] = "/tmp/an_left_XXXXXX", path[64], left[3][96], name[96];
    diag d = { 0 };
    struct stat s;
    int tell[3];
    pid_t pid[3];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    for (int i = 0; i < 3; i++) {
        pid[i] = writer(path, &tell[i]);
        snprintf(left[i], sizeof left[i], "%s.tmp.%ld", path, (long)pid[i]);
        assert_int_equal(stat(left[i], &s), 0);
    }
    for (size_t i = 0; i < COUNT(others); i++) {
        snprintf(name, sizeof name, "%s/%s", dir, others[i]);
        assert_ok(file_write(name, "x", 1, &d), d);
    }
    assert_int_equal(kill(pid[0], SIGKILL), 0);
    assert_true(WIFSIGNALED(end_of(pid[0], tell[0])));
    /* the third looks dead and is not, as from inside another container: only its lock shows it */
    assert_int_equal(rename(left[2], left[0]), 0);
    assert_ok(file_write(path, "old", 3, &d), d);
    assert_int_equal(stat(left[0], &s), 0);
    assert_int_equal(kill(pid[2], SIGKILL), 0);
    assert_true(WIFSIGNALED(end_of(pid[2], tell[2])));
    assert_ok(file_write(path, "old", 3, &d), d);
    assert_int_equal(stat(left[0], &s), -1);
    /* the second lives, and its file is there when it wants it */
    assert_int_equal(stat(left[1], &s), 0);
    assert_int_equal(write(tell[1], "", 1), 1);
    assert_int_equal(end_of(pid[1], tell[1]), 0);
    file_bytes f;
    assert_ok(file_read(path, 100, &f, &d), d);
    assert_string_equal((char *)f.at, "new");
    file_drop(&f);
    for (size_t i = 0; i < COUNT(others); i++) {
        snprintf(name, sizeof name, "%s/%s", dir, others[i]);
        assert_int_equal(unlink(name), 0);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing else is in it */
}

/* Memory a neighbour wrote and gave back comes as zeros again, aligned as asked. */
static void zeroed_memory(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 63, 64, 4095, 1 << 20, BIG - 1, BIG, BIG + 1, 3 * BIG + 12345 };
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < COUNT(sizes); i++) {
            void *block;
            unsigned char *p = big_zeroed(64, sizes[i], &block);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % (sizes[i] >= BIG ? BIG_PAGE : 64), 0);
            size_t sum = 0;
            for (size_t k = 0; k < sizes[i]; k++) sum += p[k];
            assert_int_equal(sum, 0);
            memset(p, 0xff, sizes[i]);
            free(block);
        }
    void *block;
    assert_null(big_zeroed(64, SIZE_MAX - 8, &block));
    assert_null(block);
}

/* A formula's result as an integer: cut off, not rounded, and never past the type. */
/* No two changes of signs make up for each other, wherever they are: what one leaves behind depends on all the
 * numbers before it. */
static void every_sign_counts(void **state)
{
    (void)state;
    enum { N = 24 };
    static const uint64_t signs[] = { 0x8000000000000000u, 0x8000000080000000u, 0x80000000u,
                                      0x8000800080008000u, 0x8000000080008000u, 0x8080808080808080u };
    rng r = { test_seed("signs") };
    uint64_t x[N];
    for (int i = 0; i < N; i++) x[i] = rng_next(&r);
    const uint64_t whole = hash_many(x, sizeof x, 7), some = hash_many(x, sizeof x - 3, 7);
    for (int i = 0; i < N; i++)
        for (int j = i + 1; j < N; j++)
            for (size_t k = 0; k < COUNT(signs) * COUNT(signs); k++) {
                uint64_t y[N];
                memcpy(y, x, sizeof y);
                y[i] ^= signs[k / COUNT(signs)], y[j] ^= signs[k % COUNT(signs)];
                if (hash_many(y, sizeof y, 7) == whole)
                    fail_msg("words %d and %d with other signs (%zu) are taken for those before", i, j, k);
                if (j < N - 1 && hash_many(y, sizeof y - 3, 7) == some)
                    fail_msg("words %d and %d of a row that ends amid a word (%zu)", i, j, k);
            }
}

static void integers_hold_what_they_can(void **state)
{
    (void)state;
    static const struct {
        dtype t;
        double x, want;
    } rows[] = {
        { DT_I32, 2.9, 2 },          { DT_I32, -2.9, -2 },        { DT_I32, 3e9, 2147483647 }, { DT_I32, -3e9, -2147483648.0 },
        { DT_U8, -1, 0 },            { DT_U8, 255.9, 255 },       { DT_U8, 256, 255 },         { DT_I4, 9, 7 },
        { DT_I8, -(double)INFINITY, -128 }, { DT_U16, (double)INFINITY, 65535 }, { DT_I32, (double)NAN, 0 },
        { DT_BOOL, -0.25, 1 },       { DT_BOOL, 0, 0 },           { DT_BOOL, (double)NAN, 1 },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (dtype_hold(rows[i].t, rows[i].x) != rows[i].want)
            fail_msg("%s holds %g as %g, expected %g", dtype_name(rows[i].t), rows[i].x,
                     dtype_hold(rows[i].t, rows[i].x), rows[i].want);
    assert_false(signbit(dtype_hold(DT_I32, -0.5)) || signbit(dtype_hold(DT_I8, -0.0)));
}

static void check_content(const char *path, const char *want)
{
    file_bytes f;
    diag d = { 0 };
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    assert_string_equal((const char *)f.at, want);
    file_drop(&f);
}

/* A log has whole lines, whatever ended the one before: a full disk, a crash. */
static void lines_are_added_whole(void **state)
{
    (void)state;
    diag d = { 0 };
    char dir[] = "/tmp/anneal-test-XXXXXX", path[64];
    struct rlimit all, few;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/nowhere/log", dir);
    assert_null(lines_open(path, false));
    assert_int_equal(errno, ENOENT);
    snprintf(path, sizeof path, "%s/log", dir);
    lines *l = lines_open(path, false);
    assert_true(l && lines_made(l) && lines_empty(l));
    assert_true(lines_add(l, "first") && lines_add(l, ""));
    check_content(path, "first\n\n"); /* while it is open */
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = all, few.rlim_cur = 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    bool put = lines_add(l, "second");
    int why = errno;
    bool again = lines_add(l, "2.");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    signal(SIGXFSZ, before);
    assert_true(!put && why == EFBIG && again);
    check_content(path, "first\n\n2.\n");
    assert_true(lines_close(l) && lines_close(NULL));
    assert_ok(file_write(path, "{\"step\":1}\n{\"st", 15, &d), d);
    l = lines_open(path, false);
    assert_true(l && !lines_made(l) && !lines_empty(l) && lines_add(l, "{\"step\":2}") && lines_close(l));
    check_content(path, "{\"step\":1}\n{\"st\n{\"step\":2}\n");
    l = lines_open(path, false); /* it ends whole: nothing is put between */
    assert_true(l && lines_add(l, "3") && lines_close(l));
    check_content(path, "{\"step\":1}\n{\"st\n{\"step\":2}\n3\n");
    l = lines_open(path, true);
    assert_true(l && !lines_made(l) && lines_empty(l) && lines_add(l, "anew") && lines_close(l));
    check_content(path, "anew\n");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f16_every_pattern_round_trips),   cmocka_unit_test(f16_rounds_to_nearest_even),
        cmocka_unit_test(sub_byte_elements_pack_low_bits_first), cmocka_unit_test(arena_limit_is_kept),
        cmocka_unit_test(json_strings_are_valid),          cmocka_unit_test(map_finds_what_was_put),
        cmocka_unit_test(messages_are_plain),
        cmocka_unit_test(files_are_written_whole_or_not_at_all),
        cmocka_unit_test(streams_stay_what_they_are),
        cmocka_unit_test(plain_files_only),
        cmocka_unit_test(folders_of_files),
        cmocka_unit_test(names_of_one_file),
        cmocka_unit_test(what_the_dead_left_is_removed),
        cmocka_unit_test(zeroed_memory),
        cmocka_unit_test(every_sign_counts),
        cmocka_unit_test(integers_hold_what_they_can),
        cmocka_unit_test(what_cannot_be_seen),
        cmocka_unit_test(folders_taken_back),
        cmocka_unit_test(lines_are_added_whole),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
