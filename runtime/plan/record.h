/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record: what a plan says, in one form for everybody behind the search.
 *
 * A plan is an order of steps, residences and copies.  A residence is a stretch of steps for which
 * a storage has an address range of a tier; a copy takes the bytes of a storage from one residence
 * to another.  Everything else follows: a recomputed storage has two residences and no copy, an
 * offloaded one a residence below and copies both ways.
 *
 * Invariants, which the checker proves:
 * - Every persistent storage has one backing: a residence of the whole step, on the device (its
 *   address is then the context's and offset is -1) or in a lower tier.
 * - A step is a circle.  A residence with last >= n_steps runs into the next step, up to
 *   last - n_steps, and only to end there: its copy out is still under way.
 * - A copy is handed over behind step `after`, which comes last of those that it or a copy before
 *   it in its queue must wait for; a copy into a device residence is handed over right before that
 *   begins.  Copies of a queue run in the order of the array, and so `after` never falls.
 * - Only after and before bind.  start and end are a forecast of one machine.
 */
#ifndef CKPT_PLAN_RECORD_H
#define CKPT_PLAN_RECORD_H

#include "core/base.h"

enum { TIER_DEVICE = -1, TIER_HOST, TIER_NVME, TIER_COUNT };

struct residence {
    int32_t storage; /* >= 0; or -1 - k: the workspace of step k */
    int8_t tier;
    int32_t first, last; /* steps, both included */
    int64_t offset;      /* from the start of the tier, or of the transient region; -1: the
                            context's own address */
};

struct copy {
    int32_t from, to;      /* residences of one storage */
    int32_t after, before; /* handed over behind step after (-1: the start); step before, or
                              before - n_steps of the next one, is the first to wait for it */
    double start, end;     /* seconds from the start of the step, the body counted once; both 0
                              where nobody made a forecast */
};

/* Whether a copy leaves the device. */
static inline bool copy_is_out(const struct residence *r, const struct copy *c)
{
    return r[c->from].tier == TIER_DEVICE;
}

/* The tier below at the other end of a copy. */
static inline int copy_tier(const struct residence *r, const struct copy *c)
{
    return r[copy_is_out(r, c) ? c->to : c->from].tier;
}

/* The sentence about what is wrong with a plan, and CKPT_EPLAN; c is a struct that knows where the
 * sentence goes. */
#define violation(c, ...) error_fail((c)->error, CKPT_EPLAN, __VA_ARGS__)

#endif
