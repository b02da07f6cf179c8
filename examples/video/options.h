/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of the programs that train and sample: tables next to the library's. */
#ifndef VIDEO_OPTIONS_H
#define VIDEO_OPTIONS_H

#include "../common/loader.h"
#include "../common/adapters.h"
#include "../common/balance.h"
#include "../common/outputs.h"
#include "../common/validation.h"
#include "model.h"

/* Published values for the noise on images of I2V: mean and deviation of log sigma, and the
 * fraction of samples without an image. */
#define VIDEO_NOISE_MEAN      (-3.0)
#define VIDEO_NOISE_DEVIATION 0.5
#define VIDEO_IMAGE_DROP      0.05

/* The options of all models; each has a table of those that it takes.  Values that a preset or the
 * data may set are 0 (counts), or -1 or NaN (where 0 is a valid value). */
struct video_options {
    /* the model */
    const char *model, *dtype;
    bool random;
    double snr_shift;
    const char *names;    /* of whole weights in files; NULL: the model's */
    struct video_net net; /* read from model */
    struct video_net low; /* the second of a pair that trains in one run; its model NULL: none */
    /* the data */
    const char *data, *features, *latents, *text, *videos, *prompts, *csv, *cache;
    const char *video, *video_dir, *latent, *buckets;
    bool check_cache;
    const char *video_column, *caption_column;
    bool empty_captions; /* clips without a caption have an empty one; else they are refused */
    const char *size;    /* becomes height and width */
    int64_t frames, height, width, stride, clips;
    int64_t latent_frames, latent_height, latent_width; /* from latent */
    struct loader_options loader;
    double text_drop;
    const char *null_text; /* NULL: a dropped prompt is zeros */
    const char *images;
    double image_noise_mean, image_noise_std, image_drop;
    bool keep_order;
    /* adapters */
    struct adapter_options adapters; /* their file is --load or --resume */
    /* training */
    struct training_options train;
    const char *balance;  /* see enum balance */
    double batch_seconds; /* limit of a step for chosen batches: see struct video_batches */
    /* sampling */
    const char *solver, *guidance_kind, *negative, *image, *noise, *out;
    const char *image_encoder; /* of the features of image; NULL: in model */
    const char *sample_text, *prompt, *sample_prompts, *text_encoder, *tokenizer, *vae, *output;
    const char *negative_prompt;
    const char *load[2];                   /* of a pair of models, train.load of each */
    struct adapter_options asked_adapters; /* before those of a file */
    double guidance, guidance_low, fps;    /* -1: the published ones */
    int64_t sample_seed, sample_steps;
    struct validation_options validation;
    int64_t sample_every; /* steps between two clips of a training; 0: only at its end */
    bool sample_ema;
    /* of STDiT: sizes, in place of a config.json, and presets */
    int64_t hidden, heads, depth, in_channels, caption_channels, text_tokens;
    double mlp_ratio;
    bool freeze_caption, exact_timestep;
    const char *vae_model;  /* preset of the autoencoder */
    const char *mask_stage; /* of the frame masks in training */
    const char *camera;     /* parts of prompts */
    double aes, flow;
    const char *reference, *mask_strategy; /* given frames */
    int64_t loop, condition_frames, align;
    double condition_edit;
    /* output */
    bool help, version;
    bool demo_budget; /* library.vram is the default of a demo */
    struct ckpt_options library;
};

/* Layers with adapters: of the attention; of both attentions and the feed-forward layer. */
#define VIDEO_TARGETS     "to_q,to_k,to_v,to_out.0"
#define VIDEO_TARGETS_WAN VIDEO_TARGETS ",ffn.net.0.proj,ffn.net.2"

/* Weight decay and beta2, as 100 steps of warm-up and the rate for all weights (options.c), are
 * those of CogVideoX's own trainer; 50 steps of sampling those of its model cards. */
#define VIDEO_OPTIONS_INIT                                                                         \
    {                                                                                              \
        .snr_shift = -1, .video_column = "video", .caption_column = "caption",                     \
        .adapters = {ADAPTER_DEFAULTS("bf16", "diffusers")}, .image_drop = -1,                     \
        .image_noise_mean = VIDEO_NOISE_MEAN, .image_noise_std = VIDEO_NOISE_DEVIATION,            \
        .train = {TRAINING_DEFAULTS, .weight_decay = 1e-4, .beta2 = 0.95},                         \
        .guidance_kind = "constant", .guidance = -1, .guidance_low = -1, .fps = -1,                \
        .sample_steps = 50, .library = CKPT_OPTIONS_INIT                                           \
    }

/* The options of both programs. */
#define VIDEO_SIZE_ROW                                                                             \
    ROW("size", STRING, size, "WxH",                                                               \
        "width and height of a frame, in place of --width and --height (default: none)")
#define VIDEO_MODEL_ROWS                                                                           \
    ROW("model", STRING, model, "DIR",                                                             \
        "model directory of diffusers, or its transformer directory (no default)"),                \
        ROW("random", FLAG, random, NULL,                                                          \
            "start from random weights: --model DIR needs only config.json"),                      \
        RANGE("snr-shift", FLOAT, snr_shift, "X",                                                  \
              "shift of the noise levels (default: from scheduler_config.json)", 1e-6,             \
              OPTION_REAL),                                                                        \
        DTYPE_ROW
