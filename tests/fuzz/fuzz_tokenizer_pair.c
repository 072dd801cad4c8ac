/* fuzz_tokenizer_pair: any bytes as encoder.json and vocab.bpe, one behind the other with a NUL between. What is
 * accepted encodes the same bytes as text, or says why not, decodes every id it gave, and gives the bytes back where
 * it spells every one. */
#include "fuzz_t.h"
#include "fuzz_vocab.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    tokenizer *t;
    tok_encoder *e;
    const uint8_t *gap = n ? memchr(data, 0, n) : NULL;
    size_t at = gap ? (size_t)(gap - data) : n, most = n < 512 ? n : 512;
    if (tok_from_pair("fuzz", data, at, gap ? gap + 1 : data + n, gap ? n - at - 1 : 0, &t, &d)) {
        need((d.st == AN_INPUT || d.st == AN_NOMEM) && d.msg[0]);
        return 0;
    }
    tok_info info;
    tok_ids ids = { 0 };
    strbuf out = { 0 };
    tok_get(t, &info);
    need(info.n > 0 && info.bos < (int64_t)info.n && info.eos < (int64_t)info.n);
    need(goes_out_and_in(t));
    need(!tok_encoder_new(t, &e, &d));
    if (tok_encode(e, (const char *)data, most, 0, &ids, &d)) need(d.st == AN_INPUT && d.msg[0] && !info.byte_fallback);
    else {
        for (size_t i = 0; i < ids.n; i++) need(ids.at[i] < info.n);
        need(!tok_decode(t, ids.at, ids.n, 0, &out, &d));
        if (info.byte_fallback) need(out.n == most && !memcmp(out.at, data, most));
    }
    tok_ids_free(&ids);
    sb_free(&out);
    tok_encoder_free(e);
    tok_close(t);
    return 0;
}
