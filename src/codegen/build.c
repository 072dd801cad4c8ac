/* build.c: tensors, views, constants and instructions of a program under construction.
 * In: calls of the selectors.  Out: numbers and rows in the compile's context. */
#include <math.h>
#include <stdarg.h>

#include "base/plain.h"
#include "codegen/codegen_int.h"

void cg_fail(cg *c, an_status st, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (st == AN_NOMEM) diag_nomem(&c->err);
    else if (!c->at) diag_fail(&c->err, st, NOWHERE, "%s", msg);
    else diag_fail(&c->err, st, c->at->at, "%s %s: %s", c->at->mil, c->at->name, msg);
}

static int nomem(cg *c)
{
    diag_nomem(&c->err);
    return NONE;
}

dtype cg_dt(const cg *c, dtype t) { return c->soft && (t == DT_F32 || t == DT_BF16 || t == DT_F64) ? DT_F16 : t; }
dtype cg_wide(dtype t) { return dtype_is_float(t) && t != DT_F64 ? DT_F32 : t; }

int64_t cg_prod(const int64_t *d, int from, int to)
{
    int64_t p = 1;
    for (int i = from; i < to; i++) p *= d[i];
    return p;
}

int64_t cg_elems(const shape *s) { return cg_prod(s->d, 0, s->rank); }

/* ---- tensors ---- */

static int add_tensor(cg *c, const tens *t)
{
    if (c->err.st) return NONE;
    if (c->t.n >= INT32_MAX / 2 || !VEC_PUSH(&c->mem, &c->t, *t)) return nomem(c);
    return (int)c->t.n - 1;
}

int cg_tensor(cg *c, dtype dt, const shape *sh)
{
    size_t bytes;
    if (c->err.st) return NONE;
    if (!shape_bytes(&(ttype){ dt, *sh }, &bytes) || bytes > (uint64_t)1 << 46) {
        strbuf b = { 0 };
        sb_shape(&b, sh);
        cg_fail(c, AN_UNSUPPORTED, "a tensor %s of %s is too large, or has an extent that is not known", dtype_name(dt),
                b.at ? b.at : "?");
        sb_free(&b);
        return NONE;
    }
    if (!cg_elems(sh)) return cg_fail(c, AN_UNSUPPORTED, "a tensor without elements"), NONE;
    return add_tensor(
        c, &(tens){ .dt = dt, .sh = *sh, .root = (int)c->t.n, .where = SPACE_SCRATCH, .slot = NONE, .bytes = bytes });
}

int cg_view(cg *c, int t, const shape *sh)
{
    if (c->err.st || t < 0) return NONE;
    if (shape_eq(cg_sh(c, t), sh)) return t;
    if (cg_elems(cg_sh(c, t)) != cg_elems(sh)) {
        cg_fail(c, AN_BUG, "a view of %lld elements as %lld", (long long)cg_elems(cg_sh(c, t)),
                (long long)cg_elems(sh));
        return NONE;
    }
    return add_tensor(
        c, &(tens){ .dt = c->t.at[t].dt, .sh = *sh, .root = cg_root(c, t), .at = c->t.at[t].at, .slot = NONE });
}

static int add_const(cg *c, const cst *k, dtype dt, const shape *sh)
{
    int t = cg_tensor(c, dt, sh);
    if (t < 0) return NONE;
    cst e = *k;
    e.tensor = t;
    if (!VEC_PUSH(&c->mem, &c->consts, e)) return nomem(c);
    c->t.at[t].where = SPACE_CONST;
    c->t.at[t].slot = (int)c->consts.n - 1;
    c->t.at[t].fixed = true;
    return t;
}

/* data must outlive the compile. */
static int cg_inline(cg *c, dtype dt, const shape *sh, const void *data)
{
    cst k = { .kind = CK_DENSE, .n_src = 1, .axis = -1, .src[0] = { .data = data, .dt = dt, .sh = *sh } };
    if (!shape_bytes(&(ttype){ dt, *sh }, &k.src[0].bytes))
        return cg_fail(c, AN_UNSUPPORTED, "a constant of unknown size"), NONE;
    return add_const(c, &k, dt, sh);
}

