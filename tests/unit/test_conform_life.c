/* test_conform_life: what every device must do over time: queues, threads, limits, budgets of the process, life and
 * death of what it gave out, programs as bytes, its cache; and the same bits at every run. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "conform.h"

/* ---- queueing ---- */

static void queueing(void **state)
{
    enum { DEPTH = 5 };
    device *dev = OPEN_LIMITS(state, { "queue_depth", DEPTH });
    dev_program *p = must_compile(dev, STATE_TEXT, NULL), *q = must_compile(dev, STATE_TEXT, NULL);
    bound b = must_bind(dev, p), c = must_bind(dev, q);
    diag d = { 0 };
    assert_refused(dev, device_wait(b.r, &d), AN_INPUT, &d, 8, 0xe00002d0, "not submitted");
    d = (diag){ 0 };
    /* a chain of dispatches over one surface: the order of submission shows in the result */
    dev_request *r[DEPTH + 1];
    for (int i = 0; i <= DEPTH; i++) {
        assert_ok(dev_request_new(p, &r[i], &d), d);
        assert_ok(dev_request_bind(r[i], DEV_INPUT, "s", b.s[0][0], &d), d);
        assert_ok(dev_request_bind(r[i], DEV_OUTPUT, "next", b.s[0][0], &d), d);
        assert_ok(dev_request_bind(r[i], DEV_OUTPUT, "twice", b.s[1][1], &d), d);
    }
    for (int i = 0; i < DEPTH; i++) assert_ok(device_submit(r[i], i, &d), d);
    assert_refused(dev, device_submit(r[DEPTH], DEV_QOS, &d), AN_UNSUPPORTED, &d, 8, 0xe0000007, "5 is the most");
    d = (diag){ 0 };
    assert_ok(device_submit(c.r, DEV_QOS, &d), d); /* the depth is per program */
    assert_refused(dev, device_submit(r[0], DEV_QOS, &d), AN_UNSUPPORTED, &d, 8, 0xe0000007, "submitted already");
    d = (diag){ 0 };
    assert_refused(dev, dev_request_bind(r[0], DEV_INPUT, "s", b.s[0][0], &d), AN_UNSUPPORTED, &d, 8, 0xe0000007,
                   "wait for it");
    d = (diag){ 0 };
    assert_ok(device_wait(r[3], &d), d); /* any order of waiting */
    assert_ok(device_submit(r[DEPTH], DEV_QOS, &d), d);
    for (int i = DEPTH; i >= 0; i--)
        if (i != 3) assert_ok(device_wait(r[i], &d), d);
    assert_ok(device_wait(c.r, &d), d);
    if (device_computes(dev)) {
        CLOSE_TO(get_f16(b.s[0][0], 0), DEPTH + 1);
        CLOSE_TO(get_f16(b.s[1][1], 0), 2 * DEPTH);
        CLOSE_TO(get_f16(c.s[1][0], 0), 1);
    }
    /* locked surfaces stay out of the queue; reading waits for it */
    void *at;
    assert_ok(dev_surface_lock(b.s[0][0], false, &at, &d), d);
    assert_refused(dev, device_submit(r[0], DEV_QOS, &d), AN_UNSUPPORTED, &d, 8, 0xe0000007, "locked");
    d = (diag){ 0 };
    assert_refused(dev, dev_surface_lock(b.s[0][0], false, &at, &d), AN_UNSUPPORTED, &d, 8, 0xe0000007,
                   "locked already");
    d = (diag){ 0 };
    assert_ok(dev_surface_unlock(b.s[0][0], &d), d);
    device_stats before, after;
    device_get_stats(dev, &before);
    assert_refused(dev, dev_surface_unlock(b.s[0][0], &d), AN_INPUT, &d, 8, 0xe00002c2, "not locked");
    device_get_stats(dev, &after);
    assert_true(after.bytes_to_device == before.bytes_to_device && after.bytes_from_device == before.bytes_from_device);
    d = (diag){ 0 };
    for (int i = 0; i < DEPTH; i++) assert_ok(device_submit(r[i], DEV_QOS, &d), d);
    if (device_computes(dev)) CLOSE_TO(get_f16(b.s[0][0], 0), 2 * DEPTH + 1);
    for (int i = 0; i <= DEPTH; i++) dev_request_free(r[i]); /* not waited for: freeing does */
    assert_ok(device_run(b.r, DEV_QOS, &d), d);              /* and they are none of the queue any more */
    drop_bound(&b);
    drop_bound(&c);
    dev_program_free(p);
    dev_program_free(q);
    close_clean(dev);
}

