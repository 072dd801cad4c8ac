/* cmd_tokenizer.c: look into a tokenizer, or make one from a corpus. */
#include <stdlib.h>

#include "cli/cli.h"

const option tokenizer_options[] = {
    { "tokenizer", "T", NULL, "info: what to look into, as for tokenize" },
    { "data", "FILE", NULL, "train: the corpus, - for standard input" },
    { "vocab", "N", "4096", "train: entries, 256 bytes and <|endoftext|> included" },
    { "split", "NAME", "gpt2", "train: how text is cut before merging: gpt2, llama3, qwen2, qwen35" },
    { "out", "FILE", NULL, "train: the tokenizer.json to write" },
    { "json", NULL, NULL, "info: one object" },
    { NULL, NULL, NULL, NULL },
};

static void put_id(strbuf *b, bool json, const char *name, int64_t id)
{
    if (json && id < 0) sb_printf(b, ",\"%s\":null", name);
    else if (json) sb_printf(b, ",\"%s\":%lld", name, (long long)id);
    else if (id < 0) sb_printf(b, "%-14s none\n", name);
    else sb_printf(b, "%-14s %lld\n", name, (long long)id);
}

static int info(const args *a)
{
    const char *path = a->n_files > 1 ? a->files[1] : arg_of(a, "tokenizer");
    bool json = arg_on(a, "json");
    if (!path || a->n_files > 2 || (a->n_files > 1 && arg_on(a, "tokenizer")))
        return say(AN_USAGE, "tokenizer info wants one tokenizer");
    an_tokenizer *t;
    an_error e = { 0 };
    if (an_tokenizer_open(&t, path, &e)) return say_error(NULL, &e);
    an_tokenizer_info i;
    an_tokenizer_get(t, &i);
    strbuf b = { 0 };
    if (json) {
        sb_printf(
            &b,
            "{\"model\":\"%s\",\"split\":\"%s\",\"tokens\":%u,\"special\":%u,\"byte_fallback\":%s,\"add_bos\":%s,\"add_eos\":%s",
            i.model, i.split, i.n, i.n_special, i.byte_fallback ? "true" : "false", i.add_bos ? "true" : "false",
            i.add_eos ? "true" : "false");
    } else {
        sb_printf(&b, "%-14s %s\n%-14s %s\n%-14s %u\n%-14s %u\n%-14s %s\n", "model", i.model, "split", i.split,
                  "tokens", i.n, "special", i.n_special, "every byte", i.byte_fallback ? "yes" : "no");
        sb_printf(&b, "%-14s %s\n%-14s %s\n", "adds bos", i.add_bos ? "yes" : "no", "adds eos",
                  i.add_eos ? "yes" : "no");
    }
    put_id(&b, json, "bos", i.bos), put_id(&b, json, "eos", i.eos), put_id(&b, json, "unk", i.unk),
        put_id(&b, json, "pad", i.pad);
    if (json) {
        sb_puts(&b, ",\"chat_template\":");
        if (i.chat_template) sb_json(&b, i.chat_template, strlen(i.chat_template));
        else sb_puts(&b, "null");
        sb_puts(&b, "}\n");
    } else sb_printf(&b, "%-14s %s\n", "chat template", i.chat_template ? "yes" : "none");
    an_tokenizer_free(t);
    if (b.oom) return sb_free(&b), say(AN_NOMEM, "out of memory");
    fwrite(b.at, 1, b.n, stdout);
    sb_free(&b);
    return 0;
}

/* How many entries came of it: a text with too few pairs ends the merging early. */
static void say_made(const char *out, size_t bytes, long wanted, double seconds)
{
    an_tokenizer *t = NULL;
    an_tokenizer_info i = { 0 };
    an_error e = { 0 };
    if (strcmp(out, "-") && !an_tokenizer_open(&t, out, &e)) an_tokenizer_get(t, &i);
    fprintf(stderr, "%s: ", out);
    if (i.n) fprintf(stderr, "%u tokens ", i.n);
    fprintf(stderr, "from %zu bytes in %.2f s\n", bytes, seconds);
    if (i.n && i.n < wanted)
        fprintf(stderr, "anneal: warning: %u of %ld tokens: no pair is left that the text has twice\n", i.n, wanted);
    an_tokenizer_free(t);
}

static int train(const args *a)
{
    const char *data = arg_of(a, "data"), *out = arg_of(a, "out");
    long vocab;
    if (a->n_files > 1)
        return say(AN_USAGE, "tokenizer train takes no file, got \"%s\"; the corpus is --data FILE", a->files[1]);
    if (!data || !out) return say(AN_USAGE, "tokenizer train needs --data FILE and --out tokenizer.json");
    if (!arg_int(a, "vocab", 257, 1 << 22, &vocab)) return an_exit_code(AN_USAGE);
    file_bytes f = { 0 };
    char *json = NULL;
    size_t n = 0;
    an_error e = { 0 };
    diag d = { 0 };
    int code = read_text(data, &f);
    if (!code && !f.n) code = say(AN_INPUT, "%s is empty: there is nothing to learn a vocabulary from", data);
    uint64_t from = clock_ns();
    if (!code && an_tokenizer_train(&json, &n, f.at, f.n, (uint32_t)vocab, arg_of(a, "split"), &e))
        code = say_error(NULL, &e);
    if (!code && file_write(out, json, n, &d)) code = say(d.st, "%s", d.msg);
    if (!code) say_made(out, f.n, vocab, (double)(clock_ns() - from) * 1e-9);
    an_free(json);
    file_drop(&f);
    return code;
}

int cmd_tokenizer(const args *a)
{
    static const char *const only_train[] = { "data", "vocab", "split", "out", NULL }, *const only_info[] = {
        "tokenizer", NULL
    };
    const char *verb = a->n_files ? a->files[0] : "";
    bool is_info = !strcmp(verb, "info");
    if (!is_info && strcmp(verb, "train")) return say(AN_USAGE, "tokenizer wants info or train, got \"%s\"", verb);
    int code = args_without(a, verb, is_info ? only_train : only_info);
    if (!code && !is_info && arg_on(a, "json")) code = say(AN_USAGE, "tokenizer train has no option --json");
    return code ? code : is_info ? info(a) : train(a);
}
