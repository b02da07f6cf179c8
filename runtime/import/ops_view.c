/* SPDX-License-Identifier: Apache-2.0 */
/* Views: of each what it looks at, and how a value is put back there. */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/views.h"

static struct tensor put_reshape(struct call *c, int part, struct tensor whole, struct tensor view)
{
    (void)part;
    return view_reshape(c->r, view, whole.ndim, whole.shape);
}

/* ---- reshapes -------------------------------------------------------------------------------- */

/* Sizes with at most one -1, which takes what is left of n elements. */
static void infer(struct call *c, int64_t n, int count, int64_t *size)
{
    int unknown = -1;

    for (int i = 0; i < count; i++)
        if (size[i] == -1)
            unknown = i;
        else if (size[i] > 0)
            n /= size[i];
        else
            recording_fail(c->r, CKPT_ESHAPE, "an axis has %lld elements", (long long)size[i]);
    if (unknown >= 0)
        size[unknown] = n;
}

static struct tensor reshape(struct call *c, const char *sizes)
{
    struct tensor a = call_tensor(c, "self");
    int64_t size[TENSOR_AXES];
    const int n = call_ints(c, sizes, size, TENSOR_AXES);

    infer(c, tensor_numel(&a), n, size);
    return view_reshape(c->r, a, n, size);
}

static struct tensor op_view(struct call *c, int part)
{
    (void)part;
    return reshape(c, "size");
}

static struct tensor op_reshape(struct call *c, int part)
{
    (void)part;
    return reshape(c, "shape");
}

static struct tensor op_view_as(struct call *c, int part)
{
    struct tensor like = call_tensor(c, "other");

    (void)part;
    return view_reshape(c->r, call_tensor(c, "self"), like.ndim, like.shape);
}

/* Reshaping copies where the axes do not lie dense in memory, as the file says. */
static bool is_scattered(const struct pt2_node *node, const struct pt2_tensor *f,
                         const struct pt2_tensor *result)
{
    int64_t n = 1;

    (void)node;
    (void)result;
    for (int i = f->ndim - 1; i >= 0; i--) {
        if (f->size[i].n != 1 && f->stride[i].n != n)
            return true;
        n *= f->size[i].n;
    }
    return false;
}

/* Whether strides have no form for other sizes: each run of axes that follow each other in memory
 * must become whole axes. */
static bool reshape_copies(const struct pt2_node *node, const struct pt2_tensor *f,
                           const struct pt2_tensor *result)
{
    int64_t base = f->ndim ? f->stride[f->ndim - 1].n : 1, run = 1, part = 1;
    int to = result->ndim - 1;

    (void)node;
    for (int i = f->ndim - 1; i >= 0; i--) {
        run *= f->size[i].n;
        if (i > 0 && (f->size[i - 1].n == 1 || f->stride[i - 1].n == run * base))
            continue;
        while (to >= 0 && (part < run || result->size[to].n == 1))
            part *= result->size[to--].n;
        if (part != run)
            return true;
        base = i > 0 ? f->stride[i - 1].n : base;
        run = part = 1;
    }
    return false;
}

static struct tensor op_flatten(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int from = call_axis(c, "start_dim", &a), to = call_axis(c, "end_dim", &a);
    int64_t size[TENSOR_AXES];
    int n = 0;

    (void)part;
    for (int i = 0; i < a.ndim; i++)
        if (i > from && i <= to)
            size[n - 1] *= a.shape[i];
        else
            size[n++] = a.shape[i];
    if (!a.ndim)
        size[n++] = 1;
    return view_reshape(c->r, a, n, size);
}

static struct tensor op_unflatten(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int axis = call_axis(c, "dim", &a);
    int64_t size[2 * TENSOR_AXES], sizes[TENSOR_AXES];
    const int n = call_ints(c, "sizes", sizes, TENSOR_AXES);

    (void)part;
    infer(c, a.shape[axis], n, sizes);
    memcpy(size, a.shape, (size_t)axis * sizeof *size);
    memcpy(size + axis, sizes, (size_t)n * sizeof *size);
    for (int i = axis + 1; i < a.ndim; i++)
        size[i + n - 1] = a.shape[i];
    return view_reshape(c->r, a, a.ndim + n - 1, size);
}

