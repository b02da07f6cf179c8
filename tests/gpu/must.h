/* SPDX-License-Identifier: Apache-2.0 */
/* Reporting in GPU tests.  must() ends a test if the machine fails, not the tested code; expect()
 * counts failures of the tested code, and test_result() is main's return value. */
#ifndef CKPT_TESTS_GPU_MUST_H
#define CKPT_TESTS_GPU_MUST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime_api.h>

static int failures;

/* Prints the call and CUDA's error. */
static inline void must(bool ok, const char *what)
{
    if (ok)
        return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

__attribute__((format(printf, 2, 3))) static inline void expect(bool ok, const char *format, ...)
{
    va_list args;
    if (ok)
        return;
    va_start(args, format);
    printf("FAIL ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    failures++;
}

static inline int test_result(void)
{
    printf("%s\n", failures ? "FAIL" : "ok");
    return failures != 0;
}

#endif
