/* host_prog.c: the programs of a host-driven pipeline. In: the kernels of model/ and the weights of the books.  Out:
 * compiled programs, their surfaces and requests; dispatches.
 *
 * A program's text is made once. Weights are either constants in files of their own, one record each, filled anew
 * for every version of them, or inputs with a surface each. Programs without weights in them are compiled once for
 * all layers. */
#include <math.h>
#include <stdlib.h>

#include "lower/lower.h"
#include "pass/pass.h"
#include "train/pipe_host.h"

/* ---- text ---- */

typedef struct {
    host *h;
    host_prog *g;
    bool oom;
} taker;

/* Called for every weight a program has: remembers it, leaves it a reference. */
static bool take_const(void *user, const model_weight *w, model_blob *b)
{
    taker *t = user;
    host_const c = { .w = *w, .param = weight_index(t->h, w->id, w->layer) };
    const char *name = strchr(w->name, '.');
    name = w->layer >= 0 && name ? name + 1 : w->name;
    snprintf(c.port, sizeof c.port, "%s", name);
    for (char *s = c.port; *s; s++)
        if (*s == '.') *s = '_';
    snprintf(c.path, sizeof c.path, "%s", b->path);
    t->oom |= !VEC_PUSH(&t->h->mem, &t->g->c, c);
    return true;
}

static an_status lower(host *h, host_prog *g, graph *gr, diag *d)
{
    mil_module *m = NULL;
    strbuf text = { 0 };
    blob_writer blob = { 0 };
    TRY(pass_run(gr, &(pass_options){ .target = h->chip, .level = h->p->o.train.level < 0 ? 0 : 1 }, NULL, d));
    an_status st = lower_to_mil(gr, NULL, &m, &blob, d);
    if (!st && blob.count) st = blob_finish(&blob, d);
    if (!st) mil_print(m, &text);
    mil_free(m);
    if (!st && text.oom) st = diag_nomem(d);
    g->text = text.at, g->blob = blob.bytes;
    return st;
}

static an_status free_on(an_status st, graph *g)
{
    if (st) graph_free(g);
    return st;
}

/* Asked of every kind of program before any is planned: one that has to be packed makes all of them packed. */
static an_status choose_inputs(host *h, diag *d)
{
    for (size_t i = 0; i < h->progs.n && h->way->open && !h->packed; i++) {
        graph *gr;
        if (h->progs.at[i].id.layer) continue;
        TRY(model_program_build_open(&h->c, &h->progs.at[i].id, &gr, d));
        an_status st = pack_wanted(h, gr, d);
        graph_free(gr);
        TRY(st);
    }
    return AN_OK;
}

static an_status make_text(host *h, host_prog *g, diag *d)
{
    taker t = { .h = h, .g = g };
    graph *gr;
    TRY(model_program_build(&h->c, &g->id, &(model_source){ take_const, &t }, &gr, d));
    if (t.oom) return graph_free(gr), diag_nomem(d);
    bool own = g->same == (int)(g - h->progs.at);
    if (h->packed) TRY(free_on(pack_plan(h, g, d), gr));
    if (h->way->open && own) {
        graph_free(gr);
        TRY(model_program_build_open(&h->c, &g->id, &gr, d));
    }
    graph *one = NULL; /* looks into gr's constants */
    an_status st = own && h->packed ? pack_program(h, g, gr, &one, d) : AN_OK;
    if (!st && own) st = lower(h, g, one ? one : gr, d);
    graph_free(one);
    graph_free(gr);
    return st;
}

/* ---- planning ---- */

static float *floats(host *h, int64_t n)
{
    h->buffer_bytes += (uint64_t)n * sizeof(float);
    return arena_take(&h->mem, (size_t)MAX(n, 1), sizeof(float), 64);
}

/* The one of its kind that runs first, and so is planned first. */
static const host_prog *first_of(const host *h, model_kind k)
{
    size_t i = 0;
    while (h->progs.at[i].id.kind != k) i++;
    return &h->progs.at[i];
}

