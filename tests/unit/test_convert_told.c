/* What a conversion tells beside the file it writes: types that three parts of one tensor share, sizes, and what is
 * not kept. */
#include <math.h>
#include <stdlib.h>

#include "format/llama2c.h"
#include "format/npy.h"
#include "lm/generate.h"
#include "lm_t.h"

#define GPT2                                                                                                           \
    "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_head\":4,\"n_layer\":1,\"n_positions\":16,\"vocab_size\":48,\"eos_token_id\":2}"

/* Queries, keys and values of a folder of arrays, each with a type of its own. */
static void put_part(model_weight_id id, const char *file, dtype dt, lm_model *m)
{
    diag d = { 0 };
    lm_tensor t;
    float *x = all_of(m, id, 0, &t);
    unsigned char *y = malloc((size_t)(t.rows * t.cols) * 4);
    assert_non_null(y);
    for (int64_t i = 0; i < t.rows * t.cols; i++) dtype_store(dt, y, i, (double)x[i]);
    assert_ok(npy_write(in_scratch(file), dt, (const int64_t[]){ t.rows, t.cols }, t.cols > 1 ? 2 : 1, y, &d), d);
    free(x), free(y);
}

static void same_weights(lm_model *a, lm_model *b)
{
    for (int id = 0; id < MW_COUNT; id++)
        for (int l = -1; l < 1; l++) {
            lm_tensor t;
            if (!lm_tensor_info(a, (model_weight_id)id, l, &t)) continue;
            float *x = all_of(a, (model_weight_id)id, l, &t), *y = all_of(b, (model_weight_id)id, l, &t);
            if (memcmp(x, y, (size_t)(t.rows * t.cols) * sizeof *x))
                fail_msg("weight %d of layer %d is not as it was", id, l);
            free(x), free(y);
        }
}

