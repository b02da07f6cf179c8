/* SPDX-License-Identifier: Apache-2.0 */
/* Writes by index, and counts. */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/selection.h"
#include "import/views.h"

/* What is counted in floats on the tape. */
static void check_count(struct call *c, int64_t n)
{
    if (n > 1 << 24)
        recording_fail(c->r, CKPT_EFORMAT, "more than 2^24 places are written by index");
}

/* ---- sums ------------------------------------------------------------------------------------ */

static struct tensor add_constant(struct call *c, struct selection s, struct tensor values)
{
    struct tensor out = tensor_zeros(c->r, c->dtype, s.a.ndim, s.a.shape);
    const int64_t size = s.a.shape[s.first], n = tensor_numel(&s.index);
    const int64_t all = tensor_numel(&out), count = tensor_numel(&values);
    int64_t inner = 1;

    for (int i = s.first + 1; i < s.a.ndim; i++)
        inner *= s.a.shape[i];
    for (int64_t k = 0; k < all && !c->r->failed; k++)
        if (pt2_is_float(c->dtype))
            out.f[k] = tensor_f(&s.a, k);
        else
            out.i[k] = tensor_i(&s.a, k);
    for (int64_t k = 0; k < count && !c->r->failed; k++) {
        const int64_t place = tensor_i(&s.index, k / inner % n);
        const int64_t at = (k / inner / n * size + place) * inner + k % inner;
        if (pt2_is_float(c->dtype))
            out.f[at] = tensor_round(c->dtype, out.f[at] + tensor_f(&values, k));
        else
            out.i[at] += tensor_i(&values, k);
    }
    return out;
}

/* Whole numbers are added as floats, exact up to 2^24. */
static struct tensor put_sums(struct call *c, struct selection s, struct tensor values)
{
    const int dtype = pt2_is_float(c->dtype) ? c->dtype : PT2_F32;

    if (!tensor_numel(&values))
        return s.a;
    if (s.a.constant && s.index.constant && values.constant)
        return add_constant(c, s, values);
    s.a = math_cast(c->r, s.a, dtype);
    values = math_cast(c->r, values, dtype);
    tensor_record(c->r, &s.a);
    tensor_record(c->r, &s.index);
    tensor_record(c->r, &values);
    if (c->r->failed)
        return s.a;
    ckpt_tensor y = ckpt_index_add(c->r->t, s.a.x, s.first, s.index.x, values.x);
    return math_cast(c->r, tensor_of(c->r, dtype, y), c->dtype);
}

/* Whether a place of the selected axis is written, with the axes of "self". */
static struct tensor written_of(struct call *c, const struct selection *s)
{
    const int64_t size = s->a.shape[s->first], n = tensor_numel(&s->index);
    const struct selection counts = {.a = tensor_zeros(c->r, PT2_F32, 1, &size), .index = s->index};
    struct tensor one = view_expand(c->r, tensor_number(c->r, PT2_F32, 1, 1), 1, &n);
    struct call of = *c;
    int64_t shape[TENSOR_AXES];

    of.dtype = PT2_F32;
    for (int i = 0; i < s->a.ndim; i++)
        shape[i] = i == s->first ? size : 1;
    one = math_cast(c->r, put_sums(&of, counts, one), PT2_BOOL);
    return view_reshape(c->r, one, s->a.ndim, shape);
}

/* ---- index_put ------------------------------------------------------------------------------- */

/* For each of `size` places the last position of the index that writes it, or -1. */
static struct tensor last_writers_constant(struct call *c, struct tensor index, int64_t size)
{
    struct tensor out = tensor_zeros(c->r, PT2_I64, 1, &size);
    const int64_t n = tensor_numel(&index);

    for (int64_t k = 0; k < size && !c->r->failed; k++)
        out.i[k] = -1;
    for (int64_t k = 0; k < n && !c->r->failed; k++)
        out.i[tensor_i(&index, k)] = k;
    return out;
}

/* Of positions sorted by place, stably, the last of each place has its number; the others add 0. */
static struct tensor last_writers(struct call *c, struct tensor index, int64_t size)
{
    ckpt_tape *t = c->r->t;
    const int64_t n = tensor_numel(&index);

