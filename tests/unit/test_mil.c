/* mil: text to module and back, both dialects, names, literals, error places. */
#include <math.h>

#include "t.h"
#include "mil/mil.h"

#define HEAD "program(1.3)\n[buildInfo = dict<string, string>({{\"coremlc-version\", \"3520.4.1\"}})]\n{\n"
#define FUNC HEAD "    func main<ios18>(tensor<fp16, [1, 4]> a) {\n"
#define TAIL "    } -> (a);\n}\n"

static mil_module *must_parse(const char *text)
{
    diag d = { 0 };
    mil_module *m = NULL;
    an_status st = mil_parse(text, strlen(text), 0, &m, &d);
    if (st) fail_msg("%u:%u: %s\n%s", d.at.line, d.at.col, d.msg, text);
    return m;
}

static char *text_of(const mil_module *m)
{
    strbuf b = { 0 };
    mil_print(m, &b);
    assert_false(b.oom);
    return b.at; /* caller frees */
}

/* Parse, print, parse, print: the second print equals the first, and the modules mean the same. */
static char *round_trip(const char *text)
{
    mil_module *m = must_parse(text);
    char *one = text_of(m);
    mil_module *again = must_parse(one);
    char *two = text_of(again);
    assert_string_equal(one, two);
    strbuf why = { 0 };
    if (!mil_same(m, again, &why)) fail_msg("not the same: %s\n%s", why.at, one);
    assert_true(mil_same(again, m, NULL));
    sb_free(&why);
    free(two);
    mil_free(m);
    mil_free(again);
    return one;
}

/* ---- canonical text prints back byte for byte ---- */

static const char *const canonical[] = {
    HEAD "    func main<ios18>(tensor<fp16, [1, 4, 1, 64]> a, tensor<fp16, [1, 4, 1, 64]> b) {\n"
         "        fp16 k = const()[name = string(\"k\"), val = fp16(2.0)];\n"
         "        tensor<fp16, [1, 4, 1, 64]> s = add(x = a, y = b)[name = string(\"s\")];\n"
         "        tensor<fp16, [1, 4, 1, 64]> y = mul(x = s, y = k)[name = string(\"y\")];\n"
         "    } -> (y);\n}\n",
    /* convolution with a weight file */
    HEAD "    func main<ios18>(tensor<fp16, [1, 16, 32, 32]> img) {\n"
         "        string pt = const()[name = string(\"pt\"), val = string(\"custom\")];\n"
         "        tensor<int32, [2]> st = const()[name = string(\"st\"), val = tensor<int32, [2]>([1, 1])];\n"
         "        int32 gr = const()[name = string(\"gr\"), val = int32(1)];\n"
         "        tensor<fp16, [32, 16, 3, 3]> w = const()[name = string(\"w\"), val = tensor<fp16, [32, 16, 3, 3]>(BLOBFILE(path = "
         "string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))];\n"
         "        tensor<fp16, [1, 32, 32, 32]> c = conv(dilations = st, groups = gr, pad_type = pt, strides = st, weight = w, x = img)[name = "
         "string(\"c\")];\n"
         "    } -> (c);\n}\n",
    /* the older dialect */
    "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{\"coremlc-version\", \"3505.4.1\"}})]\n{\n"
    "    func main<ios16>(tensor<fp16, [1, 8]> x) {\n"
    "        tensor<bool, []> no = const()[name = tensor<string, []>(\"no\"), val = tensor<bool, []>(false)];\n"
    "        tensor<fp16, [2, 2]> w = const()[name = tensor<string, []>(\"w\"), val = tensor<fp16, [2, 2]>(BLOBFILE(path = tensor<string, "
    "[]>(\"@model_path/w.bin\"), offset = tensor<uint64, []>(64)))];\n"
    "        tensor<fp16, []> e = const()[name = tensor<string, []>(\"e\"), val = tensor<fp16, []>(0x1.5p-17)];\n"
    "    } -> (w);\n}\n",
    /* several results with and without parentheses, none, tuples with literals, two functions */
    HEAD "    func main<ios18>(tensor<fp16, [1, 4]> x, state<tensor<fp16, [1, 4]>> kv) {\n"
         "        tensor<fp16, [1, 2]> p, tensor<fp16, [1, 2]> q = split(axis = int32(1), num_splits = int32(2), x = x)[name = string(\"s\")];\n"
         "        (tensor<fp16, [1, 2]> r, tensor<fp16, [1, 2]> t) = split(x = x)[name = string(\"u\")];\n"
         "        write_state(input = kv, data = x)[name = string(\"w\")];\n"
         "        tensor<fp16, [1, 4]> y = concat(axis = int32(-1), values = (p, fp16(0.5), q), none = ())[name = string(\"y\")];\n"
         "    } -> (y, r);\n"
         "    func extra<ios18>(pixel_buffer<BGRA, [1, 3, 8, 8], 64> img, list<tensor<int32, [2]>, ?> l, tuple<fp16, string> z) {\n"
         "    } -> (img);\n}\n",
    /* attributes on the function, compressed weights, symbols, nested blocks */
    "program(1.3)\n{\n"
    "    func main<ios17>(tensor<int32, [1, ?]> ids, tensor<fp32, [n, 2]> f) [FlexibleShapeInformation = tuple<tuple<string, dict<string, "
    "tensor<int32, [?]>>>, tuple<string, dict<string, list<tensor<int32, [2]>, ?>>>>(((\"DefaultShapes\", {{\"ids\", [1, 128]}}), "
    "(\"RangeDims\", {{\"ids\", [[1, 1], [1, 224]]}})))] {\n"
    "        tensor<fp16, [4, 2]> w = constexpr_affine_dequantize()[axis = int32(0), name = string(\"w\"), quantized_data = tensor<int8, [4, "
    "2]>([1, -2, 3, -4, 127, -128, 0, 7]), scale = fp16(0.125), zero_point = int8(0)];\n"
    "        bool go = const()[name = string(\"go\"), val = bool(true)];\n"
    "        tensor<fp16, [4, 2]> y = cond(pred = go)[name = string(\"y\")]\n"
    "            yes() {\n"
    "                tensor<fp16, [4, 2]> v = relu(x = w)[name = string(\"v\")];\n"
    "            } -> (v)\n"
    "            no(tensor<fp16, [4, 2]> inner) {\n"
    "                tensor<fp16, [4, 2]> v = mul(x = w, y = inner)[name = string(\"v\")];\n"
    "            } -> (v);\n"
    "    } -> (y);\n}\n",
    "program(1)\n{\n}\n",
};

