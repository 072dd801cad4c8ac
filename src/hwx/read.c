/* read.c: a program file into structures.
 * In: bytes.  Out: hwx_file: load commands, segments, symbols, the program (hwx_image) and, for H13, its tasks.
 *
 * Nothing is trusted: load commands stay inside their area, file ranges inside the file, names inside their command,
 * and what different parts say about the same tensor must agree. Unknown load commands are listed and skipped. */
#include "hwx/hwx_int.h"

typedef struct {
    const unsigned char *at;
    size_t n;
    hwx_file *f;
    diag *d;
    const unsigned char *program; /* its record */
    uint32_t program_size, program_words;
    VEC(struct bound { uint64_t address; const char *name; uint32_t cmd; }) bound;
    VEC(struct described { const unsigned char *at; const char *name; }) described;
    const unsigned char *symtab;
    size_t kernel_section; /* from 1; 0: none */
} reader;

/* Far above what any compiler writes; they keep a hostile file from costing more than its size. */
enum { MAX_COMMAND_BYTES = 16 << 20, MAX_SYMBOLS = 1 << 20, MAX_RELOCS = 1 << 20,
       MAX_TENSORS = HWX_SLOTS - HWX_SLOT_TENSOR, MAX_TASKS = 1 << 16 };

#define BAD(r, ...) diag_fail((r)->d, AN_INPUT, NOWHERE, __VA_ARGS__)
#define ULL(x) ((unsigned long long)(x))

static bool fits(const reader *r, uint64_t at, uint64_t bytes) { return at <= r->n && bytes <= r->n - at; }

/* A name that must end inside the command. */
static an_status name_in(reader *r, const unsigned char *c, uint32_t size, uint32_t offset, const char *what,
                         const char **out)
{
    const unsigned char *end = offset < size ? memchr(c + offset, 0, size - offset) : NULL;
    if (!end) return BAD(r, "%s at 0x%x: no terminated text inside its command of 0x%x bytes", what, offset, size);
    *out = arena_strn(&r->f->mem, (const char *)c + offset, (size_t)(end - (c + offset)));
    return *out ? AN_OK : diag_nomem(r->d);
}

/* ---- load commands ---- */

static void fixed_name(char out[17], const unsigned char *p)
{
    memcpy(out, p, 16);
    out[16] = 0;
}

