/* test_fixed: what a weight file holds and a program was compiled around. A text may give any number of an operation
 * as a record of a weight file; where that number becomes a field of an instruction, the manifest of the program has
 * the record, and weights in which it is another one are refused. Shown for every number that a row of the op table
 * takes. */
#include "codegen_t.h"
#include "every_op.h"
#include "lower/lower_int.h"

#define PATH "@model_path/weights/weight.bin"

/* The values every_op.h starts from, all of them known. */
static const char start[] = "graph \"every op\"\nx = input fp16[1, 8, 4, 4]\nm = input fp16[4, 4]\nboxes = input fp16[3, 4]\ncx = input fp16[1, 2, 2, 2]\nmat = input fp16[1, 6]\n"
                            "ix = input int32[3]\ni2 = input int32[4, 4]\nbo = input bool[4, 4]\nch = const fp16[8] all 0.5\nw1 = const fp16[4, 8, 1, 1] all 0.25\n"
                            "wt = const fp16[8, 2, 2, 2] all 0.125\nw2 = const fp16[5, 4] all 1\n"
                            /* the other form of rows that have two */
                            "li1 = const uint1[2, 2] {1, 0, 0, 1}\nlt1 = const fp16[1, 1, 2, 2] {1, 2, 3, 4}\nlv1 = constexpr_lut_to_dense(li1, lt1) {vector_axis=1}\n"
                            "sm1 = const uint8[1] {9}\nsv1 = const fp16[2] {1, 2}\nsd1 = constexpr_sparse_to_dense(sv1, sm1) {shape=[2, 2]}\n";

static graph *all_ops(void)
{
    strbuf b = { 0 };
    sb_puts(&b, start);
    for (size_t i = 0; i < COUNT(every_op); i++) sb_printf(&b, "%s\n", every_op[i]);
    sb_puts(&b, "return e1\n");
    graph *g = cgt_parse(b.at);
    sb_free(&b);
    return g;
}

static bool is_number(attr_kind k) { return k == ATTR_INT || k == ATTR_INTS || k == ATTR_FLOAT; }

/* ---- one operation as a program of its own ---- */

/* The value an operand has there: constants and what is made of them again, everything else an input. */
static val operand_of(graph *g, const graph *from, val v)
{
    const node *n = graph_maker(from, v);
    char name[24];
    val in[OP_MAX_OPERANDS];
    if (!v.i) return NO_VAL;
    if (n->op == OP_CONST) return graph_const_view(g, NULL, *graph_type(from, v), n->cst->data);
    snprintf(name, sizeof name, "in%zu", g->inputs.n);
    if (n->op != OP_CX_SPARSE_BLOCK) return graph_input(g, name, *graph_type(from, v));
    val made = graph_find(g, n->name); /* its two results belong together */
    for (int i = 0; !made.i && i < n->n_in; i++) in[i] = operand_of(g, from, n->in[i]);
    if (!made.i) made = graph_op_named(g, n->name, n->op, in, n->n_in, n->attrs, n->n_attr);
    return graph_out(made, graph_value(from, v)->out);
}

static graph *alone(const graph *from, const node *n, const attr *more)
{
    graph *g = graph_new("one", 0);
    val in[OP_MAX_OPERANDS + 4];
    attr at[OP_MAX_ATTRS + 1];
    int n_at = 0;
    for (int i = 0; i < n->n_in; i++) in[i] = operand_of(g, from, n->in[i]);
    for (int i = 0; i < n->n_attr; i++) at[n_at++] = n->attrs[i];
    if (more) at[n_at++] = *more;
    val y = graph_op_named(g, "y", n->op, in, n->n_in, at, n_at);
    for (int i = 0; i < n->n_out; i++) {
        char name[24];
        snprintf(name, sizeof name, "out%d", i);
        graph_output(g, name, graph_out(y, i));
    }
    diag d = { 0 };
    /* a default is left out */
    if (!graph_finish(g, &d) && (!more || attr_get(graph_maker(g, y)->attrs, graph_maker(g, y)->n_attr, more->id)))
        return g;
    graph_free(g);
    return NULL;
}

