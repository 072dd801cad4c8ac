/* measure.c: the questions of measures.def that shapes, types and attributes answer.
 * In: one operation on one chip.  Out: a number, or NAN when the question does not apply. */
#include "base/plain.h"
#include "target/target_int.h"

static double yes(bool b) { return b ? 1 : 0; }

static const char *type_text(look *l, const ttype *t) /* into detail */
{
    strbuf b = { 0 };
    sb_ttype(&b, t);
    snprintf(l->detail, sizeof l->detail, "%s", b.at ? b.at : "");
    sb_free(&b);
    return l->detail;
}

static const ttype *arg_type(const look *l, int i)
{
    const operand *x = inst_arg(l->op, i);
    return x ? &x->type : NULL;
}

static bool made_of_constants(const look *l) { return l->op->op == OP_CONST || is_constexpr(l->op->op); }

/* ---- any operation ---- */

double m_present(look *l) { return l->op ? 1 : 0; }

/* A constant counts where it is read: the tables and scales of stored weights have two axes more than the weight and
 * are no tensors of the engine. */
double m_rank(look *l)
{
    double r = 0;
    if (l->op->op == OP_CONST) return NAN;
    for (int i = 0; i < l->op->n_out; i++) r = MAX(r, l->op->out[i].sh.rank);
    for (int i = 0; i < l->op->n_in && !is_constexpr(l->op->op); i++)
        if (l->op->in[i].present && l->op->in[i].is_const) r = MAX(r, l->op->in[i].type.sh.rank);
    return r;
}

static void put_chip_type(strbuf *b, const ttype *t, int64_t least)
{
    sb_printf(b, "tensor<%s,[", dtype_name(t->dt));
    for (int i = 0; i < t->sh.rank; i++) sb_printf(b, "%s%lld", i ? "," : "", (long long)MAX(t->sh.d[i], least));
    sb_puts(b, "]>");
}

/* Into detail, as the chips' compiler says it. */
static void wanted_type(look *l, const ttype *t)
{
    strbuf b = { 0 };
    sb_puts(&b, "Expected ");
    put_chip_type(&b, t, 1);
    sb_puts(&b, "; got ");
    put_chip_type(&b, t, 0);
    snprintf(l->detail, sizeof l->detail, "%s", b.at ? b.at : "");
    sb_free(&b);
}

double m_zero_dim(look *l)
{
    for (int i = 0; i < l->op->n_out; i++)
        for (int k = 0; k < l->op->out[i].sh.rank; k++)
            if (l->op->out[i].sh.d[k] == 0) return wanted_type(l, &l->op->out[i]), 1;
    return 0;
}

/* Speaks where an unknown extent enters, not at everything downstream of it. */
double m_symbolic(look *l)
{
    for (int i = 0; i < l->op->n_in; i++)
        if (l->op->in[i].present && !shape_known(&l->op->in[i].type.sh)) return 0;
    for (int i = 0; i < l->op->n_out; i++)
        if (!shape_known(&l->op->out[i].sh)) return type_text(l, &l->op->out[i]), 1;
    return 0;
}

static const char *const axis_name[] = { "width", "height", "channels", "depth", "batch" };

static const char *name_of_axis(int rank, int back)
{
    if (rank == 4 && back == 3) return "batch";
    return back < 5 ? axis_name[back] : "axis";
}

double m_extent(look *l)
{
    double most = NAN;
    /* a weight's axes are channels and kernel sides: they have rows of their own */
    if (made_of_constants(l)) return NAN;
    for (int i = 0; i < l->op->n_out; i++) {
        const shape *s = &l->op->out[i].sh;
        for (int k = 0; k < s->rank; k++) {
            if (s->rank >= 4 && k == 2) continue; /* counted from the end: the channel axis of N(D)CHW */
            double d = (double)dim_back(s, k);
            if (!(d > most) && !isnan(most)) continue;
            most = d;
            snprintf(l->detail, sizeof l->detail, "the %s of a rank-%d result",
                     s->rank >= 4 ? name_of_axis(s->rank, k) : "longest axis", s->rank);
        }
    }
    return most;
}

