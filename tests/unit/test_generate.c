/* Sessions and generation on devices: the same tokens however they are computed. */
#include <math.h>
#include <unistd.h>

#include "t.h"
#include "base/io.h"
#include "lm/generate.h"

#define DATA "../shared/data/llama2c/"
static char folder[64]; /* models and compiled programs of this run */

static bool have_stories(void) { return access(DATA "stories260K.bin", R_OK) == 0; }

/* ---- models ---- */

static const char gpt2_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_layer\":2,\"n_embd\":48,\"n_head\":4,\"n_positions\":160,\"n_ctx\":160,"
    "\"vocab_size\":300,\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-5}";
static const char qwen_json[] = "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":48,\"num_attention_heads\":4,"
                                "\"num_key_value_heads\":2,\"head_dim\":16,\"intermediate_size\":96,\"max_position_embeddings\":160,\"vocab_size\":300,\"hidden_act\":\"silu\","
                                "\"rms_norm_eps\":1e-6,\"rope_theta\":1000000,\"tie_word_embeddings\":false}";
static const char mistral_json[] = "{\"model_type\":\"mistral\",\"architectures\":[\"MistralForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":48,\"num_attention_heads\":4,"
                                   "\"num_key_value_heads\":1,\"intermediate_size\":96,\"max_position_embeddings\":160,\"sliding_window\":12,\"vocab_size\":300,"
                                   "\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-5,\"rope_theta\":10000,\"tie_word_embeddings\":false}";
#define GEMMA_JSON "\"num_hidden_layers\":2,\"hidden_size\":48,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,\"intermediate_size\":96,\"max_position_embeddings\":160,\"vocab_size\":300"
static const char gemma_json[] = "{\"model_type\":\"gemma\",\"architectures\":[\"GemmaForCausalLM\"]," GEMMA_JSON "}";
/* a chip takes windows that cut nothing off */
static const char gemma2_json[] =
    "{\"model_type\":\"gemma2\",\"architectures\":[\"Gemma2ForCausalLM\"]," GEMMA_JSON ",\"sliding_window\":160}";
typedef struct {
    const char *name, *json;
} family;
static const family families[] = { { "gpt2", gpt2_json },
                                   { "qwen3", qwen_json },
                                   { "mistral", mistral_json },
                                   { "gemma", gemma_json },
                                   { "gemma2", gemma2_json } };

static void config_path(const family *f, char *path, size_t n)
{
    diag d = { 0 };
    snprintf(path, n, "%s/%s", folder, f->name);
    assert_ok(dir_make(path, &d), d);
    snprintf(path, n, "%s/%s/config.json", folder, f->name);
    assert_ok(file_write(path, f->json, strlen(f->json), &d), d);
}

static lm_model *open_model(const char *what, dtype dt, lm_form form, uint64_t seed)
{
    lm_model *m;
    diag d = { 0 };
    assert_ok(lm_open(what, &(lm_options){ .dt = dt, .form = form, .seed = seed }, &m, &d), d);
    return m;
}

static lm_model *open_family(size_t i, dtype dt, uint64_t seed)
{
    char path[128];
    config_path(&families[i], path, sizeof path);
    return open_model(path, dt, LM_DENSE, seed);
}

static lm_session *open_session(lm_model *m, const char *engine, int64_t context)
{
    lm_session *s;
    diag d = { 0 };
    assert_ok(lm_session_open(
                  m, &(lm_session_options){ .engine = engine, .context = context, .cache_dir = folder, .threads = 1 },
                  &s, &d),
              d);
    return s;
}

/* ---- greedy ---- */

static size_t best_of(const float *x, size_t n)
{
    size_t k = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[k]) k = i;
    return k;
}