static void canonical_text_prints_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(canonical); i++) {
        char *out = round_trip(canonical[i]);
        assert_string_equal(out, canonical[i]);
        free(out);
    }
}

/* ---- the same program, spelled otherwise ---- */

static void spacing_comments_and_spelling_are_free(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want; /* one statement each */
    } rows[] = {
        { "tensor<fp16,[1,4]>y=add(y=a,x=a)[name=string(\"y\")];", "tensor<fp16, [1, 4]> y = add(y = a, x = a)[name = string(\"y\")];" },
        { "tensor < fp16 , [ 1 , 4 ] > y // note\n =\tadd ( x = a , y = /* b \n */ a ) ;", "tensor<fp16, [1, 4]> y = add(x = a, y = a);" },
        { "fp16 k = const()[val=fp16(0x1p+1)];", "fp16 k = const()[val = fp16(2.0)];" },
        { "fp16 k = const()[val=fp16(1e-5)];", "fp16 k = const()[val = fp16(0x1.5p-17)];" },
        { "fp32 k = const()[val=fp32(1e-5)];", "fp32 k = const()[val = fp32(0x1.4f8b58p-17)];" },
        { "fp32 k = const()[val=fp32(0.1)];", "fp32 k = const()[val = fp32(0.1)];" },
        { "fp16 k = const()[val=fp16(-65504)];", "fp16 k = const()[val = fp16(-65504.0)];" },
        { "fp16 k = const()[val=fp16(-inf)];", "fp16 k = const()[val = fp16(-inf)];" },
        { "fp16 k = const()[val=fp16(nan)];", "fp16 k = const()[val = fp16(nan)];" },
        { "fp16 k = const()[val=fp16(-0.0)];", "fp16 k = const()[val = fp16(-0.0)];" },
        { "fp16 k = const()[val=fp16(+.5)];", "fp16 k = const()[val = fp16(0.5)];" },
        { "bf16 k = const()[val=bf16(3.)];", "bf16 k = const()[val = bf16(3.0)];" },
        { "int64 k = const()[val=int64(-9223372036854775808)];", "int64 k = const()[val = int64(-9223372036854775808)];" },
        { "uint64 k = const()[val=uint64(18446744073709551615)];", "uint64 k = const()[val = uint64(18446744073709551615)];" },
        { "uint8 k = const()[val=uint8(0xfF)];", "uint8 k = const()[val = uint8(255)];" },
        { "tensor<uint4, [3]> k = const()[val=tensor<uint4, [3]>([15, 0, 9])];", "tensor<uint4, [3]> k = const()[val = tensor<uint4, [3]>([15, 0, 9])];" },
        { "tensor<int4, [3]> k = const()[val=tensor<int4, [3]>([-8, 7, -1])];", "tensor<int4, [3]> k = const()[val = tensor<int4, [3]>([-8, 7, -1])];" },
        { "tensor<uint3, [5]> k = const()[val=tensor<uint3, [5]>([7,0,5,2,6])];", "tensor<uint3, [5]> k = const()[val = tensor<uint3, [5]>([7, 0, 5, 2, 6])];" },
        { "tensor<int32,[2,2]> k = const()[val=tensor<int32,[2,2]>([[1,2],[3,4]])];", "tensor<int32, [2, 2]> k = const()[val = tensor<int32, [2, 2]>([1, 2, 3, 4])];" },
        { "tensor<int32,[1]> k = const()[val=tensor<int32,[1]>(5)];", "tensor<int32, [1]> k = const()[val = tensor<int32, [1]>([5])];" },
        { "tensor<int32,[0]> k = const()[val=tensor<int32,[0]>([])];", "tensor<int32, [0]> k = const()[val = tensor<int32, [0]>([])];" },
        { "tensor<int32,[2,0]> k = const()[val=tensor<int32,[2,0]>([[],[]])];", "tensor<int32, [2, 0]> k = const()[val = tensor<int32, [2, 0]>([])];" },
        { "tensor<int32,[?]> k = const()[val=tensor<int32,[?]>([4,5,6])];", "tensor<int32, [?]> k = const()[val = tensor<int32, [?]>([4, 5, 6])];" },
        { "tensor<string,[2]> k = const()[val=tensor<string,[2]>([\"a\",\"b\\n\\\"\\\\\\x01\\u00e9\"])];",
          "tensor<string, [2]> k = const()[val = tensor<string, [2]>([\"a\", \"b\\n\\\"\\\\\\x01\xc3\xa9\"])];" },
        { "fp16 k = const()[val=fp16(BLOBFILE(offset=tensor<uint64,[]>(128), path=string(\"w\")))];",
          "fp16 k = const()[val = fp16(BLOBFILE(path = string(\"w\"), offset = uint64(128)))];" },
        { "fp16 k = const()[val=fp16(BLOBFILE(path=\"w\", offset=128))];", "fp16 k = const()[val = fp16(BLOBFILE(path = string(\"w\"), offset = uint64(128)))];" },
        { "dict<string,int32> k = const()[val=dict<string,int32>({{string(\"x\"), int32(3)}, {\"y\", 4}})];",
          "dict<string, int32> k = const()[val = dict<string, int32>({{\"x\", 3}, {\"y\", 4}})];" },
        { "other<a,<b>,-3 , \"s\" > k = f();", "other<a, <b>, -3, \"s\"> k = f();" },
        { "fp16 k = f()[p = int32(1)][q = int32(2)];", "fp16 k = f()[p = int32(1), q = int32(2)];" },
        { "fp16 k = f() b1 {} -> (a), {} -> (); ", "fp16 k = f()\n            b1() {\n            } -> (a)\n            () {\n            } -> ();" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf in = { 0 }, want = { 0 };
        sb_printf(&in, FUNC "%s" TAIL, rows[i].in);
        sb_printf(&want, FUNC "        %s\n" TAIL, rows[i].want);
        char *out = round_trip(in.at);
        assert_string_equal(out, want.at);
        free(out);
        sb_free(&in);
        sb_free(&want);
    }
    free(round_trip("\xef\xbb\xbfprogram(1.3) [ ] [a=int32(1)] { func f ( ) { } -> ( ) ; } // end"));
}

