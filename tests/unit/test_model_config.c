/* Shapes, lists and names: presets, what is refused and with which words, weights, ports, programs. */
#include "model_t.h"

static void presets_are_valid_and_have_the_published_size(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double millions, within;
    } rows[] = {
        { "stories260k", 0.26, 0.01 }, { "stories15m", 15.19, 0.01 },  { "stories42m", 41.69, 0.005 },
        { "stories110m", 109.53, 0.005 }, { "qwen3-0.6b", 596.05, 0.005 }, { "gpt2", 124.44, 0.005 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const model_config *c = model_preset_find(rows[i].name);
        assert_non_null(c);
        double got = (double)model_params(c) / 1e6;
        if (fabs(got - rows[i].millions) > rows[i].within)
            fail_msg("%s has %g million parameters, wanted %g", rows[i].name, got, rows[i].millions);
    }
    for (size_t i = 0; i < model_preset_count(); i++) {
        diag d = { 0 };
        assert_ok(model_config_check(model_preset_at(i), &d), d);
        assert_ptr_equal(model_preset_find(model_preset_at(i)->name), model_preset_at(i));
    }
    assert_null(model_preset_at(model_preset_count()));
    assert_null(model_preset_find("nope"));
}

static void set_i64(model_config *c, size_t at, int64_t x) { memcpy((char *)c + at, &x, sizeof x); }

static void bad_configurations_name_the_field(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        int64_t x;
        const char *says;
    } rows[] = {
#define F(f) offsetof(model_config, f)
        { F(n_layers), 0, "n_layers is 0, wanted 1 to 1000" },
        { F(dim), -5, "dim is -5" },
        { F(dim), 16385, "dim is 16385, wanted 1 to 16384" },
        { F(hidden), INT64_MAX, "hidden is" },
        { F(n_kv_heads), 5, "n_heads % n_kv_heads is 2, wanted 0" },
        { F(n_heads), 0, "n_heads is 0" },
        { F(head_dim), 63, "head_dim is 63, wanted an even number" },
        { F(head_dim), 0, "head_dim is 0" },
        { F(seq), 0, "seq is 0" },
        { F(seq), 2048, "seq is 2048, wanted at most the context" },
        { F(vocab), 1, "vocab is 1" },
        { F(vocab), 1 << 21, "vocab is" },
        { F(vocab_part), 100, "the number of vocabulary parts is 320, wanted at most 64" },
#undef F
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c = *model_preset_find("stories110m");
        set_i64(&c, rows[i].at, rows[i].x);
        diag d = { 0 };
        assert_int_equal(model_config_check(&c, &d), AN_INPUT);
        if (!strstr(d.msg, rows[i].says)) fail_msg("\"%s\" does not say \"%s\"", d.msg, rows[i].says);
        graph *g = NULL;
        diag d2 = { 0 };
        assert_int_equal(model_program_build(&c, &(model_program){ MK_FWD_ATTN, 0, 0 }, NULL, &g, &d2), AN_INPUT);
        assert_null(g);
    }
    static const struct {
        double eps, theta, alpha, scale;
        const char *says;
    } reals[] = {
        { 0, 1e4, 1, 1, "norm_eps is 0" },     { NAN, 1e4, 1, 1, "norm_eps is" },         { 1e-5, 0, 1, 1, "rope_theta is 0" },
        { 1e-5, INFINITY, 1, 1, "rope_theta" }, { 1e-5, 1e4, -1, 1, "alpha is -1" },       { 1e-5, 1e4, 1, 1e6, "loss_scale is 1e+06" },
    };
    for (size_t i = 0; i < COUNT(reals); i++) {
        model_config c = *model_preset_find("tiny");
        c.norm_eps = reals[i].eps, c.rope_theta = reals[i].theta, c.alpha = reals[i].alpha,
        c.loss_scale = reals[i].scale;
        diag d = { 0 };
        assert_int_equal(model_config_check(&c, &d), AN_INPUT);
        if (!strstr(d.msg, reals[i].says)) fail_msg("\"%s\" does not say \"%s\"", d.msg, reals[i].says);
    }
}

