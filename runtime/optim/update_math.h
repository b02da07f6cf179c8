/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the element-wise updates, one element at a time, shared by the CPU and CUDA
 * kernels.  A kind is a function of the gradient, the weight and up to two running means:
 *
 *   adamw  Loshchilov & Hutter 2019
 *   sgd    with momentum (Polyak 1964), as torch.optim.SGD: dampening, Nesterov
 *   lion   Chen et al. 2023
 *   step   applies a step that other ops computed: w -= rate x + lr decay w (Muon, Adafactor)
 *
 * A new kind is a function here, a case of update_weight and a line in update.c; the host and
 * device kernels are both made from it.  Expression programs (ops/expr) do not fit: an update
 * writes several results in place of its operands, and all must be computed before the first is
 * written.
 *
 * Every operation is rounded separately and none is fused, so that all instruction sets, including
 * those without fused multiply-add, give the same bits, and a parameter may be updated on either
 * side.  Updates are bound by memory, so fusing would not be faster.  On CUDA intrinsics prevent
 * fusing; C has no construct that all compilers obey, so host_update.c is built with
 * -ffp-contract=off (Makefile.am).  Only the payload of a NaN may differ.
 */
#ifndef CKPT_UPDATE_MATH_H
#define CKPT_UPDATE_MATH_H

#include <math.h>
#include "attr.h"
#include "core/bits.h"

/* Constants of one update; new = 1 - beta, unbias = 1 / (1 - beta^k). sgd: beta1 is the momentum,
 * new1 is one minus the dampening. */
struct update_constants {
    float clip, limit; /* the factor of the gradient, and the bound applied after it */
    float beta1, beta2, new1, new2;
    float unbias1, unbias2;
    float eps, lr, weight_decay, ema, new_ema;
    float rate; /* used by step */
    int nesterov;
    int kind; /* enum update_kind */
};

#ifdef __CUDACC__
#define UPDATE_FUNCTION  static __device__ __forceinline__
#define UPDATE_ADD(a, b) __fadd_rn(a, b)
#define UPDATE_SUB(a, b) __fsub_rn(a, b)
#define UPDATE_MUL(a, b) __fmul_rn(a, b)
#define UPDATE_DIV(a, b) __fdiv_rn(a, b)
#define UPDATE_SQRT(a)   __fsqrt_rn(a)
#define UPDATE_BITS(a)   __float_as_uint(a)
#define UPDATE_FLOAT(a)  __uint_as_float(a)
#else
#ifdef __FAST_MATH__
#error "the update relies on IEEE arithmetic: do not compile with -ffast-math"
#endif
#define UPDATE_FUNCTION  static inline __attribute__((always_inline))
#define UPDATE_ADD(a, b) ((a) + (b))
#define UPDATE_SUB(a, b) ((a) - (b))
#define UPDATE_MUL(a, b) ((a) * (b))
#define UPDATE_DIV(a, b) ((a) / (b))
#define UPDATE_SQRT(a)   sqrtf(a)
#define UPDATE_BITS(a)   float_bits(a)
#define UPDATE_FLOAT(a)  float_of_bits(a)
#endif

/* The constants that do not change between steps; update_begin sets the others. */
static inline struct update_constants update_constants_of(const struct update_attr *a)
{
    struct update_constants c;
    c.clip = c.unbias1 = c.unbias2 = 1.f;
    c.limit = a->clip_value > 0.f && !a->unclipped ? a->clip_value : INFINITY;
    c.lr = 0.f;
    c.beta1 = a->beta1;
    c.beta2 = a->beta2;
    c.new1 = (float)(1.0 - (double)(a->kind == UPDATE_SGD ? a->beta2 : a->beta1));
    c.new2 = (float)(1.0 - (double)a->beta2);
    c.eps = a->eps;
    c.weight_decay = a->weight_decay;
    c.ema = a->ema_decay;
    c.new_ema = (float)(1.0 - (double)a->ema_decay);
    c.rate = a->scale;
    c.nesterov = a->nesterov;
    c.kind = a->kind;
    return c;
}

/* Sets the constants of a step. clip: its clip values; updates: number of updates before it. */
UPDATE_FUNCTION void update_begin(struct update_constants *c, const struct update_attr *a,
                                  const float *clip, float lr, int64_t updates)
{
    c->clip = a->unclipped ? 1.f : clip[CLIP_FACTOR];
    c->lr = UPDATE_MUL(lr, a->lr_factor);
    if (a->kind == UPDATE_ADAMW) {
        c->unbias1 = clip[a->unbias];
        c->unbias2 = clip[a->unbias + 1];
    }
    if (a->kind == UPDATE_SGD && updates == 0)
        c->new1 = 1.f;
    if (a->kind == UPDATE_STEP && !a->plain)
        c->rate = UPDATE_MUL(c->lr, c->rate);
    if (a->ema_warmup && updates < 1 << 24) { /* integers below 2^24 are exact in fp32 */
        float t = (float)updates, early = UPDATE_DIV(UPDATE_ADD(1.f, t), UPDATE_ADD(10.f, t));
        if (early < c->ema) {
            c->ema = early;
            c->new_ema = UPDATE_SUB(1.f, early);
        }
    }
}

