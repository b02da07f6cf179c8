/* SPDX-License-Identifier: Apache-2.0 */
/* The queues between the device and the tiers below, as a machine has them. */
#ifndef CKPT_PLAN_QUEUES_H
#define CKPT_PLAN_QUEUES_H

#include "core/base.h"
#include "plan/graph/machine.h"
#include "plan/record.h"

/* Bytes a second. */
struct queue_rates {
    double out[TIER_COUNT], in[TIER_COUNT]; /* of the copies of a queue, one at a time */
    double both[TIER_COUNT]; /* of each queue of a tier while both run, or 0: as of one */
};

/* What a drive reads and writes crosses the link too, and leaves the rest of it to the host. */
static inline void queue_share(double link, double drive, bool both, double rates[TIER_COUNT])
{
    double most = both ? link / 2 : link;
    rates[TIER_NVME] = drive < most ? drive : most;
    rates[TIER_HOST] = both ? link - rates[TIER_NVME] : link;
}

/* out, in: whether anything is copied on both of the queues out, and of those in. */
static inline struct queue_rates queue_rates(const struct machine *m, bool out, bool in)
{
    struct queue_rates r = {.both = {[TIER_NVME] = m->nvme_both}};
    queue_share(m->d2h_both, m->nvme_write, out, r.out);
    queue_share(m->h2d_both, m->nvme_read, in, r.in);
    return r;
}

/* The seconds of a copy at `rate`, of one queue alone; beside: the other one of its tier runs. */
static inline double queue_seconds(const struct machine *m, int64_t bytes, double rate, double both,
                                   bool beside)
{
    double has = beside && both > 0 && both < rate ? both : rate;
    return (double)bytes / has + m->copy_overhead;
}

#endif
