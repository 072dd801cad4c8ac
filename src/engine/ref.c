/* ref.c: the slow and obvious meaning of the instructions: the table, what they share, and those that work element
 * by element. In: a run_ctx and a checked instruction.  Out: its result tensors.
 *
 * An instruction reads whole operands into doubles (each through num_in), computes, and stores (through num_round).
 * Doubles only carry values: every rounding is a num_ call. The other instructions are in ref_mac.c, ref_reduce.c,
 * ref_move.c, ref_image.c. */
#include <math.h>

#include "base/rng.h"
#include "engine/engine_int.h"
#include "engine/ref_int.h"

static insn_fn *const entries[IN_COUNT] = {
#define INSN(id, name, fields, ref, exec, what) [IN_##id] = ref_##ref,
#include "engine/isa.def"
#undef INSN
};

insn_fn *ref_entry_of(insn_id op) { return entries[op]; }

/* ---- elements ---- */

double *ref_take(const run_ctx *c, int64_t n, diag *d)
{
    double *p = (uint64_t)n > SIZE_MAX / sizeof(double) ? NULL : TAKE(c->tmp, double, (size_t)n);
    if (!p) diag_nomem(d);
    return p;
}

double *ref_load_raw(const run_ctx *c, int64_t tensor, diag *d)
{
    const etensor *t = ctx_tensor(c, tensor);
    int64_t n = et_elems(t);
    double *x = ref_take(c, n, d);
    for (int64_t i = 0; x && i < n; i++) x[i] = dtype_load(t->dt, ctx_mem(c, tensor), i);
    return x;
}

double *ref_load(const run_ctx *c, int64_t tensor, diag *d)
{
    const etensor *t = ctx_tensor(c, tensor);
    double *x = ref_load_raw(c, tensor, d);
    for (int64_t i = 0, n = et_elems(t); x && i < n; i++) x[i] = num_in(c->num, t->dt, x[i]);
    return x;
}

void ref_store(const run_ctx *c, int64_t tensor, int64_t i, double x)
{
    dtype t = ctx_tensor(c, tensor)->dt;
    dtype_store(t, ctx_mem(c, tensor), i, num_round(c->num, t, x));
}

bool next_index(const int64_t *d, int rank, int64_t *idx)
{
    for (int a = rank - 1; a >= 0; a--) {
        if (++idx[a] < d[a]) return true;
        idx[a] = 0;
    }
    return false;
}

an_status ref_index(const run_ctx *c, const insn *in, double v, int64_t extent, int64_t *out, diag *d)
{
    (void)c;
    if (!(v >= -(double)extent && v < (double)extent))
        return diag_fail(d, AN_INPUT, (loc){ .line = in->line }, "%s: index %g is outside an extent of %lld",
                         insn_name(in->op), v, (long long)extent);
    int64_t i = (int64_t)v;
    *out = i < 0 ? i + extent : i; /* negative ones count from the end */
    return AN_OK;
}

/* ---- chains with their operands ---- */

an_status chain_open(const run_ctx *c, const insn *in, const char *list, bool port, chain_in *ci, diag *d)
{
    int64_t n;
    const int64_t *t = insn_ts(in, list, &n);
    const etensor *y = ctx_tensor(c, insn_t(in, "y"));
    *ci = (chain_in){ .num = c->num, .port = port, .n = n, .rank = y->rank, .ch = insn_chain(in, n + port) };
    ci->x = TAKE(c->tmp, double *, (size_t)n);
    ci->stride = arena_take(c->tmp, (size_t)n, sizeof *ci->stride, alignof(int64_t));
    ci->value = ref_take(c, ci->ch.n_inputs + ci->ch.n_steps, d);
    if (!ci->x || !ci->stride || !ci->value) return diag_nomem(d);
    for (int64_t k = 0; k < n; k++) {
        if (!(ci->x[k] = ref_load(c, t[k], d))) return d->st;
        et_broadcast_strides(ctx_tensor(c, t[k]), y->rank, ci->stride[k]);
    }
    return AN_OK;
}

