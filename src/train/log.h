/* log.h: a line for every update: JSON for programs, CSV for spreadsheets. In: lm_progress. Out: text without its line end. */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include "train/lm_run.h"

/* Numbers that are not finite are null. Keys are stable: more may come, none goes. */
void log_json(strbuf *b, const lm_progress *p);
void log_csv_head(strbuf *b); /* the columns' names, in the same order and with the same names as in JSON */
void log_csv(strbuf *b, const lm_progress *p); /* not finite: an empty field */

#endif
