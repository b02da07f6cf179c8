/* SPDX-License-Identifier: Apache-2.0 */
/* Opens safetensors files: one file, or the shards of a model as one list of tensors. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "state/safetensors.h"

int file_bad(const char *path, const char *fmt, ...)
{
    char what[CKPT_MESSAGE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    for (char *c = what; *c;
         c++) /* names in the file may contain newlines; a sentence is one line */
        *c = *c == '\n' || *c == '\r' ? ' ' : *c;
    return error_set(CKPT_EFORMAT, "%s: %s", path, what);
}

int file_read_at(const char *path, int fd, void *dst, int64_t n, int64_t offset)
{
    char *p = dst;

    while (n > 0) {
        ssize_t got = pread(fd, p, (size_t)min_i64(n, 1 << 30), offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return file_io_error(path, "cannot read");
        if (got == 0)
            return error_set(CKPT_EIO, "%s: the file became shorter while it was read", path);
        p += got;
        n -= got;
        offset += got;
    }
    return 0;
}

int file_read_part(const struct file_part *p, void *dst, int64_t n, int64_t offset)
{
    return p->fetch ? p->fetch(p, dst, n, offset) : file_read_at(p->path, p->fd, dst, n, offset);
}

/* Opens a regular file and returns its size. */
static int open_tensors(const char *path, int *fd, int64_t *size)
{
    const char *why;

    if (!file_open_regular(path, fd, size, &why))
        return 0;
    return error_set(CKPT_EIO, "%s: cannot open: %s", path, why);
}

static int check_length(const struct file_part *p, uint64_t n, int64_t size)
{
    if (size < 8)
        return file_bad(p->path,
                        "has %lld bytes and is not a safetensors file, which begins with 8 bytes "
                        "of header length",
                        (long long)size);
    if (n > (uint64_t)HEADER_MAX)
        return file_bad(
            p->path,
            "is not a safetensors file: the header length would be %llu bytes, the limit is %lld",
            (unsigned long long)n, (long long)HEADER_MAX);
    if ((int64_t)n > size - 8)
        return file_bad(p->path, "is truncated: the header has %llu bytes, the file only %lld",
                        (unsigned long long)n, (long long)size);
    return 0;
}

/* length: bytes of JSON. */
static int read_header(struct file_part *p, int64_t length, int64_t size)
{
    char *text = malloc((size_t)length + 9);

    if (!text)
        return error_set(CKPT_ENOMEM, "%s: no memory for a header of %lld bytes", p->path,
                         (long long)length);
    p->data_start = 8 + length;
    p->data_size = size - p->data_start;
    int rc = file_read_part(p, text, 8 + length, 0);
    if (!rc)
        rc = file_check_seal(p->path, text, 8 + length);
    if (!rc)
        rc = file_parse_header(p, text + 8, length);
    free(text);
    return rc;
}

/* A new part of f like `from`, with a copy of its path; NULL: no memory. */
static struct file_part *append_part(ckpt_file *f, const struct file_part *from)
{
    struct file_part *parts = realloc(f->parts, (size_t)(f->n_parts + 1) * sizeof *parts);
    char *path = strdup(from->path);

    f->parts = parts ? parts : f->parts;
    if (!parts || !path) {
        error_set(CKPT_ENOMEM, "%s: no memory to open it", from->path);
        free(path);
        return NULL;
    }
    struct file_part *p = &parts[f->n_parts++];
    *p = *from;
    p->path = path;
    return p;
}

/* Takes ownership of the descriptor.  head: the first 16 bytes, as far as there are any. */
static int add_part(ckpt_file *f, const char *path, int fd, const char *head, int64_t size)
{
    const struct file_part from = {.path = (char *)(uintptr_t)path, .fd = fd};
    struct file_part *p = append_part(f, &from);
    uint64_t length;

    if (!p) {
        close(fd);
        return CKPT_ENOMEM;
    }
    if (file_is_npy(head, size))
        return file_read_npy(p, size);
    memcpy(&length, head, sizeof length);
    int rc = check_length(p, length, size);
    return rc ? rc : read_header(p, (int64_t)length, size);
}

int file_add_fetched(ckpt_file *f, const struct file_part *from, int64_t size)
{
    struct file_part *p = append_part(f, from);
    uint64_t length = 0;

    if (!p)
        return CKPT_ENOMEM;
    p->fd = -1;
    int rc = file_read_part(p, &length, min_i64(size, sizeof length), 0);
    if (!rc)
        rc = check_length(p, length, size);
    return rc ? rc : read_header(p, (int64_t)length, size);
}

int file_open_parts(ckpt_file *f, const char *path, bool shard)
{
    char head[16] = {0};
    uint64_t length;
    int64_t size = 0;
    int fd, rc = open_tensors(path, &fd, &size);

    if (rc)
        return rc;
    rc = file_read_at(path, fd, head, min_i64(size, sizeof head), 0);
    memcpy(&length, head, sizeof length);
    if (!rc)
        rc = file_check_kind(path, head, min_i64(size, sizeof head));
    bool index = !shard && head[0] == '{' && length > (uint64_t)HEADER_MAX;
    if (!rc && !index)
        return add_part(f, path, fd, head, size);
    if (!rc)
        rc = file_open_index(f, path, fd, size);
    close(fd);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct file_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

int file_join_parts(ckpt_file *f)
{
    int64_t all = 0;

    for (int i = 0; i < f->n_parts; i++)
        all += f->parts[i].count;
    f->tensors = all <= INT32_MAX ? calloc((size_t)all + 1, sizeof *f->tensors) : NULL;
    if (!f->tensors)
        return error_set(CKPT_ENOMEM, "%s: no memory for the list of tensors", f->path);
    for (int i = 0; i < f->n_parts; i++) {
        const struct file_part *p = &f->parts[i];
        for (int k = 0; k < p->count; k++) {
            f->tensors[f->count] = p->tensors[k];
            f->tensors[f->count++].part = p;
        }
        free(p->tensors);
        f->parts[i].tensors = NULL;
    }
    qsort(f->tensors, (size_t)f->count, sizeof *f->tensors, by_name);
    return file_join_pieces(f);
}

bool file_is_directory(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

int ckpt_file_open(ckpt_file **out, const char *path)
{
    NOT_NULL(out);
    NOT_NULL(path);
    ckpt_file *f = calloc(1, sizeof(*f));

    *out = NULL;
    if (f)
        f->path = strdup(path);
    if (!f || !f->path) {
        free(f);
        return error_set(CKPT_ENOMEM, "%s: no memory to open it", path);
    }
    int rc = file_is_directory(path) ? file_open_directory(f) : file_open_parts(f, path, false);
    if (!rc)
        rc = file_join_parts(f);
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
    for (int i = 0; i < f->n_parts; i++) {
        struct file_part *p = &f->parts[i];
        if (p->fd >= 0)
            close(p->fd);
        json_decref(p->header);
        free(p->tensors);
        free(p->pieces);
        free(p->path);
    }
    free(f->parts);
    json_decref(f->notes);
    free(f->tensors);
    free(f->pieces);
    free(f->path);
    free(f);
}

json_t *file_notes(const ckpt_file *f)
{
    const json_t *header = f->n_parts ? f->parts[0].header : NULL;

    return f->notes ? f->notes : json_object_get(header, "__metadata__");
}

const char *file_find_note(const ckpt_file *f, const char *key)
{
    return json_string_value(json_object_get(file_notes(f), key));
}

const char *ckpt_file_note(const ckpt_file *f, const char *key)
{
    return f && key ? file_find_note(f, key) : NULL;
}
