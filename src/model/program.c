/* program.c: from a row of kernels.def to a finished graph: ports, weights, and the lists of programs a step runs.
 * In: a configuration and which program.  Out: a verified graph whose port names sort into their declared order. */
#include "model/model_int.h"

#define TRAIN   MODEL_SET_TRAIN
#define PREFILL MODEL_SET_PREFILL
#define DECODE  MODEL_SET_DECODE
#define FUSED   MODEL_SET_FUSED
const kernel_row kernel_rows[MK_COUNT] = {
#define KERNEL(id, nm, sets_, scope_, in_, out_, doc_) \
    [MK_##id] = { .name = #nm, .doc = doc_, .in = in_, .out = out_, .sets = sets_, .scope = RUN_##scope_, .build = build_##nm },
#include "model/kernels.def"
#undef KERNEL
};
static const kernel_row *const rows = kernel_rows;

const char *model_kernel_name(model_kind k) { return rows[k].name; }
bool model_kernel_per_layer(model_kind k) { return rows[k].scope != RUN_ONCE; }

bool model_kernel_find(const char *name, model_kind *k)
{
    for (int i = 0; i < MK_COUNT; i++)
        if (!strcmp(rows[i].name, name)) return *k = (model_kind)i, true;
    return false;
}

/* ---- ports ---- */

/* One port of a row as written: "dres:D?r". */
typedef struct {
    const char *name;
    int n;
    char channels, when;
    bool parts;
} port_spec;

static bool next_port(const char **at, port_spec *p)
{
    const char *s = *at;
    while (*s == ' ') s++;
    if (!*s) return false;
    p->name = s;
    p->n = (int)strcspn(s, ":");
    s += p->n + 1;
    p->channels = *s++;
    p->parts = *s == '*';
    if (p->parts) s++;
    p->when = *s == '?' ? s[1] : 0;
    if (p->when) s += 2;
    *at = s;
    return true;
}

static bool port_there(const model_config *c, char when)
{
    switch (when) {
    case 'g': return model_gated(c);
    case 'n': return c->qk_norm;
    case 'p': return c->post_norm;
    case 'r': return !c->host_residual;
    default: return true;
    }
}

static int64_t port_channels(const model_config *c, char letter, int64_t seq)
{
    switch (letter) {
    case 'D': return c->dim;
    case 'H': return c->hidden;
    case 'Q': return c->n_heads * c->head_dim;
    case 'K': return c->n_kv_heads * c->head_dim;
    case 'A': return c->n_heads * seq;
    default: return 1;
    }
}

/* Where the ports called `name` begin, and how many there are: 0 when the row has none. name NULL: all of them. */
static int find_ports(const model_config *c, const char *spec, const char *name, int64_t seq, int *first,
                      model_port *all, char tag)
{
    int at = 0, found = 0;
    port_spec p;
    for (const char *s = spec; next_port(&s, &p);) {
        if (!port_there(c, p.when)) continue;
        int n = p.parts ? MIN(model_vocab_parts(c), NN_MAX_PARTS) : 1; /* a checked config never has more */
        if (name && (int)strlen(name) == p.n && !strncmp(name, p.name, (size_t)p.n)) *first = at, found = n;
        for (int i = 0; i < n && all; i++) {
            model_port *o = &all[at + i];
            *o = (model_port){ .channels = p.parts ? model_vocab_part(c, i, NULL) : port_channels(c, p.channels, seq) };
            /* two digits in front: strings sort as numbers up to 99, and MODEL_MAX_PORTS is below that */
            if (p.parts)
                snprintf(o->name, sizeof o->name, "%c%02d_%.*s%d", tag, (at + i) % 100, MIN(p.n, 12), p.name, i % 100);
            else snprintf(o->name, sizeof o->name, "%c%02d_%.*s", tag, at % 100, MIN(p.n, 12), p.name);
        }
        at += n;
    }
    return name ? found : at;
}

static int64_t seq_of(const model_config *c, const model_program *p)
{
    if (p->seq) return p->seq;
    return rows[p->kind].sets == DECODE ? MODEL_DECODE_SLOTS : c->seq;
}

int model_kernel_ports(const model_config *c, const model_program *p, bool inputs, model_port *out)
{
    return find_ports(c, inputs ? rows[p->kind].in : rows[p->kind].out, NULL, seq_of(c, p), NULL, out,
                      inputs ? 'i' : 'o');
}

int ports_in(kernel *k, const char *name, const val **at)
{
    int first = 0, n = find_ports(k->c, k->spec_in, name, k->heads.seq, &first, NULL, 'i');
    if (!n) graph_fail(k->g, AN_BUG, "%s has no input %s", k->g->title, name);
    *at = &k->in[first];
    return n;
}

val port_in(kernel *k, const char *name)
{
    const val *at;
    return ports_in(k, name, &at) ? *at : NO_VAL;
}

void port_out_part(kernel *k, const char *name, int part, val v)
{
    int first = 0, n = find_ports(k->c, k->spec_out, name, k->heads.seq, &first, NULL, 'o');
    if (part < n) k->out[first + part] = v;
    else graph_fail(k->g, AN_BUG, "%s has no output %s (part %d)", k->g->title, name, part);
}

void port_out(kernel *k, const char *name, val v) { port_out_part(k, name, 0, v); }

/* ---- weights ---- */

/* A matrix [rows, cols, 1, 1] by one of the engine's weight forms. */
static val compressed(graph *g, const char *name, const model_weight *w, const model_blob *b)
{
    int64_t n_rows = w->type.sh.d[0], cols = w->type.sh.d[1];
    char part[48];
    if (b->scale_cols < 0 || (!b->palette && (b->scale_cols < 1 || cols % b->scale_cols))) {
        graph_fail(g, AN_INPUT, "%s: %lld scales for rows of %lld", w->name, (long long)b->scale_cols, (long long)cols);
        return NO_VAL;
    }
    snprintf(part, sizeof part, "%s_q", name);
    val q = graph_const_blob(g, part, TTYPE(b->q, n_rows, cols, 1, 1), b->path, b->offset, b->data);
    snprintf(part, sizeof part, "%s_s", name);
    ttype aux = b->palette           ? TTYPE(w->type.dt, 1, 1, 1, 1, 16, 1)
                : b->scale_cols == 1 ? TTYPE(w->type.dt, n_rows)
                                     : TTYPE(w->type.dt, n_rows, b->scale_cols, 1, 1);
    val s = graph_const_blob(g, part, aux, b->aux_path, b->aux_offset, NULL);
    if (b->palette) return graph_op_named(g, name, OP_CX_LUT, VALS(q, s), NULL, 0);
    if (b->scale_cols > 1) return graph_op_named(g, name, OP_CX_BLOCK, VALS(q, s), NULL, 0);
    val zero = graph_scalar(g, b->q, 0);
    return graph_op_named(g, name, OP_CX_AFFINE, VALS(q, s, zero), (const attr[]){ AT_I(AXIS, 0) }, 1);
}

/* A constant once per program: asking again gives the same value. */
static val constant(kernel *k, const model_weight *w, const char *const_name)
{
    if (k->g->err.st) return NO_VAL;
    val there = graph_find(k->g, const_name);
    if (there.i) return there;
    if (k->param_inputs) return graph_input(k->g, const_name, w->type);
    char path[80], aux[80];
    snprintf(path, sizeof path, "@model_path/weights/%s.bin", w->name);
    snprintf(aux, sizeof aux, "@model_path/weights/%s.scale.bin", w->name);
    model_blob b = { .path = path, .offset = 64, .aux_path = aux, .aux_offset = 64 };
    if (k->src && !k->src->get(k->src->user, w, &b)) {
        graph_fail(k->g, AN_INPUT, "%s: the weight source has no %s", k->g->title, w->name);
        return NO_VAL;
    }
    if (b.q) return compressed(k->g, const_name, w, &b);
    return graph_const_blob(k->g, const_name, w->type, b.path, b.offset, b.data);
}

static val layer_weight(kernel *k, model_weight_id id, bool transposed)
{
    if (!weight_exists(k->c, id)) return NO_VAL;
    int64_t r, c;
    weight_size(k->c, id, &r, &c);
    model_weight w = { .id = id, .layer = weight_is_layers(id) ? k->layer : -1, .transposed = transposed, .part = -1 };
    w.type = weight_is_vector(id) ? TTYPE(k->c->dt, 1, r, 1, 1)
             : transposed         ? TTYPE(k->c->dt, c, r, 1, 1)
                                  : TTYPE(k->c->dt, r, c, 1, 1);
    const char *suffix = transposed ? "_t" : "";
    if (w.layer >= 0) snprintf(w.name, sizeof w.name, "layer%d.%s%s", w.layer, weight_name(id), suffix);
    else snprintf(w.name, sizeof w.name, "%s%s", weight_name(id), suffix);
    char name[40];
    if (k->whole && w.layer >= 0) snprintf(name, sizeof name, "l%02d_%s%s", w.layer, weight_name(id), suffix);
    else snprintf(name, sizeof name, "%s%s", weight_name(id), suffix);
    return constant(k, &w, name);
}

val weight(kernel *k, model_weight_id id) { return layer_weight(k, id, false); }
val weight_t(kernel *k, model_weight_id id) { return layer_weight(k, id, true); }

val vocab_weight(kernel *k, model_weight_id id, int part, bool transposed)
{
    int64_t first, n = model_vocab_part(k->c, part, &first);
    bool whole = model_vocab_parts(k->c) == 1;
    model_weight w = { .id = id, .layer = -1, .transposed = transposed, .part = whole ? -1 : part, .row0 = first };
    w.type = transposed ? TTYPE(k->c->dt, k->c->dim, n, 1, 1) : TTYPE(k->c->dt, n, k->c->dim, 1, 1);
    char name[40];
    const char *suffix = transposed ? "_t" : "";
    if (whole)
        snprintf(w.name, sizeof w.name, "%s%s", weight_name(id), suffix), snprintf(name, sizeof name, "%s", w.name);
    else {
        snprintf(w.name, sizeof w.name, "%s%s.part%d", weight_name(id), suffix, part);
        snprintf(name, sizeof name, "%s%s_part%d", weight_name(id), suffix, part);
    }
    return constant(k, &w, name);
}

val classifier_weight(kernel *k, int part, bool transposed)
{
    return vocab_weight(k, k->c->tied ? MW_EMBED : MW_HEAD, part, transposed);
}

/* ---- building ---- */

void model_program_name(const model_config *c, const model_program *p, char *buf, size_t n)
{
    const char *model = c->name[0] ? c->name : "model";
    long long seq = (long long)seq_of(c, p);
    if (model_kernel_per_layer(p->kind))
        snprintf(buf, n, "%s_l%02d_%s_s%lld", model, p->layer, rows[p->kind].name, seq);
    else snprintf(buf, n, "%s_%s_s%lld", model, rows[p->kind].name, seq);
}

/* Give every output its port's name as its own, so that what is returned is what is bound. A value that is an input,
 * or is returned twice, goes through an identity. */
static void name_outputs(kernel *k, const model_port *ports, int64_t seq)
{
    for (int i = 0; i < k->n_out && !k->g->err.st; i++) {
        val v = k->out[i];
        if (!v.i) {
            graph_fail(k->g, AN_BUG, "%s: nothing was put on output %s", k->g->title, ports[i].name);
            return;
        }
        bool again = graph_maker(k->g, v)->op == OP_INPUT;
        for (size_t j = 0; j < k->g->outputs.n; j++) again |= k->g->outputs.at[j].v.i == v.i;
        if (again) v = G(k->g, IDENTITY, v);
        ttype want = TTYPE(k->c->dt, 1, ports[i].channels, 1, seq);
        if (!v.i || !shape_eq(&graph_type(k->g, v)->sh, &want.sh)) {
            graph_fail(k->g, AN_BUG, "%s: output %s has the wrong shape", k->g->title, ports[i].name);
            return;
        }
        graph_rename(k->g, v, ports[i].name);
        graph_output(k->g, ports[i].name, v);
    }
}

static an_status build_into(kernel *k, const model_program *p, diag *d)
{
    model_port ports[MODEL_MAX_PORTS];
    k->n_in = model_kernel_ports(k->c, p, true, ports);
    for (int i = 0; i < k->n_in; i++)
        k->in[i] = graph_input(k->g, ports[i].name, TTYPE(k->c->dt, 1, ports[i].channels, 1, k->heads.seq));
    if (!k->g->err.st) rows[p->kind].build(k);
    k->n_out = model_kernel_ports(k->c, p, false, ports);
    name_outputs(k, ports, k->heads.seq);
    return graph_finish(k->g, d);
}

static an_status build(const model_config *config, const model_program *p, const model_source *src, bool open,
                       graph **out, diag *d)
{
    *out = NULL;
    if ((int)p->kind < 0 || p->kind >= MK_COUNT)
        return diag_fail(d, AN_INPUT, NOWHERE, "program kind %d, wanted 0 to %d", (int)p->kind, MK_COUNT - 1);
    model_config c = *config;
    if (p->seq || rows[p->kind].sets == DECODE) c.seq = seq_of(config, p);
    TRY(model_config_check(&c, d));
    if (!c.dt) c.dt = DT_F16;
    if (c.alpha == 0) c.alpha = 1;
    if (c.loss_scale == 0) c.loss_scale = 1;
    if (model_kernel_per_layer(p->kind) && (p->layer < 0 || p->layer >= c.n_layers))
        return diag_fail(d, AN_INPUT, NOWHERE, "%s of %s: layer %d, wanted 0 to %lld", rows[p->kind].name, c.name,
                         p->layer, (long long)c.n_layers - 1);
    char title[96];
    model_program_name(&c, p, title, sizeof title);
    kernel k = { .c = &c, .src = src, .param_inputs = open, .layer = p->layer, .spec_in = rows[p->kind].in,
                 .spec_out = rows[p->kind].out, .heads = { .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads,
                                                           .head_dim = c.head_dim, .seq = c.seq,
                                                           .query_dim = c.query_dim, .softcap = c.attn_softcap } };
    k.g = graph_new(title, 0);
    if (!k.g) return diag_nomem(d);
    an_status st = build_into(&k, p, d);
    if (st) graph_free(k.g);
    else *out = k.g;
    return st;
}

an_status model_program_build(const model_config *c, const model_program *p, const model_source *src, graph **out,
                              diag *d)
{
    return build(c, p, src, false, out, d);
}
an_status model_program_build_open(const model_config *c, const model_program *p, graph **out, diag *d)
{
    return build(c, p, NULL, true, out, d);
}

/* ---- lists ---- */

static bool has_mask(model_kind k) { return k == MK_FWD_ATTN || k == MK_PREFILL_ATTN || k == MK_ATTN_BWD1; }

bool model_program_alike(const model_config *c, const model_program *a, const model_program *b)
{
    return a->kind == b->kind && seq_of(c, a) == seq_of(c, b) &&
           (!has_mask(a->kind) || model_window(c, a->layer) == model_window(c, b->layer));
}

static size_t put(model_program *out, size_t max, size_t n, int kind, int64_t layer)
{
    if (out && n < max) out[n] = (model_program){ .kind = (model_kind)kind, .layer = (int)layer };
    return n + 1;
}

size_t model_program_list(const model_config *c, model_set set, model_program *out, size_t max)
{
    size_t n = 0;
    for (int k = 0; k < MK_COUNT;) {
        int end = k + 1; /* rows of one scope in a row are one sweep over the layers */
        while (end < MK_COUNT && rows[end].scope == rows[k].scope) end++;
        int64_t rounds = rows[k].scope == RUN_ONCE ? 1 : c->n_layers;
        for (int64_t i = 0; i < rounds; i++)
            for (int r = k; r < end; r++)
                if (rows[r].sets & (int)set)
                    n = put(out, max, n, r, rows[k].scope == RUN_DOWN ? c->n_layers - 1 - i : i);
        k = end;
    }
    return n;
}
