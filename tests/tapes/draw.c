/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws a recording: some leaves, then patterns that models and gradients have (loops over the
 * parts of a split, residuals, norms written out, many uses of one value), then a loss that reads
 * every value that nothing else reads.
 */
#include <string.h>
#include "recording.h"

enum { USUAL = 768, TRIES = 8 };

struct draw {
    struct recording *r;
    uint64_t state;
    int64_t size[3]; /* axes of this recording; the first is that of the batch */
    int64_t most;    /* elements of a value */
    enum ckpt_dtype dtype;
    bool full; /* no room for more calls */
};

static uint64_t next(struct draw *d)
{
    uint64_t x = d->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int64_t below(struct draw *d, int64_t n)
{
    return (int64_t)(next(d) % (uint64_t)n);
}

static bool chance(struct draw *d, int percent)
{
    return below(d, 100) < percent;
}

static const struct value *value(const struct draw *d, int x)
{
    return &d->r->value[x];
}

static int64_t last(const struct value *v)
{
    return v->ndim ? v->shape[v->ndim - 1] : 1;
}

/* ---- calls -----------------------------------------------------------------------------------*/

/* Appends a call.  Returns its first result, or -1 if it does not fit. */
static int emit(struct draw *d, struct call c)
{
    struct recording *r = d->r;
    if (r->n_calls == MAX_CALLS || r->n_values + MAX_OUT > MAX_VALUES) {
        d->full = true;
        return -1;
    }
    for (int k = 0; k < c.n_in; k++)
        if (c.in[k] < -1 || (c.in[k] < 0 && k != 2))
            return -1;
    c.n_out = c.n_out ? c.n_out : 1;
    if (!c.a && (c.kind == CALL_PARAM || c.kind == CALL_INPUT))
        c.a = 1;
    c.seed = r->n_calls + 1;
    if (!recording_infer(r, &c) || value_numel(&r->value[c.out]) > d->most)
        return -1;
    r->call[r->n_calls++] = c;
    r->n_values += c.n_out;
    return c.out;
}

static int emit1(struct draw *d, enum call_kind kind, int x)
{
    return emit(d, (struct call){.kind = kind, .n_in = 1, .in = {x}});
}

static int emit2(struct draw *d, enum call_kind kind, int x, int y)
{
    return emit(d, (struct call){.kind = kind, .n_in = 2, .in = {x, y}});
}

static int emit_axis(struct draw *d, enum call_kind kind, int x, int axis)
{
    return emit(d, (struct call){.kind = kind, .n_in = 1, .in = {x}, .axis = axis});
}

static int emit_mask(struct draw *d, enum call_kind kind, int x, unsigned mask)
{
    return emit(d, (struct call){.kind = kind, .n_in = 1, .in = {x}, .mask = mask});
}

static int emit_shape(struct draw *d, enum call_kind kind, int x, int ndim, const int64_t *shape)
{
    struct value *v = &d->r->value[d->r->n_values];
    if (ndim > MAX_RANK)
        return -1;
    *v = (struct value){.dtype = value(d, x)->dtype, .ndim = ndim};
    memcpy(v->shape, shape, (size_t)ndim * sizeof *shape);
    return emit1(d, kind, x);
}

static int leaf(struct draw *d, enum call_kind kind, enum ckpt_dtype dtype, int ndim,
                const int64_t *shape, float scale)
{
    struct value *v = &d->r->value[d->r->n_values];
    *v = (struct value){.dtype = dtype, .ndim = ndim};
    memcpy(v->shape, shape, (size_t)ndim * sizeof *shape);
    return emit(d, (struct call){.kind = kind, .a = scale});
}

/* A parameter; often one that was used before. */
static int param(struct draw *d, enum ckpt_dtype dtype, int ndim, const int64_t *shape, float scale)
{
    const bool shared = chance(d, 40);
    for (int i = 0; i < d->r->n_calls && shared; i++) {
        const struct call *c = &d->r->call[i];
        const struct value *v = value(d, c->out);
        if (c->kind == CALL_PARAM && v->dtype == dtype && v->ndim == ndim &&
            !memcmp(v->shape, shape, (size_t)ndim * sizeof *shape))
            return c->out;
    }
    return leaf(d, CALL_PARAM, dtype, ndim, shape, scale);
}

/* A parameter that broadcasts with x: axes of size 1, leading ones left out. */
static int broadcast_param(struct draw *d, int x, bool same_dtype)
{
    const struct value v = *value(d, x);
    const int skip = v.ndim ? (int)below(d, v.ndim + 1) % 3 : 0;
    int64_t shape[MAX_RANK];
    int n = 0;
    for (int k = skip; k < v.ndim; k++)
        shape[n++] = chance(d, 30) ? 1 : v.shape[k];
    return param(d, same_dtype || chance(d, 80) ? v.dtype : CKPT_F32, n, shape, 1);
}

/* A value, mostly one of the last. */
static int pick(struct draw *d)
{
    const int n = d->r->n_values;
    if (chance(d, 60))
        return n - 1 - (int)below(d, n < 4 ? n : 4);
    return (int)below(d, n);
}

static int any_axis(struct draw *d, int x)
{
    return value(d, x)->ndim ? (int)below(d, value(d, x)->ndim) : -1;
}

static unsigned any_mask(struct draw *d, int x)
{
    const int ndim = value(d, x)->ndim;
    if (!ndim)
        return 0;
    if (chance(d, 60)) /* the last axes */
        return ((1u << ndim) - 1) & ~((1u << below(d, ndim)) - 1);
    return 1 + (unsigned)below(d, (1 << ndim) - 1);
}

/* ---- functions of one value ------------------------------------------------------------------*/

static int any_unary(struct draw *d, int x)
{
    if (chance(d, 20))
        return emit(d, (struct call){.kind = CALL_AFFINE,
                                     .n_in = 1,
                                     .in = {x},
                                     .a = (float)(1 + below(d, 8)) / 4,
                                     .b = (float)(below(d, 9) - 4) / 8});
    return emit(
        d, (struct call){
               .kind = CALL_UNARY, .n_in = 1, .in = {x}, .unary = (enum unary)below(d, UNARIES)});
}

static int with_param(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_ADD, CALL_SUB, CALL_MUL, CALL_MUL, CALL_MAXIMUM};
    const int w = broadcast_param(d, x, false);
    return w < 0 ? -1 : emit2(d, kinds[below(d, 5)], x, w);
}

