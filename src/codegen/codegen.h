/* codegen.h: from a graph (or a MIL module, by way of lower/) to an engine program.
 *
 *   select   each operation becomes instructions; what only renames elements (reshape and its kin) becomes a view
 *   match    attention, norms and dot products written in small operations are recognised as what they are
 *   apart    attention of several sequences takes them as they lie
 *   fuse     chains of scalar functions share one instruction, or ride behind the product that feeds them
 *   alias    a run of elements that is only copied becomes a part of what it is copied from, or of what it is copied into
 *   narrow   what only products of bf16 read is kept as bf16
 *   plan     every intermediate gets a place in the scratch block, by lifetime
 *   emit     tensors, instructions, ports and the manifest of constants
 *
 * The same graph and options give the same program, byte for byte.
 *
 * Rounding. With numerics.round_each (soft:*) every step rounds to its type whether or not it shares an instruction,
 * so `level` changes speed, never a byte. What the engine itself does in one pass belongs to the meaning and happens
 * at every level: a constant per-channel scale, a constant bias and an activation behind a convolution or product
 * (gain and offset are one rounding, the activation a second), and a multiplication whose only use is a sum over a
 * shared axis, which is the same pass as a matrix product. Wider float types never widen such a device's arithmetic:
 * values inside the program are fp16, ports keep their declared type and are cast at the border. Without round_each
 * (cpu) a fused chain rounds once.
 *
 * Weights. A constant in a weight file stays there: the program holds its path and record, so new weights need no
 * compiling. Reshaped or cast to another float type, it is still the same record (the loader makes the type the
 * program wants); transposed or computed with, it is an instruction that runs each time. Compressed forms are
 * manifest entries, never expanded here. One exception: a causal mask that is seen in the data is compiled in as
 * "causal" (cpu only, keep_masks turns it off), because skipping half of the work cannot wait for loading. The
 * manifest says so, and weights in which it is another one are refused. The same goes for records that a text gives
 * as attributes (an epsilon, axes, a slope): they decide shapes and fields of instructions, so the manifest has what
 * they were, and weights in which they are something else are refused. Nothing else that a weight file holds decides
 * anything, unless `final` says that it stays.
 *
 * State. A state parameter `s` is an input port; its last write adds an output port of the same name. Binding one
 * buffer to both is the state: reads see what was there before the dispatch, and the write is the last thing a
 * program does with it. Any other buffer bound on both sides at once needs `resident`, which delays every output
 * until the inputs have been read. */
#ifndef CODEGEN_CODEGEN_H
#define CODEGEN_CODEGEN_H

#include "engine/engine.h"
#include "graph/graph.h"
#include "lower/lower.h"
#include "target/target.h"

typedef struct {            /* zero means default */
    const numerics *num;    /* NULL: numerics_cpu */
    const char *target;     /* name kept in the program; NULL: "cpu" */
    int level;              /* 0: only what rounding asks for; 1: everything that makes it faster */
    bool inline_consts;     /* constants of weight files whose bytes are at hand move into the program */
    bool keep_masks;        /* a mask stays data even where it is causal */
    /* constants of weight files will not be replaced: what they hold may decide how it is computed */
    bool final;
    /* cpu: pieces of attention and norms that others could read are computed as if others did, so that a value has the
     * same bits in every program that computes it from the same ones */
    bool separate;
    /* cpu: products will multiply bf16 (image_options.fast_math): what only they read, or what lies between them, is
     * kept as that, and bf16 is not made wider for them */
    bool bf16;
    bool resident;          /* an output buffer may be an input buffer of the same dispatch */
    bool no_reuse;          /* every intermediate keeps memory of its own: to look at, and to check the plan against */
    size_t limit;           /* bytes the compile, and then the program, may take; 0: none */
    uint64_t key;           /* identity of what is compiled; 0: a hash of the program */
} codegen_options;

/* o may be NULL. AN_UNSUPPORTED: an operation outside the table, an unknown extent, or a form no instruction has. */
an_status codegen_program(const graph *g, const codegen_options *o, program **out, diag *d) MUST_CHECK;
an_status codegen_mil(const mil_module *m, const lower_in *weights, const codegen_options *o, program **out, diag *d)
    MUST_CHECK;

/* Which compiler this is: a checksum of its sources (Makefile). The same text may become another program where it
 * differs. */
extern const char codegen_maker[];

/* How a chip's arithmetic behaves: the rows of profile.def. false: this chip has no row. */
bool codegen_numerics(const chip *c, numerics *out) MUST_CHECK;
/* each value with status and evidence: "text", "json", "markdown" */
void codegen_print_profiles(strbuf *b, const char *format);

#endif
