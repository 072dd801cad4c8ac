/* build.c: a program made by calls instead of text. Values are the graph's handles; its first error sticks until
 * finish. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "api/api_int.h"
#include "base/plain.h"

an_status an_program_new(an_program **out, const char *name, an_error *e)
{
    diag d = { 0 };
    graph *g = graph_new(name, 0);
    *out = g ? api_program(g) : NULL;
    if (*out) return AN_OK;
    graph_free(g);
    diag_nomem(&d);
    return api_error(e, &d);
}

static bool type_of(graph *g, const char *name, const char *dt, int rank, const int64_t *dim, ttype *t)
{
    *t = (ttype){ .dt = dt ? dtype_from_name(dt, strlen(dt)) : DT_NONE };
    if (!name) name = "a value without a name";
    if (!dt || (rank > 0 && !dim))
        graph_fail(g, AN_USAGE, "%s: no %s given", name, dt ? "extents are" : "element type is");
    else if (t->dt == DT_NONE || t->dt == DT_STRING)
        graph_fail(g, AN_INPUT, "%s: unknown element type \"%.20s\"", name, dt);
    else if (rank < 0 || rank > MAX_RANK)
        graph_fail(g, AN_INPUT, "%s: rank %d; 0 to %d is possible", name, rank, MAX_RANK);
    else {
        t->sh.rank = rank;
        for (int i = 0; i < rank; i++) {
            if (dim[i] <= 0)
                return graph_fail(g, AN_INPUT, "%s: extent %lld; at least 1 is wanted", name, (long long)dim[i]), false;
            t->sh.d[i] = dim[i];
        }
        return true;
    }
    return false;
}

an_value an_input(an_program *p, const char *name, const char *dt, int rank, const int64_t *dim)
{
    ttype t;
    graph *g = api_graph(p);
    return (an_value){ type_of(g, name, dt, rank, dim, &t) ? graph_input(g, name, t).i : 0 };
}

an_value an_constant(an_program *p, const char *name, const char *dt, int rank, const int64_t *dim, const void *data)
{
    ttype t;
    graph *g = api_graph(p);
    if (!type_of(g, name, dt, rank, dim, &t)) return (an_value){ 0 };
    if (data) return (an_value){ graph_const(g, name, t, data).i };
    graph_fail(g, AN_USAGE, "constant %s: no numbers are given", name ? name : "without a name");
    return (an_value){ 0 };
}

/* ---- attributes: name=value, name=value; a value is a number, true, false, "text" or [list] ---- */

enum { MAX_LIST = 64 };

typedef struct {
    const char *at;
    graph *g;
    op_id op;
    attr out[OP_MAX_ATTRS];
    int64_t list[OP_MAX_ATTRS][MAX_LIST];
    char text[OP_MAX_ATTRS][64];
    int n;
} reader;

static void blanks(reader *r)
{
    while (isspace((unsigned char)*r->at) || *r->at == ',') r->at++;
}

static bool bad(reader *r, const char *what)
{
    graph_fail(r->g, AN_INPUT, "%s: attributes: %s at \"%.30s\"", op_get(r->op)->mil, what, r->at);
    return false;
}

static bool whole(reader *r, int64_t *x)
{
    char *end;
    if (!strncmp(r->at, "true", 4)) return r->at += 4, *x = 1, true;
    if (!strncmp(r->at, "false", 5)) return r->at += 5, *x = 0, true;
    errno = 0;
    *x = strtoll(r->at, &end, 10);
    if (end == r->at || errno) return bad(r, "a whole number is wanted");
    return r->at = end, true;
}

static bool items(reader *r, attr *a, int64_t *list)
{
    if (*r->at++ != '[') return r->at--, bad(r, "'[' is wanted");
    for (blanks(r); *r->at != ']'; blanks(r)) {
        if (a->n == MAX_LIST) return bad(r, "the list is too long");
        if (!whole(r, &list[a->n])) return false;
        a->n++;
    }
    r->at++;
    a->u.is = list;
    return true;
}

static bool quoted(reader *r, char *text, const char **out)
{
    const char *end = *r->at == '"' ? strchr(r->at + 1, '"') : NULL;
    if (!end || end - r->at - 1 >= 64) return bad(r, "a short text in quotes is wanted");
    memcpy(text, r->at + 1, (size_t)(end - r->at - 1));
    text[end - r->at - 1] = 0;
    r->at = end + 1;
    return *out = text, true;
}

