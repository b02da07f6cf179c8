/* SPDX-License-Identifier: Apache-2.0 */
/* Joins, selections by index, repetitions, order. */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/selection.h"
#include "import/views.h"

/* ---- joins ----------------------------------------------------------------------------------- */

/* The tensors of a list, in the dtype of the result; empty ones of one axis do not count. */
static int read_list(struct call *c, const char *name, struct tensor **list)
{
    struct variable **v;
    const int n = call_variables(c, name, &v);
    struct tensor *a = heap_zeros(&c->r->heap, n + 1, sizeof *a);

    *list = a;
    for (int k = 0; k < n && a && !c->r->failed; k++) {
        if (!v[k]) {
            recording_fail(c->r, CKPT_EFORMAT, "the list has no tensor at %d", k);
            return 0;
        }
        struct tensor x = *variable_read(c->r, v[k]);
        if (x.imaginary && c->imaginary)
            x = *x.imaginary;
        a[k] = math_cast(c->r, x, c->dtype);
    }
    if (!n || !a)
        recording_fail(c->r, CKPT_EFORMAT, "the list has no tensor");
    return c->r->failed ? 0 : n;
}

static struct tensor op_cat(struct call *c, int part)
{
    struct tensor *a;
    const int n = read_list(c, "tensors", &a);

    (void)part;
    int first = 0; /* with elements: others may have one axis only */
    while (first < n - 1 && !tensor_numel(&a[first]))
        first++;
    return n ? join_tensors(c->r, call_axis(c, "dim", &a[first]), n, a)
             : tensor_number(c->r, c->dtype, 0, 0);
}

static struct tensor op_stack(struct call *c, int part)
{
    struct tensor *a;
    const int n = read_list(c, "tensors", &a);
    const int64_t dim = call_int(c, "dim");

    (void)part;
    for (int k = 0; k < n && !c->r->failed; k++)
        a[k] = view_unsqueeze(c->r, a[k], (int)(dim < 0 ? dim + a[k].ndim + 1 : dim));
    return n && !c->r->failed ? join_tensors(c->r, (int)(dim < 0 ? dim + a[0].ndim : dim), n, a)
                              : tensor_number(c->r, c->dtype, 0, 0);
}

/* Sequences of different lengths, filled up to the longest, as a batch. */
static struct tensor op_pad_sequence(struct call *c, int part)
{
    struct tensor *a;
    const int n = read_list(c, "sequences", &a), axis = call_bool(c, "batch_first") ? 0 : 1;
    const bool left = !strcmp(call_text(c, "padding_side"), "left");
    struct tensor value = math_cast(c->r, call_tensor(c, "padding_value"), c->dtype);
    int64_t longest = 0, shape[TENSOR_AXES];

    (void)part;
    for (int k = 0; k < n; k++)
        longest = a[k].ndim && a[k].shape[0] > longest ? a[k].shape[0] : longest;
    for (int k = 0; k < n && !c->r->failed; k++) {
        memcpy(shape, a[k].shape, sizeof shape);
        shape[0] = longest - a[k].shape[0];
        struct tensor fill = view_expand(c->r, value, a[k].ndim, shape);
        struct tensor parts[2] = {left ? fill : a[k], left ? a[k] : fill};
        a[k] = view_unsqueeze(c->r, join_tensors(c->r, 0, 2, parts), axis);
    }
    return n && !c->r->failed ? join_tensors(c->r, axis, n, a) : value;
}

/* ---- selections ------------------------------------------------------------------------------ */

/* Indices from the end become ones from the start. */
static struct tensor wrap_all(struct call *c, struct tensor index, int64_t n)
{
    struct tensor zero = tensor_number(c->r, PT2_I64, 0, 0);
    struct tensor below = math_binary(c->r, BINARY_LT, index, zero, PT2_BOOL);
    struct tensor above =
        math_binary(c->r, BINARY_ADD, index, tensor_number(c->r, PT2_I64, 0, n), PT2_I64);
    return math_where(c->r, below, above, index, PT2_I64);
}

/* The same where they are known: a step reports one of the others that is below 0. */
static struct tensor wrap(struct call *c, struct tensor index, int64_t n)
{
    return index.constant ? wrap_all(c, index, n) : index;
}

