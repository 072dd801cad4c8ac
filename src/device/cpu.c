/* cpu.c: the same executor without a chip: this processor's arithmetic, as fast as it goes, and no limits. */
#include "device/device_int.h"

static an_status cpu_open(device *dev, const char *arg, diag *d)
{
    (void)arg;
    dev->num = numerics_cpu;
    return host_open(dev, d);
}

const device_class device_cpu = {
    .name = "cpu",
    .what = "this processor, without a chip's rules and limits",
    .computes = true,
    .plain = true,
    .open = cpu_open,
    HOST_ENTRIES,
};
