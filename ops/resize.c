/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adaptive pooling and resizing, channels last.  Means and linear interpolation multiply each
 * spatial axis by a matrix whose rows are the weights of a result position, so the gradients are
 * products, too.  Maxima and nearest neighbours use lookups, so results are exact values of x.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "call.h"
#include "ops.h"
#include "tape/tape.h"

enum { MAX_CELLS = 1 << 24 }; /* elements of a matrix */

/* Fills row i of a matrix [to, from] that is initially 0. */
typedef void (*fill_row)(float *row, int64_t i, int64_t to, int64_t from);

static void mean_row(float *row, int64_t i, int64_t to, int64_t from)
{
    int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;
    for (int64_t k = begin; k < end; k++)
        row[k] = (float)(1. / (double)(end - begin));
}

static void linear_row(float *row, int64_t i, int64_t to, int64_t from)
{
    double at = fmax(0., ((double)i + 0.5) * (double)from / (double)to - 0.5);
    int64_t low = min_i64((int64_t)at, from - 1), high = min_i64(low + 1, from - 1);
    double share = at - (double)low;
    row[low] += (float)(1. - share);
    row[high] += (float)share;
}

static ckpt_tensor fail(ckpt_tape *t, int code, const char *name, const char *why)
{
    ckpt_tape_fail(t, code, "%s: %s", name, why);
    return CKPT_NONE;
}

/* Resizes an axis of fp32 x to `to`. */
static ckpt_tensor multiply_axis(ckpt_tape *t, const char *name, ckpt_tensor x, int axis,
                                 int64_t to, fill_row fill)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    char unique[64];
    int64_t from = d.shape[axis], flat[] = {1, from, 1}, shape[] = {to, from};
    for (int i = 0; i < d.ndim; i++)
        if (i != axis)
            flat[i < axis ? 0 : 2] *= d.shape[i];
    if (to < 1 || to > MAX_CELLS / from)
        return fail(t, CKPT_ESHAPE, name, "a size is below 1 or too large");
    float *cells = calloc((size_t)(to * from), sizeof *cells);
    if (!cells)
        return fail(t, CKPT_ENOMEM, name, "no memory");
    for (int64_t i = 0; i < to; i++)
        fill(cells + i * from, i, to, from);
    snprintf(unique, sizeof unique, "%s:%d", name, (int)t->n_feeds);
    ckpt_tensor w = ckpt_constant(t, unique, CKPT_F32, 2, shape, cells);
    free(cells);
    d.shape[axis] = to;
    ckpt_tensor y = ckpt_matmul(t, w, ckpt_reshape(t, x, 3, flat), false, false);
    return ckpt_reshape(t, y, d.ndim, d.shape);
}

static bool is_picture(ckpt_tape *t, const char *name, const struct ckpt_desc *d,
                       const int64_t *sizes)
{
    if (!sizes)
        fail(t, CKPT_EINVAL, name, "no sizes");
    else if (d->ndim < 3 || d->ndim > 5)
        fail(t, CKPT_ESHAPE, name, "x must be [N, ..., C] with one to three axes between");
    else
        return true;
    return false;
}

static ckpt_tensor multiply_axes(ckpt_tape *t, const char *name, ckpt_tensor x,
                                 const int64_t *sizes, fill_row fill)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    if (!is_picture(t, name, &d, sizes))
        return CKPT_NONE;
    ckpt_tensor y = ckpt_cast(t, x, CKPT_F32);
    for (int i = 1; i < d.ndim - 1 && y.id; i++)
        if (d.shape[i] != sizes[i - 1])
            y = multiply_axis(t, name, y, i, sizes[i - 1], fill);
    return y.id ? ckpt_cast(t, y, d.dtype) : y;
}

ckpt_tensor ckpt_adaptive_avg_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes)
{
    OPS_CALL(t);
    return multiply_axes(t, "adaptive_avg_pool", x, sizes, mean_row);
}

ckpt_tensor ckpt_resize_linear(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes)
{
    OPS_CALL(t);
    return multiply_axes(t, "resize_linear", x, sizes, linear_row);
}

/* The source position (of `from`) for position i of the result of look_up(). */
typedef int64_t (*place_of)(int64_t i, int64_t to, int64_t from, int64_t window);

