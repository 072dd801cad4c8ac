/* check_insn.c: operands and shapes of each instruction. What passes can be run by ref and exec without looking
 * again: every index they compute from shapes and fields stays inside its tensor, and no size overflows. In: an
 * instruction whose encoding was checked.  Out: AN_OK or what is wrong, with the values seen. */
#include <inttypes.h>
#include <math.h>

#include "base/plain.h"
#include "engine/engine_int.h"

typedef struct {
    const program *p;
    const insn *in;
    size_t index;
    diag *d;
} ck;
typedef an_status check_fn(const ck *c);

static an_status fail(const ck *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
static an_status fail(const ck *c, const char *fmt, ...)
{
    char msg[260];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return diag_fail(c->d, AN_INPUT, NOWHERE, "program: instruction %zu (%s): %s", c->index, insn_name(c->in->op), msg);
}

#define NEED(ok, ...)                                                                                                 \
    do {                                                                                                              \
        if (!(ok)) return fail(c, __VA_ARGS__);                                                                       \
    } while (0)

static const etensor *tensor(const ck *c, const char *name)
{
    int64_t t = insn_t(c->in, name);
    return t < 0 ? NULL : &c->p->tensors.at[t];
}

static bool same_shape(const etensor *a, const etensor *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank);
}

static type_text show(const etensor *t) { return type_show(t->dt, t->dim, t->rank); }

static an_status one_shape(const ck *c, const char *a, const char *b)
{
    const etensor *x = tensor(c, a), *y = tensor(c, b);
    NEED(same_shape(x, y), "%s is %s and %s is %s: wanted one shape", a, show(x).text, b, show(y).text);
    return AN_OK;
}

/* Sizes and steps that are multiplied with one another. */
enum { SMALL = 1 << 30 };
static bool small(int64_t v, int64_t least) { return v >= least && v <= SMALL; }

static an_status choice(const ck *c, const char *name, int64_t n)
{
    int64_t v = insn_i(c->in, name);
    NEED(v >= 0 && v < n, "%s is %" PRId64 ", wanted 0 .. %" PRId64, name, v, n - 1);
    return AN_OK;
}

static an_status axis_of(const ck *c, const etensor *t, int64_t *axis)
{
    *axis = insn_i(c->in, "axis");
    NEED(*axis >= 0 && *axis < t->rank, "axis %" PRId64 " is outside rank %d", *axis, t->rank);
    return AN_OK;
}

static an_status axes_of(const ck *c, const etensor *t, bool *on)
{
    int64_t n;
    const int64_t *axes = insn_is(c->in, "axes", &n);
    for (int i = 0; i < ENGINE_MAX_RANK; i++) on[i] = false;
    for (int64_t i = 0; i < n; i++) {
        NEED(axes[i] >= 0 && axes[i] < t->rank && !on[axes[i]], "axes names %" PRId64 ", outside rank %d or twice",
             axes[i], t->rank);
        on[axes[i]] = true;
    }
    return AN_OK;
}

/* Are there at most `most` places? A step of 0 goes nowhere, so that where a walk ends says nothing about how long
 * it is. */
static bool walks_at_most(const int64_t *size, int64_t n, int64_t most)
{
    int64_t places = 1;
    for (int64_t i = 0; i < n; i++)
        if (!mul_i64(places, size[i], &places) || places > most) return false;
    return true;
}

/* ---- chains ---- */

static an_status check_chain(const ck *c, int64_t n_inputs)
{
    int64_t n;
    const int64_t *s = insn_is(c->in, "steps", &n);
    NEED(n % CHAIN_STEP == 0, "steps has %" PRId64 " integers, wanted a multiple of %d", n, CHAIN_STEP);
    chain ch = insn_chain(c->in, n_inputs);
    for (int64_t k = 0; k < ch.n_steps; k++, s += CHAIN_STEP) {
        NEED(s[STEP_FN] >= 0 && s[STEP_FN] < FN_COUNT, "step %" PRId64 " is function %" PRId64 ", which does not exist",
             k, s[STEP_FN]);
        fn_id f = (fn_id)s[STEP_FN];
        for (int j = 0; j < 3; j++) {
            int64_t v = s[STEP_A + j];
            if (j < fn_operands(f))
                NEED(v >= 0 && v < n_inputs + k, "step %" PRId64 " (%s) reads value %" PRId64 " of %" PRId64, k,
                     fn_name(f), v, n_inputs + k);
            else NEED(v == -1, "step %" PRId64 " (%s) has an operand too many", k, fn_name(f));
        }
        int64_t at = s[STEP_PARAM], need = fn_params(f);
        NEED(at >= -1 && at <= ch.n_params && (!need || (at >= 0 && need <= ch.n_params - at)),
             "step %" PRId64 " (%s) has its parameters at %" PRId64 " of %" PRId64, k, fn_name(f), at, ch.n_params);
        int64_t t = s[STEP_TYPE];
        NEED(t > DT_NONE && t < DT_COUNT && t != DT_STRING, "step %" PRId64 " (%s) has element type %" PRId64, k,
             fn_name(f), t);
    }
    return AN_OK;
}

