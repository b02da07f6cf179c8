/* SPDX-License-Identifier: Apache-2.0 */
/* The clips that stdit-sample makes: see script.h. */
#include <stdlib.h>
#include <string.h>
#include "../../common/memory.h"
#include "../../common/tensors.h"
#include "caption.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "prompt.h"
#include "script.h"

static int64_t rows_of(const struct stdit_script *s)
{
    return s->loops * s->clips;
}

/* ---- guides -------------------------------------------------------------------------------- */

/* Each segment but the first starts with the end of the previous one. */
static int add_conditions(struct stdit_guide *g, const struct video_options *o)
{
    for (int64_t loop = 1; loop < o->loop; loop++) {
        const struct stdit_strategy one = {loop, g->files + loop - 1, -o->condition_frames,
                                           0,    o->condition_frames, o->condition_edit};
        if (stdit_strategies_add(&g->strategies, &one))
            return -1;
    }
    return 0;
}

/* p NULL: the clip has no prompt. */
static int open_guide(struct stdit_guide *g, const struct stdit_prompt *p, int64_t clip,
                      const struct video_data *d, const struct video_options *o)
{
    const char *strategy = p && p->strategy ? p->strategy : o->mask_strategy;
    char what[64] = "--mask-strategy";

    if (p && p->strategy)
        snprintf(what, sizeof what, "prompt %lld: mask_strategy", (long long)clip + 1);
    if (stdit_references_open(g, p && p->reference ? p->reference : o->reference, o->loop, d) ||
        stdit_strategies_read(&g->strategies, what, strategy))
        return -1;
    if (g->files && !g->strategies.n)
        return say_fail("%s: %s is given without a mask strategy, so it would not be used",
                        p && p->reference ? "reference_path" : "--reference", g->reference[0].path);
    return add_conditions(g, o) || stdit_references_use(g, what, d, o) ? -1 : 0;
}

/* The clip and the index of a reference in it determine the draws of latents; other clips have no
 * effect. */
static void number_references(struct stdit_script *s)
{
    for (int64_t clip = 0; clip < s->clips; clip++)
        for (int64_t i = 0; i < s->guide[clip].n; i++)
            s->guide[clip].reference[i].sample = clip * (1 << 16) + i;
}

bool stdit_script_guides(const struct stdit_script *s)
{
    for (int64_t clip = 0; clip < s->clips; clip++)
        if (s->guide[clip].strategies.n)
            return true;
    return false;
}

/* ---- prompts ------------------------------------------------------------------------------- */

/* Completes the texts of a prompt with the parts that Open-Sora appends to each. */
static int complete(struct stdit_prompt *p, const struct video_options *o)
{
    for (int64_t i = 0; i < p->n; i++) {
        char *text = stdit_prompt_text(o, p->text[i]);
        if (!text)
            return say_fail("no memory for a prompt");
        free(p->text[i]);
        p->text[i] = text;
    }
    return 0;
}

static int take_texts(struct stdit_script *s, const struct stdit_prompt *prompt)
{
    const char **text = MEMORY_FOR(sizeof *text, rows_of(s));

    s->text = MEMORY_FOR(sizeof *s->text, rows_of(s));
    if (!text || !s->text) {
        free(text);
        return say_fail("no memory for the texts of %lld segments", (long long)rows_of(s));
    }
    for (int64_t row = 0; row < rows_of(s); row++) {
        const struct stdit_prompt *p = &prompt[row % s->clips];
        text[row] = p->text[stdit_prompt_text_of(p, row / s->clips)];
    }
    int rc = prompts_distinct(&s->texts, text, rows_of(s), s->text);
    for (int64_t i = 0; i < s->texts.n; i++) /* lines of prompts, whatever the segment */
        s->texts.line[i] = (s->texts.line[i] - 1) % s->clips + 1;
    free(text);
    return rc;
}

static int read_prompts(struct stdit_script *s, const struct prompts *raw,
                        struct stdit_prompt *prompt, const struct video_data *d,
                        const struct video_options *o)
{
    for (int64_t i = 0; i < s->clips; i++)
        if (stdit_prompt_read(&prompt[i], raw->text[i], i + 1) || complete(&prompt[i], o) ||
            open_guide(&s->guide[i], &prompt[i], i, d, o))
            return -1;
    return take_texts(s, prompt);
}

static int open_prompts(struct stdit_script *s, const struct prompts *raw,
                        const struct video_data *d, const struct video_options *o)
{
    struct stdit_prompt *prompt = calloc((size_t)s->clips, sizeof *prompt);
    int rc = prompt ? read_prompts(s, raw, prompt, d, o)
                    : say_fail("no memory for %lld prompts", (long long)s->clips);

    for (int64_t i = 0; prompt && i < s->clips; i++)
        stdit_prompt_free(&prompt[i]);
    free(prompt);
    return rc;
}

