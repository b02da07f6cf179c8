/* SPDX-License-Identifier: Apache-2.0 */
/* cogvideo-decode: from a file of latents to a video. */
#include <stdlib.h>
#include <string.h>
#include "../../common/sink.h"
#include "../../common/options.h"
#include "../../common/outputs.h"
#include "../../common/say.h"
#include "../../common/signals.h"
#include "ckpt_tools.h"
#include "coder.h"
#include "video.h"

const char say_program[] = "cogvideo-decode";

static const char usage[] =
    "Usage: cogvideo-decode [OPTION]... --model DIR --latents FILE --output VIDEO\n\n"
    "Decodes latents with the video autoencoder of CogVideoX inside a memory budget; the\n"
    "budget changes no bit of the result.  VIDEO is a file .mp4, .y4m or of another video format,\n"
    "a file .rgb of raw frames, or a directory for PNG pictures.\n"
    "\nExamples:\n  cogvideo-decode --model CogVideoX-5b --latents latents.safetensors --output "
    "clip.mp4\n"
    "  cogvideo-decode --model CogVideoX-5b --latents latents.safetensors --vram 8G --output "
    "pictures\n";

struct options {
    const char *latents, *output, *clip;
    double fps;
    bool tiling;
};

#define ROW(...)   CKPT_OPTION(struct options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("latents", STRING, latents, "FILE",
        "latents to decode (safetensors): encoded_video [16,F,h,w] or latents [F,16,h,w], both "
        "multiplied by the scaling factor"),
    ROW("output", STRING, output, "FILE", "video to write"),
    ROW("clip", STRING, clip, "TxHxW",
        "with --plan-only: plan for a clip of this size, in frames, rows and columns of pixels "
        "(default: the clip of --latents)"),
    RANGE("fps", FLOAT, fps, "X", "frames per second of videos (default 8)", 0.1, 240),
    ROW("tiling", FLAG, tiling, NULL,
        "decode in overlapping tiles, as published: less memory, approximate"),
    {0},
};

/* ---- before the first frame ---------------------------------------------------------------- */

/* Sets the shape of the latents of a clip for --plan-only. */
static int size_latents(const struct cogvae_coder *k, const struct options *o,
                        struct cogvae_latents *l)
{
    int64_t frames, factor = cogvae_factor(&k->m.config);
    int64_t *size[] = {&frames, &l->height, &l->width};

    if (option_sizes("clip", o->clip, "49x480x720", 3, size))
        return -1;
    if (l->height % factor || l->width % factor)
        return say_fail("--clip %s: width and height must be multiples of %lld", o->clip,
                        (long long)factor);
    l->frames = cogvae_clip_latents(&k->m.config, frames);
    l->height /= factor;
    l->width /= factor;
    l->channels = k->m.config.latent;
    return 0;
}

static int check(const struct cogvae_coder *k, const struct options *o,
                 const struct cogvae_latents *l)
{
    if (l->channels != k->m.config.latent)
        return say_fail("%s: latents of %lld channels; %s has %lld", o->latents,
                        (long long)l->channels, k->directory, (long long)k->m.config.latent);
    return 0;
}

static int check_paths(const struct cogvae_coder *k, const struct options *o)
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

static int go(struct cogvae_coder *k, const struct options *o, struct cogvae_latents *l)
{
    bool plan_only = k->options.library.plan_only;

    if (check_paths(k, o) || cogvae_coder_config(k, true) ||
        (o->clip ? size_latents(k, o, l)
                 : cogvae_latents_read(l, o->latents, !plan_only) || check(k, o, l)) ||
        cogvae_coder_open(k))
        return -1;
    bool tiles = o->tiling && cogvae_coder_tiles(k, l->height, l->width);
    if (o->tiling)
        printf("tiling: %s\n", tiles ? "tiles blended where they overlap, approximate"
                                     : "one tile holds the whole frame, exact");
    if (tiles ? cogvae_coder_prepare_tiled(k, l->frames, l->height, l->width)
              : cogvae_coder_compile(k, l->frames, l->height, l->width))
        return -1;
    if (plan_only)
        return 0;
    if (cogvae_video_write(k, l, o->output, o->fps, tiles))
        return -1;
    cogvae_coder_report(k);
    return 0;
}

int main(int argc, char **argv)
{
    static struct cogvae_coder k = {.options = COGVAE_CODER_INIT};
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
