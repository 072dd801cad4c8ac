/* graph.c: the builder, and rewriting by rebuilding.
 * In: calls with handles.  Out: nodes in topological order whose types were inferred by the op table's rules. */
#include <stdlib.h>

#include "base/plain.h"
#include "graph/graph.h"

enum { MAX_RESULTS = 1024 }; /* of one operation: split is the only op with many */

static val poison(graph *g, an_status st, const char *fmt, ...) PRINTF_LIKE(3, 4);

static void set_error(graph *g, an_status st, const char *fmt, va_list ap)
{
    if (g->err.st) return;
    plain_vprintf(g->err.msg, sizeof g->err.msg, fmt, ap);
    g->err.at = g->here;
    g->err.st = st;
}

void graph_fail(graph *g, an_status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_error(g, st, fmt, ap);
    va_end(ap);
}

static val poison(graph *g, an_status st, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_error(g, st, fmt, ap);
    va_end(ap);
    return NO_VAL;
}

static val no_memory(graph *g) { return poison(g, AN_NOMEM, "out of memory"); }

static bool empty_arrays(graph *g)
{
    g->nodes.n = g->nodes.cap = g->values.n = g->values.cap = 0;
    g->inputs.n = g->inputs.cap = g->outputs.n = g->outputs.cap = 0;
    g->names = (str_map){ 0 };
    return VEC_PUSH(&g->mem, &g->nodes, (node){ 0 }) && VEC_PUSH(&g->mem, &g->values, (value){ 0 });
}

graph *graph_new(const char *title, size_t limit)
{
    graph *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->mem.limit = limit;
    g->title = arena_str(&g->mem, title ? title : "main");
    if (g->title && empty_arrays(g)) return g;
    graph_free(g);
    return NULL;
}

void graph_free(graph *g)
{
    if (!g) return;
    arena_free(&g->mem);
    free(g);
}

/* ---- names ---- */

/* The value that has this name now; 0 when none has (a name that was given up stays in the map with the value 0). */
static uint32_t name_owner(const graph *g, const char *s)
{
    uint32_t v = 0;
    return str_map_get(&g->names, s, strlen(s), &v) ? v : 0;
}

static bool name_taken(const graph *g, const char *s)
{
    return name_owner(g, s) || str_map_get(&g->reserved, s, strlen(s), NULL);
}

static const char *make_name(graph *g, const char *stem)
{
    for (;;) {
        arena_mark m = arena_save(&g->mem);
        const char *s = arena_printf(&g->mem, "%s_%u", stem, g->next_id++);
        if (!s || !name_taken(g, s)) return s;
        arena_back(&g->mem, m);
    }
}

static bool give_name(graph *g, uint32_t v, const char *name)
{
    if (!str_map_put(&g->mem, &g->names, name, strlen(name), v)) return no_memory(g), false;
    g->values.at[v].name = name;
    return true;
}

void graph_rename(graph *g, val v, const char *name)
{
    if (g->err.st || !v.i) return;
    value *x = &g->values.at[v.i];
    if (!strcmp(x->name, name)) return;
    if (name_owner(g, name)) {
        poison(g, AN_INPUT, "the name %s is already used in %s", name, g->title);
        return;
    }
    char *copy = arena_str(&g->mem, name);
    if (!copy) {
        no_memory(g);
        return;
    }
    if (!str_map_put(&g->mem, &g->names, x->name, strlen(x->name), 0)) {
        no_memory(g);
        return;
    }
    if (give_name(g, v.i, copy) && x->out == 0) g->nodes.at[x->node].name = copy;
}

val graph_find(const graph *g, const char *name)
{
    return (val){ name_owner(g, name) };
}

/* ---- nodes ---- */

