/* cache.c: compiled programs under the hash of what they were compiled from.
 * In: a key and bytes.  Out: the same bytes, in this process or a later one, or nothing.
 *
 * On disk a file per key: magic, version, key, size, checksum, bytes. It is written under a name of its own, synced,
 * and renamed into place, so a reader sees a whole entry or none, and a crash leaves at most a file nobody asks for.
 * Whoever opens the folder or writes to it removes those of processes that are gone, and of any when they are old;
 * whoever writes to it and finds it too large, those files included, removes the entries used longest ago. Reading
 * one touches its time. Processes need no lock: they only ever create, rename and remove whole files. A folder that
 * can only be read is read. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "device/device_int.h"

static const char MAGIC[8] = "ANNLCACH";
enum { ENTRY_VERSION = 2, ENTRY_HEADER = 48, NAME_LEN = 32 + 5 /* hex digits, ".prog" */, STALE_SECONDS = 3600 };
#define SUFFIX ".prog"
#define PENDING "pending-"

typedef struct held held;
struct held { /* an entry in memory */
    held *prev, *next;
    dev_key key;
    size_t n;
    unsigned char bytes[];
};

struct dev_cache {
    pthread_mutex_t mu;
    char *dir;        /* NULL: memory only */
    bool only_read;   /* nothing in it is made, touched or removed */
    uint64_t max_disk, max_memory, memory;
    held *first;      /* most recently used first */
    unsigned written; /* makes temporary names unique */
    dev_cache_stats st;
};

static void sweep(dev_cache *c, bool entries);

/* ---- opening ---- */

static char *join(const char *a, const char *b)
{
    size_t n = strlen(a) + strlen(b) + 1;
    char *s = malloc(n);
    if (s) snprintf(s, n, "%s%s", a, b);
    return s;
}

static char *default_dir(void)
{
    const char *own = getenv("ANNEAL_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own) return join(own, "");
    if (xdg && *xdg == '/') return join(xdg, "/anneal"); /* the XDG rules: a relative path is to be ignored */
    if (home && *home) return join(home, "/.cache/anneal");
    return NULL;
}

static bool is_readable(const char *dir)
{
    struct stat s;
    return !access(dir, R_OK | X_OK) && !stat(dir, &s) && S_ISDIR(s.st_mode);
}

/* Bytes, or so many times 1024 of them for each step of k, M, G. */
static an_status default_bound(uint64_t *out, diag *d)
{
    static const char units[] = "kMG";
    const char *s = getenv("ANNEAL_CACHE_BYTES");
    *out = (uint64_t)1 << 30;
    if (!s || !*s) return AN_OK;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(s, &end, 10);
    const char *unit = *end ? strchr(units, *end == 'K' ? 'k' : *end) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (*s < '0' || *s > '9' || errno || (*end && (!unit || end[1])) || n > UINT64_MAX >> shift) {
        *out = 0;
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "ANNEAL_CACHE_BYTES=%.40s: a whole number of bytes is wanted, or of 1024, 1024^2 or 1024^3 of them with k, M or G behind it",
            s);
    }
    *out = (uint64_t)n << shift;
    return AN_OK;
}

an_status dev_cache_open(dev_cache **out, const dev_cache_options *o, diag *d)
{
    static const dev_cache_options none = { 0 };
    if (!o) o = &none;
    *out = NULL;
    uint64_t most = o->max_disk_bytes;
    if (!most && !o->memory_only) TRY(default_bound(&most, d));
    dev_cache *c = calloc(1, sizeof *c);
    if (!c) return diag_nomem(d);
    c->max_disk = most;
    c->max_memory = o->max_memory_bytes ? o->max_memory_bytes : (uint64_t)64 << 20;
    pthread_mutex_init(&c->mu, NULL);
    *out = c;
    if (o->memory_only) return AN_OK;
    c->dir = o->dir ? join(o->dir, "") : default_dir();
    diag why = { 0 };
    if (!c->dir) return AN_OK;
    if (dir_make(c->dir, &why) || access(c->dir, R_OK | W_OK | X_OK)) {
        if (!why.st) file_fail("write to", c->dir, &why);
        c->only_read = is_readable(c->dir);
        snprintf(d->msg, sizeof d->msg, "%scompiled programs are kept in memory only: %.300s",
                 c->only_read ? "newly " : "", why.msg);
        if (c->only_read) return AN_OK;
        free(c->dir);
        c->dir = NULL;
        return AN_OK;
    }
    sweep(c, false);
    return AN_OK;
}

void dev_cache_close(dev_cache *c)
{
    if (!c) return;
    while (c->first) {
        held *next = c->first->next;
        free(c->first);
        c->first = next;
    }
    pthread_mutex_destroy(&c->mu);
    free(c->dir);
    free(c);
}

const char *dev_cache_dir(const dev_cache *c) { return c->dir; }

