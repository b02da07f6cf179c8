/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The published tiling of the decoder.  The overlap with the tile above, and then with the tile on
 * the left, is blended linearly; those neighbours are already blended.  Each tile writes the area
 * that no later tile covers.  Norms, attention or convolutions do not see the rest of the frame, so
 * the result differs from decoding the whole frame.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "coder.h"

/* All tiles of the frames of latents. */
struct tiling {
    struct autoencoder_tiles size;
    int64_t frames, height, width; /* of the latents */
    int64_t n_down, n_right;       /* number of tiles */
    int64_t factor, out, channels; /* pixels per latent cell; output frames and channels */
};

static struct tiling tiling_of(const struct video_coder *k, int64_t frames, int64_t height,
                               int64_t width)
{
    const struct autoencoder_sizes *c = &k->sizes;
    const struct autoencoder_clip clip = {.frames = frames, .decode = true};
    struct tiling t = {.size = c->tiles,
                       .frames = frames,
                       .height = height,
                       .width = width,
                       .factor = c->factor,
                       .out = autoencoder_clip_out(k->kind, k->own, &clip),
                       .channels = c->channels};

    t.n_down = (height + t.size.down - 1) / t.size.down;
    t.n_right = (width + t.size.right - 1) / t.size.right;
    return t;
}

bool video_coder_tiles(const struct video_coder *k, int64_t height, int64_t width)
{
    struct tiling t = tiling_of(k, 1, height, width);

    return height > t.size.rows || width > t.size.columns;
}

/* A decoded tile, [frames, height, width, channels]. */
struct tile {
    int64_t height, width;
    float *y;
};

static int64_t up_to(int64_t from, int64_t size, int64_t all)
{
    return from + size < all ? size : all - from;
}

static int compile_tile(struct video_coder *k, const struct tiling *t, int64_t i, int64_t j)
{
    return video_coder_compile(k, t->frames, up_to(i * t->size.down, t->size.rows, t->height),
                               up_to(j * t->size.right, t->size.columns, t->width));
}

static int decode_tile(struct video_coder *k, const struct tiling *t, const float *z, int64_t i,
                       int64_t j, struct tile *to)
{
    int64_t rows = up_to(i * t->size.down, t->size.rows, t->height), latent = k->sizes.latent;
    int64_t columns = up_to(j * t->size.right, t->size.columns, t->width);
    float *part = MEMORY_FOR(sizeof *part, t->frames, rows * columns, latent);
    int64_t at = 0;
    int rc = 0;

    to->height = rows * t->factor;
    to->width = columns * t->factor;
    to->y = MEMORY_FOR(sizeof *to->y, t->out, to->height * to->width, t->channels);
    if (!part || !to->y) {
        free(part);
        return say_fail("no memory for a tile");
    }
    for (int64_t f = 0; f < t->frames; f++)
        for (int64_t r = 0; r < rows; r++)
            memcpy(part + (f * rows + r) * columns * latent,
                   z + ((f * t->height + i * t->size.down + r) * t->width + j * t->size.right) *
                           latent,
                   (size_t)(columns * latent) * sizeof *z);
    rc = compile_tile(k, t, i, j) || video_coder_run(k, part);
    for (int64_t pass = 0; pass < k->passes.n && !rc; pass++) {
        rc = video_coder_take(k, pass, to->y + at);
        at += video_coder_pass_out(k, pass) * video_coder_out(k);
    }
    free(part);
    return rc ? -1 : 0;
}

/* Blends row (or column) y of the overlap of `by` and `to`, which has `extent` rows. */
static void mix(float *to, const float *by, int64_t values, int64_t y, int64_t extent)
{
    float share = (float)y / (float)extent;

    for (int64_t i = 0; i < values; i++)
        to[i] = by[i] * (1.f - share) + to[i] * share;
}

