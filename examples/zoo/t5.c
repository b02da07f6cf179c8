/* SPDX-License-Identifier: Apache-2.0 */
/* t5: an encoder-decoder (Raffel et al. 2020) writes a sequence backwards.  The only position
 * information is a learned attention bias for each distance.  A forward-only program decodes. */
#include <string.h>
#include "zoo.h"

enum { SYMBOLS = 16, START = SYMBOLS, WORDS = SYMBOLS + 1, LENGTH = 8, NEAR = LENGTH };
enum { WIDTH = 48, HEADS = 4, LAYERS = 1, BATCH = 64, STEPS = 500 };

struct t5 {
    struct ckpt_nn_embedding words;
    struct ckpt_nn_embedding bias[2]; /* encoder, decoder: [distance][head] */
    struct ckpt_nn_transformer_layer block[2][LAYERS];
    struct ckpt_nn_norm norm[2];
    struct ckpt_nn_linear head;
};

static void create(struct t5 *m, ckpt *c)
{
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    attention.width = mlp.width = WIDTH;
    attention.heads = HEADS;
    attention.qkv_bias = attention.out_bias = mlp.bias = false;
    mlp.inner = 4 * WIDTH;
    mlp.activation = CKPT_NN_RELU;
    layer.attention = &attention;
    layer.mlp = &mlp;
    layer.eps = 1e-6f;
    layer.rms = true;
    layer.norm1_name = "norm.0";
    layer.norm2_name = "norm.1";
    layer.cross_norm_name = "norm.2";
    layer.attention_name = "self";
    m->words = ckpt_nn_embedding(&nn, WORDS, WIDTH, "words");
    for (int side = 0; side < 2; side++) {
        const char *name = side ? "decoder" : "encoder";
        m->bias[side] = ckpt_nn_embedding(&nn, 2 * NEAR + 1, HEADS, "%s.bias", name);
        layer.cross = side ? &attention : NULL;
        for (int i = 0; i < LAYERS; i++)
            m->block[side][i] = ckpt_nn_transformer_layer(&nn, &layer, "%s.%d", name, i);
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

/* One side: x [batch, LENGTH, WIDTH]; source: the encoder's output, for the decoder. */
static ckpt_tensor run(const struct t5 *m, ckpt_tape *t, int side, ckpt_tensor x,
                       ckpt_tensor source)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;

    spec.causal = side;
    spec.bias = relative(m, t, side);
    for (int i = 0; i < LAYERS; i++) {
        ckpt_label(t, "%s.%d", side ? "decoder" : "encoder", i);
        x = ckpt_nn_apply_transformer_layer(t, &m->block[side][i], x, source, CKPT_NONE, &spec);
    }
    return ckpt_nn_apply_norm(t, &m->norm[side], x);
}

/* Logits of the next symbol after each written position, [batch, LENGTH, SYMBOLS]. */
static ckpt_tensor forward(ckpt_tape *t, int64_t batch, bool training, const void *model)
{
    const struct t5 *m = model;
    ckpt_tensor read = ckpt_input(t, "read", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor written = ckpt_input(t, "written", CKPT_I32, 2, (int64_t[]){batch, LENGTH});
    ckpt_tensor source = run(m, t, 0, ckpt_nn_apply_embedding(t, &m->words, read), CKPT_NONE);

    (void)training;
    written = run(m, t, 1, ckpt_nn_apply_embedding(t, &m->words, written), source);
    return ckpt_nn_apply_linear(t, &m->head, written);
}

static int32_t read[BATCH][LENGTH], written[BATCH][LENGTH], next[BATCH][LENGTH];

/* Symbols without repetition, in random order; the next symbol after each position of the reversed
 * sequence. */
static void draw(uint64_t step)
{
    static float u[BATCH][LENGTH];

    ckpt_fill_uniform(1, step, 1, &u[0][0], BATCH * LENGTH);
    for (int b = 0; b < BATCH; b++) {
        int32_t deck[SYMBOLS];
        for (int i = 0; i < SYMBOLS; i++)
            deck[i] = i;
        for (int i = 0; i < LENGTH; i++) {
            int chosen = i + (int)(u[b][i] * (float)(SYMBOLS - i));
            read[b][i] = next[b][LENGTH - 1 - i] = deck[chosen];
            deck[chosen] = deck[i];
        }
        for (int i = 0; i < LENGTH; i++)
            written[b][i] = i ? next[b][i - 1] : START;
    }
}

/* Greedy decoding, one symbol a step; counts sequences without an error. */
static int test(ckpt_program *p, bool *learned)
{
    int32_t answer[BATCH][LENGTH];
    int right = 0;

    draw(STEPS);
    for (int i = 0; i < LENGTH; i++) {
        if (ckpt_feed(p, "read", read, sizeof read) ||
            ckpt_feed(p, "written", written, sizeof written) || ckpt_step(p, NULL) ||
            ckpt_fetch(p, "answer", answer, sizeof answer))
            return -1;
        for (int b = 0; b < BATCH && i + 1 < LENGTH; b++)
            written[b][i + 1] = answer[b][i];
    }
    for (int b = 0; b < BATCH; b++)
        right += !memcmp(answer[b], next[b], sizeof next[b]);
    printf("learned: %.1f %% of sequences are reversed without an error\n", 100. * right / BATCH);
    *learned = right > 0.9 * BATCH;
    return 0;
}

static const struct zoo_data data = {draw, {{"next", next}, {"read", read}, {"written", written}}};
static const struct zoo_steps steps = {.batch = BATCH, .steps = STEPS};

int main(int argc, char **argv)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct t5 model;
    ckpt *c = zoo_open(argc, argv, NULL, NULL);

    create(&model, c);
    adamw.lr = 3e-3f;
    struct zoo_classifier z = {&model, forward, &data, ckpt_adamw(c, &adamw), NULL, test};
    return zoo_classify(c, &z, &steps);
}
