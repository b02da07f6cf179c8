/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors and parameters with several uses, through views and through several ops: their gradients
 * add up.  Same harness as test_gradients.
 */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Applies a reference op to up to three arrays; the caller frees the result. */
static struct array apply(reference_op op, const struct op_attr *a, int n, const struct array **x)
{
    struct array in[4] = {{.ndim = -1}, {.ndim = -1}, {.ndim = -1}, {.ndim = -1}}, out;
    for (int i = 0; i < n; i++)
        in[i] = *x[i];
    op(in, &out, a);
    return out;
}

#define APPLY(op, attr, ...)                                                                       \
    apply((op), (attr), (int)(sizeof((const struct array *[]){__VA_ARGS__}) / sizeof(void *)),     \
          (const struct array *[]){__VA_ARGS__})

static void draw_matrix(struct op_case *c, struct rng *r, int trial)
{
    int64_t n = trial == TRIAL_TINY ? 1 : rng_range(r, 2, 7);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){n, n});
}

/* ---- x x + x -------------------------------------------------------------------------------- */

static ckpt_tensor record_three_uses(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_add(t, ckpt_mul(t, in[0], in[0]), in[0]);
}

static void ref_three_uses(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array square = APPLY(ref_mul, a, &in[0], &in[0]);
    *out = APPLY(ref_add, a, &square, &in[0]);
    array_free(&square);
}

/* ---- gelu(x) + silu(x) + layer_norm(x) + x: four gradients of several producers ------------- */

static void draw_rows(struct op_case *c, struct rng *r, int trial)
{
    int64_t rows = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 6);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){rows, rng_range(r, 3, 9)});
    c->attr.eps = (float)1e-6;
}

static ckpt_tensor record_fan_out(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor x = ckpt_affine(t, in[0], 0.5f, 0.f); /* an activation, not the parameter itself */
    ckpt_tensor sum = ckpt_add(t, ckpt_gelu_tanh(t, x), ckpt_silu(t, x));
    sum = ckpt_add(t, sum, ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, (float)c->attr.eps));
    return ckpt_add(t, sum, x);
}

static void ref_fan_out(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct op_attr half = {.a = 0.5};
    struct array x = APPLY(ref_affine, &half, &in[0]);
    struct array part[3] = {APPLY(ref_gelu, a, &x), APPLY(ref_silu, a, &x),
                            APPLY(ref_layer_norm, a, &x)};
    *out = x;
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < x.n; i++)
            out->x[i] += part[k].x[i];
        array_free(&part[k]);
    }
}

/* ---- one weight in two layers --------------------------------------------------------------- */

static void draw_shared_weight(struct op_case *c, struct rng *r, int trial)
{
    int64_t n = trial == TRIAL_TINY ? 1 : rng_range(r, 2, 7), m = rng_dim(r, 5);
    if (trial > TRIAL_LARGE) /* several chunks of rows are added to what is there */
        m = 700, n = 24;
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){m, n});
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){n, n});
    case_add(c, r, ROLE_PARAM, 1, &n);
}

static ckpt_tensor record_shared_weight(ckpt_tape *t, const ckpt_tensor *in,
                                        const struct op_case *c)
{
    (void)c;
    ckpt_tensor h = ckpt_silu(t, ckpt_linear(t, in[0], in[1], in[2]));
    return ckpt_linear(t, h, in[1], in[2]);
}

static void ref_shared_weight(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array y = APPLY(ref_linear, a, &in[0], &in[1], &in[2]);
    struct array h = APPLY(ref_silu, a, &y);
    *out = APPLY(ref_linear, a, &h, &in[1], &in[2]);
    array_free(&y);
    array_free(&h);
}

/* ---- a layer with a tensor added to it, its own input where that has the shape --------------- */

static void draw_layer_add(struct op_case *c, struct rng *r, int trial)
{
    int64_t n = trial == TRIAL_LARGE ? 96 : rng_dim(r, 6);
    int64_t m = trial == TRIAL_LARGE ? 130 : rng_dim(r, 6);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){m, n});
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){n, n});
    if (trial % 3 == 1)
        case_add_absent(c);
    else
        case_add(c, r, ROLE_PARAM, 1, &n);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){m, n});
}

static ckpt_tensor record_layer_add(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    ckpt_tensor y = ckpt_linear_add(t, in[0], in[1], in[2], in[0]);
    return ckpt_linear_add(t, ckpt_silu(t, y), in[1], in[2], in[3]);
}