typedef struct {
    dev_request *r;
    an_status st;
    int runs;
} runner;

static void *run_many(void *user)
{
    runner *x = user;
    diag d = { 0 };
    for (int i = 0; i < x->runs && !x->st; i++)
        x->st = i % 2 ? device_run(x->r, DEV_QOS, &d) : device_submit(x->r, DEV_QOS, &d) ? d.st : device_wait(x->r, &d);
    return NULL;
}

/* Several threads on one state: dispatches never overlap, none is lost. */
static void threads(void **state)
{
    enum { THREADS = 4, RUNS = 50 };
    device *dev = OPEN(state);
    dev_program *p = must_compile(dev, STATE_TEXT, NULL);
    bound b = must_bind(dev, p);
    diag d = { 0 };
    runner x[THREADS];
    dev_surface *own[THREADS];
    pthread_t id[THREADS];
    for (int i = 0; i < THREADS; i++) {
        x[i] = (runner){ .runs = RUNS };
        own[i] = must_surface(dev, dev_surface_bytes(b.s[0][0]));
        assert_ok(dev_request_new(p, &x[i].r, &d), d);
        assert_ok(dev_request_bind(x[i].r, DEV_INPUT, "s", b.s[0][0], &d), d);
        assert_ok(dev_request_bind(x[i].r, DEV_OUTPUT, "next", b.s[0][0], &d), d);
        assert_ok(dev_request_bind(x[i].r, DEV_OUTPUT, "twice", own[i], &d), d);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&id[i], NULL, run_many, &x[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(id[i], NULL);
        assert_int_equal(x[i].st, AN_OK);
    }
    if (device_computes(dev)) CLOSE_TO(get_f16(b.s[0][0], 9), THREADS * RUNS);
    device_stats st;
    device_get_stats(dev, &st);
    assert_int_equal(st.dispatches, THREADS * RUNS);
    for (int i = 0; i < THREADS; i++) {
        dev_request_free(x[i].r);
        dev_surface_free(own[i]);
    }
    drop_bound(&b);
    dev_program_free(p);
    close_clean(dev);
}

/* A dispatch that dwells shows whoever enters beside it. */
typedef struct {
    atomic_int inside, most;
} corridor;

static bool dwell(void *user, const char *where)
{
    corridor *c = user;
    if (strcmp(where, "dispatch")) return false;
    int now = atomic_fetch_add(&c->inside, 1) + 1, seen = atomic_load(&c->most);
    while (now > seen && !atomic_compare_exchange_weak(&c->most, &seen, now)) {}
    nanosleep(&(struct timespec){ .tv_nsec = 500000 }, NULL);
    atomic_fetch_sub(&c->inside, 1);
    return false;
}

/* However many threads submit, wait and read, to two programs: one dispatch at a time. */
static void one_at_a_time(void **state)
{
    enum { THREADS = 4, RUNS = 10 };
    corridor c = { 0 };
    device *dev;
    diag d = { 0 };
    device_options o = { .threads = 1, .own_budget = true, .fault = dwell, .user = &c };
    assert_ok(device_open(&dev, name_of(state), &o, &d), d);
    dev_program *p[2] = { must_compile(dev, STATE_TEXT, NULL), must_compile(dev, STATE_TEXT, NULL) };
    bound b[THREADS];
    runner x[THREADS];
    pthread_t id[THREADS];
    for (int i = 0; i < THREADS; i++) b[i] = must_bind(dev, p[i % 2]), x[i] = (runner){ .r = b[i].r, .runs = RUNS };
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&id[i], NULL, run_many, &x[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(id[i], NULL);
        assert_int_equal(x[i].st, AN_OK);
    }
    assert_int_equal(atomic_load(&c.most), 1);
    device_stats st;
    device_get_stats(dev, &st);
    assert_int_equal(st.dispatches, THREADS * RUNS);
    for (int i = 0; i < THREADS; i++) drop_bound(&b[i]);
    for (int i = 0; i < 2; i++) dev_program_free(p[i]);
    close_clean(dev);
}

/* ---- limits and life ---- */

static an_status try_compile(device *dev, const char *text, dev_program **p, diag *d)
{
    return device_compile(dev, &(dev_source){ .text = text, .n_text = strlen(text) }, p, d);
}

static void limits(void **state)
{
    diag d = { 0 };
    dev_program *p[3], *q;
    device *dev = OPEN_LIMITS(state, { "compiles", 3 }, { "reclaim", 0 }, { "loaded", 2 });
    for (int i = 0; i < 3; i++) assert_ok(try_compile(dev, STATE_TEXT, &p[i], &d), d);
    assert_refused(dev, try_compile(dev, STATE_TEXT, &q, &d), AN_UNSUPPORTED, &d, 1, 0, "the budget is 3");
    d = (diag){ 0 };
    for (int i = 0; i < 2; i++) assert_ok(dev_program_load(p[i], &d), d);
    assert_refused(dev, dev_program_load(p[2], &d), AN_UNSUPPORTED, &d, 5, 0, "2 is the most");
    engine_error e;
    device_error(dev, &e);
    assert_non_null(strstr(e.text, "GetANEFModel: must re-compile"));
    d = (diag){ 0 };
    assert_ok(dev_program_unload(p[0], &d), d);
    assert_ok(dev_program_load(p[2], &d), d);
    for (int i = 0; i < 3; i++) dev_program_free(p[i]);
    assert_int_equal(try_compile(dev, STATE_TEXT, &q, &d), AN_UNSUPPORTED);
    close_clean(dev);

    dev = OPEN_LIMITS(state, { "compiles", 1 }, { "reclaim", 1 });
    d = (diag){ 0 };
    for (int i = 0; i < 3; i++) {
        assert_ok(try_compile(dev, STATE_TEXT, &q, &d), d);
        assert_int_equal(try_compile(dev, STATE_TEXT, &p[0], &(diag){ 0 }), AN_UNSUPPORTED);
        dev_program_free(q);
    }
    close_clean(dev);

    dev = OPEN_LIMITS(state, { "window_bytes", 100000 }, { "page_bytes", 16384 });
    dev_surface *s[6];
    for (int i = 0; i < 6; i++) s[i] = must_surface(dev, 1); /* a page each */
    dev_surface *none;
    assert_refused(dev, dev_surface_new(dev, 16384, &none, &d), AN_UNSUPPORTED, &d, 8, 0xe00002bd,
                   "98304 of the 100000");
    assert_null(none);
    for (int i = 0; i < 6; i++) dev_surface_free(s[i]);
    d = (diag){ 0 };
    assert_refused(dev, dev_surface_new(dev, 0, &none, &d), AN_INPUT, &d, 8, 0xe00002c2, "0 bytes");
    close_clean(dev);

    dev = OPEN(state);
    q = must_compile(dev, STATE_TEXT, NULL);
    bound b = must_bind(dev, q);
    d = (diag){ 0 };
    for (int qos = 0; qos < 64; qos += 7) assert_ok(device_run(b.r, qos, &d), d);
    assert_refused(dev, device_run(b.r, -1, &d), AN_INPUT, &d, 8, 0xe00002c2, "quality of service -1");
    if (device_get_limits(dev)->qos_max) {
        d = (diag){ 0 };
        assert_refused(dev, device_run(b.r, 64, &d), AN_INPUT, &d, 8, 0xe00002c2, "0 to 63");
    }
    drop_bound(&b);
    dev_program_free(q);
    close_clean(dev);
}

static void published_limits(void **state)
{
    device *dev = OPEN(state);
    const device_limits *lim = device_get_limits(dev);
    bool plain = device_is_plain(dev);
    assert_int_equal(lim->compiles, plain ? 0 : 119);
    assert_int_equal(lim->loaded, plain ? 0 : 128);
    assert_int_equal(lim->queue_depth, plain ? 0 : 127);
    assert_int_equal(lim->window_bytes, plain ? 0 : 0xE0000000);
    assert_int_equal(lim->page_bytes, plain ? 0 : 16384);
    /* what other tests take as it comes: 768 * 16 * 4 bytes at least, one size a side, packed, one pair, paced */
    assert_int_equal(lim->surface_min, plain ? 0 : 49152);
    assert_int_equal(lim->uniform, plain ? 0 : 1);
    assert_int_equal(lim->alias_pairs, plain ? 0 : 1);
    assert_int_equal(lim->qos_max, plain ? 0 : 63);
    assert_int_equal(lim->pace_ms, plain ? 0 : 15000);
    assert_int_equal(lim->reclaim, plain);
    assert_int_equal(lim->open_images, plain);
    assert_int_equal(lim->chaining, 1);
    assert_true(!lim->row_bytes && !lim->inputs && !lim->stats);
    dev_program *p[140];
    diag d = { 0 };
    int n = 0;
    while (n < 140 && !try_compile(dev, STATE_TEXT, &p[n], &d)) n++;
    assert_int_equal(n, plain ? 140 : 119);
    device_close(dev); /* takes them along */
}

typedef struct {
    device *dev;
    dev_program *p[140];
    int n;
} spender;

static void *spend(void *user)
{
    spender *x = user;
    diag d = { 0 };
    while (x->n < 140 && !try_compile(x->dev, STATE_TEXT, &x->p[x->n], &d)) x->n++;
    return NULL;
}

/* Programs that come from the cache cost no compile, and are loaded all the same. */
static void process_loads(void **state)
{
    enum { MOST = 128 };
    diag d = { 0 };
    dev_cache *cache;
    device *dev[2];
    dev_program *p[MOST], *q;
    assert_ok(dev_cache_open(&cache, &(dev_cache_options){ .memory_only = true }, &d), d);
    for (int i = 0; i < 2; i++)
        assert_ok(device_open(&dev[i], name_of(state), &(device_options){ .threads = 1, .cache = cache }, &d), d);
    for (int i = 0; i < MOST; i++) p[i] = must_compile(dev[i % 2], STATE_TEXT, NULL);
    assert_ok(try_compile(dev[1], STATE_TEXT, &q, &d), d);
    if (device_is_plain(dev[0])) assert_ok(dev_program_load(q, &d), d);
    else {
        assert_refused(dev[1], dev_program_load(q, &d), AN_UNSUPPORTED, &d, 5, 0,
                       "128 programs are loaded in this process, 128 is the most");
        dev_program_free(p[0]);
        p[0] = NULL;
        d = (diag){ 0 };
        assert_ok(dev_program_load(q, &d), d);
    }
    for (int i = 0; i < MOST; i++) dev_program_free(p[i]);
    dev_program_free(q);
    for (int i = 0; i < 2; i++) close_clean(dev[i]);
    dev_cache_close(cache);
}

/* What the profile grants is granted to a process: however many devices it opens, from however many threads. */
static void process_compiles(void **state)
{
    enum { DEVICES = 3 };
    diag d = { 0 };
    spender x[DEVICES] = { { 0 } };
    pthread_t id[DEVICES];
    device_stats before, st;
    for (int i = 0; i < DEVICES; i++)
        assert_ok(device_open(&x[i].dev, name_of(state), &(device_options){ .threads = 1 }, &d), d);
    bool plain = device_is_plain(x[0].dev);
    device_get_stats(x[0].dev, &before); /* another row may have spent some */
    for (int i = 0; i < DEVICES; i++) assert_int_equal(pthread_create(&id[i], NULL, spend, &x[i]), 0);
    int sum = (int)before.budget_used;
    for (int i = 0; i < DEVICES; i++) {
        pthread_join(id[i], NULL);
        sum += x[i].n;
    }
    assert_int_equal(sum, plain ? DEVICES * 140 : 119);
    for (int i = 0; i < DEVICES; i++) {
        device_get_stats(x[i].dev, &st);
        assert_int_equal(st.compiles, x[i].n);
        assert_int_equal(st.budget_used, plain ? 140 : 119);
        device_close(x[i].dev);
    }
    if (plain) return;
    dev_program *q; /* closing gives nothing back; a device with a budget of its own has it still */
    device *dev;
    assert_ok(device_open(&dev, name_of(state), &(device_options){ .threads = 1 }, &d), d);
    assert_refused(dev, try_compile(dev, STATE_TEXT, &q, &d), AN_UNSUPPORTED, &d, 1, 0,
                   "119 programs were compiled in this process and the budget is 119");
    close_clean(dev);
    d = (diag){ 0 };
    dev = OPEN(state);
    assert_ok(try_compile(dev, STATE_TEXT, &q, &d), d);
    device_close(dev);
    /* whoever sets one counts for itself */
    static const device_limit own[] = { { "compiles", 1 }, { "reclaim", 0 }, { "loaded", 1 } };
    for (size_t i = 0; i < COUNT(own); i++) {
        assert_ok(
            device_open(&dev, name_of(state), &(device_options){ .threads = 1, .limit = &own[i], .n_limit = 1 }, &d),
            d);
        assert_ok(try_compile(dev, STATE_TEXT, &q, &d), d);
        device_close(dev);
    }
}

/* A compile soon after one that failed is counted, whatever made that one fail. */
static void pacing(void **state)
{
    static const char *const bad_type = MIL_HEAD "func main<ios18>(tensor<fp16, [1, 8, 1, 32]> x) {\n"
                                                 "tensor<fp16, [1, 9, 1, 32]> y = add(x = x, y = x)[name = string(\"y\")];\n} -> (y);\n}\n";
    static const char *const bad[] = { "no text at all", bad_type };
    device *dev = OPEN_LIMITS(state, { "pace_ms", (int64_t)1 << 58 }); /* in ns no number of 64 bits */
    device_stats st;
    diag d = { 0 };
    dev_program *p, *q;
    for (int k = 0; k < (int)COUNT(bad); k++) {
        assert_int_equal(try_compile(dev, bad[k], &p, &(diag){ 0 }), AN_INPUT);
        device_get_stats(dev, &st);
        assert_int_equal(st.compile_failures, 1 + k);
        assert_int_equal(st.unpaced, k);
    }
    uint64_t fails = 2;
    if (device_computes(dev)) { /* a weight file given twice */
        dev_blob twice[2] = { { WEIGHT_PATH, "", 0 }, { WEIGHT_PATH, "", 0 } };
        dev_source src = { .text = CONV_TEXT, .n_text = strlen(CONV_TEXT), .weights = { .blob = twice, .n_blob = 2 } };
        assert_int_equal(device_compile(dev, &src, &p, &(diag){ 0 }), AN_INPUT);
        fails++;
    }
    assert_ok(try_compile(dev, STATE_TEXT, &p, &d), d);
    assert_ok(try_compile(dev, STATE_TEXT, &q, &d), d); /* the one before it went well */
    device_get_stats(dev, &st);
    assert_int_equal(st.compile_failures, fails);
    assert_int_equal(st.unpaced, fails);
    assert_int_equal(st.compiles, 2);
    assert_int_equal(st.budget_used, 2); /* what failed gave its compile back */
    dev_program_free(p);
    dev_program_free(q);
    close_clean(dev);
    for (int soon = 0; soon < 2; soon++) {
        dev = OPEN_LIMITS(state, { "pace_ms", soon ? 20000 : 1 });
        assert_int_equal(try_compile(dev, bad[0], &p, &(diag){ 0 }), AN_INPUT);
        nanosleep(&(struct timespec){ .tv_nsec = soon ? 21000000 : 5000000 }, NULL);
        assert_ok(try_compile(dev, STATE_TEXT, &p, &d), d);
        device_get_stats(dev, &st);
        assert_int_equal(st.unpaced, soon);
        dev_program_free(p);
        close_clean(dev);
    }
    dev = OPEN_LIMITS(state, { "pace_ms", 600000 }, { "compiles", 1 });
    assert_ok(try_compile(dev, STATE_TEXT, &p, &d), d);
    /* a budget that is spent */
    for (int k = 0; k < 2; k++) assert_int_equal(try_compile(dev, STATE_TEXT, &q, &(diag){ 0 }), AN_UNSUPPORTED);
    device_get_stats(dev, &st);
    assert_true(st.compile_failures == 2 && st.unpaced == 1);
    dev_program_free(p);
    close_clean(dev);
}

static void life(void **state)
{
    device *dev = OPEN(state);
    diag d = { 0 };
    dev_program *p;
    assert_ok(try_compile(dev, STATE_TEXT, &p, &d), d);
    bound b = must_bind(dev, p);
    assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0xe00002d0, "not loaded");
    d = (diag){ 0 };
    assert_refused(dev, dev_program_unload(p, &d), AN_INPUT, &d, 8, 0xe00002d0, "not loaded");
    d = (diag){ 0 };
    assert_ok(dev_program_load(p, &d), d);
    assert_refused(dev, dev_program_load(p, &d), AN_UNSUPPORTED, &d, 8, 0xe0000007, "loaded already");
    d = (diag){ 0 };
    for (int i = 0; i < 3; i++) { /* a request outlives unloading */
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        assert_ok(dev_program_unload(p, &d), d);
        assert_int_equal(device_run(b.r, DEV_QOS, &(diag){ 0 }), AN_INPUT);
        assert_ok(dev_program_load(p, &d), d);
    }
    for (int i = 0; i < 2; i++) dev_surface_free(b.s[1][i]); /* the request keeps what it binds */
    dev_surface_free(b.s[0][0]);
    assert_ok(dev_request_bind(b.r, DEV_INPUT, "s", b.s[0][0], &d), d); /* bound again it is still kept */
    device_stats st;
    device_get_stats(dev, &st);
    assert_int_equal(st.surfaces, 3);
    assert_ok(device_run(b.r, DEV_QOS, &d), d);
    assert_ok(device_submit(b.r, DEV_QOS, &d), d);
    dev_program_free(p); /* waits; the request is then good for nothing but freeing */
    device_get_stats(dev, &st);
    assert_int_equal(st.loaded, 0);
    assert_int_equal(st.unloads, 4); /* the last by freeing it; not those that were refused */
    assert_ok(device_wait(b.r, &d), d);
    assert_refused(dev, device_run(b.r, DEV_QOS, &d), AN_INPUT, &d, 8, 0xe00002d0, "not loaded");
    dev_request_free(b.r);
    dev_request_free(NULL);
    dev_surface_free(NULL);
    close_clean(dev);
}

