/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bands of rows; exact bands first, which have the same bits as the whole.  The input of a band is
 * gathered from bands of the previous layer, with one more row on each side for a kernel of 3.
 * Bands of a layer are recorded one after the other, so that a band of the previous layer can be
 * freed after its last use.
 */
#include "ckpt.h"
#include "tiles.h"

enum { MOST = CKPT_MAX_PARTS };

/* A plane of frames [N, H, W, C] in bands: band i holds the rows [cut[i], cut[i + 1]). */
struct plane {
    int n;
    int64_t cut[MOST + 1];
    ckpt_tensor band[MOST];
};

/* The statistics and the affine map of a normalisation. */
struct norm {
    ckpt_tensor stats;
    const struct vae_norm *map;
};

struct tiler {
    const struct vae *m;
    ckpt_tape *t;
    struct vae_style style;
    int n;                  /* bands */
    int64_t rows[MOST + 1]; /* band boundaries, in rows of latents */
    /* blended bands: rows of latents by which a band extends past a boundary, and the weights of
     * the band above and below in the rows of both */
    int64_t overlap;
    ckpt_tensor share[2];
};

static struct plane whole(ckpt_tape *t, ckpt_tensor x)
{
    return (struct plane){1, {0, ckpt_desc_of(t, x).shape[1]}, {x}};
}

/* No bands yet; the boundaries are the latents' times scale. */
static struct plane empty(const struct tiler *k, int64_t scale)
{
    struct plane p = {.n = k->n};

    for (int i = 0; i <= k->n; i++)
        p.cut[i] = k->rows[i] * scale;
    return p;
}

/* Rows [lo, hi), gathered from their bands. */
static ckpt_tensor gather(ckpt_tape *t, const struct plane *p, int64_t lo, int64_t hi)
{
    ckpt_tensor piece[MOST];
    int n = 0;

    for (int i = 0; i < p->n; i++) {
        int64_t from = lo > p->cut[i] ? lo : p->cut[i];
        int64_t to = hi < p->cut[i + 1] ? hi : p->cut[i + 1];
        if (from < to)
            piece[n++] = vae_part(t, p->band[i], 1, from - p->cut[i], to - p->cut[i]);
    }
    return n > 1 ? ckpt_concat(t, 1, n, piece) : piece[0];
}

static ckpt_tensor join(ckpt_tape *t, const struct plane *p)
{
    return gather(t, p, 0, p->cut[p->n]);
}

static struct norm find_norm(const struct tiler *k, const struct plane *p,
                             const struct vae_norm *map)
{
    ckpt_tensor moments[MOST];

    for (int i = 0; i < p->n; i++)
        moments[i] = ckpt_group_norm_moments(k->t, p->band[i], k->style.groups);
    return (struct norm){ckpt_group_norm_join(k->t, p->n, moments, k->style.eps), map};
}

static ckpt_tensor normalized(const struct tiler *k, const struct norm *n, ckpt_tensor x)
{
    return n ? ckpt_group_norm_apply(k->t, x, n->stats, n->map->weight, n->map->bias, true) : x;
}

/* A convolution over complete rows, padded by `above` and `below` rows of zeros. */
static ckpt_tensor conv_rows(const struct tiler *k, const struct ckpt_nn_conv *w, ckpt_tensor x,
                             int64_t above, int64_t below)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;

    spec.invariant = true;
    spec.before[0] = above;
    spec.after[0] = below;
    spec.before[1] = spec.after[1] = ckpt_desc_of(k->t, w->weight).shape[2] / 2;
    return ckpt_conv(k->t, x, w->weight, w->bias, &spec);
}

/* Rows [lo, hi) of conv(silu(norm(in))); norm NULL: rows of conv(in). */
static ckpt_tensor conv_band(const struct tiler *k, const struct ckpt_nn_conv *w,
                             const struct norm *norm, const struct plane *in, int64_t lo,
                             int64_t hi)
{
    int64_t height = in->cut[in->n], halo = ckpt_desc_of(k->t, w->weight).shape[1] / 2;
    int64_t above = lo < halo ? halo - lo : 0, below = hi + halo > height ? hi + halo - height : 0;
    ckpt_tensor x = gather(k->t, in, lo - halo + above, hi + halo - below);

    return conv_rows(k, w, normalized(k, norm, x), above, below);
}

