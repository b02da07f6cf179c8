/*
 * Training: rectified flow (Liu et al. 2022) with logit-normal times.
 *
 *     x_u = (1 - u) x0 + u eps;  the network predicts v = x0 - eps;  loss = mean (pred - v)^2
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../common/dump.h"
#include "ckpt_file.h"
#include "run.h"
#include "schedule.h"

/* ---- recording ----------------------------------------------------------------------------- */

/* (1 - u) x0 + u eps; frames that are not noised stay x0. */
static ckpt_tensor mix(ckpt_tape *t, ckpt_tensor x0, ckpt_tensor eps, ckpt_tensor u,
                       ckpt_tensor x_mask)
{
    struct ckpt_desc d = ckpt_desc_of(t, x0);
    int64_t batch = d.shape[0], frames = d.shape[2];
    ckpt_tensor level = ckpt_reshape(t, u, 5, (int64_t[]){batch, 1, 1, 1, 1});
    ckpt_tensor x =
        ckpt_add(t, ckpt_mul(t, x0, ckpt_affine(t, level, -1.f, 1.f)), ckpt_mul(t, eps, level));

    if (!x_mask.id)
        return x;
    return ckpt_where(t, ckpt_reshape(t, x_mask, 5, (int64_t[]){batch, 1, frames, 1, 1}), x, x0);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct stdit_run *r = user;
    const struct stdit_geometry *g = &r->data.geometry;
    int64_t z[] = {batch, r->data.channels, g->frames, g->height, g->width};

    ckpt_label(t, "noise");
    struct stdit_inputs in = stdit_record_inputs(r, t, batch, r->drops);
    ckpt_tensor x0 = in.x, u = ckpt_input(t, "u", CKPT_F32, 1, &batch);
    if (r->masked)
        in.x_mask = ckpt_input(t, "x_mask", CKPT_I32, 2, (int64_t[]){batch, g->frames});
    ckpt_tensor eps =
        r->data.eps ? ckpt_input(t, "eps", CKPT_F32, 5, z) : ckpt_randn(t, CKPT_F32, 5, z);
    in.x = mix(t, x0, eps, u, in.x_mask);
    ckpt_tensor both = stdit_forward(&r->model, t, g, &in);
    ckpt_label(t, "loss");
    ckpt_tensor pred = ckpt_cast(t, ckpt_slice(t, both, 1, 0, r->data.channels), CKPT_F32);
    if (r->options.dump)
        dump_record(r->context, t, pred);
    return ckpt_mse(t, pred, ckpt_sub(t, x0, eps), in.x_mask);
}