static bool in_range(const struct tensor *index, int64_t n)
{
    const int64_t count = tensor_numel(index);

    for (int64_t k = 0; k < count; k++)
        if (tensor_i(index, k) < 0 || tensor_i(index, k) >= n)
            return false;
    return true;
}

static struct tensor select_constant(struct call *c, struct tensor a, int axis, struct tensor index,
                                     int ndim, const int64_t *shape)
{
    struct tensor out = tensor_zeros(c->r, a.dtype, ndim, shape);
    int64_t outer = 1, inner = 1;
    const int64_t n = tensor_numel(&index);

    a = tensor_dense(c->r, a);
    if (!in_range(&index, a.shape[axis]))
        recording_fail(c->r, CKPT_EFORMAT, "an index is beyond %lld", (long long)a.shape[axis]);
    for (int i = 0; i < a.ndim && i < TENSOR_AXES; i++)
        *(i < axis ? &outer : &inner) *= i == axis ? 1 : a.shape[i];
    for (int64_t o = 0; o < outer && !c->r->failed; o++)
        for (int64_t k = 0; k < n; k++)
            memcpy(out.i + (o * n + k) * inner,
                   a.i + (o * a.shape[axis] + tensor_i(&index, k)) * inner,
                   (size_t)inner * sizeof *out.i);
    return out;
}

struct tensor select_rows(struct call *c, struct tensor a, int axis, struct tensor index)
{
    int64_t shape[2 * TENSOR_AXES];
    int n = 0;

    index = wrap(c, index, a.shape[axis]);
    for (int i = 0; i < axis; i++)
        shape[n++] = a.shape[i];
    for (int i = 0; i < index.ndim; i++)
        shape[n++] = index.shape[i];
    for (int i = axis + 1; i < a.ndim; i++)
        shape[n++] = a.shape[i];
    if (a.constant && index.constant)
        return select_constant(c, a, axis, index, n, shape);
    tensor_record(c->r, &a);
    tensor_record(c->r, &index);
    if (c->r->failed)
        return a;
    return tensor_of(c->r, a.dtype, ckpt_index_select(c->r->t, a.x, axis, index.x));
}

static struct tensor op_index_select(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return select_rows(c, a, call_axis(c, "dim", &a), call_tensor(c, "index"));
}

/* The places of the elements that are not 0, of a constant with one axis. */
static struct tensor places(struct call *c, struct tensor mask)
{
    int64_t n = 0;
    const int64_t all = tensor_numel(&mask);

    if (!mask.constant || mask.ndim != 1) {
        recording_fail(c->r, CKPT_EFORMAT, "the number of selected elements depends on the step");
        return mask;
    }
    for (int64_t k = 0; k < all; k++)
        n += tensor_i(&mask, k) != 0;
    struct tensor index = tensor_zeros(c->r, PT2_I64, 1, &n);
    n = 0;
    for (int64_t k = 0; k < all && !c->r->failed; k++)
        if (tensor_i(&mask, k))
            index.i[n++] = k;
    return index;
}

/* Axes with an index come first, or stay where they are if they are neighbours. */
static void order_indexed_axes(struct call *c, struct variable **v, int n, struct selection *s)
{
    int axes[TENSOR_AXES], at = -1, last = -1;

    for (int i = 0; i < n; i++)
        if (v[i]) {
            at = at < 0 ? i : at;
            last = i;
            axes[s->count++] = i;
        }
    s->first = at < 0 || last - at + 1 != s->count ? 0 : at;
    for (int i = 0; i < s->a.ndim; i++)
        s->axes[i] = i;
    if (!s->count || last - at + 1 == s->count)
        return;
    memcpy(s->axes, axes, (size_t)s->count * sizeof *axes);
    for (int i = 0, k = s->count; i < s->a.ndim; i++)
        if (i >= n || !v[i])
            s->axes[k++] = i;
    s->a = view_permute(c->r, s->a, s->axes);
}

