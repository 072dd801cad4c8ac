/* plot.c: curves for terminals and as SVG. */
#include <math.h>

#include "base/plain.h"
#include "train/plot.h"

void plot_add(plot_series *s, double x, double y)
{
    if (!isfinite(y)) return;
    if (!s->per) s->per = 1;
    if (s->n && s->in_last < s->per) { /* a mean that grows by one number */
        size_t i = s->n - 1;
        double k = (double)++s->in_last;
        s->x[i] += (x - s->x[i]) / k, s->y[i] += (y - s->y[i]) / k;
        return;
    }
    if (s->n == PLOT_POINTS) {
        for (size_t i = 0; i < PLOT_POINTS / 2; i++)
            s->x[i] = (s->x[2 * i] + s->x[2 * i + 1]) / 2, s->y[i] = (s->y[2 * i] + s->y[2 * i + 1]) / 2;
        s->n /= 2, s->per *= 2;
    }
    s->x[s->n] = x, s->y[s->n++] = y, s->in_last = 1;
}

/* ---- the frame ---- */

typedef struct {
    double x0, x1, y0, y1;
    int left; /* SVG: where the inside begins */
} frame;

static void widen(frame *f, const plot_series *s)
{
    for (size_t i = 0; s && i < s->n; i++) {
        f->x0 = MIN(f->x0, s->x[i]), f->x1 = MAX(f->x1, s->x[i]);
        f->y0 = MIN(f->y0, s->y[i]), f->y1 = MAX(f->y1, s->y[i]);
    }
}

static bool frame_of(const plot_losses *p, frame *f)
{
    *f = (frame){ .x0 = INFINITY, .x1 = -INFINITY, .y0 = INFINITY, .y1 = -INFINITY };
    widen(f, p->raw);
    widen(f, p->smooth);
    widen(f, p->kept);
    if (f->x0 > f->x1) return false;
    if (f->x1 - f->x0 < 1) f->x1 = f->x0 + 1;
    const bool above = f->y0 >= 0; /* as losses are: nothing is below, then */
    /* the last: so that steps between ticks are more than roundings of them */
    double room = MAX(MAX((f->y1 - f->y0) * 0.04, 1e-3), MAX(fabs(f->y0), fabs(f->y1)) * 1e-9);
    f->y0 -= room, f->y1 += room;
    if (above) f->y0 = MAX(f->y0, 0);
    return true;
}

/* The largest 1, 2 or 5 times a power of ten that gives at least n steps. */
static double tick(double span, int n)
{
    double p = pow(10, floor(log10(span / n))), m = span / n / p;
    return p * (m >= 5 ? 5 : m >= 2 ? 2 : 1);
}

/* Places behind the point at which numbers that far apart differ. */
static int places(double step) { return step > 0 && step < 1 ? MIN((int)ceil(-log10(step) - 1e-9), 12) : 0; }

/* What labels of a scale have in common. What is too long to be read becomes a power of ten. */
typedef struct {
    int digits;
    bool power;
    int width; /* of the longest */
} label_form;

static int put_label(char *to, size_t n, const label_form *l, double y)
{
    return plain_printf(to, n, l->power ? "%.*e" : "%.*f", l->digits, y + 0.0);
}

/* least: places behind the point where there is room for them. */
static label_form labels_of(const frame *f, double step, int least, int room)
{
    char text[400];
    label_form l = { .digits = MAX(places(step), least) };
    l.width = MAX(put_label(text, sizeof text, &l, f->y0), put_label(text, sizeof text, &l, f->y1));
    if (l.width <= room) return l;
    l = (label_form){ .power = true,
                      .digits = MIN(MAX((int)ceil(log10(MAX(fabs(f->y0), fabs(f->y1)) / step)), 1), 12) };
    l.width = MAX(put_label(text, sizeof text, &l, f->y0), put_label(text, sizeof text, &l, f->y1));
    return l;
}

/* ---- terminals ---- */

enum { MAX_COLS = 200, MAX_ROWS = 60 };
typedef struct {
    int w, h; /* dots */
    bool dot[MAX_ROWS * 4][MAX_COLS * 2];
} canvas;

