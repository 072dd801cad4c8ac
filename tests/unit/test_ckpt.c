/* test_ckpt: checkpoints that were damaged, left half written, or could not be written at all. */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lm_run_t.h"
#include "train/ckpt.h"

static void run_to(small_run *r, int64_t steps, int stop, bool resume, lm_run_result *q)
{
    diag d = { 0 };
    lm_run_options o = small_options(r, "cpu");
    o.steps = steps, o.save_every = 2, o.resume = resume;
    r->n = 0, r->stop_at = stop;
    assert_ok(lm_run(&o, q, &d), d);
}

static bool there(const small_run *r, const char *tail)
{
    char path[200];
    path_info i;
    small_path(r, tail, path, sizeof path);
    return path_look(path, &i);
}

static bool has_step(const small_run *r, int64_t step)
{
    char name[40];
    snprintf(name, sizeof name, "step-%08lld", (long long)step);
    return there(r, name);
}

/* 0: a byte, 1: cut, 2: gone, 3: emptied, 4: another place in the data, 5: a pipe, 6: no end of zeros */
static void spoil(const small_run *r, const char *tail, int how)
{
    char path[200];
    file_bytes f;
    diag d = { 0 };
    small_path(r, tail, path, sizeof path);
    if (how == 2 || how >= 5) {
        assert_int_equal(unlink(path), 0);
        if (how == 5) assert_int_equal(mkfifo(path, 0600), 0);
        if (how == 6) assert_int_equal(symlink("/dev/zero", path), 0);
        return;
    }
    assert_ok(file_read(path, (size_t)1 << 30, &f, &d), d);
    if (how == 0) f.at[f.n / 2] ^= 1;
    if (how == 4) {
        char *digit = strstr((char *)f.at, "\"sample\": ");
        assert_non_null(digit);
        digit += strlen("\"sample\": ");
        *digit = *digit == '3' ? '2' : '3';
    }
    assert_ok(file_write(path, f.at, how == 1 ? f.n - 9 : how == 3 ? 0 : f.n, &d), d);
    file_drop(&f);
}

static void rotation(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    char path[200];
    file_bytes f;
    small_begin(&r);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 8, o.save_every = 2, o.data = NULL; /* the stories: with a vocabulary of their own */
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(there(&r, "step-00000008") && there(&r, "step-00000006") && !there(&r, "step-00000004"));
    small_path(&r, "latest", path, sizeof path);
    assert_ok(file_read(path, 100, &f, &d), d);
    assert_string_equal((char *)f.at, "step-00000008\n");
    file_drop(&f);
    assert_true(there(&r, "step-00000008/config.json") && there(&r, "step-00000008/model.safetensors") &&
                there(&r, "step-00000008/tokenizer.json"));
    small_end(&r);
}

/* Whatever happened to the newest, the run goes on from the one before, says so, and ends with the same bits. */
static void falls_back(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int how;
    } rows[] = { { "state.safetensors", 0 }, { "state.safetensors", 1 }, { "state.safetensors", 2 }, { "train.json", 2 },   { "train.json", 1 }, { "train.json", 4 },
                 { "train.json", 3 },        { "model.safetensors", 0 }, { "config.json", 2 },       { "train.json", 5 },   { "train.json", 6 }, { "state.safetensors", 5 } };
    small_run whole;
    lm_run_result want;
    small_begin(&whole);
    run_to(&whole, 8, 0, false, &want);
    for (size_t i = 0; i < COUNT(rows); i++) {
        small_run r;
        lm_run_result q;
        char tail[100], path[200];
        diag d = { 0 };
        small_begin(&r);
        run_to(&r, 8, 6, false, &q);
        snprintf(tail, sizeof tail, "step-00000006/%s", rows[i].file);
        spoil(&r, tail, rows[i].how);
        small_path(&r, ".tmp-1", path, sizeof path); /* and a process died while it saved */
        assert_ok(dir_make(path, &d), d);
        small_path(&r, ".tmp-1/state.safetensors", path, sizeof path);
        assert_ok(file_write(path, "x", 1, &d), d);
        if (rows[i].how == 5) spoil(&r, "latest", 5);
        alarm(rows[i].how == 5 ? 120 : 0); /* who waits for the pipe ends here */
        run_to(&r, 8, 0, true, &q);
        alarm(0);
        if (!strstr(r.warned, rows[i].file)) fail_msg("%s: not named in \"%s\"", rows[i].file, r.warned);
        assert_non_null(strstr(r.warned, "the checkpoint before it"));
        assert_true(r.n == 4 && q.digest == want.digest && !there(&r, ".tmp-1"));
        small_end(&r);
    }
    small_end(&whole);
}

/* A checkpoint that was given the name of a later step is not that one: it is not gone on from, and the one of that
 * step takes its place. */
