/* facts_format.c: what was published about program files, against files that src/hwx writes and reads back.
 * In: rows on containers, task descriptors, words and weight banks.  Out: what stands in a file of the same program.
 *
 * The programs are those of hwx/samples.c: public files rebuilt from their parameters, and two of which only parts
 * are published. */
#include "facts/facts_int.h"
#include "hwx/hwx.h"

/* The engine's record of sigmoid: the one table that a public file holds. */
static const uint16_t *sigmoid_words(void)
{
    static const struct {
        const char *name;
        uint16_t word[HWX_TABLE_WORDS];
    } tables[] = {
#define TABLE(id, ...) { #id, { __VA_ARGS__ } },
#define COMPOSED(id)
#include "engine/tables.def"
#undef TABLE
#undef COMPOSED
    };
    for (size_t i = 0; i < COUNT(tables); i++)
        if (!strcmp(tables[i].name, "sigmoid")) return tables[i].word;
    return NULL;
}

/* A sample as a file, read back. Free with drop. */
typedef struct {
    strbuf bytes;
    hwx_file file;
} sample_file;

static an_status load(fx *f, const char *name, sample_file *s)
{
    hwx_image im;
    *s = (sample_file){ 0 };
    TRY(hwx_sample(&f->mem, name, sigmoid_words(), &im, f->d));
    an_status st = hwx_write(&im, &s->bytes, f->d);
    if (!st) st = hwx_read(s->bytes.at, s->bytes.n, &s->file, f->d);
    return st;
}

static void drop(sample_file *s)
{
    hwx_close(&s->file);
    sb_free(&s->bytes);
}

