/* SPDX-License-Identifier: Apache-2.0 */
/* Windows that slide along axes, and their sums: unfold, im2col, col2im; diagonals. */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/selection.h"
#include "import/views.h"

/* An axis replaced by those of an index. */
static struct tensor select_at(struct call *c, struct tensor a, int axis, struct tensor index)
{
    ckpt_tensor x = tensor_record(c->r, &a), at = tensor_record(c->r, &index);

    return c->r->failed ? a : tensor_of(c->r, a.dtype, ckpt_index_select(c->r->t, x, axis, at));
}

/* [.., n, ..] to [.., windows, .., size]. */
static struct tensor op_unfold(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int axis = call_axis(c, "dimension", &a);
    const int64_t size = call_int(c, "size"), step = call_int(c, "step");
    int axes[TENSOR_AXES];

    (void)part;
    if (step < 1 || size < 1 || size > a.shape[axis] || a.ndim == TENSOR_AXES)
        recording_fail(c->r, CKPT_ESHAPE, "windows of %lld elements every %lld", (long long)size,
                       (long long)step);
    if (c->r->failed)
        return a;
    const int64_t n = (a.shape[axis] - size) / step + 1;
    struct tensor index = tensor_zeros(c->r, PT2_I64, 2, (int64_t[]){n, size});
    for (int64_t k = 0; k < n * size && !c->r->failed; k++)
        index.i[k] = k / size * step + k % size;
    a = select_at(c, a, axis, index);
    for (int i = 0; i < a.ndim; i++)
        axes[i] = i <= axis ? i : i == a.ndim - 1 ? axis + 1 : i + 1;
    return view_permute(c->r, a, axes);
}

/* Elements by their distance in memory, of a tensor whose elements follow each other there. */
static struct tensor op_as_strided(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const struct variable *self = call_variable(c, "self");
    const struct pt2_tensor *f = self ? self->facts : c->facts;
    int64_t size[TENSOR_AXES], stride[TENSOR_AXES], dense = 1, places = 1, all = tensor_numel(&a);
    const int n = call_ints(c, "size", size, TENSOR_AXES);
    const int64_t given =
        call_has(c, "storage_offset") ? call_int(c, "storage_offset") : f->offset.n;

    (void)part;
    for (int i = f->ndim - 1; i >= 0; i--) {
        if (f->size[i].expr || f->stride[i].expr || (f->size[i].n > 1 && f->stride[i].n != dense))
            recording_fail(c->r, CKPT_EFORMAT, "strides of elements that do not follow each other");
        dense *= f->size[i].n;
    }
    if (call_ints(c, "stride", stride, TENSOR_AXES) != n)
        recording_fail(c->r, CKPT_ESHAPE, "sizes and strides of other numbers of axes");
    for (int i = 0; i < n && !c->r->failed; i++) {
        if (size[i] < 1 || stride[i] < 0 || size[i] > CALL_LARGEST || stride[i] > CALL_LARGEST ||
            (places *= size[i]) > CALL_LARGEST)
            recording_fail(c->r, CKPT_ESHAPE, "strides of more than 2^24 elements");
    }
    if (c->r->failed)
        return a;
    struct tensor index = tensor_zeros(c->r, PT2_I64, n, size);
    for (int64_t k = 0; k < places && !c->r->failed; k++) {
        int64_t rest = k;
        index.i[k] = given - f->offset.n;
        for (int i = n - 1; i >= 0; i--) {
            index.i[k] += rest % size[i] * stride[i];
            rest /= size[i];
        }
    }
    a = c->r->failed ? a : view_reshape(c->r, a, 1, &all);
    return c->r->failed ? a : select_rows(c, a, 0, index_of(c, index, all, false));
}

/* Of the matrices of two axes: every (columns + 1)-th element, from the offset on. */
static struct tensor diagonal(struct call *c, struct tensor a, int row, int column, int64_t by)
{
    const int64_t n = a.ndim > 1 ? a.shape[row] : 0;
    const int64_t m = a.ndim > 1 ? a.shape[column] : 0;
    const int64_t rows = by < 0 ? n + by : n, columns = by > 0 ? m - by : m;
    const int64_t count = rows < columns ? rows : columns;
    int axes[TENSOR_AXES], k = 0;
    int64_t shape[TENSOR_AXES];

