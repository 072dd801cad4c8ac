/* facts_weights.c: compressed weights: what they reconstruct to, and what they save where they stream. In: rows on
 * palette, sparse, int8 and blockwise weights.  Out: results compared byte by byte, and ratios of the cost model. */
#include "check/check.h"
#include "codegen/codegen.h"
#include "facts/facts_int.h"
#include "target/target.h"

#define FILE_AT(type, at) type "(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(" at ")))"

/* ---- reconstruction ---- */

/* The published bytes, read in both spellings of the palette operation. */
an_status fact_palette_nibbles(fx *f)
{
    static const unsigned char packed[2] = { 0x01, 0x10 };
    uint16_t lut[16] = { 0, 0x3c00 };
    blob_writer b = { 0 };
    uint64_t at[3];
    an_status st = blob_add(&b, DT_U4, packed, 2, &at[0], f->d);
    if (!st) st = blob_add(&b, DT_U8, packed, 2, &at[1], f->d);
    if (!st) st = blob_add(&b, DT_F16, lut, sizeof lut, &at[2], f->d);
    if (!st) st = blob_finish(&b, f->d);
    const char *text = st ? NULL : fx_text(f, FX_T("1, 4") " x", "y, z",
        "tensor<uint4, [1, 4]> i = const()[name = string(\"i\"), val = " FILE_AT("tensor<uint4, [1, 4]>", "%llu") "];\n"
        "tensor<fp16, [1, 1, 16, 1]> t = const()[name = string(\"t\"), val = " FILE_AT("tensor<fp16, [1, 1, 16, 1]>", "%llu") "];\n"
        FX_T("1, 4") " a = constexpr_lut_to_dense(indices = i, lut = t)[name = string(\"a\")];\n"
        FX_T("1, 4") " b = constexpr_lut_to_dense()[indices = " FILE_AT("tensor<uint8, [2]>", "%llu") ", lut = " FILE_AT("tensor<fp16, [16]>", "%llu") ", name = string(\"b\"), shape = tensor<uint32, [2]>([1, 4])];\n"
        FX_T("1, 4") " y = mul(x = x, y = a)[name = string(\"y\")];\n" FX_T("1, 4") " z = mul(x = x, y = b)[name = string(\"z\")];",
        (unsigned long long)at[0], (unsigned long long)at[2], (unsigned long long)at[1], (unsigned long long)at[2]);
    fx_val out[2] = { { .name = "y" }, { .name = "z" } };
    if (!st) st = fx_once(f, fx_chip(f, 0), text, &b.bytes, &(fx_val){ "x", fx_fill(f, 4, 1), 4 }, 1, out, 2);
    sb_free(&b.bytes);
    TRY(st);
    bool ok = f->row->n_arg == 4;
    for (int i = 0; ok && i < 4; i++) ok = fx_same(out[0].x[i], fx_arg(f, i)) && fx_same(out[1].x[i], fx_arg(f, i));
    return fx_verdict(f, ok, "bytes 01 10 read as %s", fx_list(f, out[0].x, 4));
}

enum { SP_CIN = 64, SP_COUT = 48, SP_POS = 32 };

