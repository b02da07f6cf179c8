/* SPDX-License-Identifier: Apache-2.0 */
/* unet2d: a U-Net (Ronneberger et al. 2015) with group norm classifies every pixel of a noisy
 * picture: disc, cross or background. */
#include <math.h>
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
static ckpt_tensor forward(ckpt_tape *t, int64_t batch, bool training, const void *model)
{
    const struct unet *m = model;
    ckpt_tensor x = ckpt_input(t, "picture", CKPT_F32, 4, (int64_t[]){batch, SIDE, SIDE, 1});
    ckpt_tensor across[LEVELS];

    (void)training;
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

static float picture[BATCH][SIDE][SIDE];
static int32_t class[BATCH][SIDE][SIDE];

/* Bright discs and dark crosses in noise; later shapes cover earlier ones. */
static void draw(uint64_t step)
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

/* The intersection over union, mean of the classes: pixels of class k in both answer and truth, by
 * those in at least one of them. */
static bool judge(const int64_t *n, int classes)
{
    double mean = 0;

    for (int k = 0; k < classes; k++) {
        int64_t any = -n[k * classes + k];
        for (int i = 0; i < classes; i++)
            any += n[k * classes + i] + n[i * classes + k];
        mean += (double)n[k * classes + k] / fmax((double)any, 1) / classes;
    }
    printf("learned: the mean intersection over union is %.3f on new pictures\n", mean);
    return mean > 0.75;
}

static const struct zoo_data data = {draw, {{"class", class}, {"picture", picture}}};
static const struct zoo_steps steps = {.batch = BATCH, .steps = STEPS, .tests = TESTS, .lr = 1e-2};

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct unet model;
    ckpt *c = zoo_open(argc, argv, NULL, NULL);

    create(&model, c);
    struct zoo_classifier z = {&model, forward, &data, ckpt_adamw(c, &adamw), judge, NULL};
    return zoo_classify(c, &z, &steps);
}
