/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of stdit-sample: some options of stdit-train, and its own. */
#include <math.h>
#include <string.h>
#include "ckpt_tools.h"
#include "options.h"

#define ROW(...)   CKPT_OPTION(struct video_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct video_options, __VA_ARGS__)

static const char usage[] =
    "Usage: stdit-sample [OPTION]... --load WEIGHTS --vae WEIGHTS\n\n"
    "Samples clips from STDiT3, the video diffusion transformer of Open-Sora 1.2,\n"
    "and decodes them with its autoencoder, both inside one memory budget.\n"
    "\nExamples:\n  stdit-sample --model XL/2 --load stdit.safetensors --vae "
    "vae.safetensors --text-encoder t5-v1_1-xxl --prompt \"a beach\"\n"
    "  stdit-sample --load stdit.safetensors --vae vae.safetensors --vram 12G --output "
    "clips\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model"),
    ROW("load", STRING, train.load, "FILE", "weights of the diffusion model (safetensors)"),
    ROW("vae", STRING, vae, "FILE", "weights of the autoencoder (safetensors)"),
    PARTIAL_ROW(train.partial),
    ROW("model", STRING, model, "NAME", "preset: tiny, XL/2 or 3B/2 (default tiny)"),
    ROW("vae-model", STRING, vae_model, "NAME",
        "preset of the autoencoder: tiny or v1.2 (default tiny with --model tiny, else v1.2)"),
    STDIT_SIZE_ROWS,
    STDIT_CAPTION_ROWS,
    STDIT_NUMBER_ROWS,
    CKPT_OPTION_GROUP("Prompts"),
    ROW("text", STRING, text, "FILE",
        "text features y and mask (safetensors), one row per clip (default: one clip with the null "
        "caption)"),
    ROW("prompt", STRING, prompt, "TEXT",
        "text for one clip, with --text-encoder (default: the null caption)"),
    ROW("prompts", STRING, prompts, "FILE", "text file with one prompt, for one clip, per line"),
    ROW("text-encoder", STRING, text_encoder, "DIR",
        "directory of T5 in the format of Hugging Face; encodes the prompts before the model is "
        "loaded"),
    SPIECE_ROW(tokenizer, "--text-encoder"),
    RANGE("aes", FLOAT, aes, "X", "aesthetic score to append to prompts (default: none)", 0, 100),
    RANGE("flow", FLOAT, flow, "X", "motion score to append to prompts (default: none)", 0, 1000),
    ROW("camera-motion", STRING, camera, "TEXT",
        "camera motion to append to prompts, such as \"pan left\" (default: none)"),
    CKPT_OPTION_GROUP("Given frames and segments"),
    ROW("reference", STRING, reference, "FILE[;FILE...]",
        "pictures, videos or latents from vae-encode that provide given frames of clips (default: "
        "none)"),
    ROW("mask-strategy", STRING, mask_strategy, "TEXT",
        "latent frames to take from --reference: segment, reference, start in the reference, start "
        "in the clip, length, edit ratio, such as 0,0,-1,0,1,0; several are separated by ; "
        "(default: none)"),
    RANGE("loop", INT, loop, "N", "consecutive segments of a clip (default 1)", 1, 10000),
    RANGE("condition-frames", INT, condition_frames, "N",
          "last latent frames of a segment that begin the next one, a multiple of 5 (default 5)", 0,
          65535),
    RANGE("condition-edit", FLOAT, condition_edit, "X",
          "edit ratio of the frames of --condition-frames (default 0: unchanged)", 0, 1),
    RANGE("align", INT, align, "N",
          "move starts of --mask-strategy to multiples of N latent frames (default: not moved)", 1,
          65536),
    CKPT_OPTION_GROUP("Clips"),
    ROW("size", STRING, size, "WxH", "size of the frames (default 64x40)"),
    RANGE("frames", INT, frames, "N", "frames of a clip (default 17)", 1, 65536),
    RANGE("fps", FLOAT, fps, "X", "frames per second of videos (default 24)", 1, 1000),
    RANGE("steps", INT, sample_steps, "N", "Euler steps of sampling (default 30)", 1, 1000000),
    RANGE("guidance", FLOAT, guidance, "X",
          "scale of classifier-free guidance for clips with text (default 1 with --model tiny, "
          "else 7)",
          0, 1000),
    ROW("sample-seed", INT, sample_seed, "N", "seed of the initial noise of sampling (default 0)"),
    ROW("noise", STRING, noise, "FILE",
        "initial noise (safetensors) (default: drawn from --sample-seed)"),
    ROW("latents", STRING, latents, "FILE",
        "write initial noise, masks and final latents (safetensors)"),
    ROW("output", STRING, out, "DIR", "directory for videos and pictures (default stdit-out)"),
    CKPT_OPTION_ALIAS("out", "output"),
    HELP_ROWS,
    {0},
};

/* Text comes from a file of features or from prompts; prompts need a text encoder. */
static int check_text(const struct video_options *o)
{
    const char *given = o->prompt ? "--prompt" : "--prompts";
    bool prompts = o->prompt || o->prompts;

    if (!!o->text + !!o->prompt + !!o->prompts > 1)
        return say_fail("give one of --text, --prompt and --prompts");
    if (prompts && !o->text_encoder)
        return say_fail("%s needs --text-encoder DIR", given);
    if (!prompts && (o->text_encoder || !isnan(o->aes) || !isnan(o->flow) || o->camera))
        return say_fail("--text-encoder, --aes, --flow and --camera-motion are for --prompt and "
                        "--prompts, and none is given");
    return 0;
}

/* Segments share whole chunks of 17 frames, which are 5 latent frames. */
static int check_loop(struct video_options *o)
{
    bool given = o->condition_frames >= 0 || o->condition_edit >= 0;

    if (given && o->loop == 1)
        return say_fail("--condition-frames and --condition-edit are for --loop N");
    option_take(&o->condition_frames, 5, -1);
    o->condition_edit = o->condition_edit < 0 ? 0 : o->condition_edit;
    if (o->loop > 1 && !o->condition_frames)
        return say_fail(
            "--loop %lld with --condition-frames 0: segments would have no frames in common",
            (long long)o->loop);
    if (o->condition_frames % 5)
        return say_fail("--condition-frames %lld: give a multiple of 5, the latent frames of 17 "
                        "frames of video",
                        (long long)o->condition_frames);
    return 0;
}

static int check(struct video_options *o)
{
    if (check_text(o) || check_loop(o))
        return -1;
    if (!o->library.plan_only && (!o->train.load || !o->vae))
        return say_fail("--load FILE and --vae FILE are required: weights of the diffusion model "
                        "(%s) and of the autoencoder (%s)",
                        o->model, o->vae_model);
    return stdit_check_size(o) || stdit_check_model(o) ? -1 : 0;
}

int stdit_sample_options_parse(struct video_options *o, int argc, char **argv)
{
    const struct option_reading reading = OPTION_READING(o, table, usage, false);

    *o = (struct video_options)STDIT_OPTIONS_INIT;
    /* As Open-Sora 1.2 samples.  NaN, below 0: not given. */
    o->fps = 24;
    o->sample_steps = 30;
    o->aes = o->flow = NAN;
    o->loop = 1;
    o->condition_frames = -1;
    o->condition_edit = -1;
    int rc = options_read(&reading, argc, argv);
    if (rc)
        return rc;
    o->out = o->out ? o->out : STDIT_OUT;
    return dtype_select_for(&o->dtype, o->train.load) || stdit_fill_preset(o) || check(o) ||
                   outputs_untrained(&o->library)
               ? -1
               : 0;
}