double m_channels(look *l)
{
    double most = NAN;
    if (made_of_constants(l)) return NAN;
    for (int i = 0; i < l->op->n_out; i++)
        if (l->op->out[i].sh.rank >= 4) most = fmax(most, (double)dim_back(&l->op->out[i].sh, 2));
    return most;
}

static bool computes(op_id op)
{
    op_kind k = kind_of(op);
    return op != OP_CAST && k != KIND_none && k != KIND_opaque && k != KIND_move && k != KIND_gather &&
           k != KIND_constexpr;
}

double m_fp32_math(look *l)
{
    if (!computes(l->op->op)) return NAN;
    for (int i = 0; i < l->op->n_out; i++)
        if (l->op->out[i].dt == DT_F32 || l->op->out[i].dt == DT_F64) return 1;
    return 0;
}

double m_u8_math(look *l)
{
    if (!computes(l->op->op) || l->op->op == OP_DEQUANTIZE) return NAN;
    const op_info *info = op_get(l->op->op);
    for (int i = l->op->n_in; i-- > 0;) { /* from the last: of add's two the chip names y */
        const operand *x = &l->op->in[i];
        if (!x->present || !x->is_input || x->type.dt != DT_U8) continue;
        size_t n = strlen(type_text(l, &x->type));
        snprintf(l->detail + n, sizeof l->detail - n, " as param %s",
                 info->n_in ? info->in[MIN(i, info->n_in - 1)].name : "?");
        return 1;
    }
    return 0;
}

/* ---- which operations exist ---- */

static const gate_row *gate_asked(const look *l)
{
    if (l->op->op == OP_INPUT || l->op->op == OP_CONST) return NULL;
    return gate_find(l->op->mil ? l->op->mil : op_get(l->op->op)->mil);
}

double m_gate_refused(look *l)
{
    const gate_row *r = gate_asked(l);
    if (!r || chip_family(l->c) >= r->from) return r ? 0 : NAN;
    l->fix = r->fix;
    if (r->from < 90) snprintf(l->detail, sizeof l->detail, ": it begins with family %d (H%d)", r->from, r->from + 11);
    else
        snprintf(l->detail, sizeof l->detail,
                 r->below == GATE_BRIDGE ? ": only hand-authored or internal layers have it"
                                         : ", nor on any other chip");
    return yes(r->below == GATE_NONE || r->kind == BRIDGE_REFUSE);
}

double m_gate_fallback(look *l)
{
    const gate_row *r = gate_asked(l);
    if (!r || chip_family(l->c) >= r->from) return r ? 0 : NAN;
    l->fix = r->fix;
    return yes(r->below == GATE_BRIDGE && r->kind == BRIDGE_WARN);
}

double m_gate_unknown(look *l)
{
    return l->op->op == OP_INPUT || l->op->op == OP_CONST ? NAN : yes(!gate_asked(l));
}

/* ---- how the text was written ---- */

double m_inline_args(look *l) { return yes(l->op->flags & INST_INLINE_ARG); }
double m_blob_data(look *l) { return yes(l->op->flags & INST_BLOB_DATA_OFFSET); }
double m_dynamic_attr(look *l) { return yes(l->op->flags & INST_DYNAMIC_ATTR); }

double m_passthrough(look *l)
{
    if (l->op->op != OP_INPUT && l->op->op != OP_CONST) return NAN;
    for (int i = 0; i < l->op->n_out; i++)
        if (l->op->out_is_output && l->op->out_is_output[i]) return 1;
    return 0;
}

double m_fan_in(look *l)
{
    double n = 0;
    for (int i = 0; i < l->op->n_in; i++) n += l->op->in[i].present && !l->op->in[i].is_const;
    return n;
}

