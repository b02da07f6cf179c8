/* SPDX-License-Identifier: Apache-2.0 */
/* A layer of experts (Shazeer et al. 2017): a router chooses a few MLPs for each token. */
#ifndef LM_EXPERTS_H
#define LM_EXPERTS_H

#include "ckpt.h"

struct lm_experts_config {
    int64_t count, chosen, inner; /* experts; of them per token; width of each.  count 0: none */
    /* Shares of the chosen: softmax of their scores alone; else of all scores, and then, with
     * `normalized`, divided by their sum. */
    bool late_softmax, normalized;
    bool bias; /* of the router and of the experts */
    /* Gate and up are columns in turn, clamped to `limit`: (up + 1) gate sigmoid(alpha gate); else
     * they are halves: up silu(gate). */
    bool clamped;
    float alpha, limit;
};

struct lm_experts {
    struct ckpt_nn_linear router;        /* [count, width] */
    ckpt_tensor gate_up, down;           /* [count, 2 inner, width], [count, width, inner] */
    ckpt_tensor gate_up_bias, down_bias; /* [count, 2 inner], [count, width], or CKPT_NONE */
};

/* Names of a layer's part in files, appended to NAME and a dot; gate NULL: all experts in one
 * tensor, "experts.gate_up_proj", with rows and columns swapped; else a matrix for each projection
 * of each expert, "experts.3.GATE.weight". */
struct lm_experts_names {
    const char *block, *router, *gate, *up, *down;
};

/* What the router did with the n tokens of a layer. */
struct lm_routes {
    ckpt_tensor probability; /* softmax of all scores, fp32 [n, count] */
    ckpt_tensor chosen;      /* i32 [n, chosen] */
};

/* Makes the parameters NAME.BLOCK.ROUTER.weight and NAME.BLOCK.experts.... */
struct lm_experts lm_experts_make(const struct ckpt_nn *nn, const struct lm_experts_config *g,
                                  const struct lm_experts_names *f, int64_t width,
                                  const char *name);

/* Records the layer of x [..., width].  Sets *routes. */
ckpt_tensor lm_experts_apply(const struct lm_experts *m, const struct lm_experts_config *g,
                             ckpt_tape *t, ckpt_tensor x, struct lm_routes *routes);

/* The balance of n layers, as transformers' load_balancing_loss_func: chosen if each expert gets
 * equal parts.  Couples the samples. */
ckpt_tensor lm_experts_balance(const struct lm_experts_config *g, ckpt_tape *t, int64_t n,
                               const struct lm_routes *routes);

#endif
