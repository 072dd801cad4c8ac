/* hwx_t.h: what must hold for any bytes given to the reader of program files. Used by the test and by the fuzzer. */
#ifndef TESTS_HWX_T_H
#define TESTS_HWX_T_H

#include "hwx/hwx.h"

/* NULL, or what went wrong. A file that is refused says why; one that is read can be shown; and what can be written
 * of it reads back the same. */
static inline const char *hwx_bytes_behave(const void *bytes, size_t n, bool *accepted)
{
    diag d = { 0 };
    hwx_file f, g = { 0 };
    strbuf text = { 0 }, json = { 0 }, out = { 0 };
    const char *bad = NULL, *what;
    an_status st = hwx_read(bytes, n, &f, &d);
    *accepted = !st;
    if (st) bad = st == AN_INPUT && d.st == AN_INPUT && d.msg[0] ? NULL : "refused without a reason";
    else {
        hwx_dump(&f, "text", &text);
        hwx_dump(&f, "json", &json);
        if (text.oom || json.oom || !text.n || !json.n) bad = "not shown";
        diag dw = { 0 };
        an_status wrote = hwx_write(&f.image, &out, &dw);
        if (wrote && !((wrote == AN_INPUT || wrote == AN_UNSUPPORTED) && dw.msg[0]))
            bad = "not written without a reason";
        diag dr = { 0 };
        if (!wrote && hwx_read(out.at, out.n, &g, &dr)) bad = "what was written cannot be read";
        else if (!wrote && !hwx_image_same(&f.image, &g.image, &what)) bad = what;
    }
    sb_free(&text), sb_free(&json), sb_free(&out);
    hwx_close(&f), hwx_close(&g);
    return bad;
}

#endif
