/* test_lm_tok: which tokenizer a run has, that its checkpoints hold it, and samples: prompts that do not fit, ids
 * nothing spells, weights no sample comes out of. */
#include "format/gguf.h"
#include "lm_run_t.h"
#include "text/story.h"
#include "text/text.h"

static const char corpus_text[] =
    "hello world, hello worlds: the world's 1234 hellos; don't caf\xc3\xa9 the hello wor world\n<|endoftext|>\nlow older wold hello hello 'll\n<|endoftext|>\n";

typedef struct {
    small_run r;
    char json[100], pair[200], bin[100], model[100], gguf[100], text[100];
} kinds;

static const char *at(const small_run *r, const char *name, char *to, size_t n)
{
    snprintf(to, n, "%s/%s", r->dir, name);
    return to;
}

static void put_file(const char *path, const strbuf *b)
{
    diag d = { 0 };
    assert_false(b->oom);
    assert_ok(file_write(path, b->at, b->n, &d), d);
}

static void put_le(strbuf *b, const void *p) { sb_putn(b, p, 4); } /* little-endian machines */

/* llama2.c's: 259 tokens that are always there, and a few to merge. */
static void make_bin(const char *path)
{
    static const char *const words[] = { "h",  "e", "l", "o", " ",  "he", "ll",   "hell",  "hello",
                                         " w", "w", "r", "d", "or", "ld", "orld", " world" };
    strbuf b = { 0 };
    int32_t n = 8;
    put_le(&b, &n);
    for (int32_t i = 0; i < 259 + (int32_t)COUNT(words); i++) {
        char name[16];
        float score = i < 259 ? 0 : -(float)i;
        if (i < 3) snprintf(name, sizeof name, "%s", i == 0 ? "<unk>" : i == 1 ? "\n<s>\n" : "\n</s>\n");
        else if (i < 259) snprintf(name, sizeof name, "<0x%02X>", (unsigned)i - 3);
        else snprintf(name, sizeof name, "%s", words[i - 259]);
        n = (int32_t)strlen(name);
        put_le(&b, &score), put_le(&b, &n), sb_puts(&b, name);
    }
    put_file(path, &b);
    sb_free(&b);
}

/* The same vocabularies in the other forms files have. */
static void make_other_forms(const kinds *k)
{
    diag d = { 0 };
    arena mem = { 0 };
    tokenizer *t;
    tok_vocab v;
    const char *lost;
    char path[120];
    strbuf vocab = { 0 }, merges = { 0 }, model = { 0 };
    assert_ok(tok_open(k->json, &t, &d), d);
    assert_ok(tok_to_vocab(t, 0, &mem, &v, &lost, &d), d);
    sb_puts(&vocab, "{"), sb_puts(&merges, "#version: 0.2\n");
    for (size_t i = 0; i < v.n; i++)
        sb_puts(&vocab, i ? "," : ""), sb_json(&vocab, v.token[i].at, v.token[i].n), sb_printf(&vocab, ":%zu", i);
    sb_puts(&vocab, "}");
    for (size_t i = 0; i < v.n_merges; i++) sb_printf(&merges, "%.*s\n", (int)v.merge[i].n, v.merge[i].at);
    put_file(at(&k->r, "words.json", path, sizeof path), &vocab);
    put_file(at(&k->r, "joins", path, sizeof path), &merges);
    tok_close(t);
    assert_ok(tok_open(k->bin, &t, &d), d);
    assert_ok(tok_to_vocab(t, 0, &mem, &v, &lost, &d), d);
    assert_string_equal(tok_vocab_file(&v, &model), "tokenizer.model");
    put_file(k->model, &model);
    tok_close(t);
    sb_free(&vocab), sb_free(&merges), sb_free(&model);
    arena_free(&mem);
}

/* The model of the run, with random weights, as a file of the kind its name says. */
static void convert(const small_run *r, const char *vocab, const char *to, lm_target kind)
{
    diag d = { 0 };
    lm_model *m;
    lm_converted done;
    tokenizer *t = NULL;
    assert_ok(lm_open(r->model, &(lm_options){ .dt = DT_F32, .seed = 9 }, &m, &d), d);
    if (vocab) assert_ok(tok_open(vocab, &t, &d), d);
    assert_ok(
        lm_convert(m, to, &(lm_convert_options){ .to = kind, .dt = DT_F32, .version = -1, .vocab = t }, &done, &d), d);
    tok_close(t);
    lm_close(m);
}