/* Append a node and its results. n->name NULL: made up from the op's spelling. */
static val add_node(graph *g, node *n, const ttype *out, int n_out)
{
    if (n->name && name_owner(g, n->name))
        return poison(g, AN_INPUT, "the name %s is already used in %s", n->name, g->title);
    n->name = n->name ? arena_str(&g->mem, n->name) : make_name(g, n->mil);
    if (!n->name) return no_memory(g);
    n->at = g->here;
    n->n_out = n_out;
    n->out = (val){ (uint32_t)g->values.n };
    uint32_t at = (uint32_t)g->nodes.n;
    if (!VEC_PUSH(&g->mem, &g->nodes, *n)) return no_memory(g);
    for (int i = 0; i < n_out; i++) {
        const char *name = n->name;
        if (i) {
            name = arena_printf(&g->mem, "%s_%d", n->name, i);
            if (name && name_taken(g, name)) name = make_name(g, n->name);
        }
        value v = { .node = at, .out = i, .type = out[i] };
        if (!name || !VEC_PUSH(&g->mem, &g->values, v)) return no_memory(g);
        if (!give_name(g, (uint32_t)g->values.n - 1, name)) return NO_VAL;
    }
    return n->out;
}

val graph_input(graph *g, const char *name, ttype t)
{
    if (g->err.st) return NO_VAL;
    node n = { .op = OP_INPUT, .mil = "input", .name = name };
    val v = add_node(g, &n, &t, 1);
    if (v.i && !VEC_PUSH(&g->mem, &g->inputs, v)) return no_memory(g);
    return v;
}

static val add_const(graph *g, const char *name, ttype t, const const_data *c)
{
    if (g->err.st) return NO_VAL;
    size_t bytes;
    if (t.dt != DT_STRING && !shape_bytes(&t, &bytes))
        return poison(g, AN_INPUT, "constant %s: its shape is unknown or its size overflows", name ? name : "");
    const_data *copy = TAKE(&g->mem, const_data, 1);
    if (!copy) return no_memory(g);
    *copy = *c;
    node n = { .op = OP_CONST, .mil = "const", .name = name, .cst = copy };
    return add_node(g, &n, &t, 1);
}

val graph_const_view(graph *g, const char *name, ttype t, const void *data)
{
    return add_const(g, name, t, &(const_data){ .data = data });
}

val graph_const(graph *g, const char *name, ttype t, const void *data)
{
    size_t bytes;
    if (g->err.st) return NO_VAL;
    if (!shape_bytes(&t, &bytes))
        return poison(g, AN_INPUT, "constant %s: its shape is unknown or its size overflows", name ? name : "");
    unsigned char *copy = arena_take(&g->mem, bytes, 1, 64);
    if (!copy) return no_memory(g);
    if (bytes) memcpy(copy, data, bytes);
    return graph_const_view(g, name, t, copy);
}

val graph_const_blob(graph *g, const char *name, ttype t, const char *path, uint64_t offset, const void *data_view)
{
    if (g->err.st) return NO_VAL;
    char *p = arena_str(&g->mem, path);
    if (!p) return no_memory(g);
    return add_const(g, name, t, &(const_data){ .data = data_view, .blob_path = p, .blob_offset = offset });
}

val graph_const_str(graph *g, const char *name, const char *s)
{
    if (g->err.st) return NO_VAL;
    char *p = arena_str(&g->mem, s);
    if (!p) return no_memory(g);
    return add_const(g, name, (ttype){ .dt = DT_STRING }, &(const_data){ .str = p });
}

void graph_note_read(graph *g, const char *path, uint64_t offset, ttype t, const void *data_view)
{
    if (g->err.st) return;
    const char *key = arena_printf(&g->mem, "%llu %s", (unsigned long long)offset, path);
    if (key && str_map_get(&g->read_at, key, strlen(key), NULL)) return;
    if (!key || !str_map_put(&g->mem, &g->read_at, key, strlen(key), 0) ||
        !VEC_PUSH(&g->mem, &g->read, ((read_record){ strchr(key, ' ') + 1, offset, t, data_view })))
        no_memory(g);
}

/* Packed bytes for n elements of t, or NULL after setting the error. */
static void *room_for(graph *g, const char *name, const ttype *t, int64_t *n)
{
    size_t bytes;
    if (g->err.st) return NULL;
    if (!shape_elems(&t->sh, n) || !shape_bytes(t, &bytes)) {
        poison(g, AN_INPUT, "constant %s: its shape is unknown or its size overflows", name ? name : "");
        return NULL;
    }
    void *p = arena_take(&g->mem, bytes, 1, 64);
    if (!p) no_memory(g);
    return p;
}

val graph_const_f64(graph *g, const char *name, ttype t, const double *x)
{
    int64_t n = 0;
    void *p = room_for(g, name, &t, &n);
    if (!p) return NO_VAL;
    for (int64_t i = 0; i < n; i++) dtype_store(t.dt, p, i, x[i]);
    return graph_const_view(g, name, t, p);
}

