/* trie.c: a byte trie in three flat arrays, built once from sorted strings. A node's edges are adjacent and sorted
 * by byte. */
#include <stdlib.h>

#include "text/text_int.h"

static int by_string(const void *p, const void *q)
{
    const trie_item *a = p, *b = q;
    int c = memcmp(a->s.at, b->s.at, MIN(a->s.n, b->s.n));
    if (c) return c;
    if (a->s.n != b->s.n) return a->s.n < b->s.n ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

typedef struct {
    size_t lo, hi, depth;
    uint32_t node;
} span;

/* Breadth first over ranges of the sorted items, so that a node's edges come out next to each other. */
an_status trie_build(arena *a, trie *t, trie_item *items, size_t n, diag *d)
{
    *t = (trie){ 0 };
    if (n) qsort(items, n, sizeof *items, by_string);
    size_t total = 1;
    for (size_t i = 0; i < n; i++) { /* nodes: bytes not shared with the string before */
        size_t common = 0, most = i ? MIN(items[i].s.n, items[i - 1].s.n) : 0;
        while (common < most && items[i].s.at[common] == items[i - 1].s.at[common]) common++;
        total += items[i].s.n - common;
    }
    if (total > (size_t)1 << 28)
        return diag_fail(d, AN_INPUT, NOWHERE,
                         "a vocabulary with %zu bytes of distinct prefixes; at most 2^28 are taken", total);
    t->node = TAKE(a, trie_node, total);
    t->byte = TAKE(a, unsigned char, total);
    t->to = TAKE(a, uint32_t, total);
    span *queue = malloc(total * sizeof *queue);
    if (!t->node || !t->byte || !t->to || !queue) {
        free(queue);
        return diag_nomem(d);
    }
    size_t head = 0, tail = 0, n_edges = 0;
    t->n_nodes = 1;
    queue[tail++] = (span){ 0, n, 0, 0 };
    while (head < tail) {
        span q = queue[head++];
        trie_node *node = &t->node[q.node];
        *node = (trie_node){ .edges = (uint32_t)n_edges, .value = NO_ID };
        size_t i = q.lo;
        while (i < q.hi && items[i].s.n == q.depth) {
            if (node->value == NO_ID) node->value = items[i].value;
            i++;
        }
        while (i < q.hi) {
            unsigned char b = (unsigned char)items[i].s.at[q.depth];
            size_t from = i;
            while (i < q.hi && (unsigned char)items[i].s.at[q.depth] == b) i++;
            uint32_t child = (uint32_t)t->n_nodes++;
            t->byte[n_edges] = b;
            t->to[n_edges++] = child;
            node->n++;
            if (!q.node) t->starts[b] = true;
            queue[tail++] = (span){ from, i, q.depth + 1, child };
        }
    }
    free(queue);
    return AN_OK;
}

int32_t trie_step(const trie *t, int32_t node, unsigned char b)
{
    const trie_node *x = &t->node[node];
    size_t lo = x->edges, hi = lo + x->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (t->byte[mid] < b) lo = mid + 1;
        else hi = mid;
    }
    return lo < x->edges + (size_t)x->n && t->byte[lo] == b ? (int32_t)t->to[lo] : -1;
}

int32_t trie_longest(const trie *t, const unsigned char *s, size_t n, size_t *len)
{
    int32_t found = NO_ID, node = 0;
    for (size_t i = 0; i < n && (node = trie_step(t, node, s[i])) >= 0; i++)
        if (t->node[node].value != NO_ID) found = t->node[node].value, *len = i + 1;
    return found;
}
