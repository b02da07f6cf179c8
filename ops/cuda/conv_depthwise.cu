/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolutions: see ops/cpu/conv_depthwise.c.  Neighbouring threads take neighbouring
 * channels, so that what a tap reads lies side by side; the weight stays in the cache.
 */
#include "cuda/cuda.cuh"
#include "cuda/conv_direct.h"
#include "cuda/workspace.h"

namespace
{

enum { LANES = CUDA_DEPTHWISE_CHANNELS, PLACES = CUDA_DEPTHWISE_PLACES };

struct depthwise {
    struct conv_gather g; /* with all channels */
    int64_t rows;         /* positions of all samples */
    int64_t k, channels;  /* of y; of the result */
    int64_t across;       /* blocks along the channels */
    int64_t parts, part;  /* of a weight gradient: parts of the sum, and their length */
    int each, taps;       /* channels of y to one of x; taps of the kernel */
};

/* A position: its sample, and its place along each axis. */
struct place {
    int64_t sample;
    int at[3];
};

__device__ __forceinline__ struct place place_of(const struct conv_gather &g, int64_t row)
{
    struct place p;
    int h = (int)g.positions[1], w = (int)g.positions[2], places = (int)g.positions[0] * h * w;
    p.sample = row / places;
    int rest = (int)(row - p.sample * places);
    p.at[2] = rest % w;
    p.at[1] = rest / w % h;
    p.at[0] = rest / w / h;
    return p;
}

/* Where a tap reads along an axis, or -1. */
__device__ __forceinline__ int64_t along(const struct conv_gather &g, int axis, int position,
                                         int tap)
{
    int64_t at = position * g.scale[axis] + g.shift[axis] + tap * g.turn[axis];
    if (at < 0)
        return -1;
    if (g.divide[axis] > 1) { /* at: below 2^32, as all sizes and steps are */
        unsigned divide = (unsigned)g.divide[axis], whole = (unsigned)at / divide;
        if (whole * divide != (unsigned)at)
            return -1;
        at = whole;
    }
    return at < g.source[axis] ? at : -1;
}

/* One channel of one place of y, or of x where BACK. */
template <typename T, bool BACK>
__device__ __forceinline__ float sum_taps(const struct depthwise &d, const T *source, const T *w,
                                          const struct place &p, int64_t channel, float sum)
{
    const struct conv_gather &g = d.g;
    int64_t from = BACK ? channel * d.each : channel / d.each; /* the channel that is read */
    int64_t own = BACK ? from : channel;                       /* that of y, and of the weight */
    int tap = 0;
    for (int a = 0; a < (int)g.taps[0]; a++) {
        int64_t z = along(g, 0, p.at[0], a);
        for (int b = 0; b < (int)g.taps[1]; b++) {
            int64_t y = z < 0 ? -1 : along(g, 1, p.at[1], b);
            for (int c = 0; c < (int)g.taps[2]; c++, tap++) {
                int64_t x = y < 0 ? -1 : along(g, 2, p.at[2], c);
                if (x < 0)
                    continue;
                int64_t at = ((p.sample * g.source[0] + z) * g.source[1] + y) * g.source[2] + x;
                for (int i = 0; i < (BACK ? d.each : 1); i++)
                    sum += to_float(w[(own + i) * d.taps + tap]) *
                           to_float(source[at * g.pitch + from + i]);
            }
        }
    }
    return sum;
}

template <typename T, bool BACK>
__global__ void __launch_bounds__(LANES *PLACES)
    fill_places(const __grid_constant__ struct depthwise d, const T *source, const T *w,
                const T *bias, T *out)
{
    int64_t channel = blockIdx.x % d.across * LANES + threadIdx.x % LANES;
    int64_t row = blockIdx.x / d.across * PLACES + threadIdx.x / LANES;
    if (channel >= d.channels || row >= d.rows)
        return;
    struct place p = place_of(d.g, row);
    float sum = bias ? to_float(bias[channel]) : 0.f;
    sum = sum_taps<T, BACK>(d, source, w, p, channel, sum);
    out[row * d.channels + channel] = from_float<T>(sum);
}

/*
 * A block sums one tap of LANES channels over one part of the places: a thread takes every
 * PLACES-th of them, and the first ones add up what the others found, in order.  part [parts, k,
 * taps], or the gradient itself.
 */
template <typename T>
__global__ void __launch_bounds__(LANES *PLACES)
    sum_places(const __grid_constant__ struct depthwise d, const T *dy, const T *x, float *part,
               bool add)
{
    __shared__ float found[PLACES][LANES];
    const struct conv_gather &g = d.g;
    int64_t block = blockIdx.x / d.across;
    int tap = (int)(block % d.taps), lane = threadIdx.x % LANES, first = threadIdx.x / LANES;
    int64_t which = block / d.taps, channel = blockIdx.x % d.across * LANES + lane;
    int64_t begin = which * d.part, end = min(d.rows, begin + d.part);
    int t[3] = {tap / (int)(g.taps[1] * g.taps[2]), tap / (int)g.taps[2] % (int)g.taps[1],
                tap % (int)g.taps[2]};
    float sum = 0.f;
    for (int64_t row = begin + first; row < end && channel < d.k; row += PLACES) {
        struct place p = place_of(g, row);
        int64_t a = along(g, 0, p.at[0], t[0]), b = along(g, 1, p.at[1], t[1]);
        int64_t c = along(g, 2, p.at[2], t[2]);
        if (a < 0 || b < 0 || c < 0)
            continue;
        int64_t at = ((p.sample * g.source[0] + a) * g.source[1] + b) * g.source[2] + c;
        sum += to_float(dy[row * d.k + channel]) * to_float(x[at * g.pitch + channel / d.each]);
    }
    found[first][lane] = sum;
    __syncthreads();
    if (first || channel >= d.k)
        return;
    for (int i = 1; i < PLACES; i++)
        sum += found[i][lane];
    int64_t to = (which * d.k + channel) * d.taps + tap;
    part[to] = add ? part[to] + sum : sum;
}

struct depthwise depthwise_of(const struct conv_shape *s, bool back)
{
    struct depthwise d = {};
    d.g = back ? conv_gather_dy(s) : conv_gather_x(s);
    d.rows = s->n * conv_volume(back ? s->in : s->out);
    d.k = s->k;
    d.channels = back ? s->c : s->k;
    d.across = (d.channels + LANES - 1) / LANES;
    d.each = (int)(s->k / s->c);
    d.taps = (int)conv_volume(s->kernel);
    return d;
}

template <typename T, bool BACK>
int fill(const struct ckpt_kernel_args *a, const struct conv_shape *s, const void *bias)
{
    struct depthwise d = depthwise_of(s, BACK);
    int64_t blocks = (d.rows + PLACES - 1) / PLACES * d.across;
    fill_places<T, BACK><<<(unsigned)blocks, LANES * PLACES, 0, stream_of(a)>>>(
        d, (const T *)a->in[0].data, (const T *)a->in[1].data, (const T *)bias,
        (T *)a->out[0].data);
    return launched();
}

template <typename T> int sum_weight(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    struct depthwise d = depthwise_of(s, false);
    d.parts = cuda_depthwise_parts(s);
    d.part = (d.rows + d.parts - 1) / d.parts;
    float *to = (float *)(d.parts > 1 ? a->workspace : a->out[0].data);
    sum_places<T><<<(unsigned)(d.across * d.taps * d.parts), LANES * PLACES, 0, stream_of(a)>>>(
        d, (const T *)a->in[0].data, (const T *)a->in[1].data, to, a->accumulate && d.parts == 1);
    int rc = launched();
    if (rc || d.parts == 1)
        return rc;
    return cuda_conv_add_parts(a, to, d.parts, cuda_conv_weights(s));
}

} // namespace

int cuda_depthwise(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    const void *bias = a->in[2].data;
    return a->in[0].desc.dtype == CKPT_BF16 ? fill<bf16, false>(a, s, bias)
                                            : fill<float, false>(a, s, bias);
}

int cuda_depthwise_dx(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    return a->in[0].desc.dtype == CKPT_BF16 ? fill<bf16, true>(a, s, NULL)
                                            : fill<float, true>(a, s, NULL);
}

int cuda_depthwise_dw(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    return a->in[0].desc.dtype == CKPT_BF16 ? sum_weight<bf16>(a, s) : sum_weight<float>(a, s);
}
