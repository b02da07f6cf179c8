/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NCCL that libckpt uses, loaded from libnccl.so.2 on demand: a build needs neither its
 * header nor the library.  If nccl.h exists, nccl.c checks this file against it.
 */
#ifndef CKPT_NCCL_API_H
#define CKPT_NCCL_API_H

#include <stddef.h>
#ifdef HAVE_NCCL_H
#include <nccl.h>
typedef ncclResult_t nccl_result;
typedef ncclDataType_t nccl_dtype;
typedef ncclRedOp_t nccl_op;
#define NCCL_ID     ncclUniqueId
#define NCCL_CONFIG ncclConfig_t
#else
typedef int nccl_result;
typedef int nccl_dtype;
typedef int nccl_op;
struct nccl_id {
    char internal[128];
};
#define NCCL_ID     struct nccl_id
#define NCCL_CONFIG struct nccl_config
#endif

#define NCCL_OK          ((nccl_result)0)
#define NCCL_IN_PROGRESS ((nccl_result)7)
#define NCCL_INT32       ((nccl_dtype)2)
#define NCCL_FLOAT32     ((nccl_dtype)7)
#define NCCL_BFLOAT16    ((nccl_dtype)9)
#define NCCL_SUM         ((nccl_op)0)
#define NCCL_MAGIC       0xcafebeefu
#define NCCL_OLDEST      21400 /* the first version with configurations */

/* Layout of 2.14; newer libraries know its size from the version. */
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct ncclComm;
struct CUstream_st;

struct nccl_api {
    nccl_result (*version)(int *version);
    nccl_result (*unique_id)(NCCL_ID *id);
    nccl_result (*init)(struct ncclComm **comm, int size, NCCL_ID id, int rank,
                        NCCL_CONFIG *config);
    nccl_result (*async_error)(struct ncclComm *comm, nccl_result *error);
    nccl_result (*finalize)(struct ncclComm *comm);
    nccl_result (*destroy)(struct ncclComm *comm);
    nccl_result (*abort)(struct ncclComm *comm);
    const char *(*error)(nccl_result result);
    const char *(*last_error)(struct ncclComm *comm);
    nccl_result (*all_gather)(const void *src, void *dst, size_t count, nccl_dtype dtype,
                              struct ncclComm *comm, struct CUstream_st *stream);
    nccl_result (*reduce_scatter)(const void *src, void *dst, size_t count, nccl_dtype dtype,
                                  nccl_op op, struct ncclComm *comm, struct CUstream_st *stream);
    nccl_result (*all_reduce)(const void *src, void *dst, size_t count, nccl_dtype dtype,
                              nccl_op op, struct ncclComm *comm, struct CUstream_st *stream);
    nccl_result (*send)(const void *src, size_t count, nccl_dtype dtype, int to,
                        struct ncclComm *comm, struct CUstream_st *stream);
    nccl_result (*recv)(void *dst, size_t count, nccl_dtype dtype, int from, struct ncclComm *comm,
                        struct CUstream_st *stream);
    nccl_result (*group_start)(void);
    nccl_result (*group_end)(void);
};

#endif