static void greedy(lm_session *s, const uint32_t *prompt, size_t n_prompt, uint32_t *out, size_t n, float *gap)
{
    const float *x;
    diag d = { 0 };
    size_t vocab = (size_t)lm_session_config(s)->vocab;
    assert_ok(lm_session_sync(s, prompt, n_prompt, &x, &d), d);
    for (size_t i = 0; i < n; i++) {
        size_t k = best_of(x, vocab);
        float second = -INFINITY;
        for (size_t v = 0; v < vocab; v++)
            if (v != k) second = fmaxf(second, x[v]);
        if (gap) gap[i] = x[k] - second;
        out[i] = (uint32_t)k;
        if (i + 1 < n) assert_ok(lm_session_feed(s, &out[i], 1, &x, &d), d);
    }
}

static bool add_text(void *user, const lm_token *t)
{
    sb_putn(user, t->text, t->n_text);
    return true;
}

static void stories_continue_as_published(void **state)
{
    (void)state;
    if (!have_stories()) skip();
    lm_model *m = open_model(DATA "stories260K.bin", DT_F32, LM_DENSE, 0);
    lm_session *s = open_session(m, "cpu", 0);
    tokenizer *t;
    diag d = { 0 };
    file_bytes want;
    assert_ok(tok_open(DATA "tok512.bin", &t, &d), d);
    assert_ok(file_read(DATA "stories260K_greedy_n200.txt", 1 << 20, &want, &d), d);
    strbuf text = { 0 };
    lm_generated out;
    assert_ok(lm_generate(s, t, (const uint32_t[]){ 1 }, 1,
                          &(lm_generate_options){ .max_tokens = 200, .on_token = add_text, .user = &text }, &out, &d),
              d);
    assert_int_equal(text.n, want.n);
    assert_memory_equal(text.at, want.at, want.n);
    assert_int_equal(out.new_tokens, 200);
    assert_int_equal(out.why, LM_STOP_LENGTH);
    file_drop(&want);
    sb_free(&text);
    tok_close(t);
    lm_session_close(s);
    lm_close(m);
}

/* Top-1 of 64 greedy tokens on both devices. */
static void same_on_both(lm_model *m, const char *name, const uint32_t *prompt, size_t n)
{
    uint32_t a[64], b[64];
    float gap[64];
    lm_session *cpu = open_session(m, "cpu", 0), *soft = open_session(m, "soft:m4", 0);
    greedy(cpu, prompt, n, a, 64, gap);
    greedy(soft, prompt, n, b, 64, NULL);
    for (size_t i = 0; i < 64; i++)
        if (a[i] != b[i])
            fail_msg("%s: token %zu is %u on cpu and %u on soft:m4 (the two largest logits are %g apart)", name, i,
                     a[i], b[i], (double)gap[i]);
    /* greedy texts of random weights soon repeat: the same on tokens that do not */
    size_t vocab = (size_t)lm_session_config(cpu)->vocab;
    lm_session_cut(cpu, 0), lm_session_cut(soft, 0);
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t id = (i * i * 7 + i) % (uint32_t)vocab;
        const float *x, *y;
        diag d = { 0 };
        float top = 0;
        assert_ok(lm_session_feed(cpu, &id, 1, &x, &d), d);
        assert_ok(lm_session_feed(soft, &id, 1, &y, &d), d);
        for (size_t v = 0; v < vocab; v++) top = fmaxf(top, fabsf(x[v]));
        for (size_t v = 0; v < vocab; v++)
            if (!(fabsf(x[v] - y[v]) <= 0.01f * top))
                fail_msg("%s: position %u, logit %zu is %g on cpu and %g on soft:m4", name, i, v, (double)x[v],
                         (double)y[v]);
    }
    lm_session_stats st;
    lm_session_get_stats(soft, &st);
    assert_int_equal(st.parts, st.programs); /* the whole model is one program */
    lm_session_close(cpu);
    lm_session_close(soft);
}

