/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under --verify, kernels on the CPU run on copies of the storages that they write, and on a
 * separate workspace, with guard bytes before and behind each, and the sums of their other operands
 * are compared afterwards.  A kernel that changed a guard byte or an input fails the step; the
 * message names its op.
 */
#ifndef CKPT_RED_ZONES_H
#define CKPT_RED_ZONES_H

#include "exec/program.h"

/* A kernel that runs the op's own CPU kernel this way; args->device is a struct zone_buffers of the
 * program. */
int red_zones_run(const struct ckpt_kernel_args *a);
void red_zones_free(struct ckpt_program *p);

#endif
