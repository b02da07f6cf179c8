/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that holds a persistent storage between steps: an enum that plans and parameters
 * share. */
#ifndef CKPT_BACKING_H
#define CKPT_BACKING_H

enum backing {
    BACKING_ANY,    /* not chosen yet */
    BACKING_DEVICE, /* it stays on the device from one step to the next */
    BACKING_HOST, /* it is offloaded there, at backing_offset, and takes no new bytes of the tier */
    BACKING_NVME
};

#endif
