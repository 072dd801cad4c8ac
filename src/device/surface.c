/* surface.c: buffers that the host and the device share, and how tensors lie in them. In: sizes and bytes of the
 * caller.  Out: memory the dispatches of queue.c read and write. A surface is flat: its shape lives in the program.
 * On the in-memory route a tensor lies packed from byte 0 however large the surface is; the container layout (limit
 * row_bytes) pads every row instead. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "base/big.h"
#include "device/device_int.h"

enum { SURFACE_ALIGN = 64 };

static uint64_t window_bytes(const device *dev, uint64_t bytes)
{
    uint64_t page = (uint64_t)dev->lim.page_bytes;
    return page && bytes <= UINT64_MAX - page ? ROUND_UP(bytes, page) : bytes;
}

an_status dev_surface_new(device *dev, uint64_t bytes, dev_surface **out, diag *d)
{
    *out = NULL;
    if (!bytes)
        return dev_refuse(dev, ERR_BAD_ARG, NOWHERE, d, "a surface of 0 bytes was asked for; at least 1 is wanted");
    uint64_t window = window_bytes(dev, bytes), held;
    pthread_mutex_lock(&dev->mu);
    bool fits = dev_fits(dev, window, &held);
    if (fits) dev->st.surface_bytes += window;
    pthread_mutex_unlock(&dev->mu);
    if (!fits)
        return dev_refuse(dev, ERR_NO_MEMORY, NOWHERE, d,
                          "a surface of %llu bytes was asked for; %llu of the %llu the device addresses are taken",
                          (unsigned long long)bytes, (unsigned long long)held,
                          (unsigned long long)dev->lim.window_bytes);
    dev_surface *s = dev_fault(dev, "surface") ? NULL : calloc(1, sizeof *s);
    void *at = NULL, *block = NULL;
    if (s && (dev_fault(dev, "surface memory") || bytes > SIZE_MAX / 2 ||
              !(at = big_zeroed(SURFACE_ALIGN, (size_t)bytes, &block))))
        at = NULL;
    if (!at) {
        free(s);
        pthread_mutex_lock(&dev->mu);
        dev->st.surface_bytes -= window;
        pthread_mutex_unlock(&dev->mu);
        return diag_fail(d, AN_NOMEM, NOWHERE, "out of memory: %llu bytes were wanted for a surface",
                         (unsigned long long)bytes);
    }
    *s = (dev_surface){ .dev = dev, .at = at, .block = block, .bytes = bytes, .window = window, .refs = 1 };
    pthread_mutex_lock(&dev->mu);
    LIST_ADD(dev->surfaces, s);
    dev->st.surfaces++;
    pthread_mutex_unlock(&dev->mu);
    *out = s;
    return AN_OK;
}

void surface_ref(dev_surface *s) { s->refs++; }

void surface_unref(dev_surface *s)
{
    if (--s->refs) return;
    LIST_CUT(s->dev->surfaces, s);
    s->dev->st.surfaces--;
    s->dev->st.surface_bytes -= s->window;
    free(s->block);
    free(s);
}

void dev_surface_free(dev_surface *s)
{
    if (!s) return;
    device *dev = s->dev;
    pthread_mutex_lock(&dev->mu);
    surface_unref(s);
    pthread_mutex_unlock(&dev->mu);
}

uint64_t dev_surface_bytes(const dev_surface *s) { return s->bytes; }

an_status dev_surface_lock(dev_surface *s, bool read_only, void **at, diag *d)
{
    device *dev = s->dev;
    *at = NULL;
    pthread_mutex_lock(&dev->mu);
    while (s->queued)
        if (!queue_step(dev)) pthread_cond_wait(&dev->changed, &dev->mu);
    bool twice = s->locked;
    if (!twice) s->locked = true, s->read_only = read_only;
    pthread_mutex_unlock(&dev->mu);
    if (twice) return dev_refuse(dev, ERR_BUSY, NOWHERE, d, "the surface is locked already; unlock it first");
    *at = s->at;
    return AN_OK;
}

static an_status unlock(dev_surface *s, uint64_t touched, diag *d)
{
    device *dev = s->dev;
    pthread_mutex_lock(&dev->mu);
    bool was = s->locked;
    s->locked = false;
    if (was) *(s->read_only ? &dev->st.bytes_from_device : &dev->st.bytes_to_device) += touched;
    pthread_mutex_unlock(&dev->mu);
    return was ? AN_OK : dev_refuse(dev, ERR_BAD_ARG, NOWHERE, d, "the surface is not locked");
}

an_status dev_surface_unlock(dev_surface *s, diag *d) { return unlock(s, s->bytes, d); }

/* What one core copies while another looks on takes twice as long, and the other is wanted right after. */
enum { SHARE_FROM = 128 << 10, PIECE = 32 << 10 };

