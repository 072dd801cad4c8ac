/* host_pack.c: one input for a whole program: activations and weights side by side along the width of one surface.
 * In: a program with every activation and weight as an input of its own.  Out: the same maths with one input [1, C,
 * 1, W], cut apart inside.
 *
 *        0     T     2T          2T + n0         W
 *      ┌─────┬─────┬────────────┬──────────┬───┐      C is the largest channel count of the activations. A matrix stands as it is where its rows fit
 *    C │  x  │ dy  │  W0        │  W1^T    │ g │      into C, turned where its columns do, else as one run of numbers; what a part does not fill is
 *      └─────┴─────┴────────────┴──────────┴───┘      never read.
 *
 * Products by such a matrix are matmuls: an engine that ignores the run-time weight of a convolution takes two
 * run-time operands of a matmul. Weights are written after an update, activations before every dispatch; one
 * compiled program serves all layers, each with a surface of its own. */
#include <math.h>
#include <stdlib.h>

#include "target/target.h"
#include "train/pipe_host.h"

/* ---- is it wanted? ---- */

/* A rule of the chip that warns of convolutions with run-time weights. */
static an_status rules_object(const host *h, const graph *g, bool *out, diag *d)
{
    arena mem = { 0 };
    op_inst *op;
    findings f = { 0 };
    an_status st = h->chip ? graph_insts(g, &mem, &op, d) : AN_OK;
    for (size_t i = 1; h->chip && i < g->nodes.n && !st; i++) st = rules_check_op(h->chip, &op[i], &mem, &f, d);
    for (size_t i = 0; i < f.n && !st; i++)
        *out |= f.at[i].sev >= SEV_WARNING && !strncmp(f.at[i].rule, "conv-dynamic-weight", 19);
    arena_free(&mem);
    return st;
}

an_status pack_wanted(host *h, const graph *g, diag *d)
{
    int64_t most = device_get_limits(h->p->o.dev)->inputs;
    if (most && (int64_t)g->inputs.n > most) h->packed = true;
    return h->packed ? AN_OK : rules_object(h, g, &h->packed, d);
}

/* ---- where everything stands ---- */

static void place(host_const *c, int64_t C, int64_t at)
{
    const int64_t *dim = c->w.type.sh.d;
    bool vector = dim[0] == 1;
    int64_t rows = vector ? dim[1] : dim[0], cols = vector ? 1 : dim[1], n = rows * cols;
    c->place = rows <= C   ? (host_place){ rows, cols, at, PLACE_ROWS }
               : cols <= C ? (host_place){ cols, rows, at, PLACE_TURNED }
                           : (host_place){ C, (n + C - 1) / C, at, PLACE_RUN };
}

an_status pack_plan(host *h, host_prog *g, diag *d)
{
    model_port ports[MODEL_MAX_PORTS];
    int n = model_kernel_ports(&h->c, &g->id, true, ports);
    g->high = 1, g->wide = n * h->c.seq;
    for (int i = 0; i < n; i++) g->high = MAX(g->high, ports[i].channels);
    for (size_t i = 0; i < g->c.n; i++) {
        place(&g->c.at[i], g->high, g->wide);
        g->wide += g->c.at[i].place.cols;
    }
    double most = h->chip ? chip_limit(h->chip, "max_dim") : (double)INFINITY;
    if ((double)g->wide <= most) return AN_OK;
    return diag_fail(
        d, AN_UNSUPPORTED, NOWHERE,
        "%s: its inputs and weights side by side are %lld wide, and %s takes %g: train fewer tokens of the vocabulary, or take pipeline %s%s%s",
        g->name, (long long)g->wide, device_name(h->p->o.dev), most,
        (double)h->c.vocab <= most ? pipe_name(PIPE_RESIDENT) : "", (double)h->c.vocab <= most ? " or " : "",
        pipe_name(PIPE_DELTA));
}

/* ---- the program ---- */

