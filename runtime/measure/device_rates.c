/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures a device under the conditions of a step: kernels run on its compute queue, copies on its
 * copy queues.  Each figure is the best of a few rounds, because other programs only make a round
 * slower.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attr.h"
#include "ckpt_tools.h"
#include "kernels/kernel.h"
#include "measure/link_rates.h"
#include "measure/measure.h"
#include "memory/device/device.h"
#include "memory/device/team.h"
#include "ops.h"
#include "plan/graph/machine.h"

enum { ROUNDS = 5, EMPTY_OPS = 4000, SMALL_COPIES = 500, HEADS = 8, WIDTH = 64 };
#define SMALL     (INT64_C(64) << 10)
#define WORKSPACE (INT64_C(64) << 20) /* limit for a matrix product */

/* Sizes large enough to keep the device busy, and small enough for a quick measurement. */
struct sizes {
    enum ckpt_dtype dtype; /* of the matrices */
    int64_t side, bytes;   /* side of a matrix; bytes of a copy, larger than caches */
    int64_t length;        /* of a sequence; its five operands are smaller than three matrices */
};

static const struct sizes sizes[] = {
    [CKPT_ON_CPU] = {CKPT_F32, 1024, INT64_C(64) << 20, 1024},
    [CKPT_ON_CUDA] = {CKPT_BF16, 8192, INT64_C(1) << 30, 8192},
};

struct bench {
    struct device *device;
    struct sizes size;
    char *host;     /* LINK_HOST times the bytes of a copy */
    double seconds; /* duration of the last kernel */
};

/* ---- kernels --------------------------------------------------------------------------------- */

static int64_t matrix_bytes(const struct bench *b)
{
    return b->size.side * b->size.side * ckpt_dtype_size(b->size.dtype);
}

static struct ckpt_view view(const struct bench *b, int64_t offset, enum ckpt_dtype dtype, int ndim,
                             int64_t size)
{
    struct ckpt_view v = {.data = b->device->ops->base(b->device) + offset,
                          .desc = {.dtype = dtype, .ndim = ndim, .shape = {size, size}}};
    desc_dense(&v.desc);
    return v;
}

static void compute(struct bench *b, ckpt_kernel kernel, int n_in, int n_out,
                    const struct ckpt_view *v, const void *attr)
{
    struct ckpt_run run = {.n_micro = 1};
    struct ckpt_kernel_args args = {.n_in = n_in,
                                    .n_out = n_out,
                                    .in = v,
                                    .out = v + n_in,
                                    .attr = attr,
                                    .workspace = b->device->ops->base(b->device),
                                    .workspace_bytes = WORKSPACE,
                                    .run = &run};
    b->device->ops->compute(b->device, QUEUE_COMPUTE, kernel, &args, &b->seconds);
    b->device->ops->sync(b->device);
}

static ckpt_kernel kernel_of(const struct bench *b, const struct ckpt_op_def *def)
{
    return kernel_run(def, b->device->ops->backend);
}

static double round_gemm(struct bench *b)
{
    int64_t bytes = matrix_bytes(b);
    struct ckpt_view v[4];
    for (int i = 0; i < 3; i++)
        v[i == 2 ? 3 : i] = view(b, WORKSPACE + i * bytes, b->size.dtype, 2, b->size.side);
    v[2] = (struct ckpt_view){.desc = {.ndim = -1}}; /* no bias */
    compute(b, kernel_of(b, &op_linear), 3, 1, v, NULL);
    return b->seconds;
}

/* softmax(q k^T) v of one sequence; its operands lie where those of the product were. */
static double round_attention(struct bench *b)
{
    const int64_t length = b->size.length, heads = HEADS, width = WIDTH;
    struct attention_attr attr = {.scale = 0.125f};
    struct ckpt_view v[5];
    int64_t at = WORKSPACE;
    for (int i = 0; i < 5; i++) {
        v[i] = view(b, at, b->size.dtype, 3, length);
        v[i].desc.shape[1] = heads;
        v[i].desc.shape[2] = width;
        if (i == 4) /* the logarithms of the sums */
            v[i].desc = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 2, .shape = {heads, length}};
        desc_dense(&v[i].desc);
        at += desc_bytes(&v[i].desc);
    }
    compute(b, kernel_of(b, &op_attention), 3, 2, v, &attr);
    return b->seconds;
}

/* y = a x: has the reads and writes of most element-wise ops. */
static double round_scale(struct bench *b)
{
    struct affine_attr attr = {1.0001f, 0.f};
    int64_t n = b->size.bytes / 4;
    struct ckpt_view v[2] = {view(b, 0, CKPT_F32, 1, n), view(b, b->size.bytes, CKPT_F32, 1, n)};
    compute(b, kernel_of(b, &op_affine), 1, 1, v, &attr);
    return b->seconds;
}

/* The fixed cost of every CPU kernel besides the queue: waking the threads. */
static int run_nothing(const struct ckpt_kernel_args *a)
{
    int32_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int i = 0; i < 64; i++)
        sum += a->op;
    return sum;
}

