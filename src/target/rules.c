/* rules.c: rules.def evaluated. In: a program (or one operation) and a chip.  Out: findings with their words filled in.
 * A row demands "measure cmp limit"; a measure that does not apply says nothing. */
#include <pthread.h>
#include <stdlib.h>

#include "target/target_int.h"

/* ---- the tables ---- */

static const struct {
    const char *what;
    scope at;
    measure_fn ask;
} measures[MEAS_COUNT] = {
    [MEAS_route] = { "nothing a program shows", SCOPE_ROUTE, NULL },
#define MEASURE(id, scope, what) [MEAS_##id] = { what, SCOPE_##scope, m_##id },
#include "target/measures.def"
#undef MEASURE
};

enum { SET_MAX = 20 };
static const struct {
    const char *text;
    op_id ops[SET_MAX]; /* ends with OP_COUNT; alone it means every operation */
} sets[SET_COUNT] = {
#define OPSET(id, text_, ...) [SET_##id] = { text_, { __VA_ARGS__, OP_COUNT } },
#include "target/rules.def"
};

#define NUM(x) .num = (x), .column = -1
#define MASK(x) .num = (x), .column = -1
#define COL(x) .column = (int)COL_##x
static const rule rows[] = {
#define RULE(id_, ops_, measure_, cmp_, limit_, first_, last_, verdict_, message_, fix_, evidence_, legalizer_, dispute_) \
    { .id = id_, .ops = SET_##ops_, .measure = MEAS_##measure_, .how = CMP_##cmp_, limit_, .first = first_, .last = last_, \
      .sev = SEV_##verdict_, .message = message_, .fix = fix_, .evidence = evidence_, .legalizer = legalizer_,        \
      .dispute = dispute_ },
#define ROUTE(id_, message_, fix_, evidence_, dispute_)                                                               \
    { .id = id_, .ops = SET_any, .measure = MEAS_route, .how = CMP_EQ, .num = 0, .column = -1, .first = 0, .last = 99, \
      .sev = SEV_NOTE, .message = message_, .fix = fix_, .evidence = evidence_, .legalizer = "none", .dispute = dispute_ },
#include "target/rules.def"
};
#undef NUM
#undef MASK
#undef COL

/* Which operation rows look at which op: most rows name a few operations, and programs are long. */
static uint16_t by_op[OP_COUNT][COUNT(rows)];
static size_t n_by_op[OP_COUNT];

static void build(void)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (measures[rows[i].measure].at != SCOPE_OP) continue;
        const op_id *s = sets[rows[i].ops].ops;
        for (int op = 0; op < OP_COUNT; op++) {
            bool in = *s == OP_COUNT;
            for (const op_id *k = s; *k != OP_COUNT && !in; k++) in = (int)*k == op;
            if (in) by_op[op][n_by_op[op]++] = (uint16_t)i;
        }
    }
}
static pthread_once_t once = PTHREAD_ONCE_INIT;

size_t rule_count(void) { return COUNT(rows); }
const rule *rule_at(size_t i) { return &rows[i]; }
const char *rule_id_at(size_t i) { return rows[i].id; }
const char *rule_legalizer_at(size_t i) { return rows[i].legalizer; }
const char *measure_what(measure_id m) { return measures[m].what; }
scope measure_scope(measure_id m) { return measures[m].at; }
const char *opset_text(opset s) { return sets[s].text; }

const char *severity_name(severity s)
{
    static const char *const names[] = { [SEV_NOTE] = "note", [SEV_WARNING] = "warning", [SEV_ERROR] = "error" };
    return names[s];
}

const char *cmp_text(cmp how)
{
    static const char *const text[] = { "<=", "<", ">=", ">", "=", "in", "not in" };
    return text[how];
}

/* ---- one row on one thing ---- */

static double limit_of(const rule *r, const chip *c) { return r->column < 0 ? r->num : col(c, (chip_column)r->column); }

static bool in_mask(double seen, double mask)
{
    return seen >= 0 && seen < 32 && seen == floor(seen) && ((uint32_t)mask >> (unsigned)seen & 1u);
}

static bool holds(const rule *r, double seen, double want)
{
    switch (r->how) {
    case CMP_LE: return seen <= want;
    case CMP_LT: return seen < want;
    case CMP_GE: return seen >= want;
    case CMP_GT: return seen > want;
    case CMP_EQ: return seen == want;
    case CMP_IN: return in_mask(seen, want);
    case CMP_NOT_IN: return !in_mask(seen, want);
    }
    return true;
}

static bool applies(const rule *r, const chip *c)
{
    int f = chip_family(c);
    return measures[r->measure].ask && f >= r->first && f <= r->last;
}

bool rule_speaks_at(size_t i, const chip *c) { return applies(&rows[i], c); }

static bool fires(const rule *r, look *l, double *seen)
{
    l->detail[0] = 0;
    l->fix = "";
    *seen = measures[r->measure].ask(l);
    return !isnan(*seen) && !holds(r, *seen, limit_of(r, l->c));
}

/* ---- words ---- */

static void put_number(strbuf *b, double x)
{
    if (isinf(x)) sb_puts(b, x > 0 ? "any size" : "-infinity");
    else sb_printf(b, "%.10g", x);
}

