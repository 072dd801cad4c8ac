/* soft.c: soft:<chip>, the software engine with a chip's arithmetic, rules and limits. */
#include <math.h>

#include "check/check.h"
#include "codegen/codegen.h"
#include "device/device_int.h"

static void chip_limits(const chip *c, device_limits *out)
{
#define COLUMN(name) chip_limit(c, #name)
    *out = (device_limits){
#define DEV_LIMIT(field, soft, plain, what, evidence) .field = (int64_t)(soft),
#include "device/limits.def"
#undef DEV_LIMIT
    };
#undef COLUMN
}

static an_status soft_open(device *dev, const char *arg, diag *d)
{
    dev->chip = chip_find(arg);
    if (!dev->chip)
        return diag_fail(d, AN_USAGE, NOWHERE, "unknown chip \"%.40s\" in soft:%.40s; anneal targets lists them", arg,
                         arg);
    if (!codegen_numerics(dev->chip, &dev->num))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "soft:%s: nothing is known about the arithmetic of this chip",
                         chip_name(dev->chip));
    snprintf(dev->name, sizeof dev->name, "soft:%s", chip_name(dev->chip));
    chip_limits(dev->chip, &dev->lim);
    return host_open(dev, d);
}

/* The rules that anneal check applies, as the compiler of that chip would: the first error is the answer. */
an_status soft_judge(device *dev, const dev_source *src, diag *d)
{
    const dev_weights *w = &src->weights;
    check_options o = { .file = src->file,
                        .model_dir = w->n_blob ? NULL : w->model_dir,
                        .target = &dev->chip,
                        .n_target = 1,
                        .errors_only = true };
    check_report *r;
    diag why = { 0 };
    if (dev_fault(dev, "rules")) return diag_nomem(d);
    if (check_text(src->text, src->n_text, &o, &r, &why)) return dev_refuse_as(dev, ERR_COMPILE, &why, d);
    if (r->status) {
        /* of several, one that says what this chip refuses; text that is wrong for every chip has only the others */
        const finding *f = NULL;
        for (size_t i = 0; i < r->found.n; i++)
            if (r->found.at[i].sev == SEV_ERROR &&
                (!f || (!f->target && r->found.at[i].target && r->status == AN_UNSUPPORTED)))
                f = &r->found.at[i];
        diag said = { 0 };
        char what[120] = "";
        if (f && *f->op) snprintf(what, sizeof what, "%s%s%.80s: ", f->op, *f->name ? " " : "", f->name);
        diag_fail(&said, r->status, f ? f->at : NOWHERE, "%s%s (%s)", what, f ? f->message : "refused",
                  f ? f->rule : "");
        dev_refuse_as(dev, r->status == AN_INPUT ? ERR_BAD_MIL : ERR_COMPILE, &said, d);
    }
    an_status st = r->status ? d->st : AN_OK;
    check_free(r);
    return st;
}

/* ---- rules about what weights hold ---- */

static operand seen_as(const const_source *s, const void *data)
{
    operand x = { .type = { .dt = s->dt, .sh.rank = s->rank }, .present = true, .is_const = true, .data = data,
                  .range = { -INFINITY, INFINITY }, .from = OP_CONST, .n_uses = 1 };
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) n *= x.type.sh.d[i] = s->dim[i];
    for (int64_t i = 0; data && i < n; i++) {
        const double v = dtype_load(s->dt, data, i);
        x.range.lo = i ? fmin(x.range.lo, v) : v, x.range.hi = i ? fmax(x.range.hi, v) : v;
    }
    return x;
}

static an_status judge_affine(const device *dev, const const_entry *c, const void *zero, diag *d)
{
    /* of the rows that refuse the only one that looks at numbers in a weight file */
    static const char row[] = "zero-point";
    const operand in[] = { seen_as(&c->src[0], NULL), seen_as(&c->src[1], NULL), seen_as(&c->src[2], zero) };
    const op_inst op = { .op = OP_CX_AFFINE, .n_in = 3, .in = in, .n_out = 1, .out = &in[0].type };
    arena mem = { 0 };
    findings found = { 0 };
    an_status st = rule_fires(row, dev->chip, &op) ? rules_check_op(dev->chip, &op, &mem, &found, d) : AN_OK;
    for (size_t i = 0; i < found.n && !st; i++)
        if (!strcmp(found.at[i].rule, row))
            st = diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%.120s, record at byte %llu: %s: %s (%s)", c->src[2].path,
                           (unsigned long long)c->src[2].offset, found.at[i].op, found.at[i].message, row);
    arena_free(&mem);
    return st;
}

an_status soft_accepts(const device *dev, const program *g, const weight_source *w, diag *d)
{
    for (size_t k = 0; dev->chip && k < g->consts.n; k++) {
        const const_entry *c = &g->consts.at[k];
        const unsigned char *zero;
        if (c->kind != CK_AFFINE || c->n_src < 3 || !c->src[2].path) continue;
        TRY(w->record(w->user, c->src[2].path, c->src[2].offset, c->src[2].dt, c->src[2].bytes, &zero, d));
        an_status st = judge_affine(dev, c, zero, d);
        if (w->done) w->done(w->user, c->src[2].path, c->src[2].offset);
        TRY(st);
    }
    return AN_OK;
}

const device_class device_soft = {
    .name = "soft",
    .what = "the software engine with the arithmetic, rules and limits of a chip",
    .arg = "chip",
    .computes = true,
    .open = soft_open,
    HOST_ENTRIES,
};
