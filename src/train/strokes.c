/* strokes.c: handwritten-looking digits without a file. In: a seed.  Out: images of 28 x 28 with their classes.
 *
 * A digit is a row of strokes, each a few points in a unit square (x to the right, y down), joined by straight lines
 * or by a curve through them (Catmull-Rom). Every drawing moves the points a little, turns, shears, stretches and
 * shifts the whole, and picks a pen: so no pixel belongs to a class, and a linear model is left behind by one with a
 * hidden layer. Ink is the distance to the nearest line, fading over one pixel; paper and ink get noise. Pixels are
 * multiples of 1/255 as in a scan. Turning uses a rational circle instead of sine and cosine, which differ between C
 * libraries. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "train/digits.h"

enum { SIDE = 28, CLASSES = 10, MAX_POINTS = 12, MAX_STROKES = 3, CURVE_STEPS = 6 };

typedef struct {
    int n;         /* points; 0: no such stroke */
    bool curve;
    float chance;  /* how often it is drawn; 0: always */
    float at[MAX_POINTS][2];
} stroke;

static const stroke shapes[CLASSES][MAX_STROKES] = {
    { { 9, true, 0, { { .5f, .1f }, { .3f, .2f }, { .24f, .5f }, { .32f, .8f }, { .5f, .9f }, { .68f, .8f }, { .76f, .5f }, { .7f, .2f }, { .5f, .1f } } } },
    { { 2, false, 0, { { .52f, .1f }, { .5f, .9f } } },
      { 2, false, .6f, { { .34f, .28f }, { .52f, .1f } } },
      { 2, false, .25f, { { .32f, .9f }, { .68f, .9f } } } },
    { { 7, true, 0, { { .26f, .28f }, { .36f, .12f }, { .6f, .11f }, { .72f, .28f }, { .6f, .52f }, { .4f, .72f }, { .25f, .89f } } },
      { 2, false, 0, { { .25f, .89f }, { .77f, .88f } } } },
    { { 4, true, 0, { { .27f, .16f }, { .52f, .09f }, { .7f, .26f }, { .48f, .46f } } }, { 4, true, 0, { { .48f, .46f }, { .74f, .66f }, { .54f, .9f }, { .26f, .82f } } } },
    { { 3, false, 0, { { .56f, .1f }, { .22f, .62f }, { .8f, .62f } } }, { 2, false, 0, { { .62f, .34f }, { .6f, .92f } } } },
    { { 3, false, 0, { { .72f, .11f }, { .34f, .12f }, { .3f, .46f } } }, { 5, true, 0, { { .3f, .46f }, { .56f, .4f }, { .74f, .62f }, { .58f, .88f }, { .26f, .85f } } } },
    { { 8, true, 0, { { .66f, .1f }, { .4f, .3f }, { .28f, .62f }, { .4f, .88f }, { .64f, .84f }, { .7f, .64f }, { .52f, .52f }, { .31f, .66f } } } },
    { { 3, false, 0, { { .24f, .13f }, { .76f, .12f }, { .42f, .9f } } }, { 2, false, .3f, { { .38f, .52f }, { .7f, .5f } } } },
    { { 9, true, 0, { { .5f, .48f }, { .3f, .3f }, { .5f, .1f }, { .7f, .3f }, { .5f, .48f }, { .27f, .7f }, { .5f, .91f }, { .73f, .7f }, { .5f, .48f } } } },
    { { 8, true, 0, { { .69f, .36f }, { .5f, .52f }, { .31f, .36f }, { .45f, .12f }, { .66f, .16f }, { .69f, .36f }, { .66f, .65f }, { .56f, .91f } } } },
};

typedef struct {
    double a, b, c, d, x, y; /* pixel = (a u + b v + x, c u + d v + y) of u, v in -0.5 … 0.5 */
    double pen;              /* half its width in pixels */
    double jitter;           /* of a point, in parts of the square */
} hand;

static hand some_hand(rng *r)
{
    double t = rng_range(r, -0.14, 0.14); /* tan of half the angle: up to 16 degrees */
    double cs = (1 - t * t) / (1 + t * t), sn = 2 * t / (1 + t * t);
    double w = rng_range(r, 15, 23), h = rng_range(r, 18, 24), shear = rng_range(r, -0.35, 0.35);
    return (hand){ .a = w * cs,
                   .b = h * (shear * cs - sn),
                   .c = w * sn,
                   .d = h * (shear * sn + cs),
                   .x = (SIDE - 1) / 2.0 + rng_range(r, -3, 3),
                   .y = (SIDE - 1) / 2.0 + rng_range(r, -2, 2),
                   .pen = rng_range(r, 0.6, 1.7),
                   .jitter = 0.045 };
}

