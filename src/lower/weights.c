/* weights.c: BLOBFILE references to bytes. In: "@model_path/weights/weight.bin" and an offset, from text nobody
 * vouches for.  Out: a view into a mapped file. A path may only name something inside the model folder; it is judged
 * by its words, before any file is touched. Links inside the folder are followed: whoever made the folder chose
 * them. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <sys/stat.h>

#include "lower/lower_int.h"

typedef struct {
    const char *path; /* as written */
    const char *full; /* NULL: given, or not looked for */
    weight_answer answer;
    char why[200];
    blob_file blob;
} weight_file;

struct lower_weights {
    arena mem;
    const char *dir;
    bool given; /* some content came from memory */
    str_map by_path;
    VEC(weight_file) files;
};

lower_weights *lower_weights_open(const char *model_dir)
{
    lower_weights *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    if (!model_dir) return w;
    w->dir = arena_str(&w->mem, *model_dir ? model_dir : ".");
    if (w->dir) return w;
    lower_weights_close(w);
    return NULL;
}

void lower_weights_close(lower_weights *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->files.n; i++)
        if (w->files.at[i].answer == WEIGHT_FOUND) blob_close(&w->files.at[i].blob);
    arena_free(&w->mem);
    free(w);
}

bool lower_path_inside(const char *p)
{
    int depth = 0;
    while (*p) {
        size_t n = strcspn(p, "/");
        if (n == 2 && !memcmp(p, "..", 2)) depth--;
        else if (n && !(n == 1 && *p == '.')) depth++;
        if (depth < 0) return false;
        p += n;
        while (*p == '/') p++;
    }
    return depth > 0;
}

/* The path below the model folder, or NULL when it lies (or may lie) outside. */
static const char *below_model(const lower_weights *w, const char *path)
{
    static const char word[] = "@model_path";
    const char *rest = path;
    size_t n_dir = strlen(w->dir);
    if (!strncmp(path, word, sizeof word - 1)) {
        rest = path + sizeof word - 1;
        if (*rest != '/') return NULL;
    } else if (*path == '/') {
        if (*w->dir != '/' || strncmp(path, w->dir, n_dir) || (path[n_dir] != '/' && w->dir[n_dir - 1] != '/'))
            return NULL;
        rest = path + n_dir;
    }
    while (*rest == '/') rest++;
    return lower_path_inside(rest) ? rest : NULL;
}

/* False: no memory, which is no answer. */
static bool open_file(lower_weights *w, weight_file *f)
{
    if (!w->dir) {
        f->answer = WEIGHT_MISSING;
        snprintf(f->why, sizeof f->why, "weight file \"%.120s\" is not among those given", f->path);
        return true;
    }
    const char *rest = below_model(w, f->path);
    if (!rest) {
        f->answer = WEIGHT_BAD;
        snprintf(f->why, sizeof f->why,
                 "weight path \"%.80s\" leaves the model folder; it must be @model_path/… without climbing out",
                 f->path);
        return true;
    }
    diag d = { 0 };
    char *full = arena_printf(&w->mem, "%s/%s", w->dir, rest);
    path_info i;
    bool there;
    f->full = full;
    if (!full) diag_nomem(&d);
    else if (path_find(full, &there, &i, &d)) { /* d says why */ }
    else if (!there) {
        f->answer = WEIGHT_MISSING;
        snprintf(f->why, sizeof f->why, "weight file %.150s is not there", full);
        return true;
    } else if (!i.plain) diag_fail(&d, AN_INPUT, NOWHERE, "%s is not a regular file", full);
    if (d.st || blob_open(full, &f->blob, &d)) {
        f->answer = WEIGHT_BAD;
        snprintf(f->why, sizeof f->why, "%.180s", d.msg);
        return d.st != AN_NOMEM;
    }
    f->answer = WEIGHT_FOUND;
    return true;
}

static weight_file *file_of(lower_weights *w, const char *path, bool *first)
{
    uint32_t i;
    size_t n = strlen(path);
    *first = false;
    if (str_map_get(&w->by_path, path, n, &i)) return &w->files.at[i];
    *first = true;
    weight_file f = { .path = arena_strn(&w->mem, path, n) };
    /* room first: an open file must have a place to be closed from */
    if (!f.path || !vec_room(&w->mem, &w->files.at, &w->files.cap, w->files.n + 1, sizeof f)) return NULL;
    if (!open_file(w, &f)) return NULL;
    if (!str_map_put(&w->mem, &w->by_path, f.path, n, (uint32_t)w->files.n)) {
        if (f.answer == WEIGHT_FOUND) blob_close(&f.blob);
        return NULL;
    }
    w->files.at[w->files.n] = f;
    return &w->files.at[w->files.n++];
}

