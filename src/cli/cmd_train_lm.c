/* cmd_train_lm.c: a language model trained on text: options, the live line, logs, plots, starting anew. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/lines.h"
#include "cli/signals.h"
#include "cli/train_int.h"
#include "cli/ui.h"

typedef struct {
    lines *to;
    const char *path;
    bool used; /* a line was put in it */
    bool lost;
} sink;

typedef struct {
    bool json;
    ui ui;
    sink log, csv;
    bool unread;      /* who read standard output is gone */
    bool dropped;     /* there was no memory for a line */
    int64_t updates;  /* of this command: of the processes it went through, this one among them */
    uint64_t zeros;   /* of the run so far: without a gradient */
} listener;

static int stop(void *user) { return signals_stop(&((listener *)user)->unread); }

/* ---- lines ---- */

static void put_line(listener *l, sink *s, const char *line)
{
    if (!s->to) return;
    s->used = true;
    if (lines_add(s->to, line)) return;
    ui_clear(&l->ui);
    say(AN_INPUT, "%s: cannot write: %s; training goes on without it", s->path, strerror(errno));
    lines_close(s->to);
    s->to = NULL, s->lost = true;
}

static void on_progress(void *user, const an_lm_progress *p)
{
    listener *l = user;
    l->updates++, l->zeros = p->zeros;
    char *json = l->json || l->log.to ? an_lm_progress_text(p, AN_JSON) : NULL,
         *csv = l->csv.to ? an_lm_progress_text(p, AN_TEXT) : NULL;
    if (json && l->json) ui_put(&l->ui, json);
    if (json) put_line(l, &l->log, json);
    if (csv) put_line(l, &l->csv, csv);
    if ((!json && (l->json || l->log.to)) || (!csv && l->csv.to)) l->dropped = true;
    an_free(json);
    an_free(csv);
    if (!l->json || l->ui.terminal) ui_step(&l->ui, p);
}

static void on_eval(void *user, int64_t step, double loss)
{
    listener *l = user;
    char line[100];
    snprintf(line, sizeof line, "{\"kind\":\"validation\",\"step\":%lld,\"loss\":%.6f}", (long long)step, loss);
    put_line(l, &l->log, line);
    if (l->json) ui_put(&l->ui, line);
    else ui_clear(&l->ui), fprintf(stderr, "step %lld: loss %.4f on text kept back\n", (long long)step, loss);
}

static void on_note(void *user, const char *line)
{
    listener *l = user;
    if (l->json) ui_put(&l->ui, line);
    put_line(l, &l->log, line);
}

static void on_sample(void *user, int64_t step, const char *text, size_t n)
{
    listener *l = user;
    ui_clear(&l->ui);
    if (!l->json) {
        printf("-- sample after step %lld --\n", (long long)step);
        fwrite(text, 1, n, stdout);
        puts(n && text[n - 1] == '\n' ? "" : "\n");
    } else {
        strbuf b = { 0 };
        sb_printf(&b, "{\"kind\":\"sample\",\"step\":%lld,\"text\":", (long long)step);
        sb_json(&b, text, n);
        if (!b.oom) printf("%s}\n", b.at);
        else l->dropped = true;
        sb_free(&b);
    }
    fflush(stdout);
}

static void on_warning(void *user, const char *line)
{
    listener *l = user;
    ui_clear(&l->ui);
    fprintf(stderr, "anneal: warning: %s\n", line);
}

static int open_sink(sink *s, const char *path, bool csv)
{
    *s = (sink){ .path = path };
    if (!path) return 0;
    if (!(s->to = lines_open(path, false))) return say(AN_INPUT, "%s: %s", path, strerror(errno));
    if (csv && lines_empty(s->to)) {
        char *head = an_lm_progress_text(NULL, AN_TEXT);
        bool put = head && lines_add(s->to, head);
        an_free(head);
        if (!put) return say(AN_INPUT, "%s: cannot write: %s", path, strerror(errno));
    }
    return 0;
}

