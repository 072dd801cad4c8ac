/* io.c: files read whole or mapped, and written so that they are whole or not there. Logs that grow, folders and
 * locks are opened where they are kept. */
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE 1 /* madvise() */
#define _DARWIN_C_SOURCE 1 /* the same, and times of files */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

an_status file_fail(const char *verb, const char *path, diag *d)
{
    if (errno == ENOMEM) return diag_fail(d, AN_NOMEM, NOWHERE, "out of memory: cannot %s %s", verb, path);
    return diag_fail(d, AN_INPUT, NOWHERE, "cannot %s %s: %s", verb, path, strerror(errno));
}

static an_status too_large(const char *path, size_t limit, diag *d)
{
    return diag_fail(d, AN_INPUT, NOWHERE, "%s is larger than %zu bytes, the most this reader takes", path, limit);
}

static an_status read_all(int fd, const char *path, size_t limit, file_bytes *out, diag *d)
{
    size_t cap = 1 << 16;
    struct stat s;
    if (!fstat(fd, &s) && S_ISREG(s.st_mode) && s.st_size >= 0) cap = (size_t)s.st_size + 2;
    an_status st = AN_OK;
    unsigned char *p = malloc(MIN(cap, limit + 2));
    cap = MIN(cap, limit + 2);
    if (!p) st = diag_nomem(d);
    while (!st) {
        if (out->n + 1 >= cap) {
            size_t room = MIN(cap * 2, limit + 2);
            unsigned char *q = realloc(p, room);
            if (!q) {
                st = diag_nomem(d);
                break;
            }
            p = q;
            cap = room;
        }
        ssize_t got = read(fd, p + out->n, cap - 1 - out->n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) st = file_fail("read", path, d);
        if (got <= 0) break;
        out->n += (size_t)got;
        if (out->n > limit) st = too_large(path, limit, d);
    }
    if (st) {
        free(p);
        *out = (file_bytes){ 0 };
        return st;
    }
    p[out->n] = 0;
    out->at = p;
    return AN_OK;
}

/* ---- opening what is to be read ---- */

static const char *kind_of(mode_t m)
{
    return S_ISFIFO(m)   ? "a pipe"
           : S_ISDIR(m)  ? "a folder"
           : S_ISSOCK(m) ? "a socket"
           : S_ISBLK(m)  ? "a block device"
           : S_ISCHR(m)  ? "a character device"
                         : "something else";
}

static an_status not_plain(const char *path, mode_t m, diag *d)
{
    return diag_fail(d, AN_INPUT, NOWHERE, "%s is %s, not a regular file", path, kind_of(m));
}

/* Open here before it was opened by its name: standard input, what a shell puts in the place of <(...). Whoever
 * started this process holds the other end. */
static bool was_handed(int fd, const struct stat *s)
{
    enum { MOST = 1024 };
    struct stat other;
    for (int i = 0; i < MOST; i++)
        if (i != fd && !fstat(i, &other) && other.st_dev == s->st_dev && other.st_ino == s->st_ino) return true;
    return false;
}

/* A regular file; with `pipes` also a pipe or a device that this process was handed. A pipe of the file system is not
 * waited for: the open returns at once, and then it is refused by what it is. */
static an_status open_read(const char *path, int flags, bool pipes, int *out, struct stat *s, diag *d)
{
    int fd = *out = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    an_status st = AN_OK;
    if (fd < 0) {
        const int why = errno; /* a socket cannot be opened at all */
        if (why == ENXIO && !stat(path, s) && !S_ISREG(s->st_mode)) return not_plain(path, s->st_mode, d);
        return errno = why, file_fail("open", path, d);
    }
    if (fstat(fd, s)) st = file_fail("stat", path, d);
    else if (!S_ISREG(s->st_mode)) {
        int mode = fcntl(fd, F_GETFL);
        if (!pipes || S_ISDIR(s->st_mode) || !was_handed(fd, s)) st = not_plain(path, s->st_mode, d);
        else if (mode < 0 || fcntl(fd, F_SETFL, mode & ~O_NONBLOCK) < 0) st = file_fail("open", path, d);
    }
    if (st) close(fd), *out = -1;
    return st;
}

