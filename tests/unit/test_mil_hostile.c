/* mil against text nobody should write: it must answer AN_OK or AN_INPUT, stay inside its memory, and not take long.
 * Times are printed, not asserted; each case runs under the suite's own patience. */
#define _DEFAULT_SOURCE  /* MAP_ANONYMOUS on glibc */
#define _DARWIN_C_SOURCE /* and on macOS */
#include <sys/mman.h>
#include <unistd.h>

#include "t.h"
#include "mil/mil.h"

static const char sample[] =
    "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3520.4.1\"}, {\"b\", \"\\u00e9\\\\\"}})]\n{\n"
    "    func main<ios18>(tensor<fp16, [1, 4, 1, ?]> a, state<tensor<fp16, [n]>> kv) [F = tuple<string, list<tensor<int32, [2]>, ?>>((\"x\", "
    "[[1, 2], [3, 4]]))] {\n"
    "        fp16 k = const()[name = string(\"k\"), val = fp16(0x1.8p-3)]; // note\n"
    "        tensor<int32, [2, 2]> l = const()[val = tensor<int32, [2, 2]>([[1, -2], [3, 4]])]; /* and\n more */\n"
    "        tensor<fp16, [8, 8]> w = const()[val = tensor<fp16, [8, 8]>(BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(64)))];\n"
    "        (fp16 p, tensor<fp16, []> q) = split(x = a, values = (a, k, bool(true)))[name = string(\"s\")];\n"
    "        write_state(input = kv, data = a);\n"
    "        fp16 y = cond(pred = k)\n            t() {\n                pixel_buffer<BGRA, [1, 2], 64> z = f();\n            } -> (z)\n"
    "            e(fp16 in) {\n            } -> (in);\n"
    "    } -> (y, p);\n}\n";

static an_status parse(const char *text, size_t n, size_t limit, diag *d)
{
    *d = (diag){ 0 };
    mil_module *m = NULL;
    an_status st = mil_parse(text, n, limit, &m, d);
    assert_true((st == AN_OK) == (m != NULL));
    assert_true(st == AN_OK || d->msg[0]);
    if (st == AN_INPUT) {
        assert_true(d->at.line >= 1 && d->at.col >= 1 && d->at.off <= n);
        strbuf b = { 0 };
        mil_show_error(&b, "f", text, n, d->at, d->msg);
        assert_true(b.n < sizeof d->msg + 700);
        sb_free(&b);
    }
    mil_free(m);
    return st;
}

static void sample_is_good(void **state)
{
    (void)state;
    diag d;
    assert_ok(parse(sample, strlen(sample), 0, &d), d);
}

/* Each prefix ends exactly at a page that cannot be read: reading one byte past the text is a crash here. */
static void every_truncation_fails_cleanly(void **state)
{
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = ROUND_UP(sizeof sample, page);
    unsigned char *at = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect(at + room, page, PROT_NONE), 0);
    size_t whole = strlen(sample);
    for (size_t n = 0; n < whole; n++) {
        char *text = (char *)at + room - n;
        memcpy(text, sample, n);
        diag d;
        an_status st = parse(text, n, 0, &d);
        if (n < whole - 1) assert_int_equal(st, AN_INPUT); /* the last byte is a newline */
    }
    munmap(at, room + page);
}

/* One byte changed at a time, to each of a few values. */
static void every_changed_byte_is_survived(void **state)
{
    (void)state;
    static const char to[] = { 0, '\n', '"', '\\', '(', '[', '<', '{', '}', '9', '-', '/', (char)0xff };
    char text[sizeof sample];
    diag d;
    for (size_t i = 0; i < sizeof sample - 1; i++)
        for (size_t k = 0; k < COUNT(to); k++) {
            memcpy(text, sample, sizeof sample);
            text[i] = to[k];
            an_status st = parse(text, sizeof sample - 1, 0, &d);
            assert_true(st == AN_OK || st == AN_INPUT);
        }
}

/* ---- tables of nasty texts ---- */

