/* SPDX-License-Identifier: Apache-2.0 */
/* What every mode of fewer bits promises of whole steps, in one place; needs small.c and tiny.c. */
#ifndef CKPT_TESTS_MODES_H
#define CKPT_TESTS_MODES_H

#include "small.h"
#include "tiny.h"

enum { MODES_WIDTH = 128 };

/* The small transformer of these tests, bf16, of MODES_WIDTH. */
extern const struct tiny modes_tiny;

/* On the CPU, or the GPU under "make check-gpu"; the caller sets the mode. */
struct ckpt_options modes_options(void);

/* Two steps; each of two micro-steps has as many rows as the whole batch of one. */
void modes_train(const struct ckpt_options *o, enum ckpt_dtype grad_dtype, struct tiny_result *r);

/* Fails the test where a budget between the smallest possible and none, or a number of threads,
 * changes a bit.  o has neither. */
void modes_expect_budgets(const struct ckpt_options *o, enum ckpt_dtype grad_dtype);

/* Fails the test where a tier, or a save and a resume, changes a bit.  r has the mode. */
void modes_expect_tiers(struct small r);

/* The mean loss of the last eight steps. */
double modes_learn(struct small r, int steps);

double modes_cosine(const float *x, const float *y, int64_t n);

#endif
