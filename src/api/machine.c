/* machine.c: what the library finds on this machine, and what the environment tells it. In: the processor, AN_ISA,
 * AN_THREADS, ANNEAL_CACHE and its bound, shared libraries.  Out: a page; a variable that nothing would run with is
 * on it, and is the outcome. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <stdlib.h>
#include <zlib.h>

#include "api/api_int.h"
#include "base/plain.h"
#include "base/pool.h"
#include "bench/bench.h"
#include "device/device.h"
#include "kernel/kernel.h"

typedef struct {
    strbuf b;
    an_format f;
    diag first; /* of the problems */
} page;

static void put_key(page *p, const char *key, const char *text)
{
    sb_printf(&p->b, ",\"%s\":", key);
    sb_json(&p->b, text, strlen(text));
}

static void section(page *p, const char *title)
{
    if (p->f == AN_TEXT) sb_printf(&p->b, "%s:\n", title);
    if (p->f == AN_MARKDOWN) sb_printf(&p->b, "\n| %s | | |\n|---|---|---|\n", title);
}

static void line(page *p, const char *name, const char *state, const char *what)
{
    sb_printf(&p->b, p->f == AN_MARKDOWN ? "| `%s` | %s | %s |\n" : "  %-16s %-8s %s\n", name, state, what);
}

static void problem(page *p, const diag *d)
{
    if (!p->first.st) p->first = *d;
    if (p->f == AN_JSON) {
        sb_puts(&p->b, "{\"kind\":\"problem\"");
        put_key(p, "message", d->msg);
        sb_puts(&p->b, "}\n");
    } else line(p, "problem", "", d->msg);
}

static void put_isa(page *p)
{
    uint32_t have = isa_cpu(), use;
    diag d = { 0 };
    if (isa_have(&use, &d)) use = 0;
    section(p, "instruction sets");
    for (int i = 0; i < ISA_COUNT; i++) {
        bool found = have >> i & 1, used = use >> i & 1;
        if (p->f != AN_JSON) {
            line(p, isa_name(i), !found ? "missing" : d.st ? "found" : used ? "in use" : "unused", isa_what(i));
            continue;
        }
        sb_puts(&p->b, "{\"kind\":\"isa\"");
        put_key(p, "name", isa_name(i));
        sb_printf(&p->b, ",\"found\":%s,\"used\":%s", found ? "true" : "false", used ? "true" : "false");
        put_key(p, "what", isa_what(i));
        sb_puts(&p->b, "}\n");
    }
    const char *cap = getenv("AN_ISA");
    if (d.st) problem(p, &d);
    else if (p->f != AN_JSON && cap && *cap) line(p, "AN_ISA", cap, "the strongest that may be used");
}

static void put_threads(page *p)
{
    pool *some;
    diag d = { 0 };
    const char *said = getenv("AN_THREADS");
    char n[24];
    section(p, "threads");
    if (pool_make(&some, 0, &d)) {
        problem(p, &d);
        return;
    }
    snprintf(n, sizeof n, "%d", pool_threads(some));
    pool_free(some);
    const char *from = said && atoi(said) > 0 ? "AN_THREADS" : "one per CPU";
    if (p->f == AN_JSON) sb_printf(&p->b, "{\"kind\":\"threads\",\"count\":%s,\"from\":\"%s\"}\n", n, from);
    else line(p, n, "", from);
}

static void put_size(char *to, size_t n, uint64_t bytes)
{
    if (bytes < 1 << 20) snprintf(to, n, "%llu bytes", (unsigned long long)bytes);
    else plain_printf(to, n, "%.1f MiB", (double)bytes / (1 << 20));
}

static void put_cache(page *p)
{
    dev_cache_info c;
    diag d = { 0 };
    an_status st = dev_cache_look(&c, &d);
    const char *dir = c.dir ? c.dir : "";
    section(p, "compiled programs of language models");
    if (p->f == AN_JSON) {
        sb_puts(&p->b, "{\"kind\":\"cache\"");
        put_key(p, "folder", dir);
        sb_printf(&p->b, ",\"programs\":%llu,\"bytes\":%llu,\"most_bytes\":%llu", (unsigned long long)c.programs,
                  (unsigned long long)c.bytes, (unsigned long long)c.max_bytes);
        put_key(p, "why_not", c.why_not);
        sb_puts(&p->b, "}\n");
    } else if (!c.dir) line(p, "no folder", "", "kept in memory only: ANNEAL_CACHE, XDG_CACHE_HOME and HOME name none");
    else {
        char what[280], now[32], most[32];
        put_size(now, sizeof now, c.bytes);
        put_size(most, sizeof most, c.max_bytes);
        snprintf(what, sizeof what, "%llu programs, %s%s%s%s%s", (unsigned long long)c.programs, now,
                 st ? "" : " of at most ", st ? "" : most, *c.why_not ? "; new ones are kept in memory only: " : "",
                 c.why_not);
        line(p, dir, "", what);
    }
    free(c.dir);
    if (st) problem(p, &d);
}

static void put_library(page *p, const char *name, const char *version, bool found, const char *for_what,
                        const char *get)
{
    if (p->f == AN_JSON) {
        sb_puts(&p->b, "{\"kind\":\"library\"");
        put_key(p, "name", name);
        put_key(p, "version", version);
        sb_printf(&p->b, ",\"found\":%s", found ? "true" : "false");
        put_key(p, "for", for_what);
        put_key(p, "get", get);
        sb_puts(&p->b, "}\n");
        return;
    }
    char what[200];
    snprintf(what, sizeof what, "%s%s%s", for_what, found ? "" : "; to get it: ", found ? "" : get);
    line(p, name, !found ? "missing" : *version ? version : "found", what);
}

static void put_libraries(page *p)
{
    char pcre[64] = "";
    pcre2_config(PCRE2_CONFIG_VERSION, pcre); /* at most 24 characters: "10.42 2022-12-11" */
    pcre[strcspn(pcre, " ")] = 0;
    section(p, "libraries");
    put_library(p, "jansson", JANSSON_VERSION, true, "JSON files", "");
    put_library(p, "pcre2", pcre, true, "how tokenizers cut text", "");
    put_library(p, "zlib", zlibVersion(), true, "packed image files", "");
    bool found;
    const char *name;
    for (size_t i = 0; (name = bench_peer(i, &found)); i++) {
        char get[80];
        snprintf(get, sizeof get, "apt-get install lib%s-dev, or AN_BLAS=its folder", name);
        put_library(p, name, "", found, "its products beside ours in anneal bench gemm", get);
    }
}

an_status an_machine(char **text, an_format f, an_error *e)
{
    page p = { .f = f };
    put_isa(&p);
    put_threads(&p);
    put_cache(&p);
    put_libraries(&p);
    if (f == AN_MARKDOWN) sb_putc(&p.b, '\n'); /* that table has a head of its own */
    else section(&p, "devices");
    char *devices = an_table("devices", f);
    if (devices) sb_puts(&p.b, devices);
    else p.b.oom = true;
    an_free(devices);
    if (p.b.oom) p.first = (diag){ 0 }, diag_nomem(&p.first);
    *text = api_take(&p.b);
    return p.first.st ? api_error(e, &p.first) : AN_OK;
}
