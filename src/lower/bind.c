/* bind.c: the arguments of one MIL statement, bound to the operands and attributes of its row in the op table.
 * In: named arguments in any order, by reference or as literals.  Out: a call, or complaints with their place. */
#include "lower/read_int.h"

static const char *op_of(const call *c) { return c->st->op; }

static const char *describe(arena *a, const ttype *t)
{
    strbuf b = { 0 };
    sb_ttype(&b, t);
    const char *s = b.oom ? NULL : arena_strn(a, b.at, b.n);
    sb_free(&b);
    return s ? s : dtype_name(t->dt);
}

/* ---- attributes: values fixed in the text ---- */

static const char *const wanted[] = {
    [ATTR_NONE] = "nothing",           [ATTR_INT] = "one integer",      [ATTR_INTS] = "a list of integers", [ATTR_BOOL] = "one bool",
    [ATTR_BOOLS] = "a list of bools",  [ATTR_FLOAT] = "one number",     [ATTR_STR] = "one string",
};

static bool kind_fits(attr_kind k, dtype dt, int64_t n)
{
    switch (k) {
    case ATTR_INT: return n == 1 && dtype_is_int(dt);
    case ATTR_INTS: return dtype_is_int(dt);
    case ATTR_BOOL: return n == 1 && dt == DT_BOOL;
    case ATTR_BOOLS: return dt == DT_BOOL;
    case ATTR_FLOAT: return n == 1 && (dtype_is_float(dt) || dtype_is_int(dt) || dt == DT_BOOL);
    case ATTR_STR: return n == 1 && dt == DT_STRING;
    default: return false;
    }
}

static int64_t load_int(dtype dt, const void *p, int64_t i)
{
    double x = dtype_load(dt, p, i);
    /* past 2^53 every use is out of range anyway */
    return x >= 9007199254740992.0 ? INT64_C(9007199254740992) : (int64_t)x;
}

static an_status set_attr(reader *r, call *c, const attr_spec *spec, const symbol *s, loc at)
{
    int64_t n = 0;
    if (!s->known || !shape_elems(&s->type.sh, &n) || !kind_fits(spec->kind, s->type.dt, n)) {
        c->opaque = true;
        return reader_complain(r, AN_INPUT, "argument", at, "%s: argument %s wants %s, got %s", op_of(c),
                               attr_name(spec->id), wanted[spec->kind],
                               s->known ? describe(&r->tmp, &s->type) : "a value of another kind");
    }
    attr a = { .id = spec->id, .kind = spec->kind };
    if (spec->kind == ATTR_STR) a.u.s = s->lit->str[0];
    else if (!s->data) { /* its bytes are in a file that is not here, or were complained about */
        c->opaque = true;
        if (s->lit->kind != ML_BLOB) return AN_OK;
        return reader_complain(
            r, AN_OK, "weights", at,
            "%s: the value of %s is in a weight file that was not read; the operation is checked by its types only",
            op_of(c), attr_name(spec->id));
    } else if (spec->kind == ATTR_FLOAT) a.u.f = dtype_load(s->type.dt, s->data, 0);
    else if (spec->kind == ATTR_INT || spec->kind == ATTR_BOOL) a.u.i = load_int(s->type.dt, s->data, 0);
    else {
        int64_t *p = TAKE(&r->tmp, int64_t, (size_t)n);
        if (!p || n > INT32_MAX) return diag_nomem(r->d);
        for (int64_t i = 0; i < n; i++) p[i] = load_int(s->type.dt, s->data, i);
        a.u.is = p;
        a.n = (int)n;
    }
    c->at[c->n_at++] = a;
    if (s->lit->kind == ML_BLOB) graph_note_read(r->g, s->lit->blob_path, s->lit->blob_offset, s->type, s->data);
    return AN_OK;
}

/* ---- items: a name or a literal ---- */

/* A float operand given by name, for literals that adapt to their neighbour. */
static dtype neighbour_float(reader *r, const call *c)
{
    for (int i = 0; i < c->st->n_arg; i++)
        for (int k = 0; k < c->st->arg[i].n; k++) {
            const symbol *s = c->st->arg[i].item[k].ref ? reader_find(r, c->st->arg[i].item[k].ref) : NULL;
            if (s && s->known && !s->lit && dtype_is_float(s->type.dt)) return s->type.dt;
        }
    return DT_NONE;
}