/* ---- program bytes, cache ---- */

static void adopting(void **state)
{
    device *dev = OPEN(state);
    strbuf w = weight_file(2, 0), bytes = { 0 };
    dev_program *p = must_compile(dev, CONV_TEXT, &w), *q;
    dev_weights with = WITH_WEIGHTS(w);
    diag d = { 0 };
    an_status st = dev_program_bytes(p, &bytes, &d);
    dev_program_free(p);
    if (!device_computes(dev)) { /* no program, no bytes */
        assert_int_equal(st, AN_UNSUPPORTED);
        sb_free(&w);
        close_clean(dev);
        return;
    }
    assert_ok(st, d);
    if (!device_get_limits(dev)->open_images) {
        assert_refused(dev, device_adopt(dev, bytes.at, bytes.n, &with, &q, &d), AN_UNSUPPORTED, &d, 8, 0xe00002e2,
                       "program load rejected");
        close_clean(dev);
        dev = OPEN_LIMITS(state, { "open_images", 1 });
    }
    d = (diag){ 0 };
    assert_ok(device_adopt(dev, bytes.at, bytes.n, &with, &q, &d), d);
    assert_ok(dev_program_load(q, &d), d);
    bound b = must_bind(dev, q);
    CLOSE_TO(answer(&b, 3), 2 * 1.375);
    drop_bound(&b);
    dev_program_free(q);
    for (size_t i = 0; i < bytes.n; i += 1 + bytes.n / 97) { /* cut, or one bit wrong */
        d = (diag){ 0 };
        assert_int_not_equal(device_adopt(dev, bytes.at, i, &with, &q, &d), AN_OK);
        assert_null(q);
        assert_true(d.msg[0]);
        bytes.at[i] ^= 4;
        d = (diag){ 0 };
        assert_int_not_equal(device_adopt(dev, bytes.at, bytes.n, &with, &q, &d), AN_OK);
        bytes.at[i] ^= 4;
    }
    sb_free(&bytes);
    sb_free(&w);
    close_clean(dev);
}

