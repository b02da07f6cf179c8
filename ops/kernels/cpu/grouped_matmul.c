/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: products of row groups, one group after the other.  A product is divided by its shape
 * alone, so neither threads nor other groups change its bits. */
#include "cpu.h"
#include "gemm.h"
#include "grouped_matmul.h"
#include "kernels.h"
#include "report.h"
#include "shapes/linear.h"

/* Group g, which begins with row `begin`; returns its end. */
static int64_t end_of(const struct ckpt_kernel_args *a, int64_t g, int64_t begin)
{
    const int64_t rows = a->in[0].desc.shape[0];
    const int32_t offset = ((const int32_t *)a->in[2].data)[g];

    if (offset < 0 || offset > rows)
        report_index(a, g, offset, rows + 1);
    return grouped_end(begin, offset, rows);
}

static const void *row_of(const struct ckpt_view *x, int64_t row)
{
    return (const char *)x->data + row * x->desc.shape[1] * ckpt_dtype_size(x->desc.dtype);
}

int cpu_grouped_matmul(const struct ckpt_kernel_args *a)
{
    const struct grouped_attr *attr = a->attr;
    const struct ckpt_desc *w = &a->in[1].desc, *y = &a->out[0].desc;
    const int64_t matrix = w->shape[1] * w->shape[2] * ckpt_dtype_size(w->dtype);
    const int64_t row = y->shape[1] * ckpt_dtype_size(y->dtype);
    char *to = a->out[0].data;
    int64_t begin = 0;

    for (int64_t g = 0, end; g < w->shape[0]; g++, begin = end) {
        end = end_of(a, g, begin);
        struct gemm p = grouped_gemm(&a->in[0].desc, y, attr->transpose_w);
        p.rows = end - begin;
        p.a.data = row_of(&a->in[0], begin);
        p.b.data = (const char *)a->in[1].data + g * matrix;
        p.c = to + begin * row;
        if (p.rows)
            gemm_run(&p, a->workspace);
    }
    memset(to + begin * row, 0, (size_t)((y->shape[0] - begin) * row));
    return CKPT_OK;
}

int cpu_grouped_matmul_dw(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *dw = &a->out[0].desc;
    const int64_t matrix = dw->shape[1] * dw->shape[2] * ckpt_dtype_size(dw->dtype);
    int64_t begin = 0;

    for (int64_t g = 0, end; g < dw->shape[0]; g++, begin = end) {
        end = end_of(a, g, begin);
        struct gemm p = linear_dw_gemm(&a->in[0].desc, &a->in[1].desc, dw->dtype);
        p.inner = end - begin;
        p.a.data = row_of(&a->in[0], begin);
        p.b.data = row_of(&a->in[1], begin);
        p.c = (char *)a->out[0].data + g * matrix;
        p.accumulate = a->accumulate;
        if (p.inner)
            gemm_run(&p, a->workspace);
        else if (!a->accumulate)
            memset(p.c, 0, (size_t)matrix);
    }
    return CKPT_OK;
}
