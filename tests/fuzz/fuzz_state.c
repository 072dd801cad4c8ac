/* fuzz_state: any bytes as a checkpoint of a trainer. What is refused leaves the trainer as it was, to the bit; what is
 * accepted is the same state when it is saved and loaded once more, and the training goes on from it. The checksums
 * need not be there, as files of before they were have none: so most of what is found lies behind them. Seeds:
 * tests/unit/test_fuzz_seeds.c. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz_state.h"
#include "fuzz_t.h"

static trainer *trainers[STATE_WAYS];
static strbuf begin[STATE_WAYS]; /* as it was opened */
static char given[64], saved[64], first[STATE_WAYS][64]; /* the input; what was saved of it; how each began */

static void memory_file(const char *name, char path[64], int *fd)
{
    *fd = memfd_create(name, 0);
    need(*fd >= 0);
    snprintf(path, 64, "/proc/self/fd/%d", *fd);
}

static void leave(void)
{
    for (int i = 0; i < STATE_WAYS; i++) train_close(trainers[i]), sb_free(&begin[i]), unlink(first[i]);
    unlink(saved);
}

static void prepare(void)
{
    atexit(leave);
    for (int i = 0; i < STATE_WAYS; i++) {
        diag d = { 0 };
        snprintf(first[i], sizeof first[i], "/dev/shm/anneal-fuzz-state-%d-%d", (int)getpid(), i);
        need(!state_open(i, &trainers[i], &d) && !state_step(trainers[i], &d));
        need(!train_save(trainers[i], first[i], NULL, 0, &d) && !train_snapshot(trainers[i], &begin[i], &d));
    }
    snprintf(saved, sizeof saved, "/dev/shm/anneal-fuzz-state-%d", (int)getpid());
}

static void be(trainer *t, const strbuf *want)
{
    strbuf now = { 0 };
    diag d = { 0 };
    need(!train_snapshot(t, &now, &d) && now.n == want->n && !memcmp(now.at, want->at, now.n));
    sb_free(&now);
}

static void load(int way)
{
    trainer *t = trainers[way];
    train_note note[] = { { "run.done", NULL }, { "run.model", NULL } };
    arena mem = { 0 };
    diag d = { 0 };
    strbuf got = { 0 };
    if (train_load(t, given, note, COUNT(note), &mem, &d)) {
        need((d.st == AN_INPUT || d.st == AN_NOMEM) && d.msg[0]);
        be(t, &begin[way]);
        arena_free(&mem);
        return;
    }
    need(!train_snapshot(t, &got, &d));
    if (train_save(t, saved, NULL, 0, &d)) need(d.st == AN_MISMATCH && d.msg[0]); /* not finite */
    else {
        need(!train_load(t, saved, NULL, 0, NULL, &d));
        be(t, &got);
    }
    for (int i = 0; i < 3; i++) {
        diag why = { 0 };
        if (state_step(t, &why)) need((why.st == AN_MISMATCH || why.st == AN_INPUT) && why.msg[0]);
    }
    sb_free(&got);
    arena_free(&mem);
    d = (diag){ 0 };
    if (train_load(t, first[way], NULL, 0, NULL, &d)) { /* in the middle of an update that did not come to its end */
        train_close(t);
        d = (diag){ 0 };
        need(!state_open(way, &trainers[way], &d) && !train_load(trainers[way], first[way], NULL, 0, NULL, &d));
    }
    be(trainers[way], &begin[way]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    if (fd < 0) memory_file("state", given, &fd), prepare();
    need(!ftruncate(fd, 0) && pwrite(fd, data, n, 0) == (ssize_t)n);
    for (int i = 0; i < STATE_WAYS; i++) load(i);
    return 0;
}
