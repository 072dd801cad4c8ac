/* dump.c: a program file in words: container, tensors, symbols, and every register a task writes, field by field.
 * In: hwx_file or tasks.  Out: text, or JSON with an object per line. Registers a task does not write do not appear. */
#include "base/dtype.h"
#include "hwx/hwx_int.h"

#define ULL(x) ((unsigned long long)(x))

static void put_str(strbuf *b, const char *key, const char *s)
{
    sb_printf(b, ",\"%s\":", key);
    sb_json(b, s, strlen(s));
}

/* Names come from the file: nothing that would move a terminal's cursor. */
static void put_safe(strbuf *b, const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || (unsigned char)*s > 0x7e) sb_printf(b, "\\x%02x", (unsigned char)*s);
        else sb_putc(b, *s);
}

static const char *side_name(hwx_side s) { return s == HWX_INPUT ? "input" : "output"; }

static void type_name(uint32_t number, char out[16])
{
    const char *t = hwx_type_text(number);
    int n = t ? (int)strcspn(t, ":") : 0;
    snprintf(out, 16, "%.*s", n, t ? t : "");
}

/* ---- tasks ---- */

static void put_sizes(strbuf *b, const hwx_task *t)
{
    sb_printf(b, "%ux%ux%u", hwx_value(t, HWX_F_CIN, 0), hwx_value(t, HWX_F_HIN, 0), hwx_value(t, HWX_F_WIN, 0));
    sb_printf(b, " to %ux%ux%u", hwx_value(t, HWX_F_COUT, 0), hwx_value(t, HWX_F_HOUT, 0), hwx_value(t, HWX_F_WOUT, 0));
}

static const char *known(hwx_field f, uint32_t v)
{
    const char *s = hwx_value_name(f, v);
    return s ? s : "unknown operation";
}

/* One line: what the task computes, and where from and to. */
static void put_summary(strbuf *b, const hwx_task *t)
{
    uint32_t act = hwx_value(t, HWX_F_NONLINEAR, 0);
    if (hwx_value(t, HWX_F_ENE, 0)) {
        bool conv = !hwx_value(t, HWX_F_OP_MODE, 0) && !hwx_value(t, HWX_F_NO_KERNEL, 0);
        if (conv) sb_printf(b, "convolution %ux%u, ", hwx_value(t, HWX_F_KH, 0), hwx_value(t, HWX_F_KW, 0));
        else sb_printf(b, "%s, ", known(HWX_F_OP_MODE, hwx_value(t, HWX_F_OP_MODE, 0)));
        put_sizes(b, t);
        if (act) sb_printf(b, ", %s", known(HWX_F_NONLINEAR, act));
        sb_printf(b, ", %u engine%s", 1u << hwx_value(t, HWX_F_ACTIVE_NE, 0),
                  hwx_value(t, HWX_F_ACTIVE_NE, 0) ? "s" : "");
    } else {
        uint32_t kind = hwx_value(t, HWX_F_PE_KIND, 0);
        if (kind == 5)
            sb_printf(b, "reduction (%s) of %u rows, ", known(HWX_F_PE_REDUCE, hwx_value(t, HWX_F_PE_REDUCE, 0)),
                      hwx_value(t, HWX_F_NUM_GROUPS, 0));
        else if (kind == 2) sb_puts(b, "scale and offset, ");
        else
            sb_printf(b, "%s, ",
                      hwx_value(t, HWX_F_PE_NEGATE, 0) ? "subtract" : known(HWX_F_PE_OP, hwx_value(t, HWX_F_PE_OP, 0)));
        put_sizes(b, t);
    }
    static const struct {
        hwx_field slot, on;
        const char *what;
    } end[] = { { HWX_F_RBASE0, HWX_F_RBE0, "source" },
                { HWX_F_RBASE1, HWX_F_RBE1, "second source" },
                { HWX_F_WBASE, HWX_F_WBE, "result" },
                { HWX_F_KBASE0, HWX_F_KBE0, "kernel data" } };
    for (size_t i = 0; i < COUNT(end); i++)
        if (hwx_value(t, end[i].on, 0)) sb_printf(b, "; %s slot %u", end[i].what, hwx_value(t, end[i].slot, 0));
    if (!hwx_value(t, HWX_F_SRC_LOC, 0)) sb_puts(b, "; source in L2");
    if (!hwx_value(t, HWX_F_DST_LOC, 0)) sb_puts(b, "; result stays in L2");
}

