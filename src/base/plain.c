/* plain.c: the C library's conversions under its "C" locale, for the calling thread and for as long as they take. */
#include <locale.h>
#include <pthread.h>
#include <stdlib.h>
#if defined(__APPLE__)
#include <xlocale.h>
#endif

#include "base/plain.h"

static locale_t c_locale; /* stays: there is one for the process */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* The locale to go back to; 0: there is no memory for another one, and nothing changed. */
static locale_t enter(void)
{
    pthread_once(&once, make);
    return c_locale ? uselocale(c_locale) : (locale_t)0;
}

static void leave(locale_t was)
{
    if (was) uselocale(was);
}

int plain_vprintf(char *to, size_t n, const char *fmt, va_list ap)
{
    locale_t was = enter();
    int r = vsnprintf(to, n, fmt, ap);
    leave(was);
    return r;
}

int plain_printf(char *to, size_t n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int r = plain_vprintf(to, n, fmt, ap);
    va_end(ap);
    return r;
}

double plain_real(const char *s, char **end)
{
    locale_t was = enter();
    double x = strtod(s, end);
    leave(was);
    return x;
}
