/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of this process, of both versions, by which containers and batch systems limit
 * memory and processors.  root is a prefix of /proc and /sys; "" is this machine. */
#ifndef CKPT_CONTROL_GROUPS_H
#define CKPT_CONTROL_GROUPS_H

#include "core/base.h"

enum { TEXT_BELOW = 8192 };

/* Reads the beginning of a file below root as text; false if it cannot be read. */
bool text_below(const char *root, const char *path, char text[TEXT_BELOW]);

/* The number after a word times unit, or `otherwise` if there is none. */
int64_t number_after(const char *text, const char *word, int64_t unit, int64_t otherwise);

/* group: its directory below root; version: of its files, 1 or 2. */
typedef void control_group_fn(void *user, const char *root, const char *group, int version);

/* Calls fn for the group of this process that limits the controller ("memory" or "cpu"), and for
 * all its ancestors. */
void control_groups_each(const char *root, const char *controller, control_group_fn *fn,
                         void *user);

#endif