/* ---- what a module holds ---- */

static void fields_hold_what_was_written(void **state)
{
    (void)state;
    mil_module *m = must_parse(FUNC "  tensor<int64, [2]> k = const()[name = string(\"label\"), val = tensor<int64, [2]>([9007199254740993, -1])];\n"
                                    "  tensor<fp16, [1, 4]> y = op(x = a, v = (a, k, fp16(1)), flag = bool(true));\n" TAIL);
    assert_string_equal(m->version, "1.3");
    assert_int_equal(m->n_attr, 1);
    assert_string_equal(m->attr[0].name, "buildInfo");
    assert_int_equal(m->attr[0].lit->kind, ML_DICT);
    assert_string_equal(m->attr[0].lit->item[0]->str[0], "coremlc-version");
    const mil_block *f = mil_main(m);
    assert_string_equal(f->name, "main");
    assert_string_equal(f->opset, "ios18");
    assert_int_equal(f->n_op, 2);
    const mil_op *k = &f->op[0], *y = &f->op[1];
    assert_string_equal(k->op, "const");
    assert_int_equal(k->at.line, 5);
    assert_int_equal(k->out[0].at.col, 22);
    const int64_t *v = k->attr[1].lit->data;
    assert_true(v[0] == 9007199254740993 && v[1] == -1);
    assert_int_equal(y->n_arg, 3);
    assert_string_equal(y->arg[0].item[0].ref, "a");
    assert_true(y->arg[1].tuple && y->arg[1].n == 3 && !y->arg[1].item[2].ref);
    assert_true(y->arg[2].item[0].lit->type->bare && y->arg[2].item[0].lit->type->dt == DT_BOOL);
    assert_true(y->out[0].type == f->in[0].type); /* equal types share a record */
    assert_int_equal(f->n_out, 1);
    mil_free(m);

    m = must_parse("program(1.3){func f(){}->(); func g(){}->();}");
    assert_null(mil_main(m));
    mil_free(m);
    m = must_parse("program(1.3){func f(){}->();}");
    assert_string_equal(mil_main(m)->name, "f");
    mil_free(m);
}