/* ---- convolution ---- */

double m_conv_rank(look *l)
{
    const ttype *x = arg_type(l, 0);
    return x ? x->sh.rank : NAN;
}

static bool kernel(const look *l, int64_t *h, int64_t *w)
{
    const ttype *k = arg_type(l, 1);
    if (!k || k->sh.rank < 3 || !shape_known(&k->sh)) return false;
    *w = dim_back(&k->sh, 0);
    *h = k->sh.rank >= 4 ? dim_back(&k->sh, 1) : 1;
    return true;
}

double m_kernel_w(look *l)
{
    int64_t h, w;
    return kernel(l, &h, &w) ? (double)w : NAN;
}

double m_kernel_w_f16(look *l)
{
    const operand *k = inst_arg(l->op, 1);
    return k && k->type.dt == DT_F16 && !is_constexpr(k->from) ? m_kernel_w(l) : NAN;
}

double m_kernel_h(look *l)
{
    int64_t h, w;
    return kernel(l, &h, &w) ? (double)h : NAN;
}

double m_kernel_odd(look *l)
{
    int64_t h, w;
    if (!kernel(l, &h, &w)) return NAN;
    snprintf(l->detail, sizeof l->detail, "%lldx%lld", (long long)h, (long long)w);
    return yes((double)w > col(l->c, COL_kernel_w_small) && (w % 8 != 0 || (h > 1 && h % 8 != 0)));
}

double m_group_rest(look *l)
{
    const ttype *x = arg_type(l, 0), *w = arg_type(l, 1);
    int64_t g = inst_int(l->op, A_GROUPS);
    if (!x || !w || x->sh.rank < 3 || w->sh.rank != x->sh.rank || x->sh.d[1] < 0 || !shape_known(&w->sh)) return NAN;
    int64_t in = x->sh.d[1];
    if (g < 1) return snprintf(l->detail, sizeof l->detail, "groups %lld", (long long)g), 1;
    if (l->op->op == OP_CONV_TRANSPOSE) {
        snprintf(l->detail, sizeof l->detail, "%lld input channels in %lld groups", (long long)in, (long long)g);
        return yes(in % g != 0);
    }
    int64_t out = w->sh.d[0];
    if (out % g)
        return snprintf(l->detail, sizeof l->detail, "%lld output channels in %lld groups", (long long)out,
                        (long long)g),
               1;
    snprintf(l->detail, sizeof l->detail, "KernelChannels (%lld) != InputChannels (%lld) / Group (%lld)",
             (long long)w->sh.d[1], (long long)in, (long long)g);
    return yes(in % g != 0 || w->sh.d[1] * g != in);
}

/* Padding before and after each of n spatial axes; false when it is chosen by the compiler ("same"). */
static bool pads(const look *l, int n, int64_t *p)
{
    const char *type = attr_str(l->op->op, l->op->attrs, l->op->n_attr, A_PAD_TYPE);
    for (int i = 0; i < 2 * n; i++) p[i] = 0;
    if (!strcmp(type, "custom")) return inst_ints(l->op, A_PAD, 2 * n, p);
    return !strcmp(type, "valid");
}

static double room(look *l, const ttype *x, int n, const int64_t *size, const int64_t *dil)
{
    int64_t p[2 * MAX_RANK];
    double least = NAN;
    if (n < 1 || x->sh.rank != n + 2 || !shape_known(&x->sh) || !pads(l, n, p)) return NAN;
    for (int i = 0; i < n; i++) {
        double r = (double)(x->sh.d[2 + i] + p[2 * i] + p[2 * i + 1]) - (double)((size[i] - 1) * dil[i] + 1);
        least = fmin(least, r);
    }
    plain_printf(l->detail, sizeof l->detail, "%g", -least);
    return least;
}

