/* inputs.c: the files behind the names of a command line; files.h says what for. Which of a folder are read is known
 * by their names: others in it are nobody's, and a log or a plot may be among them. */
#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>

#include "cli/files.h"

typedef struct {
    arena *mem;
    named_files *to;
    named_file as; /* of the name that is looked behind */
    bool written;
    bool oom;
} finder;

typedef const char *const pattern;
static pattern vocabularies[] = { "tokenizer.json", "tokenizer.model", "tokenizer.bin", "tokenizer_config.json",
                                  "vocab.json", "merges.txt", "encoder.json", "vocab.bpe", "special_tokens_map.json",
                                  "added_tokens.json", "chat_template.jinja", "config.json", "generation_config.json",
                                  NULL };
static pattern tensors[] = { "*.safetensors", "*.safetensors.index.json", "*.npy", "active.u32", NULL };
static pattern shards[] = { "*.u16", "*.u32", "*.bin", NULL };
static pattern images[] = { "*-ubyte", "*-ubyte.gz", NULL };
static pattern all[] = { "*", NULL };
static pattern kept[] = { "latest", "losses.jsonl", ".lock", NULL }; /* by a run, beside its checkpoints */
static pattern checkpoints[] = { "step-*", NULL };

static void put(finder *f, const char *path)
{
    named_file n = f->as;
    n.path = path;
    f->oom |= !path || !VEC_PUSH(f->mem, f->to, n);
}

static bool fits(pattern *p, const char *name)
{
    for (; *p; p++)
        if (!fnmatch(*p, name, FNM_PERIOD)) return true;
    return false;
}

static bool is_folder(const char *path)
{
    path_info i;
    return path && path_look(path, &i) && i.folder;
}

static char *inside(finder *f, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    return arena_printf(f->mem, "%.*s/%s", (int)n, dir, name);
}

static void put_matching(finder *f, const char *dir, pattern *p)
{
    DIR *at = opendir(dir);
    const bool was = f->as.behind;
    f->as.behind = true;
    for (struct dirent *e; at && !f->oom && (e = readdir(at));)
        if (fits(p, e->d_name)) put(f, inside(f, dir, e->d_name));
    f->as.behind = was;
    if (at) closedir(at);
}

static void put_checkpoints(finder *f, const char *dir)
{
    DIR *at = opendir(dir);
    for (struct dirent *e; at && !f->oom && (e = readdir(at));) {
        const char *one = fits(checkpoints, e->d_name) ? inside(f, dir, e->d_name) : NULL;
        if (is_folder(one)) put_matching(f, one, all);
    }
    if (at) closedir(at);
}

/* What a run keeps in its folder, there or not yet. Checkpoints that are there are not written again. */
static void put_run(finder *f, const char *dir)
{
    f->as.behind = true;
    for (pattern *p = kept; *p; p++) put(f, inside(f, dir, *p));
    f->as.behind = false;
    if (!f->written) put_checkpoints(f, dir);
}

/* Of the folder of a model or a tokenizer, be it named itself or by a file in it. */
static void put_beside(finder *f, const char *path)
{
    path_info i;
    if (!path_look(path, &i)) return; /* a preset, or built in */
    char *above = i.folder ? NULL : folder_of(path);
    const char *dir = i.folder ? path : above;
    f->oom |= !dir;
    if (dir) put_matching(f, dir, vocabularies);
    f->as.tensors = true;
    if (dir && f->as.kind == FILE_MODEL) put_matching(f, dir, tensors);
    f->as.tensors = false;
    if (i.folder && f->as.kind == FILE_MODEL) put_run(f, dir);
    free(above);
}

/* MIL names its weights as it likes, below the folder it is in. */
static void put_weights(finder *f, const char *path)
{
    static const char root[] = "@model_path/";
    file_bytes text;
    diag none = { 0 };
    char *dir = folder_of(path);
    f->oom |= !dir;
    if (!dir || file_map(path, &text, &none)) {
        free(dir);
        return;
    }
    f->as.behind = true;
    for (size_t i = 0, n = sizeof root - 1; i + n < text.n && !f->oom; i++) {
        if (text.at[i] != '@' || memcmp(text.at + i, root, n)) continue;
        const char *name = (const char *)text.at + i + n, *end = memchr(name, '"', text.n - i - n);
        if (!end) break;
        const char *below = arena_strn(f->mem, name, (size_t)(end - name));
        if (below) put(f, inside(f, dir, below));
        else f->oom = true;
    }
    f->as.behind = false;
    file_drop(&text);
    free(dir);
}

static void put_data(finder *f, const char *path)
{
    static const char *const forms[] = { "mnist:", "text:" };
    for (size_t i = 0; i < COUNT(forms); i++)
        if (!strncmp(path, forms[i], strlen(forms[i]))) path += strlen(forms[i]);
    put(f, path);
    if (is_folder(path)) put_matching(f, path, shards), put_matching(f, path, images);
}

static void put_list(finder *f, const char *list)
{
    for (const char *from = list; !f->oom; from++) {
        const size_t n = strcspn(from, ",");
        const char *one = arena_strn(f->mem, from, n);
        if (!one) f->oom = true;
        else if (n && f->as.kind == FILE_DATA) put_data(f, one);
        else if (n) put(f, one);
        if (!*(from += n)) return;
    }
}

static void put_value(finder *f, const char *value)
{
    const char *eq = strchr(value, '=');
    switch (f->as.kind) {
    case FILE_LIST:
    case FILE_DATA: put_list(f, value); return;
    case FILE_PAIR:
        if (!eq) return; /* who reads it says so */
        f->as.of = arena_strn(f->mem, value, (size_t)(eq - value));
        f->oom |= !f->as.of;
        put(f, eq + 1);
        return;
    default: break;
    }
    put(f, value);
    if (f->as.kind == FILE_MODEL || f->as.kind == FILE_TOKENIZER) put_beside(f, value);
    if (f->as.kind == FILE_PROGRAM && !f->written) put_weights(f, value);
    if (f->as.kind == FILE_RUN) put_run(f, value);
}

/* Standard input and output are no files here: what they are is the shell's. Of two results both may not go there. */
static void put_option(finder *f, const args *a)
{
    const char *name = f->as.option;
    const bool each = f->as.kind == FILE_PAIR || f->as.kind == FILE_LIST || f->as.kind == FILE_DATA;
    for (size_t i = 0; each && i < a->n_list; i++)
        if (!strcmp(a->list[i].option, name)) put_value(f, a->list[i].value);
    for (int i = 0; !*name && i < a->n_files; i++)
        if (strcmp(a->files[i], "-")) put_value(f, a->files[i]);
    const char *value = each || !*name ? NULL : arg_of(a, name);
    if (value && *value && (f->written || strcmp(value, "-"))) put_value(f, value);
}

bool files_named(const args *a, bool written, arena *mem, named_files *out)
{
    enum { READS, WRITES };
    static const struct {
        int (*run)(const args *);
        bool written;
        file_kind kind;
        const char *option;
    } rows[] = {
#define FILES(command, use, kind, option) { cmd_##command, use, FILE_##kind, option },
#include "cli/files.def"
#undef FILES
    };
    finder f = { .mem = mem, .to = out, .written = written };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (rows[i].run != a->cmd->run || rows[i].written != written) continue;
        f.as = (named_file){ .option = rows[i].option, .kind = rows[i].kind };
        put_option(&f, a);
    }
    return !f.oom;
}