/* n with attribute s: as it is there, or with the first value that makes sense; without it where only the default
 * does. */
static graph *with_attr(const graph *from, const node *n, const attr_spec *s)
{
    static const int64_t tries[] = { 0, 1, 2, 4, -1 };
    if (attr_get(n->attrs, n->n_attr, s->id)) return alone(from, n, NULL);
    const shape *y = &graph_type(from, n->out)->sh;
    for (int skip = 0; s->kind == ATTR_INTS && skip < y->rank; skip++) { /* extents of the result, or its last ones */
        graph *g = alone(from, n, &(attr){ .id = s->id, .kind = s->kind, .n = y->rank - skip, .u.is = y->d + skip });
        if (g) return g;
    }
    for (size_t k = 0; k < COUNT(tries); k++)
        for (int len = 1; len <= 8; len++) {
            const int64_t list[8] = { tries[k], tries[k], tries[k], tries[k], tries[k], tries[k], tries[k], tries[k] };
            attr a = { .id = s->id, .kind = s->kind };
            if (s->kind == ATTR_INTS) a.n = len, a.u.is = list;
            else if (s->kind == ATTR_INT) a.u.i = tries[k];
            else a.u.f = (double)tries[k];
            graph *g = alone(from, n, &a);
            if (g) return g;
        }
    return s->required || s->absent_ok ? NULL : alone(from, n, NULL); /* NULL: not in this form of it */
}

/* ---- its numbers in a weight file ---- */

typedef struct {
    mil_module *m;
    strbuf file;
    struct {
        uint64_t offset, data;
        size_t bytes;
    } rec[32];
    size_t n;
} outside;

static void move_out(outside *o, blob_writer *w, mil_lit **lit)
{
    diag d = { 0 };
    mil_lit *l = *lit;
    size_t bytes = 0;
    uint64_t at;
    if (l->kind != ML_DATA || !dtype_blob_code(l->type->dt) || !l->n) return;
    assert_true(o->n < COUNT(o->rec) && dtype_bytes(l->type->dt, l->n, &bytes));
    assert_ok(blob_add(w, l->type->dt, l->data, bytes, &at, &d), d);
    *lit = mil_lit_blob(o->m, l->type, PATH, at);
    assert_non_null(*lit);
    o->rec[o->n].offset = at, o->rec[o->n++].bytes = bytes;
}

/* The default of attribute s, in the statement that makes the result, where it is not spelled. */
static void add_default(outside *o, const op_info *op, const attr_spec *s, int64_t rank)
{
    mil_op *last = &o->m->func[0].op[o->m->func[0].n_op - 1];
    const char *name = spell_arg_write(op->id, attr_name(s->id));
    for (int i = 0; i < last->n_arg; i++)
        if (!strcmp(last->arg[i].name, name)) return;
    for (int i = 0; i < last->n_attr; i++)
        if (!strcmp(last->attr[i].name, name)) return;
    mil_arg *arg = TAKE(&o->m->mem, mil_arg, (size_t)last->n_arg + 1);
    mil_arg_item *item = TAKE(&o->m->mem, mil_arg_item, 1);
    unsigned char x[4 * MAX_RANK];
    const dtype dt = s->kind == ATTR_FLOAT ? DT_F16 : DT_I32;
    const bool list = s->kind == ATTR_INTS; /* one for each axis */
    for (int64_t i = 0; i < (list ? rank : 1); i++)
        dtype_store(dt, x, i, s->kind == ATTR_FLOAT ? s->def.u.f : (double)(list ? s->def.u.is[0] : s->def.u.i));
    item->lit = mil_lit_data(o->m, mil_type_tensor(o->m, dt, list, &rank, false), x);
    memcpy(arg, last->arg, sizeof *arg * (size_t)last->n_arg);
    arg[last->n_arg] = (mil_arg){ .name = name, .n = 1, .item = item };
    last->arg = arg, last->n_arg++;
}

