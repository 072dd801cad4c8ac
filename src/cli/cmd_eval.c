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
    if (!code && arg_on(a, "json"))
        printf("{\"tokens\":%zu,\"nats_per_token\":%.9g,\"ppl\":%.9g}\n", s.tokens, s.nats_per_token, s.ppl);
    else if (!code) printf("tokens %zu\nnats_per_token %.6f\nppl %.6f\n", s.tokens, s.nats_per_token, s.ppl);
    an_lm_close(m);
    return code;
}
