/* Matrix products over all cores: fixed tiles, one OpenBLAS call (of one thread) per tile. */
#ifndef CKPT_CPU_GEMM_H
#define CKPT_CPU_GEMM_H

#include "ckpt_op.h"

/* A row-major matrix; transposed: it is stored the other way round. */
struct gemm_operand {
    const void *data;
    enum ckpt_dtype dtype;
    bool transposed;
};

/* c [rows, cols] = a [rows, inner] b [inner, cols] + bias [cols], or added to c. */
struct gemm {
    int64_t rows, cols, inner;
    struct gemm_operand a, b;
    void *c;
    enum ckpt_dtype c_dtype;
    bool accumulate;  /* only where c is fp32 and there is no bias */
    const void *bias; /* of a's dtype, or NULL */
};

/* Scratch bytes of a product; only sizes and dtypes of g are looked at. */
int64_t gemm_workspace(const struct gemm *g);

void gemm_run(const struct gemm *g, void *workspace);

#endif
