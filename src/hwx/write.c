/* write.c: a program as a file, laid out as the form's compiler lays it out. In: hwx_image.  Out: bytes. hwx_read of
 * them gives the image again, and a file that a compiler of that form wrote comes out byte for byte.
 *
 *     header | load commands | symbols | strings | relocations | 0 … | [debug] | tasks | constants | [kernel data]
 *
 * File-backed segments start on pages; addresses count pages from 0x30000000 in the order of the segments. */
#include "hwx/hwx_int.h"

enum { MAX_SEGMENTS = HWX_SLOTS + 8, MAX_SECTIONS = 2 };

typedef struct {
    const char *name;
    uint64_t address, bytes, at, file_bytes;
    uint32_t protection, flags;
    struct part {
        const char *name;
        uint64_t address, bytes, at;
        uint32_t align, flags;
        int number; /* among all sections, from 1 */
        const unsigned char *data; /* NULL: zeros */
    } part[MAX_SECTIONS];
    int n_parts;
} plan_segment;

typedef struct {
    const hwx_image *im;
    strbuf *b;
    diag *d;
    plan_segment seg[MAX_SEGMENTS];
    int n_seg, n_sections;
    plan_segment *text, *kern, *tensor[HWX_SLOTS], *scratch[2];
    arena mem;
    hwx_task *task;
    size_t n_task;
    uint32_t n_relocs, reloc_at;
} writer;

#define BAD(w, ...) diag_fail((w)->d, AN_INPUT, NOWHERE, __VA_ARGS__)

/* ---- plan ---- */

static plan_segment *add_segment(writer *w, const char *name, uint64_t bytes, uint32_t protection, uint32_t flags)
{
    plan_segment *s = &w->seg[w->n_seg++];
    *s = (plan_segment){
        .name = name, .bytes = ROUND_UP(bytes, (uint64_t)HWX_PAGE), .protection = protection, .flags = flags
    };
    return s;
}

static void add_section(writer *w, plan_segment *s, const char *name, uint64_t offset, const unsigned char *data,
                        uint64_t bytes, uint32_t align, uint32_t flags)
{
    s->part[s->n_parts++] = (struct part){ .name = name, .address = offset, .bytes = bytes, .align = align,
                                           .flags = flags, .number = ++w->n_sections, .data = data };
}

static uint64_t last_byte(const hwx_tensor *t)
{
    return (t->dim[0] - 1) * t->batch + (t->dim[1] - 1) * t->plane + (t->dim[2] - 1) * t->row + t->dim[3] * t->elem;
}

static void plan_text(writer *w)
{
    const hwx_image *im = w->im;
    bool split = im->form->split && im->n_kernel;
    uint64_t at = ROUND_UP((uint64_t)im->n_text, HWX_KERNEL_ALIGN),
             bytes = im->n_kernel && !split ? im->n_kernel : HWX_EMPTY_CONST;
    w->text = add_segment(w, "__TEXT", at + bytes, 5, im->n_kernel ? 0 : 4);
    add_section(w, w->text, "__text", 0, im->text, im->n_text, 14, w->n_relocs ? 0x128 : 0x28);
    add_section(w, w->text, "__const", at, split || !im->n_kernel ? NULL : im->kernel, bytes, 6, 0x26);
    w->text->file_bytes = w->text->bytes;
    if (!split) return;
    w->kern = add_segment(w, "__KERN_0", im->n_kernel, 1, 4);
    add_section(w, w->kern, "__kern_0", 0, im->kernel, im->n_kernel, 6, 0x26);
    w->kern->file_bytes = w->kern->bytes;
}

