/* lower_int.h: shared inside lower/: where a name in MIL and a name in the op table differ, and weight files by
 * reference. */
#ifndef LOWER_LOWER_INT_H
#define LOWER_LOWER_INT_H

#include "lower/lower.h"

/* ---- spelling (spell.c) ---- */
/* table spellings and other names for the same op */
bool spell_op_read(const char *mil, op_id *id);
const char *spell_op_write(op_id id);
const char *spell_arg_read(op_id id, const char *mil);                 /* the table's word for an argument */
const char *spell_arg_write(op_id id, const char *word);
/* never an argument: the declared result type says it */
bool spell_attr_from_type(op_id id, attr_id a);
/* spell every attribute out, defaults included */
bool spell_always(op_id id);
bool spell_constexpr(op_id id);                                        /* arguments sit in the square brackets */
/* Arguments the table has no column for that change nothing when they have the one value the table assumes. */
typedef struct {
    op_id op;
    const char *name;
    const char *str; /* the harmless value, if it is a string; NULL: any value is harmless */
} spell_extra;
const spell_extra *spell_extra_find(op_id id, const char *name);

/* ---- weights (weights.c) ---- */
typedef enum { WEIGHT_FOUND, WEIGHT_MISSING, WEIGHT_BAD, WEIGHT_NOT_ASKED } weight_answer;
/* Bytes of the record at `offset`. MISSING, BAD: why says so in words; *first: the first time this file is asked for.
 * *data_offset: the reference points at a record's data instead of at the record. */
weight_answer weights_find(lower_weights *w, const char *path, uint64_t offset, const ttype *t, const void **data,
                           bool *first, bool *data_offset, diag *why);

static inline ttype ttype_of_mil(const mil_type *t) { return (ttype){ t->dt, shape_of(t->dim, t->rank) }; }

#endif