/* Text that names records where g has numbers, and the file that has them. */
static outside moved_out(const graph *g, const op_info *op, const attr_spec *s)
{
    outside o = { 0 };
    blob_writer w = { 0 };
    blob_file f;
    blob_entry e;
    strbuf text = { 0 };
    diag d = { 0 };
    assert_ok(lower_to_mil(g, &(lower_out){ .inline_all = true, .dialect = DIALECT_IOS16 }, &o.m, NULL, &d), d);
    const node *n = graph_maker(g, g->outputs.at[0].v);
    add_default(&o, op, s, n->n_in ? graph_type(g, n->in[0])->sh.rank : 0);
    for (size_t i = 0; i < o.m->func[0].n_op; i++) {
        mil_op *x = &o.m->func[0].op[i];
        for (int k = 0; k < x->n_attr; k++) move_out(&o, &w, &x->attr[k].lit);
        for (int k = 0; k < x->n_arg; k++)
            if (x->arg[k].item[0].lit) move_out(&o, &w, &x->arg[k].item[0].lit);
    }
    mil_print(o.m, &text);
    mil_free(o.m);
    if (mil_parse(text.at, text.n, 0, &o.m, &d)) fail_msg("%s\n%s", d.msg, text.at);
    if (o.n) assert_ok(blob_finish(&w, &d), d);
    o.file = w.bytes;
    for (size_t i = 0; i < o.n; i++) {
        assert_ok(blob_view(o.file.at, o.file.n, &f, &d), d);
        assert_ok(blob_at(&f, o.rec[i].offset, DT_NONE, o.rec[i].bytes, &e, &d), d);
        o.rec[i].data = e.data;
    }
    sb_free(&text);
    return o;
}

static void outside_free(outside *o)
{
    mil_free(o->m);
    sb_free(&o->file);
}

static an_status whole_file(void *user, const char *path, const unsigned char **at, size_t *n, diag *d)
{
    const strbuf *b = user;
    (void)d;
    assert_string_equal(path, PATH);
    *at = (const unsigned char *)b->at;
    *n = b->n;
    return AN_OK;
}

static program *compile_outside(const outside *o, const codegen_options *how)
{
    program *p = NULL;
    diag d = { 0 };
    lower_weights *files = lower_weights_open(NULL);
    if (o->n) assert_ok(lower_weights_give(files, PATH, o->file.at, o->file.n, &d), d);
    lower_in in = { .weights = files, .need_weights = true };
    if (codegen_mil(o->m, &in, how, &p, &d)) {
        strbuf text = { 0 };
        mil_print(o->m, &text);
        fail_msg("%s\n%s", d.msg, text.at);
    }
    lower_weights_close(files);
    return p;
}

static const const_entry *entry_at(const program *p, uint64_t offset, bool fixed)
{
    for (size_t i = 0; i < p->consts.n; i++)
        for (int k = 0; k < p->consts.at[i].n_src; k++) {
            const const_source *s = &p->consts.at[i].src[k];
            if (s->path && s->offset == offset && (p->consts.at[i].kind == CK_FIXED) == fixed) return &p->consts.at[i];
        }
    return NULL;
}

