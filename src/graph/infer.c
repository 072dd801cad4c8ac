/* infer.c: the shape and element type of an operation's results. In: operand types and attributes, from anyone.
 * Out: result types by the op table's rules, or a message that names the op, the value seen and the value wanted.
 * What every op has in common is checked here once: operand counts, attribute kinds, the words a string attribute
 * may be, the least value an integer may have, and the size of the result. */
#include <math.h>

#include "base/plain.h"
#include "graph/infer_int.h"

static infer_fn *const shape_rule[OP_COUNT] = {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) [OP_##id] = infer_##shape,
#include "op/ops.def"
#undef OP
};

static infer_fn *const type_rule[OP_COUNT] = {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) [OP_##id] = type_##dtype,
#include "op/ops.def"
#undef OP
};

/* The words a string attribute may be. OP_COUNT: for every op that has the attribute and no row of its own above. */
static const struct {
    op_id op;
    attr_id at;
    const char *words; /* blank-separated */
} choices[] = {
    { OP_CONV_TRANSPOSE, A_PAD_TYPE, "valid same custom" },
    { OP_COUNT, A_PAD_TYPE, "valid same same_lower custom" },
    { OP_GELU, A_MODE, "EXACT TANH_APPROXIMATION SIGMOID_APPROXIMATION" },
    { OP_PAD, A_MODE, "constant reflect replicate symmetric" },
    { OP_SCATTER, A_MODE, "add update" },
    { OP_RESIZE, A_MODE, "LINEAR NEAREST_NEIGHBOR" },
    { OP_NE_POOL, A_MODE, "avg max min l1 l2" },
    { OP_PE_POOL, A_MODE, "avg max min l1 l2" },
    { OP_PE_ELEMENTWISE, A_MODE, "add sub mul div pow max min" },
    { OP_RESAMPLE, A_SAMPLING_MODE, "bilinear nearest" },
    { OP_AFFINE, A_SAMPLING_MODE, "bilinear" },
    { OP_COUNT, A_SAMPLING_MODE, "DEFAULT STRICT_ALIGN_CORNERS ALIGN_CORNERS OFFSET_CORNERS UNALIGN_CORNERS" },
    { OP_AFFINE, A_PADDING_MODE, "constant" },
    { OP_COUNT, A_PADDING_MODE, "constant border reflection symmetric" },
    { OP_COUNT, A_COORDINATES_MODE, "unnormalized normalized_minus_one_to_one normalized_zero_to_one" },
    { OP_COUNT, A_BOX_COORDINATE_MODE,
      "CORNERS_HEIGHT_FIRST CORNERS_WIDTH_FIRST CENTER_SIZE_HEIGHT_FIRST CENTER_SIZE_WIDTH_FIRST" },
};

/* The least value of an attribute: of every entry, where it is a list. */
static const struct {
    attr_id at;
    int64_t min;
} least[] = {
    { A_GROUPS, 1 },       { A_STRIDES, 1 },       { A_DILATIONS, 1 },      { A_KERNEL_SIZES, 1 },
    { A_BLOCK_SIZE, 1 },   { A_BLOCK_SHAPE, 1 },   { A_UPSCALE_FACTOR, 1 }, { A_DOWNSCALE_FACTOR, 1 },
    { A_NUM_SPLITS, 1 },   { A_SPLIT_SIZES, 1 },   { A_REPS, 1 },           { A_OUTPUT_HEIGHT, 1 },
    { A_OUTPUT_WIDTH, 1 }, { A_TARGET_HEIGHT, 1 }, { A_TARGET_WIDTH, 1 },   { A_TARGET_SIZE_HEIGHT, 1 },
    { A_TARGET_SIZE_WIDTH, 1 }, { A_OUTPUT_SHAPE, 1 }, { A_PAD, 0 },        { A_PADDINGS, 0 },
    { A_CROPS, 0 },        { A_CROP_HEIGHT, 0 },   { A_CROP_WIDTH, 0 },     { A_BATCH_DIMS, 0 },
};

/* ---- messages ---- */

an_status infer_fail(infer *c, const char *fmt, ...)
{
    char text[sizeof c->d->msg];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return diag_fail(c->d, AN_INPUT, NOWHERE, "%s: %s", c->info->mil, text);
}

