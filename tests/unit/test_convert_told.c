/* What a conversion tells beside the file it writes: types that three parts of one tensor share, sizes, and errors. */
#include <math.h>
#include <stdlib.h>

#include "format/npy.h"
#include "lm_t.h"

#define GPT2 "{\"model_type\":\"gpt2\",\"n_embd\":32,\"n_head\":4,\"n_layer\":1,\"n_positions\":16,\"vocab_size\":48,\"eos_token_id\":2}"

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
            if (memcmp(x, y, (size_t)(t.rows * t.cols) * sizeof *x)) fail_msg("weight %d of layer %d is not as it was", id, l);
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
    enum { V = 48, D = 32, C = 16, F = 4 * D, NUMBERS = V * D + C * D + 3 * D * D + 3 * D + D * D + D + 2 * D * F + F + D + 6 * D, MATRIX = V * D + 4 * D * D + 2 * D * F };
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(parts_of_other_types), cmocka_unit_test(sizes) };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
