/* infer_mac.c: shapes of sliding windows, matrix products and normalisations. */
#include "graph/infer_int.h"

/* ---- windows ---- */

typedef struct { /* one window over the spatial dimensions; lists are per spatial dimension */
    int n;
    int64_t kernel[MAX_RANK], stride[MAX_RANK], dilation[MAX_RANK], pad[2 * MAX_RANK];
} window;

static an_status read_window(infer *c, int n, window *w)
{
    w->n = n;
    TRY(get_list(c, A_STRIDES, n, w->stride));
    TRY(get_list(c, A_PAD, 2 * n, w->pad));
    if (op_attr_spec(c->op, A_DILATIONS)) return get_list(c, A_DILATIONS, n, w->dilation);
    for (int i = 0; i < n; i++) w->dilation[i] = 1;
    return AN_OK;
}

static an_status reach(infer *c, const window *w, int i, int64_t *out) /* extent of the dilated kernel */
{
    if (w->kernel[i] < 0) return infer_fail(c, "the kernel's extent along spatial dimension %d is not known", i);
    TRY(dim_mul(c, w->kernel[i] - 1, w->dilation[i], out));
    *out += 1;
    return AN_OK;
}

/* Windows that fit along spatial dimension i of extent x. */
static an_status window_count(infer *c, const window *w, int i, int64_t x, int64_t *out)
{
    const char *pad_type = get_str(c, A_PAD_TYPE);
    int64_t k, s = w->stride[i], before = w->pad[2 * i], after = w->pad[2 * i + 1];
    bool ceil_mode = get_bool(c, A_CEIL_MODE);
    TRY(reach(c, w, i, &k));
    if (x < 0) return *out = DIM_UNKNOWN, AN_OK;
    if (!strcmp(pad_type, "same") || !strcmp(pad_type, "same_lower")) {
        if (ceil_mode) return infer_fail(c, "ceil_mode is true with pad_type %s, wanted valid or custom", pad_type);
        return *out = (x + s - 1) / s, AN_OK;
    }
    if (!strcmp(pad_type, "valid")) before = after = 0;
    int64_t room = x + before + after - k;
    if (room < 0)
        return infer_fail(c, "x is %s: spatial dimension %d is %lld with padding, smaller than the kernel's reach %lld",
                          show_type(&c->in[0]).s, i, (long long)(x + before + after), (long long)k);
    *out = room / s + 1;
    if (ceil_mode && room % s) {
        int64_t start = *out * s; /* of one more window, which reads past the end */
        if (start < x + before) *out += 1;
        else if (before == 0 && after == 0)
            return infer_fail(c, "ceil_mode puts a window of spatial dimension %d wholly outside x", i);
    }
    return AN_OK;
}

static an_status check_groups(infer *c, int64_t channels, const char *what)
{
    int64_t groups = get_int(c, A_GROUPS);
    if (channels < 0) return infer_fail(c, "the number of %s channels is not known", what);
    if (channels % groups)
        return infer_fail(c, "%lld %s channels do not divide into %lld groups", (long long)channels, what,
                          (long long)groups);
    return AN_OK;
}

static an_status need_same_rank(infer *c, int a, int b)
{
    if (sh(c, a)->rank == sh(c, b)->rank) return AN_OK;
    return infer_fail(c, "%s is %s and %s is %s: ranks differ", operand_name(c, a), show_type(&c->in[a]).s,
                      operand_name(c, b), show_type(&c->in[b]).s);
}

