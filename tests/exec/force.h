/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that offload everything that can be offloaded, to test that results do not change. */
#ifndef CKPT_TESTS_FORCE_H
#define CKPT_TESTS_FORCE_H

#include "plan/plan.h"

struct force {
    uint64_t seed;   /* of the random choices: steps, tiers, storages that stay */
    bool host, nvme; /* lower tiers to use */
    bool all;        /* offload every sufficiently long gap, not three of four */
    bool stepped; /* updates run on the host: all of them, or every other one unless `all` is set */
    bool half;    /* parameter values are bf16 */
    bool repeated; /* the host repeats updates with bf16 gradients, and some are deferred; not with
                      stepped */
};

/* Counts a plan's offloads by kind, so that a test can check that there are any. */
struct force_count {
    int32_t persistent[TIER_COUNT], activations[TIER_COUNT];
    int32_t clean, crossing;    /* without a copy out; still under way when the next step begins */
    int32_t stepped, on_device; /* updates on the host, and on the device */
    int32_t sent, back;         /* copies out for host updates; copies back of their results */
    int32_t in_place;           /* both at once: gradients that use the memory of values */
    int32_t written;            /* values that host updates write in place */
    int32_t repeated, deferred; /* updates that the host repeats; deferred ones, too */
};

/* Makes a plan with the steps of base and offloads wherever the rules allow, with addresses by
 * first fit.  Returns 0 or CKPT_ENOMEM. */
int force_offloads(const struct graph *g, const struct plan *base, const struct force *f,
                   struct plan **out);
void force_count(const struct graph *g, const struct plan *p, struct force_count *n);

#endif
