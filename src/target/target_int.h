/* target_int.h: what the files of this folder share: the columns of a chip, a rule as a row, and what a measure
 * looks at. */
#ifndef TARGET_TARGET_INT_H
#define TARGET_TARGET_INT_H

#include <math.h>

#include "target/target.h"

/* ---- chips (chip.def, chip.c) ---- */

typedef enum { TIER_H13, TIER_H14, TIER_H15, TIER_H16, TIER_H17, TIER_H18, TIER_M11, TIER_COUNT } tier;

typedef enum { /* every numeric column; COL_family and COL_cores are given by the chip's own row */
    COL_family,
    COL_cores,
    COL_cpusubtype,
    COL_clock_ghz,
#define LIMIT(id, unit, what, h13, h14, h15, h16, h17, h18, m11, evidence) COL_##id,
#define COST(id, unit, what, scale, cap, evidence) COL_##id,
#include "target/chip.def"
    COL_COUNT
} chip_column;

struct chip {
    const char *name, *arch, *silicon, *soc, *note;
    bool base;
    tier at;
    double col[COL_COUNT];
    char st[COL_COUNT]; /* M measured, D read from tables, R reconstructed from rows, C community, P predicted */
};

typedef struct {
    const char *id, *unit, *what, *evidence;
} column_info;
const column_info *column_get(chip_column c);

typedef struct {
    const char *id, *question, *side;
} conflict;
size_t conflict_count(void);
const conflict *conflict_at(size_t i);

static inline double col(const chip *c, chip_column k) { return c->col[k]; }

/* ---- gates (gates.def, gates.c) ---- */

typedef enum { BRIDGE_QUIET, BRIDGE_WARN, BRIDGE_REFUSE } bridge_kind; /* what a bridge means to a MIL program */
typedef struct {
    const char *mil;
    int from;          /* first family on which it is native; 99: never */
    gate below;        /* below that family */
    bridge_kind kind;
    const char *fix, *evidence;
} gate_row;
const gate_row *gate_find(const char *mil); /* NULL when the vocabulary has no such word */
size_t gate_count(void);
const gate_row *gate_at(size_t i);

/* ---- rules (rules.def, rules.c, measure*.c) ---- */

typedef struct { /* what a measure is asked about; it may leave a few words for the message */
    const chip *c;
    const op_inst *op;
    const prog_view *p;    /* NULL when one operation is looked at alone */
    const port_view *port;
    bool port_out;
    char detail[200];
    const char *fix;       /* replaces {fix} */
} look;

typedef double (*measure_fn)(look *l); /* NAN: the question does not apply here */

typedef enum { SCOPE_OP, SCOPE_PORT, SCOPE_PROG, SCOPE_ROUTE } scope;

typedef enum {
    MEAS_route,
#define MEASURE(id, scope, what) MEAS_##id,
#include "target/measures.def"
#undef MEASURE
    MEAS_COUNT
} measure_id;

#define MEASURE(id, scope, what) double m_##id(look *l);
#include "target/measures.def"
#undef MEASURE

typedef enum { CMP_LE, CMP_LT, CMP_GE, CMP_GT, CMP_EQ, CMP_IN, CMP_NOT_IN } cmp; /* what must hold */

typedef enum {
#define OPSET(id, text, ...) SET_##id,
#include "target/rules.def"
    SET_COUNT
} opset;

typedef struct {
    const char *id;
    opset ops;
    measure_id measure;
    cmp how;
    double num;
    int column; /* chip_column, or -1: num is the limit */
    int first, last; /* families */
    severity sev;
    const char *message, *fix, *evidence, *legalizer, *dispute;
} rule;
const rule *rule_at(size_t i);
const char *measure_what(measure_id m);
scope measure_scope(measure_id m);
const char *opset_text(opset s);
void rule_limit(strbuf *b, const rule *r, const chip *c); /* the limit as words; c NULL: the column's name */
const char *cmp_text(cmp how);

typedef enum { /* the cost column of ops.def */
    KIND_none, KIND_opaque, KIND_conv, KIND_gemm, KIND_sdpa, KIND_pool, KIND_eltwise, KIND_table, KIND_norm, KIND_softmax,
    KIND_reduce, KIND_move, KIND_gather, KIND_texture, KIND_sort, KIND_constexpr
} op_kind;
op_kind kind_of(op_id op);

/* Small readers used by measures and cost alike. They answer "no" rather than guess when a shape is not known. */
const operand *inst_arg(const op_inst *op, int i);                   /* NULL when absent */
bool inst_ints(const op_inst *op, attr_id id, int want, int64_t *out);
int64_t inst_int(const op_inst *op, attr_id id);
/* i-th from the end; 1 past the front, -1 unknown */
int64_t dim_back(const shape *s, int i);
double tensor_bytes(const ttype *t);                                 /* 0 when not known */
double tensor_elems(const ttype *t);
bool is_conv(op_id op);                                              /* conv, ne_conv */
/* conv family, linear, matmul, einsum, attention */
bool is_mac(op_id op);
bool is_constexpr(op_id op);
double mac_depth(const op_inst *op);                                 /* terms summed per output; NAN when unknown */
bool sums_products(const look *l);                                   /* reduce_sum of a multiplication: a product */

void md_cell(strbuf *b, const char *s); /* a table cell: pipes escaped */

#endif
