/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention: self and cross, grouped heads, rotary embedding. */
#include "call.h"
#include "ckpt_files.h"
#include "nn/nn.h"
#include "tensor_parts.h"

/* ---- parameters ---------------------------------------------------------------------------- */

/* Describes the file layout of rotary weights: here the two elements of a pair are adjacent; files
 * store all first elements of a head, then all second elements. */
static void set_rotary_layout(ckpt *c, ckpt_tensor w, int64_t heads, int64_t head, int64_t columns)
{
    if (w.id)
        ckpt_param_file_axes(c, w, 4, (int64_t[]){heads, head / 2, 2, columns},
                             (int[]){0, 2, 1, 3});
}

/* The projection of q or k, in rotary layout if halves is set. */
static struct ckpt_nn_linear rotary_projection(const struct nn_maker *m, int64_t in, int64_t heads,
                                               int64_t head, bool bias, bool halves)
{
    struct ckpt_nn_linear l = nn_linear(m, in, heads * head, bias);

    if (halves && head % 2 == 0) {
        set_rotary_layout(m->nn.context, l.weight, heads, head, in);
        set_rotary_layout(m->nn.context, l.bias, heads, head, 1);
    }
    return l;
}

static void make_separate(struct ckpt_nn_attention *a, const struct nn_maker *m,
                          const struct ckpt_nn_attention_spec *s, int64_t context)
{
    struct nn_maker q = nn_part(m, s->q_name), k = nn_part(m, s->k_name);
    struct nn_maker v = nn_part(m, s->v_name);

    a->q = rotary_projection(&q, s->width, a->heads, a->head, s->qkv_bias, s->halves);
    a->k = rotary_projection(&k, context, a->kv_heads, a->head, s->qkv_bias, s->halves);
    a->v = nn_linear(&v, context, a->kv_heads * a->head, s->qkv_bias);
}

/* Each rank gets some of the heads, and what reads them. */
static void split_heads(struct nn_maker *m, const struct ckpt_nn_attention *a)
{
    if (nn_ranks(m) < 2)
        return;
    nn_check_parts(m, a->heads, "heads");
    nn_check_parts(m, a->kv_heads, "heads of keys");
    if (a->qkv.weight.id && a->heads != a->kv_heads)
        nn_refuse(m, "one projection of q, k and v with fewer heads of k and v is not split over "
                     "ranks (--tensor)");
    if (a->qkv.weight.id)
        nn_split_rows(m, &a->qkv, 3);
    nn_split_rows(m, &a->q, 1);
    nn_split_rows(m, &a->k, 1);
    nn_split_rows(m, &a->v, 1);
    nn_split_columns(m, &a->out);
}

struct ckpt_nn_attention nn_attention(struct nn_maker *m, const struct ckpt_nn_attention_spec *spec)
{
    struct ckpt_nn_attention_spec s = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_attention a = {.heads = 0};

    nn_read_spec(m, "struct ckpt_nn_attention_spec", &s, sizeof s, spec);
    a.heads = s.heads;
    a.kv_heads = s.kv_heads ? s.kv_heads : s.heads;
    a.head = s.head || !s.heads ? s.head : s.width / s.heads;
    if (s.heads < 1 || a.kv_heads < 1 || s.heads % a.kv_heads || a.head < 1)
        nn_refuse(m, "heads, key heads and widths do not match");
    if (s.qkv_name && (s.halves || (s.context && s.context != s.width)))
        nn_refuse(m, "one projection of q, k and v is for self attention and whole heads");
    struct nn_maker qkv = s.qkv_name ? nn_part(m, s.qkv_name) : *m;
    struct nn_maker out = nn_part(m, s.out_name);
    if (s.out_weight)
        out.nn.weight = s.out_weight;
    if (s.qkv_name)
        a.qkv = nn_linear(&qkv, s.width, (a.heads + 2 * a.kv_heads) * a.head, s.qkv_bias);
    else
        make_separate(&a, m, &s, s.context ? s.context : s.width);
    a.out = nn_linear(&out, a.heads * a.head, s.width, s.out_bias);
    split_heads(m, &a);
    return a;
}

struct ckpt_nn_attention ckpt_nn_attention(const struct ckpt_nn *nn,
                                           const struct ckpt_nn_attention_spec *spec,
                                           const char *name, ...)
{
    NN_OPEN(m);
    return nn_attention(&m, spec);
}

/* ---- recording ----------------------------------------------------------------------------- */

/* Reshapes [..., heads head] to [..., heads, head]. */
static ckpt_tensor as_heads(ckpt_tape *t, ckpt_tensor x, int64_t heads, int64_t head)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);

    if (d.ndim < 1 || d.ndim == CKPT_MAX_DIMS)
        return x;
    d.shape[d.ndim - 1] = heads;
    d.shape[d.ndim] = head;
    return tensor_heads(t, ckpt_reshape(t, x, d.ndim + 1, d.shape));
}

/*
 * Equal parts are split along an axis of their own, so that their gradients are written directly
 * into the gradient of the whole, without a copy.
 */
