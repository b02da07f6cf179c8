/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of video autoencoders on random shapes: convolution, group norm, upsampling, losses.  As
 * test_gradients.
 */
#include "harness.h"

#include <string.h>

/* ---- convolution ---------------------------------------------------------------------------- */

/* The number of taps and steps for an axis of this size; padding leaves space for the taps. */
static void draw_axis(struct op_attr *a, struct rng *r, int trial, int i, int64_t size,
                      int64_t kernel)
{
    a->conv[0][i] = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 2);
    a->conv[1][i] = trial == TRIAL_TINY ? 0 : rng_range(r, 0, kernel);
    a->conv[2][i] = trial == TRIAL_TINY ? 0 : rng_range(r, 0, 2);
    while (size + a->conv[1][i] + a->conv[2][i] < kernel)
        a->conv[1][i]++;
}

static void add_conv(struct op_case *c, struct rng *r, int ndim, const int64_t *x,
                     const int64_t *kernel, int64_t k, bool bias)
{
    int64_t w[5] = {k};
    memcpy(w + 1, kernel + 5 - ndim, sizeof(*w) * (size_t)(ndim - 2));
    w[ndim - 1] = x[ndim - 1];
    case_add(c, r, ROLE_PARAM, ndim, x);
    case_add(c, r, ROLE_PARAM, ndim, w);
    if (bias)
        case_add(c, r, ROLE_PARAM, 1, &k);
    else
        case_add_absent(c);
}

/* Several tiles: a causal kernel over time, and a step of 2 with zeros at the far end. */
static void draw_large_conv(struct op_case *c, struct rng *r, int trial)
{
    static const int64_t causal[3][3] = {{1, 1, 1}, {2, 1, 1}, {0, 1, 1}};
    static const int64_t halved[3][3] = {{1, 2, 2}, {0, 0, 0}, {0, 1, 1}};
    if (trial == TRIAL_LARGE) {
        memcpy(c->attr.conv, causal, sizeof(causal));
        add_conv(c, r, 5, (int64_t[]){1, 4, 9, 9, 12}, (int64_t[]){3, 3, 3}, 70, true);
    } else {
        memcpy(c->attr.conv, halved, sizeof(halved));
        add_conv(c, r, 4, (int64_t[]){2, 67, 65, 5}, (int64_t[]){1, 3, 3}, 24, false);
    }
}

static void draw_conv(struct op_case *c, struct rng *r, int trial)
{
    int64_t x[5] = {1, 1, 1, 1, 1}, kernel[3] = {1, 1, 1};
    int ndim = draw_rank(r, 4, 5), absent = 5 - ndim;
    if (trial >= TRIAL_LARGE) {
        draw_large_conv(c, r, trial);
        return;
    }
    draw_shape(r, trial, ndim, 4, x);
    x[ndim - 1] = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 3);
    for (int i = absent; i < 3; i++)
        kernel[i] = trial == TRIAL_TINY || trial % 4 == 3 ? 1 : rng_range(r, 1, i ? 2 : 3);
    for (int i = 0; i < 3; i++) {
        c->attr.conv[0][i] = 1;
        if (i >= absent && trial != 3) /* trial 3: a product of matrices */
            draw_axis(&c->attr, r, trial, i, x[1 + i - absent], kernel[i]);
    }
    add_conv(c, r, ndim, x, kernel, rng_dim(r, 3), trial % 3 != 1);
}

static ckpt_tensor record_conv(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    int absent = 5 - c->in[0].value.ndim;
    for (int i = absent; i < 3; i++) {
        spec.stride[i - absent] = c->attr.conv[0][i];
        spec.before[i - absent] = c->attr.conv[1][i];
        spec.after[i - absent] = c->attr.conv[2][i];
    }
    return ckpt_conv(t, in[0], in[1], in[2], &spec);
}

/* ---- group norm ----------------------------------------------------------------------------- */

