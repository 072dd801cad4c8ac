/* cost.c: what a program should take on a chip. In: operations in place.  Out: flops, bytes, and a latency with its
 * bound.
 *
 * The published form is t = max(flops / P, bytes / B) + t0 with constants fitted on single operations (facts 9.1,
 * 9.2); this file keeps it for a lone operation and adds what published rows show about fused programs:
 *   - arithmetic: a matrix operation that reads a program input runs at the single-operation rate, for its operand still
 *     streams in; those fed on chip run at the slope roof                                   (4.5 P17, P20, P30, P60)
 *   - program inputs and outputs travel at bw_fit; intermediates stay on chip unless one reaches `resident`, and then are
 *     written and read at bw_dram                                                           (4.5 P20, P21; K19)
 *   - weights stream at bw_weight. H13 keeps a copy per core instead of one shared kernel memory: there the weights of an
 *     operation that has nothing before it to hide behind arrive at bw_fit, except a matrix operand too large to be turned
 *     into a convolution                                                                    (4.5 P10 to P13, P22, P35; 5.4, 6.2)
 *   - a softmax or norm over something larger than `resident` reads it again for each statistic
 *   - a program input or output of `resident` bytes or more is tiled; on H13 and H14 tiling does not overlap with
 *     arithmetic, so the two times add                                                      (4.5 P7 to P9)
 * Energy is the power published for what a program waits for, one number each, times its latency. Sort and texture
 * operations have no published rows: their counts are nominal. Nothing here models attention beyond its two products
 * and a softmax, nor Winograd. Use the result to rank, not to promise. */
#include "target/target_int.h"

static double out_elems(const op_inst *op)
{
    double n = 0;
    for (int i = 0; i < op->n_out; i++) n += tensor_elems(&op->out[i]);
    return n;
}

static double in_elems(const op_inst *op, int i)
{
    const operand *x = inst_arg(op, i);
    return x ? tensor_elems(&x->type) : 0;
}

/* ---- flops by the cost column of ops.def ---- */

static double cost_none(const op_inst *op) { return (void)op, 0; }
static double cost_opaque(const op_inst *op) { return (void)op, 0; } /* nothing is known about it */

static double cost_conv(const op_inst *op)
{
    const operand *w = inst_arg(op, 1);
    double k = mac_depth(op);
    if (!w || isnan(k)) return 0;
    double bias = inst_arg(op, 2) ? out_elems(op) : 0;
    if (op->op != OP_CONV_TRANSPOSE) return 2 * out_elems(op) * k + bias;
    double taps = 1; /* transposed: every input element meets every tap of every output channel of its group */
    for (int i = 1; i < w->type.sh.rank; i++) taps *= (double)w->type.sh.d[i];
    return 2 * in_elems(op, 0) * taps + bias;
}

static double cost_gemm(const op_inst *op)
{
    double k = mac_depth(op);
    return isnan(k) ? 0 : 2 * out_elems(op) * k + (op->op == OP_LINEAR && inst_arg(op, 2) ? out_elems(op) : 0);
}

static double cost_sdpa(const op_inst *op)
{
    const operand *q = inst_arg(op, 0), *k = inst_arg(op, 1), *v = inst_arg(op, 2);
    if (!q || !k || !v || q->type.sh.rank < 2 || dim_back(&q->type.sh, 0) < 1) return 0;
    double scores = tensor_elems(&q->type) / (double)dim_back(&q->type.sh, 0) * (double)dim_back(&k->type.sh, 1);
    return scores * (2 * (double)dim_back(&q->type.sh, 0) + 2 * (double)dim_back(&v->type.sh, 0) + 5 +
                     (inst_arg(op, 3) ? 1 : 0));
}

static double cost_pool(const op_inst *op)
{
    const attr *a = attr_get(op->attrs, op->n_attr, A_KERNEL_SIZES);
    double window = 1;
    for (int i = 0; a && i < a->n; i++) window *= (double)a->u.is[i];
    return out_elems(op) * window;
}

static double cost_eltwise(const op_inst *op) { return out_elems(op); }
static double cost_table(const op_inst *op) { return 2 * out_elems(op); } /* slope * x + intercept */
static double cost_norm(const op_inst *op) { return (op->op == OP_BATCH_NORM ? 2 : 8) * out_elems(op); }
static double cost_softmax(const op_inst *op) { return 5 * out_elems(op); } /* max, sub, exp, sum, divide */
static double cost_reduce(const op_inst *op) { return in_elems(op, 0); }
static double cost_move(const op_inst *op) { return (void)op, 0; }
static double cost_gather(const op_inst *op) { return (void)op, 0; }
static double cost_texture(const op_inst *op) { return 7 * out_elems(op); } /* bilinear: four taps, three lerps */

static double cost_sort(const op_inst *op)
{
    double n = in_elems(op, 0);
    return n > 1 ? n * log2(n) : 0;
}

static double cost_constexpr(const op_inst *op) { return (void)op, 0; } /* done on the weight path */