    if (row == column || by > CALL_LARGEST || by < -CALL_LARGEST || count < 1)
        recording_fail(c->r, CKPT_ESHAPE, "a diagonal of %lld x %lld at %lld", (long long)n,
                       (long long)m, (long long)by);
    for (int i = 0; i < a.ndim && !c->r->failed; i++)
        if (i != row && i != column)
            axes[k++] = i;
    if (c->r->failed)
        return a;
    axes[k] = row;
    axes[k + 1] = column;
    a = view_permute(c->r, a, axes);
    memcpy(shape, a.shape, sizeof shape);
    shape[k] = n * m;
    a = view_reshape(c->r, a, k + 1, shape);
    const int64_t begin = by < 0 ? -by * m : by;
    return c->r->failed ? a
                        : view_slice(c->r, a, k, begin, begin + (count - 1) * (m + 1) + 1, m + 1);
}

static struct tensor op_diagonal(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return diagonal(c, a, call_axis(c, "dim1", &a), call_axis(c, "dim2", &a),
                    call_int(c, "offset"));
}

/* [.., n] as the diagonal of [.., m, m], which is 0 elsewhere. */
static struct tensor embed(struct call *c, struct tensor a, int64_t by)
{
    const int64_t n = a.ndim ? a.shape[a.ndim - 1] : 0, m = n + (by < 0 ? -by : by);

    if (n < 1 || a.ndim == TENSOR_AXES || by > CALL_LARGEST || by < -CALL_LARGEST)
        recording_fail(c->r, CKPT_ESHAPE, "a diagonal of %lld at %lld", (long long)n,
                       (long long)by);
    if (c->r->failed)
        return a;
    struct tensor at = tensor_zeros(c->r, PT2_I64, 1, &m);
    struct tensor keep = tensor_zeros(c->r, PT2_BOOL, 2, (int64_t[]){m, m});
    for (int64_t k = 0; k < n && !c->r->failed; k++) {
        keep.i[(k + (by < 0 ? -by : 0)) * m + k + (by > 0 ? by : 0)] = 1;
        at.i[k + (by > 0 ? by : 0)] = k; /* the element of a column */
    }
    a = view_unsqueeze(c->r, select_rows(c, a, a.ndim - 1, at), a.ndim - 1);
    return math_where(c->r, keep, a, tensor_number(c->r, c->dtype, 0, 0), c->dtype);
}

static struct tensor op_diag_embed(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int64_t row = call_int(c, "dim1"), column = call_int(c, "dim2");

    (void)part;
    if ((row != -2 && row != a.ndim - 1) || (column != -1 && column != a.ndim))
        recording_fail(c->r, CKPT_EFORMAT, "a diagonal of axes that are not the last two");
    return embed(c, a, call_int(c, "offset"));
}

static struct tensor op_diag(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return a.ndim == 1 ? embed(c, a, call_int(c, "diagonal"))
                       : diagonal(c, a, 0, 1, call_int(c, "diagonal"));
}

static struct tensor op_trace(struct call *c, int part)
{
    struct tensor a = diagonal(c, call_tensor(c, "self"), 0, 1, 0);

    (void)part;
    return c->r->failed ? a : reduce_sum(c, a, 1);
}

/* ---- windows of pictures --------------------------------------------------------------------- */

/* Windows of a picture of height and width n[0] and n[1], `count` of them along each axis. */
struct windows {
    int64_t n[2], size[2], gap[2], pad[2], step[2], count[2];
};

static struct windows read_windows(struct call *c, const int64_t *n)
{
    struct windows w = {.count = {1, 1}};

    memcpy(w.n, n, sizeof w.n);
    call_sizes_of(c, "kernel_size", 1, w.size, 2);
    call_sizes_of(c, "dilation", 1, w.gap, 2);
    call_sizes_of(c, "padding", 0, w.pad, 2);
    call_sizes_of(c, "stride", 1, w.step, 2);
    for (int i = 0; i < 2; i++)
        if (n[i] < 1 || n[i] > CALL_LARGEST)
            recording_fail(c->r, CKPT_ESHAPE, "a picture of %lld elements along an axis",
                           (long long)n[i]);
    if (c->r->failed)
        return w;
    for (int i = 0; i < 2; i++) {
        const int64_t room = n[i] + 2 * w.pad[i] - w.gap[i] * (w.size[i] - 1) - 1;
        w.count[i] = room >= 0 ? room / w.step[i] + 1 : 0;
        if (w.count[i] < 1)
            recording_fail(c->r, CKPT_ESHAPE, "windows are larger than the picture");
    }
    if ((double)w.size[0] * (double)w.size[1] * (double)w.count[0] * (double)w.count[1] > 0x1p26 ||
        (double)w.n[0] * (double)w.n[1] > 0x1p26)
        recording_fail(c->r, CKPT_ESHAPE, "windows have more than 2^26 elements");
    return w;
}