/* Gathers an axis of x to `to` windows of `window` positions each. */
static ckpt_tensor look_up(ckpt_tape *t, const char *name, ckpt_tensor x, int axis, int64_t to,
                           int64_t window, place_of place)
{
    const int64_t from = ckpt_desc_of(t, x).shape[axis];
    char unique[64];
    if (to < 1 || to > MAX_CELLS / window)
        return fail(t, CKPT_ESHAPE, name, "a size is below 1 or too large");
    const int64_t n = to * window;
    int32_t *places = malloc((size_t)n * sizeof *places);
    if (!places)
        return fail(t, CKPT_ENOMEM, name, "no memory");
    for (int64_t i = 0; i < n; i++)
        places[i] = (int32_t)place(i, to, from, window);
    snprintf(unique, sizeof unique, "%s:%d", name, (int)t->n_feeds);
    ckpt_tensor index = ckpt_constant(t, unique, CKPT_I32, 1, &n, places);
    free(places);
    return ckpt_index_select(t, x, axis, index);
}

/* Windows shorter than the longest one repeat their last position.  The first of equal values is
 * taken, so this changes neither the result nor its gradient. */
static int64_t place_in_window(int64_t i, int64_t to, int64_t from, int64_t window)
{
    int64_t at = i / window, end = ((at + 1) * from + to - 1) / to;
    return min_i64(at * from / to + i % window, end - 1);
}

/* A window begins at a multiple of from / to, and reaches into one place more where that is not
 * whole.  Some window reaches into two, unless `rest` divides `to`: then fractions of beginnings
 * are multiples of rest / to. */
static int64_t longest_window(int64_t to, int64_t from)
{
    const int64_t rest = from % to;
    return from / to + (rest == 0 ? 0 : to % rest == 0 ? 1 : 2);
}

ckpt_tensor ckpt_adaptive_max_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t window[CKPT_MAX_DIMS];
    bool one = true;
    if (!is_picture(t, "adaptive_max_pool", &d, sizes))
        return CKPT_NONE;
    for (int i = 0; i < d.ndim - 2 && x.id; i++) {
        const int64_t from = d.shape[i + 1], to = sizes[i];
        window[i] = to < 1 ? 1 : longest_window(to, from); /* below 1: look_up() refuses */
        one &= window[i] == 1;
        if (window[i] * to != from)
            x = look_up(t, "adaptive_max_pool", x, i + 1, to, window[i], place_in_window);
    }
    return one ? x : ckpt_max_pool(t, x, window, NULL);
}

static int64_t nearest_place(int64_t i, int64_t to, int64_t from, int64_t window)
{
    (void)window;
    return i * from / to;
}

ckpt_tensor ckpt_resize_nearest(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t factors[CKPT_MAX_DIMS];
    bool whole = true;
    if (!is_picture(t, "resize_nearest", &d, sizes))
        return CKPT_NONE;
    for (int i = 0; i < d.ndim - 2; i++) {
        factors[i] = sizes[i] / d.shape[i + 1];
        whole &= sizes[i] > 0 && factors[i] * d.shape[i + 1] == sizes[i];
    }
    if (whole)
        return ckpt_upsample_nearest(t, x, factors);
    for (int i = 1; i < d.ndim - 1 && x.id; i++)
        if (sizes[i - 1] != d.shape[i])
            x = look_up(t, "resize_nearest", x, i, sizes[i - 1], 1, nearest_place);
    return x;
}

/* [N, s.., C f..] to [N, (s f).., C], with upscale factors f */
ckpt_tensor ckpt_pixel_shuffle(ckpt_tape *t, ckpt_tensor x, const int64_t *factors)
{
    OPS_CALL(t);
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t apart[CKPT_MAX_DIMS], joint[CKPT_MAX_DIMS];
    int axes[CKPT_MAX_DIMS] = {0}, n = d.ndim - 2;
    if (!is_picture(t, "pixel_shuffle", &d, factors))
        return CKPT_NONE;
    apart[0] = joint[0] = d.shape[0];
    apart[n + 1] = d.shape[n + 1];
    for (int i = 0; i < n; i++) {
        if (factors[i] < 1 || apart[n + 1] % factors[i])
            return fail(t, CKPT_ESHAPE, "pixel_shuffle", "the factors do not divide the channels");
        apart[i + 1] = d.shape[i + 1];
        apart[n + 2 + i] = factors[i];
        apart[n + 1] /= factors[i];
        joint[i + 1] = d.shape[i + 1] * factors[i];
        axes[1 + 2 * i] = i + 1;
        axes[2 + 2 * i] = n + 2 + i;
    }
    axes[2 * n + 1] = n + 1;
    joint[n + 1] = apart[n + 1];
    x = ckpt_permute(t, ckpt_reshape(t, x, 2 * n + 2, apart), axes);
    return ckpt_reshape(t, x, n + 2, joint);
}