static void ref_layer_add(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array y = APPLY(ref_linear, a, &in[0], &in[1], &in[2]);
    struct array x = APPLY(ref_add, a, &y, &in[0]), h = APPLY(ref_silu, a, &x);
    struct array z = APPLY(ref_linear, a, &h, &in[1], &in[2]);
    *out = APPLY(ref_add, a, &z, &in[3]);
    array_free(&y);
    array_free(&x);
    array_free(&h);
    array_free(&z);
}

/* ---- gelu behind a layer: alone, its gradient brings that of the bias along ------------------ */

/* Every other trial is beside another tensor: the gradient of GELU reads one with gaps. */
static void draw_layer(struct op_case *c, struct rng *r, int trial)
{
    int64_t n = trial == TRIAL_TINY ? 1 : rng_range(r, 2, 7), m = rng_dim(r, 5), k = rng_dim(r, 5);
    if (trial > TRIAL_LARGE) /* several chunks of rows, and more than one strip of columns */
        m = 700, n = 152, k = 3;
    c->attr.axis = trial % 2;
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){m, k});
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){n, k});
    case_add(c, r, ROLE_PARAM, 1, &n);
}

static ckpt_tensor record_layer(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor h = ckpt_gelu_tanh(t, ckpt_linear(t, in[0], in[1], in[2]));
    return c->attr.axis ? ckpt_concat(t, 1, 2, (ckpt_tensor[]){h, in[0]}) : h;
}

static void ref_layer(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array y = APPLY(ref_linear, a, &in[0], &in[1], &in[2]), h = APPLY(ref_gelu, a, &y);
    *out = a->axis ? APPLY(ref_concat, a, &h, &in[0]) : h;
    array_free(&y);
    if (a->axis)
        array_free(&h);
}

/* With another reader, the gradient of y is not GELU's alone; with another use, the bias has two
 * gradients. */
static ckpt_tensor record_shared_layer(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    ckpt_tensor y = ckpt_linear(t, in[0], in[1], in[2]);
    ckpt_tensor z = ckpt_gelu_tanh(t, ckpt_linear(t, in[0], in[1], in[2]));
    return ckpt_add(t, ckpt_add(t, ckpt_gelu_tanh(t, y), y), z);
}

static void ref_shared_layer(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array y = APPLY(ref_linear, a, &in[0], &in[1], &in[2]);
    struct array h = APPLY(ref_gelu, a, &y), twice = APPLY(ref_add, a, &h, &h);
    *out = APPLY(ref_add, a, &twice, &y);
    array_free(&y);
    array_free(&h);
    array_free(&twice);
}

/* ---- norms and gates behind a layer: their gradients bring that of its bias along ------------ */

static void add_layer(struct op_case *c, struct rng *r, int trial, int64_t *width)
{
    int64_t rows = trial == TRIAL_TINY ? 1 : rng_range(r, 2, 7), k = rng_dim(r, 4);
    *width = trial < TRIAL_LARGE ? rng_range(r, 3, 24) : trial % 2 ? 1544 : 72;
    if (trial >= TRIAL_LARGE)
        rows = trial % 2 ? 9 : 301;
    case_add(c, r, ROLE_PARAM, 3, (int64_t[]){2, rows, k});
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){*width, k});
    case_add(c, r, ROLE_PARAM, 1, width);
    c->attr.eps = 1e-2; /* a row of near equals has no steep gradient */
}

static void draw_norm_layer(struct op_case *c, struct rng *r, int trial)
{
    int64_t width;
    add_layer(c, r, trial, &width);
}

static void draw_affine_layer(struct op_case *c, struct rng *r, int trial)
{
    int64_t width;
    add_layer(c, r, trial, &width);
    for (int i = 0; i < 2; i++)
        case_add(c, r, ROLE_PARAM, 1, &width);
}

/* The rows of the vectors belong to one sample each, or to all. */
static void draw_modulated_layer(struct op_case *c, struct rng *r, int trial)
{
    int64_t width;
    add_layer(c, r, trial, &width);
    for (int i = 0; i < 2; i++)
        case_add(c, r, ROLE_PARAM, 3, (int64_t[]){trial % 3 ? 1 : 2, 1, width});
}

