/* SPDX-License-Identifier: Apache-2.0 */
/* ssm: a selective state space model (Gu & Dao 2023) reads a sequence of symbols and names, at
 * every position, the last marked symbol.  The decay and the input of the state depend on the
 * symbol.  The scan is a C loop of element-wise ops, fused into a few kernels per step. */
#include <math.h>
#include "ckpt_nn.h"
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
static ckpt_tensor forward(const struct ssm *m, ckpt_tape *t, int64_t batch)
{
    ckpt_tensor symbol = ckpt_input(t, "symbol", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor x = ckpt_nn_apply_embedding(t, &m->symbol, symbol), part[2], bc[2];
    ckpt_tensor a = ckpt_neg(t, ckpt_exp(t, m->rate));

    ckpt_split(t, ckpt_nn_apply_linear(t, &m->in, ckpt_nn_apply_norm(t, &m->norm, x)), 2, 2, part);
    ckpt_tensor u = ckpt_silu(t, part[0]);
    ckpt_tensor dt = ckpt_softplus(t, ckpt_nn_apply_linear(t, &m->dt, u));
    ckpt_split(t, ckpt_nn_apply_linear(t, &m->bc, u), 2, 2, bc);
    ckpt_tensor y = ckpt_add(t, scan(t, a, u, dt, bc[0], bc[1]), ckpt_mul(t, u, m->skip));
    ckpt_label(t, "head");
    y = ckpt_mul(t, y, ckpt_silu(t, part[1]));
    return ckpt_nn_apply_linear(t, &m->head, ckpt_linear_add(t, y, m->out.weight, CKPT_NONE, x));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor last = ckpt_input(t, "last", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    return ckpt_cross_entropy(t, forward(user, t, batch), last, NULL);
}

static ckpt_tensor record_answer(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor answer = ckpt_argmax(t, forward(user, t, batch), 2);
    ckpt_output(t, "answer", answer);
    return answer;
}

/* Random symbols; one of eight, and the first one, is marked and has the code symbol + SYMBOLS. */
static void draw(uint64_t seed, int32_t symbol[BATCH][LENGTH], int32_t last[BATCH][LENGTH])
{
    static float u[BATCH][LENGTH][2];

    ckpt_fill_uniform(1, seed, 1, &u[0][0][0], BATCH * LENGTH * 2);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < LENGTH; i++) {
            bool marked = i == 0 || u[b][i][1] < 0.125f;
            int32_t s = (int32_t)(u[b][i][0] * SYMBOLS);
            symbol[b][i] = marked ? s + SYMBOLS : s;
            last[b][i] = marked ? s : last[b][i - 1];
        }
}

/* Training steps, or test steps that count correct positions in *right. */
static int run(ckpt_program *p, int begin, int end, int *right)
{
    int32_t symbol[BATCH][LENGTH], last[BATCH][LENGTH], answer[BATCH][LENGTH];
    float loss;

    for (int i = begin; i < end; i++) {
        draw((uint64_t)i, symbol, last);
        if (zoo_feed(p, "symbol", symbol, sizeof symbol) ||
            (!right && zoo_feed(p, "last", last, sizeof last)) ||
            zoo_step(p, right ? NULL : &loss) ||
            (right && ckpt_fetch(p, "answer", answer, sizeof answer)))
            return -1;
        if (!right)
            zoo_print(i, STEPS, loss);
        for (int k = 0; right && k < BATCH * LENGTH; k++)
            *right += answer[k / LENGTH][k % LENGTH] == last[k / LENGTH][k % LENGTH];
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_options opt;
    ckpt_program *training, *testing;
    struct ssm model;
    int right = 0;
    ckpt *c = zoo_open(&opt, argc, argv);

    if (!c)
        return 2;
    create(&model, c);
    adamw.lr = 5e-3f;
    adamw.clip_norm = 1;
    int failed = zoo_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH, &training) ||
                 ckpt_compile(c, record_answer, &model, NULL, BATCH, &testing);
    if (!failed)
        ckpt_plan_print(training, stdout);
    if (failed || opt.plan_only)
        return zoo_close(c, failed, true);
    failed = run(training, 0, zoo_steps(STEPS), NULL) || run(testing, STEPS, STEPS + TESTS, &right);
    double accuracy = (double)right / (TESTS * BATCH * LENGTH);
    if (!failed)
        printf("learned: %.1f %% of places are named right\n", 100 * accuracy);
    return zoo_close(c, failed, accuracy > 0.9);
}
