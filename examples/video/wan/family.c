/* SPDX-License-Identifier: Apache-2.0 */
/* Wan as a model of the family: see ../model.h. */
#include "family.h"
#include <stdlib.h>
#include <string.h>
#include "../../common/say.h"
#include "../batch.h"
#include "ckpt_tools.h"
#include "model.h"
#include "noise.h"
#include "schedule.h"
#include "vae.h"

#define SHIFT 5. /* of models without a scheduler_config.json: the training of DiffSynth */

/* Begin the names of parameters where a run has both models of a pair. */
#define HIGH "high."
#define LOW  "low."

enum { STREAM_TIME = 0x57414e01, TIMES = 1000 };

#define ROW(...) CKPT_OPTION(struct video_options, __VA_ARGS__)

static const struct ckpt_option sample_rows[] = {
    ROW("image-encoder", STRING, image_encoder, "DIR",
        "of I2V of 2.1, directory of CLIP's picture encoder in the format of Hugging Face "
        "(default: "
        "the image_encoder of --model)"),
    ROW("load-low", STRING, load[1], "FILE",
        "of a pair of models, as --load, for the one for low noise levels (default: none)"),
    CKPT_OPTION_RANGE(struct video_options, "guidance-low", FLOAT, guidance_low, "X",
                      "of a pair of models, scale of guidance of the one for low noise levels "
                      "(default: --guidance if it is given, else the published one)",
                      0, 1000),
    {0},
};

static const struct ckpt_option train_rows[] = {
    ROW("expert", STRING, net.noising.expert, "KIND",
        "of a pair of models for high and low noise levels, the one to train, at its own "
        "timesteps: high, low, or both, each in the steps with its timesteps (no default)"),
    ROW("save-low", STRING, train.save_low, "FILE",
        "of --expert both, as --save, for the model for low noise levels"),
    ROW("names", STRING, names, "KIND",
        "names of whole weights in --save: diffusers, original, or comfyui (default diffusers)"),
    ROW("null-text", STRING, null_text, "FILE",
        "prompt_embedding of the empty prompt, for the samples whose prompt --text-drop drops"),
    ROW("times", STRING, net.noising.times, "KIND",
        "distribution of timesteps before the shift: uniform or logit-normal (default uniform)"),
    ROW("loss-weights", STRING, net.noising.weights, "KIND",
        "weight of the loss by timestep: equal or bell (default equal)"),
    CKPT_OPTION_RANGE(struct video_options, "first-frame", FLOAT, net.noising.first, "X",
                      "of TI2V, fraction of samples whose first latent frame is given without "
                      "noise (default 0)",
                      0, 1),
    {0},
};

struct own {
    struct wan_config config;
    struct wan model;
    struct wan_noise noise;
    struct wan_schedule schedule;
    char files[4096]; /* of the weights */
};

static const struct own *own_of(const struct video_net *n)
{
    return n->own;
}

/* ---- the transformer ----------------------------------------------------------------------- */

static int check_noising(const struct video_net *net)
{
    const struct video_noising *n = &net->noising;

    if (n->times && strcmp(n->times, "uniform") && strcmp(n->times, "logit-normal"))
        return say_fail("--times %s: give uniform or logit-normal", n->times);
    if (n->weights && strcmp(n->weights, "equal") && strcmp(n->weights, "bell"))
        return say_fail("--loss-weights %s: give equal or bell", n->weights);
    if (n->expert && strcmp(n->expert, "high") && strcmp(n->expert, "low") &&
        strcmp(n->expert, "both"))
        return say_fail("--expert %s: give high, low or both", n->expert);
    return 0;
}

static bool is_both(const struct video_net *n)
{
    return n->noising.expert && !strcmp(n->noising.expert, "both");
}

/* Whether the net is the model for low noise levels, or for high ones; a single one is neither. */
static bool is_low(const struct video_net *n)
{
    return is_both(n) ? n->second : n->noising.expert && !strcmp(n->noising.expert, "low");
}

