/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares and launches matrix products: see gemm.h. */
#include <stdlib.h>
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_plain.h"

static cudaDataType_t type_of(enum ckpt_dtype dtype)
{
    switch (dtype) {
    case CKPT_BF16:
        return CUDA_R_16BF;
    case CKPT_F8E4M3:
        return CUDA_R_8F_E4M3;
    case CKPT_F8E5M2:
        return CUDA_R_8F_E5M2;
    default:
        return CUDA_R_32F;
    }
}

/* A hash of everything on which the choice of an algorithm may depend.  Accumulation is not part
 * of it: a product that sets c in the first micro-step and adds to it in later ones is prepared
 * once. */
static uint64_t key_of(const struct gemm *g, const struct gemm_batch *batch, int64_t workspace,
                       bool spread_bias)
{
    const int64_t parts[] = {'g',
                             g->rows,
                             g->cols,
                             g->inner,
                             g->a.dtype,
                             g->a.transposed,
                             g->b.dtype,
                             g->b.transposed,
                             g->c_dtype,
                             g->bias != NULL,
                             spread_bias,
                             gemm_alignment(g->a.data),
                             gemm_alignment(g->b.data),
                             gemm_alignment(g->c),
                             gemm_alignment(g->bias),
                             workspace};
    uint64_t h = HASH_START;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        h = hash_mix(h, parts[i]);
    if (g->short_sums)
        h = hash_mix(h, 's');
    if (batch) {
        h = hash_mix(h, batch->count);
        for (int i = 0; i < 3; i++)
            h = hash_mix(hash_mix(h, batch->row[i]), batch->step[i]);
    }
    return g->addend ? hash_mix(h, gemm_alignment(g->addend)) : h;
}

/* Describes a dense row-major matrix, which is column-major and transposed for cuBLASLt. */
static cublasStatus_t describe_matrix(cublasLtMatrixLayout_t layout, enum ckpt_dtype dtype,
                                      int64_t rows, int64_t cols)
{
    return cublasLtMatrixLayoutInit(layout, type_of(dtype), (uint64_t)cols, (uint64_t)rows, cols);
}

static cublasStatus_t describe_operand(cublasLtMatrixLayout_t layout, const struct gemm_operand *m,
                                       int64_t rows, int64_t cols)
{
    return m->transposed ? describe_matrix(layout, m->dtype, cols, rows)
                         : describe_matrix(layout, m->dtype, rows, cols);
}

static cublasStatus_t set_layout(cublasLtMatrixLayout_t layout,
                                 cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                 size_t size)
{
    return cublasLtMatrixLayoutSetAttribute(layout, attribute, value, size);
}

static cublasStatus_t spread_matrix(cublasLtMatrixLayout_t layout, const struct gemm_batch *batch,
                                    int which)
{
    const int32_t count = (int32_t)batch->count;
    const int64_t row = batch->row[which], step = batch->step[which];
    cublasStatus_t s = set_layout(layout, CUBLASLT_MATRIX_LAYOUT_LD, &row, sizeof row);
    s = s ? s : set_layout(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count);
    return s ? s
             : set_layout(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step);
}

static cublasStatus_t spread_matrices(struct product *p, const struct gemm_batch *batch)
{
    cublasStatus_t s = spread_matrix(&p->a, batch, 1); /* cuBLASLt's first operand is b */
    s = s ? s : spread_matrix(&p->b, batch, 0);
    return s ? s : spread_matrix(&p->c, batch, 2);
}

static cublasStatus_t set_task(struct product *p, cublasLtMatmulDescAttributes_t attribute,
                               int32_t value)
{
    return cublasLtMatmulDescSetAttribute(&p->task, attribute, &value, sizeof value);
}

/* The algorithms depend on the alignment of the bias, so its address is set before one is
 * selected. */
static cublasStatus_t set_bias(struct product *p, const void *bias)
{
    return cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof bias);
}

/* Keeps sums in the tensor cores' accumulators, instead of adding them to fp32 registers at
 * intervals.  On Hopper these have 14 bits for sums of 8-bit products. */
static cublasStatus_t set_short_sums(struct product *p)
{
    const int8_t fast = 1;
    return cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast,
                                          sizeof fast);
}

/* Sets the addresses of the scales of 8-bit operands, which like the bias differ from call to
 * call. */
static cublasStatus_t set_scales(struct product *p, const struct gemm *g)
{
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    if (g->b.scale)
        s = cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                           &g->b.scale, sizeof g->b.scale);
    if (g->a.scale && !s)
        s = cublasLtMatmulDescSetAttribute(&p->task, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
                                           &g->a.scale, sizeof g->a.scale);
    return s;
}

