/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clips sampled during training: see watch.h.  Prompts are encoded once, before training.
 * Sampler and decoder share the context and the budget of the training.
 */
#include "watch.h"
#include <stdlib.h>
#include <string.h>
#include "../common/average.h"
#include "../common/directory.h"
#include "../common/memory.h"
#include "../common/samples.h"
#include "../common/say.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "movie.h"

enum { PATH = 4096 };

static struct video_run *run_of(const struct video_watch *w)
{
    return w->sampler.run;
}

/* ---- sampling settings --------------------------------------------------------------------- */

/* The plan, machine and trace files belong to the training, so the encoder runs without them. */
static int encode_prompts(struct video_watch *w, struct video_options *o)
{
    struct ckpt_options asked = o->library;

    o->library.plan_in = o->library.machine_out = o->library.trace_out = NULL;
    int rc = video_prompts_encode(&w->prompts, o, false);
    o->library = asked;
    return rc;
}

/* With --plan-only the encoder only plans, and the features stay zero. */
int video_watch_encode(struct video_watch *w, struct video_run *r)
{
    struct video_options *o = &r->options;

    w->sampler.run = r;
    w->draws = o->sample_text || video_has_prompts(o);
    if (!video_has_prompts(o))
        return 0;
    if (video_prompts_read(&w->prompts, o) || encode_prompts(w, o))
        return -1;
    w->sampler.clips = w->prompts.clips;
    return video_prompts_take(&w->prompts, &w->sampler.text, &w->sampler.negative);
}

/* A model without an autoencoder gives latents, unless an autoencoder was requested. */
static int open_decoder(struct video_watch *w)
{
    struct video_run *r = run_of(w);
    struct video_coder *k = &w->decoder;
    char path[PATH];

    autoencoder_directory(path, sizeof path, r->options.model);
    w->decodes = r->options.vae || strcmp(path, r->options.model);
    if (!w->decodes) {
        say_print("samples: latents only: there is no vae/ in %s; give one by --vae DIR\n",
                  r->options.model);
        return 0;
    }
    if (video_coder_configure(k, &r->options, true))
        return -1;
    k->options.library = r->options.library;
    k->shown = true;
    return video_coder_join(k, r->context);
}

int video_watch_check(const struct video_watch *w, const char *from)
{
    ckpt *c = run_of(w)->context;
    ckpt_file *f;
    bool has = true;

    if (!w->decodes || !from || ckpt_file_open(&f, from))
        return 0; /* resume reports the error */
    for (int i = 0; i < ckpt_param_count(c) && has; i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        if (ckpt_param_info(c, ckpt_param_at(c, i), &info) ||
            !autoencoder_owns(w->decoder.kind, info.name))
            continue;
        has = resume_knows(f, info.name);
    }
    ckpt_file_close(f);
    return has ? 0
               : say_fail("%s: its run drew no videos, so it has no decoder: leave the prompts of "
                          "samples out and draw from what --save wrote; for a new run with them "
                          "give another --save-state",
                          from);
}

int video_watch_open(struct video_watch *w)
{
    struct video_sampler *s = &w->sampler;
    const struct video_run *r = s->run;
    const struct video_data *d = &r->data;

    if (!w->draws)
        return 0;
    if (s->text && d->shapes.shape->geometry.tokens != r->options.net.sizes.text_tokens)
        return say_fail("the text of the data has %lld tokens a prompt, the encoder makes %lld: "
                        "encode prompts with text-encode --length and give --sample-text",
                        (long long)d->shapes.shape->geometry.tokens,
                        (long long)r->options.net.sizes.text_tokens);
    video_sampler_shape(s, &d->shapes.shape->geometry, d->repeats);
    if (video_sampler_read(s))
        return -1;
    s->drawn = MEMORY_FOR(sizeof *s->drawn, s->clips, video_sampler_clip(s));
    return s->drawn ? open_decoder(w) : say_fail("no memory for %lld clips", (long long)s->clips);
}

void video_watch_close(struct video_watch *w)
{
    video_sampler_free(&w->sampler);
    video_prompts_close(&w->prompts);
    if (w->decodes)
        video_coder_close(&w->decoder);
}

