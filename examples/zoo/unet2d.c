/* SPDX-License-Identifier: Apache-2.0 */
/* unet2d: a U-Net (Ronneberger et al. 2015) with group norm classifies every pixel of a noisy
 * picture: disc, cross or background. */
#include <math.h>
#include "ckpt_nn.h"
#include "zoo.h"

enum { SIDE = 32, CLASSES = 3, SHAPES = 3, LEVELS = 3, WIDTH = 8, GROUPS = 4 };
enum { BATCH = 32, STEPS = 40, TESTS = 2 };

struct layer { /* a convolution, group norm, SiLU */
    struct ckpt_nn_conv conv;
    struct ckpt_nn_norm norm; /* of each channel: weight and bias */
};

struct unet {
    struct layer down[LEVELS][2], up[LEVELS - 1][2];
    struct ckpt_nn_conv head;
};

static struct layer layer(const struct ckpt_nn *nn, int in, int out, const char *side, int i, int k)
{
    return (struct layer){
        ckpt_nn_conv(nn, in, out, 2, (int64_t[]){3, 3}, NULL, false, "%s.%d.conv.%d", side, i, k),
        ckpt_nn_layer_norm(nn, out, 1e-5f, "%s.%d.norm.%d", side, i, k)};
}

static void create(struct unet *m, ckpt *c)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    for (int i = 0; i < LEVELS; i++) {
        int width = WIDTH << i;
        m->down[i][0] = layer(&nn, i ? width / 2 : 1, width, "down", i, 0);
        m->down[i][1] = layer(&nn, width, width, "down", i, 1);
        if (i == LEVELS - 1)
            break;
        m->up[i][0] = layer(&nn, 3 * width, width, "up", i, 0); /* 2 width upsampled, width skip */
        m->up[i][1] = layer(&nn, width, width, "up", i, 1);
    }
    m->head = ckpt_nn_conv(&nn, WIDTH, CLASSES, 2, (int64_t[]){1, 1}, NULL, true, "head");
}

/* Two layers; height and width stay the same. */
static ckpt_tensor apply(ckpt_tape *t, const struct layer m[2], ckpt_tensor x)
{
    struct ckpt_conv_spec same = CKPT_CONV_INIT;

    for (int i = 0; i < 2; i++)
        same.before[i] = same.after[i] = 1;
    for (int k = 0; k < 2; k++) {
        x = ckpt_nn_apply_conv(t, &m[k].conv, x, &same);
        x = ckpt_group_norm_silu(t, x, m[k].norm.weight, m[k].norm.bias, GROUPS, 1e-5f, true);
    }
    return x;
}

/* Logits of the classes at every pixel, [batch, SIDE, SIDE, CLASSES]. */
static ckpt_tensor forward(const struct unet *m, ckpt_tape *t, int64_t batch)
{
    ckpt_tensor x = ckpt_input(t, "picture", CKPT_F32, 4, (int64_t[]){batch, SIDE, SIDE, 1});
    ckpt_tensor across[LEVELS];

    for (int i = 0; i < LEVELS; i++) {
        ckpt_label(t, "down.%d", i);
        if (i > 0)
            x = ckpt_max_pool(t, x, (int64_t[]){2, 2}, NULL);
        across[i] = x = apply(t, m->down[i], x);
    }
    for (int i = LEVELS - 2; i >= 0; i--) {
        ckpt_label(t, "up.%d", i);
        x = ckpt_upsample_nearest(t, x, (int64_t[]){2, 2});
        x = apply(t, m->up[i], ckpt_concat(t, 3, 2, (ckpt_tensor[]){across[i], x}));
    }
    ckpt_label(t, "head");
    return ckpt_nn_apply_conv(t, &m->head, x, NULL);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor class = ckpt_input(t, "class", CKPT_I32, 3, (int64_t[]){batch, SIDE, SIDE});
    return ckpt_cross_entropy(t, forward(user, t, batch), class, NULL);
}

