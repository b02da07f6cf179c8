/* The steps: which clips they see, and what is said of them. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "../common/dump.h"
#include "run.h"

/* ---- what a step sees ---------------------------------------------------------------------- */

struct vae_program *vae_program_of(struct vae_run *r, int64_t step)
{
    const struct vae_options *o = &r->options;
    float u[2];

    ckpt_fill_uniform((uint64_t)o->library.seed, (uint64_t)step, VAE_STREAM_LENGTH, u, 2);
    if (u[0] < o->image_share)
        return &r->program[0]; /* the shortest: an image, where images are shared in */
    int first = o->image_only ? 1 : 0, n = o->n_lengths - first;
    return &r->program[first + (int)(u[1] * (float)n)];
}

/* Rows follow each other; a clip that is shorter than its row begins anywhere in it. */
int vae_feed(const struct vae_run *r, const struct vae_program *p, int64_t step, float *buffer)
{
    const struct vae_data *d = &r->data;
    int64_t clip = p->frames * vae_data_frame(d), batch = r->options.batch;

    for (int64_t i = 0; i < batch; i++) {
        int64_t sample = step * batch + i, row = sample % d->rows;
        float u;
        ckpt_fill_uniform((uint64_t)r->options.library.seed, (uint64_t)sample, VAE_STREAM_START, &u,
                          1);
        int64_t start = (int64_t)(u * (float)(d->frames - p->frames + 1));
        memcpy(buffer + i * clip, vae_data_row(d, row, start), (size_t)clip * sizeof *buffer);
    }
    return ckpt_feed(p->program, "x", buffer, batch * clip * (int64_t)sizeof *buffer);
}

/* The noise of tensors, in the order of their rows. */
static int feed_noise(const struct vae_run *r, const struct vae_program *p, const char *name,
                      const float *noise, int64_t step)
{
    struct ckpt_desc d;
    int64_t row = 1, batch = r->options.batch;

    if (ckpt_program_desc(p->program, name, &d))
        return CKPT_ENAME;
    for (int i = 1; i < d.ndim; i++)
        row *= d.shape[i];
    float *rows = malloc((size_t)(batch * row) * sizeof *rows);
    if (!rows)
        return CKPT_ENOMEM;
    for (int64_t i = 0; i < batch; i++)
        memcpy(rows + i * row, noise + (step * batch + i) % r->data.rows * row,
               (size_t)row * sizeof *rows);
    int rc = ckpt_feed(p->program, name, rows, batch * row * (int64_t)sizeof *rows);
    free(rows);
    return rc;
}

