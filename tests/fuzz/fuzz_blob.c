/* fuzz_blob: any bytes as a weight file: walked, and asked for every offset a reference could name. What a record
 * promises must lie inside the file; what the writer makes of it must read back. */
#include "fuzz_t.h"
#include "mil/mil.h"

static void inside(const blob_entry *e, size_t n)
{
    need(e->dt != DT_NONE && e->record % 64 == 0 && e->data >= 64 && e->data <= n && e->bytes <= n - e->data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    blob_file f;
    if (blob_view(data, n, &f, &d)) return 0;
    blob_writer w = { 0 };
    uint64_t at = 0, off;
    bool more = true;
    blob_entry e;
    for (size_t k = 0; !blob_next(&f, &at, &e, &more, &d) && more; k++) {
        inside(&e, n);
        need(k <= n / 64);
        if (e.bytes < 4096) need(!blob_add(&w, e.dt, data + e.data, (size_t)e.bytes, &off, &d));
    }
    for (uint64_t o = 0; o <= n + 64 && o < 1 << 16; o += 32)
        for (unsigned want = 0; want < 3; want++) {
            d = (diag){ 0 };
            if (!blob_at(&f, o, want ? (dtype)(1 + (o / 32 + want) % (DT_COUNT - 1)) : DT_NONE, want == 2 ? o : 0, &e,
                         &d))
                inside(&e, n);
            else need(d.msg[0]);
        }
    for (int k = 0; n >= 8 && k < 8; k++) { /* offsets out of the file itself */
        memcpy(&off, data + (size_t)k * (n - 8) / 8, 8);
        d = (diag){ 0 };
        if (!blob_at(&f, off, DT_NONE, off, &e, &d)) inside(&e, n);
    }
    d = (diag){ 0 };
    need(!blob_finish(&w, &d));
    blob_file g;
    need(!blob_view(w.bytes.at, w.bytes.n, &g, &d) && g.count == w.count);
    uint32_t seen = 0;
    for (at = 0; !blob_next(&g, &at, &e, &more, &d) && more;) seen++;
    need(!d.st && seen == w.count);
    blob_close(&g);
    sb_free(&w.bytes);
    blob_close(&f);
    return 0;
}
