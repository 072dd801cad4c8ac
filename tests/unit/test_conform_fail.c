/* test_conform_fail: every device, with a failure at each step of everything a caller does: it says so, nothing
 * leaks, and it goes on. */
#include "conform.h"

typedef struct {
    int left;     /* steps until one fails; negative: never */
    int seen;
    bool fired;
    const char *where; /* it did */
} fault;

static bool fail_at(void *user, const char *where)
{
    fault *f = user;
    f->seen++;
    if (f->left < 0 || f->left--) return false;
    f->fired = true, f->where = where;
    return true;
}

/* Everything a caller does, stopping at the first failure and leaving what it has to the device. */
static an_status scenario(device *dev, const strbuf *w, const strbuf *w3, diag *d)
{
    dev_program *p;
    dev_surface *x, *y;
    dev_request *r;
    dev_canary c = { 0 };
    dev_weights fresh = WITH_WEIGHTS(*w3);
    dev_source src = { .text = CONV_TEXT, .n_text = strlen(CONV_TEXT), .weights = WITH_WEIGHTS(*w) };
    TRY(device_compile(dev, &src, &p, d));
    TRY(dev_program_load(p, d));
    TRY(dev_surface_new(dev, dev_program_surface_bytes(p, DEV_INPUT), &x, d));
    TRY(dev_surface_new(dev, dev_program_surface_bytes(p, DEV_OUTPUT), &y, d));
    TRY(dev_request_new(p, &r, d));
    TRY(dev_request_bind(r, DEV_INPUT, "x", x, d));
    TRY(dev_request_bind(r, DEV_OUTPUT, "y", y, d));
    TRY(device_submit(r, DEV_QOS, d));
    TRY(device_wait(r, d));
    TRY(dev_program_reload(p, &fresh, &c, d));
    TRY(device_run(r, DEV_QOS, d));
    TRY(dev_program_unload(p, d));
    TRY(dev_program_load(p, d));
    return device_run(r, DEV_QOS, d);
}

static void failures(void **state)
{
    strbuf w = weight_file(2, 0), w3 = weight_file(3, 0);
    dev_cache *cache;
    diag d0 = { 0 };
    assert_ok(dev_cache_open(&cache, &(dev_cache_options){ .memory_only = true }, &d0), d0);
    int steps = 0;
    for (int with_cache = 0; with_cache < 2; with_cache++)
        for (int k = 0;; k++) {
            fault f = { .left = k };
            device *dev = NULL;
            diag d = { 0 };
            device_options o = {
                .threads = 2, .fault = fail_at, .user = &f, .own_budget = true, .cache = with_cache ? cache : NULL
            };
            an_status st = device_open(&dev, name_of(state), &o, &d);
            if (!st) st = scenario(dev, &w, &w3, &d);
            else assert_null(dev);
            if (!f.fired) {
                assert_ok(st, d);
                device_close(dev);
                break;
            }
            /* a thread that cannot be had is done without; everything else says so */
            if (st != (strcmp(f.where, "thread") ? AN_NOMEM : AN_OK))
                fail_msg("%s: status %d: %s", f.where, (int)st, d.msg);
            if (st) assert_true(d.msg[0]);
            if (dev) { /* the device goes on as if nothing had been */
                device_stats stats;
                device_get_stats(dev, &stats);
                assert_int_equal(stats.failed, !strcmp(f.where, "dispatch"));
                diag again = { 0 };
                assert_ok(scenario(dev, &w, &w3, &again), again);
            }
            device_close(dev); /* with everything still alive on it */
            steps++;
            assert_true(k < 500);
        }
    assert_true(steps > 20);
    dev_cache_close(cache);
    sb_free(&w);
    sb_free(&w3);
}

static const conform_row suite[] = { ROW(failures) };

int main(void) { return conform_main("conform_fail", suite, COUNT(suite)); }
