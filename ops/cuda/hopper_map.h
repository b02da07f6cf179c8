/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of tensors from which Hopper copies boxes (box_load() and box_store() in hopper.cuh). */
#ifndef CKPT_CUDA_HOPPER_MAP_H
#define CKPT_CUDA_HOPPER_MAP_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

enum { HOPPER_AXES = 5 };

/* Elements of a tensor; bf16 where nothing is said. */
enum hopper_element { HOPPER_BF16, HOPPER_BYTE, HOPPER_FLOAT };

/* The first axis is the innermost, whose step is 1; steps are in elements.  All steps but that one
 * are multiples of 16 bytes, and data begins at such an address. */
struct hopper_tensor {
    void *data;
    int n_axes;
    int64_t size[HOPPER_AXES], step[HOPPER_AXES];
    enum hopper_element element;
};

/* box: its size along each axis, at most 256; swizzle: bytes of its rows (128, 64 or 32), or 0.
 * False if the driver takes no such map. */
bool cuda_hopper_map(CUtensorMap *map, const struct hopper_tensor *x, const int *box, int swizzle);

#endif
