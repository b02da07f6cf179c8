/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: shapes, gradients and costs of softmax(scale q k^T + bias) v per head. */
#include <math.h>
#include <string.h>
#include "decompose.h"
#include "attention.h"
#include "attention_decompose.h"
#include "attention_fold.h"
#include "attention_sequence.h"
#include "call.h"
#include "core/sized.h"
#include "sequence.h"

static bool last_axis_dense(const struct ckpt_desc *d)
{
    return d->stride[d->ndim - 1] == 1 || d->shape[d->ndim - 1] == 1;
}

int attention_check(struct ckpt_call *call, int q_ndim, int k_ndim)
{
    for (int i = 0; i < 3; i++) {
        const struct ckpt_desc *d = &call->in[i];
        if (call_float(call, i))
            return CKPT_ESHAPE;
        if (d->dtype != call->in[0].dtype)
            return ckpt_call_fail(call, "q, k and v must have the same dtype");
        if (d->ndim != (i ? k_ndim : q_ndim))
            return ckpt_call_fail(call, "%c has %d axes and must have %d", "qkv"[i], d -> ndim,
                                  i ? k_ndim : q_ndim);
        if (!last_axis_dense(d))
            return ckpt_call_fail(call, "the last axis of %c is not dense; use ckpt_contiguous",
                                  "qkv"[i]);
    }
    if (!desc_same_shape(&call->in[1], &call->in[2]))
        return ckpt_call_fail(call, "k and v must have the same shape");
    return CKPT_OK;
}

void attention_lse(struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[0];
    struct ckpt_desc *lse = &call->out[1];
    *lse = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = q->ndim - 1};
    memcpy(lse->shape, q->shape, sizeof lse->shape);
    lse->shape[q->ndim - 3] = q->shape[q->ndim - 2];
    lse->shape[q->ndim - 2] = q->shape[q->ndim - 3];
    desc_dense(lse);
}

ckpt_tensor attention_rows_dense(ckpt_tape *t, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    return d.ndim < 1 || last_axis_dense(&d) ? x : ckpt_contiguous(t, x);
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Optional operand `which` of a call with `plain` required operands, or NULL if it is absent. */
static const struct ckpt_desc *extra_of(const struct ckpt_call *call, int plain, int which)
{
    return call->n_in > plain && call->in[plain + which].ndim >= 0 ? &call->in[plain + which]
                                                                   : NULL;
}

static int check_bias(struct ckpt_call *call, int plain)
{
    const struct ckpt_desc *q = &call->in[ATTENTION_Q], *k = &call->in[ATTENTION_K];
    const struct ckpt_desc *bias = extra_of(call, plain, ATTENTION_BIAS);
    struct ckpt_desc all = {.ndim = q->ndim};
    if (!bias)
        return CKPT_OK;
    if (call_float(call, plain + ATTENTION_BIAS))
        return CKPT_ESHAPE;
    memcpy(all.shape, q->shape, sizeof all.shape);
    all.shape[q->ndim - 3] = q->shape[q->ndim - 2];
    all.shape[q->ndim - 2] = q->shape[q->ndim - 3];
    all.shape[q->ndim - 1] = k->shape[k->ndim - 3];
    bool fits = bias->ndim <= all.ndim;
    for (int i = 1; fits && i <= bias->ndim; i++) {
        int64_t size = bias->shape[bias->ndim - i];
        fits = size == 1 || size == all.shape[all.ndim - i];
    }
    return fits ? CKPT_OK
                : ckpt_call_fail(call,
                                 "the bias must broadcast to [..., H, L, M], with H %lld, "
                                 "L %lld and M %lld",
                                 (long long)q->shape[q->ndim - 2], (long long)q->shape[q->ndim - 3],
                                 (long long)k->shape[k->ndim - 3]);
}

/* The operand must be i32 with the leading axes of q; `first` also has the axis of queries. */
static int check_places(struct ckpt_call *call, int plain, int which)
{
    const struct ckpt_desc *q = &call->in[ATTENTION_Q];
    const struct ckpt_desc *x = extra_of(call, plain, which);
    const int ndim = q->ndim - (which == ATTENTION_FIRST ? 2 : 3);
    if (!x)
        return CKPT_OK;
    bool fits = x->dtype == CKPT_I32 && x->ndim == ndim;
    for (int i = 0; fits && i < ndim; i++)
        fits = x->shape[i] == q->shape[i];
    return fits ? CKPT_OK
                : ckpt_call_fail(call, which == ATTENTION_FIRST
                                           ? "first must be i32 [..., L], the axes of q but the "
                                             "last two"
                                           : "lengths must be i32 [...], the axes of q but the "
                                             "last three");
}

static int check_heads(struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[ATTENTION_Q], *k = &call->in[ATTENTION_K];
    const int64_t heads = q->shape[q->ndim - 2], groups = k->shape[k->ndim - 2];
    for (int i = 0; i < q->ndim; i++)
        if (i < q->ndim - 3 || i == q->ndim - 1)
            if (q->shape[i] != k->shape[i])
                return ckpt_call_fail(call, "axis %d has size %lld in q and %lld in k", i,
                                      (long long)q->shape[i], (long long)k->shape[i]);
    if (heads != groups && (groups == 0 || heads % groups))
        return ckpt_call_fail(call, "%lld heads of q are not a multiple of %lld heads of k",
                              (long long)heads, (long long)groups);
    return CKPT_OK;
}

static int attention_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[ATTENTION_Q];
    if (q->ndim < 3)
        return ckpt_call_fail(call, "q must be [..., L, H, D]");
    if (attention_check(call, q->ndim, q->ndim) || check_heads(call) ||
        check_bias(call, ATTENTION_PLAIN) || check_places(call, ATTENTION_PLAIN, ATTENTION_FIRST) ||
        check_places(call, ATTENTION_PLAIN, ATTENTION_LENGTHS))
        return CKPT_ESHAPE;
    call_like_memory(call, 0, 0);
    attention_lse(call);
    return CKPT_OK;
}

