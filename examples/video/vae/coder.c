/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by vae-encode and vae-decode; see coder.h. */
#include <stdlib.h>
#include <string.h>
#include "../../common/compiled.h"
#include "../../common/options.h"
#include "../../common/outputs.h"
#include "../../common/run_clock.h"
#include "../../common/say.h"
#include "../../common/variants.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "coder.h"

#define ROW(...)   CKPT_OPTION(struct vae_coder_options, __VA_ARGS__)
#define RANGE(...) CKPT_OPTION_RANGE(struct vae_coder_options, __VA_ARGS__)

static const struct ckpt_option table[] = {
    CKPT_OPTION_GROUP("Options"),
    ROW("load", STRING, load, "FILE", "weights of the autoencoder (safetensors)"),
    PARTIAL_ROW(partial),
    RANGE(
        "frames-2d", COUNT, part, "N",
        "frames that the 2-D part computes at a time, 0: all (default auto: the fastest that fits)",
        0, 4096),
    RANGE("tiles", COUNT, bands, "N",
          "bands of rows into which the 2-D part divides a frame; results are the same (default "
          "auto: the fastest that fits)",
          1, 65536),
    ROW("tile-blend", FLAG, blend, NULL,
        "compute bands independently and blend their borders: less memory, approximate"),
    ROW("clip", STRING, clip, "TxHxW",
        "with --plan-only: plan for a clip of this size, in frames, rows and columns of pixels "
        "(default: the clip of the file)"),
    ROW("sample", FLAG, sample, NULL,
        "sample latents from their distribution instead of taking its mean"),
    HELP_ROWS,
    {0},
};

/* Removes the two file names from the arguments, so that any remaining argument is an error. */
static int take_files(int *argc, char **argv, const char *file[2])
{
    int n = 0;

    for (int i = 1; i < *argc && n < 2;) {
        if (!strncmp(argv[i], "--", 2)) {
            i++;
            continue;
        }
        file[n++] = argv[i];
        memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof *argv);
        --*argc;
    }
    return n;
}

/* Input and output: --plan-only with --clip needs neither. */
static int check_files(struct vae_coder_options *o, int n)
{
    int64_t *size[] = {&o->frames, &o->height, &o->width};
    bool plan_only = o->library.plan_only;

    if (option_clip(o->clip, "a file", plan_only, n > 0))
        return -1;
    if (o->clip)
        return option_sizes("clip", o->clip, "17x480x640", 3, size);
    if (!n && plan_only)
        return say_fail("give a file to read, or --clip TxHxW, the size to plan for");
    if (n < 2 && !plan_only)
        return say_fail("give two files, the input and the output; see --help");
    return 0;
}

int vae_coder_parse(struct vae_coder *k, int argc, char **argv, const char *usage,
                    const char *file[2])
{
    struct vae_coder_options *o = &k->options;
    const struct option_reading reading = {
        usage,    &o->library, false,
        &o->help, &o->version, {{NULL, table, o}, {"The model", vae_model_table, &o->model}},
        NULL};

    *k = (struct vae_coder){.options = {.model = VAE_MODEL_OPTIONS_INIT,
                                        .part = CKPT_AUTO,
                                        .bands = CKPT_AUTO,
                                        .library = CKPT_OPTIONS_INIT}};
    if (options_take(&reading, &argc, argv))
        return -1;
    if (options_print(&reading))
        return 1;
    file[0] = file[1] = NULL;
    int n = take_files(&argc, argv, file);
    if (options_reject(&reading, argc, argv) || check_files(o, n))
        return -1;
    if (!o->load && !o->library.plan_only)
        return say_fail("--load FILE is missing: weights of this model (%s)", o->model.model);
    return dtype_select_for(&o->model.dtype, o->load) || outputs_untrained(&o->library) ? -1 : 0;
}

int vae_coder_check_paths(const struct vae_coder *k, const char *file[2], bool directory)
{
    const struct vae_coder_options *o = &k->options;
    const char *out = o->library.plan_only ? NULL : file[1];
    const struct ckpt_path all[] = {
        {"--load", o->load, CKPT_PATH_INPUT, 0},
        {"input", file[0], CKPT_PATH_INPUT, 0},
        {"output", out, directory ? CKPT_PATH_DIRECTORY : CKPT_PATH_FILE, 0},
    };

    return outputs_take(&o->library, all, sizeof all / sizeof *all);
}

/* ---- the model ----------------------------------------------------------------------------- */

void vae_coder_size(struct vae_coder *k, const struct vae_config *config, int64_t height,
                    int64_t width)
{
    int64_t factor = vae_factor(config);

    k->height = height;
    k->width = width;
    k->padded_height = (height + factor - 1) / factor * factor;
    k->padded_width = (width + factor - 1) / factor * factor;
}

int vae_coder_open(struct vae_coder *k, int64_t height, int64_t width)
{
    struct vae_coder_options *o = &k->options;
    struct vae_config config;

    if (vae_model_configure(&o->model, &config))
        return -1;
    vae_coder_size(k, &config, height, width);
    if (say_open(&k->context, &o->library))
        return -1;
    if (ckpt_ranks(k->context) > 1)
        return say_fail("--ranks: this program does not divide its clips among ranks");
    if (vae_create(&k->model, k->context, &config))
        return say_fail("%s", ckpt_error(k->context));
    return o->load ? vae_load(k->context, o->load, o->partial) : 0;
}