/* a / (1 + b^2) */
static int safe_quotient(struct draw *d, int a, int b)
{
    const int square = emit2(d, CALL_MUL, b, b);
    if (square < 0)
        return -1;
    const int one =
        emit(d, (struct call){.kind = CALL_AFFINE, .n_in = 1, .in = {square}, .a = 1.f, .b = 1.f});
    return one < 0 ? -1 : emit2(d, CALL_DIV, a, one);
}

static int any_sum(struct draw *d, int x)
{
    static const enum call_kind kinds[] = {CALL_MEAN, CALL_MEAN, CALL_SUM, CALL_LOGSUMEXP,
                                           CALL_AMAX};
    return emit_mask(d, kinds[below(d, 5)], x, any_mask(d, x));
}

/* A value and a sum of its own rows: a norm or a softmax, written out. */
static int with_rows(struct draw *d, int x)
{
    const int ndim = value(d, x)->ndim;
    if (!ndim)
        return -1;
    const unsigned mask = chance(d, 75) ? 1u << (ndim - 1) : any_mask(d, x);
    const int y = chance(d, 50) ? any_unary(d, x) : x;
    const int sum = y < 0 ? -1 : emit_mask(d, chance(d, 70) ? CALL_MEAN : CALL_SUM, y, mask);
    if (sum < 0)
        return -1;
    const int z = chance(d, 40) ? any_unary(d, sum) : sum;
    if (z < 0)
        return -1;
    return chance(d, 40) ? safe_quotient(d, x, z)
                         : emit2(d, chance(d, 50) ? CALL_SUB : CALL_MUL, x, z);
}

