/* merge.c: a piece to ids by merging neighbours, best rank first, leftmost of equals. BPE ranks pairs by their place
 * in the merge list; SentencePiece's BPE ranks them by the score of the token they make. Short pieces are scanned.
 * Long ones are a linked list, and pairs wait in lists by rank: the merges of a vocabulary were learned in the order
 * of their ranks, so a pair that appears ranks behind the merge that made it, and each list is worked off once, left
 * to right. Where a vocabulary has it otherwise, a heap of pairs takes over: n log n however long a word someone
 * feeds us. */
#include <stdlib.h>

#include "text/text_int.h"

enum { SHORT = 40 };

void merge_free(merge_scratch *m)
{
    free(m->sym);
    free(m->heap);
    free(m->first);
    free(m->item);
    free(m->rank);
    free(m->line);
    free(m->best);
    free(m->back);
    *m = (merge_scratch){ 0 };
}

an_status put_unknown(const tokenizer *t, const unsigned char *s, size_t n, size_t floor, tok_ids *out, diag *d)
{
    if (t->byte_fallback) {
        for (size_t i = 0; i < n; i++)
            if (!tok_ids_push(out, (uint32_t)t->byte_id[s[i]])) return diag_nomem(d);
        return AN_OK;
    }
    if (t->unk < 0) {
        char hex[16];
        for (size_t i = 0; i < n && i < 4; i++) snprintf(hex + 3 * i, sizeof hex - 3 * i, "%02x ", s[i]);
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "the vocabulary has no token for the bytes %.*s, and none for what it does not know",
                         (int)MIN(n * 3, (size_t)12) - 1, hex);
    }
    if (t->fuse_unk && out->n > floor && out->at[out->n - 1] == (uint32_t)t->unk) return AN_OK;
    return tok_ids_push(out, (uint32_t)t->unk) ? AN_OK : diag_nomem(d);
}

static inline void rank_pair(const tokenizer *t, const unsigned char *s, const symbol *a, const symbol *b,
                             uint32_t *rank, uint32_t *to)
{
    *rank = NO_RANK;
    if (t->model == MODEL_SPM_BPE) {
        int32_t id = piece_id(t, s + a->at, (size_t)a->n + b->n);
        if (id >= 0) *to = (uint32_t)id, *rank = t->prio[id];
    } else if (a->id >= 0 && b->id >= 0) pair_find(t, (uint32_t)a->id, (uint32_t)b->id, rank, to);
}

/* One symbol for each byte or character. A character the vocabulary lacks is its bytes, or stays without an id. */
static size_t first_symbols(const tokenizer *t, const unsigned char *s, size_t n, symbol *sym)
{
    size_t k = 0;
    if (t->model == MODEL_BYTE_BPE) {
        for (; k < n; k++) sym[k] = (symbol){ .at = (uint32_t)k, .n = 1, .id = t->byte_id[s[k]] };
        return k;
    }
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;
        if (!(len = utf8_read(s + i, n - i, &cp))) len = 1;
        int32_t id = piece_id(t, s + i, len);
        if (id < 0 && t->byte_fallback && t->model == MODEL_CHAR_BPE)
            for (size_t b = 0; b < len; b++)
                sym[k++] = (symbol){ .at = (uint32_t)(i + b), .n = 1, .id = t->byte_id[s[i + b]] };
        else sym[k++] = (symbol){ .at = (uint32_t)i, .n = (uint32_t)len, .id = id };
    }
    return k;
}

static size_t merge_short(const tokenizer *t, const unsigned char *s, symbol *sym, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) rank_pair(t, s, &sym[i], &sym[i + 1], &sym[i].rank, &sym[i].to);
    for (;;) {
        size_t best = 0;
        uint32_t rank = NO_RANK;
        for (size_t i = 0; i + 1 < n; i++)
            if (sym[i].rank < rank) rank = sym[i].rank, best = i;
        if (rank == NO_RANK) return n;
        sym[best].id = (int32_t)sym[best].to;
        sym[best].n += sym[best + 1].n;
        memmove(&sym[best + 1], &sym[best + 2], (n - best - 2) * sizeof *sym);
        n--;
        if (best + 1 < n) rank_pair(t, s, &sym[best], &sym[best + 1], &sym[best].rank, &sym[best].to);
        else sym[best].rank = NO_RANK;
        if (best) rank_pair(t, s, &sym[best - 1], &sym[best], &sym[best - 1].rank, &sym[best - 1].to);
    }
}

/* ---- long pieces ---- */

