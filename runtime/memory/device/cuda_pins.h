/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that is registered with CUDA, in pieces. */
#ifndef CKPT_CUDA_PINS_H
#define CKPT_CUDA_PINS_H

#include "core/base.h"

struct cuda_pins {
    struct cuda_pin {
        char *base;
        int64_t bytes;
    } * data;
    int64_t capacity;
    int32_t n;
};

/* Returns 0 or CKPT_ENOMEM, with the sentence. */
int cuda_pins_add(struct cuda_pins *p, void *base, int64_t bytes);
void cuda_pins_remove(struct cuda_pins *p, void *base);
void cuda_pins_free(struct cuda_pins *p);

/* How many of these bytes one copy may take: a copy must not leave the piece it begins in. */
int64_t cuda_pins_run(const struct cuda_pins *p, const void *host, int64_t bytes);

/* The NUMA node of a device by its PCI address, or -1. */
int cuda_numa_node(const char *bus_id);

#endif
