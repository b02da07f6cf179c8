/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the program that samples. */
#include <string.h>
#include "../common/say.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "stages.h"

#define ROW(...)   CKPT_OPTION(struct video_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct video_options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model"),
    VIDEO_MODEL_ROWS,
    ROW("load", STRING, train.load, "FILE",
        "LoRA adapters, or weights in place of the weights of --model (safetensors)"),
    PARTIAL_ROW(train.partial),
    LORA_RANK_ROW("rank of the LoRA adapters in --load (default: from the file)"),
    VIDEO_LORA_ROWS,
    CKPT_OPTION_GROUP("Prompts"),
    ROW("text", STRING, sample_text, "FILE",
        "text features to sample: prompt_embedding (safetensors), one row per clip; give this, "
        "--prompt or --prompts"),
    ROW("prompt", STRING, prompt, "TEXT",
        "text for one clip, encoded by --text-encoder (no default)"),
    ROW("prompts", STRING, sample_prompts, "FILE",
        "text file with one prompt, for one clip, per line"),
    VIDEO_DRAW_ROWS,
    ROW("image", STRING, image, "FILE",
        "picture to sample from, required for I2V, and the first frame of TI2V, or its latents: "
        "encoded_image (safetensors) (default: none)"),
    ROW("noise", STRING, noise, "FILE",
        "initial noise (safetensors) (default: drawn from --sample-seed)"),
    CKPT_OPTION_GROUP("Clips"),
    RANGE("frames", INT, frames, "N", "frames of a clip (default: CogVideoX 49, Wan 81)", 1, 65536),
    VIDEO_SIZE_ROW,
    RANGE("height", INT, height, "N", "height of a frame in pixels (default 480)", 1, 65536),
    RANGE("width", INT, width, "N", "width of a frame in pixels (default: CogVideoX 720, Wan 832)",
          1, 65536),
    RANGE("steps", INT, sample_steps, "N", "steps of sampling (default 50)", 1, 1000),
    ROW("out", STRING, out, "DIR",
        "directory for latents (default: the model's, as cogvideo-out; with --output: not "
        "written)"),
    ROW("output", STRING, output, "FILE",
        "video to write, for several clips NAME-00001-of-00003.mp4 and so on, or a directory for "
        "pictures (default: none)"),
    ROW("vae", STRING, vae, "DIR",
        "autoencoder of --output and of a picture in --image (default: the vae of --model)"),
    HELP_ROWS,
    {0},
};

/* --load is of adapters or of whole weights: what the file has decides (adapters.file.n). */
static int check(struct video_options *o)
{
    const struct adapter_options *a = &o->adapters;
    bool prompts = o->prompt || o->sample_prompts;

    if (!!o->sample_text + !!o->prompt + !!o->sample_prompts != 1)
        return say_fail("give one of --text, --prompt and --prompts");
    if (!prompts && (o->text_encoder || o->tokenizer))
        return say_fail("--text-encoder and --tokenizer are for prompts, and none is given");
    if (o->vae && !o->output && !video_has_picture(o))
        return say_fail("--vae DIR is for --output FILE");
    if ((o->load[1] || o->guidance_low >= 0) && o->net.sizes.boundary <= 0)
        return say_fail("--%s is for a pair of models, and %s is a single one",
                        o->load[1] ? "load-low" : "guidance-low", o->model);
    if (video_check_drawing(o) || video_check_image(o, "--image"))
        return -1;
    if (o->train.load && o->random && !o->adapters.file.n)
        return say_fail("--random and --load exclude each other");
    if (!a->file.n && (a->rank || a->alpha >= 0 || a->targets))
        return say_fail("--lora-rank, --lora-alpha and --lora-targets are for adapters in --load");
    char path[VIDEO_PATH];
    return dtype_select_for(&o->dtype, video_weights(o, path));
}

int video_select_model(struct video_options *o, bool second)
{
    const struct video_model *m = o->net.model;

    if (o->net.own)
        m->close(&o->net);
    adapter_file_close(&o->adapters.file);
    o->adapters = o->asked_adapters;
    o->train.load = o->load[second];
    if (second && !o->train.load)
        o->adapters.rank = 0;
    o->net.noising.expert = second ? "low" : "high";
    return m->read(&o->net, o->model) ||
                   adapter_options_read(&o->adapters, m->adapters, &o->train, o->train.load)
               ? -1
               : 0;
}

static int check_file(const char *path)
{
    ckpt_file *f;

    if (!path)
        return 0;
    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    ckpt_file_close(f);
    return 0;
}

/* Reads what there is of both models of a pair before the first one runs. */
static int check_pair(struct video_options *o)
{
    char path[VIDEO_PATH];

    if (video_select_model(o, true))
        return -1;
    if (!o->library.plan_only && (check_file(video_weights(o, path)) ||
                                  check_file(o->adapters.file.n ? NULL : o->train.load)))
        return -1;
    return video_select_model(o, false);
}

int video_sample_options_parse(struct video_options *o, const struct video_model *m, int argc,
                               char **argv)
{
    struct option_reading reading = OPTION_READING(o, table, m->sample_usage, false);

    reading.own[1] = (struct option_part){"Model pairs", m->sample_rows, o};
    reading.once = video_once;
    *o = (struct video_options)VIDEO_OPTIONS_INIT;
    o->net.model = m;
    o->frames = m->frames;
    o->height = m->height;
    o->width = m->width;
    int rc = options_read(&reading, argc, argv);
    if (rc)
        return rc;
    if (!o->model)
        return say_fail("--model DIR is missing");
    o->load[0] = o->train.load;
    o->asked_adapters = o->adapters;
    if (video_take_size(o) || video_select_model(o, false))
        return -1;
    if (o->net.sizes.boundary > 0 && check_pair(o))
        return -1;
    if (video_check_size(&o->net.sizes, o->frames, o->height, o->width) || check(o))
        return -1;
    if (!o->out && !o->output)
        o->out = m->out;
    return outputs_untrained(&o->library);
}