/* GPT-2's files have them as one tensor: it gets a type that holds all three, and nothing is rounded without a word. */
static void parts_of_other_types(void **state)
{
    (void)state;
    static const struct { dtype q, k; lm_target to; const char *out; } rows[] = {
        { DT_F16, DT_F32, LM_TO_GGUF, "m.gguf" },  { DT_F32, DT_F16, LM_TO_GGUF, "m.gguf" },  { DT_F16, DT_F32, LM_TO_HF, "hf" },
        { DT_F32, DT_F16, LM_TO_HF, "hf" },        { DT_F16, DT_F32, LM_TO_SAFETENSORS, "m.safetensors" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        empty_folder(scratch, 1);
        write_text(in_scratch("seed.json"), GPT2);
        via(in_scratch("seed.json"), in_scratch("npy"), LM_TO_NPY, 0, NULL);
        lm_model *m = open_ok(in_scratch("seed.json"));
        put_part(MW_WQ, "npy/layer0.wq.npy", rows[i].q, m), put_part(MW_WK, "npy/layer0.wk.npy", rows[i].k, m);
        put_part(MW_BQ, "npy/layer0.bq.npy", rows[i].q, m), put_part(MW_BK, "npy/layer0.bk.npy", rows[i].k, m);
        lm_close(m);
        lm_converted done = via(in_scratch("npy"), in_scratch(rows[i].out), rows[i].to, 0, NULL);
        assert_true(done.worst == 0);
        lm_model *a = open_ok(in_scratch("npy")), *b = open_ok(in_scratch(rows[i].out));
        lm_tensor t;
        assert_true(lm_tensor_info(b, MW_WV, 0, &t));
        assert_string_equal(t.type, "F32");
        same_weights(a, b);
        lm_close(a), lm_close(b);
        /* blocks and codes are the same for all three */
        via(in_scratch("npy"), in_scratch("q.gguf"), LM_TO_GGUF, 0, "q8_0");
        via(in_scratch("npy"), in_scratch("q.safetensors"), LM_TO_SAFETENSORS, 0, "int8");
    }
}

/* Every number of the file once, thirds of a fused tensor and scales too. */
static void sizes(void **state)
{
    (void)state;
    enum { V = 48, D = 32, C = 16, F = 4 * D,
           NUMBERS = V * D + C * D + 3 * D * D + 3 * D + D * D + D + 2 * D * F + F + D + 6 * D,
           MATRIX = V * D + 4 * D * D + 2 * D * F };
    empty_folder(scratch, 1);
    write_text(in_scratch("seed.json"), GPT2);
    via(in_scratch("seed.json"), in_scratch("hf"), LM_TO_HF, DT_F16, NULL);
    lm_converted done = via(in_scratch("hf"), in_scratch("m.gguf"), LM_TO_GGUF, 0, NULL);
    assert_int_equal(done.bytes_in, 2 * NUMBERS);
    done = via(in_scratch("m.gguf"), in_scratch("codes.safetensors"), LM_TO_SAFETENSORS, 0, "int8");
    /* matrices of fp16; positions too; vectors stand as fp32 in a GGUF file */
    assert_int_equal(done.bytes_in, 2 * (MATRIX + C * D) + 4 * (NUMBERS - MATRIX - C * D));
    assert_int_equal(done.tensors, 20);
    done = via(in_scratch("codes.safetensors"), in_scratch("hf2"), LM_TO_HF, 0, NULL);
    /* a byte for each number of a matrix, and for each row a scale of two */
    assert_int_equal(done.bytes_in, MATRIX + 2 * (V + 4 * D + F + D) + 2 * C * D + 4 * (NUMBERS - MATRIX - C * D));
    done = via(in_scratch("hf"), in_scratch("table.safetensors"), LM_TO_SAFETENSORS, 0, "palette4");
    done = via(in_scratch("table.safetensors"), in_scratch("hf3"), LM_TO_HF, 0, NULL);
    assert_int_equal(done.bytes_in, MATRIX / 2 + 7 * 16 * 2 + 2 * C * D + 2 * (NUMBERS - MATRIX - C * D));
}

/* How the model asks to be sampled goes along where the target can say it, and is told where it cannot. */
static void how_text_is_made(void **state)
{
    (void)state;
    static const struct { lm_target to; const char *out, *lost[2]; } rows[] = {
        { LM_TO_HF, "hf2", { NULL, NULL } },
        { LM_TO_NPY, "npy", { NULL, NULL } },
        { LM_TO_SAFETENSORS, "m.safetensors", { NULL, NULL } },
        { LM_TO_GGUF, "m.gguf", { "a GGUF file cannot say how the model asks to be sampled", NULL } },
        { LM_TO_LLAMA2C, "m.bin", { "a llama2.c file cannot say how the model asks to be sampled", "token 1 begins a text and token 2 ends it" } },
    };
    static const struct { const char *ids, *said; bool sampled, other_ids; } models[] = {
        { "\"bos_token_id\":1,\"eos_token_id\":2", "{}", false, false },
        /* for sampling, which is not asked for */
        { "\"bos_token_id\":null", "{\"temperature\":0.5,\"repetition_penalty\":1}", false, false },
        { "\"bos_token_id\":7,\"eos_token_id\":2", "{}", false, true },
        /* as many as GGUF has names for; 0 is an id */
        { "\"bos_token_id\":0,\"eos_token_id\":[2,0,6]", "{}", false, true },
        { "\"bos_token_id\":1,\"eos_token_id\":3", "{\"do_sample\":true,\"top_k\":40,\"min_p\":0.125}", true, true },
        /* old files have it in config.json */
        { "\"bos_token_id\":1,\"eos_token_id\":[2,5],\"do_sample\":true,\"temperature\":0.75", "{\"top_p\":0.875}", true, true },
        { "\"bos_token_id\":1", "{\"repetition_penalty\":1.25}", true, false },
    };
    for (size_t k = 0; k < COUNT(models); k++) {
        char json[700];
        empty_folder(scratch, 1);
        snprintf(json, sizeof json, "{\"model_type\":\"llama\"," LLAMA_JSON ",%s}", models[k].ids);
        diag d = { 0 };
        assert_ok(dir_make(in_scratch("hf"), &d), d);
        write_text(in_scratch("hf/config.json"), json);
        write_text(in_scratch("hf/generation_config.json"), models[k].said);
        write_tensors(in_scratch("hf/model.safetensors"), llama_tensors, NULL, DT_F32, NULL, NULL, NULL);
        lm_model *m = open_ok(in_scratch("hf"));
        const lm_generation *g = lm_generation_of(m);
        for (size_t i = 0; i < COUNT(rows); i++) {
            lm_converted done = convert_ok(m, in_scratch(rows[i].out), rows[i].to, 0, NULL);
            bool want[2] = { rows[i].lost[0] && models[k].sampled, rows[i].lost[1] && models[k].other_ids };
            for (int j = 0; j < 2; j++)
                if (rows[i].lost[j] && want[j] != !!strstr(done.lost, rows[i].lost[j]))
                    fail_msg("model %zu as %s: \"%s\"", k, rows[i].out, done.lost);
            if (!want[0] && !want[1] && done.lost[0]) fail_msg("model %zu as %s: \"%s\"", k, rows[i].out, done.lost);
            lm_model *a = open_ok(in_scratch(rows[i].out));
            const lm_generation *h = lm_generation_of(a);
            lm_sampling x = lm_suggested(g), y = lm_suggested(h);
            if (rows[i].to == LM_TO_LLAMA2C) assert_true(h->bos == 1 && h->n_eos == 1 && h->eos[0] == 2);
            else
                assert_true(h->bos == g->bos && h->n_eos == g->n_eos &&
                            !memcmp(h->eos, g->eos, (size_t)g->n_eos * sizeof *g->eos));
            if (!want[0])
                assert_true(x.temperature == y.temperature && x.top_k == y.top_k && x.top_p == y.top_p &&
                            x.min_p == y.min_p && (x.repetition == y.repetition || y.repetition == 0));
            lm_close(a);
        }
        lm_close(m);
    }
}

/* Padding behind the end of the vocabulary: files of folders have it, and a GGUF file that named it would not open
 * with its vocabulary. */
static void padding_past_the_end(void **state)
{
    (void)state;
    diag d = { 0 };
    strbuf json = { 0 };
    tokenizer *t, *u;
    static const char *const ids[] = { "269", "270", "4294967297" };
    assert_ok(tok_train("the cat and the hat and the bat", 31, &(tok_train_options){ .vocab = 260 }, &json, &d), d);
    assert_ok(tok_from_json("test", json.at, json.n, &t, &d), d);
    sb_free(&json);
    for (size_t i = 0; i < COUNT(ids); i++) {
        char text[500];
        lm_converted done;
        empty_folder(scratch, 1);
        snprintf(
            text, sizeof text,
            "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":270,"
            "\"max_position_embeddings\":64,\"pad_token_id\":%s}",
            ids[i]);
        write_text(in_scratch("seed.json"), text);
        lm_model *m = open_ok(in_scratch("seed.json")), *g;
        assert_ok(lm_convert(m, in_scratch("m.gguf"),
                             &(lm_convert_options){ .to = LM_TO_GGUF, .version = -1, .vocab = t }, &done, &d),
                  d);
        assert_true(done.vocabulary && (i == 0) == !done.lost[0]);
        if (i) assert_true(strstr(done.lost, ids[i]) && strstr(done.lost, "padding"));
        g = open_ok(in_scratch("m.gguf"));
        assert_int_equal(lm_generation_of(g)->pad, i ? -1 : 269);
        assert_ok(lm_tokenizer_of(g, &u, &d), d);
        tok_close(u);
        lm_close(m), lm_close(g);
    }
    tok_close(t);
}

/* What a vocabulary says about a text's ends goes along, yes or no, into a GGUF file and into a folder. */
static void flags_of_a_vocabulary(void **state)
{
    (void)state;
    enum { N = 262 };
    static char name[256][8];
    tok_str token[N] = { { "<unk>", 5 }, { "<s>", 3 }, { "</s>", 4 } };
    int32_t type[N] = { TOK_UNKNOWN, TOK_CONTROL, TOK_CONTROL };
    float score[N] = { 0 };
    for (int i = 0; i < 256; i++)
        snprintf(name[i], sizeof name[i], "<0x%02X>", (unsigned)i), token[3 + i] = (tok_str){ name[i], 6 },
                                                                              type[3 + i] = TOK_BYTE;
    token[259] = (tok_str){ "\xe2\x96\x81", 3 }, token[260] = (tok_str){ "a", 1 },
    token[261] = (tok_str){ "\xe2\x96\x81"
                            "a",
                            4 };
    for (int i = 259; i < N; i++) type[i] = TOK_NORMAL, score[i] = (float)i;
    for (int k = 0; k < 8; k++) {
        tok_vocab v = { .model = "llama", .n = N, .token = token, .score = score, .type = type, .bos = 1, .eos = 2,
                        .unk = 0, .pad = -1, .add_bos = k & 1, .add_eos = k >> 1 & 1, .add_space_prefix = k >> 2 };
        diag d = { 0 };
        lm_converted done;
        tokenizer *t, *u;
        assert_ok(tok_from_vocab("flags", &v, &t, &d), d);
        empty_folder(scratch, 1);
        write_text(
            in_scratch("seed.json"),
            "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":262,\"max_position_embeddings\":64}");
        lm_model *m = open_ok(in_scratch("seed.json"));
        for (int hf = 0; hf < 2; hf++) {
            const char *out = in_scratch(hf ? "hf" : "m.gguf");
            tok_info info;
            tok_encoder *e;
            tok_ids ids = { 0 };
            assert_ok(lm_convert(m, out,
                                 &(lm_convert_options){ .to = hf ? LM_TO_HF : LM_TO_GGUF, .version = -1, .vocab = t },
                                 &done, &d),
                      d);
            lm_model *b = open_ok(out);
            assert_ok(lm_tokenizer_of(b, &u, &d), d);
            tok_get(u, &info);
            if (info.add_bos != (k & 1) || info.add_eos != (k >> 1 & 1))
                fail_msg("flags %d, folder %d: BOS %d, EOS %d", k, hf, info.add_bos, info.add_eos);
            assert_ok(tok_encoder_new(u, &e, &d), d);
            assert_ok(tok_encode(e, "a", 1, 0, &ids, &d), d);
            assert_true(ids.n == 1 && ids.at[0] == (k >> 2 ? 261 : 260));
            tok_ids_free(&ids), tok_encoder_free(e), tok_close(u), lm_close(b);
        }
        lm_close(m), tok_close(t);
    }
}

/* ---- errors ---- */

#define QWEN(cols, hidden) "{\"model_type\":\"qwen2\",\"hidden_size\":" #cols ",\"intermediate_size\":" #hidden ",\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2," \
                           "\"vocab_size\":48,\"max_position_embeddings\":64}"

/* Largest difference of a tensor over its largest magnitude, the worst of all tensors, read back from what was
 * written. */
static double worst_of(lm_model *a, lm_model *b)
{
    double worst = 0;
    for (int id = 0; id < MW_COUNT; id++)
        for (int l = -1; l < 1; l++) {
            lm_tensor t;
            double peak = 0, error = 0;
            if (!lm_tensor_info(a, (model_weight_id)id, l, &t)) continue;
            float *x = all_of(a, (model_weight_id)id, l, &t), *y = all_of(b, (model_weight_id)id, l, &t);
            for (int64_t i = 0; i < t.rows * t.cols; i++)
                peak = fmax(peak, fabs((double)x[i])), error = fmax(error, fabs((double)y[i] - (double)x[i]));
            if (peak > 0) worst = fmax(worst, error / peak);
            free(x), free(y);
        }
    return worst;
}

static void errors_are_the_largest(void **state)
{
    (void)state;
    static const struct { lm_target to; const char *out; dtype dt; const char *form; } rows[] = {
        { LM_TO_HF, "hf", DT_F16, NULL },          { LM_TO_HF, "hf", DT_BF16, NULL },        { LM_TO_GGUF, "m.gguf", DT_F16, NULL },  { LM_TO_GGUF, "m.gguf", DT_BF16, NULL },
        { LM_TO_NPY, "npy", DT_F16, NULL },        { LM_TO_GGUF, "m.gguf", 0, "q8_0" },      { LM_TO_GGUF, "m.gguf", 0, "q4_0" },     { LM_TO_GGUF, "m.gguf", 0, "int4" },
        { LM_TO_SAFETENSORS, "m.safetensors", 0, "int8" }, { LM_TO_SAFETENSORS, "m.safetensors", 0, "int4" }, { LM_TO_HF, "hf", 0, "palette4" }, { LM_TO_HF, "hf", DT_F32, NULL },
    };
    static const char *const models[] = { GPT2, QWEN(32, 64), QWEN(32, 40) };
    for (size_t k = 0; k < COUNT(models); k++)
        for (size_t i = 0; i < COUNT(rows); i++) {
            empty_folder(scratch, 1);
            write_text(in_scratch("seed.json"), models[k]);
            lm_converted done =
                via(in_scratch("seed.json"), in_scratch(rows[i].out), rows[i].to, rows[i].dt, rows[i].form);
            lm_model *a = open_ok(in_scratch("seed.json")), *b = open_ok(in_scratch(rows[i].out));
            double want = worst_of(a, b);
            if (done.worst != want || (rows[i].dt == DT_F32) != (want == 0))
                fail_msg("model %zu, row %zu: %.17g is told, %.17g is so", k, i, done.worst, want);
            lm_close(a), lm_close(b);
        }
    /* groups of llama2.c files */
    empty_folder(scratch, 1);
    write_text(
        in_scratch("seed.json"),
        "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":48,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5}");
    via(in_scratch("seed.json"), in_scratch("whole.bin"), LM_TO_LLAMA2C, 0, NULL);
    lm_converted done = via(in_scratch("whole.bin"), in_scratch("m.bin"), LM_TO_LLAMA2C, 0, "int8");
    lm_model *a = open_ok(in_scratch("whole.bin")), *b = open_ok(in_scratch("m.bin"));
    lm_tensor t;
    assert_true(fabs(done.worst - worst_of(a, b)) < 1e-7 && done.worst > 1e-3);
    assert_true(lm_tensor_info(b, MW_W2, 0, &t) && !strcmp(t.type, "int8"));
    done = convert_ok(b, in_scratch("again.bin"), LM_TO_LLAMA2C, 0, "int8"); /* as they are */
    assert_true(done.worst == 0 && done.tensors == 12);
    lm_close(a), lm_close(b);
}

/* Numbers that fp32 does not hold: the error is theirs, wherever in the matrix the largest is, and as rows or
 * turned. */
static void errors_of_doubles(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        lm_target to;
        const char *out;
    } rows[] = { { QWEN(32, 64), LM_TO_GGUF, "m.gguf" },
                 { QWEN(32, 64), LM_TO_HF, "hf" },
                 { GPT2, LM_TO_HF, "hf" },
                 { GPT2, LM_TO_GGUF, "m.gguf" } };
    static const int places[] = { 0, 31, 32 * 31, 32 * 17 + 5, 32 * 32 - 1 };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(places); k++) {
            diag d = { 0 };
            double w[32 * 32], peak = 0, error = 0;
            empty_folder(scratch, 1);
            write_text(in_scratch("seed.json"), rows[i].model);
            via(in_scratch("seed.json"), in_scratch("npy"), LM_TO_NPY, 0, NULL);
            for (int j = 0; j < 32 * 32; j++) w[j] = 0.5 + (double)j / 4096;
            w[places[k]] += 1e-9; /* one alone is between two */
            for (int j = 0; j < 32 * 32; j++) peak = fmax(peak, w[j]);
            error = fabs(w[places[k]] - (double)(float)w[places[k]]);
            assert_ok(npy_write(in_scratch("npy/layer0.wo.npy"), DT_F64, (const int64_t[]){ 32, 32 }, 2, w, &d), d);
            lm_converted done = via(in_scratch("npy"), in_scratch(rows[i].out), rows[i].to, 0, NULL);
            if (done.worst != error / peak)
                fail_msg("row %zu, place %d: %g is told, %g is so", i, places[k], done.worst, error / peak);
        }
}

