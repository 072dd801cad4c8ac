/* decoder.c: the whole decoder as one graph, for its uses; decoder.h says what goes in and out. In: a configuration.
 * Out: a verified graph. The layers are block.c's; here is what stands around them: ids to vectors, the cache, the
 * classifier and the loss.
 *
 * Positions of all sequences stand side by side on the width axis, so that every matrix sees one product over B*T
 * columns whatever B is; a convolution with a run-time weight is refused from batch 2 on by some chips.
 *
 * Ids. With integers as inputs a lookup is a gather. A chip has neither: an id comes as two digits, one comparison
 * with constant digits makes the one-hot matrix, and a product with the table picks the row. The vocabulary is then
 * cut into parts. */
#include <math.h>

#include "model/decoder.h"
#include "model/model_int.h"

typedef struct {
    kernel k;
    const decoder_options *o;
    decoder *out;
    int64_t positions; /* of a run, all sequences */
    int n_parts;
} maker;

static val reshape(graph *g, val x, const int64_t *d, int rank)
{
    return graph_op(g, OP_RESHAPE, VALS(x), (const attr[]){ AT_LIST(SHAPE, d, rank) }, 1);
}
#define RESHAPED(g, x, ...)                                                                                            \
    reshape((g), (x), ((const int64_t[]){ __VA_ARGS__ }),                                                              \
            (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)))

/* ---- rotary tables ---- */

void model_rope_channels(const model_config *c, int64_t i, int64_t *a, int64_t *b)
{
    bool half = c->rope == MODEL_ROPE_HALF;
    *a = half ? i : 2 * i, *b = half ? i + c->head_dim / 2 : 2 * i + 1;
}

void model_rope_run(double step, double scale, int64_t first, int64_t n, dtype dt, void *cos_to, void *sin_to)
{
    for (int64_t t = 0; t < n; t++) {
        dtype_store(dt, cos_to, t, scale * cos((double)(first + t) * step));
        dtype_store(dt, sin_to, t, scale * sin((double)(first + t) * step));
    }
}

/* ---- parameters ---- */

/* Every tensor of the model, in order. As inputs they are all made here, so that the program has them in this order. */
static void list_params(maker *m)
{
    graph *g = m->k.g;
    const model_config *c = m->k.c;
    size_t n = model_weights(c, NULL, 0);
    model_weight *w = TAKE(&g->mem, model_weight, n);
    val *v = TAKE(&g->mem, val, n);
    if (!w || !v) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return;
    }
    model_weights(c, w, n);
    for (size_t i = 0; i < n && m->o->param_inputs; i++) {
        m->k.layer = w[i].layer;
        v[i] = weight(&m->k, w[i].id);
    }
    m->out->weight = w, m->out->param = v, m->out->n_param = n;
}

static void find_params(maker *m)
{
    for (size_t i = 0; i < m->out->n_param && !m->o->param_inputs && !m->k.g->err.st; i++) {
        const model_weight *w = &m->out->weight[i];
        char name[40];
        if (w->layer >= 0) snprintf(name, sizeof name, "l%02d_%s", w->layer, weight_name(w->id));
        else snprintf(name, sizeof name, "%s", weight_name(w->id));
        m->out->param[i] = graph_find(m->k.g, name);
    }
}

/* Rows of the embedding or the classifier that belong to one part of the vocabulary: [n, D, 1, 1]. */
static val vocab_rows(maker *m, model_weight_id id, int part, int64_t *first, int64_t *n)
{
    const model_config *c = m->k.c;
    *first = 0, *n = c->vocab;
    if (m->n_parts == 1) return weight(&m->k, id);
    *n = model_vocab_part(c, part, first);
    if (!m->o->param_inputs) return vocab_weight(&m->k, id, part, false);
    return GA(m->k.g, SLICE_BY_SIZE, VALS(weight(&m->k, id)), AT_IS(BEGIN, *first, 0, 0, 0),
              AT_IS(SIZE, *n, c->dim, 1, 1));
}

