/* folder.c: folders of plain files; folder.h says what for. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/str.h"

static const char NEW[] = ".tmp-new-", WHOLE[] = ".tmp-whole-", OLD[] = ".tmp-old-", LOCK[] = ".new", GONE[] = ".gone-";

an_status folder_sync(const char *path, diag *d)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0) return file_fail("open", path, d);
    int bad = fsync(fd) ? errno : 0;
    close(fd);
    errno = bad;
    /* some file systems cannot sync a folder; what they can is done */
    return bad && bad != EINVAL && bad != ENOTSUP ? file_fail("sync", path, d) : AN_OK;
}

/* A link is not what it points to, which is somebody else's: for readers alone they are the same. */
static bool is_link(const char *path)
{
    struct stat s;
    return !lstat(path, &s) && S_ISLNK(s.st_mode);
}

static bool is_removed(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const bool none = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (fd < 0) return is_link(path) ? !unlink(path) : none;
    DIR *dir = fdopendir(fd);
    if (!dir) return close(fd), false;
    for (struct dirent *e; (e = readdir(dir));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(fd, e->d_name, 0);
    closedir(dir);
    return !rmdir(path);
}

/* What is left of it stays until somebody comes this way again, so one failure is not taken for an answer. */
void folder_remove(const char *path)
{
    if (!is_removed(path)) (void)is_removed(path);
}

/* ---- one file on its way ---- */

typedef struct {
    const char *name; /* its own */
    const char *from; /* where it is made; NULL: it is to go, and `mark` says so */
    const char *mark;
    const char *to, *aside;
    bool was;         /* there is an old one */
    bool had, in;     /* it is aside; the new one is in its place */
} item;
typedef VEC(item) items;

static bool fill_item(const folder_out *o, arena *mem, const char *from, const char *entry, item *it)
{
    const bool gone = !strncmp(entry, GONE, sizeof GONE - 1);
    *it = (item){ .name = arena_str(mem, gone ? entry + sizeof GONE - 1 : entry) };
    char *at = arena_printf(mem, "%s/%s", from, entry);
    if (!it->name || !at) return false;
    if (gone) it->mark = at;
    else it->from = at;
    it->to = arena_printf(mem, "%s/%s", o->dir, it->name), it->aside = arena_printf(mem, "%s/%s", o->old, it->name);
    return it->to && it->aside;
}

/* `last` is the last of them. What would replace a folder is refused before anything is moved. */
static an_status list(const folder_out *o, const char *from, arena *mem, items *v, diag *d)
{
    DIR *at = opendir(from);
    an_status st = AN_OK;
    if (!at) return file_fail("list", from, d);
    for (struct dirent *e; !st && (errno = 0, e = readdir(at));) {
        item it;
        path_info i;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        st = fill_item(o, mem, from, e->d_name, &it) ? path_find(it.to, &it.was, &i, d) : diag_nomem(d);
        if (!st && it.was && i.folder) st = diag_fail(d, AN_INPUT, NOWHERE, "%s is a folder; a file is wanted", it.to);
        if (!st && !VEC_PUSH(mem, v, it)) st = diag_nomem(d);
    }
    if (!st && errno) st = file_fail("list", from, d);
    closedir(at);
    for (size_t i = 0; i + 1 < v->n; i++)
        if (!strcmp(v->at[i].name, o->last)) {
            item it = v->at[i];
            v->at[i] = v->at[v->n - 1], v->at[v->n - 1] = it;
        }
    return st;
}

static an_status move_away(item *it, diag *d)
{
    it->had = it->was && !rename(it->to, it->aside);
    return it->had || !it->was || errno == ENOENT ? AN_OK : file_fail("move away", it->to, d);
}

static an_status move_in(item *it, diag *d)
{
    if (it->mark) return unlink(it->mark) ? file_fail("remove", it->mark, d) : AN_OK;
    it->in = !rename(it->from, it->to);
    return it->in ? AN_OK : file_fail("rename to", it->to, d);
}

/* As it was; false: not all of it. */
static bool undo(items *v)
{
    bool ok = true;
    item *last = &v->at[v->n - 1];
    if (last->in) ok &= !rename(last->to, last->from);
    for (size_t i = 0; ok && i + 1 < v->n; i++) {
        item *it = &v->at[i];
        if (it->in) ok &= !rename(it->to, it->from);
        if (it->had) ok &= !rename(it->aside, it->to);
    }
    if (ok && last->had) ok &= !rename(last->aside, last->to);
    return ok;
}

static an_status swap(folder_out *o, const char *from, diag *d)
{
    arena mem = { 0 };
    items v = { 0 };
    an_status st = list(o, from, &mem, &v, d);
    if (!st && v.n) {
        item *last = &v.at[v.n - 1];
        bool any = false;
        for (size_t i = 0; i < v.n; i++) any |= v.at[i].was;
        if (any) st = dir_make(o->old, d);
        if (!st) st = move_away(last, d);
        if (!st) st = folder_sync(o->dir, d);
        for (size_t i = 0; !st && i + 1 < v.n; i++)
            if (!(st = move_away(&v.at[i], d))) st = move_in(&v.at[i], d);
        if (!st) st = folder_sync(o->dir, d);
        if (!st) st = move_in(last, d);
        if (!st) st = folder_sync(o->dir, d);
        if (st) o->stuck = !undo(&v);
        if (!o->stuck) folder_remove(o->old);
    }
    arena_free(&mem);
    return st;
}

/* ---- what dead processes left ---- */

static long process_of(const char *name, const char *prefix, size_t n)
{
    return strncmp(name, prefix, n) || name[n] < '1' || name[n] > '9' ? 0 : strtol(name + n, NULL, 10);
}

/* Who holds the lock lives, in whatever container; the number alone may be another process's by now. */
static bool is_held(const char *lock, long pid)
{
    int fd = open(lock, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return errno != ENOENT;
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    const bool told = !fcntl(fd, F_GETLK, &all);
    close(fd);
    return told ? all.l_type != F_UNLCK : !kill((pid_t)pid, 0); /* a file system without locks */
}

static bool lives(const folder_out *o, long pid)
{
    strbuf b = { 0 };
    /* closing the lock would drop it; and what is of this number was before it */
    if (pid == (long)getpid()) return false;
    sb_printf(&b, "%s/%s.tmp.%ld", o->dir, LOCK, pid);
    const bool is = b.oom || is_held(b.at, pid);
    if (!is) unlink(b.at);
    sb_free(&b);
    return is;
}

static an_status settle_one(folder_out *o, const char *name, diag *d)
{
    const long made = process_of(name, NEW, sizeof NEW - 1), whole = process_of(name, WHOLE, sizeof WHOLE - 1),
               old = process_of(name, OLD, sizeof OLD - 1);
    const long pid = made ? made : whole ? whole : old;
    if (!pid) return AN_OK;
    if (lives(o, pid))
        return diag_fail(d, AN_USAGE, NOWHERE,
                         "%s: process %ld is writing into it; wait for its end, or name another folder", o->dir, pid);
    const char *left = arena_printf(&o->mem, "%s/%s", o->dir, name);
    if (!left) return diag_nomem(d);
    if (whole && !is_link(left)) TRY(swap(o, left, d)); /* files are moved out of it: not out of another folder */
    folder_remove(left);
    return AN_OK;
}

static an_status settle(folder_out *o, diag *d)
{
    VEC(const char *) v = { 0 }; /* first all names: the folder changes on the way */
    DIR *at = opendir(o->dir);
    an_status st = AN_OK;
    if (!at) return file_fail("list", o->dir, d);
    for (struct dirent *e; !st && (errno = 0, e = readdir(at));) {
        const char *name = strncmp(e->d_name, ".tmp-", 5) ? NULL : arena_str(&o->mem, e->d_name);
        if (!strncmp(e->d_name, ".tmp-", 5) && (!name || !VEC_PUSH(&o->mem, &v, name))) st = diag_nomem(d);
    }
    if (!st && errno) st = file_fail("list", o->dir, d);
    closedir(at);
    for (size_t i = 0; !st && i < v.n; i++) st = settle_one(o, v.at[i], d);
    return st;
}

/* ---- beginning and end ---- */

an_status folder_begin(const char *dir, const char *last, folder_out *o, diag *d)
{
    const long pid = (long)getpid();
    *o = (folder_out){ .dir = dir, .last = last, .lock.fd = -1, .was = strlen(dir) };
    const char *lock = arena_printf(&o->mem, "%s/%s", dir, LOCK),
               *temp = arena_printf(&o->mem, "%s/%s%ld", dir, NEW, pid);
    o->whole = arena_printf(&o->mem, "%s/%s%ld", dir, WHOLE, pid),
    o->old = arena_printf(&o->mem, "%s/%s%ld", dir, OLD, pid);
    an_status st = lock && temp && o->whole && o->old ? dir_make_new(dir, &o->was, d) : diag_nomem(d);
    if (!st) st = file_begin(lock, &o->lock, d);
    if (!st) st = settle(o, d);
    if (!st) st = dir_make(temp, d);
    if (!st) o->temp = temp;
    else folder_abandon(o);
    return st;
}

an_status folder_drop(folder_out *o, const char *name, diag *d)
{
    strbuf b = { 0 };
    sb_printf(&b, "%s/%s%s", o->temp, GONE, name);
    an_status st = b.oom ? diag_nomem(d) : file_write(b.at, "", 0, d);
    sb_free(&b);
    return st;
}

an_status folder_finish(folder_out *o, diag *d)
{
    const char *temp = o->temp;
    an_status st = folder_sync(temp, d);
    if (!st && rename(temp, o->whole)) st = file_fail("rename to", o->whole, d);
    else if (!st) {
        st = swap(o, o->whole, d);
        /* no longer whole: half of it would be put in its place */
        if (!o->stuck && st && rename(o->whole, temp)) o->stuck = true;
        if (!o->stuck && !st) folder_remove(o->whole);
    }
    folder_abandon(o);
    return st;
}

void folder_abandon(folder_out *o)
{
    if (!o->dir) return;
    if (o->temp && !o->stuck) folder_remove(o->temp);
    file_abandon(&o->lock);
    dir_unmake(o->dir, o->was);
    arena_free(&o->mem);
    *o = (folder_out){ .lock.fd = -1 };
}
