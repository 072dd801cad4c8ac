/* run.c: one program, once: compile, allocate what the device wants, bind, run, take the results out. In: tensors by
 * name.  Out: tensors by name. Surface sizes, minimum and binding order are the device's business, not the caller's:
 * any declared size the chip compiles runs. */
#include <stdlib.h>

#include "base/rng.h"
#include "device/device_int.h"

static void shape_text(char *out, size_t room, const int64_t *dim, int rank)
{
    size_t at = (size_t)snprintf(out, room, "[");
    for (int i = 0; i < rank && at < room; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (at < room) snprintf(out + at, room - at, "]");
}

static int64_t elems(const int64_t *dim, int rank)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) n *= dim[i];
    return n;
}

/* ---- values in and out ---- */

static bool same_shape(const dev_tensor *t, const dev_port *p)
{
    bool same = t->rank == p->rank;
    for (int i = 0; same && i < t->rank; i++) same = t->dim[i] == p->dim[i];
    return same;
}

/* Floats round to a float type; a number that an integer type cannot hold is refused, never bent. */
static an_status convert(const dev_tensor *t, const dev_port *p, void *to, diag *d)
{
    int64_t n = elems(p->dim, p->rank);
    if (t->dt == p->dt) {
        memcpy(to, t->data, (size_t)p->bytes);
        return AN_OK;
    }
    bool exact = !dtype_is_float(p->dt);
    for (int64_t i = 0; i < n; i++) {
        double x = dtype_load(t->dt, t->data, i);
        dtype_store(p->dt, to, i, x);
        if (exact && dtype_load(p->dt, to, i) != x)
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "input %s: element %lld is %g, which its declared type %s cannot hold", p->name,
                             (long long)i, x, dtype_name(p->dt));
    }
    return AN_OK;
}

static an_status put_input(dev_surface *s, const dev_tensor *t, const dev_port *p, int64_t row_bytes, arena *mem,
                           diag *d)
{
    char have[120], want[120];
    if (!same_shape(t, p)) {
        shape_text(have, sizeof have, t->dim, t->rank);
        shape_text(want, sizeof want, p->dim, p->rank);
        return diag_fail(d, AN_INPUT, NOWHERE, "input %s has shape %s; the program declares %s %s", p->name, have,
                         dtype_name(p->dt), want);
    }
    arena_mark m = arena_save(mem);
    void *packed = arena_take(mem, (size_t)p->bytes, 1, 64), *at;
    if (!packed) return diag_nomem(d);
    an_status st = convert(t, p, packed, d);
    if (!st) st = dev_surface_lock(s, false, &at, d);
    if (!st) {
        if (row_bytes) dev_surface_unpack(p, row_bytes, packed, at);
        else memcpy(at, packed, (size_t)p->bytes);
        st = dev_surface_unlock(s, d);
    }
    arena_back(mem, m);
    return st;
}

/* The types a result may have outside: fp16 and fp32 as they are, wider and narrower floats as fp32, the rest as
 * int32. */
static dtype result_type(dtype dt) { return dt == DT_F16 ? DT_F16 : dtype_is_float(dt) ? DT_F32 : DT_I32; }

static an_status get_output(dev_surface *s, const dev_port *p, int64_t row_bytes, arena *mem, dev_tensor *out, diag *d)
{
    int64_t n = elems(p->dim, p->rank);
    dtype dt = result_type(p->dt);
    size_t bytes;
    if (!dtype_bytes(dt, n, &bytes)) return diag_nomem(d);
    char *name = arena_str(mem, p->name);
    unsigned char *packed = arena_take(mem, (size_t)p->bytes, 1, 64),
                  *data = dt == p->dt ? packed : arena_take(mem, bytes, 1, 64);
    if (!name || !packed || !data) return diag_nomem(d);
    void *at;
    TRY(dev_surface_lock(s, true, &at, d));
    if (row_bytes) dev_surface_pack(p, row_bytes, at, packed);
    else memcpy(packed, at, (size_t)p->bytes);
    TRY(dev_surface_unlock(s, d));
    for (int64_t i = 0; dt != p->dt && i < n; i++) {
        double x = dtype_load(p->dt, packed, i);
        dtype_store(dt, data, i, x);
        if (dt == DT_I32 && dtype_load(dt, data, i) != x)
            return diag_fail(d, AN_UNSUPPORTED, NOWHERE, "output %s: element %lld is %.0f, which int32 cannot hold",
                             p->name, (long long)i, x);
    }
    *out = (dev_tensor){ .name = name, .dt = dt, .rank = p->rank, .data = data };
    memcpy(out->dim, p->dim, sizeof out->dim);
    return AN_OK;
}

/* ---- the run ---- */

typedef struct {
    device *dev;
    dev_program *p;
    dev_request *r;
    dev_surface **surface[2];
} once;

