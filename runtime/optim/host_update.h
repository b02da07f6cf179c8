/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update on the host: used by the CPU device, and as a plain function for state that stays in
 * host memory.  Every instruction set and the CUDA kernel give the same bits (update_math.h).
 */
#ifndef CKPT_HOST_UPDATE_H
#define CKPT_HOST_UPDATE_H

#include "core/mean8.h"
#include "core/random.h"

struct update_constants;

/* n elements of one parameter: the fp32 weight or master, its running means and its gradient. */
struct host_update {
    float *w, *m, *v;     /* m, v: NULL if the kind has no such mean */
    float *ema;           /* or NULL */
    uint16_t *value;      /* bf16 copy of the new weight, or NULL */
    const void *gradient; /* fp32, or bf16 if half is set */
    bool half;
    int64_t n;
    bool *broken; /* set if a new weight is not finite; or NULL */
    /* bf16 state: value is the weight, half_m and half_v are its means, and w, m and v are NULL. */
    bool narrow;
    uint16_t *half_m, *half_v;
    /* 8-bit means: half_m and half_v are NULL, and these hold the means. `first` must then be a
     * multiple of MEAN8_BLOCK. */
    struct mean8 byte_m, byte_v; /* code is NULL if there is no such mean */
    struct random_stream noise;  /* depends on the parameter and the update; see update_noise */
    int64_t first;               /* index of the first element in the parameter: a multiple of 4 */
};

/* Instruction sets; the first is the library's compile target and always available. */
enum host_update_set { HOST_UPDATE_PLAIN, HOST_UPDATE_AVX2, HOST_UPDATE_AVX512, HOST_UPDATE_SETS };

/* Its name, or NULL if this processor or this build does not support it. */
const char *host_update_name(enum host_update_set set);

/* Updates with the best instruction set, with OpenMP threads (the caller sets their number). */
void host_update(const struct update_constants *c, const struct host_update *p);

/* The same with an available instruction set, on the calling thread only. */
void host_update_with(enum host_update_set set, const struct update_constants *c,
                      const struct host_update *p);

/*
 * Binds the calling thread, and OpenMP threads it starts later, to the processors of a NUMA node
 * (-1: the processors allowed now), which `processes` processes share.  Returns the number of
 * threads to use: all but two of this process's part, but at least half of it.  The other
 * processors are for the submitting thread and the driver, which spin while they wait; an update
 * thread on the same processor would delay all. nodes: NULL, or a directory to use in place of
 * /sys/devices/system/node.  Returns CKPT_EIO with the sentence if the node does not
 * exist or none of its processors is allowed; then nothing has changed.
 */
int host_update_bind(int node, int processes, const char *nodes);

#endif
