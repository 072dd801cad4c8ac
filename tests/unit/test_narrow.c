/* test_narrow.c: what is kept as bf16 where products multiply bf16, and what is not. */
#include "codegen_t.h"

static int narrow_tensors(const program *p)
{
    int n = 0;
    for (size_t k = 0; k < p->tensors.n; k++) n += p->tensors.at[k].dt == DT_BF16;
    return n;
}

/* What only products read is rounded where it is made; what something else reads too, or what leaves, is not. */
static void narrow_operands(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int narrow; /* tensors */
    } rows[] = {
        { "a = tanh(x)\nb = tanh(w)\ny = matmul(a, b)\nreturn y\n", 2 },
        { "a = tanh(x)\nb = tanh(w)\ny = matmul(a, b)\nz = exp(a)\nreturn y, z\n", 1 },
        { "a = tanh(x)\nb = tanh(w)\ny = matmul(a, b)\nreturn y, b\n", 1 },
        { "a = tanh(x)\nb = const fp32[4, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}\ny = matmul(a, b)\nreturn y\n", 0 },
        { "a = matmul(x, w)\nb = matmul(w, x)\ny = matmul(a, b)\nreturn y\n", 2 },
        { "h = matmul(x, w)\na = tanh(h)\nb = exp(h)\ny = matmul(a, b)\nreturn y\n", 3 },
        { "h = matmul(x, w)\na = tanh(h)\nb = exp(h)\ny = matmul(a, b)\nz = add(b, h)\nreturn y, z\n", 1 },
        { "h = matmul(x, w)\na = tanh(h)\nb = exp(h)\ny = matmul(a, b)\nreturn y, h\n", 2 },
        { "a = softmax(x)\ny = matmul(a, w)\nreturn y\n", 0 },
        { "h = matmul(x, w)\ns = reduce_sum_square(h) {axes=[0, 1]}\ny = matmul(h, h)\nreturn y, s\n", 0 },
        { "r = reduce_sum(x) {axes=[0], keep_dims=true}\na = tanh(r)\nb = add(a, w)\ny = matmul(b, b)\nreturn y\n", 1 },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            char text[512];
            snprintf(text, sizeof text, "graph \"p\"\nx = input fp32[4, 4]\nw = input fp32[4, 4]\n%s", rows[i].text);
            program *p = compiled(text, &(codegen_options){ .level = 1, .bf16 = bf16 });
            const int narrow = narrow_tensors(p);
            if (narrow != (bf16 ? rows[i].narrow : 0))
                fail_msg("row %zu, bf16 %d: %d tensors of bf16", i, bf16, narrow);
            program_free(p);
        }
}

/* A product reads bf16 as it is where it would round it again; anything else gets it made wider. */
static void narrow_reads(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n[2]; /* instructions: products of fp32, of bf16 */
    } rows[] = {
        { "b = cast(h) {dtype=\"fp32\"}\ny = matmul(x, b)\nz = matmul(b, x)\nreturn y, z\n", { 3, 2 } },
        { "b = cast(h) {dtype=\"fp32\"}\nc = reshape(b) {shape=[1, 4, 4]}\ny = matmul(x, c)\nreturn y\n", { 2, 1 } },
        { "b = cast(h) {dtype=\"fp32\"}\ny = matmul(x, b)\nz = exp(b)\nreturn y, z\n", { 3, 2 } },
        { "a = exp(h)\nb = cast(a) {dtype=\"fp32\"}\ny = matmul(x, b)\nreturn y\n", { 2, 2 } },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int bf16 = 0; bf16 < 4; bf16++) { /* separate changes nothing about it */
            char text[512];
            snprintf(text, sizeof text, "graph \"p\"\nx = input fp32[4, 4]\nh = input bf16[4, 4]\n%s", rows[i].text);
            program *p = compiled(text, &(codegen_options){ .level = 1, .bf16 = bf16 % 2, .separate = bf16 / 2 });
            if ((int)p->insns.n != rows[i].n[bf16 % 2])
                fail_msg("row %zu, bf16 %d: %zu instructions", i, bf16, p->insns.n);
            program_free(p);
        }
}

