/* cmd_compile.c: programs through the passes and out again: compile (MIL in), build (a model's kernels), opt (graph
 * text). */
#include <stdlib.h>

#include "cli/cli.h"

const option compile_options[] = {
    { "target", "CHIP", NULL, "make it fit this chip (m1 … m5); without it only chip-independent passes run" },
    { "emit", "mil|mil-ios16|graph|dot|program|listing", "mil", "what to write; program: what engines run, for the chip (anneal run --limit open_images=1 takes it) or else for cpu; listing: such a program, or FILE when it is one, as text" },
    { "out", "FILE", "-", "where to; weights go beside it as weights/weight.bin, or as FILE.weights.bin where that one is another program's" },
    { "ports", NULL, NULL, "also pad, unify and rename ports as the engine's surfaces want" },
    { "no-opt", NULL, NULL, "print what was read" },
    { "dump-after", "PASS|all", NULL, "graph text on stderr after a pass" },
    { NULL, NULL, NULL, NULL },
};

const option build_options[] = {
    { "model", "NAME", "stories110m", "a preset; anneal kernels lists them" },
    { "kernel", "NAME", NULL, "one kernel; without it every program of a training step" },
    { "layer", "N", "0", "with --kernel: which layer's weights it names" },
    { "seq", "N", "0", "with --kernel: sequence length; 0: the model's own" },
    { "target", "CHIP", NULL, "make it fit this chip" },
    { "emit", "mil|mil-ios16|graph|dot", "mil", "what to write" },
    { "out", "PATH", "-", "a file for one kernel, a folder for all" },
    { "ports", NULL, NULL, "also pad, unify and rename ports" },
    { "no-opt", NULL, NULL, "the kernel as its builder made it" },
    { "check", NULL, NULL, "also check every program (m1 and m4, or --target) and stop at an error" },
    { NULL, NULL, NULL, NULL },
};

const option opt_options[] = {
    { "passes", "A,B,…", NULL, "these passes once each, in this order; without it the whole pipeline" },
    { "target", "CHIP", NULL, "legalise for this chip" },
    { "ports", NULL, NULL, "also rewrite the ports" },
    { "emit", "mil|mil-ios16|graph|dot", "graph", "what to write" },
    { "dump-after", "PASS|all", NULL, "graph text on stderr after a pass" },
    { NULL, NULL, NULL, NULL },
};

static void dump(void *user, const char *pass, const char *text)
{
    (void)user;
    fprintf(stderr, "# after %s\n%s\n", pass, text);
}

static bool engine_form(const char *as) { return !strcmp(as, "program") || !strcmp(as, "listing"); }

/* What only passes would look at; a target is also what engine forms and --check are for. */
static int without_passes(const args *a)
{
    bool elsewhere = engine_form(arg_of(a, "emit")) || arg_on(a, "check");
    const char *idle = arg_on(a, "ports")                  ? "ports"
                       : arg_of(a, "dump-after")           ? "dump-after"
                       : arg_of(a, "target") && !elsewhere ? "target"
                                                           : NULL;
    return idle ? say(AN_USAGE, "--%s is for passes, and --no-opt runs none: leave one of them out", idle) : 0;
}

/* Passes as the options ask; 0 or the exit code after saying why. */
static int optimize(const args *a, an_program *p, const char *file)
{
    an_error e = { 0 };
    an_pass_options o = { .target = arg_of(a, "target"),
                          .ports = arg_on(a, "ports"),
                          .only = arg_of(a, "passes"),
                          .dump_after = arg_of(a, "dump-after"),
                          .on_dump = dump };
    if (o.target && !an_target_known(o.target))
        return say(AN_USAGE, "unknown target \"%s\"; anneal targets lists them", o.target);
    if (arg_on(a, "no-opt")) return without_passes(a);
    return an_program_optimize(p, &o, &e) ? say_error(file, &e) : 0;
}

