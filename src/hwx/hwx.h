/* hwx.h: the engine's program file: container, tasks, kernel data. Bytes in, structures out, and back.
 *
 *     file     container (header, load commands, segments, symbols): hwx_read, hwx_write
 *     tasks    the register program in __text: hwx_tasks_read, hwx_tasks_write; hwx_get and hwx_put by field
 *     kernel   weights as the 16 engines stream them: hwx_pack, hwx_unpack; activation tables
 *     encode   layers to tasks: hwx_encode
 *
 * Files are hostile: every offset, count and size is checked before it is used, and a message names the thing, the
 * value seen and the value wanted. Layouts live in container.def, forms.def, regs.def and table.def; the printed
 * tables come from the same rows. Registers are decoded for H13 alone: their places move between chip generations. */
#ifndef HWX_HWX_H
#define HWX_HWX_H

#include "base/str.h"

#define HWX_MAGIC 0xBEEFFACEu
enum {
    HWX_H13 = 4,             /* the subtype whose registers are known */
    HWX_SLOTS = 32,          /* buffers a task can name */
    HWX_SLOT_TEXT = 0, HWX_SLOT_KERNEL = 1, HWX_SLOT_SCRATCH1 = 2, HWX_SLOT_SCRATCH0 = 3, HWX_SLOT_TENSOR = 4,
    HWX_ENGINES = 16,
    HWX_PAGE = 0x4000,
    HWX_HEAD = 0x4000000,    /* header words of a task, as if they were registers: beyond the 26 bits of an address */
    HWX_HEAD_WORDS = 10,
    HWX_TASK_ALIGN = 0x100,
    HWX_TASK_BYTES = 0x274,  /* a task that writes every register */
    HWX_FLOAT16 = 5,         /* element type */
};

/* ---- forms: which compiler a container is like ---- */
typedef struct {
    const char *name; /* "4.2.1", "14", "26" */
    uint32_t binding, program_words, tensor_words;
    bool inputs_first, text_first, split;
    uint32_t types;
    bool drop_suffix;
    uint16_t input_desc;
    const char *what;
} hwx_form;
const hwx_form *hwx_form_at(size_t i);           /* NULL past the end */
const hwx_form *hwx_form_named(const char *name); /* NULL: none */
const char *hwx_subtype_name(uint32_t subtype);  /* "H13"; NULL: unknown */

/* ---- the program in a file ---- */
typedef enum { HWX_INPUT = 1, HWX_OUTPUT = 2 } hwx_side;
typedef struct {
    const char *name;
    hwx_side side;
    uint32_t type;                   /* HWX_FLOAT16 */
    uint32_t dim[5];                 /* N C H W D */
    uint64_t batch, plane, row, elem; /* strides, bytes */
    uint64_t bytes;
    uint32_t interleave;
    int slot;
    uint64_t address;                /* read only: the writer lays buffers out itself */
} hwx_tensor;

typedef struct {
    const char *name;
    uint64_t at; /* offset in the kernel data */
} hwx_kernel_name;

typedef struct {
    const hwx_form *form;
    uint32_t subtype;
    const char *procedure, *ident;
    const unsigned char *note;  /* body of the note command; none: n_note 0 */
    size_t n_note;
    const unsigned char *text;  /* tasks */
    size_t n_text;
    uint32_t first_bytes, n_tasks;
    const unsigned char *kernel;
    size_t n_kernel;
    const unsigned char *debug;
    size_t n_debug;
    uint64_t scratch[2];        /* bytes of intermediates 0 and 1, in slots 3 and 2; 0: none */
    const hwx_tensor *tensor;   /* in the order of their segments: inputs, then outputs */
    size_t n_tensor;
    const hwx_kernel_name *kname;
    size_t n_kname;
    uint32_t mark[2];           /* words of the program record whose meaning is unknown */
} hwx_image;

