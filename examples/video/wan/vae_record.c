/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records the passes of a clip as ops.
 *
 * - Frame 0 goes through all layers as a group of its own; then follow groups of further frames.
 *   Layers of the decoder that have many frames compute them slice by slice, each slice down to the
 *   pixels; those of the encoder, slice by slice to the next resampling.
 * - A convolution reads a window: its frames and the two before them.  Norms write directly into it
 *   (concat), so that only the cache is copied.  Before the clip there are zeros: for frame 0 those
 *   that the convolution adds, for a later frame, which may be in one window with others, a cache.
 * - Norms act on single positions, attention computes single frames, and convolutions are
 *   batch-invariant (ckpt_conv_spec): the bits depend on no group, slice or pass.
 */
#include <math.h>
#include <stdio.h>
#include "ckpt.h"
#include "vae.h"

enum { FRONT = 2, MOST = CKPT_MAX_PARTS, PLANE = 1 << 30 };

struct recorder {
    const struct wanvae *m;
    ckpt_tape *t;
    int64_t slice;
    long long pass;
    bool first;                       /* the group is frame 0 */
    ckpt_tensor cache[WANVAE_CACHES]; /* [2, height, width, channels], or none yet */
    ckpt_tensor out[MOST];            /* of this pass, in order */
    int n_out;
};

static ckpt_tensor part(const struct recorder *k, ckpt_tensor x, int64_t begin, int64_t end)
{
    return begin == 0 && end == ckpt_desc_of(k->t, x).shape[0] ? x
                                                               : ckpt_slice(k->t, x, 0, begin, end);
}

static ckpt_tensor join(const struct recorder *k, int n, const ckpt_tensor *x)
{
    return n > 1 ? ckpt_concat(k->t, 0, n, x) : x[0];
}

/* Frames per slice of planes with that many elements per frame.  The lengths of more than 2^30
 * elements are summed by another kernel, in another order. */
static int64_t step_of(const struct recorder *k, int64_t frames, int64_t elements)
{
    int64_t most = PLANE / elements - FRONT, n = k->slice > 0 ? k->slice : frames;

    n = n < most ? n : most;
    return n > 1 ? n : 1;
}

static void put(struct recorder *k, ckpt_tensor x)
{
    if (k->n_out == MOST)
        ckpt_tape_fail(k->t, CKPT_EINVAL, "a pass of more than %d slices", MOST);
    else
        k->out[k->n_out++] = x;
}

/* ---- convolutions -------------------------------------------------------------------------- */

/* A convolution of single frames.  down: with stride 2, and zeros on the right and below. */
static ckpt_tensor conv_flat(const struct recorder *k, const struct wanvae_conv *w, ckpt_tensor x,
                             bool down)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    struct ckpt_desc d = ckpt_desc_of(k->t, w->w.weight);
    int64_t size = d.shape[d.ndim - 2], shape[] = {d.shape[0], size, size, d.shape[d.ndim - 1]};

    spec.invariant = true;
    for (int i = 0; i < 2; i++) {
        spec.stride[i] = down ? 2 : 1;
        spec.before[i] = down ? 0 : size / 2;
        spec.after[i] = size / 2;
    }
    return ckpt_conv(k->t, x, ckpt_reshape(k->t, w->w.weight, 4, shape), w->w.bias, &spec);
}

/* The window of frames, with `front` frames of zeros before them. */
static ckpt_tensor conv_window(const struct recorder *k, const struct wanvae_conv *w, ckpt_tensor x,
                               int64_t front, int64_t stride)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    struct ckpt_desc d = ckpt_desc_of(k->t, x), of = ckpt_desc_of(k->t, w->w.weight);
    int64_t *s = d.shape, frames = (s[0] + front - of.shape[1]) / stride + 1;

    spec.invariant = true;
    spec.stride[0] = stride;
    spec.before[0] = front;
    for (int i = 1; i < 3; i++)
        spec.before[i] = spec.after[i] = of.shape[1 + i] / 2;
    x = ckpt_reshape(k->t, x, 5, (int64_t[]){1, s[0], s[1], s[2], s[3]});
    x = ckpt_conv(k->t, x, w->w.weight, w->w.bias, &spec);
    return ckpt_reshape(k->t, x, 4, (int64_t[]){frames, s[1], s[2], of.shape[0]});
}

