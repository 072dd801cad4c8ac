/* cmd_tokenize.c: standard input as ids, or ids as bytes. */
#include <errno.h>
#include <stdlib.h>

#include "cli/cli.h"

const option tokenize_options[] = {
    { "tokenizer", "T", NULL, "tokenizer.json, tokenizer.model, tokenizer.bin, GGUF, a folder, or encoder.json beside vocab.bpe" },
    { "decode", NULL, NULL, "ids in, bytes out" },
    { "bos", NULL, NULL, "put the BOS id in front" },
    { "special", NULL, NULL, "special tokens spelt in the text become their id; with --decode, print them" },
    { NULL, NULL, NULL, NULL },
};

static int encode(an_tokenizer *t, const file_bytes *in, int flags)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    an_error e = { 0 };
    if (an_encode(t, in->at, in->n, flags, &ids, &n, &e)) return say_error(NULL, &e);
    strbuf b = { 0 };
    for (size_t i = 0; i < n; i++) sb_printf(&b, i ? " %u" : "%u", ids[i]);
    sb_putc(&b, '\n');
    an_free(ids);
    bool oom = b.oom, ok = !oom && fwrite(b.at, 1, b.n, stdout) == b.n;
    sb_free(&b);
    return oom  ? say(AN_NOMEM, "out of memory")
           : ok ? 0
                : say(AN_INPUT, "cannot write to standard output: %s", strerror(errno));
}

/* Decimals with white space between. */
static int read_ids(const file_bytes *in, uint32_t **out, size_t *n)
{
    uint32_t *ids = malloc((in->n / 2 + 2) * sizeof *ids);
    *n = 0;
    *out = ids;
    if (!ids) return say(AN_NOMEM, "out of memory");
    for (size_t i = 0; i < in->n;) {
        unsigned char c = in->at[i];
        if (c == ' ' || (c >= 9 && c <= 13)) {
            i++;
            continue;
        }
        uint64_t v = 0;
        size_t from = i;
        while (i < in->n && in->at[i] >= '0' && in->at[i] <= '9' && v <= UINT32_MAX) v = v * 10 + (in->at[i++] - '0');
        bool ended = i == in->n || in->at[i] == ' ' || (in->at[i] >= 9 && in->at[i] <= 13);
        if (i == from || !ended || v > UINT32_MAX)
            return say(AN_INPUT, "<stdin>: byte %zu: entry %zu is no id; decimals with spaces between are wanted", from,
                       *n);
        ids[(*n)++] = (uint32_t)v;
    }
    return 0;
}

static int decode(an_tokenizer *t, const file_bytes *in, int flags)
{
    uint32_t *ids;
    size_t n, bytes = 0;
    char *text = NULL;
    an_error e = { 0 };
    int code = read_ids(in, &ids, &n);
    if (!code && an_decode(t, ids, n, flags, &text, &bytes, &e)) code = say_error(NULL, &e);
    if (!code && fwrite(text, 1, bytes, stdout) != bytes)
        code = say(AN_INPUT, "cannot write to standard output: %s", strerror(errno));
    free(ids);
    an_free(text);
    return code;
}

int cmd_tokenize(const args *a)
{
    const char *path = arg_of(a, "tokenizer");
    bool back = arg_on(a, "decode");
    if (a->n_files) return say(AN_USAGE, "tokenize reads standard input and takes no file, got \"%s\"", a->files[0]);
    if (!path) return say(AN_USAGE, "tokenize needs --tokenizer T");
    if (back && arg_on(a, "bos")) return say(AN_USAGE, "--bos is for encoding, not for --decode");
    an_tokenizer *t;
    an_error e = { 0 };
    file_bytes in = { 0 };
    if (an_tokenizer_open(&t, path, &e)) return say_error(NULL, &e);
    int flags = (arg_on(a, "bos") ? AN_TOK_BOS : 0) | (arg_on(a, "special") ? AN_TOK_SPECIAL : 0),
        code = read_text("-", &in);
    if (!code) code = back ? decode(t, &in, flags) : encode(t, &in, flags);
    file_drop(&in);
    an_tokenizer_free(t);
    return code;
}