static void cpu_and_chip_agree(void **state)
{
    (void)state;
    static const uint32_t prompt[] = { 7, 201, 44, 3, 150 };
    for (size_t i = 0; i < COUNT(families); i++) {
        lm_model *m = open_family(i, DT_F16, 1 + i);
        same_on_both(m, families[i].name, prompt, COUNT(prompt));
        lm_close(m);
    }
    if (!have_stories()) return;
    lm_model *m = open_model(DATA "stories260K.bin", DT_F16, LM_DENSE, 0);
    same_on_both(m, "stories260K", (const uint32_t[]){ 1 }, 1);
    lm_close(m);
}

/* ---- the cache of compiled programs ---- */

static void the_second_start_compiles_nothing(void **state)
{
    (void)state;
    static const char *const engines[] = { "cpu", "soft:m4" };
    for (size_t e = 0; e < COUNT(engines); e++) {
        uint32_t ids[40], next[4];
        float got[2] = { 0 };
        for (uint32_t i = 0; i < 40; i++) ids[i] = i * 7 % 300;
        for (int start = 0; start < 2; start++) {
            /* other weights of the same shapes: the same programs */
            lm_model *m = open_family(1, DT_F16, 5 + (uint64_t)start);
            lm_session *s = open_session(m, engines[e], 96);
            lm_session_stats st;
            const float *x;
            diag d = { 0 };
            greedy(s, ids, 40, next, 4, NULL);
            assert_ok(lm_session_sync(s, ids, 40, &x, &d), d);
            got[start] = x[0];
            lm_session_get_stats(s, &st);
            assert_int_equal(st.programs, 2); /* a bucket and single tokens */
            assert_int_equal(st.compiles, start ? 0 : st.parts);
            assert_int_equal(st.cache_hits, start ? st.parts : 0);
            lm_session_close(s);
            lm_close(m);
        }
        assert_true(got[0] != got[1]); /* and yet other weights */
    }
}

/* ---- cutting, reusing, limits ---- */

static void near(const char *what, const float *a, const float *b, size_t n, double tol)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= tol))
            fail_msg("%s: logit %zu is %g and %g", what, i, (double)a[i], (double)b[i]);
}

typedef struct {
    float *rows;
    size_t vocab, n;
} kept;

static void keep_row(void *user, size_t i, const float *x)
{
    kept *k = user;
    assert_int_equal(i, k->n++);
    memcpy(k->rows + i * k->vocab, x, k->vocab * sizeof *x);
}

static void any_cutting_gives_the_same_logits(void **state)
{
    (void)state;
    enum { N = 157, V = 300 };
    for (size_t f = 0; f < COUNT(families); f++) {
        lm_model *m = open_family(f, DT_F32, 11);
        lm_session *s = open_session(m, "cpu", 160);
        uint32_t ids[N];
        diag d = { 0 };
        const float *x;
        static float rows[N * V], again[N * V];
        for (uint32_t i = 0; i < N; i++) ids[i] = i * i % V;
        for (size_t i = 0; i < N; i++) { /* token by token */
            assert_ok(lm_session_feed(s, &ids[i], 1, &x, &d), d);
            memcpy(rows + i * V, x, V * sizeof *x);
        }
        lm_session_cut(s, 0);
        kept k = { again, V, 0 };
        assert_ok(lm_session_feed_each(s, ids, N, keep_row, &k, &d), d);
        assert_int_equal(k.n, N);
        near(families[f].name, rows, again, N * V, 2e-4);
        lm_session_cut(s, 0);
        for (size_t i = 0, n; i < N; i += n) { /* prompts of all sizes; the last ones have no room for a bucket */
            static const size_t cuts[] = { 33, 1, 70, 2, 40, 11 };
            static size_t c;
            n = cuts[c++ % COUNT(cuts)];
            n = MIN(n, N - i);
            assert_ok(lm_session_feed(s, ids + i, n, &x, &d), d);
            near(families[f].name, rows + (i + n - 1) * V, x, V, 2e-4);
        }
        /* a beginning that is there already is not computed again */
        lm_session_stats a, b;
        lm_session_get_stats(s, &a);
        assert_ok(lm_session_sync(s, ids, 120, &x, &d), d);
        lm_session_get_stats(s, &b);
        assert_int_equal(b.computed - a.computed, 1);
        assert_int_equal(b.reused - a.reused, 119);
        near("reused", rows + 119 * V, x, V, 2e-4);
        uint32_t other[60];
        memcpy(other, ids, sizeof other);
        other[50]++;
        assert_ok(lm_session_sync(s, other, 60, &x, &d), d);
        lm_session_get_stats(s, &a);
        assert_int_equal(a.computed - b.computed, 10);
        assert_ok(lm_session_sync(s, other, 60, &x, &d), d); /* those are in it now */
        lm_session_get_stats(s, &b);
        assert_int_equal(b.computed - a.computed, 1);
        assert_int_equal(b.reused - a.reused, 59);
        lm_session_close(s);
        lm_close(m);
    }
}

