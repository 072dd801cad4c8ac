/* story.h: simple English stories out of nothing: a grammar of its own, a seed, and a small vocabulary trained on
 * what it says. A story has a hero, often a friend, a place, a wish or a trouble, and an end; names, pronouns and
 * things stay the same throughout. */
#ifndef TEXT_STORY_H
#define TEXT_STORY_H

#include "text/text.h"

/* Story number `index` of a seed: one paragraph and a line end. The same two numbers give the same text. */
void story_put(strbuf *out, uint64_t seed, uint64_t index);
/* Stories 0 … count-1, each followed by a line "<|endoftext|>". */
void story_corpus(strbuf *out, uint64_t count, uint64_t seed);
/* Byte-level BPE of `vocab` entries (0: 1536) trained on the first stories of seed 0: nearly every word of the
 * grammar is one token. */
an_status story_tokenizer(uint32_t vocab, tokenizer **out, diag *d) MUST_CHECK;

#endif
