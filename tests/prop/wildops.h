/* wildops.h: how each kind of operation is drawn for wildgraph.h, which includes it: operands, attributes and shapes
 * that the op table allows. */
#ifndef TESTS_WILDOPS_H
#define TESTS_WILDOPS_H

/* strides, pad_type, pad, dilations, groups of a window over n dimensions */
static inline void wg_window(wg *s, op_id op, int n, int64_t groups, wg_attrs *a)
{
    int64_t *st = wg_ints(s, n), *pad = wg_ints(s, 2 * n), *dil = wg_ints(s, n);
    const char *type = op == OP_CONV_TRANSPOSE ? WG_WORD(s, "valid", "same", "custom", "custom")
                                               : WG_WORD(s, "valid", "same", "same_lower", "custom", "custom");
    for (int i = 0; i < n; i++)
        st[i] = wg_chance(s, 50) ? 1 : wg_upto(s, 1, 3), dil[i] = wg_chance(s, 60) ? 1 : wg_upto(s, 1, 3);
    for (int i = 0; i < 2 * n; i++) pad[i] = wg_upto(s, 0, 2);
    if (wg_chance(s, 80)) wg_at(a, AT_LIST(STRIDES, st, n));
    wg_at(a, AT_S(PAD_TYPE, type));
    if (!strcmp(type, "custom") || wg_chance(s, 10)) wg_at(a, AT_LIST(PAD, pad, 2 * n)); /* elsewhere it is not read */
    if (op_attr_spec(op, A_DILATIONS) && wg_chance(s, 50)) wg_at(a, AT_LIST(DILATIONS, dil, n));
    if (op_attr_spec(op, A_GROUPS) && groups) wg_at(a, AT_I(GROUPS, groups));
}

static inline bool wg_conv(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    bool turned = op == OP_CONV_TRANSPOSE;
    val x = wg_float(s, 3, 5);
    shape xs = *wg_of(s, x), w = { .rank = xs.rank };
    int64_t groups = wg_chance(s, 60) ? 1 : wg_chance(s, 30) ? xs.d[1] : wg_upto(s, 1, 4);
    if (xs.d[1] % groups) groups = 1;
    int64_t wide = wg_dim(s), each = s->o.large ? MAX(1, wide / groups) : wg_upto(s, 1, wg_chance(s, 30) ? 9 : 3);
    w.d[0] = turned ? xs.d[1] : groups * each, w.d[1] = turned ? each : xs.d[1] / groups;
    for (int i = 2; i < w.rank; i++) w.d[i] = wg_chance(s, 50) ? 1 : wg_upto(s, 1, 4);
    if (wg_count(&w) > wg_most(s)) return false;
    wg_window(s, op, xs.rank - 2, groups > 1 || wg_chance(s, 30) ? groups : 0, &a);
    int64_t cout = turned ? groups * each : w.d[0];
    val wv = wg_new(s, graph_type(s->g, x)->dt, w, WG_SMALL, 1, 75),
        b = wg_chance(s, 50) ? wg_new(s, graph_type(s->g, x)->dt, SHAPE(cout), WG_ANY, 1, 75) : NO_VAL;
    const val in[] = { x, wv, b };
    if (turned && wg_chance(s, 30)) { /* one of the extents that windows of this stride leave */
        ttype ti[3] = { *graph_type(s->g, x), *graph_type(s->g, wv), b.i ? *graph_type(s->g, b) : (ttype){ 0 } }, to;
        int n;
        diag d = { 0 };
        if (graph_infer(op, ti, 3, a.at, a.n, &to, &n, 1, &d)) return false;
        int64_t *os = wg_ints(s, to.sh.rank);
        for (int i = 0; i < to.sh.rank; i++) os[i] = to.sh.d[i] + (i > 1 ? wg_upto(s, -2, 2) : 0);
        wg_at(&a, AT_LIST(OUTPUT_SHAPE, os, to.sh.rank));
    }
    return wg_make(s, op, in, 3, a.at, a.n);
}

static inline bool wg_pool(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    val x = wg_float(s, 3, 5);
    int n = wg_of(s, x)->rank - 2;
    int64_t *k = wg_ints(s, n);
    for (int i = 0; i < n; i++) k[i] = wg_upto(s, 1, 4);
    wg_at(&a, AT_LIST(KERNEL_SIZES, k, n));
    wg_window(s, op, n, 0, &a);
    if (op_attr_spec(op, A_MODE)) wg_at(&a, AT_S(MODE, WG_WORD(s, "avg", "max", "min", "l1", "l2")));
    if (op_attr_spec(op, A_CEIL_MODE) && wg_chance(s, 40)) wg_at(&a, AT_B(CEIL_MODE, true));
    if (op_attr_spec(op, A_EXCLUDE_PADDING) && wg_chance(s, 50)) wg_at(&a, AT_B(EXCLUDE_PADDING, true));
    return wg_make(s, op, VALS(x), a.at, a.n);
}

