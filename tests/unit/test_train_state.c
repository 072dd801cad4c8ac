/* test_train_state.c: state out and in: going on bit for bit, damaged checkpoints, checksums. */
#include <unistd.h>

#include "base/io.h"
#include "format/safetensors.h"
#include "train_small_t.h"

static void going_on_bit_for_bit(void **state)
{
    (void)state;
    static const struct {
        const char *engine, *type, *opt;
        train_state_form form;
        int accum;
    } cases[] = { { "cpu", "fp32", "adamw", 0, 1 },
                  { "cpu", "fp16", "momentum", 0, 2 },
                  { "soft:m1", "fp16", "adam", TRAIN_HALVES, 2 },
                  { "soft:m4", "fp16", "sgd", 0, 1 } };
    char path[] = "/tmp/an_state_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < COUNT(cases); i++) {
        plain p;
        float x[N_X], y[N_Y];
        unsigned char end[2][4096];
        size_t n[2];
        strbuf kept = { 0 };
        diag d = { 0 };
        start(&p, x, y, 9);
        for (int way = 0; way < 2; way++) { /* straight on; from a file */
            train_options o = { .engine = cases[i].engine, .optimizer = cases[i].opt, .state = cases[i].form,
                                .accum = cases[i].accum, .loss_scale = 8, .dynamic_scale = true, .grow_after = 3 };
            trainer *t = open_trainer(cases[i].type, o);
            train_report r;
            put_weights(t, &p);
            put_batch(t, x, y);
            train_note note[1] = { { "where", "here" } };
            arena mem = { 0 };
            if (way == 0) {
                for (int s = 0; s < 5 * cases[i].accum; s++) assert_ok(train_step(t, 0.01, &r, &d), d);
                assert_ok(train_save(t, path, note, 1, &d), d);
                assert_ok(train_snapshot(t, &kept, &d), d);
            } else {
                assert_ok(train_step(t, 0.5, &r, &d), d); /* something else first */
                if (cases[i].accum > 1) {
                    diag busy = { 0 };
                    /* in the middle of a group */
                    assert_int_equal(train_load(t, path, NULL, 0, NULL, &busy), AN_INPUT);
                    assert_ok(train_step(t, 0.5, &r, &d), d);
                }
                note[0].value = NULL;
                assert_ok(train_load(t, path, note, 1, &mem, &d), d);
                assert_string_equal(note[0].value, "here");
                strbuf now = { 0 };
                assert_ok(train_snapshot(t, &now, &d), d);
                assert_true(now.n == kept.n && !memcmp(now.at, kept.at, kept.n));
                sb_free(&now);
            }
            for (int s = 0; s < 6 * cases[i].accum; s++) assert_ok(train_step(t, 0.01, &r, &d), d);
            assert_int_equal(r.step, 11);
            n[way] = all_bits(t, end[way], sizeof end[way]);
            arena_free(&mem);
            train_close(t);
        }
        assert_int_equal(n[1], n[0]);
        assert_memory_equal(end[1], end[0], n[0]);
        sb_free(&kept);
    }
    unlink(path);
}

/* Weights and a minibatch are there. */
static trainer *with_adam(void)
{
    plain p;
    float x[N_X], y[N_Y];
    start(&p, x, y, 9);
    trainer *t = open_trainer("fp32", (train_options){ .engine = "cpu", .optimizer = "adam" });
    put_weights(t, &p);
    put_batch(t, x, y);
    return t;
}

