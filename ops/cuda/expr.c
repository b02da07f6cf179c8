/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions on the device: what a kernel walks, and which kernel runs. */
#include "cuda/expr_launch.h"
#include "cuda/kernels.h"

void expr_loops(const struct ckpt_kernel_args *a, struct loops *l)
{
    const struct expr *e = a->attr;
    struct ckpt_desc leaf[LOOPS_OPERANDS];
    const struct ckpt_desc *desc[LOOPS_OPERANDS] = {&a->out[0].desc};
    int n = a->n_in + 1;
    for (int k = 0; k < a->n_in; k++)
        desc[k + 1] = &a->in[k].desc;
    for (int i = 0; i < e->n_nodes && n < LOOPS_OPERANDS; i++) {
        const struct expr_node *node = &e->node[i];
        if (node->code != EXPR_INDEX && node->code != EXPR_UNIFORM)
            continue;
        leaf[n] = a->out[0].desc;
        desc_dense(&leaf[n]);
        for (int axis = 0; axis < leaf[n].ndim && node->code == EXPR_INDEX; axis++)
            leaf[n].stride[axis] = axis == node->arg[0];
        desc[n] = &leaf[n];
        n++;
    }
    loops_init(l, n, desc);
}

int cuda_expr(const struct ckpt_kernel_args *a)
{
    return expr_interpret(a);
}
