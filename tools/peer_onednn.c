/* peer_onednn.c: bf16 products at the shapes of a training step, ours and oneDNN's in turns, each as a share of our
 * kernel in the first cache. In: nothing but this CPU, two threads of it.  Out: a line a shape. Both must give the
 * same sums.
 *
 *   cc -O2 -std=c11 -D_GNU_SOURCE -Isrc -Iinclude -o peer tools/peer_onednn.c build/libanneal.a -ldnnl -ljansson -lpcre2-8 -lz -lpthread -ldl -lm
 *   OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive ./peer
 *
 * Wx: a weight each has packed ahead as it likes. dW: both operands as they lie, k along both. Elements are whole
 * numbers, so sums are exact. */
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/rng.h"
#include "kernel/kernel.h"

enum { RUNS = 40, WARM = 3, IN_A_ROW = 3, THREADS = 2 };

static const struct {
    bool ahead;
    int64_t m, n, k;
} cases[] = {
    { true, 768, 256, 768 },   { true, 2048, 256, 768 },  { true, 768, 256, 2048 },  { true, 32000, 256, 768 },
    { true, 768, 1024, 768 },  { true, 2048, 1024, 768 }, { true, 768, 1024, 2048 }, { true, 32000, 1024, 768 },
    { false, 768, 768, 256 },  { false, 2048, 768, 256 }, { false, 768, 2048, 256 },
    { false, 768, 768, 1024 }, { false, 2048, 768, 1024 }, { false, 768, 2048, 1024 },
};

static void must(int bad, const char *what)
{
    if (!bad) return;
    fprintf(stderr, "peer_onednn: %s: %d\n", what, bad);
    exit(1);
}
#define MUST(call) must((int)(call), #call)

static void *room(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 8191) / 4096 * 4096);
    must(!p, "out of memory");
    return p;
}

static uint16_t *whole_numbers(rng *r, int64_t n)
{
    static const uint16_t bf16[] = { 0x0000, 0x3f80, 0xbf80, 0x4000 }; /* 0, 1, -1, 2 */
    uint16_t *x = room((size_t)n * 2);
    for (int64_t i = 0; i < n; i++) x[i] = bf16[rng_below(r, 4)];
    return x;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x)
{
    qsort(x, RUNS, sizeof *x, by_size);
    return x[RUNS / 2];
}

/* ---- theirs: y = s·w, the right operand being the one that may be packed ---- */

typedef struct {
    dnnl_stream_t stream;
    dnnl_primitive_t run;
    dnnl_exec_arg_t args[3];
    const char *name;
} theirs;

static dnnl_memory_t memory_of(dnnl_engine_t e, const dnnl_memory_desc_t *d, void *at)
{
    dnnl_memory_t m;
    MUST(dnnl_memory_create(&m, d, e, at ? at : DNNL_MEMORY_ALLOCATE));
    return m;
}

/* y [rows, cols] of s [rows, k] and w, which lies as [cols, k]. */
static theirs theirs_make(dnnl_engine_t e, int64_t rows, int64_t cols, int64_t k, void *s, void *w, bool ahead,
                          float *y)
{
    theirs t;
    dnnl_memory_desc_t ds, dw, dy, as_it_lies;
    dnnl_matmul_desc_t what;
    dnnl_primitive_desc_t how;
    MUST(dnnl_stream_create(&t.stream, e, dnnl_stream_default_flags));
    MUST(dnnl_memory_desc_init_by_tag(&ds, 2, (dnnl_dims_t){ rows, k }, dnnl_bf16, dnnl_ab));
    MUST(dnnl_memory_desc_init_by_tag(&as_it_lies, 2, (dnnl_dims_t){ k, cols }, dnnl_bf16, dnnl_ba));
    MUST(dnnl_memory_desc_init_by_tag(&dw, 2, (dnnl_dims_t){ k, cols }, dnnl_bf16,
                                      ahead ? dnnl_format_tag_any : dnnl_ba));
    MUST(dnnl_memory_desc_init_by_tag(&dy, 2, (dnnl_dims_t){ rows, cols }, dnnl_f32, dnnl_ab));
    MUST(dnnl_matmul_desc_init(&what, &ds, &dw, NULL, &dy));
    MUST(dnnl_primitive_desc_create(&how, &what, NULL, e, NULL));
    MUST(dnnl_primitive_desc_query(how, dnnl_query_impl_info_str, 0, &t.name));
    MUST(dnnl_primitive_create(&t.run, how));
    dnnl_memory_t weight = memory_of(e, &as_it_lies, w);
    if (ahead) {
        const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(how, dnnl_query_weights_md, 0);
        dnnl_memory_t packed = memory_of(e, wanted, NULL);
        dnnl_primitive_desc_t order;
        dnnl_primitive_t reorder;
        MUST(dnnl_reorder_primitive_desc_create(&order, &as_it_lies, e, wanted, e, NULL));
        MUST(dnnl_primitive_create(&reorder, order));
        MUST(dnnl_primitive_execute(reorder, t.stream, 2,
                                    (dnnl_exec_arg_t[]){ { DNNL_ARG_FROM, weight }, { DNNL_ARG_TO, packed } }));
        MUST(dnnl_stream_wait(t.stream));
        weight = packed;
    }
    t.args[0] = (dnnl_exec_arg_t){ DNNL_ARG_SRC, memory_of(e, &ds, s) };
    t.args[1] = (dnnl_exec_arg_t){ DNNL_ARG_WEIGHTS, weight };
    t.args[2] = (dnnl_exec_arg_t){ DNNL_ARG_DST, memory_of(e, &dy, y) };
    return t;
}

