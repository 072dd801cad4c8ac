/* hwx_int.h: what the files of this folder share: little-endian numbers by field, and the rows of the tables. */
#ifndef HWX_HWX_INT_H
#define HWX_HWX_INT_H

#include "hwx/hwx.h"

#define HWX_BASE 0x30000000ull /* first address of a program */
enum { HWX_KERNEL_ALIGN = 64, HWX_EMPTY_CONST = 0x4000 };

static inline uint64_t le_get(const unsigned char *p, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}
static inline uint32_t le32(const unsigned char *p) { return (uint32_t)le_get(p, 4); }
static inline void le_put(unsigned char *p, unsigned bytes, uint64_t v)
{
    for (unsigned i = 0; i < bytes; i++) p[i] = (unsigned char)(v >> 8 * i);
}

/* ---- container.def ---- */
typedef enum {
#define STRUCT(id, ...) HWX_S_##id,
#define FIELD(...)
#define COMMAND(...)
#include "hwx/container.def"
#undef STRUCT
#undef FIELD
#undef COMMAND
    HWX_S_COUNT
} hwx_struct;
typedef enum {
#define STRUCT(...)
#define FIELD(s, id, ...) HWX_C_##s##_##id,
#define COMMAND(...)
#include "hwx/container.def"
#undef STRUCT
#undef FIELD
#undef COMMAND
    HWX_C_COUNT
} hwx_part;
enum {
#define STRUCT(...)
#define FIELD(...)
#define COMMAND(id, number, what) HWX_LC_##id = number,
#include "hwx/container.def"
#undef STRUCT
#undef FIELD
#undef COMMAND
};
typedef struct {
    hwx_struct of;
    const char *name;
    uint32_t at, bytes;
    const char *what;
} hwx_part_row;
typedef struct {
    const char *title;
    uint32_t bytes;
    const char *what;
} hwx_struct_row;
extern const hwx_part_row hwx_part_rows[HWX_C_COUNT];
extern const hwx_struct_row hwx_struct_rows[HWX_S_COUNT];
const char *hwx_command_what(uint32_t cmd); /* NULL: unknown */

/* s: start of the structure */
static inline uint64_t part_get(const unsigned char *s, hwx_part p)
{
    return le_get(s + hwx_part_rows[p].at, hwx_part_rows[p].bytes);
}
static inline uint32_t part32(const unsigned char *s, hwx_part p) { return (uint32_t)part_get(s, p); }
static inline void part_put(unsigned char *s, hwx_part p, uint64_t v)
{
    le_put(s + hwx_part_rows[p].at, hwx_part_rows[p].bytes, v);
}
#define PART(s, structure, field)        part_get((s), HWX_C_##structure##_##field)
#define PART32(s, structure, field)      part32((s), HWX_C_##structure##_##field)
#define PART_PUT(s, structure, field, v) part_put((s), HWX_C_##structure##_##field, (v))
#define PART_AT(structure, field) (hwx_part_rows[HWX_C_##structure##_##field].at)
#define STRUCT_BYTES(structure) (hwx_struct_rows[HWX_S_##structure].bytes)

/* ---- forms.def ---- */
typedef struct {
    bool compact, off, group;
    uint32_t log_last, log_other, debug_one, debug_first, debug_middle, debug_last;
} hwx_style;
const hwx_style *hwx_style_of(const hwx_form *f);
const char *hwx_type_text(uint32_t number); /* NULL past the end */

/* ---- regs.def ---- */
typedef enum { KIND_U, KIND_B, KIND_H, KIND_S } hwx_bits_kind;
typedef struct {
    const char *name;
    uint32_t addr;
    uint8_t hi, lo;
    hwx_bits_kind kind;
    const char *what;
} hwx_bits;
typedef struct {
    uint32_t addr, n;
    const char *name, *what;
} hwx_reg;
typedef struct {
    uint32_t addr, n;
    const char *name, *what;
} hwx_group;
extern const hwx_bits hwx_bits_rows[HWX_F_COUNT];
extern const hwx_reg hwx_reg_rows[];
extern const hwx_group hwx_group_rows[];
extern const size_t n_hwx_regs, n_hwx_groups;
const hwx_reg *hwx_reg_of(uint32_t addr, unsigned *i); /* NULL: no row */
const char *hwx_bits_kind_name(hwx_bits_kind k);
typedef struct {
    hwx_field of;
    const char *name;
    uint8_t hi, lo;
} hwx_later;
extern const hwx_later hwx_later_rows[];
extern const size_t n_hwx_later;
static inline uint32_t bits_mask(const hwx_bits *b)
{
    return (uint32_t)((((uint64_t)1 << (b->hi - b->lo + 1)) - 1) << b->lo);
}
static inline uint32_t bits_get(const hwx_bits *b, uint32_t word)
{
    return b->kind == KIND_B ? word & bits_mask(b) : (word & bits_mask(b)) >> b->lo;
}

/* ---- table.def ---- */
typedef struct {
    uint32_t first, n;
    const char *name, *what;
} hwx_half;
typedef struct {
    uint32_t number;
    const char *name, *place, *result;
} hwx_family;
extern const hwx_half hwx_half_rows[];
extern const hwx_family hwx_family_rows[];
extern const size_t n_hwx_halves, n_hwx_families;

/* Where the kernel data of a decoded task comes from the program's own section: channels of slot 1. */
bool hwx_channel(const hwx_task *t, unsigned i, uint32_t *at, uint32_t *bytes);

#endif
