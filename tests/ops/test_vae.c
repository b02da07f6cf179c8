/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops of video autoencoders together, as in a model: a residual block of causal convolutions,
 * latents that are sampled and spread over time, and a sample of ckpt_randn's noise.
 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GROUPS = 2, LATENTS = 4 /* channels */, SAMPLES = 600 };

/* ---- x + conv(silu(norm(x))), causal in time ------------------------------------------------ */

static const int64_t causal[3][3] = {{1, 1, 1}, {2, 1, 1}, {0, 1, 1}};

static void draw_block(struct op_case *c, struct rng *r, int trial)
{
    int64_t x[5], channels = GROUPS * rng_range(r, 1, 2);
    draw_shape(r, 1, 5, trial < TRIAL_LARGE ? 2 : 1, x);
    x[2] += 1; /* a group has three values at least */
    x[3] += 1;
    x[4] = channels;
    memcpy(c->attr.conv, causal, sizeof(causal));
    c->attr.axis = GROUPS;
    c->attr.mask = 1;
    c->attr.eps = (float)1e-5;
    case_add(c, r, ROLE_PARAM, 5, x);
    case_add(c, r, ROLE_PARAM, 1, &channels);
    case_add(c, r, ROLE_PARAM, 1, &channels);
    case_add(c, r, ROLE_PARAM, 5, (int64_t[]){channels, 3, 3, 3, channels});
}

static ckpt_tensor record_block(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    memcpy(spec.before, causal[1], sizeof(spec.before));
    memcpy(spec.after, causal[2], sizeof(spec.after));
    ckpt_tensor h = ckpt_group_norm_silu(t, in[0], in[1], in[2], GROUPS, (float)c->attr.eps, true);
    return ckpt_add(t, in[0], ckpt_conv(t, h, in[3], CKPT_NONE, &spec));
}

static void ref_block(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array conv[3] = {{.ndim = -1}, in[3], {.ndim = -1}}, sum[2] = {in[0]};
    ref_group_norm_silu(in, &conv[0], a);
    ref_conv(conv, &sum[1], a);
    ref_add(sum, out, a);
    array_free(&conv[0]);
    array_free(&sum[1]);
}

/* ---- one kernel in two convolutions: its gradients are added where the second is made -------- */

static void draw_shared(struct op_case *c, struct rng *r, int trial)
{
    int64_t x[4], channels = rng_range(r, 1, 3);
    static const int64_t padded[3][3] = {{1, 1, 1}, {0, 1, 1}, {0, 1, 1}};
    draw_shape(r, trial < TRIAL_LARGE ? trial : 1, 4, 4, x);
    x[3] = channels;
    memcpy(c->attr.conv, padded, sizeof(padded));
    case_add(c, r, ROLE_PARAM, 4, x);
    case_add(c, r, ROLE_PARAM, 4, (int64_t[]){channels, 3, 3, channels});
    case_add(c, r, ROLE_PARAM, 1, &channels);
}

static ckpt_tensor record_shared(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    (void)c;
    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = 1;
    ckpt_tensor h = ckpt_conv(t, in[0], in[1], in[2], &spec);
    return ckpt_conv(t, h, in[1], in[2], &spec);
}

static void ref_shared(const struct array *in, struct array *out, const struct op_attr *a)
{
    struct array second[3] = {{.ndim = -1}, in[1], in[2]};
    ref_conv(in, &second[0], a);
    ref_conv(second, out, a);
    array_free(&second[0]);
}

/* ---- latents: halves of the moments, a sample, two frames out of the channels of one --------- */

static void draw_latents(struct op_case *c, struct rng *r, int trial)
{
    int64_t *s = c->attr.size;
    draw_shape(r, trial == TRIAL_LARGE ? 1 : trial, 4, 3, s);
    s[4] = LATENTS;
    c->attr.n_size = 5;
    case_add(c, r, ROLE_PARAM, 5, (int64_t[]){s[0], s[1], s[2], s[3], 2 * LATENTS});
    case_add(c, r, ROLE_FIXED, 5, s);
}

static const int frames_out[] = {0, 1, 5, 2, 3, 4};

static ckpt_tensor record_latents(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c)
{
    const int64_t *s = c->attr.size;
    ckpt_tensor half[2];
    ckpt_split(t, in[0], 4, 2, half);
    ckpt_tensor z = ckpt_sample_normal(t, half[0], half[1], ckpt_cast(t, in[1], c->dtype));
    z = ckpt_reshape(t, z, 6, (int64_t[]){s[0], s[1], s[2], s[3], LATENTS / 2, 2});
    z = ckpt_permute(t, z, frames_out);
    return ckpt_reshape(t, z, 5, (int64_t[]){s[0], 2 * s[1], s[2], s[3], LATENTS / 2});
}