/* ---- errors: what is said, and where ---- */

static void errors_name_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *say;
        uint32_t line, col;
    } rows[] = {
        { "", "expected 'program(version)', found the end of the text", 1, 1 },
        { "progam(1.3)", "found 'progam'", 1, 1 },
        { "program(x)", "a version", 1, 9 },
        { "program(1.3)\n{ func main<ios18>(fp16 x) {} -> (x) }", "expected ';', found '}'", 2, 38 },
        { "program(1.3) {} x", "the end of the program", 1, 17 },
        { FUNC "        fp16 a = f();\n" TAIL, "\"a\" is defined twice: here on line 5 and before on line 4", 5, 14 },
        { FUNC "fp16 k = f();\nfp16 k = f();" TAIL, "here on line 6 and before on line 5", 6, 6 },
        { FUNC "fp16 k, fp16 k = f();" TAIL, "defined twice", 5, 14 },
        { FUNC "fp16 k = f(x = k);" TAIL, "\"k\" refers to itself", 5, 16 },
        { FUNC "fp16 k = f(x = later);\nfp16 later = f();" TAIL, "\"later\" is not defined above", 5, 16 },
        { FUNC "fp16 k = f(x = a, x = a);" TAIL, "argument name \"x\" is given twice", 5, 19 },
        { FUNC "fp16 k = f()[x = bool(true), x = bool(true)];" TAIL, "attribute name \"x\" is given twice", 5, 30 },
        { FUNC "fp16 k = f()[p = bool(true)][p = bool(true)];" TAIL, "given twice", 5, 30 },
        { FUNC "fp16 k = f() b {fp16 i = g();} -> (i); fp16 z = f(x = i);" TAIL, "\"i\" is not defined", 5, 55 },
        { FUNC "fp16 k = f() b {fp16 a = g();} -> (a);" TAIL, "defined twice", 5, 22 },
        { FUNC "} -> (y);}", "result \"y\" does not exist", 5, 7 },
        { FUNC "} -> (a); func main<ios18>() {} -> ();}", "function \"main\" is defined twice: here on line 5 and before on line 4", 5, 16 },
        { FUNC "fp16 k = const()[val = tensor<fp16, [4]>(0.5)];" TAIL, "a single literal gives 1 value; tensor<fp16, [4]> wants 4", 5, 42 },
        { FUNC "fp16 k = const()[val = tensor<int32, [4]>([1,2,3])];" TAIL, "list holds 3 values; tensor<int32, [4]> wants 4", 5, 43 },
        { FUNC "fp16 k = const()[val = tensor<int32, [2]>([1,2,3])];" TAIL, "list holds 3 values; tensor<int32, [2]> wants 2", 5, 43 },
        { FUNC "fp16 k = const()[val = tensor<int32, [2,3]>([[1,2],[3,4],[5,6]])];" TAIL, "list holds 2 entries; dimension 1", 5, 50 },
        { FUNC "fp16 k = const()[val = tensor<int32, [2,2]>([[1,2],3,4])];" TAIL, "expected '[', found '3'", 5, 52 },
        { FUNC "fp16 k = const()[val = tensor<int32, [4]>([[1,2],[3,4]])];" TAIL, "values nested 2 deep", 5, 45 },
        { FUNC "fp16 k = const()[val = tensor<int32, [2]>([1,])];" TAIL, "a value of type int32, found ']'", 5, 46 },
        { FUNC "fp16 k = const()[val = tensor<int32, [?,?]>([[1,2],[3]])];" TAIL, "list holds 1 entries; dimension 1", 5, 54 },
        { FUNC "fp16 k = const()[val = int8(128)];" TAIL, "'128' does not fit int8, which holds -128 to 127", 5, 29 },
        { FUNC "fp16 k = const()[val = uint8(-1)];" TAIL, "'-1' does not fit uint8, which holds 0 to 255", 5, 30 },
        { FUNC "fp16 k = const()[val = int64(9223372036854775808)];" TAIL, "does not fit int64", 5, 30 },
        { FUNC "fp16 k = const()[val = uint64(99999999999999999999)];" TAIL, "does not fit uint64", 5, 31 },
        { FUNC "fp16 k = const()[val = int32(1.5)];" TAIL, "'1.5' is not an integer", 5, 30 },
        { FUNC "fp16 k = const()[val = fp16(1.5.2)];" TAIL, "a value of type fp16", 5, 29 },
        { FUNC "fp16 k = const()[val = fp16(0x)];" TAIL, "a value of type fp16", 5, 29 },
        { FUNC "fp16 k = const()[val = fp16(1e)];" TAIL, "a value of type fp16", 5, 29 },
        { FUNC "fp16 k = const()[val = bool(1)];" TAIL, "true or false", 5, 29 },
        { FUNC "fp16 k = const()[val = string(abc)];" TAIL, "a string in quotes", 5, 31 },
        { FUNC "fp16 k = const()[val = string(\"abc)];\n" TAIL, "string is not closed", 5, 31 },
        { FUNC "fp16 k = const()[val = string(\"ab\\q\")];" TAIL, "unknown escape \\q", 5, 34 },
        { FUNC "fp16 k = const()[val = string(\"\\x00\")];" TAIL, "NUL", 5, 32 },
        { FUNC "fp16 k = const()[val = string(\"\\ud800\")];" TAIL, "surrogate", 5, 32 },
        { FUNC "fp17 k = f();" TAIL, "unknown type 'fp17'", 5, 1 },
        { FUNC "tensor<fp17, [1]> k = f();" TAIL, "unknown element type 'fp17'", 5, 8 },
        { FUNC "tensor<fp16, [1,1,1,1,1,1,1,1,1]> k = f();" TAIL, "rank is above 8", 5, 31 },
        { FUNC "tensor<fp16, [-1]> k = f();" TAIL, "dimension '-1'", 5, 15 },
        { FUNC "tensor<fp16, [1.5]> k = f();" TAIL, "dimension '1.5'", 5, 15 },
        { FUNC "tensor<fp16, [9223372036854775808]> k = f();" TAIL, "past 2^63", 5, 15 },
        { FUNC "fp16 k = const()[val = tensor<fp16, [1000000000, 1000000000, 1000000000]>([1])];" TAIL, "list holds 1 value;", 5, 75 },
        { FUNC "fp16 k = const()[val = state<fp16>(1)];" TAIL, "a literal cannot have type state<fp16>", 5, 36 },
        { FUNC "fp16 k = const()[val = string(BLOBFILE(path=\"w\", offset=1))];" TAIL, "a file cannot hold string", 5, 31 },
        { FUNC "fp16 k = const()[val = fp16(BLOBFILE(path=\"w\"))];" TAIL, "offset = uint64", 5, 46 },
        { FUNC "fp16 k = const()[val = fp16(BLOBFILE(path=\"w\", path=\"w\"))];" TAIL, "two values for path", 5, 48 },
        { FUNC "fp16 k = const()[val = fp16(BLOBFILE(path=fp16(1), offset=1))];" TAIL, "path wants a string", 5, 43 },
        { FUNC "fp16 k = const()[val = fp16(BLOBFILE(path=\"w\", offset=-1))];" TAIL, "offset '-1' is not a uint64", 5, 55 },
        { FUNC "fp16 k = const()[val = tuple<fp16, fp16>((1))];" TAIL, "list holds 1 values; tuple<fp16, fp16> wants 2", 5, 42 },
        { FUNC "fp16 k = const()[val = dict<string, fp16>({{\"a\", int32(1)}})];" TAIL, "value has type int32 here; fp16 is wanted", 5, 50 },
        { FUNC "# a remark\n" TAIL, "byte 0x23", 5, 1 },
        { FUNC "/* never\nclosed", "comment is not closed", 5, 1 },
        { FUNC "fp16 k = f(a);" TAIL, "expected '=', found ')'", 5, 13 },
        { FUNC "fp16 k = f(x = [1, 2]);" TAIL, "a value name or a typed literal, found '['", 5, 16 },
        { FUNC "fp16 k = f()", "expected ';', found the end of the text", 5, 13 },
        { FUNC, "the text ends inside the block opened on line 4", 5, 1 },
        { FUNC "fp16 k = - 1;", "sign without a number", 5, 10 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        diag d = { 0 };
        mil_module *m = NULL;
        an_status st = mil_parse(rows[i].text, strlen(rows[i].text), 0, &m, &d);
        if (st != AN_INPUT || !strstr(d.msg, rows[i].say) || d.at.line != rows[i].line || d.at.col != rows[i].col)
            fail_msg("row %zu: status %d at %u:%u: %s\nwanted at %u:%u: %s", i, (int)st, d.at.line, d.at.col, d.msg,
                     rows[i].line, rows[i].col, rows[i].say);
        assert_null(m);
        /* the byte offset is the same place */
        size_t off = 0;
        for (uint32_t l = 1; l < d.at.line; off++) l += rows[i].text[off] == '\n';
        assert_int_equal(d.at.off, off + d.at.col - 1);
    }
}

