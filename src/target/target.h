/* target.h: what a chip is, what it refuses or spoils, and what a program costs on it. All of it is tables:
 * chip.def (one row per compiler target), rules.def (limits and hazards, each with message, fix and evidence),
 * gates.def (which operations exist on which family). This folder sees operations (op_inst), never graphs or text. */
#ifndef TARGET_TARGET_H
#define TARGET_TARGET_H

#include "base/arena.h"
#include "op/op.h"

typedef struct chip chip; /* columns in target_int.h; read through the functions below */

size_t chip_count(void);
const chip *chip_at(size_t i);
const chip *chip_find(const char *name); /* m1 … m5, h13, h13g, h17s …; any case; NULL when unknown */
const char *chip_name(const chip *c);    /* "m1" */
const char *chip_arch(const chip *c);    /* "h13" */
bool chip_is_base(const chip *c);        /* one of m1 … m5: what "all" means */
int chip_family(const chip *c);          /* 2 A13 … 6 A17: op legality */
/* any numeric column by name; NAN when unknown. For docs and tests */
double chip_limit(const chip *c, const char *column);
void chip_print(strbuf *b, const char *format);       /* the table: "text", "json", "markdown" */

typedef enum { SEV_NOTE, SEV_WARNING, SEV_ERROR } severity;
const char *severity_name(severity s);

/* A finding's strings live in the arena passed to the check. */
typedef struct {
    const char *rule;     /* id of the row */
    severity sev;
    const chip *target;
    const char *op, *name; /* MIL spelling and result name; "" for a program-level finding */
    loc at;
    const char *message, *fix, *evidence;
} finding;

typedef VEC(finding) findings;

/* One program as the rules see it. */
typedef struct {
    const char *name;
    loc at;
    ttype type;
} port_view;
typedef struct {
    const op_inst *ops; /* [0] unused */
    size_t n_ops;
    const port_view *in, *out; /* declaration order */
    size_t n_in, n_out;
    size_t n_live_bytes;  /* peak of live intermediate bytes in node order, weights not counted */
    bool from_text;       /* text-level rules apply */
    const char *version;  /* "1.3"; NULL when not from text */
    const char *opset;
    bool has_coremlc_version;
    size_t n_funcs;
} prog_view;

/* Every rule that fires for this program on this chip, in op order. */
an_status rules_check(const chip *c, const prog_view *p, arena *mem, findings *out, diag *d);
/* Rules that fire for one operation alone; what legalisation asks. Same rows. */
an_status rules_check_op(const chip *c, const op_inst *op, arena *mem, findings *out, diag *d);
/* Does this row fire for this op on this chip? rule must exist. */
bool rule_fires(const char *rule, const chip *c, const op_inst *op);
size_t rule_count(void);
const char *rule_id_at(size_t i);
const char *rule_legalizer_at(size_t i); /* name of the rewrite that repairs it, or "none" */
bool rule_speaks_at(size_t i, const chip *c); /* about this chip; else it never fires there */
void rules_print(strbuf *b, const char *format);

/* Is an operation (by MIL spelling) there on this chip at all? */
typedef enum { GATE_NATIVE, GATE_BRIDGE, GATE_NONE, GATE_UNKNOWN } gate;
gate gate_of(const char *mil, const chip *c, const char **fix);
void gates_print(strbuf *b, const char *format);

/* ---- cost (facts 9) ---- */
typedef enum { BOUND_DISPATCH, BOUND_BANDWIDTH, BOUND_COMPUTE } bound;
const char *bound_name(bound b);
typedef struct {
    double flops;         /* 2 per multiply-add */
    double bytes;         /* moved: operands, results, weights as they stream on this chip */
    double weight_bytes;
    double compute_us, memory_us; /* without the dispatch floor */
} op_cost;
typedef struct {
    double latency_us, floor_us, compute_us, memory_us;
    double flops, bytes, weight_bytes;
    double int8_flops;    /* of flops: int8 by int8 */
    double energy_mj;     /* power of the bound times latency (facts 9.1) */
    double working_set;   /* bytes: largest live set */
    bool over_budget;     /* working set past the on-chip budget */
    bound limit;
} prog_cost;
op_cost cost_op(const chip *c, const op_inst *op);
prog_cost cost_program(const chip *c, const prog_view *p);
double cost_watts(const chip *c, const prog_cost *t);
/* What the runtime's own model says when it chooses a processor (facts 9.1): the larger of two quotients, no floor. */
double cost_placement_us(const chip *c, const prog_cost *t);
/* The same program when the engine has had nothing to do for so long. */
double cost_after_idle_us(const chip *c, const prog_cost *t, double idle_s);
/* The published latency rows (facts 4.5, 4.4) against this model: id, setup, published, ours, error; then the
 * median. */
void cost_report(strbuf *b, const char *format);
/* The same rows one by one. An id may have a letter behind it ("P17a"): several settings of one published row. */
typedef struct {
    const char *id, *target, *setup;
    double published_ms, ours_ms, error_percent;
    bool fitted;   /* the chip's constants come from this row: agreement is no evidence */
    bool estimate; /* another model's figure, not a measurement */
} cost_measured;
size_t cost_measured_count(void);
bool cost_measured_at(size_t i, cost_measured *out) MUST_CHECK; /* false: no memory */
/* The published rows of power (facts 4.6): watts, GFLOP/s per watt, or pJ per FLOP. */
typedef struct {
    const char *id, *target, *setup, *unit;
    double published, ours, error_percent;
    bool fitted;
} cost_power;
size_t cost_power_count(void);
bool cost_power_at(size_t i, cost_power *out) MUST_CHECK; /* false: no memory */
/* why no program can be built from that published row; NULL: one can, or no such row */
const char *cost_unmodelled(const char *id);

#endif
