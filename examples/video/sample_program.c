/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that samples (programs.h): from prompts or text features to latents of clips, and to
 * videos.  Up to four stages, the encoders of text and of a picture, the transformer and the
 * decoder, run one after the other, each in its own context, so each stage has the whole budget.
 * All stages are planned before the first one runs.
 *
 * A pair of models, for high and for low noise levels, is two stages: all clips take their steps
 * with the first model, then with the second, so that only one is in memory, and each is loaded
 * once.  Both have the same plan.
 */
#include <stdlib.h>
#include <string.h>
#include "../common/sink.h"
#include "../common/memory.h"
#include "../common/outputs.h"
#include "../common/say.h"
#include "ckpt_tools.h"
#include "sample.h"
#include "stages.h"
#include "movie.h"
#include "programs.h"

struct job {
    struct video_run run;
    struct video_sampler sampler;
    struct video_prompts prompts;
    struct video_coder coder;
};

/* ---- text ---------------------------------------------------------------------------------- */

static int read_prompts(struct job *j)
{
    if (video_prompts_read(&j->prompts, &j->run.options))
        return -1;
    j->sampler.clips = j->prompts.clips;
    return 0;
}

static int run_text(struct job *j)
{
    return video_prompts_encode(&j->prompts, &j->run.options, true) ||
                   video_prompts_take(&j->prompts, &j->sampler.text, &j->sampler.negative)
               ? -1
               : 0;
}

/* ---- latents ------------------------------------------------------------------------------- */

static int plan_latents(struct job *j, bool show)
{
    int rc = video_sampler_open(&j->sampler, show);

    video_sampler_close(&j->sampler);
    return rc;
}

static int run_latents(struct job *j)
{
    struct video_sampler *s = &j->sampler;
    const struct video_options *o = &j->run.options;

    if (o->output) {
        s->drawn = MEMORY_FOR(sizeof *s->drawn, s->clips, video_sampler_clip(s));
        if (!s->drawn)
            return say_fail("no memory for %lld clips", (long long)s->clips);
    }
    int rc = video_sampler_open(s, true) || video_sampler_draw(s);
    video_sampler_close(s);
    if (!rc && s->end < o->sample_steps) {
        rc = video_sampler_next(s) || video_sampler_open(s, true) || video_sampler_draw(s);
        video_sampler_close(s);
    }
    return rc ? -1 : 0;
}

/* ---- videos -------------------------------------------------------------------------------- */

static int open_decoder(struct job *j, bool show)
{
    struct video_sampler *s = &j->sampler;
    struct video_coder *k = &j->coder;

    if (video_coder_configure(k, &j->run.options, true))
        return -1;
    k->options.library = j->run.options.library;
    k->options.library.runs = s->clips;
    k->shown = !show;
    return video_coder_open(k) || video_coder_compile(k, video_sampler_frames(s),
                                                      s->geometry.height, s->geometry.width)
               ? -1
               : 0;
}

/* Before the first stage: the autoencoder is the one of this model. */
static int check_decoder(struct job *j)
{
    int rc = video_coder_configure(&j->coder, &j->run.options, true);

    video_coder_close(&j->coder);
    return rc;
}

static int plan_decoder(struct job *j, bool show)
{
    int rc = open_decoder(j, show);

    video_coder_close(&j->coder);
    return rc;
}

/* Decodes one clip into its own file. */
static int decode_clip(struct job *j, int64_t clip)
{
    struct video_sampler *s = &j->sampler;
    const struct video_options *o = &j->run.options;
    struct video_latents l = {video_sampler_frames(s), s->geometry.height, s->geometry.width,
                              o->net.sizes.channels, NULL};
    char path[4096];

    if (!text_features_name(path, o->output, clip, s->clips))
        return say_fail("--output %s: the name is too long", o->output);
    int rc = video_latents_from(&l, s->drawn + clip * video_sampler_clip(s));
    if (!rc)
        rc = movie_write(&j->coder, &l, path, o->fps > 0 ? o->fps : j->coder.sizes.fps, false);
    free(l.z);
    return rc;
}

/* Writes the latents of the clips that could not be decoded, beside their videos: they took most of
 * the time. */
