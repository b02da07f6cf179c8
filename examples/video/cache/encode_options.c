/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of video-encode. */
#include <string.h>
#include <unistd.h>
#include "../../common/outputs.h"
#include "ckpt_tools.h"
#include "../wan/sight.h"
#include "encode.h"

#define ROW(...)   CKPT_OPTION(struct encode_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct encode_options, __VA_ARGS__)

static const char usage[] =
    "Usage: video-encode [OPTION]... --data DIR --vae FILE --output DIR\n"
    "       video-encode --check [OPTION]... --output DIR\n\n"
    "Encodes videos and their captions once, into a cache for trainers, inside a\n"
    "memory budget.  Existing shards are kept: the same command line resumes an\n"
    "interrupted run.  With --ranks each process makes its share of the shards.\n"
    "\nExamples:\n  video-encode --data videos --vae vae.safetensors --size 256x144 "
    "--frames 17 --output cache\n"
    "  video-encode --data videos --model CogVideoX-5b --vram 16G --output cache\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Files"),
    ROW("data", STRING, video.video_dir, "DIR",
        "directory of videos and tar files, or with videos.txt and prompts.txt; also one video, "
        "one tar file or a table of videos (.csv)"),
    ROW("output", STRING, output, "DIR", "directory for the shards and the manifest"),
    CKPT_OPTION_GROUP("Encoders"),
    ROW("vae", STRING, video.vae, "FILE",
        "weights of the autoencoder of Open-Sora (safetensors), or a directory with them"),
    ROW("model", STRING, model, "DIR",
        "model directory of diffusers, with vae/, in place of --vae: latents for that model, "
        "CogVideoX or Wan (default: none)"),
    ROW("vae-model", STRING, video.vae_model, "NAME",
        "preset of the autoencoder of --vae: tiny or v1.2 (default v1.2)"),
    ROW("text-encoder", STRING, video.text_encoder, "DIR",
        "directory of T5 in the format of Hugging Face, or of a model with text_encoder/ and "
        "tokenizer/ (default: that of --model, if it has one; else no text features)"),
    SPIECE_ROW(video.tokenizer, "--text-encoder"),
    EMPTY_CAPTIONS_ROW(video.empty_captions),
    RANGE("text-tokens", INT, video.text_tokens, "N",
          "tokens of a caption (default 300; with --model those of the model)", 1, 65536),
    CKPT_OPTION_GROUP("Clips"),
    ROW("buckets", STRING, video.buckets, "FILE",
        "table of sizes and lengths: each clip is encoded for its bucket (default: one size for "
        "all)"),
    ROW("size", STRING, video.size, "WxH",
        "size to which clips are resized (default 64x40; with --model that of the model)"),
    RANGE("frames", INT, video.frames, "N",
          "frames of a clip (default 17, or those of the longest video if that has fewer; with "
          "--model those of the model)",
          1, 65536),
    RANGE("stride", INT, video.stride, "N",
          "spread a clip over N times as many frames of the file (default 1)", 1, 65536),
    RANGE("clips", INT, video.clips, "N",
          "largest number of clips per video (default: as many as fit)", 1, OPTION_MOST),
    ROW("fit", STRING, fit, "HOW",
        "frames of another shape, with --model: stretch, or crop: keep proportions and cut the "
        "sides off (default stretch)"),
    RANGE("fps", FLOAT, fps, "X",
          "frames a second of clips, with --model: a clip is the beginning of its video (default: "
          "frames evenly from the whole video)",
          0.01, 1000),
    CKPT_OPTION_GROUP("Running"),
    ROW("dtype", STRING, video.dtype, "TYPE",
        "dtype of weights, activations and text features: fp32 or bf16 (default bf16)"),
    ROW("stored", STRING, stored, "TYPE",
        "dtype of stored latents: fp32 or bf16; fp32 gives the bits of training with --video-dir "
        "(default fp32)"),
    RANGE("shard", INT, shard, "N", "clips per shard (default 64)", 1, CACHE_EACH),
    ROW("first-frame", FLAG, first, NULL,
        "also encode each clip with grey in place of all frames but the first, as I2V-A14B of Wan "
        "reads it"),
    ROW("image-encoder", STRING, image_encoder, "DIR",
        "with --first-frame, also encode that frame with CLIP's picture encoder, as I2V of Wan 2.1 "
        "reads it: directory in the format of Hugging Face (default: the image_encoder of --model, "
        "if it has one)"),
    RANGE("workers", INT, video.loader.workers, "N",
          "threads per rank that read videos ahead (default 2)", 1, 1024),
    ROW("loader-memory", SIZE, video.loader.memory, "SIZE",
        "host memory per rank for clips read ahead and their decoders (default: two clips)"),
    RANGE("max-bad", INT, video.loader.max_bad, "N",
          "skip at most N unreadable clips (default 100)", 0, OPTION_MOST),
    ROW("check", FLAG, check, NULL,
        "only verify the cache in --output; with the options it was made with, also against its "
        "videos and captions"),
    {"help",
     CKPT_OPT_FLAG,
     offsetof(struct encode_options, video.help),
     NULL,
     "print this text (-h)",
     {0, 0}},
    {"version",
     CKPT_OPT_FLAG,
     offsetof(struct encode_options, video.version),
     NULL,
     "print the version (-V)",
     {0, 0}},
    {0},
};

