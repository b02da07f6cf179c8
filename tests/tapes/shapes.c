/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes and dtypes of the results of a recording's calls, without the library. */
#include <string.h>
#include "recording.h"

/* v: a copy of the first operand, to be changed to the result.  want: what the caller of
 * recording_infer() has set where a shape does not follow from the operands. */
struct inferred {
    const struct recording *r;
    const struct call *c;
    const struct value *want;
};

static const struct value *operand(const struct inferred *i, int k)
{
    return &i->r->value[i->c->in[k]];
}

static bool has(const struct inferred *i, int k)
{
    return k < i->c->n_in && i->c->in[k] >= 0;
}

static bool same_shape(const struct value *a, const struct value *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

static int64_t last_of(const struct value *v)
{
    return v->ndim ? v->shape[v->ndim - 1] : 0;
}

/* Widens *v so that x broadcasts to it. */
static bool spread(struct value *v, const struct value *x)
{
    struct value wide = x->ndim > v->ndim ? *x : *v;
    for (int k = 1; k <= x->ndim && k <= v->ndim; k++) {
        const int64_t a = v->shape[v->ndim - k], b = x->shape[x->ndim - k];
        if (a != b && a != 1 && b != 1)
            return false;
        wide.shape[wide.ndim - k] = a == 1 ? b : a;
    }
    v->ndim = wide.ndim;
    memcpy(v->shape, wide.shape, sizeof v->shape);
    return true;
}

bool value_broadcasts(const struct value *x, const struct value *to)
{
    struct value wide = *to;
    return spread(&wide, x) && same_shape(&wide, to);
}

/* Whether operands from `first` on have the dtype of the first of them. */
static bool one_dtype(const struct inferred *i, int first)
{
    for (int k = first + 1; k < i->c->n_in; k++)
        if (has(i, k) && operand(i, k)->dtype != operand(i, first)->dtype)
            return false;
    return true;
}

static bool vector(const struct inferred *i, int k, int64_t n)
{
    return !has(i, k) || (operand(i, k)->ndim == 1 && operand(i, k)->shape[0] == n);
}

static bool has_axis(const struct inferred *i, const struct value *v)
{
    return i->c->axis >= 0 && i->c->axis < v->ndim;
}

static bool to_scalar(struct value *v)
{
    *v = (struct value){.dtype = CKPT_F32};
    return true;
}

/* ---- elements --------------------------------------------------------------------------------*/

static bool shape_given(const struct inferred *i, struct value *v)
{
    *v = *i->want;
    return true;
}

static bool shape_same(const struct inferred *i, struct value *v)
{
    (void)i, (void)v;
    return true;
}

static bool shape_cast(const struct inferred *i, struct value *v)
{
    (void)i;
    v->dtype = v->dtype == CKPT_F32 ? CKPT_BF16 : CKPT_F32;
    return true;
}

static bool shape_broadcast(const struct inferred *i, struct value *v)
{
    bool wide = false;
    for (int k = 0; k < i->c->n_in; k++) {
        if (!spread(v, operand(i, k)))
            return false;
        wide |= operand(i, k)->dtype == CKPT_F32;
    }
    v->dtype = wide ? CKPT_F32 : CKPT_BF16;
    return true;
}

static bool shape_where(const struct inferred *i, struct value *v)
{
    const bool fits = shape_broadcast(i, v);
    v->dtype = operand(i, 2)->dtype;
    return fits && one_dtype(i, 2);
}

static bool shape_filled(const struct inferred *i, struct value *v)
{
    *v = *operand(i, 2);
    return value_broadcasts(operand(i, 0), v) && value_broadcasts(operand(i, 1), v);
}

static bool shape_expand(const struct inferred *i, struct value *v)
{
    const struct value x = *v;
    *v = *i->want;
    v->dtype = x.dtype;
    return value_broadcasts(&x, v);
}

/* The operands from the second on have the rank of x, its last axis, and its others or 1. */
static bool shape_modulate(const struct inferred *i, struct value *v)
{
    if (!v->ndim || !one_dtype(i, 0))
        return false;
    for (int k = 1; k < i->c->n_in; k++) {
        const struct value *w = operand(i, k);
        if (w->ndim != v->ndim || last_of(w) != last_of(v) || !value_broadcasts(w, v))
            return false;
    }
    return true;
}

static bool shape_gated(const struct inferred *i, struct value *v)
{
    return shape_modulate(i, v) && same_shape(v, operand(i, 2));
}

static bool shape_quantized(const struct inferred *i, struct value *v)
{
    for (int k = 1; k < i->c->n_in; k++)
        if (has(i, k) && (operand(i, k)->dtype != CKPT_F32 || !value_broadcasts(operand(i, k), v)))
            return false;
    return true;
}

/* ---- rows ------------------------------------------------------------------------------------*/

static bool shape_reduced(const struct inferred *i, struct value *v)
{
    int64_t n = 1;
    v->dtype = CKPT_F32;
    if (!v->ndim || !i->c->mask || i->c->mask >= 1u << v->ndim)
        return false;
    for (int k = 0; k < v->ndim; k++) {
        n *= i->c->mask >> k & 1 ? v->shape[k] : 1;
        v->shape[k] = i->c->mask >> k & 1 ? 1 : v->shape[k];
    }
    return i->c->kind != CALL_VAR || n > i->c->begin;
}

static bool shape_axis(const struct inferred *i, struct value *v)
{
    return has_axis(i, v);
}

static bool shape_topk(const struct inferred *i, struct value *v)
{
    if (!v->ndim || (i->c->kind == CALL_TOPK && (i->c->end < 1 || i->c->end > last_of(v))))
        return false;
    v->shape[v->ndim - 1] = i->c->kind == CALL_TOPK ? i->c->end : last_of(v);
    return true;
}

static bool shape_norm(const struct inferred *i, struct value *v)
{
    return v->ndim && one_dtype(i, 0) && vector(i, 1, last_of(v)) && vector(i, 2, last_of(v));
}

static bool shape_group_norm(const struct inferred *i, struct value *v)
{
    const bool single = value_numel(v) == last_of(v); /* has no variance over a batch */
    return v->ndim >= 2 && last_of(v) % i->c->begin == 0 && shape_norm(i, v) &&
           (i->c->kind != CALL_BATCH_NORM || !single);
}

static bool shape_rope(const struct inferred *i, struct value *v)
{
    return has_axis(i, v) && i->c->axis + 1 < v->ndim && last_of(v) % 2 == 0 && shape_norm(i, v);
}

/* ---- products --------------------------------------------------------------------------------*/

static bool shape_linear(const struct inferred *i, struct value *v)
{
    const struct value *w = operand(i, 1);
    if (v->ndim < 1 || !one_dtype(i, 0) || w->ndim != 2 || w->shape[1] != last_of(v))
        return false;
    v->shape[v->ndim - 1] = w->shape[0];
    return vector(i, 2, w->shape[0]) && (!has(i, 3) || same_shape(operand(i, 3), v));
}

static bool shape_matmul(const struct inferred *i, struct value *v)
{
    struct value a = *operand(i, 0), b = *operand(i, 1);
    const bool *transposed = i->c->flag;
    if (a.ndim < 2 || b.ndim < 2 || a.dtype != b.dtype)
        return false;
    const int64_t rows = a.shape[a.ndim - (transposed[0] ? 1 : 2)];
    const int64_t inner = a.shape[a.ndim - (transposed[0] ? 2 : 1)];
    const int64_t cols = b.shape[b.ndim - (transposed[1] ? 2 : 1)];
    if (b.shape[b.ndim - (transposed[1] ? 1 : 2)] != inner)
        return false;
    a.ndim -= 2;
    b.ndim -= 2;
    *v = a;
    if (!spread(v, &b))
        return false;
    v->shape[v->ndim] = rows;
    v->shape[v->ndim + 1] = cols;
    v->ndim += 2;
    return true;
}

static bool shape_grouped(const struct inferred *i, struct value *v)
{
    const struct value *w = operand(i, 1);
    const int inner = i->c->flag[0] ? 2 : 1;
    if (v->ndim != 2 || w->ndim != 3 || !one_dtype(i, 0) || w->shape[inner] != v->shape[1])
        return false;
    v->shape[1] = w->shape[3 - inner];
    return true;
}

/* axes: stride, dilation, groups, padding. */
static bool shape_conv(const struct inferred *i, struct value *v)
{
    const struct value x = *v, *w = operand(i, 1);
    const int64_t stride = i->c->axes[0], dilation = i->c->axes[1], groups = i->c->axes[2];
    const bool transposed = i->c->kind == CALL_CONV_TRANSPOSE;
    if (v->ndim < 3 || w->ndim != v->ndim || !one_dtype(i, 0))
        return false;
    const int64_t in = transposed ? w->shape[0] : last_of(w) * groups;
    const int64_t out = transposed ? last_of(w) * groups : w->shape[0];
    if (in != last_of(&x) || in % groups || out % groups)
        return false;
    for (int k = 1; k + 1 < v->ndim; k++) {
        const int64_t reach = dilation * (w->shape[k] - 1) + 1, both = 2 * i->c->axes[3];
        if (!transposed && x.shape[k] + both < reach)
            return false;
        v->shape[k] = transposed ? (x.shape[k] - 1) * stride - both + reach
                                 : (x.shape[k] + both - reach) / stride + 1;
        if (v->shape[k] < 1)
            return false;
    }
    v->shape[v->ndim - 1] = out;
    return vector(i, 2, out);
}

/* q [..., L, H, D], k and v [..., M, KV, D]; of CROSS_ATTENTION [B, L, H, D] and [R, H, D]. */
static bool shape_attention(const struct inferred *i, struct value *v)
{
    const struct value *key = operand(i, 1);
    const bool crossed = i->c->kind == CALL_CROSS_ATTENTION;
    struct value scores = *v;
    if (v->ndim < 3 || (crossed ? v->ndim != 4 || key->ndim != 3 : key->ndim != v->ndim) ||
        !one_dtype(i, 0) || !same_shape(key, operand(i, 2)) || last_of(key) != last_of(v))
        return false;
    const int64_t heads = v->shape[v->ndim - 2], shared = key->shape[key->ndim - 2];
    if (heads % shared || (crossed && heads != shared))
        return false;
    for (int k = 0; k < v->ndim - 3 && !crossed; k++)
        if (key->shape[k] != v->shape[k])
            return false;
    scores.shape[v->ndim - 3] = heads;
    scores.shape[v->ndim - 2] = v->shape[v->ndim - 3];
    scores.shape[v->ndim - 1] = key->shape[key->ndim - 3];
    return !has(i, 3) || value_broadcasts(operand(i, 3), &scores);
}

/* ---- views -----------------------------------------------------------------------------------*/

static bool shape_split(const struct inferred *i, struct value *v)
{
    if (!has_axis(i, v) || v->shape[i->c->axis] % i->c->n_out)
        return false;
    v->shape[i->c->axis] /= i->c->n_out;
    return true;
}

static bool shape_slice(const struct inferred *i, struct value *v)
{
    const struct call *c = i->c;
    if (!has_axis(i, v) || c->begin < 0 || c->end <= c->begin || c->end > v->shape[c->axis])
        return false;
    v->shape[c->axis] = c->end - c->begin;
    return true;
}

static bool shape_concat(const struct inferred *i, struct value *v)
{
    if (!has_axis(i, v) || !one_dtype(i, 0))
        return false;
    for (int k = 1; k < i->c->n_in; k++) {
        struct value x = *operand(i, k);
        const int64_t n = x.ndim == v->ndim ? x.shape[i->c->axis] : 0;
        x.shape[i->c->axis] = v->shape[i->c->axis];
        if (!same_shape(&x, v))
            return false;
        v->shape[i->c->axis] += n;
    }
    return true;
}

static bool shape_unsqueeze(const struct inferred *i, struct value *v)
{
    const int axis = i->c->axis;
    if (axis < 0 || axis > v->ndim || v->ndim == MAX_RANK)
        return false;
    memmove(v->shape + axis + 1, v->shape + axis, (size_t)(v->ndim - axis) * sizeof *v->shape);
    v->shape[axis] = 1;
    v->ndim++;
    return true;
}

static bool shape_stack(const struct inferred *i, struct value *v)
{
    for (int k = 1; k < i->c->n_in; k++)
        if (!same_shape(operand(i, k), v))
            return false;
    if (!one_dtype(i, 0) || !shape_unsqueeze(i, v))
        return false;
    v->shape[i->c->axis] = i->c->n_in;
    return true;
}

static bool shape_squeeze(const struct inferred *i, struct value *v)
{
    const int axis = i->c->axis;
    if (!has_axis(i, v) || v->shape[axis] != 1)
        return false;
    v->ndim--;
    memmove(v->shape + axis, v->shape + axis + 1, (size_t)(v->ndim - axis) * sizeof *v->shape);
    return true;
}

static bool shape_reshape(const struct inferred *i, struct value *v)
{
    const struct value x = *v;
    *v = *i->want;
    v->dtype = x.dtype;
    return value_numel(&x) == value_numel(v);
}

static bool shape_permute(const struct inferred *i, struct value *v)
{
    const struct value x = *v;
    for (int k = 0; k < v->ndim; k++)
        v->shape[k] = x.shape[i->c->axes[k]];
    return v->ndim > 0;
}

static bool shape_transpose(const struct inferred *i, struct value *v)
{
    const struct value x = *v;
    if (!has_axis(i, v) || i->c->begin >= v->ndim)
        return false;
    v->shape[i->c->axis] = x.shape[i->c->begin];
    v->shape[i->c->begin] = x.shape[i->c->axis];
    return true;
}

static bool shape_pad(const struct inferred *i, struct value *v)
{
    const struct call *c = i->c;
    if (!has_axis(i, v))
        return false;
    const int64_t n = v->shape[c->axis];
    v->shape[c->axis] += c->begin + c->end;
    return c->mask != CKPT_PAD_REFLECT || (c->begin < n && c->end < n);
}

static bool shape_repeat(const struct inferred *i, struct value *v)
{
    for (int k = 0; k < v->ndim; k++)
        v->shape[k] *= i->c->axes[k];
    return v->ndim > 0;
}

/* ---- lookup, pictures ------------------------------------------------------------------------*/

static bool shape_rows(const struct inferred *i, struct value *v)
{
    if (!has_axis(i, v))
        return false;
    v->shape[i->c->axis] = i->c->end;
    return true;
}

static bool shape_embedding(const struct inferred *i, struct value *v)
{
    if (v->ndim != 2 || i->c->begin >= v->shape[0])
        return false;
    *v = (struct value){v->dtype, 3, {2, i->c->end, v->shape[1]}, false, 0, 0};
    return true;
}

static bool shape_nearest(const struct inferred *i, struct value *v)
{
    const struct value *codebook = operand(i, 1);
    return v->ndim && codebook->ndim == 2 && last_of(codebook) == last_of(v) && one_dtype(i, 0);
}

/* source has the shape of x except on the axis. */
static bool shape_added(const struct inferred *i, struct value *v)
{
    struct value source = *operand(i, 1);
    if (!has_axis(i, v) || source.ndim != v->ndim || !one_dtype(i, 0))
        return false;
    source.shape[i->c->axis] = v->shape[i->c->axis];
    return same_shape(&source, v);
}

/* The spatial axes, all but the first and the last, have a window or a size each. */
static bool shape_pool(const struct inferred *i, struct value *v)
{
    const int64_t window = i->c->begin, stride = i->c->end ? i->c->end : window;
    const int64_t both = 2 * i->c->axes[0];
    for (int k = 1; k + 1 < v->ndim; k++) {
        if (v->shape[k] + both < window)
            return false;
        v->shape[k] = (v->shape[k] + both - window) / stride + 1;
    }
    return v->ndim >= 3 && i->c->axes[0] < window;
}

static bool shape_resized(const struct inferred *i, struct value *v)
{
    for (int k = 1; k + 1 < v->ndim; k++)
        v->shape[k] = i->c->begin;
    return v->ndim >= 3;
}

static bool shape_upsampled(const struct inferred *i, struct value *v)
{
    for (int k = 1; k + 1 < v->ndim; k++)
        v->shape[k] *= i->c->begin;
    return v->ndim >= 3;
}

static bool shape_shuffled(const struct inferred *i, struct value *v)
{
    for (int k = 1; k + 1 < v->ndim; k++) {
        if (last_of(v) % i->c->begin)
            return false;
        v->shape[k] *= i->c->begin;
        v->shape[v->ndim - 1] /= i->c->begin;
    }
    return v->ndim >= 3;
}

/* ---- losses ----------------------------------------------------------------------------------*/

static bool shape_scalar(const struct inferred *i, struct value *v)
{
    (void)i;
    return v->ndim > 0 && to_scalar(v);
}

static bool shape_linear_loss(const struct inferred *i, struct value *v)
{
    return shape_linear(i, v) && to_scalar(v);
}

static bool shape_loss(const struct inferred *i, struct value *v)
{
    const bool same = same_shape(v, operand(i, 1));
    return same && (i->c->kind != CALL_KL_NORMAL || (v->ndim && one_dtype(i, 0))) && to_scalar(v);
}

bool call_keeps_bits(enum call_kind kind)
{
    switch (kind) {
    case CALL_PARAM:
    case CALL_INPUT:
    case CALL_SPLIT:
    case CALL_SLICE:
    case CALL_RESHAPE:
    case CALL_PERMUTE:
    case CALL_TRANSPOSE:
    case CALL_SQUEEZE:
    case CALL_UNSQUEEZE:
    case CALL_CONCAT:
    case CALL_STACK:
    case CALL_FLIP:
    case CALL_ROLL:
    case CALL_ROWS:
    case CALL_STOP_GRADIENT:
    case CALL_CONTIGUOUS:
        return true;
    default:
        return false;
    }
}

static bool is_rough(const struct inferred *i, const struct value *v)
{
    bool rough = v->dtype == CKPT_BF16 && !call_keeps_bits(i->c->kind);
    for (int k = 0; k < i->c->n_in; k++)
        rough |= has(i, k) && operand(i, k)->rough;
    return rough;
}

bool recording_infer(struct recording *r, struct call *c)
{
    static bool (*const rules[CALL_KINDS])(const struct inferred *i, struct value *v) = {
#define X(name, call, shape, fp64) shape,
#include "kinds.def"
#undef X
    };
    const struct value want = r->value[r->n_values];
    const struct inferred i = {r, c, &want};
    struct value v = c->n_in ? r->value[c->in[0]] : want;
    c->out = r->n_values;
    if (r->n_values + c->n_out > MAX_VALUES || !rules[c->kind](&i, &v))
        return false;
    if (v.ndim > MAX_RANK || value_numel(&v) > MAX_NUMEL)
        return false;
    v.call = r->n_calls;
    v.rough = is_rough(&i, &v);
    for (int k = 0; k < c->n_out; k++) {
        v.index = k;
        r->value[c->out + k] = v;
    }
    return true;
}
