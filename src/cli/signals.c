/* signals.c: the first signal ends a run after the update it is in, the second one at once. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "cli/signals.h"

static volatile sig_atomic_t asked;

static void on_signal(int sig)
{
    /* a terminal that closes may send SIGHUP twice: itself, and by its shell */
    if (asked && sig != SIGHUP) _exit(128 + sig);
    asked = sig;
}

void signals_catch(void)
{
    struct sigaction s = { .sa_handler = on_signal }, before;
    sigemptyset(&s.sa_mask);
    s.sa_flags = SA_RESTART; /* a write that is under way is finished */
    sigaction(SIGINT, &s, NULL);
    sigaction(SIGTERM, &s, NULL);
    /* ignored: nohup */
    if (!sigaction(SIGHUP, NULL, &before) && before.sa_handler != SIG_IGN) sigaction(SIGHUP, &s, NULL);
    /* a file that may grow no further, a pipe without a reader: an error of the write, not the end of the run */
    s.sa_handler = SIG_IGN;
    sigaction(SIGXFSZ, &s, NULL);
    sigaction(SIGPIPE, &s, NULL);
}

bool signals_asked(void) { return asked != 0; }

/* A mask outlives exec, and what it holds back stays pending; what was noted before would be forgotten. */
static void mask(int how)
{
    sigset_t all;
    sigemptyset(&all);
    sigaddset(&all, SIGINT), sigaddset(&all, SIGTERM), sigaddset(&all, SIGHUP);
    pthread_sigmask(how, &all, NULL);
}

void signals_hold(void) { mask(SIG_BLOCK); }
void signals_release(void) { mask(SIG_UNBLOCK); }

/* A pipe whose other end was closed. A terminal that was hung up is not meant: a run may outlive it. */
static bool is_unread(int fd)
{
    struct pollfd p = { .fd = fd };
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR) && !(p.revents & POLLHUP);
}

/* Both may be one pipe (2>&1), and standard error is the one that is written to all the time: a failure of either is
 * a reason to look at standard output. */
bool signals_stop(bool *unread)
{
    if ((ferror(stdout) || ferror(stderr)) && is_unread(STDOUT_FILENO)) *unread = true;
    return asked || *unread;
}

int say_unread(void) { return say(AN_INPUT, "nobody reads standard output any more (%s)", strerror(EPIPE)); }