/* A layer with 63 % zeros, stored dense and stored sparse: text of either, and the weight file. */
static const char *sparse_layer(fx *f, bool sparse, blob_writer *b, an_status *st)
{
    enum { N = SP_CIN * SP_COUT };
    uint16_t *dense = TAKE(&f->mem, uint16_t, N), *kept = TAKE(&f->mem, uint16_t, N);
    unsigned char *mask = TAKE(&f->mem, unsigned char, N / 8);
    rng r = { .s = 53 };
    size_t n = 0;
    uint64_t at[3];
    if (!dense || !kept || !mask) return *st = diag_nomem(f->d), NULL;
    for (int i = 0; i < N; i++) {
        if (rng_unit(&r) < 0.63) continue;
        dense[i] = kept[n++] = f16_from_f64(rng_normal(&r) / 8);
        mask[i / 8] |= (unsigned char)(1u << i % 8);
    }
    *st = blob_add(b, DT_F16, dense, N * 2, &at[0], f->d);
    if (!*st) *st = blob_add(b, DT_F16, kept, n * 2, &at[1], f->d);
    if (!*st) *st = blob_add(b, DT_U1, mask, N / 8, &at[2], f->d);
    if (!*st) *st = blob_finish(b, f->d);
    if (*st) return NULL;
    char *w = sparse ? arena_printf(&f->mem,
                                    "tensor<fp16, [%zu]> v = const()[name = string(\"v\"), val = tensor<fp16, [%zu]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(%llu)))];\n"
                                    "tensor<uint1, [48, 64, 1, 1]> m = const()[name = string(\"m\"), val = " FILE_AT("tensor<uint1, [48, 64, 1, 1]>", "%llu") "];\n"
                                    FX_T("48, 64, 1, 1") " w = constexpr_sparse_to_dense(nonzero_data = v, mask = m)[name = string(\"w\")];\n", n, n, (unsigned long long)at[1], (unsigned long long)at[2])
                     : arena_printf(&f->mem, FX_T("48, 64, 1, 1") " w = const()[name = string(\"w\"), val = " FILE_AT(FX_T("48, 64, 1, 1"), "%llu") "];\n", (unsigned long long)at[0]);
    if (!w) return *st = diag_nomem(f->d), NULL;
    return fx_text(f, FX_T("1, 64, 1, 32") " x", "y",
                   "%s" FX_T("1, 48, 1, 32") " y = conv(x = x, weight = w, pad_type = string(\"valid\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 0, 0]), "
                   "dilations = tensor<int32, [2]>([1, 1]), groups = int32(1))[name = string(\"y\")];", w);
}

an_status fact_sparse_result(fx *f)
{
    fx_val y[2] = { { .name = "y" }, { .name = "y" } };
    for (int i = 0; i < 2; i++) {
        blob_writer b = { 0 };
        an_status st;
        const char *text = sparse_layer(f, i, &b, &st);
        if (!st)
            st = fx_once(f, fx_chip(f, 0), text, &b.bytes,
                         &(fx_val){ "x", fx_normal(f, SP_CIN * SP_POS, 54, 1), SP_CIN * SP_POS }, 1, &y[i], 1);
        sb_free(&b.bytes);
        TRY(st);
    }
    bool same = !memcmp(y[0].x, y[1].x, (size_t)y[0].n * sizeof(double));
    return fx_verdict(f, same, "cosine %.4f, bytes %s", fx_cosine(y[0].x, y[1].x, y[0].n),
                      same ? "identical" : "differ");
}

static an_status compile_text(fx *f, const char *chip_name_, const char *text, const blob_writer *b, program **out)
{
    numerics num;
    mil_module *m = NULL;
    const chip *c = chip_find(chip_name_);
    lower_weights *files = lower_weights_open(NULL);
    an_status st =
        files ? lower_weights_give(files, "@model_path/w.bin", b->bytes.at, b->bytes.n, f->d) : diag_nomem(f->d);
    if (!st && (!c || !codegen_numerics(c, &num))) st = diag_fail(f->d, AN_BUG, NOWHERE, "no profile");
    if (!st) st = mil_parse(text, strlen(text), 0, &m, f->d);
    lower_in in = { .weights = files };
    codegen_options o = { .num = &num, .level = 1 };
    if (!st) st = codegen_mil(m, &in, &o, out, f->d);
    if (m) mil_free(m);
    lower_weights_close(files);
    return st;
}

static bool same_insns(const program *a, const program *b)
{
    bool same = a->insns.n == b->insns.n && a->scratch_bytes == b->scratch_bytes;
    for (size_t i = 0; same && i < a->insns.n; i++) {
        const insn *x = &a->insns.at[i], *y = &b->insns.at[i];
        same = x->op == y->op && x->n_t == y->n_t && x->n_i == y->n_i && x->n_f == y->n_f &&
               !memcmp(x->t, y->t, x->n_t * sizeof *x->t) && !memcmp(x->i, y->i, x->n_i * sizeof *x->i) &&
               !memcmp(x->f, y->f, x->n_f * sizeof *x->f);
    }
    return same;
}

an_status fact_sparse_program(fx *f)
{
    program *p[2] = { NULL };
    an_status st = AN_OK;
    for (int i = 0; !st && i < 2; i++) {
        blob_writer b = { 0 };
        const char *text = sparse_layer(f, i, &b, &st);
        if (!st) st = compile_text(f, fx_chip(f, 0), text, &b, &p[i]);
        sb_free(&b.bytes);
    }
    bool same = !st && same_insns(p[0], p[1]);
    size_t n = st ? 0 : p[0]->insns.n;
    program_free(p[0]);
    program_free(p[1]);
    TRY(st);
    return fx_verdict(f, same, "%zu instructions, %s", n, same ? "identical" : "different");
}

