/* infer_move.c: shapes of element-by-element work, reductions, and everything that only moves elements. */
#include "graph/infer_int.h"

an_status infer_given(infer *c) { return infer_fail(c, "its shape is stated, never inferred"); }

/* ---- element by element ---- */

an_status infer_same(infer *c) { return put_shape(c, sh(c, 0)); }

an_status infer_axis_same(infer *c)
{
    int axis;
    TRY(get_axis(c, A_AXIS, sh(c, 0)->rank, &axis));
    return put_shape(c, sh(c, 0));
}

an_status infer_axes_same(infer *c)
{
    unsigned set;
    if (given(c, A_AXES)) TRY(get_axes(c, A_AXES, sh(c, 0)->rank, &set));
    return put_shape(c, sh(c, 0));
}

an_status infer_broadcast(infer *c)
{
    shape o;
    if (!broadcast_dims(sh(c, 0), sh(c, 1), &o))
        return infer_fail(c, "x is %s and y is %s: shapes do not broadcast", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s);
    return put_shape(c, &o);
}

an_status infer_select(infer *c)
{
    shape o;
    if (!broadcast_dims(sh(c, 1), sh(c, 2), &o) || !broadcast_dims(&o, sh(c, 0), &o))
        return infer_fail(c, "cond is %s, a is %s and b is %s: shapes do not broadcast", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s, show_type(&c->in[2]).s);
    return put_shape(c, &o);
}

an_status infer_state_write(infer *c)
{
    if (!dims_agree(sh(c, 0), sh(c, 1)))
        return infer_fail(c, "input is %s and data is %s: shapes differ", show_type(&c->in[0]).s,
                          show_type(&c->in[1]).s);
    return put_shape(c, sh(c, 0));
}

an_status infer_fill(infer *c)
{
    shape o = { 0 };
    const attr *a = attr_get(c->at, c->n_at, A_SHAPE);
    if (a && a->n) TRY(get_some(c, A_SHAPE, MAX_RANK, &o.rank, o.d)); /* an empty list is a scalar */
    TRY(need_min(c, A_SHAPE, o.d, o.rank, 1));
    return put_shape(c, &o);
}

/* ---- reductions ---- */

static an_status reduce_set(infer *c, unsigned set)
{
    const shape *x = sh(c, 0);
    bool keep = get_bool(c, A_KEEP_DIMS);
    shape o = { 0 };
    for (int i = 0; i < x->rank; i++)
        if (!(set & 1u << i)) o.d[o.rank++] = x->d[i];
        else if (keep) o.d[o.rank++] = 1;
    return put_shape(c, &o);
}

an_status infer_reduce(infer *c)
{
    unsigned set = (1u << sh(c, 0)->rank) - 1; /* absent: every dimension */
    if (given(c, A_AXES)) TRY(get_axes(c, A_AXES, sh(c, 0)->rank, &set));
    return reduce_set(c, set);
}

an_status infer_reduce_axis(infer *c)
{
    int axis;
    TRY(get_axis(c, A_AXIS, sh(c, 0)->rank, &axis));
    return reduce_set(c, 1u << axis);
}

an_status infer_topk(infer *c)
{
    int axis;
    shape o = *sh(c, 0);
    int64_t k = get_int(c, A_K);
    TRY(get_axis(c, A_AXIS, o.rank, &axis));
    if (k == -1) k = o.d[axis]; /* all of them */
    else if (k < 1 || (o.d[axis] >= 0 && k > o.d[axis]))
        return infer_fail(c, "k is %lld, wanted 1 to %lld", (long long)k, (long long)o.d[axis]);
    o.d[axis] = k;
    put_shape(c, &o);
    return get_bool(c, A_RETURN_INDICES) ? put_shape(c, &o) : AN_OK;
}

/* ---- the same elements in another shape ---- */

