/* exec_tape.c: a chain as a tape: acts on a tile of elements that stays in registers from its load to its store. In:
 * the operations of a prepared chain on the plain processor.  Out: its results, the same bits as operation by
 * operation, but for sums of products on a tape of halves (exec_halves.c).
 *
 * The tile is one register; a value wanted again later, or as a second operand, is kept in a slot of the scratch.
 * Operands are read where they lie: an operand broadcast along the last axes is one number for as long as its run
 * lasts, so a stretch of elements ends where the shortest run does. Results are stored when all is computed: a
 * result may lie where an operand did. */
#include "engine/exec_tape_int.h"

enum { MOST_ACTS = 192, SHORTEST_RUN = 16, MOST_ROWS = 32 };

/* A number an act has. */
typedef struct {
    int value;
    float own;
} number;

/* Where an update by Adam finds what vec_adam wants: operands, results, numbers. */
typedef enum { ADAM_NOTHING, ADAM_G, ADAM_G_CLIPPED, ADAM_M, ADAM_V, ADAM_W, ADAM_SQUARE, ADAM_STEP, ADAM_ROLES } adam_role;
struct tape_adam {
    int in[ADAM_ROLES], out[ADAM_ROLES], copy; /* inputs and results; NONE */
    bool clips, sizes, decays, shrinks;
    number clip, take_1, keep_1, take_2, keep_2, eps, rate, decay;
};

/* ---- making ---- */

typedef struct {
    int input;      /* NONE: made by an operation; n_in: the accumulator */
    int slot;       /* NONE: not kept */
    int uses;       /* left */
    int times, by;  /* an operand in memory times one number, multiplied where it is added; NONE: made as it comes */
} value;

typedef struct {
    const exec_chain *ch;
    exec_tape *t;
    value *values;
    int n_values, in_x; /* the value the tile holds */
    bool busy[SLOTS];
    bool hard;
} maker;

static const struct {
    uint8_t operands, params;
} fns[VF_COUNT] = {
#define VEC_FN(id, operands, params, ulp, what) [VF_##id] = { operands, params },
#include "kernel/vector.def"
#undef VEC_FN
};

static const struct {
    vec_code load, move, put, ask; /* 0: a type no tile is made of */
} codes[DT_COUNT] = {
    /* elements of the tile's own type are read where they lie, never moved */
    [DT_F32] = { VA_X_F32, VA_X_F32, VA_PUT_F32, VA_ASK_4 },
    [DT_F16] = { VA_X_F16, VA_MOVE_F16, VA_PUT_F16, VA_ASK_2 },
    [DT_BF16] = { VA_X_BF16, VA_MOVE_BF16, VA_PUT_BF16, VA_ASK_2 },
    [DT_BOOL] = { VA_X_BOOL, VA_MOVE_BOOL, VA_PUT_BOOL, VA_ASK_1 },
};

/* Two acts in a row that one does with the same bits; the second's operand or parameter follows the first's. */
static const struct {
    vec_fn first, then, both;
} joined[] = { { VF_MUL_P, VF_ADD_P, VF_AFFINE }, { VF_MUL, VF_ADD, VF_MUL_ADD } };

static int take_slot(maker *m)
{
    for (int i = 0; i < SLOTS; i++)
        if (!m->busy[i]) {
            m->busy[i] = true;
            m->t->n_slots = MAX(m->t->n_slots, i + 1);
            return i;
        }
    m->hard = true;
    return 0;
}

static tape_act *put(maker *m, int code, place at, int size)
{
    if (m->t->n_acts == MOST_ACTS) {
        m->hard = true;
        m->t->n_acts = 0;
    }
    tape_act *a = &m->t->acts[m->t->n_acts++];
    *a = (tape_act){ .act = { .code = code, .size = size }, .at = at, .value = { NONE, NONE } };
    return a;
}

static place slot_at(int s) { return (place){ AT_SLOT, s }; }

static void keep_x(maker *m) /* the tile's value stays in a slot */
{
    value *v = &m->values[m->in_x];
    if (v->slot != NONE || v->input != NONE) return;
    v->slot = take_slot(m);
    put(m, (int)codes[m->t->type].put, slot_at(v->slot), 0);
}

static bool is_one(const maker *m, const value *v)
{
    if (v->input == NONE || v->input == m->ch->n_in) return false;
    const exec_walk *w = &m->ch->in[v->input];
    return !w->rank || !w->stride[w->rank - 1];
}
static dtype type_of(const maker *m, const value *v)
{
    return v->input == NONE || v->input == m->ch->n_in ? m->t->type : m->ch->in[v->input].t;
}
static place place_of(const maker *m, const value *v)
{
    if (v->input == NONE) return slot_at(v->slot);
    return v->input == m->ch->n_in ? (place){ AT_ACC, 0 } : (place){ AT_INPUT, v->input };
}
static int size_of(const maker *m, const value *v) { return v->input == NONE ? 0 : (int)exec_size(type_of(m, v)); }

