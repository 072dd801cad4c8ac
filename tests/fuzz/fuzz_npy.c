/* fuzz_npy: any bytes as a .npy file. What is accepted lies inside the bytes, and written again it reads back the
 * same. */
#include "fuzz_t.h"
#include "format/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    npy_array a, b;
    bool fortran = false;
    if (npy_view(data, n, &a, &fortran, &d)) {
        need(d.st == AN_INPUT && d.msg[0]);
        return 0;
    }
    need((const uint8_t *)a.data >= data && (size_t)((const uint8_t *)a.data - data) + a.bytes == n);
    strbuf out = { 0 };
    need(!npy_encode(a.dt, a.dim, a.rank, a.data, &out, &d));
    need(!npy_view(out.at, out.n, &b, NULL, &d));
    need(a.dt == b.dt && a.rank == b.rank && a.bytes == b.bytes && !memcmp(a.dim, b.dim, sizeof a.dim));
    need(!a.bytes || !memcmp(a.data, b.data, a.bytes));
    sb_free(&out);
    return 0;
}
