/* fuzz_llama2c: any bytes as a llama2.c file. What is accepted has every tensor of its header inside the bytes, each
 * once; and written again it is the same tensors. Seeds: those of fuzz_model. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fuzz_t.h"
#include "format/llama2c.h"

static bool same_shape(const llama2c_shape *a, const llama2c_shape *b)
{
    return a->version == b->version && a->dim == b->dim && a->hidden == b->hidden && a->layers == b->layers &&
           a->heads == b->heads && a->kv_heads == b->kv_heads && a->vocab == b->vocab && a->seq == b->seq &&
           a->shared == b->shared && a->group == b->group;
}

static void write_again(const llama2c *f, const char *path)
{
    llama2c_out *w;
    llama2c again;
    diag d = { 0 };
    if (llama2c_create(path, &f->shape, &w, &d)) {
        need(d.st != AN_BUG && d.msg[0]);
        return;
    }
    llama2c_tensor t, u;
    for (int id = 0; id < L2C_COUNT; id++)
        for (int64_t l = 0; llama2c_get(f, (llama2c_id)id, l, &t); l++) {
            need(!llama2c_put(w, (llama2c_id)id, l, t.data, t.bytes, &d));
            need(!t.scales || !llama2c_put(w, (llama2c_id)id, l, t.scales, t.scale_bytes, &d));
        }
    need(!llama2c_finish(w, &d) && !llama2c_open(path, &again, &d));
    need(same_shape(&again.shape, &f->shape));
    for (int id = 0; id < L2C_COUNT; id++)
        for (int64_t l = 0; llama2c_get(f, (llama2c_id)id, l, &t); l++) {
            need(llama2c_get(&again, (llama2c_id)id, l, &u) && u.bytes == t.bytes && !memcmp(u.data, t.data, t.bytes));
            need(!t.scales == !u.scales && (!t.scales || !memcmp(t.scales, u.scales, t.scale_bytes)));
        }
    llama2c_close(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char path[64];
    diag d = { 0 };
    llama2c f;
    if (!path[0]) snprintf(path, sizeof path, "/dev/shm/anneal-fuzz-llama2c-%d", (int)getpid());
    if (llama2c_view(data, n, "f", &f, &d)) {
        need(d.st == AN_INPUT && d.msg[0]);
        return 0;
    }
    unsigned char *seen = calloc(n, 1);
    need(seen != NULL);
    for (int id = 0; id < L2C_COUNT; id++) {
        llama2c_tensor t;
        int64_t l = 0;
        for (; llama2c_get(&f, (llama2c_id)id, l, &t); l++) {
            need(t.data >= data && t.bytes <= n && (size_t)(t.data - data) <= n - t.bytes);
            if (!t.scales) need(!t.scale_bytes);
            else need(t.scales == t.data + t.bytes && t.scale_bytes <= n - t.bytes - (size_t)(t.data - data));
            need(t.rows >= 1 && t.cols >= 1);
            need((size_t)(t.rows * t.cols) * (t.scales ? 1 : sizeof(float)) == t.bytes);
            for (size_t i = 0; i < t.bytes + t.scale_bytes; i++) need(!seen[t.data - data + (ptrdiff_t)i]++);
        }
        need(l <= f.shape.layers);
    }
    free(seen);
    write_again(&f, path);
    unlink(path);
    llama2c_close(&f);
    return 0;
}
