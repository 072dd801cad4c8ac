/* exec_halves.c: chains of fp16 tensors as tapes of halves. In: the acts of such a tape (exec_tape.c).  Out: whether
 * it gives the same bits as one of fp32, rounded when it stores: half.def says for each function how far from the
 * fp32 number its operands may be, and the acts are followed with that. Sums of products may be allowed too: fp32
 * rounds one and then rounds it to fp16, here it is rounded once. */
#include <math.h>

#include "engine/exec_tape_int.h"

/* How far a value is from the one of fp32 at its place: half.def. */
typedef enum { EXACT, ROUNDED, SUNK } distance;

static const struct {
    bool known, sum;
    distance x, others, made;
} halves[VF_COUNT] = {
#define HALF_FN(id, x_, others_, made_, value)                                                                         \
    [VF_##id] = { .known = true, .sum = false, .x = x_, .others = others_, .made = made_ },
#define HALF_SUM(id, x_, others_, made_, value)                                                                        \
    [VF_##id] = { .known = true, .sum = true, .x = x_, .others = others_, .made = made_ },
#include "kernel/half.def"
#undef HALF_FN
#undef HALF_SUM
};

static const struct {
    uint8_t operands, params;
} fns[VF_COUNT] = {
#define VEC_FN(id, operands_, params_, ulp, what) [VF_##id] = { .operands = operands_, .params = params_ },
#include "kernel/vector.def"
#undef VEC_FN
};

bool exec_halves_wanted(const exec_chain *ch)
{
    bool all = ch->env->v->halves && !ch->port;
    for (int i = 0; i < ch->n_in; i++) all = all && (ch->in[i].t == DT_F16 || ch->in[i].idle);
    for (int k = 0; k < ch->n_out; k++) all = all && ch->out[k].t == DT_F16;
    return all;
}

static float rounded(float x) { return (float)f16_to_f64(f16_from_f64((double)x)); }

/* A parameter that the act has itself, beside such an x; the others are fp16 numbers, and no bounds. *made: what is
 * made of it. */
static bool holds_number(float p, distance x, bool upper, distance *made)
{
    const float r = rounded(p);
    if (x == EXACT) return r == p;
    if (r != p) *made = MAX(*made, ROUNDED);
    return r != 0 || (!upper && p == 0 && !signbit(p));
}

static distance at_place(const distance *slot, place p) { return p.kind == AT_SLOT ? slot[p.which] : EXACT; }

static bool follow(const tape_act *a, bool fuses, const distance *slot, distance *x)
{
    const vec_fn f = (vec_fn)a->act.code;
    if (!halves[f].known || (halves[f].sum && !fuses) || *x > halves[f].x) return false;
    const distance y = fns[f].operands > 1 ? at_place(slot, a->at) : EXACT,
                   z = fns[f].operands > 2 ? at_place(slot, a->z) : EXACT;
    if (MAX(y, z) > halves[f].others) return false;
    distance made = halves[f].made;
    for (int k = 0; k < fns[f].params; k++)
        if (a->value[k] == NONE ? !holds_number(a->own[k], halves[f].x, k == 1, &made) : halves[f].x != EXACT)
            return false;
    *x = MAX(made, MAX(*x, MAX(y, z)));
    return true;
}

bool exec_halves_hold(const exec_tape *t, bool fuses)
{
    distance slot[SLOTS] = { EXACT }, x = EXACT;
    for (int i = 0; i < t->n_acts; i++) {
        const tape_act *a = &t->acts[i];
        switch (a->act.code) {
        case VA_ASK_2: break;
        case VA_X_F16: x = at_place(slot, a->at); break;
        case VA_X_ONE: x = EXACT; break;
        case VA_PUT_F16:
            if (a->at.kind == AT_SLOT) slot[a->at.which] = x;
            break;
        default:
            if (a->act.code >= VF_COUNT || !follow(a, fuses, slot, &x)) return false;
        }
    }
    return t->n_acts > 0 && t->acts[t->n_acts - 1].act.code == VA_PUT_F16;
}
