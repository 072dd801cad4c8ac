/* anneal.h: compile, check, run and train neural networks for Apple's Neural Engine, on any machine.
 *
 *     an_report *r;
 *     an_error e = {0};
 *     if (an_check_mil(&r, text, size, &(an_check_options){ .targets = "m1,m4" }, &e))
 *         return fprintf(stderr, "%s\n", e.message), an_exit_code(e.status);
 *     char *page = an_report_text(r, AN_TEXT);
 *     if (page) fputs(page, stdout), an_free(page);
 *     an_report_free(r);
 *
 * Handles are opaque; options zeroed mean defaults. Pointers may be NULL only where it says so, an_error always may.
 * A call that fails fills it and leaves its result NULL, except where a declaration says otherwise. Nothing here prints
 * or exits.
 *
 * A handle may be used from one thread at a time, several from several. After fork() handles are the parent's, to close
 * too: the child opens its own. Numbers in texts and files have a point under every locale. Arithmetic is done in the
 * rounding mode of the thread that calls; what the documents say holds for the nearest. */
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

#define AN_STATUS_NAME(name, code, text) AN_##name,
typedef enum { AN_STATUS(AN_STATUS_NAME) } an_status;
#undef AN_STATUS_NAME

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

/* ---- tables: "ops", "targets", "profiles", "rules", "gates", "passes", "kernels", "models", "published", "probes",
 *      "devices", "limits", "isa", "nets", "hwx" ---- */
AN_API char *an_table(const char *which, an_format f); /* yours; NULL: no such table, or no memory */
/* What the library found on this machine: instruction sets, threads, the cache of compiled programs, libraries,
 * devices. *text is yours. AN_INPUT: a variable of the environment has a value that nothing here would run with; the
 * text is there and says so too. */
AN_API an_status an_machine(char **text, an_format f, an_error *e);
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
    double energy_mj;  /* as published for m1, a power for each bound; on other chips predicted */
    const char *bound; /* "dispatch", "bandwidth", "compute" */
} an_cost;

/* A report is made for bad text too: its findings say what is wrong. Only AN_USAGE (unknown target) and AN_NOMEM
 * fail. */
AN_API an_status an_check_mil(an_report **out, const char *text, size_t size, const an_check_options *o, an_error *e);
AN_API void an_report_free(an_report *r); /* NULL is fine */
/* AN_OK without errors, AN_INPUT bad text, AN_UNSUPPORTED refused */
AN_API an_status an_report_status(const an_report *r);
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
AN_API an_status an_program_from_mil(an_program **out, const char *text, size_t size, const an_read_options *o,
                                     an_error *e);
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
/* Where under @model_path the text says its weights are; NULL: "weights/weight.bin". Programs that share a folder
 * need their own. AN_INPUT: a path that names nothing there, or climbs out; the one before stays. */
AN_API an_status an_program_weight_file(an_program *p, const char *path, an_error *e);
/* Whether the program's source has weights in this file: writing over it would spoil the source. */
AN_API int an_program_reads(const an_program *p, const char *file);
/* Bytes of that file for the last MIL text; NULL and 0 when it needs none. Valid until the next call on p. */
AN_API const void *an_program_weights(const an_program *p, size_t *size);
/* As an_check_mil; a mistake in building the program fails too, as an_program_finish tells it. */
AN_API an_status an_program_check(an_report **out, an_program *p, const an_check_options *o, an_error *e);

/* The program compiled for an engine ("soft:m1" …, "cpu"): the file that `an_run_mil` takes instead of text, and
 * that engines keep. Its weights stay apart: an_program_weights gives them, those that came from files and all
 * others of more than 16 elements. *bytes is yours. AN_UNSUPPORTED: the engine refuses it; e has the place in the
 * text the program came from. */
AN_API an_status an_program_compile(an_program *p, const char *engine, void **bytes, size_t *size, an_error *e);
AN_API int an_program_is(const void *bytes, size_t size); /* they begin as such a file does */
/* The engine it was compiled for, yours. NULL: as below. */
AN_API char *an_program_engine(const void *bytes, size_t size, an_error *e);
/* Its instructions, tensors and ports as text, yours. NULL: the bytes are no program, or a damaged one; nothing of
 * them is run to find out. */