static struct tensor op_unsqueeze(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const int64_t axis = call_int(c, "dim");

    (void)part;
    return view_unsqueeze(c->r, a, (int)(axis < 0 ? axis + a.ndim + 1 : axis));
}

static struct tensor op_squeeze(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const bool all = !strcmp(c->op->name, "aten.squeeze.default");
    int64_t axes[TENSOR_AXES];
    unsigned drop = all ? ~0u : 0;

    (void)part;
    for (int n = all ? 0 : call_ints(c, "dim", axes, TENSOR_AXES), k = 0; k < n; k++)
        drop |= 1u << tensor_axis(c->r, &a, axes[k]);
    for (int i = a.ndim - 1; i >= 0; i--)
        if ((drop >> i & 1) && a.shape[i] == 1)
            a = view_squeeze(c->r, a, i);
    return a;
}

/* ---- permutations ---------------------------------------------------------------------------- */

static void axes_of_permute(struct call *c, const struct tensor *a, int *axes)
{
    int64_t given[TENSOR_AXES];
    unsigned seen = 0;
    const int n = call_ints(c, "dims", given, TENSOR_AXES);

    for (int i = 0; i < a->ndim; i++) {
        axes[i] = i < n ? tensor_axis(c->r, a, given[i]) : i;
        seen |= 1u << axes[i];
    }
    if (n != a->ndim || seen != (1u << n) - 1)
        recording_fail(c->r, CKPT_ESHAPE, "the axes are no permutation of %d", a->ndim);
}

static struct tensor op_permute(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    int axes[TENSOR_AXES];

    (void)part;
    axes_of_permute(c, &a, axes);
    return view_permute(c->r, a, axes);
}

static struct tensor put_permute(struct call *c, int part, struct tensor whole, struct tensor view)
{
    int axes[TENSOR_AXES], back[TENSOR_AXES];

    (void)part;
    axes_of_permute(c, &whole, axes);
    inverse_axes(whole.ndim, axes, back);
    return view_permute(c->r, view, back);
}

static struct tensor reverse_axes(struct call *c, struct tensor a)
{
    int axes[TENSOR_AXES];

    for (int i = 0; i < a.ndim; i++)
        axes[i] = a.ndim - 1 - i;
    return view_permute(c->r, a, axes);
}

static struct tensor swap(struct call *c, struct tensor a)
{
    const int last = a.ndim - 1;

    if (strstr(c->op->name, "transpose"))
        return view_swap(c->r, a, call_axis(c, "dim0", &a), call_axis(c, "dim1", &a));
    if (strstr(c->op->name, "swap"))
        return view_swap(c->r, a, call_axis(c, strstr(c->op->name, "axes") ? "axis0" : "dim0", &a),
                         call_axis(c, strstr(c->op->name, "axes") ? "axis1" : "dim1", &a));
    if (strstr(c->op->name, "numpy_T"))
        return reverse_axes(c, a);
    return last > 0 ? view_swap(c->r, a, last - 1, last) : a; /* t, mT */
}

static struct tensor op_swap(struct call *c, int part)
{
    (void)part;
    return swap(c, call_tensor(c, "self"));
}

static struct tensor put_swap(struct call *c, int part, struct tensor whole, struct tensor view)
{
    (void)part;
    (void)whole;
    return swap(c, view);
}

static void axes_of_movedim(struct call *c, const struct tensor *a, int *axes)
{
    int64_t from[TENSOR_AXES], to[TENSOR_AXES];
    const int n = call_ints(c, "source", from, TENSOR_AXES);
    unsigned placed = 0, taken = 0;

    if (call_ints(c, "destination", to, TENSOR_AXES) != n)
        recording_fail(c->r, CKPT_ESHAPE, "source and destination have other numbers of axes");
    for (int k = 0; k < n; k++) {
        const int at = tensor_axis(c->r, a, to[k]);
        axes[at] = tensor_axis(c->r, a, from[k]);
        placed |= 1u << at;
        taken |= 1u << axes[at];
    }
    for (int i = 0, next = 0; i < a->ndim; i++) {
        while (next < a->ndim && taken >> next & 1)
            next++;
        if (!(placed >> i & 1))
            axes[i] = next < a->ndim ? next++ : 0;
    }
}

