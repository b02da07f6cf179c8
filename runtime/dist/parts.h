/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a state of training that ranks write at once, without messages: a rank writes what
 * only it has, and all divide what every one has.  A bucket is cut anywhere (layout.h), so a piece
 * of a tensor is a run of its elements, in the order of memory.
 */
#ifndef CKPT_DIST_PARTS_H
#define CKPT_DIST_PARTS_H

#include "dist/values.h"

struct part_item {
    const struct param *p;
    enum ckpt_slot slot;
    struct values_run run;
    int64_t bytes; /* of the run in a file */
};

/* Whether the run is a piece; dtype and shape of it in a file.  A piece of codes of 8 bits is bf16,
 * which holds their values exactly. */
bool part_is_cut(const struct part_item *item);
struct ckpt_desc part_desc(const struct part_item *item);

/* Finds the runs of n items and keeps those that this rank writes; returns their number.  planned:
 * see values_find_run. */
int part_divide(const struct ranks *job, struct part_item *items, int n, const bool *planned);

/* The bytes of this rank's part, each item aligned to CKPT_ALIGN; or CKPT_ENOMEM. */
int64_t part_bytes(const struct ranks *job, const bool *planned);

#endif