static ckpt_tensor layer_of(ckpt_tape *t, const ckpt_tensor *in)
{
    return ckpt_linear(t, in[0], in[1], in[2]);
}

static ckpt_tensor record_norm_layer(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_layer_norm(t, layer_of(t, in), CKPT_NONE, CKPT_NONE, (float)c->attr.eps);
}

static void ref_norm_layer(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array z = APPLY(ref_linear, a, &in[0], &in[1], &in[2]);
    *out = APPLY(ref_layer_norm, a, &z);
    array_free(&z);
}

/* The sum so far reaches z as the addend of its norm's gradient. */
static ckpt_tensor record_affine_layer(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor z = layer_of(t, in);
    return ckpt_add(t, z, ckpt_layer_norm(t, z, in[3], in[4], (float)c->attr.eps));
}

/* n w + b with n = layer_norm(z), plus z. */
static void ref_affine_layer(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array z = APPLY(ref_linear, a, &in[0], &in[1], &in[2]);
    struct array n = APPLY(ref_layer_norm, a, &z);
    for (int64_t i = 0; i < n.n; i++)
        n.x[i] = n.x[i] * in[3].x[array_broadcast(&n, &in[3], i)] +
                 in[4].x[array_broadcast(&n, &in[4], i)];
    *out = APPLY(ref_add, a, &z, &n);
    array_free(&z);
    array_free(&n);
}

static ckpt_tensor record_modulated_layer(ckpt_tape *t, const ckpt_tensor *in,
                                          const struct op_case *c)
{
    ckpt_tensor z = layer_of(t, in);
    return ckpt_add(t, z, ckpt_layer_norm_modulate(t, z, in[3], in[4], (float)c->attr.eps));
}

static void ref_modulated_layer(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array z = APPLY(ref_linear, a, &in[0], &in[1], &in[2]);
    struct array n = APPLY(ref_layer_norm_modulate, a, &z, &in[3], &in[4]);
    *out = APPLY(ref_add, a, &z, &n);
    array_free(&z);
    array_free(&n);
}

static ckpt_tensor record_rms_layer(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor z = layer_of(t, in);
    return ckpt_add(t, z, ckpt_rms_norm(t, z, in[3], (float)c->attr.eps));
}

static void ref_rms_layer(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array z = APPLY(ref_linear, a, &in[0], &in[1], &in[2]);
    struct array n = APPLY(ref_rms_norm, a, &z, &in[3]);
    *out = APPLY(ref_add, a, &z, &n);
    array_free(&z);
    array_free(&n);
}

/* Two uses of the parameters: the rule of the gate computes one gradient of the bias, a pass the
 * other. */
static ckpt_tensor record_gated_layer(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    ckpt_tensor z = layer_of(t, in);
    return ckpt_gated_residual(t, z, in[3], layer_of(t, in));
}

static void ref_gated_layer(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array z = APPLY(ref_linear, a, &in[0], &in[1], &in[2]);
    *out = APPLY(ref_gated_residual, a, &z, &in[3], &z);
    array_free(&z);
}

/* ---- x + transpose(x), and slices that overlap ---------------------------------------------- */

static ckpt_tensor record_transpose(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_mul(t, in[0], ckpt_permute(t, in[0], (int[]){1, 0}));
}

static void ref_transpose(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct op_attr swap = {.axes = {1, 0}};
    struct array turned = APPLY(ref_permute, &swap, &in[0]);
    *out = APPLY(ref_mul, a, &in[0], &turned);
    array_free(&turned);
}

static void draw_overlap(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[2] = {rng_range(r, 2, 6), rng_range(r, 1, 4)};
    case_add(c, r, ROLE_PARAM, 2, shape);
    c->attr.size[0] = shape[0];
    (void)trial;
}

static ckpt_tensor record_overlap(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    int64_t n = c->attr.size[0];
    ckpt_tensor x = ckpt_silu(t, in[0]);
    return ckpt_mul(t, ckpt_slice(t, x, 0, 0, n - 1), ckpt_slice(t, x, 0, 1, n));
}

static void ref_overlap(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct op_attr low = {.begin = 0, .end = a->size[0] - 1},
                   high = {.begin = 1, .end = a->size[0]};
    struct array x = APPLY(ref_silu, a, &in[0]);
    struct array first = APPLY(ref_slice, &low, &x), second = APPLY(ref_slice, &high, &x);
    *out = APPLY(ref_mul, a, &first, &second);
    array_free(&x);
    array_free(&first);
    array_free(&second);
}

