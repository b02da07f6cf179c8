/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings pictures of 8-bit RGB to a size, with the numbers of Open-Sora 1.2:
 *
 *   frames of videos   bilinear without antialiasing, as torch's interpolate (align_corners false)
 *   images             bicubic over the area a pixel shrinks from, as Pillow's BICUBIC, to the bit
 *
 * Values are rounded to the nearest byte; Open-Sora keeps the fractions of frames.
 */
#ifndef EXAMPLES_RESIZE_H
#define EXAMPLES_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A picture as it is to be seen, whichever way its bytes stand. */
struct pixels {
    const uint8_t *at;     /* red of the top left pixel; green and blue follow it */
    ptrdiff_t right, down; /* bytes to the next pixel, to the next row */
    int64_t width, height;
};

/* What pictures are brought to. */
struct picture_size {
    int64_t width, height;
    bool covers; /* the shape is kept: the middle of the smallest size that covers this one */
};

/* Where such a picture lies in the whole that its source is scaled to. */
struct picture_part {
    int64_t width, height, left, top; /* of the whole; of the part in it */
};
struct picture_part picture_part_of(const struct picture_size *s, int64_t width, int64_t height,
                                    bool image);

/* Weights for one pair of sizes, made anew when these change; {0} before the first use. */
struct resize {
    struct picture_part part;
    struct picture_size to;
    int64_t from_width, from_height;
    bool image;
    struct resize_axis {
        int32_t *first, *n; /* source pixels of each pixel */
        float *share;       /* bilinear: of the second of two, three times each */
        bool plain;         /* bilinear: pixels of the source as they are, one after the other */
        int32_t *weight;    /* bicubic: [pixels][most] */
        int32_t most;
    } across, down;
    uint8_t *rows;  /* bicubic: what the first of two passes gives; bilinear: pixels of a row */
    float *line[2]; /* bilinear: rows at the width of the result ... */
    int32_t line_row[2]; /* ... and which ones; -1: none */
};

/* Into to [height][width][3].  Returns 0, or -1 without memory. */
int resize_run(struct resize *r, const struct pixels *from, const struct picture_size *size,
               bool image, uint8_t *to);
void resize_free(struct resize *r);

#endif