static void what_does_not_fit_is_said(void **state)
{
    (void)state;
    lm_model *m = open_family(0, DT_F32, 1);
    lm_session *s = open_session(m, "cpu", 20);
    uint32_t ids[30] = { 0 };
    diag d = { 0 };
    const float *x;
    assert_int_equal(lm_session_sync(s, ids, 30, &x, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "30 tokens"));
    assert_non_null(strstr(d.msg, "20 positions"));
    d = (diag){ 0 };
    ids[3] = 300;
    assert_int_equal(lm_session_feed(s, ids, 5, &x, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "token 3 is 300"));
    lm_session_stats none;
    ids[3] = 0;
    d = (diag){ 0 };
    assert_ok(lm_session_sync(s, ids, 5, &x, &d), d); /* nothing of what was refused was taken */
    lm_session_get_stats(s, &none);
    assert_int_equal(none.reused, 0);
    d = (diag){ 0 };
    lm_session *t;
    assert_int_equal(
        lm_session_open(m, &(lm_session_options){ .engine = "cpu", .context = 161, .no_cache = true }, &t, &d),
        AN_INPUT);
    assert_non_null(strstr(d.msg, "161"));
    assert_non_null(strstr(d.msg, "160"));
    /* generation ends where the context does */
    lm_generated out;
    d = (diag){ 0 };
    ids[3] = 3;
    assert_ok(lm_generate(s, NULL, ids, 5, &(lm_generate_options){ .max_tokens = -1 }, &out, &d), d);
    assert_int_equal(out.why, LM_STOP_CONTEXT);
    assert_int_equal(out.new_tokens, 16); /* 15 more are fed, and the last one fed gives one more */
    lm_session_close(s);
    lm_close(m);
}

/* ---- drafts ---- */

typedef struct {
    const float *want; /* rows of the vocabulary */
    size_t vocab, first;
    long differ;
} together;

static void same_row(void *user, size_t i, const float *logits)
{
    together *t = user;
    for (size_t v = 0; v < t->vocab; v++)
        t->differ += memcmp(&logits[v], &t->want[(t->first + i) * t->vocab + v], sizeof *logits) != 0;
}

/* Logits of positions fed together, as drafts are, are those of positions fed one by one, to the bit: else a close
 * decision could turn. */
