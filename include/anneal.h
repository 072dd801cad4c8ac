/* anneal.h: compile and check neural networks for Apple's Neural Engine, on any machine.
 *
 *     an_error e = {0};
 *     an_report *r;
 *     an_check_options o = { .targets = "m1,m4" };
 *     if (an_check_mil(&r, text, size, &o, &e)) fprintf(stderr, "%s\n", e.message);
 *     else fputs(an_report_text(r, AN_TEXT), stdout);
 *     an_report_free(r);
 *
 * Handles are opaque; options zeroed mean defaults. A call that fails fills an_error and leaves its result NULL, except
 * where a declaration says otherwise. Nothing here prints or exits. Handles may be used from one thread at a time. */
#ifndef ANNEAL_H
#define ANNEAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AN_VERSION "0.1.0"

#if defined(__GNUC__)
#define AN_API __attribute__((visibility("default")))
#else
#define AN_API
#endif

/* Outcomes: name, process exit code, text. The enum, the strings and the exit codes are expansions of this list. */
#define AN_STATUS(X)                                                                                                  \
    X(OK, 0, "ok")                                                                                                    \
    X(MISMATCH, 1, "results differ")                                                                                  \
    X(USAGE, 2, "bad command line")                                                                                   \
    X(INPUT, 3, "bad input")                                                                                          \
    X(UNSUPPORTED, 4, "target cannot run this")                                                                       \
    X(NOMEM, 70, "no memory")                                                                                         \
    X(BUG, 70, "internal invariant broken")

typedef enum {
#define X(name, code, text) AN_##name,
    AN_STATUS(X)
#undef X
} an_status;

typedef struct {
    an_status status;
    unsigned line, column; /* 1-based; 0: no place in a text */
    char message[400];     /* names the thing, the value seen and the value wanted */
} an_error;

AN_API const char *an_version(void);
AN_API const char *an_status_text(an_status s);
AN_API int an_exit_code(an_status s);
AN_API void an_free(void *p); /* for every char* documented as "yours" */

typedef enum { AN_TEXT, AN_JSON, AN_MARKDOWN } an_format; /* AN_JSON: one object per line */

/* ---- tables: "ops", "targets", "rules", "gates", "passes", "kernels", "models", "published", "probes",
 *      "devices", "limits", "isa" ---- */
AN_API char *an_table(const char *which, an_format f); /* yours; NULL: no such table, or no memory */
AN_API const char *an_probe(const char *name);         /* MIL text of a probe program; NULL: no such probe */
AN_API int an_target_known(const char *name);          /* m1 … m5, h13, h13g …, any case */

/* ---- checking MIL ---- */
typedef struct {
    const char *targets;   /* comma list, or "all" for m1 … m5; NULL: all */
    const char *file;      /* name used in messages; NULL: "<text>" */
    const char *model_dir; /* what @model_path stands for; NULL: weight files are not looked at */
    int errors_only;       /* leave warnings and notes out */
} an_check_options;

typedef struct an_report an_report;
typedef struct {
    const char *rule, *severity; /* severity: "error", "warning", "note" */
    const char *target;          /* "" for what does not depend on one (syntax, types) */
    const char *op, *name;       /* operation and result; "" for the whole program */
    unsigned line, column;
    const char *message, *fix, *evidence;
} an_finding;
typedef struct {
    const char *target;
    double latency_us, flops, bytes, working_set_bytes;
    const char *bound; /* "dispatch", "bandwidth", "compute" */
} an_cost;

/* A report is made for bad text too: its findings say what is wrong. Only AN_USAGE (unknown target) and AN_NOMEM fail. */
AN_API an_status an_check_mil(an_report **out, const char *text, size_t size, const an_check_options *o, an_error *e);
AN_API void an_report_free(an_report *r); /* NULL is fine */
AN_API an_status an_report_status(const an_report *r); /* AN_OK without errors, AN_INPUT bad text, AN_UNSUPPORTED refused */
AN_API size_t an_report_findings(const an_report *r);
AN_API void an_report_finding(const an_report *r, size_t i, an_finding *f); /* strings live as long as the report */
AN_API size_t an_report_costs(const an_report *r);
AN_API void an_report_cost(const an_report *r, size_t i, an_cost *c);
AN_API char *an_report_text(const an_report *r, an_format f);      /* yours */
AN_API char *an_report_op_costs(const an_report *r, an_format f);  /* yours: what each operation costs */

/* ---- programs: from MIL, from the graph text, or from a model's kernels ---- */
typedef struct an_program an_program;

