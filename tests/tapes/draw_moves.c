/* SPDX-License-Identifier: Apache-2.0 */
/* Views, lookup and windows. */
#include <string.h>
#include "draw.h"

/* ---- views -----------------------------------------------------------------------------------*/

static int stacked(struct draw *d, int x, int axis)
{
    const int y = draw_unary(d, x);
    return draw_call(d,
                     (struct call){.kind = CALL_STACK, .n_in = 3, .in = {x, y, x}, .axis = axis});
}

static int view(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_TRANSPOSE, CALL_UNSQUEEZE, CALL_SQUEEZE,
                                           CALL_PAD,       CALL_PAD,       CALL_ROLL,
                                           CALL_REPEAT,    CALL_STACK};
    const struct value v = *draw_value(d, x);
    struct call c = {.kind = kinds[draw_below(d, 8)], .n_in = 1, .in = {x}};
    c.axis = draw_axis(d, x);
    for (int k = 0; k < MAX_RANK; k++)
        c.axes[k] = 1 + (int)draw_below(d, 2);
    if (c.axis < 0)
        return -1;
    c.begin = draw_below(d, c.kind == CALL_TRANSPOSE ? v.ndim : 3);
    c.end = draw_below(d, 3);
    if (c.kind == CALL_PAD)
        c.mask = (unsigned)(CKPT_PAD_REFLECT + draw_below(d, 2));
    return c.kind == CALL_STACK ? stacked(d, x, c.axis) : draw_call(d, c);
}

/* ---- lookup ----------------------------------------------------------------------------------*/

/* A parameter, or x, at indices of an axis; or added there. */
static int lookup(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_EMBEDDING, CALL_GATHER, CALL_SCATTER_ADD,
                                           CALL_INDEX_ADD, CALL_INDEX_ADD};
    const struct value v = *draw_value(d, x);
    struct call c = {.kind = kinds[draw_below(d, 5)], .n_in = 1, .in = {x}};
    c.axis = draw_axis(d, x);
    c.end = 1 + draw_below(d, 6);
    c.begin = draw_below(d, 4) - 1; /* padding */
    const bool from_param = draw_chance(d, 50);
    if (c.axis < 0)
        return -1;
    if (c.kind == CALL_SCATTER_ADD || c.kind == CALL_INDEX_ADD) {
        struct value other = v;
        other.shape[c.axis] = c.end;
        const int w = draw_param(d, v.dtype, v.ndim, other.shape, 1);
        c.in[0] = from_param ? w : x;
        c.in[1] = from_param ? x : w;
        c.n_in = 2;
    }
    return draw_call(d, c);
}

/* Rows of x by the nearest of a few. */
static int quantized(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t shape[] = {1 + draw_below(d, 6), draw_last(&v)};
    if (!v.ndim || v.rough)
        return -1;
    const int w = draw_param(d, v.dtype, 2, shape, 1);
    return w == x ? -1 : draw_call2(d, CALL_QUANTIZE, x, w);
}

int draw_moves(struct draw *d, int x)
{
    if (draw_chance(d, 10))
        return quantized(d, x);
    return draw_chance(d, 50) ? view(d, x) : lookup(d, x);
}

/* ---- windows ---------------------------------------------------------------------------------*/

int draw_windows(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {
        CALL_AVG_POOL,          CALL_AVG_POOL,       CALL_MAX_POOL,
        CALL_ADAPTIVE_AVG_POOL, CALL_RESIZE_NEAREST, CALL_ADAPTIVE_MAX_POOL,
        CALL_UPSAMPLE_NEAREST,  CALL_RESIZE_LINEAR,  CALL_PIXEL_SHUFFLE};
    const struct value v = *draw_value(d, x);
    struct call c = {.kind = kinds[draw_below(d, 9)], .n_in = 1, .in = {x}};
    const bool largest = c.kind == CALL_MAX_POOL || c.kind == CALL_ADAPTIVE_MAX_POOL;
    const bool sized = c.kind != CALL_AVG_POOL && c.kind != CALL_MAX_POOL;
    c.begin = 1 + draw_below(d, 3);
    c.end = sized ? 0 : draw_below(d, 3);
    c.axes[0] = sized ? 0 : (int)draw_below(d, c.begin);
    c.flag[0] = draw_chance(d, 50);
    return v.ndim < 3 || (largest && v.rough) ? -1 : draw_call(d, c);
}
