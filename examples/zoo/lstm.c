/* SPDX-License-Identifier: Apache-2.0 */
/* lstm: a long short-term memory (Hochreiter & Schmidhuber 1997) reads a sequence of symbols, of
 * which an early one is marked, and names the marked symbol at the end.  The loop over time is a C
 * loop: each iteration records a step, and the planner chooses which steps to keep and which to
 * recompute. */
#include "ckpt_nn.h"
#include "zoo.h"

enum { SYMBOLS = 8, LENGTH = 32, MARKS = 8, WIDTH = 48, BATCH = 64, STEPS = 150, TESTS = 4 };

struct lstm {
    struct ckpt_nn_embedding symbol; /* input and bias of the four gates for each symbol */
    struct ckpt_nn_linear hidden, head;
};

static void create(struct lstm *m, ckpt *c)
{
    struct ckpt_init small = CKPT_NORMAL(0.5f);
    struct ckpt_nn nn = CKPT_NN_INIT, table;

    nn.context = c;
    table = nn;
    table.weight = &small;
    m->symbol = ckpt_nn_embedding(&table, 2 * SYMBOLS, 4 * WIDTH, "symbol");
    m->hidden = ckpt_nn_linear(&nn, WIDTH, 4 * WIDTH, false, "hidden");
    m->head = ckpt_nn_linear(&nn, WIDTH, SYMBOLS, true, "head");
}

/* One step: x [batch, 4 WIDTH] is the symbol's contribution to the gates; h and c, [batch, WIDTH],
 * are replaced. */
static void step(const struct lstm *m, ckpt_tape *t, ckpt_tensor x, ckpt_tensor *h, ckpt_tensor *c)
{
    ckpt_tensor gate[4]; /* input, forget, candidate, output */

    ckpt_split(t, ckpt_linear_add(t, *h, m->hidden.weight, CKPT_NONE, x), 1, 4, gate);
    ckpt_tensor forget = ckpt_sigmoid(t, ckpt_affine(t, gate[1], 1, 3)); /* initially near 1 */
    ckpt_tensor new = ckpt_mul(t, ckpt_sigmoid(t, gate[0]), ckpt_tanh(t, gate[2]));
    *c = ckpt_add(t, ckpt_mul(t, forget, *c), new);
    *h = ckpt_mul(t, ckpt_sigmoid(t, gate[3]), ckpt_tanh(t, *c));
}

/* Logits of the symbols after the last step, [batch, SYMBOLS]. */
static ckpt_tensor forward(const struct lstm *m, ckpt_tape *t, int64_t batch)
{
    static const float zeros[BATCH * WIDTH];
    ckpt_tensor symbol = ckpt_input(t, "symbol", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor h = ckpt_constant(t, "zeros", CKPT_F32, 2, (int64_t[]){batch, WIDTH}, zeros), c = h;

    for (int i = 0; i < LENGTH; i++) {
        ckpt_label(t, "step.%d", i);
        ckpt_tensor now = ckpt_squeeze(t, ckpt_slice(t, symbol, 1, i, i + 1), 1);
        step(m, t, ckpt_nn_apply_embedding(t, &m->symbol, now), &h, &c);
    }
    ckpt_label(t, "head");
    return ckpt_nn_apply_linear(t, &m->head, h);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor marked = ckpt_input(t, "marked", CKPT_I32, 1, (int64_t[]){batch});
    return ckpt_cross_entropy(t, forward(user, t, batch), marked, NULL);
}

static ckpt_tensor record_answer(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor answer = ckpt_argmax(t, forward(user, t, batch), 1);
    ckpt_output(t, "answer", answer);
    return answer;
}

/* Random symbols; the marked one, among the first, has the code symbol + SYMBOLS. */
static void draw(uint64_t seed, int32_t symbol[BATCH][LENGTH], int32_t marked[BATCH])
{
    static float u[BATCH][LENGTH + 1];

    ckpt_fill_uniform(1, seed, 1, &u[0][0], BATCH * (LENGTH + 1));
    for (int b = 0; b < BATCH; b++) {
        int place = (int)(u[b][LENGTH] * MARKS);
        for (int i = 0; i < LENGTH; i++)
            symbol[b][i] = (int32_t)(u[b][i] * SYMBOLS);
        marked[b] = symbol[b][place];
        symbol[b][place] += SYMBOLS;
    }
}

static int train(ckpt_program *p)
{
    int32_t symbol[BATCH][LENGTH], marked[BATCH];
    float loss;

    for (int i = 0; i < zoo_steps(STEPS); i++) {
        draw((uint64_t)i, symbol, marked);
        if (zoo_feed(p, "symbol", symbol, sizeof symbol) ||
            zoo_feed(p, "marked", marked, sizeof marked) || zoo_step(p, &loss))
            return -1;
        zoo_print(i, STEPS, loss);
    }
    return 0;
}

/* The accuracy on new sequences. */
static int test(ckpt_program *p, double *accuracy)
{
    int32_t symbol[BATCH][LENGTH], marked[BATCH], answer[BATCH];
    int right = 0;

    for (int i = 0; i < TESTS; i++) {
        draw((uint64_t)(STEPS + i), symbol, marked);
        if (ckpt_feed(p, "symbol", symbol, sizeof symbol) || ckpt_step(p, NULL) ||
            ckpt_fetch(p, "answer", answer, sizeof answer))
            return -1;
        for (int b = 0; b < BATCH; b++)
            right += answer[b] == marked[b];
    }
    *accuracy = (double)right / (TESTS * BATCH);
    printf("learned: %.1f %% of marked symbols are remembered\n", 100 * *accuracy);
    return 0;
}

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_options opt;
    ckpt_program *training, *testing;
    double accuracy = 1;
    struct lstm model;
    ckpt *c = zoo_open(&opt, argc, argv);

    if (!c)
        return 2;
    create(&model, c);
    adamw.lr = 1e-2f;
    adamw.clip_norm = 1;
    int failed = zoo_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH, &training) ||
                 ckpt_compile(c, record_answer, &model, NULL, BATCH, &testing);
    if (!failed)
        ckpt_plan_print(training, stdout);
    if (!failed && !opt.plan_only)
        failed = train(training) || test(testing, &accuracy);
    return zoo_close(c, failed, accuracy > 0.9);
}
