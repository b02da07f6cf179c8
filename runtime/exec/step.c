/* SPDX-License-Identifier: Apache-2.0 */
/* Feeding, stepping, fetching: the public calls of a compiled program. */
#include <float.h>
#include <math.h>
#include <string.h>
#include "attr.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "exec/deferred.h"
#include "exec/host_counts.h"
#include "exec/program.h"
#include "measure/timing.h"
#include "optim/optimizer.h"

static int32_t find_feed(const struct ckpt_program *p, const char *name)
{
    for (int32_t i = 0; i < p->tape->n_feeds; i++)
        if (!p->tape->feeds.data[i].constant && !p->tape->feeds.data[i].counted &&
            !strcmp(p->tape->feeds.data[i].name, name))
            return i;
    return -1;
}

int32_t program_find_fetch(const struct ckpt_program *p, const char *name)
{
    for (int32_t i = 0; i < p->tape->n_fetches; i++)
        if (!strcmp(p->tape->fetches.data[i].name, name))
            return i;
    return -1;
}

static int refuse_plan_only(struct ckpt_program *p)
{
    return error_set(CKPT_EINVAL, "this program was only planned (%s)",
                     p->programs->options->plan_only ? "--plan-only" : "ckpt_gather_refusals");
}

static int slot_of(int64_t step)
{
    return (int)(step % DEVICE_IN_FLIGHT);
}

static int64_t count_earlier(const struct ckpt_program *p, int64_t sequence)
{
    int64_t n = 0;
    for (int64_t s = p->steps; s < p->submitted; s++)
        n += p->sequence[slot_of(s)] < sequence;
    return n;
}

void program_drop_in_flight(struct ckpt_program *p)
{
    struct ckpt_optimizer *optimizer = p->optimizer;
    for (struct ckpt_program *o = p->programs->first; o && optimizer; o = o->next)
        for (int64_t s = o->steps; s < o->submitted && o != p && o->optimizer == optimizer; s++)
            o->sequence[slot_of(s)] -= count_earlier(p, o->sequence[slot_of(s)]);
    if (optimizer)
        optimizer->submitted -= p->submitted - p->steps;
    p->submitted = p->steps;
}

static void feed_buffer(struct io_buffer *buffer, int slot, const void *data)
{
    memcpy(buffer->data[slot], data, (size_t)buffer->bytes);
    for (int other = 0; other < DEVICE_IN_FLIGHT; other++)
        buffer->stale[other] = other != slot;
    buffer->fed = true;
}

int ckpt_feed(ckpt_program *p, const char *name, const void *data, int64_t bytes)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    NOT_NULL(name);
    NOT_NULL(data);
    if (!p->feeds)
        return refuse_plan_only(p);
    int32_t i = find_feed(p, name);
    if (i < 0)
        return error_set(CKPT_ENAME, "there is no input '%s'", name);
    if (bytes != p->feeds[i].bytes)
        return error_set(CKPT_EINVAL, "input '%s' takes %lld bytes a batch, not %lld", name,
                         (long long)p->feeds[i].bytes, (long long)bytes);
    if (p->submitted - p->steps == DEVICE_IN_FLIGHT) { /* the oldest step still reads this buffer */
        struct device *d = p->programs->memory->device;
        int rc = d->ops->reach(d, p->mark[slot_of(p->submitted)], NULL);
        if (rc)
            return program_abandon(p, programs_fail_device(p->programs, p, rc));
    }
    int rc = program_open_slot(p, slot_of(p->submitted));
    if (!rc)
        feed_buffer(&p->feeds[i], slot_of(p->submitted), data);
    return rc;
}

/* Whether an output is computed in each micro-step, and not once in the update. */
static bool is_of_micro_steps(const ckpt_tape *t, int32_t fetch)
{
    for (int32_t i = 0; i < t->n_ops; i++)
        if (t->ops.data[i].fetch == fetch)
            return t->fetches.data[fetch].param < 0 && t->ops.data[i].phase != PHASE_UPDATE;
    return !t->trains; /* another stage computes it */
}

/* One value for those of n micro-steps, so that the shape of an output does not depend on the plan:
 * the mean of floats, as for the loss, and the sum of integers. */