static an_status check_list(const ck *c, const char *name, const etensor *y)
{
    int64_t n;
    const int64_t *t = insn_ts(c->in, name, &n);
    for (int64_t i = 0; i < n; i++)
        NEED(et_broadcasts(&c->p->tensors.at[t[i]], y->dim, y->rank),
             "tensor %" PRId64 " is %s and does not broadcast to the result, %s", t[i],
             show(&c->p->tensors.at[t[i]]).text, show(y).text);
    return AN_OK;
}

static an_status check_epilogue(const ck *c, const etensor *y)
{
    int64_t n;
    insn_ts(c->in, "extra", &n);
    TRY(check_list(c, "extra", y));
    return check_chain(c, n + 1);
}

static an_status check_ew(const ck *c)
{
    int64_t n;
    insn_ts(c->in, "in", &n);
    NEED(n > 0, "it has no inputs");
    TRY(check_list(c, "in", tensor(c, "y")));
    return check_chain(c, n);
}

static an_status check_ews(const ck *c)
{
    static const char *const names[] = { "y", "y2", "y3", "y4" };
    int64_t more, n, given = 0;
    const int64_t *step = insn_is(c->in, "results", &more);
    insn_is(c->in, "steps", &n);
    for (int k = 1; k < CHAIN_MOST_RESULTS; k++) {
        const etensor *t = tensor(c, names[k]);
        if (!t) continue;
        NEED(++given == k, "%s is there without the one before it", names[k]);
        TRY(one_shape(c, "y", names[k]));
    }
    NEED(more == given, "results names %" PRId64 " steps for %" PRId64 " tensors", more, given);
    for (int64_t k = 0; k < more; k++) {
        NEED(step[k] >= 0 && step[k] < n / CHAIN_STEP - 1,
             "result %" PRId64 " is step %" PRId64 ", wanted one before the last of %" PRId64, k + 1, step[k],
             n / CHAIN_STEP);
        for (int64_t j = 0; j < k; j++) NEED(step[j] != step[k], "step %" PRId64 " gives two results", step[k]);
    }
    return check_ew(c);
}

/* ---- windows ---- */

/* Windows of k over `wide` give `narrow` places, one more when `ceil` is allowed. */
static an_status check_window(const ck *c, int axis, int64_t wide, int64_t narrow, int64_t k, int64_t stride,
                              int64_t before, int64_t after, int64_t dil, bool ceil)
{
    const struct {
        const char *what;
        int64_t value, least;
    } all[] = { { "the extent", wide, 1 },   { "the extent", narrow, 1 },  { "the kernel", k, 1 },
                { "the stride", stride, 1 }, { "the padding", before, 0 }, { "the padding", after, 0 },
                { "the dilation", dil, 1 } };
    for (size_t i = 0; i < COUNT(all); i++)
        NEED(small(all[i].value, all[i].least), "%s of spatial axis %d is %" PRId64 ", wanted %" PRId64 " .. %d",
             all[i].what, axis, all[i].value, all[i].least, SMALL);
    int64_t reach = (k - 1) * dil + 1, slack = wide + before + after - reach;
    int64_t places = slack < 0 ? 0 : slack / stride + 1;
    NEED(narrow == places || (ceil && narrow == places + 1),
         "spatial axis %d has %" PRId64 " places, windows of %" PRId64 " over %" PRId64 " give %" PRId64, axis, narrow,
         reach, wide, places);
    return AN_OK;
}

static an_status check_spatial(const ck *c, const etensor *wide, const etensor *narrow, const int64_t *k, bool dilated,
                               bool ceil)
{
    int n = wide->rank - 2;
    int64_t n_stride, n_pad, n_dil = n, one = 1;
    const int64_t *stride = insn_is(c->in, "stride", &n_stride), *pad = insn_is(c->in, "pad", &n_pad);
    const int64_t *dil = dilated ? insn_is(c->in, "dilation", &n_dil) : NULL;
    NEED(n_stride == n && n_pad == 2 * n && n_dil == n,
         "stride, pad and dilation have %" PRId64 ", %" PRId64 ", %" PRId64 " entries for %d spatial axes", n_stride,
         n_pad, n_dil, n);
    for (int i = 0; i < n; i++)
        TRY(check_window(c, i, wide->dim[i + 2], narrow->dim[i + 2], k[i], stride[i], pad[2 * i], pad[2 * i + 1],
                         dil ? dil[i] : one, ceil));
    return AN_OK;
}

static an_status check_convolution(const ck *c, bool transposed)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x"), *w = tensor(c, "w");
    int64_t groups = insn_i(c->in, "groups");
    NEED(x->rank >= 3 && x->rank <= 5 && y->rank == x->rank && w->rank == x->rank,
         "ranks are %d, %d, %d; wanted 3 to 5, all equal", y->rank, x->rank, w->rank);
    int64_t cin = x->dim[1], cout = y->dim[1];
    NEED(small(cin, 1) && small(cout, 1) && groups >= 1 && cin % groups == 0 && cout % groups == 0,
         "%" PRId64 " groups do not divide %" PRId64 " and %" PRId64 " channels", groups, cin, cout);
    bool ok =
        transposed ? w->dim[0] == cin && w->dim[1] == cout / groups : w->dim[0] == cout && w->dim[1] == cin / groups;
    NEED(ok && y->dim[0] == x->dim[0],
         "weights [%" PRId64 ",%" PRId64 ",..] do not take %" PRId64 " to %" PRId64 " channels, or the batch differs",
         w->dim[0], w->dim[1], cin, cout);
    TRY(transposed ? check_spatial(c, y, x, w->dim + 2, true, false) : check_spatial(c, x, y, w->dim + 2, true, false));
    return check_epilogue(c, y);
}

