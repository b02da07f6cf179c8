/* SPDX-License-Identifier: Apache-2.0 */
/* What arguments that a file omits are: the defaults of PyTorch's schemas. */
#ifndef CKPT_IMPORT_DEFAULTS_H
#define CKPT_IMPORT_DEFAULTS_H

#include "import/program.h"

/* Returns false if the op has no such argument, or no default for it. */
bool default_of(const char *op, const char *name, struct pt2_arg *to);

#endif
