/* train.c: a network of one's own, trained with weights that stay on the device.   cc train.c $(pkg-config --cflags --libs
 * anneal) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <anneal.h>

enum { BATCH = 32, HIDDEN = 16, STEPS = 400 };
static unsigned seed = 1;
static float uniform(void) { return (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1; } /* -1 … 1 */

static an_program *p;
static an_error e;
static void ok(an_status st)
{
    if (st) fprintf(stderr, "%s\n", e.message), exit(an_exit_code(st));
}
static an_value input(const char *name, int64_t rows, int64_t columns)
{
    return an_input(p, name, "fp32", 2, (const int64_t[]){ rows, columns });
}
static an_value op(const char *o, an_value a, an_value b) { return an_op(p, NULL, o, (an_value[]){ a, b }, 2, NULL); }

int main(int argc, char **argv)
{
    ok(an_program_new(&p, "circle", &e));
    an_value x = input("x", BATCH, 2), y = input("y", BATCH, 1), w1 = input("w1", 2, HIDDEN);
    an_value h = op("add", op("matmul", x, w1), input("b1", 1, HIDDEN)), relu = an_op(p, NULL, "relu", &h, 1, NULL);
    an_value sums = op("matmul", relu, input("w2", HIDDEN, 1)), b2 = input("b2", 1, 1);
    an_value out = an_op(p, "out", "add", (an_value[]){ sums, b2 }, 2, NULL), off = op("sub", out, y);
    an_value err = an_op(p, NULL, "square", &off, 1, NULL);
    an_output(p, "loss", an_op(p, "loss", "reduce_mean", &err, 1, "axes=[0, 1], keep_dims=true"));
    ok(an_program_finish(p, &e));

    const char *params[] = { "w1", "b1", "w2", "b2" }, *fetch[] = { "out" };
    an_train_options o = { .engine = argc > 1 ? argv[1] : "soft:m1", .loss = "loss", .params = params, .n_params = 4,
                           .fetch = fetch, .n_fetch = 1, .optimizer = "momentum", .loss_scale = 128 };
    an_trainer *t;
    an_train_report r;
    ok(an_trainer_open(&t, p, &o, &e));
    float w[2 * HIDDEN], in[BATCH][2], want[BATCH], got[BATCH];
    for (int i = 0; i < 2 * HIDDEN; i++) w[i] = uniform();
    for (int i = 0; i < 3; i++) ok(an_trainer_write(t, params[i], "fp32", w, &e)); /* the last bias is 0 */
    for (int s = 0; s <= STEPS; s++) { /* inside the circle of radius 0.7 or outside: 1 or -1 */
        for (int i = 0; i < BATCH; i++)
            in[i][0] = uniform(), in[i][1] = uniform(), want[i] = hypotf(in[i][0], in[i][1]) < 0.7f ? 1 : -1;
        ok(an_trainer_put(t, "x", "fp32", in, &e)), ok(an_trainer_put(t, "y", "fp32", want, &e));
        if (s < STEPS) ok(an_trainer_step(t, 0.05, &r, &e));
        if (s % 100 == 0) printf("step %3d loss %.3f\n", s, r.loss);
    }
    int right = 0; /* on points it has not seen: the last ones put */
    ok(an_trainer_eval(t, &e)), ok(an_trainer_fetch(t, "out", "fp32", got, &e));
    ok(an_trainer_read(t, "w1", "fp32", w, &e));
    for (int i = 0; i < BATCH; i++) right += (got[i] > 0) == (want[i] > 0);
    char *stats = an_trainer_stats(t, AN_TEXT);
    printf("%d of %d right; w1[0] is %.4f\n%s", right, BATCH, (double)w[0], stats ? stats : "");
    an_free(stats), an_trainer_close(t), an_program_free(p);
    return right >= BATCH * 3 / 4 ? 0 : 1;
}