AN_API char *an_program_listing(const void *bytes, size_t size, an_error *e);

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
/* copies */
AN_API an_status an_array_new(an_array **out, const char *name, const char *dtype, int rank, const int64_t *dim,
                              const void *data, an_error *e);
AN_API an_status an_array_read(an_array **out, const char *name, const char *npy_path, an_error *e);
AN_API an_status an_array_write(const an_array *a, const char *npy_path, an_error *e); /* atomic */
AN_API void an_array_get(const an_array *a, an_array_info *info); /* valid until an_array_free */
AN_API void an_array_free(an_array *a);                           /* NULL is fine */

typedef struct {
    const char *name;         /* a row of an_table("limits") */
    int64_t value;            /* 0: none; switches take 0 and 1 */
} an_limit;
typedef struct {
    const char *engine;       /* "soft:m1" … "soft:m5", "cpu", "null"; NULL: the best one present */
    const char *file;         /* of the text, for the caller: messages give the place in it, not the name */
    const char *model_dir;    /* what @model_path stands for */
    int threads;              /* 0: the CPUs */
    int reference;            /* the slow, obvious executor */
    const char *const *want;  /* results by name; NULL: all */
    size_t n_want;
    /* inputs that are not given hold numbers: fractions between -1 and 1 that `seed` and the input's name choose; whole
     * numbers are 0 */
    int fill;
    uint64_t seed;
    /* instead of the chip's own; AN_USAGE: no such limit or value, or an engine without limits (cpu, null) */
    const an_limit *limits;
    size_t n_limits;
} an_run_options;
/* Compile (text may also be the bytes of a compiled program; a chip takes such from outside with the limit
 * open_images at 1), bind by name, run once. results has room for n_want entries, or for n_results (set on return;
 * pass the room in) when all are wanted; each is yours, after a failure all are NULL. AN_UNSUPPORTED: the engine
 * refuses, in its own words before ours. As on silicon, a chip compiles no more programs in a process than its limit
 * `compiles` says; 0 lifts it. */
AN_API an_status an_run_mil(an_array **results, size_t *n_results, const char *text, size_t size,
                            const an_array *const *in, size_t n_in, const an_run_options *o, an_error *e);
AN_API int an_engine_known(const char *name);

/* ---- models between file formats ---- */
typedef struct {
    /* "safetensors", "hf" (a folder), "gguf", "llama2c", "npy" (a folder); NULL: by the ending of out, and hf where it
     * says none of them */
    const char *to;
    const char *dtype;    /* "f32", "f16", "bf16"; NULL: as they are where the target can hold them */
    const char *quantize; /* "int8", "int4", "palette4"; GGUF: "q8_0", "q4_0"; NULL: no */
    int version;          /* llama2.c: version + 1; 0: version 0, or 2 with int8 */
    uint64_t seed;        /* weights of a preset */
    int threads;          /* 0: the CPUs */
    uint64_t shard_bytes; /* hf: most bytes of tensors in a file, with an index beside them; 0: one file */
    /* whose vocabulary goes along into a GGUF file or an hf folder; NULL: the model's own, where there is one */
    const char *tokenizer;
} an_convert_options;
typedef struct {
    int64_t tensors;
    uint64_t bytes_in, bytes_out; /* of weights; of what was written */
    /* largest change of a number over the largest magnitude of its tensor; 0: none changed */
    double worst;
    char from[32], to[16], family[16];
    int shards;                   /* files the tensors are in */
    int vocabulary;               /* one went along */
    char lost[240];               /* what the target has no place for; "": nothing */
} an_converted;
/* model: as for generation. out appears whole or not at all. Messages name the file, the tensor and both values. */
AN_API an_status an_convert(const char *model, const char *out, const an_convert_options *o, an_converted *done,
                            an_error *e);

