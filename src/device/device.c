/* device.c: device strings to open devices, and the life of programs on them.
 * In: names, options, text.  Out: handles. What differs between devices is behind device_class. */
#define _POSIX_C_SOURCE 200809L
#include <stdarg.h>
#include <stdlib.h>

#include "base/plain.h"
#include "device/device_int.h"

/* Best first: an empty device string takes the first that is present and needs no argument. */
static const device_class *const classes[] = { &device_cpu, &device_soft, &device_null };

static const struct {
    an_status outcome;
    const char *domain;
    int code;
    uint32_t status;
    const char *text;
} errors[ERR_COUNT] = {
#define DEV_ERROR(id, outcome, domain, code, status, text) { outcome, domain, code, status, text },
#include "device/errors.def"
#undef DEV_ERROR
};

static const struct {
    const char *name;
    size_t offset;
    const char *soft, *plain, *what, *evidence;
} limit_rows[] = {
#define DEV_LIMIT(field, soft, plain, what, evidence)                                                                  \
    { #field, offsetof(device_limits, field), #soft, #plain, what, evidence },
#include "device/limits.def"
#undef DEV_LIMIT
};

static const device_limits plain_limits = {
#define DEV_LIMIT(field, soft, plain, what, evidence) .field = plain,
#include "device/limits.def"
#undef DEV_LIMIT
};

/* ---- errors ---- */

static an_status refuse(device *dev, dev_error e, an_status st, loc at, const char *msg, diag *d)
{
    pthread_mutex_lock(&dev->mu);
    dev->err = (engine_error){ .domain = errors[e].domain, .code = errors[e].code, .status = errors[e].status };
    snprintf(dev->err.text, sizeof dev->err.text, "%s: %s", errors[e].text, msg);
    pthread_mutex_unlock(&dev->mu);
    if (dev->cls->plain) return diag_fail(d, st, at, "%s", msg);
    return diag_fail(d, st, at, "%s: %s", errors[e].text, msg);
}

an_status dev_refuse(device *dev, dev_error e, loc at, diag *d, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    plain_vprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return refuse(dev, e, errors[e].outcome, at, msg, d);
}

an_status dev_refuse_as(device *dev, dev_error e, const diag *why, diag *d)
{
    if (why->st == AN_NOMEM || why->st == AN_BUG) return diag_fail(d, why->st, why->at, "%s", why->msg);
    return refuse(dev, e, why->st, why->at, why->msg, d);
}

void device_error(device *dev, engine_error *out)
{
    pthread_mutex_lock(&dev->mu);
    *out = dev->err;
    pthread_mutex_unlock(&dev->mu);
}

bool dev_fault(device *dev, const char *where) { return dev->opt.fault && dev->opt.fault(dev->opt.user, where); }

/* ---- the table of devices ---- */

/* The class a string names; *arg is what follows the colon, NULL without one. */
static const device_class *find_class(const char *name, const char **arg)
{
    size_t n = strcspn(name, ":");
    *arg = name[n] ? name + n + 1 : NULL;
    for (size_t i = 0; i < COUNT(classes); i++)
        if (strlen(classes[i]->name) == n && !memcmp(classes[i]->name, name, n))
            return !*arg == !classes[i]->arg ? classes[i] : NULL;
    return NULL;
}

bool device_known(const char *name)
{
    const char *arg;
    const device_class *c = find_class(name, &arg);
    return c && (c != &device_soft || chip_find(arg));
}

static const device_class *best_class(void)
{
    for (size_t i = 0; i < COUNT(classes); i++)
        if (!classes[i]->arg && !(classes[i]->absent && classes[i]->absent())) return classes[i];
    return NULL;
}

bool device_limited(const char *name)
{
    const char *arg;
    const device_class *c = name && *name ? find_class(name, &arg) : best_class();
    return c && !c->plain;
}

bool device_list(size_t i, device_info *out)
{
    if (i >= COUNT(classes)) return false;
    *out = (device_info){ .name = classes[i] == &device_soft ? "soft:<chip>" : classes[i]->name,
                          .what = classes[i]->what,
                          .why_not = classes[i]->absent ? classes[i]->absent() : NULL };
    return true;
}

void device_limits_print(strbuf *b, const char *format)
{
    bool json = !strcmp(format, "json"), markdown = !strcmp(format, "markdown");
    if (markdown)
        sb_puts(b, "# Device limits\n\nPrinted from `src/device/limits.def`. 0 is no limit; COLUMN takes the chip's own value (`anneal targets`).\n"
                   "`anneal run --engine soft:m1 --limit NAME=VALUE` sets one for a run; cpu and null have none to set.\n"
                   "On every device a tensor, the scratch memory of a program, and all it holds together take at most 1 TiB (`ENGINE_MOST_BYTES` of "
                   "`src/engine/engine.h`): text or program bytes that want more are bad input.\n\n"
                   "| limit | soft | cpu, null | what | evidence |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < COUNT(limit_rows); i++) {
        if (json) {
            sb_printf(b, "{\"limit\":\"%s\",\"soft\":\"%s\",\"plain\":\"%s\",\"what\":", limit_rows[i].name,
                      limit_rows[i].soft, limit_rows[i].plain);
            sb_json(b, limit_rows[i].what, strlen(limit_rows[i].what));
            sb_puts(b, ",\"evidence\":");
            sb_json(b, limit_rows[i].evidence, strlen(limit_rows[i].evidence));
            sb_puts(b, "}\n");
        } else
            sb_printf(b, markdown ? "| `%s` | %s | %s | %s | %s |\n" : "%-14s %-20s %-4s %s (%s)\n", limit_rows[i].name,
                      limit_rows[i].soft, limit_rows[i].plain, limit_rows[i].what, limit_rows[i].evidence);
    }
    if (markdown)
        sb_puts(b, "\nNot modelled: no call of a device reaches them. Events that are waited for or signalled, with their counts, priorities, "
                   "the weights of queues and the 2 s after which a dispatch is aborted; ids of programs, processes and networks; partitions, "
                   "custom buffers and orders of execution (facts 2.3, 2.4, 10). A second stream that never completes, an engine shared with "
                   "other processes, and a process that fails after a program with `tile` are rows of `anneal rules` or said under P4. What "
                   "compiles failed too soon cost the later ones is counted (`pace_ms`), not waited for.\n");
}

/* ---- opening ---- */

/* Rows whose counts are a process's: whoever sets one counts for itself. */
static bool is_counted(const char *name)
{
    static const char *const rows[] = { "compiles", "reclaim", "loaded" };
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcmp(rows[i], name)) return true;
    return false;
}