static void another_steps_name(void **state)
{
    (void)state;
    small_run whole, r;
    lm_run_result want, q;
    char from[200], to[200];
    small_begin(&whole);
    run_to(&whole, 8, 0, false, &want);
    small_begin(&r);
    run_to(&r, 8, 6, false, &q);
    small_path(&r, "step-00000004", from, sizeof from), small_path(&r, "step-00000008", to, sizeof to);
    assert_int_equal(rename(from, to), 0);
    run_to(&r, 8, 0, true, &q);
    assert_true(r.n == 2 && q.digest == want.digest);
    assert_non_null(strstr(r.warned, "step-00000008/train.json: it is of step 4"));
    r.warned[0] = 0, r.n = 0;
    run_to(&r, 8, 0, true, &q);
    assert_true(r.n == 0 && q.done == 8 && q.digest == want.digest && !r.warned[0]);
    small_end(&r);
    small_end(&whole);
}

static void none_intact(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    run_to(&r, 8, 4, false, &q);
    spoil(&r, "step-00000002/state.safetensors", 0);
    spoil(&r, "step-00000004/state.safetensors", 0);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 8, o.resume = true;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "none of its checkpoints is intact"));
    int warned = 0; /* once of each */
    for (const char *line = r.warned; (line = strstr(line, "the checkpoint before it\n")); line++) warned++;
    assert_int_equal(warned, 2);
    small_end(&r);
}

/* A folder that cannot be is found out before the first update; so is a name that was to be gone on from. */
static void nowhere_to_save(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 4, o.save_every = 2, o.resume = o.must_resume = true;
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(r.n == 0 && strstr(d.msg, "there is no checkpoint in it"));
    assert_ok(file_write(r.save, "a file", 6, &d), d);
    o.resume = o.must_resume = false, d = (diag){ 0 };
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(r.n == 0 && strstr(d.msg, r.save) && strstr(d.msg, "Not a directory"));
    small_end(&r);
}

/* A run that cannot begin leaves nothing that was not there, and what was there as it was. */
static void refused(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    path_info i;
    char deep[120], up[100], file[120];
    small_begin(&r);
    snprintf(up, sizeof up, "%s/a", r.dir), snprintf(deep, sizeof deep, "%s/a/b/", r.dir);
    for (int k = 0; k < 4; k++) {
        lm_run_options o = small_options(&r, k == 0 ? "soft:m99" : "cpu");
        o.save = deep, o.steps = 2;
        if (k == 1) o.data = "/nowhere.u16";
        if (k == 2) o.model = "/nowhere";
        if (k == 3) o.schedule = "slow";
        d = (diag){ 0 };
        assert_int_not_equal(lm_run(&o, &q, &d), AN_OK);
        if (path_look(up, &i)) fail_msg("%s is there after: %s", up, d.msg);
    }
    d = (diag){ 0 };
    assert_ok(dir_make(r.save, &d), d);
    small_path(&r, "mine", file, sizeof file);
    assert_ok(file_write(file, "x", 1, &d), d);
    lm_run_options o = small_options(&r, "cpu");
    o.data = "/nowhere.u16";
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(there(&r, "mine") && !there(&r, ".lock"));
    run_to(&r, 2, 0, false, &q);
    assert_true(there(&r, ".lock") && there(&r, "latest"));
    o.resume = true, d = (diag){ 0 };
    assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
    assert_true(there(&r, ".lock") && there(&r, "latest") && there(&r, "step-00000002"));
    small_end(&r);
}