/* ---- published behaviour, row by row, against the software engine ---- */
/* only: rows whose id begins with it ("N", "C17"), NULL for all. *text is yours. */
typedef struct {
    size_t pass, fail, not_modelled;
    size_t off; /* the cost model misses them by more than its stated fidelity; the row shows by how much */
} an_facts_total;
AN_API an_status an_facts(char **text, an_facts_total *total, an_format f, const char *only, an_error *e);

/* ---- text: tokenizers, token files, the built-in stories ---- */
typedef struct an_tokenizer an_tokenizer;
typedef struct {
    /* "byte-level BPE" …; how text is cut before merging: "gpt2", "llama3", "regex", "none" … */
    const char *model, *split;
    uint32_t n, n_special;      /* ids are 0 … n-1 */
    int64_t bos, eos, unk, pad; /* -1: none */
    int add_bos, add_eos;       /* what the file says a text should get */
    int byte_fallback;          /* any byte can be spelt */
    const char *chat_template;  /* NULL: none */
} an_tokenizer_info;
enum { AN_TOK_BOS = 1, AN_TOK_EOS = 2, AN_TOK_SPECIAL = 4, AN_TOK_UTF8 = 8 };
/* tokenizer.json, tokenizer.model, tokenizer.bin, GGUF, encoder.json or vocab.json beside its merges, "A,B" for such
 * a pair, a folder, or "builtin:stories". */
AN_API an_status an_tokenizer_open(an_tokenizer **out, const char *path, an_error *e);
AN_API void an_tokenizer_free(an_tokenizer *t); /* NULL is fine */
AN_API void an_tokenizer_get(const an_tokenizer *t, an_tokenizer_info *info); /* valid until an_tokenizer_free */
/* Bytes in, ids out, and back; *ids and *bytes are yours. AN_TOK_SPECIAL: special tokens spelt in the text become
 * ids; decoding prints them. AN_TOK_UTF8: what is not UTF-8 is AN_INPUT with the byte; else it is kept where the
 * vocabulary can spell bytes. */
AN_API an_status an_encode(an_tokenizer *t, const void *text, size_t n, int flags, uint32_t **ids, size_t *n_ids,
                           an_error *e);
AN_API an_status an_decode(const an_tokenizer *t, const uint32_t *ids, size_t n, int flags, char **bytes,
                           size_t *n_bytes, an_error *e);
/* A byte-level BPE vocabulary from a corpus, as tokenizer.json text: yours. split: "gpt2" (NULL), "llama3", "qwen2",
 * "qwen35". */
AN_API an_status an_tokenizer_train(char **json, size_t *n_json, const void *corpus, size_t n, uint32_t vocab,
                                    const char *split, an_error *e);

typedef struct {
    const char *data;       /* text file, or several with commas between */
    const char *out;        /* .u16, .u32, or .bin for llm.c's form; written atomically */
    /* "auto" (NULL), "whole", "endoftext", "blank", "lines": where documents end; each gets BOS in front, or EOS
     * behind */
    const char *documents;
    const char *validation; /* second file, not out; NULL: none */
    uint64_t n_validation;  /* ids from the start that go there */
    int threads;            /* 0: the CPUs */
} an_prepare_options;
typedef struct {
    uint64_t bytes, documents, tokens, validation_tokens;
    int undivided;          /* a file was cut nowhere, and not because "whole" was asked for: it is one document */
} an_prepare_result;
AN_API int an_is_token_file(const char *path); /* ids one after the other: named .u16 or .u32, or llm.c's form */
AN_API an_status an_data_prepare(an_tokenizer *t, const an_prepare_options *o, an_prepare_result *r, an_error *e);
/* one story and a line end: yours; NULL: no memory */
AN_API char *an_story(uint64_t seed, uint64_t index, an_error *e);

/* ---- building a program by calls ---- */
typedef struct {
    unsigned id; /* 0: none; the first mistake sticks to the program and an_program_finish tells it */
} an_value;
AN_API an_status an_program_new(an_program **out, const char *name, an_error *e);
AN_API an_value an_input(an_program *p, const char *name, const char *dtype, int rank, const int64_t *dim);
/* copies */
AN_API an_value an_constant(an_program *p, const char *name, const char *dtype, int rank, const int64_t *dim,
                            const void *data);
