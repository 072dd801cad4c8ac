/* The program cache: what goes in comes out, in this process and the next; damaged, half-written and foreign files
 * never do; it stays within its size and lets the least recently used go; processes may share it and be killed in
 * it. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "conform.h"
#include "engine/engine.h"
#include "seal.h"

enum { ENTRY_HEADER = 48 }; /* of a file of the cache: magic, version, key, size, checksum */

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
    assert_ok(
        dev_cache_open(&c, &(dev_cache_options){ .dir = dir, .max_disk_bytes = disk, .max_memory_bytes = memory }, &d),
        d);
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
    strbuf s = { 0 };
    sb_puts(&s, "before"); /* what is read comes behind it, and is remembered without it */
    assert_true(dev_cache_get(c, key(1), &s) && !memcmp(s.at, "before", 6));
    assert_true(has(c, 1));
    sb_free(&s);
    dev_cache_close(c);
    c = open_cache(0, 0);
    assert_true(has(c, 1) && has(c, 2) && has(c, 1));
    dev_cache_get_stats(c, &st);
    assert_int_equal(st.disk_hits, 2);
    assert_int_equal(st.memory_hits, 1);
    dev_cache_drop(c, key(1));
    assert_false(has(c, 1));
    dev_cache_get_stats(c, &st);
    assert_int_equal(st.bad, 1);
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
    assert_true(dev_cache_get(c, key(3), &s)); /* nothing made room for what has none */
    dev_cache_put(c, key(3), b, sizeof b);     /* in its own place */
    assert_true(dev_cache_get(c, key(5), &s) && dev_cache_get(c, key(3), &s));
    dev_key half = key(3);
    half.word[1] ^= 1;
    assert_false(dev_cache_get(c, half, &s));
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
    const size_t words = (f.n - ENTRY_HEADER) / 8;
    for (size_t i = 0; i < 2 * f.n + words; i++) {
        unsigned char *b = malloc(f.n);
        assert_non_null(b);
        memcpy(b, f.at, f.n);
        size_t n = i < f.n ? i : f.n;
        /* cut at i; a bit of a byte flipped; an entry of before, by its version; the signs of three numbers in a row,
         * which a product for each word would not see */
        if (i >= f.n && i < 2 * f.n) b[i - f.n] ^= 0x10;
        else if (i == 2 * f.n) b[8] = 1;
        else if (i > 2 * f.n)
            for (size_t k = ENTRY_HEADER + 8 * (i - 2 * f.n - 1), j = 7; j < 16; j += 4) b[k + j] ^= 128;
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
    dev_key half = key(3);
    half.word[1] ^= 1;
    assert_ok(file_write(entry_name(half), f.at, f.n, &d), d);
    c = open_cache(0, 0);
    assert_false(has(c, 4));
    strbuf s = { 0 };
    assert_false(dev_cache_get(c, half, &s));
    sb_free(&s);
    dev_cache_close(c);
    file_drop(&f);
}

/* What stands under an entry's name and is no file of ours: a pipe, links, a folder, a file that could never have
 * been kept. */
static void plant(int what, const char *path)
{
    diag d = { 0 };
    unlink(path);
    if (what == 0) assert_int_equal(mkfifo(path, 0600), 0);
    if (what == 1) assert_int_equal(symlink("/dev/zero", path), 0);
    if (what == 2) assert_int_equal(symlink("nowhere", path), 0);
    if (what == 3) assert_int_equal(symlink("elsewhere", path), 0);
    if (what == 4) assert_int_equal(mkdir(path, 0700), 0);
    if (what == 5) {
        assert_ok(file_write(path, "", 0, &d), d);
        assert_int_equal(truncate(path, 1 << 20), 0);
    }
}