static struct plane conv_plane(const struct tiler *k, const struct ckpt_nn_conv *w,
                               const struct norm *norm, const struct plane *in, int64_t scale)
{
    struct plane out = empty(k, scale);

    for (int i = 0; i < out.n; i++)
        out.band[i] = conv_band(k, w, norm, in, out.cut[i], out.cut[i + 1]);
    return out;
}

static struct plane res_plane(const struct tiler *k, const struct vae_res *r,
                              const struct plane *in, int64_t scale)
{
    struct norm norm = find_norm(k, in, &r->norm[0]);
    struct plane h = conv_plane(k, &r->conv[0], &norm, in, scale), out = empty(k, scale);

    norm = find_norm(k, &h, &r->norm[1]);
    for (int i = 0; i < out.n; i++) {
        int64_t lo = out.cut[i], hi = out.cut[i + 1];
        ckpt_tensor y = conv_band(k, &r->conv[1], &norm, &h, lo, hi);
        ckpt_tensor x = r->shortcut.weight.id ? conv_band(k, &r->shortcut, NULL, in, lo, hi)
                                              : gather(k->t, in, lo, hi);
        out.band[i] = ckpt_add(k->t, x, y);
    }
    return out;
}

/* Upsampling by 2: the neighbour rows of a band are upsampled too, then cropped to one row each. */
static struct plane up_plane(const struct tiler *k, const struct ckpt_nn_conv *w,
                             const struct plane *in, int64_t scale)
{
    struct plane out = empty(k, scale);
    int64_t height = in->cut[in->n];

    for (int i = 0; i < out.n; i++) {
        int64_t lo = out.cut[i] / 2, hi = out.cut[i + 1] / 2;
        int64_t above = lo == 0, below = hi == height;
        int64_t rows = 2 * (hi - lo) + !above + !below;
        ckpt_tensor x = gather(k->t, in, lo - !above, hi + !below);
        x = ckpt_upsample_nearest(k->t, x, (int64_t[]){2, 2});
        x = vae_part(k->t, x, 1, !above, !above + rows);
        out.band[i] = conv_rows(k, w, x, above, below);
    }
    return out;
}

/* Downsampling by 2: a band needs one row of the next band; the last band needs one row of
 * zeros. */
static struct plane down_plane(const struct tiler *k, const struct ckpt_nn_conv *w,
                               const struct plane *in, int64_t scale)
{
    struct plane out = empty(k, scale);
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;

    spec.invariant = true;
    spec.stride[0] = spec.stride[1] = 2;
    spec.after[1] = 1;
    for (int i = 0; i < out.n; i++) {
        spec.after[0] = i + 1 == out.n;
        ckpt_tensor x = gather(k->t, in, 2 * out.cut[i], 2 * out.cut[i + 1] + (i + 1 < out.n));
        out.band[i] = ckpt_conv(k->t, x, w->weight, w->bias, &spec);
    }
    return out;
}

/* ---- exact bands --------------------------------------------------------------------------- */

static ckpt_tensor encode_bands(const struct tiler *k, ckpt_tensor x)
{
    const struct vae_widths *w = &k->m->config.spatial;
    const struct vae_tower *s = &k->m->spatial[0];
    int last = w->levels - 1;
    struct plane p = whole(k->t, x);

    ckpt_label(k->t, "encoder.conv_in");
    p = conv_plane(k, &s->in, NULL, &p, (int64_t)1 << last);
    for (int i = 0; i < last; i++) {
        int64_t scale = (int64_t)1 << (last - i);
        ckpt_label(k->t, "encoder.down_blocks.%d", i);
        for (int j = 0; j < w->layers; j++)
            p = res_plane(k, &s->level[i].res[j], &p, scale);
        p = down_plane(k, &s->level[i].resample, &p, scale / 2);
    }
    ckpt_label(k->t, "encoder.down_blocks.%d", last);
    x = join(k->t, &p);
    for (int j = 0; j < w->layers; j++)
        x = vae_res(k->t, &k->style, &s->level[last].res[j], x);
    ckpt_label(k->t, "encoder.mid_block");
    x = vae_spatial_middle(k->t, &k->style, s, x);
    ckpt_label(k->t, "encoder.conv_out");
    x = k->style.conv(k->t, &s->out, vae_norm_silu(k->t, &k->style, &s->norm, x));
    return k->style.conv(k->t, &s->quant, x);
}

