/* model.h: transformers as graphs: a configuration in, one graph per engine program out.
 *
 * Letters used everywhere below:  D width, H feed-forward width, NH query heads, NKV key/value heads, HD head width,
 * Q = NH*HD, K = NKV*HD, G = NH/NKV (query head h reads kv head h div G), S positions, V vocabulary.
 * Activations are [1, C, 1, S]; matrices are [out, in, 1, 1]; y = W x. A transposed copy ("wq_t", [in, out, 1, 1]) is a
 * constant of its own. Weight gradients (dW = dy x^T, in [out, in] order) are the host's work and not here.
 *
 * Everything is composed from ops that every family has and that keep their range in fp16; compose.c, attend.c and
 * loss.c say how and why at each composite. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "graph/graph.h"

/* ---- configuration ---- */

/* pairs (2i, 2i+1) or (i, i+HD/2) */
typedef enum { MODEL_ROPE_NONE, MODEL_ROPE_INTERLEAVED, MODEL_ROPE_HALF } model_rope;
typedef enum { MODEL_NORM_RMS, MODEL_NORM_LAYER } model_norm;
typedef enum { MODEL_ACT_SWIGLU, MODEL_ACT_GELU, MODEL_ACT_GEGLU } model_act;

/* How positions past the length a model was first trained on are squeezed. Fields a kind does not name are unused. */
typedef enum {
    MODEL_SCALE_NONE,
    MODEL_SCALE_LINEAR, /* every angle divided by factor */
    /* waves longer than original/low divided by factor, shorter than original/high kept, a ramp between */
    MODEL_SCALE_LLAMA3,
    MODEL_SCALE_YARN /* pairs that turn more than high times in `original` positions kept, less than low divided, a ramp
                           between; tables times attn (0: 0.1 ln factor + 1) */
} model_scaling_kind;
typedef struct {
    model_scaling_kind kind;
    double factor, low, high, original, attn;
} model_scaling;

typedef struct {
    char name[32];
    int64_t n_layers, dim, hidden, n_heads, n_kv_heads, head_dim;
    int64_t seq;         /* positions of one training program */
    int64_t context;     /* most positions the model is for */
    int64_t vocab;
    int64_t vocab_part;  /* most channels of one logits tensor; 0: MODEL_VOCAB_PART */
    double norm_eps, rope_theta;
    double alpha;        /* residual branches are scaled by it; 0 means 1 */
    double loss_scale;   /* of dlogits; 0 means 1 */
    double softcap;      /* logits become softcap * tanh(logits / softcap); 0: they stay as they are */
    double attn_softcap; /* the same for the scores of attention, before the mask */
    double query_dim;    /* scores are divided by its root; 0: by that of the head width */
    double embed_scale;  /* rows of the embedding are multiplied by it on the way in; 0 means 1 */
    model_rope rope;
    model_norm norm;
    model_act act;
    bool bias;           /* every matrix but the classifier has one */
    bool bias_qkv, bias_o, bias_mlp; /* or only these have */
    int64_t window;      /* a position sees itself and the window - 1 before it; 0: all before it */
    int64_t window_every; /* only layers 0, n, 2n, … have the window; 0 means 1 */
    bool post_norm;      /* what a branch gives is normed before it is added */
    model_scaling scaling;
    bool qk_norm;        /* RMSNorm of each query and key head before the rotation */
    bool tied;           /* the classifier is the embedding */
    bool host_residual;  /* programs return the branch alone, and the host adds it in fp32 */
    dtype dt;            /* DT_NONE means fp16; fp32 for devices that compute in it */
} model_config;

enum {
    /* the axis limit of the oldest family; a 32k-channel convolution is refused on some machines */
    MODEL_VOCAB_PART = 16384,
    /* positions of a decode program; the token is at 0. fp16 with D=768 fills 49152 bytes, the smallest surface any
     * report calls safe, and the width is not below 32 */
    MODEL_DECODE_SLOTS = 32,
    MODEL_MAX_HEAD = 1024,    /* width of a head: four times the widest published */
    /* a token id travels as two fp16 digits, hi = id / 1024 and lo = id % 1024: both are exact */
    MODEL_ID_BASE = 1024,
};

size_t model_preset_count(void);
const model_config *model_preset_at(size_t i);
const model_config *model_preset_find(const char *name); /* NULL when unknown */
an_status model_config_check(const model_config *c, diag *d) MUST_CHECK;
/* Angle per position of pair i (HD/2 of them), and the factor of the tables. */
void model_rope_steps(const model_config *c, double *step, double *scale);
int64_t model_window(const model_config *c, int64_t layer); /* of that layer; 0: none */
bool model_gated(const model_config *c);                    /* the feed-forward part has a gate */
int model_vocab_parts(const model_config *c);                 /* number of logits tensors */
int64_t model_vocab_part(const model_config *c, int part, int64_t *first); /* its channels, and the id of channel 0 */

/* ---- weights ---- */

