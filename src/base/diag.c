/* diag.c: how a call says what went wrong. The first cause wins. */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <time.h>

#include "base/plain.h"
#include "base/str.h"

static const struct {
    int code;
    const char *text;
} outcomes[] = {
#define X(name, code, text) { code, text },
    AN_STATUS(X)
#undef X
};

/* Messages quote what files hold, and go to terminals: what cannot be shown becomes '?'. */
static void make_plain(char *s)
{
    for (size_t left = strlen(s), len; left; s += len, left -= len) {
        len = utf8_shown((const unsigned char *)s, left);
        if (len) continue;
        *s = '?';
        len = 1;
    }
}

an_status diag_fail(diag *d, an_status st, loc at, const char *fmt, ...)
{
    if (d->st) return d->st;
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(d->msg, sizeof d->msg, fmt, ap);
    va_end(ap);
    make_plain(d->msg);
    d->at = at;
    return d->st = st;
}

an_status diag_nomem(diag *d) { return diag_fail(d, AN_NOMEM, NOWHERE, "out of memory"); }

int status_exit_code(an_status st) { return (size_t)st < COUNT(outcomes) ? outcomes[st].code : 70; }

const char *status_text(an_status st) { return (size_t)st < COUNT(outcomes) ? outcomes[st].text : "unknown status"; }

bool mul_size(size_t a, size_t b, size_t *out)
{
    if (b && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

bool mul_i64(int64_t a, int64_t b, int64_t *out)
{
    if (b && a > INT64_MAX / b) return false;
    *out = a * b;
    return true;
}

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
