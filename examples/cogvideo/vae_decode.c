/* SPDX-License-Identifier: Apache-2.0 */
/* cogvideo-decode: a file of latents to a video. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/frames.h"
#include "../common/memory.h"
#include "../common/options.h"
#include "../common/say.h"
#include "../common/signals.h"
#include "ckpt_tools.h"
#include "coder.h"
#include "vae_latents.h"

const char say_program[] = "cogvideo-decode";

static const char usage[] =
    "Usage: cogvideo-decode [OPTION]... --model DIR --latents FILE --output VIDEO\n\n"
    "Decodes latents with the video autoencoder of CogVideoX inside a memory budget, to the bits\n"
    "that no budget gives.  VIDEO ends in .mp4, .y4m or another ending of a video, in .rgb for\n"
    "raw frames, or is a directory of PNG pictures.\n";

struct options {
    const char *latents, *output;
    double fps;
    bool tiling;
};

#define ROW(...)   CKPT_OPTION(struct options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("latents", STRING, latents, "FILE",
        "encoded_video [16,F,h,w] or latents [F,16,h,w], both times the scaling factor "
        "(safetensors)"),
    ROW("output", STRING, output, "FILE", "the video to write"),
    RANGE("fps", FLOAT, fps, "X", "frames a second of it (default 8)", 0.1, 240),
    ROW("tiling", FLAG, tiling, NULL,
        "decode in overlapping tiles as published: approximate, in less memory"),
    {0},
};

/* A pixel as 8 bits: x/2 + 1/2 held in [0, 1], times 255, to the nearest, half to even. */
static uint8_t byte_of(float x)
{
    x = x * 0.5f + 0.5f;
    x = x > 0.f ? x : 0.f; /* no number is 0 */
    return (uint8_t)lrintf((x < 1.f ? x : 1.f) * 255.f);
}

static int put_frames(struct sink *s, const float *y, int64_t n, uint8_t *rgb)
{
    int64_t values = s->width * s->height * 3;

    for (int64_t f = 0; f < n; f++) {
        for (int64_t i = 0; i < values; i++)
            rgb[i] = byte_of(y[f * values + i]);
        if (sink_put(s, rgb))
            return -1;
    }
    return 0;
}

/* Pass by pass out of the program. */
static int decode_whole(struct cogvae_coder *k, const struct cogvae_latents *l, struct sink *s,
                        uint8_t *rgb)
{
    int64_t most = cogvae_coder_pass_out(k, 0) + cogvae_decoded(&k->m.config, COGVAE_DECODE_PASS);
    float *y = MEMORY_FOR(sizeof *y, most, cogvae_coder_out(k));
    int rc = y ? cogvae_coder_run(k, l->z) : say_fail("no memory for a pass of frames");

    for (int64_t pass = 0; pass < k->passes.n && !rc; pass++) {
        rc = cogvae_coder_take(k, pass, y);
        if (!rc)
            rc = put_frames(s, y, cogvae_coder_pass_out(k, pass), rgb);
    }
    free(y);
    return rc;
}

static int decode_tiles(struct cogvae_coder *k, const struct cogvae_latents *l, struct sink *s,
                        uint8_t *rgb)
{
    float *y = MEMORY_FOR(sizeof *y, s->frames, s->width * s->height, 3);
    int rc = y ? cogvae_coder_decode_tiled(k, l->z, l->frames, l->height, l->width, y)
               : say_fail("no memory for the frames");

    if (!rc)
        rc = put_frames(s, y, s->frames, rgb);
    free(y);
    return rc;
}

static int decode_to(struct cogvae_coder *k, struct cogvae_latents *l, const struct options *o,
                     bool tiles)
{
    int64_t factor = cogvae_factor(&k->m.config), n = l->frames * l->height * l->width;
    struct sink s = {.width = l->width * factor,
                     .height = l->height * factor,
                     .frames = cogvae_clip_frames(&k->m.config, l->frames),
                     .fps = o->fps};
    uint8_t *rgb = malloc((size_t)(s.width * s.height * 3));
    int rc = rgb ? sink_open(&s, o->output) : say_fail("no memory for a frame");

    for (int64_t i = 0; i < n * l->channels; i++)
        l->z[i] = (float)((double)l->z[i] / k->m.config.scaling);
    if (!rc)
        rc = tiles ? decode_tiles(k, l, &s, rgb) : decode_whole(k, l, &s, rgb);
    if (!rc)
        rc = sink_finish(&s);
    sink_close(&s);
    free(rgb);
    if (rc)
        return -1;
    cogvae_coder_report(k);
    say_print("%s: %lld frames of %lld x %lld in %s\n", o->latents, (long long)s.frames,
              (long long)s.width, (long long)s.height, o->output);
    return 0;
}

/* ---- before the first frame ---------------------------------------------------------------- */

static int check(const struct cogvae_coder *k, const struct options *o,
                 const struct cogvae_latents *l)
{
    if (l->channels != k->m.config.latent)
        return say_fail("%s: latents of %lld channels; those of %s have %lld", o->latents,
                        (long long)l->channels, k->directory, (long long)k->m.config.latent);
    return 0;
}

static int check_paths(const struct cogvae_coder *k, const struct options *o)
{
    const struct ckpt_options *library = &k->options.library;
    const char *out = library->plan_only ? NULL : o->output;

    if (!o->latents)
        return say_fail("--latents FILE is missing: what is to be decoded; see --help");
    if (!o->output && !library->plan_only)
        return say_fail("--output VIDEO is missing: where the frames are to go; see --help");
    const struct ckpt_path all[] = {
        {"--latents", o->latents, CKPT_PATH_INPUT, 0},
        {"--output", out, out && sink_is_directory(out) ? CKPT_PATH_DIRECTORY : CKPT_PATH_FILE, 0},
    };
    return ckpt_paths_check(library, all, sizeof all / sizeof *all)
               ? say_fail("%s", ckpt_error(NULL))
               : 0;
}

static int go(struct cogvae_coder *k, const struct options *o, struct cogvae_latents *l)
{
    bool plan_only = k->options.library.plan_only;

    if (check_paths(k, o) || cogvae_coder_config(k, true) ||
        cogvae_latents_read(l, o->latents, !plan_only) || check(k, o, l) || cogvae_coder_open(k))
        return -1;
    bool tiles = o->tiling && cogvae_coder_tiles(k, l->height, l->width);
    if (o->tiling)
        printf("tiling: %s\n", tiles ? "tiles blended where they overlap, approximate"
                                     : "one tile holds the whole frame, exact");
    if (tiles ? cogvae_coder_prepare_tiled(k, l->frames, l->height, l->width)
              : cogvae_coder_compile(k, l->frames, l->height, l->width))
        return -1;
    return plan_only ? 0 : decode_to(k, l, o, tiles);
}

int main(int argc, char **argv)
{
    struct cogvae_coder k = {.options = COGVAE_CODER_INIT};
    struct options o = {.fps = 8};
    struct cogvae_latents l = {.z = NULL};

    say_begin();
    signals_open();
    int rc = cogvae_coder_parse(&k, table, &o, argc, argv, usage);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&k, &o, &l);
    free(l.z);
    cogvae_coder_close(&k);
    return say_finish(rc ? 1 : 0);
}