static void check_together(lm_model *m, const char *engine, const char *what)
{
    enum { ALL = 40, BEGIN = 13 };
    lm_session *s = open_session(m, engine, 64);
    together t = { .vocab = (size_t)lm_config(m)->vocab, .first = BEGIN };
    float *want = calloc(ALL * t.vocab, sizeof *want);
    uint32_t ids[ALL];
    const float *x;
    diag d = { 0 };
    assert_non_null(want);
    t.want = want;
    for (size_t i = 0; i < ALL; i++) {
        ids[i] = (uint32_t)((i * 7919 + 3) % t.vocab);
        assert_ok(lm_session_feed(s, &ids[i], 1, &x, &d), d);
        memcpy(want + i * t.vocab, x, t.vocab * sizeof *x);
    }
    lm_session_cut(s, BEGIN);
    for (size_t n = 2; t.first + n <= ALL; t.first += n, n = n % 7 + 2)
        assert_ok(lm_session_feed_each(s, ids + t.first, n, same_row, &t, &d), d);
    if (t.differ) fail_msg("%s on %s: %ld logits of %zu differ", what, engine, t.differ, (ALL - BEGIN) * t.vocab);
    free(want);
    lm_session_close(s);
}

static void together_is_as_alone(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        dtype dt;
        lm_form form;
    } rows[] = { { "fp32", DT_F32, LM_DENSE }, { "fp16", DT_F16, LM_DENSE }, { "bf16", DT_BF16, LM_DENSE },
                 { "int8", DT_F16, LM_INT8 },  { "int4", DT_F16, LM_INT4 },  { "palette4", DT_F16, LM_PALETTE4 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        lm_model *m = open_model("stories1m", rows[i].dt, rows[i].form, 5);
        check_together(m, "cpu", rows[i].name);
        lm_close(m);
        m = open_model("tiny", rows[i].dt, rows[i].form, 5);
        if (rows[i].dt == DT_F16) check_together(m, "soft:m4", rows[i].name);
        lm_close(m);
    }
    for (size_t i = 0; i < COUNT(families); i++)
        for (int wide = 0; wide < 2; wide++) {
            lm_model *m = open_family(i, wide ? DT_F32 : DT_F16, 7);
            check_together(m, "cpu", families[i].name);
            lm_close(m);
        }
}

typedef struct {
    uint32_t id[200];
    double logprob[200];
    size_t n;
} tokens;

static bool add_token(void *user, const lm_token *t)
{
    tokens *k = user;
    assert_int_equal(t->index, k->n);
    k->id[k->n] = t->id, k->logprob[k->n++] = t->logprob;
    return true;
}

static void drafts_change_nothing(void **state)
{
    (void)state;
    for (size_t f = 0; f < COUNT(families); f++)
        for (int mode = 0; mode < 6; mode++) {
            lm_model *m = open_family(f, DT_F32, 21), *other = open_family(f, DT_F32, mode < 4 ? 21 : 22);
            lm_session *s = open_session(m, "cpu", 0), *small = open_session(other, "cpu", 0);
            static const uint32_t prompt[] = { 5, 6, 7, 5, 6, 7, 5, 6 };
            lm_generate_options o = { .max_tokens = 100, .on_token = add_token };
            if (mode & 1) o.sampling = (lm_sampling){ .temperature = 0.8, .top_k = 5, .repetition = 1.1, .seed = 9 };
            tokens plain = { .n = 0 }, drafted = { .n = 0 };
            lm_generated out;
            diag d = { 0 };
            o.user = &plain;
            assert_ok(lm_generate(s, NULL, prompt, COUNT(prompt), &o, &out, &d), d);
            o.user = &drafted;
            if (mode < 2) o.draft.lookup = 3;
            else o.draft = (lm_draft){ .model = small, .tokens = 5 };
            assert_ok(lm_generate(s, NULL, prompt, COUNT(prompt), &o, &out, &d), d);
            assert_int_equal(drafted.n, plain.n);
            assert_memory_equal(plain.id, drafted.id, plain.n * sizeof *plain.id);
            for (size_t i = 0; i < plain.n; i++) assert_true(fabs(plain.logprob[i] - drafted.logprob[i]) < 1e-4);
            if (mode == 2) assert_int_equal(out.accepted, out.drafted); /* the same model, greedy: always right */
            if (mode == 2) assert_true(out.drafted > 60);
            lm_session_close(s);
            lm_session_close(small);
            lm_close(m);
            lm_close(other);
        }
}

