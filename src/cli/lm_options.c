/* lm_options.c: a model and a sampler from command-line options. */
#include <errno.h>
#include <stdlib.h>

#include "base/pool.h"
#include "cli/lm_options.h"

static bool number(const args *a, const char *name, double *out)
{
    const char *s = arg_of(a, name);
    char *end;
    errno = 0;
    *out = s ? strtod(s, &end) : 0;
    if (!s || (*s && !*end && !errno)) return true;
    say(AN_USAGE, "--%s wants a number, got \"%s\"", name, s);
    return false;
}

static bool seed_of(const args *a, const char *name, uint64_t *out)
{
    const char *s = arg_of(a, name);
    char *end;
    errno = 0;
    *out = s ? strtoull(s, &end, 10) : 0;
    if (!s || (*s >= '0' && *s <= '9' && !*end && !errno)) return true;
    say(AN_USAGE, "--%s wants a whole number, got \"%s\"", name, s);
    return false;
}

int lm_open_args(const args *a, an_lm **out)
{
    long context, threads;
    an_error e = { 0 };
    an_lm_options o = { .model = arg_of(a, "model"),
                        .tokenizer = arg_of(a, "tokenizer"),
                        .engine = arg_of(a, "engine"),
                        .weights = arg_of(a, "weights"),
                        .cache_dir = arg_of(a, "cache"),
                        .no_cache = arg_on(a, "no-cache"),
                        .draft = arg_of(a, "draft") };
    *out = NULL;
    if (!o.model) return say(AN_USAGE, "%s needs --model", a->cmd->name);
    o.no_tokenizer = !o.tokenizer && arg_of(a, "data") && an_is_token_file(arg_of(a, "data")); /* eval: ids need none */
    int code = engine_computes(a);
    if (code) return code;
    if (!arg_int(a, "context", 0, 1 << 24, &context) || !arg_int(a, "threads", 0, POOL_MAX_THREADS, &threads) ||
        !seed_of(a, "weight-seed", &o.seed))
        return an_exit_code(AN_USAGE);
    o.context = context, o.threads = (int)threads;
    if (an_lm_open(out, &o, &e)) return say_error(NULL, &e);
    an_lm_info info;
    an_lm_get(*out, &info);
    if (*info.remark) fprintf(stderr, "anneal: warning: %s\n", info.remark);
    return 0;
}

void lm_leave(an_lm *m)
{
    an_lm_info info = { .cache_bad = 0 };
    if (m) an_lm_get(m, &info);
    if (info.cache_bad)
        fprintf(stderr, "anneal: warning: %llu compiled program%s in the cache %s damaged: made again\n",
                (unsigned long long)info.cache_bad, info.cache_bad > 1 ? "s" : "", info.cache_bad > 1 ? "were" : "was");
    an_lm_close(m);
}

int lm_sampling_args(const args *a, lm_choice *c)
{
    long max, top_k = 0, lookup, guesses = 0;
    an_generate_options *o = &c->o;
    if (!arg_int(a, "max-tokens", -1, 1 << 30, &max) ||
        (arg_on(a, "top-k") && !arg_int(a, "top-k", 0, 1 << 30, &top_k)) || !arg_int(a, "lookup", 0, 64, &lookup) ||
        (arg_on(a, "draft-tokens") && !arg_int(a, "draft-tokens", 1, 7, &guesses)) ||
        !number(a, "temperature", &o->temperature) || !number(a, "top-p", &o->top_p) ||
        !number(a, "min-p", &o->min_p) || !number(a, "repetition-penalty", &o->repetition_penalty) ||
        !seed_of(a, "seed", &o->seed))
        return an_exit_code(AN_USAGE);
    if (arg_on(a, "repetition-penalty") && o->repetition_penalty == 0)
        return say(AN_USAGE, "--repetition-penalty wants a number above 0 (1: none), got \"%s\"",
                   arg_of(a, "repetition-penalty"));
    if (arg_on(a, "top-p") && o->top_p == 0)
        return say(AN_USAGE, "--top-p wants a number above 0 (1: all), got \"%s\"", arg_of(a, "top-p"));
    if (guesses && !lookup && !arg_on(a, "draft"))
        return say(
            AN_USAGE,
            "--draft-tokens is about guesses, and nothing guesses: name a model with --draft, or ask for --lookup");
    if (lookup && arg_on(a, "draft"))
        return say(AN_USAGE, "--lookup and --draft are two ways to guess ahead; choose one");
    o->max_tokens = max, o->top_k = top_k, o->lookup = (int)lookup, o->draft_tokens = (int)guesses;
    c->stop = calloc(a->n_list + 1, sizeof *c->stop);
    if (!c->stop) return say(AN_NOMEM, "out of memory");
    for (size_t i = 0; i < a->n_list; i++)
        if (!strcmp(a->list[i].option, "stop")) {
            if (!*a->list[i].value) return say(AN_USAGE, "--stop wants a text, got an empty one");
            c->stop[o->n_stop++] = a->list[i].value;
        }
    o->stop = c->stop;
    return 0;
}