/* op: a row of an_table("ops"); in: its operands in order, { 0 } for an optional one left out. attributes as the
 * graph text writes them ("axes=[1], keep_dims=true"), NULL: none. name NULL: made up. */
AN_API an_value an_op(an_program *p, const char *name, const char *op, const an_value *in, size_t n_in,
                      const char *attributes);
/* an_op gives the first result of an operation that has several (split, topk); this one any of them, from 0 on */
AN_API an_value an_result(an_program *p, an_value v, int k);
AN_API void an_output(an_program *p, const char *name, an_value v);
AN_API an_status an_program_finish(an_program *p, an_error *e);

/* ---- gradients ---- */
typedef struct {
    const char *loss;           /* a value of one float */
    const char *const *wrt;     /* values to differentiate by; NULL: every float input */
    size_t n_wrt;
    double loss_scale;          /* finite and above 0; 0: 1 */
    /* weight gradient of a convolution: "patches" (NULL), "input-patches", "no-width-offset" */
    const char *conv_form;
    /* an array for every input that reaches a slice, found by its name: hazards then tell what reaches each slice with
     * them. NULL: what is known of any */
    const an_array *const *sample;
    size_t n_sample;
    const char *engine;         /* hazards are those of this one, as in an_run_options; NULL: those of any chip */
    const char *file;           /* the program's, for hazards as text; NULL: not named */
} an_grad_options;
/* Adds an output grad_NAME for each; what was returned before stays. AN_INPUT: the loss is not one float, a value
 * does not reach it; AN_UNSUPPORTED: an operation has no gradient; AN_USAGE: an unknown form or engine, a loss scale
 * that is none. Messages name it. hazards (may be NULL): yours, a line for each slice that can pass the range of m1
 * and m2, with the largest loss scale that keeps it in; "" when there is none. */
AN_API an_status an_program_differentiate(an_program *p, const an_grad_options *o, char **hazards, an_format f,
                                          an_error *e);

/* ---- training: loss, gradients and update as one program whose weights stay on the device ---- */
typedef struct an_trainer an_trainer;
typedef struct {                    /* zero means default */
    const char *engine;             /* as in an_run_options */
    int threads;
    const char *math;               /* cpu: "fp32" (NULL), or "bf16" products; elsewhere those are AN_USAGE */
    const char *loss;               /* a value of one float */
    const char *const *params;      /* inputs to train */
    size_t n_params;
    const char *const *no_decay;    /* those that weight decay leaves alone: norms, biases */
    size_t n_no_decay;
    const char *const *fetch;       /* values an_trainer_eval computes */
    size_t n_fetch;
    const char *optimizer;          /* "sgd" (NULL), "momentum", "adam", "adamw" */
    double momentum, beta1, beta2, eps, decay, clip;
    int accum;                      /* minibatches per update */
    /* "fp16", "halves" (fp16 pairs: small updates survive), "fp32"; NULL: fp16 on chips, else fp32 */
    const char *state;
    const char *conv_form;
    double loss_scale;              /* 0: 1024 on chips, else 1; AN_INPUT if the loss's type cannot hold it */
    /* halved after overflow, doubled after 200 good updates; where gradients are 0 everywhere one is looked for at
     * which they are not */
    int dynamic_scale;
    int freeze_unreached;           /* a parameter that does not reach the loss is a warning, not an error */
    void (*on_warning)(void *user, const char *line);
    void *user;
} an_train_options;
typedef struct {
    double loss, grad_norm, lr, loss_scale;
    /* finite 0: something was not, or (on a chip) the gradient is 0 everywhere, as where infinities cancel. applied 0:
     * that, or accumulating; the weights are as they were */
    int finite, applied;
    uint64_t step, skipped, zeros;  /* updates so far; those that were not finite; those without a gradient */
} an_train_report;
/* p may be freed */
AN_API an_status an_trainer_open(an_trainer **out, an_program *p, const an_train_options *o, an_error *e);
AN_API void an_trainer_close(an_trainer *t); /* NULL is fine */
/* A parameter or another state ("w", "w.m", "w.v", …), packed, in any type: it is converted. Weights start at 0. */
AN_API an_status an_trainer_write(an_trainer *t, const char *name, const char *dtype, const void *data, an_error *e);
AN_API an_status an_trainer_read(an_trainer *t, const char *name, const char *dtype, void *data, an_error *e);
/* the minibatch */
AN_API an_status an_trainer_put(an_trainer *t, const char *input, const char *dtype, const void *data, an_error *e);
/* AN_MISMATCH: it diverged, or learns nothing at a fixed loss scale */
AN_API an_status an_trainer_step(an_trainer *t, double lr, an_train_report *r, an_error *e);
AN_API an_status an_trainer_eval(an_trainer *t, an_error *e);
/* of the last eval; AN_INPUT before the first */
AN_API an_status an_trainer_fetch(an_trainer *t, const char *name, const char *dtype, void *data, an_error *e);
/* safetensors: state, counters, loss scale. Between updates: both are AN_INPUT after some but not all of an update's
 * accum minibatches. */
