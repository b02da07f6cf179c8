/* SPDX-License-Identifier: Apache-2.0 */
/* Images of I2V, with noise and encoded: see images.h. */
#include "images.h"
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "stages.h"

static int open_encoder(struct video_images *m, const struct video_options *o)
{
    char path[4096];

    o->net.model->autoencoder->directory(path, sizeof path, o->model);
    if (!o->vae && !strcmp(path, o->model))
        return say_fail(
            "--images: there is no vae/ in %s to encode pictures; give one by --vae DIR", o->model);
    if (video_coder_configure(&m->encoder, o, false))
        return -1;
    m->encoder.options.library = o->library;
    return 0;
}

int video_images_open(struct video_images *m, const struct video_run *r)
{
    const struct video_options *o = &r->options;
    const struct video_data *d = &r->data;

    if (!o->images)
        return 0;
    m->seed = (uint64_t)o->library.seed;
    m->mean = o->image_noise_mean;
    m->deviation = o->image_noise_std;
    if (video_paths_list(&m->files, o->images))
        return -1;
    if (m->files.n != video_data_lines(d))
        return say_fail("%s: has %lld pictures for %lld clips", o->images, (long long)m->files.n,
                        (long long)video_data_lines(d));
    return open_encoder(m, o) ||
                   video_images_join(m, r->context, d->geometry.height, d->geometry.width)
               ? -1
               : 0;
}

void video_images_close(struct video_images *m)
{
    video_paths_close(&m->files);
    if (m->encoder.joined)
        video_coder_close(&m->encoder);
    free(m->rgb);
    free(m->x);
}

int video_images_read(struct video_images *m, int64_t line, int64_t sample, float *image)
{
    const struct picture_size size = {m->width, m->height, false};
    const char *path = m->files.path[line];
    struct video v;
    int rc = video_open(&v, path), got = rc ? -1 : video_read(&v, 0, &size, m->rgb);

    video_close(&v);
    if (!rc && !got)
        say_fail("%s: there is no picture in it", path);
    return got > 0 ? video_images_encode(m, sample, image) : -1;
}
