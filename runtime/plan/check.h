/* Inside the checker: what plan_check and the proof of the parks share. */
#ifndef CKPT_PLAN_CHECK_H
#define CKPT_PLAN_CHECK_H

#include "plan/plan.h"

/* The sentence about what is wrong; c is the struct of a proof, which knows where it goes. */
#define violation(c, ...) check_violation((c)->message, __VA_ARGS__)
int check_violation(char message[CKPT_MESSAGE], const char *fmt, ...) CKPT_PRINTF(2, 3);

/*
 * Proves the parks of a plan whose steps and instances are sound: out, complete, free, room, back
 * and use in this order; residence as they say; nobody touches what is away; copies of a queue one
 * after the other and never in a circle with the steps; tiers under their budgets and their
 * addresses disjoint.  Returns 0, CKPT_ENOMEM, or CKPT_EPLAN with the first violation in message.
 */
int check_parks(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE]);

/*
 * Proves the steps on the host of a plan whose parks are proved: they are updates, all their bytes
 * are in the host tier in the version that is due, what they make gets to the device, and rooms in
 * the tier are disjoint while they are taken.  Returns as check_parks does.
 */
int check_host_steps(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE]);

/* Whether a park says that s comes back at this step. */
bool parks_return(const struct plan *p, int32_t s, int32_t in_step);

#endif
