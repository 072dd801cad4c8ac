/* text.h: text to tokens and back. One tokenizer object, whatever file it came from.
 *
 *     tokenizer *t; tok_encoder *e; tok_ids ids = {0};
 *     tok_open("model/tokenizer.json", &t, d);  tok_encoder_new(t, &e, d);
 *     tok_encode(e, text, n, TOK_BOS, &ids, d);  tok_decode(t, ids.at, ids.n, 0, &bytes, d);
 *
 * A tokenizer never changes once it is open: threads share it. An encoder holds caches and scratch: one for each
 * thread. Text is bytes. What is not UTF-8 is kept byte for byte where the vocabulary can spell single bytes, and
 * refused where it cannot. See also text/shard.h (token files, batches) and text/story.h (the built-in corpus). */
#ifndef TEXT_TEXT_H
#define TEXT_TEXT_H

#include "base/str.h"

typedef struct tokenizer tokenizer;
typedef struct tok_encoder tok_encoder;

/* What a token is; the numbers are those of SentencePiece and GGUF. */
typedef enum { TOK_NORMAL = 1, TOK_UNKNOWN = 2, TOK_CONTROL = 3, TOK_USER = 4, TOK_UNUSED = 5, TOK_BYTE = 6 } tok_type;

/* ---- open ---- */

/* tokenizer.json, tokenizer.model (SentencePiece), tokenizer.bin (llama2.c), encoder.json or vocab.json beside its
 * merges, "A,B" for such a pair, or a folder that holds one of them. Files beside it (tokenizer_config.json,
 * generation_config.json, config.json, special_tokens_map.json, chat_template.jinja) give the ids of BOS and EOS and
 * the chat template. AN_INPUT names file and reason. */
an_status tok_open(const char *path, tokenizer **out, diag *d) MUST_CHECK;
bool tok_in(const char *dir); /* the folder holds one, whether it can be opened or not */
void tok_close(tokenizer *t); /* NULL is fine */

/* From bytes: name is for messages. */
an_status tok_from_json(const char *name, const void *p, size_t n, tokenizer **out, diag *d) MUST_CHECK;
an_status tok_from_model(const char *name, const void *p, size_t n, tokenizer **out, diag *d) MUST_CHECK;
an_status tok_from_bin(const char *name, const void *p, size_t n, tokenizer **out, diag *d) MUST_CHECK;
an_status tok_from_pair(const char *name, const void *vocab, size_t n_vocab, const void *merges, size_t n_merges,
                        tokenizer **out, diag *d) MUST_CHECK;

/* A vocabulary as GGUF has it. Everything is copied. */
typedef struct {
    const char *at;
    size_t n;
} tok_str;
typedef struct {
    const char *model;        /* tokenizer.ggml.model: "gpt2", "llama", "t5" */
    const char *pre;          /* tokenizer.ggml.pre: "gpt-2", "llama-bpe", "qwen2" …; NULL: not said */
    size_t n;
    const tok_str *token;
    const float *score;       /* NULL: none (byte-level BPE) */
    const int32_t *type;      /* tok_type; NULL: all normal */
    size_t n_merges;
    const tok_str *merge;     /* "left right" */
    int64_t bos, eos, unk, pad;  /* -1: none */
    int add_bos, add_eos;        /* -1: not said */
    int add_space_prefix;        /* -1: not said (llama and t5: yes) */
    bool remove_extra_whitespaces;
    const void *charsmap;        /* precompiled_charsmap of t5-like vocabularies; NULL: none */
    size_t n_charsmap;
    const char *chat_template;   /* NULL: none */
} tok_vocab;
an_status tok_from_vocab(const char *name, const tok_vocab *v, tokenizer **out, diag *d) MUST_CHECK;
/* The other way round: what tok_from_vocab makes the same tokenizer of, in mem and borrowed from t. `rows`: at least
 * so many tokens, since embeddings may be longer than vocabularies; further ones are unused. AN_INPUT names what
 * such a vocabulary cannot say; `lost`, a sentence in mem, what it leaves out that few texts notice; "": nothing. */
an_status tok_to_vocab(const tokenizer *t, size_t rows, arena *mem, tok_vocab *out, const char **lost, diag *d)
    MUST_CHECK;

/* Such a vocabulary as a file of a folder: its content to out, its name back: tokenizer.json, or tokenizer.model
 * where it has scores. And what stands in tokenizer_config.json beside it. out->oom: no memory. */