static cublasStatus_t describe(struct product *p, const struct gemm *g,
                               const struct gemm_batch *batch)
{
    const bool adds_bias = g->bias && !p->spread_bias;
    cublasStatus_t s = cublasLtMatmulDescInit(&p->task, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    s = s ? s
          : set_task(p, CUBLASLT_MATMUL_DESC_TRANSA, g->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    s = s ? s
          : set_task(p, CUBLASLT_MATMUL_DESC_TRANSB, g->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    s = s ? s
          : set_task(p, CUBLASLT_MATMUL_DESC_EPILOGUE,
                     adds_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
    if (adds_bias)
        s = s ? s : set_bias(p, g->bias);
    s = s ? s : set_scales(p, g);
    if (g->short_sums)
        s = s ? s : set_short_sums(p);
    s = s ? s : describe_operand(&p->a, &g->b, g->inner, g->cols);
    s = s ? s : describe_operand(&p->b, &g->a, g->rows, g->inner);
    s = s ? s : describe_matrix(&p->c, g->c_dtype, g->rows, g->cols);
    return s || !batch ? s : spread_matrices(p, batch);
}

cublasStatus_t gemm_launch(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                           const struct ckpt_kernel_args *a)
{
    const float alpha = 1.f, beta = g->accumulate || g->addend || p->spread_bias ? 1.f : 0.f;
    if (p->own)
        return cuda_gemm_plain(g, a->stream) ? CUBLAS_STATUS_EXECUTION_FAILED
                                             : CUBLAS_STATUS_SUCCESS;
    return cublasLtMatmul(handle, &p->task, &alpha, g->b.data, &p->a, g->a.data, &p->b, &beta,
                          g->addend ? g->addend : g->c, &p->c, g->c, &p->c, &p->algo, a->workspace,
                          p->workspace, (cudaStream_t)a->stream);
}

static int fail(struct cuda_libs *libs, const struct gemm *g, const char *reason)
{
    return cuda_libs_fail(libs, "cuBLASLt: product of %lld x %lld x %lld (%s to %s): %s",
                          (long long)g->rows, (long long)g->inner, (long long)g->cols,
                          dtype_name(g->a.dtype), dtype_name(g->c_dtype), reason);
}

static int prepare(struct cuda_libs *libs, cublasLtHandle_t handle, struct product *p,
                   const struct gemm *g, const struct gemm_batch *batch,
                   const struct ckpt_kernel_args *a)
{
    const bool own_takes = !batch && cuda_gemm_plain_takes(g);
    for (int spread = 0; spread <= (g->bias && !g->addend); spread++) {
        *p = (struct product){.spread_bias = spread};
        p->key = key_of(g, batch, a->workspace_bytes, spread);
        cublasStatus_t s = describe(p, g, batch);
        if (s != CUBLAS_STATUS_SUCCESS)
            return fail(libs, g, cublasLtGetStatusString(s));
        if (gemm_choose(handle, p, g, a, own_takes && !spread))
            return 0;
    }
    return fail(libs, g, "no algorithm");
}

static struct product *prepared(struct cuda_libs *libs, cublasLtHandle_t handle,
                                const struct gemm *g, const struct gemm_batch *batch,
                                const struct ckpt_kernel_args *a)
{
    uint64_t key = key_of(g, batch, a->workspace_bytes, false);
    struct product *p = cuda_libs_find(libs, key);
    if (p)
        return p;
    p = malloc(sizeof *p);
    if (!p) {
        fail(libs, g, "no memory");
        return NULL;
    }
    if (prepare(libs, handle, p, g, batch, a)) {
        free(p);
        return NULL;
    }
    return cuda_libs_keep(libs, key, p, free) ? NULL : p;
}

int cuda_gemm(const struct ckpt_kernel_args *a, const struct gemm *g)
{
    return cuda_gemm_batch(a, g, NULL);
}

int cuda_gemm_batch(const struct ckpt_kernel_args *a, const struct gemm *g,
                    const struct gemm_batch *batch)
{
    struct cuda_libs *libs = a->device;
    cublasLtHandle_t handle = cuda_libs_cublaslt(libs);
    struct product *p = handle ? prepared(libs, handle, g, batch, a) : NULL;
    if (!p)
        return CKPT_EDEVICE;
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    if (p->spread_bias) {
        if (cuda_spread_row(g->c, g->bias, g->rows, g->cols, g->c_dtype, a->stream))
            return fail(libs, g, "the bias cannot be copied");
    } else if (g->bias) {
        s = set_bias(p, g->bias);
    }
    s = s ? s : set_scales(p, g);
    s = s ? s : gemm_launch(handle, p, g, a);
    return s == CUBLAS_STATUS_SUCCESS ? 0 : fail(libs, g, cublasLtGetStatusString(s));
}