double m_kernel_room(look *l)
{
    const ttype *x = arg_type(l, 0), *w = arg_type(l, 1);
    int64_t dil[MAX_RANK];
    if (!x || !w || w->sh.rank != x->sh.rank || !shape_known(&w->sh)) return NAN;
    int n = x->sh.rank - 2;
    return n > 0 && inst_ints(l->op, A_DILATIONS, n, dil) ? room(l, x, n, w->sh.d + 2, dil) : NAN;
}

static double longest(const look *l, attr_id id)
{
    const attr *a = attr_get(l->op->attrs, l->op->n_attr, id);
    double most = NAN;
    for (int i = 0; a && i < a->n; i++) most = fmax(most, (double)a->u.is[i]);
    return most;
}

double m_dilation(look *l) { return longest(l, A_DILATIONS); }

double m_padding(look *l)
{
    const char *type = attr_str(l->op->op, l->op->attrs, l->op->n_attr, A_PAD_TYPE);
    return strcmp(type, "custom") ? NAN : longest(l, A_PAD);
}

static bool weight_moves(const look *l)
{
    const operand *w = inst_arg(l->op, 1);
    return w && !w->is_const;
}

double m_dyn_weight_batch(look *l)
{
    const ttype *x = arg_type(l, 0);
    return weight_moves(l) && x && x->sh.rank >= 3 ? (double)x->sh.d[0] : NAN;
}

double m_dyn_weight(look *l)
{
    double n = m_dyn_weight_batch(l);
    return isnan(n) || n > 1 ? 0 : 1; /* more than 1 is refused by another row */
}

double m_has_bias(look *l) { return yes(inst_arg(l->op, 2) != NULL); }

double m_conv_cin(look *l)
{
    const ttype *x = arg_type(l, 0);
    return x && x->sh.rank >= 3 ? (double)x->sh.d[1] : NAN;
}

double m_conv_cout(look *l) { return l->op->n_out && l->op->out[0].sh.rank >= 3 ? (double)l->op->out[0].sh.d[1] : NAN; }
double m_deconv_stride(look *l) { return longest(l, A_STRIDES); }

double m_int_weight(look *l)
{
    const operand *w = inst_arg(l->op, 1);
    if (!w || !w->is_const || is_constexpr(w->from)) return NAN;
    type_text(l, &w->type);
    return yes(!dtype_is_float(w->type.dt));
}

double m_f32_weight(look *l)
{
    const operand *w = inst_arg(l->op, 1);
    return w && w->is_const ? yes(w->type.dt == DT_F32) : NAN;
}

/* ---- matrix product, attention ---- */

double m_matmul_rank(look *l)
{
    const ttype *x = arg_type(l, 0), *y = arg_type(l, 1);
    return x && y ? MAX(x->sh.rank, y->sh.rank) : NAN;
}

double m_linear_rank(look *l) { return m_conv_rank(l); }
double m_kmem_row(look *l) { return mac_depth(l->op) * 2; }

double m_weight_bytes(look *l)
{
    const operand *w = inst_arg(l->op, 1);
    return w && w->is_const ? tensor_elems(&w->type) * 2 : NAN; /* as it arrives: fp16 */
}

double m_matmul_const(look *l)
{
    const operand *x = inst_arg(l->op, 0), *y = inst_arg(l->op, 1);
    if (!x || !y || x->is_const == y->is_const) return 0;
    const shape *w = x->is_const ? &x->type.sh : &y->type.sh;
    for (int i = 2; i < w->rank; i++)
        if (dim_back(w, i) != 1) return 0; /* a batch of weights is not one convolution */
    return yes(w->rank >= 2);
}

double m_mac_terms(look *l) { return mac_depth(l->op); }
double m_sdpa_mask(look *l) { return yes(inst_arg(l->op, 3) != NULL); }

