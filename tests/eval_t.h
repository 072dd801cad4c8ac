/* eval_t.h: one operation and its operands written as text, for tests of the evaluator.
 *
 *   tensors     "[2,3] 1 2 3 4 5 6 ; int32[2] 0 -1 ; -"     fp32 unless a type is named; "-" is an operand left out
 *               "[2,3] 1.."  counts up from 1;  "[2,3] 7*"  repeats the last value
 *   attributes  "axis=1 strides=2,2 mode=max keep_dims=true"
 *
 * Types of the results come from graph_infer and must agree with what the test expects. */
#ifndef TESTS_EVAL_T_H
#define TESTS_EVAL_T_H

#include <ctype.h>
#include <math.h>

#include "t.h"
#include "graph/graph.h"

enum { EV_MAX = 8 };

typedef struct {
    op_id op;
    const char *attrs, *in, *want;
} ev_row;

static inline void ev_blank(const char **p)
{
    while (isspace((unsigned char)**p)) ++*p;
}

/* One tensor; *p moves behind it. */
static inline tensor64 ev_tensor(arena *a, const char **p)
{
    tensor64 t = { .type.dt = DT_F32 };
    ev_blank(p);
    if (**p == '-' && !isdigit((unsigned char)(*p)[1])) return ++*p, (tensor64){ 0 };
    size_t n = strcspn(*p, "[");
    if (n) t.type.dt = dtype_from_name(*p, n);
    if (t.type.dt == DT_NONE) fail_msg("no such type: %s", *p);
    for (*p += n + 1; **p && **p != ']'; *p += **p == ',')
        t.type.sh.d[t.type.sh.rank++] = strtoll(*p, (char **)(uintptr_t)p, 10);
    ++*p;
    int64_t count, i = 0;
    if (!shape_elems(&t.type.sh, &count)) fail_msg("bad shape");
    t.x = TAKE(a, double, (size_t)count);
    assert_non_null(t.x);
    for (ev_blank(p); **p && **p != ';'; ev_blank(p)) {
        if (**p == '.' || **p == '*') {
            double step = **p == '.' ? 1 : 0;
            *p += **p == '.' ? 2 : 1;
            for (; i > 0 && i < count; i++) t.x[i] = t.x[i - 1] + step;
            continue;
        }
        if (i == count) fail_msg("too many values before: %s", *p);
        char *end;
        const char *dots = strstr(*p, "..");
        if (dots && strspn(*p, "+-0123456789") == (size_t)(dots - *p)) { /* "1..": strtod would eat a dot */
            t.x[i++] = (double)strtoll(*p, &end, 10);
        } else {
            t.x[i++] = strtod(*p, &end);
        }
        if (end == *p) fail_msg("not a number: %s", *p);
        *p = end;
    }
    if (i != count) fail_msg("%lld values for %lld elements", (long long)i, (long long)count);
    return t;
}

static inline int ev_tensors(arena *a, const char *text, tensor64 *out)
{
    int n = 0;
    for (ev_blank(&text); *text; ev_blank(&text)) {
        if (n == EV_MAX) fail_msg("too many tensors");
        out[n++] = ev_tensor(a, &text);
        ev_blank(&text);
        if (*text == ';') text++;
    }
    return n;
}

static inline int ev_attrs(arena *a, op_id op, const char *p, attr *out)
{
    int n = 0;
    for (ev_blank(&p); *p; ev_blank(&p)) {
        size_t len = strcspn(p, "=");
        attr_id id = attr_find(p, len);
        const attr_spec *s = id ? op_attr_spec(op, id) : NULL;
        if (!s) fail_msg("%s has no attribute %s", op_get(op)->mil, p);
        p += len + 1;
        len = strcspn(p, " ");
        char *text = arena_strn(a, p, len);
        assert_non_null(text);
        p += len;
        attr *at = &out[n++];
        *at = (attr){ .id = id, .kind = s->kind };
        switch (s->kind) {
        case ATTR_FLOAT: at->u.f = strtod(text, NULL); break;
        case ATTR_STR: at->u.s = text; break;
        case ATTR_INT: at->u.i = strtoll(text, NULL, 10); break;
        case ATTR_BOOL: at->u.i = !strcmp(text, "true"); break;
        default: {
            int64_t *list = TAKE(a, int64_t, len + 1);
            assert_non_null(list);
            for (char *q = text; *q; q += *q == ',') {
                if (!strncmp(q, "true", 4)) list[at->n++] = 1, q += 4;
                else if (!strncmp(q, "false", 5)) list[at->n++] = 0, q += 5;
                else list[at->n++] = strtoll(q, &q, 10);
            }
            at->u.is = list;
        }
        }
    }
    return n;
}