/* A process that trains into a folder has it to itself while it lives, and no longer. */
static void one_at_a_time(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    char by[40], c;
    int up[2], down[2], status;
    ckpt_hold hold;
    small_begin(&r);
    assert_int_equal(pipe(up) | pipe(down), 0);
    pid_t child = fork();
    if (!child) {
        /* and dies with the lock */
        const bool ok = !ckpt_enter(r.save, &hold, &d) && write(up[1], "x", 1) == 1 && read(down[0], &c, 1) == 1;
        _exit(!ok);
    }
    assert_int_equal(read(up[0], &c, 1), 1);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 2;
    assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
    snprintf(by, sizeof by, "process %ld is training", (long)child);
    assert_true(r.n == 0 && strstr(d.msg, r.save) && strstr(d.msg, by));
    assert_int_equal(write(down[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    d = (diag){ 0 };
    assert_ok(lm_run(&o, &q, &d), d);
    for (int i = 0; i < 2; i++) close(up[i]), close(down[i]);
    small_end(&r);
}

/* A process that dies between its last save and the end of the rotation leaves one too many: the one that goes on
 * removes it, whether or not it saves. */
static void one_too_many(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    char path[200], cmd[600];
    diag d = { 0 };
    small_begin(&r);
    run_to(&r, 8, 0, false, &q);
    /* as it was before they went */
    snprintf(cmd, sizeof cmd, "cd %s && cp -r step-00000006 step-00000004 && cp -r step-00000006 .tmp-old-00000002",
             r.save);
    assert_int_equal(system(cmd), 0);
    small_path(&r, "latest", path, sizeof path);
    assert_ok(file_write(path, "step-00000006\n", 14, &d), d);
    run_to(&r, 8, 0, true, &q);
    assert_int_equal(r.n, 0);
    assert_true(there(&r, "step-00000008") && there(&r, "step-00000006") && !there(&r, "step-00000004") &&
                !there(&r, ".tmp-old-00000002"));
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 8, o.save_every = 2, o.resume = true, o.keep = 1;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(there(&r, "step-00000008") && !there(&r, "step-00000006"));
    small_end(&r);
}

/* A checkpoint may have been moved elsewhere and left a link: it is read through it, and when its turn comes the link
 * goes alone. So do links among what dead processes left. */
static void kept_elsewhere(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    char cmd[600];
    small_begin(&r);
    run_to(&r, 8, 4, false, &q); /* 2 and 4 are there */
    snprintf(cmd, sizeof cmd,
             "cd %s && mkdir far far/mine && echo x >far/mine/x && mv %s/step-0000000[24] far && cp -r far was && "
             "ln -s $PWD/far/step-00000002 $PWD/far/step-00000004 %s && ln -s $PWD/far/mine %s/.tmp-old-00000001",
             r.dir, r.save, r.save, r.save);
    assert_int_equal(system(cmd), 0);
    run_to(&r, 8, 0, true, &q);
    assert_int_equal(r.n, 4); /* it went on from 4 */
    snprintf(cmd, sizeof cmd, "cd %s && diff -r far was && test -z \"$(find %s -type l)\"", r.dir, r.save);
    assert_int_equal(system(cmd), 0);
    assert_true(has_step(&r, 8) && has_step(&r, 6));
    small_end(&r);
}

/* Damaged ones of later steps do not push out the one that was just written, however few stay. */
static void damaged_ones_do_not_count(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    char path[200];
    file_bytes f;
    diag d = { 0 };
    small_begin(&r);
    run_to(&r, 8, 6, false, &q); /* 4 and 6 are there */
    spoil(&r, "step-00000006/state.safetensors", 0);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 8, o.save_every = 1, o.keep = 1, o.resume = true, r.n = 0, r.stop_at = 1;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_int_equal(q.done, 5);
    small_path(&r, "latest", path, sizeof path);
    assert_ok(file_read(path, 100, &f, &d), d);
    assert_string_equal((char *)f.at, "step-00000005\n");
    file_drop(&f);
    assert_true(there(&r, "step-00000005") && there(&r, "step-00000006") && !there(&r, "step-00000004"));
    r.n = r.stop_at = 0;
    assert_ok(lm_run(&o, &q, &d), d); /* the damaged one is written anew on the way */
    assert_true(r.n == 3 && q.done == 8 && there(&r, "step-00000008") && !there(&r, "step-00000006"));
    small_end(&r);
}

/* ---- devices that give up ---- */

typedef struct {
    const char *what;
    int after; /* that many go well */
} trouble;

static bool give_up(void *user, const char *what)
{
    trouble *t = user;
    return t->what && !strcmp(t->what, what) && t->after-- <= 0;
}

/* An engine that is gone in the middle: the run ends with its words, and the updates before are saved although none
 * was due. */
static void engine_gone(void **state)
{
    (void)state;
    static const char *const ways[] = { "resident", "dynamic" };
    for (size_t i = 0; i < COUNT(ways); i++) {
        small_run whole, r;
        lm_run_result want, q;
        diag d = { 0 };
        small_begin(&whole);
        lm_run_options o = small_options(&whole, "soft:m4");
        o.pipeline = ways[i], o.steps = 8, o.save_every = 100, o.validation = -1;
        assert_ok(lm_run(&o, &want, &d), d);
        trouble t = { "dispatch", i ? 200 : 5 };
        small_begin(&r);
        o = small_options(&r, "soft:m4");
        o.pipeline = ways[i], o.steps = 8, o.save_every = 100, o.validation = -1, o.device.spoil = give_up,
        o.device.spoiler = &t;
        assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
        assert_non_null(strstr(d.msg, "a failure that was asked for"));
        assert_true(r.n >= 2 && r.n < 8 && q.done == r.n);
        int before = r.n;
        t.what = NULL, o.resume = o.must_resume = true, d = (diag){ 0 };
        assert_ok(lm_run(&o, &q, &d), d);
        assert_true(r.n == 8 && before < 8 && q.digest == want.digest);
        small_end(&r);
        small_end(&whole);
    }
}

/* A small run on an engine whose results go bad when `bad` says so. */
static lm_run_options sick_options(small_run *r, int64_t steps, int64_t save_every, int keep,
                                   bool (*bad)(void *user, const char *what), void *user)
{
    lm_run_options o = small_options(r, "soft:m4");
    o.pipeline = "dynamic", o.steps = steps, o.save_every = save_every, o.keep = keep, o.validation = -1,
    o.device.spoil = bad, o.device.spoiler = user;
    return o;
}

static void latest_is(const small_run *r, int64_t step)
{
    char path[200], want[40];
    file_bytes f;
    diag d = { 0 };
    small_path(r, "latest", path, sizeof path);
    assert_ok(file_read(path, 100, &f, &d), d);
    snprintf(want, sizeof want, "step-%08lld\n", (long long)step);
    assert_string_equal((char *)f.at, want);
    file_drop(&f);
}

/* What diverged is not saved: it could push out what did not. With one kept and a save due after every update, the
 * last one that counted is there at the end, and a device that is well again goes on from it. */
static void diverged(void **state)
{
    (void)state;
    static const int64_t every[] = { 100, 1 };
    for (size_t i = 0; i < COUNT(every); i++) {
        small_run r;
        lm_run_result q;
        diag d = { 0 };
        small_begin(&r);
        trouble t = { "output", 200 };
        lm_run_options o = sick_options(&r, 60, every[i], 1, give_up, &t);
        assert_int_equal(lm_run(&o, &q, &d), AN_MISMATCH);
        assert_non_null(strstr(d.msg, "the first tensor that went bad is"));
        assert_true(q.done > 2 && q.done < 60 && there(&r, "latest") == (i == 1) && q.digest == 0);
        if (i == 1) {
            int64_t good = q.done - 31; /* the 32nd in a row ended it, and is not counted */
            latest_is(&r, good);
            t.what = NULL, r.n = 0, o.resume = o.must_resume = true, d = (diag){ 0 };
            assert_ok(lm_run(&o, &q, &d), d);
            assert_true(r.n == 60 - good && isfinite(q.loss) && q.stats.train.skipped == 0);
        }
        small_end(&r);
    }
}

static bool spoil_the_second(void *user, const char *what)
{
    return ((small_run *)user)->n == 1 && !strcmp(what, "output");
}

/* A save that was due behind a skipped update comes with the next one that counts. */
static void due_while_skipping(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    lm_run_options o = sick_options(&r, 5, 2, 9, spoil_the_second, &r);
    assert_ok(lm_run(&o, &q, &d), d);
    assert_int_equal(q.stats.train.skipped, 1);
    for (int s = 1; s <= 5; s++)
        if (has_step(&r, s) != (s > 2)) fail_msg("step %d", s);
    small_end(&r);
}

/* Asked to stop in a row of skipped updates: what a process did is not lost, nor is the checkpoint from before the
 * row. */
static void stopped_while_skipping(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    trouble t = { "output", 200 };
    lm_run_options o = sick_options(&r, 60, 1, 1, give_up, &t);
    assert_int_equal(lm_run(&o, &q, &d), AN_MISMATCH);
    int64_t good = q.done - 31;
    for (int k = 1; k <= 3; k++) { /* one update in each process */
        t.after = 0, r.n = 0, r.stop_at = 1, o.resume = true, d = (diag){ 0 };
        assert_ok(lm_run(&o, &q, &d), d);
        assert_int_equal(q.done, good + k);
        latest_is(&r, good + k);
        for (int64_t s = good; s <= good + k; s++) assert_true(has_step(&r, s) == (s == good || s == good + k));
    }
    t.what = NULL, r.stop_at = 0, d = (diag){ 0 };
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(q.done == 60 && isfinite(q.loss) && q.stats.train.skipped == 3);
    assert_false(has_step(&r, good));
    small_end(&r);
}

/* A rate that would make weights infinite in one update: none is taken, and the run ends by name. */
static void not_finite(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    small_begin(&r);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 40, o.save_every = 1, o.lr = 1e39, o.warmup = -1;
    assert_int_equal(lm_run(&o, &q, &d), AN_MISMATCH);
    assert_non_null(strstr(d.msg, "the first tensor that went bad is a weight or moment after the update"));
    assert_non_null(strstr(r.warned, "a weight or moment after the update is not finite"));
    assert_false(there(&r, "latest"));
    /* on a chip what the update would have left is there to be looked at */
    o.engine = "soft:m4", o.lr = 1e30, d = (diag){ 0 }, r.warned[0] = 0;
    assert_int_equal(lm_run(&o, &q, &d), AN_MISMATCH);
    assert_non_null(strstr(d.msg, "the first tensor that went bad is the weight embed after the update"));
    assert_non_null(strstr(r.warned, "the weight embed after the update is not finite"));
    small_end(&r);
}

/* A line of train.json about a file, with the checksum that versions up to 4 have. */
static void put_old_sum(strbuf *b, const char *folder, const char *line)
{
    char name[100], path[300];
    file_bytes f;
    diag d = { 0 };
    assert_int_equal(sscanf(line, " \"%99[^\"]\"", name), 1);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(file_read(path, 1 << 24, &f, &d), d);
    sb_printf(b, "    \"%s\": { \"bytes\": %zu, \"hash\": \"%016llx\" }%s\n", name, f.n,
              (unsigned long long)hash_bytes(f.at, f.n, 0), strstr(line, "},\n") == strchr(line, '}') ? "," : "");
    file_drop(&f);
}

/* Of the rows of the start that a checkpoint's run left alone, as version 4 has it. */
static uint64_t old_rest(const char *start, const char *folder)
{
    diag d = { 0 };
    lm_model *m, *c;
    uint64_t h = 0;
    float x[16];
    assert_ok(lm_open(start, &(lm_options){ .dt = DT_F32, .seed = 3 }, &m, &d), d);
    assert_ok(lm_open(folder, &(lm_options){ .dt = DT_F32 }, &c, &d), d);
    for (int64_t i = 0; lm_active(c) && i < lm_config(m)->vocab; i++) {
        assert_ok(lm_rows(m, MW_EMBED, -1, i, 1, DT_F32, x, &d), d);
        if (!lm_active(c)[i]) h = hash_bytes(x, sizeof x, h);
    }
    lm_close(m), lm_close(c);
    return h;
}

/* train.json as an earlier version wrote it: 1 without a checksum of its own and with a digest of a few ids that is
 * not looked at, 2 without exact settings, 3 with another digest of the data, 4 with one of files and not of ids,
 * and with other checksums. */
static void as_version(const small_run *r, const char *step, int version)
{
    char folder[200], path[220];
    small_path(r, step, folder, sizeof folder);
    snprintf(path, sizeof path, "%s/train.json", folder);
    static const char rest[] = ", rows not trained ";
    char *old;
    static const struct {
        const char *key;
        int since;
    } gone[] = { { "\"applied\"", 2 }, { "\"validation\"", 2 }, { "\"exact\"", 3 } };
    file_bytes f;
    diag d = { 0 };
    strbuf b = { 0 };
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    for (char *line = (char *)f.at, *end; (end = strchr(line, '\n')); line = end + 1) {
        bool drop = false;
        for (size_t i = 0; i < COUNT(gone); i++)
            drop |= version < gone[i].since && strstr(line, gone[i].key) == line + 2;
        if (drop) continue;
        if (!strncmp(line, "    \"", 5)) put_old_sum(&b, folder, line);
        else if (strstr(line, "\"exact\"") == line + 2 && (old = strstr(line, rest)) && old < end)
            sb_putn(&b, line, (size_t)(old - line)),
                sb_printf(&b, "%s%016llx\",\n", rest, (unsigned long long)old_rest(r->model, folder));
        else if (strstr(line, "\"version\"") == line + 2) sb_printf(&b, "  \"version\": %d,\n", version);
        else if (version < 5 && strstr(line, "\"data\"") == line + 2)
            sb_puts(&b, "  \"data\": \"0123456789abcdef\",\n");
        else if (strstr(line, "\"checksum\"") == line + 2) {
            b.n -= 2; /* the comma before it */
            if (version > 1)
                sb_printf(&b, ",\n  \"checksum\": \"%016llx\"\n", (unsigned long long)hash_bytes(b.at, b.n, 0));
            else sb_puts(&b, "\n");
        } else sb_putn(&b, line, (size_t)(end + 1 - line));
    }
    assert_false(b.oom);
    assert_ok(file_write(path, b.at, b.n, &d), d);
    sb_free(&b);
    file_drop(&f);
}

/* The text behind `after`, less its first `drop` bytes, begins with `more`, and the checksum is right again. */
static void edit(const char *path, const char *after, size_t drop, const char *more)
{
    file_bytes f;
    diag d = { 0 };
    strbuf b = { 0 };
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    char *text = (char *)f.at, *at = strstr(text, after), *seal = strstr(text, ",\n  \"checksum\"");
    assert_true(at && seal && at < seal);
    at += strlen(after);
    sb_putn(&b, text, (size_t)(at - text));
    sb_puts(&b, more);
    at += drop;
    sb_putn(&b, at, (size_t)(seal - at));
    const bool old = strstr(text, "\"version\": 4,") != NULL;
    sb_printf(&b, ",\n  \"checksum\": \"%016llx\"\n}\n",
              (unsigned long long)(old ? hash_bytes : hash_many)(b.at, b.n, 0));
    assert_ok(file_write(path, b.at, b.n, &d), d);
    sb_free(&b);
    file_drop(&f);
}

static void write_into(const char *path, const char *after, const char *more) { edit(path, after, 0, more); }

/* Other instruction sets sum in other orders: who goes on with them is told, once. */
static void other_sums(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    char path[200];
    small_begin(&r);
    run_to(&r, 8, 2, false, &q);
    run_to(&r, 8, 1, true, &q);
    assert_null(strstr(r.warned, "instruction sets"));
    small_path(&r, "step-00000003/train.json", path, sizeof path);
    write_into(path, "\"sums\": \"", "older ");
    run_to(&r, 8, 1, true, &q);
    assert_non_null(strstr(r.warned, "was trained with the instruction sets older "));
    assert_true(q.done == 4);
    r.warned[0] = 0;
    run_to(&r, 8, 1, true, &q);
    assert_null(strstr(r.warned, "instruction sets"));
    small_end(&r);
}

static void earlier_versions(void **state)
{
    (void)state;
    small_run whole, r;
    lm_run_result want, q;
    char path[200];
    small_begin(&whole);
    run_to(&whole, 8, 0, false, &want);
    for (int version = 1; version < 5; version++) {
        small_begin(&r);
        run_to(&r, 8, 6, false, &q);
        as_version(&r, "step-00000006", version);
        run_to(&r, 8, 1, true, &q);
        assert_non_null(strstr(r.warned, "of an earlier version"));
        run_to(&r, 8, 0, true, &q); /* what it saved is of this version */
        assert_true(r.n == 1 && q.digest == want.digest);
        small_end(&r);
    }
    for (int other = 0; other < 2; other++) { /* rows that are not trained have a checksum of their own */
        small_begin(&r);
        lm_run_options o = small_options(&r, "cpu");
        diag d = { 0 };
        o.steps = 4, o.save_every = 2, o.compact_vocab = true, r.stop_at = 2;
        assert_ok(lm_run(&o, &q, &d), d);
        as_version(&r, "step-00000002", 4);
        if (other) { /* what stands there is not what this version would say */
            small_path(&r, "step-00000002/train.json", path, sizeof path);
            edit(path, ", rows not trained ", 1, "g");
        }
        o.resume = true, r.stop_at = 0, r.n = 0, r.warned[0] = 0;
        an_status st = lm_run(&o, &q, &d);
        if (other) assert_true(st == AN_INPUT && strstr(d.msg, "\"rows not trained g"));
        else assert_true(!st && r.n == 2 && strstr(r.warned, "whether the data are as they were"));
        small_end(&r);
    }
    small_begin(&r); /* where nothing was asked for, version 3 once said 0 for the scale of cpu */
    run_to(&r, 8, 6, false, &q);
    small_path(&r, "step-00000006/train.json", path, sizeof path);
    edit(path, ", loss scale ", 1, "0");
    run_to(&r, 8, 0, true, &q);
    assert_true(q.digest == want.digest);
    small_end(&r);
    small_end(&whole);
}

/* Three signs of neighbours, which versions up to 4 took for those before: the checkpoint before it is gone on from. */
static void signs_in_files(void **state)
{
    (void)state;
    static const char *const files[] = { "state.safetensors", "model.safetensors" };
    for (size_t i = 0; i < COUNT(files); i++) {
        small_run r;
        lm_run_result q;
        char path[200];
        file_bytes f;
        diag d = { 0 };
        small_begin(&r);
        run_to(&r, 8, 4, false, &q);
        snprintf(path, sizeof path, "%s/step-00000004/%s", r.save, files[i]);
        assert_ok(file_read(path, 1 << 24, &f, &d), d);
        const uint64_t before = hash_bytes(f.at, f.n, 0);
        unsigned char *at = (unsigned char *)f.at + f.n / 2 / 8 * 8;
        at[7] ^= 128, at[8 + 3] ^= 128, at[8 + 7] ^= 128;
        assert_true(hash_bytes(f.at, f.n, 0) == before);
        assert_ok(file_write(path, f.at, f.n, &d), d);
        file_drop(&f);
        run_to(&r, 8, 1, true, &q);
        assert_true(strstr(r.warned, files[i]) && strstr(r.warned, "checksum") && q.done == 3);
        small_end(&r);
    }
}

#define HUNDRED "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
#define LONG HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED HUNDRED

/* Whole by its checksum, and yet none that a run wrote: the one before it is taken. */
static void no_such_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *after, *more, *says;
    } rows[] = {
        { "\"step\": ", "-", "step, epoch and sample must be whole numbers" },
        { "\"sample\": ", "-", "step, epoch and sample must be whole numbers" },
        { "\"applied\": ", "-", "applied or validation is not a number" },
        { "\"seed\": \"", "-", "data or seed is not a number" },
        { "\"seed\": \"", "123456789012345678901", "data or seed is not a number" },
        { "\"data\": \"", "x", "data or seed is not a number" },
        { "\"seed\": \"", " -", "data or seed is not a number" },
        { "\"seed\": \"", "+", "data or seed is not a number" },
        { "\"version\": ", "9", "version is none of 1 to 5" },
        { "\"version\": ", "-", "version is none of 1 to 5" },
        { "\"version\": ", "-429496729", "version is none of 1 to 5" }, /* 2 in the lower half */
        { "\"setting\": \"", LONG, "there is no setting" },
        { "\"exact\": \"", LONG, "there are no exact settings" },
        { "\"state.safetensors\": { \"bytes\": ", "1", "state.safetensors: " },
        { "\"files\": {", "\n    \"../latest\": { \"bytes\": 14, \"hash\": \"0\" },", "a file's size or hash is missing" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        small_run r;
        lm_run_result q;
        char path[200];
        small_begin(&r);
        run_to(&r, 8, 4, false, &q);
        small_path(&r, "step-00000004/train.json", path, sizeof path);
        write_into(path, rows[i].after, rows[i].more);
        run_to(&r, 8, 0, true, &q);
        if (!strstr(r.warned, rows[i].says) || !strstr(r.warned, "the checkpoint before it") || r.n != 6)
            fail_msg("row %zu: %d updates, \"%s\"", i, r.n, r.warned);
        small_end(&r);
    }
}

/* One checkpoint is no folder of them: a run that saved into it would begin there again and again. */
static void one_of_them(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    path_info i;
    char one[200], inside[260];
    small_begin(&r);
    run_to(&r, 8, 4, false, &q);
    small_path(&r, "step-00000004", one, sizeof one);
    lm_run_options o = small_options(&r, "cpu");
    o.steps = 8, o.save = one, r.n = 0, r.stop_at = 0;
    for (int resume = 0; resume < 2; resume++) {
        o.resume = o.must_resume = resume, d = (diag){ 0 };
        assert_int_equal(lm_run(&o, &q, &d), AN_USAGE);
        assert_true(r.n == 0 && strstr(d.msg, "is one checkpoint of a run") && strstr(d.msg, "--resume"));
    }
    snprintf(inside, sizeof inside, "%s/step-00000008", one);
    assert_false(path_look(inside, &i));
    small_end(&r);
}

/* A process may have died between a checkpoint and its name in `latest`, or what it names may be gone: the next one
 * puts it right, also when nothing is left to do. */
static void latest_again(void **state)
{
    (void)state;
    static const char *const was[] = { "step-00000006\n", "step-00000005\n", "", NULL };
    small_run r;
    lm_run_result q;
    char path[200];
    small_begin(&r);
    run_to(&r, 8, 0, false, &q);
    const double smooth = q.smooth;
    small_path(&r, "latest", path, sizeof path);
    for (size_t i = 0; i < COUNT(was); i++) {
        diag d = { 0 };
        if (was[i]) assert_ok(file_write(path, was[i], strlen(was[i]), &d), d);
        else assert_int_equal(unlink(path), 0);
        run_to(&r, 8, 0, true, &q);
        latest_is(&r, 8);
        assert_true(q.smooth == smooth); /* of a run that is at its end already */
    }
    small_end(&r);
}

/* A shard that is cut while a run reads it: the updates before are saved, and with the file as it was the run ends
 * as if nothing had been. */
static void cut_short(void *user, const pipe_event *e)
{
    small_run *r = user;
    /* within the fourth update */
    if (r->n == 3 && !strcmp(e->lane, "device")) assert_int_equal(truncate(r->data, 100), 0);
}

static void data_cut(void **state)
{
    (void)state;
    small_run whole, r;
    lm_run_result want, q;
    for (int accum = 1; accum <= 2; accum++) {
        diag d = { 0 };
        file_bytes f;
        small_begin(&whole);
        lm_run_options o = small_options(&whole, "cpu");
        o.steps = 8, o.accum = accum;
        assert_ok(lm_run(&o, &want, &d), d);
        small_begin(&r);
        assert_ok(file_read(r.data, 1 << 20, &f, &d), d);
        o = small_options(&r, "cpu");
        o.steps = 8, o.accum = accum, o.on_event = cut_short;
        assert_int_equal(lm_run(&o, &q, &d), AN_INPUT);
        assert_true(strstr(d.msg, r.data) && strstr(d.msg, "8000 bytes when it was opened, 100 now"));
        assert_int_equal(q.done, 4);
        latest_is(&r, 4);
        d = (diag){ 0 };
        assert_ok(file_write(r.data, f.at, f.n, &d), d);
        o.resume = o.must_resume = true;
        assert_ok(lm_run(&o, &q, &d), d);
        assert_true(q.digest == want.digest);
        file_drop(&f);
        small_end(&r);
        small_end(&whole);
    }
}

static void count_evals(void *user, int64_t step, double loss)
{
    small_run *r = user;
    assert_true(isfinite(loss) && step > 0 && step < 40);
    r->loss[step] = loss;
}

/* Updates in as many processes as it takes. */
static int in_turns(small_run *r, lm_run_options o, lm_run_result *q)
{
    int turns = 0;
    do {
        diag d = { 0 };
        assert_true(++turns < 30);
        o.resume = turns > 1;
        r->n = 0;
        assert_ok(lm_run(&o, q, &d), d);
    } while (q->again);
    return turns;
}

/* Few compiles: losses on text kept back are those of a run with many, though another process has to find them. */
static void few_compiles(void **state)
{
    (void)state;
    small_run whole, r;
    lm_run_result want, q;
    device_limit many = { "compiles", 10000 }, few = { "compiles", 20 };
    small_begin(&whole);
    lm_run_options o = small_options(&whole, "soft:m4");
    o.pipeline = "restart", o.steps = 4, o.eval_every = 1, o.validation = 0.1, o.on_progress = NULL,
    o.on_eval = count_evals;
    o.device.limit = &many, o.device.n_limit = 1;
    assert_int_equal(in_turns(&whole, o, &want), 1);
    small_begin(&r);
    o.save = r.save, o.user = &r, o.device.limit = &few;
    assert_true(in_turns(&r, o, &q) > 3);
    assert_true(q.digest == want.digest && q.validation == want.validation);
    for (int i = 1; i <= 4; i++) assert_true(whole.loss[i] > 0 && r.loss[i] == whole.loss[i]);
    small_end(&r);
    /* without text kept back nothing is left to do after the last update, and no process for it */
    small_begin(&r);
    o.save = r.save, o.user = &r, o.validation = -1, o.eval_every = 0, o.on_eval = NULL;
    assert_int_equal(in_turns(&r, o, &q), 4);
    assert_true(q.digest == want.digest && q.done == 4);
    small_end(&r);
    small_end(&whole);
}

static bool asked_while_saving(void *user)
{
    small_run *r = user;
    return ++r->stop_at > 1; /* asked for the first time when the update is done, before the save */
}

/* Asked to stop while the last save of a process without compiles is under way: that is what its end says, and no
 * other process goes on. */
static void asked_late(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q;
    diag d = { 0 };
    device_limit few = { "compiles", 20 };
    small_begin(&r);
    lm_run_options o = small_options(&r, "soft:m4");
    o.pipeline = "restart", o.steps = 4, o.device.limit = &few, o.device.n_limit = 1, o.stop = asked_while_saving;
    assert_ok(lm_run(&o, &q, &d), d);
    assert_true(q.done == 1 && q.again && q.stopped);
    small_end(&r);
}

/* A device that takes no reload and has no compiles left goes on in a new process, bit for bit; without a folder it
 * says why it ends. */
static void no_reload_no_compiles(void **state)
{
    (void)state;
    small_run whole, r;
    lm_run_result want, q;
    device_limit few = { "compiles", 20 };
    diag d = { 0 };
    small_begin(&whole);
    lm_run_options o = small_options(&whole, "soft:m4");
    o.pipeline = "delta", o.steps = 4, o.validation = -1, o.device.limit = &few, o.device.n_limit = 1;
    assert_int_equal(in_turns(&whole, o, &want), 1);
    trouble t = { "reload", 0 };
    small_begin(&r);
    o.save = r.save, o.user = &r, o.device.spoil = give_up, o.device.spoiler = &t;
    assert_true(in_turns(&r, o, &q) >= 4);
    assert_true(q.digest == want.digest);
    assert_non_null(strstr(r.warned, "does not honour reloads"));
    o.save = NULL, o.resume = false;
    assert_int_equal(lm_run(&o, &q, &d), AN_UNSUPPORTED);
    assert_non_null(strstr(d.msg, "there is no --save"));
    small_end(&r);
    small_end(&whole);
}

/* Files may grow to 4 kB only, as on a full disk: what was saved before is still whole. */
static void no_room(void **state)
{
    (void)state;
    small_run r;
    lm_run_result q, want;
    small_run whole;
    small_begin(&whole);
    run_to(&whole, 8, 0, false, &want);
    small_begin(&r);
    run_to(&r, 8, 4, false, &q);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        diag d = { 0 };
        struct rlimit limit = { 4096, 4096 };
        signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(9);
        lm_run_options o = small_options(&r, "cpu");
        o.steps = 8, o.save_every = 2, o.resume = true, r.n = 0, r.stop_at = 0;
        an_status st = lm_run(&o, &q, &d);
        _exit(st == AN_INPUT && q.done == 8 && q.digest == want.digest && strstr(r.warned, "was not saved") ? 0 : 1);
    }
    int code;
    assert_true(waitpid(pid, &code, 0) == pid);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    r.warned[0] = 0;
    run_to(&r, 8, 0, true, &q);
    assert_string_equal(r.warned, "");
    assert_true(r.n == 4 && q.digest == want.digest);
    small_end(&r);
    small_end(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotation),
        cmocka_unit_test(falls_back),
        cmocka_unit_test(another_steps_name),
        cmocka_unit_test(none_intact),
        cmocka_unit_test(nowhere_to_save),
        cmocka_unit_test(refused),
        cmocka_unit_test(one_too_many),
        cmocka_unit_test(kept_elsewhere),
        cmocka_unit_test(one_at_a_time),
        cmocka_unit_test(no_room),
        cmocka_unit_test(damaged_ones_do_not_count),
        cmocka_unit_test(engine_gone),
        cmocka_unit_test(diverged),
        cmocka_unit_test(stopped_while_skipping),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(other_sums), cmocka_unit_test(earlier_versions),
        cmocka_unit_test(signs_in_files),
        cmocka_unit_test(one_of_them),
        cmocka_unit_test(latest_again),
        cmocka_unit_test(data_cut),
        cmocka_unit_test(no_such_numbers),
        cmocka_unit_test(due_while_skipping),
        cmocka_unit_test(few_compiles), cmocka_unit_test(asked_late), cmocka_unit_test(no_reload_no_compiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