/* ---- what a form costs ---- */

/* Costs of a stack of 1x1 convolutions (kernel 1) or 3x3 ones with one form of weight. */
typedef struct {
    int64_t layers, channels, height, width, kernel;
} stack_shape;

static void put_weight(strbuf *b, const char *form, int layer, const stack_shape *s)
{
    char dims[96];
    long long c = (long long)s->channels, k = (long long)s->kernel, n = c * c * k * k;
    snprintf(dims, sizeof dims, "%lld, %lld, %lld, %lld", c, c, k, k);
    /* each record of the imagined file has room: only sizes are read */
    unsigned long long at = 64 + (unsigned long long)layer * 4 * (2 * (unsigned long long)n + 128);
#define AT "(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(%llu)))"
    if (!strcmp(form, "int8"))
        sb_printf(b, "tensor<fp16, [%s]> w%d = constexpr_affine_dequantize()[axis = int32(0), name = string(\"w%d\"), quantized_data = tensor<int8, [%s]>" AT ", scale = fp16(0x1p-3), zero_point = int8(0)];\n", dims, layer, layer, dims, at);
    else if (!strcmp(form, "w8a8")) /* and the input of the layer goes through int8 */
        sb_printf(b, "tensor<fp16, [%s]> w%d = constexpr_affine_dequantize()[axis = int32(0), name = string(\"w%d\"), quantized_data = tensor<int8, [%s]>" AT ", scale = fp16(0x1p-3), zero_point = int8(0)];\n"
                     "tensor<int8, [1, %lld, %lld, %lld]> q%d = quantize(input = y%d, output_dtype = string(\"int8\"), scale = fp16(0x1p-3))[name = string(\"q%d\")];\n"
                     "tensor<fp16, [1, %lld, %lld, %lld]> d%d = dequantize(input = q%d, scale = fp16(0x1p-3))[name = string(\"d%d\")];\n", dims, layer, layer, dims, at,
                  c, (long long)s->height, (long long)s->width, layer, layer, layer, c, (long long)s->height, (long long)s->width, layer, layer, layer);
    else if (!strcmp(form, "int4"))
        sb_printf(b, "tensor<uint4, [%s]> i%d = const()[name = string(\"i%d\"), val = tensor<uint4, [%s]>" AT "];\ntensor<fp16, [1, 1, 1, 1, 16, 1]> t%d = const()[name = string(\"t%d\"), val = tensor<fp16, [1, 1, 1, 1, 16, 1]>" AT "];\n"
                     "tensor<fp16, [%s]> w%d = constexpr_lut_to_dense(indices = i%d, lut = t%d)[name = string(\"w%d\")];\n", dims, layer, layer, dims, at, layer, layer, at + 64, dims, layer, layer, layer, layer);
    else if (!strcmp(form, "sparse"))
        sb_printf(b, "tensor<fp16, [%lld]> v%d = const()[name = string(\"v%d\"), val = tensor<fp16, [%lld]>" AT "];\ntensor<uint1, [%s]> m%d = const()[name = string(\"m%d\"), val = tensor<uint1, [%s]>" AT "];\n"
                     "tensor<fp16, [%s]> w%d = constexpr_sparse_to_dense(nonzero_data = v%d, mask = m%d)[name = string(\"w%d\")];\n", n * 37 / 100, layer, layer, n * 37 / 100, at, dims, layer, layer, dims, at + 64, dims, layer, layer, layer, layer);
    else if (!strcmp(form, "blockwise"))
        sb_printf(b, "tensor<int8, [%s]> q%d = const()[name = string(\"q%d\"), val = tensor<int8, [%s]>" AT "];\ntensor<fp16, [%lld, %lld, 1, 1]> s%d = const()[name = string(\"s%d\"), val = tensor<fp16, [%lld, %lld, 1, 1]>" AT "];\n"
                     "tensor<fp16, [%s]> w%d = constexpr_blockwise_shift_scale(data = q%d, scale = s%d)[name = string(\"w%d\")];\n", dims, layer, layer, dims, at, c, c / 32, layer, layer, c, c / 32, at + 64, dims, layer, layer, layer, layer);
    else sb_printf(b, "tensor<fp16, [%s]> w%d = const()[name = string(\"w%d\"), val = tensor<fp16, [%s]>" AT "];\n", dims, layer, layer, dims, at);
#undef AT
}