static an_status check_conv(const ck *c) { return check_convolution(c, false); }
static an_status check_conv_t(const ck *c) { return check_convolution(c, true); }

static an_status check_pool(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    int64_t n;
    const int64_t *k = insn_is(c->in, "kernel", &n);
    NEED(x->rank >= 3 && x->rank <= 5 && y->rank == x->rank && n == x->rank - 2,
         "ranks are %d and %d, the kernel has %" PRId64 " axes", y->rank, x->rank, n);
    NEED(y->dim[0] == x->dim[0] && y->dim[1] == x->dim[1], "x is %s and y is %s: wanted one batch and as many channels",
         show(x).text, show(y).text);
    TRY(choice(c, "kind", POOL_COUNT));
    TRY(choice(c, "exclude_pad", 2));
    TRY(check_spatial(c, x, y, k, false, true));
    /* an average divides by them */
    NEED(walks_at_most(k, n, INT64_MAX), "the kernel has more places than 63 bits count");
    return AN_OK;
}

/* ---- products ---- */

static an_status check_matmul(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x"), *z = tensor(c, "z");
    NEED(x->rank >= 2 && z->rank >= 2 && y->rank >= 2, "ranks are %d, %d, %d; wanted at least 2", y->rank, x->rank,
         z->rank);
    TRY(choice(c, "trans_x", 2));
    TRY(choice(c, "trans_z", 2));
    int64_t tx = insn_i(c->in, "trans_x"), tz = insn_i(c->in, "trans_z");
    int64_t m = x->dim[x->rank - 2 + tx], k = x->dim[x->rank - 1 - tx], k2 = z->dim[z->rank - 2 + tz],
            n = z->dim[z->rank - 1 - tz];
    NEED(k == k2 && y->dim[y->rank - 2] == m && y->dim[y->rank - 1] == n,
         "[%" PRId64 ",%" PRId64 "] times [%" PRId64 ",%" PRId64 "] is not [%" PRId64 ",%" PRId64 "]", m, k, k2, n, y->dim[y->rank - 2], y->dim[y->rank - 1]);
    etensor bx = *x, bz = *z;
    bx.rank -= 2, bz.rank -= 2;
    NEED(et_broadcasts(&bx, y->dim, y->rank - 2) && et_broadcasts(&bz, y->dim, y->rank - 2),
         "the leading axes of x, %s, or z, %s, do not broadcast to those of the result, %s", show(x).text, show(z).text,
         show(y).text);
    return check_epilogue(c, y);
}

static an_status check_matmul_squares(const ck *c)
{
    const etensor *y = tensor(c, "y"), *s = tensor(c, "squares");
    NEED(y->dt == DT_F32 && s->dt == DT_F32, "y and squares are %s and %s, wanted fp32", dtype_name(y->dt),
         dtype_name(s->dt));
    NEED(et_elems(s) == 1, "squares has %" PRId64 " elements, wanted one", et_elems(s));
    return check_matmul(c);
}

static an_status check_einsum(const ck *c)
{
    static const char *const tensors[] = { "y", "x", "z" }, *const labels[] = { "labels_y", "labels_x", "labels_z" };
    int64_t extent[64] = { 0 };
    for (int k = 2; k >= 0; k--) { /* the result last: its labels must be known */
        const etensor *t = tensor(c, tensors[k]);
        int64_t n;
        const int64_t *l = insn_is(c->in, labels[k], &n);
        NEED(n == t->rank, "%s has %" PRId64 " entries for rank %d", labels[k], n, t->rank);
        for (int i = 0; i < t->rank; i++) {
            NEED(l[i] >= 0 && l[i] < 64, "%s has %" PRId64 ", wanted 0 .. 63", labels[k], l[i]);
            int64_t have = extent[l[i]];
            if (k == 0) {
                NEED(have == t->dim[i], "axis %d of the result is %" PRId64 ", its label %" PRId64, i, t->dim[i], have);
                for (int j = 0; j < i; j++) NEED(l[j] != l[i], "the result repeats label %" PRId64, l[i]);
            } else {
                NEED(have <= 1 || t->dim[i] == 1 || have == t->dim[i],
                     "label %" PRId64 " is both %" PRId64 " and %" PRId64, l[i], have, t->dim[i]);
                extent[l[i]] = MAX(have, t->dim[i]);
            }
        }
    }
    return AN_OK;
}

