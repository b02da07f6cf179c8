/* SPDX-License-Identifier: Apache-2.0 */
/* Clips for an autoencoder of the coder.  A video is one clip, with the same frames and noise, and
 * so the same latents, as in the program that writes a file of latents for each video. */
#include <stdlib.h>
#include <string.h>
#include "../cogvideo/family.h"
#include "../latents.h"
#include "../wan/family.h"
#include "../wan/vae.h"
#include "../../common/clip.h"
#include "../../common/memory.h"
#include "../../common/settings.h"
#include "encode.h"

static void fill(const void *coder, struct video_shape *s, int64_t frames, int64_t height,
                 int64_t width)
{
    const struct video_coder *k = coder;
    const struct autoencoder_clip clip = {.frames = frames, .height = height, .width = width};

    s->clips = (struct video_clips){.frames = frames, .height = height, .width = width};
    s->geometry = (struct video_geometry){.frames = autoencoder_clip_out(k->kind, k->own, &clip),
                                          .height = height / k->sizes.factor,
                                          .width = width / k->sizes.factor,
                                          .pixel_height = (double)height,
                                          .pixel_width = (double)width};
}

/* Sides of clips are cropped to whole patches of the model. */
static int open_buckets(struct encode *e)
{
    const struct video_options *o = &e->options.video;
    struct video_data *d = &e->data;
    const struct video_sizing sizing = {VIDEO_CELLS * e->coder.sizes.factor, fill, &e->coder};

    if (videos_sizes(&d->videos, &d->shapes.size) ||
        video_shapes_read(&d->shapes, o->buckets, false, 1, &sizing))
        return -1;
    snprintf(d->title, sizeof d->title, "videos: %.300s, %lld in %d buckets", o->video_dir,
             (long long)d->shapes.fitting, d->shapes.n);
    return 0;
}

static int open_size(struct encode *e)
{
    struct video_options *o = &e->options.video;
    struct video_data *d = &e->data;
    const struct video_model *m = e->family->model;
    int64_t frames = o->frames ? o->frames : m->frames, height = o->height ? o->height : m->height,
            width = o->width ? o->width : m->width, factor = e->coder.sizes.factor;

    if (height % factor || width % factor)
        return say_fail("--size %lldx%lld: width and height must be multiples of %lld",
                        (long long)width, (long long)height, (long long)factor);
    if (video_shapes_make(&d->shapes, 1))
        return -1;
    d->shapes.rows = d->videos.rows;
    fill(&e->coder, d->shapes.shape, frames, height, width);
    snprintf(d->title, sizeof d->title, "videos: %s, %lld clips, %lld frames of %lld x %lld each",
             o->video_dir, (long long)d->shapes.rows, (long long)frames, (long long)width,
             (long long)height);
    return 0;
}

static int open_data(struct encode *e)
{
    struct video_options *o = &e->options.video;
    struct video_data *d = &e->data;
    struct video_coder *k = &e->coder;

    k->options = (struct video_coder_options)VIDEO_CODER_INIT;
    k->options.model = e->options.model;
    k->options.dtype = o->dtype;
    k->options.library = o->library;
    d->videos = (struct videos){.whole = true, .stride = 1};
    if (video_coder_config(k, e->family->model->autoencoder, false) ||
        videos_any(&d->videos, o->video_dir, 0))
        return -1;
    d->shapes.rows = d->videos.rows;
    e->lengths = calloc((size_t)d->shapes.rows + 1, sizeof *e->lengths);
    if (!e->lengths)
        return say_fail("no memory for marks of %lld clips", (long long)d->shapes.rows);
    return o->buckets ? open_buckets(e) : open_size(e);
}

/* Each shape has a program; they share the weights and the budget. */
static int compile_each(struct encode *e)
{
    const struct video_shapes *d = &e->data.shapes;

    e->each = calloc((size_t)d->n, sizeof *e->each);
    if (!e->each)
        return say_fail("no memory for the programs of %d sizes", d->n);
    for (int i = 0; i < d->n; i++) {
        const struct video_clips *c = &d->shape[i].clips;
        e->each[i] = e->coder;
        if (video_coder_compile(&e->each[i], c->frames, c->height, c->width))
            return -1;
    }
    return 0;
}

static int open_coder(struct encode *e)
{
    struct video_coder *k = &e->coder;
    const struct video_shapes *d = &e->data.shapes;
    int64_t most = 0;

    k->options.library = e->library;
    k->shown = true;
    if (video_coder_open(k) || compile_each(e))
        return -1;
    e->data.channels = (e->options.first ? 2 : 1) * k->sizes.latent;
    for (int i = 0; i < d->n; i++) {
        const struct video_clips *c = &d->shape[i].clips;
        int64_t n = c->frames * c->height * c->width * 3;
        most = n > most ? n : most;
    }
    e->pixels = MEMORY_FOR(sizeof *e->pixels, most);
    return e->pixels ? 0 : say_fail("no memory for the frames of a clip");
}

