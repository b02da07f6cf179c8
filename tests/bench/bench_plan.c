/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Benchmark of the planner, as a table of targets and results.  Planning time is CPU time, so that
 * a busy machine does not matter.
 *
 * usage: bench_plan [PART]      PART: place, optima, size, scale, stdit, tiers, conv, sweep or
 *                               budgets
 *        bench_plan audit GRAPH...      25 budgets of the three tiers for each graph file
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "plan/graph/graph_file.h"
#include "plan/audit.h"
#include "plan/models.h"
#include "plan/optima.h"
#include "plan/plan_make.h"
#include "bench_plan.h"

static int misses;

void bench_row(const char *what, const char *target, bool pass, const char *reached, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, reached);
    vsnprintf(text, sizeof(text), reached, ap);
    va_end(ap);
    printf("%-40s %-26s %-44s %s\n", what, target, text, pass ? "pass" : "MISS");
    fflush(stdout);
    misses += !pass;
}

double bench_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *what, const char *message)
{
    fprintf(stderr, "%s: %s\n", what, message);
    exit(1);
}

static const char *machine_path(void)
{
    static char path[2048];
    const char *srcdir = getenv("srcdir");
    snprintf(path, sizeof(path), "%s/machines/h200-141.json", srcdir ? srcdir : ".");
    return path;
}

static struct machine read_machine(void)
{
    struct machine m;
    if (machine_read(machine_path(), &m))
        fail(machine_path(), error_get());
    return m;
}

/* A checked plan, or NULL.  Reserved bytes are part of the device budget. */
static struct plan *plan_at(const struct graph *g, const struct machine *m, int64_t device,
                            int64_t host, int64_t reserved)
{
    struct budgets b = {.device = device, .host = host};
    struct plan *p;
    int rc = plan_make(g, m, &b, reserved, &p);
    if (rc == CKPT_EBUDGET)
        return NULL;
    if (rc || plan_check(g, p))
        fail("planning", error_get());
    return p;
}

struct graph *bench_record(const char *latent, const char *options, const struct machine *m)
{
    char path[] = "/tmp/bench_plan.XXXXXX", command[4096];
    struct graph *g;
    int fd = mkstemp(path);
    if (fd < 0)
        fail("stdit-train", "no file for its graph");
    close(fd);
    snprintf(command, sizeof(command),
             "./stdit-train --model XL/2 --dtype bf16 --latent %s %s --plan-only --machine "
             "%s --vram 141G --graph-out %s >/dev/null",
             latent, options, machine_path(), path);
    if (system(command) || graph_read(path, &g))
        fail(command, "no graph");
    unlink(path);
    graph_price(g, m);
    return g;
}

/* ---- optimality ----------------------------------------------------------------------------- */

static void bench_optima(void)
{
    struct optima_result r;
    if (optima_compare(NULL, &r))
        fail("optima", "the comparison failed");
    bench_row("optima: geometric mean of step seconds", "<= 1.01 x", r.mean <= 1.01,
              "%.4f x over %d budgets", r.mean, r.n);
    bench_row("optima: worst", "<= 1.05 x", r.worst <= 1.05, "%.4f x, %s", r.worst, r.worst_name);
    bench_row("optima: infeasible where one exists", "0", r.refused == 0, "%d", r.refused);
    if (optima_smallest(stdout, 1 << 21, &r))
        fail("optima", "the search at the smallest budgets failed");
    bench_row("smallest budget: geometric mean", "<= 1.005 x", r.mean <= 1.005,
              "%.4f x, %d of %d proved", r.mean, r.proved, r.n);
    bench_row("smallest budget: worst", "<= 1.03 x", r.worst <= 1.03, "%.4f x, %s", r.worst,
              r.worst_name);
}

/* ---- size ----------------------------------------------------------------------------------- */

static int64_t resident_peak(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return 1024 * (int64_t)u.ru_maxrss;
}

