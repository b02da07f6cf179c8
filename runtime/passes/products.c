/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns of epilogue fusion, in order: see epilogue.c. */
#include "passes/epilogue.h"

/* Applies the pattern that matches op i, if it belongs to the given pass. */
static void epilogue_op(struct epilogues *j, int32_t i, enum phase phase)
{
    const struct op *o = &j->t->ops.data[i];
    const bool gelu_dx = o->def == &op_gelu_dx;
    if (o->phase != phase)
        return;
    if (phase == PHASE_BACKWARD && gelu_dx && j->t->env.matmul == MATMUL_FP8)
        epilogue_gelu_fp8_dx(j, i);
    if (j->t->env.matmul)
        return;
    if (phase == PHASE_BACKWARD && gelu_dx)
        epilogue_gelu_dx(j, i);
    else if (phase == PHASE_BACKWARD && o->def == &op_silu_dx)
        epilogue_gate_dx(j, i);
    else if (phase == PHASE_FORWARD && o->def == &op_gelu)
        epilogue_gelu(j, i);
    else if (phase == PHASE_FORWARD && o->def == &op_silu)
        epilogue_gate(j, i);
}

int pass_products(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    struct epilogues j;
    if (!epilogue_open(&j, t))
        tape_fail(t, CKPT_ENOMEM, "no memory to fuse the products of a tape");
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++)
        epilogue_op(&j, i, PHASE_BACKWARD);
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++)
        epilogue_op(&j, i, PHASE_FORWARD);
    epilogue_close(&j);
    return t->error.code;
}