static void bad_checkpoints(void **state)
{
    (void)state;
    char path[] = "/tmp/an_state_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    double w[2][N_ALL];
    train_report r;
    diag d = { 0 };
    trainer *t = with_adam();
    assert_ok(train_step(t, 0.01, &r, &d), d);
    get_weights(t, w[0]);
    static const struct {
        const char *opt;
        int accum, cut; /* bytes kept of the file; 0: all */
        double scale;
    } files[] = { { "sgd", 1, 0, 1 },   { "adamw", 1, 0, 1 },  { "adam", 2, 0, 1 },
                  { "adam", 1, 0, 64 }, { "adam", 1, 900, 1 }, { "adam", 1, 7, 1 } };
    for (size_t i = 0; i < COUNT(files); i++) {
        trainer *other = open_trainer("fp32", (train_options){ .engine = "cpu",
                                                               .optimizer = files[i].opt,
                                                               .accum = files[i].accum,
                                                               .loss_scale = files[i].scale });
        assert_ok(train_save(other, path, NULL, 0, &d), d);
        train_close(other);
        if (files[i].cut) assert_int_equal(truncate(path, files[i].cut), 0);
        diag why = { 0 };
        if (train_load(t, path, NULL, 0, NULL, &why) != AN_INPUT || !strstr(why.msg, path))
            fail_msg("file %zu: %d %s", i, (int)why.st, why.msg);
        get_weights(t, w[1]);
        assert_memory_equal(w[0], w[1], sizeof w[0]);
    }
    diag why = { 0 };
    assert_int_equal(train_load(t, "/tmp/an_no_such_file", NULL, 0, NULL, &why), AN_INPUT);
    /* a device that counted other updates than the host */
    assert_ok(train_write(t, "train.step", DT_F32, &(float){ 3 }, &d), d);
    diag count = { 0 };
    assert_int_equal(train_save(t, path, NULL, 0, &count), AN_BUG);
    assert_non_null(strstr(count.msg, "the device counted 3 updates, the host 1"));
    train_close(t);
    close(fd);
    unlink(path);
}

/* A copy of the file at path with one text in its header in place of another of the same length. */
static void edited(const char *path, const char *from, const char *to, const char *copy)
{
    file_bytes f;
    diag d = { 0 };
    size_t n = strlen(from), at = 0;
    assert_int_equal(n, strlen(to));
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    while (at + n < f.n && memcmp(f.at + at, from, n)) at++;
    if (at + n >= f.n) fail_msg("%s is not in the file", from);
    memcpy((char *)f.at + at, to, n);
    assert_ok(file_write(copy, f.at, f.n, &d), d);
    file_drop(&f);
}

/* Headers that say something else than the tensors behind them: the file is refused by name, and what was trained
 * stays. */
static void headers_of_others(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        { "\"shape\":[6,5]", "\"shape\":[5,6]", "tensor w1 is fp32 of 120 bytes; fp32[6, 5] is wanted" },
        { "\"anneal.steps\":\"3\"", "\"anneal.steps\":\"7\"", "it says that 7 updates were done, and its tensors have 3" },
        { "\"w1.m\"", "\"w9.m\"", "there is no tensor w1.m" },
        { "\"anneal.loss_scale\":\"1\"", "\"anneal.loss_scale\":\"0\"", "the loss scale is 0" },
        { "\"anneal.good\":\"3\"", "\"anneal.good\":\"x\"", "anneal.good is \"x\"; a number is wanted" },
    };
    char path[] = "/tmp/an_state_XXXXXX", copy[] = "/tmp/an_state_XXXXXX";
    int fd = mkstemp(path), fd2 = mkstemp(copy);
    assert_true(fd >= 0 && fd2 >= 0);
    double w[2][N_ALL];
    train_report r;
    diag d = { 0 };
    trainer *t = with_adam();
    for (int i = 0; i < 3; i++) assert_ok(train_step(t, 0.01, &r, &d), d);
    assert_ok(train_save(t, path, NULL, 0, &d), d);
    assert_ok(train_step(t, 0.01, &r, &d), d);
    get_weights(t, w[0]);
    for (size_t i = 0; i < COUNT(cases); i++) {
        diag why = { 0 };
        edited(path, cases[i].from, cases[i].to, copy);
        if (train_load(t, copy, NULL, 0, NULL, &why) != AN_INPUT || !strstr(why.msg, cases[i].says) ||
            !strstr(why.msg, copy))
            fail_msg("%s: status %d: %s", cases[i].to, (int)why.st, why.msg);
        get_weights(t, w[1]);
        assert_memory_equal(w[0], w[1], sizeof w[0]);
    }
    train_close(t);
    /* one tensor more than there are states: that of a net with another parameter */
    safetensors_out *more;
    safetensors *f;
    size_t k;
    t = open_trainer("fp32", (train_options){ .engine = "cpu" });
    assert_ok(train_save(t, path, NULL, 0, &d), d);
    assert_ok(safetensors_open(path, &f, &d), d);
    assert_ok(safetensors_create(copy, &more, &d), d);
    static const char *const notes[] = { "anneal.train", "anneal.steps", "anneal.skipped", "anneal.minibatches", "anneal.loss_scale",
                                         "anneal.loss_scale_applied", "anneal.good", "anneal.skipped_row", "anneal.checksum2" };
    for (size_t i = 0; i < COUNT(notes); i++)
        assert_ok(safetensors_put_meta(more, notes[i], safetensors_meta(f, notes[i]), &d), d);
    for (size_t i = 0; i < train_state_count(t); i++) {
        train_state_info s;
        train_state_at(t, i, &s);
        assert_ok(safetensors_declare(more, s.name, s.type.dt, s.type.sh.rank, s.type.sh.d, &k, &d), d);
    }
    assert_ok(safetensors_declare(more, "w3", DT_F32, 1, (const int64_t[]){ 1 }, &k, &d), d);
    for (size_t i = 0; i < train_state_count(t); i++) {
        train_state_info s;
        train_state_at(t, i, &s);
        const safetensor *one = safetensors_find(f, s.name);
        assert_ok(safetensors_put(more, i, one->data, one->bytes, &d), d);
    }
    assert_ok(safetensors_put(more, k, &(float){ 1 }, 4, &d), d);
    assert_ok(safetensors_finish(more, &d), d);
    safetensors_close(f);
    diag why = { 0 };
    assert_int_equal(train_load(t, copy, NULL, 0, NULL, &why), AN_INPUT);
    assert_non_null(strstr(why.msg, "it has 5 tensors; 4 are wanted"));
    train_close(t);
    close(fd), close(fd2), unlink(path), unlink(copy);
}

