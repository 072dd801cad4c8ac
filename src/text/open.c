/* open.c: which kind of tokenizer a path holds, and the JSON files beside it. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/io.h"
#include "text/text_int.h"

enum { MAX_FILE = 1 << 28 };

static bool is_dir(const char *path)
{
    path_info i;
    return path_look(path, &i) && i.folder;
}
static bool is_file(const char *path) /* or cannot be seen: reading it says why */
{
    path_info i;
    return path_look(path, &i) && !i.folder;
}

static bool join(char *to, size_t room, const char *dir, const char *name)
{
    int n = snprintf(to, room, "%s%s%s", dir, *dir && dir[strlen(dir) - 1] != '/' ? "/" : "", name);
    return n >= 0 && (size_t)n < room;
}

/* ---- what it was read from ---- */

static an_status took(tokenizer *t, const char *name, const char *path, diag *d)
{
    char *at = arena_str(&t->mem, path);
    if (!at || t->n_files == MAX_FILES) return diag_nomem(d);
    t->file[t->n_files++] = (tok_file){ name, at };
    return AN_OK;
}

size_t tok_files(const tokenizer *t, const tok_file **out)
{
    *out = t->file;
    return t->n_files;
}

/* ---- files beside it ---- */

static bool is_models(const char *name)
{
    return !strcmp(name, "config.json") || !strcmp(name, "generation_config.json");
}

/* The JSON object in dir/name; NULL when there is none, or after saying why it cannot be read. */
static json_t *config_file(tokenizer *t, const char *dir, const char *name, diag *d)
{
    char path[4096];
    file_bytes f = { 0 };
    if (!join(path, sizeof path, dir, name) || !is_file(path) || file_read(path, MAX_FILE, &f, d)) return NULL;
    json_t *j = js_load(t, name, f.at, f.n, d);
    file_drop(&f);
    if (j && !is_models(name) && took(t, name, path, d)) json_decref(j), j = NULL;
    return j;
}

/* "bos_token": a string, or an object with one as its content. */
static const char *token_name(const json_t *j, size_t *n)
{
    return js_text(json_is_object(j) ? json_object_get(j, "content") : j, n);
}

static const struct {
    const char *name, *id;
    size_t offset;
} id_keys[] = {
    { "bos_token", "bos_token_id", offsetof(tokenizer, bos) },
    { "eos_token", "eos_token_id", offsetof(tokenizer, eos) },
    { "unk_token", NULL, offsetof(tokenizer, unk) },
    { "pad_token", NULL, offsetof(tokenizer, pad) },
};

/* Names of special tokens: said[i] is set once a file spoke about a key, if only to say null. */
static an_status take_names(tokenizer *t, const json_t *j, const char *file, bool said[], diag *d)
{
    for (size_t i = 0; i < COUNT(id_keys); i++) {
        const json_t *v = json_object_get(j, id_keys[i].name);
        int64_t *id = (int64_t *)(void *)((char *)t + id_keys[i].offset);
        size_t n;
        const char *s = token_name(v, &n);
        if (!v || said[i]) continue;
        said[i] = true;
        *id = NO_ID;
        if (!s) continue;
        *id = tok_find(t, s, n);
        /* unknown and padding: trainers name tokens they add themselves, a text never needs them */
        if (*id < 0 && i > 1) continue;
        if (*id < 0)
            return tok_bad(d, t, "%s: %s is \"%.40s\", which the vocabulary does not hold", file, id_keys[i].name, s);
        if (t->tok[*id].type == TOK_NORMAL) t->tok[*id].type = TOK_CONTROL;
    }
    return AN_OK;
}

