/* SPDX-License-Identifier: Apache-2.0 */
/* The autoencoder as a whole: its presets, its parameters, its latents. */
#include <string.h>
#include "model.h"

static const struct {
    const char *name;
    struct vae_config config;
} presets[] = {
    {"v1.2",
     {.latent = 4,
      .groups = 32,
      .spatial = {4, {128, 256, 512, 512}, 2},
      .temporal = {4, {128, 256, 256, 512}, 4}}},
    {"tiny",
     {.latent = 4,
      .groups = 4,
      .spatial = {4, {8, 16, 16, 16}, 1},
      .temporal = {4, {16, 16, 16, 16}, 1}}},
};

bool vae_preset(struct vae_config *config, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (!strcmp(name, presets[i].name)) {
            *config = presets[i].config;
            return true;
        }
    }
    return false;
}

/* The v1.2 values are measured for four channels; other widths are not normalized. */
static int set_buffers(const struct vae *m, ckpt *c)
{
    static const float shift[] = {-0.10f, 0.34f, 0.27f, 0.98f};
    static const float scale[] = {3.85f, 2.32f, 2.33f, 3.06f};
    int64_t n = m->config.latent;

    if (n != 4)
        return 0;
    int rc = ckpt_param_set(c, m->shift, CKPT_VALUE, shift, n);
    return rc ? rc : ckpt_param_set(c, m->scale, CKPT_VALUE, scale, n);
}

int vae_create(struct vae *m, ckpt *c, const struct vae_config *config)
{
    int64_t shape[] = {1, config->latent, 1, 1, 1};

    *m = (struct vae){.config = *config};
    vae_make_spatial(m, c);
    vae_make_temporal(m, c);
    m->scale = ckpt_param(c, "scale", CKPT_F32, 5, shape, CKPT_ONES, false);
    m->shift = ckpt_param(c, "shift", CKPT_F32, 5, shape, CKPT_ZEROS, false);
    return m->shift.id ? set_buffers(m, c) : CKPT_EINVAL;
}

int64_t vae_factor(const struct vae_config *config)
{
    return (int64_t)1 << (config->spatial.levels - 1);
}

int64_t vae_latent_frames(int64_t frames, int64_t chunk)
{
    int64_t whole = chunk > 0 ? frames / chunk : 0, rest = frames - whole * chunk;
    int64_t each = chunk > 0 ? (chunk + VAE_TIME - 1) / VAE_TIME : 0;

    return whole * each + (rest + VAE_TIME - 1) / VAE_TIME;
}

/* The buffers are read once, when the program is recorded. */
static ckpt_tensor transform(const struct vae *m, ckpt *c, ckpt_tape *t, ckpt_tensor z, bool back)
{
    int64_t n = m->config.latent, shape[] = {1, 1, 1, 1, n};
    float scale[VAE_LATENT], shift[VAE_LATENT];
    int rc = ckpt_param_get(c, m->scale, CKPT_VALUE, scale, n);

    if (!rc)
        rc = ckpt_param_get(c, m->shift, CKPT_VALUE, shift, n);
    if (rc) {
        ckpt_tape_fail(t, rc, "%s", ckpt_error(c));
        return CKPT_NONE;
    }
    for (int64_t i = 0; i < n; i++) {
        scale[i] = back ? scale[i] : 1.f / scale[i];
        shift[i] = back ? shift[i] : -shift[i] * scale[i];
    }
    ckpt_tensor by = ckpt_constant(t, "scale", CKPT_F32, 5, shape, scale);
    ckpt_tensor to = ckpt_constant(t, "shift", CKPT_F32, 5, shape, shift);
    return ckpt_add(t, ckpt_mul(t, z, by), to);
}

ckpt_tensor vae_normalize(const struct vae *m, ckpt *c, ckpt_tape *t, ckpt_tensor z)
{
    return transform(m, c, t, z, false);
}

ckpt_tensor vae_denormalize(const struct vae *m, ckpt *c, ckpt_tape *t, ckpt_tensor z)
{
    return transform(m, c, t, z, true);
}
