/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the outer axes of several operands together; see rows.h. */
#include <string.h>
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
    return r->n++; /* rows_begin has cleared it */
}

static void swap_axes(struct rows *r, int i, int j)
{
    int64_t s = r->size[i];
    r->size[i] = r->size[j];
    r->size[j] = s;
    for (int k = 0; k < r->n; k++) {
        s = r->step[k][i];
        r->step[k][i] = r->step[k][j];
        r->step[k][j] = s;
    }
}

static void drop_axis(struct rows *r, int i)
{
    for (; i + 1 < r->ndim; i++)
        swap_axes(r, i, i + 1);
    r->ndim--;
}

/* Whether axis i and the next one can be walked as one. */
static bool mergeable(const struct rows *r, int i)
{
    for (int k = 0; k < r->n; k++)
        if (r->step[k][i] != r->step[k][i + 1] * r->size[i + 1])
            return false;
    return true;
}

/* Whether axis j belongs outside axis i. */
static bool outer(const struct rows *r, int j, int i, int still)
{
    if (still >= 0) {
        bool moves_i = r->step[still][i] != 0, moves_j = r->step[still][j] != 0;
        if (moves_i != moves_j)
            return moves_j;
    }
    return r->step[0][j] > r->step[0][i];
}

static void sort_and_merge(struct rows *r, int still)
{
    for (int i = r->ndim - 1; i >= 0; i--)
        if (r->size[i] == 1)
            drop_axis(r, i);
    for (int i = 1; i < r->ndim; i++)
        for (int j = i; j > 0 && outer(r, j, j - 1, still); j--)
            swap_axes(r, j, j - 1);
    for (int i = r->ndim - 2; i >= 0; i--) {
        if (!mergeable(r, i))
            continue;
        r->size[i + 1] *= r->size[i];
        drop_axis(r, i);
    }
    if (r->ndim == 0) {
        r->ndim = 1;
        r->size[0] = 1;
        for (int k = 0; k < r->n; k++)
            r->step[k][0] = 0;
    }
}

void rows_finish(struct rows *r)
{
    sort_and_merge(r, -1);
}

int64_t rows_finish_reduction(struct rows *r, int k)
{
    int64_t shared = 1;
    sort_and_merge(r, k);
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
