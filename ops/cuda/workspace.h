/*
 * Scratch bytes of the CUDA kernels: functions of the shapes alone, so that a plan made on a
 * machine without a GPU holds on one that has it.  Shape rules ask where call->backend is
 * CKPT_ON_CUDA.
 */
#ifndef CKPT_CUDA_WORKSPACE_H
#define CKPT_CUDA_WORKSPACE_H

#include "base.h"

#endif
