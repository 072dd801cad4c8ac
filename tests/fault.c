/* fault.c: a library to be loaded before the C library's, in which one call fails or ends the process. Of glibc;
 * fault.sh uses it.
 *
 *   FAULT_MEM=N    the N-th allocation (malloc, calloc, realloc, mmap, a thread) is refused
 *   FAULT_FILE=N   the N-th call about files fails, with the disk full
 *   FAULT_LINE=N   the N-th line added to a log fails, with the disk full
 *   FAULT_KILL=N   the process ends there, as by SIGKILL
 *   FAULT_TERM=1   it gets SIGTERM when it is about to execute itself, the first time
 *   FAULT_TRACE=F  lines in F, in their order: fsync PATH, rename FROM TO, mkdir PATH, unlink PATH
 *   FAULT_COUNT=F  at the end a line in F: allocations, calls about files, blocks and descriptors that are left */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static atomic_long mems, files, lines, blocks;
static long bad_mem, bad_file, bad_line, last;
static int ready;

static long number(const char *name)
{
    const char *s = getenv(name);
    return s ? atol(s) : 0;
}

static void report(void)
{
    const char *to = getenv("FAULT_COUNT");
    int open_now = 0;
    ready = 0;
    for (int i = 3; i < 64; i++) open_now += fcntl(i, F_GETFD) >= 0;
    long m = mems, f = files, b = blocks;
    FILE *out = to ? fopen(to, "w") : NULL;
    if (out) fprintf(out, "%ld %ld %ld %d\n", m, f, b, open_now), fclose(out);
}

__attribute__((constructor)) static void begin(void)
{
    bad_mem = number("FAULT_MEM"), bad_file = number("FAULT_FILE"), bad_line = number("FAULT_LINE"), last = number("FAULT_KILL");
    atexit(report);
    ready = 1;
}

static int no_memory(void)
{
    if (!ready || ++mems != bad_mem) return 0;
    errno = ENOMEM;
    return 1;
}

static int no_file(void)
{
    if (!ready) return 0;
    long n = ++files;
    if (n == last) _exit(137);
    if (n != bad_file) return 0;
    errno = ENOSPC;
    return 1;
}

/* That a call was tried. */
static void trace(const char *what, const char *a, const char *b)
{
    static FILE *to;
    int was = ready;
    ready = 0;
    if (!to && getenv("FAULT_TRACE")) to = fopen(getenv("FAULT_TRACE"), "a");
    if (to) fprintf(to, "%s %s%s%s\n", what, a, b ? " " : "", b ? b : ""), fflush(to);
    ready = was;
}

static void *held(void *p)
{
    blocks += p != NULL;
    return p;
}

void *malloc(size_t n) { return no_memory() ? NULL : held(__libc_malloc(n)); }
void *calloc(size_t n, size_t m) { return no_memory() ? NULL : held(__libc_calloc(n, m)); }
void *aligned_alloc(size_t a, size_t n) { return no_memory() ? NULL : held(__libc_memalign(a, n)); }

void *realloc(void *p, size_t n)
{
    if (no_memory()) return NULL;
    void *q = __libc_realloc(p, n);
    blocks += (q && !p) - (p && !q && !n);
    return q;
}

int posix_memalign(void **out, size_t a, size_t n)
{
    void *p = aligned_alloc(a, n);
    if (p) *out = p;
    return p ? 0 : ENOMEM;
}

void free(void *p)
{
    int e = errno;
    blocks -= p != NULL;
    __libc_free(p);
    errno = e;
}

/* The function of that name behind this one. */
#define BEHIND(type, name, args, call)                                     \
    static type (*behind) args;                                            \
    if (!behind) {                                                         \
        int was = ready;                                                   \
        ready = 0;                                                         \
        *(void **)&behind = dlsym(RTLD_NEXT, #name);                       \
        ready = was;                                                       \
    }                                                                      \
    return behind call
#define FILE_CALL(type, fails, name, args, call) TRACED(type, fails, name, args, call, (void)0)
#define TRACED(type, fails, name, args, call, told) \
    type name args                                  \
    {                                               \
        if (no_file()) return fails;                \
        told;                                       \
        BEHIND(type, name, args, call);             \
    }

FILE_CALL(DIR *, NULL, opendir, (const char *p), (p))
FILE_CALL(struct dirent *, NULL, readdir, (DIR *p), (p))
FILE_CALL(ssize_t, -1, read, (int fd, void *p, size_t n), (fd, p, n))
FILE_CALL(ssize_t, -1, write, (int fd, const void *p, size_t n), (fd, p, n))
FILE_CALL(ssize_t, -1, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
/* name: of a file in the folder fd; NULL: fd itself */
static void trace_fd(const char *what, int fd, const char *name)
{
    char link[40], path[4096 + 256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 4096);
    n = n > 0 ? n : 0;
    snprintf(path + n, sizeof path - (size_t)n, "%s%s", name ? "/" : "", name ? name : "");
    trace(what, path, NULL);
}

TRACED(int, -1, fsync, (int fd), (fd), trace_fd("fsync", fd, NULL))
TRACED(int, -1, rename, (const char *a, const char *b), (a, b), trace("rename", a, b))
TRACED(int, -1, mkdir, (const char *p, mode_t m), (p, m), trace("mkdir", p, NULL))
FILE_CALL(int, -1, rmdir, (const char *p), (p))
TRACED(int, -1, unlink, (const char *p), (p), trace("unlink", p, NULL))
TRACED(int, -1, unlinkat, (int d, const char *p, int f), (d, p, f), trace_fd("unlink", d, p))
FILE_CALL(FILE *, NULL, fopen, (const char *p, const char *m), (p, m))

ssize_t writev(int fd, const struct iovec *part, int n)
{
    if (ready && ++lines == bad_line) return errno = ENOSPC, -1;
    BEHIND(ssize_t, writev, (int, const struct iovec *, int), (fd, part, n));
}

int open(const char *p, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = va_arg(ap, int);
    va_end(ap);
    if (no_file()) return -1;
    BEHIND(int, open, (const char *, int, ...), (p, flags, mode));
}

int close(int fd) /* it closes in any case, as the system's does */
{
    static int (*behind)(int);
    if (!behind) *(void **)&behind = dlsym(RTLD_NEXT, "close");
    int bad = no_file(), r = behind(fd);
    if (bad) errno = ENOSPC;
    return bad ? -1 : r;
}

void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t at)
{
    if (no_memory()) return MAP_FAILED;
    BEHIND(void *, mmap, (void *, size_t, int, int, int, off_t), (p, n, prot, flags, fd, at));
}

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *u)
{
    if (no_memory()) return EAGAIN;
    BEHIND(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *), (t, a, f, u));
}

int execv(const char *p, char *const *argv)
{
    if (getenv("FAULT_TERM")) unsetenv("FAULT_TERM"), kill(getpid(), SIGTERM);
    BEHIND(int, execv, (const char *, char *const *), (p, argv));
}
