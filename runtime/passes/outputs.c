/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs of the gradients that a model requests. */
#include "ops.h"
#include "passes/passes.h"

static void fetch_gradient(ckpt_tape *t, int32_t fetch)
{
    int32_t param = t->fetches.data[fetch].param;
    ckpt_tensor g = tape_handle(t, t->param_gradient[param]);
    const struct ckpt_desc *d = &t->env.params->data[param].desc;
    if (!g.id) /* the loss does not depend on it */
        g = ops_fill(t, 0.f, CKPT_F32, d->ndim, d->shape);
    tape_record_fetch(t, fetch, ckpt_cast(t, g, CKPT_F32));
}

void passes_fetch_gradient(ckpt_tape *t, int32_t param)
{
    for (int32_t i = 0; i < t->n_fetches && !t->error.code; i++)
        if (t->fetches.data[i].param == param)
            fetch_gradient(t, i);
}

int pass_outputs(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    for (int32_t i = 0; i < t->n_fetches && !t->error.code; i++)
        if (t->fetches.data[i].param >= 0 && !t->fetches.data[i].tensor)
            fetch_gradient(t, i);
    return t->error.code;
}
