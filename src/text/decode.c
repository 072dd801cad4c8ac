/* decode.c: ids to bytes. A token's bytes are fixed when the vocabulary is read; what is left is the space that
 * encoding put in front, and, token by token, never to print half a character. */
#include "text/text_int.h"

static an_status put_token(const tokenizer *t, uint32_t id, size_t index, unsigned flags, bool *begun, strbuf *out,
                           diag *d)
{
    if (id >= t->n) return tok_bad(d, t, "id %u at index %zu, the vocabulary has %u", id, index, t->n);
    const token *k = &t->tok[id];
    if (k->type == TOK_CONTROL || k->type == TOK_UNKNOWN) {
        if (flags & TOK_SPECIAL) sb_putn(out, k->out.at, k->out.n);
        /* encoding puts a space behind each special token */
        if (t->strip == PREFIX_ALWAYS) *begun = false;
        else if (flags & TOK_SPECIAL) *begun = true;
        return AN_OK;
    }
    size_t skip = t->strip != PREFIX_NONE && !*begun && k->type != TOK_USER && k->out.n && k->out.at[0] == ' ';
    sb_putn(out, k->out.at + skip, k->out.n - skip);
    *begun = k->type != TOK_USER || t->strip != PREFIX_ALWAYS || !t->prefix_after_user;
    return AN_OK;
}

an_status tok_decode(const tokenizer *t, const uint32_t *ids, size_t n, unsigned flags, strbuf *out, diag *d)
{
    bool begun = false;
    for (size_t i = 0; i < n; i++) TRY(put_token(t, ids[i], i, flags, &begun, out, d));
    return out->oom ? diag_nomem(d) : AN_OK;
}

/* How many bytes at the end of s are a character that has begun and may yet become whole. */
static size_t unfinished(const unsigned char *s, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char b = s[n - k];
        if ((b & 0xc0) == 0x80) continue;
        size_t want = b >= 0xf0 && b <= 0xf4 ? 4 : b >= 0xe0 && b < 0xf0 ? 3 : b >= 0xc2 && b < 0xe0 ? 2 : 1;
        return want > k ? k : 0;
    }
    return 0;
}

an_status tok_stream_put(const tokenizer *t, tok_stream *s, uint32_t id, unsigned flags, strbuf *out, diag *d)
{
    size_t from = out->n;
    sb_putn(out, (const char *)s->held, s->n_held);
    TRY(put_token(t, id, 0, flags, &s->begun, out, d));
    if (out->oom) return diag_nomem(d);
    size_t keep = unfinished((const unsigned char *)out->at + from, out->n - from);
    memcpy(s->held, out->at + out->n - keep, keep);
    s->n_held = (unsigned char)keep;
    out->n -= keep;
    out->at[out->n] = 0;
    return AN_OK;
}

void tok_stream_end(tok_stream *s, strbuf *out)
{
    sb_putn(out, (const char *)s->held, s->n_held);
    s->n_held = 0;
}
