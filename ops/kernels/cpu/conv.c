/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution kernels.  Each is a matrix product with one im2col matrix, whose rows are the values
 * that the taps read for one position.  This matrix is never stored: gemm requests it block by
 * block, and blocks are gathered into its scratch.  Grouped convolutions are in conv_groups.c,
 * depthwise ones in conv_depthwise.c.
 */
#include "shapes/conv.h"
#include "conv_kernels.h"
#include "conv_taps.h"
#include "cpu.h"
#include "gemm.h"
#include "workspace.h"
#include "kernels.h"

enum {
    FEW_CHANNELS = 32 /* channels; with fewer, starting a copy per tap costs more than the copy */
};

/* Source of a gathered (im2col) matrix. */
struct source {
    struct conv_gather g;
    const char *data;
    enum ckpt_dtype dtype;
};

/* The weight w [k, taps..., c] as a matrix with a row per tap and output channel and a column per
 * input channel. */
struct transposed_weight {
    const char *data;
    enum ckpt_dtype dtype;
    int64_t k, taps, c;
};

struct product {
    struct gemm gemm;
    struct source gathered;
    struct transposed_weight weight;
};

static void fill_row(const struct source *x, float *dst, int64_t row, int64_t col, int64_t n)
{
    const struct conv_gather *g = &x->g;
    const int64_t size = ckpt_dtype_size(x->dtype);
    int64_t channel = col % g->channels;
    struct conv_taps w;
    int64_t sample = conv_taps_begin(g, &w, row, col / g->channels);
    for (int64_t done = 0, m; done < n; done += m, channel = 0, conv_taps_next(g, &w)) {
        int64_t from = conv_taps_source(g, &w, sample);
        m = min_i64(g->channels - channel, n - done);
        if (from < 0)
            memset(dst + done, 0, (size_t)m * sizeof *dst);
        else
            cpu_load(dst + done, x->data + (from + channel) * size, x->dtype, m);
    }
}

/* Whether the taps along the last axis read adjacent positions, with few channels each. */
static bool reads_lines(const struct conv_gather *g)
{
    return g->channels < FEW_CHANNELS && g->turn[2] == 1 && g->divide[2] == 1 && g->taps[2] > 1 &&
           g->channels == g->pitch;
}

static int64_t clamp(int64_t at, int64_t low, int64_t high)
{
    return min_i64(max_i64(at, low), high);
}

/* Copies elements begin .. end - 1 of what a line of taps reads, zeros outside [first, last).
 * Element 0 of the line is element `from` of the source. */
static void fill_line(const struct source *x, float *dst, int64_t begin, int64_t end, int64_t from,
                      int64_t first, int64_t last)
{
    const int64_t a = clamp(first, begin, end), b = clamp(last, a, end);
    memset(dst, 0, (size_t)(a - begin) * sizeof *dst);
    if (a < b)
        cpu_load(dst + a - begin, x->data + (from + a) * ckpt_dtype_size(x->dtype), x->dtype,
                 b - a);
    memset(dst + b - begin, 0, (size_t)(end - b) * sizeof *dst);
}

/* The same as fill_row, by whole lines of taps, which is much faster with few channels. */
static void fill_row_lines(const struct source *x, float *dst, int64_t row, int64_t col, int64_t n)
{
    const struct conv_gather *g = &x->g;
    const int64_t across = g->taps[2], line = across * g->channels;
    struct conv_taps w;
    int64_t sample = conv_taps_begin(g, &w, row, col / line * across), begin = col % line;
    const int64_t left = w.position[2] * g->scale[2] + g->shift[2]; /* position of the first tap */
    const int64_t first = clamp(-left, 0, across) * g->pitch;
    const int64_t last = clamp(g->source[2] - left, 0, across) * g->pitch;
    for (int64_t done = 0, m; done < n; done += m, begin = 0) {
        bool there = w.at[0] >= 0 && w.at[1] >= 0;
        int64_t place = (sample * g->source[0] + w.at[0]) * g->source[1] + w.at[1];
        m = min_i64(line - begin, n - done);
        fill_line(x, dst + done, begin, begin + m, (place * g->source[2] + left) * g->pitch, first,
                  there ? last : first);
        w.tap[2] = across - 1;
        conv_taps_next(g, &w);
    }
}

static void fill_gathered(const void *ctx, float *dst, int64_t row, int64_t col, int64_t n_rows,
                          int64_t n_cols)
{
    const struct source *x = ctx;
    const bool lines = reads_lines(&x->g);
    for (int64_t i = 0; i < n_rows; i++)
        (lines ? fill_row_lines : fill_row)(x, dst + i * n_cols, row + i, col, n_cols);
}

static void fill_transposed(const void *ctx, float *dst, int64_t row, int64_t col, int64_t n_rows,
                            int64_t n_cols)
{
    const struct transposed_weight *w = ctx;
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t tap = (row + i) / w->k, k = (row + i) % w->k;
        int64_t at = (k * w->taps + tap) * w->c + col;
        cpu_load(dst + i * n_cols, w->data + at * ckpt_dtype_size(w->dtype), w->dtype, n_cols);
    }
}

