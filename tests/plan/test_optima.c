/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planner against optima that were proved: small graphs, four budgets each.  The data file is
 * made by tests/plan/oracle/solve.py, which says what exactly is compared.  And the plan of the
 * smallest budget against an exact search (exact.h).
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

static int list(void)
{
    for (int i = 0; optima_names[i]; i++)
        puts(optima_names[i]);
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

/* At the smallest budgets a few plans are known to be slower than the best one. */
static int check_smallest(void)
{
    struct optima_result r;
    int rc = optima_smallest(NULL, 1 << 15, &r);
    printf("%d smallest budgets, %d proved: geometric mean %.4f, worst %.4f (%s)\n", r.n, r.proved,
           r.mean, r.worst, r.worst_name);
    return rc ? rc : !(r.proved >= 24 && r.mean <= 1.005 && r.worst <= 1.03);
}

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
    bool good =
        r.n >= 40 && r.mean <= mean_limit && r.worst <= worst_limit && r.refused <= refused_limit;
    return good ? check_smallest() : 1;
}