static ckpt_tensor zeros(const struct recorder *k, ckpt_tensor like, int64_t frames)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, like);

    d.shape[0] = frames;
    return ckpt_full(k->t, 0.f, d.dtype, d.ndim, d.shape);
}

/* Copies the last two frames, of which the first may be of the old cache. */
static ckpt_tensor last_two(const struct recorder *k, ckpt_tensor cache, ckpt_tensor x)
{
    int64_t n = ckpt_desc_of(k->t, x).shape[0];
    ckpt_tensor last = ckpt_slice(k->t, x, 0, n - 1, n), before;

    if (n > 1)
        before = ckpt_slice(k->t, x, 0, n - 2, n - 1);
    else
        before = cache.id ? ckpt_slice(k->t, cache, 0, 1, 2) : zeros(k, x, 1);
    return ckpt_concat(k->t, 0, 2, (ckpt_tensor[]){before, last});
}

/* The cache and x.  A view cannot be written in place, so the cache is copied by an op. */
static ckpt_tensor window(const struct recorder *k, ckpt_tensor cache, ckpt_tensor x)
{
    ckpt_tensor front[FRONT];

    for (int i = 0; i < FRONT; i++)
        front[i] = ckpt_slice(k->t, cache, 0, i, i + 1);
    cache = ckpt_concat(k->t, 0, FRONT, front);
    return ckpt_concat(k->t, 0, 2, (ckpt_tensor[]){cache, x});
}

