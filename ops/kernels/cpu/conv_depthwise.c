/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolutions: each channel of x produces k / c channels of y, independent of other
 * channels.  A position of the result is a sum over taps, vectorised along the channels.  The
 * weight is transposed first, to [taps, k] in fp32, so that its channels are contiguous, too.
 */
#include "shapes/conv.h"
#include "conv_kernels.h"
#include "conv_taps.h"
#include "cpu.h"
#include "rows.h"

enum {
    LANES = 256, /* channels summed together */
    UNIT = 64    /* positions per partial sum of the weight gradient */
};

struct depthwise {
    struct conv_gather g; /* over all channels */
    int64_t k, each;      /* channels of y; channels of y per channel of x */
    const float *weight;
    const void *source, *bias;
    void *out;
};

int64_t cpu_depthwise_workspace(const struct conv_shape *s)
{
    return conv_volume(s->kernel) * s->k * (int64_t)sizeof(float);
}

static const float *transpose_weight(const struct conv_shape *s, const struct ckpt_view *w,
                                     float *to)
{
    int64_t taps = conv_volume(s->kernel);
    for (int64_t k = 0; k < s->k; k++)
        for (int64_t t = 0; t < taps; t++)
            to[t * s->k + k] = row_get(w->data, k * taps + t, view_half(w));
    return to;
}

/* sum[j] += the products of one tap, for n channels of y from `first` on. */
ROWS_INLINE void add_tap(const struct depthwise *d, float *sum, int64_t tap, int64_t from,
                         int64_t first, int64_t n, bool half)
{
    const float *w = d->weight + tap * d->k + first;
    if (d->each == 1) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            sum[j] += w[j] * row_get(d->source, from + first + j, half);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        sum[j] += w[j] * row_get(d->source, from + (first + j) / d->each, half);
}

/* The same for channels of x, each with `each` channels of y. */
ROWS_INLINE void add_tap_dx(const struct depthwise *d, float *sum, int64_t tap, int64_t from,
                            int64_t first, int64_t n, bool half)
{
    const float *w = d->weight + tap * d->k + first * d->each;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < d->each; i++)
            sum[j] +=
                w[j * d->each + i] * row_get(d->source, from + (first + j) * d->each + i, half);
}

ROWS_INLINE void compute_position(const struct depthwise *d, int64_t row, bool back, bool half)
{
    float sum[LANES];
    const int64_t channels = back ? d->k / d->each : d->k, taps = conv_volume(d->g.taps);
    struct conv_taps w;
    for (int64_t first = 0, n; first < channels; first += n) {
        n = min_i64(LANES, channels - first);
        for (int64_t j = 0; j < n; j++)
            sum[j] = d->bias ? row_get(d->bias, first + j, half) : 0.f;
        int64_t sample = conv_taps_begin(&d->g, &w, row, 0);
        for (int64_t t = 0; t < taps; t++, conv_taps_next(&d->g, &w)) {
            int64_t from = conv_taps_source(&d->g, &w, sample);
            if (from >= 0 && back && d->each > 1)
                add_tap_dx(d, sum, t, from, first, n, half);
            else if (from >= 0)
                add_tap(d, sum, t, from, first, n, half);
        }
        for (int64_t j = 0; j < n; j++)
            row_put(d->out, row * channels + first + j, sum[j], half);
    }
}

CKPT_CLONES static void compute_positions(const struct depthwise *d, int64_t begin, int64_t end,
                                          bool back, bool half)
{
    for (int64_t row = begin; row < end; row++)
        WITH_FLAG(half, compute_position, d, row, back);
}

static void compute_all(const struct depthwise *d, int64_t rows, bool back, bool half)
{
    const int64_t piece = rows_per_chunk(d->k), pieces = (rows + piece - 1) / piece;
#pragma omp parallel for schedule(static) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++)
        compute_positions(d, i * piece, min_i64(rows, (i + 1) * piece), back, half);
}

void cpu_depthwise(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    struct depthwise d = {.g = conv_gather_x(s),
                          .k = s->k,
                          .each = s->k / s->c,
                          .weight = transpose_weight(s, &a->in[1], a->workspace),
                          .source = a->in[0].data,
                          .bias = a->in[2].data,
                          .out = a->out[0].data};
    compute_all(&d, s->n * conv_volume(s->out), false, view_half(&a->in[0]));
}