static void choose_ledger(device *dev)
{
    bool own = !dev->chip || dev->opt.own_budget;
    for (size_t i = 0; i < dev->opt.n_limit; i++) own = own || is_counted(dev->opt.limit[i].name);
    dev->ledger = own ? NULL : ledger_of_process(dev->chip);
    if (!dev->ledger) dev->ledger = &dev->own;
}

static const char *whose(const device *dev) { return dev->ledger == &dev->own ? "" : " in this process"; }

static an_status unknown_limit(const char *name, diag *d)
{
    strbuf names = { 0 };
    for (size_t i = 0; i < COUNT(limit_rows); i++) sb_printf(&names, "%s%s", i ? ", " : "", limit_rows[i].name);
    an_status st =
        diag_fail(d, AN_USAGE, NOWHERE, "unknown device limit \"%.40s\"; there are %s", name, names.at ? names.at : "");
    sb_free(&names);
    return st;
}

static bool is_switch(size_t row) { return !strncmp(limit_rows[row].what, "switch", 6); }

static an_status override_limits(device *dev, diag *d)
{
    for (size_t i = 0; i < dev->opt.n_limit; i++) {
        const device_limit *o = &dev->opt.limit[i];
        size_t k = 0;
        while (k < COUNT(limit_rows) && strcmp(limit_rows[k].name, o->name)) k++;
        if (k == COUNT(limit_rows)) return unknown_limit(o->name, d);
        if (o->value < 0 || (is_switch(k) && o->value > 1))
            return diag_fail(d, AN_USAGE, NOWHERE, "device limit %s is %lld; %s is wanted", o->name,
                             (long long)o->value, is_switch(k) ? "0 or 1" : "0 or more");
        memcpy((char *)&dev->lim + limit_rows[k].offset, &o->value, sizeof o->value);
    }
    dev->opt.limit = NULL; /* the caller's, and no longer needed */
    dev->opt.n_limit = 0;
    return AN_OK;
}

