/* op: the table is well formed, and attributes read with their defaults. */
#include "t.h"
#include "op/op.h"

static void every_row_is_well_formed(void **state)
{
    (void)state;
    for (int i = 0; i < OP_COUNT; i++) {
        const op_info *o = op_get((op_id)i);
        op_id back;
        assert_true(op_find(o->mil, strlen(o->mil), &back));
        assert_int_equal(back, i); /* spellings are unique */
        for (int k = 0; k < o->n_in; k++) {
            assert_true(o->in[k].name[0] != 0);
            assert_true(!o->in[k].list || k == o->n_in - 1); /* a list comes last */
            assert_true(k == 0 || !o->in[k - 1].optional || o->in[k].optional); /* what may be left out comes last */
            for (int j = 0; j < k; j++) assert_string_not_equal(o->in[j].name, o->in[k].name);
        }
        for (int k = 0; k < o->n_attr; k++) {
            assert_int_equal(attr_find(attr_name(o->attr[k].id), strlen(attr_name(o->attr[k].id))), o->attr[k].id);
            for (int j = 0; j < k; j++) assert_int_not_equal(o->attr[j].id, o->attr[k].id);
            for (int j = 0; j < o->n_in; j++) assert_string_not_equal(o->in[j].name, attr_name(o->attr[k].id));
        }
    }
}

static void defaults_come_from_the_table(void **state)
{
    (void)state;
    int64_t list[3];
    assert_true(attr_list(OP_CONV, NULL, 0, A_STRIDES, 2, list) && list[0] == 1 && list[1] == 1);
    assert_true(attr_list(OP_CONV, NULL, 0, A_PAD, 3, list) && list[2] == 0);
    assert_int_equal(attr_int(OP_CONV, NULL, 0, A_GROUPS), 1);
    assert_string_equal(attr_str(OP_CONV, NULL, 0, A_PAD_TYPE), "valid");
    assert_true(attr_float(OP_LAYER_NORM, NULL, 0, A_EPSILON) == 1e-5);
    assert_true(attr_bool(OP_UPSAMPLE_BILINEAR, NULL, 0, A_ALIGN_CORNERS));
    attr given = AT_IS(STRIDES, 2, 3);
    assert_true(attr_list(OP_CONV, &given, 1, A_STRIDES, 2, list) && list[0] == 2 && list[1] == 3);
    assert_false(attr_list(OP_CONV, &given, 1, A_STRIDES, 3, list)); /* a given list must have the right length */
    assert_null(op_attr_spec(OP_ADD, A_AXIS));
}

static void shapes_broadcast_and_overflow_safely(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        shape a, b, want;
        bool ok;
    } rows[] = {
        { "row", { 4, { 1, 8, 1, 4 } }, { 4, { 1, 1, 1, 4 } }, { 4, { 1, 8, 1, 4 } }, true },
        { "scalar", { 0, { 0 } }, { 2, { 3, 4 } }, { 2, { 3, 4 } }, true },
        { "ranks", { 3, { 5, 1, 2 } }, { 2, { 7, 1 } }, { 3, { 5, 7, 2 } }, true },
        { "mismatch", { 2, { 8, 4 } }, { 2, { 7, 4 } }, { 0, { 0 } }, false },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        shape got = { 0 };
        assert_int_equal(shape_broadcast(&rows[i].a, &rows[i].b, &got), rows[i].ok);
        if (rows[i].ok) assert_true(shape_eq(&got, &rows[i].want));
    }
    int64_t n;
    shape big = SHAPE(INT64_MAX / 2, 4), zero = SHAPE(INT64_MAX / 2, 4, 0), unknown = SHAPE(2, -1);
    assert_false(shape_elems(&big, &n));
    assert_true(shape_elems(&zero, &n) && n == 0);
    assert_false(shape_elems(&unknown, &n));
    int axis;
    assert_true(axis_norm(-1, 4, &axis) && axis == 3);
    assert_false(axis_norm(4, 4, &axis));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_well_formed),
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(shapes_broadcast_and_overflow_safely),
    };
    return cmocka_run_group_tests_name("op", tests, NULL, NULL);
}
