/* text_int.h: what the files of this folder share. Private to text/.
 *
 * How a text becomes ids, whatever the file format:
 *   added tokens are cut out · each stretch between is normalised (norm.c) · a leading space is put in front where the model wants one
 *   · it is cut into pieces (split.c) · each piece is merged (merge.c) or segmented (unigram.c), or found in the encoder's cache.
 * Vocabularies that write a space as U+2581 are kept with a plain space, so a U+2581 of the text is not mistaken for
 * one. */
#ifndef TEXT_TEXT_INT_H
#define TEXT_TEXT_INT_H

#include "text/text.h"

#define SPACE_MARK "\xe2\x96\x81" /* U+2581 */
enum { MAX_VOCAB = 1 << 22, MAX_ADDED_BYTES = 1024, MAX_SPM_BYTES = 2048, MAX_STEPS = 16, MAX_FILES = 5, NO_ID = -1 };
#define NO_RANK UINT32_MAX

typedef enum { MODEL_BYTE_BPE, MODEL_CHAR_BPE, MODEL_SPM_BPE, MODEL_UNIGRAM } tok_model;

typedef struct {
    tok_str piece; /* what merging sees; spaces are plain, byte-level characters are bytes */
    tok_str out;   /* what decoding prints */
    float score;
    uint8_t type;  /* tok_type */
} token;

/* ---- utf8.c ---- */

/* Length of the well-formed UTF-8 character at s, 0 if there is none; *cp is its code point. */
size_t utf8_read(const unsigned char *s, size_t n, uint32_t *cp);
size_t utf8_put(unsigned char *to, uint32_t cp); /* 1 … 4 */
size_t utf8_span(const unsigned char *s, size_t n); /* bytes of the well-formed beginning */
bool utf8_valid(const unsigned char *s, size_t n);
/* GPT-2's spelling of bytes as printable characters. */
uint32_t byte_to_char(unsigned char b);
int char_to_byte(uint32_t cp); /* -1: not one of the 256 */

/* Classes of characters, from PCRE2's Unicode tables, a page of 256 at a time when first met. */
enum { IS_LETTER = 1, IS_NUMBER = 2, IS_SPACE = 4, IS_MARK = 8, IS_LINE = 16 /* CR, LF */,
       IS_WORD = 32 /* also '_' */ };
typedef struct {
    uint8_t ascii[128];
    uint8_t *page[0x1100];
    bool oom;
} classes;
void classes_init(classes *c);
void classes_free(classes *c);
uint8_t class_of(classes *c, uint32_t cp);

/* ---- trie.c: strings by common prefix ---- */

typedef struct {
    uint32_t edges;  /* first edge */
    uint16_t n;
    int32_t value;   /* NO_ID: no string ends here */
} trie_node;
typedef struct {
    trie_node *node; /* 0 is the root */
    size_t n_nodes;
    unsigned char *byte; /* edges of a node are sorted and adjacent */
    uint32_t *to;
    bool starts[256];
} trie;
typedef struct {
    tok_str s;
    int32_t value;
} trie_item;
/* sorts items; the first of equal strings wins */
an_status trie_build(arena *a, trie *t, trie_item *items, size_t n, diag *d) MUST_CHECK;
int32_t trie_step(const trie *t, int32_t node, unsigned char b);                          /* -1: no edge */
/* Value of the longest string that s begins with; NO_ID: none. */
int32_t trie_longest(const trie *t, const unsigned char *s, size_t n, size_t *len);

/* ---- split.c: where a text is cut ---- */

typedef enum { SPLIT_GPT2, SPLIT_CL100K, SPLIT_LITERAL, SPLIT_REGEX, SPLIT_SPACE_FIRST } split_kind;
typedef enum { CUT_ISOLATED, CUT_REMOVED, CUT_WITH_PREVIOUS, CUT_WITH_NEXT, CUT_CONTIGUOUS } cut_behavior;

