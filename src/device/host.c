/* host.c: devices that are this machine: MIL text to program to image. soft and cpu differ in arithmetic, rules and
 * limits only. In: text and weights.  Out: an image that queue.c runs.
 *
 *   text ─mil▶ module ─(cache? ▶ program)─ rules of the chip ─lower▶ graph ─codegen▶ program ─▶ image */
#include <stdlib.h>

#include "codegen/codegen.h"
#include "device/device_int.h"

an_status host_open(device *dev, diag *d)
{
    if (dev_fault(dev, "packs") || !(dev->packs = pack_store_new())) return diag_nomem(d);
    if (dev->opt.pool) return dev->pool = dev->opt.pool, AN_OK;
    return dev_fault(dev, "pool") ? diag_nomem(d) : pool_make(&dev->pool, dev->opt.threads, d);
}

void host_close(device *dev)
{
    pack_store_free(dev->packs);
    if (dev->pool != dev->opt.pool) pool_free(dev->pool);
}

/* ---- program to ports ---- */

static an_status take_ports(dev_program *p, diag *d)
{
    const program *g = p->prog;
    for (int side = 0; side < 2; side++) {
        size_t n = side == DEV_INPUT ? g->inputs.n : g->outputs.n;
        const eport *from = side == DEV_INPUT ? g->inputs.at : g->outputs.at;
        dev_port *to = dev_fault(p->dev, "ports") ? NULL : TAKE(&p->mem, dev_port, n);
        if (!to) return diag_nomem(d);
        for (size_t i = 0; i < n; i++) {
            const etensor *t = &g->tensors.at[from[i].tensor];
            to[i] = (dev_port){ .name = from[i].name, .dt = t->dt, .rank = t->rank, .bytes = from[i].bytes };
            memcpy(to[i].dim, t->dim, (size_t)t->rank * sizeof *t->dim);
        }
        p->port[side] = to;
        p->n_port[side] = n;
    }
    return AN_OK;
}

/* ---- cache ---- */

static bool multiplies_bf16(const device *dev) { return !dev->chip && dev->opt.fast_math == FAST_BF16; }

static dev_key source_key(const device *dev, const dev_source *src)
{
    dev_key k = { { PROGRAM_VERSION, 2 /* entries that say what they are of, and whether they are final */ } };
    const char *maker = dev->opt.maker ? dev->opt.maker : codegen_maker;
    k = key_mix(k, AN_VERSION, sizeof AN_VERSION);
    k = key_mix(k, maker, strlen(maker));
    k = key_mix(k, dev->name, strlen(dev->name));
    k = key_mix(k, &dev->num, sizeof dev->num); /* doubles without padding */
    if (src->separate) k = key_mix(k, "separate", 8);
    if (src->final) k = key_mix(k, "final", 5);
    if (multiplies_bf16(dev)) k = key_mix(k, "bf16", 4);
    return key_mix(k, src->text, src->n_text);
}

static const char *target_of(const device *dev) { return dev->chip ? chip_name(dev->chip) : "cpu"; }

static uint64_t mark_of(dev_key key) { return key.word[0] ^ key.word[1]; }

/* A kept program is taken for what the text compiles to when it says so itself, is for this device, and has the
 * text's ports and records. */
static bool is_of(const program *g, const device *dev, dev_key key, const mil_module *m)
{
    double seen, wanted;
    return g->key == mark_of(key) && !strcmp(g->target, target_of(dev)) &&
           !numerics_differ(&g->num, &dev->num, &seen, &wanted) && ports_match(g, m) && weights_named(g, m);
}

