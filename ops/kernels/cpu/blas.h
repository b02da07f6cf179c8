/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS, loaded at run time; its buffers are mapped before the first product. */
#ifndef CKPT_CPU_BLAS_H
#define CKPT_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * blas_open permits `threads` more threads in products at once, until blas_close with the same
 * number.  Products allocate no memory.  Any thread may call either.  blas_open returns 0,
 * CKPT_EDEVICE if OpenBLAS cannot be loaded, or CKPT_ENOMEM if its buffers cannot be mapped,
 * with the sentence.
 */
int blas_open(int threads);
void blas_close(int threads);

/* A row-major operand; transposed: stored as its transpose. */
struct blas_matrix {
    const float *data;
    int64_t ld;
    bool transposed;
};

/* c [m, n] = alpha a b + beta c on the calling thread, after blas_open. */
void blas_sgemm(int64_t m, int64_t n, int64_t k, float alpha, struct blas_matrix a,
                struct blas_matrix b, float beta, float *c, int64_t ldc);

#endif