static int value_of(maker *m, int input, bool minus)
{
    exec_tape *t = m->t;
    for (int i = 0; i < t->n_values; i++)
        if (t->value[i].input == input && t->value[i].minus == minus) return i;
    if ((m->hard = m->hard || t->n_values == TAPE_VALUES)) return 0;
    t->value[t->n_values].input = input, t->value[t->n_values].minus = minus;
    return t->n_values++;
}

static void load_x(maker *m, int v)
{
    const value *x = &m->values[v];
    if (m->in_x == v) return;
    if (is_one(m, x)) put(m, VA_X_ONE, (place){ 0 }, 0)->value[0] = value_of(m, x->input, false);
    else {
        put(m, (int)codes[type_of(m, x)].load, place_of(m, x), size_of(m, x));
    }
    m->in_x = v;
}

/* Where elements of an operand, of the tile's type, are while the function runs; *drop: a slot to be given back
 * after it. */
static place operand(maker *m, int v, int *size, int *drop)
{
    value *x = &m->values[v];
    dtype t = type_of(m, x);
    *drop = NONE, *size = 0;
    if (is_one(m, x)) {
        int one = value_of(m, x->input, false);
        for (int i = 0; i < m->t->n_fills; i++)
            if (m->t->fill[i].value == one) return slot_at(m->t->fill[i].slot);
        int s = m->t->n_slots; /* one that nothing else ever uses */
        if ((m->hard = m->hard || s == SLOTS)) return slot_at(0);
        m->t->n_slots++, m->busy[s] = true;
        m->t->fill[m->t->n_fills].slot = s, m->t->fill[m->t->n_fills++].value = one;
        return slot_at(s);
    }
    if (t == m->t->type) {
        *size = size_of(m, x);
        return place_of(m, x);
    }
    *drop = take_slot(m);
    put(m, (int)codes[t].move, place_of(m, x), size_of(m, x))->z = slot_at(*drop);
    return slot_at(*drop);
}

static void used(maker *m, int v)
{
    value *x = &m->values[v];
    if (--x->uses == 0 && x->slot != NONE) m->busy[x->slot] = false;
}

static int coded(vec_fn f)
{
    return f == VF_ADD ? VA_ADD_F16 : f == VF_SUB ? VA_SUB_F16 : f == VF_MUL ? VA_MUL_F16 : NONE;
}

static void join(maker *m) /* the last act with the one before it, where that can be */
{
    exec_tape *t = m->t;
    if (t->n_acts < 2) return;
    tape_act *a = &t->acts[t->n_acts - 2], *b = a + 1;
    for (size_t i = 0; i < COUNT(joined); i++)
        if (a->act.code == (int)joined[i].first && b->act.code == (int)joined[i].then) {
            a->act.code = (int)joined[i].both;
            if (fns[joined[i].then].params) a->own[1] = b->own[0], a->value[1] = b->value[0];
            else a->z = b->at, a->act.z_size = b->act.size;
            t->n_acts--;
            return;
        }
}

/* Products of an operand and a number that are only added to something, or taken from it, need no tile of their own. */
static void find_products(maker *m, const int (*of)[3])
{
    const exec_chain *ch = m->ch;
    for (int k = 0; k < ch->n_ops; k++) {
        vec_fn f = ch->ops[k].vf;
        if (ch->ops[k].kind != OP_VECTOR || (f != VF_ADD && f != VF_SUB) || of[k][0] == of[k][1]) continue;
        for (int i = f == VF_SUB; i < 2; i++) {
            value *v = &m->values[of[k][i]];
            int at = of[k][i] - ch->port;
            if (at < 0 || v->uses != 1 || ch->ops[at].kind != OP_VECTOR || ch->ops[at].vf != VF_MUL) continue;
            int a = of[at][0], b = of[at][1];
            if (is_one(m, &m->values[a])) a = of[at][1], b = of[at][0];
            const value *x = &m->values[a];
            if (!is_one(m, &m->values[b]) || is_one(m, x) || x->input == NONE || type_of(m, x) != m->t->type)
                continue;
            v->times = a, v->by = b;
            break; /* the other one is the tile's */
        }
    }
}