static inline bool wg_product(wg *s, op_id op)
{
    val x = wg_float(s, 1, 5);
    dtype dt = graph_type(s->g, x)->dt;
    shape xs = *wg_of(s, x), ys = { 0 };
    if (op == OP_LINEAR) {
        int64_t n = wg_dim(s);
        val w = wg_new(s, dt, SHAPE(n, xs.d[xs.rank - 1]), WG_SMALL, 1, 75),
            b = wg_chance(s, 50) ? wg_new(s, dt, SHAPE(n), WG_ANY, 1, 75) : NO_VAL;
        return wg_make(s, op, VALS(x, w, b), NULL, 0);
    }
    if (op == OP_EINSUM) {
        /* letters of x, some of them shared, in any order on the right */
        char eq[40], *p = eq, right[20];
        int nr = 0, extra = (int)wg_upto(s, 0, 2);
        for (int i = 0; i < xs.rank; i++) *p++ = (char)('a' + i);
        *p++ = ',';
        char y[12];
        int ny = 0;
        for (int i = 0; i < xs.rank; i++)
            if (wg_chance(s, 60) && ny < 5) y[ny] = (char)('a' + i), ys.d[ny++] = xs.d[i];
        for (int i = 0; i < extra && ny < 6; i++) y[ny] = (char)('p' + i), ys.d[ny++] = wg_upto(s, 1, 5);
        for (int i = ny - 1; i > 0; i--) {
            int j = (int)wg_upto(s, 0, i);
            char t = y[i];
            int64_t td = ys.d[i];
            y[i] = y[j], y[j] = t, ys.d[i] = ys.d[j], ys.d[j] = td;
        }
        ys.rank = ny;
        for (int i = 0; i < ny; i++) *p++ = y[i];
        *p++ = '-', *p++ = '>';
        for (int i = 0; i < xs.rank; i++)
            if (wg_chance(s, 60)) right[nr++] = (char)('a' + i);
        for (int i = 0; i < ny; i++)
            if (y[i] >= 'p' && wg_chance(s, 80)) right[nr++] = y[i];
        for (int i = nr - 1; i > 0; i--) {
            int j = (int)wg_upto(s, 0, i);
            char t = right[i];
            right[i] = right[j], right[j] = t;
        }
        memcpy(p, right, (size_t)nr), p[nr] = 0;
        val b = wg_new(s, dt, ys, WG_SMALL, 1, 50);
        return wg_make(s, op, VALS(x, b), (const attr[]){ AT_S(EQUATION, arena_strn(&s->mem, eq, strlen(eq))) }, 1);
    }
    bool tx = xs.rank > 1 && wg_chance(s, 30), ty = wg_chance(s, 30);
    int64_t k = xs.rank == 1 || !tx ? xs.d[xs.rank - 1] : xs.d[xs.rank - 2];
    val y;
    if (wg_chance(s, 15) && xs.rank > 1) y = x, ty = !tx; /* x by itself turned */
    else {
        int batch = (int)wg_upto(s, 0, MAX(0, xs.rank - 2));
        bool flip = wg_chance(s, 25);
        if (wg_chance(s, 10)) ys = SHAPE(k), ty = false;
        else {
            for (int i = 0; i < batch; i++) ys.d[i] = wg_chance(s, 30) ? 1 : xs.d[xs.rank - 2 - batch + i];
            if (batch == 0 && wg_chance(s, 15)) ys.d[0] = wg_upto(s, 1, 3), batch = 1;
            int64_t n = wg_dim(s);
            ys.d[batch] = ty ? n : k, ys.d[batch + 1] = ty ? k : n;
            ys.rank = batch + 2;
        }
        y = wg_new(s, dt, ys, WG_SMALL, 1, 55);
        if (flip && xs.rank > 1 && ys.rank > 1) { /* y^T x^T */
            val t = x;
            x = y, y = t;
            bool b = tx;
            tx = !ty, ty = !b;
        }
    }
    wg_attrs a = { 0 };
    if (tx || wg_chance(s, 30)) wg_at(&a, AT_B(TRANSPOSE_X, tx));
    if (ty || wg_chance(s, 30)) wg_at(&a, AT_B(TRANSPOSE_Y, ty));
    return wg_make(s, op, VALS(x, y), a.at, a.n);
}

static inline bool wg_sdpa(wg *s, op_id op)
{
    val q = wg_float(s, 2, 5);
    dtype dt = graph_type(s->g, q)->dt;
    shape qs = *wg_of(s, q), k = qs, v, m;
    int r = qs.rank;
    for (int i = 0; i < r - 2; i++)
        if (wg_chance(s, 20)) k.d[i] = 1;
    if (wg_chance(s, 60)) k.d[r - 2] = wg_dim(s);
    v = k;
    if (wg_chance(s, 50)) v.d[r - 1] = wg_dim(s);
    val kv = shape_eq(&k, &qs) && wg_chance(s, 20) ? q : wg_new(s, dt, k, WG_ANY, 1, 20),
        vv = shape_eq(&v, &k) && wg_chance(s, 20) ? kv : wg_new(s, dt, v, WG_ANY, 1, 20), mask = NO_VAL;
    if (wg_chance(s, 50)) {
        int batch = (int)wg_upto(s, 0, r - 2);
        m = (shape){ .rank = batch + 2 };
        for (int i = 0; i < batch; i++) m.d[i] = wg_chance(s, 50) ? 1 : qs.d[r - 2 - batch + i];
        m.d[batch] = wg_chance(s, 20) ? 1 : qs.d[r - 2], m.d[batch + 1] = wg_chance(s, 20) ? 1 : k.d[r - 2];
        bool boolean = !s->o.smooth && wg_chance(s, 40), causal = wg_chance(s, 40);
        ttype t = { boolean ? DT_BOOL : dt, m };
        double *x = TAKE(&s->mem, double, (size_t)wg_count(&m));
        for (int64_t i = 0; i < wg_count(&m); i++) {
            int64_t col = i % m.d[batch + 1], row = i / m.d[batch + 1] % m.d[batch];
            bool keep = causal ? col <= row : col == 0 || wg_chance(s, 70);
            x[i] = boolean ? keep : causal ? (keep ? 0 : -10000) : wg_number(s, dt, WG_ANY, 1);
        }
        mask = wg_hold(s, t, x, wg_chance(s, 60));
    }
    return wg_make(s, op, VALS(q, kv, vv, mask), NULL, 0);
}

