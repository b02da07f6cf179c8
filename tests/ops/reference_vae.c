/* SPDX-License-Identifier: Apache-2.0 */
/* fp64 references: the ops of video autoencoders. */
#include "reference.h"

#include <math.h>
#include <string.h>

/* ---- convolution ---------------------------------------------------------------------------- */

/* Spatial sizes of [n, ..., c] as three. */
static void sizes_of(const struct array *x, int64_t *size)
{
    for (int i = 0; i < 3; i++)
        size[i] = i + x->ndim < 5 ? 1 : x->shape[i + x->ndim - 4];
}

/* Where the channels of x[n, p...] begin, or -1 outside. */
static int64_t row_at(const struct array *x, int64_t n, const int64_t *p)
{
    int64_t size[3], index = n;
    sizes_of(x, size);
    for (int i = 0; i < 3; i++) {
        if (p[i] < 0 || p[i] >= size[i])
            return -1;
        index = index * size[i] + p[i];
    }
    return index * x->shape[x->ndim - 1];
}

static double conv_at(const struct array *in, const struct op_attr *a, int64_t n, const int64_t *o,
                      int64_t k)
{
    const struct array *x = &in[0], *w = &in[1];
    int64_t t[3], p[3], kernel[3], C = x->shape[x->ndim - 1];
    double sum = in[2].ndim >= 0 ? in[2].x[k] : 0;
    sizes_of(w, kernel);
    for (t[0] = 0; t[0] < kernel[0]; t[0]++)
        for (t[1] = 0; t[1] < kernel[1]; t[1]++)
            for (t[2] = 0; t[2] < kernel[2]; t[2]++) {
                for (int i = 0; i < 3; i++)
                    p[i] = o[i] * a->conv[0][i] - a->conv[1][i] + t[i];
                int64_t from = row_at(x, n, p), with = row_at(w, k, t);
                for (int64_t c = 0; c < C && from >= 0; c++)
                    sum += x->x[from + c] * w->x[with + c];
            }
    return sum;
}

/* a->conv: strides, padding before, padding after, each for three axes. */
void ref_conv(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *x = &in[0], *w = &in[1];
    int64_t size[3], kernel[3], to[3], o[3], shape[5] = {x->shape[0]};
    int ndim = x->ndim;
    sizes_of(x, size);
    sizes_of(w, kernel);
    for (int i = 0; i < 3; i++)
        to[i] = (size[i] + a->conv[1][i] + a->conv[2][i] - kernel[i]) / a->conv[0][i] + 1;
    memcpy(shape + 1, to + 5 - ndim, sizeof(*to) * (size_t)(ndim - 2));
    shape[ndim - 1] = w->shape[0];
    array_init(out, ndim, shape);
    double *y = out->x;
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (o[0] = 0; o[0] < to[0]; o[0]++)
            for (o[1] = 0; o[1] < to[1]; o[1]++)
                for (o[2] = 0; o[2] < to[2]; o[2]++)
                    for (int64_t k = 0; k < w->shape[0]; k++)
                        *y++ = conv_at(in, a, n, o, k);
}

/* ---- group norm ----------------------------------------------------------------------------- */

/* Group g of sample n: y = (x - mean) / sqrt(var + eps). */
static void normalize(const struct array *x, int64_t n, int64_t g, const struct op_attr *a,
                      double *y)
{
    int64_t C = x->shape[x->ndim - 1], P = x->n / x->shape[0] / C, width = C / a->axis;
    const double *from = x->x + n * P * C + g * width;
    double mean = 0, var = 0, m = (double)(P * width);
    y += n * P * C + g * width;
    for (int64_t p = 0; p < P; p++)
        for (int64_t c = 0; c < width; c++)
            mean += from[p * C + c] / m;
    for (int64_t p = 0; p < P; p++)
        for (int64_t c = 0; c < width; c++)
            var += (from[p * C + c] - mean) * (from[p * C + c] - mean) / m;
    for (int64_t p = 0; p < P; p++)
        for (int64_t c = 0; c < width; c++)
            y[p * C + c] = (from[p * C + c] - mean) / sqrt(var + a->eps);
}

/* a->axis: groups; a->mask: with SiLU. */
void ref_group_norm_silu(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *x = &in[0];
    int64_t C = x->shape[x->ndim - 1];
    array_init(out, x->ndim, x->shape);
    for (int64_t n = 0; n < x->shape[0]; n++)
        for (int64_t g = 0; g < a->axis; g++)
            normalize(x, n, g, a, out->x);
    for (int64_t i = 0; i < x->n; i++) {
        double z = out->x[i] * in[1].x[i % C] + in[2].x[i % C];
        out->x[i] = a->mask ? z / (1 + exp(-z)) : z;
    }
}

/* ---- nearest upsampling --------------------------------------------------------------------- */

void ref_upsample_nearest(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *x = &in[0];
    int64_t shape[CKPT_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape));
    for (int i = 1; i < x->ndim - 1; i++)
        shape[i] *= a->size[i - 1];
    array_init(out, x->ndim, shape);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t rest = i, from = 0, step = 1;
        for (int axis = x->ndim - 1; axis >= 0; axis--) {
            int64_t factor = axis > 0 && axis < x->ndim - 1 ? a->size[axis - 1] : 1;
            from += rest % shape[axis] / factor * step;
            rest /= shape[axis];
            step *= x->shape[axis];
        }
        out->x[i] = x->x[from];
    }
}

/* ---- losses --------------------------------------------------------------------------------- */

void ref_l1(const struct array *in, struct array *out, const struct op_attr *a)
{
    (void)a;
    array_init(out, 0, NULL);
    for (int64_t i = 0; i < in[0].n; i++)
        out->x[0] += fabs(in[0].x[i] - in[1].x[i]) / (double)in[0].n;
}

static double clamped(double logvar)
{
    return fmin(fmax(logvar, -30), 20);
}

void ref_kl_normal(const struct array *in, struct array *out, const struct op_attr *a)
{
    (void)a;
    array_init(out, 0, NULL);
    for (int64_t i = 0; i < in[0].n; i++) {
        double m = in[0].x[i], v = clamped(in[1].x[i]);
        out->x[0] += 0.5 * (m * m + exp(v) - 1 - v) / (double)in[0].shape[0];
    }
}

void ref_sample_normal(const struct array *in, struct array *out, const struct op_attr *a)
{
    (void)a;
    array_init(out, in[0].ndim, in[0].shape);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = in[0].x[i] + exp(clamped(in[1].x[i]) / 2) * in[2].x[i];
}