static an_status from_cache(dev_program *p, dev_key key, const mil_module *m, diag *d)
{
    device *dev = p->dev;
    strbuf b = { 0 };
    an_status st = AN_OK;
    if (dev_cache_get(dev->opt.cache, key, &b)) {
        diag why = { 0 };
        if (dev_fault(dev, "decode")) st = diag_nomem(d);
        else if (program_decode(b.at, b.n, &p->prog, &why) == AN_NOMEM) st = diag_nomem(d);
        else if (p->prog && is_of(p->prog, dev, key, m)) p->from_cache = true;
        else { /* whole as a file, not as this program: made again below */
            program_free(p->prog);
            p->prog = NULL;
            dev_cache_drop(dev->opt.cache, key);
        }
        pthread_mutex_lock(&dev->mu);
        if (p->from_cache) dev->st.cache_hits++;
        else dev->st.cache_bad++;
        pthread_mutex_unlock(&dev->mu);
    }
    sb_free(&b);
    return st;
}

static void to_cache(dev_program *p, dev_key key)
{
    strbuf b = { 0 };
    diag ignored = { 0 }; /* a program that cannot be kept is still a program */
    if (!program_encode(p->prog, &b, &ignored) && !b.oom) dev_cache_put(p->dev->opt.cache, key, b.at, b.n);
    sb_free(&b);
}

/* ---- compiling ---- */

static dev_error error_of(const diag *why) { return why->st == AN_INPUT ? ERR_BAD_MIL : ERR_COMPILE; }

/* mark: what the program says it was compiled from; 0: its own content */
static an_status compile(dev_program *p, const dev_source *src, const mil_module *m, lower_weights *files,
                         uint64_t mark, diag *d)
{
    device *dev = p->dev;
    if (dev_spoil(dev, "compile")) return dev_refuse(dev, ERR_COMPILE, NOWHERE, d, "a failure that was asked for");
    if (dev->chip) TRY(soft_judge(dev, src, d));
    graph *g = NULL;
    diag why = { 0 };
    bool handed = src->weights.record != NULL;
    lower_in in = { .weights = handed ? NULL : files, .need_weights = !handed };
    codegen_options o = { .num = &dev->num, .target = target_of(dev), .key = mark, .level = 1,
                          .separate = src->separate, .final = src->final, .bf16 = multiplies_bf16(dev) };
    if (dev_fault(dev, "lower") || dev_fault(dev, "codegen")) diag_nomem(&why);
    else if (!lower_from_mil(m, &in, &g, &why) && !graph_fits(g, &why) && !codegen_program(g, &o, &p->prog, &why) &&
             program_fits(p->prog, &why)) {
        program_free(p->prog);
        p->prog = NULL;
    }
    graph_free(g);
    if (!why.st && src->final) {
        p->prog->final = true;
        if (!handed && weights_checksum(p->prog, files, &p->prog->weights, &why)) { /* why says it */ }
    }
    return why.st ? dev_refuse_as(dev, error_of(&why), &why, d) : AN_OK;
}

static void end_compile(dev_program *p, uint64_t t0, bool ok)
{
    dev_compile_end(p, (double)(clock_ns() - t0) / 1e6, ok);
}

static an_status compile_counted(dev_program *p, const dev_source *src, const mil_module *m, lower_weights *files,
                                 uint64_t mark, diag *d)
{
    uint64_t t0 = clock_ns();
    TRY(dev_compile_begin(p, d));
    an_status st = compile(p, src, m, files, mark, d);
    end_compile(p, t0, !st);
    return st;
}

/* Text or weight files that cannot be read are an attempt to compile, too. */
static an_status fail_early(dev_program *p, uint64_t t0, const diag *why, diag *d)
{
    TRY(dev_compile_begin(p, d));
    end_compile(p, t0, false);
    return dev_refuse_as(p->dev, ERR_BAD_MIL, why, d);
}

static an_status build_program(dev_program *p, const dev_source *src, lower_weights *files, diag *d)
{
    device *dev = p->dev;
    mil_module *m = NULL;
    diag why = { 0 };
    uint64_t t0 = clock_ns();
    if (dev_fault(dev, "parse")) return diag_nomem(d);
    if (mil_parse(src->text, src->n_text, 0, &m, &why)) return fail_early(p, t0, &why, d);
    dev_key key = source_key(dev, src);
    bool keep = dev->opt.cache && (src->weights.record || weights_identity(m, files, &key));
    if (src->weights.record) key = key_mix(key, "handed", 6); /* compiled without looking at weights */
    an_status st = keep ? from_cache(p, key, m, d) : AN_OK;
    if (!st && !p->prog) {
        st = compile_counted(p, src, m, files, keep ? mark_of(key) : 0, d);
        if (!st && keep) to_cache(p, key);
    }
    mil_free(m);
    return st;
}