/* The place in the picture of element `in` of window `of`, or n[0] n[1] for padding. */
static int64_t place(const struct windows *w, int64_t in, int64_t of)
{
    const int64_t row = of / w->count[1] * w->step[0] + in / w->size[1] * w->gap[0] - w->pad[0];
    const int64_t column = of % w->count[1] * w->step[1] + in % w->size[1] * w->gap[1] - w->pad[1];

    if (row < 0 || row >= w->n[0] || column < 0 || column >= w->n[1])
        return w->n[0] * w->n[1];
    return row * w->n[1] + column;
}

/* A tensor [N, C, n] with a zero behind its last axis. */
static struct tensor with_zero(struct call *c, struct tensor a)
{
    ckpt_tensor x = tensor_record(c->r, &a);

    if (c->r->failed)
        return a;
    return tensor_of(c->r, a.dtype, ckpt_pad(c->r->t, x, 2, 0, 1, CKPT_PAD_CONSTANT, 0.f));
}

static struct tensor refuse_axes(struct call *c, struct tensor a, int axes)
{
    recording_fail(c->r, CKPT_ESHAPE, "windows of a tensor with %d axes, not %d", a.ndim, axes);
    return a;
}

/* [N, C, H, W] to [N, C size, windows]. */
static struct tensor op_im2col(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);

    (void)part;
    if (a.ndim != 4)
        return refuse_axes(c, a, 4);
    const struct windows w = read_windows(c, a.shape + 2);
    const int64_t size = w.size[0] * w.size[1], count = w.count[0] * w.count[1];
    if (c->r->failed)
        return a;
    struct tensor index = tensor_zeros(c->r, PT2_I64, 2, (int64_t[]){size, count});
    for (int64_t k = 0; k < size * count && !c->r->failed; k++)
        index.i[k] = place(&w, k / count, k % count);
    const int64_t flat[] = {a.shape[0], a.shape[1], w.n[0] * w.n[1]};
    const int64_t shape[] = {a.shape[0], a.shape[1] * size, count};
    a = select_at(c, with_zero(c, view_reshape(c->r, a, 3, flat)), 2, index);
    return c->r->failed ? a : view_reshape(c->r, a, 3, shape);
}

/* Which elements of all windows lie on each place: [places, most], the others one behind. */
static struct tensor contributions(struct call *c, const struct windows *w)
{
    const int64_t size = w->size[0] * w->size[1], count = w->count[0] * w->count[1];
    const int64_t places = w->n[0] * w->n[1];
    int64_t *have = heap_zeros(&c->r->heap, places + 1, sizeof *have), most = 1;

    for (int64_t k = 0; have && k < size * count; k++) {
        const int64_t at = place(w, k / count, k % count), n = ++have[at];
        most = at < places && n > most ? n : most;
    }
    struct tensor index = tensor_zeros(c->r, PT2_I64, 2, (int64_t[]){places, most});
    if (!have || c->r->failed)
        return index;
    for (int64_t k = 0; k < places * most; k++)
        index.i[k] = size * count;
    memset(have, 0, (size_t)places * sizeof *have);
    for (int64_t k = 0; k < size * count; k++) {
        const int64_t at = place(w, k / count, k % count);
        if (at < places)
            index.i[at * most + have[at]++] = k;
    }
    return index;
}

/* [N, C size, windows] to [N, C, H, W]: what lies on one place is added. */
static struct tensor op_col2im(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);
    int64_t n[2];

    (void)part;
    if (a.ndim != 3)
        return refuse_axes(c, a, 3);
    call_ints_of(c, "output_size", n, 2);
    const struct windows w = read_windows(c, n);
    const int64_t size = w.size[0] * w.size[1], count = w.count[0] * w.count[1];
    if (c->r->failed || a.shape[1] % size || a.shape[2] != count)
        return refuse_axes(c, a, 3);
    const int64_t flat[] = {a.shape[0], a.shape[1] / size, size * count};
    const int64_t shape[] = {a.shape[0], a.shape[1] / size, n[0], n[1]};
    struct tensor y = with_zero(c, view_reshape(c->r, a, 3, flat));
    y = select_at(c, y, 2, contributions(c, &w));
    if (c->r->failed)
        return a;
    y = tensor_of(c->r, PT2_F32, ckpt_sum(c->r->t, y.x, 1u << 3));
    return math_cast(c->r, view_reshape(c->r, y, 4, shape), c->dtype);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_window[] = {
    {"aten.unfold.default", op_unfold, put_nothing, NULL, false},
    {"aten.as_strided.default", op_as_strided, put_nothing, NULL, false},
    {"aten.diagonal.default", op_diagonal, put_nothing, NULL, false},
    OP("diag_embed.default", op_diag_embed),
    OP("diag.default", op_diag),
    OP("trace.default", op_trace),
    OP("im2col.default", op_im2col),
    OP("col2im.default", op_col2im),
    {NULL, NULL, NULL, NULL, false},
};
