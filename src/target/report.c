/* report.c: the cost model beside published latencies and powers. Each row of published.def is built as operations
 * in memory, costed, and printed with its error; then the median absolute error per chip and overall, rows the
 * constants were fitted on apart. */
#include <stdlib.h>

#include "target/target_int.h"

typedef enum { PUB_CONV, PUB_VALID, PUB_GEMM, PUB_RELU, PUB_SOFTMAX, PUB_NORM, PUB_TINY, PUB_ATTEND,
               PUB_MATVEC } pub_kind;
typedef enum { FORM_DENSE, FORM_INT8, FORM_INT4, FORM_SPARSE, FORM_W8A8 } pub_form;
typedef enum { UNIT_MS, UNIT_W, UNIT_PER_W, UNIT_PJ } pub_unit;
typedef enum { USE_FIT, USE_FIT_SLOPE, USE_CHECK, USE_SLOPE, USE_MODEL, USE_PLACE } pub_use;
static bool is_fit(pub_use u) { return u == USE_FIT || u == USE_FIT_SLOPE; }
static bool is_slope(pub_use u) { return u == USE_SLOPE || u == USE_FIT_SLOPE; }
static bool is_estimate(pub_use u) { return u == USE_MODEL || u == USE_PLACE; }

typedef struct {
    const char *id, *chip;
    pub_kind kind;
    int64_t a, b, c, h, w;
    int depth;
    pub_form form;
    double value;
    pub_unit unit;
    pub_use use;
    const char *setup;
} published;

