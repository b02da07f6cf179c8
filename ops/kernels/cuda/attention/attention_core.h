/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by libckpt's kernels, for bf16 and fp32, any lengths and widths, and any strides whose
 * last is 1.  All are deterministic.  attention.c chooses between them and the
 * libraries; attention_workspace.h has their scratch sizes.
 *
 * Lengths of cross attention are read on the device, where they cannot be refused: a negative
 * length counts as 0, and keys beyond the last packed row are ignored.
 */
#ifndef CKPT_CUDA_ATTENTION_CORE_H
#define CKPT_CUDA_ATTENTION_CORE_H

#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is self attention faster with libckpt's kernels than with the libraries, according to
 * measurements? */
bool cuda_attention_own_is_fast(const struct ckpt_kernel_args *a);
bool cuda_attention_own_dx_is_fast(const struct ckpt_kernel_args *a);

int cuda_attention_own(const struct ckpt_kernel_args *a);
int cuda_attention_own_dx(const struct ckpt_kernel_args *a);
/* Computes the requested largest magnitudes of finished results, by separate passes over them. */
int cuda_attention_find_largest(const struct ckpt_kernel_args *a);

int cuda_cross_attention_own(const struct ckpt_kernel_args *a);
int cuda_cross_attention_own_dx(const struct ckpt_kernel_args *a);

#ifdef __cplusplus
}
#endif
#endif
