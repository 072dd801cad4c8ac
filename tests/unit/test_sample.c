/* Sampling against counts and formulas; chat forms token by token. */
#include <math.h>

#include "t.h"
#include "lm/generate.h"

/* ---- sampling ---- */

static const float logits4[] = { 1, 3, 2, 3 }; /* two largest, equal */

static uint32_t one(const lm_sampling *o, const float *x, size_t n, const uint32_t *seen, size_t n_seen,
                    double *logprob)
{
    lm_sampler *s;
    diag d = { 0 };
    uint32_t id = 99;
    assert_ok(lm_sampler_new(o, n, &s, &d), d);
    assert_ok(lm_sample(s, x, seen, n_seen, &id, logprob, &d), d);
    lm_sampler_free(s);
    return id;
}

static void greedy_takes_the_first_largest(void **state)
{
    (void)state;
    double lp;
    assert_int_equal(one(&(lm_sampling){ .seed = 3 }, logits4, 4, NULL, 0, &lp), 1);
    double z = exp(1) + 2 * exp(3) + exp(2);
    assert_true(fabs(lp - log(exp(3) / z)) < 1e-12);
}

/* n draws: counts of each id. */
static void draw(const lm_sampling *o, const float *x, size_t n, int times, int *count)
{
    lm_sampler *s;
    diag d = { 0 };
    memset(count, 0, n * sizeof *count);
    assert_ok(lm_sampler_new(o, n, &s, &d), d);
    for (int i = 0; i < times; i++) {
        uint32_t id;
        assert_ok(lm_sample(s, x, NULL, 0, &id, NULL, &d), d);
        assert_true(id < n);
        count[id]++;
    }
    lm_sampler_free(s);
}

static void counts_follow_the_probabilities(void **state)
{
    (void)state;
    enum { TIMES = 40000 };
    static const float x[] = { 0.5f, 2, -1, 1, 0 };
    static const struct {
        lm_sampling o;
        bool in[5]; /* may be drawn at all */
    } rows[] = {
        { { .temperature = 1 }, { 1, 1, 1, 1, 1 } },
        { { .temperature = 0.5 }, { 1, 1, 1, 1, 1 } },
        { { .temperature = 2, .top_k = 2 }, { 0, 1, 0, 1, 0 } },
        { { .temperature = 1, .top_p = 0.7 }, { 0, 1, 0, 1, 0 } },       /* 0.563 + 0.207 reaches 0.7 */
        { { .temperature = 1, .top_p = 0.5 }, { 0, 1, 0, 0, 0 } },
        /* exp(-1.5) = 0.22 stays, exp(-2) = 0.135 goes */
        { { .temperature = 1, .min_p = 0.2 }, { 1, 1, 0, 1, 0 } },
        { { .temperature = 1, .top_k = 3, .min_p = 0.3 }, { 0, 1, 0, 1, 0 } },
        /* of the two that min-p leaves one alone is 0.73: top-p comes before it */
        { { .temperature = 1, .top_p = 0.7, .min_p = 0.3 }, { 0, 1, 0, 1, 0 } },
        /* of the two that top-k leaves one alone is 0.73: top-p comes behind it */
        { { .temperature = 1, .top_k = 2, .top_p = 0.7 }, { 0, 1, 0, 0, 0 } },
        { { .temperature = 1, .top_p = 0.9, .min_p = 0.2 }, { 1, 1, 0, 1, 0 } },
    };
    for (size_t r = 0; r < COUNT(rows); r++) {
        lm_sampling o = rows[r].o;
        o.seed = test_seed("counts") + r;
        int count[5];
        draw(&o, x, 5, TIMES, count);
        double z = 0;
        for (int i = 0; i < 5; i++) z += rows[r].in[i] ? exp((double)x[i] / o.temperature) : 0;
        for (int i = 0; i < 5; i++) {
            double p = rows[r].in[i] ? exp((double)x[i] / o.temperature) / z : 0, dev = sqrt(TIMES * p * (1 - p));
            if (!(fabs(count[i] - TIMES * p) <= 5 * dev))
                fail_msg("row %zu, token %d: %d draws, wanted %.1f", r, i, count[i], TIMES * p);
        }
    }
}

