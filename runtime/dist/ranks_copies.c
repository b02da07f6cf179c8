/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the rate of copies between host and devices while all ranks of a host copy at once: host
 * memory and shared links may carry less than the sum of the single links.  A machine file can give
 * the rate; otherwise it is measured here, before the first plan, if there is a host tier.
 */
#include <math.h>
#include <stdlib.h>
#include "dist/ranks.h"

enum { ROUNDS = 4, COPIES = 4 };
#define BYTES (INT64_C(256) << 20) /* per copy: more than caches hold */

bool ranks_want_copies(const struct ranks *job)
{
    return job->options->host && job->memory->device && job->memory->device->ops->pin &&
           job->machine->host_copies == 0;
}

/* Buffers of the measurement; host is NULL if there is no memory for them. */
struct copying {
    int64_t bytes;
    char *host;
};

/* Stays within both budgets: nothing is placed in the arena yet. */
static void copying_open(const struct ranks *job, struct copying *x)
{
    struct device *d = job->memory->device;
    int64_t available = min_i64(job->memory->budget - d->ops->overhead(d), job->memory->host);
    *x = (struct copying){.bytes = min_i64(BYTES, available / 2 / CKPT_ALIGN * CKPT_ALIGN)};
    if (x->bytes <= 0)
        return;
    x->host = d->ops->host_alloc(d, 2 * x->bytes);
    if (x->host && d->ops->map(d, 2 * x->bytes)) {
        d->ops->host_free(d, x->host);
        x->host = NULL;
    }
}

static void copying_close(const struct ranks *job, struct copying *x)
{
    if (!x->host)
        return;
    job->memory->device->ops->map(job->memory->device, 0);
    job->memory->device->ops->host_free(job->memory->device, x->host);
}

/* Copies in both directions at once, as a step does.  Returns B/s per direction, or 0. */
static double copy_both_ways(const struct ranks *job, const struct copying *x)
{
    struct device *d = job->memory->device;
    if (!x->host)
        return 0;
    double before = clock_seconds();
    device_copy_both(d, d->ops->base(d), x->host, x->bytes, COPIES);
    return d->ops->sync(d) ? 0 : COPIES * (double)x->bytes / (clock_seconds() - before);
}

/* All ranks start together; *slowest is the rate of the slowest rank. */
static int run_round(struct ranks *job, const struct copying *x, double *all, double *slowest)
{
    struct comm *comm = ranks_hosts(job);
    int rc = comm_barrier(comm, "copies to the host");
    if (rc)
        return rc;
    double own = copy_both_ways(job, x);
    rc = comm_gather(comm, &own, all, sizeof own, "copies to the host");
    *slowest = INFINITY;
    for (int r = 0; r < job->sharing.ranks && !rc; r++)
        *slowest = fmin(*slowest, all[r]);
    return rc;
}

/* Rounds down to two digits, so that plans are the same for small variations. */
static double round_rate(double rate)
{
    double unit = rate > 0 ? pow(10, floor(log10(rate)) - 1) : 1;
    return floor(rate / unit) * unit;
}

/* The first round warms up and is ignored; the result is the best of the others. */
static int time_copies(struct ranks *job, double *all)
{
    struct copying x;
    double best = 0, slowest = 0;
    int rc = 0;
    copying_open(job, &x);
    for (int i = 0; i < ROUNDS && !rc; i++) {
        rc = run_round(job, &x, all, &slowest);
        best = i && !rc ? fmax(best, slowest) : best;
    }
    copying_close(job, &x);
    if (rc)
        return error_set(rc, "%s", ranks_hosts(job)->reason);
    job->machine->host_copies = round_rate(best) * (double)job->machine->links.ranks_per_host;
    return 0;
}

int ranks_time_copies(struct ranks *job)
{
    bool all_want = job->places && job->machine->links.ranks_per_host > 1;
    for (int r = 0; r < job->sharing.ranks && all_want; r++)
        all_want = job->places[r].wants_copies;
    if (!all_want)
        return 0;
    double *all = calloc((size_t)job->sharing.ranks, sizeof *all);
    int rc = all ? time_copies(job, all) : error_set(CKPT_ENOMEM, "no memory for ranks");
    free(all);
    return rc;
}
