/* The cases of the op table: each records one family of ops at sizes as STDiT3 XL/2 has them. */
#ifndef CKPT_TESTS_BENCH_H
#define CKPT_TESTS_BENCH_H

#include "tape/tape.h"

struct bench_case {
    const char *family;
    /* Records the forward ops and returns what the table differentiates; CKPT_NONE: there is no
     * gradient to time. */
    ckpt_tensor (*record)(ckpt_tape *t, enum ckpt_dtype dtype);
};

/* Ended by a family that is NULL. */
extern const struct bench_case bench_cases[];

#endif
