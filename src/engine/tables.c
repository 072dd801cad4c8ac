/* tables.c: how a 33-knot activation table is read, and the functions made of them.
 *
 * A record holds clamps, knots 2^-shift apart, and a line for each side. Its mode says how the argument becomes a
 * place between the knots (families below) and what happens to signs. Everything is fp32, one operation at a time,
 * so that a vector version gives the same bits; the fp16 rounding comes after, at the end of the pass. */
#include <math.h>

#include "engine/engine_int.h"

static const struct {
    const char *name;
    uint16_t word[TABLE_WORDS];
    bool composed;
} tables[TAB_COUNT] = {
    [TAB_none] = { .name = "none" },
#define TABLE(id, ...) [TAB_##id] = { .name = #id, .word = { __VA_ARGS__ } },
#define COMPOSED(id) [TAB_##id] = { .name = #id, .composed = true },
#include "engine/tables.def"
#undef TABLE
#undef COMPOSED
};

const char *table_name(table_id t) { return tables[t].name; }
const uint16_t *table_words(table_id t) { return t == TAB_none || tables[t].composed ? NULL : tables[t].word; }

/* Families: the low four bits of the mode. */
enum { POSITIVE, TWO_SIDED, NEGATIVE, FRACTION, WHOLE, ROOT, RECIPROCAL_ROOT, RECIPROCAL, LOG2 = 9, EXP2 = 10 };
enum { SIGN_ODD = 0x60, SIGN_ROOT = 0xc0, SIGN_BITS = 0xe0 };

/* t is 0 .. 32; every operation rounds to fp32 on its own (a fused multiply-add would not be reproducible
 * everywhere). */
static float interpolate(const uint16_t *w, float t)
{
    int i = MIN((int)t, TABLE_SEGMENTS - 1);
    float lo = f16_to_f32(w[TABLE_KNOT + i]), hi = f16_to_f32(w[TABLE_KNOT + i + 1]);
    float rise = hi - lo, part = t - (float)i;
    float step = rise * part;
    return lo + step;
}

static float line(const uint16_t *w, int at, float x)
{
    float y = f16_to_f32(w[at]) * x;
    return y + f16_to_f32(w[at + 1]);
}

static float eval_side(const uint16_t *w, float x, int family, int shift)
{
    float unit = ldexpf(1, shift), first = family == TWO_SIDED ? 16.0f : family == NEGATIVE ? 32.0f : 0.0f;
    float scaled = x * unit; /* exact */
    float t = scaled + first;
    if (t < 0) return line(w, TABLE_LO, x);
    if (t > TABLE_SEGMENTS) return line(w, TABLE_HI, x);
    return interpolate(w, t);
}

/* Unrounded fp32; x is not NaN. */
static float table_eval(const uint16_t *w, float x)
{
    int mode = w[TABLE_MODE], family = mode & 15, shift = (int16_t)w[TABLE_SHIFT], e;
    bool negate = false;
    if ((mode & SIGN_BITS) == SIGN_ROOT && x < 0) return 0;
    if ((mode & SIGN_BITS) == SIGN_ODD) negate = x < 0, x = fabsf(x);
    float y, m;
    if (family == FRACTION || family == WHOLE) y = family == WHOLE ? truncf(x) : x - truncf(x);
    else if (x <= f16_to_f32(w[TABLE_X_LO])) y = f16_to_f32(w[TABLE_Y_LO]);
    else if (x >= f16_to_f32(w[TABLE_X_HI])) y = f16_to_f32(w[TABLE_Y_HI]);
    else if (shift == TABLE_NO_KNOTS) y = line(w, x > 0 ? TABLE_HI : TABLE_LO, x);
    else switch (family) {
        case ROOT:
        case RECIPROCAL_ROOT:
            m = frexpf(x, &e);
            if (e % 2) m *= 2, e--; /* m in [0.5, 2), e even */
            y = ldexpf(interpolate(w, ldexpf(m, shift)), family == ROOT ? e / 2 : -e / 2);
            break;
        case RECIPROCAL:
            m = frexpf(x, &e);
            y = ldexpf(interpolate(w, ldexpf(m, shift) - 32), -e);
            break;
        case LOG2:
            m = frexpf(x, &e);
            y = interpolate(w, ldexpf(m, shift) - 32) + (float)e;
            break;
        case EXP2:
            m = floorf(x);
            y = ldexpf(interpolate(w, ldexpf(x - m, shift)), (int)m);
            break;
        default: y = eval_side(w, x, family, shift); break;
        }
    return negate ? -y : y;
}

static float by(table_id t, float x) { return isnan(x) ? x : table_eval(tables[t].word, x); }
static float pass(const numerics *n, dtype t, float x) { return (float)num_round(n, t, (double)x); }

/* The argument of sin in -pi .. pi. */
static float reduce(float x)
{
    float turns = rintf(x * 0.15915494f);
    float back = turns * 6.2831855f;
    return x - back;
}

float table_fn(const numerics *n, fn_id f, const float *x, const float *p, dtype result)
{
    float v = x[0], y;
    table_id t = fn_table(f);
    switch (f) {
    case FN_EXP: return by(t, v * f16_to_f32(LOG2_E));
    case FN_LOG:
        v = v + p[0];
        y = pass(n, result, by(t, v));
        if (isinf(y)) y = copysignf(65536, y); /* the second pass reads an infinity as the magnitude its bits spell */
        return y * f16_to_f32(LN_2);
    case FN_RSQRT:
    case FN_INV: return by(t, v + p[0]);
    case FN_SIN: return by(TAB_sin, reduce(v));
    case FN_COS: return by(TAB_sin, reduce(v + 1.5707964f));
    case FN_ELU:
        y = by(t, v);
        return v > 0 ? y : p[0] * pass(n, result, y);
    case FN_SCALED_TANH: return p[0] * pass(n, result, by(t, v * p[1]));
    case FN_SOFTPLUS_PAR: return x[1] * pass(n, result, by(t, v * x[2]));
    case FN_SOFTSIGN:
        y = pass(n, result, 1 + fabsf(v));
        return v * pass(n, result, by(TAB_inv, y));
    default: return by(t, v);
    }
}