static an_status stack_cost(fx *f, const char *target, const char *form, const stack_shape *s, prog_cost *out)
{
    strbuf b = { 0 };
    char params[96], result[16];
    const chip *c = chip_find(target);
    for (int i = 0; i < s->layers; i++) {
        put_weight(&b, form, i, s);
        sb_printf(&b, "tensor<fp16, [1, %lld, %lld, %lld]> y%d = conv(x = %c%d, weight = w%d, pad_type = string(\"same\"), strides = tensor<int32, [2]>([1, 1]), pad = tensor<int32, [4]>([0, 0, 0, 0]), dilations = tensor<int32, [2]>([1, 1]), groups = int32(1))[name = string(\"y%d\")];\n",
                  (long long)s->channels, (long long)s->height, (long long)s->width, i + 1, strcmp(form, "w8a8") ? 'y' : 'd', i, i, i + 1);
    }
    snprintf(params, sizeof params, "tensor<fp16, [1, %lld, %lld, %lld]> y0", (long long)s->channels, (long long)s->height, (long long)s->width);
    snprintf(result, sizeof result, "y%d", (int)s->layers);
    const char *text = b.oom ? NULL : fx_text(f, params, result, "%s", b.at);
    sb_free(&b);
    if (!text || !c) return diag_nomem(f->d);
    check_report *r = NULL;
    TRY(check_text(text, strlen(text),
                   &(check_options){ .file = f->row->id, .target = &c, .n_target = 1, .errors_only = true }, &r, f->d));
    an_status st = AN_OK;
    if (r->costs.n == 1) *out = r->costs.at[0].total;
    else st = diag_fail(f->d, AN_INPUT, NOWHERE, "%s: %s", form, r->found.n ? r->found.at[0].message : "no cost");
    check_free(r);
    return st;
}

static stack_shape stack_of(const fx *f, int at)
{
    return (stack_shape){ (int64_t)fx_arg(f, at), (int64_t)fx_arg(f, at + 1), (int64_t)fx_arg(f, at + 2),
                          (int64_t)fx_arg(f, at + 3), (int64_t)fx_arg(f, at + 4) };
}

/* text: forms. args: published least and greatest speed relative to fp16, tolerance; layers, channels, height,
 * width, kernel. One pair of figures per form when there are more pairs: they follow the shape. */
an_status fact_form_speed(fx *f)
{
    stack_shape s = stack_of(f, 3);
    prog_cost dense, packed;
    strbuf b = { 0 };
    bool ok = true;
    TRY(stack_cost(f, fx_chip(f, 0), "fp16", &s, &dense));
    const char *p = f->row->text;
    for (int i = 0; *p; i++) {
        char form[16];
        size_t n = strcspn(p, " ");
        snprintf(form, sizeof form, "%.*s", (int)n, p);
        an_status st = stack_cost(f, fx_chip(f, 0), form, &s, &packed);
        if (st) return sb_free(&b), st;
        bool own = f->row->n_arg > 8 + 2 * i;
        double lo = own ? fx_arg(f, 8 + 2 * i) : fx_arg(f, 0), hi = own ? fx_arg(f, 9 + 2 * i) : fx_arg(f, 1);
        double ratio = dense.latency_us / packed.latency_us;
        ok = ok && ratio >= lo / (1 + fx_arg(f, 2)) && ratio <= hi * (1 + fx_arg(f, 2));
        sb_printf(&b, "%s%s %.2fx", i ? ", " : "", form, ratio);
        p += n + strspn(p + n, " ");
    }
    an_status st = b.oom ? diag_nomem(f->d) : fx_verdict(f, ok, "%s (%s-bound)", b.at, bound_name(dense.limit));
    sb_free(&b);
    return st;
}

/* Speed of a form against fp16 over all stacks of these layers and channels, at these extents, whose fp16 form is
 * bound by `limit`. */
typedef struct {
    const int64_t *layers, *channels, *side; /* ended by 0 */
    bool square;                             /* side x side places, else one row */
    int64_t kernel;
    bound limit;
} stack_family;

