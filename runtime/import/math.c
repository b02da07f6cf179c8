/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands are broadcast, brought to one dtype, and on the tape to one order of axes in memory:
 * that of the first operand with all axes.
 */
#include <math.h>
#include <string.h>
#include "import/math.h"
#include "import/views.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

struct shape {
    int n;
    int64_t size[TENSOR_AXES];
};

static struct shape broadcast(struct recording *r, int n, struct tensor *const *a)
{
    struct shape s = {.n = 0};

    for (int k = 0; k < n; k++)
        s.n = a[k]->ndim > s.n ? a[k]->ndim : s.n;
    for (int i = 0; i < s.n; i++)
        s.size[i] = 1;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < a[k]->ndim; i++) {
            int64_t *to = &s.size[i + s.n - a[k]->ndim];
            if (a[k]->shape[i] != 1 && *to != 1 && a[k]->shape[i] != *to)
                recording_fail(r, CKPT_ESHAPE, "sizes %lld and %lld of an axis do not fit",
                               (long long)*to, (long long)a[k]->shape[i]);
            *to = a[k]->shape[i] == 1 ? *to : a[k]->shape[i];
        }
    return s;
}

/* ---- constants ------------------------------------------------------------------------------- */

/* Operands and the result of a function of constants, expanded; axes along which all operands
 * repeat an element are computed once. */
struct fold {
    int n;
    struct tensor in[3], out;
    struct shape whole;
};

static void fold_begin(struct recording *r, struct fold *f, int n, struct tensor *const *a,
                       int dtype)
{
    struct shape small = f->whole = broadcast(r, n, a);

    f->n = n;
    for (int k = 0; k < n; k++)
        f->in[k] = view_expand(r, *a[k], small.n, small.size);
    for (int i = 0; i < small.n; i++) {
        bool repeats = true;
        for (int k = 0; k < n; k++)
            repeats = repeats && !f->in[k].stride[i];
        small.size[i] = repeats ? 1 : small.size[i];
    }
    for (int k = 0; k < n; k++)
        memcpy(f->in[k].shape, small.size, sizeof small.size);
    f->out = tensor_zeros(r, dtype, small.n, small.size);
}

static struct tensor fold_end(struct recording *r, struct fold *f)
{
    return view_expand(r, f->out, f->whole.n, f->whole.size);
}

/* A whole number as its dtype holds it. */
static int64_t whole_of(int dtype, int64_t i)
{
    switch (dtype) {
    case PT2_BOOL:
        return i != 0;
    case PT2_U8:
        return (uint8_t)i;
    case PT2_I8:
        return (int8_t)i;
    case PT2_I16:
        return (int16_t)i;
    case PT2_I32:
        return (int32_t)i;
    default:
        return i;
    }
}

static void set(struct tensor *a, int64_t at, double f, int64_t i)
{
    if (pt2_is_float(a->dtype))
        a->f[at] = tensor_round(a->dtype, f);
    else
        a->i[at] = whole_of(a->dtype, i);
}

static int64_t whole(double f)
{
    return f >= -9.2e18 && f <= 9.2e18 ? (int64_t)f : 0;
}

static struct tensor cast_constant(struct recording *r, struct tensor a, int dtype)
{
    struct fold f;
    const bool from_float = pt2_is_float(a.dtype);

    fold_begin(r, &f, 1, (struct tensor *const[]){&a}, dtype);
    const int64_t n = r->failed ? 0 : tensor_numel(&f.out);
    for (int64_t k = 0; k < n; k++) {
        const double x = tensor_f(&f.in[0], k);
        set(&f.out, k, x,
            dtype == PT2_BOOL ? x != 0
            : from_float      ? whole(x)
                              : tensor_i(&f.in[0], k));
    }
    return fold_end(r, &f);
}

/* ---- casts ----------------------------------------------------------------------------------- */

static ckpt_tensor truth(struct recording *r, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(r->t, x);

    return ckpt_ne(r->t, x, ckpt_full(r->t, 0.f, d.ndim < 0 ? CKPT_I32 : d.dtype, 0, NULL));
}

