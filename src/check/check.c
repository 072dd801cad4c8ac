/* check.c: text to report: parse, read leniently, show the program to the rules and the cost model of each chip. */
#include <stdlib.h>

#include "check/check.h"
#include "lower/lower.h"
#include "mil/mil.h"

/* What the text-level checks are called. Their findings come from reading, not from a chip's rows. */
static const struct {
    const char *rule, *fix, *evidence;
} text_rules[] = {
    { "syntax", "correct the text at the place shown", "MIL text grammar" },
    { "type", "write the type the operation yields, or change its operands", "MIL infers nothing: every declared type must be right" },
    { "argument", "use the argument names and kinds that `anneal ops` lists", "op table" },
    { "weights", "put the file under the model folder, or correct path and offset (64 is the first record)", "weight file layout" },
    { "name", "define the name before it is used, once", "MIL text grammar" },
};

typedef struct {
    check_report *r;
    const check_options *o;
    diag *d;
    arena tmp;     /* dies with the call */
    str_map names; /* strings already in the report */
    VEC(const char *) interned;
    loc fallback;  /* where findings without a place of their own are shown */
    bool half_read;  /* some statement was not understood: no costs */
    str_map refused; /* names of results that a chip's rule has refused */
    VEC(const char *) judged; /* results whose statement inference refused: bad text unless a rule refuses it too */
} checker;

/* Findings repeat the same few sentences: one copy each, in the report. NULL: no memory. */
static const char *intern(checker *c, const char *s)
{
    uint32_t i;
    if (!s) s = "";
    size_t n = strlen(s);
    if (str_map_get(&c->names, s, n, &i)) return c->interned.at[i];
    const char *copy = arena_strn(&c->r->mem, s, n);
    if (!copy || !str_map_put(&c->tmp, &c->names, copy, n, (uint32_t)c->interned.n)) return NULL;
    return VEC_PUSH(&c->tmp, &c->interned, copy) ? copy : NULL;
}

static an_status add_finding(checker *c, const finding *f)
{
    check_report *r = c->r;
    *(f->sev == SEV_ERROR ? &r->n_errors : f->sev == SEV_WARNING ? &r->n_warnings : &r->n_notes) += 1;
    if (f->sev == SEV_ERROR && !r->status) r->status = AN_UNSUPPORTED;
    if (f->sev == SEV_ERROR && f->target && f->name && *f->name) {
        const char *name = intern(c, f->name);
        if (!name || !str_map_put(&c->tmp, &c->refused, name, strlen(name), 0)) return diag_nomem(c->d);
    }
    if (c->o->errors_only && f->sev != SEV_ERROR) return AN_OK;
    finding k = { .rule = intern(c, f->rule),
                  .sev = f->sev,
                  .target = f->target,
                  .op = intern(c, f->op),
                  .name = intern(c, f->name),
                  .at = f->at.line ? f->at : c->fallback,
                  .message = intern(c, f->message),
                  .fix = intern(c, f->fix),
                  .evidence = intern(c, f->evidence) };
    if (!k.rule || !k.op || !k.name || !k.message || !k.fix || !k.evidence) return diag_nomem(c->d);
    return VEC_PUSH(&r->mem, &r->found, k) ? AN_OK : diag_nomem(c->d);
}

static an_status add_issue(checker *c, const lower_issue *is)
{
    finding f = { .rule = is->rule, .sev = is->st ? SEV_ERROR : SEV_NOTE, .op = is->op, .name = is->name, .at = is->at,
                  .message = is->msg };
    for (size_t i = 0; i < COUNT(text_rules); i++)
        if (!strcmp(text_rules[i].rule, is->rule)) f.fix = text_rules[i].fix, f.evidence = text_rules[i].evidence;
    if (is->st) c->half_read = true;
    if (is->st == AN_INPUT && !is->inferred) c->r->status = AN_INPUT;
    if (is->st == AN_INPUT && is->inferred && !VEC_PUSH(&c->tmp, &c->judged, is->name)) return diag_nomem(c->d);
    return add_finding(c, &f);
}

