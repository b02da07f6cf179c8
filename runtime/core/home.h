/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that holds a persistent storage between steps: a word that plans and parameters
 * share. */
#ifndef CKPT_HOME_H
#define CKPT_HOME_H

enum home {
    HOME_ANY,    /* nobody has */
    HOME_DEVICE, /* it stays there round the end of the step */
    HOME_HOST,   /* it is parked there, at home_offset, and takes no new bytes of the tier */
    HOME_NVME
};

#endif
