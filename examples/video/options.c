/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the program that trains.  Options that contradict each other or the model's
 * configuration are refused here, before a context is opened. */
#include <string.h>
#include "../common/say.h"
#include "ckpt_tools.h"
#include "stages.h"

#define ROW(...)   CKPT_OPTION(struct video_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct video_options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model"),
    VIDEO_MODEL_ROWS,
    GRAD_DTYPE_ROW,
    CKPT_OPTION_GROUP("Data"),
    ROW("data", STRING, data, "DIR",
        "directory with videos.txt, prompts.txt and encoded data in DIR/cache; random: random "
        "latents (default random)"),
    ROW("videos", STRING, videos, "FILE",
        "text file with one video per line (default: videos.txt in --data)"),
    ROW("prompts", STRING, prompts, "FILE",
        "text file with one prompt per line, in the order of --videos (default: prompts.txt or "
        "prompt.txt in --data)"),
    ROW("csv", STRING, csv, "FILE",
        "table with a column of videos and one of prompts, in place of --videos and --prompts "
        "(default: none)"),
    ROW("video-column", STRING, video_column, "NAME", "column of videos in --csv (default video)"),
    ROW("caption-column", STRING, caption_column, "NAME",
        "column of prompts in --csv (default caption)"),
    ROW("latents", STRING, latents, "DIR",
        "directory of encoded videos (default: the one for their size in cache/video_latent of "
        "--data)"),
    ROW("text", STRING, text, "DIR",
        "directory of encoded prompts, or one file from text-encode (default: "
        "cache/prompt_embeddings of --data)"),
    CACHE_ROWS,
    VIDEO_BUCKETS_ROW("each clip of --cache is trained in the bucket that video-encode --buckets "
                      "encoded it for"),
    ROW("features", STRING, features, "FILE",
        "train on z, y and, for I2V, image and image_embeds (2.1) of a safetensors file"),
    RANGE("frames", INT, frames, "N", "frames of a clip (default: from the data, else 49)", 1,
          65536),
    VIDEO_SIZE_ROW,
    RANGE("height", INT, height, "N",
          "height of a frame in pixels (default: from the data, else 480)", 1, 65536),
    RANGE("width", INT, width, "N", "width of a frame in pixels (default: from the data, else 720)",
          1, 65536),
    RANGE("text-drop", FLOAT, text_drop, "X",
          "fraction of samples trained with zeros in place of the prompt (default 0)", 0, 1),
    ROW("images", STRING, images, "FILE",
        "for I2V, text file with one picture or video (first frame) per line: noised and encoded "
        "in each step (default: encoded_image of the data, else the first latent frame)"),
    RANGE("image-noise-mean", FLOAT, image_noise_mean, "X",
          "mean of the logarithm of the noise added to --images (default -3)", -1000, 10),
    RANGE("image-noise-std", FLOAT, image_noise_std, "X",
          "standard deviation of the logarithm of the noise added to --images (default 0.5)", 0,
          10),
    RANGE("image-drop", FLOAT, image_drop, "X",
          "for I2V, fraction of samples trained with zeros in place of the picture (default 0.05)",
          0, 1),
    ROW("keep-order", FLAG, keep_order, NULL,
        "take samples in the order of the list (default: shuffled in each epoch by --seed)"),
    CKPT_OPTION_GROUP("Adapters"),
    LORA_RANK_ROW("train only LoRA adapters of rank N (default: from the adapters in --load or "
                  "--resume, else train all weights)"),
    VIDEO_LORA_ROWS,
    LORA_KIND_ROWS,
    ROW("lora-format", STRING, adapters.format, "KIND",
        "names of adapters in --save: diffusers, peft (with adapter_config.json beside), original, "
        "of the model's own code, or kohya (default diffusers)"),
    ROW("frozen", STRING, adapters.frozen, "FORMAT",
        "with --lora-rank, storage of the large frozen weights: bf16 (as --dtype), int8 (8-bit "
        "codes) or nf4 (4-bit codes) (default bf16)"),
    LORA_MERGE_ROW,
    WEIGHTS_ROWS,
    VIDEO_BATCH_ROWS("samples"),
    STEPS_ROWS(" 1000", " 1e-4 for adapters, 2e-5 for all weights", " 100", "1e-4", "0: none"),
    BETA2_ROW("0.95"),
    LOG_ROWS("prediction"),
    VALIDATION_ROWS,
    CKPT_OPTION_GROUP("Samples"),
    RANGE("sample-every", INT, sample_every, "N",
          "sample also every N steps, into step-NNNNNNNN of --output (default: only at the end)", 1,
          OPTION_MOST),
    ROW("sample-text", STRING, sample_text, "FILE",
        "sample these text features: prompt_embedding (safetensors), one row per clip"),
    ROW("sample-prompt", STRING, prompt, "TEXT",
        "sample one clip of this text, encoded by --text-encoder (default: no sampling)"),
    ROW("sample-prompts", STRING, sample_prompts, "FILE",
        "text file with one prompt, for one clip, per line"),
    ROW("sample-image", STRING, image, "FILE",
        "picture to sample from, required for I2V: encoded_image (safetensors)"),
    ROW("sample-ema", FLAG, sample_ema, NULL, "sample with the moving average of the weights"),
    RANGE("sample-steps", INT, sample_steps, "N", "steps of sampling (default 50)", 1, 1000),
    VIDEO_DRAW_ROWS,
    ROW("vae", STRING, vae, "DIR",
        "autoencoder of --images and of sampled clips (default: the vae of --model, if it has "
        "one)"),
    ROW("output", STRING, out, "DIR",
        "directory for sampled clips "
        "(default: the model's, as cogvideo-out)"),
    CKPT_OPTION_ALIAS("out", "output"),
    HELP_ROWS,
    {0},
};