/* ---- the program as rules and costs see it ---- */

/* Largest sum of bytes held at once when nodes run in order: a value is held from its maker (an input: from its
 * first user) to its last user. Constants are weights and are not counted. */
static an_status live_bytes(checker *c, const graph *g, const op_inst *insts, size_t *peak)
{
    size_t n = g->nodes.n;
    uint32_t *first = TAKE(&c->tmp, uint32_t, g->values.n), *last = TAKE(&c->tmp, uint32_t, g->values.n);
    size_t *opens = TAKE(&c->tmp, size_t, n + 1), *closes = TAKE(&c->tmp, size_t, n + 1);
    /* constants, and what is computed from constants alone when compiled */
    bool *weight = TAKE(&c->tmp, bool, g->values.n);
    if (!first || !last || !opens || !closes || !weight) return diag_nomem(c->d);
    for (uint32_t i = 1; i < n; i++) {
        const node *x = &g->nodes.at[i];
        for (int k = 0; k < x->n_out; k++) {
            uint32_t v = x->out.i + (uint32_t)k;
            first[v] = last[v] = x->op == OP_INPUT ? 0 : i;
            weight[v] = x->op == OP_CONST;
        }
        for (int k = 0; k < x->n_in; k++) {
            uint32_t v = x->in[k].i;
            if (!first[v]) first[v] = i;
            last[v] = i;
            if (v && insts[i].in && k < insts[i].n_in && insts[i].in[k].is_const) weight[v] = true;
        }
    }
    for (uint32_t v = 1; v < g->values.n; v++) {
        size_t bytes;
        if (weight[v] || !first[v] || !shape_bytes(&g->values.at[v].type, &bytes)) continue;
        if (opens[first[v]] > SIZE_MAX / 2 || bytes > SIZE_MAX / 4) continue;
        opens[first[v]] += bytes;
        closes[last[v]] += bytes;
    }
    size_t now = 0;
    *peak = 0;
    for (uint32_t i = 1; i < n; i++) {
        now = now > SIZE_MAX - opens[i] ? SIZE_MAX : now + opens[i];
        *peak = MAX(*peak, now);
        now -= MIN(now, closes[i]);
    }
    return AN_OK;
}

static bool has_build_key(const mil_module *m, const char *key)
{
    for (int i = 0; i < m->n_attr; i++) {
        const mil_lit *l = m->attr[i].lit;
        if (strcmp(m->attr[i].name, "buildInfo") || !l || l->kind != ML_DICT) continue;
        for (int64_t k = 0; k < l->n; k++) {
            const mil_lit *w = l->item[2 * k];
            if (w->kind == ML_STRINGS && w->n == 1 && !strcmp(w->str[0], key)) return true;
        }
    }
    return false;
}

/* An operation the table knows but could not type (a run-time attribute, operands that do not fit) is opaque to the
 * graph. With its required operands in place the rules can judge it under its own name. */
static void unveil(op_inst *x)
{
    op_id id;
    if (x->op != OP_OPAQUE || !op_find(x->mil, strlen(x->mil), &id) || id == OP_INPUT || id == OP_CONST ||
        id == OP_OPAQUE)
        return;
    const op_info *o = op_get(id);
    bool list = o->n_in && o->in[o->n_in - 1].list;
    if (x->n_in < o->n_in) return;
    for (int i = 0; i < o->n_in; i++)
        if (!o->in[i].optional && !x->in[i].present) return;
    if (!list) x->n_in = o->n_in; /* run-time attributes stand behind the operands */
    x->op = id;
}

