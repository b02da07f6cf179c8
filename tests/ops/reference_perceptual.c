/* SPDX-License-Identifier: Apache-2.0 */
/* fp64 references: ReLU, max pooling, distances of features, codebooks. */
#include "reference.h"

#include <math.h>
#include <string.h>

void ref_relu(const struct array *in, struct array *out, const struct op_attr *a)
{
    (void)a;
    array_init(out, in[0].ndim, in[0].shape);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = fmax(in[0].x[i], 0);
}

/* a->size: the window. */
void ref_max_pool(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *x = &in[0];
    int64_t shape[CKPT_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape));
    for (int i = 1; i < x->ndim - 1; i++)
        shape[i] /= a->size[i - 1];
    array_init(out, x->ndim, shape);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = -INFINITY;
    for (int64_t i = 0; i < x->n; i++) {
        int64_t rest = i, to = 0, step = 1;
        bool inside = true;
        for (int axis = x->ndim - 1; axis >= 0; axis--) {
            int64_t window = axis > 0 && axis < x->ndim - 1 ? a->size[axis - 1] : 1;
            int64_t at = rest % x->shape[axis] / window;
            inside &= at < shape[axis];
            to += at * step;
            rest /= x->shape[axis];
            step *= shape[axis];
        }
        if (inside)
            out->x[to] = fmax(out->x[to], x->x[i]);
    }
}

static double length(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

void ref_feature_distance(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t c = in[2].n, rows = in[0].n / c;
    (void)a;
    array_init(out, 0, NULL);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0].x + r * c, *y = in[1].x + r * c;
        double of_x = length(x, c), of_y = length(y, c);
        for (int64_t j = 0; j < c; j++)
            out->x[0] += in[2].x[j] * pow(x[j] / of_x - y[j] / of_y, 2) / (double)rows;
    }
}

int64_t ref_nearest(const struct array *book, const double *z, double *least)
{
    int64_t best = 0, d = book->shape[1];
    *least = INFINITY;
    for (int64_t k = 0; k < book->shape[0]; k++) {
        double sum = 0;
        for (int64_t j = 0; j < d; j++)
            sum += pow(z[j] - book->x[k * d + j], 2);
        if (sum < *least) {
            *least = sum;
            best = k;
        }
    }
    return best;
}

void ref_commitment(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t d = in[1].shape[1];
    (void)a;
    array_init(out, 0, NULL);
    for (int64_t r = 0; r < in[0].n / d; r++) {
        double least;
        ref_nearest(&in[1], in[0].x + r * d, &least);
        out->x[0] += least / (double)in[0].n;
    }
}