enum { PATIENCE = 60 };

struct measured {
    double seconds;
    int64_t bytes;
    int32_t ops;
};

static struct measured measure(const struct graph *g, const struct machine *m,
                               const struct budgets *b, int64_t reserved)
{
    struct measured r = {.ops = g->n_ops};
    int64_t before = resident_peak();
    struct plan *p;
    double start = bench_seconds();
    int rc = plan_make(g, m, b, reserved, &p);
    r.seconds = bench_seconds() - start;
    r.bytes = resident_peak() - before;
    if (rc)
        fail("planning", error_get());
    plan_free(p);
    return r;
}

/* Plans in a child process, so that the peak of resident memory belongs to the planner alone. */
static void bench_within(const char *what, const struct graph *g, const struct machine *m,
                         const struct budgets *b, int64_t reserved, double most_seconds)
{
    struct measured r;
    char target[64];
    int fd[2], status;
    double most_bytes = 200e6 * most_seconds;
    snprintf(target, sizeof(target), "< %g s, < %.0f MB", most_seconds, 1e-6 * most_bytes);
    if (pipe(fd))
        fail(what, "no pipe");
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE);
        r = measure(g, m, b, reserved);
        _exit(write(fd[1], &r, sizeof(r)) != sizeof(r));
    }
    close(fd[1]);
    bool measured = child > 0 && read(fd[0], &r, sizeof(r)) == sizeof(r);
    if (child < 0 || waitpid(child, &status, 0) < 0)
        fail(what, "no process");
    close(fd[0]);
    if (!measured)
        bench_row(what, target, false, "no plan in %d s", PATIENCE);
    else
        bench_row(what, target, r.seconds < most_seconds && (double)r.bytes < most_bytes,
                  "%.2f s, %.0f MB, %d ops", r.seconds, 1e-6 * (double)r.bytes, (int)r.ops);
}

static void bench_size(const char *what, const struct graph *g, const struct machine *m,
                       int64_t device, int64_t host, int64_t reserved, double most_seconds)
{
    struct budgets b = {.device = device, .host = host};
    bench_within(what, g, m, &b, reserved, most_seconds);
}

static int64_t transient_share(const struct graph *g, double share)
{
    struct plan *p = plan_at(g, &machine_cpu, INT64_MAX, 0, 0);
    int64_t bytes = p->persistent + (int64_t)(share * (double)p->transient);
    plan_free(p);
    return bytes;
}

static void bench_sizes(const struct machine *m)
{
    const int64_t gib = INT64_C(1) << 30;
    struct graph *g = bench_record(SHORT, "--grad-dtype bf16 --ema-decay 0", m);
    bench_size("XL/2 as stdit-train records it, 26G", g, m, 26 * gib, 0, m->process, 1);
    bench_size("XL/2 as stdit-train records it, 24G+64G", g, m, 24 * gib, 64 * gib, m->process, 1);
    graph_free(g);
    const struct budgets drive = {.device = 6 * gib, .host = 4 * gib, .nvme = 200 * gib};
    g = bench_record(SHORT, "", m);
    bench_within("XL/2 with EMA, fp32 gradients, 6G+4G+200G", g, m, &drive, m->process, 3);
    graph_free(g);
    g = model_stdit(28, true, m);
    bench_size("STDiT3-XL/2 step, 26G", g, m, 26 * gib, 0, 0, 1);
    graph_free(g);
    const struct stdit_shape narrow = {.depth = 24, .tokens = STDIT_TOKENS, .narrow = true};
    const struct budgets all = {.device = 6 * gib, .host = 4 * gib, .nvme = 64 * gib};
    g = model_stdit_shape(&narrow, m);
    bench_within("STDiT3 step of depth 24, 6G+4G+64G", g, m, &all, 0, 3);
    graph_free(g);
    g = model_stdit(95, false, m);
    bench_size("STDiT3 step of depth 95, 80G", g, m, 80 * gib, 0, 0, 1);
    graph_free(g);
    g = model_stdit(140, false, m);
    bench_size("STDiT3 step of depth 140, 100G+400G", g, m, 100 * gib, 400 * gib, 0, 6);
    graph_free(g);
    g = model_synthetic(20000);
    bench_size("synthetic, half of the activations", g, m, transient_share(g, 0.5), 0, 0, 1);
    graph_free(g);
    g = model_synthetic(850);
    bench_size("synthetic, half of the activations", g, m, transient_share(g, 0.5), 0, 0, 1);
    graph_free(g);
    g = model_stdit(509, false, m);
    bench_size("STDiT3 step of depth 509, 420G", g, m, 420 * gib, 0, 0, 4);
    bench_size("STDiT3 step of depth 509, 400G+1400G", g, m, 400 * gib, 1400 * gib, 0, 20);
    graph_free(g);
}

