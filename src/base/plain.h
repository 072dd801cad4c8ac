/* plain.h: numbers between binary and text as C writes them. printf and strtod obey the locale of the program that uses
 * the library: where it has a decimal comma they would write 0,5 into JSON, files and messages, and read 0.5 as 0. */
#ifndef BASE_PLAIN_H
#define BASE_PLAIN_H

#include <stdarg.h>

#include "base/base.h"

int plain_printf(char *to, size_t n, const char *fmt, ...) PRINTF_LIKE(3, 4);         /* as snprintf */
int plain_vprintf(char *to, size_t n, const char *fmt, va_list ap) PRINTF_LIKE(3, 0); /* as vsnprintf */
double plain_real(const char *s, char **end);                                         /* as strtod */

#endif
