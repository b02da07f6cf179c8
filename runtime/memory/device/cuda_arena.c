/* SPDX-License-Identifier: Apache-2.0 */
/* The reserved address range and its pieces of device memory: see cuda_arena.h. */
#include <stdlib.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include "memory/device/cuda_arena.h"

/* Driver calls that the runtime library has no counterpart for.  They are looked up at run time, so
 * that a program also starts without a driver. */
struct driver {
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*free_range)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
};

/* A piece of device memory, mapped at offset in the range. */
struct piece {
    CUmemGenericAllocationHandle handle;
    int64_t offset, bytes;
};

struct cuda_arena {
    struct driver driver;
    CUmemAllocationProp prop;
    CUdeviceptr base;
    int64_t reserved, mapped, unit;
    struct {
        struct piece *data; /* in the order of offsets, without gaps */
        int64_t capacity;
    } pieces;
    int64_t n_pieces;
};

static void *look_up(const char *name)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : NULL;
}

static int load_driver(struct driver *d)
{
    const struct {
        const char *name;
        void *slot;
    } calls[] = {
        {"cuMemGetAllocationGranularity", &d->granularity},
        {"cuMemAddressReserve", &d->reserve},
        {"cuMemAddressFree", &d->free_range},
        {"cuMemCreate", &d->create},
        {"cuMemRelease", &d->release},
        {"cuMemMap", &d->map},
        {"cuMemUnmap", &d->unmap},
        {"cuMemSetAccess", &d->access},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *function = look_up(calls[i].name);
        if (!function)
            return error_set(CKPT_EDEVICE, "the CUDA driver has no %s: it is too old",
                             calls[i].name);
        *(void **)calls[i].slot = function;
    }
    return 0;
}

int cuda_arena_open(struct cuda_arena **out, int device, int64_t reserve)
{
    struct cuda_arena *a = calloc(1, sizeof *a);
    if (!a)
        return error_set(CKPT_ENOMEM, "no memory for the arena of the CUDA device");
    int rc = load_driver(&a->driver);
    size_t unit = 1;
    a->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    a->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    a->prop.location.id = device;
    if (!rc && a->driver.granularity(&unit, &a->prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM))
        rc = error_set(CKPT_EDEVICE, "the GPU has no virtual memory management");
    a->unit = (int64_t)unit;
    a->reserved = round_up(reserve, a->unit);
    if (!rc && a->driver.reserve(&a->base, (size_t)a->reserved, 0, 0, 0))
        rc = error_set(CKPT_ENOMEM, "cannot reserve %s of device addresses",
                       human_bytes(a->reserved));
    if (rc) {
        free(a);
        return rc;
    }
    *out = a;
    return 0;
}

char *cuda_arena_base(const struct cuda_arena *a)
{
    return (char *)(uintptr_t)a->base;
}

int64_t cuda_arena_mapped(const struct cuda_arena *a)
{
    return a->mapped;
}

static void drop_last(struct cuda_arena *a)
{
    struct piece *p = &a->pieces.data[--a->n_pieces];
    a->driver.unmap(a->base + (CUdeviceptr)p->offset, (size_t)p->bytes);
    a->driver.release(p->handle);
    a->mapped -= p->bytes;
}

static int add_piece(struct cuda_arena *a, int64_t bytes)
{
    struct piece p = {.offset = a->mapped, .bytes = bytes};
    CUmemAccessDesc access = {.location = a->prop.location,
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = a->base + (CUdeviceptr)p.offset;
    if (ARRAY_RESERVE(&a->pieces, a->n_pieces) ||
        a->driver.create(&p.handle, (size_t)bytes, &a->prop, 0))
        return CKPT_ENOMEM;
    if (a->driver.map(at, (size_t)bytes, 0, p.handle, 0)) {
        a->driver.release(p.handle);
        return CKPT_ENOMEM;
    }
    a->pieces.data[a->n_pieces++] = p;
    a->mapped += bytes;
    if (a->driver.access(at, (size_t)bytes, &access, 1)) {
        drop_last(a);
        return CKPT_ENOMEM;
    }
    return 0;
}

int cuda_arena_map(struct cuda_arena *a, int64_t bytes)
{
    int64_t want = round_up(bytes, a->unit);
    if (want > a->reserved)
        return CKPT_ENOMEM;
    while (a->n_pieces && a->pieces.data[a->n_pieces - 1].offset >= want)
        drop_last(a);
    return want > a->mapped ? add_piece(a, want - a->mapped) : 0;
}

void cuda_arena_close(struct cuda_arena *a)
{
    if (!a)
        return;
    while (a->n_pieces)
        drop_last(a);
    a->driver.free_range(a->base, (size_t)a->reserved);
    free(a->pieces.data);
    free(a);
}
