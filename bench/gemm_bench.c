/* gemm_bench.c: matrix products of a training step, one JSON line each, as fractions of the packed kernel's rate in L1
 * measured beside them. In: AN_ISA, AN_THREADS; arguments filter by type, form or kernel name.  Out: stdout.
 * OpenBLAS and BLIS sgemm run on the same shapes when they can be loaded (AN_BLAS=path:path adds places to look).
 * Timings interleave peak, ours and theirs, so that a busy machine slows all of them alike. AN_BENCH_CPU=1 counts processor
 * time divided by the threads instead of wall time: for comparing two builds while others use the machine, not for claims. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/rng.h"
#include "kernel/kernel.h"

static int cpu_share; /* 0: wall time */

static double now_us(void)
{
    struct timespec t;
    if (!cpu_share) return (double)clock_ns() / 1e3;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return ((double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3) / cpu_share;
}

typedef void cblas_sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                            int ldb, float beta, float *c, int ldc);
typedef struct {
    const char *name;
    cblas_sgemm_fn *sgemm;
} blas_lib;

enum { ROW_MAJOR = 101, PLAIN = 111, TRANS = 112 };

static blas_lib blas_open(const char *name, const char *const *files)
{
    blas_lib b = { name, NULL };
    const char *dirs = getenv("AN_BLAS");
    for (; *files && !b.sgemm; files++) {
        void *h = NULL;
        for (const char *p = dirs; p && *p && !h;) {
            size_t n = strcspn(p, ":");
            char path[1024];
            snprintf(path, sizeof path, "%.*s/%s", (int)n, p, *files);
            h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
            p += n + (p[n] == ':');
        }
        if (!h) h = dlopen(*files, RTLD_NOW | RTLD_LOCAL);
        if (h) {
            void *f = dlsym(h, "cblas_sgemm");
            memcpy(&b.sgemm, &f, sizeof f);
        }
    }
    return b;
}

/* y = W x, dX = Wᵀ dy, dW = dy xᵀ. A in memory is m x k for y and dW, k x m for dX; B is k x n, or n x k for dW. */
typedef struct {
    const char *form;
    int m, n, k;
    bool a_trans, b_trans, a_packed_ahead;
} shape_row;

