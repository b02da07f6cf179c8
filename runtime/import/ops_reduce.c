/* SPDX-License-Identifier: Apache-2.0 */
/* Sums, means, extremes, norms over axes; softmax and running sums. */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

/* ---- axes ------------------------------------------------------------------------------------ */

/* The axes of a reduction, and whether they stay with size 1. */
struct axes {
    unsigned mask;
    bool keep;
};

static struct axes read_axes(struct call *c, const struct tensor *a)
{
    int64_t axis[TENSOR_AXES];
    struct axes x = {.mask = 0};
    const bool named = pt2_arg_find(c->node, "dim") != NULL;
    const int n = named ? call_ints(c, "dim", axis, TENSOR_AXES) : 0;

    for (int k = 0; k < n; k++)
        x.mask |= 1u << tensor_axis(c->r, a, axis[k]);
    if (!n)
        x.mask = (1u << a->ndim) - 1;
    x.keep = pt2_arg_find(c->node, "keepdim") && call_bool(c, "keepdim");
    return x;
}

/* The result without the axes of size 1, unless they stay. */
static struct tensor drop_axes(struct call *c, struct tensor a, struct axes x)
{
    for (int i = a.ndim - 1; i >= 0 && !x.keep && !c->r->failed; i--)
        if (x.mask >> i & 1)
            a = view_squeeze(c->r, a, i);
    return a;
}

/* ---- constants ------------------------------------------------------------------------------- */

enum reduction { REDUCE_SUM, REDUCE_MEAN, REDUCE_MAX, REDUCE_MIN, REDUCE_PRODUCT };

static int64_t combine_whole(enum reduction f, int64_t x, int64_t y)
{
    switch (f) {
    case REDUCE_MAX:
        return x > y ? x : y;
    case REDUCE_MIN:
        return x < y ? x : y;
    case REDUCE_PRODUCT:
        return x * y;
    default:
        return x + y;
    }
}

static double combine(enum reduction f, double x, double y)
{
    switch (f) {
    case REDUCE_MAX:
        return x > y ? x : y;
    case REDUCE_MIN:
        return x < y ? x : y;
    case REDUCE_PRODUCT:
        return x * y;
    default:
        return x + y;
    }
}

/* Of no elements; extremes are those of truth values. */
static double of_nothing(enum reduction f)
{
    return f == REDUCE_PRODUCT || f == REDUCE_MIN;
}

static struct tensor reduce_constant(struct call *c, enum reduction f, struct tensor a,
                                     unsigned mask)
{
    int order[TENSOR_AXES], n = 0;
    int64_t shape[TENSOR_AXES], count = 1;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < a.ndim; i++)
            if ((int)(mask >> i & 1) == pass)
                order[n++] = i;
    for (int i = 0; i < a.ndim; i++) {
        shape[i] = mask >> i & 1 ? 1 : a.shape[i];
        count *= mask >> i & 1 ? a.shape[i] : 1;
    }
    struct tensor out = tensor_zeros(c->r, a.dtype, a.ndim, shape);
    const int64_t rows = c->r->failed ? 0 : tensor_numel(&out);
    a = view_permute(c->r, a, order);
    for (int64_t k = 0; k < rows; k++) {
        double sum = count ? tensor_f(&a, k * count) : of_nothing(f);
        int64_t whole = count ? tensor_i(&a, k * count) : (int64_t)of_nothing(f);
        for (int64_t j = 1; j < count; j++) {
            sum = combine(f, sum, tensor_f(&a, k * count + j));
            whole = combine_whole(f, whole, tensor_i(&a, k * count + j));
        }
        if (pt2_is_float(a.dtype))
            out.f[k] = tensor_round(a.dtype, f == REDUCE_MEAN ? sum / (double)count : sum);
        else
            out.i[k] = whole;
    }
    return out;
}

/* ---- reductions ------------------------------------------------------------------------------ */

typedef ckpt_tensor (*reduction_call)(ckpt_tape *t, ckpt_tensor x, unsigned mask);

