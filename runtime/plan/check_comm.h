/* Inside the checker: the clock of collectives. */
#ifndef CKPT_PLAN_CHECK_COMM_H
#define CKPT_PLAN_CHECK_COMM_H

#include "plan/plan.h"

/* Collectives that run one after the other, in the order of the steps, beside all other ops. */
struct check_comm;

int check_comm_new(const struct graph *g, const struct plan *p, struct check_comm **c);
void check_comm_free(struct check_comm *c);
void check_comm_start(struct check_comm *c);
/* When step k can start that could at now; with what it reads, with the bytes that it may take. */
double check_comm_ready(struct check_comm *c, int32_t k, double now);
/* Step k has ended; copies of its operands came at the time of back. */
void check_comm_done(struct check_comm *c, int32_t k, double now, double back);
/* When all collectives so far are done. */
double check_comm_end(const struct check_comm *c);

#endif
