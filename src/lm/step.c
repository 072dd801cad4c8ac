/* step.c: the programs of a session: graph, text, compiled, loaded, bound.
 * In: how many tokens a run has.  Out: a program whose requests can be run.
 *
 * Weights go by reference: the text names a record for each tensor, and the device asks for its bytes when it loads
 * the program. They are converted then, packed by the device, and let go. So the compiled text does not depend on
 * them, and a cached program serves the next start.
 *
 * A chip that refuses the whole model gets halves of it, and halves of those, down to single layers. */
#include <stdlib.h>

#include "lm/lm_int.h"
#include "lm/session_int.h"
#include "lower/lower.h"
#include "pass/pass.h"

/* ---- weights ---- */

static bool add_record(lm_session *s, const char *path, weight_record r)
{
    uint32_t k;
    if (str_map_get(&s->records, path, strlen(path), &k)) return true; /* another program asked before */
    char *key = arena_str(&s->mem, path);
    if (!key || !VEC_PUSH(&s->mem, &s->record, r) ||
        !str_map_put(&s->mem, &s->records, key, strlen(key), (uint32_t)s->record.n - 1)) {
        diag_nomem(&s->weight_err);
        return false;
    }
    return true;
}

/* A constant of a graph: a reference, in the form the model was opened with. */
static bool get_weight(void *user, const model_weight *w, model_blob *b)
{
    lm_session *s = user;
    const int64_t *dim = w->type.sh.d;
    lm_tensor info;
    if (!lm_tensor_info(s->m, w->id, w->layer, &info)) {
        diag_fail(&s->weight_err, AN_INPUT, NOWHERE, "%s has no tensor %s", lm_path(s->m), w->name);
        return false;
    }
    weight_record r = { .id = w->id, .layer = w->layer, .row0 = w->row0,
                        .rows = weight_is_matrix(w->id) ? dim[0] : dim[1], .cols = info.cols, .kind = RECORD_DENSE };
    r.form = lm_form_of(s->m, w->id, w->layer);
    if (r.form == LM_DENSE) return add_record(s, b->path, r);
    lm_quantized q;
    if (lm_quantize(s->m, w->id, w->layer, r.form, s->c.dt, &q, &s->weight_err)) return false;
    b->q = q.q_dt, b->scale_cols = q.scale_cols, b->palette = q.table != NULL;
    weight_record aux = r;
    r.kind = RECORD_Q, aux.kind = RECORD_AUX;
    return add_record(s, b->path, r) && add_record(s, b->aux_path, aux);
}

static const weight_record *find_record(const lm_session *s, const char *path)
{
    uint32_t k;
    return str_map_get(&s->records, path, strlen(path), &k) ? &s->record.at[k] : NULL;
}

static an_status hand_out(void *user, const char *path, uint64_t offset, dtype dt, uint64_t bytes, const void **at,
                          diag *d)
{
    lm_session *s = user;
    const weight_record *r = find_record(s, path);
    (void)offset;
    if (!r) return diag_fail(d, AN_BUG, NOWHERE, "the program asks for a weight %.120s that no graph named", path);
    const unsigned char *p = NULL;
    size_t skip = 0, want = 0;
    if (r->kind == RECORD_DENSE) {
        const void *dense;
        TRY(lm_dense(s->m, r->id, r->layer, dt, &dense, d));
        p = dense;
        if (!dtype_bytes(dt, r->row0 * r->cols, &skip) || !dtype_bytes(dt, r->rows * r->cols, &want)) want = 0;
    } else {
        lm_quantized q;
        TRY(lm_quantize(s->m, r->id, r->layer, r->form, s->c.dt, &q, d));
        int64_t wide = r->kind == RECORD_Q ? r->cols : q.table ? 0 : q.scale_cols;
        p = r->kind == RECORD_Q ? q.q : q.table ? q.table : q.scale;
        dtype have = r->kind == RECORD_Q ? q.q_dt : q.scale_dt;
        if (have != dt)
            return diag_fail(d, AN_BUG, NOWHERE, "the program wants %s of %.120s, which is %s", dtype_name(dt), path,
                             dtype_name(have));
        if (!dtype_bytes(dt, r->row0 * wide, &skip) || !dtype_bytes(dt, wide ? r->rows * wide : 16, &want)) want = 0;
        if (r->row0 * wide * dtype_bits(dt) % 8)
            return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "rows of %.120s do not start at whole bytes", path);
    }
    if (want != bytes)
        return diag_fail(d, AN_BUG, NOWHERE, "the program wants %llu bytes of %.120s, there are %zu",
                         (unsigned long long)bytes, path, want);
    *at = p + skip;
    return AN_OK;
}

