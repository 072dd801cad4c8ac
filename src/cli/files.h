/* files.h: the files that a command line names, and those behind the names: what is in a folder of a model, the
 * weights of a program. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include "base/arena.h"
#include "cli/cli.h"

typedef enum {
    FILE_ONE,
    FILE_PAIR,      /* NAME=FILE */
    FILE_LIST,      /* commas between */
    FILE_DATA,      /* the same for training: mnist:DIR and text:FILE, too, and folders of token files */
    FILE_MODEL,     /* a file with others beside it, or a folder of them */
    FILE_TOKENIZER, /* the same */
    FILE_PROGRAM,   /* MIL or graph text, and the weights it names */
    FILE_RUN,       /* what a training goes on from: a folder of checkpoints, or a file */
    FILE_TENSORS,   /* written from a model, whose own tensors the library keeps it apart from */
} file_kind;

typedef struct {
    const char *option; /* "": none */
    file_kind kind;
    const char *of;     /* NAME of NAME=FILE; NULL: the option has one file */
    const char *path;
    bool behind;        /* not named itself, but in a folder that is, or beside a file that is */
    bool tensors;       /* holds tensors of a model */
} named_file;
typedef VEC(named_file) named_files;

/* False: no memory. What cannot be looked at is left out: who opens it says why it cannot be. */
bool files_named(const args *a, bool written, arena *mem, named_files *out) MUST_CHECK;

#endif