static double (*const flops_of[OP_COUNT])(const op_inst *) = {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) [OP_##id] = cost_##cost,
#include "op/ops.def"
#undef OP
};

/* An operation nobody checked may have attributes that make no sense; its count is 0, not negative. */
static double flops(const op_inst *op)
{
    double f = flops_of[op->op](op);
    return f > 0 ? f : 0;
}

/* ---- bytes ---- */

static bool is_alias(op_id op) /* the same bytes under another shape */
{
    return op == OP_IDENTITY || op == OP_RESHAPE || op == OP_RESHAPE_LIKE || op == OP_EXPAND_DIMS || op == OP_SQUEEZE ||
           op == OP_FLATTEN2D;
}

/* Does this weight form travel as stored, or as the dense fp16 it stands for? */
static bool streams(const chip *c, op_id op)
{
    switch (op) {
    case OP_CX_AFFINE: return col(c, COL_f_stream_int8) > 0;
    case OP_CX_LUT: return col(c, COL_f_palette) > 0;
    case OP_CX_SPARSE: return col(c, COL_f_kernel_stream) > 0;
    default: return col(c, COL_f_stream_block) > 0;
    }
}

/* Constants travel as fp16 whatever float they were written in. Those made by a constexpr form are counted at that
 * form. */
static double const_bytes(const operand *x)
{
    if (!x->present || !x->is_const || is_constexpr(x->from)) return 0;
    return tensor_elems(&x->type) * MIN(dtype_bits(x->type.dt), 16) / 8;
}

static double weights_of(const chip *c, const op_inst *op)
{
    double b = 0;
    if (is_constexpr(op->op) && !streams(c, op->op)) return op->n_out ? tensor_elems(&op->out[op->n_out - 1]) * 2 : 0;
    for (int i = 0; i < op->n_in; i++) b += const_bytes(&op->in[i]);
    return b;
}

static double activations_of(const op_inst *op)
{
    double b = 0;
    if (is_alias(op->op) || kind_of(op->op) == KIND_none || is_constexpr(op->op)) return 0;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].present && !op->in[i].is_const) b += tensor_bytes(&op->in[i].type);
    for (int i = 0; i < op->n_out; i++) b += tensor_bytes(&op->out[i]);
    return b;
}

/* ---- rates ---- */

static bool both_int8(const op_inst *op)
{
    const operand *x = inst_arg(op, 0), *w = inst_arg(op, 1);
    if (!x || !w) return false;
    bool w8 = w->from == OP_CX_AFFINE || w->from == OP_DEQUANTIZE || dtype_bits(w->type.dt) == 8;
    return w8 && (x->from == OP_DEQUANTIZE || dtype_bits(x->type.dt) == 8);
}

static double alone_rate(const chip *c, const op_inst *op)
{
    op_kind k = kind_of(op->op);
    double r = col(c, k == KIND_gemm || k == KIND_sdpa ? COL_peak_gemm : COL_peak_fit);
    return is_mac(op->op) && both_int8(op) ? r * col(c, COL_int8_rate) : r;
}

static double fed_rate(const chip *c, const op_inst *op) /* operands already on chip */
{
    if (!is_mac(op->op)) return col(c, COL_peak_fit);
    return col(c, COL_peak_slope) * (both_int8(op) ? col(c, COL_int8_rate) : 1);
}

static double weight_rate(const chip *c, const op_inst *op, bool alone, double bytes)
{
    if (col(c, COL_f_shared_kmem) > 0 || !alone) return col(c, COL_bw_weight);
    return kind_of(op->op) == KIND_gemm && bytes >= col(c, COL_weight_step) ? col(c, COL_bw_weight)
                                                                            : col(c, COL_bw_fit);
}

op_cost cost_op(const chip *c, const op_inst *op)
{
    double w = weights_of(c, op), act = activations_of(op), f = flops(op);
    return (op_cost){ .flops = f, .bytes = act + w, .weight_bytes = w, .compute_us = f / alone_rate(c, op) * 1e6,
                      .memory_us = (act / col(c, COL_bw_fit) + w / weight_rate(c, op, is_mac(op->op), w)) * 1e6 };
}

/* ---- programs ---- */

static bool reads_input(const op_inst *op)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].present && op->in[i].is_input) return true;
    return false;
}

/* An elementwise step with one live operand nobody else reads rides on the operation before it. */
static bool rides(const op_inst *op)
{
    op_kind k = kind_of(op->op);
    int live = 0;
    if (k != KIND_eltwise && k != KIND_table) return false;
    for (int i = 0; i < op->n_in; i++) {
        const operand *x = &op->in[i];
        if (!x->present || x->is_const) continue;
        if (x->is_input || x->n_uses > 1) return false;
        live++;
    }
    return live == 1;
}

