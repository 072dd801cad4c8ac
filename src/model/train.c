/* train.c: the programs of a training step: forward with taps, and the backward pass in pieces the host can overlap.
 * In: ports as kernels.def lists them.  Out: the same. dW, norm-gain and bias gradients are sums over positions of
 * products of these taps and belong to the host, which keeps them in fp32.
 *
 * One layer backward, with dy the gradient of its output:
 *     ffn_bwd        dy, h1, h3          -> dxn, dh1, dh3        (dW2 = alpha*dy act^T, or dbr act^T; dW1 = dh1 xn^T, dW3 = dh3 xn^T)
 *     ffn_norm_bwd   dxn, x2, dy         -> dx2
 *     attn_bwd1      q, k, v, dx2        -> dv, p, dp            (dWo = alpha*dx2 attn^T, or dbr attn^T; dWv = dv xn^T)
 *     attn_bwd2      p, dp, q, k         -> dq, dk               (dWq = dq xn^T, dWk = dk xn^T)
 *     qkv_bwd        dq, dk, dv          -> dxn
 *     attn_norm_bwd  dxn, x, dx2         -> dx, the dy of the layer below */
#include <math.h>

#include "model/model_int.h"

/* ---- forward ---- */

void build_fwd_attn(kernel *k)
{
    val x = port_in(k, "x");
    qkv p = block_qkv(k, x, true);
    val attn = block_attend(k, &p);
    val br = nn_linear(k->g, attn, weight(k, MW_WO), weight(k, MW_BO));
    port_out(k, "x", block_residual(k, x, br, MW_POST1));
    if (k->c->post_norm) port_out(k, "br", br);
    port_out(k, "q", p.q);
    port_out(k, "k", p.k);
    port_out(k, "v", p.v);
    port_out(k, "attn", attn);
    port_out(k, "xn", p.xn);
    if (!k->c->qk_norm) return;
    port_out(k, "qraw", p.qraw);
    port_out(k, "kraw", p.kraw);
}

void build_fwd_ffn(kernel *k)
{
    ffn f = block_ffn(k, port_in(k, "x"));
    port_out(k, "x", f.y);
    port_out(k, "h1", f.h1);
    if (model_gated(k->c)) port_out(k, "h3", f.h3);
    port_out(k, "act", f.act);
    port_out(k, "xn", f.xn);
    if (k->c->post_norm) port_out(k, "br", f.br);
}

void build_final_norm(kernel *k) { port_out(k, "xn", block_norm(k, port_in(k, "x"), MW_NORM_F, MW_NORM_F_B)); }

static int classify(kernel *k, val xn, val *logits)
{
    int n = model_vocab_parts(k->c);
    for (int i = 0; i < n; i++) logits[i] = nn_linear(k->g, xn, classifier_weight(k, i, false), NO_VAL);
    return n;
}

void build_classifier(kernel *k)
{
    val logits[NN_MAX_PARTS] = { { 0 } };
    int n = classify(k, port_in(k, "xn"), logits);
    for (int i = 0; i < n; i++) port_out_part(k, "logits", i, logits[i]);
}

void build_vocab_softmax(kernel *k)
{
    const val *logits;
    val probs[NN_MAX_PARTS] = { { 0 } }, capped[NN_MAX_PARTS] = { { 0 } };
    int n = ports_in(k, "logits", &logits);
    for (int i = 0; i < n; i++) capped[i] = nn_softcap(k->g, logits[i], k->c->softcap);
    nn_vocab_softmax(k->g, capped, n, probs);
    for (int i = 0; i < n; i++) port_out_part(k, "probs", i, probs[i]);
}

/* The loss is the mean over positions. */
static double mean_scale(const kernel *k) { return k->c->loss_scale / (double)k->heads.seq; }

/* Logits are capped where they are compared: what travels between programs, and what dlogits is the gradient of, are
 * those before the cap. */
static val capped_loss(kernel *k, const val *logits, int n, val *d)
{
    val capped[NN_MAX_PARTS] = { { 0 } };
    for (int i = 0; i < n; i++) capped[i] = nn_softcap(k->g, logits[i], k->c->softcap);
    val loss = nn_cross_entropy(k->g, capped, n, port_in(k, "hi"), port_in(k, "lo"), mean_scale(k), d);
    for (int i = 0; i < n; i++) d[i] = nn_softcap_bwd(k->g, d[i], logits[i], k->c->softcap);
    return loss;
}

