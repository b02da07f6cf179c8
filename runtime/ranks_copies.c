/*
 * What copies between host and devices reach while all ranks of a host make them: host memory, and
 * what lies between it and the devices, may carry less than their links.  A machine file can tell;
 * else it is timed here, before the first plan, where there is a host tier to copy to.
 */
#include <math.h>
#include <stdlib.h>
#include "device/device.h"
#include "ranks.h"

enum { ROUNDS = 4, COPIES = 4 };
#define BYTES (INT64_C(256) << 20) /* of a copy: more than caches hold */

bool ranks_want_copies(const ckpt *c)
{
    return c->options.host && c->device && c->device->ops->pin && c->machine.host_copies == 0;
}

/* What a rank copies to and from beside its arena; host is NULL where there is no memory for that.
 */
struct copying {
    int64_t bytes;
    char *host;
};

/* Within both budgets: nothing has a place in the arena yet. */
static void copying_open(const ckpt *c, struct copying *x)
{
    struct device *d = c->device;
    int64_t room = min_i64(c->budget - d->ops->overhead(d), c->options.host);
    *x = (struct copying){.bytes = min_i64(BYTES, room / 2 / CKPT_ALIGN * CKPT_ALIGN)};
    if (x->bytes <= 0)
        return;
    x->host = d->ops->host_alloc(d, 2 * x->bytes);
    if (x->host && d->ops->map(d, 2 * x->bytes)) {
        d->ops->host_free(d, x->host);
        x->host = NULL;
    }
}

static void copying_close(const ckpt *c, struct copying *x)
{
    if (!x->host)
        return;
    c->device->ops->map(c->device, 0);
    c->device->ops->host_free(c->device, x->host);
}

/* Both ways at once, as in a step.  B/s each way, or 0. */
static double copy(const ckpt *c, const struct copying *x)
{
    struct device *d = c->device;
    if (!x->host)
        return 0;
    double before = clock_seconds();
    device_copy_both(d, d->ops->base(d), x->host, x->bytes, COPIES);
    return d->ops->sync(d) ? 0 : COPIES * (double)x->bytes / (clock_seconds() - before);
}

/* All ranks begin together; *least is the rate of the slowest. */
static int run_round(ckpt *c, const struct copying *x, double *all, double *least)
{
    struct comm *comm = ranks_hosts(c);
    int rc = comm_barrier(comm, "copies to the host");
    if (rc)
        return rc;
    double own = copy(c, x);
    rc = comm_gather(comm, &own, all, sizeof own, "copies to the host");
    *least = INFINITY;
    for (int r = 0; r < c->sharing.ranks && !rc; r++)
        *least = fmin(*least, all[r]);
    return rc;
}

/* To two digits, so that a plan does not depend on the rest. */
static double rounded(double rate)
{
    double unit = rate > 0 ? pow(10, floor(log10(rate)) - 1) : 1;
    return floor(rate / unit) * unit;
}

/* The first round is the slowest, and forgotten; of the others the best. */
static int time_copies(ckpt *c, double *all)
{
    struct copying x;
    double best = 0, least = 0;
    int rc = 0;
    copying_open(c, &x);
    for (int i = 0; i < ROUNDS && !rc; i++) {
        rc = run_round(c, &x, all, &least);
        best = i && !rc ? fmax(best, least) : best;
    }
    copying_close(c, &x);
    if (rc)
        return context_fail(c, rc, "%s", ranks_hosts(c)->reason);
    c->machine.host_copies = rounded(best) * (double)c->machine.links.ranks_per_host;
    return 0;
}

int ranks_time_copies(ckpt *c)
{
    bool all_want = c->places && c->machine.links.ranks_per_host > 1;
    for (int r = 0; r < c->sharing.ranks && all_want; r++)
        all_want = c->places[r].wants_copies;
    if (!all_want)
        return 0;
    double *all = calloc((size_t)c->sharing.ranks, sizeof *all);
    int rc = all ? time_copies(c, all) : context_fail(c, CKPT_ENOMEM, "no memory for ranks");
    free(all);
    return rc;
}
