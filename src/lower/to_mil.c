/* to_mil.c: a graph as canonical MIL: the form every known route accepts. In: a finished graph.  Out: a module with
 * one function main, and the constants that do not belong in the text as records of a weight file. Every argument is
 * the name of an earlier statement, so attributes become constants first; equal constants are written once.
 * Arguments are in alphabetical order. Only what the results need is written. */
#include "lower/lower_int.h"

enum { INLINE_MAX = 16, KEY_MAX_ELEMS = 64, NAME_MAX_CHARS = 96 };

typedef struct {
    const graph *g;
    mil_module *m;
    blob_writer *blob;
    diag *d;
    arena tmp;
    loc at;               /* of the node whose statements are written, in the text the graph came from */
    bool bare, inline_all;
    int64_t inline_max;
    const char *path;     /* of new weights */
    bool *live;           /* per node */
    bool *state;          /* per value: an input that is a state */
    bool *as_value;       /* per value: an input that is used as a tensor */
    const char **name;    /* per value: its variable; NULL until it is written */
    const char **read;    /* per value: of a state, the variable of what it holds; NULL until it is read */
    VEC(mil_op) ops;
    str_map taken;        /* variables; reserved ones too */
    unsigned next;
    str_map consts;       /* type and content -> index into const_name */
    VEC(const char *) const_name;
    str_map payload[DT_COUNT]; /* content -> index into offset */
    VEC(uint64_t) offset;
} writer;

static an_status nomem(writer *w) { return diag_nomem(w->d); }

/* ---- names ---- */

/* Words that start a type or a clause: legal as names in our reader, risky in others. */
static const char *const kept_words[] = { "program", "func",     "block", "const",  "tensor", "list",
                                          "tuple",   "dict",     "state", "string", "bool",   "true",
                                          "false",   "BLOBFILE", "inf",   "nan",    "main" };

static bool word_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

static bool kept_word(const char *s)
{
    for (size_t i = 0; i < COUNT(kept_words); i++)
        if (!strcmp(kept_words[i], s)) return true;
    return dtype_from_name(s, strlen(s)) != DT_NONE;
}

static bool legal_name(const char *s)
{
    if (!word_char(*s, true)) return false;
    for (; *s; s++)
        if (!word_char(*s, false)) return false;
    return true;
}

static bool take_name(writer *w, const char *s) { return str_map_put(&w->tmp, &w->taken, s, strlen(s), 0); }

/* A free variable that reads like `stem`. NULL: no memory. */
static const char *free_name(writer *w, const char *stem)
{
    char clean[NAME_MAX_CHARS + 24];
    size_t n = 0;
    if (!word_char(*stem, true)) clean[n++] = '_';
    for (; *stem && n < NAME_MAX_CHARS; stem++) clean[n++] = word_char(*stem, false) ? *stem : '_';
    clean[n] = 0;
    if (kept_word(clean)) clean[n++] = '_', clean[n] = 0;
    while (str_map_get(&w->taken, clean, strlen(clean), NULL)) snprintf(clean + n, sizeof clean - n, "_%u", w->next++);
    const char *s = arena_str(&w->m->mem, clean);
    return s && take_name(w, s) ? s : NULL;
}

static an_status port_name(writer *w, const char *what, const char *s)
{
    if (!legal_name(s))
        return diag_fail(w->d, AN_INPUT, NOWHERE, "%s \"%s\" of %s is not a MIL identifier", what, s, w->g->title);
    if (str_map_get(&w->taken, s, strlen(s), NULL))
        return diag_fail(w->d, AN_INPUT, NOWHERE, "%s has two ports named %s; MIL has one name space for both",
                         w->g->title, s);
    return take_name(w, s) ? AN_OK : nomem(w);
}

/* ---- statements ---- */

static mil_type *type_of(writer *w, const ttype *t)
{
    return mil_type_tensor(w->m, t->dt, t->sh.rank, t->sh.d, w->bare && t->sh.rank == 0);
}

