/* SPDX-License-Identifier: Apache-2.0 */
/* Output of sampling with an autoencoder: videos, and pictures of their frames. */
#include <stdlib.h>
#include <string.h>
#include "../../common/directory.h"
#include "movie.h"

static struct sample_clip clip_of(const struct video_run *r, int64_t frames, const uint8_t *rgb)
{
    const struct video_clips *c = &r->data.shapes.shape->clips;
    float fps = r->data.fps[0];

    return (struct sample_clip){frames, c->height, c->width, fps >= 1 && fps < 120 ? fps : 24, rgb};
}

/* ---- movies -------------------------------------------------------------------------------- */

int stdit_movie_open(struct stdit_movie *m, struct video_run *r, int64_t step, int64_t i,
                     int64_t frames)
{
    const struct sample_clip c = clip_of(r, frames, NULL);
    const struct sink s = {.width = c.width, .height = c.height, .frames = frames, .fps = c.fps};

    *m = (struct stdit_movie){.run = r, .name = sample_name(step, i), .frames = frames};
    m->video = m->pictures = s;
    snprintf(m->video_path, sizeof m->video_path, "%s/%s%s", r->options.out, m->name.file,
             sample_ending(&c));
    snprintf(m->pictures_path, sizeof m->pictures_path, "%s/%s", r->options.out, m->name.file);
    m->strip = malloc((size_t)(sample_strip_frames(frames) * c.height * c.width * 3));
    if (!m->strip)
        return say_fail("no memory for pictures");
    return directory_make(r->options.out) || sink_open(&m->video, m->video_path) ||
                   (!step && sink_open(&m->pictures, m->pictures_path))
               ? -1
               : 0;
}

int stdit_movie_put(struct stdit_movie *m, const uint8_t *rgb, int64_t n)
{
    size_t frame = (size_t)(m->video.width * m->video.height * 3);

    for (int64_t f = 0; f < n; f++, m->taken++) {
        const uint8_t *at = rgb + (size_t)f * frame;
        for (int64_t i = 0; i < sample_strip_frames(m->frames); i++)
            if (sample_strip_place(m->frames, i) == m->taken)
                memcpy(m->strip + (size_t)i * frame, at, frame);
        if (sink_put(&m->video, at) || (m->pictures.ops && sink_put(&m->pictures, at)))
            return -1;
    }
    return 0;
}

int stdit_movie_finish(struct stdit_movie *m)
{
    const struct sample_clip some = clip_of(m->run, sample_strip_frames(m->frames), m->strip);

    if (sink_finish(&m->video) || (m->pictures.ops && sink_finish(&m->pictures)))
        return -1;
    return sample_put_strip(&some, m->run->options.out, &m->name, &m->run->log);
}

void stdit_movie_close(struct stdit_movie *m)
{
    sink_close(&m->video);
    sink_close(&m->pictures);
    free(m->strip);
    m->strip = NULL;
}

/* ---- samples of a training run ------------------------------------------------------------- */

/* The first clip of the data, for visual comparison. */
static int write_data(struct video_run *r)
{
    const struct video_clips *shape = &r->data.shapes.shape->clips;
    struct clip c = {.size = {shape->width, shape->height, true}, .frames = shape->frames};
    double fps;
    const struct video_file *file = videos_find(&r->data.videos, 0, 0, &c);
    uint8_t *rgb = clip_read(&c, file, &fps);

    if (!rgb)
        return -1;
    struct sample_clip clip = clip_of(r, c.frames, rgb);
    int rc =
        sample_write_strip(&clip, r->options.out, &(struct sample_name){"clip", "clip"}, &r->log);
    free(rgb);
    return rc;
}

void stdit_movie_report(const struct video_run *r, int64_t step)
{
    struct sample_name name = sample_name(step, 0);
    struct sample_clip c = clip_of(r, 1, NULL);
    const char *out = r->options.out, *end = sample_ending(&c);

    if (step)
        say_print("step %lld: sampled: %s/%s%s, some frames side by side: %s/%s.png\n",
                  (long long)step, out, name.file, end, out, name.file);
    else
        say_print("sampled: %s/sample%s, its frames: %s/sample/frame-00000.png ..., some side by "
                  "side: %s/sample.png\n",
                  out, end, out, out);
}

static int write_video(struct video_run *r, const float *z, int64_t step, int64_t i, uint8_t *rgb)
{
    const struct video_clips *c = &r->data.shapes.shape->clips;
    struct stdit_movie m;

    if (stdit_vae_decode(&r->data.vae, c, z + i * video_data_z(&r->data, r->data.shapes.shape), rgb,
                         NULL))
        return -1;
    int rc = stdit_movie_open(&m, r, step, i, c->frames) || stdit_movie_put(&m, rgb, c->frames) ||
             stdit_movie_finish(&m);
    stdit_movie_close(&m);
    return rc ? -1 : 0;
}

int stdit_write_videos(struct video_run *r, const float *z, int64_t n, int64_t step)
{
    const struct video_clips *c = &r->data.shapes.shape->clips;
    uint8_t *rgb = malloc((size_t)(c->frames * c->width * c->height * 3));
    int rc = rgb ? 0 : say_fail("no memory for a clip");

    for (int64_t i = 0; i < n && !rc; i++)
        rc = write_video(r, z, step, i, rgb);
    free(rgb);
    if (!rc && r->options.video_dir && !step)
        rc = write_data(r);
    if (rc)
        return -1;
    stdit_movie_report(r, step);
    return 0;
}
