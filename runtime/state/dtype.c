/* SPDX-License-Identifier: Apache-2.0 */
/* The dtypes of safetensors files and their conversion to fp32 and i32. */
#include <string.h>
#include "ckpt_tools.h"
#include "core/bits.h"
#include "core/fp8.h"
#include "state/safetensors.h"

/* IEEE 754 half precision; every half is exactly a float. */
static float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31, fraction = h & 1023;
    uint32_t bits;

    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 */
        const float f = (float)fraction * 0x1p-24f;
        return sign ? -f : f;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000u | fraction << 13;
    else
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    return float_of_bits(bits);
}

static void f16_to_f32(const void *src, float *dst, int64_t n)
{
    const uint16_t *s = src;

    for (int64_t i = 0; i < n; i++)
        dst[i] = half_to_float(s[i]);
}

static void bf16_to_f32(const void *src, float *dst, int64_t n)
{
    ckpt_from_bf16(src, dst, n);
}

static void e4m3_to_f32(const void *src, float *dst, int64_t n)
{
    const uint8_t *s = src;

    for (int64_t i = 0; i < n; i++)
        dst[i] = e4m3_value(s[i]);
}

static void e5m2_to_f32(const void *src, float *dst, int64_t n)
{
    const uint8_t *s = src;

    for (int64_t i = 0; i < n; i++)
        dst[i] = e5m2_value(s[i]);
}

static void f32_to_f32(const void *src, float *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof(float));
}

static void f64_to_f32(const void *src, float *dst, int64_t n)
{
    const double *s = src;

    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)s[i];
}

static void i8_to_f32(const void *src, float *dst, int64_t n)
{
    const int8_t *s = src;

    for (int64_t i = 0; i < n; i++)
        dst[i] = s[i];
}

#define TO_I32(name, type)                                                                         \
    static int64_t name(const void *src, int32_t *dst, int64_t n)                                  \
    {                                                                                              \
        const type *s = src;                                                                       \
                                                                                                   \
        for (int64_t i = 0; i < n; i++)                                                            \
            dst[i] = s[i];                                                                         \
        return n;                                                                                  \
    }
TO_I32(u8_to_i32, uint8_t)
TO_I32(i8_to_i32, int8_t)
TO_I32(i16_to_i32, int16_t)
TO_I32(u16_to_i32, uint16_t)
#undef TO_I32

static int64_t i32_to_i32(const void *src, int32_t *dst, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof(int32_t));
    return n;
}

static int64_t i64_to_i32(const void *src, int32_t *dst, int64_t n)
{
    const int64_t *s = src;

    for (int64_t i = 0; i < n; i++) {
        if (s[i] < INT32_MIN || s[i] > INT32_MAX)
            return i;
        dst[i] = (int32_t)s[i];
    }
    return n;
}

static const struct file_dtype dtypes[] = {
    {"BOOL", 1, NULL, u8_to_i32},
    {"U8", 1, NULL, u8_to_i32},
    {"I8", 1, i8_to_f32, i8_to_i32},
    {"F8_E5M2", 1, e5m2_to_f32, NULL},
    {"F8_E4M3", 1, e4m3_to_f32, NULL},
    {"F8_E8M0", 1, NULL, NULL},
    {"I16", 2, NULL, i16_to_i32},
    {"U16", 2, NULL, u16_to_i32},
    {"F16", 2, f16_to_f32, NULL},
    {"BF16", 2, bf16_to_f32, NULL},
    {"I32", 4, NULL, i32_to_i32},
    {"U32", 4, NULL, NULL},
    {"F32", 4, f32_to_f32, NULL},
    {"F64", 8, f64_to_f32, NULL},
    {"I64", 8, NULL, i64_to_i32},
    {"U64", 8, NULL, NULL},
    {"C64", 8, NULL, NULL},
};

const struct file_dtype *file_dtype_find(const char *name)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (!strcmp(dtypes[i].name, name))
            return &dtypes[i];
    }
    return NULL;
}