static void close_coder(struct encode *e)
{
    for (int i = 0; e->each && i < e->data.shapes.n; i++)
        free(e->each[i].in); /* programs are freed with the context */
    free(e->each);
    video_coder_close(&e->coder);
    free(e->pixels);
}

static int read_clip(struct encode *e, struct loader_file *f, const struct loader_clip *c,
                     int64_t row, double *fps)
{
    const struct encode_options *o = &e->options;
    const struct clip_whole whole = {
        {c->width, c->height, !strcmp(o->fit, "crop")}, c->frames, o->fps};
    struct clip one = {.frames = 1};
    struct video *v = loader_file_open(f, videos_find(&e->data.videos, row, 0, &one));

    if (!v || clip_take_whole(&whole, v, c->rgb))
        return -1;
    const int64_t has = clip_whole_has(&whole, v);
    if (has < c->frames)
        e->lengths[row] = video_frames(v) == 1 ? CLIP_PHOTO : CLIP_SHORT;
    atomic_fetch_add(&e->longer, o->fps > 0 && has > c->frames);
    *fps = o->fps > 0 ? o->fps : v->fps;
    return 1;
}

/* A posterior is sampled with noise that follows from the seed and the name that the file of
 * latents would have: the position in a cache does not change it. */
static int encode_frames(struct encode *e, const struct video_shape *s, const struct loader_clip *c,
                         float *z)
{
    struct video_coder *k = &e->each[s - e->data.shapes.shape];
    const struct video_geometry *g = &s->geometry;
    struct video_latents l = {g->frames, g->height, g->width, 2 * k->sizes.latent, NULL};
    char name[CACHE_PATH + 16];

    encode_name(e, c->row, name);
    char *dot = strrchr(name, '.');
    snprintf(dot && dot > name ? dot : name + strlen(name), 16, ".safetensors");
    l.z = MEMORY_FOR(sizeof *l.z, l.frames * l.height * l.width, l.channels);
    int rc = l.z ? video_coder_encode(k, c->rgb, e->pixels, l.z)
                 : say_fail("no memory for the latents of a clip");
    if (!rc)
        rc = video_latents_draw(&l, (uint64_t)e->library.seed, &k->sizes, name);
    if (!rc)
        video_latents_to(&l, z);
    free(l.z);
    return rc;
}

/* The clip of the first frame follows in further channels. */
static int encode_clip(struct encode *e, const struct video_shape *s, const struct loader_clip *c,
                       float *z)
{
    struct video_coder *k = &e->each[s - e->data.shapes.shape];

    k->seen = c->frames;
    if (encode_frames(e, s, c, z))
        return -1;
    k->seen = 1;
    return e->options.first ? encode_frames(e, s, c, z + video_data_z(&e->data, s) / 2) : 0;
}

static const char *name(const struct encode *e)
{
    return e->coder.kind->family;
}

static const char *weights(const struct encode *e)
{
    return e->coder.directory;
}

static ckpt_program *program(const struct encode *e)
{
    return e->each->program;
}

/* clang-format off */
#define FAMILY(m) {.model = (m), .name = name, .weights = weights, .data = open_data,              \
                   .open = open_coder, .close = close_coder, .program = program,                   \
                   .read = read_clip, .clip = encode_clip}
/* clang-format on */

static const struct encode_family families[] = {FAMILY(&cogvideo_model), FAMILY(&wan_model)};

enum { FAMILIES = sizeof families / sizeof *families };

const struct encode_family *encode_coder(const char *dir)
{
    const struct encode_family *found = NULL;
    char at[4096];
    struct settings s;

    autoencoder_directory(at, sizeof at, dir);
    if (settings_open(&s, at))
        return NULL;
    const char *is = json_string_value(settings_find(&s, "_class_name"));
    for (int i = 0; i < FAMILIES; i++)
        if (is && !strcmp(is, families[i].model->autoencoder->class_name))
            found = &families[i];
    if (!found && is && !strcmp(is, "WanModel"))
        settings_refuse(&s, "_class_name", WANVAE_ORIGINAL);
    else if (!found)
        settings_refuse(&s, "_class_name", "is not \"%s\" or \"%s\"",
                        cogvideo_model.autoencoder->class_name, wan_model.autoencoder->class_name);
    settings_close(&s);
    return found;
}
