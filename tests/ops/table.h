/* SPDX-License-Identifier: Apache-2.0 */
/* Every op of the library in the order of names; the last entry is NULL. */
#ifndef CKPT_TESTS_OPS_TABLE_H
#define CKPT_TESTS_OPS_TABLE_H

#include "ops.h"

static const struct ckpt_op_def *const ops_table[] = {
#define OP(name) &op_##name,
#include "ops.def"
    NULL};

#endif