/* The one that runs first of those that differ in weights alone. */
static const host_prog *first_alike(const host *h, const host_prog *g)
{
    size_t i = 0;
    while (!model_program_alike(&h->c, &h->progs.at[i].id, &g->id)) i++;
    return &h->progs.at[i];
}

/* Scores are wanted by the next program alone: one pair of buffers serves all layers. */
static bool passing(const host_prog *g, const char *name)
{
    return g->id.kind == MK_ATTN_BWD1 && (!strcmp(name + 4, "p") || !strcmp(name + 4, "dp"));
}

/* The program whose buffers this one writes over when layers are computed again; itself when there is none. */
static const host_prog *in_turn(const host *h, const host_prog *g)
{
    int sets = g->id.kind == MK_ATTN_NORM_BWD ? HOST_HANDED : HOST_SETS;
    if (!h->kept || !model_kernel_per_layer(g->id.kind)) return g;
    for (const host_prog *o = h->progs.at; o < g; o++)
        if (o->id.kind == g->id.kind && o->id.layer % sets == g->id.layer % sets) return o;
    return g;
}

static an_status make_outputs(host *h, host_prog *g, diag *d)
{
    host_io *io = &h->io[g->id.kind];
    io->n_in = model_kernel_ports(&h->c, &g->id, true, io->in_port);
    io->n_out = model_kernel_ports(&h->c, &g->id, false, io->out_port);
    const host_prog *first = first_of(h, g->id.kind), *before = in_turn(h, g);
    for (int i = 0; i < io->n_out; i++) {
        const host_prog *from = passing(g, io->out_port[i].name) ? first : before;
        g->out[i] = from != g ? from->out[i] : floats(h, io->out_port[i].channels * h->c.seq);
        if (!g->out[i]) return diag_nomem(d);
    }
    return AN_OK;
}

static an_status list_programs(host *h, diag *d)
{
    size_t n = model_program_list(&h->c, MODEL_SET_FUSED, NULL, 0);
    model_program *list = TAKE(&h->mem, model_program, n);
    h->prog_at = TAKE(&h->mem, int, (size_t)MK_COUNT *(size_t)h->c.n_layers);
    if (!list || !h->prog_at || !vec_room(&h->mem, &h->progs.at, &h->progs.cap, n, sizeof *h->progs.at))
        return diag_nomem(d);
    model_program_list(&h->c, MODEL_SET_FUSED, list, n);
    for (size_t i = 0; i < n; i++) {
        host_prog g = { .id = list[i], .same = (int)i };
        if (!model_kernel_per_layer(g.id.kind)) g.id.layer = 0;
        if (model_kernel_per_layer(g.id.kind))
            snprintf(g.name, sizeof g.name, "l%02d_%s", g.id.layer, model_kernel_name(g.id.kind));
        else snprintf(g.name, sizeof g.name, "%s", model_kernel_name(g.id.kind));
        h->prog_at[(int64_t)g.id.kind * h->c.n_layers + g.id.layer] = (int)i;
        h->progs.at[h->progs.n++] = g;
    }
    return AN_OK;
}

static an_status make_blobs(host *h, host_prog *g, diag *d)
{
    for (size_t i = 0; i < g->c.n; i++) {
        host_const *c = &g->c.at[i];
        size_t bytes;
        uint64_t offset;
        blob_writer w = { 0 };
        blob_file f;
        blob_entry e;
        c->w.type.dt = h->c.dt;
        void *zero = shape_bytes(&c->w.type, &bytes) ? calloc(1, bytes) : NULL;
        if (!zero) return diag_nomem(d);
        an_status st = blob_add(&w, h->c.dt, zero, bytes, &offset, d);
        if (!st) st = blob_finish(&w, d);
        c->file = w.bytes;
        free(zero);
        TRY(st);
        TRY(blob_view(c->file.at, c->file.n, &f, d));
        TRY(blob_at(&f, offset, h->c.dt, bytes, &e, d));
        c->at = e.data;
        h->buffer_bytes += c->file.n;
    }
    return AN_OK;
}