static val classifier_rows(maker *m, int part, int64_t *first, int64_t *n)
{
    return vocab_rows(m, m->k.c->tied ? MW_EMBED : MW_HEAD, part, first, n);
}

/* ---- ids ---- */

/* What names a token: with integers, the id in fp32, exact to 2^24; else its digits. [1, 1, 1, B*T] */
typedef struct {
    val id, hi, lo, raw;
} token;

static token token_input(maker *m, const char *whole, const char *digits)
{
    graph *g = m->k.g;
    const nn_heads *h = &m->k.heads;
    token t = { 0 };
    if (!m->o->chip) {
        t.raw = graph_input(g, whole, TTYPE(DT_I32, MAX(h->batch, 1), h->seq));
        t.id = GA(g, CAST, VALS(RESHAPED(g, t.raw, 1, 1, 1, m->positions)), AT_S(DTYPE, "fp32"));
        return t;
    }
    char name[16];
    snprintf(name, sizeof name, "%s_hi", digits);
    t.hi = graph_input(g, name, TTYPE(m->k.c->dt, 1, 1, 1, m->positions));
    snprintf(name, sizeof name, "%s_lo", digits);
    t.lo = graph_input(g, name, TTYPE(m->k.c->dt, 1, 1, 1, m->positions));
    return t;
}

/* bool [1, n, 1, B*T]: token s is first + i. */
static val is_token(maker *m, const token *t, int64_t first, int64_t n, const char *name)
{
    graph *g = m->k.g;
    if (m->o->chip) return nn_is_token(g, t->hi, t->lo, first, n, name);
    val there = g->err.st ? NO_VAL : graph_find(g, "ids");
    if (!there.i && !g->err.st) {
        ttype type = TTYPE(DT_F32, 1, n, 1, 1);
        float *x = TAKE(&g->mem, float, (size_t)n);
        if (!x) graph_fail(g, AN_NOMEM, "out of memory");
        for (int64_t i = 0; x && i < n; i++) x[i] = (float)(first + i);
        there = x ? graph_const_view(g, "ids", type, x) : NO_VAL;
    }
    return G(g, EQUAL, t->id, there);
}

static val embed(maker *m, const token *t)
{
    graph *g = m->k.g;
    const model_config *c = m->k.c;
    int64_t D = c->dim, S = m->positions, first, n;
    double scale = c->embed_scale != 0 ? c->embed_scale : 1;
    if (!m->o->chip) {
        val rows = GA(g, GATHER, VALS(weight(&m->k, MW_EMBED), RESHAPED(g, t->raw, S)), AT_I(AXIS, 0));
        return nn_scale(g, RESHAPED(g, GA(g, TRANSPOSE, VALS(RESHAPED(g, rows, S, D)), AT_IS(PERM, 1, 0)), 1, D, 1, S),
                        scale);
    }
    val x = NO_VAL, one = graph_scalar(g, c->dt, 1), zero = graph_scalar(g, c->dt, 0);
    for (int i = 0; i < m->n_parts && !g->err.st; i++) {
        char name[24];
        snprintf(name, sizeof name, "in%d", i);
        val rows = vocab_rows(m, MW_EMBED, i, &first, &n);
        val hot = G(g, SELECT, is_token(m, t, first, n, name), one, zero);
        val y =
            GA(g, MATMUL, VALS(RESHAPED(g, rows, 1, 1, n, D), RESHAPED(g, hot, 1, 1, n, S)), AT_B(TRANSPOSE_X, true));
        x = i ? G(g, ADD, x, y) : y; /* one term is not zero: exact */
    }
    return nn_scale(g, RESHAPED(g, x, 1, D, 1, S), scale);
}

