/* gemv_panel.c: weights of nibbles that are numbers, in blocks of 32 with fp16 scales, turned ahead of use so that a
 * lane is a row. In: a weight as stored.  Out: panels, and their product where x is not finite.
 *
 * A panel is 32 rows, those past the last zero. Of each block in turn it has two halves of 16 rows, each four
 * vectors of 16 words (word d of the block, eight nibbles, of every row), then the 32 scales. Nibbles are 0 to 15,
 * for -8 to 7 eight more than the number. */
#include "kernel/gemv_int.h"

enum { HALF = 16, WORD = 4 /* bytes */, FEW = 8 /* panels of a task */ };

/* The table says that nibbles are numbers, and which: 0 to 15, or -8 to 7. */
bool gemv_numbers(const gemv_weight *w, bool *zero)
{
    if (w->form != GEMV_NIBBLE || !w->block || w->table_rows < w->m) return false;
    *zero = w->table[8] < 0;
    for (int i = 0; i < 16; i++)
        if (w->table[i] != (float)(*zero && i >= 8 ? i - 16 : i)) return false;
    return true;
}

bool gemv_panel_bytes(const gemv_kernel *g, const gemv_weight *w, size_t *bytes)
{
    bool zero;
    if (!g->panel_rows || !gemv_numbers(w, &zero) || w->block != PANEL_BLOCK || w->scale_type != DT_F16 || w->shift ||
        w->m < 1)
        return false;
    int64_t panels = (w->m - 1) / PANEL_ROWS + 1, all;
    if (!mul_i64(panels, w->k / PANEL_BLOCK, &all) || !mul_i64(all, PANEL_BYTES, &all)) return false;
    *bytes = (size_t)all;
    return true;
}

typedef struct {
    const gemv_weight *w;
    unsigned char *to;
    uint32_t flip;
} fill_ctx;

static void fill_panel(const fill_ctx *f, int64_t panel)
{
    const gemv_weight *w = f->w;
    const int64_t blocks = w->k / PANEL_BLOCK, first = panel * PANEL_ROWS, rows = MIN(PANEL_ROWS, w->m - first);
    unsigned char *to = f->to + panel * blocks * PANEL_BYTES;
    if (rows < PANEL_ROWS) memset(to, 0, (size_t)(blocks * PANEL_BYTES));
    for (int64_t b = 0; b < blocks; b++, to += PANEL_BYTES)
        for (int64_t r = 0; r < rows; r++) {
            const unsigned char *from =
                (const unsigned char *)w->w + (first + r) * w->row_bytes + b * (PANEL_BLOCK / 2);
            unsigned char *at = to + r / HALF * (HALF * PANEL_BLOCK / 2) + r % HALF * WORD;
            for (int d = 0; d < PANEL_BLOCK / 8; d++, at += HALF * WORD) {
                uint32_t word;
                memcpy(&word, from + d * WORD, WORD);
                word ^= f->flip;
                memcpy(at, &word, WORD);
            }
            memcpy(to + PANEL_SCALES + 2 * r, (const unsigned char *)w->scale + 2 * ((first + r) * blocks + b), 2);
        }
}

static void fill_task(void *ctx, int64_t task, int thread)
{
    const fill_ctx *f = ctx;
    (void)thread;
    for (int64_t p = task * FEW; p < (task + 1) * FEW && p * PANEL_ROWS < f->w->m; p++) fill_panel(f, p);
}

void gemv_panel_fill(pool *threads, const gemv_weight *w, void *to)
{
    bool zero = false;
    (void)gemv_numbers(w, &zero);
    pool_run(threads, fill_task, &(fill_ctx){ .w = w, .to = to, .flip = zero ? 0x88888888 : 0 },
             (w->m - 1) / (FEW * PANEL_ROWS) + 1);
}

/* One by one: a product of zero and infinity is NaN, as anywhere. */
void gemv_panel_plain(const gemv_weight *w, const gemv_columns *x, int64_t n, int64_t i0, int64_t i1, float *y,
                      int64_t ldy)
{
    const int64_t blocks = w->k / PANEL_BLOCK;
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = 0; j < n; j++) {
            const unsigned char *p = (const unsigned char *)w->panels + i / PANEL_ROWS * blocks * PANEL_BYTES;
            const int64_t r = i % PANEL_ROWS;
            const float *v = x->x + j * x->x_stride;
            float sum = 0;
            for (int64_t b = 0; b < blocks; b++, p += PANEL_BYTES, v += PANEL_BLOCK) {
                const unsigned char *at = p + r / HALF * (HALF * PANEL_BLOCK / 2) + r % HALF * WORD;
                float part = 0;
                for (int e = 0; e < PANEL_BLOCK; e++)
                    part += (float)((at[e / 8 * HALF * WORD + e % 8 / 2] >> e % 2 * 4 & 15) - (x->zero ? 8 : 0)) * v[e];
                sum += part * (float)dtype_load(DT_F16, p + PANEL_SCALES, r);
            }
            y[i * ldy + j] = sum;
        }
}
