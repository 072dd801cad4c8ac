/* test_convert_files.c: models written as several files, over a folder that is a model already, and from memory. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/folder.h"
#include "convert_t.h"

/* ---- in several files ---- */

static void spread(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 1, 9000, 40000, 1 << 30 }; /* each tensor alone, some together, few, all */
    for (size_t i = 0; i < COUNT(models); i++)
        for (size_t k = 0; k < COUNT(sizes); k++)
            for (int q = 0; q < 2; q++) {
                empty_folder(scratch, 1);
                write_text(in_scratch("seed.json"), models[i].json);
                diag d = { 0 };
                lm_converted done;
                lm_model *m = open_ok(in_scratch("seed.json"));
                lm_convert_options o = {
                    .to = LM_TO_HF, .version = -1, .shard = sizes[k], .quantize = q ? "int4" : NULL
                };
                assert_ok(lm_convert(m, in_scratch("many"), &o, &done, &d), d);
                o.shard = 0;
                assert_ok(lm_convert(m, in_scratch("one"), &o, &done, &d), d);
                assert_int_equal(done.shards, 1);
                lm_close(m);
                via(in_scratch("many"), in_scratch("a.safetensors"), LM_TO_SAFETENSORS, 0, q ? "int4" : NULL);
                via(in_scratch("one"), in_scratch("b.safetensors"), LM_TO_SAFETENSORS, 0, q ? "int4" : NULL);
                same_file(in_scratch("a.safetensors"), in_scratch("b.safetensors"), 0);
                safetensors *f;
                path_info info;
                bool single = path_look(in_scratch("many/model.safetensors"), &info);
                if (!q || k == 0 || k == 3) assert_int_equal(single, k == 3);
                assert_ok(safetensors_open(single ? in_scratch("many/model.safetensors")
                                                  : in_scratch("many/model.safetensors.index.json"),
                                           &f, &d),
                          d);
                uint64_t bytes = 0;
                /* no file holds more than it may, unless it is one tensor or a quantised one's two */
                for (size_t t = 0; t < safetensors_count(f); t++) {
                    const safetensor *x = safetensors_at(f, t), *before = t ? safetensors_at(f, t - 1) : NULL;
                    bool fresh = !before || strcmp(before->file, x->file);
                    bytes = fresh ? x->bytes : bytes + x->bytes;
                    if (!fresh && !q) assert_true(bytes <= sizes[k]);
                }
                safetensors_close(f);
            }
}

/* A folder that would still be read as the model before is not written into; a failure takes its shards with it. */
static void spread_refused(void **state)
{
    (void)state;
    empty_folder(scratch, 1);
    diag d = { 0 };
    lm_converted done;
    path_info info;
    write_text(in_scratch("seed.json"), models[0].json);
    lm_model *m = open_ok(in_scratch("seed.json"));
    lm_convert_options o = { .to = LM_TO_HF, .version = -1 };
    assert_ok(lm_convert(m, in_scratch("hf"), &o, &done, &d), d);
    o.shard = 5000;
    assert_int_equal(lm_convert(m, in_scratch("hf"), &o, &done, &d), AN_INPUT);
    assert_non_null(strstr(d.msg, "hf/model.safetensors is there"));
    lm_close(m);
    write_text(in_scratch("hf/config.json"), "{\"model_type\":\"llama\"," LLAMA_JSON "}");
    write_tensors(in_scratch("hf/model.safetensors"), llama_tensors, NULL, DT_F32, NULL, NULL, NULL);
    file_bytes f;
    d = (diag){ 0 };
    assert_ok(file_read(in_scratch("hf/model.safetensors"), 1 << 20, &f, &d), d);
    float bad = NAN;
    memcpy(f.at + f.n - 4, &bad, 4); /* of lm_head.weight: the shard of the embedding is whole by then */
    assert_ok(file_write(in_scratch("hf/model.safetensors"), f.at, f.n, &d), d);
    file_drop(&f);
    m = open_ok(in_scratch("hf"));
    o.shard = 1, o.quantize = "int8";
    assert_int_equal(lm_convert(m, in_scratch("out"), &o, &done, &d), AN_INPUT);
    DIR *p = opendir(in_scratch("out"));
    for (struct dirent *e; p && (e = readdir(p));)
        if (e->d_name[0] != '.') fail_msg("%s is left", e->d_name);
    if (p) closedir(p);
    assert_false(path_look(in_scratch("out/config.json"), &info));
    lm_close(m);
    static const lm_target others[] = { LM_TO_SAFETENSORS, LM_TO_GGUF, LM_TO_LLAMA2C, LM_TO_NPY };
    m = open_ok(in_scratch("seed.json"));
    for (size_t i = 0; i < COUNT(others); i++) {
        d = (diag){ 0 };
        assert_int_equal(lm_convert(m, in_scratch("x"),
                                    &(lm_convert_options){ .to = others[i], .version = -1, .shard = 100 }, &done, &d),
                         AN_USAGE);
        assert_non_null(strstr(d.msg, "target hf"));
    }
    lm_close(m);
}