/* Every record is in the manifest; one that may not change is refused when it does, by loading and by reloading. */
static int check_records(outside *o, const program *p, const char *what)
{
    int fixed = 0;
    image *im = NULL;
    diag d = { 0 };
    weight_source src = { .file = whole_file, .user = &o->file };
    if (image_load(&im, p, &src, NULL, &d)) fail_msg("%s: %s", what, d.msg);
    for (size_t i = 0; i < o->n; i++) {
        if (!entry_at(p, o->rec[i].offset, true)) {
            if (!entry_at(p, o->rec[i].offset, false))
                fail_msg("%s: the manifest has no record at %llu", what, (unsigned long long)o->rec[i].offset);
            continue;
        }
        fixed++;
        char offset[40];
        snprintf(offset, sizeof offset, "byte %llu ", (unsigned long long)o->rec[i].offset);
        o->file.at[o->rec[i].data] ^= 1;
        for (int again = 0; again < 2; again++) {
            image *other = NULL;
            d = (diag){ 0 };
            const an_status st = again ? image_reload(im, &src, &d) : image_load(&other, p, &src, NULL, &d);
            if (st != AN_INPUT || !strstr(d.msg, PATH) || !strstr(d.msg, offset) || !strstr(d.msg, "compile again"))
                fail_msg("%s: changed, and %d: %s", what, st, d.msg);
        }
        o->file.at[o->rec[i].data] ^= 1;
        d = (diag){ 0 };
        assert_ok(image_reload(im, &src, &d), d);
    }
    image_free(im);
    return fixed;
}

/* ---- tests ---- */

static void every_number(void **state)
{
    (void)state;
    graph *all = all_ops();
    numerics m1;
    assert_true(codegen_numerics(chip_find("m1"), &m1));
    bool seen[OP_COUNT][A_COUNT] = { { false } };
    for (size_t i = 1; i < all->nodes.n; i++) {
        const node *n = &all->nodes.at[i];
        const op_info *o = op_get(n->op);
        for (int k = 0; k < o->n_attr; k++) {
            if (!is_number(o->attr[k].kind) || seen[n->op][o->attr[k].id]) continue;
            char what[80];
            snprintf(what, sizeof what, "%s of %s", attr_name(o->attr[k].id), o->mil);
            graph *g = with_attr(all, n, &o->attr[k]);
            if (!g) continue;
            outside out = moved_out(g, o, &o->attr[k]);
            for (int soft = 0; soft < 2; soft++) {
                program *p = compile_outside(&out, &(codegen_options){ .level = 1, .num = soft ? &m1 : NULL });
                if (!check_records(&out, p, what)) fail_msg("%s: nothing of it is fixed", what);
                program_free(p);
            }
            outside_free(&out);
            graph_free(g);
            seen[n->op][o->attr[k].id] = true;
        }
    }
    for (int op = 0; op < OP_COUNT; op++)
        for (int k = 0; k < op_get((op_id)op)->n_attr; k++) {
            const attr_spec *s = &op_get((op_id)op)->attr[k];
            if (is_number(s->kind) && !seen[op][s->id])
                fail_msg("%s of %s was not tried", attr_name(s->id), op_get((op_id)op)->mil);
        }
    graph_free(all);
}

/* A program of two records, w at 64 and alpha behind it, from text around one statement. */
static outside two_records(const char *statement, dtype alpha_type, float alpha)
{
    outside o = { 0 };
    blob_writer w = { 0 };
    diag d = { 0 };
    const float ws[4] = { 1, 2, 3, 4 };
    unsigned char a[8];
    dtype_store(alpha_type, a, 0, (double)alpha);
    size_t bytes;
    assert_true(dtype_bytes(alpha_type, 1, &bytes));
    assert_ok(blob_add(&w, DT_F32, ws, sizeof ws, &o.rec[0].offset, &d), d);
    assert_ok(blob_add(&w, alpha_type, a, bytes, &o.rec[1].offset, &d), d);
    assert_ok(blob_finish(&w, &d), d);
    o.file = w.bytes, o.n = 2;
    assert_int_equal(o.rec[1].offset, 192);
    char text[1000];
    snprintf(text, sizeof text, "program(1.3)\n{\nfunc main<ios18>(tensor<fp16, [4]> x) {\n"
             "tensor<fp32, [4]> w = const()[name = string(\"w\"), val = tensor<fp32, [4]>(BLOBFILE(path = string(\"" PATH "\"), offset = uint64(64)))];\n"
             "fp16 a = const()[name = string(\"a\"), val = fp16(0.5)];\n%s} -> (y);\n}\n", statement);
    if (mil_parse(text, strlen(text), 0, &o.m, &d)) fail_msg("%s\n%s", d.msg, text);
    return o;
}

