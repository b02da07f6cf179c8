/* SPDX-License-Identifier: Apache-2.0 */
/* Writing safetensors files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "core/checksum.h"
#include "ckpt_files.h"
#include "state/safetensors.h"

int ckpt_file_create(ckpt_file_writer **out, const char *path)
{
    NOT_NULL(out);
    NOT_NULL(path);
    ckpt_file_writer *w = calloc(1, sizeof(*w));

    *out = NULL;
    if (w)
        w->path = strdup(path);
    if (!w || !w->path) {
        free(w);
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", path);
    }
    *out = w;
    return 0;
}

void ckpt_file_abandon(ckpt_file_writer *w)
{
    if (!w)
        return;
    for (int64_t i = 0; i < w->count; i++)
        free(w->tensors.data[i].name);
    free(w->tensors.data);
    free(w->path);
    free(w);
}

/* Names are JSON strings; "__metadata__" is reserved. */
static int check_name(const ckpt_file_writer *w, const char *name)
{
    if (!text_is_utf8(name))
        return error_set(CKPT_EINVAL, "%s: the tensor name '%s' is not UTF-8", w->path, name);
    if (!strcmp(name, "__metadata__"))
        return error_set(CKPT_EINVAL, "%s: a tensor cannot be called __metadata__", w->path);
    return 0;
}

static int64_t size_of(const struct pending *e)
{
    return e->stored ? e->stored->size : ckpt_dtype_size(e->dtype);
}

static int check_shape(const ckpt_file_writer *w, struct pending *e)
{
    if (!dtype_is_known(e->dtype))
        return error_set(CKPT_EINVAL, "%s: tensor '%s' has no such dtype as %d", w->path, e->name,
                         (int)e->dtype);
    if (e->ndim < 0 || e->ndim > CKPT_MAX_DIMS)
        return error_set(CKPT_EINVAL, "%s: tensor '%s' has %d axes; 0 to %d can be written",
                         w->path, e->name, e->ndim, CKPT_MAX_DIMS);
    e->bytes = size_of(e);
    for (int i = 0; i < e->ndim; i++) {
        if (e->shape[i] < 0 || __builtin_mul_overflow(e->bytes, e->shape[i], &e->bytes))
            return error_set(CKPT_EINVAL, "%s: tensor '%s' has size %lld on axis %d", w->path,
                             e->name, (long long)e->shape[i], i);
    }
    if (e->bytes && !e->data && !e->source)
        return error_set(CKPT_EINVAL, "%s: tensor '%s' has no data", w->path, e->name);
    return 0;
}

/* Copies e into the list; e->name is still owned by the caller. */
static int add(ckpt_file_writer *w, struct pending *e, const int64_t *shape)
{
    int rc = check_name(w, e->name);

    if (!rc && e->ndim > 0 && e->ndim <= CKPT_MAX_DIMS)
        memcpy(e->shape, shape, (size_t)e->ndim * sizeof(shape[0]));
    if (!rc)
        rc = check_shape(w, e);
    if (!rc && (ARRAY_RESERVE(&w->tensors, w->count) || !(e->name = strdup(e->name))))
        rc = error_set(CKPT_ENOMEM, "%s: no memory to add a tensor", w->path);
    if (rc)
        return w->error = rc;
    w->tensors.data[w->count++] = *e;
    return 0;
}

int ckpt_file_add(ckpt_file_writer *w, const char *name, enum ckpt_dtype dtype, int ndim,
                  const int64_t *shape, const void *data)
{
    NOT_NULL(w);
    NOT_NULL(name);
    if (ndim > 0)
        NOT_NULL(shape);
    struct pending e = {.name = (char *)name, .dtype = dtype, .ndim = ndim, .data = data};

    return add(w, &e, shape);
}

int file_add_source(ckpt_file_writer *w, const char *name, enum ckpt_dtype dtype,
                    const struct file_dtype *stored, int ndim, const int64_t *shape,
                    tensor_source source, void *user)
{
    struct pending e = {.name = (char *)name,
                        .dtype = dtype,
                        .stored = stored,
                        .ndim = ndim,
                        .source = source,
                        .user = user};

    return add(w, &e, shape);
}

/* Wide elements first keep every tensor aligned.  Then by name, so that equal contents give equal
 * files. */
static int by_alignment_and_name(const void *a, const void *b)
{
    const struct pending *x = a, *y = b;
    int64_t sx = size_of(x), sy = size_of(y);

    if (sx != sy)
        return sx > sy ? -1 : 1;
    return strcmp(x->name, y->name);
}

