/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records the passes of a clip as ops.
 *
 * - A plane is the tensor between two layers.  It may consist of several pieces, each of some
 *   frames.  A layer computes its result slice by slice, so that pieces of its input can be freed
 *   as soon as they were read.  Frames are contiguous in memory: a part of a piece is a view.
 * - A convolution reads a window: its frames and the two before them.  They are normalized directly
 *   into one tensor (concat), so that only a cache is copied.
 * - Norms compute the moments of single rows and join them in a fixed order, and convolutions are
 *   batch-invariant (ckpt_conv_spec): the bits do not depend on the slices.
 * - The two 1 x 1 x 1 convolutions of z in a norm of the decoder are computed at the size of z:
 *   nearest resizing repeats cells and changes no value.  With the affine map and the statistics
 *   they become a scale and a shift of each channel at each cell.  The map of a plane repeats them
 *   by broadcasting, in one expression with the SiLU.
 */
#include <stdio.h>
#include "ckpt.h"
#include "vae.h"

enum { MOST = CKPT_MAX_PARTS, CACHES = 2 * (COGVAE_LEVELS * (COGVAE_LAYERS + 1) + 2) + 1 };

/* Piece i has the frames [cut[i], cut[i + 1]), as [frames, height, width, channels]. */
struct plane {
    int n;
    int64_t cut[MOST + 1];
    int64_t height, width, channels;
    ckpt_tensor piece[MOST];
};

/* silu(x scale + shift): fp32 [rows, h, 1, w, 1, C].  In the first pass the rows of the repeated
 * front frames come first, then the rows of the frames.  h and w are the sizes of the latents, or
 * 1. */
struct map {
    ckpt_tensor scale, shift;
    int64_t h, w;
};

/* The frames [-COGVAE_FRONT, frames) that a convolution reads. */
struct source {
    const struct plane *plane;
    const struct map *map;
    ckpt_tensor cache; /* front frames of the previous pass; none in the first */
};

struct recorder {
    const struct cogvae *m;
    ckpt_tape *t;
    int64_t slice, pass;
    bool last;                 /* no pass follows */
    ckpt_tensor z;             /* latents [T', h, w, Z], read by norms of the decoder */
    ckpt_tensor cache[CACHES]; /* one per convolution, in order */
    int caches;                /* number used so far by this pass */
};

static ckpt_tensor part(ckpt_tape *t, ckpt_tensor x, int axis, int64_t begin, int64_t end)
{
    return begin == 0 && end == ckpt_desc_of(t, x).shape[axis] ? x
                                                               : ckpt_slice(t, x, axis, begin, end);
}

static int64_t frames_of(const struct plane *p)
{
    return p->cut[p->n];
}

static struct plane empty(int64_t height, int64_t width, int64_t channels)
{
    return (struct plane){.height = height, .width = width, .channels = channels};
}

static void add_piece(const struct recorder *k, struct plane *p, ckpt_tensor x)
{
    int64_t frames = ckpt_desc_of(k->t, x).shape[0];

    if (p->n == MOST) {
        ckpt_tape_fail(k->t, CKPT_EINVAL, "a pass of more than %d frames", MOST);
        return;
    }
    p->piece[p->n++] = x;
    p->cut[p->n] = p->cut[p->n - 1] + frames;
}

/* Collects the parts of all pieces in frames [a, b); returns their number.  at (may be NULL): the
 * first frame of each. */
static int pieces_in(const struct recorder *k, const struct plane *p, int64_t a, int64_t b,
                     ckpt_tensor *x, int64_t *at)
{
    int n = 0;

    for (int i = 0; i < p->n; i++) {
        int64_t from = a > p->cut[i] ? a : p->cut[i], to = b < p->cut[i + 1] ? b : p->cut[i + 1];
        if (from >= to)
            continue;
        if (at)
            at[n] = from;
        x[n++] = part(k->t, p->piece[i], 0, from - p->cut[i], to - p->cut[i]);
    }
    return n;
}

static ckpt_tensor gather(const struct recorder *k, const struct plane *p, int64_t a, int64_t b)
{
    ckpt_tensor x[MOST] = {CKPT_NONE};
    int n = pieces_in(k, p, a, b, x, NULL);

    return n > 1 ? ckpt_concat(k->t, 0, n, x) : x[0];
}

