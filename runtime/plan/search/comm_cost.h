/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: the time of collectives, and their queue. */
#ifndef CKPT_PLAN_COMM_H
#define CKPT_PLAN_COMM_H

#include "plan/search/search.h"

/*
 * Seconds of a collective over these ranks; bytes: the shares of all ranks together, of an
 * all-to-all what one rank has.  Ranks fill
 * one host after the other and send in rings through all hosts.  An all-reduce may use trees
 * between hosts if their latency is lower.
 */
double collective_seconds(const struct links *l, enum graph_collective kind, double bytes,
                          int64_t ranks);

/* Seconds to sum a share over groups of ranks in different hosts. */
double replica_seconds(const struct links *l, double bytes, int64_t groups);

/* Bytes of a collective in a graph: the shares of all ranks together. */
int64_t collective_bytes(const struct graph *g, const struct graph_op *o);

bool graph_has_collectives(const struct graph *g);

/* The number of ranks of the job. */
int64_t graph_ranks(const struct graph *g);

/* Sets the seconds that the search assumes for collectives: contention_seconds, plus the part of
 * comm_seconds that is not expected to overlap with the ops of the body. */
void graph_price_collectives(struct graph *g);

/* Seconds for which an op occupies the compute stream. */
static inline double compute_seconds(const struct graph_op *o)
{
    return o->collective ? o->contention_seconds : o->seconds;
}

/*
 * The queue of a plan's collectives, which run one at a time in the order of its steps.  A
 * collective starts when its input is computed and the residence of its output has begun.  A step
 * waits for the collectives whose output it reads, and for those with an operand whose residence
 * has ended before the step, since it may reuse those bytes.
 */
struct comm_queue;

/* *q is NULL for a graph without collectives; all calls below accept NULL. */
int comm_queue_new(const struct graph *g, const struct plan *p, struct comm_queue **q);
void comm_queue_free(struct comm_queue *q);
/* Begins a step of the program. */
void comm_queue_start(struct comm_queue *q);
/* The time at which step k can start, at now or later, once its collectives are done. */
double comm_queue_wait(const struct comm_queue *q, int32_t k, double now);
/* Step k ends now; if it is a collective, it starts now, or at least if that is later. */
void comm_queue_pass(struct comm_queue *q, int32_t k, double now, double least);
/* Storage s is freed by an offload: later steps wait for the collectives so far that use it.  The
 * plan's residences cover all other cases. */
void comm_queue_leave(struct comm_queue *q, int32_t s);
/* The end of the last collective so far that uses storage s, or 0. */
double comm_queue_busy(const struct comm_queue *q, int32_t s);
/* Compute waits until all collectives are done; this happens `times` times in a whole step. */
void comm_queue_finish(const struct comm_queue *q, int32_t times, double *now, double *waits);
/* The end of the collective of step k, or 0. */
double comm_queue_end_of(const struct comm_queue *q, int32_t k);
/* Seconds of all collectives of a whole step. */
double comm_queue_seconds(const struct comm_queue *q);

/*
 * Starts the residences of gather outputs earlier than needed, by lead times the duration of the
 * gather, and keeps the inputs of collectives until these are done.  A gather that is rerun moves
 * before collectives that it would wait for.  With lead 0 the plan is unchanged.  Then sets the
 * plan's seconds, without copies.  Residences must not have addresses yet.
 */
int comm_overlap(const struct graph *g, double lead, struct plan *p);
/* The leads that are tried. */
enum { COMM_LEADS = 4 };
extern const double comm_leads[COMM_LEADS];

/* Replaces every option by options with more and less overlap, timed by the clock.  A graph without
 * collectives is unchanged. */
int frontier_overlap(struct frontier *f);
/*
 * Sets the floor of a frontier whose only option keeps everything: its seconds with the best
 * overlap. frontier_overlap rejects faster options.  So a step that fits without recompute is known
 * to be the fastest without a search, under this budget and all larger ones.
 */
int frontier_set_floor(struct frontier *f);

#endif
