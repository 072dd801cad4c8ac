/* image.c: programs made here: tensors, slots, names of kernels; and whether two programs are the same. */
#include "hwx/hwx_int.h"

hwx_tensor hwx_tensor_of(const char *name, hwx_side side, int64_t c, int64_t h, int64_t w)
{
    uint64_t row = ROUND_UP((uint64_t)w * 2, (uint64_t)64), plane = row * (uint64_t)h, batch = plane * (uint64_t)c;
    return (hwx_tensor){ .name = name, .side = side, .type = HWX_FLOAT16,
                         .dim = { 1, (uint32_t)c, (uint32_t)h, (uint32_t)w, 1 }, .batch = batch, .plane = plane,
                         .row = row, .elem = 2, .bytes = batch, .interleave = 1 };
}

void hwx_image_place(hwx_image *im, hwx_tensor *tensor, size_t n)
{
    int slot = HWX_SLOT_TENSOR;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < n; i++)
            if ((tensor[i].side == HWX_INPUT) == (im->form->inputs_first == !pass)) tensor[i].slot = slot++;
    im->tensor = tensor, im->n_tensor = n;
    bool newest = im->form->split;
    im->mark[0] = newest ? 0x17 : im->n_tasks > 1 ? 7 : 0x11;
    im->mark[1] = im->form->binding != HWX_LC_BIND || im->n_tasks > 1 ? 4 : 3;
}

/* K, 64 digits that stand for the content of all streams of a task, and the engine. One stream alone has no engine
 * in its name. */
static const char *stream_name(arena *a, const uint64_t hash[4], unsigned engine, bool alone)
{
    char tail[16] = "";
    if (!alone) snprintf(tail, sizeof tail, "_ne_%u", engine);
    return arena_printf(a, "K%016llX%016llX%016llX%016llX%s", (unsigned long long)hash[0], (unsigned long long)hash[1],
                        (unsigned long long)hash[2], (unsigned long long)hash[3], tail);
}

an_status hwx_image_name(arena *a, hwx_image *im, diag *d)
{
    hwx_task *t;
    size_t n;
    VEC(hwx_kernel_name) v = { 0 };
    TRY(hwx_tasks_read(a, im->text, im->n_text, im->first_bytes, im->n_tasks, &t, &n, d));
    for (size_t i = 0; i < n; i++) {
        uint64_t hash[4] = { i, i + 1, i + 2, i + 3 };
        uint32_t at[HWX_ENGINES], bytes[HWX_ENGINES];
        unsigned used = 0, distinct = 0;
        for (unsigned k = 0; k < HWX_ENGINES; k++) {
            bytes[k] = 0;
            if (!hwx_channel(&t[i], k, &at[k], &bytes[k])) continue;
            if (at[k] > im->n_kernel || bytes[k] > im->n_kernel - at[k])
                return diag_fail(d, AN_INPUT, NOWHERE,
                                 "task %zu, engine %u: kernel bytes 0x%x + 0x%x, but there are 0x%zx", i, k, at[k],
                                 bytes[k], im->n_kernel);
            for (int h = 0; h < 4; h++) hash[h] = hash_bytes(im->kernel + at[k], bytes[k], hash[h]);
            distinct += !used || at[k] != at[k - 1];
            used++;
        }
        for (unsigned k = 0; k < HWX_ENGINES; k++) {
            if (!bytes[k] || (distinct == 1 && k)) continue; /* a table that all engines share is named once */
            const char *name = stream_name(a, hash, k, distinct == 1);
            if (!name || !VEC_PUSH(a, &v, ((hwx_kernel_name){ .name = name, .at = at[k] }))) return diag_nomem(d);
        }
    }
    im->kname = v.at, im->n_kname = v.n;
    return AN_OK;
}

static bool same_bytes(const unsigned char *x, size_t nx, const unsigned char *y, size_t ny)
{
    return nx == ny && (!nx || !memcmp(x, y, nx));
}

static bool same_tensor(const hwx_tensor *x, const hwx_tensor *y)
{
    return !strcmp(x->name, y->name) && x->side == y->side && x->type == y->type &&
           !memcmp(x->dim, y->dim, sizeof x->dim) && x->batch == y->batch && x->plane == y->plane && x->row == y->row &&
           x->elem == y->elem && x->bytes == y->bytes && x->interleave == y->interleave && x->slot == y->slot;
}

bool hwx_image_same(const hwx_image *x, const hwx_image *y, const char **what)
{
    const char *w = NULL;
    if (x->form != y->form) w = "form";
    else if (x->subtype != y->subtype) w = "chip generation";
    else if (strcmp(x->procedure, y->procedure)) w = "procedure";
    else if (strcmp(x->ident, y->ident)) w = "ident text";
    else if (!same_bytes(x->note, x->n_note, y->note, y->n_note)) w = "note";
    else if (!same_bytes(x->text, x->n_text, y->text, y->n_text) || x->first_bytes != y->first_bytes ||
             x->n_tasks != y->n_tasks)
        w = "tasks";
    else if (!same_bytes(x->kernel, x->n_kernel, y->kernel, y->n_kernel)) w = "kernel data";
    else if (!same_bytes(x->debug, x->n_debug, y->debug, y->n_debug)) w = "debug section";
    else if (memcmp(x->scratch, y->scratch, sizeof x->scratch)) w = "intermediates";
    else if (memcmp(x->mark, y->mark, sizeof x->mark)) w = "unknown words";
    else if (x->n_tensor != y->n_tensor) w = "number of tensors";
    else if (x->n_kname != y->n_kname) w = "number of kernel names";
    for (size_t i = 0; !w && i < x->n_tensor; i++)
        if (!same_tensor(&x->tensor[i], &y->tensor[i])) w = "tensor";
    for (size_t i = 0; !w && i < x->n_kname; i++)
        if (strcmp(x->kname[i].name, y->kname[i].name) || x->kname[i].at != y->kname[i].at) w = "kernel name";
    if (what) *what = w ? w : "";
    return !w;
}