AN_API an_status an_trainer_save(an_trainer *t, const char *path, an_error *e);
AN_API an_status an_trainer_load(an_trainer *t, const char *path, an_error *e); /* and go on, bit for bit */
AN_API char *an_trainer_stats(an_trainer *t, an_format f);   /* yours: dispatches and host bytes per minibatch */
AN_API const char *an_trainer_program(const an_trainer *t);  /* MIL of the step */

/* A built-in network on a data set, from names. */
typedef struct {                    /* zero means the network's default */
    const char *model;              /* an_table("nets") */
    const char *data;               /* "mnist:DIR", "strokes", "text:FILE", "letters"; NULL: built in */
    const char *engine, *pipeline, *math;
    int threads;
    int64_t steps, batch, seq, warmup;
    double lr, lr_end, decay, clip;
    int no_warmup, no_decay, no_lr_end; /* instead of the network's */
    const char *schedule, *optimizer, *state;
    int accum;
    double loss_scale;
    int dynamic_scale;
    uint64_t seed;
    /* steps between accuracies (0: 50, -1: none), test samples of them (0: 1000) and of the last (0: all, -1: none) */
    int64_t every, test, final_test;
    const char *save, *resume;      /* a file goes on under the settings it was written with, or not at all */
    int64_t stop_after;             /* updates of this call; 0: all that are left */
    an_status (*on_start)(void *user); /* set up, the first update follows; not AN_OK: it ends here with that */
    void (*on_log)(void *user, const char *json);
    void (*on_accuracy)(void *user, int64_t step, double accuracy);
    void (*on_warning)(void *user, const char *line);
    int (*stop)(void *user);        /* asked after every update: true ends the run there, with a checkpoint */
    void *user;
} an_train_run_options;
typedef struct {
    char model[24], data[160], engine[40], optimizer[16];
    int64_t steps, batch, parameters, n_train, n_test, final_n;
    int64_t first, done;            /* updates tried before this call and at its end */
    int stopped;                    /* by stop_after or stop, before the last one */
    double loss, final_accuracy, seconds; /* loss: NAN when no update counted */
    /* ran: minibatches this call dispatched */
    uint64_t updates, skipped, zeros, dispatches, minibatches, ran, host_bytes_in, host_bytes_out, state_bytes;
    uint64_t digest;                /* of all state at the end: equal runs have equal ones; 0: there was no end */
} an_train_result;
AN_API an_status an_train(const an_train_run_options *o, an_train_result *r, an_error *e);

/* ---- program files (hwx): what the engine's own compiler writes ---- */
/* Every field of a file, as text or JSON lines; *text is yours. first_task: bytes of the first task in a bare task
 * stream, 0 for a whole file. AN_INPUT: not such a file, or damaged; the message says what was seen and wanted. */
