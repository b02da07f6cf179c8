/* SPDX-License-Identifier: Apache-2.0 */
/* t5: an encoder-decoder (Raffel et al. 2020) writes a sequence backwards.  The only position
 * information is a learned attention bias for each distance.  A forward-only program decodes. */
#include "ckpt_nn.h"
#include "zoo.h"

enum { SYMBOLS = 16, START = SYMBOLS, WORDS = SYMBOLS + 1, LENGTH = 8, NEAR = LENGTH };
enum { WIDTH = 48, HEADS = 4, LAYERS = 1, BATCH = 64, STEPS = 500 };

struct block {
    struct ckpt_nn_norm norm[3];
    struct ckpt_nn_attention self, cross; /* cross: decoder only */
    struct ckpt_nn_mlp mlp;
};

struct t5 {
    struct ckpt_nn_embedding words;
    struct ckpt_nn_embedding bias[2]; /* encoder, decoder: [distance][head] */
    struct block block[2][LAYERS];
    struct ckpt_nn_norm norm[2];
    struct ckpt_nn_linear head;
};

static void create(struct t5 *m, ckpt *c)
{
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    attention.width = mlp.width = WIDTH;
    attention.heads = HEADS;
    attention.qkv_bias = attention.out_bias = mlp.bias = false;
    mlp.inner = 4 * WIDTH;
    mlp.activation = CKPT_NN_RELU;
    m->words = ckpt_nn_embedding(&nn, WORDS, WIDTH, "words");
    for (int side = 0; side < 2; side++) {
        const char *name = side ? "decoder" : "encoder";
        m->bias[side] = ckpt_nn_embedding(&nn, 2 * NEAR + 1, HEADS, "%s.bias", name);
        for (int i = 0; i < LAYERS; i++) {
            struct block *b = &m->block[side][i];
            for (int n = 0; n < 2 + side; n++)
                b->norm[n] = ckpt_nn_rms_norm(&nn, WIDTH, 1e-6f, "%s.%d.norm.%d", name, i, n);
            b->self = ckpt_nn_attention(&nn, &attention, "%s.%d.self", name, i);
            if (side)
                b->cross = ckpt_nn_attention(&nn, &attention, "%s.%d.cross", name, i);
            b->mlp = ckpt_nn_mlp(&nn, &mlp, "%s.%d.mlp", name, i);
        }
        m->norm[side] = ckpt_nn_rms_norm(&nn, WIDTH, 1e-6f, "%s.norm", name);
    }
    m->head = ckpt_nn_linear(&nn, WIDTH, SYMBOLS, false, "head");
}

/* The bias of query i for key j, [HEADS, LENGTH, LENGTH], looked up by j - i. */
static ckpt_tensor relative(const struct t5 *m, ckpt_tape *t, int side)
{
    ckpt_tensor i = ckpt_iota(t, CKPT_F32, 2, (int64_t[]){LENGTH, LENGTH}, 0);
    ckpt_tensor j = ckpt_iota(t, CKPT_F32, 2, (int64_t[]){LENGTH, LENGTH}, 1);
    ckpt_tensor distance = ckpt_clamp(t, ckpt_sub(t, j, i), -NEAR, NEAR);

    distance = ckpt_cast(t, ckpt_affine(t, distance, 1, NEAR), CKPT_I32);
    distance = ckpt_nn_apply_embedding(t, &m->bias[side], distance);
    return ckpt_permute(t, distance, (int[]){2, 0, 1});
}

/* x plus self-attention of `u`, with a bias. */
static ckpt_tensor attend(ckpt_tape *t, const struct ckpt_nn_attention *m, ckpt_tensor u,
                          ckpt_tensor bias, bool causal, ckpt_tensor x)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    ckpt_tensor q, k, v;

    spec.causal = causal;
    ckpt_nn_attention_heads(t, m, u, CKPT_NONE, &q, &k, &v);
    return ckpt_nn_attention_out(t, m, ckpt_attention(t, q, k, v, bias, &spec), x);
}

/* One side: x [batch, LENGTH, WIDTH]; source: the encoder's output, for the decoder. */
static ckpt_tensor run(const struct t5 *m, ckpt_tape *t, int side, ckpt_tensor x,
                       ckpt_tensor source)
{
    ckpt_tensor bias = relative(m, t, side);

    for (int i = 0; i < LAYERS; i++) {
        const struct block *b = &m->block[side][i];
        ckpt_label(t, "%s.%d", side ? "decoder" : "encoder", i);
        x = attend(t, &b->self, ckpt_nn_apply_norm(t, &b->norm[0], x), bias, side, x);
        if (side)
            x = ckpt_nn_apply_attention_add(t, &b->cross, ckpt_nn_apply_norm(t, &b->norm[2], x),
                                            source, CKPT_NONE, NULL, x);
        x = ckpt_nn_apply_mlp_add(t, &b->mlp, ckpt_nn_apply_norm(t, &b->norm[1], x), x);
    }
    return ckpt_nn_apply_norm(t, &m->norm[side], x);
}

