/* fuzz_idx: any bytes as an idx file, packed or plain. What is accepted lies inside the bytes, and every element can
 * be read. */
#include <stdlib.h>

#include "fuzz_t.h"
#include "format/idx.h"

static void as_plain(const uint8_t *p, size_t n)
{
    diag d = { 0 };
    idx_array a;
    if (idx_view(p, n, &a, &d)) {
        need(d.st == AN_INPUT && d.msg[0]);
        return;
    }
    need(a.at + a.bytes == n && a.data == p + a.at && a.rank >= 1 && a.rank <= IDX_MAX_RANK);
    int64_t count = 1;
    for (int i = 0; i < a.rank; i++)
        if (!a.dim[i]) count = 0;
    for (int i = 0; i < a.rank && count; i++) need(mul_i64(count, a.dim[i], &count));
    need(count == a.count && (size_t)a.count * (size_t)dtype_bits(a.dt) / 8 == a.bytes);
    double sum = 0;
    for (int64_t i = 0; i < a.count && i < 4096; i++) sum += idx_load(&a, i);
    if (a.count) sum += idx_load(&a, a.count - 1);
    need(sum == sum || a.dt == DT_F32 || a.dt == DT_F64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!idx_is_gzip(data, n)) {
        as_plain(data, n);
        return 0;
    }
    diag d = { 0 };
    unsigned char *out;
    size_t got;
    if (idx_unzip(data, n, &out, &got, &d)) {
        need(d.st == AN_INPUT && d.msg[0] && !out);
        return 0;
    }
    need(got <= IDX_MAX_BYTES);
    as_plain(out, got);
    free(out);
    return 0;
}
