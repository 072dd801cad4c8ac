/* Shape and type inference: rows of good and bad calls for every rule, and random calls for what no row thought of. */
#include "graph/graph.h"
#include "t.h"

/* Operand types, attributes, and the result types or a part of the message. */
typedef struct {
    op_id op;
    ttype in[5];
    const attr *at;
    int n_at;
    const char *want; /* result types, comma-separated; or, when it starts with '!', what the message must contain */
} row;

#define AT(...) (const attr[]){ __VA_ARGS__ }, (int)(sizeof((const attr[]){ __VA_ARGS__ }) / sizeof(attr))
#define NO_AT NULL, 0
#define H(...) TTYPE(DT_F16, __VA_ARGS__)
#define S(...) TTYPE(DT_F32, __VA_ARGS__)
#define I(...) TTYPE(DT_I32, __VA_ARGS__)
#define B(...) TTYPE(DT_BOOL, __VA_ARGS__)
#define U8(...) TTYPE(DT_U8, __VA_ARGS__)
#define I8(...) TTYPE(DT_I8, __VA_ARGS__)
#define T(dt, ...) TTYPE(DT_##dt, __VA_ARGS__)
#define H0 ((ttype){ .dt = DT_F16 })
#define GONE ((ttype){ .dt = DT_NONE })

static void check(const row *r)
{
    ttype out[8];
    int n_in = op_get(r->op)->n_in, n_out = -1;
    bool list = n_in && op_get(r->op)->in[n_in - 1].list;
    if (list)
        for (n_in = 0; n_in < (int)COUNT(r->in) && r->in[n_in].dt != DT_NONE;) n_in++;
    diag d = { 0 };
    an_status st = graph_infer(r->op, r->in, n_in, r->at, r->n_at, out, &n_out, COUNT(out), &d);
    if (*r->want == '!') {
        if (st != AN_INPUT)
            fail_msg("%s: wanted an error with \"%s\", status %d", op_get(r->op)->mil, r->want + 1, (int)st);
        if (!strstr(d.msg, r->want + 1))
            fail_msg("%s: message \"%s\" lacks \"%s\"", op_get(r->op)->mil, d.msg, r->want + 1);
        if (strncmp(d.msg, op_get(r->op)->mil, strlen(op_get(r->op)->mil)))
            fail_msg("message \"%s\" does not name the op", d.msg);
        return;
    }
    if (st) fail_msg("%s: wanted %s, got \"%s\"", op_get(r->op)->mil, r->want, d.msg);
    strbuf b = { 0 };
    for (int i = 0; i < n_out; i++) {
        if (i) sb_puts(&b, ", ");
        sb_ttype(&b, &out[i]);
    }
    if (strcmp(b.at, r->want)) fail_msg("%s: wanted %s, got %s", op_get(r->op)->mil, r->want, b.at);
    sb_free(&b);
}

static void check_rows(const row *r, size_t n)
{
    for (size_t i = 0; i < n; i++) check(&r[i]);
}

static void eltwise(void **state)
{
    (void)state;
    const row rows[] = {
        { OP_ADD, { H(1, 8, 1, 4), H(1, 1, 1, 4) }, NO_AT, "fp16[1, 8, 1, 4]" },
        { OP_ADD, { H(8, 1), H(3, 1, 5) }, NO_AT, "fp16[3, 8, 5]" },
        { OP_ADD, { H0, H(3) }, NO_AT, "fp16[3]" },
        { OP_ADD, { H(-1, 4), H(1, 4) }, NO_AT, "fp16[?, 4]" },
        { OP_ADD, { H(-1, 4), H(7, 4) }, NO_AT, "fp16[7, 4]" },
        { OP_ADD, { H(-1, 4), H(-1, 1) }, NO_AT, "fp16[?, 4]" },
        { OP_ADD, { H(1, 8, 1, 4), H(1, 7, 1, 4) }, NO_AT, "!x is fp16[1, 8, 1, 4] and y is fp16[1, 7, 1, 4]" },
        { OP_ADD, { H(4), S(4) }, NO_AT, "!x is fp16[4] and y is fp32[4]: element types differ" },
        { OP_ADD, { B(4), B(4) }, NO_AT, "!wanted numbers" },
        { OP_ADD, { H(4), GONE }, NO_AT, "!operand y is missing" },
        { OP_ADD, { H(0), H(1) }, NO_AT, "!has no elements" },
        { OP_ADD, { T(STRING, 1), H(1) }, NO_AT, "!string" },
        { OP_MUL, { I(4), I(1) }, NO_AT, "int32[4]" },
        { OP_POW, { I(4), I(1) }, NO_AT, "!wanted a float type" },
        { OP_PE_ELEMENTWISE, { H(2, 3), H(3) }, AT(AT_S(MODE, "max")), "fp16[2, 3]" },
        { OP_PE_ELEMENTWISE, { H(2, 3), H(3) }, AT(AT_S(MODE, "xor")), "!mode is \"xor\"" },
        { OP_EQUAL, { I(4), I(2, 1) }, NO_AT, "bool[2, 4]" },
        { OP_LESS, { I(4), H(4) }, NO_AT, "!element types differ" },
        { OP_LOGICAL_NOT, { B(2) }, NO_AT, "bool[2]" },
        { OP_LOGICAL_NOT, { H(2) }, NO_AT, "!wanted bool" },
        { OP_SELECT, { B(1, 4), H(3, 1), H0 }, NO_AT, "fp16[3, 4]" },
        { OP_SELECT, { H(1, 4), H(3, 1), H0 }, NO_AT, "!cond is fp16[1, 4], wanted bool" },
        { OP_SELECT, { B(5), H(3, 1), H(4) }, NO_AT, "!do not broadcast" },
        { OP_SELECT, { B(5), H(5), S(5) }, NO_AT, "!element types differ" },
        { OP_RELU, { H(2, -1) }, NO_AT, "fp16[2, ?]" },
        { OP_RELU, { I(2) }, NO_AT, "!wanted a float type" },
        { OP_CLIP, { H(2) }, AT(AT_F(ALPHA, 0), AT_F(BETA, 1)), "fp16[2]" },
        { OP_CLIP, { H(2) }, AT(AT_F(ALPHA, 0)), "!attribute beta is missing" },
        { OP_CLIP, { H(2) }, AT(AT_F(ALPHA, 0), AT_I(BETA, 1)), "!wrong kind" },
        { OP_CLIP, { H(2) }, AT(AT_F(ALPHA, 0), AT_F(ALPHA, 0)), "!given twice" },
        { OP_RELU, { H(2) }, AT(AT_F(ALPHA, 0)), "!has no attribute alpha" },
        { OP_RSQRT, { H(2) }, AT(AT_F(EPSILON, -1)), "!epsilon is -1" },
        { OP_GELU, { H(2) }, AT(AT_S(MODE, "TANH_APPROXIMATION")), "fp16[2]" },
        { OP_GELU, { H(2) }, AT(AT_S(MODE, "tanh")), "!wanted one of: EXACT" },
        { OP_SOFTMAX, { H(2, 3) }, AT(AT_I(AXIS, -2)), "fp16[2, 3]" },
        { OP_SOFTMAX, { H(2, 3) }, AT(AT_I(AXIS, 2)), "!axis 2 is outside a tensor of rank 2" },
        { OP_SOFTMAX, { H0 }, NO_AT, "!outside a tensor of rank 0" },
        { OP_CUMSUM, { H(2, 3) }, AT(AT_I(AXIS, 1)), "fp16[2, 3]" },
        { OP_REVERSE, { H(2, 3) }, AT(AT_IS(AXES, 0, -1)), "fp16[2, 3]" },
        { OP_REVERSE, { H(2, 3) }, AT(AT_IS(AXES, 1, -1)), "!dimension 1 twice" },
        { OP_PRELU, { H(1, 3, 4, 4), H(3) }, NO_AT, "fp16[1, 3, 4, 4]" },
        { OP_PRELU, { H(1, 3, 4, 4), H(4) }, NO_AT, "!one value for each of the 3 channels" },
        { OP_SOFTPLUS_PARAMETRIC, { H(1, 3, 4), H(3), H(3) }, NO_AT, "fp16[1, 3, 4]" },
        { OP_FILL, { GONE }, AT(AT_IS(SHAPE, 2, 3), AT_S(DTYPE, "int32")), "int32[2, 3]" },
        { OP_FILL, { GONE }, AT(AT_LIST(SHAPE, NULL, 0)), "fp16[]" },
        { OP_FILL, { GONE }, AT(AT_IS(SHAPE, 2, 0)), "!shape has 0" },
        { OP_FILL, { GONE }, AT(AT_IS(SHAPE, 2), AT_S(DTYPE, "half")), "!dtype is \"half\"" },
        { OP_FILL_LIKE, { I(2, 3) }, NO_AT, "int32[2, 3]" },
        { OP_RANDOM_UNIFORM, { GONE }, AT(AT_IS(SHAPE, 4)), "fp16[4]" },
        { OP_CAST, { H(2) }, AT(AT_S(DTYPE, "bool")), "bool[2]" },
        { OP_CAST, { H(2) }, AT(AT_S(DTYPE, "string")), "!wanted an element type" },
        { OP_READ_STATE, { H(2) }, NO_AT, "fp16[2]" },
        { OP_WRITE_STATE, { H(2), H(2) }, NO_AT, "fp16[2]" },
        { OP_WRITE_STATE, { H(2), H(3) }, NO_AT, "!shapes differ" },
        { OP_INPUT, { GONE }, NO_AT, "!stated" },
        { OP_CONST, { GONE }, NO_AT, "!stated" },
    };
    check_rows(rows, COUNT(rows));
}

