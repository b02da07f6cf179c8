/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/hopper_map.h"
#include <cuda_runtime.h>

/* The driver's function, found at run time since the library is not linked with the driver; NULL if
 * the driver lacks it. */
static decltype(&cuTensorMapEncodeTiled) encoder(void)
{
    static void *call;
    void *found = __atomic_load_n(&call, __ATOMIC_RELAXED);
    cudaDriverEntryPointQueryResult result;
    if (!found && cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                   cudaEnableDefault, &result) == cudaSuccess)
        __atomic_store_n(&call, found, __ATOMIC_RELAXED);
    return (decltype(&cuTensorMapEncodeTiled))found;
}

static CUtensorMapSwizzle swizzle_of(int bytes)
{
    return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
           : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                         : CU_TENSOR_MAP_SWIZZLE_NONE;
}

static const struct {
    CUtensorMapDataType type;
    cuuint64_t bytes;
} elements[] = {{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2},
                {CU_TENSOR_MAP_DATA_TYPE_UINT8, 1},
                {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4}};

bool cuda_hopper_map(CUtensorMap *map, const struct hopper_tensor *x, const int *box, int swizzle)
{
    const auto encode = encoder();
    cuuint64_t size[HOPPER_AXES], bytes[HOPPER_AXES];
    cuuint32_t box_size[HOPPER_AXES], every[HOPPER_AXES];
    for (int i = 0; i < x->n_axes; i++) {
        size[i] = (cuuint64_t)x->size[i];
        box_size[i] = (cuuint32_t)box[i];
        every[i] = 1;
        /* The stride of an axis of size 1 is unused but must be valid. */
        if (i > 0)
            bytes[i - 1] =
                x->size[i] == 1 ? 16 : elements[x->element].bytes * (cuuint64_t)x->step[i];
    }
    return encode && encode(map, elements[x->element].type, (cuuint32_t)x->n_axes, x->data, size,
                            bytes, box_size, every, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            swizzle_of(swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