static struct tensor op_movedim(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    int axes[TENSOR_AXES];

    (void)part;
    axes_of_movedim(c, &a, axes);
    return view_permute(c->r, a, axes);
}

static struct tensor put_movedim(struct call *c, int part, struct tensor whole, struct tensor view)
{
    int axes[TENSOR_AXES], back[TENSOR_AXES];

    (void)part;
    axes_of_movedim(c, &whole, axes);
    inverse_axes(whole.ndim, axes, back);
    return view_permute(c->r, view, back);
}

/* ---- broadcasts ------------------------------------------------------------------------------ */

static struct tensor op_expand(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    int64_t size[TENSOR_AXES];
    const int n = call_ints(c, "size", size, TENSOR_AXES);

    (void)part;
    for (int i = 0; i < n; i++)
        if (size[i] == -1 && i >= n - a.ndim)
            size[i] = a.shape[i - n + a.ndim];
    return view_expand(c->r, a, n, size);
}

static struct tensor op_expand_as(struct call *c, int part)
{
    struct tensor like = call_tensor(c, "other");

    (void)part;
    return view_expand(c->r, call_tensor(c, "self"), like.ndim, like.shape);
}

struct tensor put_expand(struct call *c, int part, struct tensor whole, struct tensor view)
{
    (void)part;
    if (tensor_numel(&whole) == tensor_numel(&view)) /* nothing is repeated */
        return view_reshape(c->r, view, whole.ndim, whole.shape);
    recording_fail(c->r, CKPT_EFORMAT, "elements that share memory are written");
    return whole;
}

/* ---- parts of an axis ------------------------------------------------------------------------ */

struct range {
    int axis;
    int64_t begin, end, step;
};

static struct tensor take(struct call *c, struct tensor a, struct range s)
{
    return view_slice(c->r, a, s.axis, s.begin, s.end, s.step);
}

/* The rows of `whole` with those of the range from `part`. */
static struct tensor replace(struct call *c, struct tensor whole, struct range s,
                             struct tensor part)
{
    struct tensor piece[3];
    int n = 0;

    if (s.begin > 0)
        piece[n++] = view_slice(c->r, whole, s.axis, 0, s.begin, 1);
    piece[n++] = part;
    if (s.end < whole.shape[s.axis])
        piece[n++] = view_slice(c->r, whole, s.axis, s.end, whole.shape[s.axis], 1);
    return c->r->failed ? whole : join_tensors(c->r, s.axis, n, piece);
}

/* A row of every group: the axis is one of groups and one of the rows of a group. */
static struct tensor replace_groups(struct call *c, struct tensor whole, struct range s,
                                    struct tensor part)
{
    int64_t shape[TENSOR_AXES];
    const int64_t n = whole.shape[s.axis];

    if (whole.ndim == TENSOR_AXES) {
        recording_fail(c->r, CKPT_ESHAPE, "a slice with steps has at most %d axes",
                       TENSOR_AXES - 1);
        return whole;
    }
    memcpy(shape, whole.shape, sizeof shape);
    for (int i = whole.ndim; i > s.axis; i--)
        shape[i] = whole.shape[i - 1];
    shape[s.axis] = n / s.step;
    shape[s.axis + 1] = s.step;
    const struct range column = {s.axis + 1, s.begin, s.begin + 1, 1};
    struct tensor groups = view_reshape(c->r, whole, whole.ndim + 1, shape);
    groups = replace(c, groups, column, view_unsqueeze(c->r, part, s.axis + 1));
    return view_reshape(c->r, groups, whole.ndim, whole.shape);
}

/* Every step-th row: of all groups, or of those in the middle and then of the last one, which the
 * end of the axis may cut. */
