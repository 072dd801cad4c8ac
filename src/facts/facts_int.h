/* facts_int.h: what the checkers share: the row, the verdict, and programs on devices. */
#ifndef FACTS_FACTS_INT_H
#define FACTS_FACTS_INT_H

#include <math.h>

#include "base/rng.h"
#include "device/device.h"
#include "facts/facts.h"

typedef struct fx fx;
typedef an_status fact_check(fx *f);

typedef struct {
    const char *id, *on, *setup, *expected, *evidence;
    fact_check *check;
    const char *text;  /* for the checker: MIL expressions, or words */
    const char *note;  /* becomes `why` */
    const double *arg; /* for the checker */
    int n_arg;
} fact_row;

enum { FX_CHIPS = 5 };
struct fx {
    const fact_row *row;
    char chip[FX_CHIPS][8];
    int n_chips;
    fact_result *r;
    arena mem; /* of this run */
    bool oom;  /* a list of numbers could not be written down */
    diag *d;
    struct fx_gate *gate; /* in a process of fx_fork */
};

/* ---- verdicts; each returns AN_OK ---- */
an_status fx_verdict(fx *f, bool ok, const char *got, ...) PRINTF_LIKE(3, 4);
an_status fx_skip(fx *f, const char *got, ...) PRINTF_LIKE(2, 3); /* not modelled; the note says why */
/* the cost model misses it by so much; more than fidelity is off */
an_status fx_error(fx *f, double percent, double fidelity, const char *got, ...) PRINTF_LIKE(4, 5);
bool fx_same(double got, double want);                           /* bits of a number: zeros keep their sign */
const char *fx_list(fx *f, const double *x, int64_t n);          /* "1, 0, inf" */
double fx_arg(const fx *f, int i);                               /* 0 past the end */
/* Word k of the chips column; NULL past the end. */
const char *fx_chip(fx *f, int k);

/* ---- programs ---- */
typedef struct {
    const char *name;
    double *x; /* inputs: values; outputs: filled in, in the arena of f */
    int64_t n;
} fx_val;

enum { FX_PORTS = 8 };
typedef struct {
    device *dev;
    dev_program *p;
    dev_request *r;
    dev_surface *s[2][FX_PORTS];
} fx_prog;

/* A program: declared parameters, a body of statements, names of results. Inline arguments keep the body short. */
const char *fx_text(fx *f, const char *params, const char *results, const char *body, ...) PRINTF_LIKE(4, 5);
#define FX_T(dims) "tensor<fp16, [" dims "]>"

/* f->d says what went wrong. blob may be NULL: weight file "@model_path/w.bin". */
an_status fx_open(fx *f, fx_prog *g, const char *chip, const char *text, const strbuf *blob) MUST_CHECK;
an_status fx_set(fx *f, fx_prog *g, const char *name, const double *x, int64_t n) MUST_CHECK;
an_status fx_go(fx *f, fx_prog *g) MUST_CHECK;
an_status fx_get(fx *f, fx_prog *g, const char *name, double **x, int64_t *n) MUST_CHECK;
void fx_close(fx_prog *g);
/* Open, set, go, get, close. */
an_status fx_once(fx *f, const char *chip, const char *text, const strbuf *blob, const fx_val *in, size_t n_in,
                  fx_val *out, size_t n_out) MUST_CHECK;

/* ---- processes ---- */
enum { FX_PROCESSES = 4, FX_RESULT = 64 };
typedef an_status fx_child(fx *f, int i, void *result);
/* `child` in n processes at once, i from 0; each fills `bytes` bytes of results, at most FX_RESULT. */
an_status fx_fork(fx *f, int n, fx_child *child, void *results, size_t bytes) MUST_CHECK;
void fx_meet(fx *f); /* in a child: waits until all of them have come here; does nothing elsewhere */

double *fx_take(fx *f, int64_t n);                       /* zeros; NULL: no memory */
double *fx_fill(fx *f, int64_t n, double x);             /* these too; the setters of inputs take NULL as no memory */
double *fx_normal(fx *f, int64_t n, uint64_t seed, double scale); /* rounded to fp16 */
double *fx_uniform(fx *f, int64_t n, uint64_t seed, double lo, double hi); /* rounded to fp16 */
double fx_dot(const double *a, const double *b, int64_t n);
/* [n, n], symmetric, eigenvalues from 1/condition to 1 in equal ratios, rounded to fp16 */
double *fx_spd(fx *f, int64_t n, double condition, uint64_t seed);
double fx_cosine(const double *a, const double *b, int64_t n);
double fx_relative(const double *got, const double *want, int64_t n); /* |got - want| / |want|, Euclidean */
double fx_ulps(double a, double b);                      /* distance in fp16 numbers of the larger magnitude */

#define INF ((double)INFINITY)

/* ---- checkers ---- */
#define FACT(id, on, setup, expected, st, checker, text, note, ...) fact_check fact_##checker;
#include "facts/rows.def"
#undef FACT

#endif
