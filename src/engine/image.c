/* image.c: a program loaded here, and one dispatch of it.
 * In: a checked program, weights, bound buffers.  Out: results in the output buffers.
 *
 * Loading resolves every tensor to an address, reconstructs constants, and lets each instruction prepare. A run
 * binds the ports and calls one function per instruction, in order. Reads of a run see the inputs as they were
 * before it: an input whose memory an output shares is copied first. The exception is state in place: an input that
 * is read once, to be copied whole into an output that nothing has written yet. Bound to the same memory, that copy
 * is already there. */
#include <stdlib.h>

#include "base/big.h"
#include "base/fpmode.h"
#include "engine/engine_int.h"

enum { ENGINE_ALIGN = 64 };

void *engine_alloc(uint64_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t n = ROUND_UP((size_t)MAX(bytes, 1), (size_t)ENGINE_ALIGN);
    void *p = big_alloc(ENGINE_ALIGN, n);
    if (p) memset(p, 0, n);
    return p;
}

/* Zeroed by the system where it is large: its pages are first touched by the threads that use them, not all by the
 * one that loads. */
static void *image_zeroed(image *im, uint64_t bytes)
{
    if (bytes > SIZE_MAX / 2 ||
        !vec_room(&im->mem_image, &im->blocks.at, &im->blocks.cap, im->blocks.n + 1, sizeof *im->blocks.at))
        return NULL;
    void **block = &im->blocks.at[im->blocks.n],
         *at = bytes < BIG ? (*block = engine_alloc(bytes)) : big_zeroed(ENGINE_ALIGN, (size_t)bytes, block);
    if (!at) return NULL;
    im->blocks.n++;
    im->own_bytes += bytes;
    return at;
}

void image_free(image *im)
{
    if (!im) return;
    packs_drop(im);
    for (size_t i = 0; i < im->blocks.n; i++) free(im->blocks.at[i]);
    for (size_t i = 0; im->const_own && i < im->p->consts.n; i++) free(im->const_own[i]);
    for (size_t i = 0; im->shadow && i < im->p->inputs.n; i++) free(im->shadow[i]);
    arena_free(&im->mem_image);
    arena_free(&im->prepared);
    arena_free(&im->tmp);
    free(im);
}

static const exec_entry *entry_of(const image *im, insn_id op)
{
    return im->opt.reference ? NULL : exec_entry_of(op);
}

/* ---- constants ---- */

static void const_seen(image *im, size_t k) /* tensors that view it */
{
    for (size_t i = 0; i < im->p->tensors.n; i++) {
        const etensor *t = &im->p->tensors.at[i];
        if (t->where == SPACE_CONST && t->slot == k) im->mem[i] = im->const_at[k] ? im->const_at[k] + t->offset : NULL;
    }
}

static an_status load_consts(image *im, const weight_source *w, diag *d)
{
    const program *p = im->p;
    for (size_t k = 0; k < p->consts.n; k++) {
        /* read as it is stored: its instructions look for it themselves */
        if (!im->const_at[k] && im->stored[k].at[0]) continue;
        TRY(const_load(im, w, k, d));
        const_seen(im, k);
    }
    return AN_OK;
}

an_status const_ready(image *im, int64_t tensor, diag *d)
{
    const etensor *t = &im->p->tensors.at[tensor];
    if (t->where != SPACE_CONST || im->const_at[t->slot]) return AN_OK;
    TRY(const_load(im, im->source, t->slot, d));
    const_seen(im, t->slot);
    return AN_OK;
}

void const_done(image *im, size_t k)
{
    const const_entry *c = &im->p->consts.at[k];
    for (int i = 0; i < c->n_src; i++)
        if (c->src[i].path) im->source->done(im->source->user, c->src[i].path, c->src[i].offset);
}

static void const_drop(image *im, size_t k)
{
    const const_entry *c = &im->p->consts.at[k];
    uint64_t bytes;
    if (im->const_own[k] && et_bytes(&im->p->tensors.at[c->tensor], &bytes)) im->own_bytes -= bytes;
    free(im->const_own[k]);
    im->const_own[k] = im->const_at[k] = NULL;
    const_seen(im, k);
    if (!im->stored[k].at[0]) const_done(im, k);
}

