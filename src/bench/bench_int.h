/* bench_int.h: what the benchmarks share. Private to bench/. */
#ifndef BENCH_BENCH_INT_H
#define BENCH_BENCH_INT_H

#include "bench/bench.h"
#include "base/rng.h"
#include "codegen/codegen.h"
#include "kernel/kernel.h"

typedef struct {
    const char *format;
    int runs; /* 0: as many as it takes */
    strbuf *out;
    diag *d;
    pool *pool;
    uint32_t isa;
} bench;

double bench_peak_mb(void); /* most memory this process has had */
void bench_peak_anew(void);   /* from now on */

/* What a time is compared with: a rate, in units of a row, taken in turns with the runs. */
typedef struct {
    double (*rate)(void *user); /* of one short run; 0: it failed */
    void *user;
} ruler;
double bound_peak(void *peak); /* a rate function: peak_rate */

/* Times of a run in seconds, after one run to warm up; with a bound, its best rate, and what it would have done in
 * the time of a run: the median over the turns, so that whatever slows both alike does not count. longer: of several
 * in turns, how many times the time of the first one, the median as well. */
typedef struct {
    double least, median, limit, could, longer;
} timing;
typedef an_status bench_fn(void *user, diag *d);
an_status bench_time(bench *b, bench_fn *fn, void *user, timing *t) MUST_CHECK;
an_status bench_beside(bench *b, bench_fn *fn, void *user, ruler with, timing *t) MUST_CHECK;
/* Several in turns; t: one each. */
enum { RACE_MOST = 4 };
an_status bench_race(bench *b, int n, bench_fn *const *fn, void *const *user, const ruler *with, timing *t) MUST_CHECK;

/* One row: the kernel that did the work, work per run in units of `unit` times 1e9 per second, and the bound in the
 * same. Its share is that of the turns where t has it, else that of the least time. */
void bench_row(bench *b, const char *name, const char *what, const char *kernel, timing t, double work,
               const char *unit, double limit, const char *limit_is);

/* names of what this machine's products and vector loops are made of */
const char *bench_kernel(const bench *b, gemm_math m);
const char *bench_vectors(const bench *b);

/* bench_blas.c: other people's sgemm, where a library can be loaded (AN_BLAS=dir:dir adds places to look). NULL: it
 * cannot; name NULL: past the last. */
typedef void blas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                        const float *b, int ldb, float beta, float *c, int ldc);
enum { BLAS_ROW_MAJOR = 101, BLAS_PLAIN = 111, BLAS_TRANS = 112, BLAS_MOST = 2 };
blas_sgemm *bench_blas(size_t i, int threads, uint32_t isa, const char **name);

/* A graph compiled and loaded, its buffers filled with numbers from -scale to scale. */
typedef struct {
    graph *g;
    program *p;
    image *im, *ref;
    arena mem;
    const void **in;
    void **out;
    rng r;
} subject;
#define SUBJECT_SEED 20260101u
an_status subject_open(bench *b, subject *s, graph *g, const numerics *num, double scale, diag *d)
    MUST_CHECK; /* takes g */
void subject_close(subject *s);
an_status subject_run(void *subject, diag *d);
an_status subject_time(bench *b, subject *s, timing *t) MUST_CHECK;
an_status subject_beside(bench *b, subject *s, ruler with, timing *t) MUST_CHECK;
/* Against the reference: every output element within tol * max(1, |want|); tol 0: the same bits. Slow. */
an_status subject_check(subject *s, const char *what, double tol, diag *d) MUST_CHECK;

/* [rows, cols, 1, 1] of small numbers */
val bench_weight(graph *g, const char *name, int64_t rows, int64_t cols, dtype dt, uint64_t seed);

/* bench_compile.c: rows of compiling and loading kernels of a layer, and of reloading the weights of a program by
 * dev_program_reload; make: the same graph with weights of a seed. */
an_status bench_text_to_loaded(bench *b) MUST_CHECK;
an_status bench_device_reload(bench *b, graph *(*make)(uint64_t seed), const char *what, double elements) MUST_CHECK;

#define BENCH(name, what) an_status bench_##name(bench *b) MUST_CHECK;
#include "bench/bench.def"
#undef BENCH

#endif