an_status infer_conv(infer *c) /* weight [Cout, Cin / groups, kernel...] */
{
    TRY(need_rank(c, 0, 3, 5));
    TRY(need_same_rank(c, 0, 1));
    const shape *x = sh(c, 0), *w = sh(c, 1);
    int64_t groups = get_int(c, A_GROUPS);
    window win;
    TRY(read_window(c, x->rank - 2, &win));
    if (x->d[1] >= 0 && x->d[1] % groups) /* the second half in the words of the chips' compiler */
        return infer_fail(
            c,
            "%lld input channels do not divide into %lld groups: KernelChannels (%lld) != InputChannels (%lld) / Group (%lld)",
            (long long)x->d[1], (long long)groups, (long long)w->d[1], (long long)x->d[1], (long long)groups);
    TRY(check_groups(c, x->d[1], "input"));
    TRY(check_groups(c, w->d[0], "output"));
    if (!dim_agree(w->d[1], x->d[1] / groups))
        return infer_fail(
            c, "x is %s and weight is %s: weight reads %lld input channels, wanted %lld (%lld in %lld groups)",
            show_type(&c->in[0]).s, show_type(&c->in[1]).s, (long long)w->d[1], (long long)(x->d[1] / groups),
            (long long)x->d[1], (long long)groups);
    if (has(c, 2)) TRY(need_vector(c, 2, w->d[0], "output channels"));
    shape o = { .rank = x->rank, .d = { x->d[0], w->d[0] } };
    for (int i = 0; i < win.n; i++) {
        win.kernel[i] = w->d[2 + i];
        TRY(window_count(c, &win, i, x->d[2 + i], &o.d[2 + i]));
    }
    return put_shape(c, &o);
}

/* The extents that a convolution with this window maps to `places`: a stride leaves several, and output_shape says
 * which. */
static an_status check_extent(infer *c, const window *w, int i, int64_t places, const shape *want)
{
    const char *pad_type = get_str(c, A_PAD_TYPE);
    int64_t k, first, s = w->stride[i];
    if (places < 0 || want->d[2 + i] < 0) return AN_OK;
    TRY(reach(c, w, i, &k));
    TRY(dim_mul(c, places - 1, s, &first));
    first += !strcmp(pad_type, "same") ? 1 : k;
    if (!strcmp(pad_type, "custom")) first -= w->pad[2 * i] + w->pad[2 * i + 1];
    if (want->d[2 + i] >= first && want->d[2 + i] - first < s) return AN_OK;
    return infer_fail(
        c,
        "output_shape is %s: spatial dimension %d is %lld, wanted %lld to %lld, where windows have the %lld places of x",
        show_shape(want).s, i, (long long)want->d[2 + i], (long long)MAX(first, (int64_t)1), (long long)(first + s - 1),
        (long long)places);
}

an_status infer_conv_transpose(infer *c) /* weight [Cin, Cout / groups, kernel...] */
{
    TRY(need_rank(c, 0, 3, 5));
    TRY(need_same_rank(c, 0, 1));
    const shape *x = sh(c, 0), *w = sh(c, 1);
    const char *pad_type = get_str(c, A_PAD_TYPE);
    window win;
    TRY(read_window(c, x->rank - 2, &win));
    TRY(check_groups(c, x->d[1], "input"));
    if (!dim_agree(w->d[0], x->d[1]))
        return infer_fail(c, "x is %s and weight is %s: input channels %lld and %lld differ", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s, (long long)x->d[1], (long long)w->d[0]);
    shape o = { .rank = x->rank, .d = { x->d[0] } };
    TRY(dim_mul(c, w->d[1], get_int(c, A_GROUPS), &o.d[1]));
    if (has(c, 2)) TRY(need_vector(c, 2, o.d[1], "output channels"));
    for (int i = 0; i < win.n; i++) {
        int64_t full, k;
        win.kernel[i] = w->d[2 + i];
        TRY(reach(c, &win, i, &k));
        if (x->d[2 + i] < 0) {
            o.d[2 + i] = DIM_UNKNOWN;
            continue;
        }
        TRY(dim_mul(c, x->d[2 + i] - 1, win.stride[i], &full));
        full += k;
        if (!strcmp(pad_type, "same")) TRY(dim_mul(c, x->d[2 + i], win.stride[i], &full));
        if (!strcmp(pad_type, "custom")) full -= win.pad[2 * i] + win.pad[2 * i + 1];
        if (full < 1) return infer_fail(c, "padding leaves spatial dimension %d with extent %lld", i, (long long)full);
        o.d[2 + i] = full;
    }
    if (given(c, A_OUTPUT_SHAPE)) {
        shape want = { .rank = x->rank };
        TRY(get_list(c, A_OUTPUT_SHAPE, x->rank, want.d));
        if (!dim_agree(want.d[0], o.d[0]) || !dim_agree(want.d[1], o.d[1]))
            return infer_fail(c, "output_shape is %s, wanted it to start with %lld, %lld", show_shape(&want).s,
                              (long long)o.d[0], (long long)o.d[1]);
        for (int i = 0; i < win.n; i++) TRY(check_extent(c, &win, i, x->d[2 + i], &want));
        o = want;
    }
    return put_shape(c, &o);
}