typedef struct {
    split_kind kind;
    cut_behavior behavior;
    bool invert;
    int digits;        /* cl100k family: most digits in one piece; 0: any number */
    bool marks;        /* and whether combining marks belong to words */
    const char *name;  /* for tok_info */
    tok_str literal;
    void *code;        /* pcre2_code */
} split_step;

/* The patterns we know by name or by their text; NULL: not one of them. */
const char *split_pattern(const char *name);
bool split_known(const char *pattern, size_t n, split_step *out);
bool split_named(const char *name, split_step *out);
an_status split_compile(const char *pattern, size_t n, void **code, diag *d) MUST_CHECK; /* a pcre2_code */
void split_free_code(void *code);

typedef struct {
    classes cls;
    void *match_data, *jit_stack, *match_context;
    unsigned char *valid; /* a copy in which each stray byte is U+FFFD, for PCRE2 */
    size_t valid_cap;
    struct { size_t from, to; bool match; } *ranges;
    size_t n_ranges, cap_ranges;
} split_scratch;
an_status split_scratch_init(split_scratch *s, diag *d) MUST_CHECK;
void split_scratch_free(split_scratch *s);

typedef an_status piece_fn(void *user, const unsigned char *s, size_t n, diag *d);
/* Calls fn for each piece in order. With n_steps 0 the whole text is one piece. */
an_status split_text(split_scratch *x, const split_step *steps, size_t n_steps, const unsigned char *s, size_t n,
                     piece_fn *fn, void *user, diag *d) MUST_CHECK;
/* End of the next match of a regex at or behind `at`; false: none. For Replace. */
an_status regex_find(split_scratch *x, const void *code, const unsigned char *s, size_t n, size_t at, size_t *from,
                     size_t *to, bool *found, diag *d) MUST_CHECK;

/* ---- norm.c, nfc.c ---- */

typedef enum { NORM_NFC, NORM_REPLACE, NORM_REPLACE_REGEX, NORM_CHARSMAP, NORM_SQUEEZE, NORM_STRIP } norm_kind;
typedef struct {
    norm_kind kind;
    tok_str from, to;
    void *code;               /* NORM_REPLACE_REGEX */
    const uint32_t *units;    /* NORM_CHARSMAP: double-array trie … */
    size_t n_units;
    tok_str replacements;     /* … and NUL-terminated strings */
    bool left, right;         /* NORM_STRIP */
} norm_step;
an_status norm_charsmap(arena *a, norm_step *s, const void *p, size_t n, diag *d) MUST_CHECK; /* copies */
/* out is emptied first. */
an_status norm_run(const norm_step *s, split_scratch *x, const unsigned char *in, size_t n, strbuf *out, diag *d)
    MUST_CHECK;
void nfc_put(const unsigned char *s, size_t n, strbuf *out);
bool nfc_plain(const unsigned char *s, size_t n); /* nothing in it that NFC could change */

/* ---- the tokenizer ---- */

typedef enum { PREFIX_NONE, PREFIX_FIRST, PREFIX_ALWAYS } prefix_rule; /* always: also behind each special token */

typedef struct {
    bool lstrip, rstrip, single_word;
} added_flags;

struct tokenizer {
    arena mem;
    const char *name;
    tok_model model;
    token *tok;
    uint32_t n;
    uint32_t *slots;   /* piece -> id + 1, open addressing; normal tokens only */
    size_t n_slots;
    size_t max_piece;  /* bytes of the longest of them */

    struct { uint64_t key; uint32_t rank, to; } *pairs; /* left << 32 | right; rank NO_RANK: empty */
    size_t n_pairs, cap_pairs;
    uint32_t *prio;    /* SentencePiece BPE: order of a token's score, best first, equal scores equal */
    trie pieces;       /* unigram */
    double unk_score;