static an_status read_segment(reader *r, const unsigned char *c, uint32_t size)
{
    hwx_file *f = r->f;
    if (size < STRUCT_BYTES(SEGMENT))
        return BAD(r, "segment command of %u bytes, wanted %u or more", size, STRUCT_BYTES(SEGMENT));
    uint32_t n = PART32(c, SEGMENT, n_sections);
    if (n != (size - STRUCT_BYTES(SEGMENT)) / STRUCT_BYTES(SECTION) ||
        size != STRUCT_BYTES(SEGMENT) + (uint64_t)n * STRUCT_BYTES(SECTION))
        return BAD(r, "segment command of %u bytes with %u sections, wanted %u + %u each", size, n,
                   STRUCT_BYTES(SEGMENT), STRUCT_BYTES(SECTION));
    hwx_segment s = { .address = PART(c, SEGMENT, address),
                      .bytes = PART(c, SEGMENT, bytes),
                      .at = PART(c, SEGMENT, file_offset),
                      .file_bytes = PART(c, SEGMENT, file_bytes),
                      .protection = PART32(c, SEGMENT, protection),
                      .flags = PART32(c, SEGMENT, flags),
                      .first_section = f->section.n,
                      .n_sections = n };
    fixed_name(s.name, c + PART_AT(SEGMENT, name));
    if (!fits(r, s.at, s.file_bytes))
        return BAD(r, "segment %s: file bytes 0x%llx + 0x%llx, but the file has 0x%zx", s.name, ULL(s.at),
                   ULL(s.file_bytes), r->n);
    if (s.address > UINT64_MAX - s.bytes)
        return BAD(r, "segment %s: address 0x%llx + 0x%llx overflows", s.name, ULL(s.address), ULL(s.bytes));
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *p = c + STRUCT_BYTES(SEGMENT) + (size_t)i * STRUCT_BYTES(SECTION);
        hwx_section e = { .address = PART(p, SECTION, address),
                          .bytes = PART(p, SECTION, bytes),
                          .at = PART32(p, SECTION, file_offset),
                          .align = PART32(p, SECTION, align),
                          .reloc_at = PART32(p, SECTION, reloc_offset),
                          .n_relocs = PART32(p, SECTION, n_relocs),
                          .flags = PART32(p, SECTION, flags) };
        fixed_name(e.name, p + PART_AT(SECTION, name));
        fixed_name(e.segment, p + PART_AT(SECTION, segment));
        if (e.address < s.address || e.address - s.address > s.bytes || e.bytes > s.bytes - (e.address - s.address))
            return BAD(r, "section %s,%s: 0x%llx + 0x%llx, outside its segment 0x%llx + 0x%llx", s.name, e.name,
                       ULL(e.address), ULL(e.bytes), ULL(s.address), ULL(s.bytes));
        if (s.file_bytes && (e.at < s.at || e.at - s.at > s.file_bytes || e.bytes > s.file_bytes - (e.at - s.at)))
            return BAD(r, "section %s,%s: file bytes 0x%x + 0x%llx, outside its segment's 0x%llx + 0x%llx", s.name,
                       e.name, e.at, ULL(e.bytes), ULL(s.at), ULL(s.file_bytes));
        if (!fits(r, e.reloc_at, (uint64_t)e.n_relocs * STRUCT_BYTES(RELOC)))
            return BAD(r, "section %s,%s: %u relocations at 0x%x, but the file has 0x%zx bytes", s.name, e.name,
                       e.n_relocs, e.reloc_at, r->n);
        if (!VEC_PUSH(&f->mem, &f->section, e)) return diag_nomem(r->d);
    }
    return VEC_PUSH(&f->mem, &f->segment, s) ? AN_OK : diag_nomem(r->d);
}

static an_status read_binding(reader *r, const unsigned char *c, uint32_t cmd, uint32_t size)
{
    bool old = cmd == HWX_LC_BIND;
    uint32_t need = old ? STRUCT_BYTES(BIND) : STRUCT_BYTES(BIND40);
    if (size <= need) return BAD(r, "binding command 0x%x of %u bytes, wanted more than %u", cmd, size, need);
    struct bound b = { .address = old ? PART(c, BIND, address) : PART(c, BIND40, address), .cmd = cmd };
    TRY(name_in(r, c, size, old ? PART32(c, BIND, name_offset) : PART32(c, BIND40, name_offset), "name of a binding",
                &b.name));
    if (r->bound.n == MAX_TENSORS) return BAD(r, "binding \"%.60s\": more than %d tensors", b.name, MAX_TENSORS);
    if (!*b.name) return BAD(r, "binding of 0x%llx: its name is empty", ULL(b.address));
    for (size_t i = 0; i < r->bound.n; i++)
        if (r->bound.at[i].cmd != cmd)
            return BAD(r, "binding \"%.60s\": command 0x%x after 0x%x, wanted one kind", b.name, cmd,
                       r->bound.at[i].cmd);
        else if (r->bound.at[i].address == b.address || !strcmp(r->bound.at[i].name, b.name))
            return BAD(r, "binding \"%.60s\" of 0x%llx: bound twice", b.name, ULL(b.address));
    return VEC_PUSH(&r->f->mem, &r->bound, b) ? AN_OK : diag_nomem(r->d);
}