/* ---- scale ---------------------------------------------------------------------------------- */

/* At 35 % of the activations; large programs must reach the ratio of small programs. */
static void bench_share(const char *what, struct graph *g, double target)
{
    int64_t device = transient_share(g, 0.35);
    char name[64], limit[32];
    struct plan *p = plan_at(g, &machine_cpu, device, 0, 0);
    snprintf(name, sizeof(name), "%s, %d ops", what, (int)g->n_ops);
    snprintf(limit, sizeof(limit), "<= %.3f x keep-all", target);
    double all = graph_seconds(g);
    if (p)
        bench_row(name, limit, p->seconds <= target * all, "%.4f x", p->seconds / all);
    else
        bench_row(name, limit, false, "refused");
    plan_free(p);
    graph_free(g);
}

static void bench_scale(const struct machine *m)
{
    printf("at 35 %% of the activations\n");
    bench_share("skips of any length", model_tangled(1000), 1.06);
    bench_share("skips of any length", model_tangled(1852), 1.06);
    bench_share("STDiT3 of depth 28", model_stdit(28, false, m), 1.13);
    bench_share("STDiT3 of depth 140", model_stdit(140, false, m), 1.13);
    bench_share("STDiT3 of depth 509", model_stdit(509, false, m), 1.13);
}

/* ---- models --------------------------------------------------------------------------------- */

static void bench_ratio(const char *what, const struct graph *g, const struct machine *m,
                        int64_t device, int64_t host, int64_t reserved, double target)
{
    struct plan *all = plan_at(g, m, INT64_MAX, 0, 0), *p = plan_at(g, m, device, host, reserved);
    char limit[32];
    snprintf(limit, sizeof(limit), "<= %.3f x keep-all", target);
    if (p)
        bench_row(what, limit, p->seconds <= target * all->seconds,
                  "%.4f x, proved bound %.4f x, %d copies", p->seconds / all->seconds,
                  p->bound_seconds / all->seconds, (int)p->n_copies);
    else
        bench_row(what, limit, false, "refused");
    plan_free(all);
    plan_free(p);
}

/* A shape of depth 28, XL/2. */
static void bench_shape(const char *what, struct stdit_shape shape, const struct machine *m,
                        int64_t device, int64_t host, double target)
{
    const int64_t gib = INT64_C(1) << 30;
    shape.depth = 28;
    struct graph *g = model_stdit_shape(&shape, m);
    bench_ratio(what, g, m, device * gib, host * gib, 0, target);
    graph_free(g);
}

/* Budgets of the whole process. */
static void bench_trainer(const char *name, const char *options, const struct machine *m)
{
    const int64_t gib = INT64_C(1) << 30;
    struct graph *g = bench_record(SHORT, options, m);
    char what[64];
    snprintf(what, sizeof(what), "%s, 26G", name);
    bench_ratio(what, g, m, 26 * gib, 0, m->process, 1.15);
    snprintf(what, sizeof(what), "%s, 24G + 64G", name);
    bench_ratio(what, g, m, 24 * gib, 64 * gib, m->process, 1.15);
    graph_free(g);
}

