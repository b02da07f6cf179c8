/* SPDX-License-Identifier: Apache-2.0 */
/* CogVideoX as a model of the family: see ../model.h. */
#include "family.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/say.h"
#include "../batch.h"
#include "model.h"
#include "schedule.h"
#include "vae.h"

struct own {
    struct cogvideo_config config;
    struct cogvideo model;
    struct cogvideo_schedule schedule;
};

static const struct own *own_of(const struct video_net *n)
{
    return n->own;
}

/* ---- the transformer ----------------------------------------------------------------------- */

static int read(struct video_net *n, const char *dir)
{
    struct own *own = calloc(1, sizeof *own);

    n->own = own;
    if (!own)
        return say_fail("no memory for a model");
    if (cogvideo_config_read(&own->config, dir))
        return -1;
    const struct cogvideo_config *c = &own->config;
    n->sizes = (struct video_sizes){.name = cogvideo_config_name(c),
                                    .heads = c->heads,
                                    .width = c->width,
                                    .layers = c->layers,
                                    .channels = c->out_channels,
                                    .factor = 8,
                                    .guidance = 6,
                                    .text_width = c->text_width,
                                    .text_tokens = c->text_tokens,
                                    .compression = c->compression,
                                    .patch_frames = c->patch_frames,
                                    .has_image = cogvideo_has_image(c)};
    return 0;
}

static void close(struct video_net *n)
{
    struct own *own = n->own;

    if (own)
        cogvideo_free(&own->model);
    free(own);
    n->own = NULL;
}

static int check(const struct video_net *n, const struct video_geometry *g)
{
    return cogvideo_check_geometry(&own_of(n)->config, g);
}

static int64_t parameters(const struct video_net *n)
{
    return cogvideo_parameters(&own_of(n)->config);
}

static int64_t tokens(const struct video_net *n, const struct video_geometry *g)
{
    return cogvideo_grid(&own_of(n)->config, g).tokens;
}

static int create(struct video_net *n, ckpt *c)
{
    struct own *own = n->own;

    cogvideo_free(&own->model);
    return cogvideo_create(&own->model, c, &own->config, n->dtype)
               ? say_fail("no memory for %lld layers", (long long)own->config.layers)
               : 0;
}

static ckpt_tensor forward(const struct video_net *n, ckpt_tape *t, const struct video_geometry *g,
                           const struct video_inputs *in)
{
    return cogvideo_forward(&own_of(n)->model, t, g, in);
}

/* ---- the schedule -------------------------------------------------------------------------- */

static int schedule(struct video_net *n, const char *dir, double shift, bool any)
{
    struct cogvideo_schedule *s = &((struct own *)n->own)->schedule;
    int rc = cogvideo_schedule_read(s, dir, shift);

    if (rc > 0 && (shift > 0 || any)) {
        cogvideo_schedule(s, shift > 0 ? shift : 1);
        rc = 0;
    }
    if (rc > 0)
        return say_fail("%s: there is no scheduler_config.json with the shift of the noise levels; "
                        "give --snr-shift 3 for CogVideoX-2B, 1 for the others",
                        dir);
    return rc;
}

static void draw_times(const struct video_net *net, uint64_t seed, int64_t step, int64_t n,
                       float *t)
{
    (void)net; /* one distribution for all models */
    cogvideo_draw_times(seed, step, n, t);
}

static struct video_level level(const struct video_net *n, float t)
{
    double a = own_of(n)->schedule.signal[(int)t];

    return (struct video_level){sqrt(a), sqrt(1 - a)};
}

/* v = sqrt(a) eps - sqrt(1 - a) x0.  Its error equals the published loss, the error of x0 over 1 -
 * a, but without a division by 0. */
static ckpt_tensor target(ckpt_tape *t, ckpt_tensor x0, ckpt_tensor eps, ckpt_tensor signal,
                          ckpt_tensor noise)
{
    return ckpt_sub(t, ckpt_mul(t, eps, signal), ckpt_mul(t, x0, noise));
}

