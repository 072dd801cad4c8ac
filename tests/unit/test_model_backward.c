/* Backward programs: each against its formula in plain loops, and the chain of them against finite differences of
 * the forward maths alone. */
#include "model_t.h"

typedef struct { /* what a difference quotient needs: the scalar dot(c, f(x)) */
    const store *s;
    int64_t S;
    double *x, *q, *k, *v, *h1, *h3;
    const double *w; /* weights of the output's elements */
    model_weight_id gain, bias;
} probe;

/* ---- norms ---- */

static double norm_value(void *user)
{
    probe *p = user;
    double *y = room(p->s->c->dim * p->S);
    m_norm(p->s, p->gain, p->bias, p->gain == MW_NORM_F ? -1 : 1, p->x, y, p->S);
    return dot(y, p->w, p->s->c->dim * p->S);
}

static void norms_match_formula_and_differences(void **state)
{
    (void)state;
    static const struct {
        model_kind kind;
        model_weight_id gain, bias;
    } rows[] = { { MK_FINAL_NORM_BWD, MW_NORM_F, MW_NORM_F_B },
                 { MK_FFN_NORM_BWD, MW_NORM2, MW_NORM2_B },
                 { MK_ATTN_NORM_BWD, MW_NORM1, MW_NORM1_B } };
    rng r = { test_seed("norm backward") };
    for (size_t i = 0; i < COUNT(shapes); i++)
        for (size_t k = 0; k < COUNT(rows); k++) {
            const model_config *c = &shapes[i];
            store s = { c, rng_next(&r) };
            int64_t n = c->dim * c->seq;
            double *x = randoms(&r, n, 0.7), *dn = randoms(&r, n, 1), *res = randoms(&r, n, 1), *want = room(n),
                   *num = room(n);
            bool final = rows[k].kind == MK_FINAL_NORM_BWD, adds = !final && !c->host_residual;
            const double *w = weight_of(&s, rows[k].gain, final ? -1 : 1);
            double eps = nn_eps(c->dt ? c->dt : DT_F16, c->norm_eps);
            if (c->norm == MODEL_NORM_RMS) m_rms_bwd(dn, x, w, eps, want, c->dim, c->seq);
            else m_layer_bwd(dn, x, w, eps, want, c->dim, c->seq);
            probe p = { .s = &s, .S = c->seq, .x = x, .w = dn, .gain = rows[k].gain, .bias = rows[k].bias };
            differences(norm_value, &p, x, n, num);
            for (int64_t j = 0; j < n && adds; j++) want[j] += res[j], num[j] += res[j];
            results o;
            eval_program(c, rows[k].kind, final ? 0 : 1, 0, &s,
                         (const feed[]){ { "dxn", dn }, { "x", x }, { "dy", res } }, adds ? 3 : 2, &o);
            close_to("dx by formula", result(&o, "dx"), want, n, 1e-9);
            close_to("dx by differences", result(&o, "dx"), num, n, 1e-6);
        }
}

/* ---- feed-forward ---- */

static double ffn_value(void *user) /* of the projections */
{
    probe *p = user;
    const model_config *c = p->s->c;
    double *act = room(c->hidden * p->S), *br = room(c->dim * p->S), *y = room(c->dim * p->S);
    m_activate(c, p->h1, p->h3, act, c->hidden * p->S);
    m_linear(weight_of(p->s, MW_W2, 1), bias_of(p->s, MW_B2, 1), act, br, c->dim, c->hidden, p->S);
    m_post(p->s, MW_POST2, 1, br, y, p->S);
    return alpha_of(c) * dot(y, p->w, c->dim * p->S);
}

static double ffn_whole(void *user) /* of the block's input */
{
    probe *p = user;
    return dot(m_ffn_from(p->s, 1, p->x, p->S).y, p->w, p->s->c->dim * p->S);
}

