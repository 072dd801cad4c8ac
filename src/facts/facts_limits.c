/* facts_limits.c: what the runtime grants a caller: requests in flight, programs loaded, features and statistics.
 * In: rows with a cap or a refusal.  Out: where the device stops, and what it says. Each is a row of
 * device/limits.def. */
#include <pthread.h>

#include "facts/facts_int.h"

static const char *relu_text(fx *f) { return fx_text(f, FX_T("1, 32, 1, 1024") " x", "y", FX_T("1, 32, 1, 1024") " y = relu(x = x)[name = string(\"y\")];"); }

static an_status load_one(fx *f, device *dev, const char *text, dev_program **p, diag *d)
{
    if (!text) return diag_nomem(d);
    TRY(device_compile(dev, &(dev_source){ .text = text, .n_text = strlen(text), .file = f->row->id }, p, d));
    return dev_program_load(*p, d);
}

/* How many requests of one program may be outstanding, and how many programs may be loaded. */
an_status fact_caps(fx *f)
{
    enum { MOST = 200 };
    int in_flight = 0, loaded = 0;
    char name[40];
    device *dev = NULL;
    snprintf(name, sizeof name, "soft:%s", fx_chip(f, 0));
    device_limit many[] = { { "compiles", 0 } }; /* the compile budget would end it sooner */
    TRY(device_open(&dev, name, &(device_options){ .threads = 1, .own_budget = true, .limit = many, .n_limit = 1 },
                    f->d));
    const char *text = relu_text(f);
    dev_program *p[MOST] = { NULL };
    dev_surface *s[2] = { NULL };
    diag stop = { 0 };
    while (loaded < MOST && !load_one(f, dev, text, &p[loaded], &stop)) loaded++;
    an_status st = stop.st == AN_NOMEM ? diag_nomem(f->d) : AN_OK;
    for (int k = 0; !st && k < 2; k++)
        st = dev_surface_new(dev, dev_program_surface_bytes(p[0], (dev_side)k), &s[k], f->d);
    stop = (diag){ 0 };
    while (!st && in_flight < MOST) {
        dev_request *r;
        st = dev_request_new(p[0], &r, f->d);
        if (!st) st = dev_request_bind_at(r, DEV_INPUT, 0, s[0], f->d);
        if (!st) st = dev_request_bind_at(r, DEV_OUTPUT, 0, s[1], f->d);
        if (st || device_submit(r, DEV_QOS, &stop)) break;
        in_flight++;
    }
    device_close(dev);
    TRY(st);
    return fx_verdict(f, in_flight == (int)fx_arg(f, 0) && loaded == (int)fx_arg(f, 1), "%d in flight, %d loaded",
                      in_flight, loaded);
}

typedef struct {
    int right;                /* of the second run of all */
    uint64_t loaded, unloads; /* after it */
} resident;

typedef struct {
    dev_program *p;
    dev_request *r;
    dev_surface *s[2];
} tenant;

enum { TENANT_N = 32 * 64 };

/* x + number, loaded and bound. Every one differs, so none is another's. */
static an_status tenant_open(fx *f, device *dev, int number, tenant *t)
{
    const char *text = fx_text(f, FX_T("1, 32, 1, 64") " x", "y", FX_T("1, 32, 1, 64") " y = add(x = x, y = fp16(%d))[name = string(\"y\")];", number);
    TRY(load_one(f, dev, text, &t->p, f->d));
    TRY(dev_request_new(t->p, &t->r, f->d));
    for (int side = 0; side < 2; side++) {
        TRY(dev_surface_new(dev, dev_program_surface_bytes(t->p, (dev_side)side), &t->s[side], f->d));
        TRY(dev_request_bind_at(t->r, (dev_side)side, 0, t->s[side], f->d));
    }
    return AN_OK;
}

