/* json.h: a JSON text that somebody else wrote, as jansson values, with bounds on size, nesting and number of values.
 * A few bytes of text ("{},") cost a parser hundreds of bytes, so the text is counted before it is parsed. */
#ifndef FORMAT_JSON_H
#define FORMAT_JSON_H

#include <jansson.h>

#include "base/base.h"

enum {
    JSON_MAX_BYTES = 64 << 20,
    JSON_MAX_DEPTH = 64,
    JSON_MAX_GROUPS = 1 << 20,  /* objects and arrays */
    JSON_MAX_VALUES = 4 << 20,  /* commas, which is to say values */
};

/* what: named in messages ("config.json"). Duplicate keys, trailing text and a top that is no object are refused.
 * On success *out is the caller's: json_decref. Numbers stay as written: 1.0 is a real, 1 an integer. */
an_status json_text(const void *text, size_t n, const char *what, json_t **out, diag *d) MUST_CHECK;
/* json_loadb, but for want of memory, which it takes for an error in the text or for less text: NULL and *oom. */
json_t *json_parse(const void *text, size_t n, size_t flags, json_error_t *e, bool *oom);
an_status json_file(const char *path, json_t **out, diag *d) MUST_CHECK;

#endif
