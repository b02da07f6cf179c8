/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An autoencoder with the program of a clip; see coder.h.  One program handles a clip of one shape,
 * in passes of a fixed number of frames; a clip of another shape compiles another program.  The
 * context is opened here, or is that of another model (video_coder_join).
 */
#include "coder.h"
#include <stdlib.h>
#include <string.h>
#include "../common/compiled.h"
#include "../common/memory.h"
#include "../common/options.h"
#include "../common/outputs.h"
#include "../common/say.h"
#include "../common/variants.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"

#define ROW(...)   CKPT_OPTION(struct video_coder_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct video_coder_options, __VA_ARGS__)

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

int video_coder_parse(struct video_coder *k, const struct autoencoder *kind,
                      const struct ckpt_option *table, void *owner, int argc, char **argv,
                      const char *usage)
{
    struct video_coder_options *o = &k->options;
    const struct option_reading reading = {
        usage,    &o->library, false,
        &o->help, &o->version, {{"Options", table, owner}, {"The model", table_of_coder, o}},
        NULL};
    int rc = options_read(&reading, argc, argv);

    if (rc)
        return rc;
    if (!o->model)
        return say_fail("--model DIR is missing: a model of %s; see --help", kind->published);
    return option_dtype("dtype", o->dtype) || outputs_untrained(&o->library) ? -1 : 0;
}

/* ---- the model ----------------------------------------------------------------------------- */

int video_coder_config(struct video_coder *k, const struct autoencoder *kind, bool decode)
{
    k->kind = kind;
    k->dtype = strcmp(k->options.dtype, "bf16") ? CKPT_F32 : CKPT_BF16;
    k->clip.decode = decode;
    autoencoder_directory(k->directory, sizeof k->directory, k->options.model);
    k->own = calloc(1, kind->size);
    return k->own ? kind->read(k->own, k->directory, k->dtype, &k->sizes)
                  : say_fail("no memory for an autoencoder");
}

/* Half of the autoencoder: the decoder or the encoder; without values for --plan-only. */
static int make_model(struct video_coder *k)
{
    const struct autoencoder *a = k->kind;

    if (a->create(k->own, k->context, k->clip.decode))
        return -1;
    return k->options.library.plan_only
               ? 0
               : autoencoder_load(a, k->context, k->directory, k->clip.decode);
}

int video_coder_open(struct video_coder *k)
{
    if (say_open(&k->context, &k->options.library))
        return -1;
    if (ckpt_ranks(k->context) > 1)
        return say_fail("--ranks: this program does not divide its clips among ranks");
    return make_model(k);
}

int video_coder_join(struct video_coder *k, ckpt *c)
{
    k->context = c;
    k->joined = true;
    return make_model(k);
}

void video_coder_close(struct video_coder *k)
{
    free(k->in);
    free(k->own);
    if (!k->joined)
        ckpt_close(k->context);
    k->in = NULL;
    k->own = NULL;
    k->context = NULL;
    k->program = NULL; /* freed with the context */
}

/* ---- the program --------------------------------------------------------------------------- */

/* The clip in one variant of the program. */
struct variant {
    const struct video_coder *coder;
    struct autoencoder_clip clip;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct variant *v = user;

    (void)batch;
    return v->coder->kind->record(v->coder->own, &v->clip, t);
}

/* Prints the first plan only; later clips of other shapes print none. */
static void show(struct video_coder *k)
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
static int compile(struct video_coder *k)
{
    struct variant user[AUTOENCODER_SLICES];
    struct ckpt_variant variants[AUTOENCODER_SLICES];
    const bool chooses = k->options.slice == CKPT_AUTO;
    int n = chooses ? AUTOENCODER_SLICES : 1, chosen;

    for (int i = 0; i < n; i++) {
        user[i] = (struct variant){k, k->clip};
        user[i].clip.slice = chooses ? k->kind->slice[i] : k->options.slice;
        variants[i] = (struct ckpt_variant){record, &user[i], true};
    }
    int rc =
        variants_compile(k->context, k->options.library.vram, n, variants, &k->program, &chosen);
    if (compiled(k->context, rc, k->program, ""))
        return -1;
    k->clip.slice = user[chosen].clip.slice;
    show(k);
    return 0;
}

