/* lm_int.h: what the files of this folder share: families, a tensor as it lies in a file, the loaded model. */
#ifndef LM_LM_INT_H
#define LM_LM_INT_H

#include "format/json.h"
#include "format/llama2c.h"
#include "format/npy.h"
#include "format/safetensors.h"
#include "kernel/vector.h"
#include "lm/lm.h"

/* ---- families ---- */

typedef enum {
#define FAMILY(id, letter, hf, cls, gguf, hf_rope, gguf_rope, names, less, kv) FAM_##id,
#include "lm/families.def"
#undef FAMILY
    FAM_COUNT
} family_id;

typedef enum { COL_HF, COL_HF4, COL_GPT2, COL_GGUF, COL_GGUF2 } name_column;
typedef enum { NAMES_HF, NAMES_HF4, NAMES_GPT2 } name_style;
typedef struct {
    char letter;
    const char *hf, *cls, *gguf;
    model_rope hf_rope, gguf_rope;
    name_style names;
    float less;
    int64_t kv_heads;
} family;
name_column hf_column(family_id f);
name_column gguf_column(family_id f);
extern const family families[FAM_COUNT];
extern const model_weight_id llama2c_weight[L2C_COUNT]; /* what a tensor of llama2.c's files is */

/* The family whose files can say everything this configuration does; FAM_COUNT: none. `why` names the field that no
 * family has. */
family_id family_of(const model_config *c, const char **why);

const char *name_pattern(name_column col, model_weight_id id);  /* "" when that kind of file has no such tensor */
bool name_make(const char *pattern, int layer, char *buf, size_t n);
int name_third(name_column col, model_weight_id id);            /* of a fused tensor: 0, 1, 2; -1: alone */
bool weight_is_gain(model_weight_id id);                        /* of a norm over the width */
bool weight_is_matrix(model_weight_id id);                      /* more than one column */
bool weight_in(const model_config *c, model_weight_id id);      /* the configuration has it */
bool weight_per_layer(model_weight_id id);
/* "layer0.wq" and tail; returns buf */
const char *weight_label(model_weight_id id, int layer, const char *tail, char *buf, size_t n);
void weight_shape(const model_config *c, model_weight_id id, int64_t *rows, int64_t *cols);

/* ---- configurations ---- */

void generation_default(lm_generation *g);
/* Fields of config.json that say how text is made, and those of generation_config.json, into g. */
/* generation_config.json */
an_status generation_read(const char *file, const json_t *top, int64_t vocab, lm_generation *g, diag *d) MUST_CHECK;
an_status config_from_json(const char *file, const json_t *top, model_config *c, lm_generation *g, diag *d) MUST_CHECK;
an_status config_from_gguf(const gguf *f, model_config *c, lm_generation *g, diag *d) MUST_CHECK;
an_status config_from_llama2c(const char *file, const llama2c_shape *s, model_config *c, diag *d) MUST_CHECK;
/* Llama 3's scaling stands in GGUF files as the divisors of the angles, from which its numbers do not follow:
 * factor, low, high and original as fp64. */
#define LM_SCALING_KEY "anneal.rope_llama3"
double gemma2_query_dim(
    const model_config
        *c); /* what GGUF files of that architecture mean without saying: query_dim by the number of layers */
void config_defaults(model_config *c); /* seq, alpha, loss_scale, dt of a configuration read from a file */

/* ---- a tensor as it lies in a file ---- */

typedef enum {
    STORE_NONE,
    STORE_PLAIN,  /* elements of dt */
    STORE_BLOCKS, /* GGUF blocks along rows */
    STORE_GROUPS, /* codes of dt (int8, int4), a scale for each `group` of them counted along the whole tensor */
    STORE_TABLE,  /* 4-bit indices into 16 values */
    STORE_RANDOM, /* made from a seed */
} store_kind;

typedef struct {
    store_kind kind;
    const char *name, *file, *type;
    int64_t rows, cols;          /* canonical */
    bool turned;                 /* lies (cols, rows): GPT-2's Conv1D */
    int64_t ld;                  /* elements from one stored line to the next */
    dtype dt;
    const block_format *block;
    const unsigned char *data;
    size_t bytes;                /* from the first element to the last, as it lies */
    const unsigned char *scales; /* GROUPS: of scale_dt; TABLE: the 16 values */
    dtype scale_dt;
    int64_t group;
    uint64_t seed;               /* RANDOM: element i is mean + std * noise(seed, i) */
    float mean, std;
    float add;                   /* to every element: what the file leaves off */
} store;