/* Back through alpha and a branch's own norm. */
static double *m_branch_bwd(const store *s, model_weight_id gain, const double *dy, const double *br, int64_t S)
{
    const model_config *c = s->c;
    double *ady = room(c->dim * S), *d = room(c->dim * S);
    for (int64_t j = 0; j < c->dim * S; j++) ady[j] = alpha_of(c) * dy[j];
    if (!c->post_norm) return ady;
    m_rms_bwd(ady, br, weight_of(s, gain, 1), nn_eps(c->dt ? c->dt : DT_F16, c->norm_eps), d, c->dim, S);
    return d;
}

static void feed_forward_matches_formula_and_differences(void **state)
{
    (void)state;
    rng r = { test_seed("ffn backward") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t D = c->dim, H = c->hidden, S = c->seq;
        bool gated = model_gated(c);
        double *x = randoms(&r, D * S, 1), *dy = randoms(&r, D * S, 1);
        m_ffn f = m_ffn_from(&s, 1, x, S);
        double *dact = room(H * S), *dh1 = room(H * S), *dh3 = room(H * S), *dx = room(D * S), *part = room(D * S),
               *dbr = m_branch_bwd(&s, MW_POST2, dy, f.br, S);
        m_linear_t(weight_of(&s, MW_W2, 1), dbr, dact, D, H, S);
        for (int64_t j = 0; j < H * S; j++) {
            double a = f.h1[j], sg = m_sigmoid(a);
            if (c->act == MODEL_ACT_SWIGLU)
                dh1[j] = dact[j] * f.h3[j] * sg * (1 + a * (1 - sg)), dh3[j] = dact[j] * a * sg;
            else { /* the program holds c0, c1 and 3*c1 in its own type */
                double c0 = sqrt(2 / acos(-1)), c1 = 0.044715 * c0, t = tanh(a * (rc(c, c0) + rc(c, c1) * a * a));
                dh1[j] = dact[j] * (gated ? f.h3[j] : 1) * 0.5 *
                         (1 + t + a * (1 - t * t) * (rc(c, c0) + rc(c, 3 * c1) * a * a));
                dh3[j] = dact[j] * 0.5 * a * (1 + t);
            }
        }
        m_linear_t(weight_of(&s, MW_W1, 1), dh1, dx, H, D, S);
        if (gated) {
            m_linear_t(weight_of(&s, MW_W3, 1), dh3, part, H, D, S);
            for (int64_t j = 0; j < D * S; j++) dx[j] += part[j];
        }
        results o;
        feed in[4];
        eval_program(c, MK_FFN_BWD, 1, 0, &s, in, ffn_feeds(c, in, dy, f.h1, f.h3, f.br), &o);
        if (c->post_norm) close_to("dbr", result(&o, "dbr"), dbr, D * S, 1e-9);
        close_to("dxn", result(&o, "dxn"), dx, D * S, 1e-9);
        close_to("dh1", result(&o, "dh1"), dh1, H * S, 1e-9);
        if (gated) close_to("dh3", result(&o, "dh3"), dh3, H * S, 1e-9);

        /* differences. fp16 holds 3*c1 and c1 separately, so the gelu slope differs from the forward's own in the
         * 4th digit */
        double tol = c->act == MODEL_ACT_SWIGLU || c->dt == DT_F32 ? 1e-6 : 2e-3, *num = room(MAX(H, D) * S);
        probe p = { .s = &s, .S = S, .x = x, .h1 = f.h1, .h3 = f.h3, .w = dy };
        differences(ffn_value, &p, f.h1, H * S, num);
        close_to("dh1 by differences", result(&o, "dh1"), num, H * S, tol);
        if (gated) {
            differences(ffn_value, &p, f.h3, H * S, num);
            close_to("dh3 by differences", result(&o, "dh3"), num, H * S, tol);
        }
        /* the whole block: ffn_bwd then ffn_norm_bwd */
        const double *dxn = result(&o, "dxn");
        results o2;
        eval_program(c, MK_FFN_NORM_BWD, 1, 0, &s, (const feed[]){ { "dxn", dxn }, { "x", x }, { "dy", dy } },
                     c->host_residual ? 2 : 3, &o2);
        differences(ffn_whole, &p, x, D * S, num);
        close_to("block by differences", result(&o2, "dx"), num, D * S, tol);
    }
}

