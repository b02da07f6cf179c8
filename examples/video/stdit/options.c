/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of stdit-train: its own table in addition to the library's, and the model
 * presets. */
#include <string.h>
#include "ckpt_tools.h"
#include "options.h"

#define ROW(...)   CKPT_OPTION(struct video_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct video_options, __VA_ARGS__)

static const char usage[] =
    "Usage: stdit-train [OPTION]...\n\n"
    "Trains STDiT3, the video diffusion transformer of Open-Sora 1.2, inside a memory\n"
    "budget.  Without options: a tiny model on the included clip.\n"
    "\nExamples:\n  stdit-train --model XL/2 --cache cache --load stdit.safetensors --vram 24G "
    "--host 64G --save tuned.safetensors\n"
    "  stdit-train --model XL/2 --dtype bf16 --latent 15x46x80 --vram 26G --plan-only\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model"),
    ROW("model", STRING, model, "NAME", "preset: tiny, XL/2 or 3B/2 (default tiny)"),
    STDIT_SIZE_ROWS,
    RANGE("in-channels", INT, in_channels, "N",
          "channels of the data (default: the preset's; 3 with --video)", 1, 4096),
    STDIT_CAPTION_ROWS,
    ROW("freeze-caption", FLAG, freeze_caption, NULL, "do not train the caption projection"),
    STDIT_NUMBER_ROWS,
    GRAD_DTYPE_ROW,
    CKPT_OPTION_GROUP("Data"),
    ROW("video", STRING, video, "FILE", "train in pixel space on this clip"),
    ROW("video-dir", STRING, video_dir, "DIR",
        "train on latents of the videos in this directory and its tar files, encoded during "
        "training; also one video, one tar file or, with --buckets, a table of videos (.csv)"),
    CACHE_ROWS,
    VIDEO_BUCKETS_ROW("each clip of --video-dir is trained in buckets that it fits, each clip of "
                      "--cache in the bucket it was encoded for"),
    ROW("vae", STRING, vae, "FILE", "weights of the autoencoder for --video-dir (safetensors)"),
    ROW("vae-model", STRING, vae_model, "NAME",
        "preset of the autoencoder: tiny or v1.2 (default tiny with --model tiny, else v1.2)"),
    ROW("text", STRING, text, "FILE",
        "text features y and mask for --video-dir (safetensors), one row per clip or one for all; "
        "with --text-encoder a directory to store its features (default: the null caption; with "
        "--text-encoder host memory)"),
    ROW("text-encoder", STRING, text_encoder, "DIR",
        "directory of T5 in the format of Hugging Face; encodes the captions of --video-dir before "
        "the first step (default: text features from --text)"),
    SPIECE_ROW(tokenizer, "--text-encoder"),
    EMPTY_CAPTIONS_ROW(empty_captions),
    ROW("size", STRING, size, "WxH",
        "size to which clips are resized (default 32x20; with --video-dir 64x40)"),
    RANGE("frames", INT, frames, "N",
          "frames of a clip (default 6; with --video-dir 17, or those of the longest video if that "
          "has "
          "fewer)",
          1, 65536),
    STRIDE_ROWS,
    LOADER_ROWS,
    ROW("features", STRING, features, "FILE",
        "train on z, y, mask, fps and other tensors of a safetensors file"),
    ROW("latent", STRING, latent, "TxHxW",
        "train on random latents of this shape, for timings (default 15x45x80 for XL/2 and 3B/2); "
        "with --buckets a table (.csv) of clips with random latents"),
    WEIGHTS_ROWS,
    VIDEO_BATCH_ROWS("clips"),
    STEPS_ROWS(": the preset's", ": the preset's", ": the preset's", "0", "0.99"),
    ROW("mask-stage", STRING, mask_stage, "STAGE",
        "frame masks of training stage 1, 3 or adapt (default none)"),
    LOG_ROWS("prediction"),
    VALIDATION_ROWS,
    CKPT_OPTION_GROUP("Samples"),
    ROW("output", STRING, out, "DIR", "directory for sampled frames (default stdit-out)"),
    RANGE("sample-steps", INT, sample_steps, "N",
          "Euler steps of sampling (default 30 with a video, else 0)", 0, 1000000),
    RANGE("sample-every", INT, sample_every, "N",
          "sample also every N steps, into step-NNNNNNNN of --output (default: only at the end)", 1,
          OPTION_MOST),
    ROW("sample-ema", FLAG, sample_ema, NULL,
        "sample with the moving average of the weights also during training"),
    ROW("sample-seed", INT, sample_seed, "N", "seed of the initial noise of sampling (default 0)"),
    RANGE("guidance", FLOAT, guidance, "X",
          "scale of classifier-free guidance in sampling (default: the preset's)", 0, 1000),
    CKPT_OPTION_ALIAS("out", "output"),
    HELP_ROWS,
    {0},
};

