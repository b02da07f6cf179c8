/* SPDX-License-Identifier: Apache-2.0 */
/* CPU convolutions: kernels for groups, and their workspace in bytes. */
#ifndef CKPT_CPU_CONV_KERNELS_H
#define CKPT_CPU_CONV_KERNELS_H

#include "ckpt_op.h"

struct conv_shape;

/* For conv_is_depthwise() shapes. */
int64_t cpu_depthwise_workspace(const struct conv_shape *s); /* for y and dx */
int64_t cpu_depthwise_dw_workspace(const struct conv_shape *s);
void cpu_depthwise(const struct ckpt_kernel_args *a, const struct conv_shape *s);
void cpu_depthwise_dx(const struct ckpt_kernel_args *a, const struct conv_shape *s);
void cpu_depthwise_dw(const struct ckpt_kernel_args *a, const struct conv_shape *s);

/* For other groups.  back: for dx, else for y. */
int64_t cpu_groups_workspace(const struct conv_shape *s, enum ckpt_dtype dtype, bool back);
int64_t cpu_groups_dw_workspace(const struct conv_shape *s, enum ckpt_dtype dtype);
void cpu_groups(const struct ckpt_kernel_args *a, const struct conv_shape *s);
void cpu_groups_dx(const struct ckpt_kernel_args *a, const struct conv_shape *s);
void cpu_groups_dw(const struct ckpt_kernel_args *a, const struct conv_shape *s);

#endif
