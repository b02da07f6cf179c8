/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of cogvideo-train. */
#include <string.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "stages.h"

#define ROW(...)   CKPT_OPTION(struct cogvideo_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct cogvideo_options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    COGVIDEO_MODEL_ROWS,
    GRAD_DTYPE_ROW,
    ROW("data", STRING, data, "DIR",
        "directory of videos.txt and prompts.txt, with what was encoded in DIR/cache; random: "
        "noise (default random)"),
    ROW("videos", STRING, videos, "FILE", "a video a line (default: videos.txt in --data)"),
    ROW("prompts", STRING, prompts, "FILE",
        "the prompt of each, a line each (default: prompts.txt or prompt.txt in --data)"),
    ROW("csv", STRING, csv, "FILE", "both in the columns of a table (default: none)"),
    ROW("video-column", STRING, video_column, "NAME", "of --csv (default video)"),
    ROW("caption-column", STRING, caption_column, "NAME", "of --csv (default caption)"),
    ROW("latents", STRING, latents, "DIR",
        "encoded videos (default: the directory of their size in DIR/cache/video_latent)"),
    ROW("text", STRING, text, "DIR",
        "encoded prompts, or one file with all of them, as text-encode writes it (default: "
        "DIR/cache/prompt_embeddings of --data)"),
    ROW("cache", STRING, cache, "DIR",
        "train on latents and text that video-encode made (default: none)"),
    ROW("check-cache", FLAG, check_cache, NULL,
        "compare the sums of all values in --cache before the first step"),
    ROW("features", STRING, features, "FILE",
        "train on z, y and, of I2V, image from a safetensors file"),
    RANGE("frames", INT, frames, "N", "frames of a video (default: those of the data, else 49)", 1,
          65536),
    RANGE("height", INT, height, "N", "rows of a video (default: those of the data, else 480)", 1,
          65536),
    RANGE("width", INT, width, "N", "columns of a video (default: those of the data, else 720)", 1,
          65536),
    RANGE("text-drop", FLOAT, text_drop, "X",
          "part of the samples that see zeros in place of a prompt (default 0)", 0, 1),
    ROW("images", STRING, images, "FILE",
        "of I2V, a picture or a video whose first frame is taken a line: noised and encoded at "
        "each "
        "step (default: encoded_image of the data, else the first latent frame)"),
    RANGE("image-noise-mean", FLOAT, image_noise_mean, "X",
          "mean of the logarithm of the noise on --images (default -3)", -1000, 10),
    RANGE("image-noise-std", FLOAT, image_noise_std, "X", "its standard deviation (default 0.5)", 0,
          10),
    RANGE("image-drop", FLOAT, image_drop, "X",
          "part of the samples of I2V that see zeros in place of the picture (default 0.05)", 0, 1),
    ROW("keep-order", FLAG, keep_order, NULL,
        "take samples as they are listed (default: shuffled anew each epoch, as --seed says)"),
    RANGE("lora-rank", INT, rank, "N",
          "train adapters of this rank and nothing else (default: all weights)", 1, 65536),
    COGVIDEO_LORA_ROWS,
    ROW("frozen", STRING, frozen, "FORMAT",
        "what large weights of the blocks are kept in below adapters: bf16 (default; as --dtype "
        "has them), or codes of 8 bits, int8, or of 4, nf4"),
    ROW("lora-merge", STRING, merge, "FILE",
        "write the weights with the adapters added to them at the end (default: not written)"),
    WEIGHTS_ROWS,
    BATCH_ROW("samples", " 1"),
    STEPS_ROWS(" 1000", " 1e-4 of adapters, 2e-5 of all weights", " 100", "1e-4", "0: none"),
    BETA2_ROW,
    LOG_ROWS("prediction"),
    VALIDATION_ROWS,
    RANGE("sample-every", INT, sample_every, "N",
          "draw clips every N steps, too, as step-NNNNNNNN in --out (default: at the end)", 1,
          OPTION_MOST),
    ROW("sample-text", STRING, sample_text, "FILE",
        "what is drawn: prompt_embedding (safetensors), a clip a row"),
    ROW("sample-prompt", STRING, prompt, "TEXT",
        "the same in words, for the text encoder (default: nothing is drawn)"),
    ROW("sample-prompts", STRING, sample_prompts, "FILE", "text, a prompt and clip a line"),
    ROW("sample-image", STRING, image, "FILE",
        "encoded_image of I2V (safetensors), which must be given there"),
    ROW("sample-ema", FLAG, sample_ema, NULL, "draw from the moving average of the weights"),
    RANGE("sample-steps", INT, sample_steps, "N", "steps of sampling (default 50)", 1, 1000),
    COGVIDEO_DRAW_ROWS,
    ROW("vae", STRING, vae, "DIR",
        "the autoencoder of --images and of what is drawn (default: that of --model, if it has "
        "one)"),
    ROW("out", STRING, out, "DIR", "where clips go (default cogvideo-out)"),
    HELP_ROWS,
    {0},
};

