/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one value, which are drawn the same for values of one shape. */
#include <string.h>
#include "draw.h"

int draw_unary(struct draw *d, int x)
{
    if (draw_chance(d, 20))
        return draw_affine(d, x, (float)(1 + draw_below(d, 8)) / 4,
                           (float)(draw_below(d, 9) - 4) / 8);
    return draw_call(d, (struct call){.kind = CALL_UNARY,
                                      .n_in = 1,
                                      .in = {x},
                                      .unary = (enum unary)draw_below(d, FIRST_BROKEN)});
}

int draw_with_param(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_ADD, CALL_SUB, CALL_MUL, CALL_MUL, CALL_MAXIMUM};
    const int w = draw_broadcast_param(d, x, false);
    return w < 0 ? -1 : draw_call2(d, kinds[draw_below(d, 5)], x, w);
}

/* a / (1 + b^2) */
static int safe_quotient(struct draw *d, int a, int b)
{
    const int square = draw_call2(d, CALL_MUL, b, b);
    if (square < 0)
        return -1;
    const int one = draw_affine(d, square, 1.f, 1.f);
    return one < 0 ? -1 : draw_call2(d, CALL_DIV, a, one);
}

static int any_sum(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_MEAN, CALL_MEAN, CALL_SUM, CALL_LOGSUMEXP,
                                           CALL_AMAX};
    return draw_reduction(d, kinds[draw_below(d, 5)], x, draw_mask(d, x));
}

/* A value and a sum of its own rows: a norm or a softmax, written out. */
static int with_rows(struct draw *d, int x)
{
    const int ndim = draw_value(d, x)->ndim;
    if (!ndim)
        return -1;
    const unsigned mask = draw_chance(d, 75) ? 1u << (ndim - 1) : draw_mask(d, x);
    const int y = draw_chance(d, 50) ? draw_unary(d, x) : x;
    const int sum =
        y < 0 ? -1 : draw_reduction(d, draw_chance(d, 70) ? CALL_MEAN : CALL_SUM, y, mask);
    if (sum < 0)
        return -1;
    const int z = draw_chance(d, 40) ? draw_unary(d, sum) : sum;
    if (z < 0)
        return -1;
    return draw_chance(d, 40) ? safe_quotient(d, x, z)
                              : draw_call2(d, draw_chance(d, 50) ? CALL_SUB : CALL_MUL, x, z);
}

/* Elements of x times a vector of a new last axis, summed over it: a row per element. */
static int over_rows(struct draw *d, int x)
{
    static const int64_t lengths[] = {2, 3, 8, 16, 33, 40};
    struct value v = *draw_value(d, x);
    const int64_t length = lengths[draw_below(d, 6)];
    int y = x;
    if (draw_last(&v) != 1 || !v.ndim) {
        v.shape[v.ndim < MAX_RANK ? v.ndim : 0] = 1;
        y = draw_shaped(d, CALL_RESHAPE, x, v.ndim + 1, v.shape);
    }
    const int w = draw_param(d, v.dtype, 1, &length, 0.125f);
    const int64_t most = d->most;
    if (y < 0 || w < 0)
        return -1;
    d->most = MAX_NUMEL;
    const int f = draw_chance(d, 60) ? draw_unary(d, y) : y;
    int z = f < 0 ? -1 : draw_call2(d, draw_chance(d, 80) ? CALL_MUL : CALL_ADD, f, w);
    if (z >= 0 && draw_chance(d, 30))
        z = draw_unary(d, z);
    if (z >= 0)
        z = draw_reduction(d, draw_chance(d, 50) ? CALL_SUM : CALL_MEAN, z,
                           1u << (draw_value(d, z)->ndim - 1));
    d->most = most;
    return z >= 0 && draw_chance(d, 70) ? draw_unary(d, z) : z;
}

int draw_layer(struct draw *d, int x)
{
    static const int64_t widths[] = {1, 3, 8, 16, 17, 32};
    const struct value v = *draw_value(d, x);
    const int64_t w_shape[] = {draw_chance(d, 40) ? draw_last(&v) : widths[draw_below(d, 6)],
                               draw_last(&v)};
    if (!v.ndim || draw_last(&v) > 64)
        return -1;
    const int w = draw_param(d, v.dtype, 2, w_shape, 0.25f);
    const int b = draw_chance(d, 60) ? draw_param(d, v.dtype, 1, w_shape, 1) : -1;
    return w < 0 ? -1
                 : draw_call(d, (struct call){.kind = CALL_LINEAR, .n_in = 3, .in = {x, w, b}});
}

static int convolution(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    if (v.ndim != 3 || v.shape[2] > 24)
        return -1;
    const int64_t shape[] = {1 + draw_below(d, 8), 1 + draw_below(d, 3), v.shape[2]};
    const int w = draw_param(d, v.dtype, 3, shape, 0.25f);
    const int b = draw_chance(d, 50) ? draw_param(d, v.dtype, 1, shape, 1) : -1;
    return w < 0 ? -1
                 : draw_call(d, (struct call){.kind = CALL_CONV,
                                              .n_in = 3,
                                              .in = {x, w, b},
                                              .axes = {1, 1, 1, (int)draw_below(d, shape[1])}});
}

