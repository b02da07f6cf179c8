/*
 * Every public op on random shapes: the result against the fp64 reference, the gradient of each
 * operand against finite differences of the reference.  test_gradients OP runs one op only.
 */
#include "harness.h"

#include <math.h>
#include <string.h>

/* Random sizes for ndim axes; 1 everywhere in the first trial. */
static void draw_shape(struct rng *r, int trial, int ndim, int64_t high, int64_t *shape)
{
    for (int i = 0; i < ndim; i++)
        shape[i] = trial == TRIAL_TINY ? 1 : rng_dim(r, high);
}

static int draw_rank(struct rng *r, int low, int high)
{
    return (int)rng_range(r, low, high);
}

/* One operand of 1 to 4 axes. */
static struct operand *draw_one(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 6, shape);
    return case_add(c, r, ROLE_PARAM, ndim, shape);
}

/* Zeros and ones, ones more often. */
static void fill_mask(struct operand *o, struct rng *r)
{
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] = rng_range(r, 0, 2) > 0;
}

/* ---- linear --------------------------------------------------------------------------------- */

static void draw_linear(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS], big = trial == TRIAL_BIG ? 19 : 6;
    int ndim = trial == TRIAL_BIG ? 2 : draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, big, shape);
    if (trial == TRIAL_BIG)
        memcpy(shape, (int64_t[]){37, 17}, 2 * sizeof(*shape));
    int64_t N = trial == TRIAL_TINY ? 1 : rng_dim(r, big);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){N, shape[ndim - 1]});
    if (rng_range(r, 0, 2) == 0)
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

/* An operand that broadcasts to `shape`: axes of size 1, leading axes left out. */
static void draw_broadcast(struct op_case *c, struct rng *r, enum role role, int ndim,
                           const int64_t *shape)
{
    int64_t own[CKPT_MAX_DIMS];
    int skip = (int)rng_range(r, 0, 2) == 0 ? (int)rng_range(r, 0, ndim - 1) : 0;
    for (int i = skip; i < ndim; i++)
        own[i - skip] = rng_range(r, 0, 2) == 0 ? 1 : shape[i];
    case_add(c, r, role, ndim - skip, own);
}

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
    fill_mask(&c->in[0], r);
    draw_broadcast(c, r, ROLE_PARAM, ndim, shape);
    draw_broadcast(c, r, ROLE_PARAM, ndim, shape);
}

static ckpt_tensor record_where(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_where(t, in[0], in[1], in[2]);
}

/* Wide enough that both tails of the activations are reached. */
static void draw_activation(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    for (int64_t i = 0; i < o->value.n; i++)
        o->value.x[i] *= trial % 3 == 2 ? 6 : 1.5;
}

static ckpt_tensor record_gelu(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_gelu(t, in[0]);
}

static ckpt_tensor record_silu(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_silu(t, in[0]);
}

/* ---- norms and modulation ------------------------------------------------------------------- */

static void draw_norm(struct op_case *c, struct rng *r, int trial, int *ndim, int64_t *shape)
{
    *ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, *ndim, 4, shape);
    shape[*ndim - 1] = trial == TRIAL_BIG ? 41 : rng_range(r, 3, 11);
    c->attr.eps = (float)(trial % 2 ? 1e-6 : 1e-5);
    struct operand *o = case_add(c, r, ROLE_PARAM, *ndim, shape);
    for (int64_t i = 0; trial % 3 == 0 && i < o->value.n; i++)
        o->value.x[i] += 3;
}

/* Two channels would become +-1 whatever they were; one becomes 0, with gradient 0. */
static void draw_layer_norm(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim;
    if (trial == TRIAL_TINY)
        case_add(c, r, ROLE_PARAM, 2, (int64_t[]){3, 1});
    else
        draw_norm(c, r, trial, &ndim, shape);
    c->attr.eps = (float)1e-6;
}

static ckpt_tensor record_layer_norm(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_layer_norm(t, in[0], (float)c->attr.eps);
}

static void draw_rms_norm(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim;
    draw_norm(c, r, trial, &ndim, shape);
    case_add(c, r, ROLE_PARAM, 1, &shape[ndim - 1]);
}

static ckpt_tensor record_rms_norm(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_rms_norm(t, in[0], in[1], (float)c->attr.eps);
}

/* The shape of a shift, scale or gate: each axis but the last may be 1. */
static void draw_condition(struct rng *r, int ndim, const int64_t *shape, int64_t *own)
{
    for (int i = 0; i < ndim; i++)
        own[i] = i + 1 < ndim && rng_range(r, 0, 1) ? 1 : shape[i];
}

static void draw_modulate(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS], own[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 5, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    draw_condition(r, ndim, shape, own);
    case_add(c, r, ROLE_PARAM, ndim, own);
    if (trial % 4 == 3) /* shift and scale need not be shaped alike */
        draw_condition(r, ndim, shape, own);
    case_add(c, r, ROLE_PARAM, ndim, own);
}