/* Updates that were skipped in a row before a file count after it. */
static void a_row_goes_on(void **state)
{
    (void)state;
    char path[] = "/tmp/an_state_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    plain p;
    float x[N_X], y[N_Y];
    train_report r;
    diag d = { 0 };
    start(&p, x, y, 9);
    for (int k = 0; k < N_Y; k++) y[k] = 60000; /* its square is no fp16 number */
    for (int way = 0; way < 2; way++) {
        trainer *t = open_trainer("fp16", (train_options){ .engine = "soft:m1", .loss_scale = 8, .max_skipped = 5 });
        put_weights(t, &p);
        put_batch(t, x, y);
        if (way) assert_ok(train_load(t, path, NULL, 0, NULL, &d), d);
        for (int s = 0; s < (way ? 1 : 3); s++) assert_ok(train_step(t, 0.01, &r, &d), d);
        assert_true(!r.applied && r.skipped == (way ? 4u : 3u));
        if (!way) assert_ok(train_save(t, path, NULL, 0, &d), d);
        diag why = { 0 };
        if (way) assert_int_equal(train_step(t, 0.01, &r, &why), AN_MISMATCH);
        if (way) assert_non_null(strstr(why.msg, "5 updates were not finite"));
        train_close(t);
    }
    close(fd), unlink(path);
}

/* Numbers that fp16 does not hold go into a pair and come back. */
static void pairs_hold_more(void **state)
{
    (void)state;
    double w[N_W1], got[N_W1];
    diag d = { 0 };
    for (int pair = 0; pair < 2; pair++) {
        trainer *t = open_trainer("fp16", (train_options){ .engine = "soft:m1", .state = pair ? TRAIN_HALVES : 0 });
        for (int i = 0; i < N_W1; i++) w[i] = (i % 2 ? -1 : 1) * (0.1 + 0.037 * i);
        assert_ok(train_write(t, "w1", DT_F64, w, &d), d);
        assert_ok(train_read(t, "w1", DT_F64, got, &d), d);
        double off = 0;
        for (int i = 0; i < N_W1; i++) off = fmax(off, fabs(got[i] / w[i] - 1));
        if (pair ? off > 0x1p-20 : off < 0x1p-14) fail_msg("%s: off by %g", pair ? "pairs" : "fp16", off);
        train_close(t);
    }
}

/* A file's own checksum: signs of neighbours that change together are seen, and a file of before they were is read
 * by the checksum it has. */