static int open_clips(struct stdit_script *s, const struct prompts *raw, const struct video_data *d,
                      const struct video_options *o)
{
    s->clips = raw->n ? raw->n : d->text_rows;
    s->guide = calloc((size_t)s->clips, sizeof *s->guide);
    if (!s->guide)
        return say_fail("no memory for %lld clips", (long long)s->clips);
    if (raw->n)
        return open_prompts(s, raw, d, o);
    for (int64_t i = 0; i < s->clips; i++)
        if (open_guide(&s->guide[i], NULL, i, d, o))
            return -1;
    return 0;
}

/* ---- noise --------------------------------------------------------------------------------- */

static bool is_edited(const struct stdit_script *s)
{
    for (int64_t clip = 0; clip < s->clips; clip++) {
        const struct stdit_strategies *all = &s->guide[clip].strategies;
        for (int64_t i = 0; i < all->n; i++)
            if (all->list[i].edit > 0 && all->list[i].edit < 1)
                return true;
    }
    return false;
}

/* Draws noise for all rows; the number of a segment alone determines its noise. */
static float *draw(const struct stdit_script *s, const struct video_data *d, uint64_t seed,
                   int stream)
{
    int64_t n = s->clips * video_data_z(d, d->shapes.shape);
    float *noise = MEMORY_FOR(sizeof *noise, s->loops, n);

    for (int64_t loop = 0; noise && loop < s->loops; loop++)
        ckpt_fill_normal(seed, (uint64_t)loop, (uint64_t)stream, noise + loop * n, n);
    if (!noise)
        say_fail("no memory for the noise of %lld segments", (long long)rows_of(s));
    return noise;
}

/* A tensor of --noise; NULL after a sentence. */
static float *read_noise(const struct stdit_script *s, const struct video_data *d, ckpt_file *f,
                         const char *path, const char *name)
{
    const struct video_geometry *g = &d->shapes.shape->geometry;

    return tensor_read(f, path, name, 5,
                       (int64_t[]){rows_of(s), d->channels, g->frames, g->height, g->width});
}

static int open_noise(struct stdit_script *s, const struct video_data *d,
                      const struct video_options *o)
{
    uint64_t seed = (uint64_t)o->sample_seed;
    bool edited = is_edited(s);
    ckpt_file *f = NULL;

    if (o->noise && ckpt_file_open(&f, o->noise))
        return say_fail("%s", ckpt_error(NULL));
    bool has = f && ckpt_file_find(f, "edit_noise") >= 0;
    s->noise = f ? read_noise(s, d, f, o->noise, "noise") : draw(s, d, seed, STREAM_SAMPLE);
    if (s->noise && edited)
        s->edit_noise =
            has ? read_noise(s, d, f, o->noise, "edit_noise") : draw(s, d, seed, STREAM_EDIT);
    ckpt_file_close(f);
    return s->noise && (s->edit_noise || !edited) ? 0 : -1;
}