/* A file that is written at the end: one that cannot be should not cost a run. */
static int try_file(const char *path)
{
    file_out f;
    diag d = { 0 };
    if (!path) return 0;
    if (file_begin(path, &f, &d)) return say(d.st, "%s", d.msg);
    file_abandon(&f);
    return 0;
}

/* begun: of a run that did not begin nothing stays. */
static void close_sink(sink *s, bool begun)
{
    bool made = s->to && lines_made(s->to);
    if (!lines_close(s->to)) s->lost = true;
    if (made && !s->used && !begun) remove(s->path);
    s->to = NULL;
}

/* What is written may lie in the folder that --save makes, which then has to be there first. Another one is not made
 * for it. */
static int make_folder(const args *a, const an_lm_train_options *o, size_t *was)
{
    static const char *const written[] = { "log", "csv", "plot", "profile" };
    diag d = { 0 };
    path_info i;
    *was = o->save ? strlen(o->save) : 0;
    if (!o->save || o->resume > 1) return 0; /* a folder that is named to go on from is not made */
    for (size_t k = 0; k < COUNT(written); k++) {
        const char *path = arg_of(a, written[k]);
        char *in = path ? malloc(strlen(path) + 2) : NULL;
        const bool lacks = in && path_folder(path, in, strlen(path) + 2) && !path_look(in, &i);
        free(in);
        if (lacks) return dir_make_new(o->save, was, &d) ? say(d.st, "%s", d.msg) : 0;
    }
    return 0;
}

/* ---- options ---- */

/* 0 on the command line means none; 0 in the library's options means its default. */
static bool real_or_none(const args *a, const char *name, double *out)
{
    if (!real_of(a, name, out)) return false;
    if (arg_on(a, name) && *out == 0) *out = -1;
    return true;
}

static bool whole_or_none(const args *a, const char *name, int64_t *out)
{
    if (!whole_of(a, name, 0, out)) return false;
    if (arg_on(a, name) && *out == 0) *out = -1;
    return true;
}

static bool rate_of(const args *a, double *out)
{
    if (!real_of(a, "lr", out)) return false;
    return !arg_on(a, "lr") || *out > 0 ||
           (say(AN_USAGE, "--lr wants a rate above 0, got \"%s\": nothing would be learnt", arg_of(a, "lr")), false);
}

/* Options that would be taken and change nothing. */
static bool all_used(const args *a, const an_lm_train_options *o)
{
    if (arg_on(a, "stats") && !arg_on(a, "log") && !arg_on(a, "json"))
        return say(AN_USAGE, "--stats adds lines to the log: name it with --log, or ask for --json"), false;
    if (arg_on(a, "eval-every") && o->validation < 0)
        return say(AN_USAGE,
                   "--eval-every is about text kept back, and --validation 0 keeps none: leave one of them out"),
               false;
    if (o->sample_every < 0 && (arg_on(a, "prompt") || arg_on(a, "sample-tokens")))
        return say(AN_USAGE, "--%s is about samples, and --sample-every 0 makes none: leave one of them out",
                   arg_on(a, "prompt") ? "prompt" : "sample-tokens"),
               false;
    return true;
}

static bool folder_of_run(const args *a, an_lm_train_options *o)
{
    const char *from = arg_of(a, "resume");
    o->save = arg_of(a, "save"), o->resume = from != NULL;
    if (!from) return true;
    if (*from && o->save && strcmp(from, o->save) && !path_same(from, o->save))
        return say(AN_USAGE,
                   "--resume %s and --save %s are two folders; a run goes on in its own (a model trained elsewhere is continued with --model)",
                   from, o->save),
               false;
    if (*from) o->save = from, o->resume = 2; /* named: a name that is wrong must not begin another run */
    return o->save ? true
                   : (say(AN_USAGE, "--resume wants a folder of checkpoints: its own, or that of --save"), false);
}