/* On the tape axes are reduced where they are in memory. */
static struct tensor on_tape(struct call *c, struct tensor a, unsigned mask, reduction_call f)
{
    unsigned plain_mask = a.plain.id ? 0 : mask;

    tensor_record(c->r, &a);
    for (int i = 0; i < a.ndim && a.plain.id; i++)
        plain_mask |= (mask >> i & 1) << a.order[i];
    if (c->r->failed)
        return a;
    ckpt_tensor y = f(c->r->t, a.plain.id ? a.plain : a.x, plain_mask);
    struct tensor out = tensor_of(c->r, PT2_F32, y);
    return a.plain.id && !c->r->failed ? view_permute(c->r, out, a.order) : out;
}

static struct tensor reduce(struct call *c, enum reduction f, struct tensor a, struct axes x)
{
    static const reduction_call calls[] = {ckpt_sum, ckpt_mean, ckpt_amax, ckpt_amin, ckpt_prod};

    if (c->r->failed)
        return a;
    if (a.constant)
        return drop_axes(c, reduce_constant(c, f, a, x.mask), x);
    if (!pt2_is_float(a.dtype))
        a = math_cast(c->r, a, PT2_F32);
    if (!a.ndim)
        return a;
    return drop_axes(c, math_cast(c->r, on_tape(c, a, x.mask, calls[f]), c->dtype), x);
}

struct tensor reduce_sum(struct call *c, struct tensor a, unsigned mask)
{
    return reduce(c, REDUCE_SUM, a, (struct axes){.mask = mask});
}

/* Sums of bf16 are rounded once, at the end; those of truth values count. */
static struct tensor sum_of(struct call *c, enum reduction f)
{
    struct tensor a = call_tensor(c, "self");
    const struct axes x = read_axes(c, &a);

    if (!pt2_is_float(a.dtype) || a.constant || c->dtype == PT2_F32)
        a = math_cast(c->r, a, c->dtype);
    return math_cast(c->r, reduce(c, f, a, x), c->dtype);
}

static struct tensor op_sum(struct call *c, int part)
{
    (void)part;
    return sum_of(c, REDUCE_SUM);
}

static struct tensor op_mean(struct call *c, int part)
{
    (void)part;
    return sum_of(c, REDUCE_MEAN);
}

/* The sum of the elements that are numbers, or their mean. */
static struct tensor op_nansum(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);
    struct tensor good = math_binary(c->r, BINARY_EQ, a, a, PT2_BOOL);
    const struct axes x = read_axes(c, &a);

    (void)part;
    a = math_where(c->r, good, a, tensor_number(c->r, c->dtype, 0, 0), c->dtype);
    a = reduce(c, REDUCE_SUM, a, x);
    if (strstr(c->op->name, "sum"))
        return a;
    struct tensor count = reduce(c, REDUCE_SUM, math_cast(c->r, good, c->dtype), x);
    return math_binary(c->r, BINARY_DIV, a, count, c->dtype);
}

static struct tensor op_prod(struct call *c, int part)
{
    (void)part;
    return sum_of(c, REDUCE_PRODUCT);
}

static struct tensor op_amax(struct call *c, int part)
{
    (void)part;
    return sum_of(c, REDUCE_MAX);
}

static struct tensor op_amin(struct call *c, int part)
{
    (void)part;
    return sum_of(c, REDUCE_MIN);
}

/* Truth values are 0 or 1. */
static struct tensor truth_of(struct call *c, enum reduction f)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), PT2_BOOL);

    return math_cast(c->r, reduce(c, f, a, read_axes(c, &a)), PT2_BOOL);
}

static struct tensor op_any(struct call *c, int part)
{
    (void)part;
    return truth_of(c, REDUCE_MAX);
}

static struct tensor op_all(struct call *c, int part)
{
    (void)part;
    return truth_of(c, REDUCE_MIN);
}