/* Whether values may lie outside whole numbers of 8 or 16 bits, which wrap in PyTorch. */
static bool narrows(int from, int dtype)
{
    return from != PT2_BOOL && dtype >= PT2_U8 && dtype <= PT2_I16 &&
           !(from >= PT2_U8 && from < dtype && dtype == PT2_I16);
}

/* The whole number modulo 2^8 or 2^16, from the least of the dtype on. */
static struct tensor cast_narrow(struct recording *r, struct tensor a, int dtype)
{
    const int64_t count = dtype == PT2_I16 ? 1 << 16 : 1 << 8;
    const int64_t below = dtype == PT2_U8 ? 0 : count / 2;
    struct tensor least = tensor_number(r, PT2_I64, 0, below);

    a = math_binary(r, BINARY_ADD, math_cast(r, a, PT2_I64), least, PT2_I64);
    a = math_binary(r, BINARY_REMAINDER, a, tensor_number(r, PT2_I64, 0, count), PT2_I64);
    a = math_binary(r, BINARY_SUB, a, least, PT2_I64);
    a.dtype = dtype;
    return a;
}

struct tensor math_cast(struct recording *r, struct tensor a, int dtype)
{
    if (a.dtype == dtype || r->failed)
        return a;
    if (a.constant)
        return cast_constant(r, a, dtype);
    struct tensor to = a;
    to.dtype = dtype;
    if (dtype == PT2_BOOL)
        return tensor_of(r, dtype, truth(r, a.x));
    if (narrows(a.dtype, dtype))
        return cast_narrow(r, a, dtype);
    if (!tape_has_dtype(dtype))
        recording_fail(r, CKPT_EFORMAT, "a tensor of %s cannot be recorded", pt2_dtype_name(dtype));
    if (r->failed || tape_dtype(a.dtype) == tape_dtype(dtype))
        return to;
    struct tensor plain = a;
    if (a.plain.id)
        plain.x = a.plain;
    to = tensor_of(r, dtype, ckpt_cast(r->t, plain.x, tape_dtype(dtype)));
    return a.plain.id ? view_permute(r, to, a.order) : to;
}

/* ---- operands on the tape -------------------------------------------------------------------- */

/* Up to three operands in one order of axes. */
struct operands {
    int n, ndim;
    ckpt_tensor x[3];
    int back[TENSOR_AXES];
};

static struct tensor on_tape(struct recording *r, struct tensor *a)
{
    struct tensor to = *a;

    to.x = tensor_record(r, a);
    to.constant = false;
    return to;
}

static int leader(int n, struct tensor *const *a, int ndim)
{
    for (int k = 0; k < n; k++)
        if (a[k]->ndim == ndim && !a[k]->constant)
            return k;
    return 0;
}

static struct operands operands_begin(struct recording *r, int n, struct tensor *const *a)
{
    struct operands o = {.n = n};
    int order[TENSOR_AXES];

    for (int k = 0; k < n; k++)
        o.ndim = a[k]->ndim > o.ndim ? a[k]->ndim : o.ndim;
    for (int i = 0; i < o.ndim; i++)
        order[i] = i;
    struct tensor *first = a[leader(n, a, o.ndim)];
    if (first->ndim == o.ndim)
        axes_in_memory(r, first, order);
    inverse_axes(o.ndim, order, o.back);
    bool same = true;
    for (int i = 0; i < o.ndim; i++)
        same = same && order[i] == i;
    for (int k = 0; k < n && !r->failed; k++) {
        struct tensor x = on_tape(r, a[k]);
        while (!same && x.ndim && x.ndim < o.ndim && !r->failed)
            x = view_unsqueeze(r, x, 0);
        o.x[k] = (same || !x.ndim ? x : view_permute(r, x, order)).x;
    }
    return o;
}

static struct tensor operands_end(struct recording *r, const struct operands *o, ckpt_tensor y,
                                  int dtype)
{
    if (r->failed)
        return tensor_zeros(r, dtype, 0, NULL);
    struct tensor a = tensor_of(r, dtype, y);
    return a.ndim == o->ndim ? view_permute(r, a, o->back) : a;
}