static ckpt_tensor conv_causal(struct recorder *k, const struct wanvae_conv *w, ckpt_tensor x)
{
    ckpt_tensor *cache = &k->cache[w->cache];

    if (!k->first && !cache->id)
        *cache = zeros(k, x, FRONT);
    ckpt_tensor all = cache->id ? window(k, *cache, x) : x;
    ckpt_tensor y = conv_window(k, w, all, cache->id ? 0 : FRONT, 1);

    *cache = last_two(k, *cache, x);
    return y;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* x / max(|x|, 1e-12) sqrt(C) gamma, |x| over the channels of a position. */
static ckpt_tensor norm(const struct recorder *k, ckpt_tensor gamma, ckpt_tensor x)
{
    double channels = (double)ckpt_desc_of(k->t, gamma).shape[0];
    ckpt_tensor least = ckpt_full(k->t, 1e-12f, CKPT_F32, 0, NULL);
    ckpt_tensor length = ckpt_maximum(k->t, ckpt_norm(k->t, x, 1u << 3), least);
    ckpt_tensor scale =
        ckpt_affine(k->t, ckpt_cast(k->t, gamma, CKPT_F32), (float)sqrt(channels), 0.f);

    return ckpt_mul(k->t, ckpt_div(k->t, x, length), scale);
}

static ckpt_tensor norm_silu(const struct recorder *k, ckpt_tensor gamma, ckpt_tensor x)
{
    return ckpt_cast(k->t, ckpt_silu(k->t, norm(k, gamma, x)), k->m->config.dtype);
}

static ckpt_tensor res(struct recorder *k, const struct wanvae_res *r, ckpt_tensor x)
{
    ckpt_tensor h = conv_causal(k, &r->conv[0], norm_silu(k, r->gamma[0], x));

    h = conv_causal(k, &r->conv[1], norm_silu(k, r->gamma[1], h));
    if (r->shortcut.w.weight.id)
        x = conv_flat(k, &r->shortcut, x, false);
    return ckpt_add(k->t, x, h);
}

/* Self attention of one frame: one head of all channels. */
static ckpt_tensor attend(const struct recorder *k, ckpt_tensor x)
{
    const struct wanvae_tower *s = &k->m->tower;
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t places = d.shape[1] * d.shape[2], channels = d.shape[3];
    ckpt_tensor y = ckpt_cast(k->t, norm(k, s->attention_gamma, x), k->m->config.dtype), qkv[3];

    y = ckpt_reshape(k->t, conv_flat(k, &s->qkv, y, false), 4, (int64_t[]){1, places, 3, channels});
    ckpt_split(k->t, y, 2, 3, qkv);
    y = ckpt_attention(k->t, qkv[0], qkv[1], qkv[2], CKPT_NONE, NULL);
    y = conv_flat(k, &s->proj, ckpt_reshape(k->t, y, 4, d.shape), false);
    return ckpt_add(k->t, x, y);
}

static ckpt_tensor middle(struct recorder *k, ckpt_tensor x)
{
    const struct wanvae_tower *s = &k->m->tower;
    ckpt_tensor frame[MOST];
    int64_t n = ckpt_desc_of(k->t, x).shape[0];

    x = res(k, &s->middle[0], x);
    for (int64_t i = 0; i < n && i < MOST; i++)
        frame[i] = attend(k, part(k, x, i, i + 1));
    return res(k, &s->middle[1], join(k, (int)n, frame));
}

static ckpt_tensor finish(struct recorder *k, ckpt_tensor x)
{
    const struct wanvae_tower *s = &k->m->tower;

    return conv_causal(k, &s->out, norm_silu(k, s->gamma, x));
}

/* ---- the encoder --------------------------------------------------------------------------- */

/* Frame 0 stays; after it each new frame reads a pair and the frame before it. */
static ckpt_tensor halve(struct recorder *k, const struct wanvae_conv *w, ckpt_tensor x)
{
    ckpt_tensor *cache = &k->cache[w->cache], y = x;

    if (!k->first) {
        y = window(k, *cache, x);
        y = conv_window(k, w, part(k, y, 1, ckpt_desc_of(k->t, y).shape[0]), 0, 2);
    }
    *cache = last_two(k, *cache, x);
    return y;
}

/* y plus the frames of x, two by two as pairs of channels; frame 0 pairs with zeros. */
static ckpt_tensor add_pairs(const struct recorder *k, ckpt_tensor y, ckpt_tensor x)
{
    int64_t s[CKPT_MAX_DIMS], n;

    if (k->first)
        x = ckpt_concat(k->t, 0, 2, (ckpt_tensor[]){zeros(k, x, 1), x});
    for (int i = 0; i < 4; i++)
        s[i] = ckpt_desc_of(k->t, x).shape[i];
    n = s[0] / 2;
    x = ckpt_reshape(k->t, x, 5, (int64_t[]){n, 2, s[1], s[2], s[3]});
    x = ckpt_permute(k->t, x, (int[]){0, 2, 3, 4, 1});
    y = ckpt_reshape(k->t, y, 5, (int64_t[]){n, s[1], s[2], s[3], 2});
    return ckpt_reshape(k->t, ckpt_add(k->t, y, x), 4, (int64_t[]){n, s[1], s[2], 2 * s[3]});
}

static ckpt_tensor down(struct recorder *k, int level, ckpt_tensor x)
{
    const struct wanvae_level *l = &k->m->tower.level[level];
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t widest = ckpt_desc_of(k->t, l->res[0].conv[0].w.weight).shape[0];
    int64_t step = step_of(k, d.shape[0], d.shape[1] * d.shape[2] * widest);
    ckpt_tensor h[MOST], beside[MOST];
    int n = 0;

    ckpt_label(k->t, "encoder.down_blocks.%d, pass %lld", level, k->pass);
    for (int64_t a = 0; a < d.shape[0] && n < MOST; a += step, n++) {
        h[n] = part(k, x, a, a + step < d.shape[0] ? a + step : d.shape[0]);
        if (level == 0)
            h[n] = conv_causal(k, &k->m->tower.in, h[n]);
        beside[n] = h[n];
        if (k->m->config.shortcuts && l->space.w.weight.id)
            beside[n] = ckpt_avg_pool(k->t, h[n], (int64_t[]){2, 2}, NULL);
        for (int64_t j = 0; j < k->m->config.layers; j++)
            h[n] = res(k, &l->res[j], h[n]);
        if (l->space.w.weight.id)
            h[n] = conv_flat(k, &l->space, h[n], true);
    }
    x = join(k, n, h);
    if (wanvae_halves(level))
        x = halve(k, &l->time, x);
    if (!k->m->config.shortcuts)
        return x;
    return wanvae_halves(level) ? add_pairs(k, x, join(k, n, beside))
                                : ckpt_add(k->t, x, join(k, n, beside));
}

/* Pixels of a cell become channels: color, column, row. */
static ckpt_tensor fold(const struct recorder *k, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t *s = d.shape, p = k->m->config.patch;
    int64_t h = s[1] / p, w = s[2] / p;

    x = ckpt_reshape(k->t, x, 6, (int64_t[]){s[0], h, p, w, p, s[3]});
    x = ckpt_permute(k->t, x, (int[]){0, 1, 3, 5, 4, 2});
    return ckpt_reshape(k->t, x, 4, (int64_t[]){s[0], h, w, s[3] * p * p});
}

/* Groups have whole pairs of pairs of frames. */
static void encode(struct recorder *k, ckpt_tensor x)
{
    x = fold(k, x);
    for (int level = 0; level < WANVAE_LEVELS; level++)
        x = down(k, level, x);
    ckpt_label(k->t, "encoder.mid_block, pass %lld", k->pass);
    x = finish(k, middle(k, x));
    put(k, ckpt_cast(k->t, conv_flat(k, &k->m->tower.quant, x, false), CKPT_F32));
}

/* ---- the decoder --------------------------------------------------------------------------- */

/* Nearest x 2 in rows and columns.  In time a frame becomes two, the first and the second half of
 * the channels of a convolution, which does not read frame 0; frame 0 stays single. */
static ckpt_tensor enlarge(struct recorder *k, const struct wanvae_level *l, ckpt_tensor x,
                           bool twice)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t *s = d.shape;

    if (twice) {
        x = ckpt_reshape(k->t, conv_causal(k, &l->time, x), 5,
                         (int64_t[]){s[0], s[1], s[2], 2, s[3]});
        x = ckpt_permute(k->t, x, (int[]){0, 3, 1, 2, 4});
        x = ckpt_upsample_nearest(k->t, x, (int64_t[]){1, 2, 2});
        x = ckpt_reshape(k->t, x, 4, (int64_t[]){2 * s[0], 2 * s[1], 2 * s[2], s[3]});
    } else {
        x = ckpt_upsample_nearest(k->t, x, (int64_t[]){2, 2});
    }
    return conv_flat(k, &l->space, x, false);
}