static const struct {
    const char *name, *head, *unit, *tail; /* unit is repeated to the size asked for */
    an_status want;
    const char *say;
} large[] = {
    { "open parens", "", "(", "", AN_INPUT, "expected 'program" },
    { "open types", "program(1.3){func m(", "list<", "", AN_INPUT, "nested more than 32 deep" },
    { "open tuples", "program(1.3)[a=", "tuple<", "", AN_INPUT, "nested more than 32 deep" },
    { "open lists", "program(1.3)[a=tensor<int32,[2]>(", "[", "", AN_INPUT, "list inside a list" },
    { "open list values", "program(1.3)[a=list<tensor<int32,[?]>,?>(", "[", "", AN_INPUT, "list inside a list" },
    { "open dicts", "program(1.3)[a=dict<string,string>(", "{", "", AN_INPUT, "a string" },
    { "open blocks", "program(1.3){func m(){", "f() b {", "", AN_INPUT, "nested more than 32 deep" },
    { "open angles in an unknown type", "program(1.3){func m(x", "<", "", AN_INPUT, "expected '>'" },
    { "one long word", "program(1.3){func ", "x", "", AN_INPUT, "the parameters" },
    { "one long string", "program(1.3)[a=string(\"", "x", "\")]{}", AN_OK, NULL },
    { "one long escaped string", "program(1.3)[a=string(\"", "\\u00e9", "\")]{}", AN_OK, NULL },
    { "one long open string", "program(1.3)[a=string(\"", "x", "", AN_INPUT, "not closed" },
    { "one long number", "program(1.3)[a=fp16(", "9", ")]{}", AN_INPUT, "at most 1200" },
    { "one long dimension", "program(1.3)[a=tensor<fp16,[", "9", "]>(1)]{}", AN_INPUT, "dimension" },
    { "one long exponent", "program(1.3)[a=fp16(1e", "9", ")]{}", AN_INPUT, "at most 1200" },
    { "one long comment", "program(1.3){}/*", " x\n", "*/", AN_OK, NULL },
    { "one open comment", "program(1.3){}/*", "/ x", "", AN_INPUT, "comment is not closed" },
    { "spaces", "program(1.3)", " ", "{}", AN_OK, NULL },
    { "newlines", "program(1.3)", "\n", "{}", AN_OK, NULL },
    { "minus signs", "program(1.3)[a=fp16(", "-", ")]{}", AN_INPUT, "sign" },
    { "a long list", "program(1.3)[a=tensor<int8,[?]>([1", ",1", "])]{}", AN_OK, NULL },
    { "a long list of halves", "program(1.3)[a=tensor<fp16,[?]>([1", ",0.333", "])]{}", AN_OK, NULL },
    { "a list of the wrong length", "program(1.3)[a=tensor<int8,[7]>([1", ",1", "])]{}", AN_INPUT, "wants 7" },
    { "lists of lists", "program(1.3)[a=tensor<int8,[?,1]>([[1]", ",[1]", "])]{}", AN_OK, NULL },
    { "attributes of one name", "program(1.3)[a=int32(1)", ",a=int32(1)", "]{}", AN_INPUT, "given twice" },
    { "empty attribute lists", "program(1.3)", "[]", "{}", AN_OK, NULL },
    { "a wide tuple type", "program(1.3){func m(tuple<fp16", ",fp16", "> x){}->(x);}", AN_OK, NULL },
    { "a wide argument", "program(1.3){func m(fp16 a){f(x=(a", ",a", "));}->(a);}", AN_INPUT, "more than" },
    { "many results of one name", "program(1.3){func m(fp16 a){}->(a", ",a", ");}", AN_INPUT, "more than" },
    { "statements as short as can be", "program(1.3){func m(){", "f();", "}->();}", AN_INPUT, "more than" },
    { "blocks as short as can be", "program(1.3){func m(){f()", "{}->()", ";}->();}", AN_INPUT, "more than" },
    { "dictionary of nothing", "program(1.3)[a=dict<string,string>({{\"\",\"\"}", ",{\"\",\"\"}", "})]{}", AN_INPUT, "more than" },
    { "an unknown type with long insides", "program(1.3){func m(x<a", ",a", "> v){}->(v);}", AN_OK, NULL },
    { "a BOM and then another", "\xef\xbb\xbf", "\xef\xbb\xbf", "", AN_INPUT, "byte 0xef" },
};

static char *grow(const char *head, const char *unit, const char *tail, size_t size, size_t *n)
{
    size_t h = strlen(head), u = strlen(unit), t = strlen(tail), times = (size - h - t) / u;
    char *text = malloc(h + times * u + t + 1);
    assert_non_null(text);
    memcpy(text, head, h);
    for (size_t i = 0; i < times; i++) memcpy(text + h + i * u, unit, u);
    memcpy(text + h + times * u, tail, t);
    *n = h + times * u + t;
    return text;
}

static void ten_megabytes_of_anything_is_survived(void **state)
{
    (void)state;
    uint64_t worst = 0;
    const char *which = "";
    for (size_t i = 0; i < COUNT(large); i++) {
        size_t n;
        char *text = grow(large[i].head, large[i].unit, large[i].tail, 10u << 20, &n);
        diag d;
        uint64_t t0 = clock_ns();
        an_status st = parse(text, n, 0, &d);
        uint64_t t = clock_ns() - t0;
        if (t > worst) worst = t, which = large[i].name;
        if (st != large[i].want || (st && !strstr(d.msg, large[i].say)))
            fail_msg("%s: %d %s", large[i].name, (int)st, d.msg);
        free(text);
    }
    print_message("slowest of 10 MiB: %s, %.0f ms\n", which, (double)worst / 1e6);
}

