/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU kernels of ops.def, and what several of them share. */
#ifndef CKPT_CPU_KERNELS_H
#define CKPT_CPU_KERNELS_H

#include "extra.h"

#define OP_BY(name, kernel) int cpu_##kernel(const struct ckpt_kernel_args *a);
#define OP(name)            OP_BY(name, name)
#define OP_ALONE(name)
#include "ops.def"

int cpu_stopwatch(const struct ckpt_kernel_args *a); /* kernel_stopwatch */

/* Called at the end of a kernel that returned rc: writes the column sums, of output 0, as stored
 * and dense, and the largest magnitudes, of outputs with dense rows, that are asked for. */
int cpu_write_extra(const struct ckpt_kernel_args *a, int rc);

#endif