/* The number of a block that it cannot hold is the one that is named: the largest, or what is none. */
static void the_number_named(void **state)
{
    (void)state;
    static const struct { float x[4]; const char *want; } rows[] = {
        { { 5, -1e9f, 7, 1e8f }, "holds -1e+09;" }, { { 1e8f, 3e9f, -2e9f, 0 }, "holds 3e+09;" }, { { 5, -1e9f, NAN, 3e9f }, "nan;" }, { { NAN, 1, 2, 3 }, "nan;" }, { { 2, 1, -INFINITY, 1e9f }, "holds -inf;" },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int four = 0; four < 2; four++) {
            diag d = { 0 };
            lm_converted done;
            float w[32 * 32] = { 0 };
            empty_folder(scratch, 1);
            write_text(in_scratch("seed.json"), QWEN(32, 64));
            via(in_scratch("seed.json"), in_scratch("npy"), LM_TO_NPY, 0, NULL);
            for (int k = 0; k < 4; k++) w[17 * 32 + 3 + 8 * k] = rows[i].x[k];
            assert_ok(npy_write(in_scratch("npy/layer0.wo.npy"), DT_F32, (const int64_t[]){ 32, 32 }, 2, w, &d), d);
            lm_model *m = open_ok(in_scratch("npy"));
            an_status st =
                lm_convert(m, in_scratch("m.gguf"),
                           &(lm_convert_options){ .to = LM_TO_GGUF, .quantize = four ? "q4_0" : "q8_0", .version = -1 },
                           &done, &d);
            if (st != AN_INPUT || !strstr(d.msg, rows[i].want) || !strstr(d.msg, "layer0.wo"))
                fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
            path_info there;
            assert_false(path_look(in_scratch("m.gguf"), &there));
            lm_close(m);
        }
}

