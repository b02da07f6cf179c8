/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: what collectives take, and their queue. */
#ifndef CKPT_PLAN_COMM_H
#define CKPT_PLAN_COMM_H

#include "plan/search/search.h"

/*
 * The seconds of a collective over so many ranks whose whole, the shares of all ranks together, has
 * so many bytes.  Ranks fill one host after the other and send in rings through all of them; a sum
 * that all ranks get may take trees between hosts, where their latency is less.
 */
double collective_seconds(const struct links *l, enum graph_collective kind, double bytes,
                          int64_t ranks);

/* Seconds that the same share takes in the ranks of several groups, in other hosts, to be summed.
 */
double replica_seconds(const struct links *l, double bytes, int64_t groups);

/* The bytes of the whole of a collective in a graph. */
int64_t collective_bytes(const struct graph *g, const struct graph_op *o);

bool graph_has_collectives(const struct graph *g);

/* The ranks of the job that the graph is a step of. */
int64_t graph_ranks(const struct graph *g);

/* Sets what the search takes for the seconds of collectives: contention_seconds, and the part of
 * comm_seconds that is not expected to hide behind the ops of the body. */
void graph_price_collectives(struct graph *g);

/* How long an op keeps those behind it from running. */
static inline double compute_seconds(const struct graph_op *o)
{
    return o->collective ? o->contention_seconds : o->seconds;
}

/*
 * The queue of a plan's collectives, one at a time, in the order of its steps.  One starts when its
 * input is there and its output has room, which is when the first step of that residence may start.
 * A step waits for those whose output it reads, and for those of whose operands it may take the
 * bytes: it stands behind the last step of such a residence.
 */
struct comm_queue;

/* *q is NULL for a graph without collectives; all calls below take that. */
int comm_queue_new(const struct graph *g, const struct plan *p, struct comm_queue **q);
void comm_queue_free(struct comm_queue *q);
/* Begins a step of the program. */
void comm_queue_start(struct comm_queue *q);
/* When step k can start that could start now if it were not for collectives. */
double comm_queue_wait(const struct comm_queue *q, int32_t k, double now);
/* Step k has ended; if it is a collective, that is on its way now, but not before least. */
void comm_queue_pass(struct comm_queue *q, int32_t k, double now, double least);
/* The bytes of storage s are given away: from now on steps wait for the collectives so far that use
 * them.  For what leaves the device while the step is played; the plan knows of all other. */
void comm_queue_leave(struct comm_queue *q, int32_t s);
/* When the last collective so far ends that uses storage s, or 0. */
double comm_queue_busy(const struct comm_queue *q, int32_t s);
/* When the last collective so far ends. */
double comm_queue_end(const struct comm_queue *q);
/* When the collective of step k ends, or 0. */
double comm_queue_end_of(const struct comm_queue *q, int32_t k);
/* Seconds that the collectives of the plan take on their queue, in a whole step. */
double comm_queue_seconds(const struct comm_queue *q);

/*
 * Makes room for the outputs of gathers so much earlier than they are needed, in multiples of the
 * time that they take, and keeps the inputs of collectives until these are done; with 0 it leaves
 * the plan as it is.  A gather that runs again moves before collectives that it would wait for.
 * Then sets the plan's seconds, without copies.  Residences must not have addresses yet.
 */
int comm_overlap(const struct graph *g, double lead, struct plan *p);

/* Options with more and less overlap, and their time by the clock, instead of those that are there.
 * For a graph without collectives nothing changes. */
int frontier_overlap(struct frontier *pf);
/*
 * Of a frontier that knows only what keeps everything: sets the seconds of that, with the overlap
 * that suits it best.  frontier_overlap takes nothing in that is faster.  So a step that fits
 * without recompute is known to be the fastest before anything is searched, under this budget and
 * every larger one.
 */
int frontier_set_floor(struct frontier *pf);

#endif
