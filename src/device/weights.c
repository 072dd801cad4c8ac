/* weights.c: the weight records a program was compiled with. In: a dictionary of files, or the model folder.  Out:
 * the records the program's manifest names, held for its life. Real programs carry their constants with them:
 * changing a weight file afterwards changes nothing. So records are copied, unless the caller promises that they
 * stay as they are. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "base/big.h"
#include "device/device_int.h"

enum { RECORD_ALIGN = 64 };

typedef struct {
    const char *path;
    uint64_t offset, bytes;
    dtype dt;
    const unsigned char *at;
    void *own;
} record;

struct baked {
    arena mem;
    lower_weights *files; /* when records look into them */
    str_map index;        /* path and offset -> record */
    VEC(record) records;
    dev_weights give;     /* when the caller hands records out itself */
};

an_status weights_open(const dev_weights *w, lower_weights **out, diag *d)
{
    *out = lower_weights_open(w->model_dir);
    if (!*out) return diag_nomem(d);
    an_status st = AN_OK;
    for (size_t i = 0; i < w->n_blob && !st; i++)
        st = lower_weights_give(*out, w->blob[i].path, w->blob[i].bytes, w->blob[i].n, d);
    if (st) {
        lower_weights_close(*out);
        *out = NULL;
    }
    return st;
}

static const char *record_key(arena *mem, const char *path, uint64_t offset)
{
    return arena_printf(mem, "%llu %s", (unsigned long long)offset, path);
}

static void *record_memory(baked *spare, size_t i, uint64_t bytes)
{
    record *r = spare && i < spare->records.n ? &spare->records.at[i] : NULL;
    void *p = NULL;
    if (r && r->own && r->bytes == bytes) {
        p = r->own;
        r->own = NULL;
    } else if (bytes <= SIZE_MAX / 2) p = big_alloc(RECORD_ALIGN, (size_t)bytes);
    return p;
}

static an_status take(baked *b, pool *p, const const_source *s, bool view, lower_weights *files, baked *spare, diag *d)
{
    arena_mark m = arena_save(&b->mem);
    const char *key = record_key(&b->mem, s->path, s->offset);
    if (!key) return diag_nomem(d);
    uint32_t k;
    if (str_map_get(&b->index, key, strlen(key), &k)) {
        const record *r = &b->records.at[k];
        arena_back(&b->mem, m);
        if (r->dt == s->dt && r->bytes == s->bytes) return AN_OK;
        return diag_fail(d, AN_INPUT, NOWHERE, "%.120s: the record at %llu is used as two different types", s->path,
                         (unsigned long long)s->offset);
    }
    record r = { .path = arena_str(&b->mem, s->path), .offset = s->offset, .bytes = s->bytes, .dt = s->dt };
    if (!r.path || !vec_room(&b->mem, &b->records.at, &b->records.cap, b->records.n + 1, sizeof r))
        return diag_nomem(d);
    const void *at;
    TRY(lower_weights_record(files, s->path, s->offset, s->dt, s->bytes, &at, d));
    r.at = at;
    if (!view) {
        if (!(r.own = record_memory(spare, b->records.n, r.bytes))) return diag_nomem(d);
        dev_copy(p, r.own, at, (size_t)r.bytes);
        r.at = r.own;
    }
    b->records.at[b->records.n++] = r;
    return str_map_put(&b->mem, &b->index, key, strlen(key), (uint32_t)b->records.n - 1) ? AN_OK : diag_nomem(d);
}

an_status baked_make(device *dev, const program *p, const dev_weights *w, lower_weights *files, baked *spare,
                     baked **out, diag *d)
{
    *out = NULL;
    baked *b = dev_fault(dev, "weights") ? NULL : calloc(1, sizeof *b);
    an_status st = b ? AN_OK : diag_nomem(d);
    if (b) b->give = *w;
    for (size_t i = 0; i < p->consts.n && !st && !w->record; i++)
        for (int k = 0; k < p->consts.at[i].n_src && !st; k++) {
            const const_source *s = &p->consts.at[i].src[k];
            if (s->path)
                st =
                    dev_fault(dev, "weight record") ? diag_nomem(d) : take(b, dev->pool, s, w->stable, files, spare, d);
        }
    if (!st && w->stable) b->files = files;
    else lower_weights_close(files);
    if (st) baked_free(b);
    else *out = b;
    return st;
}

void baked_free(baked *b)
{
    if (!b) return;
    for (size_t i = 0; i < b->records.n; i++) free(b->records.at[i].own);
    lower_weights_close(b->files);
    arena_free(&b->mem);
    free(b);
}

bool baked_same(const baked *a, const baked *b)
{
    if (a->records.n != b->records.n) return false;
    for (size_t i = 0; i < a->records.n; i++) {
        const record *x = &a->records.at[i], *y = &b->records.at[i];
        if (x->bytes != y->bytes || (x->bytes && memcmp(x->at, y->at, (size_t)x->bytes))) return false;
    }
    return true;
}

static an_status find(void *user, const char *path, uint64_t offset, dtype dt, uint64_t bytes, const unsigned char **at,
                      diag *d)
{
    baked *b = user;
    arena tmp = { 0 };
    const char *key = record_key(&tmp, path, offset);
    uint32_t k = 0;
    bool known = key && str_map_get(&b->index, key, strlen(key), &k);
    arena_free(&tmp);
    if (!key) return diag_nomem(d);
    const record *r = &b->records.at[k];
    if (!known || r->dt != dt || r->bytes != bytes)
        return diag_fail(d, AN_BUG, NOWHERE,
                         "%.120s: the loader asks for a record at %llu that the manifest does not have", path,
                         (unsigned long long)offset);
    *at = r->at;
    return AN_OK;
}