/* A tensor whose records are all packed is let go; what the files hold stays in the files. */
static void take_back(void *user, const char *path, uint64_t offset)
{
    lm_session *s = user;
    const weight_record *r = find_record(s, path);
    (void)offset;
    if (r) lm_release(s->m, r->id, r->layer);
}

/* ---- one device program ---- */

static an_status to_text(lm_session *s, graph *g, mil_module **m, strbuf *text, diag *d)
{
    pass_options po = { .level = 1 };
    if (s->chip) {
        po.target = chip_find(device_name(s->dev) + strlen("soft:"));
        TRY(pass_run(g, &po, NULL, d));
    }
    lower_out lo = { .inline_all = true };
    TRY(lower_to_mil(g, &lo, m, NULL, d));
    mil_print(*m, text);
    return text->oom ? diag_nomem(d) : AN_OK;
}

static an_status compile(lm_session *s, const decoder_options *o, dev_program **out, diag *d)
{
    model_source src = { .get = get_weight, .user = s };
    decoder dec;
    mil_module *m = NULL;
    strbuf text = { 0 };
    if (decoder_build(&s->c, o, &src, &dec, d)) {
        if (s->weight_err.st) *d = s->weight_err;
        return d->st;
    }
    an_status st = to_text(s, dec.g, &m, &text, d);
    if (!st) {
        dev_source from = { .text = text.at,
                            .n_text = text.n,
                            .file = dec.g->title,
                            .weights = { .record = hand_out, .done = take_back, .user = s } };
        st = device_compile(s->dev, &from, out, d);
    }
    mil_free(m);
    sb_free(&text);
    graph_free(dec.g);
    if (!st) st = dev_program_load(*out, d);
    lm_settle(s->m);
    if (st) {
        dev_program_free(*out);
        *out = NULL;
    }
    return st;
}

/* Layers layer0 .. layer1 - 1, in as few programs as the device forces. */
static an_status compile_layers(lm_session *s, step_program *p, int layer0, int layer1, diag *d)
{
    decoder_options o = { .use = DECODER_STEP, .chip = s->chip, .seq = p->T, .cache = s->C, .last_only = !p->each,
                          .layer0 = layer0, .layer1 = layer1 };
    dev_program *made = NULL;
    diag why = { 0 };
    an_status st = compile(s, &o, &made, &why);
    if (!st) {
        p->part[p->n_parts++] = (step_part){ .p = made, .layer0 = layer0, .layer1 = layer1 };
        return AN_OK;
    }
    if (st != AN_UNSUPPORTED || layer1 - layer0 == 1) return diag_fail(d, st, why.at, "%s", why.msg);
    int middle = (layer0 + layer1) / 2;
    TRY(compile_layers(s, p, layer0, middle, d));
    return compile_layers(s, p, middle, layer1, d);
}

/* ---- binding ---- */

static an_status new_surface(lm_session *s, const dev_port *q, dev_surface **out, diag *d)
{
    if (*out) return AN_OK;
    return dev_surface_new(
        s->dev, s->uniform ? s->uniform : MAX(q->bytes, (uint64_t)MAX(device_get_limits(s->dev)->surface_min, 1)), out,
        d);
}

