/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "import/views.h"

/* Two permutations are one, and none if the second undoes the first. */
static struct tensor permute_on_tape(struct recording *r, const struct tensor *a, const int *axes)
{
    const ckpt_tensor plain = a->plain.id ? a->plain : a->x;
    int order[TENSOR_AXES];
    bool same = true;

    for (int i = 0; i < a->ndim; i++) {
        order[i] = a->plain.id ? a->order[axes[i]] : axes[i];
        same = same && order[i] == i;
    }
    if (same)
        return tensor_of(r, a->dtype, plain);
    struct tensor v = tensor_of(r, a->dtype, ckpt_permute(r->t, plain, order));
    v.plain = plain;
    memcpy(v.order, order, sizeof v.order);
    return v;
}

/* The number of elements, or -1 where it is beyond 64 bits. */
static int64_t count(int ndim, const int64_t *shape)
{
    int64_t n = 1;

    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(n, shape[i], &n))
            return -1;
    return n;
}

struct tensor view_permute(struct recording *r, struct tensor a, const int *axes)
{
    struct tensor v = a;

    if (r->failed)
        return a;
    if (!a.constant)
        return permute_on_tape(r, &a, axes);
    v.x = CKPT_NONE;
    for (int i = 0; i < a.ndim; i++) {
        v.shape[i] = a.shape[axes[i]];
        v.stride[i] = a.stride[axes[i]];
    }
    return v;
}

struct tensor view_swap(struct recording *r, struct tensor a, int axis, int other)
{
    int axes[TENSOR_AXES];

    for (int i = 0; i < a.ndim; i++)
        axes[i] = i == axis ? other : i == other ? axis : i;
    return view_permute(r, a, axes);
}

/* Whether shapes differ by axes of size 1 alone; then strides of the others stay. */
static bool carry_strides(const struct tensor *a, struct tensor *v)
{
    int k = 0;

    for (int i = 0; i < v->ndim; i++) {
        v->stride[i] = 0;
        if (v->shape[i] == 1)
            continue;
        while (k < a->ndim && a->shape[k] == 1)
            k++;
        if (k == a->ndim || a->shape[k] != v->shape[i])
            return false;
        v->stride[i] = a->stride[k++];
    }
    while (k < a->ndim && a->shape[k] == 1)
        k++;
    return k == a->ndim;
}

/* Whether it is one element, repeated. */
static bool is_uniform(const struct tensor *a)
{
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] > 1 && a->stride[i])
            return false;
    return tensor_numel(a) > 0;
}

static struct tensor reshape_constant(struct recording *r, struct tensor a, int ndim,
                                      const int64_t *shape)
{
    struct tensor v = a;

    v.x = CKPT_NONE;
    v.ndim = ndim;
    memcpy(v.shape, shape, (size_t)ndim * sizeof *shape);
    if (is_uniform(&a)) {
        memset(v.stride, 0, sizeof v.stride);
        return v;
    }
    if (carry_strides(&a, &v))
        return v;
    struct tensor dense = tensor_dense(r, a);
    v.i = dense.i;
    int64_t n = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        v.stride[i] = shape[i] == 1 ? 0 : n;
        n *= shape[i];
    }
    return v;
}

/* Of a tensor that has lost its shape for a product of matrices and gets it back, the first. */
static struct tensor reshape_recorded(struct recording *r, const struct tensor *a, int ndim,
                                      const int64_t *shape)
{
    const ckpt_tensor whole = a->whole.id ? a->whole : a->x;
    const struct ckpt_desc d = ckpt_desc_of(r->t, whole);

    if (d.ndim == ndim && !memcmp(d.shape, shape, (size_t)ndim * sizeof *shape))
        return tensor_of(r, a->dtype, whole);
    struct tensor y = tensor_of(r, a->dtype, ckpt_reshape(r->t, a->x, ndim, shape));
    const bool rows = ndim > 0 && d.ndim > 0 && d.shape[d.ndim - 1] == shape[ndim - 1];
    y.whole = rows ? whole : a->x; /* the first with these rows */
    return y;
}

