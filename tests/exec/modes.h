/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of whole steps that every low-precision mode must pass; needs small.c and tiny.c. */
#ifndef CKPT_TESTS_MODES_H
#define CKPT_TESTS_MODES_H

#include "small.h"
#include "tiny.h"

enum { MODES_WIDTH = 128 };

/* The small transformer of these tests, bf16, of MODES_WIDTH. */
extern const struct tiny modes_tiny;

/* Options for the CPU, or for the GPU under "make check-gpu"; the caller sets the mode. */
struct ckpt_options modes_options(void);

/* Trains two steps; with two micro-steps each has as many rows as the whole batch with one. */
void modes_train(const struct ckpt_options *o, enum ckpt_dtype grad_dtype, struct tiny_result *r);

/* Fails the test if a budget between the smallest possible and none, or a number of threads,
 * changes a bit.  o sets neither. */
void modes_expect_budgets(const struct ckpt_options *o, enum ckpt_dtype grad_dtype);

/* Fails the test if a tier, or a save and a resume, changes a bit.  r has the mode. */
void modes_expect_tiers(struct small r);

/* Returns the mean loss of the last eight steps. */
double modes_learn(struct small r, int steps);

/* Fails the test unless ckpt_open refuses this value of an option with this sentence. */
void modes_expect_refused(char *option, char *value, const char *sentence);

double modes_cosine(const float *x, const float *y, int64_t n);

#endif