const char *tok_vocab_file(const tok_vocab *v, strbuf *out);
void tok_vocab_config(const tok_vocab *v, strbuf *out);

/* The files tok_open read it from, each with the name under which it finds such a file in a folder: a folder of
 * copies gives the same tokenizer. Without config.json and generation_config.json, which are a model's. Their
 * number; 0: it came from bytes. */
typedef struct {
    const char *name, *path;
} tok_file;
size_t tok_files(const tokenizer *t, const tok_file **out); /* valid until tok_close */

typedef struct {
    const char *model;         /* "byte-level BPE", "BPE", "SentencePiece BPE", "SentencePiece unigram" */
    /* how text is cut before merging, the last step of it: a name of pattern.def, "regex", "words", "none" */
    const char *split;
    uint32_t n;                /* ids are 0 … n-1 */
    uint32_t n_special;        /* control and user-defined tokens */
    int64_t bos, eos, unk, pad; /* -1: none */
    bool add_bos, add_eos;     /* what the file says a text should get */
    bool byte_fallback;        /* any byte can be spelt */
    const char *chat_template; /* NULL: none */
} tok_info;
void tok_get(const tokenizer *t, tok_info *info);                       /* valid until tok_close */
/* bytes the token decodes to; {NULL, 0} past the end */
tok_str tok_text(const tokenizer *t, uint32_t id);
tok_type tok_type_of(const tokenizer *t, uint32_t id);
/* id of a token by its text, special ones included; -1: none */
int64_t tok_find(const tokenizer *t, const char *s, size_t n);

/* ---- encode ---- */

typedef struct {
    uint32_t *at;
    size_t n, cap;
} tok_ids;
void tok_ids_free(tok_ids *v);
bool tok_ids_push(tok_ids *v, uint32_t id) MUST_CHECK; /* false: no memory */

enum {
    TOK_BOS = AN_TOK_BOS,         /* put BOS in front; AN_INPUT when there is none */
    TOK_EOS = AN_TOK_EOS,         /* and EOS behind */
    TOK_SPECIAL = AN_TOK_SPECIAL, /* encode: control tokens spelt in the text become their id; decode: print them */
    TOK_UTF8 = AN_TOK_UTF8,       /* encode: AN_INPUT for a text that is not UTF-8, with the byte */
};
an_status tok_encoder_new(const tokenizer *t, tok_encoder **out, diag *d) MUST_CHECK; /* t must outlive it */
void tok_encoder_free(tok_encoder *e);
/* Appends. Time grows as n log n for any text. */
an_status tok_encode(tok_encoder *e, const char *text, size_t n, unsigned flags, tok_ids *out, diag *d) MUST_CHECK;

/* How a text is cut before merging: ends of the pieces, in bytes from the start. For tests and for looking. */
typedef struct {
    size_t *at;
    size_t n, cap;
} tok_cuts;
void tok_cuts_free(tok_cuts *v);
an_status tok_cut(tok_encoder *e, const char *text, size_t n, tok_cuts *out, diag *d) MUST_CHECK;

/* ---- decode ---- */

/* Appends the bytes. AN_INPUT: an id past the vocabulary, with its index. */
an_status tok_decode(const tokenizer *t, const uint32_t *ids, size_t n, unsigned flags, strbuf *out, diag *d)
    MUST_CHECK;

/* Token by token: bytes that could be the start of a UTF-8 character are held until it is whole. Zero-initialise. */
typedef struct {
    unsigned char held[4];
    unsigned char n_held;
    bool begun; /* something was printed, so a leading space is no longer the one encoding added */
} tok_stream;
an_status tok_stream_put(const tokenizer *t, tok_stream *s, uint32_t id, unsigned flags, strbuf *out, diag *d)
    MUST_CHECK;
void tok_stream_end(tok_stream *s, strbuf *out); /* what is still held, as it is */

/* ---- train ---- */

typedef struct {
    uint32_t vocab;     /* entries wanted: 256 bytes, merges, the special tokens; at least 256 + n_special */
    const char *split;  /* "gpt2" (also for NULL), "llama3", "qwen2", "qwen35" */
    const char *const *special; /* NULL: one, "<|endoftext|>", which serves as BOS and EOS */
    size_t n_special;
} tok_train_options;
/* Byte-level BPE from a corpus, as tokenizer.json text. Same corpus and options: same bytes. A corpus with no pair
 * left that occurs twice gives fewer entries than wanted. */
an_status tok_train(const char *corpus, size_t n, const tok_train_options *o, strbuf *json, diag *d) MUST_CHECK;

#endif
