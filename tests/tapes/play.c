/* SPDX-License-Identifier: Apache-2.0 */
/* Records a recording on a tape. */
#include <stdio.h>
#include "recording.h"

static const char *const kind_names[] = {
#define X(name, call, shape, fp64) #name,
#include "kinds.def"
#undef X
};

/* ---- constants -------------------------------------------------------------------------------*/

static ckpt_tensor index_of(ckpt_tape *t, const struct recording *r, const struct call *c,
                            int which)
{
    struct value shape;
    int32_t index[MAX_NUMEL];
    char name[24];
    recording_indices(r, c, which, &shape, index);
    snprintf(name, sizeof name, "i%d.%d", c->out, which);
    return ckpt_constant(t, name, CKPT_I32, shape.ndim, shape.shape, index);
}

static ckpt_tensor table_of(ckpt_tape *t, const struct recording *r, const struct call *c)
{
    struct value shape;
    float table[MAX_NUMEL];
    char name[24];
    recording_table(r, c, &shape, table);
    snprintf(name, sizeof name, "t%d", c->out);
    return ckpt_constant(t, name, CKPT_F32, shape.ndim, shape.shape, table);
}

/* ---- calls -----------------------------------------------------------------------------------*/

struct played {
    const struct recording *r;
    const struct call *c;
    const struct value *v; /* the result */
    const ckpt_tensor *in;
};

static ckpt_tensor play_unary(ckpt_tape *t, enum unary f, ckpt_tensor x)
{
#define X(name, f, d, distance)                                                                    \
    case UNARY_##name:                                                                             \
        return ckpt_##name(t, x);
    switch (f) {
        UNARY(X)
    default:
        return CKPT_NONE;
    }
#undef X
}

static ckpt_tensor play_elements(ckpt_tape *t, const struct played *p)
{
    const struct call *c = p->c;
    const ckpt_tensor *in = p->in;
    switch (c->kind) {
    case CALL_UNARY:
        return play_unary(t, c->unary, in[0]);
    case CALL_AFFINE:
        return ckpt_affine(t, in[0], c->a, c->b);
    case CALL_LEAKY_RELU:
        return ckpt_leaky_relu(t, in[0], c->a);
    case CALL_ELU:
        return ckpt_elu(t, in[0], c->a);
    case CALL_CLAMP:
        return ckpt_clamp(t, in[0], c->a, c->b);
    case CALL_POW_SCALAR:
        return ckpt_pow_scalar(t, in[0], c->a);
    case CALL_STOP_GRADIENT:
        return ckpt_stop_gradient(t, in[0]);
    case CALL_CONTIGUOUS:
        return ckpt_contiguous(t, in[0]);
    case CALL_CAST:
        return ckpt_cast(t, in[0], p->v->dtype);
    case CALL_ADD:
        return ckpt_add(t, in[0], in[1]);
    case CALL_SUB:
        return ckpt_sub(t, in[0], in[1]);
    case CALL_MUL:
        return ckpt_mul(t, in[0], in[1]);
    case CALL_DIV:
        return ckpt_div(t, in[0], in[1]);
    case CALL_POW:
        return ckpt_pow(t, in[0], in[1]);
    case CALL_MAXIMUM:
        return ckpt_maximum(t, in[0], in[1]);
    case CALL_MINIMUM:
        return ckpt_minimum(t, in[0], in[1]);
    case CALL_WHERE:
        return ckpt_where(t, ckpt_lt(t, in[0], in[1]), in[2], in[3]);
    case CALL_MASKED_FILL:
        return ckpt_masked_fill(t, in[2], ckpt_not(t, ckpt_ge(t, in[0], in[1])), c->a);
    case CALL_EXPAND:
        return ckpt_expand(t, in[0], p->v->ndim, p->v->shape);
    case CALL_MODULATE:
        return ckpt_modulate(t, in[0], in[1], in[2]);
    case CALL_GATED:
        return ckpt_gated_residual(t, in[0], in[1], in[2]);
    case CALL_FAKE_QUANTIZE:
        return ckpt_fake_quantize(t, in[0], in[1], in[2], (int)c->begin, (int)c->end);
    default:
        return CKPT_NONE;
    }
}