typedef struct {
    host_prog *g;
    val *matrix;        /* per constant: as [1, 1, rows, cols] of its place */
    int *constant;      /* per value of the open program: which constant it is, or -1 */
} packer;

static val cut(graph *g, val in, int64_t at, int64_t rows, int64_t cols)
{
    return GA(g, SLICE_BY_SIZE, VALS(in), AT_IS(BEGIN, 0, 0, 0, at), AT_IS(SIZE, 1, rows, 1, cols));
}

static val shaped(graph *g, val x, const shape *s)
{
    attr at = AT_LIST(SHAPE, s->d, s->rank);
    return shape_eq(&graph_type(g, x)->sh, s) ? x : graph_op(g, OP_RESHAPE, &x, 1, &at, 1);
}

/* A weight in its own shape again. */
static val whole(graph *g, val part, const host_const *c)
{
    const host_place *p = &c->place;
    int64_t n = 0;
    if (g->err.st || !shape_elems(&c->w.type.sh, &n)) return NO_VAL;
    if (p->form == PLACE_TURNED)
        part = GA(g, TRANSPOSE, VALS(GA(g, RESHAPE, VALS(part), AT_IS(SHAPE, 1, 1, p->rows, p->cols))),
                  AT_IS(PERM, 0, 1, 3, 2));
    if (p->form == PLACE_RUN && p->rows * p->cols != n)
        part = GA(g, SLICE_BY_SIZE, VALS(GA(g, RESHAPE, VALS(part), AT_IS(SHAPE, 1, p->rows * p->cols, 1, 1))),
                  AT_IS(BEGIN, 0, 0, 0, 0), AT_IS(SIZE, 1, n, 1, 1));
    return g->err.st ? NO_VAL : shaped(g, part, &c->w.type.sh);
}

/* y = W x of a 1x1 convolution, x [1, in, 1, S]. */
static val product(copy *c, const node *n, void *user)
{
    packer *k = user;
    graph *g = c->g;
    int i = n->op == OP_CONV ? k->constant[n->in[1].i] : -1;
    if (i < 0 || g->err.st || k->g->c.at[i].place.form == PLACE_RUN) return NO_VAL;
    val x = c->map[n->in[0].i];
    const shape *s = &graph_type(g, x)->sh, y = graph_type(c->from, n->out)->sh;
    if (s->d[0] != 1 || s->d[2] != 1) return NO_VAL;
    val flat = GA(g, RESHAPE, VALS(x), AT_IS(SHAPE, 1, 1, s->d[1], s->d[3]));
    val out = GA(g, MATMUL, VALS(k->matrix[i], flat), AT_B(TRANSPOSE_X, k->g->c.at[i].place.form == PLACE_TURNED));
    attr at = AT_LIST(SHAPE, y.d, y.rank);
    return graph_op_named(g, n->name, OP_RESHAPE, &out, 1, &at, 1);
}

static void cut_apart(packer *k, copy *c, const host *h)
{
    graph *g = c->g;
    host_prog *p = k->g;
    val in = graph_input(g, HOST_PACKED, TTYPE(h->c.dt, 1, p->high, 1, p->wide));
    int n_in = 0;
    /* activations come first, in the order of their ports */
    for (size_t i = 0; i < c->from->inputs.n && !g->err.st; i++) {
        val v = c->from->inputs.at[i];
        const value *from = graph_value(c->from, v);
        int which = -1;
        for (size_t j = 0; j < p->c.n; j++)
            if (!strcmp(p->c.at[j].port, from->name)) which = (int)j;
        k->constant[v.i] = which;
        if (which < 0) {
            c->map[v.i] = cut(g, in, n_in++ * h->c.seq, from->type.sh.d[1], h->c.seq);
            continue;
        }
        const host_place *at = &p->c.at[which].place;
        val part = cut(g, in, at->at, at->rows, at->cols);
        k->matrix[which] = GA(g, RESHAPE, VALS(part), AT_IS(SHAPE, 1, 1, at->rows, at->cols));
        c->map[v.i] = whole(g, part, &p->c.at[which]);
    }
}