static bool heap_push(merge_scratch *m, heap_item x)
{
    if (m->n_heap == m->cap_heap) {
        size_t cap = MAX(m->cap_heap * 2, (size_t)1024);
        heap_item *p = realloc(m->heap, cap * sizeof *p);
        if (!p) return false;
        m->heap = p;
        m->cap_heap = cap;
    }
    size_t i = m->n_heap++;
    for (; i && m->heap[(i - 1) / 2].key > x.key; i = (i - 1) / 2) m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = x;
    return true;
}

static heap_item heap_pop(merge_scratch *m)
{
    heap_item top = m->heap[0], x = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < m->n_heap; i = k) {
        if (k + 1 < m->n_heap && m->heap[k + 1].key < m->heap[k].key) k++;
        if (m->heap[k].key >= x.key) break;
        m->heap[i] = m->heap[k];
    }
    if (m->n_heap) m->heap[i] = x;
    return top;
}

static bool offer(const tokenizer *t, merge_scratch *m, const unsigned char *s, int32_t left, int32_t right)
{
    uint32_t rank, to = 0;
    if (left < 0 || right < 0) return true;
    rank_pair(t, s, &m->sym[left], &m->sym[right], &rank, &to);
    if (rank == NO_RANK) return true;
    return heap_push(m, (heap_item){ .key = (uint64_t)rank << 32 | (uint32_t)left,
                                     .right = (uint32_t)right,
                                     .size = m->sym[left].n + m->sym[right].n,
                                     .to = to });
}

/* All pairs there are into the heap, then best first. */
static an_status merge_heap(const tokenizer *t, merge_scratch *m, const unsigned char *s, diag *d)
{
    symbol *sym = m->sym;
    m->n_heap = 0;
    for (int32_t i = 0; sym[i].next >= 0; i = sym[i].next)
        if (!offer(t, m, s, i, sym[i].next)) return diag_nomem(d);
    while (m->n_heap) {
        heap_item x = heap_pop(m);
        symbol *a = &sym[(uint32_t)x.key], *b = &sym[x.right];
        /* Stale when either side has merged since: its length changed, or it is gone. */
        if (!a->n || !b->n || a->next != (int32_t)x.right || a->n + b->n != x.size) continue;
        a->n += b->n;
        a->id = (int32_t)x.to;
        b->n = 0;
        a->next = b->next;
        if (b->next >= 0) sym[b->next].prev = (int32_t)(uint32_t)x.key;
        if (!offer(t, m, s, a->prev, (int32_t)(uint32_t)x.key) || !offer(t, m, s, (int32_t)(uint32_t)x.key, a->next))
            return diag_nomem(d);
    }
    return AN_OK;
}

/* ---- lists by rank ---- */

enum { NO_ITEM = -1 };

/* The array with room for element n; NULL: no memory, and it is as it was. */
static void *grown(void *at, size_t *cap, size_t n, size_t size)
{
    if (n < *cap) return at;
    size_t more = MAX(MAX(*cap * 2, n + 1), (size_t)1024);
    void *p = more < SIZE_MAX / size ? realloc(at, more * size) : NULL;
    if (p) *cap = more;
    return p;
}
#define GROWN(array, cap, n) grown((array), (cap), (n), sizeof *(array))

static bool rank_push(merge_scratch *m, uint32_t r)
{
    uint32_t *p = GROWN(m->rank, &m->cap_rank, m->n_rank);
    if (!p) return false;
    m->rank = p;
    size_t i = m->n_rank++;
    for (; i && m->rank[(i - 1) / 2] > r; i = (i - 1) / 2) m->rank[i] = m->rank[(i - 1) / 2];
    m->rank[i] = r;
    return true;
}

static uint32_t rank_pop(merge_scratch *m)
{
    uint32_t top = m->rank[0], x = m->rank[--m->n_rank];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < m->n_rank; i = k) {
        if (k + 1 < m->n_rank && m->rank[k + 1] < m->rank[k]) k++;
        if (m->rank[k] >= x) break;
        m->rank[i] = m->rank[k];
    }
    if (m->n_rank) m->rank[i] = x;
    return top;
}

/* The pair that begins at symbol i, into the list of its rank, which the symbol remembers: what waits under another
 * rank is stale. */
static bool wait_for(const tokenizer *t, merge_scratch *m, const unsigned char *s, int32_t i)
{
    symbol *a = &m->sym[i];
    a->rank = NO_RANK;
    if (a->next < 0) return true;
    rank_pair(t, s, a, &m->sym[a->next], &a->rank, &a->to);
    if (a->rank == NO_RANK) return true;
    if (a->rank >= m->cap_first) {
        size_t had = m->cap_first;
        uint32_t *p = GROWN(m->first, &m->cap_first, a->rank);
        if (!p) return false;
        for (m->first = p; had < m->cap_first; had++) m->first[had] = (uint32_t)NO_ITEM;
    }
    uint32_t k = m->spare;
    if (k != (uint32_t)NO_ITEM) m->spare = m->item[k].next;
    else {
        void *p = GROWN(m->item, &m->cap_item, m->n_item);
        if (!p) return false;
        m->item = p;
        k = (uint32_t)m->n_item++;
    }
    uint32_t *first = &m->first[a->rank];
    if (*first == (uint32_t)NO_ITEM && !rank_push(m, a->rank)) return false;
    m->item[k].at = (uint32_t)i, m->item[k].next = *first;
    *first = k;
    return true;
}