static an_status open_plain(const char *path, int flags, int *out, struct stat *s, diag *d)
{
    return open_read(path, flags, false, out, s, d);
}

an_status file_read(const char *path, size_t limit, file_bytes *out, diag *d)
{
    *out = (file_bytes){ 0 };
    bool std = !strcmp(path, "-");
    int fd = STDIN_FILENO;
    struct stat s;
    if (!std) TRY(open_read(path, 0, true, &fd, &s, d));
    an_status st = read_all(fd, path, limit, out, d);
    if (!std) close(fd);
    return st;
}

an_status file_head(const char *path, void *to, size_t n, size_t *got, diag *d)
{
    int fd;
    struct stat s;
    *got = 0;
    TRY(open_read(path, 0, true, &fd, &s, d));
    ssize_t k = S_ISREG(s.st_mode) ? pread(fd, to, n, 0) : 0;
    an_status st = k < 0 ? file_fail("read", path, d) : AN_OK;
    if (!st) *got = (size_t)k;
    close(fd);
    return st;
}

an_status file_read_plain(const char *path, bool links, size_t limit, file_bytes *out, diag *d)
{
    *out = (file_bytes){ 0 };
    int fd;
    struct stat s;
    TRY(open_plain(path, links ? 0 : O_NOFOLLOW, &fd, &s, d));
    an_status st = (uint64_t)s.st_size > limit ? too_large(path, limit, d) : read_all(fd, path, limit, out, d);
    close(fd);
    return st;
}

an_status file_map_held(const char *path, file_bytes *out, int *held, diag *d)
{
    *out = (file_bytes){ 0 };
    *held = -1;
    int fd;
    struct stat s;
    an_status st = AN_OK;
    TRY(open_plain(path, 0, &fd, &s, d));
    if (s.st_size == 0) {
        out->at = calloc(1, 1);
        if (!out->at) st = diag_nomem(d);
    } else {
        void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) st = file_fail("map", path, d);
        else *out = (file_bytes){ .at = p, .n = (size_t)s.st_size, .mapped = true };
    }
    if (st) close(fd);
    else *held = fd;
    return st;
}

an_status file_map(const char *path, file_bytes *out, diag *d)
{
    int fd;
    TRY(file_map_held(path, out, &fd, d));
    file_let_go(fd);
    return AN_OK;
}

bool file_holds(int fd, size_t n, size_t *now)
{
    struct stat s;
    *now = !fstat(fd, &s) && s.st_size > 0 ? (size_t)s.st_size : 0;
    return *now >= n;
}

void file_let_go(int fd)
{
    if (fd >= 0) close(fd);
}

void file_drop(file_bytes *f)
{
    if (f->mapped) munmap(f->at, f->n);
    else free(f->at);
    *f = (file_bytes){ 0 };
}

void file_forget(const void *p, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ROUND_UP((uintptr_t)p, page),
              to = ((uintptr_t)p + n) / page * page;
    if (to > from) (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

bool path_look(const char *path, path_info *out)
{
    struct stat s;
    *out = (path_info){ 0 };
    if (stat(path, &s)) {
        /* no file has a name that is too long: lists of names are looked at, too */
        if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG) return false;
        out->unseen = errno;
        return true;
    }
    out->folder = S_ISDIR(s.st_mode);
    out->plain = S_ISREG(s.st_mode);
    out->device = (uint64_t)s.st_dev;
    out->inode = (uint64_t)s.st_ino;
    out->bytes = s.st_size > 0 ? (uint64_t)s.st_size : 0;
    return true;
}

an_status path_find(const char *path, bool *there, path_info *out, diag *d)
{
    *there = path_look(path, out);
    if (!*there || !out->unseen) return AN_OK;
    errno = out->unseen;
    return file_fail("look at", path, d);
}

an_status path_plain(const char *path, diag *d)
{
    struct stat s;
    return !stat(path, &s) && !S_ISREG(s.st_mode) ? not_plain(path, s.st_mode, d) : AN_OK;
}

static bool is_same(const path_info *a, const path_info *b) { return a->device == b->device && a->inode == b->inode; }

bool path_folder(const char *path, char *to, size_t room)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash && slash > path ? (size_t)(slash - path) : 1;
    if (n >= room) return false;
    memcpy(to, slash ? path : ".", n);
    to[n] = 0;
    return true;
}

