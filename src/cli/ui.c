/* ui.c: the live line. Drawn at most ten times a second: a terminal over a network should not slow a run down. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/ui.h"

void ui_begin(ui *u, int64_t every)
{
    const char *term = getenv("TERM"), *lang = getenv("LC_ALL");
    if (!lang || !*lang) lang = getenv("LC_CTYPE");
    if (!lang || !*lang) lang = getenv("LANG");
    *u = (ui){ .every = every };
    u->terminal = isatty(STDERR_FILENO) && (!term || strcmp(term, "dumb"));
    u->utf8 = lang && (strstr(lang, "UTF-8") || strstr(lang, "utf8") || strstr(lang, "UTF8"));
}

static void put_time(char *to, size_t n, double seconds)
{
    long s = seconds < 0 ? 0 : seconds > 1e9 ? 1000000000 : (long)(seconds + 0.5);
    if (s >= 3600) snprintf(to, n, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else snprintf(to, n, "%ld:%02ld", s / 60, s % 60);
}

static void put_rate(char *to, size_t n, double rate)
{
    if (rate >= 1e6) snprintf(to, n, "%.2fM", rate / 1e6);
    else if (rate >= 1e4) snprintf(to, n, "%.1fk", rate / 1e3);
    else snprintf(to, n, "%.0f", rate);
}

static int make_line(const ui *u, const an_lm_progress *p, char *to, size_t n)
{
    char left[24], rate[24], bad[40] = "";
    put_time(left, sizeof left, (double)(p->steps - p->step) * u->ms / 1e3);
    put_rate(rate, sizeof rate, u->ms > 0 ? (double)p->tokens / u->ms * 1e3 : 0);
    if (p->skipped) snprintf(bad, sizeof bad, "  %llu skipped", (unsigned long long)p->skipped);
    return snprintf(to, n, "step %lld/%lld  loss %.3f (%.3f)  %s tok/s  %.1f ms = %.1f data + %.1f step  left %s%s", (long long)p->step, (long long)p->steps, p->loss, p->smooth, rate,
                    p->ms, p->data_ms, p->device_ms, left, bad);
}

void ui_step(ui *u, const an_lm_progress *p)
{
    char line[240];
    uint64_t now = clock_ns();
    u->ms = u->ms > 0 ? 0.9 * u->ms + 0.1 * p->ms : p->ms;
    int n = MIN(make_line(u, p, line, sizeof line), (int)sizeof line - 1);
    if (u->terminal) {
        if (p->step < p->steps && now - u->last_ns < 100000000u) return;
        fprintf(stderr, "\r%s%*s", line, MAX(u->shown - n, 0), "");
        fflush(stderr);
        u->shown = n, u->last_ns = now;
        return;
    }
    int64_t every = u->every > 0 ? u->every : MAX(p->steps / 20, 1);
    if (p->step % every == 0 || p->step == p->steps) fprintf(stderr, "%s\n", line);
}

void ui_clear(ui *u)
{
    if (!u->terminal || !u->shown) return;
    fprintf(stderr, "\r%*s\r", u->shown, "");
    fflush(stderr);
    u->shown = 0, u->last_ns = 0;
}

void ui_end(ui *u)
{
    if (u->terminal && u->shown) fputc('\n', stderr);
    u->shown = 0;
}
