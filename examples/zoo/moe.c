/* SPDX-License-Identifier: Apache-2.0 */
/* moe: a mixture of experts with top-2 routing (Shazeer et al. 2017; Fedus et al. 2021).  A token
 * consists of a rule number and real numbers; each rule has a random network of its own, which the
 * experts learn.  scatter_add dispatches tokens into a table of fixed capacity. */
#include "ckpt_nn.h"
#include "zoo.h"

enum { RULES = 6, NUMBERS = 6, IN = RULES + NUMBERS, OUT = 4, TRUE_WIDTH = 8 };
enum { WIDTH = 32, INNER = 24, EXPERTS = 8, CHOSEN = 2, LAYERS = 2, BATCH = 1024, STEPS = 300 };

struct layer {
    struct ckpt_nn_linear router;
    ckpt_tensor up, down; /* of all experts: [EXPERTS, WIDTH, INNER], [EXPERTS, INNER, WIDTH] */
};

struct moe {
    struct ckpt_nn_linear in, out;
    struct layer layer[LAYERS];
};

static void create(struct moe *m, ckpt *c)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    m->in = ckpt_nn_linear(&nn, IN, WIDTH, true, "in");
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &m->layer[i];
        char up[32], down[32];
        snprintf(up, sizeof up, "layer.%d.up", i);
        snprintf(down, sizeof down, "layer.%d.down", i);
        l->router = ckpt_nn_linear(&nn, WIDTH, EXPERTS, false, "layer.%d.router", i);
        l->up = ckpt_param(c, up, CKPT_F32, 3, (int64_t[]){EXPERTS, WIDTH, INNER},
                           CKPT_NORMAL(0.2f), true);
        l->down = ckpt_param(c, down, CKPT_F32, 3, (int64_t[]){EXPERTS, INNER, WIDTH},
                             CKPT_NORMAL(0.2f), true);
    }
    m->out = ckpt_nn_linear(&nn, WIDTH, OUT, true, "out");
}

/* A tensor of one element. */
static ckpt_tensor number(ckpt_tape *t, float value)
{
    return ckpt_affine(t, ckpt_iota(t, CKPT_F32, 1, (int64_t[]){1}, 0), 0, value);
}

/*
 * The row of the experts' table for each of `rows` choices: expert * capacity + number of earlier
 * choices of this expert.  A choice beyond the capacity gets the row after the table, which is
 * discarded.
 */
static ckpt_tensor assign(ckpt_tape *t, ckpt_tensor expert, ckpt_tensor hot, float capacity)
{
    ckpt_tensor limit = number(t, capacity);
    ckpt_tensor taken = ckpt_mul(t, ckpt_cumsum(t, hot, 0), hot);
    ckpt_tensor before = ckpt_affine(t, ckpt_squeeze(t, ckpt_sum(t, taken, 1u << 1), 1), 1, -1);
    ckpt_tensor row = ckpt_affine(t, ckpt_cast(t, expert, CKPT_F32), capacity, 0);

    row = ckpt_add(t, row, before);
    row = ckpt_masked_fill(t, row, ckpt_ge(t, before, limit), EXPERTS * capacity);
    return ckpt_cast(t, row, CKPT_I32);
}

/* All experts at once, each on its rows: [EXPERTS capacity, WIDTH] -> the same shape. */
static ckpt_tensor run_experts(const struct layer *m, ckpt_tape *t, ckpt_tensor x, int64_t capacity)
{
    x = ckpt_reshape(t, x, 3, (int64_t[]){EXPERTS, capacity, WIDTH});
    x = ckpt_gelu(t, ckpt_matmul(t, x, m->up, false, false));
    x = ckpt_matmul(t, x, m->down, false, false);
    return ckpt_reshape(t, x, 2, (int64_t[]){EXPERTS * capacity, WIDTH});
}

