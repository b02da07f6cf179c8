/* SPDX-License-Identifier: Apache-2.0 */
/* gan: a generative adversarial network (Goodfellow et al. 2014) learns points on a circle.  Two
 * programs share the parameters of a context: one trains the critic with the generator frozen, the
 * other trains the generator with the critic frozen.  Each has its own optimizer.  A third program
 * draws points.  --r1 WEIGHT adds a gradient penalty at real points to the critic's loss (Mescheder
 * et al. 2018). */
#include <math.h>
#include "zoo.h"

enum { NOISE = 8, WIDTH = 64, LAYERS = 3, BATCH = 512, STEPS = 500, SECTORS = 8 };

struct gan {
    struct ckpt_nn_linear generator[LAYERS + 1], critic[LAYERS + 1];
    double r1;
};

static void create(struct ckpt_nn_linear *layer, ckpt *c, int64_t in, int64_t out, const char *name)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    for (int i = 0; i <= LAYERS; i++, in = WIDTH)
        layer[i] = ckpt_nn_linear(&nn, in, i < LAYERS ? WIDTH : out, true, "%s.%d", name, i);
}

static ckpt_tensor apply(const struct ckpt_nn_linear *layer, ckpt_tape *t, ckpt_tensor x)
{
    for (int i = 0; i < LAYERS; i++)
        x = ckpt_leaky_relu(t, ckpt_nn_apply_linear(t, &layer[i], x), 0.2f);
    return ckpt_nn_apply_linear(t, &layer[LAYERS], x);
}

static ckpt_tensor generate(const struct gan *m, ckpt_tape *t, int64_t batch)
{
    ckpt_label(t, "generator");
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 2, (int64_t[]){batch, NOISE});
    zoo_keep(t, "noise", noise);
    return apply(m->generator, t, noise);
}

/* Mean of softplus(sign score): sign -1 trains towards "real", 1 towards "generated". */
static ckpt_tensor judge(const struct gan *m, ckpt_tape *t, ckpt_tensor x, float sign)
{
    ckpt_label(t, "critic");
    x = ckpt_softplus(t, ckpt_affine(t, apply(m->critic, t, x), sign, 0));
    return ckpt_reshape(t, ckpt_mean(t, x, 3u), 0, NULL);
}

/* WEIGHT / 2 times the mean of |d score / dx|^2. */
static ckpt_tensor penalise(const struct gan *m, ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor slope;

    ckpt_gradients(t, apply(m->critic, t, x), 1, &x, &slope);
    slope = ckpt_sum(t, ckpt_mul(t, slope, slope), 1u << 1);
    return ckpt_reshape(t, ckpt_affine(t, ckpt_mean(t, slope, 3u), (float)m->r1 / 2, 0), 0, NULL);
}

static ckpt_tensor record_critic(ckpt_tape *t, int64_t batch, void *user)
{
    const struct gan *m = user;
    ckpt_tensor real = ckpt_input(t, "real", CKPT_F32, 2, (int64_t[]){batch, 2});
    ckpt_tensor loss = ckpt_add(t, judge(m, t, real, -1), judge(m, t, generate(m, t, batch), 1));
    return m->r1 > 0 ? ckpt_add(t, loss, penalise(m, t, real)) : loss;
}

static ckpt_tensor record_generator(ckpt_tape *t, int64_t batch, void *user)
{
    return judge(user, t, generate(user, t, batch), -1);
}

static ckpt_tensor record_points(ckpt_tape *t, int64_t batch, void *user)
{
    return zoo_output(t, "point", generate(user, t, batch));
}

/* AdamW with little momentum, usual for GANs, for all parameters except the `frozen` network's. */
static ckpt_optimizer *optimizer(ckpt *c, const char *frozen)
{
    struct ckpt_optimizer_group group = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_adamw settings = CKPT_ADAMW_INIT;

    settings.lr = 1e-3f;
    settings.beta1 = 0.5f;
    ckpt_optimizer *o = ckpt_adamw(c, &settings);
    group.frozen = true;
    ckpt_optimizer_group(o, frozen, &group);
    return o;
}

static float real[BATCH][2];

/* Points near the circle. */
static void draw(uint64_t step)
{
    float u[BATCH];

    ckpt_fill_uniform(1, step, 1, u, BATCH);
    ckpt_fill_normal(1, step, 2, &real[0][0], BATCH * 2);
    for (int b = 0; b < BATCH; b++) {
        real[b][0] = cosf(u[b] * 6.2831853f) + 0.05f * real[b][0];
        real[b][1] = sinf(u[b] * 6.2831853f) + 0.05f * real[b][1];
    }
}

/* Draws points; *learned: they lie near the circle and cover all of it. */
static int test(ckpt_program *p, bool *learned)
{
    static float point[BATCH][2];
    int sector[SECTORS] = {0}, rarest = BATCH;
    double error = 0;

    if (ckpt_step(p, NULL) || ckpt_fetch(p, "point", point, sizeof point))
        return -1;
    for (int b = 0; b < BATCH; b++) {
        float turn = atan2f(point[b][1], point[b][0]) / 6.2831853f + 0.5f;
        sector[(int)(turn * SECTORS) % SECTORS]++;
        error += fabs(hypot(point[b][0], point[b][1]) - 1) / BATCH;
    }
    for (int i = 0; i < SECTORS; i++)
        rarest = sector[i] < rarest ? sector[i] : rarest;
    printf("learned: points are %.3f off the circle, %.1f %% are in the rarest of %d sectors\n",
           error, 100. * rarest / BATCH, SECTORS);
    *learned = error < 0.15 && rarest > BATCH / SECTORS / 3;
    return 0;
}

static const struct zoo_data data = {draw, {{"real", real}}};
static const struct zoo_steps steps = {.batch = BATCH, .steps = STEPS};

int main(int argc, char **argv)
{
    static const struct ckpt_option own[] = {
        CKPT_OPTION_RANGE(struct gan, "r1", FLOAT, r1, "WEIGHT",
                          "weight of the penalty on the critic's gradient (default 0)", 0, 1e6),
        {NULL, CKPT_OPT_FLAG, 0, NULL, NULL, {0, 0}}};
    static struct gan m;
    ckpt *c = zoo_open(argc, argv, own, &m);

    create(m.generator, c, NOISE, 2, "generator");
    create(m.critic, c, 2, 1, "critic");
    struct zoo_run run = {&m,
                          {{record_critic, optimizer(c, "generator.*"), &data, "critic."},
                           {record_generator, optimizer(c, "critic.*"), NULL, "generator."}},
                          record_points,
                          test};
    return zoo_run(c, &run, &steps);
}