static void put_number(strbuf *b, const hwx_bits *f, uint32_t v, bool json)
{
    float x;
    if (f->kind == KIND_H) x = (float)f16_to_f64((uint16_t)v);
    else if (f->kind == KIND_S) memcpy(&x, &v, sizeof x);
    else {
        sb_printf(b, !json && (f->kind == KIND_B || v > 0xffff) ? "0x%x" : "%u", v);
        return;
    }
    if (x - x == 0 || !json) sb_printf(b, "%.9g", (double)x); /* JSON has no infinity */
    else sb_printf(b, "\"%.9g\"", (double)x);
}

/* Fields of one register, and what is left over of its word. In text only those that are not 0. */
static void put_fields(strbuf *b, const hwx_reg *r, uint32_t word, bool json)
{
    uint32_t rest = word;
    int n = 0;
    for (int f = 0; f < HWX_F_COUNT; f++) {
        const hwx_bits *x = &hwx_bits_rows[f];
        uint32_t v = bits_get(x, word);
        if (x->addr != r->addr) continue;
        rest &= ~bits_mask(x);
        if (!json && (!v || (x->hi == 31 && !x->lo && x->kind == KIND_U))) continue;
        const char *name = hwx_value_name((hwx_field)f, v);
        if (json) sb_printf(b, "%s\"%s\":", n++ ? "," : "", x->name);
        else sb_printf(b, "%s%s ", n++ ? ", " : "  ", x->name);
        put_number(b, x, v, json);
        if (name && !json) sb_printf(b, " (%s)", name);
    }
    if (rest && json) sb_printf(b, "%s\"other\":%u", n ? "," : "", rest);
    else if (rest) sb_printf(b, "%sother bits 0x%x", n ? ", " : "  ", rest);
}

static void json_register(strbuf *b, size_t task, uint32_t addr, uint32_t word)
{
    unsigned i = 0;
    const hwx_reg *r = hwx_reg_of(addr, &i);
    bool head = addr >= HWX_HEAD;
    sb_printf(b, "{\"kind\":\"%s\",\"task\":%zu,\"address\":%u", head ? "header" : "register", task,
              head ? addr - HWX_HEAD : addr);
    put_str(b, "name", r ? r->name : "");
    if (r && r->n > 1) sb_printf(b, ",\"index\":%u", i);
    sb_printf(b, ",\"word\":%u,\"fields\":{", word);
    if (r) put_fields(b, r, word, true);
    sb_puts(b, "}}\n");
}

/* Runs of one register on one line, unless its words have fields to show. */
static uint32_t text_registers(strbuf *b, uint32_t addr, const uint32_t *word, uint32_t left)
{
    unsigned i = 0;
    const hwx_reg *r = hwx_reg_of(addr, &i);
    uint32_t n = r ? MIN(left, r->n - i) : 1;
    bool head = addr >= HWX_HEAD;
    sb_printf(b, "    %s0x%05x %-18s", head ? "h" : " ", head ? addr - HWX_HEAD : addr, r ? r->name : "?");
    for (uint32_t k = 0; k < n; k++) sb_printf(b, n > 1 ? " %x" : " %08x", word[k]);
    if (n == 1 && r) put_fields(b, r, *word, false);
    sb_putc(b, '\n');
    return n;
}