/* A statement with room for its parts; results are named and typed by the caller. Valid until the next one is added. */
static mil_op *add_op(writer *w, const char *op, int n_out, int n_arg, int n_attr, const char *label)
{
    mil_op s = { .at = w->at, .op = op, .n_out = n_out, .n_arg = n_arg, .n_attr = n_attr + 1 };
    s.out = TAKE(&w->m->mem, mil_var, (size_t)n_out);
    s.arg = TAKE(&w->m->mem, mil_arg, (size_t)n_arg);
    s.attr = TAKE(&w->m->mem, mil_attr, (size_t)n_attr + 1);
    if (!s.out || !s.arg || !s.attr) return NULL;
    s.attr[0] = (mil_attr){ .name = "name", .lit = mil_lit_str(w->m, w->bare, label) };
    if (!s.attr[0].lit || !VEC_PUSH(&w->m->mem, &w->ops, s)) return NULL;
    return &w->ops.at[w->ops.n - 1];
}

static bool set_ref(writer *w, mil_arg *a, const char *name, const char *const *ref, int n, bool tuple)
{
    *a = (mil_arg){ .name = name, .tuple = tuple, .n = n, .item = TAKE(&w->m->mem, mil_arg_item, (size_t)n) };
    if (!a->item) return false;
    for (int i = 0; i < n; i++) a->item[i].ref = ref[i];
    return true;
}

/* The variable that holds this literal: an equal constant written before, or a new statement. key may be NULL: no
 * sharing. */
static const char *const_var(writer *w, mil_lit *lit, const char *stem, const char *key, size_t n_key)
{
    uint32_t i;
    if (!lit) return NULL;
    if (key && str_map_get(&w->consts, key, n_key, &i)) return w->const_name.at[i];
    const char *var = free_name(w, stem);
    mil_op *s = var ? add_op(w, "const", 1, 0, 1, var) : NULL;
    if (!s) return NULL;
    s->out[0] = (mil_var){ .type = lit->type, .name = var };
    s->attr[1] = (mil_attr){ .name = "val", .lit = lit };
    if (!key) return var;
    char *copy = arena_strn(&w->tmp, key, n_key);
    if (!copy || !str_map_put(&w->tmp, &w->consts, copy, n_key, (uint32_t)w->const_name.n)) return NULL;
    return VEC_PUSH(&w->tmp, &w->const_name, var) ? var : NULL;
}

static void key_type(strbuf *k, const ttype *t)
{
    sb_putn(k, (const char *)&t->dt, sizeof t->dt);
    sb_putn(k, (const char *)&t->sh.rank, sizeof t->sh.rank);
    sb_putn(k, (const char *)t->sh.d, (size_t)t->sh.rank * sizeof *t->sh.d);
}

static const char *data_const(writer *w, const ttype *t, const void *packed, size_t bytes, const char *stem)
{
    strbuf k = { 0 };
    key_type(&k, t);
    sb_putn(&k, packed, bytes);
    mil_type *mt = type_of(w, t);
    const char *var = k.oom || !mt ? NULL : const_var(w, mil_lit_data(w->m, mt, packed), stem, k.at, k.n);
    sb_free(&k);
    return var;
}

static const char *str_const(writer *w, const char *s)
{
    char stem[40];
    snprintf(stem, sizeof stem, "s_%.30s", s);
    strbuf k = { 0 };
    sb_putc(&k, '"');
    sb_puts(&k, s);
    const char *var = k.oom ? NULL : const_var(w, mil_lit_str(w->m, w->bare, s), stem, k.at, k.n);
    sb_free(&k);
    return var;
}

/* ---- constants of the graph ---- */

/* Offset of the record that holds these bytes; equal content of one type is stored once. */
static an_status store_payload(writer *w, const ttype *t, const void *p, size_t bytes, uint64_t *offset)
{
    uint32_t i;
    if (str_map_get(&w->payload[t->dt], p, bytes, &i)) return *offset = w->offset.at[i], AN_OK;
    TRY(blob_add(w->blob, t->dt, p, bytes, offset, w->d));
    if (!str_map_put(&w->tmp, &w->payload[t->dt], p, bytes, (uint32_t)w->offset.n)) return nomem(w);
    return VEC_PUSH(&w->tmp, &w->offset, *offset) ? AN_OK : nomem(w);
}

