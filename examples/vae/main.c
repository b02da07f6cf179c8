/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vae-train: trains the video autoencoder of Open-Sora 1.2 within a memory budget, on one video
 * file or on many that are read as steps need them, in its original three stages.
 */
#include <stdlib.h>
#include "../common/compiled.h"
#include "../common/log.h"
#include "../common/signals.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "run.h"

static int create_model(struct vae_run *r)
{
    if (vae_create(&r->model, r->context, &r->options.config))
        return say_fail("%s", ckpt_error(r->context));
    const struct vae_options *o = &r->options;
    if (o->vq && vae_quantizer_create(&r->quantizer, r->context, o->codebook, o->config.latent,
                                      o->codebook_decay, o->library.seed))
        return -1;
    for (int i = 0; i < ckpt_param_count(r->context); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        if (!ckpt_param_info(r->context, ckpt_param_at(r->context, i), &info) && info.trainable)
            r->trainable += info.numel;
    }
    return 0;
}

static void introduce(const struct vae_run *r)
{
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

static int check_outputs(const struct vae_options *o)
{
    struct training_files files = vae_files(o);
    const struct ckpt_path inputs[] = {
        {"--video", o->video, CKPT_PATH_INPUT, 0},
        {"--video-dir", o->video_dir, CKPT_PATH_INPUT, 0},
        {"--tensors", o->tensors, CKPT_PATH_INPUT, 0},
        {"--lpips", o->lpips, CKPT_PATH_INPUT, 0},
    };

    return outputs_check(&files, inputs, sizeof inputs / sizeof *inputs);
}

/* ---- the run ------------------------------------------------------------------------------- */

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

/* Notes for saved states: the options, and the number of clips in the data. */
static int note(const struct vae_run *r)
{
    return resume_note_count(r->context, "clips of the data", r->data.rows)
               ? -1
               : vae_options_note(&r->options, r->context);
}

/* Compiles all programs of the run before the first step: one planned later might not fit next to
 * the others. */
static int compile(struct vae_run *r, bool trains)
{
    struct training_setup setup;

    training_setup_begin(&setup, r->context, trains ? r->trainable : 0,
                         r->options.library.plan_only);
    if (trains && vae_compile(r))
        return -1;
    if (!r->options.train.dump && vae_reconstruct_compile(r))
        return -1;
    if (compiled_all(r->context))
        return -1;
    if (trains)
        print_plans(r);
    training_setup_end(&setup);
    return trains && r->options.video_dir ? vae_ahead_plan(r) : 0;
}

static int train(struct vae_run *r)
{
    struct resume_place place = {.name = NULL};

    if (note(r) || resume_load(&r->options.train.state, r->context, &place, &r->first))
        return -1;
    r->bad = place.bad;
    return vae_log_open(r) ? -1 : vae_train(r);
}

static int check_ranks(struct vae_run *r)
{
    int ranks = ckpt_ranks(r->context);

    say_as_rank(ckpt_rank(r->context), ranks);
    if (vae_options_agree(&r->options, r->context) ||
        resume_find(&r->options.train.state, r->context))
        return -1;
    r->options.train.samples = r->options.train.batch * ranks;
    if (ranks > 1 && (r->options.train.dump || r->options.vq))
        return say_fail("--%s is for one rank alone",
                        r->options.train.dump ? "dump" : "quantizer vq");
    return 0;
}

/* All ranks must have the same data, because a step takes samples from all of it. */
static int agree_on_data(const struct vae_run *r)
{
    const struct vae_data *d = &r->data;
    int64_t frame = d->padded_height * d->padded_width * 3;
    struct ckpt_fact facts[] = {
        {"number of clips", &d->rows, sizeof d->rows},
        {"data", d->x, d->x ? (size_t)(d->rows * d->frames * frame) * sizeof *d->x : 0},
        {"frames of the clips", d->lengths, d->lengths ? (size_t)d->rows * sizeof *d->lengths : 0},
        {"clips", d->rgb, d->rgb ? (size_t)(d->rows * d->frames * d->height * d->width * 3) : 0},
    };

    return ckpt_agree(r->context, facts, sizeof facts / sizeof *facts)
               ? say_fail("%s", ckpt_error(r->context))
               : 0;
}

static int go(struct vae_run *r)
{
    struct vae_options *o = &r->options;

    /* Only the first rank writes; ranks know their number after the rendezvous. */
    if (!o->library.ranks && check_outputs(o))
        return -1;
    if (ckpt_open(&r->context, &o->library))
        return say_fail("%s", ckpt_error(NULL));
    if (check_ranks(r) || (o->library.ranks && !ckpt_rank(r->context) && check_outputs(o)))
        return -1;
    if (vae_data_open(&r->data, o) || agree_on_data(r) ||
        (o->lpips && vae_lpips_load(&r->lpips, o->lpips, o->config.dtype)))
        return -1;
    if (create_model(r) || (o->train.load && vae_load(r->context, o->train.load, o->train.partial)))
        return -1;
    introduce(r);
    bool trains = o->train.steps > 0 || o->train.state.from || o->library.plan_only;
    if ((o->video_dir && !o->library.plan_only &&
         loader_hold_open(&r->hold, &o->loader, stdit_videos_largest(&r->data.videos))) ||
        compile(r, trains))
        return -1;
    loader_hold_close(&r->hold);
    if (o->library.plan_only)
        return ckpt_unwritten(r->context) ? say_fail("%s", ckpt_error(r->context)) : 0;
    if (trains && train(r))
        return -1;
    if (!o->train.dump && !ckpt_stop_requested(r->context) && vae_reconstruct(r))
        return -1;
    return ckpt_unwritten(r->context) ? say_fail("%s", ckpt_error(r->context)) : 0;
}

int main(int argc, char **argv)
{
    struct vae_run run = {0};

    say_begin();
    signals_open();
    int rc = vae_options_parse(&run.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&run);
    if (log_close(&run.log))
        rc = -1;
    ckpt_close(run.context);
    vae_lpips_free(&run.lpips);
    loader_hold_close(&run.hold);
    loader_hw_close(&run.options.loader);
    vae_data_close(&run.data);
    free(run.bad);
    return say_finish(rc ? 1 : 0);
}