an_status infer_pool(infer *c)
{
    TRY(need_rank(c, 0, 3, 5));
    const shape *x = sh(c, 0);
    window win;
    TRY(read_window(c, x->rank - 2, &win));
    TRY(get_list(c, A_KERNEL_SIZES, win.n, win.kernel));
    shape o = *x;
    for (int i = 0; i < win.n; i++) TRY(window_count(c, &win, i, x->d[2 + i], &o.d[2 + i]));
    return put_shape(c, &o);
}

/* ---- matrix products ---- */

an_status infer_linear(infer *c) /* weight [Dout, Din] */
{
    TRY(need_rank(c, 0, 1, MAX_RANK));
    TRY(need_rank(c, 1, 2, 2));
    shape o = *sh(c, 0);
    const shape *w = sh(c, 1);
    if (!dim_agree(o.d[o.rank - 1], w->d[1]))
        return infer_fail(c, "x is %s and weight is %s: inner extents %lld and %lld differ", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s, (long long)o.d[o.rank - 1], (long long)w->d[1]);
    if (has(c, 2)) TRY(need_vector(c, 2, w->d[0], "output features"));
    o.d[o.rank - 1] = w->d[0];
    return put_shape(c, &o);
}

static an_status oriented(infer *c, int i, attr_id a, shape *o) /* the operand with its transpose applied */
{
    *o = *sh(c, i);
    if (!get_bool(c, a)) return AN_OK;
    if (o->rank < 2)
        return infer_fail(c, "%s is true but %s is %s, wanted rank 2 or more", attr_name(a), operand_name(c, i),
                          show_type(&c->in[i]).s);
    int64_t t = o->d[o->rank - 1];
    o->d[o->rank - 1] = o->d[o->rank - 2];
    o->d[o->rank - 2] = t;
    return AN_OK;
}

an_status infer_matmul(infer *c)
{
    shape x, y, o;
    TRY(need_rank(c, 0, 1, MAX_RANK));
    TRY(need_rank(c, 1, 1, MAX_RANK));
    TRY(oriented(c, 0, A_TRANSPOSE_X, &x));
    TRY(oriented(c, 1, A_TRANSPOSE_Y, &y));
    bool row = x.rank == 1, col = y.rank == 1; /* a vector is a row on the left, a column on the right */
    if (row) x = SHAPE(1, x.d[0]);
    if (col) y = SHAPE(y.d[0], 1);
    int64_t kx = x.d[x.rank - 1], ky = y.d[y.rank - 2];
    if (!dim_agree(kx, ky))
        return infer_fail(c, "x is %s and y is %s: inner extents %lld and %lld differ", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s, (long long)kx, (long long)ky);
    shape bx = shape_of(x.d, x.rank - 2), by = shape_of(y.d, y.rank - 2);
    if (!broadcast_dims(&bx, &by, &o))
        return infer_fail(c, "x is %s and y is %s: batch extents %s and %s differ", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s, show_shape(&bx).s, show_shape(&by).s);
    if (!row) o.d[o.rank++] = x.d[x.rank - 2];
    if (!col) o.d[o.rank++] = y.d[y.rank - 1];
    return put_shape(c, &o);
}

