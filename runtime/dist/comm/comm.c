/* SPDX-License-Identifier: Apache-2.0 */
/* Common code of all communicators: checks of calls, and the single rank. */
#include <stdlib.h>
#include <string.h>
#include "dist/comm/comm.h"

/* ---- one rank alone -------------------------------------------------------------------------- */

/* Copies only if src and dst differ. */
static int alone_run(struct comm *c, const struct comm_call *call, void *stream)
{
    int64_t bytes = call->count * ckpt_dtype_size(call->dtype);
    (void)stream;
    c->n_calls++;
    if (call->kind != COMM_BARRIER && call->kind != COMM_BROADCAST && bytes &&
        call->dst != call->src)
        memmove(call->dst, call->src, (size_t)bytes);
    return 0;
}

static int alone_check(struct comm *c)
{
    (void)c;
    return 0;
}

static void alone_give_up(struct comm *c, const char *sentence)
{
    snprintf(c->reason, sizeof c->reason, "%s", sentence);
}

static void alone_close(struct comm *c)
{
    free(c);
}

int comm_open_self(struct comm **c)
{
    static const struct comm_ops ops = {
        .run = alone_run, .check = alone_check, .give_up = alone_give_up, .close = alone_close};
    *c = calloc(1, sizeof **c);
    if (!*c)
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    **c = (struct comm){.ops = &ops, .name = "self", .size = 1, .how = "one rank"};
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

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

void comm_close(struct comm *c)
{
    if (c)
        c->ops->close(c);
}

int comm_open_group(struct comm *c, int n, const int *ranks, struct comm **group)
{
    return c->ops->group(c, n, ranks, group);
}