an_status prog_plan(host *h, diag *d)
{
    int64_t widest = 1, tall = 1;
    TRY(list_programs(h, d));
    TRY(choose_inputs(h, d));
    for (size_t i = 0; i < h->progs.n; i++) {
        host_prog *g = &h->progs.at[i];
        const host_prog *first = first_alike(h, g);
        if (first != g && (h->way->open || !first->c.n)) g->same = (int)(first - h->progs.at);
        TRY(make_text(h, g, d));
        TRY(make_outputs(h, g, d));
        if (!h->way->open) TRY(make_blobs(h, g, d));
        for (int k = 0; k < h->io[g->id.kind].n_in; k++) tall = MAX(tall, h->io[g->id.kind].in_port[k].channels);
        for (int k = 0; k < h->io[g->id.kind].n_out; k++) tall = MAX(tall, h->io[g->id.kind].out_port[k].channels);
        for (size_t k = 0; k < g->c.n; k++) {
            int64_t n = 0;
            if (shape_elems(&g->c.at[k].w.type.sh, &n)) widest = MAX(widest, n);
        }
    }
    h->stage = floats(h, widest);
    if (h->packed && !(h->turned = floats(h, widest))) return diag_nomem(d);
    for (int i = 0; i < 2 && device_get_limits(h->p->o.dev)->row_bytes; i++)
        if (!(h->pack[i] = arena_take(&h->mem, (size_t)MAX(widest, tall * h->c.seq), sizeof(float), 64)))
            return diag_nomem(d);
    return h->stage ? AN_OK : diag_nomem(d);
}

static void forget(host_prog *g)
{
    dev_request_free(g->r);
    dev_program_free(g->p);
    g->r = NULL, g->p = NULL;
}

void prog_drop(host *h)
{
    for (size_t i = 0; i < h->progs.n; i++) {
        host_prog *g = &h->progs.at[i];
        forget(g);
        for (size_t k = 0; k < g->c.n; k++) sb_free(&g->c.at[k].file), dev_surface_free(g->c.at[k].s);
        dev_surface_free(g->packed);
        free(g->text);
        sb_free(&g->blob);
    }
    for (int k = 0; k < MK_COUNT; k++)
        for (int i = 0; i < MODEL_MAX_PORTS; i++) dev_surface_free(h->io[k].in[i]), dev_surface_free(h->io[k].out[i]);
}

/* ---- numbers in and out of surfaces ---- */

enum { MINE, WORKERS }; /* h->pack */

static an_status put(host *h, int thread, dev_surface *s, const dev_port *p, const float *x, int64_t n, diag *d)
{
    int64_t row = device_get_limits(h->p->o.dev)->row_bytes;
    void *at;
    TRY(dev_surface_lock(s, false, &at, d));
    h->vk->store(row ? h->pack[thread] : at, p->dt, x, n);
    if (row) dev_surface_unpack(p, row, h->pack[thread], at);
    return dev_surface_unlock(s, d);
}

static an_status get(host *h, dev_surface *s, const dev_port *p, float *x, int64_t n, diag *d)
{
    int64_t row = device_get_limits(h->p->o.dev)->row_bytes;
    void *at;
    TRY(dev_surface_lock(s, true, &at, d));
    if (row) dev_surface_pack(p, row, at, h->pack[MINE]);
    h->vk->load(x, p->dt, row ? h->pack[MINE] : at, n);
    return dev_surface_unlock(s, d);
}

/* ---- weights ---- */

/* A weight as this program has it: rows of it, or all, maybe transposed; fp32 in *at. */
static an_status weight_as(host *h, const host_const *c, const float **at, int64_t *n, diag *d)
{
    const int64_t *dim = c->w.type.sh.d;
    const float *all;
    *n = dim[0] * dim[1];
    TRY(books_weight(h, c->param, &all, d));
    if (c->w.transposed) { /* here [cols, rows], in the books [rows, cols] */
        h->vk->transpose(h->stage, dim[1], all + c->w.row0 * dim[0], dim[0], dim[0], dim[1], sizeof(float));
        *at = h->stage;
    } else *at = all + c->w.row0 * dim[1];
    return AN_OK;
}