static ckpt_tensor record_modulate(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_modulate(t, in[0], in[1], in[2]);
}

static void draw_gated_residual(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS], own[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 5, shape);
    draw_condition(r, ndim, shape, own);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, ndim, own);
    case_add(c, r, ROLE_PARAM, ndim, shape);
}

static ckpt_tensor record_gated_residual(ckpt_tape *t, const ckpt_tensor *in,
                                         const struct op_case *c)
{
    (void)c;
    return ckpt_gated_residual(t, in[0], in[1], in[2]);
}

/* ---- attention ------------------------------------------------------------------------------ */

static void draw_rope(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 2, 5);
    draw_shape(r, trial, ndim, 4, shape);
    shape[ndim - 1] = 2 * rng_range(r, 1, 5);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    c->attr.axis = (int)rng_range(r, 0, ndim - 2);
    int64_t positions = shape[c->attr.axis], pairs = shape[ndim - 1] / 2;
    struct operand *table = case_add(c, r, ROLE_FIXED, 3, (int64_t[]){positions, pairs, 2});
    for (int64_t i = 0; i < table->value.n; i += 2) {
        double angle = 3 * rng_normal(r);
        table->value.x[i] = cos(angle);
        table->value.x[i + 1] = sin(angle);
    }
}

static ckpt_tensor record_rope(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_rope(t, in[0], in[1], c->attr.axis);
}

static void draw_attention(struct op_case *c, struct rng *r, int trial)
{
    int64_t q[CKPT_MAX_DIMS], k[CKPT_MAX_DIMS];
    int ndim = trial == TRIAL_BIG ? 3 : draw_rank(r, 3, 5);
    draw_shape(r, trial, ndim, 4, q);
    if (trial == TRIAL_BIG)
        memcpy(q, (int64_t[]){71, 1, 3}, 3 * sizeof(*q));
    else if (trial % 3 == 2)
        q[ndim - 1] = rng_range(r, 5, 12);
    memcpy(k, q, sizeof(k));
    k[ndim - 3] = trial == TRIAL_BIG ? 67 : trial == TRIAL_TINY ? 1 : rng_dim(r, 6);
    case_add(c, r, ROLE_PARAM, ndim, q)->keep_last = true;
    case_add(c, r, ROLE_PARAM, ndim, k)->keep_last = true;
    case_add(c, r, ROLE_PARAM, ndim, k)->keep_last = true;
    c->attr.scale = (float)(1 / sqrt((double)q[ndim - 1]));
}

static ckpt_tensor record_attention(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_attention(t, in[0], in[1], in[2], (float)c->attr.scale);
}

/* Some samples have no text, and some rows belong to nobody. */
static void draw_cross_attention(struct op_case *c, struct rng *r, int trial)
{
    int64_t B = rng_dim(r, 4), L = rng_dim(r, 5), H = rng_dim(r, 3), D = rng_dim(r, 7), R = 0;
    if (trial == TRIAL_BIG)
        L = 67, H = 1, D = 3, B = 2;
    case_add(c, r, ROLE_PARAM, 4, (int64_t[]){B, L, H, D})->keep_last = true;
    int64_t lens[8];
    for (int64_t b = 0; b < B; b++)
        R += lens[b] = trial == TRIAL_TINY ? 1 : rng_range(r, 0, 5);
    R += trial == TRIAL_TINY ? 0 : rng_range(r, 0, 3);
    R += R == 0;
    case_add(c, r, ROLE_PARAM, 3, (int64_t[]){R, H, D})->keep_last = true;
    case_add(c, r, ROLE_PARAM, 3, (int64_t[]){R, H, D})->keep_last = true;
    struct operand *o = case_add(c, r, ROLE_INDEX, 1, &B);
    for (int64_t b = 0; b < B; b++)
        o->value.x[b] = (double)lens[b];
    c->attr.scale = (float)(1 / sqrt((double)D));
}

static ckpt_tensor record_cross_attention(ckpt_tape *t, const ckpt_tensor *in,
                                          const struct op_case *c)
{
    return ckpt_cross_attention(t, in[0], in[1], in[2], in[3], (float)c->attr.scale);
}

static void draw_pack(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[3];
    draw_shape(r, trial, 3, 6, shape);
    case_add(c, r, ROLE_PARAM, 3, shape);
    fill_mask(case_add(c, r, ROLE_INDEX, 2, shape), r);
}

static ckpt_tensor record_pack(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    ckpt_tensor lens;
    (void)c;
    return ckpt_pack(t, in[0], in[1], &lens);
}

/* ---- embeddings and patches ----------------------------------------------------------------- */

static void draw_timestep_embedding(struct op_case *c, struct rng *r, int trial)
{
    int64_t B = trial == TRIAL_TINY ? 1 : rng_dim(r, 5);
    struct operand *o = case_add(c, r, ROLE_FIXED, 1, &B);
    for (int64_t i = 0; i < B; i++)
        o->value.x[i] = trial == 1 ? 0 : (double)rng_range(r, 0, 20000) / 20;
    c->attr.size[0] = trial == TRIAL_TINY ? 2 : trial == TRIAL_BIG ? 256 : 2 * rng_range(r, 1, 20);
    c->attr.a = 10000;
}