AN_API an_status an_hwx_dump(char **text, const void *bytes, size_t size, size_t first_task, an_format f, an_error *e);

/* ---- language models ---- */
typedef struct an_lm an_lm;
typedef struct {           /* zero means default */
    /* Hugging Face folder, .safetensors, llama2.c .bin, .gguf, config.json or a preset with random weights */
    const char *model;
    /* as an_tokenizer_open; NULL: the model's own, found in its folder, beside its file or in it */
    const char *tokenizer;
    int no_tokenizer;      /* ids only */
    const char *engine;    /* as in an_run_options */
    int threads;
    /* "fp16", "bf16", "fp32", "int8", "int4", "palette4", "file" (its own blocks, else fp16); NULL: fp32 on cpu for a
     * single file of at most 64 MiB, whatever its type, else fp16 */
    const char *weights;
    int64_t context;       /* positions; 0: the model's, at most 4096 */
    uint64_t seed;         /* of random weights */
    /* compiled programs: must be, or become, a folder; NULL: $ANNEAL_CACHE, else the user's cache folder, else memory
     * (an_lm_info.remark) */
    const char *cache_dir;
    int no_cache;
    const char *draft;     /* a smaller model of the same vocabulary that guesses ahead */
} an_lm_options;
/* AN_INPUT: the model, its tokenizer, or that they do not belong together, with file, tensor and both values. */
AN_API an_status an_lm_open(an_lm **out, const an_lm_options *o, an_error *e);
AN_API void an_lm_close(an_lm *m); /* NULL is fine */

typedef struct {
    uint32_t id;
    size_t index;      /* 0: the first new one */
    const char *text;  /* bytes it adds; a character may come with a later token */
    size_t n_text;
    double logprob;    /* natural log of the model's own probability of it */
} an_token;
typedef struct {                /* zero means greedy */
    int64_t max_tokens;         /* new tokens; -1: to the end of the context */
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;
    uint64_t seed;
    const char *const *stop;    /* texts that end it and are not part of it */
    size_t n_stop;
    int lookup;                 /* guess ahead by what followed the latest 1 to `lookup` tokens before; 0: no */
    int draft_tokens;           /* most guesses at a time; 0: 4 */
    int (*on_token)(void *user, const an_token *t); /* 0: stop */
    void *user;
} an_generate_options;
/* What the model's files (generation_config.json) say about temperature, top_k, top_p, min_p and repetition_penalty;
 * the rest of o stays. Without a word of theirs: greedy. */
AN_API void an_lm_suggest(const an_lm *m, an_generate_options *o);
typedef struct {
    size_t prompt_tokens, new_tokens, reused, drafted, accepted;
    double prompt_ms, decode_ms;
    char why[12];               /* "length", "eos", "stop", "context", "caller" */
} an_generated;
/* Continues a text. BOS is put in front where the tokenizer's file says so, and of an empty text where there is one;
 * BOS and EOS end it. What an earlier call left in the cache is used. */
AN_API an_status an_lm_generate(an_lm *m, const char *prompt, size_t n, const an_generate_options *o, an_generated *r,
                                an_error *e);

/* A conversation in the model's own form. name: "chatml", "llama2", "llama3", "mistral", "gemma", "plain"; NULL: the
 * model's template. AN_INPUT: a form that is not known; the conversation before goes on. */
AN_API an_status an_lm_chat_begin(an_lm *m, const char *name, const char *system, an_error *e);
AN_API const char *an_lm_chat_form(const an_lm *m);
/* One turn: the user's text in, the answer through on_token and kept as the assistant's turn. After a failure the
 * turn did not happen. */
AN_API an_status an_lm_chat(an_lm *m, const char *text, size_t n, const an_generate_options *o, an_generated *r,
                            an_error *e);

typedef struct {
    size_t tokens;              /* predictions */
    double nats_per_token, ppl;
} an_score;
/* A text file (BOS in front where the tokenizer's file says so), or ids as .u16, .u32 or in llm.c's form, which need
 * no tokenizer. Windows of the context, back to back, each token predicted once. */
