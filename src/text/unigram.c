/* unigram.c: a piece to ids by the best-scored segmentation (Viterbi over a trie of the pieces).
 * A character no piece begins with costs the unknown penalty and becomes its bytes, or the unknown token. */
#include <math.h>
#include <stdlib.h>

#include "text/text_int.h"

an_status unigram_piece(const tokenizer *t, merge_scratch *m, const unsigned char *s, size_t n, tok_ids *out, diag *d)
{
    if (n >= INT32_MAX) return diag_fail(d, AN_INPUT, NOWHERE, "a piece of %zu bytes; at most 2^31-1 are taken", n);
    if (m->cap_best < n + 1) {
        double *p = realloc(m->best, (n + 1) * sizeof *p);
        if (p) m->best = p;
        void *q = realloc(m->back, (n + 1) * sizeof *m->back);
        if (q) m->back = q;
        if (!p || !q) return diag_nomem(d);
        m->cap_best = n + 1;
    }
    for (size_t i = 1; i <= n; i++) m->best[i] = -INFINITY;
    m->best[0] = 0;
    uint32_t cp;
    for (size_t i = 0, len; i < n; i += len) {
        if (!(len = utf8_read(s + i, n - i, &cp))) len = 1;
        bool single = false;
        int32_t node = 0;
        for (size_t k = i; k < n && (node = trie_step(&t->pieces, node, s[k])) >= 0; k++) {
            int32_t id = t->pieces.node[node].value;
            if (id == NO_ID) continue;
            double x = m->best[i] + (double)t->tok[id].score;
            single |= k + 1 - i == len;
            if (x > m->best[k + 1]) m->best[k + 1] = x, m->back[k + 1].from = (uint32_t)i, m->back[k + 1].id = id;
        }
        double x = m->best[i] + t->unk_score;
        if (!single && x > m->best[i + len])
            m->best[i + len] = x, m->back[i + len].from = (uint32_t)i, m->back[i + len].id = NO_ID;
    }
    /* Walk back and turn the links round: at each end of a token, `from` becomes the end of the next. */
    size_t end = n;
    for (size_t at = n; at;) {
        size_t from = m->back[at].from;
        m->back[at].from = (uint32_t)end;
        end = at;
        at = from;
    }
    size_t floor = out->n;
    for (size_t at = 0, to = end; at < n; at = to, to = m->back[to].from) {
        int32_t id = m->back[to].id;
        if (id == NO_ID) TRY(put_unknown(t, s + at, to - at, floor, out, d));
        else if (!tok_ids_push(out, (uint32_t)id)) return diag_nomem(d);
    }
    return AN_OK;
}