/* A cache and a file of features record their sizes and prompts: options beside them would be
 * ignored, so they are refused. */
static int check_data(struct video_options *o)
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

/* Before defaults are filled in.  The table has the batches. */
int video_check_buckets(const struct video_options *o)
{
    enum balance kind;

    if ((o->train.batch == CKPT_AUTO || o->batch_seconds > 0) && !o->buckets)
        return say_fail("--batch%s is for --buckets", o->batch_seconds > 0 ? "-seconds" : " auto");
    if (o->balance && !o->buckets)
        return say_fail("--balance is for --buckets: without, all clips take equally long");
    if (o->balance && o->library.sequence > 1)
        return say_fail("--sequence %lld: --balance deals clips to single ranks; leave it out",
                        (long long)o->library.sequence);
    if (o->buckets && o->train.batch && o->train.batch != CKPT_AUTO)
        return say_fail("--batch: leave it out, the table of --buckets has it");
    return balance_read(o->balance, &kind);
}

enum balance video_balance_of(const struct video_options *o)
{
    enum balance kind = BALANCE_NONE;

    (void)balance_read(o->balance, &kind); /* it was checked */
    return kind;
}

static int check_buckets(const struct video_options *o)
{
    if (!o->buckets)
        return video_check_buckets(o);
    if (!o->cache)
        return say_fail("--buckets needs --cache DIR, which video-encode --buckets makes");
    if (o->keep_order)
        return say_fail("--keep-order: not with --buckets, whose batches are drawn");
    if (o->images)
        return say_fail("--images: not with --buckets, which has several sizes");
    if (o->sample_text || video_has_prompts(o))
        return say_fail("--sample-%s: not with --buckets, which has several sizes; run %s-sample "
                        "with the weights of --save",
                        o->sample_text ? "text"
                        : o->prompt    ? "prompt"
                                       : "prompts",
                        o->net.model->programs);
    return video_check_buckets(o);
}

static int check_adapters(const struct video_options *o)
{
    const struct adapter_options *a = &o->adapters;
    const bool own = adapter_format(a) != LORA_DIFFUSERS;
    const char *from = o->train.state.from, *load = o->train.load;

    if (from && strcmp(from, RESUME_AUTO) && load && adapter_file_is(o->net.model->adapters, load))
        return say_fail("--resume and --load exclude each other: a state contains the adapters");
    if (adapter_format(a) == LORA_FORMATS)
        return say_fail("--lora-format %s: give diffusers, peft, original or kohya", a->format);
    if (own && !a->rank)
        return say_fail("--lora-format %s is for --lora-rank N or a file of adapters", a->format);
    if (own && !o->train.save && !o->train.save_ema)
        return say_fail("--lora-format %s is for --save FILE", a->format);
    return adapter_options_check(a, "bf16") ||
                   adapter_options_trained(a, "bf16", &o->train, o->library.plan_only)
               ? -1
               : 0;
}

