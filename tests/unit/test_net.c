/* The trainable networks: gradients against differences of the evaluator, patches against the convolution op, and
 * every chip's opinion of the whole of loss and gradients at the default batch. */
#include "grad_t.h"

#include "base/io.h"
#include "check/check.h"
#include "model/net.h"
#include "pass/pass.h"

static net build(const char *name, const net_options *o)
{
    net n;
    diag d = { 0 };
    if (net_build(name, o, &n, &d)) fail_msg("%s: %s", name, d.msg);
    return n;
}

/* Small enough for differences: images just large enough for every window, a short text. */
static const net_options small = { .batch = 3, .height = 8, .width = 9, .classes = 5, .seq = 4, .dt = DT_F64 };

typedef struct {
    arena mem;
    tensor64 *in; /* in input order */
} feed;

/* Parameters as they start but nothing zero: a zero last layer would hide what is behind it. */
static feed feed_of(const net *n, rng *r)
{
    feed f = { 0 };
    f.in = TAKE(&f.mem, tensor64, n->g->inputs.n);
    assert_non_null(f.in);
    for (size_t i = 0; i < n->g->inputs.n; i++) {
        val v = n->g->inputs.at[i];
        f.in[i].type = *graph_type(n->g, v);
        int64_t count = elems(&f.in[i].type);
        double *x = f.in[i].x = TAKE(&f.mem, double, (size_t)count);
        assert_non_null(x);
        bool ids = v.i == n->y.i || (v.i == n->x.i && n->task == NET_TEXT);
        for (int64_t k = 0; k < count; k++)
            x[k] = ids ? (double)rng_below(r, (uint64_t)n->opt.classes) : rng_range(r, 0, 1);
        for (int p = 0; p < n->n_param; p++) {
            if (n->param[p].v.i != v.i) continue;
            double scale = n->param[p].scale > 0 ? n->param[p].scale : 0.3;
            for (int64_t k = 0; k < count; k++) x[k] = (n->param[p].init == NET_ONES) + scale * rng_range(r, -1, 1);
        }
    }
    return f;
}

/* Every element of a small parameter, some of a large one, and one direction through all of it. */
static void param_agrees(const graph *f, tensor64 *in, size_t k, const double *got, rng *r, const char *net_name)
{
    enum { SOME = 24 };
    int64_t n = elems(&in[k].type);
    double *x = in[k].x, big = 0, along = 0, hi, lo, *way = malloc((size_t)n * sizeof *way);
    assert_non_null(way);
    for (int64_t i = 0; i < n; i++) big = fmax(big, fabs(got[i]));
    if (!(big > 1e-9))
        fail_msg("%s: the gradient by %s is nothing (%g)", net_name, graph_value(f, f->inputs.at[k])->name, big);
    for (int64_t j = 0; j < MIN(n, SOME); j++) {
        int64_t i = n <= SOME ? j : (int64_t)rng_below(r, (uint64_t)n);
        double keep = x[i];
        x[i] = keep + GRAD_STEP, loss_value(f, in, &hi);
        x[i] = keep - GRAD_STEP, loss_value(f, in, &lo);
        x[i] = keep;
        double want = (hi - lo) / (2 * GRAD_STEP), off = fabs(want - got[i]) / fmax(big, 1e-2);
        if (!(off <= GRAD_TOL))
            fail_msg("%s: d loss / d %s[%lld] is %.9g, differences say %.9g", net_name,
                     graph_value(f, f->inputs.at[k])->name, (long long)i, got[i], want);
    }
    for (int64_t i = 0; i < n; i++) way[i] = rng_range(r, -1, 1), along += way[i] * got[i];
    for (int64_t i = 0; i < n; i++) x[i] += GRAD_STEP / 10 * way[i];
    loss_value(f, in, &hi);
    for (int64_t i = 0; i < n; i++) x[i] -= GRAD_STEP / 5 * way[i];
    loss_value(f, in, &lo);
    for (int64_t i = 0; i < n; i++) x[i] += GRAD_STEP / 10 * way[i];
    double want = (hi - lo) / (GRAD_STEP / 5), size = big * sqrt((double)n);
    if (!(fabs(want - along) <= 1e-5 * fmax(size, 1e-2)))
        fail_msg("%s: along a direction of %s %.9g, differences say %.9g", net_name,
                 graph_value(f, f->inputs.at[k])->name, along, want);
    free(way);
}

