/* SPDX-License-Identifier: Apache-2.0 */
/* Names and hashes of calls, apart from the helpers that all ops call: this file knows ops whose
 * attributes matter. */
#include "attr.h"
#include "collective.h"
#include "shapes/conv.h"
#include "expr/expr.h"
#include "ops.h"
#include "shapes/pool.h"

/* The attributes of an op that affect its time and do not follow from its shapes. */
static uint64_t conv_hash(uint64_t h, const struct conv_attr *a)
{
    for (int i = 0; i < 3; i++)
        if (a->dilation[i] != 1)
            h = hash_mix(h, i + 3 * a->dilation[i]);
    return h;
}

static uint64_t pool_hash(uint64_t h, const struct pool_attr *a)
{
    for (int i = 0; i < 3; i++)
        if (a->window[i] != a->stride[i])
            h = hash_mix(h, i + 3 * a->window[i]);
    return h;
}

const char *ops_name(const struct ckpt_op_def *def, const void *attr)
{
    return def == &op_expr && attr ? ((const struct expr *)attr)->name : def->name;
}

uint64_t ops_hash(const struct ckpt_op_def *def, const void *attr)
{
    if (def == &op_expr)
        return expr_hash(attr);
    uint64_t h = hash_text(def->name);
    if (def == &op_attention || def == &op_attention_dx || def == &op_attention_dbias) {
        const struct attention_attr *a = attr;
        return a->causal ? hash_mix(hash_mix(h, a->causal), a->window) : h;
    }
    if (def == &op_conv || def == &op_conv_dx || def == &op_conv_dw || def == &op_conv_transpose)
        return conv_hash(h, attr);
    if (def == &op_max_pool || def == &op_max_pool_dx || def == &op_avg_pool ||
        def == &op_avg_pool_dx)
        return pool_hash(h, attr);
    if (def == &op_send || def == &op_receive) /* another link; warm-ups of its two ends agree */
        return hash_mix(h, ((const struct stage_attr *)attr)->back);
    return h;
}
