/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling: Euler steps of the learned flow from noise (u = 1) to a clip (u = 0), with
 * classifier-free guidance, from the moving average of the weights.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/average.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"
#include "schedule.h"

struct sampler {
    struct stdit_run *run;
    struct stdit_shape shape; /* that of the data, with the samples of a step */
    struct stdit_batch batch; /* with guidance: the clips with their captions, then again without */
    int64_t clips;
    bool guided, stopped; /* stopped: broken off, as the run was asked to stop */
    int64_t step;         /* behind which the run goes on; 0: it is at its end */
    float *v; /* [shape.batch, ...] */
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct stdit_run *r = user;
    const struct stdit_shape *s = r->data.shape;
    struct stdit_inputs in = stdit_record_inputs(r, s, t, batch, true);
    ckpt_tensor both = stdit_forward(&r->model, t, &s->geometry, &in);
    ckpt_tensor v = ckpt_cast(t, ckpt_slice(t, both, 1, 0, r->data.channels), CKPT_F32);

    ckpt_output(t, "v", v);
    return v;
}

/* The unguided half has the text mask and frame rate of the guided one, and the null caption. */
static void repeat_text(struct sampler *s)
{
    struct stdit_batch *b = &s->batch;
    size_t tokens = (size_t)(s->clips * s->run->data.tokens);

    for (int64_t i = s->clips; i < b->size; i++) {
        b->drop[i] = 1;
        b->fps[i] = b->fps[i - s->clips];
    }
    memcpy(b->mask + tokens, b->mask, tokens * sizeof *b->mask);
}

/* Rows of the data for their text; noise in place of their clips. */
static int start(struct sampler *s)
{
    struct stdit_run *r = s->run;
    int64_t row = stdit_data_z(&r->data, &s->shape);
    bool drops = r->drops;

    r->drops = false; /* those of training */
    int rc = stdit_batch_fill(&s->batch, r, &(struct stdit_turn){.shape = &s->shape});
    r->drops = drops;
    if (s->guided)
        repeat_text(s);
    ckpt_fill_normal((uint64_t)r->options.sample_seed, 0, STREAM_SAMPLE, s->batch.z,
                     s->clips * row);
    return rc;
}

/* The flow at noise level u for every clip, in s->v. */
static int flow(struct sampler *s, double u)
{
    struct stdit_run *r = s->run;
    int64_t row = stdit_data_z(&r->data, &s->shape);
    int64_t n = s->clips * row, whole = s->batch.size * row;

    for (int64_t i = 0; i < s->batch.size; i++)
        s->batch.t[i] = (float)(1000 * u);
    if (s->guided)
        memcpy(s->batch.z + n, s->batch.z, (size_t)n * sizeof *s->batch.z);
    if (stdit_batch_feed(&s->batch, r, r->sampling, true) || ckpt_step(r->sampling, NULL) ||
        ckpt_fetch(r->sampling, "v", s->v, whole * 4))
        return say_fail("%s", ckpt_error(r->context));
    for (int64_t i = 0; s->guided && i < n; i++)
        s->v[i] = s->v[n + i] + (float)r->options.guidance * (s->v[i] - s->v[n + i]);
    return 0;
}

static int integrate(struct sampler *s)
{
    struct stdit_run *r = s->run;
    int64_t steps = r->options.sample_steps, n = s->clips * stdit_data_z(&r->data, &s->shape);
    ckpt_progress *progress =
        ckpt_rank(r->context) || s->step ? NULL : ckpt_progress_open(stderr, "sample", steps);
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    int rc = 0;

    ckpt_program_info(r->sampling, &info);
    for (int64_t i = 0; i < steps && !rc; i++) {
        double u = stdit_shifted(s->shape.shift, 1 - (double)i / (double)steps);
        double next = stdit_shifted(s->shape.shift, 1 - (double)(i + 1) / (double)steps);
        s->stopped = s->step && training_is_stopped(r->context);
        if (s->stopped)
            break;
        rc = flow(s, u);
        for (int64_t k = 0; k < n && !rc; k++)
            s->batch.z[k] += s->v[k] * (float)(u - next);
        if (progress)
            ckpt_progress_step(progress, i + 1, NAN, info.arena_bytes);
    }
    if (progress)
        ckpt_progress_close(progress);
    return rc;
}

static bool is_guided(const struct stdit_run *r)
{
    return r->options.guidance != 1 && !r->data.null_caption;
}

static int64_t clips_of(const struct stdit_run *r)
{
    const struct stdit_options *o = &r->options;

    return o->library.micro_batch > 0 ? o->library.micro_batch : o->train.batch;
}

int stdit_compile_sampling(struct stdit_run *r)
{
    int64_t batch = is_guided(r) ? 2 * clips_of(r) : clips_of(r);

    if (ckpt_compile(r->context, record, r, NULL, batch, &r->sampling))
        return say_fail("sampling: %s", ckpt_error(r->context));
    return 0;
}

static int sample(struct sampler *s)
{
    struct stdit_run *r = s->run;

    s->v = malloc((size_t)(s->shape.batch * stdit_data_z(&r->data, &s->shape)) * sizeof *s->v);
    if (!s->v)
        return say_fail("no memory for sampling");
    if (start(s) || integrate(s))
        return -1;
    if (ckpt_rank(r->context) > 0 || s->stopped)
        return 0; /* all have sampled, one writes */
    if (!s->shape.clips.frames)
        return stdit_write_pictures(r, s->batch.z, s->clips, s->step);
    if (stdit_write_videos(r, s->batch.z, s->clips, s->step))
        return -1;
    if (!s->step)
        vae_coder_report(r->data.vae.coder[STDIT_DECODE]);
    return 0;
}

static int sample_behind(struct stdit_run *r, int64_t step)
{
    struct sampler s = {.run = r,
                        .shape = *r->data.shape,
                        .guided = is_guided(r),
                        .clips = clips_of(r),
                        .step = step};

    s.shape.batch = s.guided ? 2 * s.clips : s.clips;
    if (stdit_batch_create(&s.batch, r, &s.shape, 1))
        return -1;
    int rc = sample(&s);
    free(s.v);
    stdit_batch_free(&s.batch);
    if (s.stopped)
        say_print("step %lld: not sampled: the run was asked to stop\n", (long long)step);
    return rc;
}

/* What was trained is saved: the moving average takes the place of the weights. */
int stdit_sample(struct stdit_run *r)
{
    bool average = r->data.shape->training && r->options.train.ema_decay > 0;

    if (average && average_swap(r->context))
        return -1;
    return sample_behind(r, 0);
}

int stdit_sample_between(struct stdit_run *r, int64_t step)
{
    if (!r->options.sample_ema)
        return sample_behind(r, step);
    if (average_swap(r->context))
        return -1;
    int rc = sample_behind(r, step);
    return average_swap(r->context) || rc ? -1 : 0;
}
