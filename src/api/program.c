/* program.c: a program from its sources, through the passes, to text. */
#include <stdlib.h>

#include "api/api_int.h"
#include "device/device.h"
#include "engine/engine.h"
#include "lower/lower.h"
#include "model/model.h"
#include "pass/pass.h"

struct an_program {
    graph *g;
    lower_weights *files; /* constants of g look into these */
    blob_writer weights;  /* of the last MIL text; its bytes are empty when it needed none */
    char *weight_path;    /* "@model_path/…"; NULL: the default */
};

static an_status handle_new(an_program **out, an_error *e)
{
    *out = calloc(1, sizeof **out);
    if (*out) return AN_OK;
    diag d = { 0 };
    diag_nomem(&d);
    return api_error(e, &d);
}

void an_program_free(an_program *p)
{
    if (!p) return;
    graph_free(p->g);
    lower_weights_close(p->files);
    sb_free(&p->weights.bytes);
    free(p->weight_path);
    free(p);
}

const char *an_program_name(const an_program *p) { return p->g->title; }
graph *api_graph(an_program *p) { return p->g; }

an_program *api_program(graph *g)
{
    an_program *p = calloc(1, sizeof *p);
    if (p) p->g = g;
    return p;
}

/* Hand over p, or free it and report d. */
static an_status program_done(an_program **out, an_program *p, const diag *d, an_error *e)
{
    if (d->st) an_program_free(p), p = NULL;
    *out = p;
    return d->st ? api_error(e, d) : AN_OK;
}

an_status an_program_from_mil(an_program **out, const char *text, size_t size, const an_read_options *o, an_error *e)
{
    an_program *p;
    *out = NULL;
    TRY(handle_new(&p, e));
    diag d = { 0 };
    mil_module *m = NULL;
    p->files = lower_weights_open(o ? o->model_dir : NULL);
    if (!p->files) diag_nomem(&d);
    else if (!mil_parse(text, size, 0, &m, &d)) {
        lower_in in = { .weights = p->files, .need_weights = o && o->need_weights };
        if (lower_from_mil(m, &in, &p->g, &d)) p->g = NULL;
    }
    mil_free(m);
    return program_done(out, p, &d, e);
}

an_status an_program_from_graph(an_program **out, const char *text, size_t size, an_error *e)
{
    an_program *p;
    *out = NULL;
    TRY(handle_new(&p, e));
    diag d = { 0 };
    if (graph_parse(text, size, &p->g, &d)) p->g = NULL;
    return program_done(out, p, &d, e);
}

static const model_config *preset(const char *name, diag *d)
{
    const model_config *c = model_preset_find(name);
    if (!c) diag_fail(d, AN_USAGE, NOWHERE, "unknown model \"%s\"; anneal kernels lists them", name);
    return c;
}

static an_status from_model(an_program **out, const model_config *c, const model_program *mp, diag *d, an_error *e)
{
    an_program *p;
    TRY(handle_new(&p, e));
    if (!d->st && model_program_build(c, mp, NULL, &p->g, d)) p->g = NULL;
    return program_done(out, p, d, e);
}

an_status an_program_from_kernel(an_program **out, const an_kernel_options *o, an_error *e)
{
    *out = NULL;
    diag d = { 0 };
    const model_config *c = preset(o->model ? o->model : "stories110m", &d);
    model_program mp = { .layer = o->layer, .seq = o->seq };
    if (c && !model_kernel_find(o->kernel, &mp.kind))
        diag_fail(&d, AN_USAGE, NOWHERE, "unknown kernel \"%s\"; anneal kernels lists them", o->kernel);
    return from_model(out, c, &mp, &d, e);
}

size_t an_training_programs(const char *model)
{
    const model_config *c = model_preset_find(model);
    return c ? model_program_list(c, MODEL_SET_TRAIN, NULL, 0) : 0;
}

an_status an_program_from_training(an_program **out, const char *model, size_t k, an_error *e)
{
    *out = NULL;
    diag d = { 0 };
    model_program mp = { 0 };
    const model_config *c = preset(model, &d);
    size_t n = c ? model_program_list(c, MODEL_SET_TRAIN, NULL, 0) : 0;
    model_program *all = c ? calloc(n, sizeof *all) : NULL;
    if (c && !all) diag_nomem(&d);
    else if (c && k >= n)
        diag_fail(&d, AN_INPUT, NOWHERE, "%s has %zu training programs, program %zu was asked for", model, n, k);
    else if (c) {
        model_program_list(c, MODEL_SET_TRAIN, all, n);
        mp = all[k];
    }
    free(all);
    return from_model(out, c, &mp, &d, e);
}

