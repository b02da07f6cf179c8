/* SPDX-License-Identifier: Apache-2.0 */
/* Resizes pictures: see resize.h. */
#include "resize.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The offset that centers a crop.  Open-Sora rounds half the excess for images and truncates it for
 * frames. */
static int64_t middle(int64_t more, bool image)
{
    return image ? (int64_t)lrint((double)more / 2) : more / 2;
}

static struct picture_part part_of(const struct picture_size *s, int64_t width, int64_t height,
                                   bool image)
{
    double down = (double)s->height / (double)height, across = (double)s->width / (double)width;
    struct picture_part p = {.width = s->width, .height = s->height};

    if (!s->covers)
        return p;
    if (down > across)
        p.width = (int64_t)lrint((double)width * down);
    else
        p.height = (int64_t)lrint((double)height * across);
    p.left = middle(p.width - s->width, image);
    p.top = middle(p.height - s->height, image);
    return p;
}

/* ---- bilinear ------------------------------------------------------------------------------ */

/*
 * Each source row that is needed is resized to the width of the result once, as floats; two of
 * these rows make one row of the result.  Both passes run along whole rows of bytes and floats, so
 * that compilers can vectorize them.
 */

/* Computes pixels first .. first + n of a side that is scaled from `from` to `size` pixels. */
static void bilinear_axis(struct resize_axis *a, int64_t from, int64_t size, int64_t first,
                          int64_t n)
{
    double scale = (double)from / (double)size;

    a->plain = true;
    for (int64_t i = 0; i < n; i++) {
        double at = fmax(((double)(first + i) + 0.5) * scale - 0.5, 0);
        int64_t whole = (int64_t)at < from - 1 ? (int64_t)at : from - 1;
        a->first[i] = (int32_t)whole;
        a->n[i] = whole < from - 1;
        for (int c = 0; c < 3; c++)
            a->share[3 * i + c] = (float)(at - (double)whole);
        a->plain &= at == (double)(a->first[0] + i);
    }
}

/* Copies the left and the right source pixels of a row, each packed contiguously. */
static void pick(const struct resize *r, const uint8_t *row, ptrdiff_t step, uint8_t *left,
                 uint8_t *right)
{
    const struct resize_axis *a = &r->across;
    int64_t x = 0;

    /* Loads two neighbours at once; the load must not cross the end of the row. */
    for (; step == 3 && x < r->to.width - 1 && a->first[x] + 2 < r->from_width; x++) {
        uint64_t both;
        memcpy(&both, row + a->first[x] * 3, sizeof both);
        memcpy(left + 3 * x, &both, 4);
        memcpy(right + 3 * x, (const uint8_t *)&both + 3, 4);
    }
    for (; x < r->to.width; x++) {
        memcpy(left + 3 * x, row + a->first[x] * step, 3);
        memcpy(right + 3 * x, row + (a->first[x] + a->n[x]) * step, 3);
    }
}

static void blend_across(const uint8_t *restrict left, const uint8_t *restrict right,
                         const float *restrict share, int64_t n, float *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)left[i] + ((float)right[i] - (float)left[i]) * share[i];
}

static void blend_down(const float *restrict above, const float *restrict below, float share,
                       int64_t n, uint8_t *restrict to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (uint8_t)(int)(above[i] + (below[i] - above[i]) * share + 0.5f);
}

/* A source row at the width of the result; the last two requested rows are cached. */
static const float *line_of(struct resize *r, const struct pixels *from, int32_t row)
{
    int64_t n = r->to.width * 3;
    const uint8_t *source = from->at + row * from->down;

    for (int i = 0; i < 2; i++)
        if (r->line_row[i] == row)
            return r->line[i];
    int i = r->line_row[0] > r->line_row[1]; /* rows are requested from top to bottom */
    pick(r, source, from->right, r->rows, r->rows + n);
    blend_across(r->rows, r->rows + n, r->across.share, n, r->line[i]);
    r->line_row[i] = row;
    return r->line[i];
}

static void bilinear_row(struct resize *r, const struct pixels *from, int64_t row, uint8_t *to)
{
    int32_t first = r->down.first[row];

    if (r->across.plain && r->down.plain && from->right == 3) {
        memcpy(to, from->at + first * from->down + r->across.first[0] * 3,
               (size_t)(r->to.width * 3));
        return;
    }
    float share = r->down.share[3 * row];
    const float *above = line_of(r, from, first);
    const float *below = share > 0 ? line_of(r, from, first + r->down.n[row]) : above;
    blend_down(above, below, share, r->to.width * 3, to);
}

static void bilinear(struct resize *r, const struct pixels *from, uint8_t *to)
{
    r->line_row[0] = r->line_row[1] = -1;
    for (int64_t y = 0; y < r->to.height; y++)
        bilinear_row(r, from, y, to + y * r->to.width * 3);
}

/* ---- bicubic ------------------------------------------------------------------------------- */

enum { BITS = 22 /* fraction bits of a weight, as in Pillow */ };

