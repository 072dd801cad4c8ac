/* cast.c: cast of a cast becomes one cast, or none, when the type in the middle holds every value of the first type:
 * fp16 -> fp32 -> fp16 disappears, fp32 -> fp16 -> fp32 rounds and stays. */
#include "pass/pass_int.h"

/* Significant bits, and the exponents of the smallest and largest numbers: enough to say which type contains which. */
typedef struct {
    int digits, min_exp, max_exp;
    bool is_signed;
} reach;

static bool reach_of(dtype t, reach *r)
{
    int bits = dtype_bits(t);
    switch (dtype_class(t)) {
    case KIND_BOOL: *r = (reach){ 1, 0, 1, false }; return true;
    case KIND_UINT: *r = (reach){ bits, 0, bits, false }; return true;
    case KIND_INT: *r = (reach){ bits - 1, 0, bits - 1, true }; return true; /* -2^(n-1) is one digit in any float */
    case KIND_FLOAT: break;
    default: return false;
    }
    switch (t) { /* digits with the hidden one; exponent of the smallest subnormal; largest number is below 2^max_exp */
    case DT_F16: *r = (reach){ 11, -24, 16, true }; return true;
    case DT_BF16: *r = (reach){ 8, -133, 128, true }; return true;
    case DT_F32: *r = (reach){ 24, -149, 128, true }; return true;
    case DT_F64: *r = (reach){ 53, -1074, 1024, true }; return true;
    case DT_E4M3: *r = (reach){ 4, -9, 9, true }; return true;
    case DT_E5M2: *r = (reach){ 3, -16, 16, true }; return true;
    default: return false;
    }
}

/* Every value of a, infinities and NaN included, is a value of b. */
static bool holds_all(dtype a, dtype b)
{
    reach x, y;
    if (!reach_of(a, &x) || !reach_of(b, &y)) return false;
    if (a == b) return true;
    if (dtype_class(b) == KIND_BOOL) return false;
    if (dtype_is_float(a) && (!dtype_is_float(b) || b == DT_E4M3)) return false; /* no infinity there */
    return x.digits <= y.digits && x.min_exp >= y.min_exp && x.max_exp <= y.max_exp && (y.is_signed || !x.is_signed);
}

static an_status visit(sweep *s, uint32_t i, diag *d)
{
    graph *g = s->g;
    node *n = &g->nodes.at[i];
    (void)d;
    if (n->op != OP_CAST) return AN_OK;
    const node *first = graph_maker(g, n->in[0]);
    if (first->op != OP_CAST || !holds_all(in_type(g, first, 0)->dt, in_type(g, n, 0)->dt)) return AN_OK;
    val x = first->in[0];
    if (ttype_eq(graph_type(g, x), out_type(g, n))) {
        sweep_forward(s, n->out, x);
        return AN_OK;
    }
    n->in[0] = x; /* the attribute names the final type and stays */
    s->c->n_changes++;
    return AN_OK;
}

an_status pass_cast(graph *g, pass_ctx *c, diag *d) { return sweep_run(g, c, visit, NULL, d); }