/* ---- over a folder that is a model already ---- */

static int shell(const char *fmt, ...) PRINTF_LIKE(1, 2);
static int shell(const char *fmt, ...)
{
    char cmd[1200];
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(cmd, sizeof cmd, "cd %s && ", scratch);
    vsnprintf(cmd + n, sizeof cmd - (size_t)n, fmt, ap);
    va_end(ap);
    return system(cmd);
}

static void two_models(lm_target to)
{
    empty_folder(scratch, 2);
    for (int i = 0; i < 2; i++) {
        write_text(in_scratch("seed.json"), models[i ? 5 : 0].json);
        via(in_scratch("seed.json"), in_scratch(i ? "new" : "hf"), i ? LM_TO_HF : to, DT_F32, NULL);
    }
    assert_int_equal(
        shell(
            "mkdir hf/sub && echo mine >hf/notes && echo mine >hf/sub/x && printf '\\001\\000\\000\\000' >hf/active.u32 && cp -r hf was"),
        0);
}

/* What fails half way leaves the folder as it was, with all that is in it; what is well replaces the model and
 * nothing else. */
static void over_another(void **state)
{
    (void)state;
    static const lm_target kinds[] = { LM_TO_HF, LM_TO_NPY };
    for (size_t k = 0; k < COUNT(kinds); k++) {
        lm_convert_options o = { .to = kinds[k], .version = -1 };
        lm_converted done;
        diag d = { 0 };
        two_models(kinds[k]);
        /* where a file is to go */
        assert_int_equal(shell("mkdir hf/%s", k ? "gain_out.npy" : "generation_config.json"), 0);
        if (k) assert_int_equal(shell("rmdir hf/gain_out.npy && mv hf/config.json c && mkdir hf/config.json"), 0);
        assert_int_equal(shell("rm -r was && cp -r hf was && echo {} >new/generation_config.json"), 0);
        lm_model *m = open_ok(in_scratch("new"));
        assert_int_equal(lm_convert(m, in_scratch("hf"), &o, &done, &d), AN_INPUT);
        assert_non_null(strstr(d.msg, "is a folder; a file is wanted"));
        assert_int_equal(shell("diff -r hf was"), 0);
        assert_int_equal(shell("rm -r hf/%s was && cp -r hf was && mkfifo new/vocab.json",
                               k ? "config.json" : "generation_config.json"),
                         0);
        if (!k) { /* behind the weights */
            d = (diag){ 0 };
            assert_int_equal(lm_convert(m, in_scratch("hf"), &o, &done, &d), AN_INPUT);
            assert_non_null(strstr(d.msg, "vocab.json is a pipe, not a regular file"));
            assert_int_equal(shell("diff -r hf was"), 0);
            d = (diag){ 0 };
            assert_int_equal(lm_convert(m, in_scratch("none/hf"), &o, &done, &d), AN_INPUT);
            assert_int_not_equal(shell("test -e none"), 0);
        }
        assert_int_equal(shell("rm new/vocab.json %s", k ? "hf/*.npy" : ""), 0);
        d = (diag){ 0 };
        assert_ok(lm_convert(m, in_scratch("hf"), &o, &done, &d), d);
        assert_ok(lm_convert(m, in_scratch("want"), &o, &done, &d), d);
        lm_close(m);
        assert_int_equal(
            shell(
                "diff -r hf/sub was/sub && diff hf/notes was/notes && test ! -e hf/active.u32 && rm -r hf/sub hf/notes && diff -r hf want"),
            0);
    }
    empty_folder(scratch, 2);
}

/* A process died while it put files in their places: the next one that writes there ends that first, even if it
 * fails itself. */