double m_sdpa_kv(look *l)
{
    const ttype *k = arg_type(l, 1), *v = arg_type(l, 2);
    if (!k || !v) return NAN;
    strbuf b = { 0 };
    sb_shape(&b, &k->sh);
    sb_puts(&b, " and ");
    sb_shape(&b, &v->sh);
    snprintf(l->detail, sizeof l->detail, "%s", b.at ? b.at : "");
    sb_free(&b);
    return yes(!shape_eq(&k->sh, &v->sh));
}

double m_sdpa_mask_type(look *l)
{
    const ttype *q = arg_type(l, 0), *m = arg_type(l, 3);
    if (!q || !m) return NAN;
    snprintf(l->detail, sizeof l->detail, "%s beside %s", dtype_name(m->dt), dtype_name(q->dt));
    return yes(m->dt != q->dt);
}

/* ---- pooling, reductions ---- */

static int window(const look *l, int64_t *k)
{
    const attr *a = attr_get(l->op->attrs, l->op->n_attr, A_KERNEL_SIZES);
    if (!a || a->n < 1 || a->n > MAX_RANK - 2) return 0;
    for (int i = 0; i < a->n; i++) k[i] = a->u.is[i];
    return a->n;
}

double m_pool_room(look *l)
{
    int64_t k[MAX_RANK], one[MAX_RANK] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    const ttype *x = arg_type(l, 0);
    int n = window(l, k);
    return x && n ? room(l, x, n, k, one) : NAN;
}

double m_pool_pad(look *l)
{
    int64_t k[MAX_RANK], p[2 * MAX_RANK];
    double least = NAN;
    int n = window(l, k);
    if (!n || !pads(l, n, p)) return NAN;
    for (int i = 0; i < n; i++) least = fmin(least, (double)(k[i] - MAX(p[2 * i], p[2 * i + 1])));
    return least;
}

double m_pool_window(look *l) { return longest(l, A_KERNEL_SIZES); }

double m_arg_axis(look *l)
{
    const ttype *x = arg_type(l, 0);
    int ax;
    return x && axis_norm(inst_int(l->op, A_AXIS), x->sh.rank, &ax) ? (double)x->sh.d[ax] : NAN;
}

double m_arg_whole(look *l)
{
    const ttype *x = arg_type(l, 0);
    return x ? yes(x->sh.rank == 1) : NAN; /* one axis and nothing kept is the whole tensor */
}

double m_lrn_channels(look *l)
{
    const ttype *x = arg_type(l, 0);
    return x && x->sh.rank >= 3 ? (double)dim_back(&x->sh, 2) : NAN;
}

double m_topk_k(look *l) { return l->op->flags & INST_DYNAMIC_ATTR ? NAN : (double)inst_int(l->op, A_K); }
double m_prelu_rank(look *l) { return m_conv_rank(l); }

/* ---- movement ---- */

double m_transpose_axis0(look *l)
{
    const ttype *x = arg_type(l, 0);
    int64_t p[MAX_RANK];
    return x && x->sh.rank == 5 && inst_ints(l->op, A_PERM, 5, p) ? yes(p[0] != 0 && p[0] != -5) : NAN;
}

double m_transpose_extent(look *l)
{
    const ttype *x = arg_type(l, 0);
    if (!x || !l->op->n_out || is_constexpr(l->op->in[0].from) || l->op->in[0].is_const) return NAN;
    double in = (double)MAX(dim_back(&x->sh, 0), dim_back(&x->sh, 1));
    return fmax(in, (double)MAX(dim_back(&l->op->out[0].sh, 0), dim_back(&l->op->out[0].sh, 1)));
}

double m_concat_inputs(look *l)
{
    double n = 0;
    for (int i = 0; i < l->op->n_in; i++) n += l->op->in[i].present;
    return n;
}

double m_concat_axis(look *l) { return (double)inst_int(l->op, A_AXIS); }

