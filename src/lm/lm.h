/* lm.h: language models from the files people have. One object, whatever the file: a configuration, and tensors by
 * their canonical names (model/weights.def), in the type the caller asks for.
 *
 *     lm_model *m;
 *     lm_open("stories260K.bin", &(lm_options){ 0 }, &m, d);
 *     lm_dense(m, MW_WQ, 0, DT_F16, &w, d);     a whole matrix
 *     lm_rows(m, MW_EMBED, -1, token, 1, DT_F16, x, d);
 *     lm_close(m);
 *
 * Files are mapped. A tensor asked for in the type and order it has in the file is a view of the file; any other is
 * converted once, and the pages of the original are let go. Opening checks everything that can be checked without
 * reading weights: every tensor the configuration wants is there with its shape, and the file holds none it does not
 * want.
 *
 * Rotary pairs: the configuration says how the weights at hand are laid out, so nothing is permuted on reading.
 *     Hugging Face (llama, mistral, qwen2, qwen3), GGUF qwen2 and qwen3     halves: pair i is channels i and i + HD/2
 *     llama2.c, GGUF llama                                                  interleaved: pair i is channels 2i and 2i + 1
 * lm_convert permutes the rows of wq, wk (and their biases and norms) when it goes from one column to the other. */
#ifndef LM_LM_H
#define LM_LM_H

#include "base/pool.h"
#include "format/gguf.h"
#include "kernel/vector.h"
#include "model/model.h"
#include "text/text.h"

/* ---- opening ---- */

/* How matrices are held. Norms, biases and positions are always dense. */
typedef enum {
    LM_DENSE,
    LM_INT8,     /* int8 and a scale for each row, or for each block of a row where the file has blocks */
    LM_INT4,     /* int4 and a scale for each block of a row */
    LM_PALETTE4, /* 4-bit indices into 16 values of the tensor's own */
    LM_AS_FILE,  /* int8 or int4 blocks where the file's own form is one, dense elsewhere */
    LM_FORMS
} lm_form;

typedef struct {      /* zero means default */
    dtype dt;         /* of dense tensors and of scales; DT_NONE: fp16. Also the configuration's dt */
    lm_form form;     /* what lm_form_of answers for the layers' matrices */
    lm_form head;     /* the same for the classifier; LM_DENSE: as form, so that a dense head needs head_dense */
    bool head_dense;
    uint64_t seed;    /* weights of a preset or a bare config.json */
    /* of those: rows of the embedding are kept in memory as dt, as a file would have them, instead of being made at
     * every look-up */
    bool rows_held;
    pool *threads;    /* for conversions; NULL: the calling thread. Borrowed until lm_close */
} lm_options;

typedef enum { LM_FROM_HF, LM_FROM_SAFETENSORS, LM_FROM_LLAMA2C, LM_FROM_GGUF, LM_FROM_SEED, LM_FROM_MEMORY,
               LM_FROM_NPY } lm_origin;

typedef struct lm_model lm_model;

/* what: a Hugging Face folder (config.json, model.safetensors or its index; our checkpoints are such folders), a
 * folder with config.json and a .npy file for each tensor under its canonical name (what lm_convert writes as npy),
 * a .safetensors file (with config.json beside it, or our own in its metadata), a llama2.c .bin, a .gguf, a
 * config.json or the name of a preset (random weights from the seed). Files are told apart by their content.
 * AN_INPUT names the file, the tensor or field, what it is and what was wanted. */
an_status lm_open(const char *what, const lm_options *o, lm_model **out, diag *d) MUST_CHECK;
void lm_close(lm_model *m); /* NULL is fine; every pointer handed out is gone */

const model_config *lm_config(const lm_model *m);
lm_origin lm_origin_of(const lm_model *m);
const char *lm_origin_name(lm_origin o); /* "Hugging Face folder" … */
const char *lm_path(const lm_model *m);  /* as opened; the preset's name */
const vec_kernels *lm_kernels(const lm_model *m); /* those of this processor */
pool *lm_threads(const lm_model *m);     /* as it was opened with */
const char *lm_family(const lm_model *m); /* "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gpt2" */

