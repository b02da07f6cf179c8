/* SPDX-License-Identifier: Apache-2.0 */
/* lstm: a long short-term memory (Hochreiter & Schmidhuber 1997) reads a sequence of symbols, of
 * which an early one is marked, and names the marked symbol at the end.  The loop over time is a C
 * loop: each iteration records a step, and the planner chooses which steps to keep and which to
 * recompute. */
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
static ckpt_tensor forward(ckpt_tape *t, int64_t batch, bool training, const void *model)
{
    const struct lstm *m = model;
    static const float zeros[BATCH * WIDTH];
    ckpt_tensor symbol = ckpt_input(t, "symbol", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor h = ckpt_constant(t, "zeros", CKPT_F32, 2, (int64_t[]){batch, WIDTH}, zeros), c = h;

    (void)training;
    for (int i = 0; i < LENGTH; i++) {
        ckpt_label(t, "step.%d", i);
        ckpt_tensor now = ckpt_squeeze(t, ckpt_slice(t, symbol, 1, i, i + 1), 1);
        step(m, t, ckpt_nn_apply_embedding(t, &m->symbol, now), &h, &c);
    }
    ckpt_label(t, "head");
    return ckpt_nn_apply_linear(t, &m->head, h);
}

static int32_t symbol[BATCH][LENGTH], marked[BATCH];

/* Random symbols; the marked one, among the first, has the code symbol + SYMBOLS. */
static void draw(uint64_t step)
{
    static float u[BATCH][LENGTH + 1];

    ckpt_fill_uniform(1, step, 1, &u[0][0], BATCH * (LENGTH + 1));
    for (int b = 0; b < BATCH; b++) {
        int place = (int)(u[b][LENGTH] * MARKS);
        for (int i = 0; i < LENGTH; i++)
            symbol[b][i] = (int32_t)(u[b][i] * SYMBOLS);
        marked[b] = symbol[b][place];
        symbol[b][place] += SYMBOLS;
    }
}

static const struct zoo_data data = {draw, {{"marked", marked}, {"symbol", symbol}}};
static const struct zoo_steps steps = {.batch = BATCH, .steps = STEPS, .tests = TESTS};

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct lstm model;
    ckpt *c = zoo_open(argc, argv, NULL, NULL);

    create(&model, c);
    adamw.lr = 1e-2f;
    adamw.clip_norm = 1;
    struct zoo_classifier z = {&model, forward, &data, ckpt_adamw(c, &adamw), NULL, NULL};
    return zoo_classify(c, &z, &steps);
}
