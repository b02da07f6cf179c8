/* SPDX-License-Identifier: Apache-2.0 */
/* Video to tokens and back: one thread per element of the result, which gathers it. */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/walk.cuh"
#include "patchify.h"

/* Splits a position: returns its index along an axis of `size`, and leaves the rest in *at. */
static __device__ __forceinline__ int64_t split_position(int64_t *at, int64_t size)
{
    int64_t above = *at / size, here = *at - above * size;
    *at = above;
    return here;
}

/* The number of patches along each axis. */
struct patch_grid {
    int64_t t, h, w;
};

/* Tokens [B, T', H'W', C pt ph pw] from video [B, C, T, H, W]; zeros outside of the video. */
template <typename T>
static __global__ void __launch_bounds__(WALK_THREADS)
    to_tokens(T *tokens, const T *video, struct patch_attr a, struct patch_grid n, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * WALK_THREADS + threadIdx.x, at = i, c = 0;
    if (i >= count)
        return;
    if (a.channels_last)
        c = split_position(&at, a.channels);
    int64_t w = split_position(&at, a.pw), h = split_position(&at, a.ph),
            t = split_position(&at, a.pt);
    if (!a.channels_last)
        c = split_position(&at, a.channels);
    w += split_position(&at, n.w) * a.pw;
    h += split_position(&at, n.h) * a.ph;
    t += split_position(&at, n.t) * a.pt;
    bool inside = t < a.frames && h < a.height && w < a.width;
    int64_t from = (((at * a.channels + c) * a.frames + t) * a.height + h) * a.width + w;
    tokens[i] = inside ? video[from] : T(0);
}

template <typename T>
static __global__ void __launch_bounds__(WALK_THREADS)
    to_video(T *video, const T *tokens, struct patch_attr a, struct patch_grid n, int64_t count)
{
    int64_t i = (int64_t)blockIdx.x * WALK_THREADS + threadIdx.x, at = i;
    if (i >= count)
        return;
    int64_t w = split_position(&at, a.width), h = split_position(&at, a.height),
            t = split_position(&at, a.frames);
    int64_t c = split_position(&at, a.channels);
    int64_t token = ((at * n.t + t / a.pt) * n.h + h / a.ph) * n.w + w / a.pw;
    int64_t line = (t % a.pt * a.ph + h % a.ph) * a.pw + w % a.pw, size = a.pt * a.ph * a.pw;
    int64_t in_token = a.channels_last ? line * a.channels + c : c * size + line;
    video[i] = tokens[token * a.channels * size + in_token];
}

template <typename T> static void launch(const struct ckpt_kernel_args *k, bool tokens)
{
    const struct patch_attr *a = static_cast<const struct patch_attr *>(k->attr);
    struct patch_grid n = {patch_count(a->frames, a->pt), patch_count(a->height, a->ph),
                           patch_count(a->width, a->pw)};
    int64_t count = desc_numel(&k->out[0].desc);
    unsigned blocks = blocks_of(count, WALK_THREADS);
    T *y = static_cast<T *>(k->out[0].data);
    const T *x = static_cast<const T *>(k->in[0].data);
    if (tokens)
        to_tokens<<<blocks, WALK_THREADS, 0, stream_of(k)>>>(y, x, *a, n, count);
    else
        to_video<<<blocks, WALK_THREADS, 0, stream_of(k)>>>(y, x, *a, n, count);
}

static int move(const struct ckpt_kernel_args *k, bool tokens)
{
    if (k->in[0].desc.dtype == CKPT_BF16)
        launch<uint16_t>(k, tokens);
    else
        launch<uint32_t>(k, tokens);
    return launched();
}

int cuda_patchify(const struct ckpt_kernel_args *k)
{
    return move(k, true);
}

int cuda_unpatchify(const struct ckpt_kernel_args *k)
{
    return move(k, false);
}
