/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes with their label maps, from a list, and random patches of them. */
#ifndef VOLUME_DATASET_H
#define VOLUME_DATASET_H

#include "volume.h"

enum { VOLUME_CLASSES = 255 };

/* Option rows of both programs, for structs that have members of these names. */
#define VOLUME_UNET_ROWS                                                                           \
    RANGE("levels", INT, levels, "N",                                                              \
          "levels of the U-Net, each at half the resolution of the one before (default 5)", 1,     \
          UNET_LEVELS),                                                                            \
        RANGE("width", INT, width, "N",                                                            \
              "channels of the first level, doubled at each further one (default 32)", 1, 4096),   \
        RANGE("max-width", INT, widest, "N",                                                       \
              "largest number of channels of a level (default 320)", 1, 65536),                    \
        DTYPE_ROW
#define VOLUME_CLASSES_ROW                                                                         \
    RANGE("classes", INT, classes, "N",                                                            \
          "classes, including the background (default: from dataset.json, else 2)", 2,             \
          VOLUME_CLASSES)
#define VOLUME_UNPACK_ROW                                                                          \
    ROW("unpack", STRING, unpack, "DIR",                                                           \
        "directory in which compressed volumes are unpacked, to unnamed files (default: $TMPDIR, " \
        "else /tmp)")

/* The scaling of image values. */
struct volume_intensity {
    bool window;      /* else z-score of the nonzero voxels; only they change */
    double low, high; /* window: values are clamped to it and map to [0, 1] */
};

/* Parses the option "ct:LOW,HIGH" or "mr"; NULL: not given, mr.  Returns 0, or -1 after an error
 * message. */
int volume_intensity_parse(struct volume_intensity *n, const char *text);

/* Voxels of one class: all of them, or an evenly spaced subset if there are many. */
struct volume_places {
    int64_t *at; /* in the order of the file */
    int64_t n, seen, stride;
};

struct volume_case {
    struct volume image, label;
    double mean, deviation;       /* for the z-score */
    struct volume_places *places; /* per class */
};

struct volume_set {
    struct volume_case *cases;
    int64_t n;
    int64_t classes; /* including the background, 0; if 0: from the list, else 2 */
    struct volume_intensity intensity;
    bool unlabelled; /* images without label maps are allowed */
};

/*
 * Opens all volumes of a list: dataset.json in the format of the Medical Segmentation Decathlon, or
 * a CSV file with columns image and label; names are relative to the list.  Reads every label map
 * once and checks its values, size and position.  Returns 0, or -1 after an error message.
 */
int volume_set_open(struct volume_set *s, const char *path, const char *unpack);
void volume_set_close(struct volume_set *s);

/* Reads the scaled values of a box, which may extend beyond the image: 0 there.  Returns 0 or
 * -1. */
int volume_take_image(const struct volume_set *s, const struct volume_case *c, const int64_t at[3],
                      const int64_t size[3], float *to);

/* The settings of random patches. */
struct volume_draw {
    int64_t size[3];
    double foreground; /* fraction of patches around a voxel of a class other than 0 */
    bool flips;        /* along each axis with probability 1/2 */
    uint64_t seed;
};

/* Reads patch number `sample` of a run.  The patch depends only on this number and the settings.
 * Returns 0 or -1. */
int volume_take_patch(const struct volume_set *s, const struct volume_draw *d, int64_t sample,
                      float *image, int32_t *label);

#endif
