/* parse.c: MIL text to a module: header, functions, statements, nested blocks, and the names that tie them together.
 * In: text.  Out: a module, or the first thing wrong with its place. One function per grammar symbol, one token of
 * look-ahead. A name must be defined above its use, once per scope; a nested block sees what encloses it, and what
 * it defines ends with it. */
#include <stdlib.h>

#include "mil/mil_int.h"


/* ---- names and scopes ---- */

static an_status read_name(reader *p, const char *what, const char **out, loc *at)
{
    if (p->t.kind != T_WORD) return fail_want(p, what);
    mil_name *name = name_of(p, p->t.s, p->t.n);
    if (!name) return p->d->st;
    *out = name->s;
    *at = p->t.at;
    lex_next(p);
    return AN_OK;
}

static an_status define(reader *p, const mil_var *v)
{
    mil_name *name = name_of(p, v->name, strlen(v->name));
    if (!name) return p->d->st;
    if (name->def_line)
        return fail_at(p, v->at, "\"%.60s\" is defined twice: here on line %u and before on line %u", v->name,
                       v->at.line, name->def_line);
    uint32_t index = (uint32_t)(name - p->name);
    if (p->n_defined == p->cap_defined) {
        size_t cap = p->cap_defined ? p->cap_defined * 2 : 64;
        if (!scratch_room(p, &p->defined, p->cap_defined, cap, sizeof *p->defined)) return p->d->st;
        p->cap_defined = cap;
    }
    p->name[index].def_line = v->at.line;
    p->defined[p->n_defined++] = index;
    return AN_OK;
}

static void leave_scope(reader *p, size_t mark)
{
    while (p->n_defined > mark) p->name[p->defined[--p->n_defined]].def_line = 0;
}

/* A list's key, seen once per list. */
static an_status read_key(reader *p, const char *what, uint32_t stamp, const char **out, loc *at)
{
    if (p->t.kind != T_WORD) return fail_want(p, what);
    mil_name *name = name_of(p, p->t.s, p->t.n);
    if (!name) return p->d->st;
    *out = name->s;
    *at = p->t.at;
    lex_next(p);
    if (name->stamp == stamp) return fail_at(p, *at, "%s \"%.60s\" is given twice", what + 3, *out); /* past "an " */
    name->stamp = stamp;
    return expect(p, '=');
}

/* ---- statements ---- */

/* [name = LITERAL, ...], any number of lists in a row. */
static an_status read_attrs(reader *p, mil_attr **out, int *n)
{
    size_t mark = p->tmp_n;
    uint32_t stamp = ++p->stamp;
    while (accept(p, '[')) {
        if (accept(p, ']')) continue;
        do {
            mil_attr a = { 0 };
            TRY(read_key(p, "an attribute name", stamp, &a.name, &a.at));
            TRY(read_literal(p, &a.lit));
            mil_attr *at = tmp_push(p, sizeof *at);
            if (!at) return p->d->st;
            *at = a;
            ++*n;
        } while (accept(p, ','));
        TRY(expect(p, ']'));
    }
    if (!*n) return AN_OK;
    *out = tmp_keep(p, mark, (size_t)*n, sizeof **out);
    return *out ? AN_OK : p->d->st;
}

/* What an argument may be: the name of a value above, or TYPE(literal). `self` holds the results of this statement. */
static an_status read_item(reader *p, const mil_op *self, mil_arg_item *item)
{
    if (p->t.kind != T_WORD) return fail_want(p, "a value name or a typed literal");
    tok word = p->t;
    item->at = word.at;
    lex_next(p);
    if (is_punct(p, '(') || is_punct(p, '<')) return read_literal_after(p, &word, &item->lit);
    mil_name *name = name_of(p, word.s, word.n);
    if (!name) return p->d->st;
    item->ref = name->s;
    if (name->def_line) return AN_OK;
    for (int i = 0; i < self->n_out; i++)
        if (self->out[i].name == name->s) return fail_at(p, word.at, "\"%.60s\" refers to itself", name->s);
    return fail_at(p, word.at, "\"%.60s\" is not defined above this place", name->s);
}

static an_status read_arg(reader *p, const mil_op *self, uint32_t stamp, mil_arg *arg)
{
    TRY(read_key(p, "an argument name", stamp, &arg->name, &arg->at));
    size_t mark = p->tmp_n;
    arg->tuple = accept(p, '(');
    if (!arg->tuple || !is_punct(p, ')')) do {
            mil_arg_item item = { 0 };
            TRY(read_item(p, self, &item));
            mil_arg_item *at = tmp_push(p, sizeof *at);
            if (!at) return p->d->st;
            *at = item;
            arg->n++;
        } while (arg->tuple && accept(p, ','));
    if (arg->tuple) TRY(expect(p, ')'));
    arg->item = tmp_keep(p, mark, (size_t)arg->n, sizeof *arg->item);
    return arg->item ? AN_OK : p->d->st;
}