struct writing {
    ckpt_file_writer *w;
    void *buffer;      /* for the largest tensor with a source */
    int64_t unflushed; /* bytes */
};

/* Bytes that stay in the cache of a core while they are checked and written; a multiple of
 * CHECKSUM_BLOCK and of every element.  Bytes after which the disk begins to write, so that little
 * is left to sync at the end. */
enum { CHUNK = 256 << 10, FLUSH = 8 << 20 };

/* Lets the disk write what was written so far.  A file system that cannot loses nothing. */
static void flush(struct writing *x, int fd, int64_t bytes)
{
    x->unflushed += bytes;
    if (x->unflushed < FLUSH)
        return;
    x->unflushed = 0;
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

/* Reads the bytes from memory once. */
static int write_bytes(struct writing *x, struct pending *e, const char *data, int fd)
{
    struct checksum sum;
    int rc = 0;

    checksum_begin(&sum);
    for (int64_t at = 0; at < e->bytes && !rc; at += CHUNK) {
        const int64_t n = min_i64(CHUNK, e->bytes - at);
        if (e->finite && !values_are_finite(data + at, e->dtype, n / ckpt_dtype_size(e->dtype)))
            return error_set(CKPT_ENAN,
                             "tensor '%s' is not finite: %s is not written, a state that was there "
                             "stays",
                             e->name, x->w->path);
        checksum_add(&sum, data + at, n);
        rc = file_write_all(x->w->path, fd, data + at, n);
        flush(x, fd, n);
    }
    e->sum = checksum_end(&sum);
    return rc;
}

static int write_tensor(struct writing *x, struct pending *e, int fd)
{
    const void *data = e->data;

    if (e->source && e->bytes) {
        int rc = e->source(e->user, x->buffer, e->bytes);
        if (rc)
            return rc;
        data = x->buffer;
    }
    return write_bytes(x, e, data, fd);
}

static int write_header(const ckpt_file_writer *w, int fd, bool sums)
{
    char *text = NULL;
    int64_t size = 0;
    int rc = file_make_header(w, sums, &text, &size);

    if (!rc)
        rc = file_write_all(w->path, fd, text, size);
    free(text);
    return rc;
}

static int seek(const ckpt_file_writer *w, int fd, int64_t offset)
{
    if (lseek(fd, offset, SEEK_SET) == offset)
        return 0;
    return error_set(CKPT_EIO, "%s: cannot write: %s", w->path, strerror(errno));
}

static int make_buffer(struct writing *x)
{
    int64_t largest = 0;

    for (int64_t i = 0; i < x->w->count; i++) {
        const struct pending *e = &x->w->tensors.data[i];
        largest = max_i64(largest, e->source ? e->bytes : 0);
    }
    x->buffer = malloc((size_t)largest + 1);
    if (!x->buffer)
        return error_set(CKPT_ENOMEM, "%s: no memory for a tensor of %s", x->w->path,
                         human_bytes(largest));
    return 0;
}

/* Checksums are known after the data is written but are stored before it, so the header is written
 * twice, with the same length.  Descriptors that cannot seek (pipes, append mode) get no
 * checksums. */
static int write_contents(struct writing *x, int fd)
{
    off_t start = fcntl(fd, F_GETFL) & O_APPEND ? -1 : lseek(fd, 0, SEEK_CUR);
    int rc = write_header(x->w, fd, start >= 0);

    for (int64_t i = 0; i < x->w->count && !rc; i++)
        rc = write_tensor(x, &x->w->tensors.data[i], fd);
    if (rc || start < 0)
        return rc;
    off_t end = lseek(fd, 0, SEEK_CUR);
    rc = seek(x->w, fd, start);
    if (!rc)
        rc = write_header(x->w, fd, true);
    return rc ? rc : seek(x->w, fd, end);
}

int file_write_to(ckpt_file_writer *w, int fd)
{
    NOT_NULL(w);
    struct writing x = {.w = w};
    int rc = make_buffer(&x);

    if (w->count)
        qsort(w->tensors.data, (size_t)w->count, sizeof(w->tensors.data[0]), by_alignment_and_name);
    if (!rc)
        rc = write_contents(&x, fd);
    free(x.buffer);
    return rc;
}

static int fill(void *user, int fd)
{
    return file_write_to(user, fd);
}

int ckpt_file_commit(ckpt_file_writer *w)
{
    NOT_NULL(w);
    int rc = w->error;

    if (rc)
        error_set(rc, "%s: was not written, because a tensor could not be added", w->path);
    if (!rc)
        rc = file_replace(w->path, fill, w);
    ckpt_file_abandon(w);
    return rc;
}
