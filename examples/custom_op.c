/* SPDX-License-Identifier: Apache-2.0 */
/*
 * custom_op: an op of your own, made outside the library with the public header alone.
 *
 * The op is softplus with a sharpness, y = log(1 + exp(s x)) / s.  It brings a shape rule, a
 * gradient rule (which records a second op of ours), a cost, CPU kernels that use all threads and,
 * in custom_op_cuda.cu, CUDA kernels.  So the planner may keep it, drop it and compute it again
 * like any other.  The program then compares its gradient with central differences.
 * Try it with --verify: a kernel that writes one element too many is named.
 */
#include <math.h>
#include <stdio.h>
#include "ckpt_op.h"
#include "ckpt_tools.h"
#include "custom_op.h"

enum { ROWS = 4, COLUMNS = 8, PIECE = 1 << 14 };

#ifndef WITH_CUDA
#define softplus_cuda    NULL
#define softplus_dx_cuda NULL
#endif

/* Every operand is fp32 and shaped as the last input. */
static int same_shape(struct ckpt_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].dtype != CKPT_F32)
            return ckpt_call_fail(call, "softplus works on fp32 only; cast its input first");
    call->out[0] = call->in[call->n_in - 1];
    return 0;
}

static void cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = 10.0 * (double)count(&call->in[0]);
}

/* {x} -> {y}, a piece of it.  log1p of the negative side keeps large x from overflowing. */
static void softplus_piece(int64_t begin, int64_t end, int thread, void *user)
{
    const struct ckpt_kernel_args *a = user;
    const struct softplus_attr *attr = a->attr;
    const float *x = a->in[0].data;
    float *y = a->out[0].data;

    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float z = attr->sharpness * x[i];
        y[i] = (fmaxf(z, 0.f) + log1pf(expf(-fabsf(z)))) / attr->sharpness;
    }
}

static int softplus_cpu(const struct ckpt_kernel_args *a)
{
    ckpt_parallel_for(a, count(&a->in[0].desc), PIECE, softplus_piece, (void *)a);
    return 0;
}

/* {dy, x} -> {dx}: dy sigmoid(s x). */
static void softplus_dx_piece(int64_t begin, int64_t end, int thread, void *user)
{
    const struct ckpt_kernel_args *a = user;
    const struct softplus_attr *attr = a->attr;
    const float *dy = a->in[0].data, *x = a->in[1].data;
    float *dx = a->out[0].data;

    (void)thread;
    for (int64_t i = begin; i < end; i++)
        dx[i] = dy[i] / (1.f + expf(-attr->sharpness * x[i]));
}

static int softplus_dx_cpu(const struct ckpt_kernel_args *a)
{
    ckpt_parallel_for(a, count(&a->in[0].desc), PIECE, softplus_dx_piece, (void *)a);
    return 0;
}

static const struct ckpt_op_def softplus_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "softplus_dx",
    .shape = same_shape,
    .cost = cost,
    .cpu = softplus_dx_cpu,
    .cuda = softplus_dx_cuda,
};

static void softplus_grad(struct ckpt_grad *g)
{
    ckpt_tensor in[2] = {g->dout[0], g->in[0]};

    if (g->need[0])
        ckpt_record(g->tape, &softplus_dx, 2, in, 1, &g->din[0], g->attr,
                    sizeof(struct softplus_attr));
}

static const struct ckpt_op_def softplus = {
    .size = sizeof(struct ckpt_op_def),
    .name = "softplus",
    .shape = same_shape,
    .grad = softplus_grad,
    .cost = cost,
    .cpu = softplus_cpu,
    .cuda = softplus_cuda,
};

/* loss = mean(softplus(x)^2). */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    struct softplus_attr attr = {.sharpness = 2.f};
    ckpt_tensor x = *(ckpt_tensor *)user, y = CKPT_NONE;

    (void)batch;
    ckpt_label(t, "example");
    ckpt_record(t, &softplus, 1, &x, 1, &y, &attr, sizeof attr);
    return ckpt_reshape(t, ckpt_mean(t, ckpt_mul(t, y, y), 3), 0, NULL);
}

int main(int argc, char **argv)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct ckpt_gradcheck check = CKPT_GRADCHECK_INIT;
    ckpt *c = NULL;

    if (ckpt_options_parse(&opt, &argc, argv) ||
        ckpt_options_reject(argc, argv, 1, (const struct ckpt_option *[]){ckpt_options_table()}) ||
        ckpt_open(&c, &opt)) {
        fprintf(stderr, "custom_op: %s\n", ckpt_error(NULL));
        return 2;
    }
    check.tolerance = 1e-3;
    check.samples = (int64_t)ROWS * COLUMNS;
    ckpt_tensor x =
        ckpt_param(c, "x", CKPT_F32, 2, (int64_t[]){ROWS, COLUMNS}, CKPT_NORMAL(1), true);
    int rc = ckpt_gradcheck(c, record, &x, &check);
    if (rc)
        fprintf(stderr, "custom_op: %s\n", ckpt_error(c));
    else
        printf("largest difference %.1e of the largest gradient: the gradient is right\n",
               check.error);
    ckpt_close(c);
    return rc != 0;
}
