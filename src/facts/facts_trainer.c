/* facts_trainer.c: gradients of the registered operations, and the digit network trained as the published one was.
 * In: rows with chips, loss scales, steps.  Out: cosines; accuracies.
 *
 * The published network, its initial weights and its data are not known. Here: the `digits` network of
 * model/nets.def on drawn digits, so accuracies have other values; what is compared is how chips, scales and reruns
 * relate. */
#include "codegen/codegen.h"
#include "facts/facts_int.h"
#include "grad/grad.h"
#include "target/target.h"
#include "train/run.h"

/* ---- gradients against slopes ---- */

/* Inputs are x and, where there is one, b; the result is y. lo, hi: of the inputs. */
static const struct {
    const char *name;
    double lo, hi;
    const char *text;
} registered[] = {
#define X "x = input fp16[2, 3, 4]\n"
#define IMG "x = input fp16[1, 4, 6, 6]\n"
    { "relu", -2, 2, X "y = relu(x)" },
    { "sigmoid", -2, 2, X "y = sigmoid(x)" },
    { "tanh", -2, 2, X "y = tanh(x)" },
    { "gelu", -2, 2, X "y = gelu(x)" },
    { "silu", -2, 2, X "y = silu(x)" },
    { "mul", -2, 2, X "b = input fp16[3, 4]\ny = mul(x, b)" },
    { "add", -2, 2, X "b = input fp16[3, 1]\ny = add(x, b)" },
    { "sub", -2, 2, X "b = input fp16[4]\ny = sub(x, b)" },
    { "square", -2, 2, X "y = square(x)" },
    { "matmul", -1, 1, "x = input fp16[5, 6]\nb = input fp16[6, 4]\ny = matmul(x, b)" },
    { "batched matmul", -1, 1, "x = input fp16[2, 5, 6]\nb = input fp16[2, 6, 3]\ny = matmul(x, b)" },
    { "softmax", -2, 2, X "y = softmax(x)" },
    { "conv", -1, 1, "x = input fp16[1, 3, 5, 6]\nb = input fp16[4, 3, 3, 3]\ny = conv(x, b) {pad_type=\"custom\", pad=[1, 1, 1, 1]}" },
    { "avg_pool", -2, 2, IMG "y = avg_pool(x) {kernel_sizes=[2, 2], strides=[2, 2]}" },
    { "max_pool", -2, 2, IMG "y = max_pool(x) {kernel_sizes=[2, 2], strides=[2, 2]}" },
    { "reduce_sum", -2, 2, X "y = reduce_sum(x) {axes=[1]}" },
    { "reduce_mean", -2, 2, X "y = reduce_mean(x) {axes=[2]}" },
    { "transpose", -2, 2, X "y = transpose(x) {perm=[2, 0, 1]}" },
    { "reshape", -2, 2, X "y = reshape(x) {shape=[4, 6]}" },
    { "flatten", -2, 2, X "y = flatten2d(x) {axis=1}" },
    { "slice", -2, 2, X "y = slice_by_size(x) {begin=[0, 1, 1], size=[2, 2, 2]}" },
    { "concat", -2, 2, X "b = input fp16[2, 2, 4]\ny = concat(x, b) {axis=1}" },
    { "layer_norm", -2, 2, "x = input fp16[3, 16]\ny = layer_norm(x) {axes=[1]}" },
    { "rms_norm", -2, 2, "x = input fp16[3, 16]\ns = square(x)\nm = reduce_mean(s) {axes=[1], keep_dims=true}\nr = rsqrt(m)\ny = mul(x, r)" },
    { "group_norm", -2, 2, "x = input fp16[2, 4, 3, 3]\nf = reshape(x) {shape=[2, 2, 18]}\nn = layer_norm(f) {axes=[2]}\ny = reshape(n) {shape=[2, 4, 3, 3]}" },
    { "l2_norm", -2, 2, "x = input fp16[1, 3, 2, 4]\ny = l2_norm(x)" },
    { "exp", -2, 2, X "y = exp(x)" },
    { "sqrt", 0.2, 3, X "y = sqrt(x)" },
    { "rsqrt", 0.2, 3, X "y = rsqrt(x)" },
    { "log", 0.2, 3, X "y = log(x)" },
    { "erf", -2, 2, X "y = erf(x)" },
    { "cos", -2, 2, X "y = cos(x)" },
};

