/* attend.c: heads, rotary positions, the causal mask, and scores.
 * In: [1, C, 1, S] projections.  Out: the same layout again; in between, one matrix per kv head.
 *
 * Layout. Channel c = h*HD + j, so [1, NH*HD, 1, S] is [1, NH, HD, S] by reshape alone, and both products of
 * attention are matmuls with a transpose flag: no transpose op is needed when every head has its own keys.
 *
 * Groups. Query heads g*G .. g*G+G-1 read kv head g (h div G). They are laid side by side as positions, [1, NKV, HD,
 * G*S], so keys and values are never copied, and dK, dV come out summed over the group because the contraction runs
 * over G*S. One function pair does it in both directions: forward and backward cannot pair heads differently.
 *
 * Rotation. The partner of each channel comes from a 1x1 convolution with a constant matrix of 0, 1 and -1: exact in
 * fp16, one product per sum. The other ways are worse here: even and odd slices along the width break above 4094 on
 * two families, and putting the halves together again needs concat, which some machines refuse. Heads stand on the
 * batch axis for it ([NH, HD, 1, S] is a reshape too), so one HD x HD matrix serves all. Both pairings are matrices;
 * the inverse turns back by the opposite sign of the sine, since the two channels of a pair share their angle. */
#include <math.h>

#include "model/model.h"

static val reshape4(graph *g, val x, int64_t a, int64_t b, int64_t c, int64_t d)
{
    shape want = SHAPE(a, b, c, d);
    if (!g->err.st && shape_eq(&graph_type(g, x)->sh, &want)) return x;
    return GA(g, RESHAPE, VALS(x), AT_IS(SHAPE, a, b, c, d));
}

static val swap12(graph *g, val x) { return GA(g, TRANSPOSE, VALS(x), AT_IS(PERM, 0, 2, 1, 3)); }

static int64_t batch_of(const nn_heads *h) { return h->batch > 1 ? h->batch : 1; }
int64_t nn_positions(const nn_heads *h) { return batch_of(h) * h->seq; }

/* [1, n*HD, 1, B*S] to [B, n, HD, S] and back: a reshape alone when there is one sequence. */
static val sequences_apart(graph *g, val x, int64_t n, const nn_heads *h)
{
    if (batch_of(h) == 1) return reshape4(g, x, 1, n, h->head_dim, h->seq);
    return GA(g, TRANSPOSE, VALS(reshape4(g, x, n, h->head_dim, batch_of(h), h->seq)), AT_IS(PERM, 2, 0, 1, 3));
}

static val sequences_joined(graph *g, val x, int64_t n, const nn_heads *h)
{
    if (batch_of(h) > 1)
        x = GA(g, TRANSPOSE, VALS(reshape4(g, x, batch_of(h), n, h->head_dim, h->seq)), AT_IS(PERM, 1, 2, 0, 3));
    return reshape4(g, x, 1, n * h->head_dim, 1, nn_positions(h));
}

val nn_queries_in(graph *g, val x, const nn_heads *h)
{
    int64_t group = h->n_heads / h->n_kv_heads, stacks = batch_of(h) * h->n_kv_heads;
    x = sequences_apart(g, x, h->n_heads, h);
    if (group == 1) return x;
    return reshape4(g, swap12(g, reshape4(g, x, stacks, group, h->head_dim, h->seq)), batch_of(h), h->n_kv_heads,
                    h->head_dim, group * h->seq);
}

val nn_queries_out(graph *g, val x, const nn_heads *h)
{
    int64_t group = h->n_heads / h->n_kv_heads, stacks = batch_of(h) * h->n_kv_heads;
    if (group > 1) x = swap12(g, reshape4(g, x, stacks, h->head_dim, group, h->seq));
    return sequences_joined(g, x, h->n_heads, h);
}

val nn_keys_in(graph *g, val x, const nn_heads *h) { return sequences_apart(g, x, h->n_kv_heads, h); }
val nn_keys_out(graph *g, val x, const nn_heads *h) { return sequences_joined(g, x, h->n_kv_heads, h); }

val nn_causal_mask(graph *g, dtype dt, int64_t seq) { return nn_window_mask(g, dt, seq, 0); }

