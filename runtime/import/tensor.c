/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "call.h"
#include "core/bf16.h"
#include "import/tensor.h"

static const char *place_of_node(const struct recording *r, char *to, size_t size)
{
    char place[400];

    snprintf(to, size, "%s", r->path);
    if (r->node) {
        pt2_node_place(r->node, place, sizeof place);
        snprintf(to, size, "%s: %s, %s", r->path, r->node->target, place);
    }
    return to;
}

void recording_fail(struct recording *r, int code, const char *fmt, ...)
{
    char text[CKPT_MESSAGE], place[CKPT_MESSAGE];
    va_list ap;

    va_start(ap, fmt);
    error_vset(text, sizeof text, code, fmt, ap);
    va_end(ap);
    if (!r->failed)
        ckpt_tape_fail(r->t, code, "%s: %s", place_of_node(r, place, sizeof place), text);
    r->failed = true;
}

void recording_enter(struct recording *r, const struct pt2_node *node)
{
    if (node && (!r->node || strcmp(r->node->module, node->module) != 0))
        ckpt_label(r->t, "%s", node->module);
    r->node = node;
}

enum ckpt_dtype tape_dtype(int dtype)
{
    return dtype == PT2_BF16 ? CKPT_BF16 : pt2_is_float(dtype) ? CKPT_F32 : CKPT_I32;
}

bool tape_has_dtype(int dtype)
{
    return (dtype >= PT2_U8 && dtype <= PT2_I64) || dtype == PT2_F32 || dtype == PT2_F64 ||
           dtype == PT2_BOOL || dtype == PT2_BF16;
}

int64_t tensor_numel(const struct tensor *a)
{
    int64_t n = 1;

    for (int i = 0; i < a->ndim; i++)
        n *= a->shape[i];
    return n;
}

int tensor_axis(struct recording *r, const struct tensor *a, int64_t axis)
{
    const int n = a->ndim ? a->ndim : 1;

    if (axis >= -n && axis < n)
        return (int)(axis < 0 ? axis + n : axis);
    recording_fail(r, CKPT_ESHAPE, "there is no axis %lld of %d", (long long)axis, a->ndim);
    return 0;
}

static void set_dense(struct tensor *a)
{
    int64_t n = 1;

    for (int i = a->ndim - 1; i >= 0; i--) {
        a->stride[i] = a->shape[i] == 1 ? 0 : n;
        n *= a->shape[i];
    }
}

struct tensor tensor_zeros(struct recording *r, int dtype, int ndim, const int64_t *shape)
{
    struct tensor a = {.dtype = dtype, .constant = true};

    if (ndim > TENSOR_AXES) {
        recording_fail(r, CKPT_ESHAPE, "a tensor has %d axes; at most %d can be recorded", ndim,
                       TENSOR_AXES);
        ndim = 0;
    }
    a.ndim = ndim;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        a.shape[i] = shape[i];
        if (shape[i] < 0 || __builtin_mul_overflow(n, shape[i], &n))
            n = -1; /* more than there is memory for */
        if (n < 0)
            break;
    }
    if (n < 0)
        recording_fail(r, CKPT_ESHAPE, "a constant has sizes that no memory holds");
    if (n < 0)
        a = (struct tensor){.dtype = dtype, .constant = true};
    set_dense(&a);
    a.i = heap_zeros(&r->heap, tensor_numel(&a), sizeof *a.i);
    if (!a.i) {
        recording_fail(r, CKPT_ENOMEM, "%s", error_get());
        a = (struct tensor){.dtype = dtype, .constant = true};
        static int64_t none;
        a.i = &none;
    }
    return a;
}

struct tensor tensor_triangle(struct recording *r, int64_t n, int64_t m, int64_t diagonal,
                              bool upper)
{
    struct tensor a = tensor_zeros(r, PT2_BOOL, 2, (int64_t[]){n, m});

    for (int64_t i = 0; i < n && !r->failed; i++)
        for (int64_t k = 0; k < m; k++)
            a.i[i * m + k] = upper ? k - i >= diagonal : k - i <= diagonal;
    return a;
}

struct tensor tensor_number(struct recording *r, int dtype, double f, int64_t i)
{
    struct tensor a = tensor_zeros(r, dtype, 0, NULL);

    if (r->failed)
        return a;
    if (pt2_is_float(dtype))
        *a.f = tensor_round(dtype, f);
    else
        *a.i = dtype == PT2_BOOL ? i != 0 : i;
    return a;
}

struct tensor tensor_of(struct recording *r, int dtype, ckpt_tensor x)
{
    struct tensor a = {.dtype = dtype, .x = x};
    const struct ckpt_desc d = ckpt_desc_of(r->t, x);

    if (d.ndim < 0) {
        char place[CKPT_MESSAGE];
        if (!r->failed) /* the tape has the sentence */
            ops_place(r->t, place_of_node(r, place, sizeof place));
        r->failed = true;
        return tensor_zeros(r, dtype, 0, NULL);
    }
    a.ndim = d.ndim;
    memcpy(a.shape, d.shape, sizeof a.shape);
    return a;
}

/* ---- elements -------------------------------------------------------------------------------- */

static int64_t place_of(const struct tensor *a, int64_t at)
{
    int64_t place = 0;

    for (int i = a->ndim - 1; i >= 0; i--) {
        if (a->shape[i] == 1)
            continue;
        place += at % a->shape[i] * a->stride[i];
        at /= a->shape[i];
    }
    return place;
}