val graph_fill_const(graph *g, const char *name, ttype t, double x)
{
    int64_t n = 0;
    void *p = room_for(g, name, &t, &n);
    if (!p) return NO_VAL;
    for (int64_t i = 0; i < n; i++) dtype_store(t.dt, p, i, x);
    return graph_const_view(g, name, t, p);
}

val graph_scalar(graph *g, dtype dt, double x) { return graph_fill_const(g, NULL, (ttype){ .dt = dt }, x); }

graph_mark graph_save(const graph *g)
{
    return (graph_mark){ g->nodes.n, g->values.n, g->inputs.n, g->outputs.n, g->err.st };
}

void graph_back(graph *g, graph_mark m)
{
    for (size_t i = m.values; i < g->values.n; i++) {
        const char *name = g->values.at[i].name; /* NULL: memory ended before it had one */
        if (name && !str_map_put(&g->mem, &g->names, name, strlen(name), 0)) return; /* never: the name is there */
    }
    g->nodes.n = m.nodes, g->values.n = m.values, g->inputs.n = m.inputs, g->outputs.n = m.outputs;
    if (!m.st) g->err = (diag){ 0 };
}

/* ---- operations ---- */

static bool copy_operands(graph *g, node *n, const op_info *info, const val *in, int n_in)
{
    bool list = info->n_in && info->in[info->n_in - 1].list;
    int fixed = info->n_in - list;
    if (n_in > fixed && !list) {
        poison(g, AN_INPUT, "%s takes at most %d operands, %d given", info->mil, fixed, n_in);
        return false;
    }
    n->n_in = MAX(n_in, fixed);
    n->in = TAKE(&g->mem, val, (size_t)n->n_in);
    if (!n->in) return no_memory(g), false;
    for (int i = 0; i < n->n_in; i++) {
        const operand_spec *s = &info->in[MIN(i, info->n_in - 1)];
        val v = i < n_in ? in[i] : NO_VAL;
        if (v.i >= g->values.n) {
            poison(g, AN_BUG, "%s: operand %s is not a value of %s", info->mil, s->name, g->title);
            return false;
        }
        if (!v.i && !s->optional) {
            poison(g, AN_INPUT, "%s: operand %s is missing", info->mil, s->name);
            return false;
        }
        n->in[i] = v;
    }
    if (list && n_in <= fixed) {
        poison(g, AN_INPUT, "%s: operand %s needs at least one value", info->mil, info->in[fixed].name);
        return false;
    }
    return true;
}

static bool same_as_default(const attr *a, const attr_spec *s)
{
    if (s->required || s->absent_ok) return false;
    if (a->kind != ATTR_INTS && a->kind != ATTR_BOOLS) return attr_eq(a, &s->def);
    for (int i = 0; i < a->n; i++)
        if (a->u.is[i] != s->def.u.is[0]) return false;
    return a->n > 0;
}

/* Attributes in table order, converted to the table's kind, defaults left out: equal meaning is equal bytes. */
static bool copy_attrs(graph *g, node *n, const op_info *info, const attr *at, int n_at)
{
    for (int i = 0; i < n_at; i++) {
        if (!op_attr_spec(info->id, at[i].id)) {
            poison(g, AN_INPUT, "%s has no attribute %s", info->mil, attr_name(at[i].id));
            return false;
        }
        if (attr_get(at, i, at[i].id)) {
            poison(g, AN_INPUT, "%s: attribute %s is given twice", info->mil, attr_name(at[i].id));
            return false;
        }
    }
    n->attrs = TAKE(&g->mem, attr, (size_t)info->n_attr);
    if (!n->attrs) return no_memory(g), false;
    for (int i = 0; i < info->n_attr; i++) {
        const attr_spec *s = &info->attr[i];
        const attr *given = attr_get(at, n_at, s->id);
        if (!given && s->required) {
            poison(g, AN_INPUT, "%s: attribute %s is missing", info->mil, attr_name(s->id));
            return false;
        }
        if (!given) continue;
        attr a = *given;
        if (s->kind == ATTR_FLOAT && a.kind == ATTR_INT) a.u.f = (double)given->u.i, a.kind = ATTR_FLOAT;
        if (s->kind == ATTR_BOOLS && a.kind == ATTR_INTS) a.kind = ATTR_BOOLS;
        if (s->kind == ATTR_BOOL && a.kind == ATTR_INT) a.kind = ATTR_BOOL;
        if (a.kind != s->kind) {
            poison(g, AN_INPUT, "%s: attribute %s has the wrong kind of value", info->mil, attr_name(s->id));
            return false;
        }
        if (same_as_default(&a, s)) continue;
        if (a.kind == ATTR_STR) {
            a.u.s = arena_str(&g->mem, a.u.s);
            if (!a.u.s) return no_memory(g), false;
        } else if (a.kind == ATTR_INTS || a.kind == ATTR_BOOLS) {
            int64_t *p = TAKE(&g->mem, int64_t, (size_t)a.n);
            if (!p) return no_memory(g), false;
            if (a.n) memcpy(p, a.u.is, (size_t)a.n * sizeof *p);
            a.u.is = p;
        }
        n->attrs[n->n_attr++] = a;
    }
    return true;
}