    if (index.constant)
        return last_writers_constant(c, index, size);
    check_count(c, n > size ? n : size);
    if (c->r->failed)
        return index;
    ckpt_tensor order = ckpt_argsort(t, ckpt_cast(t, index.x, CKPT_F32), false);
    ckpt_tensor place = ckpt_gather(t, index.x, 0, order);
    ckpt_tensor end = ckpt_full(t, (float)(n - 1), CKPT_I32, 1, &n);
    ckpt_tensor last = ckpt_or(t, ckpt_ne(t, place, ckpt_roll(t, place, 0, -1)),
                               ckpt_eq(t, ckpt_iota(t, CKPT_I32, 1, &n, 0), end));
    ckpt_tensor number = ckpt_affine(t, ckpt_cast(t, order, CKPT_F32), 1.f, 1.f);
    ckpt_tensor none = ckpt_full(t, 0.f, CKPT_F32, 1, &size);
    number = ckpt_mul(t, number, ckpt_cast(t, last, CKPT_F32));
    number = ckpt_affine(t, ckpt_scatter_add(t, none, 0, place, number), 1.f, -1.f);
    return tensor_of(c->r, PT2_I64, ckpt_cast(t, number, CKPT_I32));
}

/* Each place gets the value of its last writer, or keeps its own. */
static struct tensor put_last(struct call *c, struct selection s, struct tensor values)
{
    int64_t shape[TENSOR_AXES];
    const int64_t size = s.a.shape[s.first];
    if (!tensor_numel(&values))
        return s.a;
    struct tensor writer = last_writers(c, s.index, size);
    struct tensor zero = tensor_number(c->r, PT2_I64, 0, 0);
    struct tensor written = math_binary(c->r, BINARY_GE, writer, zero, PT2_BOOL);

    writer = math_binary(c->r, BINARY_MAX, writer, zero, PT2_I64);
    for (int i = 0; i < s.a.ndim; i++)
        shape[i] = i == s.first ? size : 1;
    written = view_reshape(c->r, written, s.a.ndim, shape);
    return c->r->failed
               ? s.a
               : math_where(c->r, written, select_rows(c, values, s.first, writer), s.a, c->dtype);
}

/* Values with the axes of the index, in the places of the indexed axes, or that broadcast to them;
 * then with one axis for them. */
static struct tensor values_of(struct call *c, const struct selection *s, struct tensor values)
{
    int64_t shape[2 * TENSOR_AXES], joined[TENSOR_AXES];
    const int64_t n = tensor_numel(&s->index);
    int axes = 0;

    for (int i = 0; i < s->a.ndim; i++) {
        joined[i] = i == s->first ? n : s->a.shape[i];
        for (int k = 0; i == s->first && k < s->index.ndim; k++)
            shape[axes++] = s->index.shape[k];
        if (i != s->first)
            shape[axes++] = s->a.shape[i];
    }
    if (axes > TENSOR_AXES) {
        recording_fail(c->r, CKPT_ESHAPE, "values with %d axes", axes);
        return values;
    }
    values = view_expand(c->r, math_cast(c->r, values, c->dtype), axes, shape);
    return view_reshape(c->r, values, s->a.ndim, joined);
}

/* The result with the axes of "self". */
static struct tensor restore(struct call *c, const struct selection *s, struct tensor a)
{
    int back[TENSOR_AXES];

    if (c->r->failed)
        return a;
    inverse_axes(s->ndim, s->axes, back);
    return view_permute(c->r, view_reshape(c->r, a, s->ndim, s->shape), back);
}

/* One mask that the step computes, and values that are the same for all it selects. */
static bool is_masked(struct call *c, struct tensor *mask, const struct tensor *values)
{
    struct variable **v;
    const int n = call_variables(c, "indices", &v);

    if (n != 1 || !v[0])
        return false;
    *mask = *variable_read(c->r, v[0]);
    const struct tensor a = call_tensor(c, "self");
    return mask->dtype == PT2_BOOL && !mask->constant && values->ndim <= a.ndim - mask->ndim &&
           !call_bool(c, "accumulate");
}

