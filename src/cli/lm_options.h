/* lm_options.h: what generate, chat and eval share: how a model is named, and how tokens are chosen. */
#ifndef CLI_LM_OPTIONS_H
#define CLI_LM_OPTIONS_H

#include "cli/cli.h"

#define LM_MODEL_OPTIONS                                                                                                              \
    { "model", "M", NULL, "Hugging Face folder, folder of checkpoints or one of them, .safetensors, llama2.c .bin, .gguf, or a preset with random weights" },              \
    { "tokenizer", "T", NULL, "tokenizer.json, tokenizer.model, tokenizer.bin, GGUF or a folder; without it the model's own" },      \
    { "engine", "E", NULL, "soft:m1 … soft:m5, cpu; without it the best one present" },                                               \
    { "weights", "W", NULL, "fp16, bf16, fp32, int8, int4, palette4, file (its own blocks, else fp16); without it fp32 on cpu for a single file of at most 64 MiB, else fp16" }, \
    { "context", "N", "0", "positions; 0: the model's, at most 4096" },                                                               \
    { "threads", "N", "0", "0: one per CPU" },                                                                                        \
    { "cache", "DIR", NULL, "compiled programs; without it $ANNEAL_CACHE, or the user's cache folder" },                              \
    { "no-cache", NULL, NULL, "compile every time" },                                                                                 \
    { "weight-seed", "N", "0", "of a preset's random weights" }

#define LM_SAMPLING_OPTIONS                                                                                                           \
    { "max-tokens", "N", "256", "new tokens; -1: to the end of the context" },                                                        \
    { "temperature", "X", NULL, "0: always the likeliest token. Without it, as for the next four, what generation_config.json says, or 0" }, \
    { "top-k", "N", NULL, "choose among the N likeliest; 0: all" },                                                                   \
    { "top-p", "X", NULL, "among the fewest whose probabilities reach X; 1: all" },                                                   \
    { "min-p", "X", NULL, "among those at least X times as likely as the likeliest; 0: all" },                                        \
    { "repetition-penalty", "X", NULL, "tokens seen before count less above 1; 1: no" },                                              \
    { "seed", "N", "1", "the same seed gives the same text" },                                                                        \
    { "stop", "S", NULL, "a text that ends it; may be given several times" },                                                         \
    { "draft", "M", NULL, "a smaller model that guesses ahead; the text stays the same" },                                            \
    { "lookup", "N", "0", "guess ahead by what followed the last N tokens before" },                                                  \
    { "draft-tokens", "N", NULL, "most guesses at a time of --draft or --lookup, up to 7; default: 4" }

typedef struct {
    an_generate_options o;
    const char **stop;
} lm_choice;

/* Each: 0, or the exit code after saying what is wrong. */
int lm_open_args(const args *a, an_lm **out);
void lm_leave(an_lm *m); /* closes it, and says of what its cache had to be made again; NULL is fine */
int lm_sampling_args(const args *a, lm_choice *out); /* keeps on_token and user */
/* what the command line left to the model; told on stderr */
void lm_sampling_rest(const args *a, const an_lm *m, lm_choice *c);
void lm_choice_free(lm_choice *c);
/* A token as a JSON object on standard output, `front` (members and a comma, or "") first in it. False: it could not
 * be written; *oom: for want of memory. */
bool lm_put_token(const char *front, const an_token *t, bool *oom);
void lm_say_speed(const an_generated *r, const an_lm_info *info); /* on stderr */

#endif