static int by_place(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The list of a rank as a line, left to right; it is empty then. */
static bool take_line(merge_scratch *m, uint32_t r, size_t *n)
{
    bool down = true;
    uint32_t k = m->first[r];
    m->first[r] = (uint32_t)NO_ITEM;
    *n = 0;
    for (uint32_t next; k != (uint32_t)NO_ITEM; k = next) {
        uint32_t *p = GROWN(m->line, &m->cap_line, *n);
        if (!p) return false;
        m->line = p;
        m->line[(*n)++] = m->item[k].at;
        down &= *n < 2 || m->line[*n - 1] < m->line[*n - 2];
        next = m->item[k].next;
        m->item[k].next = m->spare;
        m->spare = k;
    }
    if (!down) qsort(m->line, *n, sizeof *m->line, by_place);
    for (size_t i = 0; down && i < *n / 2; i++) {
        uint32_t x = m->line[i];
        m->line[i] = m->line[*n - 1 - i], m->line[*n - 1 - i] = x;
    }
    return true;
}

/* *ahead: a pair appeared that ranks before the merge that made it; the rest is for the heap. */
static an_status merge_ranks(const tokenizer *t, merge_scratch *m, const unsigned char *s, size_t n, bool *ahead,
                             diag *d)
{
    symbol *sym = m->sym;
    m->n_item = m->n_rank = 0, m->spare = (uint32_t)NO_ITEM;
    for (size_t i = 0; i < n; i++)
        if (!wait_for(t, m, s, (int32_t)i)) return diag_nomem(d);
    while (m->n_rank && !*ahead) {
        uint32_t r = rank_pop(m);
        size_t count;
        if (!take_line(m, r, &count)) return diag_nomem(d);
        for (size_t i = 0; i < count && !*ahead; i++) {
            int32_t at = (int32_t)m->line[i];
            symbol *a = &sym[at];
            if (!a->n || a->rank != r) continue;
            symbol *b = &sym[a->next];
            a->n += b->n;
            a->id = (int32_t)a->to;
            b->n = 0;
            a->next = b->next;
            if (b->next >= 0) sym[b->next].prev = at;
            if (!wait_for(t, m, s, at) || (a->prev >= 0 && !wait_for(t, m, s, a->prev))) return diag_nomem(d);
            *ahead = a->rank <= r || (a->prev >= 0 && sym[a->prev].rank <= r);
        }
    }
    return AN_OK;
}

static an_status merge_long(const tokenizer *t, merge_scratch *m, const unsigned char *s, size_t n, diag *d)
{
    bool ahead = false;
    for (size_t i = 0; i < n; i++) m->sym[i].prev = (int32_t)i - 1, m->sym[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    an_status st = merge_ranks(t, m, s, n, &ahead, d);
    if (st || ahead) /* lists left half way are of no use to the next piece */
        for (; m->n_rank; m->n_rank--) m->first[m->rank[m->n_rank - 1]] = (uint32_t)NO_ITEM;
    return !st && ahead ? merge_heap(t, m, s, d) : st;
}

an_status merge_piece(const tokenizer *t, merge_scratch *m, const unsigned char *s, size_t n, tok_ids *out, diag *d)
{
    if (n > INT32_MAX) return diag_fail(d, AN_INPUT, NOWHERE, "a piece of %zu bytes; at most 2^31-1 are taken", n);
    if (m->cap_sym < n) {
        size_t cap = MAX(n, (size_t)256);
        symbol *p = realloc(m->sym, cap * sizeof *p);
        if (!p) return diag_nomem(d);
        m->sym = p;
        m->cap_sym = cap;
    }
    size_t k = first_symbols(t, s, n, m->sym), floor = out->n;
    bool is_short = k <= SHORT;
    if (is_short) k = merge_short(t, s, m->sym, k);
    else TRY(merge_long(t, m, s, k, d));
    for (size_t i = 0; i < k; i++) {
        const symbol *x = &m->sym[i];
        if (!x->n) continue;
        if (x->id < 0) TRY(put_unknown(t, s + x->at, x->n, floor, out, d));
        else if (!tok_ids_push(out, (uint32_t)x->id)) return diag_nomem(d);
    }
    return AN_OK;
}