/* The program as `as` says: bytes that are the caller's, or NULL after saying why. file: what it came from, for
 * messages. */
static void *made(const args *a, an_program *p, const char *file, const char *as, size_t *n, int *code)
{
    static const char *const text[] = { "mil", "mil-ios16", "graph", "dot" };
    bool listing = !strcmp(as, "listing");
    const char *target = arg_of(a, "target");
    char engine[80];
    an_error e = { 0 };
    void *out = NULL;
    for (size_t i = 0; i < COUNT(text); i++)
        if (!strcmp(text[i], as)) {
            if ((out = an_program_text(p, as, &e))) *n = strlen(out);
            else *code = say_error(file, &e);
            return out;
        }
    if (a->cmd->run != cmd_compile || !engine_form(as)) {
        *code = say(AN_USAGE, "--emit wants mil, mil-ios16, graph%s, got \"%s\"",
                    a->cmd->run == cmd_compile ? ", dot, program or listing" : " or dot", as);
        return NULL;
    }
    snprintf(engine, sizeof engine, target ? "soft:%.60s" : "cpu", target);
    if (an_program_compile(p, engine, &out, n, &e)) return *code = say_error(file, &e), NULL;
    if (!listing) return out;
    char *shown = an_program_listing(out, *n, &e);
    an_free(out);
    if (shown) *n = strlen(shown);
    else *code = say_error(file, &e);
    return shown;
}

/* ---- where weights go ---- */

typedef struct {
    char *dir;    /* what @model_path is for the output */
    strbuf below; /* the weight file below it, as the program writes it */
    strbuf full;
} weight_place;

static bool place_at(weight_place *w)
{
    w->full.n = 0;
    sb_printf(&w->full, "%s/%s", w->dir, w->below.at ? w->below.at : "");
    return !w->below.oom && !w->full.oom;
}

/* Whether the output, as an earlier run left it, has its weights in this place. */
static bool was_its_own(const char *out, const char *below)
{
    file_bytes f;
    diag d = { 0 };
    strbuf word = { 0 };
    bool found = false;
    if (file_map(out, &f, &d)) return false;
    sb_printf(&word, "@model_path/%s", below);
    for (size_t i = 0; !word.oom && !found && i + word.n <= f.n; i++)
        found = f.at[i] == '@' && !memcmp(f.at + i, word.at, word.n);
    sb_free(&word);
    file_drop(&f);
    return found;
}

/* weights/weight.bin, unless a file is there that is not this output's; then one named after the output. Never one
 * the input reads. */
static bool choose_place(const an_program *p, const char *out, weight_place *w)
{
    const char *slash = strrchr(out, '/'), *name = slash ? slash + 1 : out;
    sb_puts(&w->below, "weights/weight.bin");
    if (!place_at(w)) return false;
    path_info i;
    if (!path_look(w->full.at, &i) || (!an_program_reads(p, w->full.at) && was_its_own(out, w->below.at))) return true;
    for (int k = 1;; k++) {
        w->below.n = 0;
        if (k == 1) sb_printf(&w->below, "%s.weights.bin", name);
        else sb_printf(&w->below, "%s.weights-%d.bin", name, k);
        if (!place_at(w)) return false;
        if (!an_program_reads(p, w->full.at)) return true;
    }
}

static an_status put_weights(const weight_place *w, const void *bytes, size_t n, diag *d)
{
    char *dir = folder_of(w->full.at);
    an_status st = dir ? dir_make(dir, d) : diag_nomem(d);
    free(dir);
    return st ? st : file_write(w->full.at, bytes, n, d);
}

