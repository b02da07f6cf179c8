/* SPDX-License-Identifier: Apache-2.0 */
/* resnet: a residual network (He et al. 2015) of 18 layers, or with --bottleneck of 50, classifies
 * the direction of stripes in noisy pictures.  The stem is one 3 x 3 convolution, as for CIFAR.
 * Batch norm updates its running statistics during training; the inference program uses them. */
#include <math.h>
#include "zoo.h"

enum { SIDE = 16, COLOURS = 3, CLASSES = 6, STAGES = 4, WIDTH = 8, MOST = 6 };
enum { BATCH = 80, STEPS = 50, TESTS = 4 };

struct layer { /* a convolution and batch norm */
    struct ckpt_nn_conv conv;
    struct ckpt_nn_batch_norm norm;
    struct ckpt_conv_spec spec;
};

struct block {
    struct layer layer[3], shortcut; /* the shortcut has a convolution where sizes change */
    int layers;
};

struct resnet {
    struct layer stem;
    struct block block[STAGES][MOST];
    struct ckpt_nn_linear head;
    bool bottleneck;
};

static const int BLOCKS[2][STAGES] = {{2, 2, 2, 2}, {3, 4, 6, 3}}; /* plain, bottleneck */

static struct layer layer(const struct ckpt_nn *nn, int64_t in, int64_t out, int64_t kernel,
                          int64_t stride, const char *name, const char *part)
{
    struct layer l = {.spec = CKPT_CONV_INIT};

    for (int i = 0; i < 2; i++)
        l.spec.before[i] = l.spec.after[i] = kernel / 2, l.spec.stride[i] = stride;
    l.conv = ckpt_nn_conv(nn, in, out, 2, (int64_t[]){kernel, kernel}, NULL, false, "%s%s.conv",
                          name, part);
    l.norm = ckpt_nn_batch_norm(nn, out, 0.1f, 1e-5f, "%s%s.norm", name, part);
    return l;
}

/* Two convolutions of 3 x 3; or one between two of 1 x 1, of which the last is four times wider.  A
 * new block is the identity: the weight of its last batch norm is 0 (Goyal et al. 2017). */
static struct block block(const struct ckpt_nn *nn, bool bottleneck, int64_t in, int64_t width,
                          int64_t stride, const char *name)
{
    static const char *const part[] = {".0", ".1", ".2"};
    static const float zeros[WIDTH << (STAGES + 1)];
    const int64_t out = bottleneck ? 4 * width : width;
    struct block b = {.layers = bottleneck ? 3 : 2};

    for (int k = 0; k < b.layers; k++) {
        bool wide = !bottleneck || k == 1; /* 3 x 3; the first 3 x 3 convolution has the stride */
        b.layer[k] = layer(nn, k ? width : in, k == b.layers - 1 ? out : width, wide ? 3 : 1,
                           k == bottleneck ? stride : 1, name, part[k]);
    }
    ckpt_param_set(nn->context, b.layer[b.layers - 1].norm.weight, CKPT_VALUE, zeros, out);
    if (in != out || stride > 1)
        b.shortcut = layer(nn, in, out, 1, stride, name, ".shortcut");
    return b;
}

static void create(struct resnet *m, ckpt *c)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    int64_t in = WIDTH;

    nn.context = c;
    m->stem = layer(&nn, COLOURS, WIDTH, 3, 1, "stem", "");
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < BLOCKS[m->bottleneck][s]; i++) {
            char name[32];
            snprintf(name, sizeof name, "stage.%d.%d", s, i);
            m->block[s][i] = block(&nn, m->bottleneck, in, WIDTH << s, s && !i ? 2 : 1, name);
            in = (m->bottleneck ? 4 : 1) * WIDTH << s;
        }
    m->head = ckpt_nn_linear(&nn, in, CLASSES, true, "head");
}

static ckpt_tensor apply(ckpt_tape *t, const struct layer *m, ckpt_tensor x, bool training)
{
    x = ckpt_nn_apply_conv(t, &m->conv, x, &m->spec);
    return ckpt_nn_apply_batch_norm(t, &m->norm, x, training);
}

/* Logits of the directions, [batch, CLASSES]. */
static ckpt_tensor forward(ckpt_tape *t, int64_t batch, bool training, const void *model)
{
    const struct resnet *m = model;
    int64_t shape[] = {batch, SIDE, SIDE, COLOURS};
    ckpt_tensor x = ckpt_input(t, "picture", CKPT_F32, 4, shape);

    x = ckpt_relu(t, apply(t, &m->stem, x, training));
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < BLOCKS[m->bottleneck][s]; i++) {
            const struct block *b = &m->block[s][i];
            ckpt_label(t, "stage.%d.%d", s, i);
            ckpt_tensor u = x;
            for (int k = 0; k < b->layers; k++)
                u = apply(t, &b->layer[k], k ? ckpt_relu(t, u) : u, training);
            x = b->shortcut.conv.weight.id ? apply(t, &b->shortcut, x, training) : x;
            x = ckpt_relu(t, ckpt_add(t, x, u));
        }
    ckpt_label(t, "head");
    x = ckpt_squeeze(t, ckpt_squeeze(t, ckpt_mean(t, x, 1u << 1 | 1u << 2), 2), 1);
    return ckpt_nn_apply_linear(t, &m->head, x);
}

static float picture[BATCH][SIDE][SIDE][COLOURS];
static int32_t direction[BATCH];

/* Stripes of any width and colour, in noise. */
static void draw(uint64_t step)
{
    static float u[BATCH][2 + COLOURS];

    ckpt_fill_uniform(1, step, 1, &u[0][0], BATCH * (2 + COLOURS));
    ckpt_fill_normal(1, step, 2, &picture[0][0][0][0], BATCH * SIDE * SIDE * COLOURS);
    for (int b = 0; b < BATCH; b++) {
        direction[b] = (int32_t)(u[b][0] * CLASSES);
        float angle = 3.1415927f * (float)direction[b] / CLASSES, speed = 0.6f + 0.6f * u[b][1];
        for (int i = 0; i < SIDE * SIDE * COLOURS; i++) {
            int y = i / (SIDE * COLOURS), x = i / COLOURS % SIDE, k = i % COLOURS;
            float along = (float)x * cosf(angle) + (float)y * sinf(angle);
            picture[b][y][x][k] += 2 * sinf(speed * along + 6.2831853f * u[b][2 + k]);
        }
    }
}

static const struct zoo_data data = {draw, {{"direction", direction}, {"picture", picture}}};
static const struct zoo_steps steps = {.batch = BATCH, .steps = STEPS, .tests = TESTS, .lr = 0.5};

int main(int argc, char **argv)
{
    static const struct ckpt_option own[] = {
        CKPT_OPTION(struct resnet, "bottleneck", FLAG, bottleneck, NULL,
                    "use 50 layers with bottleneck blocks instead of 18"),
        {NULL, CKPT_OPT_FLAG, 0, NULL, NULL, {0, 0}}};
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    static struct resnet model;
    ckpt *c = zoo_open(argc, argv, own, &model);

    create(&model, c);
    sgd.momentum = 0.9f;
    sgd.weight_decay = 5e-4f;
    struct zoo_classifier z = {&model, forward, &data, ckpt_sgd(c, &sgd), NULL, NULL};
    return zoo_classify(c, &z, &steps);
}
