/* pipe_look.c: a pipeline looked at: how large its weights and gradients are, what in them is not finite, and where
 * that began. In: a pipeline between two minibatches, a minibatch.  Out: numbers; nothing of the pipeline moves.
 *
 * Gradients come from the kernels the host drives, since a program that is the whole step shows none: a resident
 * pipeline opens a dynamic one beside itself the first time it is looked at, on the same device, and writes its
 * weights into it. Where the device does not take that one (a vocabulary too wide for one input), it opens another
 * resident one that adds two minibatches up: after the first of them the sums are its gradients. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "train/pipe_host.h"

void pipe_count(pipe_bad *b, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (isfinite(x[i])) continue;
        b->nan += isnan(x[i]) != 0;
        b->pos += isinf(x[i]) && x[i] > 0;
        b->neg += isinf(x[i]) && x[i] < 0;
    }
}

static uint64_t pipe_bad_sum(const pipe_bad *b) { return b->nan + b->pos + b->neg; }

/* ---- weights ---- */

static model_weight_id kind_of(const char *weight)
{
    const char *name = weight[0] == 'l' && weight[1] >= '0' && weight[1] <= '9' ? strchr(weight, '_') + 1 : weight;
    for (int id = 0; id < MW_COUNT; id++) {
        char text[48];
        pipe_weight_name((model_weight_id)id, -1, text, sizeof text);
        if (!strcmp(text, name)) return (model_weight_id)id;
    }
    return MW_COUNT;
}

static an_status look_at_weights(pipeline *p, pipeline *copy_to, pipe_seen *out, diag *d)
{
    double power[MW_COUNT] = { 0 };
    for (int id = 0; id < MW_COUNT; id++) out->weight_norm[id] = NAN;
    for (size_t i = 0; i < pipe_state_count(p); i++) {
        train_state_info s;
        int64_t n;
        pipe_state_at(p, i, &s);
        if (!s.param || strcmp(s.param, s.name)) continue;
        model_weight_id id = kind_of(s.name);
        if (id == MW_COUNT || !shape_elems(&s.type.sh, &n))
            return diag_fail(d, AN_BUG, NOWHERE, "%s is no weight of the model", s.name);
        float *x = malloc((size_t)n * sizeof *x);
        an_status st = x ? pipe_read(p, s.name, DT_F32, x, d) : diag_nomem(d);
        uint64_t before = pipe_bad_sum(&out->weights);
        if (!st) pipe_count(&out->weights, x, n);
        bool bad = pipe_bad_sum(&out->weights) != before;
        for (int64_t k = 0; k < n && !st; k++) power[id] += (double)x[k] * x[k];
        out->weight_norm[id] = sqrt(power[id]);
        if (bad && !out->first[0]) snprintf(out->first, sizeof out->first, "the weight %s", s.name);
        if (!st && copy_to && !bad) st = pipe_write(copy_to, s.name, DT_F32, x, d);
        free(x);
        TRY(st);
    }
    return AN_OK;
}

an_status pipe_weights_finite(pipeline *p, diag *d)
{
    pipe_seen seen = { 0 };
    TRY(look_at_weights(p, NULL, &seen, d));
    if (!pipe_bad_sum(&seen.weights)) return AN_OK;
    return diag_fail(d, AN_MISMATCH, NOWHERE,
                     "%s is not finite, so no update can be: only an earlier checkpoint can be gone on from",
                     seen.first);
}

/* ---- gradients ---- */

static an_status probe_of(pipeline *p, pipeline **out, diag *d)
{
    *out = p;
    if (p->kind != PIPE_RESIDENT) return AN_OK;
    if (!p->probe) {
        pipe_options o = { .pipeline = pipe_name(PIPE_DYNAMIC), .dev = p->o.dev, .pool = p->o.pool, .config = &p->c,
                           .batch = p->B, .seq = p->T, .recompute = true };
        diag why = { 0 };
        an_status st = pipe_open(&p->probe, &o, &why);
        if (st == AN_UNSUPPORTED) {
            o.pipeline = pipe_name(PIPE_RESIDENT), o.recompute = p->o.recompute;
            o.train = (train_options){ .accum = 2, .dynamic_scale = true, .max_skipped = INT_MAX };
            st = pipe_open(&p->probe, &o, &(diag){ 0 });
        }
        if (st) return diag_fail(d, st, why.at, "%s", why.msg);
    }
    *out = p->probe;
    return AN_OK;
}