static bool real(reader *r, double *x)
{
    char *end;
    *x = plain_real(r->at, &end);
    if (end == r->at) return bad(r, "a number is wanted");
    if (isinf(*x) && end[-1] >= '0' && end[-1] <= '9') return bad(r, "too large; write inf to mean it:");
    return r->at = end, true;
}

static bool one_attr(reader *r)
{
    size_t n = strcspn(r->at, "= ,\t");
    attr_id id = attr_find(r->at, n);
    const attr_spec *spec = id != A_NONE ? op_attr_spec(r->op, id) : NULL;
    if (!spec) return bad(r, "the operation has no such attribute");
    if (r->n == OP_MAX_ATTRS) return bad(r, "too many");
    r->at += n;
    while (*r->at == ' ') r->at++;
    if (*r->at != '=') return bad(r, "'=' is wanted");
    for (r->at++; *r->at == ' ';) r->at++;
    attr *a = &r->out[r->n];
    *a = (attr){ .id = id, .kind = spec->kind };
    bool ok = false;
    switch (spec->kind) {
    case ATTR_INT:
    case ATTR_BOOL: ok = whole(r, &a->u.i); break;
    case ATTR_INTS:
    case ATTR_BOOLS: ok = items(r, a, r->list[r->n]); break;
    case ATTR_FLOAT: ok = real(r, &a->u.f); break;
    case ATTR_STR: ok = quoted(r, r->text[r->n], &a->u.s); break;
    case ATTR_NONE: ok = bad(r, "no such attribute"); break;
    }
    r->n++;
    return ok;
}

an_value an_op(an_program *p, const char *name, const char *op, const an_value *in, size_t n_in, const char *attributes)
{
    graph *g = api_graph(p);
    reader r = { .at = attributes ? attributes : "", .g = g };
    val v[64];
    if (g->err.st) return (an_value){ 0 };
    if (!op) return graph_fail(g, AN_USAGE, "an operation: no name of it is given"), (an_value){ 0 };
    if (n_in && !in) return graph_fail(g, AN_USAGE, "%s: no operands are given", op), (an_value){ 0 };
    if (!op_find(op, strlen(op), &r.op) || r.op == OP_INPUT || r.op == OP_CONST || r.op == OP_OPAQUE)
        return graph_fail(g, AN_INPUT, "there is no operation \"%.40s\"", op), (an_value){ 0 };
    if (n_in > COUNT(v))
        return graph_fail(g, AN_INPUT, "%s: %zu operands; %zu is the most", op, n_in, COUNT(v)), (an_value){ 0 };
    for (size_t i = 0; i < n_in; i++) {
        if (in[i].id >= g->values.n)
            return graph_fail(g, AN_INPUT, "%s: operand %zu is no value of %s", op, i, g->title), (an_value){ 0 };
        v[i] = (val){ in[i].id };
    }
    for (blanks(&r); *r.at; blanks(&r))
        if (!one_attr(&r)) return (an_value){ 0 };
    return (an_value){ graph_op_named(g, name, r.op, v, (int)n_in, r.out, r.n).i };
}

an_value an_result(an_program *p, an_value v, int k)
{
    graph *g = api_graph(p);
    if (g->err.st) return (an_value){ 0 };
    if (!v.id || v.id >= g->values.n) return graph_fail(g, AN_INPUT, "no value of %s", g->title), (an_value){ 0 };
    const node *n = graph_maker(g, (val){ v.id });
    if (k >= 0 && k < n->n_out) return (an_value){ graph_out(n->out, k).i };
    return graph_fail(g, AN_INPUT, "%s %s: result %d of %d", n->mil, n->name, k, n->n_out), (an_value){ 0 };
}

void an_output(an_program *p, const char *name, an_value v)
{
    graph *g = api_graph(p);
    if (!name) graph_fail(g, AN_USAGE, "an output has no name");
    else if (!v.id || v.id >= g->values.n) graph_fail(g, AN_INPUT, "output %s is no value of %s", name, g->title);
    else graph_output(g, name, (val){ v.id });
}

an_status an_program_finish(an_program *p, an_error *e)
{
    diag d = { 0 };
    return graph_finish(api_graph(p), &d) ? api_error(e, &d) : AN_OK;
}
