/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A communicator of a rank on a GPU among ranks on other devices: a collective is queued on a
 * stream, like one of NCCL.  Its operands are copied to host memory, `hosts` runs it there, in a
 * thread of the device, and results are copied back.  So the other ranks may have any device, and
 * sums have the bits of ranks on CPUs.
 */
#ifndef CKPT_THROUGH_HOST_H
#define CKPT_THROUGH_HOST_H

#include "dist/comm/comm.h"
#include "memory/device/device.h"

/* hosts belongs to the new communicator and is closed with it; on failure it stays open.  The
 * device has visit_host, and outlives it.  Returns 0 or CKPT_ENOMEM, with the sentence. */
int comm_open_through_host(struct comm **c, struct comm *hosts, struct device *d);

/* Host memory for calls whose operands have as many bytes in all, also of groups.  Call it before
 * the first such call is recorded.  Returns 0 or CKPT_ENOMEM, with the sentence. */
int comm_reserve_through_host(struct comm *c, int64_t bytes);

#endif