static void make_sum(maker *m, int x, int product, bool minus, int result)
{
    const value *p = &m->values[product];
    if (m->in_x >= 0 && m->values[m->in_x].uses > (m->in_x == x)) keep_x(m);
    load_x(m, x);
    tape_act *a = put(m, VF_ADD_MUL_P, place_of(m, &m->values[p->times]), size_of(m, &m->values[p->times]));
    a->value[0] = value_of(m, m->values[p->by].input, minus); /* x - v y is x + -v y, bit for bit */
    used(m, p->times), used(m, p->by), used(m, product), used(m, x);
    m->in_x = result;
}

static void make_fn(maker *m, const chain_op *o, const int *given, int result)
{
    vec_fn f = o->vf;
    int n = fns[f].operands, v[3] = { given[0], given[1], given[2] }, drop[2] = { NONE, NONE };
    bool swaps = f == VF_ADD || f == VF_MUL;
    if (m->values[result].times != NONE) return;
    for (int i = 0; i < 2 && (f == VF_ADD || f == VF_SUB); i++)
        if (m->values[v[i]].times != NONE) {
            make_sum(m, v[1 - i], v[i], f == VF_SUB, result);
            return;
        }
    if (swaps && v[0] != v[1] && (m->in_x == v[1] || (m->in_x != v[0] && is_one(m, &m->values[v[0]]))))
        v[0] = given[1], v[1] = given[0];
    if (f == VF_SUB && m->in_x == v[1] && v[0] != v[1]) f = VF_SUB_FROM, v[0] = given[1], v[1] = given[0];
    if (f == VF_MUL && v[0] == v[1]) f = VF_SQUARE, used(m, v[1]), n = 1;
    if (m->in_x >= 0) {
        bool now = v[0] == m->in_x;
        if (m->values[m->in_x].uses > now) keep_x(m); /* wanted in other ways than as the tile */
    }
    load_x(m, v[0]);
    const value *y = &m->values[v[1]];
    tape_act *a;
    if (n == 2 && is_one(m, y) && (swaps || f == VF_SUB)) { /* x - v is x + -v, bit for bit */
        a = put(m, f == VF_MUL ? VF_MUL_P : VF_ADD_P, (place){ 0 }, 0);
        a->value[0] = value_of(m, y->input, f == VF_SUB);
    } else if (n == 2 && type_of(m, y) == DT_F16 && m->t->type == DT_F32 && coded(f) != NONE)
        a = put(m, coded(f), place_of(m, y), size_of(m, y));
    else {
        place at[2] = { { 0 } };
        int size[2] = { 0 };
        for (int i = 1; i < n; i++) at[i - 1] = operand(m, v[i], &size[i - 1], &drop[i - 1]);
        a = put(m, f, at[0], size[0]);
        a->z = at[1], a->act.z_size = size[1];
        a->own[0] = o->p[0], a->own[1] = o->p[1];
    }
    for (int i = 0; i < n; i++) used(m, v[i]);
    for (int i = 0; i < 2; i++)
        if (drop[i] != NONE) m->busy[drop[i]] = false;
    m->in_x = result;
    join(m);
}

static void store_out(maker *m, int k)
{
    dtype t = m->ch->out[k].t;
    put(m, (int)codes[t].put, (place){ AT_RESULT, k }, (int)exec_size(t));
}

static bool held(dtype t) { return codes[t].load != 0; }
/* storing a bool is making one */
static bool stored_as_is(dtype t, int how) { return held(t) && (!how || (t == DT_BOOL && how == VR_BOOL)); }

static bool fits(const exec_chain *ch)
{
    if (ch->n_in > TAPE_INPUTS || ch->env->chip || ch->flush > 0 || ch->ceiling > 0) return false;
    for (int k = 0; k < ch->n_out; k++)
        if (!stored_as_is(ch->out[k].t, ch->out[k].how)) return false;
    for (int i = 0; i < ch->n_in; i++) {
        const exec_walk *w = &ch->in[i];
        if (!held(w->t) || (w->rank && w->stride[w->rank - 1] > 1) ||
            (w->rank && !w->same && w->dim[w->rank - 1] < SHORTEST_RUN))
            return false;
    }
    for (int k = 0; k < ch->n_ops; k++)
        if (ch->ops[k].kind != OP_READ && ch->ops[k].kind != OP_VECTOR) return false;
    return true;
}

