/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of memory budgets on a chain: 24 residual layers, trained at fractions of the memory
 * that keeps everything, and at the smallest possible budget.  The runs take turns step by step, so
 * that other load on the machine affects all of them alike.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "ckpt_tools.h"

enum { LAYERS = 24, WIDTH = 256, TOKENS = 256, BATCH = 8, POINTS = 5, STEPS_MOST = 100 };

struct chain {
    ckpt_tensor weight[LAYERS], bias[LAYERS];
};

/* One budget: a context with its program, and what its steps gave. */
struct point {
    const char *share;
    int64_t budget;
    struct chain chain;
    ckpt *context;
    ckpt_program *program;
    struct ckpt_program_info info;
    float loss[STEPS_MOST];
    double ms[STEPS_MOST];
};

struct bench_options {
    int64_t steps;
};

static const struct ckpt_option table[] = {
    CKPT_OPTION_RANGE(struct bench_options, "steps", INT, steps, "N",
                      "steps of every run, the first not timed (default 16)", 2, STEPS_MOST),
    {0},
};

/* ---- the model ------------------------------------------------------------------------------- */

static void create(struct chain *m, ckpt *c)
{
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "layers.%d.weight", i);
        m->weight[i] =
            ckpt_param(c, name, CKPT_F32, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
        snprintf(name, sizeof name, "layers.%d.bias", i);
        m->bias[i] = ckpt_param(c, name, CKPT_F32, 1, (int64_t[]){WIDTH}, CKPT_ZEROS, true);
    }
}

/* x += gelu(linear(layer_norm(x))), 24 times, towards a random target. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct chain *m = user;
    int64_t shape[] = {batch, TOKENS, WIDTH};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, shape);
    ckpt_tensor target = ckpt_input(t, "target", CKPT_F32, 3, shape);
    for (int i = 0; i < LAYERS; i++) {
        ckpt_label(t, "layers.%d", i);
        ckpt_tensor h = ckpt_linear(t, ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, 1e-6f),
                                    m->weight[i], m->bias[i]);
        x = ckpt_add(t, x, ckpt_gelu_tanh(t, h));
    }
    return ckpt_mse(t, x, target, CKPT_NONE);
}

/* ---- runs ------------------------------------------------------------------------------------ */

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int feed(ckpt_program *p)
{
    const int64_t n = BATCH * TOKENS * WIDTH, bytes = n * (int64_t)sizeof(float);
    float *x = malloc((size_t)bytes);
    int rc = x ? 0 : CKPT_ENOMEM;
    if (!rc) {
        ckpt_fill_normal(1, 0, 1, x, n);
        rc = ckpt_feed(p, "x", x, bytes);
    }
    if (!rc) {
        ckpt_fill_normal(1, 0, 2, x, n);
        rc = ckpt_feed(p, "target", x, bytes);
    }
    free(x);
    return rc;
}

static int fail(const struct point *p)
{
    fprintf(stderr, "bench: %s: %s\n", p->share, ckpt_error(p->context));
    return -1;
}

static int open_point(struct point *p, struct ckpt_options opt)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    opt.vram = p->budget;
    adamw.clip_norm = 1.f;
    if (ckpt_open(&p->context, &opt))
        return fail(p);
    create(&p->chain, p->context);
    if (ckpt_compile(p->context, record, &p->chain, ckpt_adamw(p->context, &adamw), BATCH,
                     &p->program) ||
        feed(p->program))
        return fail(p);
    p->info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p->program, &p->info);
    return 0;
}

/* The first run has no limit; the budgets of the others follow from its memory and from the
 * smallest possible budget. */
static int open_points(struct point *p, const struct ckpt_options *opt)
{
    static const struct {
        const char *text;
        int percent;
    } share[POINTS] = {{"100 %", 100}, {"70 %", 70}, {"50 %", 50}, {"35 %", 35}, {"smallest", 0}};
    for (int i = 0; i < POINTS; i++) {
        p[i].share = share[i].text;
        if (i)
            p[i].budget = share[i].percent ? p[0].info.planned_peak / 100 * share[i].percent
                                           : p[0].info.min_budget;
        bool feasible = !p[i].budget || p[i].budget >= p[0].info.min_budget;
        if (feasible && open_point(&p[i], *opt))
            return -1;
    }
    return 0;
}

static int run_steps(struct point *p, int steps)
{
    for (int s = 0; s < steps; s++) {
        for (int i = 0; i < POINTS; i++) {
            double start = milliseconds();
            if (!p[i].program)
                continue;
            if (ckpt_step(p[i].program, &p[i].loss[s]))
                return fail(&p[i]);
            p[i].ms[s] = milliseconds() - start;
        }
    }
    return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the steps after the first one. */
static double median(const double *ms, int steps)
{
    double sorted[STEPS_MOST];
    int n = steps - 1;
    memcpy(sorted, ms + 1, (size_t)n * sizeof *ms);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static bool is_same(const struct point *p, const struct point *base, int steps)
{
    return !memcmp(p->loss, base->loss, sizeof *p->loss * (size_t)steps);
}

static void print_row(const struct point *p, const struct point *base, int steps)
{
    const struct ckpt_program_info *info = &p->info;
    double kept = info->step_seconds - info->recompute_seconds;
    double ms = median(p->ms, steps);
    char budget[32] = "none";
    if (p->budget)
        snprintf(budget, sizeof budget, "%.2f", mib(p->budget));
    printf("%-8s %11s %13.2f %11.2f %9.1f %% %11.1f %7.1f %% %7s\n", p->share, budget,
           mib(info->planned_peak), mib(info->arena_bytes), 100 * info->recompute_seconds / kept,
           ms, 100 * (ms / median(base->ms, steps) - 1),
           is_same(p, base, steps) ? "same" : "DIFFER");
}

/* Returns 0 if every run gave the same losses as the first, bit by bit. */
static int print_table(const struct point *p, int steps)
{
    int differ = 0;
    printf("%-8s %11s %13s %11s %11s %11s %9s %7s\n", "share", "budget MiB", "planned peak",
           "arena", "predicted", "ms a step", "measured", "losses");
    for (int i = 0; i < POINTS; i++) {
        if (!p[i].program) {
            printf("%-8s no plan: it is below the smallest budget\n", p[i].share);
            continue;
        }
        print_row(&p[i], &p[0], steps);
        differ |= !is_same(&p[i], &p[0], steps);
    }
    return differ;
}

static int bench(struct point *p, const struct ckpt_options *opt, int steps)
{
    printf("\nRecompute on a chain of %d residual layers, %d x %d tokens of width %d, fp32;\n"
           "median of %d steps, the runs in turn.  predicted and measured: time over that of the "
           "first row.\n\n",
           LAYERS, BATCH, TOKENS, WIDTH, steps - 1);
    fflush(stdout);
    if (open_points(p, opt) || run_steps(p, steps))
        return 1;
    return print_table(p, steps);
}

int main(int argc, char **argv)
{
    static struct point points[POINTS];
    struct bench_options o = {.steps = 16};
    struct ckpt_options library = CKPT_OPTIONS_INIT;
    const struct ckpt_option *tables[] = {table, ckpt_options_table()};
    if (ckpt_options_parse(&library, &argc, argv) ||
        ckpt_option_table_parse(table, &o, &argc, argv) ||
        ckpt_options_reject(argc, argv, 2, tables)) {
        fprintf(stderr, "bench: %s\n", ckpt_error(NULL));
        return 2;
    }
    int rc = bench(points, &library, (int)o.steps);
    for (int i = 0; i < POINTS; i++)
        ckpt_close(points[i].context);
    return rc;
}