/* ---- preparing ---- */

static an_status prepare(image *im, size_t i, diag *d)
{
    const exec_entry *e = entry_of(im, im->p->insns.at[i].op);
    im->preparing = i;
    return e && e->prepare ? e->prepare(im, &im->p->insns.at[i], &im->state[i], d) : AN_OK;
}

/* Constants one instruction at a time; products ask for theirs themselves. */
static an_status prepare_lazily(image *im, diag *d)
{
    const program *p = im->p;
    size_t n = p->consts.n;
    uint32_t *readers = TAKE(&im->mem_image, uint32_t, n);
    bool *kept = TAKE(&im->mem_image, bool, n);
    if (!readers || !kept) return diag_nomem(d);
    insn_walk r;
    int64_t t;
    for (size_t i = 0; i < p->insns.n; i++)
        for (insn_walk_begin(&r, &p->insns.at[i]); insn_walk_next(&r, false, &t);)
            if (p->tensors.at[t].where == SPACE_CONST) readers[p->tensors.at[t].slot]++;
    for (size_t i = 0; i < p->insns.n; i++) {
        const insn *in = &p->insns.at[i];
        if (!insn_is_product(in->op))
            for (insn_walk_begin(&r, in); insn_walk_next(&r, false, &t);) TRY(const_ready(im, t, d));
        im->packed_now = -1;
        TRY(prepare(im, i, d));
        int64_t packed = im->packed_now;
        for (insn_walk_begin(&r, in); insn_walk_next(&r, false, &t);) {
            if (p->tensors.at[t].where != SPACE_CONST) continue;
            size_t k = p->tensors.at[t].slot;
            if (t != packed || !im->state[i]) {
                TRY(const_ready(im, t, d));
                kept[k] = true;
            }
            if (!--readers[k] && !kept[k] && im->const_at[k] && im->lazy) const_drop(im, k);
        }
    }
    return AN_OK;
}

/* ---- state in place ---- */

/* Does the instruction read (or write, `written`) any tensor of this port? */
static bool touches(const program *p, const insn *in, space where, uint32_t slot, bool written)
{
    insn_walk r;
    int64_t t;
    for (insn_walk_begin(&r, in); insn_walk_next(&r, written, &t);)
        if (p->tensors.at[t].where == where && p->tensors.at[t].slot == slot) return true;
    return false;
}

/* The output that instruction `in` makes a whole copy of input k in; -1: it does something else. */
static int64_t whole_copy(const program *p, const insn *in, uint32_t k)
{
    if (in->op != IN_MOVE) return -1;
    const etensor *y = &p->tensors.at[insn_t(in, "y")], *x = &p->tensors.at[insn_t(in, "x")];
    int64_t n, dense = 1;
    const int64_t *size = insn_is(in, "size", &n), *ys = insn_is(in, "y_step", &n), *xs = insn_is(in, "x_step", &n);
    if (x->where != SPACE_INPUT || x->slot != k || y->where != SPACE_OUTPUT || x->offset || y->offset || x->dt != y->dt)
        return -1;
    for (int64_t i = n - 1; i >= 0; dense *= size[i], i--)
        if (size[i] != 1 && (ys[i] != dense || xs[i] != dense)) return -1;
    uint64_t bytes;
    if (insn_i(in, "y_start") || insn_i(in, "x_start") || dense != et_elems(x) || !et_bytes(x, &bytes)) return -1;
    return bytes == p->inputs.at[k].bytes && bytes == p->outputs.at[y->slot].bytes ? (int64_t)y->slot : -1;
}

static int64_t in_place_of(const program *p, uint32_t k)
{
    int64_t at = -1;
    if (p->num.nan_to_inf != 0) return -1; /* a copy on a chip may change a value */
    for (size_t i = 0; i < p->insns.n; i++) {
        if (!touches(p, &p->insns.at[i], SPACE_INPUT, k, false)) continue;
        int64_t y = whole_copy(p, &p->insns.at[i], k);
        if (y < 0 || at >= 0) return -1;
        for (size_t j = 0; j < i; j++)
            if (touches(p, &p->insns.at[j], SPACE_OUTPUT, (uint32_t)y, true)) return -1;
        at = y;
    }
    return at;
}