static an_status check_heads(const ck *c, bool turned)
{
    const etensor *y = tensor(c, "y"), *q = tensor(c, "q"), *k = tensor(c, "k"), *v = tensor(c, "v");
    NEED(q->rank >= 2 && k->rank >= 2 && v->rank >= 2 && y->rank >= 2, "an operand has rank below 2");
    int64_t rows = q->dim[q->rank - 2 + turned], inner = q->dim[q->rank - 1 - turned], keys = k->dim[k->rank - 2],
            cols = v->dim[v->rank - 1];
    NEED(k->dim[k->rank - 1] == inner && v->dim[v->rank - 2] == keys && y->dim[y->rank - 2 + turned] == rows && y->dim[y->rank - 1 - turned] == cols,
         "q, k, v and y do not fit: %" PRId64 " x %" PRId64 ", %" PRId64 " keys, %" PRId64 " columns", rows, inner, keys, cols);
    const etensor *part[] = { q, k, v };
    for (int i = 0; i < 3; i++) {
        etensor b = *part[i];
        b.rank -= 2;
        NEED(et_broadcasts(&b, y->dim, y->rank - 2), "the leading axes of operand %d do not broadcast to the result's",
             i);
    }
    return AN_OK;
}

static an_status check_attend(const ck *c)
{
    const etensor *y = tensor(c, "y"), *k = tensor(c, "k"), *mask = tensor(c, "mask");
    TRY(check_heads(c, false));
    if (mask) {
        int64_t scores[ENGINE_MAX_RANK];
        memcpy(scores, y->dim, sizeof scores);
        scores[y->rank - 1] = k->dim[k->rank - 2];
        NEED(et_broadcasts(mask, scores, y->rank),
             "the mask is %s and does not broadcast to the scores: y is %s, there are %" PRId64 " keys",
             show(mask).text, show(y).text, scores[y->rank - 1]);
    }
    return choice(c, "causal", 2);
}

static an_status check_attend_at(const ck *c)
{
    const etensor *y = tensor(c, "y"), *pos = tensor(c, "pos");
    TRY(choice(c, "turned", 2));
    const bool turned = insn_i(c->in, "turned");
    TRY(check_heads(c, turned));
    int64_t rows = y->dim[y->rank - 2 + turned], window = insn_i(c->in, "window");
    NEED(et_elems(pos) == rows && dtype_is_int(pos->dt),
         "pos has %" PRId64 " elements of %s, wanted one integer for each of %" PRId64 " rows", et_elems(pos),
         dtype_name(pos->dt), rows);
    NEED(small(window, 0), "window is %" PRId64 ", wanted 0 .. %d", window, SMALL);
    return AN_OK;
}

/* Matrices named by their rows and columns, as many as p has. */
typedef struct {
    const char *name;
    int64_t rows, cols;
} stack_want;

static an_status check_stacks(const ck *c, const stack_want *want, int n)
{
    const etensor *p = tensor(c, "p");
    const int64_t rows = p->dim[p->rank - 2], keys = p->dim[p->rank - 1], period = insn_i(c->in, "period"),
                  stacks = dims_product(p->dim, 0, p->rank - 2), apart = insn_i(c->in, "apart");
    NEED(apart == 0 || (apart > 0 && stacks % apart == 0), "%" PRId64 " sequences apart of %" PRId64 " matrices", apart,
         stacks);
    for (int i = 0; i < n; i++) {
        const etensor *t = tensor(c, want[i].name);
        if (apart && t != p)
            NEED(t->rank == 4 && t->dim[0] == stacks / apart && t->dim[1] == want[i].rows && t->dim[2] == apart && t->dim[3] == want[i].cols,
                 "%s is not %" PRId64 " heads of %" PRId64 " x %" PRId64 " for %" PRId64 " sequences", want[i].name, stacks / apart, want[i].rows, want[i].cols, apart);
        else
            NEED(t->rank >= 2 && t->dim[t->rank - 2] == want[i].rows && t->dim[t->rank - 1] == want[i].cols && dims_product(t->dim, 0, t->rank - 2) == stacks,
                 "%s is not %" PRId64 " matrices of %" PRId64 " x %" PRId64, want[i].name, stacks, want[i].rows, want[i].cols);
        NEED(dtype_is_float(t->dt), "%s is not of a float type", want[i].name);
    }
    NEED(period == 0 || (period == keys && rows % period == 0),
         "a period of %" PRId64 " for %" PRId64 " rows and %" PRId64 " keys", period, rows, keys);
    return AN_OK;
}

static an_status check_attend_keep(const ck *c)
{
    const etensor *p = tensor(c, "p"), *q = tensor(c, "q"), *v = tensor(c, "v");
    const int64_t apart = insn_i(c->in, "apart"), least = apart ? 4 : 2;
    NEED(p->rank >= 2 && q->rank >= least && v->rank >= least, "an operand has rank below %" PRId64,
         p->rank < 2 ? 2 : least);
    const int64_t rows = p->dim[p->rank - 2], keys = p->dim[p->rank - 1], width = q->dim[apart ? 1 : q->rank - 2],
                  cols = v->dim[apart ? 1 : v->rank - 2];
    const stack_want want[] = {
        { "y", cols, rows }, { "p", rows, keys }, { "q", width, rows }, { "k", width, keys }, { "v", cols, keys }
    };
    return check_stacks(c, want, COUNT(want));
}

