/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaling studies: plans of jobs with any number of ranks from the graph of one rank.  Shards and
 * collectives are resized; no ranks need to exist.
 */
#ifndef CKPT_PLAN_WORLD_H
#define CKPT_PLAN_WORLD_H

#include "plan/scale/world_graph.h"

/* The step of a rank; times in seconds. */
struct world_step {
    bool fits;
    int64_t bytes; /* device bytes alive at the peak; addresses may need a little more */
    double seconds, compute, recompute, exposed, comm;
};

struct world;

/* g was recorded for several ranks that share parameters; it is copied.  Returns 0, CKPT_ENOMEM or
 * CKPT_EINVAL with the sentence. */
int world_open(const struct graph *g, const struct machine *m, struct world **w);
void world_free(struct world *w);

/* Finds the fastest step within `device` bytes; step->fits is false if there is none.  Returns 0 or
 * CKPT_ENOMEM. */
int world_plan(struct world *w, const struct world_layout *l, int64_t device,
               struct world_step *step);

#endif
