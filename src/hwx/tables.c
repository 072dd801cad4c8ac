/* tables.c: the rows of the .def files, and fields of tasks by name.
 * In: container.def, forms.def, regs.def, table.def.  Out: lookups; values of fields, read and set. */
#include "hwx/hwx_int.h"

/* ---- container ---- */

#define COMMAND(...)
const hwx_struct_row hwx_struct_rows[HWX_S_COUNT] = {
#define STRUCT(id, title_, bytes_, what_) [HWX_S_##id] = { .title = title_, .bytes = bytes_, .what = what_ },
#define FIELD(...)
#include "hwx/container.def"
#undef STRUCT
#undef FIELD
};
const hwx_part_row hwx_part_rows[HWX_C_COUNT] = {
#define STRUCT(...)
#define FIELD(s, id, at_, bytes_, what_)                                                                               \
    [HWX_C_##s##_##id] = { .of = HWX_S_##s, .name = #id, .at = at_, .bytes = bytes_, .what = what_ },
#include "hwx/container.def"
#undef FIELD
};
#undef COMMAND

static const struct {
    uint32_t number;
    const char *what;
} commands[] = {
#define FIELD(...)
#define COMMAND(id, number_, what_) { number_, what_ },
#include "hwx/container.def"
#undef STRUCT
#undef FIELD
#undef COMMAND
};

const char *hwx_command_what(uint32_t cmd)
{
    for (size_t i = 0; i < COUNT(commands); i++)
        if (commands[i].number == cmd) return commands[i].what;
    return NULL;
}

/* ---- forms ---- */

enum {
#define FORM(id, ...) FORM_##id,
#define STYLE(...)
#define TYPE(...)
#define SUBTYPE(...)
#include "hwx/forms.def"
#undef FORM
};
static const hwx_form forms[] = {
#define FORM(id, name_, binding_, program_, tensor_, inputs_, text_, split_, types_, drop_, desc_, what_)                                                   \
    [FORM_##id] = { .name = name_, .binding = binding_, .program_words = program_, .tensor_words = tensor_, .inputs_first = inputs_, .text_first = text_, .split = split_, \
                    .types = types_, .drop_suffix = drop_, .input_desc = desc_, .what = what_ },
#include "hwx/forms.def"
#undef FORM
#undef STYLE
};
static const hwx_style styles[] = {
#define FORM(...)
#define STYLE(id, form, compact_, off_, group_, last, other, one, first, middle, end)                                                                        \
    [FORM_##form] = { .compact = compact_, .off = off_, .group = group_, .log_last = last, .log_other = other, .debug_one = one, .debug_first = first,           \
                      .debug_middle = middle, .debug_last = end },
#include "hwx/forms.def"
#undef STYLE
#undef TYPE
};
static const char *const types[] = {
#define STYLE(...)
#define TYPE(number, text) [number - 1] = text,
#include "hwx/forms.def"
#undef TYPE
#undef SUBTYPE
};
static const struct {
    uint32_t number;
    const char *name;
} subtypes[] = {
#define TYPE(...)
#define SUBTYPE(number, name) { number, name },
#include "hwx/forms.def"
#undef FORM
#undef STYLE
#undef TYPE
#undef SUBTYPE
};

const hwx_form *hwx_form_at(size_t i) { return i < COUNT(forms) ? &forms[i] : NULL; }
const hwx_style *hwx_style_of(const hwx_form *f) { return &styles[f - forms]; }
const char *hwx_type_text(uint32_t number) { return number >= 1 && number <= COUNT(types) ? types[number - 1] : NULL; }

const hwx_form *hwx_form_named(const char *name)
{
    for (size_t i = 0; i < COUNT(forms); i++)
        if (!strcmp(forms[i].name, name)) return &forms[i];
    return NULL;
}

const char *hwx_subtype_name(uint32_t subtype)
{
    for (size_t i = 0; i < COUNT(subtypes); i++)
        if (subtypes[i].number == subtype) return subtypes[i].name;
    return NULL;
}

/* ---- registers ---- */

#define VALUE(...)
#define LATER(...)
#define GROUP(...)
#define REG(...)
const hwx_bits hwx_bits_rows[HWX_F_COUNT] = {
#define BITS(id, addr_, name_, hi_, lo_, kind_, what_)                                                                 \
    [HWX_F_##id] = { .name = name_, .addr = addr_, .hi = hi_, .lo = lo_, .kind = KIND_##kind_, .what = what_ },
#include "hwx/regs.def"
#undef BITS
};
#undef REG
#define BITS(...)
const hwx_reg hwx_reg_rows[] = {
#define REG(addr_, n_, name_, what_) { .addr = addr_, .n = n_, .name = name_, .what = what_ },
#include "hwx/regs.def"
#undef REG
};
const size_t n_hwx_regs = COUNT(hwx_reg_rows);
#undef GROUP
#define REG(...)
const hwx_group hwx_group_rows[] = {
#define GROUP(id, addr_, n_, name_, what_) { .addr = addr_, .n = n_, .name = name_, .what = what_ },
#include "hwx/regs.def"
#undef GROUP
};
const size_t n_hwx_groups = COUNT(hwx_group_rows);
#undef VALUE
#define GROUP(...)
static const struct {
    hwx_field of;
    uint32_t value;
    const char *text;
} values[] = {
#define VALUE(id, number, text_) { HWX_F_##id, number, text_ },
#include "hwx/regs.def"
#undef VALUE
};
#undef LATER
#define VALUE(...)
const hwx_later hwx_later_rows[] = {
#define LATER(id, name_, hi_, lo_) { .of = HWX_F_##id, .name = name_, .hi = hi_, .lo = lo_ },
#include "hwx/regs.def"
#undef LATER
};
const size_t n_hwx_later = COUNT(hwx_later_rows);
#undef VALUE
#undef GROUP
#undef REG
#undef BITS

const hwx_reg *hwx_reg_of(uint32_t addr, unsigned *i)
{
    for (size_t k = 0; k < n_hwx_regs; k++) {
        const hwx_reg *r = &hwx_reg_rows[k];
        if (addr < r->addr || addr - r->addr >= 4 * r->n || (addr - r->addr) % 4) continue;
        *i = (addr - r->addr) / 4;
        return r;
    }
    return NULL;
}

const char *hwx_bits_kind_name(hwx_bits_kind k)
{
    static const char *const name[] = { "number", "bytes", "float16", "float32" };
    return name[k];
}

const char *hwx_field_name(hwx_field f) { return hwx_bits_rows[f].name; }

const char *hwx_value_name(hwx_field f, uint32_t value)
{
    for (size_t i = 0; i < COUNT(values); i++)
        if (values[i].of == f && values[i].value == value) return values[i].text;
    return NULL;
}

bool hwx_get(const hwx_task *t, hwx_field f, unsigned i, uint32_t *value)
{
    const hwx_bits *b = &hwx_bits_rows[f];
    const uint32_t *w = hwx_word(t, b->addr + 4 * i);
    if (w) *value = bits_get(b, *w);
    return w != NULL;
}

uint32_t hwx_value(const hwx_task *t, hwx_field f, unsigned i)
{
    uint32_t v = 0;
    (void)hwx_get(t, f, i, &v);
    return v;
}

static bool in_place(uint32_t *word, uint8_t hi, uint8_t lo, bool bytes, uint64_t value)
{
    hwx_bits b = { .hi = hi, .lo = lo };
    uint32_t mask = bits_mask(&b);
    if (bytes ? (value & ~(uint64_t)mask) != 0 : value > mask >> lo) return false;
    *word = (*word & ~mask) | (uint32_t)(bytes ? value : value << lo);
    return true;
}

bool hwx_put(hwx_task *t, hwx_field f, unsigned i, uint64_t value)
{
    const hwx_bits *b = &hwx_bits_rows[f];
    const uint32_t *w = hwx_word(t, b->addr + 4 * i);
    /* the task is the caller's own */
    return w && in_place((uint32_t *)(uintptr_t)w, b->hi, b->lo, b->kind == KIND_B, value);
}

an_status hwx_conv_word(uint32_t subtype, const hwx_geometry *g, uint32_t *word, diag *d)
{
    const struct {
        hwx_field f;
        uint32_t value;
    } part[] = { { HWX_F_KW, g->kw }, { HWX_F_KH, g->kh }, { HWX_F_OCG_SIZE, g->ocg },
                 { HWX_F_SX, g->sx }, { HWX_F_SY, g->sy }, { HWX_F_PX, g->px },
                 { HWX_F_PY, g->py }, { HWX_F_OX, 1 },     { HWX_F_OY, 1 } };
    const char *chip = hwx_subtype_name(subtype);
    if (!chip || subtype < HWX_H13)
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE,
                         "chip generation %u: its geometry word is not known (wanted %d, H13, or later)", subtype,
                         HWX_H13);
    *word = 0;
    for (size_t i = 0; i < COUNT(part); i++) {
        const hwx_bits *b = &hwx_bits_rows[part[i].f];
        uint8_t hi = b->hi, lo = b->lo;
        if (subtype > HWX_H13) {
            size_t k = 0;
            while (k < n_hwx_later && hwx_later_rows[k].of != part[i].f) k++;
            if (k == n_hwx_later) {
                if (!part[i].value) continue; /* wherever it is, it is 0 */
                return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s %u: its place on %s is not known", b->name,
                                 part[i].value, chip);
            }
            hi = hwx_later_rows[k].hi, lo = hwx_later_rows[k].lo;
        }
        if (!in_place(word, hi, lo, false, part[i].value))
            return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s %u does not fit %d bits on %s", b->name, part[i].value,
                             hi - lo + 1, chip);
    }
    return AN_OK;
}

/* ---- activation tables ---- */

const hwx_half hwx_half_rows[] = {
#define HALF(first_, n_, name_, what_) { .first = first_, .n = n_, .name = name_, .what = what_ },
#define FAMILY(...)
#include "hwx/table.def"
#undef HALF
#undef FAMILY
};
const hwx_family hwx_family_rows[] = {
#define HALF(...)
#define FAMILY(number_, name_, place_, result_)                                                                        \
    { .number = number_, .name = name_, .place = place_, .result = result_ },
#include "hwx/table.def"
#undef HALF
#undef FAMILY
};
const size_t n_hwx_halves = COUNT(hwx_half_rows), n_hwx_families = COUNT(hwx_family_rows);
