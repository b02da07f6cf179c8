/* SPDX-License-Identifier: Apache-2.0 */
/* fp64 references: element-wise ops, linear, shapes and reductions. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void array_init(struct array *a, int ndim, const int64_t *shape)
{
    a->ndim = ndim;
    a->n = 1;
    for (int i = 0; i < ndim; i++)
        a->n *= a->shape[i] = shape[i];
    a->x = calloc((size_t)(a->n > 0 ? a->n : 1), sizeof(*a->x));
    if (!a->x)
        exit(99);
}

void array_free(struct array *a)
{
    free(a->x);
    a->x = NULL;
}

/* index -> coordinates of a shape, and back. */
static void unravel(int ndim, const int64_t *shape, int64_t index, int64_t *at)
{
    for (int i = ndim - 1; i >= 0; i--) {
        at[i] = index % shape[i];
        index /= shape[i];
    }
}

static int64_t ravel(int ndim, const int64_t *shape, const int64_t *at)
{
    int64_t index = 0;
    for (int i = 0; i < ndim; i++)
        index = index * shape[i] + at[i];
    return index;
}

int64_t array_broadcast(const struct array *like, const struct array *b, int64_t index)
{
    int64_t at[CKPT_MAX_DIMS], from[CKPT_MAX_DIMS];
    unravel(like->ndim, like->shape, index, at);
    for (int i = 0; i < b->ndim; i++)
        from[i] = b->shape[i] == 1 ? 0 : at[like->ndim - b->ndim + i];
    return ravel(b->ndim, b->shape, from);
}

/* The common shape of n arrays, zeroed. */
static void broadcast_init(struct array *out, int n, const struct array *in)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = 0;
    for (int k = 0; k < n; k++)
        ndim = in[k].ndim > ndim ? in[k].ndim : ndim;
    for (int i = 0; i < ndim; i++)
        shape[i] = 1;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < in[k].ndim; i++)
            if (in[k].shape[i] != 1)
                shape[ndim - in[k].ndim + i] = in[k].shape[i];
    array_init(out, ndim, shape);
}

void ref_linear(const struct array *in, struct array *out, const struct op_attr *a)
{
    const struct array *x = &in[0], *w = &in[1], *b = &in[2];
    int64_t shape[CKPT_MAX_DIMS], K = w->shape[1], N = w->shape[0];
    (void)a;
    memcpy(shape, x->shape, sizeof(shape));
    shape[x->ndim - 1] = N;
    array_init(out, x->ndim, shape);
    for (int64_t m = 0; m < x->n / K; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = b->ndim >= 0 ? b->x[n] : 0;
            for (int64_t k = 0; k < K; k++)
                sum += x->x[m * K + k] * w->x[n * K + k];
            out->x[m * N + n] = sum;
        }
}

#define BINARY(name, operator)                                                                     \
    void ref_##name(const struct array *in, struct array *out, const struct op_attr *a)            \
    {                                                                                              \
        (void)a;                                                                                   \
        broadcast_init(out, 2, in);                                                                \
        for (int64_t i = 0; i < out->n; i++)                                                       \
            out->x[i] = in[0].x[array_broadcast(out, &in[0], i)] operator in[1].x[array_broadcast( \
                out, &in[1], i)];                                                                  \
    }
BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)

#define UNARY(name, value)                                                                         \
    void ref_##name(const struct array *in, struct array *out, const struct op_attr *a)            \
    {                                                                                              \
        (void)a;                                                                                   \
        array_init(out, in[0].ndim, in[0].shape);                                                  \
        for (int64_t i = 0; i < out->n; i++) {                                                     \
            double x = in[0].x[i];                                                                 \
            out->x[i] = (value);                                                                   \
        }                                                                                          \
    }
UNARY(affine, a->a *x + a->b)
UNARY(gelu, 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))))
UNARY(silu, x / (1 + exp(-x)))
UNARY(identity, x)

void ref_where(const struct array *in, struct array *out, const struct op_attr *a)
{
    (void)a;
    broadcast_init(out, 3, in);
    for (int64_t i = 0; i < out->n; i++) {
        const struct array *from = in[0].x[array_broadcast(out, &in[0], i)] != 0 ? &in[1] : &in[2];
        out->x[i] = from->x[array_broadcast(out, from, i)];
    }
}

void ref_reshape(const struct array *in, struct array *out, const struct op_attr *a)
{
    array_init(out, a->n_size, a->size);
    memcpy(out->x, in[0].x, (size_t)out->n * sizeof(*out->x));
}

void ref_permute(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t shape[CKPT_MAX_DIMS], at[CKPT_MAX_DIMS], from[CKPT_MAX_DIMS];
    int ndim = in[0].ndim;
    for (int i = 0; i < ndim; i++)
        shape[i] = in[0].shape[a->axes[i]];
    array_init(out, ndim, shape);
    for (int64_t index = 0; index < out->n; index++) {
        unravel(ndim, shape, index, at);
        for (int i = 0; i < ndim; i++)
            from[a->axes[i]] = at[i];
        out->x[index] = in[0].x[ravel(ndim, in[0].shape, from)];
    }
}

void ref_slice(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t shape[CKPT_MAX_DIMS], at[CKPT_MAX_DIMS];
    memcpy(shape, in[0].shape, sizeof(shape));
    shape[a->axis] = a->end - a->begin;
    array_init(out, in[0].ndim, shape);
    for (int64_t i = 0; i < out->n; i++) {
        unravel(out->ndim, shape, i, at);
        at[a->axis] += a->begin;
        out->x[i] = in[0].x[ravel(out->ndim, in[0].shape, at)];
    }
}

void ref_concat(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t shape[CKPT_MAX_DIMS], at[CKPT_MAX_DIMS], begin = 0;
    memcpy(shape, in[0].shape, sizeof(shape));
    shape[a->axis] += in[1].shape[a->axis] + in[2].shape[a->axis];
    array_init(out, in[0].ndim, shape);
    for (int k = 0; k < 3; begin += in[k++].shape[a->axis])
        for (int64_t i = 0; i < in[k].n; i++) {
            unravel(out->ndim, in[k].shape, i, at);
            at[a->axis] += begin;
            out->x[ravel(out->ndim, shape, at)] = in[k].x[i];
        }
}

void ref_sum(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t shape[CKPT_MAX_DIMS];
    for (int i = 0; i < in[0].ndim; i++)
        shape[i] = a->mask >> i & 1 ? 1 : in[0].shape[i];
    array_init(out, in[0].ndim, shape);
    for (int64_t i = 0; i < in[0].n; i++)
        out->x[array_broadcast(&in[0], out, i)] += in[0].x[i];
}

void ref_mean(const struct array *in, struct array *out, const struct op_attr *a)
{
    ref_sum(in, out, a);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] *= (double)out->n / (double)in[0].n;
}