static void show_dims(shown *o, size_t n, const shape *s)
{
    for (int i = 0; i <= s->rank && n < sizeof o->s; i++) {
        char part[32];
        if (i == s->rank) snprintf(part, sizeof part, s->rank ? "]" : "[]");
        else if (s->d[i] < 0) snprintf(part, sizeof part, "%s?", i ? ", " : "[");
        else snprintf(part, sizeof part, "%s%lld", i ? ", " : "[", (long long)s->d[i]);
        size_t len = strlen(part);
        if (n + len >= sizeof o->s - 4) {
            memcpy(o->s + n, "...", 4);
            return;
        }
        memcpy(o->s + n, part, len + 1);
        n += len;
    }
}

shown show_type(const ttype *t)
{
    shown o = { { 0 } };
    size_t n = strlen(dtype_name(t->dt));
    memcpy(o.s, dtype_name(t->dt), n + 1);
    show_dims(&o, n, &t->sh);
    return o;
}

/* As the chips' compiler writes it, no dimension below `floor_at`. */
static shown chip_type(const ttype *t, int64_t floor_at)
{
    shown o = { { 0 } };
    size_t n = (size_t)snprintf(o.s, sizeof o.s, "tensor<%s,[", dtype_name(t->dt));
    for (int i = 0; i < t->sh.rank && n < sizeof o.s; i++)
        n += (size_t)snprintf(o.s + n, sizeof o.s - n, "%s%lld", i ? "," : "", (long long)MAX(t->sh.d[i], floor_at));
    if (n < sizeof o.s) snprintf(o.s + n, sizeof o.s - n, "]>");
    return o;
}

shown show_shape(const shape *s)
{
    shown o = { { 0 } };
    show_dims(&o, 0, s);
    return o;
}

/* ---- operands ---- */

const char *operand_name(const infer *c, int i)
{
    return c->info->n_in ? c->info->in[MIN(i, c->info->n_in - 1)].name : "?";
}

an_status need_rank(infer *c, int i, int lo, int hi)
{
    int r = sh(c, i)->rank;
    if (r >= lo && r <= hi) return AN_OK;
    if (lo == hi)
        return infer_fail(c, "%s is %s: rank %d, wanted %d", operand_name(c, i), show_type(&c->in[i]).s, r, lo);
    return infer_fail(c, "%s is %s: rank %d, wanted %d to %d", operand_name(c, i), show_type(&c->in[i]).s, r, lo, hi);
}

an_status need_vector(infer *c, int i, int64_t extent, const char *of)
{
    const shape *s = sh(c, i);
    if (s->rank == 1 && dim_agree(s->d[0], extent)) return AN_OK;
    return infer_fail(c, "%s is %s, wanted one value for each of the %lld %s", operand_name(c, i),
                      show_type(&c->in[i]).s, (long long)extent, of);
}

/* ---- attributes ---- */

an_status get_list(infer *c, attr_id a, int want, int64_t *out)
{
    if (attr_list(c->op, c->at, c->n_at, a, want, out)) return AN_OK;
    const attr *at = attr_get(c->at, c->n_at, a);
    return infer_fail(c, "%s has %d entries, wanted %d", attr_name(a), at ? at->n : 0, want);
}

an_status get_some(infer *c, attr_id a, int max, int *n, int64_t *out)
{
    const attr *at = attr_get(c->at, c->n_at, a);
    *n = at ? at->n : 0;
    if (*n < 1 || *n > max) return infer_fail(c, "%s has %d entries, wanted 1 to %d", attr_name(a), *n, max);
    for (int i = 0; i < *n; i++) out[i] = at->u.is[i];
    return AN_OK;
}

an_status get_axis(infer *c, attr_id a, int rank, int *axis)
{
    int64_t x = get_int(c, a);
    if (axis_norm(x, rank, axis)) return AN_OK;
    return infer_fail(c, "%s %lld is outside a tensor of rank %d", attr_name(a), (long long)x, rank);
}

an_status get_axes(infer *c, attr_id a, int rank, unsigned *set)
{
    int n;
    int64_t x[MAX_RANK];
    *set = 0;
    TRY(get_some(c, a, MAX_RANK, &n, x));
    for (int i = 0; i < n; i++) {
        int axis;
        if (!axis_norm(x[i], rank, &axis))
            return infer_fail(c, "%s entry %lld is outside a tensor of rank %d", attr_name(a), (long long)x[i], rank);
        if (*set & 1u << axis) return infer_fail(c, "%s names dimension %d twice", attr_name(a), axis);
        *set |= 1u << axis;
    }
    return AN_OK;
}

an_status need_min(infer *c, attr_id a, const int64_t *x, int n, int64_t min)
{
    for (int i = 0; i < n; i++)
        if (x[i] < min)
            return infer_fail(c, "%s has %lld, wanted at least %lld", attr_name(a), (long long)x[i], (long long)min);
    return AN_OK;
}