/* y plus x, enlarged by repeating; where x has twice the channels of y, those of a pair go to the
 * even and odd rows. */
static ckpt_tensor add_repeated(const struct recorder *k, ckpt_tensor y, ckpt_tensor x, bool twice)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, x), to = ckpt_desc_of(k->t, y);
    int64_t *s = d.shape, channels = to.shape[3], times = twice ? 2 : 1;

    if (s[3] == channels) {
        x = ckpt_reshape(k->t, x, 7, (int64_t[]){s[0], 1, s[1], 1, s[2], 1, channels});
    } else {
        x = ckpt_reshape(k->t, x, 5, (int64_t[]){s[0], s[1], s[2], channels, 2});
        x = ckpt_permute(k->t, x, (int[]){0, 1, 4, 2, 3});
        x = ckpt_reshape(k->t, x, 7, (int64_t[]){s[0], 1, s[1], 2, s[2], 1, channels});
    }
    y = ckpt_reshape(k->t, y, 7, (int64_t[]){s[0], times, s[1], 2, s[2], 2, channels});
    return ckpt_reshape(k->t, ckpt_add(k->t, y, x), 4, to.shape);
}

/* The frames of a pass at the end: pixels of a cell from channels, limited to [-1, 1]. */
static void put_pixels(struct recorder *k, ckpt_tensor x)
{
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    int64_t *s = d.shape, p = k->m->config.patch, colors = s[3] / p / p;

    x = ckpt_reshape(k->t, x, 6, (int64_t[]){s[0], s[1], s[2], colors, p, p});
    x = ckpt_permute(k->t, x, (int[]){0, 1, 5, 2, 4, 3});
    x = ckpt_clamp(k->t, ckpt_cast(k->t, x, CKPT_F32), -1.f, 1.f);
    put(k, ckpt_reshape(k->t, x, 4, (int64_t[]){s[0], p * s[1], p * s[2], colors}));
}

