/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_ops --mode test and grad: runs each op on the CPU and on the device with the same
 * operands.  The next op uses the CPU's results, so every error belongs to a single op.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "bench/ops/bench.h"
#include "core/fp8.h"
#include "ops.h"

struct comparison {
    struct bench *b;
    bool gradient; /* compare the ops recorded by reverse mode; else those of the case */
    int compared, failed;
};

/* ---- two results ----------------------------------------------------------------------------- */

static double element(const void *data, enum ckpt_dtype dtype, int64_t at)
{
    float value;
    if (dtype == CKPT_F32)
        return ((const float *)data)[at];
    if (dtype == CKPT_I32)
        return ((const int32_t *)data)[at];
    if (dtype == CKPT_F8E4M3)
        return e4m3_value(((const uint8_t *)data)[at]);
    if (dtype == CKPT_F8E5M2)
        return e5m2_value(((const uint8_t *)data)[at]);
    ckpt_from_bf16((const uint16_t *)data + at, &value, 1);
    return value;
}

/* ||got - expected|| / ||expected|| over the elements of a view; NaN if an element is NaN. */
static double relative_error(const struct ckpt_desc *d, const void *expected, const void *got)
{
    double square = 0, norm = 0;
    int64_t index[CKPT_MAX_DIMS] = {0}, at = 0;
    for (int64_t i = desc_numel(d); i > 0; i--) {
        double x = element(expected, d->dtype, at), y = element(got, d->dtype, at);
        square += (y - x) * (y - x);
        norm += x * x;
        for (int axis = d->ndim - 1; axis >= 0; axis--) {
            at += d->stride[axis];
            if (++index[axis] < d->shape[axis])
                break;
            at -= index[axis] * d->stride[axis];
            index[axis] = 0;
        }
    }
    return sqrt(square / (norm > 0 ? norm : 1));
}

/* ---- one op ---------------------------------------------------------------------------------- */

static const struct storage *storage_of(const struct bench_op *op, int i, int64_t *offset)
{
    int32_t x = op->tape->operands.data[op->op->operands + i];
    if (x <= 0)
        return NULL;
    int32_t storage = op->tape->tensors.data[x].storage;
    *offset = op->offset[storage];
    return &op->tape->storages.data[storage];
}

/* Copies all bytes of the operands, and of the results too, because an op may add to them or write
 * only a part. */
static int copy_operands(const struct bench *b, const struct bench_op *op)
{
    int64_t offset;
    for (int i = 0; i < op->op->n_in + op->op->n_out; i++) {
        const struct storage *s = storage_of(op, i, &offset);
        if (s)
            b->device->ops->copy(b->device, QUEUE_COMPUTE, b->device->ops->base(b->device) + offset,
                                 b->reference->ops->base(b->reference) + offset, s->bytes);
    }
    return b->device->ops->sync(b->device);
}

/* The relative error of output i; returns a code on failure. */
static int compare_output(const struct comparison *c, const struct bench_op *op,
                          const struct bench_job *cpu, int i, double *error)
{
    struct device *d = c->b->device;
    const struct ckpt_desc *desc = &cpu->args.out[i].desc;
    int64_t offset = 0;
    const struct storage *s = storage_of(op, op->op->n_in + i, &offset);
    char *got = malloc((size_t)max_i64(1, s->bytes));
    if (!got)
        return CKPT_ENOMEM;
    d->ops->copy(d, QUEUE_COMPUTE, got, d->ops->base(d) + offset, s->bytes);
    int rc = d->ops->sync(d);
    if (!rc)
        *error = relative_error(desc, cpu->args.out[i].data,
                                got + desc->offset * ckpt_dtype_size(desc->dtype));
    free(got);
    return rc;
}

static void print_verdict(struct comparison *c, const char *text, int output, double error,
                          double limit, const char *reason)
{
    bool pass = !reason && error <= limit; /* false for NaN */
    c->compared++;
    c->failed += !pass;
    if (reason)
        printf("%s %6s %10s  FAIL: %s\n", text, "-", "-", reason);
    else
        printf("%s %6d %10.2e  %s\n", text, output, error, pass ? "PASS" : "FAIL");
    fflush(stdout);
}

/* Runs the op on the CPU for the ops after it, and compares it if it is of the selected kind. */
static int compare_op(void *user, const struct bench_op *op)
{
    struct comparison *c = user;
    struct bench_job cpu, other;
    char text[BENCH_ROW];
    double limit = op->dtype == CKPT_F32 ? 1e-5 : 1e-2;
    bool compared = op->gradient == c->gradient;
    int rc = 0;
    bench_make_job(&cpu, c->b, c->b->reference, op);
    bench_make_job(&other, c->b, c->b->device, op);
    bench_row_text(op, &cpu, text);
    if (compared) {
        rc = copy_operands(c->b, op);
        if (!rc)
            rc = bench_run(&other);
        if (rc)
            print_verdict(c, text, 0, 0, limit, bench_reason(&other, rc));
    }
    int failed = bench_run(&cpu);
    if (failed)
        return bench_fail("%s: %s does not run on the CPU: %s", op->family,
                          ops_name(op->op->def, op->op->attr), bench_reason(&cpu, failed));
    for (int i = 0; i < cpu.args.n_out && compared && !rc; i++) {
        double error = NAN;
        if (!cpu.args.out[i].data)
            continue;
        rc = compare_output(c, op, &cpu, i, &error);
        print_verdict(c, text, i, error, limit, rc ? bench_reason(&other, rc) : NULL);
    }
    return 0;
}

int bench_compare(struct bench *b, bool gradient)
{
    struct comparison c = {.b = b, .gradient = gradient};
    printf("%s on %s against the CPU, operands of both the same; relative error of each output.\n\n"
           "%-22s %-5s %-29s %6s %10s\n",
           gradient ? "Gradient ops" : "Forward ops", b->device->name, "op", "dtype", "shape",
           "output", "error");
    int rc = bench_each(b, compare_op, &c);
    if (rc)
        return rc;
    printf("\n%d of %d outputs pass (fp32 1e-5, bf16 1e-2).\n", c.compared - c.failed, c.compared);
    return c.failed ? EXIT_FAILURE : 0;
}
