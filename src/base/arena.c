/* arena.c: chunks from malloc, handed out front to back. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/big.h"
#include "base/plain.h"

struct arena_chunk {
    arena_chunk *prev;
    size_t at, cap;
    alignas(max_align_t) unsigned char bytes[];
};

enum { CHUNK_MIN = 16 * 1024 };

void *arena_take(arena *a, size_t n, size_t size, size_t align)
{
    size_t bytes;
    if (!mul_size(n ? n : 1, size, &bytes) || bytes > SIZE_MAX / 4) return NULL;
    arena_chunk *c = a->head;
    size_t pad = c ? (align - ((uintptr_t)(c->bytes + c->at) & (align - 1))) & (align - 1) : 0;
    if (a->limit && (a->used > a->limit || bytes + pad > a->limit - a->used)) return NULL;
    if (!c || c->cap - c->at < bytes + pad) {
        size_t cap = MAX(bytes + align, c ? MIN(c->cap * 2, (size_t)1 << 22) : (size_t)CHUNK_MIN);
        arena_chunk *fresh = malloc(sizeof *fresh + cap);
        if (!fresh) return NULL;
        if (bytes >= BIG_PAGE) big_ask(fresh->bytes, cap); /* before it is touched */
        *fresh = (arena_chunk){ .prev = c, .cap = cap };
        a->head = c = fresh;
        pad = (align - ((uintptr_t)c->bytes & (align - 1))) & (align - 1);
    }
    void *p = c->bytes + c->at + pad;
    c->at += bytes + pad;
    a->used += bytes + pad;
    return memset(p, 0, bytes);
}

char *arena_strn(arena *a, const char *s, size_t n)
{
    char *p = TAKE(a, char, n + 1);
    if (p && n) memcpy(p, s, n);
    return p;
}

char *arena_str(arena *a, const char *s) { return arena_strn(a, s, strlen(s)); }

char *arena_printf(arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = plain_vprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) return NULL;
    char *p = TAKE(a, char, (size_t)n + 1);
    if (!p) return NULL;
    va_start(ap, fmt);
    plain_vprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return p;
}

void arena_free(arena *a)
{
    while (a->head) {
        arena_chunk *prev = a->head->prev;
        free(a->head);
        a->head = prev;
    }
    a->used = 0;
}

arena_mark arena_save(const arena *a) { return (arena_mark){ a->head, a->head ? a->head->at : 0, a->used }; }

void arena_back(arena *a, arena_mark m)
{
    while (a->head != m.head) {
        arena_chunk *prev = a->head->prev;
        free(a->head);
        a->head = prev;
    }
    if (a->head) a->head->at = m.at;
    a->used = m.used;
}

bool vec_room(arena *a, void *at_ptr, size_t *cap, size_t n, size_t elem)
{
    if (n <= *cap) return true;
    void *old;
    memcpy(&old, at_ptr, sizeof old);
    size_t room = MAX(MAX(n, *cap * 2), (size_t)8);
    void *p = arena_take(a, room, elem, alignof(max_align_t));
    if (!p) return false;
    if (*cap) memcpy(p, old, *cap * elem);
    memcpy(at_ptr, &p, sizeof p);
    *cap = room;
    return true;
}