/* The run's configuration with rows for any vocabulary here. */
static const char *wide_model(const small_run *r, char *to, size_t n)
{
    file_bytes f;
    strbuf b = { 0 };
    diag d = { 0 };
    assert_ok(file_read(r->model, 1 << 20, &f, &d), d);
    char *rows = strstr((char *)f.at, ":300,");
    assert_non_null(rows);
    sb_putn(&b, (const char *)f.at, (size_t)(rows - (char *)f.at));
    sb_printf(&b, ":4000,%s", rows + 5);
    put_file(at(r, "wide.json", to, n), &b);
    sb_free(&b);
    file_drop(&f);
    return to;
}

static void kinds_begin(kinds *k)
{
    diag d = { 0 };
    strbuf json = { 0 }, text = { 0 };
    small_begin(&k->r);
    const small_run *r = &k->r;
    at(r, "mine.json", k->json, sizeof k->json), at(r, "tok300.bin", k->bin, sizeof k->bin),
        at(r, "pieces.model", k->model, sizeof k->model);
    at(r, "m.gguf", k->gguf, sizeof k->gguf), at(r, "text.txt", k->text, sizeof k->text);
    snprintf(k->pair, sizeof k->pair, "%s/words.json,%s/joins", r->dir, r->dir);
    assert_ok(tok_train(corpus_text, sizeof corpus_text - 1, &(tok_train_options){ .vocab = 280 }, &json, &d), d);
    put_file(k->json, &json);
    for (int i = 0; i < 20; i++) sb_puts(&text, corpus_text);
    put_file(k->text, &text);
    sb_free(&json), sb_free(&text);
    make_bin(k->bin);
    make_other_forms(k);
    convert(r, k->bin, k->gguf, LM_TO_GGUF);
}

/* ---- checkpoints ---- */

static void same_ids(const tokenizer *a, const tokenizer *b, const char *what)
{
    static const char *const texts[] = { "",
                                         "hello world",
                                         "  Hello,\tworld!\r\n\n 12345 ",
                                         "caf\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x9a\x80\xe2\x96\x81",
                                         "\xff\xc3 \x80\x01\xed\xa0\x80",
                                         "<s>hello</s><|endoftext|><unk>",
                                         "don't the world's 'll" };
    diag d = { 0 };
    tok_encoder *x, *y;
    tok_info p, q;
    tok_get(a, &p), tok_get(b, &q);
    if (p.n != q.n || p.bos != q.bos || p.eos != q.eos || p.add_bos != q.add_bos || p.add_eos != q.add_eos)
        fail_msg("%s: %u tokens, %u again, or other ends", what, p.n, q.n);
    assert_ok(tok_encoder_new(a, &x, &d), d);
    assert_ok(tok_encoder_new(b, &y, &d), d);
    for (size_t i = 0; i < 2 * COUNT(texts); i++) {
        tok_ids u = { 0 }, v = { 0 };
        const char *s = texts[i / 2];
        assert_ok(tok_encode(x, s, strlen(s), i % 2 ? TOK_SPECIAL : 0, &u, &d), d);
        assert_ok(tok_encode(y, s, strlen(s), i % 2 ? TOK_SPECIAL : 0, &v, &d), d);
        if (u.n != v.n || (u.n && memcmp(u.at, v.at, u.n * sizeof *u.at)))
            fail_msg("%s: text %zu: %zu ids, %zu again, or others", what, i / 2, u.n, v.n);
        tok_ids_free(&u), tok_ids_free(&v);
    }
    tok_encoder_free(x), tok_encoder_free(y);
}

/* One update, then what the checkpoint's folder has as its own beside what the run was given. */
static void holds(const kinds *k, const char *named, const char *model, const char *data, const char *want)
{
    small_run r = k->r;
    lm_run_result q;
    diag d = { 0 };
    lm_model *m;
    tokenizer *t, *u;
    char file[160];
    path_info i;
    r.warned[0] = 0, r.n = 0;
    lm_run_options o = small_options(&r, "cpu");
    o.model = model, o.tokenizer = named, o.data = data, o.steps = 1;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_string_equal(r.warned, "");
    assert_ok(lm_open(r.save, &(lm_options){ 0 }, &m, &d), d);
    assert_ok(lm_tokenizer_of(m, &u, &d), d);
    lm_close(m);
    if (named || strcmp(model, r.model)) assert_ok(lm_tokenizer_open(named ? named : model, &t, &d), d);
    else assert_ok(story_tokenizer(300, &t, &d), d);
    same_ids(t, u, named ? named : model);
    tok_close(t), tok_close(u);
    snprintf(file, sizeof file, "%s/step-00000001/%s", r.save, want);
    if (!path_look(file, &i)) fail_msg("%s: no %s in the checkpoint", named ? named : model, want);
    small_remove(r.save);
}