static void make_acts(maker *m, int (*of)[3])
{
    const exec_chain *ch = m->ch;
    int reg[CHAIN_REGS], made[CHAIN_MOST_RESULTS];
    if (ch->port)
        m->values[m->n_values] = (value){ .input = ch->n_in, .slot = NONE, .times = NONE, .by = NONE },
        reg[0] = m->n_values++;
    for (int k = 0; k < ch->n_ops; k++) { /* who reads what */
        const chain_op *o = &ch->ops[k];
        int n = o->kind == OP_READ ? 0 : fns[o->vf].operands;
        for (int i = 0; i < 3; i++) of[k][i] = n ? reg[i == 0 || i >= n ? o->a : i == 1 ? o->b : o->c] : 0;
        for (int i = 0; i < n; i++) m->values[of[k][i]].uses++;
        m->values[m->n_values] =
            (value){ .input = o->kind == OP_READ ? o->input : NONE, .slot = NONE, .times = NONE, .by = NONE };
        reg[o->y] = m->n_values++;
    }
    for (int k = 0; k < ch->n_out; k++) m->values[made[k] = reg[ch->out[k].reg]].uses++;
    find_products(m, (const int(*)[3])of);
    /* a processor by itself looks no further than the end of a page */
    for (int i = 0; i < ch->n_in && !ch->env->near && ch->env->v->asks; i++)
        if (ch->in[i].same && ch->in[i].rank && !ch->in[i].idle)
            put(m, (int)codes[ch->in[i].t].ask, (place){ AT_INPUT, i }, (int)exec_size(ch->in[i].t));
    for (int k = 0; k < ch->n_ops && !m->hard; k++)
        if (ch->ops[k].kind == OP_VECTOR) make_fn(m, &ch->ops[k], of[k], k + ch->port);
    bool done[CHAIN_MOST_RESULTS] = { false };
    for (int k = 0; k < ch->n_out && !m->hard; k++) { /* what the tile holds goes first */
        if ((done[k] = made[k] == m->in_x)) store_out(m, k);
    }
    for (int k = 0; k < ch->n_out && !m->hard; k++)
        if (!done[k]) load_x(m, made[k]), store_out(m, k);
}

/* ---- an update by Adam ---- */

/* Reads a tape from its beginning, act by act; what slots hold is followed. */
typedef struct {
    const exec_tape *t;
    int at;
    adam_role slot[SLOTS];
    bool ok;
} reader;

static const tape_act *peek(const reader *r) { return r->at < r->t->n_acts ? &r->t->acts[r->at] : NULL; }
static bool comes(const reader *r, int code) { return peek(r) && peek(r)->act.code == code; }
static const tape_act *next(reader *r, int code)
{
    static const tape_act none = { .value = { NONE, NONE } };
    r->ok = r->ok && comes(r, code);
    return r->ok ? &r->t->acts[r->at++] : &none;
}
static number next_number(reader *r, int code)
{
    const tape_act *a = next(r, code);
    return (number){ a->value[0], a->own[0] };
}
/* An operand that is a new one, or the one that it was before. */
static void from_input(reader *r, place p, int *input)
{
    r->ok = r->ok && p.kind == AT_INPUT && (*input == NONE || *input == p.which);
    if (r->ok) *input = p.which;
}
static void from_slot(reader *r, place p, adam_role what)
{
    r->ok = r->ok && p.kind == AT_SLOT && r->slot[p.which] == what;
}
static void keep_as(reader *r, adam_role what)
{
    place p = next(r, VA_PUT_F32)->at;
    r->ok = r->ok && p.kind == AT_SLOT;
    if (r->ok) r->slot[p.which] = what;
}

/* One number in all lanes of a slot. */
static number filled(reader *r, place p)
{
    const exec_tape *t = r->t;
    for (int i = 0; r->ok && p.kind == AT_SLOT && i < t->n_fills; i++)
        if (t->fill[i].slot == p.which) return (number){ t->fill[i].value, 0 };
    r->ok = false;
    return (number){ NONE, 0 };
}

static void read_moments(reader *r, tape_adam *a)
{
    from_input(r, next(r, VA_X_F32)->at, &a->in[ADAM_G]);
    a->clips = r->ok && r->at + 1 < r->t->n_acts && r->t->acts[r->at + 1].act.code == VA_PUT_F32;
    if (a->clips) a->clip = next_number(r, VF_MUL_P), keep_as(r, ADAM_G_CLIPPED);
    a->take_1 = next_number(r, VF_MUL_P);
    if (peek(r)) from_input(r, peek(r)->at, &a->in[ADAM_M]);
    a->keep_1 = next_number(r, VF_ADD_MUL_P);
    keep_as(r, ADAM_M);
    place again = next(r, VA_X_F32)->at;
    if (a->clips) from_slot(r, again, ADAM_G_CLIPPED);
    else from_input(r, again, &a->in[ADAM_G]);
    (void)next(r, VF_SQUARE);
    a->take_2 = next_number(r, VF_MUL_P);
    a->sizes = comes(r, VA_PUT_F32);
    if (a->sizes) {
        keep_as(r, ADAM_SQUARE);
        from_input(r, next(r, VA_X_F32)->at, &a->in[ADAM_V]);
        (void)next(r, VF_ABS);
        a->keep_2 = next_number(r, VF_MUL_P);
        from_slot(r, next(r, VF_ADD)->at, ADAM_SQUARE);
    } else {
        if (peek(r)) from_input(r, peek(r)->at, &a->in[ADAM_V]);
        a->keep_2 = next_number(r, VF_ADD_MUL_P);
    }
    keep_as(r, ADAM_V);
}

