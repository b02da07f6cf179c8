/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: a graph of several ranks that can be resized. */
#ifndef CKPT_PLAN_SCALING_GRAPH_H
#define CKPT_PLAN_SCALING_GRAPH_H

#include "plan/plan.h"

/* How parameters, gradients and state are sharded across ranks. */
struct scaling_layout {
    int32_t ranks; /* of the job */
    int32_t group; /* size of a shard group, a divisor of ranks; groups are replicas */
    int zero;      /* ZeRO stage: 0: no shards; 1: shards of state; 2: shards of values, too,
                      gathered once a step; 3: gathered when needed */
};

struct scaling_graph;

/* Which gathers of a recorded step remain: none (no shards); one after each update (shards of
 * state); all, before values are read (shards of values). */
enum scaling_kind { SCALING_WHOLE, SCALING_STATE, SCALING_SHARED, SCALING_KINDS };

/* A copy of g, of a kind.  Returns 0, CKPT_ENOMEM, or CKPT_EINVAL with the sentence. */
int scaling_graph_new(const struct graph *g, enum scaling_kind kind, struct scaling_graph **w);
/* The ranks that split a sequence together, whatever the number of ranks; 1: none do. */
int32_t scaling_sequence(const struct graph *g);
/* The same of ranks that have parts of layers. */
int32_t scaling_tensor(const struct graph *g);
/* Whether g says how so many ranks share parts of layers, or pipelines parameters; if not, leaves
 * the sentence: a graph of one group or pipeline is for that one alone. */
bool scaling_has_groups(const struct graph *g, int32_t ranks);
void scaling_graph_free(struct scaling_graph *w);
struct graph *scaling_graph(const struct scaling_graph *w);
/* Sets the sizes of shards, the ranks of collectives and the seconds of all ops on machine m. */
void scaling_graph_resize(struct scaling_graph *w, const struct scaling_layout *l,
                          const struct machine *m);

#endif
