/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which extra outputs kernels write (ops/extra.h).  Only the tape and the rows of the kernels
 * decide it.
 *
 * Column sums are the gradient of the bias of a layer: the op that computes the gradient of its
 * result writes them if its kernel can, else the rule of the layer records a pass over it
 * (ops/linear.c).  It is decided where the op is recorded, because sums are added up like any
 * gradient of a parameter.
 *
 * to_fp8 needs the largest magnitude of its operand before it can round the first element, which
 * the ops that made the operand write if their kernels can, else to_fp8_largest reads the operand
 * once more.  It is decided when the tape is complete and fused.  The largest magnitude is the same
 * by any method, so it changes no bit of a step.  An 8-bit layer before a GELU that is computed
 * while rounding writes that of the GELU (fp8_gelu.c).
 *
 * The producer of an operand is found through views that keep all elements.  Its result must fill
 * its storage, so that the order of the elements does not matter.  The operand may also consist of
 * parts that several ops wrote next to each other, like the gradients of queries, keys and values;
 * then each op writes the largest magnitude of its part.
 */
#include <stdlib.h>
#include "attr.h"
#include "expr/expr.h"
#include "extra.h"
#include "fp8.h"
#include "kernels/kernel.h"
#include "ops.h"
#include "passes/passes.h"

/* ---- column sums ----------------------------------------------------------------------------- */

/* Whether x is the result of a layer with a bias that is trained. */
static bool has_bias(const ckpt_tape *t, ckpt_tensor x)
{
    const int32_t i = t->tensors.data[x.id].op;
    const struct op *o = i >= 0 ? &t->ops.data[i] : NULL;
    const bool layer = o && (o->def == &op_linear || o->def == &op_linear_fp8);
    const int32_t bias = layer ? op_in(t, o, FP8_BIAS) : 0;
    return bias > 0 && t->tensors.data[bias].needs_grad;
}

/* An op recorded by ckpt_gradients is differentiated again, and sums have no gradient. */
void passes_request_sums(ckpt_tape *t, ckpt_tensor x, ckpt_tensor dx, int32_t first_op)
{
    const struct tensor *v = &t->tensors.data[dx.id];
    if (v->op < first_op || v->index || !tape_rewrites(t, REWRITE_SUMS) || !has_bias(t, x))
        return;
    const struct op *o = &t->ops.data[v->op];
    const struct ckpt_desc d = column_sum_desc(&v->desc);
    if (!o->of_gradients && kernel_can(o->def, t->env.backend) & KERNEL_SUMS)
        tape_add_extra(t, v->op, EXTRA_SUMS, &d);
}

/* ---- largest magnitudes ---------------------------------------------------------------------- */

/* Whether the kernel of op o can write the largest magnitude of result `index`; apart: of a part of
 * a larger tensor. */
static bool can_write_largest(const ckpt_tape *t, const struct op *o, int32_t index, bool apart)
{
    const unsigned can = kernel_can(o->def, t->env.backend);
    const bool reduced = o->def == &op_expr && ((const struct expr *)o->attr)->reduced;
    return !reduced && index < ATTENTION_RESULTS && can >> (EXTRA_LARGEST + index) & 1 &&
           (!apart || can & KERNEL_APART);
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
        return can_write_largest(t, o, t->tensors.data[whole].index, false) ? 1 : 0;
    if (o->n_in > FP8_PARTS)
        return 0;
    for (int k = 0; k < o->n_in; k++) {
        const struct tensor *v = &t->tensors.data[op_in(t, o, k)];
        part[k] = view_origin(t, op_in(t, o, k));
        const struct tensor *made = &t->tensors.data[part[k]];
        if (made->op < 0 || desc_numel(&made->desc) != desc_numel(&v->desc) ||
            !can_write_largest(t, &t->ops.data[made->op], made->index, true))
            return 0;
    }
    return o->n_in;
}

/* The 8-bit layer that produces x, if it can write the largest magnitude of GELU of x.  Returns 1
 * or 0. */
static int find_layer(const ckpt_tape *t, int32_t x, int32_t part[FP8_PARTS])
{
    const int32_t i = t->tensors.data[part[0] = view_origin(t, x)].op;
    return i >= 0 && fills_storage(t, x) && fills_storage(t, part[0]) &&
           epilogue_has_gelu_largest(t, &t->ops.data[i]);
}

/* The extra output `what` of the producer of x, added if it does not exist yet. */
static int32_t request(ckpt_tape *t, int32_t x, int what)
{
    const int32_t i = t->tensors.data[x].op;
    const struct op *o = &t->ops.data[i];
    const int k = extra_index(o->extra, o->n_out, what);
    if (k >= 0)
        return op_out(t, o, k);
    if (o->def == &op_expr)
        ((struct expr *)o->attr)->largest = 1;
    return tape_add_extra(t, i, what, &(struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0}).id;
}

/* Makes the producers of what op i rounds write their largest magnitudes. */
static void request_largest(ckpt_tape *t, int32_t i)
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
        const int32_t x =
            request(t, part[k],
                    source == FP8_GELU ? EXTRA_GELU_LARGEST
                                       : EXTRA_LARGEST + t->tensors.data[part[k]].index);
        if (k)
            tape_add_input(t, i, x);
        else
            tape_set_input(t, i, FP8_MOST, x);
    }
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
    tape_set_input(t, i, FP8_MOST, x.id);
}

/* Finds what no producer writes, each just before it is read. */
static int find_largest(ckpt_tape *t)
{
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

int pass_extra(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    for (int32_t i = 0; i < t->n_ops && !t->error.code && tape_rewrites(t, REWRITE_LARGEST); i++)
        if (t->ops.data[i].def == &op_to_fp8)
            request_largest(t, i);
    return t->error.code ? t->error.code : find_largest(t);
}