static void read_step(reader *r, tape_adam *a)
{
    from_slot(r, next(r, VA_X_F32)->at, ADAM_M);
    const tape_act *root = next(r, VF_ROOT_DIV);
    from_slot(r, root->at, ADAM_V);
    a->eps = filled(r, root->z);
    a->rate = next_number(r, VF_MUL_P);
    a->decays = comes(r, VF_ADD_MUL_P), a->shrinks = comes(r, VA_PUT_F32);
    if (a->shrinks) {
        keep_as(r, ADAM_STEP);
        from_input(r, next(r, VA_X_F32)->at, &a->in[ADAM_W]);
        a->decay = next_number(r, VF_MUL_P);
        from_slot(r, next(r, VF_SUB)->at, ADAM_STEP);
        return;
    }
    if (a->decays) {
        from_input(r, peek(r)->at, &a->in[ADAM_W]);
        a->decay = next_number(r, VF_ADD_MUL_P);
    }
    from_input(r, next(r, VF_SUB_FROM)->at, &a->in[ADAM_W]);
}

/* What the tile holds goes to results, in any order. */
static void read_results(reader *r, tape_adam *a)
{
    adam_role x = ADAM_W;
    for (; r->ok && peek(r); r->at++) {
        const tape_act *act = peek(r);
        const bool slot = act->at.kind == AT_SLOT, half = act->act.code == VA_PUT_F16 || act->act.code == VA_PUT_BF16;
        if (act->act.code == VF_COPY) continue;
        if (act->act.code == VA_X_F32 && slot) x = r->slot[act->at.which];
        else if (act->act.code == VA_PUT_F32 && slot) r->slot[act->at.which] = x;
        else if (act->act.code == VA_PUT_F32 && act->at.kind == AT_RESULT && a->out[x] == NONE) a->out[x] = act->at.which;
        else if (half && x == ADAM_W && a->copy == NONE) a->copy = act->at.which;
        else r->ok = false;
    }
}

static bool find_adam(const exec_chain *ch, const exec_tape *t, tape_adam *a)
{
    reader r = { .t = t, .ok = true };
    *a = (tape_adam){ .copy = NONE, .clip = { NONE, 0 }, .decay = { NONE, 0 } };
    for (int i = 0; i < ADAM_ROLES; i++) a->in[i] = a->out[i] = NONE;
    while (comes(&r, VA_ASK_4)) r.at++;
    read_moments(&r, a);
    if (r.ok) read_step(&r, a);
    if (r.ok) read_results(&r, a);
    for (int i = 0; r.ok && i < ADAM_ROLES; i++) {
        r.ok = (a->out[i] != NONE) == (i == ADAM_M || i == ADAM_V || i == ADAM_W);
        if (a->in[i] != NONE) r.ok = r.ok && ch->in[a->in[i]].t == DT_F32 && ch->in[a->in[i]].same && ch->in[a->in[i]].rank;
    }
    for (int i = 0; i < ch->n_in; i++) r.ok = r.ok && (ch->in[i].same || !ch->in[i].rank);
    return r.ok;
}

/* The rows of a result may become runs of any length as other tensors change: where one is never as short as those
 * that no tape is made of, a chain is run in one way whatever the number of rows. */
static bool fuses(const image *im, const exec_chain *ch)
{
    const etensor *y = &im->p->tensors.at[ch->out[0].y];
    return y->rank && y->dim[y->rank - 1] >= SHORTEST_RUN;
}