AN_API an_status an_lm_eval(an_lm *m, const char *path, void (*progress)(void *user, const an_score *so_far),
                            void *user, an_score *r, an_error *e);

typedef struct {
    char engine[40], weights[16], family[16];
    int64_t layers, dim, vocab, context, parameters;
    uint64_t compiles, cache_hits, programs, weight_bytes, cache_bytes;
    double open_ms, build_ms;
    /* what did not go as usual when it was opened: programs, or newly compiled ones, are kept in memory only, and why.
     * "": nothing */
    char remark[360];
    uint64_t cache_bad; /* compiled programs in the cache so far that were damaged, and were made again */
} an_lm_info;
AN_API void an_lm_get(const an_lm *m, an_lm_info *info);

/* ---- training a language model on text ---- */
typedef struct {
    int64_t step, steps;          /* updates tried, this one included; of the whole run */
    double loss, smooth;          /* mean of the update's minibatches in nats; smoothed over about 20 updates */
    double lr, grad_norm, loss_scale;
    uint64_t skipped;             /* updates so far that were not finite: weights kept, data used up */
    uint64_t zeros;               /* the same of those whose gradient was 0 everywhere, on a chip */
    int applied;
    int64_t tokens;               /* of this update */
    double ms, data_ms;           /* the update from start to end; of it, getting its tokens */
    /* the device and the host at work (dW, update, weights on their way), on threads of their own: together they may be
     * more than ms */
    double device_ms, host_ms;
    double wait_ms;               /* the device's thread waited for the host's work */
} an_lm_progress;
/* AN_JSON: one object; AN_TEXT: a row of CSV, NULL for p the row of names. No line end; yours. NULL: no memory. */
AN_API char *an_lm_progress_text(const an_lm_progress *p, an_format f);

