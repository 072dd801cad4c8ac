/* hwx.c: the public face of hwx/. */
#include "api/api_int.h"
#include "hwx/hwx.h"

static an_status dump_file(const void *bytes, size_t size, const char *format, strbuf *b, diag *d)
{
    hwx_file f;
    an_status st = hwx_read(bytes, size, &f, d);
    if (!st) hwx_dump(&f, format, b);
    hwx_close(&f);
    return st;
}

static an_status dump_tasks(const void *bytes, size_t size, size_t first, const char *format, strbuf *b, diag *d)
{
    arena a = { 0 };
    hwx_task *t;
    size_t n;
    an_status st = first > UINT32_MAX
                       ? diag_fail(d, AN_INPUT, NOWHERE, "first task of %zu bytes, but there are %zu", first, size)
                       : hwx_tasks_read(&a, bytes, size, (uint32_t)first, 0, &t, &n, d);
    if (!st) hwx_dump_tasks(t, n, format, b);
    arena_free(&a);
    return st;
}

an_status an_hwx_dump(char **text, const void *bytes, size_t size, size_t first_task, an_format f, an_error *e)
{
    strbuf b = { 0 };
    diag d = { 0 };
    *text = NULL;
    an_status st = first_task ? dump_tasks(bytes, size, first_task, api_format(f), &b, &d)
                              : dump_file(bytes, size, api_format(f), &b, &d);
    if (!st && !(*text = api_take(&b))) st = diag_nomem(&d);
    if (st) sb_free(&b);
    return st ? api_error(e, &d) : AN_OK;
}
