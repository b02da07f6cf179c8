/* SPDX-License-Identifier: Apache-2.0 */
/* Wan's autoencoders as one of the family: see ../autoencoder.h. */
#include "vae.h"

static int read(void *own, const char *dir, enum ckpt_dtype dtype, struct autoencoder_sizes *s)
{
    struct wanvae *m = own;
    struct wanvae_config *c = &m->config;

    if (wanvae_config_read(c, dir))
        return -1;
    c->dtype = dtype;
    *s = (struct autoencoder_sizes){.channels = 3,
                                    .latent = c->latent,
                                    .factor = 8 * c->patch,
                                    .fps = c->shortcuts ? 24 : 16,
                                    .mean = c->mean,
                                    .deviation = c->std,
                                    /* As in diffusers: tiles of 256 pixels, every 192. */
                                    .tiles = {.rows = 32 / c->patch,
                                              .columns = 32 / c->patch,
                                              .down = 24 / c->patch,
                                              .right = 24 / c->patch,
                                              .blend_rows = 64,
                                              .blend_columns = 64}};
    return 0;
}

static int create(void *own, ckpt *c, bool decode)
{
    wanvae_create(own, c, decode);
    return 0;
}

/* Values do not depend on passes; longer ones let small frames be computed together. */
static struct autoencoder_passes passes(const struct autoencoder_clip *clip)
{
    int64_t each = clip->decode ? 4 : 8, n = clip->frames / each > 1 ? clip->frames / each : 1;

    return (struct autoencoder_passes){n, clip->frames - (n - 1) * each, each};
}

static int64_t out(const void *own, int64_t frames, bool first, bool decode)
{
    (void)own;
    return decode ? 4 * frames - (first ? 3 : 0) : (frames + 3) / 4;
}

static ckpt_tensor record(const void *own, const struct autoencoder_clip *clip, ckpt_tape *t)
{
    struct autoencoder_passes p = passes(clip);

    return wanvae_record(own, clip, &p, t);
}

const struct autoencoder wan_autoencoder = {.family = "wan",
                                            .prefix = WANVAE_PREFIX,
                                            .class_name = "AutoencoderKLWan",
                                            .published = "Wan 2.1 or 2.2",
                                            .size = sizeof(struct wanvae),
                                            .slice = {0, 4, 2, 1},
                                            .read = read,
                                            .create = create,
                                            .passes = passes,
                                            .out = out,
                                            .record = record};