/* Many distinct names, keys and types: checks must stay linear. */
static void many_names_are_checked_fast(void **state)
{
    (void)state;
    strbuf b = { 0 };
    sb_puts(&b, "program(1.3){func m(fp16 v0){\n");
    int n = 200000;
    for (int i = 1; i <= n; i++) sb_printf(&b, "fp16 v%d=f(x=v%d,a%d=v%d);\n", i, i - 1, i, i / 2);
    size_t good = b.n;
    sb_printf(&b, "}->(v%d);}", n);
    diag d;
    uint64_t t0 = clock_ns();
    assert_ok(parse(b.at, b.n, 0, &d), d);
    print_message("%d statements, %.1f MB: %.0f ms\n", n, (double)b.n / 1e6, (double)(clock_ns() - t0) / 1e6);
    b.n = good;
    sb_puts(&b, "fp16 v77=f();}->();}");
    assert_int_equal(parse(b.at, b.n, 0, &d), AN_INPUT);
    assert_string_equal(d.msg, "\"v77\" is defined twice: here on line 200002 and before on line 78");
    b.n = 0;
    sb_puts(&b, "program(1.3)[k0=int32(0)");
    for (int i = 1; i < n; i++) sb_printf(&b, ",k%d=int32(0)", i);
    sb_puts(&b, "]{}");
    assert_ok(parse(b.at, b.n, 0, &d), d);
    b.n = 0;
    sb_puts(&b, "program(1.3){func m(){");
    /* as many types */
    for (int i = 1; i < n; i++) sb_printf(&b, "tensor<fp16,[%d]>v%d=f()[n=string(\"%d\")];", i, i, i);
    sb_puts(&b, "}->();}");
    assert_ok(parse(b.at, b.n, 0, &d), d);
    sb_free(&b);
}

/* Ordinary text: what a module costs, and how fast it is read. */
static void ordinary_text_costs_a_few_times_its_size(void **state)
{
    (void)state;
    strbuf b = { 0 };
    sb_puts(&b, "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3520.4.1\"}})]\n{\n    func main<ios18>(tensor<fp16, [1, 96, 1, "
                "32]> s0) {\n");
    for (int i = 1; b.n < 10u << 20; i++)
        sb_printf(&b, "        tensor<fp16, [1, 96, 1, 32]> s%d = mul(x = s%d, y = s%d)[name = string(\"s%d\")];\n", i, i - 1, i / 2, i);
    sb_puts(&b, "    } -> (s0);\n}\n");
    diag d = { 0 };
    mil_module *m;
    uint64_t t0 = clock_ns();
    assert_ok(mil_parse(b.at, b.n, 0, &m, &d), d);
    double ms = (double)(clock_ns() - t0) / 1e6;
    print_message("%.1f MB in %.0f ms: %.0f MB/s, %.1f bytes of module per byte\n", (double)b.n / 1e6, ms,
                  (double)b.n / 1e3 / ms, (double)m->mem.used / (double)b.n);
    assert_true(m->mem.used < 8 * b.n);
    strbuf out = { 0 };
    t0 = clock_ns();
    mil_print(m, &out);
    ms = (double)(clock_ns() - t0) / 1e6;
    print_message("printed in %.0f ms: %.0f MB/s\n", ms, (double)out.n / 1e3 / ms);
    assert_int_equal(out.n, b.n);
    assert_memory_equal(out.at, b.at, b.n);
    mil_free(m);
    sb_free(&out);
    sb_free(&b);
}

/* Out of memory at any byte: only OK or a clean refusal. */
static void every_memory_limit_is_survived(void **state)
{
    (void)state;
    diag d;
    size_t n = strlen(sample), ok_from = 0;
    for (size_t limit = 1; limit < 40000; limit += 7) {
        an_status st = parse(sample, n, limit, &d);
        assert_true(st == AN_OK || st == AN_INPUT || st == AN_NOMEM);
        if (st == AN_OK && !ok_from) ok_from = limit;
        if (ok_from) assert_int_equal(st, AN_OK);
        else assert_non_null(strstr(d.msg, "bytes of memory"));
    }
    assert_true(ok_from > 0);
}

