/* active.c: which ids a model may answer with, where a run trained part of a vocabulary.
 * In: a list of ids, from a run or from the file beside the weights.  Out: a byte per id. */
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
            return diag_fail(d, AN_INPUT, NOWHERE, "%.150s: entry %zu of its list of tokens is %u; the vocabulary has %lld", m->path, i, ids[i], (long long)m->c.vocab);
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

an_status active_write(const lm_model *m, const char *folder, diag *d)
{
    strbuf path = { 0 };
    tok_ids ids = { 0 };
    bool ok = true;
    if (!m->active) return AN_OK;
    sb_printf(&path, "%s/" LM_ACTIVE_FILE, folder);
    for (int64_t i = 0; i < m->c.vocab && ok; i++) ok = !m->active[i] || tok_ids_push(&ids, (uint32_t)i);
    an_status st = ok && !path.oom ? shard_write(path.at, ids.at, ids.n, d) : diag_nomem(d);
    tok_ids_free(&ids);
    sb_free(&path);
    return st;
}
