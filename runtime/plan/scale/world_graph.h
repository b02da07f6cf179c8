/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: a graph of several ranks that can be resized. */
#ifndef CKPT_PLAN_WORLD_GRAPH_H
#define CKPT_PLAN_WORLD_GRAPH_H

#include "plan/plan.h"

/* How parameters, gradients and state are sharded across ranks. */
struct world_layout {
    int32_t ranks; /* of the job */
    int32_t group; /* size of a shard group, a divisor of ranks; groups are replicas */
    int zero;      /* ZeRO stage: 0: no shards; 1: shards of state; 2: shards of values, too,
                      gathered once a step; 3: gathered when needed */
};

struct world_graph;

/* Which gathers of a recorded step remain: none (no shards); one after each update (shards of
 * state); all, before values are read (shards of values). */
enum world_kind { WORLD_WHOLE, WORLD_STATE, WORLD_SHARED, WORLD_KINDS };

/* A copy of g, of a kind.  Returns 0, CKPT_ENOMEM, or CKPT_EINVAL with the sentence. */
int world_graph_new(const struct graph *g, enum world_kind kind, struct world_graph **w);
void world_graph_free(struct world_graph *w);
struct graph *world_graph(const struct world_graph *w);
/* Sets the sizes of shards, the ranks of collectives and the seconds of all ops on machine m. */
void world_graph_resize(struct world_graph *w, const struct world_layout *l,
                        const struct machine *m);

#endif