static uint32_t word_at(const void *p, size_t at)
{
    const unsigned char *b = (const unsigned char *)p + at;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static uint32_t arg32(const fx *f, int i) { return (uint32_t)fx_arg(f, i); }

/* ---- container ---- */

/* args: the first bytes */
an_status fact_container_magic(fx *f)
{
    bool ok = true;
    const unsigned char *b = NULL;
    char got[48] = "";
    for (size_t i = 0; i < hwx_sample_count(); i++) {
        sample_file s;
        an_status st = load(f, hwx_sample_name(i), &s);
        if (!st) {
            b = (const unsigned char *)s.bytes.at;
            for (int k = 0; k < 4; k++) ok = ok && b[k] == arg32(f, k);
            snprintf(got, sizeof got, "%02X %02X %02X %02X (0x%08x)", b[0], b[1], b[2], b[3], word_at(b, 0));
        }
        drop(&s);
        TRY(st);
    }
    return fx_verdict(f, ok, "%s", got);
}

/* text: sample. args: words 1 to 6 of the header. The bytes of load commands hold the compiler's banner, which is
 * not published whole. */
an_status fact_container_header(fx *f)
{
    sample_file s;
    an_status st = load(f, f->row->text, &s);
    if (st) return drop(&s), st;
    uint32_t w[6], banner = 0;
    bool ok = true;
    for (int i = 0; i < 6; i++) w[i] = word_at(s.bytes.at, 4 + 4 * (size_t)i);
    for (size_t i = 0; i < s.file.command.n; i++)
        if (s.file.command.at[i].cmd == 8) banner = s.file.command.at[i].size;
    drop(&s);
    for (int i = 0; i < 6; i++) ok = ok && (i == 4 || w[i] == arg32(f, i));
    uint32_t rest = w[4] - banner, want = arg32(f, 4);
    ok = ok && want > rest && (want - rest) % 8 == 0;
    if (!ok)
        return fx_verdict(f, false, "cputype 0x%x, subtype %u, type %u, %u commands, 0x%x bytes, flags 0x%x", w[0],
                          w[1], w[2], w[3], w[4], w[5]);
    return fx_skip(
        f,
        "cputype 0x%x, subtype %u, type %u, %u commands, flags 0x%x; 0x%x bytes of commands beside the banner, which leaves it 0x%x",
        w[0], w[1], w[2], w[3], w[5], rest, want - rest);
}

/* text: sample, then names of segments or sections. args: address, bytes and protection of each */
an_status fact_segment_map(fx *f)
{
    sample_file s;
    char name[24];
    const char *p = f->row->text + strcspn(f->row->text, " ");
    snprintf(name, sizeof name, "%.*s", (int)(p - f->row->text), f->row->text);
    an_status st = load(f, name, &s);
    strbuf b = { 0 };
    bool ok = !st;
    for (int i = 0; !st && *(p += strspn(p, " ")); i++) {
        size_t n = strcspn(p, " ");
        bool found = false;
        for (size_t k = 0; k < s.file.segment.n; k++) {
            const hwx_segment *g = &s.file.segment.at[k];
            const hwx_section *e = g->n_sections ? &s.file.section.at[g->first_section] : NULL;
            const char *own = e ? e->name : g->name;
            if (strlen(own) != n || strncmp(own, p, n)) continue;
            uint64_t address = e ? e->address : g->address, bytes = e ? e->bytes : g->bytes;
            ok = ok && address == (uint64_t)fx_arg(f, 3 * i) && bytes == (uint64_t)fx_arg(f, 3 * i + 1) &&
                 g->protection == arg32(f, 3 * i + 2);
            sb_printf(&b, "%s%s 0x%llx + 0x%llx (%u)", i ? ", " : "", own, (unsigned long long)address,
                      (unsigned long long)bytes, g->protection);
            found = true;
        }
        ok = ok && found;
        p += n;
    }
    size_t segments = s.file.segment.n;
    drop(&s);
    if (!st) st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s; %zu segments", b.at, segments);
    sb_free(&b);
    return st;
}

/* text: sample. args: bytes of tasks, their number; then runs of words: offset, count, first, step */
an_status fact_task_stream(fx *f)
{
    sample_file s;
    an_status st = load(f, f->row->text, &s);
    if (st) return drop(&s), st;
    const hwx_image *im = &s.file.image;
    size_t bytes = im->n_text, tasks = s.file.n_task, words = 0, wrong = 0;
    bool ok = bytes == (size_t)fx_arg(f, 0) && tasks == (size_t)fx_arg(f, 1);
    for (int i = 2; ok && i + 3 < f->row->n_arg; i += 4)
        for (uint32_t k = 0; k < arg32(f, i + 1); k++, words++) {
            size_t at = (size_t)fx_arg(f, i) + 4 * (size_t)k;
            wrong += at + 4 > bytes || word_at(im->text, at) != arg32(f, i + 2) + k * arg32(f, i + 3);
        }
    drop(&s);
    return fx_verdict(f, ok && !wrong, "0x%zx bytes, %zu tasks; %zu of %zu published words", bytes, tasks,
                      words - wrong, words);
}

/* text: sample. args: where its tasks start */
an_status fact_task_chain(fx *f)
{
    sample_file s;
    an_status st = load(f, f->row->text, &s);
    strbuf b = { 0 };
    bool ok = !st && s.file.n_task == (size_t)f->row->n_arg;
    uint32_t at = 0;
    for (size_t i = 0; !st && i < s.file.n_task; i++) { /* by the pointers, as the engine follows them */
        ok = ok && at == arg32(f, (int)i) && s.file.task[i].at == at;
        sb_printf(&b, "%s0x%03x", i ? ", " : "", at);
        at = hwx_value(&s.file.task[i], HWX_F_NEXT_POINTER, 0);
    }
    drop(&s);
    if (!st) st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok && !at, "%s", b.at);
    sb_free(&b);
    return st;
}

/* "s8192n s1024c s64h s2w" out of a shape symbol */
static void strides_of(const char *symbol, strbuf *b)
{
    for (const char *p = strchr(symbol, ':'); p && (p = strstr(p, "=s")); p++) {
        size_t n = strcspn(p + 1, ":");
        if (b->n && b->at[b->n - 1] != ' ') sb_putc(b, ' ');
        sb_putn(b, p + 1, n);
    }
}