static struct tensor put_masked(struct call *c, struct tensor mask, struct tensor values)
{
    struct tensor a = call_tensor(c, "self");

    while (mask.ndim < a.ndim && !c->r->failed)
        mask = view_unsqueeze(c->r, mask, mask.ndim);
    return math_where(c->r, mask, values, a, c->dtype);
}

/* Where several positions write one place, the last one counts, or all are added. */
static struct tensor op_index_put(struct call *c, int part)
{
    struct tensor values = call_tensor(c, "values"), mask;

    (void)part;
    if (is_masked(c, &mask, &values))
        return put_masked(c, mask, values);
    struct selection s = selection_of(c);
    if (c->r->failed)
        return s.a;
    const bool one = !values.ndim && !call_bool(c, "accumulate");
    if (!one)
        values = values_of(c, &s, values);
    const int64_t n = tensor_numel(&s.index);
    s.index = view_reshape(c->r, s.index, 1, &n);
    s.a = math_cast(c->r, s.a, c->dtype);
    if (c->r->failed)
        return s.a;
    return restore(c, &s,
                   one ? math_where(c->r, written_of(c, &s), values, s.a, c->dtype)
                   : call_bool(c, "accumulate") ? put_sums(c, s, values)
                                                : put_last(c, s, values));
}

/* ---- other writes along an axis -------------------------------------------------------------- */

/* The positions of "index" along axis "dim". */
static struct selection selection_along(struct call *c)
{
    struct selection s = {.a = call_tensor(c, "self"), .index = call_tensor(c, "index")};
    const int64_t n = tensor_numel(&s.index);

    s.first = call_axis(c, "dim", &s.a);
    if (!s.a.ndim)
        recording_fail(c->r, CKPT_EFORMAT, "a tensor without axes is written by index");
    if (!c->r->failed)
        s.index = index_of(c, view_reshape(c->r, s.index, 1, &n), s.a.shape[s.first], false);
    return s;
}

static struct tensor op_index_fill(struct call *c, int part)
{
    const struct selection s = selection_along(c);

    (void)part;
    return c->r->failed
               ? s.a
               : math_where(c->r, written_of(c, &s), call_tensor(c, "value"), s.a, c->dtype);
}

/* Slices in the places of the index. */
static struct tensor slices_of(struct call *c, const struct selection *s, struct tensor source)
{
    int64_t shape[TENSOR_AXES];

    memcpy(shape, s->a.shape, sizeof shape);
    shape[s->first] = tensor_numel(&s->index);
    return view_expand(c->r, math_cast(c->r, source, c->dtype), s->a.ndim, shape);
}

static struct tensor op_index_add(struct call *c, int part)
{
    const struct selection s = selection_along(c);
    struct tensor source = math_times(c->r, call_tensor(c, "source"), call_double(c, "alpha"));

    (void)part;
    source = slices_of(c, &s, source);
    return c->r->failed ? s.a : put_sums(c, s, source);
}

static struct tensor op_index_copy(struct call *c, int part)
{
    const struct selection s = selection_along(c);
    struct tensor source = slices_of(c, &s, call_tensor(c, "source"));

    (void)part;
    return c->r->failed ? s.a : put_last(c, s, source);
}

/* The part of a tensor that an index of other sizes reaches along an axis. */
static struct tensor reached(struct call *c, struct tensor a, const struct tensor *index, int axis)
{
    if (index->ndim != a.ndim)
        recording_fail(c->r, CKPT_EFORMAT, "an index of %d axes for %d", index->ndim, a.ndim);
    for (int i = 0; i < a.ndim && !c->r->failed; i++)
        if (i != axis && a.shape[i] != index->shape[i])
            recording_fail(c->r, CKPT_EFORMAT, "an index that is shorter along axis %d", i);
    tensor_record(c->r, &a);
    return a;
}

/* A tensor that is written along an axis, by an index with as many axes; without any, as with one.
 */
struct scatter {
    struct tensor a, index;
    int axis;
    bool scalar;
};