/* Elements of x times a vector of a new last axis, summed over it: a row per element. */
static int over_rows(struct draw *d, int x)
{
    static const int64_t lengths[] = {2, 3, 8, 16, 33, 40};
    struct value v = *value(d, x);
    const int64_t length = lengths[below(d, 6)];
    int y = x;
    if (last(&v) != 1 || !v.ndim) {
        v.shape[v.ndim < MAX_RANK ? v.ndim : 0] = 1;
        y = emit_shape(d, CALL_RESHAPE, x, v.ndim + 1, v.shape);
    }
    const int w = param(d, v.dtype, 1, &length, 0.125f);
    const int64_t most = d->most;
    if (y < 0 || w < 0)
        return -1;
    d->most = MAX_NUMEL;
    const int f = chance(d, 60) ? any_unary(d, y) : y;
    int z = f < 0 ? -1 : emit2(d, chance(d, 80) ? CALL_MUL : CALL_ADD, f, w);
    if (z >= 0 && chance(d, 30))
        z = any_unary(d, z);
    if (z >= 0)
        z = emit_mask(d, chance(d, 50) ? CALL_SUM : CALL_MEAN, z, 1u << (value(d, z)->ndim - 1));
    d->most = most;
    return z >= 0 && chance(d, 70) ? any_unary(d, z) : z;
}

static int layer(struct draw *d, int x)
{
    static const int64_t widths[] = {1, 3, 8, 16, 17, 32};
    const struct value v = *value(d, x);
    const int64_t w_shape[] = {chance(d, 40) ? last(&v) : widths[below(d, 6)], last(&v)};
    if (!v.ndim || last(&v) > 64)
        return -1;
    const int w = param(d, v.dtype, 2, w_shape, 0.25f);
    const int b = chance(d, 60) ? param(d, v.dtype, 1, w_shape, 1) : -1;
    return w < 0 ? -1 : emit(d, (struct call){.kind = CALL_LINEAR, .n_in = 3, .in = {x, w, b}});
}

static int convolution(struct draw *d, int x)
{
    const struct value v = *value(d, x);
    if (v.ndim != 3 || v.shape[2] > 24)
        return -1;
    const int64_t shape[] = {1 + below(d, 8), 1 + below(d, 3), v.shape[2]};
    const int w = param(d, v.dtype, 3, shape, 0.25f);
    const int b = chance(d, 50) ? param(d, v.dtype, 1, shape, 1) : -1;
    return w < 0 ? -1
                 : emit(d, (struct call){.kind = CALL_CONV,
                                         .n_in = 3,
                                         .in = {x, w, b},
                                         .begin = below(d, shape[1])});
}

static int any_norm(struct draw *d, int x)
{
    const struct value v = *value(d, x);
    const int64_t n = last(&v), how = below(d, 4);
    int64_t shape[MAX_RANK];
    if (!v.ndim || n < 2)
        return -1;
    if (how == 3) { /* modulate, gated residual */
        for (int k = 0; k < v.ndim; k++)
            shape[k] = k + 1 < v.ndim && chance(d, 60) ? 1 : v.shape[k];
        const int a = param(d, v.dtype, v.ndim, shape, 0.5f);
        const int b = chance(d, 50) ? param(d, v.dtype, v.ndim, v.shape, 1) : -1;
        if (a < 0)
            return -1;
        return b < 0 ? emit(d, (struct call){.kind = CALL_MODULATE, .n_in = 3, .in = {x, a, a}})
                     : emit(d, (struct call){.kind = CALL_GATED, .n_in = 3, .in = {x, a, b}});
    }
    const int w = param(d, v.dtype, 1, &n, 1),
              b = chance(d, 60) || how == 2 ? param(d, v.dtype, 1, &n, 1) : -1;
    if (w < 0 || (how == 2 && b < 0))
        return -1;
    if (how == 1)
        return emit2(d, CALL_RMS_NORM, x, w);
    return emit(d, (struct call){.kind = how ? CALL_GROUP_NORM : CALL_LAYER_NORM,
                                 .n_in = 3,
                                 .in = {x, w, b},
                                 .begin = n % 2 ? 1 : 2,
                                 .flag = {chance(d, 50)}});
}

