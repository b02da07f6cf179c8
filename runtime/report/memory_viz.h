/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a plan over the step as a snapshot of PyTorch's allocator: for
 * pytorch.org/memory_viz and python -m torch.cuda._memory_viz. */
#ifndef CKPT_MEMORY_VIZ_H
#define CKPT_MEMORY_VIZ_H

#include "plan/plan.h"

/* Device 0 is the device, 1 host memory, 2 NVMe.  Each has one segment with the blocks of the last
 * step, and a trace of allocations and frees, with the micro-step body once.  Memory of the process
 * outside the plan comes first.  Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int memory_viz_write(const struct graph *g, const struct plan *p, const struct machine *machine,
                     const char *path);

#endif