static inline bool wg_norm(wg *s, op_id op)
{
    bool layer = op == OP_LAYER_NORM, param = op == OP_PRELU || op == OP_SOFTPLUS_PARAMETRIC;
    val x = wg_float(s, layer ? 1 : 2, 5);
    dtype dt = graph_type(s->g, x)->dt;
    const shape *xs = wg_of(s, x);
    wg_attrs a = { 0 };
    shape p = SHAPE(layer ? 1 : xs->d[1]);
    if (layer) {
        unsigned set = (1u << xs->rank) - 1;
        if (wg_chance(s, 85)) {
            attr axes = wg_axes(s, xs->rank);
            set = 0;
            for (int i = 0; i < axes.n; i++) set |= 1u << (axes.u.is[i] < 0 ? axes.u.is[i] + xs->rank : axes.u.is[i]);
            wg_at(&a, axes);
        }
        p = (shape){ 0 };
        for (int i = 0; i < xs->rank; i++)
            if (set & 1u << i) p.d[p.rank++] = xs->d[i];
    }
    if (op_attr_spec(op, A_EPSILON)) wg_at(&a, AT_F(EPSILON, wg_chance(s, 50) ? 0.125 : 0.015625));
    val in[5] = { x };
    int n = op == OP_BATCH_NORM ? 5
            : op == OP_PRELU    ? 2
                                : 3,
        need = op == OP_BATCH_NORM || op == OP_SOFTPLUS_PARAMETRIC ? 3
               : param                                             ? 2
                                                                   : 1;
    for (int i = 1; i < n; i++)
        if (i < need || wg_chance(s, 60))
            in[i] = wg_new(s, dt, p,
                           i == 2 && op == OP_BATCH_NORM  ? WG_POSITIVE
                           : op == OP_SOFTPLUS_PARAMETRIC ? WG_POSITIVE
                                                          : WG_ANY,
                           1, 75);
    return wg_make(s, op, in, n, a.at, a.n);
}

/* The floats, words and numbers of operations of one operand that keep the shape. */
static inline bool wg_same(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    bool positive = op == OP_SQRT || op == OP_RSQRT || op == OP_LOG || op == OP_INVERSE;
    val x;
    if (op == OP_LOGICAL_NOT) x = wg_some(s, DT_BOOL, 0, 5, WG_ANY);
    else if (op == OP_CAST || op == OP_IDENTITY || op == OP_FILL_LIKE) x = wg_some(s, DT_NONE, 0, 5, WG_ANY);
    else if (op == OP_ABS || op == OP_SQUARE || op == OP_SIGN) x = wg_number_value(s, 0, 5);
    else
        x = positive && wg_chance(s, 70) ? wg_some(s, DT_F64, 0, 5, WG_POSITIVE)
                                         : wg_float(s, op == OP_L2_NORM || op == OP_LOCAL_RESPONSE_NORM ? 3 : 0, 5);
    if (op == OP_CAST) {
        const char *to = s->o.smooth  ? dtype_name(s->o.f)
                         : s->o.mixed ? WG_WORD(s, "fp16", "fp32", "bf16", "int32", "int8", "uint8", "int16", "bool")
                         : wg_chance(s, 40) ? dtype_name(s->o.f)
                                            : WG_WORD(s, "int32", "int8", "uint8", "int16", "bool");
        wg_at(&a, AT_S(DTYPE, to));
    }
    if (op == OP_GELU && wg_chance(s, 80))
        wg_at(&a, AT_S(MODE, WG_WORD(s, "EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION")));
    if (op == OP_LOCAL_RESPONSE_NORM) wg_at(&a, AT_I(SIZE, wg_upto(s, 1, 5)));
    for (int i = 0; i < op_get(op)->n_attr; i++) {
        const attr_spec *sp = &op_get(op)->attr[i];
        if (sp->kind != ATTR_FLOAT || (!sp->required && wg_chance(s, 30))) continue;
        double f = (double)wg_upto(s, -12, 12) / 8;
        if (sp->id == A_EPSILON)
            f = op == OP_LOG || op == OP_RSQRT || op == OP_INVERSE || wg_chance(s, 50) ? 0.0625 : 0.001953125;
        if (op == OP_LOCAL_RESPONSE_NORM) f = sp->id == A_K ? 1 + fabs(f) : 0.25 + fabs(f) / 4;
        if (op == OP_CLIP && sp->id == A_BETA) f = a.at[0].u.f + (double)wg_upto(s, 0, 16) / 8;
        if (op == OP_FILL_LIKE && !dtype_is_float(graph_type(s->g, x)->dt)) f = 1;
        wg_at(&a, (attr){ .id = sp->id, .kind = ATTR_FLOAT, .u.f = f });
    }
    return wg_make(s, op, VALS(x), a.at, a.n);
}

static inline bool wg_binary(wg *s, op_id op)
{
    bool logic = !strcmp(op_get(op)->dtype_rule, "bool"), divides = op == OP_REAL_DIV || op == OP_FLOOR_DIV,
         power = op == OP_POW;
    const char *mode = op == OP_PE_ELEMENTWISE ? WG_WORD(s, "add", "sub", "mul", "div", "pow", "max", "min") : "";
    divides |= !strcmp(mode, "div"), power |= !strcmp(mode, "pow");
    val x = power                                       ? wg_some(s, DT_F64, 0, 5, WG_POSITIVE)
            : logic && !s->o.smooth && wg_chance(s, 15) ? wg_some(s, DT_BOOL, 0, 5, WG_ANY)
                                                        : wg_number_value(s, 0, 5);
    val y = wg_partner(s, x,
                       divides && dtype_is_float(graph_type(s->g, x)->dt) ? WG_POSITIVE
                       : power && wg_chance(s, 30)                        ? WG_UNIT
                                                                          : WG_ANY);
    if (!divides && !power && wg_chance(s, 40)) {
        val t = x;
        x = y, y = t;
    }
    return wg_make(s, op, VALS(x, y), (const attr[]){ AT_S(MODE, mode) }, op == OP_PE_ELEMENTWISE);
}

static inline bool wg_select(wg *s, op_id op)
{
    val a = s->o.smooth ? wg_float(s, 0, 5) : wg_some(s, DT_NONE, 0, 5, WG_ANY), b = wg_partner(s, a, WG_ANY);
    shape sh = *wg_of(s, a);
    for (int i = 0; i < sh.rank; i++)
        if (wg_chance(s, 25)) sh.d[i] = 1;
    int skip = wg_chance(s, 60) ? 0 : (int)wg_upto(s, 0, sh.rank);
    val c = wg_new(s, DT_BOOL, shape_of(sh.d + skip, sh.rank - skip), WG_ANY, 1, s->o.smooth ? 100 : 40);
    return wg_make(s, op, VALS(c, a, b), NULL, 0);
}

