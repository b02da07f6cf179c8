/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that compute numbers: sizes of tensors, and what the model does with them. */
#ifndef CKPT_IMPORT_NUMBERS_H
#define CKPT_IMPORT_NUMBERS_H

#include "import/node_call.h"

struct number {
    const char *name; /* "aten.sym_size.int" */
    struct item (*value)(struct call *c);
};

const struct number *number_find(const char *name);

#endif