/* The literal of a constant node, and in *key what makes it equal to another (left empty: not worth comparing). */
static an_status const_literal(writer *w, const node *c, mil_lit **out, strbuf *key)
{
    const ttype *t = graph_type(w->g, c->out);
    const const_data *cd = c->cst;
    if (t->dt == DT_STRING) {
        sb_putc(key, '"');
        sb_puts(key, cd->str);
        *out = mil_lit_str(w->m, w->bare, cd->str);
        return *out ? AN_OK : nomem(w);
    }
    int64_t n;
    size_t bytes;
    uint64_t offset = cd->blob_offset;
    const char *path = cd->blob_path;
    if (!shape_elems(&t->sh, &n) || !shape_bytes(t, &bytes))
        return diag_fail(w->d, AN_BUG, c->at, "constant %s has no size", c->name);
    mil_type *mt = type_of(w, t);
    if (!mt) return nomem(w);
    bool small = n <= w->inline_max && !path; /* what came from a file stays apart, so that it can be replaced */
    if (cd->data && (small || w->inline_all || !dtype_blob_code(t->dt))) {
        *out = mil_lit_data(w->m, mt, cd->data);
        if (n <= KEY_MAX_ELEMS) {
            key_type(key, t);
            sb_putn(key, cd->data, bytes);
        }
        return *out ? AN_OK : nomem(w);
    }
    if (cd->data) {
        TRY(store_payload(w, t, cd->data, bytes, &offset));
        path = w->path;
    } else if (!path)
        return diag_fail(w->d, AN_UNSUPPORTED, c->at,
                         "constant %s has neither content nor a weight file, so there is nothing to write", c->name);
    sb_putc(key, '@'); /* neither a type nor a string begins so: a place is not the bytes that spell it */
    key_type(key, t);
    sb_printf(key, "%s@%llu", path, (unsigned long long)offset);
    *out = mil_lit_blob(w->m, mt, path, offset);
    return *out ? AN_OK : nomem(w);
}

/* The variable of what a state held when the run began. Only read_state and the update take a state by its name: where
 * a graph uses one as the tensor it is, a read of its own goes first. */
static an_status state_var(writer *w, val v, const char **out)
{
    if (!w->read[v.i]) {
        const loc user = w->at;
        char stem[NAME_MAX_CHARS];
        snprintf(stem, sizeof stem, "%.*s_read", NAME_MAX_CHARS - 10, w->name[v.i]);
        const char *var = free_name(w, stem);
        mil_type *t = type_of(w, graph_type(w->g, v));
        w->at = graph_maker(w->g, v)->at;
        mil_op *s = var ? add_op(w, spell_op_write(OP_READ_STATE), 1, 1, 0, var) : NULL;
        w->at = user;
        const char *arg = spell_arg_write(OP_READ_STATE, op_get(OP_READ_STATE)->in[0].name);
        if (!s || !t || !set_ref(w, &s->arg[0], arg, &w->name[v.i], 1, false)) return nomem(w);
        s->out[0] = (mil_var){ .type = t, .name = var };
        w->read[v.i] = var;
    }
    *out = w->read[v.i];
    return AN_OK;
}

/* The variable of a value; a constant is written at its first use. */
static an_status value_var(writer *w, val v, const char **out)
{
    if (w->state[v.i]) return state_var(w, v, out);
    const node *n = graph_maker(w->g, v);
    if (!w->name[v.i] && n->op == OP_CONST) {
        strbuf key = { 0 };
        mil_lit *lit = NULL;
        loc user = w->at;
        an_status st = const_literal(w, n, &lit, &key);
        if (!st && key.oom) st = nomem(w);
        w->at = n->at;
        if (!st && !(w->name[v.i] = const_var(w, lit, n->name, key.n ? key.at : NULL, key.n))) st = nomem(w);
        w->at = user;
        sb_free(&key);
        if (st) return st;
    }
    *out = w->name[v.i];
    return *out ? AN_OK : diag_fail(w->d, AN_BUG, n->at, "%s is used before it is written", n->name);
}

/* ---- attributes ---- */

/* Element type of a float attribute: its operand's, so that mixed types never appear; fp32 where MIL says so or
 * where the operand's type cannot hold the value at all. */
static dtype float_attr_type(writer *w, const node *n, const attr *a)
{
    dtype dt = DT_F32;
    if (n->op == OP_FILL || n->op == OP_RANDOM_UNIFORM) dt = graph_type(w->g, n->out)->dt;
    else if (a->id != A_SCALE_FACTOR_HEIGHT && a->id != A_SCALE_FACTOR_WIDTH && a->id != A_SPATIAL_SCALE && n->n_in &&
             n->in[0].i)
        dt = graph_type(w->g, n->in[0])->dt;
    if (n->op != OP_FILL && n->op != OP_FILL_LIKE && n->op != OP_PAD && !dtype_is_float(dt)) return DT_F32;
    double r = dtype_round(dt, a->u.f);
    bool lost = (a->u.f != 0 && r == 0) || (r - r != 0 && a->u.f - a->u.f == 0);
    return lost && dtype_is_float(dt) ? DT_F32 : dt;
}