/* Ink of the line from p to q, the darker of old and new. Only pixels the pen can reach are visited. */
static void draw_line(float *image, const double *p, const double *q, double pen)
{
    double dx = q[0] - p[0], dy = q[1] - p[1], len = dx * dx + dy * dy, reach = pen + 0.5, by = len > 0 ? 1 / len : 0;
    int x0 = MAX(0, (int)ceil(MIN(p[0], q[0]) - reach)), x1 = MIN(SIDE - 1, (int)floor(MAX(p[0], q[0]) + reach));
    int y0 = MAX(0, (int)ceil(MIN(p[1], q[1]) - reach)), y1 = MIN(SIDE - 1, (int)floor(MAX(p[1], q[1]) + reach));
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            double t = ((x - p[0]) * dx + (y - p[1]) * dy) * by;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            double ex = x - p[0] - t * dx, ey = y - p[1] - t * dy, far = ex * ex + ey * ey;
            if (far >= reach * reach) continue;
            double ink = reach - sqrt(far);
            float *at = &image[y * SIDE + x];
            if (ink > *at) *at = (float)MIN(1, ink);
        }
}

static void draw_stroke(float *image, const stroke *s, const hand *h, rng *r)
{
    double pt[MAX_POINTS][2];
    for (int i = 0; i < s->n; i++) {
        double u = s->at[i][0] - 0.5 + rng_range(r, -h->jitter, h->jitter),
               v = s->at[i][1] - 0.5 + rng_range(r, -h->jitter, h->jitter);
        pt[i][0] = h->a * u + h->b * v + h->x, pt[i][1] = h->c * u + h->d * v + h->y;
    }
    for (int i = 0; i + 1 < s->n; i++) {
        if (!s->curve) {
            draw_line(image, pt[i], pt[i + 1], h->pen);
            continue;
        }
        const double *p0 = pt[i ? i - 1 : 0], *p1 = pt[i], *p2 = pt[i + 1], *p3 = pt[i + 2 < s->n ? i + 2 : i + 1];
        double from[2] = { p1[0], p1[1] };
        for (int k = 1; k <= CURVE_STEPS; k++) {
            double t = (double)k / CURVE_STEPS, to[2];
            for (int c = 0; c < 2; c++)
                to[c] = 0.5 * (2 * p1[c] + t * (p2[c] - p0[c] +
                                                t * (2 * p0[c] - 5 * p1[c] + 4 * p2[c] - p3[c] +
                                                     t * (3 * p1[c] - p0[c] - 3 * p2[c] + p3[c]))));
            draw_line(image, from, to, h->pen);
            from[0] = to[0], from[1] = to[1];
        }
    }
}

static void draw_digit(float *image, int digit, rng *r)
{
    hand h = some_hand(r);
    double dark = rng_range(r, 0.65, 1), grain = rng_range(r, 0.02, 0.2);
    for (int i = 0; i < SIDE * SIDE; i++) image[i] = 0;
    for (int i = 0; i < MAX_STROKES && shapes[digit][i].n; i++) {
        const stroke *s = &shapes[digit][i];
        if (s->chance == 0 || rng_unit(r) < s->chance) draw_stroke(image, s, &h, r);
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        uint64_t bits = rng_next(r); /* two halves: a triangle, nearly a bell */
        double noise = ((double)(bits >> 32) + (double)(bits & 0xffffffffu)) * 0x1p-32 - 1,
               x = dark * image[i] + grain * noise;
        image[i] = (float)(int)(255 * (x < 0 ? 0 : x > 1 ? 1 : x) + 0.5) / 255.0f;
    }
}

an_status train_strokes(uint64_t seed, int64_t n, train_images *out, diag *d)
{
    enum { MOST = 1000000 };
    *out = (train_images){ 0 };
    if (n < 1 || n > MOST)
        return diag_fail(d, AN_INPUT, NOWHERE, "%lld drawn digits, wanted 1 to %d", (long long)n, MOST);
    train_images im = { .n = n, .h = SIDE, .w = SIDE, .classes = CLASSES };
    im.x = malloc((size_t)n * SIDE * SIDE * sizeof *im.x);
    im.label = malloc((size_t)n);
    if (!im.x || !im.label) {
        train_images_free(&im);
        return diag_nomem(d);
    }
    rng r = { seed };
    r.s = rng_next(&r); /* neighbouring seeds start far apart */
    for (int64_t i = 0; i < n; i++) {
        im.label[i] = (uint8_t)rng_below(&r, CLASSES);
        draw_digit(im.x + i * SIDE * SIDE, im.label[i], &r);
    }
    *out = im;
    return AN_OK;
}