/* Learned positions are the same for every sequence: [1, D, B, T] plus [1, D, 1, T]. */
static val add_positions(maker *m, val x)
{
    graph *g = m->k.g;
    const model_config *c = m->k.c;
    const nn_heads *h = &m->k.heads;
    if (!weight_exists(c, MW_POS)) return x;
    val rows =
        GA(g, SLICE_BY_SIZE, VALS(weight(&m->k, MW_POS)), AT_IS(BEGIN, 0, 0, 0, 0), AT_IS(SIZE, h->seq, c->dim, 1, 1));
    val at =
        RESHAPED(g, GA(g, TRANSPOSE, VALS(RESHAPED(g, rows, h->seq, c->dim)), AT_IS(PERM, 1, 0)), 1, c->dim, 1, h->seq);
    val y = G(g, ADD, RESHAPED(g, x, 1, c->dim, MAX(h->batch, 1), h->seq), at);
    return RESHAPED(g, y, 1, c->dim, 1, m->positions);
}

/* ---- head ---- */

static void classify(maker *m, val x)
{
    m->k.layer = -1;
    val xn = block_norm(&m->k, x, MW_NORM_F, MW_NORM_F_B);
    m->out->n_logits = m->n_parts;
    for (int i = 0; i < m->n_parts; i++) {
        int64_t first, n;
        m->out->logits[i] =
            nn_softcap(m->k.g, nn_linear(m->k.g, xn, classifier_rows(m, i, &first, &n), NO_VAL), m->k.c->softcap);
    }
}

static val mean_loss(maker *m, const token *target)
{
    graph *g = m->k.g;
    val zero = graph_scalar(g, m->k.c->dt, 0), mine = NO_VAL;
    int64_t first = 0;
    bool named = target->raw.i && m->n_parts == 1;
    if (named)
        mine = GA(g, GATHER_ALONG_AXIS, VALS(m->out->logits[0], RESHAPED(g, target->raw, 1, 1, 1, m->positions)),
                  AT_I(AXIS, 1));
    for (int i = 0; i < m->n_parts && !named && !g->err.st; i++) {
        int64_t n = graph_type(g, m->out->logits[i])->sh.d[1];
        char name[24];
        snprintf(name, sizeof name, "out%d", i);
        val hit = is_token(m, target, first, n, name);
        val part =
            GA(g, REDUCE_SUM, VALS(G(g, SELECT, hit, m->out->logits[i], zero)), AT_IS(AXES, 1), AT_B(KEEP_DIMS, true));
        mine = i ? G(g, ADD, mine, part) : part; /* one term of the sum is not zero: exact */
        first += n;
    }
    val each = G(g, SUB, nn_log_sum_exp(g, m->out->logits, m->n_parts), mine);
    return GA(g, REDUCE_MEAN, VALS(each), AT_IS(AXES, 3), AT_B(KEEP_DIMS, true));
}

/* ---- training ---- */

static void build_train(maker *m)
{
    graph *g = m->k.g;
    const model_config *c = m->k.c;
    token in = token_input(m, "tokens", "tok"), target = token_input(m, "targets", "tgt");
    list_params(m);
    if (c->rope != MODEL_ROPE_NONE) m->k.rope = block_rope(&m->k);
    if (c->window <= 0 || c->window_every > 1) m->k.mask = nn_window_mask(g, c->dt, m->k.heads.seq, 0);
    if (c->window > 0) m->k.near = nn_window_mask(g, c->dt, m->k.heads.seq, c->window);
    m->k.layer = -1;
    val x = add_positions(m, embed(m, &in)), *entry = g->err.st ? NULL : TAKE(&g->mem, val, (size_t)c->n_layers + 1);
    if (!g->err.st && !entry) graph_fail(g, AN_NOMEM, "out of memory");
    for (int i = 0; i < c->n_layers && !g->err.st; i++) {
        entry[i] = x;
        m->k.layer = i;
        qkv p = block_qkv(&m->k, x, true);
        x = block_residual(&m->k, x, nn_linear(g, block_attend(&m->k, &p), weight(&m->k, MW_WO), weight(&m->k, MW_BO)),
                           MW_POST1);
        x = block_ffn(&m->k, x).y;
    }
    classify(m, x);
    m->out->loss = mean_loss(m, &target);
    if (g->err.st) return;
    entry[c->n_layers] = x;
    m->out->layer_in = entry;
    graph_rename(g, m->out->loss, "loss");
    graph_output(g, "loss", m->out->loss);
    find_params(m);
}