static int64_t count_of(const ttype *t)
{
    int64_t n = 0;
    return shape_elems(&t->sh, &n) ? n : 0;
}

/* The case with the loss sum(y * w), whose gradient at y is w. */
static an_status make_case(fx *f, const char *text, uint64_t seed, graph **out, val *loss)
{
    strbuf b = { 0 };
    sb_printf(&b, "graph \"case\"\n%s\nreturn y\n", text);
    an_status st = b.oom ? diag_nomem(f->d) : graph_parse(b.at, b.n, out, f->d);
    sb_free(&b);
    TRY(st);
    graph *g = *out;
    val y = graph_find(g, "y");
    ttype t = *graph_type(g, y);
    const double *by = fx_uniform(f, count_of(&t), seed, -1, 1);
    if (!by) return diag_nomem(f->d);
    val w = graph_const_f64(g, NULL, t, by), p = G(g, MUL, y, w);
    int64_t axes[MAX_RANK];
    for (int i = 0; i < t.sh.rank; i++) axes[i] = i;
    *loss = GA(g, REDUCE_SUM, VALS(p), AT_LIST(AXES, axes, t.sh.rank), AT_B(KEEP_DIMS, true));
    graph_output(g, "loss", *loss);
    return AN_OK;
}

static an_status loss_at(fx *f, const graph *g, tensor64 *in, double *out)
{
    tensor64 res[2];
    arena mem = { 0 };
    an_status st = graph_eval(g, in, res, &mem, f->d);
    if (!st) *out = res[1].x[0];
    arena_free(&mem);
    return st;
}

/* Slopes of the double-precision loss, by moving every number of every input. */
static an_status slopes(fx *f, const graph *g, tensor64 *in, double **want)
{
    const double h = 1e-5;
    for (size_t k = 0; k < g->inputs.n; k++)
        for (int64_t i = 0, n = count_of(&in[k].type); i < n; i++) {
            double x = in[k].x[i], up, down;
            in[k].x[i] = x + h;
            TRY(loss_at(f, g, in, &up));
            in[k].x[i] = x - h;
            TRY(loss_at(f, g, in, &down));
            in[k].x[i] = x;
            want[k][i] = (up - down) / (2 * h);
        }
    return AN_OK;
}

/* The gradients with the arithmetic of a chip. */
static an_status on_chip(fx *f, graph *g, val loss, const numerics *num, const char *chip_name_, tensor64 *in,
                         double **got)
{
    enum { MOST = 2 };
    val dx[MOST];
    program *p = NULL;
    image *im = NULL;
    const void *at_in[MOST];
    void *at_out[MOST + 2];
    TRY(grad_build(g, loss, g->inputs.at, (int)g->inputs.n, dx, NULL, f->d));
    graph_output(g, "gx", dx[0]);
    if (g->inputs.n > 1) graph_output(g, "gb", dx[1]);
    an_status st = graph_finish(g, f->d);
    if (!st) st = codegen_program(g, &(codegen_options){ .num = num, .target = chip_name_, .level = 1 }, &p, f->d);
    for (size_t i = 0; !st && i < p->inputs.n; i++) {
        size_t k = !strcmp(p->inputs.at[i].name, "b");
        uint16_t *x = TAKE(&f->mem, uint16_t, (size_t)count_of(&in[k].type));
        if (!x) st = diag_nomem(f->d);
        for (int64_t j = 0; x && j < count_of(&in[k].type); j++) dtype_store(DT_F16, x, j, in[k].x[j]);
        at_in[i] = x;
    }
    for (size_t i = 0; !st && i < p->outputs.n; i++)
        if (!(at_out[i] = arena_take(&f->mem, (size_t)p->outputs.at[i].bytes, 1, 64))) st = diag_nomem(f->d);
    if (!st) st = image_load(&im, p, NULL, NULL, f->d);
    if (!st) st = image_run(im, at_in, at_out, f->d);
    for (size_t i = 0; !st && i < p->outputs.n; i++) {
        size_t k = !strcmp(p->outputs.at[i].name, "gb");
        if (p->outputs.at[i].name[0] != 'g') continue;
        for (int64_t j = 0; j < count_of(&in[k].type); j++) got[k][j] = dtype_load(DT_F16, at_out[i], j);
    }
    image_free(im);
    program_free(p);
    return st;
}

