/* tasks.c: the task list: __text to tasks and back.
 * In: bytes, or tasks.  Out: tasks whose words live in an arena, or bytes.
 *
 * A task is ten header words, an optional word naming the task it waits for, and records until its end: a word with
 * count - 1 in its upper six bits and an address, then that many words. The size of the first task is in the
 * container, of the others in the task before. */
#include "hwx/hwx_int.h"

enum { HEAD_BYTES = 4 * HWX_HEAD_WORDS, TASK_WORDS_MAX = 512 }; /* NextSize has nine bits */

const uint32_t *hwx_word(const hwx_task *t, uint32_t addr)
{
    if (addr >= HWX_HEAD) return addr - HWX_HEAD < HEAD_BYTES ? &t->head[(addr - HWX_HEAD) / 4] : NULL;
    for (size_t i = t->n_rec; i-- > 0;) /* the last write stands */
        if (t->rec[i].n && addr >= t->rec[i].addr && addr - t->rec[i].addr < 4 * t->rec[i].n)
            return &t->rec[i].word[(addr - t->rec[i].addr) / 4];
    return NULL;
}

size_t hwx_word_at(const hwx_task *t, uint32_t addr)
{
    size_t at = HEAD_BYTES + (t->has_wait ? 4 : 0), found = 0;
    for (size_t i = 0; i < t->n_rec; i++) {
        if (t->rec[i].n && addr >= t->rec[i].addr && addr - t->rec[i].addr < 4 * t->rec[i].n)
            found = at + 4 + (addr - t->rec[i].addr);
        at += 4 + 4 * (size_t)t->rec[i].n;
    }
    return found;
}

bool hwx_channel(const hwx_task *t, unsigned i, uint32_t *at, uint32_t *bytes)
{
    if (!hwx_value(t, HWX_F_KBE0, 0) || hwx_value(t, HWX_F_KBASE0, 0) != HWX_SLOT_KERNEL ||
        !hwx_value(t, HWX_F_COEFF_EN, i))
        return false;
    return hwx_get(t, HWX_F_COEFF_BASE, i, at) && hwx_get(t, HWX_F_COEFF_SIZE, i, bytes);
}

/* The records between a header and the end of the task. They must fill it exactly. */
static an_status read_records(arena *a, const unsigned char *p, size_t n, size_t at, hwx_task *t, diag *d)
{
    VEC(hwx_regs) rec = { 0 };
    for (size_t o = 0; o < n;) {
        uint32_t w = le32(p + o), count = (w >> 26) + 1;
        hwx_regs r = { .addr = w & 0x3ffffff, .n = w ? count : 0 };
        o += 4;
        if (r.n > (n - o) / 4)
            return diag_fail(d, AN_INPUT, NOWHERE, "task at 0x%zx: record 0x%08x has %u words, %zu are left", at, w,
                             count, (n - o) / 4);
        if (r.n && r.addr % 4)
            return diag_fail(d, AN_INPUT, NOWHERE, "task at 0x%zx: record 0x%08x: address 0x%x, wanted a multiple of 4",
                             at, w, r.addr);
        if (r.n && !(r.word = TAKE(a, uint32_t, r.n))) return diag_nomem(d);
        for (uint32_t k = 0; k < r.n; k++) r.word[k] = le32(p + o + 4 * k);
        o += 4 * (size_t)r.n;
        if (!VEC_PUSH(a, &rec, r)) return diag_nomem(d);
    }
    t->rec = rec.at, t->n_rec = rec.n;
    return AN_OK;
}

static an_status read_task(arena *a, const unsigned char *text, size_t at, uint32_t bytes, hwx_task *t, diag *d)
{
    *t = (hwx_task){ .at = at, .bytes = bytes };
    for (int i = 0; i < HWX_HEAD_WORDS; i++) t->head[i] = le32(text + at + 4 * (size_t)i);
    /* Two predicates for the extra word are published, and agree wherever they were seen: the flag first, then
     * kernel data from slot 3. */
    bool flag = hwx_value(t, HWX_F_TDE, 0) != 0, other = (t->head[9] & 3) == 3;
    diag first = { 0 };
    for (int attempt = 0; attempt < (flag == other ? 1 : 2); attempt++) {
        diag own = { 0 };
        size_t skip = HEAD_BYTES;
        t->has_wait = attempt ? other : flag;
        if (t->has_wait && bytes < HEAD_BYTES + 4)
            return diag_fail(d, AN_INPUT, NOWHERE,
                             "task at 0x%zx: %u bytes leave no room for the task it waits for (wanted %d)", at, bytes,
                             HEAD_BYTES + 4);
        if (t->has_wait) t->wait = le32(text + at + HEAD_BYTES), skip += 4;
        an_status st = read_records(a, text + at + skip, bytes - skip, at, t, &own);
        if (!st) return AN_OK;
        if (st == AN_NOMEM) return diag_nomem(d);
        if (!attempt) first = own;
    }
    return diag_fail(d, AN_INPUT, NOWHERE, "%s", first.msg);
}

