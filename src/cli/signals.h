/* signals.h: a training that is asked to end: by a signal, or because nobody reads what it writes. */
#ifndef CLI_SIGNALS_H
#define CLI_SIGNALS_H

#include "cli/cli.h"

/* From here on the first SIGINT, SIGTERM or SIGHUP is noted, and a second SIGINT or SIGTERM ends the process at
 * once. A pipe without a reader and a file that may grow no further become errors of the write. */
void signals_catch(void);
bool signals_asked(void); /* one came */
/* For a process that executes itself: what comes between the two is for the one that goes on. */
void signals_hold(void);
void signals_release(void);
/* Should the run end after the update it is in? *unread becomes true where who read standard output is gone. That
 * nobody sees how far it is (standard error) is no reason: the result is still wanted. */
bool signals_stop(bool *unread);
int say_unread(void); /* that nobody reads standard output; the exit code */

#endif
