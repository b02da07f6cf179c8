/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record: the contents of a plan in one form, for every reader after the search.
 *
 * A plan is a sequence of steps, residences and copies.  A residence is an interval of steps in
 * which a storage has an address range of a tier; a copy moves the bytes of a storage from one
 * residence to another.  Everything else follows: a recomputed storage has two residences and no
 * copy, an offloaded one has a residence in a lower tier and copies both ways.
 *
 * Invariants, which the checker proves:
 * - Every persistent storage has one backing residence, which lasts for the whole step: on the
 * device (the context then owns the address and offset is -1) or in a lower tier.
 * - Steps are cyclic.  A residence with last >= n_steps runs into the next step, up to step
 *   last - n_steps, because its copy out is still under way there.
 * - A copy is submitted after step `after`, the last step that it or an earlier copy of its queue
 *   must wait for.  A copy into a device residence is submitted right before the residence begins.
 *   Copies of a queue run in the order of the array, so `after` never falls.
 * - Only `after` and `before` are binding.  start and end are a forecast for one machine.
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
    int32_t after, before; /* submitted after step `after` (-1: at the start); step `before`, or
                              before - n_steps of the next one, is the first to wait for it */
    double start, end;     /* seconds from the start of the step, the body counted once; both 0
                              without a forecast */
};

/* Whether a copy leaves the device. */
static inline bool copy_is_out(const struct residence *r, const struct copy *c)
{
    return r[c->from].tier == TIER_DEVICE;
}

/* The lower tier of a copy. */
static inline int copy_tier(const struct residence *r, const struct copy *c)
{
    return r[copy_is_out(r, c) ? c->to : c->from].tier;
}

/* Sets the sentence about what is wrong with a plan in c->error and returns CKPT_EPLAN. */
#define violation(c, ...) error_set(CKPT_EPLAN, __VA_ARGS__)

#endif