/* Logits of the next symbol after each written position, [batch, LENGTH, SYMBOLS]. */
static ckpt_tensor forward(const struct t5 *m, ckpt_tape *t, int64_t batch)
{
    ckpt_tensor read = ckpt_input(t, "read", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor written = ckpt_input(t, "written", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor source = run(m, t, 0, ckpt_nn_apply_embedding(t, &m->words, read), CKPT_NONE);

    written = run(m, t, 1, ckpt_nn_apply_embedding(t, &m->words, written), source);
    return ckpt_nn_apply_linear(t, &m->head, written);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor next = ckpt_input(t, "next", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    return ckpt_cross_entropy(t, forward(user, t, batch), next, NULL);
}

static ckpt_tensor record_next(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor next = ckpt_argmax(t, forward(user, t, batch), 2);
    ckpt_output(t, "next", next);
    return next;
}

/* Symbols without repetition, in random order; the next symbol after each position of the reversed
 * sequence. */
static void draw(uint64_t step, int32_t read[BATCH][LENGTH], int32_t written[BATCH][LENGTH],
                 int32_t next[BATCH][LENGTH])
{
    static float u[BATCH][LENGTH];

    ckpt_fill_uniform(1, step, 1, &u[0][0], BATCH * LENGTH);
    for (int b = 0; b < BATCH; b++) {
        int32_t deck[SYMBOLS];
        for (int i = 0; i < SYMBOLS; i++)
            deck[i] = i;
        for (int i = 0; i < LENGTH; i++) {
            int chosen = i + (int)(u[b][i] * (float)(SYMBOLS - i));
            read[b][i] = deck[chosen];
            deck[chosen] = deck[i];
        }
        for (int i = 0; i < LENGTH; i++) {
            next[b][i] = read[b][LENGTH - 1 - i];
            written[b][i] = i ? next[b][i - 1] : START;
        }
    }
}

static int train(ckpt_program *p)
{
    int32_t read[BATCH][LENGTH], written[BATCH][LENGTH], next[BATCH][LENGTH];
    float loss;

    for (int step = 0; step < zoo_steps(STEPS); step++) {
        draw((uint64_t)step, read, written, next);
        if (zoo_feed(p, "read", read, sizeof read) ||
            zoo_feed(p, "written", written, sizeof written) ||
            zoo_feed(p, "next", next, sizeof next) || zoo_step(p, &loss))
            return -1;
        zoo_print(step, STEPS, loss);
    }
    return 0;
}

/* Greedy decoding, one symbol a step; *share: sequences without an error. */
static int test(ckpt_program *p, double *share)
{
    int32_t read[BATCH][LENGTH], written[BATCH][LENGTH], next[BATCH][LENGTH];
    int32_t answer[BATCH][LENGTH];
    int right = 0;

    draw(STEPS, read, written, next);
    for (int i = 0; i < LENGTH; i++) {
        if (ckpt_feed(p, "read", read, sizeof read) ||
            ckpt_feed(p, "written", written, sizeof written) || ckpt_step(p, NULL) ||
            ckpt_fetch(p, "next", answer, sizeof answer))
            return -1;
        for (int b = 0; b < BATCH && i + 1 < LENGTH; b++)
            written[b][i + 1] = answer[b][i];
    }
    for (int b = 0; b < BATCH; b++) {
        int same = 0;
        for (int i = 0; i < LENGTH; i++)
            same += answer[b][i] == next[b][i];
        right += same == LENGTH;
    }
    *share = (double)right / BATCH;
    printf("learned: %.1f %% of sequences are reversed without an error\n", 100 * *share);
    return 0;
}

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *training, *writing;
    struct ckpt_options opt;
    struct t5 model;
    double share = 1;
    ckpt *c = zoo_open(&opt, argc, argv);

    if (!c)
        return 2;
    create(&model, c);
    adamw.lr = 3e-3f;
    int failed = zoo_compile(c, record, &model, ckpt_adamw(c, &adamw), BATCH, &training) ||
                 ckpt_compile(c, record_next, &model, NULL, BATCH, &writing);
    if (!failed)
        ckpt_plan_print(training, stdout);
    if (!failed && !opt.plan_only)
        failed = train(training) || test(writing, &share);
    return zoo_close(c, failed, share > 0.9);
}