/* Frames per slice of a plane with that many elements per frame.  Kernels count elements in 32
 * bits. */
static int64_t step_of(const struct recorder *k, int64_t frames, int64_t elements)
{
    int64_t most = INT32_MAX / elements - COGVAE_FRONT, n = k->slice > 0 ? k->slice : frames;

    n = n < most ? n : most;
    return n > 1 ? n : 1;
}

/* ---- norms --------------------------------------------------------------------------------- */

/* Mean and 1 / sqrt(var + eps) of each group of a plane: fp32 [1, groups, 2]. */
static ckpt_tensor statistics(const struct recorder *k, const struct plane *p)
{
    const struct cogvae_config *c = &k->m->config;
    ckpt_tensor moments[MOST];

    for (int i = 0; i < p->n; i++) {
        int64_t rows = (p->cut[i + 1] - p->cut[i]) * p->height;
        int64_t shape[] = {1, rows, p->width, p->channels};
        ckpt_tensor x = ckpt_reshape(k->t, p->piece[i], 4, shape);
        moments[i] = ckpt_group_norm_moments(k->t, x, (int)c->groups);
    }
    return ckpt_group_norm_join(k->t, p->n, moments, (float)c->eps);
}

/* Combines the affine map of a norm with its statistics: scale and shift of each channel. */
static void channel_map(const struct recorder *k, const struct cogvae_norm *n, ckpt_tensor stats,
                        int64_t channels, ckpt_tensor *scale, ckpt_tensor *shift)
{
    int64_t groups = k->m->config.groups, of_group[] = {1, groups, channels / groups};
    int64_t of_map[] = {1, 1, 1, 1, 1, channels};
    ckpt_tensor mean = ckpt_slice(k->t, stats, 2, 0, 1), inverse = ckpt_slice(k->t, stats, 2, 1, 2);
    ckpt_tensor w = ckpt_reshape(k->t, ckpt_cast(k->t, n->weight, CKPT_F32), 3, of_group);
    ckpt_tensor b = ckpt_reshape(k->t, ckpt_cast(k->t, n->bias, CKPT_F32), 3, of_group);
    ckpt_tensor s = ckpt_mul(k->t, inverse, w);

    b = ckpt_sub(k->t, b, ckpt_mul(k->t, mean, s));
    *scale = ckpt_reshape(k->t, s, 6, of_map);
    *shift = ckpt_reshape(k->t, b, 6, of_map);
}

/* A 1 x 1 x 1 convolution of z, as rows of a map. */
static ckpt_tensor of_latents(const struct recorder *k, const struct ckpt_nn_conv *conv,
                              int64_t channels)
{
    struct ckpt_desc z = ckpt_desc_of(k->t, k->z);
    ckpt_tensor w = ckpt_reshape(k->t, conv->weight, 2, (int64_t[]){channels, z.shape[3]});
    ckpt_tensor y = ckpt_cast(k->t, ckpt_linear(k->t, k->z, w, conv->bias), CKPT_F32);

    return ckpt_reshape(k->t, y, 6,
                        (int64_t[]){z.shape[0], z.shape[1], 1, z.shape[2], 1, channels});
}

/* The row that maps frame j; with an odd number of frames the first frame has its own row. */
static int64_t row_of(int64_t j, int64_t frames, int64_t rows)
{
    if (j < 0 || rows == 1)
        return 0;
    if (frames > 1 && frames % 2)
        return j ? 1 + (j - 1) * (rows - 1) / (frames - 1) : 0;
    return j * rows / frames;
}

/* Makes one row per frame; in the first pass also rows for the front frames. */
static ckpt_tensor spread(const struct recorder *k, ckpt_tensor x, int64_t frames)
{
    int64_t rows = ckpt_desc_of(k->t, x).shape[0], n = 0;
    ckpt_tensor row[MOST];

    if (k->pass && rows == frames)
        return x;
    for (int64_t j = k->pass ? 0 : -COGVAE_FRONT; j < frames && n < MOST; j++, n++) {
        int64_t from = row_of(j, frames, rows);
        row[n] = part(k->t, x, 0, from, from + 1);
    }
    return ckpt_concat(k->t, 0, (int)n, row);
}

