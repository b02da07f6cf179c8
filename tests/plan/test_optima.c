/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner against optima that were proved: small graphs, four budgets each.  The data file is
 * made by tests/plan/oracle/solve.py, which says what exactly is compared.
 *
 * usage: test_optima [--table] | --list | --write NAME FILE | --plan NAME BYTES
 */
#include <stdlib.h>
#include <string.h>
#include "plan/graph/graph_file.h"
#include "models.h"
#include "optima.h"
#include "plan_make.h"
#include "plan/one_search.h"

static const char *const names[] = {
    "uniform-8", "uniform-12", "uniform-16", "uniform-20", "chain-1",  "chain-2",  "chain-3",
    "chain-4",   "chain-5",    "chain-6",    "chain-7",    "chain-8",  "random-1", "random-2",
    "random-3",  "random-4",   "random-5",   "random-6",   "random-7", "random-8", "random-9",
    "random-10", "random-11",  "random-12",  "unet-1",     "unet-2",   "unet-3",   "unet-4",
    "few-1",     "few-2",      "few-3",      "few-4",      "few-5",    "few-6",    "few-7",
    "few-8",     "few-9",      "few-10",     "few-11",     "few-12",   "few-13",   "few-14",
    "few-15",    "few-16"};

static int list(void)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        puts(names[i]);
    return 0;
}

static int write_graph(const char *name, const char *path)
{
    struct graph *g = model_small(name);
    if (!g) {
        fprintf(stderr, "there is no graph %s\n", name);
        return 1;
    }
    int rc = graph_write(g, path);
    if (rc)
        fprintf(stderr, "%s\n", error_get());
    graph_free(g);
    return rc ? 1 : 0;
}

static int print_plan(const char *name, int64_t bytes)
{
    struct budgets b = {.device = bytes};
    struct plan *p;
    struct graph *g = model_small(name);
    int rc = g ? plan_make(g, &machine_cpu, &b, 0, &p) : CKPT_EINVAL;
    if (!rc)
        printf("%.9f\n", p->seconds);
    else
        puts("none");
    if (!rc)
        plan_free(p);
    graph_free(g);
    return rc && rc != CKPT_EBUDGET;
}

/* The search finds every optimum today.  A search with other random choices may find a little less;
 * a worse one must not go unnoticed. */
static const double mean_limit = 1.002, worst_limit = 1.03;
static const int refused_limit = 0;

int main(int argc, char **argv)
{
    struct optima_result r;
    if (argc == 2 && !strcmp(argv[1], "--list"))
        return list();
    if (argc == 4 && !strcmp(argv[1], "--write"))
        return write_graph(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "--plan"))
        return print_plan(argv[2], strtoll(argv[3], NULL, 10));
    int rc = optima_compare(argc > 1 ? stdout : NULL, &r);
    if (rc)
        return rc;
    printf("%d instances: geometric mean %.4f, worst %.4f (%s), %d not planned\n", r.n, r.mean,
           r.worst, r.worst_name, r.refused);
    return r.n >= 40 && r.mean <= mean_limit && r.worst <= worst_limit && r.refused <= refused_limit
               ? 0
               : 1;
}
