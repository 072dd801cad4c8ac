/* exec_mac_join.c: products of one B that come one after the other (queries, keys and values of one norm), few
 * columns: one parallel region. In: a product, and the one just before it.  Out: the first of a group sums for all,
 * each takes its own through its chain in its turn.
 *
 * A region of its own costs a small weight as much as reading a good part of it does. Sums wait behind all the work
 * memory those before them use: the results' own memory may still hold something else until their turn. */
#include "engine/exec_mac_int.h"

_Static_assert((int)MAC_JOINED <= (int)GEMV_PARTS && (int)MAC_JOINED <= (int)GEMM_MORE + 1, "a group is one call");

bool mac_can_join(const image *im, const mac *before, const mac *m)
{
    const mac *first = before->first ? before->first : before;
    if (m->env->chip || first->n_after + 1 >= MAC_JOINED || !mac_is_const(im, m->a_tensor) ||
        !mac_is_const(im, first->a_tensor))
        return false;
    if (m->vec || first->vec) return m->vec && first->vec && mac_vec_alike(first, m);
    return m->g == first->g && gemm_few(m->g, m->n);
}

void mac_join(image *im, mac *before, mac *m)
{
    mac *first = before->first ? before->first : before;
    if (!first->n_after) first->end = first->extent;
    m->at_sums = ROUND_UP(MAX(first->end, m->extent), (size_t)64);
    first->end = m->at_sums + (size_t)(m->m * m->n) * sizeof(float);
    exec_need_work(im, first->end);
    m->first = first;
    first->after[first->n_after++] = m;
}
