/* SPDX-License-Identifier: Apache-2.0 */
/* Weights with adapters (ckpt_lora), which only linear layers add (layer.c). */
#ifndef CKPT_OPS_ADAPTER_H
#define CKPT_OPS_ADAPTER_H

#include "tape/tape.h"

/* The parameter w if it has an adapter that layers add now (ckpt_use_adapters), else NULL. */
static inline const struct param *find_adapter(const ckpt_tape *t, ckpt_tensor w)
{
    const struct param *p = t && t->env.params ? params_at(t->env.params, w) : NULL;
    return p && p->training.lora && !t->no_adapters ? p : NULL;
}

/* Operands of a linear layer: x w^T + b + addend; b and addend may be CKPT_NONE. */
struct layer_product {
    ckpt_tensor x, w, b, addend;
};

/* Records a layer with the adapters of its weight; product records a layer without them. */
ckpt_tensor adapted(ckpt_tape *t, const struct param *weight, const struct layer_product *l,
                    ckpt_tensor (*product)(ckpt_tape *t, const struct layer_product *l));

#endif
