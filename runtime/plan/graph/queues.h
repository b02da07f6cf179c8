/* SPDX-License-Identifier: Apache-2.0 */
/* Rates of the queues between the device and the lower tiers. */
#ifndef CKPT_PLAN_QUEUES_H
#define CKPT_PLAN_QUEUES_H

#include "core/base.h"
#include "plan/graph/machine.h"
#include "plan/record.h"

/* Bytes a second. */
struct queue_rates {
    double out[TIER_COUNT], in[TIER_COUNT]; /* of a queue, whose copies run one at a time */
    double both[TIER_COUNT]; /* of each queue of a tier while both run, or 0: as alone */
};

/* Traffic of a drive crosses the link, too; the host tier gets the rest of the link. */
static inline void queue_share(double link, double drive, bool both, double rates[TIER_COUNT])
{
    double most = both ? link / 2 : link;
    rates[TIER_NVME] = drive < most ? drive : most;
    rates[TIER_HOST] = both ? link - rates[TIER_NVME] : link;
}

/* out, in: whether both queues out are used, and both queues in. */
static inline struct queue_rates queue_rates(const struct machine *m, bool out, bool in)
{
    struct queue_rates r = {.both = {[TIER_NVME] = m->nvme_both}};
    queue_share(m->d2h_both, m->nvme_write, out, r.out);
    queue_share(m->h2d_both, m->nvme_read, in, r.in);
    return r;
}

/* The seconds of a copy at `rate`; beside: the other queue of the tier runs, too. */
static inline double queue_seconds(const struct machine *m, int64_t bytes, double rate, double both,
                                   bool beside)
{
    double has = beside && both > 0 && both < rate ? both : rate;
    return (double)bytes / has + m->copy_overhead;
}

/* Part of its rate that a copy from the host has while the host updates: both read host memory.
 * Measured in a step of XL/2 on an H200: 38 to 41 of 51 to 54 GB/s (doc/bench/h200.md). */
#define BESIDE_UPDATES 0.75

/* The seconds of a copy in that would take `alone` while the host does nothing, and runs while the
 * host updates for `updates` seconds more. */
static inline double queue_in_seconds(double alone, double updates)
{
    double part = updates > 0 ? BESIDE_UPDATES * updates : 0; /* of `alone` that is done by then */
    return part < alone ? alone + (part > 0 ? updates - part : 0) : alone / BESIDE_UPDATES;
}

#endif
