/* SPDX-License-Identifier: Apache-2.0 */
/* Writes pictures: 8-bit RGB PNG, compressed where zlib is there. */
#ifndef EXAMPLES_PNG_H
#define EXAMPLES_PNG_H

#include <stdint.h>
#include <stdio.h>

/* rgb is [height][width][3].  f stays open.  Returns 0 or a negative errno. */
int png_write(FILE *f, int width, int height, const uint8_t *rgb);

/*
 * Writes a clip [frames][height][width][3] as one strip: the frames side by side with a gap of one
 * white pixel, every pixel drawn zoom x zoom.  Returns 0 or a negative errno.
 */
int png_write_strip(FILE *f, int frames, int height, int width, const uint8_t *rgb, int zoom);

#endif
