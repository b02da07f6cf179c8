/* Reading safetensors files. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt_file.h"
#include "state/safetensors.h"

#define CHUNK 65536 /* bytes converted at a time; a multiple of every element size */

int file_bad(const ckpt_file *f, const char *fmt, ...)
{
    char what[CKPT_MESSAGE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return error_set(CKPT_EFORMAT, "%s: %s", f->path, what);
}

static int io_error(const ckpt_file *f, const char *what)
{
    return error_set(CKPT_EIO, "%s: %s: %s", f->path, what, strerror(errno));
}

/* Reads n bytes at an offset of the file.  Returns 0 or CKPT_EIO. */
static int read_at(const ckpt_file *f, void *dst, int64_t n, int64_t offset)
{
    char *p = dst;

    while (n > 0) {
        ssize_t got = pread(f->fd, p, (size_t)min_i64(n, 1 << 30), offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return io_error(f, "cannot read");
        if (got == 0)
            return error_set(CKPT_EIO, "%s: the file became shorter while it was read", f->path);
        p += got;
        n -= got;
        offset += got;
    }
    return 0;
}

static int open_regular(ckpt_file *f, int64_t *size)
{
    struct stat st;

    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &st))
        return io_error(f, "cannot open");
    if (!S_ISREG(st.st_mode))
        return error_set(CKPT_EIO, "%s: is not a regular file", f->path);
    *size = st.st_size;
    return 0;
}

/* The length in front of the header, checked against the size of the file. */
static int read_header_length(ckpt_file *f, int64_t size, int64_t *length)
{
    uint64_t n;

    if (size < 8)
        return file_bad(f,
                        "has %lld bytes and is no safetensors file, which begins with 8 bytes of "
                        "header length",
                        (long long)size);
    int rc = read_at(f, &n, sizeof(n), 0);
    if (rc)
        return rc;
    if (n > (uint64_t)HEADER_MAX)
        return file_bad(f,
                        "is no safetensors file: the header length would be %llu bytes, the limit "
                        "is %lld",
                        (unsigned long long)n, (long long)HEADER_MAX);
    if ((int64_t)n > size - 8)
        return file_bad(f, "is cut off: the header has %llu bytes, the file only %lld",
                        (unsigned long long)n, (long long)size);
    *length = (int64_t)n;
    return 0;
}

static int read_header(ckpt_file *f)
{
    int64_t size = 0, length = 0;

    int rc = open_regular(f, &size);
    if (!rc)
        rc = read_header_length(f, size, &length);
    if (rc)
        return rc;
    char *text = malloc((size_t)length + 1);
    if (!text)
        return error_set(CKPT_ENOMEM, "%s: no memory for a header of %lld bytes", f->path,
                         (long long)length);
    f->data_start = 8 + length;
    f->data_size = size - f->data_start;
    rc = read_at(f, text, length, 8);
    if (!rc)
        rc = file_parse_header(f, text, length);
    free(text);
    return rc;
}

int ckpt_file_open(ckpt_file **out, const char *path)
{
    ckpt_file *f = calloc(1, sizeof(*f));

    *out = NULL;
    if (f)
        f->path = strdup(path);
    if (!f || !f->path) {
        free(f);
        return error_set(CKPT_ENOMEM, "%s: no memory to open it", path);
    }
    f->fd = -1;
    int rc = read_header(f);
    if (rc)
        ckpt_file_close(f);
    else
        *out = f;
    return rc;
}

void ckpt_file_close(ckpt_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    json_decref(f->header);
    free(f->tensors);
    free(f->path);
    free(f);
}

int ckpt_file_count(const ckpt_file *f)
{
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
    int rc = check_index(f, i);

    if (rc)
        return rc;
    const struct file_tensor *x = &f->tensors[i];
    *e = (struct ckpt_file_entry){
        .name = x->name, .dtype = x->dtype->name, .ndim = x->ndim, .numel = x->numel};
    memcpy(e->shape, x->shape, sizeof(e->shape));
    return 0;
}

int ckpt_file_find(const ckpt_file *f, const char *name)
{
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

/* Checks what both reading calls ask for; to is the name of the wanted dtype. */
static int check_read(const ckpt_file *f, int i, int64_t n, bool f32)
{
    int rc = check_index(f, i);

    if (rc)
        return rc;
    const struct file_tensor *e = &f->tensors[i];
    if (f32 ? !e->dtype->to_f32 : !e->dtype->to_i32)
        return file_bad(f, "tensor '%s' is %s and cannot be read as %s", e->name, e->dtype->name,
                        f32 ? "fp32" : "i32");
    if (n != e->numel)
        return error_set(CKPT_EINVAL, "%s: tensor '%s' has %lld elements, %lld were asked for",
                         f->path, e->name, (long long)e->numel, (long long)n);
    return 0;
}

static int read_f32(ckpt_file *f, int i, int64_t first, float *dst, int64_t n)
{
    _Alignas(16) char chunk[CHUNK];
    const struct file_tensor *e = &f->tensors[i];
    int rc = 0;

    for (int64_t at = 0; at < n && !rc;) {
        int64_t part = min_i64(n - at, CHUNK / e->dtype->size);
        rc = read_at(f, chunk, part * e->dtype->size,
                     f->data_start + e->begin + (first + at) * e->dtype->size);
        if (!rc)
            e->dtype->to_f32(chunk, dst + at, part);
        at += part;
    }
    return rc;
}

int ckpt_file_read_f32(ckpt_file *f, int i, float *dst, int64_t n)
{
    int rc = check_read(f, i, n, true);

    return rc ? rc : read_f32(f, i, 0, dst, n);
}

int ckpt_file_read_part_f32(ckpt_file *f, int i, int64_t first, float *dst, int64_t n)
{
    int rc = check_index(f, i);

    if (!rc && (first < 0 || n < 0 || n > f->tensors[i].numel - first))
        rc = error_set(CKPT_EINVAL, "%s: tensor '%s' has %lld elements, not %lld from %lld on",
                       f->path, f->tensors[i].name, (long long)f->tensors[i].numel, (long long)n,
                       (long long)first);
    if (!rc)
        rc = check_read(f, i, f->tensors[i].numel, true);
    return rc ? rc : read_f32(f, i, first, dst, n);
}

int ckpt_file_read_i32(ckpt_file *f, int i, int32_t *dst, int64_t n)
{
    _Alignas(16) char chunk[CHUNK];
    int rc = check_read(f, i, n, false);

    if (rc)
        return rc;
    const struct file_tensor *e = &f->tensors[i];
    for (int64_t at = 0; at < n; at += CHUNK / e->dtype->size) {
        int64_t part = min_i64(n - at, CHUNK / e->dtype->size);
        rc = read_at(f, chunk, part * e->dtype->size,
                     f->data_start + e->begin + at * e->dtype->size);
        if (rc)
            return rc;
        int64_t good = e->dtype->to_i32(chunk, dst + at, part);
        if (good < part)
            return file_bad(f, "tensor '%s': element %lld does not fit in 32 bits", e->name,
                            (long long)(at + good));
    }
    return 0;
}
