/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes with their label maps, as a list names them, and random patches of them. */
#ifndef VOLUME_DATASET_H
#define VOLUME_DATASET_H

#include "volume.h"

enum { VOLUME_CLASSES = 255 };

/* How the values of images are scaled. */
struct volume_intensity {
    bool window;      /* else z-score: of the voxels that are not 0, which alone are changed */
    double low, high; /* window: values are cut there, and go to 0 and 1 */
};

/* "ct:LOW,HIGH" or "mr" of an option; NULL: not given, mr.  Returns 0, or -1 after a sentence. */
int volume_intensity_parse(struct volume_intensity *n, const char *text);

/* Voxels of one class: all of them, or evenly spread ones where there are many. */
struct volume_places {
    int64_t *at; /* in the order of the file */
    int64_t n, seen, stride;
};

struct volume_case {
    struct volume image, label;
    double mean, deviation;       /* for the z-score */
    struct volume_places *places; /* of each class */
};

struct volume_set {
    struct volume_case *cases;
    int64_t n;
    int64_t classes; /* with the background, which is 0; given, or 0: those of the list, else 2 */
    struct volume_intensity intensity;
    bool unlabelled; /* images may be without label maps */
};

/*
 * Opens all volumes of a list: dataset.json as the Medical Segmentation Decathlon has it, or a CSV
 * file with columns image and label; names are relative to the list.  Every label map is read once:
 * values, size and place are checked.  Returns 0, or -1 after a sentence.
 */
int volume_set_open(struct volume_set *s, const char *path, const char *unpack);
void volume_set_close(struct volume_set *s);

/* The scaled values of a box, which may reach beyond the image: 0 there.  Returns 0 or -1. */
int volume_take_image(const struct volume_set *s, const struct volume_case *c, const int64_t at[3],
                      const int64_t size[3], float *to);

/* What a patch is drawn by. */
struct volume_draw {
    int64_t size[3];
    double foreground; /* share of patches around a voxel of a class other than 0 */
    bool flips;        /* along each axis with probability 1/2 */
    uint64_t seed;
};

/* Patch number `sample` of a run, which follows from it and the draw alone.  Returns 0 or -1. */
int volume_take_patch(const struct volume_set *s, const struct volume_draw *d, int64_t sample,
                      float *image, int32_t *label);

#endif