double tensor_f(const struct tensor *a, int64_t at)
{
    const int64_t place = place_of(a, at);

    return pt2_is_float(a->dtype) ? a->f[place] : (double)a->i[place];
}

int64_t tensor_i(const struct tensor *a, int64_t at)
{
    const int64_t place = place_of(a, at);

    return pt2_is_float(a->dtype) ? (int64_t)a->f[place] : a->i[place];
}

/* 11 bits, from 2^-24 on; infinite above the largest number. */
static double round_half(double f)
{
    int exponent;

    if (f == 0 || !isfinite(f))
        return f;
    frexp(f, &exponent);
    const double unit = ldexp(1, (exponent > -13 ? exponent : -13) - 11);
    f = nearbyint(f / unit) * unit;
    return fabs(f) > 65504 ? copysign(INFINITY, f) : f;
}

double tensor_round(int dtype, double f)
{
    if (dtype == PT2_F64)
        return f;
    if (dtype == PT2_F16)
        return round_half(f);
    return dtype == PT2_BF16 ? bf16_load(bf16_round((float)f)) : (float)f;
}

struct tensor tensor_dense(struct recording *r, struct tensor a)
{
    struct tensor dense = a;

    set_dense(&dense);
    bool same = true;
    for (int i = 0; i < a.ndim; i++)
        same = same && (a.shape[i] == 1 || a.stride[i] == dense.stride[i]);
    if (same)
        return dense;
    dense = tensor_zeros(r, a.dtype, a.ndim, a.shape);
    const int64_t n = r->failed ? 0 : tensor_numel(&a);
    for (int64_t k = 0; k < n; k++)
        dense.i[k] = a.i[place_of(&a, k)];
    return dense;
}

/* ---- on the tape ----------------------------------------------------------------------------- */

static void *tape_values(struct recording *r, const struct tensor *a, int64_t n)
{
    float *to = heap_zeros(&r->heap, n, sizeof *to);
    int32_t *whole = (int32_t *)(void *)to;

    for (int64_t k = 0; to && k < n; k++) {
        if (pt2_is_float(a->dtype)) {
            to[k] = (float)a->f[k];
            continue;
        }
        if (a->i[k] > INT32_MAX || a->i[k] < INT32_MIN) {
            recording_fail(r, CKPT_EFORMAT, "the constant %lld is beyond 32 bits",
                           (long long)a->i[k]);
            return NULL;
        }
        whole[k] = (int32_t)a->i[k];
    }
    return to;
}

/* One element of a constant that repeats it along all axes. */
static bool is_uniform(const struct tensor *a)
{
    for (int i = 0; i < a->ndim; i++)
        if (a->stride[i])
            return false;
    return true;
}

/* Axes that repeat one element are 1 on the tape and expanded there. */
static ckpt_tensor record_constant(struct recording *r, const struct tensor *a)
{
    struct tensor small = *a;
    const bool is_float = pt2_is_float(a->dtype);

    for (int i = 0; i < a->ndim; i++)
        if (!a->stride[i])
            small.shape[i] = 1;
    if (is_uniform(a) && (is_float || llabs(*a->i) < 1 << 24))
        return ckpt_full(r->t, is_float ? (float)*a->f : (float)*a->i, tape_dtype(a->dtype),
                         a->ndim, a->shape);
    small = tensor_dense(r, small);
    void *values = tape_values(r, &small, tensor_numel(&small));
    if (!values || r->failed)
        return CKPT_NONE;
    ckpt_tensor x =
        ckpt_constant(r->t, NULL, is_float ? CKPT_F32 : CKPT_I32, small.ndim, small.shape, values);
    x = ckpt_cast(r->t, x, tape_dtype(a->dtype));
    return tensor_numel(&small) == tensor_numel(a) ? x : ckpt_expand(r->t, x, a->ndim, a->shape);
}

struct recorded {
    struct tensor a;
    struct recorded *before;
};

static bool is_same_constant(const struct tensor *a, const struct tensor *b)
{
    return a->i == b->i && a->dtype == b->dtype && a->ndim == b->ndim &&
           !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) &&
           !memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof a->stride[0]);
}

static ckpt_tensor find_constant(struct recording *r, const struct tensor *a)
{
    struct recorded *c = r->constants;

    while (c && !is_same_constant(&c->a, a))
        c = c->before;
    if (c)
        return c->a.x;
    c = heap_zeros(&r->heap, 1, sizeof *c);
    const ckpt_tensor x = record_constant(r, a);
    if (c) {
        c->a = *a;
        c->a.x = x;
        c->before = r->constants;
        r->constants = c;
    }
    return x;
}

ckpt_tensor tensor_record(struct recording *r, struct tensor *a)
{
    if (r->failed)
        return CKPT_NONE;
    if (!a->x.id && !tape_has_dtype(a->dtype))
        recording_fail(r, CKPT_EFORMAT, "a tensor of %s cannot be recorded",
                       pt2_dtype_name(a->dtype));
    else if (!tensor_numel(a))
        recording_fail(r, CKPT_ESHAPE, "a tensor without elements is read");
    else if (!a->x.id)
        a->x = find_constant(r, a);
    return a->x;
}
