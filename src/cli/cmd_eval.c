/* cmd_eval.c: how well a language model predicts a text. */
#include <unistd.h>

#include "cli/lm_options.h"

const option eval_options[] = {
    LM_MODEL_OPTIONS,
    { "data", "F", NULL, "a text, or ids as .u16, .u32 or llm.c's .bin: these need no tokenizer" },
    { "json", NULL, NULL, "one object" },
    { NULL, NULL, NULL, NULL },
};

static void progress(void *user, const an_score *s)
{
    (void)user;
    if (isatty(2)) fprintf(stderr, "\r%zu tokens, %.4f nats, perplexity %.3f ", s->tokens, s->nats_per_token, s->ppl);
}

static int put_json(const an_score *s)
{
    strbuf b = { 0 };
    sb_printf(&b, "{\"tokens\":%zu,\"nats_per_token\":", s->tokens);
    sb_number(&b, s->nats_per_token);
    sb_puts(&b, ",\"ppl\":");
    sb_number(&b, s->ppl);
    sb_puts(&b, "}\n");
    int code = b.oom ? say(AN_NOMEM, "out of memory") : 0;
    if (!code) fputs(b.at, stdout);
    sb_free(&b);
    return code;
}

int cmd_eval(const args *a)
{
    an_lm *m = NULL;
    an_error e = { 0 };
    an_score s;
    const char *data = arg_of(a, "data");
    if (a->n_files) return say(AN_USAGE, "eval takes no file; the text is --data");
    if (!data) return say(AN_USAGE, "eval needs --data");
    int code = lm_open_args(a, &m);
    if (!code && an_lm_eval(m, data, progress, NULL, &s, &e)) code = say_error(NULL, &e);
    if (isatty(2)) fputc('\n', stderr);
    if (!code && arg_on(a, "json")) code = put_json(&s);
    else if (!code) printf("tokens %zu\nnats_per_token %.6f\nppl %.6f\n", s.tokens, s.nats_per_token, s.ppl);
    lm_leave(m);
    return code;
}
