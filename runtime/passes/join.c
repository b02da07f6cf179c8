/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining of programs, shared by fusion and pairs.  The nodes of several ops become one program
 * that replaces one of these ops.  The others become empty positions on the tape (expr_fused: no
 * operands, no kernel), which later passes step over.
 */
#include <stdlib.h>
#include <string.h>
#include "expr/expr.h"
#include "tape/tape.h"

/* An empty position: the op is now part of another one. */
static int no_shape(struct ckpt_call *call)
{
    return ckpt_call_fail(call, "it cannot be recorded");
}

const struct ckpt_op_def expr_fused = {
    .size = sizeof(struct ckpt_op_def),
    .name = "fused",
    .flags = CKPT_OP_VIEW,
    .shape = no_shape,
};

static int operand_node(struct expr_joined *j, int32_t tensor)
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

int expr_append(struct expr_joined *j, const ckpt_tape *t, const struct op *o, const struct expr *e,
                int32_t replaced, int value)
{
    int to[EXPR_NODES];
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

void expr_join_lines(const struct op *a, struct op *b)
{
    if (!a->file || !b->file || strcmp(a->file, b->file))
        return;
    int32_t first = a->first_line ? a->first_line : a->line;
    if (!b->first_line || first < b->first_line)
        b->first_line = first;
    if (a->line > b->line)
        b->line = a->line;
}

int expr_replace_op(ckpt_tape *t, int32_t i, const struct expr_joined *j, const int32_t *out,
                    int n_out)
{
    return tape_replace_op(t, i, &op_expr, &j->e, expr_size(&j->e), j->e.n_in, j->in, n_out, out);
}

void expr_remove_op(ckpt_tape *t, int32_t i)
{
    struct op *o = &t->ops.data[i];
    for (int k = 0; k < o->n_out; k++) {
        const int32_t x = op_out(t, o, k);
        if (x > 0 && t->tensors.data[x].op == i)
            t->tensors.data[x].op = -1;
    }
    free(o->attr);
    o->attr = NULL;
    o->attr_size = 0;
    o->def = &expr_fused;
    o->n_in = o->n_out = 0;
}
