/* SPDX-License-Identifier: Apache-2.0 */
/* Clips for Open-Sora's autoencoder.  Crop and random draws of a clip depend only on the seed and
 * its row, as in the first epoch of stdit-train, and on no other clip. */
#include "encode.h"

static const char *name(const struct encode *e)
{
    (void)e;
    return "opensora";
}

static const char *weights(const struct encode *e)
{
    return e->options.video.vae;
}

static int open_data(struct encode *e)
{
    return stdit_data_open(&e->data, &e->options.video, false);
}

static int open_coder(struct encode *e)
{
    struct video_data *d = &e->data;
    int rc = 0;

    if (say_open(&e->context, &e->library))
        return -1;
    if (stdit_vae_open(&d->vae, e->context, &e->options.video))
        return -1;
    for (int i = 0; i < d->shapes.n && !rc; i++)
        rc = stdit_vae_add(&d->vae, &d->shapes.shape[i].clips, STDIT_ENCODE);
    return rc ? -1 : stdit_vae_compile(&d->vae, false);
}

static void close_coder(struct encode *e)
{
    ckpt_close(e->context);
}

static ckpt_program *program(const struct encode *e)
{
    return e->data.vae.coder[STDIT_ENCODE][0].program;
}

static int read_clip(struct encode *e, struct loader_file *f, const struct loader_clip *c,
                     int64_t row, double *fps)
{
    return stdit_clip_read(&e->data, (uint64_t)e->options.video.library.seed, row, f, c, row, fps);
}

static int encode_clip(struct encode *e, const struct video_shape *s, const struct loader_clip *c,
                       float *z)
{
    return stdit_vae_encode(&e->data.vae, &s->clips, c->sample, c->rgb, z);
}

const struct encode_family encode_opensora = {.name = name,
                                              .weights = weights,
                                              .data = open_data,
                                              .open = open_coder,
                                              .close = close_coder,
                                              .program = program,
                                              .read = read_clip,
                                              .clip = encode_clip};