struct tensor index_of(struct call *c, struct tensor index, int64_t size, bool several)
{
    index = index.dtype == PT2_BOOL ? places(c, index) : math_cast(c->r, index, PT2_I64);
    index = several ? wrap_all(c, index, size) : wrap(c, index, size);
    if (index.constant && !in_range(&index, size))
        recording_fail(c->r, CKPT_EFORMAT, "an index is beyond %lld", (long long)size);
    return index;
}

/* Where an index is beyond its axis, the joined one is -1, which the step reports. */
static struct tensor within(struct call *c, struct tensor joined, struct tensor index, int64_t size)
{
    struct tensor zero = tensor_number(c->r, PT2_I64, 0, 0);
    struct tensor end = tensor_number(c->r, PT2_I64, (double)size, size);

    if (index.constant)
        return joined;
    struct tensor good =
        math_binary(c->r, BINARY_AND, math_binary(c->r, BINARY_GE, index, zero, PT2_BOOL),
                    math_binary(c->r, BINARY_LT, index, end, PT2_BOOL), PT2_BOOL);
    return math_where(c->r, good, joined, tensor_number(c->r, PT2_I64, -1, -1), PT2_I64);
}

/* Whole numbers on the tape are exact up to 2^24. */
static void check_places(struct call *c, const struct tensor *index, int64_t places)
{
    if (!index->constant && places > 1 << 24)
        recording_fail(c->r, CKPT_EFORMAT, "several indices select from more than 2^24 places");
}

/* index size + next. */
static struct tensor join_index(struct call *c, struct tensor index, int64_t size,
                                struct tensor next)
{
    struct tensor of = tensor_number(c->r, PT2_I64, (double)size, size);

    index = index.constant ? math_binary(c->r, BINARY_MUL, index, of, PT2_I64)
                           : math_affine(c->r, index, (double)size, 0);
    return math_binary(c->r, BINARY_ADD, index, next, PT2_I64);
}

struct selection selection_of(struct call *c)
{
    struct selection s = {.a = call_tensor(c, "self"), .index = {.ndim = 0}};
    struct variable **v;
    struct tensor index[TENSOR_AXES];
    const int n = call_variables(c, "indices", &v);
    int64_t shape[TENSOR_AXES];

    if (n <= s.a.ndim)
        order_indexed_axes(c, v, n, &s);
    if (!s.count || c->r->failed) {
        recording_fail(c->r, CKPT_EFORMAT, "there is no index, or one of more axes than there are");
        return s;
    }
    memcpy(s.shape, s.a.shape, sizeof s.shape);
    memcpy(shape, s.shape, sizeof shape);
    for (int i = 0, k = 0; i < n && !c->r->failed; i++) {
        if (!v[i])
            continue;
        const int64_t size = s.shape[s.first + k];
        index[k] = index_of(c, *variable_read(c->r, v[i]), size, s.count > 1);
        s.index = k ? join_index(c, s.index, size, index[k]) : index[k];
        shape[s.first] = k ? shape[s.first] * size : size;
        k++;
    }
    if (s.count > 1)
        check_places(c, &s.index, shape[s.first]);
    for (int k = 0; k < s.count && s.count > 1 && !c->r->failed; k++)
        s.index = within(c, s.index, index[k], s.shape[s.first + k]);
    for (int i = s.first + s.count; i < s.a.ndim; i++)
        shape[i - s.count + 1] = s.shape[i];
    s.ndim = s.a.ndim;
    s.a = view_reshape(c->r, s.a, s.ndim - s.count + 1, shape);
    return s;
}

static struct tensor op_index(struct call *c, int part)
{
    const struct selection s = selection_of(c);

    (void)part;
    return c->r->failed ? s.a : select_rows(c, s.a, s.first, s.index);
}

static struct tensor gather(struct call *c, struct tensor a, int axis, struct tensor index)
{
    index = wrap(c, index, a.shape[axis]);
    tensor_record(c->r, &index);
    for (int i = 0; i < a.ndim && !c->r->failed; i++)
        if (i != axis)
            a = view_slice(c->r, a, i, 0, index.shape[i], 1);
    tensor_record(c->r, &a);
    return c->r->failed ? a : tensor_of(c->r, a.dtype, ckpt_gather(c->r->t, a.x, axis, index.x));
}

