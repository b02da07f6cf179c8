/* SPDX-License-Identifier: Apache-2.0 */
/* The planner against the proved optima of tests/plan/oracle/optima.json. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "models.h"
#include "optima.h"
#include "plan_make.h"

/* The tolerance of the proof in seconds: solve.py asked for better plans by at least this. */
#define PROOF 0.9e-3

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
