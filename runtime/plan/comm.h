/* Inside the planner: what collectives take. */
#ifndef CKPT_PLAN_COMM_H
#define CKPT_PLAN_COMM_H

#include "plan/plan.h"

/*
 * The seconds of a collective over so many ranks whose whole, the shares of all ranks together, has
 * so many bytes.  Ranks fill one host after the other and send in rings through all of them; a sum
 * that all ranks get may take trees between hosts, where their latency is less.
 */
double collective_seconds(const struct links *l, enum graph_collective kind, double bytes,
                          int64_t ranks);

/* The bytes of the whole of a collective in a graph. */
int64_t collective_bytes(const struct graph *g, const struct graph_op *o);

#endif
