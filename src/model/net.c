/* net.c: the table of trainable networks, their options, and the first values of their parameters. */
#include "model/net_int.h"

enum { MAX_BATCH = 4096, MAX_SIDE = 256, MAX_SEQ = 1024 };

typedef struct {
    net_spec spec;
    int64_t classes;
    void (*build)(net *n);
} row;

static const row rows[] = {
#define NET(id, task_, batch_, seq_, classes_, optimizer_, lr_, lr_end_, decay_, loss_scale_, warmup_, steps_, doc_)                                  \
    { .spec = { .name = #id, .task = NET_##task_, .batch = batch_, .seq = seq_, .optimizer = optimizer_, .lr = lr_, .lr_end = lr_end_, .decay = decay_, \
                .loss_scale = loss_scale_, .warmup = warmup_, .steps = steps_, .doc = doc_ },                                                         \
      .classes = classes_, .build = net_##id },
#include "model/nets.def"
#undef NET
};

size_t net_count(void) { return COUNT(rows); }
const net_spec *net_at(size_t i) { return i < COUNT(rows) ? &rows[i].spec : NULL; }

static const row *find(const char *name)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcmp(rows[i].spec.name, name)) return &rows[i];
    return NULL;
}

const net_spec *net_find(const char *name)
{
    const row *r = find(name);
    return r ? &r->spec : NULL;
}

/* ---- options ---- */

static an_status option(const char *name, const char *what, int64_t *x, int64_t def, int64_t most, diag *d)
{
    if (!*x) *x = def;
    if (*x >= 1 && *x <= most) return AN_OK;
    return diag_fail(d, AN_INPUT, NOWHERE, "network %s: %s of %lld, wanted 1 to %lld", name, what, (long long)*x,
                     (long long)most);
}

static an_status options(const row *r, net_options *o, diag *d)
{
    const char *name = r->spec.name;
    TRY(option(name, "a batch", &o->batch, r->spec.batch, MAX_BATCH, d));
    TRY(option(name, "a number of classes", &o->classes, r->classes, NET_MAX_CLASSES, d));
    if (o->classes < 2)
        return diag_fail(d, AN_INPUT, NOWHERE, "network %s: one class leaves nothing to learn, wanted 2 to %d", name,
                         NET_MAX_CLASSES);
    if (r->spec.task == NET_TEXT) TRY(option(name, "a window", &o->seq, r->spec.seq, MAX_SEQ, d));
    else {
        TRY(option(name, "an image height", &o->height, 28, MAX_SIDE, d));
        TRY(option(name, "an image width", &o->width, 28, MAX_SIDE, d));
    }
    if (!o->dt) o->dt = DT_F16;
    if (o->dt != DT_F16 && o->dt != DT_BF16 && o->dt != DT_F32 && o->dt != DT_F64)
        return diag_fail(d, AN_INPUT, NOWHERE, "network %s: tensors of %s, wanted fp16, bf16, fp32 or fp64", name,
                         dtype_name(o->dt));
    return AN_OK;
}

static an_status unknown(const char *name, diag *d)
{
    char list[200] = "";
    for (size_t i = 0, n = 0; i < COUNT(rows); i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", rows[i].spec.name);
    return diag_fail(d, AN_INPUT, NOWHERE, "no network \"%.60s\"; there are %s", name, list);
}

an_status net_build(const char *name, const net_options *o, net *out, diag *d)
{
    const row *r = find(name);
    *out = (net){ 0 };
    if (!r) return unknown(name, d);
    net n = { .task = r->spec.task, .opt = o ? *o : (net_options){ 0 } };
    TRY(options(r, &n.opt, d));
    n.rows = n.task == NET_TEXT ? n.opt.batch * n.opt.seq : n.opt.batch;
    n.g = graph_new(name, 0);
    if (!n.g) return diag_nomem(d);
    n.x = graph_input(n.g, "x", TTYPE(n.opt.dt, n.rows, n.task == NET_TEXT ? 1 : n.opt.height * n.opt.width));
    n.y = graph_input(n.g, "y", TTYPE(n.opt.dt, n.rows, 1));
    r->build(&n);
    n.loss = net_loss(&n);
    an_status st = n.g->err.st;
    if (st) {
        diag_fail(d, st, NOWHERE, "network %s: %s", name, n.g->err.msg);
        graph_free(n.g);
        return st;
    }
    *out = n;
    return AN_OK;
}

void net_free(net *n)
{
    graph_free(n->g);
    *n = (net){ 0 };
}

/* ---- parameters ---- */

int64_t net_param_count(const net *n, int i)
{
    int64_t count = 0;
    return shape_elems(&graph_type(n->g, n->param[i].v)->sh, &count) ? count : 0;
}

void net_init_fill(const net *n, int i, rng *r, float *out)
{
    const net_param *p = &n->param[i];
    for (int64_t k = 0, count = net_param_count(n, i); k < count; k++) {
        switch (p->init) {
        case NET_ZEROS: out[k] = 0; break;
        case NET_ONES: out[k] = 1; break;
        case NET_NORMAL: out[k] = (float)(p->scale * rng_normal(r)); break;
        case NET_UNIFORM: out[k] = (float)rng_range(r, -p->scale, p->scale); break;
        }
    }
}

/* ---- the table ---- */

static const char head[] =
    "| network | data | batch | optimizer | rate | ends at | decay | loss scale | steps | layers |\n|---|---|---|---|---|---|---|---|---|---|\n";

void net_print(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    if (markdown) sb_puts(b, head);
    for (size_t i = 0; i < COUNT(rows); i++) {
        const net_spec *s = &rows[i].spec;
        const char *task = s->task == NET_TEXT ? "text" : "images";
        if (json)
            sb_printf(b, "{\"network\":\"%s\",\"data\":\"%s\",\"batch\":%lld,\"optimizer\":\"%s\",\"lr\":%g,\"lr_end\":%g,\"decay\":%g,\"loss_scale\":%g,\"warmup\":%lld,\"steps\":%lld,\"doc\":\"%s\"}\n",
                      s->name, task, (long long)s->batch, s->optimizer, s->lr, s->lr_end, s->decay, s->loss_scale, (long long)s->warmup, (long long)s->steps, s->doc);
        else if (markdown)
            sb_printf(b, "| %s | %s | %lld | %s | %g | %g | %g | %g | %lld | %s |\n", s->name, task,
                      (long long)s->batch, s->optimizer, s->lr, s->lr * s->lr_end, s->decay, s->loss_scale,
                      (long long)s->steps, s->doc);
        else
            sb_printf(b, "%-9s %-7s batch %-3lld %-9s lr %-6g %lld steps\n    %s\n", s->name, task, (long long)s->batch,
                      s->optimizer, s->lr, (long long)s->steps, s->doc);
    }
}
