/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding one chunk of frames: the programs, and conversion of frames for them. */
#include "coder.h"

static ckpt_tensor noise(const struct vae_coder *k, ckpt_tape *t, int64_t frames)
{
    int64_t shape[] = {1, frames, vae_coder_rows(k), vae_coder_columns(k), k->model.config.latent};

    return k->options.sample ? ckpt_randn(t, CKPT_F32, 5, shape) : CKPT_NONE;
}

/* Noise is recorded first, so that it does not depend on the cuts of the rest. */
ckpt_tensor vae_coder_record_encode(ckpt_tape *t, int64_t batch, void *user)
{
    const struct vae_coder *k = user;
    int64_t shape[] = {batch, k->frames, k->padded_height, k->padded_width, 3};
    ckpt_tensor of_frames = noise(k, t, k->frames);
    ckpt_tensor of_time = noise(k, t, vae_latent_frames(k->frames, 0));
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 5, shape);
    struct vae_posterior p = vae_posterior(t, vae_tiled_encode(&k->model, t, x, k->cut));
    ckpt_tensor z = ckpt_affine(t, vae_sample(t, &p, of_frames), VAE_FACTOR, 0.f);

    p = vae_posterior(t, vae_temporal_encode(&k->model, t, z, 0));
    z = vae_normalize(&k->model, k->context, t, vae_sample(t, &p, of_time));
    ckpt_output(t, "latents", z);
    return z;
}

ckpt_tensor vae_coder_record_decode(ckpt_tape *t, int64_t batch, void *user)
{
    const struct vae_coder *k = user;
    int64_t latents = vae_latent_frames(k->frames, 0);
    int64_t shape[] = {batch, latents, vae_coder_rows(k), vae_coder_columns(k),
                       k->model.config.latent};
    ckpt_tensor z = ckpt_input(t, "latents", CKPT_F32, 5, shape);

    z = vae_denormalize(&k->model, k->context, t, z);
    z = vae_temporal_decode(&k->model, t, z, k->frames, 0);
    ckpt_tensor x = vae_tiled_decode(&k->model, t, ckpt_cast(t, z, CKPT_F32), k->cut);
    x = vae_part(t, vae_part(t, x, 2, 0, k->height), 3, 0, k->width);
    x = ckpt_cast(t, x, CKPT_F32);
    ckpt_output(t, "x", x);
    return x;
}

void vae_coder_take_frame(const struct vae_coder *k, const uint8_t *rgb, float *x)
{
    for (int64_t row = 0; row < k->padded_height; row++) {
        int64_t from = row < k->height ? row : k->height - 1;
        for (int64_t column = 0; column < k->padded_width; column++) {
            int64_t at = from * k->width + (column < k->width ? column : k->width - 1);
            for (int channel = 0; channel < 3; channel++)
                *x++ = (float)rgb[at * 3 + channel] / 127.5f - 1.f;
        }
    }
}

/* Rounds to nearest; NaN becomes 0. */
void vae_coder_give_frame(const struct vae_coder *k, const float *x, uint8_t *rgb)
{
    for (int64_t i = 0; i < k->height * k->width * 3; i++) {
        float y = x[i] * 127.5f + 128.f;
        y = y > 0.f ? y : 0.f;
        rgb[i] = (uint8_t)(int)(y < 255.5f ? y : 255.f);
    }
}

/* From last to first, so that no write overwrites unread input. */
void vae_coder_pad_frame(const struct vae_coder *k, const float *decoded, float *x)
{
    for (int64_t row = k->padded_height - 1; row >= 0; row--) {
        int64_t from = row < k->height ? row : k->height - 1;
        for (int64_t column = k->padded_width - 1; column >= 0; column--) {
            int64_t at = from * k->width + (column < k->width ? column : k->width - 1);
            for (int channel = 2; channel >= 0; channel--)
                x[(row * k->padded_width + column) * 3 + channel] = decoded[at * 3 + channel];
        }
    }
}