static an_status take_numbers(tokenizer *t, const json_t *j, const char *file, const bool said[], diag *d)
{
    for (size_t i = 0; i < COUNT(id_keys); i++) {
        const json_t *v = id_keys[i].id ? json_object_get(j, id_keys[i].id) : NULL;
        int64_t *id = (int64_t *)(void *)((char *)t + id_keys[i].offset);
        if (json_is_array(v)) v = json_array_get(v, 0);
        if (!json_is_number(v) || said[i] || *id >= 0) continue;
        double x = json_number_value(v);
        if (!(x >= 0 && x < t->n) || x != floor(x))
            return tok_bad(d, t, "%s: %s is %g, the vocabulary has %u", file, id_keys[i].id, x, t->n);
        *id = (int64_t)x;
    }
    return AN_OK;
}

static an_status take_added(tokenizer *t, const json_t *j, diag *d)
{
    const char *key;
    json_t *v, *list = json_object_get(j, "added_tokens_decoder");
    json_object_foreach(list, key, v) {
        char *end;
        unsigned long id = strtoul(key, &end, 10);
        size_t n;
        const char *s = js_text(json_object_get(v, "content"), &n);
        /* ids past the vocabulary: models pad their embeddings, not the text */
        if (*end || !*key || id >= t->n || !s) continue;
        if (t->tok[id].type == TOK_CONTROL || t->tok[id].type == TOK_USER) continue;
        bool same = t->tok[id].out.n == n && !memcmp(t->tok[id].out.at, s, n);
        if (t->tok[id].type != TOK_UNUSED && !same)
            return tok_bad(d, t, "tokenizer_config.json says token %lu is \"%.40s\", the vocabulary says \"%.40s\"", id,
                           s, t->tok[id].out.at);
        TRY(tok_put(t, id, s, n, json_is_true(json_object_get(v, "special")) ? TOK_CONTROL : TOK_USER, 0, false, false,
                    d));
    }
    return AN_OK;
}

static an_status take_template(tokenizer *t, const json_t *j, diag *d)
{
    const json_t *v = json_object_get(j, "chat_template");
    size_t i, n;
    json_t *row;
    const char *s = js_text(v, &n);
    json_array_foreach(v, i, row) { /* several, by name */
        const char *name = json_string_value(json_object_get(row, "name"));
        if (!s || (name && !strcmp(name, "default"))) s = js_text(json_object_get(row, "template"), &n);
    }
    if (s && !(t->chat_template = arena_strn(&t->mem, s, n))) return diag_nomem(d);
    return AN_OK;
}

static an_status take_config(tokenizer *t, const char *name, const json_t *j, bool said[], diag *d)
{
    const json_t *v;
    if (is_models(name)) return take_numbers(t, j, name, said, d);
    if (!strcmp(name, "tokenizer_config.json")) {
        TRY(take_added(t, j, d));
        TRY(take_template(t, j, d));
        if (json_is_boolean(v = json_object_get(j, "add_bos_token"))) t->add_bos = json_is_true(v);
        if (json_is_boolean(v = json_object_get(j, "add_eos_token"))) t->add_eos = json_is_true(v);
    }
    return take_names(t, j, name, said, d);
}