struct tensor view_reshape(struct recording *r, struct tensor a, int ndim, const int64_t *shape)
{
    const int64_t n = ndim > TENSOR_AXES ? -1 : count(ndim, shape);

    if (n < 0 || n != tensor_numel(&a)) {
        recording_fail(r, CKPT_ESHAPE, "%lld elements do not become %d axes of %lld elements",
                       (long long)tensor_numel(&a), ndim, (long long)n);
        return a;
    }
    if (a.ndim == ndim && !memcmp(a.shape, shape, (size_t)ndim * sizeof *shape))
        return a;
    if (!a.constant && !r->failed)
        return reshape_recorded(r, &a, ndim, shape);
    return reshape_constant(r, a, ndim, shape);
}

struct tensor view_expand(struct recording *r, struct tensor a, int ndim, const int64_t *shape)
{
    struct tensor v = a;
    const int more = ndim - a.ndim;

    if (a.ndim == ndim && !memcmp(a.shape, shape, (size_t)ndim * sizeof *shape))
        return a;
    if (!a.constant && !r->failed)
        return tensor_of(r, a.dtype, ckpt_expand(r->t, a.x, ndim, shape));
    if (ndim > TENSOR_AXES || count(ndim, shape) < 0) {
        recording_fail(r, CKPT_ESHAPE, "a constant has sizes that no memory holds");
        return a;
    }
    v.x = CKPT_NONE;
    v.ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        const int64_t from = i < more ? 1 : a.shape[i - more];
        if (more < 0 || (from != 1 && from != shape[i]))
            recording_fail(r, CKPT_ESHAPE, "axis %d of size %lld does not expand to %lld", i,
                           (long long)from, (long long)shape[i]);
        v.shape[i] = shape[i];
        v.stride[i] = i < more || from == 1 ? 0 : a.stride[i - more];
    }
    return v;
}

struct tensor view_unsqueeze(struct recording *r, struct tensor a, int axis)
{
    struct tensor v = a;

    if (!a.constant && !r->failed)
        return tensor_of(r, a.dtype, ckpt_unsqueeze(r->t, a.x, axis));
    if (a.ndim == TENSOR_AXES || axis < 0 || axis > a.ndim) {
        recording_fail(r, CKPT_ESHAPE, "an axis %d cannot be added to %d; there are at most %d",
                       axis, a.ndim, TENSOR_AXES);
        return a;
    }
    v.x = CKPT_NONE;
    v.ndim++;
    for (int i = a.ndim; i > axis; i--) {
        v.shape[i] = a.shape[i - 1];
        v.stride[i] = a.stride[i - 1];
    }
    v.shape[axis] = 1;
    v.stride[axis] = 0;
    return v;
}

/* Views of a permuted tensor are taken before it is permuted, so that the gradients of its parts
 * lie as the tensor does. */
static struct tensor squeeze_plain(struct recording *r, const struct tensor *a, int axis)
{
    const int gone = a->order[axis];
    int order[TENSOR_AXES], n = 0;

    for (int i = 0; i < a->ndim; i++)
        if (i != axis)
            order[n++] = a->order[i] - (a->order[i] > gone);
    return view_permute(r, tensor_of(r, a->dtype, ckpt_squeeze(r->t, a->plain, gone)), order);
}

static struct tensor slice_plain(struct recording *r, const struct tensor *a, int axis,
                                 int64_t begin, int64_t end)
{
    ckpt_tensor x = ckpt_slice(r->t, a->plain, a->order[axis], begin, end);

    return view_permute(r, tensor_of(r, a->dtype, x), a->order);
}

struct tensor view_squeeze(struct recording *r, struct tensor a, int axis)
{
    struct tensor v = a;

