/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resizes 8-bit RGB pictures, with the same numbers as Open-Sora 1.2:
 *
 *   frames of videos   bilinear without antialiasing, as torch's interpolate (align_corners false)
 *   images             bicubic with antialiasing, bit for bit as Pillow's BICUBIC
 *
 * Values are rounded to the nearest byte; Open-Sora keeps the fractions of frames.
 */
#ifndef EXAMPLES_RESIZE_H
#define EXAMPLES_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A picture in display orientation, whatever the order of its bytes in memory. */
struct pixels {
    const uint8_t *at;     /* red of the top left pixel; green and blue follow it */
    ptrdiff_t right, down; /* bytes to the next pixel, to the next row */
    int64_t width, height;
};

/* The size of the result. */
struct picture_size {
    int64_t width, height;
    bool covers; /* keep the aspect ratio: scale to the smallest size that covers this one, then
                    crop the middle */
};

/* The scaled size of the source, and the offset of the crop in it. */
struct picture_part {
    int64_t width, height, left, top; /* scaled size; offset of the crop */
};

/* Weights for one pair of sizes, recomputed when the sizes change; initialize with {0}. */
struct resize {
    struct picture_part part;
    struct picture_size to;
    int64_t from_width, from_height;
    bool image;
    struct resize_axis {
        int32_t *first, *n; /* per pixel: first source pixel, and how many (bilinear: minus 1) */
        float *share;       /* bilinear: weight of the second of two pixels, three times each */
        bool plain;      /* bilinear: pixels are copied unchanged from consecutive source pixels */
        int32_t *weight; /* bicubic: [pixels][most] */
        int32_t most;
    } across, down;
    uint8_t *rows;       /* bicubic: result of the first pass; bilinear: pixels of a row */
    float *line[2];      /* bilinear: rows at the width of the result ... */
    int32_t line_row[2]; /* ... and their indices; -1: none */
};

/* Resizes into to [height][width][3].  Returns 0, or -1 if memory is short. */
int resize_run(struct resize *r, const struct pixels *from, const struct picture_size *size,
               bool image, uint8_t *to);
void resize_free(struct resize *r);

#endif