/* ---- ends ---- */

static bool stop_after_three(void *user, const lm_token *t)
{
    (void)t;
    return ++*(int *)user < 3;
}

static void texts_end_where_they_should(void **state)
{
    (void)state;
    if (!have_stories()) skip();
    lm_model *m = open_model(DATA "stories260K.bin", DT_F32, LM_DENSE, 0);
    lm_session *s = open_session(m, "cpu", 0);
    tokenizer *t;
    diag d = { 0 };
    assert_ok(tok_open(DATA "tok512.bin", &t, &d), d);
    static const struct {
        const char *stop[2];
        size_t n;
        int64_t most;
        const char *text;
        lm_stop why;
    } rows[] = {
        { { "little", NULL }, 1, 100, "Once upon a time, there was a ", LM_STOP_STRING },
        { { "ime, th", "zzz" }, 2, 100, "Once upon a t", LM_STOP_STRING },
        { { "Once", NULL }, 1, 100, "", LM_STOP_STRING },
        { { "little boy", NULL }, 1, 18, NULL, LM_STOP_LENGTH }, /* a beginning of it waits, and comes in the end */
        { { NULL, NULL }, 0, 0, "", LM_STOP_LENGTH },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf text = { 0 };
        lm_generated out;
        lm_generate_options o = {
            .max_tokens = rows[i].most, .stop = rows[i].stop, .n_stop = rows[i].n, .on_token = add_text, .user = &text
        };
        assert_ok(lm_generate(s, t, (const uint32_t[]){ 1 }, 1, &o, &out, &d), d);
        sb_putc(&text, 0);
        if (rows[i].text) assert_string_equal(text.at, rows[i].text);
        else assert_non_null(strstr(text.at, "little"));
        assert_int_equal(out.why, rows[i].why);
        sb_free(&text);
    }
    /* a text goes on behind its prompt; an answer begins */
    for (int fresh = 0; fresh < 2; fresh++) {
        strbuf text = { 0 };
        tok_encoder *e;
        tok_ids ids = { 0 };
        lm_generated out;
        assert_ok(tok_encoder_new(t, &e, &d), d);
        assert_ok(tok_encode(e, "Once upon", 9, TOK_BOS, &ids, &d), d);
        assert_ok(lm_generate(
                      s, t, ids.at, ids.n,
                      &(lm_generate_options){ .max_tokens = 2, .new_text = fresh, .on_token = add_text, .user = &text },
                      &out, &d),
                  d);
        sb_putc(&text, 0);
        assert_string_equal(text.at, fresh ? "a time" : " a time");
        sb_free(&text);
        tok_ids_free(&ids);
        tok_encoder_free(e);
    }
    int n = 0;
    lm_generated out;
    assert_ok(lm_generate(s, t, (const uint32_t[]){ 1 }, 1,
                          &(lm_generate_options){ .max_tokens = 50, .on_token = stop_after_three, .user = &n }, &out,
                          &d),
              d);
    assert_int_equal(n, 3);
    assert_int_equal(out.why, LM_STOP_CALLER);
    tok_close(t);
    lm_session_close(s);
    lm_close(m);
}

/* ---- perplexity, and what compression costs ---- */

static double nats_of(lm_model *m, const char *engine, const uint32_t *ids, size_t n, size_t *count)
{
    lm_session *s = open_session(m, engine, 0);
    lm_score score;
    diag d = { 0 };
    assert_ok(lm_eval(s, ids, n, NULL, NULL, &score, &d), d);
    *count = score.tokens;
    lm_session_close(s);
    return score.nats / (double)score.tokens;
}

