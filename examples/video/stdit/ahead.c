/* SPDX-License-Identifier: Apache-2.0 */
/* The clips of future steps, for the loader: in the order of the run; the seed determines the
 * crops. */
#include "../../common/clip.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

/* ---- selection ------------------------------------------------------------------------------ */

static int next(void *user, struct loader_clip *c)
{
    struct stdit_ahead *a = user;
    const struct video_run *r = a->run;

    if (!a->selection.shape || a->taken == a->selection.shape->batch) {
        if (a->step >= r->options.train.steps)
            return 0;
        if (video_order_next(&a->order, a->step, &a->selection))
            return -1;
        a->step++;
        a->taken = 0;
    }
    const struct video_clips *clips = &a->selection.shape->clips;
    int64_t at = a->taken++;
    *c = (struct loader_clip){.sample = video_selection_sample(&a->selection, &r->data.shapes, at),
                              .row = video_selection_row(&a->selection, &r->data.shapes, at),
                              .frames = clips->frames,
                              .height = clips->height,
                              .width = clips->width};
    return 1;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Whether the row has enough frames; an image (one frame) is never cut from a video. */
static bool has_frames(const struct video_data *d, const struct loader_clip *c, int64_t row)
{
    if (!d->shapes.size)
        return true;
    return c->frames == 1 ? d->shapes.size[row].frames == 1
                          : d->shapes.size[row].frames >= c->frames * d->videos.stride;
}

int stdit_clip_read(const struct video_data *d, uint64_t seed, int64_t sample,
                    struct loader_file *f, const struct loader_clip *c, int64_t row, double *fps)
{
    struct clip clip = {.size = {c->width, c->height, true}, .frames = c->frames};
    float place[4];

    if (!has_frames(d, c, row))
        return 0;
    ckpt_fill_uniform(seed, (uint64_t)sample, STREAM_CROP, place, 4);
    struct video *v = loader_file_open(f, videos_find(&d->videos, row, (double)place[0], &clip));
    if (!v || clip_take(&clip, v, c->rgb))
        return -1;
    *fps = v->fps;
    return 1;
}

static int read_row(void *user, struct loader_file *f, const struct loader_clip *c, int64_t row,
                    double *fps)
{
    const struct stdit_ahead *a = user;
    const struct video_data *d = &a->run->data;

    return stdit_clip_read(d, (uint64_t)a->run->options.library.seed,
                           video_sample_of(&d->shapes, c->sample, row), f, c, row, fps);
}

/* ---- memory of the loader -------------------------------------------------------------------- */

static struct loader_need need_of(const struct video_data *d)
{
    struct loader_need n = {.pixels = videos_pixels(&d->videos)};

    for (int i = 0; i < d->shapes.n; i++) {
        const struct video_clips *c = &d->shapes.shape[i].clips;
        int64_t clip = c->frames * c->height * c->width * 3, step = clip * d->shapes.shape[i].batch;
        n.clip = clip > n.clip ? clip : n.clip;
        n.step = step > n.step ? step : n.step;
    }
    return n;
}

int stdit_ahead_plan(const struct video_run *r)
{
    struct loader_need need = need_of(&r->data);

    return loader_plan(&r->options.loader, &need, !ckpt_rank(r->context));
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Skips to the current place in the order of the run. */
static int go_to(struct stdit_ahead *a, struct video_run *r)
{
    const char *place;

    if (video_order_open(&a->order, &r->data.shapes, r->options.stride,
                         (uint64_t)r->options.library.seed, ckpt_sample_group(r->context),
                         ckpt_sample_groups(r->context)))
        return -1;
    if (!r->data.shapes.buckets.n)
        return 0;
    place = video_order_place(&r->order);
    return place ? video_order_go(&a->order, place)
                 : say_fail("no memory for the place in the buckets");
}

int stdit_ahead_open(struct stdit_ahead *a, struct video_run *r)
{
    *a = (struct stdit_ahead){.run = r, .step = r->first};
    if (!r->options.video_dir)
        return 0;
    struct loader_need need = need_of(&r->data);
    a->source = (struct loader_source){.next = next,
                                       .read = read_row,
                                       .rows = r->data.shapes.rows,
                                       .user = a,
                                       .known = r->bad,
                                       .name = videos_name,
                                       .names = &r->data.videos};
    return go_to(a, r) ? -1 : loader_open(&a->loader, &r->options.loader, &need, &a->source);
}

void stdit_ahead_close(struct stdit_ahead *a)
{
    loader_close(a->loader);
    if (a->order.data)
        video_order_close(&a->order);
    *a = (struct stdit_ahead){.run = NULL};
}
