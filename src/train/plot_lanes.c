/* plot_lanes.c: what ran where and when: sums, the last update drawn to scale, and a trace for a browser. */
#include <pthread.h>
#include <stdlib.h>

#include "train/plot.h"

enum { MOST = 1000000, MAX_LANES = 8, MAX_KINDS = 64 };

struct plot_lanes {
    pthread_mutex_t lock;
    pipe_event *at;
    size_t n, cap, lost;
    uint64_t mark[2]; /* ends of the last update and of the one before it */
    uint64_t updates;
};

plot_lanes *plot_lanes_new(void)
{
    plot_lanes *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    if (pthread_mutex_init(&l->lock, NULL)) return free(l), NULL;
    l->mark[0] = l->mark[1] = clock_ns();
    return l;
}

void plot_lanes_free(plot_lanes *l)
{
    if (!l) return;
    pthread_mutex_destroy(&l->lock);
    free(l->at);
    free(l);
}

void plot_lanes_add(plot_lanes *l, const pipe_event *e)
{
    pthread_mutex_lock(&l->lock);
    if (l->n == l->cap && l->cap < MOST) {
        size_t cap = l->cap ? l->cap * 2 : 1024;
        pipe_event *more = realloc(l->at, cap * sizeof *more);
        if (more) l->at = more, l->cap = cap;
    }
    if (l->n < l->cap) l->at[l->n++] = *e;
    else l->lost++;
    pthread_mutex_unlock(&l->lock);
}

void plot_lanes_mark(plot_lanes *l)
{
    l->mark[1] = l->mark[0], l->mark[0] = clock_ns();
    l->updates++;
}

/* ---- sums ---- */

typedef struct {
    const char *lane, *what;
    uint64_t count, ns;
} kind;
typedef struct {
    const char *name;
    uint64_t first, last, busy;
} lane;
typedef struct {
    kind k[MAX_KINDS];
    lane lane[MAX_LANES];
    int n_kinds, n_lanes;
} sums;

static int lane_of(sums *s, const char *name)
{
    for (int i = 0; i < s->n_lanes; i++)
        if (!strcmp(s->lane[i].name, name)) return i;
    if (s->n_lanes == MAX_LANES) return -1;
    s->lane[s->n_lanes] = (lane){ .name = name, .first = UINT64_MAX };
    return s->n_lanes++;
}

static void add_up(sums *s, const plot_lanes *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const pipe_event *e = &l->at[i];
        int at = lane_of(s, e->lane), k = 0;
        if (at < 0) continue;
        s->lane[at].first = MIN(s->lane[at].first, e->begin), s->lane[at].last = MAX(s->lane[at].last, e->end),
        s->lane[at].busy += e->end - e->begin;
        while (k < s->n_kinds && (strcmp(s->k[k].lane, e->lane) || strcmp(s->k[k].what, e->what))) k++;
        if (k == MAX_KINDS) continue;
        if (k == s->n_kinds) s->k[s->n_kinds++] = (kind){ .lane = e->lane, .what = e->what };
        s->k[k].count++, s->k[k].ns += e->end - e->begin;
    }
}

static size_t next_of(const plot_lanes *l, size_t i, const char *name)
{
    while (i < l->n && strcmp(l->at[i].lane, name)) i++;
    return i;
}

/* Time in which both lanes were busy. Within a lane one thing ends before the next begins. */
static uint64_t at_once(const plot_lanes *l, const char *a, const char *b)
{
    uint64_t sum = 0;
    size_t i = next_of(l, 0, a), j = next_of(l, 0, b);
    while (i < l->n && j < l->n) {
        const pipe_event *x = &l->at[i], *y = &l->at[j];
        uint64_t from = MAX(x->begin, y->begin), to = MIN(x->end, y->end);
        if (to > from) sum += to - from;
        if (x->end <= y->end) i = next_of(l, i + 1, a);
        else j = next_of(l, j + 1, b);
    }
    return sum;
}

static int longest_first(const void *a, const void *b)
{
    const kind *x = a, *y = b;
    int c = strcmp(x->lane, y->lane);
    return c ? c : (x->ns < y->ns) - (x->ns > y->ns);
}

/* ---- text ---- */

/* A letter for each kind of work of a lane, in the table's order. */
static char letter_of(const sums *s, const pipe_event *e)
{
    for (int k = 0; k < s->n_kinds; k++)
        if (!strcmp(s->k[k].lane, e->lane) && !strcmp(s->k[k].what, e->what))
            return k < 26 ? (char)('a' + k) : k < 52 ? (char)('A' + k - 26) : '#';
    return '#';
}

