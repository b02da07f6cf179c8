/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling: selects, among the variants to record and the sizes of micro-steps, the combination
 * whose plan is the fastest.  All variants must have the same inputs and outputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt.h"
#include "core/sized.h"
#include "exec/program.h"
#include "exec/red_zones.h"
#include "measure/timing.h"
#include "measure/warm.h"
#include "optim/optimizer.h"

#define NORM "ckpt.grad_norm" /* recorded by optim_append */

/* Recorded by optim_clip. */
static const char *const requests[CKPT_REQUESTS] = {[CKPT_REQUEST_STOP] = "ckpt.stop",
                                                    [CKPT_REQUEST_SAVE] = "ckpt.save",
                                                    [CKPT_REQUEST_ABANDON] = "ckpt.abandon"};

/* *micro becomes CKPT_AUTO if the size is to be selected.  --micro-batch is meant for programs that
 * train: another program with a smaller batch takes that batch whole. */
static int check_batch(struct programs *ps, int64_t batch, bool trains, int64_t *micro)
{
    *micro = ps->options->micro_batch ? ps->options->micro_batch : batch;
    if (!trains && batch > 0 && *micro > batch)
        *micro = batch;
    if (batch < 1)
        return error_set(CKPT_EINVAL, "a batch of %lld samples", (long long)batch);
    if (*micro == CKPT_AUTO)
        return 0;
    if (batch % *micro || batch / *micro > INT32_MAX)
        return error_set(CKPT_EINVAL,
                         "--micro-batch %lld does not divide the batch of %lld samples",
                         (long long)*micro, (long long)batch);
    return 0;
}

/* The search space and its best point: what ranks share over, variants of the step, sizes of its
 * micro-steps. */
struct choice {
    const struct ckpt_variant *variants;
    int n;
    int variant;
    int64_t micro; /* CKPT_AUTO until it is known */
    enum ranks_over over;
    double seconds; /* of the fastest plan so far */
    int64_t sizes;  /* number of micro-step sizes tried */
    bool whole;     /* this variant's numbers depend on the size: its batch is not split */
    double limit;   /* seconds: nothing slower is planned */
    bool gathers;   /* its refusal may be gathered (ckpt_gather_refusals) */
    uint64_t io;    /* signature of the first variant's inputs and outputs */
};

static uint64_t mix_io(const ckpt_tape *t, const char *name, int32_t tensor, bool input)
{
    const struct ckpt_desc *d = &t->tensors.data[tensor].desc;
    uint64_t h = hash_mix(hash_mix(hash_mix(HASH_START, input), d->dtype), d->ndim);

    if (program_name_is_own(name))
        return 0;
    for (int i = 1; i < d->ndim; i++)
        h = hash_mix(h, d->shape[i]);
    return hash_mix(h, (int64_t)hash_text(name));
}

/* Inputs and outputs in any order.  Their first axis is left out: it depends on the micro-step. */
static uint64_t io_signature(const ckpt_tape *t)
{
    uint64_t sum = 0;

    for (int32_t i = 0; i < t->n_feeds; i++)
        if (!t->feeds.data[i].constant)
            sum += mix_io(t, t->feeds.data[i].name, t->feeds.data[i].tensor, true);
    for (int32_t i = 0; i < t->n_fetches; i++)
        sum += mix_io(t, t->fetches.data[i].name, t->fetches.data[i].tensor, false);
    return sum;
}

/* A program feeds and fetches the same names whichever variant a budget selects. */
static int check_io(const struct ckpt_program *p, struct choice *k, int variant)
{
    const uint64_t io = io_signature(p->tape);

    if (!variant)
        k->io = io;
    return io == k->io ? 0
                       : error_set(CKPT_EINVAL,
                                   "ckpt_compile_variants: variant %d has other inputs or outputs "
                                   "than variant 0",
                                   variant);
}

static bool has_stages(const struct ckpt_program *p)
{
    return p->programs->ranks->sharing.stages > 1;
}

/* Whether a plan may fit and take at most `limit` seconds, by its lower bound: no plan is made,
 * since planning takes most of the time.  The bound of one stage says nothing: if it does not fit,
 * another cut may. */
