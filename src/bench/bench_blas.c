/* bench_blas.c: sgemm of OpenBLAS and BLIS, loaded while running, to print beside ours. Nothing of ours depends on them.
 * In: AN_BLAS, and where the system looks for shared libraries.  Out: the C interface's sgemm, on as many threads as ours. */
#include <dlfcn.h>
#include <stdlib.h>

#include "bench/bench_int.h"

static const struct {
    const char *name, *files[3], *set_threads;
} libs[BLAS_MOST] = {
    { "openblas", { "libopenblas.so.0", "libopenblas.so", "libopenblas.dylib" }, "openblas_set_num_threads" },
    { "blis", { "libblis.so.4", "libblis.so.3", "libblis.so" }, "bli_thread_set_num_threads" },
};

static void *open_in(const char *dirs, const char *file)
{
    void *h = NULL;
    for (const char *p = dirs; p && *p && !h;) {
        size_t n = strcspn(p, ":");
        char path[1024];
        snprintf(path, sizeof path, "%.*s/%s", (int)MIN(n, 900), p, file);
        h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        p += n + (p[n] == ':');
    }
    return h;
}

/* A data pointer becomes a function pointer by its bytes: ISO C knows no conversion. */
static void find(void *library, const char *name, void *to)
{
    void *f = dlsym(library, name);
    memcpy(to, &f, sizeof f);
}

blas_sgemm *bench_blas(size_t i, int threads, const char **name)
{
    *name = i < COUNT(libs) ? libs[i].name : NULL;
    void *h = NULL;
    for (size_t k = 0; *name && k < COUNT(libs[i].files) && !h; k++) {
        h = open_in(getenv("AN_BLAS"), libs[i].files[k]);
        if (!h) h = dlopen(libs[i].files[k], RTLD_NOW | RTLD_LOCAL);
    }
    if (!h) return NULL;
    blas_sgemm *f;
    void (*set)(int), (*set_long)(long);
    find(h, "cblas_sgemm", &f);
    find(h, libs[i].set_threads, &set);
    find(h, libs[i].set_threads, &set_long);
    if (set && i == 0) set(threads);
    if (set_long && i == 1) set_long(threads); /* BLIS counts in its own integers, of pointer size */
    return f; /* the library stays loaded: its threads may still be about */
}