static void dump_task(const hwx_task *t, size_t index, bool json, strbuf *b)
{
    if (json) {
        strbuf s = { 0 };
        put_summary(&s, t);
        sb_printf(b, "{\"kind\":\"task\",\"task\":%zu,\"offset\":%zu,\"bytes\":%u,\"records\":%zu", index, t->at,
                  t->bytes, t->n_rec);
        put_str(b, "what", s.at && !s.oom ? s.at : "");
        if (t->has_wait) sb_printf(b, ",\"waits_for\":%u", t->wait & 0xffff);
        sb_puts(b, "}\n");
        b->oom = b->oom || s.oom;
        sb_free(&s);
        for (uint32_t i = 0; i < HWX_HEAD_WORDS; i++) json_register(b, index, HWX_HEAD + 4 * i, t->head[i]);
        for (size_t k = 0; k < t->n_rec; k++)
            for (uint32_t i = 0; i < t->rec[k].n; i++)
                json_register(b, index, t->rec[k].addr + 4 * i, t->rec[k].word[i]);
        return;
    }
    sb_printf(b, "task %zu at 0x%zx, 0x%x bytes: ", index, t->at, t->bytes);
    put_summary(b, t);
    sb_putc(b, '\n');
    for (uint32_t i = 0; i < HWX_HEAD_WORDS; i++) text_registers(b, HWX_HEAD + 4 * i, &t->head[i], 1);
    if (t->has_wait) sb_printf(b, "    waits for task %u\n", t->wait & 0xffff);
    for (size_t k = 0; k < t->n_rec; k++) {
        const hwx_regs *r = &t->rec[k];
        const char *group = "";
        for (size_t g = 1; g < n_hwx_groups; g++)
            if (r->addr >= hwx_group_rows[g].addr && r->addr - hwx_group_rows[g].addr < 4 * hwx_group_rows[g].n)
                group = hwx_group_rows[g].name;
        sb_printf(b, r->n ? "  record 0x%05x, %u words  %s\n" : "  padding\n", r->addr, r->n, group);
        for (uint32_t i = 0; i < r->n;) i += text_registers(b, r->addr + 4 * i, r->word + i, r->n - i);
    }
}

void hwx_dump_tasks(const hwx_task *t, size_t n, const char *format, strbuf *b)
{
    for (size_t i = 0; i < n && !b->oom; i++) dump_task(&t[i], i, !strcmp(format, "json"), b);
}

/* ---- container ---- */