static void draw(canvas *c, const frame *f, const plot_series *s)
{
    int px = -1, py = 0;
    for (size_t i = 0; s && i < s->n; i++) {
        int x = (int)((s->x[i] - f->x0) / (f->x1 - f->x0) * (c->w - 1) + 0.5),
            y = (int)((f->y1 - s->y[i]) / (f->y1 - f->y0) * (c->h - 1) + 0.5);
        int steps = px < 0 ? 0 : MAX(x > px ? x - px : px - x, y > py ? y - py : py - y);
        for (int k = 0; k <= steps; k++) {
            int ax = steps ? px + (x - px) * k / steps : x, ay = steps ? py + (y - py) * k / steps : y;
            if (ax >= 0 && ax < c->w && ay >= 0 && ay < c->h) c->dot[ay][ax] = true;
        }
        px = x, py = y;
    }
}

static void put_braille(strbuf *b, const canvas *c, int col, int row)
{
    static const unsigned char bit[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } };
    unsigned v = 0;
    for (int y = 0; y < 4; y++)
        for (int x = 0; x < 2; x++)
            if (c->dot[row * 4 + y][col * 2 + x]) v |= bit[y][x];
    const char utf8[3] = { (char)0xe2, (char)(0xa0 | (v >> 6)), (char)(0x80 | (v & 0x3f)) }; /* U+2800 + v */
    sb_putn(b, utf8, 3);
}

void plot_text(strbuf *b, const plot_losses *p, int cols, int rows, bool ascii)
{
    frame f;
    static const int dot_w[2] = { 2, 1 }, dot_h[2] = { 4, 1 };
    cols = MIN(MAX(cols, 10), MAX_COLS), rows = MIN(MAX(rows, 4), MAX_ROWS);
    if (!frame_of(p, &f)) return;
    canvas c = { .w = cols * dot_w[ascii], .h = rows * dot_h[ascii] };
    draw(&c, &f, p->smooth && p->smooth->n ? p->smooth : p->raw);
    label_form form = labels_of(&f, (f.y1 - f.y0) / rows, 3, 8); /* the last two labels may be a row apart */
    const int before = MAX(form.width, 8);
    if (p->title) sb_printf(b, "%*s%s\n", before + 2, "", p->title);
    for (int r = 0; r < rows; r++) {
        double y = f.y1 - (f.y1 - f.y0) * (r * dot_h[ascii] + (dot_h[ascii] - 1) / 2.0) / (c.h - 1);
        char label[400] = "";
        bool has = r % 3 == 0 || r == rows - 1;
        if (has) put_label(label, sizeof label, &form, y);
        sb_printf(b, "%*s %s", before, label, ascii ? "|" : has ? "┤" : "│");
        for (int k = 0; k < cols; k++) {
            if (ascii) sb_putc(b, c.dot[r][k] ? '*' : ' ');
            else put_braille(b, &c, k, r);
        }
        sb_putc(b, '\n');
    }
    sb_printf(b, "%*s %s", before, "", ascii ? "+" : "└");
    for (int k = 0; k < cols; k++) sb_puts(b, ascii ? "-" : "─");
    char left[24], right[24];
    plain_printf(left, sizeof left, "%.0f", f.x0);
    plain_printf(right, sizeof right, "%.0f", f.x1);
    int gap = cols - (int)strlen(left) - (int)strlen(right);
    sb_printf(b, "\n%*s%s%*s%s\n", before + 2, "", left, MAX(gap, 1), "", right);
}

/* ---- SVG ---- */

enum { W = 800, H = 450, LEFT = 64, RIGHT = 16, TOP = 40, BOTTOM = 48 };

static double at_x(const frame *f, double x) { return f->left + (x - f->x0) / (f->x1 - f->x0) * (W - f->left - RIGHT); }
static double at_y(const frame *f, double y) { return TOP + (f->y1 - y) / (f->y1 - f->y0) * (H - TOP - BOTTOM); }