/* ports and weights of p->prog; takes files over */
static an_status finish(dev_program *p, const dev_weights *w, lower_weights *files, diag *d)
{
    diag why = { 0 };
    if (baked_make(p->dev, p->prog, w, files, NULL, &p->weights, &why))
        return dev_refuse_as(p->dev, ERR_BAD_MIL, &why, d);
    weight_source from = baked_source(p->weights);
    if (!w->record && program_makes(p->prog, &from, &why)) return dev_refuse_as(p->dev, ERR_BAD_MIL, &why, d);
    if (!w->record && soft_accepts(p->dev, p->prog, &from, &why)) return dev_refuse_as(p->dev, ERR_COMPILE, &why, d);
    return take_ports(p, d);
}

an_status host_build(dev_program *p, const dev_source *src, diag *d)
{
    lower_weights *files;
    diag why = { 0 };
    uint64_t t0 = clock_ns();
    if (dev_fault(p->dev, "weight files")) return diag_nomem(d);
    if (weights_open(&src->weights, &files, &why)) return fail_early(p, t0, &why, d);
    an_status st = build_program(p, src, files, d);
    if (!st) return finish(p, &src->weights, files, d);
    lower_weights_close(files);
    return st;
}

/* Weights that no program bytes with a checksum of others can be run with. */
static an_status are_its_own(const program *g, const dev_weights *w, lower_weights *files, diag *d)
{
    uint64_t have;
    if (!g->final || !g->weights) return AN_OK;
    if (w->record)
        return diag_fail(
            d, AN_INPUT, NOWHERE,
            "the program was made for the weights of its files, which cannot be handed out record by record: compile it again for others");
    TRY(weights_checksum(g, files, &have, d));
    return have == g->weights
               ? AN_OK
               : diag_fail(d, AN_INPUT, NOWHERE,
                           "the program was made for other weights than these: compile it again for them");
}

an_status host_adopt(dev_program *p, const void *bytes, size_t n, const dev_weights *w, diag *d)
{
    device *dev = p->dev;
    lower_weights *files;
    diag why = { 0 };
    if (dev_fault(dev, "decode")) return diag_nomem(d);
    if (program_decode(bytes, n, &p->prog, &why)) return dev_refuse_as(dev, ERR_IMAGE, &why, d);
    if (strcmp(p->prog->target, target_of(dev)))
        return dev_refuse(dev, ERR_IMAGE, NOWHERE, d, "the program was compiled for %.40s; this device is %s",
                          p->prog->target, target_of(dev));
    double seen, wanted;
    const char *other = numerics_differ(&p->prog->num, &dev->num, &seen, &wanted);
    if (other) {
        diag_fail(&why, AN_INPUT, NOWHERE, "the program has %s %g; the arithmetic of %s has %g", other, seen,
                  target_of(dev), wanted);
        return dev_refuse_as(dev, ERR_IMAGE, &why, d);
    }
    if (weights_open(w, &files, &why)) return dev_refuse_as(dev, ERR_BAD_MIL, &why, d);
    if (are_its_own(p->prog, w, files, &why)) {
        lower_weights_close(files);
        return dev_refuse_as(dev, ERR_IMAGE, &why, d);
    }
    p->final = p->prog->final;
    return finish(p, w, files, d);
}

/* ---- loading and running ---- */