/* ---- extents ---- */

an_status dim_mul(infer *c, int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0) return *out = DIM_UNKNOWN, AN_OK;
    if (mul_i64(a, b, out) && *out <= EXTENT_MAX) return AN_OK;
    return infer_fail(c, "an extent of %lld times %lld is too large", (long long)a, (long long)b);
}

bool dims_agree(const shape *a, const shape *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (!dim_agree(a->d[i], b->d[i])) return false;
    return true;
}

bool broadcast_dims(const shape *a, const shape *b, shape *out)
{
    shape o = { .rank = MAX(a->rank, b->rank) };
    for (int i = 1; i <= o.rank; i++) {
        int64_t x = i <= a->rank ? a->d[a->rank - i] : 1, y = i <= b->rank ? b->d[b->rank - i] : 1;
        if (x > 1 && y > 1 && x != y) return false;
        /* An unknown extent beside a known one greater than 1 must turn out to be 1 or that one. */
        o.d[o.rank - i] = x == 1 ? y : y == 1 ? x : MAX(x, y);
    }
    *out = o;
    return true;
}

an_status put_shape(infer *c, const shape *s)
{
    if (c->n_out < c->max_out) c->out[c->n_out].sh = *s;
    c->n_out++;
    return AN_OK;
}

/* ---- what every op has in common ---- */

/* The values kept of a sparse weight: a weight that is all zero keeps none. */
static bool may_be_empty(op_id op, int which)
{
    return (op == OP_CX_SPARSE && which == 0) || (op == OP_CX_SPARSE_BLOCK && which == 1);
}

static an_status check_operands(infer *c)
{
    bool list = c->info->n_in && c->info->in[c->info->n_in - 1].list;
    if (list ? c->n_in < c->info->n_in : c->n_in > c->info->n_in)
        return infer_fail(c, "takes %s%d operands, %d given", list ? "at least " : "", c->info->n_in, c->n_in);
    for (int i = 0; i < MAX(c->n_in, c->info->n_in); i++) {
        if (!has(c, i)) {
            if (c->info->in[MIN(i, c->info->n_in - 1)].optional) continue;
            return infer_fail(c, "operand %s is missing", operand_name(c, i));
        }
        const shape *s = sh(c, i);
        if (c->in[i].dt >= DT_COUNT || s->rank < 0 || s->rank > MAX_RANK)
            return infer_fail(c, "operand %s has rank %d, wanted 0 to %d", operand_name(c, i), s->rank, MAX_RANK);
        if (c->in[i].dt == DT_STRING)
            return infer_fail(c, "operand %s is a string, wanted a tensor", operand_name(c, i));
        for (int k = 0; k < s->rank; k++)
            if (s->d[k] < (may_be_empty(c->op, i) ? 0 : 1) && s->d[k] != DIM_UNKNOWN)
                return infer_fail(c, "%s is %s: dimension %d has no elements: Expected %s; got %s", operand_name(c, i),
                                  show_type(&c->in[i]).s, k, chip_type(&c->in[i], 1).s,
                                  chip_type(&c->in[i], 0).s); /* the second half in the words of the chips' compiler */
            else if (s->d[k] > EXTENT_MAX)
                return infer_fail(c, "%s is %s: dimension %d is too large", operand_name(c, i), show_type(&c->in[i]).s,
                                  k);
    }
    return AN_OK;
}

static bool word_in(const char *words, const char *w)
{
    size_t n = strlen(w);
    for (const char *p = words; *p;) {
        size_t len = strcspn(p, " ");
        if (len == n && !memcmp(p, w, n)) return true;
        p += len + (p[len] == ' ');
    }
    return false;
}

static an_status check_word(infer *c, const attr *a)
{
    if (!a->u.s) return infer_fail(c, "attribute %s has no text", attr_name(a->id));
    for (size_t i = 0; i < COUNT(choices); i++) {
        if (choices[i].at != a->id || (choices[i].op != OP_COUNT && choices[i].op != c->op)) continue;
        if (word_in(choices[i].words, a->u.s)) return AN_OK;
        return infer_fail(c, "%s is \"%.40s\", wanted one of: %s", attr_name(a->id), a->u.s, choices[i].words);
    }
    return AN_OK;
}