static inline bool wg_reduce(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    bool one = !strcmp(op_get(op)->shape_rule, "reduce_axis"), num = !strcmp(op_get(op)->dtype_rule, "number") || one;
    val x = op == OP_REDUCE_LOG_SUM && wg_chance(s, 70) ? wg_some(s, DT_F64, 1, 5, WG_POSITIVE)
            : num                                       ? wg_number_value(s, one ? 1 : 0, 5)
                                                        : wg_float(s, 0, 5);
    int rank = wg_of(s, x)->rank;
    if (one) {
        if (wg_chance(s, 80)) wg_at(&a, AT_I(AXIS, wg_axis(s, rank)));
    } else if (rank && wg_chance(s, 80)) wg_at(&a, wg_axes(s, rank));
    if (wg_chance(s, 60)) wg_at(&a, AT_B(KEEP_DIMS, wg_chance(s, 50)));
    return wg_make(s, op, VALS(x), a.at, a.n);
}

static inline bool wg_along(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    val x = op == OP_SOFTMAX ? wg_float(s, 1, 5) : wg_number_value(s, 1, 5);
    int rank = wg_of(s, x)->rank;
    if (op == OP_REVERSE) {
        x = wg_some(s, s->o.smooth ? DT_F64 : DT_NONE, 1, 5, WG_ANY);
        if (wg_chance(s, 80)) wg_at(&a, wg_axes(s, wg_of(s, x)->rank));
        return wg_make(s, op, VALS(x), a.at, a.n);
    }
    if (wg_chance(s, 80)) wg_at(&a, AT_I(AXIS, wg_axis(s, rank)));
    if (op == OP_CUMSUM && wg_chance(s, 50)) wg_at(&a, AT_B(EXCLUSIVE, wg_chance(s, 60)));
    if (op == OP_CUMSUM && wg_chance(s, 50)) wg_at(&a, AT_B(REVERSE, wg_chance(s, 60)));
    if (op == OP_ARGSORT && wg_chance(s, 50)) wg_at(&a, AT_B(ASCENDING, wg_chance(s, 60)));
    if (op == OP_TOPK) {
        int64_t axis = a.n ? a.at[0].u.i : -1, n = wg_of(s, x)->d[axis < 0 ? axis + rank : axis];
        wg_at(&a, AT_I(K, wg_chance(s, 10) ? -1 : wg_upto(s, 1, n)));
        if (wg_chance(s, 50)) wg_at(&a, AT_B(ASCENDING, wg_chance(s, 60)));
        if (wg_chance(s, 20)) wg_at(&a, AT_B(RETURN_INDICES, wg_chance(s, 50)));
    }
    return wg_make(s, op, VALS(x), a.at, a.n);
}