static ckpt_tensor play_rows(ckpt_tape *t, const struct played *p)
{
    const struct call *c = p->c;
    const ckpt_tensor *in = p->in;
    switch (c->kind) {
    case CALL_SUM:
        return ckpt_sum(t, in[0], c->mask);
    case CALL_MEAN:
        return ckpt_mean(t, in[0], c->mask);
    case CALL_AMAX:
        return ckpt_amax(t, in[0], c->mask);
    case CALL_AMIN:
        return ckpt_amin(t, in[0], c->mask);
    case CALL_PROD:
        return ckpt_prod(t, in[0], c->mask);
    case CALL_VAR:
        return ckpt_var(t, in[0], c->mask, c->begin);
    case CALL_NORM:
        return ckpt_norm(t, in[0], c->mask);
    case CALL_LOGSUMEXP:
        return ckpt_logsumexp(t, in[0], c->mask);
    case CALL_SOFTMAX:
        return ckpt_softmax(t, in[0], c->axis);
    case CALL_LOG_SOFTMAX:
        return ckpt_log_softmax(t, in[0], c->axis);
    case CALL_CUMSUM:
        return ckpt_cumsum(t, in[0], c->axis);
    case CALL_SORT:
        return ckpt_sort(t, in[0], c->flag[0], NULL);
    case CALL_TOPK:
        return ckpt_topk(t, in[0], c->end, NULL);
    case CALL_LAYER_NORM:
        return ckpt_layer_norm(t, in[0], in[1], in[2], 1e-3f);
    case CALL_RMS_NORM:
        return ckpt_rms_norm(t, in[0], in[1], 1e-3f);
    case CALL_LAYER_NORM_MODULATE:
        return ckpt_layer_norm_modulate(t, in[0], in[1], in[2], 1e-3f);
    case CALL_GROUP_NORM:
        return ckpt_group_norm_silu(t, in[0], in[1], in[2], (int)c->begin, 1e-3f, c->flag[0]);
    case CALL_INSTANCE_NORM:
        return ckpt_instance_norm(t, in[0], in[1], in[2], 1e-3f);
    case CALL_BATCH_NORM:
        return ckpt_batch_norm(t, in[0], in[1], in[2], CKPT_NONE, CKPT_NONE, 0.1f, 1e-3f);
    case CALL_ROPE:
        return ckpt_rope(t, in[0], table_of(t, p->r, c), c->axis);
    case CALL_ROPE_HALVES:
        return ckpt_rope_halves(t, in[0], table_of(t, p->r, c), c->axis);
    case CALL_RMS_NORM_ROPE:
        return ckpt_rms_norm_rope(t, in[0], in[1], 1e-3f, table_of(t, p->r, c), c->axis);
    default:
        return CKPT_NONE;
    }
}

static ckpt_tensor play_conv(ckpt_tape *t, const struct played *p)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int k = 0; k < p->v->ndim - 2; k++) {
        spec.stride[k] = p->c->axes[0];
        spec.dilation[k] = p->c->axes[1];
        spec.before[k] = spec.after[k] = p->c->axes[3];
    }
    spec.groups = p->c->axes[2];
    return p->c->kind == CALL_CONV ? ckpt_conv(t, p->in[0], p->in[1], p->in[2], &spec)
                                   : ckpt_conv_transpose(t, p->in[0], p->in[1], p->in[2], &spec);
}

static ckpt_tensor play_attention(ckpt_tape *t, const struct played *p)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    const struct call *c = p->c;
    spec.scale = c->a;
    spec.causal = c->flag[0];
    spec.window = c->begin;
    if (c->mask & 1)
        spec.lengths = index_of(t, p->r, c, 0);
    if (c->mask & 2)
        spec.first = index_of(t, p->r, c, 1);
    return ckpt_attention(t, p->in[0], p->in[1], p->in[2], p->in[3], &spec);
}