/* ---- steps over a cache ---- */

/* Keys hidden from a token: those after it and, with a window, those too far back. */
static bool hidden(const model_config *c, int64_t key, int64_t pos)
{
    return key > pos || (c->window > 0 && key <= pos - c->window);
}

void decoder_mask(const model_config *c, const int32_t *pos, int64_t T, int64_t C, dtype dt, void *to)
{
    for (int64_t t = 0; t < T; t++)
        for (int64_t k = 0; k < C; k++) dtype_store(dt, to, t * C + k, hidden(c, k, pos[t]) ? NN_NEVER : 0);
}

void decoder_place(const int32_t *pos, int64_t T, int64_t C, dtype dt, void *to)
{
    for (int64_t k = 0; k < C; k++)
        for (int64_t t = 0; t < T; t++) dtype_store(dt, to, k * T + t, k == pos[t]);
}

enum { MOST_ALONE = 8 }; /* positions of a step whose every logit is asked for: drafts of a text */

typedef struct {
    val pos;   /* int32 [T] */
    val key;   /* int32 [1, 1, 1, C]: 0, 1, ... */
    val mask;  /* [1, 1, T, C]: of layers without a window */
    val near;  /* and of those with one */
    val place; /* [1, 1, C, T]; chip */
    val keep;  /* [1, 1, C, 1]: 1 where nothing is stored; chip */
    int64_t C;
} cache_in;

/* The mask as a comparison of key numbers with positions: a device that can compare reads only the keys a token
 * sees. */
static void make_masks(maker *m, cache_in *in, int64_t T)
{
    graph *g = m->k.g;
    const model_config *c = m->k.c;
    /* bf16 would round NN_NEVER up, to where a device may take it for a number */
    val row = RESHAPED(g, in->pos, 1, 1, T, 1),
        never = graph_scalar(g, c->dt, c->dt == DT_BF16 ? NN_NEVER * 1.024 : NN_NEVER);
    in->mask = in->near = G(g, SELECT, G(g, GREATER, in->key, row), never, graph_scalar(g, c->dt, 0));
    if (c->window > 0)
        in->near = G(g, SELECT, G(g, LESS_EQUAL, in->key, G(g, SUB, row, graph_scalar(g, DT_I32, (double)c->window))),
                     never, in->mask);
}

static val key_numbers(maker *m, int64_t C)
{
    graph *g = m->k.g;
    int32_t *n = g->err.st ? NULL : TAKE(&g->mem, int32_t, (size_t)C);
    if (!n) {
        graph_fail(g, AN_NOMEM, "out of memory");
        return NO_VAL;
    }
    for (int64_t i = 0; i < C; i++) n[i] = (int32_t)i;
    return graph_const_view(g, "key", TTYPE(DT_I32, 1, 1, 1, C), n);
}

static cache_in cache_inputs(maker *m)
{
    graph *g = m->k.g;
    const model_config *c = m->k.c;
    int64_t T = m->k.heads.seq;
    cache_in in = { .C = m->o->cache ? m->o->cache : c->context };
    if (!m->o->chip) {
        in.pos = graph_input(g, "pos", TTYPE(DT_I32, T));
        in.key = key_numbers(m, in.C);
        make_masks(m, &in, T);
        return in;
    }
    in.mask = in.near = graph_input(g, "mask", TTYPE(c->dt, 1, 1, T, in.C)); /* check_step: all layers see the same */
    in.place = graph_input(g, "place", TTYPE(c->dt, 1, 1, in.C, T));
    val taken = GA(g, REDUCE_SUM, VALS(in.place), AT_IS(AXES, 3), AT_B(KEEP_DIMS, true));
    in.keep = G(g, SUB, graph_scalar(g, c->dt, 1), taken);
    return in;
}

