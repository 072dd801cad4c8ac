/* fuzz_ckpt.h: a folder of one checkpoint of a model as small as it gets, for its fuzzer and the test of its seeds. */
#ifndef TESTS_FUZZ_CKPT_H
#define TESTS_FUZZ_CKPT_H

#include <string.h>

#include "base/folder.h"
#include "train/ckpt.h"

enum { CKPT_STEP = 3 };

typedef struct {
    char dir[80], note[140]; /* the folder; the train.json in it */
    device *dev;
    pipeline *p;             /* NULL: not made yet */
    /* of its state.safetensors; hash4: as checkpoints up to version 4 have it */
    uint64_t bytes, hash, hash4;
} ckpt_place;

/* dir is given. */
static inline an_status ckpt_place_make(ckpt_place *at, diag *d)
{
    char step[120], state[140];
    file_bytes f;
    model_config c = *model_preset_find("tiny");
    c.n_layers = 1, c.dim = 4, c.hidden = 4, c.n_heads = 2, c.n_kv_heads = 1, c.head_dim = 2, c.vocab = 4, c.seq = 4,
    c.context = 4;
    snprintf(step, sizeof step, "%s/step-%08d", at->dir, CKPT_STEP);
    snprintf(state, sizeof state, "%s/state.safetensors", step);
    snprintf(at->note, sizeof at->note, "%s/train.json", step);
    TRY(device_open(&at->dev, "cpu", &(device_options){ .threads = 1 }, d));
    TRY(dir_make(at->dir, d));
    TRY(dir_make(step, d));
    TRY(pipe_open(&at->p, &(pipe_options){ .dev = at->dev, .config = &c, .batch = 1 }, d));
    TRY(pipe_save(at->p, state, NULL, 0, d));
    TRY(file_map(state, &f, d));
    at->bytes = f.n, at->hash = hash_many(f.at, f.n, 0), at->hash4 = hash_bytes(f.at, f.n, 0);
    file_drop(&f);
    return AN_OK;
}

static inline void ckpt_place_drop(ckpt_place *at)
{
    char step[120];
    snprintf(step, sizeof step, "%s/step-%08d", at->dir, CKPT_STEP);
    folder_remove(step);
    folder_remove(at->dir);
    pipe_close(at->p);
    device_close(at->dev);
}

/* What the run says that goes on. */
static inline ckpt_note ckpt_of_this_run(void)
{
    ckpt_note n;
    memset(&n, 0, sizeof n);
    n.data_digest = 0x1234, n.seed = 7, n.validation = 0.125;
    snprintf(n.setting, sizeof n.setting, "tiny, batch 1");
    snprintf(n.exact, sizeof n.exact, "lr 0.5, loss scale 1, clip 1");
    snprintf(n.exact4, sizeof n.exact4, "lr 0.5, loss scale 1, clip 1");
    return n;
}

/* The bytes with the file that is there, where they name none and are not closed, and with a checksum that fits: of
 * version 5, or of those before where they say so. */
static inline void ckpt_sealed(const ckpt_place *at, const void *data, size_t n, strbuf *out)
{
    sb_putn(out, data, n);
    if (!n || memchr(data, 0, n) || out->oom) return;
    if (out->at[n - 1] == '}') return; /* as it is */
    const char *version = strstr(out->at, "\"version\": ");
    const bool before = version && version[11] >= '1' && version[11] <= '4';
    if (!strstr(out->at, "\"files\""))
        sb_printf(out, ",\n  \"files\": {\n    \"state.safetensors\": { \"bytes\": %llu, \"hash\": \"%016llx\" }\n  }",
                  (unsigned long long)at->bytes, (unsigned long long)(before ? at->hash4 : at->hash));
    const uint64_t sum = before ? hash_bytes(out->at, out->n, 0) : hash_many(out->at, out->n, 0);
    sb_printf(out, ",\n  \"checksum\": \"%016llx\"\n}\n", (unsigned long long)sum);
}

#endif