static int attention_dx_shape(struct ckpt_call *call)
{
    for (int i = 0; i < 3; i++)
        call_like_memory(call, i, i);
    return CKPT_OK;
}

/* The gradient of the bias, summed over the sequences and heads that share it. */
static int attention_dbias_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[ATTENTION_Q], *k = &call->in[ATTENTION_K];
    const struct attention_fold f =
        attention_fold_of(q, extra_of(call, ATTENTION_DX_PLAIN, ATTENTION_BIAS));
    struct ckpt_desc *out = &call->out[0];
    *out = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = q->ndim};
    memcpy(out->shape, f.kept, (size_t)f.n * sizeof *f.kept);
    out->shape[q->ndim - 2] = q->shape[q->ndim - 3];
    out->shape[q->ndim - 1] = k->shape[k->ndim - 3];
    desc_dense(out);
    return CKPT_OK;
}

/* ---- gradients ------------------------------------------------------------------------------ */

static ckpt_tensor bias_gradient(struct ckpt_grad *grad, int n_in, const ckpt_tensor *in)
{
    ckpt_tensor whole = ops_record1(grad->tape, &op_attention_dbias, n_in, in, grad->attr,
                                    sizeof(struct attention_attr));
    struct ckpt_desc bias = ckpt_desc_of(grad->tape, in[ATTENTION_DX_PLAIN + ATTENTION_BIAS]);
    struct ckpt_desc have = ckpt_desc_of(grad->tape, whole);
    return desc_numel(&have) == desc_numel(&bias)
               ? ckpt_reshape(grad->tape, whole, bias.ndim, bias.shape)
               : ops_sum_to(grad->tape, whole, &bias);
}

static void attention_grad(struct ckpt_grad *grad)
{
    const int extras = grad->n_in - ATTENTION_PLAIN;
    ckpt_tensor in[ATTENTION_DX_PLAIN + ATTENTION_EXTRAS] = {
        grad->in[0],  grad->in[1],  grad->in[2],
        grad->out[0], grad->out[1], attention_rows_dense(grad->tape, grad->dout[0])};
    ckpt_tensor out[3] = {CKPT_NONE, CKPT_NONE, CKPT_NONE};
    for (int i = 0; i < extras; i++)
        in[ATTENTION_DX_PLAIN + i] = grad->in[ATTENTION_PLAIN + i];
    if (grad->need[0] || grad->need[1] || grad->need[2])
        ckpt_record(grad->tape, &op_attention_dx, ATTENTION_DX_PLAIN + extras, in, 3, out,
                    grad->attr, sizeof(struct attention_attr));
    for (int i = 0; i < 3; i++)
        grad->din[i] = grad->need[i] ? out[i] : CKPT_NONE;
    if (extras && grad->need[ATTENTION_PLAIN + ATTENTION_BIAS])
        grad->din[ATTENTION_PLAIN + ATTENTION_BIAS] =
            bias_gradient(grad, ATTENTION_DX_PLAIN + extras, in);
}

