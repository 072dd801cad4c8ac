/* Models written as other files: there and back gives the same bytes where formats allow, the same numbers where
 * they do not hold them, permuted rows where conventions differ, and refusals that name what a format cannot say. */
#include <math.h>
#include <stdlib.h>

#include "convert_t.h"
#include "format/npy.h"

/* Every tensor of two models, row for row; `turned`: rows of b are a's pairs in the other order. */
static void same_numbers(lm_model *a, lm_model *b, bool turned)
{
    int64_t hd = lm_config(a)->head_dim;
    for (int id = 0; id < MW_COUNT; id++)
        for (int l = -1; l < lm_config(a)->n_layers; l++) {
            lm_tensor s, t;
            bool has = lm_tensor_info(a, (model_weight_id)id, l, &s);
            assert_int_equal(has, lm_tensor_info(b, (model_weight_id)id, l, &t));
            if (!has) continue;
            assert_true(s.rows == t.rows && s.cols == t.cols);
            bool pairs = turned && (id == MW_WQ || id == MW_WK || id == MW_BQ || id == MW_BK || id == MW_Q_NORM ||
                                    id == MW_K_NORM);
            float *x = all_of(a, (model_weight_id)id, l, &s), *y = all_of(b, (model_weight_id)id, l, &t);
            for (int64_t r = 0; r < s.rows; r++) {
                /* a in halves, b interleaved: pair i of a head is rows i and i + hd/2 there, 2i and 2i + 1 here */
                int64_t i = r % hd % (hd / 2), upper = r % hd / (hd / 2), to = pairs ? r / hd * hd + 2 * i + upper : r;
                if (memcmp(x + r * s.cols, y + to * s.cols, (size_t)s.cols * 4))
                    fail_msg("weight %d of layer %d: row %lld differs", id, l, (long long)r);
            }
            free(x);
            free(y);
        }
}

static void families_there_and_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(models); i++) {
        empty_folder(scratch, 1);
        write_text(in_scratch("seed.json"), models[i].json);
        via(in_scratch("seed.json"), in_scratch("hf"), LM_TO_HF, 0, NULL);
        lm_converted done = via(in_scratch("hf"), in_scratch("m.gguf"), LM_TO_GGUF, 0, NULL);
        assert_true(done.worst == 0);
        via(in_scratch("m.gguf"), in_scratch("hf2"), LM_TO_HF, 0, NULL);
        same_file(in_scratch("hf/model.safetensors"), in_scratch("hf2/model.safetensors"), 0);
        same_file(in_scratch("hf/config.json"), in_scratch("hf2/config.json"), 0);
        via(in_scratch("hf2"), in_scratch("m2.gguf"), LM_TO_GGUF, 0, NULL);
        same_file(in_scratch("m.gguf"), in_scratch("m2.gguf"), 0);
        via(in_scratch("m.gguf"), in_scratch("one.safetensors"), LM_TO_SAFETENSORS, 0, NULL);

        lm_model *seed = open_ok(in_scratch("seed.json")), *hf = open_ok(in_scratch("hf")),
                 *gg = open_ok(in_scratch("m.gguf"));
        lm_model *one = open_ok(in_scratch("one.safetensors"));
        same_numbers(seed, hf, false);
        same_numbers(hf, gg, models[i].interleaved);
        same_numbers(hf, one, false); /* its configuration came from the metadata: no config.json is beside it */
        assert_int_equal(lm_origin_of(one), LM_FROM_SAFETENSORS);
        assert_string_equal(lm_family(gg), lm_family(hf));
        assert_true(lm_config(gg)->window == lm_config(hf)->window &&
                    lm_config(gg)->scaling.kind == lm_config(hf)->scaling.kind);
        assert_true(lm_config(gg)->scaling.factor == lm_config(hf)->scaling.factor &&
                    lm_config(gg)->norm_eps == lm_config(hf)->norm_eps);
        lm_close(seed);
        lm_close(hf);
        lm_close(gg);
        lm_close(one);
    }
}

/* Narrower numbers: rounded once, to nearest, and the error told. */
static void types(void **state)
{
    (void)state;
    static const dtype all[] = { DT_F16, DT_BF16 };
    for (size_t i = 0; i < COUNT(models); i++)
        for (size_t t = 0; t < COUNT(all); t++) {
            empty_folder(scratch, 1);
            write_text(in_scratch("seed.json"), models[i].json);
            lm_converted done = via(in_scratch("seed.json"), in_scratch("hf"), LM_TO_HF, all[t], NULL);
            assert_true(done.worst > 0 && done.worst < (all[t] == DT_F16 ? 0x1p-11 : 0x1p-8) * 1.01);
            lm_model *a = open_ok(in_scratch("seed.json")), *b = open_ok(in_scratch("hf"));
            lm_tensor s;
            float *x = all_of(a, MW_W1, 1, &s), *y = all_of(b, MW_W1, 1, &s);
            for (int64_t k = 0; k < s.rows * s.cols; k++) assert_true(y[k] == (float)dtype_round(all[t], (double)x[k]));
            free(x);
            free(y);
            lm_close(a);
            lm_close(b);
            /* as it came: the types stay, so a second pass changes nothing */
            done = via(in_scratch("hf"), in_scratch("hf2"), LM_TO_HF, 0, NULL);
            assert_true(done.worst == 0);
            same_file(in_scratch("hf/model.safetensors"), in_scratch("hf2/model.safetensors"), 0);
        }
}