static struct tensor replace_steps(struct call *c, struct tensor whole, struct range s,
                                   struct tensor part)
{
    const int64_t n = whole.shape[s.axis], count = part.shape[s.axis];
    const int64_t last = s.begin + (count - 1) * s.step;

    if (n % s.step == 0 && s.begin < s.step && s.end > n - s.step + s.begin)
        return replace_groups(c, whole, s, part);
    if (count > 1) {
        struct tensor middle = view_slice(c->r, whole, s.axis, s.begin, last, 1);
        struct tensor rows = view_slice(c->r, part, s.axis, 0, count - 1, 1);
        if (!c->r->failed)
            middle = replace_groups(c, middle, (struct range){s.axis, 0, last, s.step}, rows);
        if (!c->r->failed)
            whole = replace(c, whole, (struct range){s.axis, s.begin, last, 1}, middle);
    }
    if (c->r->failed)
        return whole;
    return replace(c, whole, (struct range){s.axis, last, last + 1, 1},
                   view_slice(c->r, part, s.axis, count - 1, count, 1));
}

static struct tensor put(struct call *c, struct tensor whole, struct range s, struct tensor part)
{
    if (c->r->failed)
        return whole;
    if (!tensor_numel(&part)) /* nothing is written */
        return whole;
    return s.step == 1 ? replace(c, whole, s, part) : replace_steps(c, whole, s, part);
}

static int64_t clip(int64_t at, int64_t n)
{
    at = at < 0 ? at + n : at;
    return at < 0 ? 0 : at > n ? n : at;
}

static struct range range_of_slice(struct call *c, const struct tensor *a)
{
    struct range s = {.axis = call_axis(c, "dim", a), .step = call_int(c, "step")};
    const int64_t n = a->ndim ? a->shape[s.axis] : 1;

    s.begin = call_has(c, "start") ? clip(call_int(c, "start"), n) : 0;
    s.end = call_has(c, "end") ? clip(call_int(c, "end"), n) : n;
    return s;
}

static struct tensor op_slice(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return take(c, a, range_of_slice(c, &a));
}

static struct tensor put_slice(struct call *c, int part, struct tensor whole, struct tensor view)
{
    (void)part;
    return put(c, whole, range_of_slice(c, &whole), view);
}

static struct range range_of_narrow(struct call *c, const struct tensor *a)
{
    const int axis = call_axis(c, "dim", a);
    const int64_t begin = clip(call_int(c, "start"), a->shape[axis]);
    int64_t length = call_int(c, "length");

    if (length < 0 || length > a->shape[axis] - begin) {
        recording_fail(c->r, CKPT_ESHAPE, "%lld elements from %lld on of an axis of %lld",
                       (long long)length, (long long)begin, (long long)a->shape[axis]);
        length = 0;
    }
    return (struct range){axis, begin, begin + length, 1};
}

static struct tensor op_narrow(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    return take(c, a, range_of_narrow(c, &a));
}

static struct tensor put_narrow(struct call *c, int part, struct tensor whole, struct tensor view)
{
    (void)part;
    return put(c, whole, range_of_narrow(c, &whole), view);
}

static struct range range_of_select(struct call *c, const struct tensor *a)
{
    const int axis = call_axis(c, "dim", a);
    const int64_t n = a->shape[axis], at = call_int(c, "index"), begin = at < 0 ? at + n : at;

    return (struct range){axis, begin, begin + 1, 1};
}

static struct tensor op_select(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const struct range s = range_of_select(c, &a);

    (void)part;
    a = take(c, a, s);
    return c->r->failed ? a : view_squeeze(c->r, a, s.axis);
}

static struct tensor put_select(struct call *c, int part, struct tensor whole, struct tensor view)
{
    const struct range s = range_of_select(c, &whole);

    (void)part;
    return put(c, whole, s, c->r->failed ? view : view_unsqueeze(c->r, view, s.axis));
}

static struct range range_of_unbind(struct call *c, const struct tensor *a, int part)
{
    return (struct range){call_axis(c, "dim", a), part, part + 1, 1};
}

static struct tensor op_unbind(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");
    const struct range s = range_of_unbind(c, &a, part);

    a = take(c, a, s);
    return c->r->failed ? a : view_squeeze(c->r, a, s.axis);
}