static int put_at(const args *a, an_program *p, const char *file, const char *out, const weight_place *w)
{
    an_error e = { 0 };
    const char *as = arg_of(a, "emit");
    size_t size = 0, n;
    int code = 0;
    if (an_program_weight_file(p, w->below.at, &e)) return say_error(file, &e);
    void *bytes = made(a, p, file, as, &size, &code);
    if (!bytes) return code;
    diag d = { 0 };
    const void *weights = strcmp(as, "listing") ? an_program_weights(p, &n) : NULL; /* a listing is for reading */
    an_status st = AN_OK;
    if (weights && !strcmp(out, "-"))
        fprintf(stderr, "anneal: %zu bytes of weights are not written; --out FILE puts them beside it\n", n);
    else if (weights) st = put_weights(w, weights, n, &d);
    if (!st) st = file_write(out, bytes, size, &d);
    an_free(bytes);
    return st ? say(st, "%s", d.msg) : 0;
}

int put_program(const args *a, an_program *p, const char *file, const char *out, const char *weights)
{
    weight_place w = { .dir = folder_of(out) };
    if (weights) sb_puts(&w.below, weights);
    bool ok = w.dir && (weights ? place_at(&w) : choose_place(p, out, &w));
    int code = ok ? put_at(a, p, file, out, &w) : say(AN_NOMEM, "out of memory");
    free(w.dir);
    sb_free(&w.below);
    sb_free(&w.full);
    return code;
}

/* A compiled program can be looked at, and nothing else. */
static int show_compiled(const args *a, const char *shown, const file_bytes *f)
{
    an_error e = { 0 };
    if (strcmp(arg_of(a, "emit"), "listing")) {
        char *engine = an_program_engine(f->at, f->n, &e);
        if (!engine) return say_error(shown, &e);
        int code = say(AN_USAGE, "%s is compiled already: --emit listing shows it, anneal run --engine %s%s runs it",
                       shown, engine, strcmp(engine, "cpu") ? " --limit open_images=1" : "");
        an_free(engine);
        return code;
    }
    static const char *const makers[] = { "target", "ports", "no-opt", "dump-after", NULL };
    int code = args_without(a, "of a compiled program", makers);
    if (code) return code;
    char *text = an_program_listing(f->at, f->n, &e);
    if (!text) return say_error(shown, &e);
    diag d = { 0 };
    an_status st = file_write(arg_of(a, "out"), text, strlen(text), &d);
    an_free(text);
    return st ? say(st, "%s", d.msg) : 0;
}

