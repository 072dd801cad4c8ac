/* samples.c: programs that compilers were seen to write, from their parameters.
 * In: a name.  Out: the program: tasks from layers, weights packed, tensors in slots.
 *
 * The first seven are public files (compiler 4.2.1), which come out byte for byte once they are given their ident
 * text and kernel names, neither of which follows from anything. The last two are published only in parts: sizes,
 * addresses and words. They have the tasks and buffers that are described, but how their engine passes turn a row
 * into channels and back is not, so they are not for running. */
#include "hwx/hwx_int.h"

enum { TENSORS = 3, LAYERS = 3, SCRATCH0 = -1, SCRATCH1 = -2 };
enum { SAME, IDENTITY };

typedef struct {
    const char *name, *form, *procedure;
    struct {
        const char *name;
        hwx_side side;
        int64_t c, h, w;
    } tensor[TENSORS];
    hwx_layer layer[LAYERS]; /* slots: number of the tensor, or SCRATCH0, SCRATCH1 */
    int n_layers;
    int fill;                /* weights: all `value`, or `value` on the diagonal */
    uint16_t value;
    bool table;
    int64_t scratch[2];      /* bytes */
    bool debug, note;
} sample;

#define CONV1 .kind = HWX_CONV, .conv = { .kw = 1, .kh = 1, .sx = 1, .sy = 1 }
#define PAIR(c, h, w) { { "image", HWX_INPUT, c, h, w }, { "probs@output", HWX_OUTPUT, c, h, w } }

static const sample samples[] = {
    { "conv", "4.2.1", "net", PAIR(3, 1, 1), { { CONV1, .c = 3, .h = 1, .w = 1, .cout = 3, .hout = 1, .wout = 1, .src = 0, .dst = 1 } }, 1, SAME, 0x4000, .table = false },
    { "golden", "4.2.1", "net", PAIR(3, 1, 1), { { CONV1, .c = 3, .h = 1, .w = 1, .cout = 3, .hout = 1, .wout = 1, .src = 0, .dst = 1 } }, 1, SAME, 0x4200, .table = false },
    { "gemm", "4.2.1", "net", PAIR(512, 1, 1), { { CONV1, .c = 512, .h = 1, .w = 1, .cout = 512, .hout = 1, .wout = 1, .src = 0, .dst = 1 } }, 1, SAME, 0, .table = false },
    { "relu", "4.2.1", "net", PAIR(1, 1, 77), { { .kind = HWX_PASS, .nonlinear = HWX_RELU, .c = 1, .h = 1, .w = 77, .src = 0, .dst = 1 } }, 1, SAME, 0, .table = false },
    { "sigmoid", "4.2.1", "net", PAIR(1, 1, 77), { { .kind = HWX_PASS, .nonlinear = HWX_TABLE, .c = 1, .h = 1, .w = 77, .src = 0, .dst = 1 } }, 1, SAME, 0, .table = true },
    { "sum", "4.2.1", "net", { { "image2", HWX_INPUT, 64, 1, 1 }, { "image", HWX_INPUT, 64, 1, 1 }, { "probs@output", HWX_OUTPUT, 64, 1, 1 } },
      { { .kind = HWX_PLANAR, .two = true, .op = HWX_ADD, .c = 64, .h = 1, .w = 1, .src = 1, .src2 = 0, .dst = 2, .keep_padding = true } }, 1, SAME, 0, .table = false },
    { "concat", "4.2.1", "net", { { "input_1", HWX_INPUT, 16, 1, 1 }, { "input_0", HWX_INPUT, 16384, 1, 1 }, { "output@output", HWX_OUTPUT, 16400, 1, 1 } },
      { { .kind = HWX_PASS, .c = 16384, .h = 1, .w = 1, .src = 1, .dst = 2, .dst_channels = 16400 }, { .kind = HWX_PASS, .c = 16, .h = 1, .w = 1, .src = 0, .dst = 2, .dst_base = 0x100000, .dst_channels = 16400 } },
      2, SAME, 0, .table = false },
    /* a row of 64 times a 64 by 64 identity: a change of layout, then the product */
    { "identity", "26", "main", { { "t0", HWX_INPUT, 1, 1, 64 }, { "t2@output", HWX_OUTPUT, 1, 1, 64 } },
      { { .kind = HWX_PASS, .c = 1, .h = 1, .w = 64, .src = 0, .dst = SCRATCH0 }, { CONV1, .c = 64, .h = 1, .w = 1, .cout = 64, .hout = 1, .wout = 1, .src = SCRATCH0, .dst = 1 } },
      2, IDENTITY, 0x3c00, .scratch = { 0x1000, 0 }, .debug = true, .note = true },
    /* a 3 by 3 convolution, a mean, a product with four results */
    { "reduced", "26", "main_ane", { { "t0_ane", HWX_INPUT, 8, 16, 16 }, { "t5_ane@output", HWX_OUTPUT, 1, 1, 4 } },
      { { .kind = HWX_CONV, .conv = { .kw = 3, .kh = 3, .sx = 1, .sy = 1, .px = 1, .py = 1 }, .c = 8, .h = 16, .w = 16, .cout = 8, .hout = 16, .wout = 16, .src = 0, .dst = SCRATCH0 },
        { .kind = HWX_REDUCE, .op = HWX_MEAN, .c = 8, .h = 16, .w = 16, .src = SCRATCH0, .dst = SCRATCH1 },
        { CONV1, .c = 8, .h = 1, .w = 1, .cout = 4, .hout = 1, .wout = 1, .src = SCRATCH1, .dst = 1 } },
      3, SAME, 0x3c00, .scratch = { 0x2000, 0x2000 } },
};