static void died_between(void **state)
{
    (void)state;
    lm_convert_options o = { .to = LM_TO_HF, .version = -1 };
    lm_converted done;
    diag d = { 0 };
    two_models(LM_TO_HF);
    /* another process has the number of one that died */
    assert_int_equal(shell("sh -c 'sleep 100 >/dev/null 2>&1 & echo $! >alive'"), 0);
    assert_int_equal(shell("sh -c 'echo $$' >pid && p=$(cat pid) && a=$(cat alive) && mkdir hf/.tmp-new-$a && echo x >hf/.tmp-new-$a/y && : >hf/.new.tmp.$a && mkdir hf/.tmp-whole-$p hf/.tmp-old-$p hf/.tmp-new-1$p && mv hf/config.json hf/.tmp-old-$p && echo x >hf/.tmp-new-1$p/y && "
                           "cp new/model.safetensors hf && cp new/config.json hf/.tmp-whole-$p && : >hf/.tmp-whole-$p/.gone-active.u32 && mkfifo new/vocab.json"), 0);
    lm_model *m = open_ok(in_scratch("new"));
    assert_int_equal(lm_convert(m, in_scratch("hf"), &o, &done, &d), AN_INPUT);
    lm_close(m);
    assert_int_equal(shell("kill $(cat alive) && rm -r hf/sub hf/notes new/vocab.json && diff -r hf new"), 0);
    empty_folder(scratch, 2);
}

/* A link that has the name of what a dead process left: files are neither moved out of where it points nor removed
 * there. */
static void left_as_links(void **state)
{
    (void)state;
    two_models(LM_TO_HF);
    assert_int_equal(
        shell("sh -c 'echo $$' >pid && p=$(cat pid) && mkdir mine && echo x >mine/x && cp -r mine mine.was && "
              "for n in new whole old; do ln -s ../mine hf/.tmp-$n-$p || exit 1; done"),
        0);
    via(in_scratch("new"), in_scratch("hf"), LM_TO_HF, DT_F32, NULL);
    assert_int_equal(shell("diff -r mine mine.was && rm -r hf/sub hf/notes && diff -r hf new"), 0);
    empty_folder(scratch, 2);
}

/* One that lives has the folder to itself. */
static void one_writer(void **state)
{
    (void)state;
    lm_convert_options o = { .to = LM_TO_HF, .version = -1 };
    lm_converted done;
    diag d = { 0 };
    folder_out f;
    int up[2], down[2], status;
    char c;
    two_models(LM_TO_HF);
    assert_int_equal(pipe(up) | pipe(down), 0);
    pid_t child = fork();
    if (!child)
        _exit(folder_begin(in_scratch("hf"), "config.json", &f, &d) || write(up[1], "x", 1) != 1 ||
              read(down[0], &c, 1) != 1);
    assert_int_equal(read(up[0], &c, 1), 1);
    lm_model *m = open_ok(in_scratch("new"));
    assert_int_equal(lm_convert(m, in_scratch("hf"), &o, &done, &d), AN_USAGE);
    assert_non_null(strstr(d.msg, "is writing into it"));
    assert_int_equal(write(down[1], "x", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(shell("rm -r hf/.[nt]* && diff -r hf was"), 0);
    lm_close(m);
    for (int i = 0; i < 2; i++) close(up[i]), close(down[i]);
    empty_folder(scratch, 2);
}

static an_status fetch_from(void *user, model_weight_id id, int layer, float *to, diag *d)
{
    lm_tensor t;
    assert_true(lm_tensor_info(user, id, layer, &t));
    return lm_rows(user, id, layer, 0, t.rows, DT_F32, to, d);
}

/* A model that is in no file may be written to one that has its name. */
static void from_memory(void **state)
{
    (void)state;
    empty_folder(scratch, 1);
    write_text(in_scratch("seed.json"), models[0].json);
    write_text(in_scratch("gradients"), "old");
    lm_model *m = open_ok(in_scratch("seed.json")), *copy;
    diag d = { 0 };
    assert_ok(lm_from_memory(in_scratch("gradients"), lm_config(m), NULL, fetch_from, m, &(lm_options){ .dt = DT_F32 },
                             &copy, &d),
              d);
    convert_ok(copy, in_scratch("gradients"), LM_TO_SAFETENSORS, DT_F32, NULL);
    lm_close(copy);
    lm_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spread),
        cmocka_unit_test(spread_refused),
        cmocka_unit_test(over_another),
        cmocka_unit_test(died_between),
        cmocka_unit_test(left_as_links),
        cmocka_unit_test(from_memory),
        cmocka_unit_test(one_writer),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
