/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plain ops on random shapes: the result against the fp64 reference, the gradient of each
 * operand against finite differences of the reference.  test_gradients OP runs one op only.
 */
#include "harness.h"

#include <string.h>

/* ---- linear --------------------------------------------------------------------------------- */

static void draw_linear(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = trial < TRIAL_LARGE ? draw_rank(r, 1, 4) : 2;
    draw_shape(r, trial, ndim, 6, shape);
    if (trial == TRIAL_LARGE)
        memcpy(shape, (int64_t[]){150, 90}, 2 * sizeof(*shape));
    if (trial > TRIAL_LARGE) /* many aligned rows, summed in chunks */
        memcpy(shape, (int64_t[]){700, 24}, 2 * sizeof(*shape));
    int64_t N = trial == TRIAL_TINY    ? 1
                : trial == TRIAL_LARGE ? 601
                : trial > TRIAL_LARGE  ? 40
                                       : rng_dim(r, 6);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){N, shape[ndim - 1]});
    if (trial < TRIAL_LARGE && rng_range(r, 0, 2) == 0)
        case_add_absent(c);
    else
        case_add(c, r, ROLE_PARAM, 1, &N);
}

static ckpt_tensor record_linear(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_linear(t, in[0], in[1], in[2]);
}

/* ---- element-wise --------------------------------------------------------------------------- */

static void draw_binary(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 6, shape);
    if (trial % 3 == 1) {
        case_add(c, r, ROLE_PARAM, ndim, shape);
        case_add(c, r, ROLE_PARAM, ndim, shape);
    } else {
        draw_broadcast(c, r, ROLE_PARAM, ndim, shape);
        draw_broadcast(c, r, ROLE_PARAM, ndim, shape);
    }
    c->in[1].keep_f32 = trial % 4 == 2;
}

static ckpt_tensor record_add(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_add(t, in[0], in[1]);
}

static ckpt_tensor record_sub(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_sub(t, in[0], in[1]);
}

static ckpt_tensor record_mul(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_mul(t, in[0], in[1]);
}

static void draw_affine(struct op_case *c, struct rng *r, int trial)
{
    draw_one(c, r, trial);
    c->attr.a = trial == 1 ? 0 : (float)rng_normal(r);
    c->attr.b = (float)rng_normal(r);
}

static ckpt_tensor record_affine(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_affine(t, in[0], (float)c->attr.a, (float)c->attr.b);
}

static void draw_where(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 6, shape);
    draw_broadcast(c, r, ROLE_INDEX, ndim, shape);
    draw_mask(&c->in[0], r);
    draw_broadcast(c, r, ROLE_PARAM, ndim, shape);
    draw_broadcast(c, r, ROLE_PARAM, ndim, shape);
}

static ckpt_tensor record_where(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_where(t, in[0], in[1], in[2]);
}

/* Wide enough to reach both tails of the activations. */
static void draw_activation(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] *= trial % 3 == 2 ? 6 : 1.5;
}

static ckpt_tensor record_gelu(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_gelu_tanh(t, in[0]);
}

static ckpt_tensor record_silu(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_silu(t, in[0]);
}

/* ---- shapes --------------------------------------------------------------------------------- */

/* Merges or splits axes; with a permuted operand this needs a copy. */
static void draw_reshape(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    draw_shape(r, trial, 4, 5, shape);
    case_add(c, r, ROLE_PARAM, 4, shape);
    const int64_t choice[4][4] = {
        {shape[0] * shape[1], shape[2], shape[3], 1},
        {shape[0], shape[1] * shape[2] * shape[3], 1, 1},
        {shape[3], shape[2], shape[1], shape[0]},
        {shape[0], 1, shape[1], shape[2] * shape[3]},
    };
    memcpy(c->attr.size, choice[trial % 4], sizeof(choice[0]));
    c->attr.n_size = 4;
}

static ckpt_tensor record_reshape(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_reshape(t, in[0], c->attr.n_size, c->attr.size);
}

static void draw_permute(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    int turn = (int)rng_range(r, 0, o->value.ndim - 1);
    for (int i = 0; i < o->value.ndim; i++)
        c->attr.axes[i] = (i + turn) % o->value.ndim;
}

