/* fuzz_gguf: any bytes as a GGUF file. Values, strings and tensors that are accepted lie inside the bytes; tensors
 * decode. */
#include <stdlib.h>

#include "fuzz_t.h"
#include "format/gguf.h"

static void inside(const void *p, size_t len, const uint8_t *data, size_t n)
{
    need((const uint8_t *)p >= data && (const uint8_t *)p + len <= data + n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    gguf *f;
    if (gguf_view(data, n, "f", &f, &d)) {
        need((d.st == AN_INPUT || d.st == AN_NOMEM) && d.msg[0] && !f);
        return 0;
    }
    for (size_t i = 0; i < gguf_value_count(f); i++) {
        const gguf_value *v = gguf_value_at(f, i);
        double x;
        need(gguf_get(f, v->key) == v);
        if (v->type == GGUF_STRING) inside(v->s.at, v->s.n, data, n);
        for (uint64_t k = 0; v->type == GGUF_ARRAY && v->strs && k < v->n; k++)
            inside(v->strs[k].at, v->strs[k].n, data, n);
        for (uint64_t k = 0; v->type == GGUF_ARRAY && v->raw && k < v->n; k++) need(gguf_item(v, k, &x));
        need(!gguf_item(v, v->n, &x));
    }
    for (size_t i = 0; i < gguf_tensor_count(f); i++) {
        const gguf_tensor *t = gguf_tensor_at(f, i);
        inside(t->data, t->bytes, data, n);
        need(gguf_find(f, t->name) == t);
        if (!block_readable(t->type) || t->count > 1 << 16) continue;
        float *y = malloc((size_t)(t->count + 1) * sizeof *y);
        if (y) block_decode(t->type, t->data, y, t->count);
        free(y);
    }
    gguf_close(f);
    return 0;
}
