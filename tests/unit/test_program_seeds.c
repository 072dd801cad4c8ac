/* test_program_seeds.c: the programs the fuzzer starts from, tests/fuzz/corpus-program: one for every instruction
 * and every form of constant, and one that is final, as small as they get. The files must be what the rows here
 * give, behind the header: a fuzzer whose seeds are refused finds nothing. AN_ACCEPT=1 writes them. */
#include <dirent.h>
#include <stdlib.h>

#include "base/io.h"
#include "engine_t.h"
#include "seal.h"

#define CORPUS "tests/fuzz/corpus-program"

typedef struct {
    dtype dt;
    int rank;
    int64_t dim[5];
} port;
#define P(dt, ...) { DT_##dt, (int)(sizeof((const int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), { __VA_ARGS__ } }
#define N(type, ...) (uint32_t)(sizeof((const type[]){ __VA_ARGS__ }) / sizeof(type)), { __VA_ARGS__ }
#define T(...) .n_t = N(int64_t, __VA_ARGS__)
#define I(...) .n_i = N(int64_t, __VA_ARGS__)
#define F(...) .n_f = N(double, __VA_ARGS__)

typedef struct {
    insn_id op;
    int n_in, n_out;
    port port[9]; /* inputs, then outputs: tensor k is port k */
    uint32_t n_t;
    int64_t t[12];
    uint32_t n_i;
    int64_t i[24];
    uint32_t n_f;
    double f[4];
} row;

#define SEED(id, in, out, ports, ...) { .op = IN_##id, .n_in = in, .n_out = out, .port = ports, __VA_ARGS__ }
#define PORTS(...) { __VA_ARGS__ }
#define ADD_F16 6, FN_ADD, 0, 1, -1, 0, DT_F16