static void plan_segments(writer *w)
{
    const hwx_image *im = w->im;
    add_segment(w, "__PAGEZERO", HWX_PAGE, 0, 4);
    if (im->form->text_first) plan_text(w);
    if (im->n_debug) {
        plan_segment *s = add_segment(w, "__DEBUG", im->n_debug, 0, 4);
        add_section(w, s, "__debug_info", 0, im->debug, im->n_debug, 0, 0);
        s->file_bytes = s->bytes;
    }
    for (int i = 0; i < 2; i++)
        if (im->scratch[i]) {
            w->scratch[i] = add_segment(w, "__DATA", im->scratch[i], 3, 4);
            add_section(w, w->scratch[i], "__bss", 0, NULL, im->scratch[i], 14, 1);
        }
    for (size_t i = 0; i < im->n_tensor; i++) {
        bool in = im->tensor[i].side == HWX_INPUT;
        /* newer files count one element of a batch */
        w->tensor[i] = add_segment(w, "__FVMLIB", MAX(im->tensor[i].bytes, last_byte(&im->tensor[i])),
                                   (uint32_t)im->tensor[i].side, 6);
        add_section(w, w->tensor[i], in ? "__const" : "__data", 0, NULL, im->tensor[i].bytes, 14, in ? 0x21 : 0x23);
    }
    if (!im->form->text_first) plan_text(w);
    uint64_t address = HWX_BASE;
    for (int i = 1; i < w->n_seg; i++) { /* the guard page stays at 0 */
        w->seg[i].address = address;
        for (int k = 0; k < w->seg[i].n_parts; k++) w->seg[i].part[k].address += address;
        address += w->seg[i].bytes;
    }
}

static const struct part *kernel_part(const writer *w) { return w->kern ? &w->kern->part[0] : &w->text->part[1]; }

/* ---- pieces ---- */

static unsigned char *put_zero(writer *w, uint64_t n)
{
    static const char zero[256];
    size_t at = w->b->n;
    for (uint64_t k = 0; k < n && !w->b->oom; k += sizeof zero)
        sb_putn(w->b, zero, (size_t)MIN(n - k, (uint64_t)sizeof zero));
    return w->b->oom ? NULL : (unsigned char *)w->b->at + at; /* valid until the next put */
}

/* A command of this many bytes before its names, and room for them; NULL: no memory. */
static unsigned char *put_command(writer *w, uint32_t cmd, uint64_t fixed, size_t names)
{
    uint64_t size = ROUND_UP(fixed + names, (uint64_t)8);
    unsigned char *c = put_zero(w, size);
    if (!c) return NULL;
    PART_PUT(c, COMMAND, cmd, cmd);
    PART_PUT(c, COMMAND, size, size);
    return c;
}

static an_status put_segment(writer *w, const plan_segment *s)
{
    unsigned char *c =
        put_command(w, HWX_LC_SEGMENT, STRUCT_BYTES(SEGMENT) + (uint64_t)s->n_parts * STRUCT_BYTES(SECTION), 0);
    if (!c) return diag_nomem(w->d);
    memcpy(c + PART_AT(SEGMENT, name), s->name, strlen(s->name));
    PART_PUT(c, SEGMENT, address, s->address);
    PART_PUT(c, SEGMENT, bytes, s->bytes);
    PART_PUT(c, SEGMENT, file_offset, s->at);
    PART_PUT(c, SEGMENT, file_bytes, s->file_bytes);
    PART_PUT(c, SEGMENT, max_protection, s->protection);
    PART_PUT(c, SEGMENT, protection, s->protection);
    PART_PUT(c, SEGMENT, n_sections, s->n_parts);
    PART_PUT(c, SEGMENT, flags, s->flags);
    for (int i = 0; i < s->n_parts; i++) {
        unsigned char *p = c + STRUCT_BYTES(SEGMENT) + (size_t)i * STRUCT_BYTES(SECTION);
        const struct part *e = &s->part[i];
        memcpy(p + PART_AT(SECTION, name), e->name, strlen(e->name));
        memcpy(p + PART_AT(SECTION, segment), s->name, strlen(s->name));
        PART_PUT(p, SECTION, address, e->address);
        PART_PUT(p, SECTION, bytes, e->bytes);
        PART_PUT(p, SECTION, file_offset, e->at);
        PART_PUT(p, SECTION, align, e->align);
        if (e == &w->text->part[0] && w->n_relocs)
            PART_PUT(p, SECTION, reloc_offset, w->reloc_at), PART_PUT(p, SECTION, n_relocs, w->n_relocs);
        PART_PUT(p, SECTION, flags, e->flags);
    }
    return AN_OK;
}

static an_status put_binding(writer *w, const hwx_tensor *t, uint64_t address)
{
    bool old = w->im->form->binding == HWX_LC_BIND;
    uint32_t fixed = old ? STRUCT_BYTES(BIND) : STRUCT_BYTES(BIND40);
    unsigned char *c = put_command(w, w->im->form->binding, fixed, strlen(t->name) + 1);
    if (!c) return diag_nomem(w->d);
    if (old) PART_PUT(c, BIND, name_offset, fixed), PART_PUT(c, BIND, address, address);
    else PART_PUT(c, BIND40, name_offset, fixed), PART_PUT(c, BIND40, address, address);
    memcpy(c + fixed, t->name, strlen(t->name));
    return AN_OK;
}

