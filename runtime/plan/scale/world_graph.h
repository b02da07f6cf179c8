/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: a graph of several ranks that can be resized. */
#ifndef CKPT_PLAN_WORLD_GRAPH_H
#define CKPT_PLAN_WORLD_GRAPH_H

#include "plan/plan.h"

/* How parameters, gradients and state lie across ranks. */
struct world_layout {
    int32_t ranks; /* all of them */
    int32_t group; /* so many share one copy, which others have too; a divisor of ranks */
    int zero;      /* 0: every rank has everything; 1: values, and shares of state; 2: shares,
                      gathered once a step; 3: gathered when needed */
};

struct world_graph;

/* What is kept of the gathers of a recorded step: none, every rank has everything; one behind each
 * update, of values that all have; all, before values are read. */
enum world_kind { WORLD_WHOLE, WORLD_STATE, WORLD_SHARED, WORLD_KINDS };

/* A copy of g, of a kind.  Returns 0, CKPT_ENOMEM, or CKPT_EINVAL with the sentence in error. */
int world_graph_new(const struct graph *g, enum world_kind kind, struct world_graph **w,
                    struct error *error);
void world_graph_free(struct world_graph *w);
struct graph *world_graph(const struct world_graph *w);
/* Sizes of shares, ranks of collectives, and the seconds of all ops on machine m. */
void world_graph_resize(struct world_graph *w, const struct world_layout *l,
                        const struct machine *m);

#endif