static void join_scalars(enum ckpt_dtype dtype, const void *src, int64_t n, void *dst)
{
    double sum = 0;
    for (int64_t m = 0; m < n; m++) {
        float one = dtype == CKPT_F32 ? ((const float *)src)[m] : 0;
        if (dtype == CKPT_BF16)
            ckpt_from_bf16((const uint16_t *)src + m, &one, 1);
        sum += dtype == CKPT_I32 ? (double)((const int32_t *)src)[m] : (double)one;
    }
    const float mean = (float)(sum / (double)n);
    if (dtype == CKPT_I32)
        *(int32_t *)dst = (int32_t)sum;
    else if (dtype == CKPT_BF16)
        ckpt_to_bf16(&mean, dst, 1);
    else
        *(float *)dst = mean;
}

int ckpt_fetch(ckpt_program *p, const char *name, void *dst, int64_t bytes)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    NOT_NULL(name);
    NOT_NULL(dst);
    if (!p->fetches)
        return refuse_plan_only(p);
    int32_t i = program_find_fetch(p, name);
    if (i < 0)
        return error_set(CKPT_ENAME, "there is no output '%s'", name);
    const struct io_buffer *from = &p->fetches[i];
    const struct ckpt_desc *d = &p->tape->tensors.data[p->tape->fetches.data[i].tensor].desc;
    const int64_t has = d->ndim ? from->bytes : from->slice;
    if (bytes != has)
        return error_set(CKPT_EINVAL, "output '%s' has %lld bytes, not %lld", name, (long long)has,
                         (long long)bytes);
    if (!p->steps || p->submitted - p->steps == DEVICE_IN_FLIGHT)
        return error_set(CKPT_EINVAL, "output '%s': %s", name,
                         p->steps ? "two steps are under way: fetch before the second"
                                  : "no step was run yet");
    const char *src = from->data[slot_of(p->steps - 1)];
    if (from->bytes > has)
        join_scalars(d->dtype, src, from->bytes / has, dst);
    else
        memcpy(dst, src, (size_t)bytes);
    return 0;
}

int ckpt_program_desc(const ckpt_program *p, const char *name, struct ckpt_desc *desc)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    NOT_NULL(name);
    NOT_NULL(desc);
    int32_t i = find_feed(p, name);
    bool in = i >= 0;
    if (!in)
        i = program_find_fetch(p, name);
    if (i < 0)
        return error_set(CKPT_ENAME, "there is no input or output '%s'", name);
    const struct tensor *v =
        &p->tape->tensors
             .data[in ? p->tape->feeds.data[i].tensor : p->tape->fetches.data[i].tensor];
    *desc = v->desc;
    desc->offset = 0;
    if (desc->ndim && (in || is_of_micro_steps(p->tape, i)))
        desc->shape[0] *= p->tape->n_micro;
    desc_dense(desc);
    return 0;
}

int ckpt_set_lr(ckpt_program *p, float lr)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    if (!(lr >= 0 && lr <= FLT_MAX))
        return error_set(CKPT_EINVAL, "a learning rate of %g: give a finite one, 0 or more",
                         (double)lr);
    p->lr = lr;
    return 0;
}

static int check_fed(struct ckpt_program *p)
{
    for (int32_t i = 0; i < p->tape->n_feeds; i++)
        if (!p->feeds[i].fed)
            return error_set(CKPT_EINVAL, "input '%s' was never fed", p->tape->feeds.data[i].name);
    return 0;
}

/* An input that was not fed again keeps its value: copies it from the other in-flight slot. */
static void refresh_feeds(struct ckpt_program *p, int slot)
{
    for (int32_t i = 0; i < p->tape->n_feeds; i++) {
        struct io_buffer *buffer = &p->feeds[i];
        if (!buffer->stale[slot])
            continue;
        memcpy(buffer->data[slot], buffer->data[!slot], (size_t)buffer->bytes);
        buffer->stale[slot] = false;
    }
}

/* printf shows the sign of a NaN, which is that of the processor. */
static float without_nan_sign(float value)
{
    return isnan(value) ? NAN : value;
}

/* The mean over the micro-steps, in order. */
static float read_loss(const struct ckpt_program *p, int slot)
{
    double sum = 0;
    if (p->loss < 0)
        return NAN;
    const float *loss = (const float *)p->fetches[p->loss].data[slot];
    if (program_is_shared(p)) /* the update fetched the sum over all ranks */
        return without_nan_sign((float)((double)loss[0] / p->tape->n_micro /
                                        sharing_losses(&p->programs->ranks->sharing)));
    for (int32_t m = 0; m < p->tape->n_micro; m++)
        sum += loss[m];
    return without_nan_sign((float)(sum / p->tape->n_micro));
}

