/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the device and the host tier against plain copies between the device and memory
 * allocated by its driver: each way alone and both at once, in pieces within one pin and across
 * pins.
 */
#include <string.h>
#include "bench/bench_tiers.h"
#include "memory/device/device.h"
#include "memory/tier/tier.h"

#define MIB (INT64_C(1) << 20)

enum { OUT, IN, BOTH, KINDS };

struct side {
    struct device *device;
    char *host;    /* of twice the bytes: what comes out, what goes in */
    int64_t bytes; /* of a copy */
    double best[KINDS];
};

static void copy(const struct side *s, bool out, int64_t piece)
{
    const struct device_ops *ops = s->device->ops;
    char *arena = ops->base(s->device);
    for (int64_t at = 0; at < s->bytes; at += piece) {
        if (out)
            ops->copy(s->device, QUEUE_COPY_OUT, s->host + at, arena + at, piece);
        else
            ops->copy(s->device, QUEUE_COPY_IN, arena + s->bytes + at, s->host + s->bytes + at,
                      piece);
    }
}

static void run(struct side *s, int kind, int64_t piece)
{
    double start = clock_seconds();
    if (kind != IN)
        copy(s, true, piece);
    if (kind != OUT)
        copy(s, false, piece);
    if (s->device->ops->sync(s->device))
        bench_stop(s->device->reason);
    double bytes = (double)(s->bytes * (kind == BOTH ? 2 : 1));
    double reached = bytes / (clock_seconds() - start);
    if (reached > s->best[kind])
        s->best[kind] = reached;
}

static void compare(struct side *plain, struct side *tier, int64_t piece, int64_t rounds)
{
    static const char *const names[] = {"out", "in", "both at once"};
    memset(plain->best, 0, sizeof plain->best);
    memset(tier->best, 0, sizeof tier->best);
    for (int64_t i = 0; i < rounds * KINDS; i++) {
        run(i % 2 ? plain : tier, (int)(i % KINDS), piece);
        run(i % 2 ? tier : plain, (int)(i % KINDS), piece);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        char what[64];
        snprintf(what, sizeof what, "host tier, %lld MiB %s", (long long)(piece / MIB),
                 names[kind]);
        bench_row(what, tier->best[kind], "memory of the driver", plain->best[kind], 0.97);
    }
}

static int pin(void *user, void *base, int64_t bytes)
{
    struct device *d = user;
    return d->ops->pin(d, base, bytes);
}

static void unpin(void *user, void *base, int64_t bytes)
{
    struct device *d = user;
    d->ops->unpin(d, base, bytes);
}

static struct device *open_device(const char *name)
{
    struct device *d = NULL;
    int rc = strcmp(name, "cpu") ? device_open_cuda(&d, 0, false) : CKPT_EDEVICE;
    if (rc && strcmp(name, "cuda"))
        rc = device_open_cpu(&d, 1024 * MIB, 0);
    if (rc)
        bench_stop(error_get());
    return d;
}

void bench_device(const struct bench_options *o)
{
    struct device *d = open_device(o->device);
    const struct device_ops *ops = d->ops;
    int64_t bytes = ops->backend == CKPT_ON_CUDA ? 1024 * MIB : 64 * MIB;
    struct tier_pin pins = {.pin = pin, .unpin = unpin, .user = d};
    struct tier_host_options options = {.budget = 2 * bytes,
                                        .node = ops->numa_node ? ops->numa_node(d) : -1,
                                        .pin = ops->pin ? &pins : NULL};
    struct tier *t;
    struct side plain = {.device = d, .bytes = bytes, .host = ops->host_alloc(d, 2 * bytes)};
    if (!plain.host || ops->map(d, 2 * bytes) || tier_open_host(&t, &options) ||
        t->ops->reserve(t, 2 * bytes))
        bench_stop("no memory for the copies of the device");
    struct side tier = {.device = d, .bytes = bytes, .host = t->ops->base(t)};
    printf("%s: %s\n", ops->name, t->how);
    memset(plain.host, 1, (size_t)(2 * bytes));
    compare(&plain, &tier, 16 * MIB, o->rounds);
    compare(&plain, &tier, bytes, o->rounds);
    t->ops->close(t);
    ops->host_free(d, plain.host);
    ops->close(d);
}
