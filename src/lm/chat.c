/* chat.c: conversations in the form a model was trained on.
 * In: messages.  Out: tokens that end where the assistant speaks next.
 *
 * Models carry their form as a Jinja program. We do not run it: the families' own forms are few, and each is told
 * from the others by the control tokens its program writes. A program that writes none of them is refused, never
 * guessed at. A system text that a program writes when none is given (Qwen) is found in it and used.
 *
 * Control tokens are ids from the vocabulary, put between pieces of text; text is encoded without looking for
 * control tokens, so what a user types cannot be one. Text on both sides of a boundary without a control token is
 * joined before it is encoded. */
#include "lm/generate.h"

static const struct {
    const char *name;
    /* a template has this form when all of them stand in its Jinja text; the first row that fits wins */
    const char *marks[2];
} kinds[CHAT_KINDS] = {
    [CHAT_PLAIN] = { "plain", { NULL, NULL } },
    [CHAT_CHATML] = { "chatml", { "<|im_start|>", NULL } },
    [CHAT_LLAMA3] = { "llama3", { "<|start_header_id|>", "<|eot_id|>" } },
    [CHAT_LLAMA2] = { "llama2", { "[INST]", "<<SYS>>" } },
    [CHAT_MISTRAL] = { "mistral", { "[INST]", NULL } },
    [CHAT_GEMMA] = { "gemma", { "<start_of_turn>", "<end_of_turn>" } },
};

const char *lm_chat_name(lm_chat c) { return kinds[c].name; }

an_status lm_chat_find(const char *template, lm_chat *out, diag *d)
{
    static const lm_chat order[] = { CHAT_CHATML, CHAT_LLAMA3, CHAT_LLAMA2, CHAT_MISTRAL, CHAT_GEMMA };
    *out = CHAT_PLAIN;
    if (!template || !*template) return AN_OK;
    for (int i = 0; i < CHAT_KINDS; i++)
        if (!strcmp(template, kinds[i].name)) return *out = (lm_chat)i, AN_OK;
    for (size_t i = 0; i < COUNT(order); i++) {
        const char *const *m = kinds[order[i]].marks;
        if (strstr(template, m[0]) && (!m[1] || strstr(template, m[1]))) return *out = order[i], AN_OK;
    }
    return diag_fail(
        d, AN_INPUT, NOWHERE,
        "the chat template is not understood: it begins \"%.80s\"; known are chatml, llama2, llama3, mistral, gemma and plain",
        template);
}

/* ---- pieces ---- */

typedef struct {
    const tokenizer *t;
    tok_encoder *e;
    tok_ids *out;
    strbuf text; /* not encoded yet */
    diag *d;
} writer;

static an_status flush(writer *w)
{
    if (w->text.oom) return diag_nomem(w->d);
    if (!w->text.n) return AN_OK;
    an_status st = tok_encode(w->e, w->text.at, w->text.n, TOK_UTF8, w->out, w->d);
    w->text.n = 0;
    return st;
}

static an_status put_id(writer *w, int64_t id, const char *name)
{
    TRY(flush(w));
    if (id < 0)
        return diag_fail(w->d, AN_INPUT, NOWHERE,
                         "the chat template wants the token %s, which the vocabulary does not have", name);
    return tok_ids_push(w->out, (uint32_t)id) ? AN_OK : diag_nomem(w->d);
}

static an_status put_control(writer *w, const char *name)
{
    return put_id(w, tok_find(w->t, name, strlen(name)), name);
}
static void put_text(writer *w, const char *s) { sb_puts(&w->text, s); }
static void put_message(writer *w, const lm_message *m) { sb_putn(&w->text, m->text, m->n); }

/* A mark that newer vocabularies have as a control token and older ones spell. */
static an_status put_mark(writer *w, const char *mark)
{
    int64_t id = tok_find(w->t, mark, strlen(mark));
    if (id >= 0 && tok_type_of(w->t, (uint32_t)id) != TOK_NORMAL) return put_id(w, id, mark);
    put_text(w, mark);
    return AN_OK;
}

static const char *role_name(lm_role r) { return r == CHAT_SYSTEM ? "system" : r == CHAT_USER ? "user" : "assistant"; }

/* ---- forms ---- */

static an_status put_bos(writer *w)
{
    tok_info info;
    tok_get(w->t, &info);
    return info.bos >= 0 ? put_id(w, info.bos, "BOS") : AN_OK;
}

static an_status put_eos(writer *w)
{
    tok_info info;
    tok_get(w->t, &info);
    return put_id(w, info.eos, "EOS");
}

/* The system text a program writes itself: between the two marks, when nothing in between is computed. */
static size_t default_system(const char *template, const char **at)
{
    static const char begin[] = "<|im_start|>system\\n", end[] = "<|im_end|>";
    const char *p = template, *q;
    for (; p && (p = strstr(p, begin)); p = q) {
        p += sizeof begin - 1;
        q = strstr(p, end);
        if (!q || q == p || (size_t)(q - p) > 400) continue;
        size_t n = (size_t)(q - p);
        bool plain = !memchr(p, '{', n) && !memchr(p, '\'', n) && !memchr(p, '"', n) && !memchr(p, '\\', n);
        if (plain) return *at = p, n;
    }
    return 0;
}

