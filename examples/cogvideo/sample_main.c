/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cogvideo-sample: from prompts or text features to latents of clips, and to videos.  Up to three
 * stages, the text encoder, the transformer and the decoder, come one after the other in a context
 * each, so the budget is that of one at a time.  All are planned before the first runs.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/sink.h"
#include "../common/memory.h"
#include "../common/say.h"
#include "../common/signals.h"
#include "../text/captions.h"
#include "ckpt_tools.h"
#include "sample.h"
#include "video.h"

const char say_program[] = "cogvideo-sample";

struct job {
    struct cogvideo_sampler sampler;
    struct prompts prompts;
    struct text_features features;
    struct cogvae_coder coder;
};

/* ---- text ---------------------------------------------------------------------------------- */

static bool has_prompts(const struct cogvideo_options *o)
{
    return o->prompt || o->prompts;
}

static struct text_captions captions(const struct cogvideo_options *o)
{
    return (struct text_captions){o->prompt ? "--prompt" : o->prompts,
                                  o->text_encoder ? o->text_encoder : o->model, o->tokenizer,
                                  &o->library};
}

static int read_prompts(struct job *j)
{
    const struct cogvideo_options *o = &j->sampler.run.options;
    struct text_captions c = captions(o);

    j->features =
        (struct text_features){.family = TEXT_COGVIDEOX,
                               .dtype = strcmp(o->dtype, "bf16") ? CKPT_F32 : CKPT_BF16,
                               .length = o->config.text_tokens};
    if (o->prompt ? prompts_add(&j->prompts, o->prompt, 1) : prompts_read(&j->prompts, o->prompts))
        return -1;
    j->sampler.clips = j->prompts.n;
    return text_captions_read(&c, &j->prompts, &j->features);
}

static int encode_text(struct job *j, bool show)
{
    const struct cogvideo_options *o = &j->sampler.run.options;
    struct text_captions c = captions(o);

    if (text_captions_encode(&c, &j->features, show))
        return -1;
    if (j->features.width != o->config.text_width)
        return say_fail("%s: features of %lld; this model reads %lld", c.encoder,
                        (long long)j->features.width, (long long)o->config.text_width);
    return 0;
}

static int run_text(struct job *j)
{
    struct text_features *f = &j->features;
    float **y = &j->sampler.text;

    if (encode_text(j, true))
        return -1;
    *y = MEMORY_FOR(sizeof **y, f->n, f->length, f->width);
    if (!*y)
        return say_fail("no memory for the features of %lld prompts", (long long)f->n);
    text_captions_rows(f, *y);
    text_features_close(f);
    return 0;
}

/* ---- latents ------------------------------------------------------------------------------- */

static int plan_latents(struct job *j, bool show)
{
    int rc = cogvideo_sampler_open(&j->sampler, show);

    cogvideo_sampler_close(&j->sampler);
    return rc;
}

static int run_latents(struct job *j)
{
    struct cogvideo_sampler *s = &j->sampler;
    const struct cogvideo_options *o = &s->run.options;
    int64_t clip = s->n / s->geometry.frames * cogvideo_sampler_frames(s);

    if (o->output) {
        s->drawn = MEMORY_FOR(sizeof *s->drawn, s->clips, clip);
        if (!s->drawn)
            return say_fail("no memory for %lld clips", (long long)s->clips);
    }
    int rc = cogvideo_sampler_open(s, true) || cogvideo_sampler_draw(s);
    cogvideo_sampler_close(s);
    return rc ? -1 : 0;
}

/* ---- videos -------------------------------------------------------------------------------- */

static int configure_decoder(struct job *j)
{
    const struct cogvideo_options *o = &j->sampler.run.options;
    struct cogvae_coder *k = &j->coder;

    k->options = (struct cogvae_coder_options)COGVAE_CODER_INIT;
    k->options.model = o->vae ? o->vae : o->model;
    k->options.dtype = o->dtype;
    if (cogvae_coder_config(k, true))
        return -1;
    const struct cogvae_config *c = &k->m.config;
    if (c->latent != o->config.out_channels || cogvae_factor(c) != 8)
        return say_fail("%s: this autoencoder has %lld channels for %lld x %lld pixels; the "
                        "transformer draws %lld for 8 x 8",
                        k->directory, (long long)c->latent, (long long)cogvae_factor(c),
                        (long long)cogvae_factor(c), (long long)o->config.out_channels);
    return 0;
}

