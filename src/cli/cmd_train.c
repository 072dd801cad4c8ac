/* cmd_train.c: the training command: its options, and a built-in network trained: accuracies as a table, log lines,
 * a checkpoint. The name of the model decides; language models are in cmd_train_lm.c. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/lines.h"
#include "base/pool.h"
#include "cli/signals.h"
#include "cli/train_int.h"

const option train_options[] = {
    { "model", "M", "stories1m", "language model: a preset (tiny, stories1m, stories15m …), config.json, or a model to continue; network: digits, mlp, charlm, normconv, glu" },
    { "data", "DATA", NULL, "language models: text or token files (several: with commas between, or --data again), a folder of token files, builtin:stories; networks: mnist:DIR, text:FILE, strokes[:SEED], letters[:SEED]; without it what is built in" },
    { "tokenizer", "T", NULL, "language models: what text is read with, as for tokenize (builtin:stories too); without it a trained model's own, and for the built-in stories theirs" },
    { "documents", "RULE", NULL, "language models: where documents of text end: auto, whole, endoftext, blank, lines; default: auto" },
    { "engine", "E", NULL, "soft:m1 … soft:m5, cpu; without it the best one present" },
    { "pipeline", "P", "resident", "resident: loss, gradients and update are one program; language models also delta, dynamic, restart" },
    { "steps", "N", NULL, "updates; default: 300, or the network's" },
    { "batch", "N", NULL, "samples of a minibatch; default: 8, or the network's" },
    { "seq", "N", NULL, "positions of a text sample (of networks charlm alone has them); default: the model's" },
    { "accum", "N", "1", "minibatches per update" },
    { "optimizer", "O", NULL, "sgd, momentum, adam, adamw; default: adamw, or the network's" },
    { "lr", "X", NULL, "learning rate; default: by the model's size, or the network's" },
    { "lr-end", "X", NULL, "what is left of it at the end, as a fraction, 0: nothing; not with --schedule constant; default: 0.1, or the network's" },
    { "schedule", "S", "cosine", "constant, linear, cosine" },
    { "warmup", "N", NULL, "updates over which the rate rises; default: 20, at most a tenth of the steps, or the network's" },
    { "decay", "X", NULL, "weight decay; default: 0.1, or the network's" },
    { "clip", "X", NULL, "largest norm of the gradient, 0: any; default: 1, networks 0" },
    { "loss-scale", "N|dynamic", NULL, "default: 1 on cpu; on chips the network's, or for language models dynamic; dynamic begins there at 16 and on cpu at 1 (networks on chips at 1024)" },
    { "state", "fp16|halves|fp32", NULL, "weights and moments; default on chips halves (networks fp16), fp32 on cpu; by delta, dynamic and restart always fp32" },
    { "residual-scale", "X|depth", NULL, "language models: residual branches times X, or times 1/sqrt(2 layers); the files hold it inside their matrices" },
    { "softcap", "X", NULL, "language models: logits become X tanh(logits / X); the model's config.json keeps it" },
    { "zero-init", NULL, NULL, "language models from a seed: the matrices that end residual branches start at 0" },
    { "compact-vocab", NULL, NULL, "language models: train rows of tokens that occur in the data, and choose among those; other rows stay" },
    { "recompute", NULL, NULL, "language models: compute a layer's activations again in the backward pass instead of holding them: less memory, same bits" },
    { "math", "fp32|bf16", "fp32", "products on cpu; bf16 is refused elsewhere" },
    { "seed", "N", "1", "of weights and the order of samples" },
    { "every", "N", NULL, "updates between accuracies (networks: 50, 0: none), or between lines where no terminal is (a twentieth of the run)" },
    { "test", "N", NULL, "networks: test samples of those accuracies (1000); not with --every 0" },
    { "final-test", "N", NULL, "networks: test samples of the last accuracy; default all, 0: none" },
    { "validation", "X", NULL, "language models: share of the data kept back (0.02); 0: none" },
    { "eval-every", "N", NULL, "language models: updates between losses on it, the first 64 windows for any batch; default: at the end only" },
    { "sample-every", "N", NULL, "language models: updates between samples, which want a tokenizer; default: at the end only, 0: none" },
    { "sample-tokens", "N", NULL, "language models: tokens of a sample (80)" },
    { "prompt", "S", NULL, "language models: what samples begin with; wants a tokenizer" },
    { "save", "PATH", NULL, "checkpoints: a folder of them (language models), a safetensors file at every accuracy and at the end (networks); also when a signal or a closed pipe ends the run" },
    { "save-every", "N", NULL, "language models: updates between checkpoints (100)" },
    { "keep", "N", NULL, "language models: newest checkpoints that stay (2)" },
    { "resume", "[PATH]", NULL, "go on from the newest intact checkpoint of --save, or of PATH" },
    { "stop-after", "N", NULL, "updates of this command (by restart of all its processes); --resume goes on" },
    { "compile-limit", "N", NULL, "language models: programs this process may compile on a chip; default: the chip's" },
    { "log", "FILE", NULL, "a JSON line for every update is added to it" },
    { "stats", "N", NULL, "language models: updates between lines with the norms of weights and gradients, by kind, in the log" },
    { "csv", "FILE", NULL, "language models: a line for every update as CSV" },
    { "plot", "FILE", NULL, "language models: the losses as SVG; those of earlier processes of the run from --log" },
    { "profile", "FILE", NULL, "language models: what ran where and when, as a Chrome trace; sums on standard error" },
    { "threads", "N", "0", "0: one per CPU" },
    { "json", NULL, NULL, "log lines, accuracies, samples and the result on standard output, one object a line" },
    { NULL, NULL, NULL, NULL },
};

typedef struct {
    bool json, table; /* table: its head is out */
    lines *log;
    const char *log_path;
    const char *engine;
    int code; /* of what was said here; 0: nothing */
    bool unread; /* who read standard output is gone */
} listener;

