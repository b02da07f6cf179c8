/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: plans with lower tiers, as a function of budgets that more memory of any tier
 * can only improve. */
#ifndef CKPT_PLAN_LATTICE_H
#define CKPT_PLAN_LATTICE_H

#include "plan/search/bound.h"

struct lattice;

/*
 * The lattice of a frontier for a machine, reserved device bytes and bytes of the tiers that
 * others have taken; it belongs to the frontier and is kept for the next call that asks for the
 * same. Returns 0 or CKPT_ENOMEM.
 */
int lattice_open(struct frontier *pf, const struct machine *m, int64_t reserved,
                 const struct budgets *b, struct lattice **l);
void lattice_free(struct lattice *l);

/*
 * The fastest plan under these budgets (device: reserved bytes included) that takes less than limit
 * seconds, or NULL; and the smallest device budget beside these lower tiers, with a plan that fits
 * it, or NULL.  Plans belong to the lattice.  Return 0 or CKPT_ENOMEM.
 */
int lattice_fastest(struct lattice *l, const struct budgets *b, double limit,
                    const struct plan **p);
int lattice_smallest(struct lattice *l, const struct budgets *b, int64_t *bytes,
                     const struct plan **p);

/* The fewest bytes of a lower tier, those of others included, beside which b->device and the other
 * tier are enough, and a plan that takes no more; *p is NULL if no number is. */
int lattice_needs(struct lattice *l, int tier, const struct budgets *b, int64_t *bytes,
                  const struct plan **p);

/* No plan under these budgets is faster (device: reserved bytes included). */
double lattice_bound(const struct lattice *l, const struct budgets *b);

#endif