static ckpt_tensor play_products(ckpt_tape *t, const struct played *p)
{
    const struct call *c = p->c;
    const ckpt_tensor *in = p->in;
    switch (c->kind) {
    case CALL_LINEAR:
        return ckpt_linear(t, in[0], in[1], in[2]);
    case CALL_LINEAR_ADD:
        return ckpt_linear_add(t, in[0], in[1], in[2], in[3]);
    case CALL_MATMUL:
        return ckpt_matmul(t, in[0], in[1], c->flag[0], c->flag[1]);
    case CALL_GROUPED_MATMUL:
        return ckpt_grouped_matmul(t, in[0], in[1], index_of(t, p->r, c, 0), c->flag[0]);
    case CALL_CONV:
    case CALL_CONV_TRANSPOSE:
        return play_conv(t, p);
    case CALL_ATTENTION:
        return play_attention(t, p);
    case CALL_CROSS_ATTENTION:
        return ckpt_cross_attention(t, in[0], in[1], in[2], index_of(t, p->r, c, 0), c->a);
    default:
        return CKPT_NONE;
    }
}

static ckpt_tensor play_views(ckpt_tape *t, const struct played *p)
{
    const struct call *c = p->c;
    const ckpt_tensor *in = p->in;
    switch (c->kind) {
    case CALL_SLICE:
        return ckpt_slice(t, in[0], c->axis, c->begin, c->end);
    case CALL_CONCAT:
        return ckpt_concat(t, c->axis, c->n_in, in);
    case CALL_STACK:
        return ckpt_stack(t, c->axis, c->n_in, in);
    case CALL_RESHAPE:
        return ckpt_reshape(t, in[0], p->v->ndim, p->v->shape);
    case CALL_PERMUTE:
        return ckpt_permute(t, in[0], c->axes);
    case CALL_TRANSPOSE:
        return ckpt_transpose(t, in[0], c->axis, (int)c->begin);
    case CALL_UNSQUEEZE:
        return ckpt_unsqueeze(t, in[0], c->axis);
    case CALL_SQUEEZE:
        return ckpt_squeeze(t, in[0], c->axis);
    case CALL_PAD:
        return ckpt_pad(t, in[0], c->axis, c->begin, c->end, (enum ckpt_padding)c->mask, 0.f);
    case CALL_ROLL:
        return ckpt_roll(t, in[0], c->axis, c->begin);
    case CALL_REPEAT: {
        const int64_t times[MAX_RANK] = {c->axes[0], c->axes[1], c->axes[2], c->axes[3]};
        return ckpt_repeat(t, in[0], times);
    }
    case CALL_FLIP:
        return ckpt_flip(t, in[0], c->axis);
    case CALL_ROWS:
        return ckpt_index_select(t, in[0], c->axis, index_of(t, p->r, c, 0));
    case CALL_EMBEDDING:
        return ckpt_embedding(t, in[0], index_of(t, p->r, c, 0), c->begin);
    case CALL_GATHER:
        return ckpt_gather(t, in[0], c->axis, index_of(t, p->r, c, 0));
    case CALL_SCATTER_ADD:
        return ckpt_scatter_add(t, in[0], c->axis, index_of(t, p->r, c, 0), in[1]);
    case CALL_INDEX_ADD:
        return ckpt_index_add(t, in[0], c->axis, index_of(t, p->r, c, 0), in[1]);
    case CALL_QUANTIZE:
        return ckpt_quantize(t, in[0], in[1], NULL, NULL);
    default:
        return CKPT_NONE;
    }
}

static ckpt_tensor play_windows(ckpt_tape *t, const struct played *p)
{
    const struct call *c = p->c;
    const int64_t sizes[] = {c->begin, c->begin};
    struct ckpt_pool_spec spec = CKPT_POOL_INIT;
    spec.stride[0] = spec.stride[1] = c->end;
    for (int k = 0; k < p->v->ndim - 2; k++)
        spec.before[k] = spec.after[k] = c->axes[0];
    spec.count_include_pad = c->flag[0];
    switch (c->kind) {
    case CALL_MAX_POOL:
        return ckpt_max_pool(t, p->in[0], sizes, &spec);
    case CALL_AVG_POOL:
        return ckpt_avg_pool(t, p->in[0], sizes, &spec);
    case CALL_ADAPTIVE_AVG_POOL:
        return ckpt_adaptive_avg_pool(t, p->in[0], sizes);
    case CALL_ADAPTIVE_MAX_POOL:
        return ckpt_adaptive_max_pool(t, p->in[0], sizes);
    case CALL_RESIZE_NEAREST:
        return ckpt_resize_nearest(t, p->in[0], sizes);
    case CALL_RESIZE_LINEAR:
        return ckpt_resize_linear(t, p->in[0], sizes);
    case CALL_UPSAMPLE_NEAREST:
        return ckpt_upsample_nearest(t, p->in[0], sizes);
    case CALL_PIXEL_SHUFFLE:
        return ckpt_pixel_shuffle(t, p->in[0], sizes);
    default:
        return CKPT_NONE;
    }
}