void build_cross_entropy(kernel *k)
{
    const val *logits;
    val d[NN_MAX_PARTS] = { { 0 } };
    int n = ports_in(k, "logits", &logits);
    port_out(k, "loss", capped_loss(k, logits, n, d));
    for (int i = 0; i < n; i++) port_out_part(k, "dlogits", i, d[i]);
}

/* ---- backward ---- */

static val classify_bwd(kernel *k, const val *d, int n)
{
    val dx = NO_VAL;
    for (int i = 0; i < n; i++) {
        val part = nn_linear(k->g, d[i], classifier_weight(k, i, true), NO_VAL);
        dx = i ? G(k->g, ADD, dx, part) : part;
    }
    return dx;
}

void build_classifier_bwd(kernel *k)
{
    const val *d;
    int n = ports_in(k, "dlogits", &d);
    port_out(k, "dxn", classify_bwd(k, d, n));
}

void build_final_norm_bwd(kernel *k)
{
    port_out(k, "dx", block_norm_bwd(k, port_in(k, "dxn"), port_in(k, "x"), MW_NORM_F));
}

void build_head(kernel *k)
{
    val x = port_in(k, "x"), seed = port_in(k, "seed"), xn = block_norm(k, x, MW_NORM_F, MW_NORM_F_B);
    val logits[NN_MAX_PARTS] = { { 0 } }, d[NN_MAX_PARTS] = { { 0 } };
    int n = classify(k, xn, logits);
    port_out(k, "loss", capped_loss(k, logits, n, d));
    for (int i = 0; i < n; i++) {
        d[i] = G(k->g, MUL, d[i], seed);
        port_out_part(k, "dlogits", i, d[i]);
    }
    val dxn = classify_bwd(k, d, n);
    port_out(k, "xn", xn);
    port_out(k, "dxn", dxn);
    port_out(k, "dx", block_norm_bwd(k, dxn, x, MW_NORM_F));
}

static void layer_norm_bwd(kernel *k, model_weight_id gain)
{
    val dx = block_norm_bwd(k, port_in(k, "dxn"), port_in(k, "x"), gain);
    port_out(k, "dx", k->c->host_residual ? dx : G(k->g, ADD, dx, port_in(k, "dy")));
}

void build_ffn_norm_bwd(kernel *k) { layer_norm_bwd(k, MW_NORM2); }
void build_attn_norm_bwd(kernel *k) { layer_norm_bwd(k, MW_NORM1); }

/* The gradient of what a branch gives, before its factor and its norm. */
static val branch_bwd(kernel *k, model_weight_id post)
{
    val d = nn_scale(k->g, port_in(k, "dy"), k->c->alpha);
    if (!k->c->post_norm) return d;
    d = nn_rmsnorm_bwd(k->g, d, port_in(k, "br"), weight(k, post), k->c->norm_eps);
    port_out(k, "dbr", d);
    return d;
}

void build_ffn_bwd(kernel *k)
{
    val h1 = port_in(k, "h1"), dh1, dh3;
    val dact = nn_linear(k->g, branch_bwd(k, MW_POST2), weight_t(k, MW_W2), NO_VAL);
    if (k->c->act == MODEL_ACT_GELU) {
        dh1 = nn_gelu_bwd(k->g, dact, h1);
        port_out(k, "dxn", nn_linear(k->g, dh1, weight_t(k, MW_W1), NO_VAL));
        port_out(k, "dh1", dh1);
        return;
    }
    (k->c->act == MODEL_ACT_GEGLU ? nn_geglu_bwd : nn_swiglu_bwd)(k->g, dact, h1, port_in(k, "h3"), &dh1, &dh3);
    val a = nn_linear(k->g, dh1, weight_t(k, MW_W1), NO_VAL), b = nn_linear(k->g, dh3, weight_t(k, MW_W3), NO_VAL);
    port_out(k, "dxn", G(k->g, ADD, a, b));
    port_out(k, "dh1", dh1);
    port_out(k, "dh3", dh3);
}

/* Scores [1, NH, S, S] travel between the two halves as [1, NH*S, 1, S]. */
static val flat(kernel *k, val s)
{
    return GA(k->g, RESHAPE, VALS(s), AT_IS(SHAPE, 1, k->heads.n_heads * k->heads.seq, 1, k->heads.seq));
}
/* The same numbers as one matrix per kv head, [1, NKV, G*S, S]. */
static val grouped(kernel *k, val s)
{
    const nn_heads *h = &k->heads;
    return GA(k->g, RESHAPE, VALS(s), AT_IS(SHAPE, 1, h->n_kv_heads, h->n_heads / h->n_kv_heads * h->seq, h->seq));
}