/* NULL: the model's own. */
static int check_names(struct video_options *o)
{
    static const char *const kinds[] = {"diffusers", "original", "comfyui"};
    size_t i = 0;

    while (o->names && i < sizeof kinds / sizeof *kinds && strcmp(o->names, kinds[i]))
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return say_fail("--names %s: give diffusers, original or comfyui", o->names);
    if (i && (o->adapters.rank || o->adapters.merge))
        return say_fail("--names is for whole weights in --save; for adapters give --lora-format");
    if (i && !o->train.save && !o->train.save_ema)
        return say_fail("--names %s is for --save FILE", o->names);
    if (!i)
        o->names = NULL;
    return 0;
}

/* Reads the second of two models that train in one run, in steps of their own. */
static int check_both(struct video_options *o)
{
    const struct training_options *t = &o->train;
    const bool both = o->net.begin != NULL;
    const char *without = t->load                                     ? "--load"
                          : t->save_ema                               ? "--save-ema"
                          : t->save_int8                              ? "--save-int8"
                          : o->adapters.merge                         ? "--lora-merge"
                          : o->balance                                ? "--balance"
                          : t->dump                                   ? "--dump"
                          : adapter_format(&o->adapters) == LORA_PEFT ? "--lora-format peft"
                                                                      : NULL;

    if (!both)
        return t->save_low ? say_fail("--save-low is for --expert both") : 0;
    if (without)
        return say_fail("%s: not with --expert both: train each model with --expert high or low",
                        without);
    if (!t->save != !t->save_low)
        return say_fail("--expert both has two models: give --save FILE and --save-low FILE");
    o->low = o->net;
    o->low.second = true;
    o->low.own = NULL;
    if (o->low.model->read(&o->low, o->model))
        return -1;
    return o->low.sizes.channels == o->net.sizes.channels &&
                   o->low.sizes.has_image == o->net.sizes.has_image &&
                   o->low.sizes.text_width == o->net.sizes.text_width
               ? 0
               : say_fail("%s: its two models have other inputs: they are no pair", o->model);
}

/* One model of a pair may be read from its own file, so only models without pairs are refused. */
static int check_noise(const struct video_options *o)
{
    const struct video_sizes *c = &o->net.sizes;

    if (o->net.noising.first > 0 && o->library.sequence > 1)
        return say_fail("--sequence %lld: with --first-frame each frame has its own modulation, "
                        "and ranks have parts of frames; leave one out",
                        (long long)o->library.sequence);
    if (o->net.noising.expert && c->first_frame && c->boundary <= 0)
        return say_fail("--expert is for a pair of models; %s: %s", o->model, c->name);
    if (o->text_drop > 0 && o->net.model->negative && !o->null_text)
        return say_fail("--text-drop: give --null-text FILE, the empty prompt from text-encode, "
                        "which this model sees in place of a prompt");
    return o->null_text && !(o->text_drop > 0) ? say_fail("--null-text is for --text-drop X") : 0;
}

/* The noise is added to pictures before they are encoded, so encoded ones cannot have it. */
static int check_images(struct video_options *o)
{
    bool noised =
        o->image_noise_mean != VIDEO_NOISE_MEAN || o->image_noise_std != VIDEO_NOISE_DEVIATION;

    if ((o->images || o->image_drop >= 0) && !o->net.sizes.has_image)
        return say_fail("--%s is for I2V models", o->images ? "images" : "image-drop");
    if ((o->images || o->image_drop > 0) && o->net.sizes.whole_image)
        return say_fail("--%s is not for %s: give its condition in --features, or beside the "
                        "latents",
                        o->images ? "images" : "image-drop", o->net.sizes.name);
    if (noised && !o->images)
        return say_fail("--image-noise-mean and --image-noise-std are for --images FILE");
    if (o->images && o->data && !strcmp(o->data, "random"))
        return say_fail("--images: --data random has none");
    if (o->image_drop < 0)
        o->image_drop = o->net.sizes.has_image && !o->net.sizes.whole_image ? VIDEO_IMAGE_DROP : 0;
    return 0;
}

