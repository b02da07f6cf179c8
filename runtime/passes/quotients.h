/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotients of a sum over samples and a count that are recorded in single ops, such as
 * ckpt_div(ckpt_sum(x * mask), ckpt_maximum(ckpt_sum(mask), 1)).  coupled.c finds them; here they
 * become quotients by the count of the whole step.
 */
#ifndef CKPT_PASSES_QUOTIENTS_H
#define CKPT_PASSES_QUOTIENTS_H

#include "tape/tape.h"

/* How a value of the batch changes with the number of samples; MIXED: a sum of both kinds, or as a
 * count a function of counts of both kinds. */
enum growth { ANY, MEAN, SUM, MIXED };

/* A value that does not depend on samples: equal on both tapes; a function of a count of the whole
 * step; or different, as the number of samples itself. */
enum factor { EQUAL, OF_STEP, DIFFERENT };

struct coupling {
    ckpt_tape *t;
    const ckpt_tape *other;
    int32_t *pair;   /* per tensor of t: the same one on the other tape, or 0 */
    bool *depends;   /* per tensor of t: its value depends on the samples of a part */
    uint8_t *growth; /* enum growth of a value of the batch, a count, or a linear function of one */
    uint8_t *count;  /* enum growth of a count, or of the counts that a value is a function of */
    uint8_t *factor; /* enum factor, if it does not depend on samples */
    int32_t lost;    /* 1 + the first op whose result has no growth that the library knows; or 0 */
    struct {
        struct quotient {
            int32_t op, by; /* the operand that is a function of counts */
        } * data;
        int64_t capacity;
    } quotients;
    int32_t n_quotients;
};

/* The counts that op o reads functions of. */
enum growth quotient_count(const struct coupling *u, const struct op *o);

/* Whether o is the quotient of its two operands. */
bool quotient_is_div(const struct op *o);

/* The operand of a quotient or product o that is a function of counts, or -1. */
int quotient_operand(const struct coupling *u, const struct op *o);

/* Adds op i to the list.  Returns 0 or the error of the tape. */
int quotient_note(struct coupling *u, int32_t i, int by);

/* Has all quotients of the list divide by counts of the step.  Returns 0 or the error of the
 * tape. */
int quotients_of_step(struct coupling *u);

#endif
