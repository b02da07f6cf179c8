/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: plans with lower tiers of the fewest device bytes. */
#ifndef CKPT_PLAN_LOWEST_H
#define CKPT_PLAN_LOWEST_H

#include "plan/search/search.h"

#define NO_END (INT64_MAX / 8) /* the budget of an unlimited tier */

/* The largest number up to bytes with at most bits + 1 significant bits. */
int64_t grid_budget_at(int64_t bytes, int bits);
/* The k-th grid budget of a lower tier, below the used bytes. */
int64_t grid_budget_below(int64_t used, int64_t least, int bits, int32_t k);
/* Whether lower tiers hold these bytes and the slots that stage copies of NVMe. */
bool tiers_hold(const struct budgets *b, int64_t host, int64_t nvme);

struct lowest;
int lowest_new(struct offloader *x, const int64_t base[TIER_COUNT], struct lowest **l);
void lowest_free(struct lowest *l);

/* Plans belong to l.  Device bytes are those of the plan alone.  Return 0, CKPT_ENOMEM or
 * CKPT_ESTOP. */

/* The plan of fewest device bytes with these lower tiers, or NULL. */
int lowest_plan(struct lowest *l, const struct budgets *b, const struct plan **p);
/* Sets *p to the fastest plan within device bytes if it takes less than limit seconds. */
int lowest_fastest(struct lowest *l, const struct budgets *b, int64_t device, double limit,
                   const struct plan **p);
/* The fewest bytes of a lower tier, those of others included, that are enough for a plan within
 * device bytes and the other tier; *p is that plan, or NULL. */
int lowest_needs(struct lowest *l, int tier, const struct budgets *b, int64_t device,
                 int64_t *bytes, const struct plan **p);

#endif