/* text: sample; then what its shapes say, each after a bar */
an_status fact_shape_strides(fx *f)
{
    sample_file s;
    char name[24];
    size_t n = strcspn(f->row->text, "|");
    snprintf(name, sizeof name, "%.*s", (int)n, f->row->text);
    an_status st = load(f, name, &s);
    strbuf b = { 0 };
    for (size_t i = 0; !st && i < s.file.symbol.n; i++) {
        strbuf one = { 0 };
        if (s.file.symbol.at[i].type != 0x20) continue;
        strides_of(s.file.symbol.at[i].name, &one);
        if (one.oom) b.oom = true;
        sb_printf(&b, "|%s", one.at ? one.at : "");
        sb_free(&one);
    }
    drop(&s);
    if (!st)
        st = b.oom ? diag_nomem(f->d)
                   : fx_verdict(f, b.at && !strcmp(b.at, f->row->text + n), "%s", b.at ? b.at + 1 : "");
    sb_free(&b);
    return st;
}

/* ---- words ---- */

static const struct {
    const char *chip;
    uint32_t subtype;
} generations[] = { { "m1", 4 }, { "m2", 5 }, { "m3", 6 }, { "m4", 7 }, { "m5", 9 } };

/* args: the word of a 3 by 3 convolution with padding 1 on each chip of the row. On the first it is also encoded in
 * a task. */
an_status fact_conv_word(fx *f)
{
    hwx_geometry g = { .kw = 3, .kh = 3, .sx = 1, .sy = 1, .px = 1, .py = 1 };
    strbuf b = { 0 };
    bool ok = true;
    an_status st = AN_OK;
    for (int i = 0; !st && fx_chip(f, i); i++) {
        uint32_t word = 0;
        size_t k = 0;
        while (k + 1 < COUNT(generations) && strcmp(generations[k].chip, fx_chip(f, i))) k++;
        st = hwx_conv_word(generations[k].subtype, &g, &word, f->d);
        ok = ok && word == arg32(f, i);
        sb_printf(&b, "%s%s 0x%08x", i ? ", " : "", fx_chip(f, i), word);
    }
    sample_file s = { 0 };
    if (!st) st = load(f, f->row->text, &s);
    if (!st) {
        const uint32_t *w = hwx_word(&s.file.task[0], 0x1c);
        ok = ok && w && *w == arg32(f, 0);
    }
    drop(&s);
    if (!st) st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s", b.at);
    sb_free(&b);
    return st;
}

/* The geometry word of a product with a constant matrix, out of a task that newer compilers' rules make. */
static an_status product_word(fx *f, int64_t rows, int64_t columns, uint32_t *word)
{
    hwx_weights shape = { .cout = columns, .cin = rows, .kh = 1, .kw = 1, .hin = 1, .win = 1, .product = true };
    uint16_t *w = TAKE(&f->mem, uint16_t, (size_t)(rows * columns));
    strbuf kernel = { 0 };
    hwx_streams st;
    hwx_task *t;
    if (!w) return diag_nomem(f->d);
    an_status status = hwx_pack(&shape, w, NULL, &kernel, &st, f->d);
    sb_free(&kernel);
    TRY(status);
    hwx_layer l = { .kind = HWX_CONV, .conv = { .kw = 1, .kh = 1, .sx = 1, .sy = 1 }, .c = rows, .h = 1, .w = 1,
                    .cout = columns, .hout = 1, .wout = 1, .src = 5, .dst = 4, .streams = &st };
    TRY(hwx_encode(&f->mem, hwx_form_named("26"), &l, 1, &t, f->d));
    const uint32_t *at = hwx_word(t, 0x1c);
    *word = at ? *at : 0;
    return AN_OK;
}

/* text: sample whose second task is a reduction. args: its word, and that of a product; rows of the matrix, then
 * columns … */
an_status fact_task_words(fx *f)
{
    enum { COLUMNS = 3 };
    sample_file s;
    an_status st = load(f, f->row->text, &s);
    uint32_t mean = 0, word = 0;
    if (!st && s.file.n_task > 1) {
        const uint32_t *w = hwx_word(&s.file.task[1], 0x1c);
        mean = w ? *w : 0;
    }
    drop(&s);
    TRY(st);
    bool ok = mean == arg32(f, 0);
    for (int i = COLUMNS; i < f->row->n_arg && ok; i++) {
        TRY(product_word(f, (int64_t)fx_arg(f, 2), (int64_t)fx_arg(f, i), &word));
        ok = word == arg32(f, 1);
    }
    return fx_verdict(f, ok, "0x%08x / 0x%08x", mean, word);
}

