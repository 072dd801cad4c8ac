/* packs.c: packed constants, shared by the images of one model.
 * In: which constant, packed for which kernel.  Out: memory, and whether it is filled already.
 *
 * A model runs as several programs, one for each length of text, and most of its memory is packed weights. The same
 * constant packed the same way is kept once. Loading images of one store is serialised, so an entry that is found is
 * filled. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/big.h"
#include "engine/engine_int.h"

enum { PACK_ALIGN = 64 };

typedef struct {
    unsigned char *at; /* NULL: nobody holds it */
    void *block;       /* what at lies in */
    size_t bytes;
    int refs;
} entry;

/* Zeroed by the system where it is large: pages are then touched first by the threads that fill them, not all by
 * one. */
static bool entry_alloc(entry *e, size_t bytes) { return (e->at = big_zeroed(PACK_ALIGN, bytes, &e->block)) != NULL; }

static void entry_free(entry *e)
{
    free(e->block);
    e->at = NULL, e->block = NULL;
}

struct pack_store {
    pthread_mutex_t mu;
    arena mem; /* keys */
    str_map index;
    VEC(entry) entries;
};

pack_store *pack_store_new(void)
{
    pack_store *s = calloc(1, sizeof *s);
    if (s && pthread_mutex_init(&s->mu, NULL)) {
        free(s);
        return NULL;
    }
    return s;
}

void pack_store_free(pack_store *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->entries.n; i++) entry_free(&s->entries.at[i]);
    pthread_mutex_destroy(&s->mu);
    arena_free(&s->mem);
    free(s);
}

void packs_lock(pack_store *s)
{
    if (s) pthread_mutex_lock(&s->mu);
}

void packs_unlock(pack_store *s)
{
    if (s) pthread_mutex_unlock(&s->mu);
}

void packs_drop(image *im)
{
    pack_store *s = im->opt.packs;
    if (!s || !im->shared.n) return;
    packs_lock(s);
    for (size_t i = 0; i < im->shared.n; i++) {
        entry *e = &s->entries.at[im->shared.at[i]];
        if (!--e->refs) entry_free(e);
    }
    im->shared.n = 0;
    packs_unlock(s);
}

enum { MOST_INLINE = 64 }; /* bytes of a source in the text of a program that a name holds */

/* One source of a constant: where it is, or what, and how it is read. NULL: too much of it is in the text, or no
 * memory. */
static const char *name_source(image *im, const char *before, const const_source *s)
{
    const char *name = s->path                   ? arena_printf(&im->tmp, "%s %s %" PRIu64, before, s->path, s->offset)
                       : s->bytes <= MOST_INLINE ? arena_printf(&im->tmp, "%s =", before)
                                                 : NULL;
    for (uint64_t i = 0; !s->path && name && i < s->bytes; i++)
        name = arena_printf(&im->tmp, "%s%02x", name, im->p->data[s->offset + i]);
    if (name) name = arena_printf(&im->tmp, "%s %d", name, (int)s->dt);
    for (int i = 0; name && i < s->rank; i++) name = arena_printf(&im->tmp, "%s,%" PRId64, name, s->dim[i]);
    return name;
}

/* What the bytes depend on: every source of the constant, and what is made of it. Constants of the text itself are
 * small and not shared: NULL. */
static const char *name_of(image *im, const pack_key *k)
{
    const etensor *t = &im->p->tensors.at[k->tensor];
    const const_entry *c = &im->p->consts.at[t->slot];
    if (!c->src[0].path || t->offset) return NULL;
    const char *name =
        arena_printf(&im->tmp, "%p %d %" PRId64 " %d %s %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
                     im->opt.pack_owner, (int)c->kind, c->axis, (int)t->dt, k->form, k->turned, k->m, k->k, k->row,
                     k->col, k->packs);
    for (int i = 0; name && i < c->n_src; i++) name = name_source(im, name, &c->src[i]);
    return name;
}

static an_status take_shared(image *im, const char *name, size_t bytes, unsigned char **at, bool *fresh, diag *d)
{
    pack_store *s = im->opt.packs;
    uint32_t i;
    if (!str_map_get(&s->index, name, strlen(name), &i)) {
        char *key = arena_str(&s->mem, name);
        i = (uint32_t)s->entries.n;
        if (!key || !VEC_PUSH(&s->mem, &s->entries, ((entry){ NULL, NULL, 0, 0 })) ||
            !str_map_put(&s->mem, &s->index, key, strlen(key), i))
            return diag_nomem(d);
    }
    entry *e = &s->entries.at[i];
    if (e->at && e->bytes != bytes)
        return diag_fail(d, AN_BUG, NOWHERE, "a shared constant has %zu bytes, wanted %zu", e->bytes, bytes);
    if (!VEC_PUSH(&im->mem_image, &im->shared, i)) return diag_nomem(d);
    *fresh = !e->at;
    if (*fresh && !entry_alloc(e, bytes)) {
        im->shared.n--;
        return diag_nomem(d);
    }
    if (*fresh) im->own_bytes += bytes;
    e->bytes = bytes, e->refs++;
    *at = e->at;
    return AN_OK;
}

an_status panel_note(image *im, void *at, size_t bytes, diag *d)
{
    if (!at || !bytes) return AN_OK;
    return VEC_PUSH(&im->mem_image, &im->panels, ((panel){ im->preparing, at, bytes })) ? AN_OK : diag_nomem(d);
}

an_status pack_take(image *im, const pack_key *key, size_t bytes, unsigned char **at, bool *fresh, diag *d)
{
    arena_mark m = arena_save(&im->tmp);
    const char *name = im->opt.packs && im->lazy ? name_of(im, key) : NULL;
    an_status st = AN_OK;
    *fresh = true;
    if (name) st = take_shared(im, name, bytes, at, fresh, d);
    else if (!(*at = arena_take(&im->prepared, 1, bytes, bytes >= BIG_PAGE ? BIG_PAGE : PACK_ALIGN)))
        st = diag_nomem(d);
    else st = panel_note(im, *at, bytes, d);
    arena_back(&im->tmp, m);
    return st;
}