static int open_decoder(struct job *j, bool show)
{
    struct cogvideo_sampler *s = &j->sampler;
    struct cogvae_coder *k = &j->coder;

    k->options.library = s->run.options.library;
    k->shown = !show;
    return cogvae_coder_open(k) || cogvae_coder_compile(k, cogvideo_sampler_frames(s),
                                                        s->geometry.height, s->geometry.width)
               ? -1
               : 0;
}

static int plan_decoder(struct job *j, bool show)
{
    int rc = open_decoder(j, show);

    cogvae_coder_close(&j->coder);
    return rc;
}

/* One clip to the file of its own. */
static int decode_clip(struct job *j, int64_t clip)
{
    struct cogvideo_sampler *s = &j->sampler;
    const struct cogvideo_options *o = &s->run.options;
    struct cogvae_latents l = {cogvideo_sampler_frames(s), s->geometry.height, s->geometry.width,
                               o->config.out_channels, NULL};
    char path[4096];

    if (!text_features_name(path, o->output, clip, s->clips))
        return say_fail("--output %s: the name is too long", o->output);
    int rc = cogvae_latents_from(&l, s->drawn + clip * l.frames * l.height * l.width * l.channels);
    if (!rc)
        rc = cogvae_video_write(&j->coder, &l, path, o->fps, false);
    free(l.z);
    return rc;
}

static int run_decoder(struct job *j)
{
    int rc = open_decoder(j, true);

    for (int64_t clip = 0; clip < j->sampler.clips && !rc; clip++)
        rc = decode_clip(j, clip);
    if (!rc)
        cogvae_coder_report(&j->coder);
    cogvae_coder_close(&j->coder);
    return rc;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int check_outputs(const struct cogvideo_options *o)
{
    const char *output = o->library.plan_only ? NULL : o->output;
    const struct ckpt_path all[] = {
        {"--load", o->train.load, CKPT_PATH_INPUT, 0},
        {"--text", o->text, CKPT_PATH_INPUT, 0},
        {"--prompts", o->prompts, CKPT_PATH_INPUT, 0},
        {"--tokenizer", o->tokenizer, CKPT_PATH_INPUT, 0},
        {"--negative", o->negative, CKPT_PATH_INPUT, 0},
        {"--image", o->image, CKPT_PATH_INPUT, 0},
        {"--noise", o->noise, CKPT_PATH_INPUT, 0},
        {"--out", o->library.plan_only ? NULL : o->out, CKPT_PATH_DIRECTORY, 0},
        {"--output", output,
         output && sink_is_directory(output) ? CKPT_PATH_DIRECTORY : CKPT_PATH_FILE, 0},
    };

    return ckpt_paths_check(&o->library, all, sizeof all / sizeof *all)
               ? say_fail("%s", ckpt_error(NULL))
               : 0;
}

/* A budget that a later stage cannot meet is refused here, before an earlier one takes its time. */
static int plan_all(struct job *j, bool show)
{
    struct cogvideo_options *o = &j->sampler.run.options;
    struct ckpt_options asked = o->library;

    o->library.plan_only = true;
    o->library.machine_out = o->library.trace_out = NULL;
    int rc = (has_prompts(o) && encode_text(j, show)) || plan_latents(j, show) ||
             (o->output && plan_decoder(j, show));
    o->library = asked;
    return rc ? -1 : 0;
}

static int go(struct job *j)
{
    struct cogvideo_sampler *s = &j->sampler;
    const struct cogvideo_options *o = &s->run.options;
    bool stages = has_prompts(o) || o->output, plan_only = o->library.plan_only;

    if (check_outputs(o) || cogvideo_sampler_size(s) || cogvideo_sampler_read(s) ||
        (has_prompts(o) && read_prompts(j)) || (o->output && configure_decoder(j)))
        return -1;
    if ((stages || plan_only) && plan_all(j, plan_only))
        return -1;
    if (plan_only)
        return 0;
    return (has_prompts(o) && run_text(j)) || run_latents(j) || (o->output && run_decoder(j)) ? -1
                                                                                            : 0;
}

int main(int argc, char **argv)
{
    struct job j = {.prompts = {.n = 0}};

    say_begin();
    signals_open();
    int rc = cogvideo_sample_options_parse(&j.sampler.run.options, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&j);
    cogvideo_sampler_free(&j.sampler);
    text_features_close(&j.features);
    prompts_free(&j.prompts);
    return say_finish(rc ? 1 : 0);
}
