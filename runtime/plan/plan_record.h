/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: the record of a plan in the making, and what it takes of the device. */
#ifndef CKPT_PLAN_PLAN_RECORD_H
#define CKPT_PLAN_PLAN_RECORD_H

#include "plan/plan.h"

/* Makes room for so many more; adds a residence in that room and returns its index. */
int plan_reserve(struct plan *p, int64_t residences, int64_t copies);
int32_t plan_add_residence(struct plan *p, struct residence r);
/* Puts residences and copies in order.  Returns 0 or CKPT_ENOMEM, as all below. */
int plan_sort(struct plan *p);
/* Gives every persistent storage without a backing residence the one that it has in the graph, or
 * one on the device, and sorts. */
int plan_add_backings(const struct graph *g, struct plan *p);

int64_t residence_bytes(const struct graph *g, const struct plan *p, const struct residence *r);
/* Sets alive[k] to the bytes of residences at step k for which the plan has addresses of the
 * device; there are n_steps + 1 entries. */
void plan_count_alive(const struct graph *g, const struct plan *p, int64_t *alive);
/* Sets load and peak_step. */
int plan_measure(const struct graph *g, struct plan *p);
/* Sets these addresses, and transient; goal as in place_circle.  common: what goes on in the next
 * step is where other programs have it, as far as they agree. */
int plan_set_offsets(const struct graph *g, struct plan *p, int64_t goal, bool common);

#endif