/* Bytes of intermediates too large to stay: written once here, read once here. */
static double spilled(const chip *c, const op_inst *op)
{
    double b = 0, most = col(c, COL_resident);
    op_kind kind = kind_of(op->op);
    if (is_alias(op->op) || kind == KIND_none || is_constexpr(op->op) || rides(op)) return 0;
    if (op->op != OP_BATCH_NORM && in_elems(op, 0) * 2 >= most)
        b += in_elems(op, 0) * 2 * (kind == KIND_softmax ? 2 : kind == KIND_norm);
    for (int i = 0; i < op->n_in; i++) {
        const operand *x = &op->in[i];
        double n = x->present && !x->is_const && !x->is_input ? tensor_bytes(&x->type) : 0;
        if (n >= most) b += n;
    }
    for (int i = 0; i < op->n_out; i++) {
        double n = op->out_is_output && op->out_is_output[i] ? 0 : tensor_bytes(&op->out[i]);
        if (n >= most) b += n;
    }
    return b;
}

/* Program inputs and outputs this operation touches, if one of them has to be tiled. */
static double tiled_ports(const chip *c, const op_inst *op)
{
    double b = 0, most = 0;
    for (int i = 0; i < op->n_in; i++) {
        const operand *x = &op->in[i];
        double n = x->present && !x->is_const && x->is_input ? tensor_bytes(&x->type) : 0;
        b += n, most = fmax(most, n);
    }
    for (int i = 0; i < op->n_out; i++) {
        double n = op->out_is_output && op->out_is_output[i] ? tensor_bytes(&op->out[i]) : 0;
        b += n, most = fmax(most, n);
    }
    return most >= col(c, COL_resident) ? b : 0;
}

static double largest_step(const prog_view *p) /* operands and results of the widest operation */
{
    double most = 0;
    for (size_t i = 1; i < p->n_ops; i++) most = fmax(most, activations_of(&p->ops[i]));
    return most;
}

prog_cost cost_program(const chip *c, const prog_view *p)
{
    prog_cost t = { .floor_us = col(c, COL_t0_us) };
    double compute = 0, io = 0, weight_s = 0, spill = 0, serial = 0, pending = 0;
    for (size_t i = 1; i < p->n_ops; i++) {
        const op_inst *op = &p->ops[i];
        double w = weights_of(c, op), f = flops(op);
        bool mac = is_mac(op->op), alone = mac && reads_input(op);
        t.flops += f;
        if (mac && both_int8(op)) t.int8_flops += f;
        t.weight_bytes += w;
        if (is_constexpr(op->op)) {
            pending += w; /* travels with the operation that uses it */
            continue;
        }
        if (mac) w += pending, pending = 0;
        double busy = f / (alone ? alone_rate(c, op) : fed_rate(c, op));
        compute += busy;
        weight_s += w / weight_rate(c, op, alone, w);
        spill += spilled(c, op);
        if (alone && !(col(c, COL_f_tile_overlap) > 0)) serial += fmin(busy, tiled_ports(c, op) / col(c, COL_bw_fit));
    }
    weight_s += pending / col(c, COL_bw_weight);
    for (size_t i = 0; i < p->n_in; i++) io += tensor_bytes(&p->in[i].type);
    for (size_t i = 0; i < p->n_out; i++) io += tensor_bytes(&p->out[i].type);

    double memory = io / col(c, COL_bw_fit) + weight_s + spill / col(c, COL_bw_dram);
    double work_us = (fmax(compute, memory) + serial) * 1e6;
    t.compute_us = compute * 1e6;
    t.memory_us = memory * 1e6;
    t.latency_us = t.floor_us + work_us;
    t.bytes = io + t.weight_bytes + spill;
    t.working_set = p->n_live_bytes ? (double)p->n_live_bytes : largest_step(p);
    t.over_budget = t.working_set > col(c, COL_resident);
    t.limit = work_us < t.floor_us ? BOUND_DISPATCH : memory >= compute ? BOUND_BANDWIDTH : BOUND_COMPUTE;
    t.energy_mj = cost_watts(c, &t) * t.latency_us / 1e3;
    return t;
}

double cost_watts(const chip *c, const prog_cost *t)
{
    if (t->limit == BOUND_COMPUTE) return col(c, 2 * t->int8_flops > t->flops ? COL_w_int8 : COL_w_compute);
    return col(c, t->limit == BOUND_DISPATCH ? COL_w_dispatch : COL_w_bandwidth);
}

double cost_placement_us(const chip *c, const prog_cost *t)
{
    return fmax(t->flops / col(c, COL_place_peak), t->bytes / col(c, COL_place_bw)) * 1e6;
}

double cost_after_idle_us(const chip *c, const prog_cost *t, double idle_s)
{
    enum { COLD_S = 5 }; /* where it was measured; where the one becomes the other was not */
    return t->latency_us + (idle_s >= COLD_S ? col(c, COL_cold_us) : idle_s >= 0.1 ? col(c, COL_wake_us) : 0);
}

const char *bound_name(bound b)
{
    static const char *const names[] = {
        [BOUND_DISPATCH] = "dispatch", [BOUND_BANDWIDTH] = "bandwidth", [BOUND_COMPUTE] = "compute"
    };
    return names[b];
}
