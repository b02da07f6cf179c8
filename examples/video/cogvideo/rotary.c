/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The position of a video token: the angles of the rotary embedding, and the sin-cos table of the
 * 2B model.  Tokens are ordered by frame, row and column.
 */
#include <math.h>
#include "model.h"

#define THETA 10000.

/* ---- rotary -------------------------------------------------------------------------------- */

/* Rows and columns of a grid are mapped to positions in the grid of the training. */
struct axis {
    double start, step;
};

/*
 * The crop rule of the 1.0 models.  The grid is scaled to fit into the training grid and centred
 * there.  It goes from start to stop (n - 1) / n, where stop is its end.  Halves round to even.
 */
static struct axis crop(int64_t base, int64_t size, int64_t n)
{
    double start = nearbyint((double)(base - size) / 2), stop = start + (double)size;
    double end = stop * (double)(n - 1) / (double)n;

    return (struct axis){start, n > 1 ? (end - start) / (double)(n - 1) : 0};
}

static void axes(const struct cogvideo_config *c, const struct cogvideo_grid *n, struct axis *row,
                 struct axis *column)
{
    int64_t rows = c->sample_height / c->patch, columns = c->sample_width / c->patch;
    double high = (double)n->rows / (double)n->columns;

    *row = *column = (struct axis){0, 1}; /* the 1.5 models use row and column numbers */
    if (c->flat_patch)
        return;
    bool tall = high > (double)rows / (double)columns;
    int64_t height =
        tall ? rows : (int64_t)nearbyint((double)columns / (double)n->columns * (double)n->rows);
    int64_t width =
        tall ? (int64_t)nearbyint((double)rows / (double)n->rows * (double)n->columns) : columns;
    *row = crop(rows, height, n->rows);
    *column = crop(columns, width, n->columns);
}

/* Writes `width` channels of one axis at a position, as (cos, sin) pairs; returns the end.
 * Positions, frequencies and angles are fp32, as in diffusers. */
static float *turn(float *dst, double place, int64_t width)
{
    for (int64_t k = 0; k < width / 2; k++) {
        float exponent = (float)(2 * k) / (float)width;
        double angle = (double)((float)place * (1.f / powf((float)THETA, exponent)));
        *dst++ = (float)cos(angle);
        *dst++ = (float)sin(angle);
    }
    return dst;
}

void cogvideo_rotary_table(const struct cogvideo_config *c, const struct video_geometry *g,
                           float *table)
{
    struct cogvideo_grid n = cogvideo_grid(c, g);
    int64_t time = c->head / 4, space = c->head / 8 * 3;
    struct axis row, column;

    axes(c, &n, &row, &column);
    for (int64_t i = 0; i < g->tokens * c->head / 2; i++) { /* text is not rotated */
        *table++ = 1;
        *table++ = 0;
    }
    for (int64_t i = 0; i < n.tokens; i++) {
        int64_t y = i / n.columns % n.rows, x = i % n.columns;
        table = turn(table, (double)(i / (n.rows * n.columns)), time);
        table = turn(table, row.start + (double)y * row.step, space);
        table = turn(table, column.start + (double)x * column.step, space);
    }
}

/* ---- sin-cos ------------------------------------------------------------------------------- */

/* Writes [sin(p f_0), .., cos(p f_0), ..] of `width` channels; returns the end. */
static float *sincos_part(float *dst, double p, int64_t width)
{
    for (int64_t k = 0; k < width / 2; k++) {
        double f = pow(THETA, -2.0 * (double)k / (double)width);
        dst[k] = (float)sin(p * f);
        dst[width / 2 + k] = (float)cos(p * f);
    }
    return dst + width;
}

/* The channels of the column come before the channels of the row. */
void cogvideo_position_table(const struct cogvideo_config *c, const struct video_geometry *g,
                             float *table)
{
    struct cogvideo_grid n = cogvideo_grid(c, g);

    for (int64_t i = 0; i < n.tokens; i++) {
        int64_t y = i / n.columns % n.rows, x = i % n.columns;
        double frame = (double)(i / (n.rows * n.columns));
        table = sincos_part(table, frame / c->time_scale, c->width / 4);
        table = sincos_part(table, (double)x / c->space_scale, c->width / 8 * 3);
        table = sincos_part(table, (double)y / c->space_scale, c->width / 8 * 3);
    }
}