/* ---- GGUF ---- */

static void type_is(const lm_model *m, model_weight_id id, int layer, const char *want)
{
    lm_tensor t;
    assert_true(lm_tensor_info(m, id, layer, &t));
    if (strcmp(t.type, want)) fail_msg("weight %d is %s, wanted %s", (int)id, t.type, want);
}

/* Which type each tensor gets: vectors F32, positions as they were, ends of four bits eight, rows of no whole blocks
 * F16. */
static void types_of_gguf(void **state)
{
    (void)state;
    static const struct { const char *model, *form; dtype dt; const char *embed, *wq, *w2, *pos; } rows[] = {
        { GPT2, "q4_0", 0, "Q8_0", "Q4_0", "Q4_0", "F32" },       { GPT2, "q8_0", 0, "Q8_0", "Q8_0", "Q8_0", "F32" },       { GPT2, NULL, DT_BF16, "BF16", "BF16", "BF16", "BF16" },
        { QWEN(32, 40), "q4_0", 0, "Q8_0", "Q4_0", "F16", NULL }, { QWEN(32, 40), "int8", 0, "Q8_0", "Q8_0", "F16", NULL }, { QWEN(32, 40), NULL, DT_F16, "F16", "F16", "F16", NULL },
        { QWEN(32, 40), NULL, 0, "F32", "F32", "F32", NULL },     { QWEN(40, 64), "q8_0", 0, "F16", "F16", "Q8_0", NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        empty_folder(scratch, 1);
        write_text(in_scratch("seed.json"), rows[i].model);
        via(in_scratch("seed.json"), in_scratch("m.gguf"), LM_TO_GGUF, rows[i].dt, rows[i].form);
        lm_model *m = open_ok(in_scratch("m.gguf"));
        type_is(m, MW_EMBED, -1, rows[i].embed), type_is(m, MW_WQ, 0, rows[i].wq), type_is(m, MW_WV, 0, rows[i].wq),
            type_is(m, MW_W2, 0, rows[i].w2);
        type_is(m, MW_NORM1, 0, "F32"), type_is(m, MW_BK, 0, "F32"), type_is(m, MW_NORM_F, -1, "F32");
        if (rows[i].pos) type_is(m, MW_POS, -1, rows[i].pos);
        else type_is(m, MW_HEAD, -1, rows[i].embed);
        /* once more: blocks stay as they are, unless another type is asked for */
        lm_converted done = convert_ok(m, in_scratch("n.gguf"), LM_TO_GGUF, 0, NULL);
        lm_model *n = open_ok(in_scratch("n.gguf"));
        assert_true(done.worst == 0);
        type_is(n, MW_WQ, 0, rows[i].wq), type_is(n, MW_W2, 0, rows[i].w2), type_is(n, MW_EMBED, -1, rows[i].embed);
        lm_close(n);
        convert_ok(m, in_scratch("n.gguf"), LM_TO_GGUF, DT_F16, NULL);
        n = open_ok(in_scratch("n.gguf"));
        type_is(n, MW_WQ, 0, "F16"), type_is(n, MW_W2, 0, "F16");
        lm_close(n), lm_close(m);
    }
}

/* Scaled angles in GGUF: what has a key comes back, what has none is refused by its numbers. */
static void scaling_of_gguf(void **state)
{
    (void)state;
    static const struct { const char *scaling; double low, high, attn; const char *want; } rows[] = {
        { "{\"type\":\"linear\",\"factor\":4}", 0, 0, 0, NULL },
        { "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16}", 1, 32, 0, NULL },
        { "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16,\"attention_factor\":1.5}", 1, 32, 1.5, NULL },
        { "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16,\"attention_factor\":0.5}", 1, 32, 0.5, NULL },
        { "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16,\"beta_slow\":2}", 0, 0, 0, "beta_slow 2 and beta_fast 32; GGUF files mean 1 and 32" },
        { "{\"type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":16,\"beta_fast\":16}", 0, 0, 0, "beta_slow 1 and beta_fast 16" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char json[600];
        diag d = { 0 };
        lm_converted done;
        empty_folder(scratch, 1);
        snprintf(
            json, sizeof json,
            "{\"model_type\":\"qwen2\",\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"vocab_size\":48,"
            "\"max_position_embeddings\":64,\"rope_scaling\":%s}",
            rows[i].scaling);
        write_text(in_scratch("seed.json"), json);
        lm_model *m = open_ok(in_scratch("seed.json"));
        an_status st =
            lm_convert(m, in_scratch("m.gguf"), &(lm_convert_options){ .to = LM_TO_GGUF, .version = -1 }, &done, &d);
        if (rows[i].want) {
            if (st != AN_INPUT || !strstr(d.msg, rows[i].want)) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
            lm_close(m);
            continue;
        }
        assert_ok(st, d);
        lm_model *g = open_ok(in_scratch("m.gguf"));
        const model_scaling *a = &lm_config(m)->scaling, *b = &lm_config(g)->scaling;
        assert_true(a->kind == b->kind && b->factor == 4 && b->low == rows[i].low && b->high == rows[i].high &&
                    a->original == b->original && fabs(b->attn - rows[i].attn) < 1e-6);
        lm_close(m), lm_close(g);
    }
}

/* ---- llama2.c ---- */

/* Each of the things such a file has no place for, alone. */
static void what_llama2c_cannot_say(void **state)
{
    (void)state;
    static const struct { const char *type, *more, *want; } rows[] = {
        { "llama", "\"rms_norm_eps\":1e-5", NULL },
        { "llama", "\"rms_norm_eps\":1e-5,\"mlp_bias\":true", "biases" },
        { "llama", "\"rms_norm_eps\":1e-5,\"attention_bias\":true", "biases" },
        { "qwen2", "\"rms_norm_eps\":1e-5", "biases" },
        { "qwen3", "\"rms_norm_eps\":1e-5,\"head_dim\":8", "norms of queries and keys" },
        { "gemma", "\"rms_norm_eps\":1e-5,\"head_dim\":8", "a GELU gate" },
        { "mistral", "\"rms_norm_eps\":1e-5,\"sliding_window\":8", "a sliding window" },
        { "mistral", "\"rms_norm_eps\":1e-5,\"sliding_window\":null", NULL },
        { "llama", "\"rms_norm_eps\":1e-5,\"head_dim\":16", "heads that do not divide the width" },
        { "llama", "\"rms_norm_eps\":1e-6", "a norm epsilon other than 1e-5" },
        { "llama", "\"rms_norm_eps\":1e-5,\"rope_theta\":20000", "a rope_theta other than 10000" },
        { "llama", "\"rms_norm_eps\":1e-5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", "scaled rotary angles" },
        { "llama", "\"rms_norm_eps\":1e-5,\"final_logit_softcapping\":30", "a soft cap on its logits" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char json[600];
        diag d = { 0 };
        lm_converted done;
        path_info there;
        empty_folder(scratch, 1);
        snprintf(json, sizeof json, "{\"model_type\":\"%s\",\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":48,"
                                    "\"max_position_embeddings\":64,\"tie_word_embeddings\":%s,%s}", rows[i].type, i % 2 ? "true" : "false", rows[i].more);
        write_text(in_scratch("seed.json"), json);
        lm_model *m = open_ok(in_scratch("seed.json"));
        an_status st =
            lm_convert(m, in_scratch("m.bin"), &(lm_convert_options){ .to = LM_TO_LLAMA2C, .version = -1 }, &done, &d);
        if (rows[i].want ? st != AN_INPUT || !strstr(d.msg, rows[i].want) : st != AN_OK)
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        assert_int_equal(path_look(in_scratch("m.bin"), &there), !rows[i].want);
        lm_close(m);
    }
    /* versions and what goes with them */
    static const struct { int version; const char *form; dtype dt; bool fine; } versions[] = {
        { 0, NULL, 0, true }, { 1, NULL, DT_F32, true }, { 2, "int8", 0, true }, { -1, "int8", 0, true }, { 2, NULL, 0, false }, { 0, "int8", 0, false }, { 1, "int8", 0, false }, { 3, NULL, 0, false },
        { 3, "int8", 0, false }, { 0, NULL, DT_F16, false }, { 0, "int4", 0, false },
    };
    write_text(
        in_scratch("seed.json"),
        "{\"model_type\":\"llama\",\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":48,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5}");
    lm_model *m = open_ok(in_scratch("seed.json"));
    for (size_t i = 0; i < COUNT(versions); i++) {
        diag d = { 0 };
        lm_converted done;
        an_status st = lm_convert(m, in_scratch("v.bin"),
                                  &(lm_convert_options){ .to = LM_TO_LLAMA2C,
                                                         .version = versions[i].version,
                                                         .quantize = versions[i].form,
                                                         .dt = versions[i].dt },
                                  &done, &d);
        if (st != (versions[i].fine ? AN_OK : AN_USAGE)) fail_msg("version %zu: status %d: %s", i, (int)st, d.msg);
        if (st) continue;
        lm_model *b = open_ok(in_scratch("v.bin"));
        type_is(b, MW_WQ, 0, versions[i].form ? "int8" : "F32"), type_is(b, MW_NORM1, 0, "F32");
        assert_int_equal(done.tensors, 12);
        lm_close(b);
    }
    lm_close(m);
}

/* Groups divide every row and are as long as they can be, up to 64. Codes that lie in other groups, or with other
 * scales, are made anew. */
static void groups_of_llama2c(void **state)
{
    (void)state;
    static const struct {
        int dim, hidden, group;
    } rows[] = { { 32, 48, 16 }, { 64, 128, 64 }, { 96, 192, 32 }, { 128, 64, 64 }, { 24, 40, 8 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char json[400];
        diag d = { 0 };
        llama2c f;
        empty_folder(scratch, 1);
        snprintf(json, sizeof json, "{\"model_type\":\"llama\",\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":48,"
                                    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5}", rows[i].dim, rows[i].hidden);
        write_text(in_scratch("seed.json"), json);
        via(in_scratch("seed.json"), in_scratch("whole.bin"), LM_TO_LLAMA2C, 0, NULL);
        for (int codes = 0; codes < 2; codes++) { /* from numbers, and from codes with a scale for each row */
            if (codes)
                via(in_scratch("whole.bin"), in_scratch("m.gguf"), LM_TO_GGUF, 0, NULL),
                    via(in_scratch("m.gguf"), in_scratch("m.safetensors"), LM_TO_SAFETENSORS, 0, "int8");
            lm_model *a = open_ok(in_scratch(codes ? "m.safetensors" : "whole.bin"));
            lm_converted done = convert_ok(a, in_scratch("m.bin"), LM_TO_LLAMA2C, 0, "int8");
            assert_ok(llama2c_open(in_scratch("m.bin"), &f, &d), d);
            assert_int_equal(f.shape.group, rows[i].group);
            llama2c_close(&f);
            assert_true(done.worst > 0 && done.worst < 0.004); /* half a step of 127 */
            /* back in the order of a folder, so that both have their pairs alike */
            via(in_scratch("m.bin"), in_scratch("b.safetensors"), LM_TO_SAFETENSORS, DT_F32, NULL);
            convert_ok(a, in_scratch("a.safetensors"), LM_TO_SAFETENSORS, DT_F32, NULL);
            lm_model *x = open_ok(in_scratch("a.safetensors")), *y = open_ok(in_scratch("b.safetensors"));
            double was = worst_of(x, y);
            if (!(fabs(was - done.worst) < 1e-7))
                fail_msg("row %zu, codes %d: %g is told, %g is so", i, codes, done.worst, was);
            lm_close(x), lm_close(y), lm_close(a);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_other_types),    cmocka_unit_test(sizes),
        cmocka_unit_test(how_text_is_made),        cmocka_unit_test(padding_past_the_end),
        cmocka_unit_test(flags_of_a_vocabulary),   cmocka_unit_test(errors_are_the_largest),
        cmocka_unit_test(errors_of_doubles),       cmocka_unit_test(the_number_named),
        cmocka_unit_test(types_of_gguf),           cmocka_unit_test(scaling_of_gguf),
        cmocka_unit_test(what_llama2c_cannot_say), cmocka_unit_test(groups_of_llama2c)
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
