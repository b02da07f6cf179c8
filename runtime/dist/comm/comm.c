/* SPDX-License-Identifier: Apache-2.0 */
/* Common code of all communicators: checks of calls. */
#include "dist/comm/comm.h"

static int refuse(struct comm *c, const struct comm_call *call, const char *what)
{
    snprintf(c->reason, sizeof c->reason, "collective \"%s\": %s", call->name ? call->name : "",
             what);
    return CKPT_EINVAL;
}

int comm_run(struct comm *c, const struct comm_call *call, void *stream)
{
    bool sums = call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_REDUCE;
    if (!c)
        return 0;
    if (call->count < 0)
        return refuse(c, call, "a negative number of elements");
    if (sums && call->dtype != CKPT_F32 && call->dtype != CKPT_BF16)
        return refuse(c, call, "only fp32 and bf16 are added up");
    if (call->kind == COMM_BROADCAST && (call->root < 0 || call->root >= c->size))
        return refuse(c, call, "there is no such root");
    return c->ops->run(c, call, stream);
}

int comm_barrier(struct comm *c, const char *name)
{
    return comm_run(c, &(struct comm_call){.kind = COMM_BARRIER, .name = name}, NULL);
}

int comm_gather(struct comm *c, const void *mine, void *all, size_t bytes, const char *name)
{
    return comm_run(c,
                    &(struct comm_call){.kind = COMM_ALL_GATHER,
                                        .dtype = CKPT_I32,
                                        .count = (int64_t)(bytes / sizeof(int32_t)),
                                        .src = mine,
                                        .dst = all,
                                        .name = name},
                    NULL);
}

int comm_broadcast(struct comm *c, void *data, size_t bytes, const char *name)
{
    return comm_run(c,
                    &(struct comm_call){.kind = COMM_BROADCAST,
                                        .dtype = CKPT_I32,
                                        .count = (int64_t)(bytes / sizeof(int32_t)),
                                        .src = data,
                                        .dst = data,
                                        .name = name},
                    NULL);
}

void comm_close(struct comm *c)
{
    if (c)
        c->ops->close(c);
}

int comm_open_group(struct comm *c, int n, const int *ranks, struct comm **group)
{
    return c->ops->group(c, n, ranks, group);
}
