/* text_parse.c: text to graph; the form is described in text.c.
 * In: bytes from anyone, not NUL-terminated.  Out: a graph that passed graph_finish, or AN_INPUT with line and column.
 * There is no recursion; memory is bounded by the arena's limit, and no constant is allocated before the text has shown
 * enough characters to fill it. */
#include <math.h>
#include <stdlib.h>

#include "base/plain.h"
#include "graph/text_int.h"

enum { MAX_NAME = 4096, MAX_RETURNS = 4096 };

typedef struct {
    const char *at, *end, *text, *line_start;
    uint32_t line;
    graph *g;
    diag *d;
    arena tmp; /* emptied after every statement */
} reader;

typedef VEC(const char *) name_list;
typedef VEC(val) val_list;
typedef VEC(int64_t) int_list;
typedef VEC(attr) attrs_read;
typedef VEC(ttype) type_list;

/* ---- characters ---- */

static loc place(const reader *r)
{
    return (loc){ .line = r->line,
                  .col = (uint32_t)MIN(r->at - r->line_start + 1, INT32_MAX),
                  .off = (size_t)(r->at - r->text) };
}

static an_status bad(reader *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static an_status bad(reader *r, const char *fmt, ...)
{
    char msg[sizeof r->d->msg];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return diag_fail(r->d, AN_INPUT, place(r), "%s", msg);
}

static an_status wanted(reader *r, const char *what) /* "wanted X, found Y" */
{
    if (r->at == r->end) return bad(r, "wanted %s, found the end of the text", what);
    unsigned char c = (unsigned char)*r->at;
    if (c == '\n') return bad(r, "wanted %s, found the end of the line", what);
    if (c < 0x20 || c >= 0x7f) return bad(r, "wanted %s, found byte 0x%02x", what, c);
    return bad(r, "wanted %s, found '%c'", what, c);
}

static char peek(const reader *r) { return r->at < r->end ? *r->at : '\n'; }

static void skip(reader *r) /* blanks and a comment; stays on the line */
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r')) r->at++;
    if (r->at < r->end && *r->at == '#')
        while (r->at < r->end && *r->at != '\n') r->at++;
}

static void skip_lines(reader *r) /* inside brackets a statement goes on */
{
    for (skip(r); r->at < r->end && *r->at == '\n'; skip(r)) {
        r->at++;
        r->line++;
        r->line_start = r->at;
    }
}

static bool accept(reader *r, char c)
{
    skip(r);
    if (peek(r) != c || r->at == r->end) return false;
    r->at++;
    return true;
}

static an_status expect(reader *r, char c)
{
    char what[4] = { '\'', c, '\'', 0 };
    return accept(r, c) ? AN_OK : wanted(r, what);
}

/* ---- words and numbers ---- */

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

static size_t word_length(const reader *r)
{
    const char *p = r->at;
    while (p < r->end && word_char(*p)) p++;
    return (size_t)(p - r->at);
}