static int stop(void *user) { return signals_stop(&((listener *)user)->unread); }

/* Only now: a run that cannot begin leaves no file. */
static an_status on_start(void *user)
{
    listener *l = user;
    if (!l->log_path || (l->log = lines_open(l->log_path, false))) return AN_OK;
    l->code = say(AN_INPUT, "%s: %s", l->log_path, strerror(errno));
    return AN_INPUT;
}

static void on_log(void *user, const char *line)
{
    listener *l = user;
    if (l->json) puts(line), fflush(stdout);
    if (l->log && !lines_add(l->log, line)) {
        l->code = say(AN_INPUT, "%s: cannot write: %s; training goes on without it", l->log_path, strerror(errno));
        lines_close(l->log);
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

bool real_of(const args *a, const char *name, double *out)
{
    const char *s = arg_of(a, name);
    char *end;
    if (!s) return true;
    double v = strtod(s, &end);
    if (end != s && !*end && isfinite(v) && v >= 0) return *out = v, true;
    say(AN_USAGE, "--%s wants a number of at least 0, got \"%s\"", name, s);
    return false;
}

bool whole_of(const args *a, const char *name, long lo, int64_t *out)
{
    long v;
    if (!arg_on(a, name)) return true;
    if (!arg_int(a, name, lo, 1000000000, &v)) return false;
    return *out = v, true;
}

bool scale_of(const args *a, double *scale, int *dynamic)
{
    const char *s = arg_of(a, "loss-scale");
    if (s && !strcmp(s, "dynamic")) return *dynamic = 1, true;
    if (!real_of(a, "loss-scale", scale)) return false;
    if (!s || *scale > 0) return true;
    say(AN_USAGE, "--loss-scale wants a positive number or dynamic, got \"%s\"", s);
    return false;
}

bool threads_of(const args *a, int *out)
{
    int64_t v = 0;
    if (!whole_of(a, "threads", 0, &v)) return false;
    if (v > POOL_MAX_THREADS)
        return say(AN_USAGE, "--threads goes to %d, got %lld", POOL_MAX_THREADS, (long long)v), false;
    return *out = (int)v, true;
}

bool accum_of(const args *a, int *out)
{
    int64_t v = 1;
    if (!whole_of(a, "accum", 1, &v)) return false;
    if (v > 100000) return say(AN_USAGE, "--accum goes to 100000, got %lld", (long long)v), false;
    return *out = (int)v, true;
}

static bool read_options(const args *a, an_train_run_options *o)
{
    int64_t seed = 1;
    const char *resume = arg_of(a, "resume");
    *o = (an_train_run_options){ .model = arg_of(a, "model"),
                                 .data = arg_of(a, "data"),
                                 .engine = arg_of(a, "engine"),
                                 .pipeline = arg_of(a, "pipeline"),
                                 .math = arg_of(a, "math"),
                                 .schedule = arg_of(a, "schedule"),
                                 .optimizer = arg_of(a, "optimizer"),
                                 .state = arg_of(a, "state"),
                                 .save = arg_of(a, "save"),
                                 .resume = resume && !*resume ? arg_of(a, "save") : resume,
                                 .on_warning = on_warning };
    if (resume && !o->resume) return say(AN_USAGE, "--resume wants a checkpoint: its own, or that of --save"), false;
    if (!whole_of(a, "steps", 1, &o->steps) || !whole_of(a, "batch", 1, &o->batch) || !whole_of(a, "seq", 1, &o->seq))
        return false;
    if (!accum_of(a, &o->accum) || !whole_of(a, "warmup", 0, &o->warmup) || !threads_of(a, &o->threads)) return false;
    if (!whole_of(a, "seed", 0, &seed) || !whole_of(a, "every", 0, &o->every) || !whole_of(a, "test", 1, &o->test) ||
        !whole_of(a, "final-test", 0, &o->final_test))
        return false;
    if (!real_of(a, "lr", &o->lr) || !real_of(a, "lr-end", &o->lr_end) || !real_of(a, "decay", &o->decay) ||
        !real_of(a, "clip", &o->clip))
        return false;
    if (arg_on(a, "lr") && o->lr == 0)
        return say(AN_USAGE, "--lr wants a positive number, got \"%s\"", arg_of(a, "lr")), false;
    if (!whole_of(a, "stop-after", 1, &o->stop_after)) return false;
    if (o->stop_after && !o->save)
        return say(AN_USAGE, "--stop-after leaves the rest of the run to --resume: name a file for it with --save"),
               false;
    o->seed = (uint64_t)seed;
    o->no_warmup = arg_on(a, "warmup") && !o->warmup;
    o->no_lr_end = arg_on(a, "lr-end") && o->lr_end == 0;
    o->no_decay = arg_on(a, "decay") && o->decay == 0;
    if (arg_on(a, "every") && !o->every) o->every = -1;
    if (arg_on(a, "final-test") && !o->final_test) o->final_test = -1;
    return scale_of(a, &o->loss_scale, &o->dynamic_scale);
}

/* ---- the result ---- */

static double per_minibatch(const an_train_result *r)
{
    return r->ran ? (double)r->dispatches / (double)r->ran : 0; /* the rest of a group that overflowed is left out */
}

static void put_json(const an_train_result *r)
{
    printf(
        "{\"kind\":\"result\",\"model\":\"%s\",\"engine\":\"%s\",\"optimizer\":\"%s\",\"parameters\":%lld,\"steps\":%lld,\"done\":%lld,\"loss\":",
        r->model, r->engine, r->optimizer, (long long)r->parameters, (long long)r->steps, (long long)r->done);
    if (isfinite(r->loss)) printf("%.6g", r->loss);
    else printf("null");
    if (r->final_n) printf(",\"accuracy\":%.4f,\"test\":%lld", r->final_accuracy, (long long)r->final_n);
    printf(",\"nonfinite\":%llu,\"zero\":%llu,\"dispatches_per_minibatch\":%g,\"host_bytes_in\":%llu,\"host_bytes_out\":%llu,\"state_bytes\":%llu,\"seconds\":%.3f,\"digest\":",
           (unsigned long long)r->skipped, (unsigned long long)r->zeros, per_minibatch(r), (unsigned long long)r->host_bytes_in, (unsigned long long)r->host_bytes_out,
           (unsigned long long)r->state_bytes, r->seconds);
    if (r->digest) printf("\"%016llx\"}\n", (unsigned long long)r->digest);
    else printf("null}\n");
}

static void put_text_result(const listener *l, const an_train_result *r)
{
    double per = per_minibatch(r);
    if (r->final_n)
        printf("%saccuracy %.4f on %lld test samples\n", l->table ? "\n" : "", r->final_accuracy,
               (long long)r->final_n);
    fprintf(stderr, "%s on %s, %s, %lld parameters: ", r->model, r->engine, r->optimizer, (long long)r->parameters);
    if (r->done == r->first) fprintf(stderr, "all %lld updates were done before", (long long)r->done);
    else {
        if (isfinite(r->loss)) fprintf(stderr, "loss %.4f after ", r->loss);
        fprintf(stderr, "%llu updates in %.2f s (%.0f/s), %llu skipped", (unsigned long long)r->updates, r->seconds,
                r->seconds > 0 ? (double)(r->done - r->first) / r->seconds : 0, (unsigned long long)r->skipped);
        if (r->zeros) fprintf(stderr, ", %llu without a gradient", (unsigned long long)r->zeros);
        fprintf(
            stderr,
            "\nstats: %g dispatch%s per minibatch; per minibatch %llu bytes to the device and %llu back; %llu bytes of state stay there",
            per, per == 1 ? "" : "es", (unsigned long long)r->host_bytes_in, (unsigned long long)r->host_bytes_out,
            (unsigned long long)r->state_bytes);
    }
    if (r->digest) fprintf(stderr, "; digest %016llx", (unsigned long long)r->digest);
    fputc('\n', stderr);
}

static int train_net(const args *a)
{
    static const char *const others[] = { "tokenizer", "documents", "validation", "eval-every", "sample-every", "sample-tokens", "prompt", "save-every", "keep", "compile-limit",
                                          "csv", "plot", "profile", "residual-scale", "softcap", "zero-init", "compact-vocab", "recompute", "stats", NULL };
    an_train_run_options o;
    an_train_result r;
    an_error e = { 0 };
    int code = args_without(a, "--model of a built-in network", others);
    if (code) return code;
    if (!read_options(a, &o)) return an_exit_code(AN_USAGE);
    listener l = { .json = arg_on(a, "json"), .log_path = arg_of(a, "log"), .engine = o.engine };
    o.on_start = on_start, o.on_log = on_log, o.on_accuracy = on_accuracy, o.stop = stop, o.user = &l;
    signals_catch();
    an_status st = an_train(&o, &r, &e);
    bool lost = !lines_close(l.log);
    if (st && l.code && !r.ran) return l.code; /* on_start has said why */
    if (!st || r.ran) {
        if (l.json) put_json(&r);
        else put_text_result(&l, &r);
    }
    if (st) return say_error(NULL, &e);
    if (r.stopped && o.save)
        fprintf(stderr, "anneal: stopped after step %lld of %lld and saved in %s; --resume goes on from there\n",
                (long long)r.done, (long long)r.steps, o.save);
    else if (r.stopped)
        fprintf(stderr, "anneal: stopped after step %lld of %lld; nothing was saved, as there is no --save\n",
                (long long)r.done, (long long)r.steps);
    if (l.unread) return say_unread();
    return l.code || lost ? say(AN_INPUT, "%s: not all log lines could be written", l.log_path) : 0;
}

/* A word that is nothing of what --model takes: the library knows of one kind at a time. */
static bool names_a_model(const char *name)
{
    path_info i;
    return path_look(name, &i) || an_training_programs(name);
}

static int unknown_model(const char *name)
{
    an_train_result r;
    an_error e = { 0 };
    (void)an_train(&(an_train_run_options){ .model = name }, &r, &e); /* says which networks there are */
    return say(AN_INPUT, "%s: no such file or folder, and no model preset of that name; %s", name, e.message);
}

/* What a run writes are files. Standard output has lines of its own here: "-" would be a file of that name. */
static int outputs_named(const args *a)
{
    static const char *const options[] = { "save", "log", "csv", "plot", "profile" };
    for (size_t i = 0; i < COUNT(options); i++) {
        const char *file = arg_of(a, options[i]);
        if (file && !*file) return say(AN_USAGE, "--%s wants a name, got \"\"", options[i]);
        if (file && !strcmp(file, "-"))
            return say(AN_USAGE, "--%s wants a name, got \"-\"; for standard output there is --json", options[i]);
    }
    return 0;
}

int cmd_train(const args *a)
{
    if (a->n_files) return say(AN_USAGE, "train takes options only, got \"%s\"", a->files[0]);
    int code = engine_computes(a);
    if (!code) code = outputs_named(a);
    if (code) return code;
    const char *model = arg_of(a, "model");
    if (an_net_known(model)) return train_net(a);
    return names_a_model(model) ? train_lm(a) : unknown_model(model);
}
