/* fields.c: the tables in print: container, forms, header and registers, activation tables (docs/hwx.md).
 * In: the rows that reader and writer use.  Out: text, JSON lines, markdown. */
#include "hwx/hwx_int.h"

static void put_cell(strbuf *b, const char *s)
{
    for (; *s; s++) {
        if (strchr("|<*_", *s)) sb_putc(b, '\\');
        sb_putc(b, *s);
    }
}

static void put_text(strbuf *b, const char *key, const char *s)
{
    sb_printf(b, ",\"%s\":", key);
    sb_json(b, s, strlen(s));
}

/* ---- markdown ---- */

static void md_container(strbuf *b)
{
    sb_puts(b, "## Container\n\nLittle-endian. Offsets are from the start of the structure, in bytes.\n");
    for (int s = 0; s < HWX_S_COUNT; s++) {
        sb_printf(b, "\n### %s\n\n", hwx_struct_rows[s].title);
        put_cell(b, hwx_struct_rows[s].what);
        sb_printf(b, ". 0x%x bytes.\n\n| offset | bytes | field | |\n|---|---|---|---|\n", hwx_struct_rows[s].bytes);
        for (int i = 0; i < HWX_C_COUNT; i++) {
            const hwx_part_row *r = &hwx_part_rows[i];
            if (r->of != (hwx_struct)s) continue;
            sb_printf(b, "| 0x%02x | %u | `%s` | ", r->at, r->bytes, r->name);
            put_cell(b, r->what);
            sb_puts(b, " |\n");
        }
    }
    sb_puts(b, "\n### Load commands\n\n| command | |\n|---|---|\n");
    for (uint32_t c = 0; c < 0x100; c++)
        if (hwx_command_what(c)) sb_printf(b, "| 0x%02x | %s |\n", c, hwx_command_what(c));
    sb_puts(b, "\n### Forms\n\nWhat differs between the compilers that write such files.\n\n| form | binding | program record | tensor record | tensor slots | text | kernel data | element types | |\n|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; hwx_form_at(i); i++) {
        const hwx_form *f = hwx_form_at(i);
        sb_printf(b, "| %s | 0x%02x | 0x%x words | 0x%x words | %s first | %s the tensors | %s | %u | %s |\n", f->name,
                  f->binding, f->program_words, f->tensor_words, f->inputs_first ? "inputs" : "outputs",
                  f->text_first ? "before" : "after", f->split ? "own segment" : "in `__TEXT`", f->types, f->what);
    }
    sb_puts(b, "\n### Element types\n\n| number | symbol |\n|---|---|\n");
    for (uint32_t i = 1; hwx_type_text(i); i++) sb_printf(b, "| %u | `%s` |\n", i, hwx_type_text(i));
}

static void md_bits(strbuf *b, const hwx_reg *r)
{
    for (int f = 0; f < HWX_F_COUNT; f++) {
        const hwx_bits *x = &hwx_bits_rows[f];
        if (x->addr != r->addr) continue;
        sb_printf(b, "| | | ");
        sb_printf(b, x->hi == x->lo ? "%d" : "%d:%d", x->hi, x->lo);
        sb_printf(b, " | `%s` | %s | ", x->name, x->kind == KIND_U ? "" : hwx_bits_kind_name(x->kind));
        put_cell(b, x->what);
        bool any = false;
        for (uint32_t v = 0; v < 16; v++) {
            const char *name = hwx_value_name((hwx_field)f, v);
            if (!name) continue;
            sb_printf(b, "%s%u %s", any ? ", " : *x->what ? ": " : "", v, name);
            any = true;
        }
        sb_puts(b, " |\n");
    }
}

