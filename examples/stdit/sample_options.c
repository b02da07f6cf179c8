/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of stdit-sample: some options of stdit-train, and its own. */
#include <math.h>
#include <string.h>
#include "ckpt_tools.h"
#include "options.h"

#define ROW(...)   CKPT_OPTION(struct stdit_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct stdit_options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("load", STRING, train.load, "FILE", "weights of the diffusion model (safetensors)"),
    ROW("vae", STRING, vae, "FILE", "weights of the autoencoder (safetensors)"),
    ROW("partial", FLAG, train.partial, NULL, "let --load leave out parameters"),
    ROW("model", STRING, model, "NAME", "preset: tiny, XL/2 or 3B/2 (default tiny)"),
    ROW("vae-model", STRING, vae_model, "NAME",
        "tiny or v1.2 (default tiny with --model tiny, else v1.2)"),
    STDIT_SIZE_ROWS,
    STDIT_CAPTION_ROWS,
    STDIT_NUMBER_ROWS,
    ROW("text", STRING, text, "FILE",
        "y and mask (safetensors), a clip a row (default: one clip of the null caption)"),
    ROW("prompt", STRING, prompt, "TEXT",
        "what a clip shows, for --text-encoder (default: the null caption)"),
    ROW("prompts", STRING, prompts, "FILE", "text, a prompt and clip a line"),
    ROW("text-encoder", STRING, text_encoder, "DIR",
        "T5 as Hugging Face has it, which reads prompts before the model is loaded"),
    ROW("tokenizer", STRING, tokenizer, "FILE",
        "spiece.model, or its directory (default: that of --text-encoder)"),
    RANGE("aes", FLOAT, aes, "X", "aesthetic score, appended to prompts (default: none)", 0, 100),
    RANGE("flow", FLOAT, flow, "X", "motion score, appended to prompts (default: none)", 0, 1000),
    ROW("camera-motion", STRING, camera, "TEXT",
        "as pan left, appended to prompts (default: none)"),
    ROW("reference", STRING, reference, "FILE[;FILE...]",
        "pictures, videos or latents of vae-encode that frames of each clip are given from "
        "(default: none)"),
    ROW("mask-strategy", STRING, mask_strategy, "TEXT",
        "which latent frames: segment, reference, start in it, start in the clip, length, edit "
        "ratio, as 0,0,-1,0,1,0; several with ; between (default: none)"),
    RANGE("loop", INT, loop, "N", "segments of a clip, one after the other (default 1)", 1, 10000),
    RANGE("condition-frames", INT, condition_frames, "N",
          "latent frames of a segment that the next one begins with, fives (default 5)", 0, 65535),
    RANGE("condition-edit", FLOAT, condition_edit, "X", "their edit ratio (default 0: they stay)",
          0, 1),
    RANGE("align", INT, align, "N",
          "move starts of --mask-strategy to multiples of N latent frames (default: they stay)", 1,
          65536),
    ROW("size", STRING, size, "WxH", "size of the frames (default 64x40)"),
    RANGE("frames", INT, frames, "N", "frames of a clip (default 17)", 1, 65536),
    RANGE("fps", FLOAT, fps, "X", "frames a second (default 24)", 1, 1000),
    RANGE("steps", INT, sample_steps, "N", "Euler steps (default 30)", 1, 1000000),
    RANGE("guidance", FLOAT, guidance, "X",
          "classifier-free guidance with a text (default 1 with --model tiny, else 7)", 0, 1000),
    ROW("sample-seed", INT, sample_seed, "N",
        "seed of the noise that sampling starts from (default 0)"),
    ROW("noise", STRING, noise, "FILE",
        "noise to start from (safetensors; default: drawn by --sample-seed)"),
    ROW("latents", STRING, latents, "FILE",
        "write what comes out before decoding, and what it came from (safetensors)"),
    ROW("out", STRING, out, "DIR", "where videos and pictures go (default stdit-out)"),
    HELP_ROWS,
    {0},
};

/* Text comes from a file of features or from prompts; prompts need a text encoder. */
static int check_text(const struct stdit_options *o)
{
    const char *given = o->prompt ? "--prompt" : "--prompts";
    bool prompts = o->prompt || o->prompts;

    if (!!o->text + !!o->prompt + !!o->prompts > 1)
        return say_fail("give one of --text, --prompt and --prompts");
    if (prompts && !o->text_encoder)
        return say_fail("%s: --text-encoder DIR is needed, which reads it", given);
    if (!prompts && (o->text_encoder || !isnan(o->aes) || !isnan(o->flow) || o->camera))
        return say_fail("--text-encoder, --aes, --flow and --camera-motion are for --prompt and "
                        "--prompts, and there is none");
    return 0;
}

/* Segments share whole chunks of 17 frames, which are 5 latent frames. */
static int check_loop(struct stdit_options *o)
{
    bool told = o->condition_frames >= 0 || o->condition_edit >= 0;

    if (told && o->loop == 1)
        return say_fail("--condition-frames and --condition-edit are for --loop N");
    option_take(&o->condition_frames, 5, -1);
    o->condition_edit = o->condition_edit < 0 ? 0 : o->condition_edit;
    if (o->loop > 1 && !o->condition_frames)
        return say_fail("--loop %lld with --condition-frames 0: segments would have nothing in "
                        "common",
                        (long long)o->loop);
    if (o->condition_frames % 5)
        return say_fail("--condition-frames %lld: fives are given on, 17 frames of video each",
                        (long long)o->condition_frames);
    return 0;
}

static int check(struct stdit_options *o)
{
    if (check_text(o) || check_loop(o))
        return -1;
    if (!o->library.plan_only && (!o->train.load || !o->vae))
        return say_fail("--load FILE and --vae FILE are needed: weights of the diffusion model "
                        "(%s) and of the autoencoder (%s)",
                        o->model, o->vae_model);
    return stdit_check_size(o) || stdit_check_model(o) ? -1 : 0;
}

int stdit_sample_options_parse(struct stdit_options *o, int argc, char **argv)
{
    const struct ckpt_option *tables[] = {table, options_of_library(false)};
    const struct option_section sections[] = {{"Options", table},
                                              {"Options of the library", tables[1]}};

    *o = (struct stdit_options)STDIT_OPTIONS_INIT;
    o->fps = 24;
    o->sample_steps = 30;
    o->aes = o->flow = NAN;
    o->loop = 1;
    o->condition_frames = -1;
    o->condition_edit = -1;
    if (ckpt_options_parse(&o->library, &argc, argv) ||
        ckpt_option_table_parse(table, o, &argc, argv) ||
        ckpt_options_reject(argc, argv, 2, tables))
        return say_fail("%s", ckpt_error(NULL));
    if (options_print(o->help, o->version,
                      "Usage: stdit-sample [OPTION]... --load WEIGHTS --vae WEIGHTS\n\n"
                      "Draws clips from STDiT3, the video diffusion transformer of Open-Sora 1.2,\n"
                      "and decodes them with its autoencoder, both inside one memory budget.\n",
                      2, sections))
        return 1;
    o->out = o->out ? o->out : STDIT_OUT;
    return stdit_fill_preset(o) || check(o) || outputs_untrained(&o->library) ? -1 : 0;
}
