/* host_update.c: the update of the books in pieces, so that a layer is updated while the device is at the one before
 * it. In: the step program of the books' trainer.  Out: the same operations as several programs, with the same bits:
 *
 *   measure   the loss, the norm of all gradients, and every single number the update depends on
 *   a shard   weights and moments of one layer, from its gradients and those numbers; the first one: what is outside the layers
 *
 * The program is cut where one number is all that goes across. Measuring is done in the trainer's step, which judges
 * by it; shards of a step that counts go to the work queue, each in front of the jobs that make its layer's weights
 * ready. */
#include <stdlib.h>

#include "lower/lower.h"
#include "train/pipe_host.h"

#define NUMBER "number_" /* ports of numbers that go across, by their value's index */
enum { MEASURE = -1 };

struct host_update {
    graph *g;            /* the whole step, while it is cut */
    VEC(val) number;     /* of g */
    VEC(dev_surface *) s;
    host_shard measure, *at;
    int n;
};

/* ---- cutting ---- */

typedef struct {
    const host_update *u;
    int piece;
    bool *need;          /* per value */
    val nothing;         /* stands for what is on another side */
} knife;

static bool single(const graph *g, val v)
{
    int64_t n;
    return shape_elems(&graph_type(g, v)->sh, &n) && n == 1;
}

static bool crosses(const graph *g, val v)
{
    op_id op = graph_maker(g, v)->op;
    return single(g, v) && graph_type(g, v)->dt == DT_F32 && op != OP_INPUT && op != OP_CONST;
}

/* Which piece an output of the step is of. */
static int piece_of(const host *h, const graph *g, size_t output)
{
    const trainer *t = h->t;
    if (single(g, g->outputs.at[output].v)) return MEASURE;
    for (size_t i = 0; i < t->states.n; i++)
        if (!strcmp(t->states.at[i].out, g->outputs.at[output].name))
            return h->weight.at[t->states.at[i].param].layer + 1;
    return MEASURE;
}

static bool known(const host_update *u, val v)
{
    for (size_t i = 0; i < u->number.n; i++)
        if (u->number.at[i].i == v.i) return true;
    return false;
}

static an_status find_needs(host *h, knife *k, diag *d)
{
    host_update *u = h->update;
    const graph *g = u->g;
    for (size_t i = 0; i < g->outputs.n; i++)
        if (piece_of(h, g, i) == k->piece) k->need[g->outputs.at[i].v.i] = true;
    for (size_t i = 0; i < u->number.n && k->piece == MEASURE; i++) k->need[u->number.at[i].i] = true;
    for (size_t i = g->nodes.n; i-- > 1;) {
        const node *n = &g->nodes.at[i];
        if (n->n_out != 1) return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s %s has several results", n->mil, n->name);
        if (!k->need[n->out.i]) continue;
        if (k->piece == MEASURE || !crosses(g, n->out)) {
            for (int j = 0; j < n->n_in; j++) k->need[n->in[j].i] = true;
        } else if (!known(u, n->out) && !VEC_PUSH(&h->mem, &u->number, n->out)) return diag_nomem(d);
    }
    return AN_OK;
}

static void number_name(val v, char *buf, size_t n) { snprintf(buf, n, "%s%u", NUMBER, (unsigned)v.i); }

static val this_side(copy *c, const node *n, void *user)
{
    knife *k = user;
    char name[32];
    if (!k->need[n->out.i]) return k->nothing;
    if (n->op == OP_INPUT) return graph_input(c->g, graph_value(c->from, n->out)->name, *graph_type(c->from, n->out));
    if (k->piece == MEASURE || !crosses(c->from, n->out)) return NO_VAL;
    number_name(n->out, name, sizeof name);
    return graph_input(c->g, name, *graph_type(c->from, n->out));
}

static void give_out(const host *h, const knife *k, copy *c)
{
    const host_update *u = h->update;
    for (size_t i = 0; i < u->g->outputs.n; i++)
        if (piece_of(h, u->g, i) == k->piece)
            graph_output(c->g, u->g->outputs.at[i].name, c->map[u->g->outputs.at[i].v.i]);
    for (size_t i = 0; i < u->number.n && k->piece == MEASURE; i++) {
        char name[32];
        number_name(u->number.at[i], name, sizeof name);
        graph_output(c->g, name, G(c->g, IDENTITY, c->map[u->number.at[i].i])); /* it may be an output already */
    }
}

static an_status compile(host *h, graph *g, host_shard *to, diag *d)
{
    mil_module *m = NULL;
    strbuf text = { 0 };
    blob_writer blob = { 0 };
    an_status st = lower_to_mil(g, NULL, &m, &blob, d);
    if (!st && blob.count) st = blob_finish(&blob, d);
    if (!st) mil_print(m, &text);
    mil_free(m);
    if (!st && text.oom) st = diag_nomem(d);
    dev_blob file = { .path = "@model_path/weights/weight.bin", .bytes = blob.bytes.at, .n = blob.bytes.n };
    dev_source src = { .text = text.at,
                       .n_text = text.n,
                       .file = g->title,
                       .weights = { .blob = &file, .n_blob = blob.bytes.n ? 1 : 0 } };
    if (!st) st = device_compile(h->cpu, &src, &to->p, d);
    if (!st) st = dev_program_load(to->p, d);
    sb_free(&text);
    sb_free(&blob.bytes);
    return st;
}