static an_status read_args(reader *p, mil_op *op)
{
    size_t mark = p->tmp_n;
    uint32_t stamp = ++p->stamp;
    TRY(expect(p, '('));
    if (!is_punct(p, ')')) do {
            mil_arg arg = { 0 };
            TRY(read_arg(p, op, stamp, &arg));
            mil_arg *at = tmp_push(p, sizeof *at);
            if (!at) return p->d->st;
            *at = arg;
            op->n_arg++;
        } while (accept(p, ','));
    TRY(expect(p, ')'));
    if (!op->n_arg) return AN_OK;
    op->arg = tmp_keep(p, mark, (size_t)op->n_arg, sizeof *op->arg);
    return op->arg ? AN_OK : p->d->st;
}

/* TYPE name {, TYPE name}: parameters and results. `word`: the first word of the first type, when already taken. */
static an_status read_vars(reader *p, const tok *word, mil_var **out, int *n)
{
    size_t mark = p->tmp_n;
    do {
        mil_var v = { 0 };
        if (word) TRY(read_type_after(p, word, &v.type));
        else TRY(read_type(p, &v.type));
        word = NULL;
        TRY(read_name(p, "a value name", &v.name, &v.at));
        mil_var *at = tmp_push(p, sizeof *at);
        if (!at) return p->d->st;
        *at = v;
        ++*n;
    } while (accept(p, ','));
    *out = tmp_keep(p, mark, (size_t)*n, sizeof **out);
    return *out ? AN_OK : p->d->st;
}

static an_status read_body(reader *p, mil_block *blk);

/* Bodies of cond and while_loop stand behind the operation: [name] [(TYPE x, ...)] [attributes] { ... } -> (y, ...) */
static an_status read_blocks(reader *p, mil_op *op)
{
    size_t mark = p->tmp_n;
    while (p->t.kind == T_WORD || is_punct(p, '(') || is_punct(p, '{')) {
        mil_block blk = { .at = p->t.at };
        if (p->t.kind == T_WORD) TRY(read_name(p, "a block name", &blk.name, &blk.at));
        TRY(read_body(p, &blk));
        mil_block *at = tmp_push(p, sizeof *at);
        if (!at) return p->d->st;
        *at = blk;
        op->n_block++;
        if (accept(p, ',') && is_punct(p, ';')) return fail_want(p, "a block");
    }
    if (!op->n_block) return AN_OK;
    op->block = tmp_keep(p, mark, (size_t)op->n_block, sizeof *op->block);
    return op->block ? AN_OK : p->d->st;
}

/* [results =] op(arg = value, ...)[attributes] blocks ; an operation such as write_state has no result. */
static an_status read_op(reader *p, mil_op *op)
{
    op->parens = accept(p, '(');
    if (p->t.kind != T_WORD) return fail_want(p, op->parens ? "a type" : "a statement or '}'");
    tok word = p->t;
    lex_next(p);
    if (op->parens || !is_punct(p, '(')) {
        TRY(read_vars(p, &word, &op->out, &op->n_out));
        if (op->parens) TRY(expect(p, ')'));
        TRY(expect(p, '='));
        TRY(read_name(p, "an operation", &op->op, &op->at));
    } else {
        mil_name *name = name_of(p, word.s, word.n);
        if (!name) return p->d->st;
        op->op = name->s;
        op->at = word.at;
    }
    TRY(read_args(p, op));
    TRY(read_attrs(p, &op->attr, &op->n_attr));
    TRY(read_blocks(p, op));
    if (!op->n_attr && op->n_block) TRY(read_attrs(p, &op->attr, &op->n_attr));
    TRY(expect(p, ';'));
    for (int i = 0; i < op->n_out; i++) TRY(define(p, &op->out[i]));
    return AN_OK;
}

/* ---- blocks, functions, the program ---- */

static an_status read_results(reader *p, mil_block *blk)
{
    size_t mark = p->tmp_n;
    if (p->t.kind != T_ARROW) return fail_want(p, "'->' and the results");
    lex_next(p);
    blk->out_at = p->t.at;
    TRY(expect(p, '('));
    if (!is_punct(p, ')')) do {
            mil_arg_item item = { 0 };
            TRY(read_name(p, "a result name", &item.ref, &item.at));
            mil_name *name = name_of(p, item.ref, strlen(item.ref));
            if (!name) return p->d->st;
            if (!name->def_line)
                return fail_at(p, item.at, "result \"%.60s\" does not exist: nothing above defines it", item.ref);
            mil_arg_item *at = tmp_push(p, sizeof *at);
            if (!at) return p->d->st;
            *at = item;
            blk->n_out++;
        } while (accept(p, ','));
    TRY(expect(p, ')'));
    if (!blk->n_out) return AN_OK;
    blk->out = tmp_keep(p, mark, (size_t)blk->n_out, sizeof *blk->out);
    return blk->out ? AN_OK : p->d->st;
}