static int product(struct draw *d, int x)
{
    const struct value v = *value(d, x);
    if (v.ndim < 2)
        return -1;
    struct call c = {.kind = CALL_MATMUL, .n_in = 2, .in = {x, x}};
    c.flag[0] = chance(d, 40);
    c.flag[1] = chance(d, 50);
    if (chance(d, 30)) { /* x times itself, transposed once */
        c.flag[1] = !c.flag[0];
    } else {
        const int64_t inner = v.shape[v.ndim - (c.flag[0] ? 2 : 1)], cols = 1 + below(d, 12);
        int64_t shape[MAX_RANK];
        const int n = chance(d, 50) ? v.ndim : 2;
        for (int k = 0; k < n - 2; k++)
            shape[k] = chance(d, 50) ? 1 : v.shape[k];
        shape[n - 2] = c.flag[1] ? cols : inner;
        shape[n - 1] = c.flag[1] ? inner : cols;
        c.in[1] = param(d, v.dtype, n, shape, 0.25f);
        if (c.in[1] < 0 || inner > 64)
            return -1;
    }
    return emit(d, c);
}

static int any_view(struct draw *d, int x)
{
    const struct value v = *value(d, x);
    const int axis = any_axis(d, x);
    struct call c = {.kind = CALL_SLICE, .n_in = 1, .in = {x}, .axis = axis};
    int64_t shape[MAX_RANK];
    if (axis < 0)
        return -1;
    const int64_t size = v.shape[axis];
    switch (below(d, 7)) {
    case 0:
        c.begin = below(d, size);
        c.end = c.begin + 1 + below(d, size - c.begin);
        return emit(d, c);
    case 1:
        c.kind = CALL_PERMUTE;
        for (int k = 0; k < v.ndim; k++)
            c.axes[k] = k;
        for (int k = v.ndim - 1; k > 0; k--) {
            const int other = (int)below(d, k + 1), axis_k = c.axes[k];
            c.axes[k] = c.axes[other];
            c.axes[other] = axis_k;
        }
        return emit(d, c);
    case 2: /* an axis more, or two joined */
        memcpy(shape, v.shape, sizeof shape);
        if (v.ndim > 1 && chance(d, 50)) {
            const int k = (int)below(d, v.ndim - 1);
            shape[k] *= shape[k + 1];
            memmove(shape + k + 1, shape + k + 2, (size_t)(v.ndim - k - 2) * sizeof *shape);
            return emit_shape(d, CALL_RESHAPE, x, v.ndim - 1, shape);
        }
        if (v.ndim == MAX_RANK)
            return -1;
        memmove(shape + axis + 1, shape + axis, (size_t)(v.ndim - axis) * sizeof *shape);
        shape[axis] = size % 2 ? 1 : size / 2;
        shape[axis + 1] = size / shape[axis];
        return emit_shape(d, CALL_RESHAPE, x, v.ndim + 1, shape);
    case 3:
        memcpy(shape, v.shape, sizeof shape);
        for (int k = 0; k < v.ndim; k++)
            shape[k] = shape[k] == 1 ? 1 + below(d, 4) : shape[k];
        return emit_shape(d, CALL_EXPAND, x, v.ndim, shape);
    case 4:
        c.kind = CALL_PAD;
        c.begin = below(d, 3);
        c.end = below(d, 3);
        return emit(d, c);
    case 5:
        return emit_axis(d, CALL_FLIP, x, axis);
    default:
        c.kind = CALL_ROWS;
        c.end = 1 + below(d, size + 2);
        return emit(d, c);
    }
}