static an_status make_view(checker *c, const graph *g, const mil_module *m, prog_view *v)
{
    op_inst *insts;
    TRY(graph_insts(g, &c->tmp, &insts, c->d));
    for (size_t i = 1; i < g->nodes.n; i++) unveil(&insts[i]);
    port_view *in = TAKE(&c->tmp, port_view, g->inputs.n), *out = TAKE(&c->tmp, port_view, g->outputs.n);
    if (!in || !out) return diag_nomem(c->d);
    for (size_t i = 0; i < g->inputs.n; i++) {
        const value *x = graph_value(g, g->inputs.at[i]);
        in[i] = (port_view){ .name = x->name, .at = graph_maker(g, g->inputs.at[i])->at, .type = x->type };
    }
    const mil_block *f = m ? mil_main(m) : NULL;
    str_map places = { 0 };
    for (int i = 0; f && i < f->n_out; i++)
        if (f->out[i].ref && !str_map_put(&c->tmp, &places, f->out[i].ref, strlen(f->out[i].ref), (uint32_t)i))
            return diag_nomem(c->d);
    for (size_t i = 0; i < g->outputs.n; i++) {
        const port *p = &g->outputs.at[i];
        uint32_t k;
        bool found = str_map_get(&places, p->name, strlen(p->name), &k);
        out[i] = (port_view){ .name = p->name,
                              .at = found ? f->out[k].at : graph_maker(g, p->v)->at,
                              .type = *graph_type(g, p->v) };
    }
    *v = (prog_view){
        .ops = insts, .n_ops = g->nodes.n, .in = in, .n_in = g->inputs.n, .out = out, .n_out = g->outputs.n
    };
    if (f) {
        v->from_text = true;
        v->version = m->version;
        v->opset = f->opset;
        v->has_coremlc_version = has_build_key(m, "coremlc-version");
        v->n_funcs = m->n_func;
    }
    return live_bytes(c, g, insts, &v->n_live_bytes);
}

/* ---- per chip ---- */

/* Findings of one chip, copied over; past CHECK_MAX_PER_RULE of one rule the rest becomes one line with their
 * number. */
static an_status check_rules(checker *c, const chip *target, const prog_view *v)
{
    arena mem = { 0 };
    findings all = { 0 };
    str_map seen = { 0 };
    VEC(size_t) count = { 0 };
    VEC(const finding *) last = { 0 };
    an_status st = rules_check(target, v, &mem, &all, c->d);
    for (size_t i = 0; i < all.n && !st; i++) {
        const finding *f = &all.at[i];
        uint32_t k;
        if (!str_map_get(&seen, f->rule, strlen(f->rule), &k)) {
            k = (uint32_t)count.n;
            if (!str_map_put(&mem, &seen, f->rule, strlen(f->rule), k) || !VEC_PUSH(&mem, &count, (size_t)0) ||
                !VEC_PUSH(&mem, &last, f)) {
                st = diag_nomem(c->d);
                break;
            }
        }
        last.at[k] = f;
        if (count.at[k]++ < CHECK_MAX_PER_RULE) st = add_finding(c, f);
    }
    for (size_t k = 0; k < count.n && !st; k++) {
        if (count.at[k] <= CHECK_MAX_PER_RULE) continue;
        finding f = *last.at[k];
        char text[120];
        snprintf(text, sizeof text, "%zu more like this, the last one here", count.at[k] - CHECK_MAX_PER_RULE);
        f.message = text;
        st = add_finding(c, &f);
    }
    arena_free(&mem);
    return st;
}

static bool computes(const op_inst *op) { return op->op != OP_INPUT && op->op != OP_CONST; }

static an_status list_ops(checker *c, const prog_view *v)
{
    check_report *r = c->r;
    for (size_t i = 1; i < v->n_ops && r->ops.n < CHECK_MAX_OPS; i++) {
        if (!computes(&v->ops[i])) continue;
        check_op o = { .op = intern(c, v->ops[i].mil), .name = intern(c, v->ops[i].name), .at = v->ops[i].at };
        if (!o.op || !o.name || !VEC_PUSH(&r->mem, &r->ops, o)) return diag_nomem(c->d);
    }
    return AN_OK;
}

static an_status add_cost(checker *c, const chip *target, const prog_view *v)
{
    check_report *r = c->r;
    op_cost *per_op = TAKE(&r->mem, op_cost, r->ops.n);
    if (!per_op) return diag_nomem(c->d);
    for (size_t i = 1, k = 0; i < v->n_ops && k < r->ops.n; i++)
        if (computes(&v->ops[i])) per_op[k++] = cost_op(target, &v->ops[i]);
    check_cost cost = { .target = target, .total = cost_program(target, v), .op = per_op };
    return VEC_PUSH(&r->mem, &r->costs, cost) ? AN_OK : diag_nomem(c->d);
}