static void list_stem(char *stem, size_t cap, char kind, const attr *a)
{
    size_t n = (size_t)snprintf(stem, cap, "%c", kind);
    if (a->n > 8) {
        snprintf(stem, cap, "%c_%s", kind, attr_name(a->id));
        return;
    }
    for (int i = 0; i < a->n && n + 24 < cap; i++)
        n += (size_t)snprintf(stem + n, cap - n, a->u.is[i] < 0 ? "_m%llu" : "_%llu",
                              a->u.is[i] < 0 ? (unsigned long long)0 - (unsigned long long)a->u.is[i]
                                             : (unsigned long long)a->u.is[i]);
}

/* An attribute as type and packed content; strings have none. */
static an_status pack_attr(writer *w, const node *n, const attr *a, ttype *t, void **packed, size_t *bytes, char *stem,
                           size_t cap)
{
    bool list = a->kind == ATTR_INTS || a->kind == ATTR_BOOLS, bools = a->kind == ATTR_BOOL || a->kind == ATTR_BOOLS;
    int64_t count = list ? a->n : 1;
    *t = (ttype){ .dt = bools ? DT_BOOL : DT_I32 };
    if (a->kind == ATTR_FLOAT) t->dt = float_attr_type(w, n, a);
    if (spell_constexpr(n->op) && a->id == A_SHAPE) t->dt = DT_U32;
    if (list) t->sh = shape_of(&count, 1);
    if (list && (a->id == A_PADDINGS || a->id == A_CROPS)) t->sh = SHAPE(count / 2, 2); /* a pair per dimension */
    *packed = dtype_bytes(t->dt, count, bytes) ? arena_take(&w->tmp, *bytes, 1, 8) : NULL;
    if (!*packed) return nomem(w);
    for (int64_t i = 0; i < count; i++) {
        if (a->kind == ATTR_FLOAT) {
            dtype_store(t->dt, *packed, i, a->u.f);
            continue;
        }
        int64_t x = list ? a->u.is[i] : a->u.i;
        if (x > INT32_MAX || x < INT32_MIN)
            return diag_fail(w->d, AN_UNSUPPORTED, n->at, "%s: %s of %s is %lld, MIL's integers here have 32 bits",
                             n->name, attr_name(a->id), op_get(n->op)->mil, (long long)x);
        dtype_store(t->dt, *packed, i, (double)x);
    }
    attr one = *a;
    if (!list) one.n = 1, one.u.is = &a->u.i;
    if (a->kind == ATTR_BOOL) snprintf(stem, cap, "%s", a->u.i ? "yes" : "no");
    else if (a->kind == ATTR_FLOAT) snprintf(stem, cap, "f_%s", attr_name(a->id));
    else list_stem(stem, cap, bools ? 'b' : list ? 'l' : 'i', &one);
    return AN_OK;
}

static an_status attr_var(writer *w, const node *n, const attr *a, const char **out)
{
    if (a->kind == ATTR_STR) *out = str_const(w, a->u.s);
    else {
        ttype t;
        void *p;
        size_t bytes;
        char stem[NAME_MAX_CHARS];
        TRY(pack_attr(w, n, a, &t, &p, &bytes, stem, sizeof stem));
        *out = data_const(w, &t, p, bytes, stem);
    }
    return *out ? AN_OK : nomem(w);
}

static an_status attr_literal(writer *w, const node *n, const attr *a, mil_lit **out)
{
    if (a->kind == ATTR_STR) *out = mil_lit_str(w->m, w->bare, a->u.s);
    else {
        ttype t;
        void *p;
        size_t bytes;
        char stem[NAME_MAX_CHARS];
        TRY(pack_attr(w, n, a, &t, &p, &bytes, stem, sizeof stem));
        mil_type *mt = type_of(w, &t);
        *out = mt ? mil_lit_data(w->m, mt, p) : NULL;
    }
    return *out ? AN_OK : nomem(w);
}