static struct tensor op_count_nonzero(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), PT2_BOOL);

    (void)part;
    return math_cast(c->r, reduce(c, REDUCE_SUM, math_cast(c->r, a, c->dtype), read_axes(c, &a)),
                     c->dtype);
}

/* The index of the largest element along an axis, or among all. */
static struct tensor arg_of(struct call *c, bool smallest)
{
    struct tensor a = call_tensor(c, "self");
    const bool all = !call_has(c, "dim");
    const int64_t n = tensor_numel(&a);

    if (all)
        a = view_reshape(c->r, a, 1, &n);
    const struct axes x = {.mask = all ? 1 : 1u << call_axis(c, "dim", &a),
                           .keep = call_bool(c, "keepdim") && !all};
    const int axis = all ? 0 : call_axis(c, "dim", &a);
    if (!pt2_is_float(a.dtype))
        a = math_cast(c->r, a, PT2_F32); /* exact up to 2^24 */
    if (smallest)
        a = math_binary(c->r, BINARY_MUL, a, tensor_number(c->r, a.dtype, -1, -1), a.dtype);
    tensor_record(c->r, &a);
    if (c->r->failed)
        return a;
    return drop_axes(c, tensor_of(c->r, PT2_I64, ckpt_argmax(c->r->t, a.x, axis)), x);
}

static struct tensor op_argmax(struct call *c, int part)
{
    (void)part;
    return arg_of(c, false);
}

static struct tensor op_argmin(struct call *c, int part)
{
    (void)part;
    return arg_of(c, true);
}

/* The largest, of which equal ones the first alone has a gradient; the axis stays. */
static struct tensor first_extreme(struct call *c, struct tensor a, int axis, bool smallest)
{
    tensor_record(c->r, &a);
    if (c->r->failed)
        return a;
    ckpt_tensor sign = smallest ? ckpt_neg(c->r->t, a.x) : a.x;
    ckpt_tensor y = ckpt_gather(c->r->t, a.x, axis, ckpt_argmax(c->r->t, sign, axis));
    return tensor_of(c->r, c->dtype, y);
}

struct tensor reduce_largest(struct call *c, struct tensor a, int axis)
{
    return drop_axes(c, first_extreme(c, a, axis, false), (struct axes){.mask = 1u << axis});
}

/* The largest along an axis, and its index. */
static struct tensor extreme_of(struct call *c, int part, bool smallest)
{
    struct tensor a = call_tensor(c, "self");

    if (part)
        return arg_of(c, smallest);
    if (a.constant || !a.ndim || !pt2_is_float(a.dtype) || c->r->failed)
        return sum_of(c, smallest ? REDUCE_MIN : REDUCE_MAX);
    const struct axes x = read_axes(c, &a);
    return drop_axes(c, first_extreme(c, a, call_axis(c, "dim", &a), smallest), x);
}

static struct tensor op_max_dim(struct call *c, int part)
{
    return extreme_of(c, part, false);
}

static struct tensor op_min_dim(struct call *c, int part)
{
    return extreme_of(c, part, true);
}

static struct tensor op_aminmax(struct call *c, int part)
{
    return sum_of(c, part ? REDUCE_MAX : REDUCE_MIN);
}

/* What is taken from the number of elements; without an argument 1. */
static int64_t correction_of(struct call *c)
{
    if (pt2_arg_find(c->node, "unbiased"))
        return call_bool(c, "unbiased");
    if (!pt2_arg_find(c->node, "correction") || !call_has(c, "correction"))
        return 1;
    if (call_double(c, "correction") != (double)call_int(c, "correction"))
        recording_fail(c->r, CKPT_EFORMAT, "a correction of %g", call_double(c, "correction"));
    return call_int(c, "correction");
}

static struct tensor op_var(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);
    const struct axes x = read_axes(c, &a);
    const int64_t correction = correction_of(c);

    tensor_record(c->r, &a);
    if (c->r->failed)
        return a;
    if (part) /* var_mean and std_mean */
        return drop_axes(c, math_cast(c->r, on_tape(c, a, x.mask, ckpt_mean), c->dtype), x);
    ckpt_tensor y = ckpt_var(c->r->t, a.x, x.mask, correction);
    if (strstr(c->op->name, "std"))
        y = ckpt_sqrt(c->r->t, y);
    return drop_axes(c, math_cast(c->r, tensor_of(c->r, PT2_F32, y), c->dtype), x);
}