an_status chain_at(const chain_in *ci, const int64_t *idx, double acc, double *result, diag *d)
{
    ci->value[0] = acc; /* without a port it is overwritten */
    for (int64_t k = 0; k < ci->n; k++) {
        int64_t at = 0;
        for (int a = 0; a < ci->rank; a++) at += idx[a] * ci->stride[k][a];
        ci->value[k + ci->port] = ci->x[k][at];
    }
    return chain_run(ci->num, &ci->ch, ci->port, ci->value, result, d);
}

an_status ref_ew(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y[CHAIN_MOST_RESULTS], step[CHAIN_MOST_RESULTS], idx[ENGINE_MAX_RANK] = { 0 };
    int results = insn_results(in, y, step);
    const etensor *t = ctx_tensor(c, y[0]);
    chain_in ci;
    TRY(chain_open(c, in, "in", false, &ci, d));
    for (int64_t i = 0, n = et_elems(t); i < n; i++, next_index(t->dim, t->rank, idx)) {
        double v;
        TRY(chain_at(&ci, idx, 0, &v, d));
        ref_store(c, y[0], i, v);
        for (int k = 1; k < results; k++) ref_store(c, y[k], i, ci.value[ci.ch.n_inputs + step[k]]);
    }
    return AN_OK;
}

an_status ref_ews(const run_ctx *c, const insn *in, diag *d) { return ref_ew(c, in, d); }

/* ---- types and sources ---- */

an_status ref_fill(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y");
    (void)d;
    for (int64_t i = 0, n = et_elems(ctx_tensor(c, y)); i < n; i++) ref_store(c, y, i, insn_f(in, "value"));
    return AN_OK;
}

an_status ref_random(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y"), seed = insn_i(in, "seed");
    rng r = { .s = seed == -1 ? 0 : (uint64_t)seed }; /* -1 leaves the choice to us; runs repeat */
    double lo = insn_f(in, "low"), hi = insn_f(in, "high");
    (void)d;
    for (int64_t i = 0, n = et_elems(ctx_tensor(c, y)); i < n; i++) ref_store(c, y, i, rng_range(&r, lo, hi));
    return AN_OK;
}

an_status ref_cast(const run_ctx *c, const insn *in, diag *d)
{
    int64_t y = insn_t(in, "y");
    double *x = ref_load(c, insn_t(in, "x"), d);
    if (!x) return d->st;
    for (int64_t i = 0, n = et_elems(ctx_tensor(c, y)); i < n; i++) ref_store(c, y, i, x[i]);
    return AN_OK;
}

double ref_affine(bool to_int, double x, double scale, double zero) /* half to even */
{
    return to_int ? nearbyint((double)(float)(x / scale)) + zero : (double)(float)(scale * (x - zero));
}

static an_status affine(const run_ctx *c, const insn *in, bool to_int, diag *d)
{
    int64_t y = insn_t(in, "y"), zero_t = insn_t(in, "zero"), axis = insn_i(in, "axis"), i = 0;
    const etensor *t = ctx_tensor(c, insn_t(in, "x"));
    double *x = ref_load(c, insn_t(in, "x"), d), *scale = ref_load(c, insn_t(in, "scale"), d),
           *zero = zero_t < 0 ? NULL : ref_load(c, zero_t, d);
    if (!x || !scale || (zero_t >= 0 && !zero)) return d->st;
    bool many_scales = et_elems(ctx_tensor(c, insn_t(in, "scale"))) > 1,
         many_zeros = zero && et_elems(ctx_tensor(c, zero_t)) > 1;
    axis_view v = axis < 0 ? (axis_view){ 1, 1, et_elems(t) } : et_axis(t, axis);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t k = 0; k < v.n; k++)
            for (int64_t j = 0; j < v.inner; j++, i++)
                ref_store(c, y, i,
                          ref_affine(to_int, x[i], scale[many_scales ? k : 0], zero ? zero[many_zeros ? k : 0] : 0));
    return AN_OK;
}

an_status ref_quant(const run_ctx *c, const insn *in, diag *d) { return affine(c, in, true, d); }
an_status ref_dequant(const run_ctx *c, const insn *in, diag *d) { return affine(c, in, false, d); }