int cg_scalar(cg *c, dtype dt, double x)
{
    if (c->err.st) return NONE;
    for (size_t i = 0; i < c->scalars.n; i++)
        if (c->scalars.at[i].dt == dt && !memcmp(&c->scalars.at[i].x, &x, sizeof x)) return c->scalars.at[i].tensor;
    unsigned char *p = TAKE(&c->mem, unsigned char, 16);
    if (!p) return nomem(c);
    dtype_store(dt, p, 0, x);
    int t = cg_inline(c, dt, &(shape){ 0 }, p);
    if (t >= 0 && !VEC_PUSH(&c->mem, &c->scalars, ((struct scalar_const){ dt, x, t }))) return nomem(c);
    return t;
}

int cg_iota(cg *c, int64_t n, int64_t modulo)
{
    int32_t *p = c->err.st ? NULL : TAKE(&c->mem, int32_t, (size_t)n);
    if (!p) return c->err.st ? NONE : nomem(c);
    for (int64_t i = 0; i < n; i++) p[i] = (int32_t)(i % modulo);
    return cg_inline(c, DT_I32, SH(n), p);
}

/* ---- constants of the graph ---- */

static bool source_of(cg *c, const node *n, source *s)
{
    *s = (source){ .dt = graph_type(c->g, n->out)->dt, .sh = graph_type(c->g, n->out)->sh };
    if (!shape_bytes(graph_type(c->g, n->out), &s->bytes))
        return cg_fail(c, AN_UNSUPPORTED, "constant %s has no size", n->name), false;
    const const_data *k = n->cst;
    if (k && k->blob_path && !(c->o.inline_consts && k->data)) {
        s->path = k->blob_path;
        s->offset = k->blob_offset;
        /* it named the data; records come right before */
        if (n->flags & INST_BLOB_DATA_OFFSET && s->offset >= 64) s->offset -= 64;
        return true;
    }
    if (!k || !k->data) return cg_fail(c, AN_INPUT, "constant %s has no data and no weight file", n->name), false;
    s->data = k->data;
    return true;
}

/* A float wider than the program's: the loader rounds it when it makes the tensor. */
static int narrowed(cg *c, int t)
{
    if (t < 0) return NONE;
    tens *k = &c->t.at[t];
    size_t bytes;
    k->dt = cg_dt(c, k->dt);
    if (!shape_bytes(&(ttype){ k->dt, k->sh }, &bytes))
        return cg_fail(c, AN_UNSUPPORTED, "a constant of unknown size"), NONE;
    k->bytes = bytes;
    return t;
}

int cg_const_as(cg *c, int t, dtype dt)
{
    if (c->err.st || t < 0) return NONE;
    int root = cg_root(c, t);
    shape own = c->t.at[root].sh, seen = *cg_sh(c, t);
    cst k = c->consts.at[c->t.at[root].slot];
    return cg_view(c, add_const(c, &k, dt, &own), &seen);
}

void select_const(cg *c, const node *n)
{
    const ttype *t = graph_type(c->g, n->out);
    cst k = { .kind = CK_DENSE, .n_src = 1, .axis = -1 };
    if (t->dt == DT_STRING || c->n_uses[n->out.i] == 0) return; /* strings reach ops as attributes */
    if (!source_of(c, n, &k.src[0])) return;
    c->of[n->out.i] = narrowed(c, add_const(c, &k, t->dt, &t->sh));
}

