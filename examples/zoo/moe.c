/* SPDX-License-Identifier: Apache-2.0 */
/* moe: a mixture of experts with top-2 routing (Shazeer et al. 2017; Fedus et al. 2021).  A token
 * consists of a rule number and real numbers; each rule has a random network of its own, which the
 * experts learn.  scatter_add dispatches tokens into a table of fixed capacity. */
#include <string.h>
#include "zoo.h"

enum { RULES = 6, NUMBERS = 6, IN = RULES + NUMBERS, OUT = 4, TRUE_WIDTH = 8 };
enum { WIDTH = 32, INNER = 24, EXPERTS = 8, CHOSEN = 2, LAYERS = 2, BATCH = 1024, STEPS = 300 };

struct moe {
    struct ckpt_nn_linear in, router[LAYERS], out;
    ckpt_tensor up[LAYERS], down[LAYERS]; /* [EXPERTS, WIDTH, INNER], [EXPERTS, INNER, WIDTH] */
};

static void create(struct moe *m, ckpt *c)
{
    const int64_t up_shape[] = {EXPERTS, WIDTH, INNER}, down_shape[] = {EXPERTS, INNER, WIDTH};
    static const char *const up[LAYERS] = {"layer.0.up", "layer.1.up"};
    static const char *const down[LAYERS] = {"layer.0.down", "layer.1.down"};
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    m->in = ckpt_nn_linear(&nn, IN, WIDTH, true, "in");
    for (int i = 0; i < LAYERS; i++) {
        m->router[i] = ckpt_nn_linear(&nn, WIDTH, EXPERTS, false, "layer.%d.router", i);
        m->up[i] = ckpt_param(c, up[i], CKPT_F32, 3, up_shape, CKPT_NORMAL(0.2f), true);
        m->down[i] = ckpt_param(c, down[i], CKPT_F32, 3, down_shape, CKPT_NORMAL(0.2f), true);
    }
    m->out = ckpt_nn_linear(&nn, WIDTH, OUT, true, "out");
}

/* The row of the experts' table for each choice: expert * capacity + number of earlier choices of
 * this expert.  A choice beyond the capacity gets the row after the table, which is discarded. */
static ckpt_tensor assign(ckpt_tape *t, ckpt_tensor expert, ckpt_tensor hot, float capacity)
{
    ckpt_tensor taken = ckpt_mul(t, ckpt_cumsum(t, hot, 0), hot);
    ckpt_tensor before = ckpt_affine(t, ckpt_squeeze(t, ckpt_sum(t, taken, 1u << 1), 1), 1, -1);
    ckpt_tensor late = ckpt_ge(t, before, ckpt_full(t, capacity, CKPT_F32, 0, NULL));
    ckpt_tensor row = ckpt_affine(t, ckpt_cast(t, expert, CKPT_F32), capacity, 0);

    row = ckpt_masked_fill(t, ckpt_add(t, row, before), late, EXPERTS * capacity);
    return ckpt_cast(t, row, CKPT_I32);
}