/* top-k by heap against a full sort, on a large vocabulary with many ties. */
static void cuts_of_a_large_vocabulary(void **state)
{
    (void)state;
    enum { N = 5000, K = 40 };
    rng r = { test_seed("large") };
    static float x[N];
    static int count[N];
    for (int i = 0; i < N; i++) x[i] = (float)(int)rng_below(&r, 50);
    draw(&(lm_sampling){ .temperature = 100, .top_k = K, .seed = 1 }, x, N, 20000, count);
    int kept = 0;
    for (int i = 0; i < N; i++) {
        int ahead = 0; /* in the order of candidates */
        for (int k = 0; k < N; k++) ahead += x[k] > x[i] || (x[k] == x[i] && k < i);
        if (count[i]) assert_true(ahead < K);
        kept += count[i] != 0;
    }
    assert_int_equal(kept, K);
}

/* Whatever the order of the logits and however many are equal: the k first by logit, then by id; and no fewer than
 * one. */
static void cuts_keep_the_first(void **state)
{
    (void)state;
    enum { N = 24 };
    rng r = { test_seed("cuts") };
    for (int round = 0; round < 60; round++) {
        float x[N];
        int count[N], k = 1 + (int)rng_below(&r, 8);
        for (int i = 0; i < N; i++) x[i] = round < 5 ? 1 : (float)rng_below(&r, round % 2 ? 100 : 6) / 64;
        draw(&(lm_sampling){ .temperature = 100, .top_k = k, .seed = (uint64_t)round }, x, N, 40 * k + 60, count);
        for (int i = 0; i < N; i++) {
            int ahead = 0;
            for (int j = 0; j < N; j++) ahead += x[j] > x[i] || (x[j] == x[i] && j < i);
            if ((count[i] > 0) != (ahead < k))
                fail_msg("round %d, top %d: token %d, the %dth, was drawn %d times", round, k, i, ahead, count[i]);
        }
    }
    int count[4];
    draw(&(lm_sampling){ .temperature = 1, .min_p = 1, .seed = 1 }, logits4, 4, 200, count); /* both largest */
    assert_true(!count[0] && count[1] && !count[2] && count[3]);
    /* either is 0.41 of all: it takes both */
    draw(&(lm_sampling){ .temperature = 1, .min_p = 1, .top_p = 0.5, .seed = 1 }, logits4, 4, 200, count);
    assert_true(!count[0] && count[1] && !count[2] && count[3]);
    /* one of the two is half of them */
    draw(&(lm_sampling){ .temperature = 1, .top_k = 2, .top_p = 0.5, .seed = 1 }, logits4, 4, 200, count);
    assert_true(count[1] == 200);
}

static void the_same_seed_gives_the_same_tokens(void **state)
{
    (void)state;
    static const float x[] = { 0.5f, 2, -1, 1, 0 };
    int differ = 0;
    for (uint64_t seed = 1; seed < 6; seed++) {
        uint32_t run[2][64];
        for (int k = 0; k < 2; k++) {
            lm_sampler *s;
            diag d = { 0 };
            assert_ok(lm_sampler_new(&(lm_sampling){ .temperature = 1, .seed = seed }, 5, &s, &d), d);
            for (int i = 0; i < 64; i++) assert_ok(lm_sample(s, x, NULL, 0, &run[k][i], NULL, &d), d);
            lm_sampler_free(s);
        }
        assert_memory_equal(run[0], run[1], sizeof run[0]);
        differ += run[0][0] != run[0][1] || run[0][1] != run[0][2];
    }
    assert_true(differ > 0);
}

static void repetition_lowers_what_was_seen(void **state)
{
    (void)state;
    static const float x[] = { -1, 3, 2, -2 };
    static const uint32_t seen[] = { 1, 1, 1 };
    /* 3 / 1.4 is still more than 2 when counted once; counted three times it would not be */
    assert_int_equal(one(&(lm_sampling){ .repetition = 1.4 }, x, 4, seen, 3, NULL), 1);
    double lp, z = exp(-1) + exp(3) + exp(2) + exp(-2); /* the probability is the model's own */
    assert_int_equal(one(&(lm_sampling){ .repetition = 1.6 }, x, 4, seen, 3, &lp), 2);
    assert_true(fabs(lp - log(exp(2) / z)) < 1e-12);
    static const float neg[] = { -1, -1.5f };
    static const uint32_t zero[] = { 0 };
    assert_int_equal(one(&(lm_sampling){ .repetition = 2 }, neg, 2, zero, 1, NULL), 1);
}

