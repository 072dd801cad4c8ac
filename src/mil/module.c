/* module.c: a MIL module in memory: making one, comparing two, finding the way in. */
#include <math.h>
#include <stdlib.h>

#include "mil/mil_int.h"

/* ---- types ---- */

bool type_elems(const mil_type *t, int64_t *n)
{
    int64_t total = 1;
    bool zero = false;
    for (int k = 0; k < t->rank; k++) {
        if (t->dim[k] < 0) return false;
        zero |= t->dim[k] == 0;
        if (!mul_i64(total, t->dim[k], &total)) total = INT64_MAX;
    }
    *n = zero ? 0 : total;
    return true;
}

bool version_is_bare(const char *version)
{
    char *end;
    long major = strtol(version, &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return major > 1 || (major == 1 && minor >= 3);
}

static bool str_same(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

/* Scalar spelling does not count. */
static bool mil_type_same(const mil_type *a, const mil_type *b)
{
    if (a == b) return true;
    if (!a || !b || a->kind != b->kind || a->rank != b->rank || a->n_sub != b->n_sub) return false;
    if (a->kind == MT_TENSOR && a->dt != b->dt) return false;
    for (int k = 0; k < a->rank; k++)
        if (a->dim[k] != b->dim[k] || (a->dim[k] < 0 && !str_same(a->sym[k], b->sym[k]))) return false;
    for (int k = 0; k < a->n_sub; k++)
        if (!mil_type_same(a->sub[k], b->sub[k])) return false;
    return str_same(a->text, b->text);
}

/* ---- building ---- */

mil_module *mil_module_new(const char *version)
{
    mil_module *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->version = arena_str(&m->mem, version);
    if (m->version) return m;
    mil_free(m);
    return NULL;
}

void mil_free(mil_module *m)
{
    if (!m) return;
    arena_free(&m->mem);
    free(m);
}

mil_type *mil_type_tensor(mil_module *m, dtype dt, int rank, const int64_t *dim, bool bare)
{
    if (rank < 0 || rank > MIL_MAX_RANK) return NULL;
    mil_type *t = TAKE(&m->mem, mil_type, 1);
    if (!t) return NULL;
    *t = (mil_type){ .kind = MT_TENSOR, .dt = dt, .bare = bare && rank == 0, .rank = rank };
    for (int k = 0; k < rank; k++) {
        t->dim[k] = dim[k] < 0 ? -1 : dim[k];
        if (dim[k] < 0) t->sym[k] = "?";
    }
    return t;
}

static mil_lit *lit_new(mil_module *m, mil_lit_kind kind, mil_type *t)
{
    mil_lit *l = t ? TAKE(&m->mem, mil_lit, 1) : NULL;
    if (l) *l = (mil_lit){ .kind = kind, .type = t };
    return l;
}

mil_lit *mil_lit_data(mil_module *m, mil_type *t, const void *packed)
{
    mil_lit *l = lit_new(m, ML_DATA, t);
    size_t bytes;
    if (!l || !type_elems(t, &l->n) || !dtype_bytes(t->dt, l->n, &bytes)) return NULL;
    l->data = arena_take(&m->mem, bytes, 1, 8);
    if (!l->data) return NULL;
    if (bytes) memcpy(l->data, packed, bytes);
    return l;
}

mil_lit *mil_lit_str(mil_module *m, bool bare, const char *s)
{
    mil_lit *l = lit_new(m, ML_STRINGS, mil_type_tensor(m, DT_STRING, 0, NULL, bare));
    if (!l) return NULL;
    l->n = 1;
    l->str = TAKE(&m->mem, const char *, 1);
    if (!l->str || !(l->str[0] = arena_str(&m->mem, s))) return NULL;
    return l;
}

mil_lit *mil_lit_blob(mil_module *m, mil_type *t, const char *path, uint64_t offset)
{
    mil_lit *l = lit_new(m, ML_BLOB, t);
    if (!l || !(l->blob_path = arena_str(&m->mem, path))) return NULL;
    l->blob_offset = offset;
    l->blob_bare = version_is_bare(m->version);
    return l;
}

const mil_block *mil_main(const mil_module *m)
{
    for (size_t i = 0; i < m->n_func; i++)
        if (!strcmp(m->func[i].name, "main")) return &m->func[i];
    return m->n_func == 1 ? &m->func[0] : NULL;
}

/* ---- comparing: what differs first is written to `why`, innermost part first, each caller adding where it was ---- */

typedef struct {
    strbuf *why;
} cmp;

static bool differ(cmp *c, const char *what, const char *a, const char *b)
{
    if (c->why) sb_printf(c->why, "%s: \"%.60s\" against \"%.60s\"", what, a ? a : "(none)", b ? b : "(none)");
    return false;
}

static bool differ_n(cmp *c, const char *what, long long a, long long b)
{
    if (c->why) sb_printf(c->why, "%s: %lld against %lld", what, a, b);
    return false;
}

static bool within(cmp *c, const char *what, const char *name)
{
    if (c->why) sb_printf(c->why, ", in %s \"%.60s\"", what, name ? name : "");
    return false;
}

static bool same_type(cmp *c, const mil_type *a, const mil_type *b)
{
    if (mil_type_same(a, b)) return true;
    strbuf x = { 0 }, y = { 0 };
    if (a) print_type(&x, a);
    if (b) print_type(&y, b);
    differ(c, "type", x.at, y.at);
    sb_free(&x);
    sb_free(&y);
    return false;
}

static bool same_data(cmp *c, const mil_lit *a, const mil_lit *b)
{
    dtype dt = a->type->dt;
    size_t bytes;
    if (dtype_bytes(dt, a->n, &bytes) && !memcmp(a->data, b->data, bytes)) return true;
    for (int64_t i = 0; i < a->n; i++) { /* one NaN is as good as another; 0 and -0 are not */
        double x = dtype_load(dt, a->data, i), y = dtype_load(dt, b->data, i);
        if (isnan(x) && isnan(y)) continue;
        size_t bits = (size_t)dtype_bits(dt);
        bool same = bits == 64 ? !memcmp((char *)a->data + i * 8, (char *)b->data + i * 8, 8)
                               : x == y && !signbit(x) == !signbit(y);
        if (same) continue;
        if (c->why) sb_printf(c->why, "element %lld: %.17g against %.17g", (long long)i, x, y);
        return false;
    }
    return true;
}

static bool same_lit(cmp *c, const mil_lit *a, const mil_lit *b)
{
    if (!a != !b) return differ(c, "literal", a ? "one" : NULL, b ? "one" : NULL);
    if (!a) return true;
    if (a->kind != b->kind) return differ_n(c, "literal kind", a->kind, b->kind);
    if (!same_type(c, a->type, b->type)) return false;
    if (a->kind == ML_BLOB) {
        if (!str_same(a->blob_path, b->blob_path)) return differ(c, "blob path", a->blob_path, b->blob_path);
        return a->blob_offset == b->blob_offset ||
               differ_n(c, "blob offset", (long long)a->blob_offset, (long long)b->blob_offset);
    }
    if (a->n != b->n) return differ_n(c, "literal length", a->n, b->n);
    if (a->kind == ML_DATA) return same_data(c, a, b);
    if (a->kind == ML_STRINGS) {
        for (int64_t i = 0; i < a->n; i++)
            if (strcmp(a->str[i], b->str[i])) return differ(c, "string", a->str[i], b->str[i]);
        return true;
    }
    for (int64_t i = 0; i < a->n * (a->kind == ML_DICT ? 2 : 1); i++)
        if (!same_lit(c, a->item[i], b->item[i])) return false;
    return true;
}

/* Order of attributes and of named arguments is spelling, not meaning. */
static bool same_attrs(cmp *c, const mil_attr *a, int na, const mil_attr *b, int nb)
{
    if (na != nb) return differ_n(c, "number of attributes", na, nb);
    for (int i = 0; i < na; i++) {
        int k = i;
        if (strcmp(a[i].name, b[k].name))
            for (k = 0; k < nb && strcmp(a[i].name, b[k].name);) k++;
        if (k == nb) return differ(c, "attribute", a[i].name, NULL);
        if (!same_lit(c, a[i].lit, b[k].lit)) return within(c, "attribute", a[i].name);
    }
    return true;
}

static bool same_items(cmp *c, const mil_arg_item *a, int na, const mil_arg_item *b, int nb)
{
    if (na != nb) return differ_n(c, "number of values", na, nb);
    for (int i = 0; i < na; i++) {
        if (!str_same(a[i].ref, b[i].ref)) return differ(c, "value", a[i].ref, b[i].ref);
        if (!a[i].ref && !same_lit(c, a[i].lit, b[i].lit)) return false;
    }
    return true;
}

static bool same_vars(cmp *c, const mil_var *a, int na, const mil_var *b, int nb)
{
    if (na != nb) return differ_n(c, "number of names", na, nb);
    for (int i = 0; i < na; i++) {
        if (strcmp(a[i].name, b[i].name)) return differ(c, "name", a[i].name, b[i].name);
        if (!same_type(c, a[i].type, b[i].type)) return within(c, "value", a[i].name);
    }
    return true;
}

static bool same_block(cmp *c, const mil_block *a, const mil_block *b);

static bool same_op(cmp *c, const mil_op *a, const mil_op *b)
{
    if (strcmp(a->op, b->op)) return differ(c, "operation", a->op, b->op);
    if (!same_vars(c, a->out, a->n_out, b->out, b->n_out)) return within(c, "results of", a->op);
    if (a->n_arg != b->n_arg)
        return differ_n(c, "number of arguments", a->n_arg, b->n_arg) || within(c, "operation", a->op);
    for (int i = 0; i < a->n_arg; i++) {
        int k = i;
        if (strcmp(a->arg[i].name, b->arg[k].name))
            for (k = 0; k < b->n_arg && strcmp(a->arg[i].name, b->arg[k].name);) k++;
        if (k == b->n_arg) return differ(c, "argument", a->arg[i].name, NULL) || within(c, "operation", a->op);
        const mil_arg *x = &a->arg[i], *y = &b->arg[k];
        if (x->tuple != y->tuple) return differ_n(c, "tuple", x->tuple, y->tuple) || within(c, "argument", x->name);
        if (!same_items(c, x->item, x->n, y->item, y->n))
            return within(c, "argument", x->name) || within(c, "operation", a->op);
    }
    if (!same_attrs(c, a->attr, a->n_attr, b->attr, b->n_attr)) return within(c, "operation", a->op);
    if (a->n_block != b->n_block)
        return differ_n(c, "number of blocks", a->n_block, b->n_block) || within(c, "operation", a->op);
    for (int i = 0; i < a->n_block; i++)
        if (!same_block(c, &a->block[i], &b->block[i])) return within(c, "operation", a->op);
    return true;
}

static bool same_block(cmp *c, const mil_block *a, const mil_block *b)
{
    if (!str_same(a->name, b->name)) return differ(c, "block name", a->name, b->name);
    if (!str_same(a->opset, b->opset)) return differ(c, "opset", a->opset, b->opset);
    if (!same_vars(c, a->in, a->n_in, b->in, b->n_in) || !same_attrs(c, a->attr, a->n_attr, b->attr, b->n_attr))
        return within(c, "block", a->name);
    if (a->n_op != b->n_op)
        return differ_n(c, "number of operations", (long long)a->n_op, (long long)b->n_op) ||
               within(c, "block", a->name);
    for (size_t i = 0; i < a->n_op; i++)
        if (!same_op(c, &a->op[i], &b->op[i])) {
            if (a->op[i].n_out) within(c, "statement for", a->op[i].out[0].name);
            return within(c, "block", a->name);
        }
    return same_items(c, a->out, a->n_out, b->out, b->n_out) || within(c, "results of block", a->name);
}

bool mil_same(const mil_module *a, const mil_module *b, strbuf *why)
{
    cmp c = { why };
    if (strcmp(a->version, b->version)) return differ(&c, "version", a->version, b->version);
    if (!same_attrs(&c, a->attr, a->n_attr, b->attr, b->n_attr)) return within(&c, "program", a->version);
    if (a->n_func != b->n_func) return differ_n(&c, "number of functions", (long long)a->n_func, (long long)b->n_func);
    for (size_t i = 0; i < a->n_func; i++)
        if (!same_block(&c, &a->func[i], &b->func[i])) return false;
    return true;
}
