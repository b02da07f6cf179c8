/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the rates of copies between host and device, and of host updates beside them.  Machine
 * files hold these rates for one computer; another with the same GPU may have other buses, memory
 * and processors, and virtual machines share them.
 */
#ifndef CKPT_LINK_RATES_H
#define CKPT_LINK_RATES_H

#include "core/base.h"

struct device;
struct machine;

/* Memory for copies of `bytes` bytes: LINK_ARENA such blocks in the arena, LINK_HOST on the host.
 */
struct link_space {
    char *arena, *host;
    int64_t bytes;
};

enum { LINK_ARENA = 2, LINK_HOST = 3 };

/*
 * Sets d2h, h2d, d2h_both, h2d_both and host_update of a machine to the best of several rounds.
 * Updates run in threads on the NUMA node of the device, which `processes` processes share; if
 * no thread can be started, host_update stays.  The contents of the space are overwritten.  The
 * device is idle.  Returns 0, or CKPT_EDEVICE if a copy failed; then nothing changes.
 */
int link_rates_time(struct device *d, const struct link_space *s, int processes,
                    struct machine *m);

#endif