/* Which ids the model may answer with, [vocab], where that is not all of them: a run over part of a vocabulary
 * leaves the file active.u32 beside the weights, and rows it does not name are as they were before the run. Any id
 * may be read. NULL: all. */
const unsigned char *lm_active(const lm_model *m);
/* AN_INPUT: an id out of the vocabulary, or no id */
an_status lm_restrict(lm_model *m, const uint32_t *ids, size_t n, diag *d) MUST_CHECK;

/* What config.json, generation_config.json or the GGUF metadata say about producing text. */
enum { LM_MAX_EOS = 8 };
typedef struct {
    int64_t bos, pad;          /* -1: not said */
    int n_eos;
    int64_t eos[LM_MAX_EOS];
    bool sample;               /* do_sample */
    double temperature, top_p, min_p, repetition_penalty; /* NAN: not said */
    int64_t top_k;             /* -1: not said */
} lm_generation;
const lm_generation *lm_generation_of(const lm_model *m);

/* The same object over weights the caller has (a training run's): get fills all of a tensor as fp32, [rows, cols],
 * and is asked for each once, here. name stands for the file in messages; g may be NULL. */
typedef an_status lm_fetch(void *user, model_weight_id id, int layer, float *to, diag *d);
an_status lm_from_memory(const char *name, const model_config *c, const lm_generation *g, lm_fetch *get, void *user,
                         const lm_options *o, lm_model **out, diag *d) MUST_CHECK;

/* ---- tokenizers ---- */

/* As tok_open, and a GGUF file's vocabulary, and "builtin:stories". */
an_status lm_tokenizer_open(const char *path, tokenizer **out, diag *d) MUST_CHECK;
/* The model's own: in its folder or GGUF file, or in the folder of a single file, there only one that fits. AN_INPUT
 * says why there is none. */
an_status lm_tokenizer_of(const lm_model *m, tokenizer **out, diag *d) MUST_CHECK;
/* of an embedding, which may be padded, never much, and never shorter than the vocabulary */
bool lm_vocab_fits(const tokenizer *t, int64_t rows);

/* ---- tensors ---- */

/* rows, cols: of the canonical matrix; a vector is one column. Canonical elements are row-major [rows, cols], rows =
 * outputs. */
typedef struct {
    int64_t rows, cols;
    const char *name, *file;  /* in the file; name is "" for generated weights */
    const char *type;         /* as stored: "F32", "BF16", "Q4_K", "int8/64" */
} lm_tensor;
/* False: the configuration has no such tensor. A tied classifier is asked for as MW_EMBED. */
bool lm_tensor_info(const lm_model *m, model_weight_id id, int layer, lm_tensor *out);

/* All of a tensor as packed elements of dt (fp16, bf16, fp32): the mapped file where it has that form, else
 * converted once and kept until lm_release or lm_close. Not aligned when it is the file. */
an_status lm_dense(lm_model *m, model_weight_id id, int layer, dtype dt, const void **at, diag *d) MUST_CHECK;
/* n rows from row0 into memory of the caller; nothing is kept. Any float type. */
an_status lm_rows(lm_model *m, model_weight_id id, int layer, int64_t row0, int64_t n, dtype dt, void *to, diag *d)
    MUST_CHECK;

/* A matrix in a compressed form; element = scale * q, or table[q]. */
typedef struct {
    lm_form form;
    int64_t rows, cols;
    dtype q_dt;            /* DT_I8, DT_I4; DT_U4 for a palette */
    const void *q;         /* [rows, cols] packed, low bits first */
    dtype scale_dt;
    int64_t scale_cols;    /* scale is [rows, scale_cols]: a block is cols / scale_cols elements of a row */
    const void *scale;     /* NULL: a palette */
    const void *table;     /* 16 values of scale_dt; NULL: not a palette */
} lm_quantized;
/* form: LM_INT8, LM_INT4 or LM_PALETTE4. Blocks the file already has are used as they are; anything else is
 * quantised here, once. */
