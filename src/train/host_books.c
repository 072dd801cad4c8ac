/* host_books.c: the host's weights, moments and update.
 * In: gradients.  Out: weights; states and files as every trainer has them.
 *
 * The optimizer is not written a second time: the books are a trainer on the cpu device whose loss is  loss + unit *
 * sum g.w  with g and unit as batch inputs, so the gradient by w is unit * g. Clipping, accumulation, decay, the
 * loss scale and its history, what is skipped, names and files are the trainer's, in fp32; a checkpoint of
 * `resident` on cpu opens here and the other way round. */
#include <math.h>
#include <stdlib.h>

#include "train/pipe_host.h"

static const char LOSS[] = "host_loss", UNIT[] = "host_unit", GRAD[] = "grad_";

static val over(graph *g, val x, int64_t axis)
{
    return GA(g, REDUCE_SUM, VALS(x), AT_LIST(AXES, &axis, 1), AT_B(KEEP_DIMS, true));
}

/* Down the columns first, which is wide work. */
static val product(graph *g, val w, val dw)
{
    return GA(g, RESHAPE, VALS(over(g, over(g, G(g, MUL, w, dw), 0), 1)), AT_IS(SHAPE, 1));
}

static an_status build(host *h, graph *g, train_param *list, val *out, diag *d)
{
    val loss = graph_input(g, LOSS, TTYPE(DT_F32, 1)), unit = graph_input(g, UNIT, TTYPE(DT_F32, 1)), sum = NO_VAL;
    for (size_t i = 0; i < h->weight.n; i++) {
        const model_weight *m = &h->weight.at[i];
        char name[40], dname[48];
        pipe_weight_name(m->id, m->layer, name, sizeof name);
        snprintf(dname, sizeof dname, "%s%s", GRAD, name);
        ttype type = { DT_F32, m->type.sh };
        val w = graph_input(g, name, type), dw = graph_input(g, dname, type), s = product(g, w, dw);
        list[i] = (train_param){ .name = arena_str(&h->mem, name), .decay = pipe_decays(m) };
        if (!list[i].name) return diag_nomem(d);
        sum = i ? G(g, ADD, sum, s) : s;
    }
    *out = G(g, ADD, loss, G(g, MUL, unit, sum));
    graph_output(g, "loss", *out);
    return graph_finish(g, d);
}

static an_status check(const host *h, diag *d)
{
    if (h->p->o.train.state != TRAIN_F16) return AN_OK;
    return diag_fail(d, AN_USAGE, NOWHERE,
                     "pipeline %s keeps weights and moments on the host in fp32; a state of fp16 is for %s",
                     pipe_name(h->p->kind), pipe_name(PIPE_RESIDENT));
}

an_status books_open(host *h, diag *d)
{
    TRY(check(h, d));
    TRY(device_open(&h->cpu, "cpu", &(device_options){ .pool = h->p->o.pool, .threads = 1 }, d));
    train_param *list = TAKE(&h->mem, train_param, h->weight.n);
    h->grad = TAKE(&h->mem, float *, h->weight.n);
    graph *g = graph_new("host_update", 0);
    train_options o = h->p->o.train;
    an_status st = list && h->grad && g ? build(h, g, list, &o.loss, d) : diag_nomem(d);
    o.engine = NULL, o.dev = h->cpu, o.param = list, o.n_param = h->weight.n, o.fetch = NULL, o.n_fetch = 0,
    o.state = TRAIN_F32;
    if (o.loss_scale == 0 && h->chip) o.loss_scale = 1024;
    if (!st) st = train_open(&h->t, g, &o, d);
    graph_free(g);
    if (!st && h->chip) h->t->scale.largest = 0x1p15; /* gradients on their way through the device are fp16 */
    return st;
}

void books_close(host *h)
{
    train_close(h->t);
    device_close(h->cpu);
}

static dev_surface *weight_surface(const host *h, int weight)
{
    return state_now(h->t, &h->t->states.at[h->t->params.at[weight].w]);
}

an_status books_weight(host *h, int weight, const float **at, diag *d)
{
    void *p;
    pthread_mutex_lock(&h->look_up);
    an_status st = dev_surface_lock(weight_surface(h, weight), true, &p, d);
    if (st) return pthread_mutex_unlock(&h->look_up), st;
    *at = p;
    return AN_OK;
}

an_status books_done(host *h, int weight, diag *d)
{
    an_status st = dev_surface_unlock(weight_surface(h, weight), d);
    pthread_mutex_unlock(&h->look_up);
    return st;
}

/* Inputs of the graph in the order of build(): loss, unit, then gradients; weights are states. */
static batch_input *grad_input(const host *h, size_t i) { return &h->t->inputs.at[2 + i]; }

an_status books_lock(host *h, diag *d)
{
    for (size_t i = 0; i < h->weight.n; i++) {
        batch_input *b = grad_input(h, i);
        void *at;
        TRY(dev_surface_lock(b->s, false, &at, d));
        h->locked = true;
        h->grad[i] = memset(at, 0, b->bytes);
        b->set = true;
    }
    return AN_OK;
}

an_status books_unlock(host *h, diag *d)
{
    an_status st = AN_OK;
    for (size_t i = 0; i < h->weight.n && h->locked; i++) {
        if (h->grad[i] && dev_surface_unlock(grad_input(h, i)->s, d)) st = d->st;
        h->grad[i] = NULL;
    }
    h->locked = false;
    return st;
}

double books_scale(const host *h) { return h->t->scale.scale; }

static an_status put_number(host *h, const char *name, double x, diag *d)
{
    float f = (float)x;
    for (size_t i = 0; i < h->t->inputs.n; i++) {
        batch_input *b = &h->t->inputs.at[i];
        if (strcmp(b->name, name)) continue;
        b->set = true;
        /* a loss that is no number must get there */
        return surface_put(h->t, b->s, &b->type, DT_F32, &f, false, name, d);
    }
    return diag_fail(d, AN_BUG, NOWHERE, "the books have no input %s", name);
}

/* The books' own numbers are fp32: that gradients which came from a chip are 0 everywhere they have to be told. */
an_status books_step(host *h, double loss, double unit, double lr, train_report *r, diag *d)
{
    const bool nothing = h->chip && isfinite(loss) && !h->any_gradient && (loss != 0 || h->t->accum == 1);
    if (nothing && !h->t->group) h->t->group = VERDICT_NOTHING, h->t->group_loss = loss;
    TRY(put_number(h, LOSS, loss, d));
    TRY(put_number(h, UNIT, 1 / unit, d));
    an_status st = train_step(h->t, lr, r, d);
    if (isfinite(r->loss) || !isfinite(loss) || nothing) r->loss = loss;
    return st;
}