static ckpt_tensor record_timestep_embedding(ckpt_tape *t, const ckpt_tensor *in,
                                             const struct op_case *c)
{
    return ckpt_timestep_embedding(t, in[0], c->attr.size[0], (float)c->attr.a, c->dtype);
}

static void draw_patch(struct op_case *c, struct rng *r, int trial)
{
    for (int i = 0; i < 3; i++)
        c->attr.size[i] = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 3);
}

static void draw_patchify(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[5];
    draw_patch(c, r, trial);
    draw_shape(r, trial, 5, 5, shape);
    case_add(c, r, ROLE_PARAM, 5, shape);
}

static ckpt_tensor record_patchify(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    const int64_t *s = c->attr.size;
    return ckpt_patchify(t, in[0], s[0], s[1], s[2]);
}

static int64_t ceil_div(int64_t n, int64_t to)
{
    return (n + to - 1) / to;
}

static void draw_unpatchify(struct op_case *c, struct rng *r, int trial)
{
    int64_t *s = c->attr.size, B = rng_dim(r, 3);
    draw_patch(c, r, trial);
    draw_shape(r, trial, 4, 5, s + 3);
    int64_t grid = ceil_div(s[5], s[1]) * ceil_div(s[6], s[2]);
    int64_t tokens[] = {B, ceil_div(s[4], s[0]), grid, s[0] * s[1] * s[2] * s[3]};
    case_add(c, r, ROLE_PARAM, 4, tokens);
}

static ckpt_tensor record_unpatchify(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    const int64_t *s = c->attr.size;
    return ckpt_unpatchify(t, in[0], s[3], s[4], s[5], s[6], s[0], s[1], s[2]);
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

/* One of three parts; the others stay unused. */
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

/* fp32 keeps its values on every way; bf16 values survive fp32 and back. */
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

/* ---- reductions and losses ------------------------------------------------------------------ */

static void draw_sum(struct op_case *c, struct rng *r, int trial)
{
    struct operand *o = draw_one(c, r, trial);
    c->attr.mask = (unsigned)rng_range(r, 1, (1 << o->value.ndim) - 1);
}

static ckpt_tensor record_sum(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_sum(t, in[0], c->attr.mask);
}

static ckpt_tensor record_mean(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_mean(t, in[0], c->attr.mask);
}

/* The target is data, of fp32 whatever pred is; a sample may have no frame that counts. */
static void draw_mse(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 3, 5);
    draw_shape(r, trial, ndim, 4, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_FIXED, ndim, shape);
    if (trial % 4 == 1)
        case_add_absent(c);
    else
        fill_mask(case_add(c, r, ROLE_INDEX, 2, (int64_t[]){shape[0], shape[2]}), r);
}

static ckpt_tensor record_mse(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_mse(t, in[0], in[1], in[2]);
}

static void draw_cross_entropy(struct op_case *c, struct rng *r, int trial)
{
    int64_t B = trial == TRIAL_TINY ? 1 : rng_dim(r, 6),
            V = trial == TRIAL_BIG ? 53 : rng_dim(r, 9);
    case_add(c, r, ROLE_PARAM, 2, (int64_t[]){B, V});
    struct operand *label = case_add(c, r, ROLE_INDEX, 1, &B);
    for (int64_t b = 0; b < B; b++)
        label->value.x[b] = (double)rng_range(r, 0, V - 1);
}

static ckpt_tensor record_cross_entropy(ckpt_tape *t, const ckpt_tensor *in,
                                        const struct op_case *c)
{
    (void)c;
    return ckpt_cross_entropy(t, in[0], in[1]);
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
    {"layer_norm", draw_layer_norm, record_layer_norm, ref_layer_norm},
    {"rms_norm", draw_rms_norm, record_rms_norm, ref_rms_norm},
    {"modulate", draw_modulate, record_modulate, ref_modulate},
    {"gated_residual", draw_gated_residual, record_gated_residual, ref_gated_residual},
    {"rope", draw_rope, record_rope, ref_rope},
    {"attention", draw_attention, record_attention, ref_attention},
    {"cross_attention", draw_cross_attention, record_cross_attention, ref_cross_attention},
    {"pack", draw_pack, record_pack, ref_pack},
    {"timestep_embedding", draw_timestep_embedding, record_timestep_embedding,
     ref_timestep_embedding},
    {"patchify", draw_patchify, record_patchify, ref_patchify},
    {"unpatchify", draw_unpatchify, record_unpatchify, ref_unpatchify},
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
    {"mse", draw_mse, record_mse, ref_mse},
    {"cross_entropy", draw_cross_entropy, record_cross_entropy, ref_cross_entropy},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}