static an_status chatml_turn(writer *w, const char *role, const char *text, size_t n)
{
    TRY(put_control(w, "<|im_start|>"));
    put_text(w, role), put_text(w, "\n");
    if (!text) return AN_OK;
    sb_putn(&w->text, text, n);
    TRY(put_control(w, "<|im_end|>"));
    put_text(w, "\n");
    return AN_OK;
}

static an_status write_chatml(writer *w, const char *template, const lm_message *m, size_t n)
{
    const char *system;
    size_t len = template && m[0].role != CHAT_SYSTEM ? default_system(template, &system) : 0;
    if (len) TRY(chatml_turn(w, "system", system, len));
    for (size_t i = 0; i < n; i++) TRY(chatml_turn(w, role_name(m[i].role), m[i].text, m[i].n));
    return chatml_turn(w, "assistant", NULL, 0);
}

static an_status llama3_turn(writer *w, const char *role, const lm_message *m)
{
    TRY(put_control(w, "<|start_header_id|>"));
    put_text(w, role);
    TRY(put_control(w, "<|end_header_id|>"));
    put_text(w, "\n\n");
    if (!m) return AN_OK;
    put_message(w, m);
    return put_control(w, "<|eot_id|>");
}

static an_status write_llama3(writer *w, const lm_message *m, size_t n)
{
    TRY(put_bos(w));
    for (size_t i = 0; i < n; i++) TRY(llama3_turn(w, role_name(m[i].role), &m[i]));
    return llama3_turn(w, "assistant", NULL);
}

/* No turn of its own for a system text: such programs refuse one. */
static an_status write_gemma(writer *w, const lm_message *m, size_t n)
{
    TRY(put_bos(w));
    for (size_t i = 0; i <= n; i++) {
        if (i < n && m[i].role == CHAT_SYSTEM)
            return diag_fail(w->d, AN_INPUT, NOWHERE, "the chat template (gemma) has no place for a system text");
        TRY(put_control(w, "<start_of_turn>"));
        put_text(w, i < n && m[i].role == CHAT_USER ? "user\n" : "model\n");
        if (i == n) break;
        put_message(w, &m[i]);
        TRY(put_control(w, "<end_of_turn>"));
        put_text(w, "\n");
    }
    return AN_OK;
}

/* [INST] around each user message; a system text stands in front of the first one, between marks of its own or by
 * itself. */
static an_status write_inst(writer *w, const lm_message *m, size_t n, bool llama2)
{
    const lm_message *system = n && m[0].role == CHAT_SYSTEM ? &m[0] : NULL;
    if (!llama2) TRY(put_bos(w));
    for (size_t i = system ? 1 : 0; i < n; i++) {
        if (m[i].role == CHAT_ASSISTANT) {
            put_text(w, llama2 ? " " : "");
            put_message(w, &m[i]);
            if (llama2) put_text(w, " ");
            TRY(put_eos(w));
            continue;
        }
        if (llama2) TRY(put_bos(w));
        TRY(put_mark(w, "[INST]"));
        put_text(w, " ");
        if (system && llama2) put_text(w, "<<SYS>>\n"), put_message(w, system), put_text(w, "\n<</SYS>>\n\n");
        else if (system) put_message(w, system), put_text(w, "\n\n");
        system = NULL;
        put_message(w, &m[i]);
        put_text(w, " ");
        TRY(put_mark(w, "[/INST]"));
    }
    return AN_OK;
}

/* No template: the texts one after the other, a line each. */
static an_status write_plain(writer *w, const lm_message *m, size_t n)
{
    TRY(put_bos(w));
    for (size_t i = 0; i < n; i++) put_message(w, &m[i]), put_text(w, "\n");
    return AN_OK;
}

static an_status write(writer *w, lm_chat c, const char *template, const lm_message *m, size_t n)
{
    switch (c) {
    case CHAT_CHATML: TRY(write_chatml(w, template, m, n)); break;
    case CHAT_LLAMA3: TRY(write_llama3(w, m, n)); break;
    case CHAT_LLAMA2: TRY(write_inst(w, m, n, true)); break;
    case CHAT_MISTRAL: TRY(write_inst(w, m, n, false)); break;
    case CHAT_GEMMA: TRY(write_gemma(w, m, n)); break;
    case CHAT_PLAIN: TRY(write_plain(w, m, n)); break;
    case CHAT_KINDS: break;
    }
    return flush(w);
}

an_status lm_chat_encode(lm_chat c, const char *template, const tokenizer *t, tok_encoder *e, const lm_message *m,
                         size_t n, tok_ids *out, diag *d)
{
    if (!n) return diag_fail(d, AN_INPUT, NOWHERE, "a conversation without messages");
    writer w = { .t = t, .e = e, .out = out, .d = d };
    an_status st = write(&w, c, template, m, n);
    sb_free(&w.text);
    return st;
}

int64_t lm_chat_end(lm_chat c, const tokenizer *t)
{
    const char *name = c == CHAT_CHATML   ? "<|im_end|>"
                       : c == CHAT_LLAMA3 ? "<|eot_id|>"
                       : c == CHAT_GEMMA  ? "<end_of_turn>"
                                          : NULL;
    return name ? tok_find(t, name, strlen(name)) : -1;
}
