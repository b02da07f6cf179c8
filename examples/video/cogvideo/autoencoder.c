/* SPDX-License-Identifier: Apache-2.0 */
/* The autoencoder of CogVideoX as one of the family: see ../autoencoder.h. */
#include "vae.h"
#include "../../common/say.h"

static int64_t at_least_one(int64_t n)
{
    return n > 1 ? n : 1;
}

/* As published: tiles are half of the training frames, and start every 5/6 of their height and 4/5
 * of their width. */
static struct autoencoder_tiles tiles(const struct cogvae_config *c)
{
    int64_t tall = c->height / 2, wide = c->width_pixels / 2;
    struct autoencoder_tiles t = {.rows = at_least_one(tall / cogvae_factor(c)),
                                  .columns = at_least_one(wide / cogvae_factor(c)),
                                  .blend_rows = tall / 6,
                                  .blend_columns = wide / 5};

    t.down = at_least_one(t.rows * 5 / 6);
    t.right = at_least_one(t.columns * 4 / 5);
    return t;
}

static int read(void *own, const char *dir, enum ckpt_dtype dtype, struct autoencoder_sizes *s)
{
    struct cogvae *m = own;
    struct cogvae_config *c = &m->config;

    if (cogvae_config_read(c, dir))
        return -1;
    c->dtype = dtype;
    *s = (struct autoencoder_sizes){.channels = c->channels,
                                    .latent = c->latent,
                                    .factor = cogvae_factor(c),
                                    .front = COGVAE_FRONT,
                                    .fps = 8,
                                    .scaling = c->scaling,
                                    .tiles = tiles(c)};
    return 0;
}

static int half(bool decode)
{
    return decode ? COGVAE_DECODER : COGVAE_ENCODER;
}

static int create(void *own, ckpt *c, bool decode)
{
    struct cogvae *m = own;
    const struct cogvae_config config = m->config;

    return cogvae_create(m, c, &config, half(decode)) ? say_fail("%s", ckpt_error(c)) : 0;
}

static struct autoencoder_passes passes(const struct autoencoder_clip *clip)
{
    return cogvae_passes(clip->frames, clip->decode ? COGVAE_DECODE_PASS : COGVAE_ENCODE_PASS);
}

static int64_t out(const void *own, int64_t frames, bool first, bool decode)
{
    const struct cogvae_config *c = &((const struct cogvae *)own)->config;

    (void)first;
    return decode ? cogvae_decoded(c, frames) : cogvae_encoded(c, frames);
}

static ckpt_tensor record(const void *own, const struct autoencoder_clip *clip, ckpt_tape *t)
{
    return clip->decode ? cogvae_decode(own, clip, t) : cogvae_encode(own, clip, t);
}

const struct autoencoder cogvideo_autoencoder = {.family = "cogvideox",
                                                 .prefix = COGVAE_PREFIX,
                                                 .class_name = "AutoencoderKLCogVideoX",
                                                 .published = "CogVideoX",
                                                 .size = sizeof(struct cogvae),
                                                 .slice = {0, 4, 2, 1},
                                                 .read = read,
                                                 .create = create,
                                                 .passes = passes,
                                                 .out = out,
                                                 .record = record};
