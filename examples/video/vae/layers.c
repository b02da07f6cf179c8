/* SPDX-License-Identifier: Apache-2.0 */
/* Building blocks of the four parts of the autoencoder. */
#include <stdio.h>
#include "model.h"

/* ---- parameters ---------------------------------------------------------------------------- */

/* Weights and biases are initialized as in PyTorch. */
static struct ckpt_nn modules(const struct vae_maker *k)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = k->c;
    nn.dtype = k->config->dtype;
    nn.frozen = !k->trainable;
    return nn;
}

struct ckpt_nn_conv vae_make_conv(const struct vae_maker *k, const char *name, int64_t out,
                                  int64_t in, int64_t size, bool bias)
{
    struct ckpt_nn nn = modules(k);

    return ckpt_nn_conv(&nn, in, out, k->temporal ? 3 : 2, (int64_t[]){size, size, size}, NULL,
                        bias, "%s%s%s", k->prefix, name, k->temporal ? ".conv" : "");
}

struct ckpt_nn_linear vae_make_linear(const struct vae_maker *k, const char *name, int64_t width)
{
    struct ckpt_nn nn = modules(k);

    return ckpt_nn_linear(&nn, width, width, true, "%s%s", k->prefix, name);
}

/* Group norm; the parameters are shaped as for a layer norm. */
struct vae_norm vae_make_norm(const struct vae_maker *k, const char *name, int64_t width)
{
    struct ckpt_nn nn = modules(k);
    struct ckpt_nn_norm n = ckpt_nn_layer_norm(&nn, width, 0, "%s%s", k->prefix, name);

    return (struct vae_norm){n.weight, n.bias};
}

/* The temporal part has no biases here, and names the shortcut conv3. */
struct vae_res vae_make_res(const struct vae_maker *k, const char *name, int64_t in, int64_t out)
{
    char at[4][96];
    struct vae_res r = {0};
    bool bias = !k->temporal;

    for (int i = 0; i < 2; i++) {
        snprintf(at[i], sizeof at[i], "%s.norm%d", name, i + 1);
        snprintf(at[2 + i], sizeof at[i], "%s.conv%d", name, i + 1);
    }
    r.norm[0] = vae_make_norm(k, at[0], in);
    r.conv[0] = vae_make_conv(k, at[2], out, in, 3, bias);
    r.norm[1] = vae_make_norm(k, at[1], out);
    r.conv[1] = vae_make_conv(k, at[3], out, out, 3, bias);
    if (in != out) {
        snprintf(at[0], sizeof at[0], "%s.%s", name, k->temporal ? "conv3" : "conv_shortcut");
        r.shortcut = vae_make_conv(k, at[0], out, in, 1, bias);
    }
    return r;
}

/* ---- recording ----------------------------------------------------------------------------- */

ckpt_tensor vae_norm(ckpt_tape *t, const struct vae_style *s, const struct vae_norm *n,
                     ckpt_tensor x, bool silu)
{
    if (!s->invariant)
        return ckpt_group_norm_silu(t, x, n->weight, n->bias, s->groups, s->eps, silu);
    ckpt_tensor moments = ckpt_group_norm_moments(t, x, s->groups);
    ckpt_tensor stats = ckpt_group_norm_join(t, 1, &moments, s->eps);
    return ckpt_group_norm_apply(t, x, stats, n->weight, n->bias, silu);
}

ckpt_tensor vae_norm_silu(ckpt_tape *t, const struct vae_style *s, const struct vae_norm *n,
                          ckpt_tensor x)
{
    return vae_norm(t, s, n, x, true);
}

ckpt_tensor vae_res(ckpt_tape *t, const struct vae_style *s, const struct vae_res *r, ckpt_tensor x)
{
    ckpt_tensor h = x;

    for (int i = 0; i < 2; i++)
        h = s->conv(t, &r->conv[i], vae_norm_silu(t, s, &r->norm[i], h));
    if (r->shortcut.weight.id)
        x = s->conv(t, &r->shortcut, x);
    return ckpt_add(t, x, h);
}

ckpt_tensor vae_part(ckpt_tape *t, ckpt_tensor x, int axis, int64_t begin, int64_t end)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);

    if (d.ndim > axis && begin == 0 && end == d.shape[axis])
        return x;
    return ckpt_slice(t, x, axis, begin, end);
}

struct vae_posterior vae_posterior(ckpt_tape *t, ckpt_tensor moments)
{
    struct ckpt_desc d = ckpt_desc_of(t, moments);
    ckpt_tensor half[2] = {CKPT_NONE, CKPT_NONE};

    if (d.ndim > 0)
        ckpt_split(t, ckpt_cast(t, moments, CKPT_F32), d.ndim - 1, 2, half);
    return (struct vae_posterior){half[0], half[1]};
}

ckpt_tensor vae_sample(ckpt_tape *t, const struct vae_posterior *p, ckpt_tensor noise)
{
    return noise.id ? ckpt_sample_normal(t, p->mean, p->logvar, noise) : p->mean;
}
