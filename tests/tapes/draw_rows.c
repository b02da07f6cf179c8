/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, orders, norms and rotations of rows. */
#include "draw.h"

static int sum(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_AMIN, CALL_PROD, CALL_VAR, CALL_VAR, CALL_NORM};
    struct call c = {.kind = kinds[draw_below(d, 5)], .n_in = 1, .in = {x}};
    c.mask = draw_mask(d, x);
    c.begin = draw_below(d, 2);
    return draw_call(d, c);
}

static int ordered(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    struct call c = {.kind = draw_chance(d, 50) ? CALL_SORT : CALL_TOPK, .n_in = 1, .in = {x}};
    c.flag[0] = draw_chance(d, 50);
    c.end = v.ndim ? 1 + draw_below(d, draw_last(&v)) : 1;
    return v.rough ? -1 : draw_call(d, c);
}

static int norm(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t n = draw_last(&v);
    const bool batch = draw_chance(d, 50), has_bias = draw_chance(d, 60);
    if (v.ndim < 2)
        return -1;
    const int w = draw_param(d, v.dtype, 1, &n, 1);
    const int b = has_bias || !batch ? draw_param(d, v.dtype, 1, &n, 1) : -1;
    return draw_call(d, (struct call){.kind = batch ? CALL_BATCH_NORM : CALL_INSTANCE_NORM,
                                      .n_in = 3,
                                      .in = {x, w, b},
                                      .begin = n});
}

static int modulated(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    int64_t shape[MAX_RANK];
    for (int k = 0; k < v.ndim; k++)
        shape[k] = k + 1 < v.ndim && draw_chance(d, 60) ? 1 : v.shape[k];
    if (!v.ndim || draw_last(&v) < 2)
        return -1;
    const int a = draw_param(d, v.dtype, v.ndim, shape, 0.5f);
    const int b = draw_leaf(d, CALL_PARAM, v.dtype, v.ndim, shape, 0.5f);
    return draw_call(d,
                     (struct call){.kind = CALL_LAYER_NORM_MODULATE, .n_in = 3, .in = {x, a, b}});
}

static int rotated(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_ROPE, CALL_ROPE_HALVES, CALL_RMS_NORM_ROPE};
    const struct value v = *draw_value(d, x);
    const int64_t n = draw_last(&v);
    struct call c = {.kind = kinds[draw_below(d, 3)], .n_in = 1, .in = {x}};
    if (v.ndim < 2 || n % 2)
        return -1;
    c.axis = (int)draw_below(d, v.ndim - 1);
    if (c.kind == CALL_RMS_NORM_ROPE)
        c.in[c.n_in++] = draw_param(d, v.dtype, 1, &n, 1);
    return draw_call(d, c);
}

int draw_rows(struct draw *d, int x)
{
    switch (draw_below(d, 8)) {
    case 0:
    case 1:
        return sum(d, x);
    case 2:
        return ordered(d, x);
    case 3:
        return draw_along(d, CALL_LOG_SOFTMAX, x, draw_axis(d, x));
    case 4:
        return norm(d, x);
    case 5:
        return modulated(d, x);
    default:
        return rotated(d, x);
    }
}