static ckpt_tensor record_permute(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_permute(t, in[0], c->attr.axes);
}

static void draw_slice(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    c->attr.axis = (int)rng_range(r, 0, o->value.ndim - 1);
    c->attr.begin = rng_range(r, 0, o->value.shape[c->attr.axis] - 1);
    c->attr.end = rng_range(r, c->attr.begin + 1, o->value.shape[c->attr.axis]);
}

static ckpt_tensor record_slice(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_slice(t, in[0], c->attr.axis, c->attr.begin, c->attr.end);
}

/* One of three parts; the others are unused. */
static void draw_split(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 4, shape);
    c->attr.axis = (int)rng_range(r, 0, ndim - 1);
    int64_t part = shape[c->attr.axis];
    shape[c->attr.axis] *= 3;
    c->attr.begin = part * rng_range(r, 0, 2);
    c->attr.end = c->attr.begin + part;
    case_add(c, r, ROLE_PARAM, ndim, shape);
}

static ckpt_tensor record_split(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor part[3];
    ckpt_split(t, in[0], c->attr.axis, 3, part);
    return part[c->attr.begin / (c->attr.end - c->attr.begin)];
}

static void draw_concat(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 4, shape);
    c->attr.axis = (int)rng_range(r, 0, ndim - 1);
    for (int k = 0; k < 3; k++) {
        shape[c->attr.axis] = trial == TRIAL_TINY ? 1 : rng_dim(r, 4);
        case_add(c, r, ROLE_PARAM, ndim, shape);
    }
}

static ckpt_tensor record_concat(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_concat(t, c->attr.axis, 3, in);
}

static void draw_any(struct op_case *c, struct rng *r, int trial)
{
    draw_one(c, r, trial);
}

static ckpt_tensor record_contiguous(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_contiguous(t, in[0]);
}

/* fp32 keeps its values in every conversion; bf16 values survive a round trip through fp32. */
static ckpt_tensor record_cast(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor x = ckpt_cast(t, in[0], CKPT_F32);
    return ckpt_cast(t, x, c->dtype);
}

/* An fp32 parameter read as bf16. */
static void draw_cast_down(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    o->keep_f32 = true;
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] = (double)rng_range(r, -255, 255) / 64;
}

static ckpt_tensor record_cast_down(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_cast(t, in[0], c->dtype);
}

/* ---- reductions ------------------------------------------------------------------ */

static void draw_sum(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    int all = (1 << o->value.ndim) - 1;
    c->attr.mask = (unsigned)(trial == TRIAL_LARGE ? all : rng_range(r, 1, all));
}

static unsigned mask_of(const struct op_case *c)
{
    return c->attr.mask + 1 == 1u << c->in[0].value.ndim ? CKPT_ALL_AXES : c->attr.mask;
}

static ckpt_tensor record_sum(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_sum(t, in[0], mask_of(c));
}

static ckpt_tensor record_mean(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_mean(t, in[0], mask_of(c));
}

static const struct op_row rows[] = {
    {"linear", draw_linear, record_linear, ref_linear},
    {"add", draw_binary, record_add, ref_add},
    {"sub", draw_binary, record_sub, ref_sub},
    {"mul", draw_binary, record_mul, ref_mul},
    {"affine", draw_affine, record_affine, ref_affine},
    {"where", draw_where, record_where, ref_where},
    {"gelu", draw_activation, record_gelu, ref_gelu},
    {"silu", draw_activation, record_silu, ref_silu},
    {"reshape", draw_reshape, record_reshape, ref_reshape},
    {"permute", draw_permute, record_permute, ref_permute},
    {"slice", draw_slice, record_slice, ref_slice},
    {"split", draw_split, record_split, ref_slice},
    {"concat", draw_concat, record_concat, ref_concat},
    {"contiguous", draw_any, record_contiguous, ref_identity},
    {"cast", draw_any, record_cast, ref_identity},
    {"cast_down", draw_cast_down, record_cast_down, ref_identity},
    {"sum", draw_sum, record_sum, ref_sum},
    {"mean", draw_sum, record_mean, ref_mean},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}
