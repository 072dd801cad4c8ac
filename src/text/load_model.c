/* load_model.c: SentencePiece's tokenizer.model, a protobuf message.
 *
 *   ModelProto      1 pieces (repeated), 2 trainer, 3 normalizer, 5 denormalizer
 *   piece           1 text, 2 float score, 3 type (normal when absent)
 *   trainer         3 model type (1 unigram, 2 BPE), 24 whitespace as suffix, 35 byte fallback, 40 unk, 41 bos, 42 eos, 43 pad
 *   normalizer      2 character map, 3 dummy prefix, 4 remove extra spaces, 5 escape spaces (the three default to yes), 6 rules
 *
 * Fields we do not know are skipped by their wire type; lengths are checked against what is left. */
#include "text/text_int.h"

typedef struct {
    const unsigned char *at, *end;
} cursor;

typedef struct {
    uint64_t number;
    int wire;
    uint64_t value;  /* wire 0, 1, 5 */
    cursor bytes;    /* wire 2 */
} field;

static bool varint(cursor *c, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70 && c->at < c->end; shift += 7) {
        unsigned char b = *c->at++;
        if (shift == 63 && b > 1) return false;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return *out = v, true;
    }
    return false;
}

static bool fixed(cursor *c, int bytes, uint64_t *out)
{
    if (c->end - c->at < bytes) return false;
    *out = 0;
    for (int i = 0; i < bytes; i++) *out |= (uint64_t)c->at[i] << (8 * i);
    c->at += bytes;
    return true;
}

/* false at the end (*bad stays) or on a malformed field (*bad set). */
static bool next_field(cursor *c, field *f, bool *bad)
{
    uint64_t tag, n;
    if (c->at == c->end) return false;
    *bad = true;
    if (!varint(c, &tag) || !(tag >> 3) || tag >> 32) return false;
    *f = (field){ .number = tag >> 3, .wire = (int)(tag & 7) };
    switch (f->wire) {
    case 0: if (!varint(c, &f->value)) return false; break;
    case 1: if (!fixed(c, 8, &f->value)) return false; break;
    case 5: if (!fixed(c, 4, &f->value)) return false; break;
    case 2:
        if (!varint(c, &n) || n > (uint64_t)(c->end - c->at)) return false;
        f->bytes = (cursor){ c->at, c->at + n };
        c->at += n;
        break;
    default: return false; /* groups: not used since 2001 */
    }
    *bad = false;
    return true;
}

