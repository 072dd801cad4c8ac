/* lm_tok.h: the tokenizer of a run as files of its checkpoints, so that each opens with its model and gives the ids
 * the run was trained on. */
#ifndef TRAIN_LM_TOK_H
#define TRAIN_LM_TOK_H

#include "text/text.h"
#include "train/ckpt.h"

/* In mem. The files it was opened from, as they are; one that came from bytes or a GGUF file is written as a folder
 * has it. *lost, a sentence in mem: what those cannot say, with no file at all where that is the whole; "": nothing. */
an_status lm_tok_files(const tokenizer *t, arena *mem, const ckpt_file **out, size_t *n, const char **lost, diag *d)
    MUST_CHECK;

#endif
