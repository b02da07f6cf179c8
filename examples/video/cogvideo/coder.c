/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code shared by cogvideo-encode and cogvideo-decode; see coder.h.  One program handles a clip
 * of one shape, in passes of a fixed number of frames; a clip of another shape compiles another
 * program.  The context is opened here, or is that of another model (cogvae_coder_join).
 */
#include "coder.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "../../common/compiled.h"
#include "../../common/memory.h"
#include "../../common/options.h"
#include "../../common/outputs.h"
#include "../../common/say.h"
#include "../../common/variants.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"

#define ROW(...)   CKPT_OPTION(struct cogvae_coder_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct cogvae_coder_options, __VA_ARGS__)

static const struct ckpt_option table_of_coder[] = {
    ROW("model", STRING, model, "DIR", "model directory of diffusers, or its vae directory"),
    ROW("dtype", STRING, dtype, "TYPE",
        "dtype of weights and activations: fp32 or bf16 (default bf16)"),
    RANGE("slice", COUNT, slice, "N",
          "frames that a layer computes at a time, 0: all of a pass; results are the same (default "
          "auto: the fastest that fits)",
          0, 64),
    HELP_ROWS,
    {0},
};

int cogvae_coder_parse(struct cogvae_coder *k, const struct ckpt_option *table, void *owner,
                       int argc, char **argv, const char *usage)
{
    struct cogvae_coder_options *o = &k->options;
    const struct ckpt_option *tables[] = {table, table_of_coder, options_of_library(false)};
    const struct option_section sections[] = {
        {"Options", table}, {"The model", table_of_coder}, {NULL, tables[2]}};

    if (ckpt_options_parse(&o->library, &argc, argv) ||
        ckpt_option_table_parse(table, owner, &argc, argv) ||
        ckpt_option_table_parse(table_of_coder, o, &argc, argv))
        return say_fail("%s", ckpt_error(NULL));
    if (options_print(o->help, o->version, usage, 3, sections))
        return 1;
    if (ckpt_options_reject(argc, argv, 3, tables))
        return say_fail("%s", ckpt_error(NULL));
    if (!o->model)
        return say_fail("--model DIR is missing: a model of CogVideoX; see --help");
    return option_dtype("dtype", o->dtype) || outputs_untrained(&o->library) ? -1 : 0;
}

/* ---- the model ----------------------------------------------------------------------------- */

