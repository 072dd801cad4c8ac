/* test_codegen.c: what becomes one instruction and what does not, where roundings fall, where memory goes, what
 * stays in weight files, how state and ports look, and what is refused. */
#include <math.h>

#include "codegen_t.h"
#include "model/model.h"

/* ---- one pass of the engine ---- */

static const struct {
    const char *what, *text;
    int products, chains; /* left on a device that rounds each pass, at either level */
} passes[] = {
    { "scale, bias, relu", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\ns = const fp16[1, 6, 1, 1] all 2\nb = const fp16[6, 1, 1] all 1\n"
                           "c = conv(x, w)\nm = mul(c, s)\na = add(b, m)\ny = relu(a)\nreturn y\n", 1, 0 },
    { "bias of the op, tanh", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\nb = const fp16[6] all 1\nc = conv(x, w, b)\ny = tanh(c)\nreturn y\n", 1, 0 },
    { "batch norm", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\np = const fp16[6] all 1\nc = conv(x, w)\nn = batch_norm(c, p, p, p, p)\ny = relu(n)\nreturn y\n", 1, 2 },
    { "bias before scale", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\nb = const fp16[6] all 1\ns = const fp16[1, 6, 1, 1] all 2\n"
                           "c = conv(x, w, b)\ny = mul(c, s)\nreturn y\n", 1, 1 },
    { "two live inputs", "x = input fp16[1, 4, 1, 8]\nr = input fp16[1, 6, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\nc = conv(x, w)\ny = add(c, r)\nreturn y\n", 1, 1 },
    { "bias along the width", "x = input fp16[1, 4, 1, 8]\nb = const fp16[8] all 1\nw = const fp16[6, 4, 1, 1] all 0.5\nc = conv(x, w)\ny = add(c, b)\nreturn y\n", 1, 1 },
    { "live bias", "x = input fp16[1, 4, 1, 8]\nb = input fp16[1, 6, 1, 1]\nw = const fp16[6, 4, 1, 1] all 0.5\nc = conv(x, w)\ny = add(c, b)\nreturn y\n", 1, 1 },
    { "two offsets", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\nb = const fp16[6] all 1\na = const fp16[6, 1, 1] all 2\nc = conv(x, w, b)\ny = add(c, a)\nreturn y\n", 1, 1 },
    { "offset less product", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\nb = const fp16[6, 1, 1] all 1\nc = conv(x, w)\ny = sub(b, c)\nreturn y\n", 1, 1 },
    { "two activations", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\nc = conv(x, w)\nr = relu(c)\ny = tanh(r)\nreturn y\n", 1, 1 },
    { "weights first, bias of rows", "x = input fp16[4, 8]\nw = const fp16[6, 4] all 0.5\nb = const fp16[6, 1] all 1\nc = matmul(w, x)\ny = add(c, b)\nreturn y\n", 1, 0 },
    { "weights first, bias of columns", "x = input fp16[4, 8]\nw = const fp16[6, 4] all 0.5\nb = const fp16[8] all 1\nc = matmul(w, x)\ny = add(c, b)\nreturn y\n", 1, 1 },
    { "used twice", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\nc = conv(x, w)\ns = sigmoid(c)\ny = mul(c, s)\nreturn y\n", 1, 2 },
    { "itself a result", "x = input fp16[1, 4, 1, 8]\nw = const fp16[6, 4, 1, 1] all 0.5\nc = conv(x, w)\ny = relu(c)\nreturn y, c\n", 1, 1 },
    { "linear, relu", "x = input fp16[3, 5, 4]\nw = const fp16[6, 4] all 0.5\nb = const fp16[6] all 1\nc = linear(x, w, b)\ny = relu(c)\nreturn y\n", 1, 0 },
    { "product, bias in rows", "x = input fp16[3, 5, 4]\nw = const fp16[4, 6] all 0.5\nb = const fp16[1, 6] all 1\nc = matmul(x, w)\na = add(c, b)\ny = silu(a)\nreturn y\n", 1, 0 },
    { "one batch of two heads", "x = input fp16[1, 2, 3, 4]\nz = input fp16[1, 2, 4, 5]\ns = const fp16[1] all 0.5\nc = matmul(x, z)\ny = mul(c, s)\nreturn y\n", 1, 0 },
    { "bias with all its axes", "x = input fp16[1, 2, 3, 4]\nw = const fp16[4, 6] all 0.5\nb = const fp16[1, 1, 1, 6] all 1\nc = matmul(x, w)\na = add(c, b)\ny = silu(a)\nreturn y\n", 1, 0 },
    { "the same of heads", "x = input fp16[1, 2, 3, 4]\nz = input fp16[1, 2, 4, 6]\nb = const fp16[1, 1, 1, 6] all 1\nc = matmul(x, z)\ny = add(c, b)\nreturn y\n", 1, 0 },
    { "weights first, one batch", "x = input fp16[1, 2, 4, 8]\nw = const fp16[6, 4] all 0.5\nb = const fp16[1, 1, 6, 1] all 1\nc = matmul(w, x)\ny = add(c, b)\nreturn y\n", 1, 0 },
    { "bias by heads", "x = input fp16[1, 2, 3, 4]\nz = input fp16[1, 2, 4, 6]\nb = const fp16[1, 2, 1, 1] all 1\nc = matmul(x, z)\ny = add(c, b)\nreturn y\n", 1, 1 },
    { "bias by rows", "x = input fp16[1, 2, 3, 4]\nw = const fp16[4, 6] all 0.5\nb = const fp16[1, 1, 3, 1] all 1\nc = matmul(x, w)\ny = add(c, b)\nreturn y\n", 1, 1 },
    { "dot product", "x = input fp16[3, 1, 4]\nz = input fp16[1, 5, 4]\nm = mul(x, z)\ny = reduce_sum(m) {axes=[-1]}\nreturn y\n", 1, 0 },
    { "squares stay squares", "x = input fp16[3, 4]\nm = mul(x, x)\ny = reduce_sum(m) {axes=[-1]}\nreturn y\n", 0, 1 },
    { "a factor along no summed axis", "x = input fp16[3, 4]\nz = input fp16[3, 1]\nm = mul(x, z)\ny = reduce_sum(m) {axes=[-1]}\nreturn y\n", 0, 1 },
};

static void engine_passes(void **state)
{
    (void)state;
    numerics num = rules_of("m1");
    for (size_t i = 0; i < COUNT(passes); i++) {
        char text[1000];
        snprintf(text, sizeof text, "graph \"p\"\n%s", passes[i].text);
        for (int level = 0; level < 2; level++) {
            program *p = compiled(text, &(codegen_options){ .num = &num, .level = level, .target = "m1" });
            int products = cgt_count(p, IN_CONV) + cgt_count(p, IN_MATMUL), chains = cgt_count(p, IN_EW);
            /* one chain, same roundings */
            bool merged = level && passes[i].chains == 2 && !strcmp(passes[i].what, "used twice");
            if (products != passes[i].products || chains != passes[i].chains - merged) {
                strbuf b = { 0 };
                program_print(p, &b);
                fail_msg("%s at level %d: %d products and %d chains\n%s", passes[i].what, level, products, chains,
                         b.at);
            }
            program_free(p);
        }
    }
}

static double one_value(const program *p, const double *x, int n)
{
    uint16_t in[64], out[64];
    for (int i = 0; i < n; i++) in[i] = f16_from_f64(x[i]);
    cgt_run(p, (const void *const[]){ in }, (void *const[]){ out }, true);
    return f16_to_f64(out[0]);
}

/* 2048 + 1 is a tie that goes down to 2048; with the bias in the same pass the sum is 2049 + 1 before it is rounded. */
static void one_rounding(void **state)
{
    (void)state;
    numerics num = rules_of("m1");
    const double x[2] = { 2048, 1 };
    static const char *const fused[] = {
        "graph \"p\"\nx = input fp16[1, 2, 1, 1]\nw = const fp16[1, 2, 1, 1] all 1\nb = const fp16[1] all 1\nc = conv(x, w)\ny = add(c, b)\nreturn y\n",
        "graph \"p\"\nx = input fp16[1, 2, 1, 1]\nw = const fp16[1, 2, 1, 1] all 1\nb = const fp16[1] all 1\nc = conv(x, w)\nm = mul(c, b)\ny = add(m, b)\nreturn y\n",
        "graph \"p\"\nx = input fp16[1, 1, 1, 2]\nw = const fp16[2, 2] all 1\nb = const fp16[1, 1, 1, 2] all 1\nc = matmul(x, w)\nm = mul(c, b)\ny = add(m, b)\nreturn y\n",
    };
    static const char apart[] =
        "graph \"p\"\nx = input fp16[1, 2, 1, 1]\nw = const fp16[1, 2, 1, 1] all 1\nb = const fp16[1] all 1\nc = conv(x, w)\ny = add(c, b)\nreturn y, c\n";
    for (int level = 0; level < 2; level++) {
        program *p;
        for (size_t i = 0; i < COUNT(fused); i++) {
            p = compiled(fused[i], &(codegen_options){ .num = &num, .level = level });
            assert_true(one_value(p, x, 2) == 2050);
            program_free(p);
        }
        p = compiled(apart, &(codegen_options){ .num = &num, .level = level });
        uint16_t in[2] = { f16_from_f64(2048), f16_from_f64(1) }, c, y;
        cgt_run(p, (const void *const[]){ in }, (void *const[]){ &c, &y }, true);
        assert_true(f16_to_f64(c) == 2048 && f16_to_f64(y) == 2048); /* 2049 falls to 2048 again */
        program_free(p);
    }
}

/* Every operation that cuts the last axis behind its beginning goes through the limit of m1 and m2; what begins at 0,
 * or cuts another axis, does not. */
static void cuts_of_the_width(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int over; /* which results lose what is past 4094: bits */
    } rows[] = {
        { "y = slice_by_size(x) {begin=[0, 0, 0, 1], size=[1, 2, 4, 2]}\nreturn y\n", 1 },
        { "y = slice_by_size(x) {begin=[0, 1, 2, 0], size=[1, 1, 2, 8]}\nreturn y\n", 0 },
        { "y = slice_by_index(x) {begin=[0, 0, 0, 3], end=[1, 2, 4, 8]}\nreturn y\n", 1 },
        { "y = slice_by_index(x) {begin=[0, 0, 0, -2], end=[1, 2, 4, 8]}\nreturn y\n", 1 },
        { "y = slice_by_index(x) {begin=[0, 0, 0, 7], end=[1, 2, 4, 0], stride=[1, 1, 1, -1]}\nreturn y\n", 1 },
        { "y = slice_by_index(x) {begin=[0, 0, 0, -8], end=[1, 2, 4, 4]}\nreturn y\n", 0 },
        { "y = slice_by_index(x) {begin=[0, 1, 1, 5], end=[1, 2, 4, 8], begin_mask=[false, false, false, true]}\nreturn y\n", 0 },
        { "y, z = split(x) {axis=-1, num_splits=2}\nreturn y, z\n", 2 },
        { "y, z = split(x) {axis=2, num_splits=2}\nreturn y, z\n", 0 },
        { "y = crop(x) {crop_height=[0, 0], crop_width=[1, 0]}\nreturn y\n", 1 },
        { "y = crop(x) {crop_height=[1, 0], crop_width=[0, 1]}\nreturn y\n", 0 },
    };
    static const char *const chips[] = { "m1", "m2", "m3", "m4", "m5" };
    uint16_t x[64], y[2][64];
    for (int i = 0; i < 64; i++) x[i] = f16_from_f64(4100);
    for (size_t i = 0; i < 2 * COUNT(rows) * COUNT(chips); i++) {
        const size_t r = i / 2 % COUNT(rows), c = i / 2 / COUNT(rows);
        char text[200];
        numerics num = rules_of(chips[c]);
        snprintf(text, sizeof text, "graph \"p\"\nx = input fp16[1, 2, 4, 8]\n%s", rows[r].text);
        program *p = compiled(text, &(codegen_options){ .num = &num, .level = 1 });
        cgt_run(p, (const void *const[]){ x }, (void *const[]){ y[0], y[1] }, i % 2);
        for (size_t k = 0; k < p->outputs.n; k++)
            for (uint64_t j = 0; j < p->outputs.at[k].bytes / 2; j++)
                if (y[k][j] != (c < 2 && rows[r].over >> k & 1 ? 0x7c00 : x[0]))
                    fail_msg("%s: %s: result %zu has %g", chips[c], rows[r].text, k, f16_to_f64(y[k][j]));
        program_free(p);
    }
}

/* A dot product written either way gives the same bytes, the four-lane window included. */
static void dot_is_product(void **state)
{
    (void)state;
    numerics num = rules_of("m1");
    graph *a = cgt_parse(
        "graph \"a\"\nx = input fp16[3, 48]\nz = input fp16[5, 48]\ny = matmul(x, z) {transpose_y=true}\nreturn y\n");
    graph *b = cgt_parse(
        "graph \"b\"\nx = input fp16[3, 48]\nz = input fp16[5, 48]\nxe = expand_dims(x) {axes=[1]}\nm = mul(xe, z)\ny = reduce_sum(m) {axes=[2]}\nreturn y\n");
    program *p = cgt_compile(a, &(codegen_options){ .num = &num }),
            *q = cgt_compile(b, &(codegen_options){ .num = &num, .level = 1 });
    uint16_t x[3 * 48], z[5 * 48], ya[15], yb[15];
    rng r = { test_seed("dot") };
    for (int i = 0; i < 3 * 48; i++) x[i] = f16_from_f64(i % 3 ? rng_range(&r, -1, 1) : rng_range(&r, -8000, 8000));
    for (int i = 0; i < 5 * 48; i++) z[i] = f16_from_f64(rng_range(&r, -1, 1));
    cgt_run(p, (const void *const[]){ x, z }, (void *const[]){ ya }, true);
    cgt_run(q, (const void *const[]){ x, z }, (void *const[]){ yb }, true);
    assert_memory_equal(ya, yb, sizeof ya);
    program_free(p);
    program_free(q);
    graph_free(a);
    graph_free(b);
}

/* Wider types never widen such a device's arithmetic. */
static void narrow_inside(void **state)
{
    (void)state;
    numerics num = rules_of("m4");
    program *p = compiled("graph \"p\"\nx = input fp32[4]\nw = const fp32[4] all 0.1\ny = add(x, w)\nreturn y\n",
                          &(codegen_options){ .num = &num, .level = 1 });
    float x[4] = { 2048, 1, 0.3333333f, -7 }, y[4];
    cgt_run(p, (const void *const[]){ x }, (void *const[]){ y }, true);
    for (int i = 0; i < 4; i++)
        assert_true(y[i] == dtype_round(DT_F16, dtype_round(DT_F16, x[i]) + dtype_round(DT_F16, (double)0.1f)));
    assert_int_equal(p->inputs.at[0].bytes, 16);
    program_free(p);
}

/* ---- models ---- */

typedef struct {
    rng r;
    arena mem;
} weight_maker;

static bool make_weight(void *user, const model_weight *w, model_blob *b)
{
    weight_maker *m = user;
    size_t bytes;
    int64_t n;
    if (!shape_bytes(&w->type, &bytes) || !shape_elems(&w->type.sh, &n)) return false;
    unsigned char *p = arena_take(&m->mem, bytes, 1, 64);
    if (!p) return false;
    for (int64_t i = 0; i < n; i++)
        dtype_store(w->type.dt, p, i, rng_normal(&m->r) / sqrt((double)(n / w->type.sh.d[0])));
    b->data = p;
    return true;
}

static graph *model_graph(weight_maker *m, const model_config *c, model_kind kind)
{
    graph *g = NULL;
    diag d = { 0 };
    assert_ok(
        model_program_build(c, &(model_program){ .kind = kind, .layer = 0 }, &(model_source){ make_weight, m }, &g, &d),
        d);
    return g;
}

/* Every program of small models, fused and not, against the evaluator; and the forms the fast kernels want to see. */
static void models(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        model_kind kind;
        int attend, norm, max;
    } rows[] = {
        { "tiny", MK_PREFILL_ATTN, 1, 1, 16 }, { "tiny", MK_PREFILL_FFN, 0, 1, 5 },  { "tiny", MK_FWD_ATTN, 1, 1, 24 },
        { "tiny", MK_FFN_BWD, 0, 0, 20 },      { "tiny", MK_ATTN_BWD1, 0, 0, 40 },   { "tiny", MK_FFN_NORM_BWD, 0, 0, 30 },
        { "gpt2", MK_PREFILL_ATTN, 1, 1, 16 }, { "gpt2", MK_PREFILL_FFN, 0, 1, 8 },  { "gpt2", MK_FFN_NORM_BWD, 0, 0, 40 },
    };
    uint64_t seed = test_seed("models compiled");
    for (size_t i = 0; i < COUNT(rows); i++) {
        weight_maker m = { .r = { seed + i } };
        model_config c = *model_preset_find(rows[i].preset);
        c.dt = DT_F32, c.seq = 12;
        if (!strcmp(rows[i].preset, "gpt2")) c.dim = 48, c.hidden = 64, c.n_heads = c.n_kv_heads = 3, c.head_dim = 16;
        graph *g = model_graph(&m, &c, rows[i].kind);
        arena mem = { 0 };
        diag d = { 0 };
        tensor64 *in = cgt_random(g, &m.r, &mem), *want = TAKE(&mem, tensor64, g->outputs.n);
        assert_ok(graph_eval(g, in, want, &mem, &d), d);
        for (int level = 0; level < 2; level++) {
            char what[80];
            snprintf(what, sizeof what, "%s %s level %d", rows[i].preset, model_kernel_name(rows[i].kind), level);
            program *p = cgt_compile(g, &(codegen_options){ .level = level, .inline_consts = true });
            void **out = cgt_outputs(p, &mem);
            cgt_run(p, cgt_inputs(p, g, in, &mem), out, true);
            cgt_close(p, out, g, want, 1e-4, what); /* sums of some hundred terms, twice over, in fp32 */
            if (level && (cgt_count(p, IN_ATTEND) != rows[i].attend || cgt_count(p, IN_NORM) < rows[i].norm ||
                          (int)p->insns.n > rows[i].max)) {
                strbuf b = { 0 };
                program_print(p, &b);
                fail_msg("%s: %d attend, %d norm, %zu instructions\n%s", what, cgt_count(p, IN_ATTEND),
                         cgt_count(p, IN_NORM), p->insns.n, b.at);
            }
            program_free(p);
        }
        arena_free(&mem);
        arena_free(&m.mem);
        graph_free(g);
    }
}

/* A causal mask is compiled in, unless it must stay data. */
static void causal(void **state)
{
    (void)state;
    weight_maker m = { .r = { 5 } };
    model_config c = *model_preset_find("tiny");
    graph *g = model_graph(&m, &c, MK_PREFILL_ATTN);
    for (int keep = 0; keep < 2; keep++) {
        program *p = cgt_compile(g, &(codegen_options){ .level = 1, .keep_masks = keep });
        for (size_t i = 0; i < p->insns.n; i++) {
            const insn *n = &p->insns.at[i];
            if (n->op != IN_ATTEND) continue;
            assert_int_equal(n->i[0], !keep);
            assert_int_equal(n->t[4] >= 0, keep);
        }
        program_free(p);
    }
    graph_free(g);
    arena_free(&m.mem);
}

/* One number is a triangle of one row, and one that a single query has for all its keys: nothing is hidden from it. */
static void one_number_for_all_keys(void **state)
{
    (void)state;
    static const char *const masks[] = { "bool[1, 1] {1}", "fp32[1, 1] {0}", "fp32[1, 1, 1] {0}" };
    rng r = { test_seed("one number for all keys") };
    for (size_t i = 0; i < 2 * COUNT(masks); i++) {
        char text[400];
        const int keys = i % 2 ? 4 : 1;
        snprintf(text, sizeof text, "graph \"a\"\nq = input fp32[2, 1, 3]\nk = input fp32[2, %d, 3]\nv = input fp32[2, %d, 5]\nm = const %s\n"
                 "a = scaled_dot_product_attention(q, k, v, m)\ny = add(a, a)\nreturn y\n", keys, keys, masks[i / 2]);
        graph *g = cgt_parse(text);
        arena mem = { 0 };
        diag d = { 0 };
        tensor64 *in = cgt_random(g, &r, &mem), want;
        assert_ok(graph_eval(g, in, &want, &mem, &d), d);
        for (int level = 0; level < 2; level++) {
            program *p = cgt_compile(g, &(codegen_options){ .level = level });
            void **out = cgt_outputs(p, &mem);
            cgt_run(p, cgt_inputs(p, g, in, &mem), out, true);
            cgt_close(p, out, g, &want, 1e-5, text);
            program_free(p);
        }
        arena_free(&mem);
        graph_free(g);
    }
}

static void compile_time(void **state)
{
    (void)state;
    weight_maker m = { .r = { 5 } };
    model_config c = *model_preset_find("stories110m");
    graph *g = NULL;
    diag d = { 0 };
    assert_ok(model_program_build(&c, &(model_program){ .kind = MK_FWD_ATTN }, NULL, &g, &d), d);
    uint64_t best = UINT64_MAX;
    program *last = NULL;
    for (int i = 0; i < 5; i++) {
        program *p = NULL;
        uint64_t t = clock_ns();
        assert_ok(codegen_program(g, &(codegen_options){ .level = 1 }, &p, &d), d);
        t = clock_ns() - t;
        best = t < best ? t : best;
        strbuf a = { 0 }, b = { 0 };
        if (last) { /* the same bytes every time */
            assert_ok(program_encode(last, &a, &d), d);
            assert_ok(program_encode(p, &b, &d), d);
            assert_int_equal(a.n, b.n);
            assert_memory_equal(a.at, b.at, a.n);
        }
        sb_free(&a);
        sb_free(&b);
        program_free(last);
        last = p;
    }
    print_message("a fused attention block compiles in %.3f ms\n", (double)best / 1e6);
    assert_true(best < 50u * 1000 * 1000); /* 5 ms is the aim; the bound leaves room for sanitizers on a busy machine */
    program_free(last);
    graph_free(g);
    arena_free(&m.mem);
}

/* ---- memory ---- */

static void long_chain(void **state)
{
    (void)state;
    strbuf t = { 0 };
    sb_puts(&t, "graph \"long\"\nx = input fp16[4, 256]\nv0 = softmax(x)\n");
    enum { LONG = 200 };
    for (int i = 1; i < LONG; i++) sb_printf(&t, "v%d = %s(v%d)\n", i, i % 2 ? "relu" : "softmax", i - 1);
    sb_printf(&t, "return v%d\n", LONG - 1);
    program *p = compiled(t.at, NULL);
    assert_int_equal(p->insns.n, LONG);
    assert_true(p->scratch_bytes <= 2 * 4 * 256 * 2); /* a pair of buffers in turn; chains write where they read */
    program_free(p);
    p = compiled(t.at, &(codegen_options){ .no_reuse = true });
    assert_int_equal(p->scratch_bytes, (LONG - 1) * 4 * 256 * 2);
    program_free(p);
    sb_free(&t);
}

/* An input read after the first output is written: with one buffer for both, the output waits. */
static void resident_binding(void **state)
{
    (void)state;
    graph *g = cgt_parse(
        "graph \"r\"\nx = input fp32[4]\nw = input fp32[4]\na = reverse(x)\nb = add(x, w)\nc = reverse(b)\nreturn acc=a, out=c\n");
    for (int level = 0; level < 2; level++) {
        program *p = cgt_compile(g, &(codegen_options){ .level = level, .resident = true });
        float x[4] = { 1, 2, 3, 4 }, w[4] = { 10, 20, 30, 40 };
        cgt_run(p, (const void *const[]){ w, x }, (void *const[]){ x, w }, true);
        for (int i = 0; i < 4; i++) assert_true(x[i] == (float)(4 - i) && w[i] == (float)(11 * (4 - i)));
        program_free(p);
    }
    graph_free(g);
}

/* ---- ports, constants, state ---- */

static void port_order(void **state)
{
    (void)state;
    program *p = compiled(
        "graph \"p\"\nzeta = input fp16[3]\nalpha = input int32[2]\nb = input uint8[5]\nc = const fp32[2] all 3\na = add(zeta, zeta)\n"
        "r = reshape(a) {shape=[1, 3]}\nreturn z=a, k=zeta, m=c, a=r\n",
        NULL);
    static const char *const in[] = { "alpha", "b", "zeta" }, *const out[] = { "a", "k", "m", "z" };
    static const uint64_t in_bytes[] = { 8, 5, 6 }, out_bytes[] = { 6, 6, 8, 6 };
    assert_int_equal(p->inputs.n, 3);
    assert_int_equal(p->outputs.n, 4);
    for (int i = 0; i < 3; i++)
        assert_string_equal(p->inputs.at[i].name, in[i]), assert_int_equal(p->inputs.at[i].bytes, in_bytes[i]);
    for (int i = 0; i < 4; i++)
        assert_string_equal(p->outputs.at[i].name, out[i]), assert_int_equal(p->outputs.at[i].bytes, out_bytes[i]);
    uint16_t zeta[3] = { 0x3c00, 0x4000, 0xc000 }, a[3], k[3], z[3];
    float m[2];
    int32_t alpha[2] = { 0 };
    uint8_t b[5] = { 0 };
    cgt_run(p, (const void *const[]){ alpha, b, zeta }, (void *const[]){ a, k, m, z }, true);
    assert_memory_equal(k, zeta, sizeof k);
    assert_memory_equal(a, z, sizeof a);
    assert_true(a[0] == 0x4000 && m[0] == 3 && m[1] == 3);
    program_free(p);
}

static an_status weight_bytes(void *user, const char *path, const unsigned char **at, size_t *n, diag *d)
{
    const strbuf *b = user;
    if (strcmp(path, "@model_path/weights/weight.bin")) return diag_fail(d, AN_INPUT, NOWHERE, "asked for %s", path);
    *at = (const unsigned char *)b->at, *n = b->n;
    return AN_OK;
}

/* Weights stay in their file; other bytes there give other results, and nothing is compiled. */
static void weights_outside(void **state)
{
    (void)state;
    graph *g = cgt_parse("graph \"w\"\nx = input fp32[2]\nw = const fp32[2, 2] blob \"@model_path/weights/weight.bin\" 64\n"
                         "r = reshape(w) {shape=[4]}\nt = transpose(w) {perm=[1, 0]}\na = matmul(x, t)\nreturn y=a, f=r\n");
    program *p = cgt_compile(g, &(codegen_options){ .level = 1 });
    assert_int_equal(p->consts.n, 1);
    assert_int_equal(p->n_data, 0);
    assert_string_equal(p->consts.at[0].src[0].path, "@model_path/weights/weight.bin");
    assert_int_equal(p->consts.at[0].src[0].offset, 64);
    diag d = { 0 };
    image *im = NULL;
    float x[2] = { 1, 10 }, y[2], f[4];
    for (int round = 0; round < 2; round++) {
        blob_writer w = { 0 };
        uint64_t at;
        float data[4] = { 1, 2, 3, (float)(4 + round) };
        assert_ok(blob_add(&w, DT_F32, data, sizeof data, &at, &d), d);
        assert_ok(blob_finish(&w, &d), d);
        weight_source src = { .file = weight_bytes, .user = &w.bytes };
        if (round) assert_ok(image_reload(im, &src, &d), d);
        else assert_ok(image_load(&im, p, &src, &(image_options){ .reference = true }, &d), d);
        assert_ok(image_run(im, (const void *const[]){ x }, (void *const[]){ f, y }, &d), d);
        assert_true(y[0] == 21 && y[1] == (float)(43 + 10 * round) && f[3] == data[3]);
        sb_free(&w.bytes);
    }
    image_free(im);
    program_free(p);
    graph_free(g);
}

/* A mask of truths is read as it is: one instruction, no memory, the bits of one that adds. */
static void masks_of_truths(void **state)
{
    (void)state;
    enum { N = 2 * 3 * 5 * 8, S = 3 * 5 * 5 };
    static const char *const types[] = { "fp32", "fp16" };
    rng r = { test_seed("masks of truths") };
    for (size_t t = 0; t < COUNT(types); t++) {
        char text[400];
        unsigned char m[S];
        _Alignas(8) unsigned char x[N * 4], y[2][N * 4] = { 0 };
        for (int i = 0; i < N; i++) dtype_store(t ? DT_F16 : DT_F32, x, i, rng_normal(&r));
        for (int i = 0; i < S; i++) m[i] = i % 5 == 0 || rng_below(&r, 2);
        for (int adds = 0; adds < 2; adds++) {
            snprintf(text, sizeof text, "graph \"m\"\nx = input %s[2, 3, 5, 8]\nm = input bool[3, 5, 5]\nnil = const %s[] {0}\nno = const %s[] {-inf}\na = select(m, nil, no)\n"
                                        "y = scaled_dot_product_attention(x, x, x, %s)\nreturn y\n", types[t], types[t], types[t], adds ? "a" : "m");
            program *p = compiled(text, &(codegen_options){ .level = 1 });
            assert_int_equal(p->insns.n, 1 + adds);
            if (!adds) assert_int_equal(p->scratch_bytes, 0);
            /* ports are in the order of their names */
            cgt_run(p, (const void *const[]){ m, x }, (void *const[]){ y[adds] }, false);
            program_free(p);
        }
        assert_memory_equal(y[0], y[1], sizeof *y);
    }
}

/* A causal mask in a weight file may become another one there, which the manifest tells, unless it is to stay. */
static void causal_outside(void **state)
{
    (void)state;
    const float low[4] = { 0, -INFINITY, 0, 0 }, all[4] = { 0 };
    const float x[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    float y[8];
#define MASKED                                                                                                         \
    "graph \"m\"\nx = input fp32[1, 1, 2, 4]\nm = const fp32[1, 1, 2, 2] blob \"@model_path/weights/weight.bin\" 64\n"
    static const char *const texts[] = {
        MASKED "s = matmul(x, x) {transpose_y=true}\na = add(s, m)\np = softmax(a)\ny = matmul(p, x)\nreturn y\n",
        MASKED "y = scaled_dot_product_attention(x, x, x, m)\nreturn y\n"
    };
    for (int form = 0; form < 4; form++) {
        const bool final = form & 1;
        graph *g = cgt_parse(texts[form / 2]);
        graph_maker(g, graph_find(g, "m"))->cst->data = low;
        program *p = cgt_compile(g, &(codegen_options){ .level = 1, .final = final });
        assert_int_equal(p->consts.n, !final);
        for (int other = 0; other < 2 && !final; other++)
            for (int ref = 0; ref < 2; ref++) {
                blob_writer w = { 0 };
                uint64_t at;
                diag d = { 0 };
                image *im = NULL;
                assert_ok(blob_add(&w, DT_F32, other ? all : low, sizeof low, &at, &d), d);
                assert_ok(blob_finish(&w, &d), d);
                assert_int_equal(p->consts.at[0].kind, CK_CAUSAL);
                weight_source src = { .file = weight_bytes, .user = &w.bytes };
                assert_int_equal(image_load(&im, p, &src, &(image_options){ .reference = ref }, &d),
                                 other ? AN_INPUT : AN_OK);
                if (!other) assert_ok(image_run(im, (const void *const[]){ x }, (void *const[]){ y }, &d), d);
                if (!other) assert_memory_equal(x, y, 4 * sizeof *x); /* the first row sees itself only */
                image_free(im);
                sb_free(&w.bytes);
            }
        program_free(p);
        graph_free(g);
    }
}

/* Compressed weights are entries with their parts, never dense. */
static void compressed(void **state)
{
    (void)state;
    program *p = compiled("graph \"c\"\nx = input fp16[2, 64]\nq = const int8[64, 64] blob \"@model_path/w.bin\" 64\ns = const fp16[64] blob \"@model_path/w.bin\" 4288\nz = const int8[] {0}\n"
                          "w = constexpr_affine_dequantize(q, s, z) {axis=0}\ny = linear(x, w)\nreturn y\n", &(codegen_options){ .level = 1 });
    assert_int_equal(p->consts.n, 1);
    assert_int_equal(p->consts.at[0].kind, CK_AFFINE);
    assert_int_equal(p->consts.at[0].n_src, 3);
    assert_int_equal(p->consts.at[0].src[0].bytes, 4096);
    assert_true(p->n_data <= 64);
    assert_int_equal(p->insns.n, 1);
    program_free(p);
}

/* Whether an image holds given weights: of every form, none may be left behind. */
static void held_weights(void **state)
{
    (void)state;
    static const char text[] = "graph \"h\"\nx = input fp32[1, 64]\nq = const int8[64, 64] blob \"@model_path/weights/weight.bin\" 64\ns = const fp16[64] blob \"@model_path/weights/weight.bin\" 4224\n"
                               "z = const int8[] {0}\nb = const fp32[64] blob \"@model_path/weights/weight.bin\" 4416\nm = const fp32[64, 64] blob \"@model_path/weights/weight.bin\" 4736\n"
                               "w = constexpr_affine_dequantize(q, s, z) {axis=0}\nwf = cast(w) {dtype=\"fp32\"}\ny = linear(x, wf, b)\nv = matmul(x, m)\nreturn y, v\n";
    static const struct {
        dtype dt;
        size_t bytes;
        uint64_t at;
    } rec[] = { { DT_I8, 4096, 64 }, { DT_F16, 128, 4224 }, { DT_F32, 256, 4416 }, { DT_F32, 16384, 4736 } };
    program *p = compiled(text, &(codegen_options){ .level = 1 });
    for (int ref = 0; ref < 2; ref++) {
        blob_writer was = { 0 };
        diag d = { 0 };
        image *im = NULL;
        bool holds;
        static unsigned char zero[16384];
        for (size_t i = 0; i < COUNT(rec); i++) {
            uint64_t at;
            assert_ok(blob_add(&was, rec[i].dt, zero, rec[i].bytes, &at, &d), d);
            assert_int_equal(at, rec[i].at);
        }
        assert_ok(blob_finish(&was, &d), d);
        /* the first row's scale is 1, its first weight too */
        was.bytes.at[rec[1].at + 64 + 1] = 0x3c, was.bytes.at[rec[0].at + 64] = 1;
        weight_source src = { .file = weight_bytes, .user = &was.bytes };
        assert_ok(image_load(&im, p, &src, &(image_options){ .reference = ref }, &d), d);
        assert_ok(image_holds(im, &src, &holds, &d), d);
        assert_true(holds);
        for (size_t i = 0; i < COUNT(rec); i++) {
            strbuf now = { 0 };
            sb_putn(&now, was.bytes.at, was.bytes.n);
            now.at[rec[i].at + 64 + 1] ^= 4;
            weight_source fresh = { .file = weight_bytes, .user = &now };
            assert_ok(image_holds(im, &fresh, &holds, &d), d);
            if (holds) fail_msg("record %zu is another, and nobody saw", i);
            assert_ok(image_reload(im, &fresh, &d), d);
            assert_ok(image_holds(im, &fresh, &holds, &d), d);
            if (!holds) fail_msg("record %zu was reloaded, and is not held", i);
            assert_ok(image_reload(im, &src, &d), d);
            sb_free(&now);
        }
        image_free(im);
        sb_free(&was.bytes);
    }
    program_free(p);
}

static void held_panels(void **state)
{
    (void)state;
    static const char text[] =
        "graph \"p\"\nx = input fp16[32, 64]\na = const fp16[64, 96] all 0.1\nb = const fp16[96, 700] all 0.2\nc = const fp16[700, 900] all 0.3\n"
        "u = matmul(x, a)\nv = matmul(u, b)\ny = matmul(v, c)\nreturn y\n";
    static const char *const chips[] = { NULL, "m1", "m4" };
    pool *two;
    diag d = { 0 };
    assert_ok(pool_make(&two, 2, &d), d);
    for (size_t k = 0; k < COUNT(chips); k++) {
        numerics num = chips[k] ? rules_of(chips[k]) : numerics_cpu;
        program *p = compiled(text, &(codegen_options){ .num = &num });
        image *im = NULL;
        assert_ok(image_load(&im, p, NULL, &(image_options){ .pool = two }, &d), d);
        assert_int_equal(cgt_spoil_each(im, chips[k] ? chips[k] : "cpu"), 3);
        image_free(im);
        program_free(p);
    }
    pool_free(two);
}

/* Another float type is the loader's work, not an instruction's. */
static void cast_weights(void **state)
{
    (void)state;
    numerics num = rules_of("m1");
    static const char text[] =
        "graph \"c\"\nx = input fp16[2, 3]\nw = const fp32[4, 3] all 0.1\nv = reshape(w) {shape=[3, 4]}\nc = cast(v) {dtype=\"fp16\"}\ny = matmul(x, c)\nreturn y\n";
    for (int k = 0; k < 2; k++) {
        program *p = compiled(text, &(codegen_options){ .num = k ? &num : NULL });
        assert_int_equal(p->insns.n, 1);
        assert_int_equal(p->consts.n, 1);
        assert_int_equal(p->consts.at[0].src[0].dt, DT_F32);
        assert_int_equal(p->tensors.at[p->consts.at[0].tensor].dt, DT_F16);
        uint16_t x[6] = { 0x3c00, 0, 0, 0x4000, 0, 0 }, y[8];
        cgt_run(p, (const void *const[]){ x }, (void *const[]){ y }, true);
        assert_true(y[0] == f16_from_f64((double)0.1f) && f16_to_f64(y[4]) == 2 * f16_to_f64(y[0]));
        program_free(p);
    }
}

static void state_ports(void **state)
{
    (void)state;
    program *p = compiled(
        "graph \"s\"\ns = input fp32[2]\nx = input fp32[2]\nold = read_state(s)\nnew = add(old, x)\nw = write_state(s, new)\nlate = mul(s, x)\nreturn y=late\n",
        &(codegen_options){ .level = 1 });
    assert_int_equal(p->outputs.n, 2);
    assert_string_equal(p->outputs.at[0].name, "s");
    float s[2] = { 0, 0 }, x[2] = { 1, 2 }, y[2];
    for (int i = 1; i <= 4; i++) { /* one buffer on both sides */
        cgt_run(p, (const void *const[]){ s, x }, (void *const[]){ s, y }, true);
        assert_true(s[0] == (float)i && s[1] == (float)(2 * i) && y[0] == (float)(i - 1));
    }
    program_free(p);
}

/* ---- refusals ---- */

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        an_status st;
    } rows[] = {
        { "x = input fp16[2]\ny = opaque \"future\"(x) -> fp16[2]\nreturn y\n", "future", AN_UNSUPPORTED },
        { "x = input fp16[?, 2]\ny = relu(x)\nreturn y\n", "not known", AN_UNSUPPORTED },
        { "x = input fp16[2]\nc = const fp16[2] unknown\ny = add(x, c)\nreturn y\n", "no data", AN_INPUT },
        { "x = input fp16[4]\nm = const uint1[2, 2] {1, 0, 0, 1}\nm2 = const uint1[2, 2] {1, 0, 1, 0}\nz = const int8[2] {4, 5}\ns = const fp16[1, 2] {2, 4}\n"
          "a, b = constexpr_sparse_blockwise_shift_scale(m, z, s)\ny = constexpr_sparse_to_dense(b, m2)\nreturn y\n", "another mask", AN_UNSUPPORTED },
        { "x = input fp16[4]\nm = const uint1[2, 2] {1, 0, 0, 1}\nm2 = const uint1[2, 2] {1, 0, 1, 0}\nz = const int8[2] {4, 5}\ns = const fp16[1, 2] {2, 4}\n"
          "a, b = constexpr_sparse_blockwise_shift_scale(m, z, s)\ny = relu(b)\nreturn y\n", "nonzero_data is read by relu", AN_UNSUPPORTED },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[800];
        snprintf(text, sizeof text, "graph \"p\"\n%s", rows[i].text);
        graph *g = cgt_parse(text);
        program *p = NULL;
        diag d = { 0 };
        assert_int_equal(codegen_program(g, NULL, &p, &d), rows[i].st);
        assert_null(p);
        if (!strstr(d.msg, rows[i].says)) fail_msg("row %zu says: %s", i, d.msg);
        graph_free(g);
    }
}

/* Memory that ends anywhere ends the compile cleanly. */
static void no_memory(void **state)
{
    (void)state;
    weight_maker m = { .r = { 5 } };
    model_config c = *model_preset_find("tiny");
    graph *g = model_graph(&m, &c, MK_FWD_ATTN);
    numerics soft = rules_of("m1");
    int failed = 0, done = 0;
    for (int k = 0; k < 2; k++)
        for (size_t limit = 64; limit < 4u << 20; limit += limit / 23 + 40) {
            program *p = NULL;
            diag d = { 0 };
            an_status st =
                codegen_program(g, &(codegen_options){ .level = 1, .limit = limit, .num = k ? &soft : NULL }, &p, &d);
            assert_true(st ? st == AN_NOMEM && !p : p != NULL);
            *(st ? &failed : &done) += 1;
            program_free(p);
        }
    assert_true(failed > 50 && done > 10);
    graph_free(g);
    arena_free(&m.mem);
}

/* Dead work with an unknown extent, and constants nobody reads, are nobody's business. */
static void dead_is_free(void **state)
{
    (void)state;
    program *p = compiled(
        "graph \"p\"\nx = input fp16[2]\nc = const fp16[2] unknown\nd = add(x, c)\ny = relu(x)\nreturn y\n", NULL);
    assert_int_equal(p->insns.n, 1);
    assert_int_equal(p->consts.n, 0);
    program_free(p);
}

/* Numbers of which several share a byte can be put into places as any others. */
static void packed_scatter(void **state)
{
    static const char *const types[] = { "uint1", "uint4", "int4" }, *const modes[] = { "update", "add" };
    (void)state;
    for (size_t i = 0; i < COUNT(types) * 4; i++) {
        char text[300];
        tensor64 want[1];
        arena mem = { 0 };
        diag d = { 0 };
        snprintf(
            text, sizeof text,
            "graph \"put\"\nx = const %s[3, 2] {0, 1, 1, 0, 0, 1}\nu = const %s[2, 2] {1, 0, 0, 0}\nix = const int32[2] {2, 0}\ny = scatter(x, ix, u) {axis=0, mode=\"%s\"}\nreturn y\n",
            types[i / 4], types[i / 4], modes[i / 2 % 2]);
        if (i / 4 == 0 && i / 2 % 2) continue; /* 1 + 1 is no bit */
        graph *g = cgt_parse(text);
        assert_ok(graph_eval(g, NULL, want, &mem, &d), d);
        program *p = cgt_compile(g, &(codegen_options){ .level = (int)(i % 2) });
        for (int reference = 0; reference < 2; reference++) {
            void **out = cgt_outputs(p, &mem);
            cgt_run(p, cgt_inputs(p, g, NULL, &mem), out, reference);
            cgt_close(p, out, g, want, 0, text);
        }
        program_free(p);
        graph_free(g);
        arena_free(&mem);
    }
}

static void from_mil(void **state)
{
    (void)state;
    static const char text[] = "program(1.3)\n{\n    func main<ios18>(tensor<fp16, [1, 4]> x) {\n"
                               "            tensor<fp16, [1, 4]> y = relu(x = x)[name = string(\"y\")];\n        } -> (y);\n}\n";
    mil_module *m = NULL;
    program *p = NULL;
    diag d = { 0 };
    assert_ok(mil_parse(text, strlen(text), 0, &m, &d), d);
    assert_ok(codegen_mil(m, NULL, NULL, &p, &d), d);
    assert_int_equal(p->insns.n, 1);
    assert_int_equal(p->insns.at[0].line, 4);
    program_free(p);
    mil_free(m);
}

/* ---- chips ---- */

static void profiles(void **state)
{
    (void)state;
    /* m1 in full (facts 3.3 to 3.6); the others by what differs, measured, predicted or taken from a neighbour */
    const numerics m1 = { .round_each = 1, .window_bits = 12, .port_ceiling = 32768, .port_partial = 1, .mac_flush = 1,
                          .wslice_last = 4094, .nan_to_inf = 1, .invalid_zero = 1, .plain_zero = 1, .tables = 1 };
    numerics wide = m1, m5 = m1;
    wide.window_bits = wide.port_partial = wide.mac_flush = wide.wslice_last = 0;
    m5.mac_flush = m5.wslice_last = 0, m5.mac_tie_away = 1;
    const struct {
        const char *chip;
        const numerics *want;
    } rows[] = { { "m1", &m1 },   { "h13g", &m1 }, { "m2", &m1 },   { "m3", &wide },
                 { "m4", &wide }, { "m5", &m5 },   { "h17s", &m5 }, { "h18", &m5 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const numerics got = rules_of(rows[i].chip);
#define NUM(field, cpu, what)                                                                                          \
    if (got.field != rows[i].want->field)                                                                              \
        fail_msg("%s of %s is %g, wanted %g", #field, rows[i].chip, got.field, rows[i].want->field);
#include "engine/numerics.def"
#undef NUM
    }
    for (size_t i = 0; i < chip_count(); i++) { /* where the target table has a measured column, the two agree */
        numerics n;
        const chip *c = chip_at(i);
        if (!codegen_numerics(c, &n)) continue;
        assert_true((chip_limit(c, "f_slice_x16") == 1) == (n.wslice_last != 0));
        if (chip_limit(c, "f_mac_flush") >= 0) assert_true(chip_limit(c, "f_mac_flush") == n.mac_flush);
    }
    strbuf b = { 0 };
    codegen_print_profiles(&b, "json");
    assert_non_null(strstr(b.at, "\"tier\":\"h13\",\"switch\":\"window_bits\",\"value\":12,\"status\":\"R\""));
    sb_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_passes),
        cmocka_unit_test(one_rounding),
        cmocka_unit_test(cuts_of_the_width),
        cmocka_unit_test(dot_is_product),
        cmocka_unit_test(narrow_inside),
        cmocka_unit_test(models),
        cmocka_unit_test(causal),
        cmocka_unit_test(one_number_for_all_keys),
        cmocka_unit_test(causal_outside),
        cmocka_unit_test(held_weights),
        cmocka_unit_test(held_panels),
        cmocka_unit_test(masks_of_truths),
        cmocka_unit_test(compile_time),
        cmocka_unit_test(long_chain),
        cmocka_unit_test(resident_binding),
        cmocka_unit_test(port_order),
        cmocka_unit_test(weights_outside),
        cmocka_unit_test(compressed),
        cmocka_unit_test(state_ports),
        cmocka_unit_test(refused),
        cmocka_unit_test(dead_is_free),
        cmocka_unit_test(from_mil),
        cmocka_unit_test(packed_scatter),
        cmocka_unit_test(profiles),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(cast_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