/* The symbol an item stands for; a literal gets a made-up one that lives as long as the statement. */
static an_status item_symbol(reader *r, call *c, const char *arg, const mil_arg_item *it, symbol **out)
{
    *out = NULL;
    if (it->ref) {
        *out = reader_find(r, it->ref);
        if (*out) return AN_OK;
        c->opaque = true;
        return reader_complain(r, AN_INPUT, "name", it->at,
                               "%s: argument %s names %s, which is not defined before this", op_of(c), arg, it->ref);
    }
    if (!spell_constexpr(c->info->id)) c->flags |= INST_INLINE_ARG;
    symbol *s = TAKE(&r->tmp, symbol, 1);
    if (!s) return diag_nomem(r->d);
    s->at = it->at;
    TRY(reader_literal(r, it->lit, s));
    *out = s;
    return AN_OK;
}

/* MIL lets an inline fp32 scalar stand beside fp16 tensors; it takes their type. One in a weight file stays the
 * record it is: the file may change. */
static an_status adapt_scalar(reader *r, const call *c, symbol *s, dtype *cast)
{
    dtype dt = s->type.sh.rank == 0 && s->type.dt == DT_F32 && s->data ? neighbour_float(r, c) : DT_NONE;
    *cast = DT_NONE;
    if (dt == DT_NONE || dt == s->type.dt) return AN_OK;
    if (s->lit->kind == ML_BLOB) return *cast = dt, AN_OK;
    unsigned char *p = TAKE(&r->tmp, unsigned char, 8);
    if (!p) return diag_nomem(r->d);
    dtype_store(dt, p, 0, dtype_load(s->type.dt, s->data, 0));
    s->data = p;
    s->type.dt = dt;
    return AN_OK;
}

static an_status bind_value(reader *r, call *c, const char *arg, const mil_arg_item *it, val *out)
{
    symbol *s;
    *out = NO_VAL;
    TRY(item_symbol(r, c, arg, it, &s));
    if (!s) return AN_OK;
    if (!s->known) { /* nothing in the table takes such a value */
        c->opaque = true;
        return AN_OK;
    }
    dtype cast = DT_NONE;
    if (!it->ref) TRY(adapt_scalar(r, c, s, &cast));
    TRY(reader_operand(r, s, out));
    if (cast != DT_NONE && out->i) *out = graph_op(r->g, OP_CAST, out, 1, &AT_S(DTYPE, dtype_name(cast)), 1);
    return AN_OK;
}

static an_status bind_operand(reader *r, call *c, int k, const mil_arg *a)
{
    const operand_spec *spec = &c->info->in[k];
    if (!spec->list && a->n != 1) {
        c->opaque = true;
        return reader_complain(r, AN_INPUT, "argument", a->at, "%s: argument %s wants one value, got %d", op_of(c),
                               a->name, a->n);
    }
    for (int i = 0; i < a->n; i++) {
        val v;
        TRY(bind_value(r, c, a->name, &a->item[i], &v));
        if (!spec->list) c->in[k] = v;
        else if (v.i && !VEC_PUSH(&r->tmp, &c->list, v)) return diag_nomem(r->d);
    }
    return AN_OK;
}

static an_status bind_attr(reader *r, call *c, const attr_spec *spec, const mil_arg *a)
{
    if (a->n != 1) {
        c->opaque = true;
        return reader_complain(r, AN_INPUT, "argument", a->at, "%s: argument %s wants %s, got a tuple of %d", op_of(c),
                               a->name, wanted[spec->kind], a->n);
    }
    symbol *s;
    TRY(item_symbol(r, c, a->name, &a->item[0], &s));
    if (!s) return AN_OK;
    if (s->lit) return set_attr(r, c, spec, s, a->item[0].at);
    /* computed while the program runs: legal MIL for shapes and slices, but not an attribute the table can hold */
    c->opaque = true;
    c->flags |= INST_DYNAMIC_ATTR;
    return !s->known || VEC_PUSH(&r->tmp, &c->loose, s->v) ? AN_OK : diag_nomem(r->d);
}

static an_status bind_extra(reader *r, call *c, const spell_extra *x, const mil_arg *a)
{
    if (!x->str) return AN_OK;
    symbol *s = NULL;
    if (a->n == 1) TRY(item_symbol(r, c, a->name, &a->item[0], &s));
    bool harmless = s && s->lit && s->lit->kind == ML_STRINGS && s->lit->n == 1 && !strcmp(s->lit->str[0], x->str);
    if (!harmless) c->opaque = true; /* a form the table does not describe */
    return AN_OK;
}

static const char *known_args(reader *r, const call *c)
{
    strbuf b = { 0 };
    for (int i = 0; i < c->info->n_in; i++)
        sb_printf(&b, "%s%s", b.n ? ", " : "", spell_arg_write(c->info->id, c->info->in[i].name));
    for (int i = 0; i < c->info->n_attr; i++)
        if (!spell_attr_from_type(c->info->id, c->info->attr[i].id))
            sb_printf(&b, "%s%s", b.n ? ", " : "", spell_arg_write(c->info->id, attr_name(c->info->attr[i].id)));
    const char *s = b.oom || !b.n ? NULL : arena_strn(&r->tmp, b.at, b.n);
    sb_free(&b);
    return s ? s : "none";
}