typedef struct {
    const char *model_dir;  /* as above; weights found there are loaded */
    int need_weights;       /* a weight file that is missing is an error, not a constant without content */
} an_read_options;
AN_API an_status an_program_from_mil(an_program **out, const char *text, size_t size, const an_read_options *o, an_error *e);
AN_API an_status an_program_from_graph(an_program **out, const char *text, size_t size, an_error *e);

typedef struct {
    const char *model;   /* a preset ("stories110m"); an_table("models") lists them */
    const char *kernel;  /* "fwd_attn"; an_table("kernels") lists them */
    int layer;
    int seq;             /* 0: the model's (or the kernel's own) */
} an_kernel_options;
AN_API an_status an_program_from_kernel(an_program **out, const an_kernel_options *o, an_error *e);
/* How many programs one training step of the model needs, and the k-th of them. AN_INPUT past the end. */
AN_API size_t an_training_programs(const char *model);
AN_API an_status an_program_from_training(an_program **out, const char *model, size_t k, an_error *e);
AN_API const char *an_program_name(const an_program *p);
AN_API void an_program_free(an_program *p); /* NULL is fine */

typedef struct {
    const char *target;     /* NULL: no chip, optimise only */
    int level;              /* 0 default (all passes), -1 none */
    int ports;              /* also pad, unify and rename ports for the engine's surfaces */
    const char *only;       /* comma list of passes to run once each instead of the pipeline */
    const char *dump_after; /* a pass name, or "all": calls on_dump with the graph text */
    void (*on_dump)(void *user, const char *pass, const char *text);
    void *user;
} an_pass_options;
AN_API an_status an_program_optimize(an_program *p, const an_pass_options *o, an_error *e);

/* "graph", "dot", "mil", "mil-ios16". yours. For MIL, an_program_weights gives the file the text refers to. */
AN_API char *an_program_text(an_program *p, const char *as, an_error *e);
/* Where under @model_path the text says its weights are; NULL: "weights/weight.bin". Programs that share a folder need their own. */
AN_API an_status an_program_weight_file(an_program *p, const char *path, an_error *e);
/* Bytes of that file for the last MIL text; NULL and 0 when it needs none. Valid until the next call on p. */
AN_API const void *an_program_weights(const an_program *p, size_t *size);
AN_API an_status an_program_check(an_report **out, an_program *p, const an_check_options *o, an_error *e);

/* ---- running ---- */
typedef struct an_array an_array; /* a tensor and its bytes */
typedef struct {
    const char *name;  /* port; "" for an array read from a file */
    const char *dtype; /* "fp16", "fp32", "int32" … */
    int rank;
    const int64_t *dim;
    const void *data;  /* packed, row-major */
    size_t bytes;
} an_array_info;
AN_API an_status an_array_new(an_array **out, const char *name, const char *dtype, int rank, const int64_t *dim, const void *data, an_error *e); /* copies */
AN_API an_status an_array_read(an_array **out, const char *name, const char *npy_path, an_error *e);
AN_API an_status an_array_write(const an_array *a, const char *npy_path, an_error *e); /* atomic */
AN_API void an_array_get(const an_array *a, an_array_info *info); /* valid until an_array_free */
AN_API void an_array_free(an_array *a);                           /* NULL is fine */

typedef struct {
    const char *engine;       /* "soft:m1" … "soft:m5", "cpu", "null"; NULL: the best one present */
    const char *file;         /* name used in messages */
    const char *model_dir;    /* what @model_path stands for */
    int threads;              /* 0: the CPUs */
    int reference;            /* the slow, obvious executor */
    const char *const *want;  /* results by name; NULL: all */
    size_t n_want;
} an_run_options;
/* Compile, bind by name, run once. results has room for n_want entries, or for n_results (set on return; pass the room in) when
 * all are wanted; each is yours. AN_UNSUPPORTED: the engine refuses, in its own words after ours. */
AN_API an_status an_run_mil(an_array **results, size_t *n_results, const char *text, size_t size, const an_array *const *in, size_t n_in,
                            const an_run_options *o, an_error *e);
AN_API int an_engine_known(const char *name);

/* ---- published behaviour, row by row, against the software engine ---- */
/* only: rows whose id begins with it ("N", "C17"), NULL for all. *text is yours. */
typedef struct {
    size_t pass, fail, not_modelled;
} an_facts_total;
AN_API an_status an_facts(char **text, an_facts_total *total, an_format f, const char *only, an_error *e);

/* ---- speed: the answer checked, then timed against a bound measured in the same run ---- */
/* One case by name, as lines of text or JSON. *text is yours, and holds what was measured before a failure. AN_USAGE: no such case. */
AN_API an_status an_bench(char **text, const char *name, an_format f, an_error *e);
AN_API char *an_bench_list(an_format f); /* yours: a name and what it measures, a line each */

#ifdef __cplusplus
}
#endif
#endif