/* ---- parts of a split, joined in another order and one of them twice ------------------------ */

static void draw_reorder(struct op_case *c, struct rng *r, int trial)
{
    int64_t part = rng_dim(r, 3), rows = rng_dim(r, 4);
    case_add(c, r, ROLE_PARAM, 3, (int64_t[]){rows, 3 * part, 2});
    c->attr.size[0] = part;
    (void)trial;
}

static ckpt_tensor record_reorder(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor part[3];
    (void)c;
    ckpt_split(t, in[0], 1, 3, part);
    return ckpt_concat(t, 1, 3, (ckpt_tensor[]){part[2], ckpt_gelu_tanh(t, part[0]), part[2]});
}

static void ref_reorder(const struct array *in, struct array *out, const struct op_attr *a)
{
    int64_t n = a->size[0];
    struct op_attr cut[2] = {{.axis = 1, .begin = 0, .end = n},
                             {.axis = 1, .begin = 2 * n, .end = 3 * n}};
    struct op_attr join = {.axis = 1};
    struct array first = APPLY(ref_slice, &cut[0], &in[0]);
    struct array last = APPLY(ref_slice, &cut[1], &in[0]);
    struct array middle = APPLY(ref_gelu, a, &first);
    *out = APPLY(ref_concat, &join, &last, &middle, &last);
    array_free(&first);
    array_free(&middle);
    array_free(&last);
}

/* ---- attention on three thirds of one linear layer, spatial or temporal --------------------- */

enum { HEADS = 2, HEAD_DIM = 8, WIDTH = HEADS * HEAD_DIM };

/* x [B, T, S, C]; axis 1 attends over T, axis 2 over S.  The large trials have sequences so long
 * that on CUDA a library takes them; over T their leading axes do not merge. */
static void draw_self_attention(struct op_case *c, struct rng *r, int trial)
{
    int64_t *s = c->attr.size;
    c->attr.axis = 1 + trial % 2;
    for (int i = 0; i < 3; i++)
        s[i] = trial == TRIAL_TINY ? 1 : trial < TRIAL_LARGE ? rng_dim(r, 3) : i + 2;
    if (trial >= TRIAL_LARGE)
        s[c->attr.axis] = 140;
    c->attr.scale = 0.5;
    case_add(c, r, ROLE_PARAM, 4, (int64_t[]){s[0], s[1], s[2], WIDTH});
    struct operand *w = case_add(c, r, ROLE_PARAM, 2, (int64_t[]){3 * WIDTH, WIDTH});
    for (int64_t i = 0; i < w->value.n; i++)
        w->value.x[i] *= 0.3;
    case_add(c, r, ROLE_PARAM, 1, (int64_t[]){HEAD_DIM});
    c->attr.begin = trial / 2 % 2; /* cut along an axis of its own? */
    c->attr.eps = (float)1e-6;
}

/* Cuts the last axis: the gradients of the parts are copied together. */
static void cut_last(ckpt_tape *t, const struct op_case *c, ckpt_tensor qkv, const int *swap,
                     ckpt_tensor *part)
{
    const int64_t *s = c->attr.size;
    ckpt_split(t, qkv, 3, 3, part);
    for (int i = 0; i < 3; i++) {
        part[i] = ckpt_reshape(t, part[i], 5, (int64_t[]){s[0], s[1], s[2], HEADS, HEAD_DIM});
        if (c->attr.axis == 1)
            part[i] = ckpt_permute(t, part[i], swap);
    }
}

/* Cuts an axis of 3: the gradients are written side by side. */
static void cut_apart(ckpt_tape *t, const struct op_case *c, ckpt_tensor qkv, const int *swap,
                      ckpt_tensor *part)
{
    const int64_t *s = c->attr.size;
    qkv = ckpt_reshape(t, qkv, 6, (int64_t[]){s[0], s[1], s[2], 3, HEADS, HEAD_DIM});
    if (c->attr.axis == 1)
        qkv = ckpt_permute(t, qkv, swap);
    ckpt_split(t, qkv, 3, 3, part);
    int64_t m = c->attr.axis == 1 ? s[2] : s[1], n = c->attr.axis == 1 ? s[1] : s[2];
    for (int i = 0; i < 3; i++)
        part[i] = ckpt_reshape(t, part[i], 5, (int64_t[]){s[0], m, n, HEADS, HEAD_DIM});
}

