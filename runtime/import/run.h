/* SPDX-License-Identifier: Apache-2.0 */
/* Records a graph node by node: the results of its ops become variables. */
#ifndef CKPT_IMPORT_RUN_H
#define CKPT_IMPORT_RUN_H

#include "import/node_call.h"

/* Records the nodes of a graph whose inputs are set in the items of the frame. */
void run_graph(struct recording *r, struct frame *f);
/* A frame with all items unset, or false and a failure. */
bool frame_make(struct recording *r, const struct pt2_graph *graph, struct frame *f);

/* The op of a target, or NULL; and whether it is that op in place. */
const struct op *run_find(const char *target, bool *in_place);
/* The argument that a node in place changes. */
const char *run_changed(const struct pt2_node *n);
/* Whether nodes with this target can be recorded. */
bool run_knows(const char *target);

#endif