/* ---- second gradients ------------------------------------------------------------------------ */

static const ckpt_tensor *extras_of(const struct ckpt_grad *g, const ckpt_tensor *in)
{
    return g->n_in > ATTENTION_DX_PLAIN ? in + ATTENTION_DX_PLAIN : NULL;
}

static void decompose_attention_dx(const struct ckpt_grad *g, const ckpt_tensor *in,
                                   ckpt_tensor *out)
{
    const int first = ops_count(g->tape);
    ckpt_tensor y = attention_decomposed(g->tape, g->attr, 0.f, in[ATTENTION_Q], in[ATTENTION_K],
                                         in[ATTENTION_V], extras_of(g, in));
    ops_pull(g->tape, first, y, in[ATTENTION_D_O], 3, in, out);
}

OPS_DECOMPOSED(attention_dx_grad, decompose_attention_dx)

/* The bias is expanded to the shape of the op's result, which has all queries and keys. */
static void decompose_attention_dbias(const struct ckpt_grad *g, const ckpt_tensor *in,
                                      ckpt_tensor *out)
{
    ckpt_tape *t = g->tape;
    ckpt_tensor extra[ATTENTION_EXTRAS];
    memcpy(extra, in + ATTENTION_DX_PLAIN, sizeof extra);
    extra[ATTENTION_BIAS] = ckpt_add(t, extra[ATTENTION_BIAS], ops_zeros_like(t, g->out[0]));
    const int first = ops_count(t);
    ckpt_tensor y = attention_decomposed(t, g->attr, 0.f, in[ATTENTION_Q], in[ATTENTION_K],
                                         in[ATTENTION_V], extra);
    ops_pull(t, first, y, in[ATTENTION_D_O], 1, &extra[ATTENTION_BIAS], out);
}

OPS_DECOMPOSED(attention_dbias_grad, decompose_attention_dbias)

/* ---- costs ---------------------------------------------------------------------------------- */

/* Number of visible (query, key) pairs.  Document boundaries and lengths are not known yet, so
 * these do not reduce it. */
static double visible_pairs(const struct attention_attr *attr, int64_t n_queries, int64_t n_keys)
{
    double pairs = 0;
    if (!attr->causal)
        return (double)n_queries * (double)n_keys;
    for (int64_t i = 0; i < n_queries; i++) {
        int64_t seen = max_i64(0, n_keys - n_queries + i + 1);
        pairs += (double)(attr->window ? min_i64(seen, attr->window) : seen);
    }
    return pairs;
}

/* Multiply-adds of one score product: visible pairs over all heads, times the head width. */
static double score_macs(const struct ckpt_call *call)
{
    const struct ckpt_desc *q = &call->in[0], *k = &call->in[1];
    const int64_t width = q->shape[q->ndim - 1], n_queries = q->shape[q->ndim - 3];
    const int64_t heads = desc_numel(q) / (n_queries * width); /* of all sequences */
    return (double)heads * visible_pairs(call->attr, n_queries, k->shape[k->ndim - 3]) *
           (double)width;
}

static void attention_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2 * 2 * score_macs(call); /* q k^T and p v */
}

static void attention_dx_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 2 * 5 * score_macs(call); /* q k^T recomputed, dp, dq, dk, dv */
}

OPS_DEF(attention, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = attention_shape,
        .grad = attention_grad, .cost = attention_cost);

OPS_DEF(attention_dx, .flags = CKPT_OP_STRIDED | CKPT_OP_STRIDED_OUT, .shape = attention_dx_shape,
        .grad = attention_dx_grad, .cost = attention_dx_cost);

OPS_DEF(attention_dbias, .flags = CKPT_OP_STRIDED, .shape = attention_dbias_shape,
        .grad = attention_dbias_grad, .cost = attention_cost,
        /* q k^T recomputed, dp */);

/* ---- recording ------------------------------------------------------------------------------ */

/*
 * With a single key the probability is 1 for any score.  A scale of 0 makes every kernel on every
 * device compute exactly 1, and gradients of q and k that are exactly 0.  Otherwise p (dp - delta)
 * would leave the rounding difference of two sums of the same numbers, and an optimizer without
 * epsilon turns that into full steps.  Where lengths are known at run time only, the kernels apply
 * the same rule to each sequence or query.
 */
static float scale_of(const struct ckpt_attention_spec *spec, const struct ckpt_desc *k)
{
    if (k->ndim < 3 || k->shape[k->ndim - 3] == 1)
        return 0.f;
    return spec->scale != 0.f ? spec->scale : 1.f / sqrtf((float)k->shape[k->ndim - 1]);
}

