/* SPDX-License-Identifier: Apache-2.0 */
/* Reads safetensors files: their entries, and their values, with checksums verified on the way. */
#include <stdlib.h>
#include <string.h>
#include "core/checksum.h"
#include "core/thread_team.h"
#include "ckpt_files.h"
#include "state/safetensors.h"
#include "core/sized.h"

#define CHUNK                                                                                      \
    65536 /* bytes converted at a time; a multiple of every element size and of checksum blocks */
#define SHARE (1 << 20) /* elements of a tensor that are worth a thread */

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

/* A tensor that is read in chunks, and the checksum of the bytes so far.  Too large for a stack. */
struct reader {
    const struct file_tensor *e; /* stored in one file: a tensor or a piece of it */
    struct checksum sum;
    void *dst;              /* the values of elements [first, first + n) of the tensor, */
    int64_t first, n, size; /* of so many bytes each */
    enum { AS_STORED, AS_F32, AS_I32 } as;
    int64_t wrong;          /* the first element that does not fit in 32 bits, or -1 */
    uint32_t values[CHUNK]; /* of a piece, converted */
    char chunk[CHUNK];
};

/* Reads the next `part` elements, starting at element `at`, into the chunk. */
static int reader_next(struct reader *r, int64_t at, int64_t part)
{
    const struct file_part *p = r->e->part;
    int64_t bytes = part * r->e->dtype->size;
    int rc =
        file_read_part(p, r->chunk, bytes, p->data_start + r->e->begin + at * r->e->dtype->size);

    if (!rc && p->summed)
        checksum_add(&r->sum, r->chunk, bytes);
    return rc;
}

static void reader_convert(struct reader *r, int64_t at, int64_t part, void *dst)
{
    const struct file_dtype *d = r->e->dtype;
    int64_t good = part;

    if (r->as == AS_STORED)
        memcpy(dst, r->chunk, (size_t)(part * d->size));
    else if (r->as == AS_F32)
        d->to_f32(r->chunk, dst, part);
    else if (r->wrong < 0)
        good = d->to_i32(r->chunk, dst, part);
    if (good < part)
        r->wrong = at + good;
}

/* Reads the elements [first, first + n) of what one file has.  A checksum covers all of it, so a
 * part is not checked. */
static int read_stored(struct reader *r, const struct file_tensor *e, int64_t first, int64_t n)
{
    int rc = 0;

    r->e = e;
    checksum_begin(&r->sum);
    for (int64_t at = first, part; at < first + n && !rc; at += part) {
        void *dst = e->piece ? (void *)r->values : (char *)r->dst + (at - first) * r->size;
        part = min_i64(first + n - at, CHUNK / e->dtype->size);
        rc = reader_next(r, at, part);
        if (!rc)
            reader_convert(r, at, part, dst);
        if (!rc && e->piece)
            file_put_piece(e->piece, at, part, r->values, r->size, r->first, r->n, r->dst);
    }
    return rc || n < e->numel ? rc : file_check_sum(e, checksum_end(&r->sum));
}

/* A piece may have elements anywhere in the tensor, so all of it is read. */
static int read_pieces(struct reader *r, const struct file_tensor *e)
{
    int rc = e->n_pieces ? 0 : read_stored(r, e, r->first, r->n);

    for (int i = 0; i < e->n_pieces && !rc; i++)
        rc = read_stored(r, &e->pieces[i], 0, e->pieces[i].numel);
    if (!rc && r->wrong >= 0)
        rc = file_bad(e->part->path, "tensor '%s': element %lld does not fit in 32 bits", e->name,
                      (long long)r->wrong);
    return rc;
}

static int read_range(const struct file_tensor *e, int64_t first, int64_t n, int as, void *dst)
{
    struct reader *r = malloc(sizeof *r);

    if (!r)
        return error_set(CKPT_ENOMEM, "%s: no memory to read tensor '%s'", e->part->path, e->name);
    r->dst = dst;
    r->first = first;
    r->n = n;
    r->size = as == AS_STORED ? e->dtype->size : 4;
    r->as = as;
    r->wrong = -1;
    int rc = read_pieces(r, e);
    free(r);
    return rc;
}

/* Elements of one file, read by several threads. */
struct shared_read {
    const struct file_tensor *e;
    int64_t first, size;
    int as;
    void *dst;
    bool failed;
};

static void read_share(void *user, int64_t from, int64_t end)
{
    struct shared_read *s = user;

    if (read_range(s->e, s->first + from, end - from, s->as, (char *)s->dst + from * s->size))
        __atomic_store_n(&s->failed, true, __ATOMIC_RELAXED);
}

/* A checksum needs the bytes in order, and other processes send theirs to one thread.  What failed
 * in a thread is read again, for the sentence. */
static int read_values(const struct file_tensor *e, int64_t first, int64_t n, int as, void *dst)
{
    const bool divisible = !e->n_pieces && !e->part->summed && !e->part->fetch;
    struct shared_read s = {e, first, as == AS_STORED ? e->dtype->size : 4, as, dst, !divisible};

    if (divisible)
        thread_team_run(thread_team_size(0, n, SHARE), n, CHUNK, read_share, &s);
    return s.failed ? read_range(e, first, n, as, dst) : 0;
}

int file_read_stored(const struct file_tensor *e, void *dst)
{
    return read_values(e, 0, e->numel, AS_STORED, dst);
}

int ckpt_file_read_f32(ckpt_file *f, int i, float *dst, int64_t n)
{
    NOT_NULL(f);
    NOT_NULL(dst);
    int rc = check_read(f, i, n, true);

    return rc ? rc : read_values(&f->tensors[i], 0, n, AS_F32, dst);
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

    return rc ? rc : read_values(&f->tensors[i], first, n, AS_F32, dst);
}

int ckpt_file_read_i32(ckpt_file *f, int i, int32_t *dst, int64_t n)
{
    NOT_NULL(f);
    NOT_NULL(dst);
    int rc = check_read(f, i, n, false);

    return rc ? rc : read_values(&f->tensors[i], 0, n, AS_I32, dst);
}

int ckpt_file_read_part_i32(ckpt_file *f, int i, int64_t first, int32_t *dst, int64_t n)
{
    NOT_NULL(f);
    NOT_NULL(dst);
    int rc = check_part(f, i, first, n, false);

    return rc ? rc : read_values(&f->tensors[i], first, n, AS_I32, dst);
}