static an_status put_program(writer *w)
{
    const hwx_image *im = w->im;
    uint32_t fixed = STRUCT_BYTES(RECORD) + 4 * im->form->program_words;
    unsigned char *c = put_command(w, HWX_LC_RECORD, fixed, strlen(im->procedure) + 1);
    if (!c) return diag_nomem(w->d);
    unsigned char *slot = c + PART_AT(PROGRAM, slots);
    PART_PUT(c, RECORD, kind, 1);
    PART_PUT(c, RECORD, words, im->form->program_words);
    le_put(slot + 8 * HWX_SLOT_TEXT, 8, w->text->address);
    le_put(slot + 8 * HWX_SLOT_KERNEL, 8, kernel_part(w)->address);
    for (int i = 0; i < 2; i++)
        if (w->scratch[i]) le_put(slot + 8 * (HWX_SLOT_SCRATCH0 - i), 8, w->scratch[i]->address);
    for (size_t i = 0; i < im->n_tensor; i++) le_put(slot + 8 * im->tensor[i].slot, 8, w->tensor[i]->address);
    PART_PUT(c, PROGRAM, first_task, w->text->address);
    PART_PUT(c, PROGRAM, first_words, im->first_bytes / 4 - 1);
    PART_PUT(c, PROGRAM, n_tasks, im->n_tasks);
    PART_PUT(c, PROGRAM, ffff, 0xffff);
    PART_PUT(c, PROGRAM, name_offset, fixed);
    PART_PUT(c, PROGRAM, mark0, im->mark[0]);
    PART_PUT(c, PROGRAM, mark1, im->mark[1]);
    if (fixed > PART_AT(PROGRAM, tail2))
        PART_PUT(c, PROGRAM, tail0, 1), PART_PUT(c, PROGRAM, tail1, 9), PART_PUT(c, PROGRAM, tail2, 8);
    memcpy(c + fixed, im->procedure, strlen(im->procedure));
    return AN_OK;
}

/* Bytes of the name without @output. */
static size_t bare_length(const char *name)
{
    static const char suffix[] = "@output";
    size_t n = strlen(name), k = strlen(suffix);
    return n > k && !strcmp(name + n - k, suffix) ? n - k : n;
}

static an_status put_tensor(writer *w, const hwx_tensor *t)
{
    const hwx_form *form = w->im->form;
    uint32_t fixed = STRUCT_BYTES(RECORD) + 4 * form->tensor_words;
    size_t procedure = strlen(w->im->procedure) + 1, name = strlen(t->name) + 1, again = name - 1;
    if (form->drop_suffix && t->side == HWX_OUTPUT) again = bare_length(t->name);
    unsigned char *c = put_command(w, HWX_LC_RECORD, fixed, procedure + name + again + 1);
    if (!c) return diag_nomem(w->d);
    static const hwx_part dims[5] = { HWX_C_TENSOR_dim_n, HWX_C_TENSOR_dim_c, HWX_C_TENSOR_dim_h, HWX_C_TENSOR_dim_w,
                                      HWX_C_TENSOR_dim_d };
    PART_PUT(c, RECORD, kind, 3);
    PART_PUT(c, RECORD, words, form->tensor_words);
    PART_PUT(c, TENSOR, three, 3);
    PART_PUT(c, TENSOR, side, t->side);
    PART_PUT(c, TENSOR, procedure_offset, fixed);
    PART_PUT(c, TENSOR, name_offset, fixed + procedure);
    PART_PUT(c, TENSOR, type, t->type);
    for (int i = 0; i < 5; i++) part_put(c, dims[i], t->dim[i]);
    PART_PUT(c, TENSOR, batch_stride, t->batch);
    PART_PUT(c, TENSOR, plane_stride, t->plane);
    PART_PUT(c, TENSOR, row_stride, t->row);
    PART_PUT(c, TENSOR, element_bytes, t->elem);
    PART_PUT(c, TENSOR, bytes, t->bytes);
    PART_PUT(c, TENSOR, interleave, t->interleave);
    PART_PUT(c, TENSOR, again_offset, fixed + procedure + name);
    PART_PUT(c, TENSOR, used, t->side == HWX_INPUT ? t->bytes : last_byte(t));
    memcpy(c + fixed, w->im->procedure, procedure);
    memcpy(c + fixed + procedure, t->name, name);
    memcpy(c + fixed + procedure + name, t->name, again);
    return AN_OK;
}