an_status device_open(device **out, const char *name, const device_options *o, diag *d)
{
    *out = NULL;
    const char *arg = NULL;
    const device_class *c = name && *name ? find_class(name, &arg) : best_class();
    if (!c)
        return diag_fail(
            d, AN_USAGE, NOWHERE,
            "unknown device \"%.40s\"; known are cpu, null and soft:<chip> with a chip such as m1, m4 or m5",
            name ? name : "");
    const char *why = c->absent ? c->absent() : NULL;
    if (why) return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s is not here: %s", c->name, why);
    device *dev = o && o->fault && o->fault(o->user, "device") ? NULL : calloc(1, sizeof *dev);
    if (!dev) return diag_nomem(d);
    dev->cls = c;
    dev->lim = plain_limits;
    dev->ledger = &dev->own;
    if (o) dev->opt = *o;
    snprintf(dev->name, sizeof dev->name, "%s", c->name);
    pthread_mutex_init(&dev->mu, NULL);
    pthread_mutex_init(&dev->build, NULL);
    pthread_cond_init(&dev->changed, NULL);
    an_status st = c->open(dev, arg, d);
    if (!st) choose_ledger(dev);
    if (!st) st = override_limits(dev, d);
    if (st) device_close(dev);
    else *out = dev;
    return st;
}

void device_close(device *dev)
{
    if (!dev) return;
    queue_stop(dev);
    pthread_mutex_lock(&dev->mu);
    while (dev->requests) request_drop(dev->requests);
    while (dev->programs) {
        dev->programs->refs = 1;
        program_unref(dev->programs);
    }
    while (dev->surfaces) {
        dev->surfaces->refs = 1;
        surface_unref(dev->surfaces);
    }
    pthread_mutex_unlock(&dev->mu);
    if (dev->cls->close) dev->cls->close(dev);
    pthread_cond_destroy(&dev->changed);
    pthread_mutex_destroy(&dev->build);
    pthread_mutex_destroy(&dev->mu);
    free(dev);
}

const char *device_name(const device *dev) { return dev->name; }
const device_limits *device_get_limits(const device *dev) { return &dev->lim; }
pool *device_pool(const device *dev) { return dev->pool; }
bool device_computes(const device *dev) { return dev->cls->computes; }
bool device_is_plain(const device *dev) { return dev->cls->plain; }
bool device_rounds_products(const device *dev)
{
    return dev->cls->plain && !dev->opt.reference && dev->opt.fast_math == FAST_BF16;
}

void device_get_stats(device *dev, device_stats *out)
{
    pthread_mutex_lock(&dev->mu);
    *out = dev->st;
    pthread_mutex_unlock(&dev->mu);
    out->budget_used = ledger_compiled(dev);
}

/* ---- compiling ---- */

/* An attempt counts at once, so that two threads do not share the last one; it is given back when it fails. */
an_status dev_compile_begin(dev_program *p, diag *d)
{
    device *dev = p->dev;
    uint64_t used;
    bool unpaced = ledger_unpaced(dev);
    p->counted = ledger_take_compile(dev, &used);
    pthread_mutex_lock(&dev->mu);
    dev->st.unpaced += unpaced;
    dev->st.compile_failures += !p->counted;
    pthread_mutex_unlock(&dev->mu);
    if (p->counted) return AN_OK;
    ledger_outcome(dev, false);
    return dev_refuse(
        dev, ERR_BUDGET, NOWHERE, d,
        "%llu programs were compiled%s and the budget is %lld; reload weights, use the cache, or start over",
        (unsigned long long)used, whose(dev), (long long)dev->lim.compiles);
}

static void give_compile(dev_program *p)
{
    if (p->counted) ledger_give_compile(p->dev);
    p->counted = false;
}

void dev_compile_end(dev_program *p, double ms, bool ok)
{
    device *dev = p->dev;
    pthread_mutex_lock(&dev->mu);
    dev->st.compile_ms += ms;
    if (ok) dev->st.compiles++;
    else dev->st.compile_failures++;
    pthread_mutex_unlock(&dev->mu);
    ledger_outcome(dev, ok);
    if (!ok) give_compile(p);
}

static dev_program *program_make(device *dev)
{
    dev_program *p = dev_fault(dev, "program") ? NULL : calloc(1, sizeof *p);
    if (p) *p = (dev_program){ .dev = dev, .refs = 1 };
    return p;
}

/* Hands p over, or takes it apart when building it failed. */
static an_status program_done(dev_program *p, an_status st, dev_program **out)
{
    device *dev = p->dev;
    if (st) {
        if (p->counted) { /* compiled, but no program came of it */
            pthread_mutex_lock(&dev->mu);
            dev->st.compiles--, dev->st.compile_failures++;
            pthread_mutex_unlock(&dev->mu);
        }
        give_compile(p);
        dev->cls->drop(p);
        arena_free(&p->mem);
        free(p);
        return st;
    }
    pthread_mutex_lock(&dev->mu);
    LIST_ADD(dev->programs, p);
    dev->st.programs++;
    pthread_mutex_unlock(&dev->mu);
    *out = p;
    return AN_OK;
}