static struct map find_map(const struct recorder *k, const struct cogvae_norm *n,
                           const struct plane *p)
{
    struct map map = {.h = 1, .w = 1};

    channel_map(k, n, statistics(k, p), p->channels, &map.scale, &map.shift);
    if (n->a.weight.id) {
        struct ckpt_desc z = ckpt_desc_of(k->t, k->z);
        ckpt_tensor a = of_latents(k, &n->a, p->channels), b = of_latents(k, &n->b, p->channels);
        map.h = z.shape[1];
        map.w = z.shape[2];
        map.shift = ckpt_add(k->t, ckpt_mul(k->t, a, map.shift), b);
        map.scale = ckpt_mul(k->t, a, map.scale);
    }
    map.scale = spread(k, map.scale, frames_of(p));
    map.shift = spread(k, map.shift, frames_of(p));
    return map;
}

/* silu(x scale + shift) of frames mapped by rows [from, to); several rows may map the same
 * frame. */
static ckpt_tensor apply_map(const struct recorder *k, const struct map *map, ckpt_tensor x,
                             int64_t from, int64_t to)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t *s = d.shape, h = map->h, w = map->w;
    int64_t lead = k->pass ? 0 : COGVAE_FRONT;

    x = ckpt_reshape(k->t, x, 6, (int64_t[]){s[0], h, s[1] / h, w, s[2] / w, s[3]});
    x = ckpt_mul(k->t, x, part(k->t, map->scale, 0, from + lead, to + lead));
    x = ckpt_add(k->t, x, part(k->t, map->shift, 0, from + lead, to + lead));
    return ckpt_cast(k->t, ckpt_silu(k->t, x), k->m->config.dtype);
}

/* ---- convolutions -------------------------------------------------------------------------- */

/* Copies the frames: parts that are views cannot be written in place. */
static ckpt_tensor copy_frames(const struct recorder *k, ckpt_tensor x, int64_t begin, int64_t end)
{
    ckpt_tensor frame[COGVAE_FRONT];

    for (int64_t i = begin; i < end; i++)
        frame[i - begin] = ckpt_slice(k->t, x, 0, i, i + 1);
    return ckpt_concat(k->t, 0, (int)(end - begin), frame);
}

/* Frames [a, b) of a convolution's input, a >= -COGVAE_FRONT, in the six axes of a map. */
static ckpt_tensor window(const struct recorder *k, const struct source *s, int64_t a, int64_t b)
{
    ckpt_tensor x[MOST + 2];
    int64_t at[MOST], from = a > 0 ? a : 0;
    int n = 0;

    if (a < 0 && s->cache.id)
        x[n++] = copy_frames(k, s->cache, a + COGVAE_FRONT, COGVAE_FRONT + (b < 0 ? b : 0));
    if (a < 0 && !s->cache.id) { /* repeats the first frame */
        from = b < 1 ? b : 1;
        x[n++] = apply_map(k, s->map, part(k->t, s->plane->piece[0], 0, 0, 1), a, from);
    }
    int first = n, end = n + pieces_in(k, s->plane, from, b, x + n, at);
    for (; n < end; n++)
        x[n] = apply_map(k, s->map, x[n], at[n - first],
                         at[n - first] + ckpt_desc_of(k->t, x[n]).shape[0]);
    return n > 1 ? ckpt_concat(k->t, 0, n, x) : x[0];
}

/* Keeps the front frames of the next pass, if there is one. */
static void keep_front(struct recorder *k, const struct source *s)
{
    int64_t frames = frames_of(s->plane);

    k->cache[k->caches++] = k->last ? CKPT_NONE : window(k, s, frames - COGVAE_FRONT, frames);
}

/* Kernels of 3 have a zero border on every side of a frame, kernels of 1 none.  The input includes
 * the front frames. */
static ckpt_tensor conv_frames(const struct recorder *k, const struct ckpt_nn_conv *w,
                               ckpt_tensor x, int64_t height, int64_t width)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    struct ckpt_desc d = ckpt_desc_of(k->t, x), of = ckpt_desc_of(k->t, w->weight);

    spec.invariant = true;
    for (int i = 1; i < 3; i++)
        spec.before[i] = spec.after[i] = of.shape[1 + i] / 2;
    x = ckpt_reshape(k->t, x, 5, (int64_t[]){1, d.shape[0], height, width, of.shape[4]});
    x = ckpt_conv(k->t, x, w->weight, w->bias, &spec);
    return ckpt_reshape(k->t, x, 4,
                        (int64_t[]){d.shape[0] + 1 - of.shape[1], height, width, of.shape[0]});
}