static void up(struct recorder *k, int level, ckpt_tensor x)
{
    const struct wanvae_level *l = &k->m->tower.level[level];
    struct ckpt_desc d = ckpt_desc_of(k->t, x);
    bool twice = wanvae_doubles(level) && !k->first, last = !l->space.w.weight.id;
    int64_t elements = (last ? 1 : twice ? 8 : 4) * d.shape[1] * d.shape[2] * d.shape[3];
    int64_t step = step_of(k, d.shape[0], elements);

    for (int64_t a = 0; a < d.shape[0]; a += step) {
        ckpt_tensor from = part(k, x, a, a + step < d.shape[0] ? a + step : d.shape[0]), y = from;
        ckpt_label(k->t, "decoder.up_blocks.%d, pass %lld", level, k->pass);
        for (int64_t j = 0; j <= k->m->config.layers; j++)
            y = res(k, &l->res[j], y);
        if (last) {
            ckpt_label(k->t, "decoder.conv_out, pass %lld", k->pass);
            put_pixels(k, finish(k, y));
            continue;
        }
        y = enlarge(k, l, y, twice);
        if (k->m->config.shortcuts)
            y = add_repeated(k, y, from, twice);
        up(k, level + 1, y);
    }
}

static void decode(struct recorder *k, ckpt_tensor z)
{
    const struct wanvae_tower *s = &k->m->tower;

    ckpt_label(k->t, "decoder.mid_block, pass %lld", k->pass);
    z = conv_causal(k, &s->in, conv_flat(k, &s->quant, z, false));
    up(k, 0, middle(k, z));
}

/* ---- passes -------------------------------------------------------------------------------- */

/* "in.PASS" as [frames, height, width, channels]. */
static ckpt_tensor feed_pass(const struct recorder *k, const struct autoencoder_clip *clip,
                             int64_t frames)
{
    int64_t shape[] = {1, frames, clip->height, clip->width,
                       clip->decode ? k->m->config.latent : 3};
    char name[32];

    snprintf(name, sizeof name, "in.%lld", k->pass);
    ckpt_tensor x = ckpt_cast(k->t, ckpt_input(k->t, name, CKPT_F32, 5, shape), k->m->config.dtype);
    return ckpt_reshape(k->t, x, 4, shape + 1);
}

/* Frame 0 alone, then the frames by groups. */
static void record_pass(struct recorder *k, const struct autoencoder_clip *clip, int64_t frames)
{
    ckpt_tensor x = feed_pass(k, clip, frames);
    int64_t each = !k->slice ? frames : clip->decode ? k->slice : 4;

    for (int64_t a = 0, b; a < frames; a = b) {
        k->first = k->pass == 0 && a == 0;
        b = k->first ? 1 : a + each < frames ? a + each : frames;
        (clip->decode ? decode : encode)(k, part(k, x, a, b));
    }
}

ckpt_tensor wanvae_record(const struct wanvae *m, const struct autoencoder_clip *clip,
                          const struct autoencoder_passes *passes, ckpt_tape *t)
{
    struct recorder k = {.m = m, .t = t, .slice = clip->slice};
    ckpt_tensor out = CKPT_NONE;
    char name[32];

    if (!clip->decode && clip->frames % 4 != 1)
        ckpt_tape_fail(t, CKPT_EINVAL,
                       "a clip of %lld frames: Wan's autoencoder encodes 1, 5, 9, ... frames",
                       (long long)clip->frames);
    for (; k.pass < passes->n; k.pass++) {
        k.n_out = 0;
        record_pass(&k, clip, autoencoder_pass_frames(passes, k.pass));
        out = join(&k, k.n_out, k.out);
        snprintf(name, sizeof name, "out.%lld", k.pass);
        ckpt_output(t, name, out);
    }
    return out;
}