static ckpt_tensor decode_bands(const struct tiler *k, ckpt_tensor z)
{
    const struct vae_widths *w = &k->m->config.spatial;
    const struct vae_tower *s = &k->m->spatial[1];
    int last = w->levels - 1;

    ckpt_label(k->t, "decoder.conv_in");
    ckpt_tensor x = k->style.conv(k->t, &s->in, k->style.conv(k->t, &s->quant, z));
    ckpt_label(k->t, "decoder.mid_block");
    x = vae_spatial_middle(k->t, &k->style, s, x);
    ckpt_label(k->t, "decoder.up_blocks.0");
    for (int j = 0; j <= w->layers; j++)
        x = vae_res(k->t, &k->style, &s->level[last].res[j], x);
    struct plane p = whole(k->t, x);
    for (int i = last; i > 0; i--) {
        int64_t scale = (int64_t)1 << (w->levels - i);
        p = up_plane(k, &s->level[i].resample, &p, scale);
        ckpt_label(k->t, "decoder.up_blocks.%d", w->levels - i);
        for (int j = 0; j <= w->layers; j++)
            p = res_plane(k, &s->level[i - 1].res[j], &p, scale);
    }
    ckpt_label(k->t, "decoder.conv_out");
    struct norm norm = find_norm(k, &p, &s->norm);
    p = conv_plane(k, &s->out, &norm, &p, (int64_t)1 << last);
    return join(k->t, &p);
}

/* ---- blended bands -------------------------------------------------------------------------- */

/* Rows [lo, hi) of latents in x, which has scale rows for each and starts at row from. */
static ckpt_tensor rows_of(const struct tiler *k, ckpt_tensor x, int64_t scale, int64_t from,
                           int64_t lo, int64_t hi)
{
    return vae_part(k->t, x, 1, (lo - from) * scale, (hi - from) * scale);
}

static ckpt_tensor mix(const struct tiler *k, ckpt_tensor above, ckpt_tensor below)
{
    above = ckpt_mul(k->t, above, k->share[0]);
    below = ckpt_mul(k->t, below, k->share[1]);
    return ckpt_cast(k->t, ckpt_add(k->t, above, below), k->m->config.dtype);
}

/* in and out: rows of input and output per row of latents. */
static ckpt_tensor blend(const struct tiler *k, ckpt_tensor x, int64_t in, int64_t out,
                         ckpt_tensor (*code)(const struct vae *, ckpt_tape *,
                                             const struct vae_style *, ckpt_tensor))
{
    ckpt_tensor piece[MOST], above = CKPT_NONE;
    int64_t end = k->rows[k->n], above_from = 0;
    int n = 0;

    for (int i = 0; i < k->n; i++) {
        int64_t top = i ? k->rows[i] - k->overlap : 0, clear = i ? k->rows[i] + k->overlap : 0;
        bool last = i + 1 == k->n;
        int64_t bottom = last ? end : k->rows[i + 1] + k->overlap;
        int64_t next = last ? end : k->rows[i + 1] - k->overlap;
        ckpt_tensor y = code(k->m, k->t, &k->style, rows_of(k, x, in, 0, top, bottom));
        if (i)
            piece[n++] = mix(k, rows_of(k, above, out, above_from, top, clear),
                             rows_of(k, y, out, top, top, clear));
        if (clear < next)
            piece[n++] = rows_of(k, y, out, top, clear, next);
        above = y;
        above_from = top;
    }
    return ckpt_concat(k->t, 1, n, piece);
}

static ckpt_tensor encode_blended(const struct tiler *k, ckpt_tensor x)
{
    return blend(k, x, vae_factor(&k->m->config), 1, vae_encode_frames);
}

static ckpt_tensor decode_blended(const struct tiler *k, ckpt_tensor z)
{
    return blend(k, z, 1, vae_factor(&k->m->config), vae_decode_frames);
}

/* Bands share a quarter of their rows, at least two rows of latents.  The weights change linearly
 * over the shared rows of the result, of which there are scale for each row of latents. */
static void set_shares(struct tiler *k, int64_t rows, int64_t scale)
{
    float share[2][1024];
    int64_t n;

    k->overlap = rows / k->n / 8 > 1 ? rows / k->n / 8 : 1;
    while (2 * k->overlap * scale > 1024)
        k->overlap--;
    n = 2 * k->overlap * scale;
    for (int64_t i = 0; i < n; i++) {
        share[1][i] = ((float)i + 0.5f) / (float)n;
        share[0][i] = 1.f - share[1][i];
    }
    for (int i = 0; i < 2; i++)
        k->share[i] = ckpt_constant(k->t, i ? "share of the band below" : "share of the band above",
                                    CKPT_F32, 4, (int64_t[]){1, n, 1, 1}, share[i]);
}

