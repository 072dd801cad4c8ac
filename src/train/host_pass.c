/* host_pass.c: one sequence through the layers and back. In: token ids.  Out: the loss; taps and gradients of
 * activations in the programs' buffers; jobs for the weight gradients.
 *
 * Residuals are added by the programs, or by the host in fp32 when the configuration says so. */
#include "train/pipe_host.h"

enum { MOST = 8 };
typedef struct {
    const float *at[MOST];
    int n;
} feeds;

/* Ports a configuration does not have are left out, as in kernels.def. */
static void feed(feeds *f, const float *x, bool there)
{
    if (there) f->at[f->n++] = x;
}
#define ALWAYS true

static void add(const host *h, int layer, float *y, const float *x)
{
    int64_t n = h->c.dim * h->c.seq;
    uint64_t t0 = clock_ns();
    for (int64_t i = 0; i < n; i++) y[i] += x[i];
    host_event(h, "main", "residual", layer, t0);
}

enum { UP, DOWN };

/* The sequence before went through the same buffers: its gradients may still be in the making. So may the tables. */
static void until(host *h, uint64_t ticket)
{
    uint64_t t0 = clock_ns();
    if (host_queue_reach(h->queue, ticket)) host_event(h, "main", "wait", -1, t0);
}

double pass_embed_scale(const host *h) { return h->c.embed_scale != 0 ? h->c.embed_scale : 1; }

/* Rows of the table, one column per position. */
static an_status embed(host *h, diag *d)
{
    int64_t D = h->c.dim, T = h->c.seq;
    int table = weight_index(h, MW_EMBED, -1), pos = weight_index(h, MW_POS, -1);
    const float *w, by = (float)pass_embed_scale(h);
    uint64_t t0 = clock_ns();
    TRY(books_weight(h, table, &w, d));
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < D; c++) h->x0[c * T + t] = by * w[h->ids[t] * D + c];
    TRY(books_done(h, table, d));
    if (pos >= 0) {
        TRY(books_weight(h, pos, &w, d));
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < D; c++) h->x0[c * T + t] += w[t * D + c];
        TRY(books_done(h, pos, d));
    }
    host_event(h, "main", "embed", -1, t0);
    return AN_OK;
}

float *pass_input(host *h, int l) { return h->kept ? h->kept[l] : l ? prog_tap(h, MK_FWD_FFN, l - 1, "x") : h->x0; }

static an_status up(host *h, int l, diag *d)
{
    const float *x = pass_input(h, l);
    TRY(prog_run(h, MK_FWD_ATTN, l, &x, d));
    float *mid = prog_tap(h, MK_FWD_ATTN, l, "x"), *y = prog_tap(h, MK_FWD_FFN, l, "x");
    if (h->c.host_residual) add(h, l, mid, x);
    const float *in = mid;
    TRY(prog_run(h, MK_FWD_FFN, l, &in, d));
    if (h->c.host_residual) add(h, l, y, mid);
    return AN_OK;
}

/* The last layers' taps are still there when the way back begins; the worker may be at the one above, so what is
 * kept is not written again. */
static an_status up_again(host *h, int l, diag *d)
{
    if (!h->kept || l + HOST_SETS >= h->c.n_layers) return AN_OK;
    return up(h, l, d);
}

static an_status head(host *h, double *loss, diag *d)
{
    int64_t T = h->c.seq;
    float ratio = (float)((h->look_scale != 0 ? h->look_scale : books_scale(h)) / h->c.loss_scale);
    for (int64_t t = 0; t < T; t++) {
        h->digit[0][t] = (float)(h->targets[t] / MODEL_ID_BASE),
        h->digit[1][t] = (float)(h->targets[t] % MODEL_ID_BASE);
        h->seed[t] = ratio;
    }
    const float *in[] = { pass_input(h, (int)h->c.n_layers), h->digit[0], h->digit[1], h->seed };
    TRY(prog_run(h, MK_HEAD, 0, in, d));
    const float *each = prog_tap(h, MK_HEAD, 0, "loss");
    uint64_t t0 = clock_ns();
    *loss = 0;
    for (int64_t t = 0; t < T; t++) *loss += each[t];
    host_event(h, "main", "loss", -1, t0);
    return AN_OK;
}

