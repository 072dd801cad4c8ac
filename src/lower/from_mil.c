/* from_mil.c: a MIL function as a graph. In: a parsed module; perhaps weight files.  Out: nodes in statement order,
 * each with the place of its statement. Strict reading stops at the first problem. Lenient reading (opt->issues)
 * records it, keeps the statement as OP_OPAQUE with its declared types and goes on, so one run shows every problem
 * without echoes of the first. */
#include "base/plain.h"
#include "lower/read_int.h"

enum { MAX_ISSUES = 200, MAX_REMARKS = 100, MAX_RETURNED = 4096 };

an_status reader_complain(reader *r, an_status st, const char *rule, loc at, const char *fmt, ...)
{
    char msg[sizeof((diag *)0)->msg];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    lower_issues *list = r->opt->issues;
    if (!list) return st ? diag_fail(r->d, st, at, "%s", msg) : AN_OK;
    /* Remarks stop earlier than errors, so a flood of them cannot hide that there is an error. */
    if (list->n >= (st ? MAX_ISSUES : MAX_REMARKS)) return r->stop = r->stop || st != AN_OK, AN_OK;
    const mil_op *op = r->at_op;
    lower_issue is = { .rule = rule, .st = st, .at = at, .op = "", .name = "", .msg = arena_str(r->opt->mem, msg),
                       .inferred = r->inferring };
    if (op) {
        is.op = arena_str(r->opt->mem, op->op);
        is.name = arena_str(r->opt->mem, op->n_out ? op->out[0].name : "");
    }
    return is.msg && is.op && is.name && VEC_PUSH(r->opt->mem, list, is) ? AN_OK : diag_nomem(r->d);
}

/* The builder's sticky error: no memory ends the reading, anything else is a complaint about this statement. */
static an_status graph_problem(reader *r)
{
    diag e = r->g->err;
    if (!e.st) return AN_OK;
    if (e.st != AN_INPUT && e.st != AN_UNSUPPORTED) return diag_fail(r->d, e.st, e.at, "%s", e.msg);
    r->g->err = (diag){ 0 };
    return reader_complain(r, e.st, "type", e.at, "%s", e.msg);
}

static void put_ttype(strbuf *b, const ttype *t)
{
    if (t->sh.rank) sb_ttype(b, t);
    else sb_puts(b, dtype_name(t->dt));
}

/* A tensor, or a state holding one. */
static bool mil_type_usable(const mil_type *t, ttype *out)
{
    if (t->kind == MT_STATE && t->n_sub == 1) t = t->sub[0];
    if (t->kind != MT_TENSOR || t->dt == DT_NONE || t->rank > MAX_RANK) return false;
    *out = ttype_of_mil(t);
    return true;
}

static bool same_type(const ttype *a, const ttype *b)
{
    if (a->dt != b->dt || a->sh.rank != b->sh.rank) return false;
    for (int i = 0; i < a->sh.rank; i++)
        if (a->sh.d[i] != b->sh.d[i] && a->sh.d[i] >= 0 && b->sh.d[i] >= 0) return false;
    return true;
}

/* ---- names ---- */

symbol *reader_find(reader *r, const char *name)
{
    uint32_t i;
    return str_map_get(&r->by_name, name, strlen(name), &i) ? &r->syms.at[i] : NULL;
}

static an_status define(reader *r, const symbol *s)
{
    if (!str_map_put(&r->mem, &r->by_name, s->name, strlen(s->name), (uint32_t)r->syms.n)) return diag_nomem(r->d);
    return VEC_PUSH(&r->mem, &r->syms, *s) ? AN_OK : diag_nomem(r->d);
}

/* The results' symbols, after the node that makes them. first: the node's first value; 0: there is no node, and
 * whatever uses the names is not built on either. */
static an_status define_results(reader *r, const mil_op *op, val first)
{
    for (int k = 0; k < op->n_out; k++) {
        symbol s = { .name = op->out[k].name, .at = op->out[k].at, .v = graph_out(first, k) };
        s.known = mil_type_usable(op->out[k].type, &s.type) && s.v.i;
        if (k) graph_rename(r->g, s.v, s.name);
        if (s.v.i) s.type = *graph_type(r->g, s.v);
        TRY(define(r, &s));
    }
    return graph_problem(r);
}

/* ---- constants ---- */