static an_status check_attend_back(const ck *c)
{
    const etensor *p = tensor(c, "p"), *q = tensor(c, "q"), *v = tensor(c, "v");
    const int64_t apart = insn_i(c->in, "apart"), least = apart ? 4 : 2;
    NEED(p->rank >= 2 && q->rank >= least && v->rank >= least, "an operand has rank below %" PRId64,
         p->rank < 2 ? 2 : least);
    const int64_t rows = p->dim[p->rank - 2], keys = p->dim[p->rank - 1], width = q->dim[apart ? 1 : q->rank - 2],
                  cols = v->dim[apart ? 1 : v->rank - 2];
    const stack_want want[] = { { "dq", width, rows }, { "dk", width, keys }, { "dv", cols, keys }, { "p", rows, keys },
                                { "q", width, rows },  { "k", width, keys },  { "v", cols, keys },  { "dy", cols, rows } };
    return check_stacks(c, want, COUNT(want));
}

/* ---- along axes ---- */

static an_status check_reduce(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    bool on[ENGINE_MAX_RANK];
    TRY(axes_of(c, x, on));
    TRY(choice(c, "kind", RED_COUNT));
    int64_t kept = 1;
    for (int i = 0; i < x->rank; i++) kept *= on[i] ? 1 : x->dim[i];
    NEED(et_elems(y) == kept, "the result has %" PRId64 " elements, the kept axes have %" PRId64, et_elems(y), kept);
    return AN_OK;
}

static an_status check_sums(const ck *c)
{
    static const char *const all[] = { "cols", "row_by", "rows", "col_by", "a", "b" };
    const etensor *a = tensor(c, "a"), *b = tensor(c, "b");
    NEED(a->rank == 2 && same_shape(a, b), "a is %s and b is %s: wanted one [rows, columns]", show(a).text,
         show(b).text);
    NEED(insn_t(c->in, "cols") >= 0 || insn_t(c->in, "rows") >= 0, "neither cols nor rows is wanted");
    for (int k = 0; k < (int)COUNT(all); k++) {
        if (insn_t(c->in, all[k]) < 0) continue;
        const etensor *t = tensor(c, all[k]);
        const int64_t want = k >= 4 ? et_elems(a) : a->dim[k == 0 || k == 3];
        NEED(dtype_is_float(t->dt) && dtype_bits(t->dt) >= 8, "%s is %s, wanted a float", all[k], dtype_name(t->dt));
        NEED(et_elems(t) == want, "%s has %" PRId64 " elements, wanted %" PRId64, all[k], et_elems(t), want);
    }
    return AN_OK;
}

static an_status check_arg(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    int64_t axis;
    TRY(axis_of(c, x, &axis));
    TRY(choice(c, "least", 2));
    NEED(et_elems(y) == et_elems(x) / x->dim[axis], "the result has %" PRId64 " elements, wanted %" PRId64, et_elems(y),
         et_elems(x) / x->dim[axis]);
    return AN_OK;
}

static an_status same_with_axis(const ck *c)
{
    const etensor *x = tensor(c, "x");
    int64_t axis;
    TRY(axis_of(c, x, &axis));
    return one_shape(c, "x", "y");
}

static an_status check_softmax(const ck *c) { return same_with_axis(c); }

static an_status check_cumsum(const ck *c)
{
    TRY(choice(c, "exclusive", 2));
    TRY(choice(c, "reverse", 2));
    return same_with_axis(c);
}

static an_status check_norm(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x"), *gain = tensor(c, "gain"), *bias = tensor(c, "bias");
    bool on[ENGINE_MAX_RANK];
    TRY(axes_of(c, x, on));
    TRY(choice(c, "kind", NORM_COUNT));
    TRY(one_shape(c, "x", "y"));
    NEED(!gain || et_broadcasts(gain, y->dim, y->rank), "gain is %s and does not broadcast to y, %s", show(gain).text,
         show(y).text);
    NEED(!bias || et_broadcasts(bias, y->dim, y->rank), "bias is %s and does not broadcast to y, %s", show(bias).text,
         show(y).text);
    return AN_OK;
}

static an_status check_lrn(const ck *c)
{
    const etensor *x = tensor(c, "x");
    NEED(x->rank >= 2, "x has rank %d, wanted 2 or more", x->rank);
    NEED(small(insn_i(c->in, "size"), 1), "size is %" PRId64 ", wanted 1 .. %d", insn_i(c->in, "size"), SMALL);
    return one_shape(c, "x", "y");
}

static an_status check_sort(const ck *c)
{
    const etensor *values = tensor(c, "values"), *indices = tensor(c, "indices"), *x = tensor(c, "x");
    int64_t axis, count = insn_i(c->in, "count");
    TRY(axis_of(c, x, &axis));
    TRY(choice(c, "ascending", 2));
    NEED(count >= 1 && count <= x->dim[axis], "count is %" PRId64 " of %" PRId64, count, x->dim[axis]);
    etensor want = *x;
    want.dim[axis] = count;
    NEED(!values || same_shape(values, &want), "values is %s, wanted %s", show(values).text, show(&want).text);
    NEED(!indices || same_shape(indices, &want), "indices is %s, wanted %s", show(indices).text, show(&want).text);
    return AN_OK;
}

/* ---- movement ---- */