/* ---- sizes that only one generation's files show ---- */

/* text: sample. args: bytes of a record */
an_status fact_base_stride(fx *f)
{
    sample_file s;
    an_status st = load(f, f->row->text, &s);
    if (st) return drop(&s), st;
    uint32_t bytes = 0;
    for (size_t i = 0; i < s.file.section.n; i++) {
        const hwx_section *e = &s.file.section.at[i];
        if (e->n_relocs < 2) continue;
        uint32_t second = s.file.reloc.at[1].address; /* where the file holds it */
        for (uint32_t at = e->reloc_at + 4; !bytes && at + 4 <= s.bytes.n; at += 4)
            if (word_at(s.bytes.at, at) == second) bytes = at - e->reloc_at;
    }
    drop(&s);
    if (bytes != arg32(f, 0)) return fx_verdict(f, false, "%u bytes on H13", bytes);
    return fx_skip(f, "%u bytes on H13", bytes);
}

/* text: sample with a convolution. args: bytes of the file on H13 */
an_status fact_image_size(fx *f)
{
    sample_file s;
    an_status st = load(f, f->row->text, &s);
    size_t n = s.bytes.n;
    drop(&s);
    TRY(st);
    if (n != (size_t)fx_arg(f, 0)) return fx_verdict(f, false, "%zu KB on H13", n / 1024);
    return fx_skip(f, "%zu KB on H13", n / 1024);
}

/* ---- weights ---- */

/* text: sample. args: engines, bytes of each, bytes in all that are not zero, their value */
an_status fact_weight_bank(fx *f)
{
    sample_file s;
    an_status st = load(f, f->row->text, &s);
    if (st) return drop(&s), st;
    const hwx_image *im = &s.file.image;
    size_t engines = 0, filled = 0, other = 0, uneven = 0, all = im->n_kernel;
    for (size_t t = 0; t < s.file.n_task; t++)
        for (unsigned i = 0; i < HWX_ENGINES; i++) {
            if (!hwx_value(&s.file.task[t], HWX_F_COEFF_EN, i)) continue;
            uneven += hwx_value(&s.file.task[t], HWX_F_COEFF_BASE, i) != engines * (size_t)fx_arg(f, 1) ||
                      hwx_value(&s.file.task[t], HWX_F_COEFF_SIZE, i) != arg32(f, 1);
            engines++;
        }
    for (size_t i = 0; i < all; i++)
        filled += im->kernel[i] != 0, other += im->kernel[i] && im->kernel[i] != arg32(f, 3);
    drop(&s);
    bool ok = engines == (size_t)fx_arg(f, 0) && !uneven && filled == (size_t)fx_arg(f, 2) && !other &&
              all == engines * (size_t)fx_arg(f, 1);
    return fx_verdict(f, ok, "%zu sub-kernels%s, %zu of %zu bytes nonzero%s", engines, uneven ? "" : " at 512 B stride",
                      filled, all, other ? ", of other values" : ", all 0x3c");
}

/* ---- the public files ---- */

typedef struct {
    const char *name;
    size_t task;
    uint32_t addr, word;
} sample_word;