void cpu_depthwise_dx(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    struct depthwise d = {.g = conv_gather_dy(s),
                          .k = s->k,
                          .each = s->k / s->c,
                          .weight = transpose_weight(s, &a->in[1], a->workspace),
                          .source = a->in[0].data,
                          .out = a->out[0].data};
    compute_all(&d, s->n * conv_volume(s->in), true, view_half(&a->in[0]));
}

/* ---- gradient of the weight ------------------------------------------------------------------ */

static int64_t units_of(const struct conv_shape *s)
{
    return (s->n * conv_volume(s->out) + UNIT - 1) / UNIT;
}

static int64_t slots_of(const struct conv_shape *s)
{
    double places = (double)s->n * (double)conv_volume(s->out);
    return cpu_slots(units_of(s), places * (double)conv_volume(s->kernel) * (double)s->k);
}

/* A slot holds two sums [taps, k]: the total and that of one unit. */
int64_t cpu_depthwise_dw_workspace(const struct conv_shape *s)
{
    return slots_of(s) * 2 * conv_volume(s->kernel) * s->k * (int64_t)sizeof(float);
}

/* to[j] += dy times the input of the tap, for all channels of y.  d->out is dy. */
ROWS_INLINE void add_product(const struct depthwise *d, float *to, int64_t y, int64_t from,
                             bool half)
{
    if (d->each == 1) {
#pragma omp simd
        for (int64_t j = 0; j < d->k; j++)
            to[j] += row_get(d->out, y + j, half) * row_get(d->source, from + j, half);
        return;
    }
    for (int64_t j = 0; j < d->k; j++)
        to[j] += row_get(d->out, y + j, half) * row_get(d->source, from + j / d->each, half);
}

/* Sums positions begin .. end - 1 into sum [taps, k]. */
ROWS_INLINE void sum_places(const struct depthwise *d, float *sum, int64_t begin, int64_t end,
                            bool half)
{
    const int64_t taps = conv_volume(d->g.taps);
    for (int64_t row = begin; row < end; row++) {
        struct conv_taps w;
        int64_t sample = conv_taps_begin(&d->g, &w, row, 0);
        for (int64_t t = 0; t < taps; t++, conv_taps_next(&d->g, &w)) {
            int64_t from = conv_taps_source(&d->g, &w, sample);
            if (from >= 0)
                add_product(d, sum + t * d->k, row * d->k, from, half);
        }
    }
}

/* Sums positions begin .. end - 1 of a slot, unit by unit. */
CKPT_CLONES static void sum_slot(const struct depthwise *d, float *slot, int64_t begin, int64_t end,
                                 int64_t cells, bool half)
{
    float *total = slot, *sum = slot + cells;
    memset(total, 0, (size_t)cells * sizeof *total);
    for (; begin < end; begin += UNIT) {
        memset(sum, 0, (size_t)cells * sizeof *sum);
        WITH_FLAG(half, sum_places, d, sum, begin, min_i64(begin + UNIT, end));
        for (int64_t i = 0; i < cells; i++)
            total[i] += sum[i];
    }
}

void cpu_depthwise_dw(const struct ckpt_kernel_args *a, const struct conv_shape *s)
{
    const struct depthwise d = {.g = conv_gather_x(s),
                                .k = s->k,
                                .each = s->k / s->c,
                                .source = a->in[1].data,
                                .out = a->in[0].data};
    const int64_t slots = slots_of(s), units = units_of(s), taps = conv_volume(s->kernel);
    const int64_t cells = taps * s->k, places = s->n * conv_volume(s->out);
    float *scratch = a->workspace, *dw = a->out[0].data;
    const bool half = view_half(&a->in[0]);
#pragma omp parallel for schedule(static) if (slots > 1)
    for (int64_t i = 0; i < slots; i++)
        sum_slot(&d, scratch + i * 2 * cells, i * units / slots * UNIT,
                 min_i64(places, (i + 1) * units / slots * UNIT), cells, half);
    for (int64_t k = 0; k < s->k; k++)
        for (int64_t t = 0; t < taps; t++) {
            float sum = 0.f;
            for (int64_t i = 0; i < slots; i++)
                sum += scratch[i * 2 * cells + t * s->k + k];
            dw[k * taps + t] = a->accumulate ? dw[k * taps + t] + sum : sum;
        }
}