static an_status form_range(fx *f, const char *form, const stack_family *s, double *least, double *most,
                            double *bytes_least, double *bytes_most, int *n)
{
    *n = 0, *least = *bytes_least = INF, *most = *bytes_most = 0;
    for (const int64_t *l = s->layers; *l; l++)
        for (const int64_t *c = s->channels; *c; c++)
            for (const int64_t *e = s->side; *e; e++) {
                stack_shape one = { *l, *c, s->square ? *e : 1, *e, s->kernel };
                prog_cost dense, packed;
                TRY(stack_cost(f, fx_chip(f, 0), "fp16", &one, &dense));
                if (dense.limit != s->limit) continue;
                TRY(stack_cost(f, fx_chip(f, 0), form, &one, &packed));
                double ratio = dense.latency_us / packed.latency_us, bytes = packed.weight_bytes / dense.weight_bytes;
                *least = MIN(*least, ratio), *most = MAX(*most, ratio), *bytes_least = MIN(*bytes_least, bytes),
                *bytes_most = MAX(*bytes_most, bytes);
                ++*n;
            }
    return AN_OK;
}

static const int64_t stream_layers[] = { 4, 8, 16, 0 }, stream_channels[] = { 1024, 2048, 4096, 0 },
                     stream_places[] = { 1, 4, 16, 0 };
static const stack_family streamed = { stream_layers, stream_channels, stream_places, false, 1, BOUND_BANDWIDTH };

static const int64_t deep_layers[] = { 16, 32, 0 }, deep_channels[] = { 128, 256, 512, 0 },
                     deep_sides[] = { 32, 64, 0 };
static const stack_family computed = { deep_layers, deep_channels, deep_sides, true, 3, BOUND_COMPUTE };

/* text: form, then "streamed" or "computed": which family. args: published least and greatest speed; bytes relative
 * to fp16 to two digits, 0: not published. Where the shape is not published the figure has to be among those the
 * family gives; bytes are the same for all of it. */
an_status fact_form_family(fx *f)
{
    char form[16];
    size_t n = strcspn(f->row->text, " ");
    double least, most, bytes[2];
    int count;
    snprintf(form, sizeof form, "%.*s", (int)n, f->row->text);
    TRY(form_range(f, form, strstr(f->row->text, "computed") ? &computed : &streamed, &least, &most, &bytes[0],
                   &bytes[1], &count));
    bool ok = count > 0 && least <= fx_arg(f, 1) && most >= fx_arg(f, 0);
    if (fx_arg(f, 2) != 0) ok = ok && fabs(bytes[0] - fx_arg(f, 2)) <= 0.005 && fabs(bytes[1] - fx_arg(f, 2)) <= 0.005;
    return fx_verdict(f, ok, "%.2fx to %.2fx over %d stacks, %.2fx bytes", least, most, count, bytes[1]);
}

/* text: form. args: as form_speed: a figure that contradicts another, and by how much the model misses it */
an_status fact_form_unjudged(fx *f)
{
    stack_shape s = stack_of(f, 3);
    prog_cost dense, packed;
    TRY(stack_cost(f, fx_chip(f, 0), "fp16", &s, &dense));
    TRY(stack_cost(f, fx_chip(f, 0), f->row->text, &s, &packed));
    double ours = dense.latency_us / packed.latency_us, error = (ours / fx_arg(f, 0) - 1) * 100;
    return fx_error(f, error, fx_arg(f, 2) * 100, "%.2fx for %.2f (%+.0f %%), %s-bound, %.0f us", ours, fx_arg(f, 0),
                    error, bound_name(dense.limit), dense.latency_us);
}

/* text: form. args: published GB/s of fp16 and of the form (bytes of the dense weight over time), tolerance, shape */
an_status fact_form_bandwidth(fx *f)
{
    stack_shape s = stack_of(f, 3);
    prog_cost dense, packed;
    TRY(stack_cost(f, fx_chip(f, 0), "fp16", &s, &dense));
    TRY(stack_cost(f, fx_chip(f, 0), f->row->text, &s, &packed));
    double a = dense.weight_bytes / dense.latency_us / 1e3, b = dense.weight_bytes / packed.latency_us / 1e3;
    bool ok = fabs(a / fx_arg(f, 0) - 1) <= fx_arg(f, 2) && fabs(b / fx_arg(f, 1) - 1) <= fx_arg(f, 2);
    return fx_verdict(f, ok, "%.1f GB/s fp16, %.1f GB/s %s", a, b, f->row->text);
}
