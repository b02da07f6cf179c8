/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of convolutions.  Each is a product of matrices, one of which holds, row by row, the
 * values that the taps see from one position (im2col).  That matrix is nowhere in memory: gemm asks
 * for its blocks one by one and they are gathered into its scratch.  Groups are products of their
 * own, one after the other; with one channel to a group there is no product (conv_depthwise.c).
 */
#include "conv.h"
#include "conv_kernels.h"
#include "cpu.h"
#include "gemm.h"
#include "kernels.h"

/* The values of a gathered matrix. */
struct source {
    struct conv_gather g;
    const char *data;
    enum ckpt_dtype dtype;
};

/* Row: tap and output channel; column: input channel, of w [k, taps..., c]. */
struct turned_weight {
    const char *data;
    enum ckpt_dtype dtype;
    int64_t k, taps, c;
};

struct product {
    struct gemm gemm;
    struct source gathered;
    struct turned_weight weight;
};

/* Tap by tap along a row: the tap, and where along each axis it reads, -1 for outside. */
struct walk {
    int64_t position[3], tap[3], at[3];
};

static void walk_to(const struct conv_gather *g, struct walk *w, int axis, int64_t tap)
{
    w->tap[axis] = tap;
    w->at[axis] = conv_gather_at(g, axis, w->position[axis], tap);
}

static void walk_begin(const struct conv_gather *g, struct walk *w, int64_t *row, int64_t tap)
{
    for (int i = 2; i >= 0; i--) {
        w->position[i] = *row % g->positions[i];
        *row /= g->positions[i];
        walk_to(g, w, i, tap % g->taps[i]);
        tap /= g->taps[i];
    }
}

static void walk_on(const struct conv_gather *g, struct walk *w)
{
    for (int i = 2; i >= 0; i--) {
        bool carry = w->tap[i] + 1 == g->taps[i];
        walk_to(g, w, i, carry ? 0 : w->tap[i] + 1);
        if (!carry)
            return;
    }
}

static void fill_row(const struct source *x, float *dst, int64_t row, int64_t col, int64_t n)
{
    const struct conv_gather *g = &x->g;
    const int64_t size = ckpt_dtype_size(x->dtype);
    int64_t channel = col % g->channels;
    struct walk w;
    walk_begin(g, &w, &row, col / g->channels);
    int64_t sample = row * conv_volume(g->source);
    for (int64_t done = 0, m; done < n; done += m) {
        int64_t place = sample + (w.at[0] * g->source[1] + w.at[1]) * g->source[2] + w.at[2];
        m = min_i64(g->channels - channel, n - done);
        if (w.at[0] < 0 || w.at[1] < 0 || w.at[2] < 0)
            memset(dst + done, 0, (size_t)m * sizeof *dst);
        else
            cpu_load(dst + done, x->data + (place * g->pitch + channel) * size, x->dtype, m);
        channel = 0;
        walk_on(g, &w);
    }
}

static void fill_gathered(const void *ctx, float *dst, int64_t row, int64_t col, int64_t n_rows,
                          int64_t n_cols)
{
    for (int64_t i = 0; i < n_rows; i++)
        fill_row(ctx, dst + i * n_cols, row + i, col, n_cols);
}

static void fill_turned(const void *ctx, float *dst, int64_t row, int64_t col, int64_t n_rows,
                        int64_t n_cols)
{
    const struct turned_weight *w = ctx;
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t tap = (row + i) / w->k, k = (row + i) % w->k;
        int64_t at = (k * w->taps + tap) * w->c + col;
        cpu_load(dst + i * n_cols, w->data + at * ckpt_dtype_size(w->dtype), w->dtype, n_cols);
    }
}

/* A matrix that is gathered, or read as it stands where there is nothing to gather. */
static struct gemm_operand gathered(const struct conv_shape *s, const struct source *x)
{
    if (conv_is_pointwise(s))
        return (struct gemm_operand){.data = x->data, .dtype = x->dtype, .ld = x->g.pitch};
    return (struct gemm_operand){.dtype = x->dtype, .fill = fill_gathered, .ctx = x};
}

/* y = gathered x times w^T; what follows is of one group. */
static void forward_product(struct product *p, const struct conv_shape *s, enum ckpt_dtype dtype,
                            const void *x)
{
    p->gathered = (struct source){conv_gather_x(s), x, dtype};
    p->gemm = (struct gemm){.rows = s->n * conv_volume(s->out),
                            .cols = conv_group_k(s),
                            .inner = conv_volume(s->kernel) * conv_group_c(s),
                            .unit = s->invariant ? s->out[2] : 0,
                            .a = gathered(s, &p->gathered),
                            .b = {.dtype = dtype, .transposed = true},
                            .c_dtype = dtype,
                            .c_ld = s->k};
}

