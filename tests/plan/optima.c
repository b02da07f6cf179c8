/* SPDX-License-Identifier: Apache-2.0 */
/* The planner against the proved optima of tests/plan/oracle/optima.json. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "exact.h"
#include "models.h"
#include "optima.h"
#include "plan_make.h"

/* The tolerance of the proof in seconds: solve.py asked for better plans by at least this. */
#define PROOF 0.9e-3

const char *const optima_names[] = {
    "uniform-8", "uniform-12", "uniform-16", "uniform-20", "chain-1",  "chain-2",  "chain-3",
    "chain-4",   "chain-5",    "chain-6",    "chain-7",    "chain-8",  "random-1", "random-2",
    "random-3",  "random-4",   "random-5",   "random-6",   "random-7", "random-8", "random-9",
    "random-10", "random-11",  "random-12",  "unet-1",     "unet-2",   "unet-3",   "unet-4",
    "few-1",     "few-2",      "few-3",      "few-4",      "few-5",    "few-6",    "few-7",
    "few-8",     "few-9",      "few-10",     "few-11",     "few-12",   "few-13",   "few-14",
    "few-15",    "few-16",     NULL};

static json_t *load(void)
{
    char path[4096];
    const char *srcdir = getenv("srcdir");
    json_error_t error;
    snprintf(path, sizeof(path), "%s/tests/plan/oracle/optima.json", srcdir ? srcdir : ".");
    json_t *all = json_load_file(path, 0, &error);
    if (!all)
        fprintf(stderr, "%s: %s\n", path, error_get());
    return all;
}

static void count(struct optima_result *r, const char *name, int share, double ratio)
{
    r->mean += log(ratio);
    if (ratio <= r->worst)
        return;
    r->worst = ratio;
    snprintf(r->worst_name, sizeof(r->worst_name), "%s at %d %%", name, share);
}

static int compare_budget(FILE *table, struct optima_result *r, const char *name,
                          const struct graph *g, json_t *b)
{
    int share = (int)json_integer_value(json_object_get(b, "share"));
    double best = json_real_value(json_object_get(b, "seconds"));
    struct budgets budgets = {.device = json_integer_value(json_object_get(b, "bytes"))};
    struct plan *p;
    if (best <= 0)
        return 0;
    r->n++;
    if (plan_make(g, &machine_cpu, &budgets, 0, &p)) {
        r->refused++;
        if (table)
            fprintf(table, "%-12s %3d %%  refused, optimum %.6f: %.160s\n", name, share, best,
                    error_get());
        return 0;
    }
    bool impossible = p->seconds < best - PROOF || p->bound_seconds > best * (1 + 1e-12);
    if (impossible || plan_check(g, p)) {
        fprintf(stderr, "%s at %d %%: %.6f s or the bound %.6f s against %.6f s, or %s\n", name,
                share, p->seconds, p->bound_seconds, best, error_get());
        plan_free(p);
        return 1;
    }
    count(r, name, share, p->seconds / best);
    if (table)
        fprintf(table, "%-12s %3d %%  %.4f  (%.6f s, optimum %.6f s)\n", name, share,
                p->seconds / best, p->seconds, best);
    plan_free(p);
    return 0;
}

static int compare_graph(FILE *table, struct optima_result *r, const char *name, json_t *entry)
{
    size_t i;
    json_t *b;
    struct graph *g = model_small(name);
    if (!g || g->n_ops != json_integer_value(json_object_get(entry, "ops"))) {
        fprintf(stderr, "%s is not the graph that was solved\n", name);
        graph_free(g);
        return 1;
    }
    int rc = 0;
    json_array_foreach(json_object_get(entry, "budgets"), i, b) rc |=
        compare_budget(table, r, name, g, b);
    graph_free(g);
    return rc;
}

int optima_compare(FILE *table, struct optima_result *r)
{
    const char *name;
    json_t *entry, *all = load();
    if (!all)
        return 77;
    *r = (struct optima_result){.worst = 1};
    int rc = 0;
    json_object_foreach(all, name, entry) rc |= compare_graph(table, r, name, entry);
    r->mean = r->n > r->refused ? exp(r->mean / (r->n - r->refused)) : 1;
    json_decref(all);
    return rc;
}

/* ---- the smallest budgets -------------------------------------------------------------------- */

/* The plan of the smallest budget. */
static int plan_smallest(const struct graph *g, struct plan **out)
{
    struct budgets b = {.device = INT64_MAX};
    struct frontier *f;
    struct plan *p;
    *out = NULL;
    int rc = frontier_build(g, &f);
    if (rc)
        return rc;
    rc = frontier_plan(f, &machine_cpu, &b, 0, &p);
    b.device = rc ? 0 : p->min_budget;
    if (!rc) {
        plan_free(p);
        rc = frontier_plan(f, &machine_cpu, &b, 0, out);
    }
    frontier_free(f);
    return rc;
}

static int compare_smallest(FILE *table, struct optima_result *r, const char *name,
                            const struct graph *g, int32_t states)
{
    struct plan *p;
    double least;
    bool proved;
    int rc = plan_smallest(g, &p);
    if (rc)
        return rc;
    const int64_t bytes = p->persistent + p->transient;
    rc = exact_least(g, bytes, p->seconds, true, states, &least, &proved);
    if (!rc && least < p->seconds * (1 - 1e-6))
        rc = exact_least(g, bytes, p->seconds, false, states, &least, &proved);
    r->n++;
    if (!rc && proved) {
        r->proved++;
        count(r, name, 0, p->seconds / least);
    }
    if (!rc && table)
        fprintf(table, "%-12s %7lld bytes  %.4f%s (%.6f s, least %.6f s)\n", name, (long long)bytes,
                p->seconds / least, proved ? "" : " at most", p->seconds, least);
    plan_free(p);
    return rc;
}

int optima_smallest(FILE *table, int32_t states, struct optima_result *r)
{
    int rc = 0;
    *r = (struct optima_result){.worst = 1};
    for (int i = 0; optima_names[i] && !rc; i++) {
        struct graph *g = model_small(optima_names[i]);
        rc = compare_smallest(table, r, optima_names[i], g, states);
        graph_free(g);
    }
    r->mean = r->proved ? exp(r->mean / r->proved) : 1;
    return rc;
}
