/* test_fuzz_seeds.c: the checkpoints the fuzzers start from, tests/fuzz/corpus-state and corpus-ckpt: they are taken, for a
 * fuzzer whose seeds are refused finds nothing. AN_ACCEPT=1 writes them. */
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz/fuzz_ckpt.h"
#include "fuzz/fuzz_state.h"
#include "t.h"

#define STATE "tests/fuzz/corpus-state"
#define CKPT "tests/fuzz/corpus-ckpt"

/* ---- what a trainer saves ---- */

/* As they are; and without checksums, which files of before there were any do not have. */
static const struct {
    const char *name;
    int way;
    bool bare;
} states[] = { { "cpu", 0, false }, { "cpu-bare", 0, true }, { "m1", 1, false }, { "m1-bare", 1, true } };

static void rename_keys(file_bytes *f)
{
    static const char *const keys[] = { "\"anneal.checksum2\"", "\"anneal.metadata\"" };
    for (size_t i = 0; i < COUNT(keys); i++)
        for (size_t k = 0, n = strlen(keys[i]); k + n <= f->n; k++)
            if (!memcmp(f->at + k, keys[i], n)) f->at[k + 1] = 'x';
}

static void accept_state(trainer *t, const char *path, bool bare)
{
    diag d = { 0 };
    file_bytes f;
    for (int i = 0; i < 3; i++) assert_ok(state_step(t, &d), d);
    assert_ok(train_save(t, path, (train_note[]){ { "run.done", "3" }, { "run.model", "s" } }, 2, &d), d);
    if (!bare) return;
    assert_ok(file_read(path, 1 << 20, &f, &d), d);
    rename_keys(&f);
    assert_ok(file_write(path, f.at, f.n, &d), d);
    file_drop(&f);
}

static void states_are_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(states); i++) {
        diag d = { 0 };
        trainer *t;
        char path[100];
        snprintf(path, sizeof path, STATE "/%s", states[i].name);
        assert_ok(state_open(states[i].way, &t, &d), d);
        if (getenv("AN_ACCEPT")) {
            assert_ok(dir_make(STATE, &d), d);
            accept_state(t, path, states[i].bare);
        }
        train_close(t);
        assert_ok(state_open(states[i].way, &t, &d), d);
        train_note note = { "run.done", NULL };
        train_stats now;
        arena mem = { 0 };
        if (train_load(t, path, &note, 1, &mem, &d)) fail_msg("%s", d.msg);
        train_get_stats(t, &now);
        if (now.steps != 3) fail_msg("%s: %llu steps", path, (unsigned long long)now.steps);
        assert_string_equal(note.value, "3");
        assert_ok(state_step(t, &d), d);
        arena_free(&mem), train_close(t);
    }
}

/* ---- what is said beside it ---- */

#define AT "{\n  \"version\": %d,\n  \"step\": 3,\n  \"epoch\": 1,\n  \"sample\": 12,\n"
#define NUMBERS "  \"data\": \"0000000000001234\",\n  \"seed\": \"7\",\n"
#define KEPT "  \"validation\": 0.125,\n"
#define SETTING "  \"setting\": \"tiny, batch 1\""
#define EXACT(scale) ",\n  \"exact\": \"lr 0.5, loss scale " scale ", clip 1\""
static const struct {
    const char *name, *text;
    int version;
} notes[] = {
    { "version1", AT NUMBERS "  \"smooth\": null,\n" SETTING, 1 },
    { "version2", AT "  \"applied\": 3,\n" NUMBERS KEPT "  \"smooth\": 2.5,\n" SETTING, 2 },
    { "version4", AT "  \"applied\": 2,\n" NUMBERS KEPT SETTING EXACT("0"), 4 }, /* once the default, which is 1 */
    { "version5", AT "  \"applied\": 3,\n" NUMBERS KEPT "  \"smooth\": 2.5,\n  \"owed\": true,\n" SETTING EXACT("1")
                      ",\n  \"sums\": \"avx512\"", 5 },
};

static void notes_are_taken(void **state)
{
    (void)state;
    ckpt_place at = { .dir = "/tmp/anneal-seeds-XXXXXX" };
    diag d = { 0 };
    assert_non_null(mkdtemp(at.dir));
    assert_ok(ckpt_place_make(&at, &d), d);
    for (size_t i = 0; i < COUNT(notes); i++) {
        char path[100], text[600];
        file_bytes f;
        strbuf whole = { 0 };
        arena mem = { 0 };
        const char *found;
        ckpt_note note = ckpt_of_this_run();
        const size_t n = (size_t)snprintf(text, sizeof text, notes[i].text, notes[i].version);
        snprintf(path, sizeof path, CKPT "/%s", notes[i].name);
        if (getenv("AN_ACCEPT")) {
            assert_ok(dir_make(CKPT, &d), d);
            assert_ok(file_write(path, text, n, &d), d);
        }
        if (file_read(path, 1 << 20, &f, &d)) fail_msg("%s", d.msg);
        assert_true(f.n == n && !memcmp(f.at, text, n));
        ckpt_sealed(&at, f.at, f.n, &whole);
        assert_ok(file_write(at.note, whole.at, whole.n, &d), d);
        assert_ok(ckpt_find(at.dir, &mem, &found, NULL, NULL, &d), d);
        assert_ok(ckpt_load(found, at.p, &note, &d), d);
        assert_true(note.version == notes[i].version && note.step == CKPT_STEP && note.pos.sample == 12);
        file_drop(&f), sb_free(&whole), arena_free(&mem);
    }
    ckpt_place_drop(&at);
}

/* Nothing lies there that no row gives. */
static void no_others(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        DIR *dir = opendir(k ? CKPT : STATE);
        assert_non_null(dir);
        for (struct dirent *e; (e = readdir(dir));) {
            bool known = e->d_name[0] == '.' || !strncmp(e->d_name, "found", 5); /* by a fuzzer */
            for (size_t i = 0; i < (k ? COUNT(notes) : COUNT(states)); i++)
                known |= !strcmp(e->d_name, k ? notes[i].name : states[i].name);
            if (!known) fail_msg("%s: no row gives it", e->d_name);
        }
        closedir(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(states_are_taken), cmocka_unit_test(notes_are_taken),
                                        cmocka_unit_test(no_others) };
    return cmocka_run_group_tests_name("fuzz_seeds", tests, NULL, NULL);
}