/* ---- passes ---- */

typedef struct {
    const an_pass_options *o;
    bool oom;
} dump_ctx;

static void dump_text(void *user, const char *pass, const graph *g)
{
    dump_ctx *c = user;
    strbuf b = { 0 };
    graph_print(g, &b);
    if (b.oom) c->oom = true;
    else c->o->on_dump(c->o->user, pass, b.at);
    sb_free(&b);
}

static an_status need_pass(const char *name, diag *d)
{
    for (size_t i = 0; i < pass_count(); i++)
        if (!strcmp(pass_name_at(i), name)) return AN_OK;
    return diag_fail(d, AN_USAGE, NOWHERE, "unknown pass \"%s\"; anneal passes lists them", name);
}

static an_status run_only(graph *g, const char *list, const pass_options *po, diag *d)
{
    for (const char *s = list; *s;) {
        size_t n = strcspn(s, ",");
        char name[64];
        if (n >= sizeof name) return diag_fail(d, AN_USAGE, NOWHERE, "pass name of %zu characters", n);
        memcpy(name, s, n);
        name[n] = 0;
        if (n) TRY(need_pass(name, d));
        if (n) TRY(pass_run_one(g, name, po, NULL, NULL, d));
        s += n + (s[n] == ',');
    }
    return AN_OK;
}

an_status an_program_optimize(an_program *p, const an_pass_options *o, an_error *e)
{
    static const an_pass_options none = { 0 };
    if (!o) o = &none;
    diag d = { 0 };
    dump_ctx ctx = { .o = o };
    pass_options po = { .level = 1, .ports = o->ports != 0 };
    if (o->target && !(po.target = chip_find(o->target)))
        diag_fail(&d, AN_USAGE, NOWHERE, "unknown target \"%s\"", o->target);
    if (o->dump_after && o->on_dump) po.dump_after = o->dump_after, po.dump = dump_text, po.user = &ctx;
    if (o->dump_after && strcmp(o->dump_after, "all") && need_pass(o->dump_after, &d)) return api_error(e, &d);
    if (!d.st && o->level >= 0) {
        if (o->only) run_only(p->g, o->only, &po, &d);
        else if (pass_run(p->g, &po, NULL, &d)) { /* d says why */ }
    }
    if (ctx.oom) diag_nomem(&d);
    return d.st ? api_error(e, &d) : AN_OK;
}

/* ---- text ---- */

/* The module that was printed, for mil_free; NULL: d says why, if anything. */
static mil_module *print_mil(an_program *p, mil_dialect dialect, strbuf *b, diag *d)
{
    mil_module *m = NULL;
    sb_free(&p->weights.bytes);
    p->weights = (blob_writer){ 0 };
    lower_out lo = { .dialect = dialect, .weight_path = p->weight_path };
    if (lower_to_mil(p->g, &lo, &m, &p->weights, d)) return NULL;
    if (p->weights.count && blob_finish(&p->weights, d)) { /* d says why */ }
    else mil_print(m, b);
    return m;
}

char *an_program_text(an_program *p, const char *as, an_error *e)
{
    strbuf b = { 0 };
    diag d = { 0 };
    if (!strcmp(as, "graph")) graph_print(p->g, &b);
    else if (!strcmp(as, "dot")) graph_dot(p->g, &b);
    else if (!strcmp(as, "mil")) mil_free(print_mil(p, DIALECT_IOS18, &b, &d));
    else if (!strcmp(as, "mil-ios16")) mil_free(print_mil(p, DIALECT_IOS16, &b, &d));
    else diag_fail(&d, AN_USAGE, NOWHERE, "unknown form \"%s\"; graph, dot, mil and mil-ios16 are known", as);
    if (b.oom) diag_nomem(&d);
    if (!d.st) return api_take(&b);
    sb_free(&b);
    api_error(e, &d);
    return NULL;
}