static an_status read_record(reader *r, const unsigned char *c, uint32_t size)
{
    if (size < STRUCT_BYTES(RECORD)) return BAD(r, "record of %u bytes, wanted %u or more", size, STRUCT_BYTES(RECORD));
    uint32_t kind = PART32(c, RECORD, kind), words = PART32(c, RECORD, words);
    if (words > (size - STRUCT_BYTES(RECORD)) / 4)
        return BAD(r, "record of kind %u: %u words in a command of %u bytes", kind, words, size);
    if (kind == 1) {
        if (r->program) return BAD(r, "a second program record");
        if (STRUCT_BYTES(RECORD) + 4 * (uint64_t)words < STRUCT_BYTES(PROGRAM))
            return BAD(r, "program record of %u words, wanted %u or more", words,
                       (STRUCT_BYTES(PROGRAM) - STRUCT_BYTES(RECORD)) / 4);
        r->program = c, r->program_size = size, r->program_words = words;
        return AN_OK;
    }
    if (kind != 3) return BAD(r, "record of kind %u, wanted 1 (program) or 3 (tensor)", kind);
    if (STRUCT_BYTES(RECORD) + 4 * (uint64_t)words < STRUCT_BYTES(TENSOR))
        return BAD(r, "tensor record of %u words, wanted %u or more", words,
                   (STRUCT_BYTES(TENSOR) - STRUCT_BYTES(RECORD)) / 4);
    struct described t = { .at = c };
    if (r->described.n == MAX_TENSORS) return BAD(r, "more than %d tensor records", MAX_TENSORS);
    TRY(name_in(r, c, size, PART32(c, TENSOR, name_offset), "name of a tensor", &t.name));
    for (size_t i = 0; i < r->described.n; i++)
        if (!strcmp(r->described.at[i].name, t.name)) return BAD(r, "tensor \"%.60s\": described twice", t.name);
    return VEC_PUSH(&r->f->mem, &r->described, t) ? AN_OK : diag_nomem(r->d);
}

static an_status read_command(reader *r, const unsigned char *c, uint32_t cmd, uint32_t size)
{
    hwx_image *im = &r->f->image;
    switch (cmd) {
    case HWX_LC_SEGMENT: return read_segment(r, c, size);
    case HWX_LC_BIND:
    case HWX_LC_BIND40: return read_binding(r, c, cmd, size);
    case HWX_LC_RECORD: return read_record(r, c, size);
    case HWX_LC_IDENT: /* text that need not be terminated */
        if (im->ident) return BAD(r, "a second ident text");
        im->ident = arena_strn(&r->f->mem, (const char *)c + STRUCT_BYTES(COMMAND), size - STRUCT_BYTES(COMMAND));
        return im->ident ? AN_OK : diag_nomem(r->d);
    case HWX_LC_NOTE:
        if (im->n_note) return BAD(r, "a second source note");
        im->note = c + STRUCT_BYTES(COMMAND), im->n_note = size - STRUCT_BYTES(COMMAND);
        return AN_OK;
    case HWX_LC_SYMTAB:
        if (r->symtab) return BAD(r, "a second symbol table");
        if (size < STRUCT_BYTES(SYMTAB))
            return BAD(r, "symbol table command of %u bytes, wanted %u", size, STRUCT_BYTES(SYMTAB));
        r->symtab = c;
        return AN_OK;
    default: return AN_OK;
    }
}