/* ---- programs ------------------------------------------------------------------------------ */

static int compile_decoder(struct video_watch *w, bool least)
{
    const struct video_sampler *s = &w->sampler;

    return w->decodes ? video_coder_compile_again(&w->decoder, video_sampler_frames(s),
                                                  s->geometry.height, s->geometry.width, least)
                      : 0;
}

int video_watch_compile_first(struct video_watch *w)
{
    return compile_decoder(w, true);
}

int video_watch_compile(struct video_watch *w)
{
    if (!w->draws)
        return 0;
    return video_sampler_compile(&w->sampler) || compile_decoder(w, false) ? -1 : 0;
}

/* ---- drawing ------------------------------------------------------------------------------- */

/* Writes a video, and some of its frames side by side.  All ranks decode; the first one writes. */
static int write_video(struct video_watch *w, const float *latents, const struct sample_name *name)
{
    struct video_run *r = run_of(w);
    const struct video_sampler *s = &w->sampler;
    int64_t factor = w->decoder.sizes.factor;
    struct video_latents l = {video_sampler_frames(s), s->geometry.height, s->geometry.width,
                              r->options.net.sizes.channels, NULL};
    struct sample_clip c = {.frames = video_coder_clip_out(&w->decoder),
                            .height = l.height * factor,
                            .width = l.width * factor,
                            .fps = r->options.fps > 0 ? r->options.fps : w->decoder.sizes.fps};
    uint8_t *rgb = MEMORY_FOR(3, c.frames, c.height, c.width);
    char path[PATH];
    int rc = rgb ? video_latents_from(&l, latents) : say_fail("no memory for a clip");

    if (!rc)
        rc = movie_frames(&w->decoder, &l, rgb);
    c.rgb = rgb;
    w->ending = sample_ending(&c);
    snprintf(path, sizeof path, "%s/%s%s", r->options.out, name->file, w->ending);
    if (!rc && !ckpt_rank(r->context))
        rc = sample_write(&c, path) || sample_write_strip(&c, r->options.out, name, &r->log);
    free(l.z);
    free(rgb);
    return rc ? -1 : 0;
}

static int write_clip(struct video_watch *w, int64_t clip, int64_t step)
{
    const struct video_sampler *s = &w->sampler;
    const struct video_run *r = s->run;
    const float *latents = s->drawn + clip * video_sampler_clip(s);
    struct sample_name name = sample_name(step, clip);
    char path[PATH];

    if (snprintf(path, sizeof path, "%s/%s.safetensors", r->options.out, name.file) >= PATH)
        return say_fail("--output %s: the name is too long", r->options.out);
    if (!ckpt_rank(r->context) &&
        (directory_make(r->options.out) || video_sampler_write(s, latents, path)))
        return -1;
    return w->decodes ? write_video(w, latents, &name) : 0;
}

static int draw(struct video_watch *w, int64_t step)
{
    struct video_sampler *s = &w->sampler;

    s->step = step;
    int rc = video_sampler_draw(s);
    for (int64_t clip = 0; clip < s->clips && !rc && !s->stopped; clip++)
        rc = write_clip(w, clip, step);
    return rc;
}

static void report(const struct video_watch *w, int64_t step)
{
    const char *out = run_of(w)->options.out;
    struct sample_name name = sample_name(step, 0);

    if (w->sampler.stopped)
        say_print("step %lld: not sampled: the run was asked to stop\n", (long long)step);
    else if (w->decodes)
        say_print("step %lld: sampled: %s/%s%s, its latents: %s/%s.safetensors, some frames side "
                  "by side: %s/%s.png\n",
                  (long long)step, out, name.file, w->ending, out, name.file, out, name.file);
    else
        say_print("step %lld: sampled: %s/%s.safetensors\n", (long long)step, out, name.file);
}

int video_watch_draw(void *run, int64_t step)
{
    struct video_run *r = run;
    struct video_watch *w = r->watch;
    bool average = r->options.sample_ema;

    if (average && average_swap(r->context))
        return -1;
    int rc = draw(w, step);
    if (average && average_swap(r->context))
        return -1;
    if (!rc)
        report(w, step);
    return rc;
}