static ckpt_tensor play_losses(ckpt_tape *t, const struct played *p)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    const struct call *c = p->c;
    const ckpt_tensor *in = p->in;
    spec.label_smoothing = c->a;
    spec.z_loss = c->b;
    spec.ignore_index = c->flag[0] ? 0 : -100;
    switch (c->kind) {
    case CALL_CROSS_ENTROPY:
        return ckpt_cross_entropy(t, in[0], index_of(t, p->r, c, 0), &spec);
    case CALL_LINEAR_CROSS_ENTROPY:
        return ckpt_linear_cross_entropy(t, in[0], in[1], in[2], index_of(t, p->r, c, 0), &spec);
    case CALL_MASKED_MEAN:
        return ckpt_masked_mean(t, in[0], index_of(t, p->r, c, 0));
    case CALL_MSE:
        return ckpt_mse(t, in[0], in[1], CKPT_NONE);
    case CALL_L1:
        return ckpt_l1(t, in[0], in[1]);
    case CALL_HUBER:
        return ckpt_huber(t, in[0], in[1], c->a, CKPT_REDUCE_MEAN);
    case CALL_SMOOTH_L1:
        return ckpt_smooth_l1(t, in[0], in[1], c->a, CKPT_REDUCE_SUM);
    case CALL_BCE:
        return ckpt_bce_with_logits(t, in[0], in[1], CKPT_NONE, CKPT_REDUCE_MEAN);
    case CALL_KL_DIV:
        return ckpt_kl_div(t, in[0], in[1], true, CKPT_REDUCE_MEAN);
    case CALL_KL_NORMAL:
        return ckpt_kl_normal(t, in[0], in[1]);
    default:
        return CKPT_NONE;
    }
}

/* ---- a recording -----------------------------------------------------------------------------*/

/* The result of a call with one result: of the family that knows it. */
static ckpt_tensor play_call(ckpt_tape *t, const struct played *p)
{
    static ckpt_tensor (*const families[])(ckpt_tape * t, const struct played *p) = {
        play_elements, play_rows, play_products, play_views, play_windows, play_losses};
    ckpt_tensor x = CKPT_NONE;
    for (size_t i = 0; i < sizeof families / sizeof *families && !x.id; i++)
        x = families[i](t, p);
    return x;
}

static void check_shape(ckpt_tape *t, const struct call *c, ckpt_tensor x, const struct value *v)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    bool same = x.id && d.dtype == v->dtype && d.ndim == v->ndim;
    for (int k = 0; k < v->ndim && same; k++)
        same = d.shape[k] == v->shape[k];
    if (!same)
        ckpt_tape_fail(t, CKPT_ESHAPE, "value %d, of %s, has another shape or dtype than it should",
                       c->out, kind_names[c->kind]);
}

ckpt_tensor recording_play(const struct recording *r, ckpt_tape *t, const ckpt_tensor *param)
{
    ckpt_tensor v[MAX_VALUES] = {{0}}, in[MAX_IN] = {{0}};
    for (int i = 0; i < r->n_calls; i++) {
        const struct call *c = &r->call[i];
        const struct value *of = &r->value[c->out];
        char name[24];
        for (int k = 0; k < c->n_in; k++)
            in[k] = c->in[k] < 0 ? CKPT_NONE : v[c->in[k]];
        snprintf(name, sizeof name, "x%d", c->out);
        if (c->kind == CALL_PARAM)
            v[c->out] = param[c->out];
        else if (c->kind == CALL_INPUT)
            v[c->out] = ckpt_input(t, name, of->dtype, of->ndim, of->shape);
        else if (c->kind == CALL_SPLIT)
            ckpt_split(t, in[0], c->axis, c->n_out, &v[c->out]);
        else
            v[c->out] = play_call(t, &(struct played){r, c, of, in});
        for (int k = 0; k < c->n_out && c->kind != CALL_PARAM; k++)
            check_shape(t, c, v[c->out + k], of + k);
    }
    return v[r->loss];
}
