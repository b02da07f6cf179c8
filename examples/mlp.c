/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mlp: the introductory example.  A two-layer perceptron learns to classify ten patterns within a
 * memory budget:
 *
 *     mlp --vram 2700K
 *     mpirun -np 4 mlp --ranks mpi        four processes, each with its own batches
 *
 * The data are generated here: ten smooth random templates of 16 x 16 pixels, shifted and noised.
 */
#include <stdio.h>
#include "ckpt_dist.h"
#include "ckpt_tools.h"

enum { SIDE = 16, PIXELS = SIDE * SIDE, CLASSES = 10, HIDDEN = 256, BATCH = 256, STEPS = 200 };

struct mlp {
    ckpt_tensor w1, b1, w2, b2, w3, b3;
};

/* Records one micro-batch and returns its loss. */
static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct mlp *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, PIXELS});
    ckpt_tensor label = ckpt_input(t, "label", CKPT_I32, 1, (int64_t[]){batch});
    ckpt_tensor h = ckpt_gelu_tanh(t, ckpt_linear(t, x, m->w1, m->b1));
    h = ckpt_gelu_tanh(t, ckpt_linear(t, h, m->w2, m->b2));
    return ckpt_cross_entropy(t, ckpt_linear(t, h, m->w3, m->b3), label, NULL);
}

static void create(struct mlp *m, ckpt *c)
{
    m->w1 =
        ckpt_param(c, "fc1.weight", CKPT_F32, 2, (int64_t[]){HIDDEN, PIXELS}, CKPT_XAVIER, true);
    m->b1 = ckpt_param(c, "fc1.bias", CKPT_F32, 1, (int64_t[]){HIDDEN}, CKPT_ZEROS, true);
    m->w2 =
        ckpt_param(c, "fc2.weight", CKPT_F32, 2, (int64_t[]){HIDDEN, HIDDEN}, CKPT_XAVIER, true);
    m->b2 = ckpt_param(c, "fc2.bias", CKPT_F32, 1, (int64_t[]){HIDDEN}, CKPT_ZEROS, true);
    m->w3 =
        ckpt_param(c, "fc3.weight", CKPT_F32, 2, (int64_t[]){CLASSES, HIDDEN}, CKPT_XAVIER, true);
    m->b3 = ckpt_param(c, "fc3.bias", CKPT_F32, 1, (int64_t[]){CLASSES}, CKPT_ZEROS, true);
}

/* One batch: a template of the label's class, shifted by up to two pixels each way, plus noise. */
static void draw(uint64_t seed, uint64_t step, float x[BATCH][PIXELS], int32_t label[BATCH])
{
    static float pattern[CLASSES][PIXELS], place[BATCH][3];

    ckpt_fill_normal(seed, 0, 1, &pattern[0][0], CLASSES * PIXELS);
    ckpt_fill_uniform(seed, step, 2, &place[0][0], BATCH * 3);
    ckpt_fill_normal(seed, step, 3, &x[0][0], BATCH * PIXELS);
    for (int b = 0; b < BATCH; b++) {
        label[b] = (int32_t)(place[b][0] * CLASSES);
        int down = (int)(place[b][1] * 3), right = (int)(place[b][2] * 3);
        for (int p = 0; p < PIXELS; p++) {
            int row = (p / SIDE + down) % SIDE / 4 * 4, column = (p + right) % SIDE / 4 * 4;
            x[b][p] = 0.3f * pattern[label[b]][row * SIDE + column] + x[b][p];
        }
    }
}

static int train(const ckpt *c, ckpt_program *p, uint64_t seed)
{
    static float x[BATCH][PIXELS];
    static int32_t label[BATCH];

    for (int step = 0; step < STEPS; step++) {
        float loss;
        draw(seed, (uint64_t)(step * ckpt_ranks(c) + ckpt_rank(c)), x, label);
        if (ckpt_feed(p, "x", x, sizeof x) || ckpt_feed(p, "label", label, sizeof label) ||
            ckpt_step(p, &loss))
            return -1;
        if (ckpt_rank(c) == 0 && (step % 20 == 0 || step == STEPS - 1))
            printf("step %3d  loss %.4f\n", step + 1, loss);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct mlp model;
    ckpt_program *program;
    ckpt *c = NULL;

    if (ckpt_options_parse(&opt, &argc, argv) ||
        ckpt_options_reject(argc, argv, 1, (const struct ckpt_option *[]){ckpt_options_table()}) ||
        ckpt_open(&c, &opt)) {
        fprintf(stderr, "mlp: %s\n", ckpt_error(NULL));
        return 2;
    }
    create(&model, c);
    adamw.lr = 1e-3f;
    int failed = ckpt_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH,
                              &program); /* fails here if the budget is too small, never later */
    if (!failed) {
        if (ckpt_rank(c) == 0)
            ckpt_plan_print(program, stdout);
        failed = opt.plan_only ? 0 : train(c, program, (uint64_t)opt.seed);
        failed = failed ? failed : ckpt_unwritten(c); /* output files such as --machine-out */
    }
    if (failed)
        fprintf(stderr, "mlp: %s\n", ckpt_error(c));
    ckpt_close(c);
    return failed ? 1 : 0;
}
