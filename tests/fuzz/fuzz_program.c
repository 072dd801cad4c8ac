/* fuzz_program: any bytes as an engine program. The header is made to fit, so that the fuzzer gets past the
 * checksum; what decodes must print, encode to the same bytes, and, when it is small, load and run, the obvious way
 * and the fast one, without going astray. Seeds: tests/unit/test_program_seeds.c. */
#include <stdlib.h>

#include "fuzz_t.h"
#include "engine/engine.h"
#include "../seal.h"

enum { PORTS = 8, SMALL = 1 << 14 };

/* Work is bounded by the product of what the largest tensors hold; skip what would only be slow. */
static bool is_small(const program *p)
{
    uint64_t total = p->scratch_bytes;
    if (p->inputs.n > PORTS || p->outputs.n > PORTS || p->insns.n > 16 || total > SMALL) return false;
    for (size_t i = 0; i < p->tensors.n; i++) {
        int64_t e = 1;
        for (int a = 0; a < p->tensors.at[i].rank; a++)
            if (!mul_i64(e, p->tensors.at[i].dim[a], &e) || e > 512) return false;
        total += (uint64_t)e;
    }
    return total <= SMALL;
}

/* Any bytes at all: indices past the end, NaN, flags that are neither 0 nor 1. */
static void *some_bytes(uint64_t n, const uint8_t *data, size_t n_data)
{
    unsigned char *b = malloc((size_t)n + 1);
    need(b != NULL);
    /* from the end: the last bytes matter least to the program */
    for (uint64_t i = 0; i < n; i++) b[i] = data[n_data - 1 - i % n_data];
    return b;
}

static void run(const program *p, bool reference, const uint8_t *data, size_t n)
{
    image *im = NULL;
    image_options o = { .reference = reference };
    diag d = { 0 };
    if (image_load(&im, p, NULL, &o, &d)) {
        need(d.msg[0]);
        return;
    }
    void *in[PORTS] = { NULL }, *out[PORTS] = { NULL };
    for (size_t k = 0; k < p->inputs.n; k++) in[k] = some_bytes(p->inputs.at[k].bytes, data, n);
    for (size_t k = 0; k < p->outputs.n; k++) need((out[k] = calloc(1, (size_t)p->outputs.at[k].bytes)) != NULL);
    need(!image_run(im, (const void *const *)in, out, &d) || d.msg[0]);
    image_free(im);
    for (int k = 0; k < PORTS; k++) free(in[k]), free(out[k]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < SEAL_HEADER) return 0;
    unsigned char *b = malloc(n);
    need(b != NULL);
    memcpy(b, data, n);
    memcpy(b, "ANNLPROG\0\0\0\0\0\0\0\0", 16);
    b[12] = data[12] & 1; /* final or not: the body of a final program has one more word */
    seal(b, n);
    program *p = NULL;
    diag d = { 0 };
    an_status st = program_decode(b, n, &p, &d);
    need((st == AN_OK) == (p != NULL));
    if (st) need((st == AN_INPUT || st == AN_NOMEM) && d.msg[0]);
    else {
        strbuf text = { 0 }, again = { 0 };
        program_print(p, &text);
        need(!program_encode(p, &again, &d) && again.n == n && !memcmp(again.at, b, n));
        if (is_small(p)) run(p, true, data, n), run(p, false, data, n);
        sb_free(&text);
        sb_free(&again);
    }
    program_free(p);
    free(b);
    return 0;
}
