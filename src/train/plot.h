/* plot.h: what a run looked like: its losses as a curve, its work as lanes of time.
 * In: numbers as they come; memory is bounded however long the run is.  Out: text for terminals, SVG, a Chrome
 * trace. */
#ifndef TRAIN_PLOT_H
#define TRAIN_PLOT_H

#include "train/pipe.h"

/* ---- curves ---- */

enum { PLOT_POINTS = 1024 };
typedef struct {            /* zero to begin with */
    double x[PLOT_POINTS], y[PLOT_POINTS];
    size_t n;
    /* numbers a point stands for; doubled when the room is full. Those the last point has so far */
    int64_t per, in_last;
} plot_series;
void plot_add(plot_series *s, double x, double y); /* a y that is not finite is left out */

typedef struct {
    const char *title, *x, *y;
    const plot_series *raw, *smooth, *kept; /* every update; smoothed; on text kept back. Each may be NULL */
} plot_losses;
/* Braille dots, or with `ascii` plain characters; cols and rows of the plot's inside. */
void plot_text(strbuf *b, const plot_losses *p, int cols, int rows, bool ascii);
void plot_svg(strbuf *b, const plot_losses *p);

/* ---- lanes ---- */

typedef struct plot_lanes plot_lanes;
plot_lanes *plot_lanes_new(void); /* NULL: no memory */
void plot_lanes_free(plot_lanes *l); /* NULL is fine */
/* From any thread. Strings in e must live as long as l. Past a million events the rest is counted, not kept. */
void plot_lanes_add(plot_lanes *l, const pipe_event *e);
void plot_lanes_mark(plot_lanes *l); /* an update ended here */
/* Time in each lane and kind of work, what each lane waited, and the last update drawn to scale. */
void plot_lanes_text(strbuf *b, plot_lanes *l, int cols);
/* The JSON that chrome://tracing and Perfetto open, with times of the machine's clock. before: a trace made here by
 * an earlier process of the run, which this one goes on as a process of its own; what is no such trace is left out
 * (n 0: none). */
void plot_lanes_trace(strbuf *b, plot_lanes *l, const char *before, size_t n);

#endif