    int32_t byte_id[256];
    bool byte_fallback, fuse_unk, ignore_merges;
    /* [a][b]: some token holds byte a followed by b. Elsewhere a piece may be cut without changing a merge. NULL:
     * never */
    bool (*joins)[256];
    int64_t bos, eos, unk, pad;
    bool add_bos, add_eos;

    norm_step norm[MAX_STEPS];
    size_t n_norm;
    split_step split[MAX_STEPS];
    size_t n_split;
    prefix_rule prefix;
    bool prefix_unless_space; /* Metaspace and ByteLevel; SentencePiece puts one always */
    /* tokenizer.json: behind any added token; SentencePiece sees its user-defined tokens as text */
    bool prefix_after_user;
    prefix_rule strip;        /* decoding drops the space that encoding put */

    trie added[2];            /* [0] user-defined only, [1] with control tokens: as the text may hold them */
    added_flags *flags;       /* by id; NULL: none has any */
    bool any_flags;
    const char *chat_template;
    tok_file file[MAX_FILES]; /* what it was read from */
    size_t n_files;
};

/* ---- vocab.c: making one ---- */

tokenizer *tok_new(const char *name, diag *d);
an_status tok_bad(diag *d, const tokenizer *t, const char *fmt, ...) PRINTF_LIKE(3, 4); /* "name: …", AN_INPUT */
an_status tok_size(tokenizer *t, size_t n, diag *d) MUST_CHECK;  /* room for ids 0 … n-1, all TOK_UNUSED and empty */
/* Vocabulary text to what merging sees: bytes for byte-level characters, or a plain space for U+2581. Copies. */
bool tok_piece(tokenizer *t, const char *s, size_t n, bool byte_level, bool marks, tok_str *out) MUST_CHECK;
an_status tok_index(tokenizer *t, diag *d) MUST_CHECK;           /* piece -> id, byte ids */
int32_t piece_id(const tokenizer *t, const unsigned char *s, size_t n);
an_status tok_merge(tokenizer *t, size_t rank, const char *l, size_t nl, const char *r, size_t nr, bool byte_level,
                    bool marks, diag *d) MUST_CHECK;
an_status tok_room_pairs(tokenizer *t, size_t n, diag *d) MUST_CHECK;
bool pair_find(const tokenizer *t, uint32_t left, uint32_t right, uint32_t *rank, uint32_t *to);
/* Everything derived: priorities, tries, cutting. Call last. */
an_status tok_finish(tokenizer *t, diag *d) MUST_CHECK;
bool byte_token(const char *s, size_t n, unsigned char *b); /* "<0xNN>" */

/* ---- merge.c, unigram.c: a piece to ids ---- */

typedef struct {
    uint32_t at, n;    /* bytes of the piece; n 0: merged away */
    int32_t id, prev, next;
    uint32_t rank, to; /* of this symbol and the next */
} symbol;
typedef struct {
    uint64_t key;      /* rank << 32 | left */
    uint32_t right, size, to;
} heap_item;
typedef struct {
    symbol *sym;
    size_t cap_sym;
    heap_item *heap;
    size_t n_heap, cap_heap;
    uint32_t *first;     /* per rank: the newest pair that waits, NO_ITEM: none */
    size_t cap_first;
    struct { uint32_t at, next; } *item; /* pairs that wait: their left symbol, the one before of the same rank */
    size_t n_item, cap_item;
    uint32_t spare;      /* items to be used again */
    uint32_t *rank;      /* ranks that have any, a heap */
    size_t n_rank, cap_rank;
    uint32_t *line;      /* the pairs of one rank, left to right */
    size_t cap_line;
    double *best;
    struct { uint32_t from; int32_t id; } *back;
    size_t cap_best;
} merge_scratch;
void merge_free(merge_scratch *m);
an_status merge_piece(const tokenizer *t, merge_scratch *m, const unsigned char *s, size_t n, tok_ids *out, diag *d)
    MUST_CHECK;
