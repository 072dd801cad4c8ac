/* loss.c: what runs over the whole vocabulary: softmax, log-sum-exp, one-hot, cross-entropy.
 * In: logits in parts [1, Vi, 1, S], since one tensor of V channels can pass the engine's limit.  Out: the same parts.
 *
 * Range. The maximum over all parts is taken off first, so every exponential is at most 1 and each part's sum at
 * most Vi. Their total can still pass 65504 when V does; it is kept as total * 2^-k with 2^k >= V / 32768, and the
 * power of two is put back where it is exact. Probabilities of a large vocabulary are subnormal in fp16 (1/32000),
 * so the gradient is made from exp * (scale / total), never from the probability times the scale.
 *
 * A token id is two digits, each compared with its own constant: fp16 holds whole numbers only up to 2048. */
#include <math.h>

#include "model/model.h"

typedef struct {
    val top;               /* [1, 1, 1, S] */
    val e[NN_MAX_PARTS];   /* exp(logit - top) */
    val total;             /* sum of all of them, times 2^-shift */
    int shift;
} exps;

static dtype type_of(const graph *g, val x) { return graph_type(g, x)->dt; }
static val over_channels(graph *g, op_id op, val x)
{
    return graph_op(g, op, VALS(x), (const attr[]){ AT_IS(AXES, 1), AT_B(KEEP_DIMS, true) }, 2);
}

static bool parts_ok(graph *g, int n)
{
    if (n < 1 || n > NN_MAX_PARTS) graph_fail(g, AN_INPUT, "%d parts of a vocabulary, wanted 1 to %d", n, NN_MAX_PARTS);
    return !g->err.st;
}

static exps exps_of(graph *g, const val *logits, int n)
{
    exps x = { .top = over_channels(g, OP_REDUCE_MAX, logits[0]) };
    int64_t vocab = 0;
    for (int i = 1; i < n; i++) x.top = G(g, MAXIMUM, x.top, over_channels(g, OP_REDUCE_MAX, logits[i]));
    for (int i = 0; i < n && !g->err.st; i++) vocab += graph_type(g, logits[i])->sh.d[1];
    while (vocab >> x.shift > 32768) x.shift++;
    for (int i = 0; i < n; i++) {
        x.e[i] = G(g, EXP, G(g, SUB, logits[i], x.top));
        val sum = nn_scale(g, over_channels(g, OP_REDUCE_SUM, x.e[i]), ldexp(1, -x.shift));
        x.total = i ? G(g, ADD, x.total, sum) : sum;
    }
    return x;
}

void nn_vocab_softmax(graph *g, const val *logits, int n, val *probs)
{
    if (!parts_ok(g, n)) return;
    if (n == 1) {
        probs[0] = GA(g, SOFTMAX, VALS(logits[0]), AT_I(AXIS, 1));
        return;
    }
    exps x = exps_of(g, logits, n);
    for (int i = 0; i < n; i++) probs[i] = nn_scale(g, G(g, REAL_DIV, x.e[i], x.total), ldexp(1, -x.shift));
}

static val lse_of(graph *g, const exps *x)
{
    val y = G(g, ADD, x->top, G(g, LOG, x->total));
    return x->shift && !g->err.st ? G(g, ADD, y, graph_scalar(g, type_of(g, y), x->shift * 0.69314718055994531)) : y;
}

val nn_log_sum_exp(graph *g, const val *logits, int n)
{
    if (!parts_ok(g, n)) return NO_VAL;
    /* which holds any sum */
    if (n == 1 && type_of(g, logits[0]) == DT_F32) return over_channels(g, OP_REDUCE_LOG_SUM_EXP, logits[0]);
    exps x = exps_of(g, logits, n);
    return lse_of(g, &x);
}

/* The digit of id first + i, for every channel i. */
static val digits(graph *g, const char *name, const char *which, dtype dt, int64_t first, int64_t n, bool high)
{
    ttype t = TTYPE(dt, 1, n, 1, 1);
    size_t bytes;
    char full[40];
    if (g->err.st) return NO_VAL;
    void *p = shape_bytes(&t, &bytes) ? arena_take(&g->mem, bytes, 1, 64) : NULL;
    if (!p) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return NO_VAL;
    }
    for (int64_t i = 0; i < n; i++)
        dtype_store(dt, p, i, (double)(high ? (first + i) / MODEL_ID_BASE : (first + i) % MODEL_ID_BASE));
    snprintf(full, sizeof full, "%.20s_%s", name, which);
    return graph_const_view(g, full, t, p);
}

val nn_is_token(graph *g, val hi, val lo, int64_t first, int64_t n, const char *name)
{
    if (g->err.st) return NO_VAL;
    dtype dt = type_of(g, hi);
    /* |hi - hi_i| + |lo - lo_i| is 0 for the token alone; there is no logical and on the engine */
    val dh = G(g, ABS, G(g, SUB, hi, digits(g, name, "hi", dt, first, n, true)));
    val dl = G(g, ABS, G(g, SUB, lo, digits(g, name, "lo", dt, first, n, false)));
    return G(g, EQUAL, G(g, ADD, dh, dl), graph_scalar(g, dt, 0));
}

val nn_cross_entropy(graph *g, const val *logits, int n, val hi, val lo, double scale, val *dlogits)
{
    if (!parts_ok(g, n)) return NO_VAL;
    dtype dt = type_of(g, logits[0]);
    exps x = exps_of(g, logits, n);
    val share = G(g, REAL_DIV, graph_scalar(g, dt, ldexp(scale, -x.shift)), x.total);
    val one = graph_scalar(g, dt, scale), zero = graph_scalar(g, dt, 0), target = NO_VAL;
    int64_t first = 0;
    for (int i = 0; i < n && !g->err.st; i++) {
        int64_t size = graph_type(g, logits[i])->sh.d[1];
        char name[24];
        snprintf(name, sizeof name, "ids%d", i);
        val hit = nn_is_token(g, hi, lo, first, size, name);
        val p = G(g, MUL, x.e[i], share);
        dlogits[i] = G(g, SELECT, hit, G(g, SUB, p, one), p);
        /* one term of the sum is not zero: exact */
        val mine = over_channels(g, OP_REDUCE_SUM, G(g, SELECT, hit, logits[i], zero));
        target = i ? G(g, ADD, target, mine) : mine;
        first += size;
    }
    return G(g, SUB, lse_of(g, &x), target);
}
