/* run.c: arrays, and a program run once on a device. */
#include <stdlib.h>

#include "api/api_int.h"
#include "device/device.h"
#include "format/npy.h"

struct an_array {
    char *name, *file; /* file: it was read from, or NULL */
    dtype dt;
    int rank;
    int64_t dim[DEV_MAX_RANK];
    size_t bytes;
    unsigned char data[];
};

static an_status no_memory(an_error *e)
{
    diag d = { 0 };
    diag_nomem(&d);
    return api_error(e, &d);
}

static an_array *array_make(const char *name, dtype dt, int rank, const int64_t *dim, const void *data, size_t bytes)
{
    an_array *a = malloc(sizeof *a + bytes);
    if (!a) return NULL;
    *a = (an_array){ .dt = dt, .rank = rank, .bytes = bytes, .name = malloc(strlen(name) + 1) };
    if (!a->name) return free(a), NULL;
    memcpy(a->name, name, strlen(name) + 1);
    for (int i = 0; i < rank; i++) a->dim[i] = dim[i];
    if (bytes) memcpy(a->data, data, bytes);
    return a;
}

void an_array_free(an_array *a)
{
    if (!a) return;
    free(a->name);
    free(a->file);
    free(a);
}

const char *api_array_file(const an_array *a) { return a->file; }

an_status an_array_new(an_array **out, const char *name, const char *type, int rank, const int64_t *dim,
                       const void *data, an_error *e)
{
    *out = NULL;
    diag d = { 0 };
    dtype dt = dtype_from_name(type, strlen(type));
    int64_t n = 1;
    size_t bytes = 0;
    if (dt == DT_NONE || dt == DT_STRING)
        diag_fail(&d, AN_INPUT, NOWHERE, "array %s: unknown element type \"%s\"", name, type);
    if (rank < 0 || rank > DEV_MAX_RANK)
        diag_fail(&d, AN_INPUT, NOWHERE, "array %s: rank %d, at most %d can be held", name, rank, DEV_MAX_RANK);
    for (int i = 0; i < rank && !d.st; i++)
        if (dim[i] < 0 || !mul_i64(n, dim[i], &n))
            diag_fail(&d, AN_INPUT, NOWHERE, "array %s: extent %lld of dimension %d%s", name, (long long)dim[i], i,
                      dim[i] < 0 ? "; 0 or more is wanted" : " makes it larger than can be counted");
    if (!d.st && !dtype_bytes(dt, n, &bytes)) diag_fail(&d, AN_INPUT, NOWHERE, "array %s: its size overflows", name);
    if (d.st) return api_error(e, &d);
    *out = array_make(name, dt, rank, dim, data, bytes);
    return *out ? AN_OK : no_memory(e);
}

an_status an_array_read(an_array **out, const char *name, const char *path, an_error *e)
{
    *out = NULL;
    diag d = { 0 };
    npy_file f;
    if (npy_open(path, &f, &d)) return api_error(e, &d);
    const npy_array *a = &f.array;
    *out = array_make(name ? name : "", a->dt, a->rank, a->dim, a->data, a->bytes);
    npy_close(&f);
    if (*out && !((*out)->file = malloc(strlen(path) + 1))) an_array_free(*out), *out = NULL;
    if (*out) strcpy((*out)->file, path);
    return *out ? AN_OK : no_memory(e);
}

an_status an_array_write(const an_array *a, const char *path, an_error *e)
{
    diag d = { 0 };
    return npy_write(path, a->dt, a->dim, a->rank, a->data, &d) ? api_error(e, &d) : AN_OK;
}

void an_array_get(const an_array *a, an_array_info *info)
{
    *info = (an_array_info){
        .name = a->name, .dtype = dtype_name(a->dt), .rank = a->rank, .dim = a->dim, .data = a->data, .bytes = a->bytes
    };
}

const char *api_array_called(const an_array *a) { return a->file ? a->file : a->name; }

int an_engine_known(const char *name) { return device_known(name); }

/* Limits are a chip's: what would not be heeded is not taken. */
static const device_limit *limits_of(const an_run_options *o, arena *mem, diag *d)
{
    device_limit *l = TAKE(mem, device_limit, o->n_limits);
    if (!l) diag_nomem(d);
    else if (o->n_limits && !device_limited(o->engine))
        diag_fail(d, AN_USAGE, NOWHERE, "%s has no limit %.40s: limits are those of the chips, soft:m1 … soft:m5",
                  o->engine ? o->engine : "the best engine present", o->limits[0].name);
    for (size_t i = 0; i < o->n_limits && l; i++)
        l[i] = (device_limit){ .name = o->limits[i].name, .value = o->limits[i].value };
    return l;
}

an_status an_run_mil(an_array **results, size_t *n_results, const char *text, size_t size, const an_array *const *in,
                     size_t n_in, const an_run_options *o, an_error *e)
{
    static const an_run_options none = { 0 };
    if (!o) o = &none;
    diag d = { 0 };
    arena mem = { 0 };
    dev_tensors out = { 0 };
    size_t n_want = o->want ? o->n_want : 0, room = n_want ? n_want : *n_results, n = 0;
    dev_tensor *t = TAKE(&mem, dev_tensor, n_in);
    *n_results = 0;
    if (!t) diag_nomem(&d);
    for (size_t i = 0; i < n_in && t; i++) {
        t[i] = (dev_tensor){ .name = in[i]->name, .dt = in[i]->dt, .rank = in[i]->rank, .data = in[i]->data };
        memcpy(t[i].dim, in[i]->dim, sizeof t[i].dim);
    }
    engine_error said = { 0 };
    device_options dopt = {
        .threads = o->threads, .reference = o->reference != 0, .limit = limits_of(o, &mem, &d), .n_limit = o->n_limits
    };
    dev_source src = {
        .text = text, .n_text = size, .file = o->file, .weights = { .model_dir = o->model_dir, .stable = true }
    };
    dev_once once = { .in = t, .n_in = n_in, .want = o->want, .n_want = n_want, .fill = o->fill, .seed = o->seed };
    if (!d.st && device_run_once(o->engine, &dopt, &src, &once, &mem, &out, &said, &d)) { /* d says why */
    }
    if (!d.st && out.n > room)
        diag_fail(&d, AN_INPUT, NOWHERE, "the program has %zu results, room was given for %zu", out.n, room);
    for (; n < out.n && !d.st; n++) {
        size_t bytes = 0;
        int64_t count = 1;
        for (int k = 0; k < out.at[n].rank; k++) count *= out.at[n].dim[k]; /* the device checked the product */
        if (!dtype_bytes(out.at[n].dt, count, &bytes))
            diag_fail(&d, AN_BUG, NOWHERE, "result %s: its size overflows", out.at[n].name);
        results[n] =
            d.st ? NULL
                 : array_make(out.at[n].name, out.at[n].dt, out.at[n].rank, out.at[n].dim, out.at[n].data, bytes);
        if (!d.st && !results[n]) diag_nomem(&d);
    }
    arena_free(&mem);
    if (!d.st) return *n_results = n, AN_OK;
    while (n > 0) an_array_free(results[--n]);
    for (size_t i = 0; i < room; i++) results[i] = NULL;
    return api_error(e, &d);
}