static double cubic(double x)
{
    x = fabs(x);
    if (x < 1)
        return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

static double support_of(int64_t from, int64_t size)
{
    return 2 * fmax((double)from / (double)size, 1);
}

/* Computes the weights of one pixel, which sum to 1. */
static void bicubic_pixel(struct resize_axis *a, int64_t i, int64_t from, int64_t size, int64_t at)
{
    double scale = (double)from / (double)size, shrink = fmax(scale, 1), sum = 0;
    double centre = ((double)at + 0.5) * scale, support = support_of(from, size);
    int64_t first = (int64_t)fmax(centre - support + 0.5, 0);
    int64_t last = (int64_t)fmin(centre + support + 0.5, (double)from);
    int32_t *weight = a->weight + i * a->most;

    for (int64_t k = first; k < last; k++)
        sum += cubic(((double)k - centre + 0.5) / shrink);
    for (int64_t k = first; k < last; k++) {
        double w = cubic(((double)k - centre + 0.5) / shrink) / sum * (1 << BITS);
        weight[k - first] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
    }
    a->first[i] = (int32_t)first;
    a->n[i] = (int32_t)(last - first);
}

static uint8_t weighted(const uint8_t *p, ptrdiff_t step, const int32_t *weight, int32_t n)
{
    int64_t sum = 1 << (BITS - 1);

    for (int32_t k = 0; k < n; k++, p += step)
        sum += (int64_t)*p * weight[k];
    sum >>= BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Horizontal pass first.  For simplicity it processes all source rows, not only the needed ones. */
static void bicubic(const struct resize *r, const struct pixels *from, uint8_t *to)
{
    const struct resize_axis *a = &r->across, *d = &r->down;
    int64_t line = r->to.width * 3;

    for (int64_t y = 0; y < from->height; y++)
        for (int64_t i = 0; i < line; i++)
            r->rows[y * line + i] =
                weighted(from->at + y * from->down + a->first[i / 3] * from->right + i % 3,
                         from->right, a->weight + i / 3 * a->most, a->n[i / 3]);
    for (int64_t y = 0; y < r->to.height; y++)
        for (int64_t i = 0; i < line; i++)
            *to++ =
                weighted(r->rows + d->first[y] * line + i, line, d->weight + y * d->most, d->n[y]);
}

/* ---- both ---------------------------------------------------------------------------------- */

static void free_axis(struct resize_axis *a)
{
    free(a->first);
    free(a->n);
    free(a->share);
    free(a->weight);
    *a = (struct resize_axis){0};
}

void resize_free(struct resize *r)
{
    free_axis(&r->across);
    free_axis(&r->down);
    free(r->rows);
    free(r->line[0]);
    free(r->line[1]);
    *r = (struct resize){0};
}

static int make_axis(struct resize_axis *a, int64_t from, int64_t size, int64_t first, int64_t n,
                     bool image)
{
    a->most = image ? 2 * (int32_t)ceil(support_of(from, size)) + 1 : 0;
    a->first = malloc((size_t)n * sizeof *a->first);
    a->n = malloc((size_t)n * sizeof *a->n);
    a->share = image ? NULL : malloc((size_t)n * 3 * sizeof *a->share);
    a->weight = image ? malloc((size_t)n * (size_t)a->most * sizeof *a->weight) : NULL;
    if (!a->first || !a->n || (!a->share && !a->weight))
        return -1;
    for (int64_t i = 0; image && i < n; i++)
        bicubic_pixel(a, i, from, size, first + i);
    if (!image)
        bilinear_axis(a, from, size, first, n);
    return 0;
}

static int make_rows(struct resize *r, int64_t rows, int64_t n, bool image)
{
    r->rows = malloc((size_t)(rows * n));
    for (int i = 0; i < 2 && !image; i++)
        r->line[i] = malloc((size_t)n * sizeof *r->line[i]);
    return r->rows && (image || (r->line[0] && r->line[1])) ? 0 : -1;
}

static int make(struct resize *r, const struct pixels *from, const struct picture_size *to,
                bool image)
{
    resize_free(r);
    struct picture_part p = part_of(to, from->width, from->height, image);
    if (make_axis(&r->across, from->width, p.width, p.left, to->width, image) ||
        make_axis(&r->down, from->height, p.height, p.top, to->height, image))
        return -1;
    if (make_rows(r, image ? from->height : 2, to->width * 3, image))
        return -1;
    r->part = p;
    r->to = *to;
    r->image = image;
    r->from_width = from->width;
    r->from_height = from->height;
    return 0;
}

static bool fits(const struct resize *r, const struct pixels *from, const struct picture_size *to,
                 bool image)
{
    return r->from_width == from->width && r->from_height == from->height &&
           r->to.width == to->width && r->to.height == to->height && r->to.covers == to->covers &&
           r->image == image;
}

int resize_run(struct resize *r, const struct pixels *from, const struct picture_size *size,
               bool image, uint8_t *to)
{
    if (!fits(r, from, size, image) && make(r, from, size, image))
        return -1;
    if (image)
        bicubic(r, from, to);
    else
        bilinear(r, from, to);
    return 0;
}
