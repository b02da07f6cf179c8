/* SPDX-License-Identifier: Apache-2.0 */
/* How a video [B, C, T, H, W] is divided into patches, for both directions. */
#ifndef CKPT_OPS_PATCHIFY_H
#define CKPT_OPS_PATCHIFY_H

#include <stdint.h>

struct patch_attr {
    int64_t channels, frames, height, width; /* of the video */
    int64_t pt, ph, pw;                      /* of a patch; the last one may exceed the video */
    int64_t channels_last;                   /* in a patch: 0 (c, t, h, w); 1 (t, h, w, c) */
};

/* Number of patches along an axis of size n, including a partial one. */
static inline int64_t patch_count(int64_t n, int64_t p)
{
    return (n + p - 1) / p;
}

#endif
