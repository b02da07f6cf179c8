/* SPDX-License-Identifier: Apache-2.0 */
/* How a video [B, C, T, H, W] is cut into patches; the same struct serves both directions. */
#ifndef CKPT_OPS_PATCHIFY_H
#define CKPT_OPS_PATCHIFY_H

#include <stdint.h>

struct patch_attr {
    int64_t channels, frames, height, width; /* of the video */
    int64_t pt, ph, pw;                      /* of a patch; it may reach past the video's end */
    int64_t channels_last;                   /* in a patch: 0 (c, t, h, w); 1 (t, h, w, c) */
};

/* Patches along an axis of n, the last one possibly cut short. */
static inline int64_t patch_count(int64_t n, int64_t p)
{
    return (n + p - 1) / p;
}

#endif