static bool read_options(const args *a, an_lm_train_options *o, int64_t *every)
{
    int64_t seed = 1, keep = 0, limit = 0;
    *o = (an_lm_train_options){ .model = arg_of(a, "model"), .tokenizer = arg_of(a, "tokenizer"), .data = arg_of(a, "data"), .engine = arg_of(a, "engine"),
                                .pipeline = arg_of(a, "pipeline"), .math = arg_of(a, "math"), .state = arg_of(a, "state"), .schedule = arg_of(a, "schedule"),
                                .optimizer = arg_of(a, "optimizer"), .documents = arg_of(a, "documents"), .prompt = arg_of(a, "prompt"), .profile = arg_on(a, "profile"), .stop = stop };
    if (!folder_of_run(a, o)) return false;
    if (!whole_of(a, "steps", 1, &o->steps) || !whole_of(a, "batch", 1, &o->batch) || !whole_of(a, "seq", 1, &o->seq) ||
        !accum_of(a, &o->accum))
        return false;
    if (!rate_of(a, &o->lr) || !real_or_none(a, "lr-end", &o->lr_end) || !whole_or_none(a, "warmup", &o->warmup))
        return false;
    if (!real_or_none(a, "decay", &o->decay) || !real_or_none(a, "clip", &o->clip) ||
        !scale_of(a, &o->loss_scale, &o->dynamic_scale))
        return false;
    if (!real_or_none(a, "validation", &o->validation) || !whole_of(a, "eval-every", 1, &o->eval_every)) return false;
    if (!whole_or_none(a, "sample-every", &o->sample_every) || !whole_of(a, "sample-tokens", 1, &o->sample_tokens))
        return false;
    if (!whole_of(a, "save-every", 1, &o->save_every) || !whole_of(a, "keep", 1, &keep) ||
        !whole_of(a, "stop-after", 1, &o->stop_after))
        return false;
    if (!whole_of(a, "compile-limit", 1, &limit) || !whole_of(a, "seed", 0, &seed) || !whole_of(a, "every", 1, every) ||
        !threads_of(a, &o->threads))
        return false;
    const char *residual = arg_of(a, "residual-scale");
    if (residual && !strcmp(residual, "depth")) o->residual_scale = -1;
    else if (!real_of(a, "residual-scale", &o->residual_scale)) return false;
    if (residual && o->residual_scale == 0)
        return say(AN_USAGE, "--residual-scale wants a number from 0.001 to 1, or depth; got \"%s\"", residual), false;
    if (!real_of(a, "softcap", &o->softcap)) return false;
    if (arg_on(a, "softcap") && o->softcap == 0)
        return say(AN_USAGE, "--softcap wants a number from 1 to 10000, got \"%s\"", arg_of(a, "softcap")), false;
    if (!whole_of(a, "stats", 1, &o->stats_every)) return false;
    o->zero_init = arg_on(a, "zero-init"), o->compact_vocab = arg_on(a, "compact-vocab"),
    o->recompute = arg_on(a, "recompute"), o->history = arg_of(a, "log");
    if (o->validation > 0.9) return say(AN_USAGE, "--validation goes to 0.9, got %g", o->validation), false;
    if ((arg_on(a, "save-every") || arg_on(a, "keep")) && !o->save)
        return say(AN_USAGE, "--save-every and --keep are about checkpoints: name their folder with --save"), false;
    if (limit > 1000000) return say(AN_USAGE, "--compile-limit goes to 1000000, got %lld", (long long)limit), false;
    o->keep = (int)MIN(keep, 1000000), o->compile_limit = (int)limit, o->seed = (uint64_t)seed;
    return all_used(a, o);
}

/* ---- at the end ---- */

static void put_number(const char *key, double v)
{
    if (isfinite(v)) printf(",\"%s\":%.6g", key, v);
    else printf(",\"%s\":null", key);
}

