/* cmd_grad.c: a program and its gradients; or what could go wrong with them on a chip; or the gradients of a
 * language model as a file. */
#include <stdlib.h>

#include "base/pool.h"
#include "cli/cli.h"

const option grad_options[] = {
    { "model", "M", NULL, "a language model instead of a program: gradients of its loss by every tensor" },
    { "tokens", "F.npy", NULL, "with --model: int32 [B, T + 1]; position t predicts token t + 1" },
    { "out", "FILE", NULL, "where the program goes, weights beside it as compile puts them (default -); with --model: a safetensors file of gradients under the names and in the shapes of the model's own tensors" },
    { "threads", "N", NULL, "with --model; default: one per CPU" },
    { "loss", "NAME", NULL, "the value to differentiate: one float" },
    { "wrt", "A,B,…", NULL, "by these values, or --wrt again; without it by every float input" },
    { "loss-scale", "X", "1", "gradient of the loss: finite, above 0" },
    { "conv-form", "FORM", "patches", "weight gradient of convolutions: patches, input-patches, no-width-offset" },
    { "check", NULL, NULL, "slices that can pass the range of m1 and m2 (or of --engine alone), and what --engine refuses, instead of the program" },
    { "in", "NAME=F.npy", NULL, "with --check: numbers for an input, once for each that reaches a slice; what reaches the slices is then known, and so is the largest safe loss scale" },
    { "engine", "E", NULL, "soft:m1 … soft:m5: make the result fit this chip" },
    { "emit", "mil|mil-ios16|graph|dot", "graph", "what to write: graph is the text that grad, opt and compile read, mil what run and check read" },
    { "json", NULL, NULL, "with --check: findings as one object per line; with --model: the loss as one" },
    { NULL, NULL, NULL, NULL },
};

/* "a,b,c" in place: *names is to be freed, its entries lie in text. */
static size_t split(char *text, const char ***names)
{
    size_t n = 1, k = 0;
    for (const char *p = text; *p; p++) n += *p == ',';
    const char **out = *names = calloc(n, sizeof *out);
    for (char *p = text; out && p; k++) {
        out[k] = p;
        p = strchr(p, ',');
        if (p) *p++ = 0;
    }
    return k;
}

/* A message about a sample names its own file. */
static const char *file_of(const args *a, const char *file, const an_error *e)
{
    for (size_t i = 0; i < a->n_list; i++) {
        const char *npy = strchr(a->list[i].value, '=');
        if (!strcmp(a->list[i].option, "in") && npy && !strncmp(e->message, npy + 1, strlen(npy + 1))) return NULL;
    }
    return file;
}

static int differentiate(const args *a, an_program *p, const char *file, const an_array *const *sample, size_t n_sample,
                         char **hazards)
{
    an_error e = { 0 };
    char *end, *copy = NULL;
    const char **names = NULL, *scale = arg_of(a, "loss-scale"), *wrt = arg_of(a, "wrt");
    an_grad_options o = { .loss = arg_of(a, "loss"),
                          .conv_form = arg_of(a, "conv-form"),
                          .loss_scale = strtod(scale, &end),
                          .sample = n_sample ? sample : NULL,
                          .n_sample = n_sample,
                          .engine = arg_of(a, "engine"),
                          .file = file };
    if (end == scale || *end || !(o.loss_scale > 0) || o.loss_scale - o.loss_scale != 0)
        return say(AN_USAGE, "--loss-scale wants a finite number above 0, got \"%s\"", scale);
    if (!o.loss) return say(AN_USAGE, "grad wants --loss NAME: the value to differentiate");
    if (arg_count(a, "loss") > 1)
        return say(AN_USAGE, "grad differentiates one loss, got --loss %zu times: add them up in the program",
                   arg_count(a, "loss"));
    if (wrt) {
        copy = args_join(a, "wrt");
        if (copy) o.n_wrt = split(copy, &names);
        if (!names) return free(copy), say(AN_NOMEM, "out of memory");
        o.wrt = names;
    }
    int code = 0;
    for (size_t i = 0; i < o.n_wrt && !code; i++)
        if (!*names[i]) code = say(AN_USAGE, "--wrt has an empty entry: \"%s\", wanted names between commas", wrt);
    if (!code && an_program_differentiate(p, &o, arg_on(a, "check") ? hazards : NULL, arg_format(a), &e))
        code = say_error(file_of(a, file, &e), &e);
    free(copy);
    free(names);
    return code;
}

/* The rules of the chip, on the program with its gradients. */
static int check_on(const args *a, an_program *p, const char *chip, const char *file)
{
    an_report *r;
    an_error e = { 0 };
    an_check_options o = { .targets = chip, .file = file, .errors_only = 1 };
    if (an_program_check(&r, p, &o, &e)) return say_error(file, &e);
    int code = an_exit_code(an_report_status(r));
    if (code || arg_on(a, "json")) {
        int put = put_text(an_report_text(r, arg_format(a)));
        code = code ? code : put;
    }
    an_report_free(r);
    return code;
}

