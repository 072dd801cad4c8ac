/* lines.h: a file to which lines are added: logs. Each goes out whole, in one call. One that only half of got there
 * (a full disk) is taken back; where a process died in the middle of one, the next begins a line of its own. */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include "base/base.h"

typedef struct lines lines;

/* fresh: what was in it goes. NULL: errno says why. */
lines *lines_open(const char *path, bool fresh);
bool lines_made(const lines *l);  /* the file was not there */
bool lines_empty(const lines *l); /* it was empty when it was opened, as far as can be told */
bool lines_add(lines *l, const char *line); /* without its end. False: errno says why */
bool lines_close(lines *l); /* NULL is fine. False: the system says only now that something is lost */

#endif
