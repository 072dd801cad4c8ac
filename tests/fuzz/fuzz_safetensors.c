/* fuzz_safetensors: any bytes as a safetensors file. What is accepted lies inside the bytes, covers them, and is
 * found by name. */
#include "fuzz_t.h"
#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    safetensors *f;
    if (safetensors_view(data, n, "f", &f, &d)) {
        need((d.st == AN_INPUT || d.st == AN_NOMEM) && d.msg[0] && !f);
        return 0;
    }
    const uint8_t *end = NULL;
    for (size_t i = 0; i < safetensors_count(f); i++) {
        const safetensor *t = safetensors_at(f, i);
        const uint8_t *at = t->data;
        size_t bytes;
        need(at >= data + 8 && at + t->bytes <= data + n && (!end || at == end));
        need(dtype_bytes(t->dt, t->count, &bytes) && bytes == t->bytes && t->rank <= SAFETENSORS_MAX_RANK);
        need(safetensors_find(f, t->name) == t && safetensors_dtype(t->dt));
        end = at + t->bytes;
    }
    need(!end || end == data + n);
    static const char *const keys[] = { "k", "format", "", "anneal" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *value = safetensors_meta(f, keys[i]);
        need(!value || strlen(value) < n);
    }
    safetensors_close(f);
    return 0;
}