static ckpt_tensor record_answer(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor answer = ckpt_argmax(t, forward(user, t, batch), 3);
    ckpt_output(t, "answer", answer);
    return answer;
}

/* Bright discs and dark crosses in noise; later shapes cover earlier ones. */
static void draw(uint64_t step, float picture[BATCH][SIDE][SIDE], int32_t class[BATCH][SIDE][SIDE])
{
    static float u[BATCH][SHAPES][4];

    ckpt_fill_uniform(1, step, 1, &u[0][0][0], BATCH * SHAPES * 4);
    ckpt_fill_normal(1, step, 2, &picture[0][0][0], BATCH * SIDE * SIDE);
    for (int i = 0; i < BATCH * SIDE * SIDE; i++) {
        int b = i / (SIDE * SIDE), y = i / SIDE % SIDE, x = i % SIDE;
        class[b][y][x] = 0;
        for (int s = 0; s < SHAPES; s++) {
            float dx = fabsf((float)x - u[b][s][0] * SIDE),
                  dy = fabsf((float)y - u[b][s][1] * SIDE);
            float radius = 4 + 3 * u[b][s][2];
            int kind = u[b][s][3] < 0.5f ? 1 : 2;
            bool cross = fminf(dx, dy) < 0.3f * radius && fmaxf(dx, dy) < radius;
            if (kind == 1 ? hypotf(dx, dy) < radius : cross)
                class[b][y][x] = kind;
        }
        picture[b][y][x] = 0.4f * picture[b][y][x] + (class[b][y][x] == 1   ? 1.f
                                                      : class[b][y][x] == 2 ? -1.f
                                                                            : 0.f);
    }
}

/* Training steps, or test steps that count pixels of class k: over[k][0] in both answer and truth,
 * over[k][1] in at least one of them. */
static int run(ckpt_program *p, int begin, int end, double (*over)[2])
{
    static float picture[BATCH][SIDE][SIDE], loss;
    static int32_t class[BATCH][SIDE][SIDE], answer[BATCH][SIDE][SIDE];
    struct ckpt_schedule cosine = CKPT_SCHEDULE_INIT;

    cosine.kind = CKPT_SCHEDULE_COSINE;
    cosine.total = STEPS;
    for (int step = begin; step < end; step++) {
        draw((uint64_t)step, picture, class);
        if (ckpt_set_lr(p, (float)ckpt_schedule(&cosine, 1e-2, step)) ||
            zoo_feed(p, "picture", picture, sizeof picture) ||
            (!over && zoo_feed(p, "class", class, sizeof class)) ||
            zoo_step(p, over ? NULL : &loss) ||
            (over && ckpt_fetch(p, "answer", answer, sizeof answer)))
            return -1;
        if (!over)
            zoo_print(step, STEPS, loss);
        for (int i = 0; over && i < BATCH * SIDE * SIDE; i++) {
            int truth = (&class[0][0][0])[i], said = (&answer[0][0][0])[i];
            over[truth][0] += said == truth;
            over[truth][1]++;
            over[said][1] += said != truth;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    double over[CLASSES][2] = {{0}}, mean = 0;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *training, *testing;
    struct ckpt_options opt;
    struct unet model;
    ckpt *c = zoo_open(&opt, argc, argv);

    if (!c)
        return 2;
    create(&model, c);
    int failed = zoo_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH, &training) ||
                 ckpt_compile(c, record_answer, &model, NULL, BATCH, &testing);
    if (!failed)
        ckpt_plan_print(training, stdout);
    if (failed || opt.plan_only)
        return zoo_close(c, failed, true);
    failed = run(training, 0, zoo_steps(STEPS), NULL) || run(testing, STEPS, STEPS + TESTS, over);
    for (int k = 0; k < CLASSES; k++)
        mean += over[k][0] / fmax(over[k][1], 1) / CLASSES;
    if (!failed)
        printf("learned: the mean intersection over union is %.3f on new pictures\n", mean);
    return zoo_close(c, failed, mean > 0.75);
}
