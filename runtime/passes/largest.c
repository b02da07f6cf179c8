/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Largest magnitudes as extra outputs of the producing ops.
 *
 * to_fp8 needs the largest magnitude of its operand before it can round the first element.  Finding
 * it costs a pass over the operand.  Many kernels can write it as one more output, a single fp32
 * after the outputs of their rule; the kernel sees the output in n_out.  Gradients of attention
 * have three results, so their attribute says which result each extra output is for
 * (attention_left).  The tape alone determines which ops do this, when it is complete and fused.
 * The largest magnitude is the same by any method, so it changes no bit of a step.  Where the
 * producer has no such output, as most products and updates, to_fp8_largest reads the operand.  An
 * 8-bit layer before a GELU that is computed while rounding outputs the largest magnitude of the
 * GELU (fp8_gelu.c).
 *
 * The producer of an operand is found through views that keep all elements.  Its result must fill
 * its storage, so that the order of the elements does not matter.  The operand may also consist of
 * parts that several ops wrote next to each other, like the gradients of queries, keys and values;
 * then each op outputs the largest magnitude of its part.
 */
#include <stdlib.h>
#include "attr.h"
#include "expr/expr.h"
#include "fp8.h"
#include "ops.h"
#include "passes/passes.h"

/* Ops whose kernels can output it. */
static const struct ckpt_op_def *const supported[] = {&op_gelu,
                                                      &op_gelu_dx,
                                                      &op_gelu_dx_sums,
                                                      &op_linear_fp8_dx_gelu,
                                                      &op_layer_norm,
                                                      &op_layer_norm_dx,
                                                      &op_layer_norm_affine_dx,
                                                      &op_layer_norm_modulate,
                                                      &op_layer_norm_modulate_dx,
                                                      &op_modulate,
                                                      &op_modulate_dx,
                                                      &op_gated_residual,
                                                      &op_gated_residual_dx,
                                                      &op_rms_norm,
                                                      &op_rms_norm_dx,
                                                      &op_layer_norm_dx_sums,
                                                      &op_layer_norm_affine_dx_sums,
                                                      &op_layer_norm_modulate_dx_sums,
                                                      &op_rms_norm_dx_sums,
                                                      &op_gated_residual_dx_sums,
                                                      &op_silu,
                                                      &op_silu_dx,
                                                      &op_attention,
                                                      &op_attention_dx,
                                                      &op_cross_attention,
                                                      &op_cross_attention_dx,
                                                      &op_rms_norm_rope_dx,
                                                      &op_expr};

/* Ops whose kernels also can if the result is a part of a larger tensor, with gaps between rows. */
static const struct ckpt_op_def *const supported_apart[] = {
    &op_attention_dx,         &op_cross_attention_dx, &op_layer_norm_dx,
    &op_layer_norm_affine_dx, &op_rms_norm_dx,        &op_rms_norm_rope_dx};

static bool is_gradient_of_attention(const struct op *o)
{
    return o->def == &op_attention_dx || o->def == &op_cross_attention_dx;
}

static bool is_among(const struct ckpt_op_def *def, const struct ckpt_op_def *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (def == list[i])
            return true;
    return false;
}

/* Whether the kernel of op o can output the largest magnitude of result `index`; apart: of a part
 * of a larger tensor. */
static bool can_output_largest(const struct op *o, int32_t index, bool apart)
{
    if (o->def == &op_expr && ((const struct expr *)o->attr)->reduced)
        return false;
    if (index >= (is_gradient_of_attention(o) ? ATTENTION_RESULTS : 1))
        return false;
    return apart
               ? is_among(o->def, supported_apart, sizeof supported_apart / sizeof *supported_apart)
               : is_among(o->def, supported, sizeof supported / sizeof *supported);
}

static bool fills_storage(const ckpt_tape *t, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    return v->desc.offset == 0 && desc_bytes(&v->desc) == t->storages.data[v->storage].bytes;
}

/* Follows views back to the tensor that x, or all of its elements, is a view of. */
static int32_t view_origin(const ckpt_tape *t, int32_t x)
{
    int32_t i = t->tensors.data[x].op;
    while (i >= 0 && t->ops.data[i].def->flags & CKPT_OP_VIEW && t->ops.data[i].n_in == 1) {
        x = op_in(t, &t->ops.data[i], 0);
        i = t->tensors.data[x].op;
    }
    return x;
}

/* Finds the results of ops that together are exactly the elements of x.  Returns their number, or
 * 0. */
static int find_parts(const ckpt_tape *t, int32_t x, int32_t part[FP8_PARTS])
{
    const int32_t whole = view_origin(t, x), i = t->tensors.data[whole].op;
    const struct op *o = i >= 0 ? &t->ops.data[i] : NULL;
    if (!o || !fills_storage(t, x) || !fills_storage(t, whole))
        return 0;
    part[0] = whole;
    if (o->def != &op_join)
        return can_output_largest(o, t->tensors.data[whole].index, false) ? 1 : 0;
    if (o->n_in > FP8_PARTS)
        return 0;
    for (int k = 0; k < o->n_in; k++) {
        const struct tensor *v = &t->tensors.data[op_in(t, o, k)];
        part[k] = view_origin(t, op_in(t, o, k));
        const struct tensor *made = &t->tensors.data[part[k]];
        if (made->op < 0 || desc_numel(&made->desc) != desc_numel(&v->desc) ||
            !can_output_largest(&t->ops.data[made->op], made->index, true))
            return 0;
    }
    return o->n_in;
}