static void caching(void **state)
{
    dev_cache *cache;
    diag d = { 0 };
    assert_ok(dev_cache_open(&cache, &(dev_cache_options){ .memory_only = true }, &d), d);
    device *dev;
    device_limit one = { "compiles", 2 };
    assert_ok(device_open(&dev, name_of(state),
                          &(device_options){ .threads = 1, .cache = cache, .limit = &one, .n_limit = 1 }, &d),
              d);
    if (device_computes(dev)) {
        strbuf w = weight_file(2, 0), w3 = weight_file(3, 0);
        dev_program *p = must_compile(dev, CONV_TEXT, &w), *q = must_compile(dev, CONV_TEXT, &w),
                    *r = must_compile(dev, CONV_TEXT, &w3);
        assert_false(dev_program_from_cache(p));
        assert_true(dev_program_from_cache(q));
        assert_false(dev_program_from_cache(r)); /* other weights, another program */
        dev_program *again = must_compile(dev, CONV_TEXT, &w3); /* the budget is spent; what is kept costs nothing */
        assert_true(dev_program_from_cache(again));
        bound b = must_bind(dev, q), c = must_bind(dev, again);
        CLOSE_TO(answer(&b, 0), 2);
        CLOSE_TO(answer(&c, 0), 3);
        device_stats st;
        device_get_stats(dev, &st);
        assert_int_equal(st.compiles, 2);
        assert_int_equal(st.cache_hits, 2);
        drop_bound(&b);
        drop_bound(&c);
        dev_program_free(p);
        dev_program_free(q);
        dev_program_free(r);
        dev_program_free(again);
        sb_free(&w);
        sb_free(&w3);
    }
    close_clean(dev);
    dev_cache_close(cache);
}