static void errors_are_shown_with_a_caret(void **state)
{
    (void)state;
    strbuf b = { 0 };
    const char *text = "line one\n\tfp16 k =\x01 \xc3\xa9 bad;\r\nline three\n";
    mil_show_error(&b, "f.mil", text, strlen(text), (loc){ 2, 15, 9 + 14 }, "no such thing");
    assert_string_equal(b.at, "f.mil:2:15: error: no such thing\n\tfp16 k =? \xc3\xa9 bad;\n\t            ^\n");
    b.n = 0;
    mil_show_error(&b, "f.mil", NULL, 0, NOWHERE, "unreadable");
    assert_string_equal(b.at, "f.mil: error: unreadable\n");
    b.n = 0;
    char *wide = malloc(100000);
    memset(wide, 'x', 100000);
    wide[50000] = '!';
    mil_show_error(&b, "w", wide, 100000, (loc){ 1, 50001, 50000 }, "here");
    assert_true(b.n < 320);
    const char *line = strchr(b.at, '\n') + 1, *caret = strchr(line, '\n') + 1;
    assert_int_equal(line[strchr(caret, '^') - caret], '!');
    b.n = 0;
    mil_show_error(&b, "w", wide, 100000, (loc){ 1, 100001, 100000 }, "end");
    assert_true(strstr(b.at, "^") && b.n < 320);
    b.n = 0;
    mil_show_error(&b, "w", wide, 10, (loc){ 7, 1, 5000 }, "place outside the text");
    assert_string_equal(b.at, "w:7:1: error: place outside the text\n");
    free(wide);
    sb_free(&b);
}