static struct tensor op_logsumexp(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const struct axes x = read_axes(c, &a);

    (void)part;
    return drop_axes(c, math_cast(c->r, on_tape(c, a, x.mask, ckpt_logsumexp), c->dtype), x);
}

/* The root of the sum of squares, the sum of magnitudes, the largest of them; of another order the
 * root of the sum of powers. */
static struct tensor norm_of(struct call *c, struct tensor a, double order, struct axes x)
{
    static const struct unary magnitude = {fabs, ckpt_abs};

    if (order == 2)
        return drop_axes(c, math_cast(c->r, on_tape(c, a, x.mask, ckpt_norm), c->dtype), x);
    if (order <= 0)
        recording_fail(c->r, CKPT_EFORMAT, "a norm of order %g cannot be recorded", order);
    a = math_unary(c->r, &magnitude, math_cast(c->r, a, c->dtype), c->dtype);
    if (order == 1 || isinf(order))
        return reduce(c, order == 1 ? REDUCE_SUM : REDUCE_MAX, a, x);
    struct tensor power = tensor_number(c->r, c->dtype, order, 0);
    struct tensor root = tensor_number(c->r, c->dtype, 1 / order, 0);
    a = reduce(c, REDUCE_SUM, math_binary(c->r, BINARY_POW, a, power, c->dtype), x);
    return math_binary(c->r, BINARY_POW, a, root, c->dtype);
}

struct tensor reduce_norm(struct call *c, struct tensor a, double order, bool keep)
{
    return norm_of(c, a, order, (struct axes){1u << (a.ndim ? a.ndim - 1 : 0), keep});
}

static struct tensor op_vector_norm(struct call *c, int part)
{
    const char *name = strstr(c->op->name, "linalg") ? "ord" : "p";
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return norm_of(c, a, call_has(c, name) ? call_double(c, name) : 2, read_axes(c, &a));
}

/* The norm of a difference. */
static struct tensor op_dist(struct call *c, int part)
{
    struct tensor a =
        math_binary(c->r, BINARY_SUB, call_tensor(c, "self"), call_tensor(c, "other"), c->dtype);

    (void)part;
    return norm_of(c, a, call_double(c, "p"), (struct axes){.mask = (1u << a.ndim) - 1});
}

/* A root whose gradient is 0 at 0, as that of PyTorch's distances is. */
static ckpt_tensor root_or_zero(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor zero = ckpt_full(t, 0.f, CKPT_F32, 0, NULL);
    ckpt_tensor one = ckpt_full(t, 1.f, CKPT_F32, 0, NULL), above = ckpt_gt(t, x, zero);

    return ckpt_where(t, above, ckpt_sqrt(t, ckpt_where(t, above, x, one)), zero);
}

/* |a|^2 - 2 a b + |b|^2 */
static ckpt_tensor squared_distances(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b, int last)
{
    ckpt_tensor aa = ckpt_sum(t, ckpt_mul(t, a, a), 1u << last);
    ckpt_tensor bb = ckpt_transpose(t, ckpt_sum(t, ckpt_mul(t, b, b), 1u << last), last - 1, last);
    ckpt_tensor ab = ckpt_affine(t, ckpt_matmul(t, a, b, false, true), -2.f, 0.f);

    return ckpt_clamp(t, ckpt_add(t, ckpt_add(t, aa, bb), ab), 0.f, INFINITY);
}

/* Distances of the rows of two matrices: those of few rows by differences, as in PyTorch. */
static struct tensor op_cdist(struct call *c, int part)
{
    enum { FEW = 25 };
    struct tensor a = math_cast(c->r, call_tensor(c, "x1"), c->dtype);
    struct tensor b = math_cast(c->r, call_tensor(c, "x2"), c->dtype);
    const int last = a.ndim - 1;
    const int64_t mode = call_has(c, "compute_mode") ? call_int(c, "compute_mode") : 0;
    ckpt_tape *t = c->r->t;

