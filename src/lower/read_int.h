/* read_int.h: what from_mil.c (statements) and bind.c (arguments) share while one function is read. */
#ifndef LOWER_READ_INT_H
#define LOWER_READ_INT_H

#include "lower/lower_int.h"

/* A name of the text. Constants become graph nodes only when an operand needs them: most are attributes. */
typedef struct {
    const char *name;
    loc at;
    ttype type;
    bool known;         /* the type is a tensor; false for dicts, lists, pixel buffers */
    val v;              /* 0: a constant no operand has used yet */
    const mil_lit *lit; /* constants */
    const void *data;   /* their packed content; NULL when it is not here */
    unsigned flags;     /* INST_* for the constant's node */
} symbol;

typedef struct {
    const lower_in *opt;
    graph *g;
    diag *d;
    arena mem, tmp; /* for the function; for one statement */
    str_map by_name;
    VEC(symbol) syms;
    VEC(val) written;    /* by value: what was last written to it, if it is a state; as long as it has to be */
    const mil_op *at_op; /* the statement being read, for issues */
    bool inferring;      /* the complaint comes from the table's own rules */
    bool stop;           /* the list of issues is full: more of them would tell nothing new */
} reader;

/* One statement bound to a row of the table. */
typedef struct {
    const mil_op *st;
    const op_info *info;
    bool opaque;      /* keep it for checking, but not as the table's op */
    unsigned flags;   /* INST_* */
    val in[OP_MAX_OPERANDS];
    VEC(val) list;    /* values of the list operand, spread behind in[] */
    VEC(val) loose;   /* run-time values outside operand places; only the opaque form has room for them */
    attr at[OP_MAX_ATTRS];
    int n_at;
} call;

/* Record what is wrong. AN_OK: go on (lenient reading, or a remark); else the status to return. */
an_status reader_complain(reader *r, an_status st, const char *rule, loc at, const char *fmt, ...) PRINTF_LIKE(5, 6);
symbol *reader_find(reader *r, const char *name);
an_status reader_operand(reader *r, symbol *s, val *out);     /* the symbol as a graph value, made now if need be */
/* A literal as a constant: type, content and weight file checked; s->name and s->at are set by the caller. */
an_status reader_literal(reader *r, const mil_lit *lit, symbol *s);

/* Bind every argument of c->st. What cannot be bound was complained about, and c->opaque is set. */
an_status bind_call(reader *r, call *c);
/* For an op outside the table: the run-time values and weights among its arguments, into c->loose. */
an_status bind_unknown(reader *r, call *c);

#endif
