/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns that models and gradients have: loops over the parts of a split, residuals, many uses of
 * one value. */
#include <string.h>
#include "draw.h"

enum { TRIES = 8 };

/* A few functions in a row; the last value that worked. */
static int chain(struct draw *d, int x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int y = draw_function(d, x);
        x = y < 0 ? x : y;
    }
    return x;
}

static int joined(struct draw *d, int n, const int *x, int axis)
{
    struct call c = {.kind = CALL_CONCAT, .n_in = n, .axis = axis};
    memcpy(c.in, x, (size_t)n * sizeof *x);
    const int y = draw_call(d, c);
    if (y >= 0)
        return y;
    int sum = x[0];
    for (int i = 1; i < n && sum >= 0; i++)
        sum = draw_call2(d, CALL_ADD, sum, x[i]);
    return sum;
}

/* The same functions of all parts of a split, joined or added. */
static int loop(struct draw *d, int x)
{
    const int axis = draw_axis(d, x);
    const int64_t size = axis < 0 ? 1 : draw_value(d, x)->shape[axis];
    int n = 2 + (int)draw_below(d, MAX_OUT - 1), part[MAX_OUT];
    while (n > 1 && size % n)
        n--;
    if (n < 2)
        return -1;
    struct call c = {.kind = CALL_SPLIT, .n_in = 1, .in = {x}, .n_out = n, .axis = axis};
    const int first = draw_call(d, c);
    if (first < 0)
        return -1;
    const uint64_t state = d->state;
    const int64_t length = 1 + (int64_t)(state % 3);
    const bool joins = state / 3 % 100 < 75, skips = state / 300 % 100 < 20;
    for (int i = 0; i < n; i++) {
        d->state = state;
        part[i] = skips && i % 2 ? first + i : chain(d, first + i, length);
    }
    return joined(d, n, part, joins && axis < draw_value(d, part[0])->ndim ? axis : -1);
}

/* Slices of one value, with gaps or overlaps, each with its own function. */
static int slices(struct draw *d, int x)
{
    const int axis = draw_axis(d, x), n = 2 + (int)draw_below(d, 4);
    int part[MAX_OUT], count = 0;
    for (int i = 0; i < n && axis >= 0; i++) {
        const int64_t size = draw_value(d, x)->shape[axis], width = size / n ? size / n : 1;
        const int64_t begin = draw_chance(d, 80) ? i * width : draw_below(d, size);
        struct call c = {.kind = CALL_SLICE, .n_in = 1, .in = {x}, .axis = axis, .begin = begin};
        c.end = begin + width < size ? begin + width : size;
        const int y = draw_call(d, c);
        if (y >= 0)
            part[count++] = draw_chance(d, 70) ? draw_unary(d, y) : y;
        if (count && part[count - 1] < 0)
            return -1;
    }
    return count ? joined(d, count, part, axis) : -1;
}

/* Many uses of one value: its gradient is a sum. */
static int uses(struct draw *d, int x)
{
    const int64_t n = 2 + draw_below(d, draw_chance(d, 30) ? 9 : 3);
    int sum = draw_chance(d, 50) ? x : -1;
    for (int64_t i = 0; i < n; i++) {
        const int y = draw_function(d, x);
        if (y < 0)
            continue;
        const int together = sum < 0 ? y : draw_call2(d, CALL_ADD, sum, y);
        sum = together < 0 ? y : together;
    }
    return sum;
}

/* x + layers of a norm of x. */
static int residual(struct draw *d, int x)
{
    const int norm = draw_norm(d, x), up = draw_layer(d, norm < 0 ? x : norm);
    if (up < 0)
        return -1;
    const int act = draw_unary(d, up), down = draw_layer(d, act < 0 ? up : act);
    return down < 0 ? up : draw_call2(d, CALL_ADD, x, down);
}

/* softmax(q k) v, with projections of one value. */
static int attention(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    if (v.ndim < 2 || v.ndim > 3 || draw_last(&v) > 32)
        return -1;
    const int q = draw_layer(d, x), k = q < 0 ? -1 : draw_unary(d, x);
    if (k < 0)
        return -1;
    const int64_t w_shape[] = {draw_last(draw_value(d, q)), draw_last(&v)};
    const int w = draw_param(d, v.dtype, 2, w_shape, 0.25f);
    const int key =
        w < 0 ? -1 : draw_call(d, (struct call){.kind = CALL_LINEAR, .n_in = 3, .in = {k, w, -1}});
    const int scores = key < 0 ? -1
                               : draw_call(d, (struct call){.kind = CALL_MATMUL,
                                                            .n_in = 2,
                                                            .in = {q, key},
                                                            .flag = {false, true}});
    const int p = scores < 0 ? -1 : draw_along(d, CALL_SOFTMAX, scores, v.ndim - 1);
    return p < 0 ? -1 : draw_call2(d, CALL_MATMUL, p, x);
}

static void two_values(struct draw *d)
{
    static const enum call_kind kinds[] = {CALL_ADD, CALL_MUL, CALL_SUB, CALL_MAXIMUM};
    const int x = draw_pick(d);
    for (int i = 0; i < TRIES; i++) {
        const int y = draw_pick(d);
        if (draw_value(d, y)->dtype == draw_value(d, x)->dtype && draw_chance(d, 20) &&
            draw_call(d, (struct call){.kind = CALL_WHERE, .n_in = 4, .in = {x, y, x, y}}) >= 0)
            return;
        if (y != x && draw_call2(d, kinds[draw_below(d, 4)], x, y) >= 0)
            return;
    }
}

void draw_pattern(struct draw *d)
{
    const int64_t how = draw_below(d, 100);
    const int x = draw_pick(d);
    if (how < 24)
        loop(d, x);
    else if (how < 34)
        slices(d, x);
    else if (how < 46)
        uses(d, x);
    else if (how < 54)
        residual(d, x);
    else if (how < 60)
        attention(d, x);
    else if (how < 72)
        two_values(d);
    else
        chain(d, x, 1 + draw_below(d, 3));
}