static void cut_equal(ckpt_tape *t, const struct ckpt_nn_attention *m, ckpt_tensor x,
                      ckpt_tensor part[3])
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int last = d.ndim - 1;

    if (last < 0 || last + 2 >= CKPT_MAX_DIMS)
        return;
    const int64_t heads = tensor_own(t, m->qkv.weight, m->heads);
    d.shape[last] = 3;
    d.shape[last + 1] = heads;
    d.shape[last + 2] = m->head;
    ckpt_split(t, ckpt_reshape(t, x, last + 3, d.shape), last, 3, part);
    d.shape[last] = heads;
    d.shape[last + 1] = m->head;
    for (int i = 0; i < 3; i++)
        part[i] = tensor_heads(t, ckpt_reshape(t, part[i], last + 2, d.shape));
}

static void cut_unequal(ckpt_tape *t, const struct ckpt_nn_attention *m, ckpt_tensor x,
                        ckpt_tensor part[3])
{
    ckpt_tensor all = as_heads(t, x, m->heads + 2 * m->kv_heads, m->head);
    int axis = ckpt_desc_of(t, all).ndim - 2;
    int64_t at[] = {0, m->heads, m->heads + m->kv_heads, m->heads + 2 * m->kv_heads};

    for (int i = 0; i < 3; i++)
        part[i] = ckpt_slice(t, all, axis, at[i], at[i + 1]);
}

static void heads_of(ckpt_tape *t, const struct ckpt_nn_attention *m, ckpt_tensor x,
                     ckpt_tensor context, ckpt_tensor part[3])
{
    ckpt_tensor from = context.id ? context : x;

    if (m->qkv.weight.id) {
        ckpt_tensor all = ckpt_linear(t, x, m->qkv.weight, m->qkv.bias);
        if (context.id)
            ckpt_tape_fail(t, CKPT_EINVAL,
                           "attention: one projection of q, k and v has no context");
        (m->heads == m->kv_heads ? cut_equal : cut_unequal)(t, m, all, part);
        return;
    }
    const int64_t heads = tensor_own(t, m->q.weight, m->heads),
                  kv_heads = tensor_own(t, m->k.weight, m->kv_heads);
    part[0] = as_heads(t, ckpt_linear(t, x, m->q.weight, m->q.bias), heads, m->head);
    part[1] = as_heads(t, ckpt_linear(t, from, m->k.weight, m->k.bias), kv_heads, m->head);
    part[2] = as_heads(t, ckpt_linear(t, from, m->v.weight, m->v.bias), kv_heads, m->head);
}

void ckpt_nn_attention_heads(ckpt_tape *t, const struct ckpt_nn_attention *m, ckpt_tensor x,
                             ckpt_tensor context, ckpt_tensor *q, ckpt_tensor *k, ckpt_tensor *v)
{
    OPS_CALL(t);
    ckpt_tensor part[3] = {CKPT_NONE, CKPT_NONE, CKPT_NONE};

    if (!m || !q || !k || !v) {
        nn_no_module(t, __func__);
        return;
    }
    heads_of(t, m, x, context, part);
    *q = part[0];
    *k = part[1];
    *v = part[2];
}

static ckpt_tensor flat(ckpt_tape *t, ckpt_tensor heads)
{
    struct ckpt_desc d = ckpt_desc_of(t, heads);

    if (d.ndim < 2)
        return heads;
    d.shape[d.ndim - 2] *= d.shape[d.ndim - 1];
    return ckpt_reshape(t, heads, d.ndim - 1, d.shape);
}

ckpt_tensor ckpt_nn_attention_out(ckpt_tape *t, const struct ckpt_nn_attention *m,
                                  ckpt_tensor heads, ckpt_tensor a)
{
    OPS_CALL(t);
    if (!m)
        return nn_no_module(t, __func__);
    ckpt_tensor x = flat(t, heads);
    return a.id ? ckpt_linear_add(t, x, m->out.weight, m->out.bias, a)
                : ckpt_linear(t, x, m->out.weight, m->out.bias);
}

static ckpt_tensor apply_rope(ckpt_tape *t, ckpt_tensor x, ckpt_tensor rope)
{
    return rope.id ? ckpt_rope(t, x, rope, ckpt_desc_of(t, x).ndim - 3) : x;
}

ckpt_tensor ckpt_nn_apply_attention_add(ckpt_tape *t, const struct ckpt_nn_attention *m,
                                        ckpt_tensor x, ckpt_tensor context, ckpt_tensor rope,
                                        const struct ckpt_attention_spec *spec, ckpt_tensor a)
{
    OPS_CALL(t);
    ckpt_tensor part[3] = {CKPT_NONE, CKPT_NONE, CKPT_NONE};

    if (!m)
        return nn_no_module(t, __func__);
    heads_of(t, m, x, context, part);
    ckpt_tensor q = apply_rope(t, part[0], rope), k = apply_rope(t, part[1], rope);
    return ckpt_nn_attention_out(t, m, ckpt_attention(t, q, k, part[2], CKPT_NONE, spec), a);
}

ckpt_tensor ckpt_nn_apply_attention(ckpt_tape *t, const struct ckpt_nn_attention *m, ckpt_tensor x,
                                    ckpt_tensor context, ckpt_tensor rope,
                                    const struct ckpt_attention_spec *spec)
{
    OPS_CALL(t);
    return ckpt_nn_apply_attention_add(t, m, x, context, rope, spec, CKPT_NONE);
}
