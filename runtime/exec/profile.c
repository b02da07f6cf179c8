/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a step by kind of op, from the times of the ops as they ran. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "measure/timing.h"
#include "ops.h"

struct kind {
    const char *name; /* of the op */
    int64_t runs;     /* in a step */
    double seconds, flops, bytes;
};

struct kinds {
    struct kind *data; /* at most one per op of the graph */
    int32_t n;
};

static struct kind *kind_of(struct kinds *k, const char *name)
{
    for (int32_t i = 0; i < k->n; i++)
        if (!strcmp(k->data[i].name, name))
            return &k->data[i];
    k->data[k->n] = (struct kind){.name = name};
    return &k->data[k->n++];
}

static void collect(struct kinds *k, const struct ckpt_program *p)
{
    for (int32_t s = 0; s < p->plan->n_steps; s++) {
        const struct graph_op *o = &p->graph->ops[p->plan->steps[s].op];
        double seconds = timing_median(p->timing, o->tape_op);
        int64_t runs = s < p->plan->n_body ? p->tape->n_bodies : 1;
        if (seconds <= 0)
            continue;
        const struct op *op = &p->tape->ops.data[o->tape_op];
        struct kind *to = kind_of(k, ops_name(op->def, op->attr));
        to->runs += runs;
        to->seconds += seconds * (double)runs;
        to->flops += o->flops * (double)runs;
        to->bytes += o->bytes * (double)runs;
    }
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct kind *)a)->seconds, y = ((const struct kind *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_kind(FILE *f, const struct kind *k, double all, const struct machine *m)
{
    double bound = fmax(k->flops / m->flops, k->bytes / m->bandwidth);
    fprintf(f, "  %-24s %6lld %10.3f %6.1f%% %10.4g %10.4g %8.0f%%\n", k->name, (long long)k->runs,
            1e3 * k->seconds, 100 * k->seconds / all, 1e-12 * k->flops / k->seconds,
            1e-9 * k->bytes / k->seconds, 100 * bound / k->seconds);
}

/* The seconds from opening the context to its first step, and from there to now. */
static void print_startup(FILE *f, const struct programs *ps)
{
    static const char *const names[] = {[STARTUP_OPEN] = "open the device",
                                        [STARTUP_LOAD] = "read parameters",
                                        [STARTUP_RECORD] = "record",
                                        [STARTUP_LINKS] = "time links",
                                        [STARTUP_SCRATCH] = "fill scratch",
                                        [STARTUP_COMPILE] = "compile expressions",
                                        [STARTUP_FIRST_RUNS] = "first runs",
                                        [STARTUP_TIMES] = "time ops",
                                        [STARTUP_PLAN] = "plan",
                                        [STARTUP_BUFFERS] = "I/O buffers",
                                        [STARTUP_MEMORY] = "map memory",
                                        [STARTUP_VALUES] = "write parameters",
                                        [STARTUP_INSTRUCTIONS] = "instructions"};
    double rest = ps->first_step - ps->opened;
    fprintf(f, "  %-24s %10s\n", "profile: start", "s");
    for (int i = 0; i < STARTUP_COUNT; i++) {
        fprintf(f, "  %-24s %10.3f\n", names[i], ps->startup[i]);
        rest -= ps->startup[i];
    }
    fprintf(f, "  %-24s %10.3f\n", "the program's own", rest);
    fprintf(f, "  %-24s %10.3f\n", "steps, and after", clock_seconds() - ps->first_step);
}

void ckpt_profile_print(const ckpt_program *p, FILE *f)
{
    if (!p || !f)
        return;
    struct kinds k = {0};
    double all = 0;
    if (!p->timing || !p->plan->n_steps)
        return;
    k.data = calloc((size_t)p->graph->n_ops + 1, sizeof *k.data);
    if (!k.data)
        return;
    collect(&k, p);
    qsort(k.data, (size_t)k.n, sizeof *k.data, by_seconds);
    for (int32_t i = 0; i < k.n; i++)
        all += k.data[i].seconds;
    fprintf(f, "  %-24s %6s %10s %7s %10s %10s %9s\n", "profile: op", "runs", "ms", "share",
            "TFLOP/s", "GB/s", "roofline");
    for (int32_t i = 0; i < k.n; i++)
        print_kind(f, &k.data[i], all, &p->programs->machine);
    fprintf(f, "  %-24s %6s %10.3f\n", "all", "", 1e3 * all);
    free(k.data);
    if (p->programs->first_step > 0)
        print_startup(f, p->programs);
}
