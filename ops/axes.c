/* SPDX-License-Identifier: Apache-2.0 */
/* Sorts and merges loop axes: see axes.h. */
#include "axes.h"

struct axes {
    int ndim, n, still;
    int64_t *size;
    int64_t (*step)[CKPT_MAX_DIMS];
};

static void copy_axis(struct axes *a, int to, int from)
{
    a->size[to] = a->size[from];
    for (int k = 0; k < a->n; k++)
        a->step[k][to] = a->step[k][from];
}

static void swap_axes(struct axes *a, int i, int j)
{
    int64_t s = a->size[i];
    a->size[i] = a->size[j];
    a->size[j] = s;
    for (int k = 0; k < a->n; k++) {
        s = a->step[k][i];
        a->step[k][i] = a->step[k][j];
        a->step[k][j] = s;
    }
}

static void drop_single(struct axes *a)
{
    int left = 0;
    for (int i = 0; i < a->ndim; i++)
        if (a->size[i] != 1)
            copy_axis(a, left++, i);
    a->ndim = left;
}

/* Whether axis j belongs outside axis i in the loop nest. */
static bool outer(const struct axes *a, int j, int i)
{
    if (a->still >= 0) {
        bool moves_i = a->step[a->still][i] != 0, moves_j = a->step[a->still][j] != 0;
        if (moves_i != moves_j)
            return moves_j;
    }
    return a->step[0][j] > a->step[0][i];
}

static void sort(struct axes *a)
{
    for (int i = 1; i < a->ndim; i++)
        for (int j = i; j > 0 && outer(a, j, j - 1); j--)
            swap_axes(a, j, j - 1);
}

/* Whether axis i and the next inner axis j can be iterated as one axis. */
static bool may_merge(const struct axes *a, int i, int j)
{
    for (int k = 0; k < a->n; k++)
        if (a->step[k][i] != a->step[k][j] * a->size[j])
            return false;
    return true;
}

static void merge(struct axes *a)
{
    int last = 0;
    for (int i = 1; i < a->ndim; i++) {
        int64_t size = a->size[i];
        if (may_merge(a, last, i))
            size *= a->size[last];
        else
            last++;
        copy_axis(a, last, i);
        a->size[last] = size;
    }
    a->ndim = last + 1;
}

int axes_simplify(int ndim, int64_t *size, int n, int64_t (*step)[CKPT_MAX_DIMS], int still)
{
    struct axes a = {ndim, n, still, size, step};
    drop_single(&a);
    if (a.ndim == 0) {
        a.ndim = 1;
        size[0] = 1;
        for (int k = 0; k < n; k++)
            step[k][0] = 0;
    }
    sort(&a);
    merge(&a);
    return a.ndim;
}
