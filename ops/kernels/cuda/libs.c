/* SPDX-License-Identifier: Apache-2.0 */
/* Library handles and the calls prepared with them: see libs.h. */
#include <stdlib.h>
#include <cublasLt.h>
#include <cudnn.h>
#include "kernels/cuda/libs.h"

struct prepared {
    uint64_t key;
    void *call;
    void (*release)(void *);
};

struct cuda_libs {
    cublasLtHandle_t cublaslt;
    cudnnHandle_t cudnn;
    bool unordered, measuring;
    void *cold;
    size_t cold_bytes;
    struct algorithms algorithms;
    struct {
        struct prepared *data; /* in order of creation; a few hundred at most */
        int64_t capacity;
    } prepared;
    int64_t n_prepared;
    char reason[CKPT_MESSAGE];
};

int cuda_libs_open(struct cuda_libs **libs)
{
    *libs = calloc(1, sizeof **libs);
    return *libs ? 0 : CKPT_ENOMEM;
}

void cuda_libs_close(struct cuda_libs *libs)
{
    if (!libs)
        return;
    for (int64_t i = 0; i < libs->n_prepared; i++)
        libs->prepared.data[i].release(libs->prepared.data[i].call);
    free(libs->prepared.data);
    algorithms_free(&libs->algorithms);
    if (libs->cublaslt)
        cublasLtDestroy(libs->cublaslt);
    if (libs->cudnn)
        cudnnDestroy(libs->cudnn);
    free(libs);
}

void *cuda_libs_cublaslt(struct cuda_libs *libs)
{
    if (!libs->cublaslt) {
        cublasStatus_t status = cublasLtCreate(&libs->cublaslt);
        if (status != CUBLAS_STATUS_SUCCESS)
            cuda_libs_fail(libs, "cuBLASLt: %s", cublasLtGetStatusString(status));
    }
    return libs->cublaslt;
}

void *cuda_libs_cudnn(struct cuda_libs *libs, void *stream)
{
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    if (!libs->cudnn)
        status = cudnnCreate(&libs->cudnn);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetStream(libs->cudnn, stream);
    if (status == CUDNN_STATUS_SUCCESS)
        return libs->cudnn;
    cuda_libs_fail(libs, "cuDNN: %s", cudnnGetErrorString(status));
    return NULL;
}

void cuda_libs_set_unordered(struct cuda_libs *libs, bool unordered)
{
    libs->unordered = unordered;
}

bool cuda_libs_unordered(const struct cuda_libs *libs)
{
    return libs->unordered;
}

struct algorithms *cuda_libs_algorithms(struct cuda_libs *libs)
{
    return &libs->algorithms;
}

void cuda_libs_set_measuring(struct cuda_libs *libs, bool measuring, void *cold, int64_t bytes)
{
    libs->measuring = measuring;
    libs->cold = bytes > 0 ? cold : NULL;
    libs->cold_bytes = libs->cold ? (size_t)bytes : 0;
}

bool cuda_libs_measuring(const struct cuda_libs *libs)
{
    return libs->measuring;
}

void *cuda_libs_cold(const struct cuda_libs *libs, size_t *bytes)
{
    *bytes = libs->cold_bytes;
    return libs->cold;
}

void *cuda_libs_find(const struct cuda_libs *libs, uint64_t key)
{
    for (int64_t i = 0; i < libs->n_prepared; i++)
        if (libs->prepared.data[i].key == key)
            return libs->prepared.data[i].call;
    return NULL;
}

int cuda_libs_keep(struct cuda_libs *libs, uint64_t key, void *call, void (*release)(void *))
{
    if (ARRAY_RESERVE(&libs->prepared, libs->n_prepared)) {
        release(call);
        return CKPT_ENOMEM;
    }
    libs->prepared.data[libs->n_prepared++] = (struct prepared){key, call, release};
    return 0;
}

int cuda_libs_fail(struct cuda_libs *libs, const char *fmt, ...)
{
    va_list ap;
    if (*libs->reason)
        return CKPT_EDEVICE;
    va_start(ap, fmt);
    vsnprintf(libs->reason, sizeof libs->reason, fmt, ap);
    va_end(ap);
    return CKPT_EDEVICE;
}

const char *cuda_libs_reason(struct cuda_libs *libs)
{
    return libs->reason;
}