an_status lm_quantize(lm_model *m, model_weight_id id, int layer, lm_form form, dtype scale_dt, lm_quantized *out,
                      diag *d) MUST_CHECK;
/* What the options ask for this tensor, with LM_AS_FILE resolved: LM_DENSE, LM_INT8, LM_INT4 or LM_PALETTE4. */
lm_form lm_form_of(const lm_model *m, model_weight_id id, int layer);
const char *lm_form_name(lm_form f); /* "dense", "int8", "int4", "palette4", "file" */

/* converted copies of it, when no graph points at them any more */
void lm_release(lm_model *m, model_weight_id id, int layer);
/* after a run of conversions and releases: memory kept for the next one goes back */
void lm_settle(lm_model *m);

/* ---- names ---- */

/* The Hugging Face name of a tensor in this family's files, with the prefix of a model with a head; "part" says
 * which third of a fused tensor it is (GPT-2's c_attn: 0, 1, 2), -1 when it is alone. False: that family has no such
 * tensor, or buf is short. */
bool lm_hf_name(const model_config *c, model_weight_id id, int layer, char *buf, size_t n, int *part, bool *transposed);

/* ---- writing ---- */

typedef enum { LM_TO_SAFETENSORS, LM_TO_HF, LM_TO_GGUF, LM_TO_LLAMA2C, LM_TO_NPY, LM_TARGETS } lm_target;
typedef struct {
    lm_target to;
    dtype dt;            /* of dense tensors; DT_NONE: as in the file where the format can say it, else fp32 */
    const char *quantize; /* "int8", "int4", "palette4", "q8_0", "q4_0"; NULL: no */
    int version;         /* llama2.c: 0, 1 or 2; -1: 0, or 2 with int8 */
    /* LM_TO_HF: most bytes of tensors in a file, larger tensors alone; 0: one file, model.safetensors */
    uint64_t shard;
    /* goes along into a GGUF file or a folder; NULL: for GGUF that of a GGUF model, for a folder the files of a folder,
     * or none */
    const tokenizer *vocab;
    bool vocab_if_fits;  /* one that does not fit is left out, and done.lost says why */
    /* safetensors: dense tensors are called what this model's files call them ("wte.weight" for
     * "transformer.wte.weight"); NULL: as the family has it */
    const lm_model *named;
    /* the numbers are gradients by the weights: what files leave off a weight (families.def) is nothing to leave off
     * its gradient */
    bool slopes;
    /* the folder is the caller's own, and no one's model yet: files go straight into it, and what a failure leaves is
     * the caller's */
    bool fresh;
    pool *threads;
} lm_convert_options;
typedef struct {
    int64_t tensors;
    uint64_t bytes_in, bytes_out;
    double worst;        /* largest |written - read| over the largest magnitude of its tensor; 0 when exact */
    int shards;          /* files the tensors are in */
    bool vocabulary;     /* one went along */
    char lost[240];      /* what the target has no place for; "": nothing */
} lm_converted;
/* out is a file, or a folder for LM_TO_HF and LM_TO_NPY, which is made or filled anew: a failure leaves it as it was
 * (folder.h). */
an_status lm_convert(lm_model *m, const char *out, const lm_convert_options *o, lm_converted *done, diag *d) MUST_CHECK;
/* AN_USAGE: out is the model, or a file it is read from, however it is spelt: what is written there would replace
 * it. */
an_status lm_apart(const lm_model *m, const char *out, diag *d) MUST_CHECK;
bool lm_target_find(const char *name, lm_target *t); /* "safetensors", "hf", "gguf", "llama2c", "npy" */

/* config.json of the family this configuration belongs to; the checkpoint writer uses it too. */
an_status lm_config_json(const model_config *c, const lm_generation *g, strbuf *out, diag *d) MUST_CHECK;
/* The other way round. `file` is for messages. */
an_status lm_config_read(const char *file, const void *text, size_t n, model_config *c, lm_generation *g, diag *d)
    MUST_CHECK;

#endif
