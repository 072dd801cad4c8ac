/* convert.c: models between file formats, as the public header has it. */
#include "api/api_int.h"
#include "lm/lm.h"

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

/* What a name says about the file to write; a name without a known ending is a folder. */
static const char *by_name(const char *out)
{
    return ends_with(out, ".safetensors") ? "safetensors" : ends_with(out, ".gguf") ? "gguf" : ends_with(out, ".bin") ? "llama2c" : "hf";
}

static an_status read_options(const char *out, const an_convert_options *o, lm_convert_options *c, const char **to, diag *d)
{
    static const struct {
        const char *name;
        dtype dt;
    } types[] = { { "f32", DT_F32 }, { "f16", DT_F16 }, { "bf16", DT_BF16 } };
    *to = o->to ? o->to : by_name(out);
    if (!lm_target_find(*to, &c->to)) return diag_fail(d, AN_USAGE, NOWHERE, "unknown kind of file \"%.40s\"; safetensors, hf, gguf, llama2c and npy are known", *to);
    for (size_t i = 0; o->dtype && i < COUNT(types); i++)
        if (!strcmp(types[i].name, o->dtype)) c->dt = types[i].dt;
    if (o->dtype && !c->dt) return diag_fail(d, AN_USAGE, NOWHERE, "unknown type \"%.40s\"; f32, f16 and bf16 are known", o->dtype);
    if (o->version && c->to != LM_TO_LLAMA2C) return diag_fail(d, AN_USAGE, NOWHERE, "%s files have no version to choose", *to);
    c->quantize = o->quantize;
    c->version = o->version - 1;
    return AN_OK;
}

an_status an_convert(const char *model, const char *out, const an_convert_options *o, an_converted *done, an_error *e)
{
    diag d = { 0 };
    lm_model *m = NULL;
    pool *threads = NULL;
    lm_convert_options c = { 0 };
    lm_converted r = { 0 };
    an_convert_options none = { 0 };
    const char *to = NULL;
    if (!o) o = &none;
    *done = (an_converted){ 0 };
    an_status st = read_options(out, o, &c, &to, &d);
    if (!st) st = pool_make(&threads, o->threads, &d);
    c.threads = threads;
    if (!st) st = lm_open(model, &(lm_options){ .seed = o->seed, .threads = threads }, &m, &d);
    if (!st) st = lm_convert(m, out, &c, &r, &d);
    if (!st) {
        *done = (an_converted){ .tensors = r.tensors, .bytes_in = r.bytes_in, .bytes_out = r.bytes_out, .worst = r.worst };
        snprintf(done->from, sizeof done->from, "%s", lm_origin_name(lm_origin_of(m)));
        snprintf(done->family, sizeof done->family, "%s", lm_family(m));
        snprintf(done->to, sizeof done->to, "%s", to);
    }
    lm_close(m);
    pool_free(threads);
    return st ? api_error(e, &d) : AN_OK;
}
