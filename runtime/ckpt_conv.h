/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: ops on pictures, clips and sequences, channels last: convolutions, pools and resizing.
 * A part of ckpt.h, which includes it; what ckpt_ops.h says of ops holds here.
 */
#ifndef CKPT_CONV_H
#define CKPT_CONV_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolutions -------------------------------------------------------------------------- */

/* How a convolution walks: an entry per spatial axis, outermost first; no other is looked at. */
struct ckpt_conv_spec {
    size_t size;
    int64_t stride[3];
    int64_t before[3], after[3]; /* zeros added at the two ends */
    /* Batch-invariant: the bits of a row of the result (the innermost spatial axis) depend on what
     * its taps see, not on how many rows and samples one call has.  So a picture that is computed
     * in bands, or several together, has the bits of one computed alone.  This fixes the kernel:
     * for other sizes it may be slower than the one taken without.  Not of a transposed one. */
    bool invariant;
    int64_t dilation[3];       /* places from tap to tap */
    int64_t groups;            /* neighbouring channels, so many parts of equal size */
    int64_t output_padding[3]; /* ckpt_conv_transpose: places more at the far end */
};

#define CKPT_CONV_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ckpt_conv_spec), {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, false, {1, 1, 1}, 1,       \
        {                                                                                          \
            0, 0, 0                                                                                \
        }                                                                                          \
    }

/*
 * Convolution over one to three axes, as networks have it (the kernel is not turned), channels
 * last.  x [N, L, C], [N, H, W, C] or [N, D, H, W, C], w [K, kernel..., C / groups] with as many
 * axes, b [K] or none:
 *   y[n, o..., k] = b[k] + sum over t..., c of w[k, t..., c]
 *                          x[n, (o stride - before + t dilation)..., g C / groups + c]
 * with x zero outside and g = k groups / K, rounded down: each group of channels of y sees one of x
 * (groups = C: depthwise).  A size s becomes
 *   (s + before + after - dilation (kernel - 1) - 1) / stride + 1, rounded down.
 * spec NULL: strides and dilations of 1, no padding, one group.
 * CKPT_ESHAPE: groups that do not divide C and K; a dilated kernel that is longer than its axis
 * with its padding; strides and dilations below 1, padding below 0.
 */
CKPT_API ckpt_tensor ckpt_conv(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                               const struct ckpt_conv_spec *spec);

/*
 * Transposed convolution (Zeiler et al. 2010): the gradient of x of the convolution that spec says.
 * x [N, ..., C], w [C, kernel..., K / groups] (PyTorch's ConvTranspose, channels last), b [K] or
 * none, y [N, ..., K]: x[n, i..., c] w[c, t..., k] is added to y[n, (i stride - before +
 * t dilation)..., g K / groups + k] where that is inside, g = c groups / C.  A size s becomes
 *   (s - 1) stride - before - after + dilation (kernel - 1) + 1 + output_padding,
 * where the output padding is less than the stride plus what `after` takes away.  A bias is added
 * to the result, which is rounded before.  spec NULL as above.
 */
CKPT_API ckpt_tensor ckpt_conv_transpose(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                         const struct ckpt_conv_spec *spec);

/* ---- pools --------------------------------------------------------------------------------- */

/* How the windows of a pool stand: an entry per spatial axis, outermost first. */
struct ckpt_pool_spec {
    size_t size;
    int64_t stride[3];           /* 0: the window, so that windows stand side by side */
    int64_t before[3], after[3]; /* places added at the two ends, fewer than the window has */
    bool count_include_pad;      /* avg_pool: a mean counts the added places, too, as zeros */
};

#define CKPT_POOL_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ckpt_pool_spec), {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, true                       \
    }

/*
 * x [N, ..., C] with one to three spatial axes: the largest value of each window, or the mean.
 * window: one size per spatial axis, outermost first.  A size s becomes (s + before + after -
 * window) / stride + 1, rounded down; spec NULL: windows side by side, no padding.
 * The largest of the places that x has; NaN wins.  Its gradient goes to the first of equal values;
 * what a place gets from several windows is added in their order, and rounded once.
 * CKPT_ESHAPE: a window that is longer than its axis with its padding; padding that is no less than
 * the window.
 */
CKPT_API ckpt_tensor ckpt_max_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *window,
                                   const struct ckpt_pool_spec *spec);
CKPT_API ckpt_tensor ckpt_avg_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *window,
                                   const struct ckpt_pool_spec *spec);

/* ---- resizing ------------------------------------------------------------------------------ */

/* x [N, ..., C] with one to three spatial axes, each made longer by its factor: every place is
 * repeated.  factors: one per spatial axis, outermost first; ckpt_resize_nearest: any sizes. */
CKPT_API ckpt_tensor ckpt_upsample_nearest(ckpt_tape *t, ckpt_tensor x, const int64_t *factors);

/*
 * Another size for x [N, ..., C] with one to three spatial axes; sizes have one number per spatial
 * axis, outermost first.
 *   adaptive_avg_pool, adaptive_max_pool: to so many places, place i of o the mean, or the largest
 *     value, of [floor(i n / o), ceil((i + 1) n / o)); equal ones as ckpt_max_pool has it;
 *   resize_nearest: to so many places, place i of o that at floor(i n / o);
 *   resize_linear: to so many places, linear, bilinear or trilinear between the two nearest of each
 *     axis; places stand in the middle of their cells (PyTorch's align_corners=False);
 *   pixel_shuffle: [N, ..., C f1 f2..] to [N, ... times f, C]; a channel's places come last
 *     (channels of PyTorch's pixel_shuffle in its order).
 * adaptive_avg_pool and resize_linear are products with fp32 matrices along each axis, rounded once
 * at the end.
 */
CKPT_API ckpt_tensor ckpt_adaptive_avg_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes);
CKPT_API ckpt_tensor ckpt_adaptive_max_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes);
CKPT_API ckpt_tensor ckpt_resize_nearest(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes);
CKPT_API ckpt_tensor ckpt_resize_linear(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes);
CKPT_API ckpt_tensor ckpt_pixel_shuffle(ckpt_tape *t, ckpt_tensor x, const int64_t *factors);

/* Each op notes the caller's place: see the end of ckpt.h. */
#ifndef CKPT_NO_AT
#define ckpt_conv(t, ...)              ckpt_conv(CKPT_AT(t), __VA_ARGS__)
#define ckpt_conv_transpose(t, ...)    ckpt_conv_transpose(CKPT_AT(t), __VA_ARGS__)
#define ckpt_max_pool(t, ...)          ckpt_max_pool(CKPT_AT(t), __VA_ARGS__)
#define ckpt_avg_pool(t, ...)          ckpt_avg_pool(CKPT_AT(t), __VA_ARGS__)
#define ckpt_upsample_nearest(t, ...)  ckpt_upsample_nearest(CKPT_AT(t), __VA_ARGS__)
#define ckpt_adaptive_avg_pool(t, ...) ckpt_adaptive_avg_pool(CKPT_AT(t), __VA_ARGS__)
#define ckpt_adaptive_max_pool(t, ...) ckpt_adaptive_max_pool(CKPT_AT(t), __VA_ARGS__)
#define ckpt_resize_nearest(t, ...)    ckpt_resize_nearest(CKPT_AT(t), __VA_ARGS__)
#define ckpt_resize_linear(t, ...)     ckpt_resize_linear(CKPT_AT(t), __VA_ARGS__)
#define ckpt_pixel_shuffle(t, ...)     ckpt_pixel_shuffle(CKPT_AT(t), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