int draw_norm(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t n = draw_last(&v), how = draw_below(d, 4);
    int64_t shape[MAX_RANK];
    if (!v.ndim || n < 2)
        return -1;
    if (how == 3) { /* modulate, gated residual */
        for (int k = 0; k < v.ndim; k++)
            shape[k] = k + 1 < v.ndim && draw_chance(d, 60) ? 1 : v.shape[k];
        const int a = draw_param(d, v.dtype, v.ndim, shape, 0.5f);
        const int b = draw_chance(d, 50) ? draw_param(d, v.dtype, v.ndim, v.shape, 1) : -1;
        if (a < 0)
            return -1;
        return b < 0
                   ? draw_call(d, (struct call){.kind = CALL_MODULATE, .n_in = 3, .in = {x, a, a}})
                   : draw_call(d, (struct call){.kind = CALL_GATED, .n_in = 3, .in = {x, a, b}});
    }
    const int w = draw_param(d, v.dtype, 1, &n, 1),
              b = draw_chance(d, 60) || how == 2 ? draw_param(d, v.dtype, 1, &n, 1) : -1;
    if (w < 0 || (how == 2 && b < 0))
        return -1;
    if (how == 1)
        return draw_call2(d, CALL_RMS_NORM, x, w);
    return draw_call(d, (struct call){.kind = how ? CALL_GROUP_NORM : CALL_LAYER_NORM,
                                      .n_in = 3,
                                      .in = {x, w, b},
                                      .begin = n % 2 ? 1 : 2,
                                      .flag = {draw_chance(d, 50)}});
}

static int product(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    if (v.ndim < 2)
        return -1;
    struct call c = {.kind = CALL_MATMUL, .n_in = 2, .in = {x, x}};
    c.flag[0] = draw_chance(d, 40);
    c.flag[1] = draw_chance(d, 50);
    if (draw_chance(d, 30)) { /* x times itself, transposed once */
        c.flag[1] = !c.flag[0];
    } else {
        const int64_t inner = v.shape[v.ndim - (c.flag[0] ? 2 : 1)], cols = 1 + draw_below(d, 12);
        int64_t shape[MAX_RANK];
        const int n = draw_chance(d, 50) ? v.ndim : 2;
        for (int k = 0; k < n - 2; k++)
            shape[k] = draw_chance(d, 50) ? 1 : v.shape[k];
        shape[n - 2] = c.flag[1] ? cols : inner;
        shape[n - 1] = c.flag[1] ? inner : cols;
        c.in[1] = draw_param(d, v.dtype, n, shape, 0.25f);
        if (c.in[1] < 0 || inner > 64)
            return -1;
    }
    return draw_call(d, c);
}

static int any_view(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int axis = draw_axis(d, x);
    struct call c = {.kind = CALL_SLICE, .n_in = 1, .in = {x}, .axis = axis};
    int64_t shape[MAX_RANK];
    if (axis < 0)
        return -1;
    const int64_t size = v.shape[axis];
    switch (draw_below(d, 7)) {
    case 0:
        c.begin = draw_below(d, size);
        c.end = c.begin + 1 + draw_below(d, size - c.begin);
        return draw_call(d, c);
    case 1:
        c.kind = CALL_PERMUTE;
        for (int k = 0; k < v.ndim; k++)
            c.axes[k] = k;
        for (int k = v.ndim - 1; k > 0; k--) {
            const int other = (int)draw_below(d, k + 1), axis_k = c.axes[k];
            c.axes[k] = c.axes[other];
            c.axes[other] = axis_k;
        }
        return draw_call(d, c);
    case 2: /* an axis more, or two joined */
        memcpy(shape, v.shape, sizeof shape);
        if (v.ndim > 1 && draw_chance(d, 50)) {
            const int k = (int)draw_below(d, v.ndim - 1);
            shape[k] *= shape[k + 1];
            memmove(shape + k + 1, shape + k + 2, (size_t)(v.ndim - k - 2) * sizeof *shape);
            return draw_shaped(d, CALL_RESHAPE, x, v.ndim - 1, shape);
        }
        if (v.ndim == MAX_RANK)
            return -1;
        memmove(shape + axis + 1, shape + axis, (size_t)(v.ndim - axis) * sizeof *shape);
        shape[axis] = size % 2 ? 1 : size / 2;
        shape[axis + 1] = size / shape[axis];
        return draw_shaped(d, CALL_RESHAPE, x, v.ndim + 1, shape);
    case 3:
        memcpy(shape, v.shape, sizeof shape);
        for (int k = 0; k < v.ndim; k++)
            shape[k] = shape[k] == 1 ? 1 + draw_below(d, 4) : shape[k];
        return draw_shaped(d, CALL_EXPAND, x, v.ndim, shape);
    case 4:
        c.kind = CALL_PAD;
        c.begin = draw_below(d, 3);
        c.end = draw_below(d, 3);
        return draw_call(d, c);
    case 5:
        return draw_along(d, CALL_FLIP, x, axis);
    default:
        c.kind = CALL_ROWS;
        c.end = 1 + draw_below(d, size + 2);
        return draw_call(d, c);
    }
}

/* One function of x alone, which draws the same for values of one shape. */
int draw_function(struct draw *d, int x)
{
    static int (*const families[])(struct draw * d, int x) = {draw_elements, draw_rows, draw_layers,
                                                              draw_moves, draw_windows};
    const int64_t how = draw_below(d, 125);
    if (how >= 100)
        return families[(how - 100) / 5](d, x);
    if (how < 26)
        return draw_unary(d, x);
    if (how < 42)
        return draw_with_param(d, x);
    if (how < 52)
        return with_rows(d, x);
    if (how < 62)
        return over_rows(d, x);
    if (how < 67)
        return any_sum(d, x);
    if (how < 75)
        return draw_layer(d, x);
    if (how < 81)
        return draw_norm(d, x);
    if (how < 84)
        return draw_along(d, draw_chance(d, 50) ? CALL_SOFTMAX : CALL_CUMSUM, x, draw_axis(d, x));
    if (how < 88)
        return product(d, x);
    if (how < 91)
        return convolution(d, x);
    if (how < 93)
        return draw_call1(d, CALL_CAST, x);
    return any_view(d, x);
}
