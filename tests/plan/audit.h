/* SPDX-License-Identifier: Apache-2.0 */
/* An audit of the planner: budgets of all tiers for a graph, and what the answers say of each
 * other. */
#ifndef TESTS_PLAN_AUDIT_H
#define TESTS_PLAN_AUDIT_H

#include "plan/plan.h"

struct audit {
    int budgets, accepted;
    int refused;     /* budgets that were refused though a plan of another budget fits them */
    int slower;      /* budgets with a slower plan than one of another budget that fits them */
    int untrue;      /* smallest budgets that are refused, or that a plan of another budget beats */
    double excess;   /* the largest part by which a smallest budget is beaten */
    double padding;  /* the largest part by which a peak is above the last address in use */
    double seconds;  /* processor time of the slowest answer, with the search of its graph */
    char first[256]; /* the first fault, or "" */
};

enum { AUDIT_BUDGETS = 25 };

/* Asks for AUDIT_BUDGETS plans and checks all of them.  Counts are added to those in *a.  Returns
 * 0, or 1 with a sentence in error after a failure that is no refusal. */
int audit_graph(const char *name, const struct graph *g, const struct machine *m, struct audit *a);

#endif
