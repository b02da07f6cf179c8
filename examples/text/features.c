/* SPDX-License-Identifier: Apache-2.0 */
/* Files of text features: see features.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "../common/tensors.h"
#include "ckpt_files.h"
#include "features.h"

int text_features_open(struct text_features *f, int64_t n)
{
    f->n = n;
    f->ids = MEMORY_FOR(sizeof *f->ids, n, f->length);
    f->lengths = MEMORY_FOR(sizeof *f->lengths, n);
    f->rows = NULL;
    return f->ids && f->lengths ? 0 : say_fail("no memory for %lld prompts", (long long)n);
}

void text_features_close(struct text_features *f)
{
    free(f->ids);
    free(f->lengths);
    free(f->rows);
    f->ids = f->lengths = NULL;
    f->rows = NULL;
}

/* ---- encoding ------------------------------------------------------------------------------ */

/* A batch in flight. */
struct batch {
    int32_t *ids, *lengths;
    char *rows;
};

/* Submits the prompts from `first` on.  After the last prompt the batch is filled with copies of
 * it. */
static int submit(const struct text_features *f, struct text_encoder *e, struct batch *b,
                  int64_t first)
{
    for (int64_t i = 0; i < e->batch; i++) {
        int64_t row = first + i < f->n ? first + i : f->n - 1;
        memcpy(b->ids + i * f->length, f->ids + row * f->length,
               (size_t)f->length * sizeof *f->ids);
        b->lengths[i] = f->lengths[row];
    }
    return text_encoder_submit(e, b->ids, b->lengths);
}

/* Returns the number of prompts in the batch, or -1. */
static int64_t take(struct text_features *f, struct text_encoder *e, struct batch *b, int64_t first)
{
    int64_t row = text_encoder_row(e), n = f->n - first < e->batch ? f->n - first : e->batch;

    if (text_encoder_take(e, b->rows))
        return -1;
    memcpy(f->rows + first * row, b->rows, (size_t)(n * row));
    for (int64_t i = first; e->reading.masked && i < first + n; i++) {
        int64_t valid = f->lengths[i] * (row / f->length);
        memset(f->rows + i * row + valid, 0, (size_t)(row - valid));
    }
    return n;
}

/* Submits the next batch while the device computes one. */
static int encode(struct text_features *f, struct text_encoder *e, struct batch *b,
                  void (*done)(void *user, int64_t n), void *user)
{
    for (int64_t at = 0; at < f->n + e->batch; at += e->batch) {
        if (at < f->n && submit(f, e, b, at))
            return -1;
        int64_t n = at ? take(f, e, b, at - e->batch) : 0;
        if (n < 0)
            return -1;
        if (n && done)
            done(user, n);
    }
    return 0;
}

int text_features_encode(struct text_features *f, struct text_encoder *e,
                         void (*done)(void *user, int64_t n), void *user)
{
    struct batch b = {.ids = MEMORY_FOR(sizeof *b.ids, e->batch, f->length),
                      .lengths = MEMORY_FOR(sizeof *b.lengths, e->batch),
                      .rows = MEMORY_FOR(1, e->batch, text_encoder_row(e))};

    f->rows = MEMORY_FOR((size_t)ckpt_dtype_size(f->dtype), f->n, f->length, f->width);
    int rc =
        !f->rows || !b.ids || !b.lengths || !b.rows
            ? say_fail("no memory for the features of %lld prompts in one file", (long long)f->n)
            : encode(f, e, &b, done, user);
    free(b.ids);
    free(b.lengths);
    free(b.rows);
    return rc;
}

/* ---- files --------------------------------------------------------------------------------- */

static const char *name_of(const struct text_features *f)
{
    return f->family == TEXT_OPENSORA ? "y" : "prompt_embedding";
}

/* 1 for tokens of the prompt, 0 for padding; the caller frees it. */
static int32_t *make_mask(const struct text_features *f)
{
    int32_t *mask = MEMORY_FOR(sizeof *mask, f->n, f->length);

    for (int64_t i = 0; mask && i < f->n * f->length; i++)
        mask[i] = i % f->length < f->lengths[i / f->length];
    return mask;
}

int text_features_write(const struct text_features *f, const char *path)
{
    const int64_t shape[] = {f->n, f->length, f->width};
    int32_t *mask = f->family == TEXT_OPENSORA ? make_mask(f) : NULL;
    const struct tensor all[] = {{name_of(f), f->dtype, 3, shape, f->rows},
                                 {"mask", CKPT_I32, 2, shape, mask},
                                 {"tokens", CKPT_I32, 2, shape, f->ids}};

    if (f->family == TEXT_OPENSORA && !mask)
        return say_fail("no memory for the mask of %lld prompts", (long long)f->n);
    int rc = tensors_write(path, 3, all);
    free(mask);
    return rc;
}

/* Checks that the file has a tensor with that name, type and shape. */
static int find(ckpt_file *file, const char *name, const char *dtype, int ndim,
                const int64_t *shape)
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int i = ckpt_file_find(file, name);

    if (i < 0 || ckpt_file_entry(file, i, &e) || strcmp(e.dtype, dtype) || e.ndim != ndim ||
        memcmp(e.shape, shape, (size_t)ndim * sizeof *shape))
        return -1;
    return i;
}

bool text_features_are_in(const struct text_features *f, const char *path)
{
    const int64_t shape[] = {f->n, f->length, f->width}, numel = f->n * f->length;
    ckpt_file *file;

    if (access(path, R_OK) || ckpt_file_open(&file, path))
        return false;
    int32_t *ids = MEMORY_FOR(sizeof *ids, numel);
    int tokens = find(file, "tokens", "I32", 2, shape);
    bool same = ids && tokens >= 0 && !ckpt_file_read_i32(file, tokens, ids, numel) &&
                !memcmp(ids, f->ids, (size_t)numel * sizeof *ids) &&
                find(file, name_of(f), f->dtype == CKPT_F32 ? "F32" : "BF16", 3, shape) >= 0;
    free(ids);
    ckpt_file_close(file);
    return same;
}

const char *text_features_name(char dst[4096], const char *path, int64_t i, int64_t n)
{
    const char *end = strrchr(path, '.');
    int stem = end && !strchr(end, '/') ? (int)(end - path) : (int)strlen(path);
    int size = n == 1 ? snprintf(dst, 4096, "%s", path)
                      : snprintf(dst, 4096, "%.*s-%05lld-of-%05lld%s", stem, path, (long long)i + 1,
                                 (long long)n, path + stem);

    return size < 4096 ? dst : NULL;
}