static void windows_predict_each_token_once(void **state)
{
    (void)state;
    enum { N = 50, C = 20, V = 300 };
    lm_model *m = open_family(1, DT_F32, 3);
    lm_session *s = open_session(m, "cpu", C);
    uint32_t ids[N];
    double want = 0;
    diag d = { 0 };
    for (uint32_t i = 0; i < N; i++) ids[i] = i * 31 % V;
    for (size_t i = 0; i + 1 < N; i++) { /* windows 0 .. 19, 20 .. 39, 40 .. 48 of tokens fed */
        const float *x;
        size_t from = i / C * C;
        assert_ok(lm_session_sync(s, ids + from, i - from + 1, &x, &d), d);
        want -= lm_logprob(x, V, ids[i + 1]);
    }
    lm_score score;
    assert_ok(lm_eval(s, ids, N, NULL, NULL, &score, &d), d);
    assert_int_equal(score.tokens, N - 1);
    assert_true(fabs(score.nats - want) < 1e-3);
    assert_int_equal(lm_eval(s, ids, 1, NULL, NULL, &score, &d), AN_INPUT);
    lm_session_close(s);
    lm_close(m);
}

/* A vocabulary shorter than the embedding: rows behind its end are never chosen, and have their share of the
 * probability, as eval has it. */
/* Weights that are no numbers, and ones that leave the range of fp16 on the way, give no score: it would be no
 * number either. */
static void no_score_of_no_numbers(void **state)
{
    (void)state;
    static const struct {
        float gain;
        dtype dt;
        const char *want;
    } rows[] = { { NAN, DT_F32, "token 0, 5," },
                 { 65000, DT_F16, "token 0, 5," },
                 { 1e6f, DT_F16, "past the range of fp16" },
                 { 65000, DT_F32, NULL } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char path[160], file[200];
        diag d = { 0 };
        lm_model *m = open_family(1, DT_F32, 3);
        lm_converted done;
        lm_score score;
        file_bytes f;
        snprintf(path, sizeof path, "%s/no-numbers-%zu", folder, i);
        assert_ok(lm_convert(m, path, &(lm_convert_options){ .to = LM_TO_NPY, .dt = DT_F32 }, &done, &d), d);
        lm_close(m);
        snprintf(file, sizeof file, "%s/norm_f.npy", path);
        assert_ok(file_read(file, 1 << 20, &f, &d), d);
        for (size_t k = 0; k < 48; k++) memcpy(f.at + f.n - 4 * (k + 1), &rows[i].gain, 4);
        assert_ok(file_write(file, f.at, f.n, &d), d);
        file_drop(&f);
        m = open_model(path, rows[i].dt, LM_DENSE, 0);
        lm_session *s;
        an_status st = lm_session_open(
            m, &(lm_session_options){ .engine = "cpu", .context = 32, .cache_dir = folder, .threads = 1 }, &s, &d);
        if (!st) st = lm_eval(s, (const uint32_t[]){ 5, 7, 11, 2 }, 4, NULL, NULL, &score, &d);
        if (st != (rows[i].want ? AN_INPUT : AN_OK) || (rows[i].want && !strstr(d.msg, rows[i].want)))
            fail_msg("row %zu: status %d: %s", i, (int)st, d.msg);
        if (!st) assert_true(isfinite(score.nats));
        lm_session_close(s);
        lm_close(m);
    }
}

