/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scales of 8-bit weights: files of quantized models have codes in NAME (float8 or I8) and, beside
 * it, what they are multiplied by.  Names of scales, after NAME: "_scale" (compressed-tensors,
 * FBGEMM) and
 * "_scale_inv" (DeepSeek, which multiplies by it all the same); "scale_weight" in place of
 * "weight".  There is one for the tensor, one for each row or column, or one for each block of 128
 * x 128.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "state/safetensors.h"

enum { SCALE_BLOCK = 128 };

static bool has_codes(const struct file_tensor *e)
{
    return file_is_int8(e) || (!strncmp(e->dtype->name, "F8_E", 4) && e->dtype->to_f32);
}

bool file_is_int8(const struct file_tensor *e)
{
    return !strcmp(e->dtype->name, "I8");
}

int file_find_scale(const ckpt_file *f, int entry)
{
    static const char *const endings[] = {"_scale", "_scale_inv"};
    const struct file_tensor *e = &f->tensors[entry];
    size_t n = strlen(e->name), weight = strlen("weight");
    char name[512];
    int found = -1;

    if (!has_codes(e))
        return -1;
    for (int i = 0; i < 2 && found < 0; i++)
        if (snprintf(name, sizeof name, "%s%s", e->name, endings[i]) < (int)sizeof name)
            found = ckpt_file_find(f, name);
    if (found < 0 && n >= weight && !strcmp(e->name + n - weight, "weight") &&
        snprintf(name, sizeof name, "%.*sscale_weight", (int)(n - weight), e->name) <
            (int)sizeof name)
        found = ckpt_file_find(f, name);
    return found;
}

static int64_t blocks(int64_t n)
{
    return (n + SCALE_BLOCK - 1) / SCALE_BLOCK;
}

/* Files of weights [in, out], as GPT-2's, have a scale for each column. */
static bool is_of_columns(const struct file_tensor *e, const struct file_tensor *scale)
{
    return e->ndim == 2 && scale->ndim == 2 && scale->shape[0] == 1 && e->shape[0] > 1 &&
           scale->shape[1] == e->shape[1];
}

int file_check_scale(const struct file_tensor *e, const struct file_tensor *scale)
{
    int64_t rows = e->ndim ? e->shape[0] : 1;
    bool by_block = e->ndim == 2 && scale->ndim == 2 && scale->shape[0] == blocks(rows) &&
                    scale->shape[1] == blocks(e->shape[1]);

    if (!scale->dtype->to_f32)
        return file_bad(e->part->path, "scale '%s' is %s and cannot be read as fp32", scale->name,
                        scale->dtype->name);
    if (scale->numel == 1 || is_of_columns(e, scale) ||
        (scale->numel == rows && scale->ndim && scale->shape[0] == rows) || by_block)
        return 0;
    return file_bad(e->part->path,
                    "'%s' has %lld scales for the %lld rows of '%s'; known are one, one for each "
                    "row, and one for each block of %d x %d",
                    scale->name, (long long)scale->numel, (long long)rows, e->name, SCALE_BLOCK,
                    SCALE_BLOCK);
}

/* The scales of row i: n of them, each for `width` columns. */
static void scale_row(float *row, int64_t columns, const float *scale, int64_t width)
{
    for (int64_t c = 0; c < columns; c++)
        row[c] *= scale[c / width];
}

int file_apply_scale(ckpt_file *f, int entry, int scale, float *values)
{
    const struct file_tensor *e = &f->tensors[entry], *s = &f->tensors[scale];
    int64_t rows = e->ndim ? e->shape[0] : 1, columns = rows ? e->numel / rows : 0;
    float *by = malloc((size_t)s->numel * sizeof *by + 1);
    int rc = by ? ckpt_file_read_f32(f, scale, by, s->numel)
                : error_set(CKPT_ENOMEM, "%s: no memory for scales", f->path);

    for (int64_t i = 0; i < rows && !rc; i++) {
        float *row = values + i * columns;
        if (s->numel == 1)
            scale_row(row, columns, by, columns);
        else if (is_of_columns(e, s))
            scale_row(row, columns, by, 1);
        else if (s->numel == rows)
            scale_row(row, columns, by + i, columns);
        else
            scale_row(row, columns, by + i / SCALE_BLOCK * s->shape[1], SCALE_BLOCK);
    }
    free(by);
    return rc;
}