/* *out: NULL, if the chain can have none whose tile holds elements of that type. */
static an_status make_tape(image *im, const exec_chain *ch, dtype type, exec_tape **out, diag *d)
{
    arena_mark mark = arena_save(&im->tmp);
    maker m = { .ch = ch, .in_x = NONE };
    m.values = TAKE(&im->tmp, value, (size_t)ch->n_ops + 1);
    int(*of)[3] = arena_take(&im->tmp, (size_t)ch->n_ops + 1, sizeof *of, alignof(int));
    tape_act *acts = TAKE(&im->tmp, tape_act, MOST_ACTS);
    exec_tape *t = TAKE(&im->prepared, exec_tape, 1);
    if (!m.values || !of || !acts || !t) return diag_nomem(d);
    m.t = t, t->acts = acts, t->type = type;
    t->tile = type == DT_F32 ? ch->env->v->tile : ch->env->v->halves_tile;
    make_acts(&m, of);
    if (!m.hard && (type == DT_F32 || exec_halves_hold(t, fuses(im, ch)))) {
        t->acts = TAKE(&im->prepared, tape_act, (size_t)t->n_acts);
        if (!t->acts) return diag_nomem(d);
        memcpy(t->acts, acts, (size_t)t->n_acts * sizeof *acts);
        tape_adam *adam = TAKE(&im->prepared, tape_adam, 1);
        if (!adam) return diag_nomem(d);
        t->adam = find_adam(ch, t, adam) ? adam : NULL;
        *out = t;
    }
    arena_back(&im->tmp, mark);
    return AN_OK;
}

an_status exec_tape_make(image *im, exec_chain *ch, diag *d)
{
    exec_tape *t = NULL;
    if (!fits(ch)) return AN_OK;
    if (exec_halves_wanted(ch)) TRY(make_tape(im, ch, DT_F16, &t, d));
    if (!t) TRY(make_tape(im, ch, DT_F32, &t, d));
    ch->tape = t;
    return AN_OK;
}

/* ---- running ---- */

size_t exec_tape_bytes(const exec_chain *ch)
{
    return (size_t)ch->tape->n_slots * (size_t)ch->tape->tile * (size_t)exec_size(ch->tape->type);
}

/* Rows of equal length one behind the other, or one of any length. */
typedef struct {
    const exec_chain *ch;
    char *scratch;
    int64_t slot_bytes, rows;
    char *in[TAPE_INPUTS], *result[CHAIN_MOST_RESULTS], *acc;
    int64_t in_row[TAPE_INPUTS], result_row[CHAIN_MOST_RESULTS], acc_row; /* bytes from row to row */
    bool past[CHAIN_MOST_RESULTS];
    float (*one)[MOST_ROWS]; /* per value of the tape */
    int *one_row;            /* 0: the same for all rows */
} stretch;

static char *slot_mem(const stretch *s, int slot) { return s->scratch + slot * s->slot_bytes; }

static char *mem_of(const stretch *s, place p, int64_t *row)
{
    *row = 0;
    switch (p.kind) {
    case AT_SLOT: return slot_mem(s, p.which);
    case AT_INPUT: *row = s->in_row[p.which]; return s->in[p.which];
    case AT_RESULT: *row = s->result_row[p.which]; return s->result[p.which];
    case AT_ACC: *row = s->acc_row; return s->acc;
    case AT_NOTHING: break;
    }
    return s->scratch;
}

static void bind(const stretch *s, vec_act *to)
{
    const exec_tape *t = s->ch->tape;
    for (int i = 0; i < t->n_acts; i++) {
        const tape_act *a = &t->acts[i];
        to[i] = a->act;
        to[i].at = mem_of(s, a->at, &to[i].row), to[i].z = mem_of(s, a->z, &to[i].z_row);
        for (int k = 0; k < 2; k++) {
            bool given = a->value[k] != NONE;
            to[i].p[k] = given ? s->one[a->value[k]] : &a->own[k];
            to[i].p_row[k] = given ? s->one_row[a->value[k]] : 0;
        }
        if (a->at.kind == AT_RESULT && s->past[a->at.which]) to[i].code += VA_PAST_F32 - VA_PUT_F32;
    }
}

static float number_of(const stretch *s, number n) { return n.value == NONE ? n.own : s->one[n.value][0]; }

static void run_adam(const stretch *s, int64_t n)
{
    const exec_chain *ch = s->ch;
    const tape_adam *a = ch->tape->adam;
    const int *in = a->in, *out = a->out;
#define IN(role) (const float *)(const void *)s->in[in[role]]
#define OUT(role) (float *)(void *)s->result[out[role]]
    const vec_adam p = { .g = IN(ADAM_G), .m = IN(ADAM_M), .v = IN(ADAM_V), .w = IN(ADAM_W),
                         .to_m = OUT(ADAM_M), .to_v = OUT(ADAM_V), .to_w = OUT(ADAM_W),
                         .copy = a->copy == NONE ? NULL : s->result[a->copy],
                         .type = a->copy == NONE ? DT_F32 : ch->out[a->copy].t,
                         .clip = number_of(s, a->clip), .take_1 = number_of(s, a->take_1),
                         .keep_1 = number_of(s, a->keep_1), .take_2 = number_of(s, a->take_2),
                         .keep_2 = number_of(s, a->keep_2), .eps = number_of(s, a->eps),
                         .rate = number_of(s, a->rate), .decay = number_of(s, a->decay),
                         .clips = a->clips, .sizes = a->sizes, .decays = a->decays, .shrinks = a->shrinks,
                         .past_m = s->past[out[ADAM_M]], .past_v = s->past[out[ADAM_V]],
                         .past_w = s->past[out[ADAM_W]], .past_copy = a->copy != NONE && s->past[a->copy],
                         .asks = ch->env->v->asks && !ch->env->near };
#undef IN
#undef OUT
    ch->env->v->adam(&p, n);
}