void rule_limit(strbuf *b, const rule *r, const chip *c)
{
    if (r->how == CMP_IN || r->how == CMP_NOT_IN) {
        const char *sep = "";
        for (unsigned k = 0; k < 32; k++)
            if ((uint32_t)r->num >> k & 1u) sb_printf(b, "%s%u", sep, k), sep = ", ";
    } else if (r->column >= 0 && !c) sb_puts(b, column_get((chip_column)r->column)->id);
    else put_number(b, c ? limit_of(r, c) : r->num);
}

static const char *op_name(const look *l)
{
    if (!l->op) return l->port ? (l->port_out ? "output" : "input") : "";
    return l->op->mil ? l->op->mil : op_get(l->op->op)->mil;
}

static const char *thing_name(const look *l)
{
    const char *n = l->op ? l->op->name : l->port ? l->port->name : "";
    return n ? n : "";
}

/* {words} from the list are filled in; anything else between braces stays as it is. NULL when there is no memory. */
static char *fill(const char *text, const rule *r, const look *l, double seen, arena *mem)
{
    strbuf b = { 0 };
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "{");
        sb_putn(&b, p, n);
        p += n;
        if (!*p) break;
        size_t k = strcspn(p, "}") + 1;
        if (!strncmp(p, "{seen}", k)) put_number(&b, seen);
        else if (!strncmp(p, "{want}", k)) rule_limit(&b, r, l->c);
        else if (!strncmp(p, "{op}", k)) sb_puts(&b, op_name(l));
        else if (!strncmp(p, "{name}", k)) sb_puts(&b, thing_name(l));
        else if (!strncmp(p, "{chip}", k)) sb_puts(&b, chip_name(l->c));
        else if (!strncmp(p, "{family}", k)) sb_printf(&b, "%d", chip_family(l->c));
        else if (!strncmp(p, "{detail}", k)) sb_puts(&b, l->detail);
        else if (!strncmp(p, "{fix}", k)) sb_puts(&b, l->fix && *l->fix ? l->fix : "no rewrite is known");
        else k = 1, sb_putc(&b, '{');
        p += k;
    }
    char *s = b.oom ? NULL : arena_strn(mem, b.at ? b.at : "", b.n);
    sb_free(&b);
    return s;
}

static an_status report(const rule *r, const look *l, double seen, arena *mem, findings *out, diag *d)
{
    finding f = { .rule = r->id,
                  .sev = r->sev,
                  .target = l->c,
                  .op = arena_str(mem, op_name(l)),
                  .name = arena_str(mem, thing_name(l)),
                  .at = l->op     ? l->op->at
                        : l->port ? l->port->at
                                  : NOWHERE,
                  .message = fill(r->message, r, l, seen, mem),
                  .fix = fill(r->fix, r, l, seen, mem),
                  .evidence = r->evidence };
    if (!f.op || !f.name || !f.message || !f.fix || !VEC_PUSH(mem, out, f)) return diag_nomem(d);
    return AN_OK;
}

static an_status ask(const rule *r, look *l, arena *mem, findings *out, diag *d)
{
    double seen;
    return applies(r, l->c) && fires(r, l, &seen) ? report(r, l, seen, mem, out, d) : AN_OK;
}

/* ---- all rows ---- */

static an_status check_op(const chip *c, const prog_view *p, const op_inst *op, arena *mem, findings *out, diag *d)
{
    pthread_once(&once, build);
    look l = { .c = c, .op = op, .p = p };
    for (size_t i = 0; i < n_by_op[op->op]; i++) TRY(ask(&rows[by_op[op->op][i]], &l, mem, out, d));
    return AN_OK;
}

an_status rules_check_op(const chip *c, const op_inst *op, arena *mem, findings *out, diag *d)
{
    return check_op(c, NULL, op, mem, out, d);
}

static an_status check_ports(const chip *c, const prog_view *p, bool outputs, arena *mem, findings *out, diag *d)
{
    const port_view *at = outputs ? p->out : p->in;
    size_t n = outputs ? p->n_out : p->n_in;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < COUNT(rows); i++) {
            look l = { .c = c, .p = p, .port = &at[k], .port_out = outputs };
            if (measures[rows[i].measure].at == SCOPE_PORT) TRY(ask(&rows[i], &l, mem, out, d));
        }
    return AN_OK;
}

an_status rules_check(const chip *c, const prog_view *p, arena *mem, findings *out, diag *d)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        look l = { .c = c, .p = p };
        if (measures[rows[i].measure].at == SCOPE_PROG) TRY(ask(&rows[i], &l, mem, out, d));
    }
    TRY(check_ports(c, p, false, mem, out, d));
    for (size_t i = 1; i < p->n_ops; i++) TRY(check_op(c, p, &p->ops[i], mem, out, d));
    return check_ports(c, p, true, mem, out, d);
}

bool rule_fires(const char *id, const chip *c, const op_inst *op)
{
    pthread_once(&once, build);
    for (size_t i = 0; i < n_by_op[op->op]; i++) {
        const rule *r = &rows[by_op[op->op][i]];
        look l = { .c = c, .op = op };
        double seen;
        if (!strcmp(r->id, id)) return applies(r, c) && fires(r, &l, &seen);
    }
    return false; /* a row about ports or programs never speaks about one operation */
}
