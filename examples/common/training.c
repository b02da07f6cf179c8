/* SPDX-License-Identifier: Apache-2.0 */
/* The training loop: see training.h. */
#include <math.h>
#include <time.h>
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "dump.h"
#include "outputs.h"
#include "say.h"
#include "signals.h"
#include "training.h"

enum {
    FEW = 10,          /* steps whose mean is the first, and the last, loss of the summary */
    LARGE = 1000000000 /* parameters; compiling a larger model takes noticeable time */
};

/* ---- before the first step ------------------------------------------------------------------ */

void training_setup_begin(struct training_setup *s, ckpt *c, int64_t parameters, bool plan_only)
{
    ckpt_plan_in_full(c, plan_only);
    ckpt_watch_plan(c, ckpt_progress_plan, stderr);
    ckpt_gather_refusals(c, true);
    *s = (struct training_setup){parameters >= LARGE && !plan_only, time(NULL)};
    if (s->says)
        printf("setting up: a plan, its memory, and the first values\n");
    fflush(stdout);
}

void training_setup_end(const struct training_setup *s)
{
    if (s->says)
        printf("set up in %.0f s\n", difftime(time(NULL), s->start));
    fflush(stdout);
}

/* ---- step times and reports ----------------------------------------------------------------- */

/* Uses the time when the step ended, not when the host noticed: submitting the next step can block
 * until then if queues are full. */
double training_lap(struct training *t, const ckpt_program *p)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    ckpt_program_info(p, &info);
    double lap = (info.ended - t->last) * 1e3;

    t->last = info.ended;
    t->ms += lap;
    t->waited_ms += t->data_ms;
    const double *seconds = stragglers_look(&t->stragglers, t->context);
    if (t->log)
        t->log->rank_seconds = seconds;
    return lap;
}

void training_ended(struct training *t, double value)
{
    struct training_summary *s = &t->summary;

    s->n++;
    if (s->n <= FEW)
        s->first += (value - s->first) / (double)s->n;
    s->last += (value - s->last) / (double)(s->n < FEW ? s->n : FEW);
    t->ended++;
}

int training_show(struct training *t, ckpt_program *p, int64_t step, double shown, float loss)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    ckpt_program_info(p, &info);
    if (t->progress)
        ckpt_progress_step(t->progress, t->ended, shown, info.arena_bytes);
    return step == t->first && t->options->dump ? dump_step(t->context, p, t->options->dump, loss)
                                                : 0;
}

double training_rate(const struct training *t, int64_t step)
{
    return ckpt_schedule(&t->options->rates, t->options->lr, step);
}

/* ran: the step has outputs. */
static int log_step(struct training *t, const ckpt_program *p, int64_t step, double loss, double ms,
                    int64_t tokens, bool ran)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    ckpt_program_info(p, &info);
    log_step_begin(t->log, step + 1, loss, &info);
    log_float(t->log, "lr", training_rate(t, step));
    log_float(t->log, "ms", ms);
    if (t->part)
        log_text(t->log, "bucket", t->part);
    if (t->reads)
        log_float(t->log, "data_ms", t->data_ms);
    if (tokens)
        log_float(t->log, "tokens_per_second", (double)tokens * 1e3 / ms);
    int rc = ran && t->fields ? t->fields(t, step) : 0;
    log_step_end(t->log, &info);
    return rc;
}

int training_wait(struct training *t, ckpt_program *p, float *loss)
{
    int rc = ckpt_wait(p, loss);

    t->abandoned |= rc == CKPT_ESTOP;
    return rc;
}

int training_end(struct training *t, ckpt_program *p, int64_t step, int64_t tokens)
{
    float loss = NAN;
    int rc = training_wait(t, p, &loss);
    double ms = training_lap(t, p);

    if ((!rc || rc == CKPT_ENAN) && log_step(t, p, step, (double)loss, ms, tokens, !rc))
        return -1;
    if (rc)
        return say_fail("%s", ckpt_error(t->context));
    training_ended(t, (double)loss);
    return training_show(t, p, step, (double)loss, loss);
}

/* The arena is that of the largest program, which need not be the training program. */
static void print_memory(const struct ckpt_program_info *info)
{
    char peak[32], arena[32], budget[32], rss[32];

    printf("memory: peak %s of a step, as planned", say_bytes(peak, info->planned_peak));
    if (info->arena_bytes != info->planned_peak)
        printf(", %s with the other programs", say_bytes(arena, info->arena_bytes));
    printf("; budget %s; resident set of the process %s\n",
           info->budget == INT64_MAX ? "none" : say_bytes(budget, info->budget),
           say_bytes(rss, say_rss()));
}

