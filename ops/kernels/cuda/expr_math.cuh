/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of expressions on the device, one per code of expr/expr.h, and the kernel
 * arguments. nvcc compiles this text for the interpreter and for ops with kernels of their own; it
 * is also the start of every source for NVRTC, so it includes nothing.  Its users either forbid
 * contraction (-fmad=false) or call only functions that specify every rounding, so a value has the
 * same bits in all of them.
 */
#ifndef CKPT_CUDA_EXPR_MATH_CUH
#define CKPT_CUDA_EXPR_MATH_CUH

#define EXPR_FUNCTION static __device__ __forceinline__ float

/* ---- kernel arguments ------------------------------------------------------------------------ */

#define EXPR_POINTERS 9  /* the result and the operands */
#define EXPR_STEPS    13 /* the same and the leaves with an index */
#define EXPR_AXES     8

/* One axis: its size, the constants for division by it, and the strides: bytes for tensors, indices
 * for leaves. */
struct expr_axis {
    unsigned size, magic, shift, unused;
    long long step[EXPR_STEPS];
};

struct expr_args {
    void *data[EXPR_POINTERS];
    const long long *step; /* number of the training step, for random values */
    unsigned *largest;     /* receives the largest magnitude of the result, unless NULL */
    unsigned long long seed;
    long long first;                             /* index of the call's first random value */
    long long place[EXPR_STEPS - EXPR_POINTERS]; /* indices of leaves at position 0 */
    unsigned count;                              /* positions */
    int ndim;
    unsigned stream[EXPR_STEPS - EXPR_POINTERS]; /* random streams of leaves */
    unsigned length;                             /* positions of a row, if there are sums */
    unsigned spread;   /* bit k: operand k is constant along the last axis */
    unsigned aligned;  /* the random values of every vector begin with the first word of a draw */
    unsigned far;      /* a stride of the last two axes does not fit in 32 bits */
    unsigned straight; /* a row is one axis, and `far` is 0 */
    struct expr_axis axis[EXPR_AXES]; /* the innermost axis first */
};

