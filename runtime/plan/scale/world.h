/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of many ranks from the graph of one: shares and collectives are cut to any number of ranks,
 * and every number is planned without any rank being there.
 */
#ifndef CKPT_PLAN_WORLD_H
#define CKPT_PLAN_WORLD_H

#include "plan/scale/world_graph.h"

/* A rank's step. */
struct world_step {
    bool fits;
    int64_t bytes; /* of the device, without what addresses take above it */
    double seconds, compute, recompute, exposed, comm;
};

struct world;

/* g was recorded for several ranks that share parameters; it is copied.  Returns 0, CKPT_ENOMEM or
 * CKPT_EINVAL with the sentence in error. */
int world_open(const struct graph *g, const struct machine *m, struct world **w,
               struct error *error);
void world_free(struct world *w);

/* The fastest step that is found within so many bytes; not fitting is no failure. */
int world_plan(struct world *w, const struct world_layout *l, int64_t device,
               struct world_step *step);

#endif