/* ---- functions of one element ---------------------------------------------------------------- */

static struct tensor unary_constant(struct recording *r, const struct unary *u, struct tensor a,
                                    int dtype)
{
    struct fold f;

    fold_begin(r, &f, 1, (struct tensor *const[]){&a}, dtype);
    const int64_t n = r->failed ? 0 : tensor_numel(&f.out);
    for (int64_t k = 0; k < n; k++) {
        const double y = u->value(tensor_f(&f.in[0], k));
        set(&f.out, k, y, whole(y));
    }
    return fold_end(r, &f);
}

struct tensor math_unary(struct recording *r, const struct unary *u, struct tensor a, int dtype)
{
    if (r->failed)
        return a;
    if (a.constant && u->value)
        return unary_constant(r, u, a, dtype);
    if (!pt2_is_float(a.dtype) && pt2_is_float(dtype))
        a = math_cast(r, a, dtype);
    struct operands o = operands_begin(r, 1, (struct tensor *const[]){&a});
    return operands_end(r, &o, r->failed ? CKPT_NONE : u->record(r->t, o.x[0]), dtype);
}

ckpt_tensor math_plain(struct recording *r, struct tensor *a)
{
    tensor_record(r, a);
    return a->plain.id ? a->plain : a->x;
}

struct tensor math_back(struct recording *r, const struct tensor *a, ckpt_tensor y)
{
    struct tensor out = r->failed ? *a : tensor_of(r, a->dtype, y);

    return a->plain.id && !r->failed ? view_permute(r, out, a->order) : out;
}

struct tensor math_affine(struct recording *r, struct tensor x, double a, double b)
{
    struct operands o = operands_begin(r, 1, (struct tensor *const[]){&x});

    return operands_end(
        r, &o, r->failed ? CKPT_NONE : ckpt_affine(r->t, o.x[0], (float)a, (float)b), x.dtype);
}

/* ---- functions of two elements --------------------------------------------------------------- */

static double floor_remainder(double x, double y)
{
    return x - floor(x / y) * y;
}

static double value_of_floats(enum binary f, double x, double y)
{
    switch (f) {
    case BINARY_ADD:
        return x + y;
    case BINARY_SUB:
        return x - y;
    case BINARY_MUL:
        return x * y;
    case BINARY_DIV:
        return x / y;
    case BINARY_FLOOR_DIV:
        return floor(x / y);
    case BINARY_REMAINDER:
        return floor_remainder(x, y);
    case BINARY_POW:
        return pow(x, y);
    case BINARY_MIN:
        return x < y || isnan(x) ? x : y;
    case BINARY_MAX:
        return x > y || isnan(x) ? x : y;
    case BINARY_EQ:
        return x == y;
    case BINARY_NE:
        return x != y;
    case BINARY_LT:
        return x < y;
    case BINARY_LE:
        return x <= y;
    case BINARY_GT:
        return x > y;
    case BINARY_GE:
        return x >= y;
    case BINARY_AND:
        return x != 0 && y != 0;
    case BINARY_OR:
        return x != 0 || y != 0;
    case BINARY_XOR:
        return (x != 0) != (y != 0);
    }
    return 0;
}

/* Whole numbers that a double cannot hold. */
static int64_t value_of_whole(enum binary f, int64_t x, int64_t y)
{
    const uint64_t a = (uint64_t)x, b = (uint64_t)y;
    const bool divides = y && !(x == INT64_MIN && y == -1);
    const int64_t quotient = divides ? x / y - (x % y && (x < 0) != (y < 0)) : 0;

    if (f == BINARY_ADD)
        return (int64_t)(a + b);
    if (f == BINARY_SUB)
        return (int64_t)(a - b);
    if (f == BINARY_MUL)
        return (int64_t)(a * b);
    if (f == BINARY_FLOOR_DIV)
        return quotient;
    if (f == BINARY_REMAINDER)
        return divides ? x - quotient * y : 0;
    if (f == BINARY_EQ || f == BINARY_NE)
        return (x == y) == (f == BINARY_EQ);
    if (f == BINARY_LT || f == BINARY_GE)
        return (x < y) == (f == BINARY_LT);
    if (f == BINARY_GT || f == BINARY_LE)
        return (x > y) == (f == BINARY_GT);
    if (f == BINARY_MIN || f == BINARY_MAX)
        return (x < y) == (f == BINARY_MIN) ? x : y;
    return whole(value_of_floats(f, (double)x, (double)y));
}

