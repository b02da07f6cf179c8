/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that are cut into pieces, each in another file.  Two kinds are read: the runs of elements
 * that the ranks of libckpt have (safetensors.h), and the boxes of PyTorch's distributed
 * checkpoints.  Notes are untrusted: a tensor is accepted if its pieces cover it exactly once.
 */
#include <stdlib.h>
#include <string.h>
#include "ckpt_files.h"
#include "state/safetensors.h"

/* ---- the notes of a part ------------------------------------------------------------------- */

static int bad_piece(const struct file_part *p, const char *name)
{
    return file_bad(p->path, "the note about the piece of tensor '%s' is not understood", name);
}

/* Numbers of an array, from `least` to 2^52.  Returns how many, or -1. */
static int take_numbers(const json_t *array, int64_t least, int64_t *dst)
{
    const size_t n = json_array_size(array);

    if (!json_is_array(array) || n > CKPT_MAX_DIMS)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(array, i);
        dst[i] = json_integer_value(x);
        if (!json_is_integer(x) || dst[i] < least || dst[i] > INT64_C(1) << 52)
            return -1;
    }
    return (int)n;
}

/* The product of sizes, or -1 if it has more than 64 bits. */
static int64_t count_elements(int ndim, const int64_t *shape)
{
    int64_t n = 1;

    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(n, shape[i], &n))
            return -1;
    return n;
}

/* A piece of a box at these offsets; the rest follows from all pieces. */
static bool take_box(const json_t *entry, const struct file_tensor *e, struct file_piece *q)
{
    q->is_box = true;
    return take_numbers(json_object_get(entry, "saved_offsets"), 0, q->at) == e->ndim;
}

/* The strides in the tensor of the axes of its view. */
static bool take_axes(const json_t *entry, int64_t numel, struct file_piece *q)
{
    int64_t axes[CKPT_MAX_DIMS], stride = 1;
    unsigned seen = 0;

    q->ndim = take_numbers(json_object_get(entry, "view"), 1, q->box);
    if (q->ndim < 1 || take_numbers(json_object_get(entry, "axes"), 0, axes) != q->ndim ||
        count_elements(q->ndim, q->box) != numel)
        return false;
    for (int i = q->ndim; i-- > 0;) {
        if (axes[i] >= q->ndim || seen & 1u << axes[i])
            return false;
        seen |= 1u << axes[i];
        q->stride[axes[i]] = stride;
        stride *= q->box[axes[i]];
    }
    return true;
}

static bool take_run(const json_t *entry, const struct file_tensor *e, struct file_piece *q)
{
    const json_t *first = json_object_get(entry, "first");

    q->whole_ndim = take_numbers(json_object_get(entry, "shape"), 0, q->whole);
    q->first = json_integer_value(first);
    const int64_t numel = q->whole_ndim < 0 ? -1 : count_elements(q->whole_ndim, q->whole);
    if (numel < 1 || !json_is_integer(first) || q->first < 0 || q->first > numel - e->numel)
        return false;
    if (json_object_get(entry, "view"))
        return take_axes(entry, numel, q);
    q->ndim = 1;
    q->box[0] = numel;
    q->stride[0] = 1;
    return true;
}

int file_take_pieces(struct file_part *p)
{
    const json_t *notes = json_object_get(p->header, "__metadata__");
    const char *runs = json_string_value(json_object_get(notes, NOTE_PIECES));
    const char *boxes = json_string_value(json_object_get(notes, NOTE_BOXES));
    int n = 0, rc = 0;

    if (!runs && !boxes)
        return 0;
    json_t *list = json_loads(runs ? runs : boxes, JSON_REJECT_DUPLICATES, NULL);
    p->pieces = calloc((size_t)p->count + 1, sizeof *p->pieces);
    if (!json_is_object(list))
        rc = file_bad(p->path, "the note '%s' is not a JSON object",
                      runs ? NOTE_PIECES : NOTE_BOXES);
    else if (!p->pieces)
        rc = error_set(CKPT_ENOMEM, "%s: no memory for its pieces", p->path);
    for (int i = 0; i < p->count && !rc; i++) {
        struct file_tensor *e = &p->tensors[i];
        const json_t *entry = json_object_get(list, e->name);
        if (!entry)
            continue;
        e->piece = &p->pieces[n++];
        if (!(runs ? take_run : take_box)(entry, e, e->piece))
            rc = bad_piece(p, e->name);
    }
    json_decref(list);
    return rc;
}

/* ---- joining ------------------------------------------------------------------------------- */

static int by_first(const void *a, const void *b)
{
    const struct file_piece *x = ((const struct file_tensor *)a)->piece,
                            *y = ((const struct file_tensor *)b)->piece;

    return (x->first > y->first) - (x->first < y->first);
}

static bool is_alike(const struct file_tensor *a, const struct file_tensor *b)
{
    const struct file_piece *x = a->piece, *y = b->piece;

    return y && a->dtype == b->dtype && x->is_box == y->is_box && x->whole_ndim == y->whole_ndim &&
           x->ndim == y->ndim && !memcmp(x->whole, y->whole, sizeof x->whole) &&
           (!x->is_box || a->ndim == b->ndim) && !memcmp(x->box, y->box, sizeof x->box) &&
           !memcmp(x->stride, y->stride, sizeof x->stride);
}

static bool overlaps(const struct file_tensor *a, const struct file_tensor *b)
{
    for (int i = 0; i < a->ndim; i++)
        if (a->piece->at[i] + a->shape[i] <= b->piece->at[i] ||
            b->piece->at[i] + b->shape[i] <= a->piece->at[i])
            return false;
    return true;
}

