/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: patchify and unpatchify.  One loop over the patches copies in either direction. */
#include "kernels.h"
#include "patchify.h"
#include "rows.h"

struct patches {
    const struct patch_attr *a;
    char *video, *tokens;
    int64_t element; /* in bytes */
    bool to_tokens;
    int64_t step_c, step_t, step_h, step_w; /* strides inside a token, in elements */
};

/* Copies one line of a patch: n elements are inside the video, pw in the token. */
static void move_line(const struct patches *p, char *video, char *token, int64_t n)
{
    for (int64_t w = 0; w < p->a->pw; w++) {
        char *at = token + w * p->step_w * p->element;
        if (w < n && p->to_tokens)
            memcpy(at, video + w * p->element, (size_t)p->element);
        else if (w < n)
            memcpy(video + w * p->element, at, (size_t)p->element);
        else if (p->to_tokens)
            memset(at, 0, (size_t)p->element);
    }
}

/* Copies the patch of sample b with its first corner at (t0, h0, w0). */
static void move_patch(const struct patches *p, int64_t b, int64_t t0, int64_t h0, int64_t w0,
                       char *token)
{
    const struct patch_attr *a = p->a;
    for (int64_t c = 0; c < a->channels; c++)
        for (int64_t t = 0; t < a->pt; t++)
            for (int64_t h = 0; h < a->ph; h++) {
                bool inside = t0 + t < a->frames && h0 + h < a->height;
                int64_t line = ((b * a->channels + c) * a->frames + t0 + t) * a->height + h0 + h;
                int64_t in_token = c * p->step_c + t * p->step_t + h * p->step_h;
                move_line(p, inside ? p->video + (line * a->width + w0) * p->element : NULL,
                          token + in_token * p->element, inside ? a->width - w0 : 0);
            }
}

static void move(const struct patches *p, int64_t batch)
{
    const struct patch_attr *a = p->a;
    int64_t nt = patch_count(a->frames, a->pt), nh = patch_count(a->height, a->ph);
    int64_t nw = patch_count(a->width, a->pw), size = a->channels * a->pt * a->ph * a->pw;
#pragma omp parallel for schedule(static) if (batch * nt * nh * nw * size > ROWS_CHUNK)
    for (int64_t i = 0; i < batch * nt * nh; i++) {
        int64_t h = i % nh, t = i / nh % nt, b = i / nh / nt;
        for (int64_t w = 0; w < nw; w++)
            move_patch(p, b, t * a->pt, h * a->ph, w * a->pw,
                       p->tokens + (i * nw + w) * size * p->element);
    }
}

static struct patches patches_of(const struct ckpt_kernel_args *k, bool to_tokens)
{
    const struct patch_attr *a = k->attr;
    struct patches p = {.a = a, .to_tokens = to_tokens};
    p.video = (to_tokens ? k->in : k->out)[0].data;
    p.tokens = (to_tokens ? k->out : k->in)[0].data;
    p.element = ckpt_dtype_size(k->in[0].desc.dtype);
    p.step_c = a->channels_last ? 1 : a->pt * a->ph * a->pw;
    p.step_w = a->channels_last ? a->channels : 1;
    p.step_h = a->pw * p.step_w;
    p.step_t = a->ph * p.step_h;
    return p;
}

int cpu_patchify(const struct ckpt_kernel_args *k)
{
    struct patches p = patches_of(k, true);
    move(&p, k->in[0].desc.shape[0]);
    return CKPT_OK;
}

int cpu_unpatchify(const struct ckpt_kernel_args *k)
{
    struct patches p = patches_of(k, false);
    move(&p, k->in[0].desc.shape[0]);
    return CKPT_OK;
}
