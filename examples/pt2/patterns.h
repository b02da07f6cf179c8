/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of parameters: what groups and adapters have in common. */
#ifndef PT2_PATTERNS_H
#define PT2_PATTERNS_H

#include "ckpt_optim.h"
#include "run.h"

enum { PT2_NAME = 512 };

struct ckpt_param_info pt2_param_at(const struct pt2_run *r, int i);

/* A pattern that the name alone matches. */
const char *pt2_exactly(const char *name, char to[PT2_NAME]);

/* Calls visit for each part of a list with commas, until it does not return 0. */
int pt2_each_part(const char *option, const char *list, void *user,
                  int (*visit)(void *user, char *part));

#endif