typedef enum {
#define WEIGHT(id, name, rows, cols, scope, when) MW_##id,
#include "model/weights.def"
#undef WEIGHT
    MW_COUNT
} model_weight_id;

/* One constant of one program. Matrices are [rows, cols, 1, 1], vectors [1, n, 1, 1]. */
typedef struct {
    model_weight_id id;
    int layer;        /* -1: not a layer's */
    bool transposed;
    int part;         /* classifier only: which run of rows; -1 when whole */
    int64_t row0;     /* first row of the untransposed matrix that is in it */
    ttype type;
    char name[40];    /* "layer3.wq", "layer3.wq_t", "embed.part1": unique in the model, stable */
} model_weight;

/* Where a constant's bytes come from. The source is asked with path and offset filled in as for a model folder with
 * one file per constant ("@model_path/weights/layer3.wq.bin", 64) and data NULL; it may change all three. `data` is
 * packed elements, borrowed until the graph is freed; NULL leaves a reference to be bound later. False: there is no
 * such weight. */
typedef struct {
    const char *path;
    uint64_t offset;
    const void *data;
    /* Compressed: `path` then holds integers q of type `q` in the tensor's shape, and the constant is made from them
     * by one of the engine's own weight forms. q DT_NONE: dense. Scales and tables are of the tensor's type and have
     * no `data`. */
    dtype q;             /* DT_I8, DT_I4: q * scale; DT_U4 with `palette`: table[q] */
    /* scales are [rows, scale_cols]; 1: one for each row, a divisor of the columns: one for each block */
    int64_t scale_cols;
    bool palette;        /* 16 values for the whole tensor */
    const char *aux_path; /* of scales or table; NULL: the path with ".scale" in it */
    uint64_t aux_offset;
} model_blob;
typedef struct {
    bool (*get)(void *user, const model_weight *w, model_blob *b);
    void *user;
} model_source;

/* Every tensor a model of this shape has, untransposed and whole. Returns the count; out may be NULL. */
size_t model_weights(const model_config *c, model_weight *out, size_t max);
int64_t model_params(const model_config *c); /* number of trained numbers; a tied matrix counts once */

/* ---- programs ---- */

typedef enum {
#define KERNEL(id, name, sets, scope, in, out, doc) MK_##id,
#include "model/kernels.def"
#undef KERNEL
    MK_COUNT
} model_kind;

typedef enum { MODEL_SET_TRAIN = 1, MODEL_SET_PREFILL = 2, MODEL_SET_DECODE = 4, MODEL_SET_FUSED = 8 } model_set;

typedef struct {
    model_kind kind;
    int layer;   /* ignored by programs that exist once */
    int64_t seq; /* positions; 0: the config's, or MODEL_DECODE_SLOTS for a decode program */
} model_program;

enum { MODEL_MAX_PORTS = 72 };
typedef struct {
    char name[24];    /* "i00_x": sorted order is declared order, which is how the engine binds surfaces */
    int64_t channels; /* the port is [1, channels, 1, seq] */
} model_port;

const char *model_kernel_name(model_kind k);
bool model_kernel_find(const char *name, model_kind *k);
bool model_kernel_per_layer(model_kind k);
/* Ports in order; returns their number. out holds MODEL_MAX_PORTS. */
int model_kernel_ports(const model_config *c, const model_program *p, bool inputs, model_port *out);

/* The programs of a set in the order a step runs them: layers up, the head, layers down. out may be NULL to count. */
size_t model_program_list(const model_config *c, model_set set, model_program *out, size_t max);
/* They differ in their weights alone. */
bool model_program_alike(const model_config *c, const model_program *a, const model_program *b);
/* "stories110m_l03_fwd_attn_s256": cut when buf is short. */
void model_program_name(const model_config *c, const model_program *p, char *buf, size_t n);
/* src NULL: every weight is a reference without bytes. */
an_status model_program_build(const model_config *c, const model_program *p, const model_source *src, graph **out,
                              diag *d) MUST_CHECK;
/* The same with every weight as an input, called as its constant would be: "wq", "w2_t", "embed_part1", without the
 * layer. */
an_status model_program_build_open(const model_config *c, const model_program *p, graph **out, diag *d) MUST_CHECK;

/* The tables; format is "text", "json" (one object per line) or "markdown". */
void model_kernels_print(strbuf *b, const char *format);
void model_presets_print(strbuf *b, const char *format);

/* ---- composites: ordinary builder calls on ordinary graphs ---- */

/* y = W x (+ b): 1x1 convolution, and an add since the engine's convolution takes no bias argument. */
val nn_linear(graph *g, val x, val w, val bias);
/* Over axis 1 (channels). gain and bias are [1, C, 1, 1]; NO_VAL leaves a bias out. The eps in force is the square of
 * sqrt(eps) rounded to the tensor's type, in fp32 eps so rounded: nn_eps says which. */