void cg_expect(cg *c, const node *n, const_kind kind)
{
    cst k = { .kind = kind, .n_src = 1, .axis = -1 };
    const ttype *t = graph_type(c->g, n->out);
    if (c->err.st || !source_of(c, n, &k.src[0]) || !k.src[0].path) return;
    for (size_t i = 0; i < c->consts.n; i++) {
        const cst *e = &c->consts.at[i];
        if (e->kind == kind && e->src[0].path && e->src[0].offset == k.src[0].offset &&
            !strcmp(e->src[0].path, k.src[0].path))
            return;
    }
    (void)add_const(c, &k, t->dt, &t->sh); /* c keeps an error */
}

/* Attributes that came from weight files are fields of instructions by now: the manifest says what they were made
 * from. */
void cg_expect_read(cg *c)
{
    for (size_t i = 0; i < c->g->read.n && !c->o.final && !c->o.inline_consts; i++) {
        const read_record *r = &c->g->read.at[i];
        size_t bytes;
        if (!shape_bytes(&r->type, &bytes) || !bytes) continue; /* nothing of it can change */
        const source now = { .path = r->path, .offset = r->offset, .dt = r->type.dt, .sh = r->type.sh, .bytes = bytes };
        const source was = { .data = r->data, .dt = r->type.dt, .sh = r->type.sh, .bytes = bytes };
        /* c keeps an error */
        (void)add_const(c, &(cst){ .kind = CK_FIXED, .n_src = 2, .axis = -1, .src = { now, was } }, now.dt, &now.sh);
    }
}

/* A compressed constant: every operand is a plain constant, and becomes a source. */
static bool gather_sources(cg *c, cst *k, const int *operands, int n)
{
    for (int i = 0; i < n; i++) {
        if (!have(c, operands[i])) continue;
        const node *m = graph_maker(c->g, c->at->in[operands[i]]);
        if (m->op != OP_CONST)
            return cg_fail(c, AN_UNSUPPORTED, "%s is made by %s, wanted a plain constant",
                           op_get(c->at->op)->in[operands[i]].name, m->mil),
                   false;
        if (!source_of(c, m, &k->src[k->n_src++])) return false;
    }
    return true;
}

static void set_const(cg *c, const_kind kind, int64_t axis, const int *operands, int n)
{
    cst k = { .kind = kind, .axis = axis };
    if (gather_sources(c, &k, operands, n))
        cg_set(c, 0, narrowed(c, add_const(c, &k, cg_out_type(c, 0)->dt, &cg_out_type(c, 0)->sh)));
}

void select_cx_affine(cg *c)
{
    int axis;
    if (cg_axis(c, A_AXIS, cg_in_type(c, 0)->sh.rank, &axis))
        set_const(c, CK_AFFINE, axis, (const int[]){ 0, 1, 2 }, 3);
}

void select_cx_lut(cg *c)
{
    int axis = NONE;
    if (at_get(c, A_VECTOR_AXIS) && !cg_axis(c, A_VECTOR_AXIS, cg_in_type(c, 0)->sh.rank, &axis)) return;
    set_const(c, CK_LUT, axis, (const int[]){ 0, 1 }, 2);
}

void select_cx_block(cg *c) { set_const(c, CK_BLOCK, -1, (const int[]){ 0, 1, 2 }, 3); }

/* Whatever reads a value other than as the packed values that constexpr_sparse_to_dense joins with a mask; NULL:
 * nothing does. */
static const char *read_unpacked(const graph *g, val kept)
{
    for (size_t i = 1; i < g->nodes.n; i++) {
        const node *n = &g->nodes.at[i];
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k].i == kept.i && !(n->op == OP_CX_SPARSE && k == 0)) return n->mil;
    }
    for (size_t i = 0; i < g->outputs.n; i++)
        if (g->outputs.at[i].v.i == kept.i) return "the program's results";
    return NULL;
}

/* The mask is itself; the kept values only mean something together with it, so the op that joins them takes the
 * sources. */