/* The first convolution: its input includes the front frames. */
static struct plane first_plane(struct recorder *k, const struct ckpt_nn_conv *w, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t frames = d.shape[0] - COGVAE_FRONT, channels = ckpt_desc_of(k->t, w->weight).shape[0];
    int64_t step = step_of(k, frames, d.shape[1] * d.shape[2] * channels);
    struct plane out = empty(d.shape[1], d.shape[2], channels);

    for (int64_t a = 0; a < frames; a += step) {
        int64_t b = (a + step < frames ? a + step : frames) + COGVAE_FRONT;
        add_piece(k, &out, conv_frames(k, w, part(k->t, x, 0, a, b), out.height, out.width));
    }
    return out;
}

/* ---- resampling ---------------------------------------------------------------------------- */

/* A 3 x 3 convolution per frame; down: with stride 2, and zeros on the right and below. */
static ckpt_tensor conv_single(const struct recorder *k, const struct ckpt_nn_conv *w,
                               ckpt_tensor x, bool down)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;

    spec.invariant = true;
    for (int i = 0; i < 2; i++) {
        spec.stride[i] = down ? 2 : 1;
        spec.before[i] = !down;
        spec.after[i] = 1;
    }
    return ckpt_conv(k->t, x, w->weight, w->bias, &spec);
}

/* The mean of each pair of frames. */
static ckpt_tensor halve(const struct recorder *k, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t *s = d.shape;

    x = ckpt_reshape(k->t, x, 5, (int64_t[]){1, s[0], s[1], s[2], s[3]});
    x = ckpt_avg_pool(k->t, x, (int64_t[]){2, 1, 1}, NULL);
    return ckpt_reshape(k->t, x, 4, (int64_t[]){s[0] / 2, s[1], s[2], s[3]});
}

static ckpt_tensor twice(const struct recorder *k, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t *s = d.shape;

    x = ckpt_reshape(k->t, x, 5, (int64_t[]){1, s[0], s[1], s[2], s[3]});
    x = ckpt_upsample_nearest(k->t, x, (int64_t[]){2, 1, 1});
    return ckpt_reshape(k->t, x, 4, (int64_t[]){2 * s[0], s[1], s[2], s[3]});
}

static struct plane down_plane(const struct recorder *k, const struct ckpt_nn_conv *w,
                               const struct plane *in, bool time)
{
    struct plane out = empty(in->height / 2, in->width / 2, in->channels);
    int64_t frames = frames_of(in), a = 0;
    int64_t step = step_of(k, frames, in->height * in->width * in->channels);

    if (time && frames % 2) /* the first frame stays */
        add_piece(k, &out, conv_single(k, w, gather(k, in, 0, ++a), true));
    step = time && step > 1 ? step / 2 * 2 : time ? 2 : step;
    for (; a < frames; a += step) {
        ckpt_tensor x = gather(k, in, a, a + step < frames ? a + step : frames);
        add_piece(k, &out, conv_single(k, w, time ? halve(k, x) : x, true));
    }
    return out;
}

/* A doubled frame repeats the same image, which is convolved once. */
static struct plane up_plane(const struct recorder *k, const struct ckpt_nn_conv *w,
                             const struct plane *in, bool time)
{
    struct plane out = empty(2 * in->height, 2 * in->width, in->channels);
    int64_t frames = frames_of(in);
    int64_t step = step_of(k, frames, 4 * in->height * in->width * in->channels);

    step = time ? (step + 1) / 2 : step;
    for (int64_t a = 0, b; a < frames; a = b) {
        bool alone = time && frames % 2 && !a; /* the first of an odd number stays single */
        b = alone ? 1 : a + step < frames ? a + step : frames;
        ckpt_tensor x = gather(k, in, a, b);
        x = conv_single(k, w, ckpt_upsample_nearest(k->t, x, (int64_t[]){2, 2}), false);
        add_piece(k, &out, time && !alone ? twice(k, x) : x);
    }
    return out;
}

