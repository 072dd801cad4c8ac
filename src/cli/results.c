/* results.c: what came out of a run, for who keeps no file of it. In: tensors.  Out: a line for each on standard
 * output: how large its numbers are, the first of them, and how many are none. */
#include <math.h>

#include "base/dtype.h"
#include "cli/cli.h"

enum { FIRST = 8 }; /* numbers that are shown */

typedef struct {
    an_array_info a;
    dtype dt;
    int64_t n;
    double least, mean, largest; /* of what is finite; without any, no numbers */
    int64_t nan, inf;
} summary;

static summary sum_up(const an_array *array)
{
    summary s = { .n = 1, .least = INFINITY, .largest = -INFINITY };
    an_array_get(array, &s.a);
    s.dt = dtype_from_name(s.a.dtype, strlen(s.a.dtype));
    for (int i = 0; i < s.a.rank; i++) s.n *= s.a.dim[i]; /* as many as there is memory for */
    double sum = 0;
    for (int64_t i = 0; i < s.n; i++) {
        const double x = dtype_load(s.dt, s.a.data, i);
        if (isnan(x)) s.nan++;
        else if (isinf(x)) s.inf++;
        else s.least = fmin(s.least, x), s.largest = fmax(s.largest, x), sum += x;
    }
    const int64_t finite = s.n - s.nan - s.inf;
    s.mean = sum / (double)finite;
    if (!finite) s.least = s.mean = s.largest = NAN;
    return s;
}

static void put_shape(strbuf *b, const summary *s)
{
    sb_putc(b, '[');
    for (int i = 0; i < s->a.rank; i++) sb_printf(b, "%s%lld", i ? ", " : "", (long long)s->a.dim[i]);
    sb_putc(b, ']');
}

static void as_json(strbuf *b, const summary *s)
{
    sb_puts(b, "{\"result\":");
    sb_json(b, s->a.name, strlen(s->a.name));
    sb_printf(b, ",\"type\":\"%s\",\"shape\":", s->a.dtype);
    put_shape(b, s);
    sb_puts(b, ",\"least\":"), sb_number(b, s->least);
    sb_puts(b, ",\"mean\":"), sb_number(b, s->mean);
    sb_puts(b, ",\"largest\":"), sb_number(b, s->largest);
    sb_printf(b, ",\"nan\":%lld,\"inf\":%lld,\"first\":[", (long long)s->nan, (long long)s->inf);
    for (int64_t i = 0; i < MIN(s->n, FIRST); i++) {
        if (i) sb_putc(b, ',');
        sb_number(b, dtype_load(s->dt, s->a.data, i));
    }
    sb_puts(b, "]}\n");
}

static void as_text(strbuf *b, const summary *s)
{
    sb_printf(b, "%s: %s ", s->a.name, s->a.dtype);
    put_shape(b, s);
    if (s->n > s->nan + s->inf) sb_printf(b, ", %.5g to %.5g, mean %.5g", s->least, s->largest, s->mean);
    if (s->nan) sb_printf(b, ", %lld NaN", (long long)s->nan);
    if (s->inf) sb_printf(b, ", %lld infinite", (long long)s->inf);
    for (int64_t i = 0; i < MIN(s->n, FIRST); i++) {
        const double x = dtype_load(s->dt, s->a.data, i);
        sb_puts(b, i ? " " : ": ");
        if (isnan(x)) sb_puts(b, "NaN"); /* whatever its sign */
        else sb_printf(b, "%.5g", x);
    }
    sb_puts(b, s->n > FIRST ? " …\n" : "\n");
}

int put_results(an_array *const *got, size_t n, an_format f)
{
    strbuf b = { 0 };
    for (size_t i = 0; i < n; i++) {
        const summary s = sum_up(got[i]);
        if (f == AN_JSON) as_json(&b, &s);
        else as_text(&b, &s);
    }
    int code = b.oom ? say(AN_NOMEM, "out of memory") : 0;
    if (!code && b.at) fputs(b.at, stdout);
    sb_free(&b);
    return code;
}