#define AT_192(type) type "(BLOBFILE(path = string(\"" PATH "\"), offset = uint64(192)))"

/* Weights that stay need no such entries; the listing says what was compiled in, and a number kept in the text is
 * none. */
static void where_they_are(void **state)
{
    (void)state;
    outside o = two_records("tensor<fp16, [4]> l = leaky_relu(alpha = " AT_192("fp16") ", x = x)[name = string(\"l\")];\n"
                            "tensor<fp16, [4]> y = elu(alpha = a, x = l)[name = string(\"y\")];\n", DT_F16, 0.125f);
    for (int final = 0; final < 2; final++) {
        program *p = compile_outside(&o, &(codegen_options){ .level = 1, .final = final });
        strbuf b = { 0 };
        program_print(p, &b);
        assert_int_equal(p->consts.n, !final);
        if (!final) {
            assert_int_equal(p->consts.at[0].kind, CK_FIXED);
            if (!strstr(b.at, "fixed fp16[] at \"" PATH "\" +192, fp16[] at inline +0 = {0.125}")) fail_msg("%s", b.at);
        }
        sb_free(&b);
        program_free(p);
    }
    outside_free(&o);
}

typedef struct {
    const outside *o;
    int out, back;
} lender;

static an_status lend(void *user, const char *path, uint64_t offset, dtype type, uint64_t bytes,
                      const unsigned char **at, diag *d)
{
    lender *l = user;
    (void)path;
    TRY(cgt_record(&l->o->file, offset, type, bytes, at, d));
    l->out++;
    return AN_OK;
}

static void take_back(void *user, const char *path, uint64_t offset)
{
    (void)path, (void)offset;
    ((lender *)user)->back++;
}

/* Records handed out one by one are looked at, and given back. */
static void handed_out(void **state)
{
    (void)state;
    const char *text = "tensor<fp16, [4]> y = leaky_relu(alpha = " AT_192("fp16") ", x = x)[name = string(\"y\")];\n";
    outside was = two_records(text, DT_F16, 0.125f), now = two_records(text, DT_F16, 0.25f);
    program *p = compile_outside(&was, &(codegen_options){ .level = 1 });
    for (int other = 0; other < 2; other++) {
        lender l = { .o = other ? &now : &was };
        weight_source src = { .record = lend, .done = take_back, .user = &l };
        image *im = NULL;
        diag d = { 0 };
        assert_int_equal(image_load(&im, p, &src, NULL, &d), other ? AN_INPUT : AN_OK);
        assert_true(l.out == 1 && l.back == 1);
        image_free(im);
    }
    program_free(p);
    outside_free(&was);
    outside_free(&now);
}

/* An operand is a weight even where it is one number that takes its neighbour's type. */
static void a_number_that_is_a_weight(void **state)
{
    (void)state;
    const char *text = "tensor<fp16, [4]> y = mul(x = x, y = " AT_192("fp32") ")[name = string(\"y\")];\n";
    const uint16_t x[4] = { 0x3c00, 0x3c00, 0x3c00, 0x3c00 };
    outside was = two_records(text, DT_F32, 0.5f), now = two_records(text, DT_F32, 3);
    program *p = compile_outside(&was, &(codegen_options){ .level = 1 });
    image *im = NULL;
    diag d = { 0 };
    uint16_t y[4];
    weight_source src = { .file = whole_file, .user = &was.file };
    assert_ok(image_load(&im, p, &src, NULL, &d), d);
    for (int turn = 0; turn < 2; turn++) {
        assert_ok(image_run(im, (const void *const[]){ x }, (void *const[]){ y }, &d), d);
        assert_int_equal(y[3], f16_from_f64(turn ? 3 : 0.5));
        src.user = &now.file;
        if (!turn) assert_ok(image_reload(im, &src, &d), d);
    }
    image_free(im);
    program_free(p);
    outside_free(&was);
    outside_free(&now);
}

