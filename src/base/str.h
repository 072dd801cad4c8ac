/* str.h: a growing text on the heap, and a string-to-number map in an arena. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include "base/arena.h"

/* Text under construction. After a failed allocation `oom` is set and later calls do nothing. */
typedef struct {
    char *at; /* NUL-terminated once anything was put */
    size_t n, cap;
    bool oom;
} strbuf;

void sb_putn(strbuf *b, const char *s, size_t n);
void sb_puts(strbuf *b, const char *s);
void sb_putc(strbuf *b, char c);
void sb_printf(strbuf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void sb_json(strbuf *b, const char *s, size_t n); /* a quoted JSON string; bytes that are not UTF-8 become U+FFFD */
void sb_number(strbuf *b, double x); /* as JSON has it: null where it is none or infinite */
void sb_free(strbuf *b);
/* bytes of the character at s, n is not 0; 0: a control character, or no UTF-8 */
size_t utf8_shown(const unsigned char *s, size_t n);

/* Map from byte strings to a number. Keys are borrowed: they must outlive the map. */
typedef struct {
    struct str_slot *slots;
    size_t n, cap;
} str_map;

uint64_t hash_bytes(const void *p, size_t n, uint64_t seed);
/* another one, nearly as fast as memory: for much, and for numbers that must not be taken for others */
uint64_t hash_many(const void *p, size_t n, uint64_t seed);
/* false: no memory; not for a key that is there */
bool str_map_put(arena *a, str_map *m, const char *key, size_t n, uint32_t value) MUST_CHECK;
bool str_map_get(const str_map *m, const char *key, size_t n, uint32_t *value);

#endif