/* Where looking found nothing that is not finite, the step itself did. A square that is too large is one of the
 * largest gradients, and where every gradient is finite the sum of their squares is not, most of which is the largest
 * one's; what an update would have left is still there on a chip. */
static an_status by_verdict(pipeline *p, pipe_seen *out, diag *d)
{
    int most = 0;
    train_state_info s = { 0 };
    if (out->first[0] || p->kind != PIPE_RESIDENT || p->last == VERDICT_FINE || p->last == VERDICT_NOTHING)
        return AN_OK;
    if (p->last == VERDICT_STATE) TRY(resident_spoilt(p->way, false, &s, d));
    for (int id = 1; id < MW_COUNT; id++)
        if (out->grad_norm[id] > out->grad_norm[most] || isnan(out->grad_norm[most])) most = id;
    char name[48];
    pipe_weight_name((model_weight_id)most, -1, name, sizeof name);
    const bool known = !isnan(out->grad_norm[most]) && !pipe_bad_sum(&out->gradients);
    if (p->last == VERDICT_SQUARE && known)
        snprintf(out->first, sizeof out->first, "the square of the gradient of %s", name);
    else if (p->last == VERDICT_GRADIENT && known)
        snprintf(out->first, sizeof out->first, "the sum of all gradients' squares (most of it of %.40s)", name);
    else if (s.name)
        snprintf(out->first, sizeof out->first, "the %s %s after the update",
                 s.param && !strcmp(s.param, s.name) ? "weight" : "state", s.name);
    else snprintf(out->first, sizeof out->first, "%s", train_verdict_text(p->last));
    return AN_OK;
}

/* The sums behind one minibatch of two. The second, with a rate of 0, ends the group. */
static an_status look_at_sums(pipeline *probe, const int32_t *tokens, double loss_scale, pipe_seen *out, diag *d)
{
    train_report rep, end;
    TRY(resident_at(probe->way, tokens, loss_scale, &rep, d));
    an_status st = AN_OK;
    if (!rep.finite && rep.verdict != VERDICT_NOTHING) {
        train_state_info s = { 0 };
        if (rep.verdict == VERDICT_GRADIENT) st = resident_spoilt(probe->way, true, &s, d);
        if (s.param) snprintf(out->first, sizeof out->first, "the gradient of %s", s.param);
        else snprintf(out->first, sizeof out->first, "%s", train_verdict_text(rep.verdict));
    }
    for (size_t i = 0; i < pipe_state_count(probe) && !out->first[0] && !st; i++) {
        train_state_info s;
        int64_t n;
        pipe_state_at(probe, i, &s);
        size_t dot = s.param ? strlen(s.param) : 0;
        if (!dot || strncmp(s.name, s.param, dot) || strcmp(s.name + dot, ".acc")) continue;
        model_weight_id id = kind_of(s.param);
        if (id == MW_COUNT || !shape_elems(&s.type.sh, &n))
            return diag_fail(d, AN_BUG, NOWHERE, "%s is no weight of the model", s.param);
        float *x = calloc((size_t)n, sizeof *x);
        st = x ? AN_OK : diag_nomem(d);
        /* else it is 0 everywhere, and not taken over */
        if (!st && rep.finite) st = pipe_read(probe, s.name, DT_F32, x, d);
        double power = isnan(out->grad_norm[id]) ? 0 : out->grad_norm[id] * out->grad_norm[id];
        for (int64_t k = 0; k < n && !st; k++) power += (double)x[k] * x[k] / (loss_scale * loss_scale);
        if (!st) pipe_count(&out->gradients, x, n), out->grad_norm[id] = sqrt(power);
        free(x);
    }
    return st ? st : resident_at(probe->way, tokens, loss_scale, &end, d);
}

