/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws a recording: some leaves, then patterns (draw_patterns.c), then a loss that reads every
 * value that nothing else reads.
 */
#include <string.h>
#include "draw.h"

enum { USUAL = 768 };

/* ---- the loss --------------------------------------------------------------------------------*/

/* A cross entropy, sometimes with the settings of its specification. */
static int entropy_of(struct draw *d, struct call c)
{
    c.a = draw_chance(d, 20) ? 0.25f : 0.f;
    c.b = draw_chance(d, 20) ? 0.125f : 0.f;
    c.flag[0] = draw_chance(d, 20);
    return draw_call(d, c);
}

/* The cross entropy of x, sometimes with two sets of labels. */
static int cross_entropy(struct draw *d, int x)
{
    const struct call c = {.kind = CALL_CROSS_ENTROPY, .n_in = 1, .in = {x}};
    const int one = entropy_of(d, c);
    if (one < 0 || !draw_chance(d, 30))
        return one;
    const int two = entropy_of(d, c);
    return two < 0 ? one : draw_call2(d, CALL_ADD, one, two);
}

/* The cross entropy of a layer of x. */
static int layer_loss(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t shape[] = {2 + draw_below(d, 9), draw_last(&v)};
    const bool has_bias = draw_chance(d, 50);
    if (draw_last(&v) > 64)
        return -1;
    const int w = draw_param(d, v.dtype, 2, shape, 0.25f);
    const int b = has_bias ? draw_param(d, v.dtype, 1, shape, 1) : -1;
    return entropy_of(d,
                      (struct call){.kind = CALL_LINEAR_CROSS_ENTROPY, .n_in = 3, .in = {x, w, b}});
}

/* A loss of x and a parameter of its shape. */
static int loss_of_two(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_MSE,       CALL_MSE, CALL_L1,     CALL_HUBER,
                                           CALL_SMOOTH_L1, CALL_BCE, CALL_KL_DIV, CALL_KL_NORMAL};
    const struct value v = *draw_value(d, x);
    struct call c = {.kind = kinds[draw_below(d, 8)], .n_in = 2, .in = {x}, .a = 0.5f};
    c.in[1] = draw_param(d, v.dtype, v.ndim, v.shape, 1);
    const int y = c.in[1] == x || (c.kind == CALL_L1 && v.rough) ? -1 : draw_call(d, c);
    const bool sums = c.kind == CALL_SMOOTH_L1 || c.kind == CALL_KL_NORMAL;
    return sums ? draw_affine(d, y, 1.f / (float)value_numel(&v), 0.f) : y;
}

static int term(struct draw *d, int x)
{
    const int logits = draw_chance(d, 20) ? draw_layer(d, x) : -1;
    x = logits < 0 ? x : logits;
    const struct value v = *draw_value(d, x);
    if (v.ndim && draw_last(&v) > 1 && draw_chance(d, logits < 0 ? 25 : 80))
        return cross_entropy(d, x);
    if (v.ndim && draw_chance(d, 30)) {
        const int64_t how = draw_below(d, 10);
        return how == 0   ? layer_loss(d, x)
               : how == 1 ? draw_call1(d, CALL_MASKED_MEAN, x)
                          : loss_of_two(d, x);
    }
    int y =
        draw_call(d, (struct call){.kind = CALL_UNARY, .n_in = 1, .in = {x}, .unary = UNARY_sin});
    if (y >= 0 && v.ndim)
        y = draw_reduction(d, CALL_MEAN, y, (1u << v.ndim) - 1);
    if (y >= 0 && draw_value(d, y)->dtype != CKPT_F32)
        y = draw_call1(d, CALL_CAST, y);
    return y < 0 || !v.ndim ? y : draw_shaped(d, CALL_RESHAPE, y, 0, NULL);
}