/* Names the source of the first value that is not finite.  Neither this step counts nor the one
 * after it, which has changed nothing either.  Returns 0 or a code, with the sentence. */
static int trace_nan(struct ckpt_program *p, int slot, bool index, char *where, size_t size)
{
    int rc = p->programs->memory->device->ops->sync(p->programs->memory->device);
    program_abandon(p, rc);
    *p->halt = 0;
    return rc ? programs_fail_device(p->programs, p, rc)
              : program_find_nan(p, slot, index, where, size);
}

static int report_output(struct ckpt_program *p, int slot, int32_t output)
{
    char where[300];
    int rc = trace_nan(p, slot, false, where, sizeof where);
    if (rc)
        return rc;
    return error_set(CKPT_ENAN,
                     "step %lld: the output '%s' is not finite; the first value that is not "
                     "comes from %s",
                     (long long)(p->before + p->steps) + 1, p->tape->fetches.data[output].name,
                     where);
}

static int report_nan(struct ckpt_program *p, int slot, float loss)
{
    char where[300];
    int rc = trace_nan(p, slot, false, where, sizeof where);
    if (rc)
        return rc;
    return error_set(CKPT_ENAN,
                     "step %lld: loss %g, gradient norm %g; the first value that is not finite "
                     "comes from %s; the weights of the step before are kept",
                     (long long)(p->before + p->steps) + 1, (double)loss, p->grad_norm, where);
}

/* Kernels of this step found an index out of range.  Neither it nor a step after it changed
 * anything. spread: the other ranks have a loss or norm that is not finite, and ask for its
 * origin. */
static int report_bad_index(struct ckpt_program *p, int slot, bool spread)
{
    const struct index_report *report = &p->bad_index[slot];
    struct device *d = p->programs->memory->device;
    char name[300], micro[40] = "";
    int rc = 0;
    if (program_is_shared(p) && spread) {
        rc = trace_nan(p, slot, true, name, sizeof name);
    } else {
        rc = program_abandon(p, d->ops->sync(d));
        rc = rc ? programs_fail_device(p->programs, p, rc) : 0;
        *p->halt = 0;
    }
    if (rc)
        return rc;
    tape_op_name(p->tape, (int32_t)(uint32_t)report->call - 1, name, sizeof name);
    if (p->tape->n_micro > 1)
        snprintf(micro, sizeof micro, " of micro-step %d",
                 (int)(report->call >> 32) % p->tape->n_micro + 1);
    return error_set(CKPT_EINDEX, "step %lld: %s%s: index %d at place %lld is not in [0, %lld)%s",
                     (long long)(p->before + p->steps) + 1, name, micro,
                     (int)(int32_t)(uint32_t)report->first, (long long)(report->first >> 32),
                     (long long)report->size,
                     p->trains ? "; the weights of the step before are kept" : "");
}

/* The same on another stage. */
static int report_elsewhere(struct ckpt_program *p, int rank)
{
    struct device *d = p->programs->memory->device;
    int rc = program_abandon(p, d->ops->sync(d));
    *p->halt = 0;
    return rc ? programs_fail_device(p->programs, p, rc)
              : error_set(CKPT_EINDEX,
                          "step %lld: an index out of range on rank %d, which names it",
                          (long long)(p->before + p->steps) + 1, rank);
}

/* A rank had no data.  Neither this step nor a step after it changed anything. */
static int report_abandoned(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct device *d = ps->memory->device;
    int rc = program_abandon(p, d->ops->sync(d));
    if (rc)
        return programs_fail_device(ps, p, rc);
    *p->halt = 0;
    ps->ranks->requested[CKPT_REQUEST_ABANDON] = false;
    ps->ranks->request[CKPT_REQUEST_ABANDON] = 0; /* one for a step after it */
    return error_set(CKPT_ESTOP,
                     "step %lld: a rank had no data for it; the weights of the step before are "
                     "kept",
                     (long long)(p->before + p->steps) + 1);
}

/* The step whose update made a weight infinite or NaN: this one, or the step before if a host
 * thread finished its update late; else 0. */
static int64_t broken_update(const struct ckpt_program *p)
{
    int32_t why = __atomic_load_n(p->halt, __ATOMIC_RELAXED);
    int64_t step = p->before + p->steps + 1;
    if (why == HALT_UPDATE + (int32_t)(p->optimizer->updates & 1))
        return step;
    return why >= HALT_UPDATE && !isfinite(p->grad_norm) ? step - 1 : 0;
}

