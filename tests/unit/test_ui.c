/* test_ui: the live line: never wider than the terminal, whose width is asked for; what does not fit goes from the
 * right. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/ui.c"
#include "t.h"

static const an_lm_progress p = { .step = 123, .steps = 300, .loss = 2.34567, .smooth = 2.45678, .tokens = 1024,
                                  .ms = 151.52, .data_ms = 0.12, .device_ms = 100.34, .host_ms = 80.56,
                                  .wait_ms = 20.78 };
static const char whole[] =
    "step 123/300  loss 2.346 (2.457)  6758 tok/s  left 0:27  151.5 ms: device 100.3, host 80.6, wait 20.8, data 0.1";

static void fits(void **state)
{
    (void)state;
    ui u = { .ms = p.ms };
    char text[240];
    assert_int_equal(ui_line(&u, &p, 200, text, sizeof text), (int)strlen(whole));
    assert_string_equal(text, whole);
    for (int width = 0; width < 130; width++) {
        int n = ui_line(&u, &p, width, text, sizeof text);
        assert_true(n <= width && n == (int)strlen(text));
        assert_memory_equal(text, whole, (size_t)n); /* a beginning of it, cut between fields */
        assert_true(!n || !whole[n] || strchr(" :,", whole[n]));
    }
    ui_line(&u, &p, 79, text, sizeof text);
    assert_string_equal(text, "step 123/300  loss 2.346 (2.457)  6758 tok/s  left 0:27  151.5 ms: device 100.3");
}

/* What a terminal of so many columns is sent; 0: one that does not know its width. */
static int drawn(int columns, const char *environment)
{
    char got[600] = "";
    int master = posix_openpt(O_RDWR | O_NOCTTY), kept = dup(STDERR_FILENO);
    assert_true(master >= 0 && kept >= 0 && !grantpt(master) && !unlockpt(master));
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    struct winsize w = { .ws_col = (unsigned short)columns, .ws_row = 24 };
    assert_true(slave >= 0 && !ioctl(slave, TIOCSWINSZ, &w));
    if (environment) setenv("COLUMNS", environment, 1);
    else unsetenv("COLUMNS");
    setenv("TERM", "xterm", 1);
    fflush(stderr);
    assert_true(dup2(slave, STDERR_FILENO) >= 0);
    ui u;
    ui_begin(&u, 0);
    bool terminal = u.terminal;
    ui_step(&u, &p);
    fflush(stderr);
    assert_true(dup2(kept, STDERR_FILENO) >= 0);
    ssize_t n = read(master, got, sizeof got - 1);
    close(slave), close(master), close(kept);
    assert_true(terminal && n > 1 && got[0] == '\r');
    return (int)n - 1;
}

static void terminals(void **state)
{
    (void)state;
    assert_true(drawn(80, NULL) <= 79 && drawn(80, "200") <= 79);
    assert_true(drawn(40, NULL) <= 39);
    assert_int_equal(drawn(200, NULL), (int)strlen(whole));
    assert_int_equal(drawn(0, "150"), (int)strlen(whole));
    assert_true(drawn(0, "60") <= 59);
    assert_true(drawn(0, NULL) <= 79 && drawn(0, NULL) > 60);
}

/* A line on standard output stands alone, wherever that goes: behind the live one on the same terminal it would not.
 */
static void lines_between(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        char got[1200] = "", want[300];
        int master = posix_openpt(O_RDWR | O_NOCTTY), kept[3] = { -1, dup(STDOUT_FILENO), dup(STDERR_FILENO) };
        assert_true(master >= 0 && !grantpt(master) && !unlockpt(master));
        int slave = open(ptsname(master), O_RDWR | O_NOCTTY), nowhere = open("/dev/null", O_WRONLY);
        struct winsize w = { .ws_col = 200, .ws_row = 24 };
        assert_true(slave >= 0 && nowhere >= 0 && !ioctl(slave, TIOCSWINSZ, &w));
        fflush(stdout), fflush(stderr);
        assert_true(dup2(shared ? slave : nowhere, STDOUT_FILENO) >= 0 && dup2(slave, STDERR_FILENO) >= 0);
        ui u;
        ui_begin(&u, 0);
        ui_step(&u, &p);
        ui_put(&u, "{}");
        const bool cleared = !u.shown;
        fflush(stderr);
        assert_true(dup2(kept[1], STDOUT_FILENO) >= 0 && dup2(kept[2], STDERR_FILENO) >= 0);
        ssize_t n = read(master, got, sizeof got - 1);
        close(slave), close(nowhere), close(master), close(kept[1]), close(kept[2]);
        if (shared) snprintf(want, sizeof want, "\r%s\r%*s\r{}\r\n", whole, (int)strlen(whole), "");
        else snprintf(want, sizeof want, "\r%s", whole);
        assert_true(n > 0);
        assert_string_equal(got, want);
        assert_true(cleared == shared); /* elsewhere it stays, and is not drawn ten times as often */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(fits), cmocka_unit_test(terminals),
                                        cmocka_unit_test(lines_between) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