/* A one-element list default spread to the length the op wants: one per spatial dimension, two for padding. */
static bool spread_default(writer *w, const node *n, attr *a)
{
    if (a->kind != ATTR_INTS && a->kind != ATTR_BOOLS) return true;
    int spatial = graph_type(w->g, n->in[0])->sh.rank - 2;
    int len = a->id == A_PAD ? 2 * spatial : spatial;
    int64_t *p = TAKE(&w->tmp, int64_t, (size_t)MAX(len, 1));
    if (!p) return false;
    for (int i = 0; i < len; i++) p[i] = a->u.is[0];
    a->u.is = p;
    a->n = len;
    return true;
}

/* The attributes to spell, defaults included where routes want them. */
static an_status attrs_of(writer *w, const node *n, attr *out, int *n_out)
{
    const op_info *o = op_get(n->op);
    *n_out = 0;
    for (int i = 0; i < o->n_attr; i++) {
        const attr_spec *s = &o->attr[i];
        const attr *given = attr_get(n->attrs, n->n_attr, s->id);
        if (spell_attr_from_type(n->op, s->id)) continue;
        if (given) out[(*n_out)++] = *given;
        else if (!s->required && !s->absent_ok && (spell_always(n->op) || spell_constexpr(n->op))) {
            out[*n_out] = s->def;
            if (!spread_default(w, n, &out[(*n_out)++])) return nomem(w);
        }
    }
    return AN_OK;
}

/* ---- operations ---- */

static an_status name_results(writer *w, const node *n, mil_op *s)
{
    for (int k = 0; k < n->n_out; k++) {
        val v = graph_out(n->out, k);
        s->out[k] = (mil_var){ .name = w->name[v.i], .type = type_of(w, graph_type(w->g, v)) };
        if (!s->out[k].type) return nomem(w);
    }
    return AN_OK;
}

/* Variables for the results, before the statement that makes them. A port's name was given before anything else. */
static an_status pick_results(writer *w, const node *n)
{
    for (int k = 0; k < n->n_out; k++) {
        uint32_t v = n->out.i + (uint32_t)k;
        if (!w->name[v]) w->name[v] = free_name(w, w->g->values.at[v].name);
        if (!w->name[v]) return nomem(w);
    }
    return AN_OK;
}

/* Operand k is the state itself. What a run only computes is no state: a read of it is a copy, an update what it is
 * updated to. */
static bool names_state(const graph *g, const node *n, int k)
{
    return (n->op == OP_READ_STATE || n->op == OP_WRITE_STATE) && k == 0 && graph_maker(g, n->in[0])->op == OP_INPUT;
}

static void sort_args(mil_arg *a, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && strcmp(a[k - 1].name, a[k].name) > 0; k--) {
            mil_arg t = a[k];
            a[k] = a[k - 1];
            a[k - 1] = t;
        }
}

static an_status write_call(writer *w, const node *n)
{
    const op_info *o = op_get(n->op);
    mil_arg args[OP_MAX_OPERANDS + OP_MAX_ATTRS];
    attr at[OP_MAX_ATTRS];
    int n_arg = 0, n_at;
    bool list = o->n_in && o->in[o->n_in - 1].list;
    int fixed = o->n_in - list, n_list = n->n_in - fixed;
    const char *var;
    TRY(attrs_of(w, n, at, &n_at));
    for (int i = 0; i < n_at; i++) {
        TRY(attr_var(w, n, &at[i], &var));
        if (!set_ref(w, &args[n_arg++], spell_arg_write(n->op, attr_name(at[i].id)), &var, 1, false)) return nomem(w);
    }
    for (int i = 0; i < MIN(fixed, n->n_in); i++) {
        if (!n->in[i].i) continue;
        if (names_state(w->g, n, i)) var = w->name[n->in[i].i];
        else TRY(value_var(w, n->in[i], &var));
        if (!set_ref(w, &args[n_arg++], spell_arg_write(n->op, o->in[i].name), &var, 1, false)) return nomem(w);
    }
    if (list) {
        const char **refs = TAKE(&w->tmp, const char *, (size_t)n_list);
        if (!refs) return nomem(w);
        for (int i = 0; i < n_list; i++) TRY(value_var(w, n->in[fixed + i], &refs[i]));
        if (!set_ref(w, &args[n_arg++], spell_arg_write(n->op, o->in[fixed].name), refs, n_list, true)) return nomem(w);
    }
    TRY(pick_results(w, n));
    mil_op *s = add_op(w, spell_op_write(n->op), n->n_out, n_arg, 0, w->name[n->out.i]);
    if (!s) return nomem(w);
    sort_args(args, n_arg);
    memcpy(s->arg, args, (size_t)n_arg * sizeof *args);
    return name_results(w, n, s);
}