/* [1, NKV, C, HD] with row t where place says. */
static val spread_rows(maker *m, val place, val rows)
{
    graph *g = m->k.g;
    const nn_heads *h = &m->k.heads;
    if (h->seq == 1) return G(g, MUL, place, rows);
    /* every stack its own matrix: a product does not stretch its operands */
    val each = GA(g, TILE, VALS(place), AT_IS(REPS, 1, h->n_kv_heads, 1, 1));
    return G(g, MATMUL, each, rows);
}

/* The cache with this run's rows in it. x is [1, NKV*HD, 1, T]. On a chip it is the masked update: old where nothing
 * is stored, else the one row that is (a product with one 1 per stored row is exact). */
static val store_rows(maker *m, const cache_in *in, val x, char which)
{
    graph *g = m->k.g;
    const nn_heads *h = &m->k.heads;
    char name[24];
    snprintf(name, sizeof name, "%c%02d", which, m->k.layer);
    val old = graph_input(g, name, TTYPE(m->k.c->dt, 1, h->n_kv_heads, in->C, h->head_dim));
    val rows = GA(g, TRANSPOSE, VALS(RESHAPED(g, x, 1, h->n_kv_heads, h->head_dim, h->seq)), AT_IS(PERM, 0, 1, 3, 2)),
        y;
    if (!m->o->chip) y = GA(g, SCATTER, VALS(old, in->pos, rows), AT_I(AXIS, 2), AT_S(MODE, "update"));
    else y = G(g, ADD, G(g, MUL, old, in->keep), spread_rows(m, in->place, rows));
    if (g->err.st) return NO_VAL;
    snprintf(name, sizeof name, "%c%02d_new", which, m->k.layer);
    graph_rename(g, y, name);
    graph_output(g, name, y);
    return y;
}

/* q [1, Q, 1, T] against the cache, mask [1, 1, T, C]: [1, Q, 1, T]. */
static val attend_rows(maker *m, const cache_in *in, const nn_heads *h, val q, val k, val v, val mask)
{
    graph *g = m->k.g;
    int64_t tall = h->n_heads / h->n_kv_heads * h->seq;
    val near = nn_scale(g, nn_queries_in(g, q, h), nn_query_scale(h)); /* [1, NKV, HD, G*T] */
    val scores = GA(g, MATMUL, VALS(near, k), AT_B(TRANSPOSE_X, true), AT_B(TRANSPOSE_Y, true));
    val capped = nn_softcap(g, RESHAPED(g, scores, 1, h->n_heads, h->seq, in->C), h->softcap);
    val p = GA(g, SOFTMAX, VALS(G(g, ADD, capped, mask)), AT_I(AXIS, -1));
    p = RESHAPED(g, p, 1, h->n_kv_heads, tall, in->C);
    return nn_queries_out(g, GA(g, MATMUL, VALS(v, p), AT_B(TRANSPOSE_X, true), AT_B(TRANSPOSE_Y, true)), h);
}

/* Attention that a device has as one instruction takes its queries one by one anyway. With a soft cap it is
 * products, which may sum in another order for more of them: positions on their own are then attended apart. */
static val attend_cache(maker *m, const cache_in *in, val q, val k, val v)
{
    graph *g = m->k.g;
    const nn_heads *h = &m->k.heads;
    val mask = model_window(m->k.c, m->k.layer) ? in->near : in->mask, y[MOST_ALONE];
    if (!m->k.alone || h->softcap == 0) return attend_rows(m, in, h, q, k, v, mask);
    nn_heads one = *h;
    one.seq = 1;
    for (int64_t t = 0; t < h->seq; t++) {
        val qt =
            GA(g, SLICE_BY_SIZE, VALS(q), AT_IS(BEGIN, 0, 0, 0, t), AT_IS(SIZE, 1, h->n_heads * h->head_dim, 1, 1));
        val mt = GA(g, SLICE_BY_SIZE, VALS(mask), AT_IS(BEGIN, 0, 0, t, 0), AT_IS(SIZE, 1, 1, 1, in->C));
        y[t] = attend_rows(m, in, &one, qt, k, v, mt);
    }
    return graph_op(g, OP_CONCAT, y, (int)h->seq, &AT_I(AXIS, 3), 1);
}

