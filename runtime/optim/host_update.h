/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update on the host: what the CPU device runs, and a plain function for state that stays in
 * host memory.  Every instruction set and the CUDA kernel give the same bits (update_math.h).
 */
#ifndef CKPT_HOST_UPDATE_H
#define CKPT_HOST_UPDATE_H

#include "core/mean8.h"
#include "core/random.h"

struct update_constants;

/* n elements of one parameter: the fp32 weight or master, its running means and its gradient. */
struct host_update {
    float *w, *m, *v;     /* m, v: NULL where the kind has none */
    float *ema;           /* or NULL */
    uint16_t *value;      /* bf16 of the new weight, or NULL */
    const void *gradient; /* fp32, or bf16 where half is set */
    bool half;
    int64_t n;
    bool *broken; /* set where a new weight is not finite; or NULL */
    /* State in bf16: the weight is the value, its means are here, and w, m and v are NULL. */
    bool narrow;
    uint16_t *half_m, *half_v;
    /* Or in 8 bits: half_m and half_v are NULL, and these hold the means.  `first` is then a
     * multiple of MEAN8_BLOCK. */
    struct mean8 byte_m, byte_v; /* without a mean their code is NULL */
    struct random_stream noise;  /* of the parameter and the update; see update_noise */
    int64_t first;               /* which element of the parameter comes first: a multiple of 4 */
};

/* Instruction sets; the first is what the library was compiled for and is there always. */
enum host_update_set { HOST_UPDATE_PLAIN, HOST_UPDATE_AVX2, HOST_UPDATE_AVX512, HOST_UPDATE_SETS };

/* Its name, or NULL where this computer or this build does not have it. */
const char *host_update_name(enum host_update_set set);

/* Updates with the best instruction set, in OpenMP threads of the caller's number. */
void host_update(const struct update_constants *c, const struct host_update *p);

/* The same with a set that is there, on this thread alone. */
void host_update_with(enum host_update_set set, const struct update_constants *c,
                      const struct host_update *p);

/*
 * Makes the calling thread, and the threads that OpenMP starts for it from now on, fit beside a
 * device that is at work: they stay on the processors of a NUMA node (-1: wherever they may run
 * now), which so many processes divide.  They take all but two of their part, and at least half;
 * the others are for who hands over steps and for the driver, which spin while they wait: a thread
 * of the update that shares a processor with one of them keeps all from going on.  nodes: NULL, or
 * a directory that stands for /sys/devices/system/node.  Returns their number, or CKPT_EIO, the
 * sentence in error_get(), where the node is not there or none of its processors may be used; then
 * nothing has changed.
 */
int host_update_bind(int node, int processes, const char *nodes);

#endif
