/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdit-sample: makes videos from prompts, text features or no text, and from given frames.  The
 * diffusion model samples latents, the autoencoder encodes and decodes; they are programs of one
 * context within one memory budget.
 */
#include <stdlib.h>
#include "../../common/outputs.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "caption.h"
#include "segments.h"

const char say_program[] = "stdit-sample";

/* The text encoder has the whole budget; afterwards the autoencoder's encoder for given frames, the
 * diffusion model and the decoder share it.  All are planned before the first one runs. */
struct job {
    struct video_run *run;
    struct stdit_script script;
    struct stdit_captions captions;
};

static bool has_prompts(const struct video_options *o)
{
    return o->prompt || o->prompts;
}

/* ---- script -------------------------------------------------------------------------------- */

static int read_script(struct job *j)
{
    struct video_data *d = &j->run->data;
    struct video_options *o = &j->run->options;

    if (stdit_data_shape(d, o, o->frames ? o->frames : VAE_CHUNK) ||
        (!has_prompts(o) && stdit_data_caption(d, o)) || stdit_script_open(&j->script, d, o))
        return -1;
    j->run->given = stdit_script_guides(&j->script);
    o->train.batch = d->shapes.shape->batch = j->script.at_once;
    o->library.micro_batch = o->library.micro_batch > 0 ? 0 : o->library.micro_batch;
    d->shapes.rows = j->script.clips;
    d->fps = malloc((size_t)d->shapes.rows * sizeof *d->fps);
    if (!d->fps)
        return say_fail("no memory for %lld clips", (long long)d->shapes.rows);
    for (int64_t i = 0; i < d->shapes.rows; i++)
        d->fps[i] = d->shapes.shape->clips.frames == 1 ? 120 : (float)o->fps;
    return has_prompts(o) ? stdit_captions_read(&j->captions, &j->script.texts, o) : 0;
}

static int encode_text(struct job *j)
{
    struct video_options *o = &j->run->options;

    return (has_prompts(o) && stdit_captions_encode(&j->captions, &j->run->data, &o->library)) ||
                   stdit_data_agree(&j->run->data, o)
               ? -1
               : 0;
}

/* ---- the model ----------------------------------------------------------------------------- */

static int open_model(struct job *j)
{
    struct video_run *r = j->run;

    if (say_open(&r->context, &r->options.library))
        return -1;
    if (ckpt_ranks(r->context) > 1)
        return say_fail("--ranks: this program does not divide its clips among ranks");
    return stdit_make_model(r);
}

static int compile(struct video_run *r)
{
    return stdit_script_add(r->script, &r->data.vae, &r->data.shapes.shape->clips) ||
                   stdit_compile(r, NULL)
               ? -1
               : 0;
}

/* Plans all programs after the text encoder, with zeros as text. */
static int plan_all(struct job *j)
{
    struct video_run *r = j->run;
    struct ckpt_options *library = &r->options.library;
    const struct ckpt_options asked = *library;

    library->plan_only = true;
    library->machine_out = library->trace_out = NULL;
    int rc = encode_text(j);
    *library = asked;
    return rc ? -1 : stdit_plan_ahead(r, 1, compile);
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int check_outputs(const struct video_options *o)
{
    bool plan_only = o->library.plan_only;
    const struct ckpt_path all[] = {
        {"--load", o->train.load, CKPT_PATH_INPUT, 0},
        {"--vae", o->vae, CKPT_PATH_INPUT, 0},
        {"--text", o->text, CKPT_PATH_INPUT, 0},
        {"--prompts", o->prompts, CKPT_PATH_INPUT, 0},
        {"--noise", o->noise, CKPT_PATH_INPUT, 0},
        {"--latents", plan_only ? NULL : o->latents, CKPT_PATH_FILE, 0},
        {"--output", plan_only ? NULL : o->out, CKPT_PATH_DIRECTORY, 0},
    };

    return outputs_take(&o->library, all, sizeof all / sizeof *all);
}

static void introduce(const struct job *j)
{
    const struct video_run *r = j->run;
    const struct video_options *o = &r->options;
    const struct video_clips *c = &r->data.shapes.shape->clips;
    const char *title = o->text      ? o->text
                        : o->prompt  ? o->prompt
                        : o->prompts ? o->prompts
                                     : "null caption";

    stdit_note_caption(r);
    say_print("%lld clips of %lld frames of %lld x %lld, latents [%lld, %lld, %lld, %lld], %s\n",
              (long long)r->data.shapes.rows, (long long)c->frames, (long long)c->width,
              (long long)c->height, (long long)r->data.channels, (long long)c->latent_frames,
              (long long)c->rows, (long long)c->columns, title);
    if (j->script.loops > 1)
        printf("%lld segments each, of which all but the first begin with %lld frames of the one "
               "before: %lld frames\n",
               (long long)j->script.loops, (long long)stdit_script_shared(o, 1),
               (long long)stdit_script_frames(&r->data, o));
    fflush(stdout);
}

static int run(struct job *j)
{
    struct video_run *r = j->run;
    bool plan_only = r->options.library.plan_only;

    if (check_outputs(&r->options) || read_script(j))
        return -1;
    if (has_prompts(&r->options) && !plan_only && plan_all(j))
        return -1;
    if (encode_text(j) || open_model(j) || stdit_load(r))
        return -1;
    introduce(j);
    if (compile(r))
        return -1;
    ckpt_plan_print(r->sampling, stdout);
    if (plan_only)
        return 0;
    int rc = stdit_draw(r, &j->script);
    ckpt_profile_print(r->sampling, stdout);
    return rc;
}

static int go(struct video_run *r)
{
    struct job j = {.run = r};

    r->script = &j.script;
    int rc = run(&j);

    stdit_captions_close(&j.captions);
    stdit_script_close(&j.script);
    return rc;
}

int main(int argc, char **argv)
{
    static struct stdit model;
    static struct video_run r = {.stdit = &model};

    say_begin();
    int rc = stdit_sample_options_parse(&r.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&r);
    ckpt_close(r.context);
    stdit_close(&r);
    return say_finish(rc ? 1 : 0);
}
