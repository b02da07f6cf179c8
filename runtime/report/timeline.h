/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a plan over the step, as a page that a browser opens without anything else. */
#ifndef CKPT_REPORT_TIMELINE_H
#define CKPT_REPORT_TIMELINE_H

#include "plan/plan.h"

/* What the process takes of the machine beside the plan is drawn below it.  A path that ends in
 * ".json" gets a trace (exec/trace.h) instead, one in ".pickle" a snapshot (memory_viz.h).  Returns
 * 0, CKPT_EIO or CKPT_ENOMEM. */
int timeline_write(const struct graph *g, const struct plan *p, const struct machine *machine,
                   const char *path, struct error *error);

/* timeline.html and timeline.js, line by line, ended by NULL: written by build-aux/embed. */
extern const char *const timeline_page[];
extern const char *const timeline_script[];

#endif