static ckpt_tensor record_self_attention(ckpt_tape *t, const ckpt_tensor *in,
                                         const struct op_case *c)
{
    const int64_t *s = c->attr.size;
    const int swap[] = {0, 2, 1, 3, 4, 5};
    struct ckpt_attention_spec scaled = CKPT_ATTENTION_INIT;
    ckpt_tensor part[3], qkv = ckpt_linear(t, in[0], in[1], CKPT_NONE);
    scaled.scale = (float)c->attr.scale;
    if (c->attr.begin)
        cut_apart(t, c, qkv, swap, part);
    else
        cut_last(t, c, qkv, swap, part);
    for (int i = 0; i < 2; i++)
        part[i] = ckpt_rms_norm(t, part[i], in[2], (float)c->attr.eps);
    ckpt_tensor o = ckpt_attention(t, part[0], part[1], part[2], CKPT_NONE, &scaled);
    if (c->attr.axis == 1)
        o = ckpt_permute(t, o, swap);
    return ckpt_reshape(t, o, 4, (int64_t[]){s[0], s[1], s[2], WIDTH});
}

static void ref_self_attention(const struct array *in, struct array *out, const struct op_attr *a)
{
    const int64_t *s = a->size;
    struct op_attr split = {.n_size = 5, .size = {s[0], s[1], s[2], HEADS, HEAD_DIM}};
    struct op_attr swap = {.axes = {0, a->axis == 1 ? 2 : 1, a->axis == 1 ? 1 : 2, 3, 4}};
    struct op_attr merge = {.n_size = 4, .size = {s[0], s[1], s[2], WIDTH}};
    struct array none = {.ndim = -1}, qkv = APPLY(ref_linear, a, &in[0], &in[1], &none), part[3];
    for (int i = 0; i < 3; i++) {
        struct op_attr cut = {.axis = 3, .begin = i * WIDTH, .end = (i + 1) * WIDTH};
        struct array third = APPLY(ref_slice, &cut, &qkv);
        struct array heads = APPLY(ref_reshape, &split, &third);
        part[i] = APPLY(ref_permute, &swap, &heads);
        array_free(&third);
        array_free(&heads);
        if (i == 2)
            continue;
        struct array normal = APPLY(ref_rms_norm, a, &part[i], &in[2]);
        array_free(&part[i]);
        part[i] = normal;
    }
    struct array o = APPLY(ref_attention, a, &part[0], &part[1], &part[2]);
    struct array back = APPLY(ref_permute, &swap, &o);
    *out = APPLY(ref_reshape, &merge, &back);
    array_free(&qkv);
    array_free(&o);
    array_free(&back);
    for (int i = 0; i < 3; i++)
        array_free(&part[i]);
}

/* ---- packed text as keys and values at once ------------------------------------------------- */

static void draw_text(struct op_case *c, struct rng *r, int trial)
{
    int64_t B = rng_dim(r, 3), Q = rng_dim(r, 4), L = trial == TRIAL_TINY ? 1 : rng_dim(r, 5);
    case_add(c, r, ROLE_PARAM, 4, (int64_t[]){B, Q, HEADS, HEAD_DIM})->keep_last = true;
    case_add(c, r, ROLE_PARAM, 3, (int64_t[]){B, L, WIDTH});
    struct operand *mask = case_add(c, r, ROLE_INDEX, 2, (int64_t[]){B, L});
    for (int64_t i = 0; i < B * L; i++)
        mask->value.x[i] = rng_range(r, 0, 2) > 0;
    c->attr.size[0] = B * L;
    c->attr.scale = 0.5;
}

static ckpt_tensor record_text(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor lens, packed = ckpt_pack(t, in[1], in[2], &lens);
    packed = ckpt_reshape(t, packed, 3, (int64_t[]){c->attr.size[0], HEADS, HEAD_DIM});
    return ckpt_cross_attention(t, in[0], packed, packed, lens, (float)c->attr.scale);
}

static void ref_text(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct op_attr heads = {.n_size = 3, .size = {a->size[0], HEADS, HEAD_DIM}};
    struct op_attr count = {.mask = 2};
    struct array flat = APPLY(ref_pack, a, &in[1], &in[2]);
    struct array packed = APPLY(ref_reshape, &heads, &flat);
    struct array lens = APPLY(ref_sum, &count, &in[2]);
    *out = APPLY(ref_cross_attention, a, &in[0], &packed, &packed, &lens);
    array_free(&flat);
    array_free(&packed);
    array_free(&lens);
}