static float as_float(uint64_t v)
{
    uint32_t bits = (uint32_t)v;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

typedef struct {
    int64_t type, unk, bos, eos, pad;
    bool suffix, bytes;
    cursor charsmap;
    bool dummy_prefix, squeeze, escape;
    size_t n_pieces;
} spec;

static an_status malformed(const tokenizer *t, const char *what, const cursor *all, const cursor *c, diag *d)
{
    return tok_bad(d, t, "%s is malformed at byte %zu: no SentencePiece model", what, (size_t)(c->at - all->at));
}

static bool read_trainer(cursor c, spec *s)
{
    field f;
    bool bad = false;
    while (next_field(&c, &f, &bad)) {
        if (f.wire != 0) continue;
        if (f.number == 3) s->type = (int64_t)f.value;
        if (f.number == 24) s->suffix = f.value != 0;
        if (f.number == 35) s->bytes = f.value != 0;
        if (f.number == 40) s->unk = (int32_t)(uint32_t)f.value;
        if (f.number == 41) s->bos = (int32_t)(uint32_t)f.value;
        if (f.number == 42) s->eos = (int32_t)(uint32_t)f.value;
        if (f.number == 43) s->pad = (int32_t)(uint32_t)f.value;
    }
    return !bad;
}

static bool read_normalizer(cursor c, spec *s)
{
    field f;
    bool bad = false;
    while (next_field(&c, &f, &bad)) {
        if (f.number == 2 && f.wire == 2) s->charsmap = f.bytes;
        if (f.wire != 0) continue;
        if (f.number == 3) s->dummy_prefix = f.value != 0;
        if (f.number == 4) s->squeeze = f.value != 0;
        if (f.number == 5) s->escape = f.value != 0;
    }
    return !bad;
}

static an_status read_piece(tokenizer *t, cursor c, size_t id, diag *d)
{
    field f;
    bool bad = false;
    cursor text = { 0 };
    float score = 0;
    uint64_t type = TOK_NORMAL;
    while (next_field(&c, &f, &bad)) {
        if (f.number == 1 && f.wire == 2) text = f.bytes;
        if (f.number == 2 && f.wire == 5) score = as_float(f.value);
        if (f.number == 3 && f.wire == 0) type = f.value;
    }
    if (bad) return tok_bad(d, t, "piece %zu is malformed", id);
    if (type < TOK_NORMAL || type > TOK_BYTE)
        return tok_bad(d, t, "piece %zu has type %llu; 1 to 6 are known", id, (unsigned long long)type);
    const char *s = text.at ? (const char *)text.at : "";
    const size_t n = (size_t)(text.end - text.at);
    TRY(tok_is_utf8(t, id, s, n, d));
    return tok_put(t, id, s, n, (tok_type)type, score, false, true, d);
}

an_status read_model(tokenizer *t, const void *p, size_t n, diag *d)
{
    const cursor all = { p, (const unsigned char *)p + n };
    spec s = {
        .type = 1, .unk = 0, .bos = 1, .eos = 2, .pad = -1, .dummy_prefix = true, .squeeze = true, .escape = true
    };
    field f;
    bool bad = false, fine = true;
    cursor c = all;
    while (fine && next_field(&c, &f, &bad)) {
        if (f.wire != 2) continue;
        s.n_pieces += f.number == 1;
        if (f.number == 2) fine = read_trainer(f.bytes, &s);
        if (f.number == 3) fine = read_normalizer(f.bytes, &s);
    }
    if (bad || !fine) return malformed(t, "the file", &all, &c, d);
    static const char *const types[] = { "unset", "unigram", "BPE", "word", "char" };
    if (s.type != 1 && s.type != 2)
        return tok_bad(d, t, "a SentencePiece model of type %lld (%s); unigram and BPE are supported",
                       (long long)s.type, s.type >= 0 && s.type < 5 ? types[s.type] : "unknown");
    if (s.suffix) return tok_bad(d, t, "treat_whitespace_as_suffix is not supported");
    if (!s.escape) return tok_bad(d, t, "escape_whitespaces = false is not supported");
    TRY(tok_size(t, s.n_pieces, d));
    t->model = s.type == 1 ? MODEL_UNIGRAM : MODEL_SPM_BPE;
    t->byte_fallback = s.bytes;
    t->fuse_unk = true;
    size_t id = 0;
    for (c = all; next_field(&c, &f, &bad);)
        if (f.number == 1 && f.wire == 2) TRY(read_piece(t, f.bytes, id++, d));
    int64_t n_ids = (int64_t)t->n;
    t->unk = s.unk < n_ids ? s.unk : NO_ID, t->bos = s.bos < n_ids ? s.bos : NO_ID,
    t->eos = s.eos < n_ids ? s.eos : NO_ID, t->pad = s.pad < n_ids ? s.pad : NO_ID;
    t->unk = MAX(t->unk, NO_ID), t->bos = MAX(t->bos, NO_ID), t->eos = MAX(t->eos, NO_ID), t->pad = MAX(t->pad, NO_ID);
    t->add_bos = t->bos >= 0;
    if (s.charsmap.end > s.charsmap.at) {
        norm_step map;
        TRY(norm_charsmap(&t->mem, &map, s.charsmap.at, (size_t)(s.charsmap.end - s.charsmap.at), d));
        TRY(add_norm(t, map, d));
    }
    if (s.squeeze) TRY(add_norm(t, (norm_step){ .kind = NORM_SQUEEZE }, d));
    if (s.dummy_prefix) t->prefix = t->strip = PREFIX_ALWAYS;
    return tok_index(t, d);
}