static struct tensor put_unbind(struct call *c, int part, struct tensor whole, struct tensor view)
{
    const struct range s = range_of_unbind(c, &whole, part);

    return put(c, whole, s, c->r->failed ? view : view_unsqueeze(c->r, view, s.axis));
}

/* Parts of sizes that differ by 1 at most, the larger ones first; or from index to index. */
static struct range range_of_tensor_split(struct call *c, int axis, int64_t n, int part)
{
    const bool named = strstr(c->op->name, "indices") != NULL;
    int64_t at[CKPT_MAX_PARTS];
    const int64_t k = named ? call_ints(c, "indices", at, CKPT_MAX_PARTS) : call_int(c, "sections");
    struct range s = {.axis = axis, .end = n, .step = 1};

    if (named) {
        s.begin = part ? clip(at[part - 1], n) : 0;
        s.end = part < k ? clip(at[part], n) : n;
    } else if (k > 0) {
        const int64_t more = n % k;
        s.begin = part * (n / k) + (part < more ? part : more);
        s.end = s.begin + n / k + (part < more);
    }
    return s;
}

/* chunk: equal parts, the last may be smaller; split: parts of one size, or of sizes. */
static struct range range_of_split(struct call *c, const struct tensor *a, int part)
{
    struct range s = {.axis = call_axis(c, "dim", a), .step = 1};
    const int64_t n = a->shape[s.axis];
    int64_t size[CKPT_MAX_PARTS];
    int64_t each = 1;

    if (strstr(c->op->name, "tensor_split"))
        return range_of_tensor_split(c, s.axis, n, part);
    if (strstr(c->op->name, "chunk")) {
        const int64_t chunks = call_int(c, "chunks");
        each = chunks > 0 ? (n + chunks - 1) / chunks : 1;
    } else if (strstr(c->op->name, "split.Tensor")) {
        each = call_int(c, "split_size");
    } else {
        const bool plain = !strcmp(c->op->name, "aten.split.sizes");
        const int k = call_ints(c, plain ? "split_size" : "split_sizes", size, CKPT_MAX_PARTS);
        for (int i = 0; i < part && i < k; i++)
            s.begin += size[i];
        s.end = s.begin + (part < k ? size[part] : 0);
        return s;
    }
    s.begin = part * each;
    s.end = s.begin + each < n ? s.begin + each : n;
    return s;
}

static struct tensor op_split(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    return take(c, a, range_of_split(c, &a, part));
}

static struct tensor put_split(struct call *c, int part, struct tensor whole, struct tensor view)
{
    return put(c, whole, range_of_split(c, &whole, part), view);
}

/* ---- a part replaced ------------------------------------------------------------------------- */
/* What functional programs have instead of writes to a part. */

static struct tensor op_slice_scatter(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    return put_slice(c, part, a, math_cast(c->r, call_tensor(c, "src"), c->dtype));
}

static struct tensor op_select_scatter(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    return put_select(c, part, a, math_cast(c->r, call_tensor(c, "src"), c->dtype));
}

/* ---- the same values ------------------------------------------------------------------------- */

static struct tensor op_same(struct call *c, int part)
{
    (void)part;
    return call_tensor(c, "self");
}

static struct tensor op_detach(struct call *c, int part)
{
    struct tensor a = call_tensor(c, "self");

    (void)part;
    if (a.constant || c->r->failed || !pt2_is_float(a.dtype))
        return a;
    return tensor_of(c->r, a.dtype, ckpt_stop_gradient(c->r->t, a.x));
}

/* Casts: to another dtype they copy, and where they are asked to. */
static struct tensor op_cast(struct call *c, int part)
{
    struct tensor y;

    (void)part;
    if (record_narrow(c, &y))
        return y;
    return math_cast(c->r, call_tensor(c, "self"), c->dtype);
}

static bool cast_copies(const struct pt2_node *n, const struct pt2_tensor *self,
                        const struct pt2_tensor *result)
{
    const struct pt2_arg *copy = pt2_arg_find(n, "copy");

    return self->dtype != result->dtype || (copy && copy->kind == ARG_BOOL && copy->b);
}

