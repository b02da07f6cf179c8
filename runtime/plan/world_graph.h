/* Inside the planner: a graph of several ranks that can be resized. */
#ifndef CKPT_PLAN_WORLD_GRAPH_H
#define CKPT_PLAN_WORLD_GRAPH_H

#include "plan/world.h"

struct world_graph;

/* A copy of g; whole: without gathers, every rank with everything.  Returns 0, CKPT_ENOMEM, or
 * CKPT_EINVAL with the sentence in message. */
int world_graph_new(const struct graph *g, bool whole, struct world_graph **w,
                    char message[CKPT_MESSAGE]);
void world_graph_free(struct world_graph *w);
struct graph *world_graph(const struct world_graph *w);
/* Sizes of shares, ranks of collectives, and the seconds of all ops on machine m. */
void world_graph_resize(struct world_graph *w, const struct world_layout *l,
                        const struct machine *m);

#endif