/* The same elements in another shape, or parts and repeats of them. */
static inline bool wg_move(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    bool deep = op == OP_CROP || op == OP_FLATTEN2D,
         flat = op == OP_RESHAPE || op == OP_EXPAND_DIMS || op == OP_SQUEEZE;
    val x = s->o.smooth ? wg_float(s, deep ? 3 : flat ? 0 : 1, 5) : wg_some(s, DT_NONE, deep ? 3 : flat ? 0 : 1, 5, WG_ANY);
    dtype dt = graph_type(s->g, x)->dt;
    shape xs = *wg_of(s, x);
    int r = xs.rank;
    int64_t *p = wg_ints(s, 2 * MAX_RANK), *q = wg_ints(s, MAX_RANK), *t = wg_ints(s, MAX_RANK), n = wg_count(&xs);
    switch (op) {
    case OP_RESHAPE: {
        int k = 0;
        for (int64_t left = n; k < 5;) { /* factors in any order, ones among them */
            int64_t f = wg_chance(s, 30) ? 1 : wg_upto(s, 1, MIN(left, 9));
            if (k == 4 || wg_chance(s, 20)) f = left;
            if (left % f) continue;
            p[k++] = f, left /= f;
            if (left == 1 && wg_chance(s, 60)) break;
        }
        if (k && wg_chance(s, 30)) p[wg_upto(s, 0, k - 1)] = -1;
        for (int i = 0; i < k && i < r; i++)
            if (p[i] == xs.d[i] && wg_chance(s, 20)) p[i] = 0;
        wg_at(&a, AT_LIST(SHAPE, p, k));
        break;
    }
    case OP_RESHAPE_LIKE: {
        val ref = wg_chance(s, 40) ? x : wg_new(s, s->o.f, SHAPE(n, 1), WG_ANY, 1, 50);
        q[0] = 0, t[0] = wg_of(s, ref)->rank;
        wg_at(&a, AT_LIST(BEGINS, q, 1)), wg_at(&a, AT_LIST(ENDS, t, 1)), wg_at(&a, wg_bools(s, A_END_MASKS, 1, 50));
        return wg_make(s, op, VALS(x, ref), a.at, a.n);
    }
    case OP_EXPAND_DIMS: p[0] = wg_axis(s, r + 1), wg_at(&a, AT_LIST(AXES, p, 1)); break;
    case OP_SQUEEZE:
        for (int i = 0; i < r; i++)
            if (xs.d[i] == 1 && a.n == 0) p[0] = wg_chance(s, 50) ? i : i - r, a.n = 1;
        if (a.n == 1) a.n = 0, wg_at(&a, AT_LIST(AXES, p, 1));
        break;
    case OP_FLATTEN2D: wg_at(&a, AT_I(AXIS, wg_axis(s, r))); break;
    case OP_TRANSPOSE:
        for (int i = 0; i < r; i++) p[i] = i;
        for (int i = r - 1; i > 0; i--) {
            int j = (int)wg_upto(s, 0, i);
            int64_t k = p[i];
            p[i] = p[j], p[j] = k;
        }
        for (int i = 0; i < r; i++)
            if (wg_chance(s, 20)) p[i] -= r;
        wg_at(&a, AT_LIST(PERM, p, r));
        break;
    case OP_CONCAT:
    case OP_STACK: {
        val in[4] = { x };
        int k = (int)wg_upto(s, 1, 4);
        int64_t axis = wg_axis(s, op == OP_STACK ? r + 1 : r), at = axis < 0 ? axis + r : axis;
        bool inter = op == OP_CONCAT && wg_chance(s, 20);
        for (int i = 1; i < k; i++) {
            shape ys = xs;
            if (op == OP_CONCAT && !inter && wg_chance(s, 60)) ys.d[at] = wg_upto(s, 1, 5);
            in[i] = wg_chance(s, 20) ? x : wg_new(s, dt, ys, WG_ANY, 9, 40);
        }
        wg_at(&a, AT_I(AXIS, axis));
        if (inter) wg_at(&a, AT_B(INTERLEAVE, true));
        return wg_make(s, op, in, k, a.at, a.n);
    }
    case OP_SPLIT: {
        int64_t axis = wg_axis(s, r), d = xs.d[axis < 0 ? axis + r : axis], k = 0;
        wg_at(&a, AT_I(AXIS, axis));
        if (wg_chance(s, 50)) wg_at(&a, AT_I(NUM_SPLITS, wg_upto(s, 1, MIN(d, 6))));
        else {
            for (int64_t left = d; left > 0 && k < 8; k++) p[k] = k == 7 ? left : wg_upto(s, 1, left), left -= p[k];
            wg_at(&a, AT_LIST(SPLIT_SIZES, p, k));
        }
        break;
    }
    case OP_PAD: {
        int k = (int)wg_upto(s, 1, r);
        const char *mode = WG_WORD(s, "constant", "constant", "reflect", "replicate", "symmetric");
        for (int i = 0; i < 2 * k; i++) p[i] = wg_upto(s, 0, 3);
        wg_at(&a, AT_LIST(PAD, p, 2 * k));
        wg_at(&a, AT_S(MODE, mode));
        if (wg_chance(s, 50))
            wg_at(&a, AT_F(CONSTANT_VAL, dtype_is_float(dt) ? (double)wg_upto(s, -8, 8) / 4
                                         : dt == DT_BOOL    ? 1
                                                            : (double)wg_upto(s, 0, 7)));
        break;
    }
    case OP_SLICE_BY_SIZE:
        for (int i = 0; i < r; i++)
            p[i] = wg_upto(s, 0, xs.d[i] - 1), q[i] = wg_chance(s, 20) ? -1 : wg_upto(s, 1, xs.d[i] - p[i]);
        wg_at(&a, AT_LIST(BEGIN, p, r)), wg_at(&a, AT_LIST(SIZE, q, r));
        break;
    case OP_SLICE_BY_INDEX:
    case OP_SLICE_UPDATE: {
        for (int i = 0; i < r; i++) {
            t[i] = wg_chance(s, 60) ? 1 : wg_upto(s, 1, 3);
            if (wg_chance(s, 25)) t[i] = -t[i];
            p[i] = wg_upto(s, 0, xs.d[i] - 1), q[i] = wg_upto(s, p[i] + 1, xs.d[i] + (wg_chance(s, 10) ? 2 : 0));
            if (t[i] < 0) { /* from q-1 down to behind p-1 */
                int64_t b = p[i];
                p[i] = q[i] - 1, q[i] = b - 1;
                if (q[i] < 0) q[i] -= xs.d[i]; /* before the first */
            }
            if (wg_chance(s, 20) && p[i] >= 0 && p[i] < xs.d[i]) p[i] -= xs.d[i];
            if (wg_chance(s, 20) && q[i] >= 0 && q[i] < xs.d[i]) q[i] -= xs.d[i];
        }
        wg_at(&a, AT_LIST(BEGIN, p, r)), wg_at(&a, AT_LIST(END, q, r));
        if (wg_chance(s, 70)) wg_at(&a, AT_LIST(STRIDE, t, r));
        if (wg_chance(s, 30)) wg_at(&a, wg_bools(s, A_BEGIN_MASK, r, 40));
        if (wg_chance(s, 30)) wg_at(&a, wg_bools(s, A_END_MASK, r, 40));
        if (wg_chance(s, 30)) wg_at(&a, wg_bools(s, A_SQUEEZE_MASK, r, 30));
        if (op == OP_SLICE_BY_INDEX) break;
        ttype ti = *graph_type(s->g, x), to;
        int k;
        diag d = { 0 };
        if (graph_infer(OP_SLICE_BY_INDEX, &ti, 1, a.at, a.n, &to, &k, 1, &d)) return false;
        return wg_make(s, op,
                       VALS(x, shape_eq(&to.sh, &xs) && wg_chance(s, 30) ? x : wg_new(s, dt, to.sh, WG_ANY, 9, 30)),
                       a.at, a.n);
    }
    case OP_TILE:
        for (int i = 0; i < r; i++) p[i] = wg_chance(s, 60) ? 1 : wg_upto(s, 1, 3);
        wg_at(&a, AT_LIST(REPS, p, r));
        break;
    case OP_CROP:
        for (int i = 0; i < 2; i++) p[i] = wg_upto(s, 0, 2), q[i] = wg_upto(s, 0, 2);
        wg_at(&a, AT_LIST(CROP_HEIGHT, p, 2)), wg_at(&a, AT_LIST(CROP_WIDTH, q, 2));
        break;
    default: return false;
    }
    return wg_make(s, op, VALS(x), a.at, a.n);
}