    (void)part;
    if (a.ndim < 2 || b.ndim != a.ndim)
        recording_fail(c->r, CKPT_EFORMAT, "distances of rows of tensors with %d and %d axes",
                       a.ndim, b.ndim);
    if (call_double(c, "p") != 2 && !c->r->failed)
        return reduce_norm(c,
                           math_binary(c->r, BINARY_SUB, view_unsqueeze(c->r, a, last),
                                       view_unsqueeze(c->r, b, last - 1), c->dtype),
                           call_double(c, "p"), false);
    ckpt_tensor x = tensor_record(c->r, &a), y = tensor_record(c->r, &b);
    if (c->r->failed)
        return a;
    const bool few = a.shape[last - 1] <= FEW && b.shape[last - 1] <= FEW;
    ckpt_tensor d;
    if (mode == 2 || (mode == 0 && few))
        d = ckpt_squeeze(
            t,
            ckpt_norm(t, ckpt_sub(t, ckpt_unsqueeze(t, x, last), ckpt_unsqueeze(t, y, last - 1)),
                      1u << (last + 1)),
            last + 1);
    else
        d = root_or_zero(t, squared_distances(t, x, y, last));
    return math_cast(c->r, tensor_of(c->r, PT2_F32, d), c->dtype);
}

/* The product of two rows of length 1; shorter ones than eps are not made longer. */
static struct tensor op_cosine_similarity(struct call *c, int part)
{
    struct tensor x[2] = {call_tensor(c, "x1"), call_tensor(c, "x2")};
    const struct tensor eps = tensor_number(c->r, PT2_F32, call_double(c, "eps"), 0);
    const int n = x[0].ndim > x[1].ndim ? x[0].ndim : x[1].ndim;
    int64_t shape[TENSOR_AXES] = {0};

    (void)part;
    for (int k = 0; k < 2; k++)
        while (x[k].ndim < n && !c->r->failed)
            x[k] = view_unsqueeze(c->r, x[k], 0);
    for (int i = 0; i < n && !c->r->failed; i++)
        shape[i] = x[0].shape[i] == 1 ? x[1].shape[i] : x[0].shape[i];
    for (int k = 0; k < 2 && !c->r->failed; k++) {
        x[k] = math_cast(c->r, view_expand(c->r, x[k], n, shape), c->dtype);
        struct tensor norm = on_tape(c, x[k], 1u << call_axis(c, "dim", &x[k]), ckpt_norm);
        norm = math_binary(c->r, BINARY_MAX, norm, eps, PT2_F32);
        x[k] = math_binary(c->r, BINARY_DIV, x[k], norm, c->dtype);
    }
    struct tensor y = math_binary(c->r, BINARY_MUL, x[0], x[1], c->dtype);
    const struct axes last = {.mask = c->r->failed ? 1u : 1u << call_axis(c, "dim", &y)};
    return c->r->failed ? y : reduce(c, REDUCE_SUM, y, last);
}

/* ---- along an axis --------------------------------------------------------------------------- */

typedef ckpt_tensor (*axis_call)(ckpt_tape *t, ckpt_tensor x, int axis);

static struct tensor along(struct call *c, axis_call f)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);
    const int axis = call_axis(c, "dim", &a);

    tensor_record(c->r, &a);
    return c->r->failed ? a : tensor_of(c->r, c->dtype, f(c->r->t, a.x, axis));
}

static struct tensor op_softmax(struct call *c, int part)
{
    (void)part;
    return along(c, ckpt_softmax);
}

static struct tensor op_log_softmax(struct call *c, int part)
{
    (void)part;
    return along(c, ckpt_log_softmax);
}