/* Compressed weights: constants sit in the brackets as literals; what another such op made is an argument by name. */
static an_status write_constexpr(writer *w, const node *n)
{
    const op_info *o = op_get(n->op);
    mil_attr lits[OP_MAX_OPERANDS + OP_MAX_ATTRS];
    mil_arg args[OP_MAX_OPERANDS];
    attr at[OP_MAX_ATTRS];
    int n_lit = 0, n_arg = 0, n_at;
    TRY(attrs_of(w, n, at, &n_at));
    for (int i = 0; i < n_at; i++) {
        lits[n_lit].name = spell_arg_write(n->op, attr_name(at[i].id));
        TRY(attr_literal(w, n, &at[i], &lits[n_lit++].lit));
    }
    for (int i = 0; i < n->n_in; i++) {
        if (!n->in[i].i) continue;
        const node *c = graph_maker(w->g, n->in[i]);
        const char *var, *name = spell_arg_write(n->op, o->in[i].name);
        if (c->op != OP_CONST) {
            TRY(value_var(w, n->in[i], &var));
            if (!set_ref(w, &args[n_arg++], name, &var, 1, false)) return nomem(w);
            continue;
        }
        strbuf key = { 0 };
        lits[n_lit].name = name;
        an_status st = const_literal(w, c, &lits[n_lit++].lit, &key);
        sb_free(&key);
        if (st) return st;
    }
    TRY(pick_results(w, n));
    mil_op *s = add_op(w, o->mil, n->n_out, n_arg, n_lit, w->name[n->out.i]);
    if (!s) return nomem(w);
    for (int i = 0; i < n_lit; i++) s->attr[1 + i] = (mil_attr){ .name = lits[i].name, .lit = lits[i].lit };
    memcpy(s->arg, args, (size_t)n_arg * sizeof *args);
    return name_results(w, n, s);
}

static an_status write_same(writer *w, const node *n, val of)
{
    const char *var;
    TRY(value_var(w, of, &var));
    TRY(pick_results(w, n));
    mil_op *s = add_op(w, spell_op_write(OP_IDENTITY), 1, 1, 0, w->name[n->out.i]);
    if (!s || !set_ref(w, &s->arg[0], "x", &var, 1, false)) return nomem(w);
    return name_results(w, n, s);
}

static an_status write_node(writer *w, const node *n)
{
    w->at = n->at;
    switch (n->op) {
    case OP_READ_STATE:
        if (!names_state(w->g, n, 0)) return write_same(w, n, n->in[0]);
        TRY(write_call(w, n));
        if (!w->read[n->in[0].i]) w->read[n->in[0].i] = w->name[n->out.i];
        return AN_OK;
    case OP_WRITE_STATE: return names_state(w->g, n, 0) ? write_call(w, n) : write_same(w, n, n->in[1]);
    case OP_INPUT:
    case OP_CONST: return AN_OK; /* parameters; written at the first use */
    case OP_OPAQUE:
        return diag_fail(
            w->d, AN_UNSUPPORTED, n->at,
            "%s = %s(…): only the original text can spell this operation; its arguments are not in the graph", n->name,
            n->mil);
    default: return spell_constexpr(n->op) ? write_constexpr(w, n) : write_call(w, n);
    }
}

/* ---- the function ---- */

/* Results of the program and writes to state are what it is for; everything they need is live. */
static void mark_live(writer *w)
{
    const graph *g = w->g;
    for (size_t i = 0; i < g->outputs.n; i++) {
        const val v = g->outputs.at[i].v;
        w->live[graph_value(g, v)->node] = w->as_value[v.i] = true;
    }
    for (size_t i = g->nodes.n; i-- > 1;) {
        const node *n = &g->nodes.at[i];
        if (n->op == OP_WRITE_STATE && names_state(g, n, 0)) w->live[i] = true;
        for (int k = 0; k < n->n_in; k++) {
            if (names_state(g, n, k)) w->state[n->in[k].i] = true;
            else if (w->live[i]) w->as_value[n->in[k].i] = true;
            if (n->in[k].i && w->live[i]) w->live[graph_value(g, n->in[k])->node] = true;
        }
    }
}

