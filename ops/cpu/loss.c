/* SPDX-License-Identifier: Apache-2.0 */
/* Mean squared error with a frame mask, and softmax cross-entropy.  Sums are double. */
#include "kernels.h"
#include "loss.h"
#include "report.h"
#include "rows.h"
#include "vmath.h"

/* Prediction [B, C, T, ...] as samples of lines: a line is what one frame of one channel holds. */
struct frames {
    const struct ckpt_view *pred, *target;
    const int32_t *mask; /* [B, T] or NULL */
    int64_t batch, sample, frames, line;
};

static struct frames frames_of(const struct ckpt_view *pred, const struct ckpt_view *target,
                               const struct ckpt_view *mask)
{
    struct frames f = {.pred = pred, .target = target, .mask = mask->data};
    f.batch = pred->desc.shape[0];
    f.sample = desc_numel(&pred->desc) / f.batch;
    f.frames = f.mask ? pred->desc.shape[2] : 1;
    f.line = f.mask ? f.sample / pred->desc.shape[1] / f.frames : f.sample;
    return f;
}

/* 1 / (elements that count in sample b), or 0 where none does. */
static double sample_weight(const struct frames *f, int64_t b)
{
    int64_t shown = 0;
    for (int64_t t = 0; t < f->frames; t++)
        shown += !f->mask || f->mask[b * f->frames + t] != 0;
    return shown ? (double)f->frames / ((double)shown * (double)f->sample) : 0.0;
}

/* The run of elements [i, *end) of sample b that lie in one frame; whether that frame counts. */
static bool frame_at(const struct frames *f, int64_t b, int64_t i, int64_t *end)
{
    *end = min_i64(*end, (i / f->line + 1) * f->line);
    return !f->mask || f->mask[b * f->frames + i / f->line % f->frames] != 0;
}

ROWS_INLINE double squared_error(const void *p, const void *q, int64_t i, int64_t end, bool p_half,
                                 bool q_half)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = i; j < end; j++) {
        float d = row_get(p, j, p_half) - row_get(q, j, q_half);
        sum += (double)d * (double)d;
    }
    return sum;
}

CKPT_CLONES static double squared_error_leaf(const void *p, const void *q, int64_t i, int64_t end,
                                             bool p_half, bool q_half)
{
    if (p_half && q_half)
        return squared_error(p, q, i, end, true, true);
    if (p_half)
        return squared_error(p, q, i, end, true, false);
    return q_half ? squared_error(p, q, i, end, false, true)
                  : squared_error(p, q, i, end, false, false);
}

static double mse_chunk(const struct frames *f, int64_t b, int64_t begin, int64_t end)
{
    double sum = 0;
    int64_t stop;
    for (int64_t i = begin; i < end; i = stop) {
        stop = end;
        if (frame_at(f, b, i, &stop))
            sum +=
                squared_error_leaf(f->pred->data, f->target->data, b * f->sample + i,
                                   b * f->sample + stop, view_half(f->pred), view_half(f->target));
    }
    return sum;
}

int cpu_mse(const struct ckpt_kernel_args *a)
{
    struct frames f = frames_of(&a->in[0], &a->in[1], &a->in[2]);
    int64_t chunks = mse_chunks(&a->in[0].desc);
    double *partial = a->workspace, loss = 0;
#pragma omp parallel for schedule(static) if (f.batch * f.sample > ROWS_CHUNK)
    for (int64_t i = 0; i < f.batch * chunks; i++) {
        int64_t begin = i % chunks * MSE_CHUNK;
        partial[i] = mse_chunk(&f, i / chunks, begin, min_i64(f.sample, begin + MSE_CHUNK));
    }
    for (int64_t b = 0; b < f.batch; b++) {
        double sum = 0;
        for (int64_t i = 0; i < chunks; i++)
            sum += partial[b * chunks + i];
        loss += sum * sample_weight(&f, b);
    }
    *(float *)a->out[0].data = (float)(loss / (double)f.batch);
    return CKPT_OK;
}

/* dpred = slope (pred - target) */
ROWS_INLINE void slope_rows(const void *restrict p, const void *restrict q, void *restrict d,
                            int64_t i, int64_t end, float slope, bool p_half, bool q_half)
{
#pragma omp simd
    for (int64_t j = i; j < end; j++)
        row_put(d, j, slope * (row_get(p, j, p_half) - row_get(q, j, q_half)), p_half);
}

CKPT_CLONES static void slope_leaf(const void *p, const void *q, void *d, int64_t i, int64_t end,
                                   float slope, bool p_half, bool q_half)
{
    if (p_half && q_half)
        slope_rows(p, q, d, i, end, slope, true, true);
    else if (p_half)
        slope_rows(p, q, d, i, end, slope, true, false);
    else if (q_half)
        slope_rows(p, q, d, i, end, slope, false, true);
    else
        slope_rows(p, q, d, i, end, slope, false, false);
}