static void no_files_of_ours(void **state)
{
    (void)state;
    struct stat s;
    for (int what = 0; what < 6; what++) {
        char path[400], other[400];
        empty();
        dev_cache *c = open_cache(1 << 16, 0);
        put(c, 5);
        dev_cache_close(c);
        snprintf(path, sizeof path, "%s", entry_name(key(5)));
        snprintf(other, sizeof other, "%s", in_dir("elsewhere"));
        assert_int_equal(rename(path, other), 0); /* a whole entry that a link can lead to */
        plant(what, path);
        alarm(60); /* a reader that waits for the pipe ends here */
        c = open_cache(1 << 16, 0);
        if (has(c, 5)) fail_msg("thing %d was read as an entry", what);
        alarm(0);
        dev_cache_stats st;
        dev_cache_get_stats(c, &st);
        assert_int_equal(st.bad, 1);
        assert_int_not_equal(lstat(path, &s), 0);
        put(c, 5); /* made again */
        dev_cache_close(c);
        assert_true(!lstat(path, &s) && S_ISREG(s.st_mode));
        c = open_cache(1 << 16, 0);
        assert_true(has(c, 5));
        dev_cache_close(c);
        assert_int_equal(access(other, F_OK), 0);
    }
}

static void set_time(const char *path, time_t seconds, long ns)
{
    struct timespec t[2] = { { .tv_sec = seconds, .tv_nsec = ns }, { .tv_sec = seconds, .tv_nsec = ns } };
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void set_age(const char *path, time_t seconds) { set_time(path, time(NULL) - seconds, 0); }

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
    dev_cache_put(c, key(9), big, 3490); /* as large as that with what stands before it */
    assert_false(dev_cache_get(c, key(9), &s));
    assert_true(dev_cache_get(c, key(3), &s));
    static const uint64_t by_age[] = { 2, 3, 0 }; /* of one second */
    for (int i = 0; i < 3; i++) set_time(entry_name(key(by_age[i])), 1000000, 1000 * (i + 1));
    dev_cache_put(c, key(4), b, sizeof b);
    assert_false(dev_cache_get(c, key(2), &s));
    assert_true(dev_cache_get(c, key(0), &s) && dev_cache_get(c, key(3), &s));
    sb_free(&s);
    dev_cache_close(c);
}

/* The number of a process that is gone. */
static long dead_pid(void)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return (long)pid;
}

/* A file that a process began; its path until the next call. */
static char *begun(long pid, const char *rest, size_t bytes, time_t age)
{
    static char path[400];
    char name[80];
    diag d = { 0 };
    snprintf(name, sizeof name, "pending-%ld-%s", pid, rest);
    snprintf(path, sizeof path, "%s", in_dir(name));
    char *half = calloc(bytes + 1, 1);
    assert_non_null(half);
    assert_ok(file_write(path, half, bytes, &d), d);
    free(half);
    set_age(path, age);
    return path;
}

static void leftovers(void **state)
{
    (void)state;
    empty();
    diag d = { 0 };
    char full[400], inside[420];
    begun((long)getpid(), "5-1", 4, 7200); /* nobody writes for so long */
    begun((long)getpid(), "5-2", 4, 1800); /* may be written just now */
    begun(dead_pid(), "5-3", 4, 0);
    begun(dead_pid(), "5-4.tmp.1", 4, 0);
    snprintf(full, sizeof full, "%s", entry_name(key(2)));
    snprintf(inside, sizeof inside, "%s/x", full);
    assert_int_equal(mkdir(full, 0700), 0);
    assert_ok(file_write(inside, "x", 1, &d), d);
    dev_cache *c = open_cache(0, 0);
    assert_int_equal(count_files("pending-"), 1); /* opening clears up */
    begun(dead_pid(), "5-5", 4, 0);
    put(c, 1);
    put(c, 2); /* there is no place for it, and nothing of it stays */
    dev_cache_close(c);
    assert_int_equal(count_files("pending-"), 1); /* as writing does */
    char living[80];
    snprintf(living, sizeof living, "pending-%ld-5-2", (long)getpid());
    assert_int_equal(access(in_dir(living), F_OK), 0);
    unlink(inside);
    assert_int_equal(rmdir(full), 0);
}

