/* fuzz_vocab.h: what was accepted goes out as a GGUF vocabulary and comes in again with as many tokens, or it is
 * said why not. */
#ifndef TESTS_FUZZ_VOCAB_H
#define TESTS_FUZZ_VOCAB_H

#include "text/text.h"

static inline bool goes_out_and_in(const tokenizer *t)
{
    arena mem = { 0 };
    tok_vocab v;
    const char *lost;
    diag d = { 0 };
    tokenizer *again = NULL;
    tok_info a, b;
    bool ok = true;
    tok_get(t, &a);
    if (tok_to_vocab(t, a.n + 3, &mem, &v, &lost, &d)) ok = (d.st == AN_INPUT || d.st == AN_NOMEM) && d.msg[0];
    else if (tok_from_vocab("again", &v, &again, &d)) ok = false;
    else {
        tok_get(again, &b);
        ok = b.n == a.n + 3 && a.bos == b.bos && a.eos == b.eos && a.unk == b.unk;
    }
    tok_close(again);
    arena_free(&mem);
    return ok;
}

#endif