/* Names of files are bytes; what is no text, or none that XML takes, is shown as U+FFFD. */
static void put_xml(strbuf *b, const char *s)
{
    static const char unknown[] = "\xef\xbf\xbd", none[] = "\xef\xbf\xbe", neither[] = "\xef\xbf\xbf";
    for (size_t left = strlen(s), n; left; s += n, left -= n) {
        const char *name = *s == '&' ? "&amp;" : *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '"' ? "&quot;" : NULL;
        const size_t shown = utf8_shown((const unsigned char *)s, left);
        n = MAX(shown, 1);
        if (name) sb_puts(b, name);
        else if (!shown || (n == 3 && (!memcmp(s, none, 3) || !memcmp(s, neither, 3)))) sb_puts(b, unknown);
        else sb_putn(b, s, n);
    }
}

static void put_curve(strbuf *b, const frame *f, const plot_series *s, const char *style, bool dots)
{
    if (!s || !s->n) return;
    if (dots || s->n == 1) {
        for (size_t i = 0; i < s->n; i++)
            sb_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" %s/>\n", at_x(f, s->x[i]), at_y(f, s->y[i]), style);
        return;
    }
    sb_puts(b, "<polyline points=\"");
    for (size_t i = 0; i < s->n; i++) sb_printf(b, "%s%.1f,%.1f", i ? " " : "", at_x(f, s->x[i]), at_y(f, s->y[i]));
    sb_printf(b, "\" fill=\"none\" %s/>\n", style);
}

static void put_ticks(strbuf *b, const frame *f, double dy, const label_form *form)
{
    double dx = MAX(tick(f->x1 - f->x0, 6), 1);
    for (double k = ceil(f->y0 / dy), y = k * dy; y <= f->y1; y = ++k * dy) {
        char label[400];
        put_label(label, sizeof label, form, y);
        sb_printf(b,
                  "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                  f->left, at_y(f, y), W - RIGHT, f->left - 8, at_y(f, y) + 4, label);
    }
    for (double x = ceil(f->x0 / dx) * dx; x <= f->x1; x += dx)
        sb_printf(
            b, "<path d=\"M%.1f %dv5\" stroke=\"#888\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
            at_x(f, x), H - BOTTOM, at_x(f, x), H - BOTTOM + 20, x);
}

static void put_legend(strbuf *b, int k, const char *colour, const char *text)
{
    sb_printf(b, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"4\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
              W - 190, TOP + 12 + 18 * k, colour, W - 170, TOP + 18 + 18 * k, text);
}

void plot_svg(strbuf *b, const plot_losses *p)
{
    enum { NAME = 28, DIGIT = 7 }; /* the scale's name and what is beside it; a digit, at most */
    frame f;
    int k = 0;
    const bool any = frame_of(p, &f);
    const double dy = any ? tick(f.y1 - f.y0, 5) : 1;
    const label_form form = any ? labels_of(&f, dy, 0, 8) : (label_form){ 0 };
    f.left = MAX(LEFT, NAME + DIGIT * form.width + 8);
    sb_printf(
        b,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n",
        W, H, W, H);
    sb_printf(b, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\">", W, H,
              f.left);
    put_xml(b, p->title ? p->title : "");
    sb_puts(b, "</text>\n");
    if (any) {
        put_ticks(b, &f, dy, &form);
        sb_printf(b, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#888\"/>\n", f.left, TOP, H - BOTTOM, W - RIGHT);
        put_curve(b, &f, p->raw, "stroke=\"#9ecae1\" stroke-width=\"1\"", false);
        put_curve(b, &f, p->smooth, "stroke=\"#08519c\" stroke-width=\"2\"", false);
        put_curve(b, &f, p->kept, "fill=\"#d94801\"", true);
        if (p->raw && p->raw->n) put_legend(b, k++, "#9ecae1", "every update");
        if (p->smooth && p->smooth->n) put_legend(b, k++, "#08519c", "smoothed");
        if (p->kept && p->kept->n) put_legend(b, k++, "#d94801", "on text kept back");
    }
    sb_printf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (f.left + W - RIGHT) / 2, H - 8);
    put_xml(b, p->x ? p->x : "");
    sb_printf(b, "</text>\n<text transform=\"translate(16 %d) rotate(-90)\" text-anchor=\"middle\">",
              (TOP + H - BOTTOM) / 2);
    put_xml(b, p->y ? p->y : "");
    sb_puts(b, "</text>\n</svg>\n");
}
