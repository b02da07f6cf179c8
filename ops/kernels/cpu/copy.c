/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: copy and pad, without conversion.  If both sides are dense along the same axis, rows are
 * copied whole.  Otherwise blocks of SIDE x SIDE are transposed in a small buffer, so that both
 * sides access whole cache lines.
 */
#include "kernels.h"
#include "loops.h"
#include "map.h"

#define SIDE 64   /* of a transposed block */
#define RUN  8192 /* elements per task when copying rows */

/* transpose<bytes>: a block of n x m elements; row<bytes>: n elements of a row. */
#define COPY(bytes, type)                                                                          \
    static void transpose##bytes(type *dst, int64_t dst_step, const type *src, int64_t src_step,   \
                                 int64_t n, int64_t m)                                             \
    {                                                                                              \
        type block[SIDE][SIDE];                                                                    \
        for (int64_t j = 0; j < m; j++)                                                            \
            for (int64_t i = 0; i < n; i++)                                                        \
                block[i][j] = src[j * src_step + i];                                               \
        for (int64_t i = 0; i < n; i++)                                                            \
            memcpy(dst + i * dst_step, block[i], (size_t)m * sizeof *dst);                         \
    }                                                                                              \
    static void row##bytes(type *dst, int64_t dst_step, const type *src, int64_t src_step,         \
                           int64_t n)                                                              \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++)                                                            \
            dst[i * dst_step] = src[i * src_step];                                                 \
    }
COPY(4, uint32_t)
COPY(2, uint16_t)

/* Copies n elements of one row with any strides. */
static void copy_row(char *dst, int64_t dst_step, const char *src, int64_t src_step, int64_t n,
                     size_t size)
{
    if (dst_step == 1 && src_step == 1)
        memcpy(dst, src, (size_t)n * size);
    else if (size == 4)
        row4((uint32_t *)dst, dst_step, (const uint32_t *)src, src_step, n);
    else
        row2((uint16_t *)dst, dst_step, (const uint16_t *)src, src_step, n);
}

/* Copies columns [from, from + n) of rows [row, end), in runs along the next outer axis. */
static void copy_band(const struct loops *l, char *dst, const char *src, size_t size, int64_t row,
                      int64_t end, int64_t from, int64_t n)
{
    int last = l->ndim - 1;
    int64_t width = last > 0 ? l->shape[last - 1] : 1, at[2], run;
    int64_t step[2] = {0};
    for (int k = 0; k < 2 && last > 0; k++)
        step[k] = l->stride[k][last - 1];
    for (; row < end; row += run) {
        run = min_i64(width - row % width, end - row);
        loops_seek(l, last, row, at);
        at[0] += from * l->stride[0][last];
        at[1] += from * l->stride[1][last];
        for (int64_t i = 0; i < run; i++)
            copy_row(dst + (at[0] + i * step[0]) * (int64_t)size, l->stride[0][last],
                     src + (at[1] + i * step[1]) * (int64_t)size, l->stride[1][last], n, size);
    }
}

/* Splits the last axis into runs; a task takes several short rows. */
static void copy_rows(const struct loops *l, char *dst, const char *src, size_t size)
{
    int64_t cols = l->shape[l->ndim - 1], rows = loops_count(l, l->ndim - 1);
    int64_t cuts = (cols + RUN - 1) / RUN, together = max_i64(1, RUN / cols);
    int64_t tasks = cuts * ((rows + together - 1) / together);
#pragma omp parallel for schedule(static) if (loops_parallel(rows * cols))
    for (int64_t i = 0; i < tasks; i++) {
        int64_t from = i % cuts * RUN, row = i / cuts * together;
        copy_band(l, dst, src, size, row, min_i64(rows, row + together), from,
                  min_i64(RUN, cols - from));
    }
}

/* For dst dense along the last axis and src along the one before it.  Consecutive tasks follow the
 * rows of src. */
static void copy_transposed(const struct loops *l, char *dst, const char *src, size_t size)
{
    int p = l->ndim - 2, q = l->ndim - 1;
    int64_t down = (l->shape[p] + SIDE - 1) / SIDE, across = (l->shape[q] + SIDE - 1) / SIDE;
    int64_t tasks = loops_count(l, p) * down * across;
#pragma omp parallel for schedule(static) if (loops_parallel(tasks * SIDE * SIDE))
    for (int64_t task = 0; task < tasks; task++) {
        int64_t i = task % down * SIDE, j = task / down % across * SIDE, at[2];
        int64_t n = min_i64(SIDE, l->shape[p] - i), m = min_i64(SIDE, l->shape[q] - j);
        loops_seek(l, p, task / across / down, at);
        char *to = dst + (at[0] + i * l->stride[0][p] + j) * (int64_t)size;
        const char *from = src + (at[1] + i + j * l->stride[1][q]) * (int64_t)size;
        if (size == 4)
            transpose4((uint32_t *)to, l->stride[0][p], (const uint32_t *)from, l->stride[1][q], n,
                       m);
        else
            transpose2((uint16_t *)to, l->stride[0][p], (const uint16_t *)from, l->stride[1][q], n,
                       m);
    }
}

static void copy_view(const struct ckpt_view *y, const struct ckpt_view *x)
{
    struct loops l;
    loops_init(&l, 2, (const struct ckpt_desc *[]){&y->desc, &x->desc});
    int axis = loops_dense_axis(&l);
    size_t size = (size_t)ckpt_dtype_size(y->desc.dtype);
    if (axis < 0 || axis == l.ndim - 1 || l.stride[0][l.ndim - 1] != 1) {
        copy_rows(&l, y->data, x->data, size);
        return;
    }
    loops_move_axis(&l, axis);
    copy_transposed(&l, y->data, x->data, size);
}

int cpu_copy(const struct ckpt_kernel_args *a)
{
    copy_view(&a->out[0], &a->in[0]);
    return CKPT_OK;
}

/* The part [begin, end) of an axis. */
static struct ckpt_view band(const struct ckpt_view *v, int64_t axis, int64_t begin, int64_t end)
{
    struct ckpt_view part = *v;
    int64_t move = begin * v->desc.stride[axis] * ckpt_dtype_size(v->desc.dtype);
    part.data = (char *)v->data + move;
    part.desc.shape[axis] = end - begin;
    return part;
}

static void map_zero(float *y, const float *const *x, int64_t n, const void *ctx)
{
    (void)x;
    (void)ctx;
    memset(y, 0, (size_t)n * sizeof *y);
}

int cpu_pad(const struct ckpt_kernel_args *a)
{
    const struct pad_attr *attr = a->attr;
    const struct ckpt_view *y = &a->out[0];
    int64_t end = attr->begin + a->in[0].desc.shape[attr->axis];
    struct ckpt_view before = band(y, attr->axis, 0, attr->begin);
    struct ckpt_view middle = band(y, attr->axis, attr->begin, end);
    struct ckpt_view after = band(y, attr->axis, end, attr->size);
    cpu_map(&before, 0, NULL, map_zero, NULL);
    copy_view(&middle, &a->in[0]);
    cpu_map(&after, 0, NULL, map_zero, NULL);
    return CKPT_OK;
}
