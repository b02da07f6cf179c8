/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of a device by way of the host: see through_host.h. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "dist/through_host.h"

struct through;

/* A call that was queued, perhaps in a recorded step, which runs it again and again: it stays until
 * the end.  An equal one is the same. */
struct visit {
    struct through *t;
    struct comm_call device, host; /* with the addresses there */
    const int64_t *steps_before;
    char name[COMM_NAME];
    struct visit *next;
};

/* Memory of the host; calls of a stream run one after the other and share it. */
struct bounce {
    char *at;
    int64_t bytes;
    struct bounce *next; /* smaller ones, which recorded steps may use */
};

struct through {
    struct comm comm;
    struct comm *hosts;
    struct through *whole; /* of a group: that of all ranks; else itself */
    struct device *d;
    struct visit *visits;
    struct bounce *bounce; /* of whole */
    atomic_bool failed;    /* of whole: a call did, in a thread of the device */
};

static struct through *through(struct comm *c)
{
    return (struct through *)c;
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* The thread of the device: no other one uses the hosts' communicator meanwhile. */
static void run_on_host(void *user)
{
    struct visit *v = user;
    struct through *whole = v->t->whole;
    if (atomic_load(&whole->failed))
        return;
    whole->hosts->step = v->steps_before ? *v->steps_before + 1 : whole->comm.step;
    if (!comm_run(v->t->hosts, &v->host, NULL))
        return;
    snprintf(whole->comm.reason, sizeof whole->comm.reason, "%s", whole->hosts->reason);
    atomic_store(&whole->failed, true);
}

/* Bytes that a rank gives and gets. */
static int64_t bytes_in(const struct comm *c, const struct comm_call *call)
{
    const bool parts = call->kind == COMM_REDUCE_SCATTER || call->kind == COMM_ALL_TO_ALL;
    const bool gives = call->kind != COMM_BROADCAST || call->root == c->rank;
    return gives ? call->count * (parts ? c->size : 1) * ckpt_dtype_size(call->dtype) : 0;
}

static int64_t bytes_out(const struct comm *c, const struct comm_call *call)
{
    const bool parts = call->kind == COMM_ALL_GATHER || call->kind == COMM_ALL_TO_ALL;
    const bool gets = call->kind != COMM_BROADCAST || call->root != c->rank;
    return gets ? call->count * (parts ? c->size : 1) * ckpt_dtype_size(call->dtype) : 0;
}

static bool is_same(const struct visit *v, const struct comm_call *call, const char *host)
{
    const struct comm_call *d = &v->device;
    return d->kind == call->kind && d->dtype == call->dtype && d->root == call->root &&
           d->count == call->count && d->src == call->src && d->dst == call->dst &&
           v->host.src == host && v->steps_before == v->t->whole->comm.steps_before &&
           !strncmp(v->name, call->name ? call->name : "", COMM_NAME - 1);
}

static struct visit *visit_of(struct through *t, const struct comm_call *call, char *host)
{
    struct visit *v = t->visits;
    while (v && !is_same(v, call, host))
        v = v->next;
    if (v)
        return v;
    v = calloc(1, sizeof *v);
    if (!v)
        return NULL;
    *v = (struct visit){.t = t,
                        .device = *call,
                        .host = *call,
                        .steps_before = t->whole->comm.steps_before,
                        .next = t->visits};
    snprintf(v->name, sizeof v->name, "%s", call->name ? call->name : "");
    v->host.name = v->name;
    v->host.src = host;
    v->host.dst = host + round_up(bytes_in(&t->comm, call), CKPT_ALIGN);
    t->visits = v;
    return v;
}

static int no_memory(void)
{
    return error_set(CKPT_ENOMEM, "no memory of the host for what ranks send each other");
}

int comm_reserve_through_host(struct comm *c, int64_t bytes)
{
    struct through *t = through(c)->whole;
    bytes = round_up(bytes, CKPT_ALIGN) + CKPT_ALIGN;
    if (t->bounce && t->bounce->bytes >= bytes)
        return 0;
    struct bounce *b = calloc(1, sizeof *b);
    if (b)
        *b = (struct bounce){t->d->ops->host_alloc(t->d, bytes), bytes, t->bounce};
    if (!b || !b->at) {
        free(b);
        return no_memory();
    }
    t->bounce = b;
    return 0;
}

static int run(struct comm *c, const struct comm_call *call, void *stream)
{
    struct through *t = through(c);
    const int64_t in = bytes_in(c, call), out = bytes_out(c, call);
    if (atomic_load(&t->whole->failed))
        return CKPT_ECOMM;
    c->n_calls++;
    if (call->kind == COMM_BARRIER)
        return comm_run(t->hosts, call, NULL);
    if (comm_reserve_through_host(c, round_up(in, CKPT_ALIGN) + out))
        return CKPT_ENOMEM;
    struct visit *v = visit_of(t, call, t->whole->bounce->at);
    if (!v)
        return no_memory();
    t->d->ops->visit_host(t->d, stream,
                          &(struct device_visit){.src = call->src,
                                                 .host_src = (char *)t->whole->bounce->at,
                                                 .src_bytes = in,
                                                 .call = run_on_host,
                                                 .user = v,
                                                 .host_dst = v->host.dst,
                                                 .dst = call->dst,
                                                 .dst_bytes = out});
    return 0;
}

/* A thread of the device may be in a call, which notices what others send. */
static int check(struct comm *c)
{
    struct through *t = through(c);
    if (!atomic_load(&t->whole->failed))
        return 0;
    if (t != t->whole)
        snprintf(c->reason, sizeof c->reason, "%s", t->whole->comm.reason);
    return CKPT_ECOMM;
}

static void give_up(struct comm *c, const char *sentence)
{
    struct through *t = through(c);
    t->hosts->ops->give_up(t->hosts, sentence);
}

static void close_through(struct comm *c)
{
    struct through *t = through(c);
    for (struct visit *v = t->visits, *next; v; v = next) {
        next = v->next;
        free(v);
    }
    for (struct bounce *b = t->bounce, *next; b; b = next) {
        next = b->next;
        t->d->ops->host_free(t->d, b->at);
        free(b);
    }
    comm_close(t->hosts);
    free(t);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_group(struct comm *c, int n, const int *ranks, struct comm **group);

static const struct comm_ops ops = {.takes_stream = true,
                                    .run = run,
                                    .check = check,
                                    .give_up = give_up,
                                    .group = open_group,
                                    .close = close_through};

static struct through *make(struct comm *hosts, struct device *d)
{
    struct through *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->whole = t;
    t->hosts = t->comm.hosts = hosts;
    t->d = d;
    t->comm.ops = &ops;
    t->comm.name = hosts->name;
    t->comm.rank = hosts->rank;
    t->comm.size = hosts->size;
    t->comm.deadline = hosts->deadline;
    snprintf(t->comm.how, sizeof t->comm.how, "%.100s, through the host", hosts->how);
    return t;
}

static int open_group(struct comm *c, int n, const int *ranks, struct comm **group)
{
    struct through *t = through(c);
    struct comm *hosts;
    int rc = comm_open_group(t->hosts, n, ranks, &hosts);
    if (rc)
        return rc;
    struct through *g = make(hosts, t->d);
    if (!g) {
        comm_close(hosts);
        return no_memory();
    }
    g->whole = t->whole;
    *group = &g->comm;
    return 0;
}

int comm_open_through_host(struct comm **c, struct comm *hosts, struct device *d)
{
    struct through *t = make(hosts, d);
    if (!t)
        return no_memory();
    *c = &t->comm;
    return 0;
}