void select_cx_sparse_block(cg *c)
{
    const node *mask = graph_maker(c->g, c->at->in[0]);
    if (mask->op != OP_CONST) {
        cg_fail(c, AN_UNSUPPORTED, "data_mask is made by %s, wanted a plain constant", mask->mil);
        return;
    }
    const char *reader = read_unpacked(c->g, graph_out(c->at->out, 1));
    if (reader) {
        cg_fail(c, AN_UNSUPPORTED, "the packed nonzero_data is read by %s, wanted constexpr_sparse_to_dense alone",
                reader);
        return;
    }
    c->of[c->at->out.i] = c->of[c->at->in[0].i];
}

void select_cx_sparse(cg *c)
{
    const node *kept = graph_maker(c->g, c->at->in[0]), *here = c->at;
    if (kept->op != OP_CX_SPARSE_BLOCK) {
        set_const(c, CK_SPARSE, -1, (const int[]){ 0, 1 }, 2);
        return;
    }
    const value *m = graph_value(c->g, here->in[1]), *own = graph_value(c->g, kept->in[0]);
    bool same = m->node == own->node || (&c->g->nodes.at[m->node] == kept && m->out == 0);
    if (!same) {
        cg_fail(c, AN_UNSUPPORTED, "nonzero_data was scaled under another mask");
        return;
    }
    cst k = { .kind = CK_SPARSE_BLOCK, .axis = -1 };
    c->at = kept;
    bool ok = gather_sources(c, &k, (const int[]){ 1, 0, 2, 3 }, 4); /* values, mask, scale, offset */
    c->at = here;
    if (ok) cg_set(c, 0, narrowed(c, add_const(c, &k, cg_out_type(c, 0)->dt, &cg_out_type(c, 0)->sh)));
}

/* ---- instructions ---- */

ins *cg_ins(cg *c, insn_id op, int y, const int *opnd, int n)
{
    if (c->err.st) return NULL;
    ins x = { .op = op, .line = c->at ? c->at->at.line : 0, .n_y = 1, .y = { y, NONE }, .n_opnd = n };
    bool fixed = true;
    if (y < 0) return cg_fail(c, AN_BUG, "an instruction without a result"), NULL;
    for (int i = 0; i < n; i++) {
        x.opnd[i] = opnd[i];
        fixed = fixed && (opnd[i] < 0 || c->t.at[cg_root(c, opnd[i])].fixed);
    }
    x.chain = op == IN_EW || op == IN_CONV || op == IN_CONV_T || op == IN_MATMUL;
    tens *t = &c->t.at[cg_root(c, y)];
    t->fixed = op != IN_RANDOM && fixed && (t->n_def == 0 || t->fixed);
    t->n_def++;
    if (!VEC_PUSH(&c->mem, &c->ins, x)) return nomem(c), NULL;
    return &c->ins.at[c->ins.n - 1];
}

void cg_i(cg *c, ins *n, int64_t x)
{
    if (n && !VEC_PUSH(&c->mem, &n->i, x)) nomem(c);
}

void cg_is(cg *c, ins *n, const int64_t *x, int len)
{
    cg_i(c, n, len);
    for (int k = 0; k < len; k++) cg_i(c, n, x[k]);
}

void cg_f(ins *n, double x)
{
    if (n) n->f[n->n_f++] = x;
}

int cg_ext(cg *c, ins *n, int t)
{
    if (!n || t < 0) return NONE;
    int first = n->op == IN_EW ? 0 : 1; /* input 0 of an epilogue is the accumulator */
    for (int k = 0; k < n->n_ext; k++)
        if (n->ext[k] == t) return k + first;
    if (n->n_ext == CHAIN_MAX_IN) return cg_fail(c, AN_BUG, "a chain of more than %d inputs", CHAIN_MAX_IN), NONE;
    if (!c->t.at[cg_root(c, t)].fixed) c->t.at[cg_root(c, n->y[0])].fixed = false;
    n->ext[n->n_ext++] = t;
    return n->n_ext - 1 + first;
}

