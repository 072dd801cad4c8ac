/* cmd_data.c: a corpus as token files, and the built-in stories as text. */
#include <errno.h>
#include <stdlib.h>

#include "base/pool.h"
#include "cli/cli.h"

const option data_options[] = {
    { "tokenizer", "T", NULL, "prepare: as for tokenize" },
    { "data", "FILE", NULL, "prepare: the text, a file; several with commas between, or --data again" },
    { "out", "FILE", NULL, "prepare: .u16, .u32, or .bin for llm.c's form" },
    { "documents", "RULE", "auto", "prepare: where documents end: auto, whole, endoftext, blank, lines" },
    { "validation", "FILE", NULL, "prepare: a second file, for the first ids; not that of --out" },
    { "validation-tokens", "N", "32768", "prepare: how many of them; with --validation" },
    { "threads", "N", "0", "prepare: 0: one per CPU" },
    { "count", "N", "1", "stories: how many" },
    { "seed", "S", "0", "stories: which ones" },
    { "json", NULL, NULL, "one object per line" },
    { NULL, NULL, NULL, NULL },
};

static int prepare(const args *a)
{
    long threads, n_validation;
    const char *tokenizer = arg_of(a, "tokenizer");
    an_prepare_options o = { .data = arg_of(a, "data"),
                             .out = arg_of(a, "out"),
                             .documents = arg_of(a, "documents"),
                             .validation = arg_of(a, "validation") };
    if (!tokenizer || !o.data || !o.out)
        return say(AN_USAGE, "data prepare needs --tokenizer T, --data FILE and --out FILE");
    if (arg_count(a, "validation-tokens") && !o.validation)
        return say(AN_USAGE, "--validation-tokens is about a second file: name it with --validation");
    if (!arg_int(a, "threads", 0, POOL_MAX_THREADS, &threads) ||
        !arg_int(a, "validation-tokens", 1, 1L << 40, &n_validation))
        return an_exit_code(AN_USAGE);
    o.threads = (int)threads;
    if (o.validation) o.n_validation = (uint64_t)n_validation;
    an_tokenizer *t;
    an_error e = { 0 };
    an_prepare_result r;
    if (an_tokenizer_open(&t, tokenizer, &e)) return say_error(NULL, &e);
    char *all = args_join(a, "data");
    if (!all) return an_tokenizer_free(t), say(AN_NOMEM, "out of memory");
    o.data = all;
    uint64_t from = clock_ns();
    int code = an_data_prepare(t, &o, &r, &e) ? say_error(NULL, &e) : 0;
    double s = (double)(clock_ns() - from) * 1e-9;
    an_tokenizer_free(t);
    free(all);
    if (code) return code;
    if (r.undivided && !strcmp(o.documents, "auto"))
        fprintf(
            stderr,
            "anneal: no <|endoftext|> in the text: each such file is one document; --documents blank or lines cuts it elsewhere\n");
    else if (r.undivided)
        fprintf(stderr, "anneal: --documents %s found nowhere to cut: each such file is one document\n", o.documents);
    unsigned long long bytes = r.bytes, docs = r.documents, n = r.tokens, n_val = r.validation_tokens;
    if (arg_on(a, "json"))
        printf("{\"bytes\":%llu,\"documents\":%llu,\"tokens\":%llu,\"validation_tokens\":%llu,\"seconds\":%.3f}\n",
               bytes, docs, n, n_val, s);
    else
        fprintf(stderr, "%s: %llu tokens (and %llu for validation) from %llu documents, %llu bytes, in %.2f s\n", o.out,
                n, n_val, docs, bytes, s);
    return 0;
}

static int stories(const args *a)
{
    long count, seed;
    if (!arg_int(a, "count", 0, 1L << 40, &count) || !arg_int(a, "seed", 0, INT64_MAX, &seed))
        return an_exit_code(AN_USAGE);
    bool json = arg_on(a, "json");
    for (long i = 0; i < count; i++) {
        an_error e = { 0 };
        char *text = an_story((uint64_t)seed, (uint64_t)i, &e);
        if (!text) return say_error(NULL, &e);
        strbuf b = { 0 };
        size_t n = strlen(text);
        if (json)
            sb_printf(&b, "{\"seed\":%ld,\"index\":%ld,\"text\":", seed, i), sb_json(&b, text, n ? n - 1 : 0),
                sb_puts(&b, "}\n");
        else sb_puts(&b, i ? "<|endoftext|>\n" : ""), sb_puts(&b, text);
        an_free(text);
        bool oom = b.oom, ok = !oom && fwrite(b.at, 1, b.n, stdout) == b.n;
        sb_free(&b);
        if (oom) return say(AN_NOMEM, "out of memory");
        if (!ok) return say(AN_INPUT, "cannot write to standard output: %s", strerror(errno));
    }
    return 0;
}

int cmd_data(const args *a)
{
    static const char *const only_prepare[] = { "tokenizer",         "data",    "out", "documents", "validation",
                                                "validation-tokens", "threads", NULL };
    static const char *const only_stories[] = { "count", "seed", NULL };
    const char *verb = a->n_files ? a->files[0] : "";
    bool is_prepare = !strcmp(verb, "prepare");
    if (!is_prepare && strcmp(verb, "stories")) return say(AN_USAGE, "data wants prepare or stories, got \"%s\"", verb);
    if (a->n_files > 1) return say(AN_USAGE, "data %s takes no file, got \"%s\"", verb, a->files[1]);
    int code = args_without(a, verb, is_prepare ? only_stories : only_prepare);
    return code ? code : is_prepare ? prepare(a) : stories(a);
}