static void llama2c_there_and_back(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        empty_folder(scratch, 1);
        write_text(in_scratch("seed.json"), tied ? "{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":true}"
                                                 : "{\"model_type\":\"llama\"," SIZES "}");
        via(in_scratch("seed.json"), in_scratch("a.bin"), LM_TO_LLAMA2C, 0, NULL);
        via(in_scratch("a.bin"), in_scratch("a.safetensors"), LM_TO_SAFETENSORS, 0, NULL);
        via(in_scratch("a.safetensors"), in_scratch("a.gguf"), LM_TO_GGUF, 0, NULL);
        via(in_scratch("a.gguf"), in_scratch("b.bin"), LM_TO_LLAMA2C, 0, NULL);
        same_file(in_scratch("a.bin"), in_scratch("b.bin"), 0);
        /* version 1 holds the same numbers; version 2 stays itself */
        diag d = { 0 };
        lm_converted done;
        lm_model *m = open_ok(in_scratch("a.bin"));
        assert_ok(
            lm_convert(m, in_scratch("v1.bin"), &(lm_convert_options){ .to = LM_TO_LLAMA2C, .version = 1 }, &done, &d),
            d);
        lm_model *v1 = open_ok(in_scratch("v1.bin"));
        same_numbers(m, v1, false);
        lm_close(v1);
        done = convert_ok(m, in_scratch("q.bin"), LM_TO_LLAMA2C, 0, "int8");
        assert_true(done.worst > 0 && done.worst < 0.5 / 127 * 1.01);
        lm_close(m);
        done = via(in_scratch("q.bin"), in_scratch("q2.bin"), LM_TO_LLAMA2C, 0, "int8");
        assert_true(done.worst == 0);
        same_file(in_scratch("q.bin"), in_scratch("q2.bin"), 0);
        /* its groups have fp32 scales, and our compressed form keeps them */
        done = via(in_scratch("q.bin"), in_scratch("q.safetensors"), LM_TO_SAFETENSORS, 0, "int8");
        assert_true(done.worst == 0);
        done = via(in_scratch("q.safetensors"), in_scratch("q2"), LM_TO_HF, 0, "int8");
        assert_true(done.worst == 0);
        done = via(in_scratch("q2"), in_scratch("q3.bin"), LM_TO_LLAMA2C, 0, "int8");
        assert_true(done.worst == 0);
        same_file(in_scratch("q.bin"), in_scratch("q3.bin"), 0);
    }
}

static void real_stories(void **state)
{
    (void)state;
    const char *bin = "../shared/data/llama2c/stories260K.bin";
    if (access(bin, R_OK)) skip();
    empty_folder(scratch, 1);
    assert_true(via(bin, in_scratch("s.safetensors"), LM_TO_SAFETENSORS, 0, NULL).worst == 0);
    assert_true(via(in_scratch("s.safetensors"), in_scratch("s.gguf"), LM_TO_GGUF, 0, NULL).worst == 0);
    assert_true(via(in_scratch("s.gguf"), in_scratch("hf"), LM_TO_HF, 0, NULL).worst == 0);
    assert_true(via(in_scratch("hf"), in_scratch("s.bin"), LM_TO_LLAMA2C, 0, NULL).worst == 0);
    same_file(bin, in_scratch("s.bin"), 2 * 512 * 4 * 4); /* the rotary tables at the end are nobody's weights */
}

/* Our own compressed files: what lm_quantize made is what is read back, and it stays so from then on. */
static void compressed(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        lm_form form;
    } rows[] = { { "int8", LM_INT8 }, { "int4", LM_INT4 }, { "palette4", LM_PALETTE4 } };
    for (size_t i = 0; i < COUNT(models); i++)
        for (size_t k = 0; k < COUNT(rows); k++) {
            empty_folder(scratch, 1);
            diag d = { 0 };
            write_text(in_scratch("seed.json"), models[i].json);
            lm_converted done =
                via(in_scratch("seed.json"), in_scratch("q.safetensors"), LM_TO_SAFETENSORS, DT_F16, rows[k].name);
            assert_true(done.worst > 0);
            lm_model *a = open_ok(in_scratch("seed.json")), *b;
            assert_ok(lm_open(in_scratch("q.safetensors"), &(lm_options){ .form = LM_AS_FILE }, &b, &d), d);
            assert_int_equal(lm_form_of(b, MW_W2, 1), rows[k].form);
            lm_quantized p, q;
            assert_ok(lm_quantize(a, MW_W2, 1, rows[k].form, DT_F16, &p, &d), d);
            assert_ok(lm_quantize(b, MW_W2, 1, rows[k].form, DT_F16, &q, &d), d);
            lm_release(b, MW_W2, 1); /* a view of the file: nothing goes */
            size_t codes = (size_t)(p.rows * p.cols) / (rows[k].form == LM_INT8 ? 1 : 2);
            assert_memory_equal(p.q, q.q, codes);
            if (p.table) assert_memory_equal(p.table, q.table, 32);
            else {
                assert_int_equal(p.scale_cols, q.scale_cols);
                assert_memory_equal(p.scale, q.scale, (size_t)(p.rows * p.scale_cols) * 2);
                /* with wider scales the codes stay where they are */
                assert_ok(lm_quantize(b, MW_W2, 1, rows[k].form, DT_F32, &q, &d), d);
                for (int64_t s = 0; s < p.rows * p.scale_cols; s++)
                    assert_true(dtype_load(DT_F32, q.scale, s) == dtype_load(DT_F16, p.scale, s));
                assert_memory_equal(p.q, q.q, codes);
            }
            lm_close(a);
            lm_close(b);
            done =
                via(in_scratch("q.safetensors"), in_scratch("q2.safetensors"), LM_TO_SAFETENSORS, DT_F16, rows[k].name);
            assert_true(done.worst == 0);
            same_file(in_scratch("q.safetensors"), in_scratch("q2.safetensors"), 0);
            /* opened out again, its numbers are those of the codes */
            via(in_scratch("q.safetensors"), in_scratch("d.safetensors"), LM_TO_SAFETENSORS, DT_F32, NULL);
            a = open_ok(in_scratch("q.safetensors"));
            b = open_ok(in_scratch("d.safetensors"));
            same_numbers(a, b, false);
            lm_close(a);
            lm_close(b);
        }
}

