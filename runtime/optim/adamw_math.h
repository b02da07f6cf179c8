/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of AdamW (Loshchilov & Hutter 2019), one element at a time, written once for the
 * CPU and for CUDA.
 *
 * Every operation is rounded by itself and none is fused with another, so that all instruction
 * sets, those without fused multiply-add too, give the same bits, and a parameter may be updated
 * now here and now there.  Memory is what an update waits for; fusing would gain nothing.  On CUDA
 * the intrinsics see to it; C has no word for it that all compilers obey, so host_adamw.c is built
 * with -ffp-contract=off (Makefile.am).  Only the payload of a NaN may differ.
 */
#ifndef CKPT_ADAMW_MATH_H
#define CKPT_ADAMW_MATH_H

#include <math.h>
#include "attr.h"

/* Constants of one update; new = 1 - beta, unbias = 1 / (1 - beta^k). */
struct adamw_constants {
    float clip, beta1, beta2, new1, new2;
    float unbias1, unbias2;
    float eps, lr, weight_decay, ema, new_ema;
};

/* What does not move from step to step; clip, unbias1, unbias2 and lr are left to the caller. */
static inline struct adamw_constants adamw_constants_of(const struct ckpt_adamw *o)
{
    struct adamw_constants c;
    c.clip = c.unbias1 = c.unbias2 = 1.f;
    c.lr = o->lr;
    c.beta1 = o->beta1;
    c.beta2 = o->beta2;
    c.new1 = (float)(1.0 - (double)o->beta1);
    c.new2 = (float)(1.0 - (double)o->beta2);
    c.eps = o->eps;
    c.weight_decay = o->weight_decay;
    c.ema = o->ema_decay;
    c.new_ema = (float)(1.0 - (double)o->ema_decay);
    return c;
}

#ifdef __CUDACC__
#define ADAMW_FUNCTION  static __device__ __forceinline__
#define ADAMW_ADD(a, b) __fadd_rn(a, b)
#define ADAMW_SUB(a, b) __fsub_rn(a, b)
#define ADAMW_MUL(a, b) __fmul_rn(a, b)
#define ADAMW_DIV(a, b) __fdiv_rn(a, b)
#define ADAMW_SQRT(a)   __fsqrt_rn(a)
#else
#ifdef __FAST_MATH__
#error "the update relies on IEEE arithmetic: do not compile with -ffast-math"
#endif
#define ADAMW_FUNCTION  static inline __attribute__((always_inline))
#define ADAMW_ADD(a, b) ((a) + (b))
#define ADAMW_SUB(a, b) ((a) - (b))
#define ADAMW_MUL(a, b) ((a) * (b))
#define ADAMW_DIV(a, b) ((a) / (b))
#define ADAMW_SQRT(a)   sqrtf(a)
#endif

/* Returns the new weight; *m and *v are the running means of gradients and of their squares. */
ADAMW_FUNCTION float adamw_weight(const struct adamw_constants *c, float gradient, float w,
                                  float *m, float *v)
{
    float g = ADAMW_MUL(gradient, c->clip);
    float mean = ADAMW_ADD(ADAMW_MUL(c->beta1, *m), ADAMW_MUL(c->new1, g));
    float square = ADAMW_MUL(ADAMW_MUL(c->new2, g), g);
    square = ADAMW_ADD(ADAMW_MUL(c->beta2, *v), square);
    float root = ADAMW_ADD(ADAMW_SQRT(ADAMW_MUL(square, c->unbias2)), c->eps);
    float change = ADAMW_DIV(ADAMW_MUL(mean, c->unbias1), root);
    *m = mean;
    *v = square;
    change = ADAMW_ADD(change, ADAMW_MUL(c->weight_decay, w));
    return ADAMW_SUB(w, ADAMW_MUL(c->lr, change));
}

/* The running mean of weights. */
ADAMW_FUNCTION float adamw_ema(const struct adamw_constants *c, float ema, float w)
{
    return ADAMW_ADD(ADAMW_MUL(c->ema, ema), ADAMW_MUL(c->new_ema, w));
}

#endif