static int check_bound(struct ckpt_program *p, double limit, bool *may_win)
{
    double seconds;
    *may_win = true;
    if (has_stages(p))
        return 0;
    int rc = program_bound(p, &seconds);
    *may_win = !rc && (program_plan_is_given(p) || (seconds <= limit && seconds < INFINITY));
    return rc ? rc : program_broadcast_decision(p, may_win);
}

/* Runs the kernels of a candidate for the first time, if it may be the fastest.  Its bound is
 * checked before where the first runs do not change times: compiling kernels takes seconds.  Ranks
 * run all candidates: their times may differ. */
static int run_candidate(struct ckpt_program *p, const struct choice *k, bool *may_win)
{
    const bool before = program_keeps_times(p) && !p->programs->ranks->comm;
    int rc = before ? check_bound(p, k->seconds, may_win) : 0;

    if (!rc && (*may_win || !before))
        rc = program_run_first(p);
    return rc || before ? rc : check_bound(p, k->seconds, may_win);
}

/* Of the first program a cut into stages is free; later ones have the same.  Stages of ranks that
 * do not exist are planned from the first on. */
static int draft(struct ckpt_program *p, const struct choice *k, int variant, int64_t micro)
{
    struct ranks *job = p->programs->ranks;
    if (programs_may_cut(p->programs))
        ranks_free_cut(job);
    if (!job->comm)
        job->sharing.stage = 0;
    return program_draft(p, &k->variants[variant], micro);
}

/* Plans one variant at one size, and keeps it if it is the fastest so far. */
static int try_candidate(struct ckpt_program *p, struct choice *k, enum ranks_over over,
                         int variant, int64_t micro)
{
    int rc = draft(p, k, variant, micro);
    bool may_win = false;

    k->whole = !rc && *p->tape->coupled;
    if (!rc)
        rc = check_io(p, k, variant);
    if (!rc)
        rc = run_candidate(p, k, &may_win);
    bool brief = p->brief;
    p->brief = true; /* only the fastest one reports the smallest budget */
    if (!rc && may_win)
        rc = has_stages(p) ? program_plan_stages(p, &k->variants[variant], micro) : program_plan(p);
    else if (!rc)
        rc = CKPT_EBUDGET;
    p->brief = brief;
    const double seconds = rc ? INFINITY : has_stages(p) ? p->pipeline_seconds : p->plan->seconds;
    if (seconds < k->seconds) {
        k->seconds = seconds;
        k->over = over;
        k->variant = variant;
        k->micro = micro;
    }
    if (!rc || rc == CKPT_EBUDGET)
        program_drop_plan(p);
    return rc == CKPT_EBUDGET ? 0 : rc;
}

/* Tries all variants and sizes: all divisors of the batch if no size is given, but only the whole
 * batch if another size would be another model.  *last is the last size tried. */
static int try_sizes(struct ckpt_program *p, struct choice *k, enum ranks_over over, int64_t given,
                     int64_t *last)
{
    int rc = ranks_share(p->programs->ranks, over);

    for (int variant = 0; variant < k->n; variant++) {
        k->whole = false;
        for (int64_t size = p->batch; size >= 1 && !rc; size--) {
            if (k->whole && given == CKPT_AUTO)
                break;
            if (p->batch % size || p->batch / size > INT32_MAX ||
                (given != CKPT_AUTO && size != given))
                continue;
            *last = size;
            k->sizes += variant == 0;
            rc = try_candidate(p, k, over, variant, size);
        }
    }
    return rc;
}

/* Selects variant, size of micro-steps and sharing whose plan is the fastest.  If nothing fits it
 * selects the last combination tried, whose refusal is then reported. */
static int select_fastest(struct ckpt_program *p, struct choice *k)
{
    int64_t given = k->micro, last = given;
    enum ranks_over last_over = OVER_ALL;
    int rc = 0;

    k->micro = CKPT_AUTO;
    k->seconds = k->limit;
    for (int over = 0; over < OVER_COUNT && !rc; over++)
        if (ranks_may_share(p->programs->ranks, (enum ranks_over)over)) {
            k->sizes = 0;
            last_over = (enum ranks_over)over;
            rc = try_sizes(p, k, last_over, given, &last);
        }
    if (k->micro == CKPT_AUTO) {
        k->over = last_over;
        k->variant = k->n - 1;
        k->micro = last;
    }
    return rc;
}

