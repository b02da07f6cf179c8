/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of vae-train: its own tables in addition to the library's. */
#include <stdlib.h>
#include <string.h>
#include "../../common/say.h"
#include "ckpt_tools.h"
#include "options.h"

#define ROW(...)   CKPT_OPTION(struct vae_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct vae_options, __VA_ARGS__)

static const char usage[] =
    "Usage: vae-train [OPTION]...\n\n"
    "Trains the video autoencoder of Open-Sora 1.2 inside a memory budget.  Without\n"
    "options: a tiny model on the included clip.\n"
    "\nExamples:\n  vae-train --model v1.2 --dtype bf16 --video-dir videos --size 256x256 "
    "--vram 24G --save vae.safetensors\n"
    "  vae-train --model v1.2 --dtype bf16 --random 17x256x256 --vram 16G --micro-batch auto\n";

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Model and data"),
    RANGE("stage", INT, stage, "N",
          "1: temporal part on latents, 2: with the 2-D encoder, 3: all on pixels (default 3)", 1,
          3),
    GRAD_DTYPE_ROW,
    ROW("video", STRING, video, "FILE", "train on this clip"),
    ROW("video-dir", STRING, video_dir, "DIR",
        "train on the videos in this directory and its tar files, read during training; also one "
        "video, one tar file or a table of videos (.csv)"),
    ROW("size", STRING, size, "WxH", "size to which clips are resized (default 64x40)"),
    RANGE("frames", INT, frames, "N", "frames of a clip (default: the longest of --lengths)", 1,
          4096),
    STRIDE_ROWS,
    LOADER_ROWS,
    ROW("tensors", STRING, tensors, "FILE",
        "train on x, noise_2d and noise of a safetensors file, to compare programs"),
    ROW("random", STRING, random, "TxHxW",
        "train on random clips of this shape, for timings (default "
        "17x256x256 with --model v1.2)"),
    ROW("lengths", STRING, lengths, "N,N-N,...",
        "lengths in frames, one drawn for each step (default: from --stage)"),
    RANGE("image-share", FLOAT, image_share, "X",
          "fraction of steps with one frame in place of --lengths (default: from --stage)", 0, 1),
    WEIGHTS_ROWS,
    BATCH_ROW("clips", " 1"),
    RANGE("frames-2d", COUNT, part, "N",
          "frames that the 2-D part computes at a time, 0: all; auto: the number with the fastest "
          "step that fits (default auto with --micro-batch auto, else 0)",
          0, 4096),
    STEPS_ROWS(": the preset's", ": the preset's", ": the preset's", "0", "0.99"),
    CKPT_OPTION_GROUP("Losses and codebook"),
    RANGE("kl-weight", FLOAT, kl_weight, "X",
          "weight of the KL divergence in stage 3 (default 1e-6)", 0, OPTION_REAL),
    ROW("lpips", STRING, lpips, "FILE",
        "weights of LPIPS with VGG16 (safetensors); without it stage 3 has no LPIPS term"),
    RANGE("lpips-weight", FLOAT, lpips_weight, "X", "weight of LPIPS (default 0.1)", 0,
          OPTION_REAL),
    ROW("quantizer", STRING, quantizer, "NAME",
        "kl: latents are normal distributions; vq: latents are entries of a codebook (default kl)"),
    RANGE("codebook", INT, codebook, "N", "entries of the codebook (default 1024)", 1, 1 << 20),
    RANGE("codebook-decay", FLOAT, codebook_decay, "X",
          "decay of the moving averages that update the codebook (default 0.99)", 0, OPTION_DECAY),
    RANGE("commitment", FLOAT, commitment, "X",
          "weight of the latents' distance to the codebook (default 0.25)", 0, OPTION_REAL),
    LOG_ROWS("reconstruction"),
    CKPT_OPTION_GROUP("Pictures"),
    ROW("output", STRING, out, "DIR",
        "write the clip and its reconstruction into this directory at the end"),
    CKPT_OPTION_ALIAS("out", "output"),
    HELP_ROWS,
    {0},
};

enum { UNSET = INT32_MIN };

/* ---- shapes -------------------------------------------------------------------------------- */