static an_status one_cosine(fx *f, size_t row, const char *chip_, double *cosine)
{
    graph *g = NULL;
    val loss;
    numerics num;
    tensor64 in[2];
    double *want[2], *got[2], ab = 0, aa = 0, bb = 0;
    const chip *c = chip_find(chip_);
    if (!c || !codegen_numerics(c, &num)) return diag_fail(f->d, AN_BUG, NOWHERE, "no arithmetic of %s", chip_);
    an_status st = make_case(f, registered[row].text, 100 + row, &g, &loss);
    for (size_t k = 0; !st && k < g->inputs.n; k++) {
        in[k].type = *graph_type(g, g->inputs.at[k]);
        int64_t n = count_of(&in[k].type);
        in[k].x = fx_uniform(f, n, 7 * row + k + 1, registered[row].lo, registered[row].hi);
        want[k] = fx_take(f, n), got[k] = fx_take(f, n);
        if (!in[k].x || !want[k] || !got[k]) st = diag_nomem(f->d);
    }
    if (!st) st = slopes(f, g, in, want);
    if (!st) st = on_chip(f, g, loss, &num, chip_, in, got);
    for (size_t k = 0; !st && k < g->inputs.n; k++)
        for (int64_t i = 0; i < count_of(&in[k].type); i++)
            ab += want[k][i] * got[k][i], aa += want[k][i] * want[k][i], bb += got[k][i] * got[k][i];
    *cosine = ab / sqrt(aa * bb);
    graph_free(g);
    return st;
}

an_status fact_gradients(fx *f)
{
    double least = 2;
    const char *worst = "", *chip_;
    for (int c = 0; (chip_ = fx_chip(f, c)); c++)
        for (size_t i = 0; i < COUNT(registered); i++) {
            double x;
            TRY(one_cosine(f, i, chip_, &x));
            if (!(x >= least)) least = x, worst = registered[i].name;
        }
    return fx_verdict(f, least >= 0.9999, "%zu entries on %d chips, least cosine %.5f (%s)", COUNT(registered),
                      f->n_chips, least, worst);
}

/* Operations without a gradient say so, by name, before anything is built. */
an_status fact_no_gradient(fx *f)
{
    static const struct {
        const char *op, *text;
    } rows[] = {
        { "floor_div", X "b = input fp16[4]\ny = floor_div(x, b)" },
        { "resample", "x = input fp16[1, 2, 4, 4]\nb = input fp16[1, 3, 3, 2]\ny = resample(x, b)" },
        { "affine", "x = input fp16[1, 2, 4, 4]\nb = input fp16[1, 6]\ny = affine(x, b) {output_height=3, output_width=3}" },
    };
    int said = 0;
    for (size_t i = 0; i < COUNT(rows); i++) {
        graph *g = NULL;
        val loss, dx[2];
        diag why = { 0 };
        an_status st = make_case(f, rows[i].text, i, &g, &loss);
        if (!st)
            said +=
                grad_build(g, loss, g->inputs.at, 1, dx, NULL, &why) == AN_UNSUPPORTED && strstr(why.msg, rows[i].op);
        graph_free(g);
        TRY(why.st == AN_NOMEM ? diag_nomem(f->d) : st);
    }
    return fx_verdict(f, said == COUNT(rows), "%d of %zu operations without gradient refuse by name", said,
                      COUNT(rows));
}

/* ---- the digit network ---- */

typedef struct {
    int64_t batch, steps, every;
    double scale, lr;
} digits;

static an_status train_digits(fx *f, const char *chip_, const digits *k, train_run_result *r)
{
    char engine[16];
    snprintf(engine, sizeof engine, "soft:%s", chip_);
    return train_run(&(train_run_options){ .model = "digits", .engine = engine, .device.own_budget = true,
                                           .batch = k->batch, .steps = k->steps, .loss_scale = k->scale, .lr = k->lr,
                                           .seed = 1, .every = k->every ? k->every : -1, .final_test = 1000 }, r, NULL,
                     f->d);
}

/* args: batch, steps. The first chip's accuracy, the second's the same, the last one's within a sample in a
 * thousand. */
an_status fact_digits(fx *f)
{
    digits k = { .batch = (int64_t)fx_arg(f, 0), .steps = (int64_t)fx_arg(f, 1), .scale = 1024 };
    train_run_result m1, m2, m5;
    TRY(train_digits(f, "m1", &k, &m1));
    TRY(train_digits(f, "m2", &k, &m2));
    TRY(train_digits(f, "m5", &k, &m5));
    bool ok = m1.final_accuracy >= 0.908 && m2.final_accuracy == m1.final_accuracy &&
              fabs(m5.final_accuracy - m1.final_accuracy) < 0.00151;
    return fx_verdict(f, ok, "%.4f m1, %.4f m2, %.4f m5", m1.final_accuracy, m2.final_accuracy, m5.final_accuracy);
}

