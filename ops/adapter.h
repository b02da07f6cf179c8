/* SPDX-License-Identifier: Apache-2.0 */
/* Weights with adapters (ckpt_lora), which only linear layers add (layer.c). */
#ifndef CKPT_OPS_ADAPTER_H
#define CKPT_OPS_ADAPTER_H

#include "tape/tape.h"

/* The parameter w if it has an adapter, else NULL. */
static inline const struct param *find_adapter(const ckpt_tape *t, ckpt_tensor w)
{
    const struct param *p = t && t->env.params ? params_at(t->env.params, w) : NULL;
    return p && p->training.lora.b ? p : NULL;
}

#endif