static void json_container(const hwx_file *f, strbuf *b)
{
    const hwx_image *im = &f->image;
    char type[16];
    sb_printf(
        b,
        "{\"kind\":\"file\",\"bytes\":%zu,\"chip\":\"%s\",\"subtype\":%u,\"form\":\"%s\",\"commands\":%zu,\"command_bytes\":%u,\"flags\":%u,\"tasks\":%u",
        f->n_bytes, hwx_subtype_name(im->subtype), im->subtype, im->form->name, f->command.n, f->command_bytes,
        f->flags, im->n_tasks);
    put_str(b, "procedure", im->procedure);
    put_str(b, "ident", im->ident);
    sb_puts(b, "}\n");
    for (size_t i = 0; i < f->command.n; i++) {
        const char *what = hwx_command_what(f->command.at[i].cmd);
        sb_printf(b, "{\"kind\":\"command\",\"offset\":%zu,\"cmd\":%u,\"size\":%u", f->command.at[i].at,
                  f->command.at[i].cmd, f->command.at[i].size);
        put_str(b, "what", what ? what : "unknown");
        sb_puts(b, "}\n");
    }
    for (size_t i = 0; i < f->segment.n; i++) {
        const hwx_segment *s = &f->segment.at[i];
        sb_printf(
            b,
            "{\"kind\":\"segment\",\"address\":%llu,\"bytes\":%llu,\"offset\":%llu,\"file_bytes\":%llu,\"protection\":%u,\"flags\":%u",
            ULL(s->address), ULL(s->bytes), ULL(s->at), ULL(s->file_bytes), s->protection, s->flags);
        put_str(b, "name", s->name);
        sb_puts(b, "}\n");
        for (size_t k = 0; k < s->n_sections; k++) {
            const hwx_section *e = &f->section.at[s->first_section + k];
            sb_printf(
                b,
                "{\"kind\":\"section\",\"address\":%llu,\"bytes\":%llu,\"offset\":%u,\"align\":%u,\"relocations\":%u,\"flags\":%u",
                ULL(e->address), ULL(e->bytes), e->at, e->align, e->n_relocs, e->flags);
            put_str(b, "segment", s->name);
            put_str(b, "name", e->name);
            sb_puts(b, "}\n");
        }
    }
    for (size_t i = 0; i < im->n_tensor; i++) {
        const hwx_tensor *t = &im->tensor[i];
        type_name(t->type, type);
        sb_printf(
            b,
            "{\"kind\":\"tensor\",\"side\":\"%s\",\"slot\":%d,\"address\":%llu,\"type\":\"%s\",\"dims\":[%u,%u,%u,%u],\"strides\":[%llu,%llu,%llu,%llu],\"bytes\":%llu",
            side_name(t->side), t->slot, ULL(t->address), type, t->dim[0], t->dim[1], t->dim[2], t->dim[3],
            ULL(t->batch), ULL(t->plane), ULL(t->row), ULL(t->elem), ULL(t->bytes));
        put_str(b, "name", t->name);
        sb_puts(b, "}\n");
    }
    for (size_t i = 0; i < f->symbol.n; i++) {
        const hwx_symbol *s = &f->symbol.at[i];
        sb_printf(b, "{\"kind\":\"symbol\",\"type\":%u,\"section\":%u,\"desc\":%u,\"value\":%llu", s->type, s->section,
                  s->desc, ULL(s->value));
        put_str(b, "name", s->name);
        sb_puts(b, "}\n");
    }
    for (size_t i = 0; i < f->reloc.n; i++)
        sb_printf(b, "{\"kind\":\"relocation\",\"address\":%u,\"info\":%u}\n", f->reloc.at[i].address,
                  f->reloc.at[i].info);
}

static void text_container(const hwx_file *f, strbuf *b)
{
    const hwx_image *im = &f->image;
    char type[16];
    sb_printf(b, "%s program, container form %s: 0x%zx bytes, %zu load commands in 0x%x bytes, flags 0x%x, procedure ",
              hwx_subtype_name(im->subtype), im->form->name, f->n_bytes, f->command.n, f->command_bytes, f->flags);
    put_safe(b, im->procedure);
    sb_putc(b, '\n');
    for (const char *p = im->ident; *p;) {
        size_t n = strcspn(p, "\n");
        char line[200];
        snprintf(line, sizeof line, "%.*s", (int)MIN(n, sizeof line - 1), p);
        sb_puts(b, "  | ");
        put_safe(b, line + strspn(line, "\t"));
        sb_putc(b, '\n');
        p += n + (p[n] == '\n');
    }
    for (size_t i = 0; i < f->command.n; i++)
        if (!hwx_command_what(f->command.at[i].cmd))
            sb_printf(b, "command 0x%x at 0x%zx, 0x%x bytes: unknown, skipped\n", f->command.at[i].cmd,
                      f->command.at[i].at, f->command.at[i].size);
    for (size_t i = 0; i < f->segment.n; i++) {
        const hwx_segment *s = &f->segment.at[i];
        sb_puts(b, "segment ");
        put_safe(b, s->name);
        sb_printf(b, " at 0x%llx, 0x%llx bytes, file 0x%llx + 0x%llx, protection %u, flags %u\n", ULL(s->address),
                  ULL(s->bytes), ULL(s->at), ULL(s->file_bytes), s->protection, s->flags);
        for (size_t k = 0; k < s->n_sections; k++) {
            const hwx_section *e = &f->section.at[s->first_section + k];
            sb_puts(b, "  section ");
            put_safe(b, e->name);
            sb_printf(b, " at 0x%llx, 0x%llx bytes, file 0x%x, align 2^%u, %u relocations, flags 0x%x\n",
                      ULL(e->address), ULL(e->bytes), e->at, e->align, e->n_relocs, e->flags);
        }
    }
    for (size_t i = 0; i < im->n_tensor; i++) {
        const hwx_tensor *t = &im->tensor[i];
        type_name(t->type, type);
        sb_printf(b, "%s ", side_name(t->side));
        put_safe(b, t->name);
        sb_printf(b, ": %s [%u, %u, %u, %u], strides %llu %llu %llu %llu, slot %d at 0x%llx\n", type, t->dim[0],
                  t->dim[1], t->dim[2], t->dim[3], ULL(t->batch), ULL(t->plane), ULL(t->row), ULL(t->elem), t->slot,
                  ULL(t->address));
    }
    sb_printf(b, "tasks: %u in 0x%zx bytes\nkernel data: 0x%zx bytes\n", im->n_tasks, im->n_text, im->n_kernel);
    for (size_t i = 0; i < im->n_kname; i++) {
        sb_printf(b, "  0x%llx ", ULL(im->kname[i].at));
        put_safe(b, im->kname[i].name);
        sb_putc(b, '\n');
    }
    sb_printf(b, "symbols: %zu, relocations: %zu\n", f->symbol.n, f->reloc.n);
    if (im->subtype != HWX_H13)
        sb_printf(b, "the registers of %s are not known: its tasks are not decoded\n", hwx_subtype_name(im->subtype));
}