/* Channel 2c + i of frame t becomes channel c of frame 2t + i. */
static void ref_latents(const struct array *in, struct array *out, const struct op_attr *a)
{
    const int64_t *s = a->size;
    struct op_attr first = {.axis = 4, .end = LATENTS};
    struct op_attr second = {.axis = 4, .begin = LATENTS, .end = 2 * LATENTS};
    struct array half[3] = {{.ndim = -1}, {.ndim = -1}, in[1]}, z;
    ref_slice(in, &half[0], &first);
    ref_slice(in, &half[1], &second);
    ref_sample_normal(half, &z, a);
    array_init(out, 5, (int64_t[]){s[0], 2 * s[1], s[2], s[3], LATENTS / 2});
    int64_t places = s[2] * s[3];
    for (int64_t i = 0; i < z.n; i++) {
        int64_t channel = i % LATENTS, place = i / LATENTS % places, frame = i / LATENTS / places;
        int64_t to = ((2 * frame + channel % 2) * places + place) * (LATENTS / 2) + channel / 2;
        out->x[to] = z.x[i];
    }
    array_free(&half[0]);
    array_free(&half[1]);
    array_free(&z);
}

/* ---- a sample of our own noise -------------------------------------------------------------- */

static const int64_t sampled[] = {2, SAMPLES};

static ckpt_tensor record_sample(ckpt_tape *t, int64_t micro_batch, void *user)
{
    const float *value = user;
    ckpt_tensor mean = ckpt_constant(t, "mean", CKPT_F32, 2, sampled, value);
    ckpt_tensor logvar = ckpt_constant(t, "logvar", CKPT_F32, 2, sampled, value + 2 * SAMPLES);
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 2, sampled);
    ckpt_tensor z = ckpt_sample_normal(t, mean, logvar, noise);
    (void)micro_batch;
    ckpt_output(t, "noise", noise);
    ckpt_output(t, "z", z);
    return ckpt_kl_normal(t, mean, logvar);
}

/* The distance of z from mean + exp(logvar / 2) noise, and of its noise from variance 1. */
static int check_values(const float *value, const float *noise, const float *z)
{
    double worst = 0, squares = 0;
    for (int i = 0; i < 2 * SAMPLES; i++) {
        double expected = value[i] + exp(0.5 * value[2 * SAMPLES + i]) * noise[i];
        worst = fmax(worst, fabs(z[i] - expected) / fmax(1, fabs(expected)));
        squares += (double)noise[i] * noise[i] / (2 * SAMPLES);
    }
    bool ok = worst <= 1e-6 && fabs(squares - 1) < 0.2;
    printf("%-4s a sample is off by %.1e, its noise has variance %.2f\n", ok ? "ok" : "FAIL", worst,
           squares);
    return !ok;
}

static int check_sample(void)
{
    float value[4 * SAMPLES], noise[2 * SAMPLES], z[2 * SAMPLES], loss;
    struct rng r = {.state = 3};
    ckpt *c = NULL;
    ckpt_program *p = NULL;
    for (int i = 0; i < 4 * SAMPLES; i++)
        value[i] = (float)rng_normal(&r);
    int e = ckpt_open(&c, NULL);
    if (!e)
        e = ckpt_compile(c, record_sample, value, NULL, 2, &p);
    if (!e)
        e = ckpt_step(p, &loss);
    if (!e)
        e = ckpt_fetch(p, "noise", noise, sizeof(noise));
    if (!e)
        e = ckpt_fetch(p, "z", z, sizeof(z));
    if (e)
        printf("FAIL sample: %s\n", ckpt_error(c));
    int failed = e ? 1 : check_values(value, noise, z);
    ckpt_program_free(p);
    ckpt_close(c);
    return failed;
}

static const struct op_row rows[] = {
    {"causal_block", draw_block, record_block, ref_block},
    {"shared_kernel", draw_shared, record_shared, ref_shared},
    {"latents", draw_latents, record_latents, ref_latents},
    {NULL, NULL, NULL, NULL},
};

int main(int argc, char **argv)
{
    int failed = harness_main(argc, argv, rows);
    return argc > 1 ? failed : failed | check_sample();
}
