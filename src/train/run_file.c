/* run_file.c: the checkpoint file of a network's run: the trainer's state, and as notes everything that must be the
 * same for the run to go on bit for bit. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/plain.h"
#include "format/safetensors.h"
#include "train/log.h"
#include "train/run_int.h"

/* SET(id, key, what): a setting; a file in which it differs is of another run. The first decides what the others
 * mean. */
#define SETTINGS(SET)                                                                                                 \
    SET(MODEL, "run.model", "model") SET(ENGINE, "run.engine", "engine") SET(SEED, "run.seed", "seed")                \
    SET(BATCH, "run.batch", "batch") SET(SEQ, "run.seq", "seq") SET(ACCUM, "run.accum", "accum")                      \
    SET(OPTIMIZER, "run.optimizer", "optimizer") SET(DECAY, "run.decay", "decay") SET(CLIP, "run.clip", "clip")       \
    SET(SCALE, "run.loss_scale", "loss scale") SET(LR, "run.lr", "lr") SET(LR_END, "run.lr_end", "lr-end")            \
    SET(SCHEDULE, "run.schedule", "schedule") SET(WARMUP, "run.warmup", "warmup") SET(STEPS, "run.steps", "steps")

enum {
#define SET(id, key, what) NOTE_##id,
    SETTINGS(SET)
#undef SET
    N_SETTINGS,
    NOTE_DATA = N_SETTINGS, /* its name, for messages: it may have moved */
    NOTE_DIGEST,
    NOTE_DONE,
    NOTE_DRAWN,
    NOTE_SMOOTH,
    NOTES
};
static const char *const key_of[NOTES] = {
#define SET(id, key, what) [NOTE_##id] = key,
    SETTINGS(SET)
#undef SET
    [NOTE_DATA] = "run.data", [NOTE_DIGEST] = "run.data_digest", [NOTE_DONE] = "run.done", [NOTE_DRAWN] = "run.drawn", [NOTE_SMOOTH] = "run.smooth",
};
static const char *const what_of[N_SETTINGS] = {
#define SET(id, key, what) [NOTE_##id] = what,
    SETTINGS(SET)
#undef SET
};

typedef struct {
    char text[NOTES][200];
} notes;

/* As short as it can be read back. */
static void put_real(char out[200], double x)
{
    for (int digits = 6; digits <= 17; digits++) {
        plain_printf(out, 200, "%.*g", digits, x);
        if (!(plain_real(out, NULL) != x)) return;
    }
}

static void put_whole(char out[200], int64_t x) { snprintf(out, 200, "%lld", (long long)x); }

static void fill(const run *r, notes *n)
{
    snprintf(n->text[NOTE_MODEL], 200, "%s", r->spec->name);
    snprintf(n->text[NOTE_ENGINE], 200, "%s%s", device_name(r->dev), r->o->device.fast_math ? " in bf16" : "");
    snprintf(n->text[NOTE_SEED], 200, "%llu", (unsigned long long)r->o->seed);
    put_whole(n->text[NOTE_BATCH], r->net.opt.batch);
    put_whole(n->text[NOTE_SEQ], r->data.seq);
    put_whole(n->text[NOTE_ACCUM], r->accum);
    snprintf(n->text[NOTE_OPTIMIZER], 200, "%s", train_optimizer_name(r->t));
    put_real(n->text[NOTE_DECAY], r->decay);
    put_real(n->text[NOTE_CLIP], r->o->clip);
    if (r->loss_scale > 0) put_real(n->text[NOTE_SCALE], r->loss_scale);
    else snprintf(n->text[NOTE_SCALE], 200, "dynamic");
    put_real(n->text[NOTE_LR], r->schedule.lr);
    put_real(n->text[NOTE_LR_END], r->schedule.lr_end);
    snprintf(n->text[NOTE_SCHEDULE], 200, "%s", train_schedule_at((size_t)r->schedule.kind));
    put_whole(n->text[NOTE_WARMUP], r->schedule.warmup);
    put_whole(n->text[NOTE_STEPS], r->schedule.steps);
    snprintf(n->text[NOTE_DATA], 200, "%s", r->data.name);
    snprintf(n->text[NOTE_DIGEST], 200, "%016llx", (unsigned long long)r->data_digest);
    put_whole(n->text[NOTE_DONE], r->done);
    snprintf(n->text[NOTE_DRAWN], 200, "%llu", (unsigned long long)r->batches.drawn);
    put_real(n->text[NOTE_SMOOTH], r->smooth);
}

/* ---- writing ---- */

an_status run_try_save(run *r)
{
    const char *path = r->o->save;
    path_info i;
    file_out o;
    if (!path) return AN_OK;
    if (!*path) return diag_fail(r->d, AN_USAGE, NOWHERE, "the file to save to has no name");
    if (path_look(path, &i) && i.folder)
        return diag_fail(r->d, AN_INPUT, NOWHERE, "%.200s is a folder; a file to save to is wanted", path);
    TRY(file_begin(path, &o, r->d));
    file_abandon(&o);
    return AN_OK;
}

