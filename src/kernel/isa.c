/* isa.c: what this CPU has. In: cpuid, or the kernel's capability words; AN_ISA.  Out: a set of ISA_* bits. */
#define _DEFAULT_SOURCE 1 /* syscall() */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/str.h"
#include "kernel/kernel.h"

static const struct {
    const char *name, *what;
} rows[ISA_COUNT + 1] = {
#define ISA(id, name, what) { name, what },
#include "kernel/isa.def"
#undef ISA
    { NULL, NULL }, /* why: an architecture without rows still needs an array */
};

const char *isa_name(int bit) { return bit >= 0 && bit < ISA_COUNT ? rows[bit].name : NULL; }
const char *isa_what(int bit) { return bit >= 0 && bit < ISA_COUNT ? rows[bit].what : NULL; }

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* Linux lends the 8 KB of tile registers only to a process that asks (from 5.16; older kernels refuse). */
static bool amx_allowed(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { REQ_XCOMP_PERM = 0x1023, TILEDATA = 18 };
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, TILEDATA) == 0;
#else
    return false;
#endif
}

static bool by_intel(void)
{
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_INTEL_ebx && c == signature_INTEL_ecx &&
           d == signature_INTEL_edx;
}

static uint32_t detect(void)
{
    uint32_t a, b, c, d, a1, b1, c1, d1, set = 0;
    if (!__get_cpuid(1, &a1, &b1, &c1, &d1) || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!(c1 >> 27 & 1)) return 0; /* OSXSAVE: the system saves wider registers at all */
    uint64_t os = xcr0();
    bool fma = c1 >> 12 & 1, f16c = c1 >> 29 & 1;
    if ((os & 6) == 6 && (b >> 5 & 1) && fma && f16c) set |= ISA_AVX2;
    bool f512 = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
    if (!(set & ISA_AVX2) || (os & 0xe6) != 0xe6 || !f512) return set;
    set |= ISA_AVX512;
    if (c >> 11 & 1) set |= ISA_VNNI;
    if (c >> 8 & 1) set |= ISA_GFNI;
    if (d >> 23 & 1) set |= ISA_AVX512FP16;
    uint32_t a71, b71, c71, d71;
    if (a >= 1 && __get_cpuid_count(7, 1, &a71, &b71, &c71, &d71) && (a71 >> 5 & 1))
        set |= ISA_AVX512BF16 | (by_intel() ? ISA_FMA_FIRST : 0);
    bool tiles = (d >> 22 & 1) && (d >> 24 & 1) && (d >> 25 & 1) && (os & 0x60000) == 0x60000;
    if (tiles && amx_allowed()) set |= ISA_AMX;
    return set;
}
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

static bool has(const char *key)
{
    int v = 0;
    size_t n = sizeof v;
    return sysctlbyname(key, &v, &n, NULL, 0) == 0 && v;
}

static uint32_t detect(void)
{
    return ISA_NEON | (has("hw.optional.arm.FEAT_FP16") && has("hw.optional.arm.FEAT_FHM") ? ISA_FP16 : 0) |
           (has("hw.optional.arm.FEAT_DotProd") ? ISA_DOT : 0) | (has("hw.optional.arm.FEAT_BF16") ? ISA_BF16 : 0) |
           (has("hw.optional.arm.FEAT_I8MM") ? ISA_I8MM : 0);
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

static uint32_t detect(void)
{
    unsigned long h = getauxval(AT_HWCAP), h2 = getauxval(AT_HWCAP2);
    bool asimdhp = h >> 10 & 1, dot = h >> 20 & 1, fhm = h >> 23 & 1, i8mm = h2 >> 13 & 1, bf16 = h2 >> 14 & 1;
    return ISA_NEON | (asimdhp && fhm ? ISA_FP16 : 0) | (dot ? ISA_DOT : 0) | (bf16 ? ISA_BF16 : 0) |
           (i8mm ? ISA_I8MM : 0);
}
#else
static uint32_t detect(void) { return 0; }
#endif

uint32_t isa_cpu(void) { return detect(); }

an_status isa_have(uint32_t *have, diag *d)
{
    *have = detect();
    const char *cap = getenv("AN_ISA");
    if (!cap || !*cap) return AN_OK;
    if (!strcmp(cap, "scalar")) {
        *have = 0;
        return AN_OK;
    }
    for (int i = 0; i < ISA_COUNT; i++)
        if (!strcmp(cap, rows[i].name)) {
            *have &= (2u << i) - 1;
            return AN_OK;
        }
    strbuf names = { 0 };
    for (int i = 0; i < ISA_COUNT; i++) sb_printf(&names, ", %s", rows[i].name);
    an_status st = diag_fail(d, AN_INPUT, NOWHERE, "AN_ISA=%s: no such instruction set here; there are scalar%s", cap,
                             names.at ? names.at : "");
    sb_free(&names);
    return st;
}

/* Asked for at every product: the system is asked once, and every thread finds the same. */
static size_t cache_bytes(atomic_size_t *known, const char *file, size_t guess)
{
    size_t n = atomic_load_explicit(known, memory_order_relaxed);
    if (n) return n;
    FILE *f = fopen(file, "r");
    if (f) {
        unsigned long kb;
        if (fscanf(f, "%luK", &kb) == 1 && kb < 1ul << 20) n = (size_t)kb << 10;
        fclose(f);
    }
    n = n ? n : guess;
    atomic_store_explicit(known, n, memory_order_relaxed);
    return n;
}

size_t cpu_l1_bytes(void)
{
    static atomic_size_t known;
    return cache_bytes(&known, "/sys/devices/system/cpu/cpu0/cache/index0/size", (size_t)32 << 10);
}

size_t cpu_l2_bytes(void)
{
    static atomic_size_t known;
    return cache_bytes(&known, "/sys/devices/system/cpu/cpu0/cache/index2/size", (size_t)1 << 20);
}
