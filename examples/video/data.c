/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes of samples, and the end of their data, apart for tests that take no readers with them.
 */
#include <stdlib.h>
#include "dataset.h"

int64_t video_data_z(const struct video_data *d, const struct video_shape *s)
{
    const struct video_geometry *g = &s->geometry;

    return d->channels * g->frames * g->height * g->width;
}

int64_t video_data_y(const struct video_data *d)
{
    return d->tokens * d->text_width;
}

int64_t video_data_sight(const struct video_data *d)
{
    return d->sizes ? d->sizes->sight_tokens * d->sizes->sight_width : 0;
}

void video_data_close(struct video_data *d)
{
    for (int64_t i = 0; d->file && i < d->shapes.rows; i++) {
        free(d->file[i].latents);
        free(d->file[i].text);
    }
    free(d->file);
    free(d->cached);
    stdit_vae_close(&d->vae);
    videos_close(&d->videos);
    video_texts_close(&d->texts);
    cache_close(&d->cache);
    video_shapes_free(&d->shapes);
    float *all[] = {d->z, d->y, d->image, d->eps, d->t, d->fps, d->sight};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(d->mask);
    free(d->x_mask);
    *d = (struct video_data){.missing = 0};
}