/* Where a broadcast operand stands: the place of the stretch along each of its axes, and in its memory. Moved on
 * from stretch to stretch: finding it anew takes divisions, as many as a short stretch has vectors. */
typedef struct {
    int64_t idx[ENGINE_MAX_RANK], off;
} walker;

static walker walker_at(const exec_walk *w, int64_t at)
{
    walker k = { .off = 0 };
    for (int a = w->rank - 1; a >= 0; a--) k.idx[a] = at % w->dim[a], at /= w->dim[a], k.off += k.idx[a] * w->stride[a];
    return k;
}

static void walker_on(walker *k, const exec_walk *w, int64_t n) /* n: not past the end of a run */
{
    int a = w->rank - 1;
    k->idx[a] += n, k->off += n * w->stride[a];
    for (; a > 0 && k->idx[a] == w->dim[a]; a--) {
        k->off += w->stride[a - 1] - k->idx[a] * w->stride[a];
        k->idx[a] = 0, k->idx[a - 1]++;
    }
}

/* Past rows of len elements: either a run each, not past the end of the axis before the last, or all in one run. */
static void walker_rows(walker *k, const exec_walk *w, int64_t rows, int64_t len)
{
    const int a = w->rank - 2;
    if (a < 0 || w->dim[a + 1] != len) {
        walker_on(k, w, rows * len);
        return;
    }
    k->idx[a] += rows - 1, k->off += (rows - 1) * w->stride[a];
    walker_on(k, w, len);
}

static bool walks(const exec_walk *w) { return w->rank && !w->same; }
static int64_t row_stride(const exec_walk *w, int64_t len)
{
    return w->rank > 1 && w->dim[w->rank - 1] == len ? w->stride[w->rank - 2] : 0;
}

/* What stays the same from stretch to stretch. */
typedef struct {
    char *in[TAPE_INPUTS], *result[CHAIN_MOST_RESULTS]; /* where tensors begin */
    int64_t in_size[TAPE_INPUTS], result_size[CHAIN_MOST_RESULTS];
    bool past[CHAIN_MOST_RESULTS];
    int walkers[TAPE_INPUTS], n_walkers;
    bool by_row; /* nothing but parameters and places changes between rows */
} ground;

static void find_ground(const exec_chain *ch, const run_ctx *c, ground *g)
{
    const exec_tape *t = ch->tape;
    g->n_walkers = 0, g->by_row = true;
    for (int i = 0; i < ch->n_in; i++) {
        const exec_walk *w = &ch->in[i];
        g->in[i] = ctx_mem(c, w->tensor), g->in_size[i] = exec_size(w->t);
        if (walks(w)) g->walkers[g->n_walkers++] = i;
    }
    for (int i = 0; i < t->n_fills; i++) g->by_row = g->by_row && !walks(&ch->in[t->value[t->fill[i].value].input]);
    for (int k = 0; k < ch->n_out; k++) {
        g->result[k] = ctx_mem(c, ch->out[k].y), g->result_size[k] = exec_size(ch->out[k].t);
        g->past[k] = ch->out[k].t != DT_BOOL && exec_chain_past(ch, c, k);
    }
}

/* A number alone: through a vector it would wait for the store of its lanes. */
static float one_at(const vec_kernels *v, dtype t, const char *x)
{
    float y;
    uint16_t h;
    if (t == DT_F32) memcpy(&y, x, sizeof y);
    else if (t == DT_F16) memcpy(&h, x, sizeof h), y = f16_to_f32(h);
    else v->load(&y, t, x, 1);
    return y;
}