/* ---- built in memory ---- */

static mil_module *built(const char *version)
{
    mil_module *m = mil_module_new(version);
    bool bare = !strcmp(version, "1.3");
    const int64_t dim[] = { 2, 3 };
    const uint16_t data[] = { 0x3c00, 0x0001, 0x7bff, 0x7c00, 0xfe00, 0x8000 };
    mil_type *t = mil_type_tensor(m, DT_F16, 2, dim, bare);
    assert_false(t->bare);
    mil_attr *attr = TAKE(&m->mem, mil_attr, 2), *battr = TAKE(&m->mem, mil_attr, 1);
    attr[0] = (mil_attr){ .name = "name", .lit = mil_lit_str(m, bare, "k \"quoted\"") };
    attr[1] = (mil_attr){ .name = "val", .lit = mil_lit_data(m, t, data) };
    battr[0] = (mil_attr){ .name = "val", .lit = mil_lit_blob(m, t, "@model_path/w.bin", 64) };
    mil_var *out = TAKE(&m->mem, mil_var, 2);
    out[0] = (mil_var){ .type = t, .name = "k" };
    out[1] = (mil_var){ .type = t, .name = "w" };
    mil_op *op = TAKE(&m->mem, mil_op, 2);
    op[0] = (mil_op){ .op = "const", .n_out = 1, .out = &out[0], .n_attr = 2, .attr = attr };
    op[1] = (mil_op){ .op = "const", .n_out = 1, .out = &out[1], .n_attr = 1, .attr = battr };
    mil_arg_item *res = TAKE(&m->mem, mil_arg_item, 1);
    res[0] = (mil_arg_item){ .ref = "w" };
    m->func = TAKE(&m->mem, mil_block, 1);
    m->n_func = 1;
    m->func[0] =
        (mil_block){ .name = "main", .opset = bare ? "ios18" : "ios16", .n_op = 2, .op = op, .n_out = 1, .out = res };
    return m;
}

