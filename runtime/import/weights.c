/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Always holds after weights_open: every element of a tensor with values lies in its storage, and
 * the storage in the file; the number of elements times their size fits in 63 bits.
 *
 * A dense tensor is read where it lies.  Of another one the rows along its last axis are read in
 * turn, or, where neighbours in the row are far apart (a transposed matrix), the part of the
 * storage that it covers is read whole and its elements are picked.
 */
#include "import/weights.h"
#include <stdlib.h>
#include <string.h>
#include "core/crc32.h"

#define CHUNK      65536 /* bytes that are converted at a time: a multiple of every element */
#define NAME_SPACE 512

struct weights {
    const struct archive *a;
    json_t *lists[2];   /* of weights, of constants: they own the names */
    struct weight *all; /* sorted by name */
    int count;
};

/* Dtypes by their number in the file: c10::ScalarType, which only grows. */
static const char *const dtype_names[] = {
    [1] = "U8",    [2] = "I8",   [3] = "I16",      [4] = "I32",      [5] = "I64",
    [6] = "F16",   [7] = "F32",  [8] = "F64",      [9] = "C64",      [12] = "BOOL",
    [13] = "BF16", [28] = "U16", [29] = "F8_E4M3", [30] = "F8_E5M2", [33] = "F8_E8M0",
    [34] = "U32",  [35] = "U64",
};

enum { STRIDED = 7 }; /* the number of the only layout */

static int bad(const struct weights *w, const char *name, const char *fmt, ...) CKPT_PRINTF(3, 4);

