/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clips of future steps, for the loader.  The number of the sample determines where a clip
 * starts in its row.  vae_data_take cuts clips in memory at the same place, so both give the same
 * bytes.
 */
#include "../../common/clip.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

static int next(void *user, struct loader_clip *c)
{
    struct vae_ahead *a = user;
    struct vae_run *r = a->run;
    const struct vae_data *d = &r->data;

    if (a->taken == r->options.train.batch) {
        a->step++;
        a->taken = 0;
    }
    if (a->step >= r->options.train.steps)
        return 0;
    int64_t sample = vae_step_sample(r, a->step) + a->taken++;
    *c = (struct loader_clip){.sample = sample,
                              .row = sample % d->rows,
                              .frames = vae_step_program(r, a->step)->frames,
                              .height = d->height,
                              .width = d->width};
    return 1;
}

/* A clip of a whole file starts anywhere in the file; any other clip starts inside the frames of
 * its row. */
int vae_clip_read(const struct vae_run *r, struct loader_file *f, int64_t sample, int64_t row,
                  int64_t frames, uint8_t *rgb)
{
    const struct vae_data *d = &r->data;
    struct clip c = {.size = {d->width, d->height, true}, .frames = d->frames, .part = frames};
    double place = 0;
    float u;

    if (d->videos.whole) {
        if (d->lengths[row] < (frames - 1) * d->videos.stride + 1)
            return 0;
        ckpt_fill_uniform((uint64_t)r->options.library.seed, (uint64_t)sample, VAE_STREAM_START, &u,
                          1);
        place = (double)u;
        c.frames = frames;
    } else
        c.begin = vae_sample_start(r, sample, frames);
    struct video *v = loader_file_open(f, videos_find(&d->videos, row, place, &c));
    return !v || clip_take(&c, v, rgb) ? -1 : 1;
}

static int read_row(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                    double *fps)
{
    const struct vae_ahead *a = user;

    *fps = 0;
    return vae_clip_read(a->run, f, c->sample, row, c->frames, c->rgb);
}

static struct loader_need need_of(const struct vae_run *r)
{
    const struct vae_data *d = &r->data;
    int64_t longest = r->options.length[r->options.n_lengths - 1];
    int64_t clip = longest * d->height * d->width * 3;

    return (struct loader_need){clip, clip * r->options.train.batch, videos_pixels(&d->videos)};
}

int vae_ahead_plan(const struct vae_run *r)
{
    struct loader_need need = need_of(r);

    return loader_plan(&r->options.loader, &need, !ckpt_rank(r->context));
}

int vae_ahead_open(struct vae_run *r)
{
    struct vae_ahead *a = &r->ahead;

    *a = (struct vae_ahead){.run = r, .step = r->first};
    if (!r->options.video_dir)
        return 0;
    struct loader_need need = need_of(r);
    a->source = (struct loader_source){.next = next,
                                       .read = read_row,
                                       .rows = r->data.rows,
                                       .user = a,
                                       .known = r->bad,
                                       .name = videos_name,
                                       .names = &r->data.videos};
    return loader_open(&a->loader, &r->options.loader, &need, &a->source);
}

void vae_ahead_close(struct vae_run *r)
{
    loader_close(r->ahead.loader);
    r->ahead.loader = NULL;
}
