/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that every room needs and none owns: the version, growing arrays, the hash of signatures
 * (the same on all machines), the clock in seconds, names and sizes of dtypes, tensor descriptions
 * (shape and strides in elements, sizes in bytes), whether values are finite, and UTF-8 text.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "core/base.h"
#include "core/clones.h"
#include "core/bits.h"
#include "core/fp8.h"

#define STRING(x)        #x
#define VERSION(a, b, c) STRING(a) "." STRING(b) "." STRING(c)

const char *ckpt_version(void)
{
    return VERSION(CKPT_VERSION_MAJOR, CKPT_VERSION_MINOR, CKPT_VERSION_PATCH);
}

int ckpt_version_number(void)
{
    return CKPT_VERSION_NUMBER;
}

int array_reserve(void **data, int64_t *capacity, int64_t count, size_t element)
{
    if (count < *capacity)
        return 0;
    int64_t want = max_i64(16, count * 2);
    void *grown = realloc(*data, (size_t)want * element);
    if (!grown)
        return CKPT_ENOMEM;
    *data = grown;
    *capacity = want;
    return 0;
}

uint64_t hash_mix(uint64_t h, int64_t value)
{
    for (int i = 0; i < 8; i++)
        h = (h ^ (((uint64_t)value >> (8 * i)) & 0xff)) * UINT64_C(1099511628211);
    return h;
}

uint64_t hash_text(const char *text)
{
    uint64_t h = HASH_START;
    for (; *text; text++)
        h = hash_mix(h, (unsigned char)*text);
    return h;
}

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct timespec clock_after(double seconds)
{
    struct timespec t;
    double whole;
    clock_gettime(CLOCK_MONOTONIC, &t);
    double fraction = modf((double)t.tv_nsec * 1e-9 + seconds, &whole);
    t.tv_sec += (time_t)whole;
    t.tv_nsec = (long)(fraction * 1e9);
    return t;
}

int64_t ckpt_dtype_size(enum ckpt_dtype dtype)
{
    return dtype_is_fp8(dtype) ? 1 : dtype == CKPT_BF16 ? 2 : 4;
}

static const char *const matmul_names[] = {[MATMUL_BF16] = "bf16", [MATMUL_FP8] = "fp8"};

int matmul_dtype_of(const char *name)
{
    for (int i = 0; name && *name && i <= MATMUL_FP8; i++)
        if (!strcmp(name, matmul_names[i]))
            return i;
    return name && *name ? -1 : MATMUL_BF16;
}

const char *matmul_dtype_name(enum matmul_dtype matmul)
{
    return matmul_names[matmul];
}

const char *dtype_name(enum ckpt_dtype dtype)
{
    static const char *const names[] = {[CKPT_F32] = "fp32",
                                        [CKPT_BF16] = "bf16",
                                        [CKPT_I32] = "i32",
                                        [CKPT_F8E4M3] = "e4m3",
                                        [CKPT_F8E5M2] = "e5m2"};
    return names[dtype];
}

/* The caller of a shape rule refuses sizes that overflow (tape/record.c); until then they wrap. */
static int64_t product(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

void desc_dense(struct ckpt_desc *d)
{
    int64_t stride = 1;
    for (int i = d->ndim - 1; i >= 0; i--) {
        d->stride[i] = stride;
        stride = product(stride, d->shape[i]);
    }
}

int64_t desc_numel(const struct ckpt_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim; i++)
        n = product(n, d->shape[i]);
    return n;
}

bool desc_is_sane(const struct ckpt_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim && d->ndim <= CKPT_MAX_DIMS; i++)
        if (d->shape[i] <= 0 || __builtin_mul_overflow(n, d->shape[i], &n) || n > INT64_MAX / 64)
            return false;
    return d->ndim >= 0 && d->ndim <= CKPT_MAX_DIMS;
}

int64_t desc_bytes(const struct ckpt_desc *d)
{
    return desc_numel(d) * ckpt_dtype_size(d->dtype);
}

bool desc_is_dense(const struct ckpt_desc *d)
{
    int64_t stride = 1;
    for (int i = d->ndim - 1; i >= 0; i--) {
        if (d->shape[i] != 1 && d->stride[i] != stride)
            return false;
        stride *= d->shape[i];
    }
    return true;
}

int64_t desc_step(const struct ckpt_desc *d)
{
    int64_t step = 1, n = 1;
    for (int i = d->ndim - 1; i >= 0; i--) {
        if (d->shape[i] == 1)
            continue;
        if (n == 1)
            step = d->stride[i];
        else if (d->stride[i] != step * n)
            return 0;
        n *= d->shape[i];
    }
    return step;
}

