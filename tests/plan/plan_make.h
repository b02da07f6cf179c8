/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in one call, which only tests and benchmarks want. */
#ifndef TESTS_PLAN_PLAN_MAKE_H
#define TESTS_PLAN_PLAN_MAKE_H

#include "plan/plan.h"

/* Searches and plans. */
int plan_make(const struct graph *g, const struct machine *m, const struct budgets *b,
              int64_t reserved, struct plan **p);
/* The plans for n device budgets; plans[i] is NULL where none fits.  Returns 0 or CKPT_ENOMEM. */
int plan_sweep(struct frontier *f, const struct machine *m, const struct budgets *b,
               const int64_t *device, int32_t n, struct plan **plans);

#endif
