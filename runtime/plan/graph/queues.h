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

#endif