/* Values of an input frame. */
static int64_t values_in(const struct video_coder *k)
{
    return k->clip.height * k->clip.width * (k->clip.decode ? k->sizes.latent : k->sizes.channels);
}

int video_coder_compile(struct video_coder *k, int64_t frames, int64_t height, int64_t width)
{
    if (k->program && k->clip.frames == frames && k->clip.height == height &&
        k->clip.width == width)
        return 0;
    ckpt_program_free(k->program);
    free(k->in);
    k->program = NULL;
    k->clip = (struct autoencoder_clip){frames, height, width, 0, k->clip.decode};
    k->passes = k->kind->passes(&k->clip);
    int64_t most = k->passes.first + k->passes.each + k->sizes.front;
    k->in = MEMORY_FOR(sizeof *k->in, most, values_in(k));
    return k->in ? compile(k) : say_fail("no memory for a pass of frames");
}

int video_coder_compile_again(struct video_coder *k, int64_t frames, int64_t height, int64_t width,
                              bool least)
{
    ckpt_program_free(k->program);
    k->program = NULL;
    k->options.slice = least ? k->kind->slice[AUTOENCODER_SLICES - 1] : CKPT_AUTO;
    return video_coder_compile(k, frames, height, width);
}

int64_t video_coder_out(const struct video_coder *k)
{
    int64_t factor = k->sizes.factor, places = k->clip.height * k->clip.width;

    return k->clip.decode ? places * factor * factor * k->sizes.channels
                          : places / factor / factor * 2 * k->sizes.latent;
}

int64_t video_coder_pass_out(const struct video_coder *k, int64_t pass)
{
    return k->kind->out(k->own, autoencoder_pass_frames(&k->passes, pass), !pass, k->clip.decode);
}

int64_t video_coder_clip_out(const struct video_coder *k)
{
    return autoencoder_clip_out(k->kind, k->own, &k->clip);
}

/* Feeds the frames of a pass and the frames before them; the first pass repeats its first frame
 * instead. */
static int feed_pass(struct video_coder *k, const float *x, int64_t pass)
{
    int64_t n = autoencoder_pass_frames(&k->passes, pass), front = k->sizes.front;
    int64_t begin = autoencoder_pass_begin(&k->passes, pass), frame = values_in(k);
    char name[32];

    for (int64_t i = -front; i < n; i++) {
        int64_t from = begin + i < 0 ? 0 : begin + i;
        memcpy(k->in + (i + front) * frame, x + from * frame, (size_t)frame * sizeof *x);
    }
    snprintf(name, sizeof name, "in.%lld", (long long)pass);
    return ckpt_feed(k->program, name, k->in, (n + front) * frame * (int64_t)sizeof *x);
}

int video_coder_run(struct video_coder *k, const float *x)
{
    int rc = 0;

    for (int64_t pass = 0; pass < k->passes.n && !rc; pass++)
        rc = feed_pass(k, x, pass);
    return rc || ckpt_step(k->program, NULL) ? say_fail("%s", ckpt_error(k->context)) : 0;
}

int video_coder_take(struct video_coder *k, int64_t pass, float *y)
{
    int64_t n = video_coder_pass_out(k, pass) * video_coder_out(k);
    char name[32];

    snprintf(name, sizeof name, "out.%lld", (long long)pass);
    return ckpt_fetch(k->program, name, y, n * (int64_t)sizeof *y)
               ? say_fail("%s", ckpt_error(k->context))
               : 0;
}

int video_coder_encode(struct video_coder *k, const uint8_t *rgb, float *x, float *y)
{
    int64_t frame = k->clip.height * k->clip.width * 3, n = k->clip.frames * frame, at = 0;
    const int64_t seen = k->seen ? k->seen * frame : n;

    for (int64_t i = 0; i < n; i++)
        x[i] = i < seen ? (float)rgb[i] / 127.5f - 1.f : 0;
    int rc = video_coder_run(k, x);
    for (int64_t pass = 0; pass < k->passes.n && !rc; pass++) {
        rc = video_coder_take(k, pass, y + at);
        at += video_coder_pass_out(k, pass) * video_coder_out(k);
    }
    return rc;
}

void video_coder_report(const struct video_coder *k)
{
    ckpt_profile_print(k->program, stdout);
    compiled_memory(k->program);
}