void training_report(const struct training *t, const char *what, const ckpt_program *p)
{
    const struct training_summary *s = &t->summary;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    char process[32];

    ckpt_program_info(p, &info);
    if (ckpt_stop_requested(t->context))
        printf("stopped after %lld of %lld steps\n", (long long)(t->first + s->n),
               (long long)t->options->steps);
    if (s->n > FEW)
        printf("%s: %.4f over the first %d steps, %.4f over the last %d\n", what, s->first, FEW,
               s->last, FEW);
    print_memory(&info);
    if (t->reads && t->ms > 0)
        printf("data: steps waited for it during %.1f %% of their time\n",
               100 * t->waited_ms / t->ms);
    ckpt_profile_print(p, stdout);
    if (info.process_bytes)
        printf("device: the process takes %s of it\n", say_bytes(process, info.process_bytes));
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int end_one(struct training *t)
{
    int rc = t->end(t, t->ended);

    if (t->abandoned)
        t->submitted = t->ended; /* with the steps after it */
    else
        t->broken |= rc != 0;
    return rc;
}

static int end_all(struct training *t)
{
    int rc = 0;

    while (t->ended < t->submitted && !rc)
        rc = end_one(t);
    return rc;
}

static int save_slot(const struct training *t, const char *path, enum ckpt_slot slot,
                     ckpt_param_filter saves)
{
    if (!path)
        return 0;
    if (ckpt_save_params_aliased(t->context, path, slot, saves, t->alias, t->saves_user))
        return say_fail("%s", ckpt_error(t->context));
    return 0;
}

static int save_codes(const struct training *t, const char *path)
{
    if (path &&
        ckpt_save_params_int8(t->context, path, CKPT_VALUE, t->saves, t->alias, t->saves_user))
        return say_fail("%s", ckpt_error(t->context));
    return 0;
}

/* Weights that were written after this step, by --save-every, are not written again. */
static int save_weights(struct training *t)
{
    const struct training_options *o = t->options;

    if (t->written == t->ended)
        return 0;
    if (save_slot(t, o->save, CKPT_VALUE, t->saves) ||
        save_slot(t, o->save_low, CKPT_VALUE, t->saves_low) ||
        save_slot(t, o->save_ema, CKPT_EMA, t->saves) || save_codes(t, o->save_int8) ||
        resume_keep_weights(&o->state, t->context, t->ended) ||
        (o->directory && t->write_directory(t)))
        return -1;
    t->written = t->ended;
    return 0;
}

static bool has_weights(const struct training *t)
{
    const struct training_options *o = t->options;

    return o->save || o->save_low || o->save_ema || o->save_int8 || o->directory;
}

/* Waits until the last state is on the disk, and keeps it. */
static int end_save(struct training *t)
{
    const int64_t step = t->begun;
    int rc = 0;

    t->begun = -1;
    if (step >= 0)
        rc = resume_keep(&t->options->state, t->context, step);
    t->broken |= rc != 0;
    return rc;
}

static int save_state(struct training *t)
{
    int rc = end_save(t);

    if (!rc && t->notes)
        rc = t->notes(t);
    if (!rc)
        rc = resume_save(&t->options->state, t->context);
    t->begun = rc ? -1 : t->ended;
    return rc || ckpt_is_saving(t->context) ? rc : end_save(t);
}

/* Waits for the submitted steps, then writes the state, and the weights if they are asked for. */
static int save_all(struct training *t, bool weights)
{
    int rc = end_all(t);
    double from = run_clock_now();

    bool saves = !rc && t->options->state.save && t->ended != t->saved;

    if (saves)
        rc = save_state(t);
    if (!rc && weights)
        rc = save_weights(t);
    t->broken |= rc != 0;
    t->saved = t->ended;
    t->last = run_clock_now();
    run_clock_save(&t->clock, from, t->last);
    return rc;
}

/* Keeps the state in the memory of an elastic job.  Rank 0 alone knows whether more ranks wait: it
 * leaves, and the others follow. */
static int keep_in_memory(struct training *t)
{
    struct resume_options *state = t->grows;
    int rc = end_all(t);
    double from = run_clock_now();

    if (!rc && t->notes)
        rc = t->notes(t);
    if (!rc)
        rc = resume_keep_in_memory(state, t->context);
    t->last = run_clock_now();
    run_clock_look(&t->clock, from, t->last);
    state->grows = !rc && ckpt_job_grows(t->context);
    t->broken |= rc || state->grows;
    return state->grows ? -1 : rc;
}

/* All ranks stop after the same step, whichever rank received the request. */
static bool goes_on(const struct training *t)
{
    return t->submitted < t->options->steps && !ckpt_stop_requested(t->context);
}

/* Whether an action with an interval of `every` steps (0: never) is due after `step` steps. */
static bool is_due(int64_t every, int64_t step)
{
    return every && step && step % every == 0;
}

bool training_is_stopped(const ckpt *c)
{
    return ckpt_ranks(c) == 1 && ckpt_stop_requested(c);
}

static int look(struct training *t)
{
    double from = run_clock_now();
    int rc = end_all(t);

    for (int i = 0; i < TRAINING_LOOKS && !rc; i++)
        if (is_due(t->look[i].every, t->submitted) && !training_is_stopped(t->context))
            rc = t->look[i].look(t->run, t->submitted);
    t->last = run_clock_now();
    run_clock_look(&t->clock, from, t->last);
    return rc;
}

/* The first step number of a resumed run is skipped: the earlier run has looked at it. */
static bool looks(const struct training *t)
{
    bool due = false;

    for (int i = 0; i < TRAINING_LOOKS; i++)
        due |= is_due(t->look[i].every, t->submitted);
    return due && t->submitted > t->first;
}

int training_look_last(struct training *t)
{
    int rc = 0;

    for (int i = 0; i < TRAINING_LOOKS && !rc; i++)
        if (t->look[i].at_end && t->ended > t->first && !ckpt_stop_requested(t->context))
            rc = t->look[i].look(t->run, t->ended);
    return rc;
}

/* Several ranks make a step together.  One whose data fail takes part in it, and in those that the
 * others submit until they learn of it, so that no rank waits in vain and all are after the same
 * step. */
static int feed(struct training *t)
{
    if (t->select && t->select(t, t->submitted))
        return -1;
    if (!t->lacks && t->feed(t, t->submitted)) {
        t->lacks = ckpt_ranks(t->context) > 1;
        if (!t->lacks)
            return -1;
    }
    if (t->lacks)
        ckpt_request_abandon(t->context);
    return 0;
}

static int submit(struct training *t)
{
    if (feed(t))
        return -1;
    ckpt_program *p = t->program ? t->program(t, t->submitted) : t->only;
    return ckpt_set_lr(p, (float)training_rate(t, t->submitted)) || ckpt_submit(p)
               ? say_fail("%s", ckpt_error(t->context))
               : 0;
}

static int run_step(struct training *t)
{
    int rc = looks(t) ? look(t) : 0;
    double from = run_clock_now();

    if (!goes_on(t))
        return rc; /* asked to stop meanwhile */
    if (!rc)
        rc = submit(t);
    if (rc)
        return rc;
    t->submitted++;
    if (t->submitted - t->ended > t->ahead)
        rc = end_one(t);
    run_clock_step(&t->clock, from, run_clock_now());
    if (!rc && resume_due(&t->options->state, t->submitted))
        rc = save_all(t, true);
    if (t->options->state.elastic)
        ckpt_job_grows(t->context); /* answers those that wait */
    if (!rc && is_due(t->options->state.elastic, t->submitted))
        rc = keep_in_memory(t);
    return rc;
}

/* Saves on SIGUSR1 or by the clock, after the same step on all ranks. */
static int save_on_request(struct training *t)
{
    const struct training_options *o = t->options;
    const char *file = o->state.save  ? o->state.save
                       : o->save      ? o->save
                       : o->save_ema  ? o->save_ema
                       : o->save_int8 ? o->save_int8
                                      : o->directory;

    if (!file) {
        fprintf(stderr,
                "%s: SIGUSR1: nothing is saved without --save-state FILE or --save FILE; "
                "continuing\n",
                say_program);
        return 0;
    }
    int rc = save_all(t, true) || end_save(t) ? -1 : 0;
    if (!rc)
        say_print("%s: %s, after %lld steps\n", o->state.save ? "state" : "weights", file,
                  (long long)t->ended);
    fflush(stdout);
    return rc;
}

/* Rank 0's clock decides for all ranks.  The others learn of it two steps later, so time must be
 * left for these steps, too.  At least one step is run, so that repeated runs make progress. */
static void watch_clock(struct training *t)
{
    int ahead = 1 + (int)t->ahead + (ckpt_ranks(t->context) > 1 ? 2 : 0);
    double now = run_clock_now();

    if (ckpt_rank(t->context))
        return;
    if (run_clock_ends(&t->clock, now, ahead)) {
        printf("time limit: %s\n", t->options->time_limit);
        ckpt_request_stop(t->context);
    } else if (run_clock_saves(&t->clock, now)) {
        ckpt_request_save(t->context);
    }
}

static void start_clock(struct training *t)
{
    const struct training_options *o = t->options;

    t->clock = (struct run_clock){.limit = o->limit,
                                  .every = o->state.seconds,
                                  .saves = o->state.save || (has_weights(t) && o->state.when),
                                  .begun = o->begun};
    run_clock_start(&t->clock, run_clock_now());
}

/* Data, a look or a save failed, and no step: the steps so far are as good as they were.  Several
 * ranks save together, so all must know of the failure: after a look or a save the others do not.
 */
static void rescue(struct training *t)
{
    const struct resume_options *o = &t->options->state;

    if (!o->save || t->broken || t->submitted == t->first ||
        (ckpt_ranks(t->context) > 1 && !t->abandoned))
        return;
    if (!save_all(t, false) && !end_save(t) && !ckpt_rank(t->context))
        say_note("state: %s, after %lld steps, for --resume", o->save, (long long)t->ended);
}

/* The weights in fp32, which is at least what a slot of them takes. */
static int64_t weights_bytes(const struct training *t)
{
    int64_t n = 0;

    for (int i = 0; i < ckpt_param_count(t->context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        if (!ckpt_param_info(t->context, ckpt_param_at(t->context, i), &info) &&
            (!t->saves || t->saves(t->saves_user, info.name)))
            n += info.numel * 4;
    }
    return n;
}

int training_fits(const struct training *t)
{
    const struct training_options *o = t->options;
    int64_t state = o->state.save ? ckpt_state_bytes(t->context) : 0, weights = weights_bytes(t);
    /* codes, and weights in their own dtypes: at least */
    const struct output_size files[] = {{"--save-state", o->state.save, state},
                                        {"--save", o->save, weights},
                                        {"--save-low", o->save_low, weights},
                                        {"--save-ema", o->save_ema, weights},
                                        {"--save-int8", o->save_int8, weights / 4},
                                        {"--save-hf", o->directory, weights / 2},
                                        {"--save-pt2", o->archive, weights / 2}};

    if (state < 0)
        return say_fail("%s", ckpt_error(t->context));
    return ckpt_rank(t->context) ? 0 : outputs_fit(files, sizeof files / sizeof *files);
}

int training_run(struct training *t)
{
    int rc = 0;

    t->submitted = t->ended = t->first;
    t->saved = t->written = t->begun =
        -1; /* write the resumed state again even if no step is left */
    t->last = run_clock_now();
    if (ckpt_rank(t->context) == 0 && stragglers_open(&t->stragglers, ckpt_ranks(t->context)))
        return -1;
    if (ckpt_rank(t->context) == 0)
        t->progress = ckpt_progress_open(stderr, "train", t->options->steps);
    signals_watch(t->context);
    start_clock(t);
    if (t->options->state.elastic)
        rc = keep_in_memory(t);
    while (goes_on(t) && !rc) {
        rc = run_step(t);
        watch_clock(t);
        if (!rc && ckpt_save_requested(t->context))
            rc = save_on_request(t);
    }
    if (!rc)
        rc = save_all(t, false) || end_save(t) ? -1 : 0;
    else
        rescue(t);
    signals_watch(NULL);
    if (t->progress)
        ckpt_progress_close(t->progress);
    t->progress = NULL;
    if (t->log)
        t->log->rank_seconds = NULL;
    stragglers_close(&t->stragglers);
    return rc;
}

/* ---- the end -------------------------------------------------------------------------------- */

int training_save(struct training *t, int rc)
{
    const struct training_options *o = t->options;
    const char *what = rc ? "weights of the last good step" : "weights";

    if (!rc && o->state.save)
        say_print("state: %s\n", o->state.save);
    if (rc && t->ended == t->first) {
        if (has_weights(t))
            say_note("no step was made: no weights are written");
        return rc;
    }
    if (save_weights(t))
        return -1;
    if (o->save)
        say_print("%s: %s\n", what, o->save);
    if (o->save && resume_keeps(&o->state))
        say_print("those of other steps: %s-NNNNNNNN, by the number of steps\n", o->save);
    if (o->save_low)
        say_print("%s for low noise levels: %s\n", what, o->save_low);
    if (o->directory)
        say_print("%s: %s\n", what, o->directory);
    if (o->save_ema)
        say_print("moving average of the %s: %s\n", what, o->save_ema);
    if (o->save_int8)
        say_print("codes of the %s: %s\n", what, o->save_int8);
    return rc;
}