/* Small texts, whole: what fuzzing and review turned up. */
static void small_hostile_texts(void **state)
{
    (void)state;
#define T(s) s, sizeof(s) - 1
    static const struct {
        const char *text;
        size_t n;
        an_status want;
        const char *say;
    } rows[] = {
        { T("\0"), AN_INPUT, "NUL byte" },
        { T("program(1.3)\0{}"), AN_INPUT, "NUL byte" },
        { T("program(1.3)[a=string(\"x\0y\")]{}"), AN_INPUT, "NUL byte" },
        { T("program(1.3)[a=string(\"\\\0\")]{}"), AN_INPUT, "NUL byte" },
        { T("program(1.3)[a=string(\"\\"), AN_INPUT, "not closed" },
        { T("program(1.3)[a=string(\"\\\n\")]{}"), AN_INPUT, "not closed" },
        { T("program(1.3)[a=string(\"\\x4\")]{}"), AN_INPUT, "unknown escape" },
        { T("program(1.3)[a=string(\"\\u123\")]{}"), AN_INPUT, "unknown escape" },
        { T("program(1.3)[a=tensor<fp16,[99999999999999999999999]>(1)]{}"), AN_INPUT, "past 2^63" },
        { T("program(1.3)[a=tensor<fp16,[4294967296,4294967296,4294967296]>([])]{}"), AN_INPUT, "list holds 0 values" },
        { T("program(1.3)[a=tensor<fp16,[9223372036854775807,0]>([])]{}"), AN_OK, NULL },
        { T("program(1.3)[a=tensor<string,[1000000000,1000000000]>([\"a\"])]{}"), AN_INPUT, "list holds 1 value" },
        { T("program(1.3)[a=fp16(1e999999999999999999999)]{}"), AN_OK, NULL },
        { T("program(1.3)[a=fp16(0x1p-999999999999999999999)]{}"), AN_OK, NULL },
        { T("program(1.3)[a=fp64(0x1.fffffffffffffffffffffffffffp1023)]{}"), AN_OK, NULL },
        { T("program(1.3)[a=int32(1e3)]{}"), AN_INPUT, "not an integer" },
        { T("program(1.3)[a=int32(inf)]{}"), AN_INPUT, "not an integer" },
        { T("program(1.3)[a=uint1(2)]{}"), AN_INPUT, "does not fit uint1, which holds 0 to 1" },
        { T("program(1.3)[a=int4(-9)]{}"), AN_INPUT, "does not fit int4, which holds -8 to 7" },
        { T("program(1.3)[a=tensor<int4,[0]>(1)]{}"), AN_INPUT, "wants 0" },
        { T("program(1.3)[a=fp16(fp16(1))]{}"), AN_INPUT, "a value of type fp16" },
        { T("program(1.3)[a=fp16()]{}"), AN_INPUT, "a value of type fp16" },
        { T("program(1.3)[a=tensor<fp16>(1)]{}"), AN_INPUT, "expected ','" },
        { T("program(1.3)[a=dict<string>({})]{}"), AN_INPUT, "expected ','" },
        { T("program(1.3)[a=state<fp16,fp16>(1)]{}"), AN_INPUT, "expected '>'" },
        { T("program(1.3)[a=tuple<>(())]{}"), AN_OK, NULL },
        { T("program(1.3)[a=tuple<fp16>((1,2))]{}"), AN_INPUT, "too many values" },
        { T("program(1.3)[a=list<fp16,3>([1,2])]{}"), AN_INPUT, "wants 3" },
        { T("program(1.3)[a=list<fp16>([1,2])]{}"), AN_OK, NULL },
        { T("program(1.3){func m(x<->v){}->(v);}"), AN_INPUT, "expected '>'" },
        { T("program(1.3){func m(fp16 x){}->(x);"), AN_INPUT, "'func' or '}'" },
        { T("program(1.3){func m<>(){}->();}"), AN_INPUT, "an opset" },
        { T("program(1.3){func m(){f() {}->(), ;}->();}"), AN_INPUT, "a block" },
        { T("program(1.3){func m(){()=f();}->();}"), AN_INPUT, "a type" },
        { T("program(1.3){func m(){fp16 x, = f();}->();}"), AN_INPUT, "a type" },
        { T("program(.)"), AN_INPUT, "a version" },
        { T("program(-1)"), AN_INPUT, "a version" },
        { T("program(0x1)"), AN_INPUT, "a version" },
        { T("program(111111111111111111111111111111111111111)"), AN_INPUT, "a version" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d;
        an_status st = parse(rows[i].text, rows[i].n, 0, &d);
        if (st != rows[i].want || (st && !strstr(d.msg, rows[i].say)))
            fail_msg("row %zu (%s): %d %s", i, rows[i].text, (int)st, d.msg);
    }
    diag d;
    assert_int_equal(parse(NULL, 0, 0, &d), AN_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sample_is_good),
        cmocka_unit_test(every_truncation_fails_cleanly),
        cmocka_unit_test(every_changed_byte_is_survived),
        cmocka_unit_test(small_hostile_texts),
        cmocka_unit_test(ten_megabytes_of_anything_is_survived),
        cmocka_unit_test(many_names_are_checked_fast),
        cmocka_unit_test(ordinary_text_costs_a_few_times_its_size),
        cmocka_unit_test(every_memory_limit_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