int cogvae_coder_config(struct cogvae_coder *k, bool decode)
{
    k->decode = decode;
    cogvae_directory(k->directory, sizeof k->directory, k->options.model);
    if (cogvae_config_read(&k->m.config, k->directory))
        return -1;
    k->m.config.dtype = strcmp(k->options.dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    return 0;
}

/* Half of the autoencoder: the decoder or the encoder; without values for --plan-only. */
static int make_model(struct cogvae_coder *k)
{
    struct cogvae_config config = k->m.config;
    int half = k->decode ? COGVAE_DECODER : COGVAE_ENCODER;

    if (cogvae_create(&k->m, k->context, &config, half))
        return say_fail("%s", ckpt_error(k->context));
    return k->options.library.plan_only ? 0 : cogvae_load(&k->m, k->context, k->directory, half);
}

int cogvae_coder_open(struct cogvae_coder *k)
{
    if (ckpt_open(&k->context, &k->options.library))
        return say_fail("%s", ckpt_error(NULL));
    if (ckpt_ranks(k->context) > 1)
        return say_fail("--ranks: this program does not divide its clips among ranks");
    return make_model(k);
}

int cogvae_coder_join(struct cogvae_coder *k, ckpt *c)
{
    k->context = c;
    k->joined = true;
    return make_model(k);
}

void cogvae_coder_close(struct cogvae_coder *k)
{
    free(k->in);
    if (!k->joined)
        ckpt_close(k->context);
    k->in = NULL;
    k->context = NULL;
    k->program = NULL; /* freed with the context */
}

/* ---- the program --------------------------------------------------------------------------- */

/* The clip to encode or decode, in one variant of the program. */
struct variant {
    struct cogvae_clip clip;
    bool decode;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct variant *v = user;

    (void)batch;
    return v->decode ? cogvae_decode(&v->clip, t) : cogvae_encode(&v->clip, t);
}

/* Prints the first plan only; later clips of other shapes print none. */
static void show(struct cogvae_coder *k)
{
    if (k->shown)
        return;
    k->shown = true;
    ckpt_plan_print(k->program, stdout);
    if (k->clip.slice)
        printf("layers: %lld frames at a time, exact\n", (long long)k->clip.slice);
    fflush(stdout);
}

/* The number of frames that a layer computes at a time (the slice) changes no bit of the result.
 * The planner selects the fastest that fits, unless --slice sets it. */
static int compile(struct cogvae_coder *k)
{
    struct variant user[COGVAE_SLICES];
    struct ckpt_variant variants[COGVAE_SLICES];
    int64_t slice[COGVAE_SLICES] = {k->options.slice};
    int n = k->options.slice == CKPT_AUTO ? cogvae_slices(slice) : 1, chosen;

    for (int i = 0; i < n; i++) {
        user[i] = (struct variant){k->clip, k->decode};
        user[i].clip.slice = slice[i];
        variants[i] = (struct ckpt_variant){record, &user[i], true};
    }
    int rc =
        variants_compile(k->context, k->options.library.vram, n, variants, &k->program, &chosen);
    if (compiled(k->context, rc, k->program, ""))
        return -1;
    k->clip.slice = slice[chosen];
    show(k);
    return 0;
}

int cogvae_coder_compile(struct cogvae_coder *k, int64_t frames, int64_t height, int64_t width)
{
    int64_t each = k->decode ? COGVAE_DECODE_PASS : COGVAE_ENCODE_PASS;

    if (k->program && k->clip.frames == frames && k->clip.height == height &&
        k->clip.width == width)
        return 0;
    ckpt_program_free(k->program);
    free(k->in);
    k->program = NULL;
    k->clip = (struct cogvae_clip){&k->m, frames, height, width, 0};
    k->passes = cogvae_passes(frames, each);
    k->in = MEMORY_FOR(sizeof *k->in, k->passes.first + each + COGVAE_FRONT, cogvae_coder_in(k));
    return k->in ? compile(k) : say_fail("no memory for a pass of frames");
}

int cogvae_coder_compile_again(struct cogvae_coder *k, int64_t frames, int64_t height,
                               int64_t width, bool least)
{
    int64_t slice[COGVAE_SLICES];
    int n = cogvae_slices(slice);

    ckpt_program_free(k->program);
    k->program = NULL;
    k->options.slice = least ? slice[n - 1] : CKPT_AUTO;
    return cogvae_coder_compile(k, frames, height, width);
}

int64_t cogvae_coder_in(const struct cogvae_coder *k)
{
    return k->clip.height * k->clip.width * (k->decode ? k->m.config.latent : k->m.config.channels);
}

int64_t cogvae_coder_out(const struct cogvae_coder *k)
{
    int64_t factor = cogvae_factor(&k->m.config), places = k->clip.height * k->clip.width;

    return k->decode ? places * factor * factor * k->m.config.channels
                     : places / factor / factor * 2 * k->m.config.latent;
}

int64_t cogvae_coder_pass_out(const struct cogvae_coder *k, int64_t pass)
{
    int64_t frames = cogvae_pass_frames(&k->passes, pass);

    return k->decode ? cogvae_decoded(&k->m.config, frames) : cogvae_encoded(&k->m.config, frames);
}

int64_t cogvae_coder_clip_out(const struct cogvae_coder *k)
{
    return k->decode ? cogvae_clip_frames(&k->m.config, k->clip.frames)
                     : cogvae_clip_latents(&k->m.config, k->clip.frames);
}

/* Feeds the frames of a pass and the frames before them; the first pass repeats its first frame
 * instead. */
static int feed_pass(struct cogvae_coder *k, const float *x, int64_t pass)
{
    int64_t n = cogvae_pass_frames(&k->passes, pass), begin = cogvae_pass_begin(&k->passes, pass);
    int64_t frame = cogvae_coder_in(k);
    char name[32];

    for (int64_t i = -COGVAE_FRONT; i < n; i++) {
        int64_t from = begin + i < 0 ? 0 : begin + i;
        memcpy(k->in + (i + COGVAE_FRONT) * frame, x + from * frame, (size_t)frame * sizeof *x);
    }
    snprintf(name, sizeof name, "in.%lld", (long long)pass);
    return ckpt_feed(k->program, name, k->in, (n + COGVAE_FRONT) * frame * (int64_t)sizeof *x);
}

int cogvae_coder_run(struct cogvae_coder *k, const float *x)
{
    int rc = 0;

    for (int64_t pass = 0; pass < k->passes.n && !rc; pass++)
        rc = feed_pass(k, x, pass);
    return rc || ckpt_step(k->program, NULL) ? say_fail("%s", ckpt_error(k->context)) : 0;
}

int cogvae_coder_take(struct cogvae_coder *k, int64_t pass, float *y)
{
    int64_t n = cogvae_coder_pass_out(k, pass) * cogvae_coder_out(k);
    char name[32];

    snprintf(name, sizeof name, "out.%lld", (long long)pass);
    return ckpt_fetch(k->program, name, y, n * (int64_t)sizeof *y)
               ? say_fail("%s", ckpt_error(k->context))
               : 0;
}

int cogvae_coder_encode(struct cogvae_coder *k, const uint8_t *rgb, float *x, float *y)
{
    int64_t n = k->clip.frames * k->clip.height * k->clip.width * 3, at = 0;

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rgb[i] / 127.5f - 1.f;
    int rc = cogvae_coder_run(k, x);
    for (int64_t pass = 0; pass < k->passes.n && !rc; pass++) {
        rc = cogvae_coder_take(k, pass, y + at);
        at += cogvae_coder_pass_out(k, pass) * cogvae_coder_out(k);
    }
    return rc;
}

void cogvae_coder_report(const struct cogvae_coder *k)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct rusage usage;
    char arena[32], device[32], host[32];

    ckpt_program_info(k->program, &info);
    ckpt_profile_print(k->program, stdout);
    getrusage(RUSAGE_SELF, &usage);
    printf("memory: arena %s; the process ", say_bytes(arena, info.arena_bytes));
    if (info.process_bytes)
        printf("takes %s of the device and ", say_bytes(device, info.process_bytes));
    printf("took up to %s of the host\n", say_bytes(host, (int64_t)usage.ru_maxrss * 1024));
}