/* The column of x [1, D, 1, T] that pick names. On a chip it is a product with one 1 in it: exact. */
static val picked(maker *m, val x, val pick)
{
    graph *g = m->k.g;
    if (!m->o->chip) return GA(g, GATHER, VALS(x, pick), AT_I(AXIS, 3));
    if (g->err.st) return NO_VAL;
    const int64_t D = graph_type(g, x)->sh.d[1];
    return RESHAPED(g, G(g, MATMUL, RESHAPED(g, x, 1, 1, D, m->k.heads.seq), pick), 1, D, 1, 1);
}

/* The last layer for one token of many: all leave their keys and values, but behind those only that one's logits are
 * asked for. */
static val last_layer(maker *m, const cache_in *in, val x, val pick)
{
    graph *g = m->k.g;
    kernel one = m->k;
    cache_in mine = *in;
    qkv p = block_kv(&m->k, x);
    val k = store_rows(m, in, p.k, 'k'), v = store_rows(m, in, p.v, 'v');
    one.heads.seq = 1;
    if (one.rope.cos.i) one.rope.cos = picked(m, one.rope.cos, pick), one.rope.sin = picked(m, one.rope.sin, pick);
    mine.pos = GA(g, GATHER, VALS(in->pos, pick), AT_I(AXIS, 0));
    make_masks(m, &mine, 1);
    val q = block_q(&one, picked(m, p.xn, pick)), mask = model_window(one.c, one.layer) ? mine.near : mine.mask;
    val y = attend_rows(m, &mine, &one.heads, q, k, v, mask);
    x = block_residual(&one, picked(m, x, pick), nn_linear(g, y, weight(&one, MW_WO), weight(&one, MW_BO)), MW_POST1);
    return block_ffn(&one, x).y;
}

static void build_step(maker *m)
{
    graph *g = m->k.g;
    const model_config *c = m->k.c;
    int64_t T = m->k.heads.seq;
    int layer0 = m->o->layer0, layer1 = m->o->layer1 ? m->o->layer1 : (int)c->n_layers;
    const bool head = layer1 == c->n_layers, one = head && m->o->last_only && T > 1;
    val x = graph_input(g, "x", TTYPE(c->dt, 1, c->dim, 1, T));
    if (c->rope != MODEL_ROPE_NONE) {
        ttype table = TTYPE(c->dt, 1, c->head_dim, 1, T);
        m->k.rope.cos = graph_input(g, "rope_cos", table), m->k.rope.sin = graph_input(g, "rope_sin", table);
        m->k.rope.half = c->rope == MODEL_ROPE_HALF;
        if (m->o->chip) m->k.rope.turn = nn_rope_turn(g, c->dt, c->head_dim, m->k.rope.half);
    }
    cache_in in = cache_inputs(m);
    val pick = !one         ? NO_VAL
               : m->o->chip ? graph_input(g, "pick", TTYPE(c->dt, 1, 1, T, 1))
                            : graph_input(g, "pick", TTYPE(DT_I32, 1));
    for (int i = layer0; i < layer1 && !g->err.st; i++) {
        m->k.layer = i;
        if (one && !m->o->chip && i + 1 == c->n_layers) {
            x = last_layer(m, &in, x, pick);
            break;
        }
        qkv p = block_qkv(&m->k, x, true);
        val k = store_rows(m, &in, p.k, 'k'), v = store_rows(m, &in, p.v, 'v');
        x = block_residual(&m->k, x,
                           nn_linear(g, attend_cache(m, &in, p.q, k, v), weight(&m->k, MW_WO), weight(&m->k, MW_BO)),
                           MW_POST1);
        x = block_ffn(&m->k, x).y;
    }
    if (!head) {
        graph_rename(g, x, "y");
        graph_output(g, "y", x);
        return;
    }
    if (one && m->o->chip) x = picked(m, x, pick);
    classify(m, x);
    for (int i = 0; i < m->n_parts && !g->err.st; i++) {
        char name[24] = "logits";
        if (m->o->chip) snprintf(name, sizeof name, "logits%d", i);
        graph_rename(g, m->out->logits[i], name);
        graph_output(g, name, m->out->logits[i]);
    }
}

