/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps for TMA copies of boxes on Hopper (box_load() and box_store() in hopper.cuh). */
#ifndef CKPT_CUDA_HOPPER_MAP_H
#define CKPT_CUDA_HOPPER_MAP_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

enum { HOPPER_AXES = 5 };

/* Elements of a tensor; bf16 by default. */
enum hopper_element { HOPPER_BF16, HOPPER_BYTE, HOPPER_FLOAT };

/* The first axis is the innermost, with stride 1.  Strides are in elements; all others are
 * multiples of 16 bytes, and data is aligned to 16 bytes. */
struct hopper_tensor {
    void *data;
    int n_axes;
    int64_t size[HOPPER_AXES], step[HOPPER_AXES];
    enum hopper_element element;
};

/* box: its size along each axis, at most 256; swizzle: bytes of a box row (128, 64 or 32), or 0.
 * Returns false if the driver rejects the map. */
bool cuda_hopper_map(CUtensorMap *map, const struct hopper_tensor *x, const int *box, int swizzle);

#endif