static const shape_row shapes[] = {
    { "y", 768, 256, 768, false, false, true },    { "y", 2048, 256, 768, false, false, true },
    { "y", 768, 256, 2048, false, false, true },   { "y", 32000, 256, 768, false, false, true },
    { "y", 768, 1024, 768, false, false, true },   { "y", 2048, 1024, 768, false, false, true },
    { "y", 768, 1024, 2048, false, false, true },  { "y", 32000, 1024, 768, false, false, true },
    { "dX", 768, 256, 768, true, false, true },    { "dX", 768, 256, 2048, true, false, true },
    { "dX", 2048, 256, 768, true, false, true },   { "dX", 768, 256, 32000, true, false, true },
    { "dX", 768, 1024, 2048, true, false, true },  { "dW", 768, 768, 256, false, true, false },
    { "dW", 2048, 768, 256, false, true, false },  { "dW", 768, 2048, 256, false, true, false },
    { "dW", 32000, 768, 256, false, true, false }, { "dW", 2048, 768, 1024, false, true, false },
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *need(size_t n)
{
    void *p = aligned_alloc(64, ROUND_UP(n, 64));
    if (!p) {
        fprintf(stderr, "gemm_bench: no memory\n");
        exit(70);
    }
    return p;
}

static void check(an_status st, const diag *d)
{
    if (!st) return;
    fprintf(stderr, "gemm_bench: %s\n", d->msg);
    exit(status_exit_code(st));
}

typedef struct {
    const shape_row *s;
    const gemm_kernel *g;
    pool *p;
    gemm_view a, b;
    void *packed, *scratch;
    size_t scratch_bytes;
    float *c;
    dtype c_type;
} job;

static void ours(const job *j)
{
    diag d = { 0 };
    bool fresh = !j->s->a_packed_ahead && j->s->k <= 512 && gemm_math_of(j->g) != GEMM_I8;
    if (!j->s->a_packed_ahead && !fresh) check(gemm_pack_a(j->g, j->p, j->s->m, j->s->k, j->a, j->packed, &d), &d);
    check(gemm_run(&(gemm_call){ .kernel = j->g, .pool = j->p, .m = j->s->m, .n = j->s->n, .k = j->s->k,
                                 .a = fresh ? NULL : j->packed, .a_view = j->a, .b = j->b,
                                 .c = j->c, .c_type = DT_F32, .ldc = j->s->n, .scratch = j->scratch,
                                 .scratch_bytes = j->scratch_bytes },
                   &d),
          &d);
}

static void fill(void *p, dtype t, size_t n, rng *r)
{
    static double noise[4093]; /* drawing billions of normals would take longer than the bench */
    if (noise[0] == 0)
        for (size_t i = 0; i < COUNT(noise); i++) noise[i] = rng_normal(r);
    for (size_t i = 0; i < n; i++) {
        double x = noise[(i * 7 + (size_t)t) % COUNT(noise)];
        if (t == DT_F32) ((float *)p)[i] = (float)x;
        else if (t == DT_I8) ((int8_t *)p)[i] = (int8_t)(x * 30);
        else {
            uint16_t h = t == DT_F16 ? f16_from_f64(x) : bf16_from_f64(x);
            ((uint16_t *)p)[i] = h;
        }
    }
}

/* A few elements against double: a bench of a wrong answer is worthless. */
static double worst_error(const job *j)
{
    double worst = 0;
    for (int t = 0; t < 50; t++) {
        int64_t i = (t * 7919) % j->s->m, n = (t * 104729) % j->s->n;
        double sum = 0, mag = 0;
        for (int64_t k = 0; k < j->s->k; k++) {
            double x = dtype_load(j->a.type, j->a.at, i * j->a.row + k * j->a.col) * dtype_load(j->b.type, j->b.at, k * j->b.row + n * j->b.col);
            sum += x;
            mag += fabs(x);
        }
        worst = fmax(worst, fabs((double)j->c[i * j->s->n + n] - sum) / mag);
    }
    return worst;
}

enum { MOST = 400 };

static void print_row(const char *lib, const char *type, const char *kernel, const shape_row *s, int threads, double *us, int n, double peak)
{
    qsort(us, (size_t)n, sizeof *us, by_value);
    double flop = 2.0 * s->m * s->n * s->k, rate = flop / us[n / 2] / 1e3, top = flop / us[0] / 1e3;
    printf("{\"bench\":\"gemm\",\"lib\":\"%s\",\"type\":\"%s\",\"kernel\":\"%s\",\"m\":%d,\"n\":%d,\"k\":%d,\"form\":\"%s\",\"threads\":%d,"
           "\"min_us\":%.1f,\"med_us\":%.1f,\"gflops\":%.1f,\"gflops_best\":%.1f,\"peak_gflops\":%.1f,\"of_peak\":%.3f,\"of_peak_best\":%.3f}\n",
           lib, type, kernel, s->m, s->n, s->k, s->form, threads, us[0], us[n / 2], rate, top, peak, rate / peak, top / peak);
    fflush(stdout);
}

static bool wanted(int argc, char **argv, const char *type, const char *form, const char *kernel)
{
    bool any = argc < 2;
    for (int i = 1; i < argc; i++) any = any || !strcmp(argv[i], type) || !strcmp(argv[i], form) || !strcmp(argv[i], kernel);
    return any;
}

int main(int argc, char **argv)
{
    static const char *const open_files[] = { "libopenblas.so.0", "libopenblas.so", NULL };
    static const char *const blis_files[] = { "libblis.so.4", "libblis.so.3", "libblis.so", NULL };
    blas_lib libs[] = { blas_open("openblas", open_files), blas_open("blis", blis_files) };
    diag d = { 0 };
    uint32_t isa;
    pool *p;
    rng r = { 1 };
    check(isa_have(&isa, &d), &d);
    check(pool_make(&p, 0, &d), &d);
    int threads = pool_threads(p);
    if (getenv("AN_BENCH_CPU")) cpu_share = threads;
    double budget_ms = getenv("AN_BENCH_MS") ? atof(getenv("AN_BENCH_MS")) : 400;
    if (argc < 2 || !strcmp(argv[1], "memory"))
        printf("{\"bench\":\"memory\",\"read_gbs_1\":%.1f,\"read_gbs\":%.1f,\"copy_gbs_1\":%.1f,\"copy_gbs\":%.1f,\"threads\":%d}\n",
               peak_read_gbs(p, 1), peak_read_gbs(p, threads), peak_copy_gbs(p, 1), peak_copy_gbs(p, threads), threads);
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        if ((gemm_need(g) & ~isa) || (argc > 1 && strcmp(argv[1], "peak") && strcmp(argv[1], gemm_name(g)))) continue;
        printf("{\"bench\":\"peak\",\"kernel\":\"%s\",\"gflops_1\":%.1f,\"gflops\":%.1f,\"threads\":%d}\n", gemm_name(g),
               peak_gemm_gflops(g, p, 1), peak_gemm_gflops(g, p, threads), threads);
        fflush(stdout);
    }
    for (size_t i = 0; gemm_row(i); i++) {
        const gemm_kernel *g = gemm_row(i);
        gemm_math math = gemm_math_of(g);
        if (gemm_need(g) & ~isa) continue;
        for (size_t si = 0; si < COUNT(shapes); si++) {
            const shape_row *s = &shapes[si];
            bool best = g == gemm_pick(math, isa);
            if (argc > 1 ? !wanted(argc, argv, best ? gemm_math_name(math) : "", best ? s->form : "", gemm_name(g)) : !best) continue;
            static const dtype wt[] = { DT_F32, DT_F16, DT_BF16, DT_I8 };
            dtype at = wt[math], bt = math == GEMM_F32 || math == GEMM_I8 ? DT_F32 : at;
            size_t na, nb = (size_t)s->k * (size_t)s->n;
            if (!gemm_pack_a_bytes(g, s->m, s->k, &na)) continue;
            job j = { .s = s, .g = g, .p = p, .c_type = DT_F32 };
            void *a = need((size_t)s->m * (size_t)s->k * 4), *b = need(nb * 4);
            fill(a, at, (size_t)s->m * (size_t)s->k, &r);
            fill(b, bt, nb, &r);
            j.c = need((size_t)s->m * (size_t)s->n * 4);
            j.a = s->a_trans ? (gemm_view){ a, at, 1, s->m } : (gemm_view){ a, at, s->k, 1 };
            j.b = s->b_trans ? (gemm_view){ b, bt, 1, s->k } : (gemm_view){ b, bt, s->n, 1 };
            if (!gemm_scratch_bytes(g, s->m, s->n, s->k, threads, &j.scratch_bytes)) continue;
            j.packed = need(na);
            j.scratch = need(j.scratch_bytes);
            uint64_t t = clock_ns();
            check(gemm_pack_a(g, p, s->m, s->k, j.a, j.packed, &d), &d);
            ours(&j);
            double err = worst_error(&j), us[3][MOST], peak = 0;
            if (!(err < (math == GEMM_I8 ? 2e-2 : 1e-5))) fprintf(stderr, "gemm_bench: %s %s: error %g of the sum of magnitudes\n", gemm_name(g), s->form, err);
            int n = 0;
            bool with_blas = math == GEMM_F32;
            for (t = clock_ns(); n < MOST && (n < 5 || (double)(clock_ns() - t) < budget_ms * 1e6); n++) {
                if (n % 40 == 0) peak = MAX(peak, peak_gemm_gflops(g, p, threads));
                pool_enter(p);
                double t0 = now_us();
                ours(&j);
                us[0][n] = now_us() - t0;
                pool_leave(p);
                for (size_t l = 0; l < COUNT(libs) && with_blas; l++) {
                    if (!libs[l].sgemm) continue;
                    t0 = now_us();
                    libs[l].sgemm(ROW_MAJOR, s->a_trans ? TRANS : PLAIN, s->b_trans ? TRANS : PLAIN, s->m, s->n, s->k, 1, a,
                                  s->a_trans ? s->m : s->k, b, s->b_trans ? s->k : s->n, 0, j.c, s->n);
                    us[l + 1][n] = now_us() - t0;
                }
            }
            print_row("anneal", gemm_math_name(math), gemm_name(g), s, threads, us[0], n, peak);
            for (size_t l = 0; l < COUNT(libs) && with_blas; l++)
                if (libs[l].sgemm) print_row(libs[l].name, "f32", "sgemm", s, threads, us[l + 1], n, peak);
            if (s->a_packed_ahead && !s->a_trans) {
                double pack[64];
                int np = 0;
                for (; np < 15; np++) {
                    double t0 = now_us();
                    check(gemm_pack_a(g, p, s->m, s->k, j.a, j.packed, &d), &d);
                    pack[np] = now_us() - t0;
                }
                qsort(pack, (size_t)np, sizeof *pack, by_value);
                double bytes = (double)na + (double)s->m * s->k * (at == DT_F32 ? 4 : at == DT_I8 ? 1 : 2);
                printf("{\"bench\":\"pack_a\",\"kernel\":\"%s\",\"m\":%d,\"k\":%d,\"med_us\":%.1f,\"gbs\":%.1f}\n", gemm_name(g), s->m, s->k,
                       pack[np / 2], bytes / pack[np / 2] / 1e3);
            }
            free(a);
            free(b);
            free(j.c);
            free(j.packed);
            free(j.scratch);
        }
    }
    pool_free(p);
    return 0;
}