static int check_drawing(const struct video_drawing *d)
{
    if (d->solver && strcmp(d->solver, "ddim") && strcmp(d->solver, "dpm"))
        return say_fail("--solver %s: give ddim or dpm", d->solver);
    if (strcmp(d->guidance, "constant") && strcmp(d->guidance, "cosine") &&
        strcmp(d->guidance, "reference"))
        return say_fail("--guidance-schedule %s: give constant, cosine or reference", d->guidance);
    return 0;
}

static int check_steps(const struct video_net *n, int64_t steps)
{
    return cogvideo_check_steps(&own_of(n)->schedule, steps);
}

static struct video_step step(const struct video_net *n, const struct video_drawing *d, int64_t i)
{
    const struct cogvideo_schedule *s = &own_of(n)->schedule;
    enum cogvideo_solver solver = !d->solver                  ? s->solver
                                  : strcmp(d->solver, "ddim") ? COGVIDEO_DPM
                                                              : COGVIDEO_DDIM;
    struct cogvideo_step k = cogvideo_step(s, solver, d->steps, i);

    return (struct video_step){.t = (double)k.t,
                               .level = {sqrt(k.a), sqrt(1 - k.a)},
                               .keep = k.keep,
                               .clean = k.clean,
                               .old = k.old,
                               .noise = k.noise};
}

static double guidance(const struct video_net *n, const struct video_drawing *d, int64_t i)
{
    enum cogvideo_guidance_kind kind = !strcmp(d->guidance, "reference") ? COGVIDEO_REFERENCE
                                       : strcmp(d->guidance, "cosine")   ? COGVIDEO_CONSTANT
                                                                         : COGVIDEO_COSINE;

    return cogvideo_guidance(&own_of(n)->schedule, kind, d->scale, d->steps, i);
}

/* ---- adapters ------------------------------------------------------------------------------ */

/* The original code's product of queries, keys and values has three adapters. */
static const struct adapter_twin twins[] = {
    {"attention.query_key_value", 0, "attn1.to_q"},
    {"attention.query_key_value", 1, "attn1.to_k"},
    {"attention.query_key_value", 2, "attn1.to_v"},
    {"attention.dense", 0, "attn1.to_out.0"},
};

static const struct adapter_names adapters = {
    .prefix = "transformer.",
    .blocks = "transformer_blocks.",
    .part = "attn1.",
    .without = "patch_embed.proj",
    .original = "model.diffusion_model.transformer.layers.",
    .twin = twins,
    .twins = sizeof twins / sizeof *twins,
};

/* ---- all of it ----------------------------------------------------------------------------- */

const struct video_model cogvideo_model = {
    .published = "CogVideoX",
    .train_usage =
        "Usage: cogvideo-train --model DIR [OPTION]...\n\n"
        "Trains the transformer of CogVideoX, or LoRA adapters for it, inside a memory\n"
        "budget, on encoded videos and prompts.\n"
        "\nExamples:\n  cogvideo-train --model CogVideoX-5b --cache cache --lora-rank 128 --vram "
        "24G --host 64G --save lora.safetensors\n"
        "  cogvideo-train --model CogVideoX-2b --cache cache --vram 40G --plan-only\n",
    .sample_usage = "Usage: cogvideo-sample --model DIR --prompt TEXT [OPTION]...\n\n"
                    "Samples clips from CogVideoX inside a memory budget, as latents or videos.\n"
                    "\nExamples:\n  cogvideo-sample --model CogVideoX-5b --prompt \"a rabbit in "
                    "a meadow\" --vram 12G --output rabbit.mp4\n"
                    "  cogvideo-sample --model CogVideoX-5b --load lora.safetensors --prompts "
                    "prompts.txt --output clips.mp4\n",
    .programs = "cogvideo",
    .out = "cogvideo-out",
    .frames = 49,
    .height = 480,
    .width = 720,
    .text = TEXT_COGVIDEOX,
    .autoencoder = &cogvideo_autoencoder,
    .adapters = &adapters,
    .targets = VIDEO_TARGETS,
    .read = read,
    .close = close,
    .check = check,
    .parameters = parameters,
    .tokens = tokens,
    .create = create,
    .forward = forward,
    .schedule = schedule,
    .draw_times = draw_times,
    .level = level,
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
    .whole_times = true,
};