static void bench_stdit(const struct machine *m)
{
    const struct stdit_shape plain = {.tokens = STDIT_TOKENS};
    const struct stdit_shape ema = {.tokens = STDIT_TOKENS, .ema = true};
    const struct stdit_shape narrow = {.tokens = STDIT_TOKENS, .narrow = true};
    const struct stdit_shape narrow_ema = {.tokens = STDIT_TOKENS, .ema = true, .narrow = true};
    const struct stdit_shape longer = {.tokens = 54000, .narrow = true};
    printf("as stdit-train records it, --grad-dtype bf16\n");
    bench_trainer("XL/2 without EMA", "--grad-dtype bf16 --ema-decay 0", m);
    bench_trainer("XL/2 with EMA", "--grad-dtype bf16", m);
    printf("unfused ops, no context, gradients of their own, in fp32\n");
    bench_shape("XL/2 with EMA, 26G", ema, m, 26, 0, 1.15);
    bench_shape("XL/2 without EMA, 26G", plain, m, 26, 0, 1.15);
    printf("the same in bf16, 64G of host memory\n");
    bench_shape("XL/2 with EMA, 24G", narrow_ema, m, 24, 64, 1.15);
    bench_shape("XL/2 without EMA, 24G", narrow, m, 24, 64, 1.15);
    bench_shape("XL/2 without EMA, 16G", narrow, m, 16, 64, 1.35);
    bench_shape("XL/2 without EMA, 12G", narrow, m, 12, 64, 1.8);
    bench_shape("XL/2 without EMA, 54,000 tokens, 24G", longer, m, 24, 64, 1.22);
}

/* Budgets of the whole process, with 64G of host memory. */
struct tier_row {
    int64_t gib;
    double ms; /* target: predicted milliseconds of a step */
};

static void bench_tier_rows(const char *latent, const struct tier_row *rows, int n,
                            const struct machine *m)
{
    const int64_t gib = INT64_C(1) << 30;
    struct graph *g = bench_record(latent, "--grad-dtype bf16 --ema-decay 0", m);
    for (int i = 0; i < n; i++) {
        struct plan *p = plan_at(g, m, rows[i].gib * gib, 64 * gib, m->process);
        double ms = p ? 1e3 * p->seconds : INFINITY;
        char what[64], limit[32];
        snprintf(what, sizeof(what), "XL/2, %s, %dG + 64G", latent, (int)rows[i].gib);
        snprintf(limit, sizeof(limit), "<= %.5g ms", rows[i].ms);
        bench_row(what, limit, ms <= rows[i].ms, "%.1f ms, %.1f of them waiting", ms,
                  p ? 1e3 * p->exposed_seconds : 0);
        plan_free(p);
    }
    graph_free(g);
}

static void bench_tiers(const struct machine *m)
{
    static const struct tier_row shorter[] = {{28, 244},   {24, 251}, {20, 259}, {17, 265.5},
                                              {16, 265.5}, {14, 290}, {12, 312}, {8, 370}};
    static const struct tier_row longer[] = {{28, 1146}, {24, 1154}, {20, 1162}, {16, 1168}};
    bench_tier_rows(SHORT, shorter, sizeof(shorter) / sizeof(*shorter), m);
    bench_tier_rows(LONG, longer, sizeof(longer) / sizeof(*longer), m);
}

/* Half and a third of the keep-all memory. */
static void bench_conv(const char *name, struct graph *g)
{
    struct plan *all = plan_at(g, &machine_fp32, INT64_MAX, 0, 0);
    int64_t bytes = all->persistent + all->transient;
    char what[64];
    snprintf(what, sizeof(what), "%s, half", name);
    bench_ratio(what, g, &machine_fp32, bytes / 2, 0, 0, 1.056);
    snprintf(what, sizeof(what), "%s, a third", name);
    bench_ratio(what, g, &machine_fp32, bytes / 3, 0, 0, 1.12);
    plan_free(all);
    graph_free(g);
}

