/* json.c: the bounds of json.h, then jansson. */
#include <pthread.h>

#include "base/io.h"
#include "format/json.h"

/* Brackets and commas outside strings. Whatever is malformed here is left for the parser to refuse. */
static an_status count_values(const char *s, size_t n, const char *what, diag *d)
{
    size_t depth = 0, groups = 0, values = 0;
    for (size_t i = 0; i < n; i++) {
        switch (s[i]) {
        case '"':
            for (i++; i < n && s[i] != '"'; i++)
                if (s[i] == '\\') i++;
            break;
        case '{':
        case '[': groups++, depth++; break;
        case '}':
        case ']': depth -= depth > 0; break;
        case ',': values++; break;
        }
        if (depth > JSON_MAX_DEPTH)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s is nested deeper than %d levels at byte %zu", what,
                             JSON_MAX_DEPTH, i);
        if (groups > JSON_MAX_GROUPS || values > JSON_MAX_VALUES)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s holds more than %d objects and arrays, or %d values", what,
                             JSON_MAX_GROUPS, JSON_MAX_VALUES);
    }
    return AN_OK;
}

/* The library's lexer leaves out a character that it has no memory for and goes on, so neither its answer nor its
 * error tells. Whatever allocator the program gave it stays the one that allocates. */
static _Thread_local bool refused;
static json_malloc_t give;

static void *asked(size_t n)
{
    void *p = give(n);
    if (!p) refused = true;
    return p;
}

static void stand_between(void)
{
    json_free_t take;
    json_get_alloc_funcs(&give, &take);
    json_set_alloc_funcs(asked, take);
}

json_t *json_parse(const void *text, size_t n, size_t flags, json_error_t *e, bool *oom)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, stand_between);
    refused = false;
    json_t *j = json_loadb(text, n, flags, e);
    *oom = refused;
    if (j && refused) json_decref(j), j = NULL;
    return j;
}

an_status json_text(const void *text, size_t n, const char *what, json_t **out, diag *d)
{
    *out = NULL;
    if (n > JSON_MAX_BYTES)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s is %zu bytes of JSON; %d are the most read", what, n,
                         JSON_MAX_BYTES);
    TRY(count_values(text, n, what, d));
    json_error_t e;
    bool oom;
    json_t *j = json_parse(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e, &oom);
    if (oom) return diag_nomem(d);
    if (!j)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s is not JSON: line %d, column %d: %.120s", what, e.line, e.column,
                         e.text);
    if (!json_is_object(j)) {
        json_decref(j);
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s is JSON, but not an object", what);
    }
    *out = j;
    return AN_OK;
}

an_status json_file(const char *path, json_t **out, diag *d)
{
    *out = NULL;
    file_bytes f;
    TRY(file_read(path, JSON_MAX_BYTES, &f, d));
    an_status st = json_text(f.at, f.n, path, out, d);
    file_drop(&f);
    return st;
}
