/* SPDX-License-Identifier: Apache-2.0 */
/* vit: a small vision transformer (Dosovitskiy et al. 2020) classifies the shape in a noisy picture
 * of 16 x 16 pixels.  Patches become tokens; a class token before them collects the answer. */
#include <math.h>
#include "ckpt_nn.h"
#include "zoo.h"

enum { SIDE = 16, PATCH = 4, PLACES = (SIDE / PATCH) * (SIDE / PATCH), SHAPES = 4 };
enum { WIDTH = 64, HEADS = 4, LAYERS = 2, BATCH = 64, STEPS = 200, TESTS = 4 };

struct block {
    struct ckpt_nn_norm norm1, norm2;
    struct ckpt_nn_attention attention;
    struct ckpt_nn_mlp mlp;
};

struct vit {
    struct ckpt_nn_linear patch, head;
    ckpt_tensor first, places; /* class token; position embedding */
    struct block block[LAYERS];
    struct ckpt_nn_norm norm;
};

static void create(struct vit *m, ckpt *c)
{
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    attention.width = mlp.width = WIDTH;
    attention.heads = HEADS;
    mlp.inner = 4 * WIDTH;
    m->patch = ckpt_nn_linear(&nn, PATCH * PATCH, WIDTH, true, "patch");
    m->first = ckpt_param(c, "first", CKPT_F32, 3, (int64_t[]){1, 1, WIDTH}, CKPT_ZEROS, true);
    m->places = ckpt_param(c, "places", CKPT_F32, 2, (int64_t[]){PLACES + 1, WIDTH},
                           CKPT_NORMAL(0.02f), true);
    for (int i = 0; i < LAYERS; i++) {
        struct block *b = &m->block[i];
        b->norm1 = ckpt_nn_layer_norm(&nn, WIDTH, 1e-6f, "block.%d.norm1", i);
        b->attention = ckpt_nn_attention(&nn, &attention, "block.%d.attention", i);
        b->norm2 = ckpt_nn_layer_norm(&nn, WIDTH, 1e-6f, "block.%d.norm2", i);
        b->mlp = ckpt_nn_mlp(&nn, &mlp, "block.%d.mlp", i);
    }
    m->norm = ckpt_nn_layer_norm(&nn, WIDTH, 1e-6f, "norm");
    m->head = ckpt_nn_linear(&nn, WIDTH, SHAPES, true, "head");
}

/* Logits of the shapes, [batch, SHAPES]. */
static ckpt_tensor forward(const struct vit *m, ckpt_tape *t, int64_t batch)
{
    ckpt_tensor x = ckpt_input(t, "picture", CKPT_F32, 5, (int64_t[]){batch, 1, 1, SIDE, SIDE});

    x = ckpt_squeeze(t, ckpt_patchify(t, x, 1, PATCH, PATCH), 1); /* [batch, PLACES, pixels] */
    x = ckpt_nn_apply_linear(t, &m->patch, x);
    ckpt_tensor first = ckpt_expand(t, m->first, 3, (int64_t[]){batch, 1, WIDTH});
    x = ckpt_add(t, ckpt_concat(t, 1, 2, (ckpt_tensor[]){first, x}), m->places);
    for (int i = 0; i < LAYERS; i++) {
        const struct block *b = &m->block[i];
        ckpt_label(t, "block.%d", i);
        ckpt_tensor u = ckpt_nn_apply_norm(t, &b->norm1, x);
        x = ckpt_nn_apply_attention_add(t, &b->attention, u, CKPT_NONE, CKPT_NONE, NULL, x);
        x = ckpt_nn_apply_mlp_add(t, &b->mlp, ckpt_nn_apply_norm(t, &b->norm2, x), x);
    }
    ckpt_label(t, "head");
    x = ckpt_squeeze(t, ckpt_slice(t, x, 1, 0, 1), 1); /* the class token alone */
    return ckpt_nn_apply_linear(t, &m->head, ckpt_nn_apply_norm(t, &m->norm, x));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor shape = ckpt_input(t, "shape", CKPT_I32, 1, (int64_t[]){batch});
    return ckpt_cross_entropy(t, forward(user, t, batch), shape, NULL);
}

static ckpt_tensor record_answer(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor answer = ckpt_argmax(t, forward(user, t, batch), 1);
    ckpt_output(t, "answer", answer);
    return answer;
}

/* Whether a shape of radius 1 covers (x, y): disc, ring, upright cross, diagonal cross. */
static bool covers(int shape, float x, float y)
{
    float r = hypotf(x, y), ax = fabsf(x), ay = fabsf(y);
    switch (shape) {
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

/* A batch of shapes of random size and position, in noise. */
static void draw(uint64_t step, float picture[BATCH][SIDE][SIDE], int32_t shape[BATCH])
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

static int train(ckpt_program *p)
{
    static float picture[BATCH][SIDE][SIDE];
    struct ckpt_schedule cosine = CKPT_SCHEDULE_INIT;
    int32_t shape[BATCH];
    float loss;

    cosine.kind = CKPT_SCHEDULE_COSINE;
    cosine.warmup = 10;
    cosine.total = STEPS;
    for (int step = 0; step < zoo_steps(STEPS); step++) {
        draw((uint64_t)step, picture, shape);
        if (ckpt_set_lr(p, (float)ckpt_schedule(&cosine, 2e-3, step)) ||
            zoo_feed(p, "picture", picture, sizeof picture) ||
            zoo_feed(p, "shape", shape, sizeof shape) || zoo_step(p, &loss))
            return -1;
        zoo_print(step, STEPS, loss);
    }
    return 0;
}

/* The accuracy on new pictures. */
static int test(ckpt_program *p, double *accuracy)
{
    static float picture[BATCH][SIDE][SIDE];
    int32_t shape[BATCH], answer[BATCH];
    int right = 0;

    for (int i = 0; i < TESTS; i++) {
        draw((uint64_t)(STEPS + i), picture, shape);
        if (ckpt_feed(p, "picture", picture, sizeof picture) || ckpt_step(p, NULL) ||
            ckpt_fetch(p, "answer", answer, sizeof answer))
            return -1;
        for (int b = 0; b < BATCH; b++)
            right += answer[b] == shape[b];
    }
    *accuracy = (double)right / (TESTS * BATCH);
    printf("learned: %.1f %% of new pictures are named right\n", 100 * *accuracy);
    return 0;
}

int main(int argc, char **argv)
{
    struct ckpt_options opt;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *training, *testing;
    double accuracy = 1;
    struct vit model;
    ckpt *c = zoo_open(&opt, argc, argv);

    if (!c)
        return 2;
    create(&model, c);
    int failed = zoo_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH, &training) ||
                 ckpt_compile(c, record_answer, &model, NULL, BATCH, &testing);
    if (!failed)
        ckpt_plan_print(training, stdout);
    if (!failed && !opt.plan_only)
        failed = train(training) || test(testing, &accuracy);
    return zoo_close(c, failed, accuracy > 0.9);
}