/* The value of an operand in every row. */
static void find_ones(const exec_chain *ch, const ground *g, stretch *s, int64_t len)
{
    const exec_tape *t = ch->tape;
    const vec_kernels *v = ch->env->v;
    for (int i = 0; i < t->n_values; i++) {
        const int input = t->value[i].input;
        const exec_walk *w = &ch->in[input];
        const int64_t stride = s->rows > 1 ? row_stride(w, len) : 0, n = stride ? s->rows : 1;
        float *to = s->one[i];
        s->one_row[i] = stride ? 1 : 0;
        if (stride == 1) v->load(to, w->t, s->in[input], n);
        else
            for (int64_t r = 0; r < n; r++) to[r] = one_at(v, w->t, s->in[input] + r * stride * g->in_size[input]);
        for (int64_t r = 0; t->value[i].minus && r < n; r++) to[r] = -to[r];
    }
}

/* How many rows of the length at hand are alike from here on. */
static int64_t rows_alike(const exec_chain *ch, const ground *g, const walker *walk, int64_t len, int64_t left)
{
    if (!g->by_row) return 1;
    int64_t rows = MIN(left / len, MOST_ROWS);
    for (int i = 0; i < g->n_walkers; i++) {
        const exec_walk *w = &ch->in[g->walkers[i]];
        const walker *k = &walk[g->walkers[i]];
        const int last = w->rank - 1;
        if (w->dim[last] != len) { /* a longer run: one number for all rows in it */
            if (w->stride[last]) return 1;
            rows = MIN(rows, (w->dim[last] - k->idx[last]) / len);
        } else if (last) rows = MIN(rows, w->dim[last - 1] - k->idx[last - 1]);
    }
    return rows;
}

static int64_t shortest_run(const exec_chain *ch, const ground *g, const walker *walk, int64_t len)
{
    for (int i = 0; i < g->n_walkers; i++) {
        const exec_walk *w = &ch->in[g->walkers[i]];
        len = MIN(len, w->dim[w->rank - 1] - walk[g->walkers[i]].idx[w->rank - 1]);
    }
    return len;
}

static void fill_slot(const exec_tape *t, const vec_kernels *v, char *slot, float x)
{
    const uint16_t h = t->type == DT_F16 ? f16_from_f64((double)x) : 0;
    if (t->type == DT_F32) v->fill((float *)(void *)slot, x, t->tile);
    else
        for (int i = 0; i < t->tile; i++) memcpy(slot + (size_t)i * sizeof h, &h, sizeof h);
}

void exec_tape_run(const exec_chain *ch, const run_ctx *c, const float *acc, int64_t at, int64_t n, void *scratch)
{
    const exec_tape *t = ch->tape;
    const vec_kernels *v = ch->env->v;
    vec_act acts[MOST_ACTS];
    ground g;
    float one[TAPE_VALUES][MOST_ROWS];
    int one_row[TAPE_VALUES];
    stretch s = { .one = one, .one_row = one_row };
    walker walk[TAPE_INPUTS];
    find_ground(ch, c, &g);
    s.ch = ch, s.scratch = scratch, s.slot_bytes = t->tile * exec_size(t->type);
    for (int i = 0; i < ch->n_in; i++) walk[i] = walker_at(&ch->in[i], walks(&ch->in[i]) ? at : 0);
    for (int64_t done = 0, len; done < n; done += s.rows * len) {
        len = shortest_run(ch, &g, walk, n - done);
        s.rows = rows_alike(ch, &g, walk, len, n - done);
        for (int i = 0; i < ch->n_in; i++) {
            const exec_walk *w = &ch->in[i];
            bool same = w->same && w->rank;
            s.in[i] = g.in[i] + (same ? at + done : walk[i].off) * g.in_size[i];
            s.in_row[i] = (same ? len : row_stride(w, len)) * g.in_size[i];
        }
        find_ones(ch, &g, &s, len);
        for (int i = 0; i < g.n_walkers; i++) {
            const int k = g.walkers[i];
            walker_rows(&walk[k], &ch->in[k], s.rows, len);
        }
        s.acc = (char *)(uintptr_t)(acc ? acc + done : NULL), s.acc_row = len * (int64_t)sizeof *acc;
        for (int k = 0; k < ch->n_out; k++) {
            s.result[k] = g.result[k] + (at + done) * g.result_size[k], s.result_row[k] = len * g.result_size[k];
            s.past[k] =
                g.past[k] && (uintptr_t)s.result[k] % VEC_LINE == 0 && (s.rows == 1 || s.result_row[k] % VEC_LINE == 0);
        }
        if (t->adam) {
            run_adam(&s, len);
            continue;
        }
        for (int i = 0; i < t->n_fills; i++)
            fill_slot(t, v, slot_mem(&s, t->fill[i].slot), s.one[t->fill[i].value][0]);
        bind(&s, acts);
        (t->type == DT_F16 ? v->halves : v->tape)(acts, t->n_acts, s.rows, len);
    }
}