/* A number beside tensors of narrower floats counts in fp32, as PyTorch computes with it. */
static struct tensor narrow_number(struct recording *r, struct tensor a,
                                   const struct tensor *beside, int dtype)
{
    const bool wide = dtype == PT2_F64 || (dtype == PT2_BOOL && beside->dtype == PT2_F64);

    return a.dtype == PT2_F64 && !a.ndim && !wide ? tensor_number(r, PT2_F32, *a.f, 0) : a;
}

static struct tensor binary_constant(struct recording *r, enum binary code, struct tensor a,
                                     struct tensor b, int dtype)
{
    const struct tensor other = a;

    a = narrow_number(r, a, &b, dtype);
    b = narrow_number(r, b, &other, dtype);
    struct fold f;
    const bool exact = !pt2_is_float(a.dtype) && !pt2_is_float(b.dtype);
    const bool bits = dtype != PT2_BOOL && code >= BINARY_AND;

    fold_begin(r, &f, 2, (struct tensor *const[]){&a, &b}, dtype);
    const int64_t n = r->failed ? 0 : tensor_numel(&f.out);
    for (int64_t k = 0; k < n; k++) {
        const int64_t x = exact ? tensor_i(&f.in[0], k) : 0, y = exact ? tensor_i(&f.in[1], k) : 0;
        const double v = value_of_floats(code, exact ? (double)x : tensor_f(&f.in[0], k),
                                         exact ? (double)y : tensor_f(&f.in[1], k));
        const int64_t i = !exact ? whole(v) : value_of_whole(code, x, y);
        set(&f.out, k, v,
            !bits                ? i
            : code == BINARY_AND ? x & y
            : code == BINARY_OR  ? x | y
                                 : x ^ y);
    }
    return fold_end(r, &f);
}

static ckpt_tensor floor_div(struct recording *r, ckpt_tensor x, ckpt_tensor y, int dtype)
{
    ckpt_tensor q = ckpt_floor(
        r->t, ckpt_div(r->t, ckpt_cast(r->t, x, CKPT_F32), ckpt_cast(r->t, y, CKPT_F32)));

    return ckpt_cast(r->t, q, tape_dtype(dtype));
}

/* The largest magnitude of a constant of whole numbers, and 0 of other tensors. */
static int64_t largest_whole(const struct tensor *a)
{
    struct tensor one = *a;
    int64_t most = 0;

    if (!a->constant || pt2_is_float(a->dtype) || a->dtype == PT2_BOOL)
        return 0;
    for (int i = 0; i < a->ndim; i++)
        if (!one.stride[i])
            one.shape[i] = 1;
    const int64_t n = tensor_numel(&one);
    for (int64_t k = 0; k < n; k++) {
        const int64_t x = tensor_i(&one, k);
        const int64_t size = x < -INT64_MAX ? INT64_MAX : x < 0 ? -x : x;
        most = size > most ? size : most;
    }
    return most;
}

void math_check_whole(struct recording *r, const struct tensor *a, int64_t most)
{
    const int64_t have = largest_whole(a);

    if (have > most && !r->failed)
        recording_fail(
            r, CKPT_EFORMAT,
            "%lld in arithmetic of whole numbers of the step, which are exact up to 2^24",
            (long long)have);
}

typedef ckpt_tensor (*binary_call)(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);

static ckpt_tensor record_xor(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b)
{
    return ckpt_ne(t, ckpt_not(t, a), ckpt_not(t, b));
}

