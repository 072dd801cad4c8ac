/* export.c: a tokenizer as the vocabulary a GGUF file has: load_bin.c's read_vocab the other way round. In: a
 * tokenizer from any file.  Out: tokens as such files spell them, merges or scores, flags; or the one thing they
 * have no word for.
 *
 * Byte-level BPE goes with its merges and the name of its way to cut text. SentencePiece goes with its scores. BPE
 * by merges over characters (a Llama tokenizer.json) has to be said by scores, too: a token scores by the place of
 * its merges. That means the same only where each token's merges stand together and none is left out, which is
 * checked. */
#include <stdlib.h>

#include "text/text_int.h"

typedef struct {
    const tokenizer *t;
    arena *mem;
    tok_vocab *v;
    float *score; /* NULL: byte-level BPE has none */
    strbuf lost;
    diag *d;
} sheet;

static void lose(sheet *h, const char *what) { sb_printf(&h->lost, "%s%s", h->lost.n ? "; " : "", what); }

/* ---- tokens ---- */

/* Bytes as the printable characters GPT-2 has for them, or spaces as U+2581. */
static an_status spell_piece(sheet *h, tok_str s, bool byte_level, bool marks, tok_str *out)
{
    unsigned char *p = s.n < SIZE_MAX / 3 ? arena_take(h->mem, 3 * s.n + 1, 1, 1) : NULL;
    size_t n = 0;
    if (!p) return diag_nomem(h->d);
    for (size_t i = 0; i < s.n; i++) {
        if (byte_level) n += utf8_put(p + n, byte_to_char((unsigned char)s.at[i]));
        else if (marks && s.at[i] == ' ') memcpy(p + n, SPACE_MARK, 3), n += 3;
        else p[n++] = (unsigned char)s.at[i];
    }
    *out = (tok_str){ (const char *)p, n };
    return AN_OK;
}

static an_status put_padding(sheet *h, size_t id, tok_str *out)
{
    char *p = arena_printf(h->mem, "[PAD%zu]", id);
    if (!p) return diag_nomem(h->d);
    *out = (tok_str){ p, strlen(p) };
    return AN_OK;
}

static an_status put_tokens(sheet *h, size_t rows)
{
    const tokenizer *t = h->t;
    bool bpe = t->model == MODEL_BYTE_BPE, replaced = false;
    size_t n = MAX((size_t)t->n, rows);
    tok_str *text = TAKE(h->mem, tok_str, n);
    int32_t *type = TAKE(h->mem, int32_t, n);
    if (!bpe) h->score = TAKE(h->mem, float, n);
    if (!text || !type || (!bpe && !h->score)) return diag_nomem(h->d);
    for (size_t i = 0; i < n; i++) {
        const token *k = i < t->n ? &t->tok[i] : NULL;
        type[i] = !k ? TOK_UNUSED : !bpe && (int64_t)i == t->unk ? TOK_UNKNOWN : k->type;
        if (k && !bpe) h->score[i] = k->score;
        bool plain = type[i] == TOK_NORMAL || type[i] == TOK_UNUSED;
        if (!k || (type[i] == TOK_UNUSED && !k->piece.n)) TRY(put_padding(h, i, &text[i]));
        else
            TRY(spell_piece(h, type[i] == TOK_BYTE || plain ? k->piece : k->out, bpe && plain,
                            !bpe && (plain || type[i] == TOK_USER), &text[i]));
        replaced |= k && plain && (k->out.n != k->piece.n || memcmp(k->out.at, k->piece.at, k->piece.n));
    }
    if (replaced) lose(h, "what its decoder replaces is printed as it is");
    h->v->n = n;
    h->v->token = text, h->v->type = type, h->v->score = h->score;
    return AN_OK;
}

/* ---- merges ---- */

typedef struct {
    uint32_t rank, left, right, to;
} merge;