/* ---- more never hurts ----------------------------------------------------------------------- */

enum { POINTS = 100 };

static void bench_sweep(const char *what, struct graph *g, const struct machine *m, int64_t host)
{
    struct plan *all = plan_at(g, m, INT64_MAX, 0, 0), *plans[POINTS];
    struct budgets b = {.device = INT64_MAX, .host = host};
    int64_t device[POINTS], low = all->min_budget, high = all->persistent + all->transient;
    int slower = 0, refused = 0, feasible = 0;
    double before = INFINITY;
    for (int i = 0; i < POINTS; i++)
        device[i] = low - (high - low) / 50 + (high - low) / 95 * i;
    struct frontier *pf;
    if (frontier_build(g, &pf) || plan_sweep(pf, m, &b, device, POINTS, plans))
        fail(what, "no sweep");
    frontier_free(pf);
    for (int i = 0; i < POINTS; i++) {
        struct plan *p = plans[i];
        refused += !p && feasible > 0;
        if (!p)
            continue;
        if (plan_check(g, p) || p->persistent + p->transient > device[i])
            fail(what, error_get());
        slower += p->seconds > before;
        before = p->seconds;
        feasible++;
        plan_free(p);
    }
    bench_row(what, "0 slower with more", slower + refused == 0, "%d slower, %d of %d feasible",
              slower + refused, feasible, POINTS);
    plan_free(all);
    graph_free(g);
}

static void bench_sweeps(const struct machine *m)
{
    bench_sweep("sweep of XL/2", model_stdit(28, false, m), m, 0);
    bench_sweep("sweep of XL/2 with 64G of host", model_stdit(28, true, m), m, INT64_C(64) << 30);
    bench_sweep("sweep of U-Net", model_unet(11, &machine_fp32), &machine_fp32, 0);
    bench_sweep("sweep of a VAE", model_vae(16, &machine_fp32), &machine_fp32, 0);
    bench_sweep("sweep of two towers", model_two_tower(m), m, 0);
}

/* ---- budgets of all tiers, each asked alone ------------------------------------------------- */

enum { DEVICES = 9, ROOMS = 4, ALONE = DEVICES * ROOMS };

struct alone {
    struct budgets b;
    double seconds; /* INFINITY: refused */
};

static bool has_no_less(const struct budgets *a, const struct budgets *b)
{
    return a->device >= b->device && a->host >= b->host && a->nvme >= b->nvme;
}

static void bench_alone(const char *what, struct graph *g, const struct machine *m)
{
    struct frontier *pf;
    struct plan *all = plan_at(g, m, INT64_MAX, 0, 0), *p;
    struct alone list[ALONE];
    int64_t low = all->min_budget / 4, high = all->persistent + all->transient;
    int64_t host = all->persistent / 2;
    const int64_t hosts[ROOMS] = {0, host, 4 * high, host}, drives[ROOMS] = {0, 0, 0, 4 * high};
    int slower = 0, refused = 0, feasible = 0;
    double before = bench_seconds();
    if (frontier_build(g, &pf))
        fail(what, "no search");
    for (int k = 0; k < ALONE; k++) {
        int i = k * 23 % ALONE, room = i % ROOMS;
        int64_t device = low + (high - low) / (DEVICES - 1) * (i / ROOMS);
        list[k].b = (struct budgets){device, hosts[room], drives[room], {0}};
        int rc = frontier_plan(pf, m, &list[k].b, 0, &p);
        if (rc && rc != CKPT_EBUDGET)
            fail(what, error_get());
        list[k].seconds = p ? p->seconds : INFINITY;
        feasible += p != NULL;
        plan_free(p);
    }
    for (int i = 0; i < ALONE; i++)
        for (int j = 0; j < ALONE; j++)
            if (has_no_less(&list[i].b, &list[j].b) && list[i].seconds > list[j].seconds) {
                slower += isfinite(list[i].seconds);
                refused += isinf(list[i].seconds);
            }
    bench_row(what, "0 slower, 0 refused", slower + refused == 0,
              "%d, %d of %d (%d feasible), %.1f s", slower, refused, ALONE, feasible,
              bench_seconds() - before);
    plan_free(all);
    frontier_free(pf);
    graph_free(g);
}