an_status an_program_weight_file(an_program *p, const char *path, an_error *e)
{
    strbuf b = { 0 };
    diag d = { 0 };
    if (path && !lower_path_inside(path)) {
        diag_fail(&d, AN_INPUT, NOWHERE,
                  "weight file \"%.80s\": a path below the model folder, without climbing out, is wanted", path);
        return api_error(e, &d);
    }
    if (path) sb_printf(&b, "@model_path/%s", path);
    if (b.oom) return sb_free(&b), diag_nomem(&d), api_error(e, &d);
    free(p->weight_path);
    p->weight_path = b.at;
    return AN_OK;
}

int an_program_reads(const an_program *p, const char *file) { return lower_weights_reads(p->files, file); }

const void *an_program_weights(const an_program *p, size_t *size)
{
    *size = p->weights.count ? p->weights.bytes.n : 0;
    return p->weights.count ? p->weights.bytes.at : NULL;
}

/* ---- compiled ---- */

static an_status compile_on(device *dev, const an_program *p, const strbuf *text, strbuf *out, diag *d)
{
    dev_blob blob = { .path = p->weight_path ? p->weight_path : "@model_path/weights/weight.bin",
                      .bytes = p->weights.bytes.at,
                      .n = p->weights.bytes.n };
    dev_source src = { .text = text->at,
                       .n_text = text->n,
                       .file = p->g->title,
                       .weights = { .blob = &blob, .n_blob = p->weights.count ? 1 : 0 } };
    dev_program *made;
    TRY(device_compile(dev, &src, &made, d));
    an_status st = dev_program_bytes(made, out, d);
    dev_program_free(made);
    return st ? st : out->oom ? diag_nomem(d) : AN_OK;
}

static bool same_place(loc a, loc b) { return a.line == b.line && a.col == b.col; }

/* The device judges a text that nobody but us has seen. Where the program's own source has what stands at `at` in
 * it: the statement on that line, or the port at that place; NOWHERE when a pass made it up. */
static loc place_in_source(const mil_module *printed, const strbuf *text, loc at)
{
    mil_module *read;
    diag ignored = { 0 };
    loc found = NOWHERE;
    if (!at.line || mil_parse(text->at, text->n, 0, &read, &ignored)) return NOWHERE;
    const mil_block *there = mil_main(read), *here = mil_main(printed);
    for (size_t i = 0; i < there->n_op; i++)
        if (there->op[i].at.line == at.line) found = here->op[i].at;
    for (int i = 0; i < there->n_in; i++)
        if (same_place(there->in[i].at, at)) found = here->in[i].at;
    for (int i = 0; i < there->n_out; i++)
        if (same_place(there->out[i].at, at)) found = here->out[i].at;
    mil_free(read);
    return found;
}

an_status an_program_compile(an_program *p, const char *engine, void **bytes, size_t *size, an_error *e)
{
    strbuf text = { 0 }, out = { 0 };
    diag d = { 0 };
    device *dev = NULL;
    *bytes = NULL, *size = 0;
    mil_module *printed = print_mil(p, DIALECT_IOS18, &text, &d);
    if (text.oom) diag_nomem(&d);
    if (!d.st && !device_open(&dev, engine, NULL, &d) && compile_on(dev, p, &text, &out, &d))
        d.at = place_in_source(printed, &text, d.at);
    device_close(dev);
    mil_free(printed);
    sb_free(&text);
    if (d.st) return sb_free(&out), api_error(e, &d);
    *bytes = out.at, *size = out.n;
    return AN_OK;
}

int an_program_is(const void *bytes, size_t size) { return program_is(bytes, size); }

char *an_program_engine(const void *bytes, size_t size, an_error *e)
{
    program *p;
    strbuf b = { 0 };
    diag d = { 0 };
    if (program_decode(bytes, size, &p, &d)) return api_error(e, &d), NULL;
    sb_printf(&b, strcmp(p->target, "cpu") ? "soft:%s" : "%s", p->target);
    program_free(p);
    char *name = api_take(&b);
    if (!name) diag_nomem(&d), api_error(e, &d);
    return name;
}

char *an_program_listing(const void *bytes, size_t size, an_error *e)
{
    program *p;
    strbuf b = { 0 };
    diag d = { 0 };
    if (program_decode(bytes, size, &p, &d)) return api_error(e, &d), NULL;
    program_print(p, &b);
    program_free(p);
    if (!b.oom) return api_take(&b);
    sb_free(&b);
    diag_nomem(&d);
    return api_error(e, &d), NULL;
}