an_status pack_program(host *h, host_prog *p, const graph *open, graph **out, diag *d)
{
    copy c;
    packer k = { .g = p };
    TRY(copy_begin(&c, open, open->title, DT_NONE, d));
    c.g->next_id = open->next_id; /* names made up here are none of those copied later */
    val *root = TAKE(&c.g->mem, val, open->outputs.n);
    k.matrix = TAKE(&c.g->mem, val, p->c.n + 1);
    k.constant = TAKE(&c.g->mem, int, open->values.n);
    an_status st = root && k.matrix && k.constant ? AN_OK : diag_nomem(d);
    for (size_t i = 0; i < open->values.n && !st; i++) k.constant[i] = -1;
    for (size_t i = 0; i < open->outputs.n && !st; i++) root[i] = open->outputs.at[i].v;
    if (!st) {
        cut_apart(&k, &c, h);
        c.instead = product, c.user = &k;
        st = copy_nodes(&c, root, open->outputs.n);
    }
    for (size_t i = 0; i < open->outputs.n && !st; i++) graph_output(c.g, open->outputs.at[i].name, c.map[root[i].i]);
    if (!st) st = graph_finish(c.g, d);
    *out = st ? NULL : c.g;
    if (!st) c.g = NULL;
    copy_end(&c);
    return st;
}

/* ---- numbers ---- */

/* rows x cols numbers of x to columns `at` and on of a surface. */
static void put_columns(const host *h, void *surface, const dev_port *p, const int64_t *step, int64_t at,
                        const float *x, int64_t rows, int64_t cols, int64_t n)
{
    int64_t each = step[3];
    for (int64_t r = 0; r < rows && r * cols < n; r++)
        h->vk->store((unsigned char *)surface + r * step[1] + at * each, p->dt, x + r * cols, MIN(cols, n - r * cols));
}

static an_status open_surface(const host *h, const host_prog *g, dev_program *p, const dev_port **ports, int64_t *step,
                              void **at, diag *d)
{
    uint64_t bytes;
    *ports = dev_program_port(p, DEV_INPUT, HOST_PACKED, NULL);
    if (!*ports || !dev_surface_steps(*ports, device_get_limits(h->p->o.dev)->row_bytes, step, &bytes))
        return diag_fail(d, AN_BUG, NOWHERE, "%s has no packed input", g->name);
    return dev_surface_lock(g->packed, false, at, d);
}

an_status pack_activations(host *h, host_prog *g, dev_program *p, const float *const *in, diag *d)
{
    const host_io *io = &h->io[g->id.kind];
    const dev_port *ports;
    int64_t step[DEV_MAX_RANK], T = h->c.seq;
    void *at;
    TRY(open_surface(h, g, p, &ports, step, &at, d));
    for (int i = 0; i < io->n_in; i++)
        put_columns(h, at, ports, step, i * T, in[i], io->in_port[i].channels, T, io->in_port[i].channels * T);
    return dev_surface_unlock(g->packed, d);
}

an_status pack_weight(host *h, host_prog *g, dev_program *p, const host_const *c, const float *x, int64_t n, diag *d)
{
    const dev_port *ports;
    const host_place *to = &c->place;
    int64_t step[DEV_MAX_RANK];
    void *at;
    if (to->form == PLACE_TURNED) { /* x is [cols, rows] of its place */
        h->vk->transpose(h->turned, to->cols, x, to->rows, to->rows, to->cols, sizeof(float));
        x = h->turned;
    }
    TRY(open_surface(h, g, p, &ports, step, &at, d));
    put_columns(h, at, ports, step, to->at, x, to->rows, to->cols, n);
    return dev_surface_unlock(g->packed, d);
}