/* Zeros of both signs are two numbers, and what is none is the same as ever. */
static void numbers_nearly_the_same(void **state)
{
    (void)state;
    static const struct {
        float was, now;
        bool same;
    } rows[] = { { 0, 0, true }, { 0, -0.0f, false }, { -0.0f, 0, false }, { 0, NAN, false }, { 0.5f, 0.5f, true } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *text = "tensor<fp16, [4]> y = leaky_relu(alpha = " AT_192("fp16") ", x = x)[name = string(\"y\")];\n";
        outside was = two_records(text, DT_F16, rows[i].was), now = two_records(text, DT_F16, rows[i].now);
        program *p = compile_outside(&was, &(codegen_options){ .level = 1 });
        image *im = NULL;
        diag d = { 0 };
        weight_source src = { .file = whole_file, .user = &now.file };
        const an_status st = image_load(&im, p, &src, NULL, &d);
        if (st != (rows[i].same ? AN_OK : AN_INPUT))
            fail_msg("%g, and now %g: status %d", (double)rows[i].was, (double)rows[i].now, (int)st);
        image_free(im);
        program_free(p);
        outside_free(&was);
        outside_free(&now);
    }
}

/* Records that are cut, or say that they lie elsewhere, or are longer or shorter than the program knows them. */
static void damaged_records(void **state)
{
    (void)state;
    enum { AT = 64, MAGIC = 0, SIZE = 8, DATA = 16 }; /* where the record of w is, and its fields */
    const char *text = "tensor<fp32, [4]> v = cast(dtype = string(\"fp32\"), x = x)[name = string(\"v\")];\ntensor<fp32, [4]> y = add(x = v, y = w)[name = string(\"y\")];\n";
    outside o = two_records(text, DT_F16, 0.125f);
    program *p = compile_outside(&o, &(codegen_options){ .level = 1 });
    const uint64_t n = o.file.n;
    const struct {
        int field;
        uint64_t value;
        uint64_t length; /* of the file */
        const char *says;
    } rows[] = {
        { SIZE, 16, n, NULL },
        { MAGIC, 0xDEADBEEE, n, "no weight record at byte 64" },
        { SIZE, 15, n, "has 15 bytes" }, { SIZE, 17, n, "has 17 bytes" }, { SIZE, 0, n, "has 0 bytes" },
        { DATA, n - 16, n, NULL }, { DATA, n - 15, n, "inside" }, { DATA, n, n, "inside" }, { DATA, n + 1, n, "inside" }, { DATA, UINT64_MAX, n, "inside" }, { DATA, UINT64_MAX - 15, n, "inside" },
        { SIZE, 16, AT + 63, "no weight record" }, { SIZE, 16, AT + 64, "inside" }, { SIZE, 16, AT + 64 + 15, "inside" }, { SIZE, 16, AT + 64 + 16, NULL }, { SIZE, 16, 0, "no weight record" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        strbuf file = { 0 };
        sb_putn(&file, o.file.at, (size_t)n);
        for (int k = 0; k < (rows[i].field == MAGIC ? 4 : 8); k++)
            file.at[AT + rows[i].field + k] = (char)(rows[i].value >> (8 * k));
        file.n = (size_t)rows[i].length;
        image *im = NULL;
        diag d = { 0 };
        weight_source src = { .file = whole_file, .user = &file };
        const an_status st = image_load(&im, p, &src, NULL, &d);
        if (st != (rows[i].says ? AN_INPUT : AN_OK) || (rows[i].says && !strstr(d.msg, rows[i].says)))
            fail_msg("row %zu: status %d, \"%s\"", i, (int)st, d.msg);
        image_free(im);
        sb_free(&file);
    }
    program_free(p);
    outside_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_number),
                                        cmocka_unit_test(where_they_are),
                                        cmocka_unit_test(handed_out),
                                        cmocka_unit_test(a_number_that_is_a_weight),
                                        cmocka_unit_test(numbers_nearly_the_same),
                                        cmocka_unit_test(damaged_records) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