void vae_coder_close(struct vae_coder *k)
{
    ckpt_close(k->context);
    k->context = NULL;
}

int64_t vae_coder_rows(const struct vae_coder *k)
{
    return k->padded_height / vae_factor(&k->model.config);
}

int64_t vae_coder_columns(const struct vae_coder *k)
{
    return k->padded_width / vae_factor(&k->model.config);
}

/* ---- programs ------------------------------------------------------------------------------ */

/* The candidate cuts of a chunk, for the values left to the planner; each is a coder of its own. */
static int make_variants(const struct vae_coder *k, ckpt_recorder record, struct vae_coder *user,
                         struct ckpt_variant *variants)
{
    const struct vae_coder_options *o = &k->options;
    struct vae_cut cut[VAE_CUTS];
    int all = vae_cuts(cut, k->frames, vae_coder_rows(k)), n = 0;

    for (int i = 0; i < all; i++) {
        bool given = o->part != CKPT_AUTO, banded = o->bands != CKPT_AUTO;
        cut[i].part = given ? o->part : cut[i].part;
        cut[i].bands = banded ? o->bands : cut[i].bands;
        cut[i].blend = o->blend;
        bool again = false;
        for (int j = 0; j < n; j++)
            again |= user[j].cut.part == cut[i].part && user[j].cut.bands == cut[i].bands;
        if (again)
            continue;
        user[n] = *k;
        user[n].cut = cut[i];
        variants[n] = (struct ckpt_variant){record, &user[n], !o->blend};
        n++;
    }
    return n;
}

/* Only the plan of the first program is shown; the plan of a shorter last chunk is similar. */
static void show(const struct vae_coder *k, bool first)
{
    if (!first || k->quiet)
        return;
    ckpt_plan_print(k->program, stdout);
    if (k->cut.part > 0 && k->cut.part < k->frames)
        printf("2-D part: %lld frames at a time\n", (long long)k->cut.part);
    if (k->cut.bands > 1)
        printf("2-D part: frames in %lld bands, %s\n", (long long)k->cut.bands,
               k->cut.blend ? "blended: approximate" : "exact");
    fflush(stdout);
}

int vae_coder_compile(struct vae_coder *k, ckpt_recorder record, int64_t frames)
{
    struct vae_coder *user;
    struct ckpt_variant variants[VAE_CUTS];
    bool first = !k->program;
    char what[64];
    int chosen;

    if (k->program && k->frames == frames)
        return 0;
    ckpt_program_free(k->program);
    k->program = NULL;
    k->frames = frames;
    k->since = 0;
    snprintf(what, sizeof what, "a chunk of %lld frames: ", (long long)frames);
    user = calloc(VAE_CUTS, sizeof *user); /* too large for a small stack */
    if (!user)
        return say_fail("no memory to plan a chunk");
    int rc =
        variants_compile(k->context, k->options.library.vram,
                         make_variants(k, record, user, variants), variants, &k->program, &chosen);
    rc = compiled(k->context, rc, k->program, what);
    if (!rc)
        k->cut = user[chosen].cut;
    free(user);
    if (rc)
        return -1;
    show(k, first);
    return 0;
}

int vae_coder_prepare(struct vae_coder *k, ckpt_recorder record, int64_t frames, int64_t chunk)
{
    int64_t rest = frames > chunk ? frames % chunk : 0;

    if (vae_coder_compile(k, record, frames && frames < chunk ? frames : chunk))
        return -1;
    struct vae_coder last = *k;
    last.program = NULL;
    last.quiet = true;
    int rc = rest ? vae_coder_compile(&last, record, rest) : 0;
    ckpt_program_free(last.program);
    return rc;
}

int vae_coder_submit(struct vae_coder *k, const char *in, const float *x, int64_t n)
{
    if (ckpt_feed(k->program, in, x, n * (int64_t)sizeof *x) || ckpt_submit(k->program))
        return say_fail("%s", ckpt_error(k->context));
    return 0;
}

int vae_coder_take(struct vae_coder *k, const char *out, float *y, int64_t m)
{
    double begin = run_clock_now();

    if (ckpt_wait(k->program, NULL) || ckpt_fetch(k->program, out, y, m * (int64_t)sizeof *y))
        return say_fail("%s", ckpt_error(k->context));
    double end = run_clock_now();
    if (k->since > 0) {
        k->chunks++;
        k->seconds += end - k->since;
        k->waited += end - begin;
    }
    k->since = end;
    return 0;
}

int vae_coder_run(struct vae_coder *k, const char *in, const float *x, int64_t n, const char *out,
                  float *y, int64_t m)
{
    return vae_coder_submit(k, in, x, n) || vae_coder_take(k, out, y, m) ? -1 : 0;
}

void vae_coder_report(const struct vae_coder *k)
{
    ckpt_profile_print(k->program, stdout);
    if (k->chunks)
        printf("time: %.1f ms a chunk, mean of %lld after the first; %.0f %% of it waiting for the "
               "device\n",
               1e3 * k->seconds / (double)k->chunks, (long long)k->chunks,
               100 * k->waited / k->seconds);
    compiled_memory(k->program);
}