static int by_rank(const void *p, const void *q)
{
    const merge *a = p, *b = q;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static merge *merges_in_order(sheet *h)
{
    const tokenizer *t = h->t;
    merge *m = TAKE(h->mem, merge, t->n_pairs + 1);
    size_t n = 0;
    if (!m) return NULL;
    for (size_t i = 0; i < t->cap_pairs; i++)
        if (t->pairs[i].rank != NO_RANK)
            m[n++] = (merge){ t->pairs[i].rank, (uint32_t)(t->pairs[i].key >> 32), (uint32_t)t->pairs[i].key,
                              t->pairs[i].to };
    if (n) qsort(m, n, sizeof *m, by_rank);
    return m;
}

static an_status put_merges(sheet *h)
{
    const tokenizer *t = h->t;
    const merge *m = merges_in_order(h);
    tok_str *text = TAKE(h->mem, tok_str, t->n_pairs + 1);
    if (!m || !text) return diag_nomem(h->d);
    for (size_t i = 0; i < t->n_pairs; i++) {
        tok_str l, r;
        const uint32_t ids[] = { m[i].left, m[i].right, m[i].to };
        for (size_t k = 0; k < COUNT(ids); k++)
            if (t->tok[ids[k]].type != TOK_NORMAL)
                return tok_bad(
                    h->d, t,
                    "merge %zu uses token %u (\"%.*s\"), which is a special one: a GGUF vocabulary cannot say so", i,
                    ids[k], (int)MIN(t->tok[ids[k]].out.n, (size_t)40), t->tok[ids[k]].out.at);
        TRY(spell_piece(h, t->tok[m[i].left].piece, true, false, &l));
        TRY(spell_piece(h, t->tok[m[i].right].piece, true, false, &r));
        char *p = arena_printf(h->mem, "%.*s %.*s", (int)l.n, l.at, (int)r.n, r.at);
        if (!p) return diag_nomem(h->d);
        text[i] = (tok_str){ p, l.n + r.n + 1 };
    }
    h->v->merge = text, h->v->n_merges = t->n_pairs;
    return AN_OK;
}

/* Every token comes out of its own text by merging: then looking a piece up whole first changes nothing. */
static an_status all_merge_to_themselves(sheet *h, bool *yes)
{
    const tokenizer *t = h->t;
    merge_scratch x = { 0 };
    tok_ids ids = { 0 };
    *yes = true;
    an_status st = AN_OK;
    for (uint32_t i = 0; i < t->n && *yes && !st; i++) {
        const token *k = &t->tok[i];
        if (k->type != TOK_NORMAL || !k->piece.n) continue;
        ids.n = 0;
        st = merge_piece(t, &x, (const unsigned char *)k->piece.at, k->piece.n, &ids, h->d);
        *yes = ids.n == 1 && ids.at[0] == (uint32_t)piece_id(t, (const unsigned char *)k->piece.at, k->piece.n);
    }
    tok_ids_free(&ids);
    merge_free(&x);
    return st;
}

static bool cuts_as(const tokenizer *t, const struct pre_row *r)
{
    size_t n = 0;
    while (n < MAX_PRE && r->split[n]) n++;
    if (n != t->n_split) return false;
    for (size_t i = 0; i < n; i++)
        if (!t->split[i].name || strcmp(t->split[i].name, r->split[i])) return false;
    return true;
}

static an_status name_cutting(sheet *h)
{
    const tokenizer *t = h->t;
    const struct pre_row *r, *near = NULL;
    for (size_t i = 0; (r = pre_at(i)); i++) {
        if (!cuts_as(t, r)) continue;
        if (r->ignore_merges == t->ignore_merges) return h->v->pre = r->name, AN_OK;
        if (!near) near = r;
    }
    if (!near) {
        tok_info info;
        tok_get(t, &info);
        return tok_bad(h->d, t, "cuts text in %zu steps, the last by \"%s\": no value of tokenizer.ggml.pre means that",
                       t->n_split, info.split);
    }
    bool same;
    TRY(all_merge_to_themselves(h, &same));
    if (!same)
        return tok_bad(
            h->d, t,
            "cuts text as \"%s\" does, but %s whole pieces up before merging: no value of tokenizer.ggml.pre means that",
            near->name, t->ignore_merges ? "looks" : "does not look");
    h->v->pre = near->name;
    return AN_OK;
}

/* ---- merges over characters, as scores ---- */

/* Every way to put a token together from two others must be one of its merges: scores allow all of them. */
static an_status no_merge_missing(sheet *h, uint32_t id)
{
    const tokenizer *t = h->t;
    const unsigned char *s = (const unsigned char *)t->tok[id].piece.at;
    size_t n = t->tok[id].piece.n;
    for (size_t i = 1; i < n; i++) {
        int32_t l = piece_id(t, s, i), r = piece_id(t, s + i, n - i);
        uint32_t rank, to;
        if (l < 0 || r < 0 || pair_find(t, (uint32_t)l, (uint32_t)r, &rank, &to)) continue;
        return tok_bad(
            h->d, t,
            "token %u could be made of tokens %d and %d, and no merge says so: scores, as a GGUF vocabulary has them, would allow it; a tokenizer.model has scores",
            id, l, r);
    }
    return AN_OK;
}

static an_status scores_of_merges(sheet *h)
{
    const tokenizer *t = h->t;
    const merge *m = merges_in_order(h);
    unsigned char *done = TAKE(h->mem, unsigned char, t->n);
    if (!m || !done) return diag_nomem(h->d);
    uint32_t place = 0;
    for (size_t i = 0; i < t->n_pairs; i++) {
        if (i && m[i].to == m[i - 1].to) continue;
        if (done[m[i].to])
            return tok_bad(
                h->d, t,
                "the merges of token %u do not stand together: scores, as a GGUF vocabulary has them, cannot say that; a tokenizer.model has scores",
                m[i].to);
        done[m[i].to] = 1;
        h->score[m[i].to] = -(float)++place;
    }
    for (uint32_t i = 0; i < t->n; i++)
        if (t->tok[i].type == TOK_NORMAL && t->tok[i].piece.n > 1) {
            TRY(no_merge_missing(h, i));
            if (!done[i]) h->score[i] = -(float)(place + 1);
        }
    return AN_OK;
}

/* ---- what is done to a text ---- */

static an_status put_charsmap(sheet *h, const norm_step *s)
{
    size_t n = 4 + 4 * s->n_units + s->replacements.n;
    unsigned char *p = arena_take(h->mem, n, 1, 1), *at = p;
    if (!p) return diag_nomem(h->d);
    for (size_t i = 0; i <= s->n_units; i++) {
        uint32_t u = i ? s->units[i - 1] : (uint32_t)(4 * s->n_units);
        for (int b = 0; b < 4; b++) *at++ = (unsigned char)(u >> 8 * b);
    }
    if (s->replacements.n) memcpy(at, s->replacements.at, s->replacements.n);
    h->v->charsmap = p, h->v->n_charsmap = n;
    return AN_OK;
}

static an_status put_norms(sheet *h)
{
    static const char *const names[] = { "NFC",
                                         "Replace",
                                         "Replace by a regular expression",
                                         "a second character map",
                                         "squeezing spaces before the last step",
                                         "Strip" };
    const tokenizer *t = h->t;
    bool bpe = t->model == MODEL_BYTE_BPE;
    for (size_t i = 0; i < t->n_norm; i++) {
        const norm_step *s = &t->norm[i];
        if (s->kind == NORM_NFC) lose(h, "text is not brought to NFC");
        else if (!bpe && s->kind == NORM_CHARSMAP && !i) TRY(put_charsmap(h, s));
        else if (!bpe && s->kind == NORM_SQUEEZE && i + 1 == t->n_norm) h->v->remove_extra_whitespaces = true;
        else return tok_bad(h->d, t, "normalises text by %s: a GGUF vocabulary has no word for it", names[s->kind]);
    }
    return AN_OK;
}

/* Pieces begin with their space, if they hold one: then cutting in front of each space changes nothing. */
static bool spaces_lead(const tokenizer *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        for (size_t k = 1; k < t->tok[i].piece.n && t->tok[i].type == TOK_NORMAL; k++)
            if (t->tok[i].piece.at[k] == ' ' && t->tok[i].piece.at[k - 1] != ' ') return false;
    return true;
}

static an_status put_spaces(sheet *h)
{
    const tokenizer *t = h->t;
    bool bpe = t->model == MODEL_BYTE_BPE;
    for (size_t i = 0; i < t->n_split && !bpe; i++)
        if (t->split[i].kind != SPLIT_SPACE_FIRST || !spaces_lead(t))
            return tok_bad(h->d, t,
                           "cuts text before it is merged, which a GGUF vocabulary of this kind has no word for");
    h->v->add_space_prefix = t->prefix != PREFIX_NONE;
    if (t->prefix == PREFIX_FIRST) lose(h, "text behind a special token gets a space in front, too");
    if (!bpe && t->prefix != PREFIX_NONE && t->prefix_unless_space)
        lose(h, "text that begins with a space gets another one");
    if (t->any_flags) lose(h, "special tokens do not swallow the spaces beside them");
    if (!bpe && !t->byte_fallback && t->unk >= 0 && !t->fuse_unk)
        lose(h, "characters in a row that it does not know become one token, not one each");
    return AN_OK;
}

/* ---- the whole ---- */

static an_status fill(sheet *h, size_t rows)
{
    const tokenizer *t = h->t;
    tok_vocab *v = h->v;
    if (t->model == MODEL_CHAR_BPE && !t->byte_fallback && t->unk < 0)
        return tok_bad(
            h->d, t,
            "BPE over characters with neither bytes nor an unknown token to fall back to: a GGUF vocabulary has no word for it");
    int bytes = 0;
    for (int b = 0; b < 256; b++) bytes += t->byte_id[b] != NO_ID;
    if (t->model != MODEL_BYTE_BPE && !t->byte_fallback && bytes)
        return tok_bad(
            h->d, t,
            "%d of 256 bytes have a token, and it does not fall back to them: a GGUF vocabulary has no word for it",
            bytes);
    *v = (tok_vocab){ .model = t->model == MODEL_BYTE_BPE ? "gpt2" : t->model == MODEL_UNIGRAM ? "t5" : "llama", .bos = t->bos, .eos = t->eos, .unk = t->unk, .pad = t->pad,
                      .add_bos = t->add_bos, .add_eos = t->add_eos, .chat_template = t->chat_template };
    TRY(put_tokens(h, rows));
    TRY(put_norms(h));
    TRY(put_spaces(h));
    v->pre = "default"; /* what such files say where nothing is cut */
    if (t->model == MODEL_CHAR_BPE) return scores_of_merges(h);
    if (t->model != MODEL_BYTE_BPE) return AN_OK;
    TRY(name_cutting(h));
    return put_merges(h);
}

an_status tok_to_vocab(const tokenizer *t, size_t rows, arena *mem, tok_vocab *out, const char **lost, diag *d)
{
    sheet h = { .t = t, .mem = mem, .v = out, .d = d };
    an_status st = fill(&h, rows);
    if (!st && (h.lost.oom || !(*lost = arena_str(mem, h.lost.at ? h.lost.at : "")))) st = diag_nomem(d);
    sb_free(&h.lost);
    return st;
}