val graph_op_named(graph *g, const char *name, op_id op, const val *in, int n_in, const attr *attrs, int n_attr)
{
    if (g->err.st) return NO_VAL;
    const op_info *info = op_get(op);
    node n = { .op = op, .mil = info->mil, .name = name };
    if (!copy_operands(g, &n, info, in, n_in) || !copy_attrs(g, &n, info, attrs, n_attr)) return NO_VAL;

    arena_mark m = arena_save(&g->mem);
    int max_out = info->n_out ? info->n_out : MAX_RESULTS, n_out = 0;
    ttype *types = TAKE(&g->mem, ttype, (size_t)n.n_in), *out = TAKE(&g->mem, ttype, (size_t)max_out);
    if (!types || !out) return no_memory(g);
    for (int i = 0; i < n.n_in; i++) types[i] = n.in[i].i ? g->values.at[n.in[i].i].type : (ttype){ 0 };
    diag d = { 0 };
    if (graph_infer(op, types, n.n_in, n.attrs, n.n_attr, out, &n_out, max_out, &d))
        return poison(g, d.st, "%s", d.msg);
    if (n_out > max_out)
        return poison(g, AN_INPUT, "%s yields %d results, at most %d can be held", info->mil, n_out, max_out);
    ttype few[4], *keep = out;
    if ((size_t)n_out <= COUNT(few)) { /* the usual case gives its scratch back */
        memcpy(few, out, (size_t)n_out * sizeof *out);
        keep = few;
        arena_back(&g->mem, m);
    }
    return add_node(g, &n, keep, n_out);
}

val graph_op(graph *g, op_id op, const val *in, int n_in, const attr *attrs, int n_attr)
{
    return graph_op_named(g, NULL, op, in, n_in, attrs, n_attr);
}

val graph_opaque(graph *g, const char *name, const char *mil, const val *in, int n_in, const ttype *out, int n_out)
{
    if (g->err.st) return NO_VAL;
    node n = { .op = OP_OPAQUE, .mil = arena_str(&g->mem, mil), .name = name, .n_in = n_in };
    n.in = TAKE(&g->mem, val, (size_t)n_in);
    if (!n.mil || !n.in) return no_memory(g);
    for (int i = 0; i < n_in; i++) n.in[i] = in[i];
    return add_node(g, &n, out, n_out);
}

val graph_out(val first, int k) { return (val){ first.i ? first.i + (uint32_t)k : 0 }; }