static struct tensor cumsum_constant(struct call *c, struct tensor a, int axis)
{
    struct tensor last = view_swap(c->r, a, axis, a.ndim - 1);
    struct tensor out = tensor_zeros(c->r, a.dtype, last.ndim, last.shape);
    const int64_t n = last.shape[last.ndim - 1];
    const int64_t rows = c->r->failed || !n ? 0 : tensor_numel(&out) / n;

    for (int64_t k = 0; k < rows * n; k++)
        if (pt2_is_float(a.dtype))
            out.f[k] = tensor_round(a.dtype, tensor_f(&last, k) + (k % n ? out.f[k - 1] : 0));
        else
            out.i[k] = tensor_i(&last, k) + (k % n ? out.i[k - 1] : 0);
    return view_swap(c->r, out, axis, a.ndim - 1);
}

/* On the tape whole numbers are added as floats, exact up to 2^24. */
static struct tensor op_cumsum(struct call *c, int part)
{
    struct tensor a = math_cast(c->r, call_tensor(c, "self"), c->dtype);
    const int axis = call_axis(c, "dim", &a);

    (void)part;
    if (!a.ndim || c->r->failed)
        return a;
    if (a.constant)
        return cumsum_constant(c, a, axis);
    if (!pt2_is_float(a.dtype))
        a = math_cast(c->r, a, PT2_F32);
    tensor_record(c->r, &a);
    return math_cast(c->r, tensor_of(c->r, a.dtype, ckpt_cumsum(c->r->t, a.x, axis)), c->dtype);
}

#define OP(name, record)                                                                           \
    {                                                                                              \
        "aten." name, record, NULL, NULL, false                                                    \
    }

const struct op ops_reduce[] = {
    OP("sum.default", op_sum),
    OP("sum.dim_IntList", op_sum),
    OP("mean.default", op_mean),
    OP("mean.dim", op_mean),
    OP("nansum.default", op_nansum),
    OP("nanmean.default", op_nansum),
    OP("prod.default", op_prod),
    OP("prod.dim_int", op_prod),
    OP("amax.default", op_amax),
    OP("amin.default", op_amin),
    OP("max.default", op_amax),
    OP("min.default", op_amin),
    OP("max.dim", op_max_dim),
    OP("min.dim", op_min_dim),
    OP("any.default", op_any),
    OP("any.dim", op_any),
    OP("any.dims", op_any),
    OP("all.default", op_all),
    OP("all.dim", op_all),
    OP("_is_any_true.default", op_any),
    OP("_is_all_true.default", op_all),
    OP("count_nonzero.default", op_count_nonzero),
    OP("count_nonzero.dim_IntList", op_count_nonzero),
    OP("argmax.default", op_argmax),
    OP("argmin.default", op_argmin),
    OP("var.correction", op_var),
    OP("var.default", op_var),
    OP("var.dim", op_var),
    OP("std.correction", op_var),
    OP("std.default", op_var),
    OP("std.dim", op_var),
    OP("logsumexp.default", op_logsumexp),
    OP("var_mean.correction", op_var),
    OP("var_mean.default", op_var),
    OP("var_mean.dim", op_var),
    OP("std_mean.correction", op_var),
    OP("std_mean.default", op_var),
    OP("std_mean.dim", op_var),
    OP("aminmax.default", op_aminmax),
    OP("cosine_similarity.default", op_cosine_similarity),
    OP("cdist.default", op_cdist),
    OP("dist.default", op_dist),
    OP("linalg_vector_norm.default", op_vector_norm),
    OP("linalg_norm.default", op_vector_norm),
    OP("norm.Scalar", op_vector_norm),
    OP("norm.ScalarOpt_dim", op_vector_norm),
    OP("softmax.int", op_softmax),
    OP("_softmax.default", op_softmax),
    OP("log_softmax.int", op_log_softmax),
    OP("special_log_softmax.default", op_log_softmax),
    OP("special_softmax.default", op_softmax),
    OP("_log_softmax.default", op_log_softmax),
    OP("cumsum.default", op_cumsum),
    {NULL, NULL, NULL, NULL, false},
};
