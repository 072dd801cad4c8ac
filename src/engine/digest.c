/* digest.c: what an image holds: a checksum of its constants, and whether they are those of given weights. Constants as the instructions read them:
 * reconstructed, or as they are stored. Both look at the image, not at where it says its weights came from: that is what makes them a proof that
 * new weights are in use. */
#include <stdlib.h>

#include "engine/weights_int.h"

uint64_t image_digest(const image *im)
{
    uint64_t sum = im->p->consts.n;
    for (size_t i = 0; i < im->p->consts.n; i++) {
        uint64_t bytes;
        const const_entry *c = &im->p->consts.at[i];
        const etensor *t = &im->p->tensors.at[c->tensor];
        for (int k = 0; !im->const_at[i] && im->stored[i].at[0] && k < c->n_src; k++) sum = hash_many(im->stored[i].at[k], (size_t)c->src[k].bytes, sum);
        if (im->const_at[i] && et_bytes(t, &bytes)) sum = hash_many(im->const_at[i], (size_t)bytes, sum);
    }
    return sum;
}

static bool same_bytes(const void *a, const void *b, uint64_t n) { return a == b || !memcmp(a, b, (size_t)n); }

/* *room: memory for elements made once more, as large as the largest so far. */
static an_status holds_const(image *im, const weight_source *w, size_t k, unsigned char **room, uint64_t *n_room, bool *holds, diag *d)
{
    const_build b;
    uint64_t bytes;
    TRY(const_begin(im, w, k, &b, d));
    for (int i = 0; im->stored[k].at[0] && *holds && i < b.c->n_src; i++) *holds = same_bytes(im->stored[k].at[i], b.at[i], b.c->src[i].bytes);
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

an_status image_holds(image *im, const weight_source *w, bool *holds, diag *d)
{
    unsigned char *room = NULL;
    uint64_t n_room = 0;
    an_status st = AN_OK;
    *holds = true;
    for (size_t k = 0; k < im->p->consts.n && *holds && !st; k++) st = holds_const(im, w, k, &room, &n_room, holds, d);
    free(room);
    return st;
}
