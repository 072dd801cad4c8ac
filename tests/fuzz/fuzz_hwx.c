/* fuzz_hwx: any bytes as a program file, and as a bare task stream. What is read must print, and what is written of
 * it must read back the same. The first byte chooses: 0 a file; 1 a file whose header is made to fit, so that the
 * fuzzer gets to the commands; else tasks. */
#include <stdlib.h>

#include "fuzz_t.h"
#include "../hwx_t.h"

static void tasks(const uint8_t *data, size_t n)
{
    arena a = { .limit = 64 << 20 };
    diag d = { 0 };
    hwx_task *t;
    size_t count = 0;
    strbuf text = { 0 }, shown = { 0 };
    an_status st = n < 2 ? AN_INPUT
                         : hwx_tasks_read(&a, data + 2, n - 2, 4 * (uint32_t)(data[0] | (data[1] & 1) << 8) + 4, 0, &t,
                                          &count, &d);
    if (!st) {
        hwx_dump_tasks(t, count, "json", &shown);
        need(!hwx_tasks_write(t, count, &text, &d));
        need(text.n <= n - 2);
        for (size_t i = 0; i < count; i++) need(!memcmp(text.at + t[i].at, data + 2 + t[i].at, t[i].bytes));
    } else need(n < 2 || d.msg[0]);
    sb_free(&text), sb_free(&shown), arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint8_t head[16] = { 0xce, 0xfa, 0xef, 0xbe, 0x80, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0 };
    bool accepted;
    if (!n) return 0;
    if (data[0] > 1) {
        tasks(data + 1, n - 1);
        return 0;
    }
    uint8_t *own = malloc(n > 1 ? n - 1 : 1); /* exactly as long: the sanitizer sees one byte too many */
    need(own != NULL);
    memcpy(own, data + 1, n - 1);
    if (data[0] && n > sizeof head) memcpy(own, head, sizeof head);
    need(!hwx_bytes_behave(own, n - 1, &accepted));
    free(own);
    return 0;
}