static an_status tenant_run(fx *f, const tenant *t, int number, bool *right)
{
    uint16_t x[TENANT_N], want = f16_from_f64(1 + number);
    for (int i = 0; i < TENANT_N; i++) x[i] = f16_from_f64(1);
    TRY(dev_surface_write(t->s[DEV_INPUT], x, sizeof x, f->d));
    TRY(device_run(t->r, DEV_QOS, f->d));
    TRY(dev_surface_read(t->s[DEV_OUTPUT], x, sizeof x, f->d));
    *right = true;
    for (int i = 0; i < TENANT_N; i++) *right = *right && x[i] == want;
    return AN_OK;
}

/* One process: its programs on one device, all loaded when all processes have theirs, run twice over. */
static an_status tenants(fx *f, int i, void *result)
{
    enum { MOST = 64 };
    int n = (int)fx_arg(f, 1);
    tenant t[MOST];
    resident *res = result;
    device *dev = NULL;
    device_stats stats;
    char name[40];
    *res = (resident){ 0 };
    if (n > MOST) return diag_fail(f->d, AN_BUG, NOWHERE, "%d programs in a process", n);
    snprintf(name, sizeof name, "soft:%s", fx_chip(f, 0));
    TRY(device_open(&dev, name, &(device_options){ .threads = 1 }, f->d));
    an_status st = AN_OK;
    for (int k = 0; !st && k < n; k++) st = tenant_open(f, dev, i * n + k, &t[k]);
    fx_meet(f);
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0; !st && k < n; k++) {
            bool right = false;
            st = tenant_run(f, &t[k], i * n + k, &right);
            res->right += pass && right;
        }
    device_get_stats(dev, &stats);
    res->loaded = stats.loaded, res->unloads = stats.unloads;
    device_close(dev);
    return st;
}

/* args: processes, programs of each */
an_status fact_many_programs(fx *f)
{
    int n = (int)fx_arg(f, 0), all = n * (int)fx_arg(f, 1), right = 0;
    uint64_t loaded = 0, unloads = 0;
    resident r[FX_PROCESSES];
    TRY(fx_fork(f, n, tenants, r, sizeof *r));
    for (int i = 0; i < n; i++) right += r[i].right, loaded += r[i].loaded, unloads += r[i].unloads;
    return fx_verdict(f, right == all && loaded == (uint64_t)all && !unloads,
                      "%d/%d right when run again in %d processes, %llu still loaded", right, all, n,
                      (unsigned long long)loaded);
}

/* ---- several submitters ---- */

typedef struct {
    pthread_mutex_t mu;
    int now, most;
} overlap;

/* Sees every dispatch begin and end, and spoils none. */
static bool watch(void *user, const char *what)
{
    overlap *o = user;
    pthread_mutex_lock(&o->mu);
    if (!strcmp(what, "dispatch")) o->now++;
    o->most = MAX(o->most, o->now);
    if (!strcmp(what, "output")) o->now--;
    pthread_mutex_unlock(&o->mu);
    return false;
}

typedef struct {
    dev_request *r;
    int rounds, ran;
} submitter;

static void *submit_rounds(void *user)
{
    submitter *s = user;
    diag d = { 0 };
    for (int i = 0; i < s->rounds && !device_run(s->r, DEV_QOS, &d); i++) s->ran++;
    return NULL;
}

/* args: tolerance in percent; published throughput of two threads over one; dispatches of each */
an_status fact_submitters(fx *f)
{
    enum { N = 2 };
    overlap o = { .mu = PTHREAD_MUTEX_INITIALIZER };
    submitter by[N] = { { 0 } };
    pthread_t id[N];
    int started = 0, ran = 0, rounds = (int)fx_arg(f, 2);
    char name[40];
    device *dev = NULL;
    snprintf(name, sizeof name, "soft:%s", fx_chip(f, 0));
    TRY(device_open(&dev, name, &(device_options){ .threads = 1, .own_budget = true, .spoil = watch, .spoiler = &o },
                    f->d));
    an_status st = AN_OK;
    for (int k = 0; !st && k < N; k++) {
        dev_program *p;
        dev_surface *s[2];
        st = load_one(f, dev, relu_text(f), &p, f->d);
        if (!st) st = dev_request_new(p, &by[k].r, f->d);
        for (int side = 0; !st && side < 2; side++) {
            st = dev_surface_new(dev, dev_program_surface_bytes(p, (dev_side)side), &s[side], f->d);
            if (!st) st = dev_request_bind_at(by[k].r, (dev_side)side, 0, s[side], f->d);
        }
        by[k].rounds = rounds;
    }
    for (; !st && started < N; started++)
        if (pthread_create(&id[started], NULL, submit_rounds, &by[started])) {
            st = diag_nomem(f->d);
            break;
        }
    for (int k = 0; k < started; k++) pthread_join(id[k], NULL), ran += by[k].ran;
    device_close(dev);
    TRY(st);
    double ours = o.most, error = (ours / fx_arg(f, 1) - 1) * 100; /* so many at once, so many times the throughput */
    bool ok = ran == N * rounds && fabs(error) <= fx_arg(f, 0);
    return fx_verdict(f, ok, "%d dispatches from %d threads, %d at a time: %.2fx for %.2f (%+.0f %%)", ran, N, o.most,
                      ours, fx_arg(f, 1), error);
}

