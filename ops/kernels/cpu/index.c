/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookup kernels.  The adjoint of a row lookup first builds, for each position, the list of rows
 * that refer to it (a stable counting sort), then computes each sum separately.  The adjoint of
 * gather processes each lane in order.  So no sum depends on the threads.
 */
#include "cpu.h"
#include "index_shape.h"
#include "kernels.h"
#include "report.h"
#include "rows.h"

enum {
    COLUMNS = 256,
    BLOCK_ROWS = 64
}; /* block of a sum: columns processed together, rows summed before the next level */

static const int32_t *indices_of(const struct ckpt_kernel_args *a)
{
    return a->in[1].data;
}

/* Whether index i is valid for an axis of `size`; reports it if not. */
static inline bool is_valid(const struct ckpt_kernel_args *a, int64_t i, int64_t size)
{
    int32_t index = ((const int32_t *)a->in[1].data)[i];
    bool good = index >= 0 && index < size;
    if (!good)
        report_index(a, i, index, size);
    return good;
}

/* Copies the indexed element, or sets all bits, which is NaN, for an invalid index. */
static inline void copy_or_nan(char *to, const char *from, int64_t bytes, bool good)
{
    if (good)
        memcpy(to, from, (size_t)bytes);
    else
        memset(to, 0xff, (size_t)bytes);
}

int cpu_index_select(const struct ckpt_kernel_args *a)
{
    const struct index_attr *attr = a->attr;
    const struct ckpt_desc *x = &a->in[0].desc;
    const struct index_shape s = index_rows(x, &a->in[1].desc, attr->axis, x->shape[attr->axis], 1);
    const int32_t *index = indices_of(a);
    const int64_t row = s.inner * ckpt_dtype_size(x->dtype);
#pragma omp parallel for schedule(static) if (s.outer * s.n * s.inner > ROWS_CHUNK)
    for (int64_t r = 0; r < s.outer * s.n; r++) {
        int64_t from = r / s.n * s.size + index[r % s.n];
        copy_or_nan((char *)a->out[0].data + r * row, (const char *)a->in[0].data + from * row, row,
                    is_valid(a, r % s.n, s.size));
    }
    return CKPT_OK;
}

/* Builds the lists: list[start[k]] .. list[start[k + 1] - 1] are the rows with index k, in
 * order. */
static void list_places(const struct ckpt_kernel_args *a, const struct index_shape *s, int64_t skip,
                        int32_t *start, int32_t *list)
{
    const int32_t *index = indices_of(a);
    memset(start, 0, (size_t)(s->size + 2) * sizeof *start);
    for (int64_t i = 0; i < s->n; i++)
        if (is_valid(a, i, s->size) && index[i] != skip)
            start[index[i] + 2]++;
    for (int64_t k = 2; k < s->size + 2; k++)
        start[k] += start[k - 1];
    for (int64_t i = 0; i < s->n; i++)
        if (index[i] >= 0 && index[i] < s->size && index[i] != skip)
            list[start[index[i] + 1]++] = (int32_t)i;
}

/* sum[0 .. c - 1] += elements from `at` on of the listed rows. */
ROWS_INLINE void add_listed(float *restrict sum, const void *restrict x, const int32_t *list,
                            int64_t count, int64_t at, int64_t inner, int64_t c, bool half)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t from = list[i] * inner + at;
#pragma omp simd
        for (int64_t j = 0; j < c; j++)
            sum[j] += row_get(x, from + j, half);
    }
}

CKPT_CLONES static void add_listed_leaf(float *sum, const void *x, const int32_t *list,
                                        int64_t count, int64_t at, int64_t inner, int64_t c,
                                        bool half)
{
    WITH_FLAG(half, add_listed, sum, x, list, count, at, inner, c);
}

