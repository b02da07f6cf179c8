/* No plan fits: the sentence that says what is short and by how much. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan/search.h"

#define GIB    (INT64_C(1) << 30)
#define HALVES 8               /* how often the range of budgets is halved */
#define NO_END (INT64_MAX / 8) /* of a tier, to learn how much would be enough */

struct sentence {
    char *text;
    int n;
};

static void say(struct sentence *s, const char *fmt, ...) CKPT_PRINTF(2, 3);

static void say(struct sentence *s, const char *fmt, ...)
{
    va_list ap;
    if (s->n < 0 || s->n >= CKPT_MESSAGE)
        return;
    va_start(ap, fmt);
    int n = vsnprintf(s->text + s->n, (size_t)(CKPT_MESSAGE - s->n), fmt, ap);
    va_end(ap);
    s->n = n < 0 ? n : s->n + n;
}

/* The smallest size that ends in a letter and is not below bytes, as the command line takes it. */
static const char *option_size(int64_t bytes, char *text, size_t size)
{
    int64_t unit = bytes < GIB ? 1 << 10 : 1 << 20;
    snprintf(text, size, "%lld%c", (long long)(round_up(bytes, unit) / unit),
             bytes < GIB ? 'K' : 'M');
    return text;
}

static double recompute_percent(const struct portfolio *pf, const struct option *o)
{
    return o->seconds > 0 ? 100 * (o->seconds - pf->p->seconds) / o->seconds : 0;
}

/* A plan with parks for so many device bytes, reserved ones included. */
static int plan_at(struct portfolio *pf, const struct request *q, const struct budgets *b,
                   int64_t device, struct plan **p)
{
    return parked_plan(pf, q->m, b, device - q->reserved, INFINITY, p);
}

/* The smallest device budget that a plan with parks is found for, at most what is needed without;
 * *p is that plan, or NULL. */
static int smallest_parked(struct portfolio *pf, const struct request *q, int64_t *device,
                           struct plan **p)
{
    int64_t low = q->budgets.device, high = q->fixed + q->smallest->placed;
    int rc = 0;
    *device = high;
    *p = NULL;
    for (int i = 0; i < HALVES && !rc; i++) {
        struct plan *found;
        int64_t middle = low + (high - low) / 2;
        rc = plan_at(pf, q, &q->budgets, middle, &found);
        if (rc || !found) {
            low = middle;
            continue;
        }
        plan_free(*p);
        *p = found;
        *device = high = min_i64(middle, q->reserved + found->persistent + found->transient);
    }
    return rc;
}

/* What would be enough of the last tier there is, or of the host if there is none. */
static int say_tier(struct portfolio *pf, const struct request *q, struct sentence *s)
{
    int i = q->budgets.nvme > 0 ? TIER_NVME : TIER_HOST;
    struct budgets b = q->budgets;
    struct plan *p;
    char size[32];
    if (i == TIER_NVME)
        b.nvme = NO_END;
    else
        b.host = NO_END;
    int rc = plan_at(pf, q, &b, q->budgets.device, &p);
    if (rc || !p)
        return rc;
    int64_t had = i == TIER_NVME ? q->budgets.nvme : q->budgets.host;
    int64_t needs = b.tier_base[i] + (i == TIER_NVME ? p->nvme_bytes : p->host_bytes);
    if (needs > had)
        say(s,
            "; %lld bytes (%s) more of %s would be enough here, --%s %s: a step then takes %.4g s",
            (long long)(needs - had), human_bytes(needs - had),
            i == TIER_NVME ? "the NVMe tier" : "host memory", i == TIER_NVME ? "nvme" : "host",
            option_size(needs, size, sizeof(size)), p->seconds);
    plan_free(p);
    return 0;
}

static void say_tiers(const struct request *q, struct sentence *s)
{
    if (q->budgets.host > 0)
        say(s, " with %s of host memory", human_bytes(q->budgets.host));
    if (q->budgets.nvme > 0)
        say(s, " %s %s of NVMe", q->budgets.host > 0 ? "and" : "with",
            human_bytes(q->budgets.nvme));
}

static void say_peak(const struct portfolio *pf, int64_t least, int64_t fixed, int32_t peak_op,
                     struct sentence *s)
{
    char size[32];
    say(s,
        ": this program needs at least %lld bytes (%s), --vram %s, %lld of them for parameters "
        "and the like; the peak is reached in %.200s",
        (long long)least, human_bytes(least), option_size(least, size, sizeof(size)),
        (long long)fixed, peak_op >= 0 ? pf->p->g->ops[peak_op].name : "no op");
}

static int say_more(struct portfolio *pf, const struct request *q, struct sentence *s)
{
    struct option *more, *all;
    int rc = fastest_within(pf, q->smallest->placed + GIB, &more);
    if (!rc)
        rc = smallest_faster(pf, pf->options.data[pf->n - 1].seconds * (1 + 1e-12), &all);
    if (rc)
        return rc;
    say(s, "; a step then takes %.4g s, %.0f %% of it recompute", q->smallest->seconds,
        recompute_percent(pf, q->smallest));
    if (more != q->smallest)
        say(s, "; with 1 GiB more it takes %.4g s (%.0f %%)", more->seconds,
            recompute_percent(pf, more));
    if (all != q->smallest)
        say(s, "; the fastest plan needs %lld bytes (%s) and takes %.4g s",
            (long long)(q->fixed + all->placed), human_bytes(q->fixed + all->placed), all->seconds);
    return 0;
}

int plan_refuse(struct portfolio *pf, const struct request *q, char message[CKPT_MESSAGE])
{
    struct sentence s = {.text = message};
    struct plan *p = NULL;
    int64_t device = 0;
    bool tiers = q->budgets.host > 0 || q->budgets.nvme > 0;
    int rc = tiers ? smallest_parked(pf, q, &device, &p) : 0;
    say(&s, "no plan fits %s (%lld bytes)", human_bytes(q->budgets.device),
        (long long)q->budgets.device);
    say_tiers(q, &s);
    if (!rc && p) {
        say_peak(pf, device, q->reserved + p->persistent, p->steps[p->peak_step].op, &s);
        say(&s, "; a step then takes %.4g s, %.0f %% of it waiting for copies", p->seconds,
            100 * p->exposed_seconds / p->seconds);
    } else if (!rc) {
        say_peak(pf, q->fixed + q->smallest->placed, q->fixed, q->peak_op, &s);
        rc = say_more(pf, q, &s);
    }
    if (!rc)
        rc = say_tier(pf, q, &s);
    plan_free(p);
    return rc ? rc : CKPT_EBUDGET;
}