static void windows(void **state)
{
    (void)state;
    const row rows[] = {
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, NO_AT, "fp16[1, 4, 6, 6]" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3), H(4) }, AT(AT_S(PAD_TYPE, "same"), AT_IS(STRIDES, 2, 2)), "fp16[1, 4, 4, 4]" },
        { OP_CONV, { H(1, 3, 7, 8), H(4, 3, 3, 3) }, AT(AT_S(PAD_TYPE, "same_lower"), AT_IS(STRIDES, 2, 1)), "fp16[1, 4, 4, 8]" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 2) }, AT(AT_S(PAD_TYPE, "custom"), AT_IS(PAD, 1, 2, 3, 0)), "fp16[1, 4, 9, 10]" },
        { OP_CONV, { H(2, 4, 9), H(6, 2, 3) }, AT(AT_I(GROUPS, 2), AT_IS(DILATIONS, 2)), "fp16[2, 6, 5]" },
        { OP_CONV, { H(1, 2, 4, 5, 6), H(3, 2, 1, 2, 3) }, NO_AT, "fp16[1, 3, 4, 4, 4]" },
        { OP_CONV, { H(-1, 2, -1, 5), H(3, 2, 2, 2) }, NO_AT, "fp16[?, 3, ?, 4]" },
        { OP_CONV, { H(1, 3), H(4, 3) }, NO_AT, "!rank 2, wanted 3 to 5" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3) }, NO_AT, "!ranks differ" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 2, 3, 3) }, NO_AT, "!weight reads 2 input channels, wanted 3" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, AT(AT_I(GROUPS, 2)), "!do not divide into 2 groups" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, AT(AT_I(GROUPS, 0)), "!groups has 0, wanted at least 1" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 9, 3) }, NO_AT, "!smaller than the kernel's reach 9" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, AT(AT_IS(STRIDES, 1)), "!strides has 1 entries, wanted 2" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, AT(AT_IS(STRIDES, 1, -1)), "!strides has -1" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, AT(AT_IS(PAD, 0, 0)), "!pad has 2 entries, wanted 4" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, AT(AT_S(PAD_TYPE, "full")), "!pad_type is \"full\"" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3), H(3) }, NO_AT, "!bias is fp16[3]" },
        { OP_CONV, { H(1, 3, 8, 8), S(4, 3, 3, 3) }, NO_AT, "!element types differ" },
        { OP_CONV, { I8(1, 3, 8, 8), I8(4, 3, 3, 3) }, NO_AT, "!wanted a float type" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, AT(AT_IS(DILATIONS, (int64_t)1 << 39, 1)), "!reach" },
        { OP_CONV, { H(1, 3, 8, 8), H(4, 3, 3, 3) }, AT(AT_IS(DILATIONS, INT64_MAX, 1)), "!too large" },
        { OP_NE_CONV, { H(1, 3, 8, 8), H(4, 3, 1, 1) }, NO_AT, "fp16[1, 4, 8, 8]" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4, 5), H(3, 2, 3, 3) }, AT(AT_IS(STRIDES, 2, 2)), "fp16[1, 2, 9, 11]" },
        { OP_CONV_TRANSPOSE, { H(1, 4, 4), H(4, 2, 3), H(4) }, AT(AT_I(GROUPS, 2), AT_S(PAD_TYPE, "same"), AT_IS(STRIDES, 3)), "fp16[1, 4, 12]" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4, 5), H(3, 2, 3, 3) }, AT(AT_S(PAD_TYPE, "custom"), AT_IS(PAD, 1, 0, 1, 1)), "fp16[1, 2, 5, 5]" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4), H(3, 2, 3) }, AT(AT_IS(STRIDES, 2), AT_IS(OUTPUT_SHAPE, 1, 2, 10)), "fp16[1, 2, 10]" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4), H(3, 2, 3) }, AT(AT_IS(STRIDES, 2), AT_IS(OUTPUT_SHAPE, 1, 2, 11)), "!output_shape is [1, 2, 11]: spatial dimension 0 is 11, wanted 9 to 10" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4), H(3, 2, 3) }, AT(AT_IS(STRIDES, 2), AT_IS(OUTPUT_SHAPE, 1, 2, 8)), "!spatial dimension 0 is 8, wanted 9 to 10" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4), H(3, 2, 3) }, AT(AT_IS(STRIDES, 3), AT_S(PAD_TYPE, "same"), AT_IS(OUTPUT_SHAPE, 1, 2, 10)), "fp16[1, 2, 10]" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4), H(3, 2, 3) }, AT(AT_IS(STRIDES, 3), AT_S(PAD_TYPE, "same"), AT_IS(OUTPUT_SHAPE, 1, 2, 9)), "!is 9, wanted 10 to 12" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 3, 3), H(3, 2, 3, 3) }, AT(AT_IS(STRIDES, 2, 2), AT_S(PAD_TYPE, "custom"), AT_IS(PAD, 1, 1, 0, 1), AT_IS(OUTPUT_SHAPE, 1, 2, 6, 8)), "!spatial dimension 1 is 8, wanted 6 to 7" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4), H(3, 2, 3) }, AT(AT_IS(OUTPUT_SHAPE, 1, 3, 7)), "!wanted it to start with 1, 2" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4), H(2, 2, 3) }, NO_AT, "!input channels 3 and 2 differ" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 1), H(3, 2, 1) }, AT(AT_S(PAD_TYPE, "custom"), AT_IS(PAD, 1, 1)), "!padding leaves" },
        { OP_CONV_TRANSPOSE, { H(1, 3, 4), H(3, 2, 3) }, AT(AT_S(PAD_TYPE, "same_lower")), "!pad_type" },
        { OP_MAX_POOL, { H(1, 3, 8, 8) }, AT(AT_IS(KERNEL_SIZES, 2, 3), AT_IS(STRIDES, 2, 2)), "fp16[1, 3, 4, 3]" },
        { OP_AVG_POOL, { H(1, 3, 7) }, AT(AT_IS(KERNEL_SIZES, 2), AT_IS(STRIDES, 2), AT_B(CEIL_MODE, true)), "fp16[1, 3, 4]" },
        { OP_AVG_POOL, { H(1, 3, 7) }, AT(AT_IS(KERNEL_SIZES, 2), AT_IS(STRIDES, 2)), "fp16[1, 3, 3]" },
        { OP_AVG_POOL, { H(1, 3, 3) }, AT(AT_IS(KERNEL_SIZES, 2), AT_IS(STRIDES, 3), AT_S(PAD_TYPE, "custom"), AT_IS(PAD, 0, 1), AT_B(CEIL_MODE, true)), "fp16[1, 3, 1]" },
        { OP_AVG_POOL, { H(1, 3, 5) }, AT(AT_IS(KERNEL_SIZES, 1), AT_IS(STRIDES, 5), AT_B(CEIL_MODE, true)), "!wholly outside" },
        { OP_AVG_POOL, { H(1, 3, 5) }, AT(AT_IS(KERNEL_SIZES, 2), AT_S(PAD_TYPE, "same"), AT_B(CEIL_MODE, true)), "!ceil_mode is true with pad_type same" },
        { OP_L2_POOL, { H(1, 3, 8, 8) }, AT(AT_IS(KERNEL_SIZES, 0, 3)), "!kernel_sizes has 0" },
        { OP_L2_POOL, { H(1, 3, 8, 8) }, AT(AT_IS(KERNEL_SIZES, 3)), "!kernel_sizes has 1 entries, wanted 2" },
        { OP_NE_POOL, { H(1, 3, 8, 8) }, AT(AT_IS(KERNEL_SIZES, 8, 8)), "fp16[1, 3, 1, 1]" },
        { OP_PE_POOL, { H(1, 3, 8, 8) }, AT(AT_IS(KERNEL_SIZES, 8, 8), AT_S(MODE, "median")), "!mode is \"median\"" },
        { OP_BATCH_NORM, { H(1, 3, 8, 8), H(3), H(3), GONE, H(3) }, NO_AT, "fp16[1, 3, 8, 8]" },
        { OP_BATCH_NORM, { H(1, 3, 8, 8), H(3), H(4) }, NO_AT, "!variance is fp16[4]" },
        { OP_INSTANCE_NORM, { H(1, 3, 8, 8), H(3), H(3) }, NO_AT, "fp16[1, 3, 8, 8]" },
        { OP_INSTANCE_NORM, { H(1, 3, 8, 8), S(3), S(3) }, NO_AT, "!element types differ" },
        { OP_LAYER_NORM, { H(2, 5, 3), H(5, 3), H(5, 3) }, AT(AT_IS(AXES, -1, 1)), "fp16[2, 5, 3]" },
        { OP_LAYER_NORM, { H(2, 5, 3), H(2, 5, 3) }, NO_AT, "fp16[2, 5, 3]" },
        { OP_LAYER_NORM, { H(2, 5, 3), H(5) }, AT(AT_IS(AXES, 2)), "!gamma is fp16[5], wanted the normalised extents [3]" },
        { OP_LAYER_NORM, { H(2, 5, 3) }, AT(AT_IS(AXES, 3)), "!axes entry 3" },
        { OP_L2_NORM, { H(2, 5, 3) }, NO_AT, "fp16[2, 5, 3]" },
        { OP_LOCAL_RESPONSE_NORM, { H(2, 5, 3, 3) }, AT(AT_I(SIZE, 3)), "fp16[2, 5, 3, 3]" },
    };
    check_rows(rows, COUNT(rows));
}

