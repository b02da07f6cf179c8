/* SPDX-License-Identifier: Apache-2.0 */
/* Mean squared error with a frame mask.  Sums are in double. */
#include "kernels.h"
#include "workspace.h"
#include "rows.h"

/* Prediction [B, C, T, ...] viewed as lines: a line is the elements of one frame of one channel. */
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

/* 1 / (unmasked elements of sample b), or 0 if there are none. */
static double sample_weight(const struct frames *f, int64_t b)
{
    int64_t shown = 0;
    for (int64_t t = 0; t < f->frames; t++)
        shown += !f->mask || f->mask[b * f->frames + t] != 0;
    return shown ? (double)f->frames / ((double)shown * (double)f->sample) : 0.0;
}

/* Sets *end so that elements [i, *end) of sample b lie in one frame.  Returns whether that frame is
 * unmasked. */
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
    return WITH_FLAGS(p_half, q_half, squared_error, p, q, i, end);
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

CKPT_CLONES static void loss_slope_leaf(const void *p, const void *q, void *d, int64_t i,
                                        int64_t end, float slope, bool p_half, bool q_half)
{
    WITH_FLAGS(p_half, q_half, slope_rows, p, q, d, i, end, slope);
}

static void mse_dx_chunk(const struct frames *f, void *dpred, int64_t b, int64_t begin, int64_t end,
                         float slope)
{
    int64_t stop, size = ckpt_dtype_size(f->pred->desc.dtype);
    for (int64_t i = begin; i < end; i = stop) {
        stop = end;
        int64_t at = b * f->sample + i;
        if (frame_at(f, b, i, &stop))
            loss_slope_leaf(f->pred->data, f->target->data, dpred, at, b * f->sample + stop, slope,
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
