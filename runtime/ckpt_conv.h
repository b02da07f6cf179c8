/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: ops on pictures, clips and sequences, channels last: convolutions, pools and resizing.
 * A part of ckpt.h, which includes it; the general rules for ops in ckpt_ops.h apply.
 */
#ifndef CKPT_CONV_H
#define CKPT_CONV_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convolutions -------------------------------------------------------------------------- */

/* The geometry of a convolution: one entry per spatial axis, outermost first; further entries are
 * ignored. */
struct ckpt_conv_spec {
    size_t size;
    int64_t stride[3];
    int64_t before[3], after[3]; /* zeros added at the two ends */
    /* Batch-invariant: the bits of a row of the result (the innermost spatial axis) depend only on
     * the inputs of its taps, not on the number of rows and samples per call.  So a picture
     * computed in bands, or together with others, has the same bits as one computed alone.  This
     * fixes the kernel, which may be slower than the default for other sizes.  Not for transposed
     * convolutions. */
    bool invariant;
    int64_t dilation[3];       /* distance between taps */
    int64_t groups;            /* number of equal groups of adjacent channels */
    int64_t output_padding[3]; /* ckpt_conv_transpose: extra size at the far end */
};

#define CKPT_CONV_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ckpt_conv_spec), {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, false, {1, 1, 1}, 1,       \
        {                                                                                          \
            0, 0, 0                                                                                \
        }                                                                                          \
    }

/*
 * Convolution over one to three axes (cross-correlation: the kernel is not flipped), channels last.
 * x [N, L, C], [N, H, W, C] or [N, D, H, W, C], w [K, kernel..., C / groups] with as many axes, b
 * [K] or none:
 *
 *   y[n, o..., k] = b[k] + sum over t..., c of w[k, t..., c]
 *                   x[n, (o stride - before + t dilation)..., g C / groups + c]
 *
 * with x zero outside and g = k groups / K, rounded down: each group of channels of y reads one
 * group of x (groups = C: depthwise).  A size s becomes
 *
 *   (s + before + after - dilation (kernel - 1) - 1) / stride + 1, rounded down.
 *
 * spec NULL: strides and dilations of 1, no padding, one group.  CKPT_ESHAPE: groups that do not
 * divide C and K; a dilated kernel longer than its padded axis; strides and dilations below 1,
 * padding below 0.
 */
CKPT_API ckpt_tensor ckpt_conv(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                               const struct ckpt_conv_spec *spec);

/*
 * Transposed convolution (Zeiler et al. 2010): the gradient with respect to x of the convolution
 * that spec describes. x [N, ..., C], w [C, kernel..., K / groups] (PyTorch's ConvTranspose,
 * channels last), b [K] or none, y [N, ..., K]: x[n, i..., c] w[c, t..., k] is added to y[n, (i
 * stride - before + t dilation)..., g K / groups + k] if that is inside, g = c groups / C.  A size
 * s becomes
 *
 *   (s - 1) stride - before - after + dilation (kernel - 1) + 1 + output_padding,
 *
 * where the output padding is less than the stride plus the size that `after` removes.  The result
 * is rounded before a bias is added. spec NULL as above.
 */
CKPT_API ckpt_tensor ckpt_conv_transpose(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                         const struct ckpt_conv_spec *spec);

/* ---- pools --------------------------------------------------------------------------------- */

/* The geometry of a pool: one entry per spatial axis, outermost first. */
struct ckpt_pool_spec {
    size_t size;
    int64_t stride[3];           /* 0: the window size, so that windows are adjacent */
    int64_t before[3], after[3]; /* padding at the two ends, smaller than the window */
    bool count_include_pad;      /* avg_pool: padding counts in the mean as zeros */
};

#define CKPT_POOL_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ckpt_pool_spec), {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, true                       \
    }

/*
 * x [N, ..., C] with one to three spatial axes: the largest value of each window, or the mean.
 * window: one size per spatial axis, outermost first.  A size s becomes (s + before + after -
 * window) / stride + 1, rounded down; spec NULL: adjacent windows, no padding.  The maximum ignores
 * padding; NaN wins.  Its gradient goes to the first of equal values; the gradients of several
 * windows for one element are added in the order of windows, and rounded once.  CKPT_ESHAPE: a
 * window longer than its padded axis; padding not smaller than the window.
 */
CKPT_API ckpt_tensor ckpt_max_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *window,
                                   const struct ckpt_pool_spec *spec);
CKPT_API ckpt_tensor ckpt_avg_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *window,
                                   const struct ckpt_pool_spec *spec);

/* ---- resizing ------------------------------------------------------------------------------ */

/* x [N, ..., C] with one to three spatial axes, each enlarged by its factor by repeating elements.
 * factors: one per spatial axis, outermost first; see ckpt_resize_nearest for other sizes. */
CKPT_API ckpt_tensor ckpt_upsample_nearest(ckpt_tape *t, ckpt_tensor x, const int64_t *factors);

/*
 * Resizing of x [N, ..., C] with one to three spatial axes; sizes has one number per spatial axis,
 * outermost first.
 *
 *   adaptive_avg_pool, adaptive_max_pool: to given sizes; element i of o is the mean, or the
 *   largest value, of [floor(i n / o), ceil((i + 1) n / o)); equal values as in ckpt_max_pool;
 *   resize_nearest: to given sizes; element i of o is element floor(i n / o);
 *   resize_linear: to given sizes, linear, bilinear or trilinear between the two nearest elements
 *   of each axis; sample points are at the centers of cells (PyTorch's align_corners=False);
 *   pixel_shuffle: [N, ..., C f1 f2..] to [N, ... times f, C]; the sub-positions of a channel come
 *   last (PyTorch's pixel_shuffle with channels in its order).
 *
 * adaptive_avg_pool and resize_linear are products with fp32 matrices along each axis, rounded once
 * at the end.
 */
CKPT_API ckpt_tensor ckpt_adaptive_avg_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes);
CKPT_API ckpt_tensor ckpt_adaptive_max_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes);
CKPT_API ckpt_tensor ckpt_resize_nearest(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes);
CKPT_API ckpt_tensor ckpt_resize_linear(ckpt_tape *t, ckpt_tensor x, const int64_t *sizes);
CKPT_API ckpt_tensor ckpt_pixel_shuffle(ckpt_tape *t, ckpt_tensor x, const int64_t *factors);

/* Each op stores the caller's source location: see the end of ckpt.h. */
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
