/* digest.c: what an image holds: a checksum of its constants, and whether they are those of given weights. Constants
 * as the instructions read them: reconstructed, or as they are stored, and packed. All look at the image, not at
 * where it says its weights came from: that is what makes them a proof that new weights are in use. */
#include <stdlib.h>

#include "engine/engine_int.h"
#include "engine/weights_int.h"

/* ---- checksums of much, by all threads ---- */

enum { PIECE = 1 << 18, PIECES = 64 };

typedef struct {
    const unsigned char *at;
    size_t n;
    uint64_t sum[PIECES];
} sums;

static void sum_piece(void *ctx, int64_t i, int thread)
{
    sums *s = ctx;
    const size_t from = (size_t)i * PIECE;
    (void)thread;
    s->sum[i] = hash_many(s->at + from, MIN(s->n - from, (size_t)PIECE), 0);
}

static uint64_t sum_of(const image *im, const void *p, size_t n, uint64_t seed)
{
    if (n <= PIECE) return hash_many(p, n, seed);
    for (size_t from = 0; from < n; from += (size_t)PIECE * PIECES) {
        sums s = { .at = (const unsigned char *)p + from, .n = MIN(n - from, (size_t)PIECE * PIECES) };
        const int64_t pieces = (int64_t)((s.n + PIECE - 1) / PIECE);
        pool_run(im->opt.pool, sum_piece, &s, pieces);
        seed = hash_bytes(s.sum, (size_t)pieces * sizeof *s.sum, seed ^ s.n);
    }
    return seed;
}

uint64_t image_digest(const image *im)
{
    uint64_t sum = im->p->consts.n;
    for (size_t i = 0; i < im->p->consts.n; i++) {
        uint64_t bytes;
        const const_entry *c = &im->p->consts.at[i];
        const etensor *t = &im->p->tensors.at[c->tensor];
        for (int k = 0; !im->const_at[i] && im->stored[i].at[0] && k < c->n_src; k++)
            sum = sum_of(im, im->stored[i].at[k], (size_t)c->src[k].bytes, sum);
        if (im->const_at[i] && et_bytes(t, &bytes)) sum = sum_of(im, im->const_at[i], (size_t)bytes, sum);
    }
    return sum;
}

static bool same_bytes(const void *a, const void *b, uint64_t n) { return a == b || !memcmp(a, b, (size_t)n); }

/* *room: memory for elements made once more, as large as the largest so far. */
static an_status holds_const(image *im, const weight_source *w, size_t k, unsigned char **room, uint64_t *n_room,
                             bool *holds, diag *d)
{
    const_build b;
    uint64_t bytes;
    TRY(const_begin(im, w, k, &b, d));
    for (int i = 0; im->stored[k].at[0] && *holds && i < b.c->n_src; i++)
        *holds = same_bytes(im->stored[k].at[i], b.at[i], b.c->src[i].bytes);
    if (!im->const_at[k] || !*holds) return AN_OK;
    if (!et_bytes(b.t, &bytes)) return diag_nomem(d);
    if (const_in_place(&b)) return *holds = same_bytes(im->const_at[k], b.at[0], bytes), AN_OK;
    if (bytes > *n_room) {
        free(*room);
        *room = engine_alloc(bytes);
        *n_room = *room ? bytes : 0;
        if (!*room) return diag_nomem(d);
    }
    b.to = *room;
    TRY(const_make(im, &b));
    *holds = same_bytes(im->const_at[k], *room, bytes);
    return AN_OK;
}

/* ---- what kernels read ---- */

/* All that packing writes for instruction i. *next: the first panel that is not of an instruction before it. */
static uint64_t packed_sum(const image *im, size_t i, size_t *next)
{
    uint64_t sum = i;
    while (*next < im->panels.n && im->panels.at[*next].insn < i) (*next)++;
    for (size_t k = *next; k < im->panels.n && im->panels.at[k].insn == i; k++)
        sum = sum_of(im, im->panels.at[k].at, im->panels.at[k].bytes, sum);
    return sum;
}

/* Packed once more from constants that were found to be the right ones, over what is there: nothing may change by
 * that. */
static an_status holds_packed(image *im, const weight_source *w, bool *holds, diag *d)
{
    size_t next = 0;
    an_status st = AN_OK;
    im->source = w;
    for (size_t i = 0; i < im->p->insns.n && !st; i++) {
        const exec_entry *e = im->opt.reference ? NULL : exec_entry_of(im->p->insns.at[i].op);
        if (!e || !e->repack || !im->state[i]) continue;
        const uint64_t before = packed_sum(im, i, &next);
        st = e->repack(im, &im->p->insns.at[i], im->state[i], d);
        /* the rest goes on: what was wrong is right now */
        if (!st && packed_sum(im, i, &next) != before) *holds = false;
    }
    im->source = NULL;
    return st;
}

bool image_panel(const image *im, size_t i, void **at, size_t *bytes)
{
    if (i >= im->panels.n) return false;
    *at = im->panels.at[i].at, *bytes = im->panels.at[i].bytes;
    return true;
}

an_status image_holds(image *im, const weight_source *w, bool *holds, diag *d)
{
    unsigned char *room = NULL;
    uint64_t n_room = 0;
    an_status st = AN_OK;
    *holds = true;
    for (size_t k = 0; k < im->p->consts.n && *holds && !st; k++) st = holds_const(im, w, k, &room, &n_room, holds, d);
    free(room);
    return !st && *holds ? holds_packed(im, w, holds, d) : st;
}
