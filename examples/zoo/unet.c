/* SPDX-License-Identifier: Apache-2.0 */
/* A 3-D U-Net: see unet.h. */
#include "unet.h"

static struct unet_layer layer(const struct ckpt_nn *nn, int64_t in, int64_t out, const char *side,
                               int i, int k)
{
    return (struct unet_layer){ckpt_nn_conv(nn, in, out, 3, (int64_t[]){3, 3, 3}, NULL, false,
                                            "%s.%d.conv.%d", side, i, k),
                               ckpt_nn_layer_norm(nn, out, 1e-5f, "%s.%d.norm.%d", side, i, k)};
}

static int64_t width(const struct unet_shape *s, int level)
{
    return s->width << level < s->widest ? s->width << level : s->widest;
}

void unet_create(struct unet *m, ckpt *c, const struct unet_shape *s)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    nn.dtype = s->dtype;
    m->shape = *s;
    for (int i = 0; i < s->levels; i++) {
        int64_t here = width(s, i);
        m->down[i][0] = layer(&nn, i ? width(s, i - 1) : s->inputs, here, "down", i, 0);
        m->down[i][1] = layer(&nn, here, here, "down", i, 1);
        if (i == s->levels - 1)
            break;
        m->up[i][0] = layer(&nn, width(s, i + 1) + here, here, "up", i, 0);
        m->up[i][1] = layer(&nn, here, here, "up", i, 1);
    }
    m->head =
        ckpt_nn_conv(&nn, width(s, 0), s->classes, 3, (int64_t[]){1, 1, 1}, NULL, true, "head");
}

/* Two layers; the first has this stride. */
static ckpt_tensor apply(ckpt_tape *t, const struct unet_layer m[2], ckpt_tensor x, int64_t stride,
                         bool invariant)
{
    for (int k = 0; k < 2; k++, stride = 1) {
        struct ckpt_conv_spec spec = CKPT_CONV_INIT;
        spec.invariant = invariant;
        for (int i = 0; i < 3; i++)
            spec.before[i] = spec.after[i] = 1, spec.stride[i] = stride;
        x = ckpt_nn_apply_conv(t, &m[k].conv, x, &spec);
        x = ckpt_instance_norm(t, x, m[k].norm.weight, m[k].norm.bias, m[k].norm.eps);
        x = ckpt_leaky_relu(t, x, 0.01f);
    }
    return x;
}

ckpt_tensor unet_apply(const struct unet *m, ckpt_tape *t, ckpt_tensor x, bool invariant)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    ckpt_tensor across[UNET_LEVELS];
    int levels = (int)m->shape.levels;

    spec.invariant = invariant;
    for (int i = 0; i < levels; i++) {
        ckpt_label(t, "down.%d", i);
        across[i] = x = apply(t, m->down[i], x, i ? 2 : 1, invariant);
    }
    for (int i = levels - 2; i >= 0; i--) {
        ckpt_label(t, "up.%d", i);
        x = ckpt_upsample_nearest(t, x, (int64_t[]){2, 2, 2});
        x = apply(t, m->up[i], ckpt_concat(t, 4, 2, (ckpt_tensor[]){across[i], x}), 1, invariant);
    }
    ckpt_label(t, "head");
    return ckpt_nn_apply_conv(t, &m->head, x, &spec);
}
