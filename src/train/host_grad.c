/* host_grad.c: gradients of weights, in fp32, from what the programs of a layer returned.
 * In: taps of the forward and gradients of the backward pass, [channels, T].  Out: added to the gradients of the books.
 *
 *   matrix  y = W x       dW = dy x^T         bias   db = sum over positions of dy
 *   norm    y = n(x) g    dg = sum of dy n(x)  with n(x) made again from x: dividing y by g would need every g to be other than 0
 *   lookup  x = E[id]     dE[id] += dx
 * Branches are scaled by alpha where they join the residual: dW of their last matrix has the factor too, or the gain
 * of the norm behind it. */
#include <math.h>
#include <stdlib.h>

#include "train/pipe_host.h"

static float *grad_of(const host *h, model_weight_id id, int layer, int64_t row0)
{
    int i = weight_index(h, id, layer);
    return i < 0 ? NULL : h->grad[i] + row0 * h->weight.at[i].type.sh.d[1];
}

static void *scratch(host *h, size_t n)
{
    if (n <= h->scratch_bytes) return h->scratch;
    free(h->scratch);
    h->scratch_bytes = 0;
    if (posix_memalign(&h->scratch, 64, n)) h->scratch = NULL;
    else h->scratch_bytes = n;
    return h->scratch;
}

/* dW += alpha dy x^T: [m, T] times [n, T] transposed. */
static void outer(host *h, float *dw, const float *dy, int64_t m, const float *x, int64_t n, bool branch)
{
    int64_t T = h->c.seq;
    size_t bytes;
    if (h->job.st || !dw) return;
    void *room =
        gemm_scratch_bytes(h->gk, m, n, T, pool_threads(h->p->o.pool), &bytes) ? scratch(h, MAX(bytes, 64u)) : NULL;
    if (!room) {
        diag_nomem(&h->job);
        return;
    }
    gemm_call c = { .kernel = h->gk, .pool = h->p->o.pool, .m = m, .n = n, .k = T, .a_view = { dy, DT_F32, T, 1 },
                    .b = { x, DT_F32, 1, T }, .c = dw, .c_type = DT_F32, .ldc = n,
                    .epi = { .scale = branch ? h->alpha : NULL, .accumulate = true }, .scratch = room,
                    .scratch_bytes = bytes };
    an_status st = gemm_run(&c, &h->job);
    (void)st; /* it is in h->job */
}

static void row_sums(const host *h, float *to, const float *dy, int64_t n, double factor)
{
    int64_t T = h->c.seq;
    for (int64_t i = 0; to && i < n; i++) {
        double s = 0;
        for (int64_t t = 0; t < T; t++) s += dy[i * T + t];
        to[i] += (float)(factor * s);
    }
}

/* mean and 1/sqrt(variance + eps) of every column of x [n, T]. RMS: the mean is 0. */
static void statistics(host *h, const float *x, int64_t n, bool layer)
{
    int64_t T = h->c.seq;
    double eps = nn_eps(h->c.dt, h->c.norm_eps);
    for (int64_t t = 0; t < T; t++) {
        double mean = 0, power = 0;
        for (int64_t i = 0; i < n && layer; i++) mean += x[i * T + t];
        mean /= (double)n;
        for (int64_t i = 0; i < n; i++) power += (x[i * T + t] - mean) * (x[i * T + t] - mean);
        h->mean[t] = (float)mean;
        h->rstd[t] = (float)(1 / sqrt(power / (double)n + eps));
    }
}

static void norm(host *h, float *gain, float *bias, const float *dy, const float *x, int64_t n, bool layer,
                 double factor)
{
    int64_t T = h->c.seq;
    statistics(h, x, n, layer);
    for (int64_t i = 0; i < n; i++) {
        double s = 0;
        for (int64_t t = 0; t < T; t++) s += (double)dy[i * T + t] * ((double)x[i * T + t] - h->mean[t]) * h->rstd[t];
        gain[i] += (float)(factor * s);
    }
    row_sums(h, bias, dy, n, factor);
}

static void block_norm_grad(host *h, model_weight_id gain, model_weight_id bias, int layer, const float *dy,
                            const float *x)
{
    norm(h, grad_of(h, gain, layer, 0), grad_of(h, bias, layer, 0), dy, x, h->c.dim, h->c.norm == MODEL_NORM_LAYER, 1);
}

/* One gain for all heads. */
static void head_norm_grad(host *h, model_weight_id gain, int layer, const float *dy, const float *x, int64_t heads)
{
    int64_t step = h->c.head_dim * h->c.seq;
    for (int64_t i = 0; i < heads; i++)
        norm(h, grad_of(h, gain, layer, 0), NULL, dy + i * step, x + i * step, h->c.head_dim, false, 1);
}

static void linear(host *h, model_weight_id w, model_weight_id b, int layer, const float *dy, int64_t m, const float *x,
                   int64_t n, bool branch)
{
    outer(h, grad_of(h, w, layer, 0), dy, m, x, n, branch);
    row_sums(h, grad_of(h, b, layer, 0), dy, m, branch ? h->c.alpha : 1);
}

/* The last matrix of a branch, whose result joins the residual with gradient dy; dbr and br: gradient and result
 * before the branch's own norm, if it has one. */