void graph_output(graph *g, const char *name, val v)
{
    if (g->err.st) return;
    if (!v.i || v.i >= g->values.n) {
        poison(g, AN_BUG, "output %s is not a value of %s", name, g->title);
        return;
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        if (!strcmp(g->outputs.at[i].name, name)) {
            poison(g, AN_INPUT, "%s has two outputs named %s", g->title, name);
            return;
        }
    port p = { arena_str(&g->mem, name), v };
    if (!p.name || !VEC_PUSH(&g->mem, &g->outputs, p)) no_memory(g);
}

an_status graph_finish(graph *g, diag *d)
{
    if (g->err.st) return diag_fail(d, g->err.st, g->err.at, "%s", g->err.msg);
    return graph_verify(g, "building", d);
}

/* ---- looking ---- */

const node *graph_const_of(const graph *g, val v)
{
    const node *n = v.i ? graph_maker(g, v) : NULL;
    return n && n->op == OP_CONST && n->cst->data ? n : NULL;
}

double graph_const_at(const node *c, const ttype *t, int64_t i) { return dtype_load(t->dt, c->cst->data, i); }

bool graph_const_scalar(const graph *g, val v, double *x)
{
    const node *c = graph_const_of(g, v);
    const ttype *t = graph_type(g, v);
    int64_t n;
    if (!c || !shape_elems(&t->sh, &n) || n == 0) return false;
    double first = graph_const_at(c, t, 0);
    for (int64_t i = 1; i < n; i++)
        if (graph_const_at(c, t, i) != first) return false;
    *x = first;
    return first == first;
}

void graph_uses(const graph *g, uint32_t *n_uses)
{
    memset(n_uses, 0, g->values.n * sizeof *n_uses);
    for (size_t i = 1; i < g->nodes.n; i++)
        for (int k = 0; k < g->nodes.at[i].n_in; k++) n_uses[g->nodes.at[i].in[k].i]++;
    for (size_t i = 0; i < g->outputs.n; i++) n_uses[g->outputs.at[i].v.i]++;
}

/* ---- rewriting ---- */

an_status graph_rewrite_begin(graph *g, rewrite *rw)
{
    if (g->err.st) return g->err.st;
    *rw = (rewrite){ .nodes = g->nodes.at, .n_nodes = g->nodes.n, .values = g->values.at, .n_values = g->values.n };
    memcpy(&rw->inputs, &g->inputs, sizeof rw->inputs);
    memcpy(&rw->outputs, &g->outputs, sizeof rw->outputs);
    rw->map = TAKE(&g->mem, val, g->values.n);
    g->reserved = g->names;
    if (!rw->map || !empty_arrays(g)) no_memory(g);
    return g->err.st;
}

void graph_rewrite_copy(graph *g, rewrite *rw, uint32_t i)
{
    if (g->err.st) return;
    node n = rw->nodes[i];
    loc here = g->here;
    g->here = n.at;
    if (n.n_in) {
        val *in = TAKE(&g->mem, val, (size_t)n.n_in);
        if (!in) {
            no_memory(g);
            return;
        }
        for (int k = 0; k < n.n_in; k++) in[k] = rw->map[n.in[k].i];
        n.in = in;
    }
    /* Types are those of the old results unless an operand's type changed under the rewrite. */
    bool same = true;
    for (int k = 0; k < n.n_in && same; k++) {
        const ttype *was = &rw->values[rw->nodes[i].in[k].i].type, *now = &g->values.at[n.in[k].i].type;
        same = was->dt == now->dt && shape_eq(&was->sh, &now->sh);
    }
    uint32_t first = rw->nodes[i].out.i;
    val out;
    if (same || n.op == OP_OPAQUE) {
        ttype few[4], *types = (size_t)n.n_out <= COUNT(few) ? few : TAKE(&g->mem, ttype, (size_t)n.n_out);
        if (!types) {
            no_memory(g);
            return;
        }
        for (int k = 0; k < n.n_out; k++) types[k] = rw->values[first + (uint32_t)k].type;
        out = add_node(g, &n, types, n.n_out);
    } else {
        out = graph_op_named(g, n.name, n.op, n.in, n.n_in, n.attrs, n.n_attr);
        if (out.i) g->nodes.at[g->values.at[out.i].node].flags = n.flags;
    }
    if (out.i && n.op == OP_INPUT && !VEC_PUSH(&g->mem, &g->inputs, out)) no_memory(g);
    for (int k = 0; k < n.n_out && out.i; k++) {
        rw->map[first + (uint32_t)k] = graph_out(out, k);
        if (k) graph_rename(g, graph_out(out, k), rw->values[first + (uint32_t)k].name);
    }
    g->here = here;
}

an_status graph_rewrite_end(graph *g, rewrite *rw)
{
    for (size_t i = 0; i < rw->outputs.n && !g->err.st; i++)
        graph_output(g, rw->outputs.at[i].name, rw->map[rw->outputs.at[i].v.i]);
    g->reserved = (str_map){ 0 };
    return g->err.st;
}