an_status unigram_piece(const tokenizer *t, merge_scratch *m, const unsigned char *s, size_t n, tok_ids *out, diag *d)
    MUST_CHECK;
/* A character no token spells: its bytes, or the unknown token. */
an_status put_unknown(const tokenizer *t, const unsigned char *s, size_t n, size_t floor, tok_ids *out, diag *d)
    MUST_CHECK;

/* ---- loaders: fill t, everything but tok_finish ---- */

an_status read_json(tokenizer *t, const void *p, size_t n, diag *d) MUST_CHECK;
an_status read_model(tokenizer *t, const void *p, size_t n, diag *d) MUST_CHECK;
an_status read_bin(tokenizer *t, const void *p, size_t n, diag *d) MUST_CHECK;
an_status read_pair(tokenizer *t, const void *vocab, size_t n_vocab, const void *merges, size_t n_merges, diag *d)
    MUST_CHECK;
void guess_ids(tokenizer *t, bool bos, bool eos); /* BOS and EOS by their usual names, where no file says */

/* A token's text set by type: what merging sees and what decoding prints. Copies. */
/* AN_INPUT: it is not */
an_status tok_is_utf8(const tokenizer *t, size_t id, const char *s, size_t n, diag *d) MUST_CHECK;
an_status tok_put(tokenizer *t, size_t id, const char *s, size_t n, tok_type type, float score, bool byte_level,
                  bool marks, diag *d) MUST_CHECK;

enum { MAX_PRE = 4 };
struct pre_row {
    const char *name, *split[MAX_PRE]; /* names of patterns, applied in turn; NULL: no more */
    bool ignore_merges;
};
const struct pre_row *pre_find(const char *name);
const struct pre_row *pre_at(size_t i); /* NULL: past the last */
an_status add_split(tokenizer *t, split_step step, diag *d) MUST_CHECK;
an_status add_pattern(tokenizer *t, const char *regex, size_t n, cut_behavior b, bool invert, diag *d) MUST_CHECK;
an_status add_norm(tokenizer *t, norm_step step, diag *d) MUST_CHECK;

/* lift.c: model.vocab and model.merges of a tokenizer.json, straight from the text */
typedef struct {
    const char *p; /* NULL: no such list */
    size_t n, at;
    bool begun, done, bad; /* bad: no JSON, or not such a list, at byte `at` */
} json_scan;
/* false: not both there, or no memory; rest is the file without them */
bool lift_lists(const char *p, size_t n, json_scan *vocab, json_scan *merges, strbuf *rest);
/* false: the end, or bad. id -1: no whole number */
bool next_token(json_scan *s, strbuf *hold, tok_str *text, double *id);
/* right NULL: no "left right" */
bool next_merge(json_scan *s, strbuf hold[2], tok_str *left, tok_str *right);

/* write.c: tokenizer.json of byte-level BPE */
void vocab_json(strbuf *b, const tok_vocab *v, const struct pre_row *pre);

/* load_parts.c: the sections of tokenizer.json around the model */
typedef struct json_t json_t;
typedef struct {
    bool byte_level, marks; /* how the vocabulary spells bytes and spaces */
    bool byte_out;          /* <0xNN> decodes to a byte */
    const json_t *replaced[MAX_STEPS]; /* Replace steps of the decoder, but the one of U+2581 */
    size_t n_replaced;
} json_style;
an_status parts_style(tokenizer *t, const json_t *root, json_style *s, diag *d) MUST_CHECK;
an_status parts_read(tokenizer *t, const json_t *root, const json_style *s, diag *d) MUST_CHECK;
an_status parts_post(tokenizer *t, const json_t *root, diag *d) MUST_CHECK; /* after the added tokens are known */
const char *js_text(const json_t *j, size_t *n); /* NULL: not a string */
/* NULL after saying why; json_decref */
json_t *js_load(const tokenizer *t, const char *what, const void *p, size_t n, diag *d);

#endif
