/* SPDX-License-Identifier: Apache-2.0 */
/* Batched products: every transposition, broadcast leading axes, views; against the definition. */
#include "harness.h"

#include <string.h>

/* Row-major place of (batch index of the result, row, column) in an operand. */
static double element(const struct array *x, const struct array *y, int64_t batch, int64_t row,
                      int64_t col, bool transpose)
{
    struct array like = *y, own = *x;
    int64_t rows = x->shape[x->ndim - 2], cols = x->shape[x->ndim - 1];
    like.ndim -= 2;
    own.ndim -= 2;
    int64_t at = own.ndim ? array_broadcast(&like, &own, batch) : 0;
    return x->x[(at * rows + (transpose ? col : row)) * cols + (transpose ? row : col)];
}

static void ref_matmul(const struct array *in, struct array *out, const struct op_attr *a)
{
    bool ta = a->begin & 1, tb = a->begin & 2;
    const struct array *x = &in[0], *w = &in[1];
    int64_t shape[CKPT_MAX_DIMS], inner = x->shape[x->ndim - (ta ? 2 : 1)];
    int ndim = x->ndim > w->ndim ? x->ndim : w->ndim;
    for (int i = 0; i < ndim - 2; i++) {
        int p = i - (ndim - x->ndim), q = i - (ndim - w->ndim);
        int64_t m = p < 0 ? 1 : x->shape[p], n = q < 0 ? 1 : w->shape[q];
        shape[i] = m == 1 ? n : m;
    }
    int64_t rows = shape[ndim - 2] = x->shape[x->ndim - (ta ? 1 : 2)];
    int64_t cols = shape[ndim - 1] = w->shape[w->ndim - (tb ? 2 : 1)];
    array_init(out, ndim, shape);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t batch = i / (rows * cols), row = i / cols % rows, col = i % cols;
        for (int64_t k = 0; k < inner; k++)
            out->x[i] += element(x, out, batch, row, k, ta) * element(w, out, batch, k, col, tb);
    }
}

static void add_operand(struct op_case *c, struct rng *r, int leading, const int64_t *batch,
                        int64_t rows, int64_t cols)
{
    int64_t shape[CKPT_MAX_DIMS];
    int skip = rng_range(r, 0, 3) == 0 ? leading : 0, n = 0;
    for (int i = skip; i < leading; i++)
        shape[n++] = rng_range(r, 0, 2) == 0 ? 1 : batch[i];
    shape[n++] = rows;
    shape[n++] = cols;
    case_add(c, r, ROLE_PARAM, n, shape);
}

static void draw_matmul(struct op_case *c, struct rng *r, int trial)
{
    int64_t size[3], batch[3];
    int leading = draw_rank(r, 0, 2);
    draw_shape(r, trial < TRIAL_LARGE ? trial : 1, 3, 7, size);
    draw_shape(r, trial < TRIAL_LARGE ? trial : 1, leading, 4, batch);
    if (trial >= TRIAL_LARGE) { /* several tiles */
        leading = 1;
        batch[0] = 3;
        memcpy(size, trial == TRIAL_LARGE ? (int64_t[]){70, 33, 91} : (int64_t[]){64, 96, 32},
               sizeof size);
    }
    c->attr.begin = trial % 4;
    if (trial % 4 & 1)
        add_operand(c, r, leading, batch, size[1], size[0]);
    else
        add_operand(c, r, leading, batch, size[0], size[1]);
    if (trial % 4 & 2)
        add_operand(c, r, leading, batch, size[2], size[1]);
    else
        add_operand(c, r, leading, batch, size[1], size[2]);
}

static ckpt_tensor record_matmul(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_matmul(t, in[0], in[1], c->attr.begin & 1, c->attr.begin & 2);
}

static const struct op_row rows[] = {
    {"matmul", draw_matmul, record_matmul, ref_matmul},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}
