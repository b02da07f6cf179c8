/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets of device, host and NVMe against each other.  For each of five sizes of the lower tiers:
 * the smallest device budget, one byte less, and three larger ones.  A plan is known from the
 * moment that any budget got it.  So no budget that holds it may be refused, nor get a slower one,
 * and no smallest budget may be above its peak.
 */
#include "audit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "plan/plan_record.h"
#include "plan/search/search.h"

enum { SIZES = 5, DEVICES = AUDIT_BUDGETS / SIZES };

struct answered {
    struct budgets asked;
    bool fits;
    struct budgets takes; /* if it fits: the bytes that the plan takes of each tier */
    double seconds;
    int64_t smallest; /* the smallest device budget with these tiers, as a plan or a refusal says */
};

struct run {
    const char *name;
    const struct machine *m;
    struct frontier *f;
    struct audit *a;
    struct answered list[AUDIT_BUDGETS];
};

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note(struct run *r, const char *what, const struct answered *at)
{
    if (!*r->a->first)
        snprintf(r->a->first, sizeof(r->a->first), "%.60s: %s: %lld + %lld + %lld bytes", r->name,
                 what, (long long)at->asked.device, (long long)at->asked.host,
                 (long long)at->asked.nvme);
}

/* The bytes after "at least" of a refusal, as a user types them. */
static int64_t named(const char *sentence)
{
    const char *words = "at least ", *at = strstr(sentence, words);
    char *end;
    if (!at)
        return INT64_MAX;
    int64_t n = strtoll(at + strlen(words), &end, 10);
    return *end == 'G' ? n << 30 : *end == 'M' ? n << 20 : *end == 'K' ? n << 10 : n;
}

/* The end of the last address that a plan uses: it may be below its peak, which is no less than the
 * smallest budget. */
static int64_t end_of(const struct graph *g, const struct plan *p)
{
    int64_t end = 0;
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *t = &p->residences[i];
        if (t->tier == TIER_DEVICE && !plan_is_backing(g, p, t))
            end = max_i64(end, t->offset + residence_bytes(g, p, t));
    }
    return end;
}

/* Asks for one plan; the numbers of the answer are in *to. */
static int ask(struct run *r, const struct budgets *b, struct answered *to)
{
    struct plan *p;
    double start = cpu_seconds();
    int rc = frontier_plan(r->f, r->m, b, r->m->process, &p);
    r->a->seconds = fmax(r->a->seconds, cpu_seconds() - start);
    *to = (struct answered){.asked = *b, .fits = rc == 0, .seconds = INFINITY};
    if (rc == CKPT_EBUDGET) {
        to->smallest = named(error_get());
        return 0;
    }
    if (!rc)
        rc = plan_check(r->f->p->g, p);
    if (!rc) {
        int64_t end = end_of(r->f->p->g, p);
        r->a->padding = fmax(r->a->padding, (double)p->transient / fmax(1, (double)end) - 1);
        to->takes = (struct budgets){.device = r->m->process + p->persistent + p->transient,
                                     .host = p->host_bytes,
                                     .nvme = p->nvme_bytes};
        to->seconds = p->seconds;
        to->smallest = p->min_budget;
    }
    plan_free(p);
    return rc;
}

/* Five budgets of the device with these lower tiers; the last one is without a limit. */
static int ask_devices(struct run *r, const struct budgets *tiers, int64_t most,
                       struct answered *list)
{
    static const double shares[DEVICES] = {0, 0, .03, .3, 0};
    struct budgets b = *tiers;
    b.device = INT64_MAX;
    int rc = ask(r, &b, &list[DEVICES - 1]);
    int64_t least = list[DEVICES - 1].smallest;
    for (int i = 0; i < DEVICES - 1 && !rc; i++) {
        b.device = least - (i == 0) + (int64_t)(shares[i] * (double)max_i64(0, most - least));
        rc = ask(r, &b, &list[i]);
    }
    return rc;
}

/* No lower tier; some of the host, all of it; NVMe, and with it some of the host. */
static int ask_all(struct run *r)
{
    const struct program *p = r->f->p;
    int64_t bytes = p->persistent + r->f->options.data[r->f->n - 1].load, some = bytes / 6,
            all = 4 * bytes;
    const struct budgets tiers[SIZES] = {
        {0}, {.host = some}, {.host = all}, {.nvme = all}, {.host = some / 2, .nvme = all}};
    int rc = 0;
    for (int i = 0; i < SIZES && !rc; i++)
        rc = ask_devices(r, &tiers[i], r->m->process + bytes, r->list + i * DEVICES);
    return rc;
}

/* Whether these lower tiers hold the bytes of a plan. */
static bool tiers_hold(const struct budgets *b, const struct budgets *takes)
{
    int64_t slots = takes->nvme > 0 && b->host > 0 ? plan_staging(b->host) : 0;
    return takes->host + slots <= b->host && takes->nvme <= b->nvme;
}

/* Compares the answer for a budget with the plan of another one. */
static void compare(struct run *r, const struct answered *at, const struct answered *other)
{
    struct audit *a = r->a;
    if (!other->fits || !tiers_hold(&at->asked, &other->takes))
        return;
    if (other->takes.device <= at->asked.device && !at->fits) {
        a->refused++;
        note(r, "refused though feasible", at);
    } else if (other->takes.device <= at->asked.device && at->seconds > other->seconds) {
        a->slower++;
        note(r, "slower than another plan that fits", at);
    }
}

/* The part by which the smallest budget with these tiers is above a plan that was found. */
static double beaten_by(const struct run *r, const struct answered *at)
{
    double most = 0;
    for (int j = 0; j < AUDIT_BUDGETS; j++) {
        const struct answered *other = &r->list[j];
        if (other->fits && tiers_hold(&at->asked, &other->takes))
            most = fmax(most, (double)at->smallest / (double)other->takes.device - 1);
    }
    return most;
}

/* The smallest budget of one size of the lower tiers: the first answer is for a byte less. */
static void check_smallest(struct run *r, const struct answered *list)
{
    const struct answered *less = &list[0], *at = &list[1];
    double beaten = beaten_by(r, at);
    bool unit = less->smallest - at->asked.device < INT64_C(1) << 20; /* refusals round up */
    r->a->excess = fmax(r->a->excess, beaten);
    if (!less->fits && at->fits && at->smallest == at->asked.device && unit &&
        less->smallest >= at->asked.device && beaten <= 0)
        return;
    r->a->untrue++;
    note(r, "the smallest budget is not true", at);
}

int audit_graph(const char *name, const struct graph *g, const struct machine *m, struct audit *a)
{
    struct run r = {.name = name, .m = m, .a = a};
    double start = cpu_seconds();
    int rc = frontier_build(g, &r.f);
    a->seconds = fmax(a->seconds, cpu_seconds() - start);
    if (!rc)
        rc = ask_all(&r);
    for (int i = 0; i < AUDIT_BUDGETS && !rc; i++) {
        int refused = a->refused, slower = a->slower;
        for (int j = 0; j < AUDIT_BUDGETS; j++)
            if (a->refused == refused && a->slower == slower)
                compare(&r, &r.list[i], &r.list[j]);
        a->accepted += r.list[i].fits;
    }
    for (int i = 0; i < SIZES && !rc; i++)
        check_smallest(&r, r.list + i * DEVICES);
    a->budgets += AUDIT_BUDGETS;
    frontier_free(r.f);
    return rc;
}