void run_save(run *r)
{
    notes n;
    train_note note[NOTES];
    diag why = { 0 };
    if (!r->o->save || r->saved == r->done) return;
    fill(r, &n);
    for (int i = 0; i < NOTES; i++) note[i] = (train_note){ key_of[i], n.text[i] };
    an_status st = train_save(r->t, r->o->save, note, NOTES, &why);
    r->unsaved = why;
    if (!st) r->saved = r->done;
    else log_say(r->o->warn, r->o->user, "step %lld was not saved: %s; training goes on", (long long)r->done, why.msg);
}

/* ---- reading ---- */

static an_status whole_of(const run *r, const safetensors *f, int note, uint64_t *out)
{
    const char *s = safetensors_meta(f, key_of[note]);
    char *end = NULL;
    errno = 0;
    *out = *s >= '0' && *s <= '9' ? strtoull(s, &end, 10) : 0;
    if (end && !*end && !errno && *out <= INT64_MAX) return AN_OK;
    return diag_fail(r->d, AN_INPUT, NOWHERE, "%.200s: %s is \"%.40s\"; a whole number is wanted", r->o->resume,
                     key_of[note], s);
}

static an_status differs(const run *r, const char *what, const char *file, const char *here)
{
    return diag_fail(r->d, AN_INPUT, NOWHERE, "%.200s: it was trained with \"%s %.80s\"; this run has \"%s %.80s\"",
                     r->o->resume, what, file, what, here);
}

static an_status check_all_there(const run *r, const safetensors *f)
{
    const char *path = r->o->resume, *missing = NULL;
    for (int i = NOTES; i-- > 0;)
        if (!safetensors_meta(f, key_of[i])) missing = key_of[i];
    if (!missing) return AN_OK;
    if (!safetensors_meta(f, key_of[NOTE_MODEL]))
        return diag_fail(r->d, AN_INPUT, NOWHERE, "%.200s: no %s: not a checkpoint of a network", path,
                         key_of[NOTE_MODEL]);
    return diag_fail(
        r->d, AN_INPUT, NOWHERE,
        "%.200s: no %s: an earlier version wrote it, and did not keep what must be the same to go on; train anew", path,
        missing);
}

static an_status check_settings(const run *r, const safetensors *f, const notes *n)
{
    for (int i = 0; i < N_SETTINGS; i++) {
        const char *have = safetensors_meta(f, key_of[i]);
        /* no rate depends on where the end is */
        if (i == NOTE_STEPS && r->schedule.kind == SCHEDULE_CONSTANT) continue;
        if (strcmp(have, n->text[i])) return differs(r, what_of[i], have, n->text[i]);
    }
    const char *sum = safetensors_meta(f, key_of[NOTE_DIGEST]);
    if (!strcmp(sum, n->text[NOTE_DIGEST])) return AN_OK;
    return diag_fail(r->d, AN_INPUT, NOWHERE,
                     "%.150s: it was trained on %.80s with checksum %.16s; this run has %.80s with %s", r->o->resume,
                     safetensors_meta(f, key_of[NOTE_DATA]), sum, n->text[NOTE_DATA], n->text[NOTE_DIGEST]);
}

static an_status check(const run *r, const safetensors *f, uint64_t *done, uint64_t *drawn)
{
    notes n;
    fill(r, &n);
    TRY(check_all_there(r, f));
    const char *model = safetensors_meta(f, key_of[NOTE_MODEL]);
    if (strcmp(model, n.text[NOTE_MODEL])) return differs(r, what_of[NOTE_MODEL], model, n.text[NOTE_MODEL]);
    TRY(whole_of(r, f, NOTE_DONE, done));
    TRY(whole_of(r, f, NOTE_DRAWN, drawn));
    if (*done > (uint64_t)r->schedule.steps)
        return diag_fail(r->d, AN_USAGE, NOWHERE, "%.200s is already at step %llu of %lld", r->o->resume,
                         (unsigned long long)*done, (long long)r->schedule.steps);
    return check_settings(r, f, &n);
}

an_status run_resume(run *r)
{
    safetensors *f;
    uint64_t done = 0, drawn = 0;
    if (!r->o->resume) return AN_OK;
    TRY(safetensors_open(r->o->resume, &f, r->d));
    an_status st = check(r, f, &done, &drawn);
    if (!st) r->smooth = plain_real(safetensors_meta(f, key_of[NOTE_SMOOTH]), NULL);
    safetensors_close(f);
    if (!st) st = train_load(r->t, r->o->resume, NULL, 0, NULL, r->d);
    if (st) return st;
    r->done = (int64_t)done;
    train_batches_seek(&r->batches, drawn);
    return AN_OK;
}
