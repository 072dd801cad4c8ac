/* fuzz_tokenizer_json: any bytes as a tokenizer.json. What is accepted encodes a text made of the same bytes, or
 * says why not, and decodes every id it gave; a vocabulary that spells every byte, and changes no text on the way,
 * gives the bytes back. */
#include "fuzz_t.h"
#include "fuzz_vocab.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    tokenizer *t;
    tok_encoder *e;
    if (tok_from_json("fuzz", data, n, &t, &d)) {
        need((d.st == AN_INPUT || d.st == AN_NOMEM) && d.msg[0]);
        return 0;
    }
    tok_info info;
    tok_get(t, &info);
    need(info.n > 0 && info.bos < (int64_t)info.n && info.eos < (int64_t)info.n);
    need(goes_out_and_in(t));
    need(!tok_encoder_new(t, &e, &d));
    for (unsigned flags = 0; flags <= TOK_SPECIAL; flags += TOK_SPECIAL) {
        tok_ids ids = { 0 };
        strbuf out = { 0 };
        diag why = { 0 };
        size_t most = n < 512 ? n : 512;
        if (tok_encode(e, (const char *)data + n - most, most, flags, &ids, &why))
            need(why.st == AN_INPUT && why.msg[0]);
        else {
            for (size_t i = 0; i < ids.n; i++) need(ids.at[i] < info.n);
            need(!tok_decode(t, ids.at, ids.n, flags, &out, &why));
        }
        tok_ids_free(&ids);
        sb_free(&out);
    }
    tok_encoder_free(e);
    tok_close(t);
    return 0;
}
