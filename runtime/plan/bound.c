/*
 * A lower bound of a step's time.  At the op where most is alive when everything is kept, bytes
 * above the budget must be gone, and what is gone and read later must be made again at least once
 * or be parked.  Made again at its own op's price alone, cheapest first and in fractions: no plan
 * can do with less.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/comm.h"

struct bargain {
    double seconds, bytes;
};

static int compare_bargains(const void *a, const void *b)
{
    const struct bargain *x = a, *y = b;
    double left = x->seconds * y->bytes, right = y->seconds * x->bytes;
    return (left > right) - (left < right);
}

/* What one more run of each op gives back of the bytes alive at the peak. */
static int32_t list_bargains(const struct program *p, const struct schedule *s, double *bytes,
                             struct bargain *list)
{
    const struct graph *g = p->g;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_instances; i++) {
        const struct plan_instance *t = &s->instances.data[i];
        if (!p->droppable[t->storage] || t->first >= s->peak_step || t->last <= s->peak_step)
            continue;
        /* Of several writers the first stands for all: that is less than what they take. */
        bytes[p->writers[p->writer_start[t->storage]]] += (double)g->storages[t->storage].bytes;
    }
    for (int32_t i = 0; i < g->n_body; i++)
        if (bytes[i] > 0)
            list[n++] = (struct bargain){spine_seconds(&g->ops[i]) * g->n_micro, bytes[i]};
    qsort(list, (size_t)n, sizeof(*list), compare_bargains);
    return n;
}

static double cheapest(const struct bargain *list, int32_t n, double bytes)
{
    double seconds = 0;
    for (int32_t i = 0; i < n && bytes > 0; i++) {
        double part = bytes < list[i].bytes ? bytes / list[i].bytes : 1;
        seconds += part * list[i].seconds;
        bytes -= list[i].bytes;
    }
    return seconds;
}

/* The longer a step takes the more can be parked: the least time that is enough for itself. */
static double with_link(const struct bargain *list, int32_t n, double bytes, double base,
                        double rate, double room)
{
    double lo = 0, hi = cheapest(list, n, bytes);
    for (int i = 0; i < 40 && rate > 0; i++) {
        double mid = (lo + hi) / 2, parked = rate * (base + mid);
        parked = parked < room ? parked : room;
        if (cheapest(list, n, bytes - parked) <= mid)
            hi = mid;
        else
            lo = mid;
    }
    return base + (rate > 0 ? lo : hi);
}

int bound_seconds(struct portfolio *pf, const struct machine *m, const struct budgets *b,
                  double *seconds)
{
    const struct program *p = pf->p;
    const struct schedule *s;
    const struct option *all = &pf->options.data[pf->n - 1];
    double *bytes = calloc((size_t)p->g->n_ops + 1, sizeof(*bytes));
    struct bargain *list = calloc((size_t)p->g->n_ops + 1, sizeof(*list));
    int32_t *hold = malloc(((size_t)p->g->n_storages + 1) * sizeof(*hold));
    int rc = bytes && list && hold ? 0 : CKPT_ENOMEM;
    for (int32_t i = 0; i < p->g->n_storages && !rc; i++)
        hold[i] = HOLD_ALWAYS;
    if (!rc)
        rc = simulate(pf->sim, hold, &s);
    struct hosted_bounds hosted = {0, 0, 0}; /* what needs no link */
    if (m->host_update > 0 && b->host > 0)
        hosted = hosted_most(p->g, m);
    *seconds = p->seconds - p->queued - hosted.seconds; /* collectives may all hide */
    if (!rc && all->load > b->device) {
        int32_t n = list_bargains(p, s, bytes, list);
        double room = (double)b->host + (double)b->nvme;
        *seconds = with_link(list, n, (double)s->load - hosted.bytes - (double)b->device,
                             *seconds, room > 0 ? m->d2h : 0, room);
    }
    free(bytes);
    free(list);
    free(hold);
    return rc;
}