static void put_picture(strbuf *b, const plot_lanes *l, const sums *s, int cols)
{
    char row[MAX_LANES][256];
    uint64_t from = l->mark[1], to = l->mark[0];
    if (to <= from) return;
    cols = MIN(MAX(cols, 20), 240);
    for (int i = 0; i < s->n_lanes; i++) memset(row[i], '.', (size_t)cols);
    for (size_t i = 0; i < l->n; i++) {
        const pipe_event *e = &l->at[i];
        int at = -1;
        for (int k = 0; k < s->n_lanes; k++)
            if (!strcmp(s->lane[k].name, e->lane)) at = k;
        if (at < 0 || e->end <= from || e->begin >= to) continue;
        uint64_t begin = MAX(e->begin, from) - from, end = MIN(e->end, to) - from, span = to - from;
        int x0 = (int)((double)begin / (double)span * cols), x1 = (int)((double)end / (double)span * cols);
        for (int x = x0; x <= MIN(MAX(x1 - 1, x0), cols - 1); x++) row[at][x] = letter_of(s, e);
    }
    sb_printf(b, "the last update, %.2f ms from left to right; a dot is waiting\n", (double)(to - from) / 1e6);
    for (int i = 0; i < s->n_lanes; i++) {
        sb_printf(b, "%-8s ", s->lane[i].name);
        sb_putn(b, row[i], (size_t)cols);
        sb_putc(b, '\n');
    }
}

void plot_lanes_text(strbuf *b, plot_lanes *l, int cols)
{
    pthread_mutex_lock(&l->lock);
    sums s = { 0 };
    add_up(&s, l);
    qsort(s.k, (size_t)s.n_kinds, sizeof *s.k, longest_first);
    sb_printf(b, "%llu updates, %zu events%s\n", (unsigned long long)l->updates, l->n,
              l->lost ? " kept, later ones not" : "");
    sb_printf(b, "  %-8s %-20s %10s %12s %10s %7s\n", "lane", "work", "times", "total ms", "mean ms", "share");
    for (int k = 0; k < s.n_kinds; k++) {
        const lane *at = &s.lane[lane_of(&s, s.k[k].lane)];
        double span = (double)MAX(at->last - at->first, 1);
        sb_printf(b, "%c %-8s %-20s %10llu %12.2f %10.3f %6.1f%%\n",
                  k < 26   ? 'a' + k
                  : k < 52 ? 'A' + k - 26
                           : '#',
                  s.k[k].lane, s.k[k].what, (unsigned long long)s.k[k].count, (double)s.k[k].ns / 1e6,
                  (double)s.k[k].ns / 1e6 / (double)s.k[k].count, 100 * (double)s.k[k].ns / span);
    }
    for (int i = 0; i < s.n_lanes; i++) {
        uint64_t span = s.lane[i].last - s.lane[i].first, idle = span > s.lane[i].busy ? span - s.lane[i].busy : 0;
        sb_printf(b, ". %-8s %-20s %10s %12.2f %10s %6.1f%%\n", s.lane[i].name, "waiting", "", (double)idle / 1e6, "",
                  100 * (double)idle / (double)MAX(span, 1));
    }
    if (next_of(l, 0, "host") < l->n)
        sb_printf(b, "  device and host at once %28.2f ms\n", (double)at_once(l, "device", "host") / 1e6);
    put_picture(b, l, &s, cols);
    pthread_mutex_unlock(&l->lock);
}

/* ---- a trace ---- */

static const char HEAD[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", TAIL[] = "\n]}\n",
                  PROCESS[] = "\"process_name\"";

/* How many processes a trace made here has; 0: it is no such trace. */
static int processes(const char *text, size_t n)
{
    int found = 0;
    size_t k = strlen(PROCESS);
    if (n < strlen(HEAD) + strlen(TAIL) || memcmp(text, HEAD, strlen(HEAD)) ||
        memcmp(text + n - strlen(TAIL), TAIL, strlen(TAIL)))
        return 0;
    for (const char *at = text, *end = text + n; (at = memchr(at, '"', (size_t)(end - at))) && (size_t)(end - at) >= k;
         at++)
        found += !memcmp(at, PROCESS, k);
    return found;
}

static void put_events(strbuf *b, const plot_lanes *l, sums *s, int pid)
{
    sb_printf(b, "{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":\"anneal train\"}}",
              pid);
    for (int i = 0; i < s->n_lanes; i++) {
        sb_printf(b, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":", pid, i + 1);
        sb_json(b, s->lane[i].name, strlen(s->lane[i].name));
        sb_puts(b, "}}");
    }
    for (size_t i = 0; i < l->n; i++) {
        const pipe_event *e = &l->at[i];
        int at = lane_of(s, e->lane);
        if (at < 0) continue;
        sb_printf(b, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":", pid, at + 1,
                  (double)e->begin / 1e3, (double)(e->end - e->begin) / 1e3);
        sb_json(b, e->what, strlen(e->what));
        if (e->layer >= 0) sb_printf(b, ",\"args\":{\"layer\":%d}", e->layer);
        sb_putc(b, '}');
    }
}

void plot_lanes_trace(strbuf *b, plot_lanes *l, const char *before, size_t n)
{
    pthread_mutex_lock(&l->lock);
    sums s = { 0 };
    add_up(&s, l);
    int pid = processes(before, n) + 1;
    if (pid > 1) sb_putn(b, before, n - strlen(TAIL)), sb_puts(b, ",\n");
    else sb_puts(b, HEAD);
    put_events(b, l, &s, pid);
    sb_puts(b, TAIL);
    pthread_mutex_unlock(&l->lock);
}
