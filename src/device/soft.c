/* soft.c: soft:<chip>, the software engine with a chip's arithmetic, rules and limits. */
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
    if (!dev->chip) return diag_fail(d, AN_USAGE, NOWHERE, "unknown chip \"%.40s\" in soft:%.40s; anneal targets lists them", arg, arg);
    if (!codegen_numerics(dev->chip, &dev->num))
        return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "soft:%s: nothing is known about the arithmetic of this chip", chip_name(dev->chip));
    snprintf(dev->name, sizeof dev->name, "soft:%s", chip_name(dev->chip));
    chip_limits(dev->chip, &dev->lim);
    return host_open(dev, d);
}

/* The rules that anneal check applies, as the compiler of that chip would: the first error is the answer. */
an_status soft_judge(device *dev, const dev_source *src, diag *d)
{
    const dev_weights *w = &src->weights;
    check_options o = { .file = src->file, .model_dir = w->n_blob ? NULL : w->model_dir, .target = &dev->chip, .n_target = 1, .errors_only = true };
    check_report *r;
    diag why = { 0 };
    if (dev_fault(dev, "rules")) return diag_nomem(d);
    if (check_text(src->text, src->n_text, &o, &r, &why)) return dev_refuse_as(dev, ERR_COMPILE, &why, d);
    if (r->status) {
        /* of several, one that says what this chip refuses; text that is wrong for every chip has only the others */
        const finding *f = NULL;
        for (size_t i = 0; i < r->found.n; i++)
            if (r->found.at[i].sev == SEV_ERROR && (!f || (!f->target && r->found.at[i].target && r->status == AN_UNSUPPORTED))) f = &r->found.at[i];
        diag said = { 0 };
        diag_fail(&said, r->status, f ? f->at : NOWHERE, "%s%s%s (%s)", f && *f->op ? f->op : "", f && *f->op ? ": " : "", f ? f->message : "refused",
                  f ? f->rule : "");
        dev_refuse_as(dev, r->status == AN_INPUT ? ERR_BAD_MIL : ERR_COMPILE, &said, d);
    }
    an_status st = r->status ? d->st : AN_OK;
    check_free(r);
    return st;
}

const device_class device_soft = {
    .name = "soft",
    .what = "the software engine with the arithmetic, rules and limits of a chip",
    .arg = "chip",
    .computes = true,
    .open = soft_open,
    .close = host_close,
    .build = host_build,
    .adopt = host_adopt,
    .load = host_load,
    .unload = host_unload,
    .reload = host_reload,
    .run = host_run,
    .digest = host_digest,
    .holds = host_holds,
    .drop = host_drop,
};