val nn_rmsnorm(graph *g, val x, val gain, double eps);
val nn_layernorm(graph *g, val x, val gain, val bias, double eps);
val nn_rmsnorm_bwd(graph *g, val dy, val x, val gain, double eps);   /* dx */
val nn_layernorm_bwd(graph *g, val dy, val x, val gain, double eps); /* dx */
double nn_eps(dtype dt, double eps);
val nn_silu(graph *g, val x);
val nn_gelu(graph *g, val x); /* tanh form */
val nn_gelu_bwd(graph *g, val dy, val x);
val nn_swiglu(graph *g, val h1, val h3); /* silu(h1) * h3 */
void nn_swiglu_bwd(graph *g, val dy, val h1, val h3, val *dh1, val *dh3);
void nn_geglu_bwd(graph *g, val dy, val h1, val h3, val *dh1, val *dh3); /* of gelu(h1) * h3 */
val nn_scale(graph *g, val x, double s); /* x itself when s is 1 */
val nn_softcap(graph *g, val x, double cap); /* cap * tanh(x / cap); x itself when cap is 0 */
val nn_softcap_bwd(graph *g, val dy, val x, double cap);

/* Rotary position: tables for positions 0 .. S-1, and the rotation of x [heads, HD, 1, S] by +angle or -angle. */
typedef struct {
    val cos, sin; /* [1, HD, 1, S] */
    /* [HD, HD, 1, 1]: the quarter turn of every pair, as a product; NO_VAL: pairs are taken apart, one sequence only */
    val turn;
    bool half;    /* without turn: pair i is channels i and i + HD/2, else 2i and 2i + 1 */
} nn_rope_tables;
nn_rope_tables nn_rope_make(graph *g, dtype dt, int64_t head_dim, int64_t seq, double theta, bool half);
/* step[i]: the angle by which pair i turns from one position to the next; scale: of the tables (attention
 * temperature). */
nn_rope_tables nn_rope_from(graph *g, dtype dt, int64_t head_dim, int64_t seq, const double *step, double scale,
                            bool half);
val nn_rope_turn(graph *g, dtype dt, int64_t head_dim, bool half);
val nn_rope(graph *g, val x, const nn_rope_tables *t, bool inverse);

/* Grouped heads. Queries [1, Q, 1, S] become [1, NKV, HD, G*S]: the G heads of a group stand side by side as further
 * positions, so one product per kv head serves them all, and the sum over a group's heads in the backward pass is the
 * product's own contraction. Keys and values become [1, NKV, HD, S]. */
typedef struct {
    int64_t n_heads, n_kv_heads, head_dim, seq;
    /* sequences side by side on the position axis, b*S + s; 0 means 1. Above, 1 then reads B and S reads B*S */
    int64_t batch;
    double query_dim, softcap; /* as the configuration has them; 0: the head width, none */
} nn_heads;
double nn_query_scale(const nn_heads *h); /* of queries, so that scores are right */
int64_t nn_positions(const nn_heads *h); /* B*S */
val nn_queries_in(graph *g, val x, const nn_heads *h);
val nn_queries_out(graph *g, val x, const nn_heads *h); /* back to [1, Q, 1, S] */
val nn_keys_in(graph *g, val x, const nn_heads *h);
val nn_keys_out(graph *g, val x, const nn_heads *h);
val nn_causal_mask(graph *g, dtype dt, int64_t seq); /* [1, 1, S, S]: 0, and -1e4 above the diagonal */
enum { NN_NEVER = -10000 }; /* a score added to it stays finite in fp16, and exp of it is 0 all the same */
/* and where a key is `window` or more positions back; 0: no window */
val nn_window_mask(graph *g, dtype dt, int64_t seq, int64_t window);
/* softmax(softcap(q^T k / sqrt(HD)) + mask): [1, NH, S, S]. q and k as nn_queries_in and nn_keys_in leave them. */
val nn_attn_probs(graph *g, val q, val k, val mask, const nn_heads *h);
val nn_queries_near(graph *g, val x, const nn_heads *h); /* as nn_queries_in, scaled */
/* the same of queries that are scaled */
val nn_attn_probs_near(graph *g, val near, val k, val mask, const nn_heads *h);
val nn_attn_mix(graph *g, val p, val v, const nn_heads *h); /* [1, Q, 1, S] */

/* Vocabulary-wide, with the logits in n parts [1, Vi, 1, S]. */
enum { NN_MAX_PARTS = 64 };
val nn_is_token(graph *g, val hi, val lo, int64_t first, int64_t n, const char *name); /* bool [1, n, 1, S]: one-hot */
val nn_log_sum_exp(graph *g, const val *logits, int n);                               /* [1, 1, 1, S] */
void nn_vocab_softmax(graph *g, const val *logits, int n, val *probs);
/* loss [1, 1, 1, S] in nats per position; dlogits = scale * (softmax - one_hot). */
val nn_cross_entropy(graph *g, const val *logits, int n, val hi, val lo, double scale, val *dlogits);

#endif