/* "nchw,nwhu->nchu": a letter names an extent; letters missing on the right are summed over. */
an_status infer_einsum(infer *c)
{
    const char *eq = get_str(c, A_EQUATION), *p = eq;
    int64_t extent[128] = { 0 }; /* by letter; 0: not seen */
    if (c->n_in != 2) return infer_fail(c, "takes 2 operands, %d given", c->n_in);
    for (int i = 0; i < 2; i++) {
        const shape *x = sh(c, i);
        bool here[128] = { false };
        int k = 0;
        for (; (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z'); p++, k++) {
            int l = *p;
            if (here[l]) return infer_fail(c, "equation \"%.80s\" repeats %c within one operand", eq, l);
            here[l] = true;
            if (k >= x->rank) continue;
            if (extent[l] && !dim_agree(extent[l], x->d[k]))
                return infer_fail(c, "equation \"%.80s\": %c is both %lld and %lld", eq, l, (long long)extent[l],
                                  (long long)x->d[k]);
            extent[l] = extent[l] ? dim_known(extent[l], x->d[k]) : x->d[k];
        }
        if (k != x->rank)
            return infer_fail(c, "equation \"%.80s\" gives operand %d %d letters but it is %s", eq, i, k,
                              show_type(&c->in[i]).s);
        if (i == 0 ? *p != ',' : strncmp(p, "->", 2) != 0)
            return infer_fail(c, "equation \"%.80s\" has a wrong character at position %d, wanted the form ab,bc->ac",
                              eq, (int)(p - eq));
        p += i + 1;
    }
    shape o = { 0 };
    bool here[128] = { false };
    for (; *p; p++) {
        int l = (unsigned char)*p;
        if (l >= 128 || !extent[l] || here[l] || o.rank == MAX_RANK)
            return infer_fail(c,
                              "equation \"%.80s\": result letter at position %d is repeated, unknown or one too many",
                              eq, (int)(p - eq));
        here[l] = true;
        o.d[o.rank++] = extent[l];
    }
    return put_shape(c, &o);
}

an_status infer_sdpa(infer *c) /* query [.., L, E], key [.., S, E], value [.., S, V], attn_mask to [.., L, S] */
{
    for (int i = 0; i < 3; i++) {
        TRY(need_rank(c, i, 2, MAX_RANK));
        TRY(need_same_rank(c, 0, i));
    }
    const shape *q = sh(c, 0), *k = sh(c, 1), *v = sh(c, 2);
    int r = q->rank;
    if (!dim_agree(q->d[r - 1], k->d[r - 1]))
        return infer_fail(c, "query is %s and key is %s: inner extents %lld and %lld differ", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s, (long long)q->d[r - 1], (long long)k->d[r - 1]);
    if (!dim_agree(k->d[r - 2], v->d[r - 2]))
        return infer_fail(c, "key is %s and value is %s: lengths %lld and %lld differ", show_type(&c->in[1]).s,
                          show_type(&c->in[2]).s, (long long)k->d[r - 2], (long long)v->d[r - 2]);
    shape bq = shape_of(q->d, r - 2), bk = shape_of(k->d, r - 2), bv = shape_of(v->d, r - 2), o;
    if (!broadcast_dims(&bq, &bk, &o) || !broadcast_dims(&o, &bv, &o))
        return infer_fail(c, "query is %s, key is %s and value is %s: batch extents differ", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s, show_type(&c->in[2]).s);
    o.d[o.rank++] = q->d[r - 2];
    if (has(c, 3)) {
        shape score = o, both;
        score.d[score.rank++] = k->d[r - 2];
        if (!broadcast_dims(&score, sh(c, 3), &both) || !dims_agree(&both, &score))
            return infer_fail(c, "attn_mask is %s, wanted a shape that broadcasts to %s", show_type(&c->in[3]).s,
                              show_shape(&score).s);
    }
    o.d[o.rank++] = v->d[r - 1];
    return put_shape(c, &o);
}

/* ---- normalisation ---- */

an_status infer_channel_params(infer *c) /* x [N, C, ...]; every other operand [C] */
{
    TRY(need_rank(c, 0, 2, MAX_RANK));
    for (int i = 1; i < c->n_in; i++)
        if (has(c, i)) TRY(need_vector(c, i, sh(c, 0)->d[1], "channels"));
    return put_shape(c, sh(c, 0));
}

an_status infer_layer_norm(infer *c) /* gamma and beta have the extents of the normalised dimensions */
{
    const shape *x = sh(c, 0);
    unsigned set = (1u << x->rank) - 1;
    if (given(c, A_AXES)) TRY(get_axes(c, A_AXES, x->rank, &set));
    shape want = { 0 };
    for (int i = 0; i < x->rank; i++)
        if (set & 1u << i) want.d[want.rank++] = x->d[i];
    for (int i = 1; i < c->n_in; i++)
        if (has(c, i) && !dims_agree(sh(c, i), &want))
            return infer_fail(c, "%s is %s, wanted the normalised extents %s", operand_name(c, i),
                              show_type(&c->in[i]).s, show_shape(&want).s);
    return put_shape(c, x);
}
