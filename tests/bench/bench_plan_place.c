/* SPDX-License-Identifier: Apache-2.0 */
/* Benchmark of placement: hard instances, step graphs, traces, and the fragmentation of plans with
 * a host tier. */
#include <stdlib.h>
#include <string.h>
#include "cli/place_csv.h"
#include "plan/models.h"
#include "plan/plan_make.h"
#include "bench_plan.h"

struct worst {
    double ratio, seconds;
    int n;
};

/* Places items; ratio is the placed peak over the peak of live bytes. */
static void place_timed(struct worst *w, struct place_item *items, int32_t n, int64_t load)
{
    int64_t peak;
    double start = bench_seconds();
    if (place_items(items, n, load, &peak))
        exit(1);
    double seconds = bench_seconds() - start, ratio = (double)peak / (double)load;
    w->ratio = ratio > w->ratio ? ratio : w->ratio;
    w->seconds = seconds > w->seconds ? seconds : w->seconds;
    w->n++;
}

static void report(const char *what, const struct worst *w)
{
    bench_row(what, "<= 1.003 x load, < 2 s", w->ratio <= 1.003 && w->seconds < 2,
              "%.4f x, %.2f s, the worst of %d", w->ratio, w->seconds, w->n);
}

/* Places the device residences of a plan again. */
static void place_plan(struct worst *w, const struct graph *g, const struct machine *m,
                       int64_t device)
{
    struct budgets b = {.device = device};
    struct plan *p;
    if (plan_make(g, m, &b, 0, &p))
        return;
    struct place_item *items = calloc((size_t)p->n_residences + 1, sizeof(*items));
    int32_t n = 0;
    for (int32_t i = 0; items && i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        if (!plan_is_backing(g, p, r))
            items[n++] = (struct place_item){r->first, r->last, residence_bytes(g, p, r), 0};
    }
    if (items)
        place_timed(w, items, n, p->load);
    free(items);
    plan_free(p);
}

static void place_model(struct worst *w, struct graph *g, const struct machine *m)
{
    struct budgets b = {.device = INT64_MAX};
    struct plan *p;
    if (plan_make(g, m, &b, 0, &p))
        exit(1);
    place_plan(w, g, m, INT64_MAX);
    place_plan(w, g, m, p->persistent + p->transient / 2);
    plan_free(p);
    graph_free(g);
}

/* The fragmentation of a plan with a host tier. */
static void bench_arena(const struct graph *g, const struct machine *m, int64_t gib)
{
    struct budgets b = {.device = gib << 30, .host = INT64_C(64) << 30};
    char what[64];
    struct plan *p;
    if (plan_make(g, m, &b, m->process, &p))
        exit(1);
    double alive = (double)(p->persistent + p->load);
    double ratio = (double)(p->persistent + p->transient) / alive;
    snprintf(what, sizeof(what), "arena of XL/2, %d + 64G", (int)gib);
    bench_row(what, "<= 1.03 x bytes alive", ratio <= 1.03, "%.4f x, of what moves %.4f x, %.1f ms",
              ratio, (double)p->transient / (double)p->load, 1e3 * p->seconds);
    plan_free(p);
}

static void bench_arenas(const struct machine *m)
{
    static const int64_t gib[] = {7, 8, 10, 12, 14, 16, 20};
    struct graph *g = bench_record(SHORT, "--grad-dtype bf16 --ema-decay 0", m);
    for (size_t i = 0; i < sizeof(gib) / sizeof(*gib); i++)
        bench_arena(g, m, gib[i]);
    graph_free(g);
}

static bool place_instance(const char *path, double *slowest)
{
    struct place_request request = {.capacity = 1048576};
    struct place_result result;
    struct place_file file;
    if (place_file_read(path, &file)) {
        fprintf(stderr, "%s\n", error_get());
        return false;
    }
    double start = bench_seconds();
    int rc = plan_place(file.items, file.n, &request, &result);
    double seconds = bench_seconds() - start;
    *slowest = seconds > *slowest ? seconds : *slowest;
    place_file_free(&file);
    return rc == 0 && result.peak <= request.capacity;
}

static void bench_instances(void)
{
    const char *srcdir = getenv("srcdir");
    double slowest = 0;
    int placed = 0;
    for (char name = 'A'; name <= 'F'; name++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/tests/data/minimalloc/%c.1048576.csv",
                 srcdir ? srcdir : ".", name);
        placed += place_instance(path, &slowest);
    }
    bench_row("minimalloc, six instances", "6 at 1048576, each < 7 s", placed == 6 && slowest < 7,
              "%d placed, the slowest in %.2f s", placed, slowest);
}

void bench_place(const struct machine *m)
{
    static const int32_t sizes[] = {1000, 3000, 10000, 30000};
    struct worst own = {0}, traces = {0};
    bench_instances();
    place_model(&own, model_stdit(28, true, m), m);
    place_model(&own, model_resnet50(184, &machine_fp32), &machine_fp32);
    place_model(&own, model_unet(11, &machine_fp32), &machine_fp32);
    place_model(&own, model_two_tower(m), m);
    report("addresses of step graphs", &own);
    for (int i = 0; i < 4; i++)
        for (uint32_t seed = 0; seed < 3; seed++) {
            struct place_item *items = calloc((size_t)sizes[i], sizeof(*items));
            if (!items)
                exit(1);
            int64_t load = model_trace(seed, sizes[i], items);
            place_timed(&traces, items, sizes[i], load);
            free(items);
        }
    report("addresses of traces, 1k to 30k", &traces);
    bench_arenas(m);
}
