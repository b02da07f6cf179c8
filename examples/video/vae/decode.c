/* SPDX-License-Identifier: Apache-2.0 */
/* vae-decode: decodes a file of latents to a video, chunk by chunk. */
#include <math.h>
#include <stdlib.h>
#include "../../common/sink.h"
#include "../../common/say.h"
#include "ckpt_tools.h"
#include "coder.h"
#include "latents.h"

const char say_program[] = "vae-decode";

static const char usage[] =
    "Usage: vae-decode [OPTION]... --load WEIGHTS LATENTS VIDEO\n\n"
    "Decodes latents of vae-encode, of any length, inside a memory budget.  VIDEO is a file .mp4\n"
    "or of another video format, a file .rgb of raw frames, or a directory for PNG pictures.\n"
    "\nExamples:\n  vae-decode --model v1.2 --load vae.safetensors latents.safetensors clip.mp4\n"
    "  vae-decode --model v1.2 --load vae.safetensors --vram 8G latents.safetensors pictures\n";

/* The buffers of a chunk, and the progress. */
struct decoding {
    struct vae_coder *k;
    struct vae_latent_reader *r;
    struct sink *s;
    float *file, *z;   /* latents in the layouts of files and of the program */
    float *x;          /* [chunk, height, width, 3] */
    uint8_t *rgb;      /* a frame */
    int64_t latents;   /* read so far */
    int64_t under_way; /* frames of the chunk in flight */
};

/* [T, Z, h, w] -> [T, h, w, Z] */
static void channels_last(const struct vae_coder *k, const float *from, float *z, int64_t frames)
{
    int64_t plane = vae_coder_rows(k) * vae_coder_columns(k), channels = k->model.config.latent;

    for (int64_t f = 0; f < frames; f++)
        for (int64_t p = 0; p < plane; p++)
            for (int64_t c = 0; c < channels; c++)
                *z++ = from[(f * channels + c) * plane + p];
}

/* Waits for the chunk in flight, and writes its frames. */
static int finish_chunk(struct decoding *d)
{
    int64_t frame = d->k->height * d->k->width * 3, n = d->under_way;

    d->under_way = 0;
    if (!n)
        return 0;
    if (vae_coder_take(d->k, "x", d->x, n * frame))
        return -1;
    for (int64_t f = 0; f < n; f++) {
        vae_coder_give_frame(d->k, d->x + f * frame, d->rgb);
        if (sink_put(d->s, d->rgb))
            return -1;
    }
    return 0;
}

/* Submits a chunk; the previous one is written while the device decodes it. */
static int decode_chunk(struct decoding *d, int64_t n)
{
    struct vae_coder *k = d->k;
    int64_t latents = vae_latent_frames(n, 0), before = d->under_way;
    int64_t cell = vae_coder_rows(k) * vae_coder_columns(k) * k->model.config.latent;

    if (vae_latents_read(d->r, d->latents, latents, d->file))
        return -1;
    channels_last(k, d->file, d->z, latents);
    d->latents += latents;
    if (before != n && finish_chunk(d)) /* another program */
        return -1;
    if (vae_coder_compile(k, vae_coder_record_decode, n) ||
        vae_coder_submit(k, "latents", d->z, latents * cell) || finish_chunk(d))
        return -1;
    d->under_way = n;
    return 0;
}

static void show_progress(const struct decoding *d, ckpt_progress *progress)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;

    ckpt_program_info(d->k->program, &info);
    ckpt_progress_step(progress, d->s->taken, NAN, info.arena_bytes);
}

static int decode_all(struct decoding *d)
{
    const struct vae_latent_info *i = &d->r->info;
    ckpt_progress *progress = ckpt_progress_open(stderr, "decode", i->frames);
    int rc = 0;

    for (int64_t at = 0; at < i->frames && !rc; at += i->chunk) {
        rc = decode_chunk(d, i->frames - at < i->chunk ? i->frames - at : i->chunk);
        if (!rc)
            show_progress(d, progress);
    }
    rc = rc ? rc : finish_chunk(d);
    if (!rc)
        show_progress(d, progress);
    ckpt_progress_close(progress);
    return rc ? rc : sink_finish(d->s);
}