/* args: batch, steps, most allowed between the chips. Accuracies every 50 steps. */
an_status fact_digits_trace(fx *f)
{
    digits k = { .batch = (int64_t)fx_arg(f, 0), .steps = (int64_t)fx_arg(f, 1), .scale = 1024, .every = 50 };
    train_run_result m1, m5;
    strbuf b = { 0 };
    double apart = 0;
    TRY(train_digits(f, fx_chip(f, 0), &k, &m1));
    TRY(train_digits(f, fx_chip(f, 1), &k, &m5));
    bool ok =
        m1.n_trace == m5.n_trace && m1.n_trace == k.steps / k.every + 1 && m1.trace[0].accuracy == m5.trace[0].accuracy;
    for (int i = 0; i < m1.n_trace; i++) {
        apart = MAX(apart, fabs(m1.trace[i].accuracy - m5.trace[i].accuracy));
        sb_printf(&b, "%s%.4f/%.4f", i ? ", " : "", m1.trace[i].accuracy, m5.trace[i].accuracy);
    }
    ok = ok && apart <= fx_arg(f, 2) && m1.trace[m1.n_trace - 1].accuracy > m1.trace[1].accuracy;
    an_status st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s", b.at);
    sb_free(&b);
    return st;
}

/* args: batch, steps, most allowed between them, then the scales. */
an_status fact_digits_scales(fx *f)
{
    double a[8] = { 0 }, lo = 1, hi = 0;
    int n = MIN(f->row->n_arg - 3, 8);
    for (int i = 0; i < n; i++) {
        digits k = { .batch = (int64_t)fx_arg(f, 0), .steps = (int64_t)fx_arg(f, 1), .scale = fx_arg(f, 3 + i) };
        train_run_result r;
        TRY(train_digits(f, fx_chip(f, 0), &k, &r));
        a[i] = r.final_accuracy;
        lo = MIN(lo, a[i]), hi = MAX(hi, a[i]);
    }
    return fx_verdict(f, lo >= 0.9 && hi - lo <= fx_arg(f, 2), "%s", fx_list(f, a, n));
}

/* args: batch, steps. */
an_status fact_resident_training(fx *f)
{
    digits k = { .batch = (int64_t)fx_arg(f, 0), .steps = (int64_t)fx_arg(f, 1), .scale = 1024 }, twice = k;
    train_run_result a, b;
    twice.lr = 0.1 / 1024; /* the network's rate, divided by the scale a second time */
    TRY(train_digits(f, fx_chip(f, 0), &k, &a));
    TRY(train_digits(f, fx_chip(f, 0), &twice, &b));
    uint64_t minibatch = (uint64_t)k.batch * (784 + 1) * 2; /* fp16 images and labels; beside them a few numbers */
    bool ok =
        a.stats.dispatches == a.stats.minibatches && a.stats.host_bytes_in <= minibatch + 32 && a.loss < b.loss - 0.5;
    return fx_verdict(f, ok,
                      "%llu dispatches for %llu steps, %llu bytes from the host each; loss %.3f, divided twice %.3f",
                      (unsigned long long)a.stats.dispatches, (unsigned long long)a.stats.steps,
                      (unsigned long long)a.stats.host_bytes_in, a.loss, b.loss);
}

/* args: batch, steps, runs. */
an_status fact_same_run(fx *f)
{
    digits k = { .batch = (int64_t)fx_arg(f, 0), .steps = (int64_t)fx_arg(f, 1), .scale = 1024 };
    train_run_result first, r;
    bool ok = true;
    TRY(train_digits(f, fx_chip(f, 0), &k, &first));
    for (int i = 1; i < (int)fx_arg(f, 2); i++) {
        TRY(train_digits(f, fx_chip(f, 0), &k, &r));
        ok = ok && r.digest == first.digest && r.loss == first.loss && r.final_accuracy == first.final_accuracy;
    }
    return fx_verdict(f, ok, "%s state over %d runs, accuracy %.4f", ok ? "identical" : "different", (int)fx_arg(f, 2),
                      first.final_accuracy);
}
