/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_ops --mode perf: times every op of every case alone and prints its share of the
 * machine's rates.  A GPU has cold caches, as in a step.  The small operands of a CPU stay in its
 * caches, where an op may exceed the memory bandwidth.
 */
#include <string.h>
#include "bench/ops/bench.h"
#include "measure/measure.h"
#include "ops.h"
#include "context/context.h"

enum { MAX_ROWS = 512, BURST = 8 };

struct perf {
    struct bench *b;
    struct machine machine;
    double seconds; /* time to spend on one op */
    char shown[MAX_ROWS][BENCH_ROW];
    int n_shown;
};

/* ---- one op ---------------------------------------------------------------------------------- */

static struct ckpt_cost cost_of(const struct bench_op *op)
{
    struct ckpt_desc in[BENCH_OPERANDS], out[BENCH_OPERANDS];
    struct ckpt_call call;
    struct ckpt_cost cost = {0};
    double bytes = 0;
    tape_call(op->tape, op->op, &call, in, out);
    if (op->op->def->cost)
        op->op->def->cost(&call, &cost);
    for (int i = 0; i < call.n_in + call.n_out; i++) {
        const struct ckpt_desc *d = i < call.n_in ? &in[i] : &out[i - call.n_in];
        bytes += d->ndim >= 0 ? (double)desc_bytes(d) : 0;
    }
    if (cost.bytes <= 0)
        cost.bytes = bytes;
    return cost;
}

/* Does an op get a row?  It must process more than a few numbers, some of this dtype. */
static bool gets_row(const struct bench_job *j, enum ckpt_dtype dtype)
{
    bool has_dtype = false;
    int64_t largest = 0;
    for (int i = 0; i < j->args.n_in + j->args.n_out; i++) {
        const struct ckpt_desc *d = &j->views[i].desc;
        if (d->ndim < 0)
            continue;
        largest = max_i64(largest, desc_numel(d));
        has_dtype |= bench_dtype_of(d->dtype) == dtype;
    }
    return has_dtype && largest > 2;
}

/* False if the same row was already printed. */
static bool is_new(struct perf *p, const char text[BENCH_ROW])
{
    for (int i = 0; i < p->n_shown; i++)
        if (!strcmp(p->shown[i], text))
            return false;
    if (p->n_shown < MAX_ROWS)
        memcpy(p->shown[p->n_shown++], text, BENCH_ROW);
    return true;
}

/* The shortest time of several runs: other programs only make a run slower. */
static int best_time(struct perf *p, struct bench_job *j, const struct bench_op *op, double *best)
{
    struct device *d = j->device;
    int64_t flush = bench_flush_bytes(d);
    char *after_workspace = (char *)j->args.workspace + round_up(op->op->workspace, CKPT_ALIGN);
    double end = clock_seconds() + p->seconds;
    int rc = 0, burst = 1;
    *best = 1e9;
    for (int i = 0; !rc && (i < 3 || clock_seconds() < end); i++) {
        double seconds[BURST] = {0};
        for (int k = 0; k < burst; k++) {
            if (flush)
                d->ops->fill(d, QUEUE_COMPUTE, after_workspace, 0, flush);
            d->ops->compute(d, QUEUE_COMPUTE, j->kernel, &j->args, &seconds[k]);
        }
        rc = d->ops->sync(d);
        for (int k = 0; k < burst; k++)
            if (seconds[k] > 0 && seconds[k] < *best)
                *best = seconds[k];
        burst = *best * BURST < p->seconds ? BURST : 1;
    }
    return rc;
}

/* Prints at least three digits. */
static void print_cell(int width, double value, const char *unit)
{
    if (value > 0)
        printf(" %*.*f%s", width, value < 10 ? 2 : value < 100 ? 1 : 0, value, unit);
    else
        printf(" %*s", width + (int)strlen(unit), "-");
}

static void print_row(const struct perf *p, const struct bench_op *op, const char *text,
                      double seconds)
{
    struct ckpt_cost cost = cost_of(op);
    double compute = cost.flops / p->machine.flops, memory = cost.bytes / p->machine.bandwidth;
    printf("%s %9.4f", text, 1e3 * seconds);
    print_cell(9, cost.flops / seconds * 1e-9, "");
    print_cell(8, cost.bytes / seconds * 1e-9, "");
    print_cell(8, 100 * (compute > memory ? compute : memory) / seconds, " %");
    printf("\n");
    fflush(stdout);
}

/* Runs an op, because later ops need its results, and times it if it gets a row. */
static int time_op(void *user, const struct bench_op *op)
{
    struct perf *p = user;
    struct bench_job j;
    char text[BENCH_ROW];
    double seconds;
    bench_make_job(&j, p->b, p->b->device, op);
    int rc = bench_run(&j);
    bench_row_text(op, &j, text);
    if (!rc && gets_row(&j, op->dtype) && is_new(p, text)) {
        rc = best_time(p, &j, op, &seconds);
        if (!rc)
            print_row(p, op, text, seconds);
    }
    if (!rc)
        return 0;
    return bench_fail("%s: %s does not run on %s: %s", op->family,
                      ops_name(op->op->def, op->op->attr), p->b->device->ops->name,
                      bench_reason(&j, rc));
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Reads the rates from the given file, or measures them. */
static int read_machine(struct perf *p)
{
    const char *from = p->b->options->machine;
    if (from && *from)
        return machine_read(from, &p->machine) ? bench_fail("%s", error_get()) : 0;
    snprintf(p->machine.name, sizeof p->machine.name, "%s", p->b->device->name);
    return measure_device(p->b->device, &p->machine) ? bench_fail("%s", error_get()) : 0;
}

int bench_perf(struct bench *b)
{
    static struct perf p;
    p.b = b;
    p.seconds = (double)b->options->ms * 1e-3;
    int rc = read_machine(&p);
    if (rc)
        return rc;
    printf("Kernels of --device %s alone, the best of several runs.\n"
           "Roofline: %s%s, %.1f GFLOP/s, %.1f GB/s read and written.\n\n",
           b->device->ops->name, p.machine.name,
           b->options->machine && *b->options->machine ? "" : ", measured now",
           p.machine.flops * 1e-9, p.machine.bandwidth * 1e-9);
    printf("%-22s %-5s %-29s %9s %9s %8s %10s\n", "op", "dtype", "shape", "ms", "GFLOP/s", "GB/s",
           "of roofline");
    rc = bench_each(b, time_op, &p);
    machine_free(&p.machine);
    return rc;
}