bool desc_same_shape(const struct ckpt_desc *a, const struct ckpt_desc *b)
{
    return a->ndim == b->ndim &&
           (a->ndim <= 0 || !memcmp(a->shape, b->shape, sizeof(int64_t) * (size_t)a->ndim));
}

void shape_format(char *dst, size_t size, int ndim, const int64_t *shape)
{
    size_t n = (size_t)snprintf(dst, size, "[");
    for (int i = 0; i < ndim && n < size; i++)
        n += (size_t)snprintf(dst + n, size - n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (n < size)
        snprintf(dst + n, size - n, "]");
}

void desc_format(char *dst, size_t size, const struct ckpt_desc *d)
{
    if (d->ndim < 0) {
        snprintf(dst, size, "none");
        return;
    }
    size_t n = (size_t)snprintf(dst, size, "%s ", dtype_name(d->dtype));
    if (n < size)
        shape_format(dst + n, size - n, d->ndim, d->shape);
}

static int compare_reals(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median_of(double *values, int32_t n)
{
    qsort(values, (size_t)n, sizeof *values, compare_reals);
    return values[n / 2];
}

/* A value is not finite if all bits of its exponent are set.  Blocks have a constant length, so
 * that compilers vectorize the loop over one. */
#define FINITE_BLOCK 1024
#define FINITE_LOOP(n, is_odd)                                                                     \
    do {                                                                                           \
        int64_t at = 0;                                                                            \
        for (; at + FINITE_BLOCK <= (n); at += FINITE_BLOCK) {                                     \
            uint32_t bad = 0;                                                                      \
            for (int i = 0; i < FINITE_BLOCK; i++)                                                 \
                bad |= is_odd(x[at + i]);                                                          \
            if (bad)                                                                               \
                return false;                                                                      \
        }                                                                                          \
        for (; at < (n); at++)                                                                     \
            if (is_odd(x[at]))                                                                     \
                return false;                                                                      \
        return true;                                                                               \
    } while (0)

CKPT_CLONES static bool reals_are_finite(const float *x, int64_t n)
{
#define REAL_IS_ODD(v) ((float_bits(v) & 0x7f800000) == 0x7f800000)
    FINITE_LOOP(n, REAL_IS_ODD);
}

CKPT_CLONES static bool halves_are_finite(const uint16_t *x, int64_t n)
{
#define HALF_IS_ODD(v) (((v)&0x7f80) == 0x7f80)
    FINITE_LOOP(n, HALF_IS_ODD);
}

CKPT_CLONES static bool bytes_are_finite(const uint8_t *x, int64_t n, unsigned odd)
{
#define BYTE_IS_ODD(v) (((v)&0x7f) >= odd)
    FINITE_LOOP(n, BYTE_IS_ODD);
}

bool floats_are_finite(const float *x, int64_t n)
{
    return reals_are_finite(x, n);
}

bool values_are_finite(const void *x, enum ckpt_dtype dtype, int64_t n)
{
    switch (dtype) {
    case CKPT_F32:
        return floats_are_finite(x, n);
    case CKPT_BF16:
        return halves_are_finite(x, n);
    case CKPT_F8E4M3:
        return bytes_are_finite(x, n, 0x7f);
    case CKPT_F8E5M2:
        return bytes_are_finite(x, n, 0x7c);
    default:
        return true;
    }
}

/* The number of continuation bytes that a first byte of UTF-8 requires, or -1. */
static int utf8_tail(unsigned char first)
{
    if (first < 0x80)
        return 0;
    if (first < 0xc2 || first > 0xf4) /* a continuation byte, an overlong form, beyond U+10FFFF */
        return -1;
    return first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
}

/* The second byte shows surrogates and overlong forms of three and four bytes. */
static bool utf8_second_fits(unsigned char first, unsigned char second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second < 0xa0;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second < 0x90;
    default:
        return true;
    }
}

int text_close(FILE *f, char **text)
{
    bool failed = ferror(f);
    failed |= fclose(f) != 0;
    if (failed) {
        free(*text);
        *text = NULL;
    }
    return *text ? 0 : CKPT_ENOMEM;
}

bool text_is_utf8(const char *text)
{
    for (const unsigned char *s = (const unsigned char *)text; *s; s++) {
        unsigned char first = *s;
        int tail = utf8_tail(first);
        if (tail < 0 || (tail && !utf8_second_fits(first, s[1])))
            return false;
        for (; tail > 0; tail--) {
            if ((*++s & 0xc0) != 0x80)
                return false;
        }
    }
    return true;
}

uint32_t handle_owner(void)
{
    static atomic_uint last;
    uint32_t owner;

    do
        owner = atomic_fetch_add(&last, 1) + 1;
    while (!owner);
    return owner;
}
