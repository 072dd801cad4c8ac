/* exec_tape_int.h: a chain as a tape, between its making and running (exec_tape.c) and the question whether one may be
 * of halves (exec_halves.c). */
#ifndef ENGINE_EXEC_TAPE_INT_H
#define ENGINE_EXEC_TAPE_INT_H

#include "engine/exec_chain_int.h"

enum { TAPE_INPUTS = 32, SLOTS = 24, TAPE_VALUES = 32, NONE = -1 };

typedef enum { AT_NOTHING, AT_SLOT, AT_INPUT, AT_ACC, AT_RESULT } place_kind;
typedef struct {
    place_kind kind;
    int which;
} place;

typedef struct {
    vec_act act; /* without its places */
    place at, z;
    int value[2];   /* the tape's value that is this parameter; NONE: it has its own */
    float own[2];
} tape_act;

typedef struct tape_adam tape_adam;

struct exec_tape {
    dtype type; /* of what a tile holds: F32, or F16 on a tape of halves */
    int n_acts, n_slots, tile;
    const tape_adam *adam; /* NULL: it is none */
    tape_act *acts;
    int n_values;
    struct {
        int input;
        bool minus;
    } value[TAPE_VALUES]; /* of operands that are one number for as long as a run lasts */
    int n_fills;
    struct {
        int slot, value;
    } fill[SLOTS]; /* one value, spread over a slot once a stretch */
};

/* May this chain have a tape of halves, as far as its operands and results say? */
bool exec_halves_wanted(const exec_chain *ch);
/* Do the acts of a tape of halves give what those of fp32 would? fuses: a sum of products may be rounded once. */
bool exec_halves_hold(const exec_tape *t, bool fuses);

#endif
