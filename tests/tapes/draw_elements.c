/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of single elements that are not smooth, or not for all numbers. */
#include "draw.h"

/* x^2 + 1/4 */
static int positive(struct draw *d, int x)
{
    return draw_affine(d, draw_call2(d, CALL_MUL, x, x), 1.f, 0.25f);
}

static int of_positive(struct draw *d, int x)
{
    static const float powers[] = {0.5f, -0.5f, 1.5f, 2.f, 3.f, -1.f};
    const int64_t how = draw_below(d, 3);
    const enum unary unary = (enum unary)(FIRST_POSITIVE + draw_below(d, UNARIES - FIRST_POSITIVE));
    const float power = powers[draw_below(d, 6)];
    const int y = positive(d, x);
    if (how == 0)
        return draw_call(d,
                         (struct call){.kind = CALL_POW_SCALAR, .n_in = 1, .in = {y}, .a = power});
    if (how == 1 && y >= 0)
        return draw_call2(d, CALL_POW, y, draw_broadcast_param(d, y, false));
    return draw_call(d, (struct call){.kind = CALL_UNARY, .n_in = 1, .in = {y}, .unary = unary});
}

/* Functions that jump, or whose derivative does, of values that rounding does not move across. */
static int broken(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_LEAKY_RELU, CALL_ELU, CALL_CLAMP, CALL_UNARY,
                                           CALL_UNARY};
    struct call c = {.kind = kinds[draw_below(d, 5)], .n_in = 1, .in = {x}, .a = 0.25f};
    c.unary = (enum unary)(FIRST_BROKEN + draw_below(d, FIRST_POSITIVE - FIRST_BROKEN));
    if (draw_value(d, x)->rough)
        return -1;
    if (c.kind == CALL_CLAMP) {
        c.a = -0.5078125f;
        c.b = 0.7578125f;
    }
    if (draw_value(d, x)->dtype == CKPT_F32) /* not the multiples of 1/64 that leaves are */
        c.in[0] = draw_affine(d, x, 1.f, 0.01f);
    return draw_call(d, c);
}

/* Where x is below a parameter. */
static int filled(struct draw *d, int x)
{
    const int w = draw_broadcast_param(d, x, true);
    const int y = draw_value(d, x)->rough ? -1 : draw_unary(d, x);
    return draw_call(
        d,
        (struct call){.kind = CALL_MASKED_FILL, .n_in = 3, .in = {x, w, y < 0 ? x : y}, .a = 0.5f});
}

/* Codes of 3 or 8 bits; the scale is positive and has one number or one for each channel. */
static int quantized(struct draw *d, int x)
{
    const struct value v = *draw_value(d, x);
    const int64_t n = draw_last(&v);
    const int ndim = v.ndim && draw_chance(d, 50);
    const bool few = draw_chance(d, 50), shifted = draw_chance(d, 40);
    if (v.rough)
        return -1;
    const int w = draw_param(d, CKPT_F32, ndim, &n, 1);
    const int scale = draw_affine(d, w < 0 ? -1 : draw_call2(d, CALL_MUL, w, w), 0.0173f, 0.0291f);
    const int zero = shifted ? draw_param(d, CKPT_F32, 0, NULL, 1) : -1;
    return draw_call(d, (struct call){.kind = CALL_FAKE_QUANTIZE,
                                      .n_in = 3,
                                      .in = {x, scale, zero},
                                      .begin = few ? -4 : -128,
                                      .end = few ? 3 : 127});
}

int draw_elements(struct draw *d, int x)
{
    switch (draw_below(d, 6)) {
    case 0:
    case 1:
        return of_positive(d, x);
    case 2:
        return broken(d, x);
    case 3:
        return filled(d, x);
    case 4:
        return quantized(d, x);
    default:
        return draw_call1(d, draw_chance(d, 30) ? CALL_STOP_GRADIENT : CALL_CONTIGUOUS, x);
    }
}