static struct tensor op_gather(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return gather(c, a, call_axis(c, "dim", &a), call_tensor(c, "index"));
}

/* Along an axis, of two tensors that are broadcast; without one of all elements in their order. */
static struct tensor op_take_along_dim(struct call *c, int part)
{
    struct tensor x[2] = {call_tensor(c, "self"), call_tensor(c, "indices")};
    const bool all = !call_has(c, "dim");
    const int axis = all ? 0 : call_axis(c, "dim", &x[0]);
    int64_t shape[2][TENSOR_AXES];

    (void)part;
    for (int k = 0; k < 2 && all && !c->r->failed; k++)
        x[k] = view_reshape(c->r, x[k], 1, &(int64_t){tensor_numel(&x[k])});
    if (x[0].ndim != x[1].ndim)
        recording_fail(c->r, CKPT_ESHAPE, "an index with %d axes for %d", x[1].ndim, x[0].ndim);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < x[0].ndim && !c->r->failed; i++)
            shape[k][i] = x[k].shape[i] == 1 && i != axis ? x[1 - k].shape[i] : x[k].shape[i];
    for (int k = 0; k < 2 && !c->r->failed; k++)
        x[k] = view_expand(c->r, x[k], x[k].ndim, shape[k]);
    return c->r->failed ? x[0] : gather(c, x[0], axis, x[1]);
}

/* ---- repetitions ----------------------------------------------------------------------------- */

/* Each element of an axis is followed by `times` - 1 copies; `whole`: all of the axis is. */
static struct tensor repeat_axis(struct call *c, struct tensor a, int axis, int64_t times,
                                 bool whole)
{
    int64_t shape[TENSOR_AXES], n = 0;
    struct tensor b = times == 1 ? a : view_unsqueeze(c->r, a, whole ? axis : axis + 1);

    if (times == 1 || c->r->failed)
        return a;
    if (times < 0 || __builtin_mul_overflow(a.shape[axis], times, &n))
        recording_fail(c->r, CKPT_ESHAPE, "an axis is repeated %lld times", (long long)times);
    memcpy(shape, b.shape, sizeof shape);
    shape[whole ? axis : axis + 1] = times;
    b = view_expand(c->r, b, b.ndim, shape);
    if (c->r->failed)
        return a;
    memcpy(shape, a.shape, sizeof shape);
    shape[axis] = n;
    return view_reshape(c->r, b, a.ndim, shape);
}

static struct tensor op_repeat(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    int64_t times[TENSOR_AXES];
    const int n = call_ints(c, "repeats", times, TENSOR_AXES);

    (void)part;
    while (a.ndim < n && !c->r->failed)
        a = view_unsqueeze(c->r, a, 0);
    if (n < a.ndim)
        recording_fail(c->r, CKPT_ESHAPE, "%d numbers repeat %d axes", n, a.ndim);
    for (int i = 0; i < a.ndim && !c->r->failed; i++)
        a = repeat_axis(c, a, i, times[i], true);
    return a;
}

/* As repeat, and axes before the given ones stay. */
static struct tensor op_tile(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    int64_t times[TENSOR_AXES];
    const int n = call_ints(c, "dims", times, TENSOR_AXES);

    (void)part;
    while (a.ndim < n && !c->r->failed)
        a = view_unsqueeze(c->r, a, 0);
    for (int i = 0; i < n && !c->r->failed; i++)
        a = repeat_axis(c, a, a.ndim - n + i, times[i], true);
    return a;
}

static struct tensor op_repeat_interleave(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int64_t n = tensor_numel(&a);

    (void)part;
    if (!call_has(c, "dim"))
        a = view_reshape(c->r, a, 1, &n);
    const int axis = call_has(c, "dim") ? call_axis(c, "dim", &a) : 0;
    return repeat_axis(c, a, axis, call_int(c, "repeats"), false);
}

/* The part-th of the tensors, each along its own axis of a grid; "xy" swaps the first two axes. */
static struct tensor op_meshgrid(struct call *c, int part)
{
    struct variable **v;
    int64_t shape[TENSOR_AXES] = {0}, one[TENSOR_AXES] = {0};
    const int n = call_variables(c, "tensors", &v);
    const bool swap = n > 1 && !strcmp(call_text(c, "indexing"), "xy");
    struct tensor a = {.ndim = 0};