static void built_modules_print_in_their_dialect(void **state)
{
    (void)state;
    mil_module *a = built("1.3"), *b = built("1.0");
    char *ta = text_of(a), *tb = text_of(b);
    assert_non_null(strstr(ta, "BLOBFILE(path = string(\"@model_path/w.bin\"), offset = uint64(64))"));
    assert_non_null(strstr(tb, "BLOBFILE(path = tensor<string, []>(\"@model_path/w.bin\"), offset = tensor<uint64, []>(64))"));
    assert_non_null(strstr(ta, "[1.0, 0x1p-24, 65504.0, inf, -nan, -0.0]"));
    assert_non_null(strstr(ta, "name = string(\"k \\\"quoted\\\"\")"));
    mil_module *a2 = must_parse(ta), *b2 = must_parse(tb);
    assert_true(mil_same(a, a2, NULL) && mil_same(b, b2, NULL));
    strbuf why = { 0 };
    assert_false(mil_same(a, b, &why));
    assert_string_equal(why.at, "version: \"1.3\" against \"1.0\"");
    char *again = text_of(a2);
    assert_string_equal(ta, again);
    free(again);
    sb_free(&why);
    free(ta);
    free(tb);
    mil_free(a), mil_free(b), mil_free(a2), mil_free(b2);
    mil_free(NULL);
}

static void same_sees_each_difference(void **state)
{
    (void)state;
    static const char base[] = "fp16 k = const()[name = string(\"k\"), val = fp16(1)]; fp16 y = f(x = a, y = (a, k));";
    static const struct {
        const char *stmt, *why; /* why NULL: means the same */
    } rows[] = {
        { base, NULL },
        { "fp16 k = const()[val = fp16(0x1p0), name = string(\"k\")]; (fp16 y) = f(y = (a, k), x = a);", NULL },
        { "fp16 k = const()[name = tensor<string, []>(\"k\"), val = tensor<fp16, []>(1)]; fp16 y = f(x = a, y = (a, k));", NULL },
        { "fp32 k = const()[name = string(\"k\"), val = fp16(1)]; fp16 y = f(x = a, y = (a, k));", "type: \"fp16\" against \"fp32\"" },
        { "fp16 k = const()[name = string(\"k\"), val = fp16(2)]; fp16 y = f(x = a, y = (a, k));", "element 0: 1 against 2" },
        { "fp16 k = const()[name = string(\"q\"), val = fp16(1)]; fp16 y = f(x = a, y = (a, k));", "string: \"k\" against \"q\"" },
        { "fp16 k = const()[name = string(\"k\")]; fp16 y = f(x = a, y = (a, k));", "number of attributes" },
        { "fp16 k = const()[name = string(\"k\"), val = fp16(1)]; fp16 y = g(x = a, y = (a, k));", "operation: \"f\" against \"g\"" },
        { "fp16 k = const()[name = string(\"k\"), val = fp16(1)]; fp16 y = f(x = a, y = (k, a));", "value: \"a\" against \"k\"" },
        { "fp16 k = const()[name = string(\"k\"), val = fp16(1)]; fp16 y = f(x = a, y = a);", "tuple" },
        { "fp16 k = const()[name = string(\"k\"), val = fp16(1)]; fp16 z = f(x = a, y = (a, k));", "name: \"y\" against \"z\"" },
        { "fp16 k = const()[name = string(\"k\"), val = fp16(1)]; fp16 y = f(z = a, y = (a, k));", "argument: \"x\"" },
        { "fp16 k = const()[name = string(\"k\"), val = fp16(1)];", "number of operations: 2 against 1" },
        { "fp16 k = const()[name = string(\"k\"), val = fp16(1)]; fp16 y = f(x = a, y = (a, k)) {} -> ();", "number of blocks" },
    };
    strbuf t = { 0 };
    sb_printf(&t, FUNC "%s" TAIL, base);
    mil_module *a = must_parse(t.at);
    for (size_t i = 0; i < COUNT(rows); i++) {
        t.n = 0;
        sb_printf(&t, FUNC "%s" TAIL, rows[i].stmt);
        mil_module *b = must_parse(t.at);
        strbuf why = { 0 };
        bool same = mil_same(a, b, &why);
        if (same != !rows[i].why || (rows[i].why && !strstr(why.at, rows[i].why)))
            fail_msg("row %zu: %s", i, why.at ? why.at : "same");
        sb_free(&why);
        mil_free(b);
    }
    mil_free(a);
    sb_free(&t);
}