static double round_nothing(struct bench *b)
{
    struct affine_attr attr = {1.f, 0.f};
    struct ckpt_view v[2] = {view(b, 0, CKPT_F32, 1, 64), view(b, 512, CKPT_F32, 1, 64)};
    struct ckpt_kernel_args args = {.n_in = 1, .n_out = 1, .in = v, .out = v + 1, .attr = &attr};
    bool gpu = b->device->ops->backend == CKPT_ON_CUDA;
    ckpt_kernel kernel = gpu ? kernel_of(b, &op_affine) : run_nothing;
    double before = clock_seconds();
    for (int i = 0; i < EMPTY_OPS; i++)
        b->device->ops->compute(b->device, QUEUE_COMPUTE, kernel, &args, NULL);
    b->device->ops->sync(b->device);
    return (clock_seconds() - before) / EMPTY_OPS;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Small copies with the same events as copies of a step.  All are submitted while a large copy
 * runs, so the queue never runs empty. */
static double round_small(struct bench *b)
{
    const struct device_ops *ops = b->device->ops;
    char *base = ops->base(b->device);
    double before = clock_seconds();
    ops->record(b->device, QUEUE_COMPUTE, 0);
    ops->copy(b->device, QUEUE_COPY_OUT, b->host, base, b->size.bytes);
    for (int i = 0; i < SMALL_COPIES; i++) {
        ops->wait(b->device, QUEUE_COPY_OUT, 0);
        ops->copy(b->device, QUEUE_COPY_OUT, b->host + i * SMALL, base + i * SMALL, SMALL);
        ops->record(b->device, QUEUE_COPY_OUT, 1);
    }
    ops->sync(b->device);
    return clock_seconds() - before;
}

/* The bandwidth of host memory, for any device. */
static double round_host(struct bench *b)
{
    const float *restrict x = (const float *)b->host;
    float *restrict y = (float *)(b->host + b->size.bytes);
    double before = clock_seconds();
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < b->size.bytes / 4; i++)
        y[i] = 1.0001f * x[i];
    return clock_seconds() - before;
}

/* The first round touches the memory and does not count. */
static double best(struct bench *b, double (*round)(struct bench *b))
{
    double shortest = 1e9;
    round(b);
    for (int i = 0; i < ROUNDS; i++) {
        double seconds = round(b);
        if (seconds > 0 && seconds < shortest)
            shortest = seconds;
    }
    return shortest;
}

/* Fills the matrices with random numbers: on zeros a GPU multiplies faster than in training. */
static void fill(struct bench *b)
{
    const struct device_ops *ops = b->device->ops;
    int64_t n = 1 << 18, bytes = n * 4, all = WORKSPACE + 3 * matrix_bytes(b);
    char *base = ops->base(b->device);
    float *values = (float *)b->host;
    ckpt_fill_normal(1, 0, 1, values, n);
    if (b->size.dtype == CKPT_BF16)
        for (int64_t i = 0; i < n; i += 2)
            ckpt_to_bf16(values + i, (uint16_t *)b->host + i, 2);
    ops->copy(b->device, QUEUE_COMPUTE, base, b->host, bytes / 2);
    for (bytes /= 2; bytes < all; bytes *= 2)
        ops->copy(b->device, QUEUE_COMPUTE, base + bytes, base, min_i64(bytes, all - bytes));
    ops->sync(b->device);
}

/* The rates of links are known. */
static void measure(struct bench *b, struct machine *m)
{
    double side = (double)b->size.side, bytes = (double)b->size.bytes;
    fill(b);
    double length = (double)b->size.length, scores = HEADS * length * length;
    m->flops = 2. * side * side * side / best(b, round_gemm);
    m->attention = 4. * WIDTH * scores / best(b, round_attention) / m->flops;
    m->bandwidth = 2. * bytes / best(b, round_scale);
    m->host_bandwidth = 2. * bytes / best(b, round_host);
    m->overhead = best(b, round_nothing);
    double one = bytes / m->d2h, more = best(b, round_small) - one;
    m->copy_overhead = fmax(0, more / SMALL_COPIES - SMALL * one / bytes);
}

int measure_device(struct device *d, struct machine *m)
{
    const struct device_ops *ops = d->ops;
    struct bench b = {.device = d, .size = sizes[ops->backend]};
    const int team = team_size(0); /* for the bandwidth of host memory */
    int64_t arena = max_i64(LINK_ARENA * b.size.bytes, WORKSPACE + 3 * matrix_bytes(&b));
    m->backend = ops->backend;
    m->memory = ops->available(d);
    b.host = ops->host_alloc(d, LINK_HOST * b.size.bytes);
    int rc = b.host ? ops->map(d, arena) : CKPT_ENOMEM;
    if (!rc)
        rc = ops->events(d, 2);
    struct link_space links = {ops->base(d), b.host, b.size.bytes};
    if (!rc)
        rc = link_rates_time(d, &links, 1, m);
    if (!rc) {
        measure(&b, m);
        m->process = ops->overhead(d);
        rc = ops->sync(d);
    }
    if (rc)
        error_set(rc, "--device %s cannot be measured: it needs %s of memory %s", ops->name,
                  human_bytes(arena + LINK_HOST * b.size.bytes), d->reason);
    ops->host_free(d, b.host);
    team_size(team);
    return rc;
}