static int64_t least(int64_t a, int64_t b, int64_t c)
{
    int64_t n = a < b ? a : b;

    return n < c ? n : c;
}

static void blend_down(const struct tiling *t, const struct tile *above, struct tile *to)
{
    int64_t extent = least(above->height, to->height, t->size.blend_rows);
    int64_t line = to->width * t->channels;

    for (int64_t f = 0; f < t->out; f++)
        for (int64_t y = 0; y < extent; y++)
            mix(to->y + (f * to->height + y) * line,
                above->y + ((f + 1) * above->height - extent + y) * line, line, y, extent);
}

static void blend_right(const struct tiling *t, const struct tile *left, struct tile *to)
{
    int64_t extent = least(left->width, to->width, t->size.blend_columns);

    for (int64_t row = 0; row < t->out * to->height; row++)
        for (int64_t x = 0; x < extent; x++)
            mix(to->y + (row * to->width + x) * t->channels,
                left->y + ((row + 1) * left->width - extent + x) * t->channels, t->channels, x,
                extent);
}

/* Copies a tile's part of the output into the frames. */
static void put_tile(const struct tiling *t, const struct tile *tile, int64_t i, int64_t j,
                     float *y)
{
    int64_t down = t->size.down * t->factor, right = t->size.right * t->factor;
    int64_t rows = tile->height < down ? tile->height : down;
    int64_t columns = tile->width < right ? tile->width : right;
    int64_t width = t->width * t->factor, height = t->height * t->factor;

    for (int64_t f = 0; f < t->out; f++)
        for (int64_t r = 0; r < rows; r++)
            memcpy(y + ((f * height + i * down + r) * width + j * right) * t->channels,
                   tile->y + (f * tile->height + r) * tile->width * t->channels,
                   (size_t)(columns * t->channels) * sizeof *y);
}

/* Decodes one row of tiles; before (NULL: none) is the row above, already blended. */
static int decode_row(struct video_coder *k, const struct tiling *t, const float *z, int64_t i,
                      const struct tile *before, struct tile *row, float *y)
{
    for (int64_t j = 0; j < t->n_right; j++) {
        if (decode_tile(k, t, z, i, j, &row[j]))
            return -1;
        if (before)
            blend_down(t, &before[j], &row[j]);
        if (j)
            blend_right(t, &row[j - 1], &row[j]);
        put_tile(t, &row[j], i, j, y);
    }
    return 0;
}

static void free_row(const struct tiling *t, struct tile *row)
{
    for (int64_t j = 0; j < t->n_right; j++) {
        free(row[j].y);
        row[j].y = NULL;
    }
}

int video_coder_decode_tiled(struct video_coder *k, const float *z, int64_t frames, int64_t height,
                             int64_t width, float *y)
{
    struct tiling t = tiling_of(k, frames, height, width);
    struct tile *rows[2] = {calloc((size_t)t.n_right, sizeof(struct tile)),
                            calloc((size_t)t.n_right, sizeof(struct tile))};
    int rc = rows[0] && rows[1] ? 0 : say_fail("no memory for tiles");

    for (int64_t i = 0; i < t.n_down && !rc; i++) {
        free_row(&t, rows[i % 2]);
        rc = decode_row(k, &t, z, i, i ? rows[(i + 1) % 2] : NULL, rows[i % 2], y);
    }
    for (int i = 0; i < 2 && rows[0] && rows[1]; i++)
        free_row(&t, rows[i]);
    free(rows[0]);
    free(rows[1]);
    return rc;
}

/* Tiles have at most two heights and two widths: of the first and of the last tile.  The largest is
 * compiled last and stays. */
int video_coder_prepare_tiled(struct video_coder *k, int64_t frames, int64_t height, int64_t width)
{
    struct tiling t = tiling_of(k, frames, height, width);

    return compile_tile(k, &t, t.n_down - 1, t.n_right - 1) || compile_tile(k, &t, 0, 0) ? -1 : 0;
}
