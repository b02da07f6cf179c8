/* SPDX-License-Identifier: Apache-2.0 */
/* The video autoencoder beside the diffusion model; see autoencoder.h. */
#include <stdlib.h>
#include <string.h>
#include "autoencoder.h"
#include "ckpt_files.h"

bool stdit_vae_owns(const char *name)
{
    return !strncmp(name, "spatial_vae.", 12) || !strncmp(name, "temporal_vae.", 13) ||
           !strcmp(name, "scale") || !strcmp(name, "shift");
}

int stdit_vae_configure(struct stdit_vae *v, const struct stdit_options *o, int64_t frames,
                        int64_t height, int64_t width)
{
    struct vae_model_options model = VAE_MODEL_OPTIONS_INIT;
    struct vae_coder *k = &v->coder[0][0];

    model.model = o->vae_model;
    model.dtype = o->dtype;
    *v = (struct stdit_vae){.frames = frames, .height = height, .width = width};
    k->options = (struct vae_coder_options){.model = model, .sample = true};
    k->options.library = o->library;
    if (vae_model_configure(&model, &k->model.config))
        return -1;
    vae_coder_size(k, &k->model.config, height, width);
    v->channels = k->model.config.latent;
    v->latent_frames = vae_latent_frames(frames, VAE_CHUNK);
    v->rows = vae_coder_rows(k);
    v->columns = vae_coder_columns(k);
    return 0;
}

static int make_buffers(struct stdit_vae *v)
{
    const struct vae_coder *k = &v->coder[0][0];
    int64_t frames = v->frames < VAE_CHUNK ? v->frames : VAE_CHUNK;
    int64_t cells = vae_latent_frames(frames, 0) * v->rows * v->columns * v->channels;

    v->x = malloc((size_t)(frames * k->padded_height * k->padded_width * 3) * sizeof *v->x);
    v->z = malloc((size_t)cells * sizeof *v->z);
    return v->x && v->z ? 0 : say_fail("no memory for a chunk of frames");
}

int stdit_vae_open(struct stdit_vae *v, ckpt *c, const struct stdit_options *o)
{
    struct vae_coder *k = &v->coder[0][0];
    struct vae_config config = k->model.config;

    k->context = c;
    if (vae_create(&k->model, c, &config))
        return say_fail("%s", ckpt_error(c));
    if (o->vae && vae_load(c, o->vae, false))
        return -1;
    for (int i = 1; i < 2 * STDIT_DIRECTIONS; i++)
        v->coder[i / 2][i % 2] = *k;
    return make_buffers(v);
}

/* The programs are the context's. */
void stdit_vae_close(struct stdit_vae *v)
{
    free(v->x);
    free(v->z);
    *v = (struct stdit_vae){0};
}

/* The frames of the chunk that starts at frame at. */
static int64_t chunk_at(const struct stdit_vae *v, int64_t at)
{
    return v->frames - at < VAE_CHUNK ? v->frames - at : VAE_CHUNK;
}

static void choose_cut(struct vae_coder *k, int64_t frames, bool least)
{
    struct vae_cut cut[VAE_CUTS];
    int n = vae_cuts(cut, frames, vae_coder_rows(k));

    k->options.part = least ? cut[n - 1].part : CKPT_AUTO;
    k->options.bands = least ? cut[n - 1].bands : CKPT_AUTO;
    k->quiet = true;
}

int stdit_vae_compile(struct stdit_vae *v, enum stdit_direction direction, bool least)
{
    int64_t rest = v->frames % VAE_CHUNK;
    int64_t frames[2] = {chunk_at(v, 0), v->frames > VAE_CHUNK ? rest : 0};
    struct vae_coder *k = v->coder[direction];
    int rc = 0;

    for (int i = 0; i < 2; i++) {
        ckpt_program_free(k[i].program);
        k[i].program = NULL;
    }
    for (int i = 0; i < 2 && frames[i] && !rc; i++) {
        choose_cut(&k[i], frames[i], least);
        rc = vae_coder_compile(
            &k[i], direction == STDIT_ENCODE ? vae_coder_record_encode : vae_coder_record_decode,
            frames[i]);
    }
    return rc;
}

/* ---- clips --------------------------------------------------------------------------------- */

/* Where value i of a chunk [T, h, w, Z] stands in a clip [Z, latent_frames, h, w], of which the
 * chunk begins with frame first. */
static int64_t in_clip(const struct stdit_vae *v, int64_t first, int64_t i)
{
    int64_t plane = v->rows * v->columns, c = i % v->channels, p = i / v->channels % plane;

    return (c * v->latent_frames + first + i / v->channels / plane) * plane + p;
}

/* Runs the program of the chunk that starts at frame at.  Its noise is that of a step of its own,
 * apart from those of programs that train. */
static int encode_chunk(struct stdit_vae *v, int64_t sample, int64_t at, int64_t pixels,
                        int64_t cell)
{
    int64_t n = chunk_at(v, at), chunks = (v->frames + VAE_CHUNK - 1) / VAE_CHUNK;
    int64_t step = (INT64_C(1) << 51) + sample * chunks + at / VAE_CHUNK;
    struct vae_coder *k = &v->coder[STDIT_ENCODE][at && n < VAE_CHUNK];

    if (ckpt_set_random_step(k->program, step))
        return say_fail("%s", ckpt_error(k->context));
    return vae_coder_run(k, "x", v->x, n * pixels, "latents", v->z, vae_latent_frames(n, 0) * cell);
}

int stdit_vae_encode(struct stdit_vae *v, int64_t sample, const uint8_t *rgb, float *z)
{
    struct vae_coder *k = &v->coder[STDIT_ENCODE][0];
    int64_t pixels = k->padded_height * k->padded_width * 3, first = 0;
    int64_t cell = v->rows * v->columns * v->channels;

    for (int64_t at = 0; at < v->frames; at += VAE_CHUNK) {
        int64_t n = chunk_at(v, at), latents = vae_latent_frames(n, 0);
        for (int64_t f = 0; f < n; f++)
            vae_coder_take_frame(k, rgb + (at + f) * v->height * v->width * 3, v->x + f * pixels);
        if (encode_chunk(v, sample, at, pixels, cell))
            return -1;
        for (int64_t i = 0; i < latents * cell; i++)
            z[in_clip(v, first, i)] = v->z[i];
        first += latents;
    }
    return 0;
}

int stdit_vae_decode(struct stdit_vae *v, const float *z, uint8_t *rgb)
{
    struct vae_coder *k = v->coder[STDIT_DECODE];
    int64_t frame = v->height * v->width * 3, cell = v->rows * v->columns * v->channels, first = 0;

    for (int64_t at = 0; at < v->frames; at += VAE_CHUNK) {
        int64_t n = chunk_at(v, at), latents = vae_latent_frames(n, 0);
        for (int64_t i = 0; i < latents * cell; i++)
            v->z[i] = z[in_clip(v, first, i)];
        if (vae_coder_run(&k[at && n < VAE_CHUNK], "latents", v->z, latents * cell, "x", v->x,
                          n * frame))
            return -1;
        for (int64_t f = 0; f < n; f++)
            vae_coder_give_frame(k, v->x + f * frame, rgb + (at + f) * frame);
        first += latents;
    }
    return 0;
}