static const row rows[] = {
    SEED(CONV, 3, 1, PORTS(P(F16, 1, 2, 4, 3), P(F16, 2, 1, 2, 2), P(F16, 2, 1, 1), P(F16, 1, 2, 4, 2)),
         T(3, 0, 1, 1, 2), I(2, 1, 1, 4, 1, 0, 0, 0, 2, 1, 1, 2, ADD_F16), F(0)),
    SEED(CONV_T, 3, 1, PORTS(P(F16, 1, 2, 3, 2), P(F16, 2, 2, 2, 2), P(F16, 2, 1, 1), P(F16, 1, 2, 6, 4)),
         T(3, 0, 1, 1, 2), I(2, 2, 2, 4, 0, 0, 0, 0, 2, 1, 1, 1, ADD_F16), F(0)),
    SEED(MATMUL, 3, 1, PORTS(P(F16, 2, 3, 4), P(F16, 4, 5), P(F16, 5), P(F16, 2, 3, 5)), T(3, 0, 1, 1, 2),
         I(0, 0, ADD_F16), F(0)),
    SEED(EINSUM, 2, 1, PORTS(P(F16, 2, 3, 4), P(F16, 4, 5, 3), P(F16, 5, 2)), T(2, 0, 1),
         I(2, 3, 0, 3, 0, 1, 2, 3, 2, 3, 1)),
    SEED(ATTEND, 4, 1, PORTS(P(F16, 2, 5, 4), P(F16, 2, 5, 4), P(F16, 2, 5, 3), P(F16, 5, 5), P(F16, 2, 5, 3)),
         T(4, 0, 1, 2, 3), I(1), F(0.5)),
    SEED(EW, 2, 1, PORTS(P(F16, 2, 3), P(F16, 3), P(F16, 2, 3)), T(2, 2, 0, 1),
         I(12, FN_MUL, 0, 1, -1, -1, DT_F16, FN_CLIP, 2, -1, -1, 0, DT_F16), F(2, -1, 1)),
    SEED(EWS, 2, 2, PORTS(P(F16, 2, 3), P(F32, 2, 3), P(F16, 2, 3), P(F32, 2, 3)), T(2, 3, -1, -1, 2, 0, 1),
         I(1, 0, 12, FN_SUB, 0, 1, -1, -1, DT_F32, FN_SQUARE, 2, -1, -1, -1, DT_F16), F(0)),
    SEED(REDUCE, 1, 1, PORTS(P(F16, 3, 4, 2), P(F16, 4)), T(1, 0), I(2, 2, 0, RED_MEAN)),
    SEED(ARG, 1, 1, PORTS(P(F16, 3, 4), P(I32, 3)), T(1, 0), I(1, 0)),
    SEED(SOFTMAX, 1, 1, PORTS(P(F16, 2, 5, 3), P(F16, 2, 5, 3)), T(1, 0), I(1)),
    SEED(NORM, 3, 1, PORTS(P(F16, 2, 3, 4), P(F16, 3, 4), P(F16, 4), P(F16, 2, 3, 4)), T(3, 0, 1, 2),
         I(2, 1, 2, NORM_LAYER), F(0.001)),
    SEED(LRN, 1, 1, PORTS(P(F16, 1, 3, 2, 2), P(F16, 1, 3, 2, 2)), T(1, 0), I(2), F(0.5, 0.75, 2)),
    SEED(CUMSUM, 1, 1, PORTS(P(F16, 2, 5, 3), P(F16, 2, 5, 3)), T(1, 0), I(1, 1, 0)),
    SEED(SORT, 1, 2, PORTS(P(F16, 2, 5, 3), P(F16, 2, 3, 3), P(I32, 2, 3, 3)), T(1, 2, 0), I(1, 0, 3)),
    SEED(POOL, 1, 1, PORTS(P(F16, 1, 2, 5, 4), P(F16, 1, 2, 2, 3)), T(1, 0),
         I(2, 3, 2, 2, 2, 1, 4, 0, 0, 0, 0, POOL_AVG, 1)),
    SEED(MOVE, 1, 1, PORTS(P(F16, 2, 3, 4), P(F16, 4, 2, 3)), T(1, 0), I(3, 4, 2, 3, 0, 3, 6, 3, 1, 0, 3, 1, 12, 4, 0)),
    SEED(FILL, 0, 1, PORTS(P(F16, 2, 3)), T(0), F(0.5)),
    SEED(PICK, 1, 1, PORTS(P(F16, 2, 3, 4), P(F16, 2, 3, 7)), T(1, 0), I(2, 7, 2, 1, 0, 1, 2, 3, 2)),
    SEED(GATHER, 2, 1, PORTS(P(F16, 2, 5, 3), P(I32, 2, 4), P(F16, 2, 4, 3)), T(2, 0, 1), I(1, 1)),
    SEED(GATHER_ALONG, 2, 1, PORTS(P(F16, 2, 5, 3), P(I32, 2, 4, 3), P(F16, 2, 4, 3)), T(2, 0, 1), I(1)),
    SEED(GATHER_ND, 2, 1, PORTS(P(F16, 2, 5, 3), P(I32, 3, 2), P(F16, 3, 3)), T(2, 0, 1), I(0)),
    SEED(CAST, 1, 1, PORTS(P(F16, 3, 4), P(I32, 3, 4)), T(1, 0)),
    SEED(QUANT, 3, 1, PORTS(P(F16, 3, 4), P(F16, 4), P(I8, 4), P(I8, 3, 4)), T(3, 0, 1, 2), I(1)),
    SEED(DEQUANT, 3, 1, PORTS(P(I8, 3, 4), P(F16, 4), P(I8, 4), P(F16, 3, 4)), T(3, 0, 1, 2), I(1)),
    SEED(RESIZE, 1, 1, PORTS(P(F16, 1, 2, 3, 4), P(F16, 1, 2, 5, 3)), T(1, 0), I(1, 1)),
    SEED(CROP_RESIZE, 3, 1, PORTS(P(F16, 2, 2, 4, 5), P(F16, 3, 4), P(I32, 3), P(F16, 3, 2, 3, 4)), T(3, 0, 1, 2),
         I(1, 1, 0, 0), F(1, 5)),
    SEED(RESAMPLE, 2, 1, PORTS(P(F16, 2, 2, 4, 5), P(F16, 2, 3, 3, 2), P(F16, 2, 2, 3, 3)), T(2, 0, 1), I(1, 0, 1, 0),
         F(7)),
    SEED(WARP, 2, 1, PORTS(P(F16, 2, 2, 4, 5), P(F16, 1, 6), P(F16, 2, 2, 3, 6)), T(2, 0, 1), I(1, 0, 1, 0), F(7)),
    SEED(RANDOM, 0, 1, PORTS(P(F16, 3, 4)), T(0), I(42), F(-2, 5)),
    SEED(SCATTER, 2, 1, PORTS(P(I32, 3), P(F16, 2, 3, 2), P(F16, 2, 5, 2)), T(2, 0, 1), I(1, 1, 0)),
    SEED(ATTEND_AT, 4, 1, PORTS(P(F16, 2, 3, 4), P(F16, 2, 5, 4), P(F16, 2, 5, 3), P(I32, 3), P(F16, 2, 3, 3)),
         T(4, 0, 1, 2, 3), I(2, 0), F(0.5)),
    SEED(ATTEND_KEEP, 3, 2, PORTS(P(F16, 2, 4, 5), P(F16, 2, 4, 5), P(F16, 2, 3, 5), P(F16, 2, 3, 5), P(F16, 2, 5, 5)),
         T(3, 4, 0, 1, 2), I(5, 0)),
    SEED(ATTEND_BACK, 5, 3,
         PORTS(P(F16, 2, 5, 5), P(F16, 2, 4, 5), P(F16, 2, 4, 5), P(F16, 2, 3, 5), P(F16, 2, 3, 5), P(F16, 2, 4, 5),
               P(F16, 2, 4, 5), P(F16, 2, 3, 5)),
         T(5, 6, 7, 0, 1, 2, 3, 4), I(5, 0)),
    SEED(MATMUL_SQUARES, 3, 2, PORTS(P(F16, 2, 3, 4), P(F16, 4, 5), P(F16, 5), P(F32, 2, 3, 5), P(F32, 1)),
         T(3, 4, 0, 1, 1, 2), I(0, 0, ADD_F16), F(0)),
    SEED(ROPE, 3, 1, PORTS(P(F16, 2, 4, 6), P(F16, 4, 3), P(F16, 4, 3), P(F16, 2, 4, 6)), T(3, 0, 1, 2), I(0, 0),
         F(0.5)),
    SEED(SUMS, 4, 2, PORTS(P(F32, 3, 5), P(F32, 3, 5), P(F32, 3), P(F32, 5), P(F32, 5), P(F32, 3)),
         T(4, 5, 0, 1, 2, 3)),
};

