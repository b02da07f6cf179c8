/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What copies between host and device reach, and updates on the host beside them.  Machine files
 * hold these rates of one computer; another with the same GPU may have other buses, memory and
 * processors, and virtual ones share them.
 */
#ifndef CKPT_LINK_RATES_H
#define CKPT_LINK_RATES_H

#include "core/base.h"

struct device;
struct machine;

/* Where copies of so many bytes go from and to: 2 of them in the arena, 3 on the host. */
struct link_space {
    char *arena, *host;
    int64_t bytes;
};

enum { LINK_ARENA = 2, LINK_HOST = 3 };

/*
 * Sets d2h, h2d, d2h_both, h2d_both and host_update of a machine: the best of some rounds each.
 * Updates run in threads on the node of the device, of which so many processes have a part; where
 * there is no thread for them, host_update stays.  What was in the space is lost.  The device is
 * idle.  Returns 0, or CKPT_EDEVICE where a copy failed, and then changes nothing.
 */
int link_rates_time(struct device *d, const struct link_space *s, int processes,
                    struct machine *m);

#endif