static void checkpoints(void **state)
{
    (void)state;
    kinds k;
    char folder[100], single[100], beside[120], wide[100];
    file_bytes f;
    diag d = { 0 };
    kinds_begin(&k);
    const char *model = k.r.model;
    holds(&k, k.json, model, k.text, "tokenizer.json");
    holds(&k, k.pair, model, k.text, "merges.txt");
    holds(&k, k.bin, model, k.text, "tokenizer.bin");
    holds(&k, k.model, model, k.text, "tokenizer.model");
    holds(&k, k.gguf, model, k.text, "tokenizer.model");
    holds(&k, k.bin, model, k.r.data, "tokenizer.bin"); /* ids need none, samples do */
    holds(&k, "builtin:stories", wide_model(&k.r, wide, sizeof wide), k.text, "tokenizer.json");
    holds(&k, NULL, model, NULL, "tokenizer.json"); /* the stories' */
    /* a trained model's own: in it, in its folder, beside its file */
    holds(&k, NULL, k.gguf, NULL, "tokenizer.model");
    convert(&k.r, k.bin, at(&k.r, "hf", folder, sizeof folder), LM_TO_HF);
    holds(&k, NULL, folder, k.text, "tokenizer_config.json");
    at(&k.r, "lone", folder, sizeof folder);
    assert_ok(dir_make(folder, &d), d);
    convert(&k.r, NULL, at(&k.r, "lone/m.bin", single, sizeof single), LM_TO_LLAMA2C);
    assert_ok(file_read(k.bin, 1 << 20, &f, &d), d);
    assert_ok(file_write(at(&k.r, "lone/tokenizer.bin", beside, sizeof beside), f.at, f.n, &d), d);
    file_drop(&f);
    holds(&k, folder, single, k.text, "tokenizer.bin");
    lm_run_result q;
    lm_run_options o = small_options(&k.r, "cpu");
    o.model = single, o.data = k.text, o.steps = 1;
    assert_ok(lm_run(&o, &q, &d), d);
    snprintf(beside, sizeof beside, "%s/step-00000001/tokenizer.bin", k.r.save);
    path_info i;
    assert_true(path_look(beside, &i));
    small_end(&k.r);
}

/* What lies beside a tokenizer says which tokens begin and end a text: that goes along. */
static void files_beside(void **state)
{
    (void)state;
    static const char config[] =
        "{\"bos_token\":\"<|endoftext|>\",\"eos_token\":null,\"add_bos_token\":true,\"chat_template\":\"{{ x }}\"}";
    kinds k;
    char path[120];
    diag d = { 0 };
    kinds_begin(&k);
    assert_ok(file_write(at(&k.r, "tokenizer_config.json", path, sizeof path), config, sizeof config - 1, &d), d);
    holds(&k, k.json, k.r.model, k.text, "tokenizer_config.json");
    small_end(&k.r);
}

/* ---- how texts begin and end ---- */

/* 256 tokens, one for each byte, none of which begins or ends a text. */
static void make_plain(const char *path)
{
    strbuf b = { 0 };
    int more = 256;
    sb_puts(
        &b,
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        bool seen = (i > 32 && i < 127) || (i > 160 && i != 173);
        sb_printf(&b, "%s\"\\u%04x\":%d", i ? "," : "", (unsigned)(seen ? i : more++), i);
    }
    sb_puts(&b, "}}}");
    put_file(path, &b);
    sb_free(&b);
}

/* What a checkpoint says after one update of this model with this tokenizer; and the two open beside each other. */
static void ends_of(const small_run *s, const char *model, const char *tok, lm_generation *out)
{
    small_run r = *s;
    lm_run_result q;
    lm_model *m;
    tokenizer *t;
    diag d = { 0 };
    lm_run_options o = small_options(&r, "cpu");
    o.model = model, o.tokenizer = tok, o.steps = 1;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_ok(lm_open(r.save, &(lm_options){ 0 }, &m, &d), d);
    assert_ok(lm_tokenizer_of(m, &t, &d), d);
    *out = *lm_generation_of(m);
    tok_close(t);
    lm_close(m);
    small_remove(r.save);
}