/* The JSON files beside it, where there are any. */
static an_status read_config(tokenizer *t, const char *dir, diag *d)
{
    static const char *const files[] = { "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                                         "config.json" };
    bool said[COUNT(id_keys)] = { false };
    for (size_t i = 0; i < COUNT(files) && !d->st; i++) {
        json_t *j = config_file(t, dir, files[i], d);
        if (j && take_config(t, files[i], j, said, d)) { /* d says why */ }
        json_decref(j);
    }
    char path[4096];
    file_bytes f = { 0 };
    if (!d->st && !t->chat_template && join(path, sizeof path, dir, "chat_template.jinja") && is_file(path) &&
        !file_read(path, MAX_FILE, &f, d)) {
        if (!(t->chat_template = arena_strn(&t->mem, (const char *)f.at, f.n))) diag_nomem(d);
        else if (took(t, "chat_template.jinja", path, d)) { /* d says why */ }
        file_drop(&f);
    }
    if (!d->st) guess_ids(t, !said[0], !said[1]);
    if (t->bos < 0) t->add_bos = false;
    if (t->eos < 0) t->add_eos = false;
    return d->st;
}

/* ---- kinds ---- */

static an_status finish(tokenizer *t, an_status st, const char *dir, tokenizer **out, diag *d)
{
    if (!st && dir) st = read_config(t, dir, d);
    if (!st && !dir) guess_ids(t, true, true);
    if (!st) st = tok_finish(t, d);
    if (st) tok_close(t), t = NULL;
    *out = t;
    return st;
}

#define FROM(reader)                                                                                                  \
    tokenizer *t = tok_new(name, d);                                                                                  \
    *out = NULL;                                                                                                      \
    return t ? finish(t, reader, NULL, out, d) : d->st
an_status tok_from_json(const char *name, const void *p, size_t n, tokenizer **out, diag *d)
{
    FROM(read_json(t, p, n, d));
}
an_status tok_from_model(const char *name, const void *p, size_t n, tokenizer **out, diag *d)
{
    FROM(read_model(t, p, n, d));
}
an_status tok_from_bin(const char *name, const void *p, size_t n, tokenizer **out, diag *d)
{
    FROM(read_bin(t, p, n, d));
}
an_status tok_from_pair(const char *name, const void *vocab, size_t n_vocab, const void *merges, size_t n_merges,
                        tokenizer **out, diag *d)
{
    FROM(read_pair(t, vocab, n_vocab, merges, n_merges, d));
}
#undef FROM

static an_status open_pair(const char *vocab, const char *merges, const char *dir, tokenizer **out, diag *d)
{
    file_bytes v = { 0 }, m = { 0 };
    an_status st = file_read(vocab, MAX_FILE, &v, d);
    if (!st) st = file_read(merges, MAX_FILE, &m, d);
    tokenizer *t = st ? NULL : tok_new(vocab, d);
    if (t) {
        st = took(t, "vocab.json", vocab, d); /* GPT-2's own names, encoder.json and vocab.bpe, are of the same kind */
        if (!st) st = took(t, "merges.txt", merges, d);
        st = finish(t, st ? st : read_pair(t, v.at, v.n, m.at, m.n, d), dir, out, d);
    } else st = d->st;
    file_drop(&v);
    file_drop(&m);
    return st;
}

/* A JSON file whose top has a "model" is a tokenizer.json; else it is half of a pair. A look at the bytes is enough:
 * vocabularies hold "model" as a token, but then as `"model": 19849`. */
static bool looks_like_tokenizer_json(const file_bytes *f)
{
    const char *s = (const char *)f->at, *end = s + f->n;
    for (; (s = memchr(s, '"', (size_t)(end - s))); s++) {
        if (end - s < 10 || memcmp(s, "\"model\"", 7)) continue;
        const char *p = s + 7;
        while (p < end && (*p == ' ' || *p == ':' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
        if (p < end && *p == '{') return true;
    }
    return false;
}

static const struct {
    const char *vocab, *merges;
} pairs[] = { { "vocab.json", "merges.txt" }, { "encoder.json", "vocab.bpe" } };

/* The folder of a path: "" for the current one. */
static bool folder(const char *path, char *dir, size_t room)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    if (n >= room) return false;
    memcpy(dir, path, n);
    dir[n] = 0;
    return true;
}

static an_status open_file(const char *path, tokenizer **out, diag *d)
{
    char dir[4096], other[4096];
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    if (!folder(path, dir, sizeof dir)) return diag_fail(d, AN_INPUT, NOWHERE, "%.80s…: the path is too long", path);
    for (size_t i = 0; i < COUNT(pairs); i++) { /* the merges named: their vocabulary is beside them */
        if (strcmp(base, pairs[i].merges)) continue;
        if (!join(other, sizeof other, dir, pairs[i].vocab) || !is_file(other))
            return diag_fail(d, AN_INPUT, NOWHERE, "%s: there is no %s beside it", path, pairs[i].vocab);
        return open_pair(other, path, dir, out, d);
    }
    file_bytes f = { 0 };
    TRY(file_read(path, MAX_FILE, &f, d));
    size_t i = 0;
    while (i < f.n && (f.at[i] == ' ' || f.at[i] == '\n' || f.at[i] == '\r' || f.at[i] == '\t')) i++;
    bool json = i < f.n && f.at[i] == '{';
    an_status st = AN_OK;
    if (json && !looks_like_tokenizer_json(&f)) {
        file_drop(&f);
        for (size_t k = 0; k < COUNT(pairs); k++) {
            bool named = !strcmp(base, pairs[k].vocab);
            if (join(other, sizeof other, dir, pairs[k].merges) && is_file(other) &&
                (named || strcmp(base, pairs[!k].vocab)))
                return open_pair(path, other, dir, out, d);
        }
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "%s: neither a tokenizer.json (no model), nor a vocabulary with its merges (merges.txt, vocab.bpe) beside it",
            path);
    }
    tokenizer *t = tok_new(path, d);
    if (!t) st = d->st;
    else if (f.n >= 4 && !memcmp(f.at, "GGUF", 4)) {
        st = diag_fail(d, AN_INPUT, NOWHERE, "%s: a GGUF file, which is read by its own reader", path);
        tok_close(t);
    } else if (json)
        st = finish(t, took(t, "tokenizer.json", path, d) ? d->st : read_json(t, f.at, f.n, d), dir, out, d);
    else if (f.n >= 2 && f.at[0] == 0x0a && f.at[1])
        st = finish(t, took(t, "tokenizer.model", path, d) ? d->st : read_model(t, f.at, f.n, d), dir, out,
                    d); /* field 1, not empty */
    else if (f.n >= 4 && !f.at[3])
        st = finish(t, took(t, "tokenizer.bin", path, d) ? d->st : read_bin(t, f.at, f.n, d), NULL, out, d);
    else {
        st = diag_fail(d, AN_INPUT, NOWHERE,
                       "%s: no tokenizer.json, tokenizer.model, tokenizer.bin, GGUF file or vocabulary pair", path);
        tok_close(t);
    }
    file_drop(&f);
    return st;
}

/* The first of them that is there. */
static bool found_in(const char *dir, char *path, size_t room)
{
    static const char *const files[] = { "tokenizer.json", "tokenizer.model", "vocab.json", "encoder.json",
                                         "tokenizer.bin" };
    for (size_t i = 0; i < COUNT(files); i++)
        if (join(path, room, dir, files[i]) && is_file(path)) return true;
    return false;
}

bool tok_in(const char *dir)
{
    char path[4096];
    return found_in(dir, path, sizeof path);
}

static an_status open_dir(const char *dir, tokenizer **out, diag *d)
{
    char path[4096];
    if (found_in(dir, path, sizeof path)) return open_file(path, out, d);
    return diag_fail(
        d, AN_INPUT, NOWHERE,
        "%s: the folder holds no tokenizer.json, tokenizer.model, vocab.json, encoder.json or tokenizer.bin", dir);
}

an_status tok_open(const char *path, tokenizer **out, diag *d)
{
    *out = NULL;
    if (is_dir(path)) return open_dir(path, out, d);
    const char *comma = is_file(path) ? NULL : strpbrk(path, ",+");
    if (comma && comma > path && comma[1]) { /* a pair by both names, in either order */
        char a[4096], dir[4096];
        const char *b = comma + 1;
        if ((size_t)(comma - path) >= sizeof a || !folder(b, dir, sizeof dir))
            return diag_fail(d, AN_INPUT, NOWHERE, "%.80s…: the path is too long", path);
        memcpy(a, path, (size_t)(comma - path));
        a[comma - path] = 0;
        size_t n = strlen(a);
        bool json_first = n > 5 && !strcmp(a + n - 5, ".json");
        return open_pair(json_first ? a : b, json_first ? b : a, dir, out, d);
    }
    return open_file(path, out, d);
}
