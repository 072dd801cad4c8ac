/* opcase.h: operations and programs in place, written as one line, for table-driven tests of the target tables.
 *
 *   line     op | op ; op ; … with items:  in NAME type, out NAME type, live=N, funcs=N, text, noversion, version=V, opset=O
 *   op       NAME operand … > type … | attr=value … ! inline dyn blob ret
 *   operand  type, with c in front of a constant, i of a program input; then @lo:hi range, =NAME maker, #N identity, *N uses; - absent.
 *            A result may have #N and @lo:hi too.
 *   type     [1,8,1,32] (fp16) or int8[…]; ? an unknown extent.   Lists are 1,2,3; an unknown op name is opaque. */
#ifndef TESTS_OPCASE_H
#define TESTS_OPCASE_H

#include <ctype.h>
#include <math.h>

#include "t.h"
#include "target/target.h"

typedef struct {
    arena mem;
    VEC(op_inst) ops;
    VEC(port_view) in, out;
    prog_view view;
} opcase;

static inline void *need(void *p)
{
    if (!p) fail_msg("no memory in a test");
    return p;
}

static inline char *word_at(opcase *c, const char **p) /* next blank-separated word, or NULL at ; or the end */
{
    while (**p == ' ') ++*p;
    size_t n = strcspn(*p, " ;");
    if (!n) return NULL;
    char *w = need(arena_strn(&c->mem, *p, n));
    *p += n;
    return w;
}

static inline ttype read_type(const char **p)
{
    ttype t = { .dt = DT_F16 };
    size_t n = strcspn(*p, "[");
    if (n) t.dt = dtype_from_name(*p, n);
    if (t.dt == DT_NONE || (*p)[n] != '[') fail_msg("bad type in a test: %s", *p);
    *p += n + 1;
    while (**p != ']') {
        char *end;
        if (**p == '?') t.sh.d[t.sh.rank++] = DIM_UNKNOWN, ++*p;
        else t.sh.d[t.sh.rank++] = strtoll(*p, &end, 10), *p = end;
        if (**p == ',') ++*p;
    }
    ++*p;
    return t;
}

static inline const char *read_range(const char *w, vrange *r) /* behind the @ */
{
    char *end;
    r->lo = strtod(w, &end);
    if (*end != ':') fail_msg("bad range in a test: %s", w);
    r->hi = strtod(end + 1, &end);
    return end;
}

static inline operand read_operand(const char *w)
{
    operand x = { .range = { -INFINITY, INFINITY }, .from = OP_RELU, .n_uses = 1 };
    if (!strcmp(w, "-")) return x;
    x.present = true;
    if (*w == 'c') x.is_const = true, x.from = OP_CONST, w++;
    else if (*w == 'i' && w[1] != 'n') /* not int8[…] */
        x.is_input = true, x.from = OP_INPUT, w++;
    x.type = read_type(&w);
    while (*w) {
        char *end;
        if (*w == '@') {
            w = read_range(w + 1, &x.range);
        } else if (*w == '*') x.n_uses = (int)strtol(w + 1, &end, 10), w = end;
        else if (*w == '#') x.value = (uint32_t)strtoul(w + 1, &end, 10), w = end;
        else if (*w == '=') {
            size_t n = strcspn(++w, "#@*");
            if (!op_find(w, n, &x.from)) fail_msg("unknown maker in a test: %s", w);
            w += n;
        } else fail_msg("bad operand in a test: %s", w);
    }
    return x;
}

static inline attr read_attr_text(opcase *c, op_id op, char *w)
{
    char *eq = strchr(w, '=');
    if (!eq) fail_msg("bad attribute in a test: %s", w);
    attr_id id = attr_find(w, (size_t)(eq - w));
    const attr_spec *s = op_attr_spec(op, id);
    if (!s) fail_msg("%s has no attribute %s", op_get(op)->mil, w);
    attr a = { .id = id, .kind = s->kind };
    if (s->kind == ATTR_STR) a.u.s = eq + 1;
    else if (s->kind == ATTR_FLOAT) a.u.f = strtod(eq + 1, NULL);
    else if (s->kind == ATTR_INT || s->kind == ATTR_BOOL) a.u.i = strtoll(eq + 1, NULL, 10);
    else {
        int64_t *v = need(TAKE(&c->mem, int64_t, 16));
        for (char *p = eq + 1; *p; p += *p == ',') v[a.n++] = strtoll(p, &p, 10);
        a.u.is = v;
    }
    return a;
}

