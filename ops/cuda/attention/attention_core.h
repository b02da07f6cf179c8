/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by kernels of our own, for bf16 and fp32, any lengths and widths and any strides whose
 * last is 1.  All give the same bits every time.  ops/cuda/attention/attention.c chooses between
 * them and the library's; their workspaces are in workspace.h.
 *
 * Lengths of cross attention are read on the device, where nobody can refuse them: a negative one
 * counts as 0 and what reaches beyond the last packed row is cut off.
 */
#ifndef CKPT_CUDA_ATTENTION_CORE_H
#define CKPT_CUDA_ATTENTION_CORE_H

#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether self attention is faster so than by the library, by measurement. */
bool cuda_attention_own_is_fast(const struct ckpt_kernel_args *a);
bool cuda_attention_own_dx_is_fast(const struct ckpt_kernel_args *a);

int cuda_attention_own(const struct ckpt_kernel_args *a);
int cuda_attention_own_dx(const struct ckpt_kernel_args *a);
/* The largest magnitudes that are wanted of results that are there, by passes over them. */
int cuda_attention_find_largest(const struct ckpt_kernel_args *a, bool forward);

int cuda_cross_attention_own(const struct ckpt_kernel_args *a);
int cuda_cross_attention_own_dx(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif
#endif