void dev_cache_get_stats(dev_cache *c, dev_cache_stats *out)
{
    pthread_mutex_lock(&c->mu);
    *out = c->st;
    pthread_mutex_unlock(&c->mu);
}

/* ---- in memory ---- */

static bool same_key(dev_key a, dev_key b) { return a.word[0] == b.word[0] && a.word[1] == b.word[1]; }

static void forget(dev_cache *c, held *h)
{
    LIST_CUT(c->first, h);
    c->memory -= h->n;
    free(h);
}

static held *find_held(dev_cache *c, dev_key key)
{
    held *h = c->first;
    while (h && !same_key(h->key, key)) h = h->next;
    return h;
}

static void hold(dev_cache *c, dev_key key, const void *bytes, size_t n)
{
    held *h = find_held(c, key);
    if (h) forget(c, h);
    if (n > c->max_memory || !(h = malloc(sizeof *h + n))) return;
    h->key = key;
    h->n = n;
    memcpy(h->bytes, bytes, n);
    LIST_ADD(c->first, h);
    c->memory += n;
    while (c->memory > c->max_memory) {
        held *last = c->first;
        while (last->next) last = last->next;
        forget(c, last);
    }
}

/* ---- on disk ---- */

static char *entry_path(const dev_cache *c, dev_key key)
{
    char name[NAME_LEN + 2];
    snprintf(name, sizeof name, "/%016llx%016llx" SUFFIX, (unsigned long long)key.word[0],
             (unsigned long long)key.word[1]);
    return join(c->dir, name);
}

static void put_u64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++, v >>= 8) p[i] = (unsigned char)v;
}

static uint64_t get_u64(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = 8; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static void entry_header(unsigned char *h, dev_key key, const void *bytes, size_t n)
{
    memcpy(h, MAGIC, sizeof MAGIC);
    put_u64(h + 8, ENTRY_VERSION);
    put_u64(h + 16, key.word[0]);
    put_u64(h + 24, key.word[1]);
    put_u64(h + 32, n);
    put_u64(h + 40, hash_many(bytes, n, key.word[0]));
}

/* Is this the whole and unchanged entry of that key? */
static bool intact(const file_bytes *f, dev_key key)
{
    unsigned char want[ENTRY_HEADER];
    if (f->n < ENTRY_HEADER || get_u64(f->at + 32) != f->n - ENTRY_HEADER) return false;
    entry_header(want, key, f->at + ENTRY_HEADER, f->n - ENTRY_HEADER);
    return !memcmp(f->at, want, ENTRY_HEADER);
}

/* Is there something under an entry's name that cannot be one: a pipe, a link, a folder, a file larger than all
 * entries may be together? */
static bool foreign(const dev_cache *c, const char *path)
{
    struct stat s;
    return !lstat(path, &s) && (!S_ISREG(s.st_mode) || (uint64_t)s.st_size > c->max_disk);
}

static bool read_entry(dev_cache *c, dev_key key, strbuf *out)
{
    char *path = entry_path(c, key);
    file_bytes f = { 0 };
    diag why = { 0 };
    bool there = path && !file_read_plain(path, false, (size_t)MIN(c->max_disk, (uint64_t)SIZE_MAX / 4), &f, &why);
    bool ok = there && intact(&f, key);
    if (ok) {
        sb_putn(out, (const char *)f.at + ENTRY_HEADER, f.n - ENTRY_HEADER);
        ok = !out->oom;
        if (!c->only_read) utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW); /* used just now */
    } else if (there || (path && foreign(c, path))) {
        c->st.bad++;
        if (!c->only_read) remove(path); /* a folder goes when it is empty */
    }
    if (there) file_drop(&f);
    free(path);
    return ok;
}

typedef struct {
    char name[64];
    uint64_t bytes;
    struct timespec used;
} entry;

static struct timespec time_of(const struct stat *s)
{
#if defined(__APPLE__)
    return (struct timespec){ .tv_sec = s->st_mtime, .tv_nsec = s->st_mtimensec };
#else
    return s->st_mtim;
#endif
}

static int oldest_first(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec) return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool is_entry(const char *name)
{
    return strlen(name) == NAME_LEN && strspn(name, "0123456789abcdef") == 32 && !strcmp(name + 32, SUFFIX);
}

/* The process that writes this file, or did; 0: another name. */
static long pending_of(const char *name)
{
    long pid = 0;
    if (strncmp(name, PENDING, sizeof PENDING - 1) || sscanf(name + sizeof PENDING - 1, "%ld-", &pid) != 1) return 0;
    return pid > 0 && (long)(pid_t)pid == pid ? pid : 0;
}

