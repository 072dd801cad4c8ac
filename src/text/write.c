/* write.c: a vocabulary as the files a folder has: tokenizer.json for byte-level BPE, SentencePiece's
 * tokenizer.model for the others, and tokenizer_config.json beside either. load_json.c and load_model.c read the
 * same tokenizer out of them. */
#include "text/text_int.h"

/* ---- tokenizer.json ---- */

static void put_string(strbuf *b, tok_str s) { sb_json(b, s.at, s.n); }

static bool is_added(const tok_vocab *v, size_t i)
{
    return v->type && (v->type[i] == TOK_CONTROL || v->type[i] == TOK_USER || v->type[i] == TOK_UNKNOWN);
}
static bool is_there(const tok_vocab *v, size_t i) { return !v->type || v->type[i] == TOK_NORMAL; }

static void put_added(strbuf *b, const tok_vocab *v)
{
    size_t n = 0;
    sb_puts(b, "\"added_tokens\":[");
    for (size_t i = 0; i < v->n; i++) {
        if (!is_added(v, i)) continue;
        sb_printf(b, "%s\n {\"id\":%zu,\"content\":", n++ ? "," : "", i);
        put_string(b, v->token[i]);
        sb_printf(b, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                  v->type[i] == TOK_USER ? "false" : "true");
    }
    sb_puts(b, "]");
}

static void put_byte_level(strbuf *b, bool prefix, bool regex)
{
    sb_printf(b, "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":%s}",
              prefix ? "true" : "false", regex ? "true" : "false");
}