an_status hwx_tasks_read(arena *a, const unsigned char *text, size_t n, uint32_t first_bytes, size_t n_tasks,
                         hwx_task **out, size_t *n_out, diag *d)
{
    VEC(hwx_task) v = { 0 };
    uint32_t bytes = first_bytes;
    for (size_t at = 0;;) {
        hwx_task t;
        if (bytes < HEAD_BYTES || bytes % 4)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: %u bytes, wanted a multiple of 4 from %d", v.n, bytes,
                             HEAD_BYTES);
        if (at > n || bytes > n - at)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: 0x%zx + 0x%x bytes, but the task stream has 0x%zx", v.n,
                             at, bytes, n);
        TRY(read_task(a, text, at, bytes, &t, d));
        if (!VEC_PUSH(a, &v, t)) return diag_nomem(d);
        uint32_t next = hwx_value(&t, HWX_F_NEXT_POINTER, 0);
        bool last = hwx_value(&t, HWX_F_EON, 0) != 0;
        if (last != !next)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: EON %d with next task at 0x%x, wanted %s", v.n - 1, last,
                             next, last ? "0" : "EON in the last task alone");
        if (n_tasks && (v.n == n_tasks) != last)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu %s, but the program has %zu", v.n - 1,
                             last ? "is the last" : "has a successor", n_tasks);
        if (last) break;
        if (next % HWX_TASK_ALIGN)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: next task at 0x%x, wanted a multiple of 0x%x", v.n - 1,
                             next, HWX_TASK_ALIGN);
        if (next < at + bytes)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: next task at 0x%x, wanted 0x%zx or more", v.n - 1, next,
                             at + bytes);
        bytes = (hwx_value(&t, HWX_F_NEXT_SIZE, 0) + 1) * 4;
        at = next;
    }
    *out = v.at, *n_out = v.n;
    return AN_OK;
}

static uint64_t task_bytes(const hwx_task *t)
{
    uint64_t n = HEAD_BYTES + (t->has_wait ? 4 : 0);
    for (size_t i = 0; i < t->n_rec; i++) n += 4 + 4 * (uint64_t)t->rec[i].n;
    return n;
}

an_status hwx_tasks_link(hwx_task *t, size_t n, diag *d)
{
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = task_bytes(&t[i]);
        if (bytes > 4 * TASK_WORDS_MAX)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: %llu bytes, wanted at most %d", i,
                             (unsigned long long)bytes, 4 * TASK_WORDS_MAX);
        t[i].at = (size_t)at, t[i].bytes = (uint32_t)bytes;
        at = ROUND_UP(at + bytes, HWX_TASK_ALIGN);
    }
    for (size_t i = 0; i < n; i++) {
        bool last = i + 1 == n;
        const struct {
            hwx_field f;
            uint64_t value;
        } set[] = { { HWX_F_TID, i }, { HWX_F_LNID, i > 0 }, { HWX_F_EON, last }, { HWX_F_NEXT_SIZE, last ? 0 : t[i + 1].bytes / 4 - 1 },
                    { HWX_F_NEXT_POINTER, last ? 0 : t[i + 1].at }, { HWX_F_TBE, !last }, { HWX_F_TDE, t[i].has_wait } };
        for (size_t k = 0; k < COUNT(set); k++)
            if (!hwx_put(&t[i], set[k].f, 0, set[k].value))
                return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: %s %llu does not fit", i, hwx_field_name(set[k].f),
                                 (unsigned long long)set[k].value);
    }
    return AN_OK;
}

static void put32(strbuf *b, uint32_t v)
{
    unsigned char p[4];
    le_put(p, 4, v);
    sb_putn(b, (const char *)p, 4);
}

an_status hwx_tasks_write(const hwx_task *t, size_t n, strbuf *text, diag *d)
{
    static const char zero[HWX_TASK_ALIGN];
    for (size_t i = 0; i < n; i++) {
        if (task_bytes(&t[i]) != t[i].bytes)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: says 0x%x bytes, has 0x%llx", i, t[i].bytes,
                             (unsigned long long)task_bytes(&t[i]));
        if (t[i].at < text->n || t[i].at % HWX_TASK_ALIGN)
            return diag_fail(d, AN_INPUT, NOWHERE, "task %zu: at 0x%zx, wanted a multiple of 0x%x from 0x%zx", i,
                             t[i].at, HWX_TASK_ALIGN, text->n);
        while (!text->oom && text->n < t[i].at) sb_putn(text, zero, MIN(sizeof zero, t[i].at - text->n));
        for (int k = 0; k < HWX_HEAD_WORDS; k++) put32(text, t[i].head[k]);
        if (t[i].has_wait) put32(text, t[i].wait);
        for (size_t k = 0; k < t[i].n_rec; k++) {
            const hwx_regs *r = &t[i].rec[k];
            if (r->n > 64 || r->addr > 0x3ffffff || (r->n == 1 && !r->addr)) /* one word at 0 would read as padding */
                return diag_fail(
                    d, AN_INPUT, NOWHERE,
                    "task %zu: record at 0x%x of %u words, wanted at most 64 below 0x4000000, and not one alone at 0",
                    i, r->addr, r->n);
            put32(text, r->n ? (r->n - 1) << 26 | r->addr : 0);
            for (uint32_t w = 0; w < r->n; w++) put32(text, r->word[w]);
        }
    }
    return text->oom ? diag_nomem(d) : AN_OK;
}