static int add_length(struct vae_options *o, int64_t frames)
{
    int at = 0;

    while (at < o->n_lengths && o->length[at] < frames)
        at++;
    if (at < o->n_lengths && o->length[at] == frames)
        return 0;
    if (o->n_lengths == VAE_MOST_LENGTHS)
        return say_fail("--lengths: more than %d different ones", VAE_MOST_LENGTHS);
    memmove(o->length + at + 1, o->length + at, (size_t)(o->n_lengths - at) * sizeof *o->length);
    o->length[at] = frames;
    o->n_lengths++;
    return 0;
}

/* "5", "1,17", "1-33" */
static int parse_lengths(struct vae_options *o, const char *text)
{
    const char *at = text;

    for (;; at++) {
        char *end = NULL;
        long first = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0, last = first;
        if (end && *end == '-' && end[1] >= '0' && end[1] <= '9')
            last = strtol(end + 1, &end, 10);
        if (first < 1 || last < first || last > 4096 || (*end && *end != ','))
            return say_fail("--lengths %s: give numbers of frames, as 17 or 1,5,9-33", text);
        for (long n = first; n <= last; n++)
            if (add_length(o, n))
                return -1;
        at = end;
        if (!*at)
            return 0;
    }
}

/* ---- defaults ------------------------------------------------------------------------------ */

struct preset {
    const char *name, *lengths[3]; /* of each stage */
    double image_share[3];
    int64_t steps, warmup;
    double lr;
};

/* v1.2 has Open-Sora's training settings; tiny is for the shipped clip. */
static const struct preset presets[] = {
    {"v1.2", {"17", "17", "1-33"}, {0.2, 0.2, 0}, 10, 0, 1e-5},
    {"tiny", {"5", "5", "5"}, {0.2, 0.2, 0.1}, 600, 20, 3e-3},
};

/* Clips of --tensors and --random have one length, so a mixture of lengths cannot be drawn. */
static int fill_preset(struct vae_options *o)
{
    const struct preset *p = strcmp(o->model.model, "v1.2") ? &presets[1] : &presets[0];
    int stage = (int)o->stage - 1;
    bool fixed = o->tensors || o->random;

    training_preset(&o->train, 1, p->steps, p->warmup, p->lr);
    option_take(&o->part, o->library.micro_batch == CKPT_AUTO ? CKPT_AUTO : 0, UNSET);
    if (fixed && (o->lengths || o->image_share > 0))
        return say_fail(
            "--lengths and --image-share are for videos; %s has a fixed number of frames",
            o->tensors ? "tensors" : "random clips");
    if (o->image_share < 0)
        o->image_share = fixed || o->lengths ? 0 : p->image_share[stage];
    return fixed ? 0 : parse_lengths(o, o->lengths ? o->lengths : p->lengths[stage]);
}

/* ---- checks -------------------------------------------------------------------------------- */

/* Without data the large preset gets noise, because it is tried for its plan and its times, and the
 * small one the included clip. */
static int check_data(struct vae_options *o)
{
    bool clip_options = o->size || o->frames || o->stride || o->clips;

    if (!o->video && !o->video_dir && !o->tensors && !o->random && !strcmp(o->model.model, "v1.2"))
        o->random = "17x256x256";
    if (!!o->video + !!o->video_dir + !!o->tensors + !!o->random > 1)
        return say_fail("--video, --video-dir, --tensors and --random exclude each other; give "
                        "one");
    if (loader_check(&o->loader))
        return -1;
    if (o->loader.hwaccel && !o->video_dir)
        return say_fail("--hwaccel is for --video-dir");
    if ((o->tensors || o->random) && clip_options)
        return say_fail(
            "--size, --frames, --stride and --clips are for videos; %s has a fixed shape",
            o->tensors ? "tensors" : "random clips");
    if (o->size && option_sizes("size", o->size, "64x40", 2, (int64_t *[]){&o->width, &o->height}))
        return -1;
    if (o->random && option_sizes("random", o->random, "17x256x256", 3,
                                  (int64_t *[]){&o->frames, &o->height, &o->width}))
        return -1;
    return o->random ? add_length(o, o->frames) : 0;
}