static an_status read_header(reader *r, uint32_t *n_commands)
{
    const unsigned char *h = r->at;
    if (r->n < STRUCT_BYTES(HEADER))
        return BAD(r, "%zu bytes, wanted %u or more: not a program file", r->n, STRUCT_BYTES(HEADER));
    if (PART32(h, HEADER, magic) != HWX_MAGIC)
        return BAD(r, "magic 0x%08x, wanted 0x%08x (bytes CE FA EF BE)", PART32(h, HEADER, magic), HWX_MAGIC);
    const struct {
        const char *what;
        uint32_t seen, want;
    } same[] = { { "cpu type", PART32(h, HEADER, cpu_type), 0x80 }, { "file type", PART32(h, HEADER, file_type), 2 } };
    for (size_t i = 0; i < COUNT(same); i++)
        if (same[i].seen != same[i].want)
            return BAD(r, "%s 0x%x, wanted 0x%x", same[i].what, same[i].seen, same[i].want);
    r->f->image.subtype = PART32(h, HEADER, cpu_subtype);
    if (!hwx_subtype_name(r->f->image.subtype))
        return BAD(r, "chip generation (cpu subtype) %u, wanted 1, 3 to 7, 9 or 10", r->f->image.subtype);
    r->f->flags = PART32(h, HEADER, flags);
    r->f->command_bytes = PART32(h, HEADER, command_bytes);
    *n_commands = PART32(h, HEADER, n_commands);
    if (!fits(r, STRUCT_BYTES(HEADER), r->f->command_bytes))
        return BAD(r, "0x%x bytes of load commands, but the file has 0x%zx", r->f->command_bytes, r->n);
    if (r->f->command_bytes > MAX_COMMAND_BYTES)
        return BAD(r, "0x%x bytes of load commands, wanted at most 0x%x", r->f->command_bytes, MAX_COMMAND_BYTES);
    if (*n_commands > r->f->command_bytes / STRUCT_BYTES(COMMAND))
        return BAD(r, "%u load commands in 0x%x bytes", *n_commands, r->f->command_bytes);
    return AN_OK;
}

static an_status read_commands(reader *r, uint32_t n)
{
    size_t at = STRUCT_BYTES(HEADER), end = at + r->f->command_bytes;
    for (uint32_t i = 0; i < n; i++) {
        if (end - at < STRUCT_BYTES(COMMAND))
            return BAD(r, "load command %u: %zu bytes left, wanted %u", i, end - at, STRUCT_BYTES(COMMAND));
        const unsigned char *c = r->at + at;
        hwx_command k = { .cmd = PART32(c, COMMAND, cmd), .size = PART32(c, COMMAND, size), .at = at };
        if (k.size < STRUCT_BYTES(COMMAND) || k.size % 8 || k.size > end - at)
            return BAD(r, "load command %u (0x%x): 0x%x bytes, wanted a multiple of 8 from 8 to 0x%zx", i, k.cmd,
                       k.size, end - at);
        if (!VEC_PUSH(&r->f->mem, &r->f->command, k)) return diag_nomem(r->d);
        TRY(read_command(r, c, k.cmd, k.size));
        at += k.size;
    }
    return at == end ? AN_OK : BAD(r, "%u load commands end at 0x%zx, wanted 0x%zx", n, at, end);
}

/* ---- what the commands point at ---- */

static const hwx_section *section_named(const hwx_file *f, const char *segment, const char *name,
                                        const hwx_segment **of)
{
    for (size_t i = 0; i < f->segment.n; i++)
        for (size_t k = 0; !strcmp(f->segment.at[i].name, segment) && k < f->segment.at[i].n_sections; k++) {
            const hwx_section *e = &f->section.at[f->segment.at[i].first_section + k];
            if (strcmp(e->name, name)) continue;
            if (of) *of = &f->segment.at[i];
            return e;
        }
    return NULL;
}

