/* SPDX-License-Identifier: Apache-2.0 */
/* The video autoencoder used with the diffusion model; see autoencoder.h. */
#include <stdlib.h>
#include <string.h>
#include "autoencoder.h"
#include "ckpt_files.h"

bool stdit_vae_owns(const char *name)
{
    return !strncmp(name, "spatial_vae.", 12) || !strncmp(name, "temporal_vae.", 13) ||
           !strcmp(name, "scale") || !strcmp(name, "shift");
}

int stdit_vae_configure(struct stdit_vae *v, const struct video_options *o)
{
    struct vae_model_options model = VAE_MODEL_OPTIONS_INIT;

    model.model = o->vae_model;
    model.dtype = o->dtype;
    *v = (struct stdit_vae){.chunks = 1};
    v->plain.options = (struct vae_coder_options){.model = model, .sample = true};
    v->plain.options.library = o->library;
    v->plain.quiet = true;
    if (vae_model_configure(&model, &v->plain.model.config))
        return -1;
    v->channels = v->plain.model.config.latent;
    return 0;
}

void stdit_vae_size(const struct stdit_vae *v, struct video_clips *c, int64_t frames,
                    int64_t height, int64_t width)
{
    struct vae_coder k = v->plain;

    vae_coder_size(&k, &v->plain.model.config, height, width);
    *c = (struct video_clips){.frames = frames,
                              .height = height,
                              .width = width,
                              .latent_frames = vae_latent_frames(frames, VAE_CHUNK),
                              .rows = vae_coder_rows(&k),
                              .columns = vae_coder_columns(&k)};
}

int stdit_vae_open(struct stdit_vae *v, ckpt *c, const struct video_options *o)
{
    struct vae_config config = v->plain.model.config;

    v->plain.context = c;
    if (vae_create(&v->plain.model, c, &config))
        return say_fail("%s", ckpt_error(c));
    return o->vae ? vae_load(c, o->vae, false) : 0;
}

/* The context owns the programs. */
void stdit_vae_close(struct stdit_vae *v)
{
    for (int i = 0; i < VIDEO_DIRECTIONS; i++)
        free(v->coder[i]);
    free(v->x);
    free(v->z);
    *v = (struct stdit_vae){0};
}

/* ---- programs ------------------------------------------------------------------------------- */

/* The frames of the chunk that starts at frame `at`. */
static int64_t chunk_at(const struct video_clips *c, int64_t at)
{
    return c->frames - at < VAE_CHUNK ? c->frames - at : VAE_CHUNK;
}

static int find_coder(const struct stdit_vae *v, enum stdit_direction direction,
                      const struct vae_coder *like)
{
    for (int i = 0; i < v->n[direction]; i++) {
        const struct vae_coder *k = &v->coder[direction][i];
        if (k->frames == like->frames && k->height == like->height && k->width == like->width)
            return i;
    }
    return -1;
}

/* The index of the coder of such a chunk, created on first use; -1 after a sentence. */
static int coder_of(struct stdit_vae *v, enum stdit_direction direction,
                    const struct video_clips *c, int64_t frames)
{
    struct vae_coder k = v->plain;

    vae_coder_size(&k, &v->plain.model.config, c->height, c->width);
    k.frames = frames;
    int found = find_coder(v, direction, &k);
    if (found >= 0)
        return found;
    size_t n = (size_t)v->n[direction];
    struct vae_coder *coder = realloc(v->coder[direction], (n + 1) * sizeof *coder);
    if (!coder)
        return say_fail("no memory for the coder of a chunk");
    v->coder[direction] = coder;
    coder[n] = k;
    return v->n[direction]++;
}