/* Pictures are clips of one frame.  Each length is a program of its own, so what describes one
 * program is refused for several. */
static int check_lengths(struct vae_options *o)
{
    int64_t longest = o->n_lengths ? o->length[o->n_lengths - 1] : 0;

    o->image_only = o->image_share > 0 && o->n_lengths && o->length[0] > 1;
    if (o->image_share > 0 && add_length(o, 1))
        return -1;
    option_take(&o->frames, longest, 0);
    if (o->frames < longest)
        return say_fail("--frames %lld: a clip must have the %lld frames of --lengths",
                        (long long)o->frames, (long long)longest);
    if (o->n_lengths > 1 && (o->library.plan_in || o->train.dump))
        return say_fail("--plan-in and --dump need one program; give one length with --lengths and "
                        "--image-share 0");
    return 0;
}

/* The defaults are those of VQ-VAE: a decay of 0.99 and a commitment of 0.25. */
static int fill_quantizer(struct vae_options *o)
{
    o->vq = !strcmp(o->quantizer, "vq");
    if (!o->vq && strcmp(o->quantizer, "kl"))
        return say_fail("--quantizer %s: give kl or vq", o->quantizer);
    if (!o->vq && (o->codebook != UNSET || o->codebook_decay != UNSET || o->commitment != UNSET))
        return say_fail("--codebook, --codebook-decay and --commitment are for --quantizer vq");
    option_take(&o->codebook, 1024, UNSET);
    o->codebook_decay = o->codebook_decay == UNSET ? 0.99 : o->codebook_decay;
    o->commitment = o->commitment == UNSET ? 0.25 : o->commitment;
    return 0;
}

static int check_losses(const struct vae_options *o)
{
    if (o->lpips && o->stage < 3)
        return say_fail("--lpips is a loss on pixels; stage %lld has none", (long long)o->stage);
    return 0;
}

/* The parts that a stage trains: its losses give the other parts no gradient. */
static unsigned trained(int64_t stage)
{
    if (stage == 1)
        return VAE_TEMPORAL;
    return stage == 2 ? VAE_TEMPORAL | VAE_SPATIAL_ENCODER : VAE_ALL;
}

struct training_files vae_files(const struct vae_options *o)
{
    return (struct training_files){.library = &o->library,
                                   .train = &o->train,
                                   .out = o->library.plan_only || o->train.dump ? NULL : o->out};
}

/* A default directory is no request; a named one, where nothing comes, is a mistake. */
static int check_files(const struct vae_options *o)
{
    struct training_files files = vae_files(o);

    if (outputs_asked(&files))
        return -1;
    if (o->out && !files.out)
        return say_fail("--output %s: nothing would be written there: %s writes no pictures",
                        o->out, o->train.dump ? "a run with --dump" : "--plan-only");
    return 0;
}

struct option_reading vae_options_reading(struct vae_options *o)
{
    *o = (struct vae_options){.model = VAE_MODEL_OPTIONS_INIT,
                              .stage = 3,
                              .image_share = -1,
                              .train = {TRAINING_DEFAULTS, .ema_decay = 0.99, .beta2 = -1},
                              .loader = {LOADER_DEFAULTS},
                              .part = UNSET,
                              .kl_weight = 1e-6,
                              .lpips_weight = 0.1,
                              .quantizer = "kl",
                              .codebook = UNSET,
                              .codebook_decay = UNSET,
                              .commitment = UNSET,
                              .library = CKPT_OPTIONS_INIT};
    return (struct option_reading){
        usage,    &o->library, true,
        &o->help, &o->version, {{"The model", vae_model_table, &o->model}, {NULL, table, o}},
        NULL};
}

int vae_options_check(void *options)
{
    struct vae_options *o = options;

    if (dtype_select(&o->model.dtype, &o->train.state, o->train.load, o->train.dtype_note) ||
        vae_model_configure(&o->model, &o->config) || check_data(o) || fill_preset(o) ||
        check_lengths(o) ||
        training_check(&o->train, &o->library, o->model.dtype, o->train.batch) ||
        fill_quantizer(o) || check_losses(o) || check_files(o))
        return -1;
    o->config.trained = trained(o->stage);
    return 0;
}