/* x [n, WIDTH] plus the output of its two experts; *load is 1 if all experts have equal load. */
static ckpt_tensor mix(ckpt_tape *t, const struct moe *m, int i, ckpt_tensor x, ckpt_tensor *load)
{
    int64_t rows = ckpt_desc_of(t, x).shape[0] * CHOSEN, capacity = rows * 5 / 4 / EXPERTS;
    ckpt_tensor expert; /* of each row of choices */
    ckpt_label(t, "layer.%d", i);
    ckpt_couple_samples(t, "experts have a capacity");
    ckpt_tensor chance = ckpt_softmax(t, ckpt_nn_apply_linear(t, &m->router[i], x), 1);
    ckpt_tensor gate = ckpt_topk(t, chance, CHOSEN, &expert); /* [n, CHOSEN] */
    gate = ckpt_div(t, gate, ckpt_sum(t, gate, 1u << 1));

    /* First choices precede second choices, so second choices are dropped when an expert is full.
     */
    expert = ckpt_reshape(t, ckpt_transpose(t, expert, 0, 1), 1, &rows);
    ckpt_tensor hot = ckpt_one_hot(t, expert, EXPERTS, CKPT_F32);
    ckpt_tensor row = assign(t, expert, hot, (float)capacity);
    *load = ckpt_mul(t, ckpt_mean(t, hot, 1u << 0), ckpt_mean(t, chance, 1u << 0));
    *load = ckpt_reshape(t, ckpt_affine(t, ckpt_sum(t, *load, 3u), EXPERTS, 0), 0, NULL);

    /* All experts at once, each on its rows of a table. */
    ckpt_tensor to = ckpt_expand(t, ckpt_unsqueeze(t, row, 1), 2, (int64_t[]){rows, WIDTH});
    ckpt_tensor y = ckpt_full(t, 0, CKPT_F32, 2, (int64_t[]){EXPERTS * capacity + 1, WIDTH});
    y = ckpt_scatter_add(t, y, 0, to, ckpt_repeat(t, x, (int64_t[]){CHOSEN, 1}));
    y = ckpt_slice(t, y, 0, 0, EXPERTS * capacity);
    y = ckpt_reshape(t, y, 3, (int64_t[]){EXPERTS, capacity, WIDTH});
    y = ckpt_gelu_tanh(t, ckpt_matmul(t, y, m->up[i], false, false));
    y = ckpt_matmul(t, y, m->down[i], false, false);
    y = ckpt_reshape(t, y, 2, (int64_t[]){EXPERTS * capacity, WIDTH});
    y = ckpt_index_select(t, ckpt_pad(t, y, 0, 0, 1, CKPT_PAD_CONSTANT, 0), 0, row);
    y = ckpt_reshape(t, y, 3, (int64_t[]){CHOSEN, -1, WIDTH});
    gate = ckpt_unsqueeze(t, ckpt_transpose(t, gate, 0, 1), 2);
    return ckpt_add(t, x, ckpt_squeeze(t, ckpt_sum(t, ckpt_mul(t, y, gate), 1u << 0), 0));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct moe *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor y = ckpt_input(t, "y", CKPT_F32, 2, (int64_t[]){batch, OUT});
    ckpt_tensor load[LAYERS], loss;

    x = ckpt_nn_apply_linear(t, &m->in, x);
    for (int i = 0; i < LAYERS; i++)
        x = mix(t, m, i, x, &load[i]);
    ckpt_label(t, "loss");
    loss = ckpt_mse(t, ckpt_nn_apply_linear(t, &m->out, x), y, CKPT_NONE);
    ckpt_output(t, "error", loss);
    for (int i = 0; i < LAYERS; i++)
        loss = ckpt_add(t, loss, ckpt_affine(t, load[i], 0.01f, 0));
    ckpt_output(t, "load", load[LAYERS - 1]);
    return loss;
}

static float x[BATCH][IN], y[BATCH][OUT];

/* y = down[rule] relu(up[rule] numbers), of variance about 1. */
static void draw(uint64_t step)
{
    static float up[RULES][TRUE_WIDTH][NUMBERS], down[RULES][OUT][TRUE_WIDTH], u[BATCH];

    ckpt_fill_normal(7, 0, 1, &up[0][0][0], RULES * TRUE_WIDTH * NUMBERS);
    ckpt_fill_normal(7, 0, 2, &down[0][0][0], RULES * OUT * TRUE_WIDTH);
    ckpt_fill_normal(7, step, 3, &x[0][0], BATCH * IN);
    ckpt_fill_uniform(7, step, 4, u, BATCH);
    memset(y, 0, sizeof y);
    for (int b = 0; b < BATCH; b++) {
        int rule = (int)(u[b] * RULES);
        for (int i = 0; i < RULES; i++)
            x[b][i] = i == rule ? 2.f : 0.f;
        for (int h = 0; h < TRUE_WIDTH; h++) {
            float sum = 0;
            for (int i = 0; i < NUMBERS; i++)
                sum += up[rule][h][i] * x[b][RULES + i];
            for (int o = 0; o < OUT; o++)
                y[b][o] += sum > 0 ? 0.2f * down[rule][o][h] * sum : 0;
        }
    }
}

/* The data are always new, so the last step's error is a test error. */
static int test(ckpt_program *p, bool *learned)
{
    float error, load;

    if (ckpt_fetch(p, "error", &error, sizeof error) || ckpt_fetch(p, "load", &load, sizeof load))
        return -1;
    printf("learned: squared error %.3f, load %.2f of an even one\n", (double)error, (double)load);
    *learned = error < 0.1f && load < 1.5f;
    return 0;
}

static const struct zoo_data data = {draw, {{"x", x}, {"y", y}}};
static const struct zoo_steps steps = {.batch = BATCH, .steps = STEPS};

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct moe model;
    ckpt *c = zoo_open(argc, argv, NULL, NULL);

    create(&model, c);
    adamw.lr = 5e-3f;
    struct zoo_run run = {&model, {{record, ckpt_adamw(c, &adamw), &data, NULL}}, NULL, test};
    return zoo_run(c, &run, &steps);
}
