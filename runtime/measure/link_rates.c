/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates between host and device: see link_rates.h.  Each is the best of a few rounds, because other
 * programs can only make a round slower.
 */
#include <math.h>
#include <string.h>
#include "core/thread_team.h"
#include "memory/device/device.h"
#include "measure/link_rates.h"
#include "memory/memory.h"
#include "optim/host_update.h"
#include "optim/optimizer.h"
#include "optim/update_math.h"
#include "plan/graph/machine.h"

enum {
    ROUNDS = 5,
    CONCURRENT_COPIES = 8 /* copies each way during an update; they take longer than the update */
};

struct bench {
    struct device *device;
    struct link_space space;
    int processes;
};

/* The first round touches the memory for the first time and does not count. */
static double best(const struct bench *b, double (*round)(const struct bench *b))
{
    double fastest = INFINITY;

    round(b);
    for (int i = 0; i < ROUNDS; i++)
        fastest = fmin(fastest, round(b));
    return fastest;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static double round_copies(const struct bench *b, bool out, bool in)
{
    const struct link_space *s = &b->space;
    const struct device_ops *ops = b->device->ops;
    double before = clock_seconds();

    if (out)
        ops->copy(b->device, QUEUE_COPY_OUT, s->host, s->arena, s->bytes);
    if (in)
        ops->copy(b->device, QUEUE_COPY_IN, s->arena + s->bytes, s->host + s->bytes, s->bytes);
    return ops->sync(b->device) ? INFINITY : clock_seconds() - before;
}

static double round_out(const struct bench *b)
{
    return round_copies(b, true, false);
}

static double round_in(const struct bench *b)
{
    return round_copies(b, false, true);
}

static double round_both(const struct bench *b)
{
    return round_copies(b, true, true);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* AdamW on w, m, v in fp32, gradient and value in bf16: 28 bytes are moved per element. */
static void update(const struct link_space *s)
{
    const struct ckpt_adamw options = CKPT_ADAMW_INIT;
    const struct update_attr attr = optim_adamw_attr(&options);
    struct update_constants c = update_constants_of(&attr);
    int64_t n = s->bytes / 8;
    float *w = (float *)s->host;
    uint16_t *half = (uint16_t *)(w + 3 * n);

    c.lr = options.lr;
    host_update(&c, &(struct host_update){.w = w,
                                          .m = w + n,
                                          .v = w + 2 * n,
                                          .value = half,
                                          .gradient = half + n,
                                          .half = true,
                                          .n = n});
}

struct updating {
    const struct bench *bench;
    double seconds; /* INFINITY: no thread could be started */
};

/* Runs on its own thread, because it binds itself to processors and its team ends with it. */
static void *run_update(void *arg)
{
    struct updating *u = arg;

    if (memory_start_team(u->bench->device, u->bench->processes))
        return NULL;
    double before = clock_seconds();
    update(&u->bench->space);
    u->seconds = clock_seconds() - before;
    return NULL;
}

static double round_update(const struct bench *b)
{
    const struct link_space *s = &b->space;
    struct updating u = {.bench = b, .seconds = INFINITY};
    pthread_t thread;

    device_copy_both(b->device, s->arena, s->host + 2 * s->bytes, s->bytes / 2, CONCURRENT_COPIES);
    if (!thread_start(&thread, run_update, &u))
        pthread_join(thread, NULL);
    return b->device->ops->sync(b->device) ? INFINITY : u.seconds;
}

int link_rates_time(struct device *d, const struct link_space *s, int processes, struct machine *m)
{
    struct bench b = {.device = d, .space = *s, .processes = processes};
    double bytes = (double)s->bytes;

    memset(s->host, 0, LINK_HOST * (size_t)s->bytes);
    double out = best(&b, round_out), in = best(&b, round_in), both = best(&b, round_both);
    double updated = best(&b, round_update);
    if (isinf(out) || isinf(in) || isinf(both))
        return CKPT_EDEVICE;
    m->d2h = bytes / out;
    m->h2d = bytes / in;
    m->d2h_both = m->h2d_both = bytes / both;
    if (!isinf(updated))
        m->host_update = 28. * (bytes / 8) / updated;
    return 0;
}
