/* SPDX-License-Identifier: Apache-2.0 */
/* How a stored picture is displayed: the eight orientations of quarter turns and mirrors. */
#ifndef EXAMPLES_ORIENTATION_H
#define EXAMPLES_ORIENTATION_H

#include <stdbool.h>
#include "resize.h"

/* From the stored picture to the displayed one: first transposed, then mirrored. */
struct orientation {
    bool transposed, mirrors_x, mirrors_y;
};

/* Reads a display matrix of FFmpeg (NULL: none).  Returns 0, or -1 if it turns by another angle. */
int orientation_read(struct orientation *o, const int32_t *matrix);

/* The displayed picture of stored RGB pixels; line: bytes of a stored row. */
struct pixels orientation_apply(const struct orientation *o, const uint8_t *rgb, int64_t width,
                                int64_t height, ptrdiff_t line);

#endif