/* The shape that contains all boxes, whose sizes, strides and bases follow.  False if they overlap
 * or 64 bits do not count its elements. */
static bool fit_boxes(struct file_tensor *whole, struct file_tensor *e, int n)
{
    int64_t end;

    whole->ndim = e->ndim;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < e->ndim; k++) {
            if (__builtin_add_overflow(e[i].piece->at[k], e[i].shape[k], &end))
                return false;
            whole->shape[k] = max_i64(whole->shape[k], end);
        }
        for (int j = 0; j < i; j++)
            if (e[i].numel && e[j].numel && overlaps(&e[i], &e[j]))
                return false;
    }
    for (int i = 0; i < n; i++) {
        struct file_piece *q = e[i].piece;
        int64_t stride = 1;
        q->ndim = e->ndim;
        for (int k = e->ndim; k-- > 0;) {
            q->box[k] = e[i].shape[k];
            q->stride[k] = stride;
            if (__builtin_mul_overflow(q->at[k], stride, &end) ||
                __builtin_add_overflow(q->base, end, &q->base) ||
                __builtin_mul_overflow(stride, whole->shape[k], &stride))
                return false;
        }
    }
    return true;
}

/* Runs of elements, sorted; each begins where the last one ends. */
static bool fit_runs(struct file_tensor *whole, struct file_tensor *e, int n)
{
    int64_t end = 0;

    whole->ndim = e->piece->whole_ndim;
    memcpy(whole->shape, e->piece->whole, sizeof whole->shape);
    qsort(e, (size_t)n, sizeof *e, by_first);
    for (int i = 0; i < n; i++) {
        if (e[i].piece->first != end)
            return false;
        end += e[i].numel;
    }
    return true;
}

/* Makes one tensor of n pieces. */
static int join(const ckpt_file *f, struct file_tensor *whole, struct file_tensor *e, int n)
{
    int64_t have = 0;
    bool alike = true;

    for (int i = 0; i < n; i++) {
        alike &= is_alike(e, &e[i]);
        have += e[i].numel;
    }
    *whole = (struct file_tensor){.part = e->part, .name = e->name, .dtype = e->dtype};
    if (!alike)
        return file_bad(f->path, "the pieces of tensor '%s' do not belong together", e->name);
    const bool good = e->piece->is_box ? fit_boxes(whole, e, n) : fit_runs(whole, e, n);
    whole->numel = count_elements(whole->ndim, whole->shape);
    whole->pieces = e;
    whole->n_pieces = n;
    if (good && have == whole->numel)
        return 0;
    return file_bad(f->path,
                    "the pieces of tensor '%s' do not cover it once: a part is missing or is of "
                    "another save",
                    e->name);
}

/* The number of tensors called as the first of n. */
static int count_alike(const struct file_tensor *e, int n)
{
    int k = 1;

    while (k < n && !strcmp(e->name, e[k].name))
        k++;
    return k;
}

int file_join_pieces(ckpt_file *f)
{
    bool any = false;
    int kept = 0, rc = 0;

    for (int i = 0; i < f->count; i++)
        any |= f->tensors[i].piece != NULL;
    if (!any)
        return 0;
    f->pieces = malloc((size_t)f->count * sizeof *f->pieces);
    if (!f->pieces)
        return error_set(CKPT_ENOMEM, "%s: no memory for the list of pieces", f->path);
    memcpy(f->pieces, f->tensors, (size_t)f->count * sizeof *f->pieces);
    for (int i = 0, n; i < f->count && !rc; i += n) {
        struct file_tensor *e = &f->pieces[i];
        n = count_alike(e, f->count - i);
        if (e->piece)
            rc = join(f, &f->tensors[kept++], e, n);
        else
            f->tensors[kept++] = *e;
        if (!e->piece && n > 1)
            rc = file_bad(f->path, "has tensor '%s' twice", e->name);
    }
    f->count = kept;
    return rc;
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Puts a row of n elements of `size` bytes at place, place + step and so on. */
static void put_row(const char *v, int64_t size, int64_t n, int64_t place, int64_t step,
                    int64_t n_dst, char *to)
{
    if (step == 1) {
        const int64_t from = max_i64(0, -place), end = min_i64(n, n_dst - place);
        if (from < end)
            memcpy(to + (place + from) * size, v + from * size, (size_t)((end - from) * size));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t x = place + i * step;
        if (x < 0 || x >= n_dst)
            continue;
        if (size == 4) /* of a known size, the call is a move */
            memcpy(to + x * 4, v + i * 4, 4);
        else
            memcpy(to + x * size, v + i * size, (size_t)size);
    }
}

void file_put_piece(const struct file_piece *q, int64_t at, int64_t n, const void *values,
                    int64_t size, int64_t low, int64_t n_dst, void *dst)
{
    const int last = q->ndim - 1;
    const char *v = values;
    int64_t index[CKPT_MAX_DIMS] = {0}, left = q->first + at, place = q->base - low;

    for (int k = q->ndim; k-- > 0 && n > 0; left /= q->box[k]) {
        index[k] = left % q->box[k];
        place += index[k] * q->stride[k];
    }
    for (int64_t row; n > 0; n -= row, v += row * size) {
        const int64_t step = last < 0 ? 1 : q->stride[last];
        row = last < 0 ? 1 : min_i64(n, q->box[last] - index[last]);
        put_row(v, size, row, place, step, n_dst, dst);
        if (last < 0)
            continue;
        index[last] += row;
        place += row * step;
        for (int k = last; k > 0 && index[k] == q->box[k]; k--) {
            place += q->stride[k - 1] - q->box[k] * q->stride[k];
            index[k] = 0;
            index[k - 1]++;
        }
    }
}