/* Smallest and largest place of a strided walk; false when it cannot be told in 63 bits. */
static bool span(const int64_t *size, const int64_t *step, int64_t n, int64_t start, int64_t *lo, int64_t *hi)
{
    const int64_t far = INT64_MAX / 4;
    if (start < -far || start > far) return false;
    *lo = *hi = start;
    for (int64_t i = 0; i < n; i++) {
        int64_t reach, a = step[i] < 0 ? -(step[i] + 1) : step[i]; /* |step| less one when negative: no overflow */
        if (step[i] < 0 && a == INT64_MAX) return false;
        a += step[i] < 0;
        if (!mul_i64(size[i] - 1, a, &reach) || reach > far) return false;
        if (step[i] < 0) *lo -= reach;
        else *hi += reach;
        if (*lo < -far || *hi > far) return false;
    }
    return true;
}

static an_status check_move(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    int64_t n, ny, nx, lo, hi;
    const int64_t *size = insn_is(c->in, "size", &n), *ys = insn_is(c->in, "y_step", &ny),
                  *xs = insn_is(c->in, "x_step", &nx);
    NEED(n <= MOVE_MAX_RANK && ny == n && nx == n,
         "size, y_step and x_step have %" PRId64 ", %" PRId64 ", %" PRId64 " entries; wanted as many each, at most %d",
         n, ny, nx, MOVE_MAX_RANK);
    NEED(y->dt == x->dt, "x is %s and y is %s: a move does not convert", dtype_name(x->dt), dtype_name(y->dt));
    TRY(choice(c, "width_offset", 2));
    for (int64_t i = 0; i < n; i++)
        NEED(size[i] >= 1, "size is %" PRId64 " on axis %" PRId64 ", wanted at least 1", size[i], i);
    NEED(span(size, ys, n, insn_i(c->in, "y_start"), &lo, &hi), "it writes outside y, further than 61 bits count");
    NEED(lo >= 0 && hi < et_elems(y), "it writes elements %" PRId64 " .. %" PRId64 " of y, which has %" PRId64, lo, hi,
         et_elems(y));
    NEED(span(size, xs, n, insn_i(c->in, "x_start"), &lo, &hi), "it reads outside x, further than 61 bits count");
    NEED(lo >= 0 && hi < et_elems(x), "it reads elements %" PRId64 " .. %" PRId64 " of x, which has %" PRId64, lo, hi,
         et_elems(x));
    NEED(walks_at_most(size, n, et_elems(y)), "its sizes make more places than the %" PRId64 " elements of y",
         et_elems(y));
    return AN_OK;
}

static an_status check_fill(const ck *c) { return (void)c, AN_OK; }

static an_status check_random(const ck *c)
{
    double lo = insn_f(c->in, "low"), hi = insn_f(c->in, "high");
    NEED(isfinite(lo) && isfinite(hi), "low and high are %g and %g, wanted finite values", lo, hi);
    return AN_OK;
}

static an_status check_pick(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    int64_t axis, n;
    TRY(axis_of(c, x, &axis));
    const int64_t *index = insn_is(c->in, "index", &n);
    etensor want = *x;
    want.dim[axis] = n;
    NEED(same_shape(y, &want) && y->dt == x->dt, "y is %s, wanted %s", show(y).text, show(&want).text);
    for (int64_t i = 0; i < n; i++)
        NEED(index[i] >= 0 && index[i] < x->dim[axis], "index %" PRId64 " is outside an extent of %" PRId64, index[i],
             x->dim[axis]);
    return AN_OK;
}

static an_status batch_of(const ck *c, const etensor *x, const etensor *ix, int64_t most, int64_t *batch)
{
    int64_t b = *batch = insn_i(c->in, "batch");
    NEED(b >= 0 && b <= most && b <= ix->rank, "batch is %" PRId64 ", wanted 0 .. %" PRId64, b,
         MIN(most, (int64_t)ix->rank));
    for (int64_t i = 0; i < b; i++)
        NEED(x->dim[i] == ix->dim[i], "batch axis %" PRId64 " is %" PRId64 " and %" PRId64, i, x->dim[i], ix->dim[i]);
    return AN_OK;
}

static an_status elems_are(const ck *c, const etensor *y, int64_t a, int64_t b)
{
    int64_t n;
    NEED(mul_i64(a, b, &n) && et_elems(y) == n,
         "the result has %" PRId64 " elements, wanted %" PRId64 " times %" PRId64, et_elems(y), a, b);
    return AN_OK;
}

static an_status check_gather(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x"), *ix = tensor(c, "indices");
    int64_t axis, batch;
    TRY(axis_of(c, x, &axis));
    TRY(batch_of(c, x, ix, axis, &batch));
    NEED(y->dt == x->dt, "x is %s and y is %s", dtype_name(x->dt), dtype_name(y->dt));
    return elems_are(c, y, et_elems(x) / x->dim[axis], dims_product(ix->dim, (int)batch, ix->rank));
}

static an_status check_scatter(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x"), *ix = tensor(c, "indices");
    int64_t axis;
    TRY(axis_of(c, y, &axis));
    NEED(y->dt == x->dt && dtype_bits(y->dt) >= 8, "x is %s and y is %s, wanted one type of whole bytes",
         dtype_name(x->dt), dtype_name(y->dt));
    NEED(y->dim[axis] > 0, "axis %" PRId64 " is empty", axis);
    TRY(choice(c, "add", 2));
    TRY(choice(c, "turned", 2));
    return elems_are(c, x, et_elems(y) / y->dim[axis], et_elems(ix));
}

