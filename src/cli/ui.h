/* ui.h: a run as a person sees it: one line that changes on a terminal, a line now and then elsewhere. */
#ifndef CLI_UI_H
#define CLI_UI_H

#include "cli/cli.h"

typedef struct {
    bool terminal;    /* of standard error */
    bool shared;      /* standard output is a terminal too: its lines would be put behind the live one */
    bool utf8;        /* standard output shows more than ASCII */
    int64_t every;    /* updates between lines where no terminal is; 0: a twentieth of the run */
    int shown;        /* characters of the line on the screen */
    uint64_t last_ns; /* when it was drawn */
    double ms;        /* an update, smoothed */
} ui;

/* Characters of a line on the terminal behind fd, less the last, where it may wrap. Asked anew each time: windows
 * are made wider and narrower. */
int ui_columns(int fd);
void ui_begin(ui *u, int64_t every);
/* The line, at most `width` characters of it: fields that do not fit are left out from the right. Returns its
 * length. */
int ui_line(const ui *u, const an_lm_progress *p, int width, char *to, size_t n);
void ui_step(ui *u, const an_lm_progress *p);
void ui_clear(ui *u); /* before anything else is printed: the line goes away, the next update draws it again */
void ui_put(ui *u, const char *text); /* a line on standard output, at once: who reads it need not wait for more */
void ui_end(ui *u);   /* the last state of the line stays */

#endif