static an_status read_blob(reader *r, const mil_lit *lit, symbol *s)
{
    bool first, data_offset;
    diag why = { 0 };
    const char *label = s->name ? s->name : "weight";
    weight_answer a =
        weights_find(r->opt->weights, lit->blob_path, lit->blob_offset, &s->type, &s->data, &first, &data_offset, &why);
    if (data_offset) s->flags |= INST_BLOB_DATA_OFFSET;
    if (why.st == AN_NOMEM) return diag_nomem(r->d);
    switch (a) {
    case WEIGHT_BAD: return reader_complain(r, AN_INPUT, "weights", lit->at, "%s: %s", label, why.msg);
    case WEIGHT_MISSING:
        if (r->opt->need_weights) return reader_complain(r, AN_INPUT, "weights", lit->at, "%s: %s", label, why.msg);
        if (first)
            TRY(reader_complain(r, AN_OK, "weights", lit->at, "%s; its constants are checked by their types only",
                                why.msg));
        break;
    case WEIGHT_NOT_ASKED:
        if (r->opt->need_weights)
            return reader_complain(r, AN_INPUT, "weights", lit->at, "%s: %s is needed, but no model folder was given",
                                   label, lit->blob_path);
        break;
    default: break;
    }
    /* seen without the file too: the header takes the first 64 bytes */
    if (a != WEIGHT_FOUND && lit->blob_offset < 64)
        return reader_complain(r, AN_INPUT, "weights", lit->at,
                               "%s: offset %llu lies in the file header; the first record is at 64", label,
                               (unsigned long long)lit->blob_offset);
    return AN_OK;
}

an_status reader_literal(reader *r, const mil_lit *lit, symbol *s)
{
    s->lit = lit;
    s->known = mil_type_usable(lit->type, &s->type);
    int64_t n;
    switch (lit->kind) {
    case ML_DATA:
        if (!s->known) break;
        if (shape_elems(&s->type.sh, &n) && n == lit->n) s->data = lit->data;
        else
            return reader_complain(r, AN_INPUT, "type", lit->at,
                                   "the literal holds %lld elements, which its type does not", (long long)lit->n);
        break;
    case ML_BLOB:
        s->known = s->known && s->type.dt != DT_STRING;
        if (s->known) return read_blob(r, lit, s);
        break;
    case ML_STRINGS: break;
    default: s->known = false; break;
    }
    return AN_OK;
}

an_status reader_operand(reader *r, symbol *s, val *out)
{
    graph *g = r->g;
    if (s->v.i || !s->lit) return *out = s->v, AN_OK;
    loc here = g->here;
    size_t bytes;
    if (s->name) g->here = s->at;
    if (s->lit->kind == ML_BLOB)
        s->v = graph_const_blob(g, s->name, s->type, s->lit->blob_path, s->lit->blob_offset, s->data);
    else if (s->type.dt != DT_STRING && s->data)
        s->v = graph_const(g, s->name, s->type, s->data); /* copied: the module may go first */
    else if (s->type.dt == DT_STRING && s->type.sh.rank == 0 && s->lit->n == 1)
        s->v = graph_const_str(g, s->name, s->lit->str[0]);
    else if (s->type.dt != DT_STRING && shape_bytes(&s->type, &bytes))
        s->v = graph_const_view(g, s->name, s->type, NULL);              /* complained about */
    else s->v = graph_opaque(g, s->name, "const", NULL, 0, &s->type, 1); /* lists of strings */
    if (s->v.i) g->nodes.at[g->values.at[s->v.i].node].flags |= s->flags;
    g->here = here;
    *out = s->v;
    return graph_problem(r);
}

static const mil_lit *const_value(const mil_op *op)
{
    for (int i = 0; i < op->n_attr; i++)
        if (!strcmp(op->attr[i].name, "val")) return op->attr[i].lit;
    for (int i = 0; i < op->n_arg; i++)
        if (!strcmp(op->arg[i].name, "val") && op->arg[i].n == 1) return op->arg[i].item[0].lit;
    return NULL;
}