static void vocabulary_splits_cover_it_once(void **state)
{
    (void)state;
    static const struct {
        int64_t vocab, part;
        int parts;
    } rows[] = { { 32000, 0, 2 }, { 151936, 0, 16 }, { 50257, 0, 4 }, { 512, 0, 1 },
                 { 16384, 0, 1 }, { 16385, 0, 2 },   { 95, 40, 5 },   { 97, 40, 3 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        model_config c = { .vocab = rows[i].vocab, .vocab_part = rows[i].part };
        int n = model_vocab_parts(&c);
        assert_int_equal(n, rows[i].parts);
        int64_t next = 0, most = rows[i].part ? rows[i].part : MODEL_VOCAB_PART;
        for (int k = 0; k < n; k++) {
            int64_t first, size = model_vocab_part(&c, k, &first);
            assert_true(first == next && size > 0 && size <= most);
            next += size;
        }
        assert_true(next == rows[i].vocab);
    }
}

static void training_list_is_a_step_in_order(void **state)
{
    (void)state;
    static model_program p[512];
    const model_config *c = model_preset_find("stories110m");
    size_t n = model_program_list(c, MODEL_SET_TRAIN, p, COUNT(p));
    assert_int_equal(n, 12 * 8 + 6);
    assert_int_equal(model_program_list(c, MODEL_SET_TRAIN, NULL, 0), n);
    assert_int_equal(model_program_list(c, MODEL_SET_PREFILL, NULL, 0), 25);
    assert_int_equal(model_program_list(c, MODEL_SET_DECODE, NULL, 0), 25);
    assert_true(p[0].kind == MK_FWD_ATTN && p[0].layer == 0);
    assert_true(p[1].kind == MK_FWD_FFN && p[1].layer == 0);
    assert_true(p[24].kind == MK_FINAL_NORM);
    assert_true(p[30].kind == MK_FFN_BWD && p[30].layer == 11);
    assert_true(p[n - 1].kind == MK_ATTN_NORM_BWD && p[n - 1].layer == 0);
    model_program_list(c, MODEL_SET_PREFILL, p, COUNT(p));
    assert_true(p[0].kind == MK_PREFILL_ATTN && p[24].kind == MK_FINAL_NORM);
    for (size_t i = 0; i < 25; i++)
        for (size_t j = i + 1; j < 25; j++) {
            char a[64], b[64];
            model_program_name(c, &p[i], a, sizeof a), model_program_name(c, &p[j], b, sizeof b);
            assert_string_not_equal(a, b);
        }
    char name[64];
    model_program_name(c, &(model_program){ MK_FWD_ATTN, 3, 0 }, name, sizeof name);
    assert_string_equal(name, "stories110m_l03_fwd_attn_s256");
}

static void ports_sort_into_their_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(shapes) + model_preset_count(); i++) {
        const model_config *c = i < COUNT(shapes) ? &shapes[i] : model_preset_at(i - COUNT(shapes));
        for (int k = 0; k < MK_COUNT; k++)
            for (int in = 0; in < 2; in++) {
                model_port p[MODEL_MAX_PORTS];
                int n = model_kernel_ports(c, &(model_program){ (model_kind)k, 0, 16 }, in, p);
                assert_in_range(n, 1, MODEL_MAX_PORTS);
                for (int j = 0; j < n; j++) {
                    assert_true(p[j].channels > 0 && p[j].channels <= 65536);
                    assert_true(p[j].name[0] == (in ? 'i' : 'o'));
                    if (j) assert_true(strcmp(p[j - 1].name, p[j].name) < 0);
                    for (const char *s = p[j].name; *s; s++)
                        assert_true(strchr("abcdefghijklmnopqrstuvwxyz0123456789_", *s) != NULL);
                }
            }
    }
}

/* Every matrix a program asks for exists in the model's list with the same numbers of rows and columns, under a
 * stable path. */
typedef struct {
    const model_config *c;
    int seen;
    bool refuse;
} asked;