static bool is_chain(const insn *in) { return in->op == IN_EW || in->op == IN_EWS; }

/* All of the port's memory, one element of it for each of the chain's results: read and written at the same place. */
static bool in_step(const program *p, const insn *in, const etensor *t, uint64_t port_bytes)
{
    int64_t y[CHAIN_MOST_RESULTS], step[CHAIN_MOST_RESULTS];
    uint64_t bytes;
    insn_results(in, y, step);
    return !t->offset && et_elems(t) == et_elems(&p->tensors.at[y[0]]) && et_bytes(t, &bytes) && bytes == port_bytes;
}

/* The elementwise chain that is the last to read input k, in step with what it writes; -1: another reads it last. */
static int64_t last_chain_of(const program *p, uint32_t k)
{
    int64_t at = -1;
    for (size_t i = 0; i < p->insns.n; i++)
        if (touches(p, &p->insns.at[i], SPACE_INPUT, k, false)) at = (int64_t)i;
    if (at < 0 || !is_chain(&p->insns.at[at])) return -1;
    insn_walk r;
    int64_t t;
    for (insn_walk_begin(&r, &p->insns.at[at]); insn_walk_next(&r, false, &t);) {
        const etensor *x = &p->tensors.at[t];
        if (x->where == SPACE_INPUT && x->slot == k && !in_step(p, &p->insns.at[at], x, p->inputs.at[k].bytes))
            return -1;
    }
    return at;
}

/* The chain that alone writes output i; -1: something else does, or before it. */
static int64_t chain_of(const program *p, uint32_t i)
{
    int64_t at = -1;
    for (size_t k = 0; k < p->insns.n; k++) {
        const insn *in = &p->insns.at[k];
        if (!touches(p, in, SPACE_OUTPUT, i, true) && !touches(p, in, SPACE_OUTPUT, i, false)) continue;
        if (at < 0 && !is_chain(in)) return -1;
        if (at < 0) at = (int64_t)k;
        else if (touches(p, in, SPACE_OUTPUT, i, true)) return -1;
    }
    if (at < 0) return -1;
    int64_t y[CHAIN_MOST_RESULTS], step[CHAIN_MOST_RESULTS];
    int n = insn_results(&p->insns.at[at], y, step);
    for (int k = 0; k < n; k++) {
        const etensor *t = &p->tensors.at[y[k]];
        if (t->where == SPACE_OUTPUT && t->slot == i && in_step(p, &p->insns.at[at], t, p->outputs.at[i].bytes))
            return at;
    }
    return -1;
}

