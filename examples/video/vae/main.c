/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vae-train: trains the video autoencoder of Open-Sora 1.2 within a memory budget, on one video
 * file or on many that are read as steps need them, in its original three stages.
 */
#include <stdlib.h>
#include "../../common/trainer.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

const char say_program[] = "vae-train";

static int create_model(struct vae_run *r)
{
    if (vae_create(&r->model, r->context, &r->options.config))
        return say_fail("%s", ckpt_error(r->context));
    const struct vae_options *o = &r->options;
    if (o->vq && vae_quantizer_create(&r->quantizer, r->context, o->codebook, o->config.latent,
                                      o->codebook_decay, o->library.seed))
        return -1;
    r->trainable = trainer_count(r->context);
    return 0;
}

static void introduce(const void *run)
{
    const struct vae_run *r = run;
    static const char *const parts[] = {"the temporal part, on latents",
                                        "the temporal part and the 2-D encoder, on latents",
                                        "all of it, on pixels"};
    const struct vae_options *o = &r->options;
    char count[32];

    printf("model: video autoencoder %s, %s trainable parameters (%s)\n", o->model.model,
           say_count(count, r->trainable), o->model.dtype);
    if (o->vq)
        printf("latents: entries of a codebook of %lld\n", (long long)o->codebook);
    if (o->stage == 3)
        say_print("LPIPS: %s\n", o->lpips ? o->lpips : "off, there is no --lpips FILE");
    printf("stage %lld: trains %s\n", (long long)o->stage, parts[o->stage - 1]);
    say_print("%s\n", r->data.title);
}

static int check_outputs(const void *run)
{
    const struct vae_options *o = &((const struct vae_run *)run)->options;
    struct training_files files = vae_files(o);
    const struct ckpt_path inputs[] = {
        {"--video", o->video, CKPT_PATH_INPUT, 0},
        {"--video-dir", o->video_dir, CKPT_PATH_INPUT, 0},
        {"--tensors", o->tensors, CKPT_PATH_INPUT, 0},
        {"--lpips", o->lpips, CKPT_PATH_INPUT, 0},
    };

    return outputs_check(&files, inputs, sizeof inputs / sizeof *inputs);
}

/* ---- the programs -------------------------------------------------------------------------- */

/* The full table of the longest clips, which need most memory, and one line for each other
 * length. */
static void print_plans(const struct vae_run *r)
{
    int n = r->options.n_lengths;
    const struct vae_program *longest = &r->program[n - 1];

    ckpt_plan_print(longest->program, stdout);
    if (longest->part)
        printf("2-D part: %lld frames at a time\n", (long long)longest->part);
    for (int i = 0; i < n && n > 1; i++) {
        struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
        char peak[32];
        ckpt_program_info(r->program[i].program, &info);
        printf("clips of %lld: peak %s, predicted %.1f ms a step\n",
               (long long)r->program[i].frames, say_bytes(peak, info.planned_peak),
               info.step_seconds * 1e3);
    }
    fflush(stdout);
}

/* Compiles all programs of the run before the first step: one planned later might not fit next to
 * the others. */
static int compile(void *run, bool trains)
{
    struct vae_run *r = run;
    struct vae_options *o = &r->options;

    if (o->video_dir && !o->library.plan_only &&
        loader_hold_open(&r->hold, &o->loader, videos_largest(&r->data.videos)))
        return -1;
    if (trains && vae_compile(r))
        return -1;
    r->training = r->program[o->n_lengths - 1].program;
    return o->train.dump ? 0 : vae_reconstruct_compile(r);
}

static int fits(void *run, bool trains)
{
    struct vae_run *r = run;

    if (trains)
        print_plans(r);
    if (trains && r->options.video_dir && vae_ahead_plan(r))
        return -1;
    loader_hold_close(&r->hold);
    return 0;
}

static int resumed(void *run, struct resume_place *place)
{
    struct vae_run *r = run;

    r->bad = place->bad;
    place->bad = NULL;
    return 0;
}

static int finish(void *run, bool trained)
{
    struct vae_run *r = run;

    (void)trained;
    return r->options.train.dump || ckpt_stop_requested(r->context) ? 0 : vae_reconstruct(r);
}

/* ---- the data ------------------------------------------------------------------------------ */

static int open_data(void *run)
{
    struct vae_run *r = run;

    if (ckpt_ranks(r->context) > 1 && r->options.vq)
        return say_fail("--quantizer vq is for one rank alone");
    return vae_data_open(&r->data, &r->options);
}

static int facts(const void *run, struct ckpt_fact fact[TRAINER_FACTS])
{
    const struct vae_data *d = &((const struct vae_run *)run)->data;
    size_t rows = (size_t)d->rows;
    size_t clips = rows * (size_t)(d->frames * d->height * d->width * 3);
    size_t values = rows * (size_t)(d->frames * d->padded_height * d->padded_width * 3);

    fact[0] = (struct ckpt_fact){"number of clips", &d->rows, sizeof d->rows};
    fact[1] = (struct ckpt_fact){"data", d->x, d->x ? values * sizeof *d->x : 0};
    fact[2] = (struct ckpt_fact){"frames of the clips", d->lengths,
                                 d->lengths ? rows * sizeof *d->lengths : 0};
    fact[3] = (struct ckpt_fact){"clips", d->rgb, d->rgb ? clips : 0};
    return 4;
}

static int make_model(void *run)
{
    struct vae_run *r = run;
    const struct vae_options *o = &r->options;

    return (o->lpips && vae_lpips_load(&r->lpips, o->lpips, o->config.dtype)) || create_model(r) ||
                   (o->train.load && vae_load(r->context, o->train.load, o->train.partial))
               ? -1
               : 0;
}

/* ---- the program --------------------------------------------------------------------------- */

static void close(void *run)
{
    struct vae_run *r = run;

    vae_lpips_free(&r->lpips);
    loader_hold_close(&r->hold);
    loader_hw_close(&r->options.loader);
    vae_data_close(&r->data);
    free(r->bad);
}

int main(int argc, char **argv)
{
    static struct vae_run r;
    const struct trainer t = {TRAINER_RUN(r),
                              .reading = vae_options_reading(&r.options),
                              .check = vae_options_check,
                              .outputs = check_outputs,
                              .data = open_data,
                              .facts = facts,
                              .model = make_model,
                              .introduce = introduce,
                              .compile = compile,
                              .fits = fits,
                              .program = &r.training,
                              .counted = "clips of the data",
                              .samples = &r.data.rows,
                              .resumed = resumed,
                              .describe = vae_describe,
                              .open_steps = vae_open_steps,
                              .close_steps = vae_close_steps,
                              .measure = "difference of a value",
                              .finish = finish,
                              .close = close};

    return trainer_main(&t, argc, argv);
}