static void theirs_run(const theirs *t)
{
    MUST(dnnl_primitive_execute(t->run, t->stream, 3, t->args));
    MUST(dnnl_stream_wait(t->stream));
}

/* ---- a shape ---- */

static void compare(dnnl_engine_t e, const gemm_kernel *g, pool *p, peak_meter *l1, bool ahead, int64_t m, int64_t n,
                    int64_t k)
{
    rng r = { 1 };
    diag d = { 0 };
    size_t a_bytes, bytes;
    must(!gemm_pack_a_bytes(g, m, k, &a_bytes) || !gemm_scratch_bytes(g, m, n, k, THREADS, &bytes), "a shape");
    /* b: n rows of k */
    uint16_t *a = whole_numbers(&r, m * k), *b = whole_numbers(&r, n * k), *bt = room((size_t)(n * k) * 2);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) bt[j * n + i] = b[i * k + j];
    float *c = room((size_t)(m * n) * 4), *y = room((size_t)(m * n) * 4);
    void *packed = room(a_bytes), *scratch = room(bytes);
    gemm_call call = { .kernel = g, .pool = p, .m = m, .n = n, .k = k, .a_view = { a, DT_BF16, k, 1 }, .c = c,
                       .c_type = DT_F32, .ldc = n, .scratch = scratch, .scratch_bytes = bytes };
    call.b = ahead ? (gemm_view){ bt, DT_BF16, n, 1 } : (gemm_view){ b, DT_BF16, 1, k };
    if (ahead) {
        MUST(gemm_pack_a(g, p, m, k, call.a_view, packed, &d));
        call.a = packed;
    }
    /* The weight is our left operand and their right one: their result is ours turned. */
    theirs t = ahead ? theirs_make(e, n, m, k, b, a, true, y) : theirs_make(e, m, n, k, a, b, false, y);
    double us[2][RUNS], rate[RUNS];
    for (int i = -WARM; i < RUNS; i++) {
        for (int q = 0; q < IN_A_ROW; q++) {
            uint64_t from = clock_ns();
            theirs_run(&t);
            if (i >= 0) us[0][i] = (double)(clock_ns() - from) / 1e3;
        }
        for (int q = 0; q < IN_A_ROW; q++) {
            uint64_t from = clock_ns();
            MUST(gemm_run(&call, &d));
            if (i >= 0) us[1][i] = (double)(clock_ns() - from) / 1e3;
        }
        if (i >= 0) rate[i] = peak_rate(l1);
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) must(c[i * n + j] != (ahead ? y[j * m + i] : y[i * n + j]), "sums differ");
    const double work = 2e-3 * (double)m * (double)n * (double)k, near = median(rate), other = work / median(us[0]),
                 own = work / median(us[1]);
    printf(
        "%s %5lldx%4lldx%4lld  L1 %5.0f  ours %5.0f GFLOP/s %3.0f %%  oneDNN %5.0f GFLOP/s %3.0f %% (%s)  ours is %.2f times as fast\n",
        ahead ? "Wx" : "dW", (long long)m, (long long)n, (long long)k, near, own, 100 * own / near, other,
        100 * other / near, t.name, own / other);
    free(a), free(b), free(bt), free(c), free(y), free(packed), free(scratch);
}

int main(void)
{
    diag d = { 0 };
    pool *p;
    uint32_t isa;
    dnnl_engine_t e;
    MUST(pool_make(&p, THREADS, &d));
    MUST(isa_have(&isa, &d));
    MUST(dnnl_engine_create(&e, dnnl_cpu, 0));
    const gemm_kernel *g = gemm_pick(GEMM_BF16, isa);
    peak_meter *l1 = peak_gemm(g, p, THREADS);
    must(!l1, "out of memory");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(e, g, p, l1, cases[i].ahead, cases[i].m, cases[i].n, cases[i].k);
    peak_free(l1);
    pool_free(p);
    return 0;
}