/* x [n, WIDTH] plus the output of its two experts; *balance is 1 if all experts have equal load. */
static ckpt_tensor mix(const struct layer *m, ckpt_tape *t, ckpt_tensor x, int64_t n,
                       ckpt_tensor *balance)
{
    int64_t capacity = n * CHOSEN * 5 / 4 / EXPERTS, rows = n * CHOSEN;
    ckpt_tensor expert, chance, gate, hot, row, sent, back;

    chance = ckpt_softmax(t, ckpt_nn_apply_linear(t, &m->router, x), 1);
    gate = ckpt_topk(t, chance, CHOSEN, &expert); /* [n, CHOSEN] */
    gate = ckpt_div(t, gate, ckpt_sum(t, gate, 1u << 1));

    /* First choices precede second choices, so that second choices are dropped when an expert is
     * full. */
    expert = ckpt_reshape(t, ckpt_transpose(t, expert, 0, 1), 1, (int64_t[]){rows});
    hot = ckpt_one_hot(t, expert, EXPERTS, CKPT_F32);
    row = assign(t, expert, hot, (float)capacity);
    *balance = ckpt_mul(t, ckpt_mean(t, hot, 1u << 0), ckpt_mean(t, chance, 1u << 0));
    *balance = ckpt_affine(t, ckpt_sum(t, *balance, 3u), EXPERTS, 0);
    *balance = ckpt_reshape(t, *balance, 0, NULL);

    sent = ckpt_expand(t, number(t, 0), 2, (int64_t[]){EXPERTS * capacity + 1, WIDTH});
    sent = ckpt_scatter_add(t, sent, 0,
                            ckpt_expand(t, ckpt_unsqueeze(t, row, 1), 2, (int64_t[]){rows, WIDTH}),
                            ckpt_repeat(t, x, (int64_t[]){CHOSEN, 1}));
    back = run_experts(m, t, ckpt_slice(t, sent, 0, 0, EXPERTS * capacity), capacity);
    back = ckpt_index_select(t, ckpt_pad(t, back, 0, 0, 1, CKPT_PAD_CONSTANT, 0), 0, row);
    back = ckpt_reshape(t, back, 3, (int64_t[]){CHOSEN, n, WIDTH});
    gate = ckpt_unsqueeze(t, ckpt_transpose(t, gate, 0, 1), 2);
    return ckpt_add(t, x, ckpt_squeeze(t, ckpt_sum(t, ckpt_mul(t, back, gate), 1u << 0), 0));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct moe *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor y = ckpt_input(t, "y", CKPT_F32, 2, (int64_t[]){batch, OUT});
    ckpt_tensor balance[LAYERS], loss;

    x = ckpt_nn_apply_linear(t, &m->in, x);
    for (int i = 0; i < LAYERS; i++) {
        ckpt_label(t, "layer.%d", i);
        x = mix(&m->layer[i], t, x, batch, &balance[i]);
    }
    ckpt_label(t, "loss");
    loss = ckpt_mse(t, ckpt_nn_apply_linear(t, &m->out, x), y, CKPT_NONE);
    ckpt_output(t, "error", loss);
    for (int i = 0; i < LAYERS; i++)
        loss = ckpt_add(t, loss, ckpt_affine(t, balance[i], 0.01f, 0));
    ckpt_output(t, "balance", balance[LAYERS - 1]);
    return loss;
}

/* y = down[rule] relu(up[rule] numbers), of variance about 1. */
static void draw(uint64_t step, float x[BATCH][IN], float y[BATCH][OUT])
{
    static float up[RULES][TRUE_WIDTH][NUMBERS], down[RULES][OUT][TRUE_WIDTH], u[BATCH];

    ckpt_fill_normal(7, 0, 1, &up[0][0][0], RULES * TRUE_WIDTH * NUMBERS);
    ckpt_fill_normal(7, 0, 2, &down[0][0][0], RULES * OUT * TRUE_WIDTH);
    ckpt_fill_normal(7, step, 3, &x[0][0], BATCH * IN);
    ckpt_fill_uniform(7, step, 4, u, BATCH);
    for (int b = 0; b < BATCH; b++) {
        int rule = (int)(u[b] * RULES);
        for (int i = 0; i < RULES; i++)
            x[b][i] = i == rule ? 2.f : 0.f;
        for (int o = 0; o < OUT; o++)
            y[b][o] = 0;
        for (int h = 0; h < TRUE_WIDTH; h++) {
            float sum = 0;
            for (int i = 0; i < NUMBERS; i++)
                sum += up[rule][h][i] * x[b][RULES + i];
            for (int o = 0; o < OUT; o++)
                y[b][o] += sum > 0 ? 0.2f * down[rule][o][h] * sum : 0;
        }
    }
}

int main(int argc, char **argv)
{
    static float x[BATCH][IN], y[BATCH][OUT];
    struct ckpt_options opt;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    float loss, error = 0, balance = 1;
    ckpt_program *p;
    struct moe model;
    ckpt *c = zoo_open(&opt, argc, argv);

    if (!c)
        return 2;
    create(&model, c);
    adamw.lr = 5e-3f;
    int failed = zoo_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH, &p);
    if (!failed)
        ckpt_plan_print(p, stdout);
    for (int step = 0; step < zoo_steps(STEPS) && !failed && !opt.plan_only; step++) {
        draw((uint64_t)step, x, y); /* always new data, so this is a test error */
        failed = zoo_feed(p, "x", x, sizeof x) || zoo_feed(p, "y", y, sizeof y) ||
                 zoo_step(p, &loss) || ckpt_fetch(p, "error", &error, sizeof error) ||
                 ckpt_fetch(p, "balance", &balance, sizeof balance);
        if (!failed)
            zoo_print(step, STEPS, loss);
    }
    if (!failed && !opt.plan_only)
        printf("learned: the squared error is %.3f, the load is %.2f times an even one's\n",
               (double)error, (double)balance);
    return zoo_close(c, failed, error < 0.1f && balance < 1.5f);
}