static inline bool ev_close(double got, double want)
{
    if (isnan(want)) return isnan(got);
    if (isinf(want)) return got == want;
    return fabs(got - want) <= 1e-11 * (1 + fabs(want));
}

/* Infer, evaluate; the results in out, their number in *n_out. */
static inline an_status ev_run(arena *a, op_id op, const attr *at, int n_at, const tensor64 *in, int n_in,
                               tensor64 *out, int *n_out, diag *d)
{
    ttype ti[EV_MAX] = { 0 }, to[EV_MAX] = { 0 };
    for (int i = 0; i < n_in; i++) ti[i] = in[i].type;
    an_status st = graph_infer(op, ti, n_in, at, n_at, to, n_out, EV_MAX, d);
    if (st) return st;
    for (int i = 0; i < *n_out; i++) out[i] = (tensor64){ .type = to[i] };
    return graph_eval_op(op, at, n_at, in, n_in, out, *n_out, a, d);
}

/* Evaluate from text and return the first result. */
static inline tensor64 ev_one(arena *a, op_id op, const char *attrs, const tensor64 *in, int n_in)
{
    attr at[OP_MAX_ATTRS];
    tensor64 out[EV_MAX];
    int n_out, n_at = ev_attrs(a, op, attrs, at);
    diag d = { 0 };
    assert_ok(ev_run(a, op, at, n_at, in, n_in, out, &n_out, &d), d);
    return out[0];
}

static inline void ev_same(const char *what, const tensor64 *got, const tensor64 *want)
{
    if (got->type.dt != want->type.dt || !shape_eq(&got->type.sh, &want->type.sh)) {
        strbuf b = { 0 };
        sb_ttype(&b, &got->type), sb_puts(&b, ", expected "), sb_ttype(&b, &want->type);
        print_error("%s: is %s\n", what, b.at);
        sb_free(&b);
        fail();
    }
    int64_t n;
    assert_true(shape_elems(&got->type.sh, &n));
    for (int64_t i = 0; i < n; i++)
        if (!ev_close(got->x[i], want->x[i]))
            fail_msg("%s: element %lld is %.17g, expected %.17g", what, (long long)i, got->x[i], want->x[i]);
}

static inline void ev_check(const ev_row *r)
{
    arena a = { 0 };
    attr at[OP_MAX_ATTRS];
    tensor64 in[EV_MAX] = { 0 }, out[EV_MAX] = { 0 }, want[EV_MAX] = { 0 };
    int n_at = ev_attrs(&a, r->op, r->attrs, at), n_in = ev_tensors(&a, r->in, in),
        n_want = ev_tensors(&a, r->want, want), n_out;
    char what[300];
    snprintf(what, sizeof what, "%s(%s | %s)", op_get(r->op)->mil, r->attrs, r->in);
    diag d = { 0 };
    an_status st = ev_run(&a, r->op, at, n_at, in, n_in, out, &n_out, &d);
    if (st) fail_msg("%s: status %d: %s", what, (int)st, d.msg);
    if (n_out != n_want) fail_msg("%s: %d results, expected %d", what, n_out, n_want);
    for (int i = 0; i < n_out; i++) ev_same(what, &out[i], &want[i]);
    arena_free(&a);
}

/* A tensor of random values in [-2, 2). */
static inline tensor64 ev_random(arena *a, rng *r, shape s)
{
    int64_t n;
    assert_true(shape_elems(&s, &n));
    tensor64 t = { .type = { DT_F32, s }, .x = TAKE(a, double, (size_t)n) };
    assert_non_null(t.x);
    for (int64_t i = 0; i < n; i++) t.x[i] = rng_range(r, -2, 2);
    return t;
}

#endif