static an_status read_const(reader *r, const mil_op *op)
{
    const mil_lit *lit = const_value(op);
    if (!lit || op->n_out != 1) {
        TRY(reader_complain(r, AN_INPUT, "argument", op->at, "const needs one result and [val = …], got %d results%s",
                            op->n_out, lit ? "" : " and no value"));
        return define_results(r, op, NO_VAL);
    }
    symbol s = { .name = op->out[0].name, .at = op->out[0].at };
    TRY(reader_literal(r, lit, &s));
    ttype declared;
    if (s.known && mil_type_usable(op->out[0].type, &declared) && !same_type(&declared, &s.type)) {
        strbuf b = { 0 };
        sb_printf(&b, "%s is declared ", s.name);
        put_ttype(&b, &declared);
        sb_puts(&b, " but its value is ");
        put_ttype(&b, &s.type);
        an_status st = b.oom ? diag_nomem(r->d) : reader_complain(r, AN_INPUT, "type", op->out[0].at, "%s", b.at);
        sb_free(&b);
        if (st) return st;
        s.type = declared; /* go on with what the rest of the text believes */
        s.data = NULL;
    }
    return define(r, &s);
}

/* ---- statements ---- */

/* Attributes outlive the statement: lists and strings move to the graph. */
static an_status keep_attrs(reader *r, const call *c, node *n)
{
    arena *mem = &r->g->mem;
    n->attrs = TAKE(mem, attr, (size_t)c->n_at);
    if (!n->attrs) return diag_nomem(r->d);
    for (int i = 0; i < c->n_at; i++) {
        attr a = c->at[i];
        if (a.kind == ATTR_STR && !(a.u.s = arena_str(mem, a.u.s))) return diag_nomem(r->d);
        if (a.kind == ATTR_INTS || a.kind == ATTR_BOOLS) {
            int64_t *p = TAKE(mem, int64_t, (size_t)a.n);
            if (!p) return diag_nomem(r->d);
            if (a.n) memcpy(p, a.u.is, (size_t)a.n * sizeof *p);
            a.u.is = p;
        }
        n->attrs[n->n_attr++] = a;
    }
    return AN_OK;
}

static an_status add_opaque(reader *r, const call *c)
{
    const mil_op *op = c->st;
    const op_info *o = c->info;
    size_t fixed = o->id == OP_OPAQUE ? 0 : (size_t)(o->n_in - (o->n_in && o->in[o->n_in - 1].list));
    size_t n_in = fixed + c->list.n + c->loose.n, at = 0;
    val *in = TAKE(&r->tmp, val, n_in);
    ttype *out = TAKE(&r->tmp, ttype, (size_t)op->n_out);
    if (!in || !out) return diag_nomem(r->d);
    for (size_t i = 0; i < fixed; i++) in[at++] = c->in[i];
    for (size_t i = 0; i < c->list.n; i++) in[at++] = c->list.at[i];
    for (size_t i = 0; i < c->loose.n; i++) in[at++] = c->loose.at[i];
    /* a result that is no tensor gets a stand-in; its symbol is marked and nothing typed is built on it */
    for (int k = 0; k < op->n_out; k++)
        if (!mil_type_usable(op->out[k].type, &out[k])) out[k] = (ttype){ .dt = DT_I32 };
    val first = graph_opaque(r->g, op->n_out ? op->out[0].name : NULL, op->op, in, (int)n_in, out, op->n_out);
    TRY(graph_problem(r));
    node *n = &r->g->nodes.at[r->g->nodes.n - 1];
    n->flags |= c->flags;
    TRY(keep_attrs(r, c, n));
    return define_results(r, op, op->n_out ? first : NO_VAL);
}

/* Inferred types against declared ones; *same false after a complaint. */
static an_status compare_types(reader *r, const mil_op *op, const ttype *got, int n_got, bool *same)
{
    *same = false;
    if (op->n_out != n_got)
        return reader_complain(r, AN_INPUT, "type", op->at, "%s yields %d results, %d are declared", op->op, n_got,
                               op->n_out);
    for (int k = 0; k < n_got; k++) {
        ttype want;
        bool usable = mil_type_usable(op->out[k].type, &want);
        if (usable && same_type(&want, &got[k])) continue;
        strbuf b = { 0 };
        sb_printf(&b, "%s is declared ", op->out[k].name);
        if (usable) put_ttype(&b, &want);
        else sb_puts(&b, "as something that is no tensor");
        sb_printf(&b, " but %s yields ", op->op);
        put_ttype(&b, &got[k]);
        an_status st = b.oom ? diag_nomem(r->d) : reader_complain(r, AN_INPUT, "type", op->out[k].at, "%s", b.at);
        sb_free(&b);
        return st;
    }
    *same = true;
    return AN_OK;
}

