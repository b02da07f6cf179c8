/* SPDX-License-Identifier: Apache-2.0 */
/* gan: a generative adversarial network (Goodfellow et al. 2014) learns points on a circle.  Two
 * programs share the parameters of a context: one trains the critic with the generator frozen, the
 * other trains the generator with the critic frozen.  Each has its own optimizer.  A third program
 * draws points.  --r1 WEIGHT adds a gradient penalty at real points to the critic's loss (Mescheder
 * et al. 2018). */
#include <math.h>
#include "ckpt_nn.h"
#include "zoo.h"

enum { NOISE = 8, WIDTH = 64, LAYERS = 3, BATCH = 512, STEPS = 500, SECTORS = 8 };

struct net {
    struct ckpt_nn_linear layer[LAYERS + 1];
};

struct gan {
    struct net generator, critic;
    double r1;
};

static struct net create(const struct ckpt_nn *nn, int64_t in, int64_t out, const char *name)
{
    struct net m;

    for (int i = 0; i <= LAYERS; i++)
        m.layer[i] =
            ckpt_nn_linear(nn, i ? WIDTH : in, i < LAYERS ? WIDTH : out, true, "%s.%d", name, i);
    return m;
}

static ckpt_tensor apply(const struct net *m, ckpt_tape *t, ckpt_tensor x)
{
    for (int i = 0; i < LAYERS; i++)
        x = ckpt_leaky_relu(t, ckpt_nn_apply_linear(t, &m->layer[i], x), 0.2f);
    return ckpt_nn_apply_linear(t, &m->layer[LAYERS], x);
}

static ckpt_tensor generate(const struct gan *m, ckpt_tape *t, int64_t batch)
{
    ckpt_label(t, "generator");
    ckpt_tensor noise = ckpt_randn(t, CKPT_F32, 2, (int64_t[]){batch, NOISE});
    zoo_keep(t, "noise", noise);
    return apply(&m->generator, t, noise);
}

/* Mean of softplus(sign score): sign -1 trains towards "real", 1 towards "generated". */
static ckpt_tensor judge(const struct gan *m, ckpt_tape *t, ckpt_tensor x, float sign)
{
    ckpt_label(t, "critic");
    x = ckpt_softplus(t, ckpt_affine(t, apply(&m->critic, t, x), sign, 0));
    return ckpt_reshape(t, ckpt_mean(t, x, 3u), 0, NULL);
}

/* WEIGHT / 2 times the mean of |d score / dx|^2. */
static ckpt_tensor penalise(const struct gan *m, ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor slope;

    ckpt_gradients(t, apply(&m->critic, t, x), 1, &x, &slope);
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
    ckpt_tensor point = generate(user, t, batch);
    ckpt_output(t, "point", point);
    return point;
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

static int train(ckpt_program *critic, ckpt_program *generator)
{
    static float real[BATCH][2], u[BATCH];
    float loss, other;

    for (int step = 0; step < zoo_steps(STEPS); step++) {
        ckpt_fill_uniform(1, (uint64_t)step, 1, u, BATCH);
        ckpt_fill_normal(1, (uint64_t)step, 2, &real[0][0], BATCH * 2);
        for (int b = 0; b < BATCH; b++) {
            real[b][0] = cosf(u[b] * 6.2831853f) + 0.05f * real[b][0];
            real[b][1] = sinf(u[b] * 6.2831853f) + 0.05f * real[b][1];
        }
        if (zoo_feed(critic, "real", real, sizeof real) || zoo_step(critic, &loss) ||
            zoo_step(generator, &other))
            return -1;
        zoo_print(step, STEPS, loss + other);
    }
    return 0;
}

/* Draws points; *learned: they lie near the circle and cover all of it. */
static int draw(ckpt_program *p, bool *learned)
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

int main(int argc, char **argv)
{
    static const struct ckpt_option own[] = {
        CKPT_OPTION_RANGE(struct gan, "r1", FLOAT, r1, "WEIGHT",
                          "weight of the penalty on the critic's gradient (default 0)", 0, 1e6),
        {NULL, CKPT_OPT_FLAG, 0, NULL, NULL, {0, 0}}};
    struct ckpt_nn nn = CKPT_NN_INIT;
    struct ckpt_options opt;
    ckpt_program *critic, *generator, *drawing;
    bool learned = true;
    static struct gan m;
    ckpt *c = NULL;

    if (ckpt_option_table_parse(own, &m, &argc, argv))
        fprintf(stderr, "%s: %s\n", argv[0], ckpt_error(NULL));
    else
        c = zoo_open(&opt, argc, argv);
    if (!c)
        return 2;
    nn.context = c;
    m.generator = create(&nn, NOISE, 2, "generator");
    m.critic = create(&nn, 2, 1, "critic");
    int failed = zoo_compile_part(c, record_critic, &m, optimizer(c, "generator.*"), "critic.",
                                  BATCH, &critic) ||
                 zoo_compile_part(c, record_generator, &m, optimizer(c, "critic.*"), "generator.",
                                  BATCH, &generator) ||
                 ckpt_compile(c, record_points, &m, NULL, BATCH, &drawing);
    if (!failed) {
        ckpt_plan_print(critic, stdout);
        ckpt_plan_print(generator, stdout);
    }
    if (!failed && !opt.plan_only)
        failed = train(critic, generator) || draw(drawing, &learned);
    return zoo_close(c, failed, learned);
}
