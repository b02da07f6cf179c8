/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step as a trace in the JSON that chrome://tracing and ui.perfetto.dev read: two processes, what
 * the plan says and what was measured, with a thread for each queue and counters of bytes.  Both
 * begin at the same time.  Of several programs each has its two.
 */
#ifndef CKPT_TRACE_H
#define CKPT_TRACE_H

#include "memory/device/device.h"
#include "plan/plan.h"

/* A stretch of time on one queue. */
struct trace_slice {
    enum queue queue;
    int32_t step, copy; /* of the plan that ran; the other one is -1 */
    int32_t micro;      /* micro-step */
    int64_t bytes;      /* of a copy, or of a piece of one */
    const char *kind;   /* of a measured op, as in the profile; else NULL */
    double start, end;  /* seconds, of any clock */
};

/* A program and one step of it. */
struct trace_program {
    const struct graph *graph;
    const struct plan *plan;
    const struct trace_slice *measured; /* in any order; none: there is but the plan */
    int32_t n_measured;
    int32_t number; /* in the order of their compile, from 1 on */
};

/* What the process takes of machine m beside the plans is counted.  Returns 0, CKPT_EIO or
 * CKPT_ENOMEM. */
int trace_write(const struct trace_program *programs, int32_t n, const struct machine *m,
                const char *path, struct error *error);

#endif