val nn_window_mask(graph *g, dtype dt, int64_t seq, int64_t window)
{
    if (g->err.st) return NO_VAL;
    ttype t = TTYPE(dt, 1, 1, seq, seq), line = TTYPE(dt, seq);
    size_t bytes, row;
    if (!shape_bytes(&t, &bytes) || !shape_bytes(&line, &row)) {
        graph_fail(g, AN_INPUT, "a causal mask of %lld positions is too large", (long long)seq);
        return NO_VAL;
    }
    unsigned char *p = arena_take(&g->mem, bytes, 1, 64), *never = arena_take(&g->mem, row, 1, 64);
    if (!p || !never) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return NO_VAL;
    }
    for (int64_t i = 0; i < seq; i++) dtype_store(dt, never, i, NN_NEVER);
    size_t each = row / (size_t)seq;
    for (size_t i = 0; i < (size_t)seq; i++) {
        memcpy(p + i * row + (i + 1) * each, never, row - (i + 1) * each);
        if (window > 0 && i >= (size_t)window) memcpy(p + i * row, never, (i + 1 - (size_t)window) * each);
    }
    /* a decoder may have one with and one without a window */
    return graph_const_view(g, graph_find(g, "mask").i ? "near" : "mask", t, p);
}

double nn_query_scale(const nn_heads *h) { return 1 / sqrt(h->query_dim > 0 ? h->query_dim : (double)h->head_dim); }

val nn_attn_probs(graph *g, val q, val k, val mask, const nn_heads *h)
{
    return nn_attn_probs_near(g, nn_scale(g, q, nn_query_scale(h)), k, mask, h);
}

/* Scaled before the product: it keeps the scores away from the multiplier's output limit, and HD*S is less than S*S.
 * Of several sequences before they are laid apart: what made them can do it in passing. */
val nn_queries_near(graph *g, val x, const nn_heads *h)
{
    const double by = nn_query_scale(h);
    return batch_of(h) > 1 ? nn_queries_in(g, nn_scale(g, x, by), h) : nn_scale(g, nn_queries_in(g, x, h), by);
}

val nn_attn_probs_near(graph *g, val near, val k, val mask, const nn_heads *h)
{
    val scores = GA(g, MATMUL, VALS(near, k), AT_B(TRANSPOSE_X, true)); /* [1, NKV, G*S, S] */
    scores = nn_softcap(g, reshape4(g, scores, batch_of(h), h->n_heads, h->seq, h->seq), h->softcap);
    return GA(g, SOFTMAX, VALS(G(g, ADD, scores, mask)), AT_I(AXIS, -1));
}

val nn_attn_mix(graph *g, val p, val v, const nn_heads *h)
{
    val by_group = reshape4(g, p, batch_of(h), h->n_kv_heads, h->n_heads / h->n_kv_heads * h->seq, h->seq);
    return nn_queries_out(g, GA(g, MATMUL, VALS(v, by_group), AT_B(TRANSPOSE_Y, true)), h);
}

/* ---- rotary position ---- */

val nn_rope_turn(graph *g, dtype dt, int64_t head_dim, bool half)
{
    ttype square = TTYPE(dt, head_dim, head_dim, 1, 1);
    size_t n;
    if (g->err.st) return NO_VAL;
    if (head_dim < 2 || head_dim % 2 || !shape_bytes(&square, &n)) {
        graph_fail(g, AN_INPUT, "rope: head width %lld, wanted an even one of sane size", (long long)head_dim);
        return NO_VAL;
    }
    unsigned char *r = arena_take(&g->mem, n, 1, 64);
    if (!r) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return NO_VAL;
    }
    for (int64_t i = 0; i < head_dim / 2; i++) {
        int64_t a = half ? i : 2 * i, b = half ? i + head_dim / 2 : 2 * i + 1;
        dtype_store(dt, r, a * head_dim + b, -1); /* (a, b) turns to (-b, a) */
        dtype_store(dt, r, b * head_dim + a, 1);
    }
    return graph_const_view(g, "rope_turn", square, r);
}