    for (int k = 0; k < n && n <= TENSOR_AXES && v[k] && !c->r->failed; k++) {
        struct tensor x = *variable_read(c->r, v[k]);
        const int axis = swap && k < 2 ? 1 - k : k;
        shape[axis] = tensor_numel(&x);
        if (k == part)
            a = x;
        one[axis] = k == part ? shape[axis] : 1;
    }
    if (n > TENSOR_AXES || part >= n || !v[part])
        recording_fail(c->r, CKPT_EFORMAT, "a grid of %d axes", n);
    return c->r->failed ? a : view_expand(c->r, view_reshape(c->r, a, n, one), n, shape);
}

static struct tensor op_broadcast(struct call *c, int part)
{
    struct variable **v;
    int64_t shape[TENSOR_AXES];
    const int n = call_variables(c, "tensors", &v), axes = call_sizes(c, shape);

    if (part >= n || !v[part] || axes < 0) {
        recording_fail(c->r, CKPT_EFORMAT, "tensors of sizes that are not known");
        return tensor_number(c->r, c->dtype, 0, 0);
    }
    return view_expand(c->r, *variable_read(c->r, v[part]), axes, shape);
}

static struct tensor op_outer(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    a = view_unsqueeze(c->r, a, 1);
    return math_binary(c->r, BINARY_MUL, a, call_tensor(c, "vec2"), c->dtype);
}

/* ---- moves along an axis --------------------------------------------------------------------- */

struct tensor index_roll(struct call *c, struct tensor a, int axis, int64_t shift)
{
    const int64_t n = a.shape[axis], by = n > 0 ? ((shift % n) + n) % n : 0;

    if (!by || c->r->failed)
        return a;
    if (!a.constant)
        return tensor_of(c->r, a.dtype, ckpt_roll(c->r->t, a.x, axis, by));
    struct tensor parts[2] = {view_slice(c->r, a, axis, n - by, n, 1),
                              view_slice(c->r, a, axis, 0, n - by, 1)};
    return join_tensors(c->r, axis, 2, parts);
}

static struct tensor op_roll(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    int64_t shifts[TENSOR_AXES], axes[TENSOR_AXES];
    const int n = call_ints(c, "shifts", shifts, TENSOR_AXES);

    (void)part;
    const int named = call_ints(c, "dims", axes, TENSOR_AXES);
    const int64_t all = tensor_numel(&a);
    if (n == 1 && !named && !c->r->failed) { /* of all elements in their order */
        struct tensor flat = index_roll(c, view_reshape(c->r, a, 1, &all), 0, shifts[0]);
        return c->r->failed ? a : view_reshape(c->r, flat, a.ndim, a.shape);
    }
    if (named != n)
        recording_fail(c->r, CKPT_EFORMAT, "shifts without their axes");
    for (int k = 0; k < n && !c->r->failed; k++)
        a = index_roll(c, a, tensor_axis(c->r, &a, axes[k]), shifts[k]);
    return a;
}

static struct tensor op_flip(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    int64_t axes[TENSOR_AXES];
    const int n = call_ints(c, "dims", axes, TENSOR_AXES);

    (void)part;
    for (int k = 0; k < n && !c->r->failed; k++) {
        const int axis = tensor_axis(c->r, &a, axes[k]);
        if (a.constant) {
            a.i += (a.shape[axis] - 1) * a.stride[axis];
            a.stride[axis] = -a.stride[axis];
            a.x = CKPT_NONE;
        } else {
            a = tensor_of(c->r, a.dtype, ckpt_flip(c->r->t, a.x, axis));
        }
    }
    return a;
}

