/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step of a pipeline whose stages have plans of their own: each runs its passes in the order of
 * 1F1B (passes/unroll.c) as soon as what it needs has come.
 */
#ifndef CKPT_PLAN_PIPELINE_H
#define CKPT_PLAN_PIPELINE_H

#include "plan/plan.h"

/* Of a stage: the passes of a micro-step; the update of a step, with the collectives of pipelines
 * that nothing hides; transfers of a micro-step to the next stage and to the one before. */
struct stage_seconds {
    double forward, backward, update, send, send_back;
};

/* What a plan adds, such as recompute, is in the backward pass. */
struct stage_seconds stage_seconds(const struct graph *g, const struct plan *p);

/* Seconds of a step in which a stage does not stand still. */
static inline double stage_work(const struct stage_seconds *s, int micro)
{
    return micro * (s->forward + s->backward) + s->update;
}

/* Of a step of n stages; NAN: no memory. */
double pipeline_seconds(const struct stage_seconds *s, int n, int micro);

#endif