size_t hwx_sample_count(void) { return COUNT(samples); }
const char *hwx_sample_name(size_t i) { return samples[i].name; }

static int slot_of(const hwx_tensor *tensor, int what)
{
    return what == SCRATCH0 ? HWX_SLOT_SCRATCH0 : what == SCRATCH1 ? HWX_SLOT_SCRATCH1 : tensor[what].slot;
}

/* Weights of one convolution behind those that are there. */
static an_status pack_layer(arena *a, const sample *s, const hwx_layer *l, strbuf *kernel, hwx_streams *st, diag *d)
{
    hwx_weights shape = { .cout = l->cout, .cin = l->c, .kh = l->conv.kh, .kw = l->conv.kw, .hin = l->h, .win = l->w };
    size_t per = (size_t)(shape.cin * shape.kh * shape.kw), n = per * (size_t)shape.cout;
    arena_mark m = arena_save(a);
    uint16_t *w = TAKE(a, uint16_t, n);
    if (!w) return diag_nomem(d);
    for (size_t i = 0; i < n; i++) w[i] = s->fill == SAME || i / per == i % per ? s->value : 0;
    an_status status = hwx_pack(&shape, w, NULL, kernel, st, d);
    arena_back(a, m);
    return status;
}

static an_status make_kernel(arena *a, const sample *s, hwx_layer *layer, const uint16_t *table, hwx_streams st[LAYERS],
                             hwx_image *im, diag *d)
{
    strbuf kernel = { 0 };
    an_status status = AN_OK;
    for (int i = 0; i < s->n_layers && !status; i++) {
        if (layer[i].kind == HWX_CONV) status = pack_layer(a, s, &layer[i], &kernel, &st[i], d);
        else if (layer[i].nonlinear == HWX_TABLE) {
            hwx_table_streams(1, (uint32_t)kernel.n, &st[i]);
            hwx_table_put(table, &kernel);
        } else continue;
        layer[i].streams = &st[i];
    }
    if (!status && kernel.oom) status = diag_nomem(d);
    if (!status && kernel.n) {
        unsigned char *p = TAKE(a, unsigned char, kernel.n);
        if (p) memcpy(p, kernel.at, kernel.n), im->kernel = p, im->n_kernel = kernel.n;
        else status = diag_nomem(d);
    }
    sb_free(&kernel);
    return status;
}

static an_status make_text(arena *a, const hwx_layer *layer, size_t n, hwx_image *im, diag *d)
{
    hwx_task *t;
    strbuf text = { 0 };
    TRY(hwx_encode(a, im->form, layer, n, &t, d));
    an_status st = hwx_tasks_write(t, n, &text, d);
    unsigned char *p = st ? NULL : TAKE(a, unsigned char, text.n);
    if (!st && !p) st = diag_nomem(d);
    if (p) memcpy(p, text.at, text.n), im->text = p, im->n_text = text.n, im->first_bytes = t[0].bytes;
    sb_free(&text);
    return st;
}

an_status hwx_sample(arena *a, const char *name, const uint16_t table[HWX_TABLE_WORDS], hwx_image *im, diag *d)
{
    static const unsigned char note[0x28] = "src model info", debug[8];
    const sample *s = samples;
    while (s < samples + COUNT(samples) && strcmp(s->name, name)) s++;
    if (s == samples + COUNT(samples)) return diag_fail(d, AN_USAGE, NOWHERE, "no sample program \"%.40s\"", name);
    if (s->table && !table) return diag_fail(d, AN_USAGE, NOWHERE, "sample program %s needs a table", name);
    *im = (hwx_image){ .form = hwx_form_named(s->form),
                       .subtype = HWX_H13,
                       .procedure = s->procedure,
                       .ident = "ANEC v1\nanneal\n\t-t h13\n",
                       .n_tasks = (uint32_t)s->n_layers };
    hwx_tensor *tensor = TAKE(a, hwx_tensor, TENSORS);
    size_t n = 0;
    if (!tensor) return diag_nomem(d);
    for (; n < TENSORS && s->tensor[n].name; n++)
        tensor[n] = hwx_tensor_of(s->tensor[n].name, s->tensor[n].side, s->tensor[n].c, s->tensor[n].h, s->tensor[n].w);
    hwx_image_place(im, tensor, n);
    for (int i = 0; i < 2; i++) im->scratch[i] = (uint64_t)s->scratch[i];
    if (s->note) im->note = note, im->n_note = sizeof note;
    if (s->debug) im->debug = debug, im->n_debug = sizeof debug;
    hwx_layer layer[LAYERS];
    hwx_streams st[LAYERS];
    for (int i = 0; i < s->n_layers; i++) {
        layer[i] = s->layer[i];
        layer[i].src = slot_of(tensor, s->layer[i].src), layer[i].src2 = slot_of(tensor, s->layer[i].src2),
        layer[i].dst = slot_of(tensor, s->layer[i].dst);
    }
    TRY(make_kernel(a, s, layer, table, st, im, d));
    TRY(make_text(a, layer, (size_t)s->n_layers, im, d));
    return hwx_image_name(a, im, d);
}
