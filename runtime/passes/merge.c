/* SPDX-License-Identifier: Apache-2.0 */
/* Several programs become one: see merge.h. */
#include "passes/merge.h"

static int operand_node(struct expr_merged *j, int32_t tensor)
{
    int k = 0;
    while (k < j->e.n_in && j->in[k] != tensor)
        k++;
    if (k == EXPR_INPUTS) {
        j->fits = false;
        return 0;
    }
    if (k == j->e.n_in) {
        j->in[k] = tensor;
        j->e.operand[j->e.n_in++] = EXPR_ANY;
    }
    return expr_node(&j->e, EXPR_INPUT, k, 0, 0, 0.f, 0.f);
}

int expr_append(struct expr_merged *j, const ckpt_tape *t, const struct op *o, const struct expr *e,
                int32_t replaced, int value)
{
    int to[EXPR_NODES];
    j->e.exact |= e->exact;
    for (int i = 0; i < e->n_nodes && j->fits; i++) {
        const struct expr_node *n = &e->node[i];
        int arguments = expr_arguments(n->code);
        if (n->code == EXPR_INPUT) {
            int32_t x = op_in(t, o, n->arg[0]);
            to[i] = x == replaced ? value : operand_node(j, x);
            continue;
        }
        to[i] = expr_node(&j->e, n->code, arguments > 0 ? to[n->arg[0]] : n->arg[0],
                          arguments > 1 ? to[n->arg[1]] : 0, arguments > 2 ? to[n->arg[2]] : 0,
                          n->p, n->q);
    }
    return j->fits ? to[e->n_nodes - 1] : 0;
}

int expr_replace_op(ckpt_tape *t, int32_t i, const struct expr_merged *j, const int32_t *out,
                    int n_out)
{
    return tape_replace_op(t, i, &op_expr, &j->e, expr_size(&j->e), j->e.n_in, j->in, n_out, out);
}
