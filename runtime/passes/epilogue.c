/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epilogue fusion: GELU, gates and their gradients become part of adjacent matrix products.  This
 * file counts the reads of a complete tape, tests which ops can be fused, and rewrites them;
 * products.c applies the patterns in order.
 *
 * The tape alone determines what is fused, after differentiation.  Every value is rounded where it
 * was rounded before, so only the order of sums can change bits.  Fusion needs a device with such
 * kernels and products that are large enough (tape_env.epilogue_tiles).  Of 8-bit products only the
 * gradient of GELU is fused; the forward GELU is computed while its result is rounded (fp8.c).
 */
#include <stdlib.h>
#include "expr/expr.h"
#include "kernels/kernel.h"
#include "passes/epilogue.h"
#include "shapes/linear.h"

/* For both matrix sizes of a layer: bulk tensor copies (TMA) need multiples of SIDE_UNIT; below
 * MIN_SIDE fusion does not pay. */
enum { MIN_SIDE = 64, SIDE_UNIT = 8 };

/* ---- tests ----------------------------------------------------------------------------------- */

const struct op *epilogue_producer(const ckpt_tape *t, int32_t x, const struct ckpt_op_def *def)
{
    const struct tensor *v = &t->tensors.data[x];
    const struct op *o = v->op >= 0 && !v->index ? &t->ops.data[v->op] : NULL;
    return o && o->def == def && o->accumulate == ACCUMULATE_NEVER ? o : NULL;
}

bool epilogue_is_plain(const ckpt_tape *t, int32_t x)
{
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    return d->dtype == CKPT_BF16 && d->ndim >= 1 && d->offset == 0 && desc_is_dense(d);
}

/* A weight may share its storage with others, so its offset need not be 0. */
static bool is_weight(const ckpt_tape *t, int32_t x)
{
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    return d->dtype == CKPT_BF16 && d->offset % SIDE_UNIT == 0 && desc_is_dense(d);
}

bool epilogue_is_before(const ckpt_tape *t, int32_t x, int32_t i)
{
    return t->tensors.data[x].op < i;
}

/* Whether the product that computes y from x is large enough. */
static bool is_large(const ckpt_tape *t, int32_t x, int32_t y)
{
    const struct ckpt_desc *dx = &t->tensors.data[x].desc, *dy = &t->tensors.data[y].desc;
    const int64_t inner = dx->shape[dx->ndim - 1], cols = dy->shape[dy->ndim - 1];
    return kernel_joins(t, linear_rows(dx), cols) && inner >= MIN_SIDE && cols >= MIN_SIDE &&
           inner % SIDE_UNIT == 0 && cols % SIDE_UNIT == 0;
}

/* Whether product o has no addend, and plain operand, weight and result. */
static bool can_have_epilogue(const ckpt_tape *t, const struct op *o, int addend)
{
    const int32_t x = op_in(t, o, 0), y = op_out(t, o, 0);
    return (o->n_in <= addend || op_in(t, o, addend) <= 0) && epilogue_is_plain(t, x) &&
           is_weight(t, op_in(t, o, 1)) && epilogue_is_plain(t, y) && is_large(t, x, y);
}

int32_t epilogue_layer(const ckpt_tape *t, int32_t x)
{
    const struct op *o = epilogue_producer(t, x, &op_linear);
    return o && can_have_epilogue(t, o, 3) ? t->tensors.data[x].op : -1;
}

int32_t epilogue_layer_dx(const struct epilogues *j, int32_t dx, int32_t readers)
{
    const struct op *o = epilogue_producer(j->t, dx, &op_linear_dx);
    return o && can_have_epilogue(j->t, o, 2) && j->reads[dx].all == readers
               ? j->t->tensors.data[dx].op
               : -1;
}

