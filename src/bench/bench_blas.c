/* bench_blas.c: sgemm of OpenBLAS and BLIS, loaded while running, to print beside ours. Nothing of ours depends on
 * them. In: AN_BLAS, and where the system looks for shared libraries.  Out: the C interface's sgemm, on as many
 * threads as ours. */
#include <dlfcn.h>
#include <stdlib.h>

#include "bench/bench_int.h"

static const struct {
    const char *name, *files[3], *set_threads;
} libs[BLAS_MOST] = {
    { "openblas", { "libopenblas.so.0", "libopenblas.so", "libopenblas.dylib" }, "openblas_set_num_threads" },
    { "blis", { "libblis.so.4", "libblis.so.3", "libblis.so" }, "bli_thread_set_num_threads" },
};

/* Told before they are loaded, unless the caller has said otherwise. Neither knows the newer ones of these machines
 * by name, and falls back to vectors of half or a quarter of the width; threads of either, BLIS's by way of OpenMP, go
 * on spinning after a call, for tens of milliseconds where a pause is long, which slows whoever is next. */
static const struct {
    const char *name, *value;
    bool wide; /* for a machine of 512 bits */
} hints[] = {
    { "OPENBLAS_THREAD_TIMEOUT", "4", false },
    { "OMP_WAIT_POLICY", "passive", false },
    { "OPENBLAS_CORETYPE", "SkylakeX", true },
    { "BLIS_ARCH_TYPE", "0", true }, /* skx */
};

#if defined(__x86_64__)
enum { WIDE = ISA_AVX512 };
#else
enum { WIDE = ISA_NONE };
#endif

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

static void *load(size_t i)
{
    void *h = NULL;
    for (size_t k = 0; k < COUNT(libs[i].files) && !h; k++) {
        h = open_in(getenv("AN_BLAS"), libs[i].files[k]);
        if (!h) h = dlopen(libs[i].files[k], RTLD_NOW | RTLD_LOCAL);
    }
    return h;
}

const char *bench_peer(size_t i, bool *found)
{
    if (i >= COUNT(libs)) return NULL;
    *found = load(i) != NULL; /* it stays loaded, as below */
    return libs[i].name;
}

blas_sgemm *bench_blas(size_t i, int threads, uint32_t isa, const char **name)
{
    for (size_t k = 0; k < COUNT(hints); k++)
        if (!hints[k].wide || (isa & WIDE)) (void)setenv(hints[k].name, hints[k].value, 0);
    *name = i < COUNT(libs) ? libs[i].name : NULL;
    void *h = *name ? load(i) : NULL;
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