double m_concat_unlike(look *l)
{
    int ax;
    const ttype *a = arg_type(l, 0);
    if (!a || !axis_norm(inst_int(l->op, A_AXIS), a->sh.rank, &ax)) return NAN;
    for (int i = 1; i < l->op->n_in; i++) {
        const ttype *b = arg_type(l, i);
        for (int k = 0; b && k < a->sh.rank; k++)
            if (k != ax && (b->sh.rank != a->sh.rank || b->sh.d[k] != a->sh.d[k])) {
                snprintf(l->detail, sizeof l->detail, "input %d, axis %d", i, k);
                return 1;
            }
    }
    return 0;
}

double m_pad_channel(look *l)
{
    const ttype *x = arg_type(l, 0);
    const attr *a = attr_get(l->op->attrs, l->op->n_attr, A_PAD);
    if (!x || !a || a->n % 2 || a->n / 2 > x->sh.rank) return NAN;
    for (int i = 0; i < a->n; i++) {
        int axis = x->sh.rank - a->n / 2 + i / 2;
        if (a->u.is[i] && axis < x->sh.rank - 2)
            return snprintf(l->detail, sizeof l->detail, "axis %d of %d", axis, x->sh.rank), 1;
    }
    return 0;
}

double m_pad_reflect(look *l)
{
    const char *mode = attr_str(l->op->op, l->op->attrs, l->op->n_attr, A_MODE);
    snprintf(l->detail, sizeof l->detail, "%s", mode);
    return yes(!strcmp(mode, "reflect") || !strcmp(mode, "symmetric"));
}

double m_reshape_rank(look *l)
{
    const ttype *x = arg_type(l, 0);
    return x ? fmax(m_rank(l), x->sh.rank) : NAN;
}

static int64_t block_factor(const look *l)
{
    switch (l->op->op) {
    case OP_PIXEL_SHUFFLE: return inst_int(l->op, A_UPSCALE_FACTOR);
    case OP_PIXEL_UNSHUFFLE: return inst_int(l->op, A_DOWNSCALE_FACTOR);
    default: return inst_int(l->op, A_BLOCK_SIZE);
    }
}

double m_shuffle_factor(look *l) { return (double)block_factor(l); }

double m_shuffle_rest(look *l)
{
    const ttype *x = arg_type(l, 0);
    int64_t f = block_factor(l);
    if (!x || x->sh.rank < 3 || f < 1 || f > 1 << 20 || dim_back(&x->sh, 2) < 0) return NAN;
    snprintf(l->detail, sizeof l->detail, "%lld channels, factor %lld", (long long)dim_back(&x->sh, 2), (long long)f);
    return (double)(dim_back(&x->sh, 2) % (f * f));
}

static double rest_of(look *l, attr_id id)
{
    const attr *a = attr_get(l->op->attrs, l->op->n_attr, id);
    double rest = 1;
    for (int i = 0; a && i < a->n; i++) {
        int64_t f = a->u.is[i];
        if (f < 1) return snprintf(l->detail, sizeof l->detail, "%lld", (long long)f), 0;
        while (f % 2 == 0) f /= 2; /* 4 and 8 are powers of 2 */
        while (f % 3 == 0) f /= 3;
        if (f != 1)
            snprintf(l->detail, sizeof l->detail, "%lld has the factor %lld", (long long)a->u.is[i], (long long)f);
        rest *= (double)f;
    }
    return a ? rest : NAN;
}

double m_block_rest(look *l) { return rest_of(l, A_BLOCK_SHAPE); }
double m_tile_rest(look *l) { return rest_of(l, A_REPS); }

double m_batch_rest(look *l)
{
    const ttype *x = arg_type(l, 0);
    int64_t f[2];
    if (!x || x->sh.rank < 1 || x->sh.d[0] < 0 || !inst_ints(l->op, A_BLOCK_SHAPE, 2, f) || f[0] < 1 || f[1] < 1)
        return NAN;
    snprintf(l->detail, sizeof l->detail, "n = %lld, factors %lld * %lld", (long long)x->sh.d[0], (long long)f[0],
             (long long)f[1]);
    return fmod((double)x->sh.d[0], (double)f[0] * (double)f[1]);
}