/* Whether a text starts with a word, after white space and comments. */
static bool begins(const char *s, size_t n, const char *word)
{
    size_t i = 0, len = strlen(word);
    while (i < n && (s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r' || s[i] == '#'))
        if (s[i] == '#') while (i < n && s[i] != '\n') i++;
        else i++;
    return n - i > len && !memcmp(s + i, word, len);
}

/* Graph text starts with the word graph; everything else is MIL. */
bool is_graph_text(const char *s, size_t n) { return begins(s, n, "graph "); }

static int from_file(const args *a, bool graph_only)
{
    if (a->n_files > 1) return say(AN_USAGE, "%s takes one file, got %d", a->cmd->name, a->n_files);
    const char *path = a->n_files ? a->files[0] : "-";
    const char *shown = strcmp(path, "-") ? path : "<stdin>";
    file_bytes f;
    int code = read_text(path, &f);
    if (code) return code;
    if (!graph_only && an_program_is(f.at, f.n)) return code = show_compiled(a, shown, &f), file_drop(&f), code;
    if (graph_only && begins((const char *)f.at, f.n, "program("))
        return file_drop(&f),
               say(AN_INPUT,
                   "%s is MIL, and opt reads graph text: anneal compile reads MIL, and its --emit graph makes graph text of it",
                   shown);
    an_program *p = NULL;
    an_error e = { 0 };
    char *dir = folder_of(path);
    an_status st;
    if (!dir) st = AN_NOMEM, e = (an_error){ .status = AN_NOMEM, .message = "out of memory" };
    else if (graph_only || is_graph_text((const char *)f.at, f.n))
        st = an_program_from_graph(&p, (const char *)f.at, f.n, &e);
    else
        st = an_program_from_mil(&p, (const char *)f.at, f.n,
                                 &(an_read_options){ .model_dir = dir, .need_weights = engine_form(arg_of(a, "emit")) },
                                 &e);
    if (st) code = say_error(shown, &e);
    if (!code) code = optimize(a, p, shown);
    if (!code) code = put_program(a, p, shown, graph_only ? "-" : arg_of(a, "out"), NULL);
    an_program_free(p);
    free(dir);
    file_drop(&f);
    return code;
}

int cmd_compile(const args *a) { return from_file(a, false); }
int cmd_opt(const args *a) { return from_file(a, true); }

static int check_program(const args *a, an_program *p)
{
    an_report *r = NULL;
    an_error e = { 0 };
    const char *target = arg_of(a, "target");
    an_check_options o = { .targets = target ? target : "m1,m4", .file = an_program_name(p), .errors_only = 1 };
    if (an_program_check(&r, p, &o, &e)) return say_error(an_program_name(p), &e);
    int code = an_exit_code(an_report_status(r));
    if (code) put_text(an_report_text(r, AN_TEXT));
    an_report_free(r);
    return code;
}

static int one_program(const args *a, an_program *p, const char *out)
{
    int code = optimize(a, p, an_program_name(p));
    if (!code && arg_on(a, "check")) code = check_program(a, p);
    strbuf weights = { 0 }; /* a file of its own: programs of one model share the folder */
    sb_printf(&weights, "weights/%s.bin", an_program_name(p));
    if (!code)
        code = weights.oom ? say(AN_NOMEM, "out of memory") : put_program(a, p, an_program_name(p), out, weights.at);
    sb_free(&weights);
    return code;
}

static int whole_step(const args *a, const char *model)
{
    const char *out = arg_of(a, "out"), *as = arg_of(a, "emit");
    size_t n = an_training_programs(model);
    if (!n) return say(AN_USAGE, "unknown model \"%s\"; anneal kernels lists them", model);
    diag d = { 0 };
    if (strcmp(out, "-") && dir_make(out, &d)) return say(d.st, "%s", d.msg);
    int code = 0;
    for (size_t k = 0; k < n && !code; k++) {
        an_program *p = NULL;
        an_error e = { 0 };
        if (an_program_from_training(&p, model, k, &e)) return say_error(model, &e);
        strbuf path = { 0 };
        if (strcmp(out, "-"))
            sb_printf(&path, "%s/%03zu_%s.%s", out, k, an_program_name(p), strncmp(as, "mil", 3) ? as : "mil");
        else sb_puts(&path, "-");
        code = path.oom ? say(AN_NOMEM, "out of memory") : one_program(a, p, path.at);
        sb_free(&path);
        an_program_free(p);
    }
    if (!code) fprintf(stderr, "%zu programs\n", n);
    return code;
}

int cmd_build(const args *a)
{
    if (a->n_files) return say(AN_USAGE, "build takes no file, got \"%s\"", a->files[0]);
    const char *kernel = arg_of(a, "kernel"), *model = arg_of(a, "model");
    static const char *const of_kernels[] = { "layer", "seq", NULL };
    int code = kernel ? 0 : args_without(a, "without --kernel", of_kernels);
    if (code) return code;
    if (!kernel) return whole_step(a, model);
    long layer, seq;
    if (!arg_int(a, "layer", 0, 10000, &layer) || !arg_int(a, "seq", 0, 1 << 20, &seq)) return an_exit_code(AN_USAGE);
    an_program *p = NULL;
    an_error e = { 0 };
    if (an_program_from_kernel(
            &p, &(an_kernel_options){ .model = model, .kernel = kernel, .layer = (int)layer, .seq = (int)seq }, &e))
        return say_error(NULL, &e);
    code = one_program(a, p, arg_of(a, "out"));
    an_program_free(p);
    return code;
}