/* Eight numbers each. Inline data: int8 at 0, fp16 scales at 8, int8 zero at 16, four fp16 at 24, indices at 32, a
 * mask of three at 40, a causal one at 48. */
static const unsigned char DATA[64] = { 1, 2, 0xff, 4, 5,    0xfa, 7, 8,    0, 0x38, 0, 0x40, 0, 0,    0,    0,    1, 0,
                                        0, 0, 0,    0, 0,    0,    0, 0x3c, 0, 0x40, 0, 0x42, 0, 0xc4, 0xe4, 0x1b, 0, 0,
                                        0, 0, 0,    0, 0x29, 0,    0, 0,    0, 0,    0, 0,    0, 0,    0xe2, 0xf4 };
#define SRC(at, type, size, r, ...)                                                                                    \
    {                                                                                                                  \
        .offset = at, .dt = DT_##type, .rank = r, .dim = { __VA_ARGS__ }, .bytes = size                                \
    }
static const const_entry forms[] = {
    { .kind = CK_DENSE, .n_src = 1, .src = { SRC(0, I8, 8, 2, 2, 4) } },
    { .kind = CK_AFFINE, .n_src = 3, .src = { SRC(0, I8, 8, 2, 2, 4), SRC(8, F16, 4, 1, 2), SRC(16, I8, 1, 0, 0) } },
    { .kind = CK_LUT, .n_src = 2, .axis = -1, .src = { SRC(32, U8, 2, 1, 2), SRC(24, F16, 8, 1, 4) } },
    { .kind = CK_LUT, .n_src = 2, .axis = 1, .src = { SRC(40, U1, 1, 2, 2, 2), SRC(24, F16, 8, 4, 1, 1, 2, 2) } },
    { .kind = CK_SPARSE, .n_src = 2, .src = { SRC(24, F16, 6, 1, 3), SRC(40, U1, 1, 2, 2, 4) } },
    { .kind = CK_BLOCK, .n_src = 2, .src = { SRC(0, I8, 8, 2, 2, 4), SRC(24, F16, 8, 2, 2, 2) } },
    { .kind = CK_SPARSE_BLOCK, .n_src = 3, .src = { SRC(0, I8, 3, 1, 3), SRC(40, U1, 1, 2, 2, 4), SRC(24, F16, 8, 2, 2, 2) } },
    { .kind = CK_CAUSAL, .n_src = 1, .src = { SRC(48, F16, 8, 2, 2, 2) } },
    { .kind = CK_FIXED, .n_src = 2, .src = { SRC(24, F16, 16, 2, 2, 4), SRC(24, F16, 16, 2, 2, 4) } },
};

static void open_row(prog *g, const row *r, const numerics *num)
{
    prog_open(g, num);
    for (int k = 0; k < r->n_in + r->n_out; k++) {
        const port *p = &r->port[k];
        if (k < r->n_in) prog_in(g, p->dt, p->dim, p->rank, NULL);
        else prog_out(g, p->dt, p->dim, p->rank);
    }
    prog_insn(g, r->op, r->t, r->n_t, r->i, r->n_i, r->f, r->n_f);
}

