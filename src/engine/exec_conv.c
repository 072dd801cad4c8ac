/* exec_conv.c: a convolution seen as a matrix product: its geometry, and the columns under its windows.
 * In: x as stored.  Out: B[(channel, tap), place], with zeros where a window reaches into the padding. */
#include "engine/exec_mac_int.h"

geometry exec_geometry(const program *p, const insn *in, bool transposed)
{
    const etensor *x = &p->tensors.at[insn_t(in, "x")], *w = &p->tensors.at[insn_t(in, "w")],
                  *y = &p->tensors.at[insn_t(in, "y")];
    int64_t n;
    const int64_t *stride = insn_is(in, "stride", &n), *pad = insn_is(in, "pad", &n),
                  *dil = insn_is(in, "dilation", &n);
    geometry g = { .batch = x->dim[0],
                   .cin = x->dim[1],
                   .cout = y->dim[1],
                   .groups = insn_i(in, "groups"),
                   .taps = 1,
                   .transposed = transposed };
    int lead = SPATIAL - (x->rank - 2);
    for (int i = 0; i < SPATIAL; i++) {
        int j = i - lead;
        g.in[i] = j < 0 ? 1 : x->dim[j + 2], g.out[i] = j < 0 ? 1 : y->dim[j + 2], g.k[i] = j < 0 ? 1 : w->dim[j + 2];
        g.stride[i] = j < 0 ? 1 : stride[j], g.pad[i] = j < 0 ? 0 : pad[2 * j], g.dil[i] = j < 0 ? 1 : dil[j];
        g.taps *= g.k[i];
    }
    return g;
}

/* Where along axis a the window at o reads tap k; -1: padding. The transpose: which place sends its tap k to o. */
static int64_t reads(const geometry *g, int a, int64_t o, int64_t k)
{
    if (!g->transposed) {
        int64_t p = o * g->stride[a] + k * g->dil[a] - g->pad[a];
        return p < 0 || p >= g->in[a] ? -1 : p;
    }
    int64_t p = o + g->pad[a] - k * g->dil[a];
    return p < 0 || p % g->stride[a] || p / g->stride[a] >= g->in[a] ? -1 : p / g->stride[a];
}

typedef struct {
    const geometry *g;
    const unsigned char *x;
    unsigned char *to;
    int64_t size, p0, n;
} job;

/* One row of places o .. o + n at tap kw of the input row `line`. */
static void fill_line(const job *j, const unsigned char *line, int64_t o, int64_t n, int64_t kw, unsigned char *to)
{
    const geometry *g = j->g;
    size_t size = (size_t)j->size;
    if (!g->transposed && g->stride[2] == 1) { /* zeros, a run, zeros */
        int64_t shift = kw * g->dil[2] - g->pad[2], from = MIN(MAX(-shift - o, 0), n),
                until = MAX(MIN(g->in[2] - shift - o, n), from);
        memset(to, 0, (size_t)from * size);
        memcpy(to + (size_t)from * size, line + (o + from + shift) * j->size, (size_t)(until - from) * size);
        memset(to + (size_t)until * size, 0, (size_t)(n - until) * size);
        return;
    }
    for (int64_t i = 0; i < n; i++, to += size) {
        int64_t at = reads(g, 2, o + i, kw);
        if (at < 0) memset(to, 0, size);
        else memcpy(to, line + at * j->size, size);
    }
}

static void row_task(void *ctx, int64_t row, int thread)
{
    const job *j = ctx;
    const geometry *g = j->g;
    int64_t channel = row / g->taps, tap = row % g->taps, kw = tap % g->k[2], kh = tap / g->k[2] % g->k[1],
            kd = tap / (g->k[1] * g->k[2]);
    const unsigned char *plane = j->x + channel * g->in[0] * g->in[1] * g->in[2] * j->size;
    unsigned char *to = j->to + row * j->n * j->size;
    (void)thread;
    for (int64_t i = 0; i < j->n;) {
        int64_t p = j->p0 + i, ow = p % g->out[2], oh = p / g->out[2] % g->out[1], od = p / (g->out[1] * g->out[2]);
        int64_t n = MIN(g->out[2] - ow, j->n - i), ih = reads(g, 1, oh, kh), id = reads(g, 0, od, kd);
        if (ih < 0 || id < 0) memset(to + i * j->size, 0, (size_t)(n * j->size));
        else fill_line(j, plane + (id * g->in[1] + ih) * g->in[2] * j->size, ow, n, kw, to + i * j->size);
        i += n;
    }
}

void exec_columns(const geometry *g, pool *threads, const void *x, int64_t size, int64_t channels, int64_t p0,
                  int64_t n, void *to)
{
    job j = { .g = g, .x = x, .to = to, .size = size, .p0 = p0, .n = n };
    pool_run(threads, row_task, &j, channels * g->taps);
}