/* ---- attention ---- */

static double attn_value(void *user) /* of the projections' outputs */
{
    probe *p = user;
    const model_config *c = p->s->c;
    int64_t Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim, S = p->S;
    double *q = room(Q * S), *k = room(K * S), *attn = room(Q * S), *br = room(c->dim * S), *y = room(c->dim * S);
    model_config one = m_layer_config(c, 1);
    m_place(p->s, MW_Q_NORM, 1, p->q, q, c->n_heads, S, true);
    m_place(p->s, MW_K_NORM, 1, p->k, k, c->n_kv_heads, S, true);
    m_attend(&one, q, k, p->v, attn, NULL, S);
    m_linear(weight_of(p->s, MW_WO, 1), bias_of(p->s, MW_BO, 1), attn, br, c->dim, Q, S);
    m_post(p->s, MW_POST1, 1, br, y, S);
    return alpha_of(c) * dot(y, p->w, c->dim * S);
}

static double attn_whole(void *user) /* of the block's input */
{
    probe *p = user;
    return dot(m_attn_from(p->s, 1, p->x, p->S, true).y, p->w, p->s->c->dim * p->S);
}

typedef struct {
    double *dq, *dk, *dv, *p, *dp, *dqn, *dkn, *dbr;
} m_attn_grads;

/* From the formulas: dV = P^T dA, dP = dA V^T, dS = P (dP - sum P dP) scale, by the slope of a cap, dQ = dS K, dK =
 * dS^T Q; heads of a group add up; then the rotation back, then the head norm. */
static m_attn_grads m_attn_bwd(const store *s, const m_attn *a, const double *dy, int64_t S)
{
    const model_config *c = s->c;
    int64_t NH = c->n_heads, hd = c->head_dim, Q = NH * hd, K = c->n_kv_heads * hd, G = NH / c->n_kv_heads, D = c->dim;
    m_attn_grads g = { room(Q * S),      room(K * S), room(K * S), room(NH * S * S),
                       room(NH * S * S), room(Q * S), room(K * S), m_branch_bwd(s, MW_POST1, dy, a->br, S) };
    double *da = room(Q * S), *attn = room(Q * S), *dqr = room(Q * S), *dkr = room(K * S),
           scale = rc(c, 1 / sqrt(c->query_dim != 0 ? c->query_dim : (double)hd));
    model_config one = m_layer_config(c, 1);
    m_linear_t(weight_of(s, MW_WO, 1), g.dbr, da, D, Q, S);
    m_attend(&one, a->q, a->k, a->v, attn, g.p, S);
    for (int64_t h = 0; h < NH; h++)
        for (int64_t i = 0; i < S; i++) {
            const double *P = g.p + (h * S + i) * S;
            double *dP = g.dp + (h * S + i) * S, row = 0;
            int64_t kv = h / G;
            for (int64_t t = 0; t < S; t++) {
                for (int64_t j = 0; j < hd; j++) {
                    dP[t] += da[(h * hd + j) * S + i] * a->v[(kv * hd + j) * S + t];
                    g.dv[(kv * hd + j) * S + t] += P[t] * da[(h * hd + j) * S + i];
                }
                row += P[t] * dP[t];
            }
            for (int64_t t = 0; t < S; t++) {
                double score = 0;
                for (int64_t j = 0; j < hd; j++)
                    score += scale * a->q[(h * hd + j) * S + i] * a->k[(kv * hd + j) * S + t];
                const double ds = P[t] * (dP[t] - row) * scale *
                                  (c->attn_softcap != 0 ? 1 - pow(tanh(score / c->attn_softcap), 2) : 1);
                for (int64_t j = 0; j < hd; j++) {
                    dqr[(h * hd + j) * S + i] += ds * a->k[(kv * hd + j) * S + t];
                    dkr[(kv * hd + j) * S + t] += ds * a->q[(h * hd + j) * S + i];
                }
            }
        }
    if (c->rope == MODEL_ROPE_NONE)
        memcpy(g.dqn, dqr, (size_t)(Q * S) * sizeof *dqr), memcpy(g.dkn, dkr, (size_t)(K * S) * sizeof *dkr);
    else m_rope(c, dqr, g.dqn, NH, S, true), m_rope(c, dkr, g.dkn, c->n_kv_heads, S, true);
    memcpy(g.dq, g.dqn, (size_t)(Q * S) * sizeof *g.dq), memcpy(g.dk, g.dkn, (size_t)(K * S) * sizeof *g.dk);
    double eps = nn_eps(c->dt ? c->dt : DT_F16, c->norm_eps);
    for (int64_t h = 0; h < NH && c->qk_norm; h++)
        m_rms_bwd(g.dqn + h * hd * S, a->qraw + h * hd * S, weight_of(s, MW_Q_NORM, 1), eps, g.dq + h * hd * S, hd, S);
    for (int64_t h = 0; h < c->n_kv_heads && c->qk_norm; h++)
        m_rms_bwd(g.dkn + h * hd * S, a->kraw + h * hd * S, weight_of(s, MW_K_NORM, 1), eps, g.dk + h * hd * S, hd, S);
    return g;
}