void lm_sampling_rest(const args *a, const an_lm *m, lm_choice *c)
{
    static const char *const cuts[] = { "top-k", "top-p", "min-p" };
    an_generate_options said = { 0 };
    strbuf b = { 0 };
    an_lm_suggest(m, &said);
    const struct {
        const char *name;
        double from, *to;
        bool cut; /* among what, where the likeliest is not simply taken */
    } rows[] = { { "temperature", said.temperature, &c->o.temperature, false }, { "top-p", said.top_p, &c->o.top_p, true },
                 { "min-p", said.min_p, &c->o.min_p, true }, { "repetition-penalty", said.repetition_penalty, &c->o.repetition_penalty, false } };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!arg_on(a, rows[i].name) && rows[i].from != *rows[i].to && (c->o.temperature > 0 || !rows[i].cut))
            sb_printf(&b, "%s%s %g", b.n ? ", " : "", rows[i].name, *rows[i].to = rows[i].from);
    if (!arg_on(a, "top-k") && said.top_k != c->o.top_k && c->o.temperature > 0)
        sb_printf(&b, "%stop-k %lld", b.n ? ", " : "", (long long)(c->o.top_k = said.top_k));
    if (b.n && !b.oom) fprintf(stderr, "as the model asks for: %.*s\n", (int)b.n, b.at);
    sb_free(&b);
    for (size_t i = 0; i < COUNT(cuts) && c->o.temperature == 0; i++)
        if (arg_on(a, cuts[i]))
            fprintf(stderr,
                    "anneal: warning: --%s changes nothing: at temperature 0 the likeliest token is always taken\n",
                    cuts[i]);
}

void lm_choice_free(lm_choice *c)
{
    free(c->stop);
    c->stop = NULL;
}

bool lm_put_token(const char *front, const an_token *t, bool *oom)
{
    strbuf b = { 0 };
    sb_printf(&b, "{%s\"index\":%zu,\"token\":%u,\"text\":", front, t->index, t->id);
    sb_json(&b, t->text, t->n_text);
    sb_printf(&b, ",\"logprob\":%.6f}\n", t->logprob);
    *oom |= b.oom;
    bool ok = !b.oom && fwrite(b.at, 1, b.n, stdout) == b.n && !fflush(stdout);
    sb_free(&b);
    return ok;
}

void lm_say_speed(const an_generated *r, const an_lm_info *info)
{
    /* the first one comes with the prompt */
    size_t run = r->prompt_tokens - r->reused, steps = r->new_tokens ? r->new_tokens - 1 : 0;
    fprintf(stderr, "%s, %s: prompt %zu token%s", info->engine, info->weights, r->prompt_tokens,
            r->prompt_tokens == 1 ? "" : "s");
    if (r->reused) fprintf(stderr, " (%zu kept)", r->reused);
    fprintf(stderr, " in %.0f ms", r->prompt_ms);
    if (run > 1 && r->prompt_ms > 0) fprintf(stderr, " (%.0f tok/s)", (double)run * 1e3 / r->prompt_ms);
    fprintf(stderr, "; %zu new", r->new_tokens);
    if (steps && r->decode_ms > 0) fprintf(stderr, ", %.1f tok/s", (double)steps * 1e3 / r->decode_ms);
    if (r->drafted) fprintf(stderr, ", %zu of %zu guesses right", r->accepted, r->drafted);
    fprintf(stderr, "; ended by %s\n", r->why);
}