int stdit_vae_add(struct stdit_vae *v, struct video_clips *c, enum stdit_direction direction)
{
    int64_t rest = c->frames % VAE_CHUNK;
    int64_t chunks = (c->frames + VAE_CHUNK - 1) / VAE_CHUNK;
    int whole = coder_of(v, direction, c, chunk_at(c, 0));
    int last =
        whole >= 0 && c->frames > VAE_CHUNK && rest ? coder_of(v, direction, c, rest) : whole;

    c->coder[direction][0] = whole;
    c->coder[direction][1] = last;
    v->chunks = chunks > v->chunks ? chunks : v->chunks;
    return whole < 0 || last < 0 ? -1 : 0;
}

static int make_buffers(struct stdit_vae *v)
{
    int64_t pixels = 0, cells = 0;

    for (int d = 0; d < VIDEO_DIRECTIONS; d++)
        for (int i = 0; i < v->n[d]; i++) {
            const struct vae_coder *k = &v->coder[d][i];
            int64_t x = k->frames * k->padded_height * k->padded_width;
            int64_t z = vae_latent_frames(k->frames, 0) * vae_coder_rows(k) * vae_coder_columns(k);
            pixels = x > pixels ? x : pixels;
            cells = z > cells ? z : cells;
        }
    free(v->x);
    free(v->z);
    v->x = malloc((size_t)(pixels * 3) * sizeof *v->x + 1);
    v->z = malloc((size_t)(cells * v->channels) * sizeof *v->z + 1);
    return v->x && v->z ? 0 : say_fail("no memory for a chunk of frames");
}

static void choose_cut(struct vae_coder *k, bool least)
{
    struct vae_cut cut[VAE_CUTS];
    int n = vae_cuts(cut, k->frames, vae_coder_rows(k));

    k->options.part = least ? cut[n - 1].part : CKPT_AUTO;
    k->options.bands = least ? cut[n - 1].bands : CKPT_AUTO;
}

static int compile(struct vae_coder *k, enum stdit_direction direction, bool least)
{
    ckpt_program_free(k->program);
    k->program = NULL;
    choose_cut(k, least);
    return vae_coder_compile(
        k, direction == STDIT_ENCODE ? vae_coder_record_encode : vae_coder_record_decode,
        k->frames);
}

int stdit_vae_compile(struct stdit_vae *v, bool least)
{
    int rc = v->n[STDIT_ENCODE] + v->n[STDIT_DECODE] ? make_buffers(v) : 0;

    for (int d = 0; d < VIDEO_DIRECTIONS; d++)
        for (int i = 0; i < v->n[d] && !rc; i++)
            rc = compile(&v->coder[d][i], (enum stdit_direction)d, least);
    return rc;
}

/* ---- clips --------------------------------------------------------------------------------- */

/* Index in a clip [Z, latent_frames, h, w] of value i of a chunk [T, h, w, Z]; the chunk starts at
 * frame `first` of the clip. */
static int64_t in_clip(const struct stdit_vae *v, const struct video_clips *c, int64_t first,
                       int64_t i)
{
    int64_t plane = c->rows * c->columns, channel = i % v->channels, p = i / v->channels % plane;

    return (channel * c->latent_frames + first + i / v->channels / plane) * plane + p;
}

/* The coder of the chunk that starts at frame `at`. */
static struct vae_coder *coder_at(const struct stdit_vae *v, const struct video_clips *c,
                                  enum stdit_direction direction, int64_t at)
{
    return &v->coder[direction][c->coder[direction][at && chunk_at(c, at) < VAE_CHUNK]];
}

/* Runs the program of a chunk.  The step number for its noise is distinct from the step numbers of
 * training programs. */
static int encode_chunk(struct stdit_vae *v, const struct video_clips *c, int64_t sample,
                        int64_t at)
{
    struct vae_coder *k = coder_at(v, c, STDIT_ENCODE, at);
    int64_t step = (INT64_C(1) << 51) + sample * v->chunks + at / VAE_CHUNK;
    int64_t cells = vae_latent_frames(k->frames, 0) * c->rows * c->columns;

    if (ckpt_set_random_step(k->program, step))
        return say_fail("%s", ckpt_error(k->context));
    return vae_coder_run(k, "x", v->x, k->frames * k->padded_height * k->padded_width * 3,
                         "latents", v->z, cells * v->channels);
}