static an_status handed(void *user, const char *path, uint64_t offset, dtype dt, uint64_t bytes,
                        const unsigned char **at, diag *d)
{
    const baked *b = user;
    const void *p = NULL;
    TRY(b->give.record(b->give.user, path, offset, dt, bytes, &p, d));
    *at = p;
    return AN_OK;
}

static void handed_back(void *user, const char *path, uint64_t offset)
{
    const baked *b = user;
    if (b->give.done) b->give.done(b->give.user, path, offset);
}

const void *baked_owner(const baked *b) { return b->give.record ? b->give.user : NULL; }
bool baked_handed(const baked *b) { return b->give.record != NULL; }

weight_source baked_source(baked *b)
{
    if (baked_handed(b)) return (weight_source){ .user = b, .record = handed, .done = handed_back };
    return (weight_source){ .user = b, .record = find };
}

/* ---- the records a text names ---- */

typedef void blob_fn(void *user, const mil_lit *l);

static void each_blob_of(const mil_lit *l, blob_fn *fn, void *user)
{
    if (!l) return;
    if (l->kind == ML_LIST || l->kind == ML_DICT) {
        int64_t n = l->kind == ML_DICT ? 2 * l->n : l->n;
        for (int64_t i = 0; i < n; i++) each_blob_of(l->item[i], fn, user);
    }
    if (l->kind == ML_BLOB) fn(user, l);
}

static void each_blob_in(const mil_block *b, blob_fn *fn, void *user)
{
    for (size_t i = 0; i < b->n_op; i++) {
        const mil_op *op = &b->op[i];
        for (int k = 0; k < op->n_attr; k++) each_blob_of(op->attr[k].lit, fn, user);
        for (int k = 0; k < op->n_arg; k++)
            for (int j = 0; j < op->arg[k].n; j++) each_blob_of(op->arg[k].item[j].lit, fn, user);
        for (int k = 0; k < op->n_block; k++) each_blob_in(&op->block[k], fn, user);
    }
}

static void each_blob(const mil_module *m, blob_fn *fn, void *user)
{
    for (size_t i = 0; i < m->n_func; i++) each_blob_in(&m->func[i], fn, user);
}

static bool blob_bytes(const mil_lit *l, size_t *bytes)
{
    int64_t n = 1;
    bool ok = l->type->kind == MT_TENSOR;
    for (int i = 0; ok && i < l->type->rank; i++) ok = l->type->dim[i] >= 0 && mul_i64(n, l->type->dim[i], &n);
    return ok && dtype_bytes(l->type->dt, n, bytes);
}

/* ---- identity ---- */

typedef struct {
    lower_weights *files;
    dev_key key;
    bool ok;
} identity;

static void identify(void *user, const mil_lit *l)
{
    identity *id = user;
    size_t bytes;
    const void *data;
    diag why = { 0 };
    id->ok = id->ok && blob_bytes(l, &bytes) &&
             !lower_weights_record(id->files, l->blob_path, l->blob_offset, l->type->dt, bytes, &data, &why);
    if (!id->ok) return;
    id->key = key_mix(id->key, l->blob_path, strlen(l->blob_path));
    id->key = key_mix(id->key, &l->blob_offset, sizeof l->blob_offset);
    id->key = key_mix(id->key, data, bytes);
}

bool weights_identity(const mil_module *m, lower_weights *files, dev_key *key)
{
    identity id = { .files = files, .key = *key, .ok = true };
    each_blob(m, identify, &id);
    *key = id.key;
    return id.ok;
}

an_status weights_checksum(const program *g, lower_weights *files, uint64_t *sum, diag *d)
{
    uint64_t h = g->consts.n;
    for (size_t i = 0; i < g->consts.n; i++)
        for (int k = 0; k < g->consts.at[i].n_src; k++) {
            const const_source *s = &g->consts.at[i].src[k];
            const void *at;
            if (!s->path) continue;
            TRY(lower_weights_record(files, s->path, s->offset, s->dt, s->bytes, &at, d));
            h = hash_many(at, (size_t)s->bytes, h);
        }
    *sum = h ? h : 1;
    return AN_OK;
}

/* ---- does a program read what the text names, and nothing else? ---- */

typedef struct {
    arena mem;
    str_map index; /* path and offset -> place in lit */
    VEC(const mil_lit *) lit;
    bool ok;
} named;

static void note(void *user, const mil_lit *l)
{
    named *n = user;
    const char *key = n->ok ? record_key(&n->mem, l->blob_path, l->blob_offset) : NULL;
    n->ok =
        key && str_map_put(&n->mem, &n->index, key, strlen(key), (uint32_t)n->lit.n) && VEC_PUSH(&n->mem, &n->lit, l);
}

static bool names(named *n, const const_source *s)
{
    arena_mark m = arena_save(&n->mem);
    const char *key = record_key(&n->mem, s->path, s->offset);
    uint32_t i;
    size_t bytes;
    bool ok = key && str_map_get(&n->index, key, strlen(key), &i) && n->lit.at[i]->type->dt == s->dt &&
              blob_bytes(n->lit.at[i], &bytes) && bytes == s->bytes;
    arena_back(&n->mem, m);
    return ok;
}

bool weights_named(const program *g, const mil_module *m)
{
    named n = { .ok = true };
    each_blob(m, note, &n);
    for (size_t i = 0; n.ok && i < g->consts.n; i++)
        for (int k = 0; n.ok && k < g->consts.at[i].n_src; k++)
            if (g->consts.at[i].src[k].path) n.ok = names(&n, &g->consts.at[i].src[k]);
    arena_free(&n.mem);
    return n.ok;
}