static void products(void **state)
{
    (void)state;
    const row rows[] = {
        { OP_LINEAR, { H(2, 7, 5), H(3, 5), H(3) }, NO_AT, "fp16[2, 7, 3]" },
        { OP_LINEAR, { H(5), H(3, 5) }, NO_AT, "fp16[3]" },
        { OP_LINEAR, { H(2, 5), H(3, 4) }, NO_AT, "!inner extents 5 and 4 differ" },
        { OP_LINEAR, { H(2, 5), H(3, 5), H(5) }, NO_AT, "!3 output features" },
        { OP_LINEAR, { H(2, 5), H(3, 5, 1) }, NO_AT, "!rank 3, wanted 2" },
        { OP_MATMUL, { H(4, 5), H(5, 7) }, NO_AT, "fp16[4, 7]" },
        { OP_MATMUL, { H(4, 5), H(6, 7) }, NO_AT, "!x is fp16[4, 5] and y is fp16[6, 7]: inner extents 5 and 6 differ" },
        { OP_MATMUL, { H(2, 1, 4, 5), H(3, 5, 7) }, NO_AT, "fp16[2, 3, 4, 7]" },
        { OP_MATMUL, { H(5, 4), H(7, 5) }, AT(AT_B(TRANSPOSE_X, true), AT_B(TRANSPOSE_Y, true)), "fp16[4, 7]" },
        { OP_MATMUL, { H(5), H(5, 7) }, NO_AT, "fp16[7]" },
        { OP_MATMUL, { H(4, 5), H(5) }, NO_AT, "fp16[4]" },
        { OP_MATMUL, { H(5), H(5) }, NO_AT, "fp16[]" },
        { OP_MATMUL, { H(5), H(5) }, AT(AT_B(TRANSPOSE_X, true)), "!transpose_x is true but x is fp16[5]" },
        { OP_MATMUL, { H(2, 4, 5), H(3, 5, 7) }, NO_AT, "!batch extents [2] and [3] differ" },
        { OP_MATMUL, { H(-1, 5), H(5, -1) }, NO_AT, "fp16[?, ?]" },
        { OP_MATMUL, { H(4, 5), S(5, 7) }, NO_AT, "!element types differ" },
        { OP_NE_MATMUL, { H(1, 4, 5), H(1, 5, 7) }, NO_AT, "fp16[1, 4, 7]" },
        { OP_EINSUM, { H(2, 3, 4, 5), H(2, 5, 4, 7) }, AT(AT_S(EQUATION, "nchw,nwhu->nchu")), "fp16[2, 3, 4, 7]" },
        { OP_EINSUM, { H(2, 3), H(3, 4) }, AT(AT_S(EQUATION, "ij,jk->")), "fp16[]" },
        { OP_EINSUM, { H(2, 3), H(4, 4) }, AT(AT_S(EQUATION, "ij,jk->ik")), "!j is both 3 and 4" },
        { OP_EINSUM, { H(2, 3), H(3, 4) }, AT(AT_S(EQUATION, "ijk,jk->ik")), "!3 letters but it is fp16[2, 3]" },
        { OP_EINSUM, { H(2, 3), H(3, 4) }, AT(AT_S(EQUATION, "ij,jk")), "!wrong character" },
        { OP_EINSUM, { H(2, 3), H(3, 4) }, AT(AT_S(EQUATION, "ij,jk->iz")), "!result letter" },
        { OP_EINSUM, { H(2, 3), H(3, 4) }, AT(AT_S(EQUATION, "ij,jk->ii")), "!result letter" },
        { OP_EINSUM, { H(2, 3), H(3, 4) }, AT(AT_S(EQUATION, "ij,jk->\xff")), "!result letter" },
        { OP_EINSUM, { H(2, 2), H(2, 4) }, AT(AT_S(EQUATION, "ii,ik->k")), "!repeats i" },
        { OP_EINSUM, { H(2, 3) }, AT(AT_S(EQUATION, "ij->i")), "!takes 2 operands" },
        { OP_SDPA, { H(1, 8, 16, 64), H(1, 8, 32, 64), H(1, 8, 32, 48) }, NO_AT, "fp16[1, 8, 16, 48]" },
        { OP_SDPA, { H(1, 8, 16, 64), H(1, 8, 32, 64), H(1, 8, 32, 64), B(16, 32) }, NO_AT, "fp16[1, 8, 16, 64]" },
        { OP_SDPA, { H(1, 8, 16, 64), H(1, 8, 32, 64), H(1, 8, 32, 64), H(16, 16) }, NO_AT, "!attn_mask is fp16[16, 16]" },
        { OP_SDPA, { H(1, 8, 16, 64), H(1, 8, 32, 64), H(1, 8, 32, 64), I(16, 32) }, NO_AT, "!wanted bool or fp16" },
        { OP_SDPA, { H(1, 8, 16, 64), H(1, 8, 32, 60), H(1, 8, 32, 64) }, NO_AT, "!inner extents 64 and 60" },
        { OP_SDPA, { H(1, 8, 16, 64), H(1, 8, 32, 64), H(1, 8, 30, 64) }, NO_AT, "!lengths 32 and 30" },
        { OP_SDPA, { H(1, 8, 16, 64), H(1, 2, 32, 64), H(1, 8, 32, 64) }, NO_AT, "!batch extents" },
        { OP_REDUCE_SUM, { H(2, 3, 4) }, AT(AT_IS(AXES, 1), AT_B(KEEP_DIMS, true)), "fp16[2, 1, 4]" },
        { OP_REDUCE_MEAN, { H(2, 3, 4) }, AT(AT_IS(AXES, -1, 0)), "fp16[3]" },
        { OP_REDUCE_MAX, { I(2, 3, 4) }, NO_AT, "int32[]" },
        { OP_REDUCE_MAX, { H(2, 3) }, AT(AT_LIST(AXES, NULL, 0)), "!axes has 0 entries" },
        { OP_REDUCE_L2_NORM, { I(2, 3) }, NO_AT, "!wanted a float type" },
        { OP_REDUCE_SUM, { H(2, 3) }, AT(AT_IS(AXES, 0, 0)), "!dimension 0 twice" },
        { OP_REDUCE_SUM, { H(2, 3) }, AT(AT_IS(AXES, -3)), "!axes entry -3 is outside" },
        { OP_REDUCE_ARGMAX, { H(2, 3) }, NO_AT, "int32[2]" },
        { OP_REDUCE_ARGMIN, { H(2, 3) }, AT(AT_I(AXIS, 0), AT_B(KEEP_DIMS, true)), "int32[1, 3]" },
        { OP_REDUCE_ARGMIN, { H(2, 3) }, AT(AT_I(AXIS, 2)), "!axis 2" },
        { OP_TOPK, { H(2, 9) }, AT(AT_I(K, 3)), "fp16[2, 3], int32[2, 3]" },
        { OP_TOPK, { H(2, 9) }, AT(AT_I(K, -1), AT_I(AXIS, 0)), "fp16[2, 9], int32[2, 9]" },
        { OP_TOPK, { H(2, 9) }, AT(AT_I(K, 3), AT_B(RETURN_INDICES, false)), "fp16[2, 3]" },
        { OP_TOPK, { H(2, 9) }, AT(AT_I(K, 10)), "!k is 10, wanted 1 to 9" },
        { OP_ARGSORT, { H(2, 9) }, NO_AT, "int32[2, 9]" },
    };
    check_rows(rows, COUNT(rows));
}