static an_status check_ints(infer *c, const attr *a, const int64_t *x, int n)
{
    /* Ends of slices and seeds may be any number; all others are extents, axes or counts. */
    bool any = a->id == A_SEED || a->id == A_BEGIN || a->id == A_END || a->id == A_BEGINS || a->id == A_ENDS;
    for (int i = 0; i < n && !any; i++)
        if (x[i] > EXTENT_MAX || x[i] < -EXTENT_MAX)
            return infer_fail(c, "%s has %lld, which is too large", attr_name(a->id), (long long)x[i]);
    for (size_t i = 0; i < COUNT(least); i++)
        if (least[i].at == a->id) TRY(need_min(c, a->id, x, n, least[i].min));
    return AN_OK;
}

static an_status check_attr(infer *c, int i)
{
    const attr *a = &c->at[i];
    const attr_spec *s = a->id > A_NONE && a->id < A_COUNT ? op_attr_spec(c->op, a->id) : NULL;
    if (!s)
        return infer_fail(c, "has no attribute %s",
                          a->id > A_NONE && a->id < A_COUNT ? attr_name(a->id) : "of that number");
    if (attr_get(c->at, i, a->id)) return infer_fail(c, "attribute %s is given twice", attr_name(a->id));
    bool kind_ok = a->kind == s->kind || (s->kind == ATTR_BOOLS && a->kind == ATTR_INTS);
    if (!kind_ok) return infer_fail(c, "attribute %s has the wrong kind of value", attr_name(a->id));
    switch (s->kind) {
    case ATTR_STR: return check_word(c, a);
    case ATTR_INT: return check_ints(c, a, &a->u.i, 1);
    case ATTR_FLOAT:
        if (isnan(a->u.f)) return infer_fail(c, "%s is not a number", attr_name(a->id));
        if (a->id == A_EPSILON && a->u.f < 0) return infer_fail(c, "epsilon is %g, wanted 0 or more", a->u.f);
        return AN_OK;
    case ATTR_INTS:
    case ATTR_BOOLS:
        if (a->n < 0 || (a->n && !a->u.is)) return infer_fail(c, "attribute %s has no entries", attr_name(a->id));
        for (int k = 0; k < a->n && s->kind == ATTR_BOOLS; k++)
            if (a->u.is[k] != 0 && a->u.is[k] != 1)
                return infer_fail(c, "%s has %lld, wanted true or false", attr_name(a->id), (long long)a->u.is[k]);
        return check_ints(c, a, a->u.is, a->n);
    default: return AN_OK;
    }
}

static an_status check_attrs(infer *c)
{
    for (int i = 0; i < c->n_at; i++) TRY(check_attr(c, i));
    for (int i = 0; i < c->info->n_attr; i++)
        if (c->info->attr[i].required && !given(c, c->info->attr[i].id))
            return infer_fail(c, "attribute %s is missing", attr_name(c->info->attr[i].id));
    return AN_OK;
}

static an_status check_result(infer *c, int k)
{
    const ttype *t = &c->out[k];
    int64_t n;
    bool empty_ok = c->op == OP_CX_SPARSE_BLOCK && k == 1;
    for (int i = 0; i < t->sh.rank; i++)
        if (t->sh.d[i] > EXTENT_MAX || t->sh.d[i] < (empty_ok ? 0 : 1)) {
            if (t->sh.d[i] == DIM_UNKNOWN) continue;
            return infer_fail(c, "the result would be %s: dimension %d has %lld elements", show_type(t).s, i,
                              (long long)t->sh.d[i]);
        }
    if (shape_known(&t->sh) && !shape_elems(&t->sh, &n))
        return infer_fail(c, "the result %s has too many elements", show_type(t).s);
    return AN_OK;
}

an_status graph_infer(op_id op, const ttype *in, int n_in, const attr *attrs, int n_attr, ttype *out, int *n_out,
                      int max_out, diag *d)
{
    if (op < 0 || op >= OP_COUNT)
        return diag_fail(d, AN_BUG, NOWHERE, "operation number %d is outside the table", (int)op);
    infer c = { .op = op, .info = op_get(op), .in = in, .n_in = n_in, .at = attrs, .n_at = n_attr,
                .out = out, .max_out = max_out, .d = d };
    *n_out = 0;
    TRY(check_operands(&c));
    TRY(check_attrs(&c));
    TRY(shape_rule[op](&c));
    for (int i = 0; i < MIN(c.n_out, max_out); i++) out[i].dt = DT_NONE;
    TRY(type_rule[op](&c));
    for (int i = 0; i < MIN(c.n_out, max_out); i++) TRY(check_result(&c, i));
    *n_out = c.n_out;
    return AN_OK;
}