/* What is being written takes room, too; opening the folder removes no entry. */
static void room_of_what_is_written(void **state)
{
    (void)state;
    empty();
    unsigned char b[952] = { 0 }; /* 1000 on disk */
    dev_cache *c = open_cache(3500, 1);
    for (uint64_t k = 0; k < 2; k++) {
        dev_cache_put(c, key(k), b, sizeof b);
        set_age(entry_name(key(k)), (time_t)(1000 - k * 100));
    }
    begun((long)getpid(), "6-1", 1600, 0);
    dev_cache_close(c);
    c = open_cache(10, 1);
    assert_int_equal(count_files(""), 3);
    dev_cache_close(c);
    c = open_cache(3500, 1);
    dev_cache_put(c, key(2), b, sizeof b);
    assert_int_equal(count_files(""), 2);
    assert_int_equal(access(entry_name(key(2)), F_OK), 0);
    dev_cache_close(c);
}

/* Writers killed at any moment: whatever is found afterwards is whole. */
static void killed(void **state)
{
    (void)state;
    empty();
    rng r = { test_seed("cache killed") };
    /* eight, and on a busy machine until one of them got as far as an entry */
    for (int round = 0; round < 8 || (round < 500 && count_files("") == count_files("pending-")); round++) {
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
    assert_int_equal(count_files("pending-"), 0);
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
        int bad = dev_cache_open(&c, &(dev_cache_options){ .dir = dir, .max_disk_bytes = 3000, .max_memory_bytes = 1 },
                                 &d) != AN_OK;
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
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    setenv("XDG_CACHE_HOME", "not/from/the/root", 1); /* is as if it were not there */
    setenv("HOME", dir, 1);
    assert_ok(dev_cache_open(&c, NULL, &d), d);
    assert_string_equal(dev_cache_dir(c), in_dir(".cache/anneal"));
    dev_cache_close(c);
    if (home) setenv("HOME", home, 1);
    else unsetenv("HOME");
    free(home);
    unsetenv("XDG_CACHE_HOME");
    rmdir(in_dir("anneal"));
    rmdir(in_dir(".cache/anneal"));
    rmdir(in_dir(".cache"));
}

/* A folder of another user: what it has is used, and it stays as it is. In a child, which gives up root's rights. */
static void only_read(void **state)
{
    (void)state;
    enum { NOBODY = 65534 };
    empty();
    dev_cache *c = open_cache(1 << 20, 1);
    put(c, 1), put(c, 2);
    dev_cache_close(c);
    FILE *f = fopen(entry_name(key(2)), "r+b");
    assert_non_null(f);
    assert_true(!fseek(f, ENTRY_HEADER + 5, SEEK_SET) && fputc('!', f) == '!' && !fclose(f));
    struct stat was, is;
    assert_int_equal(stat(entry_name(key(1)), &was), 0);
    assert_int_equal(chmod(dir, 0555), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        diag d = { 0 };
        dev_cache_stats st = { 0 };
        if (!geteuid() && setuid(NOBODY)) _exit(1);
        if (dev_cache_open(&c, &(dev_cache_options){ .dir = dir, .max_disk_bytes = 1 << 20 }, &d)) _exit(2);
        if (!dev_cache_dir(c) || !strstr(d.msg, "newly compiled programs are kept in memory only: cannot write to "))
            _exit(3);
        if (!has(c, 1) || has(c, 2) || has(c, 3)) _exit(4);
        put(c, 3);
        if (!has(c, 3)) _exit(5);
        dev_cache_drop(c, key(1)); /* gone from memory, and read again */
        if (!has(c, 1)) _exit(6);
        dev_cache_get_stats(c, &st);
        dev_cache_close(c);
        _exit(st.disk_hits == 2 && st.memory_hits == 1 && st.misses == 2 && st.bad == 2 && !st.writes ? 0 : 7);
    }
    int how;
    waitpid(pid, &how, 0);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    assert_int_equal(count_files(""), 2);
    assert_int_equal(stat(entry_name(key(1)), &is), 0);
    assert_true(is.st_mtime == was.st_mtime && !stat(entry_name(key(2)), &is));
}

/* The bound of the environment, where the caller has none. */
static void bound_from_environment(void **state)
{
    (void)state;
    static const struct {
        const char *said;
        uint64_t want; /* NO: refused */
    } rows[] = { { "", 1 << 30 }, { "0", 0 },     { "12", 12 },   { "3k", 3 << 10 }, { "3K", 3 << 10 }, { "200M", 200 << 20 }, { "2G", (uint64_t)2 << 30 }, { "17179869183G", (uint64_t)17179869183 << 30 },
                 { "k", UINT64_MAX }, { "-1", UINT64_MAX }, { "1.5G", UINT64_MAX }, { "2GB", UINT64_MAX }, { "1T", UINT64_MAX }, { " 1", UINT64_MAX }, { "17179869184G", UINT64_MAX },
                 { "99999999999999999999", UINT64_MAX } };
    empty();
    setenv("ANNEAL_CACHE", dir, 1);
    for (size_t i = 0; i < COUNT(rows); i++) {
        dev_cache *c;
        dev_cache_info look;
        diag d = { 0 }, e = { 0 };
        setenv("ANNEAL_CACHE_BYTES", rows[i].said, 1);
        an_status want = rows[i].want == UINT64_MAX ? AN_INPUT : AN_OK;
        if (dev_cache_look(&look, &d) != want || (!want && look.max_bytes != rows[i].want))
            fail_msg("\"%s\": %d, %llu: %s", rows[i].said, d.st, (unsigned long long)look.max_bytes, d.msg);
        assert_string_equal(look.dir, dir);
        free(look.dir);
        assert_int_equal(dev_cache_open(&c, NULL, &e), want);
        if (want) assert_non_null(strstr(e.msg, rows[i].said));
        dev_cache_close(c);
    }
    setenv("ANNEAL_CACHE_BYTES", "1k", 1);
    dev_cache *c = open_cache(0, 1);
    for (uint64_t k = 0; k < 8; k++) put(c, k);
    dev_cache_close(c);
    dev_cache_info look;
    diag d = { 0 };
    const size_t files = count_files("");
    uint64_t bytes = 0;
    struct stat st;
    for (uint64_t k = 0; k < 8; k++) bytes += stat(entry_name(key(k)), &st) ? 0 : (uint64_t)st.st_size;
    char folder[400]; /* what has an entry's name and is none, or is as long */
    snprintf(folder, sizeof folder, "%s", entry_name(key(99)));
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_ok(file_write(in_dir("none-of-ours-none-of-ours-none-o.prog"), "x", 1, &d), d);
    assert_ok(dev_cache_look(&look, &d), d);
    assert_true(files > 1 && look.bytes == bytes && bytes <= 1024);
    assert_int_equal(look.programs, files);
    assert_string_equal(look.why_not, "");
    free(look.dir);
    assert_int_equal(rmdir(folder), 0);
    setenv("ANNEAL_CACHE", in_dir("not/yet"), 1); /* it will be made */
    assert_ok(dev_cache_look(&look, &d), d);
    assert_true(!look.programs && !look.why_not[0]);
    free(look.dir);
    setenv("ANNEAL_CACHE", dir, 1);
    setenv("ANNEAL_CACHE_BYTES", "what", 1);
    c = open_cache(3000, 1); /* a caller with a bound of its own does not ask */
    dev_cache_close(c);
    assert_ok(dev_cache_open(&c, &(dev_cache_options){ .memory_only = true }, &d), d); /* nor does memory */
    dev_cache_close(c);
    unsetenv("ANNEAL_CACHE_BYTES");
    unsetenv("ANNEAL_CACHE");
}

/* ---- entries that are whole, and not what the text compiles to ---- */

/* y = f(x) on one size and another; the same ports and another function. */
#define ONE_TEXT(op, dims)                                                                                            \
    MIL_HEAD "func main<ios18>(tensor<fp16, [" dims "]> x) {\n"                                                       \
             "tensor<fp16, [" dims "]> y = " op "[name = string(\"y\")];\n} -> (y);\n}\n"
/* y = x in other dimensions. */
#define RESHAPED(from, to, rank, dims)                                                                                \
    MIL_HEAD "func main<ios18>(tensor<fp16, [" from "]> x) {\n"                                                       \
             "tensor<int32, " rank "> s = const()[name = string(\"s\"), val = tensor<int32, " rank ">(" dims ")];\n" \
             "tensor<fp16, [" to "]> y = reshape(shape = s, x = x)[name = string(\"y\")];\n} -> (y);\n}\n"
/* t = 2x, y = t². */
#define STEP_TEXT(results)                                                                                            \
    MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\n"                                                    \
             "tensor<fp16, [1, 8, 1, 32]> t = add(x = x, y = x)[name = string(\"t\")];\n"                           \
             "tensor<fp16, [1, 8, 1, 32]> y = mul(x = t, y = t)[name = string(\"y\")];\n} -> (" results ");\n}\n"
/* y = kv + x, and kv becomes it in one of two spellings. */
#define KEPT_TEXT(written)                                                                                            \
    MIL_HEAD "func main<ios18>(state<tensor<fp16, [1, 32]>> kv, tensor<fp16, [1, 32]> x) {\n"                         \
             "tensor<fp16, [1, 32]> old = read_state(input = kv)[name = string(\"old\")];\n"                        \
             "tensor<fp16, [1, 32]> y = add(x = old, y = x)[name = string(\"y\")];\n" written "} -> (y);\n}\n"
#define WRITTEN "write_state(input = kv, data = y)[name = string(\"w\")];\n"
#define UPDATED "tensor<fp16, [1, 32]> now = coreml_update_state(state = kv, value = y)[name = string(\"now\")];\n"
static const char OTHER_WEIGHT[] = "@model_path/weights/v.bin";

/* The key of the only entry there is. */
static dev_key only_key(void)
{
    dev_key k = { { 0, 0 } };
    int found = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        unsigned long long a, b;
        if (sscanf(e->d_name, "%16llx%16llx.prog", &a, &b) == 2) k = (dev_key){ { a, b } }, found++;
    }
    closedir(d);
    assert_int_equal(found, 1);
    return k;
}

typedef struct {
    const char *text;
    const char *engine;
} made;

static void compile_on(dev_cache *c, made x, bool *kept, double *y0, uint64_t *bad)
{
    device *dev;
    diag d = { 0 };
    dev_program *p;
    strbuf w = weight_file(2, 0);
    dev_blob blob[2] = { { WEIGHT_PATH, w.at, w.n }, { OTHER_WEIGHT, w.at, w.n } };
    assert_ok(device_open(&dev, x.engine, &(device_options){ .threads = 1, .cache = c, .own_budget = true }, &d), d);
    dev_source src = { .text = x.text,
                       .n_text = strlen(x.text),
                       .weights = { .blob = blob, .n_blob = strstr(x.text, OTHER_WEIGHT) ? 2 : 1 } };
    assert_ok(device_compile(dev, &src, &p, &d), d);
    *kept = dev_program_from_cache(p);
    assert_ok(dev_program_load(p, &d), d);
    bound b = must_bind(dev, p);
    put_f16(b.s[0][0], (int)(dev_surface_bytes(b.s[0][0]) / 2), 3, 0);
    assert_ok(device_run(b.r, DEV_QOS, &d), d);
    *y0 = get_f16(b.s[1][0], 0);
    device_stats st;
    device_get_stats(dev, &st);
    *bad = st.cache_bad;
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
    sb_free(&w);
}

/* What an entry holds, and its key. */
static strbuf entry_of(made x, dev_key *k)
{
    bool kept;
    double y;
    uint64_t bad;
    strbuf body = { 0 };
    empty();
    dev_cache *c = open_cache(0, 0);
    compile_on(c, x, &kept, &y, &bad);
    assert_false(kept);
    *k = only_key();
    assert_true(dev_cache_get(c, *k, &body));
    dev_cache_close(c);
    return body;
}

static void store(unsigned char *at, uint64_t v)
{
    for (int i = 0; i < 8; i++, v >>= 8) at[i] = (unsigned char)v;
}

/* As a forger would: the program says that it is what the key stands for, and for that chip, with a checksum that is
 * right again. */
static void forge(strbuf *body, dev_key k, const char *target)
{
    unsigned char *p = (unsigned char *)body->at;
    size_t at = SEAL_HEADER;
    at += 4 + (size_t)p[at]; /* the title */
    if (target) memcpy(p + at + 4, target, strlen(target));
    at += 4 + (size_t)p[at];
    store(p + at, k.word[0] ^ k.word[1]);
    seal(p, body->n);
    program *g; /* well-formed it is */
    diag d = { 0 };
    assert_ok(program_decode(body->at, body->n, &g, &d), d);
    program_free(g);
}

static void planted(void **state)
{
    (void)state;
    static const char add[] = ONE_TEXT("add(x = x, y = x)", "1, 8, 1, 32"),
                      mul[] = ONE_TEXT("mul(x = x, y = x)", "1, 8, 1, 32");
    static const char large[] = ONE_TEXT("mul(x = x, y = x)", "1, 64, 1, 512"),
                      flat[] = ONE_TEXT("mul(x = x, y = x)", "1, 32, 1, 8");
    static const char both[] = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\ntensor<fp16, [1, 8, 1, 32]> y = mul(x = x, y = x)[name = string(\"y\")];\n"
                                        "tensor<fp16, [1, 8, 1, 32]> z = add(x = x, y = x)[name = string(\"z\")];\n} -> (y, z);\n}\n";
    static const char wide[] = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\nstring t = const()[name = string(\"t\"), val = string(\"fp32\")];\n"
                                        "tensor<fp32, [1, 8, 1, 32]> y = cast(dtype = t, x = x)[name = string(\"y\")];\n} -> (y);\n}\n";
    static const char with_z[] = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x, tensor<fp16, [1, 8, 1, 32]> z) {\n"
                                          "tensor<fp16, [1, 8, 1, 32]> y = mul(x = x, y = z)[name = string(\"y\")];\n} -> (y);\n}\n";
    static const char plane[] = ONE_TEXT("add(x = x, y = x)", "8, 32"),
                      deep[] = RESHAPED("8, 32, 1", "8, 32", "[2]", "[8, 32]"),
                      stood[] = RESHAPED("32, 8", "8, 32", "[2]", "[8, 32]");
    char elsewhere[sizeof CONV_TEXT];
    strcpy(elsewhere, CONV_TEXT);
    memcpy(strstr(elsewhere, WEIGHT_PATH), OTHER_WEIGHT, strlen(OTHER_WEIGHT));
    const struct {
        made want, got;
        bool forged;
        const char *target;
        double y0; /* of what is wanted, x being 3 everywhere */
    } rows[] = {
        { { add, "soft:m1" }, { mul, "soft:m1" }, false, NULL, 6 },       /* swapped, the same ports */
        { { add, "cpu" }, { large, "cpu" }, false, NULL, 6 },             /* swapped, larger ports */
        { { add, "soft:m1" }, { add, "cpu" }, false, NULL, 6 },           /* another device's */
        { { add, "cpu" }, { large, "cpu" }, true, NULL, 6 },
        { { add, "cpu" }, { flat, "cpu" }, true, NULL, 6 },               /* as many bytes */
        { { add, "cpu" }, { both, "cpu" }, true, NULL, 6 },               /* a port more */
        { { both, "cpu" }, { mul, "cpu" }, true, NULL, 9 },               /* a port less */
        { { add, "cpu" }, { with_z, "cpu" }, true, NULL, 6 },             /* an input more */
        { { add, "cpu" }, { wide, "cpu" }, true, NULL, 6 },               /* a result of another type */
        { { plane, "cpu" }, { stood, "cpu" }, true, NULL, 6 },            /* another shape goes in, as many bytes */
        { { plane, "cpu" }, { deep, "cpu" }, true, NULL, 6 },             /* another rank */
        { { STEP_TEXT("y"), "cpu" }, { STEP_TEXT("t, y"), "cpu" }, true, NULL, 36 }, /* what is no result is one */
        { { KEPT_TEXT(WRITTEN), "cpu" }, { KEPT_TEXT(""), "cpu" }, true, NULL, 3 }, /* state that is not written */
        { { add, "soft:m1" }, { add, "cpu" }, true, NULL, 6 },
        /* another chip's arithmetic under this one's name */
        { { add, "soft:m1" }, { add, "soft:m4" }, true, "m1", 6 },
        { { add, "soft:m1" }, { add, "soft:h13g" }, true, NULL, 6 },      /* another chip with this arithmetic */
        { { CONV_TEXT, "cpu" }, { elsewhere, "cpu" }, true, NULL, 6 },    /* reads what the text does not name */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dev_key key_of, other;
        strbuf right = entry_of(rows[i].want, &key_of), wrong = entry_of(rows[i].got, &other);
        if (rows[i].forged) forge(&wrong, key_of, rows[i].target);
        empty();
        for (int round = 0; round < 2; round++) { /* dropped and made anew, then found */
            dev_cache *c = open_cache(0, 0);
            if (!round) dev_cache_put(c, key_of, wrong.at, wrong.n);
            bool kept;
            double y0;
            uint64_t bad;
            compile_on(c, rows[i].want, &kept, &y0, &bad);
            if (kept != round || bad != !round || y0 != rows[i].y0)
                fail_msg("row %zu, round %d: kept %d, bad %d, y %g", i, round, kept, (int)bad, y0);
            dev_cache_close(c);
        }
        sb_free(&right);
        sb_free(&wrong);
    }
}

/* Every text knows its own program again, however its ports are declared. */
static void known_again(void **state)
{
    (void)state;
    static const char open_y[] = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\ntensor<fp16, [?, 8, 1, 32]> y = mul(x = x, y = x)[name = string(\"y\")];\n} -> (y);\n}\n";
    static const char *const texts[] = { RING_TEXT,          TWO_TEXT,           open_y,
                                         KEPT_TEXT(WRITTEN), KEPT_TEXT(UPDATED), STEP_TEXT("y, t") };
    for (size_t i = 0; i < COUNT(texts); i++) {
        dev_key k;
        bool kept;
        double y;
        uint64_t bad;
        strbuf body = entry_of((made){ texts[i], "cpu" }, &k);
        dev_cache *c = open_cache(0, 0);
        compile_on(c, (made){ texts[i], "cpu" }, &kept, &y, &bad);
        if (!kept || bad) fail_msg("text %zu: kept %d, bad %d", i, kept, (int)bad);
        dev_cache_close(c);
        sb_free(&body);
    }
}

/* A compiler that became another one makes its programs itself: the text says what is computed, not how. */
static void by_another_compiler(void **state)
{
    (void)state;
    static const struct {
        const char *maker;
        bool kept;
    } rows[] = { { "one", false }, { "one", true }, { "another", false },
                 { NULL, false },  { NULL, true },  { "one", true } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        dev_cache *c = open_cache(0, 0);
        device *dev;
        dev_program *p;
        diag d = { 0 };
        dev_source src = { .text = RING_TEXT, .n_text = strlen(RING_TEXT) };
        assert_ok(device_open(&dev, "soft:m1",
                              &(device_options){ .threads = 1, .cache = c, .own_budget = true, .maker = rows[i].maker },
                              &d),
                  d);
        assert_ok(device_compile(dev, &src, &p, &d), d);
        if (dev_program_from_cache(p) != rows[i].kept)
            fail_msg("row %zu: kept %d, wanted %d", i, !rows[i].kept, rows[i].kept);
        device_close(dev);
        dev_cache_close(c);
    }
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
        cmocka_unit_test(leftovers),      cmocka_unit_test(room_of_what_is_written), cmocka_unit_test(killed),        cmocka_unit_test(shared), cmocka_unit_test(places), cmocka_unit_test(only_read),
        cmocka_unit_test(planted),        cmocka_unit_test(known_again), cmocka_unit_test(by_another_compiler), cmocka_unit_test(no_files_of_ours), cmocka_unit_test(bound_from_environment),
    };
    return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
