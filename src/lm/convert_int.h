/* convert_int.h: what the writers of models share: the conversion under way, and its tensors a run of rows at a
 * time. */
#ifndef LM_CONVERT_INT_H
#define LM_CONVERT_INT_H

#include "base/folder.h"
#include "lm/lm_int.h"

enum { CONVERT_RUN = 1 << 18 }; /* elements of a run of rows */

typedef struct {
    lm_model *m;
    lm_convert_options o;
    const char *out;           /* where files are written */
    const char *place;         /* the folder they will stand in; NULL: they are written there */
    lm_form form;              /* LM_DENSE: not quantised */
    const block_format *block; /* the same as GGUF has it */
    model_rope rope;           /* the target's order of pairs; NONE: leave rows alone */
    float less;                /* what the target leaves off the gains of norms */
    lm_converted done;
    double peak, error;        /* of the tensor under way */
    float *x, *y;
} conversion;

typedef an_status put_fn(void *ctx, const void *p, size_t n, diag *d);

/* `to` holds every value of the store: its own type does, and fp32 all but doubles and gains with an offset */
bool conversion_exact(const store *s, dtype to);
dtype conversion_dtype(const conversion *v, model_weight_id id, int layer); /* of a dense tensor */
/* of three that become one: that of all, or fp32, which holds each */
dtype conversion_fused(const conversion *v, model_weight_id first, int layer);
/* All rows of a tensor in the target's order, as dt, or as blocks when f is a block format. */
an_status conversion_rows(conversion *v, model_weight_id id, int layer, dtype dt, const block_format *f, put_fn *put,
                          void *ctx, diag *d) MUST_CHECK;
/* Rows at hand (codes, scales), in the target's order. */
an_status conversion_reordered(conversion *v, model_weight_id id, const void *rows, int64_t n_rows, size_t row_bytes,
                               put_fn *put, void *ctx, diag *d) MUST_CHECK;
an_status conversion_codes(conversion *v, model_weight_id id, int layer, lm_form form, dtype scale_dt, lm_quantized *q,
                           diag *d) MUST_CHECK;

/* A vocabulary as GGUF has it, as many tokens as the embedding has rows; ids the model's own files name come before
 * the tokenizer's. */
an_status convert_vocab(conversion *v, gguf_out *w, diag *d) MUST_CHECK;
/* The same for a folder: tokenizer.json or tokenizer.model, and tokenizer_config.json. */
an_status convert_vocab_files(conversion *v, diag *d) MUST_CHECK;
an_status write_in(const char *folder, const char *name, const void *p, size_t n, diag *d) MUST_CHECK;
void conversion_loses(conversion *v, const char *fmt, ...) PRINTF_LIKE(2, 3); /* one more sentence of done.lost */
/* the same, where the model says something about it: "a GGUF" */
void conversion_loses_sampling(conversion *v, const char *kind);

/* One writer for each lm_target. */
an_status convert_safetensors(conversion *v, diag *d) MUST_CHECK;
an_status convert_hf(conversion *v, diag *d) MUST_CHECK;
an_status convert_gguf(conversion *v, diag *d) MUST_CHECK;
an_status convert_llama2c(conversion *v, diag *d) MUST_CHECK;
an_status convert_npy(conversion *v, diag *d) MUST_CHECK;

#endif