static an_status load(image *im, const weight_source *w, diag *d)
{
    const program *p = im->p;
    arena *a = &im->mem_image;
    im->mem = TAKE(a, unsigned char *, p->tensors.n);
    im->const_at = TAKE(a, unsigned char *, p->consts.n);
    im->const_own = TAKE(a, unsigned char *, p->consts.n);
    im->stored = arena_take(a, p->consts.n, sizeof *im->stored, alignof(void *));
    im->shadow = TAKE(a, unsigned char *, p->inputs.n);
    im->view = TAKE(a, unsigned char *, p->inputs.n);
    im->in_place = TAKE(a, int64_t, p->inputs.n);
    im->last_chain = TAKE(a, int64_t, p->inputs.n);
    im->chain_of = TAKE(a, int64_t, p->outputs.n);
    im->state = TAKE(a, void *, p->insns.n);
    im->scratch = image_zeroed(im, p->scratch_bytes);
    if (!im->scratch)
        return diag_fail(d, AN_NOMEM, NOWHERE, "out of memory: %llu bytes were wanted for what \"%.80s\" works in",
                         (unsigned long long)p->scratch_bytes, p->title);
    if (!im->mem || !im->const_at || !im->const_own || !im->stored || !im->shadow || !im->view || !im->in_place ||
        !im->last_chain || !im->chain_of || !im->state)
        return diag_nomem(d);
    for (size_t i = 0; i < p->tensors.n; i++)
        if (p->tensors.at[i].where == SPACE_SCRATCH) im->mem[i] = im->scratch + p->tensors.at[i].offset;
    for (size_t k = 0; k < p->inputs.n; k++)
        im->in_place[k] = in_place_of(p, (uint32_t)k), im->last_chain[k] = last_chain_of(p, (uint32_t)k);
    for (size_t k = 0; k < p->outputs.n; k++) im->chain_of[k] = chain_of(p, (uint32_t)k);
    im->lazy = w && w->done && !im->opt.reference;
    im->source = w;
    if (!im->opt.reference) TRY(prepare_lazily(im, d));
    for (size_t k = 0; k < p->consts.n && !im->lazy; k++) /* those that no instruction reads too: a digest is of all */
        if (!im->stored[k].at[0]) TRY(const_ready(im, p->consts.at[k].tensor, d));
    im->source = NULL;
    if (im->work_bytes) {
        if (!(im->work = image_zeroed(im, im->work_bytes)))
            return diag_fail(d, AN_NOMEM, NOWHERE, "out of memory: %llu bytes were wanted for the kernels of \"%.80s\"",
                             (unsigned long long)im->work_bytes, im->p->title);
    }
    return AN_OK;
}

an_status image_load(image **out, const program *p, const weight_source *w, const image_options *o, diag *d)
{
    *out = NULL;
    TRY(program_check(p, d));
    TRY(program_accepts(p, w, d));
    if (o && (o->fast_math < 0 || o->fast_math >= FAST_COUNT))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE,
                         "fast_math %d: 0 (fp32 products), 1 (bf16 products) and 2 (int8 products) are there",
                         o->fast_math);
    image *im = calloc(1, sizeof *im);
    if (!im) return diag_nomem(d);
    im->p = p;
    if (o) im->opt = *o;
    packs_lock(im->opt.packs);
    an_status st = load(im, w, d);
    packs_unlock(im->opt.packs);
    if (st) image_free(im);
    else *out = im;
    return st;
}

an_status image_reload(image *im, const weight_source *w, diag *d)
{
    if (im->lazy)
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE,
                         "program \"%.80s\": its weights were let go once they were packed; load it again",
                         im->p->title);
    TRY(program_accepts(im->p, w, d)); /* before anything is touched */
    im->broken = true; /* until all of it is there again */
    im->source = w;
    TRY(load_consts(im, w, d));
    for (size_t i = 0; i < im->p->insns.n; i++) {
        const exec_entry *e = entry_of(im, im->p->insns.at[i].op);
        if (e && e->repack) TRY(e->repack(im, &im->p->insns.at[i], im->state[i], d));
    }
    im->source = NULL;
    im->broken = false;
    return AN_OK;
}

/* ---- running ---- */

static bool overlaps(const void *a, uint64_t n, const void *b, uint64_t m)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < n : x - y < m;
}

/* Input k is read after an output may have been written over it. */
static bool is_copied(const image *im, size_t k, const void *const *inputs, void *const *outputs)
{
    const eport *e = &im->p->inputs.at[k];
    for (size_t i = 0; i < im->p->outputs.n; i++) {
        if (!overlaps(inputs[k], e->bytes, outputs[i], im->p->outputs.at[i].bytes)) continue;
        bool in_place =
            im->in_place[k] == (int64_t)i || (im->last_chain[k] >= 0 && im->last_chain[k] == im->chain_of[i]);
        if (!in_place || inputs[k] != outputs[i] || e->bytes != im->p->outputs.at[i].bytes) return true;
    }
    return false;
}

