/* Growing arrays, the hash, the clock, and tensor descriptions. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base.h"

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

int64_t ckpt_dtype_size(enum ckpt_dtype dtype)
{
    return dtype == CKPT_BF16 ? 2 : 4;
}

void desc_dense(struct ckpt_desc *d)
{
    int64_t stride = 1;
    for (int i = d->ndim - 1; i >= 0; i--) {
        d->stride[i] = stride;
        stride *= d->shape[i];
    }
}

int64_t desc_numel(const struct ckpt_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim; i++)
        n *= d->shape[i];
    return n;
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

bool desc_same_shape(const struct ckpt_desc *a, const struct ckpt_desc *b)
{
    return a->ndim == b->ndim &&
           (a->ndim <= 0 || !memcmp(a->shape, b->shape, sizeof(int64_t) * (size_t)a->ndim));
}

void desc_format(char *dst, size_t size, const struct ckpt_desc *d)
{
    static const char *const names[] = {"fp32", "bf16", "i32"};
    if (d->ndim < 0) {
        snprintf(dst, size, "none");
        return;
    }
    size_t n = (size_t)snprintf(dst, size, "%s [", names[d->dtype]);
    for (int i = 0; i < d->ndim && n < size; i++)
        n += (size_t)snprintf(dst + n, size - n, "%s%lld", i ? ", " : "", (long long)d->shape[i]);
    if (n < size)
        snprintf(dst + n, size - n, "]");
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
