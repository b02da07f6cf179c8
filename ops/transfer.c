/* SPDX-License-Identifier: Apache-2.0 */
/* feed and fetch: copies between host and device, which the executor runs on its copy queues. */
#include "ops.h"

static int no_shape(struct ckpt_call *call)
{
    return ckpt_call_fail(call, "only the tape records this op");
}

const struct ckpt_op_def op_feed = {
    .size = sizeof(struct ckpt_op_def), .name = "feed", .shape = no_shape};

const struct ckpt_op_def op_fetch = {
    .size = sizeof(struct ckpt_op_def), .name = "fetch", .flags = CKPT_OP_ONCE, .shape = no_shape};