static an_status read_symbols(reader *r)
{
    if (!r->symtab) return AN_OK;
    uint32_t at = PART32(r->symtab, SYMTAB, symbol_offset), n = PART32(r->symtab, SYMTAB, n_symbols),
             str = PART32(r->symtab, SYMTAB, string_offset), str_bytes = PART32(r->symtab, SYMTAB, string_bytes);
    if (n > MAX_SYMBOLS) return BAD(r, "%u symbols, wanted at most %d", n, MAX_SYMBOLS);
    if (!fits(r, at, (uint64_t)n * STRUCT_BYTES(SYMBOL)))
        return BAD(r, "%u symbols at 0x%x, but the file has 0x%zx bytes", n, at, r->n);
    if (!fits(r, str, str_bytes))
        return BAD(r, "strings 0x%x + 0x%x, but the file has 0x%zx bytes", str, str_bytes, r->n);
    if (str_bytes && r->at[str + str_bytes - 1]) return BAD(r, "strings 0x%x + 0x%x do not end with 0", str, str_bytes);
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *p = r->at + at + (size_t)i * STRUCT_BYTES(SYMBOL);
        uint32_t name = PART32(p, SYMBOL, name);
        if (name >= str_bytes)
            return BAD(r, "symbol %u: name at 0x%x, but there are 0x%x bytes of strings", i, name, str_bytes);
        hwx_symbol s = { .name = (const char *)r->at + str + name,
                         .type = (uint8_t)PART(p, SYMBOL, type),
                         .section = (uint8_t)PART(p, SYMBOL, section),
                         .desc = (uint16_t)PART(p, SYMBOL, desc),
                         .value = PART(p, SYMBOL, value) };
        if (!VEC_PUSH(&r->f->mem, &r->f->symbol, s)) return diag_nomem(r->d);
    }
    return AN_OK;
}

static bool all_zero(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n && !p[i]) i++;
    return i == n;
}

/* The section that slot 1 names; without kernel data it is a page of zeros. */
static an_status read_kernel(reader *r, const hwx_segment *text)
{
    hwx_file *f = r->f;
    hwx_image *im = &f->image;
    uint64_t address = f->slot[HWX_SLOT_KERNEL];
    if (!address) return AN_OK;
    for (size_t i = 0; i < f->segment.n; i++)
        for (size_t k = 0; k < f->segment.at[i].n_sections; k++) {
            const hwx_segment *s = &f->segment.at[i];
            const hwx_section *e = &f->section.at[s->first_section + k];
            if (e->address != address || !s->file_bytes || !strcmp(e->name, "__text")) continue;
            im->kernel = r->at + e->at, im->n_kernel = (size_t)e->bytes;
            if (s == text && s->flags == 4 && e->bytes == HWX_EMPTY_CONST && all_zero(im->kernel, im->n_kernel))
                im->kernel = NULL, im->n_kernel = 0;
            r->kernel_section = im->n_kernel ? s->first_section + k + 1 : 0;
            return AN_OK;
        }
    return BAD(r, "slot 1 (kernel data) is 0x%llx, where no section with file bytes starts", ULL(address));
}

static an_status name_kernels(reader *r)
{
    hwx_file *f = r->f;
    VEC(hwx_kernel_name) v = { 0 };
    uint64_t from = f->slot[HWX_SLOT_KERNEL];
    for (size_t i = 0; i < f->symbol.n && r->kernel_section; i++) {
        const hwx_symbol *s = &f->symbol.at[i];
        if (s->type != 0x0f || s->section != r->kernel_section) continue;
        if (s->value < from || s->value - from > f->image.n_kernel)
            return BAD(r, "kernel symbol %.70s: 0x%llx, outside its section 0x%llx + 0x%zx", s->name, ULL(s->value),
                       ULL(from), f->image.n_kernel);
        if (!VEC_PUSH(&f->mem, &v, ((hwx_kernel_name){ .name = s->name, .at = s->value - from })))
            return diag_nomem(r->d);
    }
    f->image.kname = v.at, f->image.n_kname = v.n;
    return AN_OK;
}