/* One function of x alone, which draws the same for values of one shape. */
static int function_of(struct draw *d, int x)
{
    const int64_t how = below(d, 100);
    if (how < 26)
        return any_unary(d, x);
    if (how < 42)
        return with_param(d, x);
    if (how < 52)
        return with_rows(d, x);
    if (how < 62)
        return over_rows(d, x);
    if (how < 67)
        return any_sum(d, x);
    if (how < 75)
        return layer(d, x);
    if (how < 81)
        return any_norm(d, x);
    if (how < 84)
        return emit_axis(d, chance(d, 50) ? CALL_SOFTMAX : CALL_CUMSUM, x, any_axis(d, x));
    if (how < 88)
        return product(d, x);
    if (how < 91)
        return convolution(d, x);
    if (how < 93)
        return emit1(d, CALL_CAST, x);
    return any_view(d, x);
}

/* A few of them in a row; the last value that worked. */
static int chain(struct draw *d, int x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int y = function_of(d, x);
        x = y < 0 ? x : y;
    }
    return x;
}

/* ---- patterns --------------------------------------------------------------------------------*/

static int joined(struct draw *d, int n, const int *x, int axis)
{
    struct call c = {.kind = CALL_CONCAT, .n_in = n, .axis = axis};
    memcpy(c.in, x, (size_t)n * sizeof *x);
    const int y = emit(d, c);
    if (y >= 0)
        return y;
    int sum = x[0];
    for (int i = 1; i < n && sum >= 0; i++)
        sum = emit2(d, CALL_ADD, sum, x[i]);
    return sum;
}

/* The same functions of all parts of a split, joined or added. */
static int loop(struct draw *d, int x)
{
    const int axis = any_axis(d, x);
    const int64_t size = axis < 0 ? 1 : value(d, x)->shape[axis];
    int n = 2 + (int)below(d, MAX_OUT - 1), part[MAX_OUT];
    while (n > 1 && size % n)
        n--;
    if (n < 2)
        return -1;
    struct call c = {.kind = CALL_SPLIT, .n_in = 1, .in = {x}, .n_out = n, .axis = axis};
    const int first = emit(d, c);
    if (first < 0)
        return -1;
    const uint64_t state = d->state;
    const int64_t length = 1 + (int64_t)(state % 3);
    const bool joins = state / 3 % 100 < 75, skips = state / 300 % 100 < 20;
    for (int i = 0; i < n; i++) {
        d->state = state;
        part[i] = skips && i % 2 ? first + i : chain(d, first + i, length);
    }
    return joined(d, n, part, joins && axis < value(d, part[0])->ndim ? axis : -1);
}

/* Slices of one value, with gaps or overlaps, each with its own function. */
static int slices(struct draw *d, int x)
{
    const int axis = any_axis(d, x), n = 2 + (int)below(d, 4);
    int part[MAX_OUT], count = 0;
    for (int i = 0; i < n && axis >= 0; i++) {
        const int64_t size = value(d, x)->shape[axis], width = size / n ? size / n : 1;
        const int64_t begin = chance(d, 80) ? i * width : below(d, size);
        struct call c = {.kind = CALL_SLICE, .n_in = 1, .in = {x}, .axis = axis, .begin = begin};
        c.end = begin + width < size ? begin + width : size;
        const int y = emit(d, c);
        if (y >= 0)
            part[count++] = chance(d, 70) ? any_unary(d, y) : y;
        if (count && part[count - 1] < 0)
            return -1;
    }
    return count ? joined(d, count, part, axis) : -1;
}

/* Many uses of one value: its gradient is a sum. */
static int uses(struct draw *d, int x)
{
    const int64_t n = 2 + below(d, chance(d, 30) ? 9 : 3);
    int sum = chance(d, 50) ? x : -1;
    for (int64_t i = 0; i < n; i++) {
        const int y = function_of(d, x);
        if (y < 0)
            continue;
        const int together = sum < 0 ? y : emit2(d, CALL_ADD, sum, y);
        sum = together < 0 ? y : together;
    }
    return sum;
}