static inline bool wg_index(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    val x = s->o.smooth ? wg_float(s, 1, 4) : wg_some(s, DT_NONE, 1, 4, WG_ANY);
    shape xs = *wg_of(s, x), ix = { 0 };
    int r = xs.rank, at = (int)wg_upto(s, 0, r - 1), batch = 0;
    if (op == OP_GATHER_ND) {
        batch = wg_chance(s, 40) ? (int)wg_upto(s, 0, r - 1) : 0;
        int parts = (int)wg_upto(s, 1, r - batch);
        ix = shape_of(xs.d, batch);
        int more = (int)wg_upto(s, 0, 2);
        for (int i = 0; i < more; i++) ix.d[ix.rank++] = wg_upto(s, 1, 4);
        ix.d[ix.rank++] = parts;
        int64_t n = wg_count(&ix);
        double *v = TAKE(&s->mem, double, (size_t)n);
        for (int64_t i = 0; i < n; i++) {
            int64_t d = xs.d[batch + i % parts];
            v[i] = (double)wg_upto(s, wg_chance(s, 20) ? -d : 0, d - 1);
        }
        val iv = wg_hold(s, (ttype){ DT_I32, ix }, v, s->o.smooth || wg_chance(s, 50));
        if (batch || wg_chance(s, 20)) wg_at(&a, AT_I(BATCH_DIMS, batch));
        return wg_make(s, op, VALS(x, iv), a.at, a.n);
    }
    if (op == OP_GATHER_ALONG_AXIS) ix = xs, ix.d[at] = wg_upto(s, 1, 6);
    else {
        if (op == OP_GATHER && wg_chance(s, 40)) batch = (int)wg_upto(s, 0, at);
        ix = shape_of(xs.d, batch);
        int more = (int)wg_upto(s, 0, 2);
        for (int i = 0; i < more; i++) ix.d[ix.rank++] = wg_upto(s, 1, 5);
    }
    bool update = op == OP_SCATTER && wg_chance(s, 40);
    val iv = wg_places(s, ix, xs.d[at], update && wg_count(&ix) <= xs.d[at]);
    if (at || wg_chance(s, 70)) wg_at(&a, AT_I(AXIS, wg_chance(s, 50) ? at : at - r));
    if (batch) wg_at(&a, AT_I(BATCH_DIMS, batch));
    if (wg_chance(s, 20)) wg_at(&a, AT_B(VALIDATE_INDICES, wg_chance(s, 50)));
    if (op != OP_SCATTER) return wg_make(s, op, VALS(x, iv), a.at, a.n);
    if (update) wg_at(&a, AT_S(MODE, "update"));
    if (graph_type(s->g, x)->dt == DT_BOOL && !update) return false;
    shape us = shape_of(xs.d, at);
    for (int i = 0; i < ix.rank; i++) us.d[us.rank++] = ix.d[i];
    for (int i = at + 1; i < r; i++) us.d[us.rank++] = xs.d[i];
    return wg_make(s, op, VALS(x, iv, wg_new(s, graph_type(s->g, x)->dt, us, WG_ANY, 9, 30)), a.at, a.n);
}

static inline bool wg_blocks(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    bool batch = op == OP_SPACE_TO_BATCH || op == OP_BATCH_TO_SPACE,
         spread = op == OP_DEPTH_TO_SPACE || op == OP_PIXEL_SHUFFLE;
    shape sh = SHAPE(wg_upto(s, 1, 3), wg_upto(s, 1, 4), wg_upto(s, 1, 4), wg_upto(s, 1, 4));
    int64_t f = wg_upto(s, 1, 3), *b = wg_ints(s, MAX_RANK), *e = wg_ints(s, 2 * MAX_RANK);
    if (batch) {
        sh.rank = (int)wg_upto(s, 3, 5), sh.d[4] = sh.rank > 4 ? wg_upto(s, 1, 3) : 0;
        if (sh.rank < 4) sh.d[3] = 0;
        int m = sh.rank - 2;
        int64_t all = 1;
        for (int i = 0; i < m; i++) {
            b[i] = wg_upto(s, 1, 3), e[2 * i] = wg_upto(s, 0, 2), e[2 * i + 1] = wg_upto(s, 0, 2), all *= b[i];
            if (op == OP_SPACE_TO_BATCH) e[2 * i + 1] += (b[i] - (sh.d[2 + i] + e[2 * i] + e[2 * i + 1]) % b[i]) % b[i];
        }
        if (op == OP_BATCH_TO_SPACE) sh.d[0] *= all;
        wg_at(&a, AT_LIST(BLOCK_SHAPE, b, m));
        wg_at(&a, op == OP_SPACE_TO_BATCH ? AT_LIST(PADDINGS, e, 2 * m) : AT_LIST(CROPS, e, 2 * m));
    } else {
        if (spread) sh.d[1] *= f * f;
        else sh.d[2] *= f, sh.d[3] *= f;
        wg_at(&a, (attr){ .id = op_get(op)->attr[0].id, .kind = ATTR_INT, .u.i = f });
    }
    val x = wg_new(s, s->o.smooth || wg_chance(s, 70) ? s->o.f : DT_I32, sh, WG_ANY, 20, 10);
    return wg_make(s, op, VALS(x), a.at, a.n);
}