static void gradients(void **state)
{
    (void)state;
    rng r = { test_seed("networks") };
    for (size_t i = 0; i < net_count(); i++) {
        const char *name = net_at(i)->name;
        net n = build(name, &small);
        feed f = feed_of(&n, &r);
        val wrt[NET_MAX_PARAMS], dx[NET_MAX_PARAMS];
        diag d = { 0 };
        tensor64 out[NET_MAX_PARAMS + 1];
        for (int k = 0; k < n.n_param; k++) wrt[k] = n.param[k].v;
        graph fwd = *n.g;
        port only = { "loss", n.loss };
        fwd.outputs.at = &only, fwd.outputs.n = 1;
        assert_ok(grad_build(n.g, n.loss, wrt, n.n_param, dx, NULL, &d), d);
        for (int k = 0; k < n.n_param; k++) {
            char port_name[16];
            snprintf(port_name, sizeof port_name, "d%d", k);
            graph_output(n.g, port_name, dx[k]);
        }
        assert_ok(graph_finish(n.g, &d), d);
        assert_ok(graph_eval(n.g, f.in, out, &f.mem, &d), d);
        for (int k = 0; k < n.n_param; k++)
            for (size_t p = 0; p < fwd.inputs.n; p++)
                if (fwd.inputs.at[p].i == wrt[k].i) param_agrees(&fwd, f.in, p, out[k].x, &r, name);
        arena_free(&f.mem);
        net_free(&n);
    }
}

/* The loss is the mean cross-entropy of the logits, and the first one of a network whose last layer is zero is
 * log(classes). */
static void the_loss(void **state)
{
    (void)state;
    rng r = { test_seed("loss") };
    for (size_t i = 0; i < net_count(); i++) {
        net n = build(net_at(i)->name, &small);
        feed f = feed_of(&n, &r);
        diag d = { 0 };
        tensor64 out[2];
        graph_output(n.g, "loss", n.loss);
        graph_output(n.g, "logits", n.logits);
        assert_ok(graph_finish(n.g, &d), d);
        assert_ok(graph_eval(n.g, f.in, out, &f.mem, &d), d);
        assert_int_equal(elems(&out[1].type), n.rows * n.opt.classes);
        double want = 0;
        const double *y = f.in[1].x;
        for (int64_t row = 0; row < n.rows; row++) {
            const double *z = out[1].x + row * n.opt.classes;
            double sum = 0;
            for (int64_t c = 0; c < n.opt.classes; c++) sum += exp(z[c] - z[(int64_t)y[row]]);
            want += log(sum) / (double)n.rows;
        }
        if (fabs(out[0].x[0] - want) > 1e-9)
            fail_msg("%s: loss %.12g, of its logits %.12g", net_at(i)->name, out[0].x[0], want);
        arena_free(&f.mem);
        net_free(&n);
    }
}

static void patches_are_the_convolution(void **state)
{
    (void)state;
    static const char *const names[] = { "digits", "normconv" };
    for (size_t i = 0; i < COUNT(names); i++) {
        tensor64 out[2];
        feed f[2];
        net n[2];
        net_options o = small;
        o.height = 13, o.width = 10;
        for (int k = 0; k < 2; k++) {
            rng r = { 77 };
            diag d = { 0 };
            o.direct_conv = k;
            n[k] = build(names[i], &o);
            f[k] = feed_of(&n[k], &r);
            graph_output(n[k].g, "logits", n[k].logits);
            assert_ok(graph_finish(n[k].g, &d), d);
            assert_ok(graph_eval(n[k].g, f[k].in, &out[k], &f[k].mem, &d), d);
        }
        int convs = 0;
        for (size_t k = 1; k < n[1].g->nodes.n; k++) convs += n[1].g->nodes.at[k].op == OP_CONV;
        assert_true(convs > 0);
        for (int64_t k = 0; k < elems(&out[0].type); k++)
            if (fabs(out[0].x[k] - out[1].x[k]) > 1e-12)
                fail_msg("%s: logit %lld is %.15g by patches, %.15g by conv", names[i], (long long)k, out[0].x[k],
                         out[1].x[k]);
        for (int k = 0; k < 2; k++) arena_free(&f[k].mem), net_free(&n[k]);
    }
}

/* m1 and m2 turn what passes 4094 in such a cut into infinity: nothing there may carry the loss scale. */
static void no_gradient_is_cut_along_the_width(const graph *g, const grad_info *info)
{
    for (size_t i = info->first_node; i < g->nodes.n; i++) {
        const node *k = &g->nodes.at[i];
        if (k->op != OP_SLICE_BY_SIZE && k->op != OP_SLICE_BY_INDEX) continue;
        const attr *begin = attr_get(k->attrs, k->n_attr, A_BEGIN);
        if (begin && begin->n && begin->u.is[begin->n - 1])
            fail_msg("%s cuts a gradient at width offset %lld", k->name, (long long)begin->u.is[begin->n - 1]);
    }
}