static bool check_ask(void *user, const model_weight *w, model_blob *b)
{
    asked *a = user;
    a->seen++;
    if (a->refuse) return false;
    char path[80];
    snprintf(path, sizeof path, "@model_path/weights/%s.bin", w->name);
    assert_string_equal(b->path, path);
    assert_true(b->offset == 64 && !b->data);
    static model_weight all[4096];
    size_t n = model_weights(a->c, all, COUNT(all));
    for (size_t i = 0; i < n; i++) {
        if (all[i].id != w->id || all[i].layer != w->layer) continue;
        const int64_t *have = all[i].type.sh.d, *want = w->type.sh.d;
        if (w->part >= 0) assert_true(w->row0 + want[w->transposed] <= have[0] && want[!w->transposed] == have[1]);
        else if (w->transposed) assert_true(have[0] == want[1] && have[1] == want[0]);
        else assert_true(have[0] == want[0] && have[1] == want[1] && !strcmp(all[i].name, w->name));
        b->path = "@model_path/one.bin", b->offset = 64 + 128 * (uint64_t)a->seen;
        return true;
    }
    fail_msg("%s is not a weight of %s", w->name, a->c->name);
    return false;
}

static void weights_are_asked_for_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < model_preset_count(); i++)
        for (int k = 0; k < MK_COUNT; k++) {
            asked a = { model_preset_at(i), 0, false };
            model_source src = { check_ask, &a };
            graph *g = NULL;
            diag d = { 0 };
            assert_ok(model_program_build(a.c, &(model_program){ (model_kind)k, 1, 16 }, &src, &g, &d), d);
            int refs = 0;
            for (size_t n = 1; n < g->nodes.n; n++) {
                const node *x = &g->nodes.at[n];
                if (x->op != OP_CONST || !x->cst->blob_path) continue;
                assert_string_equal(x->cst->blob_path, "@model_path/one.bin");
                refs++;
            }
            assert_int_equal(refs, a.seen); /* once each, however often it is used */
            graph_free(g);
            a.refuse = true;
            if (!refs) continue;
            diag d2 = { 0 };
            assert_int_equal(model_program_build(a.c, &(model_program){ (model_kind)k, 1, 16 }, &src, &g, &d2),
                             AN_INPUT);
            assert_non_null(strstr(d2.msg, "the weight source has no "));
            assert_null(g);
        }
}

static void bad_programs_are_refused(void **state)
{
    (void)state;
    const model_config *c = model_preset_find("tiny");
    static const struct {
        model_program p;
        const char *says;
    } rows[] = {
        { { MK_FWD_ATTN, 2, 0 }, "layer 2, wanted 0 to 1" },
        { { MK_FWD_ATTN, -1, 0 }, "layer -1" },
        { { MK_COUNT, 0, 0 }, "program kind" },
        { { MK_FWD_ATTN, 0, -3 }, "seq is -3" },
        { { MK_FWD_ATTN, 0, 257 }, "seq is 257, wanted at most the context" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        graph *g = NULL;
        diag d = { 0 };
        assert_int_equal(model_program_build(c, &rows[i].p, NULL, &g, &d), AN_INPUT);
        assert_null(g);
        if (!strstr(d.msg, rows[i].says)) fail_msg("\"%s\" does not say \"%s\"", d.msg, rows[i].says);
    }
}

static void tables_print_every_row(void **state)
{
    (void)state;
    static const char *const formats[] = { "text", "json", "markdown" };
    for (size_t f = 0; f < COUNT(formats); f++) {
        strbuf b = { 0 };
        model_kernels_print(&b, formats[f]);
        model_presets_print(&b, formats[f]);
        assert_false(b.oom);
        for (int k = 0; k < MK_COUNT; k++) {
            model_kind found;
            assert_non_null(strstr(b.at, model_kernel_name((model_kind)k)));
            assert_true(model_kernel_find(model_kernel_name((model_kind)k), &found) && (int)found == k);
        }
        for (size_t i = 0; i < model_preset_count(); i++) assert_non_null(strstr(b.at, model_preset_at(i)->name));
        sb_free(&b);
    }
    model_kind k;
    assert_false(model_kernel_find("nope", &k));
}

#define TEST(f) cmocka_unit_test_teardown(f, drop_memory)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(presets_are_valid_and_have_the_published_size),
        TEST(bad_configurations_name_the_field),
        TEST(vocabulary_splits_cover_it_once),
        TEST(training_list_is_a_step_in_order),
        TEST(ports_sort_into_their_order),
        TEST(weights_are_asked_for_by_name),
        TEST(bad_programs_are_refused),
        TEST(tables_print_every_row),
    };
    return cmocka_run_group_tests_name("model config", tests, NULL, NULL);
}