static void keep_latents(struct job *j, int64_t clip)
{
    const struct video_sampler *s = &j->sampler;
    char video[4096], path[sizeof video + 32];

    for (; clip < s->clips; clip++) {
        if (!text_features_name(video, j->run.options.output, clip, s->clips))
            return;
        snprintf(path, sizeof path, "%s.latents.safetensors", video);
        if (video_sampler_write(s, s->drawn + clip * video_sampler_clip(s), path))
            return;
        say_note("%s: the latents of a clip that was not decoded, for %s-decode", path,
                 j->run.options.net.model->programs);
    }
}

static int run_decoder(struct job *j)
{
    int rc = open_decoder(j, true);
    int64_t clip = 0;

    for (; clip < j->sampler.clips && !rc; clip += !rc)
        rc = decode_clip(j, clip);
    if (rc)
        keep_latents(j, clip);
    if (!rc)
        video_coder_report(&j->coder);
    video_coder_close(&j->coder);
    return rc;
}

/* ---- main ---------------------------------------------------------------------------------- */

static int check_outputs(const struct video_options *o)
{
    const char *output = o->library.plan_only ? NULL : o->output;
    const struct ckpt_path all[] = {
        {"--load", o->train.load, CKPT_PATH_INPUT, 0},
        {"--load-low", o->load[1], CKPT_PATH_INPUT, 0},
        {"--text", o->sample_text, CKPT_PATH_INPUT, 0},
        {"--prompts", o->sample_prompts, CKPT_PATH_INPUT, 0},
        {"--tokenizer", o->tokenizer, CKPT_PATH_INPUT, 0},
        {"--negative", o->negative, CKPT_PATH_INPUT, 0},
        {"--image", o->image, CKPT_PATH_INPUT, 0},
        {"--noise", o->noise, CKPT_PATH_INPUT, 0},
        {"--out", o->library.plan_only ? NULL : o->out, CKPT_PATH_DIRECTORY, 0},
        {"--output", output,
         output && sink_is_directory(output) ? CKPT_PATH_DIRECTORY : CKPT_PATH_FILE, 0},
    };

    return outputs_take(&o->library, all, sizeof all / sizeof *all) ||
                   (output && sink_check(output))
               ? -1
               : 0;
}

/* Plans all stages, so that a budget too small for a later stage is refused before an earlier stage
 * runs. */
static int plan_all(struct job *j, bool show)
{
    struct video_options *o = &j->run.options;
    struct ckpt_options asked = o->library;

    o->library.plan_only = true;
    o->library.machine_out = o->library.trace_out = NULL;
    int rc = (video_has_prompts(o) && video_prompts_encode(&j->prompts, o, show)) ||
             (video_has_picture(o) && video_picture_encode(o, show, NULL, NULL)) ||
             plan_latents(j, show) || (o->output && plan_decoder(j, show));
    o->library = asked;
    return rc ? -1 : 0;
}

static int go(struct job *j)
{
    struct video_sampler *s = &j->sampler;
    const struct video_options *o = &j->run.options;
    bool stages = video_has_prompts(o) || video_has_picture(o) || o->output,
         plan_only = o->library.plan_only;

    if (check_outputs(o) || video_sampler_size(s) || video_sampler_read(s) ||
        (video_has_prompts(o) && read_prompts(j)) || (o->output && check_decoder(j)))
        return -1;
    if ((stages || plan_only) && plan_all(j, plan_only))
        return -1;
    if (plan_only)
        return 0;
    return (video_has_prompts(o) && run_text(j)) ||
                   (video_has_picture(o) && video_picture_encode(o, true, &s->image, &s->sight)) ||
                   run_latents(j) || (o->output && run_decoder(j))
               ? -1
               : 0;
}

int video_sample(const struct video_model *m, int argc, char **argv)
{
    static struct job j = {.sampler = {.run = &j.run}};

    say_begin();
    int rc = video_sample_options_parse(&j.run.options, m, argc, argv);

    if (rc)
        return rc > 0 ? 0 : 2;
    rc = go(&j);
    video_sampler_free(&j.sampler);
    video_prompts_close(&j.prompts);
    adapter_file_close(&j.run.options.adapters.file);
    m->close(&j.run.options.net);
    return say_finish(rc ? 1 : 0);
}