static int print_help(const struct cogvideo_options *o)
{
    const struct option_section sections[] = {{"Options", table},
                                              {"Options of the library", options_of_library(true)}};

    return options_print(o->help, o->version,
                         "Usage: cogvideo-train --model DIR [OPTION]...\n\n"
                         "Trains the transformer of CogVideoX, or adapters of it, inside a memory\n"
                         "budget, on videos and prompts that were encoded before.\n",
                         2, sections);
}

int cogvideo_options_note(const struct cogvideo_options *o, ckpt *c)
{
    return resume_note(c, table, o);
}

int cogvideo_options_agree(const struct cogvideo_options *o, ckpt *c)
{
    return options_agree(c, 1, &(struct option_table){table, o});
}

static int check_data(struct cogvideo_options *o)
{
    bool listed = o->csv || o->videos || o->prompts || o->latents || o->text;

    if (o->cache && (o->data || o->features || listed || o->frames || o->height || o->width))
        return say_fail("--cache has all of the data: leave out --data, --features and their files "
                        "and sizes");
    if (o->check_cache && !o->cache)
        return say_fail("--check-cache is for --cache DIR");
    if (!o->data && !o->features && !o->cache)
        o->data = listed ? "." : "random";
    if (o->features && (o->data || listed))
        return say_fail("--features has all of the data: leave out --data and its files");
    if (o->data && !strcmp(o->data, "random") && listed)
        return say_fail("--data random: leave out the files of videos and prompts");
    if (o->csv && (o->videos || o->prompts))
        return say_fail("--csv has videos and prompts: leave out --videos and --prompts");
    return 0;
}

static int check_adapters(const struct cogvideo_options *o)
{
    if (!o->rank && (o->alpha >= 0 || o->merge || strcmp(o->targets, COGVIDEO_TARGETS)))
        return say_fail("--lora-alpha, --lora-targets and --lora-merge are for --lora-rank N");
    if (strcmp(o->frozen, "bf16") && strcmp(o->frozen, "int8") && strcmp(o->frozen, "nf4"))
        return say_fail("--frozen %s: give bf16, int8 or nf4", o->frozen);
    if (!o->rank && strcmp(o->frozen, "bf16"))
        return say_fail(
            "--frozen %s is for --lora-rank N: without adapters all weights are trained",
            o->frozen);
    if (o->merge && o->library.plan_only)
        return say_fail("--lora-merge %s: nothing would be written: --plan-only ends before the "
                        "first step",
                        o->merge);
    if (o->merge && !o->train.steps && !o->train.load && !o->train.state.from)
        return say_fail("--lora-merge %s: nothing would be written: there are no adapters yet",
                        o->merge);
    return 0;
}