/* Where input k is read during this run. */
static an_status input_view(image *im, size_t k, const void *const *inputs, void *const *outputs, unsigned char **at,
                            diag *d)
{
    const eport *e = &im->p->inputs.at[k];
    *at = (unsigned char *)(uintptr_t)inputs[k]; /* never written */
    if (!is_copied(im, k, inputs, outputs)) return AN_OK;
    if (!im->shadow[k]) {
        if (!(im->shadow[k] = engine_alloc(e->bytes)))
            return diag_fail(d, AN_NOMEM, NOWHERE, "out of memory: %llu bytes were wanted for a copy of an input",
                             (unsigned long long)e->bytes);
        im->own_bytes += e->bytes;
    }
    memcpy(im->shadow[k], inputs[k], (size_t)e->bytes);
    *at = im->shadow[k];
    return AN_OK;
}

uint64_t image_grows(const image *im, const void *const *inputs, void *const *outputs)
{
    uint64_t bytes = 0;
    for (size_t k = 0; k < im->p->inputs.n; k++)
        if (!im->shadow[k] && inputs[k] && is_copied(im, k, inputs, outputs)) bytes += im->p->inputs.at[k].bytes;
    return bytes;
}

static an_status bind(image *im, const void *const *inputs, void *const *outputs, diag *d)
{
    const program *p = im->p;
    for (size_t k = 0; k < p->inputs.n; k++)
        if (!inputs[k]) return diag_fail(d, AN_INPUT, NOWHERE, "input \"%.80s\" is not bound", p->inputs.at[k].name);
    for (size_t k = 0; k < p->outputs.n; k++)
        if (!outputs[k]) return diag_fail(d, AN_INPUT, NOWHERE, "output \"%.80s\" is not bound", p->outputs.at[k].name);
    for (size_t k = 0; k < p->inputs.n; k++) TRY(input_view(im, k, inputs, outputs, &im->view[k], d));
    for (size_t i = 0; i < p->tensors.n; i++) {
        const etensor *t = &p->tensors.at[i];
        if (t->where == SPACE_INPUT) im->mem[i] = im->view[t->slot] + t->offset;
        if (t->where == SPACE_OUTPUT) im->mem[i] = (unsigned char *)outputs[t->slot] + t->offset;
    }
    return AN_OK;
}

static an_status run(image *im, const void *const *inputs, void *const *outputs, diag *d)
{
    const program *p = im->p;
    TRY(bind(im, inputs, outputs, d));
    run_ctx c = { .p = p, .num = &p->num, .pool = im->opt.pool, .mem = im->mem, .tmp = &im->tmp, .work = im->work,
                  .fast_math = im->opt.fast_math };
    for (size_t i = 0; i < p->insns.n; i++) {
        const insn *in = &p->insns.at[i];
        const exec_entry *e = entry_of(im, in->op);
        arena_mark m = arena_save(&im->tmp);
        c.state = im->state[i];
        an_status st = (e ? e->run : ref_entry_of(in->op))(&c, in, d);
        arena_back(&im->tmp, m);
        if (st) return st;
    }
    /* elements are stored one by one, or copied by the byte: neither says what the rest of the last byte is */
    for (size_t k = 0; k < p->outputs.n; k++) {
        const etensor *t = &p->tensors.at[p->outputs.at[k].tensor];
        dtype_clear_rest(t->dt, im->mem[p->outputs.at[k].tensor], et_elems(t));
    }
    return AN_OK;
}

an_status image_run(image *im, const void *const *inputs, void *const *outputs, diag *d)
{
    if (im->broken)
        return diag_fail(d, AN_INPUT, NOWHERE, "program \"%.80s\" has no weights: its last reload failed",
                         im->p->title);
    /* A moment that decays, a weight of attention far from the others: without a chip's rules nothing that small is
     * worth its time. */
    const fp_mode was = fp_mode_get(), now = exec_flushes(im) ? fp_mode_flushing(was) : was;
    pool_enter(im->opt.pool);
    fp_mode_set(now);
    an_status st = run(im, inputs, outputs, d);
    fp_mode_set(was);
    pool_leave(im->opt.pool);
    return st;
}

uint64_t image_bytes(const image *im)
{
    return sizeof *im + im->own_bytes + im->mem_image.used + im->prepared.used + im->tmp.used;
}
