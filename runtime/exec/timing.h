/*
 * Times of ops as they are met in training: kernels are timed where they run, on the compute queue,
 * so that nothing else of a step changes.  The medians go to a machine file under the cost keys of
 * the graph.
 */
#ifndef CKPT_TIMING_H
#define CKPT_TIMING_H

#include "exec/program.h"

struct timing;

/* Returns 0 or CKPT_ENOMEM. */
int timing_new(struct timing **t, const struct ckpt_program *p);
void timing_free(struct timing *t);

/* A kernel to run instead of that of args, which then hold what it needs. */
ckpt_kernel timing_wrap(struct timing *t, struct ckpt_kernel_args *args, int32_t micro);

/* After the device is idle: writes the machine of the context with the times so far, on steps 1, 2,
 * 4, 8 and 16; later ones change nothing.  Returns 0 or a code, the sentence in message. */
int timing_step(const struct timing *t, const struct ckpt_program *p, char message[CKPT_MESSAGE]);

#endif
