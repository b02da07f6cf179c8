/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sampling: Euler steps of the learned flow from noise (u = 1) to a clip (u = 0), with
 * classifier-free guidance, from the moving average of the weights.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/average.h"
#include "../../common/compiled.h"
#include "../../common/memory.h"
#include "../../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "sample.h"

/* ---- the program --------------------------------------------------------------------------- */

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct video_run *r = user;
    const struct video_shape *s = r->data.shapes.shape;
    struct stdit_inputs in = stdit_record_inputs(r, s, t, batch, true);

    if (r->given)
        in.x_mask = ckpt_input(t, "x_mask", CKPT_I32, 2, (int64_t[]){batch, s->geometry.frames});
    ckpt_tensor both = stdit_forward(r->stdit, t, &s->geometry, &in);
    ckpt_tensor v = ckpt_cast(t, ckpt_slice(t, both, 1, 0, r->data.channels), CKPT_F32);

    ckpt_output(t, "v", v);
    return v;
}

static bool is_guided(const struct video_run *r)
{
    return r->options.guidance != 1 && !r->data.null_caption;
}

static int64_t clips_of(const struct video_run *r)
{
    const struct video_options *o = &r->options;

    return o->library.micro_batch > 0 ? o->library.micro_batch : o->train.batch;
}

int stdit_compile_sampling(struct video_run *r)
{
    int64_t batch = is_guided(r) ? 2 * clips_of(r) : clips_of(r);

    int rc = ckpt_compile(r->context, record, r, NULL, batch, &r->sampling);
    return compiled(r->context, rc, r->sampling, "sampling: ");
}

/* ---- memory -------------------------------------------------------------------------------- */

int stdit_sampler_open(struct stdit_sampler *s, struct video_run *r, int64_t clips, int64_t step)
{
    int64_t frames = r->data.shapes.shape->geometry.frames;

    *s = (struct stdit_sampler){.run = r,
                                .shape = *r->data.shapes.shape,
                                .clips = clips,
                                .guided = is_guided(r),
                                .step = step};
    s->shape.batch = s->guided ? 2 * clips : clips;
    if (video_batch_open(&s->batch, r, &s->shape, 1))
        return -1;
    s->v = MEMORY_FOR(sizeof *s->v, s->shape.batch, video_data_z(&r->data, &s->shape));
    s->mask = MEMORY_FOR(sizeof *s->mask, clips, frames);
    s->noised = MEMORY_FOR(sizeof *s->noised, clips, frames);
    return s->v && s->mask && s->noised ? 0 : say_fail("no memory for sampling");
}

void stdit_sampler_close(struct stdit_sampler *s)
{
    free(s->v);
    free(s->mask);
    free(s->noised);
    video_batch_close(&s->batch);
}

/* ---- text ---------------------------------------------------------------------------------- */

/* The unguided half has the text mask and frame rate of the guided half, and the null caption. */
static void repeat_text(struct stdit_sampler *s)
{
    struct video_batch *b = &s->batch;
    size_t tokens = (size_t)(s->clips * s->run->data.tokens);

    for (int64_t i = s->clips; i < b->size; i++) {
        b->null[i] = 1;
        b->fps[i] = b->fps[i - s->clips];
    }
    memcpy(b->mask + tokens, b->mask, tokens * sizeof *b->mask);
}

int stdit_sampler_text(struct stdit_sampler *s, int64_t first)
{
    struct video_run *r = s->run;
    bool drops = r->drops;

    const int64_t own = s->shape.batch * ckpt_sample_group(r->context);
    r->drops = false; /* random drops are for training */
    int rc = stdit_batch_fill(&s->batch, &(struct video_selection){.shape = &s->shape,
                                                                   .before = first,
                                                                   .first = own,
                                                                   .all = own + s->shape.batch});
    r->drops = drops;
    if (s->guided)
        repeat_text(s);
    return rc;
}

/* ---- given frames -------------------------------------------------------------------------- */

/* Elements of a channel and of a latent frame. */
struct sizes {
    int64_t channel, frame;
};

static struct sizes sizes_of(const struct stdit_sampler *s)
{
    const struct video_geometry *g = &s->shape.geometry;
    int64_t frame = g->height * g->width;

    return (struct sizes){g->frames * frame, frame};
}

/* z = (1 - u) z + u noise, for one frame; the two factors are rounded as in Open-Sora. */
static void add_noise(struct stdit_sampler *s, int64_t clip, int64_t frame, float time)
{
    struct sizes n = sizes_of(s);
    float keep = 1.f - time / 1000.f;

    for (int64_t c = 0; c < s->run->data.channels; c++) {
        int64_t at = (clip * s->run->data.channels + c) * n.channel + frame * n.frame;
        for (int64_t i = at; i < at + n.frame; i++)
            s->batch.z[i] = keep * s->batch.z[i] + (1.f - keep) * s->edit_noise[i];
    }
}

/*
 * x_mask at a time: a frame is updated if 1000 mask >= time, and gets its noise for this time
 * before its first update.  A frame with mask 1 is noise from the start and is updated at every
 * time, even if rounding makes the first time larger than 1000.
 */
static void set_frames(struct stdit_sampler *s, float time)
{
    int64_t frames = s->shape.geometry.frames, n = s->clips * frames;
    int32_t *x_mask = s->batch.x_mask;

    for (int64_t i = 0; i < n; i++) {
        x_mask[i] = s->mask[i] == 1 || s->mask[i] * 1000.f >= time;
        if (x_mask[i] && !s->noised[i])
            add_noise(s, i / frames, i % frames, time);
        s->noised[i] |= x_mask[i];
    }
    if (s->guided)
        memcpy(x_mask + n, x_mask, (size_t)n * sizeof *x_mask);
}