static void rows_behind_the_last_token(void **state)
{
    (void)state;
    enum { N = 40, NEW = 20 };
    char name[N][16];
    tok_str token[N];
    float score[N];
    for (int i = 0; i < N; i++)
        snprintf(name[i], sizeof name[i], "t%d", i), token[i] = (tok_str){ name[i], strlen(name[i]) },
                                                     score[i] = -(float)i;
    tok_vocab v = { .model = "llama", .n = N, .token = token, .score = score, .bos = -1, .eos = -1, .unk = 0, .pad = -1,
                    .add_bos = 0, .add_eos = 0, .add_space_prefix = 0 };
    tokenizer *t;
    diag d = { 0 };
    assert_ok(tok_from_vocab("short", &v, &t, &d), d);
    lm_model *m = open_family(1, DT_F32, 3);
    lm_session *s = open_session(m, "cpu", 0);
    tokens k = { .n = 0 };
    uint32_t ids[1 + NEW] = { 5 };
    double sum = 0;
    lm_generated out;
    lm_score said;
    lm_generate_options o = {
        .max_tokens = NEW, .sampling = { .temperature = 1, .seed = 3 }, .on_token = add_token, .user = &k
    };
    assert_ok(lm_generate(s, t, ids, 1, &o, &out, &d), d);
    assert_int_equal(k.n, NEW);
    for (size_t i = 0; i < NEW; i++) assert_true(k.id[i] < N), ids[1 + i] = k.id[i], sum -= k.logprob[i];
    assert_ok(lm_eval(s, ids, 1 + NEW, NULL, NULL, &said, &d), d);
    if (!(fabs(said.nats - sum) < 1e-3)) fail_msg("%g nats by eval, %g by what was generated", said.nats, sum);
    lm_session_close(s);
    lm_close(m);
    tok_close(t);
}

static void compressed_weights_cost_little(void **state)
{
    (void)state;
    if (!have_stories()) skip();
    static const struct {
        dtype dt;
        lm_form form;
        const char *engine;
        double most; /* nats more than fp32 */
    } rows[] = { { DT_F16, LM_DENSE, "cpu", 0.001 }, { DT_F16, LM_INT8, "cpu", 0.02 },         { DT_F16, LM_INT4, "cpu", 0.5 },
                 { DT_F16, LM_PALETTE4, "cpu", 0.6 }, { DT_F16, LM_DENSE, "soft:m4", 0.01 }, { DT_F16, LM_INT8, "soft:m4", 0.03 },
                 { DT_BF16, LM_DENSE, "cpu", 0.02 },  { DT_BF16, LM_DENSE, "soft:m4", 0.01 },  { DT_F16, LM_INT4, "soft:m4", 0.5 },
                 { DT_F16, LM_PALETTE4, "soft:m4", 0.6 } };
    lm_model *m = open_model(DATA "stories260K.bin", DT_F32, LM_DENSE, 0);
    lm_session *s = open_session(m, "cpu", 0);
    uint32_t text[260] = { 1 };
    size_t n;
    greedy(s, text, 1, text + 1, 255, NULL);
    lm_session_close(s);
    double base = nats_of(m, "cpu", text, 256, &n);
    lm_close(m);
    assert_int_equal(n, 255);
    for (size_t i = 0; i < COUNT(rows); i++) {
        m = open_model(DATA "stories260K.bin", rows[i].dt, rows[i].form, 0);
        double nats = nats_of(m, rows[i].engine, text, 256, &n);
        print_message("%s %s on %s: %+.5f nats\n", lm_form_name(rows[i].form), dtype_name(rows[i].dt), rows[i].engine,
                      nats - base);
        if (!(fabs(nats - base) <= rows[i].most))
            fail_msg("%s on %s: %g nats, fp32 has %g", lm_form_name(rows[i].form), rows[i].engine, nats, base);
        lm_close(m);
    }
}

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/anneal-generate-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    char cmd[100];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", folder);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stories_continue_as_published),
        cmocka_unit_test(cpu_and_chip_agree),
        cmocka_unit_test(the_second_start_compiles_nothing),
        cmocka_unit_test(any_cutting_gives_the_same_logits),
        cmocka_unit_test(what_does_not_fit_is_said),
        cmocka_unit_test(together_is_as_alone),
        cmocka_unit_test(drafts_change_nothing),
        cmocka_unit_test(texts_end_where_they_should),
        cmocka_unit_test(windows_predict_each_token_once),
        cmocka_unit_test(no_score_of_no_numbers),
        cmocka_unit_test(rows_behind_the_last_token),
        cmocka_unit_test(compressed_weights_cost_little),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
