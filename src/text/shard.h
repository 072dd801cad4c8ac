/* shard.h: token files, and batches from them.
 *
 * A shard is ids one after the other: raw little-endian u16 (.u16) or u32 (.u32), or llm.c's form (any name: 256
 * int32 of header, of which magic, version and count are used, then u16 or u32). It is mapped, never copied. A
 * corpus is shards or text files, one behind the other as if they were one, cut into windows of T + 1 ids that
 * overlap by one: (n - 1) / T samples. The last of them, by share, are for validation; the others come in an order
 * fixed by seed and epoch. Where a run stands is two numbers. */
#ifndef TEXT_SHARD_H
#define TEXT_SHARD_H

#include "base/arena.h"
#include "base/pool.h"
#include "text/text.h"

/* ---- shards ---- */

typedef struct shard shard;
/* vocab: ids must be below it, 0 for any. The first 2^26 ids are looked at here, every one when it is read: AN_INPUT
 * with file and index. */
an_status shard_open(const char *path, uint32_t vocab, shard **out, diag *d) MUST_CHECK;
void shard_close(shard *s); /* NULL is fine */
uint64_t shard_count(const shard *s);
int shard_bytes(const shard *s); /* of one id: 2 or 4 */
const void *shard_view(const shard *s); /* the ids as they are in the file, until shard_close */
/* AN_INPUT also when the file was cut since. */
an_status shard_read(const shard *s, uint64_t from, uint64_t n, int32_t *ids, diag *d) MUST_CHECK;
an_status shard_look(const char *path, bool *is, diag *d) MUST_CHECK; /* by name (.u16, .u32) or by llm.c's magic */
bool shard_is(const char *path); /* the same; false also of what cannot be opened */

/* Atomic. The form is by name: .u16, .u32; .bin is llm.c's. AN_INPUT: an id that does not fit. */
an_status shard_write(const char *path, const uint32_t *ids, size_t n, diag *d) MUST_CHECK;

/* ---- names of data ---- */

typedef struct {
    const char **path; /* in the order in which they are read */
    size_t n;
    bool shards;       /* all of them are; else all of them are text */
} data_files;
/* name: a file; a folder, whose shards are taken in the order of their names; or several files with commas between.
 * AN_INPUT: one is not there, is empty, or is neither text nor ids; some are text and some ids. Everything lives in
 * *mem. */
an_status data_find(const char *name, arena *mem, data_files *out, diag *d) MUST_CHECK;

/* ---- text to ids, document by document ---- */

typedef enum {
    DOCS_AUTO,      /* end-of-text lines if there are any, else one document */
    DOCS_WHOLE,
    DOCS_ENDOFTEXT, /* between "<|endoftext|>", white space at both ends dropped, empty ones as well */
    /* behind each blank line (spaces, tabs and carriage returns at most), which stays with the document it ends */
    DOCS_BLANK,
    DOCS_LINES,     /* each line, without its end; empty ones dropped */
} docs_rule;
bool docs_find(const char *name, docs_rule *out); /* "auto", "whole", "endoftext", "blank", "lines" */

/* Each document gets BOS in front where the vocabulary has one, else EOS behind where it has that. Appends to out;
 * in parallel, and the same for any number of threads. pool NULL: inline. */
typedef struct {
    uint64_t documents, bytes;
    bool undivided; /* it was cut nowhere: DOCS_AUTO found no separator, or any rule but DOCS_WHOLE left one document */
} docs_count;
an_status docs_encode(const tokenizer *t, const char *text, size_t n, docs_rule rule, pool *p, tok_ids *out,
                      docs_count *count, diag *d) MUST_CHECK;

/* ---- batches ---- */

typedef struct {
    const tokenizer *tok;  /* for text; NULL: shards only */
    uint32_t vocab;        /* ids must be below; 0: the tokenizer's, or any */
    int64_t seq;           /* T */
    uint64_t seed;
    double validation;     /* share of the samples kept from training: 0 … 0.9 */
    bool in_order;         /* training samples as they stand in the file */
    docs_rule docs;
    uint64_t stories;      /* of "builtin:stories"; 0: 6000 */
    pool *pool;            /* to tokenise text; NULL: inline */
} corpus_options;

typedef enum { CORPUS_TRAIN, CORPUS_VALIDATION } corpus_split;

/* Where a run stands: plain numbers, for a checkpoint. A fresh run starts with {0}. */
typedef struct {
    uint64_t epoch;  /* times the whole split was seen */
    uint64_t sample; /* of this epoch, next to come */
} corpus_pos;

typedef struct corpus corpus;
/* name: as data_find takes it, or "builtin:stories" (which needs tok). AN_INPUT: fewer than seq + 1 ids, or no
 * training sample left. */
an_status corpus_open(const char *name, const corpus_options *o, corpus **out, diag *d) MUST_CHECK;
void corpus_close(corpus *c); /* NULL is fine */
uint64_t corpus_samples(const corpus *c, corpus_split split);
uint64_t corpus_tokens(const corpus *c);
bool corpus_undivided(const corpus *c);  /* a file of the text was cut nowhere (docs_count): it is one document */
/* of every id, windows, seed and split, and not of how files hold them: a resumed run sees whether its data changed */
uint64_t corpus_digest(const corpus *c);
/* The next B samples: ids is [B, T + 1]. pos moves on; past the end of the split the next epoch begins, in its own
 * order. Validation is never shuffled. AN_INPUT: a bad id, a split without samples, a file that was cut since. */
an_status corpus_batch(const corpus *c, corpus_split split, int64_t b, corpus_pos *pos, int32_t *ids, diag *d)
    MUST_CHECK;

#endif