/* Loss and all gradients at the default batch in fp16, through the passes: no chip has an error to report. */
static void every_chip_takes_them(void **state)
{
    (void)state;
    static const char *const chips[] = { "m1", "m2", "m3", "m4", "m5" };
    for (size_t i = 0; i < net_count(); i++)
        for (size_t c = 0; c < COUNT(chips); c++) {
            const chip *t = chip_find(chips[c]);
            assert_non_null(t);
            net n = build(net_at(i)->name, NULL);
            val wrt[NET_MAX_PARAMS], dx[NET_MAX_PARAMS];
            diag d = { 0 };
            for (int k = 0; k < n.n_param; k++) wrt[k] = n.param[k].v;
            grad_info info = { 0 };
            grad_options go = { .loss_scale = net_at(i)->loss_scale, .info = &info };
            assert_ok(grad_build(n.g, n.loss, wrt, n.n_param, dx, &go, &d), d);
            no_gradient_is_cut_along_the_width(n.g, &info);
            graph_output(n.g, "loss", n.loss);
            graph_output(n.g, "logits", n.logits);
            for (int k = 0; k < n.n_param; k++) {
                char name[16];
                snprintf(name, sizeof name, "d%d", k);
                graph_output(n.g, name, dx[k]);
            }
            pass_options po = { .target = t, .level = 1 };
            assert_ok(graph_finish(n.g, &d), d);
            assert_ok(pass_run(n.g, &po, NULL, &d), d);
            check_report *rep = NULL;
            check_options co = { .target = &t, .n_target = 1 };
            assert_ok(check_graph(n.g, &co, &rep, &d), d);
            if (rep->n_errors) {
                strbuf b = { 0 };
                check_options eo = { .target = &t, .n_target = 1, .errors_only = true };
                check_free(rep);
                assert_ok(check_graph(n.g, &eo, &rep, &d), d);
                check_print(rep, "text", &b);
                fail_msg("%s on %s:\n%s", net_at(i)->name, chips[c], b.at);
            }
            check_free(rep);
            net_free(&n);
        }
}

static void first_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < net_count(); i++) {
        net n = build(net_at(i)->name, &small);
        for (int k = 0; k < n.n_param; k++) {
            int64_t count = net_param_count(&n, k);
            float *a = malloc((size_t)count * sizeof *a), *b = malloc((size_t)count * sizeof *b);
            assert_true(a && b);
            rng r = { 5 }, again = { 5 };
            net_init_fill(&n, k, &r, a);
            net_init_fill(&n, k, &again, b);
            assert_memory_equal(a, b, (size_t)count * sizeof *a);
            double most = 0;
            for (int64_t j = 0; j < count; j++) most = fmax(most, fabs(a[j]));
            double want = n.param[k].init == NET_ZEROS ? 0 : n.param[k].init == NET_ONES ? 1 : n.param[k].scale;
            assert_true(most <= want * (1 + 1e-6));
            if (count > 50) assert_true(most >= 0.8 * want);
            assert_true(n.param[k].decay ==
                        (graph_type(n.g, n.param[k].v)->sh.d[0] > 1 || !strcmp(n.param[k].name, "place")));
            free(a), free(b);
        }
        net_free(&n);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        net_options o;
        const char *says;
    } bad[] = {
        { "cnn", { 0 }, "no network \"cnn\"; there are digits, mlp" },
        { "mlp", { .batch = -3 }, "a batch of -3" },
        { "mlp", { .batch = 1 << 20 }, "a batch of 1048576, wanted 1 to" },
        { "mlp", { .classes = 1 }, "one class" },
        { "mlp", { .classes = 300 }, "a number of classes of 300" },
        { "digits", { .height = 4 }, "images of 4 x 28 pixels are too small for the layer conv" },
        { "normconv", { .width = 5 }, "too small for the layer c2" },
        { "charlm", { .seq = 5000 }, "a window of 5000" },
        { "glu", { .dt = DT_I32 }, "tensors of int32" },
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        net n;
        diag d = { 0 };
        assert_int_equal(net_build(bad[i].name, &bad[i].o, &n, &d), AN_INPUT);
        if (!strstr(d.msg, bad[i].says)) fail_msg("said \"%s\", wanted \"%s\"", d.msg, bad[i].says);
        assert_null(n.g);
    }
}

static void the_table(void **state)
{
    (void)state;
    static const char *const formats[] = { "text", "json", "markdown" };
    for (size_t k = 0; k < COUNT(formats); k++) {
        strbuf b = { 0 };
        net_print(&b, formats[k]);
        for (size_t i = 0; i < net_count(); i++) assert_non_null(strstr(b.at, net_at(i)->name));
        sb_free(&b);
    }
    assert_null(net_at(net_count()));
    assert_null(net_find("none"));
    assert_ptr_equal(net_find("mlp")->name, net_at(1)->name);
}

/* docs/training.md shows the table as it is printed. */
static void the_document(void **state)
{
    (void)state;
    strbuf b = { 0 };
    file_bytes f;
    diag d = { 0 };
    net_print(&b, "markdown");
    assert_ok(file_read("docs/training.md", 1 << 20, &f, &d), d);
    if (!strstr((const char *)f.at, b.at)) fail_msg("docs/training.md lacks this:\n%s", b.at);
    file_drop(&f);
    sb_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients),
        cmocka_unit_test(the_loss),
        cmocka_unit_test(patches_are_the_convolution),
        cmocka_unit_test(every_chip_takes_them),
        cmocka_unit_test(first_values),
        cmocka_unit_test(refusals),
        cmocka_unit_test(the_table),
        cmocka_unit_test(the_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