an_status device_compile(device *dev, const dev_source *src, dev_program **out, diag *d)
{
    *out = NULL;
    dev_program *p = program_make(dev);
    if (!p) return diag_nomem(d);
    p->stats_mask = src->stats_mask, p->final = src->final;
    pthread_mutex_lock(&dev->build);
    an_status st = dev->cls->build(p, src, d);
    pthread_mutex_unlock(&dev->build);
    return program_done(p, st, out);
}

an_status device_adopt(device *dev, const void *bytes, size_t n, const dev_weights *w, dev_program **out, diag *d)
{
    static const dev_weights none = { 0 };
    *out = NULL;
    if (!dev->lim.open_images)
        return dev_refuse(dev, ERR_IMAGE, NOWHERE, d,
                          "%s loads what it compiled itself; for other program bytes: anneal run --limit open_images=1",
                          dev->name);
    dev_program *p = program_make(dev);
    if (!p) return diag_nomem(d);
    return program_done(p, dev->cls->adopt(p, bytes, n, w ? w : &none, d), out);
}

/* ---- life ---- */

static void not_loaded(dev_program *p) /* dev->mu held */
{
    if (!p->loaded) return;
    p->loaded = false;
    ledger_give_load(p->dev);
    p->dev->st.loaded--;
    p->dev->st.image_bytes -= p->image_bytes;
}

void program_unref(dev_program *p)
{
    device *dev = p->dev;
    if (--p->refs) return;
    not_loaded(p);
    LIST_CUT(dev->programs, p);
    dev->st.programs--;
    if (dev->lim.reclaim) give_compile(p);
    dev->cls->drop(p);
    arena_free(&p->mem);
    free(p);
}

void dev_program_free(dev_program *p)
{
    if (!p) return;
    device *dev = p->dev;
    pthread_mutex_lock(&dev->build);
    pthread_mutex_lock(&dev->mu);
    p->dead = true;
    queue_quiet(p);
    if (p->loaded) { /* requests may keep the handle alive, not the slot */
        not_loaded(p);
        dev->st.unloads++;
        dev->cls->unload(p);
    }
    program_unref(p);
    pthread_mutex_unlock(&dev->mu);
    pthread_mutex_unlock(&dev->build);
}

bool dev_program_loaded(const dev_program *p)
{
    device *dev = p->dev;
    pthread_mutex_lock(&dev->mu);
    const bool is = p->loaded;
    pthread_mutex_unlock(&dev->mu);
    return is;
}

bool dev_program_from_cache(const dev_program *p) { return p->from_cache; }

an_status dev_program_bytes(const dev_program *p, strbuf *out, diag *d)
{
    if (p->prog) return program_encode(p->prog, out, d);
    return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "%s makes no program bytes", p->dev->name);
}

static an_status no_room(device *dev, uint64_t need, uint64_t held, diag *d)
{
    return dev_refuse(dev, ERR_NO_MEMORY, NOWHERE, d,
                      "the program takes %llu bytes; %llu of the %llu the device addresses are taken",
                      (unsigned long long)need, (unsigned long long)held, (unsigned long long)dev->lim.window_bytes);
}

bool dev_fits(const device *dev, uint64_t bytes, uint64_t *held)
{
    uint64_t room = (uint64_t)dev->lim.window_bytes;
    *held = dev->st.surface_bytes + dev->st.image_bytes;
    return !room || (*held <= room && bytes <= room - *held);
}

an_status dev_grow(dev_program *p, uint64_t more, diag *d)
{
    device *dev = p->dev;
    uint64_t held;
    pthread_mutex_lock(&dev->mu);
    bool fits = dev_fits(dev, more, &held);
    if (fits) dev->st.image_bytes += more, p->image_bytes += more;
    pthread_mutex_unlock(&dev->mu);
    if (fits) return AN_OK;
    return dev_refuse(
        dev, ERR_NO_MEMORY, NOWHERE, d,
        "inputs that outputs are written over take %llu bytes for copies of them; %llu of the %llu the device addresses are taken",
        (unsigned long long)more, (unsigned long long)held, (unsigned long long)dev->lim.window_bytes);
}