/* A packed float16 tensor of this shape: rows of 64 bytes, nothing between planes. */
hwx_tensor hwx_tensor_of(const char *name, hwx_side side, int64_t c, int64_t h, int64_t w);
/* Slots for the tensors in the form's order, and the unknown words as that compiler sets them. */
void hwx_image_place(hwx_image *im, hwx_tensor *tensor, size_t n);
/* Names of the kernel streams the tasks use, from their content. */
an_status hwx_image_name(arena *a, hwx_image *im, diag *d) MUST_CHECK;
bool hwx_image_same(const hwx_image *x, const hwx_image *y, const char **what);
/* H13 only; appends to nothing: out must be empty */
an_status hwx_write(const hwx_image *im, strbuf *out, diag *d) MUST_CHECK;

/* ---- tasks ---- */
typedef struct {
    uint32_t addr, n; /* n 0: one word of padding */
    uint32_t *word;
} hwx_regs;
typedef struct {
    size_t at;        /* in the text */
    uint32_t bytes;
    uint32_t head[HWX_HEAD_WORDS];
    bool has_wait;
    uint32_t wait;    /* task this one waits for */
    hwx_regs *rec;
    size_t n_rec;
} hwx_task;
/* n_tasks 0: as many as there are. Words live in the arena. */
an_status hwx_tasks_read(arena *a, const unsigned char *text, size_t n, uint32_t first_bytes, size_t n_tasks,
                         hwx_task **out, size_t *n_out, diag *d) MUST_CHECK;
/* Places, numbers and chains tasks: everything in their headers that depends on the others. */
an_status hwx_tasks_link(hwx_task *t, size_t n, diag *d) MUST_CHECK;
an_status hwx_tasks_write(const hwx_task *t, size_t n, strbuf *text, diag *d) MUST_CHECK;
const uint32_t *hwx_word(const hwx_task *t, uint32_t addr); /* NULL: not written by this task */
size_t hwx_word_at(const hwx_task *t, uint32_t addr);       /* byte offset in the task; 0: not written */

/* ---- fields ---- */
typedef enum {
#define BITS(id, ...) HWX_F_##id,
#define GROUP(...)
#define REG(...)
#define VALUE(...)
#define LATER(...)
#include "hwx/regs.def"
#undef BITS
#undef GROUP
#undef REG
#undef VALUE
#undef LATER
    HWX_F_COUNT
} hwx_field;

/* The i-th of a run of registers; false: not written. Fields of kind B give bytes. */
bool hwx_get(const hwx_task *t, hwx_field f, unsigned i, uint32_t *value);
uint32_t hwx_value(const hwx_task *t, hwx_field f, unsigned i); /* 0 when not written */
bool hwx_put(hwx_task *t, hwx_field f, unsigned i, uint64_t value) MUST_CHECK; /* false: does not fit, or not written */
const char *hwx_field_name(hwx_field f);
const char *hwx_value_name(hwx_field f, uint32_t value); /* NULL: none */

/* Geometry word 0x1C of a generation. AN_UNSUPPORTED: a field whose place there is not known. */
typedef struct {
    uint32_t kw, kh, ocg, sx, sy, px, py;
} hwx_geometry;
an_status hwx_conv_word(uint32_t subtype, const hwx_geometry *g, uint32_t *word, diag *d) MUST_CHECK;

/* ---- kernel data ---- */
typedef struct {
    int64_t cout, cin, kh, kw;
    int64_t hin, win; /* of the layer's input: decides how many channels stand side by side */
    bool bias;
    bool product;     /* a constant matrix as newer compilers lay it out: never more than 16 channels side by side */
} hwx_weights;
typedef struct {
    uint32_t at[HWX_ENGINES], bytes[HWX_ENGINES]; /* bytes 0: the engine gets none */
    uint32_t n_used;   /* channels that are on */
    uint32_t ocg;      /* log2 of the channels side by side */
    uint32_t engines;  /* 1, 2, 4, 8, 16 */
} hwx_streams;
/* w[cout][cin][kh][kw] as float16 bits, bias[cout] when the shape has one; appended to out. */
an_status hwx_pack(const hwx_weights *s, const uint16_t *w, const uint16_t *bias, strbuf *out, hwx_streams *st, diag *d)
    MUST_CHECK;
an_status hwx_unpack(const hwx_weights *s, const unsigned char *kernel, size_t n, const hwx_streams *st, uint16_t *w,
                     uint16_t *bias, diag *d) MUST_CHECK;

