/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated device for timing: see clock.h. */
#include <stdlib.h>
#include <string.h>
#include "exec/clock.h"
#include "plan/graph/queues.h"
#include "plan/offload/transfer.h"

/* A command submitted to a queue. */
struct call {
    enum { CALL_WORK, CALL_RECORD, CALL_WAIT } kind;
    enum queue queue;
    int32_t event;
    double seconds;
};

struct device_step {
    struct {
        struct call *data;
        int64_t capacity;
    } calls;
    int32_t n;
};

static struct clock *clock_of(struct device *d)
{
    return (struct clock *)(void *)d;
}

/* ---- the queues ------------------------------------------------------------------------------ */

static double *event_at(struct clock *k, int32_t event)
{
    while (k->events.capacity <= event) {
        int64_t from = k->events.capacity;
        if (array_reserve((void **)&k->events.data, &k->events.capacity, event + 1,
                          sizeof *k->events.data))
            abort();
        for (int64_t i = from; i < k->events.capacity; i++)
            k->events.data[i] = 0;
    }
    return &k->events.data[event];
}

static enum clock_wait wait_of(const struct clock *k, int32_t event)
{
    const struct lowered *l = &k->at->lowered;
    if (event < 2 * QUEUE_COUNT)
        return CLOCK_JOINT;
    return event >= l->first_event && event < l->end_event ? CLOCK_OWN : CLOCK_OTHER;
}

static void run(struct clock *k, const struct call *o)
{
    double *now = &k->now[o->queue];
    if (o->kind == CALL_WORK)
        *now += o->seconds;
    if (o->kind == CALL_RECORD)
        *event_at(k, o->event) = *now;
    if (o->kind != CALL_WAIT || *event_at(k, o->event) <= *now)
        return;
    if (o->queue == QUEUE_COMPUTE)
        k->waited[wait_of(k, o->event)] += *event_at(k, o->event) - *now;
    *now = *event_at(k, o->event);
}

static void take(struct device *d, struct call o)
{
    struct clock *k = clock_of(d);
    struct device_step *s = k->recording;
    if (!s) {
        run(k, &o);
        return;
    }
    if (ARRAY_RESERVE(&s->calls, s->n))
        abort();
    s->calls.data[s->n++] = o;
}

/* ---- device calls of the executor ------------------------------------------------------------ */

static const struct graph_op *op_of(const struct ckpt_program *p, int32_t op)
{
    for (int32_t i = 0; i < p->graph->n_ops; i++)
        if (p->graph->ops[i].tape_op == op)
            return &p->graph->ops[i];
    abort();
}

static void compute(struct device *d, enum queue q, ckpt_kernel fn,
                    const struct ckpt_kernel_args *args, double *seconds)
{
    const struct clock *k = clock_of(d);
    struct call o = {.kind = CALL_WORK, .queue = q};
    const struct graph_op *g = op_of(k->at, args->op);
    (void)fn;
    (void)seconds;
    o.seconds = q == QUEUE_HOST   ? hosted_seconds(k->at->graph, &k->ps->machine, g)
                : q == QUEUE_COMM ? g->comm_seconds
                                  : g->seconds;
    take(d, o);
}

static void copy(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes)
{
    const struct machine *m = &clock_of(d)->ps->machine;
    bool out = q == QUEUE_COPY_OUT || q == QUEUE_FILE_OUT;
    (void)dst;
    (void)src;
    take(d, (struct call){.kind = CALL_WORK,
                          .queue = q,
                          .seconds =
                              queue_seconds(m, bytes, out ? m->d2h_both : m->h2d_both, 0, false)});
}

static void fill(struct device *d, enum queue q, void *dst, int byte, int64_t bytes)
{
    (void)d;
    (void)q;
    (void)dst;
    (void)byte;
    (void)bytes;
}

static int io(struct device *d, enum queue q, const struct device_io *i)
{
    const struct machine *m = &clock_of(d)->ps->machine;
    double rate = q == QUEUE_READ ? m->nvme_read : m->nvme_write;
    if (i)
        take(d, (struct call){.kind = CALL_WORK, .queue = q, .seconds = (double)i->bytes / rate});
    return 0;
}

static void record(struct device *d, enum queue q, int32_t event)
{
    take(d, (struct call){.kind = CALL_RECORD, .queue = q, .event = event});
}

static void wait_for(struct device *d, enum queue q, int32_t event)
{
    take(d, (struct call){.kind = CALL_WAIT, .queue = q, .event = event});
}

static int sync(struct device *d)
{
    (void)d;
    return 0;
}

static void mark(struct device *d, int n, enum queue q)
{
    (void)d;
    (void)n;
    (void)q;
}

static void begin(struct device *d, bool part)
{
    (void)part;
    clock_of(d)->recording = calloc(1, sizeof *clock_of(d)->recording);
    if (!clock_of(d)->recording)
        abort();
}

static int end(struct device *d, struct device_step **step)
{
    *step = clock_of(d)->recording;
    clock_of(d)->recording = NULL;
    return 0;
}

static void replay(struct device *d, struct device_step *s)
{
    for (int32_t i = 0; i < s->n; i++)
        run(clock_of(d), &s->calls.data[i]);
}

static void forget(struct device *d, struct device_step *s)
{
    (void)d;
    free(s->calls.data);
    free(s);
}

static const struct device_ops clock_ops = {.name = "clock",
                                            .compute = compute,
                                            .copy = copy,
                                            .fill = fill,
                                            .record = record,
                                            .wait = wait_for,
                                            .signal = record,
                                            .io = io,
                                            .sync = sync,
                                            .mark = mark,
                                            .begin = begin,
                                            .end = end,
                                            .replay = replay,
                                            .forget = forget};

/* ---- interface for tests --------------------------------------------------------------------- */

static char *nowhere(struct tier *t)
{
    (void)t;
    return NULL;
}

/* Completes a plan-only compile, which leaves out instructions and recording. */
static int make_ready(struct programs *ps)
{
    static const struct tier_ops ops = {.name = "none", .base = nowhere};
    static struct tier none = {.ops = &ops};
    int rc = 0;
    ps->memory->tiers[TIER_HOST] = &none;
    ps->memory->tiers[TIER_NVME] = ps->memory->directories.bytes ? &none : NULL;
    for (struct ckpt_program *p = ps->first; p && !rc; p = p->next) {
        ps->memory->host_steps |= plan_uses_host(p->plan);
        rc = program_make_io_buffers(p);
        if (!rc)
            rc = program_lower(p);
    }
    return rc;
}

int clock_begin(struct clock *k, struct programs *ps)
{
    int rc = make_ready(ps);
    *k = (struct clock){.ps = ps, .real = ps->memory->device, .d.ops = &clock_ops};
    ps->memory->device = &k->d;
    ps->last_submitted = NULL;
    for (struct ckpt_program *p = ps->first; p && !rc; p = p->next) {
        k->at = p;
        rc = program_record(p);
    }
    return rc;
}

void clock_end(struct clock *k)
{
    for (struct ckpt_program *p = k->ps->first; p; p = p->next)
        program_forget(p);
    k->ps->memory->device = k->real;
    k->ps->memory->tiers[TIER_HOST] = k->ps->memory->tiers[TIER_NVME] = NULL;
    k->ps->last_submitted = NULL;
    free(k->events.data);
}

double clock_step(struct clock *k, struct ckpt_program *p)
{
    k->at = p;
    program_submit(p, (int)(k->ps->submitted % DEVICE_IN_FLIGHT));
    return k->now[QUEUE_COMPUTE];
}
