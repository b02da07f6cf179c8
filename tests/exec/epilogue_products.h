/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Helpers of tests of products with epilogues: an input of normal values, and all parameters in one
 * array, to be compared bit by bit.
 */
#ifndef CKPT_TESTS_EXEC_EPILOGUE_PRODUCTS_H
#define CKPT_TESTS_EXEC_EPILOGUE_PRODUCTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "ckpt_tools.h"

/* Feeds n bf16 values to input "x", determined by `number`. */
static void feed_normal(ckpt_program *p, int64_t n, int number)
{
    float *x = malloc((size_t)n * sizeof *x);
    uint16_t *narrow = malloc((size_t)n * sizeof *narrow);
    ckpt_fill_normal(7, (uint64_t)number, 1, x, n);
    ckpt_to_bf16(x, narrow, n);
    assert_int_equal(ckpt_feed(p, "x", narrow, n * (int64_t)sizeof *narrow), 0);
    free(narrow);
    free(x);
}

/* Copies all parameters one after the other, at most `most` values. */
static void collect(ckpt *c, float *to, int64_t most)
{
    int64_t at = 0;
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        assert_int_equal(ckpt_param_info(c, ckpt_param_at(c, i), &info), 0);
        const int64_t n = info.numel;
        assert_true(at + n <= most);
        assert_int_equal(ckpt_param_get(c, ckpt_param_at(c, i), CKPT_VALUE, to + at, n), 0);
        at += n;
    }
}

#endif