/* ---- determinism ---- */

static uint64_t run_hash(const char *name, int n_threads)
{
    device *dev;
    diag d = { 0 };
    assert_ok(device_open(&dev, name, &(device_options){ .threads = n_threads, .own_budget = true }, &d), d);
    strbuf w = weight_file(0.7, 0.113);
    dev_program *p = must_compile(dev, CONV_TEXT, &w);
    bound b = must_bind(dev, p);
    uint64_t sum = 0;
    for (int k = 0; k < 3; k++) {
        uint16_t y[256];
        put_f16(b.s[0][0], 256, -3.3, 0.0417);
        assert_ok(device_run(b.r, DEV_QOS, &d), d);
        assert_ok(dev_surface_read(b.s[1][0], y, sizeof y, &d), d);
        uint64_t h = hash_bytes(y, sizeof y, 0);
        if (k) assert_true(h == sum);
        sum = h;
    }
    drop_bound(&b);
    dev_program_free(p);
    sb_free(&w);
    close_clean(dev);
    return sum;
}

static void determinism(void **state)
{
    uint64_t one = run_hash(name_of(state), 1);
    assert_true(one == run_hash(name_of(state), 1));
    assert_true(one == run_hash(name_of(state), 2));
    assert_true(one == run_hash(name_of(state), 5));
}

/* ---- the suite, once per device ---- */

static const conform_row suite[] = {
    ROW(queueing),      ROW(threads),          ROW(one_at_a_time), ROW(limits),   ROW(published_limits),
    ROW(process_loads), ROW(process_compiles), ROW(pacing),        ROW(life),     ROW(adopting),
    ROW(caching),       ROW(determinism),
};

int main(void) { return conform_main("conform_life", suite, COUNT(suite)); }