/* Makes the instructions again if a later compile moved the arena and ran out of memory for them.
 */
static int ensure_prepared(struct ckpt_program *p)
{
    if (p->lowered.whole)
        return 0;
    int rc = p->programs->memory->device->ops->sync(p->programs->memory->device);
    return rc ? programs_fail_device(p->programs, p, rc) : program_prepare(p);
}

/* The request to save shares its number with the seconds of a step that a rank tells of itself
 * (dist/pace.h): this much for every rank that asks, so smaller numbers are seconds. */
#define SAVE_ASKED 0x1p20f

/* The updates before that of the step in a slot: the same number on all ranks. */
static int64_t update_of(const struct ckpt_program *p, int slot)
{
    return p->runs[slot * p->tape->n_micro].opt_step;
}

/* This rank's requests to all ranks are sent with the step, if it trains: others carry none, and
 * requests wait for one that does. */
static void set_requests(struct ckpt_program *p, int slot)
{
    for (int i = 0; i < CKPT_REQUESTS && program_is_shared(p); i++) {
        if (p->request[i] < 0)
            continue;
        float asked = (float)ranks_take_request(p->programs->ranks, i);
        if (i == CKPT_REQUEST_SAVE)
            asked =
                asked > 0 ? SAVE_ASKED : pace_send(&p->programs->ranks->pace, update_of(p, slot));
        if (asked > 0 && i == CKPT_REQUEST_ABANDON)
            asked = NAN; /* makes the norm of the gradients NaN, on all ranks */
        for (int32_t m = 0; m < p->tape->n_micro; m++)
            p->runs[slot * p->tape->n_micro + m].request[i] = asked;
    }
}

/* After a step all ranks know what any rank requested in it. */
static void read_requests(struct ckpt_program *p, int slot)
{
    struct ranks *job = p->programs->ranks;
    for (int i = 0; i < CKPT_REQUESTS; i++) {
        if (p->request[i] < 0)
            continue;
        float sum = ((const float *)p->fetches[p->request[i]].data[slot])[0];
        if (i == CKPT_REQUEST_SAVE && sum < SAVE_ASKED)
            pace_receive(&job->pace, update_of(p, slot), sum);
        else
            job->requested[i] |= sum != 0;
    }
}

static int compare_ranks(struct ckpt_program *p)
{
    const struct programs *ps = p->programs;
    const struct ranks_step s = {.first = !p->compared,
                                 .steps = programs_digest_steps(ps),
                                 .updates = programs_count_updates(ps),
                                 .lr = p->lr};
    return ranks_before_step(ps->ranks, &s);
}

/* An update gets the number of updates before it, over all programs of its optimizer.  Steps in
 * flight count: if one of them fails, the later ones change nothing. */
static int check_in_flight(const struct ckpt_program *p)
{
    bool own = p->submitted - p->steps == DEVICE_IN_FLIGHT;
    if (!own && (!p->optimizer || program_under_way(p) < DEVICE_IN_FLIGHT))
        return 0;
    return error_set(CKPT_EINVAL, "%d steps are under way%s: call ckpt_wait before the next",
                     (int)DEVICE_IN_FLIGHT, own ? "" : " by this optimizer");
}

/* Steps of one optimizer are waited for in the order of their submission. */
static int check_sequence(const struct ckpt_program *p)
{
    if (p->submitted == p->steps)
        return error_set(CKPT_EINVAL, "no step is under way");
    if (!p->optimizer || p->sequence[slot_of(p->steps)] == p->optimizer->waited)
        return 0;
    return error_set(CKPT_EINVAL,
                     "a step of another program with this optimizer was submitted before: wait "
                     "for that first");
}

int ckpt_submit(ckpt_program *p)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    if (programs_only_plan(p->programs))
        return refuse_plan_only(p);
    int rc = check_in_flight(p);
    if (!rc && !p->programs->ranks->request[CKPT_REQUEST_ABANDON])
        rc = check_fed(p);
    if (!rc)
        rc = params_check_whole(p->programs->params);
    if (!rc)
        rc = ranks_give_up(p->programs->ranks, params_check_late(p->programs->params));
    if (!rc)
        rc = ensure_prepared(p);
    int slot = slot_of(p->submitted);
    if (!rc)
        rc = program_open_slot(p, slot);
    if (!rc && program_is_shared(p))
        rc = compare_ranks(p);
    if (!rc)
        rc = deferred_begin(p);
    if (rc)
        return rc;
    p->compared = true;
    if (p->programs->first_step <= 0)
        p->programs->first_step = clock_seconds();
    for (struct ckpt_program *o = p->programs->first; o && p->programs->mixed; o = o->next)
        o->compared |= p->trains && o->trains;
    if (p->programs->searched)
        programs_forget_searches(p->programs);
    p->begun[slot] = clock_seconds();
    refresh_feeds(p, slot);
    program_set_runs(p, slot);
    set_requests(p, slot);
    rc = host_counts_run(p, slot);
    if (rc)
        return error_set(rc, "the counts of a step could not be computed");
    program_submit(p, slot);
    p->submitted++;
    if (p->optimizer)
        p->sequence[slot] = p->optimizer->submitted++;
    return 0;
}

