/* SPDX-License-Identifier: Apache-2.0 */
/* ddpm: denoising diffusion (Ho et al. 2020) of points in the plane, in eight clusters on a circle.
 * The training program draws its own noise.  A forward-only program denoises by one time step; the
 * caller loops over the time steps. */
#include <math.h>
#include "zoo.h"

enum { PLACES = 8, TIMES = 64, WIDTH = 40, LAYERS = 12, BATCH = 1024, STEPS = 600 };
static const float SPREAD = 0.1f; /* of the points in a cluster; the circle has radius 1 */

struct ddpm {
    struct ckpt_nn_linear point, time, layer[LAYERS], out;
};

static float beta[TIMES], left[TIMES]; /* noise added at each time; remaining signal power */

static void create(struct ddpm *m, ckpt *c)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    m->point = ckpt_nn_linear(&nn, 2, WIDTH, true, "point");
    m->time = ckpt_nn_linear(&nn, WIDTH, WIDTH, true, "time");
    for (int i = 0; i < LAYERS; i++)
        m->layer[i] = ckpt_nn_linear(&nn, WIDTH, WIDTH, true, "layer.%d", i);
    m->out = ckpt_nn_linear(&nn, WIDTH, 2, true, "out");
    for (int i = 0; i < TIMES; i++) { /* the cosine schedule of Nichol & Dhariwal 2021 */
        float now = cosf((float)i / TIMES * 1.57f), next = cosf((float)(i + 1) / TIMES * 1.57f);
        beta[i] = fminf(1 - next * next / (now * now), 0.999f);
        left[i] = (i > 0 ? left[i - 1] : 1) * (1 - beta[i]);
    }
}

/* Predicted noise in x [batch, 2] at `time`, i32 [batch]. */
static ckpt_tensor noise_in(const struct ddpm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor time)
{
    ckpt_tensor u = ckpt_cast(t, time, CKPT_F32);

    u = ckpt_timestep_embedding(t, u, WIDTH, 1000, CKPT_F32);
    x = ckpt_add(t, ckpt_nn_apply_linear(t, &m->point, x), ckpt_nn_apply_linear(t, &m->time, u));
    for (int i = 0; i < LAYERS; i++) {
        ckpt_label(t, "layer.%d", i);
        x = ckpt_add(t, x, ckpt_nn_apply_linear(t, &m->layer[i], ckpt_silu(t, x)));
    }
    return ckpt_nn_apply_linear(t, &m->out, ckpt_silu(t, x));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor x = ckpt_input(t, "point", CKPT_F32, 2, (int64_t[]){batch, 2});
    ckpt_tensor time = ckpt_input(t, "time", CKPT_I32, 1, (int64_t[]){batch});
    ckpt_tensor signal = ckpt_constant(t, "left", CKPT_F32, 2, (int64_t[]){TIMES, 1}, left);
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 2, (int64_t[]){batch, 2});

    zoo_keep(t, "noise", noise);
    signal = ckpt_index_select(t, signal, 0, time); /* [batch, 1] */
    x = ckpt_mul(t, x, ckpt_sqrt(t, signal));
    x = ckpt_add(t, x, ckpt_mul(t, noise, ckpt_sqrt(t, ckpt_affine(t, signal, -1, 1))));
    return ckpt_mse(t, noise_in(user, t, x, time), noise, CKPT_NONE);
}

static ckpt_tensor record_noise(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor x = ckpt_input(t, "point", CKPT_F32, 2, (int64_t[]){batch, 2});
    ckpt_tensor time = ckpt_input(t, "time", CKPT_I32, 1, &batch);
    return zoo_output(t, "noise", noise_in(user, t, x, time));
}

static float point[BATCH][2];
static int32_t time[BATCH];

/* Points in the clusters, each with a time to add noise for. */
static void draw(uint64_t step)
{
    float u[BATCH][2];

    ckpt_fill_normal(1, step, 1, &point[0][0], BATCH * 2);
    ckpt_fill_uniform(1, step, 2, &u[0][0], BATCH * 2);
    for (int b = 0; b < BATCH; b++) {
        float angle = floorf(u[b][0] * PLACES) * 6.2831853f / PLACES;
        point[b][0] = cosf(angle) + SPREAD * point[b][0];
        point[b][1] = sinf(angle) + SPREAD * point[b][1];
        time[b] = (int32_t)(u[b][1] * TIMES);
    }
}

/* From noise to points, one step of the program for each time. */
static int sample(ckpt_program *p)
{
    static float noise[BATCH][2], fresh[BATCH][2];

    ckpt_fill_normal(2, TIMES, 1, &point[0][0], BATCH * 2);
    for (int i = TIMES - 1; i >= 0; i--) {
        float share = beta[i] / sqrtf(1 - left[i]), sigma = i ? sqrtf(beta[i]) : 0;
        for (int b = 0; b < BATCH; b++)
            time[b] = i;
        if (ckpt_feed(p, "point", point, sizeof fresh) || ckpt_feed(p, "time", time, sizeof time) ||
            ckpt_step(p, NULL) || ckpt_fetch(p, "noise", noise, sizeof noise))
            return -1;
        ckpt_fill_normal(2, (uint64_t)i, 1, &fresh[0][0], BATCH * 2);
        for (int k = 0; k < BATCH * 2; k++) {
            float *x = &point[k / 2][k % 2];
            *x = (*x - share * noise[k / 2][k % 2]) / sqrtf(1 - beta[i]);
            *x += sigma * fresh[k / 2][k % 2];
        }
    }
    return 0;
}

/* The share of points near a cluster; prints it and the size of the smallest cluster. */
static double judge(void)
{
    int near[PLACES] = {0}, all = 0, fewest = BATCH;

    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < PLACES; i++) {
            float angle = (float)i * 6.2831853f / PLACES;
            near[i] += hypotf(point[b][0] - cosf(angle), point[b][1] - sinf(angle)) < 3 * SPREAD;
        }
    for (int i = 0; i < PLACES; i++)
        all += near[i], fewest = near[i] < fewest ? near[i] : fewest;
    printf("learned: %.1f %% of points are where they belong, %.1f %% at the rarest place\n",
           100. * all / BATCH, 100. * fewest / BATCH);
    return fewest > BATCH / PLACES / 3 ? (double)all / BATCH : 0;
}

static int test(ckpt_program *p, bool *learned)
{
    if (sample(p))
        return -1;
    *learned = judge() > 0.8;
    return 0;
}

static const struct zoo_data data = {draw, {{"point", point}, {"time", time}}};
static const struct zoo_steps steps = {.batch = BATCH, .steps = STEPS, .lr = 5e-3};

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ddpm model;
    ckpt *c = zoo_open(argc, argv, NULL, NULL);

    create(&model, c);
    struct zoo_run run = {
        &model, {{record, ckpt_adamw(c, &adamw), &data, NULL}}, record_noise, test};
    return zoo_run(c, &run, &steps);
}