static void begin_frames(struct stdit_sampler *s)
{
    for (int64_t i = 0; i < s->clips * s->shape.geometry.frames; i++)
        s->noised[i] = s->mask[i] == 1;
}

/* ---- steps --------------------------------------------------------------------------------- */

/* The flow at this time for every clip, in s->v. */
static int flow(struct stdit_sampler *s, float time)
{
    struct video_run *r = s->run;
    struct video_batch *b = &s->batch;
    int64_t row = video_data_z(&r->data, &s->shape);
    int64_t n = s->clips * row, whole = b->size * row;

    for (int64_t i = b->first; i < b->first + b->size; i++)
        b->t[i] = time;
    if (s->guided)
        memcpy(b->z + n, b->z, (size_t)n * sizeof *b->z);
    if (stdit_batch_feed(b, r->sampling, true) ||
        (r->given &&
         ckpt_feed(r->sampling, "x_mask", b->x_mask, b->size * s->shape.geometry.frames * 4)) ||
        ckpt_step(r->sampling, NULL) || ckpt_fetch(r->sampling, "v", s->v, whole * 4))
        return say_fail("%s", ckpt_error(r->context));
    for (int64_t i = 0; s->guided && i < n; i++)
        s->v[i] = s->v[n + i] + (float)r->options.guidance * (s->v[i] - s->v[n + i]);
    return 0;
}

/* One Euler step; frames that are not updated at this time stay. */
static void advance(struct stdit_sampler *s, float by)
{
    struct sizes n = sizes_of(s);
    int64_t channels = s->run->data.channels, frames = n.channel / n.frame;

    for (int64_t k = 0; k < s->clips * channels * frames; k++) {
        int64_t frame = k % frames, clip = k / frames / channels;
        if (s->run->given && !s->batch.x_mask[clip * frames + frame])
            continue;
        for (int64_t i = k * n.frame; i < (k + 1) * n.frame; i++)
            s->batch.z[i] += s->v[i] * by;
    }
}

int stdit_sampler_draw(struct stdit_sampler *s)
{
    struct video_run *r = s->run;
    const struct stdit_shift shift = stdit_shift_of(r->stdit->config.dtype, &s->shape.geometry);
    int64_t steps = r->options.sample_steps;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    int rc = 0;

    ckpt_program_info(r->sampling, &info);
    if (r->given)
        begin_frames(s);
    for (int64_t i = 0; i < steps && !rc; i++) {
        double u = stdit_shifted(shift, 1 - (double)i / (double)steps);
        double next = stdit_shifted(shift, 1 - (double)(i + 1) / (double)steps);
        s->stopped = s->step && training_is_stopped(r->context);
        if (s->stopped)
            break;
        if (r->given)
            set_frames(s, (float)(1000 * u));
        rc = flow(s, (float)(1000 * u));
        if (!rc)
            advance(s, (float)(u - next));
        if (s->progress)
            ckpt_progress_step(s->progress, ++s->done, NAN, info.arena_bytes);
    }
    return rc;
}

/* ---- samples of a training run ------------------------------------------------------------- */

/* Text from rows of the data; noise in place of their clips. */
static int draw_noise(struct stdit_sampler *s)
{
    int64_t n = s->clips * video_data_z(&s->run->data, &s->shape);

    if (stdit_sampler_text(s, 0))
        return -1;
    ckpt_fill_normal((uint64_t)s->run->options.sample_seed, 0, STREAM_SAMPLE, s->batch.z, n);
    return stdit_sampler_draw(s);
}

static int sample(struct stdit_sampler *s)
{
    struct video_run *r = s->run;
    bool shown = !ckpt_rank(r->context) && !s->step;

    if (shown)
        s->progress = ckpt_progress_open(stderr, "sample", r->options.sample_steps);
    int rc = draw_noise(s);
    if (shown)
        ckpt_progress_close(s->progress);
    if (rc)
        return -1;
    if (ckpt_rank(r->context) > 0 || s->stopped)
        return 0; /* all ranks sample, one writes */
    if (!s->shape.clips.frames)
        return stdit_write_pictures(r, s->batch.z, s->clips, s->step);
    if (stdit_write_videos(r, s->batch.z, s->clips, s->step))
        return -1;
    if (!s->step)
        vae_coder_report(r->data.vae.coder[STDIT_DECODE]);
    return 0;
}

static int sample_behind(struct video_run *r, int64_t step)
{
    struct stdit_sampler s;
    int rc = stdit_sampler_open(&s, r, clips_of(r), step) ? -1 : sample(&s);

    stdit_sampler_close(&s);
    if (s.stopped)
        say_print("step %lld: not sampled: the run was asked to stop\n", (long long)step);
    return rc;
}

/* The trained weights are already saved, so the moving average may replace them. */
int stdit_sample(struct video_run *r)
{
    bool average = r->data.shapes.shape->training && r->options.train.ema_decay > 0;

    if (average && average_swap(r->context))
        return -1;
    return sample_behind(r, 0);
}

int stdit_sample_between(void *run, int64_t step)
{
    struct video_run *r = run;

    if (!r->options.sample_ema)
        return sample_behind(r, step);
    if (average_swap(r->context))
        return -1;
    int rc = sample_behind(r, step);
    return average_swap(r->context) || rc ? -1 : 0;
}
