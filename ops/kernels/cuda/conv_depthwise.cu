/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolutions: see cpu/conv_depthwise.c.  Neighbouring threads compute neighbouring
 * channels, so the reads of a tap are contiguous.
 *
 * A block keeps the weight of its channels, transposed, in shared memory.  A thread computes
 * several neighbouring positions, so that it loads each weight once for all of them. fill_runs and
 * indices within a sample use 32 bits; larger tensors use fill_places, one position per thread.
 */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/conv_direct.h"
#include "kernels/cuda/workspace.h"

namespace
{

enum {
    LANES = CUDA_DEPTHWISE_CHANNELS,
    PLACES = CUDA_DEPTHWISE_PLACES,
    RUN = 4,           /* positions of a thread, along the last axis */
    RUNS = 2,          /* runs of positions per thread */
    PITCH = LANES + 1, /* of a tap in shared memory; one more than LANES avoids bank conflicts in
                          the transposition */
    SHARED = 8192      /* floats of the weight in shared memory */
};

struct depthwise {
    struct conv_gather g; /* its channels are those of all groups */
    int64_t rows;         /* positions of all samples */
    int64_t k, channels;  /* channels of y; channels of the result */
    int64_t across;       /* blocks along the channels */
    int64_t parts, part;  /* for a weight gradient: parts of the sum, and positions of a part */
    int each, taps;       /* channels of y per channel of x; taps of the kernel */
};

/* A position: its sample, and its index along each axis. */
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

/* Advances p by `places` positions.  Increments are cheaper here than divisions. */
__device__ __forceinline__ void advance(const struct conv_gather &g, struct place *p, int places)
{
    p->at[2] += places;
    while (p->at[2] >= (int)g.positions[2]) {
        p->at[2] -= (int)g.positions[2];
        if (++p->at[1] < (int)g.positions[1])
            continue;
        p->at[1] = 0;
        if (++p->at[0] < (int)g.positions[0])
            continue;
        p->at[0] = 0;
        p->sample++;
    }
}

/* The index that a tap reads along an axis, or -1. */
__device__ __forceinline__ int64_t source_index(const struct conv_gather &g, int axis, int position,
                                                int tap)
{
    int64_t at = position * g.scale[axis] + g.shift[axis] + tap * g.turn[axis];
    if (at < 0)
        return -1;
    if (g.divide[axis] > 1) { /* at is below 2^32, as all sizes and strides are */
        unsigned divide = (unsigned)g.divide[axis], whole = (unsigned)at / divide;
        if (whole * divide != (unsigned)at)
            return -1;
        at = whole;
    }
    return at < g.source[axis] ? at : -1;
}

/* Sums one channel of one position of y, or of x if BACK. */
template <typename T, bool BACK>
__device__ __forceinline__ float sum_taps(const struct depthwise &d, const T *source, const T *w,
                                          const struct place &p, int64_t channel, float sum)
{
    const struct conv_gather &g = d.g;
    int64_t from = BACK ? channel * d.each : channel / d.each; /* the channel that is read */
    int64_t own = BACK ? from : channel; /* the channel of y and of the weight */
    int tap = 0;
    for (int a = 0; a < (int)g.taps[0]; a++) {
        int64_t z = source_index(g, 0, p.at[0], a);
        for (int b = 0; b < (int)g.taps[1]; b++) {
            int64_t y = z < 0 ? -1 : source_index(g, 1, p.at[1], b);
            for (int c = 0; c < (int)g.taps[2]; c++, tap++) {
                int64_t x = y < 0 ? -1 : source_index(g, 2, p.at[2], c);
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

/* The same if all values are below 2^31. */
__device__ __forceinline__ int source_index_small(const struct conv_gather &g, int axis,
                                                  int position, int tap)
{
    int at = position * (int)g.scale[axis] + (int)g.shift[axis] + tap * (int)g.turn[axis];
    if (g.divide[axis] > 1 && at >= 0) {
        int divide = (int)g.divide[axis], whole = (int)((unsigned)at / (unsigned)divide);
        at = whole * divide == at ? whole : -1;
    }
    return at < (int)g.source[axis] ? at : -1;
}

/* weight [taps, several, PITCH] = the weight of this block's channels, in fp32. */
template <typename T>
__device__ __forceinline__ void transpose_weight(float *weight, const T *w, int taps, int several,
                                                 int channels)
{
    for (int i = threadIdx.x; i < channels * several * taps; i += LANES * PLACES) {
        int own = i / taps, tap = i - own * taps, lane = own / several;
        weight[(tap * several + own - lane * several) * PITCH + lane] = to_float(w[i]);
    }
}

/* Adds the same sums as sum_taps for one channel of RUN positions from p on. source: the channel,
 * in p's sample. */
template <typename T>
__device__ __forceinline__ void sum_run(const struct depthwise &d, const T *source,
                                        const float *weight, int several, const struct place &p,
                                        float (&sum)[RUN])
{
    const struct conv_gather &g = d.g;
    const int across = (int)g.taps[2], pitch = (int)g.pitch;
    for (int a = 0; a < (int)g.taps[0]; a++) {
        int z = source_index_small(g, 0, p.at[0], a);
        for (int b = 0; b < (int)g.taps[1]; b++, weight += across * several * PITCH) {
            int y = z < 0 ? -1 : source_index_small(g, 1, p.at[1], b);
            if (y < 0)
                continue;
            const T *line = source + (z * (int)g.source[1] + y) * (int)g.source[2] * pitch;
            for (int c = 0; c < across; c++) {
                int x[RUN];
#pragma unroll
                for (int r = 0; r < RUN; r++)
                    x[r] = source_index_small(g, 2, p.at[2] + r, c);
                for (int i = 0; i < several; i++) {
                    const float factor = weight[(c * several + i) * PITCH];
#pragma unroll
                    for (int r = 0; r < RUN; r++)
                        if (x[r] >= 0)
                            sum[r] += factor * to_float(line[x[r] * pitch + i]);
                }
            }
        }
    }
}

/* The first position of run number `run` of all samples. */
__device__ __forceinline__ struct place run_of(const struct conv_gather &g, int64_t run)
{
    struct place p;
    int h = (int)g.positions[1], w = ((int)g.positions[2] + RUN - 1) / RUN;
    int runs = (int)g.positions[0] * h * w;
    p.sample = run / runs;
    int rest = (int)(run - p.sample * runs);
    p.at[2] = rest % w * RUN;
    p.at[1] = rest / w % h;
    p.at[0] = rest / w / h;
    return p;
}

/* Same sums as fill_places. runs: the number of runs of all samples. */
template <typename T, bool BACK>
__global__ void __launch_bounds__(LANES *PLACES)
    fill_runs(const __grid_constant__ struct depthwise d, const T *source, const T *w,
              const T *bias, T *out, int64_t runs)
{
    __shared__ float weight[SHARED];
    const struct conv_gather &g = d.g;
    const int lane = threadIdx.x % LANES, several = BACK ? d.each : 1;
    const int64_t first = blockIdx.x % d.across * LANES, channel = first + lane;
    const int64_t volume = g.source[0] * g.source[1] * g.source[2];
    const int64_t from = BACK ? channel * d.each : channel / d.each;
    transpose_weight(weight, w + first * several * d.taps, d.taps, several,
                     (int)min((int64_t)LANES, d.channels - first));
    __syncthreads();
    if (channel >= d.channels)
        return;
    const float begin = bias ? to_float(bias[channel]) : 0.f;
    int64_t run = blockIdx.x / d.across * (PLACES * RUNS) + threadIdx.x / LANES;
    for (int turn = 0; turn < RUNS && run < runs; turn++, run += PLACES) {
        const struct place p = run_of(g, run);
        float sum[RUN];
#pragma unroll
        for (int r = 0; r < RUN; r++)
            sum[r] = begin;
        sum_run(d, source + p.sample * volume * g.pitch + from, weight + lane, several, p, sum);
        int64_t row = (p.sample * g.positions[0] + p.at[0]) * g.positions[1] + p.at[1];
        row = row * g.positions[2] + p.at[2];
#pragma unroll
        for (int r = 0; r < RUN; r++)
            if (p.at[2] + r < (int)g.positions[2])
                out[(row + r) * d.channels + channel] = from_float<T>(sum[r]);
    }
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
 * A block sums one tap of LANES channels over one part of the positions.  Each thread sums every
 * PLACES-th position; then the first LANES threads add the partial sums in order. part: [parts, k,
 * taps], or the gradient itself.
 */
template <typename T>
__global__ void __launch_bounds__(LANES *PLACES)
    sum_places(const __grid_constant__ struct depthwise d, const T *dy, const T *x, float *part,
               bool add)
{
    __shared__ float partial[PLACES][LANES];
    const struct conv_gather &g = d.g;
    int64_t block = blockIdx.x / d.across;
    int tap = (int)(block % d.taps), lane = threadIdx.x % LANES, first = threadIdx.x / LANES;
    int64_t which = block / d.taps, channel = blockIdx.x % d.across * LANES + lane;
    int64_t begin = which * d.part, end = min(d.rows, begin + d.part);
    int t[3] = {tap / (int)(g.taps[1] * g.taps[2]), tap / (int)g.taps[2] % (int)g.taps[1],
                tap % (int)g.taps[2]};
    float sum = 0.f;
    int64_t from = channel / d.each;
    struct place p = place_of(g, begin + first);
    for (int64_t row = begin + first; row < end && channel < d.k;
         row += PLACES, advance(g, &p, PLACES)) {
        int64_t a = source_index(g, 0, p.at[0], t[0]), b = source_index(g, 1, p.at[1], t[1]);
        int64_t c = source_index(g, 2, p.at[2], t[2]);
        if (a < 0 || b < 0 || c < 0)
            continue;
        int64_t at = ((p.sample * g.source[0] + a) * g.source[1] + b) * g.source[2] + c;
        sum += to_float(dy[row * d.k + channel]) * to_float(x[at * g.pitch + from]);
    }
    partial[first][lane] = sum;
    __syncthreads();
    if (first || channel >= d.k)
        return;
    for (int i = 1; i < PLACES; i++)
        sum += partial[i][lane];
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

/* Are all indices within a sample, and those that taps compute outside of it, below 2^31? */
bool fits_int32(const struct conv_gather *g)
{
    int64_t largest = conv_volume(g->source) * g->pitch;
    for (int i = 0; i < 3; i++) {
        int64_t step = g->turn[i] < 0 ? -g->turn[i] : g->turn[i];
        int64_t shift = g->shift[i] < 0 ? -g->shift[i] : g->shift[i];
        largest =
            max_i64(largest, (g->positions[i] + RUN) * g->scale[i] + shift + g->taps[i] * step);
    }
    return largest <= INT32_MAX && conv_volume(g->positions) <= INT32_MAX / RUN;
}

template <typename T, bool BACK>
int fill(const struct ckpt_kernel_args *a, const struct conv_shape *s, const void *bias)
{
    struct depthwise d = depthwise_of(s, BACK);
    const T *source = (const T *)a->in[0].data, *w = (const T *)a->in[1].data;
    T *out = (T *)a->out[0].data;
    if (fits_int32(&d.g) && (int64_t)d.taps * (BACK ? d.each : 1) * PITCH <= SHARED) {
        int64_t lines = d.rows / d.g.positions[2];
        int64_t runs = lines * ((d.g.positions[2] + RUN - 1) / RUN);
        int64_t blocks = (runs + PLACES * RUNS - 1) / (PLACES * RUNS) * d.across;
        fill_runs<T, BACK><<<(unsigned)blocks, LANES * PLACES, 0, stream_of(a)>>>(
            d, source, w, (const T *)bias, out, runs);
    } else {
        int64_t blocks = (d.rows + PLACES - 1) / PLACES * d.across;
        fill_places<T, BACK><<<(unsigned)blocks, LANES * PLACES, 0, stream_of(a)>>>(
            d, source, w, (const T *)bias, out);
    }
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
