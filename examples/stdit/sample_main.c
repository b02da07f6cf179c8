/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stdit-sample: from text features, or from none, to videos: the diffusion model draws latents, the
 * autoencoder decodes them, two programs of one context inside one memory budget.
 */
#include <stdlib.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "caption.h"
#include "run.h"

const char say_program[] = "stdit-sample";

/* The rows of the text are the clips. */
static int describe(struct stdit_data *d, struct stdit_options *o)
{
    int64_t frames = o->frames ? o->frames : VAE_CHUNK;

    bool prompts = o->prompt || o->prompts;

    if (stdit_data_shape(d, o, frames) ||
        (prompts ? stdit_data_prompts(d, o) : stdit_data_caption(d, o)))
        return -1;
    o->train.batch = d->rows = d->shape->batch = d->text_rows;
    d->fps = malloc((size_t)d->rows * sizeof *d->fps);
    if (!d->fps)
        return say_fail("no memory for %lld clips", (long long)d->rows);
    for (int64_t i = 0; i < d->rows; i++)
        d->fps[i] = frames == 1 ? 120 : (float)o->fps;
    return stdit_data_agree(d, o);
}

static int check_outputs(const struct stdit_options *o)
{
    const struct ckpt_path all[] = {
        {"--load", o->train.load, CKPT_PATH_INPUT, 0},
        {"--vae", o->vae, CKPT_PATH_INPUT, 0},
        {"--text", o->text, CKPT_PATH_INPUT, 0},
        {"--prompts", o->prompts, CKPT_PATH_INPUT, 0},
        {"--out", o->library.plan_only ? NULL : o->out, CKPT_PATH_DIRECTORY, 0},
    };

    return ckpt_paths_check(&o->library, all, sizeof all / sizeof *all)
               ? say_fail("%s", ckpt_error(NULL))
               : 0;
}

static int go(struct stdit_run *r)
{
    struct stdit_options *o = &r->options;

    if (check_outputs(o) || describe(&r->data, o))
        return -1;
    if (ckpt_open(&r->context, &o->library))
        return say_fail("%s", ckpt_error(NULL));
    if (ckpt_ranks(r->context) > 1)
        return say_fail("--ranks: this program does not divide its clips among ranks");
    if (stdit_make_model(r) || stdit_load(r))
        return -1;
    const struct stdit_clips *c = &r->data.shape->clips;
    const char *title = o->text      ? o->text
                        : o->prompt  ? o->prompt
                        : o->prompts ? o->prompts
                                     : "null caption";
    say_print("%lld clips of %lld frames of %lld x %lld, latents [%lld, %lld, %lld, %lld], %s\n",
              (long long)r->data.rows, (long long)c->frames, (long long)c->width,
              (long long)c->height, (long long)r->data.channels, (long long)c->latent_frames,
              (long long)c->rows, (long long)c->columns, title);
    fflush(stdout);
    if (stdit_compile(r, NULL))
        return -1;
    ckpt_plan_print(r->sampling, stdout);
    if (o->library.plan_only)
        return 0;
    int rc = stdit_sample(r);
    ckpt_profile_print(r->sampling, stdout);
    return rc;
}

int main(int argc, char **argv)
{
    return stdit_main(argc, argv, stdit_sample_options_parse, go);
}