static an_status need_same_count(infer *c, const shape *o)
{
    int64_t a, b;
    if (!shape_known(sh(c, 0)) || !shape_known(o)) return AN_OK;
    if (!shape_elems(sh(c, 0), &a) || !shape_elems(o, &b))
        return infer_fail(c, "%s has too many elements", show_shape(o).s);
    if (a == b) return AN_OK;
    return infer_fail(c, "x is %s with %lld elements, wanted shape %s has %lld", show_type(&c->in[0]).s, (long long)a,
                      show_shape(o).s, (long long)b);
}

an_status infer_reshape(infer *c) /* 0 copies the extent of x, one -1 is worked out */
{
    const shape *x = sh(c, 0);
    const attr *a = attr_get(c->at, c->n_at, A_SHAPE);
    shape o = { 0 };
    int hole = -1;
    if (a->n) TRY(get_some(c, A_SHAPE, MAX_RANK, &o.rank, o.d));
    TRY(need_min(c, A_SHAPE, o.d, o.rank, -1));
    for (int i = 0; i < o.rank; i++) {
        if (o.d[i] == -1 && hole >= 0) return infer_fail(c, "shape has two entries of -1, wanted at most one");
        if (o.d[i] == -1) hole = i;
        if (o.d[i] == 0 && i >= x->rank)
            return infer_fail(c, "shape entry %d is 0 but x is %s: no extent to copy", i, show_type(&c->in[0]).s);
        if (o.d[i] == 0) o.d[i] = x->d[i];
    }
    if (hole >= 0 && shape_known(x)) {
        int64_t total, rest;
        o.d[hole] = 1;
        bool known = shape_known(&o);
        if (known && (!shape_elems(x, &total) || !shape_elems(&o, &rest)))
            return infer_fail(c, "%s has too many elements", show_shape(&o).s);
        if (known && total % rest)
            return infer_fail(c, "x is %s with %lld elements, which do not divide into rows of %lld",
                              show_type(&c->in[0]).s, (long long)total, (long long)rest);
        o.d[hole] = known ? total / rest : DIM_UNKNOWN;
    }
    TRY(need_same_count(c, &o));
    return put_shape(c, &o);
}

an_status infer_reshape_like(infer *c)
{
    int n = c->n_in - 1;
    const attr *lists[3] = { attr_get(c->at, c->n_at, A_BEGINS), attr_get(c->at, c->n_at, A_ENDS),
                             attr_get(c->at, c->n_at, A_END_MASKS) };
    for (int i = 0; i < 3; i++)
        if (lists[i]->n != n)
            return infer_fail(c, "%s has %d entries, wanted one for each of %d ref_tensors", attr_name(lists[i]->id),
                              lists[i]->n, n);
    shape o = { 0 };
    for (int i = 0; i < n; i++) {
        const shape *r = sh(c, 1 + i);
        int64_t begin = lists[0]->u.is[i], end = lists[2]->u.is[i] ? r->rank : lists[1]->u.is[i];
        if (begin < 0) begin += r->rank;
        if (end < 0) end += r->rank;
        if (begin < 0 || begin > r->rank || end < begin || end > r->rank)
            return infer_fail(c, "dimensions %lld to %lld of ref_tensors entry %d are outside %s", (long long)begin,
                              (long long)end, i, show_shape(r).s);
        for (int64_t k = begin; k < end; k++) {
            if (o.rank == MAX_RANK) return infer_fail(c, "the result would have rank above %d", MAX_RANK);
            o.d[o.rank++] = r->d[k];
        }
    }
    TRY(need_same_count(c, &o));
    return put_shape(c, &o);
}

an_status infer_expand_dims(infer *c)
{
    const shape *x = sh(c, 0);
    const attr *a = attr_get(c->at, c->n_at, A_AXES);
    unsigned set;
    if (x->rank + a->n > MAX_RANK)
        return infer_fail(c, "the result would have rank %d, at most %d is allowed", x->rank + a->n, MAX_RANK);
    shape o = { .rank = x->rank + a->n };
    TRY(get_axes(c, A_AXES, o.rank, &set));
    for (int i = 0, k = 0; i < o.rank; i++) o.d[i] = set & 1u << i ? 1 : x->d[k++];
    return put_shape(c, &o);
}