static an_status read_text(reader *r)
{
    hwx_file *f = r->f;
    hwx_image *im = &f->image;
    const hwx_segment *seg = NULL;
    const hwx_section *text = section_named(f, "__TEXT", "__text", &seg),
                      *debug = section_named(f, "__DEBUG", "__debug_info", NULL);
    if (!text || !seg->file_bytes) return BAD(r, "no section __TEXT,__text with file bytes");
    if (!r->program) return BAD(r, "no program record");
    im->text = r->at + text->at, im->n_text = (size_t)text->bytes;
    if (PART(r->program, PROGRAM, first_task) != text->address)
        return BAD(r, "first task at 0x%llx, wanted 0x%llx, the start of __text",
                   ULL(PART(r->program, PROGRAM, first_task)), ULL(text->address));
    uint32_t words = PART32(r->program, PROGRAM, first_words);
    im->n_tasks = PART32(r->program, PROGRAM, n_tasks);
    if (words >= text->bytes / 4)
        return BAD(r, "first task of %u + 1 words, but __text has 0x%llx bytes", words, ULL(text->bytes));
    if (!im->n_tasks || im->n_tasks > MAX_TASKS) return BAD(r, "%u tasks, wanted 1 to %d", im->n_tasks, MAX_TASKS);
    if (text->n_relocs > MAX_RELOCS) return BAD(r, "%u relocations, wanted at most %d", text->n_relocs, MAX_RELOCS);
    im->first_bytes = 4 * (words + 1);
    im->mark[0] = PART32(r->program, PROGRAM, mark0), im->mark[1] = PART32(r->program, PROGRAM, mark1);
    TRY(name_in(r, r->program, r->program_size, PART32(r->program, PROGRAM, name_offset), "name of the procedure",
                &im->procedure));
    for (int i = 0; i < HWX_SLOTS; i++) f->slot[i] = le_get(r->program + PART_AT(PROGRAM, slots) + 8 * i, 8);
    for (int i = HWX_SLOTS; i < 256; i++)
        if (le_get(r->program + PART_AT(PROGRAM, slots) + 8 * i, 8))
            return BAD(r, "slot %d is in use, wanted none beyond %d", i, HWX_SLOTS - 1);
    if (f->slot[HWX_SLOT_TEXT] != text->address)
        return BAD(r, "slot 0 (tasks) is 0x%llx, wanted 0x%llx", ULL(f->slot[HWX_SLOT_TEXT]), ULL(text->address));
    if (debug && debug->bytes) { /* a segment without file bytes was not held against the file */
        if (!fits(r, debug->at, debug->bytes))
            return BAD(r, "section __DEBUG,__debug_info: file bytes 0x%x + 0x%llx, but the file has 0x%zx", debug->at,
                       ULL(debug->bytes), r->n);
        im->debug = r->at + debug->at, im->n_debug = (size_t)debug->bytes;
    }
    for (uint32_t i = 0; i < text->n_relocs; i++) {
        const unsigned char *p = r->at + text->reloc_at + (size_t)i * STRUCT_BYTES(RELOC);
        hwx_reloc x = { .address = PART32(p, RELOC, address), .info = PART32(p, RELOC, info) };
        if (x.address % 4 || x.address > text->bytes || text->bytes - x.address < 4)
            return BAD(r, "relocation %u: word at 0x%x, but __text has 0x%llx bytes", i, x.address, ULL(text->bytes));
        if (!VEC_PUSH(&f->mem, &f->reloc, x)) return diag_nomem(r->d);
    }
    return read_kernel(r, seg);
}

/* ---- tensors ---- */

static an_status check_layout(reader *r, const hwx_tensor *t, uint64_t room)
{
    /* Each stride holds what lies within it; the last element lies in the segment. Numbers are below 2^32 * 2^32. */
    const uint64_t lim = (uint64_t)1 << 40;
    for (int i = 0; i < 5; i++)
        if (!t->dim[i]) return BAD(r, "tensor \"%.60s\": dimension %d is 0", t->name, i);
    if (t->batch > lim || t->plane > lim || t->row > lim || t->elem > 16 || !t->elem)
        return BAD(r, "tensor \"%.60s\": strides %llu, %llu, %llu, %llu bytes", t->name, ULL(t->batch), ULL(t->plane),
                   ULL(t->row), ULL(t->elem));
    const struct {
        const char *what;
        uint64_t n, step;
    } axis[] = { { "row", t->dim[3], t->elem },
                 { "plane", t->dim[2], t->row },
                 { "batch", t->dim[1], t->plane },
                 { "tensor", t->dim[0], t->batch } };
    uint64_t last = 0, end = 0;
    for (size_t i = 0; i < COUNT(axis); i++) {
        if (i && axis[i].n > 1 && axis[i].step < end)
            return BAD(r, "tensor \"%.60s\": a stride of %llu bytes, wanted %llu or more to hold a %s", t->name,
                       ULL(axis[i].step), ULL(end), axis[i - 1].what);
        if (axis[i].step && (axis[i].n - 1) > (lim - last) / axis[i].step)
            return BAD(r, "tensor \"%.60s\": larger than 2^40 bytes", t->name);
        last += (axis[i].n - 1) * axis[i].step;
        end = last + t->elem;
    }
    if (end > room || t->bytes > room)
        return BAD(r, "tensor \"%.60s\": 0x%llx bytes, but its segment has 0x%llx", t->name, ULL(MAX(end, t->bytes)),
                   ULL(room));
    return AN_OK;
}