static dev_program *compiled(const host *h, const host_prog *g) { return h->progs.at[g->same].p; }

/* Weights of the books to its blobs or surfaces; the worker's. */
static an_status prog_fill(host *h, host_prog *g, diag *d)
{
    for (size_t i = 0; i < g->c.n; i++) {
        host_const *c = &g->c.at[i];
        const float *x;
        int64_t n;
        TRY(weight_as(h, c, &x, &n, d));
        an_status st = AN_OK;
        bool open = h->p->kind == PIPE_DYNAMIC; /* h->way is the other thread's */
        const dev_port *p = open && !h->packed ? dev_program_port(compiled(h, g), DEV_INPUT, c->port, NULL) : NULL;
        if (h->packed) st = pack_weight(h, g, compiled(h, g), c, x, n, d);
        else if (!open) h->vk->store(c->file.at + c->at, h->c.dt, x, n);
        else
            st = p ? put(h, WORKERS, c->s, p, x, n, d)
                   : diag_fail(d, AN_BUG, NOWHERE, "%s has no input %s", g->name, c->port);
        diag also = { 0 };
        if (books_done(h, c->param, st ? &also : d) && !st) st = d->st;
        TRY(st);
    }
    return AN_OK;
}

/* ---- compiling ---- */

dev_weights prog_weights(const host_prog *g, dev_blob *blob)
{
    size_t n = 0;
    if (g->blob.n)
        blob[n++] = (dev_blob){ .path = "@model_path/weights/weight.bin", .bytes = g->blob.at, .n = g->blob.n };
    for (size_t i = 0; i < g->c.n; i++)
        if (g->c.at[i].file.n)
            blob[n++] = (dev_blob){ .path = g->c.at[i].path, .bytes = g->c.at[i].file.at, .n = g->c.at[i].file.n };
    return (dev_weights){ .blob = blob, .n_blob = n };
}

an_status prog_compile(host *h, host_prog *g, diag *d)
{
    dev_blob *blob = calloc(g->c.n + 1, sizeof *blob);
    if (!blob) return diag_nomem(d);
    forget(g);
    uint64_t t0 = clock_ns();
    dev_source src = { .text = g->text, .n_text = strlen(g->text), .file = g->name, .weights = prog_weights(g, blob) };
    diag why = { 0 };
    an_status st = device_compile(h->p->o.dev, &src, &g->p, &why);
    if (st && st != AN_NOMEM) {
        host_warn(h, "%s: %s; compiling it once more", g->name, why.msg);
        why = (diag){ 0 };
        st = device_compile(h->p->o.dev, &src, &g->p, &why);
    }
    if (!st) st = dev_program_load(g->p, &why);
    free(blob);
    host_event(h, "device", "compile", g->id.layer, t0);
    if (!st) return AN_OK;
    forget(g);
    return diag_fail(d, st, why.at, "%s: %s", g->name, why.msg);
}

static an_status make_io(host *h, host_prog *g, diag *d)
{
    host_io *io = &h->io[g->id.kind];
    dev_program *p = compiled(h, g);
    if (io->made) return AN_OK;
    for (int i = 0; i < io->n_in && !h->packed; i++)
        if (!io->in[i]) TRY(dev_surface_new(h->p->o.dev, dev_program_surface_bytes(p, DEV_INPUT), &io->in[i], d));
    for (int i = 0; i < io->n_out; i++)
        if (!io->out[i]) TRY(dev_surface_new(h->p->o.dev, dev_program_surface_bytes(p, DEV_OUTPUT), &io->out[i], d));
    io->made = true;
    return AN_OK;
}

