/* The table of bench_plan. */
#ifndef TESTS_BENCH_PLAN_H
#define TESTS_BENCH_PLAN_H

#include "plan/plan.h"

/* Prints one line of the table and counts the misses. */
CKPT_PRINTF(4, 5)
void bench_row(const char *what, const char *target, bool pass, const char *reached, ...);
/* Processor seconds so far. */
double bench_seconds(void);

/* Addresses: hard instances and traces. */
void bench_place(const struct machine *m);

#endif