/* The same without the slashes it ends with; yours, NULL: no memory. */
static char *folder_above(const char *path)
{
    const size_t room = strlen(path) + 2;
    char *to = malloc(room);
    if (!to || !path_folder(path, to, room)) return free(to), NULL;
    for (size_t n = strlen(to); n > 1 && to[n - 1] == '/'; n--) to[n - 1] = 0;
    return to;
}

/* What is not there yet: the same name in the same folder, which need not be there either. */
bool path_same(const char *a, const char *b)
{
    path_info x, y;
    const bool a_is = path_look(a, &x) && !x.unseen, b_is = path_look(b, &y) && !y.unseen;
    if (a_is && b_is) return is_same(&x, &y) && (x.plain || x.folder);
    const char *in_a = strrchr(a, '/'), *in_b = strrchr(b, '/');
    if (a_is || b_is || strcmp(in_a ? in_a + 1 : a, in_b ? in_b + 1 : b)) return false;
    if (!strcmp(a, b)) return true;
    char *above_a = folder_above(a), *above_b = folder_above(b);
    const bool same = above_a && above_b && path_same(above_a, above_b);
    free(above_a), free(above_b);
    return same;
}

static an_status write_all(int fd, const char *path, const unsigned char *p, size_t n, diag *d)
{
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return file_fail("write", path, d);
        p += put;
        n -= (size_t)put;
    }
    return AN_OK;
}

/* ---- files that are being written: PATH.tmp.PID, locked by who writes it ---- */

static const char TMP[] = ".tmp.";

/* False: another process holds it. A file system without locks grants everything. */
static bool take_lock(int fd)
{
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    return !fcntl(fd, F_SETLK, &all) || (errno != EACCES && errno != EAGAIN);
}

