/* fuzz_tokenizer_model: any bytes as a SentencePiece model, and as a tokenizer.bin. What is accepted encodes the
 * same bytes as text, or says why not, and decodes every id it gave. */
#include "fuzz_t.h"
#include "fuzz_vocab.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    for (int bin = 0; bin < 2; bin++) {
        diag d = { 0 };
        tokenizer *t;
        tok_encoder *e;
        if (bin ? tok_from_bin("fuzz", data, n, &t, &d) : tok_from_model("fuzz", data, n, &t, &d)) {
            need((d.st == AN_INPUT || d.st == AN_NOMEM) && d.msg[0]);
            continue;
        }
        tok_info info;
        tok_ids ids = { 0 };
        strbuf out = { 0 };
        size_t most = n < 512 ? n : 512;
        tok_get(t, &info);
        need(goes_out_and_in(t));
        need(!tok_encoder_new(t, &e, &d));
        if (tok_encode(e, (const char *)data + n - most, most, TOK_SPECIAL, &ids, &d))
            need(d.st == AN_INPUT && d.msg[0]);
        else {
            for (size_t i = 0; i < ids.n; i++) need(ids.at[i] < info.n);
            need(!tok_decode(t, ids.at, ids.n, 0, &out, &d));
        }
        tok_ids_free(&ids);
        sb_free(&out);
        tok_encoder_free(e);
        tok_close(t);
    }
    return 0;
}