static inline bool wg_image(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    val x = wg_float(s, op == OP_CROP_RESIZE || op == OP_RESAMPLE || op == OP_AFFINE ? 4 : 3,
                     op == OP_CROP_RESIZE || op == OP_RESAMPLE || op == OP_AFFINE ? 4 : 5);
    dtype dt = graph_type(s->g, x)->dt;
    shape xs = *wg_of(s, x);
    static const char *const modes[] = { "DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS",
                                         "UNALIGN_CORNERS" };
    const char *sampling = modes[rng_below(&s->r, COUNT(modes))];
    static const double up[] = { 1, 2, 3, 1.5, 0.5, 2.5, 0.75, 1.25 };
    int64_t *p = wg_ints(s, 4);
    switch (op) {
    case OP_RESIZE: {
        int n = (int)wg_upto(s, 1, 3);
        for (int i = 0; i < n; i++) p[i] = wg_chance(s, 15) ? 0 : wg_upto(s, 1, 9);
        wg_at(&a, AT_LIST(SHAPE, p, n));
        if (wg_chance(s, 70)) wg_at(&a, AT_S(MODE, WG_WORD(s, "LINEAR", "NEAREST_NEIGHBOR")));
        if (wg_chance(s, 70)) wg_at(&a, AT_S(SAMPLING_MODE, sampling));
        break;
    }
    case OP_RESIZE_BILINEAR:
    case OP_RESIZE_NEAREST:
        wg_at(&a, AT_I(TARGET_SIZE_HEIGHT, wg_upto(s, 1, 9))), wg_at(&a, AT_I(TARGET_SIZE_WIDTH, wg_upto(s, 1, 9)));
        if (op == OP_RESIZE_BILINEAR) wg_at(&a, AT_S(SAMPLING_MODE, sampling));
        break;
    case OP_UPSAMPLE_BILINEAR:
    case OP_UPSAMPLE_NEAREST:
        wg_at(&a, AT_F(SCALE_FACTOR_HEIGHT, up[rng_below(&s->r, COUNT(up))])),
            wg_at(&a, AT_F(SCALE_FACTOR_WIDTH, up[rng_below(&s->r, COUNT(up))]));
        if (op == OP_UPSAMPLE_BILINEAR && wg_chance(s, 70)) wg_at(&a, AT_B(ALIGN_CORNERS, wg_chance(s, 50)));
        break;
    case OP_CROP_RESIZE: {
        int form = (int)wg_upto(s, 0, 3);
        bool norm = wg_chance(s, 50);
        int64_t n = form == 0 ? wg_upto(s, 1, xs.d[0]) : wg_upto(s, 1, 4);
        shape bs = form == 2 ? SHAPE(n, 5) : form == 3 ? SHAPE(n, 1, 4, 1, 1) : SHAPE(n, 4);
        double *b = TAKE(&s->mem, double, (size_t)wg_count(&bs));
        int w = form == 2 ? 5 : 4;
        for (int64_t i = 0; i < n; i++)
            for (int k = 0; k < w; k++) {
                double u = rng_range(&s->r, 0, norm ? 1.2 : (double)xs.d[2 + k % 2] + 1);
                b[i * w + k] = dtype_round(dt, w == 5 && k == 0 ? (double)wg_upto(s, 0, xs.d[0] - 1) : u);
            }
        val bv = wg_hold(s, (ttype){ dt, bs }, b, wg_chance(s, 40)),
            iv = form == 1 ? wg_places(s, SHAPE(n), xs.d[0], false) : NO_VAL;
        wg_at(&a, AT_I(TARGET_HEIGHT, wg_upto(s, 1, 5))), wg_at(&a, AT_I(TARGET_WIDTH, wg_upto(s, 1, 5)));
        wg_at(&a, AT_B(NORMALIZED_COORDINATES, norm));
        if (wg_chance(s, 40)) wg_at(&a, AT_F(SPATIAL_SCALE, 0.5));
        if (wg_chance(s, 60)) wg_at(&a, AT_S(SAMPLING_MODE, sampling));
        if (wg_chance(s, 60))
            wg_at(&a, AT_S(BOX_COORDINATE_MODE, WG_WORD(s, "CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST",
                                                        "CENTER_SIZE_HEIGHT_FIRST", "CENTER_SIZE_WIDTH_FIRST")));
        if (wg_chance(s, 30)) wg_at(&a, AT_F(PADDING_VALUE, 0.5));
        return wg_make(s, op, VALS(x, bv, iv), a.at, a.n);
    }
    case OP_RESAMPLE:
    case OP_AFFINE: {
        const char *cm = WG_WORD(s, "unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one");
        double lo = cm[0] == 'u' ? -2 : cm[11] == 'm' ? -1.4 : -0.3, hi = cm[0] == 'u' ? 8 : 1.3;
        shape cs = op == OP_AFFINE ? SHAPE(wg_chance(s, 50) ? 1 : xs.d[0], 6)
                                   : SHAPE(xs.d[0], wg_upto(s, 1, 5), wg_upto(s, 1, 5), 2);
        double *b = TAKE(&s->mem, double, (size_t)wg_count(&cs));
        for (int64_t i = 0; i < wg_count(&cs); i++)
            b[i] = dtype_round(dt, op == OP_AFFINE ? rng_range(&s->r, -1, 1.5) : rng_range(&s->r, lo, hi));
        val cv = wg_hold(s, (ttype){ dt, cs }, b, wg_chance(s, 40));
        if (op == OP_AFFINE)
            wg_at(&a, AT_I(OUTPUT_HEIGHT, wg_upto(s, 1, 6))), wg_at(&a, AT_I(OUTPUT_WIDTH, wg_upto(s, 1, 6)));
        else {
            if (wg_chance(s, 60)) wg_at(&a, AT_S(SAMPLING_MODE, WG_WORD(s, "bilinear", "nearest")));
            if (wg_chance(s, 70))
                wg_at(&a, AT_S(PADDING_MODE, WG_WORD(s, "constant", "border", "reflection", "symmetric")));
        }
        wg_at(&a, AT_S(COORDINATES_MODE, cm));
        if (wg_chance(s, 60)) wg_at(&a, AT_B(ALIGN_CORNERS, wg_chance(s, 50)));
        if (wg_chance(s, 30)) wg_at(&a, AT_F(PADDING_VALUE, -1.5));
        return wg_make(s, op, VALS(x, cv), a.at, a.n);
    }
    default: return false;
    }
    return wg_make(s, op, VALS(x), a.at, a.n);
}

static inline bool wg_quant(wg *s, op_id op)
{
    static const dtype bytes[] = { DT_I8, DT_U8, DT_I4, DT_U4 };
    dtype qt = bytes[rng_below(&s->r, op == OP_QUANTIZE || op == OP_DEQUANTIZE ? 2 : 4)];
    wg_attrs a = { 0 };
    val x = op == OP_QUANTIZE ? wg_float(s, 0, 5)
                              : wg_new(s, qt, wg_shape(s, 1, 5), WG_ANY, 255, op == OP_DEQUANTIZE ? 30 : 100);
    dtype ft = op == OP_QUANTIZE ? graph_type(s->g, x)->dt : s->o.f;
    shape xs = *wg_of(s, x), ps = { 0 };
    int r = xs.rank, axis = r ? (int)wg_upto(s, 0, r - 1) : 0;
    if (op == OP_CX_BLOCK) {
        ps = xs;
        for (int i = 0; i < r; i++) {
            int64_t b = wg_upto(s, 1, xs.d[i]);
            ps.d[i] = xs.d[i] % b ? 1 : xs.d[i] / b;
        }
        val sc = wg_new(s, ft, ps, WG_SMALL, 1, 100),
            off = wg_chance(s, 50) ? wg_new(s, wg_chance(s, 60) ? qt : ft, ps, WG_ANY, 4, 100) : NO_VAL;
        return wg_make(s, op, VALS(x, sc, off), NULL, 0);
    }
    if (r && wg_chance(s, 60)) ps = SHAPE(xs.d[axis]);
    if (ps.rank || op == OP_CX_AFFINE || (r && wg_chance(s, 20)))
        wg_at(&a, AT_I(AXIS, wg_chance(s, 50) ? axis : axis - r));
    val sc = wg_new(s, ft, ps, op == OP_QUANTIZE ? WG_POSITIVE : WG_SMALL, 1, op == OP_CX_AFFINE ? 100 : 60),
        z = NO_VAL;
    if (op == OP_CX_AFFINE || wg_chance(s, 60))
        z = wg_new(s, qt, op == OP_CX_AFFINE && wg_chance(s, 30) ? (shape){ 0 } : ps, WG_ANY, 20,
                   op == OP_CX_AFFINE ? 100 : 60);
    if (op == OP_QUANTIZE) wg_at(&a, AT_S(OUTPUT_DTYPE, dtype_name(qt)));
    return wg_make(s, op, VALS(x, sc, z), a.at, a.n);
}

