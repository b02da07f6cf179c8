/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling of latents: see sample.h.  Between steps latents are fp32, for any dtype of the
 * weights. */
#include "sample.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/compiled.h"
#include "../common/directory.h"
#include "../common/memory.h"
#include "../common/say.h"
#include "../common/tensors.h"
#include "../common/training.h"
#include "ckpt_dist.h"
#include "ckpt_tools.h"
#include "stages.h"

enum { STREAM_START = 0x43560020, STREAM_STEP, PATH = 4096, STATES = 4 /* of an element */ };

/* ---- inputs -------------------------------------------------------------------------------- */

/* Reads a tensor whose last axes have these sizes; there may be one before them, of rows. */
static int read_rows(const char *path, const char *name, int ndim, const int64_t *shape,
                     int64_t *rows, float **to)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int64_t whole[CKPT_MAX_DIMS] = {-1};
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int i = ckpt_file_find(f, name), more = i >= 0 && !ckpt_file_entry(f, i, &e) && e.ndim > ndim;
    memcpy(whole + more, shape, (size_t)ndim * sizeof *shape);
    *to = tensor_read(f, path, name, ndim + more, whole);
    *rows = more ? whole[0] : 1;
    ckpt_file_close(f);
    return *to ? 0 : -1;
}

/* Latent frames of the picture. */
static int64_t image_frames(const struct video_sampler *s)
{
    return s->run->options.net.sizes.whole_image ? s->geometry.frames : 1;
}

int video_sampler_read(struct video_sampler *s)
{
    const struct video_options *o = &s->run->options;
    const struct video_sizes *c = &o->net.sizes;
    const struct video_geometry *g = &s->geometry;
    int64_t text[] = {g->tokens, c->text_width}, one;
    int64_t image[] = {c->channels, image_frames(s), g->height, g->width};
    int64_t sight[] = {c->sight_tokens, c->sight_width};

    if (o->sample_text &&
        read_rows(o->sample_text, "prompt_embedding", 2, text, &s->clips, &s->text))
        return -1;
    if (o->negative && read_rows(o->negative, "prompt_embedding", 2, text, &one, &s->negative))
        return -1;
    if (!o->image || video_has_picture(o))
        return 0;
    if (read_rows(o->image, "encoded_image", 4, image, &one, &s->image))
        return -1;
    return c->sight_tokens ? read_rows(o->image, VIDEO_SIGHT, 2, sight, &one, &s->sight) : 0;
}

int64_t video_sampler_frames(const struct video_sampler *s)
{
    return s->geometry.frames - s->repeats;
}

int64_t video_sampler_clip(const struct video_sampler *s)
{
    return s->n / s->geometry.frames * video_sampler_frames(s);
}

void video_sampler_shape(struct video_sampler *s, const struct video_geometry *g, bool repeats)
{
    const struct video_options *o = &s->run->options;

    s->geometry = *g;
    s->repeats = repeats;
    s->n = o->net.sizes.channels * g->frames * g->height * g->width;
    s->batch = video_is_guided(o) ? 2 : 1;
}

int video_sampler_size(struct video_sampler *s)
{
    const struct video_options *o = &s->run->options;
    const struct video_sizes *c = &o->net.sizes;
    int64_t latents = video_latent_frames(c, o->frames);

    struct video_geometry g = {.frames = video_whole_frames(c, latents),
                               .height = o->height / c->factor,
                               .width = o->width / c->factor,
                               .tokens = c->text_tokens};

    video_sampler_shape(s, &g, g.frames != latents);
    return o->net.model->check(&o->net, &g);
}

/* A pair whose models are in memory one after the other. */
static bool is_pair(const struct video_sampler *s)
{
    return s->run->options.net.sizes.boundary > 0 && !video_is_pair(s->run);
}

/* Between the models of a pair the states of all clips are kept. */
static void select_state(struct video_sampler *s, int64_t clip)
{
    s->x = s->state + (is_pair(s) ? clip : 0) * STATES * s->n;
    s->before = s->x + s->n;
    s->old = s->before + s->n;
    s->older = s->old + s->n;
}

static int64_t sight_values(const struct video_sampler *s)
{
    const struct video_sizes *c = &s->run->options.net.sizes;

    return c->sight_tokens * c->sight_width;
}

