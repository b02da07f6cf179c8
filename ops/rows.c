/* SPDX-License-Identifier: Apache-2.0 */
/* Iteration over rows of several operands: see rows.h. */
#include <string.h>
#include "axes.h"
#include "rows.h"

void rows_begin(struct rows *r, const struct ckpt_view *x)
{
    memset(r, 0, sizeof *r);
    r->ndim = x->desc.ndim - 1;
    r->count = 1;
    for (int i = 0; i < r->ndim; i++) {
        r->size[i] = x->desc.shape[i];
        r->count *= r->size[i];
    }
    rows_operand(r, x);
}

int rows_operand(struct rows *r, const struct ckpt_view *v)
{
    int k = r->n++;
    r->base[k] = v->data;
    for (int i = 0; i < r->ndim; i++)
        r->step[k][i] =
            v->desc.shape[i] == 1 ? 0 : v->desc.stride[i] * ckpt_dtype_size(v->desc.dtype);
    return k;
}

int rows_absent(struct rows *r)
{
    return r->n++; /* rows_begin has zeroed its base and steps */
}

void rows_finish(struct rows *r)
{
    r->ndim = axes_simplify(r->ndim, r->size, r->n, r->step, -1);
}

int64_t rows_finish_reduction(struct rows *r, int k)
{
    int64_t shared = 1;
    r->ndim = axes_simplify(r->ndim, r->size, r->n, r->step, k);
    for (int i = r->ndim - 1; i >= 0 && r->step[k][i] == 0; i--)
        shared *= r->size[i];
    return shared;
}

void rows_run(const struct rows *r, int64_t row, int64_t end, struct row_run *run)
{
    int last = r->ndim - 1;
    int64_t rest = row;
    for (int k = 0; k < r->n; k++) {
        run->at[k] = r->base[k];
        run->step[k] = r->step[k][last];
    }
    for (int i = last; i >= 0; i--) {
        int64_t index = rest % r->size[i];
        rest /= r->size[i];
        for (int k = 0; k < r->n; k++)
            run->at[k] += index * r->step[k][i];
    }
    run->n = min_i64(end - row, r->size[last] - row % r->size[last]);
}