static void movement(void **state)
{
    (void)state;
    const row rows[] = {
        { OP_IDENTITY, { B(2) }, NO_AT, "bool[2]" },
        { OP_RESHAPE, { H(2, 3, 4) }, AT(AT_IS(SHAPE, 6, 4)), "fp16[6, 4]" },
        { OP_RESHAPE, { H(2, 3, 4) }, AT(AT_IS(SHAPE, 0, -1)), "fp16[2, 12]" },
        { OP_RESHAPE, { H(1) }, AT(AT_LIST(SHAPE, NULL, 0)), "fp16[]" },
        { OP_RESHAPE, { H(-1, 3, 4) }, AT(AT_IS(SHAPE, -1, 12)), "fp16[?, 12]" },
        { OP_RESHAPE, { H(2, 3, 4) }, AT(AT_IS(SHAPE, 5, -1)), "!do not divide into rows of 5" },
        { OP_RESHAPE, { H(2, 3, 4) }, AT(AT_IS(SHAPE, 5, 5)), "!with 24 elements, wanted shape [5, 5] has 25" },
        { OP_RESHAPE, { H(2, 3, 4) }, AT(AT_IS(SHAPE, -1, -1)), "!two entries of -1" },
        { OP_RESHAPE, { H(2) }, AT(AT_IS(SHAPE, 2, 0)), "!no extent to copy" },
        { OP_RESHAPE, { H(2) }, AT(AT_IS(SHAPE, -2)), "!shape has -2" },
        { OP_RESHAPE, { H(2) }, AT(AT_IS(SHAPE, (int64_t)1 << 40, (int64_t)1 << 40)), "!too many elements" },
        { OP_RESHAPE, { H(1) }, AT(AT_IS(SHAPE, 1, 1, 1, 1, 1, 1, 1, 1, 1)), "!9 entries" },
        { OP_RESHAPE_LIKE, { H(30, 12), H(2, 3, 4), I(1, 5, 12) }, AT(AT_IS(BEGINS, 0, 1), AT_IS(ENDS, 2, 0), AT_IS(END_MASKS, 0, 1)), "fp16[2, 3, 5, 12]" },
        { OP_RESHAPE_LIKE, { H(30, 12), H(2, 3, 4) }, AT(AT_IS(BEGINS, 0, 1), AT_IS(ENDS, 2), AT_IS(END_MASKS, 0)), "!begins has 2 entries" },
        { OP_RESHAPE_LIKE, { H(30, 12), H(2, 3, 4) }, AT(AT_IS(BEGINS, 2), AT_IS(ENDS, 1), AT_IS(END_MASKS, 0)), "!outside [2, 3, 4]" },
        { OP_RESHAPE_LIKE, { H(30, 12), H(2, 3, 4) }, AT(AT_IS(BEGINS, 0), AT_IS(ENDS, 1), AT_IS(END_MASKS, 2)), "!wanted true or false" },
        { OP_EXPAND_DIMS, { H(2, 3) }, AT(AT_IS(AXES, 0, -1)), "fp16[1, 2, 3, 1]" },
        { OP_EXPAND_DIMS, { H(2, 3) }, AT(AT_IS(AXES, 3)), "!axes entry 3" },
        { OP_EXPAND_DIMS, { H(1, 1, 1, 1, 1, 1, 1, 1) }, AT(AT_IS(AXES, 0)), "!rank 9" },
        { OP_SQUEEZE, { H(1, 2, 1, 3) }, NO_AT, "fp16[2, 3]" },
        { OP_SQUEEZE, { H(1, 2, 1, 3) }, AT(AT_IS(AXES, -2)), "fp16[1, 2, 3]" },
        { OP_SQUEEZE, { H(1, 2, 1, 3) }, AT(AT_IS(AXES, 1)), "!dimension 1 has extent 2, wanted 1" },
        { OP_FLATTEN2D, { H(2, 3, 4) }, NO_AT, "fp16[2, 12]" },
        { OP_FLATTEN2D, { H(2, 3, 4) }, AT(AT_I(AXIS, -1)), "fp16[6, 4]" },
        { OP_FLATTEN2D, { H(2, 3, 4) }, AT(AT_I(AXIS, 3)), "fp16[24, 1]" },
        { OP_FLATTEN2D, { H(2, 3, 4) }, AT(AT_I(AXIS, 4)), "!axis 4" },
        { OP_TRANSPOSE, { H(2, 3, 4) }, AT(AT_IS(PERM, 2, 0, 1)), "fp16[4, 2, 3]" },
        { OP_TRANSPOSE, { H(2, 3, 4) }, AT(AT_IS(PERM, -1, 0, 1)), "fp16[4, 2, 3]" },
        { OP_TRANSPOSE, { H(2, 3, 4) }, AT(AT_IS(PERM, 2, 0, 0)), "!dimension 0 twice" },
        { OP_TRANSPOSE, { H(2, 3, 4) }, AT(AT_IS(PERM, 1, 0)), "!perm has 2 entries, wanted 3" },
        { OP_TRANSPOSE, { H(2, 3, 4) }, AT(AT_IS(PERM, 3, 0, 1)), "!perm entry 3" },
        { OP_CONCAT, { H(2, 3), H(2, 4), H(2, 1) }, AT(AT_I(AXIS, -1)), "fp16[2, 8]" },
        { OP_CONCAT, { H(2, 3), H(-1, 4) }, AT(AT_I(AXIS, 1)), "fp16[2, 7]" },
        { OP_CONCAT, { H(2, -1), H(2, 4) }, AT(AT_I(AXIS, 1)), "fp16[2, ?]" },
        { OP_CONCAT, { H(2, 3), H(2, 3) }, AT(AT_I(AXIS, 1), AT_B(INTERLEAVE, true)), "fp16[2, 6]" },
        { OP_CONCAT, { H(2, 3), H(2, 4) }, AT(AT_I(AXIS, 1), AT_B(INTERLEAVE, true)), "!interleaved" },
        { OP_CONCAT, { H(2, 3), H(3, 3) }, AT(AT_I(AXIS, 1)), "!cannot be joined along dimension 1" },
        { OP_CONCAT, { H(2, 3), H(2, 3, 1) }, AT(AT_I(AXIS, 1)), "!cannot be joined" },
        { OP_CONCAT, { H(2, 3), S(2, 3) }, AT(AT_I(AXIS, 1)), "!values entry 0 is fp16[2, 3] and entry 1 is fp32[2, 3]" },
        { OP_CONCAT, { H(2, 3) }, AT(AT_I(AXIS, 2)), "!axis 2" },
        { OP_STACK, { H(2, 3), H(2, 3) }, AT(AT_I(AXIS, -1)), "fp16[2, 3, 2]" },
        { OP_STACK, { H(2, 3), H(2, 4) }, AT(AT_I(AXIS, 0)), "!shapes differ" },
        { OP_SPLIT, { H(2, 6) }, AT(AT_I(NUM_SPLITS, 3), AT_I(AXIS, 1)), "fp16[2, 2], fp16[2, 2], fp16[2, 2]" },
        { OP_SPLIT, { H(2, 6) }, AT(AT_IS(SPLIT_SIZES, 1, 5), AT_I(AXIS, 1)), "fp16[2, 1], fp16[2, 5]" },
        { OP_SPLIT, { H(2, 6) }, AT(AT_I(AXIS, 1)), "!neither num_splits nor split_sizes" },
        { OP_SPLIT, { H(2, 6) }, AT(AT_I(NUM_SPLITS, 4), AT_I(AXIS, 1)), "!does not divide into 4" },
        { OP_SPLIT, { H(2, 6) }, AT(AT_I(NUM_SPLITS, 0), AT_I(AXIS, 1)), "!num_splits has 0" },
        { OP_SPLIT, { H(2, 6) }, AT(AT_I(NUM_SPLITS, 3), AT_IS(SPLIT_SIZES, 1, 5), AT_I(AXIS, 1)), "!num_splits is 3" },
        { OP_SPLIT, { H(2, 6) }, AT(AT_IS(SPLIT_SIZES, 1, 4), AT_I(AXIS, 1)), "!add up to 5, wanted the extent 6" },
        { OP_SPLIT, { H(2, -1) }, AT(AT_I(NUM_SPLITS, (int64_t)1 << 30), AT_I(AXIS, 1)), "!does not divide" },
        { OP_PAD, { H(2, 3, 4) }, AT(AT_IS(PAD, 1, 1, 0, 2)), "fp16[2, 5, 6]" },
        { OP_PAD, { H(2, 3, 4) }, AT(AT_IS(PAD, 3, 0), AT_S(MODE, "reflect")), "fp16[2, 3, 7]" },
        { OP_PAD, { H(2, 3, 4) }, AT(AT_IS(PAD, 4, 0), AT_S(MODE, "reflect")), "!reaches at most 3" },
        { OP_PAD, { H(2, 3, 4) }, AT(AT_IS(PAD, 4, 0), AT_S(MODE, "symmetric")), "fp16[2, 3, 8]" },
        { OP_PAD, { H(2, 3, 4) }, AT(AT_IS(PAD, 9, 0), AT_S(MODE, "replicate")), "fp16[2, 3, 13]" },
        { OP_PAD, { H(2, 3) }, AT(AT_IS(PAD, 1)), "!pad has 1 entries" },
        { OP_PAD, { H(2, 3) }, AT(AT_IS(PAD, 1, 1, 1, 1, 1, 1)), "!pad has 6 entries" },
        { OP_PAD, { H(2, 3) }, AT(AT_IS(PAD, 1, -1)), "!pad has -1" },
        { OP_SLICE_BY_SIZE, { H(4, 6) }, AT(AT_IS(BEGIN, 1, 2), AT_IS(SIZE, 2, -1)), "fp16[2, 4]" },
        { OP_SLICE_BY_SIZE, { H(4, -1) }, AT(AT_IS(BEGIN, 1, 2), AT_IS(SIZE, 2, -1)), "fp16[2, ?]" },
        { OP_SLICE_BY_SIZE, { H(4, 6) }, AT(AT_IS(BEGIN, 1, 2), AT_IS(SIZE, 2, 5)), "!begin 2 and size 5 of dimension 1" },
        { OP_SLICE_BY_SIZE, { H(4, 6) }, AT(AT_IS(BEGIN, -1, 2), AT_IS(SIZE, 2, 1)), "!begin -1" },
        { OP_SLICE_BY_SIZE, { H(4, 6) }, AT(AT_IS(BEGIN, INT64_MAX, 2), AT_IS(SIZE, 2, 1)), "!outside" },
        { OP_SLICE_BY_SIZE, { H(4, 6) }, AT(AT_IS(BEGIN, 1), AT_IS(SIZE, 2)), "!begin has 1 entries" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, 1, 0), AT_IS(END, 3, 6), AT_IS(STRIDE, 1, 2)), "fp16[2, 3]" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, -3, 5), AT_IS(END, -1, 0), AT_IS(STRIDE, 1, -2)), "fp16[2, 3]" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, 0, 0), AT_IS(END, 0, INT64_MAX), AT_IS(END_MASK, 1, 0)), "fp16[4, 6]" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, 0, 0), AT_IS(END, 0, 0), AT_IS(STRIDE, -1, -4), AT_IS(BEGIN_MASK, 1, 1), AT_IS(END_MASK, 1, 1)), "fp16[4, 2]" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, 2, 1), AT_IS(END, 0, 2), AT_IS(SQUEEZE_MASK, 1, 0)), "fp16[1]" },
        { OP_SLICE_BY_INDEX, { H(-1, 6) }, AT(AT_IS(BEGIN, 0, 1), AT_IS(END, 4, 2)), "fp16[4, 1]" },
        { OP_SLICE_BY_INDEX, { H(-1, 6) }, AT(AT_IS(BEGIN, 1, 1), AT_IS(END, -1, 2)), "fp16[?, 1]" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, 4, 1), AT_IS(END, 0, 2), AT_IS(SQUEEZE_MASK, 1, 0)), "!index 4 is outside dimension 0" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, 2, 0), AT_IS(END, 2, 6)), "!select nothing" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, 0, 0), AT_IS(END, 2, 6), AT_IS(STRIDE, 0, 1)), "!stride of dimension 0 is 0" },
        { OP_SLICE_BY_INDEX, { H(4, 6) }, AT(AT_IS(BEGIN, 0), AT_IS(END, 2, 6)), "!begin has 1 entries" },
        { OP_SLICE_UPDATE, { H(4, 6), H(2, 3) }, AT(AT_IS(BEGIN, 1, 0), AT_IS(END, 3, 6), AT_IS(STRIDE, 1, 2)), "fp16[4, 6]" },
        { OP_SLICE_UPDATE, { H(4, 6), H(3, 3) }, AT(AT_IS(BEGIN, 1, 0), AT_IS(END, 3, 6), AT_IS(STRIDE, 1, 2)), "!wanted the shape of the slice [2, 3]" },
        { OP_TILE, { H(2, 3) }, AT(AT_IS(REPS, 1, 4)), "fp16[2, 12]" },
        { OP_TILE, { H(2, 3) }, AT(AT_IS(REPS, 0, 4)), "!reps has 0" },
        { OP_TILE, { H(2, 3) }, AT(AT_IS(REPS, 1, (int64_t)1 << 40)), "!too large" },
        { OP_TILE, { H(2, 3) }, AT(AT_IS(REPS, 4)), "!reps has 1 entries" },
        { OP_GATHER, { H(9, 4), I(2, 3) }, NO_AT, "fp16[2, 3, 4]" },
        { OP_GATHER, { H(2, 9, 4), I(2, 3) }, AT(AT_I(AXIS, 1), AT_I(BATCH_DIMS, 1)), "fp16[2, 3, 4]" },
        { OP_GATHER, { H(2, 9), ((ttype){ .dt = DT_I32 }) }, AT(AT_I(AXIS, -1)), "fp16[2]" },
        { OP_GATHER, { H(9, 4), H(2, 3) }, NO_AT, "!indices is fp16[2, 3], wanted an integer type" },
        { OP_GATHER, { H(9, 4), I(2, 3) }, AT(AT_I(BATCH_DIMS, 1)), "!batch_dims is 1, wanted 0 to 0" },
        { OP_GATHER, { H(3, 9, 4), I(2, 3) }, AT(AT_I(AXIS, 1), AT_I(BATCH_DIMS, 1)), "!batch extents differ" },
        { OP_GATHER, { H(1, 1, 1, 1, 1), I(1, 1, 1, 1, 1) }, NO_AT, "!rank above 8" },
        { OP_GATHER_ALONG_AXIS, { H(9, 4), I(2, 4) }, NO_AT, "fp16[2, 4]" },
        { OP_GATHER_ALONG_AXIS, { H(9, 4), I(2, 3) }, NO_AT, "!may differ only along dimension 0" },
        { OP_GATHER_ND, { H(9, 4, 5), I(7, 2) }, NO_AT, "fp16[7, 5]" },
        { OP_GATHER_ND, { H(9, 4, 5), I(9, 7, 2) }, AT(AT_I(BATCH_DIMS, 1)), "fp16[9, 7]" },
        { OP_GATHER_ND, { H(9, 4), I(7, 3) }, NO_AT, "!each index has 3 parts" },
        { OP_DEPTH_TO_SPACE, { H(1, 8, 2, 3) }, AT(AT_I(BLOCK_SIZE, 2)), "fp16[1, 2, 4, 6]" },
        { OP_DEPTH_TO_SPACE, { H(1, 6, 2, 3) }, AT(AT_I(BLOCK_SIZE, 2)), "!extent 6 of dimension 1 is not a multiple of 4" },
        { OP_SPACE_TO_DEPTH, { H(1, 2, 4, 6) }, AT(AT_I(BLOCK_SIZE, 2)), "fp16[1, 8, 2, 3]" },
        { OP_SPACE_TO_DEPTH, { H(1, 2, 4, 5) }, AT(AT_I(BLOCK_SIZE, 2)), "!extent 5 of dimension 3" },
        { OP_SPACE_TO_DEPTH, { H(2, 4, 5) }, AT(AT_I(BLOCK_SIZE, 2)), "!rank 3, wanted 4" },
        { OP_PIXEL_SHUFFLE, { H(1, 9, 2, 3) }, AT(AT_I(UPSCALE_FACTOR, 3)), "fp16[1, 1, 6, 9]" },
        { OP_PIXEL_SHUFFLE, { H(1, 9, 2, 3) }, AT(AT_I(UPSCALE_FACTOR, -3)), "!upscale_factor has -3" },
        { OP_PIXEL_UNSHUFFLE, { H(1, 1, 6, 9) }, AT(AT_I(DOWNSCALE_FACTOR, 3)), "fp16[1, 9, 2, 3]" },
        { OP_SPACE_TO_BATCH, { H(1, 2, 3, 6) }, AT(AT_IS(BLOCK_SHAPE, 2, 3), AT_IS(PADDINGS, 1, 0, 0, 0)), "fp16[6, 2, 2, 2]" },
        { OP_SPACE_TO_BATCH, { H(1, 2, 3, 6) }, AT(AT_IS(BLOCK_SHAPE, 2, 3), AT_IS(PADDINGS, 0, 0, 0, 0)), "!not a multiple of 2" },
        { OP_BATCH_TO_SPACE, { H(6, 2, 2, 2) }, AT(AT_IS(BLOCK_SHAPE, 2, 3), AT_IS(CROPS, 1, 0, 0, 0)), "fp16[1, 2, 3, 6]" },
        { OP_BATCH_TO_SPACE, { H(5, 2, 2, 2) }, AT(AT_IS(BLOCK_SHAPE, 2, 3), AT_IS(CROPS, 1, 0, 0, 0)), "!not a multiple of 6" },
        { OP_BATCH_TO_SPACE, { H(6, 2, 2, 2) }, AT(AT_IS(BLOCK_SHAPE, 2, 3), AT_IS(CROPS, 2, 2, 0, 0)), "!leave nothing" },
        { OP_CROP, { H(1, 2, 8, 9) }, AT(AT_IS(CROP_HEIGHT, 1, 2), AT_IS(CROP_WIDTH, 0, 4)), "fp16[1, 2, 5, 5]" },
        { OP_CROP, { H(1, 2, 8, 9) }, AT(AT_IS(CROP_HEIGHT, 4, 4), AT_IS(CROP_WIDTH, 0, 4)), "!leaves nothing" },
    };
    check_rows(rows, COUNT(rows));
}

