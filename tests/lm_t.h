/* lm_t.h: small model files made by hand for the tests of src/lm: names and shapes are spelt out here, not taken
 * from its tables. */
#ifndef TESTS_LM_T_H
#define TESTS_LM_T_H

#include <dirent.h>
#include <unistd.h>

#include "format/safetensors.h"
#include "lm/lm.h"
#include "t.h"

typedef struct {
    const char *name;
    int rank;
    int64_t d[2];
} file_tensor;

/* Element i of a tensor: a number that tells tensor and place apart and that fp16 holds. */
static inline float mark(const char *name, int64_t i)
{
    return (float)((int)(hash_bytes(name, strlen(name), (uint64_t)i) % 2001) - 1000) / 1024.0f;
}

#define LLAMA_JSON "\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2," \
                   "\"vocab_size\":10,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\""
static const file_tensor llama_tensors[] = {
    { "model.embed_tokens.weight", 2, { 10, 8 } },
    { "model.layers.0.input_layernorm.weight", 1, { 8, 0 } },
    { "model.layers.0.self_attn.q_proj.weight", 2, { 8, 8 } },
    { "model.layers.0.self_attn.k_proj.weight", 2, { 4, 8 } },
    { "model.layers.0.self_attn.v_proj.weight", 2, { 4, 8 } },
    { "model.layers.0.self_attn.o_proj.weight", 2, { 8, 8 } },
    { "model.layers.0.post_attention_layernorm.weight", 1, { 8, 0 } },
    { "model.layers.0.mlp.gate_proj.weight", 2, { 12, 8 } },
    { "model.layers.0.mlp.up_proj.weight", 2, { 12, 8 } },
    { "model.layers.0.mlp.down_proj.weight", 2, { 8, 12 } },
    { "model.norm.weight", 1, { 8, 0 } },
    { "lm_head.weight", 2, { 10, 8 } },
    { NULL, 0, { 0, 0 } },
};

#define GPT2_JSON "\"model_type\":\"gpt2\",\"n_embd\":8,\"n_head\":2,\"n_layer\":1,\"n_positions\":16,\"vocab_size\":10,\"n_inner\":null," \
                  "\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-5"
static const file_tensor gpt2_tensors[] = {
    { "transformer.wte.weight", 2, { 10, 8 } },
    { "transformer.wpe.weight", 2, { 16, 8 } },
    { "transformer.h.0.ln_1.weight", 1, { 8, 0 } },
    { "transformer.h.0.ln_1.bias", 1, { 8, 0 } },
    { "transformer.h.0.attn.c_attn.weight", 2, { 8, 24 } },
    { "transformer.h.0.attn.c_attn.bias", 1, { 24, 0 } },
    { "transformer.h.0.attn.c_proj.weight", 2, { 8, 8 } },
    { "transformer.h.0.attn.c_proj.bias", 1, { 8, 0 } },
    { "transformer.h.0.ln_2.weight", 1, { 8, 0 } },
    { "transformer.h.0.ln_2.bias", 1, { 8, 0 } },
    { "transformer.h.0.mlp.c_fc.weight", 2, { 8, 32 } },
    { "transformer.h.0.mlp.c_fc.bias", 1, { 32, 0 } },
    { "transformer.h.0.mlp.c_proj.weight", 2, { 32, 8 } },
    { "transformer.h.0.mlp.c_proj.bias", 1, { 8, 0 } },
    { "transformer.ln_f.weight", 1, { 8, 0 } },
    { "transformer.ln_f.bias", 1, { 8, 0 } },
    { NULL, 0, { 0, 0 } },
};

/* Tensors of the list except `without`, plus `more` (may be NULL), all of dt, names without the prefix `strip`;
 * `longer` gets a row more than the list says. */
static inline void write_tensors(const char *path, const file_tensor *list, const char *strip, dtype dt,
                                 const char *without, const char *longer, const file_tensor *more)
{
    file_tensor all[48];
    size_t n = 0;
    diag d = { 0 };
    safetensors_out *w;
    for (; list->name; list++)
        if (!without || strcmp(list->name, without)) all[n++] = *list;
    if (more) all[n++] = *more;
    assert_ok(safetensors_create(path, &w, &d), d);
    for (size_t i = 0; i < n; i++) {
        file_tensor *t = &all[i];
        t->d[0] += longer && !strcmp(t->name, longer);
        const char *name = strip && !strncmp(t->name, strip, strlen(strip)) ? t->name + strlen(strip) : t->name;
        assert_ok(safetensors_declare(w, name, dt, t->rank, t->d, NULL, &d), d);
    }
    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < all[i].d[0] * (all[i].rank > 1 ? all[i].d[1] : 1); k++) {
            unsigned char x[8];
            dtype_store(dt, x, 0, (double)mark(all[i].name, k));
            assert_ok(safetensors_put(w, i, x, (size_t)dtype_bits(dt) / 8, &d), d);
        }
    assert_ok(safetensors_finish(w, &d), d);
}

/* ---- a scratch folder, two levels deep ---- */

static char scratch[] = "/tmp/anneal-lm-XXXXXX";
static inline char *in_scratch(const char *name) /* four at a time */
{
    static char path[4][300];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
    return path[turn];
}

static inline void empty_folder(const char *folder, int depth)
{
    DIR *p = opendir(folder);
    if (!p) return;
    for (struct dirent *e; (e = readdir(p));) {
        strbuf path = { 0 };
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        sb_printf(&path, "%s/%s", folder, e->d_name);
        if (unlink(path.at)) {
            if (depth) empty_folder(path.at, depth - 1);
            rmdir(path.at);
        }
        sb_free(&path);
    }
    closedir(p);
}

static inline int make_scratch(void **state)
{
    (void)state;
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int drop_scratch(void **state)
{
    (void)state;
    empty_folder(scratch, 1);
    return rmdir(scratch);
}

static inline void write_text(const char *path, const char *text)
{
    diag d = { 0 };
    assert_ok(file_write(path, text, strlen(text), &d), d);
}

/* All of a tensor as fp32; free it. */
static inline float *all_of(lm_model *m, model_weight_id id, int layer, lm_tensor *t)
{
    diag d = { 0 };
    assert_true(lm_tensor_info(m, id, layer, t));
    float *x = malloc((size_t)(t->rows * t->cols) * sizeof *x);
    assert_non_null(x);
    assert_ok(lm_rows(m, id, layer, 0, t->rows, DT_F32, x, &d), d);
    return x;
}

/* ---- models as other files ---- */

static inline lm_model *open_ok(const char *what)
{
    diag d = { 0 };
    lm_model *m;
    assert_ok(lm_open(what, &(lm_options){ .seed = 3 }, &m, &d), d);
    return m;
}

static inline lm_converted convert_ok(lm_model *m, const char *out, lm_target to, dtype dt, const char *quantize)
{
    diag d = { 0 };
    lm_converted done;
    assert_ok(
        lm_convert(m, out, &(lm_convert_options){ .to = to, .dt = dt, .quantize = quantize, .version = -1 }, &done, &d),
        d);
    assert_true(done.tensors > 0 && done.bytes_out > 0);
    return done;
}

static inline lm_converted via(const char *from, const char *out, lm_target to, dtype dt, const char *quantize)
{
    lm_model *m = open_ok(from);
    lm_converted done = convert_ok(m, out, to, dt, quantize);
    lm_close(m);
    return done;
}

#endif