static void checksums_of_files(void **state)
{
    (void)state;
    char path[] = "/tmp/an_state_XXXXXX", sum[40];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    diag d = { 0 };
    trainer *t = open_trainer("fp32", (train_options){ .engine = "cpu", .optimizer = "adam" });
    assert_ok(train_save(t, path, NULL, 0, &d), d);
    for (int old = 0; old < 2; old++)
        for (int damage = 0; damage < 3; damage++) { /* none, three signs, a bit */
            file_bytes f;
            safetensors *v;
            train_state_info w;
            uint64_t h = 0;
            assert_ok(file_read(path, 1 << 20, &f, &d), d);
            assert_ok(safetensors_view(f.at, f.n, path, &v, &d), d);
            for (size_t i = 0; i < train_state_count(t); i++) {
                train_state_at(t, i, &w);
                const safetensor *x = safetensors_find(v, w.name);
                h = hash_bytes(x->data, x->bytes, h);
            }
            char *key = NULL, *text = (char *)f.at;
            for (size_t i = 8; i + 40 < f.n && !key; i++)
                if (!memcmp(text + i, "\"anneal.checksum2\":\"", 20)) key = text + i;
            assert_non_null(key);
            snprintf(sum, sizeof sum, "\"anneal.checksum\": \"%016llx\"", (unsigned long long)h);
            if (old) memcpy(key, sum, strlen(sum));
            for (char *k = text + 8; old && k < text + f.n - 40; k++) /* nor had they this */
                if (!memcmp(k, "\"anneal.metadata\"", 17)) k[8] = 'M';
            unsigned char *at = (unsigned char *)f.at + ((const unsigned char *)safetensors_find(v, "w1")->data - f.at);
            if (damage == 1) at[7] ^= 128, at[11] ^= 128, at[15] ^= 128;
            if (damage == 2) at[5] ^= 1;
            char copy[] = "/tmp/an_state_XXXXXX";
            int fd2 = mkstemp(copy);
            assert_true(fd2 >= 0);
            assert_ok(file_write(copy, f.at, f.n, &d), d);
            diag why = { 0 };
            an_status st = train_load(t, copy, NULL, 0, NULL, &why);
            bool seen = damage == 2 || (damage == 1 && !old);
            if (st != (seen ? AN_INPUT : AN_OK) || (seen && !strstr(why.msg, "the file is damaged")))
                fail_msg("old %d, damage %d: status %d: %s", old, damage, (int)st, why.msg);
            close(fd2), unlink(copy);
            safetensors_close(v);
            file_drop(&f);
        }
    train_close(t);
    close(fd), unlink(path);
}

/* Any digit of a checkpoint's numbers that is not what was written: nothing is loaded. */
static void digits_of_files(void **state)
{
    (void)state;
    char path[] = "/tmp/an_state_XXXXXX";
    int fd = mkstemp(path), changed = 0;
    assert_true(fd >= 0);
    diag d = { 0 };
    train_note note[] = { { "net.place", "17" } };
    trainer *t = open_trainer("fp32", (train_options){ .engine = "cpu", .optimizer = "adam", .dynamic_scale = true });
    assert_ok(train_save(t, path, note, COUNT(note), &d), d);
    file_bytes f;
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    char *text = (char *)f.at, *from = strstr(text + 8, "__metadata__"), *to = from ? strchr(from, '}') : NULL;
    assert_non_null(to);
    for (char *at = from; at < to; at++) {
        if (*at < '0' || *at > '9') continue;
        const char was = *at;
        *at = was == '1' ? '2' : '1', changed++;
        assert_ok(file_write(path, f.at, f.n, &d), d);
        diag why = { 0 };
        if (train_load(t, path, note, COUNT(note), NULL, &why) != AN_INPUT)
            fail_msg("a file with %.40s was loaded", at - 20);
        *at = was;
    }
    assert_true(changed > 20);
    file_drop(&f);
    train_close(t);
    close(fd), unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(going_on_bit_for_bit),
        cmocka_unit_test(bad_checkpoints),
        cmocka_unit_test(checksums_of_files),
        cmocka_unit_test(digits_of_files),
        cmocka_unit_test(headers_of_others),
        cmocka_unit_test(a_row_goes_on),
        cmocka_unit_test(pairs_hold_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
