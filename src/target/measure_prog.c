/* measure_prog.c: the questions of measures.def about ports (program inputs and outputs) and about programs as a
 * whole. */
#include "target/target_int.h"

/* ---- ports ---- */

static void port_kind(look *l) { snprintf(l->detail, sizeof l->detail, "%s", l->port_out ? "output" : "input"); }

static double in_type(look *l, bool is)
{
    if (l->port_out) return NAN;
    snprintf(l->detail, sizeof l->detail, "%s", dtype_name(l->port->type.dt));
    return is ? 1 : 0;
}

double m_in_refused(look *l)
{
    dtype t = l->port->type.dt;
    return in_type(l, t != DT_F16 && t != DT_U8 && t != DT_F32);
}

double m_in_fp32(look *l) { return in_type(l, l->port->type.dt == DT_F32); }

double m_out_bf16(look *l) { return l->port_out ? l->port->type.dt == DT_BF16 : NAN; }

double m_out_other(look *l)
{
    if (!l->port_out) return NAN;
    dtype t = l->port->type.dt;
    snprintf(l->detail, sizeof l->detail, "%s", dtype_name(t));
    return t != DT_F16 && t != DT_BF16;
}

double m_port_bytes(look *l)
{
    size_t n;
    port_kind(l);
    return shape_bytes(&l->port->type, &n) ? (double)n : NAN;
}

double m_in_width(look *l)
{
    int64_t w = dim_back(&l->port->type.sh, 0);
    return l->port_out || w < 0 ? NAN : (double)w;
}

double m_row_rest(look *l)
{
    int64_t w = dim_back(&l->port->type.sh, 0);
    port_kind(l);
    if (w < 0 || tensor_elems(&l->port->type) <= 1) return NAN;
    return fmod((double)w * dtype_bits(l->port->type.dt) / 8, col(l->c, COL_dma_granule));
}

/* ---- ports taken together ---- */

static double size_spread(look *l, const port_view *at, size_t n)
{
    size_t lo = SIZE_MAX, hi = 0, at_lo = 0, at_hi = 0;
    for (size_t i = 0; i < n; i++) {
        size_t b;
        if (!shape_bytes(&at[i].type, &b)) return NAN;
        if (b < lo) lo = b, at_lo = i;
        if (b >= hi) hi = b, at_hi = i;
    }
    if (n < 2) return 0;
    snprintf(l->detail, sizeof l->detail, "%.40s %zu bytes, %.40s %zu bytes", at[at_lo].name, lo, at[at_hi].name, hi);
    return (double)(hi - lo);
}

double m_in_sizes(look *l) { return size_spread(l, l->p->in, l->p->n_in); }
double m_out_sizes(look *l) { return size_spread(l, l->p->out, l->p->n_out); }

double m_overalloc(look *l)
{
    double in = m_in_sizes(l), out = m_out_sizes(l);
    return (in > 0 || out > 0) ? 1 : 0;
}

static double unsorted(look *l, const port_view *at, size_t n)
{
    double bad = 0;
    for (size_t i = 1; i < n; i++) {
        if (strcmp(at[i - 1].name, at[i].name) <= 0) continue;
        if (!bad) snprintf(l->detail, sizeof l->detail, "%.60s binds before %.60s", at[i].name, at[i - 1].name);
        bad++;
    }
    return bad;
}

double m_in_unsorted(look *l) { return unsorted(l, l->p->in, l->p->n_in); }
double m_out_unsorted(look *l) { return unsorted(l, l->p->out, l->p->n_out); }

/* ---- the whole ---- */

double m_live_bytes(look *l) { return (double)l->p->n_live_bytes; }

double m_baked_weights(look *l)
{
    double n = 0;
    for (size_t i = 1; i < l->p->n_ops; i++) {
        const op_inst *o = &l->p->ops[i];
        if (!is_mac(o->op)) continue;
        for (int k = 0; k < o->n_in; k++) n += o->in[k].present && o->in[k].is_const && o->in[k].type.sh.rank >= 2;
    }
    return n;
}

double m_no_weights(look *l)
{
    if (!l->p->from_text) return NAN; /* a program still being built has no weight file yet */
    for (size_t i = 1; i < l->p->n_ops; i++) {
        const op_inst *o = &l->p->ops[i];
        if (is_constexpr(o->op)) return 0;
        if (o->op == OP_CONST && o->n_out && dtype_is_float(o->out[0].dt) && tensor_elems(&o->out[0]) > 1) return 0;
    }
    return 1;
}

double m_mac_unbounded(look *l)
{
    double n = 0;
    for (size_t i = 1; i < l->p->n_ops; i++) {
        look one = { .c = l->c, .op = &l->p->ops[i], .p = l->p };
        if (!is_mac(one.op->op) && !sums_products(&one)) continue;
        bool exempt = is_conv(one.op->op) && mac_depth(one.op) == 1;
        n += !exempt && isnan(m_mac_bound(&one));
    }
    return n;
}

double m_functions(look *l) { return l->p->from_text ? (double)l->p->n_funcs : NAN; }
double m_no_version(look *l) { return l->p->from_text ? !l->p->has_coremlc_version : NAN; }

double m_new_dialect(look *l)
{
    const char *v = l->p->version, *o = l->p->opset;
    if (!l->p->from_text) return NAN;
    bool old_opset = !o || !strcmp(o, "ios13") || !strcmp(o, "ios14") || !strcmp(o, "ios15") || !strcmp(o, "ios16");
    return (v && strcmp(v, "1.0") != 0) || !old_opset;
}
