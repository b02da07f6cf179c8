/* SPDX-License-Identifier: Apache-2.0 */
/* The autoencoder of CogVideoX as one of the family: see ../autoencoder.h. */
#include "vae.h"
#include "../../common/say.h"

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
                                    .scaling = c->scaling,
                                    .height = c->height,
                                    .width = c->width_pixels};
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

static int load(void *own, ckpt *c, const char *dir, bool decode)
{
    return cogvae_load(own, c, dir, half(decode));
}

static struct autoencoder_passes passes(const struct autoencoder_clip *clip)
{
    return cogvae_passes(clip->frames, clip->decode ? COGVAE_DECODE_PASS : COGVAE_ENCODE_PASS);
}

static int64_t out(const void *own, int64_t frames, bool decode)
{
    const struct cogvae_config *c = &((const struct cogvae *)own)->config;

    return decode ? cogvae_decoded(c, frames) : cogvae_encoded(c, frames);
}

static ckpt_tensor record(const void *own, const struct autoencoder_clip *clip, ckpt_tape *t)
{
    return clip->decode ? cogvae_decode(own, clip, t) : cogvae_encode(own, clip, t);
}

const struct autoencoder cogvideo_autoencoder = {.family = "cogvideox",
                                                 .prefix = COGVAE_PREFIX,
                                                 .published = "CogVideoX",
                                                 .size = sizeof(struct cogvae),
                                                 .slice = {0, 4, 2, 1},
                                                 .directory = cogvae_directory,
                                                 .read = read,
                                                 .create = create,
                                                 .load = load,
                                                 .passes = passes,
                                                 .out = out,
                                                 .record = record};