struct preset {
    const char *name;
    int64_t hidden, heads, depth, in_channels, caption_channels, text_tokens;
    int64_t batch, steps, warmup;
    double lr, guidance;
};

/* XL/2 and 3B/2 are Open-Sora 1.2's; tiny is for the clip that ships with the example. */
static const struct preset presets[] = {
    {"tiny", 96, 4, 2, 0, 0, 0, 1, 1200, 20, 2e-3, 1.0},
    {"XL/2", 1152, 16, 28, 4, 4096, 300, 1, 10, 1000, 1e-4, 7.0},
    {"3B/2", 1872, 26, 28, 4, 4096, 300, 1, 10, 1000, 1e-4, 7.0},
};

int stdit_fill_preset(struct video_options *o)
{
    const struct preset *p = NULL;

    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (!strcmp(o->model, presets[i].name))
            p = &presets[i];
    if (!p)
        return say_fail("--model %s: no such preset; there are tiny, XL/2 and 3B/2", o->model);
    option_take(&o->hidden, p->hidden, 0);
    option_take(&o->heads, p->heads, 0);
    option_take(&o->depth, p->depth, 0);
    if (!o->video) {
        option_take(&o->in_channels, p->in_channels, 0);
        option_take(&o->caption_channels, p->caption_channels, 0);
        option_take(&o->text_tokens, p->text_tokens, 0);
    }
    if (!o->vae_model)
        o->vae_model = strcmp(o->model, "tiny") ? "v1.2" : "tiny";
    training_preset(&o->train, p->batch, p->steps, p->warmup, p->lr);
    o->guidance = o->guidance < 0 ? p->guidance : o->guidance;
    return 0;
}

int stdit_check_size(struct video_options *o)
{
    return o->size ? option_sizes("size", o->size, "40x24", 2, (int64_t *[]){&o->width, &o->height})
                   : 0;
}

/* A bucket table replaces the options for size, length and batch. */
static int check_buckets(const struct video_options *o)
{
    if (!o->buckets)
        return 0;
    if (!o->video_dir && !o->latent && !o->cache)
        return say_fail("--buckets needs clips: --video-dir, --cache, or --latent with a table "
                        "(.csv)");
    if (o->size || o->frames || o->clips)
        return say_fail("--%s: leave it out, the table of --buckets has it", o->size     ? "size"
                                                                             : o->frames ? "frames"
                                                                                         : "clips");
    if (o->sample_steps > 0 || o->sample_every)
        return say_fail("--sample-%s: not with --buckets, which has several sizes; run "
                        "stdit-sample with the weights of --save",
                        o->sample_steps > 0 ? "steps" : "every");
    return 0;
}

/* A cache, features and latents record their sizes: options beside them would be ignored, so they
 * are refused. */
static int check_data(struct video_options *o)
{
    bool clip_options = o->size || o->frames || (o->stride && !o->buckets) || o->clips;

    if (!!o->video + !!o->features + !!o->latent + !!o->video_dir + !!o->cache > 1)
        return say_fail("--video, --video-dir, --cache, --features and --latent exclude each "
                        "other; give one");
    if (o->video_dir && !o->vae && !o->library.plan_only)
        return say_fail("--video-dir needs --vae FILE, an autoencoder (%s)", o->vae_model);
    if (loader_check(&o->loader))
        return -1;
    if (o->loader.hwaccel && !o->video_dir)
        return say_fail("--hwaccel is for --video-dir");
    if ((o->vae || o->text) && !o->video_dir && !o->cache)
        return say_fail("--vae and --text are for --video-dir and --cache");
    if (o->text_encoder && !o->video_dir)
        return say_fail("--text-encoder encodes the captions of --video-dir, which is not given");
    if (o->tokenizer && !o->text_encoder)
        return say_fail("--tokenizer is for --text-encoder");
    if (o->empty_captions && !o->text_encoder && !o->text)
        return say_fail("--empty-captions is for --text-encoder and for its --text DIR");
    if (o->check_cache && !o->cache)
        return say_fail("--check-cache is for --cache DIR");
    if (o->cache && (clip_options || o->stride))
        return say_fail(
            "--size, --frames, --stride and --clips: leave them out, the cache has them");
    if (o->cache && o->sample_steps > 0 && !o->vae && !o->library.plan_only)
        return say_fail("--sample-steps with --cache needs --vae FILE, to decode samples");
    if ((o->features || o->latent) && clip_options)
        return say_fail(
            "--size, --frames, --stride and --clips are for videos; %s has a fixed shape",
            o->features ? "features" : "latents");
    if (stdit_check_size(o))
        return -1;
    if (o->latent && !o->buckets &&
        option_sizes("latent", o->latent, "15x45x80", 3,
                     (int64_t *[]){&o->latent_frames, &o->latent_height, &o->latent_width}))
        return -1;
    return 0;
}