/* Inputs by name, then outputs as they come. */
static an_status put_tensors(writer *w)
{
    const hwx_tensor *order[HWX_SLOTS];
    size_t n = 0;
    for (size_t i = 0; i < w->im->n_tensor; i++) {
        const hwx_tensor *t = &w->im->tensor[i];
        size_t at = n++;
        for (; t->side == HWX_INPUT && at > 0 &&
               (order[at - 1]->side == HWX_OUTPUT || strcmp(order[at - 1]->name, t->name) > 0);
             at--)
            order[at] = order[at - 1];
        order[at] = t;
    }
    for (size_t i = 0; i < n; i++) TRY(put_tensor(w, order[i]));
    return AN_OK;
}

static void put_shape(strbuf *b, const hwx_tensor *t, uint32_t k)
{
    const struct {
        char axis;
        uint64_t stride;
    } step[4] = { { 'n', t->batch }, { 'c', t->plane }, { 'h', t->row }, { 'w', t->elem } };
    sb_printf(b, "%s:t%u=", t->name, k);
    for (uint32_t i = 0; i < 4; i++)
        sb_printf(b, "ar1;0;%u;%u=s%llu%c:", t->dim[i], k + i + 1, (unsigned long long)step[i].stride, step[i].axis);
    sb_printf(b, "%u", t->type);
}

static an_status put_symbol(writer *w, strbuf *strings, const char *name, uint8_t type, int section, uint32_t desc,
                            uint64_t value)
{
    unsigned char *p = put_zero(w, STRUCT_BYTES(SYMBOL));
    if (!p) return diag_nomem(w->d);
    PART_PUT(p, SYMBOL, name, strings->n);
    PART_PUT(p, SYMBOL, type, type);
    PART_PUT(p, SYMBOL, section, section);
    PART_PUT(p, SYMBOL, desc, desc);
    PART_PUT(p, SYMBOL, value, value);
    sb_putn(strings, name, strlen(name) + 1);
    return strings->oom ? diag_nomem(w->d) : AN_OK;
}

/* The symbols at the end of the output, their names in strings. */
static an_status put_symbols(writer *w, strbuf *strings)
{
    const hwx_image *im = w->im;
    const struct part *kernel = kernel_part(w);
    sb_putc(strings, 0);
    for (size_t i = 0; i < im->n_kname; i++)
        TRY(put_symbol(w, strings, im->kname[i].name, 0x0f, kernel->number, 2, kernel->address + im->kname[i].at));
    for (size_t i = 0; i < im->n_tensor; i++)
        TRY(put_symbol(w, strings, im->tensor[i].name, 0x0f, w->tensor[i]->part[0].number,
                       im->tensor[i].side == HWX_INPUT ? im->form->input_desc : 0, w->tensor[i]->address));
    for (uint32_t i = 1; i <= im->form->types; i++) TRY(put_symbol(w, strings, hwx_type_text(i), 0x80, 0, 0, 0));
    for (size_t i = 0; i < im->n_tensor; i++) {
        strbuf shape = { 0 };
        uint32_t k = im->form->types + 1 + 5 * (uint32_t)i;
        put_shape(&shape, &im->tensor[i], k);
        an_status st = shape.oom ? diag_nomem(w->d) : put_symbol(w, strings, shape.at, 0x20, 0, k, 0);
        sb_free(&shape);
        TRY(st);
    }
    return AN_OK;
}

static an_status put_relocs(writer *w)
{
    const struct part *kernel = kernel_part(w);
    for (size_t i = 0; i < w->n_task; i++)
        for (unsigned k = 0; k < HWX_ENGINES; k++) {
            uint32_t at, bytes;
            if (!hwx_channel(&w->task[i], k, &at, &bytes)) continue;
            unsigned char *p = put_zero(w, STRUCT_BYTES(RELOC));
            if (!p) return diag_nomem(w->d);
            PART_PUT(p, RELOC, address, w->task[i].at + hwx_word_at(&w->task[i], 0x1f848 + 4 * k));
            PART_PUT(p, RELOC, info, 0x05000000u + (unsigned)kernel->number);
        }
    return AN_OK;
}

/* ---- the whole ---- */