/* Whether the candidates differ in the order of sums.  Kinds of sharing do not. */
static bool changes_bits(const struct ckpt_program *p, const struct choice *k)
{
    bool same = !p->trains;

    for (int variant = 0; variant < k->n; variant++)
        same &= k->variants[variant].same_bits;
    return k->sizes > 1 || (k->n > 1 && !same);
}

/* The first program may select what ranks share over; later ones are compiled for that. */
static int check_over(struct ckpt_program *p, bool *open)
{
    *open = ranks_may_share(p->programs->ranks, OVER_HOST) &&
            ranks_may_share(p->programs->ranks, OVER_ALL);
    if (*open && program_plan_is_given(p))
        return error_set(CKPT_EINVAL,
                         "--plan-in with ranks on several hosts: the plan is for one way to "
                         "share; add --shard-over host or all");
    return 0;
}

/* --plan-out gets the plan of the program that trains and was compiled last; compiling p may have
 * changed it. */
static int write_plan(struct ckpt_program *p)
{
    struct ckpt_program *o = p;
    while (o && !o->trains)
        o = o->next;
    return o && (o == p || o->old_plan) ? program_write_plan(o) : 0;
}

/* Adds p to the programs of the context; every program then has a plan that fits beside the others.
 */
static int add_program(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    p->next = ps->first;
    ps->first = p;
    int rc = program_fit_others(p);
    if (!rc)
        rc = write_plan(p);
    if (rc) {
        program_restore_others(ps);
        return rc;
    }
    program_keep_others(ps);
    program_place(p);
    return 0;
}

/* Extends the sentence of rc by the reason why there were no smaller micro-steps. */
static int explain_whole(struct ckpt_program *p, int rc)
{
    if (rc != CKPT_EBUDGET || !p->tape || !*p->tape->coupled || p->batch == 1)
        return rc;
    return error_set(rc,
                     "--micro-batch auto keeps the batch of %lld whole, because smaller "
                     "micro-steps give other results (%s); --micro-batch N splits it "
                     "nevertheless: %s",
                     (long long)p->batch, p->tape->coupled, error_get());
}

/* Makes the recording and the plan of p; no memory is mapped yet. */
static int draft_and_plan(struct ckpt_program *p, struct choice *k)
{
    bool open = false;
    int rc = check_batch(p->programs, p->batch, p->trains, &k->micro);
    const bool chosen = !rc && k->micro == CKPT_AUTO;
    if (!rc)
        rc = check_over(p, &open);
    if (!rc && (k->micro == CKPT_AUTO || k->n > 1 || open)) {
        rc = select_fastest(p, k);
        if (!rc)
            rc = ranks_share(p->programs->ranks, k->over);
    }
    ranks_fix_groups(p->programs->ranks);
    p->choice_changes_bits = changes_bits(p, k);
    if (!rc)
        rc = draft(p, k, k->variant, k->micro);
    if (!rc)
        rc = program_run_first(p);
    bool plans = true;
    if (!rc && k->limit < INFINITY)
        rc = check_bound(p, k->limit, &plans);
    if (!rc && plans && has_stages(p))
        rc = program_plan_stages(p, &k->variants[k->variant], k->micro);
    else if (!rc && plans)
        rc = k->gathers ? program_plan_asked(p) : program_plan(p);
    rc = chosen ? explain_whole(p, rc) : rc;
    return k->gathers ? program_plan_anyway(p, rc) : rc;
}