nn_rope_tables nn_rope_from(graph *g, dtype dt, int64_t head_dim, int64_t seq, const double *step, double scale,
                            bool half)
{
    nn_rope_tables none = { NO_VAL, NO_VAL, NO_VAL, half };
    ttype table = TTYPE(dt, 1, head_dim, 1, seq);
    size_t n_table;
    val turn = nn_rope_turn(g, dt, head_dim, half);
    if (g->err.st) return none;
    if (!shape_bytes(&table, &n_table)) {
        graph_fail(g, AN_INPUT, "rope: head width %lld and %lld positions are too large", (long long)head_dim,
                   (long long)seq);
        return none;
    }
    unsigned char *c = arena_take(&g->mem, n_table, 1, 64), *s = arena_take(&g->mem, n_table, 1, 64);
    if (!c || !s) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return none;
    }
    size_t row = n_table / (size_t)head_dim;
    for (int64_t i = 0; i < head_dim / 2; i++) {
        int64_t a = half ? i : 2 * i, b = half ? i + head_dim / 2 : 2 * i + 1;
        for (int64_t p = 0; p < seq; p++) {
            dtype_store(dt, c, a * seq + p, scale * cos((double)p * step[i]));
            dtype_store(dt, s, a * seq + p, scale * sin((double)p * step[i]));
        }
        memcpy(c + (size_t)b * row, c + (size_t)a * row, row); /* the channels of a pair share their angle */
        memcpy(s + (size_t)b * row, s + (size_t)a * row, row);
    }
    return (nn_rope_tables){ graph_const_view(g, "rope_cos", table, c), graph_const_view(g, "rope_sin", table, s), turn,
                             half };
}

nn_rope_tables nn_rope_make(graph *g, dtype dt, int64_t head_dim, int64_t seq, double theta, bool half)
{
    double *step = g->err.st || head_dim < 0 ? NULL : TAKE(&g->mem, double, (size_t)head_dim);
    if (!g->err.st && !step) graph_fail(g, AN_NOMEM, "out of memory");
    for (int64_t i = 0; step && i < head_dim / 2; i++) step[i] = pow(theta, -2.0 * (double)i / (double)head_dim);
    return nn_rope_from(g, dt, head_dim, seq, step, 1, half);
}

/* The pairs of x [n, HD, B, S] apart, on an axis of their own: [n, HD/2, 2, B*S], or [n, 2, HD/2, B*S] where they
 * are halves. */
static val pairs_apart(graph *g, val x, bool half)
{
    const int64_t *d = graph_type(g, x)->sh.d;
    return reshape4(g, x, d[0], half ? 2 : d[1] / 2, half ? d[1] / 2 : 2, d[2] * d[3]);
}

static val one_of_pair(graph *g, val x, bool half, int64_t which)
{
    const int64_t *d = graph_type(g, x)->sh.d;
    return GA(g, SLICE_BY_SIZE, VALS(x), AT_IS(BEGIN, 0, half ? which : 0, half ? 0 : which, 0),
              AT_IS(SIZE, d[0], half ? 1 : d[1], half ? d[2] : 1, d[3]));
}

/* (a, b) becomes (a cos - b sin, b cos + a sin), pair by pair: where slices cost nothing and a product with mostly
 * zeros does. */
static val turn_pairs(graph *g, val x, const nn_rope_tables *t, bool inverse)
{
    if (g->err.st) return NO_VAL;
    const int64_t d[4] = { graph_type(g, x)->sh.d[0], graph_type(g, x)->sh.d[1], graph_type(g, x)->sh.d[2],
                           graph_type(g, x)->sh.d[3] };
    val p = pairs_apart(g, x, t->half), c = pairs_apart(g, t->cos, t->half), s = pairs_apart(g, t->sin, t->half);
    if (g->err.st) return NO_VAL;
    val a = one_of_pair(g, p, t->half, 0), b = one_of_pair(g, p, t->half, 1), co = one_of_pair(g, c, t->half, 0),
        si = one_of_pair(g, s, t->half, 0);
    op_id minus = inverse ? OP_ADD : OP_SUB, plus = inverse ? OP_SUB : OP_ADD;
    val first = graph_op(g, minus, VALS(G(g, MUL, a, co), G(g, MUL, b, si)), NULL, 0),
        second = graph_op(g, plus, VALS(G(g, MUL, b, co), G(g, MUL, a, si)), NULL, 0);
    return reshape4(g, GA(g, CONCAT, VALS(first, second), AT_I(AXIS, t->half ? 1 : 2)), d[0], d[1], d[2], d[3]);
}

val nn_rope(graph *g, val x, const nn_rope_tables *t, bool inverse)
{
    if (!t->turn.i) return turn_pairs(g, x, t, inverse);
    val straight = G(g, MUL, x, t->cos), across = G(g, MUL, G(g, CONV, x, t->turn), t->sin);
    return inverse ? G(g, SUB, straight, across) : G(g, ADD, straight, across);
}