    if (!a.constant && !r->failed && a.plain.id)
        return squeeze_plain(r, &a, axis);
    if (!a.constant && !r->failed)
        return tensor_of(r, a.dtype, ckpt_squeeze(r->t, a.x, axis));
    v.x = CKPT_NONE;
    v.ndim--;
    for (int i = axis; i < v.ndim; i++) {
        v.shape[i] = a.shape[i + 1];
        v.stride[i] = a.stride[i + 1];
    }
    return v;
}

/* The axis is cut into groups of `step` elements, and the first of each is kept. */
static ckpt_tensor slice_steps(struct recording *r, const struct tensor *a, int axis, int64_t begin,
                               int64_t n, int64_t step)
{
    ckpt_tensor x = a->x;
    int64_t shape[TENSOR_AXES + 1];
    const int64_t missing = begin + n * step - a->shape[axis];

    if (a->ndim == TENSOR_AXES) {
        recording_fail(r, CKPT_ESHAPE, "a slice with steps has at most %d axes", TENSOR_AXES - 1);
        return x;
    }
    if (missing > 0)
        x = ckpt_pad(r->t, x, axis, 0, missing, CKPT_PAD_CONSTANT, 0.f);
    x = ckpt_slice(r->t, x, axis, begin, begin + n * step);
    for (int i = 0; i <= a->ndim; i++)
        shape[i] = i == axis ? n : i == axis + 1 ? step : a->shape[i > axis ? i - 1 : i];
    x = ckpt_reshape(r->t, x, a->ndim + 1, shape);
    return ckpt_squeeze(r->t, ckpt_slice(r->t, x, axis + 1, 0, 1), axis + 1);
}

struct tensor view_slice(struct recording *r, struct tensor a, int axis, int64_t begin, int64_t end,
                         int64_t step)
{
    const int64_t n = step > 0 && end > begin ? (end - begin - 1) / step + 1 : 0;
    struct tensor v = a;

    step = n == 1 ? 1 : step;
    end = n == 1 ? begin + 1 : end;

    if (begin < 0 || end > a.shape[axis] || step < 1) {
        recording_fail(r, CKPT_ESHAPE, "a slice [%lld, %lld) of axis %d of size %lld",
                       (long long)begin, (long long)end, axis, (long long)a.shape[axis]);
        return a;
    }
    if (n < 1) { /* nothing of it: only a join reads that */
        v.shape[axis] = 0;
        return tensor_zeros(r, a.dtype, a.ndim, v.shape);
    }
    if (n == a.shape[axis] && step == 1)
        return a;
    if (!a.constant && !r->failed && a.plain.id && step == 1)
        return slice_plain(r, &a, axis, begin, end);
    if (!a.constant && !r->failed)
        return tensor_of(r, a.dtype,
                         step == 1 ? ckpt_slice(r->t, a.x, axis, begin, end)
                                   : slice_steps(r, &a, axis, begin, n, step));
    v.x = CKPT_NONE;
    v.shape[axis] = n;
    v.i = a.i + begin * a.stride[axis];
    v.stride[axis] = n == 1 ? 0 : a.stride[axis] * step;
    return v;
}

/* ---- joins ----------------------------------------------------------------------------------- */

static void copy_part(struct tensor *to, int axis, int64_t at, struct tensor *part)
{
    struct tensor window = *to;
    const int64_t n = tensor_numel(part);

    memcpy(window.shape, part->shape, sizeof window.shape);
    for (int64_t k = 0; k < n; k++) {
        int64_t rest = k, place = at * to->stride[axis], from = 0;
        for (int i = to->ndim - 1; i >= 0; i--) {
            const int64_t index = rest % window.shape[i];
            rest /= window.shape[i];
            place += index * to->stride[i];
            from += index * part->stride[i];
        }
        to->i[place] = part->i[from];
    }
}

static struct tensor join_constants(struct recording *r, int axis, int n, struct tensor *a)
{
    int64_t shape[TENSOR_AXES], at = 0;

