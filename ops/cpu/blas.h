/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS, loaded by name; its buffers are taken before the first product. */
#ifndef CKPT_CPU_BLAS_H
#define CKPT_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * From now on so many more threads may be in a product at once, until blas_close says the same
 * number.  Products take no memory after this.  Any thread may call both.  Returns 0; CKPT_EDEVICE:
 * OpenBLAS cannot be loaded; CKPT_ENOMEM: its buffers cannot be had; the sentence is error_get()'s.
 */
int blas_open(int threads);
void blas_close(int threads);

/* A row-major matrix of a product; transposed: it is stored the other way round. */
struct blas_matrix {
    const float *data;
    int64_t ld;
    bool transposed;
};

/* c [m, n] = alpha a b + beta c, on the calling thread; blas_open came before. */
void blas_sgemm(int64_t m, int64_t n, int64_t k, float alpha, struct blas_matrix a,
                struct blas_matrix b, float beta, float *c, int64_t ldc);

#endif