static void attention_matches_formula_and_differences(void **state)
{
    (void)state;
    rng r = { test_seed("attention backward") };
    for (size_t i = 0; i < COUNT(shapes); i++) {
        const model_config *c = &shapes[i];
        store s = { c, rng_next(&r) };
        int64_t D = c->dim, S = c->seq, NH = c->n_heads, Q = NH * c->head_dim, K = c->n_kv_heads * c->head_dim;
        double *x = randoms(&r, D * S, 1), *dy = randoms(&r, D * S, 1);
        print_message("%s\n", c->name);
        m_attn a = m_attn_from(&s, 1, x, S, true);
        m_attn_grads g = m_attn_bwd(&s, &a, dy, S);

        results b1, b2, b3, b4;
        feed in[5];
        eval_program(c, MK_ATTN_BWD1, 1, 0, &s, in, attn_feeds(c, in, a.q, a.k, a.v, dy, a.br), &b1);
        if (c->post_norm) close_to("dbr", result(&b1, "dbr"), g.dbr, D * S, 1e-9);
        close_to("dv", result(&b1, "dv"), g.dv, K * S, 1e-9);
        close_to("p", result(&b1, "p"), g.p, NH * S * S, 1e-9);
        close_to("dp", result(&b1, "dp"), g.dp, NH * S * S, 1e-9);
        eval_program(c, MK_ATTN_BWD2, 1, 0, &s,
                     (const feed[]){ { "p", result(&b1, "p") }, { "dp", result(&b1, "dp") }, { "q", a.q }, { "k", a.k }, { "qraw", a.qraw }, { "kraw", a.kraw } },
                     c->qk_norm ? 6 : 4, &b2);
        close_to("dq", result(&b2, "dq"), g.dq, Q * S, 1e-9);
        close_to("dk", result(&b2, "dk"), g.dk, K * S, 1e-9);
        if (c->qk_norm) {
            close_to("dqn", result(&b2, "dqn"), g.dqn, Q * S, 1e-9);
            close_to("dkn", result(&b2, "dkn"), g.dkn, K * S, 1e-9);
        }
        double *dxn = room(D * S), *part = room(D * S);
        m_linear_t(weight_of(&s, MW_WQ, 1), g.dq, dxn, Q, D, S);
        m_linear_t(weight_of(&s, MW_WK, 1), g.dk, part, K, D, S);
        for (int64_t j = 0; j < D * S; j++) dxn[j] += part[j];
        m_linear_t(weight_of(&s, MW_WV, 1), g.dv, part, K, D, S);
        for (int64_t j = 0; j < D * S; j++) dxn[j] += part[j];
        eval_program(c, MK_QKV_BWD, 1, 0, &s,
                     FEED({ "dq", result(&b2, "dq") }, { "dk", result(&b2, "dk") }, { "dv", result(&b1, "dv") }), &b3);
        close_to("dxn", result(&b3, "dxn"), dxn, D * S, 1e-9);
        eval_program(c, MK_ATTN_NORM_BWD, 1, 0, &s,
                     (const feed[]){ { "dxn", result(&b3, "dxn") }, { "x", x }, { "dy", dy } },
                     c->host_residual ? 2 : 3, &b4);

        double *num = room(MAX(Q, D) * S);
        probe p = { .s = &s, .S = S, .x = x, .q = a.qraw, .k = a.kraw, .v = a.v, .w = dy };
        differences(attn_value, &p, a.qraw, Q * S, num);
        close_to("dq by differences", result(&b2, "dq"), num, Q * S, 1e-6);
        differences(attn_value, &p, a.kraw, K * S, num);
        close_to("dk by differences", result(&b2, "dk"), num, K * S, 1e-6);
        differences(attn_value, &p, a.v, K * S, num);
        close_to("dv by differences", result(&b1, "dv"), num, K * S, 1e-6);
        differences(attn_whole, &p, x, D * S, num); /* norm, projections, rotation, groups, mask, residual: all of it */
        close_to("block by differences", result(&b4, "dx"), num, D * S, 1e-6);
    }
}

