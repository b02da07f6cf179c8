/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of video-encode. */
#include <string.h>
#include "../common/outputs.h"
#include "ckpt_tools.h"
#include "encode.h"

#define ROW(...)   CKPT_OPTION(struct encode_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct encode_options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    ROW("data", STRING, stdit.video_dir, "DIR",
        "videos: a directory of them and of tar files, or one with videos.txt and prompts.txt; "
        "also one video or tar file, or a table (.csv)"),
    ROW("output", STRING, output, "DIR", "where the shards and the manifest go"),
    ROW("vae", STRING, stdit.vae, "FILE",
        "weights of Open-Sora's autoencoder (safetensors), or the directory with them"),
    ROW("model", STRING, model, "DIR",
        "CogVideoX as diffusers keeps it, with vae/ in it, instead of --vae: latents for "
        "cogvideo-train (default: Open-Sora's)"),
    ROW("vae-model", STRING, stdit.vae_model, "NAME", "its preset: tiny or v1.2 (default v1.2)"),
    ROW("text-encoder", STRING, stdit.text_encoder, "DIR",
        "T5, or a model with text_encoder/ and tokenizer/ in it (default: no text features)"),
    ROW("tokenizer", STRING, stdit.tokenizer, "FILE",
        "spiece.model, or its directory (default: that of --text-encoder)"),
    RANGE("text-tokens", INT, stdit.text_tokens, "N",
          "tokens of a caption (default 300, with --model 226)", 1, 65536),
    ROW("buckets", STRING, stdit.buckets, "FILE",
        "encode each clip for its bucket of this table (default: all of one size)"),
    ROW("size", STRING, stdit.size, "WxH",
        "size a clip is brought to (default 64x40, with --model 720x480)"),
    RANGE("frames", INT, stdit.frames, "N", "frames of a clip (default 17, with --model 49)", 1,
          65536),
    RANGE("stride", INT, stdit.stride, "N", "take every N-th frame (default 1)", 1, 65536),
    RANGE("clips", INT, stdit.clips, "N",
          "clips of a video, at most (default: as many as it has frames for)", 1, OPTION_MOST),
    ROW("dtype", STRING, stdit.dtype, "TYPE",
        "fp32 or bf16, of weights, activations and text features (default bf16)"),
    ROW("stored", STRING, stored, "TYPE",
        "fp32 or bf16, of latents in the shards; fp32 trains with the bits of encoding on the way "
        "(default fp32)"),
    RANGE("shard", INT, shard, "N", "clips of a shard (default 64)", 1, 1 << 20),
    RANGE("workers", INT, stdit.loader.workers, "N",
          "threads of each rank that read videos (default 2)", 1, 1024),
    ROW("loader-memory", SIZE, stdit.loader.memory, "SIZE",
        "host memory of each rank for clips read ahead and their decoders (default: two clips)"),
    RANGE("max-bad", INT, stdit.loader.max_bad, "N",
          "pass over so many clips that cannot be read (default 100)", 0, OPTION_MOST),
    ROW("check", FLAG, check, NULL, "compare all sums of the cache in --output, and make nothing"),
    {"help",
     CKPT_OPT_FLAG,
     offsetof(struct encode_options, stdit.help),
     NULL,
     "print this text (-h)",
     {0, 0}},
    {"version",
     CKPT_OPT_FLAG,
     offsetof(struct encode_options, stdit.version),
     NULL,
     "print the version (-V)",
     {0, 0}},
    {0},
};

static int check_files(const struct encode_options *o)
{
    const struct stdit_options *s = &o->stdit;
    const struct ckpt_path all[] = {
        {"--data", s->video_dir, CKPT_PATH_INPUT, 0},
        {"--vae", s->vae, CKPT_PATH_INPUT, 0},
        {"--model", o->model, CKPT_PATH_INPUT, 0},
        {"--buckets", s->buckets, CKPT_PATH_INPUT, 0},
        {"--tokenizer", s->tokenizer, CKPT_PATH_INPUT, 0},
        {"--output", s->library.plan_only ? NULL : o->output, CKPT_PATH_DIRECTORY, 0},
    };

    return ckpt_paths_check(&s->library, all, sizeof all / sizeof *all)
               ? say_fail("%s", ckpt_error(NULL))
               : 0;
}

static int check(struct encode_options *o)
{
    struct stdit_options *s = &o->stdit;

    if (!o->output && !s->library.plan_only)
        return say_fail("--output DIR is missing: where the cache is to go");
    if (o->check)
        return 0;
    if (!s->video_dir)
        return say_fail("--data DIR is missing: the videos");
    if (o->model && (s->vae || s->buckets || s->stride || s->clips))
        return say_fail("--model: a video is one clip; leave out --vae, --buckets, --stride and "
                        "--clips");
    if (!o->model && !s->vae && !s->library.plan_only)
        return say_fail("--vae FILE is missing: an autoencoder (%s)", s->vae_model);
    if (s->tokenizer && !s->text_encoder)
        return say_fail("--tokenizer is for --text-encoder");
    if (s->buckets && (s->size || s->frames || s->clips))
        return say_fail("--size, --frames and --clips: with --buckets the table says it");
    if (loader_check(&s->loader))
        return -1;
    option_take(&s->text_tokens, o->model ? 226 : 300, 0);
    return option_dtype("dtype", s->dtype) || option_dtype("stored", o->stored) ||
                   stdit_check_size(s) || outputs_untrained(&s->library) || check_files(o)
               ? -1
               : 0;
}

int encode_options_agree(const struct encode_options *o, ckpt *c)
{
    return options_agree(c, 1, &(struct option_table){table, o});
}

int encode_options_parse(struct encode_options *o, int argc, char **argv)
{
    const struct ckpt_option *tables[] = {table, options_of_library(false)};
    const struct option_section sections[] = {{"Options", table},
                                              {"Options of the library", tables[1]}};
    struct stdit_options *s = &o->stdit;

    *o = (struct encode_options){.stdit = STDIT_OPTIONS_INIT, .stored = "fp32", .shard = 64};
    s->dtype = "bf16";
    s->vae_model = "v1.2";
    s->train.batch = 1;
    if (ckpt_options_parse(&s->library, &argc, argv) ||
        ckpt_option_table_parse(table, o, &argc, argv) ||
        ckpt_options_reject(argc, argv, 2, tables))
        return say_fail("%s", ckpt_error(NULL));
    if (options_print(s->help, s->version,
                      "Usage: video-encode [OPTION]... --data DIR --vae FILE --output DIR\n"
                      "       video-encode --check --output DIR\n\n"
                      "Encodes videos and their captions once, for trainers that read them many\n"
                      "times.  What is there already is kept, so the same command line goes on\n"
                      "where a run was ended; with --ranks each makes its share of the shards.\n",
                      2, sections))
        return 1;
    return check(o);
}
