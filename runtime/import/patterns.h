/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What single nodes add up to, seen from the last one: looks back from a variable to the calls that
 * made it.  Only variables whose storage was never written count.
 *
 *     pattern                          a model that needs it
 *     group norm, SiLU                 U-Nets and autoencoders of diffusers (ops_norm.c)
 *     repeated heads                   Llama (ops_attention.c)
 *     RMS norm written out             Llama, T5
 *     linear layer, cross entropy      GPT-2, Llama: logits of a chunk of rows at a time
 *     linear layer, residual           every transformer
 *     GELU written out with tanh       GPT-2
 *     layer norm, scale, shift         diffusion transformers (Wan, Flux; CogVideoX with weights)
 *     residual with a gate             CogVideoX, Flux, PixArt (ops_blocks.c)
 *     rotary embedding of two halves   Llama, Qwen, Mistral (ops_rope.c)
 *     rotary embedding of pairs        Wan
 *     bf16 in fp32 and back            Wan: norms, modulations, gates (ops_blocks.c)
 */
#ifndef CKPT_IMPORT_PATTERNS_H
#define CKPT_IMPORT_PATTERNS_H

#include "import/node_call.h"

/* The call that made v, if it is of this op ("aten.add.Tensor"); or NULL. */
const struct call *pattern_call(struct variable *v, const char *op);
/* The tensor that such a call read as an argument, or NULL. */
struct variable *pattern_step(struct variable *v, const char *op, const char *argument);
/* The variable before changes of dtype, shape and memory that keep every value in its order. */
struct variable *pattern_plain(struct variable *v);

/* Whether the product of the call, self and other, is an RMS norm times a weight.  Gives the tensor
 * that is normalised, the weight and epsilon. */
struct rms_norm {
    struct variable *x, *weight;
    double eps;
};
bool pattern_rms_norm(struct call *c, struct rms_norm *to);

/* What the product of the call is the GELU of, written out with tanh; or NULL. */
struct variable *pattern_gelu(struct call *c);

/* Whether the sum of the call, self and other, adds a linear layer that nothing else reads.  Gives
 * the call of the layer and what is added to it. */
struct layer_sum {
    const struct call *layer;
    struct variable *rest;
};
bool pattern_layer_sum(struct call *c, struct layer_sum *to);

/* Whether the sum is norm (1 + scale) + shift with a layer norm that has no weights. */
struct modulation {
    const struct call *norm;
    struct variable *scale, *shift;
};
bool pattern_modulation(struct call *c, struct modulation *to);

/* The variable of the dtype that v is, or is in fp32; or NULL.  An argument in the dtype, without
 * the way through fp32. */
struct variable *pattern_narrow(struct variable *v, int dtype);
struct tensor pattern_operand(struct call *c, const char *name, int dtype);
/* Whether an argument that may be None is in the dtype, so that in bf16 no weight in fp32 is
 * rounded; always in fp32. */
bool pattern_has_narrow(struct call *c, const char *name, int dtype);
/* The call in fp32 whose result the cast of the call to bf16 alone reads; or NULL. */
const struct call *pattern_wide(struct call *c);

/* Equal shapes and dtypes. */
bool pattern_same_facts(const struct pt2_tensor *a, const struct pt2_tensor *b);
/* Nobody has read it, and one node will. */
bool pattern_is_free(const struct variable *v);
/* Whether v is [.., 1 or the size, .., D] of the dtype of the result; and whether an axis of a is
 * smaller than that of b. */
bool pattern_modulates(const struct variable *v, const struct pt2_tensor *facts);
bool pattern_is_smaller(const struct pt2_tensor *a, const struct pt2_tensor *b);

#endif