/* x + layers of a norm of x. */
static int residual(struct draw *d, int x)
{
    const int norm = any_norm(d, x), up = layer(d, norm < 0 ? x : norm);
    if (up < 0)
        return -1;
    const int act = any_unary(d, up), down = layer(d, act < 0 ? up : act);
    return down < 0 ? up : emit2(d, CALL_ADD, x, down);
}

/* softmax(q k) v, with projections of one value. */
static int attention(struct draw *d, int x)
{
    const struct value v = *value(d, x);
    if (v.ndim < 2 || v.ndim > 3 || last(&v) > 32)
        return -1;
    const int q = layer(d, x), k = q < 0 ? -1 : any_unary(d, x);
    if (k < 0)
        return -1;
    const int64_t w_shape[] = {last(value(d, q)), last(&v)};
    const int w = param(d, v.dtype, 2, w_shape, 0.25f);
    const int key =
        w < 0 ? -1 : emit(d, (struct call){.kind = CALL_LINEAR, .n_in = 3, .in = {k, w, -1}});
    const int scores =
        key < 0
            ? -1
            : emit(d, (struct call){
                          .kind = CALL_MATMUL, .n_in = 2, .in = {q, key}, .flag = {false, true}});
    const int p = scores < 0 ? -1 : emit_axis(d, CALL_SOFTMAX, scores, v.ndim - 1);
    return p < 0 ? -1 : emit2(d, CALL_MATMUL, p, x);
}

static void two_values(struct draw *d)
{
    static const enum call_kind kinds[] = {CALL_ADD, CALL_MUL, CALL_SUB, CALL_MAXIMUM};
    const int x = pick(d);
    for (int i = 0; i < TRIES; i++) {
        const int y = pick(d);
        if (value(d, y)->dtype == value(d, x)->dtype && chance(d, 20) &&
            emit(d, (struct call){.kind = CALL_WHERE, .n_in = 4, .in = {x, y, x, y}}) >= 0)
            return;
        if (y != x && emit2(d, kinds[below(d, 4)], x, y) >= 0)
            return;
    }
}

static void pattern(struct draw *d)
{
    const int64_t how = below(d, 100);
    const int x = pick(d);
    if (how < 24)
        loop(d, x);
    else if (how < 34)
        slices(d, x);
    else if (how < 46)
        uses(d, x);
    else if (how < 54)
        residual(d, x);
    else if (how < 60)
        attention(d, x);
    else if (how < 72)
        two_values(d);
    else
        chain(d, x, 1 + below(d, 3));
}

/* ---- the loss --------------------------------------------------------------------------------*/

/* The cross entropy of x, sometimes with two sets of labels. */
static int cross_entropy(struct draw *d, int x)
{
    const int one = emit1(d, CALL_CROSS_ENTROPY, x);
    if (one < 0 || !chance(d, 30))
        return one;
    const int two = emit1(d, CALL_CROSS_ENTROPY, x);
    return two < 0 ? one : emit2(d, CALL_ADD, one, two);
}

static int term(struct draw *d, int x)
{
    const int logits = chance(d, 20) ? layer(d, x) : -1;
    x = logits < 0 ? x : logits;
    const struct value v = *value(d, x);
    if (v.ndim && last(&v) > 1 && chance(d, logits < 0 ? 25 : 80))
        return cross_entropy(d, x);
    if (v.ndim && chance(d, 20)) {
        const int w = param(d, v.dtype, v.ndim, v.shape, 1);
        return w < 0 || w == x ? -1 : emit2(d, CALL_MSE, x, w);
    }
    int y = emit(d, (struct call){.kind = CALL_UNARY, .n_in = 1, .in = {x}, .unary = UNARY_sin});
    if (y >= 0 && v.ndim)
        y = emit_mask(d, CALL_MEAN, y, (1u << v.ndim) - 1);
    if (y >= 0 && value(d, y)->dtype != CKPT_F32)
        y = emit1(d, CALL_CAST, y);
    return y < 0 || !v.ndim ? y : emit_shape(d, CALL_RESHAPE, y, 0, NULL);
}