static an_status check_image(writer *w)
{
    const hwx_image *im = w->im;
    uint64_t lim = (uint64_t)1 << 31, sum = 0;
    uint32_t seen = 0;
    if (!im->form) return BAD(w, "no container form");
    if (im->subtype != HWX_H13)
        return diag_fail(w->d, AN_UNSUPPORTED, NOWHERE, "chip generation %u: only H13 (%d) files are written",
                         im->subtype, HWX_H13);
    if (!im->procedure || !im->ident) return BAD(w, "no procedure name, or no ident text");
    if (!im->n_text || !im->n_tasks || im->first_bytes < 4 || im->first_bytes % 4 || im->first_bytes > im->n_text)
        return BAD(w, "%u tasks, the first of %u bytes, in a stream of %zu", im->n_tasks, im->first_bytes, im->n_text);
    if (im->n_tensor > HWX_SLOTS - HWX_SLOT_TENSOR)
        return BAD(w, "%zu tensors, wanted at most %d", im->n_tensor, HWX_SLOTS - HWX_SLOT_TENSOR);
    if (im->n_note % 8) return BAD(w, "a note of %zu bytes, wanted a multiple of 8", im->n_note);
    for (size_t i = 0; i < im->n_tensor; i++) {
        const hwx_tensor *t = &im->tensor[i];
        if (t->slot < HWX_SLOT_TENSOR || t->slot >= HWX_SLOTS || seen >> t->slot & 1)
            return BAD(w, "tensor \"%.60s\": slot %d, wanted one of its own from %d to %d", t->name, t->slot,
                       HWX_SLOT_TENSOR, HWX_SLOTS - 1);
        if (i && im->tensor[i - 1].side == HWX_OUTPUT && t->side == HWX_INPUT)
            return BAD(w, "input \"%.60s\" after an output", t->name);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(im->tensor[k].name, t->name)) return BAD(w, "two tensors named \"%.60s\"", t->name);
        if (!*t->name || (t->side != HWX_INPUT && t->side != HWX_OUTPUT))
            return BAD(w, "tensor %zu: name \"%.60s\", side %d", i, t->name, (int)t->side);
        for (int k = 0; k < 5; k++)
            if (!t->dim[k] || t->dim[k] > lim)
                return BAD(w, "tensor \"%.60s\": dimension %d is %u", t->name, k, t->dim[k]);
        if (t->batch >= lim || t->plane >= lim || t->row >= lim || t->elem > 16)
            return BAD(w, "tensor \"%.60s\": strides of %llu, %llu, %llu and %llu bytes", t->name,
                       (unsigned long long)t->batch, (unsigned long long)t->plane, (unsigned long long)t->row,
                       (unsigned long long)t->elem);
        seen |= 1u << t->slot;
        sum += MIN(MAX(t->bytes, last_byte(t)), lim);
    }
    for (size_t i = 0; i < im->n_kname; i++)
        if (im->kname[i].at > im->n_kernel)
            return BAD(w, "kernel %.70s at 0x%llx of 0x%zx bytes", im->kname[i].name,
                       (unsigned long long)im->kname[i].at, im->n_kernel);
    sum += MIN((uint64_t)im->n_text, lim) + MIN((uint64_t)im->n_kernel, lim) + MIN((uint64_t)im->n_debug, lim) +
           MIN(im->scratch[0], lim) + MIN(im->scratch[1], lim);
    if (sum >= lim) return BAD(w, "buffers of more than 2 GiB in all");
    return AN_OK;
}

static void pad_to(writer *w, uint64_t at) { put_zero(w, at > w->b->n ? at - w->b->n : 0); }

static void put_contents(writer *w)
{
    for (int i = 0; i < w->n_seg; i++) {
        const plan_segment *s = &w->seg[i];
        if (!s->file_bytes) continue;
        for (int k = 0; k < s->n_parts; k++) {
            pad_to(w, s->part[k].at);
            if (s->part[k].data) sb_putn(w->b, (const char *)s->part[k].data, (size_t)s->part[k].bytes);
        }
        pad_to(w, s->at + s->file_bytes);
    }
}

