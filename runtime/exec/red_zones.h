/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under --verify, kernels on the CPU run on copies of the storages that they write, and on a
 * workspace of their own, with bytes before and behind each that must stay as they are.  A kernel
 * that wrote them fails the step, by the name of its op.
 */
#ifndef CKPT_RED_ZONES_H
#define CKPT_RED_ZONES_H

#include "exec/program.h"

/* A kernel that runs that of its op so; args->device is a struct zone_room of the program. */
int red_zones_run(const struct ckpt_kernel_args *a);
void red_zones_free(struct ckpt_program *p);

#endif
