/* cli.h: what the commands share. A command sees the public header and base, nothing else. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "anneal.h"
#include "base/io.h"
#include "base/str.h"

typedef struct {
    const char *name; /* without the dashes */
    const char *arg;  /* what follows it, for the help; NULL: a switch; "[X]": may be left out */
    const char *def;  /* default, for the help and as the value; NULL: none */
    const char *help;
} option;

typedef struct args args;

typedef struct {
    const char *name, *args, *summary;
    const option *options; /* ends with a NULL name */
    const char *example;
    int (*run)(const args *a);
} command;

enum { MAX_OPTIONS = 64 };
struct args {
    const command *cmd;
    char **argv;                        /* the whole command line, for a command that starts itself anew */
    int n_files;
    const char **files;                 /* what is not an option */
    const char *value[MAX_OPTIONS];     /* by position in cmd->options; the last one given; NULL: none and no default */
    size_t n_list;                      /* every option with a value in the order given, for those that may repeat */
    struct { const char *option, *value; } *list;
};

const command *command_find(const char *name);
/* 0, or the exit code after saying on stderr what is wrong. args_free in any case. */
int args_read(const command *c, int argc, char **argv, args *out);
void args_free(args *a);
const char *arg_of(const args *a, const char *name); /* value, "" for a given switch, NULL when absent */
size_t arg_count(const args *a, const char *name);          /* how often it was given a value */
/* its values with commas between, for free(); NULL: none, or no memory */
char *args_join(const args *a, const char *name);
bool arg_on(const args *a, const char *name);
bool arg_int(const args *a, const char *name, long lo, long hi, long *out); /* false after saying why on stderr */
/* An option that belongs to another verb of the command is a mistake, not something to ignore: 0, or the exit code
 * after saying so. */
int args_without(const args *a, const char *verb, const char *const *names);
int engine_known(const args *a);                     /* 0, or the exit code after saying that --engine is none */
int engine_computes(const args *a);                  /* the same, and null will not do */
an_format arg_format(const args *a);                 /* --json, --markdown */
/* of "NAME=…", yours to free; form: what is wanted, for the message. Not 0: what is wrong was said */
int pair_name(const char *pair, const char *option_name, const char *form, char **name, const char **behind);
/* every NAME=FILE.npy of the option, in out, which has room for a->n_list; 0 or the exit code after saying why. The
 * caller frees *n of them either way */
int read_arrays(const args *a, const char *option_name, an_array **out, size_t *n);

/* A line for each of n results on stdout; 0 or the exit code after saying why. */
int put_results(an_array *const *got, size_t n, an_format f);

/* 0, or the exit code after naming a file that would be lost: one that is read and written, or written twice,
 * however it is spelt. files.def has the options. */
int outputs_apart(const args *a);

int usage(FILE *to);                   /* 2, the exit code of a command line that asks for nothing */
int help(const command *c, FILE *to);
int help_man(void);                    /* the OPTIONS of docs/anneal.1, on stdout */
int unknown_command(const char *word); /* the exit code, after saying so and what may have been meant */
int unknown_option(const command *c, const char *word, size_t n);

/* "anneal: message" on stderr; returns the status's exit code. file may be NULL. */
int say_error(const char *file, const an_error *e);
int say(an_status st, const char *fmt, ...) PRINTF_LIKE(2, 3);
int put_text(char *text); /* to stdout, then freed; NULL says no memory */
enum { MOST_TEXT = 1 << 30 };                   /* bytes of a file that is read whole */
int read_text(const char *path, file_bytes *f); /* 0 or the exit code after saying why */
/* "cannot open F: why" becomes "cannot open: why", for those who write "F: " in front */
void name_file(const char *path, diag *d);
bool is_graph_text(const char *s, size_t n); /* else it is MIL */
/* What came from `file`, in the form --emit says, to `out` ("-": stdout), and its weights beside it as `weights`;
 * NULL: where nobody else's are. 0 or the exit code after saying why. */
int put_program(const args *a, an_program *p, const char *file, const char *out, const char *weights);
char *folder_of(const char *path); /* for @model_path; yours to free; "." for stdin */
extern const option table_options[];

#define CMD(name, ...) int cmd_##name(const args *a);
#include "cli/cmd.def"
#undef CMD

#endif