static int bad(const struct weights *w, const char *name, const char *fmt, ...)
{
    char what[NAME_SPACE], shown[NAME_SPACE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return file_bad(archive_path(w->a), "tensor '%s' %s", text_shown(name, shown, sizeof shown),
                    what);
}

/* ---- the lists ------------------------------------------------------------------------------- */

/* Pairs of fp32, which no file of weights has: constants may be complex numbers. */
static const struct file_dtype complex64 = {"C64", 8, NULL, NULL};

static const struct file_dtype *find_dtype(int64_t code)
{
    if (code == 10)
        return &complex64;
    const char *name = code > 0 && code < (int64_t)(sizeof dtype_names / sizeof *dtype_names)
                           ? dtype_names[code]
                           : NULL;

    return name ? file_dtype_find(name) : NULL;
}

/* A number that depends on no input: {"as_int": n}, from 0. */
static bool take_number(const json_t *j, int64_t *n)
{
    const json_t *number = json_object_get(j, "as_int");

    *n = json_integer_value(number);
    return json_is_integer(number) && *n >= 0;
}

static bool take_numbers(const json_t *list, int ndim, int64_t *n)
{
    for (int i = 0; i < ndim; i++)
        if (!take_number(json_array_get(list, (size_t)i), &n[i]))
            return false;
    return true;
}

/* Sets x->numel and *reach, the elements of a storage up to the last one of x. */
static bool measure(struct weight *x, int64_t *reach)
{
    int64_t bytes;

    x->numel = 1;
    *reach = x->offset;
    for (int i = 0; i < x->ndim; i++)
        if (__builtin_mul_overflow(x->numel, x->size[i], &x->numel))
            return false;
    for (int i = 0; i < x->ndim && x->numel; i++) {
        int64_t last;
        if (__builtin_mul_overflow(x->size[i] - 1, x->stride[i], &last) ||
            __builtin_add_overflow(*reach, last, reach))
            return false;
    }
    if (__builtin_add_overflow(*reach, x->numel ? 1 : 0, reach))
        return false;
    int64_t unit = x->dtype ? x->dtype->size : 16;
    return !__builtin_mul_overflow(x->numel, unit, &bytes) &&
           !__builtin_mul_overflow(*reach, unit, &bytes);
}

/* Sizes, strides and dtype. */
static int take_meta(const struct weights *w, struct weight *x, const json_t *meta)
{
    const json_t *sizes = json_object_get(meta, "sizes"),
                 *strides = json_object_get(meta, "strides");
    const json_t *dtype = json_object_get(meta, "dtype");

    if (!json_is_integer(dtype) || !json_is_array(sizes) || !json_is_array(strides) ||
        json_array_size(sizes) != json_array_size(strides))
        return bad(w, x->name, "has no dtype, sizes and strides that belong together");
    if (json_array_size(sizes) > CKPT_MAX_DIMS)
        return bad(w, x->name, "has %zu axes, at most %d are supported", json_array_size(sizes),
                   CKPT_MAX_DIMS);
    if (json_integer_value(json_object_get(meta, "layout")) != STRIDED)
        return bad(w, x->name, "is sparse or of another layout that is not supported");
    x->code = json_integer_value(dtype) == (int)json_integer_value(dtype)
                  ? (int)json_integer_value(dtype)
                  : 0;
    x->dtype = find_dtype(x->code);
    x->ndim = (int)json_array_size(sizes);
    if (!take_numbers(sizes, x->ndim, x->size) || !take_numbers(strides, x->ndim, x->stride) ||
        !take_number(json_object_get(meta, "storage_offset"), &x->offset))
        return bad(w, x->name, "has a size, stride or offset that is no number");
    return 0;
}

/* Finds the storage, and whether the tensor lies in it. */
static int take_storage(const struct weights *w, struct weight *x, const char *folder,
                        const char *file)
{
    char path[NAME_SPACE];
    int64_t reach;

    snprintf(path, sizeof path, "data/%s/%s", folder, file);
    x->storage = archive_find(w->a, path);
    if (!x->storage)
        return bad(w, x->name, "is in %s, which is missing", path);
    if (!measure(x, &reach))
        return bad(w, x->name, "has sizes or strides that are too large");
    x->has_values = x->storage->size || !x->numel;
    if (x->has_values && x->dtype && (uint64_t)(reach * x->dtype->size) > x->storage->size)
        return bad(w, x->name, "needs %lld bytes of %s, which has %llu",
                   (long long)(reach * x->dtype->size), path, (unsigned long long)x->storage->size);
    return 0;
}

static int take_tensor(const struct weights *w, struct weight *x, const char *folder,
                       const json_t *entry)
{
    const char *file = json_string_value(json_object_get(entry, "path_name"));

    if (!file || !*x->name)
        return bad(w, x->name, "has no file in the list of %s", folder);
    if (json_is_true(json_object_get(entry, "use_pickle")))
        return bad(w, x->name,
                   "is a pickled object, which is never read: export the model with "
                   "plain tensors");
    x->is_param = json_is_true(json_object_get(entry, "is_param"));
    int rc = take_meta(w, x, json_object_get(entry, "tensor_meta"));
    return rc ? rc : take_storage(w, x, folder, file);
}

/* Custom objects are constants, too, without a tensor; a program that uses one is refused. */
static bool is_tensor(const json_t *entry)
{
    return !json_is_null(json_object_get(entry, "tensor_meta")) ||
           !json_string_value(json_object_get(entry, "path_name"));
}

static int take_list(struct weights *w, const json_t *list, const char *folder)
{
    const char *name;
    json_t *entry;

    json_object_foreach((json_t *)list, name, entry)
    {
        if (!is_tensor(entry))
            continue;
        struct weight *x = &w->all[w->count++];
        *x = (struct weight){.name = name};
        int rc = take_tensor(w, x, folder, entry);
        if (rc)
            return rc;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct weight *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static int sort_all(struct weights *w)
{
    qsort(w->all, (size_t)w->count, sizeof *w->all, by_name);
    for (int i = 1; i < w->count; i++)
        if (!strcmp(w->all[i - 1].name, w->all[i].name))
            return bad(w, w->all[i].name, "is both in data/weights and in data/constants");
    return 0;
}

static int read_lists(struct weights *w, const char *model)
{
    static const char *const folders[] = {"weights", "constants"};
    size_t n = 1;

    for (int i = 0; i < 2; i++) {
        char path[NAME_SPACE];
        snprintf(path, sizeof path, "data/%s/%s_%s_config.json", folders[i], model, folders[i]);
        int rc = archive_json(w->a, path, &w->lists[i]);
        if (rc)
            return rc;
        const json_t *list = json_object_get(w->lists[i], "config");
        if (!json_is_object(list))
            return file_bad(archive_path(w->a), "%s: has no list named \"config\"", path);
        n += json_object_size(list);
    }
    w->all = calloc(n, sizeof *w->all);
    if (!w->all)
        return error_set(CKPT_ENOMEM, "%s: no memory for its %zu tensors", archive_path(w->a), n);
    for (int i = 0; i < 2; i++) {
        int rc = take_list(w, json_object_get(w->lists[i], "config"), folders[i]);
        if (rc)
            return rc;
    }
    return sort_all(w);
}

int weights_open(struct weights **out, const struct archive *a, const char *model)
{
    struct weights *w = calloc(1, sizeof *w);

    *out = NULL;
    if (!w)
        return error_set(CKPT_ENOMEM, "%s: no memory to open it", archive_path(a));
    w->a = a;
    int rc = read_lists(w, model);
    if (rc)
        weights_close(w);
    else
        *out = w;
    return rc;
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    json_decref(w->lists[0]);
    json_decref(w->lists[1]);
    free(w->all);
    free(w);
}

const struct weight *weights_find(const struct weights *w, const char *name)
{
    struct weight key = {.name = name};

    return bsearch(&key, w->all, (size_t)w->count, sizeof key, by_name);
}

const struct weight *weights_at(const struct weights *w, int i)
{
    return i < w->count ? &w->all[i] : NULL;
}

bool weights_same(const struct weight *a, const struct weight *b)
{
    size_t axes = (size_t)a->ndim * sizeof *a->size;

    /* Exports without values write one empty storage for many tensors: nothing tells ties there. */
    return a->has_values && b->has_values && a->storage == b->storage && a->offset == b->offset &&
           a->code == b->code && a->ndim == b->ndim && !memcmp(a->size, b->size, axes) &&
           !memcmp(a->stride, b->stride, axes);
}

static int64_t last_position(const struct weight *x)
{
    return x->numel ? weight_position(x, x->numel - 1) : x->offset - 1;
}

bool weights_overlap(const struct weight *a, const struct weight *b)
{
    return a->has_values && b->has_values && a->storage == b->storage &&
           a->offset <= last_position(b) && b->offset <= last_position(a);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The axes from which on the elements lie side by side: the run of elements that one read gets. */
static int64_t run_of(const struct weight *x)
{
    int64_t run = 1;

    for (int i = x->ndim; i-- > 0 && (x->size[i] == 1 || x->stride[i] == run);)
        run *= x->size[i];
    return run;
}

int64_t weight_position(const struct weight *x, int64_t at)
{
    int64_t p = x->offset;

    for (int i = x->ndim; i-- > 0; at /= x->size[i])
        p += at % x->size[i] * x->stride[i];
    return p;
}

/* Reads n elements, run by run. */
static int read_runs(const struct weights *w, const struct weight *x, int64_t first, char *to,
                     int64_t n, int64_t run)
{
    int64_t unit = x->dtype->size;

    while (n > 0) {
        int64_t part = min_i64(n, run - first % run);
        int rc = archive_read(w->a, x->storage, (uint64_t)(weight_position(x, first) * unit), to,
                              (size_t)(part * unit));
        if (rc)
            return rc;
        first += part;
        to += part * unit;
        n -= part;
    }
    return 0;
}

/* Reads what elements [first, first + n) cover of the storage, from the lowest to the highest, and
 * picks them. */
static int pick(const struct weights *w, const struct weight *x, int64_t first, char *to, int64_t n)
{
    int64_t unit = x->dtype->size, low = INT64_MAX, high = 0;

    for (int64_t i = first; i < first + n; i++) {
        low = min_i64(low, weight_position(x, i));
        high = max_i64(high, weight_position(x, i));
    }
    size_t bytes = (size_t)((high - low + 1) * unit);
    char *part = malloc(bytes);
    if (!part)
        return error_set(CKPT_ENOMEM, "%s: no memory for %zu bytes of tensor '%s'",
                         archive_path(w->a), bytes, x->name);
    int rc = archive_read(w->a, x->storage, (uint64_t)(low * unit), part, bytes);
    if (!rc && bytes == x->storage->size)
        rc = archive_check(w->a, x->storage, crc32_add(0, part, bytes));
    for (int64_t i = 0; i < n && !rc; i++)
        memcpy(to + i * unit, part + (weight_position(x, first + i) - low) * unit, (size_t)unit);
    free(part);
    return rc;
}

static int check_range(const struct weights *w, const struct weight *x, int64_t first, int64_t n)
{
    if (!x->dtype)
        return bad(w, x->name, "has a dtype, number %d, that is not supported", x->code);
    if (first < 0 || n < 0 || n > x->numel - first)
        return error_set(CKPT_EINVAL, "%s: tensor '%s' has %lld elements, not %lld from %lld on",
                         archive_path(w->a), x->name, (long long)x->numel, (long long)n,
                         (long long)first);
    if (!x->has_values)
        return bad(w, x->name, "has no values: the model was exported without its weights");
    return 0;
}

/* Whether runs are worth a read each, which costs about as much as copying 4 KB. */
static bool reads_runs(const struct weight *x)
{
    int64_t run = run_of(x);

    return run == x->numel || run * x->dtype->size >= 4096;
}

static int read_raw(const struct weights *w, const struct weight *x, int64_t first, void *to,
                    int64_t n)
{
    return reads_runs(x) ? read_runs(w, x, first, to, n, run_of(x)) : pick(w, x, first, to, n);
}

/* Whether n elements, read run by run, are all bytes of a storage in their order. */
static bool is_storage(const struct weight *x, int64_t n)
{
    return run_of(x) == x->numel && n == x->numel &&
           (uint64_t)(n * x->dtype->size) == x->storage->size;
}

int weights_read(const struct weights *w, const struct weight *x, int64_t first, void *to,
                 int64_t n)
{
    int rc = check_range(w, x, first, n);

    if (!rc && n)
        rc = read_raw(w, x, first, to, n);
    if (!rc && n && is_storage(x, n))
        rc = archive_check(w->a, x->storage, crc32_add(0, to, x->storage->size));
    return rc;
}

/* Reads and converts to f32, or where that is NULL to i32.  Picked elements are read all at once,
 * since each part of them may cover the whole storage. */
static int read_converted(const struct weights *w, const struct weight *x, int64_t first,
                          float *f32, int32_t *i32, int64_t n)
{
    int64_t part = reads_runs(x) ? min_i64(n, CHUNK / x->dtype->size) : n;
    char *chunk = malloc((size_t)(part * x->dtype->size) + 1);
    uint32_t sum = 0;
    int rc = chunk ? 0
                   : error_set(CKPT_ENOMEM, "%s: no memory to read tensor '%s'", archive_path(w->a),
                               x->name);

    for (int64_t at = 0; at < n && !rc; at += part) {
        part = min_i64(part, n - at);
        rc = read_raw(w, x, first + at, chunk, part);
        if (!rc && is_storage(x, n))
            sum = crc32_add(sum, chunk, (size_t)(part * x->dtype->size));
        if (!rc && f32)
            x->dtype->to_f32(chunk, f32 + at, part);
        int64_t good = rc || f32 ? part : x->dtype->to_i32(chunk, i32 + at, part);
        if (good < part)
            rc = bad(w, x->name, "has an element, number %lld, that does not fit in 32 bits",
                     (long long)(first + at + good));
    }
    free(chunk);
    return rc || !is_storage(x, n) ? rc : archive_check(w->a, x->storage, sum);
}

int weights_read_f32(const struct weights *w, const struct weight *x, int64_t first, float *to,
                     int64_t n)
{
    int rc = check_range(w, x, first, n);

    if (!rc && !x->dtype->to_f32)
        rc = bad(w, x->name, "is %s and cannot be read as fp32", x->dtype->name);
    return rc || !n ? rc : read_converted(w, x, first, to, NULL, n);
}

int weights_read_i32(const struct weights *w, const struct weight *x, int64_t first, int32_t *to,
                     int64_t n)
{
    int rc = check_range(w, x, first, n);

    if (!rc && !x->dtype->to_i32)
        rc = bad(w, x->name, "is %s and cannot be read as i32", x->dtype->name);
    return rc || !n ? rc : read_converted(w, x, first, NULL, to, n);
}
