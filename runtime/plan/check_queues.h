/* Inside the checker: the copies of a plan. */
#ifndef CKPT_PLAN_CHECK_QUEUES_H
#define CKPT_PLAN_CHECK_QUEUES_H

#include "plan/plan.h"

/*
 * Proves the copies of parks whose steps are sound: those of a queue one after the other, in the
 * order of the steps that they wait for, so that copies and steps never wait for each other in a
 * circle; and, for the seconds that the plan was made with, that with all waiting a step takes as
 * long as the plan says.
 */
int check_queues(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE]);

#endif