bool cg_room(cg *c, ins *n, int steps)
{
    if (c->err.st) return false;
    if (steps <= n->cap_step) return true;
    int cap = MIN(CHAIN_MAX_STEPS, MAX(steps, 2 * n->cap_step));
    step *s = TAKE(&c->mem, step, (size_t)cap);
    if (!s) return nomem(c), false;
    if (n->n_step) memcpy(s, n->steps, sizeof *s * (size_t)n->n_step);
    n->steps = s, n->cap_step = cap;
    return true;
}

void cg_step(cg *c, ins *n, fn_id f, int a, int b, int e, const double *p, dtype dt)
{
    if (!n) return;
    if (n->n_step == CHAIN_MAX_STEPS) {
        cg_fail(c, AN_BUG, "a chain of more than %d steps", CHAIN_MAX_STEPS);
        return;
    }
    if (!cg_room(c, n, n->n_step + 1)) return;
    n->steps[n->n_step++] = (step){ .fn = f, .arg = { a, b, e }, .p = { p ? p[0] : 0, p ? p[1] : 0 }, .dt = dt };
}

int cg_ew(cg *c, dtype dt, const shape *sh, fn_id f, const int *in, int n, const double *p)
{
    int y = cg_tensor(c, dt, sh), arg[3] = { NONE, NONE, NONE };
    ins *i = cg_ins(c, IN_EW, y, NULL, 0);
    for (int k = 0; k < n; k++) arg[k] = cg_ext(c, i, in[k]);
    cg_step(c, i, f, arg[0], arg[1], arg[2], p, dt);
    return y;
}

/* ---- moving ---- */

void cg_move(cg *c, int y, int x, int rank, const int64_t *d, int64_t ys, const int64_t *yst, int64_t xs,
             const int64_t *xst, bool width_offset)
{
    int64_t size[2 * MAX_RANK], a[2 * MAX_RANK], b[2 * MAX_RANK];
    int n = 0;
    if (c->err.st || y < 0 || x < 0) return;
    for (int i = 0; i < rank; i++) {
        if (d[i] == 0) return; /* nothing to copy */
        if (d[i] == 1) continue;
        bool joins = n && a[n - 1] == d[i] * yst[i] && b[n - 1] == d[i] * xst[i];
        if (joins) size[n - 1] *= d[i], a[n - 1] = yst[i], b[n - 1] = xst[i];
        else size[n] = d[i], a[n] = yst[i], b[n] = xst[i], n++;
    }
    if (!n) size[0] = a[0] = b[0] = 1, n = 1;
    if (n > ENGINE_MAX_RANK) {
        cg_fail(c, AN_UNSUPPORTED, "a copy over %d axes, at most %d are possible", n, ENGINE_MAX_RANK);
        return;
    }
    ins *m = cg_ins(c, IN_MOVE, y, OPS(x));
    cg_is(c, m, size, n);
    cg_i(c, m, ys);
    cg_is(c, m, a, n);
    cg_i(c, m, xs);
    cg_is(c, m, b, n);
    cg_i(c, m, width_offset);
}

int cg_copy(cg *c, int x)
{
    if (c->err.st || x < 0) return NONE;
    shape s = *cg_sh(c, x);
    int y = cg_tensor(c, c->t.at[x].dt, &s);
    int64_t n = cg_elems(&s), one = 1;
    cg_move(c, y, x, 1, &n, 0, &one, 0, &one, false);
    return y;
}

int cg_permute(cg *c, int x, const int *perm)
{
    if (c->err.st || x < 0) return NONE;
    shape s = *cg_sh(c, x), o = s;
    int64_t own[MAX_RANK], to[MAX_RANK], st[MAX_RANK];
    bool moves = false;
    shape_strides(&s, own);
    for (int i = 0, last = -1; i < s.rank; i++) {
        o.d[i] = s.d[perm[i]];
        st[i] = own[perm[i]];
        if (o.d[i] == 1) continue; /* an axis of one may go anywhere */
        moves = moves || perm[i] < last;
        last = perm[i];
    }
    if (!moves) return cg_view(c, x, &o);
    int y = cg_tensor(c, c->t.at[x].dt, &o);
    shape_strides(&o, to);
    cg_move(c, y, x, o.rank, o.d, 0, to, 0, st, false);
    return y;
}