static int allocate(struct video_sampler *s)
{
    int64_t y = s->geometry.tokens * s->run->options.net.sizes.text_width;
    int64_t picture = s->n / s->geometry.frames * image_frames(s);

    if (s->state)
        return 0; /* already allocated */
    s->state = MEMORY_FOR(sizeof *s->state, is_pair(s) ? s->clips : 1, STATES, s->n);
    s->eps = MEMORY_FOR(sizeof *s->eps, s->n);
    s->both = MEMORY_FOR(sizeof *s->both, s->batch, s->n);
    s->v = MEMORY_FOR(sizeof *s->v, s->batch, s->n);
    s->y = MEMORY_FOR(sizeof *s->y, s->batch, y);
    s->y_bf16 = MEMORY_FOR(sizeof *s->y_bf16, s->batch, y);
    s->picture = MEMORY_FOR(sizeof *s->picture, s->batch, picture);
    s->sights = MEMORY_FOR(sizeof *s->sights, s->batch, sight_values(s) + 1);
    return s->state && s->eps && s->both && s->v && s->y && s->y_bf16 && s->picture && s->sights
               ? 0
               : say_fail("no memory for a clip");
}

void video_sampler_free(struct video_sampler *s)
{
    float *all[] = {s->text, s->negative, s->image, s->sight,   s->state,  s->eps,
                    s->both, s->v,        s->y,     s->picture, s->sights, s->drawn};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(s->y_bf16);
}

/* ---- the program --------------------------------------------------------------------------- */

/* Whether the first latent frame is the picture. */
static bool is_given(const struct video_sampler *s)
{
    const struct video_options *o = &s->run->options;

    return o->image && !o->net.sizes.has_image; /* also before it is encoded */
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct video_sampler *s = user;
    const struct video_net *net = s->recorded;
    const struct video_sizes *c = &net->sizes;
    const struct video_geometry *g = &s->geometry;
    int64_t x[] = {batch, c->channels, g->frames, g->height, g->width};
    int64_t image[] = {batch, c->channels, image_frames(s), g->height, g->width};
    int64_t text[] = {batch, g->tokens, c->text_width}, times[] = {batch, 2};
    struct video_inputs in = {.x = ckpt_input(t, "x", CKPT_F32, 5, x),
                              .text = ckpt_input(t, "y", s->run->options.net.dtype, 3, text),
                              .t = ckpt_input(t, "t", CKPT_F32, is_given(s) ? 2 : 1, times)};

    if (c->has_image)
        in.image = ckpt_input(t, "image", CKPT_F32, 5, image);
    if (c->sight_tokens)
        in.sight = ckpt_input(t, "sight", CKPT_F32, 3,
                              (int64_t[]){batch, c->sight_tokens, c->sight_width});
    ckpt_tensor v = ckpt_cast(t, net->model->forward(net, t, g, &in), CKPT_F32);
    ckpt_output(t, "v", v);
    return v;
}

/* Feeds the prompt of a clip, followed with guidance by the negative prompt. */
static int feed_text(struct video_sampler *s, int64_t clip, ckpt_program *p)
{
    int64_t y = s->geometry.tokens * s->run->options.net.sizes.text_width;
    int64_t picture = s->n / s->geometry.frames * image_frames(s), sight = sight_values(s);
    bool image = s->run->options.net.sizes.has_image;
    int rc;

    memset(s->y, 0, (size_t)(s->batch * y) * sizeof *s->y);
    memcpy(s->y, s->text + clip * y, (size_t)y * sizeof *s->y);
    if (s->batch > 1 && s->negative)
        memcpy(s->y + y, s->negative, (size_t)y * sizeof *s->y);
    ckpt_to_bf16(s->y, s->y_bf16, s->batch * y);
    rc = s->run->options.net.dtype == CKPT_BF16 ? ckpt_feed(p, "y", s->y_bf16, s->batch * y * 2)
                                                : ckpt_feed(p, "y", s->y, s->batch * y * 4);
    for (int64_t i = 0; image && i < s->batch; i++)
        memcpy(s->picture + i * picture, s->image, (size_t)picture * sizeof *s->picture);
    if (!rc && image)
        rc = ckpt_feed(p, "image", s->picture, s->batch * picture * 4);
    for (int64_t i = 0; sight && i < s->batch; i++)
        memcpy(s->sights + i * sight, s->sight, (size_t)sight * sizeof *s->sights);
    if (!rc && sight)
        rc = ckpt_feed(p, "sight", s->sights, s->batch * sight * 4);
    return rc ? say_fail("%s", ckpt_error(s->run->context)) : 0;
}