static an_status note_write(reader *r, val state, val content)
{
    while (r->written.n <= state.i)
        if (!VEC_PUSH(&r->mem, &r->written, NO_VAL)) return diag_nomem(r->d);
    r->written.at[state.i] = content;
    return AN_OK;
}

/* A read finds what the statements before it have written. In a graph a read gives what the run began with, wherever
 * it stands: behind a write it becomes what was written. */
static val was_written(const reader *r, op_id op, val state)
{
    return op == OP_READ_STATE && state.i < r->written.n ? r->written.at[state.i] : NO_VAL;
}

static an_status add_known(reader *r, call *c)
{
    const mil_op *op = c->st;
    const op_info *o = c->info;
    bool list = o->n_in && o->in[o->n_in - 1].list;
    int fixed = o->n_in - list, n_in = fixed + (int)c->list.n, n_got = 0;
    int max_out = MAX(MAX(op->n_out, o->n_out), 1);
    val *in = TAKE(&r->tmp, val, (size_t)n_in);
    ttype *types = TAKE(&r->tmp, ttype, (size_t)n_in), *got = TAKE(&r->tmp, ttype, (size_t)max_out);
    if (!in || !types || !got) return diag_nomem(r->d);
    for (int i = 0; i < n_in; i++) {
        in[i] = i < fixed ? c->in[i] : c->list.at[i - fixed];
        if (in[i].i) types[i] = *graph_type(r->g, in[i]);
    }
    diag why = { 0 };
    if (graph_infer(o->id, types, n_in, c->at, c->n_at, got, &n_got, max_out, &why)) {
        if (why.st != AN_INPUT && why.st != AN_UNSUPPORTED) return diag_fail(r->d, why.st, op->at, "%s", why.msg);
        r->inferring = true;
        an_status st = reader_complain(r, why.st, "type", op->at, "%s", why.msg);
        r->inferring = false;
        return st ? st : add_opaque(r, c);
    }
    /* a state write may leave its result unnamed */
    bool same = o->id == OP_WRITE_STATE && op->n_out == 0;
    if (!same) TRY(compare_types(r, op, got, n_got, &same));
    if (!same) return add_opaque(r, c);
    const val content = was_written(r, o->id, in[0]);
    val first = graph_op_named(r->g, op->n_out ? op->out[0].name : NULL, content.i ? OP_IDENTITY : o->id,
                               content.i ? &content : in, n_in, c->at, c->n_at);
    if (r->g->err.st) {
        TRY(graph_problem(r));
        return add_opaque(r, c);
    }
    r->g->nodes.at[r->g->nodes.n - 1].flags |= c->flags | (content.i ? INST_STATE : 0);
    if (o->id == OP_WRITE_STATE) TRY(note_write(r, in[0], first));
    return define_results(r, op, op->n_out ? first : NO_VAL);
}

static an_status read_op(reader *r, const mil_op *op)
{
    op_id id;
    r->at_op = op;
    r->g->here = op->n_out ? op->out[0].at : op->at;
    if (!spell_op_read(op->op, &id)) id = OP_OPAQUE;
    if (id == OP_CONST) {
        r->at_op = NULL; /* a constant is known by its name, which the messages give */
        return read_const(r, op);
    }
    r->g->here = op->at;
    call c = { .st = op, .info = op_get(id) };
    TRY(id == OP_OPAQUE || op->n_block ? bind_unknown(r, &c) : bind_call(r, &c));
    return c.opaque ? add_opaque(r, &c) : add_known(r, &c);
}

/* ---- the function ---- */

static an_status read_inputs(reader *r, const mil_block *f)
{
    for (int i = 0; i < f->n_in; i++) {
        const mil_var *p = &f->in[i];
        symbol s = { .name = p->name, .at = p->at };
        r->g->here = p->at;
        s.known = mil_type_usable(p->type, &s.type);
        if (!s.known) {
            TRY(reader_complain(r, AN_UNSUPPORTED, "type", p->at,
                                "parameter %s is no tensor%s%s; the engine's programs take tensors only", p->name,
                                p->type->text ? " but " : "", p->type->text ? p->type->text : ""));
            s.type = (ttype){ .dt = DT_U8 };
        }
        s.v = graph_input(r->g, p->name, s.type);
        TRY(graph_problem(r));
        TRY(define(r, &s));
    }
    return AN_OK;
}