/* A model's own ends stay but where the vocabulary has no such tokens and none of its own instead: those would keep
 * it from opening beside the weights. A model from a seed has the vocabulary's. */
static void ends_of_texts(void **state)
{
    (void)state;
    static const struct { const char *ids; int64_t bos; int n_eos; int64_t eos[2]; } rows[] = {
        { "\"bos_token_id\": 255, \"eos_token_id\": 254", 255, 1, { 254 } },
        { "\"bos_token_id\": 256, \"eos_token_id\": 255", -1, 1, { 255 } },
        { "\"bos_token_id\": 255, \"eos_token_id\": 256", 255, 0, { 0 } },
        { "\"bos_token_id\": 298, \"eos_token_id\": [299, 7, 298, 8]", -1, 2, { 7, 8 } },
    };
    kinds k;
    char plain[120], model[100], path[120];
    lm_generation g;
    diag d = { 0 };
    kinds_begin(&k);
    make_plain(at(&k.r, "plain.json", plain, sizeof plain));
    convert(&k.r, NULL, at(&k.r, "ends", model, sizeof model), LM_TO_HF);
    snprintf(path, sizeof path, "%.90s/config.json", model);
    file_bytes f;
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf b = { 0 };
        sb_printf(&b, "{%s,%s", rows[i].ids, strchr((const char *)f.at, '{') + 1);
        put_file(path, &b);
        sb_free(&b);
        ends_of(&k.r, model, plain, &g);
        if (g.bos != rows[i].bos || g.n_eos != rows[i].n_eos ||
            memcmp(g.eos, rows[i].eos, (size_t)g.n_eos * sizeof *g.eos))
            fail_msg("%s: a text begins with %lld and has %d ends, the first %lld", rows[i].ids, (long long)g.bos,
                     g.n_eos, (long long)g.eos[0]);
        if (i) continue;
        ends_of(&k.r, model, k.bin, &g); /* a vocabulary with ends of its own changes none that are there */
        assert_true(g.bos == 255 && g.n_eos == 1 && g.eos[0] == 254);
    }
    file_drop(&f);
    ends_of(&k.r, k.r.model, k.bin, &g);
    assert_true(g.bos == 1 && g.n_eos == 1 && g.eos[0] == 2);
    ends_of(&k.r, k.r.model, plain, &g);
    assert_true(g.bos == -1 && g.n_eos == 0);
    small_end(&k.r);
}

/* ---- none ---- */

/* The stories' ids mean nothing to a model that was trained with others. */
static void trained_without(void **state)
{
    (void)state;
    static const struct { const char *name; lm_target to; } rows[] = { { "a.bin", LM_TO_LLAMA2C }, { "a.gguf", LM_TO_GGUF }, { "a.safetensors", LM_TO_SAFETENSORS }, { "hf", LM_TO_HF }, { "npy", LM_TO_NPY } };
    kinds k;
    kinds_begin(&k);
    for (size_t i = 0; i < COUNT(rows); i++) {
        char model[100], folder[100];
        lm_run_result q;
        diag d = { 0 };
        at(&k.r, "alone", folder, sizeof folder);
        assert_ok(dir_make(folder, &d), d);
        snprintf(model, sizeof model, "%.80s/%s", folder, rows[i].name);
        convert(&k.r, NULL, model, rows[i].to);
        lm_run_options o = small_options(&k.r, "cpu");
        o.model = model, o.steps = 1, o.save = NULL;
        assert_ok(lm_run(&o, &q, &d), d); /* ids */
        const char *const texts[] = { NULL, "builtin:stories", k.text };
        for (size_t t = 0; t < COUNT(texts); t++) {
            o.data = texts[t], d = (diag){ 0 }, k.r.n = 0;
            an_status st = lm_run(&o, &q, &d);
            if (st != AN_USAGE || !strstr(d.msg, model) || !strstr(d.msg, "--tokenizer") || k.r.n)
                fail_msg("%s, text %zu: status %d, %d updates: %s", model, t, (int)st, k.r.n, d.msg);
        }
        o.tokenizer = k.bin, d = (diag){ 0 };
        assert_ok(lm_run(&o, &q, &d), d);
        small_remove(folder);
    }
    small_end(&k.r);
}

/* ---- samples ---- */

typedef struct {
    small_run r;
    int samples;
    size_t bytes;
} sampled;

static void take_sample(void *user, int64_t step, const char *text, size_t n)
{
    sampled *s = user;
    (void)step, (void)text;
    s->samples++, s->bytes += n;
}

