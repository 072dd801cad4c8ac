/* codegen_t.h: graphs compiled and run in tests.
 *   program *p = cgt_compile(g, &(codegen_options){ .level = 1 });      checked, encoded and decoded again on the way
 *   cgt_run(p, in, out, reference);                                     packed buffers in port order */
#ifndef TESTS_CODEGEN_T_H
#define TESTS_CODEGEN_T_H

#include <math.h>

#include "codegen/codegen.h"
#include "t.h"

static inline graph *cgt_parse(const char *text)
{
    graph *g;
    diag d = { 0 };
    if (graph_parse(text, strlen(text), &g, &d)) fail_msg("line %u col %u: %s\n%s", d.at.line, d.at.col, d.msg, text);
    return g;
}

/* The same graph with every fp16 written as fp32. */
static inline graph *cgt_widened(const graph *g)
{
    strbuf b = { 0 };
    graph_print(g, &b);
    assert_false(b.oom);
    for (char *p = b.at; (p = strstr(p, "fp16")); p += 4) memcpy(p, "fp32", 4);
    if (strstr(b.at, " hex ")) fail_msg("a constant printed in hex cannot be widened");
    strbuf wide = { 0 };
    static const char fill[] = "fill() {";
    for (const char *p = b.at; *p;) {
        if (strncmp(p, fill, sizeof fill - 1)) sb_putc(&wide, *p++);
        else sb_puts(&wide, "fill() {dtype=\"fp32\", "), p += sizeof fill - 1; /* its default is fp16 */
    }
    graph *w = cgt_parse(wide.at);
    sb_free(&wide);
    sb_free(&b);
    return w;
}

/* A record of a weight file in memory, as a source of weights hands it out. */
static inline an_status cgt_record(const strbuf *file, uint64_t offset, dtype type, uint64_t bytes,
                                   const unsigned char **at, diag *d)
{
    blob_file f;
    blob_entry e;
    TRY(blob_view(file->at, file->n, &f, d));
    TRY(blob_at(&f, offset, type, bytes, &e, d));
    *at = (const unsigned char *)file->at + e.data;
    return AN_OK;
}

static inline program *cgt_compile(const graph *g, const codegen_options *o)
{
    program *p = NULL, *again = NULL;
    diag d = { 0 };
    strbuf a = { 0 }, b = { 0 };
    if (codegen_program(g, o, &p, &d)) fail_msg("compile: line %u: %s", d.at.line, d.msg);
    if (program_check(p, &d)) {
        program_print(p, &a);
        fail_msg("%s\n%s", d.msg, a.at);
    }
    assert_ok(program_encode(p, &a, &d), d);
    assert_ok(program_decode(a.at, a.n, &again, &d), d);
    assert_ok(program_encode(again, &b, &d), d);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.at, b.at, a.n);
    program_free(again);
    sb_free(&a);
    sb_free(&b);
    return p;
}

/* Normal numbers, as fp32 has them, for every input. */
static inline tensor64 *cgt_random(const graph *g, rng *r, arena *mem)
{
    tensor64 *in = TAKE(mem, tensor64, g->inputs.n);
    for (size_t k = 0; k < g->inputs.n; k++) {
        int64_t n;
        in[k].type = *graph_type(g, g->inputs.at[k]);
        assert_true(shape_elems(&in[k].type.sh, &n));
        in[k].x = TAKE(mem, double, (size_t)n);
        for (int64_t j = 0; j < n; j++) in[k].x[j] = (float)rng_normal(r);
    }
    return in;
}

static inline void *cgt_buffer(arena *mem, uint64_t bytes)
{
    return arena_take(mem, (size_t)(bytes ? bytes : 1), 1, 64);
}

/* Inputs of the graph (declaration order) as packed buffers in port order. */
static inline const void **cgt_inputs(const program *p, const graph *g, const tensor64 *in, arena *mem)
{
    const void **buf = TAKE(mem, const void *, p->inputs.n + 1);
    assert_non_null(buf);
    assert_int_equal(p->inputs.n, g->inputs.n);
    for (size_t i = 0; i < p->inputs.n; i++)
        for (size_t k = 0; k < g->inputs.n; k++) {
            if (strcmp(p->inputs.at[i].name, graph_value(g, g->inputs.at[k])->name)) continue;
            unsigned char *b = cgt_buffer(mem, p->inputs.at[i].bytes);
            int64_t n;
            assert_non_null(b);
            assert_true(shape_elems(&in[k].type.sh, &n));
            for (int64_t j = 0; j < n; j++) dtype_store(graph_type(g, g->inputs.at[k])->dt, b, j, in[k].x[j]);
            buf[i] = b;
        }
    return buf;
}