static an_status read_outputs(reader *r, const mil_block *f)
{
    str_map seen = { 0 };
    if (f->n_out > MAX_RETURNED)
        return reader_complain(r, AN_INPUT, "name", f->out_at, "%s returns %d results; at most %d are read", f->name,
                               f->n_out, MAX_RETURNED);
    for (int i = 0; i < f->n_out; i++) {
        const mil_arg_item *it = &f->out[i];
        symbol *s = it->ref ? reader_find(r, it->ref) : NULL;
        r->g->here = it->at;
        if (!s) {
            TRY(reader_complain(r, AN_INPUT, "name", it->at, "%s returns %s, which is not defined", f->name,
                                it->ref ? it->ref : "a literal"));
            continue;
        }
        if (str_map_get(&seen, it->ref, strlen(it->ref), NULL)) {
            TRY(reader_complain(r, AN_INPUT, "name", it->at, "%s returns %s twice", f->name, it->ref));
            continue;
        }
        if (!str_map_put(&r->mem, &seen, it->ref, strlen(it->ref), 0)) return diag_nomem(r->d);
        if (!s->known) {
            TRY(reader_complain(r, AN_UNSUPPORTED, "type", it->at,
                                "result %s is no tensor; the engine's programs return tensors only", it->ref));
            continue;
        }
        val v;
        TRY(reader_operand(r, s, &v));
        if (v.i) graph_output(r->g, it->ref, v);
        TRY(graph_problem(r));
    }
    return AN_OK;
}

/* Made-up names (inline literals) must never take a name the text uses later. */
static an_status reserve_names(reader *r, const mil_block *f)
{
    graph *g = r->g;
    bool ok = true;
    for (int i = 0; i < f->n_in; i++)
        ok = ok && str_map_put(&g->mem, &g->reserved, f->in[i].name, strlen(f->in[i].name), 0);
    for (size_t i = 0; i < f->n_op && ok; i++)
        for (int k = 0; k < f->op[i].n_out; k++) {
            const char *s = f->op[i].out[k].name;
            ok = ok && str_map_put(&g->mem, &g->reserved, s, strlen(s), 0);
        }
    return ok ? AN_OK : diag_nomem(r->d);
}

static an_status read_function(reader *r, const mil_block *f)
{
    TRY(reserve_names(r, f));
    TRY(read_inputs(r, f));
    for (size_t i = 0; i < f->n_op; i++) {
        arena_mark m = arena_save(&r->tmp);
        TRY(read_op(r, &f->op[i]));
        arena_back(&r->tmp, m);
        if (!r->stop) continue;
        lower_issue last = { .rule = "argument",
                             .at = f->op[i].at,
                             .op = "",
                             .name = "",
                             .msg = "reading stopped here: the list of problems is full" };
        return VEC_PUSH(r->opt->mem, r->opt->issues, last) ? AN_OK : diag_nomem(r->d);
    }
    r->at_op = NULL;
    TRY(read_outputs(r, f));
    r->g->reserved = (str_map){ 0 }; /* its keys belong to the module */
    diag why = { 0 };
    if (!graph_finish(r->g, &why)) return AN_OK;
    if (why.st == AN_INPUT)
        return reader_complain(r, AN_INPUT, "name", f->out_at.line ? f->out_at : f->at, "%s", why.msg);
    return diag_fail(r->d, why.st, why.at, "%s", why.msg);
}

an_status lower_from_mil(const mil_module *m, const lower_in *opt, graph **out, diag *d)
{
    static const lower_in none = { 0 };
    *out = NULL;
    reader r = { .opt = opt ? opt : &none, .d = d };
    const mil_block *f = mil_main(m);
    if (!f)
        return reader_complain(&r, AN_INPUT, "name", m->n_func ? m->func[0].at : NOWHERE,
                               m->n_func ? "%zu functions and none is called main"
                                         : "the program has %zu functions; it needs one called main",
                               m->n_func);
    r.g = graph_new(f->name, r.opt->limit);
    an_status st = r.g ? read_function(&r, f) : diag_nomem(d);
    arena_free(&r.tmp);
    arena_free(&r.mem);
    if (st || r.stop) graph_free(r.g);
    else *out = r.g;
    return st;
}
