/* SPDX-License-Identifier: Apache-2.0 */
/* vit: a small vision transformer (Dosovitskiy et al. 2020) classifies the shape in a noisy picture
 * of 16 x 16 pixels.  Patches become tokens; a class token before them collects the answer. */
#include <math.h>
#include "zoo.h"

enum { SIDE = 16, PATCH = 4, PLACES = (SIDE / PATCH) * (SIDE / PATCH), SHAPES = 4 };
enum { WIDTH = 64, HEADS = 4, LAYERS = 2, BATCH = 64, STEPS = 200, TESTS = 4 };

struct vit {
    struct ckpt_nn_linear patch, head;
    ckpt_tensor first, places; /* class token; position embedding */
    struct ckpt_nn_transformer_layer block[LAYERS];
    struct ckpt_nn_norm norm;
};

static void create(struct vit *m, ckpt *c)
{
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    attention.width = mlp.width = WIDTH;
    attention.heads = HEADS;
    mlp.inner = 4 * WIDTH;
    layer.attention = &attention;
    layer.mlp = &mlp;
    layer.eps = 1e-6f;
    m->patch = ckpt_nn_linear(&nn, PATCH * PATCH, WIDTH, true, "patch");
    m->first = ckpt_param(c, "first", CKPT_F32, 3, (int64_t[]){1, 1, WIDTH}, CKPT_ZEROS, true);
    m->places = ckpt_param(c, "places", CKPT_F32, 2, (int64_t[]){PLACES + 1, WIDTH},
                           CKPT_NORMAL(0.02f), true);
    for (int i = 0; i < LAYERS; i++)
        m->block[i] = ckpt_nn_transformer_layer(&nn, &layer, "block.%d", i);
    m->norm = ckpt_nn_layer_norm(&nn, WIDTH, 1e-6f, "norm");
    m->head = ckpt_nn_linear(&nn, WIDTH, SHAPES, true, "head");
}

/* Logits of the shapes, [batch, SHAPES]. */
static ckpt_tensor forward(ckpt_tape *t, int64_t batch, bool training, const void *model)
{
    const struct vit *m = model;
    ckpt_tensor x = ckpt_input(t, "picture", CKPT_F32, 5, (int64_t[]){batch, 1, 1, SIDE, SIDE});

    (void)training;
    x = ckpt_squeeze(t, ckpt_patchify(t, x, 1, PATCH, PATCH), 1); /* [batch, PLACES, pixels] */
    x = ckpt_nn_apply_linear(t, &m->patch, x);
    ckpt_tensor first = ckpt_expand(t, m->first, 3, (int64_t[]){batch, 1, WIDTH});
    x = ckpt_add(t, ckpt_concat(t, 1, 2, (ckpt_tensor[]){first, x}), m->places);
    for (int i = 0; i < LAYERS; i++) {
        ckpt_label(t, "block.%d", i);
        x = ckpt_nn_apply_transformer_layer(t, &m->block[i], x, CKPT_NONE, CKPT_NONE, NULL);
    }
    ckpt_label(t, "head");
    x = ckpt_squeeze(t, ckpt_slice(t, x, 1, 0, 1), 1); /* the class token alone */
    return ckpt_nn_apply_linear(t, &m->head, ckpt_nn_apply_norm(t, &m->norm, x));
}

/* Whether a shape of radius 1 covers (x, y): disc, ring, upright cross, diagonal cross. */
static bool covers(int kind, float x, float y)
{
    float r = hypotf(x, y), ax = fabsf(x), ay = fabsf(y);
    switch (kind) {
    case 0:
        return r < 1;
    case 1:
        return r < 1 && r > 0.55f;
    case 2:
        return fminf(ax, ay) < 0.25f && fmaxf(ax, ay) < 1;
    default:
        return fabsf(ax - ay) < 0.35f && r < 1.2f;
    }
}

static float picture[BATCH][SIDE][SIDE];
static int32_t shape[BATCH];

/* A batch of shapes of random size and position, in noise. */
static void draw(uint64_t step)
{
    float u[BATCH][4];

    ckpt_fill_uniform(1, step, 1, &u[0][0], BATCH * 4);
    ckpt_fill_normal(1, step, 2, &picture[0][0][0], BATCH * SIDE * SIDE);
    for (int b = 0; b < BATCH; b++) {
        float radius = 4 + 3 * u[b][1], room = (float)SIDE - 2 * radius;
        shape[b] = (int32_t)(u[b][0] * SHAPES);
        for (int i = 0; i < SIDE * SIDE; i++) {
            float x = ((float)(i % SIDE) + 0.5f - radius - u[b][2] * room) / radius;
            float y = ((float)(i / SIDE) + 0.5f - radius - u[b][3] * room) / radius;
            picture[b][i / SIDE][i % SIDE] *= 0.2f;
            picture[b][i / SIDE][i % SIDE] += covers(shape[b], x, y) ? 1.f : 0.f;
        }
    }
}

static const struct zoo_data data = {draw, {{"shape", shape}, {"picture", picture}}};
static const struct zoo_steps steps = {
    .batch = BATCH, .steps = STEPS, .tests = TESTS, .lr = 2e-3, .warmup = 10};

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct vit model;
    ckpt *c = zoo_open(argc, argv, NULL, NULL);

    create(&model, c);
    struct zoo_classifier z = {&model, forward, &data, ckpt_adamw(c, &adamw), NULL, NULL};
    return zoo_classify(c, &z, &steps);
}
