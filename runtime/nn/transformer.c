/* SPDX-License-Identifier: Apache-2.0 */
/* Transformer layers, of encoders and decoders. */
#include "call.h"
#include "nn/nn.h"

static struct ckpt_nn_norm make_norm(const struct nn_maker *m, const char *part, int64_t width,
                                     const struct ckpt_nn_transformer_layer_spec *s)
{
    struct nn_maker norm = nn_part(m, part);

    return nn_norm(&norm, width, s->eps, s->rms);
}

/* The layer's parts are made in the order in which it applies them. */
static struct ckpt_nn_transformer_layer make_layer(const struct nn_maker *m, int64_t width,
                                                   const struct ckpt_nn_transformer_layer_spec *s)
{
    struct ckpt_nn_transformer_layer l = {.norm1 = make_norm(m, s->norm1_name, width, s)};
    struct nn_maker attention = nn_part(m, s->attention_name), mlp = nn_part(m, s->mlp_name);

    l.attention = nn_attention(&attention, s->attention);
    if (s->cross) {
        struct nn_maker cross = nn_part(m, s->cross_name);
        l.cross_norm = make_norm(m, s->cross_norm_name, width, s);
        l.cross = nn_attention(&cross, s->cross);
    }
    l.norm2 = make_norm(m, s->norm2_name, width, s);
    l.mlp = nn_mlp(&mlp, s->mlp);
    return l;
}

struct ckpt_nn_transformer_layer
ckpt_nn_transformer_layer(const struct ckpt_nn *nn,
                          const struct ckpt_nn_transformer_layer_spec *spec, const char *name, ...)
{
    struct ckpt_nn_transformer_layer_spec s = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    NN_OPEN(m);
    nn_read_spec(&m, "struct ckpt_nn_transformer_layer_spec", &s, sizeof s, spec);
    nn_read_spec(&m, "struct ckpt_nn_attention_spec", &attention, sizeof attention, s.attention);
    return make_layer(&m, attention.width, &s);
}

ckpt_tensor ckpt_nn_apply_transformer_layer(ckpt_tape *t, const struct ckpt_nn_transformer_layer *m,
                                            ckpt_tensor x, ckpt_tensor context, ckpt_tensor rope,
                                            const struct ckpt_attention_spec *spec)
{
    OPS_CALL(t);
    if (!m)
        return nn_no_module(t, __func__);
    bool cross = m->cross.out.weight.id;
    if (cross != (context.id != 0))
        ckpt_tape_fail(t, CKPT_EINVAL, "%s",
                       cross ? "a layer with cross attention needs a context"
                             : "a layer without cross attention has no context");
    ckpt_tensor u = ckpt_nn_apply_norm(t, &m->norm1, x);
    x = ckpt_nn_apply_attention_add(t, &m->attention, u, CKPT_NONE, rope, spec, x);
    if (cross) {
        u = ckpt_nn_apply_norm(t, &m->cross_norm, x);
        x = ckpt_nn_apply_attention_add(t, &m->cross, u, context, CKPT_NONE, NULL, x);
    }
    return ckpt_nn_apply_mlp_add(t, &m->mlp, ckpt_nn_apply_norm(t, &m->norm2, x), x);
}