an_status infer_squeeze(infer *c)
{
    const shape *x = sh(c, 0);
    unsigned set = 0;
    if (given(c, A_AXES)) TRY(get_axes(c, A_AXES, x->rank, &set));
    else
        for (int i = 0; i < x->rank; i++) set |= (x->d[i] == 1 ? 1u : 0u) << i;
    shape o = { 0 };
    for (int i = 0; i < x->rank; i++) {
        if (set & 1u << i && !dim_agree(x->d[i], 1))
            return infer_fail(c, "x is %s: dimension %d has extent %lld, wanted 1", show_type(&c->in[0]).s, i,
                              (long long)x->d[i]);
        if (!(set & 1u << i)) o.d[o.rank++] = x->d[i];
    }
    return put_shape(c, &o);
}

an_status infer_flatten2d(infer *c)
{
    const shape *x = sh(c, 0);
    int64_t axis = get_int(c, A_AXIS);
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis > x->rank)
        return infer_fail(c, "axis %lld is outside a tensor of rank %d", (long long)get_int(c, A_AXIS), x->rank);
    shape o = SHAPE(1, 1);
    for (int i = 0; i < x->rank; i++) TRY(dim_mul(c, o.d[i >= axis], x->d[i], &o.d[i >= axis]));
    return put_shape(c, &o);
}

an_status infer_transpose(infer *c)
{
    const shape *x = sh(c, 0);
    int64_t perm[MAX_RANK];
    unsigned set = 0;
    shape o = { .rank = x->rank };
    if (x->rank == 0) return put_shape(c, &o);
    TRY(get_list(c, A_PERM, x->rank, perm));
    TRY(get_axes(c, A_PERM, x->rank, &set));
    for (int i = 0; i < x->rank; i++) o.d[i] = x->d[perm[i] < 0 ? perm[i] + x->rank : perm[i]];
    return put_shape(c, &o);
}

/* ---- joining and cutting ---- */

an_status infer_concat(infer *c)
{
    int axis;
    shape o = *sh(c, 0);
    TRY(get_axis(c, A_AXIS, o.rank, &axis));
    bool interleave = get_bool(c, A_INTERLEAVE);
    for (int i = 1; i < c->n_in; i++) {
        const shape *s = sh(c, i);
        bool ok = s->rank == o.rank;
        for (int k = 0; ok && k < o.rank; k++) {
            if (k != axis && dim_agree(o.d[k], s->d[k])) o.d[k] = dim_known(o.d[k], s->d[k]);
            else if (k != axis || (interleave && !dim_agree(sh(c, 0)->d[k], s->d[k]))) ok = false;
        }
        if (!ok)
            return infer_fail(c, "values entry 0 is %s and entry %d is %s: they cannot be joined along dimension %d%s",
                              show_type(&c->in[0]).s, i, show_type(&c->in[i]).s, axis,
                              interleave ? " interleaved" : "");
        o.d[axis] = o.d[axis] < 0 || s->d[axis] < 0 ? DIM_UNKNOWN : o.d[axis] + s->d[axis];
        if (o.d[axis] > EXTENT_MAX) return infer_fail(c, "the joined extent is too large");
    }
    return put_shape(c, &o);
}

an_status infer_stack(infer *c)
{
    const shape *x = sh(c, 0);
    int axis;
    if (x->rank == MAX_RANK) return infer_fail(c, "the result would have rank above %d", MAX_RANK);
    TRY(get_axis(c, A_AXIS, x->rank + 1, &axis));
    for (int i = 1; i < c->n_in; i++)
        if (!dims_agree(x, sh(c, i)))
            return infer_fail(c, "values entry 0 is %s and entry %d is %s: shapes differ", show_type(&c->in[0]).s, i,
                              show_type(&c->in[i]).s);
    shape o = { .rank = x->rank + 1 };
    for (int i = 0, k = 0; i < o.rank; i++) o.d[i] = i == axis ? c->n_in : x->d[k++];
    return put_shape(c, &o);
}