bool file_is_at(int fd, const char *path)
{
    struct stat a, b;
    return !fstat(fd, &a) && !stat(path, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* What a dead process of the same number left may be on its way out in other hands: then the name is free in a
 * moment. */
static int open_tmp(const char *tmp)
{
    for (int i = 0; i < 1000; i++) {
        int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (fd < 0 || (take_lock(fd) && file_is_at(fd, tmp))) return fd;
        close(fd);
    }
    return errno = EBUSY, -1;
}

/* The process that began such a file; 0: another name. */
static long writer_of(const char *name, const char *base, size_t n_base)
{
    if (strncmp(name, base, n_base) || strncmp(name + n_base, TMP, sizeof TMP - 1)) return 0;
    const char *digits = name + n_base + sizeof TMP - 1;
    char *end = NULL;
    errno = 0;
    long pid = *digits >= '1' && *digits <= '9' ? strtol(digits, &end, 10) : 0;
    return pid > 0 && !*end && !errno && (long)(pid_t)pid == pid ? pid : 0;
}

/* Of a process that lives in another container only the lock can be seen, so both must be gone. Held while it is
 * removed. */
bool file_remove_left(int dir, const char *name, long pid)
{
    if (!kill((pid_t)pid, 0) || errno != ESRCH) return false;
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return false;
    bool gone = take_lock(fd) && !unlinkat(dir, name, 0);
    close(fd);
    return gone;
}

/* What processes that died while they wrote this file left beside it. */
static void clear_up(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = slash ? (size_t)MAX(slash - path, 1) : 1;
    char *folder = malloc(n + 1);
    if (!folder) return;
    memcpy(folder, slash ? path : ".", n);
    folder[n] = 0;
    DIR *dir = opendir(folder);
    free(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        long pid = writer_of(e->d_name, base, strlen(base));
        if (pid && pid != (long)getpid()) (void)file_remove_left(dirfd(dir), e->d_name, pid);
    }
    if (dir) closedir(dir);
}

an_status file_begin(const char *path, file_out *o, diag *d)
{
    size_t len = strlen(path);
    path_info i;
    *o = (file_out){ .fd = -1 };
    bool there;
    TRY(path_find(path, &there, &i, d)); /* what cannot be seen might be anything: it is not written over */
    /* said by rename only when all is written */
    if (there && i.folder) return diag_fail(d, AN_INPUT, NOWHERE, "%s is a folder; a file is wanted", path);
    *o = (file_out){ .path = malloc(len + 1), .tmp = malloc(len + 32), .fd = -1 };
    if (!o->path || !o->tmp) {
        file_abandon(o);
        return diag_nomem(d);
    }
    memcpy(o->path, path, len + 1);
    o->tmp[0] = 0; /* nothing that would be ours to remove */
    /* a terminal, a pipe, /dev/null: written to. Renaming a file over one would take it away from everybody */
    bool stream = there && !i.plain;
    if (!stream) clear_up(path), snprintf(o->tmp, len + 32, "%s%s%ld", path, TMP, (long)getpid());
    o->fd = stream ? open(path, O_WRONLY | O_CLOEXEC) : open_tmp(o->tmp);
    if (o->fd >= 0) return AN_OK;
    an_status st = file_fail(stream ? "open" : "create", path, d);
    o->tmp[0] = 0;
    file_abandon(o);
    return st;
}

an_status file_put(file_out *o, uint64_t at, const void *p, size_t n, diag *d)
{
    const unsigned char *from = p;
    while (n) {
        ssize_t put = pwrite(o->fd, from, n, (off_t)at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return file_fail("write", o->path, d);
        from += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    return AN_OK;
}

an_status file_finish(file_out *o, diag *d)
{
    an_status st = AN_OK;
    if (o->tmp[0] && fsync(o->fd)) st = file_fail("sync", o->path, d); /* a stream has nothing to sync */
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) && !st) st = file_fail("close", o->path, d);
    if (!st && o->tmp[0] && rename(o->tmp, o->path)) st = file_fail("rename to", o->path, d);
    if (!st) o->tmp[0] = 0; /* nothing left to remove */
    file_abandon(o);
    return st;
}

void file_abandon(file_out *o)
{
    if (o->tmp && o->fd >= 0) close(o->fd);
    /* twice: it would stay until somebody writes that file again */
    if (o->path && o->tmp && o->tmp[0] && unlink(o->tmp)) unlink(o->tmp);
    free(o->path);
    free(o->tmp);
    *o = (file_out){ .fd = -1 };
}

an_status file_write(const char *path, const void *p, size_t n, diag *d)
{
    if (!strcmp(path, "-")) return write_all(STDOUT_FILENO, "standard output", p, n, d);
    file_out o;
    TRY(file_begin(path, &o, d));
    /* a pipe has no places to write at */
    an_status st = o.tmp[0] ? file_put(&o, 0, p, n, d) : write_all(o.fd, path, p, n, d);
    if (!st) return file_finish(&o, d);
    file_abandon(&o);
    return st;
}

/* The folder itself, then those it stands in, as far as nothing else is in them. */
void dir_unmake(const char *path, size_t was)
{
    char *p = strdup(path);
    bool gone = p != NULL;
    for (size_t n = strlen(path); gone && n > was; n--) {
        if (p[n] != '/' && p[n]) continue;
        p[n] = 0;
        gone = !rmdir(p) || errno == ENOENT; /* "a//b" names a twice */
    }
    free(p);
}

an_status dir_make_new(const char *path, size_t *was, diag *d)
{
    size_t len = strlen(path), there = 0, made = 0;
    char *p = strdup(path);
    if (!p) return diag_nomem(d);
    an_status st = AN_OK;
    *was = len;
    /* what is put behind it would lie in the root */
    if (!len) errno = ENOENT, st = file_fail("make folder", "\"\"", d);
    for (size_t i = 1; i <= len && !st; i++) {
        if (p[i] != '/' && p[i]) continue;
        char keep = p[i];
        p[i] = 0;
        if (!mkdir(p, 0777)) *was = MIN(*was, there), made = i;
        else if (errno != EEXIST) st = file_fail("make folder", p, d);
        else there = i;
        p[i] = keep;
    }
    path_info at;
    /* a file has its name */
    if (!st && there == len && path_look(path, &at) && !at.folder)
        errno = at.unseen ? at.unseen : ENOTDIR, st = file_fail("make folder", path, d);
    p[made] = 0;
    if (st) dir_unmake(p, *was);
    free(p);
    return st;
}

an_status dir_make(const char *path, diag *d)
{
    size_t was;
    return dir_make_new(path, &was, d);
}