/* [(parameters)] [attributes] { statements } -> (results) */
static an_status read_body(reader *p, mil_block *blk)
{
    if (++p->depth > MIL_MAX_DEPTH) return fail_at(p, p->t.at, "nested more than %d deep", MIL_MAX_DEPTH);
    size_t scope = p->n_defined, mark = p->tmp_n;
    if (accept(p, '(')) {
        if (!is_punct(p, ')')) TRY(read_vars(p, NULL, &blk->in, &blk->n_in));
        TRY(expect(p, ')'));
        for (int i = 0; i < blk->n_in; i++) TRY(define(p, &blk->in[i]));
    }
    TRY(read_attrs(p, &blk->attr, &blk->n_attr));
    uint32_t open = p->t.at.line;
    TRY(expect(p, '{'));
    while (!is_punct(p, '}')) {
        if (p->t.kind == T_END) return fail_at(p, p->t.at, "the text ends inside the block opened on line %u", open);
        mil_op op = { 0 };
        TRY(read_op(p, &op));
        mil_op *at = tmp_push(p, sizeof *at);
        if (!at) return p->d->st;
        *at = op;
        blk->n_op++;
    }
    lex_next(p);
    if (blk->n_op) {
        blk->op = tmp_keep(p, mark, blk->n_op, sizeof *blk->op);
        if (!blk->op) return p->d->st;
    }
    TRY(read_results(p, blk));
    leave_scope(p, scope);
    p->depth--;
    return AN_OK;
}

/* func NAME<opset>(TYPE x, ...) { ... } -> (y, ...); */
static an_status read_function(reader *p, mil_block *f)
{
    if (!tok_is(&p->t, "func")) return fail_want(p, "'func' or '}'");
    lex_next(p);
    TRY(read_name(p, "a function name", &f->name, &f->at));
    mil_name *name = name_of(p, f->name, strlen(f->name));
    if (!name) return p->d->st;
    if (name->func_line)
        return fail_at(p, f->at, "function \"%.60s\" is defined twice: here on line %u and before on line %u", f->name,
                       f->at.line, name->func_line);
    name->func_line = f->at.line;
    if (accept(p, '<')) {
        loc at;
        TRY(read_name(p, "an opset such as ios18", &f->opset, &at));
        TRY(expect(p, '>'));
    }
    if (!is_punct(p, '(')) return fail_want(p, "'(' and the parameters");
    TRY(read_body(p, f));
    return expect(p, ';');
}

static an_status read_version(reader *p)
{
    if (!tok_is(&p->t, "program")) return fail_want(p, "'program(version)'");
    lex_next(p);
    TRY(expect(p, '('));
    bool ok = p->t.kind == T_NUMBER && p->t.n <= 32;
    for (size_t i = 0; ok && i < p->t.n; i++) ok = (p->t.s[i] >= '0' && p->t.s[i] <= '9') || (p->t.s[i] == '.' && i);
    if (!ok) return fail_want(p, "a version such as 1.3");
    mil_name *name = name_of(p, p->t.s, p->t.n);
    if (!name) return p->d->st;
    p->m->version = name->s;
    lex_next(p);
    return expect(p, ')');
}

static an_status read_program(reader *p)
{
    mil_module *m = p->m;
    lex_next(p);
    TRY(read_version(p));
    TRY(read_attrs(p, &m->attr, &m->n_attr));
    TRY(expect(p, '{'));
    while (!is_punct(p, '}')) {
        mil_block f = { 0 };
        TRY(read_function(p, &f));
        mil_block *at = tmp_push(p, sizeof *at);
        if (!at) return p->d->st;
        *at = f;
        m->n_func++;
    }
    m->func = tmp_keep(p, 0, m->n_func, sizeof *m->func);
    if (!m->func) return p->d->st;
    lex_next(p);
    return p->t.kind == T_END ? AN_OK : fail_want(p, "the end of the program");
}

an_status mil_parse(const char *text, size_t n, size_t limit, mil_module **out, diag *d)
{
    *out = NULL;
    if (n >= UINT32_MAX)
        return diag_fail(d, AN_INPUT, (loc){ 1, 1, 0 },
                         "text of %zu bytes is larger than 4 GiB, the most this reader takes", n);
    if (!n) text = "";
    mil_module *m = calloc(1, sizeof *m);
    if (!m) return diag_nomem(d);
    m->text = text;
    m->n_text = n;
    /* Ordinary text takes 4 bytes of module per byte, terse text 12. The constant lets small texts be as terse as
     * they like. */
    if (!limit) limit = n < (SIZE_MAX >> 7) ? 24 * n + ((size_t)1 << 20) : SIZE_MAX;
    bool bom = n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3);
    reader p = { .s = text, .end = text + n, .at = text + (bom ? 3 : 0), .line_at = text + (bom ? 3 : 0), .line = 1,
                 .d = d, .m = m, .limit = limit, .seed = hash_bytes(text, n, 0) };
    an_status st = d->st ? d->st : read_program(&p);
    reader_free(&p);
    if (st) mil_free(m);
    else *out = m;
    return st;
}