an_status infer_split(infer *c)
{
    int axis;
    shape o = *sh(c, 0);
    TRY(get_axis(c, A_AXIS, o.rank, &axis));
    int64_t extent = o.d[axis], n = get_int(c, A_NUM_SPLITS), sum = 0;
    const attr *sizes = attr_get(c->at, c->n_at, A_SPLIT_SIZES);
    if (!sizes && !given(c, A_NUM_SPLITS)) return infer_fail(c, "neither num_splits nor split_sizes is given");
    if (!sizes) {
        if (n > (extent < 0 ? INT16_MAX : extent) || (extent >= 0 && extent % n))
            return infer_fail(c, "x is %s: extent %lld does not divide into %lld parts", show_type(&c->in[0]).s,
                              (long long)extent, (long long)n);
        o.d[axis] = extent < 0 ? DIM_UNKNOWN : extent / n;
        for (int64_t i = 0; i < n; i++) put_shape(c, &o);
        return AN_OK;
    }
    if (given(c, A_NUM_SPLITS) && n != sizes->n)
        return infer_fail(c, "num_splits is %lld but split_sizes has %d entries", (long long)n, sizes->n);
    if (sizes->n < 1) return infer_fail(c, "split_sizes has no entries");
    for (int i = 0; i < sizes->n && sum <= EXTENT_MAX; i++) sum += sizes->u.is[i];
    if (extent >= 0 && sum != extent)
        return infer_fail(c, "split_sizes add up to %lld, wanted the extent %lld", (long long)sum, (long long)extent);
    for (int i = 0; i < sizes->n; i++) {
        o.d[axis] = sizes->u.is[i];
        put_shape(c, &o);
    }
    return AN_OK;
}

an_status infer_pad(infer *c) /* pairs for the last dimensions, first padded dimension first */
{
    shape o = *sh(c, 0);
    const attr *a = attr_get(c->at, c->n_at, A_PAD);
    const char *mode = get_str(c, A_MODE);
    if (a->n % 2 || a->n / 2 > o.rank || a->n == 0)
        return infer_fail(c, "pad has %d entries, wanted a pair for each of 1 to %d dimensions", a->n, o.rank);
    for (int i = 0; i < a->n; i++) {
        int k = o.rank - a->n / 2 + i / 2;
        int64_t x = sh(c, 0)->d[k], most = !strcmp(mode, "reflect") ? x - 1 : x;
        if (o.d[k] < 0) continue;
        if ((!strcmp(mode, "reflect") || !strcmp(mode, "symmetric")) && a->u.is[i] > most)
            return infer_fail(c, "pad entry %d is %lld, but %s padding of extent %lld reaches at most %lld", i,
                              (long long)a->u.is[i], mode, (long long)x, (long long)most);
        o.d[k] += a->u.is[i];
    }
    return put_shape(c, &o);
}

an_status infer_tile(infer *c)
{
    shape o = *sh(c, 0);
    int64_t reps[MAX_RANK];
    TRY(get_list(c, A_REPS, o.rank, reps));
    for (int i = 0; i < o.rank; i++) TRY(dim_mul(c, o.d[i], reps[i], &o.d[i]));
    return put_shape(c, &o);
}

an_status infer_crop(infer *c)
{
    int64_t h[2], w[2];
    TRY(need_rank(c, 0, 3, MAX_RANK));
    TRY(get_list(c, A_CROP_HEIGHT, 2, h));
    TRY(get_list(c, A_CROP_WIDTH, 2, w));
    shape o = *sh(c, 0);
    int64_t *dh = &o.d[o.rank - 2], *dw = &o.d[o.rank - 1];
    if ((*dh >= 0 && h[0] + h[1] >= *dh) || (*dw >= 0 && w[0] + w[1] >= *dw))
        return infer_fail(c, "x is %s: cropping %lld rows and %lld columns leaves nothing", show_type(&c->in[0]).s,
                          (long long)(h[0] + h[1]), (long long)(w[0] + w[1]));
    if (*dh >= 0) *dh -= h[0] + h[1];
    if (*dw >= 0) *dw -= w[0] + w[1];
    return put_shape(c, &o);
}

/* ---- slices ---- */

