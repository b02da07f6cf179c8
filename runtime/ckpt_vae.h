/*
 * libckpt: ops of autoencoders besides those of ckpt.h: what a perceptual loss and a codebook need,
 * and group norm in parts, for planes that are worked on band by band.
 */
#ifndef CKPT_VAE_H
#define CKPT_VAE_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* max(x, 0); NaN stays. */
CKPT_API ckpt_tensor ckpt_relu(ckpt_tape *t, ckpt_tensor x);

/*
 * x [N, ..., C] with one to three spatial axes: the largest value of each window, windows side by
 * side; places that fill no window count for nothing.  window: one size per spatial axis, outermost
 * first.  The gradient goes to the first of equal values.
 */
CKPT_API ckpt_tensor ckpt_max_pool(ckpt_tape *t, ckpt_tensor x, const int64_t *window);

/*
 * A layer of LPIPS (Zhang et al. 2018): with u and v the rows of a and b along the last axis over
 * their lengths, the mean over all rows of sum over c of w[c] (u[c] - v[c])^2, fp32 scalar.
 * a and b [..., C], w [C], one dtype.  A row of zeros is its own u and gets no gradient, nor does
 * w.
 */
CKPT_API ckpt_tensor ckpt_feature_distance(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b,
                                           ckpt_tensor w);

/*
 * The nearest entry of a codebook (van den Oord et al. 2017): z [..., D], codebook [K, D] of one
 * dtype.  The result has the entries in place of the rows of z, and hands its gradient on to z as
 * it is.  *index (may be NULL) becomes i32 [...]: which entry, the first of equally near ones.
 * *commitment (may be NULL) becomes the mean of (z - entry)^2 over all elements, fp32 scalar, with
 * a gradient to z.  The codebook gets none: it is moved towards its rows by whoever keeps it.
 */
CKPT_API ckpt_tensor ckpt_quantize(ckpt_tape *t, ckpt_tensor z, ckpt_tensor codebook,
                                   ckpt_tensor *index, ckpt_tensor *commitment);

/*
 * ckpt_group_norm_silu of a tensor of which only parts are there, cut along the first spatial axis:
 *   moments: of each row of a part [N, H, ..., C], fp32 [N, H, groups, 3]: mean, sum of squared
 *     deviations, count;
 *   join: those of all rows of n parts in order, to fp32 [N, groups, 2]: mean and
 *     1 / sqrt(var + eps);
 *   apply: these to a part (or to rows of several).
 * Each sample has the same bits however its rows are cut and however many samples there are.
 * For programs that run forward only: none of them has a gradient, and differentiation says so.
 */
CKPT_API ckpt_tensor ckpt_group_norm_moments(ckpt_tape *t, ckpt_tensor x, int groups);
CKPT_API ckpt_tensor ckpt_group_norm_join(ckpt_tape *t, int n, const ckpt_tensor *moments,
                                          float eps);
CKPT_API ckpt_tensor ckpt_group_norm_apply(ckpt_tape *t, ckpt_tensor x, ckpt_tensor stats,
                                           ckpt_tensor w, ckpt_tensor b, bool silu);

#ifndef CKPT_NO_AT
#define ckpt_relu(t, ...)               ckpt_relu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_max_pool(t, ...)           ckpt_max_pool(CKPT_AT(t), __VA_ARGS__)
#define ckpt_feature_distance(t, ...)   ckpt_feature_distance(CKPT_AT(t), __VA_ARGS__)
#define ckpt_quantize(t, ...)           ckpt_quantize(CKPT_AT(t), __VA_ARGS__)
#define ckpt_group_norm_moments(t, ...) ckpt_group_norm_moments(CKPT_AT(t), __VA_ARGS__)
#define ckpt_group_norm_join(t, ...)    ckpt_group_norm_join(CKPT_AT(t), __VA_ARGS__)
#define ckpt_group_norm_apply(t, ...)   ckpt_group_norm_apply(CKPT_AT(t), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