/* ---- features that take leave ---- */

/* The accumulator of R1 by a caller with and without the entitlement. args: status without it */
an_status fact_unentitled(fx *f)
{
    int ran[2] = { 0, 0 };
    engine_error said = { 0 };
    const char *text = relu_text(f);
    char name[40];
    snprintf(name, sizeof name, "soft:%s", fx_chip(f, 0));
    for (int held = 0; held < 2; held++) {
        device *dev = NULL;
        dev_program *p = NULL;
        dev_surface *s = NULL;
        dev_request *r = NULL;
        diag refused = { 0 };
        device_limit lim = { "chaining", held };
        TRY(device_open(&dev, name, &(device_options){ .threads = 1, .own_budget = true, .limit = &lim, .n_limit = 1 },
                        f->d));
        an_status st = load_one(f, dev, text, &p, f->d);
        if (!st) st = dev_surface_new(dev, dev_program_surface_bytes(p, DEV_INPUT), &s, f->d);
        if (!st) st = dev_request_new(p, &r, f->d);
        for (int side = 0; !st && side < 2; side++) st = dev_request_bind_at(r, (dev_side)side, 0, s, f->d);
        if (!st) ran[held] = device_run(r, DEV_QOS, &refused) == AN_OK;
        if (!st && !held) device_error(dev, &said);
        device_close(dev);
        if (!st && refused.st == AN_NOMEM) st = diag_nomem(f->d);
        TRY(st);
    }
    bool ok = !ran[0] && ran[1] && said.status == (uint32_t)fx_arg(f, 0);
    return fx_verdict(f, ok, "status 0x%08x: %.160s; %s with it", (unsigned)said.status, said.text,
                      ran[1] ? "runs" : "refused");
}

/* args: what making and loading a program return, 1 for done */
an_status fact_stats_mask(fx *f)
{
    int got[2][2] = { { 0 } }; /* without a mask, with one; made, loaded */
    const char *text = relu_text(f);
    char name[40];
    diag refused = { 0 };
    if (!text) return diag_nomem(f->d);
    snprintf(name, sizeof name, "soft:%s", fx_chip(f, 0));
    for (uint32_t mask = 0; mask < 2; mask++) {
        device *dev = NULL;
        dev_program *p = NULL;
        diag d = { 0 };
        TRY(device_open(&dev, name, &(device_options){ .threads = 1, .own_budget = true }, f->d));
        got[mask][0] = !device_compile(
            dev, &(dev_source){ .text = text, .n_text = strlen(text), .file = f->row->id, .stats_mask = mask }, &p, &d);
        got[mask][1] = got[mask][0] && !dev_program_load(p, &d);
        device_close(dev);
        if (d.st == AN_NOMEM) return diag_nomem(f->d);
        if (mask) refused = d;
    }
    bool ok = got[0][0] && got[0][1] && got[1][0] == (int)fx_arg(f, 0) && got[1][1] == (int)fx_arg(f, 1);
    return fx_verdict(f, ok, "create returns %d, load returns %d: %.140s; %d and %d without a mask", got[1][0],
                      got[1][1], refused.msg, got[0][0], got[0][1]);
}
