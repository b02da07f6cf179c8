/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a plan over the step as a snapshot of PyTorch's allocator: for
 * pytorch.org/memory_viz and python -m torch.cuda._memory_viz. */
#ifndef CKPT_MEMORY_VIZ_H
#define CKPT_MEMORY_VIZ_H

#include "plan/plan.h"

/* Device 0 is the device, 1 host memory, 2 NVMe; each is one segment, with what stands where in the
 * last step, and a trace of what takes and leaves its bytes, the body once.  What the process takes
 * of the machine beside the plan stands first.  Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int memory_viz_write(const struct graph *g, const struct plan *p, const struct machine *machine,
                     const char *path, struct error *error);

#endif
