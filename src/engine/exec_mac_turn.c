/* exec_mac_turn.c: products by a constant matrix that only moves rows: one element of every row is 1 or -1, the
 * others are 0, as in the turn of rotary positions. In: such a matrix, B.  Out: rows of B in another order, some
 * with the other sign.
 *
 * That is what the product gives as long as B is finite, without its rounding of operands and at the speed of a
 * copy. What B holds in a row that is not a number stays in that row; the product would spread it over all of them. */
#include <string.h>

#include "engine/exec_mac_int.h"

enum { MOST_ROWS = 1024 };

struct mac_turn {
    bool holds; /* the matrix is one: it may be loaded anew */
    struct turned_row {
        int32_t from;
        float sign; /* all 0 where it is none */
    } row[];
};

static bool read_matrix(const mac *m, const float *a, struct turned_row *row)
{
    for (int64_t i = 0; i < m->m; i++) {
        int found = 0;
        for (int64_t k = 0; k < m->k; k++) {
            const float x = a[i * m->a_row + k * m->a_col];
            if (x == 0) continue;
            if ((x != 1 && x != -1) || found++) return false;
            row[i] = (struct turned_row){ (int32_t)k, x };
        }
        if (!found) return false;
    }
    return true;
}

void mac_turn_again(image *im, mac *m)
{
    mac_turn *t = m->turn;
    if (!t) return;
    t->holds = read_matrix(m, (const float *)(const void *)im->mem[m->a_tensor] + m->pack_off[0], t->row);
    if (!t->holds) memset(t->row, 0, (size_t)m->m * sizeof *t->row);
}

an_status mac_turn_make(image *im, mac *m, diag *d)
{
    if (!mac_is_const(im, m->a_tensor) || m->env->chip || m->vec || m->i8 || m->a_own || m->turned || m->straight ||
        m->packs != 1)
        return AN_OK;
    if (m->a_type != DT_F32 || m->b_type != DT_F32 || m->m > MOST_ROWS || m->k > MOST_ROWS || gemm_few(m->g, m->n))
        return AN_OK;
    TRY(const_ready(im, m->a_tensor, d));
    mac_turn *t = arena_take(&im->prepared, 1, sizeof *t + (size_t)m->m * sizeof *t->row, 64);
    if (!t) return diag_nomem(d);
    m->turn = t;
    mac_turn_again(im, m);
    return panel_note(im, t->row, (size_t)m->m * sizeof *t->row, d);
}

bool mac_turn_holds(const mac *m) { return m->turn && m->turn->holds; }

void mac_turn_rows(const product *p)
{
    const mac *m = p->m;
    const float *b = (const float *)(const void *)p->b, minus = -1;
    for (int64_t i = 0; i < m->m; i++) {
        const struct turned_row *r = &m->turn->row[i];
        float *to = p->sums + i * p->nc;
        const float *from = b + r->from * p->b_row;
        if (r->sign > 0) memcpy(to, from, sizeof *to * (size_t)p->nc);
        else m->env->v->fn[VF_MUL_P](to, from, NULL, NULL, &minus, p->nc);
    }
}
