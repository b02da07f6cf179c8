/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main loop of stdit-sample: a batch of clips, segment after segment.  Each segment is sampled,
 * decoded and written; frames that a later segment starts with are encoded again.
 */
#include <stdlib.h>
#include <string.h>
#include "../../common/memory.h"
#include "ckpt_tools.h"
#include "movie.h"
#include "sample.h"
#include "segments.h"

struct drawing {
    struct video_run *run;
    struct stdit_script *script;
    struct stdit_sampler sampler;
    struct stdit_movie *movie; /* of each clip in progress */
    uint8_t *rgb;              /* a decoded segment */
    int64_t first, n;          /* the clips in progress */
    int64_t loop;
    bool undecoded; /* frames of the last latents are missing */
};

/* ---- drawing ------------------------------------------------------------------------------- */

/* Unused places after the last clip start from zeros. */
static int begin_clip(struct drawing *g, int64_t i)
{
    struct video_run *r = g->run;
    struct stdit_sampler *s = &g->sampler;
    int64_t z = video_data_z(&r->data, &s->shape), frames = s->shape.geometry.frames;
    float *mask = s->mask + i * frames;

    if (i < g->n)
        return stdit_script_begin(g->script, &r->data, &r->options, g->loop, g->first + i,
                                  s->batch.z + i * z, mask);
    memset(s->batch.z + i * z, 0, (size_t)z * sizeof *s->batch.z);
    for (int64_t t = 0; t < frames; t++)
        mask[t] = 1;
    return 0;
}

static int draw(struct drawing *g)
{
    struct stdit_script *script = g->script;
    struct video_data *d = &g->run->data;
    int64_t row = g->loop * script->clips;
    struct stdit_sampler *s = &g->sampler;

    d->text_of = script->text ? script->text + row : NULL;
    if (stdit_sampler_text(s, g->first))
        return -1;
    for (int64_t i = 0; i < s->clips; i++)
        if (begin_clip(g, i))
            return -1;
    if (script->edit_noise)
        s->edit_noise = script->edit_noise + (row + g->first) * video_data_z(d, &s->shape);
    return stdit_sampler_draw(s);
}

/* ---- output -------------------------------------------------------------------------------- */

/* The reference of this segment for later segments; NULL: none. */
static struct stdit_reference *given_on(const struct drawing *g, int64_t clip)
{
    const struct stdit_guide *guide = &g->script->guide[clip];
    int64_t i = guide->files + g->loop;

    return i < guide->n && guide->reference[i].end ? &guide->reference[i] : NULL;
}

static int decode(struct drawing *g, int64_t i)
{
    struct video_data *d = &g->run->data;
    struct video_clips *c = &d->shapes.shape->clips;
    struct stdit_reference *r = given_on(g, g->first + i);
    const float *z = g->sampler.batch.z + i * video_data_z(d, d->shapes.shape);

    if (!r)
        return stdit_vae_decode(&d->vae, c, z, g->rgb, NULL);
    return stdit_vae_decode(&d->vae, c, z, g->rgb,
                            &(struct stdit_again){r->sample, r->first, r->end, r->z});
}

static int write_frames(struct drawing *g, int64_t i)
{
    struct video_run *r = g->run;
    const struct video_clips *c = &r->data.shapes.shape->clips;
    int64_t shared = stdit_script_shared(&r->options, g->loop);
    struct stdit_movie *m = &g->movie[i];

    if (!g->loop &&
        stdit_movie_open(m, r, 0, g->first + i, stdit_script_frames(&r->data, &r->options)))
        return -1;
    if (stdit_movie_put(m, g->rgb + shared * c->height * c->width * 3, c->frames - shared))
        return -1;
    return g->loop + 1 < g->script->loops ? 0 : stdit_movie_finish(m);
}

static int keep(struct drawing *g)
{
    struct stdit_script *s = g->script;
    int64_t z = video_data_z(&g->run->data, &g->sampler.shape);

    if (s->latents)
        memcpy(s->latents + (g->loop * s->clips + g->first) * z, g->sampler.batch.z,
               (size_t)(g->n * z) * sizeof *s->latents);
    g->undecoded = true;
    for (int64_t i = 0; i < g->n; i++)
        if (decode(g, i) || write_frames(g, i))
            return -1;
    g->undecoded = false;
    return 0;
}

/* ---- all of it ----------------------------------------------------------------------------- */

static int draw_clips(struct drawing *g)
{
    int rc = 0;

    memset(g->movie, 0, (size_t)g->sampler.clips * sizeof *g->movie);
    for (g->loop = 0; g->loop < g->script->loops && !rc; g->loop++)
        rc = draw(g) || keep(g) ? -1 : 0;
    for (int64_t i = 0; i < g->n; i++)
        stdit_movie_close(&g->movie[i]);
    return rc;
}

static int draw_all(struct drawing *g)
{
    const struct stdit_script *s = g->script;
    int64_t groups = (s->clips + s->at_once - 1) / s->at_once;
    int64_t steps = groups * s->loops * g->run->options.sample_steps;
    int rc = 0;

    g->sampler.progress = ckpt_progress_open(stderr, "sample", steps);
    for (g->first = 0; g->first < s->clips && !rc; g->first += s->at_once) {
        int64_t left = s->clips - g->first;
        g->n = left < s->at_once ? left : s->at_once;
        rc = draw_clips(g);
    }
    ckpt_progress_close(g->sampler.progress);
    g->run->data.text_of = NULL; /* the script owns it */
    return rc;
}

int stdit_draw(struct video_run *r, struct stdit_script *script)
{
    const struct video_clips *c = &r->data.shapes.shape->clips;
    struct drawing g = {.run = r, .script = script};
    int rc = stdit_sampler_open(&g.sampler, r, script->at_once, 0);

    g.movie = calloc((size_t)script->at_once, sizeof *g.movie);
    g.rgb = MEMORY_FOR(3, c->frames, c->height, c->width);
    if (!rc && (!g.movie || !g.rgb))
        rc = say_fail("no memory for a clip");
    if (!rc)
        rc = stdit_script_encode(script, &r->data.vae) || draw_all(&g);
    if (rc && g.undecoded && script->latents &&
        !stdit_script_write(script, &r->data, r->options.latents))
        say_note("%s: the latents up to those that could not be decoded", r->options.latents);
    else if (!rc && script->latents)
        rc = stdit_script_write(script, &r->data, r->options.latents);
    if (!rc)
        stdit_movie_report(r, 0);
    stdit_sampler_close(&g.sampler);
    free(g.movie);
    free(g.rgb);
    if (rc)
        return -1;
    vae_coder_report(r->data.vae.coder[STDIT_DECODE]);
    return 0;
}
