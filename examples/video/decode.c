/* SPDX-License-Identifier: Apache-2.0 */
/* The program that decodes a file of latents to a video: see programs.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/sink.h"
#include "../common/options.h"
#include "../common/outputs.h"
#include "../common/say.h"
#include "ckpt_tools.h"
#include "movie.h"
#include "programs.h"

struct options {
    const char *latents, *output, *clip;
    double fps;
    bool tiling;
};

#define ROW(...)   CKPT_OPTION(struct options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("latents", STRING, latents, "FILE",
        "latents to decode (safetensors): encoded_video [Z,F,h,w] or latents [F,Z,h,w], both as "
        "the diffusion model has them"),
    ROW("output", STRING, output, "FILE", "video to write"),
    ROW("clip", STRING, clip, "TxHxW",
        "with --plan-only: plan for a clip of this size, in frames, rows and columns of pixels "
        "(default: the clip of --latents)"),
    RANGE("fps", FLOAT, fps, "X", "frames per second of videos (default: those of the model)", 0.1,
          240),
    ROW("tiling", FLAG, tiling, NULL,
        "decode in overlapping tiles, as published: less memory, approximate"),
    {0},
};

/* ---- before the first frame ---------------------------------------------------------------- */

/* Sets the shape of the latents of a clip for --plan-only. */
static int size_latents(const struct video_coder *k, const struct options *o,
                        struct video_latents *l)
{
    struct autoencoder_clip clip = {.decode = false};
    int64_t factor = k->sizes.factor;
    int64_t *size[] = {&clip.frames, &l->height, &l->width};

    if (option_sizes("clip", o->clip, "49x480x720", 3, size))
        return -1;
    if (l->height % factor || l->width % factor)
        return say_fail("--clip %s: width and height must be multiples of %lld", o->clip,
                        (long long)factor);
    l->frames = autoencoder_clip_out(k->kind, k->own, &clip);
    const struct autoencoder_clip back = {.frames = l->frames, .decode = true};
    int64_t frames = autoencoder_clip_out(k->kind, k->own, &back);
    if (frames != clip.frames)
        return say_fail("--clip %s: %lld latent frames are %lld frames; give a number that can be "
                        "decoded",
                        o->clip, (long long)l->frames, (long long)frames);
    l->height /= factor;
    l->width /= factor;
    l->channels = k->sizes.latent;
    return 0;
}

static int check(const struct video_coder *k, const struct options *o,
                 const struct video_latents *l)
{
    if (l->channels != k->sizes.latent)
        return say_fail("%s: latents of %lld channels; %s has %lld", o->latents,
                        (long long)l->channels, k->directory, (long long)k->sizes.latent);
    return 0;
}

static int check_paths(const struct video_coder *k, const struct options *o)
{
    const struct ckpt_options *library = &k->options.library;
    const char *out = library->plan_only ? NULL : o->output;

    if (option_clip(o->clip, "--latents", library->plan_only, o->latents != NULL))
        return -1;
    if (!o->latents && !o->clip)
        return say_fail("--latents FILE is missing: the latents to decode%s; see --help",
                        library->plan_only ? ", or --clip TxHxW, the size to plan for" : "");
    if (!o->output && !library->plan_only)
        return say_fail("--output VIDEO is missing: the video to write; see --help");
    const struct ckpt_path all[] = {
        {"--latents", o->latents, CKPT_PATH_INPUT, 0},
        {"--output", out, out && sink_is_directory(out) ? CKPT_PATH_DIRECTORY : CKPT_PATH_FILE, 0},
    };
    return outputs_take(library, all, sizeof all / sizeof *all) || (out && sink_check(out)) ? -1
                                                                                            : 0;
}

static int go(struct video_coder *k, const struct autoencoder *a, const struct options *o,
              struct video_latents *l)
{
    bool plan_only = k->options.library.plan_only;

    k->options.library.runs = !o->tiling;
    if (check_paths(k, o) || video_coder_config(k, a, true) ||
        (o->clip ? size_latents(k, o, l)
                 : video_latents_read(l, o->latents, !plan_only) || check(k, o, l)) ||
        video_coder_open(k))
        return -1;
    bool tiles = o->tiling && video_coder_tiles(k, l->height, l->width);
    if (o->tiling)
        printf("tiling: %s\n", tiles ? "tiles blended where they overlap, approximate"
                                     : "one tile holds the whole frame, exact");
    if (tiles ? video_coder_prepare_tiled(k, l->frames, l->height, l->width)
              : video_coder_compile(k, l->frames, l->height, l->width))
        return -1;
    if (plan_only)
        return 0;
    if (movie_write(k, l, o->output, o->fps > 0 ? o->fps : k->sizes.fps, tiles))
        return -1;
    video_coder_report(k);
    return 0;
}

int video_decode(const struct autoencoder *a, const char *usage, int argc, char **argv)
{
    static struct video_coder k = {.options = VIDEO_CODER_INIT};
    struct options o = {.fps = 0};
    struct video_latents l = {.z = NULL};

    say_begin();
    int rc = video_coder_parse(&k, a, table, &o, argc, argv, usage);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&k, a, &o, &l);
    free(l.z);
    video_coder_close(&k);
    return say_finish(rc ? 1 : 0);
}
