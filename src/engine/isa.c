/* isa.c: the instruction and function tables as data, and the fields of an instruction by name. In: rows of isa.def
 * and fns.def.  Out: names, field lists, values. The field string is the only description of an encoding: encoder,
 * decoder, printer and these accessors all walk it. */
#include <stdlib.h>

#include "engine/engine_int.h"

static const struct {
    const char *name, *fields, *what;
} rows[IN_COUNT] = {
#define INSN(id, name, fields, ref, exec, what) [IN_##id] = { name, fields, what },
#include "engine/isa.def"
#undef INSN
};

static const struct {
    const char *name;
    table_id table;
    int operands, params;
} fns[FN_COUNT] = {
#define FN(id, name, operands, params, table) [FN_##id] = { name, TAB_##table, operands, params },
#include "engine/fns.def"
#undef FN
};

const char *insn_name(insn_id op) { return rows[op].name; }
const char *insn_what(insn_id op) { return rows[op].what; }
bool insn_is_product(insn_id op)
{
    return op == IN_CONV || op == IN_CONV_T || op == IN_MATMUL || op == IN_MATMUL_SQUARES;
}
int insn_outputs(insn_id op)
{
    return op == IN_SORT || op == IN_SUMS || op == IN_ATTEND_KEEP || op == IN_MATMUL_SQUARES ? 2
           : op == IN_ATTEND_BACK                                                            ? 3
           : op == IN_EWS                                                                    ? CHAIN_MOST_RESULTS
                                                                                             : 1;
}
const char *fn_name(fn_id f) { return fns[f].name; }
int fn_operands(fn_id f) { return fns[f].operands; }
int fn_params(fn_id f) { return fns[f].params; }
table_id fn_table(fn_id f) { return fns[f].table; }

/* "name:type" at *s; advances past it and the blank behind it. false at the end. */
static bool next_field(const char **s, const char **name, size_t *len, field_kind *kind)
{
    const char *p = *s, *colon = strchr(p, ':');
    if (!colon) return false;
    *name = p, *len = (size_t)(colon - p);
    bool list = colon[2] == '*', opt = colon[2] == '?';
    switch (colon[1]) {
    case 't': *kind = list ? FIELD_T_LIST : opt ? FIELD_T_OPT : FIELD_T; break;
    case 'i': *kind = list ? FIELD_I_LIST : FIELD_I; break;
    default: *kind = list ? FIELD_F_LIST : FIELD_F; break;
    }
    p = colon + (list || opt ? 3 : 2);
    *s = *p == ' ' ? p + 1 : p;
    return true;
}

int isa_fields(insn_id op, insn_field *out)
{
    const char *s = rows[op].fields, *name;
    size_t len;
    int n = 0;
    for (field_kind kind; next_field(&s, &name, &len, &kind); n++) {
        out[n] = (insn_field){ .kind = kind };
        memcpy(out[n].name, name, MIN(len, (size_t)FIELD_NAME - 1));
    }
    return n;
}

/* Where a field stands in the array of its kind. Lists before it take as many places as they say. */
typedef struct {
    field_kind kind;
    uint32_t t, i, f;
} place;

static place find(const insn *in, const char *want)
{
    const char *s = rows[in->op].fields, *name;
    size_t len, n = strlen(want);
    place p = { 0 };
    while (next_field(&s, &name, &len, &p.kind)) {
        if (len == n && !memcmp(name, want, n)) return p;
        switch (p.kind) {
        case FIELD_T:
        case FIELD_T_OPT: p.t++; break;
        case FIELD_T_LIST: p.t += 1 + (uint32_t)in->t[p.t]; break;
        case FIELD_I: p.i++; break;
        case FIELD_I_LIST: p.i += 1 + (uint32_t)in->i[p.i]; break;
        case FIELD_F: p.f++; break;
        case FIELD_F_LIST: p.f += 1 + (uint32_t)in->f[p.f]; break; /* the length of a list of reals is kept as a real */
        }
    }
    abort(); /* no such field: a slip in this folder, never input */
}

