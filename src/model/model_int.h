/* model_int.h: what the kernel builders share: the program being built, its ports and its weights. */
#ifndef MODEL_MODEL_INT_H
#define MODEL_MODEL_INT_H

#include "model/model.h"

typedef struct {
    graph *g;
    const model_config *c; /* checked, zero defaults filled in */
    const model_source *src;
    int layer;
    const char *spec_in, *spec_out; /* the row's ports as the table writes them */
    nn_heads heads; /* seq is the program's */
    /* by place in the table's row, conditional ports that are absent left out */
    val in[MODEL_MAX_PORTS], out[MODEL_MAX_PORTS];
    int n_in, n_out;
    /* the whole decoder in one graph (decoder.c): names carry the layer, and what all layers share is made once */
    bool whole, param_inputs;
    bool alone;    /* every position is computed as a program of one would: no sum depends on how many there are */
    bool one_gelu; /* GELU is the op: no chip is asked, nor a gradient */
    nn_rope_tables rope;
    val mask, near; /* of layers without and with a window; NO_VAL: made on the spot */
} kernel;

/* A port by the name it has in kernels.def. Reading an absent one, or setting one the row lacks, is a bug and sticks
 * as one. */
val port_in(kernel *k, const char *name);
int ports_in(kernel *k, const char *name, const val **at); /* every part of a V* port */
void port_out(kernel *k, const char *name, val v);
void port_out_part(kernel *k, const char *name, int part, val v);

/* Constants of the current layer (or of the model). NO_VAL when the config has no such tensor: a bias left out. */
val weight(kernel *k, model_weight_id id);
val weight_t(kernel *k, model_weight_id id);
val vocab_weight(kernel *k, model_weight_id id, int part, bool transposed); /* rows of one part of the vocabulary */
val classifier_weight(kernel *k, int part, bool transposed);

bool weight_exists(const model_config *c, model_weight_id id);
bool weight_is_layers(model_weight_id id);
bool weight_is_vector(model_weight_id id); /* by its kind: a matrix may have one column too */
void weight_size(const model_config *c, model_weight_id id, int64_t *rows, int64_t *cols);
const char *weight_name(model_weight_id id);

#define KERNEL(id, name, sets, scope, in, out, doc) void build_##name(kernel *k);
#include "model/kernels.def"
#undef KERNEL

typedef enum { RUN_UP, RUN_DOWN, RUN_ONCE } run_scope;
typedef struct {
    const char *name, *doc, *in, *out;
    int sets;
    run_scope scope;
    void (*build)(kernel *k);
} kernel_row;
extern const kernel_row kernel_rows[MK_COUNT];

/* Blocks that training and inference programs share (block.c). */
typedef struct {
    val xn;         /* the normed input */
    val qraw, kraw; /* [1, Q, 1, S], [1, K, 1, S]: as projected */
    val q, k, v;    /* normed when the config says so; q and k rotated when asked */
} qkv;
val block_norm(kernel *k, val x, model_weight_id gain, model_weight_id bias);
val block_norm_bwd(kernel *k, val dy, val x, model_weight_id gain);
qkv block_qkv(kernel *k, val x, bool rotate);
qkv block_kv(kernel *k, val x); /* without queries, k rotated */
val block_q(kernel *k, val xn); /* queries alone, of an input normed already */
val block_attend(kernel *k, const qkv *p);
/* x + alpha*branch, or alpha*branch when the host adds; post: gain of the branch's own norm */
val block_residual(kernel *k, val x, val branch, model_weight_id post);
typedef struct {
    val xn, h1, h3, act, br, y;
} ffn;
ffn block_ffn(kernel *k, val x);
nn_rope_tables block_rope(kernel *k);

#endif
