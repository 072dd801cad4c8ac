/* The program cache: what goes in comes out, in this process and the next; damaged, half-written and foreign files never do;
 * it stays within its size and lets the least recently used go; processes may share it and be killed in it. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "device/device.h"
#include "t.h"

static char dir[64];

static char *in_dir(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static char *entry_name(dev_key k)
{
    char name[64];
    snprintf(name, sizeof name, "%016llx%016llx.prog", (unsigned long long)k.word[0], (unsigned long long)k.word[1]);
    return in_dir(name);
}

static void empty(void)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlink(in_dir(e->d_name));
    closedir(d);
}

static size_t count_files(const char *prefix)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix));
    closedir(d);
    return n;
}

static dev_cache *open_cache(uint64_t disk, uint64_t memory)
{
    dev_cache *c;
    diag d = { 0 };
    assert_ok(dev_cache_open(&c, &(dev_cache_options){ .dir = dir, .max_disk_bytes = disk, .max_memory_bytes = memory }, &d), d);
    assert_string_equal(dev_cache_dir(c), dir);
    return c;
}

static dev_key key(uint64_t k) { return (dev_key){ { k * 0x9e3779b97f4a7c15u + 1, ~k } }; }

/* The content that belongs to a key: reading anything else is seen. */
static size_t content(uint64_t k, unsigned char *out)
{
    size_t n = 100 + k * 37 % 400;
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)(i * 7 + k);
    return n;
}

static void put(dev_cache *c, uint64_t k)
{
    unsigned char b[600];
    size_t n = content(k, b);
    dev_cache_put(c, key(k), b, n);
}

static bool has(dev_cache *c, uint64_t k)
{
    unsigned char want[600];
    size_t n = content(k, want);
    strbuf got = { 0 };
    bool ok = dev_cache_get(c, key(k), &got);
    if (ok && (got.n != n || memcmp(got.at, want, n))) fail_msg("key %d gave somebody else's bytes", (int)k);
    sb_free(&got);
    return ok;
}

static void there_and_back(void **state)
{
    (void)state;
    empty();
    dev_cache *c = open_cache(0, 0);
    dev_cache_stats st;
    assert_false(has(c, 1));
    put(c, 1);
    put(c, 2);
    assert_true(has(c, 1) && has(c, 2));
    dev_cache_get_stats(c, &st);
    assert_int_equal(st.memory_hits, 2);
    assert_int_equal(st.misses, 1);
    assert_int_equal(st.writes, 2);
    dev_cache_close(c);
    assert_int_equal(count_files("pending-"), 0);
    c = open_cache(0, 0);
    assert_true(has(c, 1) && has(c, 2) && has(c, 1));
    dev_cache_get_stats(c, &st);
    assert_int_equal(st.disk_hits, 2);
    assert_int_equal(st.memory_hits, 1);
    dev_cache_drop(c, key(1));
    assert_false(has(c, 1));
    dev_cache_close(c);
    dev_cache_close(NULL);
}

static void memory_bounds(void **state)
{
    (void)state;
    dev_cache *c;
    diag d = { 0 };
    assert_ok(dev_cache_open(&c, &(dev_cache_options){ .memory_only = true, .max_memory_bytes = 1000 }, &d), d);
    assert_null(dev_cache_dir(c));
    unsigned char b[400] = { 0 };
    for (uint64_t k = 0; k < 5; k++) dev_cache_put(c, key(k), b, sizeof b); /* two fit */
    strbuf s = { 0 };
    assert_false(dev_cache_get(c, key(2), &s));
    assert_true(dev_cache_get(c, key(3), &s));
    dev_cache_put(c, key(5), b, sizeof b); /* 4 is now the least recently used */
    assert_false(dev_cache_get(c, key(4), &s));
    assert_true(dev_cache_get(c, key(3), &s) && dev_cache_get(c, key(5), &s));
    unsigned char big[2000] = { 0 };
    dev_cache_put(c, key(6), big, sizeof big);
    assert_false(dev_cache_get(c, key(6), &s));
    sb_free(&s);
    dev_cache_close(c);
}

static void damage(void **state)
{
    (void)state;
    empty();
    dev_cache *c = open_cache(0, 0);
    put(c, 3);
    dev_cache_close(c);
    file_bytes f;
    diag d = { 0 };
    char path[400];
    snprintf(path, sizeof path, "%s", entry_name(key(3)));
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    for (size_t i = 0; i < 2 * f.n; i++) { /* cut at i, then flip a bit of byte i */
        unsigned char *b = malloc(f.n);
        assert_non_null(b);
        memcpy(b, f.at, f.n);
        size_t n = i < f.n ? i : f.n;
        if (i >= f.n) b[i - f.n] ^= 0x10;
        assert_ok(file_write(path, b, n, &d), d);
        free(b);
        c = open_cache(0, 0);
        assert_false(has(c, 3));
        dev_cache_stats st;
        dev_cache_get_stats(c, &st);
        assert_int_equal(st.bad, 1);
        assert_int_not_equal(access(path, F_OK), 0);
        put(c, 3); /* made again */
        dev_cache_close(c);
        c = open_cache(0, 0);
        assert_true(has(c, 3));
        dev_cache_close(c);
    }
    /* a whole entry under another key's name is not that key's */
    assert_ok(file_write(entry_name(key(4)), f.at, f.n, &d), d);
    c = open_cache(0, 0);
    assert_false(has(c, 4));
    dev_cache_close(c);
    file_drop(&f);
}