static void branch_end(host *h, model_weight_id w, model_weight_id b, model_weight_id post, int layer, const float *dy,
                       const float *dbr, const float *br, const float *x, int64_t n)
{
    linear(h, w, b, layer, h->c.post_norm ? dbr : dy, h->c.dim, x, n, !h->c.post_norm);
    if (h->c.post_norm) norm(h, grad_of(h, post, layer, 0), NULL, dy, br, h->c.dim, false, h->c.alpha);
}

void grad_head(void *user, int64_t unused)
{
    host *h = user;
    if (h->job.st) return;
    const host_io *io = &h->io[MK_HEAD];
    const float *xn = prog_tap(h, MK_HEAD, 0, "xn"), *x = pass_input(h, (int)h->c.n_layers);
    uint64_t t0 = clock_ns();
    (void)unused;
    int parts = model_vocab_parts(&h->c);
    for (int i = 0; i < parts; i++) {
        int64_t first, n = model_vocab_part(&h->c, i, &first);
        outer(h, grad_of(h, h->c.tied ? MW_EMBED : MW_HEAD, -1, first),
              prog_of(h, MK_HEAD, 0)->out[io->n_out - parts + i], n, xn, h->c.dim, false);
    }
    block_norm_grad(h, MW_NORM_F, MW_NORM_F_B, -1, prog_tap(h, MK_HEAD, 0, "dxn"), x);
    host_event(h, "host", "dW head", -1, t0);
}

void grad_layer(void *user, int64_t layer)
{
    host *h = user;
    if (h->job.st) return;
    const model_config *c = &h->c;
    int l = (int)layer;
    int64_t D = c->dim, H = c->hidden, Q = c->n_heads * c->head_dim, K = c->n_kv_heads * c->head_dim;
    uint64_t t0 = clock_ns();
    const float *dy = l + 1 < c->n_layers ? prog_tap(h, MK_ATTN_NORM_BWD, l + 1, "dx") : prog_tap(h, MK_HEAD, 0, "dx");
    const float *mid = prog_tap(h, MK_FFN_NORM_BWD, l, "dx"), *xn = prog_tap(h, MK_FWD_FFN, l, "xn");
    branch_end(h, MW_W2, MW_B2, MW_POST2, l, dy, prog_tap(h, MK_FFN_BWD, l, "dbr"), prog_tap(h, MK_FWD_FFN, l, "br"),
               prog_tap(h, MK_FWD_FFN, l, "act"), H);
    linear(h, MW_W1, MW_B1, l, prog_tap(h, MK_FFN_BWD, l, "dh1"), H, xn, D, false);
    if (model_gated(c)) linear(h, MW_W3, MW_B3, l, prog_tap(h, MK_FFN_BWD, l, "dh3"), H, xn, D, false);
    block_norm_grad(h, MW_NORM2, MW_NORM2_B, l, prog_tap(h, MK_FFN_BWD, l, "dxn"), prog_tap(h, MK_FWD_ATTN, l, "x"));

    xn = prog_tap(h, MK_FWD_ATTN, l, "xn");
    branch_end(h, MW_WO, MW_BO, MW_POST1, l, mid, prog_tap(h, MK_ATTN_BWD1, l, "dbr"),
               prog_tap(h, MK_FWD_ATTN, l, "br"), prog_tap(h, MK_FWD_ATTN, l, "attn"), Q);
    linear(h, MW_WQ, MW_BQ, l, prog_tap(h, MK_ATTN_BWD2, l, "dq"), Q, xn, D, false);
    linear(h, MW_WK, MW_BK, l, prog_tap(h, MK_ATTN_BWD2, l, "dk"), K, xn, D, false);
    linear(h, MW_WV, MW_BV, l, prog_tap(h, MK_ATTN_BWD1, l, "dv"), K, xn, D, false);
    block_norm_grad(h, MW_NORM1, MW_NORM1_B, l, prog_tap(h, MK_QKV_BWD, l, "dxn"), pass_input(h, l));
    if (c->qk_norm) {
        head_norm_grad(h, MW_Q_NORM, l, prog_tap(h, MK_ATTN_BWD2, l, "dqn"), prog_tap(h, MK_FWD_ATTN, l, "qraw"),
                       c->n_heads);
        head_norm_grad(h, MW_K_NORM, l, prog_tap(h, MK_ATTN_BWD2, l, "dkn"), prog_tap(h, MK_FWD_ATTN, l, "kraw"),
                       c->n_kv_heads);
    }
    host_event(h, "host", "dW", l, t0);
}

void grad_embed(void *user, int64_t sequence)
{
    host *h = user;
    if (h->job.st) return;
    const int32_t *ids = h->tokens + sequence * (h->c.seq + 1);
    int64_t D = h->c.dim, T = h->c.seq;
    const float *dx = prog_tap(h, MK_ATTN_NORM_BWD, 0, "dx");
    float *table = grad_of(h, MW_EMBED, -1, 0), *pos = grad_of(h, MW_POS, -1, 0), by = (float)pass_embed_scale(h);
    uint64_t t0 = clock_ns();
    for (int64_t t = 0; t < T; t++) {
        float *row = table + ids[t] * D;
        for (int64_t c = 0; c < D; c++) row[c] += by * dx[c * T + t];
        for (int64_t c = 0; c < D && pos; c++) pos[t * D + c] += dx[c * T + t];
    }
    host_event(h, "host", "dW embed", -1, t0);
}