int stdit_check_model(const struct video_options *o)
{
    if (o->hidden % 4)
        return say_fail("--hidden %lld: the position table needs a multiple of 4",
                        (long long)o->hidden);
    if (o->hidden % (2 * o->heads))
        return say_fail("--hidden %lld with --heads %lld: each head needs an even whole width",
                        (long long)o->hidden, (long long)o->heads);
    return 0;
}

/* ---- sample-every enables sampling between steps, on any data. ---- */
static int check_sampling(struct video_options *o)
{
    bool shown = o->sample_every || ((o->video || o->video_dir) && !o->buckets);

    option_take(&o->sample_steps, shown ? 30 : 0, -1);
    if (o->sample_every && !o->sample_steps)
        return say_fail("--sample-every with --sample-steps 0: nothing would be sampled");
    if (o->sample_ema && !o->sample_every)
        return say_fail("--sample-ema is for --sample-every N");
    if (o->sample_ema && o->train.ema_decay <= 0)
        return say_fail("--sample-ema: with --ema-decay 0 there is no average");
    return 0;
}

static int check_training(struct video_options *o)
{
    const char *stages[] = {"none", "1", "2", "3", "adapt"};
    bool known = false;

    for (int i = 0; i < 5; i++)
        known |= !strcmp(o->mask_stage, stages[i]);
    if (!known)
        return say_fail("--mask-stage %s: give none, 1, 3 or adapt", o->mask_stage);
    return training_check(&o->train, &o->library, o->dtype, o->buckets ? 0 : o->train.batch);
}

/*
 * The demo has a default budget: about half of the memory that keeping every activation needs.  It
 * fits the demo's default sizes and is ignored if a size was changed.
 */
enum { DEMO_VRAM = 24 << 20 };

#define NO_VRAM (INT64_MIN + 1) /* an option not given */

static bool is_demo(const struct video_options *o)
{
    return !o->hidden && !o->heads && !o->depth && !o->caption_channels && !o->text_tokens &&
           !o->train.batch && !o->size && !o->frames && !o->clips && !o->stride && !o->train.dump;
}

/* Without data options, the small model uses the shipped clip, the big models use noise. */
static void default_data(struct video_options *o)
{
    bool given = o->library.vram != NO_VRAM,
         asked = o->video || o->features || o->latent || o->video_dir || o->cache || o->buckets;

    if (!given)
        o->library.vram = 0;
    if (asked)
        return;
    if (strcmp(o->model, "tiny")) {
        o->latent = "15x45x80";
        return;
    }
    o->video = "";
    o->demo_budget = !given && is_demo(o);
    if (o->demo_budget)
        o->library.vram = DEMO_VRAM;
}

/* ---- out without samples is no error: it only sets where they would go.  */
static int check_files(const struct video_options *o, bool out)
{
    struct training_files files = video_training_files(o);

    if (outputs_asked(&files))
        return -1;
    if (out && !files.out)
        say_note("--output %s: nothing will be written there: %s", o->out,
                 o->library.plan_only ? "--plan-only samples nothing"
                                      : "without --sample-steps nothing is sampled");
    return 0;
}

struct option_reading stdit_options_reading(struct video_options *o, const struct video_model *m)
{
    *o = (struct video_options)STDIT_OPTIONS_INIT;
    o->net.model = m;
    o->library.vram = NO_VRAM;
    return (struct option_reading)OPTION_READING(o, table, usage, true);
}

int stdit_options_check(void *options)
{
    struct video_options *o = options;

    if (dtype_select(&o->dtype, &o->train.state, o->train.load, o->train.dtype_note))
        return -1;
    bool out = o->out != NULL;
    o->out = out ? o->out : STDIT_OUT;
    default_data(o);
    if (video_check_buckets(o) || check_buckets(o) || stdit_fill_preset(o) || check_data(o) ||
        stdit_check_model(o) || check_training(o) || check_sampling(o) ||
        validation_check(&o->validation, o->train.ema_decay))
        return -1;
    return check_files(o, out);
}
