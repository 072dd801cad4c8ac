/* exec.c: which fast form an instruction has. Rows without one run the reference. */
#include "engine/engine_int.h"

static const exec_entry entries[IN_COUNT] = {
#define INSN(id, name, fields, ref, exec, what) [IN_##id] = { .run = ref_##ref },
#include "engine/isa.def"
#undef INSN
};

const exec_entry *exec_entry_of(insn_id op) { return &entries[op]; }
