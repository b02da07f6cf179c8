/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the JSON header of a safetensors file and validates it, so that reading can trust it. */
#include <stdlib.h>
#include <string.h>
#include "state/safetensors.h"

int file_shape_unfit(const char *path, const struct file_tensor *e, const struct ckpt_desc *d)
{
    char have[200], want[200];

    shape_format(have, sizeof have, e->ndim, e->shape);
    shape_format(want, sizeof want, d->ndim, d->shape);
    return error_set(CKPT_ESHAPE, "%s: tensor '%s' has shape %s but the parameter has shape %s",
                     path, e->name, have, want);
}

static int parse_dtype(const struct file_part *p, const json_t *entry, struct file_tensor *e)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));

    if (!dtype)
        return file_bad(p->path, "tensor '%s' has no dtype", e->name);
    e->dtype = file_dtype_find(dtype);
    if (!e->dtype)
        return file_bad(p->path, "tensor '%s' has an unknown dtype '%s'", e->name, dtype);
    return 0;
}

static int parse_shape(const struct file_part *p, const json_t *entry, struct file_tensor *e)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t ndim = json_array_size(shape);

    if (!json_is_array(shape))
        return file_bad(p->path, "tensor '%s' has no shape", e->name);
    if (ndim > CKPT_MAX_DIMS)
        return file_bad(p->path, "tensor '%s' has %zu axes; at most %d can be read", e->name, ndim,
                        CKPT_MAX_DIMS);
    e->ndim = (int)ndim;
    e->numel = 1;
    for (int i = 0; i < e->ndim; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return file_bad(p->path, "tensor '%s': axis %d of the shape is not a whole number >= 0",
                            e->name, i);
        e->shape[i] = json_integer_value(size);
        if (__builtin_mul_overflow(e->numel, e->shape[i], &e->numel))
            return file_bad(p->path, "tensor '%s' has more elements than 64 bits can count",
                            e->name);
    }
    return 0;
}

static int parse_offsets(const struct file_part *p, const json_t *entry, struct file_tensor *e)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return file_bad(p->path, "tensor '%s' has no data_offsets of two whole numbers", e->name);
    e->begin = json_integer_value(begin);
    e->end = json_integer_value(end);
    if (e->begin < 0 || e->end < e->begin || e->end > p->data_size)
        return file_bad(p->path, "tensor '%s' has offsets [%lld, %lld) in data of %lld bytes",
                        e->name, (long long)e->begin, (long long)e->end, (long long)p->data_size);
    return 0;
}

static int parse_tensor(const struct file_part *p, const json_t *entry, struct file_tensor *e)
{
    char shape[200];
    int64_t bytes;

    if (!json_is_object(entry))
        return file_bad(p->path, "the entry of tensor '%s' is not a JSON object", e->name);
    int rc = parse_dtype(p, entry, e);
    if (!rc)
        rc = parse_shape(p, entry, e);
    if (!rc)
        rc = parse_offsets(p, entry, e);
    if (rc)
        return rc;
    if (__builtin_mul_overflow(e->numel, e->dtype->size, &bytes))
        return file_bad(p->path, "tensor '%s' has more bytes than 64 bits can count", e->name);
    if (bytes == e->end - e->begin)
        return 0;
    shape_format(shape, sizeof(shape), e->ndim, e->shape);
    return file_bad(
        p->path, "tensor '%s' has offsets [%lld, %lld) but shape %s of %s needs %lld bytes",
        e->name, (long long)e->begin, (long long)e->end, shape, e->dtype->name, (long long)bytes);
}

static int check_metadata(const struct file_part *p, json_t *metadata)
{
    const char *key;
    json_t *value;

    if (!json_is_object(metadata))
        return file_bad(p->path, "__metadata__ is not a JSON object");
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return file_bad(p->path, "__metadata__ has a value that is not a string, at '%s'", key);
    }
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct file_tensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Every byte of the data belongs to exactly one tensor. */
static int check_cover(struct file_part *p)
{
    int64_t covered = 0;
    const char *before = NULL;

    qsort(p->tensors, (size_t)p->count, sizeof(p->tensors[0]), by_offset);
    for (int i = 0; i < p->count; i++) {
        const struct file_tensor *e = &p->tensors[i];
        if (e->begin < covered)
            return file_bad(p->path, "tensors '%s' and '%s' overlap at byte %lld of the data",
                            before, e->name, (long long)e->begin);
        if (e->begin > covered)
            return file_bad(p->path,
                            "there is a hole in the data, bytes [%lld, %lld), before tensor '%s'",
                            (long long)covered, (long long)e->begin, e->name);
        covered = e->end;
        before = e->name;
    }
    if (covered != p->data_size)
        return file_bad(p->path, "the tensors end at byte %lld but the data has %lld bytes",
                        (long long)covered, (long long)p->data_size);
    return 0;
}

static int parse_entries(struct file_part *p)
{
    const char *name;
    json_t *entry;
    int rc = 0;

    json_object_foreach(p->header, name, entry)
    {
        if (!strcmp(name, "__metadata__")) {
            rc = check_metadata(p, entry);
        } else {
            p->tensors[p->count].name = name;
            rc = parse_tensor(p, entry, &p->tensors[p->count++]);
        }
        if (rc)
            return rc;
    }
    return 0;
}

int file_parse_header(struct file_part *p, const char *text, int64_t n)
{
    json_error_t error;
    char why[JSON_ERROR_TEXT_LENGTH];

    if (n == 0 || text[0] != '{')
        return file_bad(p->path, "the header does not begin with '{'");
    p->header = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &error);
    if (!p->header && json_error_code(&error) == json_error_out_of_memory)
        return error_set(CKPT_ENOMEM, "%s: no memory to parse the header", p->path);
    if (!p->header)
        return file_bad(p->path, "the header is not valid JSON: %s, at byte %d",
                        text_shown(error.text, why, sizeof why), error.position);
    p->tensors = calloc(json_object_size(p->header) + 1, sizeof(p->tensors[0]));
    if (!p->tensors)
        return error_set(CKPT_ENOMEM, "%s: no memory for the list of tensors", p->path);
    int rc = parse_entries(p);
    if (!rc)
        rc = check_cover(p);
    if (!rc)
        rc = file_take_sums(p);
    return rc ? rc : file_take_pieces(p);
}