/* GPT-2's own pattern is ByteLevel's; any other is spelt, step by step. */
static void put_pre(strbuf *b, const struct pre_row *r, bool prefix)
{
    if (!r->split[1] && !strcmp(r->split[0], "gpt2")) {
        put_byte_level(b, prefix, true);
        return;
    }
    sb_puts(b, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (size_t i = 0; i < MAX_PRE && r->split[i]; i++) {
        const char *regex = split_pattern(r->split[i]);
        sb_puts(b, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        sb_json(b, regex, strlen(regex));
        sb_puts(b, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    put_byte_level(b, prefix, false);
    sb_puts(b, "]}");
}

static void put_special(strbuf *b, const tok_vocab *v, int64_t id, bool *some)
{
    sb_puts(b, *some ? ",{\"SpecialToken\":{\"id\":" : "{\"SpecialToken\":{\"id\":");
    put_string(b, v->token[id]);
    sb_puts(b, ",\"type_id\":0}}");
    *some = true;
}

/* What a text gets around it; without that the section is about offsets only. */
static void put_post(strbuf *b, const tok_vocab *v)
{
    bool bos = v->add_bos > 0 && v->bos >= 0, eos = v->add_eos > 0 && v->eos >= 0, some = false;
    if (!bos && !eos) {
        put_byte_level(b, false, true);
        return;
    }
    for (int pair = 0; pair < 2; pair++) {
        sb_puts(b, pair ? "],\"pair\":[" : "{\"type\":\"TemplateProcessing\",\"single\":[");
        some = false;
        for (int k = 0; k <= pair; k++) {
            if (bos) put_special(b, v, v->bos, &some);
            sb_printf(b, "%s{\"Sequence\":{\"id\":\"%c\",\"type_id\":%d}}", some ? "," : "", 'A' + k, k);
            some = true;
            if (eos) put_special(b, v, v->eos, &some);
        }
    }
    sb_puts(b, "],\"special_tokens\":{");
    const int64_t ids[] = { bos ? v->bos : -1, eos && !(bos && v->bos == v->eos) ? v->eos : -1 };
    some = false;
    for (size_t i = 0; i < COUNT(ids); i++) {
        if (ids[i] < 0) continue;
        if (some) sb_puts(b, ",");
        put_string(b, v->token[ids[i]]);
        sb_puts(b, ":{\"id\":");
        put_string(b, v->token[ids[i]]);
        sb_printf(b, ",\"ids\":[%lld],\"tokens\":[", (long long)ids[i]);
        put_string(b, v->token[ids[i]]);
        sb_puts(b, "]}");
        some = true;
    }
    sb_puts(b, "}}");
}

void vocab_json(strbuf *b, const tok_vocab *v, const struct pre_row *pre)
{
    size_t n = 0;
    bool prefix = v->add_space_prefix == 1;
    sb_puts(b, "{\n\"version\":\"1.0\",\n\"truncation\":null,\n\"padding\":null,\n");
    put_added(b, v);
    sb_puts(b, ",\n\"normalizer\":null,\n\"pre_tokenizer\":");
    put_pre(b, pre, prefix);
    sb_puts(b, ",\n\"post_processor\":");
    put_post(b, v);
    sb_puts(b, ",\n\"decoder\":");
    put_byte_level(b, false, true);
    sb_printf(b, ",\n\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                 "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,\n\"vocab\":{", pre->ignore_merges ? "true" : "false");
    for (size_t i = 0; i < v->n; i++) {
        if (!is_there(v, i)) continue;
        sb_puts(b, n++ ? ",\n" : "\n");
        put_string(b, v->token[i]);
        sb_printf(b, ":%zu", i);
    }
    sb_puts(b, "},\n\"merges\":[");
    for (size_t i = 0; i < v->n_merges; i++) {
        sb_puts(b, i ? ",\n" : "\n");
        put_string(b, v->merge[i]);
    }
    sb_puts(b, "]}\n}\n");
}

/* ---- tokenizer.model ---- */

static void put_varint(strbuf *b, uint64_t x)
{
    for (; x > 127; x >>= 7) sb_putc(b, (char)((x & 127) | 128));
    sb_putc(b, (char)x);
}
/* negative ones take ten bytes */
static void put_number(strbuf *b, unsigned field, int64_t x) { put_varint(b, field << 3), put_varint(b, (uint64_t)x); }
static void put_bytes(strbuf *b, unsigned field, const void *p, size_t n)
{
    put_varint(b, field << 3 | 2), put_varint(b, n), sb_putn(b, p, n);
}

static void put_float(strbuf *b, unsigned field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    put_varint(b, field << 3 | 5);
    for (int i = 0; i < 4; i++) sb_putc(b, (char)(bits >> 8 * i));
}

static void vocab_model(strbuf *b, const tok_vocab *v)
{
    strbuf part = { 0 };
    bool bytes = false;
    for (size_t i = 0; i < v->n; i++) {
        int type = v->type ? v->type[i] : TOK_NORMAL;
        part.n = 0;
        put_bytes(&part, 1, v->token[i].at, v->token[i].n);
        put_float(&part, 2, v->score ? v->score[i] : 0);
        if (type != TOK_NORMAL) put_number(&part, 3, type);
        put_bytes(b, 1, part.at, part.n);
        bytes |= type == TOK_BYTE;
    }
    part.n = 0;
    put_number(&part, 3, strcmp(v->model, "t5") ? 2 : 1);
    put_number(&part, 4, (int64_t)v->n);
    put_number(&part, 35, bytes);
    put_number(&part, 40, v->unk), put_number(&part, 41, v->bos), put_number(&part, 42, v->eos),
        put_number(&part, 43, v->pad);
    put_bytes(b, 2, part.at, part.n);
    part.n = 0;
    put_bytes(&part, 1, v->n_charsmap ? "custom" : "identity", v->n_charsmap ? 6 : 8);
    put_bytes(&part, 2, v->charsmap ? v->charsmap : "", v->n_charsmap);
    put_number(&part, 3, v->add_space_prefix != 0);
    put_number(&part, 4, v->remove_extra_whitespaces);
    put_number(&part, 5, 1);
    put_bytes(b, 3, part.at, part.n);
    b->oom |= part.oom;
    sb_free(&part);
}

/* ---- the front ---- */

const char *tok_vocab_file(const tok_vocab *v, strbuf *out)
{
    if (strcmp(v->model, "gpt2")) return vocab_model(out, v), "tokenizer.model";
    return vocab_json(out, v, pre_find(v->pre)), "tokenizer.json";
}

void tok_vocab_config(const tok_vocab *v, strbuf *b)
{
    const struct {
        const char *key;
        int64_t id;
    } names[] = { { "bos_token", v->bos }, { "eos_token", v->eos }, { "unk_token", v->unk }, { "pad_token", v->pad } };
    sb_printf(b, "{\n  \"add_bos_token\": %s,\n  \"add_eos_token\": %s", v->add_bos > 0 ? "true" : "false",
              v->add_eos > 0 ? "true" : "false");
    for (size_t i = 0; i < COUNT(names); i++) {
        sb_printf(b, ",\n  \"%s\": ", names[i].key);
        if (names[i].id < 0) sb_puts(b, "null");
        else put_string(b, v->token[names[i].id]);
    }
    if (v->chat_template)
        sb_puts(b, ",\n  \"chat_template\": "), sb_json(b, v->chat_template, strlen(v->chat_template));
    sb_printf(b, ",\n  \"tokenizer_class\": \"%s\"\n}\n",
              !strcmp(v->model, "llama") ? "LlamaTokenizer"
              : !strcmp(v->model, "t5")  ? "T5Tokenizer"
                                         : "PreTrainedTokenizerFast");
}