/* Ports first, so that nothing else takes their names. A value returned once takes its port's name. */
static an_status name_ports(writer *w)
{
    const graph *g = w->g;
    for (size_t i = 0; i < g->inputs.n; i++) {
        val v = g->inputs.at[i];
        TRY(port_name(w, "input", graph_value(g, v)->name));
        w->name[v.i] = arena_str(&w->m->mem, graph_value(g, v)->name);
        if (!w->name[v.i]) return nomem(w);
    }
    for (size_t i = 0; i < g->outputs.n; i++) {
        const port *p = &g->outputs.at[i];
        op_id op = graph_maker(g, p->v)->op;
        /* no room for a copy: returned as it is */
        if (op == OP_INPUT && !w->state[p->v.i] && !strcmp(p->name, graph_value(g, p->v)->name)) continue;
        TRY(port_name(w, "output", p->name));
        if (w->name[p->v.i] || op == OP_INPUT || op == OP_CONST) continue; /* gets a copy */
        w->name[p->v.i] = arena_str(&w->m->mem, p->name);
        if (!w->name[p->v.i]) return nomem(w);
    }
    return AN_OK;
}

static an_status write_inputs(writer *w, mil_block *f)
{
    const graph *g = w->g;
    f->n_in = (int)g->inputs.n;
    f->in = TAKE(&w->m->mem, mil_var, g->inputs.n);
    if (!f->in) return nomem(w);
    for (size_t i = 0; i < g->inputs.n; i++) {
        val v = g->inputs.at[i];
        mil_type *t = type_of(w, graph_type(g, v));
        if (!t) return nomem(w);
        if (w->state[v.i]) {
            mil_type *s = TAKE(&w->m->mem, mil_type, 1);
            mil_type **sub = TAKE(&w->m->mem, mil_type *, 1);
            if (!s || !sub) return nomem(w);
            sub[0] = t;
            *s = (mil_type){ .kind = MT_STATE, .n_sub = 1, .sub = sub };
            t = s;
        }
        f->in[i] = (mil_var){ .type = t, .name = w->name[v.i], .at = graph_maker(g, v)->at };
    }
    return AN_OK;
}

/* An output that no statement makes under its name: an input, a constant, or a value returned twice. */
static an_status write_copy(writer *w, const port *p)
{
    const char *var;
    TRY(value_var(w, p->v, &var));
    mil_op *s = add_op(w, "identity", 1, 1, 0, p->name);
    char *name = arena_str(&w->m->mem, p->name);
    mil_type *t = type_of(w, graph_type(w->g, p->v));
    if (!s || !name || !t || !set_ref(w, &s->arg[0], "x", &var, 1, false)) return nomem(w);
    s->out[0] = (mil_var){ .type = t, .name = name };
    return AN_OK;
}

static an_status write_outputs(writer *w, mil_block *f)
{
    const graph *g = w->g;
    f->n_out = (int)g->outputs.n;
    f->out = TAKE(&w->m->mem, mil_arg_item, g->outputs.n);
    if (!f->out) return nomem(w);
    for (size_t i = 0; i < g->outputs.n; i++) {
        const port *p = &g->outputs.at[i];
        w->at = f->out[i].at = graph_maker(g, p->v)->at;
        if (!w->name[p->v.i] || strcmp(w->name[p->v.i], p->name)) TRY(write_copy(w, p));
        f->out[i].ref = arena_str(&w->m->mem, p->name);
        if (!f->out[i].ref) return nomem(w);
    }
    return AN_OK;
}

