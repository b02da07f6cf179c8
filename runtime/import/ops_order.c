/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the order of elements along an axis: products and extremes up to each, the
 * median and the k-th, places among bounds; elements by their place among all. */
#include <math.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/selection.h"
#include "import/views.h"

/* ---- up to each element ---------------------------------------------------------------------- */

static struct tensor product(struct call *c, struct tensor former, struct tensor a)
{
    return math_binary(c->r, BINARY_MUL, former, a, c->dtype);
}

/* Of equal ones the last; what is no number stays. */
static struct tensor extreme(struct call *c, enum binary before, struct tensor former,
                             struct tensor a)
{
    struct tensor keep = math_binary(c->r, before, former, a, PT2_BOOL);

    a = math_where(c->r, keep, former, a, c->dtype);
    return math_where(c->r, math_binary(c->r, BINARY_EQ, former, former, PT2_BOOL), a, former,
                      c->dtype);
}

static struct tensor largest(struct call *c, struct tensor former, struct tensor a)
{
    return extreme(c, BINARY_GT, former, a);
}

static struct tensor smallest(struct call *c, struct tensor former, struct tensor a)
{
    return extreme(c, BINARY_LT, former, a);
}

/*
 * f of all elements of an axis up to each: after the step of size n each element stands for the 2 n
 * up to it.  The first n of a step stay as they are, so that f needs no neutral element.
 */
static struct tensor scan(struct call *c,
                          struct tensor (*f)(struct call *, struct tensor, struct tensor))
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);
    const int axis = call_axis(c, "dim", &a);
    const int64_t size = a.ndim ? a.shape[axis] : 1;

    for (int64_t n = 1; n < size && !c->r->failed; n *= 2) {
        struct tensor parts[2] = {view_slice(c->r, a, axis, 0, n, 1),
                                  view_slice(c->r, a, axis, n, size, 1)};
        parts[1] = f(c, view_slice(c->r, a, axis, 0, size - n, 1), parts[1]);
        a = join_tensors(c->r, axis, 2, parts);
    }
    return a;
}

static struct tensor op_cumprod(struct call *c, int part)
{
    (void)part;
    return scan(c, product);
}

static struct tensor extremes(struct call *c, int part,
                              struct tensor (*f)(struct call *, struct tensor, struct tensor))
{
    if (part)
        recording_fail(c->r, CKPT_EFORMAT, "the indices of running extremes cannot be recorded");
    return scan(c, f);
}

static struct tensor op_cummax(struct call *c, int part)
{
    return extremes(c, part, largest);
}

static struct tensor op_cummin(struct call *c, int part)
{
    return extremes(c, part, smallest);
}

static struct tensor op_logcumsumexp(struct call *c, int part)
{
    (void)part;
    return scan(c, record_log_sum);
}

/* ---- the k-th -------------------------------------------------------------------------------- */

/* The axis in ascending order, as the last one; and its element k, or the index of that. */
static struct tensor sorted(struct call *c, struct tensor a, int axis, ckpt_tensor *index)
{
    if (!pt2_is_float(a.dtype))
        a = math_cast(c->r, a, PT2_F32); /* exact up to 2^24 */
    a = c->r->failed ? a : view_swap(c->r, a, axis, a.ndim - 1);
    tensor_record(c->r, &a);
    return c->r->failed ? a : tensor_of(c->r, a.dtype, ckpt_sort(c->r->t, a.x, false, index));
}

static struct tensor kth(struct call *c, struct tensor a, int64_t k, int part)
{
    const int axis = call_axis(c, "dim", &a), last = a.ndim - 1;
    ckpt_tensor index;

    if (!a.ndim)
        return part ? tensor_number(c->r, c->dtype, 0, 0) : a;
    a = sorted(c, a, axis, &index);
    if (part && !c->r->failed)
        a = tensor_of(c->r, PT2_I64, index);
    if (!c->r->failed && (k < 0 || k >= a.shape[last]))
        recording_fail(c->r, CKPT_ESHAPE, "element %lld of %lld", (long long)k,
                       (long long)a.shape[last]);
    if (c->r->failed)
        return a;
    a = view_swap(c->r, view_slice(c->r, a, last, k, k + 1, 1), axis, last);
    return math_cast(c->r, call_bool(c, "keepdim") ? a : view_squeeze(c->r, a, axis), c->dtype);
}

static struct tensor op_kthvalue(struct call *c, int part)
{
    return kth(c, call_tensor(c, "self"), call_int(c, "k") - 1, part);
}

