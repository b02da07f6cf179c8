/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules of the collective ops. */
#include "collective.h"
#include "ops.h"
#include "tape/tape.h"

/* out[0] becomes a 1-D tensor of numel elements in the dtype of the operand. */
static int set_flat_out(struct ckpt_call *call, int64_t numel)
{
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (call->in[0].ndim != 1)
        return ckpt_call_fail(call, "the operand must have one axis");
    call->out[0] =
        (struct ckpt_desc){.dtype = call->in[0].dtype, .ndim = 1, .shape = {numel}, .stride = {1}};
    return CKPT_OK;
}

static int64_t ranks_of(const struct ckpt_call *call)
{
    return ((const struct collective_attr *)call->attr)->ranks;
}

static int all_gather_shape(struct ckpt_call *call)
{
    return set_flat_out(call, desc_numel(&call->in[0]) * ranks_of(call));
}

static int reduce_scatter_shape(struct ckpt_call *call)
{
    int64_t n = desc_numel(&call->in[0]), ranks = ranks_of(call);
    if (n % ranks)
        return ckpt_call_fail(call, "the operand does not divide into equal parts for %lld ranks",
                              (long long)ranks);
    return set_flat_out(call, n / ranks);
}

static int same_shape(struct ckpt_call *call)
{
    return set_flat_out(call, desc_numel(&call->in[0]));
}

OPS_DEF(all_gather, .shape = all_gather_shape);

const struct ckpt_op_def op_all_gather_once = {.size = sizeof(struct ckpt_op_def),
                                               .name = "all_gather",
                                               .flags = CKPT_OP_ONCE,
                                               .shape = all_gather_shape};

const struct ckpt_op_def op_all_gather_in_place = {.size = sizeof(struct ckpt_op_def),
                                                   .name = "all_gather",
                                                   .flags = CKPT_OP_INPLACE,
                                                   .shape = same_shape};

OPS_DEF(reduce_scatter, .shape = reduce_scatter_shape);

OPS_DEF(all_reduce, .shape = same_shape);

static void tensor_sum_grad(struct ckpt_grad *g)
{
    g->din[0] =
        OPS_RECORD(g->tape, &op_tensor_sum, (const struct collective_attr *)g->attr, g->dout[0]);
}

OPS_DEF(tensor_sum, .shape = same_shape, .grad = tensor_sum_grad);

static int all_to_all_shape(struct ckpt_call *call)
{
    const int64_t n = desc_numel(&call->in[0]);
    if (n % ranks_of(call))
        return ckpt_call_fail(call, "the operand does not divide into equal parts for %lld ranks",
                              (long long)ranks_of(call));
    return set_flat_out(call, n);
}

/* A part of the result is a part of the operand of another rank, so its gradient goes there. */
static void all_to_all_grad(struct ckpt_grad *g)
{
    g->din[0] =
        OPS_RECORD(g->tape, &op_all_to_all, (const struct collective_attr *)g->attr, g->dout[0]);
}

OPS_DEF(all_to_all, .shape = all_to_all_shape, .grad = all_to_all_grad);

struct collective_attr collective_of_bucket(const ckpt_tape *t, int32_t bucket)
{
    const struct layout_bucket *b = &t->env.sharing.layout->buckets[bucket];
    return (struct collective_attr){.ranks = b->ranks,
                                    .group = sharing_is_split(&t->env.sharing, b) ||
                                                     sharing_has_pipelines(&t->env.sharing)
                                                 ? GROUP_DATA
                                                 : GROUP_BY_NUMBER};
}

/* ---- stages ---------------------------------------------------------------------------------- */

static int send_shape(struct ckpt_call *call)
{
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 1, .shape = {1}, .stride = {1}};
    return CKPT_OK;
}

/* The gradient of the token is the token: what comes back comes after it. */
static void send_grad(struct ckpt_grad *g)
{
    struct stage_attr attr = *(const struct stage_attr *)g->attr;
    attr.back = 1;
    attr.desc = ckpt_desc_of(g->tape, g->in[0]);
    attr.desc.offset = 0;
    g->din[0] = OPS_RECORD(g->tape, &op_receive, &attr, g->dout[0]);
}

OPS_DEF(send, .flags = CKPT_OP_ONCE, .shape = send_shape, .grad = send_grad);

static int receive_shape(struct ckpt_call *call)
{
    const struct stage_attr *attr = call->attr;
    call->out[0] = attr->desc;
    return CKPT_OK;
}

static void receive_grad(struct ckpt_grad *g)
{
    struct stage_attr attr = *(const struct stage_attr *)g->attr;
    attr.back = 1;
    OPS_RECORD(g->tape, &op_send, &attr, g->dout[0]);
}

OPS_DEF(receive, .flags = CKPT_OP_ONCE, .shape = receive_shape, .grad = receive_grad);

bool collective_gathers(const struct ckpt_op_def *def)
{
    return def == &op_all_gather || def == &op_all_gather_once;
}

bool collective_is(const struct ckpt_op_def *def)
{
    return def == &op_all_gather || def == &op_all_gather_once || def == &op_all_gather_in_place ||
           def == &op_reduce_scatter || def == &op_all_reduce || def == &op_all_to_all ||
           def == &op_tensor_sum || def == &op_send || def == &op_receive;
}

static int flatten_shape(struct ckpt_call *call)
{
    const struct flatten_attr *attr = call->attr;
    int64_t end = 0;
    if (call->n_in > FLATTEN_PARTS)
        return ckpt_call_fail(call, "more than %d operands", (int)FLATTEN_PARTS);
    for (int i = 0; i < call->n_in; i++) {
        if (call_float(call, i))
            return CKPT_ESHAPE;
        if (attr->offset[i] < end)
            return ckpt_call_fail(call, "operand %d overlaps the one before it", i);
        end = attr->offset[i] + desc_numel(&call->in[i]);
    }
    if (end > attr->numel)
        return ckpt_call_fail(call, "the operands exceed the %lld elements of the result",
                              (long long)attr->numel);
    call->out[0] =
        (struct ckpt_desc){.dtype = attr->dtype, .ndim = 1, .shape = {attr->numel}, .stride = {1}};
    return CKPT_OK;
}

OPS_DEF(flatten, .shape = flatten_shape);

static int requests_shape(struct ckpt_call *call)
{
    call->out[0] =
        (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 1, .shape = {CKPT_REQUESTS}, .stride = {1}};
    return CKPT_OK;
}

OPS_DEF(requests, .shape = requests_shape);
