/* lines.c: a file to which lines are added; lines.h says how. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/lines.h"

struct lines {
    int fd;
    bool made, empty;
};

/* Bytes of a regular file; -1: it is none, and nothing in it can be taken back. */
static off_t size_of(int fd)
{
    struct stat s;
    return !fstat(fd, &s) && S_ISREG(s.st_mode) ? s.st_size : -1;
}

/* Opened once more: the file itself may only be added to. What cannot be read counts as whole. */
static bool ends_whole(const char *path, off_t size)
{
    char last = '\n';
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return true;
    if (pread(fd, &last, 1, size - 1) != 1) last = '\n';
    close(fd);
    return last == '\n';
}

lines *lines_open(const char *path, bool fresh)
{
    enum { ADD = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC };
    lines *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->fd = open(path, ADD | O_EXCL, 0666);
    l->made = l->fd >= 0;
    if (l->fd < 0 && errno == EEXIST) l->fd = open(path, ADD | (fresh ? O_TRUNC : 0), 0666);
    if (l->fd < 0) return free(l), NULL;
    off_t size = size_of(l->fd);
    l->empty = size <= 0;
    if (size > 0 && !ends_whole(path, size) && !lines_add(l, "")) { /* the first line will say why */ }
    return l;
}

bool lines_made(const lines *l) { return l->made; }
bool lines_empty(const lines *l) { return l->empty; }

/* Of n bytes; how many got there. */
static size_t put(int fd, const char *line, size_t n)
{
    char end[] = "\n";
    size_t done = 0;
    while (done < n) {
        struct iovec part[2] = { { (char *)line + MIN(done, n - 1), n - 1 - MIN(done, n - 1) }, { end, 1 } };
        ssize_t k = writev(fd, part, 2);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        done += (size_t)k;
    }
    return done;
}

bool lines_add(lines *l, const char *line)
{
    const size_t n = strlen(line) + 1;
    const off_t before = size_of(l->fd);
    size_t done = put(l->fd, line, n);
    if (done == n) return true;
    const int why = errno;
    if (done && before >= 0 && size_of(l->fd) == before + (off_t)done &&
        ftruncate(l->fd, before)) { /* half a line, then, as before a crash */
    }
    errno = why;
    return false;
}

bool lines_close(lines *l)
{
    bool ok = !l || !close(l->fd);
    free(l);
    return ok;
}
