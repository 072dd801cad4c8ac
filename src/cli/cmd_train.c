/* cmd_train.c: train a built-in network; accuracies as a table, log lines, a checkpoint. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "cli/cli.h"

const option train_options[] = {
    { "model", "NAME", NULL, "digits, mlp, charlm, normconv, glu" },
    { "data", "DATA", NULL, "mnist:DIR, text:FILE, strokes[:SEED], letters[:SEED]; without it what is built in" },
    { "engine", "E", NULL, "soft:m1 … soft:m5, cpu; without it the best one present" },
    { "pipeline", "P", "resident", "resident: loss, gradients and update are one program" },
    { "steps", "N", NULL, "updates; default: the network's" },
    { "batch", "N", NULL, "samples of a minibatch; default: the network's" },
    { "seq", "N", NULL, "positions of a text sample; default: the network's" },
    { "accum", "N", "1", "minibatches per update" },
    { "optimizer", "O", NULL, "sgd, momentum, adam, adamw; default: the network's" },
    { "lr", "X", NULL, "learning rate; default: the network's" },
    { "lr-end", "X", NULL, "what is left of it at the end, as a fraction; default: the network's" },
    { "schedule", "S", "cosine", "constant, linear, cosine" },
    { "warmup", "N", NULL, "updates over which the rate rises; default: the network's" },
    { "decay", "X", NULL, "weight decay; default: the network's" },
    { "clip", "X", "0", "largest norm of the gradient; 0: any" },
    { "loss-scale", "N|dynamic", NULL, "default: 1 on cpu; on chips the network's, dynamic with adam" },
    { "state", "fp16|halves|fp32", NULL, "weights and moments; default fp16 on chips, fp32 on cpu" },
    { "math", "fp32|bf16", "fp32", "products on cpu" },
    { "seed", "N", "1", "of weights and the order of samples" },
    { "every", "N", "50", "updates between accuracies; 0: none" },
    { "test", "N", "1000", "test samples of those accuracies" },
    { "final-test", "N", NULL, "test samples of the last accuracy; default all, 0: none" },
    { "save", "FILE", NULL, "checkpoint (safetensors), at every accuracy and at the end" },
    { "resume", "FILE", NULL, "go on from a checkpoint" },
    { "log", "FILE", NULL, "a JSON line for every update is added to it" },
    { "threads", "N", "0", "0: one per CPU" },
    { "json", NULL, NULL, "log lines, accuracies and the result on standard output, one object a line" },
    { NULL, NULL, NULL, NULL },
};

typedef struct {
    bool json, table; /* table: its head is out */
    FILE *log;
    const char *log_path;
    const char *engine;
    int64_t every;
} listener;

static void on_log(void *user, const char *line)
{
    listener *l = user;
    if (l->json) puts(line);
    if (l->log && (fputs(line, l->log) < 0 || fputc('\n', l->log) == EOF)) {
        say(AN_INPUT, "%s: cannot write: %s", l->log_path, strerror(errno));
        fclose(l->log);
        l->log = NULL;
    }
}

static void on_accuracy(void *user, int64_t step, double accuracy)
{
    listener *l = user;
    if (l->json) printf("{\"kind\":\"accuracy\",\"step\":%lld,\"accuracy\":%.4f}\n", (long long)step, accuracy);
    else {
        if (!l->table) printf("| step | %s |\n| ---: | ---: |\n", l->engine ? l->engine : "accuracy");
        printf("| %lld | %.4f |\n", (long long)step, accuracy);
    }
    l->table = true;
    fflush(stdout);
}

static void on_warning(void *user, const char *line)
{
    (void)user;
    fprintf(stderr, "anneal: warning: %s\n", line);
}

/* ---- numbers of the command line ---- */

static bool real_of(const args *a, const char *name, double *out)
{
    const char *s = arg_of(a, name);
    char *end;
    if (!s) return true;
    double v = strtod(s, &end);
    if (end != s && !*end && isfinite(v) && v >= 0) return *out = v, true;
    say(AN_USAGE, "--%s wants a number of at least 0, got \"%s\"", name, s);
    return false;
}

static bool whole_of(const args *a, const char *name, long lo, int64_t *out)
{
    long v;
    if (!arg_on(a, name)) return true;
    if (!arg_int(a, name, lo, 1000000000, &v)) return false;
    return *out = v, true;
}

static bool scale_of(const args *a, an_train_run_options *o)
{
    const char *s = arg_of(a, "loss-scale");
    if (s && !strcmp(s, "dynamic")) return o->dynamic_scale = 1, true;
    if (!real_of(a, "loss-scale", &o->loss_scale)) return false;
    if (!s || o->loss_scale > 0) return true;
    say(AN_USAGE, "--loss-scale wants a positive number or dynamic, got \"%s\"", s);
    return false;
}