static lm_run_options sampling(sampled *s)
{
    lm_run_options o = small_options(&s->r, "cpu"); /* r comes first: user is both */
    o.data = NULL, o.save = NULL, o.steps = 4, o.sample_every = 1, o.on_sample = take_sample;
    return o;
}

static void prompts(void **state)
{
    (void)state;
    sampled s = { 0 };
    lm_run_result q;
    diag d = { 0 };
    char prompt[200];
    small_begin(&s.r);
    lm_run_options o = sampling(&s);
    memset(prompt, '~', sizeof prompt); /* no story has any: a token each, behind BOS */
    prompt[62] = 0;
    o.prompt = prompt;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(s.samples == 4 && s.bytes > 4 * 62);
    prompt[62] = '~', prompt[63] = 0, s.samples = s.r.n = 0;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "--prompt has 64 tokens; at most 63 and a new one"));
    assert_true(s.samples == 0 && s.r.n == 0);
    d = (diag){ 0 }, o.sample_every = -1; /* nothing is made of it */
    assert_ok(lm_run(&o, &q, &d), d);
    /* a vocabulary that cannot spell it */
    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}";
    char path[120];
    assert_ok(file_write(at(&s.r, "ab.json", path, sizeof path), json, sizeof json - 1, &d), d);
    o.sample_every = 1, o.tokenizer = path, o.data = s.r.data, o.prompt = "abc", s.r.n = 0;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    assert_true(strstr(d.msg, "--prompt: ") && s.r.n == 0);
    small_end(&s.r);
}

/* Rows no token has are never chosen, however many there are. */
static void rows_without_tokens(void **state)
{
    (void)state;
    sampled s = { 0 };
    lm_run_result q;
    diag d = { 0 };
    char path[120];
    static const char json[] =
        "{\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]}}";
    small_begin(&s.r);
    assert_ok(file_write(at(&s.r, "ab.json", path, sizeof path), json, sizeof json - 1, &d), d);
    lm_run_options o = sampling(&s);
    o.tokenizer = path, o.data = s.r.data, o.prompt = "a", o.sample_tokens = 8;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_string_equal(s.r.warned, "");
    assert_int_equal(s.samples, 4);
    small_end(&s.r);
}

/* Ids of a tokenizer that the model has no rows for are refused before anything is trained, although the data have
 * none of them. */
static void tokens_without_rows(void **state)
{
    (void)state;
    for (int n = 300; n <= 301; n++) {
        small_run r;
        lm_run_result q;
        diag d = { 0 };
        strbuf json = { 0 };
        char path[120];
        small_begin(&r);
        sb_puts(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
        for (int i = 0; i < n; i++) sb_printf(&json, "%s\"t%d\":%d", i ? "," : "", i, i);
        sb_puts(&json, "},\"merges\":[]}}");
        put_file(at(&r, "many.json", path, sizeof path), &json);
        lm_run_options o = small_options(&r, "cpu");
        o.tokenizer = path, o.steps = 1;
        const an_status st = lm_run(&o, &q, &d);
        if (st != (n > 300 ? AN_INPUT : AN_OK) || r.n != (n == 300))
            fail_msg("%d tokens: status %d: %s", n, (int)st, d.msg);
        if (st) assert_true(strstr(d.msg, "the tokenizer has 301 tokens") && strstr(d.msg, "takes at most 300"));
        sb_free(&json);
        small_end(&r);
    }
}

/* Weights after an update that was far too large: no logit is a number. The run goes on to its end. */
static void sample_that_fails(void **state)
{
    (void)state;
    sampled s = { 0 };
    lm_run_result q;
    diag d = { 0 };
    small_begin(&s.r);
    lm_run_options o = sampling(&s);
    o.steps = 2, o.optimizer = "sgd", o.lr = 1e18, o.warmup = -1, o.schedule = "constant", o.clip = -1;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(q.done == 2 && s.samples == 0);
    assert_true(strstr(s.r.warned, "no sample after step 1: logit ") &&
                strstr(s.r.warned, "no sample after step 2: logit "));
    small_end(&s.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints),       cmocka_unit_test(files_beside),
        cmocka_unit_test(ends_of_texts),     cmocka_unit_test(trained_without),
        cmocka_unit_test(prompts),           cmocka_unit_test(rows_without_tokens),
        cmocka_unit_test(sample_that_fails), cmocka_unit_test(tokens_without_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
