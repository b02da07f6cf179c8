/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of parameters, and lists of them in options. */
#ifndef EXAMPLES_PATTERNS_H
#define EXAMPLES_PATTERNS_H

#include "ckpt_optim.h"

enum { PATTERN_NAME = 512 };

/* Parameter i of a context. */
struct ckpt_param_info param_info_at(const ckpt *c, int i);

/* A pattern that the name alone matches. */
const char *param_pattern(const char *name, char to[PATTERN_NAME]);

/* Calls visit for each part of an option's list with commas, until it does not return 0. */
int option_parts(const char *option, const char *list, void *user,
                 int (*visit)(void *user, char *part));

#endif