/* Bit i: operand i was given; bit OP_MAX_OPERANDS + i: attribute i was. */
static an_status bind_arg(reader *r, call *c, const mil_arg *a, unsigned *given)
{
    const op_info *o = c->info;
    const char *word = spell_arg_read(o->id, a->name);
    int in = -1, at = -1;
    for (int i = 0; i < o->n_in; i++)
        if (!strcmp(o->in[i].name, word)) in = i;
    for (int i = 0; i < o->n_attr; i++)
        if (!strcmp(attr_name(o->attr[i].id), word) && !spell_attr_from_type(o->id, o->attr[i].id)) at = i;
    if (in < 0 && at < 0) {
        const spell_extra *x = spell_extra_find(o->id, a->name);
        if (x) return bind_extra(r, c, x, a);
        c->opaque = true;
        return reader_complain(r, AN_INPUT, "argument", a->at, "%s has no argument %s; it takes %s", op_of(c), a->name,
                               known_args(r, c));
    }
    unsigned bit = 1u << (in >= 0 ? in : OP_MAX_OPERANDS + at);
    if (*given & bit) {
        c->opaque = true;
        return reader_complain(r, AN_INPUT, "argument", a->at, "%s: argument %s is given twice", op_of(c), a->name);
    }
    *given |= bit;
    return in >= 0 ? bind_operand(r, c, in, a) : bind_attr(r, c, &o->attr[at], a);
}

/* [name = …] is a label. Compressed weights carry their arguments here; elsewhere anything more is worth a remark. */
static an_status bind_brackets(reader *r, call *c, unsigned *given)
{
    for (int i = 0; i < c->st->n_attr; i++) {
        const mil_attr *m = &c->st->attr[i];
        if (!strcmp(m->name, "name")) continue;
        if (!spell_constexpr(c->info->id)) {
            TRY(reader_complain(r, AN_OK, "argument", m->at, "%s: [%s = …] is not an argument and is not read",
                                op_of(c), m->name));
            continue;
        }
        mil_arg_item item = { .lit = m->lit, .at = m->at };
        mil_arg a = { .name = m->name, .at = m->at, .n = 1, .item = &item };
        TRY(bind_arg(r, c, &a, given));
    }
    return AN_OK;
}

static an_status need_all(reader *r, call *c, unsigned given)
{
    const op_info *o = c->info;
    const char *missing = NULL;
    for (int i = 0; i < o->n_in && !missing; i++)
        if (!o->in[i].optional && !(given & 1u << i)) missing = o->in[i].name;
    for (int i = 0; i < o->n_attr && !missing; i++)
        if (o->attr[i].required && !(given & 1u << (OP_MAX_OPERANDS + i))) missing = attr_name(o->attr[i].id);
    if (!missing) return AN_OK;
    c->opaque = true;
    return reader_complain(r, AN_INPUT, "argument", c->st->at, "%s needs the argument %s, which is not given", op_of(c),
                           spell_arg_write(o->id, missing));
}

an_status bind_call(reader *r, call *c)
{
    unsigned given = 0;
    for (int i = 0; i < c->st->n_arg; i++) TRY(bind_arg(r, c, &c->st->arg[i], &given));
    TRY(bind_brackets(r, c, &given));
    TRY(need_all(r, c, given));
    for (int i = 0; i < c->info->n_attr; i++) /* after the arguments: the first result's type says what is made */
        if (spell_attr_from_type(c->info->id, c->info->attr[i].id) && c->st->n_out > 0)
            c->at[c->n_at++] =
                (attr){ .id = c->info->attr[i].id, .kind = ATTR_STR, .u.s = dtype_name(c->st->out[0].type->dt) };
    return AN_OK;
}

an_status bind_unknown(reader *r, call *c)
{
    c->opaque = true;
    for (int i = 0; i < c->st->n_arg; i++)
        for (int k = 0; k < c->st->arg[i].n; k++) {
            const mil_arg_item *it = &c->st->arg[i].item[k];
            symbol *s = it->ref ? reader_find(r, it->ref) : NULL;
            if (!it->ref) c->flags |= INST_INLINE_ARG;
            /* constants are mostly attributes; those kept in a file are weights */
            if (!s || !s->known || (s->lit && s->lit->kind != ML_BLOB)) continue;
            val v;
            TRY(reader_operand(r, s, &v));
            if (v.i && !VEC_PUSH(&r->tmp, &c->loose, v)) return diag_nomem(r->d);
        }
    return AN_OK;
}
