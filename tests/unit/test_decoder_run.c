/* Decoder steps as programs of the plain processor: positions and caches become the instructions made for them, the
 * cache is written in place, and the answer is that of the graph. */
#include "model_t.h"

#include "codegen/codegen.h"
#include "model/decoder.h"

#define SHAPE_OF                                                                                                       \
    .n_layers = 2, .dim = 32, .hidden = 48, .seq = 4, .context = 160, .vocab = 40, .rope_theta = 1e4,                  \
    .norm_eps = 1e-5, .dt = DT_F32
static const model_config forms[] = {
    { .name = "gqa", SHAPE_OF, .n_heads = 4, .n_kv_heads = 2, .head_dim = 8, .rope = MODEL_ROPE_HALF, .tied = true },
    { .name = "window", SHAPE_OF, .n_heads = 4, .n_kv_heads = 1, .head_dim = 8, .rope = MODEL_ROPE_INTERLEAVED, .window = 5 },
    { .name = "learned", SHAPE_OF, .n_heads = 4, .n_kv_heads = 4, .head_dim = 8, .norm = MODEL_NORM_LAYER, .act = MODEL_ACT_GELU, .bias = true, .tied = true },
};

typedef struct {
    decoder dec;
    program *p;
    image *im;
    void *in[16], *out[16];
} step_run;

static an_status bytes_of(void *user, const char *path, uint64_t offset, dtype dt, uint64_t bytes,
                          const unsigned char **at, diag *d)
{
    step_run *r = user;
    (void)offset, (void)dt;
    for (size_t i = 1; i < r->dec.g->nodes.n; i++) {
        const node *n = &r->dec.g->nodes.at[i];
        size_t have = 0;
        if (n->op != OP_CONST || !n->cst->blob_path || strcmp(n->cst->blob_path, path)) continue;
        assert_true(shape_bytes(graph_type(r->dec.g, n->out), &have) && have == bytes);
        *at = n->cst->data;
        return AN_OK;
    }
    return diag_fail(d, AN_INPUT, NOWHERE, "no weight %s", path);
}

static const double *fed(const model_config *c, const char *name, rng *r, int64_t n, const int32_t *pos, int64_t T)
{
    double *x = randoms(r, n, 1);
    for (int64_t t = 0; t < T && !strcmp(name, "pos"); t++) x[t] = pos[t];
    if (!strcmp(name, "pick")) x[0] = (double)(T - 1);
    (void)c;
    return x;
}

static void run_case(const model_config *c, int64_t T, int64_t p0, int64_t C, bool reference, pool *threads, rng *r)
{
    store s = { c, rng_next(r) };
    step_run run = { .p = NULL };
    diag d = { 0 };
    model_source src = { .get = store_get, .user = &s };
    decoder_options o = { .use = DECODER_STEP, .seq = T, .cache = C };
    assert_ok(decoder_build(c, &o, &src, &run.dec, &d), d);
    graph *g = run.dec.g;
    int32_t pos[200];
    for (int64_t t = 0; t < T; t++) pos[t] = (int32_t)(p0 + t);
    tensor64 *in = TAKE(&test_mem, tensor64, g->inputs.n), *want = TAKE(&test_mem, tensor64, g->outputs.n);
    assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &run.p, &d), d);
    assert_in_range(run.p->inputs.n, 1, COUNT(run.in));
    assert_in_range(run.p->outputs.n, 1, COUNT(run.out));
    int attends = 0, scatters = 0, ropes = 0;
    for (size_t i = 0; i < run.p->insns.n; i++) {
        const insn_id op = run.p->insns.at[i].op;
        attends += op == IN_ATTEND_AT, scatters += op == IN_SCATTER, ropes += op == IN_ROPE;
    }
    assert_int_equal(attends, c->n_layers);
    assert_int_equal(scatters, 2 * c->n_layers);
    assert_int_equal(ropes, c->rope == MODEL_ROPE_NONE ? 0 : 2 * c->n_layers);
    weight_source w = { .user = &run, .record = bytes_of };
    assert_ok(image_load(&run.im, run.p, &w, &(image_options){ .reference = reference, .pool = threads }, &d), d);

    /* the same numbers to the graph and to the program; a cache is one buffer on both sides */
    for (size_t i = 0; i < g->inputs.n; i++) {
        const value *v = graph_value(g, g->inputs.at[i]);
        int64_t n = 0;
        assert_true(shape_elems(&v->type.sh, &n));
        in[i] = (tensor64){ v->type, (double *)(uintptr_t)fed(c, v->name, r, n, pos, T) };
        for (size_t k = 0; k < run.p->inputs.n; k++) {
            if (strcmp(run.p->inputs.at[k].name, v->name)) continue;
            run.in[k] = TAKE(&test_mem, unsigned char, run.p->inputs.at[k].bytes);
            for (int64_t j = 0; j < n; j++) {
                dtype_store(v->type.dt, run.in[k], j, in[i].x[j]);
                in[i].x[j] = dtype_load(v->type.dt, run.in[k], j);
            }
        }
    }
    assert_ok(graph_eval(g, in, want, &test_mem, &d), d);
    for (size_t k = 0; k < run.p->outputs.n; k++) {
        const char *name = run.p->outputs.at[k].name;
        for (size_t j = 0; j < run.p->inputs.n; j++)
            if (strlen(name) == 7 && !strncmp(name, run.p->inputs.at[j].name, 3) && !run.p->inputs.at[j].name[3])
                run.out[k] = run.in[j];
        if (!run.out[k]) run.out[k] = TAKE(&test_mem, unsigned char, run.p->outputs.at[k].bytes);
    }
    uint64_t before = image_bytes(run.im);
    assert_ok(image_run(run.im, (const void *const *)run.in, run.out, &d), d);
    /* no copy of a cache was made */
    if (!reference) assert_true(image_bytes(run.im) - before < run.p->inputs.at[0].bytes);
    for (size_t k = 0; k < run.p->outputs.n; k++)
        for (size_t j = 0; j < g->outputs.n; j++) {
            int64_t n = 0;
            if (strcmp(g->outputs.at[j].name, run.p->outputs.at[k].name)) continue;
            assert_true(shape_elems(&want[j].type.sh, &n));
            double *got = room(n);
            for (int64_t i = 0; i < n; i++) got[i] = dtype_load(want[j].type.dt, run.out[k], i);
            close_to(run.p->outputs.at[k].name, got, want[j].x, n, 2e-3);
        }
    image_free(run.im);
    program_free(run.p);
    graph_free(g);
    drop_memory(NULL);
}

static void steps_run_in_place(void **state)
{
    (void)state;
    static const struct {
        int64_t T, p0, C;
    } sizes[] = { { 1, 0, 8 },    { 1, 7, 8 },    { 1, 130, 150 }, { 4, 0, 9 },
                  { 4, 66, 150 }, { 70, 3, 150 }, { 150, 0, 150 } };
    rng r = { test_seed("in place") };
    pool *threads;
    diag d = { 0 };
    assert_ok(pool_make(&threads, 2, &d), d);
    for (size_t f = 0; f < COUNT(forms); f++)
        for (size_t i = 0; i < COUNT(sizes); i++)
            for (int how = 0; how < 3; how++)
                run_case(&forms[f], sizes[i].T, sizes[i].p0, sizes[i].C, how == 2, how ? threads : NULL, &r);
    pool_free(threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(steps_run_in_place, drop_memory) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