an_status infer_slice_by_size(infer *c)
{
    shape o = *sh(c, 0);
    int64_t begin[MAX_RANK], size[MAX_RANK];
    TRY(get_list(c, A_BEGIN, o.rank, begin));
    TRY(get_list(c, A_SIZE, o.rank, size));
    for (int i = 0; i < o.rank; i++) {
        int64_t x = o.d[i];
        bool ok = begin[i] >= 0 && (x < 0 || begin[i] < x) && (size[i] == -1 || size[i] > 0);
        if (ok && x >= 0 && size[i] > 0) ok = size[i] <= x - begin[i];
        if (!ok)
            return infer_fail(c, "x is %s: begin %lld and size %lld of dimension %d are outside it",
                              show_type(&c->in[0]).s, (long long)begin[i], (long long)size[i], i);
        if (size[i] > 0) o.d[i] = size[i];
        else if (x >= 0) o.d[i] = x - begin[i];
    }
    return put_shape(c, &o);
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

/* Like numpy's a[begin:end:stride]: negative places count from the end, and places past an end are cut to it. */
static an_status slice_dim(infer *c, int i, int64_t x, const int64_t *p, bool begin_open, bool end_open, int64_t *count)
{
    int64_t b = p[0], e = p[1], s = p[2];
    if (x < 0) {
        bool ends_known = !begin_open && !end_open && s > 0 && (b < 0) == (e < 0) && e > b;
        if (ends_known && (b >= 0 || e < 0)) *count = (e - b + s - 1) / s;
        else *count = begin_open && end_open && s == 1 ? x : DIM_UNKNOWN;
        return AN_OK;
    }
    int64_t lo = s > 0 ? 0 : -1, hi = s > 0 ? x : x - 1;
    b = begin_open ? (s > 0 ? lo : hi) : clamp(b < 0 ? b + x : b, lo, hi);
    e = end_open ? (s > 0 ? hi : lo) : clamp(e < 0 ? e + x : e, lo, hi);
    *count = s > 0 ? (e - b + s - 1) / s : (b - e - s - 1) / -s;
    if (*count >= 1) return AN_OK;
    return infer_fail(c, "x is %s: begin %lld, end %lld, stride %lld of dimension %d select nothing",
                      show_type(&c->in[0]).s, (long long)p[0], (long long)p[1], (long long)s, i);
}

static an_status slice_dims(infer *c, const shape *x, shape *out)
{
    int64_t begin[MAX_RANK], end[MAX_RANK], stride[MAX_RANK], open_b[MAX_RANK], open_e[MAX_RANK], squeeze[MAX_RANK];
    TRY(get_list(c, A_BEGIN, x->rank, begin));
    TRY(get_list(c, A_END, x->rank, end));
    TRY(get_list(c, A_STRIDE, x->rank, stride));
    TRY(get_list(c, A_BEGIN_MASK, x->rank, open_b));
    TRY(get_list(c, A_END_MASK, x->rank, open_e));
    TRY(get_list(c, A_SQUEEZE_MASK, x->rank, squeeze));
    *out = (shape){ 0 };
    for (int i = 0; i < x->rank; i++) {
        int64_t b = clamp(begin[i], -EXTENT_MAX, EXTENT_MAX), n;
        int64_t p[3] = { b, clamp(end[i], -EXTENT_MAX, EXTENT_MAX), stride[i] };
        if (stride[i] == 0) return infer_fail(c, "stride of dimension %d is 0", i);
        if (squeeze[i]) { /* one index, and the dimension goes */
            if (!open_b[i] && x->d[i] >= 0 && (b < -x->d[i] || b >= x->d[i]))
                return infer_fail(c, "x is %s: index %lld is outside dimension %d", show_shape(x).s,
                                  (long long)begin[i], i);
            continue;
        }
        TRY(slice_dim(c, i, x->d[i], p, open_b[i], open_e[i], &n));
        out->d[out->rank++] = n;
    }
    return AN_OK;
}

an_status infer_slice_by_index(infer *c)
{
    shape o;
    TRY(slice_dims(c, sh(c, 0), &o));
    return put_shape(c, &o);
}

an_status infer_slice_update(infer *c)
{
    shape part;
    TRY(slice_dims(c, sh(c, 0), &part));
    if (!dims_agree(sh(c, 1), &part))
        return infer_fail(c, "update is %s, wanted the shape of the slice %s", show_type(&c->in[1]).s,
                          show_shape(&part).s);
    return put_shape(c, sh(c, 0));
}

/* ---- gathering ---- */

static an_status append(infer *c, shape *o, const shape *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        if (o->rank == MAX_RANK) return infer_fail(c, "the result would have rank above %d", MAX_RANK);
        o->d[o->rank++] = s->d[i];
    }
    return AN_OK;
}