/* Sizes of the load commands do not depend on offsets: written once to learn the offsets, and again with them. */
static an_status put_front(writer *w, strbuf *strings)
{
    const hwx_image *im = w->im;
    size_t text = strlen(im->ident);
    w->b->n = 0;
    strings->n = 0;
    unsigned char *h = put_zero(w, STRUCT_BYTES(HEADER));
    if (!h) return diag_nomem(w->d);
    for (int i = 0; i < w->n_seg; i++) TRY(put_segment(w, &w->seg[i]));
    for (size_t i = 0; i < im->n_tensor; i++) TRY(put_binding(w, &im->tensor[i], w->tensor[i]->address));
    TRY(put_program(w));
    TRY(put_tensors(w));
    unsigned char *c = put_command(w, HWX_LC_IDENT, STRUCT_BYTES(COMMAND), text + 1);
    if (!c) return diag_nomem(w->d);
    memcpy(c + STRUCT_BYTES(COMMAND), im->ident, text);
    if (im->n_note) {
        if (!(c = put_command(w, HWX_LC_NOTE, STRUCT_BYTES(COMMAND), im->n_note))) return diag_nomem(w->d);
        memcpy(c + STRUCT_BYTES(COMMAND), im->note, im->n_note);
    }
    size_t symtab = w->b->n;
    if (!put_command(w, HWX_LC_SYMTAB, STRUCT_BYTES(SYMTAB), 0)) return diag_nomem(w->d);
    size_t symbols = w->b->n;
    TRY(put_symbols(w, strings));
    size_t n_symbols = (w->b->n - symbols) / STRUCT_BYTES(SYMBOL), at = w->b->n;
    sb_putn(w->b, strings->at, strings->n);
    if (w->b->oom) return diag_nomem(w->d);
    h = (unsigned char *)w->b->at, c = h + symtab;
    PART_PUT(h, HEADER, magic, HWX_MAGIC);
    PART_PUT(h, HEADER, cpu_type, 0x80);
    PART_PUT(h, HEADER, cpu_subtype, im->subtype);
    PART_PUT(h, HEADER, file_type, 2);
    PART_PUT(h, HEADER, n_commands, (uint64_t)w->n_seg + 2 * im->n_tensor + 3 + (im->n_note > 0));
    PART_PUT(h, HEADER, command_bytes, symbols - STRUCT_BYTES(HEADER));
    PART_PUT(h, HEADER, flags, 0x200000);
    PART_PUT(c, SYMTAB, symbol_offset, symbols);
    PART_PUT(c, SYMTAB, n_symbols, n_symbols);
    PART_PUT(c, SYMTAB, string_offset, at);
    PART_PUT(c, SYMTAB, string_bytes, strings->n);
    if (!w->n_relocs) return AN_OK;
    pad_to(w, ROUND_UP((uint64_t)w->b->n, 8));
    w->reloc_at = (uint32_t)w->b->n;
    return put_relocs(w);
}

static void place_in_file(writer *w)
{
    uint64_t at = ROUND_UP((uint64_t)w->b->n, HWX_PAGE);
    for (int i = 0; i < w->n_seg; i++) {
        plan_segment *s = &w->seg[i];
        if (!s->file_bytes) continue;
        s->at = at;
        for (int k = 0; k < s->n_parts; k++) s->part[k].at = at + (s->part[k].address - s->address);
        at += s->file_bytes;
    }
}

static an_status write_all(writer *w, strbuf *strings)
{
    const hwx_image *im = w->im;
    TRY(check_image(w));
    TRY(hwx_tasks_read(&w->mem, im->text, im->n_text, im->first_bytes, im->n_tasks, &w->task, &w->n_task, w->d));
    for (size_t i = 0; i < w->n_task; i++)
        for (unsigned k = 0; k < HWX_ENGINES; k++) {
            uint32_t at, bytes;
            if (!hwx_channel(&w->task[i], k, &at, &bytes)) continue;
            if (at > im->n_kernel || bytes > im->n_kernel - at)
                return BAD(w, "task %zu, engine %u: kernel bytes 0x%x + 0x%x of 0x%zx", i, k, at, bytes, im->n_kernel);
            w->n_relocs++;
        }
    plan_segments(w);
    TRY(put_front(w, strings));
    place_in_file(w);
    TRY(put_front(w, strings));
    put_contents(w);
    return w->b->oom ? diag_nomem(w->d) : AN_OK;
}

an_status hwx_write(const hwx_image *im, strbuf *out, diag *d)
{
    writer w = { .im = im, .b = out, .d = d };
    strbuf strings = { 0 };
    an_status st = write_all(&w, &strings);
    arena_free(&w.mem);
    sb_free(&strings);
    return st;
}