/* Two values would become +-1 whatever they are, so a group has at least three. */
static void draw_group_norm(struct op_case *c, struct rng *r, int trial)
{
    int64_t x[5], groups = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 3);
    int ndim = draw_rank(r, 2, 5);
    if (trial == TRIAL_LARGE) { /* groups that vectors straddle, more than one block */
        memcpy(x, (int64_t[]){2, 17, 9, 264}, 4 * sizeof(*x));
        ndim = 4, groups = 24;
    } else if (trial > TRIAL_LARGE) { /* rows that no vector divides */
        memcpy(x, (int64_t[]){1, 67, 603}, 3 * sizeof(*x));
        ndim = 3, groups = 3;
    } else {
        draw_shape(r, trial, ndim, 3, x);
        x[ndim - 1] = groups * rng_range(r, ndim == 2 ? 3 : 1, 4);
        x[1] = ndim == 2 ? x[1] : rng_range(r, 3, 5);
    }
    c->attr.axis = (int)groups;
    c->attr.mask = trial % 2;
    c->attr.eps = (float)(trial % 3 ? 1e-6 : 1e-5);
    struct operand *o = case_add(c, r, ROLE_PARAM, ndim, x);
    for (int64_t i = 0; trial % 4 == 1 && i < o->value.n; i++)
        o->value.x[i] += 3;
    case_add(c, r, ROLE_PARAM, 1, &x[ndim - 1]);
    case_add(c, r, ROLE_PARAM, 1, &x[ndim - 1]);
}

static ckpt_tensor record_group_norm(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_group_norm_silu(t, in[0], in[1], in[2], c->attr.axis, (float)c->attr.eps,
                                c->attr.mask != 0);
}

/* ---- upsampling ----------------------------------------------------------------------------- */

static void draw_upsample(struct op_case *c, struct rng *r, int trial)
{
    int64_t x[5];
    int ndim = draw_rank(r, 3, 5);
    if (trial == TRIAL_LARGE)
        ndim = 4, memcpy(x, (int64_t[]){2, 3, 5, 1104}, 4 * sizeof(*x));
    else
        draw_shape(r, trial, ndim, trial > TRIAL_LARGE ? 2 : 4, x);
    for (int i = 0; i < 3; i++)
        c->attr.size[i] = trial == TRIAL_TINY ? 1 : rng_range(r, 1, 3);
    case_add(c, r, ROLE_PARAM, ndim, x);
}

static ckpt_tensor record_upsample(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    return ckpt_upsample_nearest(t, in[0], c->attr.size);
}

/* ---- losses --------------------------------------------------------------------------------- */

static void draw_l1(struct op_case *c, struct rng *r, int trial)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 5);
    draw_shape(r, trial, ndim, 4, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape)->keep_f32 = trial % 2;
}

static ckpt_tensor record_l1(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_l1(t, in[0], in[1]);
}

/* Mean and logvar; in some trials every third logvar is outside its limits. */
static void draw_normal(struct op_case *c, struct rng *r, int trial, double outside)
{
    int64_t shape[CKPT_MAX_DIMS];
    int ndim = draw_rank(r, 1, 4);
    draw_shape(r, trial, ndim, 4, shape);
    case_add(c, r, ROLE_PARAM, ndim, shape);
    struct operand *logvar = case_add(c, r, ROLE_PARAM, ndim, shape);
    for (int64_t i = 0; trial % 4 == 2 && i < logvar->value.n; i += 3)
        logvar->value.x[i] = outside;
}

/* Above its limit the loss is so large that differences of it show nothing else. */
static void draw_kl_normal(struct op_case *c, struct rng *r, int trial)
{
    draw_normal(c, r, trial, -31);
}

static ckpt_tensor record_kl_normal(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    (void)c;
    return ckpt_kl_normal(t, in[0], in[1]);
}

static void draw_sample_normal(struct op_case *c, struct rng *r, int trial)
{
    draw_normal(c, r, trial, trial == 10 ? 21 : -31); /* second differences neither */
    case_add(c, r, ROLE_FIXED, c->in[0].value.ndim, c->in[0].value.shape);
}

static ckpt_tensor record_sample_normal(ckpt_tape *t, const ckpt_tensor *in,
                                        const struct op_case *c)
{
    return ckpt_sample_normal(t, in[0], in[1], ckpt_cast(t, in[2], c->dtype));
}

static const struct op_row rows[] = {
    {"conv", draw_conv, record_conv, ref_conv},
    {"group_norm_silu", draw_group_norm, record_group_norm, ref_group_norm_silu},
    {"upsample_nearest", draw_upsample, record_upsample, ref_upsample_nearest},
    {"l1", draw_l1, record_l1, ref_l1},
    {"kl_normal", draw_kl_normal, record_kl_normal, ref_kl_normal},
    {"sample_normal", draw_sample_normal, record_sample_normal, ref_sample_normal},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    return harness_main(argc, argv, rows);
}
