/* Inside the checker: what plan_check and the proof of the parks share. */
#ifndef CKPT_PLAN_CHECK_H
#define CKPT_PLAN_CHECK_H

#include "plan/plan.h"

/*
 * Proves the parks of a plan whose steps and instances are sound: out, complete, free, room, back
 * and use in this order; residence as they say; nobody touches what is away; copies of a queue one
 * after the other and never in a circle with the steps; tiers under their budgets and their
 * addresses disjoint.  Returns 0, CKPT_ENOMEM, or CKPT_EPLAN with the first violation in message.
 */
int check_parks(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE]);

/* Whether a park says that s comes back at this step. */
bool parks_return(const struct plan *p, int32_t s, int32_t in_step);

#endif