static void gguf_blocks(void **state)
{
    (void)state;
    static const char *const forms[] = { "q8_0", "q4_0", "int8", "int4" };
    for (size_t i = 0; i < COUNT(models); i++)
        for (size_t k = 0; k < COUNT(forms); k++) {
            empty_folder(scratch, 1);
            write_text(in_scratch("seed.json"), models[i].json);
            lm_converted done = via(in_scratch("seed.json"), in_scratch("q.gguf"), LM_TO_GGUF, 0, forms[k]);
            assert_true(done.worst > 0 && done.worst < (k % 2 ? 0.13 : 0.0045));
            done = via(in_scratch("q.gguf"), in_scratch("q2.gguf"), LM_TO_GGUF, 0, NULL); /* blocks as they are */
            assert_true(done.worst == 0);
            same_file(in_scratch("q.gguf"), in_scratch("q2.gguf"), 0);
            lm_model *m = open_ok(in_scratch("q.gguf"));
            lm_tensor t;
            assert_true(lm_tensor_info(m, MW_WQ, 0, &t));
            assert_string_equal(t.type, k % 2 ? "Q4_0" : "Q8_0");
            assert_true(lm_tensor_info(m, MW_EMBED, -1, &t));
            assert_string_equal(t.type, "Q8_0");
            /* our compressed form takes the blocks over without another rounding */
            lm_converted own =
                convert_ok(m, in_scratch("q.safetensors"), LM_TO_SAFETENSORS, 0, k % 2 ? "int4" : "int8");
            if (!(k % 2)) assert_true(own.worst == 0);
            lm_close(m);
        }
}