/* The 8-bit layer that produces x, if it can output the largest magnitude of GELU of x.  Returns 1
 * or 0. */
static int find_layer(const ckpt_tape *t, int32_t x, int32_t part[FP8_PARTS])
{
    const int32_t i = t->tensors.data[part[0] = view_origin(t, x)].op;
    return i >= 0 && fills_storage(t, x) && fills_storage(t, part[0]) &&
           epilogue_has_gelu_largest(t, &t->ops.data[i]);
}

/* The output of the producer of x that is the largest magnitude of x, added if it does not exist
 * yet.  largest: that output per tensor, 0 if there is none. */
static int32_t add_largest_output(ckpt_tape *t, int32_t x, int32_t *largest)
{
    const int32_t i = t->tensors.data[x].op, index = t->tensors.data[x].index;
    struct op *o = &t->ops.data[i];
    if (largest[x])
        return largest[x];
    if (o->def == &op_expr)
        ((struct expr *)o->attr)->largest = 1;
    if (o->def == &op_attention_dx)
        attention_leave(&((struct attention_attr *)o->attr)->left, index);
    if (o->def == &op_cross_attention_dx)
        attention_leave(&((struct cross_attention_attr *)o->attr)->left, index);
    return largest[x] = tape_add_output(t, i, &(struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0}).id;
}

/* Makes the producers of what op i rounds output their largest magnitudes. */
static void request_largest(ckpt_tape *t, int32_t i, int32_t *largest)
{
    const struct op *o = &t->ops.data[i];
    const enum fp8_source source = (enum fp8_source)((const struct to_fp8_attr *)o->attr)->source;
    int32_t part[FP8_PARTS];
    int n = 0;
    if (source == FP8_NORM_MODULATE) {
        const int32_t norm = t->tensors.data[op_in(t, o, FP8_STATS)].op;
        part[n++] = op_out(t, &t->ops.data[norm], 0);
    } else if (source == FP8_OPERAND) {
        n = find_parts(t, op_in(t, o, FP8_FROM), part);
    } else if (source == FP8_GELU) {
        n = find_layer(t, op_in(t, o, FP8_FROM), part);
    }
    for (int k = 0; k < n && !t->error.code; k++) {
        const int32_t x = add_largest_output(t, part[k], largest);
        if (k)
            tape_add_input(t, i, x);
        else
            t->operands.data[t->ops.data[i].operands + FP8_MOST] = x;
    }
}

int pass_largest(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    int32_t *largest = calloc((size_t)t->n_tensors + 1, sizeof *largest);
    if (!largest)
        return tape_fail(t, CKPT_ENOMEM, "no memory for the largest magnitudes of a tape");
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++)
        if (t->ops.data[i].def == &op_to_fp8)
            request_largest(t, i, largest);
    free(largest);
    return t->error.code;
}

static bool lacks_largest(const ckpt_tape *t, int32_t i)
{
    return t->ops.data[i].def == &op_to_fp8 && op_in(t, &t->ops.data[i], FP8_MOST) <= 0;
}

/* Records to_fp8_largest for op i at the end of the tape. */
static void record_largest(ckpt_tape *t, int32_t i)
{
    const struct to_fp8_attr *of = t->ops.data[i].attr;
    const struct to_fp8_largest_attr attr = {.source = of->source};
    ckpt_tensor x = tape_handle(t, op_in(t, &t->ops.data[i], FP8_FROM));
    tape_stand_at(t, i);
    x = ops_record1(t, &op_to_fp8_largest, 1, &x, &attr, sizeof attr);
    if (t->error.code)
        return;
    t->ops.data[t->n_ops - 1].first_line = t->ops.data[i].first_line;
    t->operands.data[t->ops.data[i].operands + FP8_MOST] = x.id;
}

int pass_find_largest(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    const enum phase phase = t->phase;
    const int32_t n_ops = t->n_ops;
    int64_t *key = malloc((2 * (size_t)n_ops + 1) * sizeof *key);
    if (!key)
        return tape_fail(t, CKPT_ENOMEM, "no memory to order the ops of a tape");
    for (int32_t i = 0; i < n_ops; i++)
        key[i] = tape_key(i, 0);
    for (int32_t i = 0; i < n_ops && !t->error.code; i++)
        if (lacks_largest(t, i)) {
            record_largest(t, i);
            key[t->n_ops - 1] = tape_key(i, -1);
        }
    if (!t->error.code && t->n_ops > n_ops)
        tape_sort(t, key);
    free(key);
    t->phase = phase;
    return t->error.code;
}