typedef struct {
    char *to;
    const char *from;
    size_t n;
} copy_job;

static void copy_task(void *ctx, int64_t task, int thread)
{
    const copy_job *j = ctx;
    const size_t at = (size_t)task * PIECE;
    (void)thread;
    memcpy(j->to + at, j->from + at, MIN((size_t)PIECE, j->n - at));
}

void dev_copy(pool *p, void *to, const void *from, size_t n)
{
    copy_job j = { .to = to, .from = from, .n = n };
    if (n >= SHARE_FROM) pool_run(p, copy_task, &j, (int64_t)((n + PIECE - 1) / PIECE));
    else if (n) memcpy(to, from, n);
}

static an_status copy(dev_surface *s, void *out, const void *in, size_t n, diag *d)
{
    if (n > s->bytes)
        return dev_refuse(s->dev, ERR_BAD_ARG, NOWHERE, d, "%zu bytes do not fit a surface of %llu", n,
                          (unsigned long long)s->bytes);
    void *at;
    TRY(dev_surface_lock(s, in == NULL, &at, d));
    dev_copy(s->dev->pool, in ? at : out, in ? in : at, n);
    return unlock(s, n, d);
}

an_status dev_surface_write(dev_surface *s, const void *data, size_t n, diag *d) { return copy(s, NULL, data, n, d); }
an_status dev_surface_read(dev_surface *s, void *data, size_t n, diag *d) { return copy(s, data, NULL, n, d); }

/* ---- layout ---- */

bool dev_surface_steps(const dev_port *p, int64_t row_bytes, int64_t *step, uint64_t *bytes)
{
    int64_t elem = dtype_bits(p->dt) / 8, size = elem;
    for (int i = p->rank - 1; i >= 0; i--) {
        step[i] = size;
        if (!mul_i64(size, p->dim[i], &size)) return false;
        /* rows, and from there on planes and batches, start at multiples of row_bytes */
        if (row_bytes) {
            if (size > INT64_MAX - row_bytes) return false;
            size = ROUND_UP(size, row_bytes);
        }
    }
    if (!p->rank && row_bytes) size = ROUND_UP(size, row_bytes);
    *bytes = (uint64_t)size;
    return elem > 0;
}

uint64_t surface_need(const device *dev, const dev_port *p)
{
    int64_t step[DEV_MAX_RANK];
    uint64_t bytes;
    if (!dev->lim.row_bytes) return p->bytes;
    return dev_surface_steps(p, dev->lim.row_bytes, step, &bytes) ? bytes : UINT64_MAX;
}

/* Row by row between the two forms; one of the pointers is written. */
static void walk(const dev_port *p, int64_t row_bytes, unsigned char *rows, unsigned char *packed, bool to_packed)
{
    int64_t step[DEV_MAX_RANK] = { 0 }, at[DEV_MAX_RANK] = { 0 }, n_rows = 1;
    uint64_t total;
    if (!dev_surface_steps(p, row_bytes, step, &total)) return;
    int last = p->rank - 1;
    size_t n = (size_t)(dtype_bits(p->dt) / 8) * (size_t)(p->rank ? p->dim[last] : 1);
    for (int i = 0; i < last; i++) n_rows *= p->dim[i];
    for (int64_t k = 0; k < n_rows; k++) {
        int64_t off = 0;
        for (int i = 0; i < last; i++) off += at[i] * step[i];
        unsigned char *r = rows + off, *q = packed + (size_t)k * n;
        memcpy(to_packed ? q : r, to_packed ? r : q, n);
        for (int i = last - 1; i >= 0 && ++at[i] == p->dim[i]; i--) at[i] = 0;
    }
}

void dev_surface_pack(const dev_port *p, int64_t row_bytes, const void *rows, void *packed)
{
    walk(p, row_bytes, (unsigned char *)(uintptr_t)rows, packed, true);
}

void dev_surface_unpack(const dev_port *p, int64_t row_bytes, const void *packed, void *rows)
{
    walk(p, row_bytes, rows, (unsigned char *)(uintptr_t)packed, false);
}