/* A table behind a task that uses one. */
static void dump_table(const hwx_file *f, size_t task, bool json, strbuf *b)
{
    const hwx_task *t = &f->task[task];
    uint32_t at, bytes;
    if (hwx_value(t, HWX_F_NONLINEAR, 0) != 2 || !hwx_value(t, HWX_F_NO_KERNEL, 0) || !hwx_channel(t, 0, &at, &bytes) ||
        bytes < 2 * HWX_TABLE_WORDS)
        return;
    const unsigned char *p = f->image.kernel + at;
    uint32_t mode = (uint32_t)le_get(p + 2 * (HWX_TABLE_WORDS - 1), 2);
    const char *family = "unknown";
    for (size_t i = 0; i < n_hwx_families; i++)
        if (hwx_family_rows[i].number == (mode & 15)) family = hwx_family_rows[i].name;
    if (json) sb_printf(b, "{\"kind\":\"table\",\"task\":%zu,\"offset\":%u,\"family\":\"%s\"", task, at, family);
    else sb_printf(b, "table at 0x%x of task %zu: %s\n", at, task, family);
    for (size_t i = 0; i < n_hwx_halves; i++) {
        const hwx_half *h = &hwx_half_rows[i];
        bool real = h->first < HWX_TABLE_WORDS - 2;
        sb_printf(b, json ? ",\"%s\":%s" : "    %-13s%s", h->name, json && h->n > 1 ? "[" : "");
        for (uint32_t k = 0; k < h->n; k++) {
            uint16_t w = (uint16_t)le_get(p + 2 * (h->first + k), 2);
            double x = f16_to_f64(w);
            sb_puts(b, json ? (k ? "," : "") : " ");
            if (!real) sb_printf(b, "%d", h->first == HWX_TABLE_WORDS - 2 ? (int)(int16_t)w : (int)w);
            else sb_printf(b, json && x - x != 0 ? "\"%.9g\"" : "%.9g", x);
        }
        sb_puts(b, json ? (h->n > 1 ? "]" : "") : "\n");
    }
    if (json) sb_puts(b, "}\n");
}

void hwx_dump(const hwx_file *f, const char *format, strbuf *b)
{
    bool json = !strcmp(format, "json");
    if (json) json_container(f, b);
    else text_container(f, b);
    for (size_t i = 0; i < f->n_task && !b->oom; i++) {
        dump_task(&f->task[i], i, json, b);
        dump_table(f, i, json, b);
    }
}