/* A matrix product by the constant: what packs it. */
static void open_form(prog *g, const const_entry *form, const numerics *num)
{
    prog_open(g, num);
    g->p->data = DATA, g->p->n_data = sizeof DATA;
    const_entry c = *form;
    const int64_t k = form->kind == CK_CAUSAL ? 2 : 4;
    int64_t w = prog_tensor(g, DT_F16, SPACE_CONST, 0, DIMS(2, k)), x = prog_in(g, DT_F16, DIMS(k, 3), NULL),
            y = prog_out(g, DT_F16, DIMS(2, 3));
    c.tensor = (uint32_t)w;
    assert_true(VEC_PUSH(&g->p->mem, &g->p->consts, c));
    prog_insn(g, IN_MATMUL, INTS(y, w, x, 0), INTS(0, 0, 0), REALS(0));
}

/* ---- seeds by number: each row, then each form, then a final one, on both processors ---- */

enum { N_SEEDS = 2 * (COUNT(rows) + COUNT(forms) + 1) };

static void open_seed(prog *g, size_t k, char *name, size_t room)
{
    static const char *const insns[] = {
#define INSN(id, word, fields, ref, exec, what) word,
#include "engine/isa.def"
#undef INSN
    };
    const numerics *num = k % 2 ? &NUM_M1 : &numerics_cpu;
    const char *chip = k % 2 ? "-m1" : "";
    size_t i = k / 2;
    if (i < COUNT(rows)) {
        open_row(g, &rows[i], num);
        snprintf(name, room, "%s%s", insns[rows[i].op], chip);
    } else if ((i -= COUNT(rows)) < COUNT(forms)) {
        open_form(g, &forms[i], num);
        snprintf(name, room, "const%zu%s", i, chip);
    } else {
        open_form(g, &forms[0], num);
        g->p->final = true, g->p->weights = 0x5eed;
        snprintf(name, room, "final%s", chip);
    }
}

static void every_instruction_has_one(void **s)
{
    (void)s;
    bool has[IN_COUNT] = { false }, kind[CK_COUNT] = { false };
    for (size_t k = 0; k < COUNT(rows); k++) has[rows[k].op] = true;
    for (size_t k = 0; k < COUNT(forms); k++) kind[forms[k].kind] = true;
    for (int k = 0; k < IN_COUNT; k++)
        if (!has[k]) fail_msg("instruction %d of isa.def has no seed: add a row", k);
    for (int k = 0; k < CK_COUNT; k++)
        if (!kind[k]) fail_msg("constants of kind %d have no seed: add a row", k);
}

static void seeds_run(void **s)
{
    (void)s;
    for (size_t k = 0; k < N_SEEDS; k++)
        for (int reference = 0; reference < 2; reference++) {
            prog g;
            char name[80];
            open_seed(&g, k, name, sizeof name);
            if (prog_try(&g, reference)) fail_msg("%s does not run: %s", name, g.d.msg);
            prog_close(&g);
        }
}

static void files_are_the_rows(void **s)
{
    (void)s;
    bool accept = getenv("AN_ACCEPT") != NULL;
    for (size_t k = 0; k < N_SEEDS; k++) {
        prog g;
        char name[80], path[160];
        strbuf b = { 0 };
        open_seed(&g, k, name, sizeof name);
        diag d = { 0 };
        if (program_encode(g.p, &b, &d)) fail_msg("%s: %s", name, d.msg);
        snprintf(path, sizeof path, CORPUS "/%s", name);
        if (accept) assert_ok(file_write(path, b.at, b.n, &d), d);
        file_bytes f;
        assert_ok(file_read(path, 1 << 20, &f, &d), d);
        if (f.n != b.n || memcmp(f.at + SEAL_HEADER, b.at + SEAL_HEADER, b.n - SEAL_HEADER))
            fail_msg("%s is stale: AN_ACCEPT=1 build/tests/unit/test_program_seeds writes it", path);
        file_drop(&f);
        sb_free(&b);
        prog_close(&g);
    }
}

/* Findings are kept beside the seeds: whatever lies there must decode once its header fits. */
static void files_decode(void **s)
{
    (void)s;
    size_t n = 0;
    DIR *dir = opendir(CORPUS);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[400];
        file_bytes f;
        diag d = { 0 };
        program *p = NULL;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, CORPUS "/%s", e->d_name);
        assert_ok(file_read(path, 1 << 20, &f, &d), d);
        assert_true(f.n > SEAL_HEADER);
        unsigned char *b = malloc(f.n);
        assert_non_null(b);
        memcpy(b, f.at, f.n);
        seal(b, f.n);
        if (program_decode(b, f.n, &p, &d)) fail_msg("%s does not decode: %s", path, d.msg);
        program_free(p);
        free(b);
        file_drop(&f);
        n++;
    }
    closedir(dir);
    assert_true(n >= N_SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_instruction_has_one), cmocka_unit_test(seeds_run),
                                        cmocka_unit_test(files_are_the_rows), cmocka_unit_test(files_decode) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