static void npy_folder(void **state)
{
    (void)state;
    empty_folder(scratch, 1);
    write_text(in_scratch("seed.json"), models[1].json);
    via(in_scratch("seed.json"), in_scratch("npy"), LM_TO_NPY, 0, NULL);
    lm_model *m = open_ok(in_scratch("seed.json"));
    lm_tensor t;
    float *x = all_of(m, MW_WQ, 1, &t);
    diag d = { 0 };
    file_bytes f;
    assert_ok(file_map(in_scratch("npy/layer1.wq.npy"), &f, &d), d);
    assert_memory_equal(f.at + f.n - 32 * 32 * 4, x, 32 * 32 * 4);
    file_drop(&f);
    free(x);
    lm_close(m);
    /* and in again, every family, whole or rounded */
    for (size_t i = 0; i < COUNT(models); i++)
        for (int half = 0; half < 2; half++) {
            empty_folder(scratch, 1);
            write_text(in_scratch("seed.json"), models[i].json);
            via(in_scratch("seed.json"), in_scratch("hf"), LM_TO_HF, half ? DT_F16 : 0, NULL);
            via(in_scratch("hf"), in_scratch("npy"), LM_TO_NPY, 0, NULL);
            lm_converted done = via(in_scratch("npy"), in_scratch("hf2"), LM_TO_HF, 0, NULL);
            assert_true(done.worst == 0);
            same_file(in_scratch("hf/model.safetensors"), in_scratch("hf2/model.safetensors"), 0);
            same_file(in_scratch("hf/config.json"), in_scratch("hf2/config.json"), 0);
        }
    /* what does not fit is named */
    static const struct { const char *file; dtype dt; int64_t dim[2]; int rank; const char *want[2]; } bad[] = {
        { "npy/layer0.wq.npy", DT_F32, { 47, 32 }, 2, { "layer0.wq.npy", "[47, 32], the configuration wants [32, 32]" } },
        { "npy/layer0.norm1.npy", DT_F32, { 32, 1 }, 2, { "layer0.norm1.npy", "wants [32]" } },
        { "npy/embed.npy", DT_I8, { 48, 32 }, 2, { "embed.npy", "int8" } },
        { "npy/layer0.wx.npy", DT_F32, { 32, 32 }, 2, { "layer0.wx.npy", "not a tensor this configuration (llama) has" } },
        { "npy/embed.npy", 0, { 0, 0 }, 0, { "neither model.safetensors", "embed.npy" } },
        { "npy/layer1.w2.npy", 0, { 0, 0 }, 0, { "layer1.w2.npy", "is missing" } },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        static const float zeros[64 * 64];
        lm_model *n;
        d = (diag){ 0 };
        empty_folder(scratch, 1);
        write_text(in_scratch("seed.json"), models[0].json);
        via(in_scratch("seed.json"), in_scratch("npy"), LM_TO_NPY, 0, NULL);
        if (bad[i].rank)
            assert_ok(npy_write(in_scratch(bad[i].file), bad[i].dt, bad[i].dim, bad[i].rank, zeros, &d), d);
        else assert_int_equal(unlink(in_scratch(bad[i].file)), 0);
        an_status st = lm_open(in_scratch("npy"), NULL, &n, &d);
        if (st != AN_INPUT || !strstr(d.msg, bad[i].want[0]) || !strstr(d.msg, bad[i].want[1]))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
}

/* ---- refusals ---- */

static void refusals(void **state)
{
    (void)state;
    static const struct {
        size_t model;
        lm_target to;
        dtype dt;
        const char *quantize;
        int version;
        an_status st;
        const char *want;
    } rows[] = {
        { 8, LM_TO_LLAMA2C, 0, NULL, -1, AN_INPUT, "learned positions" },
        { 6, LM_TO_LLAMA2C, 0, NULL, -1, AN_INPUT, "a GELU gate" },
        { 1, LM_TO_LLAMA2C, 0, NULL, -1, AN_INPUT, "biases" },
        { 2, LM_TO_LLAMA2C, 0, NULL, -1, AN_INPUT, "scaled rotary angles" },
        { 3, LM_TO_LLAMA2C, 0, NULL, -1, AN_INPUT, "sliding window" },
        { 5, LM_TO_LLAMA2C, 0, NULL, -1, AN_INPUT, "norms of queries and keys" },
        { 0, LM_TO_LLAMA2C, DT_F16, NULL, -1, AN_USAGE, "fp16" },
        { 0, LM_TO_LLAMA2C, 0, "int4", -1, AN_USAGE, "no form int4" },
        { 0, LM_TO_LLAMA2C, 0, "int8", 0, AN_USAGE, "version 0 with int8" },
        { 0, LM_TO_LLAMA2C, 0, NULL, 3, AN_USAGE, "version 3" },
        { 0, LM_TO_NPY, 0, "int8", -1, AN_USAGE, "no form int8" },
        { 0, LM_TO_NPY, DT_BF16, NULL, -1, AN_INPUT, "bf16" },
        { 0, LM_TO_GGUF, 0, "palette4", -1, AN_USAGE, "no form palette4" },
        { 0, LM_TO_SAFETENSORS, 0, "q8_0", -1, AN_USAGE, "no form q8_0" },
        { 0, LM_TO_SAFETENSORS, 0, "int3", -1, AN_USAGE, "int3" },
        { 0, LM_TO_SAFETENSORS, DT_I8, NULL, -1, AN_USAGE, "int8" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        empty_folder(scratch, 1);
        write_text(in_scratch("seed.json"), models[rows[i].model].json);
        lm_model *m = open_ok(in_scratch("seed.json"));
        diag d = { 0 };
        lm_converted done;
        lm_convert_options o = {
            .to = rows[i].to, .dt = rows[i].dt, .quantize = rows[i].quantize, .version = rows[i].version
        };
        an_status st = lm_convert(m, in_scratch("out"), &o, &done, &d);
        if (st != rows[i].st || !strstr(d.msg, rows[i].want)) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        path_info info;
        if (rows[i].to != LM_TO_NPY) assert_false(path_look(in_scratch("out"), &info)); /* nothing left behind */
        lm_close(m);
    }
    /* the model itself is never the target, under whatever name */
    diag d = { 0 };
    lm_converted done;
    via(in_scratch("seed.json"), in_scratch("m.gguf"), LM_TO_GGUF, 0, NULL);
    lm_model *m = open_ok(in_scratch("m.gguf"));
    assert_int_equal(symlink(in_scratch("m.gguf"), in_scratch("other.gguf")), 0);
    assert_int_equal(lm_convert(m, in_scratch("other.gguf"), &(lm_convert_options){ .to = LM_TO_GGUF }, &done, &d),
                     AN_USAGE);
    assert_non_null(strstr(d.msg, "the model itself"));
    lm_close(m);
    lm_target t;
    assert_true(lm_target_find("gguf", &t) && t == LM_TO_GGUF);
    assert_false(lm_target_find("onnx", &t));
}

/* A llama folder, or GPT-2's, whose matrices lie turned, with x as its last number: of lm_head.weight, or of a bias;
 * `wide`: in fp64. */
static void folder_with(double x, bool gpt2, bool wide)
{
    diag d = { 0 };
    file_bytes f;
    empty_folder(scratch, 1);
    assert_ok(dir_make(in_scratch("hf"), &d), d);
    write_text(in_scratch("hf/config.json"), gpt2 ? "{" GPT2_JSON "}" : "{\"model_type\":\"llama\"," LLAMA_JSON "}");
    write_tensors(in_scratch("hf/model.safetensors"), gpt2 ? gpt2_tensors : llama_tensors, NULL, wide ? DT_F64 : DT_F32,
                  NULL, NULL, NULL);
    assert_ok(file_read(in_scratch("hf/model.safetensors"), 1 << 20, &f, &d), d);
    float narrow = (float)x;
    if (wide) memcpy(f.at + f.n - 8, &x, 8);
    else memcpy(f.at + f.n - 4, &narrow, 4);
    assert_ok(file_write(in_scratch("hf/model.safetensors"), f.at, f.n, &d), d);
    file_drop(&f);
}

/* What a form or a type has no number for is refused: the message names the tensor, and no file is left. */
static void not_finite(void **state)
{
    (void)state;
    static const struct {
        double x;
        lm_target to;
        dtype dt;
        const char *quantize, *want;
        bool wide;
    } rows[] = {
        { NAN, LM_TO_SAFETENSORS, 0, "int8", "not finite", false },
        { NAN, LM_TO_SAFETENSORS, 0, "int4", "not finite", false },
        { NAN, LM_TO_SAFETENSORS, 0, "palette4", "not finite", false },
        { 1e9, LM_TO_SAFETENSORS, 0, "int8", "too large for scales of fp16", false },
        { 1e9, LM_TO_SAFETENSORS, 0, "palette4", "1e+09", false },
        { 1e300, LM_TO_SAFETENSORS, 0, "int8", "too large", true },
        { 1e5, LM_TO_SAFETENSORS, DT_F16, NULL, "holds 100000, which is past the range of fp16", false },
        { -65520, LM_TO_GGUF, DT_F16, NULL, "holds -65520, which is past the range of fp16", false },
        { 1e5, LM_TO_HF, DT_F16, NULL, "fp16", false },
        { 1e5, LM_TO_NPY, DT_F16, NULL, "fp16", false },
        { 1e5, LM_TO_HF, DT_F16, NULL, "fp16", true },
        { 3.4e38, LM_TO_SAFETENSORS, DT_BF16, NULL, "holds 3.4e+38, which is past the range of bf16", false },
        { 1e300, LM_TO_SAFETENSORS, DT_BF16, NULL, "holds 1e+300", true },
        { -1e300, LM_TO_SAFETENSORS, 0, NULL, "holds -1e+300, which is past the range of fp32", true },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        lm_converted done;
        diag d = { 0 };
        path_info info;
        folder_with(rows[i].x, false, rows[i].wide);
        lm_model *m = open_ok(in_scratch("hf"));
        an_status st = lm_convert(
            m, in_scratch("out"),
            &(lm_convert_options){ .to = rows[i].to, .dt = rows[i].dt, .quantize = rows[i].quantize }, &done, &d);
        if (st != AN_INPUT || !strstr(d.msg, "lm_head.weight") || !strstr(d.msg, rows[i].want))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        if (rows[i].to != LM_TO_HF && rows[i].to != LM_TO_NPY) assert_false(path_look(in_scratch("out"), &info));
        lm_close(m);
    }
    /* the largest of each type goes through, and what was no number before stays none */
    static const struct {
        double x;
        dtype dt;
    } kept[] = { { 65504, DT_F16 }, { 65519, DT_F16 }, { -3.38e38, DT_BF16 }, { NAN, DT_F16 }, { INFINITY, DT_BF16 } };
    for (size_t i = 0; i < COUNT(kept); i++) {
        folder_with(kept[i].x, false, false);
        double worst = via(in_scratch("hf"), in_scratch("out.safetensors"), LM_TO_SAFETENSORS, kept[i].dt, NULL).worst;
        if (!(worst >= 0 && worst <= 1.0 / 256)) fail_msg("row %zu: worst %g", i, worst);
        lm_tensor t;
        lm_model *m = open_ok(in_scratch("out.safetensors"));
        float *x = all_of(m, MW_HEAD, -1, &t), got = x[t.rows * t.cols - 1];
        assert_true(isnan(kept[i].x) ? isnan(got) : (double)got == dtype_round(kept[i].dt, kept[i].x));
        free(x);
        lm_close(m);
    }
}

/* Doubles that fp32 rounds: how far off they are is told, for tensors that lie turned as well. */
static void wide_numbers(void **state)
{
    (void)state;
    static const lm_target to[] = { LM_TO_SAFETENSORS, LM_TO_HF, LM_TO_GGUF, LM_TO_NPY };
    static const size_t from_end[] = { 0, 200 }; /* elements: in a vector, and in the last turned matrix */
    for (int gpt2 = 0; gpt2 < 2; gpt2++)
        for (size_t i = 0; i < COUNT(to) * COUNT(from_end); i++) {
            diag d = { 0 };
            file_bytes f;
            folder_with(0.5, gpt2, true);
            assert_ok(file_read(in_scratch("hf/model.safetensors"), 1 << 20, &f, &d), d);
            const double x = 0.5 + 0x1p-26;
            memcpy(f.at + f.n - 8 * (from_end[i % COUNT(from_end)] + 1), &x, 8);
            assert_ok(file_write(in_scratch("hf/model.safetensors"), f.at, f.n, &d), d);
            file_drop(&f);
            double worst = via(in_scratch("hf"), in_scratch("out"), to[i / COUNT(from_end)], 0, NULL).worst;
            if (!(worst > 0x1p-28 && worst <= 0x1p-24)) fail_msg("gpt2 %d, row %zu: worst %g", gpt2, i, worst);
        }
}

/* GGUF blocks of rows that are long enough: a number without a code, or whose scale fp16 does not hold, and one just
 * inside. */
static void blocks_without_a_scale(void **state)
{
    (void)state;
    static const struct {
        float x;
        const char *quantize, *want; /* NULL: fits */
    } rows[] = {
        { NAN, "q8_0", "holds nan" },  { INFINITY, "q8_0", "holds inf" },  { 1e9f, "q8_0", "holds 1e+09" },  { 127 * 65504.0f, "q8_0", NULL },
        { NAN, "q4_0", "holds nan" },  { -INFINITY, "q4_0", "holds -inf" }, { -1e6f, "q4_0", "holds -1e+06" }, { 8 * 65504.0f, "q4_0", NULL },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        empty_folder(scratch, 1);
        write_text(in_scratch("seed.json"), models[0].json);
        via(in_scratch("seed.json"), in_scratch("npy"), LM_TO_NPY, DT_F32, NULL);
        diag d = { 0 };
        file_bytes f;
        lm_converted done;
        assert_ok(file_read(in_scratch("npy/layer1.w2.npy"), 1 << 20, &f, &d), d);
        memcpy(f.at + f.n - 4 * 7, &rows[i].x, 4);
        assert_ok(file_write(in_scratch("npy/layer1.w2.npy"), f.at, f.n, &d), d);
        file_drop(&f);
        lm_model *m = open_ok(in_scratch("npy"));
        an_status st = lm_convert(m, in_scratch("q.gguf"),
                                  &(lm_convert_options){ .to = LM_TO_GGUF, .quantize = rows[i].quantize }, &done, &d);
        if (st != (rows[i].want ? AN_INPUT : AN_OK) ||
            (rows[i].want && (!strstr(d.msg, "layer1.w2") || !strstr(d.msg, rows[i].want))))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        path_info info;
        assert_int_equal(path_look(in_scratch("q.gguf"), &info), !rows[i].want);
        lm_close(m);
    }
}

/* ---- vocabularies and lists of tokens that go along ---- */

static void with_vocabulary(void **state)
{
    (void)state;
    static const char corpus[] = "the cat and the hat and the bat and that other cat that sat there";
    empty_folder(scratch, 1);
    diag d = { 0 };
    strbuf json = { 0 };
    tokenizer *t;
    tok_info info;
    char want[100];
    assert_ok(tok_train(corpus, sizeof corpus - 1, &(tok_train_options){ .vocab = 270 }, &json, &d), d);
    assert_ok(tok_from_json("test", json.at, json.n, &t, &d), d);
    sb_free(&json);
    tok_get(t, &info);
    write_text(in_scratch("seed.json"), "{\"model_type\":\"qwen2\",\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"vocab_size\":280,"
                                        "\"max_position_embeddings\":64,\"eos_token_id\":[3,4,5,6],\"pad_token_id\":9}");
    lm_model *m = open_ok(in_scratch("seed.json")), *g;
    lm_converted done;
    assert_ok(lm_convert(m, in_scratch("m.gguf"), &(lm_convert_options){ .to = LM_TO_GGUF, .version = -1, .vocab = t },
                         &done, &d),
              d);
    assert_true(done.vocabulary);
    assert_non_null(strstr(done.lost, "of 4 tokens that end a text GGUF can name 3"));
    lm_close(m);
    g = open_ok(in_scratch("m.gguf"));
    gguf *f;
    assert_ok(gguf_open(in_scratch("m.gguf"), &f, &d), d);
    const gguf_value *v = gguf_get(f, "tokenizer.ggml.tokens"), *types = gguf_get(f, "tokenizer.ggml.token_type");
    gguf_str s;
    double last;
    int64_t id;
    assert_true(v && types && v->n == 280 && types->n == 280 && gguf_item(types, 279, &last) && last == TOK_UNUSED);
    assert_true(v->strs[279].n == 8 && !memcmp(v->strs[279].at, "[PAD279]", 8));
    assert_true(gguf_text(f, "tokenizer.ggml.pre", &s) && s.n == 5 && !memcmp(s.at, "gpt-2", 5));
    assert_true(gguf_int(f, "tokenizer.ggml.eot_token_id", &id) && id == 4 &&
                gguf_int(f, "tokenizer.ggml.padding_token_id", &id) && id == 9);
    /* the tokenizer's: the configuration names none */
    assert_true(gguf_int(f, "tokenizer.ggml.bos_token_id", &id) && id == info.bos);
    assert_int_equal(lm_generation_of(g)->n_eos, 3);
    gguf_close(f);
    /* in a folder it is the files a folder has */
    assert_ok(
        lm_convert(g, in_scratch("hf"), &(lm_convert_options){ .to = LM_TO_HF, .version = -1, .vocab = t }, &done, &d),
        d);
    tokenizer *u;
    tok_info back;
    assert_true(done.vocabulary);
    assert_ok(tok_open(in_scratch("hf"), &u, &d), d);
    tok_get(u, &back);
    assert_true(back.n == info.n && back.bos == info.bos && back.eos == info.eos && !strcmp(back.split, "gpt2"));
    tok_close(u);
    /* from GGUF to GGUF it stays as it is; another one in its place must fit */
    done = convert_ok(g, in_scratch("n.gguf"), LM_TO_GGUF, 0, NULL);
    assert_true(done.vocabulary && !done.lost[0]);
    same_file(in_scratch("m.gguf"), in_scratch("n.gguf"), 0);
    lm_close(g);
    write_text(in_scratch("seed.json"), models[0].json); /* 48 rows */
    m = open_ok(in_scratch("seed.json"));
    assert_int_equal(lm_convert(m, in_scratch("x.gguf"),
                                &(lm_convert_options){ .to = LM_TO_GGUF, .version = -1, .vocab = t }, &done, &d),
                     AN_INPUT);
    snprintf(want, sizeof want, "has %u entries, the embedding 48 rows", info.n);
    assert_non_null(strstr(d.msg, want));
    path_info there;
    assert_false(path_look(in_scratch("x.gguf"), &there));
    d = (diag){ 0 };
    assert_ok(lm_convert(m, in_scratch("x.gguf"),
                         &(lm_convert_options){ .to = LM_TO_GGUF, .version = -1, .vocab = t, .vocab_if_fits = true },
                         &done, &d),
              d);
    assert_true(!done.vocabulary && strstr(done.lost, want));
    lm_close(m);
    tok_close(t);
}

static void part_of_a_vocabulary(void **state)
{
    (void)state;
    static const uint32_t ids[] = { 3, 7, 8, 47 };
    static const struct {
        lm_target to;
        const char *out;
    } rows[] = { { LM_TO_GGUF, "a.gguf" }, { LM_TO_SAFETENSORS, "a.safetensors" }, { LM_TO_HF, "hf" } };
    empty_folder(scratch, 1);
    write_text(in_scratch("seed.json"), models[0].json);
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        lm_model *m = open_ok(in_scratch("seed.json")), *n;
        assert_ok(lm_restrict(m, ids, COUNT(ids), &d), d);
        lm_converted done = convert_ok(m, in_scratch(rows[i].out), rows[i].to, 0, NULL);
        assert_string_equal(done.lost, "");
        n = open_ok(in_scratch(rows[i].out));
        assert_non_null(lm_active(n));
        assert_memory_equal(lm_active(m), lm_active(n), 48);
        lm_close(n);
        done = convert_ok(m, in_scratch("a.bin"), LM_TO_LLAMA2C, 0, NULL); /* which has no place for it, and says so */
        assert_non_null(strstr(done.lost, "which tokens the model was trained on"));
        lm_close(m);
    }
    /* lists that lie */
    static const struct {
        const char *text, *want;
    } bad[] = { { "3 x", "no list of numbers" },
                { "3 10", "entry 1 of its list of tokens is 10; the vocabulary has 10" },
                { "-1", "no list of numbers" },
                { "99999999999", "is 4294967295" } };
    for (size_t i = 0; i < COUNT(bad); i++) {
        diag d = { 0 };
        safetensors_out *w;
        lm_model *m;
        assert_ok(safetensors_create(in_scratch("bad.safetensors"), &w, &d), d);
        assert_ok(safetensors_put_meta(w, "anneal.config", "{\"model_type\":\"llama\"," LLAMA_JSON "}", &d), d);
        assert_ok(safetensors_put_meta(w, "anneal.active_tokens", bad[i].text, &d), d);
        for (const file_tensor *t = llama_tensors; t->name; t++)
            assert_ok(safetensors_declare(w, t->name, DT_F32, t->rank, t->d, NULL, &d), d);
        for (size_t k = 0; llama_tensors[k].name; k++) {
            static const float zeros[512];
            int64_t count = llama_tensors[k].d[0] * (llama_tensors[k].rank > 1 ? llama_tensors[k].d[1] : 1);
            assert_ok(safetensors_put(w, k, zeros, (size_t)count * 4, &d), d);
        }
        assert_ok(safetensors_finish(w, &d), d);
        an_status st = lm_open(in_scratch("bad.safetensors"), NULL, &m, &d);
        if (st != AN_INPUT || !strstr(d.msg, bad[i].want)) fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
    }
}

/* Gemma's files leave one off the gains of norms, GGUF files do not; Hugging Face to Hugging Face they are copied. */
static void gains(void **state)
{
    (void)state;
    static const file_tensor tensors[] = {
        { "model.embed_tokens.weight", 2, { 10, 8 } },
        { "model.layers.0.input_layernorm.weight", 1, { 8, 0 } },
        { "model.layers.0.self_attn.q_proj.weight", 2, { 8, 8 } },
        { "model.layers.0.self_attn.k_proj.weight", 2, { 4, 8 } },
        { "model.layers.0.self_attn.v_proj.weight", 2, { 4, 8 } },
        { "model.layers.0.self_attn.o_proj.weight", 2, { 8, 8 } },
        { "model.layers.0.post_attention_layernorm.weight", 1, { 8, 0 } },
        { "model.layers.0.pre_feedforward_layernorm.weight", 1, { 8, 0 } },
        { "model.layers.0.mlp.gate_proj.weight", 2, { 12, 8 } },
        { "model.layers.0.mlp.up_proj.weight", 2, { 12, 8 } },
        { "model.layers.0.mlp.down_proj.weight", 2, { 8, 12 } },
        { "model.layers.0.post_feedforward_layernorm.weight", 1, { 8, 0 } },
        { "model.norm.weight", 1, { 8, 0 } },
        { NULL, 0, { 0, 0 } },
    };
    static const struct {
        model_weight_id id;
        int layer;
        const char *name, *gguf;
    } norms[] = {
        { MW_NORM1, 0, "model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight" },
        { MW_POST1, 0, "model.layers.0.post_attention_layernorm.weight", "blk.0.post_attention_norm.weight" },
        { MW_NORM2, 0, "model.layers.0.pre_feedforward_layernorm.weight", "blk.0.ffn_norm.weight" },
        { MW_POST2, 0, "model.layers.0.post_feedforward_layernorm.weight", "blk.0.post_ffw_norm.weight" },
        { MW_NORM_F, -1, "model.norm.weight", "output_norm.weight" },
    };
    static const dtype types[] = { DT_F32, DT_BF16, DT_F16 };
    for (size_t k = 0; k < COUNT(types); k++) {
        empty_folder(scratch, 1);
        diag d = { 0 };
        assert_ok(dir_make(in_scratch("a"), &d), d);
        write_text(in_scratch("a/config.json"), "{\"model_type\":\"gemma2\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":2,"
                                                "\"vocab_size\":10,\"max_position_embeddings\":64,\"query_pre_attn_scalar\":2}");
        write_tensors(in_scratch("a/model.safetensors"), tensors, NULL, types[k], NULL, NULL, NULL);
        via(in_scratch("a"), in_scratch("b"), LM_TO_HF, 0, NULL);
        assert_true(via(in_scratch("b"), in_scratch("m.gguf"), LM_TO_GGUF, 0, NULL).worst == 0);
        assert_true(via(in_scratch("m.gguf"), in_scratch("c"), LM_TO_HF, types[k], NULL).worst == 0);
        same_file(in_scratch("b/model.safetensors"), in_scratch("c/model.safetensors"), 0);
        lm_model *a = open_ok(in_scratch("a")), *b = open_ok(in_scratch("b")), *g = open_ok(in_scratch("m.gguf"));
        same_numbers(a, b, false);
        assert_string_equal(lm_family(g), "gemma2");
        for (size_t i = 0; i < COUNT(norms); i++) {
            lm_tensor t;
            float *x = all_of(a, norms[i].id, norms[i].layer, &t), *y = all_of(g, norms[i].id, norms[i].layer, &t);
            assert_string_equal(t.name, norms[i].gguf);
            const void *dense;
            assert_ok(lm_dense(a, norms[i].id, norms[i].layer, types[k], &dense, &d), d); /* not the file's own bytes */
            for (int64_t j = 0; j < t.rows; j++) {
                double want = 1 + dtype_round(types[k], (double)mark(norms[i].name, j));
                assert_true((double)x[j] == want && (double)y[j] == want &&
                            dtype_load(types[k], dense, j) == dtype_round(types[k], want));
            }
            free(x);
            free(y);
        }
        lm_close(a);
        lm_close(b);
        lm_close(g);
    }
    /* one more than a small gain need not be an fp32 number: that is told */
    file_bytes f;
    const float small = 0x1p-30f;
    diag d = { 0 };
    write_tensors(in_scratch("a/model.safetensors"), tensors, NULL, DT_F32, NULL, NULL, NULL);
    assert_ok(file_read(in_scratch("a/model.safetensors"), 1 << 20, &f, &d), d);
    memcpy(f.at + f.n - 4, &small, 4);
    assert_ok(file_write(in_scratch("a/model.safetensors"), f.at, f.n, &d), d);
    file_drop(&f);
    double worst = via(in_scratch("a"), in_scratch("m.gguf"), LM_TO_GGUF, 0, NULL).worst;
    assert_true(worst > 0x1p-32 && worst <= 0x1p-30);
    assert_true(via(in_scratch("a"), in_scratch("b"), LM_TO_HF, 0, NULL).worst == 0);
    /* what GGUF files mean by the architecture alone is the only scale of queries they can say */
    write_text(
        in_scratch("seed.json"),
        "{\"model_type\":\"gemma2\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"head_dim\":2,\"vocab_size\":10,"
        "\"max_position_embeddings\":64}");
    lm_model *m = open_ok(in_scratch("seed.json"));
    lm_converted done;
    assert_int_equal(
        lm_convert(m, in_scratch("x.gguf"), &(lm_convert_options){ .to = LM_TO_GGUF, .version = -1 }, &done, &d),
        AN_INPUT);
    assert_non_null(strstr(d.msg, "the root of 256"));
    lm_close(m);
}

/* Matrices larger than a run of rows, where the run is no whole number of heads: every head is put into the other
 * order, not only the first ones. */
static void long_matrices(void **state)
{
    (void)state;
    enum { COLS = 300, HEADS = 128, WIDE = 8, ROWS = HEADS * WIDE };
    diag d = { 0 };
    lm_model *m, *g;
    write_text(in_scratch("long.json"), "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":300,\"intermediate_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":128,"
                                        "\"head_dim\":8,\"num_key_value_heads\":1,\"vocab_size\":10,\"max_position_embeddings\":16,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"hidden_act\":\"silu\"}");
    assert_ok(lm_open(in_scratch("long.json"), &(lm_options){ .dt = DT_F32, .seed = 4 }, &m, &d), d);
    convert_ok(m, in_scratch("long.gguf"), LM_TO_GGUF, DT_F32, NULL);
    assert_ok(lm_open(in_scratch("long.gguf"), &(lm_options){ .dt = DT_F32 }, &g, &d), d);
    assert_true(lm_config(m)->rope == MODEL_ROPE_HALF && lm_config(g)->rope == MODEL_ROPE_INTERLEAVED);
    float *a = malloc(sizeof *a * ROWS * COLS), *b = malloc(sizeof *b * ROWS * COLS);
    assert_true(a && b);
    assert_ok(lm_rows(m, MW_WQ, 0, 0, ROWS, DT_F32, a, &d), d);
    assert_ok(lm_rows(g, MW_WQ, 0, 0, ROWS, DT_F32, b, &d), d);
    for (int r = 0; r < ROWS; r++) {
        const int at = r % WIDE, from = r - at + at / 2 + at % 2 * (WIDE / 2);
        if (memcmp(b + r * COLS, a + from * COLS, sizeof *a * COLS))
            fail_msg("row %d is not row %d of the model", r, from);
    }
    free(a), free(b);
    lm_close(m), lm_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_there_and_back),
        cmocka_unit_test(types),
        cmocka_unit_test(llama2c_there_and_back),
        cmocka_unit_test(real_stories),
        cmocka_unit_test(compressed),
        cmocka_unit_test(gguf_blocks),
        cmocka_unit_test(npy_folder),
        cmocka_unit_test(refusals),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(blocks_without_a_scale),
        cmocka_unit_test(wide_numbers),
        cmocka_unit_test(with_vocabulary),
        cmocka_unit_test(part_of_a_vocabulary),
        cmocka_unit_test(gains),
        cmocka_unit_test(long_matrices),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