/* Differences of neighbours, n times, after what is put before and behind. */
static struct tensor op_diff(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self"), parts[3];
    const int axis = call_axis(c, "dim", &a);
    int count = 0;

    (void)part;
    if (call_has(c, "prepend"))
        parts[count++] = math_cast(c->r, call_tensor(c, "prepend"), a.dtype);
    parts[count++] = a;
    if (call_has(c, "append"))
        parts[count++] = math_cast(c->r, call_tensor(c, "append"), a.dtype);
    a = join_tensors(c->r, axis, count, parts);
    for (int64_t n = call_int(c, "n"); n > 0 && !c->r->failed; n--) {
        const int64_t size = a.shape[axis];
        struct tensor later = view_slice(c->r, a, axis, 1, size, 1);
        struct tensor former = view_slice(c->r, a, axis, 0, size - 1, 1);
        a = math_binary(c->r, c->dtype == PT2_BOOL ? BINARY_XOR : BINARY_SUB, later, former,
                        c->dtype);
    }
    return a;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Ops of the last axis: the axis is moved there and the result back.  Whole numbers are sorted as
 * floats, exact up to 2^24. */
struct last {
    int axis, end;
    ckpt_tensor x;
};

static struct last to_last(struct call *c, const char *dim)
{
    struct tensor a = call_tensor(c, "self");
    struct last l = {.axis = call_axis(c, dim, &a), .end = a.ndim - 1};

    if (!pt2_is_float(a.dtype))
        a = math_cast(c->r, a, PT2_F32);
    tensor_record(c->r, &a);
    l.x = c->r->failed || l.axis == l.end ? a.x : ckpt_transpose(c->r->t, a.x, l.axis, l.end);
    return l;
}

static struct tensor from_last(struct call *c, struct last l, ckpt_tensor y)
{
    const int dtype = ckpt_desc_of(c->r->t, y).dtype == CKPT_F32 ? PT2_F32 : c->dtype;
    struct tensor a = math_cast(c->r, tensor_of(c->r, dtype, y), c->dtype);

    return l.axis == l.end || c->r->failed ? a : view_swap(c->r, a, l.axis, l.end);
}

static struct tensor op_sort(struct call *c, int part)
{
    struct last l = to_last(c, "dim");
    ckpt_tensor index;

    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    ckpt_tensor y = ckpt_sort(c->r->t, l.x, call_bool(c, "descending"), &index);
    return from_last(c, l, part ? index : y);
}

static struct tensor op_argsort(struct call *c, int part)
{
    struct last l = to_last(c, "dim");

    (void)part;
    return c->r->failed ? tensor_number(c->r, c->dtype, 0, 0)
                        : from_last(c, l, ckpt_argsort(c->r->t, l.x, call_bool(c, "descending")));
}

static struct tensor op_topk(struct call *c, int part)
{
    struct last l = to_last(c, "dim");
    const bool largest = call_bool(c, "largest");
    ckpt_tensor index;

    if (c->r->failed)
        return tensor_number(c->r, c->dtype, 0, 0);
    l.x = largest ? l.x : ckpt_neg(c->r->t, l.x);
    ckpt_tensor y = ckpt_topk(c->r->t, l.x, call_int(c, "k"), &index);
    return from_last(c, l, part ? index : largest ? y : ckpt_neg(c->r->t, y));
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_index[] = {
    OP("cat.default", op_cat),
    OP("concat.default", op_cat),
    OP("concatenate.default", op_cat),
    OP("stack.default", op_stack),
    OP("pad_sequence.default", op_pad_sequence),
    OP("index.Tensor", op_index),
    OP("index_select.default", op_index_select),
    OP("gather.default", op_gather),
    OP("take_along_dim.default", op_take_along_dim),
    OP("repeat.default", op_repeat),
    OP("tile.default", op_tile),
    OP("repeat_interleave.self_int", op_repeat_interleave),
    {"aten.meshgrid.indexing", op_meshgrid, put_expand, NULL, false},
    {"aten.broadcast_tensors.default", op_broadcast, put_expand, NULL, false},
    OP("outer.default", op_outer),
    OP("roll.default", op_roll),
    OP("flip.default", op_flip),
    OP("diff.default", op_diff),
    OP("sort.default", op_sort),
    OP("sort.stable", op_sort),
    OP("argsort.default", op_argsort),
    OP("topk.default", op_topk),
    {NULL, NULL, NULL, NULL, false},
};
