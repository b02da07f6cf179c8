/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Video to patch tokens and back.  Both ops move every element once and support both element orders
 * inside a patch, so each is the gradient of the other: padding in one is cropping in the other.
 */
#include "ops.h"
#include "patchify.h"

/* Bounds that keep every product of sizes far from overflow. */
#define MAX_PATCH ((int64_t)1 << 12)
#define MAX_VIDEO ((int64_t)1 << 24)

static bool is_within(int64_t n, int64_t max)
{
    return n >= 1 && n <= max;
}

static int check_sizes(struct ckpt_call *call)
{
    const struct patch_attr *a = call->attr;
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (!is_within(a->pt, MAX_PATCH) || !is_within(a->ph, MAX_PATCH) ||
        !is_within(a->pw, MAX_PATCH))
        return ckpt_call_fail(call, "the patch is [%lld, %lld, %lld]; sizes must be 1 to %lld",
                              (long long)a->pt, (long long)a->ph, (long long)a->pw,
                              (long long)MAX_PATCH);
    if (!is_within(a->channels, MAX_VIDEO) || !is_within(a->frames, MAX_VIDEO) ||
        !is_within(a->height, MAX_VIDEO) || !is_within(a->width, MAX_VIDEO))
        return ckpt_call_fail(call, "channels, frames, height and width must be 1 to %lld",
                              (long long)MAX_VIDEO);
    return CKPT_OK;
}

static int patchify_shape(struct ckpt_call *call)
{
    const struct patch_attr *a = call->attr;
    const struct ckpt_desc *x = &call->in[0];
    if (x->ndim != 5)
        return ckpt_call_fail(call, "x must be [B, C, T, H, W]");
    if (check_sizes(call))
        return CKPT_ESHAPE;
    call->out[0] =
        (struct ckpt_desc){.dtype = x->dtype,
                           .ndim = 4,
                           .shape = {x->shape[0], patch_count(a->frames, a->pt),
                                     patch_count(a->height, a->ph) * patch_count(a->width, a->pw),
                                     a->channels * a->pt * a->ph * a->pw}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

static void patchify_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_unpatchify, (const struct patch_attr *)g->attr, g->dout[0]);
}

OPS_DEF(patchify, .shape = patchify_shape, .grad = patchify_grad);

static int unpatchify_shape(struct ckpt_call *call)
{
    const struct patch_attr *a = call->attr;
    const struct ckpt_desc *x = &call->in[0];
    if (check_sizes(call))
        return CKPT_ESHAPE;
    int64_t frames = patch_count(a->frames, a->pt);
    int64_t tokens = patch_count(a->height, a->ph) * patch_count(a->width, a->pw);
    int64_t c = a->channels * a->pt * a->ph * a->pw;
    if (x->ndim != 4 || x->shape[1] != frames || x->shape[2] != tokens || x->shape[3] != c)
        return ckpt_call_fail(call, "x must be [B, %lld, %lld, %lld]", (long long)frames,
                              (long long)tokens, (long long)c);
    call->out[0] =
        (struct ckpt_desc){.dtype = x->dtype,
                           .ndim = 5,
                           .shape = {x->shape[0], a->channels, a->frames, a->height, a->width}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

static void unpatchify_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_patchify, (const struct patch_attr *)g->attr, g->dout[0]);
}

OPS_DEF(unpatchify, .shape = unpatchify_shape, .grad = unpatchify_grad);

ckpt_tensor ckpt_patchify(ckpt_tape *t, ckpt_tensor x, int64_t pt, int64_t ph, int64_t pw)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    struct patch_attr attr = {.pt = pt, .ph = ph, .pw = pw};
    if (d.ndim == 5) { /* else the shape rule fails */
        attr.channels = d.shape[1];
        attr.frames = d.shape[2];
        attr.height = d.shape[3];
        attr.width = d.shape[4];
    }
    return OPS_RECORD(t, &op_patchify, &attr, x);
}

ckpt_tensor ckpt_unpatchify(ckpt_tape *t, ckpt_tensor x, int64_t channels, int64_t frames,
                            int64_t height, int64_t width, int64_t pt, int64_t ph, int64_t pw)
{
    struct patch_attr attr = {channels, frames, height, width, pt, ph, pw, .channels_last = 1};
    return OPS_RECORD(t, &op_unpatchify, &attr, x);
}
