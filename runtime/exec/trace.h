/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step as a trace in the JSON that chrome://tracing and ui.perfetto.dev read: two processes,
 * planned and measured, each with a thread for each queue and counters of bytes.  Both begin at
 * the same time.  Each of several programs has its own two processes.
 */
#ifndef CKPT_TRACE_H
#define CKPT_TRACE_H

#include "memory/device/device.h"
#include "plan/plan.h"

/* An interval of time on one queue. */
struct trace_slice {
    enum queue queue;
    int32_t step, copy; /* index in the plan that ran; the other one is -1 */
    int32_t micro;      /* micro-step */
    int64_t bytes;      /* of a copy, or of a piece of one */
    const char *kind;   /* measured op: its kind as in the profile; else NULL */
    double start, end;  /* seconds, of any clock */
};

/* A program and one step of it. */
struct trace_program {
    const struct graph *graph;
    const struct plan *plan;
    const struct trace_slice *measured; /* in any order; n_measured may be 0: only the plan */
    int32_t n_measured;
    int32_t number; /* in the order of compiling, from 1 */
};

/* The bytes of the process in machine m are added to those of the plan.  Returns 0, CKPT_EIO or
 * CKPT_ENOMEM. */
int trace_write(const struct trace_program *programs, int32_t n, const struct machine *m,
                const char *path);

#endif
