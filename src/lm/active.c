/* active.c: which ids a model may answer with, where a run trained part of a vocabulary. In: a list of ids, from a
 * run, the file beside the weights, or a file's metadata.  Out: a byte per id, or the list in a file again. */
#include <stdlib.h>

#include "lm/lm_int.h"
#include "text/shard.h"

const unsigned char *lm_active(const lm_model *m) { return m->active; }

an_status lm_restrict(lm_model *m, const uint32_t *ids, size_t n, diag *d)
{
    if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: no token is left to choose among", m->path);
    unsigned char *may = TAKE(&m->mem, unsigned char, (size_t)m->c.vocab);
    if (!may) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= (uint64_t)m->c.vocab)
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "%.150s: entry %zu of its list of tokens is %u; the vocabulary has %lld", m->path, i,
                             ids[i], (long long)m->c.vocab);
        may[ids[i]] = 1;
    }
    m->active = may;
    return AN_OK;
}

an_status active_read(lm_model *m, const char *path, diag *d)
{
    path_info i;
    shard *s;
    if (!path_look(path, &i) || i.folder) return AN_OK;
    TRY(shard_open(path, (uint32_t)m->c.vocab, &s, d));
    size_t n = (size_t)shard_count(s);
    int32_t *ids = TAKE(&m->mem, int32_t, n);
    an_status st = ids ? shard_read(s, 0, n, ids, d) : diag_nomem(d);
    if (!st) st = lm_restrict(m, (const uint32_t *)ids, n, d); /* below the vocabulary, so never negative */
    shard_close(s);
    return st;
}

static an_status active_ids(const lm_model *m, tok_ids *ids, diag *d)
{
    bool ok = true;
    for (int64_t i = 0; i < m->c.vocab && ok; i++) ok = !m->active[i] || tok_ids_push(ids, (uint32_t)i);
    return ok ? AN_OK : diag_nomem(d);
}

an_status active_write(const lm_model *m, const char *folder, diag *d)
{
    strbuf path = { 0 };
    tok_ids ids = { 0 };
    if (!m->active) return AN_OK;
    sb_printf(&path, "%s/" LM_ACTIVE_FILE, folder);
    an_status st = active_ids(m, &ids, d);
    if (!st) st = path.oom ? diag_nomem(d) : shard_write(path.at, ids.at, ids.n, d);
    tok_ids_free(&ids);
    sb_free(&path);
    return st;
}

/* ---- in metadata ---- */

an_status active_to_gguf(const lm_model *m, gguf_out *w, diag *d)
{
    tok_ids ids = { 0 };
    if (!m->active) return AN_OK;
    an_status st = active_ids(m, &ids, d);
    if (!st) st = gguf_put_array(w, LM_ACTIVE_KEY, GGUF_U32, ids.at, ids.n, d);
    tok_ids_free(&ids);
    return st;
}

an_status active_from_gguf(lm_model *m, diag *d)
{
    const gguf_value *v = gguf_get(m->gg, LM_ACTIVE_KEY);
    if (!v) return AN_OK;
    if (v->type != GGUF_ARRAY || v->of != GGUF_U32)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: " LM_ACTIVE_KEY " is no array of uint32", m->path);
    uint32_t *ids = TAKE(&m->mem, uint32_t, (size_t)v->n + 1);
    if (!ids) return diag_nomem(d);
    for (uint64_t i = 0; i < v->n; i++) {
        double x = 0;
        ids[i] = gguf_item(v, i, &x) ? (uint32_t)x : UINT32_MAX;
    }
    return lm_restrict(m, ids, (size_t)v->n, d);
}

an_status active_to_meta(const lm_model *m, safetensors_out *w, diag *d)
{
    strbuf text = { 0 };
    if (!m->active) return AN_OK;
    for (int64_t i = 0; i < m->c.vocab; i++)
        if (m->active[i]) sb_printf(&text, "%s%lld", text.n ? " " : "", (long long)i);
    an_status st = text.oom ? diag_nomem(d) : safetensors_put_meta(w, LM_ACTIVE_KEY, text.at, d);
    sb_free(&text);
    return st;
}

an_status active_from_meta(lm_model *m, diag *d)
{
    const char *s = safetensors_meta(m->st, LM_ACTIVE_KEY);
    tok_ids ids = { 0 };
    an_status st = AN_OK;
    if (!s) return AN_OK;
    while (*s && !st) {
        char *end;
        unsigned long id = strtoul(s, &end, 10);
        if (end == s || (*end && *end != ' ') || *s == '-')
            st = diag_fail(d, AN_INPUT, NOWHERE,
                           "%.150s: metadata " LM_ACTIVE_KEY " is no list of numbers at \"%.20s\"", m->path, s);
        else if (!tok_ids_push(&ids, id > UINT32_MAX ? UINT32_MAX : (uint32_t)id)) st = diag_nomem(d);
        s = *end ? end + 1 : end;
    }
    if (!st) st = lm_restrict(m, ids.at, ids.n, d);
    tok_ids_free(&ids);
    return st;
}