/* Computes v at x and t, with guidance, into the first n elements of s->v. */
static int predict(struct video_sampler *s, double time, double guidance)
{
    const float same[2] = {(float)time, (float)time}, given[4] = {0, same[0], 0, same[0]};
    const float *t = is_given(s) ? given : same, g = (float)guidance;
    int64_t times = s->batch * (is_given(s) ? 2 : 1);
    bool second = s->low && time < s->run->options.net.sizes.boundary;
    ckpt_program *p = second ? s->low : s->program;

    for (int64_t i = 0; i < s->batch; i++)
        memcpy(s->both + i * s->n, s->x, (size_t)s->n * sizeof *s->both);
    if (ckpt_feed(p, "x", s->both, s->batch * s->n * 4) || ckpt_feed(p, "t", t, times * 4) ||
        ckpt_step(p, NULL) || ckpt_fetch(p, "v", s->v, s->batch * s->n * 4))
        return say_fail("%s", ckpt_error(s->run->context));
    for (int64_t i = 0; s->batch > 1 && i < s->n; i++)
        s->v[i] = s->v[s->n + i] + g * (s->v[i] - s->v[s->n + i]);
    return 0;
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Sets the first latent frame where it is given. */
static void give_first(struct video_sampler *s)
{
    const int64_t plane = s->geometry.height * s->geometry.width;

    for (int64_t c = 0; is_given(s) && c < s->run->options.net.sizes.channels; c++)
        memcpy(s->x + c * s->geometry.frames * plane, s->image + c * plane,
               (size_t)plane * sizeof *s->x);
}

static void correct(struct video_sampler *s, const struct video_correction *c, int64_t j, double x0)
{
    double x = c->keep * (double)s->before[j] + c->clean * x0 + c->old * (double)s->old[j];

    s->x[j] = (float)(c->older != 0 ? x + c->older * (double)s->older[j] : x);
}

/* The noise of a step depends only on (seed, clip, step). */
static int advance(struct video_sampler *s, int64_t clip, int64_t i)
{
    const struct video_options *o = &s->run->options;
    const struct video_net *net = &o->net;
    const struct video_drawing d = video_drawing(o);
    struct video_step k = net->model->step(net, &d, i);

    if (predict(s, k.t, net->model->guidance(net, &d, i)))
        return -1;
    if (k.noise > 0)
        ckpt_fill_normal((uint64_t)o->sample_seed, (uint64_t)(clip * o->sample_steps + i),
                         STREAM_STEP, s->eps, s->n);
    for (int64_t j = 0; j < s->n; j++) {
        double x0 = k.level.signal * (double)s->x[j] - k.level.noise * (double)s->v[j];
        if (k.corrects)
            correct(s, &k.correction, j, x0);
        s->before[j] = s->x[j];
        double x = k.keep * (double)s->x[j] + k.clean * x0;
        if (k.old != 0)
            x += k.old * (double)s->old[j];
        if (k.noise > 0)
            x += k.noise * (double)s->eps[j];
        s->older[j] = s->old[j];
        s->old[j] = (float)x0;
        s->x[j] = (float)x;
    }
    give_first(s);
    return 0;
}

static int start(struct video_sampler *s, int64_t clip)
{
    const struct video_options *o = &s->run->options;
    const struct video_geometry *g = &s->geometry;
    int64_t shape[] = {o->net.sizes.channels, g->frames, g->height, g->width}, rows;
    float *noise;

    if (!o->noise) {
        ckpt_fill_normal((uint64_t)o->sample_seed, (uint64_t)clip, STREAM_START, s->x, s->n);
        give_first(s);
        return 0;
    }
    if (read_rows(o->noise, "noise", 4, shape, &rows, &noise)) /* made nothing */
        return -1;
    memcpy(s->x, noise + clip % rows * s->n, (size_t)s->n * sizeof *s->x);
    give_first(s);
    free(noise);
    return 0;
}

/* Drops the frame that is not part of the clip: [C, F, h, w] to fewer F. */
static void trim(struct video_sampler *s)
{
    const struct video_geometry *g = &s->geometry;
    int64_t plane = g->height * g->width, frames = video_sampler_frames(s);

    for (int64_t c = 0; c < s->run->options.net.sizes.channels; c++)
        memmove(s->x + c * frames * plane, s->x + (c * g->frames + s->repeats) * plane,
                (size_t)(frames * plane) * sizeof *s->x);
}

int video_sampler_write(const struct video_sampler *s, const float *clip, const char *path)
{
    const struct video_geometry *g = &s->geometry;
    int64_t shape[] = {s->run->options.net.sizes.channels, video_sampler_frames(s), g->height,
                       g->width};

    return tensors_write(path, 1, &(struct tensor){"encoded_video", CKPT_F32, 4, shape, clip});
}

static int write_clip(const struct video_sampler *s, int64_t clip)
{
    const char *out = s->run->options.out;
    char path[PATH];

    if (snprintf(path, sizeof path, "%s/latents-%lld.safetensors", out, (long long)clip + 1) >=
        PATH)
        return say_fail("--out %s: the name is too long", out);
    if (directory_make(out) || video_sampler_write(s, s->x, path))
        return -1;
    say_print("latents: %s\n", path);
    return 0;
}

/* Training includes its step number in the file names. */
static int keep_clip(struct video_sampler *s, int64_t clip)
{
    int64_t n = video_sampler_clip(s);

    trim(s);
    if (s->drawn)
        memcpy(s->drawn + clip * n, s->x, (size_t)n * sizeof *s->x);
    return s->run->options.out && !s->step ? write_clip(s, clip) : 0;
}

/* Sets s->end behind the last step of the current model. */
static void find_end(struct video_sampler *s)
{
    const struct video_net *net = &s->run->options.net;
    const struct video_drawing d = video_drawing(&s->run->options);

    for (s->end = s->begin; s->end < d.steps; s->end++)
        if (is_pair(s) && !s->second && net->model->step(net, &d, s->end).t < net->sizes.boundary)
            break;
}

/* Samples one clip, unless the training is asked to stop meanwhile. */
static int draw_clip(struct video_sampler *s, int64_t clip, ckpt_progress *progress, int64_t arena)
{
    const int64_t steps = s->end - s->begin;

    select_state(s, clip);
    int rc = (!s->begin && start(s, clip)) || feed_text(s, clip, s->program) ||
                     (s->low && feed_text(s, clip, s->low))
                 ? -1
                 : 0;
    for (int64_t i = s->begin; i < s->end && !rc; i++) {
        s->stopped = s->step && training_is_stopped(s->run->context);
        if (s->stopped)
            return 0;
        rc = advance(s, clip, i);
        if (progress)
            ckpt_progress_step(progress, clip * steps + i - s->begin + 1, NAN, arena);
    }
    return rc || s->end < s->run->options.sample_steps ? rc : keep_clip(s, clip);
}

static int sample(struct video_sampler *s)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_progress *progress =
        s->step ? NULL : ckpt_progress_open(stderr, "sample", s->clips * (s->end - s->begin));
    int rc = 0;

    ckpt_program_info(s->program, &info);
    s->stopped = false;
    for (int64_t clip = 0; clip < s->clips && !rc && !s->stopped; clip++)
        rc = draw_clip(s, clip, progress, info.arena_bytes);
    if (progress)
        ckpt_progress_close(progress);
    return rc;
}

