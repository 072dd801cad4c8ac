/* fuzz_ckpt: any bytes as the train.json of a language model's checkpoint, whose other file is there and whole. The
 * checksum at its end is made to fit, and where no files are named that one is, so that the fuzzer gets past both.
 * What is accepted goes on from a step that is one, or it is said what another run it is of. Seeds:
 * tests/unit/test_fuzz_seeds.c. */
#include <stdio.h>
#include <unistd.h>

#include "fuzz_ckpt.h"
#include "fuzz_t.h"

static void said(const diag *d) { need((d->st == AN_INPUT || d->st == AN_NOMEM) && d->msg[0]); }

static ckpt_place place;

static void leave(void) { ckpt_place_drop(&place); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    diag d = { 0 };
    if (!place.p) {
        snprintf(place.dir, sizeof place.dir, "/dev/shm/anneal-fuzz-ckpt-%d", (int)getpid());
        need(!ckpt_place_make(&place, &d));
        atexit(leave);
    }
    strbuf text = { 0 };
    ckpt_sealed(&place, data, n, &text);
    need(!text.oom && !file_write(place.note, text.at, text.n, &d));
    sb_free(&text);
    arena mem = { 0 };
    const char *path;
    ckpt_note note = ckpt_of_this_run();
    if (ckpt_find(place.dir, &mem, &path, NULL, NULL, &d)) said(&d);
    else {
        d = (diag){ 0 };
        if (ckpt_load(path, place.p, &note, &d)) {
            const ckpt_note as_before = ckpt_of_this_run();
            said(&d);
            need(!memcmp(&note, &as_before, sizeof note));
        } else {
            need(note.step == CKPT_STEP && note.applied >= 0 && note.version >= 1 && note.version <= 5);
            need(strlen(note.setting) < sizeof note.setting && strlen(note.exact) < sizeof note.exact &&
                 strlen(note.sums) < sizeof note.sums);
        }
    }
    arena_free(&mem);
    return 0;
}