/* A turn of pairs hands on what it turns, not its angles: the product before it may round. */
static void through_a_turn(void **state)
{
    (void)state;
#define TURNED(angles) "a = input fp32[6, 4]\nb = input fp32[4, 5]\nw = input fp32[5, 5]\nsi = input fp32[1, 3, 2, 5]\n" angles                                  \
    "h0 = matmul(a, b)\nh = reshape(h0) {shape=[1, 3, 2, 5]}\nx0 = slice_by_size(h) {begin=[0, 0, 0, 0], size=[1, 3, 1, 5]}\nx1 = slice_by_size(h) {begin=[0, 0, 1, 0], size=[1, 3, 1, 5]}\n" \
    "c = slice_by_size(co) {begin=[0, 0, 0, 0], size=[1, 3, 1, 5]}\ns = slice_by_size(si) {begin=[0, 0, 0, 0], size=[1, 3, 1, 5]}\n"                                          \
    "p = mul(x0, c)\nq = mul(x1, s)\ne = sub(p, q)\nr = mul(x1, c)\nt = mul(x0, s)\nf = add(r, t)\nz = concat(e, f) {axis=2}\nz2 = reshape(z) {shape=[6, 5]}\ny = matmul(z2, w)\n"
    static const struct {
        const char *text;
        bool from, to, angle; /* what is turned, what that gives, an angle: are they narrow? */
    } rows[] = {
        { TURNED("co = input fp32[1, 3, 2, 5]\n") "return y\n", true, true, false },
        { TURNED("co = input fp32[1, 3, 2, 5]\n") "return y, z2\n", false, false, false },
        { TURNED("co0 = matmul(a, b)\nco = reshape(co0) {shape=[1, 3, 2, 5]}\n") "return y\n", true, true, false },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[2400];
        snprintf(text, sizeof text, "graph \"t\"\n%s", rows[i].text);
        program *p = compiled(text, &(codegen_options){ .level = 1, .bf16 = true });
        const insn *turn = NULL;
        for (size_t k = 0; k < p->insns.n; k++)
            if (p->insns.at[k].op == IN_ROPE) turn = &p->insns.at[k];
        assert_non_null(turn);
        const int64_t t[] = { turn->t[1], turn->t[0], turn->t[2] }; /* y, x, cos, sin */
        const bool want[] = { rows[i].from, rows[i].to, rows[i].angle };
        for (int k = 0; k < 3; k++)
            if ((p->tensors.at[t[k]].dt == DT_BF16) != want[k])
                fail_msg("row %zu: tensor %d is %s", i, k, dtype_name(p->tensors.at[t[k]].dt));
        program_free(p);
    }
}

/* Where several queries share a key and a mask hides the later ones, its sums are not finished at once: they are not
 * rounded on the way. */
static void sums_of_groups(void **state)
{
    (void)state;
    for (int mask = 0; mask < 2; mask++)
        for (int group = 0; group < 2; group++) {
            const char *from = group ? "reshape(" : "identity(", *to = group ? ") {shape=[1, 4, 4, 4]}" : ")",
                       *back = group ? ") {shape=[1, 2, 8, 4]}" : ")";
            const int wide = group ? 8 : 4, hidden = mask ? -10000 : 1;
            char text[2400];
            snprintf(text, sizeof text,
                     "graph \"p\"\nq = input fp32[1, 2, 8, %d]\nk = input fp32[1, 2, 8, 4]\nv = input fp32[1, 2, 5, 4]\ndy = input fp32[1, 2, 5, %d]\nf = input fp32[1, 2, 4, 4]\ng = input fp32[1, 2, %d, 4]\n"
                     "m = const fp32[4, 4] {0, %d, %d, %d, 0, 0, %d, %d, 0, 0, 0, %d, 0, 0, 0, 0}\n"
                     "s = matmul(q, k) {transpose_x=true}\ns2 = %ss%s\nsm = add(s2, m)\np = softmax(sm)\np2 = %sp%s\ny = matmul(v, p2) {transpose_y=true}\n"
                     "dv = matmul(dy, p2)\nd = matmul(dy, v) {transpose_x=true}\ndp = %sd%s\nt = mul(dp, p)\nu = reduce_sum(t) {axes=[3], keep_dims=true}\nw = sub(dp, u)\n"
                     "ds = mul(p, w)\nds2 = %sds%s\ndq = matmul(k, ds2) {transpose_y=true}\ndk = matmul(q, ds2)\n"
                     "o1 = matmul(dk, f)\no2 = matmul(dv, f)\no3 = matmul(dq, g)\no4 = matmul(y, g)\nreturn o1, o2, o3, o4\n",
                     wide, wide, wide, hidden, hidden, hidden, hidden, hidden, hidden, from, to, from, back, from, to, from, back);
            program *p = compiled(text, &(codegen_options){ .level = 1, .bf16 = true });
            assert_int_equal(cgt_count(p, IN_ATTEND_BACK), 1);
            for (size_t i = 0; i < p->insns.n; i++) {
                const insn_id op = p->insns.at[i].op;
                const int results = op == IN_ATTEND_BACK ? 3 : op == IN_ATTEND_KEEP ? 2 : 0;
                for (int k = 0; k < results; k++) {
                    const dtype dt = p->tensors.at[p->insns.at[i].t[k]].dt, want = mask && group ? DT_F32 : DT_BF16;
                    if (dt != want)
                        fail_msg("mask %d, groups %d: result %d of attention%s is %s, wanted %s", mask, group, k,
                                 op == IN_ATTEND_BACK ? " back" : "", dtype_name(dt), dtype_name(want));
                }
            }
            program_free(p);
        }
}

