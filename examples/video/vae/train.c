/* SPDX-License-Identifier: Apache-2.0 */
/* The steps: their clips, and the printed lines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

/* ---- the clips of a step ------------------------------------------------------------------- */

struct vae_program *vae_step_program(struct vae_run *r, int64_t step)
{
    const struct vae_options *o = &r->options;
    float u[2];

    ckpt_fill_uniform((uint64_t)o->library.seed, (uint64_t)step, VAE_STREAM_LENGTH, u, 2);
    if (u[0] < o->image_share)
        return &r->program[0]; /* the shortest: a single image, with a share of images */
    int first = o->image_only ? 1 : 0, n = o->n_lengths - first;
    return &r->program[first + (int)(u[1] * (float)n)];
}

int64_t vae_step_sample(const struct vae_run *r, int64_t step)
{
    return (step * ckpt_ranks(r->context) + ckpt_rank(r->context)) * r->options.train.batch;
}

/* A clip shorter than its row starts anywhere in the row. */
int64_t vae_sample_start(const struct vae_run *r, int64_t sample, int64_t frames)
{
    float u;

    ckpt_fill_uniform((uint64_t)r->options.library.seed, (uint64_t)sample, VAE_STREAM_START, &u, 1);
    return (int64_t)(u * (float)(r->data.frames - frames + 1));
}

/* Copies the loader's next clip. */
static int take_read(const struct vae_run *r, float *to)
{
    struct loader_clip c;

    if (loader_take(r->ahead.loader, &c))
        return -1;
    vae_data_values(&r->data, c.rgb, c.frames, to);
    loader_release(r->ahead.loader);
    return 0;
}

/* Consecutive rows. */
static int take_clips(const struct vae_run *r, const struct vae_program *p, int64_t step)
{
    const struct vae_data *d = &r->data;
    int64_t clip = p->frames * vae_data_frame(d);

    for (int64_t i = 0; i < r->options.train.batch; i++) {
        int64_t sample = vae_step_sample(r, step) + i;
        if (!r->ahead.loader)
            vae_data_take(d, sample % d->rows, vae_sample_start(r, sample, p->frames), p->frames,
                          r->batch + i * clip);
        else if (take_read(r, r->batch + i * clip))
            return -1;
    }
    return 0;
}

static int feed_clips(const struct vae_run *r, const struct vae_program *p)
{
    int64_t clip = p->frames * vae_data_frame(&r->data);

    return ckpt_feed(p->program, "x", r->batch,
                     r->options.train.batch * clip * (int64_t)sizeof *r->batch);
}

/* The noise tensors of the data, in the order of their rows. */
static int feed_noise(const struct vae_run *r, const struct vae_program *p, const char *name,
                      const float *noise, int64_t step)
{
    struct ckpt_desc d;
    int64_t row = 1, batch = r->options.train.batch;

    if (ckpt_program_desc(p->program, name, &d))
        return CKPT_ENAME;
    for (int i = 1; i < d.ndim; i++)
        row *= d.shape[i];
    float *rows = malloc((size_t)(batch * row) * sizeof *rows);
    if (!rows)
        return CKPT_ENOMEM;
    for (int64_t i = 0; i < batch; i++)
        memcpy(rows + i * row, noise + (vae_step_sample(r, step) + i) % r->data.rows * row,
               (size_t)row * sizeof *rows);
    int rc = ckpt_feed(p->program, name, rows, batch * row * (int64_t)sizeof *rows);
    free(rows);
    return rc;
}

static int feed(const struct vae_run *r, const struct vae_program *p, int64_t step)
{
    int rc = feed_clips(r, p);

    if (!rc && r->data.noise)
        rc = feed_noise(r, p, "noise_2d", r->data.noise_2d, step);
    if (!rc && r->data.noise)
        rc = feed_noise(r, p, "noise", r->data.noise, step);
    return rc;
}

/* ---- steps --------------------------------------------------------------------------------- */

static struct vae_run *run_of(const struct training *t)
{
    return t->user;
}

static ckpt_program *program(const struct training *t, int64_t step)
{
    return vae_step_program(run_of(t), step)->program;
}

static int feed_step(struct training *t, int64_t step)
{
    struct vae_run *r = run_of(t);
    struct vae_program *p = vae_step_program(r, step);

    if (take_clips(r, p, step))
        return -1;
    if (r->ahead.loader)
        t->data_ms = loader_waited(r->ahead.loader) * 1e3;
    return feed(r, p, step) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

static int notes(struct training *t)
{
    struct loader *l = run_of(t)->ahead.loader;

    return l ? loader_note_bad(l, t->context) : 0;
}

/* The mean of an output over the micro-steps; NaN if the program has no such output. */
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

static int end(struct training *t, int64_t step)
{
    struct vae_run *r = run_of(t);
    struct vae_program *p = vae_step_program(r, step);
    struct vae_result result = {NAN, NAN, NAN, NAN, NAN, {0}, training_rate(t, step), 0, 0};
    int rc = training_wait(t, p->program, &result.loss);

    result.ms = training_lap(t, p->program);
    result.data_ms = t->data_ms;
    if (!rc)
        terms(p, &result);
    if (!rc && r->options.vq &&
        vae_quantizer_update(&r->quantizer, r->context, p->program, step, &result.codes))
        return -1;
    if (!rc || rc == CKPT_ENAN)
        vae_log_step(r, p, step + 1, &result);
    if (rc)
        return say_fail("%s", ckpt_error(r->context));
    training_ended(t, result.l1);
    return training_show(t, p->program, step, t->summary.last, result.loss);
}

int vae_open_steps(void *run, struct training *t)
{
    struct vae_run *r = run;
    const struct vae_options *o = &r->options;
    int64_t longest = o->length[o->n_lengths - 1];

    /* a codebook changes between steps, and a step in flight would hide the wait for clips */
    if (o->vq || o->video_dir)
        t->ahead = 0;
    t->reads = o->video_dir != NULL;
    t->feed = feed_step;
    t->program = program;
    t->end = end;
    t->notes = notes;
    t->user = r;
    r->batch =
        malloc((size_t)(o->train.batch * longest * vae_data_frame(&r->data)) * sizeof *r->batch);
    return r->batch ? vae_ahead_open(r)
                    : say_fail("no memory for a batch of %lld clips", (long long)o->train.batch);
}

void vae_close_steps(void *user)
{
    struct vae_run *r = user;

    vae_ahead_close(r);
    free(r->batch);
    r->batch = NULL;
}