static bool at_word(reader *r, const char *w) /* and take it */
{
    skip(r);
    size_t n = word_length(r);
    if (n != strlen(w) || memcmp(r->at, w, n)) return false;
    r->at += n;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static an_status read_escape(reader *r, char *out) /* after the backslash */
{
    switch (peek(r)) {
    case 'n': *out = '\n'; break;
    case 't': *out = '\t'; break;
    case '"': *out = '"'; break;
    case '\\': *out = '\\'; break;
    case 'x': {
        int hi = r->end - r->at > 2 ? hex_digit(r->at[1]) : -1, lo = hi < 0 ? -1 : hex_digit(r->at[2]);
        if (lo < 0 || hi + lo == 0) return bad(r, "wanted two hex digits of a byte that is not 0 after \\x");
        *out = (char)(hi << 4 | lo);
        r->at += 2;
        break;
    }
    default: return wanted(r, "an escape: \\n \\t \\\" \\\\ or \\xNN");
    }
    r->at++;
    return AN_OK;
}

static an_status read_quoted(reader *r, const char **out)
{
    TRY(expect(r, '"'));
    size_t room = 0; /* no longer than what is left of the line */
    while (r->at + room < r->end && r->at[room] != '\n' && r->at[room] != '"') room += r->at[room] == '\\' ? 2 : 1;
    char *s = TAKE(&r->tmp, char, room + 1);
    if (!s) return diag_nomem(r->d);
    size_t n = 0;
    for (; peek(r) != '"'; n++) {
        if (peek(r) == '\n' || peek(r) == 0 || n >= room) return wanted(r, "the closing quote");
        if (*r->at == '\\') {
            r->at++;
            TRY(read_escape(r, &s[n]));
        } else s[n] = *r->at++;
    }
    r->at++;
    *out = s;
    return AN_OK;
}

static an_status read_name(reader *r, const char *what, const char **out)
{
    skip(r);
    if (peek(r) == '"') {
        TRY(read_quoted(r, out));
        if (!**out) return bad(r, "the name is empty");
        if (strlen(*out) > MAX_NAME) return bad(r, "the name is longer than %d bytes", MAX_NAME);
        return AN_OK;
    }
    size_t n = word_length(r);
    if (n == 0 || (*r->at >= '0' && *r->at <= '9') || *r->at == '.') return wanted(r, what);
    if (n > MAX_NAME) return bad(r, "the name is longer than %d bytes", MAX_NAME);
    *out = arena_strn(&r->tmp, r->at, n);
    r->at += n;
    return *out ? AN_OK : diag_nomem(r->d);
}

static an_status read_u64(reader *r, uint64_t *out)
{
    uint64_t x = 0;
    skip(r);
    if (peek(r) < '0' || peek(r) > '9') return wanted(r, "a number");
    for (; peek(r) >= '0' && peek(r) <= '9'; r->at++) {
        unsigned digit = (unsigned)(*r->at - '0');
        if (x > (UINT64_MAX - digit) / 10) return bad(r, "the number is too large");
        x = x * 10 + digit;
    }
    *out = x;
    return AN_OK;
}

typedef struct {
    bool is_int;
    int64_t i;
    double f; /* also set for an integer */
} number;

static an_status read_number(reader *r, number *out)
{
    char t[64];
    size_t n = 0;
    skip(r);
    const char *p = r->at;
    while (p + n < r->end && n < sizeof t && (word_char(p[n]) || p[n] == '+' || p[n] == '-')) n++;
    if (n == 0) return wanted(r, "a number");
    if (n == sizeof t) return bad(r, "the number has more than %zu characters", sizeof t - 1);
    memcpy(t, p, n);
    t[n] = 0;
    const char *digits = t + (*t == '-' || *t == '+');
    bool word = !strcmp(digits, "inf") || !strcmp(digits, "nan");
    if (!word && strspn(t, "0123456789.+-eE") != n) return bad(r, "\"%s\" is not a number", t);
    char *stop;
    *out = (number){ .is_int = !word && strspn(digits, "0123456789") == strlen(digits), .f = plain_real(t, &stop) };
    if (stop != t + n || !*digits) return bad(r, "\"%s\" is not a number", t);
    if (out->is_int) {
        uint64_t u = 0, most = (uint64_t)INT64_MAX + (*t == '-');
        for (const char *q = digits; *q; q++) {
            unsigned digit = (unsigned)(*q - '0');
            if (u > (most - digit) / 10) return bad(r, "%s is too large", t);
            u = u * 10 + digit;
        }
        out->i = *t == '-' ? (u > INT64_MAX ? INT64_MIN : -(int64_t)u) : (int64_t)u;
    } else if (!word && isinf(out->f)) return bad(r, "%s is too large; write inf to mean it", t);
    r->at += n;
    return AN_OK;
}

static an_status read_type(reader *r, ttype *t)
{
    skip(r);
    size_t n = word_length(r);
    t->dt = dtype_from_name(r->at, n);
    t->sh = (shape){ 0 };
    if (t->dt == DT_NONE || t->dt == DT_STRING) return wanted(r, "a tensor type such as fp16[1, 8]");
    r->at += n;
    TRY(expect(r, '['));
    if (accept(r, ']')) return AN_OK;
    do {
        number x = { 0 };
        if (t->sh.rank == MAX_RANK) return bad(r, "the type has more than %d dimensions", MAX_RANK);
        if (accept(r, '?')) x.i = DIM_UNKNOWN;
        else {
            TRY(read_number(r, &x));
            if (!x.is_int || x.i < 0) return bad(r, "an extent is a number from 0 up, or ?");
        }
        t->sh.d[t->sh.rank++] = x.i;
    } while (accept(r, ','));
    return expect(r, ']');
}

/* ---- constants ---- */

static an_status store(reader *r, const ttype *t, void *p, int64_t i, const number *x)
{
    if (!dtype_is_float(t->dt) &&
        (!x->is_int || x->i > (int64_t)1 << 53 || x->i < -((int64_t)1 << 53) || dtype_round(t->dt, x->f) != x->f))
        return bad(r, "%g does not fit %s; write the bytes as hex if it must be", x->f, dtype_name(t->dt));
    dtype_store(t->dt, p, i, x->f);
    return AN_OK;
}

static an_status read_elements(reader *r, const ttype *t, int64_t n, unsigned char *p)
{
    for (int64_t i = 0; i < n; i++) {
        number x;
        if (i) {
            skip_lines(r);
            TRY(expect(r, ','));
        }
        skip_lines(r);
        TRY(read_number(r, &x));
        TRY(store(r, t, p, i, &x));
    }
    skip_lines(r);
    return expect(r, '}');
}

static an_status read_hex(reader *r, unsigned char *p, size_t bytes)
{
    skip(r);
    for (size_t i = 0; i < bytes; i++, r->at += 2) {
        int hi = r->end - r->at > 1 ? hex_digit(r->at[0]) : -1, lo = hi < 0 ? -1 : hex_digit(r->at[1]);
        if (lo < 0) return bad(r, "wanted %zu bytes as hex digits, found %zu", bytes, i);
        p[i] = (unsigned char)(hi << 4 | lo);
    }
    if (hex_digit(peek(r)) >= 0) return bad(r, "there are hex digits past the %zu bytes of the type", bytes);
    return AN_OK;
}

static an_status read_all(reader *r, const ttype *t, int64_t n, unsigned char *p)
{
    number x;
    TRY(read_number(r, &x));
    if (n == 0) return AN_OK;
    TRY(store(r, t, p, 0, &x));
    size_t one = (size_t)dtype_bits(t->dt) / 8;
    if (dtype_bits(t->dt) % 8) {
        for (int64_t i = 1; i < n; i++) dtype_store(t->dt, p, i, x.f);
        return AN_OK;
    }
    for (size_t done = one, total = one * (size_t)n; done < total; done *= 2)
        memcpy(p + done, p, MIN(done, total - done));
    return AN_OK;
}

static an_status read_const(reader *r, const char *name)
{
    ttype t;
    const char *s;
    int64_t n;
    size_t bytes;
    if (at_word(r, "string")) {
        TRY(read_quoted(r, &s));
        graph_const_str(r->g, name, s);
        return AN_OK;
    }
    TRY(read_type(r, &t));
    if (!shape_elems(&t.sh, &n) || !shape_bytes(&t, &bytes))
        return bad(r, "the constant's shape is unknown or its size overflows");
    if (at_word(r, "unknown")) {
        graph_const_view(r->g, name, t, NULL);
        return AN_OK;
    }
    if (at_word(r, "blob")) {
        uint64_t offset = 0;
        TRY(read_quoted(r, &s));
        TRY(read_u64(r, &offset));
        graph_const_blob(r->g, name, t, s, offset, NULL);
        return AN_OK;
    }
    bool list = accept(r, '{'), hex = !list && at_word(r, "hex");
    if (!list && !hex && !at_word(r, "all")) return wanted(r, "{elements}, all, hex, blob or unknown");
    size_t left = (size_t)(r->end - r->at); /* an element takes a character, a byte of hex two */
    if (list ? (uint64_t)n > left : hex && bytes > left / 2)
        return bad(r, "%s wants %lld elements, more than the text holds", dtype_name(t.dt), (long long)n);
    unsigned char *p = arena_take(&r->g->mem, bytes, 1, 64);
    if (!p) return diag_nomem(r->d);
    TRY(list ? read_elements(r, &t, n, p) : hex ? read_hex(r, p, bytes) : read_all(r, &t, n, p));
    graph_const_view(r->g, name, t, p);
    return AN_OK;
}

/* ---- operations ---- */

static an_status read_operand(reader *r, val *v)
{
    const char *name;
    if (at_word(r, "_")) return *v = NO_VAL, AN_OK;
    const char *from = r->at;
    TRY(read_name(r, "a value's name", &name));
    *v = graph_find(r->g, name);
    if (v->i) return AN_OK;
    r->at = from;
    return bad(r, "%.200s is not defined above", name);
}

static an_status read_operands(reader *r, val_list *in)
{
    TRY(expect(r, '('));
    skip_lines(r);
    if (accept(r, ')')) return AN_OK;
    do {
        val v;
        skip_lines(r);
        TRY(read_operand(r, &v));
        if (!VEC_PUSH(&r->tmp, in, v)) return diag_nomem(r->d);
        skip_lines(r);
    } while (accept(r, ','));
    return expect(r, ')');
}

static an_status read_list(reader *r, attr *a)
{
    int_list xs = { 0 };
    int bools = 0;
    skip_lines(r);
    a->kind = ATTR_INTS;
    if (!accept(r, ']')) {
        do {
            number x = { .is_int = true };
            skip_lines(r);
            if (at_word(r, "true")) x.i = 1, bools++;
            else if (at_word(r, "false")) bools++;
            else TRY(read_number(r, &x));
            if (!x.is_int) return bad(r, "a list holds integers, or true and false");
            if (xs.n == INT16_MAX || !VEC_PUSH(&r->tmp, &xs, x.i)) return bad(r, "the list is too long");
            skip_lines(r);
        } while (accept(r, ','));
        TRY(expect(r, ']'));
    }
    if (bools && (size_t)bools != xs.n) return bad(r, "the list mixes numbers with true and false");
    if (bools) a->kind = ATTR_BOOLS;
    a->n = (int)xs.n;
    a->u.is = xs.at;
    return AN_OK;
}

static an_status read_attr(reader *r, attr *a)
{
    const char *name;
    *a = (attr){ 0 };
    TRY(read_name(r, "an attribute's name", &name));
    a->id = attr_find(name, strlen(name));
    if (a->id == A_NONE) return bad(r, "no operation has an attribute %.100s", name);
    TRY(expect(r, '='));
    skip(r);
    if (accept(r, '[')) return read_list(r, a);
    if (peek(r) == '"') return a->kind = ATTR_STR, read_quoted(r, &a->u.s);
    if (at_word(r, "true")) return a->kind = ATTR_BOOL, a->u.i = 1, AN_OK;
    if (at_word(r, "false")) return a->kind = ATTR_BOOL, AN_OK;
    number x;
    TRY(read_number(r, &x));
    a->kind = x.is_int ? ATTR_INT : ATTR_FLOAT;
    if (x.is_int) a->u.i = x.i;
    else a->u.f = x.f;
    return AN_OK;
}

static an_status read_attrs(reader *r, attrs_read *out)
{
    skip(r);
    if (!accept(r, '{')) return AN_OK;
    skip_lines(r);
    if (accept(r, '}')) return AN_OK;
    do {
        attr a;
        skip_lines(r);
        TRY(read_attr(r, &a));
        if (!VEC_PUSH(&r->tmp, out, a)) return diag_nomem(r->d);
        if (out->n > A_COUNT) return bad(r, "an attribute is given twice");
        skip_lines(r);
    } while (accept(r, ','));
    return expect(r, '}');
}

/* The table does not know an opaque op's attributes: they are kept as read. */
static an_status keep_attrs(reader *r, val v, const attrs_read *at)
{
    if (!v.i || !at->n) return AN_OK;
    node *n = &r->g->nodes.at[graph_value(r->g, v)->node];
    arena *mem = &r->g->mem;
    n->attrs = TAKE(mem, attr, at->n);
    if (!n->attrs) return diag_nomem(r->d);
    for (size_t i = 0; i < at->n; i++) {
        attr a = at->at[i];
        if (a.kind == ATTR_STR) {
            a.u.s = arena_str(mem, a.u.s);
            if (!a.u.s) return diag_nomem(r->d);
        } else if (a.kind == ATTR_INTS || a.kind == ATTR_BOOLS) {
            int64_t *p = TAKE(mem, int64_t, (size_t)a.n);
            if (!p) return diag_nomem(r->d);
            if (a.n) memcpy(p, a.u.is, (size_t)a.n * sizeof *p);
            a.u.is = p;
        }
        if (attr_get(n->attrs, n->n_attr, a.id)) return bad(r, "attribute %s is given twice", attr_name(a.id));
        n->attrs[n->n_attr++] = a;
    }
    return AN_OK;
}

static an_status read_opaque(reader *r, const char *name, val *v)
{
    const char *mil;
    val_list in = { 0 };
    type_list out = { 0 };
    attrs_read at = { 0 };
    TRY(read_quoted(r, &mil));
    TRY(read_operands(r, &in));
    TRY(read_attrs(r, &at));
    TRY(expect(r, '-'));
    if (peek(r) != '>') return wanted(r, "'->' and the types of the results");
    r->at++;
    do {
        ttype t;
        skip_lines(r);
        TRY(read_type(r, &t));
        if (!VEC_PUSH(&r->tmp, &out, t)) return diag_nomem(r->d);
    } while (accept(r, ','));
    if (out.n > INT16_MAX || in.n > INT16_MAX) return bad(r, "too many operands or results");
    *v = graph_opaque(r->g, name, mil, in.at, (int)in.n, out.at, (int)out.n);
    return keep_attrs(r, *v, &at);
}

static an_status read_op(reader *r, const char *name, val *v)
{
    const char *word;
    op_id op;
    val_list in = { 0 };
    attrs_read at = { 0 };
    const char *from = r->at;
    TRY(read_name(r, "an operation", &word));
    if (!op_find(word, strlen(word), &op)) {
        r->at = from;
        return bad(r, "there is no operation %.100s; one outside the table is written opaque \"name\"(...)", word);
    }
    TRY(read_operands(r, &in));
    TRY(read_attrs(r, &at));
    if (in.n > INT16_MAX) return bad(r, "too many operands");
    *v = graph_op_named(r->g, name, op, in.at, (int)in.n, at.at, (int)at.n);
    return AN_OK;
}

static an_status read_flags(reader *r, val v)
{
    while (accept(r, '!')) {
        size_t i = 0;
        while (i < COUNT(text_flags) && !at_word(r, text_flags[i].word)) i++;
        if (i == COUNT(text_flags)) return wanted(r, "inline, dynamic, data_offset, again or state");
        if (v.i) r->g->nodes.at[graph_value(r->g, v)->node].flags |= text_flags[i].bit;
    }
    return AN_OK;
}

/* ---- statements ---- */

static an_status read_results(reader *r, name_list *out)
{
    do {
        const char *name;
        TRY(read_name(r, "a name", &name));
        if (!VEC_PUSH(&r->tmp, out, name)) return diag_nomem(r->d);
    } while (accept(r, ','));
    return expect(r, '=');
}

static an_status read_definition(reader *r)
{
    name_list names = { 0 };
    graph *g = r->g;
    TRY(read_results(r, &names));
    skip(r);
    const char *first = names.at[0];
    val v = NO_VAL;
    if (at_word(r, "input")) {
        ttype t;
        TRY(read_type(r, &t));
        graph_input(g, first, t);
    } else if (at_word(r, "const")) TRY(read_const(r, first));
    else if (at_word(r, "opaque")) TRY(read_opaque(r, first, &v));
    else TRY(read_op(r, first, &v));
    if (g->err.st) return AN_OK; /* reported by the caller, at the statement */
    v = graph_find(g, first);
    TRY(read_flags(r, v));
    int n_out = graph_maker(g, v)->n_out;
    if ((size_t)n_out != names.n)
        return bad(r, "%zu names for the %d results of %s", names.n, n_out, graph_maker(g, v)->mil);
    for (int k = 1; k < n_out; k++) graph_rename(g, graph_out(v, k), names.at[k]);
    return AN_OK;
}

static an_status read_return(reader *r)
{
    do {
        const char *name;
        const char *from = r->at;
        val v;
        skip_lines(r);
        TRY(read_name(r, "a value's name", &name));
        if (accept(r, '=')) TRY(read_operand(r, &v));
        else {
            v = graph_find(r->g, name);
            if (!v.i) {
                r->at = from;
                return bad(r, "%.200s is not defined above", name);
            }
        }
        if (!v.i) return bad(r, "wanted a value to return, found _");
        if (r->g->outputs.n == MAX_RETURNS) return bad(r, "more than %d values are returned", MAX_RETURNS);
        graph_output(r->g, name, v);
    } while (accept(r, ','));
    return AN_OK;
}

static an_status read_inputs(reader *r)
{
    size_t n = 0;
    graph *g = r->g;
    val *order = TAKE(&r->tmp, val, g->inputs.n);
    bool *listed = TAKE(&r->tmp, bool, g->values.n);
    if (!order || !listed) return diag_nomem(r->d);
    do {
        val v;
        TRY(read_operand(r, &v));
        if (!v.i || graph_maker(g, v)->op != OP_INPUT || listed[v.i]) return bad(r, "wanted each input once");
        listed[v.i] = true;
        order[n++] = v;
    } while (accept(r, ','));
    if (n != g->inputs.n) return bad(r, "%zu inputs are listed, there are %zu", n, g->inputs.n);
    memcpy(g->inputs.at, order, n * sizeof *order);
    return AN_OK;
}

/* Every name the text defines, before anything is built: a name made up for a further result must not take one. */
static an_status reserve_names(const reader *from)
{
    reader r = *from;
    diag quiet = { 0 };
    an_status st = AN_OK;
    r.tmp = (arena){ 0 };
    while (r.at < r.end && !st) {
        name_list names = { 0 };
        r.d = &quiet;
        skip_lines(&r);
        bool defines = read_results(&r, &names) == AN_OK;
        for (size_t i = 0; i < names.n && defines && !st; i++) {
            const char *s = arena_str(&r.g->mem, names.at[i]);
            if (!s || !str_map_put(&r.g->mem, &r.g->reserved, s, strlen(s), 0)) st = diag_nomem(from->d);
        }
        quiet = (diag){ 0 };
        while (r.at < r.end && *r.at != '\n') r.at++;
        arena_free(&r.tmp);
    }
    return st;
}

static an_status read_statement(reader *r, bool first, bool *returned)
{
    graph *g = r->g;
    g->here = place(r);
    if (*returned) return bad(r, "nothing may follow return");
    if (at_word(r, "graph")) {
        const char *s;
        if (!first) return bad(r, "graph \"title\" must come first, and once");
        TRY(read_quoted(r, &s));
        g->title = arena_str(&g->mem, s);
        if (!g->title) return diag_nomem(r->d);
    } else if (at_word(r, "return")) {
        TRY(read_return(r));
        *returned = true;
    } else if (at_word(r, "inputs")) TRY(read_inputs(r));
    else TRY(read_definition(r));
    if (g->err.st) return diag_fail(r->d, g->err.st, g->err.at, "%s", g->err.msg);
    skip(r);
    return r->at == r->end || *r->at == '\n' ? AN_OK : wanted(r, "the end of the line");
}

an_status graph_parse(const char *text, size_t n, graph **out, diag *d)
{
    *out = NULL;
    size_t limit = (size_t)256 << 20; /* room for constants written `all x`, besides what the text itself needs */
    limit = n < (SIZE_MAX - limit) / 64 ? limit + 64 * n : SIZE_MAX;
    graph *g = graph_new("main", limit);
    if (!g) return diag_nomem(d);
    reader r = { .at = text, .end = text + n, .text = text, .line_start = text, .line = 1, .g = g, .d = d };
    r.tmp.limit = limit;
    bool first = true, returned = false;
    an_status st = reserve_names(&r);
    for (skip_lines(&r); r.at < r.end && !st; skip_lines(&r)) {
        st = read_statement(&r, first, &returned);
        first = false;
        arena_free(&r.tmp);
    }
    g->reserved = (str_map){ 0 };
    if (!st) st = graph_finish(g, d);
    arena_free(&r.tmp);
    if (st) graph_free(g);
    else *out = g;
    return st;
}