/* ---- residual blocks ----------------------------------------------------------------------- */

/* Stores the output of a convolution for the slice [a, b) in pieces of out. */
struct taker {
    void (*take)(struct recorder *k, const struct taker *by, struct plane *out,
                 const struct plane *in, int64_t a, int64_t b, ckpt_tensor x);
    const struct cogvae_res *res;
    struct plane *through; /* the residual, beside the convolutions of a block */
};

static void take_piece(struct recorder *k, const struct taker *by, struct plane *out,
                       const struct plane *in, int64_t a, int64_t b, ckpt_tensor x)
{
    (void)by;
    (void)in;
    (void)a;
    (void)b;
    add_piece(k, out, x);
}

/* The first convolution of a block: also computes the shortcut of its frames, so that they can be
 * freed. */
static void take_beside(struct recorder *k, const struct taker *by, struct plane *out,
                        const struct plane *in, int64_t a, int64_t b, ckpt_tensor x)
{
    ckpt_tensor piece[MOST];
    int n = pieces_in(k, in, a, b, piece, NULL);

    add_piece(k, out, x);
    for (int i = 0; i < n; i++)
        add_piece(k, by->through,
                  conv_frames(k, &by->res->shortcut, piece[i], in->height, in->width));
}

/* The second convolution: adds the residual, with the same pieces as the residual. */
static void take_sum(struct recorder *k, const struct taker *by, struct plane *out,
                     const struct plane *in, int64_t a, int64_t b, ckpt_tensor x)
{
    ckpt_tensor piece[MOST];
    int64_t at[MOST];
    int n = pieces_in(k, by->through, a, b, piece, at);

    (void)in;
    for (int i = 0; i < n; i++) {
        int64_t end = i + 1 < n ? at[i + 1] : b;
        add_piece(k, out, ckpt_add(k->t, piece[i], part(k->t, x, 0, at[i] - a, end - a)));
    }
}

/* conv(silu(norm(in))), slice by slice. */
static struct plane conv_plane(struct recorder *k, const struct ckpt_nn_conv *w,
                               const struct cogvae_norm *norm, const struct plane *in,
                               const struct taker *by)
{
    int64_t frames = frames_of(in), channels = ckpt_desc_of(k->t, w->weight).shape[0];
    int64_t wider = channels > in->channels ? channels : in->channels;
    int64_t step = step_of(k, frames, in->height * in->width * wider);
    struct plane out = empty(in->height, in->width, channels);
    struct map map = find_map(k, norm, in);
    struct source s = {in, &map, k->pass ? k->cache[k->caches] : CKPT_NONE};

    for (int64_t a = 0; a < frames; a += step) {
        int64_t b = a + step < frames ? a + step : frames;
        ckpt_tensor x = window(k, &s, a - COGVAE_FRONT, b);
        x = conv_frames(k, w, x, in->height, in->width);
        by->take(k, by, &out, in, a, b, x);
    }
    keep_front(k, &s);
    return out;
}

static struct plane res_plane(struct recorder *k, const struct cogvae_res *r,
                              const struct plane *in)
{
    struct plane beside = empty(in->height, in->width, in->channels), h;
    struct taker first = {take_piece, r, &beside}, second = {take_sum, r, &beside};

    if (r->shortcut.weight.id)
        first.take = take_beside;
    else
        beside = *in;
    h = conv_plane(k, &r->conv[0], &r->norm[0], in, &first);
    return conv_plane(k, &r->conv[1], &r->norm[1], &h, &second);
}

/* ---- the towers ---------------------------------------------------------------------------- */

/* x: the frames of a pass after their front frames. */
static struct plane encode_pass(struct recorder *k, ckpt_tensor x)
{
    const struct cogvae_config *c = &k->m->config;
    const struct cogvae_tower *s = &k->m->encoder;
    long long pass = k->pass;

