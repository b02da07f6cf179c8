/* SPDX-License-Identifier: Apache-2.0 */
/*
 * custom_op: an op of your own, made outside the library with the public header alone.
 *
 * The op is softplus with a sharpness, y = log(1 + exp(s x)) / s.  It brings a shape rule, a
 * gradient rule (which records a second op of ours), a cost and CPU kernels, so the planner may
 * keep it, drop it and compute it again like any other.  The program then compares its gradient
 * with finite differences.
 */
#include <math.h>
#include <stdio.h>
#include "ckpt_op.h"
#include "ckpt_tools.h"

enum { ROWS = 4, COLUMNS = 8, N = ROWS * COLUMNS };

struct softplus_attr {
    float sharpness;
};

static int64_t count(const struct ckpt_desc *d)
{
    int64_t n = 1;
    for (int i = 0; i < d->ndim; i++)
        n *= d->shape[i];
    return n;
}

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

/* {x} -> {y}.  log1p of the negative side keeps large x from overflowing. */
static int softplus_cpu(const struct ckpt_kernel_args *a)
{
    const struct softplus_attr *attr = a->attr;
    const float *x = a->in[0].data;
    float *y = a->out[0].data;
    int64_t n = count(&a->in[0].desc);

    for (int64_t i = 0; i < n; i++) {
        float z = attr->sharpness * x[i];
        y[i] = (fmaxf(z, 0.f) + log1pf(expf(-fabsf(z)))) / attr->sharpness;
    }
    return 0;
}

/* {dy, x} -> {dx}: dy sigmoid(s x). */
static int softplus_dx_cpu(const struct ckpt_kernel_args *a)
{
    const struct softplus_attr *attr = a->attr;
    const float *dy = a->in[0].data, *x = a->in[1].data;
    float *dx = a->out[0].data;
    int64_t n = count(&a->in[0].desc);

    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] / (1.f + expf(-attr->sharpness * x[i]));
    return 0;
}

static const struct ckpt_op_def softplus_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "softplus_dx",
    .shape = same_shape,
    .cost = cost,
    .cpu = softplus_dx_cpu,
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
};

/* loss = mean(softplus(x)^2); x is a parameter, so that its gradient can be asked for. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    struct softplus_attr attr = {.sharpness = 2.f};
    ckpt_tensor x = *(ckpt_tensor *)user, y = CKPT_NONE;

    (void)batch;
    ckpt_record(t, &softplus, 1, &x, 1, &y, &attr, sizeof attr);
    ckpt_output_gradient(t, "grad.x", x);
    return ckpt_reshape(t, ckpt_mean(t, ckpt_mul(t, y, y), 3), 0, NULL);
}

static double loss_at(ckpt *c, ckpt_program *p, ckpt_tensor x, const float *value, int *failed)
{
    float loss = NAN;
    if (ckpt_param_set(c, x, CKPT_VALUE, value, N) || ckpt_step(p, &loss))
        *failed = 1;
    return loss;
}

/* The largest difference to central differences, relative to the largest gradient. */
static int compare(ckpt *c, ckpt_program *p, ckpt_tensor x, double *error)
{
    float value[N], gradient[N];
    double largest = 0, h = 1e-2;
    int failed = 0;

    ckpt_fill_normal(1, 0, 0, value, N);
    loss_at(c, p, x, value, &failed);
    if (failed || ckpt_fetch(p, "grad.x", gradient, sizeof gradient))
        return -1;
    *error = 0;
    printf("      x   gradient   by differences\n");
    for (int i = 0; i < N; i++) {
        float keep = value[i];
        value[i] = keep + (float)h;
        double up = loss_at(c, p, x, value, &failed);
        value[i] = keep - (float)h;
        double down = loss_at(c, p, x, value, &failed);
        value[i] = keep;
        double slope = (up - down) / (2 * h);
        largest = fmax(largest, fabs(slope));
        *error = fmax(*error, fabs(slope - gradient[i]));
        if (i < 8)
            printf("%7.3f  %9.6f  %9.6f\n", keep, gradient[i], slope);
    }
    *error /= largest;
    return failed ? -1 : 0;
}

int main(int argc, char **argv)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct ckpt_adamw frozen = CKPT_ADAMW_INIT; /* a step makes gradients; lr 0 moves nothing */
    ckpt_program *p;
    ckpt *c = NULL;
    double error = 0;

    if (ckpt_options_parse(&opt, &argc, argv) ||
        ckpt_options_reject(argc, argv, 1, (const struct ckpt_option *[]){ckpt_options_table()}) ||
        ckpt_open(&c, &opt)) {
        fprintf(stderr, "custom_op: %s\n", ckpt_error(NULL));
        return 2;
    }
    frozen.lr = 0;
    ckpt_tensor x = ckpt_param(c, "x", CKPT_F32, 2, (int64_t[]){ROWS, COLUMNS}, CKPT_ZEROS, true);
    int failed = ckpt_compile(c, record, &x, ckpt_adamw(c, &frozen), 1, &p);
    if (!failed && !opt.plan_only)
        failed = compare(c, p, x, &error);
    if (failed)
        fprintf(stderr, "custom_op: %s\n", ckpt_error(c));
    else if (!opt.plan_only)
        printf("largest difference %.1e of the largest gradient: %s\n", error,
               error < 1e-3 ? "the gradient is right" : "the gradient is WRONG");
    ckpt_close(c);
    return failed || error >= 1e-3;
}