static int check_images(struct cogvideo_options *o)
{
    bool noised = o->image_noise_mean != COGVIDEO_NOISE_MEAN ||
                  o->image_noise_std != COGVIDEO_NOISE_DEVIATION;

    if ((o->images || o->image_drop >= 0) && !cogvideo_has_image(&o->config))
        return say_fail("--%s is for I2V models", o->images ? "images" : "image-drop");
    if (noised && !o->images)
        return say_fail("--image-noise-mean and --image-noise-std are for --images FILE");
    if (o->images && o->data && !strcmp(o->data, "random"))
        return say_fail("--images: --data random has none");
    if (o->image_drop < 0)
        o->image_drop = cogvideo_has_image(&o->config) ? COGVIDEO_IMAGE_DROP : 0;
    return 0;
}

static int check_sampling(struct cogvideo_options *o)
{
    int n = !!o->sample_text + !!o->prompt + !!o->sample_prompts;
    bool others = o->sample_every || o->sample_ema || o->image || o->negative || o->out ||
                  (o->vae && !o->images);

    if (n > 1)
        return say_fail("give one of --sample-text, --sample-prompt and --sample-prompts");
    if (!n && others)
        return say_fail("%s: say what to draw with --sample-text, --sample-prompt or "
                        "--sample-prompts",
                        o->sample_every ? "--sample-every"
                        : o->sample_ema ? "--sample-ema"
                        : o->image      ? "--sample-image"
                        : o->negative   ? "--negative"
                        : o->out        ? "--out"
                                        : "--vae");
    if ((o->text_encoder || o->tokenizer) && !cogvideo_has_prompts(o))
        return say_fail("--text-encoder and --tokenizer are for prompts, and there is none");
    if (cogvideo_has_prompts(o) && o->library.ranks)
        return say_fail("--sample-prompt%s: of several ranks none encodes text: make features with "
                        "text-encode and give --sample-text",
                        o->prompt ? "" : "s");
    if (n && !o->train.steps && !o->train.state.from)
        return say_fail("--steps 0 trains nothing between clips; cogvideo-sample draws them");
    if (n && cogvideo_has_image(&o->config) != (o->image != NULL))
        return say_fail(o->image ? "--sample-image is for I2V models"
                                 : "--sample-image FILE: this model draws what follows a picture");
    if (o->sample_ema && o->train.ema_decay <= 0)
        return say_fail("--sample-ema: with --ema-decay 0 there is no average");
    if (!o->out && n)
        o->out = "cogvideo-out";
    return cogvideo_check_drawing(o);
}

static void fill_defaults(struct cogvideo_options *o)
{
    if (o->rank && o->alpha < 0)
        o->alpha = (double)o->rank;
    training_preset(&o->train, 1, 1000, 100, o->rank ? 1e-4 : 2e-5);
}

struct training_files cogvideo_files(const struct cogvideo_options *o)
{
    return (struct training_files){
        .library = &o->library, .train = &o->train, .out = o->library.plan_only ? NULL : o->out};
}

int cogvideo_options_parse(struct cogvideo_options *o, int argc, char **argv)
{
    const struct ckpt_option *tables[] = {table, ckpt_options_table()};

    *o = (struct cogvideo_options)COGVIDEO_OPTIONS_INIT;
    if (ckpt_options_parse(&o->library, &argc, argv) ||
        ckpt_option_table_parse(table, o, &argc, argv) ||
        ckpt_options_reject(argc, argv, 2, tables))
        return say_fail("%s", ckpt_error(NULL));
    if (print_help(o))
        return 1;
    if (!o->model)
        return say_fail("--model DIR: say which model");
    if (cogvideo_config_read(&o->config, o->model) || check_data(o) ||
        cogvideo_check_video(&o->config, o->frames, o->height, o->width) || check_adapters(o) ||
        check_images(o) || validation_check(&o->validation, o->train.ema_decay) ||
        check_sampling(o))
        return -1;
    fill_defaults(o);
    if (training_check(&o->train, &o->library, o->dtype, o->train.batch))
        return -1;
    struct training_files files = cogvideo_files(o);
    return outputs_asked(&files);
}