static int slot_of(const hwx_file *f, uint64_t address, int from)
{
    for (int i = from; i < HWX_SLOTS; i++)
        if (f->slot[i] == address) return i;
    return -1;
}

static an_status read_tensor(reader *r, const hwx_segment *s, hwx_tensor *t)
{
    const struct bound *b = NULL;
    const struct described *e = NULL;
    for (size_t i = 0; i < r->bound.n; i++)
        if (r->bound.at[i].address == s->address) b = &r->bound.at[i];
    if (!b) return BAD(r, "segment %s at 0x%llx: no binding names it", s->name, ULL(s->address));
    for (size_t i = 0; i < r->described.n; i++)
        if (!strcmp(r->described.at[i].name, b->name)) e = &r->described.at[i];
    if (!e) return BAD(r, "tensor \"%.60s\": bound, but no record describes it", b->name);
    const unsigned char *c = e->at;
    *t = (hwx_tensor){ .name = b->name, .side = s->protection == 1 ? HWX_INPUT : HWX_OUTPUT, .type = PART32(c, TENSOR, type), .batch = PART(c, TENSOR, batch_stride), .plane = PART(c, TENSOR, plane_stride),
                       .row = PART(c, TENSOR, row_stride), .elem = PART(c, TENSOR, element_bytes), .bytes = PART(c, TENSOR, bytes), .interleave = PART32(c, TENSOR, interleave), .address = s->address,
                       .dim = { PART32(c, TENSOR, dim_n), PART32(c, TENSOR, dim_c), PART32(c, TENSOR, dim_h), PART32(c, TENSOR, dim_w), PART32(c, TENSOR, dim_d) } };
    if (PART32(c, TENSOR, side) != (uint32_t)t->side)
        return BAD(r, "tensor \"%.60s\": record says %u (1 input, 2 output), its segment %d", t->name,
                   PART32(c, TENSOR, side), (int)t->side);
    if (!hwx_type_text(t->type)) return BAD(r, "tensor \"%.60s\": element type %u, wanted 1 to 23", t->name, t->type);
    TRY(check_layout(r, t, s->bytes));
    t->slot = slot_of(r->f, t->address, HWX_SLOT_TENSOR);
    return t->slot < 0 ? BAD(r, "tensor \"%.60s\" at 0x%llx: in none of the slots %d to %d", t->name, ULL(t->address),
                             HWX_SLOT_TENSOR, HWX_SLOTS - 1)
                       : AN_OK;
}