static int finish_step(struct ckpt_program *p, int slot, float value)
{
    read_requests(p, slot);
    if (p->norm >= 0)
        p->grad_norm = without_nan_sign(((const float *)p->fetches[p->norm].data[slot])[0]);
    if (p->programs->ranks->requested[CKPT_REQUEST_ABANDON])
        return report_abandoned(p);
    const bool finite = !p->trains || (isfinite(value) && isfinite(p->grad_norm));
    if (p->bad_index[slot].call)
        return report_bad_index(p, slot, !finite);
    int64_t broken = p->trains ? broken_update(p) : 0;
    if (broken)
        return program_report_update(p, broken, broken > p->before + p->steps ? p->grad_norm : NAN);
    if (!finite)
        return report_nan(p, slot, value);
    int32_t output = p->trains ? -1 : program_find_bad_output(p, slot);
    if (output >= 0)
        return report_output(p, slot, output);
    if (p->trains)
        pace_step(&p->programs->ranks->pace, p->begun[slot], p->ended);
    p->steps++;
    p->programs->params->updates += p->trains;
    if (p->optimizer) {
        p->optimizer->updates++;
        p->optimizer->waited++;
    }
    return p->timing ? timing_step(p->timing, p) : 0;
}

int ckpt_wait(ckpt_program *p, float *loss)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    struct device *d = p->programs->memory->device;
    int slot = slot_of(p->steps), rc = check_sequence(p);
    if (rc)
        return rc;
    rc = p->timing ? d->ops->sync(d) : 0;
    rc = rc ? rc : d->ops->reach(d, p->mark[slot], &p->ended);
    if (!rc && p->programs->ranks->sharing.unlike) /* in a thread of the device, which goes on */
        rc = p->programs->ranks->comm->ops->check(p->programs->ranks->comm);
    if (rc)
        return program_abandon(p, programs_fail_device(p->programs, p, rc));
    rc = params_check_lost(p->programs->params); /* reported to the caller that waited first */
    if (rc)
        return program_abandon(p, rc);
    int at = -1;
    rc = program_share_outputs(p, slot, &at);
    if (rc || at >= 0)
        return rc ? rc : report_elsewhere(p, at);
    float value = read_loss(p, slot);
    if (loss)
        *loss = value;
    return finish_step(p, slot, value);
}

int ckpt_step(ckpt_program *p, float *loss)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    int rc = 0;
    while (p->submitted > p->steps && !rc)
        rc = ckpt_wait(p, NULL);
    if (!rc && p->optimizer && program_under_way(p))
        rc = error_set(CKPT_EINVAL,
                       "a step of another program with this optimizer is under way: call "
                       "ckpt_wait before");
    if (!rc)
        rc = ckpt_submit(p);
    return rc ? rc : ckpt_wait(p, loss);
}

int ckpt_set_random_step(ckpt_program *p, int64_t step)
{
    NOT_NULL(p);
    ERRORS_TO(p->programs->error);
    if (p->trains)
        return error_set(CKPT_EINVAL,
                         "the random numbers of a program that trains follow from its steps");
    if (step < 0 || step >= INT64_C(1) << 52)
        return error_set(CKPT_EINVAL, "step %lld is not in [0, 2^52)", (long long)step);
    bool anew = !p->explicit_step && p->programs->ranks->rank;
    if (anew && p->submitted != p->steps)
        return error_set(CKPT_EINVAL, "a step of the program is under way");
    program_draw_as(p, step);
    if (!anew)
        return CKPT_OK;
    p->explicit_step = true;
    /* A recorded step keeps its micro-step numbers, which were those of the rank. */
    int rc = program_record(p);
    return rc ? programs_fail_device(p->programs, p, rc) : CKPT_OK;
}