void dev_count_image(dev_program *p, uint64_t bytes)
{
    pthread_mutex_lock(&p->dev->mu);
    if (p->loaded) p->dev->st.image_bytes += bytes - p->image_bytes, p->image_bytes = bytes;
    pthread_mutex_unlock(&p->dev->mu);
}

/* The image, where the device addresses enough. What is known of its size is looked at before anything is taken; all
 * of it is counted in the moment it is found to fit, because surfaces are made while it loads. */
static an_status load_image(dev_program *p, diag *d)
{
    device *dev = p->dev;
    uint64_t need = p->prog ? p->prog->scratch_bytes : 0, held;
    pthread_mutex_lock(&dev->mu);
    bool fits = dev_fits(dev, need, &held);
    pthread_mutex_unlock(&dev->mu);
    if (!fits) return no_room(dev, need, held, d);
    TRY(dev->cls->load(p, d));
    need = p->image_bytes;
    pthread_mutex_lock(&dev->mu);
    fits = dev_fits(dev, need, &held);
    if (fits) dev->st.image_bytes += need;
    pthread_mutex_unlock(&dev->mu);
    if (fits) return AN_OK;
    dev->cls->unload(p);
    return no_room(dev, need, held, d);
}

/* dev->build held */
static an_status load(dev_program *p, diag *d)
{
    device *dev = p->dev;
    uint64_t now, t0 = clock_ns();
    if (p->loaded) return dev_refuse(dev, ERR_BUSY, NOWHERE, d, "the program is loaded already");
    if (p->stats_mask && !dev->lim.stats) /* known by its outcome alone: the real system's words are not */
        return diag_fail(
            d, AN_UNSUPPORTED, NOWHERE,
            "the program was made with statistics mask 0x%x and has no section for statistics; make it with 0",
            (unsigned)p->stats_mask);
    if (!ledger_take_load(dev, &now))
        return dev_refuse(dev, ERR_LOADED, NOWHERE, d, "%llu programs are loaded%s, %lld is the most; unload one",
                          (unsigned long long)now, whose(dev), (long long)dev->lim.loaded);
    an_status st = load_image(p, d);
    if (st) {
        ledger_give_load(dev);
        return st;
    }
    pthread_mutex_lock(&dev->mu);
    p->loaded = true;
    dev->st.loads++;
    dev->st.loaded++;
    dev->st.load_ms += (double)(clock_ns() - t0) / 1e6;
    pthread_mutex_unlock(&dev->mu);
    return AN_OK;
}

an_status dev_program_load(dev_program *p, diag *d)
{
    pthread_mutex_lock(&p->dev->build);
    p->digest_known = false;
    an_status st = load(p, d);
    pthread_mutex_unlock(&p->dev->build);
    return st;
}

an_status dev_program_unload(dev_program *p, diag *d)
{
    device *dev = p->dev;
    pthread_mutex_lock(&dev->build);
    pthread_mutex_lock(&dev->mu);
    bool was = p->loaded;
    p->changing = true; /* nothing new is submitted while the queue runs dry */
    queue_quiet(p);
    p->changing = false;
    not_loaded(p);
    p->digest_known = false;
    dev->st.unloads += was;
    pthread_mutex_unlock(&dev->mu);
    if (was) dev->cls->unload(p);
    pthread_mutex_unlock(&dev->build);
    return was ? AN_OK : dev_refuse(dev, ERR_NOT_READY, NOWHERE, d, "the program is not loaded");
}

void dev_lost(dev_program *p)
{
    pthread_mutex_lock(&p->dev->mu);
    not_loaded(p);
    pthread_mutex_unlock(&p->dev->mu);
}

/* ---- ports ---- */

size_t dev_program_ports(const dev_program *p, dev_side side, const dev_port **out)
{
    *out = p->port[side];
    return p->n_port[side];
}

const dev_port *dev_program_port(const dev_program *p, dev_side side, const char *name, size_t *index)
{
    for (size_t i = 0; i < p->n_port[side]; i++)
        if (!strcmp(p->port[side][i].name, name)) {
            if (index) *index = i;
            return &p->port[side][i];
        }
    return NULL;
}

uint64_t dev_program_surface_bytes(const dev_program *p, dev_side side)
{
    uint64_t most = (uint64_t)MAX(p->dev->lim.surface_min, 1);
    for (size_t i = 0; i < p->n_port[side]; i++) most = MAX(most, surface_need(p->dev, &p->port[side][i]));
    return most;
}

/* ---- reloading ---- */