static void image_and_weights(void **state)
{
    (void)state;
    const row rows[] = {
        { OP_RESIZE, { H(1, 2, 3, 4) }, AT(AT_IS(SHAPE, 6, 0)), "fp16[1, 2, 6, 4]" },
        { OP_RESIZE, { H(3, 4) }, AT(AT_IS(SHAPE, 1, 6, 4)), "!3 entries" },
        { OP_RESIZE, { H(3, 4) }, AT(AT_IS(SHAPE, 6, 4), AT_S(MODE, "CUBIC")), "!mode is \"CUBIC\"" },
        { OP_RESIZE_BILINEAR, { H(1, 2, 3, 4) }, AT(AT_I(TARGET_SIZE_HEIGHT, 6), AT_I(TARGET_SIZE_WIDTH, 5)), "fp16[1, 2, 6, 5]" },
        { OP_RESIZE_BILINEAR, { H(1, 2, 3, 4) }, AT(AT_I(TARGET_SIZE_HEIGHT, 0)), "!target_size_height has 0" },
        { OP_RESIZE_NEAREST, { H(3, 4) }, NO_AT, "!rank 2" },
        { OP_UPSAMPLE_NEAREST, { H(1, 2, 3, 4) }, AT(AT_F(SCALE_FACTOR_HEIGHT, 2), AT_F(SCALE_FACTOR_WIDTH, 0.5)), "fp16[1, 2, 6, 2]" },
        { OP_UPSAMPLE_BILINEAR, { H(1, 2, 3, 4) }, AT(AT_F(SCALE_FACTOR_HEIGHT, -2)), "!wanted a positive number" },
        { OP_UPSAMPLE_BILINEAR, { H(1, 2, 3, 4) }, AT(AT_F(SCALE_FACTOR_HEIGHT, 0.1)), "!takes extent 3 to 0" },
        { OP_UPSAMPLE_BILINEAR, { H(1, 2, 3, 4) }, AT(AT_F(SCALE_FACTOR_HEIGHT, 1e300)), "!takes extent 3" },
        { OP_CROP_RESIZE, { H(2, 3, 8, 8), H(5, 1, 4, 1, 1) }, AT(AT_I(TARGET_HEIGHT, 4), AT_I(TARGET_WIDTH, 6)), "fp16[5, 2, 3, 4, 6]" },
        { OP_CROP_RESIZE, { H(2, 3, 8, 8), H(5, 4), I(5) }, AT(AT_I(TARGET_HEIGHT, 4), AT_I(TARGET_WIDTH, 6)), "fp16[5, 3, 4, 6]" },
        { OP_CROP_RESIZE, { H(2, 3, 8, 8), H(5, 5) }, NO_AT, "fp16[5, 3, 1, 1]" },
        { OP_CROP_RESIZE, { H(2, 3, 8, 8), H(5, 4) }, NO_AT, "!without box_indices" },
        { OP_CROP_RESIZE, { H(2, 3, 8, 8), H(5, 4), I(4) }, NO_AT, "!box_indices is int32[4]" },
        { OP_CROP_RESIZE, { H(2, 3, 8, 8), H(5, 3) }, NO_AT, "!boxes is fp16[5, 3]" },
        { OP_CROP_RESIZE, { H(2, 3, 8, 8), H(5, 5) }, AT(AT_S(BOX_COORDINATE_MODE, "XYXY")), "!box_coordinate_mode" },
        { OP_RESAMPLE, { H(2, 3, 8, 8), H(2, 5, 6, 2) }, NO_AT, "fp16[2, 3, 5, 6]" },
        { OP_RESAMPLE, { H(2, 3, 8, 8), H(2, 5, 6, 3) }, NO_AT, "!coordinates is fp16[2, 5, 6, 3]" },
        { OP_RESAMPLE, { H(2, 3, 8, 8), H(2, 5, 6, 2) }, AT(AT_S(PADDING_MODE, "edge")), "!padding_mode" },
        { OP_AFFINE, { H(2, 3, 8, 8), H(1, 6) }, AT(AT_I(OUTPUT_HEIGHT, 4), AT_I(OUTPUT_WIDTH, 5)), "fp16[2, 3, 4, 5]" },
        { OP_AFFINE, { H(2, 3, 8, 8), H(3, 6) }, AT(AT_I(OUTPUT_HEIGHT, 4), AT_I(OUTPUT_WIDTH, 5)), "!transform_matrix is fp16[3, 6]" },
        { OP_QUANTIZE, { H(2, 3), H0, GONE }, AT(AT_S(OUTPUT_DTYPE, "int8")), "int8[2, 3]" },
        { OP_QUANTIZE, { H(2, 3), H(3), U8(3) }, AT(AT_S(OUTPUT_DTYPE, "uint8"), AT_I(AXIS, 1)), "uint8[2, 3]" },
        { OP_QUANTIZE, { H(2, 3), H(3), I8(3) }, AT(AT_S(OUTPUT_DTYPE, "uint8"), AT_I(AXIS, 1)), "!zero_point is int8[3], wanted uint8" },
        { OP_QUANTIZE, { H(2, 3), H(3) }, AT(AT_S(OUTPUT_DTYPE, "uint8")), "!axis is not given" },
        { OP_QUANTIZE, { H(2, 3), H(2) }, AT(AT_S(OUTPUT_DTYPE, "uint8"), AT_I(AXIS, 1)), "!wanted 3 values for dimension 1" },
        { OP_QUANTIZE, { H(2, 3), H0 }, AT(AT_S(OUTPUT_DTYPE, "fp16")), "!output_dtype is fp16" },
        { OP_QUANTIZE, { H(2, 3), H(2, 3) }, AT(AT_S(OUTPUT_DTYPE, "int8"), AT_I(AXIS, 1)), "!a scalar or a vector" },
        { OP_DEQUANTIZE, { I8(2, 3), S(2), I8(2) }, AT(AT_I(AXIS, 0)), "fp32[2, 3]" },
        { OP_DEQUANTIZE, { H(2, 3), H0 }, NO_AT, "!input is fp16[2, 3], wanted int8" },
        { OP_CX_AFFINE, { I8(2, 3), H(3), I8(3) }, AT(AT_I(AXIS, 1)), "fp16[2, 3]" },
        { OP_CX_AFFINE, { U8(2, 3), H0, ((ttype){ .dt = DT_U8 }) }, NO_AT, "fp16[2, 3]" },
        { OP_CX_AFFINE, { I8(2, 3), H(4), I8(3) }, AT(AT_I(AXIS, 1)), "!scale is fp16[4], wanted 3 values" },
        { OP_CX_AFFINE, { I8(2, 3), I8(3), I8(3) }, AT(AT_I(AXIS, 1)), "!wanted a float type" },
        { OP_CX_LUT, { U8(4), H(4) }, AT(AT_IS(SHAPE, 4, 4)), "fp16[4, 4]" },
        { OP_CX_LUT, { U8(13), H(64) }, AT(AT_IS(SHAPE, 17)), "fp16[17]" },
        { OP_CX_LUT, { U8(5), H(4) }, AT(AT_IS(SHAPE, 4, 4)), "!wanted 4 bytes for shape [4, 4] at 2 bits" },
        { OP_CX_LUT, { U8(6), H(8) }, AT(AT_IS(SHAPE, 4, 4)), "!wanted 2, 4, 16, 64 or 256 entries" },
        { OP_CX_LUT, { T(U4, 6, 2), H(2, 1, 16, 1) }, NO_AT, "fp16[6, 2]" },
        { OP_CX_LUT, { T(U1, 2, 2, 2), I8(1, 1, 1, 2, 3) }, AT(AT_I(VECTOR_AXIS, 1)), "int8[2, 6, 2]" },
        { OP_CX_LUT, { T(U1, 2, 2, 2), I8(1, 1, 1, 2, 3) }, NO_AT, "!need vector_axis" },
        { OP_CX_LUT, { T(U4, 6, 2), H(4, 1, 16, 1) }, NO_AT, "!dimension 0 does not divide into 4 tables" },
        { OP_CX_LUT, { T(U4, 6, 2), H(2, 1, 8, 1) }, NO_AT, "!8 entries a table, wanted 2^4" },
        { OP_CX_LUT, { T(U4, 6, 2), H(16) }, NO_AT, "!rank 1, wanted 4" },
        { OP_CX_LUT, { T(I32, 6, 2), H(1, 1, 16, 1) }, NO_AT, "!2^32" },
        { OP_CX_SPARSE, { H(3), U8(2) }, AT(AT_IS(SHAPE, 3, 4)), "fp16[3, 4]" },
        { OP_CX_SPARSE, { H(0), U8(2) }, AT(AT_IS(SHAPE, 3, 4)), "fp16[3, 4]" },
        { OP_CX_SPARSE, { I8(3), T(U1, 3, 4) }, NO_AT, "int8[3, 4]" },
        { OP_CX_SPARSE, { I8(13), T(U1, 3, 4) }, NO_AT, "!more than the 12 elements" },
        { OP_CX_SPARSE, { H(3), U8(3, 4) }, NO_AT, "!mask is uint8[3, 4], wanted uint1 without shape" },
        { OP_CX_SPARSE, { H(3), U8(3) }, AT(AT_IS(SHAPE, 3, 4)), "!wanted 2 bytes" },
        { OP_CX_BLOCK, { T(I4, 8, 6), H(2, 1) }, NO_AT, "fp16[8, 6]" },
        { OP_CX_BLOCK, { T(I4, 8, 6), H(2, 1), T(I4, 2, 1) }, NO_AT, "fp16[8, 6]" },
        { OP_CX_BLOCK, { T(I4, 8, 6), H(3, 1) }, NO_AT, "!dimension 0 does not divide into 3 blocks" },
        { OP_CX_BLOCK, { T(I4, 8, 6), H(2, 1), T(I4, 1, 1) }, NO_AT, "!shapes differ" },
        { OP_CX_BLOCK, { T(I4, 8, 6), H(2, 1), I8(2, 1) }, NO_AT, "!element types differ" },
        { OP_CX_BLOCK, { T(I4, 8, 6), H(2) }, NO_AT, "!ranks differ" },
        { OP_CX_SPARSE_BLOCK, { T(U1, 4, 4), I8(9), H(1, 4), I8(1, 4) }, NO_AT, "uint1[4, 4], fp16[9]" },
        { OP_CX_SPARSE_BLOCK, { T(U1, 4, 4), I8(9), H(1, 3) }, NO_AT, "!dimension 1 does not divide into 3" },
        { OP_CX_SPARSE_BLOCK, { U8(4, 4), I8(9), H(1, 4) }, NO_AT, "!data_mask is uint8[4, 4], wanted uint1" },
    };
    check_rows(rows, COUNT(rows));
}

