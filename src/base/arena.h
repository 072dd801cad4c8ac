/* arena.h: memory that lives and dies together. One arena per graph, per module, per compile. TAKE returns zeroed
 * memory, or NULL when malloc fails or `limit` is reached: a test can run out of memory at any byte. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdalign.h>
#include <stdarg.h>

#include "base/base.h"

typedef struct arena_chunk arena_chunk;
typedef struct {
    arena_chunk *head;
    size_t used;  /* bytes handed out, padding included */
    size_t limit; /* 0: none */
} arena;

#define TAKE(a, T, n) ((T *)arena_take((a), (n), sizeof(T), alignof(T)))

void *arena_take(arena *a, size_t n, size_t size, size_t align) MUST_CHECK;
char *arena_strn(arena *a, const char *s, size_t n) MUST_CHECK; /* NUL-terminated copy */
char *arena_str(arena *a, const char *s) MUST_CHECK;
char *arena_printf(arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3) MUST_CHECK;
void arena_free(arena *a); /* everything; the arena is empty and usable again */

typedef struct {
    arena_chunk *head;
    size_t at, used;
} arena_mark;
arena_mark arena_save(const arena *a);
void arena_back(arena *a, arena_mark m); /* everything taken since the mark is gone */

/* Growing array inside an arena: struct { T *at; size_t n, cap; }. The old block stays in the arena. */
bool vec_room(arena *a, void *at_ptr, size_t *cap, size_t n, size_t elem) MUST_CHECK;
#define VEC(T)                                                                                                        \
    struct {                                                                                                          \
        T *at;                                                                                                        \
        size_t n, cap;                                                                                                \
    }
#define VEC_PUSH(a, v, x)                                                                                              \
    (vec_room((a), &(v)->at, &(v)->cap, (v)->n + 1, sizeof *(v)->at) ? ((v)->at[(v)->n++] = (x), true) : false)

#endif