/* n / size for n below 2^31 (Granlund & Montgomery 1994). */
static __device__ __forceinline__ unsigned expr_divide(unsigned n, const struct expr_axis &a)
{
    return (__umulhi(n, a.magic) + n) >> a.shift;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

struct expr_words {
    unsigned at[4];
};

/* Four words of Philox 4x32-10: see runtime/core/random.c; uniform draws have kind 0. */
static __device__ __forceinline__ struct expr_words expr_draw(const struct expr_args &a,
                                                              long long block, unsigned stream)
{
    unsigned long long step = (unsigned long long)*a.step;
    unsigned k0 = (unsigned)a.seed, k1 = (unsigned)(a.seed >> 32);
    struct expr_words w = {{(unsigned)block,
                            (unsigned)(block >> 32 & 0xff) << 24 | (unsigned)(step >> 32 & 0xfffff),
                            (unsigned)step, stream}};
#pragma unroll
    for (int round = 0; round < 10; round++) {
        unsigned h0 = __umulhi(w.at[0], 0xd2511f53u), l0 = w.at[0] * 0xd2511f53u;
        unsigned h1 = __umulhi(w.at[2], 0xcd9e8d57u), l1 = w.at[2] * 0xcd9e8d57u;
        w.at[0] = h1 ^ w.at[1] ^ k0;
        w.at[1] = l1;
        w.at[2] = h0 ^ w.at[3] ^ k1;
        w.at[3] = l0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return w;
}

EXPR_FUNCTION expr_unit(unsigned word)
{
    return __fmul_rn((float)(word >> 8), 0x1p-24f);
}

EXPR_FUNCTION expr_uniform(const struct expr_args &a, long long at, unsigned stream)
{
    long long i = a.first + at;
    struct expr_words w = expr_draw(a, i >> 2, stream);
    unsigned low = i & 1 ? w.at[1] : w.at[0], high = i & 1 ? w.at[3] : w.at[2];
    return expr_unit(i & 2 ? high : low);
}

/* ---- hardware approximations ----------------------------------------------------------------- */

/* 2^x with an error of at most 2 ulp; results below 2^-126 are 0. */
EXPR_FUNCTION expr_power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1 / x for x >= 1, with an error of at most 1 ulp; 0 from 2^126 on. */
EXPR_FUNCTION expr_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* x / y, correctly rounded if the result and the remainder are normal numbers, else within 2 ulp.
 * IEEE division has a branch, whose cost vectors of elements cannot hide. */
EXPR_FUNCTION expr_quotient(float x, float y)
{
    float z, inverse;
    asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(y)); /* 0 for a large y */
    float better = __fmaf_rn(__fmaf_rn(-z, y, x), inverse, z);
    return fabsf(better) <= 0x1p127f ? better : z; /* unless z, y or the inverse is infinite */
}

/* ---- functions of one argument and the node's constants -------------------------------------- */

EXPR_FUNCTION expr_scale(float x, float p, float)
{
    return __fmul_rn(p, x);
}

EXPR_FUNCTION expr_affine(float x, float p, float q)
{
    return __fmaf_rn(p, x, q);
}

EXPR_FUNCTION expr_clamp(float x, float p, float q)
{
    return x < p ? p : x > q ? q : x;
}

EXPR_FUNCTION expr_leaky(float x, float p, float)
{
    return x > 0.f ? x : __fmul_rn(p, x);
}

/* The bits of x rounded to bf16; NaN becomes 0x7fff. */
static __device__ __forceinline__ unsigned short expr_bf16_bits(float x)
{
    unsigned short y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}

EXPR_FUNCTION expr_bf16(float x, float, float)
{
    return __uint_as_float((unsigned)expr_bf16_bits(x) << 16);
}

EXPR_FUNCTION expr_integer(float x, float, float)
{
    float y = x < -2147483648.f ? -2147483648.f : x > 2147483648.f ? 2147483648.f : x;
    return x == x ? truncf(y) : 0.f;
}

EXPR_FUNCTION expr_exp(float x, float, float)
{
    return expf(x);
}

EXPR_FUNCTION expr_expm1(float x, float, float)
{
    return expm1f(x);
}

EXPR_FUNCTION expr_log(float x, float, float)
{
    return logf(x);
}

EXPR_FUNCTION expr_log1p(float x, float, float)
{
    return log1pf(x);
}

EXPR_FUNCTION expr_sqrt(float x, float, float)
{
    return __fsqrt_rn(x);
}

EXPR_FUNCTION expr_rsqrt(float x, float, float)
{
    float y; /* at most 2 ulp of error */
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

EXPR_FUNCTION expr_abs(float x, float, float)
{
    return fabsf(x);
}

EXPR_FUNCTION expr_sign(float x, float, float)
{
    return x > 0.f ? 1.f : x < 0.f ? -1.f : x;
}

EXPR_FUNCTION expr_tanh(float x, float, float)
{
    return tanhf(x);
}

EXPR_FUNCTION expr_sigmoid(float x, float, float)
{
    return expr_reciprocal(__fadd_rn(1.f, expf(-x)));
}

EXPR_FUNCTION expr_softplus(float x, float, float)
{
    return __fadd_rn(x > 0.f ? x : 0.f, log1pf(expf(-fabsf(x))));
}

EXPR_FUNCTION expr_erf(float x, float, float)
{
    return erff(x);
}

EXPR_FUNCTION expr_sin(float x, float, float)
{
    return sinf(x);
}

EXPR_FUNCTION expr_cos(float x, float, float)
{
    return cosf(x);
}

EXPR_FUNCTION expr_floor(float x, float, float)
{
    return floorf(x);
}

EXPR_FUNCTION expr_round(float x, float, float)
{
    return rintf(x);
}

EXPR_FUNCTION expr_not(float x, float, float)
{
    return x == 0.f ? 1.f : 0.f;
}

EXPR_FUNCTION expr_relu(float x, float, float)
{
    return x <= 0.f ? 0.f : x; /* keeps NaN */
}

/* ---- activations: the same arithmetic as the ops of these names ------------------------------ */

/* The tanh formula of GELU is x sigmoid(x (C1 + C3 x^2)).  The code multiplies the constants by
 * log2(e), since the hardware computes powers of 2. */
#define EXPR_LOG2E   1.4426950408889634f
#define EXPR_GELU_C1 1.5957691216057308f  /* 2 sqrt(2/pi) */
#define EXPR_GELU_C3 0.07135481627159595f /* C1 * 0.044715 */

/* sigmoid(v / EXPR_LOG2E). */
EXPR_FUNCTION expr_sigmoid2(float v)
{
    return expr_reciprocal(__fadd_rn(1.f, expr_power_of_2(-v)));
}

EXPR_FUNCTION expr_gelu_argument(float x, float x2)
{
    return __fmul_rn(x, __fmaf_rn(EXPR_LOG2E * EXPR_GELU_C3, x2, EXPR_LOG2E * EXPR_GELU_C1));
}

EXPR_FUNCTION expr_gelu(float x, float, float)
{
    return __fmul_rn(x, expr_sigmoid2(expr_gelu_argument(x, __fmul_rn(x, x))));
}

EXPR_FUNCTION expr_silu(float x, float, float)
{
    return __fmul_rn(x, expr_sigmoid2(__fmul_rn(EXPR_LOG2E, x)));
}

/*
 * With s the sigmoid and v its argument: d(x s)/dx = s + x s (1 - s) v'.  For |x| > 100, s is 0 or
 * 1, and x^2 only has to stay finite.  The error of 1 - s is at most 6e-8, and x v' is below 60
 * wherever s is not yet 1, so the error is negligible next to a slope of 1.
 */
EXPR_FUNCTION expr_gelu_square(float x)
{
    return fminf(__fmul_rn(x, x), 1e4f);
}

/* x2 is expr_gelu_square(x), s the sigmoid. */
EXPR_FUNCTION expr_gelu_slope(float x, float x2, float s)
{
    float slope = __fmaf_rn(3.f * EXPR_GELU_C3, x2, EXPR_GELU_C1);
    float bend = __fmul_rn(x, __fmul_rn(s, __fsub_rn(1.f, s)));
    return __fmaf_rn(bend, slope, s);
}

EXPR_FUNCTION expr_gelu_dx(float dy, float x)
{
    float x2 = expr_gelu_square(x);
    return __fmul_rn(dy, expr_gelu_slope(x, x2, expr_sigmoid2(expr_gelu_argument(x, x2))));
}

EXPR_FUNCTION expr_silu_dx(float dy, float x)
{
    float s = expr_sigmoid2(__fmul_rn(EXPR_LOG2E, x));
    return __fmul_rn(__fmul_rn(dy, s), __fmaf_rn(x, __fsub_rn(1.f, s), 1.f));
}

EXPR_FUNCTION expr_relu_dx(float dy, float y)
{
    return y <= 0.f ? 0.f : dy;
}

/* ---- functions of two and three arguments ---------------------------------------------------- */

EXPR_FUNCTION expr_add(float x, float y)
{
    return __fadd_rn(x, y);
}

EXPR_FUNCTION expr_sub(float x, float y)
{
    return __fsub_rn(x, y);
}

EXPR_FUNCTION expr_mul(float x, float y)
{
    return __fmul_rn(x, y);
}

EXPR_FUNCTION expr_div(float x, float y)
{
    return expr_quotient(x, y);
}

EXPR_FUNCTION expr_pow(float x, float y)
{
    return powf(x, y);
}

EXPR_FUNCTION expr_minimum(float x, float y)
{
    return x < y || x != x ? x : y;
}

EXPR_FUNCTION expr_maximum(float x, float y)
{
    return x > y || x != x ? x : y;
}

EXPR_FUNCTION expr_eq(float x, float y)
{
    return x == y ? 1.f : 0.f;
}

EXPR_FUNCTION expr_ne(float x, float y)
{
    return x != y ? 1.f : 0.f;
}

EXPR_FUNCTION expr_lt(float x, float y)
{
    return x < y ? 1.f : 0.f;
}

EXPR_FUNCTION expr_le(float x, float y)
{
    return x <= y ? 1.f : 0.f;
}

EXPR_FUNCTION expr_and(float x, float y)
{
    return x != 0.f && y != 0.f ? 1.f : 0.f;
}

EXPR_FUNCTION expr_or(float x, float y)
{
    return x != 0.f || y != 0.f ? 1.f : 0.f;
}

EXPR_FUNCTION expr_where(float condition, float x, float y)
{
    return condition != 0.f ? x : y;
}

#endif
