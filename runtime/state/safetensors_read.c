/* SPDX-License-Identifier: Apache-2.0 */
/* Reads safetensors files: their entries, and their values, with checksums verified on the way. */
#include <stdlib.h>
#include <string.h>
#include "core/checksum.h"
#include "ckpt_files.h"
#include "state/safetensors.h"
#include "core/sized.h"

#define CHUNK                                                                                      \
    65536 /* bytes converted at a time; a multiple of every element size and of checksum blocks */

/* ---- what is there ------------------------------------------------------------------------- */

int ckpt_file_count(const ckpt_file *f)
{
    if (!f)
        return 0;
    return f->count;
}

static int check_index(const ckpt_file *f, int i)
{
    if (i >= 0 && i < f->count)
        return 0;
    return error_set(CKPT_EINVAL, "%s: there is no tensor number %d; the file has %d", f->path, i,
                     f->count);
}

int ckpt_file_entry(const ckpt_file *f, int i, struct ckpt_file_entry *e)
{
    NOT_NULL(f);
    NOT_NULL(e);
    int rc = check_index(f, i);

    if (rc)
        return rc;
    const struct file_tensor *x = &f->tensors[i];
    struct ckpt_file_entry all = {
        .name = x->name, .dtype = x->dtype->name, .ndim = x->ndim, .numel = x->numel};
    memcpy(all.shape, x->shape, sizeof(all.shape));
    return sized_write("struct ckpt_file_entry", e, &all, sizeof(all));
}

int ckpt_file_find(const ckpt_file *f, const char *name)
{
    NOT_NULL(f);
    NOT_NULL(name);
    int low = 0, high = f->count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(name, f->tensors[middle].name);
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return error_set(CKPT_ENAME, "%s: there is no tensor '%s'", f->path, name);
}

/* ---- values -------------------------------------------------------------------------------- */

/* Checks the arguments of both reading calls. */
static int check_read(const ckpt_file *f, int i, int64_t n, bool f32)
{
    int rc = check_index(f, i);

    if (rc)
        return rc;
    const struct file_tensor *e = &f->tensors[i];
    if (f32 ? !e->dtype->to_f32 : !e->dtype->to_i32)
        return file_bad(e->part->path, "tensor '%s' is %s and cannot be read as %s", e->name,
                        e->dtype->name, f32 ? "fp32" : "i32");
    if (n != e->numel)
        return error_set(CKPT_EINVAL, "%s: tensor '%s' has %lld elements, %lld were asked for",
                         f->path, e->name, (long long)e->numel, (long long)n);
    return 0;
}

/* A tensor that is read in chunks, and the checksum of the bytes so far. */
struct reader {
    const struct file_tensor *e;
    struct checksum sum;
    char *chunk; /* too large for a small stack */
};

/* The caller frees r->chunk. */
static int reader_begin(struct reader *r, const struct file_tensor *e)
{
    r->e = e;
    r->chunk = malloc(CHUNK);
    checksum_begin(&r->sum);
    return r->chunk ? 0
                    : error_set(CKPT_ENOMEM, "%s: no memory to read tensor '%s'", e->part->path,
                                e->name);
}

/* Reads the next `part` elements, starting at element `at`, into the chunk. */
static int reader_next(struct reader *r, int64_t at, int64_t part)
{
    const struct file_part *p = r->e->part;
    int64_t bytes = part * r->e->dtype->size;
    int rc = file_read_at(p->path, p->fd, r->chunk, bytes,
                          p->data_start + r->e->begin + at * r->e->dtype->size);

    if (!rc && p->summed)
        checksum_add(&r->sum, r->chunk, bytes);
    return rc;
}

/* A checksum covers a whole tensor, so a partial read is not checked. */
static int read_f32(const struct file_tensor *e, int64_t first, float *dst, int64_t n)
{
    struct reader r;
    int rc = reader_begin(&r, e);

    for (int64_t at = 0; at < n && !rc;) {
        int64_t part = min_i64(n - at, CHUNK / e->dtype->size);
        rc = reader_next(&r, first + at, part);
        if (!rc)
            e->dtype->to_f32(r.chunk, dst + at, part);
        at += part;
    }
    free(r.chunk);
    return rc || n < e->numel ? rc : file_check_sum(e, checksum_end(&r.sum));
}

int ckpt_file_read_f32(ckpt_file *f, int i, float *dst, int64_t n)
{
    NOT_NULL(f);
    NOT_NULL(dst);
    int rc = check_read(f, i, n, true);

    return rc ? rc : read_f32(&f->tensors[i], 0, dst, n);
}

static int check_part(const ckpt_file *f, int i, int64_t first, int64_t n, bool floats)
{
    int rc = check_index(f, i);

    if (!rc && (first < 0 || n < 0 || n > f->tensors[i].numel - first))
        rc = error_set(CKPT_EINVAL, "%s: tensor '%s' has %lld elements, not %lld from %lld on",
                       f->path, f->tensors[i].name, (long long)f->tensors[i].numel, (long long)n,
                       (long long)first);
    return rc ? rc : check_read(f, i, f->tensors[i].numel, floats);
}

int ckpt_file_read_part_f32(ckpt_file *f, int i, int64_t first, float *dst, int64_t n)
{
    NOT_NULL(f);
    NOT_NULL(dst);
    int rc = check_part(f, i, first, n, true);

    return rc ? rc : read_f32(&f->tensors[i], first, dst, n);
}

static int read_i32(const struct file_tensor *e, int64_t first, int32_t *dst, int64_t n)
{
    struct reader r;
    int64_t wrong = -1;
    int rc = reader_begin(&r, e);

    for (int64_t at = 0; at < n && !rc;) {
        int64_t part = min_i64(n - at, CHUNK / e->dtype->size);
        rc = reader_next(&r, first + at, part);
        int64_t good = rc || wrong >= 0 ? part : e->dtype->to_i32(r.chunk, dst + at, part);
        if (good < part)
            wrong = first + at + good;
        at += part;
    }
    free(r.chunk);
    if (!rc && n == e->numel)
        rc = file_check_sum(e, checksum_end(&r.sum));
    if (!rc && wrong >= 0)
        rc = file_bad(e->part->path, "tensor '%s': element %lld does not fit in 32 bits", e->name,
                      (long long)wrong);
    return rc;
}

int ckpt_file_read_i32(ckpt_file *f, int i, int32_t *dst, int64_t n)
{
    NOT_NULL(f);
    NOT_NULL(dst);
    int rc = check_read(f, i, n, false);

    return rc ? rc : read_i32(&f->tensors[i], 0, dst, n);
}

int ckpt_file_read_part_i32(ckpt_file *f, int i, int64_t first, int32_t *dst, int64_t n)
{
    NOT_NULL(f);
    NOT_NULL(dst);
    int rc = check_part(f, i, first, n, false);

    return rc ? rc : read_i32(&f->tensors[i], first, dst, n);
}