/* Remove what a crash left behind, and with `entries` the least recently used until the folder is small enough. */
static void sweep(dev_cache *c, bool entries)
{
    DIR *dir = opendir(c->dir);
    if (!dir) return;
    arena mem = { 0 };
    VEC(entry) all = { 0 };
    uint64_t total = 0;
    time_t now = time(NULL);
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat s;
        long writer = pending_of(e->d_name);
        if (!(writer || (entries && is_entry(e->d_name))) || fstatat(dirfd(dir), e->d_name, &s, AT_SYMLINK_NOFOLLOW) ||
            !S_ISREG(s.st_mode))
            continue;
        if (writer && (s.st_mtime < now - STALE_SECONDS ? !unlinkat(dirfd(dir), e->d_name, 0)
                                                        : file_remove_left(dirfd(dir), e->d_name, writer)))
            continue;
        total += (uint64_t)s.st_size;
        if (writer) continue;
        entry x = { .bytes = (uint64_t)s.st_size, .used = time_of(&s) };
        snprintf(x.name, sizeof x.name, "%.63s", e->d_name);
        if (!VEC_PUSH(&mem, &all, x)) break;
    }
    if (all.n && total > c->max_disk) qsort(all.at, all.n, sizeof *all.at, oldest_first);
    for (size_t i = 0; i < all.n && total > c->max_disk; i++) {
        bool gone = !unlinkat(dirfd(dir), all.at[i].name, 0);
        c->st.evicted += gone;
        if (gone || errno == ENOENT) total -= all.at[i].bytes; /* another process may have been faster */
    }
    closedir(dir);
    arena_free(&mem);
}

static void write_entry(dev_cache *c, dev_key key, const void *bytes, size_t n)
{
    if (n > c->max_disk || c->max_disk - n < ENTRY_HEADER) return;
    unsigned char head[ENTRY_HEADER];
    char name[80];
    strbuf b = { 0 };
    diag why = { 0 };
    entry_header(head, key, bytes, n);
    sb_putn(&b, (const char *)head, sizeof head);
    sb_putn(&b, bytes, n);
    snprintf(name, sizeof name, "/" PENDING "%ld-%llx-%u", (long)getpid(), (unsigned long long)(uintptr_t)c,
             c->written++);
    char *pending = join(c->dir, name), *path = entry_path(c, key);
    if (pending && path && !b.oom && !file_write(pending, b.at, b.n, &why)) {
        if (rename(pending, path)) unlink(pending);
        else c->st.writes++;
    }
    free(pending);
    free(path);
    sb_free(&b);
    sweep(c, true);
}

an_status dev_cache_look(dev_cache_info *out, diag *d)
{
    *out = (dev_cache_info){ .dir = default_dir() };
    an_status st = default_bound(&out->max_bytes, d);
    DIR *dir = out->dir ? opendir(out->dir) : NULL;
    if (out->dir && (dir ? access(out->dir, R_OK | W_OK | X_OK) != 0 : errno != ENOENT))
        snprintf(out->why_not, sizeof out->why_not, "%s", strerror(errno));
    if (!dir) return st;
    for (struct dirent *e; (e = readdir(dir));) {
        struct stat s;
        if (!is_entry(e->d_name) || fstatat(dirfd(dir), e->d_name, &s, AT_SYMLINK_NOFOLLOW) || !S_ISREG(s.st_mode))
            continue;
        out->programs++;
        out->bytes += (uint64_t)s.st_size;
    }
    closedir(dir);
    return st;
}

/* ---- both ---- */

bool dev_cache_get(dev_cache *c, dev_key key, strbuf *out)
{
    size_t from = out->n;
    pthread_mutex_lock(&c->mu);
    held *h = find_held(c, key);
    bool ok = h;
    if (h) {
        LIST_CUT(c->first, h);
        LIST_ADD(c->first, h);
        sb_putn(out, (const char *)h->bytes, h->n);
        ok = !out->oom;
        c->st.memory_hits += ok;
    } else if (c->dir && read_entry(c, key, out)) {
        ok = true;
        hold(c, key, out->at + from, out->n - from);
        c->st.disk_hits++;
    }
    if (!ok) c->st.misses++;
    pthread_mutex_unlock(&c->mu);
    return ok;
}

void dev_cache_put(dev_cache *c, dev_key key, const void *bytes, size_t n)
{
    pthread_mutex_lock(&c->mu);
    hold(c, key, bytes, n);
    if (c->dir && !c->only_read) write_entry(c, key, bytes, n);
    pthread_mutex_unlock(&c->mu);
}

void dev_cache_drop(dev_cache *c, dev_key key)
{
    pthread_mutex_lock(&c->mu);
    held *h = find_held(c, key);
    if (h) forget(c, h);
    char *path = c->dir && !c->only_read ? entry_path(c, key) : NULL;
    if (path) unlink(path);
    free(path);
    c->st.bad++;
    pthread_mutex_unlock(&c->mu);
}
