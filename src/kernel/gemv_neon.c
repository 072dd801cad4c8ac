/* gemv_neon.c: few columns on 4 lanes; a table of sixteen is four registers of bytes. */
#if defined(__aarch64__)
#include "kernel/vec_neon.inc"

#include "kernel/gemv_neon.inc"

#define GEMV_ROWS gemv_rows_neon
#define GEMV_SCORES gemv_scores_neon
#define GEMV_MIX gemv_mix_neon
#include "kernel/gemv.inc"
#else
typedef int gemv_neon_other_architecture;
#endif
