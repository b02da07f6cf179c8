/* SPDX-License-Identifier: Apache-2.0 */
/* ssm: a selective state space model (Gu & Dao 2023) reads a sequence of symbols and names, at
 * every position, the last marked symbol.  The decay and the input of the state depend on the
 * symbol.  The scan is a C loop of element-wise ops, fused into a few kernels per step. */
#include <math.h>
#include "zoo.h"

enum { SYMBOLS = 8, LENGTH = 48, WIDTH = 32, INNER = 32, STATE = 24 };
enum { BATCH = 16, STEPS = 160, TESTS = 4 };

struct ssm {
    struct ckpt_nn_embedding symbol;
    struct ckpt_nn_norm norm;
    struct ckpt_nn_linear in, dt, bc, out, head;
    ckpt_tensor rate, skip; /* log of -A [INNER, STATE]; D [INNER] */
};

static void create(struct ssm *m, ckpt *c)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    float rate[INNER * STATE];

    nn.context = c;
    m->symbol = ckpt_nn_embedding(&nn, 2 * SYMBOLS, WIDTH, "symbol");
    m->norm = ckpt_nn_rms_norm(&nn, WIDTH, 1e-6f, "norm");
    m->in = ckpt_nn_linear(&nn, WIDTH, 2 * INNER, false, "in");
    m->dt = ckpt_nn_linear(&nn, INNER, INNER, true, "dt");
    m->bc = ckpt_nn_linear(&nn, INNER, 2 * STATE, false, "bc");
    m->out = ckpt_nn_linear(&nn, INNER, WIDTH, false, "out");
    m->head = ckpt_nn_linear(&nn, WIDTH, SYMBOLS, true, "head");
    m->rate = ckpt_param(c, "rate", CKPT_F32, 2, (int64_t[]){INNER, STATE}, CKPT_ZEROS, true);
    m->skip = ckpt_param(c, "skip", CKPT_F32, 1, (int64_t[]){INNER}, CKPT_ONES, true);
    for (int i = 0; i < INNER * STATE; i++)
        rate[i] = logf((float)(i % STATE + 1)); /* S4D-real initialization: A = -1, -2, ... */
    ckpt_param_set(c, m->rate, CKPT_VALUE, rate, INNER * STATE);
}

/*
 * y of h = exp(dt A) h + dt B u, y = C h, from h = 0.  u and dt [batch, LENGTH, INNER]; b and c
 * [batch, LENGTH, STATE].  ckpt_split returns the gradients of all positions in one tensor; with
 * single slices each gradient would be a tensor as large as the whole.
 */
static ckpt_tensor scan(ckpt_tape *t, ckpt_tensor a, ckpt_tensor u, ckpt_tensor dt, ckpt_tensor b,
                        ckpt_tensor c)
{
    ckpt_tensor us[LENGTH], dts[LENGTH], bs[LENGTH], cs[LENGTH], h = CKPT_NONE;

    ckpt_split(t, ckpt_unsqueeze(t, u, 3), 1, LENGTH, us);
    ckpt_split(t, ckpt_unsqueeze(t, dt, 3), 1, LENGTH, dts); /* [batch, 1, INNER, 1] */
    ckpt_split(t, ckpt_unsqueeze(t, b, 2), 1, LENGTH, bs);   /* [batch, 1, 1, STATE] */
    ckpt_split(t, ckpt_unsqueeze(t, c, 2), 1, LENGTH, cs);
    for (int i = 0; i < LENGTH; i++) {
        ckpt_label(t, "step.%d", i);
        ckpt_tensor add = ckpt_mul(t, ckpt_mul(t, dts[i], us[i]), bs[i]);
        if (i > 0)
            add = ckpt_add(t, ckpt_mul(t, ckpt_exp(t, ckpt_mul(t, dts[i], a)), h), add);
        h = add;
        us[i] = ckpt_squeeze(t, ckpt_sum(t, ckpt_mul(t, h, cs[i]), 1u << 3), 3);
    }
    return ckpt_concat(t, 1, LENGTH, us);
}

/* Logits at every position, [batch, LENGTH, SYMBOLS]. */
static ckpt_tensor forward(ckpt_tape *t, int64_t batch, bool training, const void *model)
{
    const struct ssm *m = model;
    ckpt_tensor symbol = ckpt_input(t, "symbol", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor x = ckpt_nn_apply_embedding(t, &m->symbol, symbol), part[2], bc[2];
    ckpt_tensor a = ckpt_neg(t, ckpt_exp(t, m->rate));

    (void)training;
    ckpt_split(t, ckpt_nn_apply_linear(t, &m->in, ckpt_nn_apply_norm(t, &m->norm, x)), 2, 2, part);
    ckpt_tensor u = ckpt_silu(t, part[0]);
    ckpt_tensor dt = ckpt_softplus(t, ckpt_nn_apply_linear(t, &m->dt, u));
    ckpt_split(t, ckpt_nn_apply_linear(t, &m->bc, u), 2, 2, bc);
    ckpt_tensor y = ckpt_add(t, scan(t, a, u, dt, bc[0], bc[1]), ckpt_mul(t, u, m->skip));
    ckpt_label(t, "head");
    y = ckpt_mul(t, y, ckpt_silu(t, part[1]));
    return ckpt_nn_apply_linear(t, &m->head, ckpt_linear_add(t, y, m->out.weight, CKPT_NONE, x));
}

static int32_t symbol[BATCH][LENGTH], last[BATCH][LENGTH];

/* Random symbols; one of eight, and the first one, is marked and has the code symbol + SYMBOLS. */
static void draw(uint64_t step)
{
    static float u[BATCH][LENGTH][2];

    ckpt_fill_uniform(1, step, 1, &u[0][0][0], BATCH * LENGTH * 2);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < LENGTH; i++) {
            bool marked = i == 0 || u[b][i][1] < 0.125f;
            int32_t s = (int32_t)(u[b][i][0] * SYMBOLS);
            symbol[b][i] = marked ? s + SYMBOLS : s;
            last[b][i] = marked ? s : last[b][i - 1];
        }
}

static const struct zoo_data data = {draw, {{"last", last}, {"symbol", symbol}}};
static const struct zoo_steps steps = {.batch = BATCH, .steps = STEPS, .tests = TESTS};

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ssm model;
    ckpt *c = zoo_open(argc, argv, NULL, NULL);

    create(&model, c);
    adamw.lr = 5e-3f;
    adamw.clip_norm = 1;
    struct zoo_classifier z = {&model, forward, &data, ckpt_adamw(c, &adamw), NULL, NULL};
    return zoo_classify(c, &z, &steps);
}