void cg_fill(cg *c, int y, double v) { cg_f(cg_ins(c, IN_FILL, y, NULL, 0), v); }

int cg_cast(cg *c, int x, dtype dt)
{
    if (c->err.st || x < 0) return NONE;
    if (c->t.at[x].dt == dt) return x;
    shape s = *cg_sh(c, x);
    bool between_floats = dtype_is_float(dt) && dtype_is_float(c->t.at[x].dt);
    if (between_floats) return cg_ew(c, dt, &s, FN_COPY, &x, 1, NULL); /* a step like any other: it can join a chain */
    int y = cg_tensor(c, dt, &s);
    cg_ins(c, IN_CAST, y, OPS(x));
    return y;
}

/* ---- the node at hand ---- */

int cg_in(cg *c, int k)
{
    if (c->err.st || !have(c, k)) return NONE;
    int t = c->of[c->at->in[k].i];
    if (t < 0) cg_fail(c, AN_BUG, "operand %d has not been selected", k);
    return t;
}

const ttype *cg_in_type(const cg *c, int k) { return graph_type(c->g, c->at->in[k]); }

void cg_set(cg *c, int k, int t)
{
    if (c->err.st || t < 0) return;
    dtype want = cg_dt(c, cg_out_type(c, k)->dt);
    if (c->t.at[t].dt != want) t = cg_cast(c, t, want);
    c->of[c->at->out.i + (uint32_t)k] = cg_view(c, t, &cg_out_type(c, k)->sh);
}

bool cg_list(cg *c, attr_id a, int want, int64_t *out)
{
    if (attr_list(c->at->op, c->at->attrs, c->at->n_attr, a, want, out)) return true;
    const attr *got = at_get(c, a);
    cg_fail(c, AN_INPUT, "%s has %d entries, wanted %d", attr_name(a), got ? got->n : 0, want);
    return false;
}

bool cg_axis(cg *c, attr_id a, int rank, int *axis)
{
    if (axis_norm(at_int(c, a), rank, axis)) return true;
    cg_fail(c, AN_INPUT, "%s %lld is outside rank %d", attr_name(a), (long long)at_int(c, a), rank);
    return false;
}

bool cg_axes(cg *c, attr_id a, int rank, bool *on)
{
    const attr *l = at_get(c, a);
    for (int i = 0; i < rank; i++) on[i] = !l;
    for (int i = 0; l && i < l->n; i++) {
        int ax;
        if (!axis_norm(l->u.is[i], rank, &ax))
            return cg_fail(c, AN_INPUT, "%s has %lld, outside rank %d", attr_name(a), (long long)l->u.is[i], rank),
                   false;
        on[ax] = true;
    }
    return true;
}

bool cg_word(cg *c, attr_id a, const char *const *words, int n, int *pick)
{
    const char *s = at_str(c, a);
    for (int i = 0; i < n; i++)
        if (!strcmp(s, words[i])) return *pick = i, true;
    char known[160] = "";
    for (int i = 0; i < n; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", words[i]);
    }
    cg_fail(c, AN_INPUT, "unknown %s \"%.40s\", wanted one of %s", attr_name(a), s, known);
    return false;
}

int cg_channel(cg *c, int p, int rank)
{
    if (c->err.st || p < 0) return NONE;
    int64_t n = cg_elems(cg_sh(c, p));
    shape s = { 0 };
    if (n > 1) {
        s.rank = rank - 1; /* axis 1 of rank axes */
        for (int i = 0; i < s.rank; i++) s.d[i] = 1;
        s.d[0] = n;
    }
    return cg_view(c, p, &s);
}