/* ---- building ---- */

static an_status check_step(const model_config *c, const decoder_options *o, diag *d)
{
    int64_t C = o->cache ? o->cache : c->context;
    if (o->batch > 1)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: a step has one sequence, not %lld", c->name, (long long)o->batch);
    if (C < c->seq || C > INT32_MAX)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: a cache of %lld positions for steps of %lld", c->name, (long long)C,
                         (long long)c->seq);
    if (o->layer0 < 0 || o->layer1 < 0 || (o->layer1 ? o->layer1 : c->n_layers) <= o->layer0 || o->layer1 > c->n_layers)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: layers %d to %d of %lld", c->name, o->layer0, o->layer1,
                         (long long)c->n_layers);
    if (o->chip && c->window_every > 1 && C > c->window)
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "%s: a window of %lld on layers 0, %lld, … alone: a chip has one mask for all layers, so the context may be %lld there, not %lld",
            c->name, (long long)c->window, (long long)c->window_every, (long long)c->window, (long long)C);
    return AN_OK;
}

/* Is each position computed on its own? Steps that answer for every position are: drafts must not change a text. So
 * is a step of one position where norms stand behind products: they would take sums before these are rounded, which
 * positions on their own cannot. */
static bool positions_alone(const model_config *c, const decoder_options *o)
{
    return o->use == DECODER_STEP && !o->chip && (o->last_only ? c->seq == 1 && c->post_norm : c->seq <= MOST_ALONE);
}

an_status decoder_build(const model_config *config, const decoder_options *o, const model_source *src, decoder *out,
                        diag *d)
{
    *out = (decoder){ 0 };
    model_config c = *config;
    if (o->seq) c.seq = o->seq;
    if (!c.dt) c.dt = DT_F16;
    if (c.alpha == 0) c.alpha = 1;
    if (c.loss_scale == 0) c.loss_scale = 1;
    c.host_residual = false; /* there is no host between the halves */
    TRY(model_config_check(&c, d));
    if (o->batch < 0 || o->batch > 65536)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s: batch is %lld, wanted 1 to 65536", c.name, (long long)o->batch);
    if (o->use == DECODER_STEP) TRY(check_step(&c, o, d));
    char title[96];
    const char *name = c.name[0] ? c.name : "model";
    if (o->use == DECODER_TRAIN)
        snprintf(title, sizeof title, "%.31s_train_b%lld_s%lld", name, (long long)MAX(o->batch, 1), (long long)c.seq);
    else
        snprintf(title, sizeof title, "%.31s_step_s%lld_c%lld_l%d", name, (long long)c.seq,
                 (long long)(o->cache ? o->cache : c.context), o->layer0);
    maker m = { .o = o, .out = out, .n_parts = o->chip ? model_vocab_parts(&c) : 1,
                .k = { .c = &c, .src = src, .layer = -1, .whole = true, .param_inputs = o->param_inputs,
                       .one_gelu = o->use == DECODER_STEP && !o->chip, .alone = positions_alone(&c, o),
                       .heads = { .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim,
                                  .seq = c.seq, .batch = o->batch, .query_dim = c.query_dim,
                                  .softcap = c.attn_softcap } } };
    m.positions = nn_positions(&m.k.heads);
    if (!(m.k.g = out->g = graph_new(title, 0))) return diag_nomem(d);
    if (o->use == DECODER_TRAIN) build_train(&m);
    else build_step(&m);
    an_status st = graph_finish(m.k.g, d);
    if (st) {
        graph_free(out->g);
        *out = (decoder){ 0 };
    }
    return st;
}