static bool is_high(const struct video_net *n)
{
    return n->noising.expert && !is_low(n);
}

static int check_model(const struct video_net *net, const char *dir)
{
    const struct wan_config *c = &own_of(net)->config;

    if (net->noising.first > 0 && !c->first)
        return say_fail("--first-frame is for TI2V models; %s: %s", dir, wan_config_name(c));
    if (c->boundary > 0 && !net->noising.expert)
        return say_fail("%s: has two models, which meet at noise level %g: give --expert high, "
                        "low or both",
                        dir, c->boundary);
    if (c->boundary <= 0 && is_both(net))
        return say_fail("--expert both is for a directory with a pair of models; %s: %s", dir,
                        wan_config_name(c));
    return 0;
}

/* The published scales. */
static double guidance_of(const struct wan_config *c, bool high)
{
    if (c->boundary <= 0)
        return 5;
    return c->has_image ? 3.5 : high ? 4 : 3;
}

static int read(struct video_net *n, const char *dir)
{
    struct own *own = calloc(1, sizeof *own);

    n->own = own;
    if (!own)
        return say_fail("no memory for a model");
    if (check_noising(n) ||
        wan_config_read(&own->config, dir, is_low(n) ? WAN_LOW : WAN_HIGH, own->files) ||
        check_model(n, dir))
        return -1;
    const struct wan_config *c = &own->config;
    if (is_both(n))
        n->begin = n->second ? LOW : HIGH;
    n->sizes = (struct video_sizes){.name = wan_config_name(c),
                                    .heads = c->heads,
                                    .width = c->width,
                                    .layers = c->layers,
                                    .channels = c->channels,
                                    .factor = c->channels == 48 ? 16 : 8, /* of its autoencoder */
                                    .text_width = c->text_width,
                                    .text_tokens = c->text_tokens,
                                    .compression = 4,
                                    .patch_frames = 1,
                                    .guidance = guidance_of(c, true),
                                    .guidance_low = guidance_of(c, false),
                                    .boundary = c->boundary * TIMES,
                                    .first_frame = c->first,
                                    .has_image = c->has_image,
                                    .whole_image = c->has_image,
                                    .sight_tokens = c->sight ? WAN_SIGHT : 0,
                                    .sight_width = c->sight};
    return 0;
}

static void close(struct video_net *n)
{
    struct own *own = n->own;

    if (own)
        wan_free(&own->model);
    free(own);
    n->own = NULL;
}

static const char *weights(const struct video_net *n)
{
    return own_of(n)->files;
}

static int check(const struct video_net *n, const struct video_geometry *g)
{
    return wan_check_geometry(&own_of(n)->config, g);
}

static int64_t parameters(const struct video_net *n)
{
    return wan_parameters(&own_of(n)->config);
}

static int64_t tokens(const struct video_net *n, const struct video_geometry *g)
{
    (void)n; /* patches are alike in all models */
    return wan_tokens(g);
}

static int create(struct video_net *n, ckpt *c)
{
    struct own *own = n->own;

    wan_free(&own->model);
    return wan_create(&own->model, c, &own->config, n->dtype, n->begin ? n->begin : "")
               ? say_fail("no memory for %lld layers", (long long)own->config.layers)
               : 0;
}

static ckpt_tensor forward(const struct video_net *n, ckpt_tape *t, const struct video_geometry *g,
                           const struct video_inputs *in)
{
    return wan_forward(&own_of(n)->model, t, g, in);
}

/* ---- noise in training --------------------------------------------------------------------- */

/* The published boundaries are 0.875 for T2V and 0.9 for I2V. */
static void range(const struct video_net *net, double *from, double *to)
{
    const struct wan_config *c = &own_of(net)->config;
    const double boundary = c->boundary > 0 ? c->boundary : c->has_image ? 0.9 : 0.875;

    *from = is_high(net) ? boundary * TIMES : 0;
    *to = is_low(net) ? boundary * TIMES : TIMES;
}

