/* log.h: a line for every update: JSON for programs, CSV for spreadsheets. In: lm_progress. Out: text without its
 * line end. */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include "train/lm_run.h"

/* Numbers that are not finite are null. Keys are stable: more may come, none goes. */
void log_json(strbuf *b, const lm_progress *p);
void log_csv_head(strbuf *b); /* the columns' names, in the same order and with the same names as in JSON */
void log_csv(strbuf *b, const lm_progress *p); /* not finite: an empty field */

/* What a log says about losses, in the order of updates. Where updates were done again after a process died the last
 * line of each counts; what is no such line is passed over, and so is a file that cannot be read. kept: a loss on
 * text kept back. */
typedef struct {
    int64_t step;
    double loss, smooth; /* NAN: none */
    bool kept;
} log_past;
void log_read(const char *path, void (*take)(void *user, const log_past *l), void *user);

/* A line of text for whoever listens; to NULL: nobody does. */
void log_say(void (*to)(void *user, const char *line), void *user, const char *fmt, ...) PRINTF_LIKE(3, 4);

#endif