static an_status check_rope(const ck *c)
{
    static const char *const tables[] = { "cos", "sin" };
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    TRY(one_shape(c, "x", "y"));
    NEED(x->rank == 3 && x->dim[1] % 2 == 0,
         "x is %s, wanted [stacks, channels, columns] with an even number of channels", show(x).text);
    NEED(dtype_is_float(x->dt) && dtype_bits(x->dt) >= 8 && dtype_is_float(y->dt) && dtype_bits(y->dt) >= 8,
         "x is %s and y is %s, wanted floats", dtype_name(x->dt), dtype_name(y->dt));
    for (int k = 0; k < 2; k++) {
        const etensor *t = tensor(c, tables[k]);
        NEED(dtype_is_float(t->dt) && dtype_bits(t->dt) >= 8, "%s is %s, wanted a float", tables[k], dtype_name(t->dt));
        NEED(t->rank == 2 && t->dim[0] == x->dim[1] && t->dim[1] > 0 && x->dim[2] % t->dim[1] == 0,
             "%s is %s, wanted [%" PRId64 ", a divisor of %" PRId64 "]: channels, columns", tables[k], show(t).text,
             x->dim[1], x->dim[2]);
    }
    TRY(one_shape(c, "cos", "sin"));
    TRY(choice(c, "half", 2));
    return choice(c, "back", 2);
}

static an_status check_gather_along(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x"), *ix = tensor(c, "indices");
    int64_t axis;
    TRY(axis_of(c, x, &axis));
    etensor want = *x;
    want.dim[axis] = ix->rank > axis ? ix->dim[axis] : 0;
    NEED(same_shape(ix, &want) && same_shape(y, &want) && y->dt == x->dt,
         "x is %s, indices %s and y %s: wanted one shape but for axis %" PRId64, show(x).text, show(ix).text,
         show(y).text, axis);
    return AN_OK;
}

static an_status check_gather_nd(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x"), *ix = tensor(c, "indices");
    int64_t batch;
    NEED(ix->rank >= 1, "indices has rank 0");
    TRY(batch_of(c, x, ix, MIN(x->rank, ix->rank - 1), &batch));
    int64_t k = ix->dim[ix->rank - 1];
    NEED(k <= x->rank - batch && y->dt == x->dt, "%" PRId64 " indices and %" PRId64 " batch axes for rank %d", k, batch,
         x->rank);
    return elems_are(c, y, dims_product(ix->dim, 0, ix->rank - 1), dims_product(x->dim, (int)(batch + k), x->rank));
}

/* ---- types ---- */

static an_status check_cast(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    NEED(et_elems(y) == et_elems(x), "x is %s and y is %s: wanted as many elements", show(x).text, show(y).text);
    return AN_OK;
}

static an_status check_quant(const ck *c)
{
    const etensor *x = tensor(c, "x"), *par[] = { tensor(c, "scale"), tensor(c, "zero") };
    int64_t axis = insn_i(c->in, "axis");
    TRY(one_shape(c, "x", "y"));
    NEED(axis >= -1 && axis < x->rank, "axis %" PRId64 " is outside rank %d", axis, x->rank);
    for (int i = 0; i < 2; i++) {
        int64_t n = par[i] ? et_elems(par[i]) : 1;
        NEED(n == 1 || (axis >= 0 && n == x->dim[axis]),
             "%s has %" PRId64 " elements, wanted one, or one for each place on the axis", i ? "zero" : "scale", n);
    }
    return AN_OK;
}

static an_status check_dequant(const ck *c) { return check_quant(c); }

/* ---- images ---- */

static an_status check_resize(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    NEED(x->rank >= 2 && y->rank == x->rank, "ranks are %d and %d", y->rank, x->rank);
    for (int i = 0; i < x->rank - 2; i++)
        NEED(x->dim[i] == y->dim[i], "axis %d is %" PRId64 " and %" PRId64, i, x->dim[i], y->dim[i]);
    for (int i = x->rank - 2; i < x->rank; i++)
        NEED(small(x->dim[i], 1) && small(y->dim[i], 1), "axis %d is %" PRId64 " and %" PRId64 ", wanted at most %d", i,
             x->dim[i], y->dim[i], SMALL);
    TRY(choice(c, "linear", 2));
    return choice(c, "grid", GRID_COUNT);
}

static an_status check_crop_resize(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x"), *b = tensor(c, "boxes"), *of = tensor(c, "box_of");
    NEED(x->rank == 4 && (y->rank == 4 || y->rank == 5) && b->rank >= 2, "ranks are %d, %d, %d", y->rank, x->rank,
         b->rank);
    int64_t coords = b->rank == 2 ? b->dim[1] : b->dim[2];
    NEED((coords == 4 || coords == 5) && et_elems(b) == b->dim[0] * coords,
         "a box has %" PRId64 " numbers, wanted 4 or 5", coords);
    NEED(y->dim[0] == b->dim[0] && y->dim[y->rank - 3] == x->dim[1],
         "y is %s, wanted %" PRId64 " boxes of %" PRId64 " channels", show(y).text, b->dim[0], x->dim[1]);
    NEED(coords == 4 || y->rank == 4 || y->dim[1] == 1, "boxes name one image each, the result has several per box");
    NEED(!of || et_elems(of) == b->dim[0], "box_of has %" PRId64 " entries for %" PRId64 " boxes",
         of ? et_elems(of) : 0, b->dim[0]);
    TRY(choice(c, "linear", 2));
    TRY(choice(c, "grid", GRID_COUNT));
    TRY(choice(c, "normalized", 2));
    return choice(c, "corner", 4);
}