static const sample_word vectors[] = {
#define NE_WORDS(name, task, kernel, mac, post) { name, task, 0xc800, kernel }, { name, task, 0xc804, mac }, { name, task, 0xc808, 0 }, { name, task, 0xc80c, 0 }, { name, task, 0xc810, post }
#define STRIDES(name, task, row, plane, depth) { name, task, 0x1380c, row }, { name, task, 0x13810, plane }, { name, task, 0x13814, depth }
    { "conv", 0, 0x00, 0x10001 }, { "conv", 0, 0x0c, 3 }, { "conv", 0, 0x10, 3 }, { "conv", 0, 0x1c, 0x5000a021 }, { "conv", 0, 0x34, 0x04144405 }, NE_WORDS("conv", 0, 0x82, 0x101c00, 0x3c00), STRIDES("conv", 0, 0x40, 0x40, 0xc0),
    { "relu", 0, 0x00, 0x1004d }, { "relu", 0, 0x0c, 1 }, { "relu", 0, 0x1c, 0x5000a021 }, { "relu", 0, 0x34, 0x04010101 }, NE_WORDS("relu", 0, 0x80, 0x11000c, 0x3c00), STRIDES("relu", 0, 0xc0, 0xc0, 0xc0),
    { "sigmoid", 0, 0x00, 0x1004d }, { "sigmoid", 0, 0x0c, 1 }, { "sigmoid", 0, 0x1c, 0x5000a021 }, { "sigmoid", 0, 0x34, 0x04010101 }, NE_WORDS("sigmoid", 0, 0x80, 0x12000c, 0x3c00), STRIDES("sigmoid", 0, 0xc0, 0xc0, 0xc0),
    { "sigmoid", 0, 0x1f848, 0 }, { "sigmoid", 0, 0x1f888, 0x80 },
    { "gemm", 0, 0x0c, 512 }, { "gemm", 0, 0x10, 512 }, { "gemm", 0, 0x1c, 0x5000b421 }, { "gemm", 0, 0x34, 0x00244405 }, NE_WORDS("gemm", 0, 0x82, 0x101c00, 0x3c00), { "gemm", 0, 0x13814, 0x8000 },
    { "gemm", 0, 0x1f848 + 60, 15 * 0x8000 }, { "gemm", 0, 0x1f888 + 60, 0x8000 },
    { "sum", 0, 0x0c, 64 }, { "sum", 0, 0x1c, 0x5000a021 }, { "sum", 0, 0x34, 0x33 }, NE_WORDS("sum", 0, 0, 0, 0), { "sum", 0, 0x13814, 0x1000 }, { "sum", 0, 0x8800, 0x80000 },
    { "concat", 0, 0x0c, 16384 }, { "concat", 1, 0x0c, 16 }, { "concat", 0, 0x1c, 0x5000a021 }, { "concat", 1, 0x1c, 0x5000a021 }, { "concat", 0, 0x34, 0x04211101 }, { "concat", 1, 0x34, 0x04211101 },
    NE_WORDS("concat", 0, 0x80, 0x10000c, 0x3c00), NE_WORDS("concat", 1, 0x80, 0x10000c, 0x3c00), { "concat", 0, HWX_HEAD + 28, 0x300 }, { "concat", 1, 0x17804, 0x100000 },
#undef NE_WORDS
#undef STRIDES
};

/* The words of facts 7.6 in files made from the same parameters. */
an_status fact_public_samples(fx *f)
{
    size_t words = 0, good = 0, files = 0;
    bool ok = true;
    for (size_t i = 0; i < hwx_sample_count(); i++) {
        sample_file s;
        bool listed = false;
        an_status st = load(f, hwx_sample_name(i), &s);
        for (size_t k = 0; !st && k < COUNT(vectors); k++) {
            const sample_word *v = &vectors[k];
            if (strcmp(v->name, hwx_sample_name(i))) continue;
            const uint32_t *w = v->task < s.file.n_task ? hwx_word(&s.file.task[v->task], v->addr) : NULL;
            listed = true;
            words++;
            good += w && *w == v->word;
        }
        /* eleven commands with one input, fourteen with two; the tasks right at the base, weights behind them */
        if (!st && listed) {
            files++;
            ok = ok && s.file.command.n == (s.file.image.n_tensor == 2 ? 11u : 14u) &&
                 s.file.slot[HWX_SLOT_TEXT] == 0x30000000 &&
                 s.file.slot[HWX_SLOT_KERNEL] == 0x30000000 + ROUND_UP(s.file.image.n_text, (size_t)64) &&
                 s.file.image.tensor[s.file.image.n_tensor - 1].slot == 4;
        }
        drop(&s);
        TRY(st);
    }
    return fx_verdict(f, ok && good == words && files == 6, "%zu files, %zu of %zu words, containers %s", files, good,
                      words, ok ? "alike" : "differ");
}