bool epilogue_can_redirect(const struct epilogues *j, int32_t x, int32_t i)
{
    const struct reads *r = &j->reads[x];
    return epilogue_is_plain(j->t, x) &&
           j->backward[j->t->tensors.data[x].storage] == r->backward &&
           (!r->backward || r->first > i);
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* Adds n reads of x by op i (negative: removes them). */
static void count_read(struct epilogues *j, int32_t i, int32_t x, int32_t n)
{
    const int32_t backward = j->t->ops.data[i].phase != PHASE_FORWARD ? n : 0;
    struct reads *r = &j->reads[x];
    if (backward > 0 && (!r->backward || i < r->first))
        r->first = i;
    r->backward += backward;
    r->all += n;
    j->backward[j->t->tensors.data[x].storage] += backward;
}

static void count_reads(struct epilogues *j, int32_t i, int32_t n)
{
    const struct op *o = &j->t->ops.data[i];
    for (int k = 0; k < o->n_in; k++)
        if (op_in(j->t, o, k) > 0)
            count_read(j, i, op_in(j->t, o, k), n);
}

static void note_op(struct epilogues *j, int32_t i)
{
    const struct op *o = &j->t->ops.data[i];
    count_reads(j, i, 1);
    if (o->phase != PHASE_FORWARD)
        return;
    if (o->def == &op_gelu || o->def == &op_silu)
        j->activation[op_in(j->t, o, 0)] = i;
    if (o->def == &op_mul)
        j->mul[op_in(j->t, o, 0)] = j->mul[op_in(j->t, o, 1)] = i;
}

/* A fusion adds at most one tensor. */
bool epilogue_open(struct epilogues *j, ckpt_tape *t)
{
    *j = (struct epilogues){.t = t};
    const size_t n = (size_t)t->n_tensors + (size_t)t->n_ops + 1;
    j->reads = calloc(n, sizeof *j->reads);
    j->activation = calloc(n, sizeof *j->activation);
    j->mul = calloc(n, sizeof *j->mul);
    j->backward = calloc((size_t)t->n_storages + (size_t)t->n_ops + 1, sizeof *j->backward);
    if (!j->reads || !j->activation || !j->mul || !j->backward)
        return false;
    for (int32_t i = 0; i < t->n_ops; i++)
        note_op(j, i);
    return true;
}

void epilogue_close(struct epilogues *j)
{
    free(j->reads);
    free(j->activation);
    free(j->mul);
    free(j->backward);
}

/* ---- rewriting ------------------------------------------------------------------------------- */

int epilogue_replace_op(struct epilogues *j, int32_t i, const struct ckpt_op_def *def,
                        uint32_t extra, int n_in, const int32_t *in, int n_out, const int32_t *out)
{
    ckpt_tape *t = j->t;
    enum { MAX = 6 }; /* maximum number of operands and of results */
    struct ckpt_desc of_in[MAX], of_out[MAX];
    struct ckpt_call call;
    char message[CKPT_MESSAGE];
    count_reads(j, i, -1);
    if (tape_replace_op(t, i, def, NULL, 0, n_in, in, n_out, out))
        return t->error.code;
    t->ops.data[i].extra = extra;
    count_reads(j, i, 1);
    tape_call(t, &t->ops.data[i], &call, of_in, of_out);
    call.message = message;
    call.message_size = sizeof message;
    return def->shape(&call) ? tape_fail(t, CKPT_ESHAPE, "%s: %s", def->name, message) : CKPT_OK;
}

void epilogue_remove_op(struct epilogues *j, int32_t i, int32_t by)
{
    tape_join_lines(&j->t->ops.data[i], &j->t->ops.data[by]);
    count_reads(j, i, -1);
    tape_remove_op(j->t, i);
}

int32_t epilogue_redirect_reads(struct epilogues *j, int32_t x)
{
    ckpt_tape *t = j->t;
    struct ckpt_desc d = t->tensors.data[x].desc;
    const int32_t again = tape_new_tensor(t, &d, STORAGE_TEMPORARY).id;
    for (int32_t i = j->reads[x].first; again && j->reads[x].backward > 0 && i < t->n_ops; i++)
        for (int k = 0; k < t->ops.data[i].n_in; k++)
            if (op_in(t, &t->ops.data[i], k) == x && t->ops.data[i].phase != PHASE_FORWARD) {
                t->operands.data[t->ops.data[i].operands + k] = again;
                count_read(j, i, x, -1);
                count_read(j, i, again, 1);
            }
    return again;
}
