/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of two adjacent bf16 values at once, in the low and the high half of a word.  The text
 * is part of the NVRTC sources, after expr_math.cuh; expr_program.c decides which nodes use these
 * functions.
 *
 * Each function has the bits of its fp32 function followed by rounding to bf16, for every pair of
 * values.  For sums, products, and sums with an exact product this holds because fp32 has more than
 * twice the digits of bf16 plus two: rounding to fp32 first changes nothing.  The other functions
 * select or compare.  Computed NaNs are 0x7fff; values from memory may be other NaNs, which
 * expr_canonical_pair() converts to 0x7fff.
 */
#ifndef CKPT_CUDA_EXPR_PAIR_CUH
#define CKPT_CUDA_EXPR_PAIR_CUH

#define EXPR_PAIR static __device__ __forceinline__ unsigned

EXPR_FUNCTION expr_low(unsigned x)
{
    return __uint_as_float(x << 16);
}

EXPR_FUNCTION expr_high(unsigned x)
{
    return __uint_as_float(x & 0xffff0000u);
}

/* Rounds both to bf16. */
EXPR_PAIR expr_round_pair(float low, float high)
{
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

/* x y + z with a single rounding. */
EXPR_PAIR expr_fma_pair(unsigned x, unsigned y, unsigned z)
{
    unsigned r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(z));
    return r;
}

#define EXPR_ONES        0x3f803f80u
#define EXPR_MINUS_ONES  0xbf80bf80u
#define EXPR_MINUS_ZEROS 0x80008000u

EXPR_PAIR expr_add_pair(unsigned x, unsigned y)
{
    return expr_fma_pair(x, EXPR_ONES, y);
}

EXPR_PAIR expr_sub_pair(unsigned x, unsigned y)
{
    return expr_fma_pair(y, EXPR_MINUS_ONES, x);
}

/* Adding -0 keeps the sign of a product that is 0. */
EXPR_PAIR expr_mul_pair(unsigned x, unsigned y)
{
    return expr_fma_pair(x, y, EXPR_MINUS_ZEROS);
}

/* Returns x with every NaN replaced by 0x7fff. */
EXPR_PAIR expr_canonical_pair(unsigned x)
{
    return expr_fma_pair(x, EXPR_ONES, EXPR_MINUS_ZEROS);
}

EXPR_PAIR expr_abs_pair(unsigned x)
{
    return x & 0x7fff7fffu;
}

/* ---- comparisons: a half is all ones if true, else all zeros --------------------------------- */

#if __CUDA_ARCH__ >= 900
#define EXPR_COMPARE(name, code, low, high)                                                        \
    EXPR_PAIR expr_##name##_mask(unsigned x, unsigned y)                                           \
    {                                                                                              \
        unsigned r;                                                                                \
        asm("set." code ".u32.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));                     \
        return r;                                                                                  \
    }
#else
#define EXPR_COMPARE(name, code, low, high)                                                        \
    EXPR_PAIR expr_##name##_mask(unsigned x, unsigned y)                                           \
    {                                                                                              \
        const float xl = expr_low(x), xh = expr_high(x), yl = expr_low(y), yh = expr_high(y);      \
        return (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u);                                   \
    }
#endif
EXPR_COMPARE(eq, "eq", xl == yl, xh == yh)
EXPR_COMPARE(ne, "neu", xl != yl, xh != yh)
EXPR_COMPARE(lt, "lt", xl < yl, xh < yh)
EXPR_COMPARE(le, "le", xl <= yl, xh <= yh)
/* also true if an operand is NaN */
EXPR_COMPARE(not_le, "gtu", !(xl <= yl), !(xh <= yh))
EXPR_COMPARE(not_ge, "ltu", !(xl >= yl), !(xh >= yh))

EXPR_PAIR expr_select_pair(unsigned mask, unsigned x, unsigned y)
{
    return (mask & x) | (~mask & y);
}

EXPR_PAIR expr_mask_pair(unsigned mask)
{
    return mask & EXPR_ONES;
}

/* ---- selections: NaN operands must be 0x7fff (canonical) ------------------------------------- */

/* Zeros and NaN are returned unchanged. */
EXPR_PAIR expr_sign_pair(unsigned x)
{
    return expr_select_pair(expr_lt_mask(0u, expr_abs_pair(x)), (x & EXPR_MINUS_ZEROS) | EXPR_ONES,
                            x);
}

/* The hardware instructions, which order -0 below +0. */
EXPR_PAIR expr_smaller_pair(unsigned x, unsigned y)
{
    unsigned r;
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    return r;
}

EXPR_PAIR expr_larger_pair(unsigned x, unsigned y)
{
    unsigned r;
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y));
    return r;
}

/* For two zeros the result is y; a NaN in either operand is returned. */
EXPR_PAIR expr_minimum_pair(unsigned x, unsigned y)
{
    return expr_smaller_pair(expr_select_pair(expr_not_ge_mask(x, y), x, y), y);
}

EXPR_PAIR expr_maximum_pair(unsigned x, unsigned y)
{
    return expr_larger_pair(expr_select_pair(expr_not_le_mask(x, y), x, y), y);
}

/* Requires p <= q, both non-zero. */
EXPR_PAIR expr_clamp_pair(unsigned x, unsigned p, unsigned q)
{
    return expr_smaller_pair(expr_larger_pair(x, p), q);
}

EXPR_PAIR expr_relu_pair(unsigned x)
{
    return expr_larger_pair(x, 0u);
}

EXPR_PAIR expr_relu_dx_pair(unsigned dy, unsigned y)
{
    return dy & ~expr_le_mask(y, 0u);
}

/* ---- the largest magnitude of a result: see largest.cuh -------------------------------------- */

/* The maximum of each of two 16-bit magnitudes. */
EXPR_PAIR expr_most_pair(unsigned most, unsigned y)
{
#if __CUDA_ARCH__ >= 900
    unsigned r;
    asm("max.u16x2 %0, %1, %2;" : "=r"(r) : "r"(most), "r"(expr_abs_pair(y)));
    return r;
#else
    return __vmaxu2(most, expr_abs_pair(y));
#endif
}

/* The larger half, as the bits of an fp32. */
EXPR_PAIR expr_most_of_pair(unsigned most)
{
    return max(most << 16, most & 0xffff0000u);
}

#endif