static inline void **cgt_outputs(const program *p, arena *mem)
{
    void **buf = TAKE(mem, void *, p->outputs.n + 1);
    assert_non_null(buf);
    for (size_t i = 0; i < p->outputs.n; i++) {
        buf[i] = cgt_buffer(mem, p->outputs.at[i].bytes);
        assert_non_null(buf[i]);
        memset(buf[i], 0x7f, (size_t)p->outputs.at[i].bytes); /* what is not written shows */
    }
    return buf;
}

static inline void cgt_run_with(const program *p, const void *const *in, void *const *out, const image_options *o)
{
    image *im = NULL;
    diag d = { 0 };
    weight_source none = { 0 };
    if (image_load(&im, p, &none, o, &d) || image_run(im, in, out, &d)) {
        strbuf b = { 0 };
        program_print(p, &b);
        fail_msg("%s\n%s", d.msg, b.at);
    }
    image_free(im);
}

static inline void cgt_run(const program *p, const void *const *in, void *const *out, bool reference)
{
    cgt_run_with(p, in, out, &(image_options){ .reference = reference });
}

static inline int cgt_count(const program *p, insn_id op)
{
    int n = 0;
    for (size_t i = 0; i < p->insns.n; i++) n += p->insns.at[i].op == op;
    return n;
}

/* Results of two programs of one graph, byte for byte. */
static inline void cgt_same_bytes(const program *a, void *const *x, const program *b, void *const *y, const char *what)
{
    assert_int_equal(a->outputs.n, b->outputs.n);
    for (size_t i = 0; i < a->outputs.n; i++) {
        assert_string_equal(a->outputs.at[i].name, b->outputs.at[i].name);
        assert_int_equal(a->outputs.at[i].bytes, b->outputs.at[i].bytes);
        if (memcmp(x[i], y[i], (size_t)a->outputs.at[i].bytes)) {
            strbuf s = { 0 };
            sb_puts(&s, "\n");
            program_print(a, &s);
            program_print(b, &s);
            fail_msg("%s: output %s differs%s", what, a->outputs.at[i].name, s.at);
        }
    }
}

/* Against the evaluator: floats within tol of max(1, |want|), everything else exactly. */
static inline void cgt_close(const program *p, void *const *got, const graph *g, const tensor64 *want, double tol,
                             const char *what)
{
    for (size_t i = 0; i < p->outputs.n; i++)
        for (size_t k = 0; k < g->outputs.n; k++) {
            if (strcmp(p->outputs.at[i].name, g->outputs.at[k].name)) continue;
            dtype dt = want[k].type.dt;
            int64_t n;
            assert_true(shape_elems(&want[k].type.sh, &n));
            for (int64_t j = 0; j < n; j++) {
                double a = dtype_load(dt, got[i], j), b = want[k].x[j];
                bool ok = dtype_is_float(dt) ? fabs(a - b) <= tol * fmax(1, fabs(b)) || a == dtype_round(dt, b) ||
                                                   (isnan(a) && isnan(b))
                                             : a == b;
                if (ok) continue;
                strbuf s = { 0 };
                program_print(p, &s);
                fail_msg("%s: %s[%lld] is %.9g, wanted %.9g\n%s", what, p->outputs.at[i].name, (long long)j, a, b,
                         s.at);
            }
        }
}

/* A bit of anything packed or made of constants that is not what the constants give is seen, wherever it is, and
 * right again afterwards. How many such things there are. */
static inline size_t cgt_spoil_each(image *im, const char *what)
{
    enum { PARTS = 4 };
    diag d = { 0 };
    void *at;
    size_t bytes, n = 0;
    bool holds;
    for (; image_panel(im, n, &at, &bytes); n++)
        for (size_t part = 0; part < PARTS; part++) {
            const size_t k = bytes * part / (PARTS + 1); /* the end may be room that is never read */
            ((unsigned char *)at)[k] ^= 1;
            assert_ok(image_holds(im, NULL, &holds, &d), d);
            if (holds) fail_msg("%s: panel %zu is another at %zu of %zu, and nobody saw", what, n, k, bytes);
            assert_ok(image_holds(im, NULL, &holds, &d), d);
            assert_true(holds);
        }
    return n;
}

static inline numerics rules_of(const char *chip_name_)
{
    numerics n;
    assert_true(codegen_numerics(chip_find(chip_name_), &n));
    return n;
}

static inline program *compiled(const char *text, const codegen_options *o)
{
    graph *g = cgt_parse(text);
    program *p = cgt_compile(g, o);
    graph_free(g);
    return p;
}

#endif