static void mark_reads(const struct recording *r, bool *read)
{
    for (int i = 0; i < r->n_calls; i++)
        for (int k = 0; k < r->call[i].n_in; k++)
            if (r->call[i].in[k] >= 0)
                read[r->call[i].in[k]] = true;
}

static bool trains(const struct recording *r)
{
    bool reaches[MAX_VALUES], any = false;
    recording_reach(r, reaches);
    for (int i = 0; i < r->n_calls; i++)
        any |= r->call[i].kind == CALL_PARAM && reaches[r->call[i].out];
    return any;
}

/* A weighted sum of a term for every value that nothing reads. */
static bool finish(struct draw *d)
{
    bool read[MAX_VALUES] = {false};
    const int n = d->r->n_values;
    int loss = -1;
    mark_reads(d->r, read);
    d->most = MAX_NUMEL;
    for (int x = 0; x < n; x++) {
        if (read[x] && !chance(d, 5)) /* a few have another reader */
            continue;
        int y = term(d, x);
        if (y < 0)
            continue;
        if (chance(d, 30))
            y = emit(d, (struct call){.kind = CALL_AFFINE, .n_in = 1, .in = {y}, .a = 0.5f});
        loss = loss < 0 ? y : emit2(d, CALL_ADD, loss, y);
        if (loss < 0)
            return false;
    }
    d->r->loss = loss;
    return loss >= 0 && trains(d->r);
}

static void draw_leaves(struct draw *d)
{
    const int64_t n = 1 + below(d, 3);
    for (int64_t i = 0; i < n; i++) {
        int64_t shape[MAX_RANK] = {d->size[0], d->size[1], d->size[2], 1};
        const int ndim = 1 + (int)below(d, 4);
        if (ndim == 1)
            shape[0] = d->size[2];
        if (chance(d, 20))
            shape[below(d, ndim)] = 1;
        leaf(d, CALL_PARAM, d->dtype, ndim, shape, 1);
    }
    if (chance(d, 50)) {
        const int64_t shape[] = {d->size[0], d->size[1], d->size[2]};
        const int x = leaf(d, CALL_INPUT, d->dtype, 2 + (int)below(d, 2), shape, 1);
        if (x >= 0 && chance(d, 80)) /* so that a gradient passes */
            with_param(d, x);
    }
}

static void draw_settings(struct draw *d)
{
    static const int64_t sizes[] = {1, 2,  2,  3,  4,  4,  5,  6,  7, 8,
                                    8, 12, 16, 17, 31, 32, 33, 40, 64};
    struct recording *r = d->r;
    d->most = chance(d, 10) ? MAX_NUMEL : USUAL;
    d->dtype = chance(d, 50) ? CKPT_BF16 : CKPT_F32;
    d->size[0] = 1 + below(d, 4);
    d->size[1] = sizes[below(d, 14)];
    do
        d->size[2] = sizes[below(d, sizeof sizes / sizeof *sizes)];
    while (d->size[0] * d->size[1] * d->size[2] > d->most);
    r->n_micro = chance(d, 25) ? 2 : 1;
    r->adamw = chance(d, 50);
    r->bf16_gradient = chance(d, 30) && d->dtype == CKPT_BF16;
    r->verify = chance(d, 20);
    r->threads = chance(d, 20) ? 2 : 1;
}

void recording_draw(struct recording *r, int64_t seed)
{
    for (uint64_t again = 0;; again++) {
        struct draw d = {.r = r, .state = (uint64_t)seed * 0x100000001b3u + (again << 40)};
        memset(r, 0, sizeof *r);
        next(&d);
        draw_settings(&d);
        draw_leaves(&d);
        const int64_t patterns = 1 + below(&d, 6);
        for (int64_t i = 0; i < patterns && !d.full; i++)
            if (r->n_calls < MAX_CALLS * 2 / 3)
                pattern(&d);
        if (finish(&d))
            return;
    }
}