/* ---- one tensor as x and a of a gated residual, and as what sets the gate ------------------- */

static ckpt_tensor record_self_gated(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    ckpt_tensor gate = ckpt_mean(t, in[0], 1);
    return ckpt_gated_residual(t, in[0], ckpt_cast(t, gate, c->dtype), in[0]);
}

static void ref_self_gated(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct op_attr rows = {.mask = 1};
    struct array gate = APPLY(ref_mean, &rows, &in[0]);
    *out = APPLY(ref_gated_residual, a, &in[0], &gate, &in[0]);
    array_free(&gate);
}

/* ---- a square, transposed, beside another: the join must not lose the transposition ---------- */

static void draw_squares(struct op_case *c, struct rng *r, int trial)
{
    int64_t n = trial == TRIAL_TINY ? 1 : rng_range(r, 2, 5);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){n, n});
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){n, n});
    c->attr.axes[0] = 1;
}

static ckpt_tensor record_joined_transpose(ckpt_tape *t, const ckpt_tensor *in,
                                           const struct op_case *c)
{
    ckpt_tensor part[] = {ckpt_permute(t, ckpt_gelu_tanh(t, in[0]), c->attr.axes),
                          ckpt_gelu_tanh(t, in[1])};
    return ckpt_concat(t, 0, 2, part);
}

static void ref_joined_transpose(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array first = APPLY(ref_gelu, a, &in[0]), second = APPLY(ref_gelu, a, &in[1]);
    struct array turned = APPLY(ref_permute, a, &first);
    array_init(out, 2, (int64_t[]){2 * turned.shape[0], turned.shape[1]});
    memcpy(out->x, turned.x, (size_t)turned.n * sizeof(double));
    memcpy(out->x + turned.n, second.x, (size_t)second.n * sizeof(double));
    array_free(&first);
    array_free(&second);
    array_free(&turned);
}

/* ---- rows joined as columns: what their kernel would write is not what the join sees --------- */

static ckpt_tensor record_joined_columns(ckpt_tape *t, const ckpt_tensor *in,
                                         const struct op_case *c)
{
    ckpt_tensor part[3];
    for (int i = 0; i < 3; i++) {
        struct ckpt_desc d = ckpt_desc_of(t, in[i]);
        part[i] = ckpt_layer_norm(t, in[i], CKPT_NONE, CKPT_NONE, (float)c->attr.eps);
        part[i] = ckpt_reshape(t, part[i], 3, (int64_t[]){d.shape[0], d.shape[1], 1});
    }
    return ckpt_concat(t, 2, 3, part);
}

static void draw_three_rows(struct op_case *c, struct rng *r, int trial)
{
    draw_rows(c, r, trial);
    for (int i = 0; i < 2; i++)
        case_add(c, r, ROLE_PARAM, 2, c->in[0].value.shape);
}

static void ref_joined_columns(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct op_attr join = {.axis = 2};
    struct array part[3];
    for (int i = 0; i < 3; i++) {
        struct op_attr column = {.n_size = 3, .size = {in[i].shape[0], in[i].shape[1], 1}};
        struct array normal = APPLY(ref_layer_norm, a, &in[i]);
        part[i] = APPLY(ref_reshape, &column, &normal);
        array_free(&normal);
    }
    *out = APPLY(ref_concat, &join, &part[0], &part[1], &part[2]);
    for (int i = 0; i < 3; i++)
        array_free(&part[i]);
}

/* ---- residuals: the kernel of the second gradient adds the first ----------------------------- */

static void draw_residual_linear(struct op_case *c, struct rng *r, int trial)
{
    int64_t rows = trial == TRIAL_TINY ? 1 : trial < TRIAL_LARGE ? rng_range(r, 1, 5) : 700;
    int64_t width = trial == TRIAL_TINY ? 1 : rng_range(r, 3, trial < TRIAL_LARGE ? 9 : 70);
    case_add(c, r, ROLE_PARAM, 3, (int64_t[]){2, rows, width});
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){width, width});
}

