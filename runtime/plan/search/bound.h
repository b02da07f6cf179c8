/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: a lower bound of a step's time as a function of the budgets of all tiers. */
#ifndef CKPT_PLAN_BOUND_H
#define CKPT_PLAN_BOUND_H

#include "plan/search/search.h"

/* Facts of a program and a machine that do not depend on budgets. */
struct bound;

/* Returns 0 or CKPT_ENOMEM. */
int bound_new(struct frontier *f, const struct machine *m, struct bound **b);
void bound_free(struct bound *b);

/* A lower bound of the seconds of all plans under these budgets (device: persistent and transient
 * bytes; tiers: tier_base included).  Does not rise when a budget grows. */
double bound_seconds(const struct bound *b, const struct budgets *budgets);

#endif