/* No more than max_out results are written, and the number is still told. */
static void few_results(void **state)
{
    (void)state;
    ttype in = TTYPE(DT_F16, 8), out[3] = { { 0 }, { 0 }, { .dt = DT_STRING, .sh = { .rank = 7 } } };
    const attr at[] = { AT_I(NUM_SPLITS, 8), AT_I(AXIS, 0) };
    int n = 0;
    diag d = { 0 };
    assert_ok(graph_infer(OP_SPLIT, &in, 1, at, 2, out, &n, 2, &d), d);
    assert_int_equal(n, 8);
    assert_int_equal(out[1].dt, DT_F16);
    assert_int_equal(out[2].dt, DT_STRING);
    assert_int_equal(out[2].sh.rank, 7);
}

/* Any numbers at all give an answer or AN_INPUT: under the sanitizers this finds overflows. */
static void wild_calls(void **state)
{
    (void)state;
    rng r = { test_seed("wild_calls") };
    static const int64_t odd[] = {
        0, 1, 2, 3, 4, -1, -2, 7, 64, INT64_MAX, INT64_MIN, (int64_t)1 << 40, ((int64_t)1 << 40) + 1, (int64_t)1 << 31
    };
    static const char *const words[] = { "valid",     "same", "custom", "constant", "reflect",
                                         "ab,bc->ac", "int8", "",       "avg" };
    for (int i = 0; i < 40000; i++) {
        op_id op = (op_id)rng_below(&r, OP_COUNT);
        const op_info *info = op_get(op);
        ttype in[5] = { { 0 } }, out[4];
        attr at[OP_MAX_ATTRS];
        int64_t lists[OP_MAX_ATTRS][MAX_RANK + 1];
        int n_in = (int)rng_below(&r, 6), n_at = 0, n_out;
        for (int k = 0; k < n_in; k++) {
            in[k].dt = (dtype)rng_below(&r, DT_COUNT);
            in[k].sh.rank = (int)rng_below(&r, 6);
            if (rng_below(&r, 2)) in[k].dt = DT_F16;
            for (int j = 0; j < in[k].sh.rank; j++)
                in[k].sh.d[j] = odd[rng_below(&r, rng_below(&r, 2) ? COUNT(odd) : 5)];
        }
        for (int k = 0; k < info->n_attr; k++) {
            const attr_spec *s = &info->attr[k];
            if (!s->required && rng_below(&r, 2)) continue;
            attr *a = &at[n_at];
            *a = (attr){ .id = s->id, .kind = s->kind };
            if (s->kind == ATTR_FLOAT) a->u.f = (double)odd[rng_below(&r, COUNT(odd))];
            else if (s->kind == ATTR_STR) a->u.s = words[rng_below(&r, COUNT(words))];
            else if (s->kind == ATTR_INT || s->kind == ATTR_BOOL) a->u.i = odd[rng_below(&r, COUNT(odd))];
            else {
                a->n = (int)rng_below(&r, MAX_RANK + 2);
                a->u.is = lists[n_at];
                for (int j = 0; j < a->n; j++)
                    lists[n_at][j] = odd[rng_below(&r, s->kind == ATTR_BOOLS ? 2 : COUNT(odd))];
            }
            n_at++;
        }
        diag d = { 0 };
        an_status st = graph_infer(op, in, n_in, at, n_at, out, &n_out, COUNT(out), &d);
        if (st != AN_OK && st != AN_INPUT) fail_msg("%s: status %d: %s", info->mil, (int)st, d.msg);
        for (int k = 0; st == AN_OK && k < MIN(n_out, (int)COUNT(out)); k++) {
            assert_true(out[k].dt != DT_NONE);
            for (int j = out[k].sh.rank; j < MAX_RANK; j++) assert_int_equal(out[k].sh.d[j], 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eltwise),  cmocka_unit_test(windows),           cmocka_unit_test(products),
        cmocka_unit_test(movement), cmocka_unit_test(image_and_weights), cmocka_unit_test(few_results),
        cmocka_unit_test(wild_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