/* x + x w^T of an activation x */
static ckpt_tensor record_residual_linear(ckpt_tape *t, const ckpt_tensor *in,
                                          const struct op_case *c)
{
    (void)c;
    ckpt_tensor x = ckpt_affine(t, in[0], 0.5f, 0.f);
    return ckpt_add(t, x, ckpt_linear(t, x, in[1], CKPT_NONE));
}

static void ref_residual_linear(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct op_attr half = {.a = 0.5};
    struct array x = APPLY(ref_affine, &half, &in[0]), none = {.ndim = -1};
    struct array y = APPLY(ref_linear, a, &x, &in[1], &none);
    *out = APPLY(ref_add, a, &x, &y);
    array_free(&x);
    array_free(&y);
}

/* From the large trials on: rows of the real width, and rows that several warps share. */
static void draw_residual_norm(struct op_case *c, struct rng *r, int trial)
{
    int64_t width = trial < TRIAL_LARGE ? rng_range(r, 3, 24) : trial % 2 ? 1152 : 2504;
    int64_t shape[] = {2, trial == TRIAL_TINY ? 1 : trial < TRIAL_LARGE ? 4 : 50, width};
    int64_t row[] = {trial % 3 ? 1 : 2, 1, width};
    case_add(c, r, ROLE_PARAM, 3, shape);
    for (int i = 0; i < 2; i++)
        case_add(c, r, ROLE_PARAM, 3, row);
    c->attr.eps = (float)1e-6;
}

/* z + layer_norm(z) with z = x + gate modulate(layer_norm(x)), of an activation x */
static ckpt_tensor record_residual_norm(ckpt_tape *t, const ckpt_tensor *in,
                                        const struct op_case *c)
{
    float eps = (float)c->attr.eps;
    ckpt_tensor x = ckpt_affine(t, in[0], 0.5f, 0.f);
    ckpt_tensor u = ckpt_layer_norm_modulate(t, x, in[1], in[2], eps);
    ckpt_tensor z = ckpt_gated_residual(t, x, in[1], u);
    return ckpt_add(t, z, ckpt_layer_norm(t, z, CKPT_NONE, CKPT_NONE, eps));
}

static void ref_residual_norm(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct op_attr half = {.a = 0.5};
    struct array x = APPLY(ref_affine, &half, &in[0]);
    struct array u = APPLY(ref_layer_norm_modulate, a, &x, &in[1], &in[2]);
    struct array z = APPLY(ref_gated_residual, a, &x, &in[1], &u);
    struct array n = APPLY(ref_layer_norm, a, &z);
    *out = APPLY(ref_add, a, &z, &n);
    array_free(&x);
    array_free(&u);
    array_free(&z);
    array_free(&n);
}

static const struct op_row rows[] = {
    {"three_uses", draw_matrix, record_three_uses, ref_three_uses},
    {"fan_out", draw_rows, record_fan_out, ref_fan_out},
    {"shared_weight", draw_shared_weight, record_shared_weight, ref_shared_weight},
    {"layer_add", draw_layer_add, record_layer_add, ref_layer_add},
    {"layer", draw_layer, record_layer, ref_layer},
    {"shared_layer", draw_layer, record_shared_layer, ref_shared_layer},
    {"norm_layer", draw_norm_layer, record_norm_layer, ref_norm_layer},
    {"affine_layer", draw_affine_layer, record_affine_layer, ref_affine_layer},
    {"modulated_layer", draw_modulated_layer, record_modulated_layer, ref_modulated_layer},
    {"rms_layer", draw_affine_layer, record_rms_layer, ref_rms_layer},
    {"gated_layer", draw_modulated_layer, record_gated_layer, ref_gated_layer},
    {"transpose", draw_matrix, record_transpose, ref_transpose},
    {"joined_transpose", draw_squares, record_joined_transpose, ref_joined_transpose},
    {"joined_columns", draw_three_rows, record_joined_columns, ref_joined_columns},
    {"residual_linear", draw_residual_linear, record_residual_linear, ref_residual_linear},
    {"residual_norm", draw_residual_norm, record_residual_norm, ref_residual_norm},
    {"overlap", draw_overlap, record_overlap, ref_overlap},
    {"reorder", draw_reorder, record_reorder, ref_reorder},
    {"self_attention", draw_self_attention, record_self_attention, ref_self_attention},
    {"text", draw_text, record_text, ref_text},
    {"self_gated", draw_rows, record_self_gated, ref_self_gated},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}