static int feed(const struct vae_run *r, const struct vae_program *p, int64_t step, float *buffer)
{
    int rc = vae_feed(r, p, step, buffer);

    if (!rc && r->data.noise)
        rc = feed_noise(r, p, "noise_2d", r->data.noise_2d, step);
    if (!rc && r->data.noise)
        rc = feed_noise(r, p, "noise", r->data.noise, step);
    return rc;
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

/* What is said of the loss: the mean of the first and of the last few steps, an element each. */
struct summary {
    double first, last;
    int64_t n;
};

enum { FEW = 10 };

static void summarise(struct summary *s, double l1)
{
    s->n++;
    if (s->n <= FEW)
        s->first += (l1 - s->first) / (double)s->n;
    s->last += (l1 - s->last) / (double)(s->n < FEW ? s->n : FEW);
}

/* The steps under way and what becomes of them. */
struct course {
    struct vae_run *run;
    struct summary summary;
    ckpt_progress *progress;
    float *buffer;
    int64_t submitted, ended; /* steps */
    int64_t saved;            /* steps in the state that was written last */
    double last;              /* when the last one ended */
};

static double rate(const struct vae_run *r, int64_t step)
{
    int64_t warmup = r->options.warmup;

    return step < warmup ? r->options.lr * (double)(step + 1) / (double)(warmup + 1)
                         : r->options.lr;
}

/* Feeds the next step and hands it over; -1 after a sentence. */
static int submit(struct course *c)
{
    struct vae_run *r = c->run;
    struct vae_program *p = vae_program_of(r, c->submitted);

    ckpt_set_lr(p->program, (float)rate(r, c->submitted));
    if (feed(r, p, c->submitted, c->buffer) || ckpt_submit(p->program))
        return say_fail("%s", ckpt_error(r->context));
    c->submitted++;
    return 0;
}

/* The mean over micro-steps of what a program puts out; NaN where it does not. */
static float term(const struct vae_program *p, const char *name)
{
    struct ckpt_desc d;
    double sum = 0;

    if (ckpt_program_desc(p->program, name, &d))
        return NAN;
    int64_t n = d.ndim ? d.shape[0] : 1;
    float *x = malloc((size_t)n * sizeof *x);
    int rc = x ? ckpt_fetch(p->program, name, x, n * (int64_t)sizeof *x) : CKPT_ENOMEM;
    for (int64_t i = 0; !rc && i < n; i++)
        sum += (double)x[i] / (double)n;
    free(x);
    return rc ? NAN : (float)sum;
}

static void terms(const struct vae_program *p, struct vae_result *result)
{
    result->l1 = term(p, VAE_L1);
    result->kl = term(p, VAE_KL);
    result->lpips = term(p, VAE_LPIPS);
    result->commitment = term(p, VAE_COMMITMENT);
}

/* Waits for the oldest step under way. */
static int end(struct course *c)
{
    struct vae_run *r = c->run;
    struct vae_program *p = vae_program_of(r, c->ended);
    struct vae_result result = {NAN, NAN, NAN, NAN, NAN, 0, rate(r, c->ended), 0};
    struct ckpt_program_info info;
    int rc = ckpt_wait(p->program, &result.loss);
    double now = milliseconds();

    result.ms = now - c->last;
    c->last = now;
    if (!rc)
        terms(p, &result);
    if (!rc && r->options.vq &&
        vae_quantizer_update(&r->quantizer, r->context, p->program, &result.used))
        return -1;
    if (!rc || rc == CKPT_ENAN)
        vae_log_step(r, p, c->ended + 1, &result);
    if (rc)
        return say_fail("%s", ckpt_error(r->context));
    summarise(&c->summary, result.l1);
    c->ended++;
    ckpt_program_info(p->program, &info);
    ckpt_progress_step(c->progress, c->ended - r->first, c->summary.last, info.arena_bytes);
    return c->ended == r->first + 1 && r->options.dump
               ? dump_step(r->context, p->program, r->options.dump, result.loss)
               : 0;
}

/* Whether the step before the next one is of another program: the two share their memory. */
static bool changes(const struct course *c)
{
    return c->submitted > 0 &&
           vae_program_of(c->run, c->submitted) != vae_program_of(c->run, c->submitted - 1);
}

/* Waits for the steps under way and writes the state behind them. */
static int save_state(struct course *c)
{
    const struct vae_run *r = c->run;
    int rc = 0;

    while (c->ended < c->submitted && !rc)
        rc = end(c);
    if (!rc && r->options.state.save && c->ended > c->saved)
        rc = resume_save(&r->options.state, r->context);
    c->saved = c->ended;
    return rc;
}

/* While a step runs the next one is prepared, if it is of the same length; a dump looks at the
 * first one alone, and a codebook moves between steps. */
static int steps(struct course *c)
{
    struct vae_run *r = c->run;
    int ahead = r->options.dump || r->options.vq ? 0 : 1;
    int rc = 0;

    while (c->submitted < r->options.steps && !interrupted && !rc) {
        while (!rc && c->ended < c->submitted && changes(c))
            rc = end(c);
        if (!rc)
            rc = submit(c);
        if (!rc && c->submitted - c->ended > ahead)
            rc = end(c);
        if (!rc && resume_due(&r->options.state, c->submitted))
            rc = save_state(c);
    }
    return rc ? rc : save_state(c);
}

/* ---- the end ------------------------------------------------------------------------------- */

/* After a failed step the weights are those of the last good one: they are saved all the same. */
static int save(const struct vae_run *r, const char *path, enum ckpt_slot slot, const char *what)
{
    if (!path)
        return 0;
    if (ckpt_save(r->context, path, slot))
        return say_fail("%s", ckpt_error(r->context));
    printf("%s: %s\n", what, path);
    return 0;
}

static void report(const struct vae_run *r, const struct summary *s)
{
    struct ckpt_program_info info;
    char planned[32], actual[32], budget[32], rss[32], process[32];
    const struct vae_program *longest = &r->program[r->options.n_lengths - 1];

    ckpt_program_info(longest->program, &info);
    if (interrupted)
        printf("stopped after %lld of %lld steps\n", (long long)(r->first + s->n),
               (long long)r->options.steps);
    if (s->n > FEW)
        printf("difference of a value: %.4f over the first %d steps, %.4f over the last %d\n",
               s->first, FEW, s->last, FEW);
    printf("memory: peak planned %s, actual %s, budget %s; resident set of the process %s\n",
           say_bytes(planned, info.planned_peak), say_bytes(actual, info.arena_bytes),
           info.budget == INT64_MAX ? "none" : say_bytes(budget, info.budget),
           say_bytes(rss, say_rss()));
    ckpt_profile_print(longest->program, stdout);
    if (info.process_bytes)
        printf("device: the process takes %s of it\n", say_bytes(process, info.process_bytes));
}

int vae_train(struct vae_run *r)
{
    const struct vae_options *o = &r->options;
    struct course c = {.run = r,
                       .submitted = r->first,
                       .ended = r->first,
                       .saved = r->first,
                       .last = milliseconds()};
    int64_t longest = o->length[o->n_lengths - 1];

    c.buffer = malloc((size_t)(o->batch * longest * vae_data_frame(&r->data)) * sizeof *c.buffer);
    if (!c.buffer)
        return say_fail("no memory for a batch of %lld clips", (long long)o->batch);
    c.progress = ckpt_progress_open(stderr, "train", o->steps - r->first);
    signal(SIGINT, interrupt);
    int rc = steps(&c);
    signal(SIGINT, SIG_DFL);
    ckpt_progress_close(c.progress);
    free(c.buffer);
    report(r, &c.summary);
    const char *what = rc ? "weights of the last good step" : "weights";
    if (!rc && o->state.save)
        printf("state: %s\n", o->state.save);
    if (save(r, o->save, CKPT_VALUE, what) ||
        (o->ema_decay > 0 && save(r, o->save_ema, CKPT_EMA, "moving average of the weights")))
        return -1;
    return rc;
}