#define VIEW(name, record, put)                                                                    \
    {                                                                                              \
        "aten." name, record, put, NULL, false                                                     \
    }
#define MAY_COPY(name, record, put, how)                                                           \
    {                                                                                              \
        "aten." name, record, put, how, false                                                      \
    }

const struct op ops_view[] = {
    VIEW("view.default", op_view, put_reshape),
    VIEW("_unsafe_view.default", op_view, put_reshape),
    VIEW("view_as.default", op_view_as, put_reshape),
    MAY_COPY("reshape.default", op_reshape, put_reshape, reshape_copies),
    MAY_COPY("reshape_as.default", op_view_as, put_reshape, reshape_copies),
    MAY_COPY("flatten.using_ints", op_flatten, put_reshape, reshape_copies),
    MAY_COPY("contiguous.default", op_same, put_same, is_scattered),
    VIEW("unflatten.int", op_unflatten, put_reshape),
    VIEW("unsqueeze.default", op_unsqueeze, put_reshape),
    VIEW("squeeze.dim", op_squeeze, put_reshape),
    VIEW("squeeze.dims", op_squeeze, put_reshape),
    VIEW("squeeze.default", op_squeeze, put_reshape),
    VIEW("permute.default", op_permute, put_permute),
    VIEW("transpose.int", op_swap, put_swap),
    VIEW("transpose.default", op_swap, put_swap), /* transpose_ */
    VIEW("swapaxes.default", op_swap, put_swap),
    VIEW("swapdims.default", op_swap, put_swap),
    VIEW("t.default", op_swap, put_swap),
    VIEW("numpy_T.default", op_swap, put_swap),
    VIEW("mT.default", op_swap, put_swap),
    VIEW("mH.default", op_swap, put_swap),
    VIEW("matrix_H.default", op_swap, put_swap),
    VIEW("adjoint.default", op_swap, put_swap),
    VIEW("movedim.int", op_movedim, put_movedim),
    VIEW("movedim.intlist", op_movedim, put_movedim),
    VIEW("moveaxis.int", op_movedim, put_movedim),
    VIEW("moveaxis.intlist", op_movedim, put_movedim),
    VIEW("expand.default", op_expand, put_expand),
    VIEW("broadcast_to.default", op_expand, put_expand),
    VIEW("expand_as.default", op_expand_as, put_expand),
    VIEW("slice.Tensor", op_slice, put_slice),
    VIEW("narrow.default", op_narrow, put_narrow),
    VIEW("select.int", op_select, put_select),
    VIEW("unbind.int", op_unbind, put_unbind),
    VIEW("chunk.default", op_split, put_split),
    VIEW("split.Tensor", op_split, put_split),
    VIEW("split.sizes", op_split, put_split),
    VIEW("split_with_sizes.default", op_split, put_split),
    VIEW("unsafe_split.Tensor", op_split, put_split),
    VIEW("unsafe_chunk.default", op_split, put_split),
    VIEW("tensor_split.sections", op_split, put_split),
    VIEW("tensor_split.indices", op_split, put_split),
    VIEW("positive.default", op_same, put_same),
    VIEW("slice_scatter.default", op_slice_scatter, NULL),
    VIEW("select_scatter.default", op_select_scatter, NULL),
    VIEW("alias.default", op_same, put_same),
    VIEW("detach.default", op_detach, put_same),
    VIEW("clone.default", op_same, NULL),
    VIEW("lift_fresh_copy.default", op_same, NULL),
    VIEW("_to_copy.default", op_cast, NULL),
    MAY_COPY("to.dtype", op_cast, put_same, cast_copies),
    MAY_COPY("to.dtype_layout", op_cast, put_same, cast_copies),
    MAY_COPY("to.device", op_cast, put_same, cast_copies),
    MAY_COPY("to.other", op_cast, put_same, cast_copies),
    MAY_COPY("type_as.default", op_cast, put_same, cast_copies),
    {NULL, NULL, NULL, NULL, false},
};