static struct tensor with_axis(struct call *c, struct tensor a)
{
    return a.ndim || c->r->failed ? a : view_unsqueeze(c->r, a, 0);
}

static struct scatter read_scatter(struct call *c)
{
    struct scatter s = {.a = call_tensor(c, "self"), .index = call_tensor(c, "index")};

    s.scalar = !s.a.ndim;
    s.axis = call_axis(c, "dim", &s.a);
    s.a = with_axis(c, s.a);
    s.index = with_axis(c, s.index);
    if (!tensor_numel(&s.index) || c->r->failed)
        return s;
    s.a = reached(c, s.a, &s.index, s.axis);
    s.index = c->r->failed ? s.index : index_of(c, s.index, s.a.shape[s.axis], false);
    tensor_record(c->r, &s.index);
    return s;
}

/* The part of "src" that the index has a place for. */
static struct tensor source_of(struct call *c, const struct scatter *s)
{
    struct tensor source = with_axis(c, call_tensor(c, "src"));

    for (int i = 0; i < s->index.ndim && !c->r->failed; i++) {
        if (i >= source.ndim || source.shape[i] < s->index.shape[i])
            recording_fail(c->r, CKPT_ESHAPE, "the source is smaller than the index");
        else
            source = view_slice(c->r, source, i, 0, s->index.shape[i], 1);
    }
    tensor_record(c->r, &source);
    return source;
}

/* How often each place is written. */
static struct tensor count_writes(struct call *c, const struct scatter *s)
{
    ckpt_tape *t = c->r->t;

    if (c->r->failed)
        return s->a;
    ckpt_tensor none = ckpt_full(t, 0.f, CKPT_F32, s->a.ndim, s->a.shape);
    ckpt_tensor one = ckpt_full(t, 1.f, CKPT_F32, s->index.ndim, s->index.shape);
    return tensor_of(c->r, PT2_F32, ckpt_scatter_add(t, none, s->axis, s->index.x, one));
}

static struct tensor scatter_sums(struct call *c, const struct scatter *s, struct tensor a)
{
    const struct tensor source = source_of(c, s);

    tensor_record(c->r, &a);
    return c->r->failed ? a
                        : tensor_of(c->r, a.dtype,
                                    ckpt_scatter_add(c->r->t, a.x, s->axis, s->index.x, source.x));
}

static struct tensor scattered(struct call *c, const struct scatter *s, struct tensor a)
{
    return s->scalar && !c->r->failed ? view_squeeze(c->r, a, 0) : a;
}

static struct tensor op_scatter_add(struct call *c, int part)
{
    const struct scatter s = read_scatter(c);

    (void)part;
    return scattered(c, &s, tensor_numel(&s.index) ? scatter_sums(c, &s, s.a) : s.a);
}

/* Sums or means of what is written to a place, with or without what it had. */
static struct tensor op_scatter_reduce(struct call *c, int part)
{
    const char *how = call_text(c, "reduce");
    const bool mean = !strcmp(how, "mean"), keeps = call_bool(c, "include_self");
    const struct scatter s = read_scatter(c);
    struct tensor zero = tensor_number(c->r, c->dtype, 0, 0), y = s.a;

    (void)part;
    if ((!mean && strcmp(how, "sum") != 0) || !pt2_is_float(c->dtype))
        recording_fail(c->r, CKPT_EFORMAT,
                       "only sums and means of floats are written by index, no '%s' of %s", how,
                       pt2_dtype_name(c->dtype));
    if (!tensor_numel(&s.index) || c->r->failed)
        return scattered(c, &s, s.a);
    struct tensor count = count_writes(c, &s);
    if (!keeps)
        y = math_where(c->r, math_cast(c->r, count, PT2_BOOL), zero, y, c->dtype);
    y = scatter_sums(c, &s, y);
    if (mean) {
        struct tensor one = tensor_number(c->r, PT2_F32, 1, 1);
        count = math_binary(c->r, keeps ? BINARY_ADD : BINARY_MAX, count, one, PT2_F32);
        y = math_binary(c->r, BINARY_DIV, y, count, c->dtype);
    }
    return scattered(c, &s, y);
}