void insn_walk_begin(insn_walk *w, const insn *in)
{
    *w = (insn_walk){ .t = in->t, .outputs = insn_outputs(in->op), .field = -1 };
    w->n_fields = isa_fields(in->op, w->f);
}

bool insn_walk_next(insn_walk *w, bool written, int64_t *tensor)
{
    for (;;) {
        while (w->left > 0) {
            w->left--;
            *tensor = *w->t++;
            if (*tensor >= 0 && (w->outputs >= 0) == written) return true;
        }
        do {
            if (++w->field >= w->n_fields) return false;
        } while (w->f[w->field].kind > FIELD_T_LIST);
        w->left = w->f[w->field].kind == FIELD_T_LIST ? *w->t++ : 1;
        w->outputs--;
    }
}

int64_t insn_t(const insn *in, const char *name) { return in->t[find(in, name).t]; }
int64_t insn_i(const insn *in, const char *name) { return in->i[find(in, name).i]; }
double insn_f(const insn *in, const char *name) { return in->f[find(in, name).f]; }

const int64_t *insn_ts(const insn *in, const char *name, int64_t *n)
{
    const int64_t *p = in->t + find(in, name).t;
    *n = p[0];
    return p + 1;
}

const int64_t *insn_is(const insn *in, const char *name, int64_t *n)
{
    const int64_t *p = in->i + find(in, name).i;
    *n = p[0];
    return p + 1;
}

const double *insn_fs(const insn *in, const char *name, int64_t *n)
{
    const double *p = in->f + find(in, name).f;
    *n = (int64_t)p[0];
    return p + 1;
}

chain insn_chain(const insn *in, int64_t n_inputs)
{
    chain c = { .n_inputs = n_inputs };
    int64_t n;
    c.step = insn_is(in, "steps", &n);
    c.n_steps = n / CHAIN_STEP;
    c.param = insn_fs(in, "params", &c.n_params);
    return c;
}

int insn_results(const insn *in, int64_t tensor[CHAIN_MOST_RESULTS], int64_t step[CHAIN_MOST_RESULTS])
{
    static const char *const names[CHAIN_MOST_RESULTS] = { "y", "y2", "y3", "y4" };
    int64_t n, more = 0;
    insn_is(in, "steps", &n);
    const int64_t *at = in->op == IN_EWS ? insn_is(in, "results", &more) : NULL;
    tensor[0] = insn_t(in, "y"), step[0] = n / CHAIN_STEP - 1;
    for (int64_t k = 0; k < more; k++) tensor[1 + k] = insn_t(in, names[1 + k]), step[1 + k] = at[k];
    return 1 + (int)more;
}

/* ---- shapes ---- */

int64_t dims_product(const int64_t *d, int from, int to)
{
    int64_t p = 1;
    for (int i = from; i < to; i++) p *= d[i];
    return p;
}

bool et_bytes(const etensor *t, uint64_t *bytes)
{
    int64_t n = 1;
    size_t b;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || !mul_i64(n, t->dim[i], &n)) return false;
    if (!dtype_bytes(t->dt, n, &b)) return false;
    *bytes = b;
    return true;
}

void et_strides(const etensor *t, int64_t *stride)
{
    int64_t p = 1;
    for (int i = t->rank - 1; i >= 0; i--) stride[i] = p, p *= t->dim[i];
}

bool et_broadcasts(const etensor *in, const int64_t *d, int rank)
{
    if (in->rank > rank) return false;
    for (int i = 0; i < in->rank; i++) {
        int64_t n = in->dim[i], to = d[rank - in->rank + i];
        if (n != 1 && n != to) return false;
    }
    return true;
}

void et_broadcast_strides(const etensor *in, int rank, int64_t *stride)
{
    int64_t own[ENGINE_MAX_RANK];
    et_strides(in, own);
    int lead = rank - in->rank;
    for (int i = 0; i < rank; i++) stride[i] = i < lead || in->dim[i - lead] == 1 ? 0 : own[i - lead];
}

axis_view et_axis(const etensor *t, int64_t axis)
{
    int a = (int)axis;
    return (axis_view){ dims_product(t->dim, 0, a), t->dim[a], dims_product(t->dim, a + 1, t->rank) };
}