static void md_registers(strbuf *b)
{
    sb_puts(b, "\n## Tasks\n\nA task is ten header words, one more word when `TDE` is set (the task it waits for, bits 15:0), and records to its end: a word with count - 1 in bits 31:26 and an "
               "address in 25:0, then that many words for consecutive registers. Tasks start on multiples of 0x100. Registers are those of H13; in fields of kind *bytes* the low bits "
               "are not stored and the number stands in place.\n");
    for (size_t g = 0; g < n_hwx_groups; g++) {
        const hwx_group *x = &hwx_group_rows[g];
        sb_printf(b, "\n### %s\n\n%s", x->name, x->what);
        if (x->addr < HWX_HEAD) sb_printf(b, ": %u words at 0x%05x", x->n, x->addr);
        sb_puts(b, ".\n\n| address | register | bits | field | kind | |\n|---|---|---|---|---|---|\n");
        for (size_t i = 0; i < n_hwx_regs; i++) {
            const hwx_reg *r = &hwx_reg_rows[i];
            if (r->addr < x->addr || r->addr - x->addr >= 4 * x->n) continue;
            sb_printf(b, "| 0x%05x | `%s`", r->addr >= HWX_HEAD ? r->addr - HWX_HEAD : r->addr, r->name);
            if (r->n > 1) sb_printf(b, " × %u", r->n);
            sb_puts(b, " | | | | ");
            put_cell(b, r->what);
            sb_puts(b, " |\n");
            md_bits(b, r);
        }
    }
    sb_puts(b, "\n### ConvCfg from H14 on\n\nWhat is known of later registers: the same word with wider kernel fields. `OCGSize` is elsewhere.\n\n| bits | field |\n|---|---|\n");
    for (size_t i = 0; i < n_hwx_later; i++)
        sb_printf(b, "| %d:%d | `%s` |\n", hwx_later_rows[i].hi, hwx_later_rows[i].lo, hwx_later_rows[i].name);
}

static void md_tables(strbuf *b)
{
    sb_puts(b, "\n## Kernel data\n\nWeights are one stream per engine, each padded to 64 bytes; `src/hwx/kernel.c` says in which order. An activation table is 43 halfwords, float16 but for the last two, in 128 bytes.\n\n"
               "| halfword | field | |\n|---|---|---|\n");
    for (size_t i = 0; i < n_hwx_halves; i++) {
        const hwx_half *h = &hwx_half_rows[i];
        sb_printf(b, h->n > 1 ? "| %u to %u | " : "| %u | ", h->first, h->first + h->n - 1);
        sb_printf(b, "`%s` | ", h->name);
        put_cell(b, h->what);
        sb_puts(b, " |\n");
    }
    sb_puts(b, "\n| family | | place between the knots | result |\n|---|---|---|---|\n");
    for (size_t i = 0; i < n_hwx_families; i++) {
        const hwx_family *f = &hwx_family_rows[i];
        sb_printf(b, "| %u | %s | ", f->number, f->name);
        put_cell(b, f->place);
        sb_puts(b, " | ");
        put_cell(b, f->result);
        sb_puts(b, " |\n");
    }
}

/* ---- lines ---- */

static void line_container(strbuf *b, bool json)
{
    for (int i = 0; i < HWX_C_COUNT; i++) {
        const hwx_part_row *r = &hwx_part_rows[i];
        if (json) {
            sb_printf(b, "{\"kind\":\"container\",\"offset\":%u,\"bytes\":%u", r->at, r->bytes);
            put_text(b, "struct", hwx_struct_rows[r->of].title);
            put_text(b, "name", r->name);
            put_text(b, "what", r->what);
            sb_puts(b, "}\n");
        } else
            sb_printf(b, "%-16s 0x%03x %4u  %-16s %s\n", hwx_struct_rows[r->of].title, r->at, r->bytes, r->name,
                      r->what);
    }
}

static void line_bits(strbuf *b, bool json)
{
    for (int f = 0; f < HWX_F_COUNT; f++) {
        const hwx_bits *x = &hwx_bits_rows[f];
        unsigned i = 0;
        const hwx_reg *r = hwx_reg_of(x->addr, &i);
        bool head = x->addr >= HWX_HEAD;
        uint32_t addr = head ? x->addr - HWX_HEAD : x->addr;
        if (json) {
            sb_printf(b, "{\"kind\":\"%s\",\"address\":%u,\"count\":%u,\"hi\":%d,\"lo\":%d,\"unit\":\"%s\"",
                      head ? "header" : "register", addr, r ? r->n : 1, x->hi, x->lo, hwx_bits_kind_name(x->kind));
            put_text(b, "register", r ? r->name : "");
            put_text(b, "name", x->name);
            put_text(b, "what", x->what);
            sb_puts(b, "}\n");
        } else
            sb_printf(b, "%s0x%05x %-18s %2d:%-2d %-22s %s\n", head ? "h" : " ", addr, r ? r->name : "", x->hi, x->lo,
                      x->name, x->what);
    }
}

void hwx_fields_print(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json");
    if (strcmp(format, "markdown")) {
        line_container(b, json);
        line_bits(b, json);
        return;
    }
    sb_puts(b, "# Program files (hwx)\n\nPrinted by `anneal hwx fields --markdown` from `src/hwx/container.def`, `forms.def`, `regs.def` and `table.def`, the rows the reader and the writer use. "
               "`anneal hwx dump FILE` shows a file in these terms.\n\n");
    md_container(b);
    md_registers(b);
    md_tables(b);
}