an_status lower_weights_give(lower_weights *w, const char *path, const void *bytes, size_t n, diag *d)
{
    size_t len = strlen(path);
    if (str_map_get(&w->by_path, path, len, NULL))
        return diag_fail(d, AN_INPUT, NOWHERE, "weight file \"%.120s\" is given twice", path);
    weight_file f = { .path = arena_strn(&w->mem, path, len), .answer = WEIGHT_FOUND };
    if (!f.path || !vec_room(&w->mem, &w->files.at, &w->files.cap, w->files.n + 1, sizeof f)) return diag_nomem(d);
    diag why = { 0 };
    if (blob_view(bytes, n, &f.blob, &why)) return diag_fail(d, why.st, NOWHERE, "%.120s: %s", path, why.msg);
    if (!str_map_put(&w->mem, &w->by_path, f.path, len, (uint32_t)w->files.n)) return diag_nomem(d);
    w->files.at[w->files.n++] = f;
    w->given = true;
    return AN_OK;
}

bool lower_weights_reads(const lower_weights *w, const char *file)
{
    struct stat a, b;
    if (!w || stat(file, &a)) return false;
    for (size_t i = 0; i < w->files.n; i++)
        if (w->files.at[i].full && !stat(w->files.at[i].full, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
            return true;
    return false;
}

/* Nothing can start at 128 but the data of the first record, and nothing at all inside the file's first 64 bytes. */
static bool is_data_of_previous(const blob_file *b, uint64_t offset)
{
    blob_entry e;
    diag d = { 0 };
    return offset >= 128 && !blob_at(b, offset - 64, DT_NONE, 0, &e, &d) && e.data == offset;
}

/* The record of `bytes` bytes of type dt at `offset`, with the answers of weights_find. */
static weight_answer find_record(lower_weights *w, const char *path, uint64_t offset, dtype dt, uint64_t bytes,
                                 const void **data, bool *first, bool *data_offset, diag *why)
{
    *data = NULL;
    *first = false;
    *data_offset = offset == 128;
    if (!w || (!w->dir && !w->given)) return WEIGHT_NOT_ASKED;
    weight_file *f = file_of(w, path, first);
    if (!f) {
        diag_nomem(why);
        return WEIGHT_BAD;
    }
    if (f->answer != WEIGHT_FOUND) {
        diag_fail(why, AN_INPUT, NOWHERE, "%s", f->why);
        return f->answer;
    }
    blob_entry e;
    diag blob = { 0 };
    if (blob_at(&f->blob, offset, dt, bytes, &e, &blob)) {
        diag_fail(why, blob.st, NOWHERE, "%.120s: %.200s", path, blob.msg);
        *data_offset |= is_data_of_previous(&f->blob, offset);
        return WEIGHT_BAD;
    }
    *data_offset = false;
    *data = f->blob.file.at + e.data;
    return WEIGHT_FOUND;
}

weight_answer weights_find(lower_weights *w, const char *path, uint64_t offset, const ttype *t, const void **data,
                           bool *first, bool *data_offset, diag *why)
{
    size_t bytes = 0;
    bool sized = shape_bytes(t, &bytes);
    weight_answer a = find_record(w, path, offset, t->dt, bytes, data, first, data_offset, why);
    if (a != WEIGHT_FOUND || sized) return a;
    *data = NULL;
    diag_fail(why, AN_INPUT, NOWHERE, "the size of a weight must be known, its type has a dimension that is not");
    return WEIGHT_BAD;
}

an_status lower_weights_record(lower_weights *w, const char *path, uint64_t offset, dtype dt, uint64_t bytes,
                               const void **data, diag *d)
{
    bool first, data_offset;
    weight_answer a = find_record(w, path, offset, dt, bytes, data, &first, &data_offset, d);
    if (a == WEIGHT_NOT_ASKED)
        return diag_fail(d, AN_INPUT, NOWHERE, "weight file \"%.120s\" is wanted and no weights were given", path);
    return a == WEIGHT_FOUND ? AN_OK : d->st;
}