static int open_latents(struct stdit_script *s, const struct video_data *d)
{
    int64_t z = video_data_z(d, d->shapes.shape);

    s->start = MEMORY_FOR(sizeof *s->start, rows_of(s), z);
    s->latents = MEMORY_FOR(sizeof *s->latents, rows_of(s), z);
    s->mask = MEMORY_FOR(sizeof *s->mask, rows_of(s), d->shapes.shape->geometry.frames);
    return s->start && s->latents && s->mask
               ? 0
               : say_fail("no memory for the latents of %lld segments", (long long)rows_of(s));
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int check_loop(const struct video_data *d, const struct video_options *o)
{
    int64_t frames = d->shapes.shape->geometry.frames;

    if (o->loop == 1 || o->condition_frames < frames)
        return 0;
    return say_fail("--loop %lld: a segment of %lld frames has %lld latent frames, and "
                    "--condition-frames %lld leaves none of them to sample",
                    (long long)o->loop, (long long)d->shapes.shape->clips.frames, (long long)frames,
                    (long long)o->condition_frames);
}

int stdit_script_open(struct stdit_script *s, struct video_data *d, const struct video_options *o)
{
    struct prompts raw = {.n = 0};
    int rc = check_loop(d, o);

    s->loops = o->loop;
    if (!rc && (o->prompt || o->prompts))
        rc = o->prompt ? prompts_add(&raw, o->prompt, 1) : prompts_read(&raw, o->prompts);
    if (!rc)
        rc = open_clips(s, &raw, d, o);
    prompts_free(&raw);
    if (rc)
        return -1;
    number_references(s);
    int64_t most = o->library.micro_batch > 0 ? o->library.micro_batch : s->clips;
    s->at_once = most < s->clips ? most : s->clips;
    return open_noise(s, d, o) || (o->latents && open_latents(s, d)) ? -1 : 0;
}

void stdit_script_close(struct stdit_script *s)
{
    for (int64_t i = 0; s->guide && i < s->clips; i++)
        stdit_guide_free(&s->guide[i]);
    free(s->guide);
    free(s->text);
    free(s->noise);
    free(s->edit_noise);
    free(s->start);
    free(s->mask);
    free(s->latents);
    prompts_free(&s->texts);
}

/* ---- references ---------------------------------------------------------------------------- */

int stdit_script_add(struct stdit_script *s, struct stdit_vae *v, struct video_clips *clips)
{
    int rc = 0;

    for (int64_t clip = 0; clip < s->clips && !rc; clip++)
        for (int64_t i = 0; i < s->guide[clip].n && !rc; i++) {
            struct stdit_reference *r = &s->guide[clip].reference[i];
            if (r->end && !r->latents)
                rc = stdit_vae_add(v, r->path ? &r->clips : clips, STDIT_ENCODE);
        }
    return rc;
}

int stdit_script_encode(struct stdit_script *s, struct stdit_vae *v)
{
    int rc = 0;

    for (int64_t clip = 0; clip < s->clips && !rc; clip++)
        for (int64_t i = 0; i < s->guide[clip].files && !rc; i++) {
            struct stdit_reference *r = &s->guide[clip].reference[i];
            rc = r->end ? stdit_reference_encode(r, v) : 0;
        }
    return rc;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Copies latent frames of a reference to their place in z. */
static void give(const struct video_data *d, const struct stdit_reference *r,
                 const struct stdit_span *span, float *z)
{
    const struct video_geometry *g = &d->shapes.shape->geometry;
    int64_t plane = g->height * g->width, n = span->length * plane;

    for (int64_t c = 0; c < d->channels; c++)
        memcpy(z + (c * g->frames + span->to) * plane,
               r->z + (c * r->clips.latent_frames + span->from) * plane, (size_t)n * sizeof *z);
}

int stdit_script_begin(struct stdit_script *s, const struct video_data *d,
                       const struct video_options *o, int64_t loop, int64_t clip, float *z,
                       float *mask)
{
    const struct stdit_guide *g = &s->guide[clip];
    int64_t row = loop * s->clips + clip, n = video_data_z(d, d->shapes.shape);
    int64_t frames = d->shapes.shape->geometry.frames;
    struct stdit_span span;

    memcpy(z, s->noise + row * n, (size_t)n * sizeof *z);
    for (int64_t t = 0; t < frames; t++)
        mask[t] = 1;
    for (int64_t i = 0; i < g->strategies.n; i++) {
        const struct stdit_strategy *one = &g->strategies.list[i];
        const struct stdit_reference *r = &g->reference[one->reference];
        if (one->loop != loop)
            continue;
        if (stdit_strategy_place(one, "--mask-strategy", r->clips.latent_frames, frames, o->align,
                                 &span))
            return -1;
        give(d, r, &span, z);
        for (int64_t t = 0; t < span.length; t++)
            mask[span.to + t] = (float)one->edit;
    }
    if (!s->latents)
        return 0;
    memcpy(s->start + row * n, z, (size_t)n * sizeof *z);
    memcpy(s->mask + row * frames, mask, (size_t)frames * sizeof *mask);
    return 0;
}

int stdit_script_write(const struct stdit_script *s, const struct video_data *d, const char *path)
{
    const struct video_geometry *g = &d->shapes.shape->geometry;
    const int64_t shape[] = {rows_of(s), d->channels, g->frames, g->height, g->width};
    const int64_t frames[] = {rows_of(s), g->frames};
    const struct tensor all[] = {{"latents", CKPT_F32, 5, shape, s->latents},
                                 {"start", CKPT_F32, 5, shape, s->start},
                                 {"mask", CKPT_F32, 2, frames, s->mask}};

    if (tensors_write(path, 3, all))
        return -1;
    say_print("latents: %s\n", path);
    return 0;
}

/* ---- segments ------------------------------------------------------------------------------ */

int64_t stdit_script_shared(const struct video_options *o, int64_t loop)
{
    return loop ? o->condition_frames / 5 * VAE_CHUNK : 0;
}

int64_t stdit_script_frames(const struct video_data *d, const struct video_options *o)
{
    int64_t frames = d->shapes.shape->clips.frames;

    return frames + (o->loop - 1) * (frames - stdit_script_shared(o, 1));
}