/* The header known parsers accept. Only coremlc-version is required, its value is free. */
static an_status write_build_info(writer *w)
{
    static const char *const modern[] = { "coremlc-component-MIL", "3510.2.1", "coremlc-version", "3505.4.1",
                                          "coremltools-component-milinternal", "", "coremltools-version", "9.0" };
    static const char *const old[] = { "coremlc-version", "3505.4.1" };
    const char *const *kv = w->bare ? modern : old;
    size_t n = w->bare ? COUNT(modern) : COUNT(old);
    mil_module *m = w->m;
    mil_attr *a = TAKE(&m->mem, mil_attr, 1);
    mil_lit *dict = TAKE(&m->mem, mil_lit, 1);
    mil_type *t = TAKE(&m->mem, mil_type, 1);
    mil_type **sub = TAKE(&m->mem, mil_type *, 2);
    mil_lit **item = TAKE(&m->mem, mil_lit *, n);
    if (!a || !dict || !t || !sub || !item) return nomem(w);
    sub[0] = sub[1] = mil_type_tensor(m, DT_STRING, 0, NULL, w->bare);
    for (size_t i = 0; i < n; i++)
        if (!(item[i] = mil_lit_str(m, w->bare, kv[i]))) return nomem(w);
    if (!sub[0]) return nomem(w);
    *t = (mil_type){ .kind = MT_DICT, .n_sub = 2, .sub = sub };
    *dict = (mil_lit){ .kind = ML_DICT, .type = t, .n = (int64_t)n / 2, .item = item };
    *a = (mil_attr){ .name = "buildInfo", .lit = dict };
    m->attr = a;
    m->n_attr = 1;
    return AN_OK;
}

/* New weights must not land in a file that constants without content refer to: writing it would destroy them. */
static bool path_is_referred_to(const writer *w)
{
    for (size_t i = 1; i < w->g->nodes.n; i++) {
        const const_data *c = w->g->nodes.at[i].cst;
        if (w->live[i] && c && !c->data && c->blob_path && !strcmp(c->blob_path, w->path)) return true;
    }
    return false;
}

/* A read of a graph gives what the run began with, wherever it stands; one of a text what was written before it: those
 * behind the write of their state go before it, and so does the one of those who use it as it is. */
static an_status write_reads(writer *w, size_t write)
{
    const graph *g = w->g;
    const val state = g->nodes.at[write].in[0];
    const char *var;
    for (size_t i = write + 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        if (!w->live[i] || n->op != OP_READ_STATE || n->in[0].i != state.i) continue;
        TRY(write_node(w, n));
        w->live[i] = false; /* it is there */
    }
    return w->state[state.i] && w->as_value[state.i] ? state_var(w, state, &var) : AN_OK;
}

static an_status write_module(writer *w)
{
    const graph *g = w->g;
    w->live = TAKE(&w->tmp, bool, g->nodes.n);
    w->state = TAKE(&w->tmp, bool, g->values.n);
    w->as_value = TAKE(&w->tmp, bool, g->values.n);
    w->name = TAKE(&w->tmp, const char *, g->values.n);
    w->read = TAKE(&w->tmp, const char *, g->values.n);
    mil_block *f = TAKE(&w->m->mem, mil_block, 1);
    if (!w->live || !w->state || !w->as_value || !w->name || !w->read || !f) return nomem(w);
    f->name = "main";
    f->opset = w->bare ? "ios18" : "ios16";
    w->m->func = f;
    w->m->n_func = 1;
    TRY(write_build_info(w));
    mark_live(w);
    if (path_is_referred_to(w)) w->inline_all = true;
    TRY(name_ports(w));
    TRY(write_inputs(w, f));
    for (size_t i = 1; i < g->nodes.n; i++) {
        if (!w->live[i]) continue;
        if (g->nodes.at[i].op == OP_WRITE_STATE) TRY(write_reads(w, i));
        TRY(write_node(w, &g->nodes.at[i]));
    }
    TRY(write_outputs(w, f));
    f->op = w->ops.at;
    f->n_op = w->ops.n;
    return AN_OK;
}

an_status lower_to_mil(const graph *g, const lower_out *opt, mil_module **out, blob_writer *weights, diag *d)
{
    static const lower_out none = { 0 };
    *out = NULL;
    if (!opt) opt = &none;
    if (g->err.st) return diag_fail(d, g->err.st, g->err.at, "%s", g->err.msg);
    if (!g->outputs.n)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s returns nothing, so there is nothing to write", g->title);
    bool bare = opt->dialect == DIALECT_IOS18;
    writer w = { .g = g, .blob = weights, .d = d, .bare = bare, .inline_all = opt->inline_all || !weights,
                 .inline_max = opt->inline_max > 0 ? opt->inline_max : INLINE_MAX,
                 .path = opt->weight_path ? opt->weight_path : "@model_path/weights/weight.bin" };
    w.m = mil_module_new(bare ? "1.3" : "1.0");
    an_status st = w.m ? write_module(&w) : diag_nomem(d);
    arena_free(&w.tmp);
    if (st) mil_free(w.m);
    else *out = w.m;
    return st;
}
