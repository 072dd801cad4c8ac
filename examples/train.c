/* train.c: a network of one's own, trained with weights that stay on the device.   cc train.c $(pkg-config --cflags --libs
 * anneal) */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <anneal.h>

enum { BATCH = 32, HIDDEN = 16, STEPS = 400 };
static unsigned seed = 1;
static float uniform(void) { return (float)((seed = seed * 1664525u + 1013904223u) >> 8) / (1 << 23) - 1; } /* -1 … 1 */

static int stop(const an_error *e)
{
    fprintf(stderr, "%s\n", e->message);
    exit(an_exit_code(e->status));
}

int main(int argc, char **argv)
{
    an_error e = { 0 };
    an_program *p;
    an_trainer *t;
    an_train_report r;
    if (an_program_new(&p, "circle", &e)) stop(&e);
    an_value x = an_input(p, "x", "fp32", 2, (const int64_t[]){ BATCH, 2 }),
             y = an_input(p, "y", "fp32", 2, (const int64_t[]){ BATCH, 1 });
    an_value w1 = an_input(p, "w1", "fp32", 2, (const int64_t[]){ 2, HIDDEN }),
             b1 = an_input(p, "b1", "fp32", 2, (const int64_t[]){ 1, HIDDEN });
    an_value w2 = an_input(p, "w2", "fp32", 2, (const int64_t[]){ HIDDEN, 1 }),
             b2 = an_input(p, "b2", "fp32", 2, (const int64_t[]){ 1, 1 });
    an_value h =
        an_op(p, NULL, "add", (an_value[]){ an_op(p, NULL, "matmul", (an_value[]){ x, w1 }, 2, NULL), b1 }, 2, NULL);
    h = an_op(p, NULL, "relu", &h, 1, NULL);
    an_value out =
        an_op(p, "out", "add", (an_value[]){ an_op(p, NULL, "matmul", (an_value[]){ h, w2 }, 2, NULL), b2 }, 2, NULL);
    an_value err =
        an_op(p, NULL, "square", (an_value[]){ an_op(p, NULL, "sub", (an_value[]){ out, y }, 2, NULL) }, 1, NULL);
    an_output(p, "loss", an_op(p, "loss", "reduce_mean", &err, 1, "axes=[0, 1], keep_dims=true"));
    if (an_program_finish(p, &e)) stop(&e);

    const char *params[] = { "w1", "b1", "w2", "b2" }, *fetch[] = { "out" };
    an_train_options o = { .engine = argc > 1 ? argv[1] : "soft:m1", .loss = "loss", .params = params, .n_params = 4,
                           .fetch = fetch, .n_fetch = 1, .optimizer = "momentum", .loss_scale = 128 };
    if (an_trainer_open(&t, p, &o, &e)) stop(&e);
    float w[2 * HIDDEN], in[BATCH][2], want[BATCH], got[BATCH];
    for (int i = 0; i < 2 * HIDDEN; i++) w[i] = uniform();
    if (an_trainer_write(t, "w1", "fp32", w, &e) || an_trainer_write(t, "b1", "fp32", w, &e) ||
        an_trainer_write(t, "w2", "fp32", w, &e))
        stop(&e);
    for (int s = 0; s <= STEPS; s++) { /* inside the circle of radius 0.7 or outside: 1 or -1 */
        for (int i = 0; i < BATCH; i++)
            in[i][0] = uniform(), in[i][1] = uniform(), want[i] = hypotf(in[i][0], in[i][1]) < 0.7f ? 1 : -1;
        if (an_trainer_put(t, "x", "fp32", in, &e) || an_trainer_put(t, "y", "fp32", want, &e)) stop(&e);
        if (s < STEPS && an_trainer_step(t, 0.05, &r, &e)) stop(&e);
        if (s % 100 == 0) printf("step %3d loss %.3f\n", s, r.loss);
    }
    int right = 0; /* on points it has not seen: the last ones put */
    if (an_trainer_eval(t, &e) || an_trainer_fetch(t, "out", "fp32", got, &e) ||
        an_trainer_read(t, "w1", "fp32", w, &e))
        stop(&e);
    for (int i = 0; i < BATCH; i++) right += (got[i] > 0) == (want[i] > 0);
    char *stats = an_trainer_stats(t, AN_TEXT);
    printf("%d of %d right; w1[0] is %.4f\n%s", right, BATCH, (double)w[0], stats ? stats : "");
    an_free(stats);
    an_trainer_close(t);
    an_program_free(p);
    return right >= BATCH * 3 / 4 ? 0 : 1;
}
