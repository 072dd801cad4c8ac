/* cmd_chat.c: a conversation with a language model, a line each way. Lines come from standard input, so it can be a
 * file. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/lm_options.h"

const option chat_options[] = {
    LM_MODEL_OPTIONS,
    { "system", "S", NULL, "what the model is told first" },
    { "template", "NAME", NULL, "chatml, llama2, llama3, mistral, gemma, plain; without it the model's own" },
    LM_SAMPLING_OPTIONS,
    { "json", NULL, NULL, "an object for each token, and one at the end of each turn" },
    { NULL, NULL, NULL, NULL },
};

typedef struct {
    bool json, oom; /* oom: there was no memory for a line */
    size_t turn;
} writer;

static int on_token(void *user, const an_token *t)
{
    writer *w = user;
    if (!w->json) return fwrite(t->text, 1, t->n_text, stdout) == t->n_text && !fflush(stdout);
    char turn[40];
    snprintf(turn, sizeof turn, "\"turn\":%zu,", w->turn);
    return lm_put_token(turn, t, &w->oom);
}

/* A line without its end; false: there is none left. */
static bool read_line(strbuf *b)
{
    int c;
    b->n = 0;
    while ((c = getchar()) != EOF && c != '\n') sb_putc(b, (char)c);
    return (c != EOF || b->n) && !b->oom;
}

static int talk(const args *a, an_lm *m, lm_choice *choice, writer *w)
{
    an_error e = { 0 };
    strbuf line = { 0 };
    int code = 0;
    bool person = isatty(0) && isatty(2);
    if (an_lm_chat_begin(m, arg_of(a, "template"), arg_of(a, "system"), &e)) return say_error(NULL, &e);
    if (person) fprintf(stderr, "%s form; an empty line or the end of input ends it\n", an_lm_chat_form(m));
    for (;; w->turn++) {
        if (person) fputs("> ", stderr);
        if (!read_line(&line) || !line.n) {
            if (line.oom) code = say(AN_NOMEM, "out of memory");
            break;
        }
        an_generated r;
        if (an_lm_chat(m, line.at, line.n, &choice->o, &r, &e)) {
            code = say_error(NULL, &e);
            break;
        }
        if (w->oom) {
            code = say(AN_NOMEM, "out of memory");
            break;
        }
        if (w->json)
            printf(
                "{\"turn\":%zu,\"done\":true,\"why\":\"%s\",\"prompt_tokens\":%zu,\"reused\":%zu,\"new_tokens\":%zu,\"prompt_ms\":%.3f,\"decode_ms\":%.3f}\n",
                w->turn, r.why, r.prompt_tokens, r.reused, r.new_tokens, r.prompt_ms, r.decode_ms);
        else putchar('\n');
        fflush(stdout);
        an_lm_info info;
        an_lm_get(m, &info);
        if (person) lm_say_speed(&r, &info);
    }
    sb_free(&line);
    return code;
}

int cmd_chat(const args *a)
{
    an_lm *m = NULL;
    writer w = { .json = arg_on(a, "json") };
    lm_choice choice = { .o = { .on_token = on_token, .user = &w } };
    if (a->n_files) return say(AN_USAGE, "chat takes no file, got \"%s\"; lines come from standard input", a->files[0]);
    int code = lm_sampling_args(a, &choice);
    if (!code) code = lm_open_args(a, &m);
    if (!code) lm_sampling_rest(a, m, &choice);
    if (!code) code = talk(a, m, &choice, &w);
    lm_choice_free(&choice);
    lm_leave(m);
    return code;
}
