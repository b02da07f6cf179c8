/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rates of copies and of host updates, timed before the first plan that may use them.  The
 * machine files of the library describe a GPU, not the computer around it: on an H200 of a virtual
 * host, steps under a host tier took 1.16 times what the file of that GPU predicts, and 1.06 times
 * with the rates of the computer.
 */
#include "exec/program.h"
#include "measure/link_rates.h"
#include "measure/warm.h"

#define COPY_BYTES (INT64_C(256) << 20) /* size of a timed copy: more than caches hold */
#define MIN_BYTES  (INT64_C(1) << 20)   /* smaller copies would time the launch, not the link */

static bool needs_links(const struct programs *ps)
{
    const struct ckpt_options *o = ps->options;
    const struct device *d = ps->memory->device;

    return o->host > 0 && !(o->machine && *o->machine) && d && d->ops->pin &&
           d->ops->backend == ps->backend;
}

/* Bytes per copy: within both budgets, above the parameters in the arena. */
static int64_t bytes_of(const struct programs *ps)
{
    struct memory *m = ps->memory;
    int64_t left = ps->budget - m->device->ops->overhead(m->device) - m->persistent;
    int64_t bytes = min_i64(left / LINK_ARENA, m->host / LINK_HOST);

    return min_i64(COPY_BYTES, bytes / CKPT_ALIGN * CKPT_ALIGN);
}

/* If memory for the copies is missing the rates stay those of the file. */
static int time_links(struct programs *ps, int64_t bytes)
{
    struct memory *m = ps->memory;
    struct device *d = m->device;
    char *host = d->ops->host_alloc(d, LINK_HOST * bytes);
    int rc = 0;

    if (host && !d->ops->map(d, m->persistent + LINK_ARENA * bytes)) {
        struct link_space space = {d->ops->base(d) + m->persistent, host, bytes};
        rc = link_rates_time(d, &space, ranks_beside(ps->ranks), &ps->machine);
    }
    d->ops->host_free(d, host);
    if (d->ops->map(d, programs_arena_bytes(ps)) && !rc)
        rc = CKPT_ENOMEM;
    return rc ? error_set(rc, "copies between %s and the host cannot be timed: %s", d->name,
                          d->reason)
              : 0;
}

int programs_time_links(struct programs *ps)
{
    if (ps->timed_links || !needs_links(ps))
        return 0;
    ps->timed_links = true;
    int64_t bytes = bytes_of(ps);
    return bytes < MIN_BYTES ? 0 : time_links(ps, bytes);
}
