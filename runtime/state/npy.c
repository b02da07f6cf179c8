/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The .npy format of NumPy: 6 bytes of magic, the version, the length of the header in 2 bytes
 * (version 1) or 4, the header, the data.  The header is a dictionary as Python writes it:
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * Such a file is one with a single tensor, called as the file without ".npy".
 */
#include <stdlib.h>
#include <string.h>
#include "state/safetensors.h"

static const char magic[] = "\x93NUMPY";

enum { MAGIC = 6, NPY_HEADER_MAX = 65536 };

/* Kinds of elements by what follows the byte order. */
static const struct {
    const char *kind, *dtype;
} kinds[] = {{"b1", "BOOL"}, {"u1", "U8"},  {"i1", "I8"},  {"u2", "U16"},
             {"i2", "I16"},  {"u4", "U32"}, {"i4", "I32"}, {"u8", "U64"},
             {"i8", "I64"},  {"f2", "F16"}, {"f4", "F32"}, {"f8", "F64"}};

bool file_is_npy(const char *bytes, int64_t n)
{
    return n >= MAGIC && !memcmp(bytes, magic, MAGIC);
}

/* What follows "'KEY':" in the header, or NULL. */
static const char *value_of(const char *header, const char *key)
{
    char quoted[32];

    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    return at ? at + strlen(quoted) + strspn(at + strlen(quoted), " ") : NULL;
}

static int read_dtype(const struct file_part *p, const char *header, struct file_tensor *x)
{
    const char *descr = value_of(header, "descr");

    if (!descr || *descr != '\'' || strcspn(descr + 1, "'") != 3)
        return file_bad(p->path, "has elements that are no numbers of a known size");
    if (descr[1] == '>')
        return file_bad(p->path, "has its bytes in the order of other processors: write it again "
                                 "with a.astype(a.dtype.newbyteorder('<'))");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(descr + 2, kinds[i].kind, 2))
            x->dtype = file_dtype_find(kinds[i].dtype);
    return x->dtype ? 0
                    : file_bad(p->path, "has elements of the dtype '%.3s', which is not supported",
                               descr + 1);
}

/* "(3, 4)", "(3,)" or "()". */
static int read_shape(const struct file_part *p, const char *header, struct file_tensor *x)
{
    const char *at = value_of(header, "shape");
    bool good = at && *at++ == '(';

    x->numel = 1;
    while (good && *at != ')') {
        char *end = NULL;
        const int64_t n = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        good = n >= 0 && x->ndim < CKPT_MAX_DIMS && !__builtin_mul_overflow(x->numel, n, &x->numel);
        if (!good)
            break;
        x->shape[x->ndim++] = n;
        at = end + strspn(end, ", ");
    }
    good = good && !__builtin_mul_overflow(x->numel, x->dtype->size, &x->end);
    return good
               ? 0
               : file_bad(p->path, "has no shape of at most %d sizes in its header", CKPT_MAX_DIMS);
}

static int read_tensor(const struct file_part *p, const char *header, struct file_tensor *x)
{
    const char *order = value_of(header, "fortran_order");
    int rc = read_dtype(p, header, x);

    if (!rc)
        rc = read_shape(p, header, x);
    if (!rc && (!order || strncmp(order, "False", 5) != 0))
        rc = file_bad(p->path, "has its columns in turn (fortran_order): write it again with "
                               "numpy.ascontiguousarray");
    if (!rc && x->end != p->data_size)
        rc = file_bad(p->path, "is not whole: its array takes %lld bytes, and the file has %lld",
                      (long long)x->end, (long long)p->data_size);
    return rc;
}

/* The tensor's name is the file's, and belongs to the header that other files have. */
static int set_name(struct file_part *p, struct file_tensor *x)
{
    const char *name = file_name_of(p->path), *dot = strrchr(name, '.');
    char *stem = strndup(name, dot ? (size_t)(dot - name) : strlen(name));

    p->header = json_object();
    if (!stem || !p->header || json_object_set_new(p->header, stem, json_true())) {
        free(stem);
        return file_bad(p->path, "has a name that no tensor can have");
    }
    free(stem);
    x->name = json_object_iter_key(json_object_iter(p->header));
    return 0;
}

int file_read_npy(struct file_part *p, int64_t size)
{
    unsigned char head[12] = {0};
    int rc = file_read_at(p->path, p->fd, head, min_i64(size, sizeof head), 0);
    const bool old = head[MAGIC] == 1;
    const int64_t start = old ? 10 : 12;
    const int64_t n = head[8] | head[9] << 8 | (old ? 0 : head[10] << 16 | (int64_t)head[11] << 24);

    if (!rc && (head[MAGIC] < 1 || head[MAGIC] > 3 || n > NPY_HEADER_MAX || start + n > size))
        rc = file_bad(p->path, "is a NumPy array whose header is damaged");
    char *text = rc ? NULL : calloc((size_t)n + 1, 1);
    p->tensors = rc ? NULL : calloc(1, sizeof *p->tensors);
    if (!rc && (!text || !p->tensors))
        rc = error_set(CKPT_ENOMEM, "%s: no memory to open it", p->path);
    p->data_start = start + n;
    p->data_size = size - p->data_start;
    if (!rc)
        rc = file_read_at(p->path, p->fd, text, n, start);
    if (!rc)
        rc = read_tensor(p, text, p->tensors);
    if (!rc)
        rc = set_name(p, p->tensors);
    p->count = rc ? 0 : 1;
    free(text);
    return rc;
}
