/* SPDX-License-Identifier: Apache-2.0 */
/* vae-encode: encodes a video to a file of latents, chunk by chunk. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/clip.h"
#include "../../common/say.h"
#include "ckpt_tools.h"
#include "coder.h"
#include "latents.h"

const char say_program[] = "vae-encode";

static const char usage[] =
    "Usage: vae-encode [OPTION]... --load WEIGHTS VIDEO LATENTS\n\n"
    "Encodes a video of any length with the video autoencoder of Open-Sora 1.2 inside a memory\n"
    "budget: 17 frames become 5 latent frames.\n"
    "\nExamples:\n  vae-encode --model v1.2 --load vae.safetensors clip.mp4 latents.safetensors\n"
    "  vae-encode --model v1.2 --load vae.safetensors --vram 8G --clip 17x720x1280 --plan-only\n";

/* The buffers of a chunk, and the progress. */
struct encoding {
    struct vae_coder *k;
    struct video *f;
    int64_t taken; /* frames read so far */
    struct vae_latent_writer *w;
    uint8_t *rgb;      /* a frame */
    float *x;          /* [chunk, padded height, padded width, 3] */
    float *y, *z;      /* latents in the layouts of the program and of files */
    int64_t under_way; /* frames of the chunk in flight */
};

/* Reads up to a chunk of frames.  Returns how many, or -1. */
static int64_t take_chunk(struct encoding *e)
{
    int64_t frame = e->k->padded_height * e->k->padded_width * 3;
    const struct picture_size size = {e->f->width, e->f->height, false};

    for (int64_t n = 0; n < VAE_CHUNK; n++) {
        int rc = video_read(e->f, e->taken, &size, e->rgb);
        if (rc < 0)
            return -1;
        if (!rc)
            return n;
        e->taken++;
        vae_coder_take_frame(e->k, e->rgb, e->x + n * frame);
    }
    return VAE_CHUNK;
}

/* [T, h, w, Z] -> [T, Z, h, w] */
static void channels_first(const struct vae_coder *k, const float *y, float *z, int64_t frames)
{
    int64_t plane = vae_coder_rows(k) * vae_coder_columns(k), channels = k->model.config.latent;

    for (int64_t f = 0; f < frames; f++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t p = 0; p < plane; p++)
                *z++ = y[(f * plane + p) * channels + c];
}

static int64_t cell_of(const struct vae_coder *k)
{
    return vae_coder_rows(k) * vae_coder_columns(k) * k->model.config.latent;
}

/* Waits for the chunk in flight, and writes its latents. */
static int finish_chunk(struct encoding *e)
{
    int64_t n = e->under_way, latents = vae_latent_frames(n, 0);

    e->under_way = 0;
    if (!n)
        return 0;
    if (vae_coder_take(e->k, "latents", e->y, latents * cell_of(e->k)))
        return -1;
    channels_first(e->k, e->y, e->z, latents);
    return vae_latents_put(e->w, e->z, latents, n);
}

/* Submits a chunk, to be encoded while the next one is read, and writes the previous one. */
static int encode_chunk(struct encoding *e, int64_t n)
{
    struct vae_coder *k = e->k;
    int64_t pixels = k->padded_height * k->padded_width * 3;

    if (e->under_way != n && finish_chunk(e)) /* another program */
        return -1;
    if (vae_coder_compile(k, vae_coder_record_encode, n) ||
        vae_coder_submit(k, "x", e->x, n * pixels) || finish_chunk(e))
        return -1;
    e->under_way = n;
    return 0;
}

static int encode_all(struct encoding *e)
{
    struct video *f = e->f;
    ckpt_progress *progress = ckpt_progress_open(stderr, "encode", f->announced);
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    int64_t n = VAE_CHUNK;
    int rc = 0;

    while (!rc && n == VAE_CHUNK) {
        n = take_chunk(e);
        rc = n < 0 ? -1 : n > 0 ? encode_chunk(e, n) : 0;
        if (!rc && e->k->program) {
            ckpt_program_info(e->k->program, &info);
            ckpt_progress_step(progress, e->taken, NAN, info.arena_bytes);
        }
    }
    rc = rc ? rc : finish_chunk(e);
    ckpt_progress_close(progress);
    if (!rc && !e->taken)
        return say_fail("%s: holds no frame", f->path);
    if (!rc && e->taken < f->announced)
        say_note("%s: ends after %lld of %lld announced frames; these are encoded", f->path,
                 (long long)e->taken, (long long)f->announced);
    return rc;
}

static int make_buffers(struct encoding *e)
{
    const struct vae_coder *k = e->k;
    int64_t pixels = k->padded_height * k->padded_width * 3;
    int64_t latents = vae_latent_frames(VAE_CHUNK, 0) * cell_of(k);

    e->rgb = malloc((size_t)(k->height * k->width * 3));
    e->x = malloc((size_t)(VAE_CHUNK * pixels) * sizeof *e->x);
    e->y = malloc((size_t)latents * sizeof *e->y);
    e->z = malloc((size_t)latents * sizeof *e->z);
    return e->rgb && e->x && e->y && e->z ? 0 : say_fail("no memory for a chunk of frames");
}

static int encode_to(struct vae_coder *k, struct video *f, const char *path)
{
    struct vae_latent_writer w = {.file = NULL};
    struct encoding e = {.k = k, .f = f, .w = &w};
    struct vae_latent_info info = {.height = k->height,
                                   .width = k->width,
                                   .chunk = VAE_CHUNK,
                                   .fps = f->fps > 0 ? f->fps : 24,
                                   .latent = k->model.config.latent,
                                   .rows = vae_coder_rows(k),
                                   .columns = vae_coder_columns(k)};
    int rc = make_buffers(&e) || vae_latents_create(&w, path, &info) || encode_all(&e) ||
             vae_latents_finish(&w);

    vae_latents_abandon(&w);
    free(e.rgb);
    free(e.x);
    free(e.y);
    free(e.z);
    if (rc)
        return -1;
    vae_coder_report(k);
    say_print("%s: %lld frames of %lld x %lld to %lld latents [%lld, %lld, %lld] in %s\n", f->path,
              (long long)w.info.frames, (long long)k->width, (long long)k->height,
              (long long)w.info.latent_frames, (long long)info.latent, (long long)info.rows,
              (long long)info.columns, path);
    return 0;
}

/* A video, or the shape of a planned clip. */
static int open_clip(const struct vae_coder *k, struct video *f, const char *path)
{
    if (path)
        return video_open(f, path);
    f->announced = k->options.frames;
    f->height = k->options.height;
    f->width = k->options.width;
    return 0;
}

static int go(struct vae_coder *k, struct video *f, const char *file[2])
{
    if (vae_coder_check_paths(k, file, false) || open_clip(k, f, file[0]) ||
        vae_coder_open(k, f->height, f->width))
        return -1;
    if (k->padded_height != k->height || k->padded_width != k->width)
        printf("frames of %lld x %lld are padded to %lld x %lld; decoding crops them\n",
               (long long)k->width, (long long)k->height, (long long)k->padded_width,
               (long long)k->padded_height);
    if (vae_coder_prepare(k, vae_coder_record_encode, f->announced, VAE_CHUNK))
        return -1;
    return k->options.library.plan_only ? 0 : encode_to(k, f, file[1]);
}

int main(int argc, char **argv)
{
    static struct vae_coder k;
    struct video f = {.path = NULL};
    const char *file[2];

    say_begin();
    int rc = vae_coder_parse(&k, argc, argv, usage, file);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&k, &f, file);
    video_close(&f);
    vae_coder_close(&k);
    return say_finish(rc ? 1 : 0);
}