static void put_json(listener *l, const an_lm_train_result *r)
{
    strbuf b = { 0 };
    sb_json(&b, r->model, strlen(r->model));
    printf(
        "{\"kind\":\"result\",\"model\":%s,\"engine\":\"%s\",\"pipeline\":\"%s\",\"optimizer\":\"%s\",\"parameters\":%lld,\"vocab\":%lld,\"steps\":%lld,\"done\":%lld",
        b.oom ? "\"\"" : b.at, r->engine, r->pipeline, r->optimizer, (long long)r->parameters, (long long)r->vocab,
        (long long)r->steps, (long long)r->done);
    l->dropped |= b.oom;
    sb_free(&b);
    put_number("loss", r->loss);
    put_number("smooth", r->smooth);
    put_number("validation", r->validation);
    char digest[24];
    snprintf(digest, sizeof digest, r->digest ? "\"%016llx\"" : "null", (unsigned long long)r->digest);
    printf(
        ",\"nonfinite\":%llu,\"zero\":%llu,\"compiles\":%llu,\"reloads\":%llu,\"dispatches\":%llu,\"stopped\":%s,\"again\":%s,\"seconds\":%.3f,\"digest\":%s}\n",
        (unsigned long long)r->skipped, (unsigned long long)l->zeros, (unsigned long long)r->compiles,
        (unsigned long long)r->reloads, (unsigned long long)r->dispatches, r->stopped ? "true" : "false",
        r->again ? "true" : "false", r->seconds, digest);
}

/* The curve has one width: a terminal that is narrower would fold every line of it. */
static void put_plot(const char *plot)
{
    enum { COLUMNS = 78 };
    int have = isatty(STDOUT_FILENO) ? ui_columns(STDOUT_FILENO) : COLUMNS;
    if (have >= COLUMNS) puts(plot);
    else
        fprintf(stderr, "anneal: the loss curve is %d columns wide and the terminal shows %d; --plot F.svg draws it\n",
                COLUMNS, have);
}

static void put_result(listener *l, const an_lm_train_result *r)
{
    const char *plot = l->ui.utf8 ? r->plot : r->plot_ascii;
    if (l->json) put_json(l, r);
    else if (plot && !r->again) put_plot(plot);
    fprintf(stderr, "%s on %s by %s, %s, %lld parameters: ", r->model, r->engine, r->pipeline, r->optimizer,
            (long long)r->parameters);
    fprintf(stderr, "step %lld of %lld", (long long)r->done, (long long)r->steps);
    if (isfinite(r->loss)) fprintf(stderr, ", loss %.4f", r->loss); /* a process may have had nothing left to do */
    if (isfinite(r->smooth))
        fprintf(stderr, "%s %.4f%s", isfinite(r->loss) ? " (smoothed" : ", smoothed loss", r->smooth,
                isfinite(r->loss) ? ")" : "");
    if (isfinite(r->validation)) fprintf(stderr, ", %.4f on text kept back", r->validation);
    fprintf(stderr, "; %.1f s in updates, %llu skipped", r->seconds, (unsigned long long)r->skipped);
    if (l->zeros) fprintf(stderr, ", %llu without a gradient", (unsigned long long)l->zeros);
    if (r->digest) fprintf(stderr, "; digest %016llx", (unsigned long long)r->digest); /* 0: it failed before its end */
    fputc('\n', stderr);
    if (r->lanes) fputs(r->lanes, stderr);
}

static int put_file(const char *path, const char *text)
{
    diag d = { 0 };
    if (!path || !text) return 0;
    return file_write(path, text, strlen(text), &d) ? say(d.st, "%s", d.msg) : 0;
}

/* Told to the process that goes on: the updates of this one and those before it. What it writes continues their
 * files, and --stop-after counts them. */
#define STARTED_ANEW "ANNEAL_STARTED_ANEW"

/* The same command line with --resume, right behind the command's name, as what is behind "--" is no option: only a
 * new process may compile again. */
static int start_anew(const args *a, int64_t updates)
{
    enum { NAMES = 2 };
    char count[24];
    size_t n = 0, to = 0;
    snprintf(count, sizeof count, "%lld", (long long)updates);
    while (a->argv[n]) n++;
    char **argv = calloc(n + 2, sizeof *argv), resume[] = "--resume=";
    if (!argv) return say(AN_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        if (i == NAMES && !arg_on(a, "resume")) argv[to++] = resume;
        argv[to++] = a->argv[i];
    }
    setenv(STARTED_ANEW, count, 1);
    fflush(NULL);
    execv("/proc/self/exe", argv);
    execvp(argv[0], argv);
    free(argv);
    return say(AN_INPUT, "%s: cannot start anew: %s; go on with --resume", a->argv[0], strerror(errno));
}

