/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures, videos and latents that provide given frames of a clip: see script.h. */
#include <stdlib.h>
#include <string.h>
#include "../../common/memory.h"
#include "../../common/video.h"
#include "../vae/latents.h"
#include "script.h"

/* ---- inspecting files ---------------------------------------------------------------------- */

static bool is_latents(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && !strcmp(dot, ".safetensors");
}

static int look_at_latents(struct stdit_reference *r, const struct video_data *d)
{
    const struct video_clips *c = &d->shapes.shape->clips;
    struct vae_latent_reader f;

    if (vae_latents_open(&f, r->path))
        return -1;
    const struct vae_latent_info i = f.info;
    vae_latents_close(&f);
    if (i.chunk != VAE_CHUNK || i.latent != d->channels || i.rows != c->rows ||
        i.columns != c->columns)
        return say_fail("%s: latents [T, %lld, %lld, %lld] in chunks of %lld frames; samples are "
                        "[T, %lld, %lld, %lld] in chunks of %d",
                        r->path, (long long)i.latent, (long long)i.rows, (long long)i.columns,
                        (long long)i.chunk, (long long)d->channels, (long long)c->rows,
                        (long long)c->columns, VAE_CHUNK);
    stdit_vae_size(&d->vae, &r->clips, i.frames, c->height, c->width);
    return 0;
}

static int look_at_video(struct stdit_reference *r, const struct video_data *d)
{
    const struct video_clips *c = &d->shapes.shape->clips;
    struct video v;
    int64_t frames = video_open(&v, r->path) ? -1 : video_frames(&v);

    if (!frames)
        say_fail("%s: has no frame", r->path);
    video_close(&v);
    if (frames < 1)
        return -1;
    stdit_vae_size(&d->vae, &r->clips, frames, c->height, c->width);
    return 0;
}

static int add_file(struct stdit_guide *g, const char *path, size_t n, const struct video_data *d)
{
    struct stdit_reference *r = &g->reference[g->n];

    if (!n)
        return say_fail("--reference: a name is empty; separate names by ;");
    r->path = strndup(path, n);
    if (!r->path)
        return say_fail("no memory for the names of references");
    g->files = ++g->n;
    r->latents = is_latents(r->path);
    return r->latents ? look_at_latents(r, d) : look_at_video(r, d);
}

int stdit_references_open(struct stdit_guide *g, const char *paths, int64_t loops,
                          const struct video_data *d)
{
    const char *at = paths && *paths ? paths : NULL;
    int64_t most = loops;

    for (const char *p = at; p && *p; p++)
        most += *p == ';';
    g->reference = calloc((size_t)most + 1, sizeof *g->reference);
    if (!g->reference)
        return say_fail("no memory for references");
    while (at) {
        size_t n = strcspn(at, ";");
        if (add_file(g, at, n, d))
            return -1;
        at = at[n] ? at + n + 1 : NULL;
    }
    for (int64_t i = 1; i < loops; i++)
        g->reference[g->n++].clips = d->shapes.shape->clips;
    return 0;
}

void stdit_guide_free(struct stdit_guide *g)
{
    for (int64_t i = 0; i < g->n; i++) {
        free(g->reference[i].path);
        free(g->reference[i].z);
    }
    free(g->reference);
    stdit_strategies_free(&g->strategies);
}

/* ---- used frames ---------------------------------------------------------------------------- */

static int use(struct stdit_guide *g, const struct stdit_strategy *s, const char *what,
               const struct video_data *d, const struct video_options *o)
{
    int64_t there = g->files + s->loop, frames = d->shapes.shape->geometry.frames;
    struct stdit_span span;

    if (s->loop >= o->loop)
        return say_fail("%s: there is no segment %lld with --loop %lld", what, (long long)s->loop,
                        (long long)o->loop);
    if (s->reference >= there)
        return say_fail("%s: there is no reference %lld; there %s %lld", what,
                        (long long)s->reference, there == 1 ? "is" : "are", (long long)there);
    struct stdit_reference *r = &g->reference[s->reference];
    if (stdit_strategy_place(s, what, r->clips.latent_frames, frames, o->align, &span))
        return -1;
    if (span.cut)
        say_note("%s: %lld of %lld latent frames are given: the reference or the clip ends there",
                 what, (long long)span.length, (long long)s->length);
    r->first = r->end && r->first < span.from ? r->first : span.from;
    r->end = r->end > span.from + span.length ? r->end : span.from + span.length;
    return 0;
}