static double share(const struct video_net *n)
{
    return wan_noise_share(&own_of(n)->noise);
}

static int schedule(struct video_net *n, const char *dir, double shift, bool any)
{
    const struct video_noising *o = &n->noising;
    struct own *own = n->own;
    struct wan_noise *noise = &own->noise;

    (void)any; /* a file is not needed */
    int rc = wan_schedule_read(&own->schedule, dir, shift);
    if (rc < 0)
        return -1;
    if (rc > 0 && shift <= 0)
        own->schedule.shift = SHIFT;
    *noise = (struct wan_noise){.shift = own->schedule.shift,
                                .normal = o->times && !strcmp(o->times, "logit-normal"),
                                .weighted = o->weights && !strcmp(o->weights, "bell")};
    range(n, &noise->low, &noise->high);
    noise->low /= TIMES;
    noise->high /= TIMES;
    wan_noise_begin(noise);
    return 0;
}

static void draw_times(const struct video_net *net, uint64_t seed, int64_t step, int64_t n,
                       float *t)
{
    ckpt_fill_uniform(seed, (uint64_t)step, STREAM_TIME, t, n);
    for (int64_t i = 0; i < n; i++)
        t[i] = (float)(TIMES * wan_noise_level(&own_of(net)->noise, (double)t[i]));
}

static struct video_level level(const struct video_net *n, float t)
{
    (void)n; /* a timestep is its level */
    return (struct video_level){1 - (double)t / TIMES, (double)t / TIMES};
}

static double weight(const struct video_net *n, float t)
{
    return wan_noise_weight(&own_of(n)->noise, (double)t / TIMES);
}

static ckpt_tensor target(ckpt_tape *t, ckpt_tensor x0, ckpt_tensor eps, ckpt_tensor signal,
                          ckpt_tensor noise)
{
    (void)signal;
    (void)noise;
    return ckpt_sub(t, eps, x0);
}

/* ---- sampling ------------------------------------------------------------------------------ */

static int check_drawing(const struct video_drawing *d)
{
    enum wan_solver solver;

    if (strcmp(d->guidance, "constant"))
        return say_fail("--guidance-schedule %s: give constant", d->guidance);
    return d->solver ? wan_solver(d->solver, &solver) : 0;
}

static int check_steps(const struct video_net *n, int64_t steps)
{
    (void)n;
    (void)steps; /* levels are real numbers */
    return 0;
}

static struct video_step step(const struct video_net *n, const struct video_drawing *d, int64_t i)
{
    const struct wan_schedule *s = &own_of(n)->schedule;
    enum wan_solver solver = s->solver;

    if (d->solver)
        wan_solver(d->solver, &solver);
    return wan_step(s, solver, d->steps, i);
}

static double guidance(const struct video_net *n, const struct video_drawing *d, int64_t i)
{
    return step(n, d, i).t >= n->sizes.boundary ? d->scale : d->low;
}

/* ---- adapters ------------------------------------------------------------------------------ */