static int compile(struct ckpt_program *p, struct choice *k)
{
    int rc = draft_and_plan(p, k);
    if (!rc)
        rc = add_program(p);
    if (rc || programs_only_plan(p->programs))
        return rc;
    p->loss = program_find_fetch(p, PROGRAM_LOSS);
    p->norm = program_find_fetch(p, NORM);
    for (int i = 0; i < CKPT_REQUESTS; i++)
        p->request[i] = program_find_fetch(p, requests[i]);
    const double begin = clock_seconds();
    rc = program_make_io_buffers(p);
    startup_add(p->programs, STARTUP_BUFFERS, begin);
    if (!rc &&
        (p->programs->options->profile ||
         (p->trains && (p->programs->options->machine_out || p->programs->options->trace_out))) &&
        timing_new(&p->timing, p))
        rc = error_set(CKPT_ENOMEM, "no memory for the times of ops");
    return rc ? rc : program_map_memory(p);
}

static bool all_recorders(const struct ckpt_variant *variants, int n)
{
    for (int i = 0; i < n; i++)
        if (!variants[i].record)
            return false;
    return n > 0;
}

/* Waits for the steps of other programs: kernels are tried on bytes above the parameters that these
 * steps use. */
static int await_steps(struct programs *ps)
{
    int rc = ps->memory->device ? ps->memory->device->ops->sync(ps->memory->device) : 0;
    return rc ? programs_fail_device(ps, NULL, rc) : programs_run_pending(ps);
}

/* Returns the optimizer if it is one of this context, else NULL; its groups are fixed from now on.
 */
static struct ckpt_optimizer *use_optimizer(const struct programs *ps,
                                            const struct ckpt_optimizer *optimizer)
{
    struct ckpt_optimizer *o = ps->optimizers;

    while (o && o != optimizer)
        o = o->next;
    if (o)
        o->compiled = true;
    return o;
}

/* Ranks lay out parameters by the groups of all optimizers that there are before the first program:
 * programs may then train different parts of a model. */
static int lay_out(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    if (ps->ranks->sharing.ranks < 2 || ps->ranks->sharing.layout || !ps->optimizers)
        return ranks_lay_out(ps->ranks, NULL);
    int32_t *groups = calloc((size_t)ps->params->n + 1, sizeof *groups);
    if (!groups)
        return error_set(CKPT_ENOMEM, "no memory for the layout of parameters");
    int rc = optim_classes(ps->optimizers, p->optimizer, ps->params, groups);
    for (int32_t i = 0; i < ps->params->n; i++)
        groups[i] = groups[i] < 0 ? LAYOUT_FROZEN : groups[i];
    if (!rc)
        rc = ranks_lay_out(ps->ranks, groups);
    free(groups);
    return rc;
}

/* Resolves which settings each parameter has, and which parameters are not trained. */
static int resolve_optimizer(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    const struct ckpt_optimizer *o = p->optimizer;
    size_t n = (size_t)ps->params->n + 1;
    if (!o)
        return 0;
    p->groups = calloc(n, sizeof *p->groups);
    p->frozen = calloc(n, sizeof *p->frozen);
    if (!p->groups || !p->frozen)
        return error_set(CKPT_ENOMEM, "no memory for the groups of an optimizer");
    int rc = optim_check(o);
    if (!rc)
        rc = optim_resolve(o, ps->params, p->groups);
    for (int32_t i = 0; i < ps->params->n - ps->params->n_hidden && !rc; i++)
        p->frozen[i] = optim_rule_at(o, p->groups[i])->frozen;
    return rc;
}

/* Makes a program with the settings of its optimizer and no recording; frees it on failure. */
static int begin(struct programs *ps, const struct ckpt_optimizer *optimizer, int64_t batch,
                 struct ckpt_program **out)
{
    struct ckpt_optimizer *own = optimizer ? use_optimizer(ps, optimizer) : NULL;
    *out = NULL;
    if (optimizer && !own)
        return error_set(CKPT_EINVAL, "ckpt_compile: the optimizer was made in another context");
    struct ckpt_program *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(CKPT_ENOMEM, "no memory for a program");
    *p = (struct ckpt_program){.programs = ps,
                               .batch = batch,
                               .trains = optimizer != NULL,
                               .brief = ps->brief,
                               .lr = optimizer ? optimizer->lr : 0.f,
                               .optimizer = own,
                               .grad_norm = NAN,
                               .loss = -1,
                               .norm = -1,
                               .zones = {{.p = p}, {.p = p}}};
    program_join_ranks(p);
    ps->watch.stop = &ps->ranks->request[CKPT_REQUEST_STOP];
    plan_watch_start(&ps->watch);
    int rc = await_steps(ps);
    if (!rc)
        rc = resolve_optimizer(p);
    if (!rc)
        rc = lay_out(p);
    if (rc)
        ckpt_program_free(p);
    else
        *out = p;
    return rc;
}

