/* fault.c: an engine that misbehaves as engines do, when a test says so: errors where none were expected, a result
 * that is no number, a reload that did not take, or not all of it. What is asked for by device_options.fault is
 * another thing: want of memory in the host's code. */
#include <math.h>

#include "device/device_int.h"

bool dev_spoil(device *dev, const char *what) { return dev->opt.spoil && dev->opt.spoil(dev->opt.spoiler, what); }

/* A bit in the middle of every packed constant. */
void spoil_panels(dev_program *p)
{
    void *at;
    size_t bytes;
    for (size_t i = 0; image_panel(p->im, i, &at, &bytes); i++) ((unsigned char *)at)[bytes / 2] ^= 1;
}

void spoil_output(dev_request *r)
{
    for (size_t i = 0; i < r->p->n_port[DEV_OUTPUT]; i++) {
        const dev_port *q = &r->p->port[DEV_OUTPUT][i];
        if (!dtype_is_float(q->dt) || !q->bytes) continue;
        dtype_store(q->dt, r->at[DEV_OUTPUT][i], 0, (double)NAN);
        return;
    }
}
