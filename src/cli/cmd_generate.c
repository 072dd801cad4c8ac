/* cmd_generate.c: a prompt continued by a language model. */
#include <stdlib.h>
#include <sys/resource.h>

#include "cli/lm_options.h"

const option generate_options[] = {
    LM_MODEL_OPTIONS,
    { "prompt", "S", "", "the text to continue; an empty one is the beginning of a text" },
    { "prompt-file", "F", NULL, "the prompt from a file, - for standard input" },
    LM_SAMPLING_OPTIONS,
    { "json", NULL, NULL, "an object for each token, and one at the end" },
    { NULL, NULL, NULL, NULL },
};

typedef struct {
    bool json, begun, oom; /* oom: there was no memory for a line */
    const char *prompt;
    size_t n;
    uint64_t start_ns, first_ns; /* of the command; of its first token */
} writer;

static double peak_mb(void)
{
    struct rusage r = { 0 };
    if (getrusage(RUSAGE_SELF, &r)) return 0;
#if defined(__APPLE__)
    return (double)r.ru_maxrss / 1e6;
#else
    return (double)r.ru_maxrss * 1024 / 1e6;
#endif
}

/* The prompt comes with the first token: a failure before it leaves nothing half written. */
static bool begin(writer *w)
{
    bool first = !w->begun && !w->json;
    w->begun = true;
    return !first || fwrite(w->prompt, 1, w->n, stdout) == w->n;
}

static int on_token(void *user, const an_token *t)
{
    writer *w = user;
    if (!w->first_ns) w->first_ns = clock_ns();
    if (!w->json) return begin(w) && fwrite(t->text, 1, t->n_text, stdout) == t->n_text && !fflush(stdout);
    return lm_put_token("", t, &w->oom);
}

static int generate(const args *a, an_lm *m, lm_choice *choice, const char *file, const char *prompt, size_t n,
                    uint64_t start_ns)
{
    an_error e = { 0 };
    writer w = { .json = arg_on(a, "json"), .prompt = prompt, .n = n, .start_ns = start_ns };
    an_generated r;
    an_lm_info info;
    choice->o.on_token = on_token, choice->o.user = &w;
    if (an_lm_generate(m, prompt, n, &choice->o, &r, &e)) return say_error(file, &e);
    if (w.oom) return say(AN_NOMEM, "out of memory");
    an_lm_get(m, &info);
    if (w.json)
        printf("{\"done\":true,\"why\":\"%s\",\"prompt_tokens\":%zu,\"new_tokens\":%zu,\"drafted\":%zu,\"accepted\":%zu,\"prompt_ms\":%.3f,\"decode_ms\":%.3f,"
               "\"first_token_ms\":%.3f,\"peak_mb\":%.1f,\"engine\":\"%s\",\"weights\":\"%s\",\"compiles\":%llu,\"cache_hits\":%llu}\n",
               r.why, r.prompt_tokens, r.new_tokens, r.drafted, r.accepted, r.prompt_ms, r.decode_ms, w.first_ns ? (double)(w.first_ns - w.start_ns) / 1e6 : 0, peak_mb(), info.engine, info.weights,
               (unsigned long long)info.compiles, (unsigned long long)info.cache_hits);
    else if (begin(&w)) putchar('\n');
    fflush(stdout);
    lm_say_speed(&r, &info);
    return 0;
}

int cmd_generate(const args *a)
{
    const uint64_t start_ns = clock_ns();
    an_lm *m = NULL;
    file_bytes f = { 0 };
    const char *file = arg_of(a, "prompt-file");
    if (a->n_files)
        return say(AN_USAGE, "generate takes no file, got \"%s\"; the model is --model, the prompt --prompt",
                   a->files[0]);
    if (file && arg_count(a, "prompt")) return say(AN_USAGE, "--prompt and --prompt-file are two prompts; choose one");
    lm_choice choice = { .stop = NULL };
    int code = lm_sampling_args(a, &choice);
    if (!code) code = lm_open_args(a, &m);
    if (!code) lm_sampling_rest(a, m, &choice);
    if (!code && file) code = read_text(file, &f);
    const char *prompt = arg_of(a, "prompt");
    if (!code)
        code = file ? generate(a, m, &choice, strcmp(file, "-") ? file : "<stdin>", (const char *)f.at, f.n, start_ns)
                    : generate(a, m, &choice, NULL, prompt, strlen(prompt), start_ns);
    lm_choice_free(&choice);
    if (file) file_drop(&f);
    lm_leave(m);
    return code;
}
