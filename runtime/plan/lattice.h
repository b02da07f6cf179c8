/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: plans with lower tiers.  A larger budget of any tier never gives a slower
 * plan. */
#ifndef CKPT_PLAN_LATTICE_H
#define CKPT_PLAN_LATTICE_H

#include "plan/search/bound.h"

struct lattice;

/*
 * The lattice of a frontier for a machine, reserved device bytes, and tier bytes used by others. It
 * belongs to the frontier and is cached for the next call with the same arguments.  Returns 0 or
 * CKPT_ENOMEM.
 */
int lattice_open(struct frontier *f, const struct machine *m, int64_t reserved,
                 const struct budgets *b, struct lattice **l);
void lattice_free(struct lattice *l);

/*
 * The fastest plan under these budgets (device: reserved bytes included) that takes less than limit
 * seconds, or NULL.  The smallest device budget with these lower tiers and a plan that fits it, or
 * NULL.  Plans belong to the lattice.  Return 0 or CKPT_ENOMEM.
 */
int lattice_fastest(struct lattice *l, const struct budgets *b, double limit,
                    const struct plan **p);
int lattice_smallest(struct lattice *l, const struct budgets *b, int64_t *bytes,
                     const struct plan **p);

/* The fewest bytes of a lower tier, including those of others, with which a plan fits b->device and
 * the other tier; and such a plan.  *p is NULL if no number of bytes is enough. */
int lattice_needs(struct lattice *l, int tier, const struct budgets *b, int64_t *bytes,
                  const struct plan **p);

/* A lower bound of the seconds of plans under these budgets (device: reserved bytes included). */
double lattice_bound(const struct lattice *l, const struct budgets *b);

#endif
