/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel: argsort of rows, by insertion sort where they are short, else by radix sort with four
 * passes over bytes. */
#include "core/bits.h"
#include "kernels.h"
#include "rows.h"
#include "argsort.h"

enum { INSERTION = 48, DIGITS = 256 };

/* Pairs are key << 32 | index: all are distinct, and equal keys are sorted by index. */
static void insert_all(uint64_t *pair, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        uint64_t p = pair[i];
        int64_t j = i;
        for (; j > 0 && pair[j - 1] > p; j--)
            pair[j] = pair[j - 1];
        pair[j] = p;
    }
}

/* Stable passes from the lowest byte of the key to the highest.  After an even number of passes the
 * result is in `pair`. */
static void sort_bytes(uint64_t *pair, uint64_t *other, int64_t n)
{
    for (int shift = 32; shift < 64; shift += 8) {
        int64_t next[DIGITS + 1] = {0};
        for (int64_t i = 0; i < n; i++)
            next[(pair[i] >> shift & 255) + 1]++;
        for (int d = 1; d < DIGITS; d++)
            next[d] += next[d - 1];
        for (int64_t i = 0; i < n; i++)
            other[next[pair[i] >> shift & 255]++] = pair[i];
        uint64_t *swap = pair;
        pair = other;
        other = swap;
    }
}

static void sort_row(int32_t *index, const void *x, int64_t at, int64_t n, bool half,
                     bool descending, uint64_t *pair)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = float_bits(row_get(x, at + i, half));
        pair[i] = (uint64_t)sort_key(bits, descending) << 32 | (uint64_t)i;
    }
    if (n <= INSERTION)
        insert_all(pair, n);
    else
        sort_bytes(pair, pair + n, n);
    for (int64_t i = 0; i < n; i++)
        index[i] = (int32_t)pair[i];
}

int cpu_argsort(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *x = &a->in[0].desc;
    const bool descending = ((const struct sort_attr *)a->attr)->descending;
    const int64_t n = x->shape[x->ndim - 1], rows = desc_numel(x) / n;
    const int64_t slots = min_i64(rows, SORT_SLOTS);
    int32_t *index = a->out[0].data;
    uint64_t *pairs = a->workspace;
#pragma omp parallel for schedule(static) if (rows * n > ROWS_CHUNK)
    for (int64_t s = 0; s < slots; s++)
        for (int64_t r = s * rows / slots; r < (s + 1) * rows / slots; r++)
            sort_row(index + r * n, a->in[0].data, r * n, n, view_half(&a->in[0]), descending,
                     pairs + s * 2 * n);
    return CKPT_OK;
}
