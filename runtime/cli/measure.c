/*
 * Rates of the CPU device as a step meets them: kernels run through its compute queue, copies
 * through its copy queues.  Each figure is the best of a few rounds, for other programs only slow
 * one down.
 */
#include <stdlib.h>
#include "cli/cli.h"
#include "cpu/gemm.h"
#include "device/device.h"

enum { ROUNDS = 5, EMPTY_OPS = 4000 };
#define SIDE  INT64_C(1024)       /* of the matrices */
#define BYTES (INT64_C(64) << 20) /* of a copy: more than caches hold */

struct bench {
    struct device *device;
    char *host; /* BYTES and BYTES */
};

/* ---- kernels --------------------------------------------------------------------------------- */

static int run_gemm(const struct ckpt_kernel_args *a)
{
    struct gemm g = {.rows = SIDE,
                     .cols = SIDE,
                     .inner = SIDE,
                     .a = {a->in[0].data, CKPT_F32, false},
                     .b = {a->in[1].data, CKPT_F32, true},
                     .c = a->out[0].data,
                     .c_dtype = CKPT_F32};
    gemm_run(&g, a->workspace);
    return 0;
}

/* y = a x: reads and writes as most element-wise ops do. */
static int run_scale(const struct ckpt_kernel_args *a)
{
    const float *restrict x = a->in[0].data;
    float *restrict y = a->out[0].data;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < BYTES / 4; i++)
        y[i] = 1.0001f * x[i];
    return 0;
}

/* What every kernel pays: the queue, and waking the threads. */
static int run_nothing(const struct ckpt_kernel_args *a)
{
    int32_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
    for (int i = 0; i < 64; i++)
        sum += a->op;
    return sum;
}

/* ---- rounds: seconds of one, on buffers at the bottom of the arena ----------------------------
 */

static void compute(struct bench *b, ckpt_kernel kernel, const int64_t offset[3], int64_t workspace)
{
    char *base = b->device->ops->base(b->device);
    struct ckpt_view in[2] = {{.data = base + offset[0]}, {.data = base + offset[1]}};
    struct ckpt_view out = {.data = base + offset[2]};
    struct ckpt_kernel_args args = {.n_in = 2,
                                    .n_out = 1,
                                    .in = in,
                                    .out = &out,
                                    .workspace = base + workspace,
                                    .run = &(struct ckpt_run){.n_micro = 1}};
    b->device->ops->compute(b->device, QUEUE_COMPUTE, kernel, &args, NULL);
    b->device->ops->sync(b->device);
}

static double round_gemm(struct bench *b)
{
    int64_t bytes = SIDE * SIDE * 4, offset[3] = {0, bytes, 2 * bytes};
    double before = clock_seconds();
    compute(b, run_gemm, offset, 3 * bytes);
    return clock_seconds() - before;
}

static double round_scale(struct bench *b)
{
    int64_t offset[3] = {0, 0, BYTES};
    double before = clock_seconds();
    compute(b, run_scale, offset, 0);
    return clock_seconds() - before;
}

static double round_nothing(struct bench *b)
{
    struct ckpt_kernel_args args = {.n_in = 0};
    double before = clock_seconds();
    for (int i = 0; i < EMPTY_OPS; i++)
        b->device->ops->compute(b->device, QUEUE_COMPUTE, run_nothing, &args, NULL);
    b->device->ops->sync(b->device);
    return (clock_seconds() - before) / EMPTY_OPS;
}

static double round_copy(struct bench *b, bool out, bool in)
{
    const struct device_ops *ops = b->device->ops;
    char *base = ops->base(b->device);
    double before = clock_seconds();
    if (out)
        ops->copy(b->device, QUEUE_COPY_OUT, b->host, base, BYTES);
    if (in)
        ops->copy(b->device, QUEUE_COPY_IN, base + BYTES, b->host + BYTES, BYTES);
    ops->sync(b->device);
    return clock_seconds() - before;
}

static double round_out(struct bench *b)
{
    return round_copy(b, true, false);
}

static double round_in(struct bench *b)
{
    return round_copy(b, false, true);
}

static double round_both(struct bench *b)
{
    return round_copy(b, true, true);
}

/* The first round touches the memory and is not counted. */
static double best(struct bench *b, double (*round)(struct bench *b))
{
    double least = 1e9;
    round(b);
    for (int i = 0; i < ROUNDS; i++) {
        double seconds = round(b);
        if (seconds > 0 && seconds < least)
            least = seconds;
    }
    return least;
}

static void measure(struct bench *b, struct machine *m)
{
    m->flops = 2. * SIDE * SIDE * SIDE / best(b, round_gemm);
    m->bandwidth = m->host_bandwidth = 2. * BYTES / best(b, round_scale);
    m->overhead = best(b, round_nothing);
    m->d2h = BYTES / best(b, round_out);
    m->h2d = BYTES / best(b, round_in);
    m->d2h_both = m->h2d_both = BYTES / best(b, round_both);
}

int measure_cpu(struct machine *m, char message[CKPT_MESSAGE])
{
    struct gemm shape = {.rows = SIDE, .cols = SIDE, .inner = SIDE, .c_dtype = CKPT_F32};
    int64_t arena = max_i64(2 * BYTES, 3 * SIDE * SIDE * 4 + gemm_workspace(&shape));
    struct bench b = {.host = calloc(2, (size_t)BYTES)};
    int rc = b.host ? device_open_cpu(&b.device, arena, 0) : CKPT_ENOMEM;
    if (!rc) {
        rc = b.device->ops->map(b.device, arena);
        m->memory = b.device->ops->available(b.device);
        if (!rc)
            measure(&b, m);
        b.device->ops->close(b.device);
    }
    if (rc)
        snprintf(message, CKPT_MESSAGE, "the CPU device cannot be measured: it needs %s of memory",
                 human_bytes(arena + 2 * BYTES));
    free(b.host);
    return rc;
}
