/* ledger.c: what counts against the limits of a process: programs compiled, programs loaded, the last compile that
 * failed. In: every compile and load of a device.  Out: whether one more is granted.
 *
 * The real limits are a process's, not a handle's. So devices of one chip opened with its own limits share one
 * ledger; a device whose budget was set by its caller, or that stands for a process of its own, keeps one for
 * itself. The lock here is taken last. */
#include "device/device_int.h"

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

ledger *ledger_of_process(const chip *c)
{
    enum { MOST = 64 }; /* chips with a ledger; target/chip.def has far fewer */
    static ledger of[MOST];
    for (size_t i = 0; i < chip_count() && i < MOST; i++)
        if (chip_at(i) == c) return &of[i];
    return NULL;
}

static bool take(uint64_t *count, int64_t most, uint64_t *seen)
{
    pthread_mutex_lock(&mu);
    *seen = *count;
    bool ok = !most || *count < (uint64_t)most;
    *count += ok;
    pthread_mutex_unlock(&mu);
    return ok;
}

static void give(uint64_t *count)
{
    pthread_mutex_lock(&mu);
    --*count;
    pthread_mutex_unlock(&mu);
}

bool ledger_take_compile(device *dev, uint64_t *seen) { return take(&dev->ledger->compiled, dev->lim.compiles, seen); }
void ledger_give_compile(device *dev) { give(&dev->ledger->compiled); }
bool ledger_take_load(device *dev, uint64_t *seen) { return take(&dev->ledger->loaded, dev->lim.loaded, seen); }
void ledger_give_load(device *dev) { give(&dev->ledger->loaded); }

uint64_t ledger_compiled(device *dev)
{
    pthread_mutex_lock(&mu);
    uint64_t n = dev->ledger->compiled;
    pthread_mutex_unlock(&mu);
    return n;
}

bool ledger_unpaced(device *dev)
{
    enum { NS_PER_MS = 1000000 };
    pthread_mutex_lock(&mu);
    uint64_t then = dev->ledger->failed_ns;
    pthread_mutex_unlock(&mu);
    return then && (clock_ns() - then) / NS_PER_MS < (uint64_t)dev->lim.pace_ms; /* not earlier than it failed */
}

void ledger_outcome(device *dev, bool ok)
{
    uint64_t now = clock_ns();
    pthread_mutex_lock(&mu);
    dev->ledger->failed_ns = ok ? 0 : now;
    pthread_mutex_unlock(&mu);
}