UPDATE_FUNCTION float update_gradient(const struct update_constants *c, float gradient)
{
    float g = UPDATE_MUL(gradient, c->clip);
    g = g > c->limit ? c->limit : g;
    return g < -c->limit ? -c->limit : g;
}

UPDATE_FUNCTION float update_adamw(const struct update_constants *c, float g, float w, float *m,
                                   float *v)
{
    float mean = UPDATE_ADD(UPDATE_MUL(c->beta1, *m), UPDATE_MUL(c->new1, g));
    float square = UPDATE_MUL(UPDATE_MUL(c->new2, g), g);
    square = UPDATE_ADD(UPDATE_MUL(c->beta2, *v), square);
    float root = UPDATE_ADD(UPDATE_SQRT(UPDATE_MUL(square, c->unbias2)), c->eps);
    float change = UPDATE_DIV(UPDATE_MUL(mean, c->unbias1), root);
    *m = mean;
    *v = square;
    change = UPDATE_ADD(change, UPDATE_MUL(c->weight_decay, w));
    return UPDATE_SUB(w, UPDATE_MUL(c->lr, change));
}

UPDATE_FUNCTION float update_sgd(const struct update_constants *c, float g, float w, float *m)
{
    g = UPDATE_ADD(g, UPDATE_MUL(c->weight_decay, w));
    float sum = UPDATE_ADD(UPDATE_MUL(c->beta1, *m), UPDATE_MUL(c->new1, g));
    float change = c->nesterov ? UPDATE_ADD(g, UPDATE_MUL(c->beta1, sum)) : sum;
    *m = sum;
    return UPDATE_SUB(w, UPDATE_MUL(c->lr, change));
}

/* Without momentum the sum equals the gradient and is not stored. */
UPDATE_FUNCTION float update_sgd_alone(const struct update_constants *c, float g, float w)
{
    g = UPDATE_ADD(g, UPDATE_MUL(c->weight_decay, w));
    return UPDATE_SUB(w, UPDATE_MUL(c->lr, g));
}

UPDATE_FUNCTION float update_lion(const struct update_constants *c, float g, float w, float *m)
{
    float mean = UPDATE_ADD(UPDATE_MUL(c->beta1, *m), UPDATE_MUL(c->new1, g));
    float sign = mean > 0.f ? 1.f : mean < 0.f ? -1.f : 0.f;
    *m = UPDATE_ADD(UPDATE_MUL(c->beta2, *m), UPDATE_MUL(c->new2, g));
    float change = UPDATE_ADD(sign, UPDATE_MUL(c->weight_decay, w));
    return UPDATE_SUB(w, UPDATE_MUL(c->lr, change));
}

UPDATE_FUNCTION float update_step(const struct update_constants *c, float x, float w)
{
    float decay = UPDATE_MUL(c->lr, UPDATE_MUL(c->weight_decay, w));
    return UPDATE_SUB(w, UPDATE_ADD(UPDATE_MUL(c->rate, x), decay));
}

/* The new weight.  *m and *v are the running means, unchanged if the kind does not have them. */
UPDATE_FUNCTION float update_weight(enum update_kind kind, const struct update_constants *c,
                                    float gradient, float w, float *m, float *v)
{
    float g = update_gradient(c, gradient);
    switch (kind) {
    case UPDATE_ADAMW:
        return update_adamw(c, g, w, m, v);
    case UPDATE_SGD:
        return m ? update_sgd(c, g, w, m) : update_sgd_alone(c, g, w);
    case UPDATE_LION:
        return update_lion(c, g, w, m);
    default:
        return update_step(c, gradient, w);
    }
}

/* Which running means does a kind keep? */
static inline int update_has_mean(const struct update_attr *a)
{
    return a->kind == UPDATE_ADAMW || a->kind == UPDATE_LION ||
           (a->kind == UPDATE_SGD && a->beta1 > 0.f);
}

static inline int update_has_square(const struct update_attr *a)
{
    return a->kind == UPDATE_ADAMW;
}

/*
 * x rounded to bf16, as a float: adds 16 random bits to the low half and truncates.  A value
 * between two bf16 values becomes either of them with probabilities that make x the expectation;
 * bf16 values do not change.  Above the largest bf16 value the result may be infinity, as with
 * rounding to nearest; NaN and infinity do not change.
 */
UPDATE_FUNCTION float update_round(float x, uint32_t noise)
{
    uint32_t bits = UPDATE_BITS(x), up = (bits + noise) & 0xffff0000u;
    return (bits & 0x7f800000u) == 0x7f800000u ? x : UPDATE_FLOAT(up);
}

/* 16 bits of a random word, each uniform; any two of the three are independent. */
UPDATE_FUNCTION uint32_t update_noise(uint32_t word, int of)
{
    uint32_t high = word >> 16, low = word & 0xffffu;
    return of == NOISE_VALUE ? high : of == NOISE_MEAN ? low : high ^ low;
}

/* The moving average of weights. */
UPDATE_FUNCTION float update_ema(const struct update_constants *c, float ema, float w)
{
    return UPDATE_ADD(UPDATE_MUL(c->ema, ema), UPDATE_MUL(c->new_ema, w));
}

#endif