static an_status cut(host *h, int piece, host_shard *to, diag *d)
{
    const graph *g = h->update->g;
    copy c;
    knife k = { .u = h->update, .piece = piece, .need = calloc(g->values.n + 1, sizeof *k.need) };
    val *root = calloc(g->values.n + 1, sizeof *root);
    size_t n = 0;
    an_status st = k.need && root ? find_needs(h, &k, d) : diag_nomem(d);
    if (!st) st = copy_begin(&c, g, piece == MEASURE ? "update_measure" : "update_shard", DT_NONE, d);
    if (!st) {
        c.g->next_id = g->next_id; /* names made up here are none of those copied later */
        k.nothing = graph_scalar(c.g, DT_F32, 0);
        c.instead = this_side, c.user = &k;
        for (size_t i = 1; i < g->values.n; i++)
            if (k.need[i]) root[n++] = (val){ .i = (uint32_t)i };
        st = copy_nodes(&c, root, n);
        if (!st) give_out(h, &k, &c);
        if (!st) st = graph_finish(c.g, d);
        if (!st) st = compile(h, c.g, to, d);
        copy_end(&c);
    }
    free(root);
    free(k.need);
    return st;
}

/* ---- opening ---- */

static an_status read_step(host *h, lower_weights *files, mil_module **m, diag *d)
{
    const prog *step = &h->t->prog[PROG_STEP];
    if (!files) return diag_nomem(d);
    if (step->blob.n) TRY(lower_weights_give(files, "@model_path/weights/weight.bin", step->blob.at, step->blob.n, d));
    TRY(mil_parse(step->text, strlen(step->text), 0, m, d));
    return lower_from_mil(*m, &(lower_in){ .weights = files, .need_weights = true }, &h->update->g, d);
}

static an_status make_numbers(host *h, diag *d)
{
    host_update *u = h->update;
    for (size_t i = 0; i < u->number.n; i++) {
        dev_surface *s = NULL;
        uint64_t bytes = MAX(sizeof(float), (uint64_t)device_get_limits(h->cpu)->surface_min);
        TRY(dev_surface_new(h->cpu, bytes, &s, d));
        if (!VEC_PUSH(&h->mem, &u->s, s)) return dev_surface_free(s), diag_nomem(d);
    }
    return AN_OK;
}

static dev_surface *bound_to(const host *h, dev_side side, const char *name)
{
    const host_update *u = h->update;
    for (size_t i = 0; i < u->number.n; i++) {
        char mine[32];
        number_name(u->number.at[i], mine, sizeof mine);
        if (!strcmp(name, mine)) return u->s.at[i];
    }
    return train_surface(h->t, side, name);
}

static an_status run_piece(host *h, host_shard *s, diag *d)
{
    dev_request **r = &s->r[h->t->side[GROUP_ACC]];
    if (!*r) {
        dev_request *fresh;
        TRY(dev_request_new(s->p, &fresh, d));
        an_status st = AN_OK;
        for (int side = 0; side < 2; side++) {
            const dev_port *ports;
            size_t n = dev_program_ports(s->p, (dev_side)side, &ports);
            for (size_t i = 0; i < n && !st; i++)
                st = dev_request_bind_at(fresh, (dev_side)side, i, bound_to(h, (dev_side)side, ports[i].name), d);
        }
        if (st) return dev_request_free(fresh), st;
        *r = fresh;
    }
    return device_run(*r, DEV_QOS, d);
}

static an_status measure(void *user, diag *d)
{
    host *h = user;
    return run_piece(h, &h->update->measure, d);
}

an_status update_open(host *h, diag *d)
{
    host_update *u = h->update = TAKE(&h->mem, host_update, 1);
    if (!u) return diag_nomem(d);
    *u = (host_update){ .n = (int)h->c.n_layers + 1 };
    if (!(u->at = TAKE(&h->mem, host_shard, (size_t)u->n))) return diag_nomem(d);
    memset(u->at, 0, (size_t)u->n * sizeof *u->at);
    lower_weights *files = lower_weights_open(NULL);
    mil_module *m = NULL;
    an_status st = read_step(h, files, &m, d);
    for (int i = 0; i < u->n && !st; i++) st = cut(h, i, &u->at[i], d);
    if (!st) st = cut(h, MEASURE, &u->measure, d);
    graph_free(u->g);
    u->g = NULL;
    mil_free(m);
    lower_weights_close(files);
    if (!st) st = make_numbers(h, d);
    h->t->step_instead = measure, h->t->instead_user = h;
    return st;
}

static void drop_shard(host_shard *s)
{
    for (int i = 0; i < 2; i++) dev_request_free(s->r[i]);
    dev_program_free(s->p);
}

void update_close(host *h)
{
    host_update *u = h->update;
    if (!u) return;
    drop_shard(&u->measure);
    for (int i = 0; i < u->n; i++) drop_shard(&u->at[i]);
    for (size_t i = 0; i < u->s.n; i++) dev_surface_free(u->s.at[i]);
}

/* ---- running ---- */

static void update_job(void *user, int64_t shard)
{
    host *h = user;
    uint64_t t0 = clock_ns();
    if (h->broken) return;
    if (run_piece(h, &h->update->at[shard], &h->job)) h->broken = true;
    host_event(h, "host", "update", (int)shard - 1, t0);
}

void update_push(host *h, int layer)
{
    bool *due = &h->update->at[layer + 1].due;
    if (!*due) return;
    *due = false;
    uint64_t ticket = host_queue_push(h->queue, update_job, h, layer + 1);
    if (layer < 0) h->embedded = ticket;
}

void update_due(host *h)
{
    for (int i = 0; i < h->update->n; i++) h->update->at[i].due = true;
}
