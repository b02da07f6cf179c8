/* SPDX-License-Identifier: Apache-2.0 */
/* The fastest schedule of a small graph within a budget, by a complete search. */
#ifndef TESTS_PLAN_EXACT_H
#define TESTS_PLAN_EXACT_H

#include "plan/plan.h"

/*
 * Sets *least to a lower bound of the seconds of any schedule whose live bytes are at most `bytes`
 * while each op runs, and *proved to whether a schedule reaches it.  Between two ops of the program
 * ops run again once each and in their order, as in oracle/solve.py, or if `any` as often as wanted
 * and in any order: then there are fewer states.  Only schedules of at most
 * `most` seconds are of interest; the search gives up after `states` states of 56 bytes.  The graph
 * has at most 64 ops of one output each, nothing persistent and no tiers.  Returns 0, CKPT_EINVAL
 * or CKPT_ENOMEM.
 */
int exact_least(const struct graph *g, int64_t bytes, double most, bool any, int32_t states,
                double *least, bool *proved);

#endif