static ckpt_tensor record_binary(struct recording *r, enum binary f, ckpt_tensor x, ckpt_tensor y,
                                 int dtype)
{
    static const binary_call calls[] = {
        [BINARY_ADD] = ckpt_add,     [BINARY_SUB] = ckpt_sub, [BINARY_MUL] = ckpt_mul,
        [BINARY_DIV] = ckpt_div,     [BINARY_POW] = ckpt_pow, [BINARY_MIN] = ckpt_minimum,
        [BINARY_MAX] = ckpt_maximum, [BINARY_EQ] = ckpt_eq,   [BINARY_NE] = ckpt_ne,
        [BINARY_LT] = ckpt_lt,       [BINARY_LE] = ckpt_le,   [BINARY_GT] = ckpt_gt,
        [BINARY_GE] = ckpt_ge,       [BINARY_AND] = ckpt_and, [BINARY_OR] = ckpt_or,
        [BINARY_XOR] = record_xor};

    if (f == BINARY_FLOOR_DIV)
        return floor_div(r, x, y, dtype);
    if (f == BINARY_REMAINDER)
        return ckpt_sub(r->t, x, ckpt_mul(r->t, floor_div(r, x, y, dtype), y));
    return calls[f](r->t, x, y);
}

/* A sum or a product with a number is one op of one operand. */
static bool is_affine(enum binary f, const struct tensor *a, const struct tensor *b, int dtype)
{
    return f <= BINARY_DIV && pt2_is_float(dtype) && pt2_is_float(a->dtype) && b->constant &&
           !b->ndim && (f != BINARY_DIV || tensor_f(b, 0) != 0);
}

static struct tensor affine(struct recording *r, enum binary f, struct tensor a, double b,
                            bool flipped)
{
    if (f == BINARY_ADD)
        return math_affine(r, a, 1, b);
    if (f == BINARY_SUB)
        return flipped ? math_affine(r, a, -1, b) : math_affine(r, a, 1, -b);
    return math_affine(r, a, f == BINARY_MUL ? b : 1 / b, 0);
}

struct tensor math_times(struct recording *r, struct tensor a, double by)
{
    const int dtype = pt2_is_float(a.dtype) ? PT2_F64 : PT2_I64;

    if (by == 1)
        return a;
    return math_binary(r, BINARY_MUL, a, tensor_number(r, dtype, by, (int64_t)by), a.dtype);
}

ckpt_tensor math_check_below(struct recording *r, ckpt_tensor x, float end, enum ckpt_dtype dtype,
                             const char *what)
{
    const char *module = r->node ? r->node->module : "";
    const int64_t one = 1;
    ckpt_tensor limit = ckpt_full(r->t, end, CKPT_F32, 0, NULL);
    ckpt_tensor none = ckpt_full(r->t, 0.f, dtype, 1, &one);
    ckpt_tensor index = ckpt_neg(r->t, ckpt_ge(r->t, x, limit));

    ckpt_label(r->t, "%s%s%s", module, *module ? ", " : "", what);
    none = ckpt_index_select(r->t, none, 0, index);
    ckpt_label(r->t, "%s", module);
    return none;
}

/* A product of whole numbers of the step, which may not be exact. */
static ckpt_tensor check_product(struct recording *r, ckpt_tensor y)
{
    return ckpt_add(r->t, y,
                    math_check_below(r, ckpt_abs(r->t, y), MOST_WHOLE, CKPT_I32,
                                     "products of whole numbers, exact below 2^24"));
}

/* Whether a factor is at most 1 in size. */
static bool keeps_size(const struct tensor *a)
{
    return a->dtype == PT2_BOOL || (a->constant && largest_whole(a) <= 1);
}

/* 0 for truth values, 1 for whole numbers, 2 for floats. */
static int category(int dtype)
{
    return dtype == PT2_BOOL ? 0 : pt2_is_float(dtype) ? 2 : 1;
}

/* The dtype that operands of a comparison are promoted to: of the higher category; in one category
 * that of the operand with axes, or a dtype that holds both. */
