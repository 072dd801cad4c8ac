/* block.c: the two halves of a transformer layer, shared by training and inference programs.
 * In: a program under construction and its input value.  Out: the block's values, taps included.
 * One body per half: norm, activation, position, groups and biases are the configuration's, not copies of the code. */
#include "model/model_int.h"

/* bias NO_VAL with centre false: RMS. Positions on their own lie one after the other, as many programs of one
 * position would have them: how a sum is ordered then does not depend on how many there are. */
static val normed(kernel *k, val x, val gain, val bias, bool centre)
{
    graph *g = k->g;
    const double eps = k->c->norm_eps;
    if (!k->alone || g->err.st) return centre ? nn_layernorm(g, x, gain, bias, eps) : nn_rmsnorm(g, x, gain, eps);
    const shape sh = graph_type(g, x)->sh;
    val rows = GA(g, TRANSPOSE, VALS(x), AT_IS(PERM, 0, 2, 3, 1));
    rows = GA(g, RESHAPE, VALS(rows), AT_IS(SHAPE, sh.d[0] * sh.d[2] * sh.d[3], sh.d[1], 1, 1));
    rows = centre ? nn_layernorm(g, rows, gain, bias, eps) : nn_rmsnorm(g, rows, gain, eps);
    rows = GA(g, RESHAPE, VALS(rows), AT_IS(SHAPE, sh.d[0], sh.d[2], sh.d[3], sh.d[1]));
    return GA(g, TRANSPOSE, VALS(rows), AT_IS(PERM, 0, 3, 1, 2));
}

val block_norm(kernel *k, val x, model_weight_id gain, model_weight_id bias)
{
    const bool rms = k->c->norm == MODEL_NORM_RMS;
    return normed(k, x, weight(k, gain), rms ? NO_VAL : weight(k, bias), !rms);
}

val block_norm_bwd(kernel *k, val dy, val x, model_weight_id gain)
{
    val w = weight(k, gain);
    return k->c->norm == MODEL_NORM_RMS ? nn_rmsnorm_bwd(k->g, dy, x, w, k->c->norm_eps)
                                        : nn_layernorm_bwd(k->g, dy, x, w, k->c->norm_eps);
}

nn_rope_tables block_rope(kernel *k)
{
    const model_config *c = k->c;
    if (k->rope.cos.i) return k->rope;
    double step[MODEL_MAX_HEAD / 2], scale;
    model_rope_steps(c, step, &scale);
    return nn_rope_from(k->g, c->dt, c->head_dim, k->heads.seq, step, scale, c->rope == MODEL_ROPE_HALF);
}

/* [1, n*HD, 1, B*S] as [n, HD, B, S], each head on the batch axis: q/k norms and rotation see one head's channels. */
static val heads_apart(kernel *k, val x, int64_t n)
{
    return GA(k->g, RESHAPE, VALS(x), AT_IS(SHAPE, n, k->heads.head_dim, MAX(k->heads.batch, 1), k->heads.seq));
}
static val heads_joined(kernel *k, val x, int64_t n)
{
    return GA(k->g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, n * k->heads.head_dim, 1, nn_positions(&k->heads)));
}

static val place(kernel *k, val x, int64_t n, model_weight_id gain, const nn_rope_tables *rope)
{
    if (!rope && !k->c->qk_norm) return x;
    val y = heads_apart(k, x, n);
    if (k->c->qk_norm) y = normed(k, y, weight(k, gain), NO_VAL, false);
    if (rope) y = nn_rope(k->g, y, rope, false);
    return heads_joined(k, y, n);
}

/* NULL: nothing turns. */
static const nn_rope_tables *rope_of(kernel *k, bool rotate, nn_rope_tables *room)
{
    if (!rotate || k->c->rope == MODEL_ROPE_NONE) return NULL;
    *room = block_rope(k);
    return room;
}

static qkv project(kernel *k, val x, bool queries, bool rotate)
{
    qkv p = { .xn = block_norm(k, x, MW_NORM1, MW_NORM1_B) };
    if (queries) p.qraw = nn_linear(k->g, p.xn, weight(k, MW_WQ), weight(k, MW_BQ));
    p.kraw = nn_linear(k->g, p.xn, weight(k, MW_WK), weight(k, MW_BK));
    p.v = nn_linear(k->g, p.xn, weight(k, MW_WV), weight(k, MW_BV));
    nn_rope_tables room;
    const nn_rope_tables *rope = rope_of(k, rotate, &room);
    if (queries) p.q = place(k, p.qraw, k->heads.n_heads, MW_Q_NORM, rope);
    p.k = place(k, p.kraw, k->heads.n_kv_heads, MW_K_NORM, rope);
    return p;
}

qkv block_qkv(kernel *k, val x, bool rotate) { return project(k, x, true, rotate); }
qkv block_kv(kernel *k, val x) { return project(k, x, false, true); }

val block_q(kernel *k, val xn)
{
    nn_rope_tables room;
    return place(k, nn_linear(k->g, xn, weight(k, MW_WQ), weight(k, MW_BQ)), k->heads.n_heads, MW_Q_NORM,
                 rope_of(k, true, &room));
}

val block_attend(kernel *k, const qkv *p)
{
    const nn_heads *h = &k->heads;
    int64_t window = model_window(k->c, k->layer);
    val mask = window ? k->near : k->mask;
    if (!mask.i) mask = nn_window_mask(k->g, k->c->dt, h->seq, window);
    val probs = nn_attn_probs_near(k->g, nn_queries_near(k->g, p->q, h), nn_keys_in(k->g, p->k, h), mask, h);
    return nn_attn_mix(k->g, probs, nn_keys_in(k->g, p->v, h), h);
}

val block_residual(kernel *k, val x, val branch, model_weight_id post)
{
    if (k->c->post_norm) branch = normed(k, branch, weight(k, post), NO_VAL, false);
    branch = nn_scale(k->g, branch, k->c->alpha);
    return k->c->host_residual ? branch : G(k->g, ADD, x, branch);
}

static val gelu(kernel *k, val x)
{
    return k->one_gelu ? GA(k->g, GELU, VALS(x), AT_S(MODE, "TANH_APPROXIMATION")) : nn_gelu(k->g, x);
}

ffn block_ffn(kernel *k, val x)
{
    ffn f = { .xn = block_norm(k, x, MW_NORM2, MW_NORM2_B), .h3 = NO_VAL };
    f.h1 = nn_linear(k->g, f.xn, weight(k, MW_W1), weight(k, MW_B1));
    if (model_gated(k->c)) {
        f.h3 = nn_linear(k->g, f.xn, weight(k, MW_W3), weight(k, MW_B3));
        f.act = k->c->act == MODEL_ACT_GEGLU ? G(k->g, MUL, gelu(k, f.h1), f.h3) : nn_swiglu(k->g, f.h1, f.h3);
    } else {
        f.act = gelu(k, f.h1);
    }
    f.br = nn_linear(k->g, f.act, weight(k, MW_W2), weight(k, MW_B2));
    f.y = block_residual(k, x, f.br, MW_POST2);
    return f;
}