/* Encodes a chunk in v->x; its latents go to their place in the clip's latents. */
static int encode_frames(struct stdit_vae *v, const struct video_clips *c, int64_t sample,
                         int64_t at, float *z)
{
    int64_t first = vae_latent_frames(at, VAE_CHUNK);
    int64_t n = vae_latent_frames(chunk_at(c, at), 0) * c->rows * c->columns * v->channels;

    if (encode_chunk(v, c, sample, at))
        return -1;
    for (int64_t i = 0; i < n; i++)
        z[in_clip(v, c, first, i)] = v->z[i];
    return 0;
}

int64_t stdit_vae_chunk(const struct video_clips *c, int64_t at)
{
    return chunk_at(c, at);
}

int stdit_vae_encode_chunk(struct stdit_vae *v, const struct video_clips *c, int64_t sample,
                           int64_t at, const uint8_t *rgb, float *z)
{
    const struct vae_coder *k = coder_at(v, c, STDIT_ENCODE, at);
    int64_t pixels = k->padded_height * k->padded_width * 3, frame = c->height * c->width * 3;

    for (int64_t f = 0; f < chunk_at(c, at); f++)
        vae_coder_take_frame(k, rgb + f * frame, v->x + f * pixels);
    return encode_frames(v, c, sample, at, z);
}

int stdit_vae_encode(struct stdit_vae *v, const struct video_clips *c, int64_t sample,
                     const uint8_t *rgb, float *z)
{
    for (int64_t at = 0; at < c->frames; at += VAE_CHUNK)
        if (stdit_vae_encode_chunk(v, c, sample, at, rgb + at * c->height * c->width * 3, z))
            return -1;
    return 0;
}

/* Decodes the frames of a chunk into v->x. */
static int decode_chunk(struct stdit_vae *v, const struct video_clips *c, int64_t at,
                        const float *z)
{
    struct vae_coder *k = coder_at(v, c, STDIT_DECODE, at);
    int64_t first = vae_latent_frames(at, VAE_CHUNK), frames = chunk_at(c, at);
    int64_t n = vae_latent_frames(frames, 0) * c->rows * c->columns * v->channels;

    for (int64_t i = 0; i < n; i++)
        v->z[i] = z[in_clip(v, c, first, i)];
    return vae_coder_run(k, "latents", v->z, n, "x", v->x, frames * c->height * c->width * 3);
}

/* From the last frame and row to the first: frames padded to whole cells are larger, in the same
 * memory. */
static int encode_decoded(struct stdit_vae *v, const struct video_clips *c,
                          const struct stdit_again *again, int64_t at)
{
    const struct vae_coder *k = coder_at(v, c, STDIT_ENCODE, at);
    int64_t pixels = k->padded_height * k->padded_width * 3, frame = c->height * c->width * 3;

    for (int64_t f = chunk_at(c, at) - 1; f >= 0; f--)
        vae_coder_pad_frame(k, v->x + f * frame, v->x + f * pixels);
    return encode_frames(v, c, again->sample, at, again->z);
}

int stdit_vae_decode(struct stdit_vae *v, const struct video_clips *c, const float *z, uint8_t *rgb,
                     const struct stdit_again *again)
{
    int64_t frame = c->height * c->width * 3;

    for (int64_t at = 0; at < c->frames; at += VAE_CHUNK) {
        const struct vae_coder *k = coder_at(v, c, STDIT_DECODE, at);
        int64_t latents = vae_latent_frames(at, VAE_CHUNK);
        int64_t end = latents + vae_latent_frames(chunk_at(c, at), 0);
        if (decode_chunk(v, c, at, z))
            return -1;
        for (int64_t f = 0; f < chunk_at(c, at); f++)
            vae_coder_give_frame(k, v->x + f * frame, rgb + (at + f) * frame);
        if (again && latents < again->end && end > again->first && encode_decoded(v, c, again, at))
            return -1;
    }
    return 0;
}