/* The lock of the directory is taken later, by each rank (video_encode.c). */
static int check_files(const struct encode_options *o)
{
    const struct video_options *s = &o->video;
    const struct ckpt_path all[] = {
        {"--data", s->video_dir, CKPT_PATH_INPUT, 0},
        {"--vae", s->vae, CKPT_PATH_INPUT, 0},
        {"--model", o->model, CKPT_PATH_INPUT, 0},
        {"--buckets", s->buckets, CKPT_PATH_INPUT, 0},
        {"--tokenizer", s->tokenizer, CKPT_PATH_INPUT, 0},
        {"--output", s->library.plan_only || o->check ? NULL : o->output, CKPT_PATH_DIRECTORY, 0},
    };

    return ckpt_paths_check(&s->library, all, sizeof all / sizeof *all)
               ? say_fail("%s", ckpt_error(NULL))
               : 0;
}

/* The model directory, if it has a text encoder, which t5 finds in it; else NULL. */
static const char *encoder_in(const char *model)
{
    char path[4096];

    return snprintf(path, sizeof path, "%s/text_encoder", model) < (int)sizeof path &&
                   !access(path, F_OK)
               ? model
               : NULL;
}

/* --check alone needs no option of the run that made the cache. */
static int check(struct encode_options *o)
{
    struct video_options *s = &o->video;
    char path[4096];

    if (!o->output && !s->library.plan_only)
        return say_fail("--output DIR is missing: the directory for the cache");
    if (o->check && !s->video_dir)
        return 0;
    if (!s->video_dir)
        return say_fail("--data DIR is missing: the directory of videos");
    if (o->model && (s->vae || s->stride || s->clips))
        return say_fail("--model: a video is one clip; leave out --vae, --stride and --clips");
    if (!o->model && !s->vae && !s->library.plan_only)
        return say_fail("--vae FILE is missing: an autoencoder (%s)", s->vae_model);
    if (o->model && !(o->family = encode_coder(o->model)))
        return -1;
    if (o->model && !s->text_encoder)
        s->text_encoder = encoder_in(o->model);
    if (!o->model && (o->first || o->fit || o->fps > 0))
        return say_fail("--first-frame, --fit and --fps are for --model DIR");
    if (!o->fit)
        o->fit = "stretch";
    if (strcmp(o->fit, "stretch") && strcmp(o->fit, "crop"))
        return say_fail("--fit %s: stretch or crop", o->fit);
    if (o->fps > 0 && s->buckets)
        return say_fail("--fps: leave it out, buckets of --buckets are for the lengths of files");
    if (o->image_encoder && !o->first)
        return say_fail("--image-encoder is for --first-frame");
    if (o->first && !o->image_encoder && sight_path(o->model, path) != o->model)
        o->image_encoder = o->model;
    if (s->tokenizer && !s->text_encoder)
        return say_fail("--tokenizer is for --text-encoder");
    if (s->empty_captions && !s->text_encoder)
        return say_fail("--empty-captions is for --text-encoder");
    if (s->buckets && (s->size || s->frames || s->clips))
        return say_fail(
            "--size, --frames and --clips: leave them out, the table of --buckets has them");
    if (loader_check(&s->loader))
        return -1;
    option_take(&s->text_tokens, text_reading(encode_text_family(o->family)).length, 0);
    return option_dtype("dtype", s->dtype) || option_dtype("stored", o->stored) ||
                   stdit_check_size(s) || outputs_untrained(&s->library) || check_files(o)
               ? -1
               : 0;
}

int encode_options_agree(struct encode_options *o, ckpt *c)
{
    return options_agree(c, (struct option_part[OPTION_PARTS]){{NULL, table, o}});
}

int encode_options_parse(struct encode_options *o, int argc, char **argv)
{
    struct video_options *s = &o->video;
    const struct option_reading reading = {usage,       &s->library,        false, &s->help,
                                           &s->version, {{NULL, table, o}}, NULL};

    *o = (struct encode_options){
        .video = STDIT_OPTIONS_INIT, .family = &encode_opensora, .stored = "fp32", .shard = 64};
    s->dtype = "bf16"; /* nothing is trained, so no error of rounding adds up */
    s->vae_model = "v1.2";
    s->train.batch = 1;
    int rc = options_read(&reading, argc, argv);
    if (!rc && check(o)) {
        options_refuse(&s->library, false);
        rc = -1;
    }
    return rc;
}