/* A checksum of what the loaded program answers to a fixed input. No dispatch of it is queued, none can be
 * submitted. */
static an_status answer(dev_program *p, uint64_t *sum, diag *d)
{
    device *dev = p->dev;
    arena mem = { 0 };
    void **at[2] = { NULL, NULL };
    an_status st = dev_fault(dev, "canary") ? diag_nomem(d) : AN_OK;
    for (int side = 0; side < 2 && !st; side++) {
        at[side] = TAKE(&mem, void *, p->n_port[side]);
        if (!at[side]) st = diag_nomem(d);
        for (size_t i = 0; i < p->n_port[side] && !st; i++) {
            const dev_port *q = &p->port[side][i];
            at[side][i] = arena_take(&mem, (size_t)q->bytes, 1, 64);
            if (!at[side][i]) st = diag_nomem(d);
            int64_t n = (int64_t)(q->bytes * 8 / (uint64_t)dtype_bits(q->dt));
            /* small numbers of both signs; zeros for integers, which may be indices */
            for (int64_t k = 0; !st && side == DEV_INPUT && dtype_is_float(q->dt) && k < n; k++)
                dtype_store(q->dt, at[side][i], k, (double)((k * 37 + (int64_t)i * 11) % 61 - 30) / 32);
        }
    }
    if (!st) st = dev->cls->run(p, (const void *const *)at[DEV_INPUT], at[DEV_OUTPUT], d);
    *sum = 0;
    for (size_t i = 0; !st && i < p->n_port[DEV_OUTPUT]; i++)
        *sum = hash_many(at[DEV_OUTPUT][i], (size_t)p->port[DEV_OUTPUT][i].bytes, *sum);
    arena_free(&mem);
    return st;
}

/* dev->build held, p quiet and not submittable; waits for the device itself, so that two dispatches never overlap. */
static an_status exclusive_answer(dev_program *p, uint64_t *sum, diag *d)
{
    device *dev = p->dev;
    pthread_mutex_lock(&dev->mu);
    while (dev->busy) pthread_cond_wait(&dev->changed, &dev->mu);
    dev->busy = true;
    pthread_mutex_unlock(&dev->mu);
    an_status st = answer(p, sum, d);
    pthread_mutex_lock(&dev->mu);
    dev->busy = false;
    pthread_cond_broadcast(&dev->changed);
    pthread_mutex_unlock(&dev->mu);
    return st;
}

static an_status reload(dev_program *p, const dev_weights *w, dev_canary *c, diag *d)
{
    device *dev = p->dev;
    bool prove = c && p->loaded, ask = prove && !c->constants_only;
    if (prove) c->weights_before = p->digest_known ? p->digest : dev->cls->digest(p);
    p->digest_known = false;
    if (ask) TRY(exclusive_answer(p, &c->output_before, d));
    TRY(dev->cls->reload(p, w, c ? &c->source_changed : NULL, d));
    if (!prove) return AN_OK;
    c->weights_after = p->digest = dev->cls->digest(p);
    p->digest_known = true; /* until it is loaded anew: nothing else changes constants */
    if (ask) TRY(exclusive_answer(p, &c->output_after, d));
    bool holds; /* not whether they changed: rounding may leave nothing of what did */
    TRY(dev->cls->holds(p, &holds, d));
    return holds
               ? AN_OK
               : diag_fail(
                     d, AN_BUG, NOWHERE,
                     "the loaded constants of the program, or what is packed of them, are not those of its new weights: the reload did not take");
}

an_status dev_program_reload(dev_program *p, const dev_weights *w, dev_canary *canary, diag *d)
{
    device *dev = p->dev;
    if (canary) *canary = (dev_canary){ .constants_only = canary->constants_only };
    if (p->final)
        return dev_refuse(dev, ERR_BAD_ARG, NOWHERE, d,
                          "the program was made for the weights it has: compile it again for others");
    pthread_mutex_lock(&dev->build);
    pthread_mutex_lock(&dev->mu);
    p->changing = true;
    queue_quiet(p);
    pthread_mutex_unlock(&dev->mu);
    uint64_t t0 = clock_ns();
    an_status st = reload(p, w, canary, d);
    pthread_mutex_lock(&dev->mu);
    p->changing = false;
    dev->st.reloads += !st;
    dev->st.load_ms += (double)(clock_ns() - t0) / 1e6;
    pthread_mutex_unlock(&dev->mu);
    pthread_mutex_unlock(&dev->build);
    return st;
}
