/* op.h: what an operation is called, what it takes and what it is told. Everything here is read out of ops.def. */
#ifndef OP_OP_H
#define OP_OP_H

#include "op/shape.h"

typedef enum {
#define OP(id, mil, in, out, attrs, shape, dtype, vjp, cost, kernel) OP_##id,
#include "op/ops.def"
#undef OP
    OP_COUNT
} op_id;

typedef enum {
    A_NONE,
#define ATTR(id, name) A_##id,
#include "op/attrs.def"
#undef ATTR
    A_COUNT
} attr_id;

typedef enum { ATTR_NONE, ATTR_INT, ATTR_INTS, ATTR_BOOL, ATTR_BOOLS, ATTR_FLOAT, ATTR_STR } attr_kind;

/* One attribute value. Bools are ints; lists and strings are borrowed until whoever holds the attribute copies them. */
typedef struct {
    attr_id id;
    attr_kind kind;
    int n; /* length of a list */
    union {
        int64_t i;
        double f;
        const char *s;
        const int64_t *is;
    } u;
} attr;

#define AT_I(name, v) ((attr){ .id = A_##name, .kind = ATTR_INT, .u.i = (v) })
#define AT_B(name, v) ((attr){ .id = A_##name, .kind = ATTR_BOOL, .u.i = (v) ? 1 : 0 })
#define AT_F(name, v) ((attr){ .id = A_##name, .kind = ATTR_FLOAT, .u.f = (v) })
#define AT_S(name, v) ((attr){ .id = A_##name, .kind = ATTR_STR, .u.s = (v) })
#define AT_LIST(name, p, len) ((attr){ .id = A_##name, .kind = ATTR_INTS, .n = (int)(len), .u.is = (p) })
#define AT_IS(name, ...)                                                                                               \
    AT_LIST(name, ((const int64_t[]){ __VA_ARGS__ }), sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t))

enum { OP_MAX_OPERANDS = 6, OP_MAX_ATTRS = 10 };

typedef struct {
    char name[20];
    bool optional, list; /* list: takes every remaining operand */
} operand_spec;

typedef struct {
    attr_id id;
    attr_kind kind;
    bool required, absent_ok; /* neither: `def` applies */
    attr def;                 /* a list default has n == 1 and stands for every element */
} attr_spec;

typedef struct {
    op_id id;
    const char *mil;
    int n_in, n_out, n_attr; /* n_in counts operand names; n_out 0: decided by attributes */
    operand_spec in[OP_MAX_OPERANDS];
    attr_spec attr[OP_MAX_ATTRS];
    const char *shape_rule, *dtype_rule, *vjp_rule, *cost_rule, *kernel; /* the words of the table, for docs */
} op_info;

const op_info *op_get(op_id id);
bool op_has_effect(op_id op); /* must stay even when unused, and never merges */
bool op_find(const char *mil, size_t n, op_id *id); /* by MIL spelling */
const char *attr_name(attr_id id);
attr_id attr_find(const char *name, size_t n); /* A_NONE when unknown */
const attr_spec *op_attr_spec(op_id id, attr_id a); /* NULL when the op has no such attribute */

/* Read an attribute from a list, with the table's default. The attribute must be one of the op's. */
const attr *attr_get(const attr *at, int n, attr_id id); /* NULL when absent */
int64_t attr_int(op_id op, const attr *at, int n, attr_id id);
bool attr_bool(op_id op, const attr *at, int n, attr_id id);
double attr_float(op_id op, const attr *at, int n, attr_id id);
const char *attr_str(op_id op, const attr *at, int n, attr_id id);
/* Fill out[0..want) from a list attribute; a one-element default is repeated. false: wrong length. */
bool attr_list(op_id op, const attr *at, int n, attr_id id, int want, int64_t *out) MUST_CHECK;
bool attr_eq(const attr *a, const attr *b);
void op_print_table(strbuf *b, const char *format); /* "text", "json", "markdown" */

/* ---- one operation in place, as the rule and cost tables see it: no graph, no text ---- */

typedef struct { /* what is known about the values of a tensor, before running */
    double lo, hi; /* every element lies in [lo, hi]; -inf, +inf when unknown */
} vrange;

typedef struct {
    ttype type;
    bool present;      /* false: an optional operand left out */
    bool is_const;     /* value fixed at compile time, constexpr results included */
    bool is_input;     /* a program parameter */
    const void *data;  /* packed constant bytes, or NULL */
    vrange range;
    op_id from;        /* op that made it */
    int n_uses;
    uint32_t value;    /* identity: two operands with the same number are the same value */
} operand;

enum { /* how the text was written, where it matters to a route */
    INST_INLINE_ARG = 1,     /* an argument given as a literal, not a name */
    INST_DYNAMIC_ATTR = 2,   /* an attribute that is a run-time value */
    INST_BLOB_DATA_OFFSET = 4, /* BLOBFILE offset points at the data (128), not the record */
    INST_AGAIN = 8,          /* computed a second time on purpose: not to be merged with the first */
    INST_STATE = 16,         /* an identity whose text is read_state: it reads what was written before */
};

typedef struct {
    op_id op;
    const char *mil;   /* spelling; differs from the table's only for OP_OPAQUE */
    const char *name;  /* first result's name */
    loc at;
    int n_in, n_out, n_attr;
    const operand *in; /* one per table operand; a list operand is spread from its position on */
    const ttype *out;
    const bool *out_is_output; /* result is returned by the program */
    const attr *attrs;
    unsigned flags;
    uint32_t out_value; /* identity of the first result, as in operand.value; the others follow. 0: not known */
    const vrange *out_range; /* of the first result. NULL: not known */
} op_inst;

#endif
