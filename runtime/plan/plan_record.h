/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: building the record of a plan, and its device bytes. */
#ifndef CKPT_PLAN_PLAN_RECORD_H
#define CKPT_PLAN_PLAN_RECORD_H

#include "plan/plan.h"

/* Reserves memory for more residences and copies; adds a residence to reserved memory and returns
 * its index. */
int plan_reserve(struct plan *p, int64_t residences, int64_t copies);
int32_t plan_add_residence(struct plan *p, struct residence r);
/* Sorts residences and copies as record.h says.  Returns 0 or CKPT_ENOMEM, like all below. */
int plan_sort(struct plan *p);
/* Adds the backing residence of each persistent storage that has none, in the tier that the graph
 * names or on the device, and sorts. */
int plan_add_backings(const struct graph *g, struct plan *p);

/* Whether the plan gives a residence an address on the device. */
bool plan_is_placed(const struct graph *g, const struct plan *p, const struct residence *r);
/* Sets alive[k] to the bytes of device residences at step k whose address the plan sets; there are
 * n_steps + 1 entries. */
void plan_count_alive(const struct graph *g, const struct plan *p, int64_t *alive);
/* Sets load and peak_step. */
int plan_measure(const struct graph *g, struct plan *p);
/* Sets the addresses of these residences, and transient; goal and most as in place_cycle.  common:
 * residences that wrap get the addresses of other programs if those do not overlap. */
int plan_set_offsets(const struct graph *g, struct plan *p, int64_t goal, int64_t most,
                     bool common);

/* Searches longer for addresses of a plan without copies, below its peak down to goal.  A million
 * of work takes 6 ms. */
int plan_tighten(const struct graph *g, struct plan *p, int64_t goal, int64_t work);
/* Takes the addresses of another plan if they need less than transient bytes.  Each residence on
 * the device must lie within one of that plan; otherwise nothing changes. */
int plan_share_offsets(const struct graph *g, struct plan *p, const struct plan *like);

#endif