static inline bool wg_compressed(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    shape xs = wg_shape(s, 1, 4);
    int64_t n = wg_count(&xs);
    if (op == OP_CX_LUT && wg_chance(s, 40)) { /* the older form: packed bytes and one table */
        static const int bits[] = { 1, 2, 4, 6, 8 };
        int b = bits[rng_below(&s->r, 5)];
        int64_t *sh = wg_ints(s, xs.rank);
        memcpy(sh, xs.d, sizeof *sh * (size_t)xs.rank);
        wg_at(&a, AT_LIST(SHAPE, sh, xs.rank));
        return wg_make(s, op,
                       VALS(wg_new(s, DT_U8, SHAPE((n * b + 7) / 8), WG_ANY, 255, 100),
                            wg_new(s, s->o.f, SHAPE((int64_t)1 << b), WG_ANY, 1, 100)),
                       a.at, a.n);
    }
    if (op == OP_CX_LUT) {
        static const dtype ut[] = { DT_U1, DT_U2, DT_U3, DT_U4, DT_U6, DT_U8 };
        dtype t = ut[rng_below(&s->r, COUNT(ut))];
        shape lut = { .rank = xs.rank + 2 };
        for (int i = 0; i < xs.rank; i++) lut.d[i] = wg_chance(s, 60) ? 1 : xs.d[i];
        lut.d[xs.rank] = (int64_t)1 << dtype_bits(t), lut.d[xs.rank + 1] = 1;
        if (wg_chance(s, 40)) lut.d[xs.rank + 1] = wg_upto(s, 1, 3), wg_at(&a, AT_I(VECTOR_AXIS, wg_axis(s, xs.rank)));
        if (wg_count(&lut) > 4000) return false;
        return wg_make(s, op, VALS(wg_new(s, t, xs, WG_ANY, 255, 100), wg_new(s, s->o.f, lut, WG_ANY, 1, 100)), a.at,
                       a.n);
    }
    bool old = op == OP_CX_SPARSE && wg_chance(s, 40), whole = op == OP_CX_SPARSE_BLOCK;
    double *m = TAKE(&s->mem, double, (size_t)n + 8), *p = TAKE(&s->mem, double, (size_t)n + 8);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) m[i] = wg_chance(s, 50), kept += m[i] != 0;
    if (!kept) m[0] = 1, kept = 1;
    val mask;
    if (old) {
        int64_t *sh = wg_ints(s, xs.rank);
        memcpy(sh, xs.d, sizeof *sh * (size_t)xs.rank);
        for (int64_t i = 0; i < n; i++) p[i / 8] += m[i] != 0 ? (double)(1 << i % 8) : 0;
        mask = wg_hold(s, TTYPE(DT_U8, (n + 7) / 8), p, true);
        wg_at(&a, AT_LIST(SHAPE, sh, xs.rank));
    } else mask = wg_hold(s, (ttype){ DT_U1, xs }, m, true);
    if (!whole) return wg_make(s, op, VALS(wg_new(s, s->o.f, SHAPE(kept), WG_ANY, 1, 100), mask), a.at, a.n);
    shape ps = xs;
    for (int i = 0; i < xs.rank; i++) ps.d[i] = wg_chance(s, 50) ? 1 : xs.d[i];
    val sc = wg_new(s, s->o.f, ps, WG_SMALL, 1, 100),
        off = wg_chance(s, 50) ? wg_new(s, DT_I8, ps, WG_ANY, 5, 100) : NO_VAL;
    if (!wg_make(s, op, VALS(mask, wg_new(s, DT_I8, SHAPE(kept), WG_ANY, 100, 100), sc, off), a.at, a.n)) return false;
    val q = s->v[s->n - 1]; /* the values behind their mask: what reads them joins both */
    s->n -= 2, s->n_fresh = 0;
    tensor64 keep = s->x[s->n + 1];
    wg_put(s, q, keep);
    tensor64 mk = { { DT_U1, xs }, m };
    wg_put(s, (val){ q.i - 1 }, mk);
    bool ok = wg_make(s, OP_CX_SPARSE, VALS(q, (val){ q.i - 1 }), NULL, 0);
    int n_kept = 0;
    for (int i = 0; i < s->n; i++) /* nothing else may read them */
        if (s->v[i].i != q.i && s->v[i].i != q.i - 1) s->v[n_kept] = s->v[i], s->x[n_kept++] = s->x[i];
    s->n = n_kept;
    return ok;
}

static inline bool wg_fill(wg *s, op_id op)
{
    wg_attrs a = { 0 };
    shape sh = wg_shape(s, 0, 4);
    int64_t *p = wg_ints(s, MAX_RANK);
    memcpy(p, sh.d, sizeof sh.d);
    wg_at(&a, AT_LIST(SHAPE, p, sh.rank));
    wg_at(&a, AT_S(DTYPE, s->o.smooth || wg_chance(s, 70) ? dtype_name(s->o.f) : WG_WORD(s, "int32", "bool", "int8")));
    if (op == OP_FILL) wg_at(&a, AT_F(VALUE, wg_chance(s, 50) ? 1 : 0));
    else wg_at(&a, AT_I(SEED, wg_upto(s, 0, 1000)));
    return wg_make(s, op, NULL, 0, a.at, a.n);
}

#endif