static void mse_dx_chunk(const struct frames *f, void *dpred, int64_t b, int64_t begin, int64_t end,
                         float slope)
{
    int64_t stop, size = ckpt_dtype_size(f->pred->desc.dtype);
    for (int64_t i = begin; i < end; i = stop) {
        stop = end;
        int64_t at = b * f->sample + i;
        if (frame_at(f, b, i, &stop))
            slope_leaf(f->pred->data, f->target->data, dpred, at, b * f->sample + stop, slope,
                       view_half(f->pred), view_half(f->target));
        else
            memset((char *)dpred + at * size, 0, (size_t)((stop - i) * size));
    }
}

int cpu_mse_dx(const struct ckpt_kernel_args *a)
{
    struct frames f = frames_of(&a->in[1], &a->in[2], &a->in[3]);
    double dloss = *(const float *)a->in[0].data;
    int64_t chunks = mse_chunks(&a->in[1].desc);
#pragma omp parallel for schedule(static) if (f.batch * f.sample > ROWS_CHUNK)
    for (int64_t i = 0; i < f.batch * chunks; i++) {
        int64_t b = i / chunks, begin = i % chunks * MSE_CHUNK;
        double slope = 2.0 * dloss * sample_weight(&f, b) / (double)f.batch;
        mse_dx_chunk(&f, a->out[0].data, b, begin, min_i64(f.sample, begin + MSE_CHUNK),
                     (float)slope);
    }
    return CKPT_OK;
}

/* Largest value of a row: a maximum of lanes, as compilers will not reorder one of floats. */
ROWS_INLINE float largest_of(const void *x, int64_t n, bool half)
{
    float lane[16], top = -INFINITY;
    int64_t whole = n / 16 * 16;
    for (int k = 0; k < 16; k++)
        lane[k] = -INFINITY;
    for (int64_t j = 0; j < whole; j += 16) {
#pragma omp simd
        for (int k = 0; k < 16; k++) {
            float v = row_get(x, j + k, half);
            lane[k] = v > lane[k] ? v : lane[k];
        }
    }
    for (int k = 0; k < 16; k++)
        top = lane[k] > top ? lane[k] : top;
    for (int64_t j = whole; j < n; j++) {
        float v = row_get(x, j, half);
        top = v > top ? v : top;
    }
    return top;
}

/* Largest value of a row, and the sum of exp(x - largest): double, as near 1 a small loss is all in
 * the digits behind the point. */
ROWS_INLINE double softmax_row(const void *x, int64_t n, bool half, float *largest)
{
    float top = largest_of(x, n, half);
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += (double)vexp(row_get(x, j, half) - top);
    *largest = top;
    return sum;
}

CKPT_CLONES static double softmax_leaf(const void *x, int64_t n, bool half, float *largest)
{
    return half ? softmax_row(x, n, true, largest) : softmax_row(x, n, false, largest);
}

/* NaN where the label is outside [0, n). */
static double row_loss(const void *x, int64_t n, bool half, int32_t label)
{
    float largest;
    if (label < 0 || label >= n)
        return NAN;
    double sum = softmax_leaf(x, n, half, &largest);
    return log(sum) + ((double)largest - (double)row_get(x, label, half));
}

int cpu_cross_entropy(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[0];
    const int32_t *label = a->in[1].data;
    int64_t batch = x->desc.shape[0], n = x->desc.shape[1];
    int64_t step = n * ckpt_dtype_size(x->desc.dtype);
    double *each = a->workspace, loss = 0;
#pragma omp parallel for schedule(static) if (batch * n > ROWS_CHUNK)
    for (int64_t b = 0; b < batch; b++) {
        each[b] = row_loss((const char *)x->data + b * step, n, view_half(x), label[b]);
        if (label[b] < 0 || label[b] >= n)
            report_index(a, b, label[b], n);
    }
    for (int64_t b = 0; b < batch; b++)
        loss += each[b];
    *(float *)a->out[0].data = (float)(loss / (double)batch);
    return CKPT_OK;
}

/* dx = slope (softmax(x) - one_hot(label)) */
ROWS_INLINE void cross_entropy_dx_row(const void *restrict x, void *restrict dx, int64_t n,
                                      int32_t label, float slope, bool half)
{
    float largest, sum = (float)softmax_row(x, n, half, &largest);
    if (label < 0 || label >= n)
        slope = NAN;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float p = vexp(row_get(x, j, half) - largest) / sum;
        row_put(dx, j, slope * (p - (j == label ? 1.f : 0.f)), half);
    }
}

CKPT_CLONES static void cross_entropy_dx_leaf(const void *x, void *dx, int64_t n, int32_t label,
                                              float slope, bool half)
{
    if (half)
        cross_entropy_dx_row(x, dx, n, label, slope, true);
    else
        cross_entropy_dx_row(x, dx, n, label, slope, false);
}

int cpu_cross_entropy_dx(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[1];
    const int32_t *label = a->in[2].data;
    int64_t batch = x->desc.shape[0], n = x->desc.shape[1];
    int64_t step = n * ckpt_dtype_size(x->desc.dtype);
    float slope = *(const float *)a->in[0].data / (float)batch;
#pragma omp parallel for schedule(static) if (batch * n > ROWS_CHUNK)
    for (int64_t b = 0; b < batch; b++)
        cross_entropy_dx_leaf((const char *)x->data + b * step, (char *)a->out[0].data + b * step,
                              n, label[b], slope, view_half(x));
    return CKPT_OK;
}