double m_depth_bcast(look *l)
{
    if (!l->op->n_out || l->op->out[0].sh.rank != 5) return NAN;
    int64_t depth = dim_back(&l->op->out[0].sh, 3);
    for (int i = 0; i < 2; i++) {
        const ttype *x = arg_type(l, i);
        if (x && tensor_elems(x) > 1 && dim_back(&x->sh, 3) == 1 && depth > 1)
            return snprintf(l->detail, sizeof l->detail, "1 to %lld", (long long)depth), 1;
    }
    return 0;
}

double m_gather_outside(look *l)
{
    const operand *x = inst_arg(l->op, 0), *ix = inst_arg(l->op, 1);
    if (!x || !ix || ix->is_const || x->is_const) return NAN; /* constant indices become slices */
    const shape *s = &x->type.sh, *k = &ix->type.sh;
    bool in = s->rank >= 4 && s->d[0] == 1 && (s->rank < 5 || s->d[1] == 1) && k->rank >= 3 && dim_back(k, 2) == 3 &&
              dim_back(k, 0) == 1;
    return yes(!in);
}

/* ---- types and weights ---- */

double m_cast_int(look *l)
{
    const operand *x = inst_arg(l->op, 0);
    return x && !x->is_const && l->op->n_out ? yes(l->op->out[0].dt == DT_I32) : NAN;
}

double m_quant_e4m3(look *l) { return l->op->n_out ? yes(l->op->out[0].dt == DT_E4M3) : NAN; }
double m_quant_e4m3_zero(look *l) { return m_quant_e4m3(l) == 1 ? yes(inst_arg(l->op, 2) != NULL) : NAN; }

double m_palette_bits(look *l)
{
    const ttype *ix = arg_type(l, 0), *lut = arg_type(l, 1);
    if (!ix || !lut) return NAN;
    if (lut->sh.rank > 1) return dtype_bits(ix->dt);
    double n = tensor_elems(lut); /* the older form packs indices into bytes: the table's length tells their width */
    return n >= 1 ? ceil(log2(n)) : NAN;
}

double m_palette_vector(look *l)
{
    const ttype *ix = arg_type(l, 0), *lut = arg_type(l, 1);
    if (!ix || !lut) return NAN;
    return lut->sh.rank == ix->sh.rank + 2 && lut->sh.rank > 1 ? (double)dim_back(&lut->sh, 0) : 1;
}

double m_sparse_density(look *l)
{
    const ttype *kept = arg_type(l, 0);
    double all = l->op->n_out ? tensor_elems(&l->op->out[0]) : 0;
    return kept && all > 0 ? tensor_elems(kept) / all : NAN;
}

double m_no_stream(look *l)
{
    const operand *w = inst_arg(l->op, 1);
    if (!w || !is_constexpr(w->from)) return NAN;
    return yes(m_deconv_stride(l) > 1 || m_dilation(l) > 1);
}

/* ---- image, random ---- */

double m_coord_channels(look *l)
{
    const ttype *x = arg_type(l, 1);
    return x && x->sh.rank ? (double)dim_back(&x->sh, 0) : NAN;
}

double m_affine_coefs(look *l)
{
    const ttype *x = arg_type(l, 1);
    if (!x || !x->sh.rank) return NAN;
    return (double)(x->sh.rank == 3 ? dim_back(&x->sh, 0) * dim_back(&x->sh, 1) : dim_back(&x->sh, 0));
}

double m_random_span(look *l)
{
    return attr_float(l->op->op, l->op->attrs, l->op->n_attr, A_HIGH) -
           attr_float(l->op->op, l->op->attrs, l->op->n_attr, A_LOW);
}
