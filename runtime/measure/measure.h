/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rates of this computer, for a machine file.
 *
 * The measure room has all that times something for the planner: ops before the first plan
 * (warm.c), copies and host updates (links.c, link_rates.h), kernels as they run in training
 * (timing.h), and a whole computer (below).  It plans nothing and decides nothing.
 *
 * The exec room calls it at its places in a compilation and in a step; it sees programs and their
 * devices, and no context.
 */
#ifndef CKPT_MEASURE_H
#define CKPT_MEASURE_H

#include "core/base.h"

struct device;
struct machine;

/* Measures a device under the conditions of a step.  Returns 0 or a code. */
int measure_device(struct device *d, struct machine *m);

/* Measures a disk: writes and reads a temporary file in dir without the page cache; leaves 0 if
 * direct I/O is not supported, with the reason in note (CKPT_MESSAGE bytes).  Returns 0 or a code.
 */
int measure_disk(struct machine *m, const char *dir, char *note);

#endif
