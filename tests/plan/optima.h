/* SPDX-License-Identifier: Apache-2.0 */
/* The planner against the proved optima of tests/plan/oracle/optima.json. */
#ifndef TESTS_PLAN_OPTIMA_H
#define TESTS_PLAN_OPTIMA_H

#include <stdint.h>
#include <stdio.h>

extern const char *const optima_names[]; /* of the graphs, for model_small; ended by NULL */

struct optima_result {
    int n;              /* budgets that were proved feasible */
    int proved;         /* by optima_smallest */
    int refused;        /* of them: where the planner found nothing */
    double mean, worst; /* planned over optimal seconds of a step: geometric mean, largest */
    char worst_name[64];
};

/* Compares everything; a line for each budget to table unless that is NULL.  Returns 0, 1 after an
 * error, or 77 where the data file cannot be found. */
int optima_compare(FILE *table, struct optima_result *r);
/* Compares the plan of the smallest budget of each graph with the fastest schedule of as many live
 * bytes, by a search of at most so many states (exact.h); mean and worst are of those proved. */
int optima_smallest(FILE *table, int32_t states, struct optima_result *r);

#endif
