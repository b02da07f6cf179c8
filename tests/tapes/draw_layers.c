/* SPDX-License-Identifier: Apache-2.0 */
/* Layers: products with parameters, and attention. */
#include "draw.h"

/* The last axis of x to `width` elements. */
static int projected(struct draw *d, int x, int64_t width)
{
    const struct value v = *draw_value(d, x);
    const int w = draw_param(d, v.dtype, 2, (int64_t[]){width, draw_last(&v)}, 0.25f);
    return draw_call(d, (struct call){.kind = CALL_LINEAR, .n_in = 3, .in = {x, w, -1}});
}

static int added_layer(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t n = draw_last(&v);
    const bool has_bias = draw_chance(d, 60);
    if (!v.ndim || n > 64)
        return -1;
    const int w = draw_param(d, v.dtype, 2, (int64_t[]){n, n}, 0.25f);
    const int b = has_bias ? draw_param(d, v.dtype, 1, &n, 1) : -1;
    return draw_call(d, (struct call){.kind = CALL_LINEAR_ADD, .n_in = 4, .in = {x, w, b, x}});
}

/* Rows of x in groups with a matrix each: experts. */
static int grouped(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t inner = draw_last(&v), cols = 1 + draw_below(d, 12);
    const int64_t groups = 1 + draw_below(d, 4), rows = value_numel(&v) / inner;
    const bool transposed = draw_chance(d, 40);
    if (v.ndim < 2 || inner > 40)
        return -1;
    const int64_t shape[] = {groups, transposed ? cols : inner, transposed ? inner : cols};
    const int y = v.ndim == 2 ? x : draw_shaped(d, CALL_RESHAPE, x, 2, (int64_t[]){rows, inner});
    const int w = draw_param(d, v.dtype, 3, shape, 0.25f);
    return draw_call(
        d,
        (struct call){.kind = CALL_GROUPED_MATMUL, .n_in = 2, .in = {y, w}, .flag = {transposed}});
}

/* Over one or two axes, with strides, dilations and groups. */
static int convolution(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t channels = draw_last(&v);
    const int groups = channels % 2 || draw_chance(d, 50) ? 1 : 2;
    const int64_t made = groups * (1 + draw_below(d, 4));
    const bool transposed = draw_chance(d, 50), has_bias = draw_chance(d, 50);
    int64_t shape[MAX_RANK] = {transposed ? channels : made};
    if (v.ndim < 3 || channels > 24)
        return -1;
    for (int k = 1; k + 1 < v.ndim; k++)
        shape[k] = 1 + draw_below(d, 3);
    shape[v.ndim - 1] = (transposed ? made : channels) / groups;
    struct call c = {.kind = transposed ? CALL_CONV_TRANSPOSE : CALL_CONV, .n_in = 3, .in = {x}};
    c.axes[0] = 1 + (int)draw_below(d, 2);
    c.axes[1] = 1 + (int)draw_below(d, 2);
    c.axes[2] = groups;
    c.axes[3] = (int)draw_below(d, 2);
    c.in[1] = draw_param(d, v.dtype, v.ndim, shape, 0.25f);
    c.in[2] = has_bias ? draw_param(d, v.dtype, 1, &made, 1) : -1;
    return draw_call(d, c);
}

/* A term of the scores that broadcasts. */
static int score_bias(struct draw *d, const struct value *q, int64_t keys)
{
    int64_t shape[MAX_RANK] = {q->shape[0]};
    shape[q->ndim - 3] = q->shape[q->ndim - 2];
    shape[q->ndim - 2] = q->shape[q->ndim - 3];
    shape[q->ndim - 1] = keys;
    for (int k = 0; k < q->ndim; k++)
        shape[k] = draw_chance(d, 40) ? 1 : shape[k];
    return draw_param(d, q->dtype, q->ndim, shape, 1);
}

/* x [..., L, C] as heads [..., L, n, size]. */
static int heads(struct draw *d, int x, int64_t n, int64_t size)
{
    const int y = projected(d, x, n * size);
    if (y < 0)
        return -1;
    struct value v = *draw_value(d, y);
    v.shape[v.ndim - 1] = n;
    v.shape[v.ndim] = size;
    return draw_shaped(d, CALL_RESHAPE, y, v.ndim + 1, v.shape);
}

/* Attention of x to itself or to a slice, masked in each way that a specification has. */
static int attention(struct draw *d, int x)
{
    static const int64_t sizes[] = {1, 2, 4, 8, 8, 16};
    const struct value v = *draw_value(d, x);
    const int64_t size = sizes[draw_below(d, 6)], shared = 1 + draw_below(d, 2);
    const int64_t n = shared * (1 + draw_below(d, 2));
    const bool sliced = draw_chance(d, 20), biased = draw_chance(d, 30);
    struct call c = {.kind = CALL_ATTENTION, .n_in = 4};
    c.flag[0] = draw_chance(d, 50);
    c.begin = c.flag[0] && draw_chance(d, 50) ? 1 + draw_below(d, 5) : 0;
    c.mask = draw_chance(d, 60) ? 0 : 1 + (unsigned)draw_below(d, 3);
    c.a = draw_chance(d, 50) ? 0 : 0.5f;
    if (v.ndim < 2 || v.ndim > 3 || draw_last(&v) > 64)
        return -1;
    const int64_t half = (v.shape[v.ndim - 2] + 1) / 2;
    const int of = !sliced ? x
                           : draw_call(d, (struct call){.kind = CALL_SLICE,
                                                        .n_in = 1,
                                                        .in = {x},
                                                        .axis = v.ndim - 2,
                                                        .end = half});
    if (of < 0)
        return -1;
    c.in[0] = heads(d, x, n, size);
    c.in[1] = heads(d, of, shared, size);
    c.in[2] = heads(d, of, shared, size);
    if (c.in[0] < 0 || c.in[1] < 0 || c.in[2] < 0)
        return -1;
    c.in[3] =
        biased ? score_bias(d, draw_value(d, c.in[0]), sliced ? half : v.shape[v.ndim - 2]) : -1;
    return draw_call(d, c);
}

/* Attention to rows of several samples, one after the other. */
static int cross_attention(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t size = 2 + 2 * draw_below(d, 4), n = 1 + draw_below(d, 2);
    const int64_t rows = v.shape[0] * (1 + draw_below(d, 4));
    if (v.ndim != 3 || draw_last(&v) > 64)
        return -1;
    const int64_t shape[] = {rows, n, size};
    struct call c = {.kind = CALL_CROSS_ATTENTION, .n_in = 3, .a = 0.5f};
    c.in[0] = heads(d, x, n, size);
    c.in[1] = draw_param(d, v.dtype, 3, shape, 1);
    c.in[2] = draw_leaf(d, CALL_PARAM, v.dtype, 3, shape, 1);
    return draw_call(d, c);
}

int draw_layers(struct draw *d, int x)
{
    switch (draw_below(d, 8)) {
    case 0:
        return added_layer(d, x);
    case 1:
    case 2:
        return grouped(d, x);
    case 3:
        return convolution(d, x);
    case 4:
        return cross_attention(d, x);
    default:
        return attention(d, x);
    }
}
