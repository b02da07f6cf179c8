/* SPDX-License-Identifier: Apache-2.0 */
/* Precomputed features from a safetensors file: z, y, mask, fps, and tensors that replace random
 * draws. */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "dataset.h"

static bool is_float(const char *dtype)
{
    return dtype[0] == 'F' || dtype[0] == 'B'; /* F64, F32, F16, BF16; also BOOL */
}

static void shape_text(char *dst, size_t size, int ndim, const int64_t *shape)
{
    size_t at = 0;

    dst[0] = 0;
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(dst + at, size - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

/* Finds a tensor and checks its shape; a size of -1 matches any.  Returns its index, or -1. */
static int find(ckpt_file *f, const char *path, const char *name, int ndim, const int64_t *shape,
                struct ckpt_file_entry *e)
{
    char found[128], wanted[128];
    int i = ckpt_file_find(f, name);

    if (i < 0 || ckpt_file_entry(f, i, e))
        return say_fail("%s: has no tensor \"%s\"", path, name);
    bool fits = e->ndim == ndim;
    for (int axis = 0; fits && axis < ndim; axis++)
        fits = shape[axis] < 0 ? e->shape[axis] > 0 : e->shape[axis] == shape[axis];
    if (fits)
        return i;
    shape_text(found, sizeof found, e->ndim, e->shape);
    shape_text(wanted, sizeof wanted, ndim, shape);
    return say_fail("%s: \"%s\" is [%s]; [%s] is expected (-1: any size)", path, name, found,
                    wanted);
}

static void *read_as_int(ckpt_file *f, int i, int64_t n)
{
    int32_t *x = malloc((size_t)n * sizeof *x);

    if (x && ckpt_file_read_i32(f, i, x, n)) {
        free(x);
        return NULL;
    }
    return x;
}

static void *read_as_float(ckpt_file *f, int i, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);

    if (x && ckpt_file_read_f32(f, i, x, n)) {
        free(x);
        return NULL;
    }
    return x;
}

/* Integers may be stored as floats and floats as integers. */
static void *convert(void *from, int64_t n, bool to_float)
{
    for (int64_t i = 0; from && i < n; i++) {
        if (to_float)
            ((float *)from)[i] = (float)((int32_t *)from)[i];
        else
            ((int32_t *)from)[i] = ((float *)from)[i] != 0;
    }
    return from;
}

static void *load(ckpt_file *f, const char *path, const char *name, int ndim, const int64_t *shape,
                  bool as_float)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int i = find(f, path, name, ndim, shape, &e);
    void *x;

    if (i < 0)
        return NULL;
    bool stored_float = is_float(e.dtype) && strcmp(e.dtype, "BOOL");
    x = stored_float ? read_as_float(f, i, e.numel) : read_as_int(f, i, e.numel);
    if (!x)
        say_fail("%s: \"%s\" cannot be read: %s", path, name, ckpt_error(NULL));
    else if (stored_float != as_float)
        convert(x, e.numel, as_float);
    return x;
}

float *stdit_tensor(ckpt_file *f, const char *path, const char *name, int ndim,
                    const int64_t *shape)
{
    return load(f, path, name, ndim, shape, true);
}

static bool has(const ckpt_file *f, const char *name)
{
    return ckpt_file_find(f, name) >= 0;
}

/* y and mask of `rows` samples, or of any number.  Open-Sora's files have y as [rows, 1, L, C]. */
static int load_text(struct stdit_data *d, ckpt_file *f, const char *path, int64_t rows)
{
    struct ckpt_file_entry y = CKPT_FILE_ENTRY_INIT;
    int i = ckpt_file_find(f, "y");
    bool open_sora = i >= 0 && !ckpt_file_entry(f, i, &y) && y.ndim == 4;
    int64_t shape[] = {rows, open_sora ? 1 : -1, -1, -1};

    if (find(f, path, "y", open_sora ? 4 : 3, shape, &y) < 0)
        return -1;
    d->text_rows = y.shape[0];
    d->tokens = y.shape[y.ndim - 2];
    d->caption_channels = y.shape[y.ndim - 1];
    d->y = load(f, path, "y", y.ndim, y.shape, true);
    d->mask = load(f, path, "mask", 2, (int64_t[]){d->text_rows, d->tokens}, false);
    return d->y && d->mask ? 0 : -1;
}

static int load_required(struct stdit_data *d, ckpt_file *f, const char *path)
{
    struct ckpt_file_entry z = CKPT_FILE_ENTRY_INIT;

    if (find(f, path, "z", 5, (int64_t[]){-1, -1, -1, -1, -1}, &z) < 0)
        return -1;
    d->rows = z.shape[0];
    d->channels = z.shape[1];
    d->shape->geometry = (struct stdit_geometry){.frames = z.shape[2],
                                                 .height = z.shape[3],
                                                 .width = z.shape[4],
                                                 .pixel_height = 8.0 * (double)z.shape[3],
                                                 .pixel_width = 8.0 * (double)z.shape[4]};
    if (load_text(d, f, path, d->rows))
        return -1;
    d->z = load(f, path, "z", 5, z.shape, true);
    d->fps = load(f, path, "fps", 1, &d->rows, true);
    return d->z && d->fps ? 0 : -1;
}

/* As in Open-Sora, the first sample's size determines the position table of all samples. */
static int load_size(struct stdit_data *d, ckpt_file *f, const char *path, const char *name,
                     double *value)
{
    if (!has(f, name))
        return 0;
    float *size = load(f, path, name, 1, &d->rows, true);
    if (!size)
        return -1;
    *value = size[0];
    free(size);
    return *value >= 1 ? 0 : say_fail("%s: \"%s\" must be at least 1 pixel", path, name);
}

/* A clip without a noised frame has no loss: Open-Sora's is 0 / 0 there. */
static int check_masks(const struct stdit_data *d, const char *path)
{
    const int64_t frames = d->shape->geometry.frames;

    for (int64_t row = 0; row < d->rows; row++) {
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

static int load_optional(struct stdit_data *d, ckpt_file *f, const char *path)
{
    struct stdit_geometry *g = &d->shape->geometry;

    if (has(f, "t") && !(d->t = load(f, path, "t", 1, &d->rows, true)))
        return -1;
    if (has(f, "eps") &&
        !(d->eps = load(f, path, "eps", 5,
                        (int64_t[]){d->rows, d->channels, g->frames, g->height, g->width}, true)))
        return -1;
    if (has(f, "x_mask") &&
        (!(d->x_mask = load(f, path, "x_mask", 2, (int64_t[]){d->rows, g->frames}, false)) ||
         check_masks(d, path)))
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

int stdit_data_text(struct stdit_data *d, const char *path)
{
    ckpt_file *f;

    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = load_text(d, f, path, -1);
    ckpt_file_close(f);
    return rc;
}

int stdit_data_features(struct stdit_data *d, const char *path)
{
    ckpt_file *f;

    if (stdit_data_shapes(d, 1))
        return -1;
    if (ckpt_file_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = load_required(d, f, path);
    if (!rc)
        rc = load_optional(d, f, path);
    if (!rc)
        report_unknown(f, path);
    ckpt_file_close(f);
    snprintf(d->title, sizeof d->title, "features: %s, %lld samples", path, (long long)d->rows);
    return rc;
}