#define VIDEO_LORA_ROWS                                                                            \
    LORA_ALPHA_ROW, ROW("lora-targets", STRING, adapters.targets, "LIST",                          \
                        "layers of each block with adapters (default: from the file of adapters, " \
                        "else " VIDEO_TARGETS ", and ffn.net.0.proj,ffn.net.2 of Wan)")

#define EMPTY_CAPTIONS_ROW(field)                                                                  \
    ROW("empty-captions", FLAG, field, NULL,                                                       \
        "give clips without a caption an empty one (default: they are refused)")

/* Clips of several shapes; clips: which of them are in which bucket. */
#define VIDEO_BUCKETS_ROW(clips)                                                                   \
    ROW("buckets", STRING, buckets, "FILE", "table of sizes and lengths: " clips)
#define VIDEO_BATCH_ROWS(what)                                                                     \
    CKPT_OPTION_GROUP("Training"),                                                                 \
        RANGE("batch", COUNT, train.batch, "N",                                                    \
              what " per step of each rank (default 1); auto, with --buckets: for each size and "  \
                   "length the number that trains fastest within the budget",                      \
              1, 65536),                                                                           \
        RANGE("batch-seconds", FLOAT, batch_seconds, "X",                                          \
              "with --batch auto: longest planned step in seconds (default: the slowest bucket "   \
              "with a batch in the table, else one clip of the largest bucket)",                   \
              1e-9, 1e9),                                                                          \
        ROW("balance", STRING, balance, "KIND",                                                    \
            "with --buckets, what batches of ranks have in common in a step: time (their "         \
            "predicted steps take as long), tokens (they have as many), or none: all use one "     \
            "bucket (default none)")

/* The options of sampling. */
#define VIDEO_DRAW_ROWS                                                                            \
    ROW("text-encoder", STRING, text_encoder, "DIR",                                               \
        "directory of the text encoder in the format of Hugging Face; encodes the prompts before " \
        "the model is loaded (default: the text_encoder of --model)"),                             \
        SPIECE_ROW(tokenizer, "--text-encoder"),                                                   \
        ROW("negative", STRING, negative, "FILE",                                                  \
            "prompt_embedding of the negative prompt for guidance (safetensors) (default: "        \
            "zeros; Wan: --negative-prompt)"),                                                     \
        ROW("negative-prompt", STRING, negative_prompt, "TEXT",                                    \
            "negative prompt for guidance, encoded beside the prompts (default: none; Wan: an "    \
            "empty text)"),                                                                        \
        ROW("solver", STRING, solver, "KIND",                                                      \
            "solver of sampling, of CogVideoX: ddim or dpm; of Wan: unipc, unipc-original or "     \
            "euler (default: by the class in scheduler_config.json, else dpm and unipc)"),         \
        RANGE("guidance", FLOAT, guidance, "X",                                                    \
              "scale of classifier-free guidance (default: the published one, CogVideoX 6, Wan 3 " \
              "to 5; 1: none)",                                                                    \
              0, 1000),                                                                            \
        ROW("guidance-schedule", STRING, guidance_kind, "KIND",                                    \
            "guidance over the steps: constant, or of CogVideoX cosine or reference (the "         \
            "published one) (default constant)"),                                                  \
        ROW("sample-seed", INT, sample_seed, "N",                                                  \
            "seed of the initial noise of sampling (default 0)"),                                  \
        RANGE("fps", FLOAT, fps, "X", "frames per second of videos (default: those of the model)", \
              0.1, 240)

/* Checks the options of buckets and their balance, before defaults are filled in.  Returns 0, or -1
 * after an error message. */
int video_check_buckets(const struct video_options *o);
/* That option, which was checked. */
enum balance video_balance_of(const struct video_options *o);

/* Of training: sets the defaults and names what replaces them; then checks it and reads the
 * config.json of the model. */
extern const char *const video_once[2]; /* option_reading.once */
struct option_reading video_options_reading(struct video_options *o, const struct video_model *m);
int video_options_check(void *options);
/* Of sampling: both, and what is between them.  Returns 0 to go on, 1 to exit (--help) and -1 after
 * an error message. */
int video_sample_options_parse(struct video_options *o, const struct video_model *m, int argc,
                               char **argv);

/* Of sampling: reads the first or the second model of a pair in place of the other, with what its
 * --load names.  Returns 0, or -1 after an error message. */
int video_select_model(struct video_options *o, bool second);

/* The files that the options name. */
struct training_files video_training_files(const struct video_options *o);
enum { VIDEO_PATH = 4096 };

/* The weights of the transformer that the options name; the result is path or an option.  NULL:
 * none, they are random. */
const char *video_weights(const struct video_options *o, char path[VIDEO_PATH]);

/* Reads --size.  Returns 0, or -1 after an error message. */
int video_take_size(struct video_options *o);

#endif