static void names_of(const dev_program *p, dev_side side, char *out, size_t room)
{
    const dev_port *ports;
    size_t n = dev_program_ports(p, side, &ports), at = 0;
    *out = 0;
    for (size_t i = 0; i < n && at < room; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%s", i ? ", " : "", ports[i].name);
}

static an_status unknown(const once *c, dev_side side, const char *name, diag *d)
{
    char names[200];
    names_of(c->p, side, names, sizeof names);
    return diag_fail(d, AN_INPUT, NOWHERE, "the program has no %s \"%.80s\"; it has: %s",
                     side == DEV_INPUT ? "input" : "output", name, names);
}

static an_status bind_all(once *c, arena *mem, diag *d)
{
    TRY(dev_request_new(c->p, &c->r, d));
    for (int side = 0; side < 2; side++) {
        const dev_port *ports;
        size_t n = dev_program_ports(c->p, (dev_side)side, &ports);
        uint64_t bytes = dev_program_surface_bytes(c->p, (dev_side)side);
        c->surface[side] = TAKE(mem, dev_surface *, n);
        if (!c->surface[side]) return diag_nomem(d);
        for (size_t i = 0; i < n; i++) {
            /* without a rule of one size each port takes what it needs */
            uint64_t need = c->dev->lim.uniform
                                ? bytes
                                : MAX(surface_need(c->dev, &ports[i]), (uint64_t)MAX(c->dev->lim.surface_min, 1));
            TRY(dev_surface_new(c->dev, need, &c->surface[side][i], d));
            TRY(dev_request_bind_at(c->r, (dev_side)side, i, c->surface[side][i], d));
        }
    }
    return AN_OK;
}

static an_status make_up(const once *c, size_t k, const dev_port *p, uint64_t seed, arena *mem, diag *d)
{
    arena_mark m = arena_save(mem);
    unsigned char *data = arena_take(mem, (size_t)MAX(p->bytes, 1), 1, 64);
    if (!data) return diag_nomem(d);
    dev_tensor t = { .name = p->name, .dt = p->dt, .rank = p->rank, .data = data };
    memcpy(t.dim, p->dim, sizeof t.dim);
    memset(data, 0, (size_t)p->bytes);
    rng r = { .s = hash_bytes(p->name, strlen(p->name), seed) };
    const int64_t n = dtype_is_float(p->dt) ? elems(p->dim, p->rank) : 0;
    for (int64_t i = 0; i < n; i++) dtype_store(p->dt, data, i, rng_range(&r, -1, 1));
    an_status st = put_input(c->surface[DEV_INPUT][k], &t, p, c->dev->lim.row_bytes, mem, d);
    arena_back(mem, m);
    return st;
}

static an_status put_inputs(once *c, const dev_once *x, arena *mem, diag *d)
{
    const dev_port *ports;
    size_t n = dev_program_ports(c->p, DEV_INPUT, &ports);
    bool *filled = TAKE(mem, bool, n);
    if (!filled) return diag_nomem(d);
    for (size_t i = 0; i < x->n_in; i++) {
        const dev_tensor *in = &x->in[i];
        size_t k;
        if (!dev_program_port(c->p, DEV_INPUT, in->name, &k)) return unknown(c, DEV_INPUT, in->name, d);
        if (filled[k]) return diag_fail(d, AN_INPUT, NOWHERE, "input %s is given twice", in->name);
        filled[k] = true;
        TRY(put_input(c->surface[DEV_INPUT][k], in, &ports[k], c->dev->lim.row_bytes, mem, d));
    }
    for (size_t k = 0; k < n; k++)
        if (!filled[k] && x->fill) TRY(make_up(c, k, &ports[k], x->seed, mem, d));
        else if (!filled[k] && !dev_program_port(c->p, DEV_OUTPUT, ports[k].name, NULL)) {
            char want[120];
            shape_text(want, sizeof want, ports[k].dim, ports[k].rank);
            return diag_fail(d, AN_INPUT, NOWHERE, "input %s is not given; the program wants %s %s", ports[k].name,
                             dtype_name(ports[k].dt), want);
        }
    return AN_OK;
}

/* Text is compiled. Program bytes are looked through before the device is asked: what is wrong with them comes
 * before who may load them. */
static an_status take_program(once *c, const dev_source *src, diag *d)
{
    if (!program_is(src->text, src->n_text)) return device_compile(c->dev, src, &c->p, d);
    program *p;
    TRY(program_decode(src->text, src->n_text, &p, d));
    program_free(p);
    return device_adopt(c->dev, src->text, src->n_text, &src->weights, &c->p, d);
}

static an_status run(once *c, const dev_source *src, const dev_once *x, arena *mem, dev_tensors *out, diag *d)
{
    TRY(take_program(c, src, d));
    const dev_port *ports;
    const char *const *want = x->want;
    const size_t n_want = x->n_want;
    size_t n = dev_program_ports(c->p, DEV_OUTPUT, &ports);
    for (size_t i = 0; i < n_want; i++)
        if (!dev_program_port(c->p, DEV_OUTPUT, want[i], NULL)) return unknown(c, DEV_OUTPUT, want[i], d);
    TRY(dev_program_load(c->p, d));
    TRY(bind_all(c, mem, d));
    TRY(put_inputs(c, x, mem, d));
    TRY(device_run(c->r, DEV_QOS, d));
    for (size_t i = 0; i < (n_want ? n_want : n); i++) {
        size_t k = i;
        dev_tensor t;
        if (n_want && !dev_program_port(c->p, DEV_OUTPUT, want[i], &k)) continue;
        TRY(get_output(c->surface[DEV_OUTPUT][k], &ports[k], c->dev->lim.row_bytes, mem, &t, d));
        if (!VEC_PUSH(mem, out, t)) return diag_nomem(d);
    }
    return AN_OK;
}

an_status device_run_once(const char *name, const device_options *o, const dev_source *src, const dev_once *x,
                          arena *mem, dev_tensors *out, engine_error *said, diag *d)
{
    once c = { 0 };
    out->n = 0;
    if (said) *said = (engine_error){ 0 };
    TRY(device_open(&c.dev, name, o, d));
    an_status st = run(&c, src, x, mem, out, d);
    if (st && said) device_error(c.dev, said);
    device_close(c.dev); /* takes the request, the surfaces and the program with it */
    return st;
}
