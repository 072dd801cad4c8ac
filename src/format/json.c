/* json.c: the bounds of json.h, then jansson. */
#include <errno.h>

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
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s is nested deeper than %d levels at byte %zu", what, JSON_MAX_DEPTH, i);
        if (groups > JSON_MAX_GROUPS || values > JSON_MAX_VALUES)
            return diag_fail(d, AN_INPUT, NOWHERE, "%.200s holds more than %d objects and arrays, or %d values", what, JSON_MAX_GROUPS,
                             JSON_MAX_VALUES);
    }
    return AN_OK;
}

an_status json_text(const void *text, size_t n, const char *what, json_t **out, diag *d)
{
    *out = NULL;
    if (n > JSON_MAX_BYTES)
        return diag_fail(d, AN_INPUT, NOWHERE, "%.200s is %zu bytes of JSON; %d are the most read", what, n, JSON_MAX_BYTES);
    TRY(count_values(text, n, what, d));
    json_error_t e;
    errno = 0;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    if (!j && errno == ENOMEM) return diag_nomem(d); /* malloc says so; the parser takes what it could not hold for an error in the text */
    if (!j) return diag_fail(d, AN_INPUT, NOWHERE, "%.200s is not JSON: line %d, column %d: %.120s", what, e.line, e.column, e.text);
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