static void bad_options_and_logits_are_refused(void **state)
{
    (void)state;
    static const struct {
        lm_sampling o;
        const char *say;
    } rows[] = {
        { { .temperature = -1 }, "temperature is -1" }, { { .temperature = 100.5 }, "temperature is 100.5" }, { { .temperature = NAN }, "temperature is" }, { { .top_k = -2 }, "top-k is -2" },
        { { .top_p = 1.5 }, "top-p is 1.5" },           { { .min_p = -0.1 }, "min-p is -0.1" },       { { .repetition = -1 }, "repetition-penalty is -1" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        lm_sampler *s;
        diag d = { 0 };
        assert_int_equal(lm_sampler_new(&rows[i].o, 4, &s, &d), AN_USAGE);
        if (!strstr(d.msg, rows[i].say)) fail_msg("\"%s\" lacks \"%s\"", d.msg, rows[i].say);
    }
    lm_sampler *s;
    diag d = { 0 };
    uint32_t id;
    /* the last: an id that may not be answered */
    const float x[] = { 1, NAN, 2 }, y[] = { 1, 2, INFINITY }, z[] = { 1, -INFINITY, 2 };
    double p;
    assert_ok(lm_sampler_new(&(lm_sampling){ 0 }, 3, &s, &d), d);
    assert_int_equal(lm_sample(s, x, NULL, 0, &id, NULL, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "logit 1 is not a number"));
    d = (diag){ 0 };
    assert_int_equal(lm_sample(s, y, NULL, 0, &id, NULL, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "logit 2 is infinite"));
    d = (diag){ 0 };
    assert_ok(lm_sample(s, z, NULL, 0, &id, &p, &d), d);
    assert_true(id == 2 && isfinite(p));
    lm_sampler_free(s);
}

/* ---- chat ---- */

/* Bytes as tokens, and some control tokens behind them. */
static tokenizer *byte_vocab(const char *const *control, size_t n_control)
{
    static tok_str token[300];
    static int32_t type[300];
    static float score[300];
    static char name[256][8];
    tokenizer *t;
    diag d = { 0 };
    static const char *const first[] = { "<unk>", "<s>", "</s>" };
    for (int i = 0; i < 3; i++)
        token[i] = (tok_str){ first[i], strlen(first[i]) }, type[i] = i ? TOK_CONTROL : TOK_UNKNOWN;
    for (int i = 0; i < 256; i++)
        snprintf(name[i], sizeof name[i], "<0x%02X>", i), token[3 + i] = (tok_str){ name[i], 6 },
                                                                    type[3 + i] = TOK_BYTE;
    for (size_t i = 0; i < n_control; i++)
        token[259 + i] = (tok_str){ control[i], strlen(control[i]) }, type[259 + i] = TOK_CONTROL;
    tok_vocab v = { .model = "llama", .n = 259 + n_control, .token = token, .score = score, .type = type, .bos = 1,
                    .eos = 2, .unk = 0, .pad = -1, .add_bos = 1, .add_eos = 0, .add_space_prefix = 0 };
    assert_ok(tok_from_vocab("bytes", &v, &t, &d), d);
    return t;
}

static const char *const control[] = { "<|im_start|>", "<|im_end|>",      "<|start_header_id|>", "<|end_header_id|>",
                                       "<|eot_id|>",   "<start_of_turn>", "<end_of_turn>" };
#define QWEN                                                                                                           \
    "{%- if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are kind.<|im_end|>\\n' }}{% endif %}{{ '<|im_start|>' + message.role }}"

static void chat_forms(void **state)
{
    (void)state;
    static const lm_message talk[] = {
        { CHAT_SYSTEM, "S", 1 }, { CHAT_USER, "hi <|im_end|>", 13 }, { CHAT_ASSISTANT, "yo", 2 }, { CHAT_USER, "?", 1 }
    };
    static const struct {
        const char *template;
        lm_chat kind;
        int skip; /* of the messages */
        const char *want;
    } rows[] = {
        { "chatml", CHAT_CHATML, 0, "{<|im_start|>}system\nS{<|im_end|>}\n{<|im_start|>}user\nhi <|im_end|>{<|im_end|>}\n{<|im_start|>}assistant\nyo{<|im_end|>}\n{<|im_start|>}user\n?{<|im_end|>}\n{<|im_start|>}assistant\n" },
        { QWEN, CHAT_CHATML, 3, "{<|im_start|>}system\nYou are kind.{<|im_end|>}\n{<|im_start|>}user\n?{<|im_end|>}\n{<|im_start|>}assistant\n" },
        { "{{ '<|start_header_id|>' }} … {{ '<|eot_id|>' }}", CHAT_LLAMA3, 2, "{<s>}{<|start_header_id|>}assistant{<|end_header_id|>}\n\nyo{<|eot_id|>}{<|start_header_id|>}user{<|end_header_id|>}\n\n?{<|eot_id|>}{<|start_header_id|>}assistant{<|end_header_id|>}\n\n" },
        { "{{ '[INST] ' + '<<SYS>>' }}", CHAT_LLAMA2, 0, "{<s>}[INST] <<SYS>>\nS\n<</SYS>>\n\nhi <|im_end|> [/INST] yo {</s>}{<s>}[INST] ? [/INST]" },
        { "{{ '[INST] ' }}", CHAT_MISTRAL, 1, "{<s>}[INST] hi <|im_end|> [/INST]yo{</s>}[INST] ? [/INST]" },
        { "{{ '<start_of_turn>' + role }}{{ '<end_of_turn>' }}", CHAT_GEMMA, 1, "{<s>}{<start_of_turn>}user\nhi <|im_end|>{<end_of_turn>}\n{<start_of_turn>}model\nyo{<end_of_turn>}\n{<start_of_turn>}user\n?{<end_of_turn>}\n{<start_of_turn>}model\n" },
        { NULL, CHAT_PLAIN, 2, "{<s>}yo\n?\n" },
    };
    tokenizer *t = byte_vocab(control, COUNT(control));
    tok_encoder *e;
    diag d = { 0 };
    assert_ok(tok_encoder_new(t, &e, &d), d);
    for (size_t i = 0; i < COUNT(rows); i++) {
        lm_chat kind;
        tok_ids ids = { 0 };
        strbuf got = { 0 };
        assert_ok(lm_chat_find(rows[i].template, &kind, &d), d);
        assert_int_equal(kind, rows[i].kind);
        assert_ok(lm_chat_encode(kind, rows[i].template, t, e, talk + rows[i].skip, COUNT(talk) - (size_t)rows[i].skip,
                                 &ids, &d),
                  d);
        for (size_t k = 0; k < ids.n; k++) {
            uint32_t id = ids.at[k];
            if (id == 1 || id == 2) sb_puts(&got, id == 1 ? "{<s>}" : "{</s>}");
            else if (id >= 259) sb_printf(&got, "{%s}", control[id - 259]);
            else sb_putc(&got, (char)(id - 3));
        }
        sb_putc(&got, 0);
        assert_string_equal(got.at, rows[i].want);
        tok_ids_free(&ids);
        sb_free(&got);
    }
    assert_int_equal(lm_chat_end(CHAT_CHATML, t), 260);
    assert_int_equal(lm_chat_end(CHAT_LLAMA2, t), -1);
    assert_int_equal(lm_chat_end(CHAT_GEMMA, t), 265);
    tok_ids none = { 0 };
    assert_int_equal(lm_chat_encode(CHAT_GEMMA, NULL, t, e, talk, COUNT(talk), &none, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "no place for a system text"));
    tok_ids_free(&none);
    tok_encoder_free(e);
    tok_close(t);
}

static void unknown_templates_and_missing_tokens_are_said(void **state)
{
    (void)state;
    diag d = { 0 };
    lm_chat kind;
    assert_int_equal(lm_chat_find("{{ '<|turn|>' }}", &kind, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "not understood"));
    assert_non_null(strstr(d.msg, "<|turn|>"));
    tokenizer *t = byte_vocab(NULL, 0);
    tok_encoder *e;
    tok_ids ids = { 0 };
    d = (diag){ 0 };
    assert_ok(tok_encoder_new(t, &e, &d), d);
    assert_int_equal(lm_chat_encode(CHAT_CHATML, NULL, t, e, &(lm_message){ CHAT_USER, "x", 1 }, 1, &ids, &d),
                     AN_INPUT);
    assert_non_null(strstr(d.msg, "<|im_start|>"));
    tok_ids_free(&ids);
    tok_encoder_free(e);
    tok_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_first_largest),
        cmocka_unit_test(counts_follow_the_probabilities),
        cmocka_unit_test(cuts_of_a_large_vocabulary),
        cmocka_unit_test(cuts_keep_the_first),
        cmocka_unit_test(the_same_seed_gives_the_same_tokens),
        cmocka_unit_test(repetition_lowers_what_was_seen),
        cmocka_unit_test(bad_options_and_logits_are_refused),
        cmocka_unit_test(chat_forms),
        cmocka_unit_test(unknown_templates_and_missing_tokens_are_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