enum { HWX_TABLE_WORDS = 43, HWX_TABLE_BYTES = 128 };
void hwx_table_put(const uint16_t w[HWX_TABLE_WORDS], strbuf *out); /* 128 bytes */
void hwx_table_streams(uint32_t engines, uint32_t at, hwx_streams *st); /* every engine reads the table there */

/* ---- layers to tasks ---- */
typedef enum { HWX_CONV, HWX_PASS, HWX_PLANAR, HWX_REDUCE } hwx_kind;
enum { HWX_LINEAR, HWX_RELU, HWX_TABLE };            /* nonlinear */
enum { HWX_ADD, HWX_MUL, HWX_MAX, HWX_MIN, HWX_SUB }; /* planar, two sources */
enum { HWX_SUM, HWX_MEAN, HWX_GREATEST };            /* reduction along W */
typedef struct {
    hwx_kind kind;
    int64_t c, h, w;             /* source; the second has the same shape */
    int64_t cout, hout, wout;    /* CONV; elsewhere as the source */
    hwx_geometry conv;           /* CONV; ocg comes from the streams */
    bool bias;
    int nonlinear;               /* CONV, PASS */
    bool two, absolute;          /* PLANAR */
    int op;                      /* PLANAR with two, REDUCE */
    uint16_t scale, offset;      /* PLANAR with one: float16 bits; scale 0: 1 */
    int src, src2, dst;          /* slots */
    uint64_t dst_base;           /* where in the destination; dst_channels: of the whole tensor, 0: these */
    int64_t dst_channels;
    const hwx_streams *streams;  /* CONV and tables; NULL: none */
    bool keep_padding;           /* what lies between rows of the result is not set to zero */
} hwx_layer;
/* As the form's compiler lays tasks out; linked, ready to write. */
an_status hwx_encode(arena *a, const hwx_form *form, const hwx_layer *layer, size_t n, hwx_task **out, diag *d)
    MUST_CHECK;

/* ---- programs that were seen, from their parameters (samples.c) ---- */
size_t hwx_sample_count(void);
const char *hwx_sample_name(size_t i);
/* Everything lives in the arena. table: for the one program that has an activation, sigmoid. */
an_status hwx_sample(arena *a, const char *name, const uint16_t table[HWX_TABLE_WORDS], hwx_image *im, diag *d)
    MUST_CHECK;

/* ---- whole files ---- */
typedef struct {
    uint32_t cmd, size;
    size_t at;
} hwx_command;
typedef struct {
    char name[17], segment[17];
    uint64_t address, bytes;
    uint32_t at, align, reloc_at, n_relocs, flags;
} hwx_section;
typedef struct {
    char name[17];
    uint64_t address, bytes, at, file_bytes;
    uint32_t protection, flags;
    size_t first_section, n_sections; /* in hwx_file.section */
} hwx_segment;
typedef struct {
    const char *name;
    uint8_t type, section;
    uint16_t desc;
    uint64_t value;
} hwx_symbol;
typedef struct {
    uint32_t address, info;
} hwx_reloc;

typedef struct {
    arena mem;
    size_t n_bytes;
    uint32_t command_bytes, flags;
    uint64_t slot[HWX_SLOTS];
    hwx_image image;          /* points into mem and into the bytes */
    VEC(hwx_command) command;
    VEC(hwx_segment) segment;
    VEC(hwx_section) section;
    VEC(hwx_symbol) symbol;
    VEC(hwx_reloc) reloc;
    hwx_task *task;           /* NULL when the generation's registers are not known */
    size_t n_task;
} hwx_file;
/* The bytes must outlive the file. hwx_close in any case. */
an_status hwx_read(const void *bytes, size_t n, hwx_file *f, diag *d) MUST_CHECK;
void hwx_close(hwx_file *f);

/* "text" or "json" (an object per line). */
void hwx_dump(const hwx_file *f, const char *format, strbuf *b);
void hwx_dump_tasks(const hwx_task *t, size_t n, const char *format, strbuf *b);
void hwx_fields_print(strbuf *b, const char *format); /* the tables: "text", "json", "markdown" */

#endif
