/* lm_tok.c: files of a tokenizer for checkpoints; lm_tok.h says which. */
#include "base/io.h"
#include "train/lm_tok.h"

enum { WRITTEN = 2 };

/* A pipe can be read once, and was. */
static bool still_there(const tok_file *f, size_t n)
{
    path_info i;
    for (size_t k = 0; k < n; k++)
        if (!path_look(f[k].path, &i) || !i.plain) return false;
    return n > 0;
}

static an_status put(arena *mem, const char *name, const void *p, size_t n, ckpt_file *out, diag *d)
{
    void *at = arena_take(mem, n + 1, 1, 1);
    if (!at) return diag_nomem(d);
    memcpy(at, p, n);
    *out = (ckpt_file){ name, at, n };
    return AN_OK;
}

static an_status copy(const tok_file *f, size_t n, arena *mem, ckpt_file *out, diag *d)
{
    for (size_t i = 0; i < n; i++) {
        file_bytes b;
        char *name = arena_str(mem, f[i].name);
        if (!name) return diag_nomem(d);
        TRY(file_read(f[i].path, (size_t)256 << 20, &b, d));
        an_status st = put(mem, name, b.at, b.n, &out[i], d);
        file_drop(&b);
        TRY(st);
    }
    return AN_OK;
}

static an_status write_both(const tok_vocab *v, arena *mem, ckpt_file *out, diag *d)
{
    strbuf file = { 0 }, config = { 0 };
    const char *name = tok_vocab_file(v, &file);
    tok_vocab_config(v, &config);
    an_status st = file.oom || config.oom ? diag_nomem(d) : put(mem, name, file.at, file.n, &out[0], d);
    if (!st) st = put(mem, "tokenizer_config.json", config.at, config.n, &out[1], d);
    sb_free(&file);
    sb_free(&config);
    return st;
}

an_status lm_tok_files(const tokenizer *t, arena *mem, const ckpt_file **out, size_t *n, const char **lost, diag *d)
{
    const tok_file *f;
    tok_vocab v;
    diag why = { 0 };
    size_t k = tok_files(t, &f);
    bool as_they_are = still_there(f, k);
    ckpt_file *to = TAKE(mem, ckpt_file, as_they_are ? k : WRITTEN);
    *out = to, *n = 0, *lost = "";
    if (!to) return diag_nomem(d);
    if (as_they_are) return *n = k, copy(f, k, mem, to, d);
    an_status st = tok_to_vocab(t, 0, mem, &v, lost, &why);
    if (st == AN_INPUT) return (*lost = arena_str(mem, why.msg)) ? AN_OK : diag_nomem(d);
    if (st) return diag_fail(d, st, NOWHERE, "%s", why.msg);
    return *n = WRITTEN, write_both(&v, mem, to, d);
}
