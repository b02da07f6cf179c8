/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU behind a linear layer, and its gradient behind the next one's, at the end of the products.
 *
 *   pre, post         = linear_gelu(x, w1, b1)          pre = x w1^T + b1, post = gelu(pre)
 *   y                 = linear(post, w2, b2)
 *   dpre, sums, post' = linear_dx_gelu(dy, w2, pre)     dpre = gelu'(pre) (dy w2)
 *   dw2               = linear_dw(dy, post')
 *
 * A product that writes pre has it in registers, and so has one that makes dpre of it, beside what
 * it needs for post: both save passes over the widest activations of a model.  post' is post, made
 * once more where the backward pass has to read pre anyway.  So nothing keeps post from the forward
 * pass to the backward pass, under no budget: it takes half of the memory of such a layer.
 *
 * What is joined follows from the tape alone, when gradients are complete, and every value is
 * rounded where it was before, so no bit but those of sums depends on it.  It is done where the
 * device has such products and they are large enough (tape_env.gelu_tiles).  8-bit products
 * and activations have ways of their own.
 */
#include <stdlib.h>
#include "attr.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cuda/kernels.h"
#include "cuda/workspace.h"
#include "expr/expr.h"
#include "ops.h"
#include "tape/tape.h"

/* Of both matrices of a layer: what box copies take, and less is not worth it. */
enum { LEAST_SIDE = 64, SIDE_UNIT = 8 };

/* ---- rules ----------------------------------------------------------------------------------- */

/* {x, w, b} -> {pre, post}, of which the one that nobody reads is not written */
static int linear_gelu_shape(struct ckpt_call *call)
{
    const int rc = op_linear.shape(call);
    if (rc)
        return rc;
    if (call->out[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operands must be bf16");
    call->out[1] = call->out[0];
    return CKPT_OK;
}

/* {dy, w, pre} -> {dpre, then what is asked for: its sums over the rows, post} */
static int linear_dx_gelu_shape(struct ckpt_call *call)
{
    const struct linear_dx_gelu_attr *attr = call->attr;
    const struct ckpt_desc *pre = &call->in[2];
    int n = 1;
    const int rc = op_linear_dx.shape(call);
    if (rc)
        return rc;
    if (!desc_same_shape(pre, &call->out[0]) || pre->dtype != CKPT_BF16 ||
        call->out[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operand of gelu must be bf16 and of the gradient's shape");
    const int64_t product = call->workspace, rows = linear_rows(pre);
    const int64_t cols = pre->shape[pre->ndim - 1];
    if (attr->sums) {
        call_column_sum(call, n++, pre);
        if (call->backend == CKPT_ON_CUDA)
            call->workspace = max_i64(call->workspace, cuda_gelu_sums_workspace(rows, cols));
    }
    call->workspace = max_i64(call->workspace, product);
    if (attr->post)
        call->out[n] = call->out[0];
    return CKPT_OK;
}

const struct ckpt_op_def op_linear_gelu = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_gelu",
    .flags = CKPT_OP_OPTIONAL_OUT,
    .shape = linear_gelu_shape,
    .cost = linear_cost,
    .cpu = cpu_linear_gelu,
    .cuda = CUDA_KERNEL(cuda_linear_gelu),
};

const struct ckpt_op_def op_linear_dx_gelu = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_dx_gelu",
    .shape = linear_dx_gelu_shape,
    .cost = linear_cost,
    .cpu = cpu_linear_dx_gelu,
    .cuda = CUDA_KERNEL(cuda_linear_dx_gelu),
};

/* ---- joining --------------------------------------------------------------------------------- */

/* How often each tensor is read, in all and in the backward pass, and the op that begins these. */
struct reads {
    int32_t all, backward, first;
};

struct joining {
    ckpt_tape *t;
    struct reads *reads; /* per tensor */
    int32_t *backward;   /* per storage: how often the backward pass reads any tensor on it */
    int32_t *gelu;       /* per tensor: the GELU of it in the forward pass, or 0 */
};

static const struct op *maker(const ckpt_tape *t, int32_t x, const struct ckpt_op_def *def)
{
    const struct tensor *v = &t->tensors.data[x];
    const struct op *o = v->op >= 0 && !v->index ? &t->ops.data[v->op] : NULL;
    return o && o->def == def && o->accumulate == ACCUMULATE_NEVER ? o : NULL;
}

/* Of rows of bf16 side by side that begin their storage. */
static bool is_plain(const ckpt_tape *t, int32_t x)
{
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    return d->dtype == CKPT_BF16 && d->ndim >= 1 && d->offset == 0 && desc_is_dense(d);
}

static bool is_large(const ckpt_tape *t, int32_t x, int32_t y)
{
    const struct ckpt_desc *dx = &t->tensors.data[x].desc, *dy = &t->tensors.data[y].desc;
    const int64_t inner = dx->shape[dx->ndim - 1], cols = dy->shape[dy->ndim - 1];
    return cuda_gelu_tiles(linear_rows(dx), cols) >= t->env.gelu_tiles && inner >= LEAST_SIDE &&
           cols >= LEAST_SIDE && inner % SIDE_UNIT == 0 && cols % SIDE_UNIT == 0;
}

/* Op i reads x. */
static void note_read(struct joining *j, int32_t i, int32_t x)
{
    const bool backward = j->t->ops.data[i].phase != PHASE_FORWARD;
    struct reads *r = &j->reads[x];
    r->first = r->backward ? r->first : i;
    r->backward += backward;
    r->all++;
    j->backward[j->t->tensors.data[x].storage] += backward;
}

static bool survey(struct joining *j)
{
    ckpt_tape *t = j->t;
    j->reads = calloc((size_t)t->n_tensors + 1, sizeof *j->reads);
    j->gelu = calloc((size_t)t->n_tensors + 1, sizeof *j->gelu);
    j->backward = calloc((size_t)t->n_storages + 1, sizeof *j->backward);
    if (!j->reads || !j->gelu || !j->backward)
        return false;
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        for (int k = 0; k < o->n_in; k++)
            if (op_in(t, o, k) > 0)
                note_read(j, i, op_in(t, o, k));
        if (o->def == &op_gelu && o->phase == PHASE_FORWARD)
            j->gelu[op_in(t, o, 0)] = i;
    }
    return true;
}

int ops_become(ckpt_tape *t, int32_t i, const struct ckpt_op_def *def, const void *attr,
               size_t attr_size, int n_in, const int32_t *in, int n_out, const int32_t *out)
{
    struct ckpt_desc of_in[OPS_JOINED], of_out[OPS_JOINED];
    struct ckpt_call call;
    char message[CKPT_MESSAGE];
    if (tape_replace_op(t, i, def, attr, attr_size, n_in, in, n_out, out))
        return t->error.code;
    tape_call(t, &t->ops.data[i], &call, of_in, of_out);
    call.message = message;
    call.message_size = sizeof message;
    call.workspace = 0;
    if (def->shape(&call))
        return tape_fail(t, CKPT_ESHAPE, "%s: %s", def->name, message);
    t->ops.data[i].workspace = call.workspace;
    return CKPT_OK;
}

/* The GELU of what layer i makes goes into that. */
static int join_forward(struct joining *j, int32_t i, int32_t gelu)
{
    ckpt_tape *t = j->t;
    const struct op *o = &t->ops.data[i], *g = &t->ops.data[gelu];
    const int32_t in[] = {op_in(t, o, 0), op_in(t, o, 1), op_in(t, o, 2)};
    const int32_t out[] = {op_out(t, o, 0), op_out(t, g, 0)};
    expr_join_lines(g, &t->ops.data[i]);
    const int rc = ops_become(t, i, &op_linear_gelu, NULL, 0, 3, in, 2, out);
    if (!rc)
        expr_remove_op(t, gelu);
    return rc;
}

/* All who read x in the backward pass read `again`. */
static void read_instead(struct joining *j, int32_t x, int32_t again)
{
    ckpt_tape *t = j->t;
    for (int32_t i = j->reads[x].first; j->reads[x].backward > 0 && i < t->n_ops; i++)
        for (int k = 0; k < t->ops.data[i].n_in; k++)
            if (op_in(t, &t->ops.data[i], k) == x && t->ops.data[i].phase != PHASE_FORWARD) {
                t->operands.data[t->ops.data[i].operands + k] = again;
                j->reads[x].backward--;
            }
}

/* The layer whose result x is, if GELU can be done in it; or -1. */
static int32_t layer_of(const ckpt_tape *t, int32_t x)
{
    const struct op *o = maker(t, x, &op_linear);
    if (!o || (o->n_in > 3 && op_in(t, o, 3) > 0) || !is_plain(t, x) ||
        !is_plain(t, op_in(t, o, 0)) || !is_large(t, op_in(t, o, 0), x))
        return -1;
    return t->tensors.data[x].op;
}

/* The product that makes the gradient that op i, of GELU, reads, if it can do that as well; or -1.
 */
static int32_t product_of(const struct joining *j, int32_t i)
{
    const ckpt_tape *t = j->t;
    const struct op *o = &t->ops.data[i];
    const int32_t dy = op_in(t, o, 0), pre = op_in(t, o, 1);
    const struct op *product = maker(t, dy, &op_linear_dx);
    if (!product || op_in(t, product, 2) > 0 || j->reads[dy].all != 1 || !is_plain(t, dy) ||
        !is_plain(t, pre) || !is_plain(t, op_out(t, o, 0)) ||
        !is_plain(t, op_in(t, product, 0)) || !is_large(t, op_in(t, product, 0), dy))
        return -1;
    return t->tensors.data[dy].op;
}

/* Whether all that the backward pass reads of x, if anything, it can read of what op i makes. */
static bool can_leave(const struct joining *j, int32_t x, int32_t i)
{
    const struct reads *r = &j->reads[x];
    return is_plain(j->t, x) && j->backward[j->t->tensors.data[x].storage] == r->backward &&
           (!r->backward || r->first > i);
}

/* Op i, a gradient of GELU, goes into the product behind whose result it stands; and the GELU into
 * its layer, where all that read its result in the backward pass stand behind that product. */
static int join_backward(struct joining *j, int32_t i, int32_t product)
{
    ckpt_tape *t = j->t;
    const struct op *o = &t->ops.data[i], *p = &t->ops.data[product];
    const int32_t pre = op_in(t, o, 1), gelu = j->gelu[pre];
    const int32_t layer = gelu ? layer_of(t, pre) : -1;
    const int32_t post = layer >= 0 ? op_out(t, &t->ops.data[gelu], 0) : 0;
    const bool moves = post && can_leave(j, post, product);
    struct linear_dx_gelu_attr attr = {.sums = o->def == &op_gelu_dx_sums};
    int32_t in[] = {op_in(t, p, 0), op_in(t, p, 1), pre}, out[3], n = 0;
    out[n++] = op_out(t, o, 0);
    if (attr.sums)
        out[n++] = op_out(t, o, 1);
    if (moves && j->reads[post].backward) {
        struct ckpt_desc d = t->tensors.data[post].desc;
        const ckpt_tensor again = tape_new_tensor(t, &d, STORAGE_TEMPORARY);
        if (!again.id)
            return t->error.code;
        attr.post = 1;
        out[n++] = again.id;
        read_instead(j, post, again.id);
    }
    expr_join_lines(&t->ops.data[i], &t->ops.data[product]);
    int rc = ops_become(t, product, &op_linear_dx_gelu, &attr, sizeof attr, 3, in, n, out);
    if (rc)
        return rc;
    expr_remove_op(t, i);
    return moves ? join_forward(j, layer, gelu) : CKPT_OK;
}

/* The GELU of op i, which nobody reads in the backward pass, goes into its layer. */
static void join_plain(struct joining *j, int32_t i)
{
    const struct op *o = &j->t->ops.data[i];
    const int32_t layer = layer_of(j->t, op_in(j->t, o, 0)), post = op_out(j->t, o, 0);
    if (layer >= 0 && !j->reads[post].backward && can_leave(j, post, -1))
        join_forward(j, layer, i);
}

int ops_join_gelu(ckpt_tape *t)
{
    struct joining j = {.t = t};
    if (t->error.code || !t->env.gelu_tiles || t->env.matmul || t->env.int8)
        return t->error.code;
    if (!survey(&j))
        tape_fail(t, CKPT_ENOMEM, "no memory to join the products of a tape");
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++) {
        const struct op *o = &t->ops.data[i];
        if ((o->def != &op_gelu_dx && o->def != &op_gelu_dx_sums) || o->phase != PHASE_BACKWARD)
            continue;
        const int32_t product = product_of(&j, i);
        if (product >= 0)
            join_backward(&j, i, product);
    }
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++)
        if (t->ops.data[i].def == &op_gelu && t->ops.data[i].phase == PHASE_FORWARD)
            join_plain(&j, i);
    free(j.reads);
    free(j.gelu);
    free(j.backward);
    return t->error.code;
}