/* dx = gathered dy times w, its rows ordered as the columns are gathered */
static void dx_product(struct product *p, const struct conv_shape *s, enum ckpt_dtype dtype,
                       const void *dy, const void *w)
{
    p->gathered = (struct source){conv_gather_dy(s), dy, dtype};
    p->weight = (struct turned_weight){.data = w,
                                       .dtype = dtype,
                                       .k = conv_group_k(s),
                                       .taps = conv_volume(s->kernel),
                                       .c = conv_group_c(s)};
    p->gemm = (struct gemm){.rows = s->n * conv_volume(s->in),
                            .cols = conv_group_c(s),
                            .inner = conv_volume(s->kernel) * conv_group_k(s),
                            .a = gathered(s, &p->gathered),
                            .b = {.data = w, .dtype = dtype},
                            .c_dtype = dtype,
                            .c_ld = s->c};
    if (p->weight.taps > 1) {
        p->gemm.b.fill = fill_turned;
        p->gemm.b.ctx = &p->weight;
    }
}

/* dw = dy^T times gathered x */
static void dw_product(struct product *p, const struct conv_shape *s, enum ckpt_dtype dtype,
                       const void *x)
{
    p->gathered = (struct source){conv_gather_x(s), x, dtype};
    p->gemm = (struct gemm){.rows = conv_group_k(s),
                            .cols = conv_volume(s->kernel) * conv_group_c(s),
                            .inner = s->n * conv_volume(s->out),
                            .a = {.dtype = dtype, .transposed = true, .ld = s->k},
                            .b = gathered(s, &p->gathered),
                            .c_dtype = CKPT_F32};
}

/* Where group i of the operands begins: of x, of y, and of w or its gradient. */
static void *group_x(const struct conv_shape *s, const void *x, enum ckpt_dtype dtype, int64_t i)
{
    return (char *)x + i * conv_group_c(s) * ckpt_dtype_size(dtype);
}

static void *group_y(const struct conv_shape *s, const void *y, enum ckpt_dtype dtype, int64_t i)
{
    return y ? (char *)y + i * conv_group_k(s) * ckpt_dtype_size(dtype) : NULL;
}

static void *group_w(const struct conv_shape *s, const void *w, enum ckpt_dtype dtype, int64_t i)
{
    int64_t each = conv_group_k(s) * conv_volume(s->kernel) * conv_group_c(s);
    return (char *)w + i * each * ckpt_dtype_size(dtype);
}

int64_t cpu_conv_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    struct product p;
    if (conv_is_depthwise(s))
        return cpu_depthwise_workspace(s);
    forward_product(&p, s, dtype, NULL);
    return gemm_workspace(&p.gemm);
}

int64_t cpu_conv_dx_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    struct product p;
    if (conv_is_depthwise(s))
        return cpu_depthwise_workspace(s);
    dx_product(&p, s, dtype, NULL, NULL);
    return gemm_workspace(&p.gemm);
}

int64_t cpu_conv_dw_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    struct product p;
    if (conv_is_depthwise(s))
        return cpu_depthwise_dw_workspace(s);
    dw_product(&p, s, dtype, NULL);
    return gemm_workspace(&p.gemm);
}

int cpu_conv(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    const struct conv_shape s = conv_shape_forward(in, a->attr);
    const enum ckpt_dtype dtype = in[0].dtype;
    struct product p;
    if (conv_is_depthwise(&s)) {
        cpu_depthwise(a, &s);
        return CKPT_OK;
    }
    for (int64_t i = 0; i < s.groups; i++) {
        forward_product(&p, &s, dtype, group_x(&s, a->in[0].data, dtype, i));
        p.gemm.b.data = group_w(&s, a->in[1].data, dtype, i);
        p.gemm.bias = group_y(&s, a->in[2].data, dtype, i);
        p.gemm.c = group_y(&s, a->out[0].data, dtype, i);
        gemm_run(&p.gemm, a->workspace);
    }
    return CKPT_OK;
}

int cpu_conv_dx(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    const struct conv_shape s = conv_shape_dx(in, a->attr);
    const enum ckpt_dtype dtype = in[0].dtype;
    struct product p;
    if (conv_is_depthwise(&s)) {
        cpu_depthwise_dx(a, &s);
        return CKPT_OK;
    }
    for (int64_t i = 0; i < s.groups; i++) {
        dx_product(&p, &s, dtype, group_y(&s, a->in[0].data, dtype, i),
                   group_w(&s, a->in[1].data, dtype, i));
        p.gemm.c = group_x(&s, a->out[0].data, dtype, i);
        gemm_run(&p.gemm, a->workspace);
    }
    return CKPT_OK;
}

int cpu_conv_dw(const struct ckpt_kernel_args *a)
{
    struct ckpt_desc in[] = {a->in[0].desc, a->in[1].desc};
    const struct conv_shape s = conv_shape_dw(in, a->attr);
    const enum ckpt_dtype dtype = in[0].dtype;
    struct product p;
    if (conv_is_depthwise(&s)) {
        cpu_depthwise_dw(a, &s);
        return CKPT_OK;
    }
    for (int64_t i = 0; i < s.groups; i++) {
        dw_product(&p, &s, dtype, group_x(&s, a->in[1].data, dtype, i));
        p.gemm.a.data = group_y(&s, a->in[0].data, dtype, i);
        p.gemm.c = group_w(&s, a->out[0].data, CKPT_F32, i);
        p.gemm.accumulate = a->accumulate;
        gemm_run(&p.gemm, a->workspace);
    }
    return CKPT_OK;
}
