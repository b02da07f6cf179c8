/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU kernels of ops.def, and what several of them share. */
#ifndef CKPT_CPU_KERNELS_H
#define CKPT_CPU_KERNELS_H

#include "ckpt_op.h"

#define OP_BY(name, kernel) int cpu_##kernel(const struct ckpt_kernel_args *a);
#define OP(name) OP_BY(name, name)
#define OP_ALONE(name)
#include "ops.def"

/* Called at the end of a kernel with n outputs that returned rc: if the call has an extra output,
 * writes the largest magnitude of output 0, whose rows are dense (pass_largest). */
int cpu_write_largest(const struct ckpt_kernel_args *a, int n, int rc);

/* The same for gradients of attention: writes the largest magnitudes that `left` lists. */
void cpu_write_attention_largest(const struct ckpt_kernel_args *a, uint16_t left);

/* Runs the gradient kernel dx with n outputs, then writes the column sums of output 0, as stored
 * and dense, to output n. */
int cpu_with_dx_sums(const struct ckpt_kernel_args *a, int n, ckpt_kernel dx);

#endif