an_status pass_forward(host *h, const int32_t *tokens, double *loss, diag *d)
{
    h->ids = tokens, h->targets = tokens + 1;
    until(h, h->read[UP]);
    until(h, h->embedded);
    TRY(embed(h, d));
    for (int l = 0; l < h->c.n_layers; l++) {
        TRY(up(h, l, d));
        if (h->kept)
            memcpy(h->kept[l + 1], prog_tap(h, MK_FWD_FFN, l, "x"), (size_t)(h->c.dim * h->c.seq) * sizeof(float));
    }
    return head(h, loss, d);
}

static an_status down(host *h, int l, const float *dy, diag *d)
{
    bool gated = model_gated(&h->c), qkn = h->c.qk_norm, post = h->c.post_norm, inside = !h->c.host_residual;
    feeds f = { 0 };
    feed(&f, dy, ALWAYS);
    feed(&f, prog_tap(h, MK_FWD_FFN, l, "h1"), ALWAYS);
    feed(&f, prog_tap(h, MK_FWD_FFN, l, "h3"), gated);
    feed(&f, prog_tap(h, MK_FWD_FFN, l, "br"), post);
    TRY(prog_run(h, MK_FFN_BWD, l, f.at, d));

    float *mid = prog_tap(h, MK_FFN_NORM_BWD, l, "dx"), *dx = prog_tap(h, MK_ATTN_NORM_BWD, l, "dx");
    f.n = 0;
    feed(&f, prog_tap(h, MK_FFN_BWD, l, "dxn"), ALWAYS);
    feed(&f, prog_tap(h, MK_FWD_ATTN, l, "x"), ALWAYS);
    feed(&f, dy, inside);
    TRY(prog_run(h, MK_FFN_NORM_BWD, l, f.at, d));
    if (!inside) add(h, l, mid, dy);

    const float *q = prog_tap(h, MK_FWD_ATTN, l, "q"), *k = prog_tap(h, MK_FWD_ATTN, l, "k");
    f.n = 0;
    feed(&f, q, ALWAYS);
    feed(&f, k, ALWAYS);
    feed(&f, prog_tap(h, MK_FWD_ATTN, l, "v"), ALWAYS);
    feed(&f, mid, ALWAYS);
    feed(&f, prog_tap(h, MK_FWD_ATTN, l, "br"), post);
    TRY(prog_run(h, MK_ATTN_BWD1, l, f.at, d));
    f.n = 0;
    feed(&f, prog_tap(h, MK_ATTN_BWD1, l, "p"), ALWAYS);
    feed(&f, prog_tap(h, MK_ATTN_BWD1, l, "dp"), ALWAYS);
    feed(&f, q, ALWAYS);
    feed(&f, k, ALWAYS);
    feed(&f, prog_tap(h, MK_FWD_ATTN, l, "qraw"), qkn);
    feed(&f, prog_tap(h, MK_FWD_ATTN, l, "kraw"), qkn);
    TRY(prog_run(h, MK_ATTN_BWD2, l, f.at, d));

    const float *dqkv[] = { prog_tap(h, MK_ATTN_BWD2, l, "dq"), prog_tap(h, MK_ATTN_BWD2, l, "dk"),
                            prog_tap(h, MK_ATTN_BWD1, l, "dv") };
    TRY(prog_run(h, MK_QKV_BWD, l, dqkv, d));
    f.n = 0;
    feed(&f, prog_tap(h, MK_QKV_BWD, l, "dxn"), ALWAYS);
    feed(&f, pass_input(h, l), ALWAYS);
    feed(&f, mid, inside);
    TRY(prog_run(h, MK_ATTN_NORM_BWD, l, f.at, d));
    if (!inside) add(h, l, dx, mid);
    return AN_OK;
}

an_status pass_backward(host *h, int64_t sequence, diag *d)
{
    const float *dy = prog_tap(h, MK_HEAD, 0, "dx");
    until(h, h->read[DOWN]);
    host_queue_push(h->queue, grad_head, h, 0);
    for (int l = (int)h->c.n_layers - 1; l >= 0; l--) {
        uint64_t t0 = clock_ns();
        /* who reads the buffers this layer writes over is done; the layer above may still be read */
        if (h->kept && host_queue_wait(h->queue, 1)) host_event(h, "main", "wait", -1, t0);
        TRY(up_again(h, l, d));
        TRY(down(h, l, dy, d));
        /* reads what stands in this layer's buffers and above */
        h->read[UP] = host_queue_push(h->queue, grad_layer, h, l);
        dy = prog_tap(h, MK_ATTN_NORM_BWD, l, "dx");
    }
    h->read[DOWN] = host_queue_push(h->queue, grad_embed, h, sequence);
    return AN_OK;
}