    memcpy(shape, a[0].shape, sizeof shape);
    for (int k = 1; k < n; k++)
        shape[axis] += a[k].shape[axis];
    struct tensor whole = tensor_zeros(r, a[0].dtype, a[0].ndim, shape);
    for (int k = 0; k < n && !r->failed; k++) {
        copy_part(&whole, axis, at, &a[k]);
        at += a[k].shape[axis];
    }
    return whole;
}

static bool parts_fit(const struct tensor *a, int n, int axis)
{
    for (int k = 1; k < n; k++) {
        if (a[k].ndim != a[0].ndim)
            return false;
        for (int i = 0; i < a[0].ndim; i++)
            if (i != axis && a[k].shape[i] != a[0].shape[i])
                return false;
    }
    return axis < a[0].ndim;
}

static ckpt_tensor permuted(struct recording *r, struct tensor *a, const int *order)
{
    tensor_record(r, a);
    struct tensor on_tape = *a;
    on_tape.constant = false;
    return view_permute(r, on_tape, order).x;
}

/* Parts are joined in the order that the first has in memory. */
static struct tensor join_on_tape(struct recording *r, int axis, int n, struct tensor *a)
{
    int order[TENSOR_AXES], back[TENSOR_AXES];
    ckpt_tensor *x = heap_zeros(&r->heap, n, sizeof *x);
    int first = 0;

    while (first < n - 1 && a[first].constant)
        first++;
    axes_in_memory(r, &a[first], order);
    inverse_axes(a[0].ndim, order, back);
    for (int k = 0; k < n && !r->failed && x; k++)
        x[k] = permuted(r, &a[k], order);
    if (r->failed || !x)
        return a[0];
    while (n > 1) { /* a join has a limit of parts */
        int m = 0;
        for (int k = 0; k < n; k += CKPT_MAX_PARTS, m++) {
            const int parts = n - k < CKPT_MAX_PARTS ? n - k : CKPT_MAX_PARTS;
            x[m] = parts > 1 ? ckpt_concat(r->t, back[axis], parts, x + k) : x[k];
        }
        n = m;
    }
    return view_permute(r, tensor_of(r, a[0].dtype, x[0]), back);
}

/* Parts without elements do not count, unless all are. */
static int drop_empty(int n, struct tensor *a)
{
    int kept = 0;

    for (int k = 0; k < n; k++)
        if (tensor_numel(&a[k]))
            a[kept++] = a[k];
    return kept ? kept : 1;
}

struct tensor join_tensors(struct recording *r, int axis, int n, struct tensor *a)
{
    bool constant = true;

    n = drop_empty(n, a);
    if (!parts_fit(a, n, axis)) {
        recording_fail(r, CKPT_ESHAPE, "%d tensors do not join along axis %d", n, axis);
        return a[0];
    }
    for (int k = 0; k < n; k++)
        constant = constant && a[k].constant;
    if (n == 1 || r->failed)
        return a[0];
    return constant ? join_constants(r, axis, n, a) : join_on_tape(r, axis, n, a);
}

/* ---- order in memory ------------------------------------------------------------------------- */

void axes_in_memory(struct recording *r, const struct tensor *a, int *axes)
{
    struct ckpt_desc d = {.ndim = 0};

    if (!a->constant && !r->failed)
        d = ckpt_desc_of(r->t, a->x);
    for (int i = 0; i < a->ndim; i++) {
        int k = i;
        axes[i] = i;
        if (i >= d.ndim || !d.stride[i])
            continue;
        for (; k > 0 && d.stride[axes[k - 1]] && d.stride[axes[k - 1]] < d.stride[i]; k--)
            axes[k] = axes[k - 1];
        axes[k] = i;
    }
}

void inverse_axes(int ndim, const int *axes, int *inverse)
{
    for (int i = 0; i < ndim; i++)
        inverse[axes[i]] = i;
}
