/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt for fake_cuda.c: every call is one of kind "cublas". */
#include <cublasLt.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern bool torture_fails(const char *kind) __attribute__((weak));
extern void *__libc_calloc(size_t, size_t);
extern void __libc_free(void *);
extern atomic_int fake_kernels;

static atomic_int handles; /* given out */

__attribute__((destructor)) static void tell_handles(void)
{
    if (!handles)
        return;
    dprintf(2, "fake CUDA: %d cuBLASLt handles were not given back\n", (int)handles);
    _exit(9);
}

#define CUBLAS_TURN()                                                                              \
    do {                                                                                           \
        if (torture_fails && torture_fails("cublas"))                                              \
            return CUBLAS_STATUS_INTERNAL_ERROR;                                                   \
    } while (0)

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return "internal error (fake CUDA)";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    CUBLAS_TURN();
    *handle = __libc_calloc(1, 1);
    handles += *handle != NULL;
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    __libc_free(handle);
    handles--;
    CUBLAS_TURN();
    return CUBLAS_STATUS_SUCCESS;
}

/* Descriptors, which nothing here reads.  The real functions end the process at the first call
 * without memory. */
#define DESCRIPTOR(name, parameters)                                                               \
    cublasStatus_t name parameters                                                                 \
    {                                                                                              \
        CUBLAS_TURN();                                                                             \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }

DESCRIPTOR(cublasLtMatmulDescInit_internal,
           (cublasLtMatmulDesc_t task, size_t size, cublasComputeType_t compute,
            cudaDataType_t scale))
DESCRIPTOR(cublasLtMatmulDescSetAttribute,
           (cublasLtMatmulDesc_t task, cublasLtMatmulDescAttributes_t which, const void *value,
            size_t size))
DESCRIPTOR(cublasLtMatrixLayoutInit_internal,
           (cublasLtMatrixLayout_t layout, size_t size, cudaDataType type, uint64_t rows,
            uint64_t columns, int64_t leading))
DESCRIPTOR(cublasLtMatrixLayoutSetAttribute,
           (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
            const void *value, size_t size))
DESCRIPTOR(cublasLtMatmulPreferenceInit_internal, (cublasLtMatmulPreference_t limits, size_t size))
DESCRIPTOR(cublasLtMatmulPreferenceSetAttribute,
           (cublasLtMatmulPreference_t limits, cublasLtMatmulPreferenceAttributes_t which,
            const void *value, size_t size))

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t task,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t limits, int most,
                                              cublasLtMatmulHeuristicResult_t *found, int *n)
{
    CUBLAS_TURN();
    *n = most < 2 ? most : 2;
    memset(found, 0, (size_t)*n * sizeof *found);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t task,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    CUBLAS_TURN();
    memset(result, 0, sizeof *result);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t task, const void *alpha,
                              const void *pa, cublasLtMatrixLayout_t a, const void *pb,
                              cublasLtMatrixLayout_t b, const void *beta, const void *pc,
                              cublasLtMatrixLayout_t c, void *pd, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    CUBLAS_TURN();
    fake_kernels++;
    return CUBLAS_STATUS_SUCCESS;
}