/* The place a port's surface is kept: by its name. */
static dev_surface **place_of(lm_session *s, step_program *p, int part, dev_side side, const char *name)
{
    if (!strcmp(name, "x")) return part ? &p->hidden[part - 1] : &p->x;
    if (!strcmp(name, "y")) return &p->hidden[part];
    if (!strcmp(name, "rope_cos")) return &p->rope_cos;
    if (!strcmp(name, "rope_sin")) return &p->rope_sin;
    if (!strcmp(name, "pos")) return &p->pos;
    if (!strcmp(name, "mask")) return &p->mask;
    if (!strcmp(name, "place")) return &p->place;
    if (!strcmp(name, "pick")) return &p->pick;
    if (!strncmp(name, "logits", 6)) {
        int k = name[6] ? atoi(name + 6) : 0;
        if (side != DEV_OUTPUT || k < 0 || k >= NN_MAX_PARTS) return NULL;
        p->n_logits = MAX(p->n_logits, k + 1);
        return &p->logits[k];
    }
    int layer = (name[0] == 'k' || name[0] == 'v') && name[1] >= '0' && name[1] <= '9' ? atoi(name + 1) : -1;
    return layer >= 0 && layer < s->c.n_layers ? &s->kv[2 * layer + (name[0] == 'v')] : NULL;
}

static an_status bind_part(lm_session *s, step_program *p, int i, diag *d)
{
    step_part *part = &p->part[i];
    TRY(dev_request_new(part->p, &part->r, d));
    for (int side = 0; side < 2; side++) {
        const dev_port *ports;
        size_t n = dev_program_ports(part->p, (dev_side)side, &ports);
        for (size_t k = 0; k < n; k++) {
            dev_surface **at = place_of(s, p, i, (dev_side)side, ports[k].name);
            if (!at)
                return diag_fail(d, AN_BUG, NOWHERE, "the program has a port %.60s that nothing is bound to",
                                 ports[k].name);
            TRY(new_surface(s, &ports[k], at, d));
            TRY(dev_request_bind_at(part->r, (dev_side)side, k, *at, d));
            if (!strncmp(ports[k].name, "logits", 6)) p->logits_dt = ports[k].dt;
        }
    }
    return AN_OK;
}

/* ---- programs ---- */

static void step_free(step_program *p)
{
    for (int i = 0; i < p->n_parts; i++) {
        dev_request_free(p->part[i].r);
        dev_program_free(p->part[i].p);
        if (p->hidden) dev_surface_free(p->hidden[i]);
    }
    dev_surface *const own[] = { p->x, p->rope_cos, p->rope_sin, p->pos, p->mask, p->place, p->pick };
    for (size_t i = 0; i < COUNT(own); i++) dev_surface_free(own[i]);
    for (int i = 0; i < NN_MAX_PARTS; i++) dev_surface_free(p->logits[i]);
    free(p->part);
    free(p->hidden);
    free(p);
}

void step_free_all(lm_session *s)
{
    for (step_program *p = s->programs, *next; p; p = next) {
        next = p->next;
        step_free(p);
    }
    s->programs = NULL;
}

an_status step_get(lm_session *s, int64_t T, bool each, step_program **out, diag *d)
{
    for (step_program *p = s->programs; p; p = p->next)
        if (p->T == T && p->each == each) return *out = p, AN_OK;
    uint64_t t0 = clock_ns();
    step_program *p = calloc(1, sizeof *p);
    if (!p) return diag_nomem(d);
    p->T = T, p->each = each;
    p->part = calloc((size_t)s->c.n_layers, sizeof *p->part);
    p->hidden = calloc((size_t)s->c.n_layers, sizeof *p->hidden);
    an_status st = p->part && p->hidden ? compile_layers(s, p, 0, (int)s->c.n_layers, d) : diag_nomem(d);
    for (int i = 0; i < p->n_parts && !st; i++) st = bind_part(s, p, i, d);
    if (st) {
        step_free(p);
        return st;
    }
    p->next = s->programs;
    s->programs = p;
    s->st.programs++, s->st.parts += (uint64_t)p->n_parts;
    s->st.build_ms += (double)(clock_ns() - t0) / 1e6;
    *out = p;
    return AN_OK;
}