/* One value: a place that is written is one where a count is not 0. */
static struct tensor op_scatter_value(struct call *c, int part)
{
    const struct scatter s = read_scatter(c);

    (void)part;
    if (!tensor_numel(&s.index) || c->r->failed)
        return scattered(c, &s, s.a);
    const struct tensor written = math_cast(c->r, count_writes(c, &s), PT2_BOOL);
    return scattered(c, &s, math_where(c->r, written, call_tensor(c, "value"), s.a, c->dtype));
}

/* Each place gets what is written there, and the step refuses one that is written twice: PyTorch
 * leaves open which of the values it has then. */
static struct tensor op_scatter_source(struct call *c, int part)
{
    const struct scatter s = read_scatter(c);
    const int dtype = pt2_is_float(c->dtype) ? c->dtype : PT2_F32;

    (void)part;
    if (!tensor_numel(&s.index) || c->r->failed)
        return scattered(c, &s, s.a);
    struct tensor count = count_writes(c, &s), source = source_of(c, &s);
    math_check_whole(c->r, &source, MOST_WHOLE);
    source = math_cast(c->r, source, dtype);
    tensor_record(c->r, &source); /* a constant that was cast is not on the tape */
    if (c->r->failed)
        return s.a;
    ckpt_tape *t = c->r->t;
    ckpt_tensor none =
        math_check_below(c->r, count.x, 2.f, CKPT_F32, "places that are written twice");
    none = ckpt_cast(t, none, tape_dtype(dtype));
    struct tensor y =
        tensor_of(c->r, dtype, ckpt_scatter_add(t, none, s.axis, s.index.x, source.x));
    y = math_cast(c->r, y, c->dtype);
    y = math_where(c->r, math_cast(c->r, count, PT2_BOOL), y, s.a, c->dtype);
    return scattered(c, &s, y);
}

/* ---- masked_scatter -------------------------------------------------------------------------- */

/* For each element of a mask with one axis the number of those up to it that are true, less 1; and
 * 0 before the first. */
static struct tensor ranks_of(struct call *c, struct tensor mask)
{
    const int64_t n = tensor_numel(&mask);
    struct tensor zero = tensor_number(c->r, PT2_I64, 0, 0),
                  one = tensor_number(c->r, PT2_I64, 1, 1);

    if (mask.constant) {
        struct tensor rank = tensor_zeros(c->r, PT2_I64, 1, &n);
        for (int64_t k = 0, count = 0; k < n && !c->r->failed; k++) {
            count += tensor_i(&mask, k) != 0;
            rank.i[k] = count ? count - 1 : 0;
        }
        return rank;
    }
    check_count(c, n);
    mask = math_cast(c->r, mask, PT2_F32);
    if (c->r->failed)
        return mask;
    struct tensor count = tensor_of(c->r, PT2_F32, ckpt_cumsum(c->r->t, mask.x, 0));
    count = math_binary(c->r, BINARY_SUB, math_cast(c->r, count, PT2_I64), one, PT2_I64);
    return math_binary(c->r, BINARY_MAX, count, zero, PT2_I64);
}

/* A constant that selects nothing. */
static bool is_false(const struct tensor *mask)
{
    const int64_t n = mask->constant ? tensor_numel(mask) : 0;

    for (int64_t k = 0; k < n; k++)
        if (tensor_i(mask, k))
            return false;
    return mask->constant;
}

/* Of the last axes, along which a mask has one element for all, the elements of a tensor; their
 * sizes become 1 in `shape`. */
static int64_t row_of(const struct tensor *a, const struct tensor *mask, int64_t *shape)
{
    int64_t row = 1;

    memcpy(shape, a->shape, sizeof a->shape);
    for (int i = 1; i <= mask->ndim && i <= a->ndim && mask->shape[mask->ndim - i] == 1; i++) {
        row *= shape[a->ndim - i];
        shape[a->ndim - i] = 1;
    }
    return row;
}

/* The k-th element that a mask selects becomes the k-th of the source.  Whole rows are selected at
 * once. */