static const published rows[] = {
#define PUB(id_, chip_, kind_, a_, b_, c_, h_, w_, depth_, form_, ms_, use_, setup_)                                  \
    { .id = id_, .chip = chip_, .kind = PUB_##kind_, .a = a_, .b = b_, .c = c_, .h = h_, .w = w_, .depth = depth_,    \
      .form = FORM_##form_, .value = ms_, .use = USE_##use_, .setup = setup_ },
#include "target/published.def"
#undef PUB
};

static const published powers[] = {
#define PUB(...)
#define WATT(id_, chip_, kind_, a_, b_, c_, h_, w_, depth_, form_, value_, unit_, use_, setup_)                       \
    { .id = id_, .chip = chip_, .kind = PUB_##kind_, .a = a_, .b = b_, .c = c_, .h = h_, .w = w_, .depth = depth_,    \
      .form = FORM_##form_, .value = value_, .unit = UNIT_##unit_, .use = USE_##use_, .setup = setup_ },
#include "target/published.def"
#undef PUB
};

static const struct {
    const char *ids, *why;
} unmodelled[] = {
#define PUB(...)
#define UNMODELLED(ids_, why_) { ids_, why_ },
#include "target/published.def"
#undef PUB
};

/* ---- building a program ---- */

typedef struct {
    arena mem;
    VEC(op_inst) ops;
    bool *returned; /* of the last operation */
    bool failed;
} builder;

static const vrange anything = { -INFINITY, INFINITY };

static operand live(ttype t, op_id from)
{
    return (operand){
        .type = t, .present = true, .is_input = from == OP_INPUT, .range = anything, .from = from, .n_uses = 1
    };
}

static operand fixed(ttype t, op_id from)
{
    return (operand){ .type = t, .present = true, .is_const = true, .range = anything, .from = from, .n_uses = 1 };
}

static void push(builder *b, op_id op, const operand *in, int n_in, ttype out, const attr *attrs, int n_attr)
{
    operand *i = TAKE(&b->mem, operand, (size_t)n_in + 1);
    ttype *o = TAKE(&b->mem, ttype, 1);
    bool *ret = TAKE(&b->mem, bool, 1);
    attr *a = TAKE(&b->mem, attr, (size_t)n_attr + 1);
    if (!i || !o || !ret || !a) {
        b->failed = true;
        return;
    }
    if (n_in) memcpy(i, in, (size_t)n_in * sizeof *i);
    if (n_attr) memcpy(a, attrs, (size_t)n_attr * sizeof *a);
    *o = out;
    b->returned = ret;
    op_inst x = { .op = op, .mil = op_get(op)->mil, .name = "", .n_in = n_in, .n_out = 1, .n_attr = n_attr, .in = i,
                  .out = o, .out_is_output = ret, .attrs = a };
    if (!VEC_PUSH(&b->mem, &b->ops, x)) b->failed = true;
}

/* The weight as operand 1: dense, or with the constexpr operation that makes it in front. */
static operand weight(builder *b, ttype t, pub_form form)
{
    double n = tensor_elems(&t);
    switch (form) {
    case FORM_DENSE: return fixed(t, OP_CONST);
    case FORM_INT8:
    case FORM_W8A8:
        push(b, OP_CX_AFFINE,
             (operand[]){ fixed((ttype){ DT_I8, t.sh }, OP_CONST), fixed(TTYPE(DT_F16, 1), OP_CONST),
                          fixed(TTYPE(DT_I8, 1), OP_CONST) },
             3, t, NULL, 0);
        return fixed(t, OP_CX_AFFINE);
    case FORM_INT4:
        push(b, OP_CX_LUT, (operand[]){ fixed((ttype){ DT_U4, t.sh }, OP_CONST), fixed(TTYPE(DT_F16, 16), OP_CONST) },
             2, t, NULL, 0);
        return fixed(t, OP_CX_LUT);
    case FORM_SPARSE:
        push(
            b, OP_CX_SPARSE,
            (operand[]){ fixed(TTYPE(DT_F16, (int64_t)(n * 0.37)), OP_CONST), fixed((ttype){ DT_U1, t.sh }, OP_CONST) },
            2, t, NULL, 0);
        return fixed(t, OP_CX_SPARSE);
    }
    return fixed(t, OP_CONST);
}

/* With int8 activations x is rounded to them first. Returns what makes it. */
static op_id in_int8(builder *b, const published *r, ttype x, op_id from)
{
    if (r->form != FORM_W8A8) return from;
    ttype q = { DT_I8, x.sh };
    push(b, OP_QUANTIZE, (operand[]){ live(x, from) }, 1, q, NULL, 0);
    push(b, OP_DEQUANTIZE, (operand[]){ live(q, OP_QUANTIZE) }, 1, x, NULL, 0);
    return OP_DEQUANTIZE;
}

static ttype build_convs(builder *b, const published *r, ttype x)
{
    bool valid = r->kind == PUB_VALID;
    op_id from = OP_INPUT;
    for (int i = 0; i < r->depth; i++) {
        int64_t cut = valid ? r->c - 1 : 0;
        ttype y = TTYPE(DT_F16, 1, r->b, x.sh.d[2] - cut, x.sh.d[3] - cut);
        from = in_int8(b, r, x, from);
        operand w = weight(b, TTYPE(DT_F16, r->b, x.sh.d[1], r->c, r->c), r->form);
        push(b, OP_CONV, (operand[]){ live(x, from), w }, 2, y, (attr[]){ AT_S(PAD_TYPE, valid ? "valid" : "same") },
             1);
        from = OP_CONV;
        x = y;
    }
    return x;
}

static ttype build_gemms(builder *b, const published *r, ttype x)
{
    op_id from = OP_INPUT;
    for (int i = 0; i < r->depth; i++) {
        ttype y = TTYPE(DT_F16, 1, 1, r->a, r->c);
        from = in_int8(b, r, x, from);
        operand w = weight(b, TTYPE(DT_F16, 1, 1, x.sh.d[3], r->c), r->form);
        push(b, OP_MATMUL, (operand[]){ live(x, from), w }, 2, y, NULL, 0);
        from = OP_MATMUL;
        x = y;
    }
    return x;
}

static ttype build_attention(builder *b, const published *r, ttype x)
{
    ttype w = TTYPE(DT_F16, 1, 1, r->b, r->b), head = TTYPE(DT_F16, 1, r->c, r->a, r->b / r->c);
    for (int i = 0; i < 3; i++)
        push(b, OP_MATMUL, (operand[]){ live(x, OP_INPUT), weight(b, w, r->form) }, 2, x, NULL, 0);
    push(b, OP_SDPA, (operand[]){ live(head, OP_MATMUL), live(head, OP_MATMUL), live(head, OP_MATMUL) }, 3, head, NULL,
         0);
    push(b, OP_MATMUL, (operand[]){ live(x, OP_SDPA), weight(b, w, r->form) }, 2, x, NULL, 0);
    return x;
}

static ttype build_row(builder *b, const published *r, ttype x)
{
    switch (r->kind) {
    case PUB_CONV:
    case PUB_VALID: return build_convs(b, r, x);
    case PUB_GEMM: return build_gemms(b, r, x);
    case PUB_RELU: push(b, OP_RELU, (operand[]){ live(x, OP_INPUT) }, 1, x, NULL, 0); return x;
    case PUB_SOFTMAX: push(b, OP_SOFTMAX, (operand[]){ live(x, OP_INPUT) }, 1, x, NULL, 0); return x;
    case PUB_NORM: push(b, OP_LAYER_NORM, (operand[]){ live(x, OP_INPUT) }, 1, x, NULL, 0); return x;
    case PUB_ATTEND: return build_attention(b, r, x);
    case PUB_MATVEC: {
        ttype m = TTYPE(DT_F16, 1, 1, r->a, r->a), y = TTYPE(DT_F16, 1, 1, r->a, 1);
        push(b, OP_MUL, (operand[]){ live(m, OP_INPUT), live(x, OP_INPUT) }, 2, m, NULL, 0);
        push(b, OP_REDUCE_SUM, (operand[]){ live(m, OP_MUL) }, 1, y, NULL, 0);
        return y;
    }
    case PUB_TINY: {
        ttype y = build_convs(b, r, x), m = TTYPE(DT_F16, 1, r->b, 1, 1);
        push(b, OP_RELU, (operand[]){ live(y, OP_CONV) }, 1, y, NULL, 0);
        push(b, OP_REDUCE_MEAN, (operand[]){ live(y, OP_RELU) }, 1, m, NULL, 0);
        return m;
    }
    }
    return x;
}

static bool cost_row(const published *r, prog_cost *out)
{
    builder b = { 0 };
    ttype x = r->kind == PUB_GEMM || r->kind == PUB_ATTEND ? TTYPE(DT_F16, 1, 1, r->a, r->b)
              : r->kind == PUB_MATVEC                      ? TTYPE(DT_F16, 1, 1, 1, r->a)
                                                           : TTYPE(DT_F16, 1, r->a, r->h, r->w);
    op_inst none = { .op = OP_INPUT, .mil = "input", .name = "" };
    const chip *c = chip_find(r->chip);
    if (!c || !VEC_PUSH(&b.mem, &b.ops, none)) return arena_free(&b.mem), false;
    ttype y = build_row(&b, r, x);
    port_view in[2] = { { .name = "x", .type = x }, { .name = "m", .type = TTYPE(DT_F16, 1, 1, r->a, r->a) } },
              ret = { .name = "y", .type = y };
    if (!b.failed) {
        *b.returned = true;
        prog_view v = {
            .ops = b.ops.at, .n_ops = b.ops.n, .in = in, .out = &ret, .n_in = r->kind == PUB_MATVEC ? 2 : 1, .n_out = 1
        };
        *out = cost_program(c, &v);
    }
    arena_free(&b.mem);
    return !b.failed;
}

/* ---- printing ---- */

static const char *use_text(pub_use u)
{
    static const char *const text[] = { [USE_FIT] = "fit",     [USE_FIT_SLOPE] = "fit", [USE_CHECK] = "check",
                                        [USE_SLOPE] = "check", [USE_MODEL] = "model",   [USE_PLACE] = "model" };
    return text[u];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    if (!n) return NAN;
    qsort(x, n, sizeof *x, by_value);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

typedef struct {
    double ours, error; /* ms, percent */
    bound limit;
} outcome;

static void put_row(strbuf *b, const char *format, const published *r, const outcome *o)
{
    const char *name = chip_name(chip_find(r->chip));
    if (!strcmp(format, "json")) {
        sb_printf(b, "{\"kind\":\"latency\",\"id\":\"%s\",\"target\":\"%s\",\"setup\":", r->id, name);
        sb_json(b, r->setup, strlen(r->setup));
        sb_printf(b,
                  ",\"published_ms\":%.4g,\"ours_ms\":%.4g,\"error_percent\":%.1f,\"bound\":\"%s\",\"use\":\"%s\"}\n",
                  r->value, o->ours, o->error, bound_name(o->limit), use_text(r->use));
    } else if (!strcmp(format, "markdown")) {
        sb_printf(b, "| %s | %s | ", r->id, name);
        md_cell(b, r->setup);
        sb_printf(b, " | %.3f | %.3f | %+.1f | %s | %s |\n", r->value, o->ours, o->error, bound_name(o->limit),
                  use_text(r->use));
    } else
        sb_printf(b, "%-5s %-5s %9.3f %9.3f %+8.1f %%  %-9s  %-5s  %s\n", r->id, name, r->value, o->ours, o->error,
                  bound_name(o->limit), use_text(r->use), r->setup);
}

static void put_median(strbuf *b, const char *format, const char *name, const char *over, double m, size_t n)
{
    if (!n) return;
    if (!strcmp(format, "json"))
        sb_printf(b, "{\"kind\":\"median\",\"target\":\"%s\",\"rows\":\"%s\",\"count\":%zu,\"error_percent\":%.1f}\n",
                  name, over, n, m);
    else if (!strcmp(format, "markdown")) sb_printf(b, "| %s | %s | %zu | %.1f |\n", name, over, n, m);
    else sb_printf(b, "median |error| %-5s %-6s rows: %5.1f %% of %zu\n", name, over, m, n);
}

/* Medians over the rows of one chip (NULL: all), for all rows that count and for those no constant came from. */
static void put_medians(strbuf *b, const char *format, const chip *c, const outcome *o)
{
    double all[COUNT(rows)], check[COUNT(rows)];
    size_t n_all = 0, n_check = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (is_estimate(rows[i].use) || (c && chip_find(rows[i].chip) != c)) continue;
        all[n_all++] = fabs(o[i].error);
        if (!is_fit(rows[i].use)) check[n_check++] = fabs(o[i].error);
    }
    const char *name = c ? chip_name(c) : "all";
    put_median(b, format, name, "all", median(all, n_all), n_all);
    put_median(b, format, name, "check", median(check, n_check), n_check);
}

static bool outcome_of(const published *r, outcome *o)
{
    prog_cost t = { 0 };
    if (!cost_row(r, &t)) return false;
    double us = is_slope(r->use)      ? t.latency_us - t.floor_us
                : r->use == USE_PLACE ? cost_placement_us(chip_find(r->chip), &t)
                                      : t.latency_us;
    *o = (outcome){ .ours = us / 1e3, .error = (us / 1e3 / r->value - 1) * 100, .limit = t.limit };
    return true;
}

size_t cost_measured_count(void) { return COUNT(rows); }

bool cost_measured_at(size_t i, cost_measured *out)
{
    outcome o;
    if (!outcome_of(&rows[i], &o)) return false;
    *out = (cost_measured){ .id = rows[i].id,
                            .target = chip_name(chip_find(rows[i].chip)),
                            .setup = rows[i].setup,
                            .published_ms = rows[i].value,
                            .ours_ms = o.ours,
                            .error_percent = o.error,
                            .fitted = is_fit(rows[i].use),
                            .estimate = is_estimate(rows[i].use) };
    return true;
}

static const char *const unit_names[] = {
    [UNIT_MS] = "ms", [UNIT_W] = "W", [UNIT_PER_W] = "GFLOP/s/W", [UNIT_PJ] = "pJ/FLOP"
};

size_t cost_power_count(void) { return COUNT(powers); }

bool cost_power_at(size_t i, cost_power *out)
{
    const published *r = &powers[i];
    prog_cost t = { 0 };
    if (!cost_row(r, &t)) return false;
    double watts = cost_watts(chip_find(r->chip), &t), ours = r->unit == UNIT_W    ? watts
                                                              : r->unit == UNIT_PJ ? t.energy_mj * 1e9 / t.flops
                                                                                   : t.flops / t.energy_mj / 1e6;
    *out = (cost_power){ .id = r->id,
                         .target = chip_name(chip_find(r->chip)),
                         .setup = r->setup,
                         .unit = unit_names[r->unit],
                         .published = r->value,
                         .ours = ours,
                         .error_percent = (ours / r->value - 1) * 100,
                         .fitted = is_fit(r->use) };
    return true;
}

static void put_powers(strbuf *b, const char *format)
{
    bool md = !strcmp(format, "markdown"), js = !strcmp(format, "json");
    if (md)
        sb_puts(
            b,
            "\n| id | target | setup | published | ours | unit | error % | use |\n|---|---|---|---:|---:|---|---:|---|\n");
    else if (!js) sb_puts(b, "\nid    chip  published      ours      error  unit       use    setup\n");
    for (size_t i = 0; i < COUNT(powers); i++) {
        cost_power p;
        if (!cost_power_at(i, &p)) {
            b->oom = true;
            return;
        }
        const char *use = use_text(powers[i].use);
        if (js) {
            sb_printf(b, "{\"kind\":\"power\",\"id\":\"%s\",\"target\":\"%s\",\"setup\":", p.id, p.target);
            sb_json(b, p.setup, strlen(p.setup));
            sb_printf(b, ",\"published\":%.4g,\"ours\":%.4g,\"unit\":\"%s\",\"error_percent\":%.1f,\"use\":\"%s\"}\n",
                      p.published, p.ours, p.unit, p.error_percent, use);
        } else if (md) {
            sb_printf(b, "| %s | %s | ", p.id, p.target);
            md_cell(b, p.setup);
            sb_printf(b, " | %.4g | %.4g | %s | %+.1f | %s |\n", p.published, p.ours, p.unit, p.error_percent, use);
        } else
            sb_printf(b, "%-5s %-5s %9.4g %9.4g %+8.1f %%  %-9s  %-5s  %s\n", p.id, p.target, p.published, p.ours,
                      p.error_percent, p.unit, use, p.setup);
    }
}

const char *cost_unmodelled(const char *id)
{
    for (size_t i = 0; i < COUNT(unmodelled); i++)
        for (const char *p = unmodelled[i].ids; *p; p += strcspn(p, " "), p += strspn(p, " "))
            if (strlen(id) == strcspn(p, " ") && !strncmp(p, id, strlen(id))) return unmodelled[i].why;
    return NULL;
}

void cost_report(strbuf *b, const char *format)
{
    outcome o[COUNT(rows)];
    bool md = !strcmp(format, "markdown"), js = !strcmp(format, "json");
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!outcome_of(&rows[i], &o[i])) {
            b->oom = true;
            return;
        }
    if (md)
        sb_puts(
            b,
            "| id | target | setup | published ms | ours ms | error % | bound | use |\n|---|---|---|---:|---:|---:|---|---|\n");
    else if (!js) sb_puts(b, "id    chip  published      ours      error  bound      use    setup\n");
    for (size_t i = 0; i < COUNT(rows); i++) put_row(b, format, &rows[i], &o[i]);
    if (md) sb_puts(b, "\n| target | rows | count | median error % |\n|---|---|---:|---:|\n");
    for (size_t i = 0; i < chip_count(); i++) put_medians(b, format, chip_at(i), o);
    put_medians(b, format, NULL, o);
    put_powers(b, format);
    if (md) sb_puts(b, "\n| not modelled | why |\n|---|---|\n");
    for (size_t i = 0; i < COUNT(unmodelled); i++) {
        if (js)
            sb_printf(b, "{\"kind\":\"unmodelled\",\"ids\":\"%s\",\"why\":\"%s\"}\n", unmodelled[i].ids,
                      unmodelled[i].why);
        else if (md) sb_printf(b, "| %s | %s |\n", unmodelled[i].ids, unmodelled[i].why);
        else sb_printf(b, "not modelled: %s: %s\n", unmodelled[i].ids, unmodelled[i].why);
    }
}