static an_status check_sampler(const ck *c)
{
    const etensor *y = tensor(c, "y"), *x = tensor(c, "x");
    NEED(x->rank == 4 && y->rank == 4 && x->dim[0] == y->dim[0] && x->dim[1] == y->dim[1],
         "x is %s and y is %s: wanted images of one batch and channel count", show(x).text, show(y).text);
    TRY(choice(c, "linear", 2));
    TRY(choice(c, "pad", 4));
    TRY(choice(c, "coords_mode", 3));
    return choice(c, "align", 2);
}

static an_status check_resample(const ck *c)
{
    const etensor *y = tensor(c, "y"), *at = tensor(c, "coords");
    TRY(check_sampler(c));
    NEED(et_elems(at) % 2 == 0 && et_elems(at) / 2 == y->dim[0] * y->dim[2] * y->dim[3],
         "coords has %" PRId64 " numbers, wanted two per place", et_elems(at));
    return AN_OK;
}

static an_status check_warp(const ck *c)
{
    int64_t n = et_elems(tensor(c, "matrix")), batch = tensor(c, "x")->dim[0];
    TRY(check_sampler(c));
    NEED(n == 6 || (n % 6 == 0 && n / 6 == batch), "matrix has %" PRId64 " numbers, wanted six, or six per image", n);
    return AN_OK;
}

static check_fn *const checks[IN_COUNT] = {
#define INSN(id, name, fields, ref, exec, what) [IN_##id] = check_##ref,
#include "engine/isa.def"
#undef INSN
};

/* ---- memory ---- */

static bool share_memory(const etensor *a, const etensor *b)
{
    uint64_t n, m;
    if (a->where != b->where || (a->where != SPACE_SCRATCH && a->slot != b->slot) || !et_bytes(a, &n) ||
        !et_bytes(b, &m))
        return false;
    return a->offset < b->offset + m && b->offset < a->offset + n;
}

/* A move touches elements lo .. hi of a tensor: those bytes of its space. */
static etensor touched(const ck *c, const etensor *t, const char *start, const char *step)
{
    int64_t n, lo = 0, hi = 0;
    const int64_t *size = insn_is(c->in, "size", &n), *by = insn_is(c->in, step, &n), bits = dtype_bits(t->dt);
    etensor part = *t;
    (void)!span(size, by, n, insn_i(c->in, start), &lo, &hi); /* check_move asked */
    part.offset += (uint64_t)(lo * bits / 8);
    part.dt = DT_U8, part.rank = 1, part.dim[0] = (hi + 1) * bits / 8 - lo * bits / 8 + ((hi + 1) * bits % 8 != 0);
    return part;
}

/* A part of a tensor may be moved to another part of it. */
static bool moves_apart(const ck *c)
{
    const etensor y = touched(c, tensor(c, "y"), "y_start", "y_step"),
                  x = touched(c, tensor(c, "x"), "x_start", "x_step");
    return !share_memory(&y, &x);
}

/* May x be where y is written? Elements, or pairs of them, are read before they are written. */
static bool in_step(const ck *c, const char *field, const etensor *y, const etensor *x)
{
    const bool same = y->offset == x->offset && same_shape(y, x);
    if (c->in->op == IN_MOVE) return moves_apart(c);
    if (c->in->op == IN_EW || c->in->op == IN_EWS)
        return same && dtype_bits(y->dt) == dtype_bits(x->dt) && dtype_bits(y->dt) >= 8;
    return c->in->op == IN_ROPE && !strcmp(field, "x") && same && y->dt == x->dt;
}

/* What is written lies apart from all else that is written, and from what is read but in step. */
static an_status check_apart(const ck *c)
{
    insn_walk out, other;
    const etensor *at = c->p->tensors.at;
    int64_t y, x;
    for (insn_walk_begin(&out, c->in); insn_walk_next(&out, true, &y);) {
        for (insn_walk_begin(&other, c->in); insn_walk_next(&other, true, &x);)
            NEED(other.field >= out.field || !share_memory(&at[y], &at[x]), "%s and %s share memory",
                 other.f[other.field].name, out.f[out.field].name);
        for (insn_walk_begin(&other, c->in); insn_walk_next(&other, false, &x);)
            NEED(!share_memory(&at[y], &at[x]) || in_step(c, other.f[other.field].name, &at[y], &at[x]),
                 "%s is written over %s, which is still read", out.f[out.field].name, other.f[other.field].name);
    }
    return AN_OK;
}

an_status check_insn(const program *p, size_t index, diag *d)
{
    ck c = { .p = p, .in = &p->insns.at[index], .index = index, .d = d };
    TRY(checks[c.in->op](&c));
    return check_apart(&c);
}