/* ---- frames --------------------------------------------------------------------------------- */

typedef ckpt_tensor (*record_bands)(const struct tiler *k, ckpt_tensor x);

/* Blended bands need two rows each, and give up to two pieces each.  A model of one level has no
 * layers to cut. */
static int bands_of(const struct vae *m, struct vae_cut cut, int64_t rows)
{
    int64_t most = cut.blend ? rows / 2 : rows, pieces = cut.blend ? MOST / 2 : MOST;
    int64_t n = cut.bands < most ? cut.bands : most;

    if (n < 2 || m->config.spatial.levels < 2 || (cut.blend && rows < 4))
        return 1;
    return (int)(n < pieces ? n : pieces);
}

/* Frames of [B, T, ...], part at a time, each part in bands; rows: of the latents; scale: rows of
 * the result per row of latents. */
static ckpt_tensor in_bands(const struct vae *m, ckpt_tape *t, ckpt_tensor x, struct vae_cut cut,
                            int64_t rows, int64_t scale, record_bands record)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    struct tiler k = {.m = m, .t = t, .style = vae_spatial_style(m, true)};
    int64_t frames = d.shape[0] * d.shape[1], part = cut.part;
    ckpt_tensor out[CKPT_MAX_PARTS];
    int n = 0;

    k.n = bands_of(m, cut, rows);
    if (cut.blend && k.n > 1)
        set_shares(&k, rows, scale);
    for (int i = 0; i <= k.n; i++)
        k.rows[i] = rows * i / k.n;
    if (frames > MOST * MOST) {
        ckpt_tape_fail(t, CKPT_ESHAPE, "%lld frames; there can be up to %d", (long long)frames,
                       MOST * MOST);
        return CKPT_NONE;
    }
    part = part < 1 || part > frames ? frames : part;
    part = part > MOST ? MOST : part;
    if ((frames + part - 1) / part > MOST)
        part = (frames + MOST - 1) / MOST;
    x = ckpt_reshape(t, x, 4, (int64_t[]){frames, d.shape[2], d.shape[3], d.shape[4]});
    x = ckpt_cast(t, x, m->config.dtype);
    for (int64_t at = 0; at < frames; at += part)
        out[n++] = record(&k, vae_part(t, x, 0, at, at + part < frames ? at + part : frames));
    x = n > 1 ? ckpt_concat(t, 0, n, out) : out[0];
    int64_t batch = d.shape[0];
    d = ckpt_desc_of(t, x);
    return ckpt_reshape(t, x, 5,
                        (int64_t[]){batch, frames / batch, d.shape[1], d.shape[2], d.shape[3]});
}

ckpt_tensor vae_tiled_encode(const struct vae *m, ckpt_tape *t, ckpt_tensor x, struct vae_cut cut)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    int64_t rows = d.ndim == 5 ? d.shape[2] / vae_factor(&m->config) : 0;
    bool blends = cut.blend && bands_of(m, cut, rows) > 1;

    if (d.ndim != 5)
        return CKPT_NONE;
    return in_bands(m, t, x, cut, rows, 1, blends ? encode_blended : encode_bands);
}

ckpt_tensor vae_tiled_decode(const struct vae *m, ckpt_tape *t, ckpt_tensor z, struct vae_cut cut)
{
    struct ckpt_desc d = ckpt_desc_of(t, z);
    bool blends = d.ndim == 5 && cut.blend && bands_of(m, cut, d.shape[2]) > 1;

    if (d.ndim != 5)
        return CKPT_NONE;
    return in_bands(m, t, ckpt_affine(t, z, 1.f / VAE_FACTOR, 0.f), cut, d.shape[2],
                    vae_factor(&m->config), blends ? decode_blended : decode_bands);
}

int vae_cuts(struct vae_cut cut[VAE_CUTS], int64_t frames, int64_t rows)
{
    int n = 0;

    for (int64_t part = frames; part > 1; part = part > 8 ? 8 : part > 4 ? 4 : 1)
        cut[n++] = (struct vae_cut){part, 1, false};
    for (int64_t bands = 1; bands <= rows && bands <= 16; bands *= 2)
        cut[n++] = (struct vae_cut){1, bands, false};
    return n;
}
