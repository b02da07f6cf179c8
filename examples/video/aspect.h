/* SPDX-License-Identifier: Apache-2.0 */
/* The frame sizes of Open-Sora 1.2's buckets: a nominal size, such as 480p, and aspect ratios. */
#ifndef VIDEO_ASPECT_H
#define VIDEO_ASPECT_H

#include <stdint.h>

struct aspect_size {
    const char *name;
    int64_t pixels; /* nominal, of a frame */
    int64_t unit;   /* sides are multiples of it; 0: computed from pixels and ratio */
};

/* NULL: unknown size. */
const struct aspect_size *aspect_find(const char *name);
/* The names of all sizes, for a sentence: "144p, 256, ...". */
const char *aspect_names(void);

/* The number of ratios of a size; the label of one, height over width in hundredths; its frame. */
int aspect_count(const struct aspect_size *s);
int aspect_label(const struct aspect_size *s, int ratio);
void aspect_frame(const struct aspect_size *s, int ratio, int64_t *height, int64_t *width);

/* The ratio whose label is nearest to height over width; the first if several are equally near. */
int aspect_nearest(const struct aspect_size *s, int64_t height, int64_t width);

#endif