/* ---- entry points -------------------------------------------------------------------------- */

int video_sampler_compile(struct video_sampler *s)
{
    const struct video_net *net = &s->run->options.net;
    ckpt *c = s->run->context;

    if (net->model->check_steps(net, s->run->options.sample_steps))
        return -1;
    for (int i = 0; i <= video_is_pair(s->run); i++) {
        ckpt_program **program = i ? &s->low : &s->program;
        s->recorded = video_net_of(s->run, i);
        int rc = ckpt_compile(c, record, s, NULL, s->batch, program);
        if (compiled(c, rc, *program, s->run->training ? "sampling: " : ""))
            return -1;
    }
    return 0;
}

int video_sampler_open(struct video_sampler *s, bool show)
{
    struct video_run *r = s->run;
    const struct video_options *o = &r->options;
    struct ckpt_options library = o->library;
    char tokens[32];

    library.runs = s->clips * o->sample_steps;
    if (say_open(&r->context, &library))
        return -1;
    if (ckpt_ranks(r->context) > 1)
        return say_fail("--ranks: this program does not divide its clips among ranks");
    if (video_make_model(r))
        return -1;
    if (show)
        printf("model: %s; %lld clips of %lld frames of %lld x %lld, %s tokens\n",
               o->net.sizes.name, (long long)s->clips, (long long)o->frames, (long long)o->height,
               (long long)o->width, say_count(tokens, video_tokens(&o->net, &s->geometry)));
    if (video_sampler_compile(s))
        return -1;
    if (show) {
        ckpt_plan_print(s->program, stdout);
        fflush(stdout);
    }
    return 0;
}

void video_sampler_close(struct video_sampler *s)
{
    struct video_run *r = s->run;

    ckpt_close(r->context);
    r->context = NULL;
    s->program = NULL;
}

int video_sampler_next(struct video_sampler *s)
{
    s->begin = s->end;
    s->second = true;
    return video_select_model(&s->run->options, true);
}

int video_sampler_draw(struct video_sampler *s)
{
    find_end(s);
    if (allocate(s) || sample(s))
        return -1;
    if (!s->step)
        ckpt_profile_print(s->program, stdout);
    return 0;
}