static struct tensor op_masked_scatter(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self"), mask = call_tensor(c, "mask");
    struct tensor source = call_tensor(c, "source");
    int64_t shape[TENSOR_AXES];
    const int64_t row = row_of(&a, &mask, shape), given = tensor_numel(&source);

    (void)part;
    mask = view_expand(c->r, mask, a.ndim, shape);
    if (is_false(&mask) || !tensor_numel(&a) || c->r->failed)
        return a;
    const int64_t n = tensor_numel(&mask), rows = given / row;
    source = view_slice(c->r, view_reshape(c->r, source, 1, &given), 0, 0, rows * row, 1);
    source = view_reshape(c->r, source, 2, (int64_t[]){rows, row});
    source = select_rows(c, source, 0, ranks_of(c, view_reshape(c->r, mask, 1, &n)));
    source = c->r->failed ? source : view_reshape(c->r, source, a.ndim, a.shape);
    return math_where(c->r, mask, source, a, c->dtype);
}

/* ---- histc ----------------------------------------------------------------------------------- */

/* The bin of each element; `bins` for those outside. */
static struct tensor bins_of(struct call *c, struct tensor x, int64_t bins, double low, double high)
{
    struct tensor end = tensor_number(c->r, PT2_F32, (double)bins, bins);
    struct tensor from = tensor_number(c->r, PT2_F32, low, 0);
    struct tensor to = tensor_number(c->r, PT2_F32, high, 0);
    struct tensor width = tensor_number(c->r, PT2_F32, high - low, 0);
    struct tensor last = tensor_number(c->r, PT2_F32, (double)bins - 1, 0);
    struct tensor inside =
        math_binary(c->r, BINARY_AND, math_binary(c->r, BINARY_GE, x, from, PT2_BOOL),
                    math_binary(c->r, BINARY_LE, x, to, PT2_BOOL), PT2_BOOL);

    x = math_binary(c->r, BINARY_SUB, x, from, PT2_F32);
    x = math_binary(c->r, BINARY_MUL, x, end, PT2_F32);
    x = math_binary(c->r, BINARY_FLOOR_DIV, x, width, PT2_F32);
    x = math_where(c->r, inside, math_binary(c->r, BINARY_MIN, x, last, PT2_F32), end, PT2_F32);
    return math_cast(c->r, x, PT2_I64);
}

/* Elements between two numbers are counted in `bins` bins of equal width. */
static struct tensor op_histc(struct call *c, int part)
{
    struct tensor x = math_cast(c->r, call_tensor(c, "self"), PT2_F32);
    const double low = call_double(c, "min"), high = call_double(c, "max");
    const int64_t bins = call_int(c, "bins"), n = tensor_numel(&x);

    (void)part;
    if (!(low < high) || bins < 1)
        recording_fail(c->r, CKPT_EFORMAT, "%lld bins between the extremes of the step",
                       (long long)bins);
    check_count(c, n > bins ? n : bins);
    struct selection s = {
        .a = tensor_zeros(c->r, PT2_F32, 1, &(int64_t){c->r->failed ? 1 : bins + 1})};
    struct tensor one = view_expand(c->r, tensor_number(c->r, PT2_F32, 1, 1), 1, &n);
    if (c->r->failed)
        return x;
    s.index = bins_of(c, view_reshape(c->r, x, 1, &n), bins, low, high);
    struct call counts = *c;
    counts.dtype = PT2_F32;
    x = put_sums(&counts, s, one);
    return c->r->failed ? x : math_cast(c->r, view_slice(c->r, x, 0, 0, bins, 1), c->dtype);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_scatter[] = {
    OP("index_put.default", op_index_put),
    OP("index_fill.int_Scalar", op_index_fill),
    OP("index_fill.int_Tensor", op_index_fill),
    OP("index_add.default", op_index_add),
    OP("index_copy.default", op_index_copy),
    OP("scatter_add.default", op_scatter_add),
    OP("scatter.value", op_scatter_value),
    OP("scatter.src", op_scatter_source),
    OP("scatter_reduce.two", op_scatter_reduce),
    OP("masked_scatter.default", op_masked_scatter),
    OP("histc.default", op_histc),
    {NULL, NULL, NULL, NULL, false},
};