/* Where the same bits are wanted, a value that is computed twice is stored in both places if others read it in one of
 * them, and is narrow in both or in none. */
static void stored_apart(void **state)
{
    (void)state;
#define T "t = matmul(x, w)\nb = tanh(t)\ny = matmul(b, w)\n"
    static const struct {
        const char *text;
        int n[2]; /* instructions; with `separate` */
        int narrow; /* then */
    } rows[] = {
        { T "return y\n", { 2, 2 }, 1 },
        { T "u = matmul(x, w)\nv = tanh(u)\nz = matmul(v, w)\nreturn y, z\n", { 4, 4 }, 2 },
        { T "u = matmul(x, w)\nv = abs(u)\nz = matmul(v, w)\nreturn y, z\n", { 4, 6 }, 4 },
        { T "u = matmul(x, w)\nz = reduce_max(u) {axes=[1]}\nreturn y, z\n", { 4, 5 }, 1 },
        { "t = matmul(x, w)\nb = add(t, x)\nd = tanh(b)\ny = matmul(d, w)\nu = matmul(x, w)\nv = add(u, x)\nz = reduce_max(v) {axes=[1]}\nreturn y, z\n", { 4, 5 }, 1 },
        { T "z = reduce_max(b) {axes=[1]}\nreturn y, z\n", { 3, 3 }, 0 },
    };
#undef T
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int how = 0; how < 4; how++) {
            char text[400];
            snprintf(text, sizeof text, "graph \"s\"\nx = input fp32[4, 4]\nw = input fp32[4, 4]\n%s", rows[i].text);
            const bool separate = how & 1, bf16 = how & 2;
            program *p = compiled(text, &(codegen_options){ .level = 1, .separate = separate, .bf16 = bf16 });
            if ((int)p->insns.n != rows[i].n[separate && bf16])
                fail_msg("row %zu, separate %d, bf16 %d: %zu instructions", i, separate, bf16, p->insns.n);
            if (separate && bf16 && narrow_tensors(p) != rows[i].narrow)
                fail_msg("row %zu: %d narrow tensors", i, (int)narrow_tensors(p));
            program_free(p);
        }
}

/* A turn whose result is narrower is not written over what it turns, though both fit the same few bytes: halves are
 * read far apart. */
static void in_little_room(void **state)
{
    (void)state;
    static const char text[] =
        "graph \"r\"\nx = input fp32[1, 2, 2, 2]\nh = abs(x)\nco = const fp32[1, 2, 2, 2] {0.5, 0.25, 0.75, 0.5, 0, 0, 0, 0}\nsi = const fp32[1, 2, 2, 2] {0.25, 1, 0.5, 0.75, 0, 0, 0, 0}\ni = input fp32[2, 2]\n"
        "x0 = slice_by_size(h) {begin=[0, 0, 0, 0], size=[1, 1, 2, 2]}\nx1 = slice_by_size(h) {begin=[0, 1, 0, 0], size=[1, 1, 2, 2]}\n"
        "c = slice_by_size(co) {begin=[0, 0, 0, 0], size=[1, 1, 2, 2]}\ns = slice_by_size(si) {begin=[0, 0, 0, 0], size=[1, 1, 2, 2]}\n"
        "p = mul(x0, c)\nq = mul(x1, s)\ne = sub(p, q)\nr = mul(x1, c)\nt = mul(x0, s)\nf = add(r, t)\nz = concat(e, f) {axis=1}\nz2 = reshape(z) {shape=[4, 2]}\ny = matmul(z2, i)\nreturn y\n";
    const float one[4] = { 1, 0, 0, 1 };
    float x[8], want[8], got[8];
    for (int k = 0; k < 8; k++) x[k] = (float)(1 + k * 5 % 8) / 4;
    program *plain = compiled(text, &(codegen_options){ .no_reuse = true }),
            *p = compiled(text, &(codegen_options){ .level = 1, .bf16 = true });
    assert_true(cgt_count(p, IN_ROPE) == 1 && narrow_tensors(p) > 0);
    /* ports are in the order of their names */
    cgt_run(plain, (const void *const[]){ one, x }, (void *const[]){ want }, true);
    for (int reference = 0; reference < 2; reference++) {
        cgt_run(p, (const void *const[]){ one, x }, (void *const[]){ got }, reference);
        for (int k = 0; k < 8; k++)
            if (!(fabsf(got[k] - want[k]) <= 1e-2f))
                fail_msg("element %d is %g, wanted %g", k, (double)got[k], (double)want[k]);
    }
    program_free(plain), program_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(narrow_operands), cmocka_unit_test(narrow_reads),
                                        cmocka_unit_test(through_a_turn),  cmocka_unit_test(sums_of_groups),
                                        cmocka_unit_test(stored_apart),    cmocka_unit_test(in_little_room) };
    return cmocka_run_group_tests_name("narrow", tests, NULL, NULL);
}