/* Normalises the attributes: calls with the same visible keys get equal attributes, so they share
 * kernels and measured times. */
static struct attention_attr attr_of(const struct ckpt_attention_spec *spec,
                                     const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    struct attention_attr a = {.scale = scale_of(spec, k), .causal = spec->causal};
    if (q->ndim < 3 || k->ndim < 3) /* the shape rule fails */
        return a;
    if (spec->window < k->shape[k->ndim - 3])
        a.window = spec->window;
    /* a single query is the last one and sees every key */
    if (q->shape[q->ndim - 3] == 1 && !a.window)
        a.causal = 0;
    return a;
}

/* The rule of the op, for operands that it does not get: false after an error. */
static bool fits(ckpt_tape *t, const struct attention_attr *attr, const ckpt_tensor *in)
{
    enum { N = ATTENTION_PLAIN + ATTENTION_EXTRAS };
    struct ckpt_desc desc[N], out[2] = {{.ndim = 0}, {.ndim = 0}};
    char reason[200] = "";
    struct ckpt_call call = {.n_in = N,
                             .n_out = 2,
                             .in = desc,
                             .out = out,
                             .attr = attr,
                             .message = reason,
                             .message_size = sizeof reason};
    for (int i = 0; i < N; i++)
        desc[i] = in[i].id ? ckpt_desc_of(t, in[i]) : (struct ckpt_desc){.ndim = -1};
    if (!attention_shape(&call))
        return true;
    ops_refuse(t, 3, in, "%s", reason);
    return false;
}

/* Operands as of the op, with all extras. */
static ckpt_tensor record_capped(ckpt_tape *t, const struct attention_attr *attr, float cap,
                                 const ckpt_tensor *in)
{
    OPS_CALL(t);
    return fits(t, attr, in) ? attention_decomposed(t, attr, cap, in[ATTENTION_Q], in[ATTENTION_K],
                                                    in[ATTENTION_V], in + ATTENTION_PLAIN)
                             : CKPT_NONE;
}

ckpt_tensor ckpt_attention(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                           ckpt_tensor bias, const struct ckpt_attention_spec *spec)
{
    OPS_CALL(t);
    struct ckpt_attention_spec whole = CKPT_ATTENTION_INIT;
    struct ckpt_desc of_q = ckpt_desc_of(t, q), of_k = ckpt_desc_of(t, k);
    if (spec && sized_read("struct ckpt_attention_spec", &whole, sizeof whole, spec)) {
        ckpt_tape_fail(t, CKPT_EINVAL, "attention: %s", error_get());
        return CKPT_NONE;
    }
    if (whole.window < 0 || (whole.window && !whole.causal) || !isfinite(whole.scale) ||
        !(whole.cap >= 0.f && isfinite(whole.cap))) {
        ckpt_tape_fail(t, CKPT_EINVAL,
                       "attention: window %lld, scale %g, cap %g: a window must be positive and "
                       "needs causal, a scale must be finite, a cap positive",
                       (long long)whole.window, (double)whole.scale, (double)whole.cap);
        return CKPT_NONE;
    }
    if (bias.id && whole.bias.id) {
        ckpt_tape_fail(t, CKPT_EINVAL,
                       "attention: the bias is given both in the call and in the spec");
        return CKPT_NONE;
    }
    bias = bias.id ? bias : whole.bias;
    if (sequence_is_split(t, q, of_q.ndim - 3) && sequence_is_split(t, k, of_q.ndim - 3) &&
        sequence_is_split(t, v, of_q.ndim - 3)) {
        whole.bias = CKPT_NONE;
        return attention_of_sequence(t, (const ckpt_tensor[]){q, k, v}, bias, &whole,
                                     ckpt_attention);
    }
    if (whole.sink.id)
        return attention_with_sink(t, q, k, v, bias, &whole, ckpt_attention);
    const struct attention_attr attr = attr_of(&whole, &of_q, &of_k);
    ckpt_tensor in[] = {q, k, v, bias, whole.first, whole.lengths}, out[2] = {CKPT_NONE, CKPT_NONE};
    const bool plain = !bias.id && !whole.first.id && !whole.lengths.id;
    if (whole.cap > 0.f)
        return record_capped(t, &attr, whole.cap, in);
    ckpt_record(t, &op_attention, plain ? ATTENTION_PLAIN : ATTENTION_PLAIN + ATTENTION_EXTRAS, in,
                2, out, &attr, sizeof attr);
    return out[0];
}