/* The original has the numbers of two norms swapped. */
static const struct adapter_rename inside[] = {
    {"attn1.to_q", "self_attn.q"},
    {"attn1.to_k", "self_attn.k"},
    {"attn1.to_v", "self_attn.v"},
    {"attn1.to_out.0", "self_attn.o"},
    {"attn1.norm_q", "self_attn.norm_q"},
    {"attn1.norm_k", "self_attn.norm_k"},
    {"attn2.to_q", "cross_attn.q"},
    {"attn2.to_k", "cross_attn.k"},
    {"attn2.to_v", "cross_attn.v"},
    {"attn2.to_out.0", "cross_attn.o"},
    {"attn2.norm_q", "cross_attn.norm_q"},
    {"attn2.norm_k", "cross_attn.norm_k"},
    {"attn2.add_k_proj", "cross_attn.k_img"},
    {"attn2.add_v_proj", "cross_attn.v_img"},
    {"attn2.norm_added_k", "cross_attn.norm_k_img"},
    {"norm2", "norm3"},
    {"ffn.net.0.proj", "ffn.0"},
    {"ffn.net.2", "ffn.2"},
    {"scale_shift_table", "modulation"},
    {0},
};
static const struct adapter_rename outside[] = {
    {"condition_embedder.time_embedder.linear_1", "time_embedding.0"},
    {"condition_embedder.time_embedder.linear_2", "time_embedding.2"},
    {"condition_embedder.time_proj", "time_projection.1"},
    {"condition_embedder.text_embedder.linear_1", "text_embedding.0"},
    {"condition_embedder.text_embedder.linear_2", "text_embedding.2"},
    {"condition_embedder.image_embedder.norm1", "img_emb.proj.0"},
    {"condition_embedder.image_embedder.ff.net.0.proj", "img_emb.proj.1"},
    {"condition_embedder.image_embedder.ff.net.2", "img_emb.proj.3"},
    {"condition_embedder.image_embedder.norm2", "img_emb.proj.4"},
    {"proj_out", "head.head"},
    {"scale_shift_table", "head.modulation"},
    {0},
};

static const struct adapter_names adapters = {.prefix = "transformer.",
                                              .blocks = "blocks.",
                                              .without = "patch_embedding",
                                              .diffs = true,
                                              .pair = {HIGH, LOW},
                                              .inside = inside,
                                              .outside = outside};

/* ---- all of it ----------------------------------------------------------------------------- */

const struct video_model wan_model = {
    .published = "Wan",
    .train_usage = "Usage: wan-train --model DIR [OPTION]...\n\n"
                   "Trains the transformer of Wan 2.1 or 2.2, or LoRA adapters for it, inside a\n"
                   "memory budget, on encoded videos and prompts.\n"
                   "\nExamples:\n  wan-train --model Wan2.2-TI2V-5B-Diffusers --cache cache "
                   "--lora-rank 32 --vram 24G --host 64G --save lora.safetensors\n"
                   "  wan-train --model Wan2.2-T2V-A14B-Diffusers --expert high --cache cache "
                   "--lora-rank 32 --vram 24G --host 64G --plan-only\n",
    .sample_usage =
        "Usage: wan-sample --model DIR --prompt TEXT [OPTION]...\n\n"
        "Samples clips from Wan 2.1 or 2.2 inside a memory budget, as latents or "
        "videos.\n"
        "\nExamples:\n  wan-sample --model Wan2.2-TI2V-5B-Diffusers --prompt \"a rabbit "
        "in a meadow\" --frames 121 --size 1280x704 --vram 12G --host 32G --output "
        "rabbit.mp4\n"
        "  wan-sample --model Wan2.2-T2V-A14B-Diffusers --load lora.safetensors "
        "--prompts prompts.txt --vram 24G --host 64G --output clips.mp4\n",
    .train_rows = train_rows,
    .sample_rows = sample_rows,
    .programs = "wan",
    .out = "wan-out",
    .frames = 81,
    .height = 480,
    .width = 832,
    .text = TEXT_WAN,
    .negative = "",
    .unread = "norm_added_q",
    .autoencoder = &wan_autoencoder,
    .adapters = &adapters,
    .targets = VIDEO_TARGETS_WAN,
    .read = read,
    .close = close,
    .weights = weights,
    .check = check,
    .parameters = parameters,
    .tokens = tokens,
    .create = create,
    .forward = forward,
    .schedule = schedule,
    .draw_times = draw_times,
    .range = range,
    .share = share,
    .level = level,
    .weight = weight,
    .target = target,
    .check_drawing = check_drawing,
    .check_steps = check_steps,
    .step = step,
    .guidance = guidance,
    .data = video_data_open,
    .record = video_record,
    .fill_row = video_batch_fill_row,
    .feed = video_batch_feed_training,
    .noise_of_validation = VIDEO_STREAM_VALID,
};