static inline void read_op(opcase *c, const char *name, const char **p)
{
    op_inst o = { .mil = name, .name = "v" };
    if (!op_find(name, strlen(name), &o.op)) o.op = OP_OPAQUE;
    operand *in = need(TAKE(&c->mem, operand, 20));
    ttype *out = need(TAKE(&c->mem, ttype, 8));
    bool *ret = need(TAKE(&c->mem, bool, 8));
    attr *at = need(TAKE(&c->mem, attr, 12));
    int part = 0;
    for (char *w; (w = word_at(c, p));) {
        if (!strcmp(w, ">")) part = 1;
        else if (!strcmp(w, "|")) part = 2;
        else if (!strcmp(w, "!")) part = 3;
        else if (part == 0) in[o.n_in++] = read_operand(w);
        else if (part == 1) {
            const char *q = w;
            out[o.n_out++] = read_type(&q);
            char *end = NULL;
            if (*q == '#') o.out_value = (uint32_t)strtoul(q + 1, &end, 10), q = end;
            if (*q != '@') continue;
            vrange *r = need(TAKE(&c->mem, vrange, 1));
            read_range(q + 1, r);
            o.out_range = r;
        } else if (part == 2) at[o.n_attr++] = read_attr_text(c, o.op, w);
        else if (!strcmp(w, "ret")) ret[0] = true;
        else
            o.flags |= !strcmp(w, "inline") ? INST_INLINE_ARG
                       : !strcmp(w, "dyn")  ? INST_DYNAMIC_ATTR
                                            : INST_BLOB_DATA_OFFSET;
    }
    o.in = in, o.out = out, o.out_is_output = ret, o.attrs = at;
    if (!VEC_PUSH(&c->mem, &c->ops, o)) fail_msg("no memory in a test");
}

static inline void opcase_read(opcase *c, const char *line)
{
    *c = (opcase){ 0 };
    c->view = (prog_view){ .version = "1.0", .opset = "ios16", .has_coremlc_version = true, .n_funcs = 1 };
    op_inst none = { .op = OP_INPUT, .mil = "input", .name = "" };
    if (!VEC_PUSH(&c->mem, &c->ops, none)) fail_msg("no memory in a test");
    for (const char *p = line; *p; p += *p == ';') {
        char *w = word_at(c, &p);
        if (!w) continue;
        if (!strcmp(w, "in") || !strcmp(w, "out")) {
            port_view v = { .name = word_at(c, &p) };
            const char *t = word_at(c, &p);
            v.type = read_type(&t);
            if (!(*w == 'i' ? VEC_PUSH(&c->mem, &c->in, v) : VEC_PUSH(&c->mem, &c->out, v)))
                fail_msg("no memory in a test");
        } else if (!strncmp(w, "live=", 5)) c->view.n_live_bytes = strtoul(w + 5, NULL, 10);
        else if (!strncmp(w, "funcs=", 6)) c->view.n_funcs = strtoul(w + 6, NULL, 10), c->view.from_text = true;
        else if (!strncmp(w, "version=", 8)) c->view.version = w + 8, c->view.from_text = true;
        else if (!strncmp(w, "opset=", 6)) c->view.opset = w + 6, c->view.from_text = true;
        else if (!strcmp(w, "noversion")) c->view.has_coremlc_version = false, c->view.from_text = true;
        else if (!strcmp(w, "text")) c->view.from_text = true;
        else read_op(c, w, &p);
    }
    c->view.ops = c->ops.at, c->view.n_ops = c->ops.n;
    c->view.in = c->in.at, c->view.n_in = c->in.n;
    c->view.out = c->out.at, c->view.n_out = c->out.n;
}

static inline void opcase_free(opcase *c) { arena_free(&c->mem); }

#endif