static dev_surface *bound_to(const host *h, const host_prog *g, dev_side side, const char *name)
{
    const host_io *io = &h->io[g->id.kind];
    if (side == DEV_INPUT && h->packed) return g->packed;
    for (int i = 0; side == DEV_INPUT && i < io->n_in; i++)
        if (!strcmp(io->in_port[i].name, name)) return io->in[i];
    for (int i = 0; side == DEV_OUTPUT && i < io->n_out; i++)
        if (!strcmp(io->out_port[i].name, name)) return io->out[i];
    for (size_t i = 0; i < g->c.n; i++)
        if (!strcmp(g->c.at[i].port, name)) return g->c.at[i].s;
    return NULL;
}

an_status prog_bind(host *h, host_prog *g, diag *d)
{
    dev_program *p = compiled(h, g);
    if (g->r) return AN_OK;
    TRY(make_io(h, g, d));
    if (h->packed && !g->packed)
        TRY(dev_surface_new(h->p->o.dev, dev_program_surface_bytes(p, DEV_INPUT), &g->packed, d));
    for (size_t i = 0; i < g->c.n && h->way->open && !h->packed; i++)
        if (!g->c.at[i].s) TRY(dev_surface_new(h->p->o.dev, dev_program_surface_bytes(p, DEV_INPUT), &g->c.at[i].s, d));
    dev_request *r;
    TRY(dev_request_new(p, &r, d));
    an_status st = AN_OK;
    for (int side = 0; side < 2; side++) {
        const dev_port *ports;
        size_t n = dev_program_ports(p, (dev_side)side, &ports);
        for (size_t i = 0; i < n && !st; i++) {
            dev_surface *s = bound_to(h, g, (dev_side)side, ports[i].name);
            st = s ? dev_request_bind_at(r, (dev_side)side, i, s, d)
                   : diag_fail(d, AN_BUG, NOWHERE, "%s: nothing is known about its port %s", g->name, ports[i].name);
        }
    }
    if (st) return dev_request_free(r), st;
    g->r = r;
    return AN_OK;
}

/* For events. */
static int place_of(const host_prog *g) { return model_kernel_per_layer(g->id.kind) ? g->id.layer : -1; }

/* ---- new weights ---- */

static void fill_job(void *user, int64_t index)
{
    host *h = user;
    host_prog *g = &h->progs.at[index];
    uint64_t t0 = clock_ns();
    g->unfit = h->job.st ? h->job.st : prog_fill(h, g, &h->job);
    host_event(h, "host", "weights", place_of(g), t0);
}

/* Up the layers, the head, down again. */
static int turn(const host *h, const host_prog *g)
{
    bool up = g->id.kind == MK_FWD_ATTN || g->id.kind == MK_FWD_FFN;
    int L = (int)h->c.n_layers;
    return up ? g->id.layer : g->id.kind == MK_HEAD ? L : 2 * L - g->id.layer;
}

/* Programs whose weights are inputs are there before their weights; others are compiled with them. */
static an_status compile_open(host *h, diag *d)
{
    for (size_t i = 0; i < h->progs.n; i++) {
        host_prog *g = &h->progs.at[i];
        if (g->same == (int)i && !g->p) TRY(prog_compile(h, g, d));
        TRY(prog_bind(h, g, d));
    }
    return AN_OK;
}

an_status prog_sync(host *h, diag *d)
{
    if (!h->stale) return AN_OK;
    h->put_off = false;
    if (h->way->open) TRY(compile_open(h, d));
    host_queue_drain(h->queue);
    h->job = (diag){ 0 };
    update_push(h, -1);
    for (int t = 0; t <= 2 * (int)h->c.n_layers; t++) {
        if (t < h->c.n_layers) update_push(h, t);
        for (size_t i = 0; i < h->progs.n; i++) {
            host_prog *g = &h->progs.at[i];
            if (turn(h, g) != t) continue;
            g->stale = true;
            if (g->c.n) g->filled = host_queue_push(h->queue, fill_job, h, (int64_t)i);
        }
    }
    h->stale = false;
    return AN_OK;
}