/* Of a run that did not begin nothing stays. */
static void leave(listener *l, const an_lm_train_options *o, size_t was)
{
    close_sink(&l->log, false);
    close_sink(&l->csv, false);
    if (o->save) dir_unmake(o->save, was);
}

static int finish(const args *a, listener *l, const an_lm_train_result *r, an_status st, const an_error *e)
{
    const bool begun = !st || r->done;
    int code = st ? say_error(NULL, e) : 0, files;
    close_sink(&l->log, begun);
    close_sink(&l->csv, begun);
    /* what it did before it was refused would be a trace, too */
    if (begun && (files = put_file(arg_of(a, "plot"), r->svg)) && !code) code = files;
    if (begun && (files = put_file(arg_of(a, "profile"), r->trace)) && !code) code = files;
    if (l->unread && !code) code = say_unread();
    if (l->log.lost || l->csv.lost)
        code =
            code ? code : say(AN_INPUT, "%s: not all lines could be written", l->log.lost ? l->log.path : l->csv.path);
    if (l->dropped && !code) code = say(AN_NOMEM, "out of memory: not all lines were written");
    return code;
}

static void say_stopped(const an_lm_train_options *o, const an_lm_train_result *r)
{
    if (o->save)
        fprintf(stderr, "anneal: stopped after step %lld and saved in %s; --resume goes on from there\n",
                (long long)r->done, o->save);
    else
        fprintf(stderr, "anneal: stopped after step %lld; nothing was saved, as there is no --save\n",
                (long long)r->done);
}

int train_lm(const args *a)
{
    static const char *const others[] = { "test", "final-test", NULL };
    an_lm_train_options o;
    an_lm_train_result r;
    an_error e = { 0 };
    int64_t every = 0;
    listener l = { .json = arg_on(a, "json") };
    int code = args_without(a, "--model of a language model", others);
    if (code) return code;
    if (!read_options(a, &o, &every)) return an_exit_code(AN_USAGE);
    size_t was; /* bytes of the folder's name that were there before */
    if ((code = make_folder(a, &o, &was))) return code;
    char *data = NULL;
    if (arg_count(a, "data") > 1 && !(o.data = data = args_join(a, "data"))) code = say(AN_NOMEM, "out of memory");
    if (code || (code = try_file(arg_of(a, "plot"))) || (code = try_file(arg_of(a, "profile"))) ||
        (code = open_sink(&l.log, arg_of(a, "log"), false)) || (code = open_sink(&l.csv, arg_of(a, "csv"), true)))
        return leave(&l, &o, was), free(data), code;
    ui_begin(&l.ui, every);
    signals_catch();
    const char *anew = getenv(STARTED_ANEW);
    if (anew) {
        signals_release();
        o.trace_before = arg_of(a, "profile"), l.updates = strtoll(anew, NULL, 10);
        if (o.stop_after > 0) o.stop_after = MAX(o.stop_after - l.updates, (int64_t)1);
    }
    o.on_progress = on_progress, o.on_eval = on_eval, o.on_sample = on_sample, o.on_note = on_note,
    o.on_warning = on_warning, o.user = &l;
    an_status st = an_lm_train(&o, &r, &e);
    ui_end(&l.ui);
    if (!st || r.done) put_result(&l, &r); /* a run that did not begin has none */
    code = finish(a, &l, &r, st, &e);
    if (st && !r.done) leave(&l, &o, was);
    bool again = !code && r.again && !r.stopped;
    if (again) signals_hold(), r.stopped = signals_asked(), again = !r.stopped;
    if (!st && r.stopped && (r.done < r.steps || r.again)) say_stopped(&o, &r);
    if (again)
        fprintf(stderr,
                "anneal: %s compiles no more programs in this process: going on in a new one after step %lld%s\n",
                r.engine, (long long)r.done, r.done == r.steps ? ", for the loss on text kept back" : "");
    an_lm_train_result_free(&r);
    free(data);
    return again ? start_anew(a, l.updates) : code;
}