void build_attn_bwd1(kernel *k)
{
    graph *g = k->g;
    const nn_heads *h = &k->heads;
    val da = nn_queries_in(g, nn_linear(g, branch_bwd(k, MW_POST1), weight_t(k, MW_WO), NO_VAL), h);
    val q = nn_queries_in(g, port_in(k, "q"), h), key = nn_keys_in(g, port_in(k, "k"), h),
        v = nn_keys_in(g, port_in(k, "v"), h);
    val p = nn_attn_probs(g, q, key, nn_window_mask(g, k->c->dt, h->seq, model_window(k->c, k->layer)), h);
    port_out(k, "dv", nn_keys_out(g, G(g, MATMUL, da, grouped(k, p)), h)); /* sums over positions and over the group */
    port_out(k, "p", flat(k, p));
    port_out(k, "dp", flat(k, GA(g, MATMUL, VALS(da, v), AT_B(TRANSPOSE_X, true))));
}

/* Back through rotation and head norm: from the gradient of the placed heads to that of the projection. */
static val unplace(kernel *k, val d, val raw, int64_t n, model_weight_id gain, const nn_rope_tables *rope, val *dn)
{
    const nn_heads *h = &k->heads;
    *dn = d;
    if (!rope && !k->c->qk_norm) return d;
    val y = GA(k->g, RESHAPE, VALS(d), AT_IS(SHAPE, n, h->head_dim, 1, h->seq));
    if (rope) y = nn_rope(k->g, y, rope, true);
    *dn = GA(k->g, RESHAPE, VALS(y), AT_IS(SHAPE, 1, n * h->head_dim, 1, h->seq));
    if (!k->c->qk_norm) return *dn;
    val x = GA(k->g, RESHAPE, VALS(raw), AT_IS(SHAPE, n, h->head_dim, 1, h->seq));
    y = nn_rmsnorm_bwd(k->g, y, x, weight(k, gain), k->c->norm_eps);
    return GA(k->g, RESHAPE, VALS(y), AT_IS(SHAPE, 1, n * h->head_dim, 1, h->seq));
}

void build_attn_bwd2(kernel *k)
{
    graph *g = k->g;
    const nn_heads *h = &k->heads;
    val p = grouped(k, port_in(k, "p")), dp = grouped(k, port_in(k, "dp"));
    val q = nn_queries_in(g, port_in(k, "q"), h), key = nn_keys_in(g, port_in(k, "k"), h);
    /* dS = p * (dp - sum_t p dp) / sqrt(HD), and back through the cap of S. Masked places have p = 0 and so dS = 0:
     * the mask needs no second mention. */
    val row = GA(g, REDUCE_SUM, VALS(G(g, MUL, p, dp)), AT_IS(AXES, -1), AT_B(KEEP_DIMS, true));
    val ds = G(g, MUL, p, G(g, SUB, dp, row));
    if (h->softcap != 0)
        ds = nn_softcap_bwd(g, ds, GA(g, MATMUL, VALS(nn_scale(g, q, nn_query_scale(h)), key), AT_B(TRANSPOSE_X, true)),
                            h->softcap);
    ds = nn_scale(g, ds, nn_query_scale(h));
    val dq = nn_queries_out(g, GA(g, MATMUL, VALS(key, ds), AT_B(TRANSPOSE_Y, true)), h);
    val dk = nn_keys_out(g, G(g, MATMUL, q, ds), h); /* sums over positions and over the group */
    nn_rope_tables t, *rope = NULL;
    if (k->c->rope != MODEL_ROPE_NONE) t = block_rope(k), rope = &t;
    bool qkn = k->c->qk_norm;
    val dqn, dkn;
    port_out(k, "dq", unplace(k, dq, qkn ? port_in(k, "qraw") : NO_VAL, h->n_heads, MW_Q_NORM, rope, &dqn));
    port_out(k, "dk", unplace(k, dk, qkn ? port_in(k, "kraw") : NO_VAL, h->n_kv_heads, MW_K_NORM, rope, &dkn));
    if (!qkn) return;
    port_out(k, "dqn", dqn);
    port_out(k, "dkn", dkn);
}

void build_qkv_bwd(kernel *k)
{
    graph *g = k->g;
    val q = nn_linear(g, port_in(k, "dq"), weight_t(k, MW_WQ), NO_VAL),
        key = nn_linear(g, port_in(k, "dk"), weight_t(k, MW_WK), NO_VAL);
    val v = nn_linear(g, port_in(k, "dv"), weight_t(k, MW_WV), NO_VAL);
    port_out(k, "dxn", G(g, ADD, q, G(g, ADD, key, v)));
}