/* Rows row0 .. row0+n-1 as dt, each `ld` elements behind the one before. */
an_status store_rows(const store *s, const vec_kernels *v, pool *threads, int64_t row0, int64_t n, dtype dt, void *to,
                     int64_t ld, diag *d) MUST_CHECK;
/* The same rows as columns: element (row0 + i, c) goes to to[c * ld + i]. */
an_status store_columns(const store *s, const vec_kernels *v, pool *threads, int64_t row0, int64_t n, dtype dt,
                        void *to, int64_t ld, diag *d) MUST_CHECK;
int64_t store_scale_cols(const store *s, lm_form form); /* scales of a row that lm_quantize will give */
/* the type that keeps them as they are: fp32 where the store has the form with such, else fp16 */
dtype store_scale_type(const store *s, lm_form form);
/* the file's bytes when they are canonical and of that type, else NULL */
const void *store_as_is(const store *s, dtype dt);

/* ---- quantising ---- */

typedef struct {
    int64_t rows, cols, block; /* block: elements of a row that share a scale */
    dtype scale_dt;
} quant_shape;
int64_t quant_block(lm_form form, int64_t cols);              /* the block a form uses for rows of that length */
/* One row of fp32: int8 codes or packed int4, and cols / block scales. false: a magnitude its scale type cannot
 * hold. */
bool quant_row(lm_form form, const quant_shape *q, const float *x, void *codes, int64_t first, void *scales,
               int64_t first_scale);
/* Sixteen values for all of a tensor, then its indices. */
typedef struct {
    double lo, hi;
    uint64_t *count;  /* PALETTE_BINS */
    float value[16];
} palette;
enum { PALETTE_BINS = 8192 };
void palette_count(palette *p, const float *x, int64_t n);
void palette_settle(palette *p, dtype dt);                    /* counts to values, rounded to dt, ascending */
int palette_find(const palette *p, float x);

/* ---- the model ---- */

typedef struct {
    model_weight_id id;
    int layer;
    int form;          /* lm_form */
    dtype dt;
    void *at, *at2;    /* elements; scales or table */
    size_t room;       /* of at, when it may serve again: dense ones */
    int64_t scale_cols;
} kept;

struct lm_model {
    arena mem;
    lm_options o;
    lm_origin origin;
    family_id fam;
    const char *path;
    model_config c;
    lm_generation gen;
    safetensors *st;
    gguf *gg;
    llama2c l2c;
    bool has_l2c;
    VEC(npy_file) npy;
    store *stores;     /* by id and layer: store_at */
    VEC(kept) kept;
    void *spare;       /* what lm_release let go last, for the next conversion */
    size_t spare_bytes;
    const vec_kernels *v;
    unsigned char *active; /* NULL: every id may be answered */
};
#define LM_ACTIVE_FILE "active.u32"
#define LM_ACTIVE_KEY "anneal.active_tokens" /* the same list in the metadata of a single file */
an_status active_read(lm_model *m, const char *path, diag *d) MUST_CHECK; /* a file that is not there is no failure */
an_status active_write(const lm_model *m, const char *folder, diag *d) MUST_CHECK;
an_status active_to_gguf(const lm_model *m, gguf_out *w, diag *d) MUST_CHECK;
an_status active_from_gguf(lm_model *m, diag *d) MUST_CHECK;
an_status active_to_meta(const lm_model *m, safetensors_out *w, diag *d) MUST_CHECK;
an_status active_from_meta(lm_model *m, diag *d) MUST_CHECK;
/* its pages need not stay: it was read for the last time, for now */
void store_forget(const lm_model *m, const store *s);
store *store_at(const lm_model *m, model_weight_id id, int layer); /* NULL: no such id or layer */

/* Each fills stores for every tensor of the configuration and refuses what does not fit. */
an_status bind_safetensors(lm_model *m, diag *d) MUST_CHECK;
an_status bind_gguf(lm_model *m, diag *d) MUST_CHECK;
an_status bind_llama2c(lm_model *m, diag *d) MUST_CHECK;
an_status bind_npy(lm_model *m, diag *d) MUST_CHECK;
an_status bind_random(lm_model *m, diag *d) MUST_CHECK;
an_status bind_memory(lm_model *m, lm_fetch *get, void *user, diag *d) MUST_CHECK;

#endif