an_status host_load(dev_program *p, diag *d)
{
    device *dev = p->dev;
    weight_source w = baked_source(p->weights);
    image_options o = { .reference = dev->opt.reference, .pool = dev->pool, .fast_math = dev->opt.fast_math,
                        .packs = baked_handed(p->weights) ? dev->packs : NULL, .pack_owner = baked_owner(p->weights) };
    diag why = { 0 };
    if (dev_fault(dev, "image")) diag_nomem(&why);
    else if (baked_handed(p->weights) && soft_accepts(dev, p->prog, &w, &why)) { /* why says it */ }
    else if (!image_load(&p->im, p->prog, &w, &o, &why)) p->image_bytes = image_bytes(p->im);
    return why.st ? dev_refuse_as(dev, ERR_IMAGE, &why, d) : AN_OK;
}

static void drop_spare(dev_program *p)
{
    baked_free(p->spare);
    p->spare = NULL;
}

void host_unload(dev_program *p)
{
    drop_spare(p);
    image_free(p->im);
    p->im = NULL;
    p->image_bytes = 0;
}

/* The loaded image with other weights; when that fails, with those it had. */
static an_status replace(dev_program *p, const weight_source *from, diag *d)
{
    if (dev_fault(p->dev, "reload")) return diag_nomem(d);
    if (dev_spoil(p->dev, "reload")) return AN_OK;
    if (!image_reload(p->im, from, d)) {
        if (dev_spoil(p->dev, "panel")) spoil_panels(p);
        return AN_OK;
    }
    weight_source back = baked_source(p->weights);
    diag again = { 0 };
    if (image_reload(p->im, &back, &again)) { /* neither old nor new: better none */
        dev_lost(p);
        host_unload(p);
    }
    return d->st;
}

an_status host_reload(dev_program *p, const dev_weights *w, bool *changed, diag *d)
{
    device *dev = p->dev;
    lower_weights *files;
    baked *fresh;
    diag why = { 0 };
    if (dev_fault(dev, "weight files")) return diag_nomem(d);
    if (baked_handed(p->weights) || w->record)
        return dev_refuse(dev, ERR_BAD_ARG, NOWHERE, d,
                          "the program's weights are handed out record by record; load it again instead");
    if (weights_open(w, &files, &why) || baked_make(dev, p->prog, w, files, p->spare, &fresh, &why))
        return dev_refuse_as(dev, ERR_BAD_ARG, &why, d);
    if (changed) *changed = !baked_same(p->weights, fresh);
    weight_source from = baked_source(fresh);
    /* a program that is not loaded now could not be loaded later */
    an_status st = program_accepts(p->prog, &from, &why);
    if (!st && !p->im) st = program_makes(p->prog, &from, &why);
    if (!st) st = soft_accepts(dev, p->prog, &from, &why);
    if (!st && p->im) st = replace(p, &from, &why);
    /* a record that lies otherwise than the one before may take memory of its own */
    if (p->im) dev_count_image(p, image_bytes(p->im));
    if (st) {
        baked_free(fresh);
        return dev_refuse_as(dev, ERR_IMAGE, &why, d);
    }
    baked_free(p->spare);
    p->spare = p->weights;
    p->weights = fresh;
    if (w->stable) drop_spare(p); /* the next ones will hardly be copied */
    return AN_OK;
}

an_status host_run(dev_program *p, const void *const *in, void *const *out, diag *d)
{
    const uint64_t more = image_grows(p->im, in, out);
    if (more) TRY(dev_grow(p, more, d));
    an_status st = image_run(p->im, in, out, d);
    if (more) dev_count_image(p, image_bytes(p->im)); /* a failure may have taken less */
    return st;
}

uint64_t host_digest(const dev_program *p) { return p->im ? image_digest(p->im) : 0; }

an_status host_holds(dev_program *p, bool *holds, diag *d)
{
    weight_source w = baked_source(p->weights);
    return dev_fault(p->dev, "proof") ? diag_nomem(d) : image_holds(p->im, &w, holds, d);
}

void host_drop(dev_program *p)
{
    host_unload(p);
    baked_free(p->weights);
    program_free(p->prog);
    p->weights = NULL;
    p->prog = NULL;
}