static an_status batch_dims(infer *c, int most, int *n)
{
    const shape *x = sh(c, 0), *idx = sh(c, 1);
    int64_t b = get_int(c, A_BATCH_DIMS);
    if (b > most) return infer_fail(c, "batch_dims is %lld, wanted 0 to %d", (long long)b, most);
    for (int i = 0; i < b; i++)
        if (!dim_agree(x->d[i], idx->d[i]))
            return infer_fail(c, "x is %s and indices is %s: batch extents differ", show_type(&c->in[0]).s,
                              show_type(&c->in[1]).s);
    *n = (int)b;
    return AN_OK;
}

an_status infer_gather(infer *c)
{
    const shape *x = sh(c, 0), *idx = sh(c, 1);
    int axis, b;
    shape o = { 0 };
    TRY(get_axis(c, A_AXIS, x->rank, &axis));
    TRY(batch_dims(c, MIN(axis, idx->rank), &b));
    TRY(append(c, &o, x, 0, axis));
    TRY(append(c, &o, idx, b, idx->rank));
    TRY(append(c, &o, x, axis + 1, x->rank));
    return put_shape(c, &o);
}

/* The updates have the indices' axes in place of the one written along. */
an_status infer_scatter(infer *c)
{
    const shape *x = sh(c, 0), *idx = sh(c, 1);
    int axis;
    shape o = { 0 };
    TRY(get_axis(c, A_AXIS, x->rank, &axis));
    TRY(append(c, &o, x, 0, axis));
    TRY(append(c, &o, idx, 0, idx->rank));
    TRY(append(c, &o, x, axis + 1, x->rank));
    if (!dims_agree(sh(c, 2), &o))
        return infer_fail(c, "updates is %s, wanted shape %s", show_type(&c->in[2]).s, show_shape(&o).s);
    return put_shape(c, x);
}

an_status infer_gather_along_axis(infer *c)
{
    const shape *x = sh(c, 0), *idx = sh(c, 1);
    int axis;
    TRY(get_axis(c, A_AXIS, x->rank, &axis));
    shape want = *x;
    if (idx->rank == x->rank) want.d[axis] = idx->d[axis];
    if (!dims_agree(&want, idx))
        return infer_fail(c, "x is %s and indices is %s: they may differ only along dimension %d",
                          show_type(&c->in[0]).s, show_type(&c->in[1]).s, axis);
    return put_shape(c, idx);
}

an_status infer_gather_nd(infer *c)
{
    const shape *x = sh(c, 0), *idx = sh(c, 1);
    int b;
    shape o = { 0 };
    TRY(need_rank(c, 0, 1, MAX_RANK));
    TRY(need_rank(c, 1, 1, MAX_RANK));
    TRY(batch_dims(c, MIN(x->rank, idx->rank) - 1, &b));
    int64_t k = idx->d[idx->rank - 1];
    if (k < 0) return infer_fail(c, "indices is %s: its last extent must be known", show_type(&c->in[1]).s);
    if (k > x->rank - b)
        return infer_fail(c, "indices is %s: each index has %lld parts, x is %s with %d dimensions left",
                          show_type(&c->in[1]).s, (long long)k, show_type(&c->in[0]).s, x->rank - b);
    TRY(append(c, &o, idx, 0, idx->rank - 1));
    TRY(append(c, &o, x, b + (int)k, x->rank));
    return put_shape(c, &o);
}