/* The sum of one position.  Long lists are summed in blocks. */
static void sum_place(float *to, const void *x, const int32_t *list, int64_t count, int64_t inner,
                      bool half, bool accumulate)
{
    for (int64_t at = 0; at < inner; at += COLUMNS) {
        float total[COLUMNS] = {0}, block[COLUMNS];
        int64_t c = min_i64(COLUMNS, inner - at);
        add_listed_leaf(total, x, list, min_i64(count, BLOCK_ROWS), at, inner, c, half);
        for (int64_t i = BLOCK_ROWS; i < count; i += BLOCK_ROWS) {
            memset(block, 0, sizeof block);
            add_listed_leaf(block, x, list + i, min_i64(count - i, BLOCK_ROWS), at, inner, c, half);
            for (int64_t j = 0; j < c; j++)
                total[j] += block[j];
        }
        for (int64_t j = 0; j < c; j++)
            to[at + j] = accumulate ? to[at + j] + total[j] : total[j];
    }
}

int cpu_index_add(const struct ckpt_kernel_args *a)
{
    const struct index_attr *attr = a->attr;
    const struct ckpt_view *x = &a->in[0];
    const struct ckpt_desc *index = &a->in[1].desc;
    const struct index_shape s = index_rows(&x->desc, index, attr->axis, attr->size, index->ndim);
    const int64_t outer_step = s.n * s.inner * ckpt_dtype_size(x->desc.dtype);
    int32_t *start = a->workspace, *list = start + s.size + 2;
    float *y = a->out[0].data;
    list_places(a, &s, attr->skip, start, list);
#pragma omp parallel for schedule(static, 64) if (s.outer * (s.size + s.n) * s.inner > ROWS_CHUNK)
    for (int64_t r = 0; r < s.outer * s.size; r++) {
        int64_t o = r / s.size, k = r % s.size, count = start[k + 1] - start[k];
        if (count || !a->accumulate)
            sum_place(y + r * s.inner, (const char *)x->data + o * outer_step, list + start[k],
                      count, s.inner, view_half(x), a->accumulate);
    }
    return CKPT_OK;
}

int cpu_gather(const struct ckpt_kernel_args *a)
{
    const struct index_attr *attr = a->attr;
    const struct ckpt_desc *x = &a->in[0].desc, *y = &a->out[0].desc;
    const struct index_shape s = index_lanes(y, attr->axis, x->shape[attr->axis]);
    const int32_t *index = indices_of(a);
    const int64_t size = ckpt_dtype_size(x->dtype), n = desc_numel(y);
#pragma omp parallel for schedule(static) if (n > ROWS_CHUNK)
    for (int64_t i = 0; i < n; i++) {
        int64_t o = i / (s.n * s.inner);
        int64_t from = (o * s.size + index[i]) * s.inner + i % s.inner;
        copy_or_nan((char *)a->out[0].data + i * size, (const char *)a->in[0].data + from * size,
                    size, is_valid(a, i, s.size));
    }
    return CKPT_OK;
}

/* Each lane writes only its own elements. */
int cpu_scatter(const struct ckpt_kernel_args *a)
{
    const struct index_attr *attr = a->attr;
    const struct index_shape s = index_lanes(&a->in[1].desc, attr->axis, attr->size);
    const int32_t *index = indices_of(a);
    const bool half = view_half(&a->in[0]);
    float *y = a->out[0].data;
    if (!a->accumulate)
        memset(y, 0, (size_t)desc_numel(&a->out[0].desc) * sizeof *y);
#pragma omp parallel for schedule(static) if (s.outer * s.n * s.inner > ROWS_CHUNK)
    for (int64_t lane = 0; lane < s.outer * s.inner; lane++) {
        int64_t o = lane / s.inner, c = lane % s.inner;
        for (int64_t i = 0; i < s.n; i++) {
            int64_t from = (o * s.n + i) * s.inner + c;
            if (is_valid(a, from, s.size))
                y[(o * s.size + index[from]) * s.inner + c] += row_get(a->in[0].data, from, half);
        }
    }
    return CKPT_OK;
}
