/* SPDX-License-Identifier: Apache-2.0 */
/* Moves ops of a complete tape: see ops_reorder(). */
#include <stdlib.h>
#include "ops.h"
#include "tape/tape.h"

struct keyed_op {
    int64_t key;
    int32_t op;
};

static int by_key(const void *a, const void *b)
{
    const struct keyed_op *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->op > y->op) - (x->op < y->op);
}

int ops_reorder(ckpt_tape *t, const int64_t *key)
{
    const int32_t n = t->n_ops;
    struct keyed_op *sorted = malloc((size_t)n * sizeof *sorted);
    int32_t *order = malloc((size_t)n * sizeof *order);
    if (sorted && order) {
        for (int32_t i = 0; i < n; i++)
            sorted[i] = (struct keyed_op){key[i], i};
        qsort(sorted, (size_t)n, sizeof *sorted, by_key);
        for (int32_t i = 0; i < n; i++)
            order[i] = sorted[i].op;
        tape_reorder(t, order);
    } else {
        tape_fail(t, CKPT_ENOMEM, "no memory to order %d ops", n);
    }
    free(sorted);
    free(order);
    return t->error.code;
}