static void mark_reads(const struct recording *r, bool *read)
{
    for (int i = 0; i < r->n_calls; i++)
        for (int k = 0; k < r->call[i].n_in; k++)
            if (r->call[i].in[k] >= 0)
                read[r->call[i].in[k]] = true;
}

static bool trains(const struct recording *r)
{
    bool reaches[MAX_VALUES], any = false;
    recording_reach(r, reaches);
    for (int i = 0; i < r->n_calls; i++)
        any |= r->call[i].kind == CALL_PARAM && reaches[r->call[i].out];
    return any;
}

/* A weighted sum of a term for every value that nothing reads. */
static bool finish(struct draw *d)
{
    bool read[MAX_VALUES] = {false};
    const int n = d->r->n_values;
    int loss = -1;
    mark_reads(d->r, read);
    d->most = MAX_NUMEL;
    for (int x = 0; x < n; x++) {
        if (read[x] && !draw_chance(d, 5)) /* a few have another reader */
            continue;
        int y = term(d, x);
        if (y < 0)
            continue;
        if (draw_chance(d, 30))
            y = draw_affine(d, y, 0.5f, 0.f);
        loss = loss < 0 ? y : draw_call2(d, CALL_ADD, loss, y);
        if (loss < 0)
            return false;
    }
    d->r->loss = loss;
    return loss >= 0 && trains(d->r);
}

static void draw_leaves(struct draw *d)
{
    const int64_t n = 1 + draw_below(d, 3);
    for (int64_t i = 0; i < n; i++) {
        int64_t shape[MAX_RANK] = {d->size[0], d->size[1], d->size[2], 1};
        const int ndim = 1 + (int)draw_below(d, 4);
        if (ndim == 1)
            shape[0] = d->size[2];
        if (draw_chance(d, 20))
            shape[draw_below(d, ndim)] = 1;
        draw_leaf(d, CALL_PARAM, d->dtype, ndim, shape, 1);
    }
    if (draw_chance(d, 50)) {
        const int64_t shape[] = {d->size[0], d->size[1], d->size[2]};
        const int x = draw_leaf(d, CALL_INPUT, d->dtype, 2 + (int)draw_below(d, 2), shape, 1);
        if (x >= 0 && draw_chance(d, 80)) /* so that a gradient passes */
            draw_with_param(d, x);
    }
}

static void draw_settings(struct draw *d)
{
    static const int64_t sizes[] = {1, 2,  2,  3,  4,  4,  5,  6,  7, 8,
                                    8, 12, 16, 17, 31, 32, 33, 40, 64};
    struct recording *r = d->r;
    d->most = draw_chance(d, 10) ? MAX_NUMEL : USUAL;
    d->dtype = draw_chance(d, 50) ? CKPT_BF16 : CKPT_F32;
    d->size[0] = 1 + draw_below(d, 4);
    d->size[1] = sizes[draw_below(d, 14)];
    do
        d->size[2] = sizes[draw_below(d, sizeof sizes / sizeof *sizes)];
    while (d->size[0] * d->size[1] * d->size[2] > d->most);
    r->n_micro = draw_chance(d, 25) ? 2 : 1;
    r->adamw = draw_chance(d, 50);
    r->bf16_gradient = draw_chance(d, 30) && d->dtype == CKPT_BF16;
    r->verify = draw_chance(d, 20);
    r->threads = draw_chance(d, 20) ? 2 : 1;
}

void recording_draw(struct recording *r, int64_t seed)
{
    for (uint64_t again = 0;; again++) {
        struct draw d = {.r = r, .state = (uint64_t)seed * 0x100000001b3u + (again << 40)};
        memset(r, 0, sizeof *r);
        draw_next(&d);
        draw_settings(&d);
        draw_leaves(&d);
        const int64_t patterns = 1 + draw_below(&d, 6);
        for (int64_t i = 0; i < patterns && !d.full; i++)
            if (r->n_calls < MAX_CALLS * 2 / 3)
                draw_pattern(&d);
        if (finish(&d))
            return;
    }
}