static int common_dtype(const struct tensor *a, const struct tensor *b)
{
    if (category(a->dtype) != category(b->dtype))
        return category(a->dtype) > category(b->dtype) ? a->dtype : b->dtype;
    if (!a->ndim != !b->ndim || a->dtype == b->dtype)
        return a->ndim ? a->dtype : b->dtype;
    return category(a->dtype) == 1                      ? PT2_I64
           : a->dtype == PT2_F64 || b->dtype == PT2_F64 ? PT2_F64
                                                        : PT2_F32;
}

/* The dtype that both operands are promoted to. */
static int promoted_dtype(enum binary f, const struct tensor *a, const struct tensor *b, int dtype)
{
    return f >= BINARY_EQ && f < BINARY_AND ? common_dtype(a, b) : dtype;
}

/* Sums of truth values are those of or, products those of and. */
static enum binary function_of_truth(enum binary f)
{
    if (f == BINARY_ADD || f == BINARY_MAX)
        return BINARY_OR;
    return f == BINARY_MUL || f == BINARY_MIN ? BINARY_AND : f;
}

struct tensor math_binary(struct recording *r, enum binary f, struct tensor a, struct tensor b,
                          int dtype)
{
    if (r->failed)
        return a;
    f = dtype == PT2_BOOL ? function_of_truth(f) : f;
    if (a.constant && b.constant)
        return binary_constant(r, f, a, b, dtype);
    if (is_affine(f, &a, &b, dtype))
        return affine(r, f, math_cast(r, a, dtype), tensor_f(&b, 0), false);
    if (f != BINARY_DIV && is_affine(f, &b, &a, dtype))
        return affine(r, f, math_cast(r, b, dtype), tensor_f(&a, 0), true);
    const int promoted = promoted_dtype(f, &a, &b, dtype);
    if (!pt2_is_float(promoted)) {
        const int64_t most = f == BINARY_MUL ? MOST_FACTOR : MOST_WHOLE;
        math_check_whole(r, &a, most);
        math_check_whole(r, &b, most);
    }
    const bool grows =
        f == BINARY_MUL && !pt2_is_float(promoted) && !keeps_size(&a) && !keeps_size(&b);
    a = math_cast(r, a, promoted);
    b = math_cast(r, b, promoted);
    struct operands o = operands_begin(r, 2, (struct tensor *const[]){&a, &b});
    ckpt_tensor y = r->failed ? CKPT_NONE : record_binary(r, f, o.x[0], o.x[1], dtype);
    return operands_end(r, &o, grows && !r->failed ? check_product(r, y) : y, dtype);
}

/* ---- where ----------------------------------------------------------------------------------- */

static struct tensor where_constant(struct recording *r, struct tensor c, struct tensor a,
                                    struct tensor b, int dtype)
{
    struct fold f;

    fold_begin(r, &f, 3, (struct tensor *const[]){&c, &a, &b}, dtype);
    const int64_t n = r->failed ? 0 : tensor_numel(&f.out);
    for (int64_t k = 0; k < n; k++) {
        const struct tensor *from = &f.in[tensor_f(&f.in[0], k) != 0 ? 1 : 2];
        set(&f.out, k, tensor_f(from, k), tensor_i(from, k));
    }
    return fold_end(r, &f);
}

struct tensor math_where(struct recording *r, struct tensor cond, struct tensor a, struct tensor b,
                         int dtype)
{
    if (r->failed)
        return a;
    if (cond.constant && a.constant && b.constant)
        return where_constant(r, cond, a, b, dtype);
    math_check_whole(r, &a, MOST_WHOLE);
    math_check_whole(r, &b, MOST_WHOLE);
    a = math_cast(r, a, dtype);
    b = math_cast(r, b, dtype);
    struct operands o = operands_begin(r, 3, (struct tensor *const[]){&a, &b, &cond});
    return operands_end(r, &o, r->failed ? CKPT_NONE : ckpt_where(r->t, o.x[2], o.x[0], o.x[1]),
                        dtype);
}