/* An operand that is gathered, or read directly if the convolution is pointwise. */
static struct gemm_operand gathered(const struct conv_shape *s, const struct source *x)
{
    if (conv_is_pointwise(s))
        return (struct gemm_operand){.data = x->data, .dtype = x->dtype};
    return (struct gemm_operand){.dtype = x->dtype, .fill = fill_gathered, .ctx = x};
}

/* y = (gathered x) w^T */
static void forward_product(struct product *p, const struct conv_shape *s, enum ckpt_dtype dtype,
                            const void *x)
{
    p->gathered = (struct source){conv_gather_x(s), x, dtype};
    p->gemm = (struct gemm){.rows = s->n * conv_volume(s->out),
                            .cols = s->k,
                            .inner = conv_volume(s->kernel) * s->c,
                            .unit = s->invariant ? s->out[2] : 0,
                            .a = gathered(s, &p->gathered),
                            .b = {.dtype = dtype, .transposed = true},
                            .c_dtype = dtype};
}

/* dx = (gathered dy) w, with the rows of w in the order of the gathered columns */
static void dx_product(struct product *p, const struct conv_shape *s, enum ckpt_dtype dtype,
                       const void *dy, const void *w)
{
    p->gathered = (struct source){conv_gather_dy(s), dy, dtype};
    p->weight = (struct transposed_weight){
        .data = w, .dtype = dtype, .k = s->k, .taps = conv_volume(s->kernel), .c = s->c};
    p->gemm = (struct gemm){.rows = s->n * conv_volume(s->in),
                            .cols = s->c,
                            .inner = conv_volume(s->kernel) * s->k,
                            .a = gathered(s, &p->gathered),
                            .b = {.data = w, .dtype = dtype},
                            .c_dtype = dtype};
    if (p->weight.taps > 1) {
        p->gemm.b.fill = fill_transposed;
        p->gemm.b.ctx = &p->weight;
    }
}

/* dw = dy^T (gathered x) */
static void dw_product(struct product *p, const struct conv_shape *s, enum ckpt_dtype dtype,
                       const void *x)
{
    p->gathered = (struct source){conv_gather_x(s), x, dtype};
    p->gemm = (struct gemm){.rows = s->k,
                            .cols = conv_volume(s->kernel) * s->c,
                            .inner = s->n * conv_volume(s->out),
                            .a = {.dtype = dtype, .transposed = true},
                            .b = gathered(s, &p->gathered),
                            .c_dtype = CKPT_F32};
}

int64_t cpu_conv_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    struct product p;
    if (s->groups > 1)
        return conv_is_depthwise(s) ? cpu_depthwise_workspace(s)
                                    : cpu_groups_workspace(s, dtype, false);
    forward_product(&p, s, dtype, NULL);
    return gemm_workspace(&p.gemm);
}

int64_t cpu_conv_dx_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    struct product p;
    if (s->groups > 1)
        return conv_is_depthwise(s) ? cpu_depthwise_workspace(s)
                                    : cpu_groups_workspace(s, dtype, true);
    dx_product(&p, s, dtype, NULL, NULL);
    return gemm_workspace(&p.gemm);
}

int64_t cpu_conv_dw_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    struct product p;
    if (s->groups > 1)
        return conv_is_depthwise(s) ? cpu_depthwise_dw_workspace(s)
                                    : cpu_groups_dw_workspace(s, dtype);
    dw_product(&p, s, dtype, NULL);
    return gemm_workspace(&p.gemm);
}

/* Runs the depthwise or grouped kernel if there are groups.  Returns whether there are. */
static bool run_groups(const struct ckpt_kernel_args *a, const struct conv_shape *s,
                       void (*depthwise)(const struct ckpt_kernel_args *,
                                         const struct conv_shape *),
                       void (*groups)(const struct ckpt_kernel_args *, const struct conv_shape *))
{
    if (s->groups == 1)
        return false;
    (conv_is_depthwise(s) ? depthwise : groups)(a, s);
    return true;
}

int cpu_conv(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    struct conv_shape s = conv_shape_forward(in, a->attr);
    struct product p;
    if (run_groups(a, &s, cpu_depthwise, cpu_groups))
        return CKPT_OK;
    forward_product(&p, &s, in[0].dtype, a->in[0].data);
    p.gemm.b.data = a->in[1].data;
    p.gemm.bias = a->in[2].data;
    p.gemm.c = a->out[0].data;
    gemm_run(&p.gemm, a->workspace);
    return CKPT_OK;
}

int cpu_conv_dx(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    struct conv_shape s = conv_shape_dx(in, a->attr);
    struct product p;
    if (run_groups(a, &s, cpu_depthwise_dx, cpu_groups_dx))
        return CKPT_OK;
    dx_product(&p, &s, in[0].dtype, a->in[0].data, a->in[1].data);
    p.gemm.c = a->out[0].data;
    gemm_run(&p.gemm, a->workspace);
    return CKPT_OK;
}

int cpu_conv_dw(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    struct conv_shape s = conv_shape_dw(in, a->attr);
    struct product p;
    if (run_groups(a, &s, cpu_depthwise_dw, cpu_groups_dw))
        return CKPT_OK;
    dw_product(&p, &s, in[0].dtype, a->in[1].data);
    p.gemm.a.data = a->in[0].data;
    p.gemm.c = a->out[0].data;
    p.gemm.accumulate = a->accumulate;
    gemm_run(&p.gemm, a->workspace);
    return CKPT_OK;
}