/* ---- cross-entropy ---- */

static double loss_value(void *user)
{
    probe *p = user; /* x: logits [V][S]; w: target ids */
    const model_config *c = p->s->c;
    double total = 0;
    for (int64_t t = 0; t < p->S; t++) {
        double sum = 0;
        for (int64_t v = 0; v < c->vocab; v++) sum += exp(p->x[v * p->S + t]);
        total += log(sum) - p->x[(int64_t)p->w[t] * p->S + t];
    }
    return total / (double)p->S * (c->loss_scale ? c->loss_scale : 1);
}

static void cross_entropy_matches_differences(void **state)
{
    (void)state;
    rng r = { test_seed("cross-entropy") };
    const model_config *c = &shapes[1];
    store s = { c, 1 };
    int64_t S = c->seq, V = c->vocab;
    double *l = randoms(&r, V * S, 2), *id = room(S), *hi = room(S), *lo = room(S), *num = room(V * S),
           *got = room(V * S);
    for (int64_t t = 0; t < S; t++) id[t] = (double)rng_below(&r, (uint64_t)V), lo[t] = id[t];
    results o;
    eval_program(
        c, MK_CROSS_ENTROPY, 0, 0, &s,
        FEED({ "logits0", l }, { "logits1", l + 32 * S }, { "logits2", l + 64 * S }, { "hi", hi }, { "lo", lo }), &o);
    for (int k = 0; k < 3; k++) {
        char name[24];
        snprintf(name, sizeof name, "dlogits%d", k);
        memcpy(got + 32 * k * S, result(&o, name), (size_t)(32 * S) * sizeof *got);
    }
    probe p = { .s = &s, .S = S, .x = l, .w = id };
    differences(loss_value, &p, l, V * S, num);
    close_to("dlogits", got, num, V * S, 1e-6);
}

#define TEST(f) cmocka_unit_test_teardown(f, drop_memory)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(norms_match_formula_and_differences),
        TEST(feed_forward_matches_formula_and_differences),
        TEST(attention_matches_formula_and_differences),
        TEST(cross_entropy_matches_differences),
    };
    return cmocka_run_group_tests_name("model backward", tests, NULL, NULL);
}
