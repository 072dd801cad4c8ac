/* files.c: the files that a name of data stands for: itself, the shards of a folder, a list with commas. What cannot
 * be data is refused here with what it is, before anybody takes it for text. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#include "base/io.h"
#include "text/shard.h"

typedef VEC(const char *) names;

static bool ends(const char *path, const char *tail)
{
    size_t n = strlen(path), k = strlen(tail);
    return n >= k && !strcmp(path + n - k, tail);
}

static an_status look_at(const char *path, bool *is_shard, diag *d)
{
    path_info i;
    bool there;
    TRY(path_find(path, &there, &i, d));
    if (!there) return diag_fail(d, AN_INPUT, NOWHERE, "%s: no such file", path);
    if (i.folder)
        return diag_fail(d, AN_INPUT, NOWHERE, "%s is a folder: its name must stand alone, or its files be named",
                         path);
    TRY(path_plain(path, d));
    if (!i.bytes) return diag_fail(d, AN_INPUT, NOWHERE, "%s is empty", path);
    TRY(shard_look(path, is_shard, d));
    if (!*is_shard && ends(path, ".bin"))
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "%s does not begin with llm.c's header, as a token file named .bin does; bare ids are named .u16 or .u32",
            path);
    return AN_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Shards lie beside tokenizers and notes; those are left alone. A .bin that is no shard is not: it may be one that
 * was damaged. */
static bool may_be_shard(const char *name)
{
    return name[0] != '.' &&
           (ends(name, ".u16") || ends(name, ".u32") || (ends(name, ".bin") && strncmp(name, "tokenizer", 9)));
}

static an_status read_folder(const char *dir, arena *mem, names *v, diag *d)
{
    DIR *at = opendir(dir);
    an_status st = AN_OK;
    if (!at) return file_fail("list", dir, d);
    for (struct dirent *e; !st && (errno = 0, e = readdir(at));) {
        if (!may_be_shard(e->d_name)) continue;
        const char *path = arena_printf(mem, "%s%s%s", dir, ends(dir, "/") ? "" : "/", e->d_name);
        if (!path || !VEC_PUSH(mem, v, path)) st = diag_nomem(d);
    }
    if (!st && errno) st = file_fail("list", dir, d);
    closedir(at);
    TRY(st);
    if (!v->n)
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "%s is a folder without token files (.u16, .u32, or .bin with llm.c's header); text is named file by file",
            dir);
    qsort(v->at, v->n, sizeof *v->at, by_name); /* by bytes: the same order under every locale */
    return AN_OK;
}

static an_status split(const char *list, arena *mem, names *v, diag *d)
{
    for (const char *from = list;; from++) {
        size_t n = strcspn(from, ",");
        const char *path = arena_strn(mem, from, n);
        if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "%s: between its commas there is a name missing", list);
        if (!path || !VEC_PUSH(mem, v, path)) return diag_nomem(d);
        from += n;
        if (!*from) return AN_OK;
    }
}

an_status data_find(const char *name, arena *mem, data_files *out, diag *d)
{
    names v = { 0 };
    path_info i;
    bool there = path_look(name, &i);
    *out = (data_files){ 0 };
    if (there && i.folder) TRY(read_folder(name, mem, &v, d));
    else if (!there && strchr(name, ',')) TRY(split(name, mem, &v, d));
    else if (!(name = arena_str(mem, name)) || !VEC_PUSH(mem, &v, name)) return diag_nomem(d);
    for (size_t k = 0; k < v.n; k++) {
        bool is;
        TRY(look_at(v.at[k], &is, d));
        if (k && is != out->shards)
            return diag_fail(d, AN_INPUT, NOWHERE, "%s is %s and %s is %s: one kind is wanted", v.at[0],
                             is ? "text" : "ids", v.at[k], is ? "ids" : "text");
        out->shards = is;
    }
    out->path = v.at, out->n = v.n;
    return AN_OK;
}
