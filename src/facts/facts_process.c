/* facts_process.c: a checker's work in several processes at once. In: a function of the number of its process.  Out:
 * what each of them found. A child ends here and never returns to the caller. */
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "facts/facts_int.h"

/* One child's answer. Small enough that a pipe takes it whole. */
typedef struct {
    int i;
    an_status st;
    char msg[200];
    unsigned char result[FX_RESULT];
} answer;

struct fx_gate {
    int ready[2], go[2], answers[2]; /* pipes: children that have come, leave to go on, what they found; -1: closed */
};
typedef struct fx_gate gate;

static bool read_all(int fd, void *to, size_t n)
{
    for (char *at = to; n;) {
        ssize_t k = read(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        at += k, n -= (size_t)k;
    }
    return true;
}

static void write_all(int fd, const void *from, size_t n)
{
    for (const char *at = from; n;) {
        ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return; /* nobody reads any more */
        at += k, n -= (size_t)k;
    }
}

static void shut(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static bool gate_open(gate *g) { return !pipe(g->ready) && !pipe(g->go) && !pipe(g->answers); }

static void gate_close(gate *g)
{
    for (int k = 0; k < 2; k++) shut(&g->ready[k]), shut(&g->go[k]), shut(&g->answers[k]);
}

void fx_meet(fx *f)
{
    char c = 0;
    if (!f->gate || f->gate->ready[1] < 0) return;
    write_all(f->gate->ready[1], &c, 1);
    shut(&f->gate->ready[1]);
    (void)read_all(f->gate->go[0], &c, 1); /* ends when the parent closes it */
}

_Noreturn static void be_child(const fx *of, gate *g, int i, fx_child *child)
{
    fact_result r;
    diag d = { 0 };
    answer a = { .i = i };
    shut(&g->ready[0]), shut(&g->go[1]), shut(&g->answers[0]);
    fx f = { .row = of->row, .n_chips = of->n_chips, .r = &r, .d = &d, .gate = g };
    memcpy(f.chip, of->chip, sizeof f.chip);
    a.st = child(&f, i, a.result);
    snprintf(a.msg, sizeof a.msg, "%.199s", d.msg);
    shut(&g->ready[1]); /* one that failed does not keep the others */
    write_all(g->answers[1], &a, sizeof a);
    _exit(0); /* nothing of the parent's is flushed twice */
}

/* Waits until all have come or ended, lets them go on, and takes their answers. */
static an_status collect(fx *f, gate *g, int n, void *results, size_t bytes)
{
    char c;
    int come = 0, answered = 0;
    an_status st = AN_OK;
    shut(&g->ready[1]), shut(&g->go[0]), shut(&g->answers[1]);
    while (come < n && read_all(g->ready[0], &c, 1)) come++;
    shut(&g->go[1]);
    for (answer a; answered < n && read_all(g->answers[0], &a, sizeof a); answered++) {
        if (a.st && !st)
            st = a.st == AN_NOMEM ? diag_nomem(f->d) : diag_fail(f->d, a.st, NOWHERE, "process %d: %s", a.i, a.msg);
        memcpy((char *)results + (size_t)a.i * bytes, a.result, bytes);
    }
    if (!st && answered < n)
        st = diag_fail(f->d, AN_BUG, NOWHERE, "%d of %d processes ended without an answer", n - answered, n);
    return st;
}

an_status fx_fork(fx *f, int n, fx_child *child, void *results, size_t bytes)
{
    gate g = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
    pid_t id[FX_PROCESSES];
    int started = 0;
    if (n > FX_PROCESSES || bytes > FX_RESULT) return diag_fail(f->d, AN_BUG, NOWHERE, "%d processes with %zu bytes each", n, bytes);
    bool ok = gate_open(&g);
    for (; ok && started < n; started++) {
        id[started] = fork();
        if (!id[started]) be_child(f, &g, started, child);
        if (id[started] < 0) break;
    }
    /* no pipe or no process to be had */
    an_status st = ok && started == n ? collect(f, &g, n, results, bytes) : diag_nomem(f->d);
    gate_close(&g); /* children of a start that failed go on, and their answers go nowhere */
    for (int i = 0; i < started; i++)
        while (waitpid(id[i], NULL, 0) < 0 && errno == EINTR) {}
    return st;
}
