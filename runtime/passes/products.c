/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns of epilogue fusion, in order: see epilogue.c. */
#include "passes/epilogue.h"

/* Applies the pattern that matches op i, if it belongs to the given pass. */
static void epilogue_op(ckpt_tape *t, int32_t i, enum phase phase)
{
    const struct op *o = &t->ops.data[i];
    const bool gelu_dx = o->def == &op_gelu_dx;
    if (o->phase != phase)
        return;
    if (phase == PHASE_BACKWARD && gelu_dx && t->env.matmul == MATMUL_FP8)
        epilogue_gelu_fp8_dx(t, i);
    if (t->env.matmul)
        return;
    if (phase == PHASE_BACKWARD && gelu_dx)
        epilogue_gelu_dx(t, i);
    else if (phase == PHASE_BACKWARD && o->def == &op_silu_dx)
        epilogue_gate_dx(t, i);
    else if (phase == PHASE_FORWARD && o->def == &op_gelu)
        epilogue_gelu(t, i);
    else if (phase == PHASE_FORWARD && o->def == &op_silu)
        epilogue_gate(t, i);
}

int pass_products(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++)
        epilogue_op(t, i, PHASE_BACKWARD);
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++)
        epilogue_op(t, i, PHASE_FORWARD);
    return t->error.code;
}