    ckpt_label(k->t, "encoder.conv_in, pass %lld", pass);
    struct plane p = first_plane(k, &s->in, x);
    for (int i = 0; i < c->levels; i++) {
        ckpt_label(k->t, "encoder.down_blocks.%d, pass %lld", i, pass);
        for (int j = 0; j < c->layers; j++)
            p = res_plane(k, &s->level[i].res[j], &p);
        if (i + 1 < c->levels)
            p = down_plane(k, &s->level[i].resample, &p, i < c->time_levels);
    }
    ckpt_label(k->t, "encoder.mid_block, pass %lld", pass);
    for (int i = 0; i < 2; i++)
        p = res_plane(k, &s->middle[i], &p);
    ckpt_label(k->t, "encoder.conv_out, pass %lld", pass);
    return conv_plane(k, &s->out, &s->norm, &p, &(struct taker){.take = take_piece});
}

static struct plane decode_pass(struct recorder *k, ckpt_tensor z)
{
    const struct cogvae_tower *s = &k->m->decoder;
    const struct cogvae_config *c = &k->m->config;
    long long pass = k->pass;

    k->z = ckpt_slice(k->t, z, 0, COGVAE_FRONT, ckpt_desc_of(k->t, z).shape[0]);
    ckpt_label(k->t, "decoder.conv_in, pass %lld", pass);
    struct plane p = first_plane(k, &s->in, z);
    ckpt_label(k->t, "decoder.mid_block, pass %lld", pass);
    for (int i = 0; i < 2; i++)
        p = res_plane(k, &s->middle[i], &p);
    for (int i = c->levels - 1, block = 0; i >= 0; i--, block++) {
        ckpt_label(k->t, "decoder.up_blocks.%d, pass %lld", block, pass);
        for (int j = 0; j <= c->layers; j++)
            p = res_plane(k, &s->level[i].res[j], &p);
        if (i > 0)
            p = up_plane(k, &s->level[i].resample, &p, block < c->time_levels);
    }
    ckpt_label(k->t, "decoder.conv_out, pass %lld", pass);
    return conv_plane(k, &s->out, &s->norm, &p, &(struct taker){.take = take_piece});
}

/* "in.PASS" as [frames, height, width, channels]. */
static ckpt_tensor feed_pass(const struct recorder *k, const struct autoencoder_clip *clip,
                             int64_t frames, int64_t channels)
{
    int64_t shape[] = {1, frames + COGVAE_FRONT, clip->height, clip->width, channels};
    char name[32];

    snprintf(name, sizeof name, "in.%lld", (long long)k->pass);
    ckpt_tensor x = ckpt_cast(k->t, ckpt_input(k->t, name, CKPT_F32, 5, shape), k->m->config.dtype);
    return ckpt_reshape(k->t, x, 4, shape + 1);
}

static ckpt_tensor put_out(const struct recorder *k, const struct plane *p)
{
    ckpt_tensor x[MOST];
    char name[32];

    for (int i = 0; i < p->n; i++)
        x[i] = ckpt_cast(k->t, p->piece[i], CKPT_F32);
    ckpt_tensor y = p->n > 1 ? ckpt_concat(k->t, 0, p->n, x) : x[0];
    snprintf(name, sizeof name, "out.%lld", (long long)k->pass);
    ckpt_output(k->t, name, y);
    return y;
}

static ckpt_tensor code(const struct cogvae *m, const struct autoencoder_clip *clip, ckpt_tape *t,
                        int64_t each, int64_t channels,
                        struct plane (*record)(struct recorder *k, ckpt_tensor x))
{
    struct recorder k = {.m = m, .t = t, .slice = clip->slice};
    struct autoencoder_passes passes = cogvae_passes(clip->frames, each);
    ckpt_tensor out = CKPT_NONE;

    for (k.pass = 0; k.pass < passes.n; k.pass++) {
        k.last = k.pass + 1 == passes.n;
        k.caches = 0;
        ckpt_tensor x = feed_pass(&k, clip, autoencoder_pass_frames(&passes, k.pass), channels);
        struct plane p = record(&k, x);
        out = put_out(&k, &p);
    }
    return out;
}

ckpt_tensor cogvae_encode(const struct cogvae *m, const struct autoencoder_clip *clip, ckpt_tape *t)
{
    return code(m, clip, t, COGVAE_ENCODE_PASS, m->config.channels, encode_pass);
}

ckpt_tensor cogvae_decode(const struct cogvae *m, const struct autoencoder_clip *clip, ckpt_tape *t)
{
    return code(m, clip, t, COGVAE_DECODE_PASS, m->config.latent, decode_pass);
}
