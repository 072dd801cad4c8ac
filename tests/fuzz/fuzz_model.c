/* fuzz_model: any bytes as the file of a whole model: GGUF, safetensors with a configuration in its metadata, or
 * llama2.c. What is accepted has a valid configuration and a number for every weight it names, dense and compressed;
 * its ids are in its vocabulary; and it is written again, or it is said why not. A vocabulary in it opens, or it is
 * said why not. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_t.h"
#include "lm/lm.h"

static void said(const diag *d) { need((d->st == AN_INPUT || d->st == AN_NOMEM) && d->msg[0]); }

static void read_weights(lm_model *m)
{
    for (int id = 0; id < MW_COUNT; id++)
        for (int l = -1; l < lm_config(m)->n_layers; l++) {
            lm_tensor t;
            lm_quantized q;
            const void *at;
            diag d = { 0 };
            if (!lm_tensor_info(m, (model_weight_id)id, l, &t) || t.rows * t.cols > 1 << 16) continue;
            float *x = malloc((size_t)(t.rows * t.cols) * sizeof *x);
            need(x && !lm_rows(m, (model_weight_id)id, l, 0, t.rows, DT_F32, x, &d));
            free(x);
            if (lm_dense(m, (model_weight_id)id, l, DT_F16, &at, &d)) said(&d);
            /* a palette takes long */
            for (int f = LM_INT8; f <= (id == MW_WQ ? LM_PALETTE4 : LM_INT4) && t.cols > 1; f++) {
                diag why = { 0 };
                if (lm_quantize(m, (model_weight_id)id, l, (lm_form)f, DT_F16, &q, &why)) said(&why);
            }
            lm_release(m, (model_weight_id)id, l);
        }
}

static void write_again(lm_model *m, const char *to, lm_target kind)
{
    lm_converted done;
    lm_model *again;
    diag d = { 0 };
    if (lm_convert(m, to, &(lm_convert_options){ .to = kind, .version = -1 }, &done, &d)) {
        said(&d);
        return;
    }
    if (lm_open(to, NULL, &again, &d)) {
        fprintf(stderr, "%s\n", d.msg);
        abort();
    }
    need(lm_config(again)->dim == lm_config(m)->dim && lm_config(again)->tied == lm_config(m)->tied &&
         lm_config(again)->window == lm_config(m)->window);
    need(lm_generation_of(again)->n_eos == lm_generation_of(m)->n_eos || kind == LM_TO_LLAMA2C || done.lost[0]);
    lm_close(again);
    unlink(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    static char path[64], out[64];
    if (fd < 0) {
        fd = memfd_create("model", 0);
        need(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        snprintf(out, sizeof out, "/dev/shm/anneal-fuzz-%d", (int)getpid());
    }
    need(!ftruncate(fd, 0) && pwrite(fd, data, n, 0) == (ssize_t)n);
    diag d = { 0 };
    lm_model *m;
    tokenizer *t;
    if (lm_open(path, NULL, &m, &d)) said(&d);
    else {
        const model_config *c = lm_config(m);
        const lm_generation *g = lm_generation_of(m);
        need(!model_config_check(c, &d) && g->bos < c->vocab && g->n_eos <= LM_MAX_EOS);
        for (int i = 0; i < g->n_eos; i++) need(g->eos[i] < c->vocab);
        if (c->n_layers < 8) {
            read_weights(m);
            for (int k = 0; k < LM_TARGETS; k++)
                if (k != LM_TO_HF && k != LM_TO_NPY) write_again(m, out, (lm_target)k);
        }
        lm_close(m);
    }
    d = (diag){ 0 };
    if (n > 3 && !memcmp(data, "GGUF", 4)) {
        if (lm_tokenizer_open(path, &t, &d)) said(&d);
        else tok_close(t);
    }
    return 0;
}