int stdit_compile(struct stdit_run *r)
{
    const struct stdit_options *o = &r->options;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;

    adamw.lr = (float)o->lr;
    adamw.eps = 1e-15f;
    adamw.weight_decay = (float)o->weight_decay;
    adamw.clip_norm = (float)o->clip_norm;
    adamw.ema_decay = (float)o->ema_decay;
    adamw.grad_dtype = strcmp(o->grad_dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    if (o->video_dir && stdit_vae_compile(&r->data.vae, STDIT_ENCODE, true))
        return -1;
    if (ckpt_compile(r->context, record, r, &adamw, o->batch, &r->training))
        return say_fail("%s", ckpt_error(r->context));
    return o->video_dir ? stdit_vae_compile(&r->data.vae, STDIT_ENCODE, false) : 0;
}

/* ---- steps --------------------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static double milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* What is said of the loss: the mean of the first and of the last few steps. */
struct summary {
    double first, last;
    int64_t n;
};

enum { FEW = 10 };

static void summarise(struct summary *s, double loss)
{
    s->n++;
    if (s->n <= FEW)
        s->first += (loss - s->first) / (double)s->n;
    s->last += (loss - s->last) / (double)(s->n < FEW ? s->n : FEW);
}

/* The steps under way and what becomes of them. */
struct course {
    struct stdit_run *run;
    struct summary *summary;
    ckpt_progress *progress;
    int64_t bytes;            /* of the arena, for the progress line */
    int64_t submitted, ended; /* steps */
    int64_t saved;            /* steps in the state that was written last */
    double last;              /* when the last one ended */
};

static double rate(const struct stdit_run *r, int64_t step)
{
    return stdit_warmup(r->options.lr, step, r->options.warmup);
}

/* Feeds the next step and hands it over; -1 after a sentence. */
static int submit(struct course *c, struct stdit_batch *b)
{
    struct stdit_run *r = c->run;
    int64_t step = c->submitted;

    if (stdit_batch_fill(b, r, step) || (r->options.video_dir && stdit_batch_encode(b, r, step)))
        return -1;
    ckpt_set_lr(r->training, (float)rate(r, step));
    if (stdit_batch_feed(b, r, r->training, r->drops) ||
        stdit_batch_feed_training(b, r, r->training) || ckpt_submit(r->training))
        return say_fail("%s", ckpt_error(r->context));
    c->submitted++;
    return 0;
}

/* Waits for the oldest step under way. */
static int end(struct course *c)
{
    struct stdit_run *r = c->run;
    float loss = NAN;
    int rc = ckpt_wait(r->training, &loss);
    double now = milliseconds();

    if (!rc || rc == CKPT_ENAN)
        stdit_log_step(r, c->ended + 1, loss, rate(r, c->ended), now - c->last);
    c->last = now;
    if (rc)
        return say_fail("%s", ckpt_error(r->context));
    summarise(c->summary, loss);
    c->ended++;
    if (c->progress)
        ckpt_progress_step(c->progress, c->ended - r->first, loss, c->bytes);
    return c->ended == r->first + 1 && r->options.dump
               ? dump_step(r->context, r->training, r->options.dump, loss)
               : 0;
}

/* Waits for the steps under way and writes the state behind them. */
static int save_state(struct course *c)
{
    const struct stdit_run *r = c->run;
    int rc = 0;

    while (c->ended < c->submitted && !rc)
        rc = end(c);
    if (!rc && r->options.state.save && c->ended > c->saved)
        rc = resume_save(&r->options.state, r->context);
    c->saved = c->ended;
    return rc;
}

/* While a step runs the next one is prepared, unless the device has to encode it; a dump looks at
 * the first one alone. */
static int steps(struct stdit_run *r, struct stdit_batch *b, struct summary *s)
{
    struct ckpt_program_info info;
    struct course c = {.run = r,
                       .summary = s,
                       .submitted = r->first,
                       .ended = r->first,
                       .saved = r->first,
                       .last = milliseconds()};
    int64_t ahead = r->options.dump || r->options.video_dir ? 0 : 1;
    int rc = 0;

    c.progress = ckpt_progress_open(stderr, "train", r->options.steps - r->first);
    ckpt_program_info(r->training, &info);
    c.bytes = info.arena_bytes;
    while (c.submitted < r->options.steps && !interrupted && !rc) {
        rc = submit(&c, b);
        if (!rc && c.submitted - c.ended > ahead)
            rc = end(&c);
        if (!rc && resume_due(&r->options.state, c.submitted))
            rc = save_state(&c);
    }
    if (!rc)
        rc = save_state(&c);
    if (c.progress)
        ckpt_progress_close(c.progress);
    return rc;
}

/* The autoencoder has its own file. */
static bool is_ours(void *user, const char *name)
{
    (void)user;
    return !stdit_vae_owns(name);
}

/* After a failed step the weights are those of the last good one: they are saved all the same. */
static int save(const struct stdit_run *r, const char *path, enum ckpt_slot slot, const char *what)
{
    if (!path)
        return 0;
    if (ckpt_save_chosen(r->context, path, slot, is_ours, NULL))
        return say_fail("%s", ckpt_error(r->context));
    printf("%s: %s\n", what, path);
    return 0;
}

static void report(const struct stdit_run *r, const struct summary *s)
{
    struct ckpt_program_info info;
    char planned[32], actual[32], budget[32], rss[32], process[32];

    ckpt_program_info(r->training, &info);
    if (interrupted)
        printf("stopped after %lld of %lld steps\n", (long long)(r->first + s->n),
               (long long)r->options.steps);
    if (s->n > FEW)
        printf("loss: %.4f over the first %d steps, %.4f over the last %d\n", s->first, FEW,
               s->last, FEW);
    printf("memory: peak planned %s, actual %s, budget %s; resident set of the process %s\n",
           say_bytes(planned, info.planned_peak), say_bytes(actual, info.arena_bytes),
           info.budget == INT64_MAX ? "none" : say_bytes(budget, info.budget),
           say_bytes(rss, say_rss()));
    ckpt_profile_print(r->training, stdout);
    if (info.process_bytes)
        printf("device: the process takes %s of it\n", say_bytes(process, info.process_bytes));
}

int stdit_train(struct stdit_run *r)
{
    struct stdit_batch batch;
    struct summary summary = {0};
    int rc;

    if (stdit_batch_create(&batch, r, r->options.batch))
        return -1;
    signal(SIGINT, interrupt);
    rc = steps(r, &batch, &summary);
    signal(SIGINT, SIG_DFL);
    stdit_batch_free(&batch);
    report(r, &summary);
    const char *what = rc ? "weights of the last good step" : "weights";
    if (!rc && r->options.state.save)
        printf("state: %s\n", r->options.state.save);
    if (save(r, r->options.save, CKPT_VALUE, what) ||
        (r->options.ema_decay > 0 &&
         save(r, r->options.save_ema, CKPT_EMA, "moving average of the weights")))
        return -1;
    return rc;
}