static void set_age(const char *path, time_t seconds)
{
    struct timespec t[2] = { { .tv_sec = time(NULL) - seconds }, { .tv_sec = time(NULL) - seconds } };
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void disk_bounds(void **state)
{
    (void)state;
    empty();
    unsigned char b[952] = { 0 }; /* 1000 on disk */
    dev_cache *c = open_cache(3500, 1);
    for (uint64_t k = 0; k < 3; k++) {
        dev_cache_put(c, key(k), b, sizeof b);
        set_age(entry_name(key(k)), (time_t)(1000 - k * 100));
    }
    strbuf s = { 0 };
    assert_true(dev_cache_get(c, key(0), &s)); /* used: now the youngest */
    assert_ok(file_write(in_dir("notes.txt"), "not ours", 8, &(diag){ 0 }), (diag){ 0 });
    dev_cache_put(c, key(3), b, sizeof b);
    assert_false(dev_cache_get(c, key(1), &s));
    assert_true(dev_cache_get(c, key(0), &s) && dev_cache_get(c, key(2), &s) && dev_cache_get(c, key(3), &s));
    assert_int_equal(access(in_dir("notes.txt"), F_OK), 0);
    dev_cache_stats st;
    dev_cache_get_stats(c, &st);
    assert_int_equal(st.evicted, 1);
    unsigned char big[4000] = { 0 };
    dev_cache_put(c, key(9), big, sizeof big); /* larger than the whole cache: kept out, nothing evicted */
    assert_false(dev_cache_get(c, key(9), &s));
    assert_true(dev_cache_get(c, key(3), &s));
    sb_free(&s);
    dev_cache_close(c);
}

static void leftovers(void **state)
{
    (void)state;
    empty();
    diag d = { 0 };
    assert_ok(file_write(in_dir("pending-1-2-3"), "half", 4, &d), d);
    assert_ok(file_write(in_dir("pending-4-5-6"), "half", 4, &d), d);
    set_age(in_dir("pending-1-2-3"), 7200);
    dev_cache *c = open_cache(0, 0);
    put(c, 1);
    dev_cache_close(c);
    assert_int_equal(count_files("pending-"), 1); /* the young one may belong to a process that is writing now */
    assert_int_equal(access(in_dir("pending-4-5-6"), F_OK), 0);
}

/* Writers killed at any moment: whatever is found afterwards is whole. */
static void killed(void **state)
{
    (void)state;
    empty();
    rng r = { test_seed("cache killed") };
    for (int round = 0; round < 8; round++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            dev_cache *c;
            diag d = { 0 };
            if (dev_cache_open(&c, &(dev_cache_options){ .dir = dir }, &d)) _exit(1);
            for (uint64_t k = 0;; k = (k + 1) % 20) put(c, k);
        }
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 + (long)rng_below(&r, 15000000) }, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    dev_cache *c = open_cache(0, 0);
    dev_cache_stats st;
    int found = 0;
    for (uint64_t k = 0; k < 20; k++) found += has(c, k); /* has() checks the bytes */
    dev_cache_get_stats(c, &st);
    assert_int_equal(st.bad, 0);
    assert_true(found > 0);
    dev_cache_close(c);
}

/* Several processes write, read and evict the same keys at once. */
static void shared(void **state)
{
    (void)state;
    empty();
    pid_t pid[4];
    for (int p = 0; p < 4; p++) {
        pid[p] = fork();
        assert_true(pid[p] >= 0);
        if (pid[p]) continue;
        dev_cache *c;
        diag d = { 0 };
        rng r = { (uint64_t)p + 5 };
        int bad = dev_cache_open(&c, &(dev_cache_options){ .dir = dir, .max_disk_bytes = 3000, .max_memory_bytes = 1 }, &d) != AN_OK;
        for (int i = 0; i < 60 && !bad; i++) {
            uint64_t k = rng_below(&r, 8);
            unsigned char want[600];
            size_t n = content(k, want);
            strbuf got = { 0 };
            if (dev_cache_get(c, key(k), &got)) bad |= got.n != n || memcmp(got.at, want, n);
            else put(c, k);
            sb_free(&got);
        }
        dev_cache_stats st;
        dev_cache_get_stats(c, &st);
        _exit(bad || st.bad);
    }
    for (int p = 0; p < 4; p++) {
        int how;
        waitpid(pid[p], &how, 0);
        assert_true(WIFEXITED(how) && !WEXITSTATUS(how));
    }
}

static void places(void **state)
{
    (void)state;
    empty();
    dev_cache *c;
    diag d = { 0 };
    assert_ok(file_write(in_dir("file"), "x", 1, &d), d);
    char below[420];
    snprintf(below, sizeof below, "%s/sub", in_dir("file"));
    assert_ok(dev_cache_open(&c, &(dev_cache_options){ .dir = below }, &d), d);
    assert_null(dev_cache_dir(c));
    assert_non_null(strstr(d.msg, "memory only"));
    put(c, 1);
    assert_true(has(c, 1));
    dev_cache_close(c);
    setenv("ANNEAL_CACHE", dir, 1);
    assert_ok(dev_cache_open(&c, NULL, &d), d);
    assert_string_equal(dev_cache_dir(c), dir);
    dev_cache_close(c);
    unsetenv("ANNEAL_CACHE");
    setenv("XDG_CACHE_HOME", dir, 1);
    assert_ok(dev_cache_open(&c, NULL, &d), d);
    assert_string_equal(dev_cache_dir(c), in_dir("anneal"));
    dev_cache_close(c);
    unsetenv("XDG_CACHE_HOME");
    rmdir(in_dir("anneal"));
}

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/anneal-cache-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
    (void)state;
    empty();
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back), cmocka_unit_test(memory_bounds), cmocka_unit_test(damage), cmocka_unit_test(disk_bounds),
        cmocka_unit_test(leftovers),      cmocka_unit_test(killed),        cmocka_unit_test(shared), cmocka_unit_test(places),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