/* Of an even number the lower one of the two in the middle. */
static struct tensor op_median_dim(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int axis = call_axis(c, "dim", &a);

    return kth(c, a, a.ndim ? (a.shape[axis] - 1) / 2 : 0, part);
}

/* Of all elements; those that are equal to it share its gradient. */
static struct tensor op_median(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int64_t n = tensor_numel(&a);
    ckpt_tape *t = c->r->t;

    (void)part;
    struct tensor s = sorted(c, view_reshape(c->r, a, 1, &n), 0, NULL);
    s = c->r->failed ? s : view_slice(c->r, s, 0, (n - 1) / 2, (n - 1) / 2 + 1, 1);
    struct tensor y = c->r->failed ? s : view_squeeze(c->r, s, 0);
    if (c->r->failed || !pt2_is_float(c->dtype))
        return math_cast(c->r, y, c->dtype);
    ckpt_tensor x = math_plain(c->r, &a), middle = ckpt_stop_gradient(t, y.x);
    ckpt_tensor same = ckpt_cast(t, ckpt_eq(t, x, middle), CKPT_F32);
    const unsigned all = (1u << a.ndim) - 1;
    ckpt_tensor d = ckpt_mul(t, ckpt_sub(t, x, ckpt_stop_gradient(t, x)), same);
    d = ckpt_div(t, ckpt_sum(t, d, all), ckpt_sum(t, same, all));
    d = ckpt_add(t, middle, ckpt_reshape(t, d, 0, NULL));
    return math_cast(c->r, tensor_of(c->r, PT2_F32, d), c->dtype);
}

static struct tensor op_msort(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int last = a.ndim - 1;

    (void)part;
    if (!a.ndim)
        return a;
    a = sorted(c, a, 0, NULL);
    return math_cast(c->r, c->r->failed ? a : view_swap(c->r, a, 0, last), c->dtype);
}

/* ---- among bounds ---------------------------------------------------------------------------- */

/* How many ascending bounds are below each value, or with `right` not above it: those that are not
 * at or above it, so that what is no number comes last. */
static struct tensor place_among(struct call *c, struct tensor a, struct tensor bounds, bool right)
{
    const int n = a.ndim;
    const double count = bounds.ndim ? (double)bounds.shape[bounds.ndim - 1] : 1;

    if (bounds.ndim > 1)
        bounds = view_unsqueeze(c->r, bounds, bounds.ndim - 1);
    a = c->r->failed ? a : view_unsqueeze(c->r, a, n);
    a = math_binary(c->r, right ? BINARY_GT : BINARY_GE, bounds, a, PT2_BOOL);
    a = c->r->failed ? a : math_cast(c->r, reduce_sum(c, a, 1u << n), c->dtype);
    return c->r->failed ? a : math_affine(c->r, a, -1, count);
}

static struct tensor op_bucketize(struct call *c, int part)
{
    (void)part;
    return place_among(c, call_tensor(c, "self"), call_tensor(c, "boundaries"),
                       call_bool(c, "right"));
}

static struct tensor op_searchsorted(struct call *c, int part)
{
    const bool right = call_bool(c, "right");

    (void)part;
    if (call_has(c, "sorter"))
        recording_fail(c->r, CKPT_EFORMAT, "bounds that a sorter orders");
    return place_among(c, call_tensor(c, "self"), call_tensor(c, "sorted_sequence"),
                       right || (call_has(c, "side") && *call_text(c, "side") == 'r'));
}

/* ---- by place among all ---------------------------------------------------------------------- */

static struct tensor op_take(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self"), index = call_tensor(c, "index");
    const int64_t n = tensor_numel(&a);

    (void)part;
    index = index_of(c, index, n, true);
    a = c->r->failed ? a : view_reshape(c->r, a, 1, &n);
    return c->r->failed ? a : select_rows(c, a, 0, index);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_order[] = {
    OP("cumprod.default", op_cumprod),    OP("cummax.default", op_cummax),
    OP("cummin.default", op_cummin),      OP("logcumsumexp.default", op_logcumsumexp),
    OP("kthvalue.default", op_kthvalue),  OP("median.dim", op_median_dim),
    OP("median.default", op_median),      OP("msort.default", op_msort),
    OP("bucketize.Tensor", op_bucketize), OP("searchsorted.Tensor", op_searchsorted),
    OP("take.default", op_take),          {NULL, NULL, NULL, NULL, false},
};