static int64_t chunk_of(const struct vae_latent_info *i)
{
    return i->chunk < i->frames ? i->chunk : i->frames;
}

static int decode_to(struct vae_coder *k, struct vae_latent_reader *r, const char *path)
{
    const struct vae_latent_info *i = &r->info;
    int64_t n = chunk_of(i), cells = vae_latent_frames(n, 0) * i->latent * i->rows * i->columns;
    struct sink s = {.width = i->width, .height = i->height, .frames = i->frames, .fps = i->fps};
    struct decoding d = {.k = k,
                         .r = r,
                         .s = &s,
                         .file = malloc((size_t)cells * sizeof(float)),
                         .z = malloc((size_t)cells * sizeof(float)),
                         .x = malloc((size_t)(n * i->height * i->width * 3) * sizeof(float)),
                         .rgb = malloc((size_t)(i->height * i->width * 3))};
    int rc = d.file && d.z && d.x && d.rgb ? 0 : say_fail("no memory for a chunk of frames");

    if (!rc)
        rc = sink_open(&s, path) || decode_all(&d);
    sink_close(&s);
    free(d.file);
    free(d.z);
    free(d.x);
    free(d.rgb);
    if (rc)
        return -1;
    vae_coder_report(k);
    say_print("%s: %lld frames of %lld x %lld in %s\n", r->path, (long long)i->frames,
              (long long)i->width, (long long)i->height, path);
    return 0;
}

/* Checks that the latents match the model. */
static int check(const struct vae_coder *k, const struct vae_latent_reader *r)
{
    const struct vae_latent_info *i = &r->info;

    if (i->latent != k->model.config.latent)
        return say_fail("%s: latents of %lld channels; --model %s has %lld", r->path,
                        (long long)i->latent, k->options.model.model,
                        (long long)k->model.config.latent);
    if (i->rows != vae_coder_rows(k) || i->columns != vae_coder_columns(k))
        return say_fail("%s: %lld x %lld cells; frames of %lld x %lld have %lld x %lld with "
                        "--model %s",
                        r->path, (long long)i->columns, (long long)i->rows, (long long)i->width,
                        (long long)i->height, (long long)vae_coder_columns(k),
                        (long long)vae_coder_rows(k), k->options.model.model);
    return 0;
}

/* Latents of a file, or the shape of a planned clip. */
static int open_latents(const struct vae_coder *k, struct vae_latent_reader *r, const char *path)
{
    const struct vae_coder_options *o = &k->options;

    if (path)
        return vae_latents_open(r, path);
    r->info = (struct vae_latent_info){
        .frames = o->frames, .height = o->height, .width = o->width, .chunk = VAE_CHUNK};
    return 0;
}

static int go(struct vae_coder *k, struct vae_latent_reader *r, const char *file[2])
{
    if (k->options.sample)
        return say_fail("--sample is for vae-encode: decoding does not sample");
    if (vae_coder_check_paths(k, file, file[1] && sink_is_directory(file[1])) ||
        (file[1] && sink_check(file[1])) || open_latents(k, r, file[0]) ||
        vae_coder_open(k, r->info.height, r->info.width) || (file[0] && check(k, r)))
        return -1;
    if (vae_coder_prepare(k, vae_coder_record_decode, r->info.frames, r->info.chunk))
        return -1;
    return k->options.library.plan_only ? 0 : decode_to(k, r, file[1]);
}

int main(int argc, char **argv)
{
    static struct vae_coder k;
    struct vae_latent_reader r = {.file = NULL};
    const char *file[2];

    say_begin();
    int rc = vae_coder_parse(&k, argc, argv, usage, file);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&k, &r, file);
    vae_latents_close(&r);
    vae_coder_close(&k);
    return say_finish(rc ? 1 : 0);
}