static an_status read_tensors(reader *r)
{
    hwx_file *f = r->f;
    VEC(hwx_tensor) v = { 0 };
    for (int side = HWX_INPUT; side <= HWX_OUTPUT; side++)
        for (size_t i = 0; i < f->segment.n; i++) {
            const hwx_segment *s = &f->segment.at[i];
            hwx_tensor t;
            if (strcmp(s->name, "__FVMLIB") || s->protection != (uint32_t)side) continue;
            TRY(read_tensor(r, s, &t));
            if (!VEC_PUSH(&f->mem, &v, t)) return diag_nomem(r->d);
        }
    if (v.n != r->bound.n || v.n != r->described.n)
        return BAD(r, "%zu tensor segments, %zu bindings and %zu tensor records, wanted as many of each", v.n,
                   r->bound.n, r->described.n);
    for (size_t i = 0; i < f->segment.n; i++) {
        const hwx_segment *s = &f->segment.at[i];
        if (s->protection != 3) continue;
        int slot = slot_of(f, s->address, HWX_SLOT_SCRATCH1);
        if (slot != HWX_SLOT_SCRATCH0 && slot != HWX_SLOT_SCRATCH1)
            return BAD(r, "segment %s of intermediates at 0x%llx: slot %d, wanted 2 or 3", s->name, ULL(s->address),
                       slot);
        uint64_t bytes = s->n_sections ? f->section.at[s->first_section].bytes : s->bytes;
        if (f->image.scratch[HWX_SLOT_SCRATCH0 - slot]) return BAD(r, "slot %d: two segments of intermediates", slot);
        f->image.scratch[HWX_SLOT_SCRATCH0 - slot] = bytes;
    }
    f->image.tensor = v.at, f->image.n_tensor = v.n;
    return AN_OK;
}

static const hwx_form *form_of(const reader *r)
{
    size_t text = 0, tensor = 0;
    uint32_t binding = r->bound.n ? r->bound.at[0].cmd : HWX_LC_BIND;
    for (size_t i = 0; i < r->f->segment.n; i++) {
        if (!strcmp(r->f->segment.at[i].name, "__TEXT")) text = i;
        if (!strcmp(r->f->segment.at[i].name, "__FVMLIB")) tensor = i;
    }
    if (!r->bound.n) /* no tensors: only the record's length tells */
        for (size_t i = 0; hwx_form_at(i); i++)
            if (hwx_form_at(i)->program_words == r->program_words) return hwx_form_at(i);
    for (size_t i = 0; hwx_form_at(i); i++)
        if (hwx_form_at(i)->binding == binding && hwx_form_at(i)->text_first == (text < tensor)) return hwx_form_at(i);
    for (size_t i = 0; hwx_form_at(i); i++) /* text after the tensors in an old file */
        if (hwx_form_at(i)->binding == binding) return hwx_form_at(i);
    return hwx_form_at(0);
}

static an_status read_all(reader *r)
{
    hwx_file *f = r->f;
    uint32_t n_commands = 0;
    TRY(read_header(r, &n_commands));
    TRY(read_commands(r, n_commands));
    TRY(read_symbols(r));
    TRY(read_text(r));
    TRY(name_kernels(r));
    TRY(read_tensors(r));
    if (!f->image.ident && !(f->image.ident = arena_str(&f->mem, ""))) return diag_nomem(r->d);
    f->image.form = form_of(r);
    if (f->image.subtype != HWX_H13) return AN_OK;
    TRY(hwx_tasks_read(&f->mem, f->image.text, f->image.n_text, f->image.first_bytes, f->image.n_tasks, &f->task,
                       &f->n_task, r->d));
    for (size_t i = 0; i < f->n_task; i++)
        for (unsigned k = 0; k < HWX_ENGINES; k++) {
            uint32_t at, bytes;
            if (hwx_channel(&f->task[i], k, &at, &bytes) && (at > f->image.n_kernel || bytes > f->image.n_kernel - at))
                return BAD(r, "task %zu, engine %u: kernel bytes 0x%x + 0x%x, but there are 0x%zx", i, k, at, bytes,
                           f->image.n_kernel);
        }
    return AN_OK;
}

an_status hwx_read(const void *bytes, size_t n, hwx_file *f, diag *d)
{
    *f = (hwx_file){ .n_bytes = n };
    reader r = { .at = bytes, .n = n, .f = f, .d = d };
    return read_all(&r);
}

void hwx_close(hwx_file *f)
{
    arena_free(&f->mem);
    *f = (hwx_file){ 0 };
}