static int grad_of(const args *a, an_program *p, const char *file, const an_array *const *sample, size_t n_sample)
{
    const char *engine = arg_of(a, "engine"), *chip = engine && !strncmp(engine, "soft:", 5) ? engine + 5 : NULL;
    const char *out = arg_of(a, "out");
    char *hazards = NULL;
    an_error e = { 0 };
    int code = differentiate(a, p, file, sample, n_sample, &hazards);
    bool check = arg_on(a, "check");
    if (!code && check) {
        if (!*hazards && !arg_on(a, "json"))
            printf("no slice can pass the range of %s\n", engine ? engine : "m1 and m2");
        code = put_text(hazards);
        hazards = NULL;
    }
    an_free(hazards);
    if (!code && chip)
        code = an_program_optimize(p, &(an_pass_options){ .target = chip }, &e) ? say_error(file, &e) : 0;
    if (!code && check) return chip ? check_on(a, p, chip, file) : 0;
    return code ? code : put_program(a, p, file, out ? out : "-", NULL);
}

/* Gradients of a language model by its tensors, as a file. */
static int grad_model(const args *a)
{
    static const char *const others[] = { "loss", "wrt", "loss-scale", "conv-form", "emit", "in", NULL };
    const char *model = arg_of(a, "model"), *tokens = arg_of(a, "tokens"), *out = arg_of(a, "out"),
               *engine = arg_of(a, "engine");
    long threads = 0;
    an_array *ids = NULL;
    an_lm_gradients r;
    an_error e = { 0 };
    int code = args_without(a, "--model", others);
    if (code) return code;
    if (a->n_files) return say(AN_USAGE, "grad --model takes options only, got \"%s\"", a->files[0]);
    if (arg_on(a, "check")) return say(AN_USAGE, "grad --model has no option --check");
    if (!tokens || !out) return say(AN_USAGE, "grad --model wants --tokens F.npy and --out G.safetensors");
    if ((code = engine_computes(a))) return code;
    if (arg_on(a, "threads") && !arg_int(a, "threads", 0, POOL_MAX_THREADS, &threads)) return an_exit_code(AN_USAGE);
    if (an_array_read(&ids, "", tokens, &e)) return say_error(strstr(e.message, tokens) ? NULL : tokens, &e);
    code = an_lm_grad(model, engine, (int)threads, ids, out, &r, &e) ? say_error(NULL, &e) : 0;
    an_array_free(ids);
    if (code) return code;
    printf(arg_on(a, "json") ? "{\"loss\":%.9g,\"tokens\":%lld}\n" : "loss %.6f over %lld tokens\n", r.loss,
           (long long)r.tokens);
    return 0;
}

int cmd_grad(const args *a)
{
    static const char *const others[] = { "tokens", "threads", NULL }, *const programs[] = { "emit", "out", NULL };
    if (arg_on(a, "model")) return grad_model(a);
    int wrong = args_without(a, "of a program", others);
    if (wrong) return wrong;
    if (a->n_files != 1) return say(AN_USAGE, "grad takes one file of MIL or graph text, got %d", a->n_files);
    const char *path = a->files[0], *shown = strcmp(path, "-") ? path : "<stdin>";
    if ((wrong = engine_computes(a))) return wrong;
    if (arg_on(a, "in") && !arg_on(a, "check")) return say(AN_USAGE, "grad --in goes with --check");
    if (arg_on(a, "json") && !arg_on(a, "check"))
        return say(AN_USAGE, "grad --json goes with --check: --emit says how a program is written");
    if (arg_on(a, "check") && (wrong = args_without(a, "--check", programs))) return wrong;
    file_bytes f;
    int code = read_text(path, &f);
    if (code) return code;
    size_t n_sample = 0;
    an_array **sample = calloc(a->n_list + 1, sizeof *sample);
    if (!sample) code = say(AN_NOMEM, "out of memory");
    else code = read_arrays(a, "in", sample, &n_sample);
    an_program *p = NULL;
    an_error e = { 0 };
    char *dir = folder_of(path);
    if (code) { /* said */
    } else if (!dir) code = say(AN_NOMEM, "out of memory");
    else if (is_graph_text((const char *)f.at, f.n))
        code = an_program_from_graph(&p, (const char *)f.at, f.n, &e) ? say_error(shown, &e) : 0;
    else
        code = an_program_from_mil(&p, (const char *)f.at, f.n, &(an_read_options){ .model_dir = dir }, &e)
                   ? say_error(shown, &e)
                   : 0;
    if (!code) code = grad_of(a, p, shown, (const an_array *const *)sample, n_sample);
    for (size_t i = 0; i < n_sample; i++) an_array_free(sample[i]);
    free(sample);
    an_program_free(p);
    file_drop(&f);
    free(dir);
    return code;
}