/* The weights of the books are in it. */
static an_status ready(host *h, host_prog *g, diag *d)
{
    uint64_t t0 = clock_ns();
    if (!g->stale) return AN_OK;
    if (host_queue_reach(h->queue, g->filled)) host_event(h, "main", "wait", -1, t0);
    if (g->unfit) {
        host_queue_drain(h->queue); /* h->job is the worker's */
        return h->stale = true, diag_fail(d, h->job.st, h->job.at, "%s", h->job.msg);
    }
    TRY(h->way->take(h, g, d));
    g->stale = false;
    return AN_OK;
}

/* ---- running ---- */

/* Remembers the first tensor that is not finite. */
static void look(host *h, const host_prog *g, const char *name, const float *x, int64_t n)
{
    if (isfinite(h->vk->largest(x, n))) return;
    pipe_count(&h->count, x, n);
    if (!h->bad[0]) snprintf(h->bad, sizeof h->bad, "%s of %s", name + 4, g->name);
}

static an_status dispatch(host *h, host_prog *g, diag *d)
{
    h->dispatches++;
    TRY(device_submit(g->r, DEV_QOS, d));
    return device_wait(g->r, d);
}

static an_status send(host *h, host_prog *g, const float *const *in, diag *d)
{
    const host_io *io = &h->io[g->id.kind];
    dev_program *p = compiled(h, g);
    uint64_t t0 = clock_ns();
    if (h->packed) TRY(pack_activations(h, g, p, in, d));
    for (int i = 0; i < io->n_in && !h->packed; i++) {
        const dev_port *q = dev_program_port(p, DEV_INPUT, io->in_port[i].name, NULL);
        if (q) TRY(put(h, MINE, io->in[i], q, in[i], io->in_port[i].channels * h->c.seq, d));
    }
    host_event(h, "main", "to the device", place_of(g), t0);
    return AN_OK;
}

static an_status receive(host *h, host_prog *g, diag *d)
{
    const host_io *io = &h->io[g->id.kind];
    uint64_t t0 = clock_ns();
    for (int i = 0; i < io->n_out; i++) {
        const dev_port *q = dev_program_port(compiled(h, g), DEV_OUTPUT, io->out_port[i].name, NULL);
        int64_t n = io->out_port[i].channels * h->c.seq;
        if (!q) return diag_fail(d, AN_BUG, NOWHERE, "%s has no output %s", g->name, io->out_port[i].name);
        TRY(get(h, io->out[i], q, g->out[i], n, d));
        look(h, g, q->name, g->out[i], n);
    }
    host_event(h, "main", "from the device", place_of(g), t0);
    return AN_OK;
}

an_status prog_run(host *h, model_kind k, int layer, const float *const *in, diag *d)
{
    host_prog *g = prog_of(h, k, layer);
    TRY(ready(h, g, d));
    TRY(send(h, g, in, d));
    uint64_t t0 = clock_ns();
    diag why = { 0 };
    an_status st = dispatch(h, g, &why);
    if (st && st != AN_NOMEM) { /* inputs are as they were: an engine that only stumbled goes on */
        host_warn(h, "%s: %s; running it once more", g->name, why.msg);
        why = (diag){ 0 };
        st = dispatch(h, g, &why);
    }
    host_event(h, "device", model_kernel_name(k), place_of(g), t0);
    return st ? diag_fail(d, st, why.at, "%s: %s", g->name, why.msg) : receive(h, g, d);
}

float *prog_tap(host *h, model_kind k, int layer, const char *name)
{
    const host_io *io = &h->io[k];
    size_t n = strlen(name);
    for (int i = 0; i < io->n_out; i++) { /* "o03_dlogits0": the place, then the name, then the part */
        const char *s = io->out_port[i].name + 4;
        if (!strncmp(s, name, n) && (!s[n] || !strcmp(s + n, "0"))) return prog_of(h, k, layer)->out[i];
    }
    return NULL;
}
