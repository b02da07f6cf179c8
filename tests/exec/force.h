/* SPDX-License-Identifier: Apache-2.0 */
/* Plans that offload whatever can be offloaded, to see that steps come out the same. */
#ifndef CKPT_TESTS_FORCE_H
#define CKPT_TESTS_FORCE_H

#include "plan/plan.h"

struct force {
    uint64_t seed;   /* of the choices: steps, tiers, what stays */
    bool host, nvme; /* the tiers to use */
    bool all;        /* offload every gap that is long enough, not three of four */
    bool stepped;    /* updates run on the host: each, or every other one where not all is set */
    bool half;       /* values of parameters are bf16 */
};

/* What of each kind a plan offloads: for tests that must not pass by doing nothing. */
struct force_count {
    int32_t persistent[TIER_COUNT], activations[TIER_COUNT];
    int32_t clean, crossing;    /* without a copy out; under way when the next step begins */
    int32_t stepped, on_device; /* updates on the host, and not */
    int32_t sent, back;         /* copies out of what these read; and back of what they make */
    int32_t in_place;           /* of both of them: gradients in the rooms of values */
    int32_t written;            /* values that they make where they live */
};

/* A plan with the steps of base and offloads in every place that the rules allow, its addresses as
 * tight as first fit makes them.  Returns 0 or CKPT_ENOMEM. */
int force_offloads(const struct graph *g, const struct plan *base, const struct force *f,
                   struct plan **out);
void force_count(const struct graph *g, const struct plan *p, struct force_count *n);

#endif