static struct graph *read_graph(const char *name)
{
    char path[2048];
    const char *srcdir = getenv("srcdir");
    struct graph *g;
    snprintf(path, sizeof(path), "%s/tests/data/planner/%s", srcdir ? srcdir : ".", name);
    if (graph_read(path, &g))
        fail(path, error_get());
    return g;
}

static void bench_budgets(const struct machine *m)
{
    bench_alone("budgets of XL/2", model_stdit(28, true, m), m);
    bench_alone("budgets of two blocks", model_stdit(2, true, m), m);
    bench_alone("budgets of U-Net", model_unet(11, &machine_fp32), m);
    bench_alone("budgets of a VAE", model_vae(16, &machine_fp32), m);
    bench_alone("budgets of two towers", model_two_tower(m), m);
    bench_alone("budgets of a tied embedding", read_graph("big-tied-3.graph"), m);
}

/* ---- answers of all tiers against each other ------------------------------------------------- */

static void bench_audit(const struct machine *m, char **paths, int n)
{
    struct audit sum = {0};
    for (int i = 0; i < n; i++) {
        struct audit a = {0};
        const char *slash = strrchr(paths[i], '/'), *name = slash ? slash + 1 : paths[i];
        struct graph *g;
        if (graph_read(paths[i], &g))
            fail(paths[i], error_get());
        graph_price(g, m);
        if (audit_graph(name, g, m, &a))
            fail(name, error_get());
        bench_row(name, "0 refused, 0 not true", a.refused + a.untrue == 0,
                  "%d, %d (%.2f %%), %d slower, padding %.3f %%, %.1f s, %d ops", a.refused,
                  a.untrue, 100 * a.excess, a.slower, 100 * a.padding, a.seconds, (int)g->n_ops);
        if (*a.first)
            printf("  %s\n", a.first);
        sum.budgets += a.budgets;
        sum.refused += a.refused;
        sum.untrue += a.untrue;
        graph_free(g);
    }
    bench_row("all of them", "0 refused, 0 not true", sum.refused + sum.untrue == 0,
              "%d, %d of %d budgets", sum.refused, sum.untrue, sum.budgets);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    struct machine m = read_machine();
    bool all = !*part;
    printf("%-40s %-26s %-44s\n", "what", "target", "reached");
    if (all || !strcmp(part, "size"))
        bench_sizes(&m);
    if (all || !strcmp(part, "scale"))
        bench_scale(&m);
    if (all || !strcmp(part, "place"))
        bench_place(&m);
    if (all || !strcmp(part, "optima"))
        bench_optima();
    if (all || !strcmp(part, "stdit"))
        bench_stdit(&m);
    if (all || !strcmp(part, "tiers"))
        bench_tiers(&m);
    if (all || !strcmp(part, "conv")) {
        bench_conv("ResNet-50, batch 184", model_resnet50(184, &machine_fp32));
        bench_conv("U-Net, batch 11", model_unet(11, &machine_fp32));
    }
    if (all || !strcmp(part, "sweep"))
        bench_sweeps(&m);
    if (all || !strcmp(part, "budgets"))
        bench_budgets(&m);
    if (!strcmp(part, "audit"))
        bench_audit(&m, argv + 2, argc - 2);
    machine_free(&m);
    if (misses)
        printf("%d targets missed\n", misses);
    return misses > 0;
}
