/* spell.c: the few places where MIL's words are not the op table's, as rows read by both directions. */
#include "lower/lower_int.h"

/* Another name for an op of the table. The last column: this is the name to write. */
static const struct {
    op_id op;
    const char *mil;
    bool write;
} op_names[] = {
    /* write_state itself has no result in MIL; the form with one is the update op, which yields the new content */
    { OP_WRITE_STATE, "coreml_update_state", true },
};

static const struct {
    op_id op;
    const char *word, *mil;
    bool write;
} arg_names[] = {
    { OP_WRITE_STATE, "input", "state", true },
    { OP_WRITE_STATE, "data", "value", true },
    { OP_CROP_RESIZE, "padding_value", "pad_value", true },
    { OP_CROP_RESIZE, "boxes", "roi", false }, /* before ios17 */
    { OP_RESIZE, "mode", "interpolation_mode", true },
};

static const spell_extra extras[] = {
    { OP_REDUCE_ARGMAX, "output_dtype", "int32" },
    { OP_REDUCE_ARGMIN, "output_dtype", "int32" },
    { OP_TOPK, "output_indices_dtype", "int32" },
    { OP_RESIZE, "resized_dims", NULL },                /* the length of shape says the same */
    { OP_UPSAMPLE_BILINEAR, "half_pixel_centers", "" }, /* never harmless: moves the sampling grid */
};

/* Routes that take only fully spelled calls were seen for these; the others are written without their defaults. */
static const op_id spell_out[] = {
    OP_CONV, OP_CONV_TRANSPOSE, OP_NE_CONV, OP_MATMUL, OP_NE_MATMUL, OP_CONCAT, OP_SOFTMAX, OP_GELU,
    OP_AVG_POOL, OP_MAX_POOL, OP_L2_POOL, OP_NE_POOL, OP_PE_POOL, OP_PE_ELEMENTWISE,
    OP_BATCH_NORM, OP_LAYER_NORM, OP_INSTANCE_NORM, OP_L2_NORM,
    OP_REDUCE_SUM, OP_REDUCE_MEAN, OP_REDUCE_MAX, OP_REDUCE_MIN, OP_REDUCE_SUM_SQUARE, OP_REDUCE_L1_NORM, OP_REDUCE_L2_NORM,
    OP_REDUCE_LOG_SUM, OP_REDUCE_LOG_SUM_EXP, OP_REDUCE_ARGMAX, OP_REDUCE_ARGMIN,
    OP_RESAMPLE, OP_AFFINE, OP_RESIZE,
};

bool spell_op_read(const char *mil, op_id *id)
{
    for (size_t i = 0; i < COUNT(op_names); i++)
        if (!strcmp(op_names[i].mil, mil)) return *id = op_names[i].op, true;
    /* input and opaque are rows of the table but not operations of MIL */
    return op_find(mil, strlen(mil), id) && *id != OP_INPUT && *id != OP_OPAQUE;
}

const char *spell_op_write(op_id id)
{
    for (size_t i = 0; i < COUNT(op_names); i++)
        if (op_names[i].op == id && op_names[i].write) return op_names[i].mil;
    return op_get(id)->mil;
}

const char *spell_arg_read(op_id id, const char *mil)
{
    for (size_t i = 0; i < COUNT(arg_names); i++)
        if (arg_names[i].op == id && !strcmp(arg_names[i].mil, mil)) return arg_names[i].word;
    return mil;
}

const char *spell_arg_write(op_id id, const char *word)
{
    for (size_t i = 0; i < COUNT(arg_names); i++)
        if (arg_names[i].op == id && arg_names[i].write && !strcmp(arg_names[i].word, word)) return arg_names[i].mil;
    return word;
}

bool spell_attr_from_type(op_id id, attr_id a) { return a == A_DTYPE && (id == OP_FILL || id == OP_RANDOM_UNIFORM); }

bool spell_always(op_id id)
{
    for (size_t i = 0; i < COUNT(spell_out); i++)
        if (spell_out[i] == id) return true;
    return false;
}

bool spell_constexpr(op_id id)
{
    return id == OP_CX_AFFINE || id == OP_CX_LUT || id == OP_CX_SPARSE || id == OP_CX_BLOCK || id == OP_CX_SPARSE_BLOCK;
}

const spell_extra *spell_extra_find(op_id id, const char *name)
{
    for (size_t i = 0; i < COUNT(extras); i++)
        if (extras[i].op == id && !strcmp(extras[i].name, name)) return &extras[i];
    return NULL;
}