an_status pipe_inspect(pipeline *p, const int32_t *tokens, double loss_scale, pipe_seen *out, diag *d)
{
    pipeline *probe = NULL;
    diag why = { 0 };
    *out = (pipe_seen){ .loss_scale = loss_scale };
    for (int id = 0; id < MW_COUNT; id++) out->grad_norm[id] = NAN;
    an_status st = probe_of(p, &probe, &why);
    if (st == AN_NOMEM) return diag_nomem(d);
    TRY(look_at_weights(p, !st && probe != p ? probe : NULL, out, d));
    /* weights that are no numbers make gradients that are none: nothing to be learnt from them */
    if (st || pipe_bad_sum(&out->weights)) {
        snprintf(out->unknown, sizeof out->unknown, "%.190s", st ? why.msg : "the weights are not finite");
        return by_verdict(p, out, d);
    }
    if (probe->kind == PIPE_RESIDENT) TRY(look_at_sums(probe, tokens, loss_scale, out, d));
    else TRY(host_look(probe->way, tokens, loss_scale, out, d));
    return by_verdict(p, out, d);
}

/* ---- text ---- */

static void put_bad(strbuf *b, const char *name, const pipe_bad *n)
{
    sb_printf(b, ",\"%s\":{\"nan\":%llu,\"inf\":%llu,\"-inf\":%llu}", name, (unsigned long long)n->nan,
              (unsigned long long)n->pos, (unsigned long long)n->neg);
}

static void put_unknown(strbuf *b, const pipe_seen *s)
{
    if (!s->unknown[0]) return;
    sb_puts(b, ",\"unknown\":");
    sb_json(b, s->unknown, strlen(s->unknown));
}

void pipe_bad_json(strbuf *b, int64_t step, double loss, const pipe_seen *s)
{
    pipe_bad l = { .nan = isnan(loss) != 0, .pos = isinf(loss) && loss > 0, .neg = isinf(loss) && loss < 0 };
    sb_printf(b, "{\"kind\":\"nonfinite\",\"step\":%lld,\"loss_scale\":%.9g,\"first\":", (long long)step,
              s->loss_scale);
    if (s->first[0]) sb_json(b, s->first, strlen(s->first));
    else sb_puts(b, "null");
    put_bad(b, "loss", &l);
    put_bad(b, "activations", &s->activations);
    put_bad(b, "gradients", &s->gradients);
    put_bad(b, "weights", &s->weights);
    put_unknown(b, s);
    sb_putc(b, '}');
}

void pipe_zero_json(strbuf *b, int64_t step, double loss, double loss_scale)
{
    sb_printf(b, "{\"kind\":\"zero\",\"step\":%lld,\"loss\":%.7g,\"loss_scale\":%.9g}", (long long)step, loss,
              loss_scale);
}

static void put_norms(strbuf *b, const char *title, const double *norm)
{
    const char *between = "";
    sb_printf(b, ",\"%s\":{", title);
    for (int id = 0; id < MW_COUNT; id++) {
        char name[48];
        if (isnan(norm[id])) continue;
        pipe_weight_name((model_weight_id)id, -1, name, sizeof name);
        if (isfinite(norm[id])) sb_printf(b, "%s\"%s\":%.7g", between, name, norm[id]);
        else sb_printf(b, "%s\"%s\":null", between, name);
        between = ",";
    }
    sb_putc(b, '}');
}

void pipe_norms_json(strbuf *b, int64_t step, const pipe_seen *s)
{
    sb_printf(b, "{\"kind\":\"statistics\",\"step\":%lld", (long long)step);
    put_norms(b, "weights", s->weight_norm);
    put_norms(b, "gradients", s->grad_norm);
    put_unknown(b, s);
    sb_putc(b, '}');
}
