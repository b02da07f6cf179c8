/* SPDX-License-Identifier: Apache-2.0 */
/* Precomputed features from a safetensors file: z, y, mask, fps, and tensors that replace random
 * draws. */
#include <stdlib.h>
#include <string.h>
#include "../../common/tensors.h"
#include "dataset.h"

/* y and mask of `rows` samples, or of any number.  Open-Sora's files have y as [rows, 1, L, C]. */
static int load_text(struct video_data *d, ckpt_file *f, const char *path, int64_t rows)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int i = ckpt_file_find(f, "y");
    int open_sora = i >= 0 && !ckpt_file_entry(f, i, &e) && e.ndim == 4;
    int64_t shape[] = {rows, open_sora ? 1 : -1, -1, -1};

    d->y = tensor_read(f, path, "y", 3 + open_sora, shape);
    if (!d->y)
        return -1;
    d->text_rows = shape[0];
    d->tokens = shape[1 + open_sora];
    d->text_width = shape[2 + open_sora];
    d->mask = tensor_read_flags(f, path, "mask", 2, (int64_t[]){d->text_rows, d->tokens});
    return d->mask ? 0 : -1;
}

static int load_required(struct video_data *d, ckpt_file *f, const char *path)
{
    int64_t z[] = {-1, -1, -1, -1, -1};

    d->z = tensor_read(f, path, "z", 5, z);
    if (!d->z)
        return -1;
    d->shapes.rows = z[0];
    d->channels = z[1];
    d->shapes.shape->geometry = (struct video_geometry){.frames = z[2],
                                                        .height = z[3],
                                                        .width = z[4],
                                                        .pixel_height = 8.0 * (double)z[3],
                                                        .pixel_width = 8.0 * (double)z[4]};
    if (load_text(d, f, path, d->shapes.rows))
        return -1;
    d->fps = tensor_read(f, path, "fps", 1, &d->shapes.rows);
    return d->fps ? 0 : -1;
}

/* As in Open-Sora, the first sample's size determines the position table of all samples. */
static int load_size(struct video_data *d, ckpt_file *f, const char *path, const char *name,
                     double *value)
{
    float *size = NULL;

    if (tensor_read_if(f, path, name, 1, &d->shapes.rows, &size))
        return -1;
    if (!size)
        return 0;
    *value = size[0];
    free(size);
    return *value >= 1 ? 0 : say_fail("%s: \"%s\" must be at least 1 pixel", path, name);
}

/* A clip without a noised frame has no loss: Open-Sora's is 0 / 0 there. */
static int check_masks(const struct video_data *d, const char *path)
{
    const int64_t frames = d->shapes.shape->geometry.frames;

    for (int64_t row = 0; row < d->shapes.rows; row++) {
        bool noised = false;
        for (int64_t i = 0; i < frames; i++)
            noised |= d->x_mask[row * frames + i] != 0;
        if (!noised)
            return say_fail("%s: \"x_mask\" has no noised frame in sample %lld, which so has no "
                            "loss; leave it out",
                            path, (long long)row);
    }
    return 0;
}

static int load_optional(struct video_data *d, ckpt_file *f, const char *path)
{
    struct video_geometry *g = &d->shapes.shape->geometry;

    int64_t z[] = {d->shapes.rows, d->channels, g->frames, g->height, g->width};
    int64_t x_mask[] = {d->shapes.rows, g->frames};

    if (tensor_read_if(f, path, "t", 1, z, &d->t) || tensor_read_if(f, path, "eps", 5, z, &d->eps))
        return -1;
    if (ckpt_file_find(f, "x_mask") >= 0 &&
        (!(d->x_mask = tensor_read_flags(f, path, "x_mask", 2, x_mask)) || check_masks(d, path)))
        return -1;
    return load_size(d, f, path, "height", &g->pixel_height) ||
                   load_size(d, f, path, "width", &g->pixel_width)
               ? -1
               : 0;
}

static void report_unknown(const ckpt_file *f, const char *path)
{
    static const char known[] = " z y mask fps t eps x_mask height width ";
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;

    for (int i = 0; i < ckpt_file_count(f); i++) {
        char word[80];
        if (ckpt_file_entry(f, i, &e))
            continue;
        snprintf(word, sizeof word, " %s ", e.name);
        if (!strstr(known, word))
            say_note("%s: \"%s\" is not used", path, e.name);
    }
}

int stdit_data_text(struct video_data *d, const char *path)
{
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = load_text(d, f, path, -1);
    ckpt_file_close(f);
    return rc;
}

int stdit_data_features(struct video_data *d, const char *path)
{
    ckpt_file *f;

    if (video_shapes_make(&d->shapes, 1))
        return -1;
    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = load_required(d, f, path);
    if (!rc)
        rc = load_optional(d, f, path);
    if (!rc)
        report_unknown(f, path);
    ckpt_file_close(f);
    snprintf(d->title, sizeof d->title, "features: %s, %lld samples", path,
             (long long)d->shapes.rows);
    return rc;
}
