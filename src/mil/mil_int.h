/* mil_int.h: what the reader's files share: tokens, names, scratch memory, and text to element and back.
 * lex.c cuts text into tokens and owns the reader's memory; value.c reads types and literals; parse.c reads
 * programs. */
#ifndef MIL_MIL_INT_H
#define MIL_MIL_INT_H

#include "mil/mil.h"

/* ---- tokens ---- */
typedef enum { T_END, T_WORD, T_NUMBER, T_STRING, T_ARROW, T_PUNCT, T_BAD } tok_kind;
typedef struct {
    tok_kind kind;
    char c;        /* T_PUNCT: the byte */
    const char *s; /* the bytes as written; a string with its quotes */
    size_t n;
    loc at;
} tok;

/* ---- names ----
 * Every identifier and short string is stored once, so names compare by pointer, and duplicate and scope checks are one
 * field of this record instead of a search. */
typedef struct {
    const char *s;
    uint32_t n, hash;
    uint32_t def_line;  /* line of the visible definition; 0: none */
    uint32_t func_line; /* line of the function of this name; 0: none */
    uint32_t stamp;     /* last argument or attribute list that used it */
} mil_name;

typedef struct {
    /* text */
    const char *s, *end, *at, *line_at;
    uint32_t line;
    tok t; /* the token under the hand */
    diag *d;
    uint64_t seed; /* of the name hash: a digest of the whole text, so that no text can choose names that collide */
    /* memory: the module's arena, and scratch that is freed when the reader is done; `limit` covers both */
    mil_module *m;
    size_t limit, scratch;
    unsigned char *tmp; /* stack of half-read lists; offsets into it stay valid when it grows, pointers do not */
    size_t tmp_n, tmp_cap;
    mil_name *name;
    uint32_t *name_slot; /* hash to index + 1 */
    uint32_t n_name, cap_name, cap_slot;
    mil_type **type_slot; /* types are stored once too */
    uint32_t n_type, cap_type;
    uint32_t *defined; /* indices of visible names, innermost scope last */
    size_t n_defined, cap_defined;
    uint32_t stamp;
    int depth;
} reader;

/* lex.c */
void lex_next(reader *p); /* to the next token; a bad one sets the diagnostic and becomes T_BAD */
const char *tok_show(const tok *t, char *buf, size_t n); /* for messages: quoted, cut, printable */
an_status fail_at(reader *p, loc at, const char *fmt, ...) PRINTF_LIKE(3, 4);
an_status fail_want(reader *p, const char *want); /* "expected X, found Y" at the current token */
static inline bool is_punct(const reader *p, char c) { return p->t.kind == T_PUNCT && p->t.c == c; }
bool tok_is(const tok *t, const char *word);
bool accept(reader *p, char c);
an_status expect(reader *p, char c) MUST_CHECK;
/* The text of a string token, escapes resolved, stored once when short. */
an_status tok_unquote(reader *p, const tok *t, const char **out) MUST_CHECK;

void *take(reader *p, size_t n, size_t size, size_t align) MUST_CHECK; /* arena; NULL: diagnostic set */
#define READER_TAKE(p, T, n) ((T *)take((p), (n), sizeof(T), alignof(T)))
void *tmp_push(reader *p, size_t bytes) MUST_CHECK; /* zeroed; NULL: diagnostic set */
/* Move everything pushed since `mark` into the arena: n elements of size bytes each, plus pop. NULL: diagnostic set. */
void *tmp_keep(reader *p, size_t mark, size_t n, size_t size) MUST_CHECK;
/* grow, new part zeroed */
bool scratch_room(reader *p, void *at_ptr, size_t have, size_t want, size_t elem) MUST_CHECK;
void scratch_drop(reader *p, void *at, size_t bytes);
mil_name *name_of(reader *p, const char *s, size_t n) MUST_CHECK; /* valid until the next call; NULL: diagnostic set */
void reader_free(reader *p);

/* value.c */
an_status read_type(reader *p, mil_type **out) MUST_CHECK;
an_status read_type_after(reader *p, const tok *word, mil_type **out) MUST_CHECK; /* its first word is already taken */
an_status read_literal_after(reader *p, const tok *word, mil_lit **out) MUST_CHECK; /* TYPE(value), first word taken */
an_status read_literal(reader *p, mil_lit **out) MUST_CHECK;

/* number.c */
typedef struct {
    bool neg, integer, overflow; /* integer: written without point, exponent, inf or nan */
    uint64_t mag;                /* |value| when integer and not overflow */
    double f;
} mil_num;
bool num_read(const char *s, size_t n, mil_num *out) MUST_CHECK; /* the whole token; false: not a number */
bool num_fits(const mil_num *x, dtype dt);                       /* integer types */
void num_store(const mil_num *x, dtype dt, void *base, int64_t i); /* floats round to nearest even from double */
void num_print(strbuf *b, dtype dt, const void *base, int64_t i); /* parses back to the same bits */
enum { MIL_MAX_NUMBER = 1200 }; /* bytes of one number; %f of the largest double is 317 */

/* print.c */
void print_type(strbuf *b, const mil_type *t);

/* module.c */
bool type_elems(const mil_type *t, int64_t *n); /* false: a dim is unknown; a product past int64 reads INT64_MAX */
bool version_is_bare(const char *version);      /* 1.3 and later spell scalars fp16, string; before: tensor<fp16, []> */

#endif