/* ---- every value of every small type, and random ones of the large, survive print and parse bit for bit ---- */

static void check_values(dtype dt, const void *packed, int64_t n)
{
    mil_module *m = mil_module_new("1.3");
    mil_type *t = mil_type_tensor(m, dt, 1, &n, false);
    mil_attr *attr = TAKE(&m->mem, mil_attr, 1);
    attr[0] = (mil_attr){ .name = "val", .lit = mil_lit_data(m, t, packed) };
    assert_non_null(attr[0].lit);
    mil_var *out = TAKE(&m->mem, mil_var, 1);
    out[0] = (mil_var){ .type = t, .name = "k" };
    mil_op *op = TAKE(&m->mem, mil_op, 1);
    op[0] = (mil_op){ .op = "const", .n_out = 1, .out = out, .n_attr = 1, .attr = attr };
    m->func = TAKE(&m->mem, mil_block, 1);
    m->n_func = 1;
    m->func[0] = (mil_block){ .name = "main", .opset = "ios18", .n_op = 1, .op = op };
    char *text = text_of(m);
    mil_module *back = must_parse(text);
    const unsigned char *got = back->func[0].op[0].attr[0].lit->data;
    size_t bytes;
    assert_true(dtype_bytes(dt, n, &bytes));
    if (memcmp(got, packed, bytes)) {
        for (int64_t i = 0; i < n; i++)
            if (!isnan(dtype_load(dt, packed, i)) &&
                memcmp(got + i * (dtype_bits(dt) / 8), (const char *)packed + i * (dtype_bits(dt) / 8),
                       (size_t)dtype_bits(dt) / 8))
                fail_msg("%s: element %lld: %.17g became %.17g", dtype_name(dt), (long long)i,
                         dtype_load(dt, packed, i), dtype_load(dt, got, i));
        assert_true(dtype_is_float(dt)); /* only NaN payloads may differ */
    }
    free(text);
    mil_free(m);
    mil_free(back);
}

static void values_survive_text(void **state)
{
    (void)state;
    rng r = { test_seed("mil values") };
    static unsigned char buf[65536 * 8];
    for (int dt = DT_NONE + 1; dt < DT_COUNT; dt++) {
        if (dt == DT_STRING) continue;
        int bits = dtype_bits((dtype)dt);
        int64_t n = bits == 16 ? 65536 : bits == 8 ? 256 : 4001;
        for (int64_t i = 0; i < n; i++) {
            uint64_t v = bits <= 16 ? (uint64_t)i : rng_next(&r);
            if (dt == DT_BOOL) v &= 1;
            if (bits >= 8) memcpy(buf + i * (bits / 8), &v, (size_t)bits / 8);
        }
        if (bits < 8) {
            size_t bytes;
            assert_true(dtype_bytes((dtype)dt, n, &bytes));
            memset(buf, 0, bytes);
            for (int64_t i = 0; i < n; i++) dtype_store((dtype)dt, buf, i, (double)(i % 16) - (dt == DT_I4 ? 8 : 0));
        }
        check_values((dtype)dt, buf, n);
    }
    /* values near where decimal and hex forms meet */
    float f[2000];
    for (size_t i = 0; i < COUNT(f); i++)
        f[i] = (float)(ldexp(1 + rng_unit(&r), (int)(i % 60) - 30) * (i % 2 ? -1 : 1));
    check_values(DT_F32, f, COUNT(f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_text_prints_back),        cmocka_unit_test(spacing_comments_and_spelling_are_free),
        cmocka_unit_test(fields_hold_what_was_written),      cmocka_unit_test(errors_name_the_place),
        cmocka_unit_test(errors_are_shown_with_a_caret),     cmocka_unit_test(built_modules_print_in_their_dialect),
        cmocka_unit_test(same_sees_each_difference),         cmocka_unit_test(values_survive_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
