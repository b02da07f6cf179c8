/* SPDX-License-Identifier: Apache-2.0 */
/* The table of bench_plan. */
#ifndef TESTS_BENCH_PLAN_H
#define TESTS_BENCH_PLAN_H

#include "plan/plan.h"

/* Prints one line of the table and counts the misses. */
CKPT_PRINTF(4, 5)
void bench_row(const char *what, const char *target, bool pass, const char *reached, ...);
/* Processor seconds so far. */
double bench_seconds(void);

/* Latents of videos of 13,800 and 54,000 tokens. */
#define SHORT "15x46x80"
#define LONG  "15x90x160"
/* The step of XL/2 that the trainer records with these options. */
struct graph *bench_record(const char *latent, const char *options, const struct machine *m);

/* Addresses: hard instances and traces. */
void bench_place(const struct machine *m);

#endif