typedef struct {                  /* zero means default */
    const char *model;            /* preset, config.json, or a model to continue; NULL: "tiny" */
    /* as an_tokenizer_open; NULL: a trained model's own, as an_lm_open finds it; else, for the stories, theirs. Text
     * without any is AN_USAGE */
    const char *tokenizer;
    /* token files or text files (several with commas between), a folder of token files, "builtin:stories"; NULL: the
     * stories */
    const char *data;
    const char *documents;        /* of text: as in an_prepare_options */
    const char *engine, *pipeline; /* pipeline: "resident" (NULL), "delta", "dynamic", "restart" */
    const char *math, *state;     /* as in an_train_options */
    /* compile_limit: programs the process may compile on a chip; 0: the chip's own number */
    int threads, compile_limit;
    int64_t steps, batch, seq;    /* 0: 300, 8, the model's */
    int accum;
    double lr, lr_end;            /* 0: by the model's size; 0.1; lr_end -1: nothing is left of it at the end */
    const char *schedule, *optimizer; /* NULL: "cosine", "adamw" */
    int64_t warmup;               /* 0: 20, at most a tenth of the steps; -1: none */
    double decay, clip;           /* 0: 0.1 and 1; -1: none */
    double loss_scale;            /* 0.001 to 65504; 0: 1 on cpu, on chips a dynamic one from 16 on */
    int dynamic_scale;
    uint64_t seed;
    double validation;            /* share of the data kept back; 0: 0.02; -1: none */
    /* updates between losses on its first 64 windows (all of fewer), whatever the batch; 0: at the end only */
    int64_t eval_every;
    /* 0: at the end only, 80; sample_every -1: none. Neither they nor prompt without a tokenizer */
    int64_t sample_every, sample_tokens;
    /* of samples; tried before the first update. AN_USAGE: it leaves no place for a new token */
    const char *prompt;
    /* folder of checkpoints: whole or not there, checksummed, `latest` names the newest */
    const char *save;
    int64_t save_every;           /* updates; 0: 100 */
    int keep;                     /* newest that stay; 0: 2 */
    /* go on from the newest intact one in save, bit for bit; without any, begin (2: fail) */
    int resume;
    /* residual branches are multiplied by it (files have it inside their matrices); 0: 1; -1: 1/sqrt(2 layers) */
    double residual_scale;
    /* logits become softcap * tanh(logits / softcap); config.json keeps it; 0: as the model says */
    double softcap;
    int zero_init;                /* matrices that end residual branches start at 0 */
    /* train the rows of tokens that occur in the data and choose among those; the others stay as they were */
    int compact_vocab;
    /* a layer's activations are computed again in the backward pass: the same bits in less memory */
    int recompute;
    int64_t stats_every;          /* updates between norms of weights and gradients (on_note); 0: none */
    /* JSON lines of earlier calls (an_lm_progress_text): where save holds no losses of them, the curve is theirs; NULL:
     * none */
    const char *history;
    /* file with result.trace of an earlier call of the run: this one's is added to it; NULL: none */
    const char *trace_before;
    int64_t stop_after;           /* updates of this call; 0: to the end */
    int profile;                  /* fill in result.lanes and result.trace */
    void (*on_progress)(void *user, const an_lm_progress *p);
    void (*on_eval)(void *user, int64_t step, double loss); /* finite; else it is a note and a warning */
    void (*on_sample)(void *user, int64_t step, const char *text, size_t n);
    /* a JSON object: "kind":"nonfinite" (what was not, counted by kind, and where it began), "zero" (no gradient),
     * "statistics", or "validation" (a loss on text kept back that is not finite) */
    void (*on_note)(void *user, const char *line);
    void (*on_warning)(void *user, const char *line);
    /* asked after every update, and during looks and samples: true ends the run there, with a checkpoint */
    int (*stop)(void *user);
    void *user;
} an_lm_train_options;
typedef struct {
    char model[64], data[160], engine[40], pipeline[16], optimizer[16];
    int64_t steps, done, batch, seq, vocab, parameters;
    uint64_t tokens, validation_samples, updates, skipped, compiles, reloads, dispatches;
    double loss, smooth, validation, seconds; /* not a number: none */
    int stopped;                  /* before the last update, as asked */
    int again;                    /* "restart": saved; the process must start itself anew with resume to go on */
    uint64_t digest;              /* of every number the next update depends on; 0: it failed before its end */
    char *plot, *plot_ascii, *svg; /* the losses of the run as far as they are known; NULL: none, or no memory */
    char *lanes, *trace;          /* what ran where and when; as a Chrome trace */
} an_lm_train_result;
/* AN_MISMATCH: it diverged, or learns nothing at a fixed loss scale. A checkpoint that cannot be written is a
 * warning, and AN_INPUT at the end if the last one was not. r is filled in as far as the run came;
 * an_lm_train_result_free in any case. */
AN_API an_status an_lm_train(const an_lm_train_options *o, an_lm_train_result *r, an_error *e);
AN_API void an_lm_train_result_free(an_lm_train_result *r);
AN_API int an_net_known(const char *name); /* a network of an_train, not a language model */

typedef struct {
    double loss;                  /* mean over B*T predictions, in nats */
    int64_t tokens;               /* predictions */
} an_lm_gradients;
/* Gradients of the mean loss of ids [B, T + 1] by every tensor of the model, fp32, as safetensors with the tensor
 * names and shapes of the model's file (Hugging Face names for files of other kinds). A tied head is one tensor with
 * both paths added up. Errors about an id begin with the file the array was read from, or its name. */
AN_API an_status an_lm_grad(const char *model, const char *engine, int threads, const an_array *ids, const char *out,
                            an_lm_gradients *r, an_error *e);

/* ---- speed: the answer checked, then timed against a bound measured in the same run ---- */
/* One case by name. runs: timed runs, 0 for as many as it takes. *text is yours, and holds what was measured before
 * a failure. AN_USAGE: no such case. */
AN_API an_status an_bench(char **text, const char *name, int runs, an_format f, an_error *e);
AN_API char *an_bench_list(an_format f); /* yours: a name and what it measures, a line each */

#ifdef __cplusplus
}
#endif
#endif