static an_status check_target(checker *c, const chip *target, const prog_view *v, bool cost)
{
    c->r->n_targets++;
    TRY(check_rules(c, target, v));
    return cost ? add_cost(c, target, v) : AN_OK;
}

static an_status check_targets(checker *c, const graph *g, const mil_module *m)
{
    prog_view v;
    TRY(make_view(c, g, m, &v));
    bool cost = !c->half_read; /* half-understood text has no meaningful cost */
    if (cost) TRY(list_ops(c, &v));
    for (size_t i = 0; i < c->o->n_target; i++) TRY(check_target(c, c->o->target[i], &v, cost));
    for (size_t i = 0; i < chip_count() && !c->o->n_target; i++)
        if (chip_is_base(chip_at(i))) TRY(check_target(c, chip_at(i), &v, cost));
    return AN_OK;
}

/* ---- entry ---- */

static an_status begin(checker *c, const char *file, const char *text, size_t n)
{
    c->r = calloc(1, sizeof *c->r);
    if (!c->r) return diag_nomem(c->d);
    c->r->file = arena_str(&c->r->mem, file ? file : "<text>");
    if (!c->r->file) return diag_nomem(c->d);
    if (!text) return AN_OK;
    c->r->text = arena_strn(&c->r->mem, text, n);
    c->r->n_text = n;
    return c->r->text ? AN_OK : diag_nomem(c->d);
}

static an_status end(checker *c, an_status st, check_report **out)
{
    arena_free(&c->tmp);
    if (st) check_free(c->r);
    else *out = c->r;
    return st;
}

static an_status parsed_text(checker *c, const mil_module *m)
{
    lower_issues issues = { 0 };
    graph *g = NULL;
    lower_weights *w = lower_weights_open(c->o->model_dir);
    const mil_block *f = mil_main(m);
    c->fallback = f ? f->at : (loc){ .line = 1, .col = 1 };
    lower_in in = { .weights = w, .issues = &issues, .mem = &c->tmp };
    an_status st = w ? lower_from_mil(m, &in, &g, c->d) : diag_nomem(c->d);
    for (size_t i = 0; i < issues.n && !st; i++) st = add_issue(c, &issues.at[i]);
    if (!st && g) st = check_targets(c, g, m);
    for (size_t i = 0; i < c->judged.n; i++)
        if (!str_map_get(&c->refused, c->judged.at[i], strlen(c->judged.at[i]), NULL)) c->r->status = AN_INPUT;
    graph_free(g);
    lower_weights_close(w);
    return st;
}

an_status check_text(const char *text, size_t n, const check_options *o, check_report **out, diag *d)
{
    static const check_options none = { 0 };
    *out = NULL;
    checker c = { .o = o ? o : &none, .d = d, .fallback = { .line = 1, .col = 1 } };
    mil_module *m = NULL;
    an_status st = begin(&c, c.o->file, text, n);
    if (!st) {
        diag why = { 0 };
        if (!mil_parse(text, n, 0, &m, &why)) st = parsed_text(&c, m);
        else if (why.st == AN_INPUT)
            st = add_issue(&c, &(lower_issue){ .rule = "syntax", .st = AN_INPUT, .at = why.at, .msg = why.msg });
        else st = diag_fail(d, why.st, why.at, "%s", why.msg);
    }
    mil_free(m);
    return end(&c, st, out);
}

an_status check_graph(const graph *g, const check_options *o, check_report **out, diag *d)
{
    static const check_options none = { 0 };
    *out = NULL;
    checker c = { .o = o ? o : &none, .d = d };
    an_status st = begin(&c, c.o->file ? c.o->file : g->title, NULL, 0);
    if (!st) st = check_targets(&c, g, NULL);
    return end(&c, st, out);
}

void check_free(check_report *r)
{
    if (!r) return;
    arena_free(&r->mem);
    free(r);
}