static bool read_options(const args *a, an_train_run_options *o)
{
    int64_t accum = 1, threads = 0, seed = 1;
    *o = (an_train_run_options){ .model = arg_of(a, "model"), .data = arg_of(a, "data"), .engine = arg_of(a, "engine"), .pipeline = arg_of(a, "pipeline"),
                                 .math = arg_of(a, "math"), .schedule = arg_of(a, "schedule"), .optimizer = arg_of(a, "optimizer"), .state = arg_of(a, "state"),
                                 .save = arg_of(a, "save"), .resume = arg_of(a, "resume"), .on_warning = on_warning };
    if (!whole_of(a, "steps", 1, &o->steps) || !whole_of(a, "batch", 1, &o->batch) || !whole_of(a, "seq", 1, &o->seq)) return false;
    if (!whole_of(a, "accum", 1, &accum) || !whole_of(a, "warmup", 0, &o->warmup) || !whole_of(a, "threads", 0, &threads)) return false;
    if (!whole_of(a, "seed", 0, &seed) || !whole_of(a, "every", 0, &o->every) || !whole_of(a, "test", 1, &o->test) || !whole_of(a, "final-test", 0, &o->final_test))
        return false;
    if (!real_of(a, "lr", &o->lr) || !real_of(a, "lr-end", &o->lr_end) || !real_of(a, "decay", &o->decay) || !real_of(a, "clip", &o->clip)) return false;
    if (accum > 100000 || threads > 4096) return say(AN_USAGE, "--accum goes to 100000, --threads to 4096"), false;
    o->accum = (int)accum, o->threads = (int)threads, o->seed = (uint64_t)seed;
    o->no_warmup = arg_on(a, "warmup") && !o->warmup;
    o->no_decay = arg_on(a, "decay") && o->decay == 0;
    if (!o->every) o->every = -1;
    if (arg_on(a, "final-test") && !o->final_test) o->final_test = -1;
    return scale_of(a, o);
}

/* ---- the result ---- */

static void put_result(const listener *l, const an_train_result *r)
{
    double per = r->minibatches ? (double)r->dispatches / (double)r->minibatches : 0;
    if (l->json) {
        printf("{\"kind\":\"result\",\"model\":\"%s\",\"engine\":\"%s\",\"optimizer\":\"%s\",\"parameters\":%lld,\"steps\":%lld,\"loss\":", r->model, r->engine, r->optimizer,
               (long long)r->parameters, (long long)r->steps);
        if (isfinite(r->loss)) printf("%.6g", r->loss);
        else printf("null");
        if (r->final_n) printf(",\"accuracy\":%.4f,\"test\":%lld", r->final_accuracy, (long long)r->final_n);
        printf(",\"nonfinite\":%llu,\"dispatches_per_minibatch\":%g,\"host_bytes_in\":%llu,\"host_bytes_out\":%llu,\"state_bytes\":%llu,\"seconds\":%.3f,\"digest\":\"%016llx\"}\n",
               (unsigned long long)r->skipped, per, (unsigned long long)r->host_bytes_in, (unsigned long long)r->host_bytes_out,
               (unsigned long long)r->state_bytes, r->seconds, (unsigned long long)r->digest);
        return;
    }
    if (r->final_n) printf("%saccuracy %.4f on %lld test samples\n", l->table ? "\n" : "", r->final_accuracy, (long long)r->final_n);
    fprintf(stderr, "%s on %s, %s, %lld parameters: loss %.4f after %llu updates in %.2f s (%.0f/s), %llu skipped\n", r->model, r->engine, r->optimizer,
            (long long)r->parameters, r->loss, (unsigned long long)r->updates, r->seconds, r->seconds > 0 ? (double)r->updates / r->seconds : 0,
            (unsigned long long)r->skipped);
    fprintf(stderr, "stats: %g dispatch%s per minibatch; per minibatch %llu bytes to the device and %llu back; %llu bytes of state stay there; digest %016llx\n", per,
            per == 1 ? "" : "es", (unsigned long long)r->host_bytes_in, (unsigned long long)r->host_bytes_out, (unsigned long long)r->state_bytes,
            (unsigned long long)r->digest);
}

int cmd_train(const args *a)
{
    an_train_run_options o;
    an_train_result r;
    an_error e = { 0 };
    if (a->n_files) return say(AN_USAGE, "train takes options only, got \"%s\"", a->files[0]);
    if (!read_options(a, &o)) return an_exit_code(AN_USAGE);
    if (!o.model) return say(AN_USAGE, "train wants --model; digits, mlp, charlm, normconv and glu are built in");
    if (o.engine && !an_engine_known(o.engine)) return say(AN_USAGE, "unknown engine \"%s\"; soft:m1 … soft:m5, cpu and null are known", o.engine);
    listener l = { .json = arg_on(a, "json"), .log_path = arg_of(a, "log"), .engine = o.engine };
    if (l.log_path && !(l.log = fopen(l.log_path, "a"))) return say(AN_INPUT, "%s: %s", l.log_path, strerror(errno));
    o.on_log = on_log, o.on_accuracy = on_accuracy, o.user = &l;
    an_status st = an_train(&o, &r, &e);
    bool lost = l.log_path && (!l.log || fclose(l.log));
    if (!st || r.minibatches) put_result(&l, &r);
    if (st) return say_error(NULL, &e);
    return lost ? say(AN_INPUT, "%s: not all log lines could be written", l.log_path) : 0;
}
