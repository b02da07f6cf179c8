/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products over all cores: fixed tiles, one single-threaded OpenBLAS call per step of a
 * tile. */
#ifndef CKPT_CPU_GEMM_H
#define CKPT_CPU_GEMM_H

#include "shapes/gemm.h"

/* Workspace of a product in bytes, from the sizes and dtypes of g and whether operands have a
 * fill. */
int64_t gemm_workspace(const struct gemm *g);
/* The most of all products that are nowhere larger than g. */
int64_t gemm_workspace_within(const struct gemm *g);

void gemm_run(const struct gemm *g, void *workspace);

#endif
