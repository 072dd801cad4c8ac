/* ui.c: the live line. Drawn at most ten times a second: a terminal over a network should not slow a run down. */
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/ui.h"

void ui_begin(ui *u, int64_t every)
{
    const char *term = getenv("TERM"), *lang = getenv("LC_ALL");
    if (!lang || !*lang) lang = getenv("LC_CTYPE");
    if (!lang || !*lang) lang = getenv("LANG");
    *u = (ui){ .every = every };
    u->terminal = isatty(STDERR_FILENO) && (!term || strcmp(term, "dumb"));
    u->shared = isatty(STDOUT_FILENO);
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

/* What a field does not leave room for is left out, and so is all behind it. */
typedef struct {
    char *to;
    int n, width;
    bool full;
} line;

static void put_field(line *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void put_field(line *l, const char *fmt, ...)
{
    va_list ap;
    if (l->full) return;
    va_start(ap, fmt);
    int more = vsnprintf(l->to + l->n, (size_t)(l->width - l->n) + 1, fmt, ap);
    va_end(ap);
    l->full = more < 0 || more > l->width - l->n;
    if (l->full) l->to[l->n] = 0;
    else l->n += more;
}

int ui_line(const ui *u, const an_lm_progress *p, int width, char *to, size_t n)
{
    char left[24], rate[24];
    line l = { .to = to, .width = MAX(MIN(width, (int)n - 1), 0) };
    put_time(left, sizeof left, (double)(p->steps - p->step) * u->ms / 1e3);
    put_rate(rate, sizeof rate, u->ms > 0 ? (double)p->tokens / u->ms * 1e3 : 0);
    to[0] = 0;
    put_field(&l, "step %lld/%lld", (long long)p->step, (long long)p->steps);
    put_field(&l, "  loss %.3f", p->loss);
    put_field(&l, " (%.3f)", p->smooth);
    put_field(&l, "  %s tok/s", rate);
    put_field(&l, "  left %s", left);
    if (p->skipped) put_field(&l, "  %llu skipped", (unsigned long long)p->skipped);
    put_field(&l, "  %.1f ms", p->ms);
    put_field(&l, ": device %.1f", p->device_ms);
    put_field(&l, ", host %.1f", p->host_ms);
    put_field(&l, ", wait %.1f", p->wait_ms);
    put_field(&l, ", data %.1f", p->data_ms);
    return l.n;
}

int ui_columns(int fd)
{
    struct winsize w;
    const char *s = getenv("COLUMNS");
    int n = !ioctl(fd, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : s ? atoi(s) : 0;
    return (n > 0 ? n : 80) - 1;
}

void ui_step(ui *u, const an_lm_progress *p)
{
    char text[240];
    uint64_t now = clock_ns();
    u->ms = u->ms > 0 ? 0.9 * u->ms + 0.1 * p->ms : p->ms;
    if (u->terminal) {
        if (p->step < p->steps && now - u->last_ns < 100000000u) return;
        int width = ui_columns(STDERR_FILENO), n = ui_line(u, p, width, text, sizeof text);
        fprintf(stderr, "\r%s%*s", text, MAX(MIN(u->shown, width) - n, 0), "");
        fflush(stderr);
        u->shown = n, u->last_ns = now;
        return;
    }
    int64_t every = u->every > 0 ? u->every : MAX(p->steps / 20, 1);
    if (p->step % every && p->step != p->steps) return;
    ui_line(u, p, (int)sizeof text - 1, text, sizeof text);
    fprintf(stderr, "%s\n", text);
}

void ui_clear(ui *u)
{
    if (!u->terminal || !u->shown) return;
    fprintf(stderr, "\r%*s\r", u->shown, "");
    fflush(stderr);
    u->shown = 0, u->last_ns = 0;
}

void ui_put(ui *u, const char *text)
{
    if (u->shared) ui_clear(u);
    puts(text);
    fflush(stdout);
}

void ui_end(ui *u)
{
    if (u->terminal && u->shown) fputc('\n', stderr);
    u->shown = 0;
}