int programs_compile(struct programs *ps, int n, const struct ckpt_variant *variants,
                     const struct ckpt_optimizer *optimizer, int64_t batch,
                     struct ckpt_program **out, int *variant)
{
    struct choice k = {.variants = variants, .n = n, .limit = INFINITY, .gathers = true};
    struct ckpt_program *p;
    const int refused = ps->n_refused;
    *out = NULL;
    int rc = params_take_failure(ps->params);
    if (rc)
        return rc;
    if (!all_recorders(variants, n))
        return error_set(CKPT_EINVAL, "ckpt_compile: no recorder");
    rc = begin(ps, optimizer, batch, &p);
    if (!rc)
        rc = compile(p, &k);
    if (rc)
        ckpt_program_free(p);
    else
        *out = p;
    ranks_give_up(ps->ranks, rc);
    if (variant)
        *variant = k.variant;
    return !rc && ps->n_refused > refused ? CKPT_EBUDGET : rc;
}

static void describe(const struct ckpt_program *p, struct ckpt_forecast *f)
{
    f->batch = p->batch;
    f->micro_batch = p->tape->micro_batch;
    f->step_seconds = INFINITY;
    if (!p->plan)
        return;
    f->planned_peak =
        max_i64(p->programs->memory->persistent, p->plan->persistent) + p->plan->transient;
    f->step_seconds = p->plan->seconds;
    if (!p->stages)
        return;
    for (int s = 0; s < p->programs->ranks->sharing.stages; s++)
        f->planned_peak = max_i64(f->planned_peak, p->stages[s].peak);
    f->step_seconds = p->pipeline_seconds;
}

int programs_forecast(struct programs *ps, const struct ckpt_variant *variant,
                      const struct ckpt_optimizer *optimizer, int64_t batch, double limit,
                      struct ckpt_forecast *forecast)
{
    struct choice k = {.variants = variant, .n = 1, .limit = limit > 0 ? limit : INFINITY};
    struct ckpt_forecast all = {.batch = batch};
    struct ckpt_program *p;
    int rc = params_take_failure(ps->params);
    if (rc)
        return rc;
    if (!variant->record)
        return error_set(CKPT_EINVAL, "ckpt_forecast: no recorder");
    rc = begin(ps, optimizer, batch, &p);
    if (!rc) {
        p->brief = true;
        rc = draft_and_plan(p, &k);
    }
    if (!rc)
        describe(p, &all);
    ckpt_program_free(p);
    if (rc != CKPT_EBUDGET)
        ranks_give_up(ps->ranks, rc);
    return rc ? rc : sized_write("struct ckpt_forecast", forecast, &all, sizeof all);
}

static void unlink_program(struct ckpt_program *p)
{
    struct ckpt_program **at = &p->programs->first;
    while (*at && *at != p)
        at = &(*at)->next;
    if (*at)
        *at = p->next;
}

void ckpt_program_free(ckpt_program *p)
{
    if (!p)
        return;
    struct device *d = p->programs->memory->device;
    int rc = d ? d->ops->sync(d) : 0; /* --plan-only has no device */
    if (rc)                           /* no later call can report it */
        programs_fail_device(p->programs, p, rc);
    else if (p->programs->pending == p)
        programs_run_pending(p->programs); /* a failure marks the weights as lost */
    program_drop_in_flight(p);
    unlink_program(p);
    if (p->programs->last_submitted == p)
        p->programs->last_submitted = NULL;
    if (p->programs->pending == p)
        p->programs->pending = NULL;
    program_forget(p);
    lowered_free(&p->lowered);
    timing_free(p->timing);
    program_free_io_buffers(p);
    red_zones_free(p);
    free(p->stages);
    program_drop_plan(p);
    free(p->groups);
    free(p->frozen);
    free(p);
}