/* Prompts are encoded before the first step, by one process alone; features come from any. */
static int check_sampling(struct video_options *o)
{
    int n = !!o->sample_text + !!o->prompt + !!o->sample_prompts;
    bool others = o->sample_every || o->sample_ema || o->image || o->negative ||
                  o->negative_prompt || o->out || (o->vae && !o->images);

    if (n > 1)
        return say_fail("give one of --sample-text, --sample-prompt and --sample-prompts");
    if (!n && others)
        return say_fail("%s needs --sample-text, --sample-prompt or --sample-prompts",
                        o->sample_every      ? "--sample-every"
                        : o->sample_ema      ? "--sample-ema"
                        : o->image           ? "--sample-image"
                        : o->negative        ? "--negative"
                        : o->negative_prompt ? "--negative-prompt"
                        : o->out             ? "--output"
                                             : "--vae");
    if ((o->text_encoder || o->tokenizer) && !video_has_prompts(o))
        return say_fail("--text-encoder and --tokenizer are for prompts, and none is given");
    if (video_has_prompts(o) && o->library.ranks)
        return say_fail("--sample-prompt%s: prompts are not encoded with --ranks: make features "
                        "with text-encode and give --sample-text",
                        o->prompt ? "" : "s");
    if (n && !o->train.steps && !o->train.state.from)
        return say_fail("--steps 0 trains nothing; %s-sample samples clips",
                        o->net.model->programs);
    if (n && o->net.sizes.boundary > 0 && !o->low.model)
        return say_fail("clips of a pair of models need both: sample them with %s-sample, or train "
                        "--expert both",
                        o->net.model->programs);
    if (video_has_picture(o))
        return say_fail("--sample-image %s: is not encoded in training: give its latents, "
                        "encoded_image (.safetensors)",
                        o->image);
    if (n && video_check_image(o, "--sample-image"))
        return -1;
    if (o->sample_ema && o->train.ema_decay <= 0)
        return say_fail("--sample-ema: with --ema-decay 0 there is no average");
    if (!o->out && n)
        o->out = o->net.model->out;
    return video_check_drawing(o);
}

/* Adapters of a file keep their alpha and layers.  New ones begin with the scale 1, and at a higher
 * rate than all weights, because few numbers are trained. */
static void fill_defaults(struct video_options *o)
{
    struct adapter_options *a = &o->adapters;

    if (a->rank && !a->file.n && a->alpha < 0)
        a->alpha = (double)a->rank;
    if (!a->targets && !a->file.n)
        a->targets = o->net.model->targets;
    training_preset(&o->train, 1, 1000, 100, a->rank ? 1e-4 : 2e-5);
}

struct training_files video_training_files(const struct video_options *o)
{
    return (struct training_files){.library = &o->library,
                                   .train = &o->train,
                                   .out = o->library.plan_only || !o->sample_steps ? NULL : o->out};
}

const char *const video_once[2] = {"load", "give one file"};

struct option_reading video_options_reading(struct video_options *o, const struct video_model *m)
{
    struct option_reading reading = OPTION_READING(o, table, m->train_usage, true);

    reading.own[1] = (struct option_part){"Noise", m->train_rows, o};
    reading.once = video_once;
    *o = (struct video_options)VIDEO_OPTIONS_INIT;
    o->net.model = m;
    return reading;
}

int video_options_check(void *options)
{
    struct video_options *o = options;
    const struct video_model *m = o->net.model;

    if (!o->model)
        return say_fail("--model DIR is missing");
    if (video_take_size(o) || m->read(&o->net, o->model) || check_data(o) ||
        video_check_size(&o->net.sizes, o->frames, o->height, o->width) || check_buckets(o) ||
        adapter_options_read(&o->adapters, m->adapters, &o->train, o->train.load) ||
        check_adapters(o) || check_names(o) || check_noise(o) || check_both(o) || check_images(o) ||
        validation_check(&o->validation, o->train.ema_decay) || check_sampling(o))
        return -1;
    fill_defaults(o); /* after the checks, which ask what was given */
    char path[VIDEO_PATH];
    if (dtype_select(&o->dtype, &o->train.state, video_weights(o, path), o->train.dtype_note) ||
        training_check(&o->train, &o->library, o->dtype, o->buckets ? 0 : o->train.batch))
        return -1;
    struct training_files files = video_training_files(o);
    return outputs_asked(&files);
}
