/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaling studies: plans of jobs with any number of ranks from the graph of one rank.  Shards and
 * collectives are resized; no ranks need to exist.
 */
#ifndef CKPT_PLAN_SCALING_H
#define CKPT_PLAN_SCALING_H

#include "plan/scale/pipeline.h"
#include "plan/scale/scaling_graph.h"

/* The step of a rank; times in seconds.  Of a pipeline bytes are those of the stage with the most,
 * compute, recompute and comm are means of the stages, and exposed is what one waits on average. */
struct scaling_step {
    bool fits;
    int64_t bytes; /* device bytes alive at the peak; addresses may need a little more */
    double seconds, compute, recompute, exposed, comm;
    struct stage_seconds stage; /* of a stage alone */
};

struct scaling_study;

/* g was recorded for several ranks that share parameters; it is copied.  Returns 0, CKPT_ENOMEM or
 * CKPT_EINVAL with the sentence. */
int scaling_study_open(struct graph *g, const struct machine *m, struct scaling_study **w);
/* The same of n stages of a pipeline, in their order. */
int scaling_study_open_stages(struct graph *const *g, int32_t n, const struct machine *m,
                              struct scaling_study **w);
void scaling_study_free(struct scaling_study *w);

/* Finds the fastest step within `device` bytes; step->fits is false if there is none.  Returns 0 or
 * CKPT_ENOMEM. */
int scaling_study_plan(struct scaling_study *w, const struct scaling_layout *l, int64_t device,
                       struct scaling_step *step);

#endif
