/* lm_run_t.h: a language model of a few thousand weights and a folder of its own for tests of whole runs. */
#ifndef TESTS_LM_RUN_T_H
#define TESTS_LM_RUN_T_H

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"
#include "t.h"
#include "train/lm_run.h"

typedef struct {
    char dir[64], model[80], save[80], data[80];
    char warned[2000];       /* every warning, a line each */
    double loss[64];
    int n;                   /* updates seen */
    int stop_at;             /* updates of this call; 0: all */
} small_run;

static inline void small_begin(small_run *r)
{
    static const char json[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":16,\"intermediate_size\":32,\"num_hidden_layers\":2,"
                               "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":300,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
                               "\"tie_word_embeddings\":true,\"hidden_act\":\"silu\"}";
    diag d = { 0 };
    memset(r, 0, sizeof *r);
    snprintf(r->dir, sizeof r->dir, "/tmp/anneal-run-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->model, sizeof r->model, "%s/config.json", r->dir);
    snprintf(r->save, sizeof r->save, "%s/run", r->dir);
    assert_ok(file_write(r->model, json, sizeof json - 1, &d), d);
    /* ids where each depends on the one before: something to learn, and no vocabulary to make first */
    uint16_t ids[4000];
    rng g = { 11 };
    for (size_t i = 0; i < COUNT(ids); i++) ids[i] = (uint16_t)(i ? (ids[i - 1] * 3 + rng_below(&g, 2)) % 40 : 1);
    snprintf(r->data, sizeof r->data, "%s/ids.u16", r->dir);
    assert_ok(file_write(r->data, ids, sizeof ids, &d), d);
}

static inline void small_remove(const char *path)
{
    DIR *at = opendir(path);
    for (struct dirent *e; at && (e = readdir(at));) {
        strbuf name = { 0 };
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        sb_printf(&name, "%s/%s", path, e->d_name);
        assert_false(name.oom);
        if (unlink(name.at)) small_remove(name.at);
        sb_free(&name);
    }
    if (at) closedir(at);
    rmdir(path);
}

static inline void small_end(small_run *r) { small_remove(r->dir); }

static inline void small_progress(void *user, const lm_progress *p)
{
    small_run *r = user;
    if (r->n < 64) r->loss[r->n] = p->loss;
    r->n++;
}

static inline bool small_stop(void *user)
{
    small_run *r = user;
    return r->stop_at && r->n >= r->stop_at;
}

static inline void small_warn(void *user, const char *line)
{
    small_run *r = user;
    size_t n = strlen(r->warned);
    snprintf(r->warned + n, sizeof r->warned - n, "%s\n", line);
}

static inline lm_run_options small_options(small_run *r, const char *engine)
{
    lm_run_options o = { .model = r->model, .data = r->data, .engine = engine, .steps = 20, .batch = 2, .seq = 16,
                         .lr = 1e-2, .seed = 3, .sample_every = -1, .save = r->save, .on_progress = small_progress,
                         .stop = small_stop, .warn = small_warn, .user = r };
    o.device.threads = 1;
    o.device.own_budget = true; /* a run stands for a process */
    return o;
}

static inline void small_path(const small_run *r, const char *tail, char *to, size_t n)
{
    snprintf(to, n, "%s/%s", r->save, tail);
}

#endif