int stdit_references_use(struct stdit_guide *g, const char *what, const struct video_data *d,
                         const struct video_options *o)
{
    for (int64_t i = 0; i < g->strategies.n; i++)
        if (use(g, &g->strategies.list[i], what, d, o))
            return -1;
    for (int64_t i = 0; i < g->n; i++) {
        struct stdit_reference *r = &g->reference[i];
        const struct video_clips *c = &r->clips;
        r->z = r->end ? MEMORY_FOR(sizeof *r->z, d->channels, c->latent_frames, c->rows, c->columns)
                      : NULL;
        if (r->end && !r->z)
            return say_fail("no memory for the latents of a reference");
    }
    return 0;
}

/* ---- latents ------------------------------------------------------------------------------- */

/* [T, Z, h, w] in a file, [Z, T, h, w] in memory. */
static int read_latents(struct stdit_reference *r, const struct stdit_vae *v)
{
    int64_t plane = r->clips.rows * r->clips.columns, frames = r->clips.latent_frames;
    float *frame = MEMORY_FOR(sizeof *frame, v->channels, plane);
    struct vae_latent_reader f;
    int rc = frame ? vae_latents_open(&f, r->path) : say_fail("no memory for latents");

    if (rc) {
        free(frame);
        return -1;
    }
    for (int64_t t = r->first; t < r->end && !rc; t++) {
        rc = vae_latents_read(&f, t, 1, frame);
        for (int64_t c = 0; c < v->channels && !rc; c++)
            memcpy(r->z + (c * frames + t) * plane, frame + c * plane,
                   (size_t)plane * sizeof *frame);
    }
    vae_latents_close(&f);
    free(frame);
    return rc;
}

static int encode_chunk(struct stdit_reference *r, struct stdit_vae *v, struct video *f, int64_t at,
                        uint8_t *rgb)
{
    const struct picture_size size = {r->clips.width, r->clips.height, true};
    int64_t frame = size.width * size.height * 3;

    for (int64_t i = 0; i < stdit_vae_chunk(&r->clips, at); i++) {
        int rc = video_read(f, at + i, &size, rgb + i * frame);
        if (rc <= 0)
            return rc ? -1 : say_fail("%s: ends before frame %lld", r->path, (long long)(at + i));
    }
    return stdit_vae_encode_chunk(v, &r->clips, r->sample, at, rgb, r->z);
}

/* Encodes the chunks of 17 frames that contain used latent frames. */
static int encode_video(struct stdit_reference *r, struct stdit_vae *v)
{
    const struct video_clips *c = &r->clips;
    uint8_t *rgb = MEMORY_FOR(3, VAE_CHUNK, c->height, c->width);
    struct video f;
    int rc = rgb ? video_open(&f, r->path) : say_fail("no memory for frames");

    for (int64_t at = 0; at < c->frames && !rc; at += VAE_CHUNK) {
        int64_t first = vae_latent_frames(at, VAE_CHUNK);
        int64_t end = first + vae_latent_frames(stdit_vae_chunk(c, at), 0);
        if (end > r->first && first < r->end)
            rc = encode_chunk(r, v, &f, at, rgb);
    }
    if (rgb)
        video_close(&f);
    free(rgb);
    return rc;
}

int stdit_reference_encode(struct stdit_reference *r, struct stdit_vae *v)
{
    return r->latents ? read_latents(r, v) : encode_video(r, v);
}
